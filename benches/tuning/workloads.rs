//! The workloads that tuning constants of the CPU are measured on, and the choices that are compared.

use fusion_compiler::expand;
use fusion_compiler::ir::plan::Target;
use proc_macro2::{Ident, Span};

/// A function, the extents of its `f32` arguments and those of its result.
struct Workload {
    name: &'static str,
    /// The function `f`.
    source: &'static str,
    inputs: &'static [&'static [usize]],
    output: &'static [usize],
}

const fn workload(
    name: &'static str,
    source: &'static str,
    inputs: &'static [&'static [usize]],
    output: &'static [usize],
) -> Workload {
    Workload { name, source, inputs, output }
}

const LARGE: usize = 1 << 24;
const SMALL: usize = 1 << 16;

const WORKLOADS: [Workload; 25] = [
    workload(
        "gate",
        "pub fn f(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] { relu(a + b) * c }",
        &[&[SMALL], &[SMALL], &[SMALL]],
        &[SMALL],
    ),
    workload(
        "gate, large",
        "pub fn f(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] { relu(a + b) * c }",
        &[&[LARGE], &[LARGE], &[LARGE]],
        &[LARGE],
    ),
    workload("gelu_tanh", "pub fn f(x: f32[N]) -> f32[N] { gelu_tanh(x) }", &[&[SMALL]], &[SMALL]),
    workload("gelu", "pub fn f(x: f32[N]) -> f32[N] { gelu(x) }", &[&[SMALL]], &[SMALL]),
    workload("tanh", "pub fn f(x: f32[N]) -> f32[N] { tanh(x) }", &[&[SMALL]], &[SMALL]),
    workload("exp", "pub fn f(x: f32[N]) -> f32[N] { exp(x) }", &[&[SMALL]], &[SMALL]),
    workload(
        "swiglu",
        "pub fn f(x: f32[N], y: f32[N]) -> f32[N] { silu(x) * y }",
        &[&[SMALL], &[SMALL]],
        &[SMALL],
    ),
    workload(
        "chain",
        "pub fn f(x: f32[N], y: f32[N]) -> f32[N] {
            let t = tanh(x * 0.5 + y);
            let s = sqrt(t * t + 1.0);
            tanh(exp(-s) * y + x) * s
        }",
        &[&[SMALL], &[SMALL]],
        &[SMALL],
    ),
    workload("column sum", "pub fn f(x: f32[N, D]) -> f32[D] { sum(x, N) }", &[&[256, 1024]], &[1024]),
    workload(
        "column sum, large",
        "pub fn f(x: f32[N, D]) -> f32[D] { sum(x, N) }",
        &[&[8192, 4096]],
        &[4096],
    ),
    workload(
        "product of a row",
        "pub fn f(x: f32[N], y: f32[N, D]) -> f32[D] { sum(x * y, N) }",
        &[&[4096], &[4096, 4096]],
        &[4096],
    ),
    workload(
        "column sum of silu",
        "pub fn f(x: f32[N, D], y: f32[D]) -> f32[D] { sum(silu(x * y), N) }",
        &[&[256, 1024], &[1024]],
        &[1024],
    ),
    workload(
        "column softmax",
        "pub fn f(x: f32[N, D]) -> f32[N, D] { softmax(x, N) }",
        &[&[256, 1024]],
        &[256, 1024],
    ),
    workload(
        "column sum of a gate",
        "pub fn f(x: f32[N, D], y: f32[D]) -> f32[D] { sum(relu(x * y - 0.5) * (x + 1.0), N) }",
        &[&[256, 1024], &[1024]],
        &[1024],
    ),
    workload("sum of 8", "pub fn f(x: f32[N, 8]) -> f32[N] { sum(x, 8) }", &[&[1 << 16, 8]], &[1 << 16]),
    workload("sum of 12", "pub fn f(x: f32[N, 12]) -> f32[N] { sum(x, 12) }", &[&[1 << 16, 12]], &[1 << 16]),
    workload("sum of 16", "pub fn f(x: f32[N, 16]) -> f32[N] { sum(x, 16) }", &[&[1 << 16, 16]], &[1 << 16]),
    workload(
        "bias, rows of 24",
        "pub fn f(x: f32[N, D], b: f32[D]) -> f32[N, D] { relu(x + b) }",
        &[&[8192, 24], &[24]],
        &[8192, 24],
    ),
    workload(
        "bias, rows of 80",
        "pub fn f(x: f32[N, D], b: f32[D]) -> f32[N, D] { relu(x + b) }",
        &[&[4096, 80], &[80]],
        &[4096, 80],
    ),
    workload(
        "affine, rows of 24",
        "pub fn f(x: f32[N, D], b: f32[D], s: f32[N]) -> f32[N, D] { (x + b) * s }",
        &[&[8192, 24], &[24], &[8192]],
        &[8192, 24],
    ),
    workload(
        "affine, rows of 48",
        "pub fn f(x: f32[N, D], b: f32[D], s: f32[N]) -> f32[N, D] { (x + b) * s }",
        &[&[4096, 48], &[48], &[4096]],
        &[4096, 48],
    ),
    workload(
        "layer norm",
        "pub fn f(x: f32[N, D], g: f32[D], b: f32[D]) -> f32[N, D] { layer_norm(x, D) * g + b }",
        &[&[4096, 768], &[768], &[768]],
        &[4096, 768],
    ),
    workload(
        "log softmax",
        "pub fn f(x: f32[N, D]) -> f32[N, D] { log_softmax(x, D) }",
        &[&[64, 50_257]],
        &[64, 50_257],
    ),
    workload(
        "layer norm of a gate",
        "pub fn f(x: f32[N, D], y: f32[N, D]) -> f32[N, D] { layer_norm(relu(x * y + 0.5) * (x - y), D) }",
        &[&[4096, 768], &[4096, 768]],
        &[4096, 768],
    ),
    workload(
        "layer norm of a chain",
        "pub fn f(x: f32[N, D], y: f32[N, D]) -> f32[N, D] {
            let t = relu(x * y + 0.5) * (x - y);
            layer_norm(max(t * t, 0.125) + min(t, x) * y, D)
        }",
        &[&[4096, 768], &[4096, 768]],
        &[4096, 768],
    ),
];

