//! Random attention agrees with the reference on every device.
//!
//! Heads, groups, score functions, masks, prologues and epilogues are random, and so is the order of dims.

use fusion::Device;
use fusion::kernel::{Plan, interpreted};
use fusion::run::{Arg, run};
use fusion_compiler::check::{Source, front_end};
use fusion_compiler::ir::dtype::{DType, round};
use fusion_compiler::ir::graph::{Fusing, Graph};
use fusion_compiler::ir::plan::Target;
use fusion_corpus::generate::Random;
use fusion_support::reference::{Rounding, interpret};
use rayon::prelude::*;

#[path = "../../devices/mod.rs"]
mod devices;
mod elements;

use elements::{Elements, result};

/// Number of functions.
const FUNCTIONS: u64 = 96;

/// Error of a result, relative to 1 and its size.
const TOLERANCE: f64 = 6e-5;

/// A parameter, with the letters of its dims, outermost first.
#[derive(Clone, Debug)]
struct Param {
    dtype: DType,
    dims: Vec<char>,
}

/// A random function with one attention.
#[derive(Debug)]
struct Function {
    source: String,
    extents: Vec<(char, usize)>,
    params: Vec<Param>,
    results: usize,
    /// Largest sum of weights of a row.
    weight: f64,
}

struct Writer {
    random: Random,
    extents: Vec<(char, usize)>,
    params: Vec<Param>,
}

