//! Packing of operands whose elements windows choose, as in convolutions: no tensor of all windows exists.
//!
//! Position and coordinates of an element are sums of a part of its lane and a part of its step. Elements of which a
//! coordinate is outside of its dim are padding, which is 0. Lanes next to each other have coordinates at a constant
//! distance, so the elements of a run that are no padding lie next to each other, too.

use fusion_compiler::ir::plan::WINDOW_BOUNDS_MAX;
use smallvec::SmallVec;

use super::pack::{Direction, LANES_MAX, Operand, Widen};

/// The windows of an operand.
#[derive(Debug)]
pub(super) struct Windows {
    /// Position of the element whose coordinates are all 0, which may be padding.
    pub(super) start: isize,
    /// The dims with padding, at most `WINDOW_BOUNDS_MAX`.
    pub(super) bounds: SmallVec<[WindowBounds; 2]>,
}

/// The coordinate of an operand's elements along one dim, and the coordinates that are no padding.
#[derive(Debug)]
pub(super) struct WindowBounds {
    pub(super) extent: isize,
    /// Coordinate of the first element.
    pub(super) start: isize,
    pub(super) batch: Direction,
    pub(super) lanes: Direction,
    pub(super) depth: Direction,
}

/// A block of an operand with windows that becomes a panel.
#[derive(Clone, Copy)]
pub(super) struct WindowBlock {
    /// Coordinate of the batch, and the offset of its elements.
    pub(super) batch: (usize, usize),
    /// First lane and number of lanes.
    pub(super) lanes: (usize, usize),
    pub(super) depth: (usize, usize),
}

/// Lanes next to each other.
struct Run {
    /// Number of the first lane in the panel.
    lane: usize,
    len: usize,
    /// Position of the first lane's element, without the part of the step.
    offset: isize,
    stride: isize,
    /// Coordinates of the first lane's element, and their distances from lane to lane.
    at: [isize; WINDOW_BOUNDS_MAX],
    by: [isize; WINDOW_BOUNDS_MAX],
}

impl Windows {
    /// Makes windows with so many bounds, if there may be as many.
    pub(super) fn new(start: isize, bounds: SmallVec<[WindowBounds; 2]>) -> Option<Windows> {
        (bounds.len() <= WINDOW_BOUNDS_MAX).then_some(Windows { start, bounds })
    }

    /// Returns the runs of the lanes of a block.
    fn runs(&self, lanes: &Direction, of: WindowBlock) -> SmallVec<[Run; LANES_MAX]> {
        let ((batch, ahead), (first, count)) = (of.batch, of.lanes);
        let (mut runs, mut lane) = (SmallVec::new(), 0);
        while lane < count {
            let number = first + lane;
            let together = self.bounds.iter().map(|of| of.lanes.run_len(number));
            let len = together.fold(lanes.run_len(number), usize::min).min(count - lane);
            let (mut at, mut by) = ([0; WINDOW_BOUNDS_MAX], [0; WINDOW_BOUNDS_MAX]);
            for (i, of) in self.bounds.iter().enumerate() {
                at[i] = of.start + (of.batch.offset(batch) + of.lanes.offset(number)) as isize;
                by[i] = of.lanes.stride() as isize;
            }
            let offset = self.start + (ahead + lanes.offset(number)) as isize;
            runs.push(Run { lane, len, offset, stride: lanes.stride() as isize, at, by });
            lane += len;
        }
        runs
    }
}

impl Run {
    /// Returns the first lane that is no padding along a dim of this extent, and the lane after the last one. The
    /// coordinate of the first lane is `at`, and grows by `by` from lane to lane.
    fn inside((at, by): (isize, isize), extent: isize, (first, end): (usize, usize)) -> (usize, usize) {
        let last = at + (end as isize - 1) * by;
        if at >= 0 && last < extent {
            return (first, end);
        }
        if by == 0 {
            return (end, end);
        }
        let until = |coordinate: isize| (coordinate - at).max(0).unsigned_abs().div_ceil(by.unsigned_abs());
        let end = end.min(until(extent));
        (first.max(until(0)).min(end), end)
    }
}

