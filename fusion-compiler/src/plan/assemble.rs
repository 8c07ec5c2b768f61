//! Groups → plan: the memory of each value.
//!
//! Invariant: a slot means the same memory in the programs of all targets. A parameter is overwritten in
//! place on all targets or on none.

use std::collections::{BTreeMap, BTreeSet};

use super::FusedGraph;
use crate::fuse::{Group, Grouping, Load, Reason, Store};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::{self, Access, AxisId, AxisSet, Graph, NodeId, NodeKind, ParamId};
use crate::ir::kernel::BufferId;
use crate::ir::op::Op;
use crate::ir::plan::{
    Condition, Dest, Dim, Output, Param, ParamKind, Program, Slot, SplitDim, Step, Temporary, Text, Variant,
};
use crate::schedule::contraction::{Partials, TilePartials};
use crate::schedule::{Operand, Scratch, Work};

/// Memory slots of all stored values.
pub struct SlotAssignment<'g> {
    graph: &'g Graph,
    /// Number of the output tensor, by position in the graph's outputs. In-place outputs without a tensor of
    /// their own have none.
    outputs: Vec<Option<u16>>,
}

impl<'g> SlotAssignment<'g> {
    /// Decides which parameters are overwritten in place, for all targets together.
    pub fn new<'f>(graph: &'g Graph, fused: impl IntoIterator<Item = &'f Grouping>) -> SlotAssignment<'g> {
        let double_buffered: BTreeSet<ParamId> =
            fused.into_iter().flat_map(|fused| fused.double_buffered.clone()).collect();
        let mut made = 0;
        let outputs = graph.outputs.iter().map(|output| {
            let in_place =
                matches!(output.dest, graph::Dest::InPlace(param) if !double_buffered.contains(&param));
            (!in_place).then(|| {
                made += 1;
                made - 1
            })
        });
        SlotAssignment { outputs: outputs.collect(), graph }
    }

    fn output(&self, i: usize) -> Slot {
        match (self.outputs[i], self.graph.outputs[i].dest) {
            (Some(made), _) => Slot::Output(made),
            (None, graph::Dest::InPlace(param)) => Slot::Param(param.0),
            (None, graph::Dest::Fresh) => unreachable!("a returned value has a tensor of its own"),
        }
    }

    /// Returns the tensors that a call allocates.
    pub fn plan_outputs(&self) -> Vec<Output> {
        let made = self.graph.outputs.iter().zip(&self.outputs).filter(|(_, made)| made.is_some());
        made.map(|(output, _)| Output {
            dtype: self.graph.node(output.node).dtype,
            dims: dims(self.graph, &output.axes).into(),
            any_shape: self.graph.any_shape,
            dest: match output.dest {
                graph::Dest::Fresh => Dest::Returned,
                graph::Dest::InPlace(ParamId(param)) => Dest::Replaces(param),
            },
        })
        .collect()
    }
}

/// Returns the parameters that the caller passes. The caller passes nothing for a view.
pub fn params(graph: &Graph) -> Vec<Param> {
    let kind = |kind: &graph::ParamKind| match kind {
        graph::ParamKind::Tensor { access, .. } if graph.any_shape => {
            Some(ParamKind::AnyShape { access: *access })
        }
        graph::ParamKind::Tensor { axes, access } => {
            Some(ParamKind::Tensor { access: *access, dims: dims(graph, axes).into() })
        }
        graph::ParamKind::Scalar => Some(ParamKind::Scalar),
        graph::ParamKind::Dim(symbol) => Some(ParamKind::Dim(*symbol)),
        graph::ParamKind::View { .. } => None,
    };
    let param = |param: &graph::Param| {
        let kind = kind(&param.kind)?;
        Some(Param { name: param.name.clone().into(), dtype: param.dtype, kind })
    };
    graph.params.iter().filter_map(param).collect()
}

