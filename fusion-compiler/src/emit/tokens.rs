//! Emitted Rust as tokens.

use proc_macro2::TokenStream;

/// Rust that this crate emitted.
pub(super) fn tokens(text: &str) -> TokenStream {
    // rustc's own lexer where there is one: the portable one, which `parse` asks first, goes through a text twice and keeps it.
    if proc_macro::is_available() {
        return rustc_tokens(text).into();
    }
    text.parse().unwrap_or_else(|error| unreachable!("emitted Rust is tokens: {error}"))
}

pub(super) fn rustc_tokens(text: &str) -> proc_macro::TokenStream {
    text.parse().unwrap_or_else(|error| unreachable!("emitted Rust is tokens: {error}"))
}

/// The same tokens at this place.
pub(super) fn placed(tokens: proc_macro::TokenStream, place: proc_macro::Span) -> proc_macro::TokenStream {
    let token = |mut token: proc_macro::TokenTree| {
        if let proc_macro::TokenTree::Group(group) = &token {
            token = proc_macro::Group::new(group.delimiter(), placed(group.stream(), place)).into();
        }
        token.set_span(place);
        token
    };
    tokens.into_iter().map(token).collect()
}
