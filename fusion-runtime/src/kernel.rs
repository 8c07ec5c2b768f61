//! The contract with generated code: plans, and the arguments of CPU kernels.
//!
//! Invariant: `CpuArgs` checks every request of generated code, so generated code needs no `unsafe`.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use fusion_compiler::KernelCode;
use fusion_compiler::ir::dtype::DType;
use fusion_compiler::ir::graph::Access;
use fusion_compiler::ir::kernel::{FOLD_LANES, FOLD_LANES_WIDE, Kernel};
use fusion_compiler::ir::plan;

use crate::device::cpu::prefetch::Prefetcher;
use crate::isa::Isa;
use crate::window::{Beside, Rows, Run, Window};

/// The code of a kernel for one target.
pub type Code = plan::Code<CpuCode>;
/// The plan of a compiled function.
pub type Plan = plan::Plan<Code>;
/// One launch of a kernel with its arguments.
pub type Launch = plan::Launch<Code>;

/// A plan as `fuse!` writes it: bytes that the first call decodes.
#[derive(Debug)]
pub struct StaticPlan {
    bytes: &'static [u8],
    codes: &'static [Code],
    plan: OnceLock<Plan>,
}

impl StaticPlan {
    /// Makes a static plan of encoded bytes, and of the codes that the bytes refer to by number.
    pub const fn new(bytes: &'static [u8], codes: &'static [Code]) -> StaticPlan {
        StaticPlan { bytes, codes, plan: OnceLock::new() }
    }
}

impl Deref for StaticPlan {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        let read =
            || plan::Plan::from_bytes(self.bytes).map_code(|_, code| self.codes[usize::from(code)].clone());
        self.plan.get_or_init(read)
    }
}

/// The value of a scalar parameter, in the type of the computation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScalarValue {
    /// `f32`.
    F32(f32),
    /// `f64`.
    F64(f64),
    /// `i32`.
    I32(i32),
    /// `u32`.
    U32(u32),
    /// `bool`.
    Bool(bool),
}

