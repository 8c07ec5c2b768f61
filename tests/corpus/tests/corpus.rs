//! Every way to run a random function gives the same results: generated Rust, interpreted kernels and GPUs.
//! They agree with the `f64` interpreter of the graph within the bound that the generator derives for each
//! result.

use std::collections::BTreeSet;

use fusion::kernel::{Plan, interpreted};
use fusion::{Device, Error, Tensor, run};
use fusion_compiler::check::{self, Source, front_end};
use fusion_compiler::fuse::fuse_for;
use fusion_compiler::ir::graph::{Fusing, Graph};
use fusion_compiler::ir::plan::{Code, Target};
use fusion_compiler::target::facts;
use fusion_corpus::generate::{EXTENTS, Function, INPUT_MAX, Kind, Random, function};
use fusion_corpus::{Access, Argument, Call, FUSED, UNFUSED};
use fusion_support::reference::{Rounding, interpret};
use proptest::test_runner::{Config, RngSeed};
use rayon::prelude::*;

#[path = "../../devices/mod.rs"]
mod devices;
#[path = "../../tools/mod.rs"]
mod tools;

/// Extents of `N` and `D`: none, one, odd and unaligned.
const SIZES: [(usize, usize); 5] = [(1, 1), (31, 33), (33, 4), (0, 31), (3, 0)];
/// Extents above the 32,768 elements from which launches are spread over threads.
const LARGE: (usize, usize) = (65_537, 1);

fn graph(function: &Function) -> Graph {
    let tokens = function.source.parse().expect("a function is tokens");
    let made = front_end(tokens);
    let Ok(Source::Items(mut functions, _)) = made else { panic!("{}\n{made:?}", function.source) };
    let check::Function { graph, .. } = functions.remove(0);
    graph
}

/// Returns the arguments of a call, and the same values in the form of the reference.
fn inputs(function: &Function, graph: &Graph, extents: (usize, usize), seed: u64) -> Inputs {
    inputs_of(function, graph, extents, seed, float)
}

fn inputs_of(
    function: &Function,
    graph: &Graph,
    extents: (usize, usize),
    seed: u64,
    float: fn(&mut Random) -> f32,
) -> Inputs {
    let mut random = Random(seed);
    let extent = |dim: usize| [extents.0, extents.1, 3][dim];
    let size = |name: &str| extent(usize::from(name != "N")) as i64;
    let symbols = graph.symbols.iter().map(|name| size(name)).collect();
    let (mut arguments, mut values) = (Vec::new(), Vec::new());
    for kind in &function.params {
        let shape = |dims: &[usize]| dims.iter().map(|&dim| extent(dim)).collect::<Vec<_>>();
        let (argument, value) = match kind {
            Kind::Floats(dims) | Kind::FloatsMut(dims) => {
                let shape = shape(dims);
                let elements: Vec<f32> = (0..shape.iter().product()).map(|_| float(&mut random)).collect();
                let value = elements.iter().map(|&x| f64::from(x)).collect();
                (Argument::Floats(tensor(&elements, &shape)), value)
            }
            Kind::Ints(dims) => {
                let shape = shape(dims);
                let elements: Vec<i32> = (0..shape.iter().product()).map(|_| int(&mut random)).collect();
                let value = elements.iter().map(|&x| f64::from(x)).collect();
                let made = Tensor::from_slice(&Device::cpu(), &elements, shape.as_slice());
                (Argument::Ints(made.expect("it fits its shape")), value)
            }
            Kind::Float => {
                let x = float(&mut random);
                (Argument::Float(x), vec![f64::from(x)])
            }
            Kind::Int => {
                let x = int(&mut random);
                (Argument::Int(x), vec![f64::from(x)])
            }
        };
        arguments.push(argument);
        values.push(value);
    }
    Inputs { extents, arguments, values, symbols }
}

struct Inputs {
    /// Extents of `N` and `D`.
    extents: (usize, usize),
    arguments: Vec<Argument>,
    values: Vec<Vec<f64>>,
    symbols: Vec<i64>,
}

