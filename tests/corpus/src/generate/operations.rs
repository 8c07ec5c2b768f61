//! Operations of random functions. Each is a text with its effect on the bound of a value.

/// Bounds on the magnitude of a value, and on its distance from the value in exact arithmetic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    /// Largest magnitude.
    pub(super) max: f64,
    /// Largest error, in units of 2⁻²⁴.
    pub(super) error: f64,
}

/// A function of one operand. Its fields are the text with the operand `{}`, the largest slope over all
/// allowed operands, the largest value by that of the operand, and its own error. The error is in units of
/// 2⁻²⁴ of that value and 1.
pub(super) type Unary = (&'static str, f64, fn(f64) -> f64, f64);

/// Continuous functions, on operands restricted to their domains.
pub(super) const UNARY: &[Unary] = &[
    ("sin({})", 1.0, |_| 1.0, 6.0),
    ("cos({})", 1.0, |_| 1.0, 6.0),
    ("tanh({})", 1.0, |_| 1.0, 6.0),
    ("sigmoid({})", 0.25, |_| 1.0, 8.0),
    ("erf({})", 1.2, |_| 1.0, 6.0),
    ("atan({})", 1.0, |_| 1.6, 12.0),
    ("tan(clamp({}, -1.0, 1.0))", 3.5, |_| 1.6, 12.0),
    ("asin(clamp({}, -0.5, 0.5))", 1.2, |_| 0.6, 12.0),
    ("acos(clamp({}, -0.5, 0.5))", 1.2, |_| 2.1, 12.0),
    ("exp(-abs({}))", 1.0, |_| 1.0, 6.0),
    ("exp(clamp({}, -3.0, 3.0))", 21.0, |_| 20.1, 6.0),
    ("exp2(clamp({}, -4.0, 4.0))", 12.0, |_| 16.0, 6.0),
    ("expm1(clamp({}, -2.0, 2.0))", 7.5, |_| 6.4, 6.0),
    ("sinh(clamp({}, -3.0, 3.0))", 10.1, |_| 10.1, 12.0),
    ("cosh(clamp({}, -3.0, 3.0))", 10.1, |_| 10.1, 12.0),
    ("log(abs({}) + 1.0)", 1.0, |x| x.ln_1p(), 8.0),
    ("log2(1.0 + abs({}))", 1.5, |x| 1.5 * x.ln_1p(), 8.0),
    ("log1p(abs({}))", 1.0, |x| x.ln_1p(), 6.0),
    ("sqrt(abs({}) + 1.0)", 0.5, |x| (x + 1.0).sqrt(), 4.0),
    ("rsqrt({0} * {0} + 1.0)", 0.4, |_| 1.0, 8.0),
    ("recip(1.0 + square({}))", 0.7, |_| 1.0, 6.0),
    ("cbrt(abs({}) + 0.5)", 0.6, |x| (x + 0.5).cbrt(), 6.0),
    ("pow(0.5 + abs(clamp({}, -8.0, 8.0)), 1.5)", 4.5, |_| 25.0, 12.0),
    ("{}.relu()", 1.0, |x| x, 1.0),
    ("leaky_relu({}, 0.25)", 1.0, |x| x, 2.0),
    ("abs({})", 1.0, |x| x, 0.0),
    ("-{}", 1.0, |x| x, 0.0),
    ("elu({})", 1.0, |x| x.max(1.0), 6.0),
    ("selu({})", 1.8, |x| 1.1 * x + 1.8, 12.0),
    ("gelu({})", 1.2, |x| x, 16.0),
    ("gelu_tanh({})", 1.2, |x| x, 24.0),
    ("silu({})", 1.2, |x| x, 12.0),
    ("mish({})", 1.2, |x| x, 24.0),
    ("softplus({})", 1.0, |x| x + 1.0, 12.0),
    ("log_sigmoid({})", 1.0, |x| x + 1.0, 12.0),
    ("softsign({})", 1.0, |_| 1.0, 6.0),
    ("hardtanh({})", 1.0, |_| 1.0, 0.0),
    ("hardsigmoid({})", 0.2, |_| 1.0, 8.0),
    ("hardswish({})", 1.5, |x| x, 16.0),
    ("{} * 0.375", 0.375, |x| 0.375 * x, 1.0),
    ("{} / (D + 1)", 1.0, |x| x, 2.0),
    ("1.5 - {}", 1.0, |x| x + 1.5, 1.0),
];

/// Discontinuous functions of exact operands up to `INPUT_MAX`, with their largest value. Their results are
/// exact, too.
pub(super) const JUMPS: &[(&str, f64)] = &[
    ("floor({})", 4.0),
    ("ceil({})", 4.0),
    ("round({})", 4.0),
    ("trunc({})", 4.0),
    ("sign({})", 1.0),
    ("({} % 1.5)", 1.5),
    ("(({} as i32) as f32)", 4.0),
];

/// A reduction along dims, or a function of whole rows.
#[derive(Clone, Copy)]
pub(super) struct Reduction {
    /// Text with the operand `{}` and `{dims}`.
    pub(super) text: &'static str,
    /// Function from the bound of an element, the number of elements and the roundings of their sum to the
    /// result's bound.
    pub(super) bound: fn(Bound, usize, f64) -> Bound,
    /// True if the reduction is a maximum or minimum, which needs at least one element.
    pub(super) has_extremes: bool,
    /// True if the result has a value for each element.
    pub(super) of_elements: bool,
    /// True if the result is discontinuous and the reduction has one dim.
    pub(super) of_exact: bool,
}

pub(super) const SUM: Reduction = Reduction {
    text: "sum({}, {dims})",
    bound: added,
    has_extremes: false,
    of_elements: false,
    of_exact: false,
};
pub(super) const MEAN: Reduction = Reduction {
    text: "mean({}, {dims})",
    bound: |x, _, roundings| Bound { max: x.max, error: x.error + (roundings + 2.0) * x.max },
    ..SUM
};
pub(super) const MAX: Reduction =
    Reduction { text: "max({}, {dims})", bound: |x, _, _| x, has_extremes: true, ..SUM };
pub(super) const MIN: Reduction = Reduction { text: "min({}, {dims})", ..MAX };
pub(super) const SOFTMAX: Reduction = Reduction {
    text: "softmax({}, {dims})",
    bound: |x, _, roundings| Bound { max: 1.0, error: 2.0 * x.error + 4.0 * x.max + roundings + 16.0 },
    of_elements: true,
    ..MAX
};

/// Reductions along `C` alone.
pub(super) const OF_FEW: &[Reduction] = &[SUM, SUM, MEAN, MAX, MIN, SOFTMAX];

/// Reductions along dims of any extent.
pub(super) const REDUCTIONS: &[Reduction] = &[
    // A factor limits the sum of thousands of elements. It is a power of two, so that the product is exact.
    Reduction {
        text: "sum({} * 0.03125, {dims})",
        bound: |x, count, roundings| {
            added(Bound { max: x.max / 32.0, error: x.error / 32.0 }, count, roundings)
        },
        ..SUM
    },
    MEAN,
    MAX,
    MIN,
    SOFTMAX,
    // Factors are at most 1, so none of them enlarges the error of another.
    Reduction {
        text: "prod(clamp({}, -1.0, 1.0), {dims})",
        bound: |x, count, roundings| Bound { max: 1.0, error: count as f64 * x.error + roundings },
        ..SUM
    },
    // The variance of one element is NaN, as it should be.
    Reduction {
        text: "var({}, {dims})",
        bound: |x, _, roundings| {
            let (away, error) = (2.0 * x.max, 2.0 * x.error + (roundings + 4.0) * x.max);
            let max = 2.0 * away * away;
            Bound { max, error: 4.0 * away * error + (roundings + 4.0) * max }
        },
        ..SUM
    },
    Reduction {
        text: "logsumexp({}, {dims})",
        bound: |x, count, roundings| {
            let max = x.max + (count as f64).ln();
            Bound { max, error: x.error + 4.0 * x.max + roundings + 4.0 * max + 16.0 }
        },
        ..MAX
    },
    // Places as small numbers, so that they stay within the limits.
    Reduction {
        text: "(argmax({}, {dims}) & 63) as f32 * 0.0625",
        bound: |_, _, _| Bound { max: 4.0, error: 0.0 },
        of_exact: true,
        ..MAX
    },
];

/// Returns the bound of a sum or difference.
pub(super) fn sum(x: Bound, y: Bound) -> Bound {
    let max = x.max + y.max;
    Bound { max, error: x.error + y.error + max }
}

/// Returns the bound of one of two values.
pub(super) fn either(x: Bound, y: Bound) -> Bound {
    Bound { max: x.max.max(y.max), error: x.error.max(y.error) }
}

/// Returns the bound of the sum of `count` values, each of which takes part in `roundings` additions.
pub(super) fn added(x: Bound, count: usize, roundings: f64) -> Bound {
    let max = count as f64 * x.max;
    Bound { max, error: count as f64 * x.error + roundings * max }
}
