//! Operands whose elements windows choose, as in convolutions: no tensor of all windows exists.
//!
//! Position and coordinates of an element are sums of parts of its batch, its lane and its step. Elements of which a
//! coordinate is outside of its dim are padding, which is 0. Invariant: all dims that windows move along have bounds,
//! so an element inside of all bounds is one of the tensor.

use fusion_compiler::ir::plan::WINDOW_BOUNDS_MAX;
use smallvec::SmallVec;

use super::pack::{Operand, Widen};

/// An axis of the batch, the lanes or the depth.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowAxis {
    pub(super) extent: usize,
    /// Distance of elements.
    pub(super) offset: usize,
    /// Distance of coordinates along each dim with bounds.
    pub(super) at: [usize; WINDOW_BOUNDS_MAX],
}

/// A dim of a tensor that windows choose elements along.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowBounds {
    pub(super) extent: isize,
    /// Coordinate of the first element, which may be padding.
    pub(super) start: isize,
}

/// The axes of an operand, outermost first.
#[derive(Clone, Debug)]
pub(super) struct WindowAxes {
    pub(super) batch: Vec<WindowAxis>,
    pub(super) lanes: Vec<WindowAxis>,
    pub(super) depth: Vec<WindowAxis>,
}

/// The windows of an operand.
#[derive(Debug)]
pub(super) struct Windows {
    origin: Place,
    pub(super) bounds: SmallVec<[WindowBounds; 2]>,
    pub(super) axes: WindowAxes,
    /// The lanes next to each other.
    grid: Grid,
}

/// The position of an element in its tensor, and its coordinates along the dims with bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) offset: isize,
    pub(super) at: [isize; WINDOW_BOUNDS_MAX],
}

/// The axes of lanes, outermost first, at least one. Numbers on the grid count more coordinates along an axis than there
/// are lanes, if steps of the depth shift lanes along the axis.
#[derive(Debug)]
pub(super) struct Grid(pub(super) Vec<GridAxis>);

/// An axis of a grid of lanes.
#[derive(Debug)]
pub(super) struct GridAxis {
    pub(super) of: WindowAxis,
    /// Number of coordinates, with those that only shifted lanes have.
    pub(super) pitch: usize,
    /// Distance of numbers on the grid from one coordinate to the next.
    pub(super) stride: usize,
}

/// Lanes next to each other along the innermost axis of a grid.
#[derive(Debug)]
pub(super) struct Run {
    /// Position of the first lane among those that are packed.
    at: usize,
    len: usize,
    /// Distance from the first lane of all, if the grid has these lanes.
    place: Option<Place>,
}

/// Lanes that are packed together, at places from that of the first lane of all on.
#[derive(Debug)]
pub(super) struct Lanes {
    runs: Vec<Run>,
    /// The innermost axis, along which runs lie.
    along: WindowAxis,
}

/// The places of the steps of a depth, one after another.
struct Steps<'a> {
    axes: &'a [WindowAxis],
    /// Coordinates along the axes.
    at: SmallVec<[usize; 4]>,
    place: Place,
}

impl Place {
    /// Returns the sum of two places.
    pub(super) fn plus(mut self, other: &Place) -> Place {
        self.offset += other.offset;
        for (at, by) in self.at.iter_mut().zip(other.at) {
            *at += by;
        }
        self
    }

    /// Returns the place so many coordinates further along an axis.
    pub(super) fn ahead(mut self, axis: &WindowAxis, by: isize) -> Place {
        self.offset += axis.offset as isize * by;
        for (at, distance) in self.at.iter_mut().zip(axis.at) {
            *at += distance as isize * by;
        }
        self
    }

    /// Returns the place of a coordinate of all axes.
    pub(super) fn along(mut self, axes: &[WindowAxis], mut number: usize) -> Place {
        for axis in axes.iter().rev() {
            self = self.ahead(axis, (number % axis.extent) as isize);
            number /= axis.extent;
        }
        self
    }
}

