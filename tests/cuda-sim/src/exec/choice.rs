//! Comparisons, predicates and selections.

use half::{bf16, f16};

use super::float::Real;
use super::regs::{LANES, Lane, Raw, Regs, lanes};
use crate::ptx::ir::{Bits, Cmp, Float, Int, Logic, Number, PredSrc, Reg};

/// Lanes where the first operand is less, where both are equal, and where the first is greater.
type Order = (u32, u32, u32);

/// Returns the lanes where a comparison is true. For pairs, the second result is that of the upper halves.
#[inline(always)]
pub(super) fn compare(
    regs: &Regs,
    cmp: Cmp,
    ty: Number,
    ftz: bool,
    (a, b): (Reg, Reg),
) -> (u32, Option<u32>) {
    let float = match ty {
        Number::Int(int) => return (holds(cmp, whole(regs, int, a, b)), None),
        Number::Float(Float::F64) => return (holds(cmp, order(f64s(regs, a), f64s(regs, b))), None),
        Number::Float(float) => float,
    };
    let of = |upper| {
        order(singles(u32::row(regs, a), float, upper, ftz), singles(u32::row(regs, b), float, upper, ftz))
    };
    let pairs = matches!(float, Float::F16x2 | Float::BF16x2);
    (holds(cmp, of(false)), pairs.then(|| holds(cmp, of(true))))
}

fn f64s(regs: &Regs, reg: Reg) -> [f64; LANES] {
    u64::row(regs, reg).map(f64::from_bits)
}

/// Converts floats of 32 bits or less to f32, which is exact. For pairs it converts one half.
#[inline(always)]
fn singles(row: &[u32; LANES], float: Float, upper: bool, ftz: bool) -> [f32; LANES] {
    match float {
        Float::F32 if ftz => row.map(|bits| f32::from_bits(bits).flushed()),
        Float::F32 | Float::F64 => row.map(f32::from_bits),
        Float::F16 | Float::F16x2 => halves::<f16>(row, upper, ftz),
        Float::BF16 | Float::BF16x2 => halves::<bf16>(row, upper, ftz),
    }
}

#[inline(never)]
fn halves<T: Real + Lane<Raw = u32>>(row: &[u32; LANES], upper: bool, ftz: bool) -> [f32; LANES] {
    row.map(|bits| {
        let half = T::of(if upper { bits >> 16 } else { bits & 0xffff });
        (if ftz { half.flushed() } else { half }).wide() as f32
    })
}

#[inline(always)]
fn order<T: PartialOrd + Copy>(x: [T; LANES], y: [T; LANES]) -> Order {
    let (mut less, mut equal, mut more) = (0, 0, 0);
    for lane in 0..LANES {
        less |= u32::from(x[lane] < y[lane]) << lane;
        equal |= u32::from(x[lane] == y[lane]) << lane;
        more |= u32::from(x[lane] > y[lane]) << lane;
    }
    (less, equal, more)
}

/// Compares integers. One of the three relations is always true, so two tests suffice.
#[inline(always)]
fn whole(regs: &Regs, int: Int, a: Reg, b: Reg) -> Order {
    // Values of 16 bits compare in the upper half of a word as they do alone.
    let up = |x: u32| x << 16;
    let equal = match int {
        Int::U16 | Int::S16 => regs.test(a, b, |x: u32, y: u32| up(x) == up(y)),
        Int::U32 | Int::S32 => regs.test(a, b, |x: u32, y: u32| x == y),
        Int::U64 | Int::S64 => regs.test(a, b, |x: u64, y: u64| x == y),
    };
    let less = match int {
        Int::U16 => regs.test(a, b, |x: u32, y: u32| up(x) < up(y)),
        Int::S16 => regs.test(a, b, |x: u32, y: u32| (up(x) as i32) < up(y) as i32),
        Int::U32 => regs.test(a, b, |x: u32, y: u32| x < y),
        Int::S32 => regs.test(a, b, |x: i32, y: i32| x < y),
        Int::U64 => regs.test(a, b, |x: u64, y: u64| x < y),
        Int::S64 => regs.test(a, b, |x: i64, y: i64| x < y),
    };
    (less, equal, !(less | equal))
}

