//! The functions of a block: checks of each function, and the graphs of exported functions.
//!
//! Invariant: a mistake in one function hides no mistake in another.

use super::build::{Builder, Env, ExprValue, VarKind};
pub(super) use super::fit::fit_result;
use super::{
    ElementType, Failure, Function, Options, ParamType, Signature, dims, expr, rename, renamed, split,
    unroll, value,
};
use crate::diag::{self, Diagnostics, hints};
use crate::ir::dtype::DType;
use crate::ir::graph::{
    Access, AxisId, AxisSet, Dest, Fusing, Graph, NodeKind, Output, Param, ParamId, ParamKind,
};
use crate::ir::plan::Target;
use crate::parse::ast::{self, At, Broken, Dim, Name, Returns, TensorType};
use crate::parse::{self, Item, Places, Sink};
use crate::target;
use proc_macro2::{Ident, TokenStream};

/// Checks all functions of a block. Also returns the unused names in each private function.
pub(super) fn items(tokens: TokenStream) -> Result<(Vec<Function>, Vec<Vec<Ident>>), Failure> {
    let mut sink = Sink::default();
    let items = parse::items(tokens, &mut sink);
    let Sink { places, mut errors, mistaken, calls, .. } = sink;
    let block: Vec<&ast::Function> = items.iter().map(|item| &item.function).collect();
    duplicates(&block, &places, &mut errors);
    uncalled(&items, &calls, &places, &mut errors);
    let mut functions = Vec::new();
    for (number, item) in items.iter().enumerate() {
        let before = errors.len();
        if item.function.broken != Broken::Head {
            head(&item.function, &places, &mut errors);
        }
        let (first, others) = match item.function.generics.as_slice() {
            [] => (None, &[][..]),
            [_, ..] => (Some(DType::GENERIC[0]), &DType::GENERIC[1..]),
        };
        let context = (block.as_slice(), mistaken.as_slice());
        let mut checked = Vec::from_iter(function((number, item), first, context, &places, &mut errors));
        // A mistake in the first instance recurs in every other instance.
        let others = if errors.len() == before { others } else { &[] };
        for &dtype in others {
            checked.extend(function((number, item), Some(dtype), context, &places, &mut errors));
        }
        // A mistyped name in the body can make a parameter seem unused.
        if errors.len() == before {
            unused(&item.function, &places, &mut errors);
        }
        functions.extend(checked.into_iter().filter(|_| item.function.exported));
    }
    if errors.is_empty() {
        // A private function with attributes, such as `#[allow(unused)]`, gets no warnings, because no
        // emitted item could carry its attributes.
        let inner = items.iter().filter(|item| !item.function.exported && item.attributes.is_empty());
        return Ok((functions, inner.map(|item| unused_lets(&item.function, &places)).collect()));
    }
    // Only the first function of a name gets a stub, because a second stub would be a second error. Functions
    // under `#[cfg]` all get a stub, because the first may be left out of the build.
    let first = |i: usize| block[..i].iter().all(|other| other.name.text != block[i].name.text);
    let is_one = |(i, item): &(usize, &Item)| first(*i) || item.function.conditional;
    let exported = items.iter().enumerate().filter(|(_, item)| item.function.exported).filter(is_one);
    Err(Failure { errors, stubs: exported.map(|(_, item)| rust_signature(item, &places)).collect() })
}

fn unused_lets(function: &ast::Function, places: &Places) -> Vec<Ident> {
    function.unused.iter().map(|name| parse::ident(name, places)).collect()
}

fn duplicates(block: &[&ast::Function], places: &Places, errors: &mut Diagnostics) {
    for (i, function) in block.iter().enumerate() {
        let Name { text, at } = &function.name;
        let mut same = block[..i].iter().filter(|other| other.name.text == *text);
        // rustc detects duplicates among functions that all have a `#[cfg]`.
        if same.any(|other| !function.conditional || !other.conditional) {
            errors.push(places.span(*at), diag::duplicate_function(text));
        }
    }
}

