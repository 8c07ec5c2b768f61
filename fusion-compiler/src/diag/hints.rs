//! Hints for names that users know from PyTorch, NumPy and JAX: the equivalent in this language.
//!
//! Invariant: all code between backquotes compiles (`check/tests/hints.rs`).

use super::Message;
use crate::ir::dtype::DType;

/// Hint: the names it is for, and its text.
type Hint = (&'static [&'static str], &'static str);

/// Hint for an argument: the functions it is for, none of which means all, the argument's names, and the text.
type ArgumentHint = (&'static [&'static str], &'static [&'static str], &'static str);

/// Returns the equivalent of a function that the language lacks.
pub(crate) fn function(name: &str) -> Option<&'static str> {
    find(FUNCTIONS, name)
}

/// Returns the equivalent of an argument of this name. `function` is the one that it is passed to.
pub(crate) fn argument(function: &str, name: &str) -> Option<&'static str> {
    let is_for = |(functions, names, _): &&ArgumentHint| {
        (functions.is_empty() || functions.contains(&function)) && names.contains(&name)
    };
    let own = ARGUMENTS.iter().find(is_for).map(|(_, _, how)| *how);
    own.or_else(|| more(function).filter(|_| SCALES.contains(&name)))
}

/// Returns the message for a named argument of a function whose arguments have no names.
pub(crate) fn named_argument(function: &str, name: &str) -> Message {
    match argument(function, name) {
        Some(how) => super::argument_otherwise(function, name, how),
        None => super::named_argument(function, name),
    }
}

/// Suggests a dtype, or one of `others`, for an unknown name.
pub(crate) fn near_dtype(name: &str, others: &[&'static str]) -> String {
    let meant = match name {
        // Names of similar types in Rust and PyTorch.
        "i64" | "int" | "long" | "isize" => "i32",
        "u64" | "uint" => "u32",
        "float" => "f32",
        "double" => "f64",
        "half" => "f16",
        name => {
            return super::did_you_mean(name, DType::STORAGE.map(DType::name).iter().chain(others).copied());
        }
    };
    format!(": did you mean `{meant}`?")
}

/// Returns how to get several values from a function that returns a tuple in other libraries.
pub(crate) fn several(name: &str) -> Option<&'static str> {
    find(SEVERAL, name)
}

/// Returns the equivalent of additional arguments to a function of this name.
pub(crate) fn more(name: &str) -> Option<&'static str> {
    find(MORE, name)
}

/// Returns the hint for an argument that takes one number, where the given value has dims or is a truth value.
pub(crate) fn number(function: &str, argument: &str) -> &'static str {
    match argument {
        "correction" => "it is 1 unless given, and `correction = 0` for a whole population",
        "label_smoothing" => "a weight for each class is `weight = w`",
        _ => more(function).unwrap_or("it is the same for all elements"),
    }
}

/// Returns the equivalent of a field of this name.
pub(crate) fn field(name: &str) -> Option<&'static str> {
    find(FIELDS, name)
}

fn find(hints: &[Hint], name: &str) -> Option<&'static str> {
    hints.iter().find(|(names, _)| names.contains(&name)).map(|(_, how)| *how)
}

