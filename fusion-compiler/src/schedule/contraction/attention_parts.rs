//! Attention of so few queries that most of a GPU would be idle: teams take parts of the keys, and other kernels combine
//! the parts.
//!
//! A part has a constant number of keys, so the order of a sum depends on extents alone.

use std::collections::BTreeMap;

use super::super::split_reduction::{GraphCopy, Stage, StageKind, memory};
use super::super::{Config, Operand, Scheduled, Scratch, Work, column};
use super::Product;
use super::attention_tiles::AttendTiles;
use super::visible::Interval;
use crate::fuse::attention::{Attention, Softmax};
use crate::fuse::{Load, Store};
use crate::ir::dim::{Dim, DimExpr};
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{AxisId, AxisSet, Graph, Node, NodeId, NodeKind, Reduce};
use crate::ir::kernel::IndexWidth;
use crate::ir::op::Op;
use crate::ir::plan::Condition;
use crate::target::tuning_table::gpu;
use crate::target::{AttentionShape, TargetFacts};

/// Attention whose keys are cut into parts.
pub(super) struct KeyParts<'w> {
    pub(super) of: &'w Attention,
    pub(super) work: &'w Work<'w>,
    pub(super) facts: &'w TargetFacts,
    /// The function, with the ends of the keys that a row sees.
    pub(super) graph: &'w Graph,
    pub(super) scores: &'w Product,
    pub(super) sums: &'w Product,
    pub(super) seen: Interval,
    /// Axes of the rows of results.
    pub(super) outer: &'w [AxisId],
}

/// Memory of what parts give.
struct Partials {
    sums: Operand,
    /// The largest score and the sum of the weights of each row.
    of_rows: Option<[Operand; 2]>,
}

impl KeyParts<'_> {
    /// Returns the ways to run the group with tiles of this shape: the kernel of the parts, and the kernels that combine
    /// them.
    pub(super) fn configs(&self, shape: AttentionShape, scratch: &mut Vec<Scratch>) -> Vec<Config> {
        let mut configs = Vec::new();
        let Some(len) = shape.part else { return configs };
        let KeyParts { of, work, .. } = self;
        let keys = work.graph.axis(of.along).extent.clone();
        let (axis, len) = (AxisId(work.graph.axes.len() as u8), i64::from(len));
        let dim = Dim { name: "part".into(), extent: keys.clone().ceil_div(DimExpr::constant(len)) };
        let mut graph = self.graph.clone();
        graph.axes.push(dim.clone());
        let partials = self.partials(&graph, axis, scratch);
        let order = &work.group.order;
        let mut whole = vec![self.whole((axis, &dim), &partials, order)];
        if work.group.stores.iter().any(|store| store.order != *order) {
            whole.push(self.whole((axis, &dim), &partials, self.outer));
        }
        let Some(whole) = whole.into_iter().collect::<Option<Vec<Scheduled>>>() else { return configs };
        for aligned in [true, false] {
            let mut first = self.parts(graph.clone(), (axis, shape, aligned), &partials);
            first.when.push(Condition::AtLeast(keys.clone(), 2 * len));
            if first.when.iter().all(|condition| condition.known() != Some(false)) {
                configs.push([first].into_iter().chain(whole.clone()).collect());
            }
        }
        configs
    }

    fn partials(&self, graph: &Graph, axis: AxisId, scratch: &mut Vec<Scratch>) -> Partials {
        let mut memory = |name: &str, axes: &[AxisId]| {
            let axes = [&[axis], axes].concat();
            memory(self.work, scratch, graph, name.into(), DType::F32, axes)
        };
        Partials {
            sums: memory("sums", &self.work.group.order),
            of_rows: self
                .of
                .softmax
                .as_ref()
                .map(|_| ["largest", "total"].map(|name| memory(name, self.outer))),
        }
    }

    /// Returns the kernel of all parts.
    fn parts(
        &self,
        mut graph: Graph,
        (axis, shape, aligned): (AxisId, AttentionShape, bool),
        partials: &Partials,
    ) -> Scheduled {
        let KeyParts { of, work, facts, seen, outer, .. } = *self;
        let part = graph.coordinate(axis);
        let elements = [[of.along].as_slice(), &self.scores.depth].concat();
        let order = partials.sums.axes.clone();
        let mut stage = Stage::new(StageKind::Rows, graph, work.known(), (order.clone(), elements));
        stage.store(Store { node: of.sum, output: None, order }, partials.sums.clone());
        if let (Some(softmax), Some(of_rows)) = (&of.softmax, &partials.of_rows) {
            let order = [&[axis], outer].concat();
            for (node, operand) in softmax.state().into_iter().zip(of_rows) {
                stage.store(Store { node, output: None, order: order.clone() }, operand.clone());
            }
        }
        stage.fill(&[]);
        stage.keep_apart(vec![part]);
        stage.name = format!("{}_split", work.name);
        let [scores, sums] = [self.scores, self.sums]
            .map(|of| Product { batch: [[axis].as_slice(), &of.batch].concat(), ..of.clone() });
        let own = stage.work();
        let tiles = AttendTiles { of, work: &own, facts, scores: &scores, sums: &sums, seen, in_parts: true };
        let mut made = tiles.of_shape(shape, (IndexWidth::Bits32, aligned));
        let extent =
            |axes: &[AxisId]| DimExpr::product(axes.iter().map(|&axis| &own.graph.axis(axis).extent));
        let across = extent(&self.sums.cols).ceil_div(DimExpr::constant(shape.cols.into()));
        let tiles = extent(&self.sums.batch) * across;
        made.when.push(Condition::AtMost(tiles, gpu::ATTENTION_PARTS_TILES_MAX));
        made
    }

    /// Returns the kernel that combines the parts and computes results with axes in this order.
    fn whole(&self, (axis, dim): (AxisId, &Dim), partials: &Partials, order: &[AxisId]) -> Option<Scheduled> {
        let KeyParts { of, work, facts, .. } = *self;
        let mut copy = GraphCopy::new(work.graph);
        copy.graph.axes.push(dim.clone());
        copy.graph.looped = copy.graph.looped.with(axis);
        let mut combined = Combined { axis, copy, known: BTreeMap::new(), factor: None };
        for (id, node) in work.graph.iter() {
            let made = match (&of.softmax, &partials.of_rows) {
                _ if id == of.sum => combined.sum(node, &partials.sums, of.softmax.as_ref()),
                (Some(softmax), Some([largest, _])) if id == softmax.largest => {
                    combined.largest(node, largest)
                }
                (Some(softmax), Some([_, total])) if softmax.sums.iter().any(|(sum, _)| *sum == id) => {
                    combined.total(node, total, softmax.is_raw(id))
                }
                _ => combined.copy.node(node, AxisSet::EMPTY),
            };
            combined.copy.map.push(made);
        }
        let Combined { copy, mut known, .. } = combined;
        known.extend(copy.known(&work.known()));
        let of_rows = (order.to_vec(), vec![axis]);
        let mut stage = Stage::new(StageKind::Rows, copy.graph.clone(), known, of_rows);
        for (store, &buffer) in work.group.stores.iter().zip(&work.stores) {
            if store.order == *order {
                let operand = work.operands[usize::from(buffer.0)].clone();
                stage.store(Store { node: copy.of(store.node), ..store.clone() }, operand);
            }
        }
        let of_elements = if order.len() == work.group.order.len() { "" } else { "_rows" };
        stage.name = format!("{}_combined{of_elements}", work.name);
        stage.fill(&[]);
        let mut kernels = column::column(&stage.work(), facts).into_iter();
        kernels.rfind(|kernel| kernel.kernel.index == IndexWidth::Bits32)
    }
}

