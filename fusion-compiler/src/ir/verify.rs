//! What must hold of a graph between passes.
//!
//! Invariant: whatever a user writes, a graph that was given out passes; a failure is a mistake of ours.

use super::dtype::{Const, DType};
use super::graph::{
    AXES_MAX, Access, AxisId, AxisSet, Dest, Graph, Node, NodeId, NodeKind, Output, Param, ParamId, ParamKind,
};
use super::ops::Typing;

/// Checks a graph: order, arities, dtypes and axes of the nodes; dtypes and axes of the outputs.
///
/// # Errors
/// The first thing that does not hold, with the number of its node.
pub fn graph(graph: &Graph) -> Result<(), String> {
    ensure(graph.axes.len() <= AXES_MAX, || format!("{} axes", graph.axes.len()))?;
    for axis in &graph.axes {
        let known = axis.extent.symbols().all(|sym| usize::from(sym) < graph.symbols.len());
        ensure(known, || format!("axis {}: unknown symbol in its extent", axis.name))?;
    }
    for param in &graph.params {
        check_param(graph, param).map_err(|what| format!("parameter {}: {what}", param.name))?;
    }
    for (id, node) in graph.iter() {
        check_node(graph, id, node).map_err(|what| format!("{id}: {what}"))?;
    }
    for (i, output) in graph.outputs.iter().enumerate() {
        check_output(graph, output).map_err(|what| format!("output {i}: {what}"))?;
    }
    let dests: Vec<Option<ParamId>> = graph.outputs.iter().map(|output| in_place(output.dest)).collect();
    // `None`, a returned output, comes last; in-place ones are in the order of their parameters, once each.
    let ordered = dests.windows(2).all(|pair| match pair {
        [Some(first), Some(second)] => first < second,
        [None, Some(_)] => false,
        _ => true,
    });
    ensure(ordered, || String::from("outputs are out of order"))
}

fn in_place(dest: Dest) -> Option<ParamId> {
    match dest {
        Dest::Fresh => None,
        Dest::InPlace(param) => Some(param),
    }
}

fn check_param(graph: &Graph, param: &Param) -> Result<(), String> {
    match &param.kind {
        ParamKind::Tensor { axes, access } => {
            ensure(*access != Access::Write, || String::from("only written"))?;
            ensure(param.dtype != DType::Index, || String::from("a tensor of positions"))?;
            distinct(graph, axes).map(drop)
        }
        ParamKind::Scalar => ensure(param.dtype != DType::Index, || String::from("a scalar position")),
        ParamKind::Dim(sym) => {
            ensure(usize::from(*sym) < graph.symbols.len(), || String::from("unknown symbol"))
        }
    }
}

/// The set of axes that are all known and different.
fn distinct(graph: &Graph, axes: &[AxisId]) -> Result<AxisSet, String> {
    let mut set = AxisSet::EMPTY;
    for &axis in axes {
        ensure(usize::from(axis.0) < graph.axes.len(), || format!("unknown axis {}", axis.0))?;
        ensure(!set.contains(axis), || format!("axis {} twice", graph.axis(axis).name))?;
        set = set.with(axis);
    }
    Ok(set)
}

