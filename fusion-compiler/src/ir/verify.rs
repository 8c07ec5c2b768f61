//! Verifier of Graph IR, which runs between passes.
//!
//! Invariant: every graph that the front end returns passes the verifier, whatever the user wrote. A failure
//! is a bug in the compiler.

use super::dtype::{Const, DType};
use super::graph::{
    AXES_MAX, Access, AxisId, AxisSet, Dest, Graph, Node, NodeId, NodeKind, Output, Param, ParamId,
    ParamKind, Reduce,
};
use super::op::Typing;

/// Verifies the order, arities, dtypes and axes of the nodes, and the dtypes and axes of the outputs.
///
/// # Errors
/// Returns the first violation, with the number of its node.
pub fn graph(graph: &Graph) -> Result<(), String> {
    ensure(graph.axes.len() <= AXES_MAX, || format!("{} axes", graph.axes.len()))?;
    for axis in &graph.axes {
        let known = axis.extent.symbols().all(|sym| usize::from(sym) < graph.symbols.len());
        ensure(known, || format!("axis {}: unknown symbol in its extent", axis.name))?;
    }
    for concat in &graph.concats {
        let mut symbols =
            [&concat.whole].into_iter().chain(concat.parts.iter()).flat_map(|axis| axis.extent.symbols());
        let known = symbols.all(|sym| usize::from(sym) < graph.symbols.len());
        ensure(known, || String::from("a concatenation of unknown extents"))?;
    }
    let fixed = |axis: AxisId| {
        graph.axes.get(usize::from(axis.0)).is_some_and(|axis| axis.extent.as_const().is_some())
    };
    ensure(graph.looped.iter().all(fixed), || String::from("an axis that is not fixed is looped"))?;
    let is_view = |param: &Param| matches!(param.kind, ParamKind::View { .. });
    let ordered = graph.params.windows(2).all(|pair| !is_view(&pair[0]) || is_view(&pair[1]));
    ensure(ordered, || String::from("a view before a parameter"))?;
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
    // Outputs in place (`Some`) come first, in the order of their parameters and once each. Returned ones
    // follow.
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
        ParamKind::View { of, axes } => {
            distinct(graph, axes)?;
            let of = graph.params.get(usize::from(of.0));
            let viewed =
                of.filter(|of| matches!(of.kind, ParamKind::Tensor { .. }) && of.dtype == param.dtype);
            let own = viewed.and_then(|of| of.kind.axes()).ok_or_else(|| String::from("no such tensor"))?;
            ensure(covers(graph, own, axes), || String::from("other extents than its tensor's"))
        }
    }
}

/// Returns true if `axes` have the extents of the axes `own`, or of the parts of a combined axis with such an
/// extent.
///
/// Only extents are compared, because another axis of the same extent may have replaced the original one.
fn covers(graph: &Graph, own: &[AxisId], axes: &[AxisId]) -> bool {
    let Some((&first, rest)) = own.split_first() else { return axes.is_empty() };
    let extent = |axis: AxisId| &graph.axis(axis).extent;
    let alike = (0..graph.axes.len()).map(|i| AxisId(i as u8)).filter(|&axis| extent(axis) == extent(first));
    let candidates = alike.flat_map(|axis| [vec![axis], graph.parts(&[axis])]);
    candidates.into_iter().any(|candidate| {
        let starts = candidate.len() <= axes.len()
            && candidate.iter().zip(axes).all(|(&a, &b)| extent(a) == extent(b));
        starts && covers(graph, rest, &axes[candidate.len()..])
    })
}

/// Returns the set of the axes, all of which must exist and differ.
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
        NodeKind::Cast => 1,
        NodeKind::Reduce(reduce, _) => reduce.arity(),
        NodeKind::Gather(_) => args.len().clamp(2, 3),
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
        // The operand of a cast may be broadcast along axes that it lacks.
        NodeKind::Cast if node.axes.contains_all(union) => node.axes,
        NodeKind::Cast => union,
        NodeKind::Reduce(reduce, axes) => {
            ensure(*reduce != Reduce::Dot || node.dtype.is_float(), || String::from("it is not of floats"))?;
            reduced(&args, union, *axes, node.dtype)?
        }
        NodeKind::Gather(axis) => elements_at(graph, *axis, &args, node.dtype)?,
    };
    let known = node.axes.iter().all(|axis| usize::from(axis.0) < graph.axes.len());
    ensure(known && node.axes == expect, || String::from("its axes do not follow from its operands"))
}

