//! Functions: attributes, signatures and bodies.
//!
//! Invariant: every function whose signature could be parsed is in the list, even without a body, so that a
//! stub can replace it.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::quote;
use syn::buffer::TokenBuffer;

use super::ast::{At, Block, Broken, Dim, ExprKind, Function, Name, Param, ParamKind, Returns, TensorType};
use super::cfgs;
use super::expr::{block, expr};
use super::tokens::{Parsed, Parser, Reported, Sink};
use crate::diag;
use crate::ir::dtype::DType;
use crate::ir::graph::Math;
use crate::ir::plan::Target;

/// A function with the parts that only the surrounding Rust code needs.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) function: Function,
    /// All attributes except `#[fuse(…)]`.
    pub(crate) attributes: TokenStream,
    pub(crate) visibility: TokenStream,
    /// True for `#[fuse(off)]`.
    pub(crate) off: bool,
    /// Mode of maths: `#[fuse(fast_math)]`, `#[fuse(strict)]` or neither.
    pub(crate) math: Math,
    /// Targets of `#[fuse(targets(…))]`, or all targets without it.
    pub(crate) targets: Vec<Target>,
}

/// Parses the functions of a block.
pub(crate) fn items(tokens: TokenStream, sink: &mut Sink) -> Vec<Item> {
    let buffer = TokenBuffer::new2(tokens);
    let mut parser = Parser::new(buffer.begin(), Span::call_site(), sink);
    let mut all = Vec::new();
    if parser.at_end() {
        parser.error(diag::empty());
    }
    while !parser.at_end() {
        match item(&mut parser) {
            Ok(item) => all.push(item),
            Err(_) => recover(&mut parser),
        }
    }
    all
}

/// Parses the functions of the standard library.
pub(crate) fn functions(tokens: TokenStream, sink: &mut Sink) -> Vec<Function> {
    items(tokens, sink).into_iter().map(|item| item.function).collect()
}

/// Skips to the possible start of the next function.
fn recover(parser: &mut Parser<'_, '_>) {
    while !parser.at_end() && !starts_item(parser) {
        parser.skip();
    }
}

fn starts_item(parser: &Parser<'_, '_>) -> bool {
    let starts = |word: &&str| parser.is_word(word);
    parser.symbol() == Some("#") || ["pub", "fn", "const", "static", "let"].iter().any(starts)
}

/// Content of a function's attributes.
#[derive(Default)]
struct Attributes {
    kept: TokenStream,
    off: bool,
    math: Option<Math>,
    targets: Vec<Target>,
    /// Place of the first `#[fuse(…)]`.
    fuse: Option<At>,
}

fn item(parser: &mut Parser<'_, '_>) -> Parsed<Item> {
    let mut attributes = Attributes::default();
    while parser.symbol() == Some("#") {
        attribute(parser, &mut attributes)?;
    }
    let visibility = visibility(parser)?;
    qualifiers(parser);
    if parser.eat_word("fn").is_none() {
        return Err(no_function(parser));
    }
    if let (true, Some(at)) = (visibility.is_empty(), attributes.fuse) {
        parser.error_at(at, diag::attribute_private());
    }
    let mut function = function(parser, !visibility.is_empty())?;
    function.conditional = function.exported && !cfgs(&attributes.kept).is_empty();
    if attributes.targets.is_empty() {
        attributes.targets.extend(Target::ALL);
    }
    let Attributes { kept, off, math, targets, .. } = attributes;
    let math = math.unwrap_or(Math::Accurate);
    Ok(Item { function, attributes: kept, visibility, off, math, targets })
}

