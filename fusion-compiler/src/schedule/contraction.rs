//! Contractions: sums of products over axes that both factors have, in rows that one factor has and columns
//! that the other has.
//!
//! On the CPU, the device's driver computes the products in tiles, and one kernel of elements finishes each
//! tile. Factors that are computed are stored by kernels of elements before. On GPUs, one kernel computes factors,
//! products and elements (`tiles.rs`).

mod tiles;

use std::collections::BTreeMap;

use super::pointwise::on_cpu;
use super::space::{dims, dims_along, stride};
use super::split_reduction::{Stage, StageKind, memory};
use super::{Config, Operand, Scheduled, Scratch, Work};
use crate::fuse::{Group, Load, Store};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::{Access, AxisId, AxisSet, Graph, Math, Node, NodeId, NodeKind, Reduce};
use crate::ir::kernel::{Buffer, BufferId};
use crate::ir::op::Op;
use crate::ir::plan::{BufferArg, Condition, Contraction, Footprint, TileAxis};
use crate::target::{Contractions, TargetFacts, Tiles, Vectors};

/// A sum of products, and the roles of its axes.
pub struct Product {
    sum: NodeId,
    left: NodeId,
    right: NodeId,
    /// Axes with a product for each coordinate.
    pub batch: Vec<AxisId>,
    /// Axes of the left factor.
    pub rows: Vec<AxisId>,
    /// Axes of the right factor: the innermost ones of the space.
    pub cols: Vec<AxisId>,
    /// Axes that are summed over.
    pub depth: Vec<AxisId>,
}

/// Returns the configs of a group that is a contraction, in order of preference, and appends the memory between
/// their kernels.
pub(super) fn contraction(work: &Work<'_>, facts: &TargetFacts, scratch: &mut Vec<Scratch>) -> Vec<Config> {
    let sizes = facts.contractions;
    let Some(product) = Product::of(work.graph, work.group) else { return vec![] };
    let when = product.conditions(work.graph, &sizes);
    if when.iter().any(|condition| condition.known() == Some(false)) {
        return vec![];
    }
    let mut configs: Vec<Config> = match sizes.tiles {
        Tiles::Driver(cols) => product.by_driver(work, facts, (cols, scratch)).into_iter().collect(),
        Tiles::Teams(shapes) => {
            tiles::tiles(&product, work, facts, shapes).into_iter().map(|tiles| vec![tiles]).collect()
        }
    };
    for kernel in configs.iter_mut().filter_map(|config| config.last_mut()) {
        kernel.when.extend(when.clone());
    }
    configs
}

/// The reason why tiles do not compute a sum of products.
pub enum NoContraction {
    /// The function has `#[fuse(strict)]`.
    Strict,
    /// The products have another use than the sum.
    Used,
    /// A thread adds the few terms by itself.
    Unrolled,
    /// The first factor has no axis that the second lacks.
    NoDim([NodeId; 2]),
    /// The factor lacks an axis that is summed over.
    Lacks(NodeId, AxisId),
    /// The kernel reduces other values, too.
    Several,
    /// The kernel computes elements that the sum has none of.
    Elements,
}

/// Returns the axes of a sum of products, and the factors.
pub fn factors(graph: &Graph, sum: NodeId) -> Option<(AxisSet, [NodeId; 2])> {
    let node = graph.node(sum);
    let NodeKind::Reduce(reduce @ (Reduce::Sum | Reduce::Dot), along) = node.kind else { return None };
    let factors = match reduce {
        Reduce::Dot => node,
        _ => Some(graph.node(node.args[0])).filter(|of| of.kind == NodeKind::Apply(Op::Mul))?,
    };
    Some((along, [factors.args[0], factors.args[1]]))
}

impl Product {
    /// Returns the product that a group consists of, apart from elements that are computed from its sum.
    pub fn of(graph: &Graph, group: &Group) -> Option<Product> {
        let mut sums = group.nodes.iter().copied().filter(|&id| factors(graph, id).is_some());
        sums.find_map(|sum| Product::at(graph, group, sum).ok())
    }

