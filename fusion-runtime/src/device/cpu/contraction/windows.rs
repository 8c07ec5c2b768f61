//! Operands whose elements windows choose, as in convolutions: no tensor of all windows exists.
//!
//! Lanes lie on a grid, with a coordinate for each of their axes. A step along an axis of the window is a shift on this
//! grid, so elements that several windows have are packed once, and the steps of the depth read them from different
//! places. The packed elements of a *plane* have the same coordinates along all axes of the depth that are none of a
//! window. Windows with a stride have a *phase* of their elements for each remainder of the stride.
//!
//! Elements of which a coordinate is outside of its dim are padding, which is 0.

use fusion_compiler::ir::plan::WINDOW_BOUNDS_MAX;
use smallvec::SmallVec;

use super::microkernel::LaneRun;
use super::pack::{Direction, Operand, Widen};

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
#[derive(Debug)]
pub(super) struct WindowAxes {
    pub(super) batch: Vec<WindowAxis>,
    pub(super) lanes: Vec<WindowAxis>,
    pub(super) depth: Vec<WindowAxis>,
}

/// The position of an element in its tensor, and its coordinates along the dims with bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Place {
    offset: isize,
    at: [isize; WINDOW_BOUNDS_MAX],
}

/// An axis of the grid of lanes.
#[derive(Debug)]
struct GridAxis {
    of: WindowAxis,
    /// Number of coordinates, with those that only shifted lanes have.
    pitch: usize,
    /// Lanes of the grid from one coordinate to the next.
    stride: usize,
}

/// The elements of lanes with the same remainders of strides.
#[derive(Debug)]
struct Phase {
    place: Place,
    /// Shifts on the grid, in order and each once.
    shifts: Vec<usize>,
}

/// The windows of an operand.
#[derive(Debug)]
pub(super) struct Windows {
    origin: Place,
    bounds: SmallVec<[WindowBounds; 2]>,
    batch: Vec<WindowAxis>,
    lanes: Vec<GridAxis>,
    /// Axes of the depth that are none of a window.
    planes: Vec<WindowAxis>,
    phases: Vec<Phase>,
    /// Numbers of the phase and of the shift for each step along the axes of the window.
    taps: Vec<(usize, usize)>,
    /// Number of the plane and of the step in the window, for each step of the depth.
    steps: [Direction; 2],
}

/// Lanes of an operand in memory.
#[derive(Debug)]
pub(super) struct Layout {
    /// First lane, on the grid.
    first: usize,
    intervals: Vec<Interval>,
    /// Elements of a plane.
    pub(super) plane: usize,
    /// Number of all elements.
    pub(super) len: usize,
    /// Position of the first lane for each step of the depth.
    pub(super) steps: Vec<u32>,
    runs: Vec<LaneRun>,
    /// Numbers of panels that have lanes, each with the end of its runs.
    panels: Vec<(usize, usize)>,
}

/// Lanes next to each other on the grid, of one phase.
#[derive(Debug)]
struct Interval {
    phase: usize,
    /// Distance from the first lane of the layout.
    shift: usize,
    len: usize,
    /// Position in the plane.
    at: usize,
}

/// A plane of an operand with windows.
#[derive(Clone, Copy)]
pub(super) struct WindowPlane<'a> {
    pub(super) layout: &'a Layout,
    /// Coordinate of the batch.
    pub(super) batch: usize,
    /// Number of the plane.
    pub(super) plane: usize,
}

/// Lanes next to each other along the innermost axis of the grid.
struct Run {
    /// Place of the first lane.
    place: Place,
    axis: WindowAxis,
    len: usize,
    /// True if the grid has these lanes.
    is_on_grid: bool,
}

/// Elements of a line of a cache.
const LINE: usize = 16;

impl Place {
    /// Returns the sum of two places.
    fn plus(mut self, other: &Place) -> Place {
        self.offset += other.offset;
        for (at, by) in self.at.iter_mut().zip(other.at) {
            *at += by;
        }
        self
    }

