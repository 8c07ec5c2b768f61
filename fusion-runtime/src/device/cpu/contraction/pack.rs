//! Packing: a block of an operand becomes panels, in the order in which microkernels read them.
//!
//! An operand is read by strides, so names may lie in memory in any order. Elements of 8 and 16 bits are
//! widened on the way. Lanes of a panel that the operand lacks are 0, and no product that uses them is kept.

use std::num::Wrapping;

use half::{bf16, f16};
use smallvec::SmallVec;

use super::windows::{Lanes, Place, WindowBounds, pack_lanes};

/// Most lanes of a panel, for any instruction set.
pub(super) const LANES_MAX: usize = 32;

/// Lanes and steps that are transposed in registers.
const SQUARE: usize = 4;

/// Steps of a depth that are transposed for all lanes before the next: a cache line of each lane.
const STEPS: usize = 16;

/// An element of an operand, which panels have in a wider type.
pub(super) trait Widen: Copy {
    /// The type that products are computed in.
    type Wide: Copy + Default;

    /// Returns the element in that type.
    fn widen(self) -> Self::Wide;
}

macro_rules! elements {
    ($($element:ty => $wide:ty, $widen:expr;)*) => { $(
        impl Widen for $element {
            type Wide = $wide;

            #[inline(always)]
            fn widen(self) -> $wide {
                $widen(self)
            }
        }
    )* };
}

elements! {
    f32 => f32, |x| x;
    f64 => f64, |x| x;
    f16 => f32, f16::to_f32;
    bf16 => f32, bf16::to_f32;
    i32 => Wrapping<i32>, Wrapping;
    i16 => Wrapping<i32>, |x| Wrapping(i32::from(x));
    u16 => Wrapping<i32>, |x| Wrapping(i32::from(x));
    i8 => Wrapping<i32>, |x| Wrapping(i32::from(x));
    u8 => Wrapping<i32>, |x| Wrapping(i32::from(x));
}

/// Axes of an operand as one direction: an extent and a stride each, outermost first, at least one.
#[derive(Clone, Debug)]
pub(super) struct Direction(SmallVec<[(usize, usize); 4]>);

/// Coordinates of a direction with one stride.
struct StridedRun {
    /// Offset of the first element.
    offset: usize,
    len: usize,
}

impl Direction {
    /// Makes a direction of axes. Adjacent axes with one stride become one.
    pub(super) fn new(axes: impl IntoIterator<Item = (usize, usize)>) -> Direction {
        let mut all: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        for (extent, stride) in axes.into_iter().filter(|(extent, _)| *extent != 1) {
            match all.last_mut() {
                Some((outer, distance)) if *distance == stride * extent => {
                    (*outer, *distance) = (*outer * extent, stride);
                }
                Some(_) | None => all.push((extent, stride)),
            }
        }
        if all.is_empty() {
            all.push((1, 0));
        }
        Direction(all)
    }

    /// Returns the number of coordinates.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|(extent, _)| extent).product()
    }

    /// Returns the number of axes with strides of their own.
    #[cfg(test)]
    pub(super) fn axes(&self) -> usize {
        self.0.len()
    }

    /// Returns the offset of a coordinate.
    pub(super) fn offset(&self, mut at: usize) -> usize {
        let mut offset = 0;
        for &(extent, stride) in self.0.iter().rev() {
            offset += at % extent * stride;
            at /= extent;
        }
        offset
    }

    /// Returns the offsets of all coordinates from this one on.
    pub(super) fn offsets(&self, mut at: usize) -> Offsets {
        let mut axes: SmallVec<[AxisOffset; 4]> = SmallVec::new();
        let mut offset = 0;
        for &(extent, stride) in self.0.iter().rev() {
            axes.push(AxisOffset { extent, stride, left: extent - at % extent });
            offset += at % extent * stride;
            at /= extent;
        }
        Offsets { axes, offset }
    }

    /// Returns the stride of the innermost axis.
    pub(super) fn stride(&self) -> usize {
        self.0.last().map_or(0, |(_, stride)| *stride)
    }

    /// Returns the number of consecutive coordinates, from this one on, that lie along the innermost axis.
    pub(super) fn run_len(&self, at: usize) -> usize {
        self.0.last().map_or(1, |(extent, _)| extent - at % extent)
    }

    /// Returns the offsets and lengths of contiguous elements with the coordinates `from..to`, in order.
    pub(super) fn contiguous(&self, (from, to): (usize, usize)) -> impl Iterator<Item = (usize, usize)> {
        let stride = self.stride();
        self.runs(from, to).flat_map(move |run| {
            let (count, len) = if stride == 1 { (1, run.len) } else { (run.len, 1) };
            (0..count).map(move |number| (run.offset + number * stride, len))
        })
    }

    /// Returns the coordinates `from..to` in runs along the innermost axis.
    fn runs(&self, from: usize, to: usize) -> impl Iterator<Item = StridedRun> {
        let mut at = from;
        std::iter::from_fn(move || {
            let len = self.run_len(at).min(to - at);
            let run = StridedRun { offset: self.offset(at), len };
            at += len;
            (len > 0).then_some(run)
        })
    }
}