/// Returns the dims whose extent is the product of other extents.
pub fn splits(graph: &Graph) -> Vec<SplitDim> {
    let split = |split: &graph::SplitDim| {
        let mut parts = dims(graph, &split.parts);
        for (part, axis) in parts.iter_mut().zip(&split.parts) {
            if split.library.as_ref().is_some_and(|library| library.unnamed.contains(*axis)) {
                part.name = Text::default();
            }
        }
        SplitDim {
            whole: dims(graph, &[split.whole]).remove(0),
            parts: parts.into(),
            library: split.library.as_ref().map(|library| library.function.clone().into()),
        }
    };
    graph.splits.iter().map(split).collect()
}

/// Returns the dims of these axes.
pub fn dims(graph: &Graph, axes: &[AxisId]) -> Vec<Dim> {
    axes.iter().map(|&axis| graph.axis(axis).clone()).collect()
}

/// Builds the program of a target. `compile` returns the variants of a group.
pub fn program<C: Clone>(
    memory: &SlotAssignment<'_>,
    of: &FusedGraph,
    mut compile: impl FnMut(&Work<'_>) -> (Vec<Variant<C>>, Vec<Scratch>),
) -> Program<C> {
    let &FusedGraph { target, ref facts, ref graph, ref fused } = of;
    let mut slots: BTreeMap<NodeId, (Slot, Vec<AxisId>)> = BTreeMap::new();
    let mut temporaries = Vec::new();
    for (i, group) in fused.groups.iter().enumerate() {
        for store in &group.stores {
            let slot = match store.output {
                Some(output) => memory.output(output),
                None => {
                    temporaries.push(temporary(graph, fused, i, store));
                    Slot::Temp(temporaries.len() as u16 - 1)
                }
            };
            slots.entry(store.node).or_insert((slot, store.order.clone()));
        }
    }
    let names: Vec<String> = (0..fused.groups.len()).map(|i| kernel_name(graph, i)).collect();
    let work = |i: usize, temporaries: usize| Work {
        temporaries: temporaries as u16,
        ..work(memory, (graph, &fused.groups[i]), &names[i], &slots)
    };
    // Partial results that the tiles of a group store, and the group that reads them.
    let mut partials: BTreeMap<usize, (TilePartials, Vec<Condition>)> = BTreeMap::new();
    let mut steps = Vec::new();
    for i in 0..fused.groups.len() {
        let own = work(i, temporaries.len());
        let partials_for = |reader: usize| {
            TilePartials::of(&own, &work(reader, temporaries.len()), facts).map(|partials| (reader, partials))
        };
        let stored = reductions_of(fused, i).find_map(partials_for);
        // Nobody else may need the elements.
        let alone = stored.as_ref().and_then(|(reader, _)| {
            let (_, partials) = partials_for(*reader).filter(|_| is_read_by(fused, i, *reader))?;
            partials.alone(&own, facts)
        });
        let is_alone = alone.is_some();
        let stored = stored.map(|(reader, partials)| (reader, alone.unwrap_or(partials)));
        let mut scratch = |scratch: &[Scratch], last: usize| {
            let (first, last) = (i as u16, last as u16);
            let within = |scratch: &Scratch| {
                let (dtype, len) = (scratch.dtype, scratch.clone().room(facts));
                Temporary { dtype, len, first, last }
            };
            temporaries.extend(scratch.iter().map(within));
            temporaries.len() as u16
        };
        let role = match (&stored, partials.get(&i)) {
            (Some((_, partials)), _) => Some(Partials::Stores(partials)),
            (None, Some((partials, when))) => Some(Partials::Reads(partials, when)),
            (None, None) => None,
        };
        let first = stored.as_ref().map_or(own.temporaries, |(reader, of)| scratch(of.scratch(), *reader));
        let (mut variants, made) = compile(&Work { temporaries: first, partials: role, ..own });
        let last = scratch(&made, i);
        if let Some((reader, of)) = stored
            && let Some(when) = when_stored(&of, &variants)
        {
            if is_alone {
                // Other calls store elements, and no partial results.
                variants = with_conditions(variants, &when, &of);
                let (plain, made) = compile(&Work { temporaries: last, ..work(i, 0) });
                scratch(&made, i);
                let is_reached = |variant: &Variant<C>| !when.iter().all(|of| of.follows(&variant.when));
                variants.extend(plain.into_iter().filter(is_reached));
            }
            partials.insert(reader, (of, when));
        }
        steps.push(Step { variants: variants.into() });
    }
    Program { target, temporaries: temporaries.into(), steps: steps.into() }
}

/// Returns the groups after a group that read what it stores, and else only what is known before it ends.
fn reductions_of(fused: &Grouping, number: usize) -> impl Iterator<Item = usize> {
    let (before, after) = fused.groups.split_at(number + 1);
    let is_known = |load: &Load| match load {
        Load::Stored(node) => before.iter().any(|group| group.stores.iter().any(|store| store.node == *node)),
        Load::Param(_) => true,
    };
    let readers = after.iter().enumerate().filter(move |(_, group)| group.loads.iter().all(is_known));
    readers.map(move |(i, _)| number + 1 + i)
}

/// Returns true if only this group reads the values that another one stores, none of which is a result.
fn is_read_by(fused: &Grouping, writer: usize, reader: usize) -> bool {
    let is_own = |store: &Store| {
        let readers = fused.groups.iter().enumerate();
        let mut others = readers.filter(|(number, _)| *number != reader);
        store.output.is_none() && !others.any(|(_, group)| group.loads.contains(&Load::Stored(store.node)))
    };
    fused.groups[writer].stores.iter().all(is_own)
}

/// Returns the variants that store partial results, each for calls with these conditions.
fn with_conditions<C: Clone>(
    variants: Vec<Variant<C>>,
    when: &[Condition],
    of: &TilePartials,
) -> Vec<Variant<C>> {
    let storing = variants.into_iter().take_while(|variant| stores_partials(of, variant));
    let with = |variant: Variant<C>| {
        let more = when.iter().filter(|condition| !variant.when.contains(condition)).cloned();
        let all: Vec<Condition> = variant.when.iter().cloned().chain(more).collect();
        Variant { when: all.into(), ..variant }
    };
    storing.map(with).collect()
}

/// Returns true if a variant stores partial results.
fn stores_partials<C: Clone>(of: &TilePartials, variant: &Variant<C>) -> bool {
    let mut buffers = variant.launches.iter().flat_map(|launch| launch.buffers.iter());
    buffers.any(|buffer| of.scratch_of(buffer.slot).is_some())
}

/// Returns conditions under which a call stores partial results: those of the last variant that does so.
fn when_stored<C: Clone>(of: &TilePartials, variants: &[Variant<C>]) -> Option<Vec<Condition>> {
    let count = variants.iter().take_while(|variant| stores_partials(of, variant)).count();
    Some(variants[..count].last()?.when.to_vec())
}

/// Returns the name of a kernel, in plain ASCII: other languages do not accept Rust's raw identifiers.
pub(crate) fn kernel_name(graph: &Graph, i: usize) -> String {
    let plain: String = graph.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("fuse_{}_{i}", plain.trim_matches('_'))
}

fn temporary(graph: &Graph, fused: &Grouping, writer: usize, store: &Store) -> Temporary {
    let reads = |group: &Group| group.loads.contains(&Load::Stored(store.node));
    let last = fused.groups.iter().rposition(reads).unwrap_or(writer);
    Temporary {
        dtype: graph.node(store.node).dtype,
        len: DimExpr::product(store.order.iter().map(|&axis| &graph.axis(axis).extent)),
        first: writer as u16,
        last: last as u16,
    }
}

fn work<'g>(
    memory: &SlotAssignment<'_>,
    (graph, group): (&'g Graph, &'g Group),
    name: &'g str,
    slots: &BTreeMap<NodeId, (Slot, Vec<AxisId>)>,
) -> Work<'g> {
    let mut operands: Vec<Operand> = Vec::new();
    let mut loads = BTreeMap::new();
    for &load in &group.loads {
        let (slot, axes) = match load {
            Load::Param(param) => {
                let axes = graph.param(param).kind.axes().cloned().unwrap_or_default();
                (Slot::Param(graph.memory_of(param).0), axes)
            }
            Load::Stored(node) => slots[&node].clone(),
        };
        loads.insert(load, BufferId(operands.len() as u16));
        let (name, dtype) = (load_name(graph, load), load_dtype(graph, load));
        let moved = group.moved.contains_key(&load);
        operands.push(Operand { moved, ..operand(graph, slot, name, dtype, Access::Read, axes) });
    }
    let mut stores = Vec::new();
    for store in &group.stores {
        let slot = store.output.map_or_else(|| slots[&store.node].0, |output| memory.output(output));
        let read = operands.iter().position(|operand| operand.slot == slot);
        if let Some(read) = read {
            operands[read].access = Access::ReadWrite;
        } else {
            let (dtype, name) = (graph.node(store.node).dtype, store_name(graph, slot, store.node));
            operands.push(operand(graph, slot, name, dtype, Access::Write, store.order.clone()));
        }
        stores.push(BufferId(read.unwrap_or(operands.len() - 1) as u16));
    }
    Work { graph, group, name, operands, loads, stores, temporaries: 0, partials: None }
}

