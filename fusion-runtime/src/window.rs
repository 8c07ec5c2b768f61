//! What the items of a launch may write of a buffer.
//!
//! Invariant: what is given out belongs to these items alone, whatever generated code asks for.

use std::marker::PhantomData;
use std::ops::Range;

/// The elements of a buffer that belong to the items of a call of a CPU function.
#[derive(Debug)]
pub enum Window<'a, T> {
    /// Neighbours.
    Run(Run<'a, T>),
    /// Elements of rows that lie side by side.
    Beside(Rows<'a, T>),
}

/// Neighbouring elements of a buffer.
#[derive(Debug)]
pub struct Run<'a, T> {
    elements: &'a mut [T],
    /// The number of the first.
    first: usize,
    streams: bool,
}

/// Rows that lie side by side: of each run of `inner` elements of the space the buffer has `each` runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beside {
    pub(crate) each: usize,
    pub(crate) inner: usize,
}

/// Elements of a buffer in which rows lie side by side.
#[derive(Debug)]
pub struct Rows<'a, T> {
    ptr: *mut T,
    len: usize,
    beside: Beside,
    /// The elements of the space that are the items'.
    own: Range<usize>,
    memory: PhantomData<&'a mut [T]>,
}

impl<'a, T> Window<'a, T> {
    /// As many elements from this one on.
    ///
    /// # Panics
    /// Where they are not all within the window; generated code asks for no others.
    pub fn run(&mut self, first: usize, len: usize) -> &mut [T] {
        match self {
            Window::Run(run) => run.run(first, len),
            Window::Beside(rows) => rows.run(first, len),
        }
    }

    /// All elements.
    ///
    /// # Panics
    /// Where they are no neighbours: who asks knows the reach of the buffer.
    pub fn neighbours(self) -> Run<'a, T> {
        match self {
            Window::Run(run) => run,
            Window::Beside(_) => unreachable!("rows lie side by side in the buffer"),
        }
    }

    /// All elements.
    ///
    /// # Panics
    /// Where rows do not lie side by side: who asks knows the reach of the buffer.
    pub fn rows(self) -> Rows<'a, T> {
        match self {
            Window::Run(_) => unreachable!("no rows lie side by side in the buffer"),
            Window::Beside(rows) => rows,
        }
    }
}

impl<'a, T> Run<'a, T> {
    /// `streams` says whether what is written goes around the caches.
    pub(crate) fn new(elements: &'a mut [T], first: usize, streams: bool) -> Run<'a, T> {
        Run { elements, first, streams }
    }

    /// Whether what is written goes around the caches, by `stream`.
    #[inline(always)]
    pub fn streams(&self) -> bool {
        self.streams
    }

    /// All of them, and the number of the first.
    pub fn all(self) -> (&'a mut [T], usize) {
        (self.elements, self.first)
    }

    /// As many elements from this one on.
    ///
    /// # Panics
    /// Where they are not all there; generated code asks for no others.
    #[inline(always)]
    pub fn run(&mut self, first: usize, len: usize) -> &mut [T] {
        &mut self.elements[first - self.first..][..len]
    }

    /// One element.
    ///
    /// # Panics
    /// As `run`.
    #[inline(always)]
    pub fn at(&mut self, i: usize) -> &mut T {
        &mut self.elements[i - self.first]
    }
}

impl<'a, T> Rows<'a, T> {
    /// Of the buffer of `len` elements at `ptr`, those of the elements `own` of the space.
    ///
    /// # Safety
    ///
    /// For `'a` the buffer is initialised memory, and nothing else accesses the elements that are made of `own`.
    pub(crate) unsafe fn new(ptr: *mut T, len: usize, beside: Beside, own: Range<usize>) -> Rows<'a, T> {
        Rows { ptr, len, beside, own, memory: PhantomData }
    }

    /// As many elements from this one on, which are of one run.
    ///
    /// # Panics
    /// Where they are not all there; generated code asks for no others.
    #[inline(always)]
    pub fn run(&mut self, first: usize, len: usize) -> &mut [T] {
        let Beside { each, inner } = self.beside;
        let (run, column) = (first / inner, first % inner);
        let element = run / each * inner + column;
        let own = element >= self.own.start && element <= self.own.end && len <= self.own.end - element;
        let within = len <= inner - column && first <= self.len && len <= self.len - first;
        assert!(own && within, "{len} elements from {first} on are not all within the window");
        // SAFETY: the elements are within the buffer, and `len` neighbours within one run of `inner`: they are of the elements
        // `element..element + len` of the space, which are these items' own. The borrow of `self` keeps a second slice
        // from being made.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(first), len) }
    }

    /// One element.
    ///
    /// # Panics
    /// As `run`.
    #[inline(always)]
    pub fn at(&mut self, i: usize) -> &mut T {
        &mut self.run(i, 1)[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which runs of a `[2, 3, 4]` tensor, of which the middle dim is that of rows, are elements `own` of the `[2, 4]` space.
    fn runs(own: Range<usize>) -> Vec<(usize, usize)> {
        let mut elements: Vec<usize> = (0..24).collect();
        let beside = Beside { each: 3, inner: 4 };
        // SAFETY: nothing else accesses the elements while the window is used.
        let mut window = unsafe { Rows::new(elements.as_mut_ptr(), 24, beside, own) };
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
                // Neighbours in the tensor, in one run.
                first / 4 == (first + len - 1) / 4 && all.end <= 24 && { all }
                    .all(|at| own.contains(&(row(at).0 * 4 + row(at).1)))
            };
            let all = (0..26).flat_map(|first| (1..6).map(move |len| (first, len)));
            let expected: Vec<(usize, usize)> = all.filter(|&(first, len)| owns(first, len)).collect();
            assert_eq!(runs(own.clone()), expected, "{own:?}");
        }
    }
}
