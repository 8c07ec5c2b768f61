//! Kernels as text: one thin printer per target.
//!
//! Invariant: an emitter makes no decisions; what a kernel does was settled before. Operations are printed by the
//! templates of the op table, statements by one short match per target.

use std::fmt::{self, Display, Write};

use crate::ir::kernel::{Kernel, Value};
use crate::ir::op::Op;
use crate::ops::Lower;
use crate::target::Dialect;

mod cpu_entries;
pub mod host;
mod inline_values;
pub mod ptx;
pub mod rust;
mod static_plan;
mod tokens;
pub mod wgsl;

/// Lines with indentation.
struct Writer {
    text: String,
    depth: usize,
    indent: &'static str,
}

impl Writer {
    fn new() -> Writer {
        // Most kernels are shorter: text that grows is copied.
        Writer { text: String::with_capacity(8 << 10), depth: 0, indent: "    " }
    }

    /// A writer of assembly, whose lines are short and many.
    fn of_assembly() -> Writer {
        Writer { indent: "\t", ..Writer::new() }
    }

    /// A writer of lines at a depth.
    fn at_depth(depth: usize) -> Writer {
        Writer { text: String::new(), depth, indent: "    " }
    }

    fn line(&mut self, line: impl Display) {
        for _ in 0..self.depth {
            self.text.push_str(self.indent);
        }
        writeln!(self.text, "{line}").unwrap_or_else(|_| unreachable!("text can be written to a string"));
    }

    /// A line that opens a block, the block, and the line that closes it.
    fn block(&mut self, open: impl Display, inside: impl FnOnce(&mut Writer)) {
        self.enclosed(open, "}", inside);
    }

    /// The same where the block is part of a statement.
    fn enclosed(&mut self, open: impl Display, close: &str, inside: impl FnOnce(&mut Writer)) {
        self.line(open);
        self.depth += 1;
        inside(self);
        self.depth -= 1;
        self.line(close);
    }
}

/// Fills a template: `{0}`, `{1}`, … with the operands, other names with what `names` gives for them.
fn fill<'t>(
    template: &'t str,
    args: &'t [impl Display],
    names: &'t [(&'t str, &'t dyn Display)],
) -> impl Display + 't {
    fmt::from_fn(move |f| {
        let mut parts = template.split('{');
        f.write_str(parts.next().unwrap_or_default())?;
        for part in parts {
            let filled: Option<(&dyn Display, &str)> = match part.as_bytes() {
                [digit @ b'0'..=b'9', b'}', ..] => {
                    args.get(usize::from(digit - b'0')).map(|arg| (arg as _, &part[2..]))
                }
                _ => names
                    .iter()
                    .find_map(|(name, text)| Some((*text, part.strip_prefix(name)?.strip_prefix('}')?))),
            };
            // Else it is a brace of the target's language.
            let (text, rest) = filled.unwrap_or((&'{', part));
            text.fmt(f)?;
            f.write_str(rest)?;
        }
        Ok(())
    })
}

/// A text of a line or less.
fn text(of: impl Display) -> String {
    // Text that grows is copied.
    let mut text = String::with_capacity(128);
    write!(text, "{of}").unwrap_or_else(|_| unreachable!("text can be written to a string"));
    text
}

/// One after another, with commas between them.
struct Listed<'t, T>(&'t [T]);

impl<T: Display> Display for Listed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, others)) = self.0.split_first() else { return Ok(()) };
        first.fmt(f)?;
        others.iter().try_for_each(|other| write!(f, ", {other}"))
    }
}

/// The template of an operation that the dialect has.
fn template(kernel: &Kernel, dialect: Dialect, op: Op, args: &[Value]) -> &'static str {
    let dtype = kernel.ty(args[args.len() - 1]).dtype;
    match dialect.lower(op, dtype) {
        Lower::Native(template) | Lower::Recent(template, _) => template,
        Lower::Expand(_) | Lower::Never => {
            unreachable!("legalize leaves only native operations: {op:?} of {dtype}")
        }
    }
}

/// An identifier that every target accepts: a letter, a number, and what is left of the user's name.
fn identifier(letter: char, number: usize, name: &str) -> String {
    let plain = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect::<String>();
    format!("{letter}{number}_{}", plain.trim_matches('_'))
}

#[cfg(test)]
mod tests {
    use super::fill;

    #[test]
    fn templates() {
        let args = [String::from("a"), String::from("b")];
        assert_eq!(fill("if {0} { {1} } else { {0} }", &args, &[]).to_string(), "if a { b } else { a }");
        assert_eq!(
            fill("add.{t} {d}, {0}, {1};", &args, &[("t", &"f32"), ("d", &"%f1")]).to_string(),
            "add.f32 %f1, a, b;"
        );
    }
}
