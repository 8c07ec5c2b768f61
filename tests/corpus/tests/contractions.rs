//! Random contractions, some of windows, stay within the bound of their sums on every device.
//!
//! Each has random prologues and epilogues, and runs fused and with a kernel for each operation.

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
const FUNCTIONS: u64 = 160;
/// Largest number of products of a function, because the reference is slow.
const PRODUCTS_MAX: usize = 60_000;
/// Error of a sum of `f32`, relative to the sum of the magnitudes of its terms.
const RELATIVE: f64 = 3e-6;

/// The part of a dim in the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Batch,
    Row,
    Column,
    Summed,
    /// A dim of a tensor that windows move along, in place of a row or column and a summed dim.
    Along,
}

/// A dim of the function.
#[derive(Clone, Debug)]
struct Dim {
    name: char,
    role: Role,
    extent: usize,
    /// True if the function declares the extent.
    is_fixed: bool,
}

/// A parameter, with dims as indices into those of the function, outermost first.
#[derive(Clone, Debug)]
struct Param {
    dtype: DType,
    dims: Vec<usize>,
}

/// A random function with one sum of products.
#[derive(Debug)]
struct Function {
    source: String,
    dims: Vec<Dim>,
    params: Vec<Param>,
    /// Bounds of the results before they are rounded to their types.
    errors: Vec<f64>,
}

/// Text of a value, with bounds of its magnitude and its error.
#[derive(Clone, Debug)]
struct Value {
    text: String,
    max: f64,
    error: f64,
}

struct Writer {
    random: Random,
    dims: Vec<Dim>,
    params: Vec<Param>,
    /// The type of the sum, `f32` or `f64`.
    wide: DType,
}

impl Writer {
    /// Chooses dims. These of tiles have rows and columns for tiles of GPUs.
    fn new(seed: u64, is_of_tiles: bool) -> Writer {
        let mut random = Random(seed ^ 0x0c0_41ac);
        let dims = loop {
            let dims = Writer::dims(&mut random);
            let count =
                |role| dims.iter().filter(|dim| dim.role == role).map(|dim| dim.extent).product::<usize>();
            let all = dims.iter().map(|dim| dim.extent).product::<usize>();
            let has_tiles = [Role::Row, Role::Column].into_iter().all(|role| count(role) >= 32);
            if is_of_tiles && has_tiles && all <= 4 * PRODUCTS_MAX || !is_of_tiles && all <= PRODUCTS_MAX {
                break dims;
            }
        };
        let wide = if random.one_in(5) { DType::F64 } else { DType::F32 };
        Writer { random, dims, params: Vec::new(), wide }
    }

    /// Returns up to two dims of each role. A batch may be missing.
    fn dims(random: &mut Random) -> Vec<Dim> {
        let mut dims = Vec::new();
        for (role, names, extents) in [
            (Role::Batch, ['A', 'B'], &[1, 2, 3][..]),
            (Role::Row, ['M', 'O'], &[1, 2, 7, 12, 13, 25, 33, 64]),
            (Role::Column, ['N', 'P'], &[1, 3, 8, 15, 16, 31, 33, 65]),
            (Role::Summed, ['K', 'L'], &[1, 9, 16, 17, 33, 100, 255, 257, 300, 520]),
        ] {
            let count = match role {
                Role::Along => 0,
                Role::Batch => [0, 0, 1, 2][random.below(4)],
                Role::Row | Role::Column | Role::Summed => 1 + usize::from(random.one_in(3)),
            };
            for (i, name) in names.into_iter().enumerate().take(count) {
                let extent = if i == 0 { extents[random.below(extents.len())] } else { 2 + random.below(2) };
                dims.push(Dim { name, role, extent, is_fixed: random.one_in(6) });
            }
        }
        dims
    }

