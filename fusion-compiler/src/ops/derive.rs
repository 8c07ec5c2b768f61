//! Derivative rules: each computes the gradient of every operand from the gradient `dy` of the result.
//!
//! A gradient has the axes of the result. The caller sums the gradient over the axes that the operand lacks.
//! New nodes carry the span of the result.
//!
//! Invariant: at points without a derivative, the rules return the gradient that PyTorch returns.

use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{Graph, NodeId, SpanId};
use crate::ir::op::Op;

use std::f64::consts::{LN_2, PI};

/// The gradient of each operand, if it has one.
type Gradients = Vec<Option<NodeId>>;

/// Appends nodes with the dtype and span of the operation that is differentiated.
struct GradBuilder<'g> {
    graph: &'g mut Graph,
    dtype: DType,
    span: SpanId,
}

impl GradBuilder<'_> {
    fn of(graph: &mut Graph, y: NodeId) -> GradBuilder<'_> {
        let (dtype, span) = (graph.node(y).dtype, graph.node(y).span);
        GradBuilder { graph, dtype, span }
    }

    fn number(&mut self, value: f64) -> NodeId {
        self.graph.literal(Const::Float(value), self.dtype, self.span)
    }

    fn unary(&mut self, op: Op, x: NodeId) -> NodeId {
        self.graph.apply(op, &[x], self.span)
    }

    fn binary(&mut self, op: Op, x: NodeId, y: NodeId) -> NodeId {
        self.graph.apply(op, &[x, y], self.span)
    }

    fn neg(&mut self, x: NodeId) -> NodeId {
        self.unary(Op::Neg, x)
    }

    fn add(&mut self, x: NodeId, y: NodeId) -> NodeId {
        self.binary(Op::Add, x, y)
    }

    fn mul(&mut self, x: NodeId, y: NodeId) -> NodeId {
        self.binary(Op::Mul, x, y)
    }

    fn div(&mut self, x: NodeId, y: NodeId) -> NodeId {
        self.binary(Op::Div, x, y)
    }

    fn square(&mut self, x: NodeId) -> NodeId {
        self.mul(x, x)
    }

    fn scale(&mut self, x: NodeId, factor: f64) -> NodeId {
        let factor = self.number(factor);
        self.mul(x, factor)
    }

    fn add_number(&mut self, x: NodeId, term: f64) -> NodeId {
        let term = self.number(term);
        self.add(x, term)
    }

    fn one_minus(&mut self, x: NodeId) -> NodeId {
        let one = self.number(1.0);
        self.binary(Op::Sub, one, x)
    }

    fn select(&mut self, condition: NodeId, x: NodeId, y: NodeId) -> NodeId {
        self.graph.apply(Op::Select, &[condition, x, y], self.span)
    }
}

