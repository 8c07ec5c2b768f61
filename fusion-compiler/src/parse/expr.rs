//! Expressions.
//!
//! Invariant: operators have Rust's precedence, except that `if` is an operand anywhere.

mod statement;

use proc_macro2::{Delimiter, Span, TokenStream};
use syn::buffer::TokenBuffer;

use super::ast::{Arg, At, Binary, Block, COMPARISON, Expr, ExprKind, Link, Name, Stmt, Unary};
use super::capture;
use super::tokens::{Parsed, Parser, Sink, is_keyword};
use crate::diag::{self, hints};
pub(crate) use statement::block;

/// Limits on the height of the tree and on the nesting of operands.
const DEPTH_MAX: u32 = 400;
const NESTING_MAX: u32 = 128;

/// Parses an expression up to the first token that cannot continue it.
pub(crate) fn expr(parser: &mut Parser<'_, '_>) -> Parsed<Expr> {
    binary(parser, 0)
}

fn binary(parser: &mut Parser<'_, '_>, binds: u8) -> Parsed<Expr> {
    let mut left = unary(parser)?;
    let mut comparison: Option<Binary> = None;
    while let Some((op, tightness)) = parser.operator().and_then(Binary::of_symbol) {
        if tightness <= binds {
            break;
        }
        if let (Some(first), COMPARISON) = (comparison, tightness) {
            return Err(parser.error(diag::chained_comparison(first.symbol(), op.symbol())));
        }
        let at = parser.expect(op.symbol(), "an operator")?;
        let right = binary(parser, tightness)?;
        comparison = (tightness == COMPARISON).then_some(op);
        left = chain(parser, left, Link { op, at, operand: right })?;
    }
    match elsewhere(parser, &left) {
        Some(message) => Err(parser.error(message)),
        None => Ok(left),
    }
}

/// Returns the message for a token that follows an operand in other languages only.
fn elsewhere(parser: &Parser<'_, '_>, left: &Expr) -> Option<diag::Message> {
    match parser.symbol() {
        Some("**") => return Some(diag::no_power()),
        Some("@") => return Some(diag::no_product_operator()),
        Some(_) | None => {}
    }
    let word = parser.word()?;
    match (word.as_str(), &left.kind) {
        ("and", _) => Some(diag::word_operator("and", "&&")),
        ("or", _) => Some(diag::word_operator("or", "||")),
        ("if", ExprKind::If(..)) => None,
        ("if", _) => Some(diag::choice_first()),
        (_, ExprKind::Name(name)) if name == "not" => Some(diag::word_operator("not", "!")),
        (_, ExprKind::Name(name)) if name == "lambda" => Some(diag::no_closure()),
        _ => None,
    }
}

/// Applies one more operator. A chain is only as deep as the deepest of its operands, so it may be long.
fn chain(parser: &mut Parser<'_, '_>, left: Expr, link: Link) -> Parsed<Expr> {
    let (at, right) = (link.at, link.operand.depth);
    match left {
        Expr { kind: ExprKind::Chain(first, mut links), depth, .. } => {
            links.push(link);
            node(parser, ExprKind::Chain(first, links), at, right.max(depth - 1))
        }
        left => {
            let depth = left.depth.max(right);
            node(parser, ExprKind::Chain(Box::new(left), vec![link]), at, depth)
        }
    }
}

fn unary(parser: &mut Parser<'_, '_>) -> Parsed<Expr> {
    let op = match parser.operator() {
        Some("-") => Unary::Neg,
        Some("!") => Unary::Not,
        Some("&" | "*" | "&&" | "**") => return Err(parser.error(diag::no_reference())),
        Some("+") => return Err(parser.error(diag::no_positive())),
        Some("~") => return Err(parser.error(diag::no_tilde())),
        Some("|" | "||") => return Err(parser.error(diag::no_closure())),
        Some(_) | None => {
            let operand = nested(parser, postfix)?;
            return casts(parser, operand);
        }
    };
    let Some(at) = parser.eat(if op == Unary::Neg { "-" } else { "!" }) else {
        return Err(parser.error_expected("an operand"));
    };
    let operand = nested(parser, unary_operand)?;
    let depth = operand.depth;
    let value = node(parser, ExprKind::Unary(op, Box::new(operand)), at, depth)?;
    casts(parser, value)
}

