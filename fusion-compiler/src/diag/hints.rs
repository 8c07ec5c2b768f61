//! Hints for names that users know from PyTorch, NumPy and JAX: the equivalent in this language.
//!
//! Invariant: all code between backquotes compiles (`check/tests/hints.rs`).

mod functions;

pub(crate) use self::functions::{FUNCTIONS, LATER};
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

/// Returns the substitute for a function that a later version of the language will have.
pub(crate) fn later(name: &str) -> Option<&'static str> {
    find(LATER, name)
}

/// Returns the equivalent of a word that is a value in other languages.
pub(crate) fn word(name: &str) -> Option<&'static str> {
    find(WORDS, name)
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
    (&["layer_norm", "rms_norm"], &["normalized_shape"], "dims are passed by name, as in `layer_norm(x, D)`"),
    (
        &["layer_norm", "rms_norm", "group_norm", "batch_norm"],
        &["elementwise_affine", "affine"],
        "scale and shift are written out, as in `layer_norm(x, D) * g + b`",
    ),
    (&["div"], &["rounding_mode"], "`floor_div(x, y)` rounds down, and `trunc(x / y)` towards 0"),
    (&["round"], &["decimals"], "two decimals are `round(x * 100.0) / 100.0`"),
    (&["add", "sub"], &["alpha"], "it is written out, as in `x + value * a`"),
    (
        &["bce_with_logits"],
        &["pos_weight"],
        "it is `mean((1.0 - y) * x + (1.0 + (w - 1.0) * y) * softplus(-x))`",
    ),
    (&["kl_div"], &["log_target"], "with logarithms in both it is `mean(exp(y) * (y - x))`"),
    (&[], &["initial"], "it is written out, as in `max(max(x, D), 0.0)`"),
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
    (&["matmul"], "a bias is added, as in `matmul(x, w, K) + b`"),
];

pub(crate) const WORDS: &[Hint] = &[(
    &["None", "null", "nil"],
    "an argument that has a default is left out, and one bound alone is `max(x, low)` or `min(x, high)`",
)];

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
