//! Random functions that update elements and values of rows in place agree with the reference, fused and
//! unfused. Rows have a fixed length.

use std::fmt::Write;

use fusion_compiler::ir::graph::{Fusing, Graph};

use super::{check_graph, graph};

/// Pseudo-random numbers, the same in every run (Knuth's generator, as in Numerical Recipes).
struct Random(u32);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 16) as usize % end
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// A value: its name, and its dependence on `B` and on `K`.
#[derive(Clone)]
struct Value(String, [bool; 2]);

/// Parameters with names, types and dims. The function may also write the first three.
const PARAMS: [(&str, &str, [bool; 2]); 5] = [
    ("p", "f32[B, K]", [true, true]),
    ("u", "f32[B]", [true, false]),
    ("w", "f32[B]", [true, false]),
    ("g", "f32[B, K]", [true, true]),
    ("c", "f32[K]", [false, true]),
];

/// Lengths of a row: of parts of a vector, of a warp, of a block and of a cluster.
const LENGTHS: [usize; 6] = [3, 31, 64, 256, 700, 5000];

/// Returns an expression of other values, with a magnitude of at most a few units.
fn made(random: &mut Random, values: &[Value]) -> (String, [bool; 2]) {
    let [Value(x, x_dims), Value(y, y_dims)] = [0, 1].map(|_| random.pick(values).clone());
    let both = [x_dims[0] || y_dims[0], x_dims[1] || y_dims[1]];
    match random.below(10) {
        0 => (format!("0.5 * {x} + {y}"), both),
        1 => (format!("tanh({x} - {y})"), both),
        2 => (format!("max({x}, {y})"), both),
        3 => (format!("if index(B) % 3 == 1 {{ {x} }} else {{ {y} }}"), [true, both[1]]),
        4 => (format!("{x} / (1.0 + abs({y}))"), both),
        5 if x_dims[1] => (format!("mean({x}, K)"), [x_dims[0], false]),
        6 if x_dims[1] => (format!("max(abs({x}), K)"), [x_dims[0], false]),
        7 if x_dims[1] => (format!("{x} / (1.0 + sqrt(mean({x} * {x}, K)))"), x_dims),
        8 if x_dims[1] => (format!("flip({x}, K)"), x_dims),
        _ => (format!("abs({x}) - 0.25 * {y}"), both),
    }
}

/// Returns the function of a seed.
fn function(seed: u32) -> String {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9));
    let len = *random.pick(&LENGTHS);
    let mut values: Vec<Value> = PARAMS.iter().map(|&(name, _, dims)| Value(name.into(), dims)).collect();
    let mut body = String::new();
    for i in 0..2 + random.below(8) {
        let (text, dims) = made(&mut random, &values);
        writeln!(body, "    let v{i} = {text};").expect("a string grows");
        values.push(Value(format!("v{i}"), dims));
    }
    // Assigned and returned values come from existing ones, with a preference for recent ones.
    let latest = |random: &mut Random, within: [bool; 2]| {
        let fits = |value: &&Value| (within[0] || !value.1[0]) && (within[1] || !value.1[1]);
        let fitting: Vec<&Value> = values.iter().filter(fits).collect();
        let from = fitting.len().saturating_sub(4);
        (*random.pick(&fitting[from..])).clone()
    };
    let mut written = vec![];
    for (name, _, dims) in PARAMS.iter().take(3) {
        if random.below(3) > 0 {
            let Value(value, ..) = latest(&mut random, *dims);
            if value != *name && !written.contains(&value.as_str().to_owned()) {
                writeln!(body, "    {name} = {value};").expect("a string grows");
                written.push((*name).to_owned());
            }
        }
    }
    let Value(first, ..) = latest(&mut random, [true, true]);
    let Value(second, ..) = latest(&mut random, [true, false]);
    let is_written = |name: &str| written.iter().any(|other| other == name);
    let params =
        PARAMS.map(|(name, ty, _)| format!("{name}: {}{ty}", if is_written(name) { "&mut " } else { "" }));
    let params = params.join(", ").replacen('K', &format!("K = {len}"), 1);
    // Each parameter is used, and each result has its dims.
    let all = "0.0 * (p + u + w + g + c)";
    format!(
        "pub fn f({params}) -> (f32[B, K], f32[B]) {{\n{body}    ({first} + {all}, {second} + 0.0 * u)\n}}"
    )
}

#[test]
fn any_function_agrees_fused_and_not() {
    let wanted = std::env::var("FUSION_CASES").ok().and_then(|cases| cases.parse().ok());
    for seed in 0..wanted.unwrap_or(24) {
        let source = function(seed);
        let fused = graph(&source);
        let off = Graph { fusing: Fusing::Off, ..fused.clone() };
        assert_eq!(fused.symbols, ["B"], "{source}");
        let extents: [&[i64]; 4] = [&[1], &[5], &[33], &[70]];
        check_graph(&fused, &source, &extents, 1e-5);
        check_graph(&off, &format!("#[fuse(off)]\n{source}"), &extents, 1e-5);
    }
}
