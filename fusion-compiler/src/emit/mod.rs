//! Kernels as text: one thin printer per target.
//!
//! Invariant: an emitter makes no decisions; what a kernel does was settled before. Operations are printed by the
//! templates of the op table, statements by one short match per target.

use std::fmt::{self, Write};

use crate::ir::kernel::{Kernel, Value};
use crate::ir::ops::{Lower, Op};
use crate::target::Dialect;

#[cfg(feature = "syntax")]
pub mod host;
pub mod ptx;
pub mod rust;
#[cfg(feature = "syntax")]
mod static_plan;
pub mod wgsl;

/// Lines with indentation.
struct Writer {
    text: String,
    depth: usize,
}

impl Writer {
    fn new() -> Writer {
        Writer { text: String::new(), depth: 0 }
    }

    fn line(&mut self, line: impl fmt::Display) {
        for _ in 0..self.depth {
            self.text.push_str("    ");
        }
        writeln!(self.text, "{line}").unwrap_or_else(|_| unreachable!("text can be written to a string"));
    }

    /// A line that opens a block, the block, and the line that closes it.
    fn block(&mut self, open: impl fmt::Display, inside: impl FnOnce(&mut Writer)) {
        self.enclosed(open, "}", inside);
    }

    /// The same where the block is part of a statement.
    fn enclosed(&mut self, open: impl fmt::Display, close: &str, inside: impl FnOnce(&mut Writer)) {
        self.line(open);
        self.depth += 1;
        inside(self);
        self.depth -= 1;
        self.line(close);
    }
}

/// Fills a template: `{0}`, `{1}`, … with the operands, other names with what `names` gives for them.
fn fill(template: &str, args: &[impl fmt::Display], names: &[(&str, &dyn fmt::Display)]) -> String {
    let mut out = String::with_capacity(template.len() + 32);
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        out.push_str(&rest[..open]);
        let hole = rest[open + 1..].split('}').next().unwrap_or_default();
        let filled: Option<&dyn fmt::Display> = match hole.parse::<usize>() {
            Ok(i) => args.get(i).map(|arg| arg as _),
            Err(_) => names.iter().find(|(name, _)| *name == hole).map(|(_, text)| *text),
        };
        match filled {
            Some(text) => {
                write!(out, "{text}").unwrap_or_else(|_| unreachable!("text can be written to a string"));
                rest = &rest[open + 1 + hole.len() + 1..];
            }
            // A brace of the target's language.
            None => {
                out.push('{');
                rest = &rest[open + 1..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// The template of an operation that the dialect has.
fn template(kernel: &Kernel, dialect: Dialect, op: Op, args: &[Value]) -> &'static str {
    let dtype = kernel.ty(args[args.len() - 1]).dtype;
    match dialect.lower(op, dtype) {
        Lower::Native(template) => template,
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
        assert_eq!(fill("if {0} { {1} } else { {0} }", &args, &[]), "if a { b } else { a }");
        assert_eq!(
            fill("add.{t} {d}, {0}, {1};", &args, &[("t", &"f32"), ("d", &"%f1")]),
            "add.f32 %f1, a, b;"
        );
    }
}