fn operand(
    graph: &Graph,
    slot: Slot,
    name: String,
    dtype: DType,
    access: Access,
    axes: Vec<AxisId>,
) -> Operand {
    // An axis of extent 1 moves no element, but the order of the axes stays: it is part of the tensor's type.
    debug_assert!(axes.iter().all(|axis| usize::from(axis.0) < graph.axes.len()), "axes of the graph");
    Operand { slot, name, dtype, access, axes, fits_uniform: false, moved: false, interleave_axis: None }
}

/// Returns the name of a load.
pub(crate) fn load_name(graph: &Graph, load: Load) -> String {
    match load {
        Load::Param(param) => graph.param(param).name.clone(),
        Load::Stored(node) => value_name(graph, node),
    }
}

/// Returns the dtype of a load's elements.
pub(crate) fn load_dtype(graph: &Graph, load: Load) -> DType {
    match load {
        Load::Param(param) => graph.param(param).dtype,
        Load::Stored(node) => graph.node(node).dtype,
    }
}

fn store_name(graph: &Graph, slot: Slot, node: NodeId) -> String {
    match slot {
        Slot::Param(param) => graph.param(ParamId(param)).name.clone(),
        Slot::Output(_) => "out".into(),
        Slot::Temp(_) => value_name(graph, node),
    }
}

