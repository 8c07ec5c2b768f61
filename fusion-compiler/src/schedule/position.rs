//! Where in the space an element is, and where in a buffer the lanes at a place read and write.
//!
//! Positions follow from the coordinates of the place, but along axes that index operations move: there a value says where.
//! Invariant: four lanes of a GPU are one access only where their positions start at a multiple of four.

use super::Operand;
use super::body::{Addressing, Body, Level, Place, is_windowed};
use super::space::{SpaceDim, footprint, stride};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{AxisId, NodeKind};
use crate::ir::kernel::{Address, BufferId, Lanes, Value};
use crate::ir::op::Op;
use crate::ir::plan::{Footprint, IndexMap, UniformArg};
use crate::ir::point::{Coordinate, Coordinates, Point, point};

/// Most steps that are followed to find that lanes lie side by side.
const STEPS_MAX: u32 = 64;

/// How the lanes of a loop lie in memory.
enum LanePattern {
    /// As far from each other as the dim says that they run along: that of the innermost, or of the axis along which what says where
    /// goes up by one from lane to lane. Each axis along which something moves so, or on a line from row to row, has the coordinate
    /// of the first lane; the innermost is the last.
    Strided(Vec<(AxisId, Value)>),
    /// Each where its own coordinates on a line say.
    Gathered,
}

/// Some of the coordinates along a dim, one after another.
pub(super) struct CoordinateRange {
    pub(super) start: Value,
    pub(super) end: Value,
    pub(super) len: Value,
}

