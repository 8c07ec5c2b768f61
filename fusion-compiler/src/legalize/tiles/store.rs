//! The elements of a tile that a thread stores, in a loop over the rows of the thread where they take many
//! statements. Products of matrices pass through shared memory.

use std::iter;

use rustc_hash::FxHashSet;

use super::{Along, Definition, Elements, INDEX, Shape, Tiles, VECTOR, divided, plus, times};
use crate::fuse::is_transcendental;
use crate::ir::dtype::DType;
use crate::ir::kernel::{Address, Builder, Carried, Expr, Lanes, LoopKind, Scope, Stmt, Type, Value};
use crate::ir::op::Op;
use crate::target::PANEL_PADDING;

/// Largest number of statements that store elements of a thread, apart from these in loops.
const STORE_STATEMENTS_MAX: usize = 32;

/// Largest number of rows that a thread loads from shared memory before it stores one.
const LOADED_ROWS_MAX: usize = 8;

/// Statements that a transcendental operation stands for.
const TRANSCENDENTAL_STATEMENTS: usize = 16;

/// The values that the elements of a row are computed from.
struct RowOperands {
    /// Tiles that the thread at hand has the elements of.
    held: Vec<Value>,
    /// Values that all rows share.
    cols: Vec<Value>,
    /// Number of statements for a vector, apart from these of positions.
    statements: usize,
}

impl RowOperands {
    /// Returns the number of rows that are stored at once, of so many with so many vectors each.
    fn at_once(&self, rows: usize, vectors: usize) -> usize {
        let fits = |rows: &usize| rows * vectors * self.statements <= STORE_STATEMENTS_MAX;
        let mut halves = iter::successors(Some(rows), |rows| (rows % 2 == 0).then_some(rows / 2));
        halves.find(fits).unwrap_or(1)
    }
}

/// Returns the place of a vector's first element in memory whose rows have this stride.
fn place(b: &mut Builder<'_>, of: Elements, stride: u16) -> Value {
    let row = times(b, of.row, stride);
    b.apply(Op::Add, &[row, of.col])
}

