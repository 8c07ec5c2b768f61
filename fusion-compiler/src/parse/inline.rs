//! The inline form: one expression over tensors of the surrounding Rust code.
//!
//! Invariant: a bare name stays a name, because only `check` knows if it is a dim, a constant or a variable.

use proc_macro2::{Delimiter, Span, TokenStream};
use syn::buffer::TokenBuffer;

use super::ast::{At, Dim, Expr, Name};
use super::expr::expr;
use super::item::dims;
use super::tokens::{Parsed, Parser, Sink};
use crate::diag;

/// The inline form.
#[derive(Debug)]
pub(crate) struct Inline {
    /// Dtype before the expression: `f16:`.
    pub(crate) dtype: Option<Name>,
    pub(crate) value: Expr,
    /// Dims of the result after the expression, `=> [N, M]`, with the place of the arrow.
    pub(crate) order: Option<(Vec<Dim>, At)>,
}

/// Parses the inline form. The captures go to the sink.
pub(crate) fn inline(tokens: TokenStream, sink: &mut Sink) -> Parsed<Inline> {
    sink.captures = Some(Vec::new());
    let buffer = TokenBuffer::new2(tokens);
    let mut parser = Parser::new(buffer.begin(), Span::call_site(), sink);
    let dtype = header(&mut parser);
    if parser.at_end() {
        return Err(parser.error(diag::empty_inline()));
    }
    if parser.is_word("let") {
        return Err(parser.error(diag::no_let_in_inline()));
    }
    let value = expr(&mut parser)?;
    let order = match parser.eat("=>") {
        Some(at) => Some((order(&mut parser)?, at)),
        None => None,
    };
    // A trailing comma is allowed, as after the arguments of a call.
    let before = parser.cursor();
    parser.eat(",");
    if parser.at_end() {
        return Ok(Inline { dtype, value, order });
    }
    parser.seek(before);
    let found = parser.found();
    Err(parser.error(match parser.symbol() {
        Some(";" | "=") => diag::no_let_in_inline(),
        Some(_) | None => diag::after_inline(found),
    }))
}

/// Parses `f16:`, if present.
fn header(parser: &mut Parser<'_, '_>) -> Option<Name> {
    let before = parser.cursor();
    let dtype = parser.any_word();
    if dtype.is_some() && parser.eat(":").is_some() {
        return dtype;
    }
    parser.seek(before);
    None
}

fn order(parser: &mut Parser<'_, '_>) -> Parsed<Vec<Dim>> {
    match parser.group(Delimiter::Bracket) {
        Some((inner, _, span)) => dims(&mut parser.within(inner, span)),
        None => Err(parser.error_expected("the dims of the result, like `[N, M]`")),
    }
}