impl Writer {
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.below(of.len())]
    }

    fn has(&self, dim: char) -> bool {
        self.extents.iter().any(|(name, _)| *name == dim)
    }

    /// Returns these of the dims that the function has, in any order.
    fn shuffled(&mut self, dims: &str) -> Vec<char> {
        let mut dims: Vec<char> = dims.chars().filter(|dim| self.has(*dim)).collect();
        for i in (1..dims.len()).rev() {
            let other = self.random.below(i + 1);
            dims.swap(i, other);
        }
        dims
    }

    fn param(&mut self, dtype: DType, dims: Vec<char>) -> String {
        self.params.push(Param { dtype, dims });
        format!("p{}", self.params.len() - 1)
    }

    /// Returns a tensor with some of these dims, whose elements are at most 1.
    fn vector(&mut self, dims: &str) -> String {
        let all = self.shuffled(dims);
        let count = 1 + self.random.below(all.len().max(1));
        self.param(DType::F32, all.into_iter().take(count).collect())
    }

    /// Returns a factor with all of these dims, perhaps computed.
    fn factor(&mut self, dims: &str) -> String {
        let dtype = self.pick(&[DType::F32, DType::F32, DType::F32, DType::F16, DType::BF16]);
        let dims_of = self.shuffled(dims);
        let name = self.param(dtype, dims_of);
        let name = if dtype == DType::F32 { name } else { format!("({name} as f32)") };
        match self.random.below(6) {
            0 => format!("({name} * {})", self.vector(dims)),
            1 => format!("tanh({name})"),
            2 => format!("({name} * 0.5 - 0.25)"),
            _ => name,
        }
    }

    /// Returns a condition on coordinates.
    fn condition(&mut self, depth: usize) -> String {
        let number = self.random.below(9);
        let constant = self.random.below(60);
        match number {
            0 | 1 if self.has('T') => "index(S) <= index(T)".into(),
            2 if self.has('T') => format!("index(S) >= index(T) - {constant}"),
            3 if self.has('T') => format!("index(T) - index(S) < {constant}"),
            4 if self.has('H') => format!("index(S) < {constant} + index(H)"),
            5 => format!("index(S) % 3 != {}", constant % 3),
            6 if depth > 0 => format!("!({})", self.condition(depth - 1)),
            7 if depth > 0 => format!("({} && {})", self.condition(depth - 1), self.condition(depth - 1)),
            8 if depth > 0 => format!("({} || {})", self.condition(depth - 1), self.condition(depth - 1)),
            _ => format!("index(S) < {constant}"),
        }
    }

    /// Returns a function of scores.
    fn score(&mut self, s: &str) -> String {
        match self.random.below(6) {
            0 => format!("{s} + {}", self.vector("HGTS")),
            1 => format!("{s} * {}", self.vector("HGT")),
            2 => format!("5.0 * tanh({s} / 5.0)"),
            3 if self.has('T') => {
                let slope = self.vector("HG");
                format!("{s} - abs({slope}) * abs(index(S) - index(T)) as f32 * 0.1")
            }
            4 => format!("0.5 * {s}"),
            _ => format!("{s} - {}", self.vector("GS")),
        }
    }

    fn finish(mut self) -> Function {
        let depth = if self.has('D') { 'C' } else { 'E' };
        let values = if self.has('D') { 'D' } else { 'E' };
        // Groups of queries share keys, and heads may share them, too.
        let of_keys = if self.random.one_in(4) { String::new() } else { "H".to_owned() };
        let q = self.factor(&format!("HGT{depth}"));
        let k = self.factor(&format!("{of_keys}S{depth}"));
        let v = self.factor(&format!("{of_keys}S{values}"));
        let mut body = format!("    let s0 = matmul({q}, {k}, {depth}) * rsqrt({depth} as f32);\n");
        let mut scores = 0;
        for _ in 0..self.random.below(3) {
            let next = self.score(&format!("s{scores}"));
            scores += 1;
            body += &format!("    let s{scores} = {next};\n");
        }
        let s = format!("s{scores}");
        let mask = if self.random.one_in(3) { None } else { Some(self.condition(2)) };
        let (mut weight, mut has_logarithms) = (1.0, false);
        let weights = match (&mask, self.random.below(6)) {
            (Some(mask), 0 | 1) => format!("masked_softmax({s}, {mask}, S)"),
            (Some(mask), 2) => {
                weight = self.extents.iter().find(|(dim, _)| *dim == 'S').map_or(1.0, |(_, len)| *len as f64);
                format!("if {mask} {{ sigmoid({s}) }} else {{ 0.0 }}")
            }
            (mask, _) => {
                has_logarithms = self.random.one_in(2);
                // Each row sees the first key.
                let mask = mask.as_ref().map(|mask| format!("index(S) == 0 || {mask}"));
                let masked =
                    mask.map_or_else(|| s.clone(), |mask| format!("if {mask} {{ {s} }} else {{ -INF }}"));
                body += &format!("    let m = {masked};\n");
                "softmax(m, S)".into()
            }
        };
        body += &format!("    let y = matmul({weights}, {v}, S);\n");
        let all = format!("HGT{values}");
        let result = match self.random.below(5) {
            0 => format!("y + {}", self.vector(&all)),
            1 => format!("relu(y) * {}", self.vector(&all)),
            _ => "y".into(),
        };
        let mut outer = self.shuffled("HGT");
        let rows = outer.clone();
        // Seldom the columns are not innermost.
        let place = if self.random.one_in(6) { self.random.below(outer.len() + 1) } else { outer.len() };
        outer.insert(place, values);
        let text = |dims: &[char]| dims.iter().map(char::to_string).collect::<Vec<_>>().join(", ");
        let results = if has_logarithms {
            format!("(f32[{}], f32[{}])", text(&outer), text(&rows))
        } else {
            format!("f32[{}]", text(&outer))
        };
        let tail = if has_logarithms { format!("({result}, logsumexp(m, S))") } else { result };
        let params = self.params.iter().enumerate();
        let params: Vec<String> =
            params.map(|(i, of)| format!("p{i}: {}[{}]", of.dtype.name(), text(&of.dims))).collect();
        let source = format!("pub fn f({}) -> {results} {{\n{body}    {tail}\n}}", params.join(", "));
        let results = 1 + usize::from(has_logarithms);
        Function { source, extents: self.extents, params: self.params, results, weight }
    }
}

impl Function {
    fn new(seed: u64) -> Function {
        let mut random = Random(seed ^ 0xa77e_0710);
        let mut extents = Vec::new();
        let mut add = |random: &mut Random, dim: char, of: &[usize]| {
            extents.push((dim, of[random.below(of.len())]));
        };
        let choice = random.below(8);
        if choice != 0 {
            add(&mut random, 'H', &[1, 2, 3]);
        }
        if choice < 3 {
            add(&mut random, 'G', &[2, 3]);
        }
        if choice != 1 {
            add(&mut random, 'T', &[1, 3, 16, 17, 50, 65, 130]);
        }
        add(&mut random, 'S', &[1, 5, 33, 64, 200, 257, 300, 1100]);
        if random.one_in(3) {
            add(&mut random, 'E', &[1, 8, 24, 65]);
        } else {
            add(&mut random, 'C', &[1, 4, 16, 33, 64]);
            add(&mut random, 'D', &[1, 3, 8, 40, 64, 70]);
        }
        Writer { random, extents, params: vec![] }.finish()
    }

