//! Microkernels and packing against plain loops.

use std::num::Wrapping;

use fusion_compiler::ir::dtype::DType;
use half::bf16;

use super::microkernel::{Accumulate, Panels};
use super::pack::{Direction, Operand};
use crate::isa::Isa;

/// Returns the instruction sets of this processor.
fn isas() -> Vec<Isa> {
    let best = Isa::best(None);
    [Isa::Base, Isa::Avx2, Isa::Avx512DoublePumped, Isa::Avx512]
        .into_iter()
        .filter(|isa| *isa <= best)
        .collect()
}

/// Returns numbers with few bits, so that sums of a few products are exact.
fn number(i: usize) -> f64 {
    (i * 7919 % 17) as f64 - 8.0
}

/// Compares the products of all numbers of rows and columns with exact sums. The elements around a product
/// stay as they are.
fn products_are_exact<T: Accumulate>(of: fn(f64) -> T, exact: fn(T) -> f64) {
    for isa in isas() {
        let kernels = T::microkernels(isa);
        for (rows, cols) in
            (1..=kernels.rows).flat_map(|rows| (1..=kernels.cols).map(move |cols| (rows, cols)))
        {
            for (depth, adds) in [(1, false), (3, true), (40, false)] {
                let panel = |width: usize, first| -> Vec<T> {
                    (0..depth * width).map(|i| of(number(i + first))).collect()
                };
                let (left, right) = (panel(kernels.rows, 0), panel(kernels.cols, 5));
                let stride = cols + 3;
                let mut product = vec![of(100.0); rows * stride];
                let panels = Panels {
                    depth,
                    left: left.as_ptr(),
                    right: right.as_ptr(),
                    product: product.as_mut_ptr(),
                    stride,
                    adds,
                };
                // SAFETY: the processor has the instructions, and the product has `rows` rows.
                unsafe { kernels.multiply(panels, rows, cols) };
                for (at, &made) in product.iter().enumerate() {
                    let (row, col) = (at / stride, at % stride);
                    let term = |k: usize| number(k * kernels.rows + row) * number(k * kernels.cols + col + 5);
                    let sum: f64 = (0..depth).map(term).sum();
                    let expected = match (col < cols, adds) {
                        (false, _) => 100.0,
                        (true, false) => sum,
                        (true, true) => 100.0 + sum,
                    };
                    assert_eq!(exact(made), expected, "{isa:?} {rows}x{cols}x{depth} at {row}, {col}");
                }
            }
        }
    }
}

#[test]
fn products_of_panels_are_exact() {
    products_are_exact::<f32>(|x| x as f32, f64::from);
    products_are_exact::<f64>(|x| x, |x| x);
    products_are_exact::<Wrapping<i32>>(|x| Wrapping(x as i32), |x| f64::from(x.0));
}

#[test]
fn directions_merge_adjacent_axes() {
    let axes = [(2, 60), (3, 20), (4, 5), (1, 7), (5, 1)];
    let (direction, mut expected) = (Direction::new(axes), vec![]);
    for (a, b, c, d) in (0..2)
        .flat_map(|a| (0..3).flat_map(move |b| (0..4).flat_map(move |c| (0..5).map(move |d| (a, b, c, d)))))
    {
        expected.push(a * 60 + b * 20 + c * 5 + d);
    }
    assert_eq!((0..direction.len()).map(|at| direction.offset(at)).collect::<Vec<_>>(), expected);
    assert_eq!(direction.axes(), 1);
    assert_eq!(Direction::new([(2, 30), (3, 5), (5, 1)]).axes(), 2);
    assert_eq!(Direction::new([]).len(), 1);
}

