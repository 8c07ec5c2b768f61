//! `ldmatrix` and `mma.sync` agree with products computed here, on fragments laid out by the figures of the
//! ISA.

use crate::harness::{self, kernel, threads, to_words, words};
use half::{bf16, f16};

/// Returns a small integer, which every format represents exactly.
fn element(row: usize, col: usize, seed: usize) -> f32 {
    ((row * 7 + col * 3 + seed * 5) % 9) as f32 - 4.0
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    F16,
    BF16,
    TF32,
}

fn bits(kind: Kind, x: f32) -> u32 {
    match kind {
        Kind::F16 => u32::from(f16::from_f32(x).to_bits()),
        Kind::BF16 => u32::from(bf16::from_f32(x).to_bits()),
        // The lower 13 bits are not part of a TF32 number.
        Kind::TF32 => x.to_bits() | 0x1fff,
    }
}

/// Returns a lane's registers of the first factor: the ISA's figures for `.m16n8kK`, row = group or group +
/// 8.
fn first(kind: Kind, k: usize, lane: usize) -> Vec<u32> {
    let (group, thread) = (lane / 4, lane % 4);
    let a = |row, col| bits(kind, element(row, col, 1));
    match (kind, k) {
        (Kind::TF32, 4) => vec![a(group, thread), a(group + 8, thread)],
        (Kind::TF32, _) => {
            vec![a(group, thread), a(group + 8, thread), a(group, thread + 4), a(group + 8, thread + 4)]
        }
        (_, _) => {
            let pair = |row, col| a(row, col + 1) << 16 | a(row, col);
            let mut all = vec![pair(group, 2 * thread), pair(group + 8, 2 * thread)];
            if k == 16 {
                all.extend([pair(group, 2 * thread + 8), pair(group + 8, 2 * thread + 8)]);
            }
            all
        }
    }
}

fn second(kind: Kind, k: usize, lane: usize) -> Vec<u32> {
    let (group, thread) = (lane / 4, lane % 4);
    let b = |row, col| bits(kind, element(row, col, 2));
    match (kind, k) {
        (Kind::TF32, 4) => vec![b(thread, group)],
        (Kind::TF32, _) => vec![b(thread, group), b(thread + 4, group)],
        (_, _) => {
            let pair = |row| b(row + 1, group) << 16 | b(row, group);
            if k == 16 { vec![pair(2 * thread), pair(2 * thread + 8)] } else { vec![pair(2 * thread)] }
        }
    }
}

/// Runs a product with the fragments of each lane in memory, 16 words a lane, and checks every element.
fn multiply(name: &str, kind: Kind, k: usize, half: bool) {
    let (a, b) = (first(kind, k, 0).len(), second(kind, k, 0).len());
    let c = if half { 2 } else { 4 };
    let (letter, ty) = if half { ("%r", "b32") } else { ("%f", "f32") };
    let list = |letter: &str, from: usize, count: usize| {
        (from..from + count).map(|i| format!("{letter}{i}")).collect::<Vec<_>>().join(", ")
    };
    let mut body = String::from(
        ".reg .b32 %r<40>; .reg .f32 %f<40>; .reg .b64 %rd<5>; ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in]; mov.u32 %r39, %laneid; mad.wide.u32 %rd2, %r39, 64, %rd2; mad.wide.u32 %rd1, %r39, 16, %rd1;\n",
    );
    (0..a + b).for_each(|i| body += &format!("ld.global.b32 %r{i}, [%rd2+{}];\n", 4 * i));
    (0..c).for_each(|i| body += &format!("ld.global.{ty} {letter}{}, [%rd2+{}];\n", 20 + i, 4 * (a + b + i)));
    body += &format!(
        "mma.sync.aligned.{name} {{{}}}, {{{}}}, {{{}}}, {{{}}};\n",
        list(letter, 30, c),
        list("%r", 0, a),
        list("%r", a, b),
        list(letter, 20, c)
    );
    (0..c).for_each(|i| body += &format!("st.global.{ty} [%rd1+{}], {letter}{};\n", 4 * i, 30 + i));
    let mut input = vec![0u32; 32 * 16];
    for lane in 0..32 {
        let (group, thread) = (lane / 4, lane % 4);
        let sum = |i: usize| element(group + i / 2 * 8, 2 * thread + i % 2, 3);
        let sums: Vec<u32> = if half {
            (0..2).map(|i| bits(Kind::F16, sum(2 * i + 1)) << 16 | bits(Kind::F16, sum(2 * i))).collect()
        } else {
            (0..4).map(|i| sum(i).to_bits()).collect()
        };
        let all = [first(kind, k, lane), second(kind, k, lane), sums].concat();
        input[lane * 16..lane * 16 + all.len()].copy_from_slice(&all);
    }
    let text = kernel(&["u64 out", "u64 in"], &body);
    let out = harness::words_of(&text, threads(32), &[words(&[0; 128]), words(&input)]);
    for row in 0..16 {
        for col in 0..8 {
            let wanted =
                element(row, col, 3) + (0..k).map(|i| element(row, i, 1) * element(i, col, 2)).sum::<f32>();
            let (lane, i) = (row % 8 * 4 + col / 2, row / 8 * 2 + col % 2);
            let found = if half {
                f16::from_bits((out[lane * 4 + i / 2] >> (16 * (i % 2))) as u16).to_f32()
            } else {
                f32::from_bits(out[lane * 4 + i])
            };
            assert_eq!(found, wanted, "{name}: row {row}, column {col}");
        }
    }
}

