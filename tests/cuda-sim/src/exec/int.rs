//! Arithmetic on whole numbers.

use super::regs::{Lane, Raw, Regs};
use crate::ptx::ir::{CarryOp, Count, Int, IntBin, IntTri, IntUn, Reg, Shift};

/// Calls a macro-like body with `T` as the host's type of an [`Int`].
macro_rules! by_int {
    ($int:expr, $T:ident => $body:expr) => {
        match $int {
            Int::U16 => {
                type $T = u16;
                $body
            }
            Int::U32 => {
                type $T = u32;
                $body
            }
            Int::U64 => {
                type $T = u64;
                $body
            }
            Int::S16 => {
                type $T = i16;
                $body
            }
            Int::S32 => {
                type $T = i32;
                $body
            }
            Int::S64 => {
                type $T = i64;
                $body
            }
        }
    };
}
pub(super) use by_int;

/// What the host's whole numbers have in common.
pub(super) trait Whole: Lane + Ord + Default {
    type Twice: Lane;
    const BITS: u32;
    const ZERO: Self;
    fn add(self, o: Self) -> Self;
    fn sub(self, o: Self) -> Self;
    fn mul(self, o: Self) -> Self;
    fn mul_hi(self, o: Self) -> Self;
    fn div(self, o: Self) -> Self;
    fn rem(self, o: Self) -> Self;
    fn not(self) -> Self;
    fn abs(self) -> Self;
    fn add_sat(self, o: Self) -> Self;
    fn sub_sat(self, o: Self) -> Self;
    fn shl(self, n: u32) -> Self;
    /// Beyond the width: the sign, or nothing.
    fn shr(self, n: u32) -> Self;
    fn popc(self) -> u32;
    fn clz(self) -> u32;
    fn brev(self) -> Self;
    fn from_bool(b: bool) -> Self;
    /// All bits, extended by the sign where there is one.
    fn wide(self) -> i128;
    fn cut(wide: i128) -> Self;
    fn twice(wide: i128) -> Self::Twice;
}

macro_rules! whole {
    ($($ty:ident, $twice:ident, $signed:expr;)*) => {$(
        impl Whole for $ty {
            type Twice = $twice;
            const BITS: u32 = $ty::BITS;
            const ZERO: $ty = 0;
            #[inline(always)]
            fn add(self, o: $ty) -> $ty { self.wrapping_add(o) }
            #[inline(always)]
            fn sub(self, o: $ty) -> $ty { self.wrapping_sub(o) }
            #[inline(always)]
            fn mul(self, o: $ty) -> $ty { self.wrapping_mul(o) }
            #[inline(always)]
            fn mul_hi(self, o: $ty) -> $ty {
                if $ty::BITS <= 32 { ((self as i64).wrapping_mul(o as i64) >> ($ty::BITS % 64)) as $ty }
                else { ((self as i128).wrapping_mul(o as i128) >> $ty::BITS) as $ty }
            }
            // The result of a division by zero is not specified: all ones, as hardware gives.
            #[inline(always)]
            fn div(self, o: $ty) -> $ty { if o == 0 { !0 } else { self.wrapping_div(o) } }
            #[inline(always)]
            fn rem(self, o: $ty) -> $ty { if o == 0 { self } else { self.wrapping_rem(o) } }
            #[inline(always)]
            fn not(self) -> $ty { !self }
            #[inline(always)]
            fn abs(self) -> $ty { if $signed && (self as i64) < 0 { (0 as $ty).wrapping_sub(self) } else { self } }
            #[inline(always)]
            fn add_sat(self, o: $ty) -> $ty { self.saturating_add(o) }
            #[inline(always)]
            fn sub_sat(self, o: $ty) -> $ty { self.saturating_sub(o) }
            #[inline(always)]
            fn shl(self, n: u32) -> $ty { if n < $ty::BITS { self << n } else { 0 } }
            #[inline(always)]
            fn shr(self, n: u32) -> $ty {
                if n < $ty::BITS { self >> n } else if $signed { self >> ($ty::BITS - 1) } else { 0 }
            }
            #[inline(always)]
            fn popc(self) -> u32 { self.count_ones() }
            #[inline(always)]
            fn clz(self) -> u32 { self.leading_zeros() }
            #[inline(always)]
            fn brev(self) -> $ty { self.reverse_bits() }
            #[inline(always)]
            fn from_bool(b: bool) -> $ty { b as $ty }
            #[inline(always)]
            fn wide(self) -> i128 { self as i128 }
            #[inline(always)]
            fn cut(wide: i128) -> $ty { wide as $ty }
            #[inline(always)]
            fn twice(wide: i128) -> $twice { wide as $twice }
        }
    )*};
}

