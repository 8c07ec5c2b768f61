//! `docs/NUMERICS.md`: how far each function is from its exact value on each target, where, and what it gives at the edges.
//!
//! Each run measures some of all numbers, and holds what it finds to the table. All of them are visited, and the table is
//! written, by `cargo test --release --workspace --features cuda --test ops -- --ignored numerics`, and once more with
//! `FUSION_CPU_ISA=base` for the CPU without fused multiply-add. `FUSION_NUMERICS_STRIDE=N` visits every N-th of them.

use std::fmt;

use fusion::prelude::*;
use fusion_compiler::ir::ops::{Op, Typing};
use fusion_compiler::ulp::NEAR_QUARTER_TURNS;
use rayon::prelude::*;

use super::float::{self, Case};
use super::library::ROWS;
use super::{Kind, devices, download, is_base, kernels, random_bits, report, upload};

/// A function of `f32`, and the same of `f64`.
struct Function {
    name: &'static str,
    arity: usize,
    call: Box<Call>,
    of: Of,
}

type Call = dyn Fn(&[Tensor<f32>]) -> Result<Tensor<f32>> + Sync;

#[derive(Clone, Copy)]
enum Of {
    Table(Op),
    Library(fn(f64) -> f64),
}

/// Those of the table that give numbers, then those of the library that are near what they should be everywhere.
fn functions() -> Vec<Function> {
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
    /// The function in `f64`.
    fn exact(self, args: [f32; 3], arity: usize) -> f32 {
        let wide = args.map(f64::from);
        let exact = match self {
            Of::Table(op) => (op.info().eval.float)(&wide[..arity]),
            Of::Library(of) => of(wide[0]),
        };
        exact as f32
    }

    /// How far the result for these arguments is from what it should be, in numbers between them.
    fn error(self, kind: Kind, args: &[f32], actual: f32) -> u64 {
        match self {
            Of::Table(op) => Case { op, args, actual }.error(kind),
            // The formulas do not say which sign a zero has.
            Of::Library(of) => {
                let expect = |args: &[f32]| vec![of(f64::from(args[0])) as f32 + 0.0];
                float::error(kind, args, actual + 0.0, expect)
            }
        }
    }
}

/// The targets, in the order of the table's columns.
const TARGETS: [&str; 4] = ["CPU", "CPU without FMA", "PTX", "WGSL"];

/// The column of a device of this process.
fn column(kind: Kind) -> usize {
    match kind {
        Kind::Cpu => usize::from(is_base()),
        Kind::Cuda => 2,
        Kind::Wgpu => 3,
    }
}

/// The largest error, and where it is.
#[derive(Clone, Debug, Default)]
struct Worst {
    error: u64,
    at: Vec<f32>,
}

impl Worst {
    /// Of two as large the one whose bits are less, so that there is one answer.
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

/// The largest error of a function of these points.
fn worst_of(function: &Function, (kind, device): (Kind, &Device), points: &[[f32; 3]]) -> Worst {
    let column = |i: usize| upload(device, &points.iter().map(|point| point[i]).collect::<Vec<f32>>());
    let results = download((function.call)(&(0..function.arity).map(column).collect::<Vec<_>>()));
    let (of, arity) = (function.of, function.arity);
    let worst = |so_far: Worst, (actual, point): (f32, &[f32; 3])| {
        // Most are right, which needs no further look.
        if actual.to_bits() == of.exact(*point, arity).to_bits() {
            return so_far;
        }
        let error = of.error(kind, &point[..arity], actual);
        if error < so_far.error.max(1) {
            so_far
        } else {
            so_far.or(Worst { error, at: point[..arity].to_vec() })
        }
    };
    results.into_par_iter().zip(points).fold(Worst::default, worst).reduce(Worst::default, Worst::or)
}

/// Elements that are computed at once.
const CHUNK: u64 = 1 << 20;

/// The largest error that is found by visiting every `stride`-th of all numbers, or as many points of several, and the
/// edges.
fn measured(function: &Function, on: (Kind, &Device), stride: u64) -> Worst {
    let near = NEAR_QUARTER_TURNS.into_iter().flat_map(|bits| [bits, bits | 1 << 31]).map(f32::from_bits);
    let mut edges = float::points(function.arity);
    if function.arity == 1 {
        edges.extend(near.map(|x| [x, 0.0, 0.0]));
    }
    let count = (1_u64 << 32).div_ceil(stride);
    let of_chunk = |chunk: u64| {
        let mut random = random_bits(chunk as u32);
        let mut point = |i: u64| match function.arity {
            1 => [f32::from_bits((i * stride) as u32), 0.0, 0.0],
            _ => float::any(i, &mut random),
        };
        let points = chunk * CHUNK..count.min((chunk + 1) * CHUNK);
        worst_of(function, on, &points.map(&mut point).collect::<Vec<_>>())
    };
    let chunks = (0..count.div_ceil(CHUNK)).into_par_iter().map(of_chunk);
    worst_of(function, on, &edges).or(chunks.reduce(Worst::default, Worst::or))
}

/// Arguments at which the table says what there is.
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

/// What a function of one argument gives at the edges.
fn at_edges(function: &Function, device: &Device) -> Vec<f32> {
    download((function.call)(&[upload(device, &EDGES.map(|(_, x)| x))]))
}

fn text(x: f32) -> String {
    let named = EDGES.iter().find(|(_, edge)| edge.to_bits() == x.to_bits() || edge.is_nan() && x.is_nan());
    named.map_or_else(|| format!("{x:?}"), |(name, _)| (*name).into())
}

/// The two tables of the file, each a row of cells for a function.
struct Tables {
    path: String,
    text: String,
}

impl Tables {
    fn read() -> Tables {
        let path = format!("{}/docs/NUMERICS.md", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).expect("the file is there");
        Tables { path, text }
    }

