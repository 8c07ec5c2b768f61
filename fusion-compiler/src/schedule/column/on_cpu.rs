//! Rows that lie side by side, on the CPU: a thread goes through a block of them together, and has in its memory what is so
//! far of each. Sums are kept in `f64`.

use std::collections::BTreeSet;

use super::super::body::{Addressing, Body, Level, Place};
use super::super::items::{Grain, Items};
use super::super::passes::{Accumulator, Monoid, Pass, PassCount, Sums, finished, identity, passes};
use super::super::row_loop::INDEX;
use super::super::staged_buffer::StagedBuffer;
use super::super::strips::Steps;
use super::super::{Scheduled, Work};
use super::{
    ColumnSpace, PartSteps, Stored, is_interleave_index, of_rows_in, place, scheduled, steps,
    stored_elements, stores,
};
use crate::fuse::{is_op, is_transcendental};
use crate::ir::dtype::DType;
use crate::ir::graph::{Access, NodeId};
use crate::ir::kernel::{Expr, IndexWidth, Lanes, Shared, SharedId, SharedLen, Stmt, Type, Value, Values};
use crate::ir::op::Op;
use crate::target::TargetFacts;
use crate::target::tuning_table::cpu;

pub(super) fn on_cpu(work: &Work<'_>, facts: &TargetFacts, space: &ColumnSpace) -> Scheduled {
    let mut body =
        Body::new(work, facts, &space.dims, work.name.into(), (IndexWidth::Bits64, Addressing::Whole));
    body.run_along(space.rows - 1);
    let zero = body.top().index(0);
    let items = Items::of(&mut body, &space.minor().extent, Grain::AtLaunch);
    let Items { item, row, col: first, len, .. } = items;
    let mut rows = body.decode_dims(row, space.rows - 1);
    rows.push(first);
    let row = Place { element: item, coordinates: rows, lanes: Lanes::Loop, apart: false, in_row: None };
    let part = PartSteps::new(&mut body, space, &row.coordinates);
    let mut block = RowBlock { work, space, part, row, len, kept: BTreeSet::new(), zero };
    let (passes, elements) = (passes(work, PassCount::PerStep), stored_elements(work));
    for (number, pass) in passes.iter().enumerate() {
        let total = block.combine(&mut body, pass);
        if number + 1 == passes.len() && elements.is_empty() {
            block.give(&mut body, pass, &total);
        } else {
            block.keep(&mut body, pass, &total);
        }
    }
    if !elements.is_empty() {
        block.keep_of_rows(&mut body, &elements);
        let (vars, place) = place(&mut body, space, (item, &block.row.coordinates), Lanes::Loop);
        let inside = stores(work, &mut body, Stored::Elements, &place);
        let stmts = block.along(&mut body, &vars, inside, None);
        body.item().body.extend(stmts);
    }
    let stores = stores(work, &mut body, Stored::Rows, &block.row);
    if !stores.is_empty() {
        body.item().body.push(Stmt::Vector { len, body: stores, folds: vec![] });
    }
    let (inside, _) = body.take();
    items.distribute(&mut body, inside);
    let grain = (cpu::COLUMN_GRAIN_MIN, cpu::COLUMN_GRAIN);
    scheduled(body, vec![], space.iteration_space(grain), cpu::COLUMN_GRAIN.into())
}

/// Neighbouring rows that a thread of the CPU goes through together.
struct RowBlock<'b> {
    work: &'b Work<'b>,
    space: &'b ColumnSpace,
    part: Option<PartSteps>,
    /// The first of them.
    row: Place,
    /// How many.
    len: Value,
    /// The values of rows that are in memory of the thread.
    kept: BTreeSet<NodeId>,
    zero: Value,
}

