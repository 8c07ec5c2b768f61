//! Planes: elements of windows that are packed once for all windows that have them.
//!
//! Lanes lie on a grid, with a coordinate for each of their axes. A step along an axis of the window is a shift on this
//! grid, so the steps of the depth read the same packed elements from different places. The packed elements of a
//! *plane* have the same coordinates along all axes of the depth that are none of a window. Windows with a stride have
//! a *phase* of their elements for each remainder of the stride.

use fusion_compiler::ir::plan::WINDOW_BOUNDS_MAX;
use fusion_compiler::target::tuning_table::runtime;

use super::microkernel::LaneRun;
use super::pack::{Direction, Operand};
use super::windows::{Grid, Lanes, Place, WindowAxes, WindowAxis, Windows};

/// Most steps of a window. Longer ones share few elements for their set-up.
const TAPS_MAX: usize = 1024;

/// Most elements of the planes of `LANES_SEEN` lanes, 32 MiB of `f32`.
const PLANES_MAX: usize = 1 << 23;

/// Most lanes that are looked at to tell whether planes pay: those of a strip.
const LANES_SEEN: usize = 512;

/// Elements of a line of a cache.
const LINE: usize = 16;

/// The planes of an operand.
#[derive(Debug)]
pub(super) struct Planes {
    grid: Grid,
    /// Axes of the depth that are none of a window.
    axes: Vec<WindowAxis>,
    phases: Vec<Phase>,
    /// Numbers of the phase and of the shift for each step along the axes of the window.
    taps: Vec<(usize, usize)>,
    /// Number of the plane and of the step in the window, for each step of the depth.
    steps: [Direction; 2],
}

/// The elements of lanes with the same remainders of strides.
#[derive(Debug)]
struct Phase {
    place: Place,
    /// Shifts on the grid, in order and each once.
    shifts: Vec<usize>,
}

/// A step along the axes of windows.
#[derive(Clone, Copy)]
struct Tap {
    /// Shift on the grid.
    shift: usize,
    /// Place of what is less than a shift.
    place: Place,
}

/// Lanes of an operand in planes.
#[derive(Debug)]
pub(super) struct Layout {
    plane: Plane,
    /// Number of all elements.
    pub(super) len: usize,
    /// Position of the first lane for each step of the depth.
    pub(super) steps: Vec<u32>,
}

/// Lanes in a plane.
#[derive(Debug)]
struct Plane {
    packed: Lanes,
    len: usize,
    /// Position of the first lane for each shift of each phase.
    starts: Vec<Vec<usize>>,
    panels: PanelLanes,
}

/// The lanes of panels.
#[derive(Debug, Default)]
struct PanelLanes {
    runs: Vec<LaneRun>,
    /// Numbers of panels that have lanes, each with the end of its runs.
    panels: Vec<(usize, usize)>,
}

/// A dim with bounds and an axis of the lanes, along which steps shift lanes.
type Shifted = (usize, usize);

/// Returns the dim and the axis of the lanes along which steps of an axis of the depth shift lanes, if they do. Both
/// axes have coordinates along this dim alone, and elements as far apart as the coordinates.
fn shifted(axes: &WindowAxes, step: &WindowAxis) -> Option<Shifted> {
    let only = |axis: &WindowAxis| {
        let mut along = (0..WINDOW_BOUNDS_MAX).filter(|&dim| axis.at[dim] > 0);
        along.next().filter(|_| along.next().is_none())
    };
    let dim = only(step)?;
    let lane = axes.lanes.iter().rposition(|lane| only(lane) == Some(dim))?;
    let of = &axes.lanes[lane];
    (step.offset * of.at[dim] == step.at[dim] * of.offset).then_some((dim, lane))
}