    fn graph(&self) -> Graph {
        match front_end(self.source.parse().expect("tokens")) {
            Ok(Source::Items(mut functions, _)) => functions.remove(0).graph,
            mistaken => panic!("{}\n{mistaken:?}", self.source),
        }
    }

    fn extent(&self, name: char) -> usize {
        self.extents.iter().find(|(dim, _)| *dim == name).map_or(1, |(_, extent)| *extent)
    }

    fn shape(&self, param: &Param) -> Vec<usize> {
        param.dims.iter().map(|&dim| self.extent(dim)).collect()
    }

    fn values(&self, seed: u64) -> Vec<Vec<f64>> {
        let mut random = Random(seed);
        let mut elements = |param: &Param| {
            let count: usize = self.shape(param).iter().product();
            (0..count).map(|_| round(param.dtype, random.signed())).collect()
        };
        self.params.iter().map(&mut elements).collect()
    }

    fn symbols(&self, graph: &Graph) -> Vec<i64> {
        let extent = |name: &String| self.extent(name.chars().next().expect("a letter")) as i64;
        graph.symbols.iter().map(extent).collect()
    }

    fn execute(&self, plan: &Plan, values: &[Vec<f64>], device: &Device) -> Vec<Vec<f64>> {
        let tensors: Vec<Elements> = self
            .params
            .iter()
            .zip(values)
            .map(|(param, values)| Elements::new(device, param.dtype, values, &self.shape(param)))
            .collect();
        let mut args: Vec<Arg<'_>> = tensors.iter().map(Elements::arg).collect();
        let returned = match self.results {
            1 => run::<1>(plan, &mut args).map(Vec::from),
            _ => run::<2>(plan, &mut args).map(Vec::from),
        };
        let returned = returned.unwrap_or_else(|error| panic!("{error}\n{}", self.source));
        returned.into_iter().map(result).collect()
    }

    #[track_caller]
    fn check(&self, what: &str, got: &[Vec<f64>], expect: &[Vec<f64>]) {
        for (i, (got, expect)) in got.iter().zip(expect).enumerate() {
            assert_eq!(got.len(), expect.len(), "{what}\n{}", self.source);
            for (at, (&x, &y)) in got.iter().zip(expect).enumerate() {
                let bound = TOLERANCE * (1.0 + y.abs()) * self.weight;
                assert!(
                    (x - y).abs() <= bound || x.is_nan() && y.is_nan(),
                    "{what}: {at} of result {i} is {x}, not {y} ± {bound:e}, with {:?}\n{}",
                    self.extents,
                    self.source
                );
            }
        }
    }
}

fn plan(graph: Graph, targets: &[Target]) -> Plan {
    interpreted(fusion_compiler::compile(graph, targets, &|_| (0, 0)))
}

fn is_attention(plan: &Plan) -> bool {
    plan.summary.groups.iter().any(|group| group.hero.contains("attention"))
}

#[test]
fn random_attention_agrees_with_the_reference() {
    let count = (0..FUNCTIONS)
        .into_par_iter()
        .map(|seed| {
            let function = Function::new(seed);
            let graph = function.graph();
            let off = Graph { fusing: Fusing::Off, ..graph.clone() };
            let values = function.values(seed);
            let expect = interpret(&graph, &values, &function.symbols(&graph), Rounding::None);
            let fused = plan(graph, &[Target::Cpu]);
            for (what, plan) in [("fused", &fused), ("unfused", &plan(off, &[Target::Cpu]))] {
                function.check(what, &function.execute(plan, &values, &Device::cpu()), &expect);
            }
            u64::from(is_attention(&fused))
        })
        .sum::<u64>();
    // Results whose columns are not innermost are other kernels.
    assert!(count >= FUNCTIONS / 2, "{count} of {FUNCTIONS} functions are attention");
}

/// A few functions suffice, because simulated GPUs are slow.
#[test]
fn random_attention_agrees_on_gpus() {
    let mut count = 0;
    for seed in 0..FUNCTIONS / 3 {
        let function = Function::new(seed);
        let graph = function.graph();
        let values = function.values(seed);
        let expect = interpret(&graph, &values, &function.symbols(&graph), Rounding::None);
        let fused = plan(graph, &Target::ALL);
        count += u64::from(is_attention(&fused));
        for (kind, device) in devices::devices() {
            if kind != devices::Kind::Cpu {
                let got = function.execute(&fused, &values, &device);
                function.check(&device.to_string(), &got, &expect);
            }
        }
    }
    assert!(count >= FUNCTIONS / 6, "{count} functions are attention");
}
