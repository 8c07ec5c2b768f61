//! Windows: the elements of a buffer that the items of a launch may write.
//!
//! Invariant: an element in a window belongs to the items of that window alone, for any request of generated
//! code.

use std::marker::PhantomData;
use std::ops::Range;

use fusion_compiler::ir::dtype::DType;

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

/// A window: the elements of a buffer that belong to one call of a CPU function.
#[derive(Debug)]
pub enum Window<'a, T> {
    /// A contiguous range.
    Run(Run<'a, T>),
    /// Elements of strided rows.
    Strided(Rows<'a, T>),
}

/// A window of contiguous elements.
#[derive(Debug)]
pub struct Run<'a, T> {
    elements: &'a mut [T],
    /// Number of the first element in the buffer.
    first: usize,
    streams: bool,
}

/// Layout of strided rows: the buffer has `each` runs of `inner` elements for every run of `inner` elements
/// of the space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StridedLayout {
    pub(crate) each: usize,
    pub(crate) inner: usize,
}

/// A window of a buffer with strided rows.
#[derive(Debug)]
pub struct Rows<'a, T> {
    ptr: *mut T,
    len: usize,
    layout: StridedLayout,
    /// Elements of the space that belong to the items.
    own: Range<usize>,
    memory: PhantomData<&'a mut [T]>,
}

impl<'a, T> Window<'a, T> {
    /// Returns `len` elements from element `first` on.
    ///
    /// # Panics
    /// If the range is not within the window. Generated code requests no other range.
    pub fn run(&mut self, first: usize, len: usize) -> &mut [T] {
        match self {
            Window::Run(run) => run.run(first, len),
            Window::Strided(rows) => rows.run(first, len),
        }
    }

    /// Returns the contiguous window.
    ///
    /// # Panics
    /// If the rows are strided. Generated code knows the layout of the buffer.
    pub fn neighbours(self) -> Run<'a, T> {
        match self {
            Window::Run(run) => run,
            Window::Strided(_) => unreachable!("rows lie side by side in the buffer"),
        }
    }

    /// Returns the window of strided rows.
    ///
    /// # Panics
    /// If the window is contiguous. Generated code knows the layout of the buffer.
    pub fn rows(self) -> Rows<'a, T> {
        match self {
            Window::Run(_) => unreachable!("no rows lie side by side in the buffer"),
            Window::Strided(rows) => rows,
        }
    }
}

impl<'a, T> Run<'a, T> {
    /// Makes a window of `elements`, the first of which has the number `first`. `streams` selects
    /// non-temporal stores.
    pub(crate) fn new(elements: &'a mut [T], first: usize, streams: bool) -> Run<'a, T> {
        Run { elements, first, streams }
    }

    /// Returns true if writes use non-temporal stores, by `stream`.
    #[inline(always)]
    pub fn streams(&self) -> bool {
        self.streams
    }

    /// Returns all elements, and the number of the first.
    pub fn all(self) -> (&'a mut [T], usize) {
        (self.elements, self.first)
    }

    /// Returns `len` elements from element `first` on.
    ///
    /// # Panics
    /// If the range is not within the window. Generated code requests no other range.
    #[inline(always)]
    pub fn run(&mut self, first: usize, len: usize) -> &mut [T] {
        &mut self.elements[first - self.first..][..len]
    }

    /// Returns one element.
    ///
    /// # Panics
    /// Under the conditions of `run`.
    #[inline(always)]
    pub fn at(&mut self, i: usize) -> &mut T {
        &mut self.elements[i - self.first]
    }
}

impl<'a, T> Rows<'a, T> {
    /// Makes a window of the buffer of `len` elements at `ptr`, for the elements `own` of the space.
    ///
    /// # Safety
    ///
    /// For `'a` the buffer is initialised memory, and no other code accesses the buffer's elements that
    /// belong to `own`.
    pub(crate) unsafe fn new(
        ptr: *mut T,
        len: usize,
        layout: StridedLayout,
        own: Range<usize>,
    ) -> Rows<'a, T> {
        Rows { ptr, len, layout, own, memory: PhantomData }
    }

    /// Returns `len` elements of one run, from element `first` on.
    ///
    /// # Panics
    /// If the range is not within the window. Generated code requests no other range.
    #[inline(always)]
    pub fn run(&mut self, first: usize, len: usize) -> &mut [T] {
        let StridedLayout { each, inner } = self.layout;
        let (run, column) = (first / inner, first % inner);
        let element = run / each * inner + column;
        let own = element >= self.own.start && element <= self.own.end && len <= self.own.end - element;
        let within = len <= inner - column && first <= self.len && len <= self.len - first;
        assert!(own && within, "{len} elements from {first} on are not all within the window");
        // SAFETY: the elements are within the buffer and within one run of `inner`. These are elements
        // `element..element + len` of the space, which belong to these items. The borrow of `self` prevents a
        // second slice.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(first), len) }
    }

    /// Returns one element.
    ///
    /// # Panics
    /// Under the conditions of `run`.
    #[inline(always)]
    pub fn at(&mut self, i: usize) -> &mut T {
        &mut self.run(i, 1)[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the runs of a `[2, 3, 4]` tensor, reduced along its middle dim, that belong to elements `own`
    /// of the `[2, 4]` space.
    fn runs(own: Range<usize>) -> Vec<(usize, usize)> {
        let mut elements: Vec<usize> = (0..24).collect();
        let layout = StridedLayout { each: 3, inner: 4 };
        // SAFETY: nothing else accesses the elements while the window is used.
        let mut window = unsafe { Rows::new(elements.as_mut_ptr(), 24, layout, own) };
        let mut has = |first, len| {
            let run =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| window.run(first, len).to_vec()));
            run.inspect(|run| assert_eq!(*run, (first..first + len).collect::<Vec<_>>())).is_ok()
        };
        let all = (0..26).flat_map(|first| (1..6).map(move |len| (first, len)));
        all.filter(|&(first, len)| has(first, len)).collect()
    }

    #[test]
    fn only_own_elements_are_given_out() {
        for own in [0..4, 4..8, 1..3, 3..6, 0..8, 5..5] {
            let owns = |first: usize, len: usize| {
                let row = |at: usize| (at / 12, at % 4);
                let all = first..first + len;
                // The elements are contiguous in the tensor and within one run.
                first / 4 == (first + len - 1) / 4 && all.end <= 24 && { all }
                    .all(|at| own.contains(&(row(at).0 * 4 + row(at).1)))
            };
            let all = (0..26).flat_map(|first| (1..6).map(move |len| (first, len)));
            let expected: Vec<(usize, usize)> = all.filter(|&(first, len)| owns(first, len)).collect();
            assert_eq!(runs(own.clone()), expected, "{own:?}");
        }
    }
}