/// Choices of a constant of the CPU, the table's first, and the workloads that they are compared on.
pub(crate) struct Choices {
    pub(crate) constant: &'static str,
    pub(crate) choices: &'static [&'static str],
    pub(crate) workloads: &'static [&'static str],
}

const fn choices(
    constant: &'static str,
    choices: &'static [&'static str],
    workloads: &'static [&'static str],
) -> Choices {
    Choices { constant, choices, workloads }
}

pub(crate) const CHOICES: [Choices; 14] = [
    choices("RUN_LEN", &["4096", "1024", "16384"], &["gate", "gelu_tanh", "chain", "gelu"]),
    choices("UNROLLED_MAX", &["8", "4", "16"], &["sum of 8", "sum of 12", "sum of 16"]),
    choices(
        "COLUMN_GRAIN",
        &["4096", "512", "2048"],
        &["column sum", "column softmax", "column sum, large", "product of a row"],
    ),
    choices("COLUMN_TERMS", &["4", "2", "8"], &["column sum", "column softmax", "product of a row"]),
    choices(
        "COLUMN_STATEMENTS_MAX",
        &["24", "12", "48"],
        &["column sum", "column sum of a gate", "column sum of silu", "product of a row"],
    ),
    choices("COLLAPSED_GRAIN", &["512", "256", "1024"], &["bias, rows of 24", "affine, rows of 24"]),
    choices("ROW_MIN", &["64", "16", "128"], &["bias, rows of 24", "bias, rows of 80"]),
    choices("APART_ROW_MIN", &["32", "16", "64"], &["affine, rows of 24", "affine, rows of 48"]),
    choices("RECOMPUTED_OPS_MAX", &["8", "2", "32"], &["layer norm of a gate", "layer norm of a chain"]),
    choices("FETCH_LANES", &["256", "64", "1024"], &["gate, large", "layer norm", "log softmax"]),
    choices("CONSTANTS_MAX", &["8", "16", "32"], &["gelu", "tanh", "exp"]),
    choices("JAM_COPIES", &["4", "2", "8"], &["chain"]),
    choices("JAM_DEPTH_MIN", &["20", "10", "1000"], &["exp", "tanh", "swiglu", "gelu", "chain"]),
    choices("PREFETCH_OPS_MIN", &["8", "2", "32"], &["layer norm", "log softmax"]),
];

/// Prints a module of the workloads' functions, as this build of the compiler makes them, and a list of calls.
pub(crate) fn print(module: &str, names: &[&str]) {
    println!("pub mod {module} {{");
    for (number, name) in names.iter().enumerate() {
        let workload = WORKLOADS.iter().find(|workload| workload.name == *name);
        let Workload { source, inputs, output, .. } =
            workload.unwrap_or_else(|| panic!("no workload is called {name}"));
        let tokens = source.parse().expect("a function");
        let expansion = expand(&Ident::new("fusion", Span::call_site()), tokens, &[Target::Cpu]);
        let extents: Vec<String> = inputs.iter().map(|extents| format!("&{extents:?}")).collect();
        let args: Vec<String> = (0..inputs.len()).map(|i| format!("&x[{i}]")).collect();
        println!(
            "pub mod w{number} {{\n{}\npub const WORKLOAD: crate::Workload = crate::Workload {{ name: {name:?}, \
             inputs: &[{}], output: &{output:?}, call: |out, x| f::into(out, {}) }};\n}}",
            expansion.tokens,
            extents.join(", "),
            args.join(", "),
        );
    }
    let all: Vec<String> = (0..names.len()).map(|number| format!("w{number}::WORKLOAD")).collect();
    println!("pub const ALL: &[crate::Workload] = &[{}];\n}}", all.join(", "));
}