impl Grid {
    /// Makes a grid that has so many more coordinates along each axis.
    pub(super) fn new(lanes: &[WindowAxis], more: impl Fn(usize) -> usize) -> Grid {
        let mut axes: Vec<GridAxis> = Vec::new();
        for (number, &of) in lanes.iter().enumerate().rev() {
            let stride = axes.last().map_or(1, |inner| inner.stride * inner.pitch);
            axes.push(GridAxis { of, pitch: of.extent + more(number), stride });
        }
        axes.reverse();
        Grid(axes)
    }

    /// Appends the runs of `len` lanes from a number on, which are packed from a position on and lie a distance ahead.
    pub(super) fn runs(
        &self,
        runs: &mut Vec<Run>,
        (number, len): (usize, usize),
        (at, ahead): (usize, &Place),
    ) {
        let mut done = 0;
        while done < len {
            let (place, left) = self.run(number + done);
            let len = left.min(len - done);
            runs.push(Run { at: at + done, len, place: place.map(|place| place.plus(ahead)) });
            done += len;
        }
    }

    /// Returns the distance from the first lane of all to the lane of a number, and how many lanes follow along the
    /// innermost axis. Numbers after the last lane have none.
    fn run(&self, mut number: usize) -> (Option<Place>, usize) {
        let (mut ahead, mut len) = (Place::default(), usize::MAX);
        for axis in &self.0 {
            let at = number / axis.stride;
            if at >= axis.pitch {
                return (None, usize::MAX);
            }
            (ahead, len) = (ahead.ahead(&axis.of, at as isize), axis.pitch - at);
            number %= axis.stride;
        }
        (Some(ahead), len)
    }

    /// Returns lanes with these runs.
    pub(super) fn lanes(&self, runs: Vec<Run>) -> Lanes {
        Lanes { runs, along: self.0[self.0.len() - 1].of }
    }
}

impl Windows {
    /// Makes windows whose first element is at `start`, if there may be so many bounds.
    pub(super) fn new(
        start: isize,
        bounds: SmallVec<[WindowBounds; 2]>,
        mut axes: WindowAxes,
    ) -> Option<Windows> {
        if axes.lanes.is_empty() {
            axes.lanes.push(WindowAxis { extent: 1, offset: 0, at: [0; WINDOW_BOUNDS_MAX] });
        }
        let mut origin = Place { offset: start, ..Place::default() };
        for (i, bounds) in bounds.iter().enumerate() {
            *origin.at.get_mut(i)? = bounds.start;
        }
        let grid = Grid::new(&axes.lanes, |_| 0);
        Some(Windows { origin, bounds, axes, grid })
    }

    /// Returns true if the elements are those of a tensor from its start on: none is padding, and no two windows
    /// have elements in common.
    pub(super) fn are_a_tensor(&self) -> bool {
        let WindowAxes { batch, lanes, depth } = &self.axes;
        let fits = self.bounds.iter().enumerate().all(|(dim, bounds)| {
            let all = batch.iter().chain(lanes).chain(depth);
            let most = all.map(|axis| axis.extent.saturating_sub(1) * axis.at[dim]).sum::<usize>() as isize;
            let shifts = depth.iter().any(|axis| axis.at[dim] > 0 && axis.extent > 1);
            !shifts && bounds.start >= 0 && bounds.start + most < bounds.extent
        });
        fits && self.origin.offset == 0
    }

    /// Returns the place of the first lane at the first step, for a coordinate of the batch.
    pub(super) fn first(&self, batch: usize) -> Place {
        self.origin.along(&self.axes.batch, batch)
    }

