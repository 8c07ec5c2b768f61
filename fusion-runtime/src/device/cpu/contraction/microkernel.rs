//! Microkernels: products of two packed panels, kept in registers.
//!
//! A panel of the left operand has up to `rows` rows and is stored depth by depth, `rows` elements each. A
//! panel of the right operand has `cols` columns, stored alike. Each element of a product is one chain of
//! multiply-adds over the depth, so the shape of a microkernel never changes a result.

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::*;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
use std::num::Wrapping;

use fusion_compiler::ir::dtype::DType;
use fusion_compiler::ir::plan::DEPTH;
use half::{bf16, f16};

use super::pack::Packer;
use crate::isa::Isa;

/// Most rows of a product of panels, for any instruction set.
const ROWS_MAX: usize = 12;

/// A product of two panels, with the numbers of rows and vectors fixed.
///
/// # Safety
///
/// The processor has the function's instructions. The panels have the steps of the depth, and the product has
/// memory for the rows and vectors of the function.
type Microkernel<T> = unsafe fn(Panels<T>, Steps);

/// Positions of the steps of the left and of the right panel.
type Steps = [*const u32; 2];

/// The microkernels of an instruction set.
#[derive(Debug)]
pub(super) struct Microkernels<T: 'static> {
    /// Number of rows in a panel of the left operand.
    pub(super) rows: usize,
    /// Number of columns in a panel of the right operand.
    pub(super) cols: usize,
    /// Elements of a vector.
    lanes: usize,
    /// Products by number of rows.
    products: &'static [Products<T>],
    /// Positions of steps one after another, of the left and of the right panel.
    steps: [&'static [u32; DEPTH]; 2],
}

/// The microkernels of products with a number of rows.
#[derive(Debug)]
struct Products<T> {
    /// Products of one and of two vectors.
    packed: [Microkernel<T>; 2],
    /// Products of two vectors, with steps that lie anywhere.
    shifted: Microkernel<T>,
    /// Products of one and of two vectors, with rows that are not packed.
    unpacked: [Microkernel<T>; 2],
}

/// A product of packed panels.
const PACKED: u8 = 0;
/// A product with steps that lie anywhere.
const SHIFTED: u8 = 1;
/// A product with rows that are not packed.
const UNPACKED: u8 = 2;

/// Lanes of an operand at each step of the depth. Lanes lie next to each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panel<T> {
    /// The first lane at position 0.
    pub(super) first: *const T,
    /// Positions of the steps, if steps do not lie one after another.
    pub(super) steps: Option<*const u32>,
    /// Elements from one lane to the next, if steps lie next to each other instead of lanes.
    pub(super) apart: Option<usize>,
}

/// Lanes of a panel that are next to each other in the product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LaneRun {
    /// Number of the first lane in the panel.
    pub(super) lane: usize,
    /// Number of the first lane's row or column in the product.
    pub(super) at: usize,
    pub(super) len: usize,
}

/// The packed panels of a product, and where the product goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panels<T> {
    pub(super) depth: usize,
    pub(super) left: Panel<T>,
    pub(super) right: Panel<T>,
    pub(super) product: *mut T,
    /// Elements from one row of the product to the next.
    pub(super) stride: usize,
    /// True if the product is added to what is there.
    pub(super) adds: bool,
}

/// A type that products are computed in.
pub(super) trait Accumulate:
    Copy + Default + Send + Sync + std::ops::Add<Output = Self> + 'static
{
    /// Returns the microkernels that a processor with these instructions runs.
    fn microkernels(isa: Isa) -> &'static Microkernels<Self>;

    /// Returns the functions that pack operands of a dtype, if products of them are computed in this type.
    fn packer(dtype: DType) -> Option<Packer<Self>>;
}

