//! The space of a group: the axes that threads are spread over, and the axes of rows that reductions in loops
//! combine.
//!
//! All row reductions of a group have the same axes. Global reductions, over all elements of all rows, are
//! the exception: a kernel before the rows computes their partial results, which each row may use. Invariant:
//! a group with a space has a schedule.

use rustc_hash::FxHashSet;

use super::attention::Attention;
use super::{Group, Load, Reason, Store, is_column_major, load_order, order_of};
use crate::ir::dim::DimExpr;
use crate::ir::graph::{AxisId, AxisSet, Graph, NodeId};
use crate::target::tuning_table::{cpu, gpu};

/// Axes of the rows, and axes of their elements.
type SpaceAxes = (Vec<AxisId>, Vec<AxisId>);

/// Length of the longest row that no target splits, whatever the number of rows.
const ROW_MAX: i64 = gpu::PART_ROW_MIN - 1;
const _: () = assert!(gpu::PART_ROW_MIN <= cpu::PART_ROW_MIN, "GPUs split the shortest rows");

impl Group {
    /// Returns the space of all stores: the axes of the rows and, with reductions in loops, those of their
    /// elements. The error is the value to store so that one space remains, and the reason.
    pub(super) fn space_of(&self, graph: &Graph) -> Result<SpaceAxes, (NodeId, Reason)> {
        if let Some(attention) = Attention::of(graph, self)
            && let Some(order) = attention.order(self)
        {
            return Ok((order.to_vec(), vec![attention.along]));
        }
        let looped = |id: &NodeId| !graph.looped_axes(*id).is_empty();
        let reduces: Vec<NodeId> = self.nodes.iter().copied().filter(looped).collect();
        let cut = |id: NodeId| (id, Reason::Rows(graph.looped_axes(id)));
        let Some(&last) = reduces.last() else {
            let order = self.stores[0].order.clone();
            let different = self.stores.iter().find(|store| store.order != order);
            return different.map_or(Ok((order, vec![])), |store| Err((store.node, Reason::Order)));
        };
        let spaces = reduces.iter().rev().filter_map(|&id| Some((id, self.rows_and_cols(graph, id)?)));
        let mut obstacle = None;
        for (hero, space) in spaces {
            match self.in_the_way(graph, &reduces, &space) {
                None => return Ok(space),
                Some(other) => obstacle = obstacle.or(Some((hero, other))),
            }
        }
        let (hero, other) = obstacle.ok_or(cut(last))?;
        let stored = self.stores.iter().any(|store| store.node == other);
        Err(if stored { cut(hero) } else { (other, Reason::Rows(graph.replaced_axes(other))) })
    }

    /// Returns the last value that a kernel over rows with these axes cannot compute.
    fn in_the_way(&self, graph: &Graph, reduces: &[NodeId], (rows, cols): &SpaceAxes) -> Option<NodeId> {
        let in_loops: AxisSet = rows.iter().chain(cols).copied().collect();
        let (of_rows, of_cols): (AxisSet, AxisSet) =
            (rows.iter().copied().collect(), cols.iter().copied().collect());
        let of_all = self.combined_of_all(graph, (rows, cols));
        let fits = |id: NodeId| {
            graph.node(id).axes == of_rows && graph.looped_axes(id) == of_cols || of_all.contains(&id)
        };
        let is_in_the_way = |id: &NodeId| match reduces.contains(id) {
            false => !graph.written_out(*id).intersection(in_loops).is_empty(),
            true => !fits(*id),
        };
        self.nodes.iter().rev().copied().find(is_in_the_way)
    }

