//! Row groups whose rows lie side by side: what is combined for a row is far apart, and next to it is the same of the next row.
//!
//! So vectors run over neighbouring rows, and each lane goes through a row of its own. On GPUs what is combined so far
//! stays in registers, on the CPU in memory of the thread, one element for each row of a run of them.

use super::body::{Body, Place, Sight, combine};
use super::held::{reduce_of, steps};
use super::space::{SpaceDim, cols, dims, width_conditions, widths};
use super::{Scheduled, Work};
use crate::fuse::Load;
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::{AxisId, NodeId};
use crate::ir::kernel::{
    Carried, Expr, IndexWidth, Lanes, LoopKind, Shared, SharedId, SharedLen, Stmt, Type, Value,
};
use crate::ir::ops::Op;
use crate::ir::plan::{Condition, Space, UniformArg};
use crate::target::{TargetFacts, Vectors};

const INDEX: Type = Type { dtype: DType::Index, lanes: Lanes::ONE };
/// Rows that a thread of the CPU goes through together: their partial results stay in the smallest cache.
const GRAIN: u32 = 512;

/// Whether rows lie side by side in all that is read of their elements, and only rows have results.
pub(super) fn fits(work: &Work<'_>) -> bool {
    let group = work.group;
    let in_row = |axis: &AxisId| group.cols.contains(axis);
    let beside = |load: &Load| {
        let axes = &work.operands[usize::from(work.loads[load].0)].axes;
        !axes.iter().any(in_row) || axes.last().is_some_and(|last| !in_row(last))
    };
    let of_rows = group.stores.iter().all(|store| store.order == group.order);
    let float = |id: &NodeId| work.graph.node(*id).dtype == DType::F32;
    let combined = group.nodes.iter().filter(|id| !work.graph.looped_axes(**id).is_empty());
    let line = !group.order.is_empty() && group.unrolled.is_empty();
    line && of_rows && group.loads.iter().all(beside) && { combined }.all(float)
}

/// The ways to run such a group.
pub(super) fn column(work: &Work<'_>, facts: &TargetFacts) -> Vec<Scheduled> {
    let rows = dims(work.graph, work.group, &work.operands);
    let cols = cols(work.graph, work.group, &work.operands);
    let count = rows.len();
    let shape = Shape { rows: count, dims: [rows, cols].concat() };
    match facts.vector {
        Vectors::Loops(_) => vec![on_cpu(work, facts, &shape)],
        Vectors::Lanes(lanes) => {
            let ways = widths(work, facts).into_iter().flat_map(|index| [(index, lanes), (index, 1)]);
            let mut scheduled: Vec<Scheduled> = ways.map(|way| on_gpu(work, facts, &shape, way)).collect();
            // The last must do for whatever the others do not.
            if let Some(last) = scheduled.last_mut() {
                last.when.clear();
            }
            scheduled
        }
    }
}

/// The dims of the space that has an element for each row, then of a row.
struct Shape {
    rows: usize,
    dims: Vec<SpaceDim>,
}

impl Shape {
    fn cols(&self) -> &[SpaceDim] {
        &self.dims[self.rows..]
    }

    /// The dim along which rows lie side by side.
    fn beside(&self) -> &SpaceDim {
        &self.dims[self.rows - 1]
    }

    fn space(&self, grain: u32) -> Space {
        let product = |dims: &[SpaceDim]| DimExpr::product(dims.iter().map(|dim| &dim.extent));
        let (rows, cols) = (product(&self.dims[..self.rows - 1]), self.beside().extent.clone());
        Space { rows, cols, grain, each: product(self.cols()) }
    }
}

/// What is combined in each run along the rows, in order.
fn runs(work: &Work<'_>) -> Vec<Vec<NodeId>> {
    let mut steps = steps(work);
    steps.sort();
    steps.chunk_by(|a, b| a.0 == b.0).map(|run| run.iter().map(|(_, id)| *id).collect()).collect()
}