impl Tiles<'_> {
    /// Stores the elements that the thread at hand has and for which the condition is true. A loop over some rows
    /// at a time stores elements of many operations, so the text has the operations of few elements.
    pub(super) fn store(&mut self, cond: Value, body: &[Stmt], out: &mut Vec<Stmt>) {
        if matches!(self.types[cond.0 as usize].lanes, Lanes::Tile(_, 1)) {
            return self.store_rows(cond, body, out);
        }
        let (held, operands) = (self.held.clone(), self.row_operands(cond, body));
        let cols = self.cols(cond).to_vec();
        if self.warp.is_some() {
            return self.store_from_memory((cond, body), &operands, out);
        }
        let before = self.known.clone();
        let (row, count) = (held.rows[0], held.rows.len());
        for &value in &operands.cols {
            for &col in &cols {
                self.element(value, Elements { row, col, along: Some(Along::Cols) }, out);
            }
        }
        let at_once = operands.at_once(count, cols.len());
        if at_once == count {
            self.store_vectors((cond, body), &self.elements_in(&held.rows, cond), out);
            self.known = before;
            return;
        }
        let mut b = self.builder(out);
        let var = b.declare(INDEX);
        let [start, end, step] = [0, count, at_once].map(|number| b.index(number as i64));
        let mut inside = Vec::new();
        let rows = self.rows_from(var, at_once, &mut inside);
        // A register has no number that a loop could choose it by, so iterations pass on the rows that are left.
        let mut carried = Vec::new();
        let each = |&value: &Value| {
            let cols = self.cols(value).to_vec();
            cols.into_iter().map(move |col| (value, col))
        };
        for (value, col) in operands.held.iter().flat_map(each).collect::<Vec<_>>() {
            let at = |row| Elements { row, col, along: Some(Along::Cols) };
            let starts: Vec<Value> = held.rows.iter().map(|&row| self.element(value, at(row), out)).collect();
            let mut b = self.builder(out);
            let ty = b.ty(starts[0]);
            let vars: Vec<Value> = starts.iter().map(|_| b.declare(ty)).collect();
            for (i, (&start, &var)) in starts.iter().zip(&vars).enumerate() {
                let next = *vars.get(i + at_once).unwrap_or(&var);
                carried.push(Carried { start, var, next, out: b.declare(ty) });
            }
            for (&row, &var) in rows.iter().zip(&vars) {
                self.known.insert(self.key(value, at(row)), var);
            }
        }
        self.store_vectors((cond, body), &self.elements_in(&rows, cond), &mut inside);
        self.known = before;
        let kind = LoopKind::Serial;
        out.push(Stmt::Loop { var, kind, start, end, step, carried, body: inside });
    }

    /// Stores an element of each row for which the condition is true. The first of the threads that share a row stores it.
    fn store_rows(&mut self, cond: Value, body: &[Stmt], out: &mut Vec<Stmt>) {
        let (rows, col) = (self.held.rows.clone(), self.held.cols[0]);
        let mut b = self.builder(out);
        let zero = b.index(0);
        let is_first = b.apply(Op::Eq, &[col, zero]);
        for row in rows {
            let at = Elements { row, col, along: None };
            let cond = self.element(cond, at, out);
            let cond = self.builder(out).apply(Op::And, &[cond, is_first]);
            let mut stores = Vec::new();
            for stmt in body {
                let Stmt::Store(to, value) = stmt else { unreachable!("elements of a tile are stored only") };
                let [index, value] = [to.index, *value].map(|of| self.element(of, at, out));
                stores.push(Stmt::Store(Address { index, ..*to }, value));
            }
            out.push(Stmt::If { cond, body: stores });
        }
    }

    /// Stores the elements of a tile whose condition is true, from shared memory.
    ///
    /// Threads next to each other then have elements next to each other, and a loop can choose rows.
    fn store_from_memory(
        &mut self,
        (cond, body): (Value, &[Stmt]),
        operands: &RowOperands,
        out: &mut Vec<Stmt>,
    ) {
        let &[tile] = operands.held.as_slice() else { unreachable!("a kernel has one product") };
        let Type { dtype, lanes: Lanes::Tile(height, width) } = self.types[tile.0 as usize] else {
            unreachable!("a product is a tile")
        };
        let (before, shape, stride) = (self.known.clone(), self.shape, width + PANEL_PADDING);
        let memory = self.memory_at_launch(dtype);
        // Other threads may still read panels from the memory.
        out.push(Stmt::Barrier(Scope::Block));
        for vector in self.elements_in(&self.held.rows, tile) {
            let value = self.vector(tile, vector, out);
            let mut b = self.builder(out);
            let place = place(&mut b, vector, stride);
            b.body.push(Stmt::StoreShared(memory, place, value));
        }
        out.push(Stmt::Barrier(Scope::Block));
        self.shape.width = VECTOR;
        let (thread, each) = (self.thread, width / VECTOR);
        let count = height * each / self.threads as u16;
        let at_once = operands.at_once(count.into(), 1).min(LOADED_ROWS_MAX) as u16;
        let mut b = self.builder(out);
        let (first, number) = divided(&mut b, thread, each);
        let col = times(&mut b, number, VECTOR);
        let var = b.declare(INDEX);
        let by = height / count;
        let [start, end, step] = [0, height, at_once * by].map(|row| b.index(row.into()));
        for &value in &operands.cols {
            self.element(value, Elements { row: first, col, along: Some(Along::Cols) }, out);
        }
        let mut inside = Vec::new();
        let mut b = self.builder(&mut inside);
        let row = b.apply(Op::Add, &[first, var]);
        let rows = (0..at_once).map(|i| plus(&mut b, row, i * by));
        let vectors: Vec<Elements> =
            rows.map(|row| Elements { row, col, along: Some(Along::Cols) }).collect();
        for &vector in &vectors {
            let mut b = self.builder(&mut inside);
            let place = place(&mut b, vector, stride);
            let ty = Type { dtype, lanes: Lanes::Const(VECTOR as u8) };
            let loaded = b.bind(ty, Expr::LoadShared(memory, place));
            self.known.insert(self.key(tile, vector), loaded);
        }
        // All rows are read before one is stored, since a tensor that is read may be one that is written.
        for (stmt, &vector) in body.iter().flat_map(|stmt| vectors.iter().map(move |vector| (stmt, vector))) {
            let Stmt::Store(_, value) = stmt else { unreachable!("elements of a tile are stored only") };
            self.vector(*value, vector, &mut inside);
        }
        self.store_vectors((cond, body), &vectors, &mut inside);
        (self.known, self.shape) = (before, shape);
        let kind = LoopKind::Serial;
        out.push(Stmt::Loop { var, kind, start, end, step, carried: vec![], body: inside });
    }

    /// Finds the values that the elements of a row are computed from.
    fn row_operands(&self, cond: Value, body: &[Stmt]) -> RowOperands {
        let mut found = RowOperands { statements: body.len(), held: vec![], cols: vec![] };
        let mut seen = FxHashSet::default();
        let mut ahead = vec![cond];
        for stmt in body {
            let Stmt::Store(at, value) = stmt else { unreachable!("elements of a tile are stored only") };
            ahead.extend([at.index, *value]);
        }
        while let Some(value) = ahead.pop() {
            let lanes = self.types[value.0 as usize].lanes;
            if !lanes.is_tile() || !seen.insert(value) {
                continue;
            }
            let Some(Definition { expr, .. }) = self.definitions.get(&value).cloned() else {
                found.held.push(value);
                continue;
            };
            if matches!(expr, Expr::Product(..)) {
                found.held.push(value);
            } else if matches!(lanes, Lanes::Tile(1, _)) {
                found.cols.push(value);
            } else {
                found.statements += match &expr {
                    Expr::Apply(op, _) if is_transcendental(*op) => TRANSCENDENTAL_STATEMENTS,
                    _ => usize::from(self.types[value.0 as usize].dtype != DType::Index),
                };
                expr.for_each_operand(|&operand| ahead.push(operand));
            }
        }
        found
    }

    /// Returns the rows of the thread from its row number `var` on, which is a multiple of `count`.
    fn rows_from(&mut self, var: Value, count: usize, out: &mut Vec<Stmt>) -> Vec<Value> {
        let (Shape { run, row_step, .. }, first) = (self.shape, self.held.rows[0]);
        let mut b = self.builder(out);
        let (number, ahead) = divided(&mut b, var, run);
        let number = times(&mut b, number, row_step);
        let start = b.apply(Op::Add, &[first, number]);
        let start = b.apply(Op::Add, &[start, ahead]);
        let each = 0..count as u16;
        each.map(|i| plus(&mut b, start, i / run * row_step + i % run)).collect()
    }

    /// Stores the elements of these vectors for which the condition is true.
    fn store_vectors(&mut self, (cond, body): (Value, &[Stmt]), vectors: &[Elements], out: &mut Vec<Stmt>) {
        for &vector in vectors {
            let mut stores = Vec::new();
            for stmt in body {
                let Stmt::Store(at, value) = stmt else { unreachable!("elements of a tile are stored only") };
                let is_vector = self.is_vector(at, vector);
                let value = self.vector(*value, vector, out);
                let elements = if is_vector { vector.first() } else { vector };
                let [index, cond] = [at.index, cond].map(|of| self.element(of, elements, out));
                stores.push((Address { index, aligned: is_vector, ..*at }, value, cond));
            }
            for (at, value, cond) in stores {
                if at.aligned {
                    out.push(Stmt::If { cond, body: vec![Stmt::Store(at, value)] });
                    continue;
                }
                for lane in 0..self.shape.width as u8 {
                    let mut b = self.builder(out);
                    let [value, index, cond] = [value, at.index, cond].map(|of| {
                        let one = Type { lanes: Lanes::ONE, ..b.ty(of) };
                        b.bind(one, Expr::Lane(of, lane))
                    });
                    out.push(Stmt::If {
                        cond,
                        body: vec![Stmt::Store(Address::new(at.buffer, index), value)],
                    });
                }
            }
        }
    }
}
