//! Products on GPUs whose elements nobody reads, but for reductions along the columns: a team combines the columns of its
//! tile and stores partial results alone.

use super::super::body::{Body, Level};
use super::super::combine::combine;
use super::super::passes::identity;
use super::super::space::{dims_along, widths};
use super::super::split_reduction::Stage;
use super::super::staging::reduction;
use super::super::{Config, Scheduled, Work};
use super::Product;
use super::tiles::{Numbers, Role, Side, TileConfig, Tiled};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::{AxisId, AxisSet, NodeId, Reduce};
use crate::ir::kernel::{Fold, IndexWidth, Lanes, LoopKind, Stmt, ThreadMap, Type, Value};
use crate::ir::op::Op;
use crate::ir::plan::UniformArg;
use crate::target::{TargetFacts, TileShape};

const INDEX: Type = Type { dtype: DType::Index, lanes: Lanes::ONE };

/// A product and the reductions of its elements, in the graph of the reductions of parts.
pub(super) struct Reduced {
    pub(super) product: Product,
    pub(super) stage: Stage,
    /// The axis that counts parts of columns.
    pub(super) part: AxisId,
    /// Columns of a part.
    pub(super) len: DimExpr,
    /// Axes of the columns of a part.
    pub(super) along: AxisSet,
}

/// A kernel of tiles that stores partial results.
struct ReducedTiles<'w> {
    of: &'w Reduced,
    tiled: Tiled<'w>,
}

impl Reduced {
    /// Returns the configs that compute partial results in tiles of this shape, whose columns are a part.
    pub(super) fn configs(&self, facts: &TargetFacts, shape: TileShape) -> Vec<Config> {
        let work = self.stage.work();
        let mut configs = Vec::new();
        for index in widths(&work, facts) {
            for aligned in [true, false].into_iter().filter(|aligned| !aligned || index == IndexWidth::Bits32)
            {
                let config = TileConfig { shape, index, aligned, halved: false };
                configs.push(vec![self.tiles(&work, facts, config)]);
            }
        }
        configs
    }

    fn tiles(&self, work: &Work<'_>, facts: &TargetFacts, config: TileConfig) -> Scheduled {
        let mut tiled = Tiled::new(&self.product, work, facts, config);
        tiled.dims[Role::Further as usize] = dims_along(work, &[self.part]);
        ReducedTiles { of: self, tiled }.scheduled()
    }
}

impl ReducedTiles<'_> {
    fn scheduled(&self) -> Scheduled {
        let (tiled, Reduced { product, len, .. }) = (&self.tiled, self.of);
        let TileShape { rows: height, cols: width, depth, threads, .. } = tiled.config.shape;
        let all = tiled.dims.concat();
        let mut body = tiled.body(&all, "tiles");
        // A thread has four of the columns.
        let rows = threads / u32::from(width / 4);
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
        let sides = [(Role::Rows, &rows), (Role::Cols, &cols)];
        let (stmts, sum) = tiled.depth_loop(&mut body, (product, Role::Depth, depth), (tile, &batch), sides);
        body.item.extend(stmts);
        body.set_of_row(product.sum, sum);
        let len = body.extent(len);
        let part = [body.item().apply(Op::IntDiv, &[col, len])];
        let of_rows = [
            (Role::Batch, batch.as_slice()),
            (Role::Rows, &rows.coordinates),
            (Role::Further, part.as_slice()),
        ];
        let of_elements = [of_rows.as_slice(), &[(Role::Cols, &cols.coordinates)]].concat();
        let place = tiled.place(&mut body, tile, &of_elements);
        body.masks = vec![rows.within, cols.within];
        for reduce in self.reductions() {
            let node = tiled.work.graph.node(reduce);
            let terms: Vec<Value> = node.args.iter().map(|&arg| body.value(arg, &vec![], &place)).collect();
            let inner = body.take_inner();
            body.item.extend(inner);
            let value = self.reduce(&mut body, (reduction(node), node.dtype), terms, [&rows, &cols]);
            body.set_of_row(reduce, value);
        }
        let place = tiled.place(&mut body, tile, &of_rows);
        tiled.store(&mut body, &place, [rows.within; 2], |_| true);
        let inside = std::mem::take(&mut body.item);
        let (step, kind) = (body.top().index(1), LoopKind::Team);
        body.push(Stmt::Loop { var: tile, kind, start, end, step, carried: vec![], body: inside });
        tiled.finished(body)
    }

    /// Returns the reductions of columns, in the order of their computation.
    fn reductions(&self) -> Vec<NodeId> {
        let work = self.tiled.work;
        let along = |id: &NodeId| work.graph.reduced_axes(*id) == self.of.along;
        work.group.nodes.iter().copied().filter(along).collect()
    }

    /// Combines the columns of each row inside of the space.
    fn reduce(
        &self,
        body: &mut Body<'_>,
        (reduce, dtype): (Reduce, DType),
        terms: Vec<Value>,
        [rows, cols]: [&Numbers; 2],
    ) -> Value {
        let identity = identity(&mut body.top(), (reduce, dtype), Lanes::ONE);
        let mut b = body.item();
        let term = if terms.len() == 1 { terms[0] } else { b.apply(Op::Mul, &terms) };
        let within = b.apply(Op::And, &[rows.within, cols.within]);
        let over = b.apply(Op::Select, &[within, term, identity]);
        let (mut combined, mut top) = (Vec::new(), body.top());
        let [left, right] = [(); 2].map(|()| top.declare(Type { dtype, lanes: Lanes::ONE }));
        let out = top.declare(Type { dtype, lanes: Lanes::Tile(self.tiled.config.shape.rows, 1) });
        let result = body.writer(&mut combined).apply(combine(reduce), &[left, right]);
        body.item.push(Stmt::AllReduce(Box::new(Fold {
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
}
