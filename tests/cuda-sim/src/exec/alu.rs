//! Arithmetic of lanes on their own registers.
//!
//! The code is compiled twice. The second version is for hosts with wide vectors and fused multiply-add.

use super::regs::{LANES, Raw, Regs};
use super::{bits, choice, convert, float, int};
use crate::ptx::ir::{Alu, Bits, Reg, Wide};

/// Runs one instruction in the active lanes.
#[inline]
pub(super) fn run(regs: &mut Regs, exec: u32, alu: &Alu, fast: bool) {
    #[cfg(target_arch = "x86_64")]
    if fast {
        // SAFETY: `fast` is true only if the host has these features.
        unsafe { with_vectors(regs, exec, alu) };
        return;
    }
    let _ = fast;
    one(regs, exec, alu);
}

/// Returns true if the host has the features of the fast version.
pub(super) fn is_fast() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("bmi2");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
fn with_vectors(regs: &mut Regs, exec: u32, alu: &Alu) {
    one(regs, exec, alu);
}

#[inline(always)]
fn one(regs: &mut Regs, exec: u32, alu: &Alu) {
    match *alu {
        Alu::IntUn { op, ty, d, a } => int::unary(regs, exec, op, ty, d, a),
        Alu::Count { op, ty, d, a } => int::count(regs, exec, op, ty, d, a),
        Alu::IntBin { op, ty, d, a, b } => int::binary(regs, exec, op, ty, d, (a, b)),
        Alu::IntPair { op, ty, d, a, b } => int::pair(regs, exec, op, ty, d, (a, b)),
        Alu::IntTri { op, ty, d, a, b, c } => int::ternary(regs, exec, op, ty, d, (a, b, c)),
        Alu::MulWide { ty, d, a, b } => int::mul_wide(regs, exec, ty, d, (a, b)),
        Alu::MadWide { ty, d, a, b, c } => int::mad_wide(regs, exec, ty, d, (a, b, c)),
        Alu::Carry { op, ty, carry_in, carry_out, d, a, b, c } => {
            int::carry(regs, exec, ty, int::Carries { op, carry_in, carry_out }, d, (a, b, c));
        }
        Alu::Shift { shift, ty, d, a, b } => int::shift(regs, exec, shift, ty, d, (a, b)),
        Alu::Funnel { shift, wrap, d, a, b, c } => bits::funnel(regs, exec, shift, wrap, d, (a, b, c)),
        Alu::Lop3 { table, d, a, b, c } => bits::lop3(regs, exec, table, d, (a, b, c)),
        Alu::Lop3Pred { table, op, d, p, abc: [a, b, c], q } => {
            let with = choice::truth(regs, q);
            bits::lop3(regs, exec, table, d, (a, b, c));
            regs.set_mask(exec, p, choice::logic(op, bits::any(regs, d), with));
        }
        Alu::Mask { clamp, d, a, b } => bits::mask(regs, exec, clamp, d, (a, b)),
        Alu::Extend { clamp, ty, d, a, b } => bits::extend(regs, exec, (clamp, ty), d, (a, b)),
        Alu::Fns { d, a, b, c } => bits::fns(regs, exec, d, (a, b, c)),
        Alu::Prmt { mode, d, a, b, c } => bits::prmt(regs, exec, mode, d, (a, b, c)),
        Alu::Bfe { ty, d, a, b, c } => bits::bfe(regs, exec, ty, d, (a, b, c)),
        Alu::Bfi { ty, d, a, b, c, e } => bits::bfi(regs, exec, ty, d, (a, b, c), e),
        Alu::Dot { dot, signed, d, a, b, c } => bits::dot(regs, exec, dot, signed, d, (a, b, c)),
        Alu::AbsDiff { add, d, a, b } => bits::abs_diff(regs, exec, add, d, (a, b)),
        Alu::FloatUn { op, ty, mode, d, a } => float::unary(regs, exec, (op, ty, mode), d, a),
        Alu::FloatBin { op, ty, mode, d, a, b } => float::binary(regs, exec, (op, ty, mode), d, (a, b)),
        Alu::Fma { ty, mode, d, a, b, c } => float::fma(regs, exec, (ty, mode), d, (a, b, c)),
        Alu::Testp { test, ty, d, a } => float::test(regs, exec, (test, ty), d, a),
        Alu::Convert { ref convert, d, a } => convert::convert(regs, exec, convert, d, a),
        Alu::ConvertPair { to, round, relu, d, a, b } => {
            convert::pair(regs, exec, (to, round, relu), d, (a, b))
        }
        Alu::Setp { cmp, ty, ftz, and, p, q, a, b } => {
            let truth = choice::compare(regs, cmp, ty, ftz, (a, b));
            choice::setp(regs, exec, truth, and, (p, q));
        }
        Alu::Set { cmp, ty, ftz, and, truth, d, a, b } => {
            let (low, high) = choice::compare(regs, cmp, ty, ftz, (a, b));
            let with = |holds| and.map_or(holds, |(op, p)| choice::logic(op, holds, choice::truth(regs, p)));
            choice::set(regs, exec, d, truth, (with(low), high.map_or(0, with)));
        }
        Alu::Selp { bits, d, a, b, p } => choice::select(regs, exec, bits, d, (a, b), choice::truth(regs, p)),
        Alu::Slct { bits, float, ftz, d, a, b, c } => {
            let truth = choice::by_sign(regs, exec, float, ftz, c);
            choice::select(regs, exec, bits, d, (a, b), truth);
        }
        Alu::PredBin { op, d, a, b } => {
            let truth = choice::logic(op, choice::truth(regs, a), choice::truth(regs, b));
            regs.set_mask(exec, d, truth);
        }
        Alu::PredMove { d, a } => regs.set_mask(exec, d, choice::truth(regs, a)),
        Alu::Move { bits, d, a } => copy(regs, exec, bits, d, a),
        Alu::Pack { element, whole, d, ref a } => pack(regs, exec, element, (d, whole), a),
        Alu::Unpack { element, whole, ref d, a } => unpack(regs, exec, element, d, (a, whole)),
    }
}

