//! The plan: everything a call needs, as plain data. The contract between compiled code and the runtime.
//!
//! `fuse!` writes a plan as bytes, which its first call reads; the run-time use of the compiler owns one; the same executor
//! runs both. A plan has programs for each target; a program is a list of steps; a step has variants, of which the
//! first whose conditions hold is launched. `C` is what a target runs: texts, with a pair of kernels for the CPU while
//! compiling and functions once compiled, or in bytes its number in a table.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

mod condition;
mod summary;
pub mod wgsl;

use super::dim::DimExpr;
use super::dtype::DType;
use super::graph::Access;
pub use super::graph::Use;
use super::kernel::IndexWidth;
pub use super::kernel::UniformArg;
pub use condition::{Condition, Limits};
pub use summary::{Array, ArrayKind, Boundary, GroupSummary, Summary, Traffic, VariantSummary};

/// A list that a `static` can hold.
pub type List<T> = Cow<'static, [T]>;
/// A text that a `static` can hold.
pub type Text = Cow<'static, str>;

/// A compiled function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan<C: Clone + 'static> {
    /// Name of the function.
    pub name: Text,
    /// Names of the extents bound at run time; `DimOp::Sym(i)` is the i-th.
    pub symbols: List<Text>,
    /// What the caller passes, in order.
    pub params: List<Param>,
    /// Dims that a largest or smallest is taken along, which there is none of without elements.
    pub nonempty: List<Dim>,
    /// Dims that are others together.
    pub products: List<Product>,
    /// Dims that are others one after another.
    pub sums: List<Sum>,
    /// Tensors that a call makes.
    pub outputs: List<Output>,
    /// Of each target that the function is compiled for one or more, of which a device runs the first that it can.
    pub programs: List<Program<C>>,
    /// Targets that it is not compiled for, though asked to.
    pub lacks: List<Lack>,
    /// What was fused.
    pub summary: Summary,
}

/// Why a function is not compiled for a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lack {
    /// Which.
    pub target: Target,
    /// What it has not.
    pub what: Text,
}

impl<C: Clone + 'static> Plan<C> {
    /// The same plan with what targets run replaced, of which `map` gets the name and the code.
    pub fn map_code<D: Clone + 'static>(self, mut map: impl FnMut(&Text, C) -> D) -> Plan<D> {
        let Plan { name, symbols, params, nonempty, products, sums, outputs, programs, lacks, summary } =
            self;
        let programs = list(programs, |program| program.map_code(&mut map));
        Plan { name, symbols, params, nonempty, products, sums, outputs, programs, lacks, summary }
    }

    /// What a device of a target runs.
    pub fn program(&self, target: Target, limits: &Limits) -> Option<&Program<C>> {
        Program::chosen(self.programs.iter(), target, limits).map(|place| &self.programs[place])
    }
}

impl<C: Clone + 'static> Program<C> {
    /// Which of these a device of a target runs: the first that it has the buffers for, or else the one that asks for least.
    pub(crate) fn chosen<'p>(
        programs: impl Iterator<Item = &'p Program<C>>,
        target: Target,
        limits: &Limits,
    ) -> Option<usize> {
        let mut of_target = programs.enumerate().filter(|(_, program)| program.target == target);
        let mut last = None;
        let fits = of_target.find(|(place, program)| {
            last = Some(*place);
            program.buffers <= limits.buffers
        });
        fits.map(|(place, _)| place).or(last)
    }

    /// The same program with what the target runs replaced.
    pub(crate) fn map_code<D: Clone + 'static>(self, map: &mut impl FnMut(&Text, C) -> D) -> Program<D> {
        self.map_launches(&mut |launch: Launch<C>| launch.map_code(map))
    }

    /// The same program with its launches replaced.
    pub(crate) fn map_launches<D: Clone + 'static>(
        self,
        map: &mut impl FnMut(Launch<C>) -> Launch<D>,
    ) -> Program<D> {
        let Program { target, buffers, temporaries, steps } = self;
        let mut variant = |Variant { when, launches }| Variant { when, launches: list(launches, &mut *map) };
        let steps = list(steps, |Step { variants }| Step { variants: list(variants, &mut variant) });
        Program { target, buffers, temporaries, steps }
    }
}

