//! The executor: runs a plan on the device of its arguments.
//!
//! Invariant: at a launch, the memory it writes belongs to this call alone, and the memory it reads lives
//! until the launch returns. No argument is written before all arguments are checked.

use fusion_compiler::ir::dtype::DType;
use fusion_compiler::ir::graph::Access;
use fusion_compiler::ir::plan::{
    BufferArg, Dest, Limits, Output, Param, ParamKind, Program, Slot, Step, Temporary, Variant,
};
use smallvec::SmallVec;

pub use crate::arg::Arg;
use crate::bind::{Bound, argument, bind, tensor};
use crate::device::{Call, Device, Memory, Producer, Region};
use crate::error::{Error, Result};
use crate::kernel::{Code, Launch, Plan, StaticPlan};
use crate::report::not_compiled;
use crate::tensor::{Element, Float, RawTensor, Tensor};

#[cfg(test)]
mod tests;

/// Runs a plan and returns its results, in order.
///
/// # Errors
/// Errors in the arguments, before any launch; then any failure of the device.
pub fn run<const N: usize>(plan: &Plan, args: &mut [Arg<'_>]) -> Result<[RawTensor; N]> {
    let allocated = execute(plan, args, None, Device::best)?;
    let results = allocated.iter().flatten().count();
    if results != N {
        return Err(argument(plan, format!("{N} results asked for, {results} made")));
    }
    let mut results = allocated.into_iter().flatten();
    Ok(std::array::from_fn(|_| results.next().unwrap_or_else(|| unreachable!("there are N results"))))
}

/// Runs a plan and returns its results, in order. Without a tensor argument the call runs on this device.
///
/// # Errors
/// The errors of `run`.
#[cfg(feature = "graph")]
pub(crate) fn run_on(plan: &Plan, args: &mut [Arg<'_>], device: &Device) -> Result<Vec<RawTensor>> {
    let allocated = execute(plan, args, None, || device.clone())?;
    Ok(allocated.into_iter().flatten().collect())
}

/// Stands for an expression with a compile error, so that the code around it still has its type.
///
/// # Errors
/// Never: the program does not compile, so nothing calls this function.
pub fn mistaken<T: Element>() -> Result<Tensor<T>> {
    unreachable!("a program with a mistake does not compile")
}

/// Runs a plan with one result of a known type.
///
/// # Errors
/// The errors of `run`.
pub fn run_one<T: Element>(plan: &Plan, args: &mut [Arg<'_>]) -> Result<Tensor<T>> {
    let [result] = run(plan, args)?;
    Tensor::from_raw(result)
}

/// Returns the plan of a generic function for this element type.
pub fn instance<T: Float>(plans: [&'static StaticPlan; DType::GENERIC.len()]) -> &'static Plan {
    let of = DType::GENERIC.iter().zip(plans).find(|(dtype, _)| **dtype == T::DTYPE);
    of.map_or_else(|| unreachable!("there is one for each `Float`"), |(_, plan)| plan)
}

/// Runs a plan and writes its results into the tensors of `outs`. A repeated call allocates nothing.
///
/// A tensor that shares its memory gets memory of its own first. The tensors it shared with keep their
/// elements.
///
/// # Errors
/// The errors of `run`; `Error::OutShape` if a tensor has another shape than its result.
pub fn run_into(plan: &Plan, args: &mut [Arg<'_>], outs: &mut [Arg<'_>]) -> Result<()> {
    execute(plan, args, Some(outs), Device::best).map(|_| ())
}

/// Tensors that a call allocates, by output; `None` for a tensor of the caller.
type Allocated = SmallVec<[Option<RawTensor>; 2]>;

/// Runs a plan. Returns the tensors that it allocated, except those that replace an argument. A call without
/// tensors runs on the device of `otherwise`.
fn execute(
    plan: &Plan,
    args: &mut [Arg<'_>],
    outs: Option<&mut [Arg<'_>]>,
    otherwise: impl FnOnce() -> Device,
) -> Result<Allocated> {
    let outs = outs.unwrap_or_default();
    let bound = bind(plan, args, outs, otherwise)?;
    let (target, limits) = (bound.device.0.target(), bound.device.limits());
    let program = plan.program(target);
    let program = program.ok_or_else(|| not_compiled(&plan.name, &plan.lacks, &bound.device))?;
    let mut allocated = make_outputs(plan, &bound, outs)?;
    own_in_place(plan, args)?;
    check_alias(plan, args, outs)?;
    run_steps(program, &CallState { plan, bound: &bound, limits, args, outs, allocated: &allocated })?;
    for (output, allocated) in plan.outputs.iter().zip(&mut allocated) {
        if let Dest::Replaces(param) = output.dest
            && let Some(Arg::TensorMut(old)) = args.get_mut(usize::from(param))
            && let Some(new) = allocated.take()
        {
            old.replace(new)?;
        }
    }
    Ok(allocated)
}

/// Allocates the outputs of a call, or checks the caller's tensors for them and makes their memory unique.
fn make_outputs(plan: &Plan, bound: &Bound, outs: &mut [Arg<'_>]) -> Result<Allocated> {
    let given = outs.len();
    let returned = |output: &&Output| output.dest == Dest::Returned;
    if given > 0 && given != plan.outputs.iter().filter(returned).count() {
        return Err(argument(plan, format!("{given} tensors given for its results")));
    }
    let mut outs = outs.iter_mut().enumerate();
    let mut allocated = Allocated::new();
    // All tensors are checked before the first one changes.
    let mut ready: SmallVec<[&mut RawTensor; 2]> = SmallVec::new();
    for output in plan.outputs.iter() {
        let out = if output.dest == Dest::Returned { outs.next() } else { None };
        let Some((i, out)) = out else {
            let shape = bound.output_shape(plan, output)?;
            allocated.push(Some(RawTensor::allocate(&bound.device, output.dtype, shape)?));
            continue;
        };
        let Arg::TensorMut(out) = out else {
            return Err(argument(plan, String::from("a result is not a tensor")));
        };
        check_out(plan, bound, output, (&|| out_name(i, given), out))?;
        ready.push(out);
        allocated.push(None);
    }
    ready.into_iter().try_for_each(RawTensor::make_unique_uninit)?;
    Ok(allocated)
}

/// Returns the name of output `i` among the `given` parameters of `into`.
fn out_name(i: usize, given: usize) -> String {
    if given == 1 { String::from("out") } else { format!("out_{i}") }
}

fn check_out(
    plan: &Plan,
    bound: &Bound,
    output: &Output,
    (name, out): (&dyn Fn() -> String, &RawTensor),
) -> Result<()> {
    let function = || plan.name.to_string();
    if out.dtype() != output.dtype {
        let what = format!("the result `{}` of `{}`", name(), plan.name);
        return Err(Error::Dtype { what, expected: output.dtype, got: out.dtype() });
    }
    if !bound.is_output_shape(plan, output, out.shape())? {
        let (expected, got) = (Box::new(bound.output_shape(plan, output)?), Box::new(out.shape().clone()));
        return Err(Error::OutShape { function: function(), result: name(), expected, got });
    }
    if *out.device() != bound.device {
        let (first_device, second_device) = (bound.device.to_string(), out.device().to_string());
        let is_tensor =
            |kind: &ParamKind| matches!(kind, ParamKind::Tensor { .. } | ParamKind::AnyShape { .. });
        let first = plan.params.iter().find(|param| is_tensor(&param.kind));
        // Without a tensor argument, the first result determines the device of the call.
        let first = first.map_or_else(|| String::from("out_0"), |param| param.name.to_string());
        let (function, second) = (function(), name());
        return Err(Error::DeviceMismatch { function, first, first_device, second, second_device });
    }
    Ok(())
}

/// Gives every argument that is updated in place memory of its own.
fn own_in_place(plan: &Plan, args: &mut [Arg<'_>]) -> Result<()> {
    for (i, (param, arg)) in plan.params.iter().zip(args).enumerate() {
        let Arg::TensorMut(tensor) = arg else { continue };
        // The old content of a replaced tensor is only read.
        if is_replaced(plan, i) {
            continue;
        }
        match param_access(param) {
            Access::Read => {}
            Access::Write => tensor.make_unique_uninit()?,
            Access::ReadWrite => tensor.make_unique()?,
        }
    }
    Ok(())
}

fn is_replaced(plan: &Plan, param: usize) -> bool {
    plan.outputs.iter().any(|output| output.dest == Dest::Replaces(param as u16))
}

fn param_access(param: &Param) -> Access {
    match &param.kind {
        ParamKind::Tensor { access, .. } | ParamKind::AnyShape { access } => *access,
        ParamKind::Scalar | ParamKind::Dim(_) => Access::Read,
    }
}

/// State of a call: the tensors that the slots of a launch refer to, except temporaries.
struct CallState<'a> {
    plan: &'a Plan,
    bound: &'a Bound,
    limits: Limits,
    args: &'a [Arg<'a>],
    outs: &'a [Arg<'a>],
    allocated: &'a [Option<RawTensor>],
}

/// A temporary with memory.
struct Temp {
    /// Number of the temporary in the program. The list contains live temporaries only, since a program has
    /// many more.
    number: u16,
    memory: Memory,
    /// Number of elements.
    len: usize,
}

type Temps = SmallVec<[Temp; 4]>;

/// Runs the steps in order.
///
/// Before the first step that changes an argument, all later steps get their temporaries too. If that
/// allocation fails, no argument has changed, and the caller may repeat the call.
fn run_steps(program: &Program<Code>, state: &CallState<'_>) -> Result<()> {
    let (mut temps, first) = (Temps::new(), first_update(program));
    for (number, step) in program.steps.iter().enumerate() {
        let at_once = if first == Some(number) { program.steps.len() } else { number + 1 };
        for later in &program.steps[number..at_once] {
            for launch in chosen(later, state)?.launches.iter() {
                allocate_all(launch, state, &program.temporaries, &mut temps)?;
            }
        }
        let launches = &chosen(step, state)?.launches;
        for launch in launches.iter().filter(|launch| !launch.of_blocks) {
            run_launch((launch, launches), state, &temps)?;
        }
        temps.retain(|temp| usize::from(program.temporaries[usize::from(temp.number)].last) != number);
    }
    Ok(())
}

/// Returns the first step that may change an argument, in a program of several steps.
fn first_update(program: &Program<Code>) -> Option<usize> {
    let changes = |buffer: &BufferArg| buffer.access != Access::Read && matches!(buffer.slot, Slot::Param(_));
    let updates = |step: &Step<Code>| {
        let mut launches = step.variants.iter().flat_map(|variant| variant.launches.iter());
        launches.any(|launch| launch.buffers.iter().any(changes))
    };
    if program.steps.len() > 1 { program.steps.iter().position(updates) } else { None }
}

fn chosen<'p>(step: &'p Step<Code>, state: &CallState<'_>) -> Result<&'p Variant<Code>> {
    let chosen = step.chosen(&state.bound.symbols, &state.limits);
    chosen.ok_or_else(|| argument(state.plan, String::from("no variant of a step fits its extents")))
}

/// Runs one of the launches of a variant.
fn run_launch((launch, all): (&Launch, &[Launch]), state: &CallState<'_>, temps: &Temps) -> Result<()> {
    if is_empty(launch, state)? {
        return Ok(());
    }
    let mut buffers: SmallVec<[Region<'_>; 8]> = SmallVec::new();
    for buffer in launch.buffers.iter() {
        buffers.push(state.region(buffer.slot, temps)?);
    }
    // A space with many rows may still have no elements.
    let mut written = launch.buffers.iter().zip(&buffers).filter(|(arg, _)| arg.access != Access::Read);
    if written.all(|(_, region)| region.len == 0) {
        return Ok(());
    }
    let mut producers: SmallVec<[Producer<'_>; 2]> = SmallVec::new();
    for (number, producer) in all.iter().enumerate() {
        if launch.contraction.as_ref().is_some_and(|of| of.drives(number)) {
            let buffers = producer.buffers.iter().map(|buffer| state.region(buffer.slot, temps));
            producers.push(Producer { number, launch: producer, buffers: buffers.collect::<Result<_>>()? });
        }
    }
    let (symbols, scalars) = (&state.bound.symbols, &state.bound.scalars);
    state.bound.device.0.launch(launch, &Call { symbols, scalars, buffers: &buffers, producers: &producers })
}

/// Returns true if the space of a launch is empty.
fn is_empty(launch: &Launch, state: &CallState<'_>) -> Result<bool> {
    let elements = launch.space.elements(&state.bound.symbols).filter(|&elements| elements >= 0);
    Ok(elements.ok_or_else(|| state.no_extent("the space of a kernel"))? == 0)
}

/// Allocates the temporaries of a launch that have no memory yet, unless the launch does nothing. A launch that the driver
/// of another one runs may have an empty space.
fn allocate_all(
    launch: &Launch,
    state: &CallState<'_>,
    temporaries: &[Temporary],
    temps: &mut Temps,
) -> Result<()> {
    if !launch.of_blocks && is_empty(launch, state)? {
        return Ok(());
    }
    launch.buffers.iter().try_for_each(|buffer| allocate(buffer.slot, state, temporaries, temps))
}

/// Allocates a temporary, unless it has memory.
fn allocate(slot: Slot, state: &CallState<'_>, temporaries: &[Temporary], temps: &mut Temps) -> Result<()> {
    let Slot::Temp(number) = slot else { return Ok(()) };
    let Some(temp) = temporaries.get(usize::from(number)) else { return Ok(()) };
    if find(temps, number).is_some() {
        return Ok(());
    }
    let len = temp.len.eval(&state.bound.symbols).and_then(|len| usize::try_from(len).ok());
    let bytes = len.and_then(|len| Some((len, len.checked_mul(temp.dtype.size())?)));
    let (len, bytes) = bytes.ok_or_else(|| state.no_extent("a temporary"))?;
    temps.push(Temp { number, memory: state.bound.device.0.allocate(bytes)?, len });
    Ok(())
}

fn find(temps: &Temps, number: u16) -> Option<&Temp> {
    temps.iter().find(|temp| temp.number == number)
}

impl<'a> CallState<'a> {
    fn region<'r>(&'r self, slot: Slot, temps: &'r Temps) -> Result<Region<'r>>
    where
        'a: 'r,
    {
        let region = match slot {
            Slot::Param(i) => self.args.get(usize::from(i)).and_then(tensor).map(RawTensor::region),
            Slot::Output(i) => self.output(usize::from(i)).map(RawTensor::region),
            Slot::Temp(i) => {
                find(temps, i).map(|Temp { memory, len, .. }| Region { memory, offset: 0, len: *len })
            }
        };
        region.ok_or_else(|| argument(self.plan, format!("{slot:?} is not there when its kernel runs")))
    }

    fn output(&self, i: usize) -> Option<&RawTensor> {
        let allocated = self.allocated.get(i)?.as_ref();
        let returned = |output: &&Output| output.dest == Dest::Returned;
        let number = || self.plan.outputs[..i].iter().filter(returned).count();
        allocated.or_else(|| tensor(self.outs.get(number())?))
    }

    fn no_extent(&self, what: &str) -> Error {
        Error::InvalidExtent { function: self.plan.name.to_string(), dim: what.to_string() }
    }
}

/// Checks that no tensor a call writes shares memory with another tensor of the call.
///
/// Otherwise the order of threads would decide if an element is read before or after its update.
fn check_alias(plan: &Plan, args: &[Arg<'_>], outs: &[Arg<'_>]) -> Result<()> {
    let is_written = |(i, arg): (usize, &Arg<'_>)| match arg {
        Arg::TensorMut(tensor) if is_replaced(plan, i) => tensor.is_replaced_by_copy(),
        Arg::TensorMut(_) => plan.params.get(i).is_none_or(|param| param_access(param) != Access::Read),
        Arg::Tensor(_) | Arg::Scalar(..) | Arg::Dim(_) => false,
    };
    let tensors = || args.iter().chain(outs).enumerate().filter_map(|(i, arg)| Some((i, arg, tensor(arg)?)));
    for (i, _, written) in tensors().filter(|&(i, arg, _)| is_written((i, arg))) {
        for (j, _, other) in tensors().filter(|&(j, ..)| j != i) {
            if written.overlaps(other) {
                let name = |i: usize| match plan.params.get(i) {
                    Some(param) => param.name.to_string(),
                    None => out_name(i - args.len(), outs.len()),
                };
                return Err(Error::Alias {
                    function: plan.name.to_string(),
                    output: name(i),
                    input: name(j),
                });
            }
        }
    }
    Ok(())
}
