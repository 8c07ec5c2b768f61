//! Arguments that fit no form of a function: which of them, and the messages about them.

use super::super::build::{Builder, Env, ExprValue};
use super::super::dims;
use super::super::value::axes_of;
use crate::diag::{self, Message, hints};
use crate::parse::ast::{Arg, At, Expr, ExprKind, Function, Name, Param, ParamKind, Unary};

/// Returns the message for a named argument that no form of a library function has.
pub(super) fn unknown_argument(function: &str, name: &str, forms: &[&Function]) -> Message {
    match hints::argument(function, name) {
        Some(how) => diag::argument_otherwise(function, name, how),
        None => unknown_parameter(function, name, forms),
    }
}

/// Returns the message for a named argument that no form of a function has, with a similar name or all names.
pub(super) fn unknown_parameter(function: &str, name: &str, forms: &[&Function]) -> Message {
    let mut params: Vec<&str> = Vec::new();
    for param in forms.iter().flat_map(|form| &form.params) {
        if !params.contains(&param.name.text.as_str()) {
            params.push(&param.name.text);
        }
    }
    let near = diag::did_you_mean(name, params.iter().copied());
    let all = diag::list(params);
    let near = if near.is_empty() && !all.is_empty() { format!(": it has {all}") } else { near };
    diag::unknown_argument(function, name, near)
}

/// Returns the index of the first argument that is a dim where a value is expected, or the reverse. A number
/// fits a value parameter even if a dim has it as its name.
pub(super) fn misfit(b: &Builder<'_>, env: &Env, form: &Function, args: &[Arg]) -> Option<usize> {
    args.iter().enumerate().position(|(i, arg)| {
        let named = |label: &Name| form.params.iter().find(|param| param.name.text == label.text);
        let param = arg.name.as_ref().map_or(form.params.get(i), named);
        let is_dim = dims::named(b, env, &arg.value).is_some() || dims::is_mistyped(env, &arg.value);
        let is_number = matches!(arg.value.kind, ExprKind::Int(..));
        !param.is_some_and(|param| {
            let wants_dim = matches!(param.kind, ParamKind::Dim);
            wants_dim == is_dim || !wants_dim && is_number
        })
    })
}

/// Returns true if all forms refuse an argument for a parameter of the same name.
pub(super) fn misfit_of_all(forms: &[&Function], misfits: &[Option<usize>]) -> bool {
    let named = |(form, misfit): (&&Function, &Option<usize>)| {
        misfit.and_then(|i| form.params.get(i)).map(|param| param.name.text.clone())
    };
    let mut names = forms.iter().zip(misfits).map(named);
    let first = names.next().flatten();
    first.is_some() && names.all(|name| name == first)
}

/// Reports arguments that no form of a library function takes.
pub(super) fn misformed(
    b: &mut Builder<'_>,
    env: &Env,
    at: At,
    (name, forms): (&str, &[&Function]),
    args: &[Arg],
) -> ExprValue {
    let is_param =
        |label: &Name| forms.iter().flat_map(|form| &form.params).any(|param| param.name.text == label.text);
    let mut labels = args.iter().filter_map(|arg| arg.name.as_ref());
    if let Some(label) = labels.find(|label| !is_param(label)) {
        return b.error(label.at, unknown_argument(name, &label.text, forms));
    }
    // A tensor after the first argument is probably a scale or a shift.
    let is_tensor = |arg: &Arg| match &arg.value.kind {
        ExprKind::Name(name) => env.var(name).is_some_and(|var| !axes_of(b, &var.value).is_empty()),
        _ => false,
    };
    let more = hints::more(name).filter(|_| args.iter().skip(1).any(is_tensor));
    let exchanged = exchanged(b, env, (name, forms), args);
    let forms = forms_text(name, forms);
    let message = match (more, exchanged) {
        (Some(how), _) => diag::no_form_otherwise(name, forms, how),
        (None, Some(call)) => diag::no_form_exchanged(name, forms, call),
        (None, None) => diag::no_form(name, forms),
    };
    b.error(at, message)
}