/// Reports private functions that have a Rust-like signature and no caller, and a block without an exported
/// function.
fn uncalled(items: &[Item], calls: &[String], places: &Places, errors: &mut Diagnostics) {
    // A part of the source that could not be parsed may call the function, or contain its `pub`.
    if !errors.is_empty() {
        return;
    }
    // A function with attributes, such as `#[cfg(test)]` or `#[allow(dead_code)]`, may be uncalled on
    // purpose.
    let plain = items.iter().filter(|item| item.attributes.is_empty()).map(|item| &item.function);
    for function in plain.filter(|function| !function.exported && function.is_typed()) {
        let Name { text, at } = &function.name;
        if !calls.contains(text) {
            errors.push(places.span(*at), diag::private_uncalled(text));
        }
    }
    let is_inside = |item: &Item| !item.function.exported && item.attributes.is_empty();
    if let Some(last) = items.last().filter(|_| errors.is_empty() && items.iter().all(is_inside)) {
        let Name { text, at } = &last.function.name;
        errors.push(places.span(*at), diag::nothing_exported(text));
    }
}

/// Checks generics, parameter names and the presence of a value in any function, called or not.
fn head(function: &ast::Function, places: &Places, errors: &mut Diagnostics) {
    if let Some(generic) = function.generics.get(1) {
        errors.push(places.span(generic.at), diag::one_generic());
    }
    for generic in &function.generics {
        if DType::from_name(&generic.text).is_some() {
            errors.push(places.span(generic.at), diag::generic_dtype(&generic.text));
        }
    }
    let is_used = |name: &str| {
        let scalar =
            |param: &ast::Param| matches!(&param.kind, ast::ParamKind::Scalar(ty) if ty.text == name);
        function.types().any(|ty| ty.dtype.text == name) || function.params.iter().any(scalar)
    };
    if let Some(generic) = function.generics.first().filter(|generic| !is_used(&generic.text)) {
        errors.push(places.span(generic.at), diag::unused_generic(&generic.text));
    }
    if !function.is_typed() && function.broken == Broken::Nothing && function.body.tail.is_none() {
        errors.push(places.span(function.name.at), diag::no_value(&function.name.text));
    }
    for (i, param) in function.params.iter().enumerate() {
        let Name { text, at } = &param.name;
        if function.params[..i].iter().any(|other| other.name.text == *text) {
            errors.push(places.span(*at), diag::duplicate_param(text));
        }
        let is_value = !matches!(param.kind, ast::ParamKind::Dim);
        let dim = function.types().flat_map(|ty| &ty.dims).find(|dim| dim.name.text == *text);
        if let (true, Some(dim)) = (is_value, dim) {
            errors.push(places.span(dim.name.at), diag::name_clash(text, "a parameter", "a dim"));
        }
        if let Some(generic) = function.generics.iter().find(|generic| generic.text == *text) {
            errors.push(places.span(generic.at), diag::name_clash(text, "a generic", "a parameter"));
        }
    }
    for generic in &function.generics {
        if let Some(dim) = function.types().flat_map(|ty| &ty.dims).find(|dim| dim.name.text == generic.text)
        {
            errors.push(places.span(dim.name.at), diag::name_clash(&generic.text, "a generic", "a dim"));
        }
    }
}

fn unused(function: &ast::Function, places: &Places, errors: &mut Diagnostics) {
    for param in &function.params {
        let Name { text, at } = &param.name;
        let in_dim = |dim: &Dim| dim.name.text == *text;
        let mentioned =
            function.mentions.contains(text) || function.types().any(|ty| ty.dims.iter().any(in_dim));
        let asked = function.broken == Broken::Nothing && !text.starts_with('_') && !param.is_in_place();
        if mentioned || !asked {
            continue;
        }
        let dims: Vec<&str> = dims_it_gives(function, param);
        errors.push(
            places.span(*at),
            if dims.is_empty() {
                diag::unused_param(text)
            } else {
                let params: Vec<String> = dims.iter().map(|dim| format!("{dim}: dim")).collect();
                diag::unused_but_dims(text, diag::dims(dims), params.join(", "))
            },
        );
    }
}