impl RowBlock<'_> {
    /// Goes through the rows once.
    fn combine(&mut self, body: &mut Body<'_>, pass: &Pass) -> RowAccumulators {
        let pass = &Pass { sums: Sums::Wide, ..pass.clone() };
        self.keep_of_rows(body, &pass.elements(self.work));
        let total = RowAccumulators::new(self.work, body, pass);
        let start = self.start(body, &total);
        let (vars, _) = place(body, self.space, (self.row.element, &self.row.coordinates), Lanes::Loop);
        let inside = self.elements(body, (pass, &total), &vars, 1);
        let at_once = self.takes_several(&inside).then(|| {
            let mut vars = vars.clone();
            let first = body.top().declare(INDEX);
            vars.splice(vars.len() - 1.., [first]);
            (first, self.elements(body, (pass, &total), &vars, cpu::COLUMN_TERMS))
        });
        let stmts = self.along(body, &vars, inside, at_once);
        body.item().body.push(start);
        body.item().body.extend(stmts);
        total
    }

    /// Before the first term.
    fn start(&self, body: &mut Body<'_>, total: &RowAccumulators) -> Stmt {
        let identity = |&(part, _): &(Monoid, SharedId)| {
            let identity = identity(&mut body.top(), part, Lanes::ONE);
            body.inner().splat(identity, Lanes::Loop)
        };
        let identity: Vec<Value> = total.parts.iter().map(identity).collect();
        total.keep(body, self.zero, &identity);
        Stmt::Vector { len: self.len, body: body.take_inner(), folds: vec![] }
    }

    /// Combines so many elements of each row, from that at these coordinates on.
    fn elements(
        &self,
        body: &mut Body<'_>,
        (pass, total): (&Pass, &RowAccumulators),
        vars: &[Value],
        count: i64,
    ) -> Vec<Stmt> {
        let (mut terms, mut inside) = (vec![], vec![]);
        for number in 0..count {
            let mut coordinates = [self.row.coordinates.as_slice(), vars].concat();
            if let Some(last) = coordinates.last_mut().filter(|_| number > 0) {
                let ahead = self.ahead(body, number);
                *last = body.inner().apply(Op::Add, &[*last, ahead]);
            }
            terms.push(pass.terms_at(self.work, body, &Place { coordinates, ..self.row }));
            inside.extend(body.take_inner());
        }
        let terms: Vec<&[Values]> = terms.iter().map(Vec::as_slice).collect();
        let so_far = total.recall(body, self.zero);
        let next = pass.next_alone(self.work, &mut body.inner(), &so_far, &terms);
        total.keep(body, self.zero, &next);
        inside.extend(body.take_inner());
        inside
    }

    /// Returns true if several elements are combined between a load and a store of the partial result.
    fn takes_several(&self, of_one: &[Stmt]) -> bool {
        let last = &self.space.dims[self.space.dims.len() - 1].extent;
        // An operand that is read and written is one run, in which each element is read at one place.
        let is_written = self.work.operands.iter().any(|operand| operand.access == Access::ReadWrite);
        let are_many = last.as_const().is_none_or(|count| count >= 2 * cpu::COLUMN_TERMS);
        // The code of a transcendental operation is long, and takes longer than the memory.
        let is_long =
            |stmt: &Stmt| matches!(stmt, Stmt::Let(_, Expr::Apply(op, _)) if is_transcendental(*op));
        let is_short = of_one.len() <= cpu::COLUMN_STATEMENTS_MAX && !of_one.iter().any(is_long);
        is_short && !is_written && are_many
    }

    /// Gives the results to the loop that stores them.
    fn give(&self, body: &mut Body<'_>, pass: &Pass, total: &RowAccumulators) {
        let results = self.results(body, total);
        for (id, result) in pass.made().into_iter().zip(results) {
            body.values.insert((id, vec![]), (Level::Inner, result));
        }
    }

    /// Keeps the results for the loops after.
    fn keep(&mut self, body: &mut Body<'_>, pass: &Pass, total: &RowAccumulators) {
        let memories = if total.accumulators.iter().all(|by| matches!(by, Accumulator::Plain(_))) {
            total.parts.iter().map(|&(_, memory)| memory).collect()
        } else {
            let results = self.results(body, total);
            let dtypes: Vec<DType> = results.iter().map(|&result| body.top().ty(result).dtype).collect();
            let memories: Vec<SharedId> = dtypes.into_iter().map(|dtype| share(body, dtype)).collect();
            results.iter().zip(&memories).for_each(|(&result, &to)| body.keep(to, self.zero, result));
            let inside = body.take_inner();
            body.item().body.push(Stmt::Vector { len: self.len, body: inside, folds: vec![] });
            memories
        };
        for (id, memory) in pass.made().into_iter().zip(memories) {
            body.stage(id, StagedBuffer::Shared(memory, self.zero), true);
            body.fill(id);
            self.kept.insert(id);
        }
    }

    fn results(&self, body: &mut Body<'_>, total: &RowAccumulators) -> Vec<Value> {
        let all = total.recall(body, self.zero);
        finished(&mut body.inner(), &total.accumulators, &all)
    }

    /// Makes and keeps the values of rows that these of elements are made of, before the loop over those.
    fn keep_of_rows(&mut self, body: &mut Body<'_>, elements: &[NodeId]) {
        let graph = self.work.graph;
        let keeps = |id: NodeId| {
            graph.node(id).dtype.size() >= 4
                && (is_op(graph, graph.node(id)) || is_interleave_index(self.work, id))
        };
        let of_rows = of_rows_in(self.work, body, elements, keeps);
        let fresh: Vec<NodeId> = of_rows.into_iter().filter(|&id| self.kept.insert(id)).collect();
        for &id in &fresh {
            let memory = share(body, graph.node(id).dtype);
            body.stage(id, StagedBuffer::Shared(memory, self.zero), true);
        }
        for &id in &fresh {
            body.value(id, &vec![], &self.row);
        }
        if !fresh.is_empty() {
            let inside = body.take_inner();
            body.item().body.push(Stmt::Vector { len: self.len, body: inside, folds: vec![] });
        }
    }

    /// The loops along the rows, the innermost of which may take several elements at once, from that of this number on.
    fn along(
        &self,
        body: &mut Body<'_>,
        vars: &[Value],
        inside: Vec<Stmt>,
        mut at_once: Option<(Value, Vec<Stmt>)>,
    ) -> Vec<Stmt> {
        let (mut stmts, len) = self.len(body, vars);
        stmts.push(Stmt::Vector { len, body: inside, folds: vec![] });
        for (i, &var) in vars.iter().enumerate().rev() {
            let dim = self.space.rows + i;
            let (mut steps, _) = steps(body, (self.space, self.part.as_ref()), (var, dim));
            let mut loops = vec![];
            if let Some((var, inside)) = at_once.take() {
                let inside = vec![Stmt::Vector { len: self.len, body: inside, folds: vec![] }];
                let end = self.whole(body, dim);
                let step = self.ahead(body, cpu::COLUMN_TERMS);
                loops.push(Steps { var, step, end, ..steps }.pass(vec![], inside));
                steps.start = end;
            }
            loops.push(steps.pass(vec![], stmts));
            stmts = loops;
        }
        stmts
    }

    /// Returns the distance of so many elements that a thread goes through, along the innermost dim.
    fn ahead(&self, body: &mut Body<'_>, elements: i64) -> Value {
        let elements = body.top().index(elements);
        match self.interleaved(self.space.dims.len() - 1) {
            Some(part) => body.item().apply(Op::Mul, &[part.step, elements]),
            None => elements,
        }
    }

    /// Returns the part along a dim, if its steps are of several coordinates.
    fn interleaved(&self, dim: usize) -> Option<&PartSteps> {
        self.part.as_ref().filter(|part| part.along == dim && part.count.is_some())
    }

    /// Returns the end of the elements along a dim that are taken several at a time.
    fn whole(&self, body: &mut Body<'_>, dim: usize) -> Value {
        let extent = &self.space.dims[dim].extent;
        let part = self.part.as_ref().filter(|part| part.along == dim);
        if let (None, Some(count)) = (part, extent.as_const()) {
            return body.top().index(count - count % cpu::COLUMN_TERMS);
        }
        let (count, end) = match part {
            Some(part) => (part.pass.len, part.pass.end),
            None => {
                let count = body.extent(extent);
                (count, count)
            }
        };
        let over = if self.interleaved(dim).is_some() {
            // All parts have the steps before the last that only some have.
            let step = self.ahead(body, cpu::COLUMN_TERMS);
            body.item().apply(Op::IntRem, &[count, step])
        } else {
            let most = body.top().index(cpu::COLUMN_TERMS - 1);
            body.item().apply(Op::And, &[count, most])
        };
        body.item().apply(Op::Sub, &[end, over])
    }

    /// How many rows there are in a step: of parts that take turns, those that have one more.
    fn len(&self, body: &mut Body<'_>, vars: &[Value]) -> (Vec<Stmt>, Value) {
        let (mut stmts, space) = (vec![], self.space);
        let (Some(part), Some(interleave)) = (&self.part, space.interleave_of_minor()) else {
            return (stmts, self.len);
        };
        let (each, at) = (body.extent(&interleave.each), vars[part.along - space.rows]);
        let first = self.row.coordinates[space.rows - 1];
        let mut b = body.writer(&mut stmts);
        let left = b.apply(Op::Sub, &[part.pass.end, at]);
        let elements = b.apply(Op::Mul, &[left, each]);
        let left = b.apply(Op::Sub, &[elements, first]);
        let len = b.apply(Op::Min, &[left, self.len]);
        (stmts, len)
    }
}

/// What is combined so far, in memory of the thread.
struct RowAccumulators {
    accumulators: Vec<Accumulator>,
    parts: Vec<(Monoid, SharedId)>,
}

impl RowAccumulators {
    fn new(work: &Work<'_>, body: &mut Body<'_>, pass: &Pass) -> RowAccumulators {
        let parts = pass.parts(work).into_iter().map(|part| (part, share(body, part.1))).collect();
        RowAccumulators { accumulators: pass.accumulators(work), parts }
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
