//! The plan: all data that a call needs. The plan is the contract between compiled code and the runtime.
//!
//! `fuse!` writes a plan as bytes that the first call decodes. The run-time use of the compiler owns a plan.
//! One executor runs both.
//!
//! A plan has programs for each target, and a program is a list of steps. A step has variants, and a call
//! launches the first one whose conditions are true. `C` is the type of the code. During compilation, that is
//! a text, or a pair of kernels for the CPU. Compiled plans have texts and functions. Plans in bytes have the
//! number of the code in a table.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};

mod condition;
mod contraction;
mod summary;
pub mod wgsl;

pub use super::dim::Dim;
use super::dim::DimExpr;
use super::dtype::DType;
use super::graph::Access;
pub use super::graph::{ConcatDim, Use};
use super::kernel::IndexWidth;
pub use super::kernel::UniformArg;
pub use condition::{Condition, Limits};
pub use contraction::{
    Attention, Blocks, Contraction, DEPTH, Factor, ROW_PART, RowParts, RowState, StateKind, TileAxis,
    WINDOW_BOUNDS_MAX, WindowBounds, Windows,
};
pub use summary::{Array, ArrayKind, Boundary, GroupSummary, Summary, Traffic, VariantSummary};

/// A list that a `static` can contain.
pub type List<T> = Cow<'static, [T]>;
/// A text that a `static` can contain.
pub type Text = Cow<'static, str>;

/// A compiled function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan<C: Clone + 'static> {
    /// Name of the function.
    pub name: Text,
    /// Names of the extents bound at run time; `DimOp::Sym(i)` is the i-th.
    pub symbols: List<Text>,
    /// Parameters that the caller passes, in order.
    pub params: List<Param>,
    /// Dims along which a maximum or a minimum is taken, which does not exist without elements.
    pub nonempty: List<Dim>,
    /// Dims that combine several dims.
    pub splits: List<SplitDim>,
    /// Dims that concatenate several parts.
    pub concats: List<ConcatDim>,
    /// Tensors that a call creates.
    pub outputs: List<Output>,
    /// Programs for each target, in order of preference. A device runs the first one for which it has enough
    /// buffers.
    pub programs: List<Program<C>>,
    /// Requested targets that the function is not compiled for.
    pub lacks: List<Lack>,
    /// Summary of the fusion.
    pub summary: Summary,
}

/// The reason why a function is not compiled for a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lack {
    /// Target without a program.
    pub target: Target,
    /// Feature that the target lacks.
    pub what: Text,
}

impl<C: Clone + 'static> Plan<C> {
    /// Replaces the code of all launches. `map` gets the name and the code of a kernel.
    pub fn map_code<D: Clone + 'static>(self, mut map: impl FnMut(&Text, C) -> D) -> Plan<D> {
        let Plan { name, symbols, params, nonempty, splits, concats, outputs, programs, lacks, summary } =
            self;
        let programs = list(programs, |program| program.map_code(&mut map));
        Plan { name, symbols, params, nonempty, splits, concats, outputs, programs, lacks, summary }
    }

    /// Returns the program that a device of this target runs.
    pub fn program(&self, target: Target) -> Option<&Program<C>> {
        self.programs.iter().find(|program| program.target == target)
    }
}

impl<C: Clone + 'static> Program<C> {
    /// Replaces the code of all launches.
    pub(crate) fn map_code<D: Clone + 'static>(self, map: &mut impl FnMut(&Text, C) -> D) -> Program<D> {
        self.map_launches(&mut |launch: Launch<C>| launch.map_code(map))
    }

    /// Replaces the launches of all variants.
    pub(crate) fn map_launches<D: Clone + 'static>(
        self,
        map: &mut impl FnMut(Launch<C>) -> Launch<D>,
    ) -> Program<D> {
        let Program { target, temporaries, steps } = self;
        let mut variant = |Variant { when, launches }| Variant { when, launches: list(launches, &mut *map) };
        let steps = list(steps, |Step { variants }| Step { variants: list(variants, &mut variant) });
        Program { target, temporaries, steps }
    }
}

impl<C: Clone + 'static> Launch<C> {
    pub(crate) fn map_code<D: Clone + 'static>(self, map: &mut impl FnMut(&Text, C) -> D) -> Launch<D> {
        let Launch { code, spec } = self;
        Launch { code: map(&spec.kernel, code), spec }
    }
}

impl Plan<u16> {
    /// Encodes the plan as the bytes that `fuse!` writes. The code is a number in a table that `fuse!`
    /// writes, too.
    ///
    /// # Panics
    /// Never panics: encoding needs nothing but memory.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("a plan is lists, numbers and texts")
    }

    /// Decodes a plan that the same version of this crate encoded.
    ///
    /// # Panics
    /// Panics if the bytes are not an encoded plan.
    pub fn from_bytes(bytes: &[u8]) -> Plan<u16> {
        postcard::from_bytes(bytes).expect("`fuse!` and the runtime are of one version")
    }
}

