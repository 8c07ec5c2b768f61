//! Rows of the CPU that are so short that a loop for each takes longer than their elements: the two innermost dims are gone through
//! as one line.
//!
//! What lies in memory as the line does is read side by side all the same. What varies along the innermost dim alone comes again with
//! every row: it is made before there is an item, for as many elements as one has, and read from where the row at hand begins. All
//! else a lane reads where its number says.

use std::collections::BTreeSet;

use rustc_hash::FxHashSet;

use super::body::{Addressing, Body, Level, Place};
use super::items::{Grain, Items, scheduled};
use super::space::{SpaceDim, footprint};
use super::staged_buffer::StagedBuffer;
use super::{Scheduled, Work};
use crate::fuse::is_transcendental;
use crate::ir::dim::DimExpr;
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{AxisSet, Graph, NodeId, NodeKind};
use crate::ir::kernel::{BufferId, IndexWidth, Lanes, Shared, SharedId, SharedLen, Stmt, Type, Value};
use crate::ir::op::Op;
use crate::ir::plan::{Condition, Footprint};
use crate::ir::point::{Point, point};
use crate::target::TargetFacts;
use crate::target::tuning_table::cpu;

/// A way to run a pointwise group whose rows are short, if there is one.
pub(super) fn line(work: &Work<'_>, facts: &TargetFacts, dims: &[SpaceDim]) -> Option<Scheduled> {
    let [.., along, inner] = dims else { return None };
    let is_long = inner.extent.as_const().is_some_and(|extent| extent >= cpu::ROW_MIN);
    let writes_in_order = work.stores.iter().all(|&store| is_linear(work, store));
    if is_long || !writes_in_order || costs_each_row(work, (along, inner)) {
        return None;
    }
    // What lies apart is not known before it is read.
    let (scheduled, apart) = written(work, facts, dims, &[]);
    Some(if apart.is_empty() { scheduled } else { written(work, facts, dims, &apart).0 })
}

/// The way where these values are read by a loop of its own, so that no other has lanes that wait for each other; and which may be.
fn written(
    work: &Work<'_>,
    facts: &TargetFacts,
    dims: &[SpaceDim],
    apart: &[NodeId],
) -> (Scheduled, Vec<NodeId>) {
    let [outer @ .., along, inner] = dims else { unreachable!("a line is of two dims") };
    let name = format!("{}_collapsed", work.name);
    let mut body = Body::new(work, facts, dims, name, (IndexWidth::Bits64, Addressing::Whole));
    let len = along.extent.clone() * inner.extent.clone();
    let (cols, row) = (body.extent(&len), body.extent(&inner.extent));
    let mut top = body.top();
    let (zero, grain) = (top.index(0), top.index(cpu::COLLAPSED_GRAIN.into()));
    let most = top.apply(Op::Min, &[cols, grain]);
    let most = top.apply(Op::Add, &[most, row]);
    let mut lines = LineIndex::new(&mut body, row);
    let repeated = repeat(&mut body, &mut lines, (zero, most), !apart.is_empty());

    let items = Items::of(&mut body, &len, Grain::Const(cpu::COLLAPSED_GRAIN));
    let Items { row: of, element, col, len: count, .. } = items;
    let first = body.divide(Level::Item, col, row);
    let mut coordinates = body.decode_dims(of, outer.len());
    coordinates.extend([first.0, first.1]);
    for &(id, memory) in &repeated {
        body.stage(id, StagedBuffer::Shared(memory, first.1), true);
        body.fill(id);
    }
    let place = Place { element, coordinates, lanes: Lanes::Loop, apart: false, in_row: None };
    let mut loops = Vec::new();
    if !apart.is_empty() {
        body.line = Some(lines.of(&mut body, first));
        stage(&mut body, apart, zero);
        apart.iter().for_each(|&id| _ = body.value(id, &vec![], &place));
        loops.push(Stmt::Vector { len: count, body: body.take_inner(), folds: vec![] });
    }
    body.gathered.clear();
    body.line = Some(lines.of(&mut body, first));
    body.compute(&place);
    let (mut inside, lanes) = body.take();
    inside.extend(loops);
    inside.push(Stmt::Vector { len: count, body: lanes, folds: vec![] });
    items.distribute(&mut body, inside);
    let row_min = match (apart, body.gathered.as_slice()) {
        ([], []) => cpu::ROW_MIN,
        (_, []) => cpu::APART_ROW_MIN,
        (_, _) => cpu::GATHERED_ROW_MIN,
    };
    let may_be_apart = gathered(&mut body, &repeated);
    let staged = DimExpr::constant(4 * body.kernel.shared.len() as i64);
    let room =
        (len.clone().min(DimExpr::constant(cpu::COLLAPSED_GRAIN.into())) + inner.extent.clone()) * staged;
    let merged = [outer, &[SpaceDim { axes: vec![], extent: len }]].concat();
    let when = vec![Condition::AtMost(inner.extent.clone(), row_min - 1)];
    (
        Scheduled { row_memory: room, line: true, ..scheduled(&merged, body, when, cpu::COLLAPSED_GRAIN) },
        may_be_apart,
    )
}