whole! {
    u16, u32, false;
    u32, u64, false;
    u64, u64, false;
    i16, i32, true;
    i32, i64, true;
    i64, i64, true;
}

#[inline(always)]
pub(super) fn unary(regs: &mut Regs, exec: u32, op: IntUn, ty: Int, d: Reg, a: Reg) {
    by_int!(ty, T => match op {
        IntUn::Neg => regs.map(exec, d, a, |x: T| Whole::sub(0, x)),
        IntUn::Abs => regs.map(exec, d, a, |x: T| Whole::abs(x)),
        IntUn::Not => regs.map(exec, d, a, |x: T| !x),
        IntUn::Cnot => regs.map(exec, d, a, |x: T| <T as Whole>::from_bool(x == 0)),
        IntUn::Brev => regs.map(exec, d, a, |x: T| x.brev()),
    });
}

#[inline(always)]
pub(super) fn count(regs: &mut Regs, exec: u32, op: Count, ty: Int, d: Reg, a: Reg) {
    by_int!(ty, T => match op {
        Count::Popc => regs.map(exec, d, a, |x: T| x.popc()),
        Count::Clz => regs.map(exec, d, a, |x: T| Whole::clz(x)),
        Count::Bfind => regs.map(exec, d, a, |x: T| bfind(x).map_or(u32::MAX, |bit| bit)),
        Count::BfindShift => regs.map(exec, d, a, |x: T| bfind(x).map_or(u32::MAX, |bit| T::BITS - 1 - bit)),
    });
}

/// The highest bit that is not the sign's.
#[inline(always)]
fn bfind<T: Whole>(x: T) -> Option<u32> {
    let x = if x < T::ZERO { x.not() } else { x };
    (T::BITS - 1).checked_sub(x.clz())
}

#[inline(always)]
pub(super) fn binary(regs: &mut Regs, exec: u32, op: IntBin, ty: Int, d: Reg, (a, b): (Reg, Reg)) {
    by_int!(ty, T => match op {
        IntBin::Add => regs.map2(exec, d, a, b, <T as Whole>::add),
        IntBin::Sub => regs.map2(exec, d, a, b, <T as Whole>::sub),
        IntBin::AddSat => regs.map2(exec, d, a, b, <T as Whole>::add_sat),
        IntBin::SubSat => regs.map2(exec, d, a, b, <T as Whole>::sub_sat),
        IntBin::MulLo => regs.map2(exec, d, a, b, <T as Whole>::mul),
        IntBin::MulHi => regs.map2(exec, d, a, b, <T as Whole>::mul_hi),
        IntBin::Div => regs.map2(exec, d, a, b, <T as Whole>::div),
        IntBin::Rem => regs.map2(exec, d, a, b, <T as Whole>::rem),
        IntBin::Min => regs.map2(exec, d, a, b, |x: T, y: T| x.min(y)),
        IntBin::Max => regs.map2(exec, d, a, b, |x: T, y: T| x.max(y)),
        IntBin::And => regs.map2(exec, d, a, b, |x: T, y: T| x & y),
        IntBin::Or => regs.map2(exec, d, a, b, |x: T, y: T| x | y),
        IntBin::Xor => regs.map2(exec, d, a, b, |x: T, y: T| x ^ y),
    });
}

#[inline(always)]
pub(super) fn ternary(regs: &mut Regs, exec: u32, op: IntTri, ty: Int, d: Reg, abc: (Reg, Reg, Reg)) {
    by_int!(ty, T => match op {
        IntTri::MadLo => regs.map3(exec, d, abc, |x: T, y: T, z: T| x.wrapping_mul(y).wrapping_add(z)),
        IntTri::MadHi => regs.map3(exec, d, abc, |x: T, y: T, z: T| x.mul_hi(y).wrapping_add(z)),
        IntTri::MadHiSat => regs.map3(exec, d, abc, |x: T, y: T, z: T| x.mul_hi(y).saturating_add(z)),
        IntTri::Sad => regs.map3(exec, d, abc, |x: T, y: T, z: T| z.wrapping_add(x.max(y).wrapping_sub(x.min(y)))),
    });
}