fn list<T: Clone + 'static, U: Clone + 'static>(items: List<T>, map: impl FnMut(T) -> U) -> List<U> {
    items.into_owned().into_iter().map(map).collect()
}

/// A family of devices that run the same code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Target {
    /// NVIDIA GPUs, programmed in PTX.
    Ptx,
    /// Any GPU, programmed in WGSL.
    Wgsl,
    /// The CPU.
    Cpu,
}

impl Target {
    /// All targets.
    pub const ALL: [Target; 3] = [Target::Ptx, Target::Wgsl, Target::Cpu];

    /// Returns the name of the target in `#[fuse(targets(…))]`.
    pub const fn name(self) -> &'static str {
        match self {
            Target::Ptx => "ptx",
            Target::Wgsl => "wgsl",
            Target::Cpu => "cpu",
        }
    }
}

/// A parameter that the caller passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Param {
    /// Name of the parameter in the signature.
    pub name: Text,
    /// Type of the elements or of the scalar.
    pub dtype: DType,
    /// Kind of the parameter: a tensor, a scalar or an extent.
    pub kind: ParamKind,
}

/// The kind of a parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ParamKind {
    /// A tensor with fixed dims.
    Tensor {
        /// Access to the tensor: `ReadWrite` for `&mut`.
        access: Access,
        /// Dims of the tensor, outermost first.
        dims: List<Dim>,
    },
    /// A tensor of any rank. Symbol 0 is the number of elements.
    ///
    /// All such parameters of a call, and the results, have the same shape.
    AnyShape {
        /// Access to the tensor: `ReadWrite` for `&mut`.
        access: Access,
    },
    /// A number.
    Scalar,
    /// An extent: the value of this symbol.
    Dim(u16),
}

/// A dim that combines several dims.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SplitDim {
    /// The combined dim. A call checks that this extent is the product of the parts' extents.
    pub whole: Dim,
    /// The combined dims, outermost first. User code has no name for unnamed parts, which belong to
    /// `library`.
    pub parts: List<Dim>,
    /// The library function that splits the dim, if any.
    pub library: Option<Text>,
}

/// A tensor that a call creates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Type of the elements.
    pub dtype: DType,
    /// Dims of the tensor, outermost first. The list is empty if `any_shape` is true.
    pub dims: List<Dim>,
    /// True if the result has the shape of the `AnyShape` parameters.
    pub any_shape: bool,
    /// Destination of the tensor.
    pub dest: Dest,
}

/// The destination of a created tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dest {
    /// A result that is returned. Results are returned in order.
    Returned,
    /// The new content of the `&mut` parameter of this number, which takes its place after all steps.
    Replaces(u16),
}

/// The steps of a function on one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program<C: Clone + 'static> {
    /// Target of the program.
    pub target: Target,
    /// Tensors that live only during the call.
    pub temporaries: List<Temporary>,
    /// Steps of the program, in order.
    pub steps: List<Step<C>>,
}

/// Memory that lives only during a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Temporary {
    /// Type of the elements.
    pub dtype: DType,
    /// Number of elements.
    pub len: DimExpr,
    /// The first step that may use the memory: the one that writes it. A variant need not use the memory.
    pub first: u16,
    /// The last step that reads the memory, inclusive.
    pub last: u16,
}

impl Temporary {
    /// Returns the size of the memory in bytes.
    pub fn bytes(&self) -> DimExpr {
        self.len.clone() * DimExpr::constant(self.dtype.size() as i64)
    }
}

/// A step of a program: one group, in several variants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step<C: Clone + 'static> {
    /// Variants in order of preference. The last one has no conditions.
    pub variants: List<Variant<C>>,
}

impl<C: Clone> Step<C> {
    /// Returns the variant that a call with these extents takes on a device with these limits.
    pub fn chosen(&self, symbols: &[i64], limits: &Limits) -> Option<&Variant<C>> {
        let holds = |condition: &Condition| condition.holds(symbols, limits);
        self.variants.iter().find(|variant| variant.when.iter().all(holds))
    }
}

/// A variant of a step: launches, with the conditions under which a call takes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variant<C: Clone + 'static> {
    /// Conditions that must all be true.
    pub when: List<Condition>,
    /// Launches in order.
    pub launches: List<Launch<C>>,
}