    /// Packs lanes at some steps of the depth as one panel of `width` lanes.
    ///
    /// # Safety
    ///
    /// The operand has all elements inside of the bounds, and the panel has room.
    pub(super) unsafe fn pack<T>(
        &self,
        operand: &Operand<T>,
        (batch, (lane, count), (from, to)): (usize, (usize, usize), (usize, usize)),
        (panel, width): (*mut T, usize),
    ) {
        let mut runs = Vec::new();
        self.grid.runs(&mut runs, (lane, count), (0, &Place::default()));
        runs.extend((count < width).then_some(Run { at: count, len: width - count, place: None }));
        let lanes = self.grid.lanes(runs);
        let steps = Steps::new(&self.axes.depth, (self.first(batch), from));
        for (step, first) in steps.take(to - from).enumerate() {
            // SAFETY: the caller's contract.
            unsafe { operand.pack_lanes((&self.bounds, &lanes), &first, panel.wrapping_add(step * width)) };
        }
    }
}

impl<'a> Steps<'a> {
    /// Returns the places from a step on.
    fn new(axes: &'a [WindowAxis], (first, step): (Place, usize)) -> Steps<'a> {
        let (mut at, mut rest) = (SmallVec::new(), step);
        for axis in axes.iter().rev() {
            at.insert(0, rest % axis.extent);
            rest /= axis.extent;
        }
        Steps { axes, at, place: first.along(axes, step) }
    }
}

impl Iterator for Steps<'_> {
    type Item = Place;

    fn next(&mut self) -> Option<Place> {
        let place = self.place;
        for (axis, at) in self.axes.iter().zip(&mut self.at).rev() {
            *at += 1;
            self.place = self.place.ahead(axis, 1);
            if *at < axis.extent {
                break;
            }
            self.place = self.place.ahead(axis, -(axis.extent as isize));
            *at = 0;
        }
        Some(place)
    }
}

/// Returns the first of `len` lanes along an axis that is no padding, and the lane after the last one.
fn inside(bounds: &[WindowBounds], (place, along): (&Place, &WindowAxis), len: usize) -> (usize, usize) {
    let (mut first, mut end) = (0, len);
    for (dim, bounds) in bounds.iter().enumerate() {
        let (at, by) = (place.at[dim], along.at[dim]);
        // The number of lanes with coordinates less than this one.
        let before = |coordinate: isize| match (coordinate - at).max(0).unsigned_abs() {
            0 => 0,
            left => left.checked_div(by).map_or(len, |_| left.div_ceil(by)),
        };
        first = first.max(before(0));
        end = end.min(before(bounds.extent));
    }
    (first.min(end), end)
}

/// Packs lanes of elements of type `E`, of which the first of all has this place.
///
/// # Safety
///
/// The operand has elements of type `E` at all coordinates inside of the bounds, and there is room for the lanes at
/// `out`.
pub(super) unsafe fn pack_lanes<E: Widen>(
    operand: &Operand<E::Wide>,
    (bounds, lanes): (&[WindowBounds], &Lanes),
    first: &Place,
    out: *mut E::Wide,
) {
    let along = &lanes.along;
    for run in &lanes.runs {
        let out = out.wrapping_add(run.at);
        let Some(place) = &run.place else {
            // SAFETY: the caller's contract.
            unsafe { zeros(out, run.len) };
            continue;
        };
        let place = first.plus(place);
        let (inside, end) = inside(bounds, (&place, along), run.len);
        let from = operand.from().cast::<E>().wrapping_offset(place.offset);
        let from = from.wrapping_add(inside * along.offset);
        // SAFETY: the caller's contract. The lanes from `inside` to `end` are inside of all bounds.
        unsafe {
            zeros(out, inside);
            copied((from, along.offset), out.wrapping_add(inside), end - inside);
            zeros(out.wrapping_add(end), run.len - end);
        }
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
unsafe fn copied<E: Widen>((from, stride): (*const E, usize), out: *mut E::Wide, count: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        match stride {
            1 => (0..count).for_each(|i| *out.add(i) = (*from.add(i)).widen()),
            _ => (0..count).for_each(|i| *out.add(i) = (*from.add(i * stride)).widen()),
        }
    }
}
