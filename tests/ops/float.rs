//! Operations on `f32` are within their bounds of the `f64` column of the table.

use fusion_compiler::ir::dtype::DType;
use fusion_compiler::ir::op::{Op, Typing};
use fusion_support::ulp::{NEAR_QUARTER_TURNS, distance};

use super::{EDGES, Kind, devices, download, is_base, kernels, random_bits, report, upload};

/// A result of an operation, with its arguments.
pub(super) struct Case<'a> {
    pub(super) op: Op,
    pub(super) args: &'a [f32],
    pub(super) actual: f32,
}

impl Case<'_> {
    /// Returns every value that a correctly rounded reference may give. A fused multiply-add uses `f32`,
    /// because rounding to `f64` first may be off by one. The oldest instruction set rounds twice.
    fn expect(&self, kind: Kind, args: &[f32]) -> Vec<f32> {
        if let (Op::Fma, &[x, y, z]) = (self.op, args) {
            let once = x.mul_add(y, z);
            return match kind {
                Kind::Cpu if is_base() => vec![x * y + z],
                Kind::Cpu | Kind::Cuda => vec![once],
                Kind::Wgpu => vec![once, x * y + z],
            };
        }
        let wide: Vec<f64> = args.iter().map(|&x| f64::from(x)).collect();
        vec![(self.op.info().eval.float)(&wide) as f32]
    }

    /// Returns the distance of the result from the expected one.
    pub(super) fn error(&self, kind: Kind) -> u64 {
        error(kind, self.args, self.actual, |args| self.expect(kind, args))
    }

    fn allows(&self, kind: Kind) -> bool {
        let ulp = self.op.info().ulp;
        let bound = match kind {
            Kind::Cpu | Kind::Cuda => ulp.native,
            Kind::Wgpu => ulp.wgsl,
        };
        self.error(kind) <= u64::from(bound)
    }
}

/// Returns the distance of a result from the nearest expected one, with infinities, NaN and the signs of
/// zeros.
///
/// WGSL lets a driver flush subnormal operands and results to zero of either sign, and ignore the sign of a
/// zero. Both count as no error. WGSL also lets a driver assume that there is no NaN and no infinity, so the
/// docs promise finite values only. The software Vulkan still treats infinities and NaN as the CPU does, and
/// the tests assert that.
pub(super) fn error(kind: Kind, args: &[f32], actual: f32, expect: impl Fn(&[f32]) -> Vec<f32>) -> u64 {
    let of = |expect: f32| match kind {
        Kind::Wgpu if expect.abs() < f32::MIN_POSITIVE && actual == 0.0 => 0,
        Kind::Cpu | Kind::Cuda | Kind::Wgpu => distance(actual, expect),
    };
    let all = match kind {
        Kind::Cpu | Kind::Cuda => expect(args),
        Kind::Wgpu => flushings(args).iter().flat_map(|args| expect(args)).collect(),
    };
    all.into_iter().map(of).min().expect("a function has a value")
}

/// Returns the operands, with each subnormal or zero unchanged or as a zero of either sign.
fn flushings(args: &[f32]) -> Vec<Vec<f32>> {
    let mut all = vec![vec![]];
    for &x in args {
        let choices = if x.abs() < f32::MIN_POSITIVE { vec![x, 0.0, -0.0] } else { vec![x] };
        all = choices
            .iter()
            .flat_map(|&y| all.iter().map(move |args| [args.as_slice(), &[y]].concat()))
            .collect();
    }
    all
}

/// Runs the operation over columns of operands on every device, and returns a line for each result out of
/// bounds.
fn failures(op: Op, columns: &[Vec<f32>]) -> Vec<String> {
    let function = kernels::float(op).expect("an operation on floats");
    let mut failures = Vec::new();
    for (kind, device) in devices() {
        let tensors: Vec<_> = columns.iter().map(|column| upload(&device, column)).collect();
        let results = download(function.call(&tensors));
        assert_eq!(results.len(), columns[0].len());
        for (i, actual) in results.into_iter().enumerate() {
            let args: Vec<f32> = columns.iter().map(|column| column[i]).collect();
            let case = Case { op, args: &args, actual };
            if !case.allows(kind) {
                failures.push(format!(
                    "{op:?}{args:?} is {actual:?}, not {:?} ({kind:?})",
                    case.expect(kind, &args)
                ));
            }
        }
    }
    failures
}

/// Transposes points into columns of arguments.
pub(super) fn columns(points: &[[f32; 3]], arity: usize) -> Vec<Vec<f32>> {
    (0..arity).map(|i| points.iter().map(|point| point[i]).collect()).collect()
}