fn tensor(elements: &[f32], shape: &[usize]) -> Tensor<f32> {
    Tensor::from_slice(&Device::cpu(), elements, shape).expect("it fits its shape")
}

/// Returns a half-integer, a zero of either sign, or another number.
fn float(random: &mut Random) -> f32 {
    match random.below(8) {
        0 => 0.0,
        1 => -0.0,
        2 => random.below(9) as f32 * 0.5 - 2.0,
        _ => (random.signed() * INPUT_MAX) as f32,
    }
}

/// Returns a number like `float`, or NaN, an infinity, or a number that is nearly infinite or zero.
fn special(random: &mut Random) -> f32 {
    let specials = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, f32::MIN_POSITIVE];
    if random.one_in(3) { specials[random.below(specials.len())] } else { float(random) }
}

/// Returns a number like `float`, or NaN or an infinity.
fn infinite(random: &mut Random) -> f32 {
    let specials = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    if random.one_in(12) { specials[random.below(specials.len())] } else { float(random) }
}

/// Returns the generator of edge-case arguments. A function that reorders sums gets no huge numbers, because
/// the order decides whether their sum overflows and which small terms it loses.
fn specials(function: &Function) -> fn(&mut Random) -> f32 {
    if reorders(function) { infinite } else { special }
}

fn int(random: &mut Random) -> i32 {
    match random.below(8) {
        0 => i32::MIN,
        1 => i32::MAX,
        _ => random.below(2000) as i32 - 1000,
    }
}

/// The in-place result of a call, then the returned ones. None if the call refuses a dim without elements.
type Results = Option<Vec<Vec<f32>>>;

/// Runs a plan on a device.
fn execute(plan: &Plan, function: &Function, inputs: &Inputs, device: &Device) -> Results {
    let mut arguments: Vec<Argument> = inputs.arguments.iter().map(|one| one.to(device)).collect();
    let mut args: Vec<run::Arg<'_>> = arguments
        .iter_mut()
        .zip(&function.params)
        .map(|(argument, kind)| {
            argument.arg(if matches!(kind, Kind::FloatsMut(_)) { Access::Written } else { Access::Read })
        })
        .collect();
    let returned = match function.returned {
        0 => run::run::<0>(plan, &mut args).map(Vec::from),
        1 => run::run::<1>(plan, &mut args).map(Vec::from),
        2 => run::run::<2>(plan, &mut args).map(Vec::from),
        _ => run::run::<3>(plan, &mut args).map(Vec::from),
    };
    let returned = unless_empty(returned, function, inputs)?;
    let returned = returned.into_iter().map(|raw| Tensor::from_raw(raw).expect("results are f32"));
    let results: Vec<Tensor<f32>> = match (&arguments[0], &function.params[0]) {
        (Argument::Floats(first), Kind::FloatsMut(_)) => {
            std::iter::once(first.clone()).chain(returned).collect()
        }
        (_, _) => returned.collect(),
    };
    Some(elements(&results))
}

fn call(call: Call, function: &Function, inputs: &Inputs) -> Results {
    let results = unless_empty(call(&mut inputs.arguments.clone()), function, inputs)?;
    Some(elements(&results))
}

/// Returns the results of a call. None if the call refuses a maximum or minimum of no elements.
fn unless_empty<T>(made: fusion::Result<T>, function: &Function, inputs: &Inputs) -> Option<T> {
    match made {
        Ok(made) => Some(made),
        Err(Error::Empty { .. }) if function.has_extremes && inputs.symbols.contains(&0) => None,
        Err(error) => panic!("{error}\n{}", function.source),
    }
}

fn elements(results: &[Tensor<f32>]) -> Vec<Vec<f32>> {
    results.iter().map(|result| result.to_vec().expect("results can be read")).collect()
}

