//! `#[fuse(fast_math)]`: approximations of devices are within the bounds of `docs/NUMERICS.md`. The CPU has
//! none.

use fusion::prelude::*;

use super::tables::{self, Tables};
use super::{Kind, devices, download, is_hardware, kernels, report, upload};

fuse! {
    #[fuse(fast_math)]
    pub(crate) fn q_div(x: f32[N], y: f32[N]) -> f32[N] { x / y }
    #[fuse(fast_math)]
    pub(crate) fn q_sqrt(x: f32[N]) -> f32[N] { sqrt(x) }
    #[fuse(fast_math)]
    pub(crate) fn q_rsqrt(x: f32[N]) -> f32[N] { rsqrt(x) }
    #[fuse(fast_math)]
    pub(crate) fn q_exp(x: f32[N]) -> f32[N] { exp(x) }
    #[fuse(fast_math)]
    pub(crate) fn q_exp2(x: f32[N]) -> f32[N] { exp2(x) }
    #[fuse(fast_math)]
    pub(crate) fn q_log(x: f32[N]) -> f32[N] { log(x) }
    #[fuse(fast_math)]
    pub(crate) fn q_log2(x: f32[N]) -> f32[N] { log2(x) }
    #[fuse(fast_math)]
    pub(crate) fn q_sin(x: f32[N]) -> f32[N] { sin(x) }
    #[fuse(fast_math)]
    pub(crate) fn q_cos(x: f32[N]) -> f32[N] { cos(x) }
    #[fuse(fast_math)]
    pub(crate) fn q_softmax(x: f32[N, D]) -> f32[N, D] { softmax(x, D) }
    pub(crate) fn softmax_of_rows(x: f32[N, D]) -> f32[N, D] { softmax(x, D) }
}

type Call = fn(&[Tensor<f32>]) -> Result<Tensor<f32>>;

/// A function, the range of its measured arguments, and the unit of its errors. Errors are in multiples of
/// 2⁻²³ of that unit.
struct Row {
    name: &'static str,
    fast: Call,
    accurate: Call,
    of: fn(&[f64]) -> f64,
    domain: [f32; 2],
    unit: Unit,
    /// Expected error for the size of an argument and of a result, in units of 2⁻²³. The first is that of
    /// PTX's approximations, as a sum where a function uses two. The second is that of WGSL's own functions.
    ptx: fn(f64, f64) -> f64,
    wgsl: fn(f64, f64) -> f64,
}

/// The unit of an error.
#[derive(Clone, Copy)]
enum Unit {
    /// The size of the result.
    Relative,
    /// The size of the result, plus 1.
    Mixed,
    /// The number 1.
    Absolute,
}

impl Unit {
    fn of(self, result: f64) -> f64 {
        match self {
            Unit::Relative => result.abs(),
            Unit::Mixed => 1.0 + result.abs(),
            Unit::Absolute => 1.0,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Unit::Relative => "the result",
            Unit::Mixed => "1 + abs(result)",
            Unit::Absolute => "1",
        }
    }
}