    /// Returns the product of a sum, if the group consists of the product and of elements that are computed from
    /// the sum.
    pub fn at(graph: &Graph, group: &Group, sum: NodeId) -> Result<Product, NoContraction> {
        let Some((along, of)) = factors(graph, sum) else { return Err(NoContraction::Elements) };
        let node = graph.node(sum);
        // The products of integers are exact, so they stay nodes of their own.
        let has_one_use = |of: NodeId| {
            graph.nodes.iter().flat_map(|node| &node.args).filter(|&&arg| arg == of).count() == 1
        };
        match (&node.kind, node.dtype) {
            (NodeKind::Reduce(Reduce::Dot, _), _) => {}
            (_, DType::I32 | DType::U32)
                if has_one_use(node.args[0]) && group.nodes.contains(&node.args[0]) => {}
            (_, dtype) if dtype.is_float() && graph.math == Math::Strict => {
                return Err(NoContraction::Strict);
            }
            _ => return Err(NoContraction::Used),
        }
        if graph.looped_axes(sum).is_empty() {
            return Err(NoContraction::Unrolled);
        }
        let axes = of.map(|factor| graph.node(factor).axes);
        let only = |side: usize| axes[side].minus(axes[1 - side]);
        for side in [0, 1] {
            if let Some(axis) = along.minus(axes[side]).iter().next() {
                return Err(NoContraction::Lacks(of[side], axis));
            }
            if only(side).is_empty() {
                return Err(NoContraction::NoDim([of[side], of[1 - side]]));
            }
        }
        if group.nodes.iter().any(|&id| id != sum && !graph.looped_axes(id).is_empty()) {
            return Err(NoContraction::Several);
        }
        let of_elements = group.stores.iter().any(|store| group.is_of_elements(store));
        let is_along = |axes: AxisSet, order: &[AxisId]| axes == order.iter().copied().collect();
        if of_elements
            || !is_along(along, &group.cols)
            || !is_along(node.axes, &group.order)
            || !group.unrolled.is_empty()
        {
            return Err(NoContraction::Elements);
        }
        // The columns are the innermost axes of the space.
        let inner = group.order.last().copied();
        let right = usize::from(inner.is_some_and(|inner| only(1).contains(inner)));
        let is_col = |axis: &&AxisId| only(right).contains(**axis);
        let cols = group.order.iter().rev().take_while(is_col).count();
        if cols == 0 {
            return Err(NoContraction::Elements);
        }
        let (outer, cols) = group.order.split_at(group.order.len() - cols);
        let is_row = |axis: &AxisId| only(1 - right).contains(*axis);
        let (rows, batch) = outer.iter().copied().partition(is_row);
        Ok(Product {
            sum,
            left: of[1 - right],
            right: of[right],
            batch,
            rows,
            cols: cols.to_vec(),
            depth: group.cols.clone(),
        })
    }

    /// Returns the config whose tiles the driver of the device computes, with at most `cols` columns each.
    /// Factors that are computed are stored before.
    fn by_driver(
        &self,
        work: &Work<'_>,
        facts: &TargetFacts,
        (cols, scratch): (u32, &mut Vec<Scratch>),
    ) -> Option<Config> {
        if !self.is_readable(work) {
            return None;
        }
        let mut config = Config::new();
        let mut factor = |id: NodeId, name: &str| match self.plain(work, id) {
            Some(operand) => operand,
            None => {
                let (stored, operand) = stored(work, facts, scratch, (id, name));
                config.push(stored);
                operand
            }
        };
        let (left, right) = (factor(self.left, "left"), factor(self.right, "right"));
        config.push(self.finish(work, facts, (cols, scratch), [left, right]));
        Some(config)
    }

    /// Returns all axes.
    pub fn axes(&self) -> impl Iterator<Item = AxisId> {
        [&self.batch, &self.rows, &self.cols, &self.depth].into_iter().flatten().copied()
    }

    /// Returns true if both factors are tensors, or can be stored as tensors of no more dims than one that
    /// they are computed from.
    fn is_readable(&self, work: &Work<'_>) -> bool {
        let is_small = |id: NodeId| {
            let axes = work.graph.node(id).axes;
            let operand = |buffer: &BufferId| &work.operands[usize::from(buffer.0)];
            work.loads.values().map(operand).any(|operand| operand.axes.len() >= axes.iter().count())
        };
        [self.left, self.right].into_iter().all(|id| self.plain(work, id).is_some() || is_small(id))
    }