impl<C: Clone + 'static> Launch<C> {
    pub(crate) fn map_code<D: Clone + 'static>(self, map: &mut impl FnMut(&Text, C) -> D) -> Launch<D> {
        let Launch {
            kernel,
            code,
            index,
            buffers,
            uniforms,
            space,
            team,
            row_memory,
            bytes,
            trips,
            prologue,
            cluster,
        } = self;
        let code = map(&kernel, code);
        Launch {
            kernel,
            code,
            index,
            buffers,
            uniforms,
            space,
            team,
            row_memory,
            bytes,
            trips,
            prologue,
            cluster,
        }
    }
}

impl Plan<u16> {
    /// The bytes that `fuse!` writes; each code is its number in the table beside them.
    ///
    /// # Panics
    /// Never: memory is all that it takes.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("a plan is lists, numbers and texts")
    }

    /// The plan that was written as these bytes, by the same version of this crate.
    ///
    /// # Panics
    /// Where they are none.
    pub fn from_bytes(bytes: &[u8]) -> Plan<u16> {
        postcard::from_bytes(bytes).expect("`fuse!` and the runtime are of one version")
    }
}

fn list<T: Clone + 'static, U: Clone + 'static>(items: List<T>, map: impl FnMut(T) -> U) -> List<U> {
    items.into_owned().into_iter().map(map).collect()
}

/// A family of devices that run the same texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Target {
    /// NVIDIA GPUs, through PTX.
    Ptx,
    /// Every GPU, through WGSL.
    Wgsl,
    /// The processor itself.
    Cpu,
}

impl Target {
    /// Every target.
    pub const ALL: [Target; 3] = [Target::Ptx, Target::Wgsl, Target::Cpu];

    /// As users write it in `#[fuse(targets(…))]`.
    pub const fn name(self) -> &'static str {
        match self {
            Target::Ptx => "ptx",
            Target::Wgsl => "wgsl",
            Target::Cpu => "cpu",
        }
    }
}

/// What a caller passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Param {
    /// Name in the signature.
    pub name: Text,
    /// Of the elements, or of the scalar.
    pub dtype: DType,
    /// Tensor, scalar or extent.
    pub kind: ParamKind,
}

/// What a parameter is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ParamKind {
    /// A tensor with these dims, outermost first.
    Tensor {
        /// Whether it is `&mut`.
        access: Access,
        /// Outermost first.
        dims: List<Dim>,
    },
    /// A tensor of any rank, whose number of elements is symbol 0. All such parameters of a call have one
    /// shape, and so have the results.
    AnyShape {
        /// Whether it is `&mut`.
        access: Access,
    },
    /// A number.
    Scalar,
    /// An extent: the value of this symbol.
    Dim(u16),
}

/// One dim of a tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dim {
    /// As the user wrote it, for messages.
    pub name: Text,
    /// A lone symbol is bound by the first parameter that has it; anything else is checked.
    pub extent: DimExpr,
}

/// A dim that is several others together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Product {
    /// Its extent is the product of theirs: a call checks it.
    pub whole: Dim,
    /// Outermost first. A part without a name is one of the function below, which users have no name for.
    pub parts: List<Dim>,
    /// The function of the library that splits the dim, if it is one.
    pub library: Option<Text>,
}

/// A dim that is several others one after another, and whose coordinates are computed with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    /// Its extent is the sum of theirs, and fits in an `i32`: a call checks both.
    pub whole: Dim,
    /// In order; none has a negative extent.
    pub parts: List<Dim>,
    /// For errors.
    pub of: Use,
}

/// A tensor that a call makes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Of its elements.
    pub dtype: DType,
    /// Outermost first. Empty and `any_shape` for results of `ParamKind::AnyShape` parameters.
    pub dims: List<Dim>,
    /// The result has the shape of the `AnyShape` parameters.
    pub any_shape: bool,
    /// Returned, or the new content of a `&mut` parameter whose old one was still read elsewhere.
    pub dest: Dest,
}

