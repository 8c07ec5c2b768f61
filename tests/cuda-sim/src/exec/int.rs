//! Arithmetic on integers.

use super::regs::{Lane, Raw, Regs};
use crate::ptx::ir::{CarryOp, Count, Int, IntBin, IntTri, IntUn, Reg, Shift, Wide};

/// Expands the body for each [`Int`], with `T` as the host's type.
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

/// Operations that the integer types of the host share.
pub(super) trait Whole: Lane + Ord + Default {
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
    /// Shifts right. Amounts beyond the width give the sign, or zero for unsigned types.
    fn shr(self, n: u32) -> Self;
    fn popc(self) -> u32;
    fn clz(self) -> u32;
    fn brev(self) -> Self;
    fn from_bool(b: bool) -> Self;
    /// Returns the value, extended by sign or by zeros.
    fn wide(self) -> i128;
    fn cut(wide: i128) -> Self;
}

macro_rules! whole {
    ($($ty:ident, $signed:expr;)*) => {$(
        impl Whole for $ty {
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
            // The ISA leaves a division by zero unspecified. Hardware gives all ones.
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
        }
    )*};
}

whole! {
    u16, false;
    u32, false;
    u64, false;
    i16, true;
    i32, true;
    i64, true;
}

/// Returns the number of rows of a type's register.
pub(super) fn wide(ty: Int) -> Wide {
    match ty {
        Int::U16 | Int::S16 | Int::U32 | Int::S32 => Wide::One,
        Int::U64 | Int::S64 => Wide::Two,
    }
}

/// Returns the number of bytes of a type.
pub(super) fn bytes(ty: Int) -> u32 {
    match ty {
        Int::U16 | Int::S16 => 2,
        Int::U32 | Int::S32 => 4,
        Int::U64 | Int::S64 => 8,
    }
}

pub(super) fn is_signed(ty: Int) -> bool {
    matches!(ty, Int::S16 | Int::S32 | Int::S64)
}

/// Converts the bits of a register to a value. `bits` converts back.
#[inline(always)]
fn value<T: Whole>(bits: u64) -> T {
    T::cut(i128::from(bits))
}

#[inline(always)]
fn bits<T: Whole>(value: T) -> u64 {
    value.wide() as u64
}

pub(super) fn unary(regs: &mut Regs, exec: u32, op: IntUn, ty: Int, d: Reg, a: Reg) {
    #[inline(never)]
    fn one<T: Whole>(op: IntUn, x: T) -> T {
        match op {
            IntUn::Neg => T::ZERO.sub(x),
            IntUn::Abs => x.abs(),
            IntUn::Not => x.not(),
            IntUn::Cnot => T::from_bool(x == T::ZERO),
            IntUn::Brev => x.brev(),
        }
    }
    let wide = wide(ty);
    regs.each(exec, (d, wide), [(a, wide)], |[x]| by_int!(ty, T => bits(one::<T>(op, value(x)))));
}

pub(super) fn count(regs: &mut Regs, exec: u32, op: Count, ty: Int, d: Reg, a: Reg) {
    #[inline(never)]
    fn one<T: Whole>(op: Count, x: T) -> u32 {
        match op {
            Count::Popc => x.popc(),
            Count::Clz => x.clz(),
            Count::Bfind => bfind(x).unwrap_or(u32::MAX),
            Count::BfindShift => bfind(x).map_or(u32::MAX, |bit| T::BITS - 1 - bit),
        }
    }
    let from = [(a, wide(ty))];
    regs.each(exec, (d, Wide::One), from, |[x]| by_int!(ty, T => u64::from(one::<T>(op, value(x)))));
}

/// Returns the position of the highest bit that differs from the sign.
fn bfind<T: Whole>(x: T) -> Option<u32> {
    let x = if x < T::ZERO { x.not() } else { x };
    (T::BITS - 1).checked_sub(x.clz())
}

