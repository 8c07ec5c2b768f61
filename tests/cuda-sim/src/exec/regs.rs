//! Registers of a warp: rows of 32 adjacent lanes, so that loops over them vectorize on the host.
//!
//! Invariant: inactive lanes keep their values. The bits above a register narrower than 32 bits are never
//! used.

use half::{bf16, f16};

use super::unset::Unset;
use crate::ptx::ir::{Reg, Wide};

/// Number of lanes of a warp.
pub(super) const LANES: usize = 32;

/// Row of 32 lanes of 32 bits. Two rows are 32 lanes of 64 bits.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
pub(super) struct Row(pub(super) [u32; LANES]);

/// All registers of a warp.
pub(super) struct Regs {
    rows: Box<[Row]>,
    /// Predicates: a bit for each lane.
    pub(super) masks: Box<[u32]>,
    /// Lanes of each register with a defined value.
    pub(super) written: Box<[u32]>,
    /// Facts about the undefined values.
    pub(super) unset: Unset,
    /// Carry of each lane.
    pub(super) carry: u32,
}

/// Type of the elements of a row.
pub(super) trait Raw: Copy + Default {
    fn row(regs: &Regs, reg: Reg) -> &[Self; LANES];
    fn row_mut(regs: &mut Regs, reg: Reg) -> &mut [Self; LANES];
}

impl Raw for u32 {
    #[inline(always)]
    fn row(regs: &Regs, reg: Reg) -> &[u32; LANES] {
        &regs.rows[reg as usize].0
    }

    #[inline(always)]
    fn row_mut(regs: &mut Regs, reg: Reg) -> &mut [u32; LANES] {
        &mut regs.rows[reg as usize].0
    }
}

impl Raw for u64 {
    #[inline(always)]
    fn row(regs: &Regs, reg: Reg) -> &[u64; LANES] {
        let rows = &regs.rows[reg as usize..reg as usize + 2];
        // SAFETY: two rows are 256 bytes without padding, aligned for `u64`, and any bits are a `u64`.
        unsafe { &*rows.as_ptr().cast() }
    }

    #[inline(always)]
    fn row_mut(regs: &mut Regs, reg: Reg) -> &mut [u64; LANES] {
        let rows = &mut regs.rows[reg as usize..reg as usize + 2];
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { &mut *rows.as_mut_ptr().cast() }
    }
}

/// Value of one lane, with its conversion to and from the element of a row.
pub(super) trait Lane: Copy {
    type Raw: Raw;
    fn of(raw: Self::Raw) -> Self;
    fn raw(self) -> Self::Raw;
}

macro_rules! lane {
    ($($ty:ty as $raw:ty: |$r:ident| $of:expr, |$x:ident| $to:expr;)*) => {$(
        impl Lane for $ty {
            type Raw = $raw;
            #[inline(always)]
            fn of($r: $raw) -> $ty {
                $of
            }
            #[inline(always)]
            fn raw(self) -> $raw {
                let $x = self;
                $to
            }
        }
    )*};
}

lane! {
    u16 as u32: |r| r as u16, |x| u32::from(x);
    i16 as u32: |r| r as i16, |x| u32::from(x as u16);
    u32 as u32: |r| r, |x| x;
    i32 as u32: |r| r as i32, |x| x as u32;
    u64 as u64: |r| r, |x| x;
    i64 as u64: |r| r as i64, |x| x as u64;
    f32 as u32: |r| f32::from_bits(r), |x| x.to_bits();
    f64 as u64: |r| f64::from_bits(r), |x| x.to_bits();
    f16 as u32: |r| f16::from_bits(r as u16), |x| u32::from(x.to_bits());
    bf16 as u32: |r| bf16::from_bits(r as u16), |x| u32::from(x.to_bits());
}

impl Regs {
    pub(super) fn new(rows: u32) -> Regs {
        let rows = rows as usize;
        let none = || vec![0; rows].into_boxed_slice();
        let (rows, unset) = (vec![Row([0; LANES]); rows].into(), Unset::default());
        Regs { rows, masks: none(), written: none(), unset, carry: 0 }
    }

    /// Returns the value of one lane, of either width.
    #[inline(always)]
    pub(super) fn get(&self, (reg, wide): (Reg, Wide), lane: usize) -> u64 {
        match wide {
            Wide::One => u64::from(u32::row(self, reg)[lane]),
            Wide::Two => u64::row(self, reg)[lane],
        }
    }

    /// Sets the value of one lane, and marks it as defined.
    #[inline(always)]
    pub(super) fn set(&mut self, (reg, wide): (Reg, Wide), lane: usize, value: u64) {
        match wide {
            Wide::One => u32::row_mut(self, reg)[lane] = value as u32,
            Wide::Two => u64::row_mut(self, reg)[lane] = value,
        }
        self.written[reg as usize] |= 1 << lane;
    }