    /// Returns the dims of these roles in any order.
    fn shuffled(&mut self, roles: &[Role]) -> Vec<usize> {
        let mut dims: Vec<usize> =
            (0..self.dims.len()).filter(|&dim| roles.contains(&self.dims[dim].role)).collect();
        for i in (1..dims.len()).rev() {
            let other = self.random.below(i + 1);
            dims.swap(i, other);
        }
        dims
    }

    fn param(&mut self, dtype: DType, dims: Vec<usize>) -> String {
        self.params.push(Param { dtype, dims });
        format!("p{}", self.params.len() - 1)
    }

    /// Adds a parameter of the type of the sum along some dims of a value. Its elements are at most 1.
    fn vector(&mut self, roles: &[Role]) -> String {
        let mut dims = self.shuffled(roles);
        dims.truncate(1 + self.random.below(dims.len()));
        self.param(self.wide, dims)
    }

    /// Returns a factor of the product: a tensor, or a few operations on one.
    fn factor(&mut self, roles: &[Role]) -> Value {
        let mut dims = self.shuffled(roles);
        let window = self.window(roles[1], &mut dims);
        let dtypes = match self.wide {
            DType::F64 => [DType::F64, DType::F64, DType::F32, DType::U8],
            _ => [DType::F32, DType::F16, DType::BF16, DType::U8],
        };
        let dtype = dtypes[self.random.below(4)];
        let mut name = self.param(dtype, dims);
        if let Some(window) = window {
            name = format!("unfold({name}, {window})");
        }
        let max = if dtype == DType::U8 { 8.0 } else { 1.0 };
        let is_cast = dtype == DType::U8 || self.wide == DType::F64 && dtype != DType::F64;
        let text = if is_cast { format!("({name} as {})", self.wide.name()) } else { name };
        let mut value = Value { text, max, error: 0.0 };
        for _ in 0..[0, 0, 1, 2][self.random.below(4)] {
            let x = value.text;
            let (text, max) = match self.random.below(6) {
                0 => (format!("({x} * {})", self.vector(roles)), value.max),
                1 => (format!("({x} - {})", self.vector(roles)), value.max + 1.0),
                2 => (format!("({x} + 0.5)"), value.max + 0.5),
                3 => (format!("max({x}, 0.0)"), value.max),
                4 => (format!("({x} * 0.25)"), value.max * 0.25),
                _ => (self.choice(roles, &x, "0.0"), value.max),
            };
            value = Value { text, max, error: value.error + max * self.unit() };
        }
        value
    }

    /// Replaces a dim of this role and a summed dim by one that windows move along, for some factors. Returns the
    /// windows. A function has at most one such factor, since the other one declares the summed dim.
    fn window(&mut self, own: Role, dims: &mut Vec<usize>) -> Option<String> {
        let of = |role| dims.iter().copied().find(|&dim| self.dims[dim].role == role);
        let (own, taps) = of(own).zip(of(Role::Summed))?;
        let [count, length] = [own, taps].map(|dim| self.dims[dim].extent);
        let is_second = self.dims.iter().any(|dim| dim.role == Role::Along);
        if is_second || length > 33 || !self.random.one_in(3) {
            return None;
        }
        let (stride, dilation) = (1 + self.random.below(3), 1 + self.random.below(2));
        let covered = (count - 1) * stride + dilation * (length - 1) + 1;
        let before = self.random.below(covered.min(4));
        let after = self.random.below((covered - before).min(4));
        // The last window may leave elements over.
        let extent = covered - before - after + self.random.below(stride);
        dims.retain(|dim| *dim != taps);
        for dim in dims.iter_mut().filter(|dim| **dim == own) {
            *dim = self.dims.len();
        }
        self.dims.push(Dim { name: 'T', role: Role::Along, extent, is_fixed: false });
        let [own, taps] = [own, taps].map(|dim| self.dims[dim].name);
        let options = format!("stride = {stride}, padding = (({before}, {after}),), dilation = {dilation}");
        Some(format!("(T, {taps}) -> {own}, {options}"))
    }