fn on_gpu(
    work: &Work<'_>,
    facts: &TargetFacts,
    shape: &Shape,
    (index, lanes): (IndexWidth, u8),
) -> Scheduled {
    let mut when = width_conditions(work, facts, index);
    if lanes > 1 {
        when.push(Condition::Divides(shape.beside().extent.clone(), lanes.into()));
    }
    let vector = if lanes > 1 { format!("_v{lanes}") } else { String::new() };
    let wide = if index == IndexWidth::Bits64 { "_wide" } else { "" };
    let name = format!("{}{vector}{wide}", work.name);
    let mut body = Body::new(work, facts, &shape.dims, name, (index, Sight::Whole));
    body.run_across(shape.rows - 1);
    let start = body.uniform(UniformArg::Start, DType::Index, "start");
    let end = body.uniform(UniformArg::End, DType::Index, "end");
    let (step, element) = (body.top().index(lanes.into()), body.top().declare(INDEX));
    let rows = body.decode_dims(element, shape.rows);
    let lanes_of = Lanes::Const(lanes);
    for reduces in runs(work) {
        let (vars, place) = place(&mut body, shape, (element, &rows), lanes_of);
        let terms = terms(work, &mut body, &reduces, &place);
        let inside = body.take_inner();
        let starts: Vec<Value> = reduces.iter().map(|&id| identity(work, &mut body, id, lanes_of)).collect();
        let (stmts, made) =
            registers(work, &mut body, (shape.cols(), &vars), (&reduces, &terms, inside), starts);
        body.item().body.extend(stmts);
        reduces.iter().zip(made).for_each(|(&id, value)| body.set_of_row(id, value));
    }
    let stores = stores(work, &mut body, &Place { element, coordinates: rows, lanes: lanes_of });
    body.item().body.extend(stores);
    let (inside, _) = body.take();
    let kind = LoopKind::Grid;
    body.push(Stmt::Loop { var: element, kind, start, end, step, carried: vec![], body: inside });
    scheduled(body, when, shape.space(lanes.into()), DimExpr::constant(0))
}

/// The loops along the rows that are left, whose partial results go from one iteration to the next.
fn registers(
    work: &Work<'_>,
    body: &mut Body<'_>,
    (cols, vars): (&[SpaceDim], &[Value]),
    (reduces, terms, inside): (&[NodeId], &[Value], Vec<Stmt>),
    starts: Vec<Value>,
) -> (Vec<Stmt>, Vec<Value>) {
    let (Some((dim, cols)), Some((&var, vars))) = (cols.split_first(), vars.split_first()) else {
        let mut inside = inside;
        let mut b = body.writer(&mut inside);
        let pairs = starts.iter().zip(terms).zip(reduces);
        let made =
            pairs.map(|((&so_far, &term), &id)| b.apply(combine(reduce_of(work, id)), &[so_far, term]));
        let made = made.collect();
        return (inside, made);
    };
    let given: Vec<Value> = starts.iter().map(|&start| fresh(body, start)).collect();
    let (inside, next) = registers(work, body, (cols, vars), (reduces, terms, inside), given.clone());
    let out: Vec<Value> = starts.iter().map(|&start| fresh(body, start)).collect();
    let carried = (0..out.len())
        .map(|i| Carried { start: starts[i], var: given[i], next: next[i], out: out[i] })
        .collect();
    let (start, step, end) = (body.top().index(0), body.top().index(1), body.extent(&dim.extent));
    (vec![Stmt::Loop { var, kind: LoopKind::Serial, start, end, step, carried, body: inside }], out)
}

fn fresh(body: &mut Body<'_>, like: Value) -> Value {
    let mut b = body.top();
    b.declare(b.ty(like))
}

