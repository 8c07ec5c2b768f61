//! Lanes of vector loops in generated code: their sums, and the lines that they store.

use std::cell::RefCell;
use std::ops::{Deref, Range};

use bytemuck::Pod;
use fusion_compiler::ir::kernel::{CACHE_LINE, FOLD_LANES, FOLD_LANES_WIDE};
use fusion_compiler::target::tuning_table::cpu::STREAM_LANES;

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
pub(crate) fn sum_lanes<const L: usize>(parts: &mut [(f32,); L]) -> f64 {
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

/// Elements next to each other of memory that may have only some of them.
#[derive(Debug)]
pub enum Around<'a, T> {
    /// All elements are in memory.
    Inside(&'a [T]),
    /// A copy of so many elements, in words. Elements that memory lacks are 0.
    Edge(Vec<u64>, usize),
}

thread_local! {
    /// Memory of copies, which later copies use again.
    static EDGES: RefCell<Vec<Vec<u64>>> = const { RefCell::new(Vec::new()) };
}

/// Returns the elements from `start` on of memory that may have only some of them. Positions before the first element
/// wrap.
#[inline(always)]
pub fn around<T: Pod>(memory: &[T], start: usize, len: usize) -> Around<'_, T> {
    match start.checked_add(len).and_then(|end| memory.get(start..end)) {
        Some(run) => Around::Inside(run),
        None => edge(memory, start, len),
    }
}

#[cold]
#[inline(never)]
fn edge<T: Pod>(memory: &[T], start: usize, len: usize) -> Around<'_, T> {
    let mut words = EDGES.with_borrow_mut(Vec::pop).unwrap_or_default();
    words.clear();
    words.resize((len * size_of::<T>()).div_ceil(size_of::<u64>()), 0);
    let run: &mut [T] = &mut bytemuck::pod_align_to_mut(&mut words).1[..len];
    // Either the run begins in memory, or memory begins in the run.
    let (from, to) = if start < memory.len() { (start, 0) } else { (0, start.wrapping_neg()) };
    if let Some(to) = run.get_mut(to..) {
        let count = to.len().min(memory.len() - from);
        to[..count].copy_from_slice(&memory[from..][..count]);
    }
    Around::Edge(words, len)
}

impl<T: Pod> Deref for Around<'_, T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        match self {
            Around::Inside(run) => run,
            Around::Edge(words, len) => &bytemuck::pod_align_to(words).1[..*len],
        }
    }
}

impl<T> Drop for Around<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Around::Edge(words, _) = self {
            let words = std::mem::take(words);
            // A thread that ends has no such memory any more.
            let _ = EDGES.try_with(|edges| edges.borrow_mut().push(words));
        }
    }
}

/// A tile before its stores, aligned to cache lines.
///
/// Some loops, such as a loop that reads every eighth element, leave the tile in memory. An unaligned stack
/// slot could place a vector of the tile across two pages, which is slow.
#[derive(Debug)]
#[repr(align(64))]
pub struct Lines<T>(pub T);

/// Returns the range of a run's elements that fills tiles of whole lines.
#[inline(always)]
pub fn tiles<T>(run: &[T]) -> Range<usize> {
    let head = run.as_ptr().align_offset(CACHE_LINE).min(run.len());
    head..head + (run.len() - head) / STREAM_LANES * STREAM_LANES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_outside_of_memory_are_0() {
        let memory = [1, 2, 3, 4];
        for start in -7..7_isize {
            for len in 0..8 {
                let element =
                    |i| usize::try_from(start + i).ok().and_then(|at| memory.get(at).copied()).unwrap_or(0);
                let expected: Vec<i32> = (0..len).map(element).collect();
                assert_eq!(&around(&memory, start as usize, len as usize)[..], expected, "{start} {len}");
            }
        }
        assert_eq!(around::<i32>(&[], 0, 2)[..], [0, 0]);
        assert!(matches!(around(&memory, 1, 3), Around::Inside([2, 3, 4])));
    }
}
