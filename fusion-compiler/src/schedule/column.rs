//! Row groups whose rows lie side by side: what is combined for a row is far apart, and next to it is the same of the next row.
//!
//! So vectors run over neighbouring rows, and each lane goes through a row of its own: once for each step of what is
//! combined, and once more for what is stored of elements. On GPUs what is made of a row stays in registers, on the CPU in
//! memory of the thread, one element for each row of a block of them. What several runs (`passes.rs`) need of the elements is read
//! and made again; nothing of them is held. Long rows are cut into parts (`split_reduction.rs`), which lie side by side as rows do. Where
//! rows are few, GPUs give several to a team, as `row.rs` does.

use std::collections::BTreeSet;

use smallvec::smallvec;

use super::body::{Addressing, Body, Place};
use super::partition::Partition;
use super::passes::{Pass, PassCount, Sums, finished, passes};
use super::position::CoordinateRange;
use super::row_loop::INDEX;
use super::space::{SpaceDim, cols, dims, product, width_conditions, widths};
use super::strips::{self, Steps, is_long};
use super::{Scheduled, Work, row};
use crate::fuse::{Load, is_column_major, is_op};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::{AxisId, AxisSet, NodeId, NodeKind};
use crate::ir::kernel::{Expr, IndexWidth, Lanes, LoopKind, Stmt, Value, Values};
use crate::ir::op::Op;
use crate::ir::plan::{Condition, Space, UniformArg};
use crate::target::{TargetFacts, Vectors};

mod on_cpu;

use on_cpu::on_cpu;

/// Whether rows lie side by side in all that is read and stored of their elements.
pub(super) fn fits(work: &Work<'_>) -> bool {
    let group = work.group;
    if group.writes_columns() {
        // Fusion has seen to what is read.
        return true;
    }
    let (along, next) = (along(work), group.order.last().copied());
    let minor =
        |load: &Load| is_column_major(&work.operands[usize::from(work.loads[load].0)].axes, along, next);
    let of_rows = !group.stores.iter().any(|store| group.is_of_elements(store));
    let line = !group.order.is_empty() && group.unrolled.is_empty();
    line && of_rows && group.loads.iter().all(minor)
}

/// The axes of a row, and those along which something is read at coordinates that are made of theirs.
fn along(work: &Work<'_>) -> AxisSet {
    let mut along: AxisSet = work.group.cols.iter().copied().collect();
    // Where it is read may itself be read at such a place.
    loop {
        let before = along;
        for &id in &work.group.nodes {
            let node = work.graph.node(id);
            if let NodeKind::Gather(axis) = node.kind
                && !work.graph.node(node.args[1]).axes.intersection(along).is_empty()
            {
                along = along.with(axis);
            }
        }
        if along == before {
            return along;
        }
    }
}

/// The ways to run such a group.
pub(super) fn column(work: &Work<'_>, facts: &TargetFacts) -> Vec<Scheduled> {
    let space = ColumnSpace::new(work, None);
    match facts.vector {
        Vectors::Loops(_) => vec![on_cpu(work, facts, &space)],
        Vectors::Lanes(lanes) => {
            let configs = widths(work, facts).into_iter().flat_map(|index| [(index, lanes), (index, 1)]);
            let mut scheduled = row::columns_per_team(work, facts);
            scheduled.extend(configs.map(|config| on_gpu(work, facts, &space, config)));
            // The last must do for whatever the others do not.
            if let Some(last) = scheduled.last_mut() {
                last.when.clear();
            }
            scheduled
        }
    }
}

/// Rows that are parts of longer ones.
pub(super) fn parts(
    work: &Work<'_>,
    facts: &TargetFacts,
    partition: &Partition,
    (index, lanes): (IndexWidth, u8),
) -> Scheduled {
    let space = ColumnSpace::new(work, Some(partition));
    match facts.vector {
        Vectors::Loops(_) => on_cpu(work, facts, &space),
        Vectors::Lanes(_) => on_gpu(work, facts, &space, (index, lanes)),
    }
}