impl<T: Accumulate> Microkernels<T> {
    /// Computes the product of some rows and columns of two panels.
    ///
    /// # Safety
    ///
    /// The processor has the instructions of these microkernels. The lanes are some of the panels, whose steps have
    /// all lanes that microkernels read. The product has the rows and columns, and no other code accesses it.
    #[inline]
    pub(super) unsafe fn multiply(&self, panels: Panels<T>, rows: &[LaneRun], cols: &[LaneRun]) {
        let Panels { product, stride, adds, .. } = panels;
        let end = |runs: &[LaneRun]| runs.last().map_or(0, |run| run.lane + run.len);
        let [row_end, col_end] = [end(rows), end(cols)];
        let (products, vectors) = (&self.products[row_end - 1], col_end.div_ceil(self.lanes));
        let (function, vectors, steps) = match (panels.left.steps, panels.right.steps) {
            (None, None) => {
                let is_packed = panels.left.apart.is_none();
                let functions = if is_packed { &products.packed } else { &products.unpacked };
                (functions[vectors - 1], vectors, [std::ptr::null(); 2])
            }
            (left, right) => {
                let [rows, cols] = self.steps.map(|steps| steps.as_ptr());
                (products.shifted, 2, [left.unwrap_or(rows), right.unwrap_or(cols)])
            }
        };
        if let ([LaneRun { lane: 0, at: row, .. }], [LaneRun { lane: 0, at: col, .. }]) = (rows, cols)
            && col_end == vectors * self.lanes
        {
            let product = product.wrapping_add(row * stride + col);
            // SAFETY: the caller's contract is that of the function.
            return unsafe { function(Panels { product, ..panels }, steps) };
        }
        // A vector would pass the end of the product's rows, so all vectors go through memory of their own.
        let mut whole = [T::default(); ROWS_MAX * 32];
        let own = Panels { product: whole.as_mut_ptr(), stride: self.cols, adds: false, ..panels };
        // SAFETY: `whole` has room for the rows and vectors of every function.
        unsafe { function(own, steps) };
        for (row, values) in rows.iter().flat_map(|of| (0..of.len).map(|i| (of.at + i, of.lane + i))) {
            for of in cols {
                let values = &whole[values * self.cols + of.lane..][..of.len];
                for (col, &value) in values.iter().enumerate() {
                    // SAFETY: the product has these rows and columns, by the caller's contract.
                    unsafe {
                        let element = product.add(row * stride + of.at + col);
                        *element = if adds { *element + value } else { value };
                    }
                }
            }
        }
    }
}

/// Returns the positions of steps that lie so many elements apart.
const fn multiples(of: usize) -> [u32; DEPTH] {
    let mut all = [0; DEPTH];
    let mut step = 0;
    while step < DEPTH {
        all[step] = (step * of) as u32;
        step += 1;
    }
    all
}