/// Where a made tensor goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dest {
    /// To the caller, in order.
    Returned,
    /// Into the `&mut` parameter of this number, when all steps have run.
    Replaces(u16),
}

/// The steps for one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program<C: Clone + 'static> {
    /// For which.
    pub target: Target,
    /// Most storage buffers that a kernel of it binds, where no tensor is larger than a binding.
    pub buffers: u32,
    /// Tensors that live only within the call.
    pub temporaries: List<Temporary>,
    /// In order.
    pub steps: List<Step<C>>,
}

/// Memory that lives within one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Temporary {
    /// Of its elements.
    pub dtype: DType,
    /// Number of elements.
    pub len: DimExpr,
    /// The steps that may need it: from the one that writes it to the last that reads it. A step whose variant has no
    /// use for it does without.
    pub first: u16,
    /// Inclusive.
    pub last: u16,
}

impl Temporary {
    /// Its size in memory.
    pub fn bytes(&self) -> DimExpr {
        self.len.clone() * DimExpr::constant(self.dtype.size() as i64)
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step<C: Clone + 'static> {
    /// In order of preference; the last has no conditions.
    pub variants: List<Variant<C>>,
}

impl<C: Clone> Step<C> {
    /// The variant that a call with these extents takes on a device with these limits.
    pub fn chosen(&self, symbols: &[i64], limits: &Limits) -> Option<&Variant<C>> {
        let holds = |condition: &Condition| condition.holds(symbols, limits);
        self.variants.iter().find(|variant| variant.when.iter().all(holds))
    }
}

/// One way to do a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variant<C: Clone + 'static> {
    /// All must hold.
    pub when: List<Condition>,
    /// In order.
    pub launches: List<Launch<C>>,
}

/// One kernel and its arguments.
///
/// * PTX: `.param` in order: the address of each buffer (`.u64`), then the uniforms (`.u32`, `.f32`, or
///   `.u64` for positions of a 64-bit variant). Any grid of one dimension will do, and any block size that suits `team`.
/// * WGSL: buffers are `@group(0) @binding(i)`, one tensor behind several of them if it is read through several windows
///   (`Footprint::Windows`); the uniforms follow each other in the struct `args`, 4 bytes
///   each, bound as `@group(1) @binding(0)` or as immediates. Override `block` is the workgroup size; groups
///   may be folded into `x` and `y`. Buffers are bound from a multiple of the device's alignment and to a
///   multiple of 16 bytes.
/// * CPU: the functions take `CpuArgs`. What they write is given as the window of the items they are to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch<C: Clone + 'static> {
    /// Name of the entry point.
    pub kernel: Text,
    /// What to run.
    pub code: C,
    /// Of positions.
    pub index: IndexWidth,
    /// In the order of the kernel's buffers.
    pub buffers: List<BufferArg>,
    /// In the order of the kernel's uniforms.
    pub uniforms: List<UniformArg>,
    /// What the launch iterates over.
    pub space: Space,
    /// Threads that work on one iteration together, a power of two; 1 where each works by itself. With more than a warp,
    /// or on WGSL, a team is a block; with a warp, a block is any number of teams.
    pub team: u32,
    /// Bytes for the elements of a row: shared memory for each team on PTX, scratch memory for each thread on the CPU.
    pub row_memory: DimExpr,
    /// Bytes of tensors that it reads and writes. What each row has of its own counts as often as the kernel goes through
    /// it, once where the CPU's cache has it from the time before; what rows have in common counts once.
    pub bytes: DimExpr,
    /// Blocks of a cluster, each of which is a team, that work on one iteration together; 1 where each works by itself. PTX only.
    pub cluster: DimExpr,
    /// Most trips through loops that a thread makes for one iteration. WGSL only, where a device may end loops early; else 0.
    pub trips: DimExpr,
    /// Whether each thread combines elements once, before its iterations: as many threads as a device has at work at a time do
    /// that, and no more.
    pub prologue: bool,
}