fn check_close(
    what: &str,
    function: &Function,
    inputs: &Inputs,
    got: &Results,
    expect: &[Vec<f64>],
    slack: f64,
) {
    let Some(got) = got else { return };
    assert_eq!(got.len(), expect.len(), "{what}\n{}", function.source);
    for (result, (got, expect)) in got.iter().zip(expect).enumerate() {
        assert_eq!(got.len(), expect.len(), "{what}: result {result}\n{}", function.source);
        let allowed = function.errors[result][class(inputs)] * slack;
        for (i, (&got, &expect)) in got.iter().zip(expect).enumerate() {
            assert!(
                is_within(got.into(), expect, allowed),
                "{what}: element {i} of result {result} is {got}, not {expect} ± {allowed:e}, with extents {:?}\n{}",
                inputs.symbols,
                function.source
            );
        }
    }
}

/// Returns the index of the first, and so tightest, bound that is valid for these extents.
fn class(inputs: &Inputs) -> usize {
    let (n, d) = inputs.extents;
    let holds = |extents: &[usize; 3]| n <= extents[0] && d <= extents[1];
    EXTENTS.iter().position(holds).expect("a bound is known for these extents")
}

/// Returns true if two numbers are near, both NaN, or the same infinity. A reduction of no elements may be
/// one of these.
fn is_within(got: f64, expect: f64, allowed: f64) -> bool {
    (got - expect).abs() <= allowed || got == expect || got.is_nan() && expect.is_nan()
}

/// Returns true if sums may be in another order than that of their terms. This is so along dims of any
/// extent, and along a `C` that is looped over, where the first term is added to 0.
fn reorders(function: &Function) -> bool {
    let in_loops = |target| {
        let fused = fuse_for(fusion_compiler::optimize(graph(function)), &[facts(target)]);
        fused.iter().any(|(graph, _)| !graph.looped.is_empty())
    };
    function.combines || function.combines_few && Target::ALL.into_iter().any(in_loops)
}

/// Checks for the same bits, or for twice the bound where sums may be in another order.
fn check_alike(what: &str, function: &Function, inputs: &Inputs, got: &Results, expect: &Results) {
    let (true, Some(_), Some(expect)) = (reorders(function), got, expect) else {
        return check_same(what, function, got, expect);
    };
    let expect: Vec<Vec<f64>> =
        expect.iter().map(|one| one.iter().copied().map(f64::from).collect()).collect();
    check_close(what, function, inputs, got, &expect, 2.0);
}

fn check_same(what: &str, function: &Function, got: &Results, expect: &Results) {
    let bits = |all: &[Vec<f32>]| -> Vec<Vec<u32>> {
        // The order of operands decides which NaN results.
        let bits = |x: &f32| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() };
        all.iter().map(|one| one.iter().map(bits).collect()).collect()
    };
    let [got, expect] = [got, expect].map(|results| results.as_deref().map(bits));
    assert_eq!(got, expect, "{what}\n{}", function.source);
}

/// Compiles a function fused and unfused.
fn plans(graph: &Graph, targets: &[Target]) -> (Plan, Plan) {
    let off = Graph { fusing: Fusing::Off, ..graph.clone() };
    let plan = |graph: Graph| interpreted(fusion_compiler::compile(graph, targets, &|_| (0, 0)));
    (plan(graph.clone()), plan(off))
}

fn check_interpreted(seed: u64, sizes: &[(usize, usize)]) {
    let function = function(seed);
    let graph = graph(&function);
    let (fused, unfused) = plans(&graph, &[Target::Cpu]);
    for &size in sizes {
        let inputs = inputs(&function, &graph, size, seed);
        let expect = interpret(&graph, &inputs.values, &inputs.symbols, Rounding::None);
        let got = execute(&fused, &function, &inputs, &Device::cpu());
        check_close("fused", &function, &inputs, &got, &expect, 1.0);
        let off = execute(&unfused, &function, &inputs, &Device::cpu());
        check_alike("unfused", &function, &inputs, &off, &got);
    }
}

#[test]
fn interpreted_kernels_agree_with_the_reference() {
    (0..300).for_each(|seed| check_interpreted(seed, &SIZES));
}

