//! `docs/NUMERICS.md` states the error of each function on each target, its argument, and the values at the
//! edges.
//!
//! Each run measures a sample of all numbers and compares it with the table. `cargo test --profile bench
//! --workspace --test ops -- --ignored` visits all numbers and writes the tables. A second
//! run with `FUSION_CPU_ISA=base` covers the CPU without fused multiply-add. `FUSION_NUMERICS_STRIDE=N`
//! visits every N-th number, and `FUSION_NUMERICS_OF=exp,tanh` only these functions.

use std::fmt;

use fusion::prelude::*;
use fusion_compiler::ir::op::{Op, Typing};
use fusion_support::ulp::{NEAR_QUARTER_TURNS, distance};
use rayon::prelude::*;

use super::float::{self, Case};
use super::library::ROWS;
use super::tables::{self, Tables};
use super::{Kind, devices, download, is_base, is_hardware, kernels, random_bits, report, upload};

/// A function of `f32`, with its reference in `f64`.
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) arity: usize,
    call: Box<Call>,
    pub(super) of: Of,
}

type Call = dyn Fn(&[Tensor<f32>]) -> Result<Tensor<f32>> + Sync;

#[derive(Clone, Copy)]
pub(super) enum Of {
    Table(Op),
    Library(fn(f64) -> f64),
}

/// Returns the functions of the table that give numbers, then those of the library that are accurate
/// everywhere.
pub(super) fn functions() -> Vec<Function> {
    let of_table = |&op: &Op| {
        let (info, function) = (op.info(), kernels::float(op)?);
        let gives_numbers = matches!(info.typing, Typing::Number | Typing::Float);
        let call = Box::new(move |args: &[Tensor<f32>]| function.call(args));
        gives_numbers.then_some(Function { name: info.name, arity: info.arity, call, of: Of::Table(op) })
    };
    let relative = ROWS.iter().filter(|row| row.absolute == 0.0);
    let library = relative.map(|row| {
        let call = Box::new(|args: &[Tensor<f32>]| (row.function)(&args[0]));
        Function { name: row.name, arity: 1, call, of: Of::Library(row.expect) }
    });
    Op::ALL.iter().filter_map(of_table).chain(library).collect()
}

impl Of {
    /// Computes the function in `f64`.
    pub(super) fn exact(self, args: &[f32]) -> f64 {
        let mut wide = [0.0; 3];
        args.iter().zip(&mut wide).for_each(|(&arg, wide)| *wide = f64::from(arg));
        match self {
            Of::Table(op) => (op.info().eval.float)(&wide[..args.len()]),
            Of::Library(of) => of(wide[0]),
        }
    }

    /// Returns the error of a result, as a distance in representable numbers.
    fn error(self, kind: Kind, args: &[f32], actual: f32) -> u64 {
        match self {
            Of::Table(op) => Case { op, args, actual }.error(kind),
            // The formulas do not determine the sign of a zero.
            Of::Library(of) => {
                let expect = |args: &[f32]| vec![of(f64::from(args[0])) as f32 + 0.0];
                float::error(kind, args, actual + 0.0, expect)
            }
        }
    }
}

/// Targets in the order of the table's columns.
const TARGETS: [&str; 5] = ["CPU", "CPU without FMA", "PTX", "H200", "WGSL"];

/// Column of the simulated GPU, which stands for other GPUs without measurements.
const SIMULATED: usize = 2;

/// Cell of a function on a device without a measurement.
const UNMEASURED: &str = "–";

/// Returns the column of a device of this process.
fn column(kind: Kind, device: &Device) -> usize {
    match kind {
        Kind::Cpu => usize::from(is_base()),
        Kind::Cuda => SIMULATED + usize::from(is_hardware(device)),
        Kind::Wgpu => 4,
    }
}

/// The largest error, and its arguments.
#[derive(Clone, Debug, Default)]
struct Worst {
    error: u64,
    at: Vec<f32>,
}

impl Worst {
    /// Returns the larger error. A tie goes to the smaller bits, so that the result is unique.
    fn or(self, other: Worst) -> Worst {
        let key = |worst: &Worst| {
            let bits: Vec<u32> = worst.at.iter().map(|x| x.to_bits()).collect();
            (worst.error, std::cmp::Reverse(bits))
        };
        if key(&other) > key(&self) { other } else { self }
    }
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at: Vec<String> = self.at.iter().map(|x| format!("{x:?}")).collect();
        match self.error {
            0 => write!(f, "0"),
            error => write!(f, "{error} at {}", at.join(", ")),
        }
    }
}

/// Returns the largest error of a function over columns of arguments.
fn worst_of(function: &Function, (kind, device): (Kind, &Device), columns: &[Vec<f32>]) -> Worst {
    let tensors: Vec<_> = columns.iter().map(|column| upload(device, column)).collect();
    let results = download((function.call)(&tensors));
    let (of, mut args) = (function.of, [0.0; 3]);
    let mut worst = Worst::default();
    for (i, actual) in results.into_iter().enumerate() {
        columns.iter().zip(&mut args).for_each(|(column, arg)| *arg = column[i]);
        let args = &args[..columns.len()];
        // The cheap distance decides for most results, whose error is not larger than the worst so far.
        if distance(actual, of.exact(args) as f32) >= worst.error.max(1) {
            worst = worst.or(Worst { error: of.error(kind, args, actual), at: args.to_vec() });
        }
    }
    worst
}

/// Elements computed at once, few enough for a cache.
const CHUNK: u64 = 1 << 13;