/// An iteration space: `rows × cols` elements, the columns contiguous in whatever is written.
///
/// A GPU thread or team takes `grain` elements at a time, so a launch has `⌈rows·cols / grain⌉` iterations to deal
/// out. The CPU deals out items: runs of at most `grain` elements that do not cross a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Space {
    /// Product of the outer extents.
    pub rows: DimExpr,
    /// The innermost extent.
    pub cols: DimExpr,
    /// Elements at a time.
    pub grain: u32,
    /// What an element is made of: elements that are gone through for each.
    pub each: DimExpr,
}

impl Space {
    /// Elements in all.
    pub fn elements(&self, symbols: &[i64]) -> Option<i64> {
        self.rows.eval(symbols)?.checked_mul(self.cols.eval(symbols)?)
    }

    /// CPU items in all.
    pub fn items(&self, symbols: &[i64]) -> Option<i64> {
        self.rows.eval(symbols)?.checked_mul(self.items_per_row(symbols)?)
    }

    /// The first element of a CPU item; for one past the last item, the number of elements.
    pub fn start(&self, item: i64, symbols: &[i64]) -> Option<i64> {
        let (cols, items) = (self.cols.eval(symbols)?, self.items_per_row(symbols)?);
        let (row, block) = (item.checked_div(items)?, item.checked_rem(items)?);
        Some(row * cols + block * i64::from(self.grain))
    }

    fn items_per_row(&self, symbols: &[i64]) -> Option<i64> {
        let grain = i64::from(self.grain);
        self.cols.eval(symbols)?.checked_add(grain - 1)?.checked_div(grain)
    }
}

/// What a target runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Code<C> {
    /// A PTX module with one entry.
    Ptx(Text),
    /// A WGSL module with one entry.
    Wgsl(Text),
    /// The CPU's functions, or kernels.
    Cpu(C),
}

/// The memory behind a kernel's buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BufferArg {
    /// Which.
    pub slot: Slot,
    /// What the kernel does with it.
    pub access: Access,
    /// Of its elements.
    pub dtype: DType,
    /// How the kernel's positions in it follow from the iteration space.
    pub reach: Footprint,
    /// Whether it is bound as a uniform: one element, or memory for `UNIFORM_LEN`.
    pub uniform: bool,
}

/// Which part of a buffer a part of the iteration space touches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Footprint {
    /// Element `i` of the space is elements `k·i … k·(i+1)` of the buffer, for this `k`: a launch may be cut into
    /// chunks, and CPU items own their part of it.
    Linear(DimExpr),
    /// The same of the elements of the space that the buffer has: element `i` is `each` elements from `each·i - from` on. Those
    /// that would lie outside of the buffer are not touched.
    Part {
        /// Elements of the buffer for one of the space.
        each: DimExpr,
        /// Elements that would come before the first.
        from: DimExpr,
    },
    /// Rows lie side by side: of each run of `inner` elements of the space the buffer has `each` runs, one after another.
    /// Element `i` of the space is elements `(⌊i / inner⌋·each + e)·inner + i mod inner` of it, for all `e` below `each`.
    /// Only of what is written.
    Strided {
        /// Elements of a row.
        each: DimExpr,
        /// Rows that lie side by side.
        inner: DimExpr,
    },
    /// Any element may be read; all are seen at once. What is written of it is by the first element of the space alone.
    Whole,
    /// Elements are read where the map says, through a window on part of the buffer. The kernel leaves alone the
    /// elements of the space that need what lies outside of one of its windows: launched for all combinations of
    /// windows, it does each element once. WGSL only.
    Windows(IndexMap),
}

/// Where in a buffer each element of the space is read: at `start + Σ coordinate · stride`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IndexMap {
    /// Position at the first element of the space.
    pub start: DimExpr,
    /// Extents of the space's dims, outermost first, each with its stride in the buffer, ≥ 0.
    pub dims: List<(DimExpr, DimExpr)>,
}

impl IndexMap {
    /// The least and the greatest `Σ coordinate · stride` of the elements `first ..= last` of the space, or more than
    /// these where the elements are no box of coordinates.
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

/// Whose memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Slot {
    /// Of the tensor parameter of this number (position in `Plan::params`).
    Param(u16),
    /// Of the output of this number.
    Output(u16),
    /// Of the temporary of this number.
    Temp(u16),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bounds of positions in an operand of these strides, of the elements of a space, against all of its elements.
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