fn on_cpu(work: &Work<'_>, facts: &TargetFacts, shape: &Shape) -> Scheduled {
    let mut body = Body::new(work, facts, &shape.dims, work.name.into(), (IndexWidth::Bits64, Sight::Whole));
    body.run_across(shape.rows - 1);
    let beside = body.extent(&shape.beside().extent);
    let mut top = body.top();
    let (zero, one, grain) = (top.index(0), top.index(1), top.index(i64::from(GRAIN)));
    let up = top.index(i64::from(GRAIN) - 1);
    let padded = top.apply(Op::Add, &[beside, up]);
    let blocks = top.apply(Op::IntDiv, &[padded, grain]);
    let item = top.declare(INDEX);
    let mut b = body.item();
    let (row, block) = (b.apply(Op::IntDiv, &[item, blocks]), b.apply(Op::IntRem, &[item, blocks]));
    let first = b.apply(Op::Mul, &[block, grain]);
    let left = b.apply(Op::Sub, &[beside, first]);
    let len = b.apply(Op::Min, &[left, grain]);
    let mut rows = body.decode_dims(row, shape.rows - 1);
    rows.push(first);
    let mut count = 0;
    for reduces in runs(work) {
        let memory: Vec<SharedId> = reduces
            .iter()
            .map(|_| body.share(Shared { dtype: DType::F32, len: SharedLen::AtLaunch }))
            .collect();
        count += memory.len() as i64;
        for (&id, &memory) in reduces.iter().zip(&memory) {
            let identity = identity(work, &mut body, id, Lanes::ONE);
            let start = body.inner().splat(identity, Lanes::Loop);
            body.inner().body.push(Stmt::StoreShared(memory, zero, start));
        }
        let starts = Stmt::Vector { len, body: body.take_inner(), folds: vec![] };
        let (vars, place) = place(&mut body, shape, (item, &rows), Lanes::Loop);
        let terms = terms(work, &mut body, &reduces, &place);
        for ((&id, &memory), term) in reduces.iter().zip(&memory).zip(terms) {
            let ty = Type { dtype: DType::F32, lanes: Lanes::Loop };
            let so_far = body.inner().bind(ty, Expr::LoadShared(memory, zero));
            let next = body.inner().apply(combine(reduce_of(work, id)), &[so_far, term]);
            body.inner().body.push(Stmt::StoreShared(memory, zero, next));
        }
        let mut stmts = vec![Stmt::Vector { len, body: body.take_inner(), folds: vec![] }];
        for (dim, &var) in shape.cols().iter().zip(&vars).rev() {
            let end = body.extent(&dim.extent);
            let kind = LoopKind::Serial;
            stmts = vec![Stmt::Loop { var, kind, start: zero, end, step: one, carried: vec![], body: stmts }];
        }
        body.item().body.push(starts);
        body.item().body.extend(stmts);
        for (&id, memory) in reduces.iter().zip(memory) {
            body.hold(id, memory, zero);
            body.fill(id);
        }
    }
    let stores = stores(work, &mut body, &Place { element: item, coordinates: rows, lanes: Lanes::Loop });
    body.item().body.push(Stmt::Vector { len, body: stores, folds: vec![] });
    let (inside, _) = body.take();
    let kind = LoopKind::Grid;
    body.push(Stmt::Loop {
        var: item,
        kind,
        start: zero,
        end: one,
        step: one,
        carried: vec![],
        body: inside,
    });
    let memory = DimExpr::constant(count * 4 * i64::from(GRAIN));
    scheduled(body, vec![], shape.space(GRAIN), memory)
}

fn scheduled(body: Body<'_>, when: Vec<Condition>, space: Space, row_memory: DimExpr) -> Scheduled {
    let (kernel, buffers) = body.finish();
    Scheduled { when, kernel, buffers, space, row_memory }
}

/// A counter for each dim of a row, and the place that they make.
fn place(
    body: &mut Body<'_>,
    shape: &Shape,
    (element, rows): (Value, &[Value]),
    lanes: Lanes,
) -> (Vec<Value>, Place) {
    let vars: Vec<Value> = shape.cols().iter().map(|_| body.top().declare(INDEX)).collect();
    let coordinates = rows.iter().chain(&vars).copied().collect();
    (vars, Place { element, coordinates, lanes })
}

/// What is combined, of the elements at a place.
fn terms(work: &Work<'_>, body: &mut Body<'_>, reduces: &[NodeId], place: &Place) -> Vec<Value> {
    let term = |&id: &NodeId| {
        let term = body.value(work.graph.node(id).args[0], &vec![], place);
        body.inner().splat(term, place.lanes)
    };
    reduces.iter().map(term).collect()
}

fn stores(work: &Work<'_>, body: &mut Body<'_>, place: &Place) -> Vec<Stmt> {
    let stores = work.group.stores.iter().zip(&work.stores);
    let stores: Vec<Stmt> =
        stores.map(|(store, &buffer)| body.store_across(buffer, store.node, place)).collect();
    body.inner().body.extend(stores);
    body.take_inner()
}

fn identity(work: &Work<'_>, body: &mut Body<'_>, id: NodeId, lanes: Lanes) -> Value {
    let dtype = work.graph.node(id).dtype;
    let value = body.top().constant(dtype, reduce_of(work, id).identity(dtype));
    body.top().splat(value, lanes)
}
