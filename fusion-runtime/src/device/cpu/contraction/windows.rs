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

/// The axes of the lanes, outermost first, at least one.
#[derive(Debug)]
struct Grid(Vec<GridAxis>);

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
    grid: Grid,
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
    runs: Vec<Run>,
    /// The innermost axis of the grid, along which runs lie.
    along: WindowAxis,
    /// Elements of a plane.
    pub(super) plane: usize,
    /// Number of all elements.
    pub(super) len: usize,
    /// Position of the first lane for each step of the depth.
    pub(super) steps: Vec<u32>,
    lanes: PanelLanes,
}

/// The lanes of panels.
#[derive(Debug, Default)]
struct PanelLanes {
    runs: Vec<LaneRun>,
    /// Numbers of panels that have lanes, each with the end of its runs.
    panels: Vec<(usize, usize)>,
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
#[derive(Debug)]
struct Run {
    /// Position in a plane.
    at: usize,
    len: usize,
    /// Place of the first lane, if the grid has the lanes.
    place: Option<Place>,
}

/// Elements of a line of a cache.
const LINE: usize = 16;

/// Most lanes that are looked at to tell how many panels a grid takes.
const LANES_SEEN: usize = 4096;

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

    /// Returns the grid of the lanes, where these axes of the depth shift lanes along a dim and an axis of the lanes.
    fn grid(&self, shifted: &[Option<(usize, usize)>]) -> Grid {
        let mut axes: Vec<GridAxis> = Vec::new();
        for (number, &of) in self.lanes.iter().enumerate().rev() {
            let of_lane = self.depth.iter().zip(shifted).filter_map(|(step, shifted)| {
                let (dim, _) = shifted.filter(|(_, lane)| *lane == number)?;
                Some((dim, step.extent.saturating_sub(1) * step.at[dim]))
            });
            let most = of_lane.map(|(dim, ahead)| (ahead, of.at[dim]));
            let most = most.reduce(|(sum, by), (ahead, _)| (sum + ahead, by)).map_or(0, |(sum, by)| sum / by);
            let stride = axes.last().map_or(1, |inner| inner.stride * inner.pitch);
            axes.push(GridAxis { of, pitch: of.extent + most, stride });
        }
        axes.reverse();
        Grid(axes)
    }

    /// Returns the steps of windows along these axes, as shifts of lanes on a grid, and the places of what is less than
    /// a shift.
    fn taps(&self, of: &[(WindowAxis, (usize, usize))], grid: &Grid) -> Vec<(usize, Place)> {
        let count = of.iter().map(|(axis, _)| axis.extent).product();
        let axes: Vec<WindowAxis> = of.iter().map(|(axis, _)| *axis).collect();
        let tap = |number: usize| {
            let (mut place, mut shift) = (Place::default().along(&axes, number), 0);
            for &(_, (dim, lane)) in of {
                let axis = &self.lanes[lane];
                // The second step along a dim has nothing left.
                let by = place.at[dim].unsigned_abs() / axis.at[dim];
                shift += by * grid.0[lane].stride;
                place = place.ahead(axis, -(by as isize));
            }
            (shift, place)
        };
        (0..count).map(tap).collect()
    }
}

impl Grid {
    /// Returns the place of a lane on the grid.
    fn place(&self, mut lane: usize) -> usize {
        let mut place = 0;
        for axis in self.0.iter().rev() {
            place += lane % axis.of.extent * axis.stride;
            lane /= axis.of.extent;
        }
        place
    }

    /// Returns the lanes from a place of the grid on, along the innermost axis. The result is the distance to the first
    /// lane of all, and the number of lanes. Places after the last lane have none.
    fn run(&self, mut place: usize) -> (Option<Place>, usize) {
        let (mut ahead, mut len) = (Place::default(), usize::MAX);
        for axis in &self.0 {
            let at = place / axis.stride;
            if at >= axis.pitch {
                return (None, usize::MAX);
            }
            (ahead, len) = (ahead.ahead(&axis.of, at as isize), axis.pitch - at);
            place %= axis.stride;
        }
        (Some(ahead), len)
    }

    /// Returns the lanes of panels that have so many places each, from that of the first lane on.
    fn lanes(&self, (from, to): (usize, usize), width: usize) -> PanelLanes {
        let PanelLanes { mut runs, mut panels } = PanelLanes::default();
        let (first, inner) = (self.place(from), self.0.last().map_or(1, |axis| axis.of.extent));
        let mut lane = from;
        while lane < to {
            let place = self.place(lane) - first;
            let len = (inner - lane % inner).min(to - lane).min(width - place % width);
            let run = LaneRun { lane: place % width, at: lane - from, len };
            if panels.last().is_none_or(|(number, _)| *number != place / width) {
                panels.push((place / width, runs.len()));
                runs.push(run);
            } else {
                match runs.last_mut().filter(|last| last.lane + last.len == run.lane) {
                    Some(last) => last.len += run.len,
                    None => runs.push(run),
                }
            }
            if let Some((_, end)) = panels.last_mut() {
                *end = runs.len();
            }
            lane += len;
        }
        PanelLanes { runs, panels }
    }

