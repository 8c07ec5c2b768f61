//! The iteration space of a row reduction.

use super::Work;
use super::partition::Partition;
use super::space::{SpaceDim, cols, dims, line, product};
use crate::ir::dim::DimExpr;
use crate::ir::graph::AxisSet;
use crate::target::TargetFacts;

/// The dims of a row group: dims of rows, of partial results, and of the elements of a row.
#[derive(Clone)]
pub(super) struct RowSpace {
    /// Number of dims of rows.
    pub(super) rows: usize,
    /// Number of dims of partial results, which are combined before.
    pub(super) partials: usize,
    /// All dims, outermost first.
    pub(super) dims: Vec<SpaceDim>,
    /// Number of innermost dims that are a line.
    pub(super) line: usize,
    /// Length of a part, if each row is a part of a longer one: elements of a line, else coordinates along the
    /// outermost dim. The last part may be shorter.
    pub(super) part: Option<DimExpr>,
    /// Dim of rows that counts parts, if it is one of them.
    pub(super) part_dim: Option<usize>,
}

impl RowSpace {
    /// Returns the space of whole rows.
    pub(super) fn new(work: &Work<'_>, facts: &TargetFacts) -> RowSpace {
        let rows = dims(work.graph, work.group, &work.operands);
        let cols = cols(work.graph, work.group, &work.operands);
        let line = line(facts, &cols);
        let given: AxisSet =
            work.of_parts().into_iter().flat_map(|id| work.graph.looped_axes(id).iter()).collect();
        let dim = |axis| SpaceDim { axes: vec![axis], extent: work.graph.axis(axis).extent.clone() };
        let partials: Vec<SpaceDim> = given.iter().map(dim).collect();
        let (rows, partials, dims) = (rows.len(), partials.len(), [rows, partials, cols].concat());
        RowSpace { rows, partials, dims, line, part: None, part_dim: None }
    }

    /// Returns the space of parts of rows.
    pub(super) fn of_parts(work: &Work<'_>, facts: &TargetFacts, partition: &Partition) -> RowSpace {
        let space = RowSpace::new(work, facts);
        let counts = |dim: &SpaceDim| {
            let &[axis] = dim.axes.as_slice() else { return false };
            axis == partition.part || Some(axis) == partition.chunk
        };
        let part_dim = space.dims[..space.rows].iter().position(counts);
        RowSpace { part: Some(partition.len.clone()), part_dim, ..space }
    }

    /// Returns the largest number of elements of a line.
    pub(super) fn len(&self) -> DimExpr {
        let part = self.part.as_ref().filter(|_| self.is_line());
        part.cloned().unwrap_or_else(|| product(self.line()))
    }

    /// Returns the largest number of elements of a row.
    pub(super) fn each(&self) -> DimExpr {
        match &self.part {
            None => product(self.cols()),
            Some(_) if self.is_line() => self.len(),
            Some(part) => part.clone() * product(&self.cols()[1..]),
        }
    }

    /// Returns the dims of the elements of a row.
    pub(super) fn cols(&self) -> &[SpaceDim] {
        &self.dims[self.rows + self.partials..]
    }

    /// Returns the dims of partial results.
    pub(super) fn partials(&self) -> &[SpaceDim] {
        &self.dims[self.rows..][..self.partials]
    }

    /// Returns the innermost dim.
    pub(super) fn innermost(&self) -> &SpaceDim {
        &self.dims[self.dims.len() - 1]
    }

    /// Returns the dims of a line.
    pub(super) fn line(&self) -> &[SpaceDim] {
        &self.dims[self.dims.len() - self.line..]
    }

    /// Returns true if a row is no more than a line.
    pub(super) fn is_line(&self) -> bool {
        self.cols().len() == self.line
    }
}
