//! The standard library: templates in the language itself, parsed once per process.
//!
//! Invariant: the library has no mistakes, which a test checks. The library's tree contains no compiler
//! tokens, because those do not outlive a macro call.

use std::str::FromStr;
use std::sync::OnceLock;

use proc_macro2::TokenStream;

use crate::parse::{self, Sink, ast};

const SOURCE: &str = include_str!("../std.fuse");

/// Returns the functions of the standard library.
pub(super) fn functions() -> &'static [ast::Function] {
    static FUNCTIONS: OnceLock<Vec<ast::Function>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| match TokenStream::from_str(SOURCE) {
        Ok(tokens) => parse::functions(tokens, &mut Sink::default()),
        Err(_) => unreachable!("the standard library is a sequence of tokens"),
    })
}

/// Returns the functions of this name. Several overloads differ in which of their arguments are dims.
pub(super) fn forms(name: &str) -> impl Iterator<Item = &'static ast::Function> {
    functions().iter().filter(move |function| function.name.text == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_parses_without_mistakes() {
        let mut sink = Sink::default();
        let tokens = TokenStream::from_str(SOURCE).unwrap();
        let functions = parse::functions(tokens, &mut sink);
        assert_eq!(sink.errors.messages().collect::<Vec<_>>(), [""; 0]);
        assert!(
            functions.iter().all(|function| function.broken == ast::Broken::Nothing && !function.exported)
        );
    }
}