/// A CPU function, which runs items of a launch.
///
/// A call is unsafe because the processor must have the function's instructions.
pub type CpuFn = unsafe fn(&mut CpuArgs<'_>);

/// The CPU code of one launch.
#[derive(Clone, Debug)]
pub enum CpuCode {
    /// Versions of one function, best instruction set first. The last is for `Isa::Base`.
    Compiled(&'static [(Isa, CpuFn)]),
    /// A kernel compiled at run time, for a CPU with fused multiply-add. The tile interpreter runs it.
    Interpreted(Arc<Kernel>),
}

/// Converts a plan compiled at run time to the form of the executor, with interpreted CPU kernels.
pub fn interpreted(plan: plan::Plan<KernelCode>) -> Plan {
    plan.map_code(|_, code| match code {
        plan::Code::Ptx(text) => Code::Ptx(text),
        plan::Code::Wgsl(text) => Code::Wgsl(text),
        plan::Code::Cpu(code) => Code::Cpu(CpuCode::Interpreted(Arc::new(code.kernel))),
    })
}

/// Combines the partial results of the lanes of a vector loop: repeatedly the second half with the first.
///
/// The function is inlined so that its vectors match the caller's instruction set.
#[inline(always)]
pub fn fold_lanes<T: Copy, const L: usize>(parts: &mut [T; L], combine: impl Fn(T, T) -> T) -> T {
    quarters::<T, L, 1>(parts, combine);
    parts[0]
}

/// Sums the `f32` partial results of lanes in the order of `fold_lanes`. The last four are added in `f64`.
#[inline(always)]
pub fn sum_lanes<const L: usize>(parts: &mut [(f32,); L]) -> f64 {
    quarters::<_, L, FOLD_LANES_WIDE>(parts, |(left,), (right,)| (left + right,));
    let lane = |lane: usize| f64::from(parts[lane].0);
    if L < FOLD_LANES_WIDE { lane(0) } else { (lane(0) + lane(2)) + (lane(1) + lane(3)) }
}

/// Combines the second half of partial results with the first, repeatedly, until `LEFT` remain.
#[inline(always)]
fn quarters<T: Copy, const L: usize, const LEFT: usize>(parts: &mut [T; L], combine: impl Fn(T, T) -> T) {
    // Loops of constant length need no bounds checks. Iterators would add many functions to compile per
    // kernel.
    macro_rules! quarters {
        ($($quarter:literal)*) => { $(
            if $quarter < L && $quarter >= LEFT {
                let mut lane = 0;
                while lane < $quarter {
                    parts[lane] = of_four(parts, lane, $quarter, &combine);
                    lane += 1;
                }
            }
        )* };
    }
    const { assert!(matches!(L, 1 | 4 | 16 | 64) && FOLD_LANES[0] == 64 && matches!(LEFT, 1 | 4)) };
    quarters!(16 4 1);
}

/// Returns one lane after two halvings, with `quarter` lanes left.
///
/// Two halvings in one expression need no memory. Otherwise LLVM stores the first half and waits for the
/// store.
#[inline(always)]
fn of_four<T: Copy, const L: usize>(
    parts: &[T; L],
    lane: usize,
    quarter: usize,
    combine: impl Fn(T, T) -> T,
) -> T {
    let [a, b, c, d] =
        [parts[lane], parts[lane + quarter], parts[lane + 2 * quarter], parts[lane + 3 * quarter]];
    combine(combine(a, c), combine(b, d))
}

/// A sum of `f64` with compensation for rounding (Knuth's two-sum, Neumaier 1974).
#[derive(Clone, Copy, Debug, Default)]
pub struct Total {
    so_far: f64,
    rounded_off: f64,
}

impl Total {
    /// Adds a number.
    #[inline(always)]
    pub fn add(&mut self, x: f64) {
        let all = self.so_far + x;
        let grown = all - self.so_far;
        self.rounded_off += (self.so_far - (all - grown)) + (x - grown);
        self.so_far = all;
    }

    /// Returns the sum. The sum is infinite or NaN if the exact sum of the numbers is.
    #[inline(always)]
    pub fn sum(self) -> f64 {
        self.so_far + if self.rounded_off.is_finite() { self.rounded_off } else { 0.0 }
    }
}

/// Returns the memory of a thread as `f64`, from the first aligned element on.
#[inline]
pub fn doubles(memory: &mut [f32]) -> &mut [f64] {
    bytemuck::pod_align_to_mut(memory).1
}

/// The arguments of a CPU function, as generated code sees them.
///
/// - `range()` returns the items to run.
/// - `read::<T>(i)` returns the whole of buffer `i`.
/// - `write::<T>(i)` returns the window of buffer `i` that belongs to these items. The method may be called
///   once per buffer.
/// - `index(i)`, `f32(i)`, `f64(i)`, `i32(i)`, `u32(i)` and `bool(i)` return uniforms.
///
/// Elements of one or two bytes are accessed as bits. A request that does not match the launch is a bug in
/// the compiler, and panics.
#[derive(Debug)]
pub struct CpuArgs<'a> {
    range: (usize, usize),
    buffers: &'a mut [CpuBuffer],
    uniforms: &'a [CpuUniform],
    rows: &'a mut [f32],
    prefetcher: Prefetcher,
    memory: PhantomData<&'a mut [u8]>,
}

/// A type of words that the memory of a buffer consists of. Every bit pattern is a valid word.
pub trait Word: Copy + Sealed {
    /// Returns true if elements of this dtype are stored in such words.
    fn holds(dtype: DType) -> bool;
}

mod sealed {
    /// Seals `Word`.
    pub trait Sealed {}
}
use sealed::Sealed;

macro_rules! words {
    ($($word:ty: $($dtype:ident)|+;)*) => { $(
        impl Sealed for $word {}

        impl Word for $word {
            #[inline]
            fn holds(dtype: DType) -> bool {
                matches!(dtype, $(DType::$dtype)|+)
            }
        }
    )* };
}

words! {
    f32: F32;
    f64: F64;
    i32: I32;
    u32: U32;
    u16: F16 | BF16 | I16 | U16;
    u8: I8 | U8 | Bool;
}

/// The memory of a buffer: all of it for reads, the window of the items for writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuBuffer {
    /// Address of the first element.
    pub(crate) ptr: *mut u8,
    /// Number of elements.
    pub(crate) len: usize,
    /// Number of the first element in the tensor.
    pub(crate) first: usize,
    /// Buffer elements per element of the iteration space; `None` if the first item owns the whole buffer.
    pub(crate) per: Option<usize>,
    /// Elements of the whole dim, in this buffer's count, that come before a portion.
    pub(crate) from: usize,
    /// Element type.
    pub(crate) dtype: DType,
    /// Access of the kernel. A written buffer is handed out once, as a window.
    pub(crate) access: Access,
    /// True after the window has been handed out.
    pub(crate) taken: bool,
    /// Layout of strided rows, if rows are strided. The buffer is then the whole tensor.
    pub(crate) beside: Option<Beside>,
    /// Elements of the space that belong to the items.
    pub(crate) own: (usize, usize),
    /// True if writes use non-temporal stores.
    pub(crate) streams: bool,
}

/// A resolved uniform.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CpuUniform {
    /// An extent.
    Index(usize),
    /// A scalar parameter.
    Scalar(ScalarValue),
}

