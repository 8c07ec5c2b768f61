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
    /// Buffer of the left operand.
    pub left: u16,
    /// Buffer of the right operand.
    pub right: u16,
    /// Buffer of the kernel that tiles are read from.
    pub tile: u16,
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