/// What has to be a multiple of the lanes of vectors that go through such parts. Where parts take turns, each vector is of what
/// has one more step, or of what has not.
pub(super) fn aligned(work: &Work<'_>, partition: &Partition) -> DimExpr {
    let space = ColumnSpace::new(work, Some(partition));
    match space.interleave_of_minor() {
        Some(interleave) => partition.extent.clone() * interleave.each.clone(),
        None => space.minor().extent.clone(),
    }
}

/// The dims of the space that has an element for each row, then of a row.
struct ColumnSpace {
    rows: usize,
    dims: Vec<SpaceDim>,
    /// Where each row is a part of a longer one.
    part: Option<RowPart>,
}

/// A part of a row: a run of the coordinates along one of its dims.
struct RowPart {
    /// The dim whose coordinate is the number of the run …
    number: usize,
    /// … and that which it is a run of …
    along: usize,
    /// … with its coordinates, but for the last.
    len: DimExpr,
    /// If it is one of several that share the run.
    interleave: Option<InterleavedSteps>,
}

/// Parts that share a run, each taking every so many of its coordinates.
struct InterleavedSteps {
    /// The dim that has the number of the part, outermost of what it is a coordinate of …
    dim: usize,
    /// … and elements of that dim for each.
    each: DimExpr,
    count: DimExpr,
}

impl RowPart {
    fn new(work: &Work<'_>, partition: &Partition, dims: &[SpaceDim]) -> RowPart {
        let dim = |axis: AxisId| dims.iter().position(|dim| dim.axes.contains(&axis));
        let dim =
            |axis| dim(axis).unwrap_or_else(|| unreachable!("the axes of parts are those of the space"));
        let interleave = partition.interleave.as_ref().map(|interleave| {
            let dim = dim(interleave.axis);
            InterleavedSteps {
                dim,
                each: dims[dim].each(work.graph, interleave.axis),
                count: interleave.count.clone(),
            }
        });
        RowPart {
            number: dim(partition.part),
            along: dim(partition.along()),
            len: partition.len.clone(),
            interleave,
        }
    }

    /// Coordinates along the run, but for the last.
    fn steps(&self) -> DimExpr {
        match &self.interleave {
            None => self.len.clone(),
            Some(interleave) => self.len.clone().ceil_div(interleave.count.clone()),
        }
    }
}

impl ColumnSpace {
    fn new(work: &Work<'_>, partition: Option<&Partition>) -> ColumnSpace {
        let rows = dims(work.graph, work.group, &work.operands);
        let cols = cols(work.graph, work.group, &work.operands);
        let (rows, dims) = (rows.len(), [rows, cols].concat());
        let part = partition.map(|partition| RowPart::new(work, partition, &dims));
        ColumnSpace { rows, dims, part }
    }

    fn cols(&self) -> &[SpaceDim] {
        &self.dims[self.rows..]
    }

    /// The dim along which rows lie side by side.
    fn minor(&self) -> &SpaceDim {
        &self.dims[self.rows - 1]
    }

    /// How parts take turns, if those lie side by side along with rows.
    fn interleave_of_minor(&self) -> Option<&InterleavedSteps> {
        let interleave = self.part.as_ref().and_then(|part| part.interleave.as_ref());
        interleave.filter(|interleave| interleave.dim == self.rows - 1)
    }

    fn iteration_space(&self, (grain_min, grain): (u32, u32)) -> Space {
        let product = |dims: &[SpaceDim]| DimExpr::product(dims.iter().map(|dim| &dim.extent));
        let (rows, cols) = (product(&self.dims[..self.rows - 1]), self.minor().extent.clone());
        let along = |(i, dim): (usize, &SpaceDim)| match &self.part {
            Some(part) if part.along == self.rows + i => part.steps(),
            Some(_) | None => dim.extent.clone(),
        };
        let each: Vec<DimExpr> = self.cols().iter().enumerate().map(along).collect();
        Space { rows, cols, grain, grain_min, each: DimExpr::product(&each) }
    }
}