const EPSILON: f64 = f32::EPSILON as f64;
const HALF_TURN: f32 = std::f32::consts::PI;

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { name: "div", fast: |x| q_div(&x[0], &x[1]), accurate: |x| kernels::f_div(&x[0], &x[1]), of: |x| x[0] / x[1], domain: [1e-16, 1e16], unit: Unit::Relative, ptx: |_, y| 2.0 * y, wgsl: |_, y| 2.5 * y },
    Row { name: "sqrt", fast: |x| q_sqrt(&x[0]), accurate: |x| kernels::f_sqrt(&x[0]), of: |x| x[0].sqrt(), domain: [0.0, 1e30], unit: Unit::Relative, ptx: |_, y| 1.5 * y, wgsl: |_, y| 4.0 * y },
    Row { name: "rsqrt", fast: |x| q_rsqrt(&x[0]), accurate: |x| kernels::f_rsqrt(&x[0]), of: |x| x[0].sqrt().recip(), domain: [1e-30, 1e30], unit: Unit::Relative, ptx: |_, y| 2.0 * y, wgsl: |_, y| 2.0 * y },
    Row { name: "exp", fast: |x| q_exp(&x[0]), accurate: |x| kernels::f_exp(&x[0]), of: |x| x[0].exp(), domain: [-80.0, 80.0], unit: Unit::Relative, ptx: |x, y| (2.0 + 1.2 * x) * y, wgsl: |x, y| (3.0 + 2.0 * x) * y },
    Row { name: "exp2", fast: |x| q_exp2(&x[0]), accurate: |x| kernels::f_exp2(&x[0]), of: |x| x[0].exp2(), domain: [-120.0, 120.0], unit: Unit::Relative, ptx: |_, y| 2.0 * y, wgsl: |x, y| (3.0 + 2.0 * x) * y },
    Row { name: "log", fast: |x| q_log(&x[0]), accurate: |x| kernels::f_log(&x[0]), of: |x| x[0].ln(), domain: [1e-30, 1e30], unit: Unit::Mixed, ptx: |_, y| 3.0 * (y + 1.0), wgsl: |_, y| 3.0 * y + 4.0 },
    Row { name: "log2", fast: |x| q_log2(&x[0]), accurate: |x| kernels::f_log2(&x[0]), of: |x| x[0].log2(), domain: [1e-30, 1e30], unit: Unit::Mixed, ptx: |_, y| 2.0 * (y + 1.0), wgsl: |_, y| 3.0 * y + 4.0 },
    Row { name: "sin", fast: |x| q_sin(&x[0]), accurate: |x| kernels::f_sin(&x[0]), of: |x| x[0].sin(), domain: [-HALF_TURN, HALF_TURN], unit: Unit::Absolute, ptx: |_, _| 5e-7 / EPSILON, wgsl: |_, _| 4.9e-4 / EPSILON },
    Row { name: "cos", fast: |x| q_cos(&x[0]), accurate: |x| kernels::f_cos(&x[0]), of: |x| x[0].cos(), domain: [-HALF_TURN, HALF_TURN], unit: Unit::Absolute, ptx: |_, _| 5e-7 / EPSILON, wgsl: |_, _| 4.9e-4 / EPSILON },
];

/// Returns numbers of every size in the domain, small ones too. A second operand has them negated, in another
/// order.
fn arguments(row: &Row) -> Vec<Vec<f32>> {
    let [low, high] = row.domain;
    let even = (0..=20_000).map(|i| low + (high - low) * (i as f32 / 20_000.0));
    let sizes = (-99..=99).map(|i| 2f32.powi(i)).flat_map(|x| [x, -x, 1.37 * x]);
    let first: Vec<f32> = even.chain(sizes).filter(|x| (low..=high).contains(x)).collect();
    let second = (0..first.len()).map(|i| -first[i * 7919 % first.len()]).collect();
    if row.name == "div" { vec![first, second] } else { vec![first] }
}

/// The largest error in the row's unit with its arguments, and the largest error as a share of the expected
/// one.
struct Worst {
    error: f64,
    at: Vec<f32>,
    share: f64,
}

impl Worst {
    /// Formats the error rounded up, so that no measured error exceeds it.
    fn text(&self) -> String {
        let at: Vec<String> = self.at.iter().map(|x| format!("{x:?}")).collect();
        format!("{:.2} at {}", (self.error * 100.0).ceil() / 100.0, at.join(", "))
    }
}