/// Returns the call with two arguments exchanged, if a form takes them so.
fn exchanged(
    b: &Builder<'_>,
    env: &Env,
    (name, forms): (&str, &[&Function]),
    args: &[Arg],
) -> Option<String> {
    let pairs = (0..args.len()).flat_map(|i| (0..i).map(move |j| (j, i)));
    let mut calls = pairs.map(|(i, j)| {
        let mut args = args.to_vec();
        args.swap(i, j);
        args
    });
    let fits = |args: &Vec<Arg>| {
        let takes = |form: &&Function| is_complete(form, args) && misfit(b, env, form, args).is_none();
        args.iter().all(|arg| arg.name.is_none()) && forms.iter().any(takes)
    };
    let text = |arg: &Arg| {
        let is_one_token = matches!(arg.value.kind, ExprKind::Int(..) | ExprKind::Name(_));
        if is_one_token { b.places.text(arg.value.at).to_owned() } else { "…".into() }
    };
    let texts = |args: Vec<Arg>| args.iter().map(text).collect::<Vec<_>>().join(", ");
    calls.find(fits).map(|args| format!("{name}({})", texts(args)))
}

/// Returns the text of all distinct ways to call a function with these forms.
pub(super) fn forms_text(name: &str, forms: &[&Function]) -> String {
    // A value where a form with the same parameters before it takes an optional one is passed by its name.
    let is_like = |form: &Function, params: &[Param]| {
        let next = form.params.get(params.len()).is_some_and(|param| param.default.is_some());
        next && form.params.iter().zip(params).all(|(one, other)| one.name.text == other.name.text)
    };
    let param = |form: &Function, i: usize| {
        let param = &form.params[i];
        let is_value = !matches!(param.kind, ParamKind::Dim);
        let is_named = param.default.is_some()
            || is_value && forms.iter().any(|other| is_like(other, &form.params[..i]));
        if is_named { format!("{} = …", param.name.text) } else { param.name.text.clone() }
    };
    let call = |form: &&Function| {
        let params: Vec<String> = (0..form.params.len()).map(|i| param(form, i)).collect();
        format!("`{name}({})`", params.join(", "))
    };
    let mut calls: Vec<String> = forms.iter().map(call).collect();
    calls.dedup();
    calls.join(" or ")
}

/// Returns true if every required parameter has an argument.
pub(super) fn is_complete(form: &Function, args: &[Arg]) -> bool {
    let given = |(i, param): (usize, &Param)| {
        let named = |arg: &Arg| arg.name.as_ref().is_some_and(|name| name.text == param.name.text);
        args.get(i).is_some_and(|arg| arg.name.is_none()) || args.iter().any(named)
    };
    form.params.iter().enumerate().all(|(i, param)| param.default.is_some() || given((i, param)))
}

/// Returns a value parameter of a library function that is given several dims. A single dim is valid, because
/// it stands for its extent.
pub(super) fn several_for_one<'e>(
    b: &Builder<'_>,
    env: &Env,
    callee: &'e Function,
    given: &[Option<&'e Expr>],
) -> Option<(&'e Param, &'e Expr)> {
    let is_several = |e: &Expr| matches!(e.kind, ExprKind::Tuple(_)) && dims::named(b, env, e).is_some();
    let mut params = callee.params.iter().zip(given).filter_map(|(param, given)| Some((param, (*given)?)));
    params.find(|(param, given)| !matches!(param.kind, ParamKind::Dim) && is_several(given))
}

/// Returns the position among so many dims that an integer stands for in other libraries.
pub(super) fn by_position(given: &Expr, dims: usize) -> Option<usize> {
    match &given.kind {
        ExprKind::Int(position, None) => usize::try_from(*position).ok(),
        ExprKind::Unary(Unary::Neg, back) => match back.kind {
            ExprKind::Int(back, None) => dims.checked_sub(usize::try_from(back).ok()?),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the parameter that a number was probably meant for, if the number is passed for an optional dim.
pub(super) fn meant<'c>(
    b: &Builder<'_>,
    env: &Env,
    callee: &'c Function,
    param: &Param,
    given: &Expr,
) -> Option<&'c str> {
    param.default.as_ref()?;
    let is_number = match &given.kind {
        ExprKind::Int(..) | ExprKind::Float(..) => dims::named(b, env, given).is_none(),
        ExprKind::Name(name) => env.var(name).is_some_and(|var| axes_of(b, &var.value).is_empty()),
        ExprKind::Unary(..) | ExprKind::Chain(..) | ExprKind::Cast(..) => true,
        _ => false,
    };
    let later = callee.params.iter().skip_while(|other| other.name.text != param.name.text);
    let mut later = later.filter(|other| other.default.is_some() && !matches!(other.kind, ParamKind::Dim));
    later.next().filter(|_| is_number).map(|other| other.name.text.as_str())
}

pub(super) fn takes(callee: &Function) -> String {
    let least = callee.params.iter().filter(|param| param.default.is_none()).count();
    let most = callee.params.len();
    if least == most { diag::count(most, "argument") } else { format!("{least} to {most} arguments") }
}
