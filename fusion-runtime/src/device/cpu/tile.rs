//! The tile interpreter: runs Kernel IR made at run time. Values that are equal for all lanes are computed
//! once, vector loops operation by operation over tiles.
//!
//! Invariant: every operation follows the op table and rounds to its type. Generated Rust computes the same
//! bits. Memory is accessed through the same checked windows as in generated code.

use fusion_compiler::ir::dtype::{Const, DType};
use fusion_compiler::ir::graph::Access;
use fusion_compiler::ir::kernel::{
    Address, Buffer, Builtin, Expr, FOLD_LANES, FOLD_LANES_WIDE, Fold, Kernel, Lanes, Shared, Stmt, Uniform,
    Value, fold_rounds,
};
use fusion_compiler::ir::op::Op;
use fusion_compiler::ops::scalar::Scalar;
use fusion_compiler::target::tuning_table::runtime;

use super::column::{Column, apply};
use crate::kernel::CpuArgs;
use crate::lanes::Total;
use crate::window::{Window, Word};

/// Runs the items of `args`. The kernel is legal for `Dialect::Cpu`.
pub(super) fn run(kernel: &Kernel, args: &mut CpuArgs<'_>) {
    let memory =
        kernel.buffers.iter().enumerate().map(|(i, buffer)| TypedBuffer::new(args, i, buffer)).collect();
    let uniforms = kernel.uniforms.iter().enumerate().map(|(i, one)| uniform(args, i, one)).collect();
    let columns = kernel.types.iter().map(|ty| Column::new(ty.dtype)).collect();
    let tile = (runtime::TILE_BYTES / (4 * kernel.types.len().max(1)))
        .clamp(runtime::TILE_LANES_MIN, runtime::TILE_LANES_MAX);
    let tile = tile / FOLD_LANES[0] * FOLD_LANES[0];
    let rows = rows(kernel, args);
    Interpreter {
        kernel,
        range: args.range(),
        grain: args.grain(),
        block: args.block(),
        memory,
        uniforms,
        columns,
        rows,
        tile,
    }
    .block(&kernel.body);
}

/// Returns memory for each staged value of a row.
fn rows(kernel: &Kernel, args: &mut CpuArgs<'_>) -> Vec<Column> {
    let [memory] = args.row_memory();
    let row = |shared: &Shared| {
        let mut row = Column::new(shared.dtype);
        row.extend(zero(shared.dtype), memory.len() / kernel.shared.len());
        row
    };
    kernel.shared.iter().map(row).collect()
}