/// Returns the dims of a parameter that the body or a result uses and no other parameter provides.
fn dims_it_gives<'f>(function: &'f ast::Function, param: &'f ast::Param) -> Vec<&'f str> {
    let has = |ty: &TensorType, name: &str| ty.dims.iter().any(|dim| dim.name.text == name);
    let given = |other: &ast::Param, name: &str| {
        let is_other = other.name.at != param.name.at;
        is_other && (other.name.text == name || other.tensor().is_some_and(|ty| has(ty, name)))
    };
    let used = |name: &str| {
        function.mentions.iter().any(|mention| mention == name)
            || function.results.iter().flatten().any(|ty| has(ty, name))
    };
    let dims = param.tensor().into_iter().flat_map(|ty| &ty.dims).filter(|dim| dim.extent.is_none());
    let names = dims.map(|dim| dim.name.text.as_str());
    names.filter(|name| used(name) && !function.params.iter().any(|other| given(other, name))).collect()
}

/// Builds the graph of a typed function, for one dtype of its generic.
fn function(
    (number, item): (usize, &Item),
    generic: Option<DType>,
    (block, mistaken): (&[&ast::Function], &[String]),
    places: &Places,
    errors: &mut Diagnostics,
) -> Option<Function> {
    let function = &item.function;
    if function.broken == Broken::Head {
        return None;
    }
    let typed = function.is_typed();
    let name = &function.name.text;
    let full_name = generic.map_or(name.clone(), |dtype| format!("{name}<{dtype}>"));
    let mut b = Builder::new(&full_name, block, places, errors);
    b.root = Some(name);
    b.mistaken = mistaken;
    b.graph.fusing = if item.off { Fusing::Off } else { Fusing::On };
    b.graph.math = item.math;
    let mut env = Env::default();
    let stands = |name: &Name| Some((name.text.clone(), generic?));
    env.types = function.generics.iter().filter_map(stands).collect();
    let mut results = signature(&mut b, &mut env, function, typed)?;
    if function.broken == Broken::Body {
        return None;
    }
    let mistakes = b.error_count();
    let value = expr::body(&mut b, &mut env, &function.body);
    in_place(&mut b, &env, function);
    results.complete(&mut b, &mut env, function);
    returned(&mut b, &env, function, value, &results.orders);
    // A mistake in the body may be the reason why nothing creates the dims.
    if b.error_count() == mistakes {
        for dim in results.unmade {
            b.error(dim.name.at, diag::result_dim_unknown(&dim.name.text));
        }
    }
    renamed::expand(&mut b);
    split::refine(&mut b);
    unroll::limit(&mut b.graph);
    if let Some(what) = nowhere(&b.graph, &item.targets) {
        b.error(function.name.at, diag::no_target(name, what));
        return None;
    }
    rename::finish(&mut b.graph, b.views);
    let options = Options { targets: item.targets.clone() };
    let signature = rust_signature(item, places);
    Some(Function { number, signature, options, graph: b.graph, spans: b.spans })
}

/// Returns the features that the targets lack, if no target supports the function.
fn nowhere(graph: &Graph, targets: &[Target]) -> Option<String> {
    let lacks: Option<Vec<String>> = targets
        .iter()
        .map(|&target| Some(format!("{} has no {}", target.name(), target::lacks(graph, target)?)))
        .collect();
    lacks.map(|lacks| lacks.join(", and "))
}

/// Declared results of a function.
struct Results<'f> {
    /// Axes of each result, unless its type is a mistake or has a dim that is not known yet.
    orders: Vec<Option<Vec<AxisId>>>,
    /// Dims that neither a parameter nor the body creates. A template that the body calls may.
    unmade: Vec<&'f Dim>,
    /// Dims of fixed extent.
    fixed: Vec<(String, i64)>,
}

