//! Operations that instruction sets have ways of their own for: kernels of the CPU are written once, for any of these.

/// What a kernel takes for operations of `f32` that not every processor has as an instruction.
pub trait FloatOps: Copy {
    /// `x * y + z`, rounded once where that is an instruction.
    fn mul_add(self, x: f32, y: f32, z: f32) -> f32;
    /// The largest whole number not above `x`.
    fn floor(self, x: f32) -> f32;
    /// The smallest whole number not below `x`; from −1 to 0 that is −0.
    fn ceil(self, x: f32) -> f32;
    /// The nearest whole number, ties to even.
    fn round_ties_even(self, x: f32) -> f32;
    /// The whole number next to `x` towards zero.
    fn trunc(self, x: f32) -> f32;
}

/// Of processors with fused multiply-add and rounding instructions.
#[derive(Clone, Copy, Debug)]
pub struct Fused;

/// Of those without: additions round, which vectors have, where the standard library would call a function for each element.
#[derive(Clone, Copy, Debug)]
pub struct Separate;

impl FloatOps for Fused {
    #[inline(always)]
    fn mul_add(self, x: f32, y: f32, z: f32) -> f32 {
        x.mul_add(y, z)
    }

    #[inline(always)]
    fn floor(self, x: f32) -> f32 {
        x.floor()
    }

    #[inline(always)]
    fn ceil(self, x: f32) -> f32 {
        x.ceil()
    }

    #[inline(always)]
    fn round_ties_even(self, x: f32) -> f32 {
        x.round_ties_even()
    }

    #[inline(always)]
    fn trunc(self, x: f32) -> f32 {
        x.trunc()
    }
}

impl FloatOps for Separate {
    #[inline(always)]
    fn mul_add(self, x: f32, y: f32, z: f32) -> f32 {
        x * y + z
    }

    #[inline(always)]
    fn floor(self, x: f32) -> f32 {
        below_whole(x, |nearest| nearest - one_if(nearest > x))
    }

    #[inline(always)]
    fn ceil(self, x: f32) -> f32 {
        below_whole(x, |nearest| nearest + one_if(nearest < x))
    }

    #[inline(always)]
    fn round_ties_even(self, x: f32) -> f32 {
        below_whole(x, |nearest| nearest)
    }

    #[inline(always)]
    fn trunc(self, x: f32) -> f32 {
        below_whole(x, |nearest| {
            let size = nearest.abs();
            size - one_if(size > x.abs())
        })
    }
}

/// What `adjust` makes of the nearest whole number, with the sign of `x`; what is whole already (or NaN) stays itself.
///
/// Adding 2²³ leaves no bits for a fraction, so the addition rounds it away.
#[inline(always)]
fn below_whole(x: f32, adjust: impl Fn(f32) -> f32) -> f32 {
    // From here on every `f32` is a whole number.
    const WHOLE: f32 = 8_388_608.0;
    let nearest = ((x.abs() + WHOLE) - WHOLE).copysign(x);
    let whole = adjust(nearest).copysign(x);
    if x.abs() < WHOLE { whole } else { x }
}

#[inline(always)]
fn one_if(condition: bool) -> f32 {
    f32::from(u8::from(condition))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every 1009th `f32` of all, those around halves and whole numbers, and the last of each kind.
    fn numbers() -> impl Iterator<Item = f32> {
        let all = (0..=u32::MAX).step_by(1009).map(f32::from_bits);
        let halves = (-20..=20).flat_map(|n| {
            let half = n as f32 / 2.0;
            [half.next_down(), half, half.next_up()]
        });
        let last = [0.0, 1.0, 8_388_607.5, 8_388_608.0, 8_388_609.0, f32::MAX, f32::INFINITY, f32::NAN];
        all.chain(halves).chain(last.into_iter().flat_map(|x: f32| [x, -x]))
    }

    #[test]
    fn additions_round_as_instructions_do() {
        type Of<T> = fn(T, f32) -> f32;
        let ops: [(&str, Of<Separate>, Of<Fused>); 4] = [
            ("floor", FloatOps::floor, FloatOps::floor),
            ("ceil", FloatOps::ceil, FloatOps::ceil),
            ("round", FloatOps::round_ties_even, FloatOps::round_ties_even),
            ("trunc", FloatOps::trunc, FloatOps::trunc),
        ];
        for x in numbers() {
            for (name, separate, fused) in ops {
                let (separate, fused) = (separate(Separate, x), fused(Fused, x));
                let same = separate.to_bits() == fused.to_bits() || separate.is_nan() && fused.is_nan();
                assert!(same, "{name} of {x:e}: {separate:e}, not {fused:e}");
            }
        }
    }

    #[test]
    fn sums_of_products_are_rounded_once_or_twice() {
        let (x, z) = (1.0 + f32::EPSILON, -(1.0 + 2.0 * f32::EPSILON));
        assert_eq!(Fused.mul_add(x, x, z), f32::EPSILON * f32::EPSILON);
        assert_eq!(Separate.mul_add(x, x, z), 0.0);
    }
}