#[test]
fn products() {
    multiply("m16n8k16.row.col.f32.f16.f16.f32", Kind::F16, 16, false);
    multiply("m16n8k8.row.col.f32.f16.f16.f32", Kind::F16, 8, false);
    multiply("m16n8k16.row.col.f16.f16.f16.f16", Kind::F16, 16, true);
    multiply("m16n8k8.row.col.f16.f16.f16.f16", Kind::F16, 8, true);
    multiply("m16n8k16.row.col.f32.bf16.bf16.f32", Kind::BF16, 16, false);
    multiply("m16n8k8.row.col.f32.bf16.bf16.f32", Kind::BF16, 8, false);
    multiply("m16n8k8.row.col.f32.tf32.tf32.f32", Kind::TF32, 8, false);
    multiply("m16n8k4.row.col.f32.tf32.tf32.f32", Kind::TF32, 4, false);
}

/// Loads matrices with `m·64 + row·8 + column` as element (row, column) of matrix `m`.
fn matrices(count: usize, trans: &str) -> Vec<u32> {
    let list = (0..count).map(|i| format!("%r{i}")).collect::<Vec<_>>().join(", ");
    let stores: String = (0..count).map(|i| format!("st.global.u32 [%rd1+{}], %r{i};\n", 4 * i)).collect();
    let body = format!(".reg .b32 %r<20>; .reg .b64 %rd<5>; .shared .align 16 .b8 buffer[512];
ld.param.u64 %rd1, [out]; mov.u32 %r10, %laneid; mov.u32 %r11, buffer; mad.lo.u32 %r12, %r10, 16, %r11;
mul.lo.u32 %r13, %r10, 8; mad.lo.u32 %r13, %r13, 0x10001, 0x10000;
st.shared.u32 [%r12], %r13; add.u32 %r13, %r13, 0x20002; st.shared.u32 [%r12+4], %r13; add.u32 %r13, %r13, 0x20002; st.shared.u32 [%r12+8], %r13; add.u32 %r13, %r13, 0x20002; st.shared.u32 [%r12+12], %r13;
bar.warp.sync -1;
ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{list}}}, [%r12];
mad.wide.u32 %rd1, %r10, {}, %rd1;
{stores}", 4 * count);
    let text = kernel(&["u64 out"], &body);
    let (_, buffers) = harness::launch(&text, threads(32), &[words(&vec![0; 32 * count])])
        .unwrap_or_else(|fault| panic!("{fault}"));
    to_words(&buffers[0])
}

#[test]
fn matrices_of_shared_memory() {
    for count in [1, 2, 4] {
        for trans in ["", ".trans"] {
            let found = matrices(count, trans);
            for lane in 0..32 {
                for m in 0..count {
                    let at = |row: usize, col: usize| (m * 64 + row * 8 + col) as u32;
                    let (row, col) = (lane / 4, lane % 4 * 2);
                    let (low, high) = if trans.is_empty() {
                        (at(row, col), at(row, col + 1))
                    } else {
                        (at(col, row), at(col + 1, row))
                    };
                    assert_eq!(
                        found[lane * count + m],
                        high << 16 | low,
                        "x{count}{trans}: lane {lane}, matrix {m}"
                    );
                }
            }
        }
    }
}
