//! The operands of a contraction: tensors in memory, or kernels that compute blocks of them.

use std::sync::Arc;

use fusion_compiler::ir::plan::DEPTH;

use super::pack::{Direction, Operand};
use super::{Failure, Workspace};
use crate::device::cpu::launch::{PreparedLaunch, Tile};
use crate::device::cpu::memory::Pool;

/// Steps of the depth that a kernel computes for all lanes before they are packed, so that they stay in the first
/// caches.
pub(super) const RUN_STEPS: usize = 32;

const _: () = assert!(DEPTH.is_multiple_of(RUN_STEPS), "blocks of the depth have whole parts");

/// One side of the products: a tensor with elements for each coordinate of the batch, lane and depth.
pub(super) struct OperandSource<'a, T> {
    pub(super) operand: Operand<T>,
    /// Offset of a product's elements, by the coordinate of the batch.
    pub(super) batch: Direction,
    /// The kernel that computes blocks of the tensor, which is then not in memory.
    pub(super) blocks: Option<BlockKernel<'a>>,
}

/// A kernel that computes blocks of an operand.
pub(super) struct BlockKernel<'a> {
    pub(super) launch: &'a PreparedLaunch<'a>,
    /// Number of the buffer that the kernel writes.
    pub(super) buffer: usize,
    /// True if contiguous elements lie along the depth, false if they lie along the lanes.
    pub(super) along_depth: bool,
}

/// Lanes and steps of an operand that become panels.
#[derive(Clone, Copy)]
pub(super) struct LaneBlock {
    /// Coordinate of the batch.
    pub(super) batch: usize,
    pub(super) lanes: (usize, usize),
    /// Depths of the panels.
    pub(super) depth: (usize, usize),
    /// Depths that are packed: all of them, or some.
    pub(super) steps: (usize, usize),
}

impl<T: Copy + Default> OperandSource<'_, T> {
    /// Returns the number of lanes.
    pub(super) fn lanes(&self) -> usize {
        self.operand.lanes.len()
    }

    /// Returns true if panels are packed together, since a kernel computes runs of lanes.
    pub(super) fn has_runs_of_lanes(&self) -> bool {
        self.blocks.as_ref().is_some_and(|blocks| !blocks.along_depth)
    }

    /// Packs a block into panels, of which `panels` tells the memory.
    ///
    /// # Safety
    ///
    /// The operand has the lanes and depths, and there is room for the panels.
    pub(super) unsafe fn pack(
        &self,
        of: LaneBlock,
        panels: PanelMemory<T>,
        pool: &Arc<Pool>,
    ) -> Result<(), Failure> {
        let start = self.batch.offset(of.batch);
        match &self.blocks {
            None => {
                for (lanes, panel) in panels.all(of, of.steps.0) {
                    // SAFETY: the caller's contract.
                    unsafe { self.operand.pack(start, (of.lanes.0 + lanes.0, lanes.1), of.steps, panel) };
                }
                Ok(())
            }
            // SAFETY: the caller's contract.
            Some(blocks) if blocks.along_depth => unsafe { self.panel_by_panel(blocks, of, panels, pool) },
            // SAFETY: the caller's contract.
            Some(blocks) => unsafe { self.steps_by_steps(blocks, of, panels, pool) },
        }
    }

    /// Computes the lanes of one panel after another, with runs along the depth.
    ///
    /// # Safety
    ///
    /// See `pack`.
    unsafe fn panel_by_panel(
        &self,
        blocks: &BlockKernel<'_>,
        of: LaneBlock,
        panels: PanelMemory<T>,
        pool: &Arc<Pool>,
    ) -> Result<(), Failure> {
        let (start, steps) = (self.batch.offset(of.batch), of.steps.1 - of.steps.0);
        let memory = Workspace::<T>::new(pool, panels.width * steps)?;
        for ((first, count), panel) in panels.all(of, of.steps.0) {
            let lanes = of.lanes.0 + first..of.lanes.0 + first + count;
            let each = lanes.map(|lane| start + self.operand.lanes.offset(lane));
            blocks.compute(each, || self.operand.depth.contiguous(of.steps), memory.ptr(0).cast());
            let directions = (Direction::new([(count, steps)]), Direction::new([(steps, 1)]));
            let block = self.operand.at(memory.ptr(0).cast(), directions);
            // SAFETY: the block has these lanes and steps, and the panel has room by the caller's contract.
            unsafe { block.pack(0, (0, count), (0, steps), panel) };
        }
        Ok(())
    }

    /// Computes some steps of all lanes before the next steps, with runs along the lanes.
    ///
    /// # Safety
    ///
    /// See `pack`.
    unsafe fn steps_by_steps(
        &self,
        blocks: &BlockKernel<'_>,
        of: LaneBlock,
        panels: PanelMemory<T>,
        pool: &Arc<Pool>,
    ) -> Result<(), Failure> {
        let (start, count) = (self.batch.offset(of.batch), of.lanes.1 - of.lanes.0);
        let memory = Workspace::<T>::new(pool, RUN_STEPS * count)?;
        for first in (of.steps.0..of.steps.1).step_by(RUN_STEPS) {
            let steps = RUN_STEPS.min(of.steps.1 - first);
            let each = (first..first + steps).map(|step| start + self.operand.depth.offset(step));
            blocks.compute(each, || self.operand.lanes.contiguous(of.lanes), memory.ptr(0).cast());
            let directions = (Direction::new([(count, 1)]), Direction::new([(steps, count)]));
            let block = self.operand.at(memory.ptr(0).cast(), directions);
            for (lanes, panel) in panels.all(of, first) {
                // SAFETY: the block has these lanes and steps, and the panel has room by the caller's contract.
                unsafe { block.pack(0, lanes, (0, steps), panel) };
            }
        }
        Ok(())
    }
}