/// The offsets of coordinates one after another, without divisions.
#[derive(Clone, Debug)]
pub(super) struct Offsets {
    /// Axes from the innermost on.
    axes: SmallVec<[AxisOffset; 4]>,
    offset: usize,
}

#[derive(Clone, Copy, Debug)]
struct AxisOffset {
    extent: usize,
    stride: usize,
    /// Number of coordinates from the current one to the end of the axis.
    left: usize,
}

impl Offsets {
    /// Returns the offset of the current coordinate, and advances to the next one.
    #[inline(always)]
    pub(super) fn next_offset(&mut self) -> usize {
        let offset = self.offset;
        for axis in &mut self.axes {
            axis.left -= 1;
            self.offset += axis.stride;
            if axis.left > 0 {
                break;
            }
            axis.left = axis.extent;
            self.offset -= axis.extent * axis.stride;
        }
        offset
    }
}

/// An operand of a product, whose panels have elements of type `T`.
#[derive(Debug)]
pub(super) struct Operand<T> {
    /// Address of the first element.
    from: *const u8,
    /// Functions that pack elements of the operand's dtype.
    packer: Packer<T>,
    /// Rows of a left operand, columns of a right one.
    pub(super) lanes: Direction,
    /// The axes that are summed over.
    pub(super) depth: Direction,
}

/// A function that packs a panel. See `Operand::pack`.
type Pack<T> = unsafe fn(&Operand<T>, usize, (usize, usize), (usize, usize), (*mut T, usize));

/// A function that packs lanes of windows. See `Operand::pack_lanes`.
type PackLanes<T> = unsafe fn(&Operand<T>, (&[WindowBounds], &Lanes), &Place, *mut T);

/// The functions that pack elements of a dtype.
#[derive(Debug)]
pub(super) struct Packer<T> {
    plain: Pack<T>,
    lanes: PackLanes<T>,
}

impl<T> Clone for Packer<T> {
    fn clone(&self) -> Packer<T> {
        *self
    }
}

impl<T> Copy for Packer<T> {}

impl<T> Packer<T> {
    /// Returns the functions for elements of type `E`.
    pub(super) fn of<E: Widen<Wide = T>>() -> Packer<T> {
        Packer { plain: pack::<E>, lanes: pack_lanes::<E> }
    }
}

impl<T> Operand<T> {
    /// Makes an operand of memory at `from`.
    pub(super) fn new(from: *const u8, packer: Packer<T>, lanes: Direction, depth: Direction) -> Operand<T> {
        Operand { from, packer, lanes, depth }
    }

    /// Makes an operand with elements of the same dtype at `from`.
    pub(super) fn at(&self, from: *const u8, (lanes, depth): (Direction, Direction)) -> Operand<T> {
        Operand { from, packer: self.packer, lanes, depth }
    }

    /// Returns the address of the first element.
    pub(super) fn from(&self) -> *const u8 {
        self.from
    }

    /// Returns the number of elements that are summed over.
    pub(super) fn depth(&self) -> usize {
        self.depth.len()
    }

    /// Packs `count` lanes from `first` on, at the depths `from..to`, as one panel of `width` lanes.
    ///
    /// # Safety
    ///
    /// The operand has all of these elements from element `start` on, and the panel has room.
    pub(super) unsafe fn pack(
        &self,
        start: usize,
        lanes: (usize, usize),
        depth: (usize, usize),
        panel: (*mut T, usize),
    ) {
        // SAFETY: the caller's contract.
        unsafe { (self.packer.plain)(self, start, lanes, depth, panel) }
    }

    /// Packs lanes that windows choose, of which the first of all has this place.
    ///
    /// # Safety
    ///
    /// The operand has all elements inside of the bounds, and there is room for the lanes at `out`.
    pub(super) unsafe fn pack_lanes(&self, lanes: (&[WindowBounds], &Lanes), first: &Place, out: *mut T) {
        // SAFETY: the caller's contract.
        unsafe { (self.packer.lanes)(self, lanes, first, out) }
    }
}