    /// Returns the place so many coordinates further along an axis.
    fn ahead(mut self, axis: &WindowAxis, by: isize) -> Place {
        self.offset += axis.offset as isize * by;
        for (at, distance) in self.at.iter_mut().zip(axis.at) {
            *at += distance as isize * by;
        }
        self
    }

    /// Returns the place of a coordinate of all axes.
    fn along(mut self, axes: &[WindowAxis], mut number: usize) -> Place {
        for axis in axes.iter().rev() {
            self = self.ahead(axis, (number % axis.extent) as isize);
            number /= axis.extent;
        }
        self
    }
}

impl WindowAxes {
    /// Returns the dim and the axis of the lanes along which steps of an axis of the depth shift lanes, if they do.
    /// Both axes have coordinates along this dim alone, and elements as far apart as the coordinates.
    fn shifted(&self, step: &WindowAxis) -> Option<(usize, usize)> {
        let only = |axis: &WindowAxis| {
            let mut along = (0..WINDOW_BOUNDS_MAX).filter(|&dim| axis.at[dim] > 0);
            along.next().filter(|_| along.next().is_none())
        };
        let dim = only(step)?;
        let lane = self.lanes.iter().rposition(|lane| only(lane) == Some(dim))?;
        let of = &self.lanes[lane];
        (step.offset * of.at[dim] == step.at[dim] * of.offset).then_some((dim, lane))
    }

    /// Returns true if no element is padding, and no two windows have elements in common.
    pub(super) fn is_tensor(&self, bounds: &[WindowBounds]) -> bool {
        bounds.iter().enumerate().all(|(dim, bounds)| {
            let all = self.batch.iter().chain(&self.lanes).chain(&self.depth);
            let most = all.map(|axis| axis.extent.saturating_sub(1) * axis.at[dim]).sum::<usize>() as isize;
            let shifts = self.depth.iter().any(|axis| axis.at[dim] > 0 && axis.extent > 1);
            !shifts && bounds.start >= 0 && bounds.start + most < bounds.extent
        })
    }

    /// Returns the steps of windows along these axes, as shifts of lanes, and the places of what is less than a shift.
    fn taps(&self, of: &[(WindowAxis, (usize, usize))]) -> Vec<(Vec<usize>, Place)> {
        let count = of.iter().map(|(axis, _)| axis.extent).product();
        let axes: Vec<WindowAxis> = of.iter().map(|(axis, _)| *axis).collect();
        let tap = |number: usize| {
            let mut place = Place::default().along(&axes, number);
            let mut shifts = vec![0; self.lanes.len()];
            for &(_, (dim, lane)) in of {
                let axis = &self.lanes[lane];
                // The second step along a dim has nothing left.
                let by = place.at[dim].unsigned_abs() / axis.at[dim];
                shifts[lane] += by;
                place = place.ahead(axis, -(by as isize));
            }
            (shifts, place)
        };
        (0..count).map(tap).collect()
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
        let shifted: Vec<_> = axes.depth.iter().map(|step| (*step, axes.shifted(step))).collect();
        let of_window: Vec<_> = shifted.iter().filter_map(|(step, lane)| Some((*step, (*lane)?))).collect();
        let planes = shifted.iter().filter(|(_, lane)| lane.is_none()).map(|(step, _)| *step).collect();
        let taps = axes.taps(&of_window);
        let mut lanes: Vec<GridAxis> = Vec::new();
        for (number, &of) in axes.lanes.iter().enumerate().rev() {
            let most = taps.iter().map(|(shifts, _)| shifts[number]).max().unwrap_or(0);
            let stride = lanes.last().map_or(1, |inner| inner.stride * inner.pitch);
            lanes.push(GridAxis { of, pitch: of.extent + most, stride });
        }
        lanes.reverse();
        let on_grid = |shifts: &[usize]| shifts.iter().zip(&lanes).map(|(by, axis)| by * axis.stride).sum();
        let taps: Vec<(usize, Place)> =
            taps.iter().map(|(shifts, place)| (on_grid(shifts), *place)).collect();
        let mut phases: Vec<Phase> = Vec::new();
        for &(shift, place) in &taps {
            match phases.iter_mut().find(|phase| phase.place == place) {
                Some(phase) => phase.shifts.push(shift),
                None => phases.push(Phase { place, shifts: vec![shift] }),
            }
        }
        for phase in &mut phases {
            phase.shifts.sort_unstable();
            phase.shifts.dedup();
        }
        let tap = |&(shift, place): &(usize, Place)| {
            let phase = phases.iter().position(|phase| phase.place == place)?;
            Some((phase, phases[phase].shifts.binary_search(&shift).ok()?))
        };
        let taps = taps.iter().map(tap).collect::<Option<_>>()?;
        Some(Windows {
            origin,
            bounds,
            batch: axes.batch,
            lanes,
            planes,
            taps,
            steps: [false, true].map(|of_window| numbers(&shifted, of_window)),
            phases,
        })
    }