impl<'a> CpuArgs<'a> {
    /// Makes the arguments to run the items `range`.
    ///
    /// # Safety
    ///
    /// For `'a` these conditions apply.
    ///
    /// - Each buffer is initialised memory of `len` elements of its `dtype`, and aligned to them.
    /// - No other code, on any thread, accesses the memory of a buffer that is not `Access::Read`. With
    ///   strided rows only the elements of `own` count.
    /// - No code writes an `Access::Read` buffer.
    /// - No buffer is `taken`.
    pub(crate) unsafe fn new(
        range: (usize, usize),
        buffers: &'a mut [CpuBuffer],
        uniforms: &'a [CpuUniform],
        rows: &'a mut [f32],
    ) -> CpuArgs<'a> {
        CpuArgs { range, buffers, uniforms, rows, prefetcher: Prefetcher::default(), memory: PhantomData }
    }

    /// Sets the prefetches of the loops.
    pub(crate) fn prefetching(self, prefetcher: Prefetcher) -> CpuArgs<'a> {
        CpuArgs { prefetcher, ..self }
    }

    /// Returns the prefetches of the loops.
    #[inline]
    pub fn prefetcher(&self) -> Prefetcher {
        self.prefetcher
    }

    /// Returns the row memory of the thread in `N` equal parts. The method may be called once.
    #[inline]
    pub fn row_memory<const N: usize>(&mut self) -> [&'a mut [f32]; N] {
        let rows = std::mem::take(&mut self.rows);
        let len = rows.len() / N;
        let mut parts = rows.chunks_exact_mut(len.max(1));
        // Parts of an empty row memory are empty.
        std::array::from_fn(|_| parts.next().unwrap_or_default())
    }

    /// Returns the items to run, as a half-open range.
    #[inline]
    pub fn range(&self) -> (usize, usize) {
        self.range
    }

    /// Returns the whole of buffer `i`, which the launch only reads.
    #[inline]
    pub fn read<T: Word>(&self, i: usize) -> &'a [T] {
        let buffer = self.buffers[i];
        assert!(buffer.access == Access::Read && T::holds(buffer.dtype), "{}", mismatch("read", i, &buffer));
        // SAFETY: by the contract of `new`, the memory has `len` such elements for `'a`, and no code writes
        // it.
        unsafe { std::slice::from_raw_parts(buffer.ptr.cast::<T>(), buffer.len) }
    }

    /// Returns the window of buffer `i` that belongs to these items. The method may be called once per
    /// buffer.
    #[inline]
    pub fn write<T: Word>(&mut self, i: usize) -> Window<'a, T> {
        let buffer = &mut self.buffers[i];
        let writable = buffer.access != Access::Read && !buffer.taken;
        assert!(writable && T::holds(buffer.dtype), "{}", mismatch("write", i, buffer));
        buffer.taken = true;
        if let Some(beside) = buffer.beside {
            let own = buffer.own.0..buffer.own.1;
            // SAFETY: by the contract of `new`, the memory has `len` such elements for `'a`, and no other
            // code accesses the elements of `own`. `taken` prevents a second window.
            return Window::Beside(unsafe { Rows::new(buffer.ptr.cast::<T>(), buffer.len, beside, own) });
        }
        // SAFETY: by the contract of `new`, the memory has `len` such elements for `'a`, and no other code
        // accesses it. `taken` prevents a second slice.
        let elements = unsafe { std::slice::from_raw_parts_mut(buffer.ptr.cast::<T>(), buffer.len) };
        Window::Run(Run::new(elements, buffer.first, buffer.streams))
    }

    /// Returns uniform `i`, an extent.
    #[inline]
    pub fn index(&self, i: usize) -> usize {
        match self.uniforms[i] {
            CpuUniform::Index(x) => x,
            CpuUniform::Scalar(_) => unreachable!("uniform {i} of the kernel is an extent"),
        }
    }

    fn scalar(&self, i: usize) -> ScalarValue {
        match self.uniforms[i] {
            CpuUniform::Scalar(value) => value,
            CpuUniform::Index(_) => unreachable!("uniform {i} of the kernel is a scalar"),
        }
    }
}

macro_rules! scalars {
    ($($name:ident: $kind:ident;)*) => {
        impl CpuArgs<'_> { $(
            #[doc = concat!("Uniform `i`, of type `", stringify!($name), "`.")]
            #[inline]
            pub fn $name(&self, i: usize) -> $name {
                let value = self.scalar(i);
                let ScalarValue::$kind(value) = value else { wrong_scalar(i, value) };
                value
            }
        )* }
    };
}

scalars! {
    f32: F32;
    f64: F64;
    i32: I32;
    u32: U32;
    bool: Bool;
}

#[cold]
fn mismatch(wanted: &str, i: usize, buffer: &CpuBuffer) -> String {
    format!("the kernel may {wanted} buffer {i} once as its own type, not as {buffer:?}")
}

#[cold]
fn wrong_scalar(i: usize, value: ScalarValue) -> ! {
    unreachable!("uniform {i} of the kernel has the type it asks for, not {value:?}")
}