/// Parses the operand of a prefix operator. Prefix operators bind tighter than `as`.
fn unary_operand(parser: &mut Parser<'_, '_>) -> Parsed<Expr> {
    let op = match parser.operator() {
        Some("-") => Unary::Neg,
        Some("!") => Unary::Not,
        Some("&" | "*" | "&&" | "**") => return Err(parser.error(diag::no_reference())),
        Some(_) | None => return postfix(parser),
    };
    let Some(at) = parser.eat(if op == Unary::Neg { "-" } else { "!" }) else {
        return Err(parser.error_expected("an operand"));
    };
    let operand = nested(parser, unary_operand)?;
    let depth = operand.depth;
    node(parser, ExprKind::Unary(op, Box::new(operand)), at, depth)
}

fn casts(parser: &mut Parser<'_, '_>, mut value: Expr) -> Parsed<Expr> {
    while let Some(at) = parser.eat_word("as") {
        let Some(dtype) = parser.word().filter(|word| !is_keyword(word)).and_then(|_| parser.any_word())
        else {
            let found = parser.found();
            return Err(parser.error(diag::cast_type(found)));
        };
        if parser.is_group(Delimiter::Bracket) {
            return Err(parser.error(diag::cast_dims()));
        }
        let depth = value.depth;
        value = node(parser, ExprKind::Cast(Box::new(value), dtype), at, depth)?;
    }
    Ok(value)
}

/// Parses an operand and the method calls on it.
fn postfix(parser: &mut Parser<'_, '_>) -> Parsed<Expr> {
    let mut value = primary(parser)?;
    loop {
        if parser.eat(".").is_some() {
            if parser.is_word("where") {
                return Err(parser.error(diag::no_where()));
            }
            if parser.cursor().literal().is_some() && parser.sink.captures.is_none() {
                let message =
                    several(&value).map_or_else(diag::no_tuple_field, diag::no_tuple_field_otherwise);
                return Err(parser.error(message));
            }
            let word = parser.word().filter(|word| is_keyword(word)).unwrap_or_default();
            if let Some(how) = hints::function(&word) {
                return Err(parser.error(diag::said_otherwise(word, how)));
            }
            let method = parser.name("the name of a function after `.`")?;
            let Some((inner, _, span)) = parser.group(Delimiter::Parenthesis) else {
                let message = match parser.sink.captures {
                    Some(_) => diag::no_field_inline(&method.text),
                    None => no_field(&method.text),
                };
                return Err(parser.error_at(method.at, message));
            };
            let mut args = vec![Arg { name: None, value }];
            args.extend(parser.within(inner, span).list(|parser| argument(parser, &method.text))?);
            let depth = deepest(&args);
            parser.sink.calls.push(method.text.clone());
            value = node(parser, ExprKind::Method(method.text, args), method.at, depth)?;
        } else if parser.is_group(Delimiter::Parenthesis) {
            return Err(parser.error(diag::call_of_value()));
        } else if parser.is_group(Delimiter::Bracket) {
            return Err(parser.error(match several(&value) {
                _ if names_dims(parser) => diag::no_dims_here(),
                Some(how) => diag::no_tuple_field_otherwise(how),
                None => diag::no_index(),
            }));
        } else if parser.symbol() == Some("?") {
            return Err(parser.error(diag::no_question()));
        } else {
            return Ok(value);
        }
    }
}

/// Returns the hint for a part of a call whose result is a tuple in other libraries.
fn several(value: &Expr) -> Option<&'static str> {
    let (ExprKind::Call(name, _) | ExprKind::Method(name, _)) = &value.kind else { return None };
    hints::several(name)
}

/// Returns the message for a field that tensors have in other libraries.
fn no_field(name: &str) -> diag::Message {
    hints::field(name).map_or_else(|| diag::no_field(name), |how| diag::field_otherwise(name, how))
}

/// Returns true if the next token is a bracket group that starts like `[N, D]`.
fn names_dims(parser: &Parser<'_, '_>) -> bool {
    let inner = parser.cursor().group(Delimiter::Bracket).map(|(inner, _, _)| inner);
    let name = inner.and_then(|inner| inner.ident()).map(|(name, _)| name.to_string());
    name.is_some_and(|name| is_dim(&name))
}

/// Returns true if a name is like that of a dim.
fn is_dim(name: &str) -> bool {
    name.starts_with(char::is_uppercase) && hints::word(name).is_none()
}