/// A kernel with its arguments.
///
/// * PTX: The arguments are `.param`s: the address of each buffer (`.u64`), then the uniforms (`.u32`,
///   `.f32`, or `.u64` for positions of a 64-bit variant). The grid may be any one-dimensional grid, and the
///   block size any that suits `team`.
/// * WGSL: The buffers are `@group(0) @binding(i)`. One tensor is bound several times if it is read through
///   several windows (`Footprint::Windows`). The uniforms are the 4-byte fields of the struct `args`, bound
///   as `@group(1) @binding(0)` or as immediates. The override `block` is the workgroup size, and workgroups
///   may be folded into `x` and `y`. The start of a binding is a multiple of the device's alignment, and its
///   end is a multiple of 16 bytes.
/// * CPU: The functions take `CpuArgs`. A written buffer is passed as the window that the items of the call
///   write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch<C: Clone + 'static> {
    /// Code of the kernel.
    pub code: C,
    /// Description of the launch apart from the code.
    pub spec: LaunchSpec,
}

impl<C: Clone> Variant<C> {
    /// Returns the number of launches that run by themselves.
    pub fn launch_count(&self) -> usize {
        self.launches.iter().filter(|launch| !launch.of_blocks).count()
    }
}

impl<C: Clone> Deref for Launch<C> {
    type Target = LaunchSpec;

    fn deref(&self) -> &LaunchSpec {
        &self.spec
    }
}

impl<C: Clone> DerefMut for Launch<C> {
    fn deref_mut(&mut self) -> &mut LaunchSpec {
        &mut self.spec
    }
}

/// The description of a launch apart from the code: arguments, iteration space and costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// Name of the entry point.
    pub kernel: Text,
    /// Width of positions.
    pub index: IndexWidth,
    /// Buffers, in the order of the kernel's buffers.
    pub buffers: List<BufferArg>,
    /// Uniforms, in the order of the kernel's uniforms.
    pub uniforms: List<UniformArg>,
    /// Iteration space of the launch.
    pub space: Space,
    /// Number of threads that share an iteration, a power of two; 1 if each thread works alone.
    ///
    /// A team of more than a warp is a block, and every team in WGSL is a block. With a team of one warp, a
    /// block can be any number of teams.
    pub team: u32,
    /// Bytes for elements of a row: shared memory of each team in PTX, scratch memory of each thread on the
    /// CPU.
    pub row_memory: DimExpr,
    /// Bytes of tensors that the launch reads and writes.
    ///
    /// Bytes that belong to one row count once for each pass of the kernel, or once if later passes find them
    /// in the CPU's cache. Bytes that rows share count once.
    pub bytes: DimExpr,
    /// Number of blocks in a cluster, each a team, that share an iteration; 1 without clusters. PTX only.
    pub cluster: DimExpr,
    /// Maximum number of loop trips of a thread in one iteration; 0 if unused.
    ///
    /// Only WGSL uses the number, because its devices may end loops early.
    pub trips: DimExpr,
    /// True if each thread reduces elements once, before its iterations.
    ///
    /// The launch then has as many threads as the device runs at a time, and no more.
    pub prologue: bool,
    /// Contraction whose tiles the kernel finishes, if any. The CPU only.
    pub contraction: Option<Contraction>,
    /// True if the launch does not run by itself: the driver of a contraction runs the kernel for blocks of an
    /// operand. The CPU only.
    pub of_blocks: bool,
}

impl LaunchSpec {
    /// Creates the description of a launch without arguments, whose threads work alone and cost nothing.
    pub fn new(kernel: impl Into<Text>, index: IndexWidth, space: Space) -> LaunchSpec {
        LaunchSpec {
            kernel: kernel.into(),
            index,
            buffers: List::default(),
            uniforms: List::default(),
            space,
            team: 1,
            row_memory: DimExpr::constant(0),
            bytes: DimExpr::constant(0),
            cluster: DimExpr::constant(1),
            trips: DimExpr::constant(0),
            prologue: false,
            contraction: None,
            of_blocks: false,
        }
    }
}

/// An iteration space of `rows × cols` elements. The columns are contiguous in every written buffer.
///
/// A GPU thread or team takes `grain` elements at a time, so a launch distributes `⌈rows·cols / grain⌉`
/// iterations. The CPU distributes items, which are runs of at most `grain` elements within a row; where
/// `grain_min` is smaller, a launch on several threads cuts rows into more items. An item of a kernel of blocks is
/// a row, of which the driver says the block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Space {
    /// Product of the outer extents.
    pub rows: DimExpr,
    /// Innermost extent.
    pub cols: DimExpr,
    /// Number of elements that a thread or team takes at a time.
    pub grain: u32,
    /// Smallest number of elements of an item that does not end its row.
    pub grain_min: u32,
    /// Number of elements that are iterated over for each element of the space.
    pub each: DimExpr,
}

impl Space {
    /// Returns the number of elements of the space.
    pub fn elements(&self, symbols: &[i64]) -> Option<i64> {
        self.rows.eval(symbols)?.checked_mul(self.cols.eval(symbols)?)
    }
}

