//! Groups and their kernels → the data of a report.
//!
//! Invariant: names are those of the user or of operations. Everything else is numbers and formulas.

use std::collections::BTreeMap;

use super::{Compiled, FusedGraph, products};
use crate::fuse::attention::Attention;
use crate::fuse::{Group, Grouping, Load, Reason, Store, is_op};
use crate::ir::dtype::DType;
use crate::ir::graph::{AxisId, AxisSet, Dest, Graph, NodeId, SpanId};
use crate::ir::plan::{Array, ArrayKind, Boundary, GroupSummary, Summary, Text, Traffic, VariantSummary};
use crate::plan::assemble::{
    all_bytes, collect_terms, kernel_name, load_dtype, load_name, reason_text, result_name, traffic,
    value_name,
};
use crate::schedule::Schedule;
use crate::schedule::contraction::Product;

/// Function that returns the line and the column of a span in the user's source.
pub type Locate<'a> = &'a dyn Fn(SpanId) -> (u32, u32);

/// Summarizes fusion, compared with one kernel for every operation. Programs with the same groups share one
/// summary.
pub fn summary(made: &[Compiled<'_>], unfused: &Grouping, locate: Locate<'_>) -> Summary {
    let mut alike: Vec<Vec<(usize, &Compiled<'_>)>> = Vec::new();
    for one in made.iter().enumerate() {
        match alike.iter_mut().find(|known| known[0].1.of.fused.groups == one.1.of.fused.groups) {
            Some(known) => known.push(one),
            None => alike.push(vec![one]),
        }
    }
    let mut summaries = alike.iter().map(|made| summary_of(made, unfused, locate));
    let first = summaries.next().unwrap_or_else(|| unreachable!("a function has a target"));
    Summary { others: summaries.collect(), ..first }
}

fn summary_of(made: &[(usize, &Compiled<'_>)], unfused: &Grouping, locate: Locate<'_>) -> Summary {
    let FusedGraph { graph, fused, .. } = made[0].1.of;
    let arrays = Arrays::new(graph, fused);
    let group = |(i, group): (usize, &Group)| {
        let kernels: Vec<&(Schedule, VariantSummary)> =
            made.iter().map(|(_, made)| &made.kernels[i]).collect();
        group_summary(graph, &arrays, (i, group), &kernels)
    };
    let boundary = |node: NodeId, (value, array): (Text, u16), reason: &Reason| {
        let (line, column) = locate(graph.node(node).span);
        Boundary { value, array, reason: reason_text(graph, reason), line, column }
    };
    let stored = fused.boundaries.iter().map(|(&node, reason)| {
        boundary(node, (value_name(graph, node).into(), arrays.loads[&Load::Stored(node)]), reason)
    });
    let apart = fused.apart.iter().filter(|(_, reason)| **reason != Reason::Off).map(|(&i, reason)| {
        boundary(graph.outputs[i].node, (result_name(graph, i), arrays.outputs[&i]), reason)
    });
    Summary {
        ops: unfused.groups.len() as u32,
        unfused_bytes: all_bytes(graph, unfused),
        math: graph.math,
        groups: fused.groups.iter().enumerate().map(group).collect(),
        boundaries: stored.chain(apart).collect(),
        programs: made.iter().map(|&(program, _)| program as u16).collect(),
        others: Vec::new().into(),
        arrays: arrays.all.into(),
    }
}

/// Arrays that kernels read and write.
struct Arrays {
    all: Vec<Array>,
    /// Number of the array of each load.
    loads: BTreeMap<Load, u16>,
    /// Number of the array of each output, by position in the graph's outputs.
    outputs: BTreeMap<usize, u16>,
}

impl Arrays {
    fn new(graph: &Graph, fused: &Grouping) -> Arrays {
        let mut arrays = Arrays { all: Vec::new(), loads: BTreeMap::new(), outputs: BTreeMap::new() };
        for &load in fused.groups.iter().flat_map(|group| &group.loads) {
            if let Load::Param(param) = load
                && !arrays.loads.contains_key(&load)
            {
                let axes = graph.param(param).kind.axes().map_or(&[][..], Vec::as_slice);
                let (name, dtype) = (load_name(graph, load).into(), load_dtype(graph, load));
                let number = arrays.push(graph, name, (dtype, axes), ArrayKind::Param);
                arrays.loads.insert(load, number);
            }
        }
        for store in fused.groups.iter().flat_map(|group| &group.stores) {
            arrays.add_store(graph, store);
        }
        arrays
    }

    fn add_store(&mut self, graph: &Graph, store: &Store) {
        let dtype = graph.node(store.node).dtype;
        let (name, kind) = match store.output {
            Some(i) => (result_name(graph, i), output_kind(graph, i)),
            None => (value_name(graph, store.node).into(), ArrayKind::Temporary),
        };
        // Readers see a result with its declared dims.
        let axes = store.output.map_or(&store.order, |i| &graph.outputs[i].axes);
        let number = self.push(graph, name, (dtype, axes), kind);
        self.loads.entry(Load::Stored(store.node)).or_insert(number);
        if let Some(i) = store.output {
            self.outputs.insert(i, number);
        }
    }

    fn push(&mut self, graph: &Graph, name: Text, (dtype, axes): (DType, &[AxisId]), kind: ArrayKind) -> u16 {
        let parts = graph.parts(axes).into_iter().collect();
        let bytes = collect_terms(graph, std::iter::once((parts, dtype)));
        let shape = format!("{dtype}{}", dims(graph, axes)).into();
        self.all.push(Array { name, shape, bytes, kind });
        self.all.len() as u16 - 1
    }
}

fn output_kind(graph: &Graph, i: usize) -> ArrayKind {
    let fresh = |i: &usize| graph.outputs[*i].dest == Dest::Fresh;
    if fresh(&i) { ArrayKind::Returned((0..i).filter(fresh).count() as u16) } else { ArrayKind::InPlace }
}

/// Formats dims as users write them.
fn dims(graph: &Graph, axes: &[AxisId]) -> String {
    let dim = |&id: &AxisId| {
        let axis = graph.axis(id);
        match axis.extent.as_const() {
            Some(extent) if axis.name != extent.to_string() => format!("{} = {extent}", axis.name),
            Some(_) | None => axis.name.to_string(),
        }
    };
    format!("[{}]", axes.iter().map(dim).collect::<Vec<_>>().join(", "))
}

fn group_summary(
    graph: &Graph,
    arrays: &Arrays,
    (i, group): (usize, &Group),
    kernels: &[&(Schedule, VariantSummary)],
) -> GroupSummary {
    let ops = group.nodes.iter().filter(|&&id| is_op(graph, graph.node(id)));
    let names = group.order.iter().chain(&group.cols).map(|&axis| &*graph.axis(axis).name);
    let loads = group.loads.iter().map(|load| arrays.loads[load]);
    let stores = group.stores.iter().map(|store| match store.output {
        Some(output) => arrays.outputs[&output],
        None => arrays.loads[&Load::Stored(store.node)],
    });
    // The arrays that the group reads come before those that it writes.
    let bytes = traffic(graph, group).map(|array| collect_terms(graph, std::iter::once(array)));
    let moved = loads.chain(stores).zip(bytes).map(|(array, bytes)| Traffic { array, bytes });
    let mut reads: Vec<Traffic> = moved.collect();
    let writes = reads.split_off(group.loads.len());
    let schedule = kernels[0].0;
    GroupSummary {
        kernel: kernel_name(graph, i).into(),
        schedule: schedule.name().into(),
        hero: hero(graph, group, schedule).into(),
        ops: ops.map(|&id| Text::from(value_name(graph, id))).collect(),
        space: format!("[{}]", names.collect::<Vec<_>>().join(", ")).into(),
        reads: reads.into(),
        writes: writes.into(),
        variants: kernels.iter().map(|(_, configs)| configs.clone()).collect(),
        products: products::classes(graph, group).into_iter().map(Text::from).collect(),
    }
}

/// Returns the title of a kernel: `row reduction along D: max, sum`, with the global reductions before it.
fn hero(graph: &Graph, group: &Group, schedule: Schedule) -> String {
    let looped = |id: &&NodeId| !graph.looped_axes(**id).is_empty();
    let of_all = group.of_all(graph);
    let (before, reduces): (Vec<NodeId>, Vec<NodeId>) =
        group.nodes.iter().filter(looped).partition(|id| of_all.contains(id));
    if reduces.is_empty() {
        return schedule.name().into();
    }
    if let Some(attention) = Attention::of(graph, group) {
        return products::title_of_attention(graph, group, &attention);
    }
    if let Some(product) = Product::of(graph, group) {
        return products::title(graph, &product);
    }
    let names = |ids: &[NodeId]| {
        let mut names: Vec<String> = Vec::new();
        for name in ids.iter().map(|&id| value_name(graph, id)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(", ")
    };
    let along = |ids: &[NodeId]| {
        let axes = ids.iter().map(|&id| graph.looped_axes(id)).fold(AxisSet::EMPTY, AxisSet::union);
        let axes = group.order.iter().chain(&group.cols).filter(|&&axis| axes.contains(axis));
        axes.map(|&axis| &*graph.axis(axis).name).collect::<Vec<_>>().join(", ")
    };
    let hero = format!("{} reduction along {}: {}", schedule.name(), along(&reduces), names(&reduces));
    match before.as_slice() {
        [] => hero,
        before => format!("{hero}, after {} along {}", names(before), along(before)),
    }
}