    /// Returns the global reductions. The list is empty unless there are several rows of constant, short
    /// length, and all operands have their axes in the order of the space. No global reduction depends on
    /// another reduction.
    pub(super) fn combined_of_all(&self, graph: &Graph, (rows, cols): (&[AxisId], &[AxisId])) -> Vec<NodeId> {
        let len = DimExpr::product(cols.iter().map(|&axis| &graph.axis(axis).extent)).as_const();
        if rows.is_empty() || cols.is_empty() || len.is_none_or(|len| len > ROW_MAX) {
            return vec![];
        }
        let order = [rows, cols].concat();
        if !self.lies_in_order(graph, &order) {
            return vec![];
        }
        let all: AxisSet = order.into_iter().collect();
        let is_of_all = |id: NodeId| graph.node(id).axes.is_empty() && graph.looped_axes(id) == all;
        let (mut combined, mut found) = (FxHashSet::default(), Vec::new());
        for &id in &self.nodes {
            let follows = graph.node(id).args.iter().any(|arg| combined.contains(arg));
            if is_of_all(id) && !follows {
                found.push(id);
            }
            if follows || !graph.looped_axes(id).is_empty() {
                combined.insert(id);
            }
        }
        found
    }

    /// Returns true if no target splits the rows of the group: they are contiguous, and of constant, short
    /// length.
    pub(super) fn keeps_rows_whole(&self, graph: &Graph) -> bool {
        let len = DimExpr::product(self.cols.iter().map(|&axis| &graph.axis(axis).extent)).as_const();
        let stores_rows =
            self.stores.iter().any(|store| self.is_of_elements(store)) && !self.writes_columns();
        !self.order.is_empty() && stores_rows && len.is_some_and(|len| len <= ROW_MAX)
    }

    /// Returns the axes of the rows of a reduction, and of their elements, if every store has one value for
    /// each row or each element. Rows are contiguous, or column-major where all loads are column-major too.
    fn rows_and_cols(&self, graph: &Graph, reduce: NodeId) -> Option<SpaceAxes> {
        let (rows, cols) = (graph.node(reduce).axes, graph.looped_axes(reduce));
        let in_row = |axis: &AxisId| cols.contains(*axis);
        let order = match self.stores.iter().find(|store| store.order.iter().any(in_row)) {
            Some(store) => store.order.clone(),
            None => {
                let inner = order_of(graph, reduce, rows.union(cols)).into_iter().filter(in_row);
                let of_rows = self.stores.iter().max_by_key(|store| store.order.len())?;
                of_rows.order.iter().copied().chain(inner).collect()
            }
        };
        let (of_cols, of_rows): (Vec<AxisId>, Vec<AxisId>) = order.iter().partition(|axis| in_row(axis));
        let first = order.iter().position(in_row)?;
        let together = order[first..].starts_with(&of_cols);
        let has_inner_rows = first + of_cols.len() < order.len();
        let with_all = !self.combined_of_all(graph, (&of_rows, &of_cols)).is_empty();
        let fits = |store: &Store| {
            store.order == of_rows || store.order == order || with_all && store.order.is_empty()
        };
        let (is_rows, is_cols) = (
            of_rows.iter().copied().collect::<AxisSet>() == rows,
            of_cols.iter().copied().collect::<AxisSet>() == cols,
        );
        let whole = is_rows && is_cols && together && self.stores.iter().all(fits);
        let next = of_rows.last().copied();
        let loads_column_major = |load: &Load| is_column_major(&load_order(graph, *load), cols, next);
        let reads = !has_inner_rows || self.unrolled.is_empty() && self.loads.iter().all(loads_column_major);
        (whole && reads).then_some((of_rows, of_cols))
    }

    /// Returns true if all loads and stores have these axes in this order, so that the space can be split
    /// into contiguous parts.
    fn lies_in_order(&self, graph: &Graph, order: &[AxisId]) -> bool {
        let is_in_order = |axes: &[AxisId]| {
            axes.iter().filter_map(|axis| order.iter().position(|other| other == axis)).is_sorted()
        };
        self.loads.iter().all(|load| is_in_order(&load_order(graph, *load)))
            && self.stores.iter().all(|store| is_in_order(&store.order))
    }

    /// Returns the global reductions, which a kernel computes before the rows.
    pub fn of_all(&self, graph: &Graph) -> Vec<NodeId> {
        self.combined_of_all(graph, (&self.order, &self.cols))
    }

    /// Returns true if a store has one element that all rows share.
    pub fn is_of_none(&self, store: &Store) -> bool {
        store.order.is_empty() && !self.order.is_empty()
    }
}
