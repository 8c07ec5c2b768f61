//! The numbers of the rows and columns of a tile, and the roles of axes in a kernel of tiles.

use super::INDEX;
use crate::ir::kernel::{Builtin, Expr, Lanes, Type, Value};
use crate::ir::op::Op;
use crate::schedule::body::{Body, Level};
use crate::schedule::space::{SpaceDim, product};

/// A side of a tile.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::schedule::contraction) enum Side {
    Rows,
    Cols,
}

/// Axes of the space that are in one role. The numbers are those of their dims.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::schedule::contraction) enum Role {
    Batch,
    Rows,
    Cols,
    /// The depth of a product, or the keys of attention.
    Depth,
    /// The depth of the scores of attention, or the parts of columns.
    Further,
}

/// The numbers of the rows or columns of a tile.
pub(in crate::schedule::contraction) struct Numbers {
    /// Coordinates of each number, by dim.
    pub(in crate::schedule::contraction) coordinates: Vec<Value>,
    /// True for the numbers inside of the space.
    pub(in crate::schedule::contraction) within: Value,
    pub(super) count: u16,
}

/// Coordinates of the axes in some roles.
pub(in crate::schedule::contraction) type Coordinates<'c> = (Role, &'c [Value]);

impl Numbers {
    /// Computes `count` numbers from `first` on.
    pub(in crate::schedule::contraction) fn new(
        body: &mut Body<'_>,
        level: Level,
        (first, dims): (Value, &[SpaceDim]),
        (side, count): (Side, u16),
    ) -> Numbers {
        let extent = body.extent(&product(dims));
        let (builtin, lanes) = match side {
            Side::Rows => (Builtin::TileRow, Lanes::Tile(count, 1)),
            Side::Cols => (Builtin::TileCol, Lanes::Tile(1, count)),
        };
        let mut b = body.at(level);
        let ahead = b.bind(Type { lanes, ..INDEX }, Expr::Builtin(builtin));
        let number = b.apply(Op::Add, &[first, ahead]);
        let within = b.apply(Op::Lt, &[number, extent]);
        Numbers { coordinates: body.decoded(level, number, dims), within, count }
    }
}