/// The loop along a row that goes through a part of it.
struct PartSteps {
    /// Its dim.
    along: usize,
    /// The run that the part shares, or is.
    pass: CoordinateRange,
    /// Past the last step.
    end: Value,
    step: Value,
    /// How many there are, where each is of several coordinates.
    count: Option<Value>,
}

impl PartSteps {
    /// Those of the part that a row is.
    fn new(body: &mut Body<'_>, space: &ColumnSpace, rows: &[Value]) -> Option<PartSteps> {
        let part = space.part.as_ref()?;
        let pass = body.range(rows[part.number], &part.len, &space.dims[part.along].extent);
        let (end, step, count) = match &part.interleave {
            None => (pass.end, body.top().index(1), None),
            // Steps begin at the first of those that take turns.
            Some(interleave) => {
                let step = body.extent(&interleave.count);
                let number = match interleave.each.as_const() {
                    Some(1) => rows[interleave.dim],
                    Some(_) | None => {
                        let each = body.extent(&interleave.each);
                        body.item().apply(Op::IntDiv, &[rows[interleave.dim], each])
                    }
                };
                let one = body.top().index(1);
                let mut b = body.item();
                let most = b.apply(Op::Sub, &[step, one]);
                let padded = b.apply(Op::Add, &[pass.len, most]);
                let left = b.apply(Op::Sub, &[padded, number]);
                let count = b.apply(Op::IntDiv, &[left, step]);
                (b.apply(Op::Sub, &[pass.end, number]), step, Some(count))
            }
        };
        Some(PartSteps { along: part.along, pass, end, step, count })
    }
}

/// The loop of a counter along a dim, and whether it may be long.
fn steps(
    body: &mut Body<'_>,
    (space, part): (&ColumnSpace, Option<&PartSteps>),
    (var, dim): (Value, usize),
) -> (Steps, bool) {
    let extent = &space.dims[dim].extent;
    let steps = match part.filter(|part| part.along == dim) {
        Some(part) => Steps { var, start: part.pass.start, step: part.step, end: part.end },
        None => {
            Steps { var, start: body.top().index(0), step: body.top().index(1), end: body.extent(extent) }
        }
    };
    (steps, is_long(extent))
}

/// What is stored of elements, if anything is.
fn stored_elements(work: &Work<'_>) -> Vec<NodeId> {
    let stores = work.group.stores.iter().filter(|store| work.group.is_of_elements(store));
    stores.map(|store| store.node).collect()
}

/// The values of rows that values of elements are made of, other than what is combined: those for which `keeps` holds, and of
/// others what they are made of. In order.
fn of_rows_in(
    work: &Work<'_>,
    body: &Body<'_>,
    elements: &[NodeId],
    keeps: impl Fn(NodeId) -> bool,
) -> Vec<NodeId> {
    let (mut seen, mut found, mut open) = (BTreeSet::new(), BTreeSet::new(), elements.to_vec());
    while let Some(id) = open.pop() {
        let node = work.graph.node(id);
        let combined = !work.graph.looped_axes(id).is_empty();
        if !seen.insert(id) || combined {
            continue;
        }
        let of_element = work.group.cols.iter().any(|&axis| node.axes.contains(axis));
        // What index operations pick from has axes of its own.
        let of_row = node.axes.iter().all(|axis| work.group.order.contains(&axis));
        let along = body.is_along_vectors(node.axes);
        if !of_element && of_row && along && keeps(id) {
            found.insert(id);
        } else if !work.loads.contains_key(&Load::Stored(id)) {
            open.extend(&node.args);
        }
    }
    found.into_iter().collect()
}