/// Packs a panel of elements of type `E`.
///
/// # Safety
///
/// See `Operand::pack`. The operand has elements of type `E`.
unsafe fn pack<E: Widen>(
    operand: &Operand<E::Wide>,
    start: usize,
    (first, count): (usize, usize),
    (from, to): (usize, usize),
    (panel, width): (*mut E::Wide, usize),
) {
    // SAFETY: the caller's contract.
    let base = unsafe { operand.from.cast::<E>().add(start) };
    let mut offsets = [0; LANES_MAX];
    for (lane, offset) in offsets[..count].iter_mut().enumerate() {
        *offset = operand.lanes.offset(first + lane);
    }
    let offsets = &offsets[..count];
    let are_adjacent = operand.lanes.stride() == 1 && operand.lanes.run_len(first) >= count;
    let (stride, mut out) = (operand.depth.stride(), panel);
    for run in operand.depth.runs(from, to) {
        // SAFETY: the caller's contract. Each run writes `len` steps of `width` lanes.
        unsafe {
            let base = base.add(run.offset);
            if are_adjacent {
                copied((base.add(offsets[0]), stride), run.len, (out, width), count);
            } else {
                transposed((base, stride), offsets, run.len, (out, width));
            }
            out = out.add(run.len * width);
        }
    }
}

/// Packs lanes that are adjacent in memory.
///
/// # Safety
///
/// There are `steps` steps, `stride` apart, of `count` elements, and room for `steps` times `width`.
#[inline(always)]
unsafe fn copied<E: Widen>(
    from: (*const E, usize),
    steps: usize,
    (out, width): (*mut E::Wide, usize),
    count: usize,
) {
    // SAFETY: the caller's contract.
    unsafe {
        match (width, count) {
            (6, 6) => whole::<E, 6>(from, steps, out),
            (8, 8) => whole::<E, 8>(from, steps, out),
            (12, 12) => whole::<E, 12>(from, steps, out),
            (16, 16) => whole::<E, 16>(from, steps, out),
            (32, 32) => whole::<E, 32>(from, steps, out),
            (..) => partial(from, steps, (out, width), count),
        }
    }
}

/// Packs all `WIDTH` lanes of a panel.
///
/// # Safety
///
/// See `copied`.
unsafe fn whole<E: Widen, const WIDTH: usize>(
    (from, stride): (*const E, usize),
    steps: usize,
    out: *mut E::Wide,
) {
    for step in 0..steps {
        // SAFETY: the caller's contract.
        unsafe {
            let lanes = from.add(step * stride).cast::<[E; WIDTH]>().read_unaligned();
            let mut wide = [E::Wide::default(); WIDTH];
            for lane in 0..WIDTH {
                wide[lane] = lanes[lane].widen();
            }
            out.add(step * WIDTH).cast::<[E::Wide; WIDTH]>().write_unaligned(wide);
        }
    }
}

/// Packs the first `count` lanes of a panel, and zeros for the others.
///
/// # Safety
///
/// See `copied`.
unsafe fn partial<E: Widen>(
    (from, stride): (*const E, usize),
    steps: usize,
    (out, width): (*mut E::Wide, usize),
    count: usize,
) {
    for step in 0..steps {
        // SAFETY: the caller's contract.
        unsafe {
            let (from, out) = (from.add(step * stride), out.add(step * width));
            (0..count).for_each(|lane| *out.add(lane) = (*from.add(lane)).widen());
            (count..width).for_each(|lane| *out.add(lane) = E::Wide::default());
        }
    }
}

/// Packs lanes that lie anywhere.
///
/// # Safety
///
/// Each lane has `steps` steps, `stride` apart, and there is room for `steps` times `width`.
#[inline(always)]
unsafe fn transposed<E: Widen>(
    (from, stride): (*const E, usize),
    offsets: &[usize],
    steps: usize,
    (out, width): (*mut E::Wide, usize),
) {
    // Squares of adjacent steps are transposed in registers.
    let (in_squares, squares) = match stride {
        1 => (steps - steps % SQUARE, offsets.len() - offsets.len() % SQUARE),
        _ => (0, 0),
    };
    for first in (0..in_squares).step_by(STEPS) {
        let end = (first + STEPS).min(in_squares);
        for lane in (0..squares).step_by(SQUARE) {
            for step in (first..end).step_by(SQUARE) {
                // SAFETY: the caller's contract.
                unsafe {
                    // Loops, since closures over arrays are calls in some builds.
                    let mut columns = [[E::Wide::default(); SQUARE]; SQUARE];
                    for i in 0..SQUARE {
                        let row = from.add(offsets[lane + i] + step).cast::<[E; SQUARE]>().read_unaligned();
                        for j in 0..SQUARE {
                            columns[j][i] = row[j].widen();
                        }
                    }
                    for (i, column) in columns.into_iter().enumerate() {
                        let out = out.add((step + i) * width + lane);
                        out.cast::<[E::Wide; SQUARE]>().write_unaligned(column);
                    }
                }
            }
        }
    }
    let one = |step: usize, lane: usize| {
        // SAFETY: the caller's contract.
        unsafe {
            let element = offsets.get(lane).map(|offset| (*from.add(offset + step * stride)).widen());
            *out.add(step * width + lane) = element.unwrap_or_default();
        }
    };
    (0..in_squares).for_each(|step| (squares..width).for_each(|lane| one(step, lane)));
    (in_squares..steps).for_each(|step| (0..width).for_each(|lane| one(step, lane)));
}
