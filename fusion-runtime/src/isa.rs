//! Instruction sets: detection, and the operations that differ between them. CPU kernels are generic over the
//! instruction set.
//!
//! Invariant: a value of an instruction set exists only where its instructions may run, so the value is proof
//! of it.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
use std::hint::select_unpredictable;

#[cfg(target_arch = "x86_64")]
use fusion_compiler::ir::kernel::CACHE_LINE;

use crate::lanes::{fold_lanes, sum_lanes};
use crate::window::Word;

/// An instruction set. Later ones are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Baseline of the architecture, which every processor has.
    Base,
    /// AVX2 with fused multiply-add.
    Avx2,
    /// AVX-512 (F, BW, DQ and VL) of a Zen 4, which executes 64-byte instructions in two halves.
    ///
    /// A memory-bound loop is faster there with 32-byte vectors.
    Avx512DoublePumped,
    /// AVX-512 (F, BW, DQ and VL) with full-width execution.
    Avx512,
}

impl Isa {
    /// Returns the best instruction set of this processor, or the one that `asked` names if the processor has
    /// it.
    pub(crate) fn best(asked: Option<&str>) -> Isa {
        let detected = Isa::detected();
        match asked {
            Some("base") => Isa::Base,
            Some("avx2") => Isa::Avx2.min(detected),
            Some("avx512") if detected == Isa::Avx512DoublePumped => Isa::Avx512,
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
            (true, true) if is_double_pumped() => Isa::Avx512DoublePumped,
            (true, true) => Isa::Avx512,
            (true, false) => Isa::Avx2,
            (false, true | false) => Isa::Base,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn detected() -> Isa {
        Isa::Base
    }

    /// Returns the name, for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Isa::Base if cfg!(target_arch = "x86_64") => "SSE2",
            Isa::Base if cfg!(target_arch = "aarch64") => "NEON",
            Isa::Base => "portable",
            Isa::Avx2 => "AVX2",
            Isa::Avx512DoublePumped | Isa::Avx512 => "AVX-512",
        }
    }
}

/// Returns true on a Zen 4, among processors with AVX-512.
#[cfg(target_arch = "x86_64")]
fn is_double_pumped() -> bool {
    let cpuid = raw_cpuid::CpuId::new();
    let vendor = cpuid.get_vendor_info();
    let family = cpuid.get_feature_info().map(|features| features.family_id());
    vendor.is_some_and(|vendor| vendor.as_str() == "AuthenticAMD") && family == Some(0x19)
}

/// Operations with a different implementation per instruction set.
pub trait Instructions: Copy {
    /// True if fused multiply-add and rounding are instructions.
    ///
    /// Otherwise a product rounds before the addition, and additions implement rounding. Additions vectorise,
    /// while the standard library's rounding would be a function call per element.
    const FUSED: bool;

    /// Stores whole cache lines with non-temporal instructions.
    ///
    /// The function is inlined, so that the lines need not be in memory before. A launch waits for the stores
    /// at its end.
    ///
    /// # Panics
    ///
    /// If the lengths differ, or `to` is not whole cache lines.
    fn stream<T: Word, const N: usize>(self, to: &mut [T], from: &[T; N]);

    /// Returns the result of `sum_lanes`.
    #[inline(always)]
    fn sum<const L: usize>(self, parts: &mut [(f32,); L]) -> f64 {
        sum_lanes(parts)
    }

    /// Returns the maximum of lanes, in the order of `fold_lanes`. A comparison with NaN keeps its left
    /// operand.
    #[inline(always)]
    fn reduce_max<const L: usize>(self, parts: &mut [(f32,); L]) -> (f32,) {
        max_lane(parts)
    }

    /// Returns the minimum of lanes, in the order of `fold_lanes`. A comparison with NaN keeps its left
    /// operand.
    #[inline(always)]
    fn reduce_min<const L: usize>(self, parts: &mut [(f32,); L]) -> (f32,) {
        min_lane(parts)
    }

