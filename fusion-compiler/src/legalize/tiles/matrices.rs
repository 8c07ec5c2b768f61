//! Products of narrow floats and of rounded `f32`, by matrices in the registers of a warp (PTX ISA, `mma.m16n8k16` and
//! `mma.m16n8k8`).
//!
//! Asynchronous copies bring panels of both factors to shared memory, some steps of the depth ahead. A panel keeps
//! the direction that is contiguous in the tensor, since a load of matrices can transpose elements of 16 bits. A thread
//! loads elements of 32 bits one by one if their lines lie across the depth.
//!
//! A thread has two columns next to each other in every eighth row and column of its warp's tile.

use super::panels::{Copy, Panel};
use super::{Along, Elements, Shape, Tiles, divided, plus, times};
use crate::ir::dtype::DType;
use crate::ir::kernel::{ASYNC_COPY_BYTES, Address, Builder, Expr, Lanes, SharedId, Stmt, Type, Value, WARP};
use crate::ir::op::Op;
use crate::target::PANEL_PADDING;

/// Number of rows of a left matrix, and of columns of two right matrices.
const MATRIX: u16 = 16;

/// Bytes of the steps of the depth in a product.
const STEP_BYTES: u16 = 32;

/// Returns the number of elements in so many bytes.
fn elements(dtype: DType, bytes: u16) -> u16 {
    bytes / dtype.size() as u16
}

/// The part of a tile that a warp computes.
#[derive(Clone, Copy)]
pub(super) struct WarpTile {
    rows: u16,
    cols: u16,
    /// Number of warps in a row of the whole tile.
    across: u16,
}

impl WarpTile {
    /// Shares a tile between the warps of a team, two of them above each other.
    pub(super) fn new((rows, cols): (u16, u16), threads: u32) -> WarpTile {
        let across = (threads / WARP / 2) as u16;
        WarpTile { rows: rows / 2, cols: cols / across, across }
    }

    /// Returns the elements of a thread.
    pub(super) fn shape(self) -> Shape {
        let rows = self.rows;
        Shape { run: 1, runs: rows / 8, row_step: 8, width: 2, across: 4, parts: self.across }
    }

    /// Returns the first row and column of a thread's warp.
    fn start(self, b: &mut Builder<'_>, thread: Value) -> (Value, Value) {
        let (warp, _) = divided(b, thread, WARP as u16);
        let (row, col) = divided(b, warp, self.across);
        (times(b, row, self.rows), times(b, col, self.cols))
    }

    /// Returns the row and the column of a thread's first element.
    pub(super) fn first_element(self, b: &mut Builder<'_>, thread: Value) -> (Value, Value) {
        let (row, col) = self.start(b, thread);
        let (_, lane) = divided(b, thread, WARP as u16);
        let (ahead, pair) = divided(b, lane, 4);
        let pair = times(b, pair, 2);
        (b.apply(Op::Add, &[row, ahead]), b.apply(Op::Add, &[col, pair]))
    }
}

