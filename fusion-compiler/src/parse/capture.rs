//! Captures of the inline form: tensors and numbers of the surrounding Rust code.
//!
//! Invariant: captures are kept as Rust tokens, in order of appearance.

use proc_macro2::extra::DelimSpan;
use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use quote::quote;
use syn::buffer::Cursor;

use super::ast::{At, Expr, ExprKind, Name};
use super::item::{dims, rust_name, upper};
use super::tokens::{Capture, Parsed, Parser, Reported, is_keyword, plain};
use crate::diag::{self, Message};

/// Returns true if a capture other than a bare name comes next.
pub(crate) fn starts_capture(parser: &Parser<'_, '_>) -> bool {
    if parser.is_group(Delimiter::Brace) || parser.is_word("self") {
        return true;
    }
    let Some((name, rest)) = parser.cursor().ident() else { return false };
    if is_keyword(&name.to_string()) {
        return false;
    }
    is_path(parser) || rest.group(Delimiter::Bracket).is_some() || field(rest).is_some()
}

/// Returns true if a path with `::` comes next.
pub(crate) fn is_path(parser: &Parser<'_, '_>) -> bool {
    let Some((_, rest)) = parser.cursor().ident() else { return false };
    rest.punct().is_some_and(|(punct, after)| {
        punct.as_char() == ':' && after.punct().is_some_and(|(next, _)| next.as_char() == ':')
    })
}

/// Returns true if an expression from a `macro_rules!` comes next, with dims after it.
pub(crate) fn is_group_with_dims(parser: &Parser<'_, '_>) -> bool {
    let group = parser.cursor().group(Delimiter::None);
    group.is_some_and(|(_, _, rest)| rest.group(Delimiter::Bracket).is_some())
}