/// Packs a panel of elements of type `E`. See `Operand::pack`.
///
/// # Safety
///
/// The operand has elements of type `E` at all coordinates inside of its bounds, and the panel has room.
pub(super) unsafe fn pack_windows<E: Widen>(
    operand: &Operand<E::Wide>,
    windows: &Windows,
    of: WindowBlock,
    (panel, width): (*mut E::Wide, usize),
) {
    let runs = windows.runs(&operand.lanes, of);
    let (from, to) = of.depth;
    let mut positions = operand.depth.offsets(from);
    let mut coordinates: SmallVec<[_; WINDOW_BOUNDS_MAX]> =
        windows.bounds.iter().map(|bounds| (bounds.depth.offsets(from), bounds.extent)).collect();
    for step in 0..to - from {
        let ahead = positions.next_offset() as isize;
        let mut of_step = [(0, 0); WINDOW_BOUNDS_MAX];
        for (of_step, (offsets, extent)) in of_step.iter_mut().zip(&mut coordinates) {
            *of_step = (offsets.next_offset() as isize, *extent);
        }
        let of_step = &of_step[..windows.bounds.len()];
        let out = panel.wrapping_add(step * width);
        for run in &runs {
            let mut inside = (0, run.len);
            for (i, &(ahead, extent)) in of_step.iter().enumerate() {
                inside = Run::inside((run.at[i] + ahead, run.by[i]), extent, inside);
            }
            let (first, end) = inside;
            let from = operand.from().cast::<E>();
            let from = from.wrapping_offset(run.offset + ahead + first as isize * run.stride);
            let out = out.wrapping_add(run.lane);
            // SAFETY: the caller's contract. The lanes from `first` to `end` are inside of all bounds.
            unsafe {
                zeros(out, first);
                copied((from, run.stride), out.wrapping_add(first), end - first);
                zeros(out.wrapping_add(end), run.len - end);
            }
        }
        let (_, count) = of.lanes;
        // SAFETY: the panel has room for `width` lanes of each step.
        unsafe { zeros(out.wrapping_add(count), width - count) };
    }
}

/// Stores zeros.
///
/// # Safety
///
/// There is room for so many elements.
#[inline(always)]
unsafe fn zeros<T: Copy + Default>(out: *mut T, count: usize) {
    for i in 0..count {
        // SAFETY: the caller's contract.
        unsafe { *out.add(i) = T::default() };
    }
}

/// Copies elements that lie a stride apart.
///
/// # Safety
///
/// There are so many elements, and there is room for them.
#[inline(always)]
unsafe fn copied<E: Widen>((from, stride): (*const E, isize), out: *mut E::Wide, count: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        match (stride, count) {
            (1, 32) => whole::<E, 32>(from, out),
            (1, 16) => whole::<E, 16>(from, out),
            (1, _) => (0..count).for_each(|i| *out.add(i) = (*from.add(i)).widen()),
            _ => (0..count).for_each(|i| *out.add(i) = (*from.offset(i as isize * stride)).widen()),
        }
    }
}

/// Copies all lanes of a panel.
///
/// # Safety
///
/// See `copied`.
#[inline(always)]
unsafe fn whole<E: Widen, const WIDTH: usize>(from: *const E, out: *mut E::Wide) {
    let mut wide = [E::Wide::default(); WIDTH];
    // SAFETY: the caller's contract.
    unsafe {
        let lanes = from.cast::<[E; WIDTH]>().read_unaligned();
        for lane in 0..WIDTH {
            wide[lane] = lanes[lane].widen();
        }
        out.cast::<[E::Wide; WIDTH]>().write_unaligned(wide);
    }
}