/// Returns the lanes where a comparison is true. An operand is NaN where none of the three relations is true.
#[inline(always)]
fn holds(cmp: Cmp, (less, equal, more): Order) -> u32 {
    let unordered = !(less | equal | more);
    match cmp {
        Cmp::Eq => equal,
        Cmp::Ne => less | more,
        Cmp::Lt => less,
        Cmp::Le => less | equal,
        Cmp::Gt => more,
        Cmp::Ge => more | equal,
        Cmp::Equ => equal | unordered,
        Cmp::Neu => !equal,
        Cmp::Ltu => less | unordered,
        Cmp::Leu => !more,
        Cmp::Gtu => more | unordered,
        Cmp::Geu => !less,
        Cmp::Num => !unordered,
        Cmp::Nan => unordered,
    }
}

/// Returns the value of a predicate operand in all lanes.
#[inline(always)]
pub(super) fn truth(regs: &Regs, p: PredSrc) -> u32 {
    regs.truth(p.pred, p.negated)
}

#[inline(always)]
pub(super) fn logic(op: Logic, x: u32, y: u32) -> u32 {
    match op {
        Logic::And => x & y,
        Logic::Or => x | y,
        Logic::Xor => x ^ y,
    }
}

/// Computes `p = cmp ∘ c` and `q = ¬cmp ∘ c`.
#[inline(always)]
pub(super) fn setp(
    regs: &mut Regs,
    exec: u32,
    (truth_of, upper): (u32, Option<u32>),
    and: Option<(Logic, PredSrc)>,
    (p, q): (Option<Reg>, Option<Reg>),
) {
    let with = |regs: &Regs, t: u32| and.map_or(t, |(op, c)| logic(op, t, truth(regs, c)));
    let (first, second) = (with(regs, truth_of), with(regs, upper.unwrap_or(!truth_of)));
    if let Some(p) = p {
        regs.set_mask(exec, p, first);
    }
    if let Some(q) = q {
        regs.set_mask(exec, q, second);
    }
}

#[inline(always)]
pub(super) fn select(regs: &mut Regs, exec: u32, bits: Bits, d: Reg, (a, b): (Reg, Reg), truth: u32) {
    match bits {
        Bits::B16 | Bits::B32 => select_of::<u32>(regs, exec, d, (a, b), truth),
        Bits::B64 => select_of::<u64>(regs, exec, d, (a, b), truth),
    }
}

#[inline(always)]
fn select_of<R: Raw>(regs: &mut Regs, exec: u32, d: Reg, (a, b): (Reg, Reg), truth: u32) {
    let (x, y) = (R::row(regs, a), R::row(regs, b));
    let mut out = [R::default(); LANES];
    for lane in 0..LANES {
        out[lane] = if truth >> lane & 1 == 1 { x[lane] } else { y[lane] };
    }
    regs.put(exec, d, &out);
}

/// Returns the lanes where `slct` selects `a`: where `c` is not negative. NaN counts as negative, and −0 does
/// not.
pub(super) fn by_sign(regs: &Regs, exec: u32, float: bool, ftz: bool, c: Reg) -> u32 {
    let row: &[u32; 32] = Raw::row(regs, c);
    let picks = |bits: u32| {
        if !float {
            return bits as i32 >= 0;
        }
        let x = f32::from_bits(bits);
        (if ftz { x.flushed() } else { x }) >= 0.0
    };
    lanes(exec).map(|lane| u32::from(picks(row[lane])) << lane).fold(0, |all, lane| all | lane)
}

/// Writes the result of `set`: the bits of true, or zero. For pairs the upper half is the second
/// comparison's.
pub(super) fn set(regs: &mut Regs, exec: u32, d: Reg, bits: u32, (low, high): (u32, u32)) {
    let mut out = [0u32; LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        let half = |truth: u32| if truth >> lane & 1 == 1 { bits } else { 0 };
        *out = half(low) | half(high) << 16;
    }
    regs.put(exec, d, &out);
}