impl Body<'_> {
    /// Run number `number` of those that are `len` coordinates each along a dim of this extent, but for the last.
    pub(super) fn range(&mut self, number: Value, len: &DimExpr, extent: &DimExpr) -> CoordinateRange {
        let (most, extent) = (self.extent(len), self.extent(extent));
        let mut b = self.item();
        let start = b.apply(Op::Mul, &[number, most]);
        let left = b.apply(Op::Sub, &[extent, start]);
        let len = b.apply(Op::Min, &[left, most]);
        let end = b.apply(Op::Add, &[start, len]);
        CoordinateRange { start, end, len }
    }

    /// The coordinates of an element, by dim.
    pub(super) fn decode(&mut self, element: Value) -> Vec<Value> {
        let Some((last, outer)) = self.dims.split_last() else { return vec![] };
        if outer.is_empty() {
            return vec![element];
        }
        let extent = self.extent(&last.extent);
        let (row, col) = self.divide(Level::Item, element, extent);
        let mut coordinates = self.decode_outer(row);
        coordinates.push(col);
        coordinates
    }

    /// The coordinates of a row, by dim without the innermost.
    pub(super) fn decode_outer(&mut self, row: Value) -> Vec<Value> {
        self.decode_dims(row, self.dims.len() - 1)
    }

    /// The coordinates in the first `count` dims of an element of the space that these make.
    pub(super) fn decode_dims(&mut self, element: Value, count: usize) -> Vec<Value> {
        self.decoded(Level::Item, element, &self.dims[..count])
    }

    /// The coordinates of an element in these dims, by its number.
    pub(super) fn decoded(&mut self, level: Level, element: Value, dims: &[SpaceDim]) -> Vec<Value> {
        let (mut rest, mut coordinates) = (element, Vec::new());
        for (i, dim) in dims.iter().enumerate().rev() {
            if i == 0 {
                coordinates.push(rest);
            } else {
                let extent = self.extent(&dim.extent);
                let (quotient, remainder) = self.divide(level, rest, extent);
                coordinates.push(remainder);
                rest = quotient;
            }
        }
        coordinates.reverse();
        coordinates
    }

    /// Quotient and remainder, by one division: GPUs have no instruction for it.
    pub(super) fn divide(&mut self, level: Level, position: Value, extent: Value) -> (Value, Value) {
        let mut b = self.at(level);
        let quotient = b.apply(Op::IntDiv, &[position, extent]);
        let whole = b.apply(Op::Mul, &[quotient, extent]);
        (quotient, b.apply(Op::Sub, &[position, whole]))
    }

    /// The coordinate along an axis that is not moved.
    pub(super) fn coordinate(
        &mut self,
        axis: AxisId,
        level: Level,
        at: &Coordinates,
        place: &Place,
    ) -> Value {
        if let Some(&(_, Coordinate::Fixed(at))) = at.iter().find(|(a, _)| *a == axis) {
            return self.top().constant(DType::I32, Const::Int(at));
        }
        let is_own = |(i, dim): (usize, &SpaceDim)| !self.absent.contains(&i) && dim.axes.contains(&axis);
        let dim = self.dims.iter().enumerate().position(is_own);
        let dim = dim.unwrap_or_else(|| unreachable!("an axis of the group is in its space or unrolled"));
        if let (Some(own), Level::Inner) = (self.on_line(dim), level) {
            return self.inner().cast(own, DType::I32);
        }
        let first = place.coordinates[dim];
        let of_lane =
            level == Level::Inner && place.lanes != Lanes::ONE && !place.apart && dim == self.vector;
        let lane = of_lane.then(|| self.lane_index(place.lanes));
        if self.dims[dim].axes.len() > 1 {
            let each = self.dims[dim].each(self.work.graph, axis);
            let each = self.extent(&each);
            let own = lane.map_or(first, |lane| self.inner().apply(Op::Add, &[first, lane]));
            let own = self.at(level).apply(Op::IntDiv, &[own, each]);
            return self.at(level).cast(own, DType::I32);
        }
        // Both parts as what is wanted: a vector of as many positions may be two of them.
        let first = self.at(level).cast(first, DType::I32);
        let Some(lane) = lane else { return first };
        let lane = self.inner().cast(lane, DType::I32);
        self.inner().apply(Op::Add, &[first, lane])
    }

    /// What says where the coordinate along an axis is.
    pub(super) fn moved_along(&self, at: &Coordinates, axis: AxisId) -> Option<Point> {
        at.iter().find_map(|&(other, coordinate)| match coordinate {
            Coordinate::Moved(moved) if other == axis => Some(self.moves.get(moved).index.clone()),
            Coordinate::Moved(_) | Coordinate::Fixed(_) => None,
        })
    }

    /// What says where, and whether there is anything.
    pub(super) fn moved_by(&self, at: &Coordinates) -> Vec<Point> {
        let by = at.iter().filter_map(|&(axis, _)| self.moved_along(at, axis));
        by.chain(self.moves.within(at)).collect()
    }

    /// The elements of a buffer that the lanes at a place touch, or one element for all of them.
    pub(super) fn position(
        &mut self,
        buffer: BufferId,
        level: Level,
        (at, lanes): (&Coordinates, Lanes),
        place: &Place,
    ) -> Address {
        let work = self.work;
        let operand = &work.operands[usize::from(buffer.0)];
        match footprint(work.graph, work.group, operand) {
            // What lacks every axis of the space is read once, before there is an element.
            Footprint::Linear(per) if level != Level::Top && work.group.cols.is_empty() => {
                let per =
                    per.as_const().unwrap_or_else(|| unreachable!("what is not in the space is unrolled"));
                let phase = at.iter().filter_map(|&(axis, coordinate)| {
                    let Coordinate::Fixed(at) = coordinate else {
                        unreachable!("what is moved is not linear")
                    };
                    Some(stride(work.graph, operand, axis)?.as_const()? * at)
                });
                let phase = phase.sum::<i64>() as u32;
                let mut b = self.at(level);
                let per_value = b.index(per);
                let index =
                    if per == 1 { place.element } else { b.apply(Op::Mul, &[place.element, per_value]) };
                let index = self.rebase(buffer, level, index);
                Address { stride: per as u32, phase, ..Address::new(buffer, index) }
            }
            _ => self.strided(buffer, level, (at, lanes), place),
        }
    }

    /// A position from the coordinates of its place, dim by dim.
    fn strided(
        &mut self,
        buffer: BufferId,
        level: Level,
        (at, lanes): (&Coordinates, Lanes),
        place: &Place,
    ) -> Address {
        let (graph, operand) = (self.work.graph, &self.work.operands[usize::from(buffer.0)]);
        let (mut index, mut start) = (None, DimExpr::constant(0));
        for &(axis, coordinate) in at {
            let (Coordinate::Fixed(at @ 1..), Some(stride)) = (coordinate, stride(graph, operand, axis))
            else {
                continue;
            };
            let stride = stride * DimExpr::constant(at);
            let ahead = self.extent(&stride);
            index = Some(self.sum(level, index, ahead));
            start = start + stride;
        }
        let own = |axis: &AxisId| at.iter().all(|(other, _)| other != axis);
        let is_there = |i: &usize| !self.absent.contains(i);
        let dims = self.dims.iter().enumerate();
        let axes = dims.map(|(i, dim)| dim.axes.last().filter(|axis| is_there(&i) && own(axis)));
        let strides: Vec<Option<DimExpr>> =
            axes.map(|axis| axis.and_then(|&axis| stride(graph, operand, axis))).collect();
        let (level, run, gathers) = match self.lane_pattern((at, operand), level, &strides, place) {
            LanePattern::Strided(run) => (level, run, false),
            LanePattern::Gathered => (Level::Inner, vec![], true),
        };
        for (dim, (stride, &coordinate)) in strides.iter().zip(&place.coordinates).enumerate() {
            if let Some(stride) = stride {
                let own = self.on_line(dim).filter(|_| gathers);
                let ahead = self.product(level, own.unwrap_or(coordinate), stride);
                index = Some(self.sum(level, index, ahead));
            }
        }
        let mut along = strides.get(self.vector).cloned().flatten().filter(|_| !gathers);
        let mut ahead = None;
        for &(axis, coordinate) in at {
            let (Coordinate::Moved(moved), Some(stride)) = (coordinate, stride(graph, operand, axis)) else {
                continue;
            };
            let (of, value) = self.values[&self.moves.get(moved).index];
            let (of, value) = match run.iter().find(|(moved, _)| *moved == axis) {
                Some(&(_, first)) => {
                    if run.last().is_some_and(|(innermost, _)| *innermost == axis) {
                        along = along.or_else(|| Some(stride.clone()));
                    }
                    (level, first)
                }
                None => (if of == Level::Inner { of } else { level }, value),
            };
            let value = self.at(of).cast(value, DType::Index);
            let part = self.product(of, value, &stride);
            let sum = if of == level { &mut index } else { &mut ahead };
            let so_far = sum.take();
            let so_far = self.sum(of, so_far, part);
            *(if of == level { &mut index } else { &mut ahead }) = Some(so_far);
        }
        let index = index.unwrap_or_else(|| self.at(level).index(0));
        if self.sight == Addressing::Windowed && is_windowed(self.work, operand) {
            return self.through_window(buffer, index, start, strides);
        }
        let index = self.rebase(buffer, level, index);
        let index = ahead.map_or(index, |ahead| self.inner().apply(Op::Add, &[index, ahead]));
        self.lanes(buffer, index, along.filter(|_| place.lanes != Lanes::ONE && !place.apart), lanes)
    }

    /// The elements of `lanes` from those of the first, or from all, and the distance from one to the next.
    fn lanes(&mut self, buffer: BufferId, index: Value, along: Option<DimExpr>, lanes: Lanes) -> Address {
        let is_one = self.kernel.ty(index).lanes == Lanes::ONE;
        match along {
            Some(along) if along.as_const() != Some(1) || !is_one => {
                let lane = self.lane_index(lanes);
                let along = self.extent(&along);
                let mut b = self.inner();
                let ahead = b.apply(Op::Mul, &[lane, along]);
                Address::new(buffer, b.apply(Op::Add, &[index, ahead]))
            }
            None if is_one && lanes != Lanes::ONE => Address::new(buffer, self.inner().splat(index, lanes)),
            Some(_) | None => Address { aligned: self.is_vector_of(buffer), ..Address::new(buffer, index) },
        }
    }

    /// How the lanes of a loop lie that an operand has along the dims of these strides, or along which something moves.
    fn lane_pattern(
        &mut self,
        (at, operand): (&Coordinates, &Operand),
        level: Level,
        strides: &[Option<DimExpr>],
        place: &Place,
    ) -> LanePattern {
        let along = strides.get(self.vector).and_then(Option::as_ref);
        if place.lanes != Lanes::Loop || along.is_some() && self.line.is_none() {
            return LanePattern::Strided(vec![]);
        }
        let by = at.iter().filter_map(|&(axis, _)| Some((axis, self.moved_along(at, axis)?)));
        let varies = |point: &Point| self.kernel.ty(self.values[point].1).lanes != Lanes::ONE;
        let varying: Vec<(AxisId, Point)> = by.filter(|(_, point)| varies(point)).collect();
        if self.line.is_none() {
            let [(axis, by)] = varying.as_slice() else { return LanePattern::Strided(vec![]) };
            let first = self.first(by, level, (place, self.vector), STEPS_MAX);
            return LanePattern::Strided(first.map(|first| (*axis, first)).into_iter().collect());
        }
        let rows = strides[self.vector - 1].as_ref();
        let is_line =
            |rows: &DimExpr, along: &DimExpr| *rows == self.dims[self.vector].extent.clone() * along.clone();
        let moved = |axis: AxisId| stride(self.work.graph, operand, axis);
        match (rows, along, varying.as_slice()) {
            (None, None, []) => return LanePattern::Strided(vec![]),
            (Some(rows), Some(along), []) if is_line(rows, along) => return LanePattern::Strided(vec![]),
            (None, Some(along), [(axis, by)]) if moved(*axis).is_some_and(|rows| is_line(&rows, along)) => {
                let first = self.first(by, level, (place, self.vector - 1), STEPS_MAX);
                first.map(|first| vec![(*axis, first)])
            }
            (None, None, [one, other]) => {
                let are_lines = |rows: AxisId, along: AxisId| {
                    moved(rows).zip(moved(along)).is_some_and(|(rows, along)| is_line(&rows, &along))
                };
                let (rows, along) = if are_lines(one.0, other.0) { (one, other) } else { (other, one) };
                if !are_lines(rows.0, along.0) {
                    return LanePattern::Gathered;
                }
                let dims = [(rows, self.vector - 1), (along, self.vector)];
                let first = |((axis, by), dim): (&(AxisId, Point), usize)| {
                    Some((*axis, self.first(by, level, (place, dim), STEPS_MAX)?))
                };
                dims.into_iter().map(first).collect()
            }
            _ => None,
        }
        .map_or(LanePattern::Gathered, LanePattern::Strided)
    }

    /// The coordinates of each lane along a dim, if it is one of those of a line.
    fn on_line(&self, dim: usize) -> Option<Value> {
        let place = (dim + 1).checked_sub(self.vector)?;
        self.line?.get(place).copied()
    }

    /// The value for the first lane, of what goes up by one along a dim.
    fn first(
        &mut self,
        of: &Point,
        level: Level,
        (place, dim): (&Place, usize),
        steps: u32,
    ) -> Option<Value> {
        let (graph, (id, at)) = (self.work.graph, of);
        let node = graph.node(*id);
        let steps = steps.checked_sub(1)?;
        match &node.kind {
            NodeKind::Coord(axis) => match self.moved_along(at, *axis) {
                Some(by) => self.first(&by, level, (place, dim), steps),
                None if at.is_empty() && self.dims[dim].axes == [*axis] => {
                    let first = place.coordinates[dim];
                    Some(self.at(level).cast(first, DType::I32))
                }
                None => None,
            },
            NodeKind::Apply(op @ (Op::Add | Op::Sub)) => {
                let [left, right] = [0, 1].map(|i| point(graph, node.args[i], at));
                let (run, same) = match self.same(&left, level) {
                    Some(same) if *op == Op::Add => (right, same),
                    Some(_) | None => (left, self.same(&right, level)?),
                };
                let run = self.first(&run, level, (place, dim), steps)?;
                Some(self.at(level).apply(*op, &[run, same]))
            }
            NodeKind::Gather(_) if node.args.len() == 2 => {
                let of = self.moves.gathered(graph, of).of;
                self.first(&of, level, (place, dim), steps)
            }
            NodeKind::Input(_)
            | NodeKind::Scalar(_)
            | NodeKind::Literal(_)
            | NodeKind::Extent(_)
            | NodeKind::Apply(_)
            | NodeKind::Cast
            | NodeKind::Reduce(..)
            | NodeKind::Gather(_) => None,
        }
    }

    /// The value, if it is the same for all lanes and known at a level.
    fn same(&self, of: &Point, level: Level) -> Option<Value> {
        let &(known, value) = self.values.get(of)?;
        let one = self.kernel.ty(value).lanes == Lanes::ONE;
        (one && (known != Level::Inner || level == Level::Inner)).then_some(value)
    }

    /// A place that is read through a window of its own. The element waits where it lies outside.
    fn through_window(
        &mut self,
        operand: BufferId,
        index: Value,
        start: DimExpr,
        strides: Vec<Option<DimExpr>>,
    ) -> Address {
        let strides = strides.into_iter().map(|stride| stride.unwrap_or_else(|| DimExpr::constant(0)));
        let dims = self.dims.iter().map(|dim| dim.extent.clone()).zip(strides).collect();
        let footprint = Footprint::Windows(IndexMap { start, dims });
        let known = &mut self.buffers[usize::from(operand.0)].footprint;
        let buffer = if *known == Footprint::Whole {
            *known = footprint;
            operand
        } else {
            self.bind(&self.work.operands[usize::from(operand.0)], footprint)
        };
        let index = self.rebase(buffer, Level::Item, index);
        let name = format!("window of {}", self.kernel.buffer(buffer).name);
        let window = self.uniform(UniformArg::Window(buffer.0), DType::Index, &name);
        let within = self.item().apply(Op::Lt, &[index, window]);
        self.within.push(within);
        Address::new(buffer, index)
    }

    fn sum(&mut self, level: Level, index: Option<Value>, ahead: Value) -> Value {
        index.map_or(ahead, |index| self.at(level).apply(Op::Add, &[index, ahead]))
    }

    fn product(&mut self, level: Level, coordinate: Value, stride: &DimExpr) -> Value {
        if stride.as_const() == Some(1) {
            return coordinate;
        }
        let stride = self.extent(stride);
        self.at(level).apply(Op::Mul, &[coordinate, stride])
    }

    fn rebase(&mut self, buffer: BufferId, level: Level, index: Value) -> Value {
        if !self.rebased || self.kernel.buffer(buffer).uniform.is_some() {
            return index;
        }
        let name = format!("offset of {}", self.kernel.buffer(buffer).name);
        let offset = self.uniform(UniformArg::Offset(buffer.0), DType::Index, &name);
        self.at(level).apply(Op::Add, &[index, offset])
    }
}