    /// Returns the number of planes.
    pub(super) fn planes(&self) -> usize {
        self.planes.iter().map(|axis| axis.extent).product()
    }

    /// Returns the layout of the lanes from the first to the last, in panels of so many.
    pub(super) fn layout(&self, (from, to): (usize, usize), width: usize) -> Layout {
        let first = self.on_grid(from);
        let (runs, panels) = self.panels((from, to), first, width);
        let len = panels.last().map_or(0, |(number, _)| (number + 1) * width);
        let mut intervals: Vec<Interval> = Vec::new();
        let (mut plane, mut starts) = (0, Vec::new());
        for (number, phase) in self.phases.iter().enumerate() {
            let mut of_phase = Vec::new();
            for &shift in &phase.shifts {
                match intervals.last_mut().filter(|last| last.phase == number) {
                    Some(last) if shift - last.shift <= last.len => last.len = shift - last.shift + len,
                    _ => {
                        intervals.push(Interval { phase: number, shift, len, at: plane });
                    }
                }
                if let Some(last) = intervals.last() {
                    of_phase.push(last.at + shift - last.shift);
                    plane = last.at + last.len;
                }
            }
            starts.push(of_phase);
        }
        // Lines of adjacent planes lie in different sets of a cache.
        let plane = (plane.div_ceil(LINE) | 1) * LINE;
        let [mut of_planes, mut of_taps] = [&self.steps[0], &self.steps[1]].map(|steps| steps.offsets(0));
        let step = |_| {
            let (phase, shift) = self.taps[of_taps.next_offset()];
            (of_planes.next_offset() * plane + starts[phase][shift]) as u32
        };
        let steps = (0..self.steps[0].len()).map(step).collect();
        Layout { first, intervals, plane, len: plane * self.planes(), steps, runs, panels }
    }

    /// Returns the lanes from one of the grid on, along the innermost axis. `place` is that of the first lane of all.
    fn run(&self, mut place: Place, mut lane: usize) -> Run {
        let mut run = Run { place, axis: self.lanes[0].of, len: usize::MAX, is_on_grid: false };
        for axis in &self.lanes {
            let at = lane / axis.stride;
            if at >= axis.pitch {
                return run;
            }
            place = place.ahead(&axis.of, at as isize);
            run = Run { place, axis: axis.of, len: axis.pitch - at, is_on_grid: true };
            lane %= axis.stride;
        }
        run
    }

    /// Returns the place of a lane on the grid.
    fn on_grid(&self, mut lane: usize) -> usize {
        let mut place = 0;
        for axis in self.lanes.iter().rev() {
            place += lane % axis.of.extent * axis.stride;
            lane /= axis.of.extent;
        }
        place
    }

