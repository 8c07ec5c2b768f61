//! Rows that lie side by side, on the CPU: a thread goes through a block of them together, and has in its memory what is so
//! far of each.

use std::collections::BTreeSet;

use super::super::body::{Body, Place, Sight};
use super::super::hold::Hold;
use super::super::pointwise::Items;
use super::super::runs::{Monoid, Run, Runs, combined, identity, runs};
use super::super::strips::{Strips, is_long};
use super::super::{Scheduled, Work};
use super::{
    PartSteps, Shape, Stored, is_turn, of_rows_in, place, scheduled, steps, stored_elements, stores,
};
use crate::fuse::is_op;
use crate::ir::dtype::DType;
use crate::ir::graph::NodeId;
use crate::ir::kernel::{IndexWidth, Lanes, Shared, SharedId, SharedLen, Stmt, Type, Value};
use crate::ir::ops::Op;
use crate::target::TargetFacts;

/// Rows that a thread goes through together: their partial results stay in the smallest cache.
const GRAIN: u32 = 512;

pub(super) fn on_cpu(work: &Work<'_>, facts: &TargetFacts, shape: &Shape) -> Scheduled {
    let mut body = Body::new(work, facts, &shape.dims, work.name.into(), (IndexWidth::Bits64, Sight::Whole));
    body.run_along(shape.rows - 1);
    let zero = body.top().index(0);
    let items = Items::of(&mut body, &shape.beside().extent, GRAIN);
    let Items { item, row, col: first, len, .. } = items;
    let mut rows = body.decode_dims(row, shape.rows - 1);
    rows.push(first);
    let row = Place { element: item, coordinates: rows, lanes: Lanes::Loop, apart: false, in_row: None };
    let part = PartSteps::new(&mut body, shape, &row.coordinates);
    let mut block = Block { work, shape, part, row, len, kept: BTreeSet::new(), zero };
    runs(work, Runs::Each).iter().for_each(|run| block.combine(&mut body, run));
    let elements = stored_elements(work);
    if !elements.is_empty() {
        block.keep_of_rows(&mut body, &elements);
        let (vars, place) = place(&mut body, shape, (item, &block.row.coordinates), Lanes::Loop);
        let inside = stores(work, &mut body, Stored::Elements, &place);
        let stmts = block.along(&mut body, &vars, inside, &[]);
        body.item().body.extend(stmts);
    }
    let stores = stores(work, &mut body, Stored::Rows, &block.row);
    if !stores.is_empty() {
        body.item().body.push(Stmt::Vector { len, body: stores, folds: vec![] });
    }
    let (inside, _) = body.take();
    items.deal(&mut body, inside);
    scheduled(body, vec![], shape.space(GRAIN), i64::from(GRAIN))
}

/// Neighbouring rows that a thread of the CPU goes through together.
struct Block<'b> {
    work: &'b Work<'b>,
    shape: &'b Shape,
    part: Option<PartSteps>,
    /// The first of them.
    row: Place,
    /// How many.
    len: Value,
    /// The values of rows that are in memory of the thread.
    kept: BTreeSet<NodeId>,
    zero: Value,
}

