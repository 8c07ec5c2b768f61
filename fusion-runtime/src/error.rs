//! What can go wrong at run time, told to the user: what, where, and how to mend it.
//!
//! Invariant: every fallible call of the crate returns this type, and no input makes it panic instead.

use std::fmt;

use fusion_compiler::ir::dtype::DType;

use crate::shape::Shape;

/// The result of a fallible call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tensor has another number of dims than the function's signature.
    #[error(
        "`{function}`: `{param}` has dims [{expected}], but its argument has shape {got}; reshape it, or change the signature"
    )]
    Rank {
        /// The function called.
        function: String,
        /// The parameter.
        param: String,
        /// Its dims as declared, joined by commas.
        expected: String,
        /// Shape of the argument.
        got: Shape,
    },
    /// Two arguments disagree about the extent of a dim.
    #[error(
        "`{function}`: dim `{dim}` is {first_extent} in `{first}` but {second_extent} in `{second}`; a dim has one extent per call"
    )]
    Extent {
        /// The function called.
        function: String,
        /// The dim.
        dim: String,
        /// The parameter that bound the dim.
        first: String,
        /// The extent it gave.
        first_extent: usize,
        /// The parameter that disagrees.
        second: String,
        /// The extent found there.
        second_extent: usize,
    },
    /// An argument does not have the extent that the signature computes or fixes.
    #[error("`{function}`: dim `{dim}` of `{param}` must be {expected}, but its argument has {got} there")]
    FixedExtent {
        /// The function called.
        function: String,
        /// The dim, as written.
        dim: String,
        /// The parameter.
        param: String,
        /// The extent that the signature asks for.
        expected: usize,
        /// The extent of the argument.
        got: usize,
    },
    /// An extent computed from the arguments' extents is negative or has no value.
    #[error(
        "`{function}`: dim `{dim}` has no valid extent for these arguments; it must be ≥ 0 and fit in 63 bits"
    )]
    InvalidExtent {
        /// The function called.
        function: String,
        /// The dim, as written.
        dim: String,
    },
    /// A dim that a largest or smallest is taken along has no elements.
    #[error(
        "`{function}`: dim `{dim}` is 0, and its result needs the `max` or `min` along it, which no elements have; check the extent before the call"
    )]
    Empty {
        /// The function called.
        function: String,
        /// The dim.
        dim: String,
    },
    /// A dim that is split into others, or that they are merged into, has not as many elements as they come to.
    #[error(
        "`{function}`: dim `{dim}` is {extent}, but it is [{parts}] together, which come to {extents}: their product must be {extent}{fits}"
    )]
    Split {
        /// The function called.
        function: String,
        /// The dim.
        dim: String,
        /// Its extent.
        extent: usize,
        /// The others, joined by commas.
        parts: String,
        /// Their extents, as a product.
        extents: Box<str>,
        /// Extents near by that would do, as the end of the sentence; empty where there are none.
        fits: Box<str>,
    },
    /// A function of the library makes groups of a dim that are not equally large.
    #[error(
        "`{function}`: `{by}` makes {groups} groups of `{dim}`, which has {}: groups have equally many{fits}",
        Elements(*extent)
    )]
    Groups {
        /// The function called.
        function: String,
        /// The function of the library.
        by: Box<str>,
        /// The dim.
        dim: String,
        /// Its extent.
        extent: i64,
        /// How many groups.
        groups: String,
        /// Extents near by that would do, as the end of the sentence; empty where there are none.
        fits: Box<str>,
    },
    /// `at` asks for an element that is not there.
    #[error(
        "`{function}`: the position {position} is outside of `{dim}`, which has {}, from 0{fits}",
        Elements(*extent)
    )]
    Position {
        /// The function called.
        function: String,
        /// The dim.
        dim: String,
        /// Its extent.
        extent: i64,
        /// The position.
        position: String,
        /// Extents near by that would do, as the end of the sentence; empty where there are none.
        fits: Box<str>,
    },
    /// `slice` asks for a range that is no part of a dim.
    #[error("`{function}`: {range} is no part of `{dim}`, which is 0..{extent}{fits}")]
    Range {
        /// The function called.
        function: String,
        /// The dim.
        dim: String,
        /// Its extent.
        extent: i64,
        /// The range, as written and as it is.
        range: String,
        /// Extents near by that would do, as the end of the sentence; empty where there are none.
        fits: Box<str>,
    },
    /// `pad` adds less than no elements.
    #[error(
        "`{function}`: `pad` adds {amount} elements to `{dim}`, and can add 0 or more: `slice` leaves some out{fits}"
    )]
    Padding {
        /// The function called.
        function: String,
        /// The dim.
        dim: String,
        /// How many elements.
        amount: String,
        /// Extents near by that would do, as the end of the sentence; empty where there are none.
        fits: Box<str>,
    },
    /// `slice`, `pad` or `concat` makes a dim that is there already, of another extent.
    #[error(
        "`{function}`: {by} makes `{dim}` of extent {wants}, but it has {extent} here: give what it makes a name of its own, or pass tensors that agree{fits}"
    )]
    Made {
        /// The function called.
        function: String,
        /// The function of the language.
        by: Box<str>,
        /// The dim.
        dim: String,
        /// The extent that it would have, and what of.
        wants: String,
        /// Its extent.
        extent: i64,
        /// Extents near by that would do, as the end of the sentence; empty where there are none.
        fits: Box<str>,
    },
    /// The place that a portion of a dim begins or ends at is outside of the dim.
    #[error(
        "`{function}`: portions of `{dim}`, which has {}, meet at {place}: that is to be from 0 to {extent}{fits}",
        Elements(*extent)
    )]
    Portion {
        /// The function called.
        function: String,
        /// The dim.
        dim: String,
        /// Its extent.
        extent: i64,
        /// The place.
        place: String,
        /// Extents near by that would do, as the end of the sentence; empty where there are none.
        fits: Box<str>,
    },
    /// A dim whose coordinates are computed with has too many elements for them.
    #[error(
        "`{function}`: {by} along `{dim}`, which has {extent} elements, computes with their places in `i32`: a dim that it goes along has at most {}",
        i32::MAX
    )]
    TooLong {
        /// The function called.
        function: String,
        /// What computes with them: a function of the language.
        by: Box<str>,
        /// The dim.
        dim: String,
        /// Its extent.
        extent: usize,
    },
    /// A dim was named that the function does not have.
    #[error("`{function}` has no dim `{dim}`; its dims are [{known}]")]
    UnknownDim {
        /// The function.
        function: String,
        /// The dim asked for.
        dim: String,
        /// Those it has, joined by commas.
        known: String,
    },
    /// Arguments that must have one shape do not.
    #[error(
        "`{function}`: `{first}` has shape {first_shape} but `{second}` has {second_shape}; name the dims (`x[N, D] + b[D]`) to broadcast"
    )]
    ShapeMismatch {
        /// The function called.
        function: String,
        /// The first such parameter.
        first: String,
        /// Its shape.
        first_shape: Box<Shape>,
        /// The parameter that disagrees.
        second: String,
        /// Its shape.
        second_shape: Box<Shape>,
    },
    /// A number of elements does not fit the shape.
    #[error("{elements} elements do not make a tensor of shape {shape}, which has {}", Count(shape))]
    Shape {
        /// The number of elements given.
        elements: usize,
        /// The shape asked for.
        shape: Shape,
    },
    /// A tensor that has not just one element is asked for it.
    #[error("`item` reads the only element of a tensor, and this one has shape {shape}; `to_vec` reads all")]
    NotOne {
        /// The tensor's shape.
        shape: Shape,
    },
    /// An argument or result is of another element type.
    #[error(
        "{what} is of {expected}, but a tensor of {got} was given; cast it, as in `pub fn cast(x: {got}[N]) -> {expected}[N] {{ x as {expected} }}`"
    )]
    Dtype {
        /// What has the type.
        what: String,
        /// The type that it must have.
        expected: DType,
        /// The type given.
        got: DType,
    },
    /// Two arguments live on different devices.
    #[error(
        "`{function}`: `{first}` is on {first_device} but `{second}` is on {second_device}; move one with `.to(&device)`"
    )]
    DeviceMismatch {
        /// The function called.
        function: String,
        /// A parameter.
        first: String,
        /// Where it is.
        first_device: String,
        /// Another parameter.
        second: String,
        /// Where that is.
        second_device: String,
    },
    /// A tensor given for a result has another shape.
    #[error(
        "`{function}`: the result `{result}` has shape {expected}, but the tensor given for it has {got}"
    )]
    OutShape {
        /// The function called.
        function: String,
        /// Its name among the parameters of `into`.
        result: String,
        /// Shape of the result.
        expected: Box<Shape>,
        /// Shape of the tensor given.
        got: Box<Shape>,
    },
    /// A tensor that is written overlaps one that is read.
    #[error(
        "`{function}`: `{output}` is written but shares memory with `{input}`, which the same call uses; pass a copy of one of them"
    )]
    Alias {
        /// The function called.
        function: String,
        /// What is written.
        output: String,
        /// What is read.
        input: String,
    },
    /// The device has not the memory for a tensor.
    #[error("out of memory on {device}: {}; {}", Request(*bytes), Relief(*tensor_bytes_max))]
    OutOfMemory {
        /// The size of the request, unless the driver needed memory for itself: it does not say how much.
        bytes: Option<usize>,
        /// The device.
        device: String,
        /// Most bytes that one tensor has there, where the request is beyond it, however much memory is free.
        tensor_bytes_max: Option<u64>,
    },
    /// A shape whose elements cannot be counted or addressed.
    #[error("a tensor of shape {shape} has more elements than memory can hold")]
    TooLarge {
        /// The shape.
        shape: Shape,
    },
    /// There is no such device on this machine.
    #[error("no {kind} device: {why}; `Device::cpu()` always works")]
    NoDevice {
        /// `wgpu` or `CUDA`.
        kind: &'static str,
        /// What was tried.
        why: String,
    },
    /// The device stopped working. What lives on it is lost.
    #[error("{device} was lost: {why}; what was on it is gone, and it may work again in a new process")]
    DeviceLost {
        /// The device.
        device: String,
        /// What its driver said.
        why: String,
    },
    /// A kernel did what it must not, as to use an illegal address. What lives on the device is lost.
    #[error(
        "{device}: a kernel failed: {why}{}; a kernel launched since the last wait is at fault: run the program with CUDA_LAUNCH_BLOCKING=1 to be told at its launch, and under `compute-sanitizer` or on the simulator of Fusion's tests/cuda-sim to see where in it; what was on it is gone, and it works again in a new process",
        LastLaunched(last.as_deref())
    )]
    KernelFault {
        /// The device.
        device: String,
        /// What its driver said.
        why: String,
        /// Name of the kernel launched last. The driver tells of a failure later, and not of which kernel.
        last: Option<String>,
    },
    /// The device cannot do what is asked.
    #[error("{device} does not support {what}")]
    Unsupported {
        /// The device.
        device: String,
        /// What it lacks.
        what: String,
    },
    /// The driver is older than the PTX of a kernel.
    #[error(
        "kernel `{kernel}` is PTX {ptx}, newer than this NVIDIA driver ({driver}) reads; update the driver"
    )]
    DriverTooOld {
        /// Name of the kernel.
        kernel: String,
        /// The version that its text declares.
        ptx: String,
        /// The newest CUDA that the driver knows.
        driver: String,
    },
    /// The driver refused the text of a kernel.
    #[error(
        "the driver could not compile kernel `{kernel}`; please report it with what a build with `FUSION_DUMP=dir` writes there:\n{log}"
    )]
    Jit {
        /// Name of the kernel.
        kernel: String,
        /// What the driver said.
        log: String,
    },
    /// A call into the driver failed.
    #[error(
        "{device}: {call} failed: {why}; the device is not lost, so try again; if it fails again, check the driver with its own tools (`nvidia-smi`, `vulkaninfo`) and report this text"
    )]
    Driver {
        /// The device.
        device: String,
        /// What was called.
        call: &'static str,
        /// What the driver said.
        why: String,
    },
    /// A name among parameters that is missing, there twice, or stands for another shape.
    #[error("parameter `{name}` {what}")]
    Parameter {
        /// The parameter, or the state of one.
        name: String,
        /// What is wrong with it, and how to mend that.
        what: String,
    },
    /// Gradients are not all finite, where the optimizer was asked to tell; the parameters are as they were.
    #[error(
        "the gradients of step {step} are not all finite, and nothing was changed; look for a division by 0 or an overflow; a `GradScaler` skips such steps instead, of an optimizer that is not asked to tell"
    )]
    NotFinite {
        /// The step, from 1.
        step: u64,
    },
    /// Gradients are all finite and their norm is not, where the optimizer was asked to tell; the parameters are as they were.
    #[error(
        "the gradients of step {step} are all finite, but their norm is not: the sum of their squares, or the norm over the loss scale, is larger than any `f32`, so it cannot be clipped, and nothing was changed; make the loss smaller, and its scale no less than 1"
    )]
    NormNotFinite {
        /// The step, from 1.
        step: u64,
    },
    /// A file that cannot be read or written, or is none of ours.
    #[error("{path}: {what}")]
    File {
        /// The file.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// An argument is not what the plan says; generated code never does this.
    #[error("`{function}`: {what}")]
    Argument {
        /// The function called.
        function: String,
        /// What is wrong.
        what: String,
    },
}

/// What there is no memory for, for a message.
struct Request(Option<usize>);

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("the driver has none left for its own needs"),
            Some(bytes) => write!(f, "{bytes} bytes could not be allocated"),
        }
    }
}

/// The kernel launched last, for a message.
struct LastLaunched<'a>(Option<&'a str>);

impl fmt::Display for LastLaunched<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |last| write!(f, " (the last launched was `{last}`)"))
    }
}

/// What helps against a lack of memory, for a message.
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

/// A number of elements, for a message.
struct Elements(i64);

impl fmt::Display for Elements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("1 element"),
            number => write!(f, "{number} elements"),
        }
    }
}

/// The number of elements of a shape, for a message.
struct Count<'a>(&'a Shape);

impl fmt::Display for Count<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.count() {
            Some(count) => write!(f, "{count}"),
            None => f.write_str("more than memory can hold"),
        }
    }
}
