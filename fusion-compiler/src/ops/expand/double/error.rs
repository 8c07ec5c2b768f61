//! The error function of `f64`, and one minus the error function.

use super::super::term::{IntoTerm as _, unary};
use super::{clamped, number, polynomial, signed};
use crate::ir::kernel::{Builder, Value};
use crate::ir::op::Op;

/// Computes the error function as `x P(x²)` below 1 and as `1 − exp(−x²) Q(1 / (x + 3))` above. Both are
/// fitted by Chebyshev polynomials to 2 units in the last place.
pub(crate) fn erf(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let size = x.abs();
        let near = size * polynomial(size * size, &ERF_NEAR);
        let far = clamped(size, 6.0);
        let place = 1.0.meet(x) / (far + 3.0) * number(x, 14.4) - number(x, 2.6);
        let rest = (-(far * far)).unary(Op::Exp) * polynomial(place, &ERF_FAR);
        signed((1.0 - rest).but(near, size.lt(1.0)), x)
    })
}

/// Computes one minus the error function: from [`erf`] below 0.46875, and as
/// `exp(−x²) Q(1 / (x + 3)) / (x + 3)` above. The rounding error of the square is computed exactly, and a
/// factor corrects it.
pub(crate) fn erfc(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let near = 1.0.meet(x) - x * polynomial(x * x, &ERF_NEAR);
        let small = x.abs().lt(0.46875);
        let size = clamped(x.abs(), 28.0).but(0.46875, small);
        let square = size * size;
        let lost = size.fma(size, -square);
        let bell = (-square).unary(Op::Exp);
        let bell = (-lost).fma(bell, bell);
        let inverse = 1.0.meet(x) / (size + 3.0);
        let place = inverse.fma(number(x, 7.809), number(x, -1.252));
        let tail = bell * (inverse * polynomial(place, &ERFC));
        tail.but(2.0.meet(x) - tail, x.lt(0.0)).but(near, small)
    })
}

#[rustfmt::skip]
const ERF_NEAR: [f64; 13] = [
    std::f64::consts::FRAC_2_SQRT_PI, -0.376_126_389_031_837_5, 0.112_837_916_709_548_79, -0.026_866_170_645_076_792,
    0.005_223_977_624_818_014_5, -0.000_854_832_698_083_379, 0.000_120_553_311_116_427_1, -1.492_559_526_683_118_2e-5,
    1.646_100_048_412_136_8e-6, -1.635_031_270_105_469_5e-7, 1.465_977_527_404_743_6e-8, -1.137_284_885_679_167_4e-9,
    5.957_176_147_748_911e-11,
];
#[rustfmt::skip]
const ERF_FAR: [f64; 17] = [
    0.207_983_291_333_428_85, 0.154_361_174_294_369_19, 0.049_698_445_403_394_8, 0.012_713_147_695_691_995,
    0.002_479_314_697_072_418_7, 0.000_331_602_960_578_454_36, 1.956_358_330_834_969e-5, -2.425_557_481_102_028_4e-6,
    -5.541_277_438_329_464e-7, 4.526_722_197_970_927e-9, 1.134_026_105_584_032_3e-8, 2.637_881_701_943_207_4e-10,
    -2.580_970_329_370_467_5e-10, -6.030_100_178_315_267e-12, 6.716_060_821_011_204e-12, -4.468_786_282_795_809e-15,
    -1.679_977_715_931_145_7e-13,
];
#[rustfmt::skip]
const ERFC: [f64; 23] = [
    1.041_245_671_526_894_7, 0.645_270_348_702_165_8, 0.328_133_996_412_298_07, 0.132_754_508_913_568_7,
    0.039_872_238_828_221_544, 0.007_233_691_973_585_521, -8.807_914_596_812_998e-5, -0.000_451_103_246_183_518_9,
    -7.722_556_408_361_53e-5, 2.180_734_849_246_593e-5, 8.500_257_188_193_565e-6, -1.209_170_398_099_661_9e-6,
    -8.225_846_657_200_019e-7, 1.020_869_174_718_353_5e-7, 8.139_587_143_699_71e-8, -1.356_642_900_724_911_1e-8,
    -8.085_125_885_328_7e-9, 2.127_963_183_231_207_2e-9, 7.330_390_246_748_683e-10, -2.958_957_047_250_104e-10,
    -5.006_912_728_797_125_4e-11, 2.494_415_251_091_476e-11, 1.624_245_965_671_436_9e-12,
];