pub(crate) const FUNCTIONS: &[Hint] = &[
    // Shapes.
    (
        &["transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "rearrange", "t"],
        "the dims of a result are in the order in which it declares them, as in `-> f32[M, N]`",
    ),
    (
        &["reshape", "view", "flatten", "unflatten", "ravel", "view_as", "reshape_as"],
        "`split(x, C -> (H, D))` has several dims for one, and `merge(x, (H, D) -> C)` one for several",
    ),
    (
        &["unsqueeze", "squeeze", "expand", "expand_as", "expand_dims", "broadcast_to", "repeat", "tile"],
        "values meet by the names of their dims, and one that lacks a dim has the same along it",
    ),
    (
        &["stack", "vstack", "dstack", "column_stack"],
        "a dim of its own chooses, as in `if index(S) == 0 { x } else { y }` with `S = 2` in the result",
    ),
    (
        &["cat", "concatenate", "hstack"],
        "`concat((x, A), (y, B) -> D)` puts values one after another along a dim",
    ),
    (
        &["chunk", "chunks", "tensor_split", "array_split", "hsplit", "vsplit"],
        "`slice(x, D -> H, 0..D / 2)` is the first half, and `slice(x, D -> H, D / 2..)` the second",
    ),
    (&["unbind", "unstack"], "`at(x, D, 0)` has the elements at one position"),
    (&["narrow", "dynamic_slice"], "`slice(x, D -> K, 1..D)` has the elements of a range"),
    (&["fliplr", "flipud", "reverse"], "`flip(x, D)` has the last first"),
    (&["diff"], "it is `slice(x, T -> S, 1..) - slice(x, T -> S, ..T - 1)`"),
    (&["glu"], "it is `slice(x, D -> H, 0..D / 2) * sigmoid(slice(x, D -> H, D / 2..))`"),
    // Products.
    (
        &[
            "matmul",
            "mm",
            "bmm",
            "mv",
            "dot",
            "vdot",
            "inner",
            "einsum",
            "tensordot",
            "linear",
            "addmm",
            "baddbmm",
        ],
        "a product is summed along the dims that are named, as in `sum(x * w, K)`",
    ),
    (&["outer"], "it is `x * y` of values whose dims have different names"),
    // Values without arguments, and functions of coordinates.
    (
        &[
            "zeros",
            "zeros_like",
            "new_zeros",
            "ones",
            "ones_like",
            "new_ones",
            "full",
            "full_like",
            "empty",
            "empty_like",
        ],
        "a number meets values of any dims: write it where it is used, as in `max(x, 0.0)`",
    ),
    (&["arange", "range", "linspace", "iota", "meshgrid"], "`index(N)` counts along the dim `N`"),
    (&["eye", "identity"], "it is `if index(N) == index(M) { 1.0 } else { 0.0 }`"),
    (&["trace"], "it is `sum(if index(N) == index(M) { x } else { 0.0 })`"),
    (&["one_hot"], "`if index(V) == ids { 1.0 } else { 0.0 }` has 1 where the dim `V` is at `ids`"),
    (&["tril"], "`if index(S) <= index(T) { x } else { 0.0 }` keeps the elements at and below the diagonal"),
    (&["triu"], "`if index(S) >= index(T) { x } else { 0.0 }` keeps the elements at and above the diagonal"),
    (
        &[
            "rand",
            "randn",
            "rand_like",
            "randn_like",
            "randint",
            "randperm",
            "uniform",
            "normal",
            "bernoulli",
        ],
        "random numbers come from a tensor that is passed",
    ),
    (
        &["dropout", "alpha_dropout", "feature_dropout"],
        "random numbers come from a tensor that is passed, as in `if chance < keep { x / keep } else { 0.0 }`",
    ),
    // Conditionals, and elements at other indices.
    (&["masked_fill", "masked_fill_", "choose"], "`if mask { value } else { x }` chooses for each element"),
    (&["nan_to_num"], "`if isnan(x) { 0.0 } else { x }` has 0 for NaN"),
    (
        &["gather", "take_along_dim", "take_along_axis", "index_select", "embedding"],
        "`take(x, D, ids)` has the elements at the places `ids` along `D`",
    ),
    (
        &["sort", "argsort", "topk", "kthvalue", "median", "quantile", "unique"],
        "the language has none that puts values in order; the largest is `max(x, D)`, at `argmax(x, D)`",
    ),
    // Reductions.
    (&["clamp_min"], "it is `max(x, low)`"),
    (&["clamp_max"], "it is `min(x, high)`"),
    (
        &["maximum", "fmax", "amax", "nanmax"],
        "`max` is of two values, as in `max(a, b)`, or along dims, as in `max(x, D)`",
    ),
    (
        &["minimum", "fmin", "amin", "nanmin"],
        "`min` is of two values, as in `min(a, b)`, or along dims, as in `min(x, D)`",
    ),
    (&["average"], "it is `mean(x, D)`, and with weights `sum(x * w, D) / sum(w, D)`"),
    (&["nansum"], "it is `sum(if isnan(x) { 0.0 } else { x }, D)`"),
    (&["count_nonzero"], "it is `sum(if x != 0 { 1 } else { 0 }, D)`"),
    (&["var_mean"], "they are two values, `(var(x, D), mean(x, D))`"),
    (&["std_mean"], "they are two values, `(std(x, D), mean(x, D))`"),
    (
        &["nanmean"],
        "it is `sum(if isnan(x) { 0.0 } else { x }, D) / sum(if isnan(x) { 0.0 } else { 1.0 }, D)`",
    ),
    (
        &["size", "len", "numel", "shape", "ndim"],
        "write the name of a dim, which is its extent, as in `x / N`",
    ),
    (&["ptp"], "it is `max(x, D) - min(x, D)`"),
    (&["softmin"], "it is `softmax(-x, D)`"),
    // Operators.
    (&["plus"], "it is `x + y`"),
    (&["subtract", "minus"], "it is `x - y`"),
    (&["multiply", "times"], "it is `x * y`"),
    (&["divide", "true_divide"], "it is `x / y`"),
    (&["floor_divide", "floordiv"], "it is `floor_div(x, y)`"),
    (&["mod"], "it is `remainder(x, y)` with the sign of `y`, and `x % y` with that of `x`"),
    (&["rem_euclid"], "it is `remainder(x, abs(y))`"),
    (&["div_euclid"], "for `y` above 0 it is `floor_div(x, y)`"),
    (&["mul_add"], "it is `fma(a, b, x)`, which is `a * b + x`"),
    (&["negative"], "it is `-x`"),
    (&["eq", "equal"], "it is `x == y`"),
    (&["ne", "not_equal"], "it is `x != y`"),
    (&["lt", "less"], "it is `x < y`"),
    (&["le", "less_equal"], "it is `x <= y`"),
    (&["gt", "greater"], "it is `x > y`"),
    (&["ge", "greater_equal"], "it is `x >= y`"),
    (&["logical_and"], "it is `a && b`"),
    (&["logical_or"], "it is `a || b`"),
    (&["logical_not", "bitwise_not"], "it is `!a`"),
    (&["bitwise_and"], "it is `a & b`"),
    (&["bitwise_or"], "it is `a | b`"),
    (&["bitwise_xor"], "it is `a ^ b`"),
    (&["isclose"], "it is `abs(x - y) <= 1e-8 + 1e-5 * abs(y)`"),
    (&["allclose"], "it is `all(abs(x - y) <= 1e-8 + 1e-5 * abs(y))`"),
    (&["addcmul"], "it is `x + value * a * b`"),
    (&["addcdiv"], "it is `x + value * a / b`"),
    // Types, and functions with no use here.
    (
        &["astype", "to", "type_as", "float", "double", "half", "int", "long", "cast"],
        "a cast is written `x as f32`",
    ),
    (
        &[
            "clone",
            "copy",
            "contiguous",
            "cpu",
            "cuda",
            "item",
            "numpy",
            "detach",
            "stop_gradient",
            "no_grad",
        ],
        "a function reads values where they are and has no derivatives: leave it out",
    ),
    // Elements.
    (&["ln"], "`log(x)` is the natural logarithm"),
    (&["log10"], "it is `log(x) / 2.302585092994046`"),
    (&["clip", "clip_by_value"], "`clamp(x, low, high)` keeps values within bounds"),
    (&["absolute", "fabs"], "it is `abs(x)`"),
    (&["power"], "it is `pow(x, y)`"),
    (&["reciprocal"], "it is `recip(x)`"),
    (&["frac", "fract"], "it is `x - trunc(x)`"),
    (&["rint", "round_ties_even"], "it is `round(x)`"),
    (&["fix"], "it is `trunc(x)`"),
    (&["swish"], "it is `silu(x)`"),
    (&["expit"], "it is `sigmoid(x)`"),
    (&["logit"], "it is `log(x / (1.0 - x))`"),
    (&["xlogy"], "it is `if x == 0 { 0.0 } else { x * log(y) }`"),
    (&["prelu"], "it is `if x < 0 { slope * x } else { x }`"),
    (&["celu"], "it is `max(x, 0.0) + min(expm1(x), 0.0)`"),
    (&["tanhshrink"], "it is `x - tanh(x)`"),
    (&["softshrink"], "it is `sign(x) * max(abs(x) - 0.5, 0.0)`"),
    (&["threshold"], "it is `if x > low { x } else { value }`"),
    (&["hardshrink"], "it is `if abs(x) > 0.5 { x } else { 0.0 }`"),
    (&["heaviside"], "it is `if x == 0 { y } else { if x > 0 { 1.0 } else { 0.0 } }`"),
    (&["hypot"], "it is `sqrt(x * x + y * y)`"),
    (&["deg2rad", "radians"], "it is `x * (PI / 180.0)`"),
    (&["rad2deg", "degrees"], "it is `x * (180.0 / PI)`"),
    (&["asinh", "arcsinh"], "it is `log(x + sqrt(x * x + 1.0))`"),
    (&["acosh", "arccosh"], "it is `log(x + sqrt(x * x - 1.0))`"),
    (&["atanh", "arctanh"], "it is `0.5 * log((1.0 + x) / (1.0 - x))`"),
    (&["arcsin"], "it is `asin(x)`"),
    (&["arccos"], "it is `acos(x)`"),
    (&["arctan"], "it is `atan(x)`"),
    (&["arctan2"], "it is `atan2(y, x)`"),
    // Layers and losses.
    (
        &["scaled_dot_product_attention"],
        "it is `sum(softmax(sum(q * k, K) * rsqrt(K), S) * v, S)`, with `S` for the keys and values",
    ),
    (&["instance_norm"], "it is `layer_norm(x, (H, W))`, along all dims of an instance"),
    (&["normalize"], "it is `x / max(norm(x, D), 1e-12)`"),
    (&["cosine_similarity"], "it is `sum(x * y, D) / (norm(x, D) * norm(y, D))`"),
    (&["mse_loss"], "it is `mse(x, y)`"),
    (&["l1_loss"], "it is `l1(x, y)`"),
    (&["huber_loss"], "it is `huber(x, y, delta = d)`"),
    (&["smooth_l1", "smooth_l1_loss"], "with a `beta` of `d` it is `huber(x, y, delta = d) / d`"),
    (&["binary_cross_entropy_with_logits", "bce"], "logits take `bce_with_logits(x, y)`"),
    (&["nll_loss"], "`cross_entropy(x, V, t)` is that of logits `x`, of which it takes the logarithm itself"),
];

pub(crate) const ARGUMENTS: &[ArgumentHint] = &[
    (
        &["cross_entropy", "cross_entropy_mean"],
        &["reduction", "size_average"],
        "`cross_entropy(x, V, t)` is the loss of each row, and `cross_entropy_mean(x, V, t)` the mean of all",
    ),
    (
        &["huber"],
        &["beta"],
        "it is `delta` here: `huber(x, y, delta = d) / d` is the smooth L1 loss with a `beta` of `d`",
    ),
    (&["group_norm"], &["num_groups", "groups"], "it is `G` here, as in `group_norm(x, C, G = 2)`"),
    (
        &["batch_norm"],
        &["training", "running_mean", "running_var", "momentum"],
        "statistics of the batch are `batch_norm(x, D)`, and given ones `batch_norm(x, mean, var)`",
    ),
    (&["pad"], &["mode"], "one value is added, as in `pad(x, D -> P, 1, 1, value = 0.5)`"),
    (&[], &["dim", "axis", "dims", "axes"], "a dim is passed by its name alone, like `D`"),
    (
        &[],
        &["keepdim", "keepdims"],
        "values meet by the names of their dims, as in `x - mean(x, D)`: leave it out",
    ),
    (&[], &["dtype"], "a cast is written `x as f32`"),
    (&[], &["out", "inplace"], "a `&mut` parameter is assigned to, as in `p = relu(p);`"),
    (&[], &["approximate"], "the one by tanh is `gelu_tanh(x)`"),
    (
        &[],
        &["reduction", "size_average"],
        "it is the mean of all elements, or along the dims that come after both values",
    ),
    (&[], &["p", "ord"], NORM),
    (
        &[],
        &["unbiased"],
        "leave it out for the unbiased estimate, and write `correction = 0` for a whole population",
    ),
    (&[], &["ddof"], "it is `correction` here: 1 unless given, and `correction = 0` for a whole population"),
    (&[], &["negative_slope"], "it is `slope` here, as in `leaky_relu(x, slope = 0.1)`"),
    (&[], &["min", "max", "a_min", "a_max"], "bounds are `clamp(x, low, high)`"),
];

const NORM: &str = "`norm(x, D)` is the Euclidean one; others are `sum(abs(x), D)` and `max(abs(x), D)`";

/// Names of the scale and the shift of a normalisation.
const SCALES: [&str; 6] = ["weight", "bias", "gamma", "beta", "scale", "shift"];

pub(crate) const SEVERAL: &[Hint] = &[
    (&["max"], "`max` gives the largest alone: write `let (v, i) = (max(x, D), argmax(x, D));`"),
    (&["min"], "`min` gives the smallest alone: write `let (v, i) = (min(x, D), argmin(x, D));`"),
];

pub(crate) const MORE: &[Hint] = &[
    (&["layer_norm"], "scale and shift are written out, as in `layer_norm(x, D) * g + b`"),
    (&["rms_norm"], "the scale is written out, as in `rms_norm(x, D) * g`"),
    (&["group_norm"], "scale and shift are written out, as in `group_norm(x, C, 2) * g + b`"),
    (&["batch_norm"], "scale and shift are written out, as in `batch_norm(x, D) * g + b`"),
    (&["norm"], NORM),
];

pub(crate) const FIELDS: &[Hint] = &[
    (
        &["T", "mT", "H"],
        "declare the result with its dims in that order, as in `-> f32[M, N]` of `x: f32[N, M]`",
    ),
    (&["shape", "size", "len", "numel"], "write the name of a dim, which is its extent, as in `x / N`"),
    (&["dtype"], "the types of parameters are declared, and a cast is written `x as f32`"),
    (&["values", "indices"], "`max(x, D)` is the largest value alone, and `argmax(x, D)` its place"),
    (
        &["functional", "nn", "special", "linalg", "lax", "numpy", "F"],
        "functions have no prefix: write `relu(x)`",
    ),
    (&["pi"], "the constant is `PI`, as in `x * PI`"),
    (&["inf"], "the constant is `INF`, as in `min(x, INF)`"),
    (&["nan"], "the constant is `NAN`"),
];
