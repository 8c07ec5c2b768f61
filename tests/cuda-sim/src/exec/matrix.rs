//! Matrices in the registers of a warp: `ldmatrix` and `mma.sync`, by the fragment layouts of the ISA.

use half::{bf16, f16};

use super::Step;
use super::memory::{self, Spot, Who};
use super::race::Touch;
use super::regs::{LANES, Raw, Regs, lanes};
use super::soft::{self, Exactly};
use crate::ptx::ir::{Addr, Factor, Mma, Reg, Round};

/// Rows and columns of a result.
const M: usize = 16;
const N: usize = 8;

/// Rows of 8 halves from the addresses of 8 lanes for each matrix.
pub(super) fn load(
    who: &mut Who<'_, '_>,
    regs: &mut Regs,
    group: u32,
    (d, count, trans): ([Reg; 4], u8, bool),
    addr: Addr,
) -> Step {
    let addresses = memory::addresses(regs, addr);
    for (number, &d) in d.iter().enumerate().take(usize::from(count)) {
        let mut rows = [[0u16; 8]; 8];
        for (row, halves) in rows.iter_mut().enumerate() {
            let lane = number * 8 + row;
            let spot = Spot { lane, address: addresses[lane], bytes: 16 };
            who.mem.atomic_reads = false;
            let at = memory::shared_spot(who, spot, Touch::Read)?;
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
    }
    Ok(())
}

/// `d = a · b + c`, each element a sum of exact products, rounded at its end.
pub(super) fn multiply(regs: &mut Regs, group: u32, mma: &Mma) {
    let k = usize::from(mma.k);
    let (mut a, mut b, mut c) = ([[0.0; 16]; M], [[0.0; N]; 16], [[0.0; N]; M]);
    for lane in lanes(group) {
        let (row, col) = (lane / 4, lane % 4);
        for (i, x) in factors(regs, mma.factor, &mma.a, lane, k / 2).enumerate() {
            // Registers alternate between the upper and the lower eight rows.
            let (place, pair) = position(mma.factor, i);
            a[row + 8 * (place % 2)][place / 2 * step(mma.factor) + columns(mma.factor, col, pair)] = x;
        }
        for (i, x) in factors(regs, mma.factor, &mma.b, lane, k / 4).enumerate() {
            let (place, pair) = position(mma.factor, i);
            b[place * step(mma.factor) + columns(mma.factor, col, pair)][row] = x;
        }
        for (i, x) in sums(regs, mma, lane).into_iter().enumerate() {
            c[row + i / 2 * 8][col * 2 + i % 2] = x;
        }
    }
    for (row, sums) in c.iter_mut().enumerate() {
        for (col, sum) in sums.iter_mut().enumerate() {
            *sum += (0..k).map(|i| a[row][i] * b[i][col]).sum::<f64>();
        }
    }
    store(regs, group, mma, &c);
}

/// The register of an element and which of it it is.
fn position(factor: Factor, i: usize) -> (usize, usize) {
    match factor {
        Factor::F16 | Factor::BF16 => (i / 2, i % 2),
        Factor::TF32 => (i, 0),
    }
}

/// How many columns lie between a register and the next of the same row.
fn step(factor: Factor) -> usize {
    match factor {
        Factor::F16 | Factor::BF16 => 8,
        Factor::TF32 => 4,
    }
}

fn columns(factor: Factor, col: usize, pair: usize) -> usize {
    match factor {
        Factor::F16 | Factor::BF16 => col * 2 + pair,
        Factor::TF32 => col,
    }
}

/// A lane's elements of a factor.
fn factors(
    regs: &Regs,
    factor: Factor,
    from: &[Reg],
    lane: usize,
    count: usize,
) -> impl Iterator<Item = f64> {
    (0..count).map(move |i| {
        let (place, pair) = position(factor, i);
        let word = u32::row(regs, from[place])[lane];
        let half = (word >> (16 * pair)) as u16;
        match factor {
            Factor::F16 => f16::from_bits(half).to_f64(),
            Factor::BF16 => bf16::from_bits(half).to_f64(),
            // The lower bits of the register are not part of it.
            Factor::TF32 => f64::from(f32::from_bits(word & !0x1fff)),
        }
    })
}

fn sums(regs: &Regs, mma: &Mma, lane: usize) -> [f64; 4] {
    std::array::from_fn(|i| {
        if mma.half.1 {
            f16::from_bits((u32::row(regs, mma.c[i / 2])[lane] >> (16 * (i % 2))) as u16).to_f64()
        } else {
            f64::from(f32::from_bits(u32::row(regs, mma.c[i])[lane]))
        }
    })
}

fn store(regs: &mut Regs, group: u32, mma: &Mma, c: &[[f64; N]; M]) {
    let rounded = |x: f64, to| soft::compute(Exactly::Same, [x, 0.0, 0.0], to, Round::Nearest) as u32;
    let at = |lane: usize, i: usize| c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    if mma.half.0 {
        for pair in 0..2 {
            let half = |lane, i| rounded(at(lane, 2 * pair + i), soft::F16);
            let out: [u32; LANES] = std::array::from_fn(|lane| half(lane, 1) << 16 | half(lane, 0));
            regs.put(group, mma.d[pair], &out);
        }
        return;
    }
    for (i, &d) in mma.d.iter().enumerate() {
        let out: [u32; LANES] = std::array::from_fn(|lane| rounded(at(lane, i), soft::F32));
        regs.put(group, d, &out);
    }
}
