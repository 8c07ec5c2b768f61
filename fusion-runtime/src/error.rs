//! Errors at run time. A message names the failure, its place, and a remedy.
//!
//! Invariant: every fallible call of the crate returns this type. No input makes a call panic instead.

use std::fmt;

use fusion_compiler::ir::dtype::DType;

use crate::shape::Shape;

/// The result of a fallible call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason for the failure of a call.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tensor argument has another rank than its parameter declares.
    #[error(
        "`{function}`: `{param}` has dims [{expected}], but its argument has shape {got}; reshape it, or change the signature"
    )]
    Rank {
        /// Name of the called function.
        function: String,
        /// Name of the parameter.
        param: String,
        /// Dims of the parameter as declared, joined by commas.
        expected: String,
        /// Shape of the argument.
        got: Shape,
    },
    /// Two arguments disagree about the extent of a dim.
    #[error(
        "`{function}`: dim `{dim}` is {first_extent} in `{first}` but {second_extent} in `{second}`; a dim has one extent per call"
    )]
    Extent {
        /// Name of the called function.
        function: String,
        /// Name of the dim.
        dim: String,
        /// The parameter that bound the dim.
        first: String,
        /// Extent of the dim in that parameter.
        first_extent: usize,
        /// The parameter that disagrees.
        second: String,
        /// Extent of the dim in the second parameter.
        second_extent: usize,
    },
    /// An argument does not have the extent that the signature fixes or computes.
    #[error("`{function}`: dim `{dim}` of `{param}` must be {expected}, but its argument has {got} there")]
    FixedExtent {
        /// Name of the called function.
        function: String,
        /// The dim, as written in the source.
        dim: String,
        /// Name of the parameter.
        param: String,
        /// Extent that the signature requires.
        expected: usize,
        /// Extent of the argument.
        got: usize,
    },
    /// An extent computed from the arguments is negative or overflows.
    #[error(
        "`{function}`: dim `{dim}` has no valid extent for these arguments; it must be ≥ 0 and fit in 63 bits"
    )]
    InvalidExtent {
        /// Name of the called function.
        function: String,
        /// The dim, as written in the source.
        dim: String,
    },
    /// A `max` or `min` reduces a dim of extent 0, and the result needs its value.
    #[error(
        "`{function}`: dim `{dim}` is 0, and its result needs the `max` or `min` along it, which no elements have; check the extent before the call"
    )]
    Empty {
        /// Name of the called function.
        function: String,
        /// Name of the dim.
        dim: String,
    },
    /// The extents of a `split` or `merge` do not multiply to the extent of the whole dim.
    #[error(
        "`{function}`: dim `{dim}` is {extent}, but it is [{parts}] together, which come to {extents}: their product must be {extent}{fits}"
    )]
    Split {
        /// Name of the called function.
        function: String,
        /// Name of the dim.
        dim: String,
        /// Extent of the dim.
        extent: usize,
        /// Names of the parts, joined by commas.
        parts: String,
        /// Extents of the parts, as a product.
        extents: Box<str>,
        /// Nearby extents that pass the check, as the end of the sentence; empty if there are none.
        fits: Box<str>,
    },
    /// A library function divides a dim into groups of unequal size.
    #[error(
        "`{function}`: `{by}` makes {groups} groups of `{dim}`, which has {}: groups have equally many{fits}",
        Elements(*extent)
    )]
    Groups {
        /// Name of the called function.
        function: String,
        /// Name of the library function.
        by: Box<str>,
        /// Name of the dim.
        dim: String,
        /// Extent of the dim.
        extent: i64,
        /// Number of groups.
        groups: String,
        /// Numbers of groups, and nearby extents, that pass the check, as the end of the sentence.
        fits: Box<str>,
    },
    /// `at` selects an element beyond the dim.
    #[error(
        "`{function}`: the position {position} is outside of `{dim}`, which has {}, from 0{fits}",
        Elements(*extent)
    )]
    Position {
        /// Name of the called function.
        function: String,
        /// Name of the dim.
        dim: String,
        /// Extent of the dim.
        extent: i64,
        /// The position, as written and as a number.
        position: String,
        /// Nearby extents that pass the check, as the end of the sentence; empty if there are none.
        fits: Box<str>,
    },
    /// `slice` takes a range that is not within its dim.
    #[error("`{function}`: {range} is no part of `{dim}`, which is 0..{extent}{fits}")]
    Range {
        /// Name of the called function.
        function: String,
        /// Name of the dim.
        dim: String,
        /// Extent of the dim.
        extent: i64,
        /// The range, as written and as numbers.
        range: String,
        /// Nearby extents that pass the check, as the end of the sentence; empty if there are none.
        fits: Box<str>,
    },
    /// `pad` adds a negative number of elements.
    #[error(
        "`{function}`: `pad` adds {amount} elements to `{dim}`, and can add 0 or more: `slice` leaves some out{fits}"
    )]
    Padding {
        /// Name of the called function.
        function: String,
        /// Name of the dim.
        dim: String,
        /// Number of elements to add, as written and as a number.
        amount: String,
        /// Nearby extents that pass the check, as the end of the sentence; empty if there are none.
        fits: Box<str>,
    },
    /// A window of a convolution or a pool does not fit its dim, or an option of it is too small.
    #[error("`{function}`: {what}{fits}")]
    Window {
        /// Name of the called function.
        function: String,
        /// The window and its dim, or the option, with their numbers.
        what: String,
        /// Nearby extents that pass the check, as the end of the sentence; empty if there are none.
        fits: Box<str>,
    },
    /// `slice`, `pad` or `concat` makes a dim that already has another extent.
    #[error(
        "`{function}`: {by} makes `{dim}` of extent {wants}, but it has {extent} here: give what it makes a name of its own, or pass tensors that agree{fits}"
    )]
    Made {
        /// Name of the called function.
        function: String,
        /// Name of the operation.
        by: Box<str>,
        /// Name of the dim.
        dim: String,
        /// Extent that the operation computes, with its terms.
        wants: String,
        /// Extent of the dim.
        extent: i64,
        /// Nearby extents that pass the check, as the end of the sentence; empty if there are none.
        fits: Box<str>,
    },
    /// A dim has too many elements for `i32` coordinates.
    #[error(
        "`{function}`: {by} along `{dim}`, which has {extent} elements, computes with their places in `i32`: a dim that it goes along has at most {}",
        i32::MAX
    )]
    TooLong {
        /// Name of the called function.
        function: String,
        /// Name of the operation that computes with coordinates.
        by: Box<str>,
        /// Name of the dim.
        dim: String,
        /// Extent of the dim.
        extent: usize,
    },
    /// A report was asked for a dim that the function does not have.
    #[error("`{function}` has no dim `{dim}`; its dims are [{known}]")]
    UnknownDim {
        /// Name of the called function.
        function: String,
        /// Name of the unknown dim.
        dim: String,
        /// Dims of the function, joined by commas.
        known: String,
    },
    /// Arguments that must have one shape have different shapes.
    #[error(
        "`{function}`: `{first}` has shape {first_shape} but `{second}` has {second_shape}; name the dims (`x[N, D] + b[D]`) to broadcast"
    )]
    ShapeMismatch {
        /// Name of the called function.
        function: String,
        /// The first such parameter.
        first: String,
        /// Shape of the first argument.
        first_shape: Box<Shape>,
        /// The parameter that disagrees.
        second: String,
        /// Shape of the second argument.
        second_shape: Box<Shape>,
    },
    /// A number of elements does not match the shape.
    #[error("{elements} elements do not make a tensor of shape {shape}, which has {}", Count(shape))]
    Shape {
        /// Number of elements given.
        elements: usize,
        /// The requested shape.
        shape: Shape,
    },
    /// `item` was called on a tensor with another number of elements than one.
    #[error("`item` reads the only element of a tensor, and this one has shape {shape}; `to_vec` reads all")]
    NotOne {
        /// Shape of the tensor.
        shape: Shape,
    },
    /// A tensor argument or result has another element type than declared.
    #[error(
        "{what} is of {expected}, but a tensor of {got} was given; cast it, as in `pub fn cast(x: {got}[N]) -> {expected}[N] {{ x as {expected} }}`"
    )]
    Dtype {
        /// The argument or result, in words.
        what: String,
        /// The declared type.
        expected: DType,
        /// Type of the tensor given.
        got: DType,
    },
    /// Two arguments live on different devices.
    #[error(
        "`{function}`: `{first}` is on {first_device} but `{second}` is on {second_device}; move one with `.to(&device)`"
    )]
    DeviceMismatch {
        /// Name of the called function.
        function: String,
        /// Name of one parameter.
        first: String,
        /// Device of the first argument.
        first_device: String,
        /// Name of the other parameter.
        second: String,
        /// Device of the second argument.
        second_device: String,
    },
    /// A tensor given to `into` has another shape than its result.
    #[error(
        "`{function}`: the result `{result}` has shape {expected}, but the tensor given for it has {got}"
    )]
    OutShape {
        /// Name of the called function.
        function: String,
        /// Name of the result among the parameters of `into`.
        result: String,
        /// Shape of the result.
        expected: Box<Shape>,
        /// Shape of the tensor given.
        got: Box<Shape>,
    },
    /// A call writes a tensor that shares memory with another tensor of the call.
    #[error(
        "`{function}`: `{output}` is written but shares memory with `{input}`, which the same call uses; pass a copy of one of them"
    )]
    Alias {
        /// Name of the called function.
        function: String,
        /// Name of the tensor that is written.
        output: String,
        /// Name of the other tensor.
        input: String,
    },
    /// A part or an output of a graph has a mistake.
    #[cfg(feature = "graph")]
    #[error("`{graph}`{place}: {message}")]
    Graph {
        /// Name of the graph.
        graph: String,
        /// The place after a comma: the part's number in the listing of the graph with its text, or the output.
        /// The place of the whole graph is empty.
        place: String,
        /// The mistake, and how to mend it.
        message: String,
    },
    /// Values of a graph are not computed in one kernel.
    #[cfg(feature = "graph")]
    #[error(
        "`{graph}`: these values take {kernels} kernels, since one ends with `{value}` of part {node}: {reason}"
    )]
    NotFused {
        /// Name of the graph.
        graph: String,
        /// Number of kernels.
        kernels: usize,
        /// Name of the operation that a kernel ends with.
        value: String,
        /// Number of its part in the listing of the graph.
        node: usize,
        /// The reason, as reports give it.
        reason: String,
    },
    /// A call of a graph lacks an input.
    #[cfg(feature = "graph")]
    #[error("`{graph}`: the input `{input}` is missing; the inputs are {known}")]
    MissingInput {
        /// Name of the graph.
        graph: String,
        /// Name of the input.
        input: String,
        /// The inputs with their types.
        known: String,
    },
    /// A call of a graph passes an input that the graph does not have, or one input twice.
    #[cfg(feature = "graph")]
    #[error("`{graph}`: `{input}` is no input, or is given twice; the inputs are {known}")]
    UnknownInput {
        /// Name of the graph.
        graph: String,
        /// Name of the argument.
        input: String,
        /// The inputs with their types.
        known: String,
    },
    /// A graph has no output of a name, or the output was taken before.
    #[cfg(feature = "graph")]
    #[error("`{graph}` has no output `{output}` to take; there are [{known}]")]
    UnknownOutput {
        /// Name of the graph.
        graph: String,
        /// Name of the output.
        output: String,
        /// Names of the outputs that are left.
        known: String,
    },
    /// An input of a graph is another kind of value than the graph takes, or on another device.
    #[cfg(feature = "graph")]
    #[error("`{graph}`: the input `{input}` is {expected}, not {got}")]
    WrongInput {
        /// Name of the graph.
        graph: String,
        /// Name of the input.
        input: String,
        /// The value that the graph takes.
        expected: String,
        /// The value given, and the remedy.
        got: String,
    },
    /// An output of a graph is taken as a tensor of another type.
    #[cfg(feature = "graph")]
    #[error("the output `{output}` of `{graph}` is of {expected}, and is taken as {got}")]
    OutputType {
        /// Name of the graph.
        graph: String,
        /// Name of the output.
        output: String,
        /// Type of the output.
        expected: DType,
        /// Type that the program asks for.
        got: DType,
    },
    /// The device has too little memory.
    #[error("out of memory on {device}: {}; {}", Request(*bytes), Relief(*tensor_bytes_max))]
    OutOfMemory {
        /// Size of the request in bytes; `None` if the driver ran out of memory for itself, since the driver
        /// does not report its need.
        bytes: Option<usize>,
        /// Name of the device.
        device: String,
        /// Maximum size of one tensor on the device, in bytes, if the request exceeds it. Free memory does
        /// not help then.
        tensor_bytes_max: Option<u64>,
    },
    /// A shape has too many elements to count or address.
    #[error("a tensor of shape {shape} has more elements than memory can hold")]
    TooLarge {
        /// The shape.
        shape: Shape,
    },
    /// The driver's library is missing, or too old.
    #[error("no CUDA device: {why}; `Device::cpu()` always works")]
    NoDriver {
        /// The missing library or function, and the remedy.
        why: String,
    },
    /// The machine has no such device.
    #[error("no {kind} device: {why}; `Device::cpu()` always works")]
    NoDevice {
        /// `wgpu` or `CUDA`.
        kind: &'static str,
        /// The reason, as reported by the driver or the build.
        why: String,
    },
    /// The device stopped working. Tensors on it are lost.
    #[error("{device} was lost: {why}; its tensors are gone, and it may work again in a new process")]
    DeviceLost {
        /// Name of the device.
        device: String,
        /// Message of the driver.
        why: String,
    },
    /// A kernel failed, for example by an illegal address. Tensors on the device are lost.
    #[error(
        "{device}: a kernel failed: {why}{}; a kernel launched since the last wait is at fault: run the program with CUDA_LAUNCH_BLOCKING=1 to be told at its launch, and under `compute-sanitizer` or on the simulator of Fusion's tests/cuda-sim to see where in it; tensors on the device are gone, and it works again in a new process",
        LastLaunched(last.as_deref())
    )]
    KernelFault {
        /// Name of the device.
        device: String,
        /// Message of the driver.
        why: String,
        /// Name of the kernel launched last. The driver reports a failure late, without the name of the
        /// kernel.
        last: Option<String>,
    },
    /// The device does not support the request.
    #[error("{device} does not support {what}")]
    Unsupported {
        /// Name of the device.
        device: String,
        /// The missing capability.
        what: String,
    },
    /// The driver is older than the PTX version of a kernel.
    #[error(
        "kernel `{kernel}` is PTX {ptx}, newer than this NVIDIA driver ({driver}) reads; update the driver"
    )]
    DriverTooOld {
        /// Name of the kernel.
        kernel: String,
        /// PTX version that the kernel declares.
        ptx: String,
        /// Newest CUDA version that the driver supports.
        driver: String,
    },
    /// The driver could not compile a kernel.
    #[error(
        "the driver could not compile kernel `{kernel}`; please report it with what a build with `FUSION_DUMP=dir` writes there:\n{log}"
    )]
    Jit {
        /// Name of the kernel.
        kernel: String,
        /// Message of the driver.
        log: String,
    },
    /// A call of the driver failed.
    #[error(
        "{device}: {call} failed: {why}; the device is not lost, so try again; if it fails again, check the driver with its own tools (`nvidia-smi`, `vulkaninfo`) and report this text"
    )]
    Driver {
        /// Name of the device.
        device: String,
        /// Name of the driver function.
        call: &'static str,
        /// Message of the driver.
        why: String,
    },
    /// A parameter name is missing, occurs twice, has another shape, or has an invalid value.
    #[error("parameter `{name}` {what}")]
    Parameter {
        /// Name of the parameter, of a state, or of an option.
        name: String,
        /// The problem and its remedy.
        what: String,
    },
    /// Some gradients are not finite, and the optimizer was asked to report it. The parameters are unchanged.
    #[error(
        "the gradients of step {step} are not all finite, and nothing was changed; look for a division by 0 or an overflow; a `GradScaler` skips such steps instead, of an optimizer that is not asked to tell"
    )]
    NotFinite {
        /// Number of the step, from 1.
        step: u64,
    },
    /// All gradients are finite but their norm is not, and the optimizer was asked to report it. The
    /// parameters are unchanged.
    #[error(
        "the gradients of step {step} are all finite, but their norm is not: the sum of their squares, or the norm over the loss scale, is larger than any `f32`, so it cannot be clipped, and nothing was changed; make the loss smaller, and its scale no less than 1"
    )]
    NormNotFinite {
        /// Number of the step, from 1.
        step: u64,
    },
    /// A file cannot be read or written, or has another format.
    #[error("{path}: {what}")]
    File {
        /// Path of the file.
        path: String,
        /// The problem.
        what: String,
    },
    /// An argument does not match the plan. Generated code never causes it.
    #[error("`{function}`: {what}")]
    Argument {
        /// Name of the called function.
        function: String,
        /// The problem.
        what: String,
    },
}

/// Describes the failed request for memory.
struct Request(Option<usize>);

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("the driver has none left for its own needs"),
            Some(bytes) => write!(f, "{bytes} bytes could not be allocated"),
        }
    }
}

/// Describes the kernel launched last.
struct LastLaunched<'a>(Option<&'a str>);

impl fmt::Display for LastLaunched<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |last| write!(f, " (the last launched was `{last}`)"))
    }
}

/// Describes the remedy for a lack of memory.
struct Relief(Option<u64>);

impl fmt::Display for Relief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("drop tensors, or work on smaller pieces"),
            Some(most) => {
                write!(
                    f,
                    "one tensor there has at most {most}, so work on smaller pieces, or on another device"
                )
            }
        }
    }
}

/// Describes a number of elements.
struct Elements(i64);

impl fmt::Display for Elements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("1 element"),
            number => write!(f, "{number} elements"),
        }
    }
}

/// Describes the number of elements of a shape.
struct Count<'a>(&'a Shape);

impl fmt::Display for Count<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.count() {
            Some(count) => write!(f, "{count}"),
            None => f.write_str("more than memory can hold"),
        }
    }
}
