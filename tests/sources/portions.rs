//! Random functions whose parameters have portions of a dim agree with the reference, fused and unfused.

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

/// A value: its name, its dependence on `B` and on `K`, and a flag that is true if it comes from a portion.
#[derive(Clone)]
struct Value(String, [bool; 2], bool);

/// Parameters with names, types, dims and portions. The function may also write them.
const PARAMS: [(&str, &str, [bool; 2], bool); 7] = [
    ("p", "f32[B, K]", [true, true], false),
    ("a", "f32[B: ..L, K]", [true, true], true),
    ("b", "f32[B: L.., K]", [true, true], true),
    ("u", "f32[B: ..L]", [true, false], true),
    ("w", "f32[B: L..]", [true, false], true),
    ("g", "f32[B, K]", [true, true], false),
    ("c", "f32[K]", [false, true], false),
];

/// Returns an expression of other values, with a magnitude of at most a few units.
fn made(random: &mut Random, values: &[Value]) -> (String, [bool; 2], bool) {
    let [Value(x, x_dims, x_part), Value(y, y_dims, y_part)] = [0, 1].map(|_| random.pick(values).clone());
    let both = [x_dims[0] || y_dims[0], x_dims[1] || y_dims[1]];
    let part = x_part || y_part;
    let along_rows = [true, both[1]];
    match random.below(13) {
        0 => (format!("0.5 * {x} + {y}"), both, part),
        1 => (format!("tanh({x} - {y})"), both, part),
        2 => (format!("max({x}, {y})"), both, part),
        3 => (format!("if index(B) < L {{ {x} }} else {{ {y} }}"), along_rows, part),
        4 => (format!("if index(B) >= L {{ tanh({x}) }} else {{ abs({y}) }}"), along_rows, part),
        5 => (format!("if L > index(B) {{ {x} - {y} }} else {{ {y} }}"), along_rows, part),
        6 => (format!("if L <= index(B) || index(B) % 3 == 1 {{ {x} }} else {{ {y} }}"), along_rows, part),
        7 => (format!("{x} / (1.0 + abs({y}))"), both, part),
        8 if x_dims[1] => (format!("mean({x}, K)"), [x_dims[0], false], x_part),
        9 if x_dims[1] => (format!("max(abs({x}), K)"), [x_dims[0], false], x_part),
        10 if x_dims[1] => (format!("{x} / (1.0 + sqrt(mean({x} * {x}, K)))"), x_dims, x_part),
        11 if x_dims[0] && !x_part => (format!("mean({x}, B)"), [false, x_dims[1]], false),
        12 if x_dims[1] => (format!("flip({x}, K)"), x_dims, x_part),
        _ => (format!("abs({x}) - 0.25 * {y}"), both, part),
    }
}

/// Returns the function of a seed.
fn function(seed: u32) -> String {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9));
    let mut values: Vec<Value> =
        PARAMS.iter().map(|&(name, _, dims, part)| Value(name.into(), dims, part)).collect();
    let mut body = String::new();
    for i in 0..2 + random.below(8) {
        let (text, dims, part) = made(&mut random, &values);
        writeln!(body, "    let v{i} = {text};").expect("a string grows");
        values.push(Value(format!("v{i}"), dims, part));
    }
    // Assigned and returned values come from existing ones, with a preference for recent ones.
    let latest = |random: &mut Random, within: [bool; 2]| {
        let fits = |value: &&Value| (within[0] || !value.1[0]) && (within[1] || !value.1[1]);
        let fitting: Vec<&Value> = values.iter().filter(fits).collect();
        let from = fitting.len().saturating_sub(4);
        (*random.pick(&fitting[from..])).clone()
    };
    let mut written = vec![];
    for (name, _, dims, _) in PARAMS.iter().take(5) {
        if random.below(3) > 0 {
            let Value(value, ..) = latest(&mut random, *dims);
            if value != *name && !written.contains(&value.as_str().to_owned()) {
                writeln!(body, "    {name} = {value};").expect("a string grows");
                written.push((*name).to_owned());
            }
        }
    }
    let Value(first, ..) = latest(&mut random, [true, true]);
    let Value(second, ..) = latest(&mut random, [true, true]);
    let is_written = |name: &str| written.iter().any(|other| other == name);
    let params =
        PARAMS.map(|(name, ty, ..)| format!("{name}: {}{ty}", if is_written(name) { "&mut " } else { "" }));
    // Each parameter is used, and each result has its dims.
    let all = "0.0 * (p + a + b + u + w + g + c)";
    let params = params.join(", ");
    format!(
        "pub fn f({params}) -> (f32[B, K], f32[K, B]) {{\n{body}    ({first} + {all}, {second} + {all})\n}}"
    )
}

