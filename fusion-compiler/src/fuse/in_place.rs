//! `&mut` parameters that can be overwritten in place.
//!
//! Invariant: every read of an element happens before its write. Either the thread that writes the element
//! has read it, or all threads that read it wait for each other first.

use super::{Group, Load, Store};
use crate::ir::graph::{Graph, ParamId, ParamKind};

/// Returns true if an element of a parameter may be read after output `i` has overwritten it.
pub(super) fn is_read_late(graph: &Graph, groups: &[Group], i: usize, param: ParamId) -> bool {
    let elsewhere = other_reads(groups, i, param) || row_reads(graph, groups, i, param);
    elsewhere || view_reads(graph, groups, param) || moved_reads(groups, param)
}

/// Returns true if a group other than the one that writes output `i` reads the parameter.
fn other_reads(groups: &[Group], i: usize, param: ParamId) -> bool {
    let writes = |group: &Group| group.stores.iter().any(|store| store.output == Some(i));
    groups.iter().any(|group| !writes(group) && group.loads.contains(&Load::Param(param)))
}

/// Returns true if the group that writes output `i` once for each row, or once for all rows, reads the
/// parameter. One thread writes such a value, and other blocks may read later where rows are split into
/// parts. All threads of a row that is never split wait for each other before one of them writes.
fn row_reads(graph: &Graph, groups: &[Group], i: usize, param: ParamId) -> bool {
    let by_row = |group: &Group| {
        let of_row = |store: &Store| {
            let waits = group.keeps_rows_whole(graph) && !group.is_of_none(store);
            store.output == Some(i) && !group.is_of_elements(store) && !waits
        };
        !group.cols.is_empty() && group.stores.iter().any(of_row)
    };
    groups.iter().any(|group| by_row(group) && group.loads.contains(&Load::Param(param)))
}

/// Returns true if a group reads the parameter through a view, at other coordinates than those of the written
/// element.
fn view_reads(graph: &Graph, groups: &[Group], param: ParamId) -> bool {
    let views = |load: &Load| match *load {
        Load::Param(read) => matches!(graph.param(read).kind, ParamKind::View { of, .. } if of == param),
        Load::Stored(_) => false,
    };
    groups.iter().any(|group| group.loads.iter().any(views))
}

/// Returns true if an index operation reads the parameter at other coordinates than those of the written
/// element.
fn moved_reads(groups: &[Group], param: ParamId) -> bool {
    groups.iter().any(|group| group.moved.contains_key(&Load::Param(param)))
}
