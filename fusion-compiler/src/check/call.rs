//! Calls: name resolution of functions, and expansion of a function's body in place of its call.
//!
//! Invariant: a body is expanded in an environment of its own, so it sees its parameters but no names of its
//! caller. The standard library never sees the user's functions.

mod misfit;

use super::build::{Builder, Env, ExprValue, Form, Frame, Origin, VarKind};
use super::expr::{self, Snippet, single};
use super::value::{self, dtype_of, typed};
use super::{axes, capture, dims, fit, function, guards, index, library, order, reduce, rename, split, weak};
use crate::diag::{self, hints};
use crate::ir::dtype::DType;
use crate::ir::graph::{AxisId, AxisSet, Math};
use crate::ir::op::{Op, Typing};
use crate::parse::ast::{
    Arg, At, Broken, Expr, ExprKind, Function, Name, Param, ParamKind, Returns, TensorType,
};
use misfit::{
    by_position, forms_text, is_complete, meant, misfit, misfit_of_all, misformed, several_for_one, takes,
    unknown_argument, unknown_parameter,
};

/// Methods of Rust tensors, which the inline form calls in braces.
const RUST: [&str; 4] = ["clone", "to", "reshape", "item"];

/// Largest number of calls that are expanded in one function.
const CALLS_MAX: u32 = 1 << 14;

/// Evaluates `name(args)`.
pub(super) fn call(b: &mut Builder<'_>, env: &mut Env, at: At, name: &str, args: &[Arg]) -> ExprValue {
    if !b.in_std() {
        let mut named = b.block.iter().copied().filter(|function| function.name.text == name);
        match (named.next(), named.next()) {
            (Some(one), Some(_)) if one.conditional => return b.error(at, diag::conditional_call(name)),
            (Some(function), _) => return expand(b, env, at, (function, Origin::Block), args),
            (None, _) => {}
        }
    }
    if let Some(value) = built_in(b, env, at, name, args) {
        return value;
    }
    if let Some(op) = table_op(name) {
        return operation(b, env, at, op, args);
    }
    let forms: Vec<&Function> = library::forms(name).collect();
    let misfits: Vec<Option<usize>> = forms.iter().map(|form| misfit(b, env, form, args)).collect();
    let fitting: Vec<&Function> =
        forms.iter().zip(&misfits).filter(|(_, misfit)| misfit.is_none()).map(|(form, _)| *form).collect();
    let complete = fitting.iter().copied().find(|form| is_complete(form, args));
    // A mistake in the arguments of the only candidate, or one common to all forms, is reported at the
    // argument.
    let only = match (&fitting[..], &forms[..]) {
        ([one], _) | (_, [one]) => Some(*one),
        ([], [first, ..]) => (misfit_of_all(&forms, &misfits) && is_complete(first, args)).then_some(*first),
        _ => None,
    };
    let is_short = |form: &&Function| args.len() <= form.params.len();
    if let (Some(how), false) = (hints::more(name), forms.iter().any(is_short)) {
        return b.error(at, diag::more_arguments(forms_text(name, &forms), how));
    }
    if let Some(function) = complete.or(only) {
        return expand(b, env, at, (function, Origin::Std), args);
    }
    if !forms.is_empty() {
        return misformed(b, env, at, (name, &forms), args);
    }
    if name == "scalar" && b.form == Form::Function {
        return b.error(at, diag::scalar_in_item());
    }
    if let Some(how) = hints::later(name) {
        return b.error_here(at, diag::function_later(name, how));
    }
    if b.mistaken.iter().any(|mistaken| mistaken == name) {
        return ExprValue::Unknown;
    }
    if env.var(name).is_some() {
        return b.error_here(at, diag::value_called(name));
    }
    if DType::from_name(name).is_some() {
        return b.error_here(at, diag::dtype_called(name));
    }
    if let Some(how) = hints::function(name) {
        return b.error_here(at, diag::said_otherwise(name, how));
    }
    let near = diag::did_you_mean(name, function_names(b));
    if near.is_empty() && b.form != Form::Function && b.frames.is_empty() {
        return b.error(at, diag::unknown_function_inline(name, if args.is_empty() { "" } else { "…" }));
    }
    b.error_here(at, diag::unknown_function(name, near))
}