#[test]
fn interpreted_kernels_agree_on_many_threads() {
    (0..6).for_each(|seed| check_interpreted(seed, &[LARGE]));
}

#[test]
fn generated_rust_agrees_with_the_reference_and_the_interpreter() {
    assert!(!FUSED.is_empty());
    FUSED.par_iter().for_each(|&(seed, compiled)| {
        let unfused = UNFUSED.iter().find(|(same, _)| *same == seed).map(|(_, call)| *call);
        let function = function(seed);
        let graph = graph(&function);
        let (fused, off) = plans(&graph, &[Target::Cpu]);
        for size in SIZES.into_iter().chain([LARGE]) {
            let inputs = inputs(&function, &graph, size, seed);
            let expect = interpret(&graph, &inputs.values, &inputs.symbols, Rounding::None);
            let got = call(compiled, &function, &inputs);
            check_close("compiled", &function, &inputs, &got, &expect, 1.0);
            let apart = unfused.map(|unfused| call(unfused, &function, &inputs));
            // Large extents are skipped, because the interpreter is slow. Other tests cover them.
            if size != LARGE {
                let interpreted = execute(&fused, &function, &inputs, &Device::cpu());
                let off = execute(&off, &function, &inputs, &Device::cpu());
                if has_fma() {
                    check_same("interpreted", &function, &interpreted, &got);
                    apart.iter().for_each(|apart| check_same("interpreted, unfused", &function, &off, apart));
                }
                check_alike("unfused", &function, &inputs, &off, &interpreted);
            }
            apart.iter().for_each(|apart| check_alike("unfused", &function, &inputs, apart, &got));
        }
    });
}

/// Numbers of rows, and lengths on both sides of the thresholds that schedules choose by.
const ROWS: [usize; 3] = [1, 3, 4096];
const LENGTHS: [usize; 9] = [0, 1, 2, 31, 32, 33, 1023, 1025, 50_257];
/// Largest number of elements, because the reference is slow.
const MOST: usize = 160_000;

/// Returns all such sizes, as rows of `N` and `D`.
fn sizes_of_rows() -> impl Iterator<Item = (usize, usize)> {
    let all = ROWS.into_iter().flat_map(|rows| LENGTHS.map(|len| (rows, len)));
    all.filter(|(rows, len)| rows * len <= MOST)
}

/// Returns the first functions with reductions along dims of any extent.
fn functions_of_rows(count: usize) -> impl Iterator<Item = (u64, Function)> {
    (0..300).map(|seed| (seed, function(seed))).filter(|(_, function)| function.combines).take(count)
}

/// Each function runs as generated Rust, and half of them run on GPUs.
#[test]
fn rows_of_every_length_agree_with_the_reference() {
    let gpus: Vec<_> = [devices::Kind::Wgpu, devices::Kind::Cuda].into_iter().filter_map(gpu).collect();
    let functions: Vec<_> = functions_of_rows(12).enumerate().collect();
    functions.into_par_iter().for_each(|(number, (seed, function))| {
        let (_, compiled) = FUSED.iter().find(|(same, _)| *same == seed).expect("it is compiled");
        let graph = graph(&function);
        let gpus = gpus.iter().filter(|_| number % 2 == 0).map(|(kind, device)| {
            let (target, slack) = language(*kind);
            (plans(&graph, &[target]).0, device, slack)
        });
        let gpus: Vec<_> = gpus.collect();
        for size in sizes_of_rows() {
            let inputs = inputs(&function, &graph, size, seed);
            let expect = interpret(&graph, &inputs.values, &inputs.symbols, Rounding::None);
            check_close("compiled", &function, &inputs, &call(*compiled, &function, &inputs), &expect, 1.0);
            for (fused, device, slack) in &gpus {
                let got = execute(fused, &function, &inputs, device);
                check_close("fused", &function, &inputs, &got, &expect, *slack);
            }
        }
    });
}