impl<'f> Results<'f> {
    /// Returns the dims of a type that nothing has created so far.
    fn unmade(&self, env: &Env, ty: &'f TensorType) -> Vec<&'f Dim> {
        let is_known =
            |name: &str| env.dim(name).is_some() || self.fixed.iter().any(|(fixed, _)| fixed == name);
        ty.dims.iter().filter(|dim| !is_known(&dim.name.text)).collect()
    }

    /// Declares the results whose dims the templates called by the body have created.
    fn complete(&mut self, b: &mut Builder<'_>, env: &mut Env, function: &'f ast::Function) {
        let declared = std::mem::take(&mut self.unmade);
        for (i, ty) in function.results.iter().flatten().enumerate() {
            let awaited =
                ty.dims.iter().any(|dim| declared.iter().any(|unmade| unmade.name.at == dim.name.at));
            if !awaited {
                continue;
            }
            let unmade = self.unmade(env, ty);
            if unmade.is_empty() && env.dtype(&ty.dtype.text).is_some() {
                self.orders[i] = dims::declare(b, env, &ty.dims, &self.fixed);
            }
            self.unmade.extend(unmade);
        }
    }
}

/// Declares dims, parameters and results. Returns none if the body cannot be checked.
fn signature<'f>(
    b: &mut Builder<'_>,
    env: &mut Env,
    function: &'f ast::Function,
    is_typed: bool,
) -> Option<Results<'f>> {
    let fixed = dims::fixed(b, function.types().flat_map(|ty| &ty.dims));
    let scalars = function.params.iter().filter_map(|param| match &param.kind {
        ast::ParamKind::Scalar(dtype) => Some(dtype),
        _ => None,
    });
    for name in function.types().map(|ty| &ty.dtype).chain(scalars) {
        check_dtype(b, env, name);
    }
    if !is_typed {
        return None;
    }
    for param in &function.params {
        declare_param(b, env, param, &fixed)?;
    }
    rename::declare(b, env, &function.body, &fixed);
    let mut results = Results { orders: Vec::new(), unmade: Vec::new(), fixed };
    for ty in function.results.iter().flatten() {
        let whole = env.dtype(&ty.dtype.text).is_some();
        let unmade = results.unmade(env, ty);
        let order = match unmade.is_empty() {
            true => Some(dims::declare(b, env, &ty.dims, &results.fixed)?),
            false => None,
        };
        results.unmade.extend(unmade);
        results.orders.push(order.filter(|_| whole));
    }
    let in_place = function.params.iter().any(ast::Param::is_in_place);
    if results.orders.is_empty() && !in_place {
        b.error(function.name.at, diag::no_result(&function.name.text));
    }
    Some(results)
}

/// Adds a parameter to the graph and to the environment. A mistake in the dtype binds the name to an unknown
/// value. Returns none if there are too many dims to continue.
fn declare_param(
    b: &mut Builder<'_>,
    env: &mut Env,
    param: &ast::Param,
    fixed: &[(String, i64)],
) -> Option<()> {
    let Name { text, at } = &param.name;
    let span = b.place(*at);
    let id = ParamId(b.graph.params.len() as u16);
    let (kind, dtype) = match &param.kind {
        ast::ParamKind::Untyped | ast::ParamKind::Mistaken => {
            unreachable!("a typed function has typed parameters")
        }
        ast::ParamKind::Dim => return declare_dim(b, env, param, fixed),
        ast::ParamKind::Scalar(dtype) => (ParamKind::Scalar, env.dtype(&dtype.text)),
        ast::ParamKind::Tensor(ty) => (tensor(b, env, ty, Access::Read, fixed)?, env.dtype(&ty.dtype.text)),
        ast::ParamKind::InPlace(ty) => {
            (tensor(b, env, ty, Access::ReadWrite, fixed)?, env.dtype(&ty.dtype.text))
        }
    };
    let (node, axes) = match &kind {
        ParamKind::Tensor { axes, .. } | ParamKind::View { axes, .. } => {
            (NodeKind::Input(id), axes.iter().copied().collect())
        }
        ParamKind::Scalar | ParamKind::Dim(_) => (NodeKind::Scalar(id), AxisSet::EMPTY),
    };
    let (name, known) = (text.clone(), dtype.unwrap_or(DType::F32));
    b.graph.params.push(Param { name, dtype: known, kind, span });
    let value = value::known(dtype.and_then(|dtype| b.leaf(node, dtype, axes, span)));
    env.bind(text, value, if param.is_in_place() { VarKind::InPlace(id) } else { VarKind::Param });
    Some(())
}