/// Evaluates a call of an operation that the compiler itself defines. Returns none if none has the name.
fn built_in(b: &mut Builder<'_>, env: &mut Env, at: At, name: &str, args: &[Arg]) -> Option<ExprValue> {
    if let Some(kind) = reduce::ReduceKind::from_name(name) {
        return Some(reduce::reduce(b, env, at, kind, args));
    }
    if let Some(kind) = index::IndexOp::from_name(name) {
        return Some(index::index(b, env, at, kind, args));
    }
    if let Some(nested) = resized(b, name, args) {
        return Some(single(b, env, &nested));
    }
    match name {
        "index" => Some(reduce::index(b, env, at, args)),
        "rename" => Some(rename::rename(b, env, at, args)),
        "split" => Some(split::regroup(b, env, at, split::Regrouping::Split, args)),
        "merge" => Some(split::regroup(b, env, at, split::Regrouping::Merge, args)),
        name if b.in_std() => guards::guard(b, env, at, name, args),
        _ => None,
    }
}

/// Largest number of dims that one call resizes.
const RESIZED_MAX: usize = 8;

/// Returns `resize(resize(x, W, Q), H, P)` for `resize(x, H -> P, W -> Q)`: a function of the library for each dim.
fn resized(b: &Builder<'_>, name: &str, args: &[Arg]) -> Option<Expr> {
    let [value, arrows @ ..] = args else { return None };
    let are_dims = (1..=RESIZED_MAX).contains(&arrows.len());
    if !matches!(name, "resize_nearest" | "resize_bilinear") || is_users(b, name) || !are_dims {
        return None;
    }
    let pairs = arrows.iter().map(|arg| match (&arg.name, &arg.value.kind) {
        (None, ExprKind::Arrow(from, to)) => Some((arg.value.at, &**from, &**to)),
        _ => None,
    });
    let pairs: Vec<_> = pairs.collect::<Option<_>>()?;
    let nested = pairs.into_iter().rev().fold(value.value.clone(), |value, (at, from, to)| {
        let depth = value.depth + 1;
        let args = [value, from.clone(), to.clone()].map(|value| Arg { name: None, value });
        Expr { kind: ExprKind::Call(name.into(), args.into()), at, depth }
    });
    Some(nested)
}

/// Evaluates `x.name(args)`, with the receiver as the first argument.
pub(super) fn method(b: &mut Builder<'_>, env: &mut Env, at: At, name: &str, args: &[Arg]) -> ExprValue {
    let is_rust = b.form != Form::Function && b.frames.is_empty() && !is_function(b, name);
    let is_rust = is_rust && (RUST.contains(&name) || hints::function(name).is_none());
    if is_rust && diag::did_you_mean(name, function_names(b)).is_empty() {
        let rust = capture::method_text(b, name, args);
        return b.error(at, diag::unknown_method_inline(name, rust));
    }
    if let [Arg { value: Expr { kind: ExprKind::Name(receiver), at, .. }, .. }, _, ..] = args
        && is_function(b, name)
        && hints::later(name).is_none()
        && expr::is_unknown(b, env, receiver)
    {
        return b.error_here(*at, diag::no_prefix(receiver, name));
    }
    call(b, env, at, name, args)
}

/// Returns true if a function of the user has this name.
pub(super) fn is_users(b: &Builder<'_>, name: &str) -> bool {
    b.block.iter().any(|function| function.name.text == name)
}

/// Returns true if a function has this name.
pub(super) fn is_function(b: &Builder<'_>, name: &str) -> bool {
    function_names(b).any(|function| function == name)
}

/// Returns every name that can be called here.
fn function_names<'b>(b: &'b Builder<'_>) -> impl Iterator<Item = &'b str> {
    let block = b.block.iter().map(|function| function.name.text.as_str());
    let table = Op::ALL.iter().map(|op| op.info().name).filter(|name| !name.is_empty());
    let library = library::functions().iter().map(|function| function.name.text.as_str());
    let later = hints::LATER.iter().flat_map(|(names, _)| names.iter().copied());
    block.chain(table).chain(library).chain(reduce::NAMES).chain(later)
}

