//! Functions: attributes, signatures, bodies.
//!
//! Invariant: a function whose signature could be read is in the list, body or no body, so that a stub of it
//! can stand in for it.

use proc_macro2::{Delimiter, Ident, Span, TokenStream};
use quote::quote;
use syn::buffer::TokenBuffer;

use super::ast::{Block, Dim, Function, Name, Param, ParamKind, TensorType};
use super::expr::{block, expr};
use super::tokens::{Parsed, Parser, Sink};
use crate::diag;
use crate::ir::dtype::DType;
use crate::ir::plan::Target;

/// A function with what only the surrounding Rust code cares about.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) function: Function,
    /// All attributes but `#[fuse(…)]`.
    pub(crate) attributes: TokenStream,
    pub(crate) visibility: TokenStream,
    /// `#[fuse(off)]`.
    pub(crate) off: bool,
    /// `#[fuse(targets(…))]`, all if absent.
    pub(crate) targets: Vec<Target>,
}

/// Parses the functions of a block.
pub(crate) fn items(tokens: TokenStream, sink: &mut Sink) -> Vec<Item> {
    let buffer = TokenBuffer::new2(tokens);
    let mut parser = Parser::new(buffer.begin(), Span::call_site(), sink);
    let mut all = Vec::new();
    while !parser.at_end() {
        match item(&mut parser) {
            Ok(item) => all.push(item),
            Err(_) => recover(&mut parser),
        }
    }
    all
}

/// The functions alone, for the standard library.
pub(crate) fn functions(tokens: TokenStream, sink: &mut Sink) -> Vec<Function> {
    items(tokens, sink).into_iter().map(|item| item.function).collect()
}

/// Goes on where the next function may start.
fn recover(parser: &mut Parser<'_, '_>) {
    while !parser.at_end() {
        if parser.symbol() == Some("#") || parser.is_word("fn") || parser.is_word("pub") {
            return;
        }
        parser.skip();
    }
}

/// What attributes say.
#[derive(Default)]
struct Attributes {
    kept: TokenStream,
    off: bool,
    targets: Vec<Target>,
    /// The first `#[fuse(…)]`.
    fuse: Option<super::ast::At>,
}

fn item(parser: &mut Parser<'_, '_>) -> Parsed<Item> {
    let mut attributes = Attributes::default();
    while parser.symbol() == Some("#") {
        attribute(parser, &mut attributes)?;
    }
    let visibility = visibility(parser)?;
    if parser.eat_word("fn").is_none() {
        let found = parser.found();
        parser.error(diag::item_start(found));
        parser.skip();
        return Err(super::tokens::Reported);
    }
    if let (true, Some(at)) = (visibility.is_empty(), attributes.fuse) {
        parser.error_at(at, diag::attribute_private());
    }
    let function = function(parser, !visibility.is_empty())?;
    if attributes.targets.is_empty() {
        attributes.targets.extend(Target::ALL);
    }
    let Attributes { kept, off, targets, .. } = attributes;
    Ok(Item { function, attributes: kept, visibility, off, targets })
}