    /// Returns the conditions under which the products are large enough for tiles.
    fn conditions(&self, graph: &Graph, sizes: &Contractions) -> Vec<Condition> {
        let extent = |axes: &[AxisId]| DimExpr::product(axes.iter().map(|&axis| &graph.axis(axis).extent));
        let [rows, cols, depth] = [&self.rows, &self.cols, &self.depth].map(|axes| extent(axes));
        let conditions = [(rows, sizes.rows_min), (cols, sizes.cols_min), (depth, sizes.depth_min)];
        let conditions = conditions.map(|(extent, least)| Condition::AtLeast(extent, least));
        conditions.into_iter().filter(|condition| condition.known() != Some(true)).collect()
    }

    /// Returns the tensor that a factor is, read at its own coordinates and widened at most.
    fn plain(&self, work: &Work<'_>, id: NodeId) -> Option<Operand> {
        let node = work.graph.node(id);
        let load = match node.kind {
            _ if work.loads.contains_key(&Load::Stored(id)) => Load::Stored(id),
            NodeKind::Input(param) => Load::Param(param),
            NodeKind::Cast if work.graph.node(node.args[0]).axes == node.axes => {
                let narrow = self.plain(work, node.args[0]);
                return narrow.filter(|operand| widens(operand.dtype, node.dtype));
            }
            _ => return None,
        };
        let operand = work.operands[usize::from(work.loads[&load].0)].clone();
        let is_read = operand.access == Access::Read && !operand.moved && operand.dtype != DType::Bool;
        is_read.then_some(operand)
    }

    /// Returns the kernel that computes the elements of the group from tiles of the sum.
    fn finish(
        &self,
        work: &Work<'_>,
        facts: &TargetFacts,
        (cols, scratch): (u32, &mut Vec<Scratch>),
        factors: [Operand; 2],
    ) -> Scheduled {
        let (mut graph, order) = (work.graph.clone(), work.group.order.clone());
        let sum = work.graph.node(self.sum);
        let operand = |buffer: BufferId| work.operands[usize::from(buffer.0)].clone();
        let mut known: BTreeMap<Load, Operand> =
            work.loads.iter().map(|(&load, &buffer)| (load, operand(buffer))).collect();
        // A tile has no memory of its own in the plan.
        let tile = memory(work, scratch, &graph, "tile".into(), sum.dtype, order.clone());
        if let Some(scratch) = scratch.last_mut() {
            scratch.len = DimExpr::constant(0);
        }
        known.insert(Load::Stored(self.sum), tile.clone());
        // A stored sum is a value of its own, computed from the tile.
        let copy = Node { kind: NodeKind::Cast, args: vec![self.sum], ..sum.clone() };
        let copy = graph.push(copy);
        let mut stage = Stage::new(StageKind::Elements, graph, known, (order, vec![]));
        for (store, &buffer) in work.group.stores.iter().zip(&work.stores) {
            let node = if store.node == self.sum { copy } else { store.node };
            stage.store(Store { node, ..store.clone() }, operand(buffer));
        }
        stage.fill(&[]);
        stage.name = format!("{}_tiles", work.name);
        let mut own = stage.work();
        for operand in own.operands.iter_mut().filter(|operand| operand.slot == tile.slot) {
            operand.access = Access::ReadWrite;
        }
        let outer: Vec<AxisId> =
            own.group.order.iter().copied().filter(|axis| !self.cols.contains(axis)).collect();
        let mut dims = dims_along(&own, &outer);
        dims.extend(dims_along(&own, &self.cols));
        let finish = on_cpu(&own, facts, &dims, cols);
        let inner = dims.last().map(|dim| dim.axes.clone()).unwrap_or_default();
        // The kernel has one buffer for all views of a tensor, so the number is known only now.
        let number = finish.buffers.iter().position(|buffer| buffer.slot == tile.slot);
        let number = number.unwrap_or_else(|| unreachable!("the elements are computed from the sum"));
        self.with_tiles(work, finish, (number as u16, &inner), &factors)
    }

