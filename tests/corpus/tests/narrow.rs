//! Random functions with elements of 16 bits stay within the bound of `f32` plus one rounding of the stored
//! value, on every device. Strict functions give the same bits fused and unfused.

use fusion::kernel::{Plan, interpreted};
use fusion::run::{Arg, run};
use fusion::{DType, Device, Error};
use fusion_compiler::check::{Source, front_end};
use fusion_compiler::ir::graph::{Fusing, Graph, Math};
use fusion_compiler::ir::plan::Target;
use fusion_corpus::generate::{Function, INPUT_MAX, Kind, Random, function};
use fusion_support::reference::{Rounding, interpret};

#[path = "../../devices/mod.rs"]
mod devices;
mod elements;

use elements::{Elements, result};

/// Extents of `N` and `D`: none, one, odd, and those of whole vectors.
const SIZES: [(usize, usize); 5] = [(1, 1), (31, 33), (33, 4), (0, 31), (8, 32)];

/// Returns the function with `dtype` for its float parameters and for every other result.
fn graph(function: &Function, dtype: DType) -> Graph {
    let (head, body) = function.source.split_once(" {\n").expect("a body");
    let (params, results) = head.split_once(')').expect("parameters");
    let params = params.replace("f32", dtype.name());
    let results: Vec<&str> = results.split("f32").collect();
    let of = |i: usize| if i.is_multiple_of(2) { dtype } else { DType::F32 };
    let mut text = format!("{params}){}", results[0]);
    results[1..].iter().enumerate().for_each(|(i, rest)| text += &format!("{}{rest}", of(i).name()));
    let source = format!("{text} {{\n{body}");
    match front_end(source.parse().expect("tokens")) {
        Ok(Source::Items(mut functions, _)) => functions.remove(0).graph,
        mistaken => panic!("{source}\n{mistaken:?}"),
    }
}

/// Rounds a number to a type.
fn rounded(dtype: DType, x: f64) -> f64 {
    fusion_compiler::ir::dtype::round(dtype, x)
}

/// The arguments of a call: shapes, and numbers that their types can represent.
struct Inputs {
    params: Vec<(DType, Option<Vec<usize>>, Vec<f64>)>,
    symbols: Vec<i64>,
}

fn inputs(function: &Function, graph: &Graph, dtype: DType, extents: (usize, usize), seed: u64) -> Inputs {
    let mut random = Random(seed);
    let extent = |dim: usize| [extents.0, extents.1, 3][dim];
    let symbols = graph.symbols.iter().map(|name| extent(usize::from(name != "N")) as i64).collect();
    let mut float = |count: usize| -> Vec<f64> {
        (0..count).map(|_| rounded(dtype, random.signed() * INPUT_MAX)).collect()
    };
    let params = function.params.iter().map(|kind| match kind {
        Kind::Floats(dims) | Kind::FloatsMut(dims) => {
            let shape: Vec<usize> = dims.iter().map(|&dim| extent(dim)).collect();
            let elements = float(shape.iter().product());
            (dtype, Some(shape), elements)
        }
        Kind::Ints(dims) => {
            let shape: Vec<usize> = dims.iter().map(|&dim| extent(dim)).collect();
            let elements = float(shape.iter().product()).iter().map(|x| (x * 100.0).round()).collect();
            (DType::I32, Some(shape), elements)
        }
        Kind::Float => (dtype, None, float(1)),
        Kind::Int => (DType::I32, None, vec![7.0]),
    });
    Inputs { params: params.collect(), symbols }
}

