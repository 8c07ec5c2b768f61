//! The factors of a contraction on the CPU: tensors that the driver reads, and kernels that compute the others.

use std::collections::BTreeSet;

use super::Product;
use super::window::WindowFactor;
use crate::fuse::{Load, Store, is_transcendental};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::{Access, AxisId, Graph, NodeId, NodeKind};
use crate::ir::kernel::Buffer;
use crate::ir::plan::{Blocks, BufferArg, Condition, Factor, Footprint, Windows};
use crate::schedule::items::Grain;
use crate::schedule::pointwise::on_cpu;
use crate::schedule::space::{dims, stride};
use crate::schedule::split_reduction::{Stage, StageKind, memory};
use crate::schedule::{Config, Operand, Scheduled, Scratch, Work};
use crate::target::tuning_table::cpu;
use crate::target::{TargetFacts, Vectors};

/// The place of a factor's elements.
pub(super) struct FactorSource {
    /// The elements as a tensor.
    operand: Operand,
    /// The windows that choose the elements from the tensor, if they are not all of them.
    windows: Option<WindowFactor>,
    /// The kernel that computes blocks of the tensor, which is never stored; none for a tensor in memory.
    blocks: Option<Blocks>,
}

impl FactorSource {
    /// Returns true if a kernel computes blocks of the factor.
    pub(super) fn is_in_blocks(&self) -> bool {
        self.blocks.is_some()
    }

    fn tensor(operand: Operand) -> FactorSource {
        FactorSource { operand, windows: None, blocks: None }
    }

    /// Returns the distance of elements along an axis, if the factor has it.
    pub(super) fn stride(&self, graph: &Graph, axis: AxisId) -> Option<DimExpr> {
        match &self.windows {
            Some(windows) => windows.stride(graph, &self.operand, axis),
            None => stride(graph, &self.operand, axis),
        }
    }

    /// Returns the windows that choose the elements, for the axes of the batch, the rows or columns, and the depth.
    pub(super) fn windows(&self, graph: &Graph, axes: [&[AxisId]; 3]) -> Windows {
        let windows = self.windows.as_ref();
        windows.map_or_else(Windows::none, |windows| windows.windows(graph, &self.operand, axes))
    }

    /// Returns the factor as the driver sees it: a buffer that the kernel of tiles reads, too, a further one, or
    /// another kernel.
    pub(super) fn bind(&self, finish: &mut Scheduled) -> Factor {
        if let Some(blocks) = self.blocks {
            return Factor::Blocks(blocks);
        }
        let &Operand { slot, ref name, dtype, .. } = &self.operand;
        let is_same = |buffer: &BufferArg| buffer.slot == slot && buffer.access == Access::Read;
        let known = finish.buffers.iter().position(is_same);
        let number = known.unwrap_or_else(|| {
            let (access, footprint, uniform) = (Access::Read, Footprint::Whole, false);
            finish.kernel.buffers.push(Buffer::new(name, dtype, access));
            finish.buffers.push(BufferArg { slot, access, dtype, footprint, uniform });
            finish.buffers.len() - 1
        });
        Factor::Buffer(number as u16)
    }
}

impl Product {
    /// Returns the source of a factor. Appends the kernel that computes the factor, if any, to the config: block by
    /// block if `in_blocks` permits it, and else into memory.
    ///
    /// The result is `None` for a factor that would be stored and has more dims than any tensor that it is computed
    /// from.
    pub(super) fn source(
        &self,
        work: &Work<'_>,
        facts: &TargetFacts,
        (scratch, in_blocks): (&mut Vec<Scratch>, bool),
        (id, name): (NodeId, &str),
        config: &mut Config,
    ) -> Option<FactorSource> {
        if let Some(operand) = plain(work, id, false) {
            return Some(FactorSource::tensor(operand));
        }
        if let Some(windows) = WindowFactor::of(work, id)
            && (plain(work, windows.tensor, true).is_some()
                || windows.repeat() && !grows(work, windows.tensor))
        {
            let of = windows.tensor;
            let operand = plain(work, of, true)
                .unwrap_or_else(|| self.stored(work, facts, scratch, (of, name), config));
            let windows = Some(windows);
            return Some(FactorSource { operand, windows, blocks: None });
        }
        let order = order(work, id);
        let lanes = if id == self.left { &self.rows } else { &self.cols };
        let along_depth = order.last() == self.depth.last();
        let in_blocks = in_blocks && is_simple(work, id) && (along_depth || order.last() == lanes.last());
        if !in_blocks && grows(work, id) {
            return None;
        }
        if !in_blocks {
            return Some(FactorSource::tensor(self.stored(work, facts, scratch, (id, name), config)));
        }
        let (stage, made) = computed(work, scratch, (id, name, "_blocks"), order);
        let own = stage.work();
        let all = dims(own.graph, own.group, &own.operands);
        let mut kernel = Scheduled { of_blocks: true, ..on_cpu(&own, facts, &all, Grain::Block) };
        // Each run of an innermost dim is a call.
        let run =
            all.last().map(|dim| Condition::AtLeast(dim.extent.clone(), cpu::CONTRACTION_BLOCK_RUN_MIN));
        kernel.when.extend(run.filter(|run| run.known() != Some(true)));
        let buffer = kernel.buffers.iter().position(|buffer| buffer.slot == made.slot);
        let buffer = buffer.unwrap_or_else(|| unreachable!("the kernel stores the factor")) as u16;
        // A block is memory of the driver.
        if let Some(scratch) = scratch.last_mut() {
            scratch.len = DimExpr::constant(0);
        }
        config.push(kernel);
        let launch = config.len() as u16 - 1;
        let blocks = Some(Blocks { launch, buffer, along_depth });
        Some(FactorSource { blocks, ..FactorSource::tensor(made) })
    }

