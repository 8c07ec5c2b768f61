//! The factors of a contraction on the CPU: tensors that the driver reads, and kernels that compute the others.

use std::collections::BTreeSet;

use super::Product;
use crate::fuse::{Load, Store, is_transcendental};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::{Access, AxisId, NodeId, NodeKind};
use crate::ir::kernel::Buffer;
use crate::ir::plan::{Blocks, BufferArg, Condition, Factor, Footprint};
use crate::schedule::items::Grain;
use crate::schedule::pointwise::on_cpu;
use crate::schedule::space::dims;
use crate::schedule::split_reduction::{Stage, StageKind, memory};
use crate::schedule::{Config, Operand, Scheduled, Scratch, Work};
use crate::target::tuning_table::cpu;
use crate::target::{TargetFacts, Vectors};

/// The place of a factor's elements.
pub(super) struct FactorSource {
    /// The elements as a tensor.
    pub(super) operand: Operand,
    /// The kernel that computes blocks of the tensor, which is never stored; none for a tensor in memory.
    blocks: Option<Blocks>,
}

impl FactorSource {
    /// Returns true if a kernel computes blocks of the factor.
    pub(super) fn is_in_blocks(&self) -> bool {
        self.blocks.is_some()
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
        if let Some(operand) = plain(work, id) {
            return Some(FactorSource { operand, blocks: None });
        }
        let order = order(work, id);
        let lanes = if id == self.left { &self.rows } else { &self.cols };
        let along_depth = order.last() == self.depth.last();
        let in_blocks = in_blocks && is_simple(work, id) && (along_depth || order.last() == lanes.last());
        let mut operands = work.loads.values().map(|buffer| &work.operands[usize::from(buffer.0)]);
        if !in_blocks && operands.all(|operand| operand.axes.len() < order.len()) {
            return None;
        }
        let (of_rows, dtype) = ((order.clone(), vec![]), work.graph.node(id).dtype);
        let mut stage = Stage::new(StageKind::Elements, work.graph.clone(), work.known(), of_rows);
        let made = memory(work, scratch, work.graph, name.into(), dtype, order.clone());
        stage.store(Store { node: id, output: None, order }, made.clone());
        stage.fill(&[]);
        stage.name = format!("{}_{name}{}", work.name, if in_blocks { "_blocks" } else { "" });
        let own = stage.work();
        let all = dims(own.graph, own.group, &own.operands);
        if !in_blocks {
            let Vectors::Loops(run_len) = facts.vector else {
                unreachable!("a driver computes tiles of the CPU")
            };
            config.push(on_cpu(&own, facts, &all, Grain::Const(run_len)));
            return Some(FactorSource { operand: made, blocks: None });
        }
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
        Some(FactorSource { operand: made, blocks: Some(Blocks { launch, buffer, along_depth }) })
    }
}

/// Returns the tensor that a factor is, read at its own coordinates and widened at most.
fn plain(work: &Work<'_>, id: NodeId) -> Option<Operand> {
    let node = work.graph.node(id);
    let load = match node.kind {
        _ if work.loads.contains_key(&Load::Stored(id)) => Load::Stored(id),
        NodeKind::Input(param) => Load::Param(param),
        NodeKind::Cast if work.graph.node(node.args[0]).axes == node.axes => {
            let narrow = plain(work, node.args[0]);
            return narrow.filter(|operand| widens(operand.dtype, node.dtype));
        }
        _ => return None,
    };
    let operand = work.operands[usize::from(work.loads[&load].0)].clone();
    let is_read = operand.access == Access::Read && !operand.moved && operand.dtype != DType::Bool;
    is_read.then_some(operand)
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
    order.into_iter().filter(|axis| axes.contains(*axis)).collect()
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
