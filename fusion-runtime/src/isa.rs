//! Instruction sets: which this processor has, and what each has ways of its own for. Kernels of the CPU are written once, for any.
//!
//! Invariant: a value of an instruction set is made only where its instructions may run, so that having one is proof of it.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
use std::hint::select_unpredictable;

#[cfg(target_arch = "x86_64")]
use fusion_compiler::ir::kernel::CACHE_LINE;

use crate::kernel::{Word, fold_lanes, sum_lanes};

/// An instruction set, later ones better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// What every processor of the architecture has.
    Base,
    /// AVX2 with fused multiply-add.
    Avx2,
    /// AVX-512 (F, BW, DQ and VL) of a Zen 4, which goes through 64 bytes in halves. A loop that waits for memory is better off with half
    /// as many: 2²⁴ squares are added in 1.9 ms then, else in 2.4.
    Avx512Halves,
    /// AVX-512.
    Avx512,
}

impl Isa {
    /// The best of this processor, or what `asked` names, if it has that.
    pub(crate) fn best(asked: Option<&str>) -> Isa {
        let detected = Isa::detected();
        match asked {
            Some("base") => Isa::Base,
            Some("avx2") => Isa::Avx2.min(detected),
            Some("avx512") if detected == Isa::Avx512Halves => Isa::Avx512,
            Some(_) | None => detected,
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn detected() -> Isa {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        match (avx2, avx512) {
            (true, true) if has_halves() => Isa::Avx512Halves,
            (true, true) => Isa::Avx512,
            (true, false) => Isa::Avx2,
            (false, true | false) => Isa::Base,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn detected() -> Isa {
        Isa::Base
    }

    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Isa::Base if cfg!(target_arch = "x86_64") => "SSE2",
            Isa::Base if cfg!(target_arch = "aarch64") => "NEON",
            Isa::Base => "portable",
            Isa::Avx2 => "AVX2",
            Isa::Avx512Halves | Isa::Avx512 => "AVX-512",
        }
    }
}

/// Whether this is a Zen 4, of those that have AVX-512.
#[cfg(target_arch = "x86_64")]
fn has_halves() -> bool {
    let cpuid = raw_cpuid::CpuId::new();
    let vendor = cpuid.get_vendor_info();
    let family = cpuid.get_feature_info().map(|features| features.family_id());
    vendor.is_some_and(|vendor| vendor.as_str() == "AuthenticAMD") && family == Some(0x19)
}

/// What a kernel takes for what instruction sets do in different ways.
pub trait Instructions: Copy {
    /// Whether fused multiply-add and rounding are instructions. Else a product is rounded before it is added to, and additions round,
    /// which vectors have, where the standard library would call a function for each element.
    const FUSED: bool;

    /// Stores lines of the caches around them. It is inlined: the lines need not be in memory before. A launch that lets its kernel
    /// stream waits for the stores when it is through.
    ///
    /// # Panics
    ///
    /// If `to` is not as long, or not whole lines.
    fn stream<T: Word, const N: usize>(self, to: &mut [T], from: &[T; N]);

    /// What `sum_lanes` makes.
    #[inline(always)]
    fn sum<const L: usize>(self, parts: &mut [(f32,); L]) -> f64 {
        sum_lanes(parts)
    }

    /// What `fold_lanes` makes of the larger of two, for which numbers on the right win over NaN on the left.
    #[inline(always)]
    fn largest<const L: usize>(self, parts: &mut [(f32,); L]) -> (f32,) {
        largest_lane(parts)
    }

    /// The same of the smaller.
    #[inline(always)]
    fn smallest<const L: usize>(self, parts: &mut [(f32,); L]) -> (f32,) {
        smallest_lane(parts)
    }

    /// `x * y + z`, rounded once where that is an instruction.
    #[inline(always)]
    fn mul_add(self, x: f32, y: f32, z: f32) -> f32 {
        if Self::FUSED { x.mul_add(y, z) } else { x * y + z }
    }

    /// The largest whole number not above `x`.
    #[inline(always)]
    fn floor(self, x: f32) -> f32 {
        if Self::FUSED { x.floor() } else { below_whole(x, |nearest| nearest - one_if(nearest > x)) }
    }

    /// The smallest whole number not below `x`; from −1 to 0 that is −0.
    #[inline(always)]
    fn ceil(self, x: f32) -> f32 {
        if Self::FUSED { x.ceil() } else { below_whole(x, |nearest| nearest + one_if(nearest < x)) }
    }

    /// The nearest whole number, ties to even.
    #[inline(always)]
    fn round_ties_even(self, x: f32) -> f32 {
        if Self::FUSED { x.round_ties_even() } else { below_whole(x, |nearest| nearest) }
    }

    /// The whole number next to `x` towards zero.
    #[inline(always)]
    fn trunc(self, x: f32) -> f32 {
        if Self::FUSED {
            x.trunc()
        } else {
            below_whole(x, |nearest| {
                let size = nearest.abs();
                size - one_if(size > x.abs())
            })
        }
    }
}

#[inline(always)]
fn largest_lane<const L: usize>(parts: &mut [(f32,); L]) -> (f32,) {
    fold_lanes(parts, |(left,), (right,)| (select_unpredictable(right > left, right, left),))
}

#[inline(always)]
fn smallest_lane<const L: usize>(parts: &mut [(f32,); L]) -> (f32,) {
    fold_lanes(parts, |(left,), (right,)| (select_unpredictable(right < left, right, left),))
}

/// The sum of four lanes, in `f64`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[inline]
fn sum_of_4(x: __m128) -> f64 {
    let x = _mm_add_pd(_mm_cvtps_pd(x), _mm_cvtps_pd(_mm_movehl_ps(x, x)));
    _mm_cvtsd_f64(_mm_add_sd(x, _mm_unpackhi_pd(x, x)))
}

/// The extrema of four lanes.
#[cfg(target_arch = "x86_64")]
macro_rules! of_4 {
    ($($name:ident by $of_4:ident $of_1:ident;)*) => { $(
        #[target_feature(enable = "avx")]
        #[inline]
        fn $name(x: __m128) -> (f32,) {
            let x = $of_4(_mm_movehl_ps(x, x), x);
            (_mm_cvtss_f32($of_1(_mm_movehdup_ps(x), x)),)
        }
    )* };
}

#[cfg(target_arch = "x86_64")]
of_4! {
    largest_of_4 by _mm_max_ps _mm_max_ss;
    smallest_of_4 by _mm_min_ps _mm_min_ss;
}

/// Methods that combine partial results as `fold_lanes` does, by instructions for eight, four and one of them: LLVM makes no whole
/// vectors of what compares and selects, takes those that there are apart by twos, and has halves that are stored wait in memory.
/// The largest of a row of 64 took 35 ns so, and takes 17.
#[cfg(target_arch = "x86_64")]
macro_rules! of_lanes {
    ($isa:ident: $($name:ident -> $made:ty: $portable:ident, or $of_8:ident $of_4:ident $last:ident;)*) => { $(
        #[inline(always)]
        fn $name<const L: usize>(self, parts: &mut [(f32,); L]) -> $made {
            #[target_feature(enable = "avx")]
            #[inline]
            fn of<const L: usize>(parts: &[(f32,); L]) -> $made {
                // What is as large as its only part has it at its beginning.
                const { assert!(size_of::<(f32,)>() == size_of::<f32>()) };
                // No closures and no `map` of an array: where the parts of a crate are not optimised together, those are calls.
                macro_rules! eight {
                    ($at:expr) => {{
                        let eight: &[(f32,)] = &parts[$at..$at + 8];
                        // SAFETY: eight elements from there on are there, each no more than an `f32`.
                        unsafe { _mm256_loadu_ps(eight.as_ptr().cast()) }
                    }};
                }
                macro_rules! sixteenths {
                    ($at:literal) => {
                        if L == 64 {
                            let even = $of_8(eight!($at + 32), eight!($at));
                            $of_8($of_8(eight!($at + 48), eight!($at + 16)), even)
                        } else {
                            eight!($at)
                        }
                    };
                }
                let (low, high) = (sixteenths!(0), sixteenths!(8));
                let x = $of_8(high, low);
                $last($of_4(_mm256_extractf128_ps::<1>(x), _mm256_castps256_ps128(x)))
            }
            if L < 16 || Isa::$isa < Isa::Avx2 {
                return $portable(parts);
            }
            // SAFETY: `self` is proof that the instructions may run.
            unsafe { of(parts) }
        }
    )* };
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

macro_rules! instruction_sets {
    ($($(#[$doc:meta])* $name:ident($features:literal), $lane:ident $store:ident;)*) => { $(
        $(#[$doc])*
        #[cfg(target_arch = "x86_64")]
        #[derive(Clone, Copy, Debug)]
        pub struct $name(());

        #[cfg(target_arch = "x86_64")]
        impl $name {
            /// Here these instructions may run.
            ///
            /// # Safety
            ///
            /// The processor has them: what is compiled for them may ask.
            #[allow(clippy::new_without_default, reason = "it is not to be made elsewhere")]
            #[target_feature(enable = $features)]
            #[inline]
            pub fn new() -> $name {
                $name(())
            }
        }

        #[cfg(target_arch = "x86_64")]
        impl Instructions for $name {
            const FUSED: bool = Isa::$name as u8 >= Isa::Avx2 as u8;

            of_lanes! {
                $name:
                sum -> f64: sum_lanes, or _mm256_add_ps _mm_add_ps sum_of_4;
                largest -> (f32,): largest_lane, or _mm256_max_ps _mm_max_ps largest_of_4;
                smallest -> (f32,): smallest_lane, or _mm256_min_ps _mm_min_ps smallest_of_4;
            }

            #[inline(always)]
            fn stream<T: Word, const N: usize>(self, to: &mut [T], from: &[T; N]) {
                /// # Safety
                ///
                /// The target is aligned to lines, both are memory of as many bytes, whole lines, and nothing else accesses the target.
                #[target_feature(enable = $features)]
                #[inline]
                unsafe fn lines(to: *mut u8, from: *const u8, bytes: usize) {
                    use std::arch::x86_64::{$lane, $store};
                    // Not an intrinsic: what these assert in builds that do would keep the lines in memory.
                    #[derive(Clone, Copy)]
                    #[repr(C, packed)]
                    struct Unaligned($lane);
                    let mut at = 0;
                    while at < bytes {
                        // SAFETY: as promised by the caller.
                        unsafe { $store(to.wrapping_add(at).cast(), (*from.wrapping_add(at).cast::<Unaligned>()).0) };
                        at += size_of::<$lane>();
                    }
                }
                let (at, bytes) = (to.as_ptr().addr(), size_of_val(from));
                let are_whole = at % CACHE_LINE == 0 && bytes % CACHE_LINE == 0;
                assert!(to.len() == N && are_whole, "whole lines");
                // SAFETY: both have these bytes, whole lines, of elements that are plain numbers, and nothing else accesses the target;
                // `self` is proof that the instructions may run.
                unsafe { lines(to.as_mut_ptr().cast(), from.as_ptr().cast(), bytes) };
            }
        }
    )* };
}

instruction_sets! {
    /// [`Isa::Avx512`].
    Avx512("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"), __m512i _mm512_stream_si512;
    /// [`Isa::Avx2`].
    Avx2("avx2,fma"), __m256i _mm256_stream_si256;
    /// [`Isa::Base`].
    Base("sse2"), __m128i _mm_stream_si128;
}

/// [`Isa::Base`], which has no stores around the caches that are used.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Clone, Copy, Debug)]
pub struct Base(());

#[cfg(not(target_arch = "x86_64"))]
impl Base {
    /// Anywhere.
    #[allow(clippy::new_without_default, reason = "others are not to be made everywhere")]
    pub fn new() -> Base {
        Base(())
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Instructions for Base {
    const FUSED: bool = !cfg!(target_arch = "x86");

    #[inline(always)]
    fn stream<T: Word, const N: usize>(self, to: &mut [T], from: &[T; N]) {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    struct Of<const FUSED: bool>;

    impl<const F: bool> Instructions for Of<F> {
        const FUSED: bool = F;

        fn stream<T: Word, const N: usize>(self, to: &mut [T], from: &[T; N]) {
            to.copy_from_slice(from);
        }
    }

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
        type Rounds<T> = fn(T, f32) -> f32;
        let ops: [(&str, Rounds<Of<false>>, Rounds<Of<true>>); 4] = [
            ("floor", Instructions::floor, Instructions::floor),
            ("ceil", Instructions::ceil, Instructions::ceil),
            ("round", Instructions::round_ties_even, Instructions::round_ties_even),
            ("trunc", Instructions::trunc, Instructions::trunc),
        ];
        for x in numbers() {
            for (name, separate, fused) in ops {
                let (separate, fused) = (separate(Of, x), fused(Of, x));
                let same = separate.to_bits() == fused.to_bits() || separate.is_nan() && fused.is_nan();
                assert!(same, "{name} of {x:e}: {separate:e}, not {fused:e}");
            }
        }
    }

    /// Wherever the largest is, and whatever else is there.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn lanes_give_the_same_with_any_instruction_set() {
        fn check<const L: usize>(one: impl Instructions, number: impl Fn(usize) -> f32) {
            let parts: [(f32,); L] = std::array::from_fn(|lane| (number(lane),));
            let bits = |(x,): (f32,)| if x.is_nan() { u32::MAX } else { x.to_bits() };
            let [sum, expected] = [one.sum(&mut { parts }), Of::<true>.sum(&mut { parts })];
            assert!(sum.to_bits() == expected.to_bits() || sum.is_nan() && expected.is_nan(), "{parts:?}");
            assert_eq!(
                bits(one.largest(&mut { parts })),
                bits(Of::<true>.largest(&mut { parts })),
                "{parts:?}"
            );
            assert_eq!(
                bits(one.smallest(&mut { parts })),
                bits(Of::<true>.smallest(&mut { parts })),
                "{parts:?}"
            );
        }
        fn check_all(one: impl Instructions) {
            let numbers =
                [0.0, -0.0, 1.0, -1.0, f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-45];
            for (i, lane) in (0..64).flat_map(|lane| (0..numbers.len()).map(move |i| (i, lane))) {
                let number =
                    |at: usize| numbers[if at == lane { i } else { at * (i + 7) / 3 % numbers.len() }];
                check::<64>(one, number);
                check::<16>(one, number);
                check::<4>(one, number);
                check::<1>(one, number);
                // Whose sum depends on the order.
                check::<64>(one, |at| 1.0 / (at * 7 + lane + i) as f32 + 1.0);
            }
        }
        // SAFETY: the processor was asked.
        unsafe {
            check_all(Base::new());
            if Isa::detected() >= Isa::Avx2 {
                check_all(Avx2::new());
            }
            if Isa::detected() > Isa::Avx2 {
                check_all(Avx512::new());
            }
        }
    }

    #[test]
    fn sums_of_products_are_rounded_once_or_twice() {
        let (x, z) = (1.0 + f32::EPSILON, -(1.0 + 2.0 * f32::EPSILON));
        assert_eq!(Of::<true>.mul_add(x, x, z), f32::EPSILON * f32::EPSILON);
        assert_eq!(Of::<false>.mul_add(x, x, z), 0.0);
    }

    #[test]
    fn the_instruction_set_is_what_is_asked_for_if_there_is_one() {
        let detected = Isa::detected();
        assert_eq!(Isa::best(None), detected);
        assert_eq!(Isa::best(Some("base")), Isa::Base);
        assert_eq!(Isa::best(Some("avx2")), detected.min(Isa::Avx2));
        let whole = if detected == Isa::Avx512Halves { Isa::Avx512 } else { detected };
        assert_eq!(Isa::best(Some("avx512")), whole);
    }
}
