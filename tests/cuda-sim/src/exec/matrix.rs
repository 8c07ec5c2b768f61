//! Matrices in the registers of a warp: `ldmatrix` and `mma.sync`, by the fragment layouts of the ISA.

use ::half::{bf16, f16};

use super::Step;
use super::float::canonical;
use super::half::{self, Half};
use super::memory::{self, Spot, Who};
use super::race::Touch;
use super::regs::{LANES, Raw, Regs, every};
use super::{shared, unset};
use crate::ptx::ir::{Addr, Factor, Mma, Reg};

/// Number of rows and columns of a result.
const M: usize = 16;
const N: usize = 8;

/// Loads `count` matrices, each as rows of 8 halves from the addresses of 8 lanes.
pub(super) fn load(
    who: &mut Who<'_, '_>,
    regs: &mut Regs,
    group: u32,
    (d, count, trans): ([Reg; 4], u8, bool),
    addr: Addr,
) -> Step {
    let addresses = memory::addresses(regs, addr);
    for number in 0..u32::from(count) {
        // A matrix is read at once.
        who.mem.counters.shared += 8 * 16;
        who.mem.counters.shared_rounds += shared::rounds(0xff << (8 * number), &addresses, 16);
    }
    for (number, &d) in d.iter().enumerate().take(usize::from(count)) {
        let (mut rows, mut missing) = ([[0u16; 8]; 8], [0u32; 8]);
        for (row, halves) in rows.iter_mut().enumerate() {
            let lane = number * 8 + row;
            let spot = Spot { lane, address: addresses[lane], bytes: 16 };
            who.mem.atomic_reads = false;
            let at = shared::shared_spot(who, spot, addr.var, Touch::Read)?;
            missing[row] = !who.mem.shared_written.get(spot.address as usize, 16) & 0xffff;
            for (i, half) in halves.iter_mut().enumerate() {
                // SAFETY: 16 bytes of the block's shared memory, aligned, start there.
                *half = unsafe { memory::read(at.add(2 * i), 2) } as u16;
            }
        }
        let out: [u32; LANES] = std::array::from_fn(|lane| {
            let (row, col) = (lane / 4, lane % 4 * 2);
            let [low, high] = if trans {
                [rows[col][row], rows[col + 1][row]]
            } else {
                [rows[row][col], rows[row][col + 1]]
            };
            u32::from(high) << 16 | u32::from(low)
        });
        regs.put(group, d, &out);
        if missing != [0; 8] {
            undefine(who, regs, d, (&addresses[number * 8..], trans), &missing);
        }
    }
    Ok(())
}

/// Marks the halves as undefined that lanes loaded from unwritten bytes of a matrix.
#[cold]
fn undefine(who: &Who<'_, '_>, regs: &mut Regs, d: Reg, (rows, trans): (&[u64], bool), missing: &[u32; 8]) {
    let is_unset = |row: usize, col: usize| missing[row] >> (2 * col) & 3 != 0;
    for lane in 0..LANES {
        let (row, col) = (lane / 4, lane % 4 * 2);
        let halves = if trans { [(col, row), (col + 1, row)] } else { [(row, col), (row, col + 1)] };
        if let Some(&(row, _)) = halves.iter().find(|&&(row, col)| is_unset(row, col)) {
            regs.undefine(1 << lane, d);
            unset::note_row(who, regs, 1 << lane, rows[row], 16);
        }
    }
}

