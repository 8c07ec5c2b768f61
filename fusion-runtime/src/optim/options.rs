//! Options of rules as text in checkpoints, by PyTorch's names.

use crate::error::Error;

use super::rule::{Adagrad, Adam, AdamW, Lion, Precision, RmsProp, Rule, Sgd};

/// A value of an option.
trait OptionValue: Sized {
    /// Formats the value exactly, so that `parse` returns the same value.
    fn text(&self) -> String;

    fn parse(text: &str) -> Option<Self>;

    /// Returns the requirement that this value of the option `name` violates.
    fn lacks(&self, _name: &str) -> Option<&'static str> {
        None
    }
}

impl OptionValue for f64 {
    fn text(&self) -> String {
        format!("{self:?}")
    }

    fn parse(text: &str) -> Option<f64> {
        text.parse().ok()
    }

    fn lacks(&self, name: &str) -> Option<&'static str> {
        // Kernels compute with the option in 32 bits.
        let fits = (*self as f32).is_finite();
        match name {
            "dampening" => (!fits).then_some("it must be a number of 32 bits"),
            _ => (!fits || *self < 0.0).then_some("it must be a number of 32 bits, from 0 on"),
        }
    }
}

impl OptionValue for bool {
    fn text(&self) -> String {
        self.to_string()
    }

    fn parse(text: &str) -> Option<bool> {
        text.parse().ok()
    }
}

impl OptionValue for [f64; 2] {
    fn text(&self) -> String {
        format!("{:?}, {:?}", self[0], self[1])
    }

    fn parse(text: &str) -> Option<[f64; 2]> {
        let (first, second) = text.split_once(", ")?;
        Some([first.parse().ok()?, second.parse().ok()?])
    }

    fn lacks(&self, _name: &str) -> Option<&'static str> {
        let fits = self.iter().all(|beta| (0.0..1.0).contains(beta));
        (!fits).then_some("both must be from 0 to less than 1")
    }
}

impl OptionValue for Precision {
    fn text(&self) -> String {
        format!("{self:?}")
    }

    fn parse(text: &str) -> Option<Precision> {
        [Precision::F32, Precision::Bf16, Precision::Bits8].into_iter().find(|kind| kind.text() == text)
    }
}

macro_rules! options {
    ($($rule:ident { $($option:ident)* })*) => {
        impl Rule {
            /// Returns all options with their values.
            pub(super) fn options(&self) -> Vec<(&'static str, String)> {
                match self { $(
                    Rule::$rule(options) => vec![$( (stringify!($option), options.$option.text()) ),*],
                )* }
            }

            /// Checks all options, by PyTorch's conditions.
            pub(super) fn check(&self) -> Result<(), Error> {
                match self { $(
                    Rule::$rule(options) => {
                        $(
                            if let Some(lacks) = options.$option.lacks(stringify!($option)) {
                                let what = format!("cannot be {}: {lacks}", options.$option.text());
                                return Err(Error::Parameter { name: stringify!($option).into(), what });
                            }
                        )*
                    }
                )* }
                self.check_together()
            }

            /// Returns this rule with other options, or the problem of one of them.
            pub(super) fn with_options<'t>(&self, text: impl Fn(&str) -> Option<&'t str>) -> Result<Rule, String> {
                match self { $(
                    Rule::$rule(_) => Ok($rule { $( $option: parsed(stringify!($option), &text)? ),* }.into()),
                )* }
            }
        }
    };
}

options! {
    Sgd { lr momentum dampening weight_decay nesterov maximize }
    Adam { lr betas eps weight_decay amsgrad maximize state }
    AdamW { lr betas eps weight_decay amsgrad maximize state }
    RmsProp { lr alpha eps weight_decay momentum centered maximize }
    Adagrad { lr lr_decay weight_decay initial_accumulator_value eps maximize }
    Lion { lr betas weight_decay maximize }
}

fn parsed<'t, V: OptionValue>(name: &str, text: impl Fn(&str) -> Option<&'t str>) -> Result<V, String> {
    let text = text(name).ok_or_else(|| format!("the option `{name}` is missing"))?;
    let value = V::parse(text).filter(|value| value.lacks(name).is_none());
    value.ok_or_else(|| format!("the option `{name}` cannot be `{text}`"))
}

impl Rule {
    /// Checks that options fit together, by PyTorch's conditions.
    fn check_together(&self) -> Result<(), Error> {
        match self {
            Rule::Sgd(Sgd { nesterov: true, momentum, dampening, .. })
                if *momentum == 0.0 || *dampening != 0.0 =>
            {
                let what = format!(
                    "needs a momentum and no dampening: `momentum` is {momentum} and `dampening` is {dampening}"
                );
                Err(Error::Parameter { name: "nesterov".into(), what })
            }
            Rule::Sgd(_)
            | Rule::Adam(_)
            | Rule::AdamW(_)
            | Rule::RmsProp(_)
            | Rule::Adagrad(_)
            | Rule::Lion(_) => Ok(()),
        }
    }

    /// Checks the options that determine the set of states. These options are fixed when an optimizer is
    /// made.
    pub(super) fn check_states(&self, other: &Rule) -> Result<(), String> {
        let names = |rule: &Rule| rule.states().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        if names(self) == names(other) && self.precision() == other.precision() {
            return Ok(());
        }
        let decides = |name: &str| ["momentum", "centered", "amsgrad", "state"].contains(&name);
        let options = self.options().into_iter().zip(other.options());
        let different = options.filter(|((name, here), (_, there))| decides(name) && here != there);
        let told = different.map(|((name, here), (_, there))| format!("`{name}` is {there}, not {here}"));
        Err(format!(
            "{}: make the optimizer so, for it decides which states there are",
            told.collect::<Vec<_>>().join(", ")
        ))
    }
}
