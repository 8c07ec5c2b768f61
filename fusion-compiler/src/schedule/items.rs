//! Items of the CPU, and kernels over spaces whose writes are linear.

use super::Scheduled;
use super::body::Body;
use super::space::SpaceDim;
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::Access;
use crate::ir::kernel::{Builtin, Lanes, LoopKind, Stmt, Type, Value};
use crate::ir::op::Op;
use crate::ir::plan::{Condition, Footprint, Space};

const INDEX: Type = Type { dtype: DType::Index, lanes: Lanes::ONE };

/// An item of the CPU: a run of elements next to each other in a row.
#[derive(Clone, Copy)]
pub(super) struct Items {
    /// Number of the item.
    pub(super) item: Value,
    /// Number of the row.
    pub(super) row: Value,
    /// Number of the first element in the row.
    pub(super) col: Value,
    /// Number of the first element in the space.
    pub(super) element: Value,
    /// Number of elements.
    pub(super) len: Value,
}

/// Elements of an item.
#[derive(Clone, Copy)]
pub(super) enum Grain {
    /// So many, unless the item ends its row.
    Const(u32),
    /// The launch chooses the number.
    AtLaunch,
    /// Any block of a row, given by `BlockStart` and `BlockLen`.
    Block,
}

impl Grain {
    /// Returns the largest number of elements of an item.
    pub(super) fn most(self) -> u32 {
        match self {
            Grain::Const(grain) => grain,
            Grain::AtLaunch | Grain::Block => u32::MAX,
        }
    }
}

impl Items {
    /// Computes the item at hand of rows of this extent.
    pub(super) fn of(body: &mut Body<'_>, extent: &DimExpr, grain: Grain) -> Items {
        let cols = body.extent(extent);
        let mut top = body.top();
        let (grain, up) = match grain {
            Grain::Const(grain) => (top.index(i64::from(grain)), top.index(i64::from(grain) - 1)),
            Grain::AtLaunch => {
                let (grain, one) = (top.builtin(Builtin::Grain), top.index(1));
                (grain, top.apply(Op::Sub, &[grain, one]))
            }
            Grain::Block => {
                let (col, len) = (top.builtin(Builtin::BlockStart), top.builtin(Builtin::BlockLen));
                let row = top.declare(INDEX);
                let mut b = body.item();
                let before = b.apply(Op::Mul, &[row, cols]);
                let element = b.apply(Op::Add, &[before, col]);
                return Items { item: row, row, col, element, len };
            }
        };
        let padded = top.apply(Op::Add, &[cols, up]);
        let blocks = top.apply(Op::IntDiv, &[padded, grain]);
        let item = top.declare(INDEX);
        let mut b = body.item();
        let row = b.apply(Op::IntDiv, &[item, blocks]);
        let block = b.apply(Op::IntRem, &[item, blocks]);
        let col = b.apply(Op::Mul, &[block, grain]);
        let left = b.apply(Op::Sub, &[cols, col]);
        let len = b.apply(Op::Min, &[left, grain]);
        let before = b.apply(Op::Mul, &[row, cols]);
        let element = b.apply(Op::Add, &[before, col]);
        Items { item, row, col, element, len }
    }

    /// Distributes the items to threads, which run the statements for each.
    pub(super) fn distribute(self, body: &mut Body<'_>, inside: Vec<Stmt>) {
        let mut top = body.top();
        let (start, end) = (top.index(0), top.index(1));
        let (var, kind) = (self.item, LoopKind::Grid);
        body.push(Stmt::Loop { var, kind, start, end, step: end, carried: vec![], body: inside });
    }
}

/// Returns the kernel over these dims, whose writes are linear in the space.
pub(super) fn scheduled(dims: &[SpaceDim], body: Body<'_>, when: Vec<Condition>, grain: u32) -> Scheduled {
    let (outer, inner) = dims.split_at(dims.len() - 1);
    let rows = DimExpr::product(outer.iter().map(|dim| &dim.extent));
    let space =
        Space { rows, cols: inner[0].extent.clone(), grain, grain_min: grain, each: DimExpr::constant(1) };
    let (kernel, buffers) = body.finish();
    for buffer in &buffers {
        let linear = matches!(buffer.footprint, Footprint::Linear(_));
        debug_assert!(buffer.access == Access::Read || linear, "writes are linear");
    }
    Scheduled::new(when, (kernel, buffers), space)
}
