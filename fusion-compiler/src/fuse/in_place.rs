//! Which `&mut` parameters can be overwritten where they are.
//!
//! Invariant: whoever reads an element has done so before it is written: it is read by the thread that writes it, or all
//! threads that read it wait for each other first.

use super::{Group, Load, Store};
use crate::ir::graph::{Graph, ParamId, ParamKind};

/// Whether some of a parameter may be read after output `i` has written it.
pub(super) fn is_read_late(graph: &Graph, groups: &[Group], i: usize, param: ParamId) -> bool {
    let elsewhere = other_reads(groups, i, param) || row_reads(graph, groups, i, param);
    elsewhere || view_reads(graph, groups, param) || moved_reads(groups, param)
}

/// Whether a group other than the one that writes output `i` reads the parameter.
fn other_reads(groups: &[Group], i: usize, param: ParamId) -> bool {
    let writes = |group: &Group| group.stores.iter().any(|store| store.output == Some(i));
    groups.iter().any(|group| !writes(group) && group.loads.contains(&Load::Param(param)))
}

/// Whether the group that writes output `i` for each row by one thread reads the parameter, as others may do later: where rows are
/// cut into parts, or the output is of none of them. Those with portions are never cut, and all threads of a row wait for each other
/// before one writes.
fn row_reads(graph: &Graph, groups: &[Group], i: usize, param: ParamId) -> bool {
    let by_row = |group: &Group| {
        let of_row = |store: &Store| {
            let waits = group.has_portions(graph) && !group.is_of_none(store);
            store.output == Some(i) && !group.is_of_elements(store) && !waits
        };
        !group.cols.is_empty() && group.stores.iter().any(of_row)
    };
    groups.iter().any(|group| by_row(group) && group.loads.contains(&Load::Param(param)))
}

/// Whether a group reads the parameter at other places than those that an element is written to.
fn view_reads(graph: &Graph, groups: &[Group], param: ParamId) -> bool {
    let views = |load: &Load| match *load {
        Load::Param(read) => matches!(graph.param(read).kind, ParamKind::View { of, .. } if of == param),
        Load::Stored(_) => false,
    };
    groups.iter().any(|group| group.loads.iter().any(views))
}

/// Whether an index operation reads the parameter at other places than those that an element is written to.
fn moved_reads(groups: &[Group], param: ParamId) -> bool {
    groups.iter().any(|group| group.moved.contains_key(&Load::Param(param)))
}