fn tensor(
    b: &mut Builder<'_>,
    env: &mut Env,
    ty: &TensorType,
    access: Access,
    fixed: &[(String, i64)],
) -> Option<ParamKind> {
    let axes = dims::declare(b, env, &ty.dims, fixed)?;
    Some(ParamKind::Tensor { axes, access })
}

fn declare_dim(
    b: &mut Builder<'_>,
    env: &mut Env,
    param: &ast::Param,
    fixed: &[(String, i64)],
) -> Option<()> {
    let Name { text, at } = &param.name;
    if text.starts_with(|c: char| c.is_lowercase() || c == '_') {
        b.error(*at, diag::dim_lowercase(text, parse::upper(text)));
    }
    if fixed.iter().any(|(name, _)| name == text) {
        b.error(*at, diag::name_clash(text, "given by the caller", "a dim of fixed extent"));
    }
    let span = b.place(*at);
    let axis = dims::axis(b, env, text, *at, fixed)?;
    if let Some(symbol) = b.graph.axis(axis).extent.as_sym() {
        let kind = ParamKind::Dim(symbol);
        b.graph.params.push(Param { name: text.clone(), dtype: DType::Index, kind, span });
    }
    Some(())
}

fn check_dtype(b: &mut Builder<'_>, env: &Env, name: &Name) {
    if env.dtype(&name.text).is_none() {
        let near = match name.text.as_str() {
            "usize" => String::from(": an extent is a `dim`"),
            text => hints::near_dtype(text, &["dim"]),
        };
        b.error(name.at, diag::unknown_dtype(&name.text, near));
    }
}

/// Adds the new values of `&mut` parameters to the outputs.
fn in_place(b: &mut Builder<'_>, env: &Env, function: &ast::Function) {
    for param in function.params.iter().filter(|param| param.is_in_place()) {
        let is_param =
            |var: &&super::build::Var| matches!(var.kind, VarKind::InPlace(_)) && var.name == param.name.text;
        let Some(var) = env.vars.iter().find(is_param) else { continue };
        let VarKind::InPlace(id) = var.kind else { continue };
        if !b.assigned.contains(&id) {
            b.error(param.name.at, diag::never_assigned(&param.name.text));
            continue;
        }
        if let (ExprValue::Node(node), ParamKind::Tensor { axes, .. }) = (&var.value, &b.graph.param(id).kind)
        {
            let axes = axes.clone();
            b.graph.outputs.push(Output { node: *node, axes, dest: Dest::InPlace(id) });
        }
    }
}

/// Adds the value of the body to the outputs.
fn returned(
    b: &mut Builder<'_>,
    env: &Env,
    function: &ast::Function,
    value: Option<ExprValue>,
    orders: &[Option<Vec<AxisId>>],
) {
    let name = &function.name.text;
    let results = function.results.as_deref().unwrap_or_default();
    let at = function.body.tail.as_ref().map_or(function.name.at, |tail| tail.at);
    let parts = match value {
        None if results.is_empty() => return,
        None => {
            let wants: Vec<String> = results.iter().map(type_text).collect();
            b.error(at, diag::missing_result(name, wants.join(" and ")));
            return;
        }
        Some(ExprValue::Unknown) => return,
        Some(_) if results.is_empty() && !function.params.iter().any(ast::Param::is_in_place) => return,
        Some(_) if results.is_empty() => {
            b.error(at, diag::unexpected_result(name));
            return;
        }
        Some(value) => match parts(b, function, results, value, at) {
            Some(parts) => parts,
            None => return,
        },
    };
    let places = tail_places(function, parts.len(), at);
    for (((part, result), order), at) in parts.into_iter().zip(results).zip(orders).zip(places) {
        let Some(order) = order else { continue };
        let Some(dtype) = env.dtype(&result.dtype.text) else { continue };
        if let Some(node) = fit_result(b, part, (dtype, &result.dtype.text), order, at) {
            b.graph.outputs.push(Output { node, axes: order.clone(), dest: Dest::Fresh });
        }
    }
}