impl Planes {
    /// Returns the planes of an operand in panels of so many lanes, if packing elements once pays. It pays where windows
    /// have elements in common, lanes fill panels, and planes stay in a cache.
    pub(super) fn new(windows: &Windows, width: usize) -> Option<Planes> {
        let axes = &windows.axes;
        let shifted: Vec<_> = axes.depth.iter().map(|step| (*step, shifted(axes, step))).collect();
        let count = |of_window: bool| {
            let own = shifted.iter().filter(|(_, lane)| lane.is_some() == of_window);
            own.map(|(axis, _)| axis.extent).product::<usize>()
        };
        let lanes = axes.lanes.iter().map(|axis| axis.extent).product::<usize>().min(LANES_SEEN);
        let [planes, taps] = [count(false), count(true)];
        if lanes == 0 || !(1..=runtime::SHARED_DEPTH_MAX).contains(&planes) || !(2..=TAPS_MAX).contains(&taps)
        {
            return None;
        }
        let more = |number: usize| {
            let of_lane = shifted.iter().filter_map(|(step, shifted)| {
                let (dim, _) = shifted.filter(|(_, lane)| *lane == number)?;
                Some(((step.extent - 1) * step.at[dim], axes.lanes[number].at[dim]))
            });
            let most = of_lane.reduce(|(sum, by), (ahead, _)| (sum + ahead, by));
            most.map_or(0, |(sum, by)| sum / by)
        };
        let grid = Grid::new(&axes.lanes, more);
        if grid.0.iter().all(|axis| axis.pitch == axis.of.extent) {
            return None;
        }
        let of_window: Vec<_> = shifted.iter().filter_map(|(step, lane)| Some((*step, (*lane)?))).collect();
        let taps: Vec<Tap> = (0..taps).map(|number| tap(axes, &of_window, &grid, number)).collect();
        let phases = phases(&taps);
        let number = |tap: &Tap| {
            let phase = phases.binary_search_by(|phase| phase.place.cmp(&tap.place)).ok()?;
            Some((phase, phases[phase].shifts.binary_search(&tap.shift).ok()?))
        };
        let taps = taps.iter().map(number).collect::<Option<_>>()?;
        let steps = [false, true].map(|of_window| {
            numbers(shifted.iter().map(|(axis, lane)| (axis.extent, lane.is_some() == of_window)).collect())
        });
        let own = shifted.iter().filter(|(_, lane)| lane.is_none()).map(|(step, _)| *step).collect();
        let all = Planes { grid, axes: own, phases, taps, steps };
        let seen = all.plane((0, lanes), width);
        let are_dense = 4 * seen.panels.panels.len() <= 5 * lanes.div_ceil(width);
        (are_dense && seen.len.saturating_mul(planes) <= PLANES_MAX).then_some(all)
    }

    /// Returns the number of planes.
    pub(super) fn count(&self) -> usize {
        self.axes.iter().map(|axis| axis.extent).product()
    }

    /// Returns the layout of the lanes from the first to the last, in panels of so many.
    pub(super) fn layout(&self, lanes: (usize, usize), width: usize) -> Layout {
        let plane = self.plane(lanes, width);
        let [mut of_planes, mut of_taps] = [&self.steps[0], &self.steps[1]].map(|steps| steps.offsets(0));
        let step = |_| {
            let (phase, shift) = self.taps[of_taps.next_offset()];
            // Planes have few elements, by `PLANES_MAX`.
            (of_planes.next_offset() * plane.len + plane.starts[phase][shift]) as u32
        };
        let steps = (0..self.steps[0].len()).map(step).collect();
        Layout { len: plane.len * self.count(), plane, steps }
    }

    /// Returns lanes as a plane has them.
    fn plane(&self, (from, to): (usize, usize), width: usize) -> Plane {
        let first = self.grid.number(from);
        let panels = self.grid.panels((from, to), width);
        let lanes = panels.panels.last().map_or(0, |(number, _)| (number + 1) * width);
        let (mut runs, mut len, mut starts) = (Vec::new(), 0, Vec::new());
        for Phase { place, shifts } in &self.phases {
            let mut of_phase = Vec::new();
            // Shift and position of the last lanes that are no neighbours of those before.
            let mut last = (0, len);
            for (i, &shift) in shifts.iter().enumerate() {
                if i == 0 || shift > last.0 + len - last.1 {
                    last = (shift, len);
                }
                let start = last.1 + shift - last.0;
                of_phase.push(start);
                let more = start + lanes - len;
                self.grid.runs(&mut runs, (first + last.0 + len - last.1, more), (len, place));
                len += more;
            }
            starts.push(of_phase);
        }
        // Lines of adjacent planes lie in different sets of a cache.
        let len = (len.div_ceil(LINE) | 1) * LINE;
        Plane { packed: self.grid.lanes(runs), len, starts, panels }
    }