impl Tiles<'_> {
    /// Prepares the panel of a factor, which starts at the element `start` of each stage and is read from `from` where
    /// the mask is true. Returns the panel and the number of its elements.
    pub(super) fn panel_of_matrices(
        &mut self,
        (factor, is_left): (Value, bool),
        (from, mask): (Address, Value),
        (memory, start): (SharedId, u16),
        warp: WarpTile,
        out: &mut Vec<Stmt>,
    ) -> (Panel, u16) {
        let along = self.contiguous(factor).unwrap_or_else(|| unreachable!("matrices have contiguous lines"));
        let Type { dtype, lanes: Lanes::Tile(rows, cols) } = self.types[factor.0 as usize] else {
            unreachable!("a factor is a tile")
        };
        let (lines, len) = if along == Along::Cols { (rows, cols) } else { (cols, rows) };
        let along_depth = (along == Along::Cols) == is_left;
        let copied_len = elements(dtype, ASYNC_COPY_BYTES as u16);
        // In both cases the elements that a warp reads at once lie in different banks.
        let stride = len + if along_depth { copied_len } else { PANEL_PADDING };
        let (thread, threads) = (self.thread, self.threads as u16);
        let mut b = self.builder(out);
        let each = len / copied_len;
        let (line, number) = copied_by(&mut b, thread, each);
        let place = times(&mut b, number, copied_len);
        let mut elements = Vec::new();
        for copied in (0..lines * each).step_by(threads.into()) {
            let line = plus(&mut b, line, copied / each);
            let (row, col) = if along == Along::Rows { (place, line) } else { (line, place) };
            let at = times(&mut b, line, stride);
            let at = b.apply(Op::Add, &[at, place]);
            elements.push((Elements { row, col, along: Some(along) }, plus(&mut b, at, start)));
        }
        let origin = matrix_row(&mut b, (thread, warp), (stride, start, dtype), is_left, along_depth);
        let copy = Copy { memory, stride, apart: 1, elements };
        (Panel { from, mask, copy, along_depth, origin }, lines * stride)
    }

    /// Adds the product of the panels at hand to a sum.
    pub(super) fn matrix_product(&mut self, value: Value, sum: Value, warp: WarpTile, out: &mut Vec<Stmt>) {
        let Some(pipeline) = self.pipeline.clone() else { unreachable!("copies bring the panels") };
        let dtype = self.shared[usize::from(pipeline.memory.0)].dtype;
        let held = self.held.clone();
        let vectors = self.elements_in(&held.rows, sum);
        let pairs: Vec<Value> = vectors.iter().map(|&vector| self.vector(sum, vector, out)).collect();
        let (cols, across) = (held.cols.len(), usize::from(warp.cols / MATRIX));
        let mut b = self.builder(out);
        // The two rows of a thread in a matrix are neighbours in the list of its rows.
        let of_matrix = |i: usize, col: usize| [2 * i * cols + col, (2 * i + 1) * cols + col];
        let mut sums = Vec::new();
        for i in 0..held.rows.len() / 2 {
            for col in 0..cols {
                let lanes = of_matrix(i, col).map(|at| [0, 1].map(|lane| lane_of(&mut b, pairs[at], lane)));
                sums.push(packed(&mut b, &lanes.concat()));
            }
        }
        let panels = pipeline.panels.each_ref().map(|panel| {
            (b.apply(Op::Add, &[panel.origin, pipeline.stage]), panel.copy.stride, panel.along_depth)
        });
        let step_len = elements(dtype, STEP_BYTES);
        for step in (0..pipeline.depth).step_by(step_len.into()) {
            let load = |b: &mut Builder<'_>, side: usize, number: usize| {
                let (row, stride, along_depth) = panels[side];
                let other = number as u16 * MATRIX;
                let ahead = if along_depth { other * stride + step } else { step * stride + other };
                let layout = if along_depth {
                    Layout::AlongDepth
                } else {
                    Layout::Across { stride, is_left: side == 0 }
                };
                load_matrices(b, (pipeline.memory, dtype), (row, ahead), layout)
            };
            let lefts: Vec<Value> = (0..held.rows.len() / 2).map(|i| load(&mut b, 0, i)).collect();
            for j in 0..across {
                let both = load(&mut b, 1, j);
                for half in 0..2 {
                    let lanes = [2 * half, 2 * half + 1].map(|lane| lane_of(&mut b, both, lane as u8));
                    let right = packed(&mut b, &lanes);
                    for (i, &left) in lefts.iter().enumerate() {
                        let sum = &mut sums[i * cols + 2 * j + half];
                        let ty = b.ty(*sum);
                        *sum = b.bind(ty, Expr::MatrixProduct(dtype, *sum, left, right));
                    }
                }
            }
        }
        let mut made = vec![value; vectors.len()];
        for i in 0..held.rows.len() / 2 {
            for col in 0..cols {
                let lanes = [0, 1, 2, 3].map(|lane| lane_of(&mut b, sums[i * cols + col], lane));
                for (at, lanes) in of_matrix(i, col).into_iter().zip(lanes.chunks(2)) {
                    made[at] = packed(&mut b, lanes);
                }
            }
        }
        for (vector, made) in vectors.into_iter().zip(made) {
            self.known.insert(self.key(value, vector), made);
        }
    }
}

