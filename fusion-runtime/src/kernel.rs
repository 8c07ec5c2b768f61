//! The contract with generated code: the plan, and what the CPU runs of it.
//!
//! Invariant: whatever generated code asks of `CpuArgs` is checked, so that it needs no `unsafe` of its own.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use fusion_compiler::KernelCode;
use fusion_compiler::ir::dtype::DType;
use fusion_compiler::ir::graph::Access;
use fusion_compiler::ir::kernel::{FOLD_LANES, FOLD_LANES_WIDE, Kernel};
use fusion_compiler::ir::plan;

use crate::device::cpu::fetch::Fetches;
use crate::isa::Isa;
use crate::window::{Beside, Rows, Run, Window};

/// What a target runs.
pub type Code = plan::Code<CpuCode>;
/// A compiled function.
pub type Plan = plan::Plan<Code>;
/// One kernel and its arguments.
pub type Launch = plan::Launch<Code>;

/// A compiled function as `fuse!` writes it: read when it is called for the first time.
#[derive(Debug)]
pub struct StaticPlan {
    bytes: &'static [u8],
    codes: &'static [Code],
    plan: OnceLock<Plan>,
}

impl StaticPlan {
    /// Of the bytes of a plan, and the codes that these number.
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

/// The value of a scalar parameter, in the type that it is computed in.
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

/// A function that runs items of a launch. Unsafe to call where its instructions are missing.
pub type CpuFn = unsafe fn(&mut CpuArgs<'_>);

/// What the CPU runs for one launch.
#[derive(Clone, Debug)]
pub enum CpuCode {
    /// Functions of one meaning, best first; the last is `Isa::Base`.
    Compiled(&'static [(Isa, CpuFn)]),
    /// A kernel made at run time, legal for a CPU with fused multiply-add: the tile interpreter runs it.
    Interpreted(Arc<Kernel>),
}

/// A plan that was compiled at run time, in the form that the executor runs: its CPU kernels are interpreted.
pub fn interpreted(plan: plan::Plan<KernelCode>) -> Plan {
    plan.map_code(|_, code| match code {
        plan::Code::Ptx(text) => Code::Ptx(text),
        plan::Code::Wgsl(text) => Code::Wgsl(text),
        plan::Code::Cpu(code) => Code::Cpu(CpuCode::Interpreted(Arc::new(code.kernel))),
    })
}

/// What the lanes of a vector loop make together, of their partial results: the second half is combined with the first, and so
/// on. It is inlined so that the vectors are those that the caller is compiled for.
#[inline(always)]
pub fn fold_lanes<T: Copy, const L: usize>(parts: &mut [T; L], combine: impl Fn(T, T) -> T) -> T {
    quarters::<T, L, 1>(parts, combine);
    parts[0]
}

/// The same of sums of `f32`, the last of which are of `f64`.
#[inline(always)]
pub fn sum_lanes<const L: usize>(parts: &mut [(f32,); L]) -> f64 {
    quarters::<_, L, FOLD_LANES_WIDE>(parts, |(left,), (right,)| (left + right,));
    let lane = |lane: usize| f64::from(parts[lane].0);
    if L < FOLD_LANES_WIDE { lane(0) } else { (lane(0) + lane(2)) + (lane(1) + lane(3)) }
}

/// Combines the second half of partial results with the first, and so on, until these are no more than so many.
#[inline(always)]
fn quarters<T: Copy, const L: usize, const LEFT: usize>(parts: &mut [T; L], combine: impl Fn(T, T) -> T) {
    // Loops of a known length, which need no checks; iterators would be many functions to compile for each kernel.
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

/// What two halvings leave in a lane of a quarter of so many. Halves that are stored in between LLVM has wait in memory: a product
/// of 64 took 24 ns so, and takes 11.
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

/// A sum of `f64` that keeps what its additions round off (Knuth's two-sum, Neumaier 1974).
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

    /// The sum, which is infinite or NaN where that of the numbers is.
    #[inline(always)]
    pub fn sum(self) -> f64 {
        self.so_far + if self.rounded_off.is_finite() { self.rounded_off } else { 0.0 }
    }
}

/// Memory of a thread for `f64`: all of it but for what lies before the first place of one.
#[inline]
pub fn doubles(memory: &mut [f32]) -> &mut [f64] {
    bytemuck::pod_align_to_mut(memory).1
}

/// The arguments of a CPU function, as generated code sees them.
///
/// `range()` are the items to run. `read::<T>(i)` is the whole of buffer `i`; `write::<T>(i)` is the part of buffer
/// `i` that belongs to these items, and may be asked for once. Elements of one or two bytes are their bits.
/// `index(i)`, `f32(i)`, `f64(i)`, `i32(i)`, `u32(i)` and `bool(i)` are uniforms. Asking for what the launch does not
/// have is a bug in the compiler and panics.
#[derive(Debug)]
pub struct CpuArgs<'a> {
    range: (usize, usize),
    buffers: &'a mut [CpuBuffer],
    uniforms: &'a [CpuUniform],
    rows: &'a mut [f32],
    fetches: Fetches,
    memory: PhantomData<&'a mut [u8]>,
}

/// What the memory of a buffer is an array of: plain numbers, of which any bits are one.
pub trait Word: Copy + Sealed {
    /// Whether elements of this type lie in such words.
    fn holds(dtype: DType) -> bool;
}

mod sealed {
    /// Of these types alone.
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

/// The memory behind a buffer: all of it if it is read, the window of the items if it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuBuffer {
    /// The first element.
    pub(crate) ptr: *mut u8,
    /// Elements.
    pub(crate) len: usize,
    /// Number of the first element in the tensor.
    pub(crate) first: usize,
    /// Elements for each element of the iteration space, where there are as many for all; else the first item has all.
    pub(crate) per: Option<usize>,
    /// Elements for those of the space before the first that it has.
    pub(crate) from: usize,
    /// Of the elements.
    pub(crate) dtype: DType,
    /// What the kernel may do with it. Whatever may be written is handed out once, and is `Read`-less after.
    pub(crate) access: Access,
    /// Whether the window has been handed out.
    pub(crate) taken: bool,
    /// How rows lie side by side in it, if they do; then this is all of the buffer.
    pub(crate) beside: Option<Beside>,
    /// The elements of the space that are the items'.
    pub(crate) own: (usize, usize),
    /// Whether what is written goes around the caches.
    pub(crate) streams: bool,
}

/// A uniform, resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CpuUniform {
    /// An extent.
    Index(usize),
    /// A scalar parameter.
    Scalar(ScalarValue),
}

impl<'a> CpuArgs<'a> {
    /// The arguments to run the items `range`.
    ///
    /// # Safety
    ///
    /// For `'a`, each buffer is initialised memory of `len` elements of its `dtype`, aligned to them; what is not
    /// `Access::Read`, or of what is `beside` the elements of `own`, is overlapped by nothing else that is accessed
    /// meanwhile, here or on another thread; and nothing writes what is `Access::Read`. No buffer is `taken`.
    pub(crate) unsafe fn new(
        range: (usize, usize),
        buffers: &'a mut [CpuBuffer],
        uniforms: &'a [CpuUniform],
        rows: &'a mut [f32],
    ) -> CpuArgs<'a> {
        CpuArgs { range, buffers, uniforms, rows, fetches: Fetches::default(), memory: PhantomData }
    }