/// Whether a value is the number of a part that takes turns, which costs a division.
fn is_interleave_index(work: &Work<'_>, id: NodeId) -> bool {
    let axes = work.operands.iter().filter_map(|operand| operand.interleave_axis);
    axes.map(NodeKind::Coord).any(|interleave| work.graph.node(id).kind == interleave)
}

fn on_gpu(
    work: &Work<'_>,
    facts: &TargetFacts,
    space: &ColumnSpace,
    (index, lanes): (IndexWidth, u8),
) -> Scheduled {
    let mut when = width_conditions(work, facts, index);
    if lanes > 1 {
        when.push(Condition::Divides(space.minor().extent.clone(), lanes.into()));
    }
    let vector = if lanes > 1 { format!("_v{lanes}") } else { String::new() };
    let wide = if index == IndexWidth::Bits64 { "_wide" } else { "" };
    let name = format!("{}{vector}{wide}", work.name);
    let mut body = Body::new(work, facts, &space.dims, name, (index, Addressing::Whole));
    body.run_along(space.rows - 1);
    let start = body.uniform(UniformArg::Start, DType::Index, "start");
    let end = body.uniform(UniformArg::End, DType::Index, "end");
    let (step, element) = (body.top().index(lanes.into()), body.top().declare(INDEX));
    let rows = body.decode_dims(element, space.rows);
    let lanes_of = Lanes::Const(lanes);
    let row = Place { element, coordinates: rows.clone(), lanes: lanes_of, apart: false, in_row: None };
    let part = PartSteps::new(&mut body, space, &rows);
    for pass in passes(work, PassCount::Fewest) {
        let pass = Pass { sums: Sums::of(&product(space.cols())), ..pass };
        in_registers(work, &mut body, &pass.elements(work), &row);
        let (vars, place) = place(&mut body, space, (element, &rows), lanes_of);
        let terms = pass.terms_at(work, &mut body, &place);
        let inside = body.take_inner();
        let starts = pass.identity(work, &mut body.top(), (lanes_of, lanes_of));
        let (stmts, mut made) =
            registers(work, &mut body, (space, part.as_ref(), &vars), (&pass, &terms, inside), &starts);
        body.item().body.extend(stmts);
        let pairs = made.split_off(pass.parts_alone(work));
        let mut made = finished(&mut body.item(), &pass.accumulators(work), &made);
        for (exponentials, pair) in pass.pairs.iter().zip(pairs.chunks_exact(2)) {
            let pair = [pair[0], pair[1]];
            made.extend([pair[0], exponentials.finish(&mut body.item(), pair)]);
        }
        pass.made().into_iter().zip(made).for_each(|(id, value)| body.set_of_row(id, value));
    }
    let elements = stored_elements(work);
    if !elements.is_empty() {
        in_registers(work, &mut body, &elements, &row);
        let (vars, place) = place(&mut body, space, (element, &rows), lanes_of);
        let inside = stores(work, &mut body, Stored::Elements, &place);
        let (stmts, _) =
            registers(work, &mut body, (space, None, &vars), (&Pass::default(), &[], inside), &[]);
        body.item().body.extend(stmts);
    }
    let stores = stores(work, &mut body, Stored::Rows, &row);
    body.item().body.extend(stores);
    let (inside, _) = body.take();
    let kind = LoopKind::Grid;
    body.push(Stmt::Loop { var: element, kind, start, end, step, carried: vec![], body: inside });
    scheduled(body, when, space.iteration_space((lanes.into(), lanes.into())), 0)
}

/// Makes the values of rows that these of elements are made of, before the loop over those.
fn in_registers(work: &Work<'_>, body: &mut Body<'_>, elements: &[NodeId], row: &Place) {
    let is_read = |id| matches!(work.graph.node(id).kind, NodeKind::Input(_));
    let keeps = |id| is_op(work.graph, work.graph.node(id)) || is_read(id) || is_interleave_index(work, id);
    let of_rows = of_rows_in(work, body, elements, keeps);
    let made: Vec<Value> = of_rows.iter().map(|&id| body.value(id, &vec![], row)).collect();
    let stmts = body.take_inner();
    body.item().body.extend(stmts);
    of_rows.into_iter().zip(made).for_each(|(id, value)| body.set_of_row(id, value));
}

