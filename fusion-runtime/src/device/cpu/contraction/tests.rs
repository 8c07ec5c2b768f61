//! Microkernels and packing against plain loops.

use std::num::Wrapping;

use fusion_compiler::ir::dtype::DType;
use half::bf16;

use super::microkernel::{Accumulate, LaneRun, Panel, Panels};
use super::pack::{Direction, Operand};
use super::planes::Planes;
use super::windows::{WindowAxes, WindowAxis, WindowBounds, Windows};
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
            let depths = [(1, false), (3, true), (40, false)].into_iter();
            for ((depth, adds), is_packed) in depths.flat_map(|of| [(of, true), (of, false)]) {
                let panel = |width: usize, first| -> Vec<T> {
                    (0..depth * width).map(|i| of(number(i + first))).collect()
                };
                let apart = depth + 2;
                let unpacked = (0..rows * apart).map(|i| of(number(i % apart * kernels.rows + i / apart)));
                let (left, right) = match is_packed {
                    true => (panel(kernels.rows, 0), panel(kernels.cols, 5)),
                    false => (unpacked.collect(), panel(kernels.cols, 5)),
                };
                let stride = cols + 3;
                let mut product = vec![of(100.0); rows * stride];
                let panels = Panels {
                    depth,
                    left: Panel { first: left.as_ptr(), steps: None, apart: (!is_packed).then_some(apart) },
                    right: Panel { first: right.as_ptr(), steps: None, apart: None },
                    product: product.as_mut_ptr(),
                    stride,
                    adds,
                };
                let lanes = |len| [LaneRun { lane: 0, at: 0, len }];
                // SAFETY: the processor has the instructions, and the product has `rows` rows.
                unsafe { kernels.multiply(panels, &lanes(rows), &lanes(cols)) };
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

/// Multiplies panels of which some lanes are no rows or columns of the product, and whose steps lie in any order.
#[test]
fn lanes_between_those_of_a_product_are_left_out() {
    for isa in isas() {
        let (kernels, depth) = (f32::microkernels(isa), 5);
        let panel = |width: usize, first| -> Vec<f32> {
            (0..depth * width).map(|i| number(i + first) as f32).collect()
        };
        let (left, right) = (panel(kernels.rows, 0), panel(kernels.cols, 5));
        let order = [3, 0, 4, 2, 1];
        let steps = [kernels.rows, kernels.cols].map(|width| order.map(|step| (step * width) as u32));
        let run = |(lane, at, len)| LaneRun { lane, at, len };
        let rows = [(0, 0, 1), (2, 1, kernels.rows - 2)].map(run);
        let cols = [(1, 0, 3), (kernels.cols - 2, 3, 2)].map(run);
        let (count, stride) = (kernels.rows - 1, 6);
        for adds in [false, true] {
            let mut product = vec![100.0_f32; count * stride];
            let panels = Panels {
                depth,
                left: Panel { first: left.as_ptr(), steps: Some(steps[0].as_ptr()), apart: None },
                right: Panel { first: right.as_ptr(), steps: Some(steps[1].as_ptr()), apart: None },
                product: product.as_mut_ptr(),
                stride,
                adds,
            };
            // SAFETY: the processor has the instructions, and the product has the rows and columns.
            unsafe { kernels.multiply(panels, &rows, &cols) };
            for (at, &made) in product.iter().enumerate() {
                let lane = |runs: &[LaneRun], at: usize| {
                    let run = runs.iter().find(|run| (run.at..run.at + run.len).contains(&at))?;
                    Some(run.lane + at - run.at)
                };
                let sum = lane(&rows, at / stride).zip(lane(&cols, at % stride)).map(|(row, col)| {
                    let term = |k: usize| left[k * kernels.rows + row] * right[k * kernels.cols + col];
                    order.into_iter().map(term).sum::<f32>()
                });
                let expected = sum.map_or(100.0, |sum| if adds { 100.0 + sum } else { sum });
                assert_eq!(made, expected, "{isa:?} at {at}");
            }
        }
    }
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

/// Numbers of a linear congruential generator.
struct Random(u64);

impl Random {
    /// Returns a number less than `end`.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// Windows along some dims of a random tensor, and the extents of the tensor.
struct RandomWindows {
    extents: Vec<usize>,
    bounds: Vec<WindowBounds>,
    axes: WindowAxes,
}

impl RandomWindows {
    /// Makes windows with any strides, dilations and padding. Each dim of a window has one or two axes of lanes and of
    /// the depth, in any order, among axes of other dims.
    fn new(random: &mut Random) -> RandomWindows {
        let dims = 1 + random.below(3);
        let extents: Vec<usize> = (0..dims + 2).map(|_| 1 + random.below(7)).collect();
        let distance = |dim: usize| extents[dim + 1..].iter().product::<usize>();
        let mut axes = WindowAxes { batch: vec![], lanes: vec![], depth: vec![] };
        let mut bounds = Vec::new();
        for dim in 0..dims {
            let start = random.below(4) as isize - 3;
            bounds.push(WindowBounds { extent: extents[dim] as isize, start });
            for lanes in [true, false] {
                for _ in 0..1 + random.below(2) {
                    let by = random.below(4);
                    let mut at = [0; 3];
                    at[dim] = by;
                    let mut offset = by * distance(dim);
                    // Some axes move along two dims.
                    let other = random.below(4 * dims);
                    if other < dims && other != dim {
                        at[other] = 1;
                        offset += distance(other);
                    }
                    // Some also move along a dim without bounds.
                    if random.below(8) == 0 {
                        offset += distance(dims);
                    }
                    let axis = WindowAxis { extent: 1 + random.below(4), offset, at };
                    let axes = if lanes { &mut axes.lanes } else { &mut axes.depth };
                    axes.insert(random.below(axes.len() + 1), axis);
                }
            }
        }
        for (dim, &extent) in extents.iter().enumerate().skip(dims) {
            let axis = WindowAxis { extent, offset: distance(dim), at: [0; 3] };
            let axes = [&mut axes.batch, &mut axes.lanes, &mut axes.depth].into_iter().nth(random.below(3));
            if let Some(axes) = axes {
                axes.insert(random.below(axes.len() + 1), axis);
            }
        }
        RandomWindows { extents, bounds, axes }
    }

    fn windows(&self) -> Windows {
        let distance = |dim: usize| self.extents[dim + 1..].iter().product::<usize>() as isize;
        let start = self.bounds.iter().enumerate().map(|(dim, bounds)| bounds.start * distance(dim)).sum();
        let bounds = self.bounds.iter().copied().collect();
        Windows::new(start, bounds, self.axes.clone()).expect("few bounds")
    }

    /// Returns the element at a coordinate of each kind of axes: its position in the tensor plus 1, or 0 for padding.
    fn element(&self, numbers: [usize; 3]) -> f32 {
        let mut position: isize = 0;
        let mut at: Vec<isize> = self.bounds.iter().map(|bounds| bounds.start).collect();
        for (dim, start) in at.iter().enumerate() {
            position += start * self.extents[dim + 1..].iter().product::<usize>() as isize;
        }
        for (axes, mut number) in
            [&self.axes.batch, &self.axes.lanes, &self.axes.depth].into_iter().zip(numbers)
        {
            for axis in axes.iter().rev() {
                let own = number % axis.extent;
                number /= axis.extent;
                position += (own * axis.offset) as isize;
                at.iter_mut().zip(axis.at).for_each(|(at, by)| *at += (own * by) as isize);
            }
        }
        let is_inside = at.iter().zip(&self.bounds).all(|(at, bounds)| (0..bounds.extent).contains(at));
        if is_inside { (position + 1) as f32 } else { 0.0 }
    }
}

/// Packs ranges of lanes of random windows, and compares each element of each step.
#[test]
fn panels_and_planes_have_the_elements_of_windows() {
    let mut random = Random(7);
    let mut in_planes = 0;
    for case in 0..2000 {
        let of = RandomWindows::new(&mut random);
        let count = |axes: &[WindowAxis]| axes.iter().map(|axis| axis.extent).product::<usize>();
        let [batches, lanes, depth] =
            [&of.axes.batch, &of.axes.lanes, &of.axes.depth].map(|axes| count(axes));
        // Axes along dims without bounds may pass the end.
        let elements = of.extents.iter().product::<usize>() + 1000;
        let memory: Vec<f32> = (0..elements).map(|i| (i + 1) as f32).collect();
        let windows = of.windows();
        let pack = f32::packer(DType::F32).expect("a dtype of products");
        let none = || Direction::new([]);
        let operand = Operand::new(memory.as_ptr().cast(), pack, none(), none());
        let batch = random.below(batches);
        let from = random.below(lanes);
        let to = from + 1 + random.below(lanes - from);
        // A panel of all lanes, and two more, at some steps.
        let (first, width) = (random.below(depth), to - from + 2);
        let mut panel = vec![-1.0_f32; width * (depth - first)];
        let ranges = (batch, (from, to - from), (first, depth));
        // SAFETY: the memory has all elements, and the panel has room.
        unsafe { windows.pack(&operand, ranges, (panel.as_mut_ptr(), width)) };
        for (i, &element) in panel.iter().enumerate() {
            let (step, lane) = (first + i / width, from + i % width);
            let expected = if lane < to { of.element([batch, lane, step]) } else { 0.0 };
            assert_eq!(element, expected, "case {case}, step {step}, lane {lane}");
        }
        let width = 1 + random.below(9);
        let Some(planes) = Planes::new(&windows, width) else { continue };
        in_planes += 1;
        let layout = planes.layout((from, to), width);
        let mut packed = vec![-1.0_f32; layout.len];
        for plane in 0..planes.count() {
            // SAFETY: the memory has all elements, and `packed` has room for all planes.
            unsafe { planes.pack((&operand, &windows), (&layout, batch, plane), packed.as_mut_ptr()) };
        }
        assert_eq!(layout.steps.len(), depth);
        for (step, at) in layout.steps.iter().enumerate() {
            let mut seen = 0;
            for (number, runs) in layout.panels() {
                let panel = &packed[*at as usize + number * width..][..width];
                assert!(
                    panel.iter().all(|element| *element >= 0.0),
                    "case {case}: lanes that were not packed"
                );
                for run in runs {
                    assert_eq!(run.at, seen, "case {case}");
                    for i in 0..run.len {
                        let expected = of.element([batch, from + run.at + i, step]);
                        assert_eq!(
                            panel[run.lane + i],
                            expected,
                            "case {case}, step {step}, lane {}",
                            run.at + i
                        );
                    }
                    seen += run.len;
                }
            }
            assert_eq!(seen, to - from, "case {case}");
        }
    }
    assert!(in_planes > 100, "{in_planes} cases have planes");
}

/// Elements are packed once where windows have elements in common, lanes fill panels, and planes are small.
#[test]
fn planes_are_for_windows_that_share_elements() {
    /// Extents of the input and of the windows, stride, padding of both dims, dilation and channels.
    type Case = ([usize; 2], [usize; 2], usize, [usize; 2], usize, usize);
    let cases: [(Case, bool); 9] = [
        (([56, 56], [3, 3], 1, [1, 1], 1, 64), true),
        (([7, 7], [3, 3], 1, [1, 1], 1, 512), true),
        (([224, 224], [7, 7], 2, [3, 3], 1, 3), true),
        // No two windows have an element in common.
        (([64, 64], [8, 8], 8, [0, 0], 1, 3), false),
        (([56, 56], [1, 1], 1, [0, 0], 1, 64), false),
        // Windows as wide as the input have few lanes, as gradients by weights do.
        (([2000, 300], [5, 300], 1, [0, 0], 1, 1), false),
        (([512, 1], [1, 3], 1, [0, 32_768], 32_768, 8), false),
        (([22, 22], [20, 20], 1, [0, 0], 1, 4), false),
        // Planes of so many channels are in no cache.
        (([1, 600], [1, 3], 1, [0, 0], 1, 1 << 20), false),
    ];
    for (case, expected) in cases {
        let (input, taps, stride, padding, dilation, channels) = case;
        let axis = |extent, offset, at: [usize; 2]| WindowAxis { extent, offset, at: [at[0], at[1], 0] };
        let count =
            |dim: usize| (input[dim] + 2 * padding[dim] - dilation * (taps[dim] - 1) - 1) / stride + 1;
        let axes = WindowAxes {
            batch: vec![],
            lanes: vec![axis(count(0), stride * input[1], [stride, 0]), axis(count(1), stride, [0, stride])],
            depth: vec![
                axis(channels, input[0] * input[1], [0, 0]),
                axis(taps[0], dilation * input[1], [dilation, 0]),
                axis(taps[1], dilation, [0, dilation]),
            ],
        };
        let start = padding.map(|padding| -(padding as isize));
        let bounds = [0, 1].map(|dim| WindowBounds { extent: input[dim] as isize, start: start[dim] });
        let offset = start[0] * input[1] as isize + start[1];
        let windows = Windows::new(offset, bounds.into_iter().collect(), axes).expect("few bounds");
        assert_eq!(Planes::new(&windows, 32).is_some(), expected, "{case:?}");
    }
}