/// Packs every range of lanes and depths of operands in several layouts, and compares each element.
#[test]
fn panels_have_the_operand_s_elements() {
    type Axes = &'static [(usize, usize)];
    let layouts: [(Axes, Axes); 5] = [
        (&[(9, 20)], &[(20, 1)]),
        (&[(9, 1)], &[(20, 9)]),
        (&[(3, 40), (3, 2)], &[(4, 6), (5, 1)]),
        (&[(9, 0)], &[(20, 3)]),
        (&[(3, 60), (3, 1)], &[(20, 3)]),
    ];
    let memory: Vec<f32> = (0..400).map(|i| i as f32).collect();
    let narrow: Vec<bf16> = (0..400).map(|i| bf16::from_f32((i % 256) as f32)).collect();
    for (lanes, depth) in layouts {
        let direction = |axes: &[(usize, usize)]| Direction::new(axes.iter().copied());
        let operand = |from: *const u8, dtype| {
            let pack = f32::packer(dtype).expect("a dtype of products");
            Operand::new(from, pack, direction(lanes), direction(depth))
        };
        let wide = operand(memory.as_ptr().cast(), DType::F32);
        let halves = operand(narrow.as_ptr().cast(), DType::BF16);
        for (first, count, from, to, width) in
            [(0, 9, 0, 20, 16), (2, 4, 3, 19, 4), (8, 1, 19, 20, 6), (3, 6, 0, 17, 6)]
        {
            let mut panels = [vec![-1.0_f32; (to - from) * width], vec![-1.0_f32; (to - from) * width]];
            for (operand, panel) in [&wide, &halves].into_iter().zip(&mut panels) {
                // SAFETY: the memory has all elements of the layouts, and the panel has room.
                unsafe { operand.pack(7, (first, count), (from, to), (panel.as_mut_ptr(), width)) };
            }
            for (i, (&wide, &half)) in panels[0].iter().zip(&panels[1]).enumerate() {
                let (step, lane) = (from + i / width, i % width);
                let at =
                    7 + direction(lanes).offset(first + lane.min(count - 1)) + direction(depth).offset(step);
                let expected = if lane < count { at as f32 } else { 0.0 };
                assert_eq!(wide, expected, "{lanes:?} {depth:?} {first} {step} {lane}");
                assert_eq!(half, if lane < count { (at % 256) as f32 } else { 0.0 });
            }
        }
    }
}

/// Elements past 32-bit offsets, by the start, by lanes, by the depth and by the outer of two axes.
///
/// The memory is of pages that the system provides when they are written, so the test takes a few.
#[test]
#[cfg(target_pointer_width = "64")]
fn panels_reach_past_2_31_elements() {
    const FAR: usize = 1 << 31;
    type Axes = &'static [(usize, usize)];
    /// Axes of lanes and of the depth, the start, the lanes with their count, and the range of the depth.
    type Case = (Axes, Axes, usize, (usize, usize), (usize, usize));
    let mut memory = vec![0_u16; FAR + 64];
    for (i, element) in memory[FAR..].iter_mut().enumerate() {
        *element = bf16::from_f32(i as f32).to_bits();
    }
    let cases: [Case; 4] = [
        (&[(3, 20)], &[(20, 1)], FAR, (0, 3), (0, 20)),
        (&[(3, FAR / 2)], &[(20, 1)], 0, (2, 1), (0, 20)),
        (&[(9, 1)], &[(3, FAR / 2)], 0, (0, 9), (2, 3)),
        (&[(2, FAR), (3, 4)], &[(4, 1)], 0, (3, 3), (0, 4)),
    ];
    for (lanes, depth, start, (first, count), (from, to)) in cases {
        let direction = |axes: &[(usize, usize)]| Direction::new(axes.iter().copied());
        let pack = f32::packer(DType::BF16).expect("a dtype of products");
        let operand = Operand::new(memory.as_ptr().cast(), pack, direction(lanes), direction(depth));
        let width = 12;
        let mut panel = vec![-1.0_f32; (to - from) * width];
        // SAFETY: the memory has all elements of the layouts, and the panel has room.
        unsafe { operand.pack(start, (first, count), (from, to), (panel.as_mut_ptr(), width)) };
        for (i, &made) in panel.iter().enumerate() {
            let (step, lane) = (from + i / width, i % width);
            let at =
                start + direction(lanes).offset(first + lane.min(count - 1)) + direction(depth).offset(step);
            let expected = if lane < count { (at - FAR) as f32 } else { 0.0 };
            assert_eq!(made, expected, "{lanes:?} {depth:?} {step} {lane}");
        }
    }
}
