//! Bit fields, permutations of bytes, three-operand logic, and dot products of bytes.

use super::int::{self, Whole, by_int};
use super::regs::{LANES, Raw, Regs};
use crate::ptx::ir::{Dot, Int, Prmt, Reg, Shift, Wide};

#[inline(always)]
pub(super) fn funnel(regs: &mut Regs, exec: u32, shift: Shift, wrap: bool, d: Reg, abc: (Reg, Reg, Reg)) {
    // `b` is the upper word.
    let amount = move |c: u32| if wrap { c & 31 } else { c.min(32) };
    let both = |a: u32, b: u32| u64::from(b) << 32 | u64::from(a);
    match shift {
        Shift::Left => {
            regs.map3(exec, d, abc, |a: u32, b: u32, c: u32| ((both(a, b) << amount(c)) >> 32) as u32)
        }
        Shift::Right => regs.map3(exec, d, abc, |a: u32, b: u32, c: u32| (both(a, b) >> amount(c)) as u32),
    }
}

#[inline(always)]
pub(super) fn lop3(regs: &mut Regs, exec: u32, table: u8, d: Reg, abc: (Reg, Reg, Reg)) {
    regs.map3(exec, d, abc, |a: u32, b: u32, c: u32| {
        let mut out = 0;
        for row in 0..8 {
            let pick = |word: u32, bit: u32| if row & bit == 0 { !word } else { word };
            let taken = (u32::from(table) >> row & 1).wrapping_neg();
            out |= pick(a, 4) & pick(b, 2) & pick(c, 1) & taken;
        }
        out
    });
}

/// Returns the lanes in which any bit is set.
pub(super) fn any(regs: &Regs, reg: Reg) -> u32 {
    let row = u32::row(regs, reg);
    (0..LANES).fold(0, |all, lane| all | u32::from(row[lane] != 0) << lane)
}

pub(super) fn mask(regs: &mut Regs, exec: u32, clamp: bool, d: Reg, (a, b): (Reg, Reg)) {
    regs.each(exec, (d, Wide::One), [a, b].map(|reg| (reg, Wide::One)), |[from, len]| {
        let at_most = |n: u64| if clamp { n.min(32) } else { n & 31 };
        let bits = ((1u64 << at_most(len)) - 1) << at_most(from);
        u64::from(bits as u32)
    });
}

pub(super) fn extend(regs: &mut Regs, exec: u32, (clamp, ty): (bool, Int), d: Reg, (a, b): (Reg, Reg)) {
    regs.each(exec, (d, Wide::One), [a, b].map(|reg| (reg, Wide::One)), |[a, len]| {
        let len = if clamp { len.min(32) } else { len & 31 };
        // The kept bits are shifted to the top, and back.
        let top = (a << 32 << (32 - len)) as i64;
        let kept =
            if ty == Int::S32 { top >> 32 >> (32 - len) } else { (top as u64 >> 32 >> (32 - len)) as i64 };
        u64::from(kept as u32)
    });
}

pub(super) fn fns(regs: &mut Regs, exec: u32, d: Reg, (a, b, c): (Reg, Reg, Reg)) {
    regs.each(exec, (d, Wide::One), [a, b, c].map(|reg| (reg, Wide::One)), |[mask, base, offset]| {
        u64::from(nth_set(mask as u32, base as u32, offset as i32).unwrap_or(u32::MAX))
    });
}

/// Returns the position of the `offset`th set bit from `base` on, downwards for a negative offset.
///
/// Offset 0 is `base` itself, if that bit is set.
fn nth_set(mask: u32, base: u32, offset: i32) -> Option<u32> {
    let is_set = |bit: &u32| mask >> bit & 1 == 1;
    if base >= 32 {
        return None;
    }
    let skipped = offset.unsigned_abs().saturating_sub(1) as usize;
    match offset {
        0 => Some(base).filter(is_set),
        1.. => (base..32).filter(is_set).nth(skipped),
        ..0 => (0..=base).rev().filter(is_set).nth(skipped),
    }
}

pub(super) fn prmt(regs: &mut Regs, exec: u32, mode: Prmt, d: Reg, (a, b, c): (Reg, Reg, Reg)) {
    regs.each(exec, (d, Wide::One), [a, b, c].map(|reg| (reg, Wide::One)), |[a, b, c]| {
        u64::from(permuted(mode, b << 32 | a, c as u32))
    });
}