/// Returns the largest error over the edges and every `stride`-th number. A function of several operands uses
/// as many random points.
fn measured(function: &Function, on: (Kind, &Device), stride: u64) -> Worst {
    let mut edges = float::columns(&float::points(function.arity), function.arity);
    if function.arity == 1 {
        let near = NEAR_QUARTER_TURNS.into_iter().flat_map(|bits| [bits, bits | 1 << 31]);
        edges[0].extend(near.map(f32::from_bits));
    }
    let count = (1_u64 << 32).div_ceil(stride);
    // A launch of a GPU costs more than one of the CPU.
    let chunk = if on.0 == Kind::Cpu { CHUNK } else { 128 * CHUNK };
    let of_chunk = |number: u64| {
        let places = number * chunk..count.min((number + 1) * chunk);
        let columns = match function.arity {
            1 => vec![places.map(|i| f32::from_bits((i * stride) as u32)).collect()],
            arity => {
                let mut random = random_bits(number as u32);
                let points: Vec<_> = places.map(|i| float::any(i, &mut random)).collect();
                float::columns(&points, arity)
            }
        };
        worst_of(function, on, &columns)
    };
    let chunks = (0..count.div_ceil(chunk)).into_par_iter().map(of_chunk);
    worst_of(function, on, &edges).or(chunks.reduce(Worst::default, Worst::or))
}

/// Arguments at which the table states values.
const EDGES: [(&str, f32); 9] = [
    ("0", 0.0),
    ("-0", -0.0),
    ("1e-45", 1e-45),
    ("-1e-45", -1e-45),
    ("MAX", f32::MAX),
    ("-MAX", f32::MIN),
    ("INF", f32::INFINITY),
    ("-INF", f32::NEG_INFINITY),
    ("NAN", f32::NAN),
];

/// Computes a function of one argument at the edges.
fn at_edges(function: &Function, device: &Device) -> Vec<f32> {
    download((function.call)(&[upload(device, &EDGES.map(|(_, x)| x))]))
}

fn text(x: f32) -> String {
    let named = EDGES.iter().find(|(_, edge)| edge.to_bits() == x.to_bits() || edge.is_nan() && x.is_nan());
    named.map_or_else(|| format!("{x:?}"), |(name, _)| (*name).into())
}

const BOUNDS: &str = "largest errors";
const AT_EDGES: &str = "edges";

fn stride(default: u64) -> u64 {
    let stride = std::env::var("FUSION_NUMERICS_STRIDE").ok();
    stride.map_or(default, |stride| stride.parse().expect("FUSION_NUMERICS_STRIDE is a number"))
}

fn is_asked_for(name: &str) -> bool {
    let names = std::env::var("FUSION_NUMERICS_OF").ok();
    names.is_none_or(|names| names.split(',').any(|one| one == name))
}

/// Functions of one argument visit all numbers on the CPU. The simulated and the software GPU are too slow
/// for that.
#[test]
#[ignore = "visits every f32: half an hour"]
fn the_tables_are_written() {
    let tables = Tables::read();
    let (mut bounds, mut edges) = (vec![], vec![]);
    for function in functions() {
        let mut row = tables.row(BOUNDS, function.name).unwrap_or(vec![UNMEASURED.into(); TARGETS.len()]);
        let devices = if is_asked_for(function.name) { devices() } else { vec![] };
        for (kind, device) in devices {
            let stride = match (kind, function.arity) {
                (Kind::Cpu, 1) => stride(1),
                (Kind::Cpu | Kind::Wgpu | Kind::Cuda, _) => stride(997),
            };
            let cell = &mut row[column(kind, &device)];
            *cell = measured(&function, (kind, &device), stride).to_string();
            eprintln!("{} on {device}: {cell}", function.name);
        }
        bounds.push((function.name.into(), row));
        if function.arity == 1 {
            let results = at_edges(&function, &Device::cpu()).into_iter().map(text);
            edges.push((function.name.into(), results.collect()));
        }
    }
    Tables::update(|tables| {
        tables.replace(BOUNDS, &TARGETS, &bounds);
        tables.replace(AT_EDGES, &EDGES.map(|(name, _)| name), &edges);
    });
}

#[test]
fn errors_are_no_larger_than_the_table_says() {
    let (tables, mut failures) = (Tables::read(), vec![]);
    for function in functions() {
        let row = tables.row(BOUNDS, function.name).expect("each function has a row");
        for (kind, device) in devices() {
            let found = measured(&function, (kind, &device), stride(400_009));
            let known = match &row[column(kind, &device)] {
                cell if cell == UNMEASURED => &row[SIMULATED],
                cell => cell,
            };
            if found.error > tables::number(known) {
                failures.push(format!("{} on {kind:?}: {found}, not {known}", function.name));
            }
        }
    }
    report(&failures);
}

/// WGSL promises neither subnormal numbers nor signs of zeros, so those results are not compared there.
#[test]
fn edges_give_what_the_table_says() {
    let (tables, mut failures) = (Tables::read(), vec![]);
    for function in functions().iter().filter(|function| function.arity == 1) {
        let row = tables.row(AT_EDGES, function.name).expect("each function has a row");
        for (kind, device) in devices() {
            for ((got, expect), (at, x)) in at_edges(function, &device).into_iter().zip(&row).zip(EDGES) {
                let flushed = kind == Kind::Wgpu && (x.abs() < f32::MIN_POSITIVE || got == 0.0);
                if text(got) != *expect && !flushed {
                    failures.push(format!(
                        "{}({at}) on {kind:?} is {}, not {expect}",
                        function.name,
                        text(got)
                    ));
                }
            }
        }
    }
    report(&failures);
}
