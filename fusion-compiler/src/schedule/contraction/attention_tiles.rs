//! Attention on GPUs: a team has a tile of queries and columns of the values, and takes some keys at a time. It
//! computes their scores, turns them into weights, and adds products of weights and values to the sums of the tile.
//!
//! Weights are relative to the largest score so far, so the sums are scaled whenever the largest grows (Milakov and
//! Gimelshein 2018). The order of a sum depends on extents alone.

use super::super::body::{Body, Level};
use super::super::combine::combine;
use super::super::passes::identity;
use super::super::space::{product, widths};
use super::super::{Config, Scheduled, Work};
use super::Product;
use super::seen_keys::{TileRows, seen_keys};
use super::tiles::{Numbers, Role, Side, TileConfig, Tiled, to_halve};
use super::visible::Interval;
use crate::fuse::Store;
use crate::fuse::attention::{Attention, Softmax};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{NodeId, Reduce};
use crate::ir::kernel::{
    Builder, Carried, Expr, Fold, IndexWidth, Lanes, LoopKind, Panels, Stmt, ThreadMap, Type, Value,
};
use crate::ir::op::Op;
use crate::ir::plan::{Condition, UniformArg};
use crate::target::{AttentionShape, TargetFacts, TileShape};

const INDEX: Type = Type { dtype: DType::Index, lanes: Lanes::ONE };

/// Attention as two products in one kernel.
pub(super) struct AttendTiles<'w> {
    pub(super) of: &'w Attention,
    pub(super) work: &'w Work<'w>,
    pub(super) facts: &'w TargetFacts,
    pub(super) scores: &'w Product,
    pub(super) sums: &'w Product,
    /// The first and the last key that a row sees, as far as masks have such ends.
    pub(super) seen: Interval,
    /// True if the first axis of the batch counts parts of the keys.
    pub(super) in_parts: bool,
}

/// A variant of the kernel.
struct Variant<'w> {
    of: &'w AttendTiles<'w>,
    tiled: Tiled<'w>,
    shape: AttentionShape,
}

/// Values that iterations over the keys pass on.
#[derive(Clone, Copy)]
struct State {
    /// Sums of values times weights.
    sums: Value,
    softmax: Option<SoftmaxState>,
}

/// Values of each row.
#[derive(Clone, Copy)]
struct SoftmaxState {
    /// The largest score.
    largest: Value,
    /// The sum of the weights.
    total: Value,
}

/// The numbers of a tile.
struct Place<'p> {
    tile: Value,
    batch: &'p [Value],
    /// The first row.
    row: Value,
    rows: &'p Numbers,
    cols: &'p Numbers,
    /// The first of the keys at hand.
    first: Value,
}

impl AttendTiles<'_> {
    /// Returns the ways to run the group.
    pub(super) fn configs(&self) -> Vec<Config> {
        let shapes = self.facts.contractions.attention;
        let last = shapes[shapes.len() - 1];
        let mut configs: Vec<Scheduled> = Vec::new();
        for index in widths(self.work, self.facts) {
            let narrow = shapes.iter().filter(|_| index == IndexWidth::Bits32);
            configs.extend(narrow.map(|&shape| self.of_shape(shape, (index, true))));
            configs.push(self.of_shape(last, (index, false)));
        }
        if !to_halve(self.work, self.facts).is_empty() {
            configs.push(self.variant(last, (IndexWidth::Bits32, false, true)).scheduled());
        }
        // No other kernel runs the group.
        if let Some(last) = configs.last_mut() {
            last.when.clear();
        }
        configs.into_iter().map(|made| vec![made]).collect()
    }

    /// Returns the kernel with tiles of this shape. Smaller tiles than the largest are for as few rows and columns.
    pub(super) fn of_shape(&self, shape: AttentionShape, (index, aligned): (IndexWidth, bool)) -> Scheduled {
        let shapes = self.facts.contractions.attention;
        let last = shapes[shapes.len() - 1];
        let mut made = self.variant(shape, (index, aligned, false)).scheduled();
        let sides = [(&self.sums.rows, shape.rows, last.rows), (&self.sums.cols, shape.cols, last.cols)];
        for (axes, len, _) in sides.into_iter().filter(|(_, len, most)| len < most) {
            let extent = DimExpr::product(axes.iter().map(|&axis| &self.work.graph.axis(axis).extent));
            made.when.push(Condition::AtMost(extent, len.into()));
        }
        made
    }

    fn variant(&self, shape: AttentionShape, of: (IndexWidth, bool, bool)) -> Variant<'_> {
        let (index, aligned, halved) = of;
        let AttentionShape { rows, cols, depth, threads, .. } = shape;
        let panels = Panels::Stored;
        let tile = TileShape { rows, cols, depth, threads, size_max: 4, elements_min: 0, panels };
        let config = TileConfig { shape: tile, index, aligned, halved };
        let tiled = Tiled::new(self.sums, self.work, self.facts, config).of_scores(self.scores);
        Variant { of: self, tiled, shape }
    }
}