fn check_node(graph: &Graph, id: NodeId, node: &Node) -> Result<(), String> {
    let ordered = node.args.iter().all(|arg| arg.0 < id.0);
    ensure(ordered, || String::from("an operand is not above it"))?;
    let args: Vec<&Node> = node.args.iter().map(|&arg| graph.node(arg)).collect();
    let arity = match &node.kind {
        NodeKind::Input(_)
        | NodeKind::Scalar(_)
        | NodeKind::Literal(_)
        | NodeKind::Coord(_)
        | NodeKind::Extent(_) => 0,
        NodeKind::Apply(op) => op.info().arity,
        NodeKind::Cast | NodeKind::Reduce(..) | NodeKind::At(..) => 1,
    };
    ensure(args.len() == arity, || format!("{} operands, takes {arity}", args.len()))?;
    ensure(node.dtype != DType::Index, || String::from("a position"))?;
    let union = args.iter().fold(AxisSet::EMPTY, |axes, arg| axes.union(arg.axes));
    let expect = match &node.kind {
        NodeKind::Input(param) => input(graph, *param, node)?,
        NodeKind::Scalar(param) => scalar(graph, *param, node)?,
        NodeKind::Literal(value) => literal(*value, node)?,
        NodeKind::Coord(axis) => {
            ensure(node.dtype == DType::I32, || String::from("a coordinate is `i32`"))?;
            distinct(graph, &[*axis])?
        }
        NodeKind::Extent(extent) => {
            let known = extent.symbols().all(|sym| usize::from(sym) < graph.symbols.len());
            ensure(known, || String::from("unknown symbol"))?;
            ensure(node.dtype != DType::Bool, || String::from("a `bool` extent"))?;
            AxisSet::EMPTY
        }
        NodeKind::Apply(op) => {
            operands(op.info().typing, &args, node.dtype)?;
            union
        }
        // A cast may widen: its operand is the same along the axes it lacks.
        NodeKind::Cast if node.axes.contains_all(union) => node.axes,
        NodeKind::Cast => union,
        NodeKind::Reduce(_, axes) => reduced(&args, union, *axes, node.dtype)?,
        NodeKind::At(axis, position) => {
            let extent = graph.axes.get(usize::from(axis.0)).and_then(|axis| axis.extent.as_const());
            ensure(extent.is_none_or(|extent| (0..extent).contains(position)), || {
                format!("position {position}")
            })?;
            reduced(&args, union, AxisSet::EMPTY.with(*axis), node.dtype)?
        }
    };
    let known = node.axes.iter().all(|axis| usize::from(axis.0) < graph.axes.len());
    ensure(known && node.axes == expect, || String::from("its axes do not follow from its operands"))
}

fn input(graph: &Graph, param: ParamId, node: &Node) -> Result<AxisSet, String> {
    match graph.params.get(usize::from(param.0)).map(|param| (&param.kind, param.dtype)) {
        Some((ParamKind::Tensor { axes, .. }, dtype)) if dtype == node.dtype => distinct(graph, axes),
        Some(_) | None => Err(String::from("no such tensor")),
    }
}

fn scalar(graph: &Graph, param: ParamId, node: &Node) -> Result<AxisSet, String> {
    match graph.params.get(usize::from(param.0)).map(|param| (&param.kind, param.dtype)) {
        Some((ParamKind::Scalar, dtype)) if dtype == node.dtype => Ok(AxisSet::EMPTY),
        Some(_) | None => Err(String::from("no such scalar")),
    }
}

fn literal(value: Const, node: &Node) -> Result<AxisSet, String> {
    let fits = match value {
        Const::Float(_) => node.dtype.is_float(),
        Const::Int(x) => node.dtype.is_int() && super::dtype::wrap(node.dtype, x) == x,
        Const::Bool(_) => node.dtype == DType::Bool,
    };
    ensure(fits, || format!("{value} is no {}", node.dtype)).map(|()| AxisSet::EMPTY)
}

fn operands(typing: Typing, args: &[&Node], result: DType) -> Result<(), String> {
    let dtypes: Vec<DType> = args.iter().map(|arg| arg.dtype).collect();
    let (condition, rest) = match typing {
        Typing::Select => (dtypes.first(), &dtypes[1..]),
        Typing::Number | Typing::Float | Typing::Int | Typing::Bits | Typing::Compare | Typing::Test => {
            (None, dtypes.as_slice())
        }
    };
    ensure(condition.is_none_or(|&dtype| dtype == DType::Bool), || String::from("a condition is `bool`"))?;
    ensure(rest.windows(2).all(|pair| pair[0] == pair[1]), || format!("operands of {dtypes:?}"))?;
    ensure(rest.iter().all(|&dtype| typing.accepts(dtype)), || format!("{typing:?} of {dtypes:?}"))?;
    ensure(typing.result(&dtypes) == result, || format!("{result} from {dtypes:?}"))
}

/// The axes that are left when some are combined or fixed.
fn reduced(args: &[&Node], has: AxisSet, gone: AxisSet, dtype: DType) -> Result<AxisSet, String> {
    ensure(!gone.is_empty() && has.contains_all(gone), || String::from("the operand lacks the axes"))?;
    ensure(args.iter().all(|arg| arg.dtype == dtype), || String::from("its dtype is not its operand's"))?;
    Ok(has.minus(gone))
}

