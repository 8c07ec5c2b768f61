//! Columns: the lanes of one value, and the operations of the op table on them.
//!
//! Invariant: an integer stays within the range of its type, as in `Scalar`.

use std::ops::Range;

use fusion_compiler::ir::dtype::{Class, DType};
use fusion_compiler::ir::op::Op;
use fusion_compiler::ops::scalar::Scalar;

use super::column_loops;

/// The elements of a value, one per lane of a tile.
#[derive(Debug)]
pub(super) enum Column {
    /// `F32`.
    F32(Vec<f32>),
    /// `F64`.
    F64(Vec<f64>),
    /// An integer type.
    Int(DType, Vec<i64>),
    /// `Bool`.
    Bool(Vec<bool>),
}

/// An empty placeholder, which owns no memory, for a column that has been moved out.
impl Default for Column {
    fn default() -> Column {
        Column::Bool(Vec::new())
    }
}

impl Column {
    /// Makes a column without lanes.
    pub(super) fn new(dtype: DType) -> Column {
        match dtype {
            DType::F32 => Column::F32(Vec::new()),
            DType::F64 => Column::F64(Vec::new()),
            DType::I32 | DType::U32 | DType::I16 | DType::U16 | DType::I8 | DType::U8 | DType::Index => {
                Column::Int(dtype, Vec::new())
            }
            DType::Bool => Column::Bool(Vec::new()),
            DType::F16 | DType::BF16 => unreachable!("{dtype} is not computed with"),
        }
    }

    /// Returns the element type.
    pub(super) fn dtype(&self) -> DType {
        match self {
            Column::F32(_) => DType::F32,
            Column::F64(_) => DType::F64,
            Column::Int(dtype, _) => *dtype,
            Column::Bool(_) => DType::Bool,
        }
    }

    /// Removes all lanes and keeps their memory.
    pub(super) fn clear(&mut self) {
        match self {
            Column::F32(lanes) => lanes.clear(),
            Column::F64(lanes) => lanes.clear(),
            Column::Int(_, lanes) => lanes.clear(),
            Column::Bool(lanes) => lanes.clear(),
        }
    }

    /// Returns the element of a lane.
    pub(super) fn get(&self, lane: usize) -> Scalar {
        match self {
            Column::F32(lanes) => Scalar::F32(lanes[lane]),
            Column::F64(lanes) => Scalar::F64(lanes[lane]),
            Column::Int(dtype, lanes) => Scalar::Int(*dtype, lanes[lane]),
            Column::Bool(lanes) => Scalar::Bool(lanes[lane]),
        }
    }

    /// Returns the element of a lane as a position.
    pub(super) fn index(&self, lane: usize) -> usize {
        match self {
            Column::Int(_, lanes) => lanes[lane] as usize,
            Column::F32(_) | Column::F64(_) | Column::Bool(_) => unreachable!("a position is an integer"),
        }
    }

    /// Returns the positions of all lanes.
    pub(super) fn indices(&self) -> impl Iterator<Item = usize> {
        (0..self.len()).map(|lane| self.index(lane))
    }

    /// Returns a copy of some lanes.
    pub(super) fn slice(&self, lanes: Range<usize>) -> Column {
        match self {
            Column::F32(of) => Column::F32(of[lanes].to_vec()),
            Column::F64(of) => Column::F64(of[lanes].to_vec()),
            Column::Int(dtype, of) => Column::Int(*dtype, of[lanes].to_vec()),
            Column::Bool(of) => Column::Bool(of[lanes].to_vec()),
        }
    }

    /// Overwrites the lanes from `first` on with the lanes of another column of the same type.
    pub(super) fn replace(&mut self, first: usize, with: &Column) {
        let range = first..first + with.len();
        match (self, with) {
            (Column::F32(to), Column::F32(from)) => to[range].copy_from_slice(from),
            (Column::F64(to), Column::F64(from)) => to[range].copy_from_slice(from),
            (Column::Int(_, to), Column::Int(_, from)) => to[range].copy_from_slice(from),
            (Column::Bool(to), Column::Bool(from)) => to[range].copy_from_slice(from),
            (to, from) => unreachable!("{} in a column of {}", from.dtype(), to.dtype()),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Column::F32(lanes) => lanes.len(),
            Column::F64(lanes) => lanes.len(),
            Column::Int(_, lanes) => lanes.len(),
            Column::Bool(lanes) => lanes.len(),
        }
    }