/// The graph of a kernel that combines parts.
struct Combined {
    /// The axis of the parts.
    axis: AxisId,
    copy: GraphCopy,
    /// Values of parts.
    known: BTreeMap<Load, Operand>,
    /// Factor of the sums of a part, and a number that is NaN where the largest score is infinite, and else 0.
    factor: Option<[NodeId; 2]>,
}

impl Combined {
    /// Appends a value of each part.
    fn partial(&mut self, node: &Node, operand: &Operand) -> NodeId {
        let partial = self.copy.node(node, AxisSet::EMPTY);
        self.copy.graph.nodes[partial.0 as usize].axes = node.axes.with(self.axis);
        self.known.insert(Load::Stored(partial), operand.clone());
        partial
    }

    /// Appends a reduction of the parts.
    fn reduce(&mut self, node: &Node, reduce: Reduce, of: NodeId) -> NodeId {
        let kind = NodeKind::Reduce(reduce, AxisSet::EMPTY.with(self.axis));
        self.copy.graph.push(Node { kind, args: vec![of], ..node.clone() })
    }

    /// Appends the largest score, and the factor of each part.
    fn largest(&mut self, node: &Node, operand: &Operand) -> NodeId {
        let NodeKind::Reduce(reduce, _) = node.kind else { unreachable!("the largest score is a reduction") };
        let of_part = self.partial(node, operand);
        let largest = self.reduce(node, reduce, of_part);
        let graph = &mut self.copy.graph;
        let [zero, one] = [0.0, 1.0].map(|number| graph.literal(Const::Float(number), DType::F32, node.span));
        let mut apply = |op, args: &[NodeId]| graph.apply(op, args, node.span);
        let is_infinite = apply(Op::IsInf, &[largest]);
        let shift = apply(Op::Select, &[is_infinite, zero, largest]);
        let is_same = apply(Op::Eq, &[of_part, largest]);
        let distance = apply(Op::Sub, &[of_part, shift]);
        let smaller = apply(Op::Exp, &[distance]);
        let factor = apply(Op::Select, &[is_same, one, smaller]);
        self.factor = Some([factor, apply(Op::Mul, &[largest, zero])]);
        largest
    }

    /// Appends the sum of the weights, relative to the largest score itself if the flag is true.
    fn total(&mut self, node: &Node, operand: &Operand, is_raw: bool) -> NodeId {
        let of_part = self.partial(node, operand);
        self.scaled(node, of_part, is_raw)
    }

    /// Appends the sum of values times weights.
    fn sum(&mut self, node: &Node, operand: &Operand, softmax: Option<&Softmax>) -> NodeId {
        let of_part = self.partial(node, operand);
        match softmax {
            Some(softmax) => self.scaled(node, of_part, softmax.shift == softmax.largest),
            None => self.reduce(node, Reduce::Sum, of_part),
        }
    }

    fn scaled(&mut self, node: &Node, of_part: NodeId, is_raw: bool) -> NodeId {
        let Some([factor, lost]) = self.factor else { unreachable!("the largest score comes first") };
        let scaled = self.copy.graph.apply(Op::Mul, &[of_part, factor], node.span);
        let sum = self.reduce(node, Reduce::Sum, scaled);
        if is_raw { self.copy.graph.apply(Op::Add, &[sum, lost], node.span) } else { sum }
    }
}