impl Block<'_> {
    /// Goes through the rows once.
    fn combine(&mut self, body: &mut Body<'_>, run: &Run) {
        let work = self.work;
        self.keep_of_rows(body, &run.elements(work));
        let long = self.shape.cols().iter().filter(|dim| is_long(&dim.extent)).count();
        // Of the row first, and then of the strip of each loop that has some.
        let totals: Vec<Total> = (0..=long).map(|_| Total::new(work, body, run)).collect();
        let starts = self.start(body, &totals[0]);
        let (vars, place) = place(body, self.shape, (self.row.element, &self.row.coordinates), Lanes::Loop);
        let terms = run.terms_at(work, body, &place);
        let total = &totals[long];
        let so_far = total.recall(body, self.zero);
        let next = run.next(work, &mut body.inner(), &so_far, &terms);
        total.keep(body, self.zero, &next);
        let inside = body.take_inner();
        let stmts = self.along(body, &vars, inside, &totals);
        body.item().body.push(starts);
        body.item().body.extend(stmts);
        for (id, &(_, memory)) in run.made().into_iter().zip(&totals[0].parts) {
            body.hold(id, Hold::Shared(memory, self.zero), true);
            body.fill(id);
            self.kept.insert(id);
        }
    }

    /// Before the first term.
    fn start(&self, body: &mut Body<'_>, total: &Total) -> Stmt {
        let identity = |&(part, _): &(Monoid, SharedId)| {
            let identity = identity(&mut body.top(), part, Lanes::ONE);
            body.inner().splat(identity, Lanes::Loop)
        };
        let identity: Vec<Value> = total.parts.iter().map(identity).collect();
        total.keep(body, self.zero, &identity);
        Stmt::Vector { len: self.len, body: body.take_inner(), folds: vec![] }
    }

    /// A strip's total, added to that of all before.
    fn add(&self, body: &mut Body<'_>, total: &Total, strip: &Total) -> Stmt {
        let parts: Vec<Monoid> = total.parts.iter().map(|&(part, _)| part).collect();
        let (before, strip) = (total.recall(body, self.zero), strip.recall(body, self.zero));
        let all = combined(&mut body.inner(), &parts, &before, &strip);
        total.keep(body, self.zero, &all);
        Stmt::Vector { len: self.len, body: body.take_inner(), folds: vec![] }
    }

    /// Makes and keeps the values of rows that these of elements are made of, before the loop over those.
    fn keep_of_rows(&mut self, body: &mut Body<'_>, elements: &[NodeId]) {
        let graph = self.work.graph;
        let keeps = |id: NodeId| {
            graph.node(id).dtype.size() >= 4 && (is_op(graph, graph.node(id)) || is_turn(self.work, id))
        };
        let of_rows = of_rows_in(self.work, body, elements, keeps);
        let fresh: Vec<NodeId> = of_rows.into_iter().filter(|&id| self.kept.insert(id)).collect();
        for &id in &fresh {
            let memory = share(body, graph.node(id).dtype);
            body.hold(id, Hold::Shared(memory, self.zero), true);
        }
        for &id in &fresh {
            body.value(id, &vec![], &self.row);
        }
        if !fresh.is_empty() {
            let inside = body.take_inner();
            body.item().body.push(Stmt::Vector { len: self.len, body: inside, folds: vec![] });
        }
    }

    /// The loops along the rows, with the totals of rows and strips if something is combined.
    fn along(&self, body: &mut Body<'_>, vars: &[Value], inside: Vec<Stmt>, totals: &[Total]) -> Vec<Stmt> {
        let (mut stmts, len) = self.len(body, vars);
        stmts.push(Stmt::Vector { len, body: inside, folds: vec![] });
        let mut totals = totals;
        for (i, &var) in vars.iter().enumerate().rev() {
            let (steps, is_long) = steps(body, (self.shape, self.part.as_ref()), (var, self.shape.rows + i));
            stmts = match totals {
                [.., total, strip] if is_long => {
                    totals = &totals[..totals.len() - 1];
                    let Strips { over, bounds, within } = steps.in_strips(body);
                    let of_strip =
                        [self.start(body, strip), within.run(vec![], stmts), self.add(body, total, strip)];
                    vec![over.run(vec![], bounds.into_iter().chain(of_strip).collect())]
                }
                _ => vec![steps.run(vec![], stmts)],
            };
        }
        stmts
    }

    /// How many rows there are in a step: of parts that take turns, those that have one more.
    fn len(&self, body: &mut Body<'_>, vars: &[Value]) -> (Vec<Stmt>, Value) {
        let (mut stmts, shape) = (vec![], self.shape);
        let (Some(part), Some(turn)) = (&self.part, shape.turn_beside()) else { return (stmts, self.len) };
        let (each, at) = (body.extent(&turn.each), vars[part.along - shape.rows]);
        let first = self.row.coordinates[shape.rows - 1];
        let mut b = body.writer(&mut stmts);
        let left = b.apply(Op::Sub, &[part.run.end, at]);
        let elements = b.apply(Op::Mul, &[left, each]);
        let left = b.apply(Op::Sub, &[elements, first]);
        let len = b.apply(Op::Min, &[left, self.len]);
        (stmts, len)
    }
}

/// What is combined so far, in memory of the thread.
struct Total {
    parts: Vec<(Monoid, SharedId)>,
}

impl Total {
    fn new(work: &Work<'_>, body: &mut Body<'_>, run: &Run) -> Total {
        Total { parts: run.reduces(work).into_iter().map(|part| (part, share(body, part.1))).collect() }
    }

    fn recall(&self, body: &mut Body<'_>, first: Value) -> Vec<Value> {
        let ty = |dtype| Type { dtype, lanes: Lanes::Loop };
        self.parts.iter().map(|&((_, dtype), memory)| body.recall(memory, first, ty(dtype))).collect()
    }

    fn keep(&self, body: &mut Body<'_>, first: Value, values: &[Value]) {
        self.parts.iter().zip(values).for_each(|(&(_, memory), &value)| body.keep(memory, first, value));
    }
}

/// Memory of the thread, for a value of each row.
fn share(body: &mut Body<'_>, dtype: DType) -> SharedId {
    let dtype = if dtype == DType::F64 { dtype } else { DType::F32 };
    body.share(Shared { dtype, len: SharedLen::AtLaunch })
}
