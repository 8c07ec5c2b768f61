//! The reference interpreter on graphs whose results are computed by hand.

use fusion_compiler::ir::dim::DimExpr;
use fusion_compiler::ir::dtype::{Const, DType, saturate, wrap};
use fusion_compiler::ir::graph::{
    Access, AxisId, AxisSet, Dest, Dim, Graph, Node, NodeId, NodeKind, Output, Param, ParamId, ParamKind,
    Reduce, SpanId,
};
use fusion_compiler::ir::op::Op;
use fusion_support::reference::{Rounding, interpret};

const SPAN: SpanId = SpanId(0);
const N: AxisId = AxisId(0);
const D: AxisId = AxisId(1);

/// Builds a graph with the axes N and D, the parameters `x: f32[N, D]` and `y: f32[D]`, and their input
/// nodes.
fn graph() -> (Graph, NodeId, NodeId) {
    let mut graph = Graph::new("reference");
    graph.symbols = vec!["N".into(), "D".into()];
    for (name, sym) in [("N", 0), ("D", 1)] {
        graph.axes.push(Dim { name: name.into(), extent: DimExpr::sym(sym) });
    }
    let mut tensor = |name: &str, axes: Vec<AxisId>| {
        let id = ParamId(graph.params.len() as u16);
        let set = axes.iter().copied().collect();
        let kind = ParamKind::Tensor { axes, access: Access::Read };
        graph.params.push(Param { name: name.into(), dtype: DType::F32, kind, span: SPAN });
        push(&mut graph, NodeKind::Input(id), &[], DType::F32, set)
    };
    let (x, y) = (tensor("x", vec![N, D]), tensor("y", vec![D]));
    (graph, x, y)
}

fn push(graph: &mut Graph, kind: NodeKind, args: &[NodeId], dtype: DType, axes: AxisSet) -> NodeId {
    graph.push(Node { kind, args: args.to_vec(), dtype, axes, span: SPAN })
}

fn run(mut graph: Graph, node: NodeId, axes: &[AxisId], params: &[Vec<f64>], symbols: &[i64]) -> Vec<f64> {
    graph.outputs = vec![Output { node, axes: axes.to_vec(), dest: Dest::Fresh }];
    interpret(&graph, params, symbols, Rounding::None).remove(0)
}

fn both() -> AxisSet {
    AxisSet::EMPTY.with(N).with(D)
}

fn sample() -> [Vec<f64>; 2] {
    [vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], vec![10.0, 20.0, 30.0]]
}

#[test]
fn operands_meet_by_axis_and_outputs_have_the_declared_order() {
    let (mut g, x, y) = graph();
    let sum = g.apply(Op::Add, &[x, y], SPAN);
    let params = sample();
    assert_eq!(run(g.clone(), sum, &[N, D], &params, &[2, 3]), [11.0, 22.0, 33.0, 14.0, 25.0, 36.0]);
    assert_eq!(run(g, sum, &[D, N], &params, &[2, 3]), [11.0, 14.0, 22.0, 25.0, 33.0, 36.0]);
}

#[test]
fn reductions_drop_their_axes() {
    let cases = [
        (Reduce::Sum, D, vec![6.0, 15.0], vec![0.0, 0.0]),
        (Reduce::Prod, D, vec![6.0, 120.0], vec![1.0, 1.0]),
        (Reduce::Max, D, vec![3.0, 6.0], vec![f64::NEG_INFINITY; 2]),
        (Reduce::Min, D, vec![1.0, 4.0], vec![f64::INFINITY; 2]),
    ];
    for (reduce, over, expect, of_nothing) in cases {
        let (mut g, x, _) = graph();
        let over = AxisSet::EMPTY.with(over);
        let y = push(&mut g, NodeKind::Reduce(reduce, over), &[x], DType::F32, both().minus(over));
        assert_eq!(run(g.clone(), y, &[N], &sample(), &[2, 3]), expect, "{reduce:?}");
        assert_eq!(run(g, y, &[N], &[vec![], vec![]], &[2, 0]), of_nothing, "{reduce:?} of nothing");
    }
    let (mut g, x, _) = graph();
    let all = push(&mut g, NodeKind::Reduce(Reduce::Sum, both()), &[x], DType::F32, AxisSet::EMPTY);
    assert_eq!(run(g, all, &[], &sample(), &[2, 3]), [21.0]);
}

