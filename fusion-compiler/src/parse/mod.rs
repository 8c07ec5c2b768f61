//! Parser from tokens to the syntax tree: recursive descent with precedence climbing on syn's token cursor.
//!
//! Invariant: no tokens make the parser panic or overflow the stack. Every mistake is in the list of errors.
//! Parsing resumes after a mistake at the next statement or function.

pub(crate) mod ast;
mod capture;
mod expr;
mod inline;
mod item;
mod tokens;

pub(crate) use capture::variable;
pub(crate) use expr::body;
pub(crate) use inline::{Inline, inline};
pub(crate) use item::{Item, dim_list, functions, ident, items, upper};
pub(crate) use tokens::{Capture, Parsed, Places, Sink, is_keyword};

use proc_macro2::{TokenStream, TokenTree};
use syn::buffer::TokenBuffer;

use tokens::Parser;

/// Words that start a Rust item, but no expression of the language.
const ITEM_WORDS: [&str; 11] =
    ["pub", "fn", "use", "mod", "impl", "trait", "struct", "enum", "const", "static", "type"];

/// Returns true if the tokens are functions or meant to be: no tokens, or a start like a Rust item, or a
/// `fn`.
pub(crate) fn is_items(tokens: &TokenStream) -> bool {
    let buffer = TokenBuffer::new2(tokens.clone());
    let mut sink = Sink::default();
    let parser = Parser::new(buffer.begin(), proc_macro2::Span::call_site(), &mut sink);
    let has_fn = || tokens.clone().into_iter().any(|token| token.to_string() == "fn");
    let starts = |word| parser.is_word(word);
    parser.at_end() || parser.symbol() == Some("#") || ITEM_WORDS.into_iter().any(starts) || has_fn()
}

/// Returns the `#[cfg(…)]`s among attributes.
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