fn visibility(parser: &mut Parser<'_, '_>) -> Parsed<TokenStream> {
    let Some((word, rest)) = parser.cursor().ident() else { return Ok(TokenStream::new()) };
    if parser.eat_word("pub").is_none() {
        return Ok(TokenStream::new());
    }
    let Some((inner, _, after)) = rest.group(Delimiter::Parenthesis) else { return Ok(quote!(#word)) };
    let scope = inner.token_stream();
    let whole = quote!(#word(#scope));
    if syn::parse2::<syn::Visibility>(whole.clone()).is_err() {
        parser.error(diag::visibility(scope.to_string().replace(" :: ", "::")));
        parser.seek(after);
        return Ok(quote!(#word));
    }
    parser.seek(after);
    Ok(whole)
}

/// Skips the qualifiers that Rust allows between `pub` and `fn`.
fn qualifiers(parser: &mut Parser<'_, '_>) {
    let before = parser.cursor();
    let mut found = None;
    while let Some(word) = parser.word().filter(|word| QUALIFIERS.contains(&word.as_str())) {
        found = found.or(Some((word, parser.any_word().map(|word| word.at))));
        // `extern "C"`.
        parser.literal();
    }
    match found {
        Some((word, Some(at))) if parser.is_word("fn") => drop(parser.error_at(at, diag::qualifier(word))),
        Some(_) | None => parser.seek(before),
    }
}

const QUALIFIERS: [&str; 4] = ["const", "async", "unsafe", "extern"];

/// Reports other tokens in place of a function. A constant's name is recorded, so that its uses are not
/// reported.
fn no_function(parser: &mut Parser<'_, '_>) -> Reported {
    let found = parser.found();
    let is_value = parser.is_word("const") || parser.is_word("static") || parser.is_word("let");
    let place = parser.cursor();
    parser.skip();
    parser.eat_word("mut");
    let name = parser.any_word().filter(|_| is_value);
    parser.seek(place);
    let reported = match &name {
        Some(name) => parser.error(diag::constant_item(&name.text, name.text.to_lowercase())),
        None => parser.error(diag::item_start(found)),
    };
    parser.sink.mistaken.extend(name.map(|name| name.text));
    parser.skip();
    reported
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
            // A mistake in an option does not discard the function.
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
        "fast_math" | "strict" => {
            let math = if name.text == "strict" { Math::Strict } else { Math::Fast };
            if attributes.math.replace(math).is_some_and(|before| before != math) {
                return Err(parser.error_at(name.at, diag::attribute_both()));
            }
        }
        "targets" => {
            let Some((inner, _, span)) = parser.group(Delimiter::Parenthesis) else {
                return Err(parser.error_at(name.at, diag::targets_empty()));
            };
            parser.within(inner, span).list(|parser| target(parser, attributes))?;
            if attributes.targets.is_empty() {
                return Err(parser.error_at(name.at, diag::targets_empty()));
            }
        }
        "grad" => {
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

/// Parses a function after its `fn`.
fn function(parser: &mut Parser<'_, '_>, exported: bool) -> Parsed<Function> {
    parser.sink.head = parser.sink.errors.len();
    let name = parser.name("the name of a function")?;
    // The name counts as mistaken until the body is found.
    parser.sink.mistaken.push(name.text.clone());
    let generics = generics(parser);
    let Some((inner, _, span)) = parser.group(Delimiter::Parenthesis) else {
        return Err(if generics.is_ok() {
            parser.error_expected("the parameters, `(…)`")
        } else {
            Reported
        });
    };
    let (params, params_whole) = parser
        .within(inner, span)
        .list_whole(|parser, before: &[Param]| param(parser, exported, before), mistaken_param);
    let (results, returns, results_whole) = match parser.eat("->") {
        Some(_) => results(parser),
        None => (None, Returns::Tuple, Ok(())),
    };
    let Some((inner, _, span)) = parser.group(Delimiter::Brace) else {
        let what = match results {
            Some(_) => "the body of the function, `{ … }`",
            None => "`->` and the result, or the body of the function, `{ … }`",
        };
        return Err(match (results_whole, parser.symbol()) {
            (Err(reported), _) => reported,
            (Ok(()), Some(",")) if results.is_some() => parser.error(diag::results_tuple()),
            (Ok(()), _) => parser.error_expected(what),
        });
    };
    parser.sink.mistaken.pop();
    parser.sink.mentions.clear();
    parser.sink.lets.clear();
    let (body, whole): (Block, _) = block(&mut parser.within(inner, span));
    let mentions = std::mem::take(&mut parser.sink.mentions);
    // A capitalized name in a Rust pattern may refer to a constant, so it is not reported as unused.
    let is_meant = |name: &Name| name.text.starts_with(|c: char| c == '_' || c.is_uppercase());
    let lets = parser.sink.lets.drain(..).filter(|(name, _)| !is_meant(name));
    let unused = lets.filter(|(name, before)| !mentions[*before..].contains(&name.text));
    let unused = unused.map(|(name, _)| name).collect();
    let broken = match (&generics, params_whole, results_whole, whole) {
        (Ok(_), Ok(()), Ok(()), Ok(())) => Broken::Nothing,
        (Ok(_), Ok(()), Ok(()), Err(_)) => Broken::Body,
        _ => Broken::Head,
    };
    let generics = generics.unwrap_or_default();
    let conditional = false;
    Ok(Function {
        name,
        exported,
        conditional,
        generics,
        params,
        results,
        returns,
        body,
        mentions,
        unused,
        broken,
    })
}

/// Makes a placeholder for a parameter that could not be parsed. Nothing uses its name.
fn mistaken_param() -> Param {
    Param { name: nameless("parameter"), kind: ParamKind::Mistaken, default: None }
}

/// Makes a placeholder for a result that could not be parsed.
fn mistaken_result() -> TensorType {
    TensorType { dtype: nameless(DType::F32.name()), dims: vec![] }
}

/// Makes a name that is neither in the source nor in any message.
fn nameless(text: &str) -> Name {
    Name { text: text.to_owned(), at: At(0) }
}

fn generics(parser: &mut Parser<'_, '_>) -> Parsed<Vec<Name>> {
    let names = generic_names(parser);
    let goes_on = |parser: &Parser<'_, '_>| {
        !parser.at_end() && !parser.is_word("fn") && !parser.is_group(Delimiter::Parenthesis)
    };
    while names.is_err() && goes_on(parser) {
        parser.skip_symbol();
    }
    names
}

fn generic_names(parser: &mut Parser<'_, '_>) -> Parsed<Vec<Name>> {
    let mut names = Vec::new();
    if parser.eat("<").is_none() {
        return Ok(names);
    }
    loop {
        if parser.eat(">").is_some() {
            return Ok(names);
        }
        if parser.symbol().is_some() || parser.is_word("const") || parser.cursor().lifetime().is_some() {
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
    if parser.is_word("const") {
        return Err(parser.error(diag::param_const()));
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
    if let (ParamKind::Dim, Some(default)) = (&kind, &default)
        && !matches!(&default.kind, ExprKind::Name(name) if name == "all")
    {
        return Err(parser.error_at(default.at, diag::dim_default()));
    }
    if default.is_none() && before.iter().any(|param| param.default.is_some()) {
        return Err(parser.error_at(name.at, diag::param_default_order(&name.text)));
    }
    Ok(Param { name, kind, default })
}

fn param_kind(parser: &mut Parser<'_, '_>, name: &Name) -> Parsed<ParamKind> {
    if let Some(at) = parser.eat("&") {
        if let Some((_, rest)) = parser.cursor().lifetime() {
            parser.seek(rest);
        }
        let is_mut = parser.eat_word("mut").is_some();
        if let Some(dtype) = rust_type(parser) {
            let mutable = if is_mut { "&mut " } else { "" };
            let write = format!("{}: {mutable}{dtype}[N, D]", name.text);
            return Err(parser.error_at(at, diag::rust_type(write)));
        }
        if !is_mut {
            let named = parser.word().filter(|word| DType::from_name(word).is_some());
            let dtype = named.unwrap_or_else(|| DType::F32.to_string());
            return Err(parser.error_at(at, diag::param_reference(&name.text, dtype)));
        }
        let dtype = dtype(parser)?;
        return match tensor(parser, dtype)? {
            (dtype, Some(dims)) => Ok(ParamKind::InPlace(TensorType { dtype, dims })),
            (dtype, None) => Err(parser.error_at(at, diag::param_in_place_scalar(&name.text, &dtype.text))),
        };
    }
    if parser.eat_word("dim").is_some() {
        return Ok(ParamKind::Dim);
    }
    if let Some(dtype) = rust_type(parser) {
        return Err(parser.error(diag::rust_type(format!("{}: {dtype}[N, D]", name.text))));
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

/// Parses the dims after a dtype, if any.
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

/// Returns the dtype in a Rust type that comes next, as in `Tensor<f32>`, `[f32; 3]` or `Vec<f32>`. The
/// default is `f32`.
fn rust_type(parser: &Parser<'_, '_>) -> Option<DType> {
    let mut cursor = parser.cursor();
    let is_list = parser.is_group(Delimiter::Bracket);
    let is_generic = cursor.ident().is_some_and(|(name, rest)| {
        let goes_on = rest.punct().is_some_and(|(punct, _)| matches!(punct.as_char(), '<' | ':'));
        name == "Tensor" || goes_on && DType::from_name(&name.to_string()).is_none()
    });
    if !is_list && !is_generic {
        return None;
    }
    let mut inside = Vec::new();
    while let Some((tree, rest)) = cursor.token_tree().filter(|_| cursor.group(Delimiter::Brace).is_none()) {
        inside.push(tree);
        cursor = rest;
        if cursor.punct().is_some_and(|(punct, _)| matches!(punct.as_char(), ',' | '=' | ';')) {
            break;
        }
    }
    let tokens: TokenStream = inside.into_iter().collect();
    let text = tokens.to_string();
    let mut words = text.split(|c: char| !c.is_alphanumeric());
    Some(words.find_map(DType::from_name).unwrap_or(DType::F32))
}

/// Parses the results after `->`, and tells if they are without mistakes. Skips to the body after a mistake.
fn results(parser: &mut Parser<'_, '_>) -> (Option<Vec<TensorType>>, Returns, Parsed<()>) {
    let place = parser.span();
    let (results, returns, whole) = match parser.group(Delimiter::Parenthesis) {
        Some((inner, _, _)) if inner.eof() => {
            parser.sink.errors.push(place, diag::no_unit());
            (vec![], Returns::Tuple, Err(Reported))
        }
        Some((inner, _, span)) => {
            let last = inner.token_stream().into_iter().last();
            let is_tuple = matches!(last, Some(TokenTree::Punct(punct)) if punct.as_char() == ',');
            let (results, whole) =
                parser.within(inner, span).list_whole(|parser, _| result(parser), mistaken_result);
            let returns = if is_tuple || results.len() > 1 { Returns::Tuple } else { Returns::One };
            (results, returns, whole)
        }
        None => match result(parser) {
            Ok(result) => (vec![result], Returns::One, Ok(())),
            Err(reported) => (vec![mistaken_result()], Returns::One, Err(reported)),
        },
    };
    while whole.is_err() && !parser.at_end() && !parser.is_group(Delimiter::Brace) && !starts_item(parser) {
        parser.skip();
    }
    (Some(results), returns, whole)
}

fn result(parser: &mut Parser<'_, '_>) -> Parsed<TensorType> {
    if let Some(dtype) = rust_type(parser) {
        return Err(parser.error(diag::rust_type(format!("-> {dtype}[N, D]"))));
    }
    let dtype = dtype(parser)?;
    match tensor(parser, dtype)? {
        (dtype, Some(dims)) => Ok(TensorType { dtype, dims }),
        (dtype, None) => Err(parser.error_at(dtype.at, diag::result_dims(&dtype.text))),
    }
}

/// Parses `N, C = 3, 3`, all there is.
pub(crate) fn dim_list(tokens: TokenStream, sink: &mut Sink) -> Parsed<Vec<Dim>> {
    let buffer = TokenBuffer::new2(tokens);
    dims(&mut Parser::new(buffer.begin(), Span::call_site(), sink))
}

/// Parses `N, C = 3, 3`.
pub(crate) fn dims(parser: &mut Parser<'_, '_>) -> Parsed<Vec<Dim>> {
    parser.list(dim)
}

fn dim(parser: &mut Parser<'_, '_>) -> Parsed<Dim> {
    if parser.cursor().literal().is_some() {
        let (name, extent) = extent(parser)?;
        return Ok(Dim { name, extent: Some(extent) });
    }
    if parser.word().is_none_or(|word| super::tokens::is_keyword(&word)) {
        let found = parser.found();
        return Err(parser.error(diag::dim_name(found)));
    }
    let name = parser.name("the name of a dim")?;
    // Some scripts have no uppercase letters.
    if name.text.starts_with(|c: char| c.is_lowercase() || c == '_') {
        let message = diag::dim_lowercase(&name.text, upper(&name.text));
        // Several tensors of a head may share the dim, so it is reported once.
        if parser.sink.errors.says(&message, parser.sink.head) {
            return Err(Reported);
        }
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

/// Parses a positive integer. Also returns the name of a dim that is named by this extent.
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

/// Returns the name in the spelling of a dim.
pub(crate) fn upper(name: &str) -> String {
    let name = name.trim_start_matches('_');
    let mut letters = name.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::from("N"),
    }
}

/// Returns the Rust identifier of a name of the source.
pub(crate) fn ident(name: &Name, places: &super::Places) -> Ident {
    rust_name(&name.text, places.span(name.at))
}

/// Returns a name as a Rust identifier. Keywords become raw identifiers.
pub(crate) fn rust_name(text: &str, span: Span) -> Ident {
    match syn::parse_str::<Ident>(text) {
        // `gen` is a keyword since the 2024 edition.
        Ok(_) if text != "gen" => Ident::new(text, span),
        Ok(_) | Err(_) => Ident::new_raw(text, span),
    }
}