/// The code that a target runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Code<C> {
    /// A PTX module with one entry.
    Ptx(Text),
    /// A WGSL module with one entry.
    Wgsl(Text),
    /// The functions or kernels of the CPU.
    Cpu(C),
}

/// The memory that a kernel's buffer is bound to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BufferArg {
    /// Tensor that owns the memory.
    pub slot: Slot,
    /// Kind of access that the kernel has to the memory.
    pub access: Access,
    /// Type of the elements.
    pub dtype: DType,
    /// Footprint of the kernel in the memory.
    pub footprint: Footprint,
    /// True if the memory is bound as a uniform, with one element or with room for `UNIFORM_LEN`.
    pub uniform: bool,
}

/// The elements of a buffer that a part of the iteration space touches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Footprint {
    /// Elements `k·i … k·(i+1)` for element `i` of the space, with this `k`.
    ///
    /// A launch may be cut into chunks, and CPU items own disjoint parts of the buffer.
    Linear(DimExpr),
    /// Interleaved rows of a written buffer: `each` runs for each run of `inner` elements of the space.
    ///
    /// Element `i` of the space touches the elements `(⌊i / inner⌋·each + e)·inner + i mod inner` for all `e`
    /// below `each`.
    Strided {
        /// Number of elements in a row.
        each: DimExpr,
        /// Number of rows that are interleaved.
        inner: DimExpr,
    },
    /// Element `i` for item `i` of the space. The CPU only.
    Item,
    /// All elements of a buffer that is bound whole. Only the first element of the space writes to the
    /// buffer.
    Whole,
    /// Elements that are read through a window on the buffer, at the positions of the map. WGSL only.
    ///
    /// The kernel skips the elements of the space that need elements outside of one of its windows. Launches
    /// for all combinations of windows compute each element once.
    Windows(IndexMap),
    /// Elements of the first half of a buffer, which the binding after it continues. WGSL only.
    LowerHalf,
    /// Elements of the second half of a buffer, which another binding starts. WGSL only.
    UpperHalf,
}

/// The position at which each element of the space is read: `start + Σ coordinate · stride`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IndexMap {
    /// Position for the first element of the space.
    pub start: DimExpr,
    /// Extents of the space's dims, outermost first, each with its stride in the buffer, ≥ 0.
    pub dims: List<(DimExpr, DimExpr)>,
}

impl IndexMap {
    /// Returns bounds of `Σ coordinate · stride` over the elements `first ..= last` of the space.
    ///
    /// The bounds are exact if the coordinates of the elements form a box.
    pub fn bounds(&self, first: i64, last: i64, symbols: &[i64]) -> Option<(i64, i64)> {
        let (mut first, mut last) = (first, last);
        let (mut low, mut high) = (0i64, 0i64);
        for (extent, stride) in self.dims.iter().rev() {
            let (extent, stride) = (extent.eval(symbols)?, stride.eval(symbols)?);
            let rows = (first.checked_div(extent)?, last.checked_div(extent)?);
            let (from, to) = if rows.0 == rows.1 { (first % extent, last % extent) } else { (0, extent - 1) };
            low = low.checked_add(from.checked_mul(stride)?)?;
            high = high.checked_add(to.checked_mul(stride)?)?;
            (first, last) = rows;
        }
        Some((low, high))
    }
}

/// The owner of a buffer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Slot {
    /// The tensor parameter of this number (position in `Plan::params`).
    Param(u16),
    /// The output of this number.
    Output(u16),
    /// The temporary of this number.
    Temp(u16),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the bounds with the positions of all elements, for operands of several extents and strides.
    #[test]
    fn bounds_hold_every_position() {
        let number = DimExpr::constant;
        for (extents, strides) in [([4, 3, 5], [1, 20, 4]), ([2, 6, 3], [0, 3, 1]), ([3, 1, 7], [0, 0, 2])] {
            let dims =
                extents.into_iter().zip(strides).map(|(extent, stride)| (number(extent), number(stride)));
            let map = IndexMap { start: number(0), dims: dims.collect() };
            let [_, b, c] = extents;
            let at = |i: i64| i / (b * c) * strides[0] + i / c % b * strides[1] + i % c * strides[2];
            for first in 0..extents.iter().product() {
                let mut exact = (at(first), at(first));
                for last in first..extents.iter().product() {
                    exact = (exact.0.min(at(last)), exact.1.max(at(last)));
                    let (low, high) = map.bounds(first, last, &[]).expect("nothing overflows");
                    assert!(low <= exact.0 && exact.1 <= high, "{first}..={last}");
                    let row = first / c == last / c;
                    let box_of_rows =
                        first % c == 0 && last % c == c - 1 && first / (b * c) == last / (b * c);
                    assert!(!row && !box_of_rows || (low, high) == exact, "{first}..={last}: {low}..={high}");
                }
            }
        }
    }
}