/// Returns true if the language itself has a function of this name.
fn is_own(name: &str) -> bool {
    table_op(name).is_some() || library::forms(name).next().is_some() || reduce::NAMES.contains(&name)
}

/// Returns the operation of this name. Operations without a name come from operators or from the compiler.
fn table_op(name: &str) -> Option<Op> {
    Op::ALL.iter().copied().find(|op| !name.is_empty() && op.info().name == name)
}

/// Evaluates a call of an operation of the op table.
fn operation(b: &mut Builder<'_>, env: &mut Env, at: At, op: Op, args: &[Arg]) -> ExprValue {
    let info = op.info();
    if let Some(name) = args.iter().find_map(|arg| arg.name.as_ref()) {
        return b.error(name.at, hints::named_argument(info.name, &name.text));
    }
    if args.len() != info.arity {
        return b.error(at, diag::arity(info.name, diag::count(info.arity, "value"), diag::were(args.len())));
    }
    let mut values: Vec<(ExprValue, Snippet<'_>)> =
        args.iter().map(|arg| (single(b, env, &arg.value), Snippet::of(&arg.value))).collect();
    if info.typing != Typing::Select {
        return expr::apply(b, at, op, info.name, values);
    }
    let (test, condition) = values.remove(0);
    let (other, right) = values.remove(1);
    let (then, left) = values.remove(0);
    match (dtype_of(b, &test), test) {
        (Some(DType::Bool), ExprValue::Node(id)) => expr::pick(b, at, id, [then, other], [left, right]),
        (Some(dtype), _) => b.error(condition.at, diag::wants_mask(dtype)),
        (None, _) => ExprValue::Unknown,
    }
}

/// Expands the body of a function in place of its call.
fn expand<'a>(
    b: &mut Builder<'a>,
    env: &mut Env,
    at: At,
    (callee, origin): (&'a Function, Origin),
    args: &[Arg],
) -> ExprValue {
    let name = callee.name.text.as_str();
    b.calls += 1;
    if b.calls > CALLS_MAX || b.is_full() {
        return b.error_always(at, diag::too_many_terms());
    }
    let is_callee = |frame: &Frame<'_>| frame.origin == origin && frame.function.name.text == name;
    if b.frames.iter().any(is_callee) || origin == Origin::Block && b.root == Some(name) {
        return b
            .error_always(at, if is_own(name) { diag::hides_function(name) } else { diag::recursion(name) });
    }
    if callee.params.iter().any(Param::is_in_place) {
        return b.error(at, diag::not_callable_in_place(name));
    }
    if b.form == Form::AnyShape && callee.params.iter().any(|param| matches!(param.kind, ParamKind::Dim)) {
        return b.error(at, diag::inline_needs_dims(name));
    }
    if callee.broken == Broken::Head {
        return ExprValue::Unknown;
    }
    let Some(mut inner) = arguments(b, env, at, callee, origin, args) else { return ExprValue::Unknown };
    if callee.broken != Broken::Nothing {
        return ExprValue::Unknown;
    }
    let (axes, nodes) = (b.axes_in_use(), b.graph.nodes.len());
    let whole = origin == Origin::Std && !b.in_std() && b.graph.math == Math::Strict;
    let rounds = if whole { in_singles(b, &mut inner) } else { None };
    if callee.types().flat_map(|ty| &ty.dims).any(|dim| inner.dim(&dim.name.text).is_none()) {
        rename::declare(b, &mut inner, &callee.body, &[]);
    }
    b.frames.push(Frame::new(callee, origin, at));
    let value = expr::body(b, &mut inner, &callee.body);
    let value = match (&callee.results, value) {
        // The mistake is already reported at the function itself.
        (_, None) => ExprValue::Unknown,
        (None, Some(value)) => value,
        (Some(results), Some(value)) => declared(b, &inner, callee, results, value),
    };
    b.frames.pop();
    let value = rename::given(b, env, axes, value);
    rename::give_back(b, (axes, nodes), &value);
    match (value, rounds) {
        (ExprValue::Node(id), Some(dtype)) if b.graph.node(id).dtype == DType::F32 => {
            value::known(value::widened(b, id, dtype))
        }
        (value, _) => value,
    }
}

/// Widens the 16-bit float arguments of a library function to `f32`, so that its body rounds only once. Under
/// strict maths each operation rounds, and a library function counts as one operation. Returns the dtype to
/// round the result to, the common dtype of the float arguments, unless that dtype is wide.
fn in_singles(b: &mut Builder<'_>, inner: &mut Env) -> Option<DType> {
    let mut meets = None;
    for var in &mut inner.vars {
        let ExprValue::Node(id) = var.value else { continue };
        let dtype = b.graph.node(id).dtype;
        if dtype.is_float() {
            meets = Some(meets.map_or(dtype, |other| value::common(dtype, other).unwrap_or(dtype)));
        }
        if dtype.is_float() && dtype.is_narrow() {
            var.value = value::known(value::widened(b, id, DType::F32));
        }
    }
    meets.filter(|dtype| dtype.is_narrow())
}

/// Checks the results of a callee against its declaration.
fn declared(
    b: &mut Builder<'_>,
    inner: &Env,
    callee: &Function,
    results: &[TensorType],
    value: ExprValue,
) -> ExprValue {
    let at = callee.body.tail.as_ref().map_or(callee.name.at, |tail| tail.at);
    let Some(parts) = function::parts(b, callee, results, value, at) else { return ExprValue::Unknown };
    let mut values = Vec::new();
    for (part, result) in parts.into_iter().zip(results) {
        let unmade = result.dims.iter().find(|dim| inner.axis(&dim.name.text).is_none());
        if let Some(dim) = unmade {
            // The check of a typed function itself has reported it.
            return match callee.is_typed() {
                true => ExprValue::Unknown,
                false => b.error(at, diag::callee_dim(&callee.name.text, &dim.name.text)),
            };
        }
        let Some(order) = dims::lookup(inner, result) else { return ExprValue::Unknown };
        let Some(dtype) = inner.dtype(&result.dtype.text) else { return ExprValue::Unknown };
        values.push(value::known(fit::fit_result(b, part, (dtype, &result.dtype.text), &order, at)));
    }
    match callee.returns {
        Returns::One => values.pop().unwrap_or(ExprValue::Unknown),
        Returns::Tuple => ExprValue::Tuple(values),
    }
}

/// Builds the environment of a callee, in which every parameter has its argument or its default.
fn arguments<'a>(
    b: &mut Builder<'a>,
    env: &mut Env,
    at: At,
    callee: &'a Function,
    origin: Origin,
    args: &[Arg],
) -> Option<Env> {
    let name = &callee.name.text;
    let mut given: Vec<Option<&Expr>> = vec![None; callee.params.len()];
    for (i, arg) in args.iter().enumerate() {
        let slot = match &arg.name {
            Some(label) => match callee.params.iter().position(|param| param.name.text == label.text) {
                Some(slot) => slot,
                None => {
                    b.error(
                        label.at,
                        match origin {
                            Origin::Std => unknown_argument(name, &label.text, &[callee]),
                            Origin::Block => unknown_parameter(name, &label.text, &[callee]),
                        },
                    );
                    return None;
                }
            },
            None if args[..i].iter().any(|before| before.name.is_some()) => {
                b.error(arg.value.at, diag::positional_after_named());
                return None;
            }
            None if i >= given.len() => {
                b.error(at, diag::arity(name, takes(callee), diag::were(args.len())));
                return None;
            }
            None => i,
        };
        if given[slot].replace(&arg.value).is_some() {
            b.error(arg.value.at, diag::argument_twice(&callee.params[slot].name.text));
            return None;
        }
    }
    let lacking = |(param, given): (&Param, &Option<&Expr>)| given.is_none() && param.default.is_none();
    if let Some(missing) = callee.params.iter().zip(&given).position(lacking) {
        let param = &callee.params[missing];
        let message = if matches!(param.kind, ParamKind::Dim) {
            diag::wants_dim(name, &param.name.text, last_dim(b, env, args))
        } else if args.iter().any(|arg| arg.name.is_some()) {
            diag::missing_argument(name, &param.name.text)
        } else {
            diag::arity(name, takes(callee), diag::were(args.len()))
        };
        b.error(at, message);
        return None;
    }
    if origin == Origin::Std
        && let Some((param, dims)) = several_for_one(b, env, callee, &given)
    {
        b.error(dims.at, diag::wants_value(name, &param.name.text));
        return None;
    }
    bind(b, env, (callee, origin, at), &given)
}