/// No bound applies here, but every way to run a function does the same operations.
#[test]
fn nan_and_infinities_do_not_depend_on_what_fused() {
    for &(seed, compiled) in FUSED {
        let function = function(seed);
        let graph = graph(&function);
        let (fused, off) = plans(&graph, &[Target::Cpu]);
        for size in [(31, 33), (33, 4)] {
            let inputs = inputs_of(&function, &graph, size, seed, specials(&function));
            let got = execute(&fused, &function, &inputs, &Device::cpu());
            let off = execute(&off, &function, &inputs, &Device::cpu());
            check_alike("unfused", &function, &inputs, &off, &got);
            if has_fma() {
                check_same("compiled", &function, &call(compiled, &function, &inputs), &got);
            }
        }
    }
}

/// Returns true if generated Rust runs its variant with fused multiply-add here, as the interpreter does.
fn has_fma() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::arch::is_x86_feature_detected!("fma") && std::arch::is_x86_feature_detected!("avx2")
    }
    #[cfg(not(target_arch = "x86_64"))]
    true
}

/// The random functions contain enough row kernels, alone and several in one function.
#[test]
fn a_third_of_the_functions_has_kernels_of_rows() {
    let (mut functions, mut kernels, mut several) = (0, 0, 0);
    for seed in 0..300 {
        let function = function(seed);
        let (plan, _) = plans(&graph(&function), &[Target::Cpu]);
        let rows = plan.summary.groups.iter().filter(|group| group.schedule != "pointwise").count();
        assert!(reorders(&function) || rows == 0, "{}", function.source);
        functions += usize::from(rows > 0);
        several += usize::from(rows > 1);
        kernels += rows;
    }
    let enough = functions >= 60 && kernels >= 90 && several >= 15;
    assert!(enough, "{functions} functions, {several} of them with several, and {kernels} kernels in all");
}

#[test]
fn every_wgsl_text_is_valid() {
    tools::validate(&all_texts(Target::Wgsl, 1, 1));
}

/// Only a part of the row functions and of the unfused ones is assembled, because assembling is slow.
#[test]
fn every_ptx_text_assembles() {
    tools::assemble(&all_texts(Target::Ptx, 6, 30));
}

/// Returns the distinct texts of the corpus: every function without rows fused, one in `rows_each` of those
/// with rows, and one in `unfused_each` seeds unfused.
fn all_texts(target: Target, rows_each: u64, unfused_each: u64) -> Vec<String> {
    let of = |seed| {
        let function = function(seed);
        let (fused, unfused) = plans(&graph(&function), &[target]);
        let mut all = Vec::new();
        // Every third seed has rows.
        if !function.combines || seed / 3 % rows_each == 0 {
            all.extend(texts(&fused));
        }
        if seed % unfused_each == 0 {
            all.extend(texts(&unfused));
        }
        all
    };
    let all: BTreeSet<String> = (0..300).flat_map(of).collect();
    all.into_iter().collect()
}

/// Returns the texts of a plan.
fn texts(plan: &Plan) -> Vec<String> {
    let steps = plan.programs.iter().flat_map(|program| program.steps.iter());
    let launches = steps.flat_map(|step| step.variants.iter()).flat_map(|one| one.launches.iter());
    let text = |code: &Code<_>| match code {
        Code::Ptx(text) | Code::Wgsl(text) => text.to_string(),
        Code::Cpu(_) => unreachable!("the program is for a GPU"),
    };
    launches.map(|launch| text(&launch.code)).collect()
}

/// Returns the target of a GPU, and the factor on the error bounds. WGSL leaves functions more room for
/// error.
fn language(kind: devices::Kind) -> (Target, f64) {
    match kind {
        devices::Kind::Cpu => unreachable!("the CPU has tests of its own"),
        devices::Kind::Wgpu => (Target::Wgsl, 8.0),
        devices::Kind::Cuda => (Target::Ptx, 1.0),
    }
}