    /// The same for loops that ask for memory before they need it.
    pub(crate) fn fetching(self, fetches: Fetches) -> CpuArgs<'a> {
        CpuArgs { fetches, ..self }
    }

    /// What loops ask for before they need it.
    #[inline]
    pub fn fetches(&self) -> Fetches {
        self.fetches
    }

    /// The memory for elements of a row, in `N` equal parts. Once only.
    #[inline]
    pub fn row_memory<const N: usize>(&mut self) -> [&'a mut [f32]; N] {
        let rows = std::mem::take(&mut self.rows);
        let len = rows.len() / N;
        let mut parts = rows.chunks_exact_mut(len.max(1));
        // An empty row has none.
        std::array::from_fn(|_| parts.next().unwrap_or_default())
    }

    /// The items to run: from the first, up to and without the second.
    #[inline]
    pub fn range(&self) -> (usize, usize) {
        self.range
    }

    /// The whole of buffer `i`, which the launch only reads.
    #[inline]
    pub fn read<T: Word>(&self, i: usize) -> &'a [T] {
        let buffer = self.buffers[i];
        assert!(buffer.access == Access::Read && T::holds(buffer.dtype), "{}", mismatch("read", i, &buffer));
        // SAFETY: by the contract of `new`, the memory holds `len` such elements for `'a` and nothing writes it.
        unsafe { std::slice::from_raw_parts(buffer.ptr.cast::<T>(), buffer.len) }
    }

    /// The part of buffer `i` that belongs to these items. Once only.
    #[inline]
    pub fn write<T: Word>(&mut self, i: usize) -> Window<'a, T> {
        let buffer = &mut self.buffers[i];
        let writable = buffer.access != Access::Read && !buffer.taken;
        assert!(writable && T::holds(buffer.dtype), "{}", mismatch("write", i, buffer));
        buffer.taken = true;
        if let Some(beside) = buffer.beside {
            let own = buffer.own.0..buffer.own.1;
            // SAFETY: by the contract of `new`, the memory holds `len` such elements for `'a`, and nothing else accesses
            // those of the items' own; `taken` keeps a second window from being made.
            return Window::Beside(unsafe { Rows::new(buffer.ptr.cast::<T>(), buffer.len, beside, own) });
        }
        // SAFETY: by the contract of `new`, the memory holds `len` such elements for `'a` and nothing else
        // accesses it; `taken` keeps a second slice from being made.
        let elements = unsafe { std::slice::from_raw_parts_mut(buffer.ptr.cast::<T>(), buffer.len) };
        Window::Run(Run::new(elements, buffer.first, buffer.streams))
    }

    /// Uniform `i`, an extent.
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