/// Returns a name for a value: that of its parameter or operation.
pub(crate) fn value_name(graph: &Graph, id: NodeId) -> String {
    match &graph.node(id).kind {
        NodeKind::Input(param) | NodeKind::Scalar(param) => graph.param(*param).name.clone(),
        // Users wrote a plain division.
        NodeKind::Apply(Op::DivNearOne) => "div".into(),
        NodeKind::Apply(op) => match op.info().name {
            "" => format!("{op:?}").to_lowercase(),
            name => name.into(),
        },
        NodeKind::Cast => match graph.node(id) {
            node if node.dtype != graph.node(node.args[0]).dtype => format!("as {}", node.dtype),
            node if node.axes == graph.node(node.args[0]).axes => "copy".into(),
            _ => "broadcast".into(),
        },
        NodeKind::Reduce(reduce, _) => reduce.name().into(),
        NodeKind::Literal(value) => value.to_string(),
        NodeKind::Coord(axis) => format!("index({})", graph.axis(*axis).name),
        NodeKind::Extent(extent) => extent.display(&graph.symbols).to_string(),
        NodeKind::Gather(..) => "at".into(),
    }
}

/// Returns the name of a result: that of the parameter it replaces, or `result`.
pub(crate) fn result_name(graph: &Graph, i: usize) -> Text {
    match graph.outputs[i].dest {
        graph::Dest::InPlace(param) => graph.param(param).name.clone().into(),
        graph::Dest::Fresh => "result".into(),
    }
}