fn measured(row: &Row, (kind, device): (Kind, &Device), columns: &[Vec<f32>]) -> Worst {
    let tensors: Vec<_> = columns.iter().map(|column| upload(device, column)).collect();
    let mut worst = Worst { error: 0.0, at: vec![0.0; columns.len()], share: 0.0 };
    for (i, got) in download((row.fast)(&tensors)).into_iter().enumerate() {
        let at: Vec<f32> = columns.iter().map(|column| column[i]).collect();
        let expect = (row.of)(&at.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
        let missed = (f64::from(got) - expect).abs();
        assert!(!missed.is_nan(), "{}{at:?} on {kind:?} is {got}", row.name);
        if missed == 0.0 {
            continue;
        }
        let error = missed / EPSILON / row.unit.of(expect);
        let expected = if kind == Kind::Wgpu { row.wgsl } else { row.ptx };
        let share = missed / EPSILON / expected(f64::from(at[0]).abs(), expect.abs());
        worst.share = worst.share.max(share);
        if error > worst.error {
            (worst.error, worst.at) = (error, at);
        }
    }
    worst
}

const TABLE: &str = "fast math";
const TITLES: [&str; 5] = ["arguments", "ε of", "PTX", "H200", "WGSL"];

/// Returns the table column of a GPU of this process.
fn column(kind: Kind, device: &Device) -> usize {
    match kind {
        Kind::Cpu => unreachable!("nothing is approximated there"),
        Kind::Cuda => 2 + usize::from(is_hardware(device)),
        Kind::Wgpu => 4,
    }
}

#[test]
#[ignore = "writes a table"]
fn the_table_of_approximations_is_written() {
    let tables = Tables::read();
    let cells = |row: &Row| {
        let (columns, [low, high]) = (arguments(row), row.domain);
        let mut cells = tables.row(TABLE, row.name).expect("each function has a row");
        cells[0] = if high == HALF_TURN { "−π … π".into() } else { format!("{low:?} … {high:?}") };
        cells[1] = row.unit.text().into();
        for (kind, device) in devices().into_iter().filter(|(kind, _)| *kind != Kind::Cpu) {
            cells[column(kind, &device)] = measured(row, (kind, &device), &columns).text();
        }
        (row.name.into(), cells)
    };
    let rows: Vec<_> = ROWS.iter().map(cells).collect();
    Tables::update(|tables| tables.replace(TABLE, &TITLES, &rows));
}

#[test]
fn approximations_are_within_their_bounds() {
    let (tables, mut failures) = (Tables::read(), vec![]);
    for row in ROWS {
        let (columns, known) =
            (arguments(row), tables.row(TABLE, row.name).expect("each function has a row"));
        for (kind, device) in devices() {
            if kind == Kind::Cpu {
                let tensors: Vec<_> = columns.iter().map(|column| upload(&device, column)).collect();
                let bits = |call: Call| -> Vec<u32> {
                    download(call(&tensors)).iter().map(|x| x.to_bits()).collect()
                };
                assert_eq!(bits(row.fast), bits(row.accurate), "{} on the CPU", row.name);
                continue;
            }
            let found = measured(row, (kind, &device), &columns);
            let known: f64 = tables::number(&known[column(kind, &device)]);
            if found.error > known || found.share > 1.0 {
                failures.push(format!(
                    "{} on {kind:?}: {}, not {known}; {} of what is expected",
                    row.name,
                    found.text(),
                    found.share
                ));
            }
        }
    }
    report(&failures);
}

/// PTX's approximations flush subnormal numbers to 0, and quotients by more than 2¹²⁶, too.
#[test]
fn what_is_too_small_is_zero() {
    let (small, large) = (f32::MIN_POSITIVE / 4.0, f32::MAX / 2.0);
    for (kind, device) in devices().into_iter().filter(|(kind, _)| *kind != Kind::Wgpu) {
        let one = |x: f32| upload(&device, &[x]);
        let got = [
            q_div(&one(small), &one(0.25)),
            q_div(&one(2.0), &one(f32::MAX)),
            q_div(&one(large), &one(f32::MAX)),
            q_sqrt(&one(small)),
            q_rsqrt(&one(small)),
            q_exp(&one(-90.0)),
        ];
        let got: Vec<f32> = got.into_iter().flat_map(download).collect();
        if kind == Kind::Cuda {
            assert_eq!(got, [0.0, 0.0, 0.0, 0.0, f32::INFINITY, 0.0], "{device}");
        } else {
            assert!(got.iter().all(|&x| x > 0.0 && x.is_finite()), "{got:?}");
        }
    }
}

/// `fast_math` leaves fusion as it is, and the texts contain the approximations.
#[test]
fn rows_take_approximations_too() {
    #[cfg(feature = "ptx")]
    {
        let [fast, accurate] = [q_softmax::PTX, softmax_of_rows::PTX];
        assert!(fast.contains("ex2.approx.ftz.f32") && fast.contains("div.approx.ftz.f32"));
        // An approximation of a reduced argument is within the bound of `exp`.
        assert!(!accurate.replace("ex2.approx.ftz", "").contains("approx") && !accurate.contains(".full"));
    }
    #[cfg(feature = "wgsl")]
    assert!(q_softmax::WGSL.contains("exp(") && !softmax_of_rows::WGSL.contains("exp("));
    let (fast, accurate) = (q_softmax::report(), softmax_of_rows::report());
    assert_eq!(fast.kernels(), accurate.kernels());
    assert!(fast.to_string().contains("; fast math") && !accurate.to_string().contains("fast math"));
    for (_, device) in devices() {
        let x: Vec<f32> = (0..3 * 1000).map(|i| (i * 37 % 101) as f32 * 0.2 - 10.0).collect();
        let x = Tensor::from_slice(&device, &x, [3, 1000]).expect("there is memory");
        let pairs = download(q_softmax(&x)).into_iter().zip(download(softmax_of_rows(&x)));
        assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() <= 1e-5 * b), "{device}");
    }
}