    /// Returns `x * y + z`, rounded once if the instruction set has fused multiply-add.
    #[inline(always)]
    fn mul_add(self, x: f32, y: f32, z: f32) -> f32 {
        if Self::FUSED { x.mul_add(y, z) } else { x * y + z }
    }

    /// Returns the largest whole number not above `x`.
    #[inline(always)]
    fn floor(self, x: f32) -> f32 {
        if Self::FUSED { x.floor() } else { below_whole(x, |nearest| nearest - one_if(nearest > x)) }
    }

    /// Returns the smallest whole number not below `x`; −0 for −1 < `x` < 0.
    #[inline(always)]
    fn ceil(self, x: f32) -> f32 {
        if Self::FUSED { x.ceil() } else { below_whole(x, |nearest| nearest + one_if(nearest < x)) }
    }

    /// Returns the nearest whole number, ties to even.
    #[inline(always)]
    fn round_ties_even(self, x: f32) -> f32 {
        if Self::FUSED { x.round_ties_even() } else { below_whole(x, |nearest| nearest) }
    }

    /// Returns the whole number next to `x` towards zero.
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
fn max_lane<const L: usize>(parts: &mut [(f32,); L]) -> (f32,) {
    fold_lanes(parts, |(left,), (right,)| (select_unpredictable(right > left, right, left),))
}

#[inline(always)]
fn min_lane<const L: usize>(parts: &mut [(f32,); L]) -> (f32,) {
    fold_lanes(parts, |(left,), (right,)| (select_unpredictable(right < left, right, left),))
}

/// Returns the sum of four lanes, computed in `f64`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[inline]
fn sum_of_4(x: __m128) -> f64 {
    let x = _mm_add_pd(_mm_cvtps_pd(x), _mm_cvtps_pd(_mm_movehl_ps(x, x)));
    _mm_cvtsd_f64(_mm_add_sd(x, _mm_unpackhi_pd(x, x)))
}

/// Functions that return the extremum of four lanes.
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
    max_of_4 by _mm_max_ps _mm_max_ss;
    min_of_4 by _mm_min_ps _mm_min_ss;
}