/// Returns the last dim of the first argument, if it is a value with a name, else `N`.
fn last_dim(b: &Builder<'_>, env: &Env, args: &[Arg]) -> String {
    let value = args.first().and_then(|arg| match &arg.value.kind {
        ExprKind::Name(name) => env.var(name),
        _ => None,
    });
    let order = value.map(|var| order::of_all(b, [&var.value].into_iter())).unwrap_or_default();
    order.last().map_or_else(|| String::from("N"), |&axis| b.graph.axis(axis).name.to_string())
}

fn bind<'a>(
    b: &mut Builder<'a>,
    env: &mut Env,
    (callee, origin, at): (&'a Function, Origin, At),
    given: &[Option<&Expr>],
) -> Option<Env> {
    let params = || callee.params.iter().zip(given);
    let is_dim = |param: &Param| matches!(param.kind, ParamKind::Dim);
    let mut value = |(param, given): (&Param, &Option<&Expr>)| {
        given.filter(|_| !is_dim(param)).map(|given| expr::expr(b, env, given))
    };
    let mut values: Vec<Option<ExprValue>> = params().map(&mut value).collect();
    let mut inner = Env { types: generics(b, callee, &values), ..Env::default() };
    // Dims come first, because the types of other parameters name them.
    for (i, (param, given)) in params().enumerate().filter(|(_, (param, _))| is_dim(param)) {
        let axes = match given {
            Some(given) => {
                let order = order::of_all(b, values[..i].iter().flatten());
                dim_argument(b, env, callee, (param, given), &order)?
            }
            None => order::of_all(b, values[..i].iter().flatten()),
        };
        inner.dims.push((param.name.text.clone(), axes));
    }
    if origin == Origin::Std {
        own_dims(b, &inner, callee, given)?;
    }
    let named: AxisSet = inner.dims.iter().flat_map(|(_, axes)| axes).copied().collect();
    for value in values.iter_mut().flatten() {
        if let ExprValue::Node(id) = value {
            *id = axes::joined(b, *id, named);
        }
    }
    dims::bind_callee(b, env, &mut inner, callee, at)?;
    let mut whole = Some(());
    for ((param, given), value) in params().zip(values) {
        let value = match (value, given, &param.default) {
            _ if is_dim(param) => continue,
            (Some(value), Some(given), _) => argument(b, &inner, callee, param, (value, given.at)),
            (_, _, Some(default)) => {
                // A default is evaluated as a part of the callee.
                b.frames.push(Frame::new(callee, origin, at));
                let value = expr::expr(b, &mut Env::default(), default);
                b.frames.pop();
                value
            }
            (_, _, None) => unreachable!("a parameter without an argument has a default"),
        };
        if matches!(value, ExprValue::Unknown) {
            whole = None;
        }
        inner.bind(&param.name.text, value, VarKind::Param);
    }
    whole.map(|()| inner)
}

