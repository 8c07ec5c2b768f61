//! Positions divided by constants, as shifts, masks and products: ptxas makes the general division of them, even by 4.
//!
//! `n / d` is the high half of `n · m`, shifted down by `s`, where `m = ⌈2^(w+s) / d⌉` has `w` bits and is too large by so little
//! that no `n` shows it (Granlund and Montgomery 1994).

use super::{Emitter, Register};
use crate::ir::dtype::{Const, DType};
use crate::ir::kernel::{Expr, IndexWidth, Value};
use crate::ir::op::Op;

/// How to divide a position by a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Divisor {
    /// By a power of two: how far to shift, and the bits that are left.
    Power { shift: u32, mask: u64 },
    /// By the high half of the product with `factor`, shifted.
    Product { factor: u64, shift: u32 },
}

impl Divisor {
    /// For what has less than `width` bits.
    fn new(by: u64, width: u32) -> Option<Divisor> {
        if by.is_power_of_two() {
            return Some(Divisor::Power { shift: by.trailing_zeros(), mask: by - 1 });
        }
        let by = u128::from(by);
        let factor = |shift: u32| {
            let power = 1u128.checked_shl(width + shift)?;
            let factor = power.div_ceil(by);
            // One bit less than the width is what a position has.
            let is_exact = factor * by - power <= 1 << (shift + 1);
            (is_exact && factor < 1 << width).then_some(Divisor::Product { factor: factor as u64, shift })
        };
        (by > 0).then(|| (0..width).find_map(factor)).flatten()
    }
}

impl Emitter<'_> {
    /// Notes what is known of a value.
    pub(super) fn note_constant(&mut self, value: Value, expr: &Expr) {
        let known = match *expr {
            Expr::Const(Const::Int(n)) => u64::try_from(n).ok(),
            Expr::Splat(of) => self.constants.get(&of).copied(),
            _ => None,
        };
        self.constants.extend(known.map(|known| (value, known)));
    }

    /// Prints the quotient or the remainder of a position and a constant, and says whether it is one.
    pub(super) fn divide(&mut self, op: Op, d: &[Register], args: &[Value]) -> bool {
        let is_rest = op == Op::IntRem;
        let &[position, by] = args else { return false };
        if !is_rest && op != Op::IntDiv {
            return false;
        }
        let width = match self.kernel.index {
            IndexWidth::Bits32 => 32,
            IndexWidth::Bits64 => 64,
        };
        let by = self.constants.get(&by).copied();
        let Some((by, divisor)) = by.and_then(|by| Some((by, Divisor::new(by, width)?))) else {
            return false;
        };
        for (lane, d) in d.iter().enumerate() {
            let position = self.lane(position, lane);
            match divisor {
                Divisor::Power { mask, .. } if is_rest => {
                    self.line(format_args!("and.b{width} {d}, {position}, {mask};"));
                }
                Divisor::Power { shift, .. } => {
                    self.line(format_args!("shr.u{width} {d}, {position}, {shift};"));
                }
                Divisor::Product { factor, shift } => {
                    let bank = self.bank(DType::Index);
                    let [high, quotient, product] = [(); 3].map(|()| self.register(bank));
                    self.line(format_args!("mul.hi.u{width} {high}, {position}, {factor};"));
                    let quotient = if is_rest { quotient } else { *d };
                    self.line(format_args!("shr.u{width} {quotient}, {high}, {shift};"));
                    if is_rest {
                        self.line(format_args!("mul.lo.u{width} {product}, {quotient}, {by};"));
                        self.line(format_args!("sub.u{width} {d}, {position}, {product};"));
                    }
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotient(n: u64, by: u64, width: u32) -> u64 {
        match Divisor::new(by, width).expect("every divisor has a factor") {
            Divisor::Power { shift, mask } => {
                assert_eq!(n & mask, n % by);
                n >> shift
            }
            Divisor::Product { factor, shift } => {
                ((u128::from(n) * u128::from(factor)) >> (width + shift)) as u64
            }
        }
    }

    /// Around multiples, where a factor that is off by a little shows first.
    #[test]
    fn quotients_are_exact_for_all_positions() {
        for width in [32, 64] {
            let most = (1u64 << (width - 1)) - 1;
            let divisors = (1..2000).chain([768, 50257, most / 3, most - 1, most]);
            for by in divisors.chain((1..width - 1).flat_map(|bit| [(1 << bit) - 1, (1 << bit) + 1])) {
                let whole = most / by;
                for multiple in [1, 2, whole / 2, whole - whole / 3, whole.saturating_sub(1), whole] {
                    for n in [(multiple * by).saturating_sub(1), multiple * by, multiple * by + 1, most] {
                        let n = n.min(most);
                        assert_eq!(quotient(n, by, width), n / by, "{n} / {by} of {width} bits");
                    }
                }
            }
        }
    }
}