/// A number to which whole numbers of some thousands, added, are its last bits.
const LARGE: f32 = (3_u32 << 22) as f32;

/// What finds the row of a line, and the element of that.
struct LineIndex {
    /// Elements of a row, as an `i32`.
    len: Value,
    /// What they are divided by with, as an `f32`.
    inverse: Value,
    /// What is known of every lane before there is an item, if it is: the row and the element of that, of lanes of which the first is
    /// the first of a row.
    known: Option<[SharedId; 2]>,
}

impl LineIndex {
    fn new(body: &mut Body<'_>, row: Value) -> LineIndex {
        let mut top = body.top();
        let len = top.cast(row, DType::I32);
        let (float, one) = (top.cast(len, DType::F32), top.f32(1.0));
        LineIndex { len, inverse: top.apply(Op::Div, &[one, float]), known: None }
    }

    /// The row and the element in it of each lane, where the first has these.
    fn of(&self, body: &mut Body<'_>, (row, col): (Value, Value)) -> [Value; 2] {
        let [rows, col] = match self.known {
            Some(known) => {
                let ty = Type { dtype: DType::I32, lanes: Lanes::Loop };
                known.map(|memory| body.recall(memory, col, ty))
            }
            None => self.found(body, col),
        };
        let mut b = body.inner();
        let rows = b.cast(rows, DType::Index);
        [b.apply(Op::Add, &[row, rows]), b.cast(col, DType::Index)]
    }

    /// How many rows before that of each lane there are from that of the first on, and the element in it, where the first has this.
    /// The quotient of integers up to some thousands is exact: that of a number and a half is at least half the inverse away from a
    /// whole number. A conversion would saturate, lane by lane; next to a large number, the whole part is in the last bits.
    fn found(&self, body: &mut Body<'_>, col: Value) -> [Value; 2] {
        let ahead = body.item().cast(col, DType::I32);
        let lane = body.lane_index(Lanes::Loop);
        let mut top = body.top();
        let (half, large) = (top.f32(0.5), top.f32(LARGE));
        let large_bits = top.constant(DType::I32, Const::Int(LARGE.to_bits().into()));
        let mut b = body.inner();
        let lane = b.cast(lane, DType::I32);
        let number = b.apply(Op::Add, &[lane, ahead]);
        let middle = b.cast(number, DType::F32);
        let middle = b.apply(Op::Add, &[middle, half]);
        let quotient = b.apply(Op::Mul, &[middle, self.inverse]);
        let below = b.apply(Op::Sub, &[quotient, half]);
        let rounded = b.apply(Op::Add, &[below, large]);
        let bits = b.bitcast(rounded, DType::I32);
        let rows = b.apply(Op::Sub, &[bits, large_bits]);
        let before = b.apply(Op::Mul, &[rows, self.len]);
        [rows, b.apply(Op::Sub, &[number, before])]
    }
}

/// Memory for a value of each lane.
fn memory(body: &mut Body<'_>) -> SharedId {
    body.share(Shared { dtype: DType::F32, len: SharedLen::AtLaunch })
}

/// Holds these values, each in memory of its own.
fn stage(body: &mut Body<'_>, values: &[NodeId], first: Value) -> Vec<(NodeId, SharedId)> {
    let staged: Vec<(NodeId, SharedId)> = values.iter().map(|&id| (id, memory(body))).collect();
    staged.iter().for_each(|&(id, memory)| body.stage(id, StagedBuffer::Shared(memory, first), true));
    staged
}

