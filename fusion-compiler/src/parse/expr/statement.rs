//! Statements and blocks.

use proc_macro2::Delimiter;

use super::super::ast::{Binary, Block, COMPARISON, Expr, ExprKind, Name, Pattern, Stmt};
use super::super::tokens::{Parsed, Parser};
use super::expr;
use crate::diag;

/// Parses statements up to the end of the group. Continues with the next statement after a mistake.
pub(crate) fn block(parser: &mut Parser<'_, '_>) -> (Block, Parsed<()>) {
    let mut block = Block { stmts: vec![], tail: None };
    let mut whole = Ok(());
    while !parser.at_end() {
        if let Err(reported) = statement(parser, &mut block) {
            whole = Err(reported);
            while !parser.at_end() && parser.eat(";").is_none() {
                parser.skip();
            }
        }
    }
    (block, whole)
}

fn statement(parser: &mut Parser<'_, '_>, block: &mut Block) -> Parsed<()> {
    if parser.eat(";").is_some() {
        return Ok(());
    }
    if parser.is_word("let") {
        let statement = binding(parser)?;
        block.stmts.push(statement);
        return Ok(());
    }
    if let Some(targets) = targets(parser)? {
        return assignment(parser, block, targets);
    }
    let value = expr(parser)?;
    let symbol = parser.symbol();
    if symbol == Some("=") {
        let target = assigned(parser, value)?;
        return assignment(parser, block, Pattern::Name(target));
    }
    let operator = symbol.and_then(|symbol| symbol.strip_suffix('=')).and_then(Binary::of_symbol);
    if let Some((op, _)) = operator.filter(|(_, tightness)| *tightness > COMPARISON) {
        return update(parser, block, value, op);
    }
    match symbol {
        _ if parser.at_end() => {
            block.tail = Some(value);
            Ok(())
        }
        Some(";") => {
            let at = value.at;
            parser.eat(";");
            let is_last = parser.at_end();
            Err(parser.error_at(at, if is_last { diag::unused_last() } else { diag::unused_value() }))
        }
        Some(_) | None => {
            let found = parser.found();
            Err(parser.error(diag::expected_operator(found)))
        }
    }
}

fn binding(parser: &mut Parser<'_, '_>) -> Parsed<Stmt> {
    parser.name_or_keyword()?;
    if parser.is_word("mut") {
        return Err(parser.error(diag::no_let_mut()));
    }
    let pattern = if let Some((inner, at, span)) = parser.group(Delimiter::Parenthesis) {
        Pattern::Tuple(parser.within(inner, span).list(|parser| bound(parser, "a name"))?, at)
    } else {
        Pattern::Name(bound(parser, "a name after `let`")?)
    };
    match parser.symbol() {
        Some(",") => return Err(parser.error(diag::no_let_list())),
        Some(":") => return Err(parser.error(diag::no_let_type())),
        Some(";") => return Err(parser.error(diag::no_let_else())),
        Some(_) | None => {}
    }
    parser.expect("=", "`=`")?;
    let value = expr(parser)?;
    if parser.eat(";").is_none() {
        let found = parser.found();
        return Err(parser.error(diag::expected("an operator or `;`", found)));
    }
    let before = parser.sink.mentions.len();
    parser.sink.lets.extend(pattern.names().iter().map(|name| (name.clone(), before)));
    Ok(Stmt::Let(pattern, value))
}

/// Parses a name for a value, or `_`.
fn bound(parser: &mut Parser<'_, '_>, what: &str) -> Parsed<Name> {
    if parser.is_word("_") { parser.name_or_keyword() } else { parser.name(what) }
}

/// Parses `(p, q)` of `(p, q) = x`.
fn targets(parser: &mut Parser<'_, '_>) -> Parsed<Option<Pattern>> {
    let start = parser.cursor();
    let Some((inner, at, span)) = parser.group(Delimiter::Parenthesis) else { return Ok(None) };
    if parser.symbol() != Some("=") {
        parser.seek(start);
        return Ok(None);
    }
    let target = |parser: &mut Parser<'_, '_>| {
        if parser.is_word("_") {
            return parser.name_or_keyword();
        }
        let target = expr(parser)?;
        assigned(parser, target)
    };
    Ok(Some(Pattern::Tuple(parser.within(inner, span).list(target)?, at)))
}

fn assignment(parser: &mut Parser<'_, '_>, block: &mut Block, targets: Pattern) -> Parsed<()> {
    let at = parser.expect("=", "`=`")?;
    let value = assigned_value(parser)?;
    block.stmts.push(Stmt::Assign(targets, value, at));
    Ok(())
}

/// Parses `p += x`, for any operator.
fn update(parser: &mut Parser<'_, '_>, block: &mut Block, target: Expr, op: Binary) -> Parsed<()> {
    let at = parser.expect(parser.symbol().unwrap_or("="), "`=`")?;
    let target = assigned(parser, target)?;
    let value = assigned_value(parser)?;
    block.stmts.push(Stmt::Update(target, op, value, at));
    Ok(())
}

/// Returns the name on the left side of an assignment.
fn assigned(parser: &mut Parser<'_, '_>, target: Expr) -> Parsed<Name> {
    match target.kind {
        ExprKind::Name(text) => Ok(Name { text, at: target.at }),
        _ => Err(parser.error_at(target.at, diag::assign_target())),
    }
}

/// Parses the right side of an assignment, up to the end of the statement.
fn assigned_value(parser: &mut Parser<'_, '_>) -> Parsed<Expr> {
    let value = expr(parser)?;
    if !parser.at_end() {
        parser.expect(";", "an operator or `;`")?;
    }
    Ok(value)
}
