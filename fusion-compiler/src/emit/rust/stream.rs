//! Streams of vector loops, and the names and counts that loops, folds and prefetches share.

use crate::ir::kernel::{BufferId, Expr, Fold, SharedId, Stmt, Value};

/// Name of the special operations of a processor.
pub(super) const OPS: &str = "ops";

/// Name of a lane's number: the number of the first lane of its call, `first`, plus `j`.
pub(super) const LANE: &str = "lane";

/// A stream: a run of elements that a vector loop goes through.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) memory: MemoryId,
    pub(super) index: Value,
    pub(super) stride: u32,
    /// True if a mask says which lanes have elements. Any part of the run may lie outside of the buffer.
    pub(super) masked: bool,
}

/// The memory that a stream is part of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryId {
    Buffer(BufferId),
    Shared(SharedId),
}

/// Returns the number of operations of a lane.
pub(super) fn operations(lanes: &[Stmt], folds: &[Fold]) -> usize {
    let is_op = |stmt: &&Stmt| matches!(stmt, Stmt::Let(_, Expr::Apply(..) | Expr::Cast(_)));
    lanes.iter().chain(folds.iter().flat_map(|fold| &fold.body)).filter(is_op).count()
}

/// Returns the number of lanes, if it is a literal.
pub(super) fn known(len: &str) -> Option<usize> {
    len.strip_suffix("usize")?.parse().ok()
}