    /// Returns true if lanes take many more panels of this width than lanes next to each other would.
    fn is_sparse(&self, width: usize) -> bool {
        let lanes = self.0.iter().map(|axis| axis.of.extent).product::<usize>().min(LANES_SEEN);
        4 * self.lanes((0, lanes), width).panels.len() > 5 * lanes.div_ceil(width)
    }
}

impl Windows {
    /// Makes windows whose first element is at `start`, for panels of so many lanes, if there may be so many bounds.
    pub(super) fn new(
        start: isize,
        bounds: SmallVec<[WindowBounds; 2]>,
        mut axes: WindowAxes,
        width: usize,
    ) -> Option<Windows> {
        if axes.lanes.is_empty() {
            axes.lanes.push(WindowAxis { extent: 1, offset: 0, at: [0; WINDOW_BOUNDS_MAX] });
        }
        let mut origin = Place { offset: start, ..Place::default() };
        for (i, bounds) in bounds.iter().enumerate() {
            *origin.at.get_mut(i)? = bounds.start;
        }
        let mut shifted: Vec<_> = axes.depth.iter().map(|step| axes.shifted(step)).collect();
        let mut grid = axes.grid(&shifted);
        // Elements are packed again for each step where most lanes of panels would be none of the operand.
        if grid.is_sparse(width) {
            shifted.fill(None);
            grid = axes.grid(&shifted);
        }
        let steps = || axes.depth.iter().copied().zip(shifted.iter().copied());
        let of_window: Vec<_> = steps().filter_map(|(step, lane)| Some((step, lane?))).collect();
        let taps = axes.taps(&of_window, &grid);
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
        let numbers = |of_window: bool| {
            numbers(steps().map(|(axis, lane)| (axis.extent, lane.is_some() == of_window)).collect())
        };
        Some(Windows {
            origin,
            bounds,
            steps: [numbers(false), numbers(true)],
            planes: steps().filter(|(_, lane)| lane.is_none()).map(|(step, _)| step).collect(),
            batch: axes.batch,
            grid,
            taps,
            phases,
        })
    }

    /// Returns the number of planes.
    pub(super) fn planes(&self) -> usize {
        self.planes.iter().map(|axis| axis.extent).product()
    }

    /// Returns the layout of the lanes from the first to the last, in panels of so many.
    pub(super) fn layout(&self, (from, to): (usize, usize), width: usize) -> Layout {
        let first = self.grid.place(from);
        let lanes = self.grid.lanes((from, to), width);
        let len = lanes.panels.last().map_or(0, |(number, _)| (number + 1) * width);
        let (mut runs, mut plane, mut starts) = (Vec::new(), 0, Vec::new());
        for phase in &self.phases {
            let mut of_phase = Vec::new();
            // Shift of the last lanes on the grid that are no neighbours of those before, and their position.
            let mut last = (0, plane);
            for (i, &shift) in phase.shifts.iter().enumerate() {
                if i == 0 || shift > last.0 + plane - last.1 {
                    last = (shift, plane);
                }
                of_phase.push(last.1 + shift - last.0);
                let end = last.1 + shift - last.0 + len;
                while plane < end {
                    let (place, len) = self.grid.run(first + last.0 + plane - last.1);
                    let len = len.min(end - plane);
                    runs.push(Run { at: plane, len, place: place.map(|place| place.plus(&phase.place)) });
                    plane += len;
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
        Layout {
            runs,
            along: self.grid.0[self.grid.0.len() - 1].of,
            plane,
            len: plane * self.planes(),
            steps,
            lanes,
        }
    }
}

/// Returns the numbers of the steps of the depth along those of its axes that count. Axes have extents.
fn numbers(axes: Vec<(usize, bool)>) -> Direction {
    let mut ahead = 1;
    let mut all: Vec<(usize, usize)> = Vec::new();
    for (extent, counts) in axes.into_iter().rev() {
        all.push((extent, if counts { ahead } else { 0 }));
        ahead *= if counts { extent } else { 1 };
    }
    Direction::new(all.into_iter().rev())
}

impl Layout {
    /// Calls a function with each panel that has lanes: the number, and the runs of the lanes.
    pub(super) fn panels(&self) -> impl Iterator<Item = (usize, &[LaneRun])> {
        let mut from = 0;
        self.lanes.panels.iter().map(move |&(number, end)| {
            let runs = &self.lanes.runs[from..end];
            from = end;
            (number, runs)
        })
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
    let along = &of.layout.along;
    for run in &of.layout.runs {
        let out = out.wrapping_add(run.at);
        let Some(place) = &run.place else {
            // SAFETY: the caller's contract.
            unsafe { zeros(out, run.len) };
            continue;
        };
        let place = first.plus(place);
        let (inside, end) = inside(&windows.bounds, (&place, along), run.len);
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
