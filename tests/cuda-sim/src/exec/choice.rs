//! Comparisons, predicates and selections.

use half::{bf16, f16};

use super::float::Real;
use super::int::by_int;
use super::regs::{Lane, Regs, lanes};
use crate::ptx::ir::{Bits, Cmp, Float, Int, Logic, Number, PredSrc, Reg};

/// The lanes where a comparison holds; for pairs, of the lower and of the upper halves.
#[inline(always)]
pub(super) fn compare(
    regs: &Regs,
    cmp: Cmp,
    ty: Number,
    ftz: bool,
    (a, b): (Reg, Reg),
) -> (u32, Option<u32>) {
    match ty {
        Number::Int(int) => by_int!(int, T => (whole::<T>(regs, cmp, a, b), None)),
        Number::Float(Float::F32) if ftz => (real::<f32>(regs, cmp, a, b, |x| x.flushed()), None),
        Number::Float(Float::F32) => (real::<f32>(regs, cmp, a, b, |x| x), None),
        Number::Float(Float::F64) => (real::<f64>(regs, cmp, a, b, |x| x), None),
        Number::Float(Float::F16) => {
            (real::<f16>(regs, cmp, a, b, |x| if ftz { x.flushed() } else { x }), None)
        }
        Number::Float(Float::BF16) => (real::<bf16>(regs, cmp, a, b, |x| x), None),
        Number::Float(Float::F16x2) => pairs::<f16>(regs, cmp, a, b, ftz),
        Number::Float(Float::BF16x2) => pairs::<bf16>(regs, cmp, a, b, ftz),
    }
}

fn pairs<T: Real + Lane<Raw = u32>>(regs: &Regs, cmp: Cmp, a: Reg, b: Reg, ftz: bool) -> (u32, Option<u32>) {
    let half = |shift: u32| {
        regs.test(a, b, |x: u32, y: u32| {
            let half = |x: u32| T::of(x >> shift & 0xffff);
            let [x, y] = [half(x), half(y)].map(|x| if ftz { x.flushed() } else { x });
            holds(cmp, x < y, x == y, x > y)
        })
    };
    (half(0), Some(half(16)))
}

#[inline(always)]
fn whole<T: Lane + Ord>(regs: &Regs, cmp: Cmp, a: Reg, b: Reg) -> u32 {
    match cmp {
        Cmp::Eq | Cmp::Equ => regs.test(a, b, |x: T, y: T| x == y),
        Cmp::Ne | Cmp::Neu => regs.test(a, b, |x: T, y: T| x != y),
        Cmp::Lt | Cmp::Ltu => regs.test(a, b, |x: T, y: T| x < y),
        Cmp::Le | Cmp::Leu => regs.test(a, b, |x: T, y: T| x <= y),
        Cmp::Gt | Cmp::Gtu => regs.test(a, b, |x: T, y: T| x > y),
        Cmp::Ge | Cmp::Geu => regs.test(a, b, |x: T, y: T| x >= y),
        Cmp::Num | Cmp::Nan => unreachable!("a comparison of floats"),
    }
}

#[inline(always)]
fn real<T: Real>(regs: &Regs, cmp: Cmp, a: Reg, b: Reg, f: impl Fn(T) -> T) -> u32 {
    match cmp {
        Cmp::Lt => regs.test(a, b, |x: T, y: T| f(x) < f(y)),
        Cmp::Gt => regs.test(a, b, |x: T, y: T| f(x) > f(y)),
        Cmp::Le => regs.test(a, b, |x: T, y: T| f(x) <= f(y)),
        Cmp::Ge => regs.test(a, b, |x: T, y: T| f(x) >= f(y)),
        Cmp::Eq => regs.test(a, b, |x: T, y: T| f(x) == f(y)),
        Cmp::Ne | Cmp::Equ | Cmp::Neu | Cmp::Ltu | Cmp::Leu | Cmp::Gtu | Cmp::Geu | Cmp::Num | Cmp::Nan => {
            regs.test(a, b, |x: T, y: T| holds(cmp, f(x) < f(y), f(x) == f(y), f(x) > f(y)))
        }
    }
}

/// Whether a comparison holds of floats, of which at most one of the three is true; none: one is NaN.
#[inline(always)]
fn holds(cmp: Cmp, less: bool, equal: bool, more: bool) -> bool {
    let unordered = !(less || equal || more);
    match cmp {
        Cmp::Eq => equal,
        Cmp::Ne => less || more,
        Cmp::Lt => less,
        Cmp::Le => less || equal,
        Cmp::Gt => more,
        Cmp::Ge => more || equal,
        Cmp::Equ => equal || unordered,
        Cmp::Neu => !equal,
        Cmp::Ltu => less || unordered,
        Cmp::Leu => !more,
        Cmp::Gtu => more || unordered,
        Cmp::Geu => !less,
        Cmp::Num => !unordered,
        Cmp::Nan => unordered,
    }
}

/// A predicate operand in all lanes.
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

/// `p = cmp ∘ c` and `q = ¬cmp ∘ c`.
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
fn select_of<R: super::regs::Raw>(regs: &mut Regs, exec: u32, d: Reg, (a, b): (Reg, Reg), truth: u32) {
    let (x, y) = (R::row(regs, a), R::row(regs, b));
    let mut out = [R::default(); super::regs::LANES];
    for lane in 0..super::regs::LANES {
        out[lane] = if truth >> lane & 1 == 1 { x[lane] } else { y[lane] };
    }
    regs.put(exec, d, &out);
}

/// `slct`: `a` where `c` is not negative. NaN is; −0 is not.
pub(super) fn by_sign(regs: &Regs, exec: u32, float: bool, ftz: bool, c: Reg) -> u32 {
    let row: &[u32; 32] = super::regs::Raw::row(regs, c);
    let picks = |bits: u32| {
        if !float {
            return bits as i32 >= 0;
        }
        let x = f32::from_bits(bits);
        (if ftz { x.flushed() } else { x }) >= 0.0
    };
    lanes(exec).map(|lane| u32::from(picks(row[lane])) << lane).fold(0, |all, lane| all | lane)
}

/// `set`: the bits of truth, or zero; the same in the upper half where there are pairs.
pub(super) fn set(regs: &mut Regs, exec: u32, d: Reg, bits: u32, (low, high): (u32, u32)) {
    let mut out = [0u32; super::regs::LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        let half = |truth: u32| if truth >> lane & 1 == 1 { bits } else { 0 };
        *out = half(low) | half(high) << 16;
    }
    regs.put(exec, d, &out);
}