    /// Appends one lane.
    pub(super) fn push(&mut self, value: Scalar) {
        self.extend(value, 1);
    }

    /// Appends `count` lanes with one value.
    pub(super) fn extend(&mut self, value: Scalar, count: usize) {
        let end = self.len() + count;
        match (self, value) {
            (Column::F32(lanes), Scalar::F32(x)) => lanes.resize(end, x),
            (Column::F64(lanes), Scalar::F64(x)) => lanes.resize(end, x),
            (Column::Int(_, lanes), Scalar::Int(_, x)) => lanes.resize(end, x),
            (Column::Bool(lanes), Scalar::Bool(x)) => lanes.resize(end, x),
            (column, value) => unreachable!("{value:?} in a column of {}", column.dtype()),
        }
    }

    /// Appends the lanes of `from`, converted by the rules of Rust's `as`.
    pub(super) fn extend_cast(&mut self, from: &Column) {
        let is_done = match (&mut *self, from) {
            (Column::F32(to), Column::Int(_, from)) => column_loops::converted(from, to),
            (Column::Int(dtype, to), Column::F32(from)) => column_loops::rounded(*dtype, from, to),
            (Column::F32(_) | Column::F64(_) | Column::Int(..) | Column::Bool(_), _) => false,
        };
        if !is_done {
            let dtype = self.dtype();
            (0..from.len()).for_each(|lane| self.push(from.get(lane).cast(dtype)));
        }
    }

    /// Appends the lanes of `from`, with the same bits.
    pub(super) fn extend_bitcast(&mut self, from: &Column) {
        let is_done = match (&mut *self, from) {
            (Column::F32(to), Column::Int(_, from)) => column_loops::floats_of_bits(from, to),
            (Column::Int(dtype, to), Column::F32(from)) => column_loops::bits_of_floats(*dtype, from, to),
            (Column::F32(_) | Column::F64(_) | Column::Int(..) | Column::Bool(_), _) => false,
        };
        if !is_done {
            let dtype = self.dtype();
            (0..from.len()).for_each(|lane| self.push(from.get(lane).bitcast(dtype)));
        }
    }

    /// Appends the positions `first..first + count`.
    pub(super) fn extend_positions(&mut self, first: usize, count: usize) {
        let Column::Int(_, lanes) = self else { unreachable!("a position is an integer") };
        lanes.extend((first..first + count).map(|position| position as i64));
    }
}

/// Appends `count` lanes of the result of an operation to `out`. Only as many operands count as the operation
/// has. The last of these determines the operation's class.
pub(super) fn apply(op: Op, args: [&Column; 3], count: usize, out: &mut Column) {
    if op == Op::Select {
        return select(args, count, out);
    }
    let [x, y, z] = args;
    let is_done = match (x, y, z, &mut *out) {
        (Column::F32(x), Column::F32(y), Column::F32(z), Column::F32(out)) => {
            column_loops::floats(op, x, y, z, out)
        }
        (Column::F32(x), Column::F32(y), _, Column::Bool(out)) => {
            column_loops::comparisons(op, x, y, out) || column_loops::tests(op, x, out)
        }
        (Column::F32(x), _, _, Column::Int(_, out)) => column_loops::encoded(op, x, out),
        (Column::Int(_, x), _, _, Column::F32(out)) => column_loops::decoded(op, x, out),
        (Column::Int(dtype, x), Column::Int(_, y), _, Column::Int(_, out)) => {
            column_loops::integers(op, *dtype, x, y, out)
        }
        (Column::Int(_, x), Column::Int(_, y), _, Column::Bool(out)) => {
            column_loops::integer_comparisons(op, x, y, out)
        }
        (Column::Bool(x), Column::Bool(y), _, Column::Bool(out)) => column_loops::truths(op, x, y, out),
        (Column::F32(_) | Column::F64(_) | Column::Int(..) | Column::Bool(_), _, _, _) => false,
    };
    if !is_done {
        (0..count).for_each(|lane| out.push(lane_of(op, args, lane, out.dtype())));
    }
}