/// The memory of panels, which lie one after another and have so many lanes each.
#[derive(Clone, Copy)]
pub(super) struct PanelMemory<T> {
    pub(super) first: *mut T,
    pub(super) width: usize,
}

impl<T> PanelMemory<T> {
    /// Returns the first lane and the number of lanes of each panel of a block, and the panel from a step on.
    fn all(self, of: LaneBlock, step: usize) -> impl Iterator<Item = ((usize, usize), (*mut T, usize))> {
        let (count, width) = (of.lanes.1 - of.lanes.0, self.width);
        let (depth, ahead) = (of.depth.1 - of.depth.0, step - of.depth.0);
        (0..count.div_ceil(width)).map(move |number| {
            let panel = self.first.wrapping_add((number * depth + ahead) * width);
            ((number * width, width.min(count - number * width)), (panel, width))
        })
    }
}

impl BlockKernel<'_> {
    /// Computes runs of elements, given by offset and length, from each start on. They lie one after another in
    /// memory.
    fn compute<R: Iterator<Item = (usize, usize)>>(
        &self,
        starts: impl Iterator<Item = usize>,
        runs: impl Fn() -> R,
        memory: *mut u8,
    ) {
        let size = self.launch.buffers[self.buffer].dtype.size();
        let cols = self.launch.items.cols();
        let mut runs =
            starts.flat_map(|start| runs().map(move |(offset, len)| (start + offset, len))).peekable();
        let mut at = memory;
        while let Some((mut from, len)) = runs.next() {
            let mut end = from + len;
            while let Some((_, more)) = runs.next_if(|(next, _)| *next == end) {
                end += more;
            }
            while from < end {
                let (row, col) = (from / cols, from % cols);
                let len = (end - from).min(cols - col);
                self.launch.run_block(row, (col, len), Tile { buffer: self.buffer, at });
                at = at.wrapping_add(len * size);
                from += len;
            }
        }
    }
}