fn visibility(parser: &mut Parser<'_, '_>) -> Parsed<TokenStream> {
    let Some((word, rest)) = parser.cursor().ident() else { return Ok(TokenStream::new()) };
    if parser.eat_word("pub").is_none() {
        return Ok(TokenStream::new());
    }
    let Some((inner, _, _)) = rest.group(Delimiter::Parenthesis) else { return Ok(quote!(#word)) };
    let scope = inner.token_stream();
    if scope.to_string() == "crate" {
        parser.group(Delimiter::Parenthesis);
        return Ok(quote!(#word(#scope)));
    }
    Err(parser.error(diag::visibility(scope.to_string().replace(" :: ", "::"))))
}

fn attribute(parser: &mut Parser<'_, '_>, attributes: &mut Attributes) -> Parsed<()> {
    parser.expect("#", "`#`")?;
    if parser.symbol() == Some("!") {
        return Err(parser.error(diag::inner_attribute()));
    }
    let Some((inner, _, span)) = parser.group(Delimiter::Bracket) else {
        return Err(parser.error_expected("`[`"));
    };
    let mut content = parser.within(inner, span);
    let Some(at) = content.eat_word("fuse") else {
        let tokens = inner.token_stream();
        attributes.kept.extend(quote!(#[#tokens]));
        return Ok(());
    };
    attributes.fuse.get_or_insert(at);
    match content.group(Delimiter::Parenthesis) {
        Some((options, _, span)) if !options.eof() => {
            // A mistake in an option is no reason to give the function up.
            let _reported = content.within(options, span).list(|parser| option(parser, attributes));
        }
        Some(_) | None => {
            content.error_at(at, diag::attribute_empty());
        }
    }
    Ok(())
}

fn option(parser: &mut Parser<'_, '_>, attributes: &mut Attributes) -> Parsed<()> {
    let name = parser.name("the name of an option")?;
    match name.text.as_str() {
        "off" => attributes.off = true,
        "targets" => {
            let Some((inner, _, span)) = parser.group(Delimiter::Parenthesis) else {
                return Err(parser.error_at(name.at, diag::targets_empty()));
            };
            parser.within(inner, span).list(|parser| target(parser, attributes))?;
            if attributes.targets.is_empty() {
                return Err(parser.error_at(name.at, diag::targets_empty()));
            }
        }
        "strict" | "fast_math" | "grad" => {
            return Err(parser.error_at(name.at, diag::attribute_later(&name.text)));
        }
        text => {
            let near = diag::did_you_mean(text, ["off", "targets", "strict", "fast_math", "grad"]);
            return Err(parser.error_at(name.at, diag::attribute_unknown(text, near)));
        }
    }
    Ok(())
}

fn target(parser: &mut Parser<'_, '_>, attributes: &mut Attributes) -> Parsed<()> {
    let name = parser.name("the name of a target")?;
    match Target::ALL.into_iter().find(|target| target.name() == name.text) {
        Some(target) if attributes.targets.contains(&target) => {
            Err(parser.error_at(name.at, diag::duplicate_target(&name.text)))
        }
        Some(target) => {
            attributes.targets.push(target);
            Ok(())
        }
        None => {
            let near = diag::did_you_mean(&name.text, Target::ALL.map(Target::name));
            Err(parser.error_at(name.at, diag::target_unknown(&name.text, near)))
        }
    }
}

/// What follows `fn`.
fn function(parser: &mut Parser<'_, '_>, exported: bool) -> Parsed<Function> {
    let name = parser.name("the name of a function")?;
    let generics = generics(parser)?;
    let Some((inner, _, span)) = parser.group(Delimiter::Parenthesis) else {
        return Err(parser.error_expected("the parameters, `(…)`"));
    };
    let mut params = Vec::new();
    parser.within(inner, span).list(|parser| {
        let param = param(parser, exported, &params)?;
        params.push(param);
        Ok(())
    })?;
    let results = match parser.eat("->") {
        Some(_) => Some(results(parser)?),
        None => None,
    };
    let Some((inner, _, span)) = parser.group(Delimiter::Brace) else {
        let what = match results {
            Some(_) => "the body of the function, `{ … }`",
            None => "`->` and the result, or the body of the function, `{ … }`",
        };
        return Err(parser.error_expected(what));
    };
    parser.sink.mentions.clear();
    let (body, whole): (Block, _) = block(&mut parser.within(inner, span));
    let mentions = std::mem::take(&mut parser.sink.mentions);
    Ok(Function { name, exported, generics, params, results, body, mentions, broken: whole.is_err() })
}

fn generics(parser: &mut Parser<'_, '_>) -> Parsed<Vec<Name>> {
    let mut names = Vec::new();
    if parser.eat("<").is_none() {
        return Ok(names);
    }
    loop {
        if parser.eat(">").is_some() {
            return Ok(names);
        }
        if parser.symbol().is_some() || parser.is_word("const") {
            return Err(parser.error(diag::generic_bounds()));
        }
        names.push(parser.name("the name of a generic")?);
        match parser.symbol() {
            Some(",") => drop(parser.eat(",")),
            Some(":") => return Err(parser.error(diag::generic_bounds())),
            Some(">") => {}
            Some(_) | None => return Err(parser.error_expected("`,` or `>`")),
        }
    }
}

fn param(parser: &mut Parser<'_, '_>, exported: bool, before: &[Param]) -> Parsed<Param> {
    if parser.is_word("self") {
        return Err(parser.error(diag::param_self()));
    }
    if parser.symbol() == Some("#") {
        return Err(parser.error(diag::param_attribute()));
    }
    if parser.is_word("mut") {
        return Err(parser.error(diag::param_mut()));
    }
    let name = parser.name("the name of a parameter")?;
    let kind = match parser.eat(":") {
        Some(_) => param_kind(parser, &name)?,
        None if exported => {
            return Err(parser.error_at(name.at, diag::param_untyped_exported(&name.text)));
        }
        None => ParamKind::Untyped,
    };
    let default = match parser.eat("=") {
        Some(at) if exported => return Err(parser.error_at(at, diag::param_default_exported())),
        Some(_) => Some(expr(parser)?),
        None => None,
    };
    if default.is_none() && before.iter().any(|param| param.default.is_some()) {
        return Err(parser.error_at(name.at, diag::param_default_order(&name.text)));
    }
    Ok(Param { name, kind, default })
}

fn param_kind(parser: &mut Parser<'_, '_>, name: &Name) -> Parsed<ParamKind> {
    if let Some(at) = parser.eat("&") {
        if parser.eat_word("mut").is_none() {
            return Err(parser.error_at(at, diag::param_reference()));
        }
        let dtype = dtype(parser)?;
        return match tensor(parser, dtype)? {
            (dtype, Some(dims)) => Ok(ParamKind::InPlace(TensorType { dtype, dims })),
            (_, None) => Err(parser.error_at(at, diag::param_in_place_scalar(&name.text))),
        };
    }
    if parser.eat_word("dim").is_some() {
        return Ok(ParamKind::Dim);
    }
    let dtype = dtype(parser)?;
    Ok(match tensor(parser, dtype)? {
        (dtype, Some(dims)) => ParamKind::Tensor(TensorType { dtype, dims }),
        (dtype, None) => ParamKind::Scalar(dtype),
    })
}

fn dtype(parser: &mut Parser<'_, '_>) -> Parsed<Name> {
    match parser.word() {
        Some(word) if !super::tokens::is_keyword(&word) => parser.name("a dtype"),
        Some(_) | None => {
            let found = parser.found();
            Err(parser.error(diag::tensor_type(found)))
        }
    }
}

/// A dtype and the dims after it, if there are any.
fn tensor(parser: &mut Parser<'_, '_>, dtype: Name) -> Parsed<(Name, Option<Vec<Dim>>)> {
    let dims = match parser.group(Delimiter::Bracket) {
        Some((inner, _, span)) => Some(dims(&mut parser.within(inner, span))?),
        None => None,
    };
    let more = parser.is_group(Delimiter::Bracket) || parser.is_group(Delimiter::Parenthesis);
    if more || parser.symbol() == Some("<") {
        let known = DType::from_name(&dtype.text);
        return Err(parser.error(diag::dims_brackets(known.unwrap_or(DType::F32))));
    }
    Ok((dtype, dims))
}

fn results(parser: &mut Parser<'_, '_>) -> Parsed<Vec<TensorType>> {
    match parser.group(Delimiter::Parenthesis) {
        Some((inner, _, span)) => parser.within(inner, span).list(result),
        None => Ok(vec![result(parser)?]),
    }
}

fn result(parser: &mut Parser<'_, '_>) -> Parsed<TensorType> {
    let dtype = dtype(parser)?;
    match tensor(parser, dtype)? {
        (dtype, Some(dims)) => Ok(TensorType { dtype, dims }),
        (dtype, None) => Err(parser.error_at(dtype.at, diag::result_dims(&dtype.text))),
    }
}

/// `N, C = 3, 3`.
pub(crate) fn dims(parser: &mut Parser<'_, '_>) -> Parsed<Vec<Dim>> {
    parser.list(dim)
}

fn dim(parser: &mut Parser<'_, '_>) -> Parsed<Dim> {
    if parser.cursor().literal().is_some() {
        let (text, extent) = extent(parser)?;
        return Ok(Dim { name: text, extent: Some(extent) });
    }
    if parser.word().is_none_or(|word| super::tokens::is_keyword(&word)) {
        let found = parser.found();
        return Err(parser.error(diag::dim_name(found)));
    }
    let name = parser.name("the name of a dim")?;
    // Not every script has uppercase letters.
    if name.text.starts_with(|c: char| c.is_lowercase() || c == '_') {
        let message = diag::dim_lowercase(&name.text, upper(&name.text));
        return Err(parser.error_at(name.at, message));
    }
    let extent = match parser.eat("=") {
        Some(_) => Some(extent(parser)?.1),
        None => None,
    };
    match parser.symbol() {
        Some(",") | None => Ok(Dim { name, extent }),
        Some(_) => Err(parser.error(diag::dim_arithmetic())),
    }
}

/// A whole number from 1, and how a dim of that name is called.
fn extent(parser: &mut Parser<'_, '_>) -> Parsed<(Name, i64)> {
    let Some((literal, at)) = parser.literal() else {
        return Err(parser.error(diag::dim_extent()));
    };
    let value = match syn::Lit::new(literal) {
        syn::Lit::Int(int) if int.suffix().is_empty() => int.base10_parse::<i32>().ok(),
        _ => None,
    };
    match value {
        Some(value) if value > 0 => Ok((Name { text: value.to_string(), at }, i64::from(value))),
        Some(_) | None => Err(parser.error_at(at, diag::dim_extent())),
    }
}

/// The name as a dim would be written.
pub(crate) fn upper(name: &str) -> String {
    let name = name.trim_start_matches("r#").trim_start_matches('_');
    let mut letters = name.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::from("N"),
    }
}

/// The identifier of a name of the source.
pub(crate) fn ident(name: &Name, places: &super::Places) -> Ident {
    let span = places.span(name.at);
    match name.text.strip_prefix("r#") {
        Some(raw) => Ident::new_raw(raw, span),
        None => Ident::new(&name.text, span),
    }
}