/// Computes `d = a · b + c`. Each element is a sum of exact products, rounded at its end.
pub(super) fn multiply(regs: &mut Regs, group: u32, mma: &Mma, fast: bool) {
    #[cfg(target_arch = "x86_64")]
    if fast {
        // SAFETY: `fast` is true only if the host has these features.
        unsafe { with_vectors(regs, group, mma) };
        return;
    }
    let _ = fast;
    product(regs, group, mma);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_vectors(regs: &mut Regs, group: u32, mma: &Mma) {
    product(regs, group, mma);
}

#[inline(always)]
fn product(regs: &mut Regs, group: u32, mma: &Mma) {
    let (k, pairs) = (usize::from(mma.k), pairs(mma.factor));
    let (mut a, mut b, mut c) = ([[0.0; 16]; M], [[0.0; N]; 16], [[0.0; N]; M]);
    for (place, pair) in (0..k / 2).map(|i| (i / pairs, i % pairs)) {
        let elements = factors(regs, mma.factor, mma.a[place], pair);
        for (lane, x) in elements.into_iter().enumerate() {
            // Registers alternate between the upper and the lower eight rows.
            a[lane / 4 + 8 * (place % 2)][column(mma.factor, place / 2, lane % 4, pair)] = x;
        }
    }
    for (place, pair) in (0..k / 4).map(|i| (i / pairs, i % pairs)) {
        let elements = factors(regs, mma.factor, mma.b[place], pair);
        for (lane, x) in elements.into_iter().enumerate() {
            b[column(mma.factor, place, lane % 4, pair)][lane / 4] = x;
        }
    }
    for i in 0..4 {
        for (lane, x) in sums(regs, mma, i).into_iter().enumerate() {
            c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = x;
        }
    }
    match k {
        4 => add_products::<4>(&a, &b, &mut c),
        8 => add_products::<8>(&a, &b, &mut c),
        _ => add_products::<16>(&a, &b, &mut c),
    }
    store(regs, group, mma, &c);
}

/// Adds the product of the first `K` columns and rows, one row at a time, so that the loop vectorizes.
///
/// Each element is summed in the order of the columns of `a`.
#[inline(always)]
fn add_products<const K: usize>(a: &[[f64; 16]; M], b: &[[f64; N]; 16], c: &mut [[f64; N]; M]) {
    for (factors, sums) in a.iter().zip(c) {
        let mut products = [0.0; N];
        for (x, column) in factors.iter().zip(b).take(K) {
            for (product, y) in products.iter_mut().zip(column) {
                *product += x * y;
            }
        }
        sums.iter_mut().zip(products).for_each(|(sum, product)| *sum += product);
    }
}

/// Returns the number of elements of a register of a factor.
fn pairs(factor: Factor) -> usize {
    match factor {
        Factor::F16 | Factor::BF16 => 2,
        Factor::TF32 => 1,
    }
}

/// Returns the column of an element of the `register`th register for these rows, by its lane in a group of
/// four.
#[inline(always)]
fn column(factor: Factor, register: usize, lane: usize, pair: usize) -> usize {
    match factor {
        Factor::F16 | Factor::BF16 => register * 8 + lane * 2 + pair,
        Factor::TF32 => register * 4 + lane,
    }
}

/// Returns the lower or the upper elements of a register of a factor.
#[inline(always)]
fn factors(regs: &Regs, factor: Factor, from: Reg, pair: usize) -> [f64; LANES] {
    let (row, shift) = (u32::row(regs, from), 16 * pair);
    match factor {
        Factor::F16 => elements(row, |word| f16::widen(word >> shift & 0xffff)),
        Factor::BF16 => elements(row, |word| bf16::widen(word >> shift & 0xffff)),
        // The lower bits of the register do not belong to the value.
        Factor::TF32 => elements(row, |word| f32::from_bits(word & !0x1fff)),
    }
}

/// Returns the `i`th summand of all lanes.
#[inline(always)]
fn sums(regs: &Regs, mma: &Mma, i: usize) -> [f64; LANES] {
    if mma.half.1 {
        elements(u32::row(regs, mma.c[i / 2]), |word| f16::widen(word >> (16 * (i % 2)) & 0xffff))
    } else {
        elements(u32::row(regs, mma.c[i]), f32::from_bits)
    }
}

/// Converts a row of elements. Each format calls this with its own closure, because a loop with a branch on
/// the format does not vectorize.
#[inline(always)]
fn elements(row: &[u32; LANES], element: impl Fn(u32) -> f32) -> [f64; LANES] {
    let (narrow, mut out) = (every(row, element), [0.0; LANES]);
    for (&x, out) in narrow.iter().zip(&mut out) {
        *out = f64::from(x);
    }
    out
}

#[inline(always)]
fn store(regs: &mut Regs, group: u32, mma: &Mma, c: &[[f64; N]; M]) {
    let of = |i: usize| -> [f64; LANES] {
        let mut out = [0.0; LANES];
        for (lane, x) in out.iter_mut().enumerate() {
            *x = c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
        }
        out
    };
    if mma.half.0 {
        for pair in 0..2 {
            let (low, high) = (half::rounded::<f16>(&of(2 * pair)), half::rounded::<f16>(&of(2 * pair + 1)));
            regs.put(group, mma.d[pair], &half::paired(&low, &high));
        }
        return;
    }
    for (i, &d) in mma.d.iter().enumerate() {
        regs.put(group, d, &every(&of(i), |x| canonical(x as f32).to_bits()));
    }
}