fn select([condition, x, y]: [&Column; 3], count: usize, out: &mut Column) {
    let Column::Bool(condition) = condition else { unreachable!("a condition is a truth value") };
    let is_done = match (x, y, &mut *out) {
        (Column::F32(x), Column::F32(y), Column::F32(out)) => {
            column_loops::chosen_floats(condition, x, y, out)
        }
        (Column::Int(_, x), Column::Int(_, y), Column::Int(_, out)) => {
            column_loops::chosen_integers(condition, x, y, out)
        }
        (Column::F32(_) | Column::F64(_) | Column::Int(..) | Column::Bool(_), _, _) => false,
    };
    if is_done {
        return;
    }
    (0..count).for_each(|lane| out.push(if condition[lane] { x.get(lane) } else { y.get(lane) }));
}

/// Computes one lane of any operation except `Select`.
fn lane_of(op: Op, args: [&Column; 3], lane: usize, dtype: DType) -> Scalar {
    let eval = op.info().eval;
    let args = args.map(|arg| arg.get(lane));
    let of = args[op.info().arity - 1].dtype();
    match of.class() {
        Class::Float => {
            let y = (eval.float)(&args.map(Scalar::to_f64));
            if dtype == DType::Bool { Scalar::Bool(y != 0.0) } else { Scalar::F64(y).cast(dtype) }
        }
        Class::Int | Class::Uint | Class::Bool => {
            Scalar::of_int(dtype, (eval.int)(&args.map(Scalar::to_i64), bits(of)))
        }
    }
}

/// Returns the number of bits that an operation computes with.
fn bits(dtype: DType) -> u32 {
    if dtype == DType::Bool { 1 } else { dtype.bits() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns operands at the edges of `f32`, one for each pair or triple.
    fn floats() -> [Column; 3] {
        let edges =
            [0.0, -0.0, 1.0, -1.5, 2.5, 3.7e9, -3.7e9, f32::MAX, f32::MIN_POSITIVE, 1e-40, f32::INFINITY];
        let edges: Vec<f32> = edges.into_iter().chain([f32::NEG_INFINITY, f32::NAN]).collect();
        let lanes = || (0..edges.len().pow(2)).map(|i| (i % edges.len(), i / edges.len()));
        let column = |pick: &dyn Fn((usize, usize)) -> usize| {
            Column::F32(lanes().map(|pair| edges[pick(pair)]).collect())
        };
        [column(&|(i, _)| i), column(&|(_, j)| j), column(&|(i, j)| (i + 2 * j) % edges.len())]
    }

    fn integers(dtype: DType) -> [Column; 3] {
        let (low, high) = dtype.range();
        let edges = [low, low + 1, 0, 1, 2, 31, 100, high - 1, high];
        let lanes = || (0..edges.len().pow(2)).map(|i| (i % edges.len(), i / edges.len()));
        let column = |pick: &dyn Fn((usize, usize)) -> usize| {
            Column::Int(dtype, lanes().map(|pair| edges[pick(pair)]).collect())
        };
        [column(&|(i, _)| i), column(&|(_, j)| j), column(&|(i, j)| (i + j) % edges.len())]
    }

    fn truths() -> [Column; 3] {
        let column = |bit: usize| Column::Bool((0..8).map(|i| i >> bit & 1 == 1).collect());
        [column(0), column(1), column(2)]
    }

    /// Every loop gives the bits of the op table's reference, lane by lane.
    #[test]
    fn loops_follow_the_table() {
        let operands = [floats(), integers(DType::I32), integers(DType::U32), integers(DType::I8), truths()];
        let mut compared = 0;
        for (op, args) in Op::ALL.iter().flat_map(|&op| operands.iter().map(move |args| (op, args))) {
            let (info, dtype) = (op.info(), args[0].dtype());
            if op == Op::Select || info.arity == 0 || !info.typing.accepts(dtype) {
                continue;
            }
            let result = info.typing.result(&[dtype; 3]);
            if result == DType::F64 {
                continue;
            }
            let args: [&Column; 3] = std::array::from_fn(|i| &args[i.min(info.arity - 1)]);
            let mut out = Column::new(result);
            apply(op, args, args[0].len(), &mut out);
            for lane in 0..args[0].len() {
                let (got, want) = (out.get(lane), lane_of(op, args, lane, result));
                let same = match (got, want) {
                    (Scalar::F32(got), Scalar::F32(want)) => {
                        got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan()
                    }
                    (got, want) => format!("{got:?}") == format!("{want:?}"),
                };
                // The reference of `fma` rounds twice.
                assert!(same || op == Op::Fma, "{op:?} of {dtype}, lane {lane}: {got:?}, not {want:?}");
                compared += 1;
            }
        }
        assert!(compared > 5000, "{compared}");
    }
}
