//! Binds the arguments of a call: extents to symbols, scalars to parameters, tensors to one device.
//!
//! Invariant: the first parameter with a dim binds its extent. Every later parameter is checked against it.

use fusion_compiler::ir::graph::Access;
use fusion_compiler::ir::plan::{Dim, Output, Param, ParamKind};
use smallvec::{SmallVec, smallvec};

use crate::arg::Arg;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::extents::{self, extent_of};
use crate::kernel::{PARAMS, Plan, ScalarValue};
use crate::shape::Shape;
use crate::tensor::RawTensor;

/// Values that the arguments of a call bind.
pub(crate) struct Bound {
    /// Extents by symbol.
    pub(crate) symbols: SmallVec<[i64; 8]>,
    /// Scalars by parameter.
    pub(crate) scalars: SmallVec<[Option<ScalarValue>; PARAMS]>,
    /// Device of the call.
    pub(crate) device: Device,
    /// Shape of all `ParamKind::AnyShape` parameters.
    any_shape: Option<Shape>,
}

/// Binding of a symbol: its extent, and the parameter that gave it.
type Binding = Option<(i64, usize)>;

/// Binds all arguments of a call. `outs` are the tensors for its results, if the caller gives any. A call
/// without tensors runs on the device of `otherwise`.
///
/// # Errors
/// The first disagreement between arguments.
pub(crate) fn bind(
    plan: &Plan,
    args: &[Arg<'_>],
    outs: &[Arg<'_>],
    otherwise: impl FnOnce() -> Device,
) -> Result<Bound> {
    if args.len() != plan.params.len() {
        return Err(argument(plan, format!("{} arguments for {} parameters", args.len(), plan.params.len())));
    }
    let mut bindings: SmallVec<[Binding; 8]> = smallvec![None; plan.symbols.len()];
    let mut scalars = smallvec![None; args.len()];
    // Index of the first tensor argument, and of the first with any shape. Later arguments are checked
    // against these.
    let (mut first, mut any) = (None, None);
    for (i, (param, arg)) in plan.params.iter().zip(args).enumerate() {
        match (&param.kind, arg) {
            (ParamKind::Scalar, Arg::Scalar(dtype, value)) => {
                scalars[i] = Some(*value);
                check_dtype(plan, param, *dtype)?;
            }
            (ParamKind::Dim(symbol), Arg::Dim(extent)) => {
                bind_symbol(plan, &mut bindings, usize::from(*symbol), *extent, i)?;
            }
            (ParamKind::Tensor { access, dims }, arg) => {
                let tensor = tensor_of(plan, param, *access, arg)?;
                check_device(plan, args, &mut first, i, tensor)?;
                bind_dims(plan, &mut bindings, i, dims, tensor)?;
            }
            (ParamKind::AnyShape { access }, arg) => {
                let tensor = tensor_of(plan, param, *access, arg)?;
                check_device(plan, args, &mut first, i, tensor)?;
                check_same_shape(plan, args, &mut any, i, tensor)?;
                bind_symbol(plan, &mut bindings, 0, tensor.len(), i)?;
            }
            (ParamKind::Scalar | ParamKind::Dim(_), _) => return Err(wrong_kind(plan, param)),
        }
    }
    let mut symbols = SmallVec::new();
    for binding in &bindings {
        let unbound = || argument(plan, String::from("an extent follows from no argument"));
        symbols.push(binding.ok_or_else(unbound)?.0);
    }
    // A call without tensor arguments runs on the device of its results.
    let placed = first.and_then(|i: usize| tensor(&args[i])).or_else(|| outs.iter().find_map(tensor));
    let bound = Bound {
        symbols,
        scalars,
        device: placed.map_or_else(otherwise, |tensor| tensor.device().clone()),
        any_shape: any.and_then(|i: usize| tensor(&args[i])).map(|tensor| tensor.shape().clone()),
    };
    extents::check(plan, &bound.symbols)?;
    check_computed(plan, args, &bound.symbols)?;
    check_nonempty(plan, args, &bound)?;
    Ok(bound)
}

/// Returns the tensor of an argument, if it is one.
pub(crate) fn tensor<'a>(arg: &'a Arg<'_>) -> Option<&'a RawTensor> {
    match arg {
        Arg::Tensor(tensor) => Some(tensor),
        Arg::TensorMut(tensor) => Some(tensor),
        Arg::Scalar(..) | Arg::Dim(_) => None,
    }
}

impl Bound {
    /// Returns the shape of an output.
    pub(crate) fn output_shape(&self, plan: &Plan, output: &Output) -> Result<Shape> {
        if output.any_shape {
            let none = || argument(plan, String::from("no argument gives the result its shape"));
            return self.any_shape.clone().ok_or_else(none);
        }
        output.dims.iter().map(|dim| extent_of(plan, dim, &self.symbols)).collect::<Result<_>>()
    }

    /// Returns true if `shape` is the shape of an output.
    pub(crate) fn is_output_shape(&self, plan: &Plan, output: &Output, shape: &Shape) -> Result<bool> {
        if output.any_shape {
            return Ok(self.output_shape(plan, output)? == *shape);
        }
        let mut is_same = output.dims.len() == shape.rank();
        for (dim, &extent) in output.dims.iter().zip(shape.dims()) {
            is_same &= extent_of(plan, dim, &self.symbols)? == extent;
        }
        Ok(is_same)
    }
}

/// Returns the tensor passed for a parameter, after a check of its access and type.
fn tensor_of<'a>(plan: &Plan, param: &Param, access: Access, arg: &'a Arg<'_>) -> Result<&'a RawTensor> {
    let mutable = matches!(arg, Arg::TensorMut(_));
    let tensor =
        tensor(arg).filter(|_| mutable || access == Access::Read).ok_or_else(|| wrong_kind(plan, param))?;
    check_dtype(plan, param, tensor.dtype())?;
    Ok(tensor)
}

fn check_dtype(plan: &Plan, param: &Param, got: fusion_compiler::ir::dtype::DType) -> Result<()> {
    if param.dtype == got {
        return Ok(());
    }
    let what = format!("`{}` of `{}`", param.name, plan.name);
    Err(Error::Dtype { what, expected: param.dtype, got })
}

fn check_device(
    plan: &Plan,
    args: &[Arg<'_>],
    first: &mut Option<usize>,
    i: usize,
    other: &RawTensor,
) -> Result<()> {
    let Some(one) = *first else {
        *first = Some(i);
        return Ok(());
    };
    match tensor(&args[one]) {
        Some(known) if known.device() != other.device() => Err(Error::DeviceMismatch {
            function: plan.name.to_string(),
            first: plan.params[one].name.to_string(),
            first_device: known.device().to_string(),
            second: plan.params[i].name.to_string(),
            second_device: other.device().to_string(),
        }),
        Some(_) | None => Ok(()),
    }
}

fn check_same_shape(
    plan: &Plan,
    args: &[Arg<'_>],
    any: &mut Option<usize>,
    i: usize,
    other: &RawTensor,
) -> Result<()> {
    let Some(one) = *any else {
        *any = Some(i);
        return Ok(());
    };
    match tensor(&args[one]) {
        Some(known) if known.shape() != other.shape() => Err(Error::ShapeMismatch {
            function: plan.name.to_string(),
            first: plan.params[one].name.to_string(),
            first_shape: Box::new(known.shape().clone()),
            second: plan.params[i].name.to_string(),
            second_shape: Box::new(other.shape().clone()),
        }),
        Some(_) | None => Ok(()),
    }
}

fn bind_dims(
    plan: &Plan,
    bindings: &mut [Binding],
    i: usize,
    dims: &[Dim],
    tensor: &RawTensor,
) -> Result<()> {
    if tensor.shape().rank() != dims.len() {
        return Err(Error::Rank {
            function: plan.name.to_string(),
            param: plan.params[i].name.to_string(),
            expected: dims.iter().map(|dim| dim.name.as_ref()).collect::<Vec<_>>().join(", "),
            got: tensor.shape().clone(),
        });
    }
    for (dim, &extent) in dims.iter().zip(tensor.shape().dims()) {
        if let Some(symbol) = dim.extent.as_sym().map(usize::from) {
            bind_symbol(plan, bindings, symbol, extent, i)?;
        }
    }
    Ok(())
}

fn bind_symbol(plan: &Plan, bindings: &mut [Binding], symbol: usize, extent: usize, i: usize) -> Result<()> {
    let name = || plan.symbols.get(symbol).map_or_else(String::new, |name| name.to_string());
    let invalid = |_| Error::InvalidExtent { function: plan.name.to_string(), dim: name() };
    let value = i64::try_from(extent).map_err(invalid)?;
    let unknown =
        || argument(plan, format!("`{}` has a dim that the plan does not know", plan.params[i].name));
    let binding = bindings.get_mut(symbol).ok_or_else(unknown)?;
    match *binding {
        None => *binding = Some((value, i)),
        Some((known, _)) if known == value => {}
        Some((known, owner)) => {
            return Err(Error::Extent {
                function: plan.name.to_string(),
                dim: name(),
                first: plan.params[owner].name.to_string(),
                first_extent: usize::try_from(known).unwrap_or_default(),
                second: plan.params[i].name.to_string(),
                second_extent: extent,
            });
        }
    }
    Ok(())
}

/// Checks the dims that bind no symbol: fixed dims, and dims computed from others.
fn check_computed(plan: &Plan, args: &[Arg<'_>], symbols: &[i64]) -> Result<()> {
    for (param, arg) in plan.params.iter().zip(args) {
        let (ParamKind::Tensor { dims, .. }, Some(tensor)) = (&param.kind, tensor(arg)) else { continue };
        for (dim, &got) in dims.iter().zip(tensor.shape().dims()) {
            if dim.extent.as_sym().is_some() {
                continue;
            }
            let expected = extent_of(plan, dim, symbols)?;
            if expected != got {
                let (function, dim) = (plan.name.to_string(), dim.name.to_string());
                return Err(Error::FixedExtent {
                    function,
                    dim,
                    param: param.name.to_string(),
                    expected,
                    got,
                });
            }
        }
    }
    Ok(())
}

/// Checks the dims that a `max` or `min` reduces. A call without result elements may reduce empty dims.
fn check_nonempty(plan: &Plan, args: &[Arg<'_>], bound: &Bound) -> Result<()> {
    for dim in plan.nonempty.iter() {
        if extent_of(plan, dim, &bound.symbols)? == 0 && has_elements(plan, args, bound)? {
            return Err(Error::Empty { function: plan.name.to_string(), dim: dim.name.to_string() });
        }
    }
    Ok(())
}

/// Returns true if a call writes any element.
fn has_elements(plan: &Plan, args: &[Arg<'_>], bound: &Bound) -> Result<bool> {
    for output in plan.outputs.iter() {
        if bound.output_shape(plan, output)?.count() != Some(0) {
            return Ok(true);
        }
    }
    Ok(args.iter().any(|arg| matches!(arg, Arg::TensorMut(tensor) if tensor.len() > 0)))
}

fn wrong_kind(plan: &Plan, param: &Param) -> Error {
    argument(plan, format!("the argument for `{}` is of another kind", param.name))
}

/// Returns an error that only a caller of the untyped interface can cause.
pub(crate) fn argument(plan: &Plan, what: String) -> Error {
    Error::Argument { function: plan.name.to_string(), what }
}