#[inline(always)]
fn copy(regs: &mut Regs, exec: u32, bits: Bits, d: Reg, a: Reg) {
    match bits {
        Bits::B16 | Bits::B32 => regs.map(exec, d, a, |x: u32| x),
        Bits::B64 => regs.map(exec, d, a, |x: u64| x),
    }
}

/// Returns the lanes whose result is undefined because an operand is. A selection ignores the operand that it
/// does not select.
///
/// None for instructions that keep state outside of registers.
#[cold]
pub(super) fn undefined(regs: &Regs, exec: u32, alu: &Alu, reads: &[Reg]) -> Option<u32> {
    let missing = |reg: Reg| exec & !regs.written[reg as usize];
    let chosen = |first: u32, a: Reg, b: Reg| (first & missing(a)) | (!first & missing(b));
    Some(match *alu {
        Alu::Carry { .. } => return None,
        Alu::Selp { a, b, p, .. } => missing(p.pred) | chosen(choice::truth(regs, p), a, b),
        Alu::Slct { float, ftz, a, b, c, .. } => {
            missing(c) | chosen(choice::by_sign(regs, exec, float, ftz, c), a, b)
        }
        ref _of_all => reads.iter().fold(0, |all, &reg| all | missing(reg)),
    })
}

/// Returns the number of bits of an element.
pub(super) fn width(element: Bits) -> u32 {
    match element {
        Bits::B16 => 16,
        Bits::B32 => 32,
        Bits::B64 => 64,
    }
}

fn pack(regs: &mut Regs, exec: u32, element: Bits, (d, whole): (Reg, Wide), a: &[Reg]) {
    let (width, mut out) = (width(element), [0u64; LANES]);
    for (i, &reg) in a.iter().enumerate() {
        let row = u32::row(regs, reg);
        for lane in 0..LANES {
            out[lane] |= (u64::from(row[lane]) & ((1 << width) - 1)) << (width * i as u32);
        }
    }
    match whole {
        Wide::One => regs.put(exec, d, &out.map(|x| x as u32)),
        Wide::Two => regs.put(exec, d, &out),
    }
}

fn unpack(regs: &mut Regs, exec: u32, element: Bits, d: &[Option<Reg>], (a, whole): (Reg, Wide)) {
    let width = width(element);
    let from: [u64; LANES] = std::array::from_fn(|lane| regs.get((a, whole), lane));
    for (i, &reg) in d.iter().enumerate() {
        let Some(reg) = reg else { continue };
        let part = from.map(|x| (x >> (width * i as u32) & ((1 << width) - 1)) as u32);
        regs.put(exec, reg, &part);
    }
}