/// Reports a dim that is passed for two dim parameters of a library function.
fn own_dims(b: &mut Builder<'_>, inner: &Env, callee: &Function, given: &[Option<&Expr>]) -> Option<()> {
    let mut known = AxisSet::EMPTY;
    for (param, given) in callee.params.iter().zip(given) {
        let (ParamKind::Dim, Some(given)) = (&param.kind, given) else { continue };
        let axes: AxisSet = inner.dim(&param.name.text).into_iter().flatten().copied().collect();
        if let Some(twice) = axes.intersection(known).iter().next() {
            let dim = b.graph.axis(twice).name.clone();
            b.error(given.at, diag::dim_twice(&callee.name.text, dim));
            return None;
        }
        known = known.union(axes);
    }
    Some(())
}

/// Returns the dtype of each generic of a callee. The first typed argument of a suitable dtype decides, else
/// `f32`.
fn generics(b: &Builder<'_>, callee: &Function, values: &[Option<ExprValue>]) -> Vec<(String, DType)> {
    let stands = |generic: &Name| {
        let is_of = |param: &Param| match &param.kind {
            ParamKind::Scalar(ty) => ty.text == generic.text,
            ParamKind::Tensor(ty) | ParamKind::InPlace(ty) => ty.dtype.text == generic.text,
            ParamKind::Untyped | ParamKind::Dim | ParamKind::Mistaken => false,
        };
        let given = callee.params.iter().zip(values).filter(|(param, _)| is_of(param));
        let nodes =
            given.filter_map(|(_, value)| value.as_ref().filter(|value| matches!(value, ExprValue::Node(_))));
        let dtype = nodes.filter_map(|value| dtype_of(b, value)).find(|dtype| DType::GENERIC.contains(dtype));
        (generic.text.clone(), dtype.unwrap_or(DType::F32))
    };
    callee.generics.iter().map(stands).collect()
}