/// Checks that a GPU is as close to the reference as its language promises. The check covers fused and
/// unfused plans, and each program of a plan.
fn check_on_gpu((kind, device): &(devices::Kind, Device), seed: u64, sizes: &[(usize, usize)]) {
    let (target, slack) = language(*kind);
    let function = function(seed);
    let graph = graph(&function);
    let (fused, unfused) = plans(&graph, &[target]);
    let execute = |plan: &Plan, inputs: &Inputs| {
        let results = execute(plan, &function, inputs, device);
        if target == Target::Wgsl { results.map(without_signs_of_zeros) } else { results }
    };
    for &size in sizes {
        let inputs = inputs(&function, &graph, size, seed);
        let expect = interpret(&graph, &inputs.values, &inputs.symbols, Rounding::None);
        let special = inputs_of(&function, &graph, size, seed, specials(&function));
        let alone = [&inputs, &special].map(|inputs| execute(&unfused, inputs));
        for program in fused.programs.iter() {
            let fused = Plan { programs: vec![program.clone()].into(), ..fused.clone() };
            let got = execute(&fused, &inputs);
            check_close("fused", &function, &inputs, &got, &expect, slack);
            check_alike("unfused", &function, &inputs, &alone[0], &got);
            check_alike("unfused", &function, &special, &alone[1], &execute(&fused, &special));
        }
    }
}

/// Replaces −0 by 0. WGSL lets a driver drop the addition of 0 to −0, which changes the sign.
fn without_signs_of_zeros(mut results: Vec<Vec<f32>>) -> Vec<Vec<f32>> {
    results.iter_mut().flatten().filter(|x| **x == 0.0).for_each(|x| *x = 0.0);
    results
}

fn gpu(kind: devices::Kind) -> Option<(devices::Kind, Device)> {
    kind.open().map(|device| (kind, device))
}

#[test]
fn wgpu_agrees_with_the_reference() {
    if let Some(gpu) = gpu(devices::Kind::Wgpu) {
        (0..40).for_each(|seed| check_on_gpu(&gpu, seed, &SIZES));
        (60..64).for_each(|seed| check_on_gpu(&gpu, seed, &[LARGE]));
        // Each of these functions adds to −0 a 0 that a driver recognises only in the fused kernel.
        for seed in [3_461_582_141_371_010_946, 3_461_582_038_207_823_998] {
            check_on_gpu(&gpu, seed, &[(6, 31)]);
        }
        // This function selects between NaN and itself.
        check_on_gpu(&gpu, 7_886_653_897_879_199_482, &[(5, 6), (0, 39), (39, 1)]);
    }
}

#[test]
fn cuda_agrees_with_the_reference() {
    if let Some(gpu) = gpu(devices::Kind::Cuda) {
        (0..120).for_each(|seed| check_on_gpu(&gpu, seed, &SIZES));
        (200..204).for_each(|seed| check_on_gpu(&gpu, seed, &[LARGE]));
    }
}

proptest::proptest! {
    #![proptest_config(config(16))]

    #[test]
    fn any_seed_agrees_on_gpus(seed in 300_u64.., n in 0_usize..40, d in 0_usize..40) {
        for gpu in [devices::Kind::Wgpu, devices::Kind::Cuda].into_iter().filter_map(gpu) {
            check_on_gpu(&gpu, seed, &[(n, d)]);
        }
    }
}

/// Returns a configuration of `cases` fixed cases, or of `FUSION_CASES` random ones for a soak test.
fn config(cases: u32) -> Config {
    let wanted = std::env::var("FUSION_CASES").ok().and_then(|cases| cases.parse().ok());
    let rng_seed = if wanted.is_some() { RngSeed::Random } else { RngSeed::Fixed(1) };
    let cases = wanted.unwrap_or(cases);
    Config { cases, rng_seed, failure_persistence: None, ..Default::default() }
}

proptest::proptest! {
    #![proptest_config(config(100))]

    #[test]
    fn any_seed_agrees(seed in 300_u64.., n in 0_usize..40, d in 0_usize..40) {
        check_interpreted(seed, &[(n, d)]);
    }
}
