//! Tokens → syntax tree: a recursive-descent parser with precedence climbing on syn's token cursor.
//!
//! Invariant: no tokens make it panic or overflow the stack; every mistake is in the list of errors, and
//! parsing goes on after it where the next statement or function starts.

pub(crate) mod ast;
mod expr;
mod inline;
mod item;
mod tokens;

pub(crate) use inline::{Capture, Inline, inline, variable};
pub(crate) use item::{Item, functions, ident, items, upper};
pub(crate) use tokens::{Places, Sink};

use proc_macro2::TokenStream;
use syn::buffer::TokenBuffer;

use tokens::Parser;

/// Whether the tokens are functions: after attributes they start with `fn` or `pub`, or there are none.
pub(crate) fn is_items(tokens: &TokenStream) -> bool {
    let buffer = TokenBuffer::new2(tokens.clone());
    let mut sink = Sink::default();
    let parser = Parser::new(buffer.begin(), proc_macro2::Span::call_site(), &mut sink);
    parser.at_end() || parser.symbol() == Some("#") || parser.is_word("fn") || parser.is_word("pub")
}