/// Returns the quoted names of these axes.
fn names_of(graph: &Graph, axes: AxisSet) -> String {
    let names: Vec<String> = axes.iter().map(|axis| format!("`{}`", graph.axis(axis).name)).collect();
    names.join(", ")
}

/// Describes a reason in the words of users.
pub(crate) fn reason_text(graph: &Graph, reason: &Reason) -> Text {
    match reason {
        Reason::Off => "fusion is off for this function".into(),
        Reason::Shared => "several kernels need it, and reading it costs less than computing it again".into(),
        Reason::Layout(axis) => {
            let name = &graph.axis(*axis).name;
            format!("it needs all of `{name}`, and the kernel that uses it writes `{name}` elsewhere than innermost").into()
        }
        Reason::Repeated(axes) => {
            let names = names_of(graph, *axes);
            format!("the kernel that uses it would make it again for each {names}, and reading it costs less").into()
        }
        Reason::Rows(axes) => {
            let names = names_of(graph, *axes);
            format!("its consumer does not iterate over whole rows along {names}, so it is a separate kernel")
                .into()
        }
        Reason::Moved => "index operations need it at other places than its own, and reading it there costs less than computing it again".into(),
        Reason::Order => "no result before has these dims in this order".into(),
        Reason::Product => "a matrix product has a kernel of its own".into(),
        Reason::Waits => {
            "it needs what another kernel makes of the results that it would be written with".into()
        }
        Reason::Buffers(needed, max) => {
            format!("together they need {needed} buffers, and a kernel can bind {max}").into()
        }
    }
}

/// Returns the bytes that all groups read and write.
pub(crate) fn all_bytes(graph: &Graph, fused: &Grouping) -> DimExpr {
    collect_terms(graph, fused.groups.iter().flat_map(|group| traffic(graph, group)))
}

/// Returns the axes and the dtype of each array that a group reads or writes.
pub fn traffic<'g>(graph: &'g Graph, group: &'g Group) -> impl Iterator<Item = (AxisSet, DType)> + 'g {
    let loads = group.loads.iter().map(|load| {
        let (own, dtype) = match *load {
            Load::Param(param) => {
                let param = graph.param(param);
                (param.kind.axes().into_iter().flatten().copied().collect(), param.dtype)
            }
            Load::Stored(node) => (graph.node(node).axes, graph.node(node).dtype),
        };
        (group.moved.get(load).copied().unwrap_or(own), dtype)
    });
    let stores = group
        .stores
        .iter()
        .map(|store| (store.order.iter().copied().collect(), graph.node(store.node).dtype));
    loads.chain(stores)
}

/// Adds up the bytes of arrays. Arrays of one shape are summed first, so that the formula reads
/// `12*N*D + 4*D`.
pub(crate) fn collect_terms(graph: &Graph, arrays: impl Iterator<Item = (AxisSet, DType)>) -> DimExpr {
    let mut terms: Vec<(AxisSet, i64)> = Vec::new();
    for (axes, dtype) in arrays {
        match terms.iter_mut().find(|(known, _)| *known == axes) {
            Some((_, bytes)) => *bytes += dtype.size() as i64,
            None => terms.push((axes, dtype.size() as i64)),
        }
    }
    let term = |(axes, bytes): &(AxisSet, i64)| {
        let extents: Vec<&DimExpr> = axes.iter().map(|axis| &graph.axis(axis).extent).collect();
        let fixed: i64 = extents.iter().filter_map(|extent| extent.as_const()).product();
        let symbols = extents.into_iter().filter(|extent| extent.as_const().is_none());
        symbols.fold(DimExpr::constant(bytes * fixed), |product, extent| product * extent.clone())
    };
    terms.iter().map(term).fold(DimExpr::constant(0), |sum, term| sum + term)
}