/// Returns the results of a call, the in-place one first. None if the call refuses a dim without elements.
fn execute(plan: &Plan, function: &Function, inputs: &Inputs, device: &Device) -> Option<Vec<Vec<f64>>> {
    let made = |(dtype, shape, x): &(DType, Option<Vec<usize>>, Vec<f64>)| match shape {
        Some(shape) => Elements::new(device, *dtype, x, shape),
        None => Elements::Scalar(*dtype, x[0]),
    };
    let mut arguments: Vec<Elements> = inputs.params.iter().map(made).collect();
    let in_place = matches!(function.params[0], Kind::FloatsMut(_));
    let mut args: Vec<Arg<'_>> = arguments
        .iter_mut()
        .enumerate()
        .map(|(i, one)| if in_place && i == 0 { one.arg_mut() } else { one.arg() })
        .collect();
    let returned = match function.returned {
        0 => run::<0>(plan, &mut args).map(Vec::from),
        1 => run::<1>(plan, &mut args).map(Vec::from),
        2 => run::<2>(plan, &mut args).map(Vec::from),
        _ => run::<3>(plan, &mut args).map(Vec::from),
    };
    let returned = match returned {
        Ok(returned) => returned,
        Err(Error::Empty { .. }) if function.has_extremes && inputs.symbols.contains(&0) => return None,
        Err(error) => panic!("{error}\n{}", function.source),
    };
    let first = in_place.then(|| arguments[0].to_vec());
    Some(first.into_iter().chain(returned.into_iter().map(result)).collect())
}

fn plan(graph: Graph) -> Plan {
    interpreted(fusion_compiler::compile(graph, &Target::ALL, &|_| (0, 0)))
}

/// Returns the allowed distance of a stored result from the exact one, for a value computed with this error.
fn allowed(dtype: DType, expect: f64, error: f64) -> f64 {
    let (digits, smallest) = match dtype {
        DType::F16 => (11, 2.0_f64.powi(-25)),
        DType::BF16 => (8, 0.0),
        _ => return error,
    };
    error + (expect.abs() + error) * 2.0_f64.powi(-digits) + smallest
}

fn check(seed: u64, dtype: DType) {
    let function = function(seed);
    let graph = graph(&function, dtype);
    let plan = plan(graph.clone());
    for size in SIZES {
        let inputs = inputs(&function, &graph, dtype, size, seed);
        let values: Vec<Vec<f64>> = inputs.params.iter().map(|(_, _, x)| x.clone()).collect();
        let expect = interpret(&graph, &values, &inputs.symbols, Rounding::None);
        for (kind, device) in devices::devices() {
            let slack = if kind == devices::Kind::Wgpu { 8.0 } else { 1.0 };
            let Some(got) = execute(&plan, &function, &inputs, &device) else { continue };
            for (i, (got, expect)) in got.iter().zip(&expect).enumerate() {
                let stored = graph.node(graph.outputs[i].node).dtype;
                assert_eq!(got.len(), expect.len());
                for (at, (&x, &y)) in got.iter().zip(expect).enumerate() {
                    let bound = allowed(stored, y, function.errors[i][0] * slack);
                    let near = (x - y).abs() <= bound || x == y || x.is_nan() && y.is_nan();
                    assert!(
                        near,
                        "{device}: {stored} {at} of result {i} is {x}, not {y} ± {bound:e}, with {size:?}\n{}",
                        function.source
                    );
                }
            }
        }
    }
}

#[test]
fn halves_agree_with_the_reference() {
    (0..36).for_each(|seed| check(seed, if seed.is_multiple_of(2) { DType::F16 } else { DType::BF16 }));
}

/// Each operation rounds to 16 bits, so fusion does not change results.
#[test]
fn strict_functions_do_not_depend_on_what_fused() {
    for seed in 0..36 {
        let function = function(seed);
        let dtype = if seed.is_multiple_of(2) { DType::BF16 } else { DType::F16 };
        let graph = Graph { math: Math::Strict, ..graph(&function, dtype) };
        let off = Graph { fusing: Fusing::Off, ..graph.clone() };
        let (fused, unfused) = (plan(graph.clone()), plan(off));
        // Another kernel may add the terms of a sum in another order.
        if function.combines || function.combines_few {
            continue;
        }
        for size in SIZES {
            let inputs = inputs(&function, &graph, dtype, size, seed);
            for (_, device) in devices::devices() {
                let [got, off] = [&fused, &unfused].map(|plan| execute(plan, &function, &inputs, &device));
                let bits = |all: Option<Vec<Vec<f64>>>| -> Vec<u64> {
                    let bits = |x: f64| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() };
                    all.into_iter().flatten().flatten().map(bits).collect()
                };
                assert_eq!(bits(got), bits(off), "{device} with {size:?}\n{}", function.source);
            }
        }
    }
}