/// Returns the axes passed for a dim parameter: one axis for a typed function, any number for a template.
fn dim_argument(
    b: &mut Builder<'_>,
    env: &Env,
    callee: &Function,
    (param, given): (&Param, &Expr),
    order: &[AxisId],
) -> Option<Vec<AxisId>> {
    let function = &callee.name.text;
    let like = by_position(given, order.len()).and_then(|i| order.get(i)).or(order.last());
    let like = like.map_or("N", |&axis| &b.graph.axis(axis).name);
    let otherwise = diag::wants_dim(function, &param.name.text, like);
    if let Some(label) = meant(b, env, callee, param, given) {
        let is_one_token = matches!(given.kind, ExprKind::Int(..) | ExprKind::Float(..) | ExprKind::Name(_));
        let number = if is_one_token { b.places.text(given.at).to_owned() } else { "…".into() };
        b.error(given.at, diag::number_for_dim(function, &param.name.text, label, number));
        return None;
    }
    if let ExprKind::Name(name) = &given.kind
        && let Some(how) =
            hints::more(function).filter(|_| env.var(name).is_some() && env.dim(name).is_none())
    {
        b.error(given.at, diag::no_form_otherwise(function, forms_text(function, &[callee]), how));
        return None;
    }
    if callee.is_typed() {
        return dims::one(b, env, given, function, &otherwise).map(|axis| vec![axis]);
    }
    dims::argument(b, env, given, function, &otherwise)
}

/// Checks an argument against the type of its parameter.
fn argument(
    b: &mut Builder<'_>,
    inner: &Env,
    callee: &Function,
    param: &Param,
    (value, at): (ExprValue, At),
) -> ExprValue {
    let (dtype, wants) = match &param.kind {
        ParamKind::Untyped | ParamKind::Dim | ParamKind::Mistaken => return value,
        ParamKind::Scalar(dtype) => (dtype, AxisSet::EMPTY),
        ParamKind::Tensor(ty) | ParamKind::InPlace(ty) => {
            let Some(order) = dims::lookup(inner, ty) else { return ExprValue::Unknown };
            (&ty.dtype, order.into_iter().collect())
        }
    };
    let (function, name) = (&callee.name.text, &param.name.text);
    let value = value::one(b, at, value);
    let (Some(dtype), Some(is)) = (inner.dtype(&dtype.text), dtype_of(b, &value)) else {
        return ExprValue::Unknown;
    };
    if matches!(value, ExprValue::Weak(_)) && !weak::fits(b, (at, at), function, &value, dtype) {
        return ExprValue::Unknown;
    }
    let Some(id) = typed(b, &value, dtype) else { return ExprValue::Unknown };
    let id = axes::joined(b, id, wants);
    if b.graph.node(id).dtype != dtype {
        return b.error(at, diag::argument_dtype(function, name, dtype, is));
    }
    let has = b.graph.node(id).axes;
    if has != wants {
        let (wants, has) = (b.axes_text(wants), b.axes_text(has));
        return b.error(at, diag::argument_dims(function, name, wants, has));
    }
    ExprValue::Node(id)
}