    /// The place of a table's rows, which begin after its name.
    fn rows(&self, name: &str) -> std::ops::Range<usize> {
        let (open, close) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
        let start = self.text.find(&open).expect("the table is there") + open.len();
        start..start + self.text[start..].find(&close).expect("it ends")
    }

    /// The cells of a row but for its name; none if there is no such row.
    fn row(&self, table: &str, function: &str) -> Option<Vec<String>> {
        let mut rows = self.text[self.rows(table)].lines().map(cells);
        let row = rows.find(|cells| cells.first().is_some_and(|name| *name == format!("`{function}`")))?;
        Some(row[1..].to_vec())
    }

    fn replace(&mut self, table: &str, titles: &[&str], rows: &[(String, Vec<String>)]) {
        let line = |name: &str, cells: &[String]| format!("| {name} | {} |\n", cells.join(" | "));
        let titles: Vec<String> = titles.iter().map(|title| (*title).into()).collect();
        let rule: Vec<String> = titles.iter().map(|_| "---".into()).collect();
        let mut text = line("function", &titles) + &line("---", &rule);
        rows.iter().for_each(|(name, cells)| text += &line(&format!("`{name}`"), cells));
        let place = self.rows(table);
        self.text.replace_range(place, &text);
    }
}

fn cells(line: &str) -> Vec<String> {
    let line = line.trim().trim_start_matches('|').trim_end_matches('|');
    line.split('|').map(|cell| cell.trim().into()).collect()
}

const BOUNDS: &str = "largest errors";
const AT_EDGES: &str = "edges";

fn stride(default: u64) -> u64 {
    let stride = std::env::var("FUSION_NUMERICS_STRIDE").ok();
    stride.map_or(default, |stride| stride.parse().expect("FUSION_NUMERICS_STRIDE is a number"))
}

/// Of functions of one argument on the CPU all numbers; the simulated and the software GPU take too long for those.
#[test]
#[ignore = "visits every f32: minutes"]
fn the_tables_are_written() {
    let mut tables = Tables::read();
    let (mut bounds, mut edges) = (vec![], vec![]);
    for function in functions() {
        let mut row = tables.row(BOUNDS, function.name).unwrap_or(vec!["–".into(); TARGETS.len()]);
        for (kind, device) in devices() {
            let stride = match (kind, function.arity) {
                (Kind::Cpu, 1) => stride(1),
                (Kind::Cpu | Kind::Wgpu | Kind::Cuda, _) => stride(1).max(997),
            };
            row[column(kind)] = measured(&function, (kind, &device), stride).to_string();
            eprintln!("{} on {kind:?}: {}", function.name, row[column(kind)]);
        }
        bounds.push((function.name.into(), row));
        if function.arity == 1 {
            let results = at_edges(&function, &Device::cpu()).into_iter().map(text);
            edges.push((function.name.into(), results.collect()));
        }
    }
    tables.replace(BOUNDS, &TARGETS, &bounds);
    tables.replace(AT_EDGES, &EDGES.map(|(name, _)| name), &edges);
    std::fs::write(&tables.path, &tables.text).expect("the file can be written");
}

#[test]
fn errors_are_no_larger_than_the_table_says() {
    let (tables, mut failures) = (Tables::read(), vec![]);
    for function in functions() {
        let row = tables.row(BOUNDS, function.name).expect("each function has a row");
        for (kind, device) in devices() {
            let found = measured(&function, (kind, &device), stride(400_009));
            let known = &row[column(kind)];
            let most: u64 = known.split(' ').next().and_then(|most| most.parse().ok()).expect("a number");
            if found.error > most {
                failures.push(format!("{} on {kind:?}: {found}, not {known}", function.name));
            }
        }
    }
    report(&failures);
}

/// On WGSL, where subnormal numbers and the signs of zeros are nobody's promise, all others.
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