/// `d(x + y) = dx + dy`.
pub(crate) fn add(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Gradients {
    vec![Some(dy), Some(dy)]
}

/// `d(x − y) = dx − dy`.
pub(crate) fn sub(g: &mut Graph, _x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let negative = GradBuilder::of(g, y).neg(dy);
    vec![Some(dy), Some(negative)]
}

/// `d(x y) = y dx + x dy`.
pub(crate) fn mul(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    vec![Some(r.mul(dy, x[1])), Some(r.mul(dy, x[0]))]
}

/// `d(x / y) = dx / y − (x / y) / y dy`.
pub(crate) fn div(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let numerator = r.div(dy, x[1]);
    let denominator = r.mul(numerator, y);
    vec![Some(numerator), Some(r.neg(denominator))]
}

/// `d(x % y) = dx − trunc(x / y) dy`.
pub(crate) fn rem(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let quotient = r.div(x[0], x[1]);
    let quotient = r.unary(Op::Trunc, quotient);
    let divisor = r.mul(dy, quotient);
    vec![Some(dy), Some(r.neg(divisor))]
}

/// `d(x − floor(x / y) y) = dx − floor(x / y) dy`.
pub(crate) fn remainder(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let quotient = r.binary(Op::FloorDiv, x[0], x[1]);
    let divisor = r.mul(dy, quotient);
    vec![Some(dy), Some(r.neg(divisor))]
}

/// `d(x y + z) = y dx + x dy + dz`.
pub(crate) fn fma(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    vec![Some(r.mul(dy, x[1])), Some(r.mul(dy, x[0])), Some(dy)]
}

/// `d(−x) = −dx`.
pub(crate) fn neg(g: &mut Graph, _x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    vec![Some(GradBuilder::of(g, y).neg(dy))]
}

/// `d copysign(x, y) = ±dx`, negative if the signs of `x` and `y` differ, and 0 at `x = 0`.
///
/// The sign operand has no gradient.
pub(crate) fn copysign(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let one = r.number(1.0);
    let (from, to) = (r.unary(Op::Sign, x[0]), r.binary(Op::Copysign, one, x[1]));
    let slope = r.mul(from, to);
    vec![Some(r.mul(dy, slope)), None]
}

/// `d|x| = sign x dx`, which is 0 at 0.
pub(crate) fn abs(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let sign = r.unary(Op::Sign, x[0]);
    vec![Some(r.mul(dy, sign))]
}

/// Passes the gradient to the smaller operand, and half of it to each of two equal ones.
pub(crate) fn min(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    to_the_chosen(g, x, y, dy, Op::Lt)
}

/// Passes the gradient to the larger operand, and half of it to each of two equal ones.
pub(crate) fn max(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    to_the_chosen(g, x, y, dy, Op::Gt)
}

/// `d√x = 1 / (2√x)`.
pub(crate) fn sqrt(g: &mut Graph, _x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let twice = r.add(y, y);
    vec![Some(r.div(dy, twice))]
}

/// `d x^(−1/2) = −½ x^(−3/2)`.
pub(crate) fn rsqrt(g: &mut Graph, _x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let square = r.square(y);
    let cube = r.mul(square, y);
    let slope = r.scale(cube, -0.5);
    vec![Some(r.mul(dy, slope))]
}

/// `d∛x = 1 / (3 ∛x²)`.
pub(crate) fn cbrt(g: &mut Graph, _x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let square = r.square(y);
    let slope = r.scale(square, 3.0);
    vec![Some(r.div(dy, slope))]
}

/// `deˣ = eˣ`.
pub(crate) fn exp(g: &mut Graph, _x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    vec![Some(GradBuilder::of(g, y).mul(dy, y))]
}

/// `d2ˣ = 2ˣ ln 2`.
pub(crate) fn exp2(g: &mut Graph, _x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let slope = r.scale(y, LN_2);
    vec![Some(r.mul(dy, slope))]
}

/// `d(eˣ − 1) = eˣ`.
pub(crate) fn expm1(g: &mut Graph, _x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let slope = r.add_number(y, 1.0);
    vec![Some(r.mul(dy, slope))]
}

/// `d ln x = 1 / x`.
pub(crate) fn log(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    vec![Some(GradBuilder::of(g, y).div(dy, x[0]))]
}

/// `d log₂ x = 1 / (x ln 2)`.
pub(crate) fn log2(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let slope = r.scale(x[0], LN_2);
    vec![Some(r.div(dy, slope))]
}

/// `d ln(1 + x) = 1 / (1 + x)`.
pub(crate) fn log1p(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let slope = r.add_number(x[0], 1.0);
    vec![Some(r.div(dy, slope))]
}

/// `d xᵉ = e xᵉ⁻¹ dx + xᵉ ln x de`.
///
/// The gradient of `x` is 0 if `e = 0`. The gradient of `e` is 0 if `x = 0` and `e ≥ 0`.
pub(crate) fn pow(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let (base, exponent, zero) = (x[0], x[1], r.number(0.0));
    let lower = r.add_number(exponent, -1.0);
    let power = r.binary(Op::Pow, base, lower);
    let slope = r.mul(exponent, power);
    let slope = r.mul(dy, slope);
    let constant = r.binary(Op::Eq, exponent, zero);
    let to_base = r.select(constant, zero, slope);

    let log = r.unary(Op::Log, base);
    let slope = r.mul(y, log);
    let slope = r.mul(dy, slope);
    let at_zero = r.binary(Op::Eq, base, zero);
    let not_negative = r.binary(Op::Ge, exponent, zero);
    let flat = r.binary(Op::And, at_zero, not_negative);
    vec![Some(to_base), Some(r.select(flat, zero, slope))]
}

/// `d sin x = cos x`.
pub(crate) fn sin(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let slope = r.unary(Op::Cos, x[0]);
    vec![Some(r.mul(dy, slope))]
}

/// `d cos x = −sin x`.
pub(crate) fn cos(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let sin = r.unary(Op::Sin, x[0]);
    let slope = r.neg(sin);
    vec![Some(r.mul(dy, slope))]
}

/// `d tan x = 1 + tan² x`.
pub(crate) fn tan(g: &mut Graph, _x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let square = r.square(y);
    let slope = r.add_number(square, 1.0);
    vec![Some(r.mul(dy, slope))]
}

/// `d asin x = 1 / √(1 − x²)`.
pub(crate) fn asin(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let slope = inverse_leg(&mut r, x[0]);
    vec![Some(r.mul(dy, slope))]
}

/// `d acos x = −1 / √(1 − x²)`.
pub(crate) fn acos(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let slope = inverse_leg(&mut r, x[0]);
    let slope = r.neg(slope);
    vec![Some(r.mul(dy, slope))]
}

/// `d atan x = 1 / (1 + x²)`.
pub(crate) fn atan(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let square = r.square(x[0]);
    let slope = r.add_number(square, 1.0);
    vec![Some(r.div(dy, slope))]
}

/// `d atan2(v, u) = (u dv − v du) / (u² + v²)`.
pub(crate) fn atan2(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let (v, u) = (x[0], x[1]);
    let (v_square, u_square) = (r.square(v), r.square(u));
    let square = r.add(v_square, u_square);
    let unit = r.div(dy, square);
    let to_u = r.mul(unit, v);
    vec![Some(r.mul(unit, u)), Some(r.neg(to_u))]
}

/// `d sinh x = cosh x`.
pub(crate) fn sinh(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let slope = r.unary(Op::Cosh, x[0]);
    vec![Some(r.mul(dy, slope))]
}

/// `d cosh x = sinh x`.
pub(crate) fn cosh(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let slope = r.unary(Op::Sinh, x[0]);
    vec![Some(r.mul(dy, slope))]
}

/// `d tanh x = 1 − tanh² x`.
pub(crate) fn tanh(g: &mut Graph, _x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let square = r.square(y);
    let slope = r.one_minus(square);
    vec![Some(r.mul(dy, slope))]
}

/// `d erf x = 2/√π exp(−x²)`.
pub(crate) fn erf(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let slope = bell(&mut r, x[0], 2.0 / PI.sqrt());
    vec![Some(r.mul(dy, slope))]
}

/// `d (1 − erf x) = −2/√π exp(−x²)`.
pub(crate) fn erfc(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let slope = bell(&mut r, x[0], -2.0 / PI.sqrt());
    vec![Some(r.mul(dy, slope))]
}

/// Passes the gradient to the operand that is selected. The condition has no gradient.
pub(crate) fn select(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let zero = r.number(0.0);
    vec![None, Some(r.select(x[0], dy, zero)), Some(r.select(x[0], zero, dy))]
}

/// Passes the gradient to the operand that `beats` the other, and half of it to each of two equal ones.
///
/// No comparison with NaN is true, so both operands then get the whole gradient.
fn to_the_chosen(g: &mut Graph, x: &[NodeId], y: NodeId, dy: NodeId, beats: Op) -> Gradients {
    let mut r = GradBuilder::of(g, y);
    let (first, second) = (r.binary(beats, x[0], x[1]), r.binary(beats, x[1], x[0]));
    let (zero, half, tie) = (r.number(0.0), r.scale(dy, 0.5), r.binary(Op::Eq, x[0], x[1]));
    let mut share = |lost| {
        let not_lost = r.select(tie, half, dy);
        Some(r.select(lost, zero, not_lost))
    };
    vec![share(second), share(first)]
}

/// Returns `1 / √(1 − x²)`. The form `(1 − x)(1 + x)` avoids cancellation near 1.
fn inverse_leg(r: &mut GradBuilder<'_>, x: NodeId) -> NodeId {
    let (below, above) = (r.one_minus(x), r.add_number(x, 1.0));
    let square = r.mul(below, above);
    r.unary(Op::Rsqrt, square)
}

/// Returns `height · exp(−x²)`.
fn bell(r: &mut GradBuilder<'_>, x: NodeId, height: f64) -> NodeId {
    let square = r.square(x);
    let exponent = r.neg(square);
    let bell = r.unary(Op::Exp, exponent);
    r.scale(bell, height)
}