fn input(graph: &Graph, param: ParamId, node: &Node) -> Result<AxisSet, String> {
    match graph.params.get(usize::from(param.0)).map(|param| (&param.kind, param.dtype)) {
        Some((ParamKind::Tensor { axes, .. } | ParamKind::View { axes, .. }, dtype))
            if dtype == node.dtype =>
        {
            distinct(graph, axes)
        }
        Some(_) | None => Err(String::from("no such tensor")),
    }
}

fn scalar(graph: &Graph, param: ParamId, node: &Node) -> Result<AxisSet, String> {
    match graph.params.get(usize::from(param.0)).map(|param| (&param.kind, param.dtype)) {
        Some((ParamKind::Scalar, dtype)) if [dtype, dtype.computed()].contains(&node.dtype) => {
            Ok(AxisSet::EMPTY)
        }
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
        Typing::Number
        | Typing::Float
        | Typing::Int
        | Typing::Bits
        | Typing::Compare
        | Typing::Test
        | Typing::ToBits
        | Typing::Encode
        | Typing::Decode
        | Typing::Double => (None, dtypes.as_slice()),
    };
    ensure(condition.is_none_or(|&dtype| dtype == DType::Bool), || String::from("a condition is `bool`"))?;
    ensure(rest.windows(2).all(|pair| pair[0] == pair[1]), || format!("operands of {dtypes:?}"))?;
    ensure(rest.iter().all(|&dtype| typing.accepts(dtype)), || format!("{typing:?} of {dtypes:?}"))?;
    ensure(typing.result(&dtypes) == result, || format!("{result} from {dtypes:?}"))
}

/// Returns the axes that remain after a reduction or a gather removes some.
fn reduced(args: &[&Node], has: AxisSet, gone: AxisSet, dtype: DType) -> Result<AxisSet, String> {
    ensure(!gone.is_empty() && has.contains_all(gone), || String::from("the operand lacks the axes"))?;
    ensure(args.iter().all(|arg| arg.dtype == dtype), || String::from("its dtype is not its operand's"))?;
    Ok(has.minus(gone))
}

/// Returns the axes of a gather along an axis.
fn elements_at(graph: &Graph, axis: AxisId, args: &[&Node], dtype: DType) -> Result<AxisSet, String> {
    let (of, rest) = (args[0], &args[1..]);
    let dtypes = rest.iter().map(|arg| arg.dtype).zip([DType::I32, DType::Bool]);
    ensure(dtypes.into_iter().all(|(is, wants)| is == wants), || {
        String::from("no coordinate along the axis")
    })?;
    let extent = graph.axes.get(usize::from(axis.0)).and_then(|axis| axis.extent.as_const());
    if let ([Node { kind: NodeKind::Literal(Const::Int(at)), .. }], Some(extent)) = (rest, extent) {
        ensure((0..extent).contains(at), || format!("position {at}"))?;
    }
    let left = reduced(&args[..1], of.axes, AxisSet::EMPTY.with(axis), dtype)?;
    Ok(rest.iter().fold(left, |axes, arg| axes.union(arg.axes)))
}