    /// Packs a plane into the memory of all planes.
    ///
    /// # Safety
    ///
    /// The operand has all elements inside of the bounds of the windows, and there is room for all planes at `out`.
    pub(super) unsafe fn pack<T>(
        &self,
        (operand, windows): (&Operand<T>, &Windows),
        (layout, batch, number): (&Layout, usize, usize),
        out: *mut T,
    ) {
        let first = windows.first(batch).along(&self.axes, number);
        let out = out.wrapping_add(number * layout.plane.len);
        // SAFETY: the caller's contract.
        unsafe { operand.pack_lanes((&windows.bounds, &layout.plane.packed), &first, out) };
    }
}

/// Returns a step along the axes of windows.
fn tap(axes: &WindowAxes, of_window: &[(WindowAxis, Shifted)], grid: &Grid, mut number: usize) -> Tap {
    let (mut place, mut shift) = (Place::default(), 0);
    for (axis, _) in of_window.iter().rev() {
        place = place.ahead(axis, (number % axis.extent) as isize);
        number /= axis.extent;
    }
    for &(_, (dim, lane)) in of_window {
        let axis = &axes.lanes[lane];
        // The second axis along a dim finds nothing left.
        let by = place.at[dim].unsigned_abs() / axis.at[dim];
        shift += by * grid.0[lane].stride;
        place = place.ahead(axis, -(by as isize));
    }
    Tap { shift, place }
}

/// Returns the phases of steps, in order of their places.
fn phases(taps: &[Tap]) -> Vec<Phase> {
    let mut all: Vec<(Place, usize)> = taps.iter().map(|tap| (tap.place, tap.shift)).collect();
    all.sort_unstable();
    all.dedup();
    let mut phases: Vec<Phase> = Vec::new();
    for (place, shift) in all {
        match phases.last_mut().filter(|phase| phase.place == place) {
            Some(phase) => phase.shifts.push(shift),
            None => phases.push(Phase { place, shifts: vec![shift] }),
        }
    }
    phases
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

impl Grid {
    /// Returns the number of a lane.
    fn number(&self, mut lane: usize) -> usize {
        let mut number = 0;
        for axis in self.0.iter().rev() {
            number += lane % axis.of.extent * axis.stride;
            lane /= axis.of.extent;
        }
        number
    }

    /// Returns the lanes of panels that have so many numbers each, from that of the first lane on.
    fn panels(&self, (from, to): (usize, usize), width: usize) -> PanelLanes {
        let PanelLanes { mut runs, mut panels } = PanelLanes::default();
        let (first, inner) = (self.number(from), self.0.last().map_or(1, |axis| axis.of.extent));
        let mut lane = from;
        while lane < to {
            let number = self.number(lane) - first;
            let len = (inner - lane % inner).min(to - lane).min(width - number % width);
            let run = LaneRun { lane: number % width, at: lane - from, len };
            if panels.last().is_none_or(|(panel, _)| *panel != number / width) {
                panels.push((number / width, runs.len()));
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
}

impl Layout {
    /// Returns the panels that have lanes: their numbers, and the runs of their lanes.
    pub(super) fn panels(&self) -> impl Iterator<Item = (usize, &[LaneRun])> {
        let (PanelLanes { runs, panels }, mut from) = (&self.plane.panels, 0);
        panels.iter().map(move |&(number, end)| {
            let runs = &runs[from..end];
            from = end;
            (number, runs)
        })
    }
}
