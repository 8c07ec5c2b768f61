//! `#[fuse(strict)]` changes no single operation. In functions of several it changes the last places of
//! 16-bit results.

use fusion::kernel::interpreted;
use fusion::run::{Arg, run};
use fusion::{DType, Device, Element, Tensor, bf16, f16};
use fusion_compiler::check::{Source, front_end};
use fusion_compiler::compile;
use fusion_compiler::ir::graph::{Graph, Math, NodeKind};
use fusion_compiler::ir::plan::Target;
use rayon::prelude::*;

use super::numerics::{Function, functions};
use super::report;
use super::tables::{self, Tables};

/// Builds the graph of a function of one argument, or of a call of `x`.
fn graph(attribute: &str, dtype: DType, name: &str) -> Graph {
    let call = if name.contains('(') { name.into() } else { format!("{name}(x)") };
    let text = format!("{attribute} pub fn f(x: {dtype}[N]) -> {dtype}[N] {{ {call} }}");
    match front_end(text.parse().expect("tokens")) {
        Ok(Source::Items(mut functions, _)) => functions.remove(0).graph,
        mistaken => panic!("{text}: {mistaken:?}"),
    }
}

const MODES: [&str; 2] = ["", "#[fuse(strict)]"];

fn of_one_argument() -> Vec<Function> {
    functions().into_iter().filter(|function| function.arity == 1).collect()
}

#[test]
fn one_operation_is_the_same_under_strict() {
    let operations =
        |graph: &Graph| graph.iter().filter(|(_, node)| matches!(node.kind, NodeKind::Apply(_))).count();
    let mut seen = 0;
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for function in of_one_argument() {
            let [accurate, strict] = MODES.map(|mode| graph(mode, dtype, function.name));
            assert_eq!((accurate.math, strict.math), (Math::Accurate, Math::Strict));
            if operations(&accurate) == 1 {
                let texts = [accurate, strict].map(|graph| {
                    let plan = compile(graph, &Target::ALL, &|_| (0, 0));
                    format!("{:?}", plan.programs)
                });
                assert_eq!(texts[0], texts[1], "{} of {dtype}", function.name);
                seen += 1;
            }
        }
    }
    assert!(seen >= 4 * 20, "{seen}");
}

/// A float type whose numbers are all visited, or a part of them.
trait Float: Element {
    fn of_bits(i: u32) -> Self;
    fn nearest(x: f64) -> Self;
    fn wide(self) -> f32;
    /// Returns the bits without the sign.
    fn magnitude(self) -> i64;
}

impl Float for f16 {
    fn of_bits(i: u32) -> f16 {
        f16::from_bits(i as u16)
    }
    fn nearest(x: f64) -> f16 {
        f16::from_f64(x)
    }
    fn wide(self) -> f32 {
        self.to_f32()
    }
    fn magnitude(self) -> i64 {
        (self.to_bits() & 0x7fff).into()
    }
}

impl Float for bf16 {
    fn of_bits(i: u32) -> bf16 {
        bf16::from_bits(i as u16)
    }
    fn nearest(x: f64) -> bf16 {
        bf16::from_f64(x)
    }
    fn wide(self) -> f32 {
        self.to_f32()
    }
    fn magnitude(self) -> i64 {
        (self.to_bits() & 0x7fff).into()
    }
}

impl Float for f32 {
    fn of_bits(i: u32) -> f32 {
        f32::from_bits(i * 65_537)
    }
    fn nearest(x: f64) -> f32 {
        x as f32
    }
    fn wide(self) -> f32 {
        self
    }
    fn magnitude(self) -> i64 {
        (self.to_bits() & 0x7fff_ffff).into()
    }
}

/// Returns the distance of two numbers in representable numbers, with zeros of both signs equal. It is 0
/// between two NaN, and the maximum between NaN and other numbers.
fn apart<T: Float>(x: T, y: T) -> u64 {
    let place = |x: T| if x.wide().is_sign_negative() { -x.magnitude() } else { x.magnitude() };
    match (x.wide().is_nan(), y.wide().is_nan()) {
        (true, true) => 0,
        (false, false) => place(x).abs_diff(place(y)),
        (true, false) | (false, true) => u64::MAX,
    }
}

/// Returns the largest error of a function on the CPU, and the first argument that has it.
fn measured<T: Float>(mode: &str, function: &Function) -> String {
    let plan = interpreted(compile(graph(mode, T::DTYPE, function.name), &[Target::Cpu], &|_| (0, 0)));
    let x: Vec<T> = (0..1 << 16).map(T::of_bits).collect();
    let argument = Tensor::from_slice(&Device::cpu(), &x, x.len()).expect("there is memory");
    let [result] = run::<1>(&plan, &mut [Arg::from(&argument)]).expect("the CPU has it all");
    let results = Tensor::<T>::from_raw(result).and_then(|result| result.to_vec()).expect("numbers");
    let error = |(x, &got): (&T, &T)| (apart(got, T::nearest(function.of.exact(&[x.wide()]))), x.wide());
    let errors = x.iter().zip(&results).map(error);
    let (worst, at) =
        errors.reduce(|worst, error| if error.0 > worst.0 { error } else { worst }).expect("numbers");
    if worst == 0 { "0".into() } else { format!("{worst} at {at:?}") }
}

const TABLE: &str = "modes";
const TITLES: [&str; 3] = ["`f32`, strict", "`f16`", "`bf16`"];

/// Returns all cells of a function's row. `strict` changes no error of a 16-bit function, because all of it
/// is in `f32`.
fn row(function: &Function) -> (String, Vec<String>) {
    let [accurate, strict] = MODES;
    let [f16, bf16] = [measured::<f16>(accurate, function), measured::<bf16>(accurate, function)];
    let of_strict = [measured::<f16>(strict, function), measured::<bf16>(strict, function)];
    assert_eq!(of_strict, [f16.clone(), bf16.clone()], "{}", function.name);
    (function.name.into(), vec![measured::<f32>(strict, function), f16, bf16])
}

#[test]
#[ignore = "writes a table"]
fn the_table_of_modes_is_written() {
    let rows: Vec<_> = of_one_argument().par_iter().map(row).collect();
    Tables::update(|tables| tables.replace(TABLE, &TITLES, &rows));
}

#[test]
fn errors_of_modes_are_no_larger_than_the_table_says() {
    let (tables, mut failures) = (Tables::read(), vec![]);
    let rows: Vec<_> = of_one_argument().par_iter().map(row).collect();
    for (name, found) in rows {
        let known = tables.row(TABLE, &name).expect("each function has a row");
        for ((found, known), title) in found.iter().zip(&known).zip(TITLES) {
            if tables::number::<u64>(found) > tables::number(known) {
                failures.push(format!("{name}, {title}: {found}, not {known}"));
            }
        }
    }
    report(&failures);
}