/// Returns the line and the number of the first copy of a thread, for lines of `each` copies.
///
/// A warp copies whole lines. Eight threads next to each other, whose copies are stored at once, copy 128 bytes of a
/// line, or parts of eight lines, which lie in different banks.
fn copied_by(b: &mut Builder<'_>, thread: Value, each: u16) -> (Value, Value) {
    let lines = WARP as u16 / each;
    if u32::from(each) * ASYNC_COPY_BYTES as u32 >= 128 {
        return divided(b, thread, each);
    }
    let (warp, lane) = divided(b, thread, WARP as u16);
    let (number, line) = divided(b, lane, lines);
    let before = times(b, warp, lines);
    (b.apply(Op::Add, &[line, before]), number)
}

/// The direction of a panel's lines.
#[derive(Clone, Copy)]
enum Layout {
    AlongDepth,
    /// Lines lie along rows or columns, so many elements apart.
    Across {
        stride: u16,
        is_left: bool,
    },
}

/// Loads four matrices, `ahead` elements after the row of the first ones.
fn load_matrices(
    b: &mut Builder<'_>,
    (memory, dtype): (SharedId, DType),
    (row, ahead): (Value, u16),
    layout: Layout,
) -> Value {
    let of = |dtype| Type { dtype, lanes: Lanes::Const(4) };
    let at = plus(b, row, ahead);
    if dtype != DType::F32 {
        let is_across = matches!(layout, Layout::Across { .. });
        return b.bind(of(DType::U32), Expr::LoadMatrices(memory, at, is_across));
    }
    let floats = match layout {
        Layout::AlongDepth => {
            let words = b.bind(of(DType::U32), Expr::LoadMatrices(memory, at, false));
            b.bitcast(words, dtype)
        }
        Layout::Across { stride, is_left } => {
            let (other, later) = (MATRIX / 2, elements(dtype, STEP_BYTES / 2) * stride);
            let order = if is_left { [other, later] } else { [later, other] };
            let all = [0, order[0], order[1], other + later].map(|more| {
                let at = plus(b, at, more);
                b.bind(Type { lanes: Lanes::ONE, ..of(dtype) }, Expr::LoadShared(memory, at))
            });
            packed(b, &all)
        }
    };
    b.apply(Op::ToTf32, &[floats])
}

/// Returns the element at which a thread's part of the first matrices of its warp begins.
///
/// The thread gives it to a load of matrices, or loads elements from there on itself.
///
/// The four matrices of a load are quarters of 16 × 16 elements. A product takes these of a left operand with the
/// rows first, and these of a right operand with the depth first.
fn matrix_row(
    b: &mut Builder<'_>,
    (thread, warp): (Value, WarpTile),
    (stride, start, dtype): (u16, u16, DType),
    is_left: bool,
    along_depth: bool,
) -> Value {
    let (row, col) = warp.start(b, thread);
    let own = if is_left { row } else { col };
    let (_, lane) = divided(b, thread, WARP as u16);
    if dtype == DType::F32 && !along_depth {
        let (number, step) = divided(b, lane, 4);
        let (line, number) = (times(b, step, stride), b.apply(Op::Add, &[number, own]));
        let at = b.apply(Op::Add, &[line, number]);
        return plus(b, at, start);
    }
    let (half, of_half) = divided(b, lane, MATRIX);
    let of_depth = if along_depth { elements(dtype, STEP_BYTES / 2) } else { MATRIX / 2 };
    let (quarter, of_quarter) = divided(b, of_half, MATRIX / 2);
    let (line, ahead) = if is_left == along_depth {
        (of_half, times(b, half, of_depth))
    } else {
        let more = times(b, half, MATRIX / 2);
        (b.apply(Op::Add, &[of_quarter, more]), times(b, quarter, of_depth))
    };
    let (line, ahead) = if along_depth {
        (b.apply(Op::Add, &[line, own]), ahead)
    } else {
        (line, b.apply(Op::Add, &[ahead, own]))
    };
    let line = times(b, line, stride);
    let at = b.apply(Op::Add, &[line, ahead]);
    plus(b, at, start)
}

fn lane_of(b: &mut Builder<'_>, value: Value, lane: u8) -> Value {
    let ty = Type { lanes: Lanes::ONE, ..b.ty(value) };
    b.bind(ty, Expr::Lane(value, lane))
}

pub(super) fn packed(b: &mut Builder<'_>, lanes: &[Value]) -> Value {
    let ty = Type { lanes: Lanes::Const(lanes.len() as u8), ..b.ty(lanes[0]) };
    b.bind(ty, Expr::Pack(lanes.iter().copied().collect()))
}