/// Returns the value of a body as a list with one value for each result.
pub(super) fn parts(
    b: &mut Builder<'_>,
    function: &ast::Function,
    results: &[TensorType],
    value: ExprValue,
    at: At,
) -> Option<Vec<ExprValue>> {
    let name = &function.name.text;
    let several = function.body.tail.as_ref().and_then(|tail| expr::several(b, tail));
    let message = match (value, function.returns) {
        (ExprValue::Unknown, _) => return None,
        (ExprValue::Tuple(parts), Returns::Tuple) if parts.len() == results.len() => return Some(parts),
        (one @ (ExprValue::Node(_) | ExprValue::Weak(_)), Returns::One) => return Some(vec![one]),
        (ExprValue::Tuple(parts), Returns::One) if parts.len() == 1 => diag::tuple_of_one(),
        (ExprValue::Node(_) | ExprValue::Weak(_), Returns::Tuple) if results.len() == 1 => {
            diag::no_tuple_of_one(name)
        }
        (ExprValue::Tuple(parts), _) => {
            diag::result_count(name, diag::count(results.len(), "value"), diag::count(parts.len(), "value"))
        }
        (ExprValue::Node(_) | ExprValue::Weak(_), Returns::Tuple) => several.unwrap_or_else(|| {
            diag::result_count(name, diag::count(results.len(), "value"), diag::count(1, "value"))
        }),
    };
    b.error(at, message);
    None
}

/// Returns the place of each result, if the body ends with a tuple.
fn tail_places(function: &ast::Function, parts: usize, at: At) -> Vec<At> {
    match function.body.tail.as_ref().map(|tail| &tail.kind) {
        Some(ast::ExprKind::Tuple(values)) => values.iter().map(|value| value.at).collect(),
        Some(_) | None => vec![at; parts],
    }
}

fn type_text(ty: &TensorType) -> String {
    format!("`{}{}`", ty.dtype.text, diag::dims(ty.dims.iter().map(|dim| dim.name.text.as_str())))
}

/// Returns the signature that Rust sees of a function. A mistaken dtype counts as `f32`.
fn rust_signature(item: &Item, places: &Places) -> Signature {
    let function = &item.function;
    let element = |name: &Name| match function.generics.iter().any(|generic| generic.text == name.text) {
        true => ElementType::Generic,
        false => ElementType::Is(DType::from_name(&name.text).unwrap_or(DType::F32)),
    };
    let param = |param: &ast::Param| match &param.kind {
        ast::ParamKind::Untyped | ast::ParamKind::Dim => ParamType::Dim,
        ast::ParamKind::Mistaken => ParamType::Unknown,
        ast::ParamKind::Scalar(name) => ParamType::Scalar(element(name)),
        ast::ParamKind::Tensor(ty) => ParamType::Tensor(element(&ty.dtype), Access::Read),
        ast::ParamKind::InPlace(ty) => ParamType::Tensor(element(&ty.dtype), Access::ReadWrite),
    };
    Signature {
        attributes: item.attributes.clone(),
        visibility: item.visibility.clone(),
        name: parse::ident(&function.name, places),
        generic: function.generics.first().map(|generic| parse::ident(generic, places)),
        params: function.params.iter().map(|param| parse::ident(&param.name, places)).collect(),
        types: function.params.iter().map(param).collect(),
        results: function.results.iter().flatten().map(|ty| element(&ty.dtype)).collect(),
        returns: function.returns,
        unused: unused_lets(function, places),
    }
}