/// Parses `self.bias` or `{…}`, with or without dims, or a name with dims.
pub(crate) fn capture(parser: &mut Parser<'_, '_>) -> Parsed<Expr> {
    let (text, tokens, at, is_path) = if let Some((inner, at, span)) = parser.group(Delimiter::Brace) {
        let inside = inner.token_stream();
        let tokens = if is_block(&inside) { quote!({#inside}) } else { rust_expr(parser, inside, span)? };
        (format!("{{{tokens}}}"), tokens, at, false)
    } else if let Some((inner, at, span)) = parser.group(Delimiter::None) {
        let tokens = rust_expr(parser, inner.token_stream(), span)?;
        let text = tokens.to_string().replace(' ', "");
        let is_path = text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'));
        (text, tokens, at, is_path)
    } else {
        let (text, tokens, at) = path(parser)?;
        (text, tokens, at, true)
    };
    let dims = match parser.group(Delimiter::Bracket) {
        Some((inner, at, span)) => match index(&text, &inner.token_stream()) {
            Some(message) => return Err(parser.error_at(at, message)),
            None => Some(dims(&mut parser.within(inner, span))?),
        },
        None => None,
    };
    let number = add(parser, Capture { text, tokens, dims, at, is_path });
    Ok(Expr { kind: ExprKind::Capture(number), at, depth: 1 })
}

/// Returns the message for brackets after a capture that contain the index of an element rather than dims.
fn index(text: &str, inside: &TokenStream) -> Option<Message> {
    let trees: Vec<TokenTree> = inside.clone().into_iter().take(2).collect();
    let goes_on = match trees.get(1) {
        Some(TokenTree::Punct(punct)) => !matches!(punct.as_char(), ',' | '='),
        Some(TokenTree::Group(_) | TokenTree::Ident(_) | TokenTree::Literal(_)) => true,
        None => false,
    };
    let one = inside.to_string();
    let rust = format!("{{{text}[{}]}}", if trees.len() == 1 { &one } else { "…" });
    match trees.first()? {
        TokenTree::Ident(name) if plain(name).starts_with(char::is_lowercase) => {
            let name = plain(name);
            match trees.len() {
                _ if goes_on => Some(diag::capture_index(rust)),
                1 => Some(diag::capture_index_or_dim(&name, upper(&name), rust)),
                _ => None,
            }
        }
        TokenTree::Literal(number) if goes_on || number.to_string() == "0" => Some(diag::capture_index(rust)),
        TokenTree::Group(_) => Some(diag::capture_index(rust)),
        TokenTree::Punct(punct) if matches!(punct.as_char(), '.' | '&' | '*') => {
            Some(diag::capture_index(rust))
        }
        TokenTree::Ident(_) | TokenTree::Literal(_) | TokenTree::Punct(_) => None,
    }
}

/// Parses `scalar(…)`.
pub(crate) fn host(
    parser: &mut Parser<'_, '_>,
    inner: Cursor<'_>,
    name: &Name,
    span: DelimSpan,
) -> Parsed<Expr> {
    if inner.eof() {
        return Err(parser.within_end(span).error_expected("a Rust expression"));
    }
    let tokens = rust_expr(parser, inner.token_stream(), span)?;
    let capture = Capture { text: tokens.to_string(), tokens, dims: None, at: name.at, is_path: false };
    let number = add(parser, capture);
    Ok(Expr { kind: ExprKind::Host(number), at: name.at, depth: 1 })
}

/// Returns the Rust expression of a bare name.
pub(crate) fn variable(text: &str, span: Span) -> TokenStream {
    let name = rust_name(text, span);
    quote!(#name)
}

fn add(parser: &mut Parser<'_, '_>, capture: Capture) -> usize {
    let captures = parser.sink.captures.get_or_insert_default();
    captures.push(capture);
    captures.len() - 1
}

/// Returns true if the tokens are statements followed by a value.
fn is_block(inside: &TokenStream) -> bool {
    let block = syn::parse2::<syn::Block>(quote!({#inside}));
    block.is_ok_and(|block| {
        block.stmts.len() > 1 && matches!(block.stmts.last(), Some(syn::Stmt::Expr(_, None)))
    })
}

/// Checks that the tokens are a Rust expression, using Rust's own grammar.
fn rust_expr(parser: &mut Parser<'_, '_>, tokens: TokenStream, span: DelimSpan) -> Parsed<TokenStream> {
    let Err(error) = syn::parse2::<syn::Expr>(tokens.clone()) else { return Ok(tokens) };
    // syn has no place for missing tokens.
    let is_at_end = error.to_string().starts_with("unexpected end of input");
    let place = if is_at_end { span.close() } else { error.span() };
    parser.sink.errors.push(place, diag::rust_expression(error));
    Err(Reported)
}

/// Parses `a`, `self.bias` or `state.0`.
fn path(parser: &mut Parser<'_, '_>) -> Parsed<(String, TokenStream, At)> {
    let Some((head, rest)) = parser.cursor().ident() else {
        return Err(parser.error_expected("an expression"));
    };
    let Some(name) = parser.any_word() else { return Err(Reported) };
    if parser.symbol() == Some("::") {
        return Err(parser.error_at(name.at, diag::no_path_inline()));
    }
    let (mut text, mut tokens, mut rest) = (name.text, quote!(#head), rest);
    while let Some((field, after)) = field(rest) {
        text = format!("{text}.{}", field.to_string().trim_start_matches("r#"));
        tokens = quote!(#tokens.#field);
        rest = after;
    }
    parser.seek(rest);
    Ok((text, tokens, name.at))
}

/// Parses `.bias` or `.0`, unless it is a method call.
fn field(cursor: Cursor<'_>) -> Option<(TokenStream, Cursor<'_>)> {
    let (dot, rest) = cursor.punct()?;
    if dot.as_char() != '.' || dot.spacing() == proc_macro2::Spacing::Joint {
        return None;
    }
    if let Some((name, after)) = rest.ident() {
        let is_field = after.group(Delimiter::Parenthesis).is_none() && !is_keyword(&name.to_string());
        return is_field.then(|| (quote!(#name), after));
    }
    let (index, after) = rest.literal()?;
    let digits = index.to_string().chars().all(|c| c.is_ascii_digit() || c == '.');
    digits.then(|| (quote!(#index), after))
}

impl<'a> Parser<'a, '_> {
    /// Returns a parser at the end of a group, to report missing tokens there.
    fn within_end(&mut self, span: DelimSpan) -> Parser<'a, '_> {
        Parser::new(Cursor::empty(), span.close(), self.sink)
    }
}
