//! The operands of a contraction: tensors in memory, or kernels that compute blocks of them.

use super::pack::{Direction, Operand};
use crate::device::cpu::launch::{PreparedLaunch, Tile};

/// Steps of the depth for which a kernel of blocks computes all columns of a strip, so that these stay in the
/// first caches until they are packed. A divisor of `DEPTH`.
pub(super) const STEPS: usize = 32;

/// One side of the products: a tensor with elements for each coordinate of the batch, lane and depth.
pub(super) struct Source<'a, T> {
    pub(super) operand: Operand<T>,
    /// Offset of a product's elements, by the coordinate of the batch.
    pub(super) batch: Direction,
    /// The kernel that computes blocks of the tensor, which is not in memory.
    pub(super) blocks: Option<BlockKernel<'a>>,
}

/// A kernel that computes blocks of an operand.
pub(super) struct BlockKernel<'a> {
    pub(super) launch: &'a PreparedLaunch<'a>,
    /// Number of the buffer that the kernel writes.
    pub(super) buffer: usize,
    /// True if an item has elements along the depth, false if it has some columns.
    pub(super) along_depth: bool,
}

impl<T: Copy + Default> Source<'_, T> {
    /// Returns the number of lanes.
    pub(super) fn lanes(&self) -> usize {
        self.operand.lanes.len()
    }

    /// Returns the kernel of blocks, if its items have columns.
    pub(super) fn columns(&self) -> Option<&BlockKernel<'_>> {
        self.blocks.as_ref().filter(|blocks| !blocks.along_depth)
    }

    /// Returns the number of elements of `memory` that a panel of so many lanes needs in `pack`.
    pub(super) fn memory(&self, width: usize, depth: usize) -> usize {
        if self.blocks.is_some() { width * depth } else { 0 }
    }

    /// Packs `count` lanes from `first` on, at the depths `from..to` of one block, as one panel of `width` lanes.
    ///
    /// # Safety
    ///
    /// The operand has all of these elements, the panel has room, and `memory` has as many elements as
    /// `Source::memory` says.
    pub(super) unsafe fn pack(
        &self,
        batch: usize,
        (first, count): (usize, usize),
        (from, to): (usize, usize),
        panel: (*mut T, usize),
        memory: *mut T,
    ) {
        let start = self.batch.offset(batch);
        let Some(blocks) = &self.blocks else {
            // SAFETY: the caller's contract.
            return unsafe { self.operand.pack(start, (first, count), (from, to), panel) };
        };
        let len = to - from;
        let element = |lane: usize| start + self.operand.element(first + lane, from);
        blocks.compute((0..count).map(element), len, memory.cast());
        let (lanes, depth) = (Direction::new([(count, len)]), Direction::new([(len, 1)]));
        let block = self.operand.at(memory.cast(), lanes, depth);
        // SAFETY: the block has these lanes and depths, and the panel has room by the caller's contract.
        unsafe { block.pack(0, (0, count), (0, len), panel) }
    }

    /// Computes the columns of a strip at some depths. Returns them as an operand in `memory`, which has room
    /// for all of the elements.
    pub(super) fn steps(
        &self,
        blocks: &BlockKernel<'_>,
        (batch, cols): (usize, (usize, usize)),
        (from, to): (usize, usize),
        memory: *mut T,
    ) -> Operand<T> {
        let (start, len) = (self.batch.offset(batch), cols.1 - cols.0);
        let element = |step: usize| start + self.operand.element(cols.0, step);
        blocks.compute((from..to).map(element), len, memory.cast());
        let (lanes, depth) = (Direction::new([(len, 1)]), Direction::new([(to - from, len)]));
        self.operand.at(memory.cast(), lanes, depth)
    }
}

impl BlockKernel<'_> {
    /// Computes the `len` elements of each item that begins at one of the elements `starts`, into memory with
    /// the items one after another.
    fn compute(&self, starts: impl Iterator<Item = usize>, len: usize, memory: *mut u8) {
        let bytes = len * self.launch.buffers[self.buffer].dtype.size();
        let mut items = starts.map(|start| self.launch.items.at(start)).peekable();
        let mut done = 0;
        while let Some(first) = items.next() {
            let mut count = 1;
            // Consecutive items are one call.
            while items.next_if_eq(&(first + count)).is_some() {
                count += 1;
            }
            let at = memory.wrapping_add(done * bytes);
            self.launch.run_tile(first, first + count, Tile { buffer: self.buffer, at });
            done += count;
        }
    }
}