    /// Adds the contraction that computes the tiles of a kernel. The space of the kernel has the columns `inner`.
    fn with_tiles(
        &self,
        work: &Work<'_>,
        mut finish: Scheduled,
        (tile, inner): (u16, &[AxisId]),
        factors: &[Operand; 2],
    ) -> Scheduled {
        let graph = work.graph;
        let extent = |axis: &AxisId| &graph.axis(*axis).extent;
        let outer = |axis: &&AxisId| !inner.contains(*axis);
        let axis = |&axis: &AxisId| {
            let within = work.group.order.iter().skip_while(|&&other| other != axis).skip(1).filter(outer);
            let in_rows = work.group.order.contains(&axis) && !inner.contains(&axis);
            let zero = || DimExpr::constant(0);
            TileAxis {
                extent: extent(&axis).clone(),
                space: if in_rows { DimExpr::product(within.map(extent)) } else { zero() },
                left: stride(graph, &factors[0], axis).unwrap_or_else(zero),
                right: stride(graph, &factors[1], axis).unwrap_or_else(zero),
            }
        };
        // Columns that are none of the space have products of their own.
        let batch = self.batch.iter().chain(self.cols.iter().filter(outer)).map(axis).collect::<Vec<_>>();
        let axes = |of: &[AxisId]| of.iter().map(axis).collect::<Vec<_>>().into();
        finish.contraction = Some(Contraction {
            batch: batch.into(),
            rows: axes(&self.rows),
            cols: axes(inner),
            depth: axes(&self.depth),
            left: bind(&mut finish, &factors[0]),
            right: bind(&mut finish, &factors[1]),
            tile,
        });
        finish
    }
}

/// Returns true if the driver reads elements of 8 or 16 bits as numbers of the type that products have.
fn widens(from: DType, to: DType) -> bool {
    match to {
        DType::F32 => matches!(from, DType::F16 | DType::BF16),
        DType::I32 | DType::U32 => from.is_int() && from.size() < 4,
        _ => false,
    }
}

/// Returns the number of the buffer that an operand of the driver is bound to: one that the kernel reads, too, or
/// a further one.
fn bind(finish: &mut Scheduled, operand: &Operand) -> u16 {
    let &Operand { slot, ref name, dtype, .. } = operand;
    let is_same = |buffer: &BufferArg| buffer.slot == slot && buffer.access == Access::Read;
    let known = finish.buffers.iter().position(is_same);
    let number = known.unwrap_or_else(|| {
        let (access, footprint, uniform) = (Access::Read, Footprint::Whole, false);
        finish.kernel.buffers.push(Buffer::new(name, dtype, access));
        finish.buffers.push(BufferArg { slot, access, dtype, footprint, uniform });
        finish.buffers.len() - 1
    });
    number as u16
}

/// Returns the kernel that stores a factor, and the memory that the kernel writes.
fn stored(
    work: &Work<'_>,
    facts: &TargetFacts,
    scratch: &mut Vec<Scratch>,
    (id, name): (NodeId, &str),
) -> (Scheduled, Operand) {
    let node = work.graph.node(id);
    let operands = || work.loads.values().map(|buffer| &work.operands[usize::from(buffer.0)]);
    let has_all = |operand: &&Operand| node.axes.iter().all(|axis| operand.axes.contains(&axis));
    let order: Vec<AxisId> = match operands().find(has_all) {
        Some(operand) => operand.axes.iter().copied().filter(|axis| node.axes.contains(*axis)).collect(),
        None => {
            let all = work.group.order.iter().chain(&work.group.cols);
            all.copied().filter(|axis| node.axes.contains(*axis)).collect()
        }
    };
    let known = work.loads.iter().map(|(&load, buffer)| (load, work.operands[usize::from(buffer.0)].clone()));
    let mut stage =
        Stage::new(StageKind::Elements, work.graph.clone(), known.collect(), (order.clone(), vec![]));
    let made = memory(work, scratch, work.graph, name.into(), node.dtype, order.clone());
    stage.store(Store { node: id, output: None, order }, made.clone());
    stage.fill(&[]);
    stage.name = format!("{}_{name}", work.name);
    let own = stage.work();
    let all = dims(own.graph, own.group, &own.operands);
    let Vectors::Loops(grain) = facts.vector else { unreachable!("a driver computes tiles of the CPU") };
    (on_cpu(&own, facts, &all, grain), made)
}