/// Computes a binary operation.
///
/// Types of 16 bits use wrapping operations of 32 bits, whose lower bits depend neither on the sign nor on
/// the bits above.
#[inline(always)]
pub(super) fn binary(regs: &mut Regs, exec: u32, op: IntBin, ty: Int, d: Reg, (a, b): (Reg, Reg)) {
    match (op, ty) {
        (IntBin::Add, Int::U64 | Int::S64) => regs.map2(exec, d, a, b, u64::wrapping_add),
        (IntBin::Add, _) => regs.map2(exec, d, a, b, u32::wrapping_add),
        (IntBin::Sub, Int::U64 | Int::S64) => regs.map2(exec, d, a, b, u64::wrapping_sub),
        (IntBin::Sub, _) => regs.map2(exec, d, a, b, u32::wrapping_sub),
        (IntBin::And, Int::U64 | Int::S64) => regs.map2(exec, d, a, b, |x: u64, y: u64| x & y),
        (IntBin::And, _) => regs.map2(exec, d, a, b, |x: u32, y: u32| x & y),
        (IntBin::Or, Int::U64 | Int::S64) => regs.map2(exec, d, a, b, |x: u64, y: u64| x | y),
        (IntBin::Or, _) => regs.map2(exec, d, a, b, |x: u32, y: u32| x | y),
        (IntBin::Xor, Int::U64 | Int::S64) => regs.map2(exec, d, a, b, |x: u64, y: u64| x ^ y),
        (IntBin::Xor, _) => regs.map2(exec, d, a, b, |x: u32, y: u32| x ^ y),
        (IntBin::MulLo, Int::U16 | Int::S16 | Int::U32 | Int::S32) => {
            regs.map2(exec, d, a, b, u32::wrapping_mul);
        }
        (IntBin::Min, Int::U32) => regs.map2(exec, d, a, b, |x: u32, y: u32| x.min(y)),
        (IntBin::Max, Int::U32) => regs.map2(exec, d, a, b, |x: u32, y: u32| x.max(y)),
        (IntBin::Min, Int::S32) => regs.map2(exec, d, a, b, |x: i32, y: i32| x.min(y)),
        (IntBin::Max, Int::S32) => regs.map2(exec, d, a, b, |x: i32, y: i32| x.max(y)),
        (
            IntBin::MulLo
            | IntBin::AddSat
            | IntBin::SubSat
            | IntBin::MulHi
            | IntBin::Mul24Lo
            | IntBin::Mul24Hi
            | IntBin::Div
            | IntBin::Rem
            | IntBin::Min
            | IntBin::Max
            | IntBin::MinRelu
            | IntBin::MaxRelu,
            _,
        ) => binary_each(regs, exec, op, ty, d, (a, b)),
    }
}

#[inline(never)]
fn binary_each(regs: &mut Regs, exec: u32, op: IntBin, ty: Int, d: Reg, (a, b): (Reg, Reg)) {
    let wide = wide(ty);
    regs.each(
        exec,
        (d, wide),
        [(a, wide), (b, wide)],
        |[x, y]| by_int!(ty, T => bits(of_two::<T>(op, value(x), value(y)))),
    );
}

#[inline(never)]
fn of_two<T: Whole>(op: IntBin, x: T, y: T) -> T {
    match op {
        IntBin::Add => x.add(y),
        IntBin::AddSat => x.add_sat(y),
        IntBin::SubSat => x.sub_sat(y),
        IntBin::MulLo => x.mul(y),
        IntBin::MulHi => x.mul_hi(y),
        IntBin::Mul24Lo => product24(x, y, 0),
        IntBin::Mul24Hi => product24(x, y, 16),
        IntBin::Div => x.div(y),
        IntBin::Rem => x.rem(y),
        IntBin::Min => x.min(y),
        IntBin::Max => x.max(y),
        IntBin::MinRelu => x.min(y).max(T::ZERO),
        IntBin::MaxRelu => x.max(y).max(T::ZERO),
        IntBin::Sub | IntBin::And | IntBin::Or | IntBin::Xor => {
            unreachable!("the host has vector instructions for these")
        }
    }
}

/// Computes an operation on the lower halves, and on the upper halves.
#[inline(never)]
pub(super) fn pair(regs: &mut Regs, exec: u32, op: IntBin, ty: Int, d: Reg, (a, b): (Reg, Reg)) {
    let half = |x: u64, y: u64| by_int!(ty, T => bits(of_two::<T>(op, value(x), value(y)))) & 0xffff;
    regs.each(exec, (d, Wide::One), [(a, Wide::One), (b, Wide::One)], |[x, y]| {
        half(x & 0xffff, y & 0xffff) | half(x >> 16, y >> 16) << 16
    });
}

