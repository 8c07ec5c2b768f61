//! Contractions: what a launch computes before its kernel.

use serde::{Deserialize, Serialize};

use super::List;
use crate::ir::dim::DimExpr;

/// A contraction: `tile[b, m, n] = Σ_k left[b, m, k] · right[b, k, n]`, over all coordinates of four groups of
/// axes.
///
/// The driver of the device computes tiles of rows and columns. The kernel of the launch reads a tile in place
/// of the buffer `tile`, and computes the elements of the space from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contraction {
    /// Axes with a product for each of their coordinates, outermost first.
    pub batch: List<TileAxis>,
    /// Axes of the rows, which the right operand lacks.
    pub rows: List<TileAxis>,
    /// Axes of the columns, which the left operand lacks: the columns of the space.
    pub cols: List<TileAxis>,
    /// Axes that are summed over.
    pub depth: List<TileAxis>,
    /// The left operand, with rows and depth.
    pub left: Factor,
    /// The right operand, with columns and depth.
    pub right: Factor,
    /// Windows that choose the elements of the left and of the right operand from their tensors.
    pub windows: [Windows; 2],
    /// Buffer of the kernel that tiles are read from.
    pub tile: u16,
}

/// The windows that choose the elements of an operand from its tensor.
///
/// The position of an element is the sum of its coordinates times their strides, from `start` on. Padding is 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Windows {
    /// Position of the element whose coordinates are all 0. It may be less than 0.
    pub start: DimExpr,
    /// All dims of the tensor that windows move along, at most `WINDOW_BOUNDS_MAX`.
    pub bounds: List<WindowBounds>,
}

/// Largest number of dims that windows move along.
pub const WINDOW_BOUNDS_MAX: usize = 3;

/// The coordinate along a dim of a tensor, as a sum of coordinates times strides. Elements at coordinates less than 0,
/// or from the extent on, are padding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowBounds {
    /// Extent of the dim.
    pub extent: DimExpr,
    /// Coordinate of the first element. It may be less than 0.
    pub start: DimExpr,
    /// Strides of the axes of the batch.
    pub batch: List<DimExpr>,
    /// Strides of the axes of the rows or columns.
    pub lanes: List<DimExpr>,
    /// Strides of the axes that are summed over.
    pub depth: List<DimExpr>,
}

impl Windows {
    /// The windows of an operand that is a whole tensor.
    pub fn none() -> Windows {
        Windows { start: DimExpr::constant(0), bounds: List::Owned(vec![]) }
    }
}

/// An operand of a contraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Factor {
    /// A buffer of the launch.
    Buffer(u16),
    /// Elements that the kernel of another launch computes, block by block, when the driver packs them.
    Blocks(Blocks),
}

/// The kernel of blocks of an operand. A block is a run of contiguous elements of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocks {
    /// Number of the launch in the variant. The launch does not run by itself.
    pub launch: u16,
    /// Buffer of that launch that has the elements. It has no memory outside of blocks.
    pub buffer: u16,
    /// True if contiguous elements lie along the depth, false if they lie along the rows or columns.
    pub along_depth: bool,
}

/// Elements of a block of the depth. The order of a sum depends on the number, so it is the same for all
/// processors.
pub const DEPTH: usize = 256;

impl Contraction {
    /// Returns the blocks of an operand that the kernel of a launch of the variant computes, if any.
    pub fn blocks_of(&self, launch: usize) -> Option<Blocks> {
        [self.left, self.right].into_iter().find_map(|factor| match factor {
            Factor::Blocks(blocks) if usize::from(blocks.launch) == launch => Some(blocks),
            Factor::Blocks(_) | Factor::Buffer(_) => None,
        })
    }
}

/// An axis of a contraction, with its strides. The stride of a tensor without the axis is 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TileAxis {
    /// Extent of the axis.
    pub extent: DimExpr,
    /// Stride in rows of the space.
    pub space: DimExpr,
    /// Stride in elements of the left operand.
    pub left: DimExpr,
    /// Stride in elements of the right operand.
    pub right: DimExpr,
}