/// Methods that combine partial results in the order of `fold_lanes`, with vectors of eight and four lanes
/// and scalars.
///
/// LLVM does not vectorise a comparison and its select at full width, and splits existing vectors into pairs.
/// LLVM also stores the halves, and their reload waits for the store.
#[cfg(target_arch = "x86_64")]
macro_rules! of_lanes {
    ($isa:ident: $($name:ident -> $made:ty: $portable:ident, or $of_8:ident $of_4:ident $last:ident;)*) => { $(
        #[inline(always)]
        fn $name<const L: usize>(self, parts: &mut [(f32,); L]) -> $made {
            #[target_feature(enable = "avx")]
            #[inline]
            fn of<const L: usize>(parts: &[(f32,); L]) -> $made {
                // The component starts at offset 0, since the tuple is as large as its only component.
                const { assert!(size_of::<(f32,)>() == size_of::<f32>()) };
                // No closures and no `map` of an array: across codegen units without LTO, these are calls.
                macro_rules! eight {
                    ($at:expr) => {{
                        let eight: &[(f32,)] = &parts[$at..$at + 8];
                        // SAFETY: the slice has eight elements, each with the layout of an `f32`.
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

/// Returns `adjust` of the nearest whole number, with the sign of `x`. A whole number or NaN is returned
/// unchanged.
///
/// The addition of 2²³ leaves no bits for a fraction, so the addition rounds the fraction away.
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
            /// Makes the proof that these instructions may run.
            ///
            /// # Safety
            ///
            /// The processor has the instructions. A caller compiled for them may call this function safely.
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
                reduce_max -> (f32,): max_lane, or _mm256_max_ps _mm_max_ps max_of_4;
                reduce_min -> (f32,): min_lane, or _mm256_min_ps _mm_min_ps min_of_4;
            }

            #[inline(always)]
            fn stream<T: Word, const N: usize>(self, to: &mut [T], from: &[T; N]) {
                /// Stores `bytes` bytes with non-temporal instructions.
                ///
                /// # Safety
                ///
                /// The target is aligned to cache lines. Both pointers are valid for `bytes` bytes, a
                /// multiple of a cache line. No other code accesses the target.
                #[target_feature(enable = $features)]
                #[inline]
                unsafe fn lines(to: *mut u8, from: *const u8, bytes: usize) {
                    use std::arch::x86_64::{$lane, $store};
                    // A plain read instead of an intrinsic: with debug assertions an intrinsic would keep the
                    // lines in memory.
                    #[derive(Clone, Copy)]
                    #[repr(C, packed)]
                    struct Unaligned($lane);
                    let mut at = 0;
                    while at < bytes {
                        // SAFETY: the caller guarantees both ranges and the alignment.
                        unsafe { $store(to.wrapping_add(at).cast(), (*from.wrapping_add(at).cast::<Unaligned>()).0) };
                        at += size_of::<$lane>();
                    }
                }
                let (at, bytes) = (to.as_ptr().addr(), size_of_val(from));
                let are_whole = at % CACHE_LINE == 0 && bytes % CACHE_LINE == 0;
                assert!(to.len() == N && are_whole, "whole lines");
                // SAFETY: both ranges have `bytes` bytes of plain numbers, in whole lines. No other code
                // accesses the target. `self` is proof that the instructions may run.
                unsafe { lines(to.as_mut_ptr().cast(), from.as_ptr().cast(), bytes) };
            }
        }
    )* };
}

instruction_sets! {
    /// Proof that the instructions of [`Isa::Avx512`] may run.
    Avx512("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"), __m512i _mm512_stream_si512;
    /// Proof that the instructions of [`Isa::Avx2`] may run.
    Avx2("avx2,fma"), __m256i _mm256_stream_si256;
    /// Proof that the instructions of [`Isa::Base`] may run.
    Base("sse2"), __m128i _mm_stream_si128;
}

/// Proof that the instructions of [`Isa::Base`] may run. `Base` has no non-temporal stores.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Clone, Copy, Debug)]
pub struct Base(());

#[cfg(not(target_arch = "x86_64"))]
impl Base {
    /// Makes the proof, which is valid on every processor.
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

    /// Returns every 1009th `f32`, the numbers around halves and whole numbers, and the last number of each
    /// kind.
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

    /// All instruction sets agree, for any lane of the extremum and any values of the other lanes.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn lanes_give_the_same_with_any_instruction_set() {
        fn check<const L: usize>(one: impl Instructions, number: impl Fn(usize) -> f32) {
            let parts: [(f32,); L] = std::array::from_fn(|lane| (number(lane),));
            let bits = |(x,): (f32,)| if x.is_nan() { u32::MAX } else { x.to_bits() };
            let [sum, expected] = [one.sum(&mut { parts }), Of::<true>.sum(&mut { parts })];
            assert!(sum.to_bits() == expected.to_bits() || sum.is_nan() && expected.is_nan(), "{parts:?}");
            assert_eq!(
                bits(one.reduce_max(&mut { parts })),
                bits(Of::<true>.reduce_max(&mut { parts })),
                "{parts:?}"
            );
            assert_eq!(
                bits(one.reduce_min(&mut { parts })),
                bits(Of::<true>.reduce_min(&mut { parts })),
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
                // The sum depends on the order of the lanes.
                check::<64>(one, |at| 1.0 / (at * 7 + lane + i) as f32 + 1.0);
            }
        }
        // SAFETY: `Isa::detected` reports that the processor has the instructions.
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
        let whole = if detected == Isa::Avx512DoublePumped { Isa::Avx512 } else { detected };
        assert_eq!(Isa::best(Some("avx512")), whole);
    }
}