    /// Returns the runs of lanes, each in one panel, and the panels that have some.
    fn panels(
        &self,
        (from, to): (usize, usize),
        first: usize,
        width: usize,
    ) -> (Vec<LaneRun>, Vec<(usize, usize)>) {
        let (mut runs, mut panels) = (Vec::<LaneRun>::new(), Vec::<(usize, usize)>::new());
        let inner = self.lanes.last().map_or(1, |axis| axis.of.extent);
        let mut lane = from;
        while lane < to {
            let place = self.on_grid(lane) - first;
            let len = (inner - lane % inner).min(to - lane).min(width - place % width);
            let run = LaneRun { lane: place % width, at: lane - from, len };
            match panels.last_mut().filter(|(number, _)| *number == place / width) {
                Some((_, end)) => {
                    match runs.last_mut().filter(|last| last.lane + last.len == run.lane) {
                        Some(last) => last.len += run.len,
                        None => runs.push(run),
                    }
                    *end = runs.len();
                }
                None => {
                    runs.push(run);
                    panels.push((place / width, runs.len()));
                }
            }
            lane += len;
        }
        (runs, panels)
    }
}

/// Returns the numbers of the steps of the depth, counted along the axes that are some of the windows, or along those
/// that are none.
fn numbers(steps: &[(WindowAxis, Option<(usize, usize)>)], of_window: bool) -> Direction {
    let mut ahead = 1;
    let mut axes: Vec<(usize, usize)> = Vec::new();
    for (axis, _) in steps.iter().rev().filter(|(_, lane)| lane.is_some() == of_window) {
        axes.push((axis.extent, ahead));
        ahead *= axis.extent;
    }
    let mut axes = axes.into_iter().rev();
    let along = |(axis, lane): &(WindowAxis, Option<(usize, usize)>)| match lane.is_some() == of_window {
        true => axes.next().unwrap_or((axis.extent, 0)),
        false => (axis.extent, 0),
    };
    Direction::new(steps.iter().map(along).collect::<Vec<_>>())
}

impl Layout {
    /// Calls a function with each panel that has lanes: the number, and the runs of the lanes.
    pub(super) fn panels(&self) -> impl Iterator<Item = (usize, &[LaneRun])> {
        let mut from = 0;
        self.panels.iter().map(move |&(number, end)| {
            let runs = &self.runs[from..end];
            from = end;
            (number, runs)
        })
    }
}

impl Run {
    /// Returns the first of `len` lanes that is no padding, and the lane after the last one.
    fn inside(&self, bounds: &[WindowBounds], len: usize) -> (usize, usize) {
        let (mut first, mut end) = (0, if self.is_on_grid { len } else { 0 });
        for (dim, bounds) in bounds.iter().enumerate() {
            let (at, by) = (self.place.at[dim], self.axis.at[dim]);
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
}

/// Packs a plane of elements of type `E`.
///
/// # Safety
///
/// The operand has elements of type `E` at all coordinates inside of its bounds, and there is room for the plane at
/// `out`.
pub(super) unsafe fn pack_plane<E: Widen>(
    operand: &Operand<E::Wide>,
    windows: &Windows,
    of: WindowPlane<'_>,
    out: *mut E::Wide,
) {
    let first = windows.origin.along(&windows.batch, of.batch).along(&windows.planes, of.plane);
    for interval in &of.layout.intervals {
        let first = first.plus(&windows.phases[interval.phase].place);
        let mut at = 0;
        while at < interval.len {
            let run = windows.run(first, of.layout.first + interval.shift + at);
            let len = run.len.min(interval.len - at);
            let (inside, end) = run.inside(&windows.bounds, len);
            let stride = run.axis.offset;
            let from = operand.from().cast::<E>().wrapping_offset(run.place.offset);
            let out = out.wrapping_add(interval.at + at);
            // SAFETY: the caller's contract. The lanes from `inside` to `end` are inside of all bounds.
            unsafe {
                zeros(out, inside);
                let from = from.wrapping_add(inside * stride);
                copied((from, stride), out.wrapping_add(inside), end - inside);
                zeros(out.wrapping_add(end), len - end);
            }
            at += len;
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