#[test]
fn any_function_agrees_fused_and_not() {
    let wanted = std::env::var("FUSION_CASES").ok().and_then(|cases| cases.parse().ok());
    for seed in 0..wanted.unwrap_or(24) {
        let source = function(seed);
        let fused = graph(&source);
        let off = Graph { fusing: Fusing::Off, ..fused.clone() };
        // Symbols are in the order in which the parameters name them: `B`, `K`, `L`.
        assert_eq!(fused.symbols, ["B", "K", "L"], "{source}");
        let extents: [&[i64]; 6] =
            [&[1, 4, 0], &[5, 1, 5], &[7, 8, 3], &[33, 31, 32], &[70, 256, 1], &[3, 700, 2]];
        check_graph(&fused, &source, &extents, 1e-5);
        check_graph(&off, &format!("#[fuse(off)]\n{source}"), &extents, 1e-5);
    }
}

/// Inner dims of a portion may be split, merged and renamed, because they do not move along the cut dim.
#[test]
fn inner_dims_are_split_merged_and_renamed() {
    let extent = |name: &String| match name.as_str() {
        "B" => 7,
        "L" => 3,
        "H" => 2,
        "D" | "T" => 5,
        "C" => 10,
        "K" => 20,
        other => panic!("`{other}` has no extent here"),
    };
    for source in [
        "pub fn f(a: f32[B: ..L, K], p: f32[B]) -> f32[B, H, 10] { split(a, K -> (H, 10)) * p }",
        "pub fn f(a: f32[B: L.., K], p: f32[B, K], q: f32[L]) -> f32[B, H, 10] { split(a + p, K -> (H, 10)) * sum(q, L) }",
        "pub fn f(a: f32[B: ..L, C, T], p: f32[B]) -> f32[B, C, T] { group_norm(a, C, 2, T) * p }",
        "pub fn f(a: f32[B: ..L, C], p: f32[B, H, D]) -> f32[B, C] { a + merge(p, (H, D) -> C) }",
        "pub fn f(a: &mut f32[B: ..L, C], p: f32[B, H, D]) { a = merge(p, (H, D) -> C); }",
        "pub fn f(a: &mut f32[B: L.., K], p: f32[B], q: f32[L]) { a = merge(2.0 * split(a, K -> (H, 10)), (H, 10) -> K) + p * sum(q, L); }",
        "pub fn f(p: &mut f32[B, C], a: &mut f32[B: ..L, C], g: f32[B, H, D]) { p = p - merge(g, (H, D) -> C); a = a * 2.0; }",
        "pub fn f(a: f32[B: ..L, K], p: f32[B]) -> f32[B, J] { rename(a, K -> J) * p }",
        "pub fn f(a: f32[B: ..L, C], p: f32[B]) -> f32[B, C, J] { a * rename(a, C -> J) * p }",
    ] {
        let fused = graph(source);
        let extents: Vec<i64> = fused.symbols.iter().map(extent).collect();
        check_graph(&fused, source, &[&extents], 1e-5);
        let off = Graph { fusing: Fusing::Off, ..fused };
        check_graph(&off, &format!("#[fuse(off)]\n{source}"), &[&extents], 1e-5);
    }
}