/// Returns a number of either sign with an exponent from −20 to 19.
fn moderate(bits: u32) -> f32 {
    f32::from_bits(bits & 0x807f_ffff | (107 + (bits >> 9) % 40) << 23)
}

/// Returns any bits if `turn` is even, and moderate numbers if it is odd.
pub(super) fn any(turn: u64, random: &mut impl Iterator<Item = u32>) -> [f32; 3] {
    let mut next = || random.next().expect("there is no end to them");
    let bits = [next(), next(), next()];
    if turn.is_multiple_of(2) { bits.map(f32::from_bits) } else { bits.map(moderate) }
}

/// Returns all combinations of edges, then any bits, then moderate numbers.
pub(super) fn points(arity: usize) -> Vec<[f32; 3]> {
    let mut points = vec![[0.0; 3]];
    for i in 0..arity {
        points = points.iter().flat_map(|&point| EDGES.map(|x| with(point, i, x))).collect();
    }
    let bits: Vec<u32> = random_bits(0).take(30_000).collect();
    points.extend(bits.chunks_exact(3).map(|bits| [0, 1, 2].map(|i| f32::from_bits(bits[i]))));
    points.extend(bits.chunks_exact(3).map(|bits| [0, 1, 2].map(|i| moderate(bits[i]))));
    points
}

fn with(mut point: [f32; 3], i: usize, x: f32) -> [f32; 3] {
    point[i] = x;
    point
}

fn of_arity(arity: usize) -> impl Iterator<Item = Op> {
    Op::ALL.iter().copied().filter(move |&op| op.info().arity == arity && kernels::float(op).is_some())
}

#[test]
fn each_operation_on_floats_has_a_function() {
    for &op in Op::ALL {
        // Bits of truth values are not bits of floats, and only the compiler creates some of the operations.
        let bits =
            matches!(op.info().typing, Typing::ToBits | Typing::Encode | Typing::Decode | Typing::Double);
        let made = matches!(
            op,
            Op::Opaque | Op::SaturatedFma | Op::MinNum | Op::MaxNum | Op::DivNearOne | Op::ApproxRecip
        );
        let made = made || matches!(op, Op::ExpOfNonpositive | Op::ExpBelow) || op.is_approximation() || bits;
        let expect = op.info().typing.accepts(DType::F32) && !made;
        assert_eq!(kernels::float(op).is_some(), expect, "{op:?}");
    }
}

fn sweep() -> Vec<f32> {
    EDGES.into_iter().chain((0..=u32::MAX).step_by(40_009).map(f32::from_bits)).collect()
}

#[test]
fn unary_operations_are_within_their_bounds() {
    let column = sweep();
    report(&of_arity(1).flat_map(|op| failures(op, std::slice::from_ref(&column))).collect::<Vec<_>>());
}

#[test]
fn binary_operations_are_within_their_bounds() {
    let points = points(2);
    report(&of_arity(2).flat_map(|op| failures(op, &columns(&points, 2))).collect::<Vec<_>>());
}

#[test]
fn ternary_operations_are_within_their_bounds() {
    let points = points(3);
    report(&of_arity(3).flat_map(|op| failures(op, &columns(&points, 3))).collect::<Vec<_>>());
}

/// Angles of every size: random ones, and those next to quarter turns, where the subtraction of the turns
/// loses most.
#[test]
fn circular_functions_are_within_their_bounds_at_every_exponent() {
    let near = NEAR_QUARTER_TURNS.into_iter().flat_map(|bits| bits - 2..=bits + 2);
    let any = random_bits(0)
        .take(100 * 129)
        .enumerate()
        .map(|(i, bits)| bits & 0x7f_ffff | (126 + i as u32 % 129) << 23);
    let column: Vec<f32> =
        near.chain(any).map(f32::from_bits).flat_map(|x| [x, -x]).filter(|x| x.is_finite()).collect();
    let ops = [Op::Sin, Op::Cos, Op::Tan];
    report(&ops.into_iter().flat_map(|op| failures(op, std::slice::from_ref(&column))).collect::<Vec<_>>());
}

/// WGSL does not promise NaN, but these operations test the bits, so NaN passes on every device.
#[test]
fn nan_passes_through_min_and_max_on_every_device() {
    for (_, device) in devices() {
        let x = upload(&device, &[f32::NAN, 1.0, f32::NAN, -f32::NAN]);
        let y = upload(&device, &[1.0, f32::NAN, f32::NAN, f32::INFINITY]);
        for op in [Op::Min, Op::Max] {
            let function = kernels::float(op).expect("an operation on floats");
            let results = download(function.call(&[x.clone(), y.clone()]));
            assert!(results.iter().all(|result| result.is_nan()), "{op:?} on {}: {results:?}", device.name());
        }
    }
}
