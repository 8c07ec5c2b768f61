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
pub(crate) use tokens::{Places, Sink, is_keyword};

use proc_macro2::{TokenStream, TokenTree};
use syn::buffer::TokenBuffer;

use tokens::Parser;

/// Words that start an item of Rust, and no expression of the language.
const ITEM_WORDS: [&str; 11] =
    ["pub", "fn", "use", "mod", "impl", "trait", "struct", "enum", "const", "static", "type"];

/// Whether the tokens are functions, or meant to be: they start like an item of Rust, or there are none.
pub(crate) fn is_items(tokens: &TokenStream) -> bool {
    let buffer = TokenBuffer::new2(tokens.clone());
    let mut sink = Sink::default();
    let parser = Parser::new(buffer.begin(), proc_macro2::Span::call_site(), &mut sink);
    let has_fn = || tokens.clone().into_iter().any(|token| token.to_string() == "fn");
    let starts = |word| parser.is_word(word);
    parser.at_end() || parser.symbol() == Some("#") || ITEM_WORDS.into_iter().any(starts) || has_fn()
}

/// The `#[cfg(…)]`s among attributes.
pub(crate) fn cfgs(attributes: &TokenStream) -> Vec<TokenStream> {
    let trees: Vec<TokenTree> = attributes.clone().into_iter().collect();
    let attributes = trees.chunks(2).filter(|attribute| match attribute {
        [_, TokenTree::Group(group)] => {
            let first = group.stream().into_iter().next();
            matches!(first, Some(TokenTree::Ident(name)) if name == "cfg")
        }
        _ => false,
    });
    attributes.map(|attribute| attribute.iter().cloned().collect()).collect()
}