/// The loops along the rows that are left, whose partial results go from one iteration to the next.
fn registers(
    work: &Work<'_>,
    body: &mut Body<'_>,
    (space, part, vars): (&ColumnSpace, Option<&PartSteps>, &[Value]),
    (pass, terms, mut inside): (&Pass, &[Values], Vec<Stmt>),
    starts: &[Value],
) -> (Vec<Stmt>, Vec<Value>) {
    let Some((&var, inner)) = vars.split_first() else {
        let made = pass.next(work, &mut body.writer(&mut inside), starts, terms);
        return (inside, made);
    };
    let dim = space.dims.len() - vars.len();
    let (mut steps, is_long) = steps(body, (space, part), (var, dim));
    let mut ahead = vec![];
    if let Some(count) = part.filter(|part| part.along == dim).and_then(|part| part.count) {
        (steps, ahead) = by_number(body, steps, count);
    }
    strips::combined(body, (work, pass), (steps, is_long), starts, |body, given| {
        let (stmts, made) = registers(work, body, (space, part, inner), (pass, terms, inside), given);
        ([ahead, stmts].concat(), made)
    })
}

/// The same steps by their number, of which there are so many, and what finds the coordinate of each: of such a loop ptxas knows how
/// often it runs, and so has several steps read at a time.
fn by_number(body: &mut Body<'_>, Steps { var, start, step, .. }: Steps, count: Value) -> (Steps, Vec<Stmt>) {
    let (zero, one, number) = (body.top().index(0), body.top().index(1), body.top().declare(INDEX));
    let mut ahead = vec![];
    let before = body.writer(&mut ahead).apply(Op::Mul, &[number, step]);
    ahead.push(Stmt::Let(var, Expr::Apply(Op::Add, smallvec![start, before])));
    (Steps { var: number, start: zero, step: one, end: count }, ahead)
}

/// With memory of the thread for so many elements, in equal parts: where one is of `f64`, all are as large as those, and
/// one more to begin where an `f64` may.
fn scheduled(body: Body<'_>, when: Vec<Condition>, space: Space, elements: i64) -> Scheduled {
    let (kernel, buffers) = body.finish();
    let is_wide = kernel.shared.iter().any(|shared| shared.dtype == DType::F64);
    let bytes = if is_wide { 8 * (elements + 1) } else { 4 * elements };
    let row_memory = DimExpr::constant(kernel.shared.len() as i64 * bytes);
    Scheduled { row_memory, ..Scheduled::new(when, (kernel, buffers), space) }
}

/// A counter for each dim of a row, and the place that they make.
fn place(
    body: &mut Body<'_>,
    space: &ColumnSpace,
    (element, rows): (Value, &[Value]),
    lanes: Lanes,
) -> (Vec<Value>, Place) {
    let vars: Vec<Value> = space.cols().iter().map(|_| body.top().declare(INDEX)).collect();
    let coordinates = rows.iter().chain(&vars).copied().collect();
    (vars, Place { element, coordinates, lanes, apart: false, in_row: None })
}

/// What is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stored {
    Rows,
    Elements,
}

fn stores(work: &Work<'_>, body: &mut Body<'_>, which: Stored, place: &Place) -> Vec<Stmt> {
    let of_elements = which == Stored::Elements;
    let stores = work.group.stores.iter().zip(&work.stores);
    let stores = stores.filter(|(store, _)| work.group.is_of_elements(store) == of_elements);
    // After all that is computed: a parameter is read before it is written.
    let stores: Vec<Stmt> =
        stores.map(|(store, &buffer)| body.store_across(buffer, store.node, place)).collect();
    body.inner().body.extend(stores);
    body.take_inner()
}
