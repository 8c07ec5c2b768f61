//! The operands of a contraction: tensors in memory, or kernels that compute blocks of them.

use std::sync::Arc;

use fusion_compiler::ir::plan::DEPTH;

use super::microkernel::{LaneRun, Panel};
use super::pack::{Direction, Operand};
use super::planes::{Layout, Planes};
use super::windows::Windows;
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
    /// The windows that choose the elements, if the elements are not those of a tensor.
    pub(super) windows: Option<Windows>,
    /// The planes that windows share, if packing their elements once pays.
    pub(super) planes: Option<Planes>,
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

    /// Returns the layout of lanes in panels of so many, if the operand is packed in planes.
    pub(super) fn layout(&self, lanes: (usize, usize), width: usize) -> Option<Layout> {
        self.planes.as_ref().map(|planes| planes.layout(lanes, width))
    }

    /// Packs a plane into the memory of all planes.
    ///
    /// # Safety
    ///
    /// There is room for all planes of the layout at `out`.
    pub(super) unsafe fn pack_plane(&self, layout: &Layout, (batch, number): (usize, usize), out: *mut T) {
        if let (Some(planes), Some(windows)) = (&self.planes, &self.windows) {
            // SAFETY: the caller's contract.
            unsafe { planes.pack((&self.operand, windows), (layout, batch, number), out) };
        }
    }

    /// Packs a block of a tensor, of windows, or of what a kernel computes, into panels, of which `panels` tells the memory.
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
        let Some(blocks) = &self.blocks else {
            for (lanes, panel) in panels.all(of, of) {
                // SAFETY: the caller's contract.
                unsafe {
                    match &self.windows {
                        Some(windows) => windows.pack(&self.operand, (of.batch, lanes, of.steps), panel),
                        None => self.operand.pack(start, lanes, of.steps, panel),
                    }
                }
            }
            return Ok(());
        };
        // SAFETY: the caller's contract.
        unsafe { self.compute(blocks, of, panels, pool) }
    }

    /// Computes a block piece by piece, and packs each. Runs lie along the depth or along the lanes, and a piece
    /// has all of that direction and few of the other.
    ///
    /// # Safety
    ///
    /// See `pack`.
    unsafe fn compute(
        &self,
        blocks: &BlockKernel<'_>,
        of: LaneBlock,
        panels: PanelMemory<T>,
        pool: &Arc<Pool>,
    ) -> Result<(), Failure> {
        let (lanes, steps) = (of.lanes.1 - of.lanes.0, of.steps.1 - of.steps.0);
        let (lanes, steps) = if blocks.along_depth { (panels.width, steps) } else { (lanes, RUN_STEPS) };
        let start = self.batch.offset(of.batch);
        let memory = Workspace::<T>::new(pool, lanes * steps)?;
        for piece in of.pieces(lanes, steps) {
            let (lanes, steps) = (piece.lanes.1 - piece.lanes.0, piece.steps.1 - piece.steps.0);
            let Operand { lanes: along_lanes, depth: along_depth, .. } = &self.operand;
            let directions = if blocks.along_depth {
                let each = (piece.lanes.0..piece.lanes.1).map(|lane| start + along_lanes.offset(lane));
                blocks.compute(each, || along_depth.contiguous(piece.steps), memory.ptr(0).cast());
                (Direction::new([(lanes, steps)]), Direction::new([(steps, 1)]))
            } else {
                let each = (piece.steps.0..piece.steps.1).map(|step| start + along_depth.offset(step));
                blocks.compute(each, || along_lanes.contiguous(piece.lanes), memory.ptr(0).cast());
                (Direction::new([(lanes, 1)]), Direction::new([(steps, lanes)]))
            };
            let block = self.operand.at(memory.ptr(0).cast(), directions);
            for ((first, count), panel) in panels.all(of, piece) {
                // SAFETY: the piece has these lanes and steps, and the panel has room by the caller's contract.
                unsafe { block.pack(0, (first - piece.lanes.0, count), (0, steps), panel) };
            }
        }
        Ok(())
    }
}

impl LaneBlock {
    /// Returns the parts of the block with at most so many lanes and steps.
    fn pieces(self, lanes: usize, steps: usize) -> impl Iterator<Item = LaneBlock> {
        let parts = |(first, end): (usize, usize), len: usize| {
            (first..end).step_by(len.max(1)).map(move |first| (first, end.min(first + len)))
        };
        parts(self.lanes, lanes).flat_map(move |lanes| {
            parts(self.steps, steps).map(move |steps| LaneBlock { lanes, steps, ..self })
        })
    }
}

/// The memory of panels, which lie one after another and have so many lanes each.
#[derive(Clone, Copy)]
pub(super) struct PanelMemory<T> {
    pub(super) first: *mut T,
    pub(super) width: usize,
}

impl<T> PanelMemory<T> {
    /// Returns the first lane and the number of lanes of each panel with lanes of a piece. The panel starts at the
    /// first step of the piece.
    fn all(self, of: LaneBlock, piece: LaneBlock) -> impl Iterator<Item = ((usize, usize), (*mut T, usize))> {
        let (width, depth, ahead) = (self.width, of.depth.1 - of.depth.0, piece.steps.0 - of.depth.0);
        (piece.lanes.0..piece.lanes.1).step_by(width).map(move |lane| {
            let number = (lane - of.lanes.0) / width;
            let panel = self.first.wrapping_add((number * depth + ahead) * width);
            ((lane, width.min(piece.lanes.1 - lane)), (panel, width))
        })
    }
}

/// Packed lanes of an operand for a block of the depth.
#[derive(Clone, Copy)]
pub(super) enum PackedLanes<'a, T> {
    /// Panels of so many lanes one after another, as long as a block of the depth.
    Panels { panels: PanelMemory<T>, depth: usize, count: usize },
    /// Lanes that are not packed: steps of each lie next to each other, and lanes so many elements apart.
    Rows { first: *const T, apart: usize, count: usize, width: usize },
    /// Planes of lanes that windows choose. The block begins at a step of the depth.
    Planes { panels: PanelMemory<T>, layout: &'a Layout, from: usize },
}

impl<T> PackedLanes<'_, T> {
    /// Calls a function with each panel, and the lanes that it has.
    pub(super) fn each(&self, mut run: impl FnMut(Panel<T>, &[LaneRun])) {
        match *self {
            PackedLanes::Panels { panels: PanelMemory { first, width }, depth, count } => {
                for at in (0..count).step_by(width) {
                    let panel = Panel { first: first.wrapping_add(at * depth), steps: None, apart: None };
                    run(panel, &[LaneRun { lane: 0, at, len: width.min(count - at) }]);
                }
            }
            PackedLanes::Rows { first, apart, count, width } => {
                for at in (0..count).step_by(width) {
                    let panel =
                        Panel { first: first.wrapping_add(at * apart), steps: None, apart: Some(apart) };
                    run(panel, &[LaneRun { lane: 0, at, len: width.min(count - at) }]);
                }
            }
            PackedLanes::Planes { panels: PanelMemory { first, width }, layout, from } => {
                let steps = Some(layout.steps[from..].as_ptr());
                for (number, lanes) in layout.panels() {
                    run(Panel { first: first.wrapping_add(number * width), steps, apart: None }, lanes);
                }
            }
        }
    }
}

impl BlockKernel<'_> {
    /// Computes runs of elements, given by offset and length, from each start on. They lie one after another in
    /// memory.
    pub(super) fn compute<R: Iterator<Item = (usize, usize)>>(
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