#[inline(always)]
pub(super) fn mul_wide(regs: &mut Regs, exec: u32, ty: Int, d: Reg, (a, b): (Reg, Reg)) {
    match ty {
        Int::U32 => regs.map2(exec, d, a, b, |x: u32, y: u32| u64::from(x) * u64::from(y)),
        Int::S32 => regs.map2(exec, d, a, b, |x: i32, y: i32| i64::from(x) * i64::from(y)),
        Int::U16 | Int::S16 | Int::U64 | Int::S64 => {
            by_int!(ty, T => regs.map2(exec, d, a, b, |x: T, y: T| T::twice(x.wide() * y.wide())));
        }
    }
}

#[inline(always)]
pub(super) fn mad_wide(regs: &mut Regs, exec: u32, ty: Int, d: Reg, abc: (Reg, Reg, Reg)) {
    match ty {
        Int::U32 => {
            regs.map3(exec, d, abc, |x: u32, y: u32, z: u64| (u64::from(x) * u64::from(y)).wrapping_add(z))
        }
        Int::S32 => {
            regs.map3(exec, d, abc, |x: i32, y: i32, z: i64| (i64::from(x) * i64::from(y)).wrapping_add(z))
        }
        Int::U16 => {
            regs.map3(exec, d, abc, |x: u16, y: u16, z: u32| (u32::from(x) * u32::from(y)).wrapping_add(z))
        }
        Int::S16 => {
            regs.map3(exec, d, abc, |x: i16, y: i16, z: i32| (i32::from(x) * i32::from(y)).wrapping_add(z))
        }
        Int::U64 | Int::S64 => unreachable!("no type is wider"),
    }
}

/// What goes in and out of the carry.
#[derive(Clone, Copy)]
pub(super) struct Carries {
    pub(super) op: CarryOp,
    pub(super) carry_in: bool,
    pub(super) carry_out: bool,
}

pub(super) fn carry(regs: &mut Regs, exec: u32, ty: Int, how: Carries, d: Reg, abc: (Reg, Reg, Reg)) {
    match ty {
        Int::U16 | Int::S16 => unreachable!("16 bits do not carry"),
        Int::U32 => carry_of::<u32>(regs, exec, how, d, abc),
        Int::S32 => carry_of::<i32>(regs, exec, how, d, abc),
        Int::U64 => carry_of::<u64>(regs, exec, how, d, abc),
        Int::S64 => carry_of::<i64>(regs, exec, how, d, abc),
    }
}

fn carry_of<T: Whole>(regs: &mut Regs, exec: u32, how: Carries, d: Reg, (a, b, c): (Reg, Reg, Reg)) {
    let mut out = [T::Raw::default(); super::regs::LANES];
    let mut carries = regs.carry;
    for lane in super::regs::lanes(exec) {
        let at = |reg: Reg| T::of(T::Raw::row(regs, reg)[lane]);
        let bits = |x: T| x.wide() & ((1i128 << T::BITS) - 1);
        let given = i128::from(how.carry_in && regs.carry >> lane & 1 == 1);
        let (x, y, z) = (at(a), at(b), at(c));
        let sum = match how.op {
            CarryOp::Add => bits(x) + bits(y) + given,
            // A borrow is a carry.
            CarryOp::Sub => bits(x) - bits(y) - given,
            CarryOp::MadLo => bits(x.mul(y)) + bits(z) + given,
            CarryOp::MadHi => bits(x.mul_hi(y)) + bits(z) + given,
        };
        out[lane] = T::cut(sum).raw();
        let over = (sum >> T::BITS) & 1;
        carries = (carries & !(1 << lane)) | ((over as u32) << lane);
    }
    if how.carry_out {
        regs.carry = carries;
    }
    regs.put(exec, d, &out);
}

#[inline(always)]
pub(super) fn shift(regs: &mut Regs, exec: u32, shift: Shift, ty: Int, d: Reg, (a, b): (Reg, Reg)) {
    by_int!(ty, T => match shift {
        Shift::Left => regs.map2(exec, d, a, b, |x: T, n: u32| Whole::shl(x, n)),
        Shift::Right => regs.map2(exec, d, a, b, |x: T, n: u32| Whole::shr(x, n)),
    });
}