    /// Returns a choice by the coordinates of two dims.
    fn choice(&mut self, roles: &[Role], x: &str, y: &str) -> String {
        let dims = self.shuffled(roles);
        let [a, b] = [dims[0], dims[dims.len() - 1]].map(|dim| self.dims[dim].name);
        format!("(if index({a}) <= 2 * index({b}) {{ {x} }} else {{ {y} }})")
    }

    /// Rounding error of the type of the sum.
    fn unit(&self) -> f64 {
        2.0_f64.powi(if self.wide == DType::F64 { -52 } else { -23 })
    }

    fn sum(&mut self) -> Value {
        let mut factors = [Role::Row, Role::Column].map(|own| self.factor(&[Role::Batch, own, Role::Summed]));
        if self.random.one_in(2) {
            factors.reverse();
        }
        let [x, w] = &factors;
        let summed: Vec<String> =
            self.shuffled(&[Role::Summed]).into_iter().map(|dim| self.dims[dim].name.to_string()).collect();
        let summed = match &summed[..] {
            [one] => one.clone(),
            several => format!("({})", several.join(", ")),
        };
        let count: usize =
            self.dims.iter().filter(|dim| dim.role == Role::Summed).map(|dim| dim.extent).product();
        let max = count as f64 * x.max * w.max;
        let relative = RELATIVE * self.unit() / 2.0_f64.powi(-23);
        let error = max * relative + count as f64 * (x.error * w.max + w.error * x.max);
        let text = match self.random.below(3) {
            0 => format!("matmul({}, {}, {summed})", x.text, w.text),
            1 => format!("sum({} * {}, {summed})", x.text, w.text),
            _ => {
                let s = self.vector(&[Role::Row, Role::Summed]);
                format!("sum({} * {} * {s}, {summed})", x.text, w.text)
            }
        };
        Value { text, max, error }
    }

    /// Returns an operation on the elements of the sum.
    fn step(&mut self, y: &Value) -> Value {
        let roles = [Role::Batch, Role::Row, Role::Column];
        let &Value { max, error, .. } = y;
        let y = &y.text;
        let (text, max, error) = match self.random.below(9) {
            0 | 1 => (format!("{y} + {}", self.vector(&roles)), max + 1.0, error),
            2 => (format!("{y} * {}", self.vector(&roles)), max, error),
            3 => (format!("max({y}, {})", self.vector(&roles)), max.max(1.0), error),
            4 => (format!("tanh({y})"), 1.0, error + 4.0 * self.unit()),
            5 => (format!("sigmoid({y})"), 1.0, error + 4.0 * self.unit()),
            6 => (format!("relu({y})"), max, error),
            7 => (format!("0.5 * {y} - 1.0"), max + 1.0, error),
            _ => {
                let other = self.vector(&roles);
                (self.choice(&roles, y, &other), max.max(1.0), error)
            }
        };
        Value { text, max, error: error + max * self.unit() }
    }

    fn result(&mut self) -> String {
        let dtype = match self.wide {
            DType::F64 => DType::F64,
            _ => [DType::F32, DType::F32, DType::F16, DType::BF16][self.random.below(4)],
        };
        let dims = self.shuffled(&[Role::Batch, Role::Row, Role::Column]);
        self.declare(dtype, &dims, &[])
    }

    /// Returns the type of a tensor. `fresh` are the dims whose extents it may declare.
    fn declare(&self, dtype: DType, dims: &[usize], fresh: &[usize]) -> String {
        let dim = |dim: &usize| match &self.dims[*dim] {
            Dim { name, extent, is_fixed: true, .. } if fresh.contains(dim) => format!("{name} = {extent}"),
            Dim { name, .. } => name.to_string(),
        };
        format!("{}[{}]", dtype.name(), dims.iter().map(dim).collect::<Vec<_>>().join(", "))
    }