    /// Returns the lanes where a predicate, or its negation, is true.
    #[inline(always)]
    pub(super) fn truth(&self, reg: Reg, negated: bool) -> u32 {
        self.masks[reg as usize] ^ (negated as u32).wrapping_neg()
    }

    /// Sets a predicate in the active lanes.
    #[inline(always)]
    pub(super) fn set_mask(&mut self, exec: u32, reg: Reg, truth: u32) {
        let old = &mut self.masks[reg as usize];
        *old = (*old & !exec) | (truth & exec);
        self.written[reg as usize] |= exec;
    }

    /// Sets a register in the active lanes. The function is not inlined, because many loops end with it.
    #[inline(never)]
    pub(super) fn put<R: Raw>(&mut self, exec: u32, reg: Reg, values: &[R; LANES]) {
        let row = R::row_mut(self, reg);
        if exec == u32::MAX {
            *row = *values;
        } else {
            for lane in 0..LANES {
                row[lane] = if exec >> lane & 1 == 1 { values[lane] } else { row[lane] };
            }
        }
        self.written[reg as usize] |= exec;
    }

    /// Computes `d = f(operands)`, one active lane after the other.
    ///
    /// The function is for operations without vector instructions on the host, for which the loop is far less
    /// code. The bits above narrow registers are arbitrary.
    #[inline(always)]
    pub(super) fn each<const N: usize>(
        &mut self,
        exec: u32,
        d: (Reg, Wide),
        from: [(Reg, Wide); N],
        f: impl Fn([u64; N]) -> u64,
    ) {
        for lane in lanes(exec) {
            let value = f(from.map(|reg| self.get(reg, lane)));
            self.set(d, lane, value);
        }
    }

    /// Computes `d = f(a)` in every active lane. `f` runs in all lanes, so it must not fail.
    #[inline(always)]
    pub(super) fn map<A: Lane, D: Lane>(&mut self, exec: u32, d: Reg, a: Reg, f: impl Fn(A) -> D) {
        let mut out = [D::Raw::default(); LANES];
        let x = A::Raw::row(self, a);
        for lane in 0..LANES {
            out[lane] = f(A::of(x[lane])).raw();
        }
        self.put(exec, d, &out);
    }

    /// Computes `d = f(a, b)` in every active lane.
    #[inline(always)]
    pub(super) fn map2<A: Lane, B: Lane, D: Lane>(
        &mut self,
        exec: u32,
        d: Reg,
        a: Reg,
        b: Reg,
        f: impl Fn(A, B) -> D,
    ) {
        let mut out = [D::Raw::default(); LANES];
        let (x, y) = (A::Raw::row(self, a), B::Raw::row(self, b));
        for lane in 0..LANES {
            out[lane] = f(A::of(x[lane]), B::of(y[lane])).raw();
        }
        self.put(exec, d, &out);
    }

    /// Computes `d = f(a, b, c)` in every active lane.
    #[inline(always)]
    pub(super) fn map3<A: Lane, B: Lane, C: Lane, D: Lane>(
        &mut self,
        exec: u32,
        d: Reg,
        (a, b, c): (Reg, Reg, Reg),
        f: impl Fn(A, B, C) -> D,
    ) {
        let mut out = [D::Raw::default(); LANES];
        let (x, y, z) = (A::Raw::row(self, a), B::Raw::row(self, b), C::Raw::row(self, c));
        for lane in 0..LANES {
            out[lane] = f(A::of(x[lane]), B::of(y[lane]), C::of(z[lane])).raw();
        }
        self.put(exec, d, &out);
    }

    /// Returns the lanes where a test of two operands is true.
    #[inline(always)]
    pub(super) fn test<A: Lane>(&self, a: Reg, b: Reg, f: impl Fn(A, A) -> bool) -> u32 {
        let (x, y) = (A::Raw::row(self, a), A::Raw::row(self, b));
        let mut truth = 0;
        for lane in 0..LANES {
            truth |= u32::from(f(A::of(x[lane]), A::of(y[lane]))) << lane;
        }
        truth
    }
}

/// Applies a function to the value of each lane.
///
/// A plain loop is compiled with the features of its caller. The closures of `map`, `from_fn` and `for_each`
/// may be calls of code that is compiled for all hosts.
#[inline(always)]
pub(super) fn every<T: Copy, U: Copy + Default>(row: &[T; LANES], f: impl Fn(T) -> U) -> [U; LANES] {
    let mut out = [U::default(); LANES];
    for (&x, out) in row.iter().zip(&mut out) {
        *out = f(x);
    }
    out
}

/// Iterates over the numbers of the bits that are set.
pub(super) fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros() as usize;
        (mask != 0).then(|| {
            mask &= mask - 1;
            lane
        })
    })
}