fn check_output(graph: &Graph, output: &Output) -> Result<(), String> {
    ensure((output.node.0 as usize) < graph.nodes.len(), || String::from("no such node"))?;
    let node = graph.node(output.node);
    let axes = distinct(graph, &output.axes)?;
    ensure(axes == node.axes, || String::from("its axes are not its node's"))?;
    let Some(id) = in_place(output.dest) else { return Ok(()) };
    let param = graph.params.get(usize::from(id.0)).ok_or_else(|| String::from("no such parameter"))?;
    match &param.kind {
        ParamKind::Tensor { axes, access: Access::ReadWrite } => {
            ensure(*axes == output.axes, || String::from("its order is not its parameter's"))?;
            ensure(param.dtype == node.dtype, || format!("{} in {}", node.dtype, param.dtype))
        }
        ParamKind::Tensor { .. } | ParamKind::Scalar | ParamKind::Dim(_) => {
            Err(format!("{} cannot be written", param.name))
        }
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

#[cfg(test)]
mod tests {
    use super::super::dim::DimExpr;
    use super::super::graph::{Axis, Reduce, SpanId};
    use super::super::ops::Op;
    use super::*;

    /// `x[N, C = 3]` and the exponential of its sum over C.
    fn sample() -> Graph {
        let mut sample = Graph::new("sample");
        sample.symbols.push(String::from("N"));
        let extents = [("N", DimExpr::sym(0)), ("C", DimExpr::constant(3))];
        sample.axes = extents.map(|(name, extent)| Axis { name: name.into(), extent }).into();
        let axes = vec![AxisId(0), AxisId(1)];
        let kind = ParamKind::Tensor { axes: axes.clone(), access: Access::Read };
        sample.params.push(Param { name: String::from("x"), dtype: DType::F32, kind, span: SpanId(0) });
        let node = |kind, args: &[NodeId], axes| Node {
            kind,
            args: args.to_vec(),
            dtype: DType::F32,
            axes,
            span: SpanId(0),
        };
        let x = sample.push(node(NodeKind::Input(ParamId(0)), &[], axes.into_iter().collect()));
        let (n, c) = (AxisSet::EMPTY.with(AxisId(0)), AxisSet::EMPTY.with(AxisId(1)));
        let sum = sample.push(node(NodeKind::Reduce(Reduce::Sum, c), &[x], n));
        let exp = sample.apply(Op::Exp, &[sum], SpanId(0));
        sample.outputs.push(Output { node: exp, axes: vec![AxisId(0)], dest: Dest::Fresh });
        sample
    }

    fn check(spoil: impl FnOnce(&mut Graph), expect: Result<(), &str>) {
        let mut spoilt = sample();
        spoil(&mut spoilt);
        assert_eq!(graph(&spoilt), expect.map_err(String::from), "{spoilt:?}");
    }

    #[test]
    fn accepts_a_graph_and_refuses_spoilt_ones() {
        check(|_| (), Ok(()));
        check(|g| g.nodes[1].args = vec![NodeId(2)], Err("%1: an operand is not above it"));
        check(|g| g.nodes[2].args.clear(), Err("%2: 0 operands, takes 1"));
        check(|g| g.nodes[2].dtype = DType::I32, Err("%2: i32 from [F32]"));
        check(|g| g.nodes[2].axes = AxisSet::EMPTY, Err("%2: its axes do not follow from its operands"));
        check(|g| g.nodes[2].kind = NodeKind::Apply(Op::Not), Err("%2: Bits of [F32]"));
        check(|g| g.nodes[0].kind = NodeKind::Scalar(ParamId(0)), Err("%0: no such scalar"));
        check(|g| g.nodes[0].kind = NodeKind::Input(ParamId(1)), Err("%0: no such tensor"));
        check(|g| g.nodes[1].kind = NodeKind::At(AxisId(1), 3), Err("%1: position 3"));
        check(|g| g.outputs[0].axes = vec![AxisId(1)], Err("output 0: its axes are not its node's"));
        check(|g| g.outputs[0].node = NodeId(9), Err("output 0: no such node"));
        check(|g| g.outputs[0].dest = Dest::InPlace(ParamId(0)), Err("output 0: x cannot be written"));
        check(|g| g.axes[0].extent = DimExpr::sym(1), Err("axis N: unknown symbol in its extent"));
        check(|g| g.nodes[2].kind = NodeKind::Cast, Ok(()));
        check(|g| g.nodes[2].kind = NodeKind::Literal(Const::Int(0)), Err("%2: 1 operands, takes 0"));
    }
}