#[test]
fn coordinates_extents_and_elements_are_read() {
    let (mut g, x, _) = graph();
    let n = push(&mut g, NodeKind::Coord(N), &[], DType::I32, AxisSet::EMPTY.with(N));
    let extent = push(&mut g, NodeKind::Extent(DimExpr::sym(1)), &[], DType::I32, AxisSet::EMPTY);
    let offset = g.apply(Op::Mul, &[n, extent], SPAN);
    let one = g.literal(Const::Int(1), DType::I32, SPAN);
    let second = push(&mut g, NodeKind::Gather(D), &[x, one], DType::F32, AxisSet::EMPTY.with(N));
    // The row number selects the element. The condition excludes the second row.
    let first = g.apply(Op::Lt, &[n, one], SPAN);
    let some = push(&mut g, NodeKind::Gather(D), &[x, n, first], DType::F32, AxisSet::EMPTY.with(N));
    assert_eq!(run(g.clone(), offset, &[N], &sample(), &[2, 3]), [0.0, 3.0]);
    assert_eq!(run(g.clone(), second, &[N], &sample(), &[2, 3]), [2.0, 5.0]);
    assert_eq!(run(g, some, &[N], &sample(), &[2, 3]), [1.0, 0.0]);
}

#[test]
fn casts_truncate_saturate_and_wrap() {
    let cases = [
        (DType::F32, Const::Float(-1.9), DType::I32, -1.0),
        (DType::F32, Const::Float(3e9), DType::I32, f64::from(i32::MAX)),
        (DType::F32, Const::Float(f64::NAN), DType::I32, 0.0),
        (DType::F32, Const::Float(-1.0), DType::U32, 0.0),
        (DType::I32, Const::Int(-1), DType::U32, f64::from(u32::MAX)),
        (DType::I32, Const::Int(300), DType::U8, 44.0),
        (DType::I32, Const::Int(40_000), DType::I16, -25_536.0),
        (DType::I16, Const::Int(-1), DType::U16, 65_535.0),
        (DType::F32, Const::Float(-4e4), DType::I16, -32_768.0),
        (DType::F32, Const::Float(7e4), DType::U16, 65_535.0),
        (DType::F32, Const::Float(f64::NAN), DType::I16, 0.0),
        (DType::F64, Const::Float(-1e300), DType::I8, -128.0),
        (DType::Bool, Const::Bool(true), DType::F32, 1.0),
        (DType::F32, Const::Float(0.5), DType::Bool, 1.0),
    ];
    for (from, value, to, expect) in cases {
        let mut g = Graph::new("cast");
        let x = g.literal(value, from, SPAN);
        let y = push(&mut g, NodeKind::Cast, &[x], to, AxisSet::EMPTY);
        assert_eq!(run(g, y, &[], &[], &[]), [expect], "{value} as {to}");
    }
}

/// Integer types have the ranges and the wrapping of Rust's integers.
#[test]
fn integers_are_those_of_rust() {
    let numbers = [
        0,
        1,
        -1,
        127,
        128,
        -129,
        255,
        256,
        32_767,
        32_768,
        -32_769,
        65_535,
        65_536,
        1 << 31,
        -1 << 40,
        i64::MAX,
    ];
    macro_rules! check {
        ($($dtype:ident: $element:ident,)*) => { $(
            assert_eq!(DType::$dtype.range(), ($element::MIN.into(), $element::MAX.into()));
            assert_eq!(DType::$dtype.bits(), $element::BITS);
            for x in numbers {
                assert_eq!(wrap(DType::$dtype, x), i64::from(x as $element), "{x}");
                assert_eq!(saturate(DType::$dtype, x as f64), i64::from(x as f64 as $element), "{x}");
            }
        )* };
    }
    check! { I32: i32, U32: u32, I16: i16, U16: u16, I8: i8, U8: u8, }
    for x in numbers {
        assert_eq!(wrap(DType::Index, x), x);
    }
}

#[test]
fn bits_are_those_of_floats() {
    let (mut g, x, _) = graph();
    let bits = g.apply(Op::ToBits, &[x], SPAN);
    let again = g.apply(Op::FromBits, &[bits], SPAN);
    let params = [vec![1.0, -2.0, f64::INFINITY], vec![0.0; 3]];
    assert_eq!(run(g.clone(), bits, &[N, D], &params, &[1, 3])[..2], [1_065_353_216.0, 3_221_225_472.0]);
    assert_eq!(run(g, again, &[N, D], &params, &[1, 3]), params[0]);
}

#[test]
fn rounding_each_node_is_f32_arithmetic() {
    let mut g = Graph::new("round");
    let (x, y) =
        (g.literal(Const::Float(1e8), DType::F32, SPAN), g.literal(Const::Float(1.0), DType::F32, SPAN));
    let sum = g.apply(Op::Add, &[x, y], SPAN);
    let rest = g.apply(Op::Sub, &[sum, x], SPAN);
    g.outputs = vec![Output { node: rest, axes: vec![], dest: Dest::Fresh }];
    assert_eq!(interpret(&g, &[], &[], Rounding::None), [[1.0]]);
    assert_eq!(interpret(&g, &[], &[], Rounding::EachNode), [[0.0]]);
}