/// A buffer of a launch, as `CpuArgs` provides it.
enum TypedBuffer<'m> {
    F32(Slice<'m, f32>),
    F64(Slice<'m, f64>),
    I32(Slice<'m, i32>),
    U32(Slice<'m, u32>),
    /// Words of two bytes, as bits.
    U16(Slice<'m, u16>),
    /// Words of one byte, as bits.
    U8(Slice<'m, u8>),
}

/// The whole of a buffer that is read, or the window of a buffer that is written.
enum Slice<'m, T> {
    Read(&'m [T]),
    Write(Window<'m, T>),
}

impl<'m> TypedBuffer<'m> {
    fn new(args: &mut CpuArgs<'m>, i: usize, buffer: &Buffer) -> TypedBuffer<'m> {
        match buffer.dtype {
            DType::F32 => TypedBuffer::F32(Slice::new(args, i, buffer.access)),
            DType::F64 => TypedBuffer::F64(Slice::new(args, i, buffer.access)),
            DType::I32 => TypedBuffer::I32(Slice::new(args, i, buffer.access)),
            DType::U32 => TypedBuffer::U32(Slice::new(args, i, buffer.access)),
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => {
                TypedBuffer::U16(Slice::new(args, i, buffer.access))
            }
            DType::I8 | DType::U8 | DType::Bool => TypedBuffer::U8(Slice::new(args, i, buffer.access)),
            DType::Index => {
                unreachable!("no tensor has elements of {}", buffer.dtype)
            }
        }
    }

    fn load(&mut self, first: usize, stride: usize, count: usize, out: &mut Column) {
        match (self, out) {
            (TypedBuffer::F32(slice), Column::F32(out)) if stride == 1 => {
                out.extend_from_slice(slice.contiguous(first, count));
            }
            (TypedBuffer::F32(slice), Column::F32(out)) => out.extend(slice.run(first, stride, count)),
            (TypedBuffer::F64(slice), Column::F64(out)) => out.extend(slice.run(first, stride, count)),
            (TypedBuffer::I32(slice), Column::Int(_, out)) => {
                out.extend(slice.run(first, stride, count).map(i64::from));
            }
            (TypedBuffer::U32(slice), Column::Int(_, out)) => {
                out.extend(slice.run(first, stride, count).map(i64::from));
            }
            (TypedBuffer::U16(slice), Column::Int(_, out)) => {
                out.extend(slice.run(first, stride, count).map(i64::from));
            }
            (TypedBuffer::U8(slice), Column::Int(_, out)) => {
                out.extend(slice.run(first, stride, count).map(i64::from));
            }
            (_, out) => unreachable!("a load gives what the buffer holds, not {}", out.dtype()),
        }
    }

    fn store(&mut self, first: usize, stride: usize, column: &Column) {
        match (self, column) {
            (TypedBuffer::F32(slice), Column::F32(lanes)) => {
                slice.store(first, stride, lanes.iter().copied())
            }
            (TypedBuffer::F64(slice), Column::F64(lanes)) => {
                slice.store(first, stride, lanes.iter().copied())
            }
            (TypedBuffer::I32(slice), Column::Int(_, lanes)) => {
                slice.store(first, stride, lanes.iter().map(|&x| x as i32));
            }
            (TypedBuffer::U32(slice), Column::Int(_, lanes)) => {
                slice.store(first, stride, lanes.iter().map(|&x| x as u32));
            }
            (TypedBuffer::U16(slice), Column::Int(_, lanes)) => {
                slice.store(first, stride, lanes.iter().map(|&x| x as u16));
            }
            (TypedBuffer::U8(slice), Column::Int(_, lanes)) => {
                slice.store(first, stride, lanes.iter().map(|&x| x as u8));
            }
            (_, column) => unreachable!("a store takes what the buffer holds, not {}", column.dtype()),
        }
    }
}

impl<'m, T: Word> Slice<'m, T> {
    fn new(args: &mut CpuArgs<'m>, i: usize, access: Access) -> Slice<'m, T> {
        match access {
            Access::Read => Slice::Read(args.read(i)),
            Access::Write | Access::ReadWrite => Slice::Write(args.write(i)),
        }
    }

    fn run(&mut self, first: usize, stride: usize, count: usize) -> impl Iterator<Item = T> {
        self.contiguous(first, (count - 1) * stride + 1).iter().step_by(stride).copied()
    }

    fn contiguous(&mut self, first: usize, len: usize) -> &[T] {
        match self {
            Slice::Read(all) => &all[first..][..len],
            Slice::Write(window) => window.run(first, len),
        }
    }

    fn store(&mut self, first: usize, stride: usize, lanes: impl ExactSizeIterator<Item = T>) {
        let Slice::Write(window) = self else { unreachable!("what is stored to is written") };
        let run = window.run(first, (lanes.len() - 1) * stride + 1);
        if stride == 1 {
            return run.iter_mut().zip(lanes).for_each(|(to, x)| *to = x);
        }
        run.iter_mut().step_by(stride).zip(lanes).for_each(|(to, x)| *to = x);
    }
}

/// Partial results of a fold, by component.
type Partials = Vec<Column>;

/// State of a fold after some of the lanes.
struct Folded {
    /// Partial results of the groups of the current length.
    parts: Partials,
    /// Result of the groups of all earlier lengths and strips.
    result: Done,
}

/// Result of the finished groups of a fold.
enum Done {
    Partials(Partials),
    /// A sum of `f32`.
    Wide(f64),
    /// A sum of `f64`.
    Compensated(Total),
}

struct Interpreter<'k, 'm> {
    kernel: &'k Kernel,
    range: (usize, usize),
    grain: usize,
    block: (usize, usize),
    memory: Vec<TypedBuffer<'m>>,
    uniforms: Vec<Scalar>,
    /// Lanes of each value. A value that is equal for all lanes has one element.
    columns: Vec<Column>,
    /// Staged values of the elements of a row.
    rows: Vec<Column>,
    /// Maximum number of lanes of a tile.
    tile: usize,
}

/// The lanes of one step of a statement: `first..first + count` of its vector loop.
#[derive(Clone, Copy)]
struct LaneRange {
    first: usize,
    count: usize,
}

/// The single lane of statements outside of vector loops.
const ONE: LaneRange = LaneRange { first: 0, count: 1 };

impl Interpreter<'_, '_> {
    fn block(&mut self, body: &[Stmt]) {
        body.iter().for_each(|stmt| self.stmt(stmt));
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Let(..) | Stmt::Store(..) => self.simple(stmt, ONE),
            Stmt::Loop { var, start, end, step, carried, body, .. } => {
                let (start, end, step) = (self.index(*start), self.index(*end), self.index(*step));
                carried.iter().for_each(|one| self.copy(one.start, one.out));
                for i in (start..end).step_by(step) {
                    self.set(*var, position(i));
                    carried.iter().for_each(|one| self.copy(one.out, one.var));
                    self.block(body);
                    carried.iter().for_each(|one| self.copy(one.next, one.out));
                }
            }
            Stmt::Vector { len, body, folds } => self.vector(*len, body, folds),
            Stmt::StoreShared(..) => self.simple(stmt, ONE),
            Stmt::AllReduce(_) | Stmt::AsyncCopy(_) | Stmt::ClusterExchange(_) | Stmt::Barrier(_) => {
                unreachable!("the CPU has no teams")
            }
            Stmt::If { cond, body } => {
                if matches!(self.columns[cond.0 as usize].get(0), Scalar::Bool(true)) {
                    self.block(body);
                }
            }
        }
    }

    fn vector(&mut self, len: Value, body: &[Stmt], folds: &[Fold]) {
        let kernel = self.kernel;
        let per_lane = |stmt: &&Stmt| stmt.is_per_lane(kernel);
        body.iter().filter(|stmt| !per_lane(stmt)).for_each(|stmt| self.simple(stmt, ONE));
        let len = self.index(len);
        folds.iter().for_each(|fold| self.widen_captured(fold));
        let mut folded: Vec<Folded> = folds.iter().map(|fold| self.folded(fold)).collect();
        let strip = fold_rounds(kernel, folds) * FOLD_LANES[0];
        // The length of a tile is a multiple of the longest group of a fold.
        for first in (0..len).step_by(self.tile) {
            let tile = LaneRange { first, count: self.tile.min(len - first) };
            body.iter().filter(per_lane).for_each(|stmt| self.simple(stmt, tile));
            for (fold, folded) in folds.iter().zip(&mut folded) {
                self.fold(fold, folded, tile, (len, strip));
            }
        }
        for (fold, Folded { result, .. }) in folds.iter().zip(folded) {
            match result {
                Done::Partials(parts) => {
                    fold.out.iter().zip(&parts).for_each(|(value, part)| self.set(*value, part.get(0)));
                }
                Done::Wide(sum) => self.set(fold.out[0], Scalar::F32(sum as f32)),
                Done::Compensated(total) => self.set(fold.out[0], Scalar::F64(total.sum())),
            }
        }
    }

    /// Folds the lanes of a tile, in groups as `FOLD_LANES` documents. `len` is the number of lanes of the
    /// loop, `strip` of a strip.
    fn fold(&mut self, fold: &Fold, folded: &mut Folded, tile: LaneRange, (len, strip): (usize, usize)) {
        let mut start = 0;
        while start < tile.count {
            let group_of = |left| FOLD_LANES.into_iter().find(|&lanes| lanes <= left).unwrap_or(0);
            let group = group_of(tile.count - start);
            let lanes = start..start + group;
            let right = fold.over.iter().map(|value| self.columns[value.0 as usize].slice(lanes.clone()));
            if folded.parts.is_empty() {
                folded.parts = self.identities(fold, group);
            }
            let right: Partials = right.collect();
            match fold.times {
                None => self.combine(fold, &mut folded.parts, right),
                Some(times) => {
                    let (by, part) = (self.columns[times.0 as usize].slice(lanes), &mut folded.parts[0]);
                    let mut sums = Column::new(part.dtype());
                    apply(Op::Fma, [&right[0], &by, &part.slice(0..group)], group, &mut sums);
                    part.replace(0, &sums);
                }
            }
            start += group;
            let done = tile.first + start;
            if group_of(len - done) != group || done.is_multiple_of(strip) {
                let parts = std::mem::take(&mut folded.parts);
                match &mut folded.result {
                    Done::Partials(result) => {
                        let all = self.halved(fold, parts, 1);
                        self.combine(fold, result, all);
                    }
                    Done::Wide(sum) => *sum += wide(&self.halved(fold, parts, FOLD_LANES_WIDE)[0]),
                    Done::Compensated(total) => total.add(wide(&self.halved(fold, parts, 1)[0])),
                }
            }
        }
    }

    /// Combines the second half of partial results with the first, repeatedly, until at most `left` remain.
    fn halved(&mut self, fold: &Fold, mut parts: Partials, left: usize) -> Partials {
        let left = left.min(parts[0].len());
        let mut half = parts[0].len() / 2;
        while half >= left {
            let right = parts.iter().map(|part| part.slice(half..2 * half)).collect();
            self.combine(fold, &mut parts, right);
            half /= 2;
        }
        parts.iter().map(|part| part.slice(0..left)).collect()
    }

    /// Extends values that a fold's function captures to as many lanes as the longest group has.
    fn widen_captured(&mut self, fold: &Fold) {
        let mut known: Vec<Value> = [fold.left.as_slice(), &fold.right].concat();
        for stmt in &fold.body {
            stmt.clone().for_each_operand_mut(|operand| {
                let column = &mut self.columns[operand.0 as usize];
                if !known.contains(operand) && column.len() < FOLD_LANES[0] {
                    column.extend(column.get(0), FOLD_LANES[0] - column.len());
                }
            });
            known.extend(stmt.made());
        }
    }

    /// Returns the state of a fold before the first lane.
    fn folded(&self, fold: &Fold) -> Folded {
        let result = match fold.sums(self.kernel) {
            Some(DType::F64) => Done::Compensated(Total::default()),
            Some(_) => Done::Wide(0.0),
            None => Done::Partials(self.identities(fold, 1)),
        };
        Folded { parts: Partials::new(), result }
    }

    /// Returns partial results with the identity in every lane.
    fn identities(&self, fold: &Fold, lanes: usize) -> Partials {
        let column = |value: &Value| {
            let identity = &self.columns[value.0 as usize];
            let mut part = Column::new(identity.dtype());
            part.extend(identity.get(0), lanes);
            part
        };
        fold.identity.iter().map(column).collect()
    }

    /// Combines partial results, lane by lane, with the partial results on the right.
    fn combine(&mut self, fold: &Fold, parts: &mut Partials, right: Partials) {
        let count = right[0].len();
        for (value, part) in fold.left.iter().zip(&*parts) {
            self.columns[value.0 as usize] = part.slice(0..count);
        }
        for (value, part) in fold.right.iter().zip(right) {
            self.columns[value.0 as usize] = part;
        }
        fold.body.iter().for_each(|stmt| self.simple(stmt, LaneRange { first: 0, count }));
        for (value, part) in fold.results.iter().zip(parts) {
            part.replace(0, &self.columns[value.0 as usize]);
        }
    }

    /// Assigns a value that has one lane.
    fn set(&mut self, value: Value, to: Scalar) {
        let column = &mut self.columns[value.0 as usize];
        column.clear();
        column.push(to);
    }

    fn copy(&mut self, from: Value, to: Value) {
        let from = self.columns[from.0 as usize].get(0);
        self.set(to, from);
    }

    fn simple(&mut self, stmt: &Stmt, tile: LaneRange) {
        match stmt {
            Stmt::Let(value, expr) => {
                // The operands are other values, so this value's memory can be moved out in the meantime.
                let mut column = std::mem::take(&mut self.columns[value.0 as usize]);
                column.clear();
                match expr {
                    Expr::Load(at) => self.load(at, tile, &mut column),
                    Expr::LoadWhere(at, mask) => self.load_where(at, *mask, tile, &mut column),
                    expr => self.expr(expr, tile, &mut column),
                }
                self.columns[value.0 as usize] = column;
            }
            Stmt::Store(at, value) => self.store(at, *value, tile),
            Stmt::StoreShared(id, index, value) => {
                let first = self.index(*index) + tile.first;
                self.rows[usize::from(id.0)].replace(first, &self.columns[value.0 as usize]);
            }
            _ => unreachable!("these are not simple"),
        }
    }

    fn expr(&self, expr: &Expr, tile: LaneRange, out: &mut Column) {
        let column = |value: &Value| &self.columns[value.0 as usize];
        match expr {
            Expr::Const(constant) => out.extend(Scalar::new(out.dtype(), *constant), tile.count),
            Expr::Uniform(id) => out.push(self.uniforms[usize::from(id.0)]),
            Expr::Apply(op, args) => {
                let args: [&Column; 3] = std::array::from_fn(|i| column(&args[i.min(args.len() - 1)]));
                apply(*op, args, tile.count, out);
            }
            Expr::Cast(arg) => out.extend_cast(column(arg)),
            Expr::Bitcast(arg) => out.extend_bitcast(column(arg)),
            Expr::Splat(arg) => out.extend(column(arg).get(0), tile.count),
            Expr::Builtin(Builtin::LaneIndex) => out.extend_positions(tile.first, tile.count),
            Expr::Load(_) | Expr::LoadWhere(..) => unreachable!("memory is not read here"),
            Expr::LoadShared(id, index) => {
                let first = self.index(*index) + tile.first;
                *out = self.rows[usize::from(id.0)].slice(first..first + tile.count);
            }
            Expr::Builtin(Builtin::Grain) => out.push(position(self.grain)),
            Expr::Builtin(Builtin::BlockStart) => out.push(position(self.block.0)),
            Expr::Builtin(Builtin::BlockLen) => out.push(position(self.block.1)),
            Expr::Builtin(Builtin::RangeStart) => out.push(position(self.range.0)),
            Expr::Builtin(Builtin::RangeEnd) => out.push(position(self.range.1)),
            Expr::Pack(_)
            | Expr::Lane(..)
            | Expr::Shuffle(..)
            | Expr::Product(..)
            | Expr::LoadMatrices(..)
            | Expr::MatrixProduct(..)
            | Expr::Builtin(_) => {
                unreachable!("the CPU's vectors are loops and its grid is a range")
            }
        }
    }

    fn load(&mut self, at: &Address, tile: LaneRange, out: &mut Column) {
        let elements = lane_elements(self.kernel, &self.columns, at, tile);
        let memory = &mut self.memory[usize::from(at.buffer.0)];
        match elements {
            LaneElements::Run { first, stride } => memory.load(first, stride, tile.count, out),
            LaneElements::Gather(column) => column.indices().for_each(|i| memory.load(i, 1, 1, out)),
        }
    }

    fn load_where(&mut self, at: &Address, mask: Value, tile: LaneRange, out: &mut Column) {
        let (memory, mask) = (&mut self.memory[usize::from(at.buffer.0)], &self.columns[mask.0 as usize]);
        for lane in 0..tile.count {
            let holds = matches!(mask.get(lane.min(mask.len() - 1)), Scalar::Bool(true));
            match lane_elements(
                self.kernel,
                &self.columns,
                at,
                LaneRange { first: tile.first + lane, count: 1 },
            ) {
                LaneElements::Run { first, .. } if holds => memory.load(first, 1, 1, out),
                LaneElements::Gather(column) if holds => memory.load(column.index(lane), 1, 1, out),
                LaneElements::Run { .. } | LaneElements::Gather(_) => out.push(zero(out.dtype())),
            }
        }
    }

    fn store(&mut self, at: &Address, value: Value, tile: LaneRange) {
        let LaneElements::Run { first, stride } = lane_elements(self.kernel, &self.columns, at, tile) else {
            unreachable!("what is written is a run")
        };
        self.memory[usize::from(at.buffer.0)].store(first, stride, &self.columns[value.0 as usize]);
    }

    fn index(&self, value: Value) -> usize {
        self.columns[value.0 as usize].index(0)
    }
}

/// The elements of a buffer that an access touches.
enum LaneElements<'a> {
    Run { first: usize, stride: usize },
    Gather(&'a Column),
}

fn lane_elements<'a>(
    kernel: &Kernel,
    columns: &'a [Column],
    at: &Address,
    tile: LaneRange,
) -> LaneElements<'a> {
    let indices = &columns[at.index.0 as usize];
    match kernel.ty(at.index).lanes {
        Lanes::Loop => LaneElements::Gather(indices),
        Lanes::Const(_) | Lanes::Tile(..) => {
            let (stride, phase) = (at.stride as usize, at.phase as usize);
            // The address of an access without lanes may be out of range.
            let first = indices.index(0).wrapping_add(tile.first * stride + phase);
            LaneElements::Run { first, stride }
        }
    }
}

fn position(i: usize) -> Scalar {
    Scalar::Int(DType::Index, i as i64)
}

fn zero(dtype: DType) -> Scalar {
    Scalar::new(dtype, Const::zero(dtype))
}

fn uniform(args: &CpuArgs<'_>, i: usize, uniform: &Uniform) -> Scalar {
    match uniform.dtype {
        DType::F32 => Scalar::F32(args.f32(i)),
        DType::F64 => Scalar::F64(args.f64(i)),
        DType::I32 => Scalar::Int(DType::I32, i64::from(args.i32(i))),
        DType::U32 => Scalar::Int(DType::U32, i64::from(args.u32(i))),
        DType::Bool => Scalar::Bool(args.bool(i)),
        DType::Index => Scalar::Int(DType::Index, args.index(i) as i64),
        DType::F16 | DType::BF16 | DType::I16 | DType::U16 | DType::I8 | DType::U8 => {
            unreachable!("no uniform is {}", uniform.dtype)
        }
    }
}

#[cfg(test)]
mod tests;

/// Returns the sum of one lane, or of four, in `f64`.
fn wide(lanes: &Column) -> f64 {
    let lane = |lane: usize| match lanes.get(lane) {
        Scalar::F32(x) => f64::from(x),
        Scalar::F64(x) => x,
        Scalar::Int(..) | Scalar::Bool(_) => unreachable!("sums of floats alone are wide"),
    };
    if lanes.len() < FOLD_LANES_WIDE { lane(0) } else { (lane(0) + lane(2)) + (lane(1) + lane(3)) }
}