    fn finish(mut self) -> Function {
        let sum = self.sum();
        let mut body = format!("    let y0 = {};\n", sum.text);
        let mut value = Value { text: "y0".into(), ..sum.clone() };
        for i in 1..=self.random.below(5) {
            value = self.step(&value);
            body += &format!("    let y{i} = {};\n", std::mem::replace(&mut value.text, format!("y{i}")));
        }
        let last = self.result();
        let (results, tail, errors) = if self.random.one_in(3) {
            let first = self.result();
            (format!("({first}, {last})"), format!("(y0, {})", value.text), vec![sum.error, value.error])
        } else {
            (last, value.text, vec![value.error])
        };
        let mut fresh: Vec<usize> = (0..self.dims.len()).collect();
        let params = self.params.iter().enumerate().map(|(i, Param { dtype, dims })| {
            let declared = self.declare(*dtype, dims, &fresh);
            fresh.retain(|dim| !dims.contains(dim));
            format!("p{i}: {declared}")
        });
        let params = params.collect::<Vec<_>>().join(", ");
        let source = format!("pub fn f({params}) -> {results} {{\n{body}    {tail}\n}}");
        Function { source, dims: self.dims, params: self.params, errors }
    }
}

impl Function {
    fn new(seed: u64) -> Function {
        Writer::new(seed, false).finish()
    }

    /// Returns a function whose rows and columns are enough for tiles of GPUs.
    fn of_tiles(seed: u64) -> Function {
        Writer::new(seed, true).finish()
    }

    fn graph(&self) -> Graph {
        match front_end(self.source.parse().expect("tokens")) {
            Ok(Source::Items(mut functions, _)) => functions.remove(0).graph,
            mistaken => panic!("{}\n{mistaken:?}", self.source),
        }
    }

    fn shape(&self, param: &Param) -> Vec<usize> {
        param.dims.iter().map(|&dim| self.dims[dim].extent).collect()
    }

    /// Returns elements that the types of the parameters can represent.
    fn values(&self, seed: u64) -> Vec<Vec<f64>> {
        let mut random = Random(seed);
        let mut element = |dtype| match dtype {
            DType::U8 => random.below(9) as f64,
            _ => round(dtype, random.signed()),
        };
        let mut elements =
            |param: &Param| (0..self.shape(param).iter().product()).map(|_| element(param.dtype)).collect();
        self.params.iter().map(&mut elements).collect()
    }

    fn symbols(&self, graph: &Graph) -> Vec<i64> {
        let extent =
            |name: &str| self.dims.iter().find(|dim| name.starts_with(dim.name)).expect("a dim").extent;
        graph.symbols.iter().map(|name| extent(name) as i64).collect()
    }

    fn execute(&self, plan: &Plan, values: &[Vec<f64>], device: &Device) -> Vec<Vec<f64>> {
        let tensors: Vec<Elements> = self
            .params
            .iter()
            .zip(values)
            .map(|(param, values)| Elements::new(device, param.dtype, values, &self.shape(param)))
            .collect();
        let mut args: Vec<Arg<'_>> = tensors.iter().map(Elements::arg).collect();
        let returned = match self.errors.len() {
            1 => run::<1>(plan, &mut args).map(Vec::from),
            _ => run::<2>(plan, &mut args).map(Vec::from),
        };
        let returned = returned.unwrap_or_else(|error| panic!("{error}\n{}", self.source));
        returned.into_iter().map(result).collect()
    }

    #[track_caller]
    fn check(&self, what: &str, graph: &Graph, got: &[Vec<f64>], expect: &[Vec<f64>], slack: f64) {
        for (i, (got, expect)) in got.iter().zip(expect).enumerate() {
            assert_eq!(got.len(), expect.len(), "{what}\n{}", self.source);
            // The reference rounds its result, too, so both may be off by half a unit.
            let (digits, smallest) = match graph.node(graph.outputs[i].node).dtype {
                DType::F16 => (10, 2.0_f64.powi(-24)),
                DType::BF16 => (7, 0.0),
                _ => (60, 0.0),
            };
            for (at, (&x, &y)) in got.iter().zip(expect).enumerate() {
                let error = self.errors[i] * slack;
                let bound = error + (y.abs() + error) * 2.0_f64.powi(-digits) + smallest;
                let extents: Vec<_> = self.dims.iter().map(|dim| (dim.name, dim.extent)).collect();
                assert!(
                    (x - y).abs() <= bound,
                    "{what}: {at} of result {i} is {x}, not {y} ± {bound:e}, with {extents:?}\n{}",
                    self.source
                );
            }
        }
    }
}

