//! The operands of a contraction: tensors in memory, or kernels that compute blocks of them.

use std::sync::Arc;

use super::pack::{Direction, Operand};
use super::{Failure, Workspace};
use crate::device::cpu::launch::{PreparedLaunch, Tile};
use crate::device::cpu::memory::Pool;

/// Steps of the depth that a kernel computes for all lanes before they are packed, so that they stay in the first
/// caches.
const STEPS: usize = 32;

/// One side of the products: a tensor with elements for each coordinate of the batch, lane and depth.
pub(super) struct Source<'a, T> {
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
pub(super) struct Block {
    /// Coordinate of the batch.
    pub(super) batch: usize,
    pub(super) lanes: (usize, usize),
    /// Depths of the panels.
    pub(super) depth: (usize, usize),
    /// Depths that are packed: all of them, or some.
    pub(super) steps: (usize, usize),
}

impl<T: Copy + Default> Source<'_, T> {
    /// Returns the number of lanes.
    pub(super) fn lanes(&self) -> usize {
        self.operand.lanes.len()
    }

    /// Returns true if panels are packed together, since a kernel computes runs of lanes.
    pub(super) fn has_runs_of_lanes(&self) -> bool {
        self.blocks.as_ref().is_some_and(|blocks| !blocks.along_depth)
    }

    /// Packs a block into panels of `width` lanes, which lie one after another from `out` on.
    ///
    /// # Safety
    ///
    /// The operand has the lanes and depths, and there is room for the panels.
    pub(super) unsafe fn pack(
        &self,
        of: Block,
        (out, width): (*mut T, usize),
        pool: &Arc<Pool>,
    ) -> Result<(), Failure> {
        let (count, (from, to)) = (of.lanes.1 - of.lanes.0, of.depth);
        let start = self.batch.offset(of.batch);
        let panel = |number: usize, step: usize| {
            (out.wrapping_add((number * (to - from) + step - from) * width), width)
        };
        let lanes = |number: usize| (number * width, width.min(count - number * width));
        let panels = 0..count.div_ceil(width);
        let Some(blocks) = &self.blocks else {
            for number in panels {
                let (first, count) = lanes(number);
                let lanes = (of.lanes.0 + first, count);
                // SAFETY: the caller's contract.
                unsafe { self.operand.pack(start, lanes, of.steps, panel(number, of.steps.0)) };
            }
            return Ok(());
        };
        let (steps, at_once) = (of.steps.1 - of.steps.0, if blocks.along_depth { width } else { STEPS });
        let memory = Workspace::<T>::new(pool, at_once * if blocks.along_depth { steps } else { count })?;
        let memory = memory.ptr(0);
        if blocks.along_depth {
            for number in panels {
                let (first, count) = lanes(number);
                let lanes = of.lanes.0 + first..of.lanes.0 + first + count;
                let each = lanes.map(|lane| start + self.operand.lanes.offset(lane));
                blocks.compute(each, || self.operand.depth.contiguous(of.steps), memory.cast());
                let directions = (Direction::new([(count, steps)]), Direction::new([(steps, 1)]));
                let block = self.operand.at(memory.cast(), directions);
                // SAFETY: the block has these lanes and steps, and the panel has room by the caller's contract.
                unsafe { block.pack(0, (0, count), (0, steps), panel(number, of.steps.0)) };
            }
            return Ok(());
        }
        for first in (of.steps.0..of.steps.1).step_by(STEPS) {
            let steps = STEPS.min(of.steps.1 - first);
            let each = (first..first + steps).map(|step| start + self.operand.depth.offset(step));
            blocks.compute(each, || self.operand.lanes.contiguous(of.lanes), memory.cast());
            let directions = (Direction::new([(count, 1)]), Direction::new([(steps, count)]));
            let block = self.operand.at(memory.cast(), directions);
            for number in panels.clone() {
                // SAFETY: as above.
                unsafe { block.pack(0, lanes(number), (0, steps), panel(number, first)) };
            }
        }
        Ok(())
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