/// Computes the product of the lower 24 bits of each operand, shifted right by `from`.
fn product24<T: Whole>(x: T, y: T, from: u32) -> T {
    // The highest of the 24 bits is the sign of signed types.
    let cut = |x: T| x.shl(T::BITS - 24).shr(T::BITS - 24).wide();
    T::cut((cut(x) * cut(y)) >> from)
}

#[inline(always)]
pub(super) fn ternary(regs: &mut Regs, exec: u32, op: IntTri, ty: Int, d: Reg, abc: (Reg, Reg, Reg)) {
    match (op, ty) {
        (IntTri::MadLo, Int::U16 | Int::S16 | Int::U32 | Int::S32) => {
            regs.map3(exec, d, abc, |x: u32, y: u32, z: u32| x.wrapping_mul(y).wrapping_add(z));
        }
        (
            IntTri::MadLo
            | IntTri::MadHi
            | IntTri::MadHiSat
            | IntTri::Mad24Lo
            | IntTri::Mad24Hi
            | IntTri::Mad24HiSat
            | IntTri::Sad,
            _,
        ) => ternary_each(regs, exec, op, ty, d, abc),
    }
}

#[inline(never)]
fn ternary_each(regs: &mut Regs, exec: u32, op: IntTri, ty: Int, d: Reg, (a, b, c): (Reg, Reg, Reg)) {
    #[inline(never)]
    fn one<T: Whole>(op: IntTri, x: T, y: T, z: T) -> T {
        match op {
            IntTri::MadLo => x.mul(y).add(z),
            IntTri::MadHi => x.mul_hi(y).add(z),
            IntTri::MadHiSat => x.mul_hi(y).add_sat(z),
            IntTri::Mad24Lo => product24(x, y, 0).add(z),
            IntTri::Mad24Hi => product24(x, y, 16).add(z),
            IntTri::Mad24HiSat => product24(x, y, 16).add_sat(z),
            IntTri::Sad => z.add(x.max(y).sub(x.min(y))),
        }
    }
    let wide = wide(ty);
    regs.each(
        exec,
        (d, wide),
        [a, b, c].map(|reg| (reg, wide)),
        |[x, y, z]| by_int!(ty, T => bits(one::<T>(op, value(x), value(y), value(z)))),
    );
}

#[inline(always)]
pub(super) fn mul_wide(regs: &mut Regs, exec: u32, ty: Int, d: Reg, (a, b): (Reg, Reg)) {
    match ty {
        Int::U32 => regs.map2(exec, d, a, b, |x: u32, y: u32| u64::from(x) * u64::from(y)),
        Int::S32 => regs.map2(exec, d, a, b, |x: i32, y: i32| i64::from(x) * i64::from(y)),
        Int::U16 => regs.map2(exec, d, a, b, |x: u16, y: u16| u32::from(x) * u32::from(y)),
        Int::S16 => regs.map2(exec, d, a, b, |x: i16, y: i16| i32::from(x) * i32::from(y)),
        Int::U64 | Int::S64 => unreachable!("no type is wider"),
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

/// Use of the carry by an instruction.
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
    match (shift, ty) {
        (Shift::Left, Int::U64 | Int::S64) => regs.map2(exec, d, a, b, |x: u64, n: u32| Whole::shl(x, n)),
        (Shift::Left, _) => regs.map2(exec, d, a, b, |x: u32, n: u32| Whole::shl(x, n)),
        (Shift::Right, Int::U16) => regs.map2(exec, d, a, b, |x: u16, n: u32| Whole::shr(u32::from(x), n)),
        (Shift::Right, Int::S16) => regs.map2(exec, d, a, b, |x: i16, n: u32| Whole::shr(i32::from(x), n)),
        (Shift::Right, Int::U32) => regs.map2(exec, d, a, b, |x: u32, n: u32| Whole::shr(x, n)),
        (Shift::Right, Int::S32) => regs.map2(exec, d, a, b, |x: i32, n: u32| Whole::shr(x, n)),
        (Shift::Right, Int::U64) => regs.map2(exec, d, a, b, |x: u64, n: u32| Whole::shr(x, n)),
        (Shift::Right, Int::S64) => regs.map2(exec, d, a, b, |x: i64, n: u32| Whole::shr(x, n)),
    }
}
