//! Products with so few tiles that most of a GPU would be idle: tiles of parts of the depth, and a kernel that adds
//! the sums of the parts and computes the elements.
//!
//! Parts have a constant length and their sums are added in order, so the order of a sum depends on its length alone.

use std::collections::BTreeMap;

use super::Product;
use super::tiles::{TileConfig, Tiled};
use crate::fuse::{Load, Store};
use crate::ir::dim::{Dim, DimExpr};
use crate::ir::graph::{AxisId, AxisSet, Graph, Node, NodeKind, Reduce};
use crate::ir::kernel::IndexWidth;
use crate::ir::plan::Condition;
use crate::schedule::split_reduction::{GraphCopy, Stage, StageKind, memory};
use crate::schedule::{Config, Operand, Scheduled, Scratch, Work, column};
use crate::target::{DepthParts, TargetFacts};

/// The parts of a depth.
struct Parts<'w> {
    of: &'w Product,
    work: &'w Work<'w>,
    facts: &'w TargetFacts,
    /// The axis of the parts, which no graph has before.
    axis: AxisId,
    dim: Dim,
    /// Sums of the parts.
    sums: Operand,
}

impl Product {
    /// Returns the config that computes parts of the depth in tiles.
    pub(super) fn by_parts(
        &self,
        work: &Work<'_>,
        facts: &TargetFacts,
        (tile, parts): (TileConfig, DepthParts),
        scratch: &mut Vec<Scratch>,
    ) -> Option<Config> {
        let extent =
            |axes: &[AxisId]| DimExpr::product(axes.iter().map(|&axis| &work.graph.axis(axis).extent));
        let depth = extent(&self.depth);
        let (rows, cols) = (extent(&self.rows), extent(&self.cols));
        let [down, across] = [(rows, tile.shape.rows), (cols, tile.shape.cols)]
            .map(|(extent, len)| extent.ceil_div(DimExpr::constant(len.into())));
        let when = [
            Condition::AtMost(extent(&self.batch) * down * across, parts.tiles_max),
            Condition::AtLeast(depth.clone(), parts.depth_min),
        ];
        if when.iter().any(|condition| condition.known() == Some(false)) {
            return None;
        }
        let axis = AxisId(u8::try_from(work.graph.axes.len()).ok()?);
        let dim = Dim { name: "part".into(), extent: depth.ceil_div(DimExpr::constant(parts.len)) };
        let order: Vec<AxisId> = [axis].into_iter().chain(work.group.order.iter().copied()).collect();
        let mut graph = work.graph.clone();
        graph.axes.push(dim.clone());
        let sums = memory(work, scratch, &graph, "parts".into(), graph.node(self.sum).dtype, order);
        let of_depth = Parts { of: self, work, facts, axis, dim, sums };
        let mut first = of_depth.parts(graph, (tile, parts.len));
        first.when.extend(when);
        Some(vec![first, of_depth.whole()?])
    }
}

impl Parts<'_> {
    /// Returns the kernel that computes the sums of all parts.
    fn parts(&self, mut graph: Graph, (tile, len): (TileConfig, i64)) -> Scheduled {
        let part = graph.coordinate(self.axis);
        let order = self.sums.axes.clone();
        let of_depth = (order.clone(), self.of.depth.clone());
        let mut stage = Stage::new(StageKind::Parts, graph, self.work.known(), of_depth);
        stage.store(Store { node: self.of.sum, output: None, order }, self.sums.clone());
        stage.name = format!("{}_split", self.work.name);
        stage.fill(&[]);
        stage.keep_apart(vec![part]);
        let batch = [self.axis].into_iter().chain(self.of.batch.iter().copied()).collect();
        let (product, own) = (Product { batch, ..self.of.clone() }, stage.work());
        Tiled::new(&product, &own, self.facts, tile).of_parts(len).scheduled()
    }

    /// Returns the kernel that adds the sums of the parts and computes the elements.
    fn whole(&self) -> Option<Scheduled> {
        let Parts { of, work, facts, axis, dim, sums } = self;
        let mut copy = GraphCopy::new(work.graph);
        copy.graph.axes.push(dim.clone());
        copy.graph.looped = copy.graph.looped.with(*axis);
        let mut known = BTreeMap::new();
        for (id, node) in work.graph.iter() {
            let mut made = copy.node(node, AxisSet::EMPTY);
            if id == of.sum {
                copy.graph.nodes[made.0 as usize].axes = node.axes.with(*axis);
                known.insert(Load::Stored(made), sums.clone());
                let kind = NodeKind::Reduce(Reduce::Sum, AxisSet::EMPTY.with(*axis));
                made = copy.graph.push(Node { kind, args: vec![made], ..node.clone() });
            }
            copy.map.push(made);
        }
        known.extend(copy.known(&work.known()));
        let of_rows = (work.group.order.clone(), vec![*axis]);
        let mut stage = Stage::new(StageKind::Rows, copy.graph.clone(), known, of_rows);
        for (store, &buffer) in work.group.stores.iter().zip(&work.stores) {
            let operand = work.operands[usize::from(buffer.0)].clone();
            stage.store(Store { node: copy.of(store.node), ..store.clone() }, operand);
        }
        stage.name = format!("{}_combined", work.name);
        stage.fill(&[]);
        let mut kernels = column::column(&stage.work(), facts).into_iter();
        kernels.rfind(|kernel| kernel.kernel.index == IndexWidth::Bits32)
    }
}