    /// Returns a factor in memory, and appends the kernel that stores it to the config.
    pub(super) fn stored_source(
        &self,
        work: &Work<'_>,
        facts: &TargetFacts,
        scratch: &mut Vec<Scratch>,
        of: (NodeId, &str),
        config: &mut Config,
    ) -> FactorSource {
        FactorSource::tensor(self.stored(work, facts, scratch, of, config))
    }

    /// Appends the kernel that stores a node to the config, and returns its memory.
    fn stored(
        &self,
        work: &Work<'_>,
        facts: &TargetFacts,
        scratch: &mut Vec<Scratch>,
        (id, name): (NodeId, &str),
        config: &mut Config,
    ) -> Operand {
        let Vectors::Loops(run_len) = facts.vector else {
            unreachable!("a driver computes tiles of the CPU")
        };
        let (stage, made) = computed(work, scratch, (id, name, ""), order(work, id));
        let own = stage.work();
        let all = dims(own.graph, own.group, &own.operands);
        config.push(on_cpu(&own, facts, &all, Grain::Const(run_len)));
        made
    }
}

/// Returns the stage that computes a node in this order, and the memory that it stores the node in. The suffix is for
/// the name of the kernel alone.
fn computed(
    work: &Work<'_>,
    scratch: &mut Vec<Scratch>,
    (id, name, suffix): (NodeId, &str, &str),
    order: Vec<AxisId>,
) -> (Stage, Operand) {
    let (of_rows, dtype) = ((order.clone(), vec![]), work.graph.node(id).dtype);
    let mut stage = Stage::new(StageKind::Elements, work.graph.clone(), work.known(), of_rows);
    let made = memory(work, scratch, work.graph, name.into(), dtype, order.clone());
    stage.store(Store { node: id, output: None, order }, made.clone());
    stage.fill(&[]);
    stage.name = format!("{}_{name}{suffix}", work.name);
    (stage, made)
}

/// Returns the tensor that a factor is, read at its own coordinates, or at others if it may be `moved`, and widened at
/// most.
pub(super) fn plain(work: &Work<'_>, id: NodeId, moved: bool) -> Option<Operand> {
    let node = work.graph.node(id);
    let load = match node.kind {
        _ if work.loads.contains_key(&Load::Stored(id)) => Load::Stored(id),
        NodeKind::Input(param) => Load::Param(param),
        NodeKind::Cast if work.graph.node(node.args[0]).axes == node.axes => {
            let narrow = plain(work, node.args[0], moved);
            return narrow.filter(|operand| widens(operand.dtype, node.dtype));
        }
        _ => return None,
    };
    let operand = work.operands[usize::from(work.loads.get(&load)?.0)].clone();
    let is_read = operand.access == Access::Read && operand.dtype != DType::Bool;
    (is_read && (moved || !operand.moved)).then_some(operand)
}

/// Returns true if a node has more dims than any tensor that the group reads.
fn grows(work: &Work<'_>, id: NodeId) -> bool {
    let count = work.graph.node(id).axes.iter().count();
    work.loads.values().all(|buffer| work.operands[usize::from(buffer.0)].axes.len() < count)
}

/// Returns true if the driver reads elements of 8 or 16 bits as numbers of the type that products have.
fn widens(from: DType, to: DType) -> bool {
    match to {
        DType::F32 => matches!(from, DType::F16 | DType::BF16),
        DType::I32 | DType::U32 => from.is_int() && from.size() < 4,
        _ => false,
    }
}

/// Returns the axes of a factor in the order of a tensor that the factor is computed from, if one has all of them.
pub(super) fn order(work: &Work<'_>, id: NodeId) -> Vec<AxisId> {
    let axes = work.graph.node(id).axes;
    let has_all = |operand: &&Operand| axes.iter().all(|axis| operand.axes.contains(&axis));
    let mut operands = work.loads.values().map(|buffer| &work.operands[usize::from(buffer.0)]);
    let order: Vec<AxisId> = match operands.find(has_all) {
        Some(operand) => operand.axes.clone(),
        None => work.group.order.iter().chain(&work.group.cols).copied().collect(),
    };
    // A tensor that windows choose elements of has dims that the space lacks.
    let missing = axes.iter().filter(|axis| !order.contains(axis));
    order.iter().copied().filter(|axis| axes.contains(*axis)).chain(missing).collect()
}

/// Returns true if a factor takes so few operations that each use computes them again.
fn is_simple(work: &Work<'_>, id: NodeId) -> bool {
    let (mut seen, mut open, mut ops) = (BTreeSet::new(), vec![id], 0);
    while let Some(id) = open.pop() {
        if work.loads.contains_key(&Load::Stored(id)) || !seen.insert(id) {
            continue;
        }
        let node = work.graph.node(id);
        match node.kind {
            NodeKind::Apply(op) if is_transcendental(op) => return false,
            NodeKind::Apply(_) => ops += 1,
            NodeKind::Reduce(..) => return false,
            // Most places are computed once for a run of elements.
            NodeKind::Gather(_) => {
                open.push(node.args[0]);
                continue;
            }
            NodeKind::Input(_)
            | NodeKind::Scalar(_)
            | NodeKind::Literal(_)
            | NodeKind::Coord(_)
            | NodeKind::Extent(_)
            | NodeKind::Cast => {}
        }
        open.extend(&node.args);
    }
    ops <= cpu::CONTRACTION_BLOCK_OPS_MAX
}