fn check_output(graph: &Graph, output: &Output) -> Result<(), String> {
    ensure((output.node.0 as usize) < graph.nodes.len(), || String::from("no such node"))?;
    let node = graph.node(output.node);
    let axes = distinct(graph, &graph.parts(&output.axes))?;
    ensure(axes == node.axes, || String::from("its axes are not its node's"))?;
    let Some(id) = in_place(output.dest) else { return Ok(()) };
    let param = graph.params.get(usize::from(id.0)).ok_or_else(|| String::from("no such parameter"))?;
    match &param.kind {
        ParamKind::Tensor { axes, access: Access::ReadWrite } => {
            ensure(*axes == output.axes, || String::from("its order is not its parameter's"))?;
            ensure(param.dtype == node.dtype, || format!("{} in {}", node.dtype, param.dtype))
        }
        ParamKind::Tensor { .. } | ParamKind::Scalar | ParamKind::Dim(_) | ParamKind::View { .. } => {
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
    use super::super::graph::{Dim, SpanId};
    use super::super::op::Op;
    use super::*;

    const N: AxisId = AxisId(0);
    const C: AxisId = AxisId(1);

    fn node(kind: NodeKind, args: &[u32], dtype: DType, axes: &[AxisId]) -> Node {
        let (args, axes) = (args.iter().map(|&arg| NodeId(arg)).collect(), axes.iter().copied().collect());
        Node { kind, args, dtype, axes, span: SpanId(0) }
    }

    fn param(name: &str, kind: ParamKind) -> Param {
        Param { name: name.into(), dtype: DType::F32, kind, span: SpanId(0) }
    }

    fn view(of: u16, axes: &[AxisId]) -> ParamKind {
        ParamKind::View { of: ParamId(of), axes: axes.to_vec() }
    }

    /// Writes the exponential of a sum over C to `p`, and returns `x`.
    ///
    /// The parameters are `x[N, C = 3]`, `p: &mut f32[N]` and a scalar.
    fn sample() -> Graph {
        let mut sample = Graph::new("sample");
        sample.symbols.push(String::from("N"));
        let extents = [("N", DimExpr::sym(0)), ("C", DimExpr::constant(3))];
        sample.axes = extents.map(|(name, extent)| Dim { name: name.into(), extent }).into();
        sample.params = vec![
            param("x", ParamKind::Tensor { axes: vec![N, C], access: Access::Read }),
            param("p", ParamKind::Tensor { axes: vec![N], access: Access::ReadWrite }),
            param("scale", ParamKind::Scalar),
        ];
        let over_c = NodeKind::Reduce(Reduce::Sum, AxisSet::EMPTY.with(C));
        sample.push(node(NodeKind::Input(ParamId(0)), &[], DType::F32, &[N, C]));
        sample.push(node(over_c, &[0], DType::F32, &[N]));
        sample.push(node(NodeKind::Apply(Op::Exp), &[1], DType::F32, &[N]));
        sample.push(node(NodeKind::Literal(Const::Float(0.5)), &[], DType::F32, &[]));
        sample.push(node(NodeKind::Apply(Op::Lt), &[2, 3], DType::Bool, &[N]));
        sample.push(node(NodeKind::Apply(Op::Select), &[4, 2, 3], DType::F32, &[N]));
        sample.push(node(NodeKind::Scalar(ParamId(2)), &[], DType::F32, &[]));
        sample.outputs = vec![
            Output { node: NodeId(5), axes: vec![N], dest: Dest::InPlace(ParamId(1)) },
            Output { node: NodeId(0), axes: vec![C, N], dest: Dest::Fresh },
        ];
        sample
    }

    /// Adds a static index of a node along C.
    fn pick(graph: &mut Graph, of: u32, place: Const, dtype: DType) {
        let index = graph.push(node(NodeKind::Literal(place), &[], dtype, &[]));
        graph.push(node(NodeKind::Gather(C), &[of, index.0], DType::F32, &[N]));
    }

    type Spoil = fn(&mut Graph);

    fn check(cases: &[(Spoil, &str)]) {
        assert_eq!(graph(&sample()), Ok(()));
        for (spoil, expect) in cases {
            let mut spoilt = sample();
            spoil(&mut spoilt);
            assert_eq!(graph(&spoilt), Err(String::from(*expect)), "{spoilt:?}");
        }
    }

    #[test]
    fn refuses_heads_that_do_not_hold() {
        check(&[
            (|g| g.axes = vec![g.axes[1].clone(); AXES_MAX + 1], "257 axes"),
            (|g| g.axes[0].extent = DimExpr::sym(1), "axis N: unknown symbol in its extent"),
            (
                |g| g.params[0].kind = ParamKind::Tensor { axes: vec![N], access: Access::Write },
                "parameter x: only written",
            ),
            (|g| g.params[0].dtype = DType::Index, "parameter x: a tensor of positions"),
            (|g| g.params[2].dtype = DType::Index, "parameter scale: a scalar position"),
            (|g| g.params[2].kind = ParamKind::Dim(1), "parameter scale: unknown symbol"),
            (
                |g| g.params[0].kind = ParamKind::Tensor { axes: vec![N, N], access: Access::Read },
                "parameter x: axis N twice",
            ),
            (|g| g.params[0].kind = view(1, &[N]), "a view before a parameter"),
            (|g| g.params[2].kind = view(2, &[N]), "parameter scale: no such tensor"),
            (|g| g.params[2].kind = view(0, &[N]), "parameter scale: other extents than its tensor's"),
            (|g| g.params[2].kind = view(0, &[C, N]), "parameter scale: other extents than its tensor's"),
            (
                |g| g.params[0].kind = ParamKind::Tensor { axes: vec![AxisId(2)], access: Access::Read },
                "parameter x: unknown axis 2",
            ),
        ]);
    }

    #[test]
    fn refuses_nodes_that_do_not_hold() {
        check(&[
            (|g| g.nodes[1].args = vec![NodeId(2)], "%1: an operand is not above it"),
            (|g| g.nodes[1].args = vec![NodeId(1)], "%1: an operand is not above it"),
            (|g| g.nodes[2].args.clear(), "%2: 0 operands, takes 1"),
            (|g| g.nodes[2].kind = NodeKind::Literal(Const::Int(0)), "%2: 1 operands, takes 0"),
            (|g| g.nodes[2].axes = AxisSet::EMPTY, "%2: its axes do not follow from its operands"),
            (|g| g.nodes[0].axes = AxisSet::EMPTY.with(N), "%0: its axes do not follow from its operands"),
            (|g| g.nodes[3].axes = AxisSet::EMPTY.with(N), "%3: its axes do not follow from its operands"),
            (|g| g.nodes[0].kind = NodeKind::Scalar(ParamId(0)), "%0: no such scalar"),
            (|g| g.nodes[6].dtype = DType::I32, "%6: no such scalar"),
            (|g| g.nodes[0].kind = NodeKind::Input(ParamId(2)), "%0: no such tensor"),
            (|g| g.nodes[0].kind = NodeKind::Input(ParamId(3)), "%0: no such tensor"),
            (|g| g.nodes[0].dtype = DType::I32, "%0: no such tensor"),
            (
                |g| g.nodes[3] = node(NodeKind::Literal(Const::Int(1)), &[], DType::F32, &[]),
                "%3: 1 is no f32",
            ),
            (
                |g| g.nodes[3] = node(NodeKind::Literal(Const::Int(256)), &[], DType::U8, &[]),
                "%3: 256 is no u8",
            ),
            (|g| g.nodes[3] = node(NodeKind::Coord(N), &[], DType::F32, &[N]), "%3: a coordinate is `i32`"),
            (|g| g.nodes[3] = node(NodeKind::Coord(AxisId(2)), &[], DType::I32, &[]), "%3: unknown axis 2"),
            (
                |g| g.nodes[3] = node(NodeKind::Extent(DimExpr::sym(1)), &[], DType::F32, &[]),
                "%3: unknown symbol",
            ),
            (
                |g| g.nodes[3] = node(NodeKind::Extent(DimExpr::sym(0)), &[], DType::Bool, &[]),
                "%3: a `bool` extent",
            ),
            (
                |g| g.nodes[3] = node(NodeKind::Extent(DimExpr::sym(0)), &[], DType::Index, &[]),
                "%3: a position",
            ),
        ]);
    }

    #[test]
    fn refuses_operations_that_the_table_lacks() {
        check(&[
            (|g| g.nodes[2].dtype = DType::I32, "%2: i32 from [F32]"),
            (|g| g.nodes[2].kind = NodeKind::Apply(Op::Not), "%2: Bits of [F32]"),
            (|g| g.nodes[4].dtype = DType::F32, "%4: f32 from [F32, F32]"),
            (|g| g.nodes[5].args[0] = NodeId(2), "%5: a condition is `bool`"),
            (|g| g.nodes[5].args[1] = NodeId(4), "%5: operands of [Bool, Bool, F32]"),
        ]);
    }

    #[test]
    fn refuses_axes_that_are_not_there() {
        check(&[
            (|g| pick(g, 0, Const::Int(3), DType::I32), "%8: position 3"),
            (|g| pick(g, 0, Const::Int(-1), DType::I32), "%8: position -1"),
            (|g| pick(g, 0, Const::Float(1.0), DType::F32), "%8: no coordinate along the axis"),
            (|g| pick(g, 2, Const::Int(0), DType::I32), "%8: the operand lacks the axes"),
            (|g| g.nodes[1].kind = NodeKind::Gather(C), "%1: 1 operands, takes 2"),
            (
                |g| {
                    pick(g, 0, Const::Int(0), DType::I32);
                    g.nodes[8].args.push(NodeId(3));
                },
                "%8: no coordinate along the axis",
            ),
            (
                |g| {
                    pick(g, 0, Const::Int(0), DType::I32);
                    g.nodes[8].axes = AxisSet::EMPTY;
                },
                "%8: its axes do not follow from its operands",
            ),
            (
                |g| g.nodes[1].kind = NodeKind::Reduce(Reduce::Sum, AxisSet::EMPTY),
                "%1: the operand lacks the axes",
            ),
            (|g| g.nodes[1].dtype = DType::I32, "%1: its dtype is not its operand's"),
            (
                |g| g.nodes[1].kind = NodeKind::Reduce(Reduce::Dot, AxisSet::EMPTY.with(C)),
                "%1: 1 operands, takes 2",
            ),
            (
                |g| {
                    g.nodes[1].kind = NodeKind::Reduce(Reduce::Dot, AxisSet::EMPTY.with(C));
                    g.nodes[1].args.push(NodeId(0));
                    g.nodes[1].dtype = DType::I32;
                },
                "%1: it is not of floats",
            ),
            (|g| g.nodes[1].kind = NodeKind::Cast, "%1: its axes do not follow from its operands"),
        ]);
    }

    #[test]
    fn elements_are_picked_where_a_value_says() {
        let mut gathers = sample();
        pick(&mut gathers, 0, Const::Int(2), DType::I32);
        // A gather along C at the coordinate along C removes the axis and adds it again.
        gathers.push(node(NodeKind::Coord(C), &[], DType::I32, &[C]));
        gathers.push(node(NodeKind::Gather(C), &[0, 9, 4], DType::F32, &[N, C]));
        assert_eq!(graph(&gathers), Ok(()));
    }

    #[test]
    fn a_cast_may_widen() {
        let mut widened = sample();
        widened.nodes[6] = node(NodeKind::Cast, &[2], DType::F32, &[N, C]);
        assert_eq!(graph(&widened), Ok(()));
    }

    #[test]
    fn refuses_results_that_do_not_hold() {
        check(&[
            (|g| g.outputs[1].axes = vec![N], "output 1: its axes are not its node's"),
            (|g| g.outputs[1].axes = vec![N, N], "output 1: axis N twice"),
            (|g| g.outputs[1].node = NodeId(9), "output 1: no such node"),
            (|g| g.outputs[1].dest = Dest::InPlace(ParamId(0)), "output 1: x cannot be written"),
            (|g| g.outputs[0].dest = Dest::InPlace(ParamId(2)), "output 0: scale cannot be written"),
            (|g| g.outputs[0].dest = Dest::InPlace(ParamId(9)), "output 0: no such parameter"),
            (|g| g.params[1].dtype = DType::I32, "output 0: f32 in i32"),
            (
                |g| g.params[1].kind = ParamKind::Tensor { axes: vec![N, C], access: Access::ReadWrite },
                "output 0: its order is not its parameter's",
            ),
            (|g| g.outputs.swap(0, 1), "outputs are out of order"),
            (|g| g.outputs.insert(0, g.outputs[0].clone()), "outputs are out of order"),
        ]);
    }
}
