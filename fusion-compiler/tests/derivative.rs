//! Derivative rules, tested against central differences of the reference and at points without a derivative.
#![cfg(feature = "compile")]

use fusion_compiler::check::{Source, front_end};
use fusion_compiler::ir::dtype::{Const, DType};
use fusion_compiler::ir::graph::{
    AxisSet, Dest, Graph, Node, NodeId, NodeKind, Output, Param, ParamId, ParamKind, SpanId,
};
use fusion_compiler::ir::op::{Op, Typing};
use fusion_compiler::ops::{Grad, GradRule};
use fusion_support::reference::{Rounding, interpret};

/// Builds a graph of one operation on scalars, with the value and the gradients of its operands as results.
fn differentiated(op: Op, rule: GradRule) -> (Graph, Vec<bool>) {
    let span = SpanId(7);
    let mut graph = Graph::new("derivative");
    let args: Vec<NodeId> = (0..op.info().arity)
        .map(|i| {
            let dtype = if op.info().typing == Typing::Select && i == 0 { DType::Bool } else { DType::F64 };
            graph.params.push(Param { name: format!("x{i}"), dtype, kind: ParamKind::Scalar, span });
            graph.push(Node {
                kind: NodeKind::Scalar(ParamId(i as u16)),
                args: vec![],
                dtype,
                axes: AxisSet::EMPTY,
                span,
            })
        })
        .collect();
    let y = graph.apply(op, &args, span);
    let before = graph.nodes.len();
    let dy = graph.literal(Const::Float(1.0), DType::F64, span);
    let gradients = rule(&mut graph, &args, y, dy);
    assert_eq!(gradients.len(), args.len(), "{op:?}: an entry for each operand");
    assert!(graph.nodes[before..].iter().all(|node| node.span == span), "{op:?}: new nodes carry the span");
    let results = std::iter::once(y).chain(gradients.iter().flatten().copied());
    graph.outputs = results.map(|node| Output { node, axes: vec![], dest: Dest::Fresh }).collect();
    (graph, gradients.iter().map(Option::is_some).collect())
}

fn rules() -> impl Iterator<Item = (Op, GradRule)> {
    Op::ALL.iter().filter_map(|&op| match op.info().grad {
        Grad::Rule(rule) => Some((op, rule)),
        Grad::Zero => None,
    })
}

fn run(graph: &Graph, point: &[f64]) -> Vec<f64> {
    let params: Vec<Vec<f64>> = point.iter().map(|&x| vec![x]).collect();
    interpret(graph, &params, &[], Rounding::None).into_iter().map(|out| out[0]).collect()
}

/// Returns points well within the domain of each operand, without a common period.
fn points(op: Op) -> impl Iterator<Item = Vec<f64>> {
    let info = op.info();
    (0..97).map(move |k| {
        (0..info.arity)
            .map(|i| {
                if info.typing == Typing::Select && i == 0 {
                    return f64::from(k % 2);
                }
                let (low, high) = info.domain[i.min(info.domain.len() - 1)];
                let part = (f64::from(k) * [0.618_034, 0.754_878, 0.569_840][i] + 0.137).fract();
                low + (high - low) * (0.01 + 0.98 * part)
            })
            .collect()
    })
}