impl Variant<'_> {
    fn scheduled(&self) -> Scheduled {
        let AttentionShape { rows: height, cols: width, keys, threads, .. } = self.shape;
        let (work, tiled) = (self.of.work, &self.tiled);
        let all = tiled.dims.concat();
        let mut body = tiled.body(&all, "attention");
        // Each thread has four of the keys, in as many rows as threads leave.
        let rows = threads / u32::from(keys / 4);
        body.set_threads(ThreadMap { team: threads, rows, ..ThreadMap::ALONE });
        let start = body.uniform(UniformArg::Start, DType::Index, "start");
        let end = body.uniform(UniformArg::End, DType::Index, "end");
        let tile = body.top().declare(INDEX);
        let (_, batch, [row, col]) = tiled.decode(&mut body, tile);
        let numbers = |body: &mut Body<'_>, (first, role), side| {
            Numbers::new(body, Level::Item, (first, tiled.dims(role)), side)
        };
        let rows = numbers(&mut body, (row, Role::Rows), (Side::Rows, height));
        let cols = numbers(&mut body, (col, Role::Cols), (Side::Cols, width));
        let first = body.top().declare(INDEX);
        let place = Place { tile, batch: &batch, row, rows: &rows, cols: &cols, first };
        let state = self.keys(&mut body, &place);
        self.finish(&mut body, state);
        let of_elements = [
            (Role::Batch, batch.as_slice()),
            (Role::Rows, &rows.coordinates),
            (Role::Cols, &cols.coordinates),
        ];
        let is_of_elements = |store: &Store| work.group.order == store.order;
        let at = tiled.place(&mut body, tile, &of_elements);
        tiled.store(&mut body, &at, [rows.within, cols.within], is_of_elements);
        if !work.group.stores.iter().all(is_of_elements) {
            // The tile with the first columns stores results of rows.
            let zero = body.top().index(0);
            let is_first = body.item().apply(Op::Eq, &[col, zero]);
            let at = tiled.place(&mut body, tile, &of_elements[..2]);
            tiled.store(&mut body, &at, [rows.within, is_first], |store| !is_of_elements(store));
        }
        let inside = std::mem::take(&mut body.item);
        let (step, kind) = (body.top().index(1), LoopKind::Team);
        body.push(Stmt::Loop { var: tile, kind, start, end, step, carried: vec![], body: inside });
        tiled.finished(body)
    }

    /// Takes all keys, some at a time. Returns what the last iteration passes on.
    fn keys(&self, body: &mut Body<'_>, place: &Place<'_>) -> State {
        let AttentionShape { rows, cols, keys, .. } = self.shape;
        let f32 = |lanes| Type { dtype: DType::F32, lanes };
        let splat = |body: &mut Body<'_>, of: Const, ty: Type| {
            let value = body.top().constant(DType::F32, of);
            body.item().bind(ty, Expr::Splat(value))
        };
        let of_rows = f32(Lanes::Tile(rows, 1));
        let mut starts = vec![splat(body, Const::zero(DType::F32), f32(Lanes::Tile(rows, cols)))];
        if let Some(softmax) = &self.of.of.softmax {
            let least = self.reduce_of(softmax.largest).identity(DType::F32);
            starts.push(splat(body, least, of_rows));
            starts.push(splat(body, Const::zero(DType::F32), of_rows));
        }
        let mut top = body.top();
        let declare = |top: &mut Builder<'_>, start: &Value| top.declare(top.ty(*start));
        let vars: Vec<Value> = starts.iter().map(|start| declare(&mut top, start)).collect();
        let outs: Vec<Value> = starts.iter().map(|start| declare(&mut top, start)).collect();
        let state = |of: &[Value]| State {
            sums: of[0],
            softmax: of.get(1).map(|&largest| SoftmaxState { largest, total: of[2] }),
        };
        let mut inside = Vec::new();
        let next = self.step(body, place, state(&vars), &mut inside);
        let softmax = next.softmax.into_iter().flat_map(|of| [of.largest, of.total]);
        let next: Vec<Value> = [next.sums].into_iter().chain(softmax).collect();
        let each = starts.iter().zip(&vars).zip(next).zip(&outs);
        let carried = each.map(|(((&start, &var), next), &out)| Carried { start, var, next, out }).collect();
        let (start, end) = self.seen(body, place);
        let step = body.top().index(keys.into());
        let kind = LoopKind::Serial;
        body.item.push(Stmt::Loop { var: place.first, kind, start, end, step, carried, body: inside });
        state(&outs)
    }

    /// Returns the first key that some row of the tile sees, and the key past the last one.
    fn seen(&self, body: &mut Body<'_>, place: &Place<'_>) -> (Value, Value) {
        let count = body.extent(&product(self.tiled.dims(Role::Depth)));
        let Interval { first, last } = self.of.seen;
        if first.is_none() && last.is_none() {
            let first = body.top().index(0);
            return self.of_part(body, place, (first, count));
        }
        let at = self.tiled.place(body, place.tile, &[(Role::Batch, place.batch)]);
        let AttentionShape { rows, keys, .. } = self.shape;
        let dims = self.tiled.dims(Role::Rows);
        let rows = TileRows { dims, first: place.row, count: rows, place: &at };
        let seen = seen_keys(body, &rows, [first, last], (count, keys));
        self.of_part(body, place, seen)
    }

    /// Returns the first and the end of some keys that are in the part at hand.
    fn of_part(
        &self,
        body: &mut Body<'_>,
        place: &Place<'_>,
        (start, end): (Value, Value),
    ) -> (Value, Value) {
        let Some(len) = self.shape.part.filter(|_| self.of.in_parts) else { return (start, end) };
        let len = body.top().index(len.into());
        let mut b = body.item();
        let first = b.apply(Op::Mul, &[place.batch[0], len]);
        let past = b.apply(Op::Add, &[first, len]);
        (b.apply(Op::Max, &[start, first]), b.apply(Op::Min, &[end, past]))
    }

    /// Takes the keys at hand.
    fn step(&self, body: &mut Body<'_>, place: &Place<'_>, state: State, inside: &mut Vec<Stmt>) -> State {
        let (of, tiled, AttentionShape { keys, depth, .. }) = (self.of.of, &self.tiled, self.shape);
        let of_keys = (place.first, tiled.dims(Role::Depth));
        // Keys are the columns of scores, and the rows of values.
        let across = Numbers::new(body, Level::Inner, of_keys, (Side::Cols, keys));
        inside.extend(body.take_inner());
        let of_scores = (self.of.scores, Role::Further, depth);
        let numbers = [(Role::Rows, place.rows), (Role::Depth, &across)];
        let (stmts, products) = tiled.depth_loop(body, of_scores, (place.tile, place.batch), numbers);
        inside.extend(stmts);
        body.values.insert((of.products, vec![]), (Level::Inner, products));
        body.masks = vec![place.rows.within, across.within];
        let coordinates = [
            (Role::Batch, place.batch),
            (Role::Rows, place.rows.coordinates.as_slice()),
            (Role::Depth, &across.coordinates),
        ];
        let at = tiled.place(body, place.tile, &coordinates);
        let (weights, scaled, softmax) = match (&of.softmax, state.softmax) {
            (Some(softmax), Some(before)) => {
                let scores = self.of.work.graph.node(softmax.largest).args[0];
                let scores = body.value(scores, &vec![], &at);
                inside.extend(body.take_inner());
                let made = self.weights(body, softmax, (scores, across.within), before, inside);
                let scaled = body.writer(inside).apply(Op::Mul, &[state.sums, made.factor]);
                (made.weights, scaled, Some(made.state))
            }
            _ => {
                let weights = body.value(of.weights, &vec![], &at);
                inside.extend(body.take_inner());
                let zero = body.top().constant(DType::F32, Const::zero(DType::F32));
                let weights = body.writer(inside).apply(Op::Select, &[across.within, weights, zero]);
                (weights, state.sums, None)
            }
        };
        let down = Numbers::new(body, Level::Inner, of_keys, (Side::Rows, keys));
        let coordinates = [
            (Role::Batch, place.batch),
            (Role::Cols, place.cols.coordinates.as_slice()),
            (Role::Depth, &down.coordinates),
        ];
        let at = tiled.place(body, place.tile, &coordinates);
        let values = tiled.factor(body, (of.values, [place.cols, &down]), &at);
        inside.extend(body.take_inner());
        let mut b = body.writer(inside);
        let ty = b.ty(state.sums);
        State { sums: b.bind(ty, Expr::Product(scaled, weights, values)), softmax }
    }

    fn reduce_of(&self, largest: NodeId) -> Reduce {
        let reduce = self.of.work.graph.reduce_of(largest);
        reduce.unwrap_or_else(|| unreachable!("the largest score is a reduction"))
    }

    /// Returns the weights of keys, relative to the largest score so far.
    fn weights(
        &self,
        body: &mut Body<'_>,
        softmax: &Softmax,
        (scores, within): (Value, Value),
        before: SoftmaxState,
        inside: &mut Vec<Stmt>,
    ) -> Weights {
        let reduce = self.reduce_of(softmax.largest);
        let [least, zero, one] = [reduce.identity(DType::F32), Const::zero(DType::F32), Const::Float(1.0)]
            .map(|of| body.top().constant(DType::F32, of));
        let scores = body.writer(inside).apply(Op::Select, &[within, scores, least]);
        let of_part = self.all_reduce(body, reduce, scores, inside);
        let mut b = body.writer(inside);
        let largest = b.apply(combine(reduce), &[before.largest, of_part]);
        // Without any finite score the largest is no number to subtract.
        let is_infinite = b.apply(Op::IsInf, &[largest]);
        let shift = b.apply(Op::Select, &[is_infinite, zero, largest]);
        let distance = b.apply(Op::Sub, &[scores, shift]);
        let weights = b.apply(Op::Exp, &[distance]);
        let is_same = b.apply(Op::Eq, &[before.largest, largest]);
        let grown = b.apply(Op::Sub, &[before.largest, shift]);
        let factor = b.apply(Op::Exp, &[grown]);
        let factor = b.apply(Op::Select, &[is_same, one, factor]);
        let of_part = self.all_reduce(body, Reduce::Sum, weights, inside);
        let total = body.writer(inside).apply(Op::Fma, &[before.total, factor, of_part]);
        Weights { weights, factor, state: SoftmaxState { largest, total } }
    }

    /// Combines the columns of each row.
    fn all_reduce(&self, body: &mut Body<'_>, reduce: Reduce, over: Value, inside: &mut Vec<Stmt>) -> Value {
        let identity = identity(&mut body.top(), (reduce, DType::F32), Lanes::ONE);
        let (mut combined, mut top) = (Vec::new(), body.top());
        let [left, right] = [(); 2].map(|()| top.declare(Type { dtype: DType::F32, lanes: Lanes::ONE }));
        let out = top.declare(Type { dtype: DType::F32, lanes: Lanes::Tile(self.shape.rows, 1) });
        let result = body.writer(&mut combined).apply(combine(reduce), &[left, right]);
        inside.push(Stmt::AllReduce(Box::new(Fold {
            over: vec![over],
            times: None,
            identity: vec![identity],
            left: vec![left],
            right: vec![right],
            body: combined,
            results: vec![result],
            out: vec![out],
        })));
        out
    }

    /// Gives the body the values of rows and of elements that results are computed from.
    fn finish(&self, body: &mut Body<'_>, state: State) {
        let of = self.of.of;
        let mut sums = state.sums;
        if let (Some(softmax), Some(SoftmaxState { largest, total }), true) =
            (&of.softmax, state.softmax, self.of.in_parts)
        {
            for (node, value) in softmax.state().into_iter().zip([largest, total]) {
                body.set_of_row(node, value);
            }
        } else if let (Some(softmax), Some(SoftmaxState { largest, total })) = (&of.softmax, state.softmax) {
            // Distances from an infinite number are NaN, if there are any.
            let extent = product(self.tiled.dims(Role::Depth));
            let count = body.extent(&extent);
            let zero = body.top().constant(DType::F32, Const::zero(DType::F32));
            let none = body.top().index(0);
            let is_empty = body.top().apply(Op::Eq, &[count, none]);
            let mut b = body.item();
            let lost = b.apply(Op::Mul, &[largest, zero]);
            let lost = b.apply(Op::Select, &[is_empty, zero, lost]);
            let raw = b.apply(Op::Add, &[total, lost]);
            if softmax.shift == softmax.largest {
                sums = b.apply(Op::Add, &[sums, lost]);
            }
            body.set_of_row(softmax.largest, largest);
            for &(sum, shift) in &softmax.sums {
                body.set_of_row(sum, if shift == softmax.largest { raw } else { total });
            }
        }
        body.set_of_row(of.sum, sums);
    }
}

/// What keys give.
struct Weights {
    weights: Value,
    /// Factor of the sums of all keys before.
    factor: Value,
    state: SoftmaxState,
}