/// Defines the microkernels of one instruction set and type.
///
/// `load`, `store`, `splat`, `add` and `mul_add` are operations on vectors of `lanes` elements.
macro_rules! microkernels {
    (
        $(#[$attribute:meta])*
        $name:ident: $t:ty, $rows:literal x 2 x $lanes:literal, [$($number:literal)*];
        $zero:expr, $load:expr, $store:expr, $splat:expr, $add:expr, $mul_add:expr
    ) => {
        mod $name {
            use super::*;

            const ROWS: usize = $rows;
            const LANES: usize = $lanes;
            const _: () = assert!(ROWS <= ROWS_MAX && ROWS * 2 * LANES <= ROWS_MAX * 32);

            /// Computes `R` rows of `V` vectors.
            ///
            /// # Safety
            ///
            /// See `Microkernel`.
            $(#[$attribute])*
            unsafe fn product<const R: usize, const V: usize, const HOW: u8>(panels: Panels<$t>, steps: Steps) {
                let Panels { depth, left, right, product, stride, adds } = panels;
                let apart = left.apart.unwrap_or(1);
                let mut sums = [[$zero; V]; R];
                for step in 0..depth {
                    // SAFETY: the panels have `depth` steps, by the contract of `Microkernel`.
                    unsafe {
                        let [left_at, right_at] = match HOW {
                            SHIFTED => [*steps[0].add(step) as usize, *steps[1].add(step) as usize],
                            UNPACKED => [step, step * 2 * LANES],
                            _ => [step * ROWS, step * 2 * LANES],
                        };
                        let apart = if HOW == UNPACKED { apart } else { 1 };
                        let (left, right) = (left.first.add(left_at), right.first.add(right_at));
                        let mut cols = [$zero; V];
                        for v in 0..V {
                            cols[v] = $load(right.add(v * LANES));
                        }
                        for r in 0..R {
                            let row = $splat(*left.add(r * apart));
                            for v in 0..V {
                                sums[r][v] = $mul_add(row, cols[v], sums[r][v]);
                            }
                        }
                    }
                }
                for r in 0..R {
                    for v in 0..V {
                        // SAFETY: the product has `R` rows of `V` vectors, by the contract of `Microkernel`.
                        unsafe {
                            let at = product.add(r * stride + v * LANES);
                            let sum = if adds { $add($load(at), sums[r][v]) } else { sums[r][v] };
                            $store(at, sum);
                        }
                    }
                }
            }

            pub(super) static MICROKERNELS: Microkernels<$t> = Microkernels {
                rows: ROWS,
                cols: 2 * LANES,
                lanes: LANES,
                products: &[$(Products {
                    packed: [product::<$number, 1, PACKED>, product::<$number, 2, PACKED>],
                    shifted: product::<$number, 2, SHIFTED>,
                    unpacked: [product::<$number, 1, UNPACKED>, product::<$number, 2, UNPACKED>],
                }),*],
                steps: [&const { multiples(ROWS) }, &const { multiples(2 * LANES) }],
            };
        }
    };
}

#[cfg(target_arch = "x86_64")]
microkernels! {
    #[target_feature(enable = "avx512f")]
    avx512_f32: f32, 12 x 2 x 16, [1 2 3 4 5 6 7 8 9 10 11 12];
    _mm512_setzero_ps(), _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_add_ps, _mm512_fmadd_ps
}

#[cfg(target_arch = "x86_64")]
microkernels! {
    #[target_feature(enable = "avx512f")]
    avx512_f64: f64, 12 x 2 x 8, [1 2 3 4 5 6 7 8 9 10 11 12];
    _mm512_setzero_pd(), _mm512_loadu_pd, _mm512_storeu_pd, _mm512_set1_pd, _mm512_add_pd, _mm512_fmadd_pd
}

#[cfg(target_arch = "x86_64")]
microkernels! {
    #[target_feature(enable = "avx2,fma")]
    avx2_f32: f32, 6 x 2 x 8, [1 2 3 4 5 6];
    _mm256_setzero_ps(), _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_add_ps, _mm256_fmadd_ps
}

#[cfg(target_arch = "x86_64")]
microkernels! {
    #[target_feature(enable = "avx2,fma")]
    avx2_f64: f64, 6 x 2 x 4, [1 2 3 4 5 6];
    _mm256_setzero_pd(), _mm256_loadu_pd, _mm256_storeu_pd, _mm256_set1_pd, _mm256_add_pd, _mm256_fmadd_pd
}

#[cfg(target_arch = "x86_64")]
microkernels! {
    #[target_feature(enable = "avx512f")]
    avx512_i32: Wrapping<i32>, 12 x 2 x 16, [1 2 3 4 5 6 7 8 9 10 11 12];
    _mm512_setzero_si512(), (|from: *const Wrapping<i32>| _mm512_loadu_si512(from.cast())),
    (|to: *mut Wrapping<i32>, x| _mm512_storeu_si512(to.cast(), x)), (|x: Wrapping<i32>| _mm512_set1_epi32(x.0)),
    _mm512_add_epi32, (|x, y, z| _mm512_add_epi32(_mm512_mullo_epi32(x, y), z))
}

#[cfg(target_arch = "x86_64")]
microkernels! {
    #[target_feature(enable = "avx2,fma")]
    avx2_i32: Wrapping<i32>, 6 x 2 x 8, [1 2 3 4 5 6];
    _mm256_setzero_si256(), (|from: *const Wrapping<i32>| _mm256_loadu_si256(from.cast())),
    (|to: *mut Wrapping<i32>, x| _mm256_storeu_si256(to.cast(), x)), (|x: Wrapping<i32>| _mm256_set1_epi32(x.0)),
    _mm256_add_epi32, (|x, y, z| _mm256_add_epi32(_mm256_mullo_epi32(x, y), z))
}

#[cfg(target_arch = "aarch64")]
microkernels! {
    #[target_feature(enable = "neon")]
    neon_f32: f32, 8 x 2 x 4, [1 2 3 4 5 6 7 8];
    vdupq_n_f32(0.0), vld1q_f32, vst1q_f32, vdupq_n_f32, vaddq_f32, (|x, y, z| vfmaq_f32(z, x, y))
}

#[cfg(target_arch = "aarch64")]
microkernels! {
    #[target_feature(enable = "neon")]
    neon_f64: f64, 8 x 2 x 2, [1 2 3 4 5 6 7 8];
    vdupq_n_f64(0.0), vld1q_f64, vst1q_f64, vdupq_n_f64, vaddq_f64, (|x, y, z| vfmaq_f64(z, x, y))
}

/// Vectors of four lanes that every compiler vectorises. Products round before they are added.
mod portable {
    pub(super) type Vector<T> = [T; 4];

    pub(super) unsafe fn load<T: Copy>(from: *const T) -> Vector<T> {
        // SAFETY: the caller has four elements there.
        unsafe { from.cast::<Vector<T>>().read_unaligned() }
    }

    pub(super) unsafe fn store<T: Copy>(to: *mut T, vector: Vector<T>) {
        // SAFETY: the caller has room for four elements there.
        unsafe { to.cast::<Vector<T>>().write_unaligned(vector) }
    }

    pub(super) fn add<T: Copy + std::ops::Add<Output = T>>(x: Vector<T>, y: Vector<T>) -> Vector<T> {
        std::array::from_fn(|i| x[i] + y[i])
    }

    pub(super) fn mul_add<T>(x: Vector<T>, y: Vector<T>, z: Vector<T>) -> Vector<T>
    where
        T: Copy + std::ops::Add<Output = T> + std::ops::Mul<Output = T>,
    {
        std::array::from_fn(|i| x[i] * y[i] + z[i])
    }
}

microkernels! {
    base_f32: f32, 4 x 2 x 4, [1 2 3 4];
    [0.0_f32; 4], portable::load, portable::store, (|x| [x; 4]), portable::add,
    portable::mul_add
}

microkernels! {
    base_f64: f64, 4 x 2 x 4, [1 2 3 4];
    [0.0_f64; 4], portable::load, portable::store, (|x| [x; 4]), portable::add,
    portable::mul_add
}

microkernels! {
    base_i32: Wrapping<i32>, 4 x 2 x 4, [1 2 3 4];
    [Wrapping(0_i32); 4], portable::load, portable::store, (|x| [x; 4]), portable::add,
    portable::mul_add
}

/// Chooses the microkernels of an instruction set. The names are those of AVX-512, AVX2, NEON and the others.
macro_rules! of_isa {
    ($isa:expr, $avx512:ident, $avx2:ident, $neon:ident, $base:ident) => {
        match $isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Avx512DoublePumped => &$avx512::MICROKERNELS,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => &$avx2::MICROKERNELS,
            #[cfg(target_arch = "aarch64")]
            Isa::Base => &$neon::MICROKERNELS,
            #[cfg(not(target_arch = "aarch64"))]
            Isa::Base => &$base::MICROKERNELS,
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 | Isa::Avx512DoublePumped => &$base::MICROKERNELS,
        }
    };
}

impl Accumulate for f32 {
    fn packer(dtype: DType) -> Option<Packer<f32>> {
        match dtype {
            DType::F32 => Some(Packer::of::<f32>()),
            DType::F16 => Some(Packer::of::<f16>()),
            DType::BF16 => Some(Packer::of::<bf16>()),
            _ => None,
        }
    }

    fn microkernels(isa: Isa) -> &'static Microkernels<f32> {
        of_isa!(isa, avx512_f32, avx2_f32, neon_f32, base_f32)
    }
}

impl Accumulate for Wrapping<i32> {
    fn packer(dtype: DType) -> Option<Packer<Wrapping<i32>>> {
        match dtype {
            DType::I32 | DType::U32 => Some(Packer::of::<i32>()),
            DType::I16 => Some(Packer::of::<i16>()),
            DType::U16 => Some(Packer::of::<u16>()),
            DType::I8 => Some(Packer::of::<i8>()),
            DType::U8 => Some(Packer::of::<u8>()),
            _ => None,
        }
    }

    fn microkernels(isa: Isa) -> &'static Microkernels<Wrapping<i32>> {
        of_isa!(isa, avx512_i32, avx2_i32, base_i32, base_i32)
    }
}

impl Accumulate for f64 {
    fn packer(dtype: DType) -> Option<Packer<f64>> {
        (dtype == DType::F64).then(Packer::of::<f64>)
    }

    fn microkernels(isa: Isa) -> &'static Microkernels<f64> {
        of_isa!(isa, avx512_f64, avx2_f64, neon_f64, base_f64)
    }
}