#[test]
fn rules_agree_with_central_differences() {
    let mut checked = 0;
    for (op, rule) in rules() {
        let (graph, has) = differentiated(op, rule);
        for point in points(op) {
            let mut gradients = run(&graph, &point).into_iter().skip(1);
            for operand in (0..point.len()).filter(|&operand| has[operand]) {
                let gradient = gradients.next().expect("a gradient for each operand that has one");
                let Some(slope) = slope(&graph, &point, operand) else { continue };
                let scale = slope
                    .abs()
                    .max(gradient.abs())
                    .max(1e-3 * run(&graph, &point)[0].abs() / point[operand].abs());
                assert!(
                    (gradient - slope).abs() <= 2e-5 * scale,
                    "{op:?}{point:?}, operand {operand}: {gradient} is not {slope}"
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 3000, "only {checked} slopes");
}

/// Returns the central difference if halving its step changes it little. Near a kink or a pole there is no
/// difference to compare with.
fn slope(graph: &Graph, point: &[f64], operand: usize) -> Option<f64> {
    let at = |x: f64| {
        let mut point = point.to_vec();
        point[operand] = x;
        run(graph, &point)[0]
    };
    let difference = |step: f64| (at(point[operand] + step) - at(point[operand] - step)) / (2.0 * step);
    let size = point[operand].abs();
    [1e-5 * size, 1e-5 * size.clamp(1e-3, 1.0)].into_iter().find_map(|step| {
        let (wide, narrow) = (difference(step), difference(step / 2.0));
        ((wide - narrow).abs() <= 1e-5 * narrow.abs()).then_some((4.0 * narrow - wide) / 3.0)
    })
}

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

/// Gradients of PyTorch where there is no derivative, or where the formula alone would give NaN.
#[rustfmt::skip]
const SPECIAL: &[(Op, &[f64], &[f64])] = &[
    (Op::Abs, &[0.0], &[0.0]), (Op::Abs, &[NAN], &[NAN]),
    (Op::Min, &[2.0, 2.0], &[0.5, 0.5]), (Op::Min, &[1.0, 2.0], &[1.0, 0.0]), (Op::Min, &[2.0, 1.0], &[0.0, 1.0]),
    (Op::Max, &[2.0, 2.0], &[0.5, 0.5]), (Op::Max, &[1.0, 2.0], &[0.0, 1.0]), (Op::Max, &[NAN, 2.0], &[1.0, 1.0]),
    (Op::Pow, &[0.0, 2.0], &[0.0, 0.0]), (Op::Pow, &[0.0, 0.0], &[0.0, 0.0]), (Op::Pow, &[-2.0, 3.0], &[12.0, NAN]),
    (Op::Pow, &[0.0, 1.0], &[1.0, 0.0]), (Op::Pow, &[0.0, -1.0], &[-INF, -INF]),
    (Op::Rem, &[7.0, 2.0], &[1.0, -3.0]), (Op::Rem, &[-7.0, 2.0], &[1.0, 3.0]),
    (Op::Remainder, &[7.0, 2.0], &[1.0, -3.0]), (Op::Remainder, &[-7.0, 2.0], &[1.0, 4.0]), (Op::Remainder, &[6.0, -2.0], &[1.0, 3.0]),
    (Op::Copysign, &[3.0, -1.0], &[-1.0]), (Op::Copysign, &[-3.0, -1.0], &[1.0]), (Op::Copysign, &[-3.0, 0.0], &[-1.0]),
    (Op::Copysign, &[3.0, -0.0], &[-1.0]), (Op::Copysign, &[0.0, -1.0], &[0.0]), (Op::Erfc, &[INF], &[0.0]),
    (Op::Sqrt, &[0.0], &[INF]), (Op::Select, &[1.0, 5.0, 6.0], &[1.0, 0.0]), (Op::Select, &[0.0, 5.0, 6.0], &[0.0, 1.0]),
];

#[test]
fn kinks_have_the_gradients_of_pytorch() {
    for (op, rule) in rules() {
        let (graph, _) = differentiated(op, rule);
        for (_, point, expect) in SPECIAL.iter().filter(|(other, ..)| *other == op) {
            let actual = run(&graph, point).split_off(1);
            let same = |(x, y): (&f64, &f64)| x == y || (x.is_nan() && y.is_nan());
            assert!(actual.iter().zip(*expect).all(same), "{op:?}{point:?}: {actual:?}, not {expect:?}");
        }
    }
}

/// Computes the slopes of a function of scalars by the rules of its operations, in reverse order.
fn slopes(source: &str, point: &[f64]) -> Vec<f64> {
    let mut graph = match front_end(source.parse().expect("tokens")) {
        Ok(Source::Items(mut functions, _)) => functions.remove(0).graph,
        other => panic!("{source} is right: {other:?}"),
    };
    let result = graph.outputs[0].node;
    let one = graph.literal(Const::Float(1.0), DType::F64, SpanId(0));
    let mut gradients: Vec<Option<NodeId>> = vec![None; graph.nodes.len()];
    gradients[result.0 as usize] = Some(one);
    for id in (0..=result.0).rev() {
        let (node, Some(dy)) = (graph.node(NodeId(id)).clone(), gradients[id as usize]) else { continue };
        let NodeKind::Apply(op) = node.kind else { continue };
        let Grad::Rule(rule) = op.info().grad else { continue };
        for (arg, part) in node.args.clone().into_iter().zip(rule(&mut graph, &node.args, NodeId(id), dy)) {
            let Some(part) = part else { continue };
            let before = gradients[arg.0 as usize];
            let sum = before.map_or(part, |before| graph.apply(Op::Add, &[before, part], node.span));
            gradients[arg.0 as usize] = Some(sum);
        }
    }
    let slope = |i: usize| gradients[i].expect("the first nodes are the parameters");
    graph.outputs =
        (0..point.len()).map(|i| Output { node: slope(i), axes: vec![], dest: Dest::Fresh }).collect();
    run(&graph, point)
}

/// Each operand has its share of the slope, even if both are infinite. The rule subtracts no equal
/// infinities.
#[test]
fn a_sum_of_exponentials_has_slopes_at_infinities() {
    let source = "pub fn f(x: f64[], y: f64[]) -> f64[] { logaddexp(x, y) }";
    for (point, expect) in [
        ([0.5, -1.25], [0.851_952_801_968_310_6, 0.148_047_198_031_689_44]),
        ([3.0, 3.0], [0.5, 0.5]),
        ([-800.0, 2.0], [0.0, 1.0]),
        ([INF, 3.0], [1.0, 0.0]),
        ([2.0, -INF], [1.0, 0.0]),
        ([-INF, -INF], [0.5, 0.5]),
        ([INF, INF], [0.5, 0.5]),
    ] {
        let got = slopes(source, &point);
        let near = got.iter().zip(expect).all(|(got, expect)| (got - expect).abs() < 1e-15);
        assert!(near, "{point:?}: {got:?}, not {expect:?}");
    }
}