/// Returns the dims of a bracket group, as they are passed, if there is nothing else in it.
fn list_of_dims(parser: &Parser<'_, '_>) -> Option<String> {
    let mut inner = parser.cursor().group(Delimiter::Bracket).map(|(inner, _, _)| inner)?;
    let mut dims = Vec::new();
    while !inner.eof() {
        let (name, rest) = inner.ident()?;
        dims.push(Some(name.to_string()).filter(|name| is_dim(name))?);
        inner = match rest.punct() {
            Some((comma, rest)) if comma.as_char() == ',' => rest,
            None if rest.eof() => rest,
            _ => return None,
        };
    }
    match &dims[..] {
        [] => None,
        [dim] => Some(dim.clone()),
        dims => Some(format!("({})", dims.join(", "))),
    }
}

fn primary(parser: &mut Parser<'_, '_>) -> Parsed<Expr> {
    if parser.sink.captures.is_some() && capture::is_group_with_dims(parser) {
        return capture::capture(parser);
    }
    for invisible in [Delimiter::None, Delimiter::Parenthesis] {
        if let Some((inner, at, span)) = parser.group(invisible) {
            return parenthesised(&mut parser.within(inner, span), at);
        }
    }
    if let Some((literal, at)) = parser.literal() {
        return number(parser, literal, at);
    }
    if parser.sink.captures.is_some() && (capture::starts_capture(parser)) {
        return capture::capture(parser);
    }
    match parser.word().as_deref() {
        Some("if") => conditional(parser),
        Some("true" | "false") => {
            let value = parser.is_word("true");
            let at = parser.name_or_keyword()?.at;
            node(parser, ExprKind::Bool(value), at, 0)
        }
        Some("self" | "Self" | "crate" | "super") if capture::is_path(parser) => {
            let message =
                if parser.sink.captures.is_some() { diag::no_path_inline() } else { diag::no_path() };
            Err(parser.error(message))
        }
        Some("_" | "self" | "Self" | "crate" | "super") => Err(parser.error_expected("an expression")),
        Some("let") => Err(parser.error(diag::no_let_here())),
        None if parser.is_group(Delimiter::Brace) => Err(parser.error(diag::no_block())),
        None if parser.is_group(Delimiter::Bracket) => {
            Err(parser.error(list_of_dims(parser).map_or_else(diag::no_list, diag::no_list_of_dims)))
        }
        None => Err(parser.error_expected("an expression")),
        Some("where") => Err(parser.error(diag::no_where())),
        Some(word) if is_keyword(word) => Err(parser.error(
            hints::function(word)
                .map_or_else(|| diag::no_keyword(word), |how| diag::said_otherwise(word, how)),
        )),
        Some(_) => named(parser),
    }
}

/// Parses a name or a call.
fn named(parser: &mut Parser<'_, '_>) -> Parsed<Expr> {
    let name = parser.name("an expression")?;
    if let Some((inner, _, span)) = parser.group(Delimiter::Parenthesis) {
        if parser.sink.captures.is_some() && name.text == "scalar" {
            return capture::host(parser, inner, &name, span);
        }
        let mut inner = parser.within(inner, span);
        if let Some(how) = hints::function(&name.text).filter(|_| inner.is_group(Delimiter::Bracket)) {
            return Err(inner.error(diag::no_list_otherwise(how)));
        }
        let args = inner.list(|parser| argument(parser, &name.text))?;
        return call(parser, name, args);
    }
    match parser.symbol() {
        Some("::") => return Err(parser.error(diag::no_path())),
        Some("!") if parser.sink.captures.is_some() => {
            return Err(parser.error_at(name.at, diag::no_macro_inline(&name.text)));
        }
        Some("!") => return Err(parser.error_at(name.at, diag::no_macro(&name.text))),
        Some(_) | None => {}
    }
    parser.sink.mentions.push(name.text.clone());
    node(parser, ExprKind::Name(name.text), name.at, 0)
}

fn call(parser: &mut Parser<'_, '_>, name: Name, args: Vec<Arg>) -> Parsed<Expr> {
    let depth = deepest(&args);
    parser.sink.calls.push(name.text.clone());
    node(parser, ExprKind::Call(name.text, args), name.at, depth)
}

fn deepest(args: &[Arg]) -> u32 {
    args.iter().map(|arg| arg.value.depth).max().unwrap_or(0)
}

/// Returns the next token with its quotes, if it is text.
fn text(parser: &Parser<'_, '_>) -> Option<String> {
    let (literal, _) = parser.cursor().literal()?;
    Some(literal.to_string()).filter(|text| text.ends_with(['"', '\'']))
}

