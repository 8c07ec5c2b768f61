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
    /// Sums of values that the products are scores for, if they are. The tiles of the kernel are then sums.
    pub attention: Option<Attention>,
    /// The kernel that combines parts of columns, when all elements of their rows are stored.
    pub parts: Option<RowParts>,
}

/// The kernel of a launch that reduces columns. An item of the launch is a part, of `ROW_PART` rows with all of their
/// columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowParts {
    /// Number of the launch in the variant. The launch does not run by itself.
    pub launch: u16,
    /// Buffers of that launch with elements of the contraction.
    pub elements: List<u16>,
}

/// Rows of a part of a column. The order of a sum depends on the number, so it is the same for all processors.
pub const ROW_PART: usize = 96;

/// Sums of values: `tile[b, m, d] = Σ_n weight(product[b, m, n]) · values[b, n, d]`, where the columns `n` of the
/// products are keys.
///
/// The kernel of a launch computes weights from products, for `DEPTH` keys of a row at a time. The kernel also
/// stores the state of these keys: their largest score, and sums of exponentials relative to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    /// Number of the launch of weights in the variant. The launch does not run by itself.
    pub launch: u16,
    /// Buffer of that launch with products.
    pub scores: u16,
    /// Buffer of that launch that the kernel writes weights to.
    pub weights: u16,
    /// State of a row.
    pub state: List<RowState>,
    /// True if weights are numbers where the largest score of the row is infinite.
    pub is_finite: bool,
    /// Axes of the batch, with the strides of values as right operand.
    pub batch: List<TileAxis>,
    /// Axes of the values' columns.
    pub cols: List<TileAxis>,
    /// Axes of the keys.
    pub depth: List<TileAxis>,
    /// The values.
    pub values: Factor,
    /// Windows that choose the values from their tensor.
    pub windows: Windows,
    /// Kernels that compute the first and the last key of each row that is not masked, where keys are masked by
    /// their coordinates. Other keys are not computed.
    pub visible: [Option<Blocks>; 2],
}

/// A value of each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowState {
    /// The value.
    pub kind: StateKind,
    /// Buffer of the launch of weights that the kernel writes the value of a part of a row to.
    pub part: u16,
    /// Buffer of the launch that the kernel reads the value of a row from, if it does.
    pub whole: Option<u16>,
}

/// Kinds of values of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateKind {
    /// The largest score.
    Largest,
    /// The sum of exponentials of scores relative to the largest.
    Sum,
    /// The same, relative to 0 where the largest is infinite.
    FiniteSum,
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
    /// Returns true if the driver runs the kernel of a launch of the variant.
    pub fn drives(&self, launch: usize) -> bool {
        let is_weights = self.attention.as_ref().is_some_and(|of| usize::from(of.launch) == launch);
        let is_parts = self.parts.as_ref().is_some_and(|of| usize::from(of.launch) == launch);
        is_weights || is_parts || self.blocks().any(|blocks| usize::from(blocks.launch) == launch)
    }

    /// Returns true if a buffer of a launch that the driver runs has memory only for the items that run.
    pub fn lends(&self, launch: usize, buffer: usize) -> bool {
        let is_it = |of: u16| usize::from(of) == buffer;
        let of_weights = |of: &Attention| {
            usize::from(of.launch) == launch
                && (is_it(of.scores) || is_it(of.weights) || of.state.iter().any(|state| is_it(state.part)))
        };
        let of_parts = |of: &RowParts| {
            usize::from(of.launch) == launch && of.elements.iter().any(|&element| is_it(element))
        };
        self.attention.as_ref().is_some_and(of_weights)
            || self.parts.as_ref().is_some_and(of_parts)
            || self.blocks().any(|of| usize::from(of.launch) == launch && is_it(of.buffer))
    }

    /// Returns true if a buffer of the launch itself has memory only while the kernel runs.
    pub fn lends_own(&self, buffer: usize) -> bool {
        let is_it = |of: u16| usize::from(of) == buffer;
        let states = self.attention.iter().flat_map(|of| of.state.iter());
        is_it(self.tile) || states.filter_map(|state| state.whole).any(is_it)
    }

    /// Returns the operands of all products.
    pub fn factors(&self) -> impl Iterator<Item = Factor> {
        [self.left, self.right].into_iter().chain(self.attention.iter().map(|of| of.values))
    }

    fn blocks(&self) -> impl Iterator<Item = Blocks> {
        let of_factors = self.factors().filter_map(|factor| match factor {
            Factor::Blocks(blocks) => Some(blocks),
            Factor::Buffer(_) => None,
        });
        of_factors.chain(self.attention.iter().flat_map(|of| of.visible).flatten())
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