/// Makes what varies along the innermost dim alone, again and again, and gives the memory that each of these values is in; and, if it is
/// asked for, what says where each lane is.
fn repeat(
    body: &mut Body<'_>,
    lines: &mut LineIndex,
    (zero, count): (Value, Value),
    says_where: bool,
) -> Vec<(NodeId, SharedId)> {
    let repeated = repeated(body);
    if repeated.is_empty() && !says_where {
        return vec![];
    }
    let found = lines.found(body, zero);
    if says_where {
        let known = found.map(|_| memory(body));
        known.iter().zip(found).for_each(|(&memory, value)| body.keep(memory, zero, value));
        lines.known = Some(known);
    }
    let staged = stage(body, &repeated, zero);
    body.line = Some(found.map(|value| body.inner().cast(value, DType::Index)));
    let coordinates = vec![zero; body.dims.len()];
    let place = Place { element: zero, coordinates, lanes: Lanes::Loop, apart: false, in_row: None };
    repeated.iter().for_each(|&id| _ = body.value(id, &vec![], &place));
    let (before, lanes) = body.take();
    before.into_iter().for_each(|stmt| body.push(stmt));
    body.push(Stmt::Vector { len: count, body: lanes, folds: vec![] });
    staged
}

/// The values that vary along the innermost dim alone, and are needed for others or stored.
fn repeated(body: &Body<'_>) -> Vec<NodeId> {
    let inner: AxisSet = body.dims[body.dims.len() - 1].axes.iter().copied().collect();
    let graph = body.work.graph;
    first_that(body, &|id| {
        let axes = graph.node(id).axes;
        !axes.is_empty() && axes.minus(inner).is_empty() && has_four_bytes(graph, id)
    })
}

/// The values that lanes read each where its number says, if they may be held: as they are, or as what they are converted to. What is
/// written out along an axis is read where that says, and not for the element at hand.
fn gathered(body: &mut Body<'_>, repeated: &[(NodeId, SharedId)]) -> Vec<NodeId> {
    let points = std::mem::take(&mut body.gathered);
    let nodes = body.work.group.nodes.iter().copied();
    let read: FxHashSet<NodeId> = nodes.filter(|&id| points.contains(&read_for(body, id))).collect();
    let is_repeated = |id: NodeId| repeated.iter().any(|(known, _)| *known == id);
    let graph = body.work.graph;
    let all = first_that(body, &|id| is_repeated(id) || has_four_bytes(graph, id) && read.contains(&id));
    all.into_iter().filter(|&id| !is_repeated(id)).collect()
}

/// What is read for a value of the element at hand, through picks and conversions.
fn read_for(body: &mut Body<'_>, id: NodeId) -> Point {
    let (graph, mut read) = (body.work.graph, (id, vec![]));
    while !body.is_read(read.0) {
        let node = graph.node(read.0);
        read = match node.kind {
            NodeKind::Gather(_) => body.moves.gathered(graph, &read).of,
            NodeKind::Cast => point(graph, node.args[0], &read.1),
            _ => break,
        };
    }
    read
}

/// Those of the values of which others are made, or that are stored, for which this holds, but for what these are made of.
fn first_that(body: &Body<'_>, holds: &dyn Fn(NodeId) -> bool) -> Vec<NodeId> {
    let (graph, group) = (body.work.graph, body.work.group);
    let (mut all, mut seen) = (BTreeSet::new(), FxHashSet::default());
    let mut open: Vec<NodeId> = group.stores.iter().map(|store| store.node).collect();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        if holds(id) {
            all.insert(id);
        } else if !body.is_read(id) {
            let node = graph.node(id);
            // A gather reads its operand at another element.
            let places = usize::from(matches!(node.kind, NodeKind::Gather(_)));
            open.extend(&node.args[places..]);
        }
    }
    all.into_iter().collect()
}

/// Whether memory for `f32` has room for it.
fn has_four_bytes(graph: &Graph, id: NodeId) -> bool {
    matches!(graph.node(id).dtype, DType::F32 | DType::I32 | DType::U32)
}

/// Whether the elements of a buffer follow those of the space.
fn is_linear(work: &Work<'_>, buffer: BufferId) -> bool {
    matches!(footprint(work.graph, work.group, &work.operands[usize::from(buffer.0)]), Footprint::Linear(_))
}

/// Whether something takes long that is made once for each row where rows have loops.
fn costs_each_row(work: &Work<'_>, (along, inner): (&SpaceDim, &SpaceDim)) -> bool {
    let has = |axes: AxisSet, dim: &SpaceDim| dim.axes.iter().any(|&axis| axes.contains(axis));
    work.group.nodes.iter().any(|&id| {
        let node = work.graph.node(id);
        let NodeKind::Apply(op) = node.kind else { return false };
        let is_literal = |id: NodeId| matches!(work.graph.node(id).kind, NodeKind::Literal(_));
        let divides = matches!(op, Op::Div | Op::Rem) && node.dtype.is_int() && !is_literal(node.args[1]);
        (divides || is_transcendental(op)) && has(node.axes, along) && !has(node.axes, inner)
    })
}
