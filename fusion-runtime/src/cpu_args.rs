//! The arguments of CPU kernels.
//!
//! Invariant: `CpuArgs` checks every request of generated code, so generated code needs no `unsafe`.

use std::marker::PhantomData;

use fusion_compiler::ir::dtype::DType;
use fusion_compiler::ir::graph::Access;

use crate::prefetch::Prefetcher;
use crate::window::{Rows, Run, StridedLayout, Window, Word};

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

/// The arguments of a CPU function, as generated code sees them.
///
/// - `range()` returns the items to run.
/// - `grain()` returns the number of elements of an item that does not end its row.
/// - `block()` returns the first column and the length of the block of a row, if items are blocks.
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
    grain: usize,
    block: (usize, usize),
    buffers: &'a mut [CpuBuffer],
    uniforms: &'a [CpuUniform],
    rows: &'a mut [f32],
    prefetcher: Prefetcher,
    memory: PhantomData<&'a mut [u8]>,
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
    /// Elements that belong to an item.
    pub(crate) share: Share,
    /// Element type.
    pub(crate) dtype: DType,
    /// Access of the kernel. A written buffer is handed out once, as a window.
    pub(crate) access: Access,
    /// True after the window has been handed out.
    pub(crate) has_writer: bool,
    /// Layout of strided rows, if rows are strided. The buffer is then the whole tensor.
    pub(crate) strided: Option<StridedLayout>,
    /// Elements of the space that belong to the items.
    pub(crate) own: (usize, usize),
    /// True if writes use non-temporal stores.
    pub(crate) streams: bool,
}

/// The elements of a buffer that belong to an item.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Share {
    /// So many for each element of the iteration space.
    PerElement(usize),
    /// One.
    PerItem,
    /// All for the first item, and none for the others.
    Whole,
}

impl Share {
    /// Returns the number of elements for each element of the iteration space, if elements have a share.
    pub(crate) fn per_element(self) -> Option<usize> {
        match self {
            Share::PerElement(per) => Some(per),
            Share::PerItem | Share::Whole => None,
        }
    }
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
    /// - `has_writer` of no buffer is set.
    pub(crate) unsafe fn new(
        range: (usize, usize),
        buffers: &'a mut [CpuBuffer],
        uniforms: &'a [CpuUniform],
        rows: &'a mut [f32],
    ) -> CpuArgs<'a> {
        let (grain, block, prefetcher) = (1, (0, 0), Prefetcher::default());
        CpuArgs { range, grain, block, buffers, uniforms, rows, prefetcher, memory: PhantomData }
    }

    /// Sets the number of elements of an item that does not end its row.
    pub(crate) fn with_grain(self, grain: usize) -> CpuArgs<'a> {
        CpuArgs { grain, ..self }
    }

    /// Sets the first column and the length of the block of a row that the item is.
    pub(crate) fn with_block(self, block: (usize, usize)) -> CpuArgs<'a> {
        CpuArgs { block, ..self }
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

    /// Returns the number of elements of an item that does not end its row.
    #[inline]
    pub fn grain(&self) -> usize {
        self.grain
    }

    /// Returns the first column and the length of the block of a row that the item is.
    #[inline]
    pub fn block(&self) -> (usize, usize) {
        self.block
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
        let writable = buffer.access != Access::Read && !buffer.has_writer;
        assert!(writable && T::holds(buffer.dtype), "{}", mismatch("write", i, buffer));
        buffer.has_writer = true;
        if let Some(strided) = buffer.strided {
            let own = buffer.own.0..buffer.own.1;
            // SAFETY: by the contract of `new`, the memory has `len` such elements for `'a`, and no other
            // code accesses the elements of `own`. `has_writer` prevents a second window.
            return Window::Strided(unsafe { Rows::new(buffer.ptr.cast::<T>(), buffer.len, strided, own) });
        }
        // SAFETY: by the contract of `new`, the memory has `len` such elements for `'a`, and no other code
        // accesses it. `has_writer` prevents a second slice.
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