/// Returns the hint for a constant that other libraries write as text, like `"inf"`.
fn constant(text: &str) -> Option<&'static str> {
    hints::field(text.trim_matches(['"', '\'']))
}

fn argument(parser: &mut Parser<'_, '_>, function: &str) -> Parsed<Arg> {
    let before = parser.cursor();
    if let Some(text) = text(parser).filter(|text| constant(text).is_none())
        && let Some(how) = hints::function(function)
    {
        return Err(parser.error(diag::text_otherwise(text, how)));
    }
    if parser.word().is_some_and(|word| !is_keyword(&word)) {
        let name = parser.name("an argument")?;
        if parser.eat("=").is_some() {
            if let Some(how) = text(parser).and_then(|_| hints::argument(function, &name.text)) {
                return Err(parser.error(diag::no_text(how)));
            }
            return Ok(Arg { name: Some(name), value: nested(parser, expr)? });
        }
        parser.seek(before);
    }
    if parser.symbol() == Some("..=") {
        return Err(parser.error(diag::no_range_inclusive()));
    }
    if let Some(at) = parser.eat("..") {
        return range(parser, None, at);
    }
    let left = nested(parser, expr)?;
    if parser.symbol() == Some("..=") {
        return Err(parser.error(diag::no_range_inclusive()));
    }
    if let Some(at) = parser.eat("..") {
        return range(parser, Some(left), at);
    }
    let Some(at) = parser.eat("->") else { return Ok(Arg { name: None, value: left }) };
    let right = nested(parser, expr)?;
    let depth = left.depth.max(right.depth);
    let arrow = ExprKind::Arrow(Box::new(left), Box::new(right));
    Ok(Arg { name: None, value: node(parser, arrow, at, depth)? })
}

/// Parses the rest of a range after its `..`.
fn range(parser: &mut Parser<'_, '_>, start: Option<Expr>, at: At) -> Parsed<Arg> {
    let open = parser.at_end() || parser.symbol() == Some(",");
    let end = if open { None } else { Some(nested(parser, expr)?) };
    if matches!(parser.symbol(), Some(".." | ":")) {
        return Err(parser.error(diag::no_range_step()));
    }
    let depth = [&start, &end].into_iter().flatten().map(|bound| bound.depth).max().unwrap_or(0);
    let range = ExprKind::Range(start.map(Box::new), end.map(Box::new));
    Ok(Arg { name: None, value: node(parser, range, at, depth)? })
}

/// Parses a part of a tuple: an expression, or a dim with its extent.
fn part(parser: &mut Parser<'_, '_>, is_first: bool) -> Parsed<Expr> {
    let e = nested(parser, expr)?;
    let ExprKind::Name(name) = &e.kind else { return Ok(e) };
    let before = parser.cursor();
    if parser.eat("=").is_none() {
        return Ok(e);
    }
    match nested(parser, expr)?.kind {
        ExprKind::Int(extent @ 1.., None) if !(is_first && parser.at_end()) => {
            node(parser, ExprKind::Sized(name.clone(), extent), e.at, 0)
        }
        _ => {
            parser.seek(before);
            Ok(e)
        }
    }
}

/// Parses `(x)`, or the tuple `(x, y)`.
fn parenthesised(parser: &mut Parser<'_, '_>, at: At) -> Parsed<Expr> {
    if parser.at_end() {
        return Err(parser.error_at(at, diag::empty_parentheses()));
    }
    let first = part(parser, true)?;
    if parser.at_end() {
        return Ok(first);
    }
    let mut parts = vec![first];
    while !parser.at_end() {
        parser.expect(",", "an operator, `,` or `)`")?;
        if !parser.at_end() {
            parts.push(part(parser, false)?);
        }
    }
    let depth = parts.iter().map(|part| part.depth).max().unwrap_or(0);
    node(parser, ExprKind::Tuple(parts), at, depth)
}

fn conditional(parser: &mut Parser<'_, '_>) -> Parsed<Expr> {
    let at = parser.name_or_keyword()?.at;
    let condition = nested(parser, expr)?;
    let then = braces(parser)?;
    if parser.eat_word("else").is_none() {
        return Err(parser.error_at(at, diag::if_without_else()));
    }
    let other = if parser.is_word("if") {
        let tail = nested(parser, conditional)?;
        Block { stmts: vec![], tail: Some(tail) }
    } else {
        braces(parser)?
    };
    let depth = condition.depth.max(block_depth(&then)).max(block_depth(&other));
    node(parser, ExprKind::If(Box::new(condition), Box::new(then), Box::new(other)), at, depth)
}