fn plan(graph: Graph, targets: &[Target]) -> Plan {
    interpreted(fusion_compiler::compile(graph, targets, &|_| (0, 0)))
}

#[test]
fn random_contractions_agree_with_the_reference() {
    let count = |of: bool| u64::from(of);
    let (contractions, in_blocks, windows) = (0..FUNCTIONS)
        .into_par_iter()
        .map(|seed| {
            let function = Function::new(seed);
            let graph = function.graph();
            let off = Graph { fusing: Fusing::Off, ..graph.clone() };
            let values = function.values(seed);
            let expect = interpret(&graph, &values, &function.symbols(&graph), Rounding::None);
            let fused = plan(graph.clone(), &[Target::Cpu]);
            for (what, plan) in [("fused", &fused), ("unfused", &plan(off, &[Target::Cpu]))] {
                let got = function.execute(plan, &values, &Device::cpu());
                function.check(what, &graph, &got, &expect, 1.0);
            }
            let is_contraction = fused.summary.groups.iter().any(|group| group.hero.contains("contraction"));
            let mut launches = fused.programs[0]
                .steps
                .iter()
                .flat_map(|step| step.variants.iter().flat_map(|variant| variant.launches.iter()));
            let has_windows = is_contraction && function.source.contains("unfold");
            (count(is_contraction), count(launches.any(|launch| launch.of_blocks)), count(has_windows))
        })
        .reduce(|| (0, 0, 0), |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2));
    assert!(windows >= FUNCTIONS / 16, "{windows} of {FUNCTIONS} functions are contractions of windows");
    // Sums of three factors and of few terms are reductions.
    assert!(contractions >= FUNCTIONS / 3, "{contractions} of {FUNCTIONS} functions are contractions");
    assert!(in_blocks >= FUNCTIONS / 8, "{in_blocks} of {FUNCTIONS} functions have factors in blocks");
}

/// A few functions suffice, because simulated GPUs are slow.
#[test]
fn random_contractions_agree_on_gpus() {
    let mut tiles = 0;
    for seed in 0..FUNCTIONS / 8 {
        let function = Function::of_tiles(seed);
        let graph = function.graph();
        let values = function.values(seed);
        let expect = interpret(&graph, &values, &function.symbols(&graph), Rounding::None);
        let has_doubles = graph.nodes.iter().any(|node| node.dtype == DType::F64);
        let off = plan(Graph { fusing: Fusing::Off, ..graph.clone() }, &Target::ALL);
        let fused = plan(graph.clone(), &Target::ALL);
        let is_tiled = fused.programs.iter().filter(|program| program.target == Target::Ptx).any(|program| {
            let variants = program.steps.iter().flat_map(|step| step.variants.iter());
            variants
                .flat_map(|variant| variant.launches.iter())
                .any(|launch| launch.kernel.contains("_tiles"))
        });
        tiles += u64::from(is_tiled);
        for (kind, device) in devices::devices() {
            if kind == devices::Kind::Cpu || has_doubles && kind == devices::Kind::Wgpu {
                continue;
            }
            let slack = if kind == devices::Kind::Wgpu { 8.0 } else { 1.0 };
            for (what, plan) in [("fused", &fused), ("unfused", &off)] {
                let got = function.execute(plan, &values, &device);
                function.check(&format!("{device}, {what}"), &graph, &got, &expect, slack);
            }
        }
    }
    // Other functions are reductions.
    assert!(tiles >= FUNCTIONS / 24, "{tiles} functions have kernels of tiles");
}