/// Selects four of the eight bytes.
fn permuted(mode: Prmt, bytes: u64, c: u32) -> u32 {
    let byte = |selector: u32| {
        let byte = (bytes >> (8 * (selector & 7))) as u8;
        // The fourth bit of a selector replicates the sign.
        if selector & 8 == 0 { byte } else { ((byte as i8) >> 7) as u8 }
    };
    let n = c & 3;
    let selectors: [u32; 4] = match mode {
        Prmt::Index => [c, c >> 4, c >> 8, c >> 12].map(|s| s & 15),
        Prmt::F4e => [n, n + 1, n + 2, n + 3],
        Prmt::B4e => [n, n.wrapping_sub(1), n.wrapping_sub(2), n.wrapping_sub(3)].map(|s| s & 7),
        Prmt::Rc8 => [n; 4],
        Prmt::Ecl => [n, n.max(1), n.max(2), 3],
        Prmt::Ecr => [0, n.min(1), n.min(2), n.min(3)],
        Prmt::Rc16 => [2 * (n & 1), 2 * (n & 1) + 1, 2 * (n & 1), 2 * (n & 1) + 1],
    };
    u32::from_le_bytes(selectors.map(byte))
}

pub(super) fn bfe(regs: &mut Regs, exec: u32, ty: Int, d: Reg, (a, b, c): (Reg, Reg, Reg)) {
    let wide = int::wide(ty);
    regs.each(exec, (d, wide), [(a, wide), (b, Wide::One), (c, Wide::One)], |[a, pos, len]| {
        let (pos, len) = (pos as u32 & 255, len as u32 & 255);
        by_int!(ty, T => extracted::<T>(T::cut(i128::from(a)), pos, len).wide() as u64)
    });
}

/// Extracts `len` bits from `pos` on. The sign fills the bits beyond the field or the word.
fn extracted<T: Whole>(a: T, pos: u32, len: u32) -> T {
    let wide = a.wide();
    let bit = |n: u32| wide >> n.min(T::BITS - 1) & 1;
    let sign = if T::cut(-1) < T::ZERO {
        // Signed types: the sign is the field's top bit, or the word's top bit where the field extends beyond
        // the word.
        if len == 0 { 0 } else { bit(pos + len - 1) }
    } else {
        0
    };
    let low = if len >= 127 { -1 } else { (1i128 << len) - 1 };
    let within = T::BITS.saturating_sub(pos);
    let kept = low & if within >= 127 { -1 } else { (1i128 << within) - 1 };
    let bits = (wide & ((1i128 << T::BITS) - 1)).checked_shr(pos).unwrap_or(0) & kept;
    T::cut(bits | if sign == 1 { !kept } else { 0 })
}

pub(super) fn bfi(regs: &mut Regs, exec: u32, ty: Int, d: Reg, (a, b, c): (Reg, Reg, Reg), e: Reg) {
    let wide = int::wide(ty);
    let from = [(a, wide), (b, wide), (c, Wide::One), (e, Wide::One)];
    regs.each(exec, (d, wide), from, |[from, into, pos, len]| {
        let (pos, len) = (pos as u32 & 255, len as u32 & 255);
        let field = ((1u128 << len.min(64)) - 1).checked_shl(pos).unwrap_or(0) as u64;
        let moved = u128::from(from).checked_shl(pos).unwrap_or(0) as u64;
        (into & !field) | (moved & field)
    });
}

pub(super) fn dot(
    regs: &mut Regs,
    exec: u32,
    dot: Dot,
    signed: (bool, bool),
    d: Reg,
    (a, b, c): (Reg, Reg, Reg),
) {
    let byte = |word: u64, n: u32, signed: bool| {
        let byte = (word >> (8 * n)) as u8;
        if signed { i32::from(byte as i8) } else { i32::from(byte) }
    };
    let half = |word: u64, n: u32| {
        let half = (word >> (16 * n)) as u16;
        if signed.0 { i32::from(half as i16) } else { i32::from(half) }
    };
    let product = |a: u64, b: u64, n: u32| match dot {
        Dot::Bytes => byte(a, n, signed.0) * byte(b, n, signed.1),
        Dot::HalvesLow => half(a, n) * byte(b, n, signed.1),
        Dot::HalvesHigh => half(a, n) * byte(b, n + 2, signed.1),
    };
    let count = if dot == Dot::Bytes { 4 } else { 2 };
    regs.each(exec, (d, Wide::One), [a, b, c].map(|reg| (reg, Wide::One)), |[a, b, c]| {
        u64::from((0..count).fold(c as u32, |sum, n| sum.wrapping_add(product(a, b, n) as u32)))
    });
}

/// Computes the absolute differences of the bytes of two words, or their sum added to a third word.
pub(super) fn abs_diff(regs: &mut Regs, exec: u32, add: Option<Reg>, d: Reg, (a, b): (Reg, Reg)) {
    let from = [a, b, add.unwrap_or(a)].map(|reg| (reg, Wide::One));
    regs.each(exec, (d, Wide::One), from, |[x, y, c]| {
        let (x, y) = ((x as u32).to_le_bytes(), (y as u32).to_le_bytes());
        let apart: [u8; 4] = std::array::from_fn(|n| x[n].abs_diff(y[n]));
        let sum = || apart.iter().fold(c as u32, |sum, &byte| sum.wrapping_add(u32::from(byte)));
        u64::from(if add.is_some() { sum() } else { u32::from_le_bytes(apart) })
    });
}