/// Parses the block of an `if`, which must have a value and must not assign.
fn braces(parser: &mut Parser<'_, '_>) -> Parsed<Block> {
    let Some((inner, _, span)) = parser.group(Delimiter::Brace) else {
        let what = if parser.symbol() == Some("=") { "`{` (`==` compares)" } else { "`{`" };
        return Err(parser.error_expected(what));
    };
    let mut parser = parser.within(inner, span);
    if parser.sink.captures.is_some() && parser.is_word("let") {
        return Err(parser.error(diag::no_let_in_inline()));
    }
    let (block, whole) = nested(&mut parser, |parser| Ok(block(parser)))?;
    let assigned = block.stmts.iter().find_map(|stmt| match stmt {
        Stmt::Assign(_, _, at) | Stmt::Update(_, _, _, at) => Some(*at),
        Stmt::Let(..) => None,
    });
    if let Some(at) = assigned {
        return Err(parser.error_at(at, diag::assign_in_block()));
    }
    whole?;
    match &block.tail {
        Some(_) => Ok(block),
        None => Err(parser.error(diag::no_tail())),
    }
}

/// Parses statements that are not in braces, which end with a value.
pub(crate) fn body(tokens: TokenStream, sink: &mut Sink) -> Parsed<Block> {
    let buffer = TokenBuffer::new2(tokens);
    let mut parser = Parser::new(buffer.begin(), Span::call_site(), sink);
    let (block, whole) = block(&mut parser);
    whole?;
    match &block.tail {
        Some(_) => Ok(block),
        None => Err(parser.error(diag::no_tail())),
    }
}

fn block_depth(block: &Block) -> u32 {
    let values = block.stmts.iter().map(|stmt| match stmt {
        Stmt::Let(_, value) | Stmt::Assign(_, value, _) | Stmt::Update(_, _, value, _) => value.depth,
    });
    values.chain(block.tail.iter().map(|tail| tail.depth)).max().unwrap_or(0)
}

/// Parses a number with or without a suffix.
fn number(parser: &mut Parser<'_, '_>, literal: proc_macro2::Literal, at: At) -> Parsed<Expr> {
    let text = literal.to_string();
    let suffix = |suffix: &str| (!suffix.is_empty()).then(|| suffix.to_owned());
    let kind = match syn::Lit::new(literal) {
        syn::Lit::Int(int) if matches!(int.suffix(), "f32" | "f64" | "f16") => {
            int.base10_digits().parse().ok().map(|value| ExprKind::Float(value, suffix(int.suffix())))
        }
        syn::Lit::Int(int) => match int.base10_digits().parse() {
            Ok(value) => Some(ExprKind::Int(value, suffix(int.suffix()))),
            Err(_) => return Err(parser.error_at(at, diag::huge_literal(text))),
        },
        syn::Lit::Float(float) => {
            float.base10_digits().parse().ok().map(|value| ExprKind::Float(value, suffix(float.suffix())))
        }
        _ => None,
    };
    match kind {
        Some(kind) => node(parser, kind, at, 0),
        None => Err(parser.error_at(
            at,
            match constant(&text) {
                Some(how) => diag::text_otherwise(text, how),
                None => diag::no_text_here(text),
            },
        )),
    }
}

/// Makes a node above operands of this height.
fn node(parser: &mut Parser<'_, '_>, kind: ExprKind, at: At, below: u32) -> Parsed<Expr> {
    if below >= DEPTH_MAX {
        Err(parser.error_at(at, diag::too_deep()))
    } else {
        Ok(Expr { kind, at, depth: below + 1 })
    }
}

/// Parses something inside an operand, unless the nesting is too deep.
fn nested<'a, 's, T>(
    parser: &mut Parser<'a, 's>,
    parse: impl FnOnce(&mut Parser<'a, 's>) -> Parsed<T>,
) -> Parsed<T> {
    if parser.nesting >= NESTING_MAX {
        return Err(parser.error(diag::too_deep()));
    }
    parser.nesting += 1;
    let parsed = parse(parser);
    parser.nesting -= 1;
    parsed
}

impl Parser<'_, '_> {
    /// Consumes a word that is known to come next.
    fn name_or_keyword(&mut self) -> Parsed<Name> {
        match self.any_word() {
            Some(name) => Ok(name),
            None => Err(self.error_expected("a name")),
        }
    }
}

#[cfg(test)]
mod tests;
