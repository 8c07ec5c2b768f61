//! The elements of a tile that a thread stores, in a loop over the rows of the thread where they take many
//! statements.

use std::iter;

use rustc_hash::FxHashSet;

use super::{Along, Definition, Elements, INDEX, Shape, Tiles, divided, plus, times};
use crate::fuse::is_transcendental;
use crate::ir::dtype::DType;
use crate::ir::kernel::{Address, Carried, Expr, Lanes, LoopKind, Stmt, Type, Value};
use crate::ir::op::Op;

/// Largest number of statements that store elements of a thread, apart from these in loops.
const STORE_STATEMENTS_MAX: usize = 32;

/// Statements that a transcendental operation stands for.
const TRANSCENDENTAL_STATEMENTS: usize = 16;

/// The values that the elements of a row are computed from.
struct RowOperands {
    /// Tiles that the thread at hand has the elements of.
    held: Vec<Value>,
    /// Number of statements for a vector, apart from these of positions.
    statements: usize,
}

impl Tiles<'_> {
    /// Stores the elements that the thread at hand has and for which the condition is true. A loop over some rows
    /// at a time stores elements of many operations, so the text has the operations of few elements.
    pub(super) fn store(&mut self, cond: Value, body: &[Stmt], out: &mut Vec<Stmt>) {
        let before = self.known.clone();
        let (held, operands) = (self.held.clone(), self.row_operands(cond, body, out));
        let count = held.rows.len();
        let fits = |rows: &usize| rows * held.cols.len() * operands.statements <= STORE_STATEMENTS_MAX;
        let mut halves = iter::successors(Some(count), |rows| (rows % 2 == 0).then_some(rows / 2));
        let at_once = halves.find(fits).unwrap_or(1);
        if at_once == count {
            self.store_rows((cond, body), &held.rows, out);
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
        let each = operands.held.iter().flat_map(|&value| held.cols.iter().map(move |&col| (value, col)));
        for (value, col) in each {
            let at = |row| Elements { row, col, along: Some(Along::Cols) };
            let starts: Vec<Value> = held.rows.iter().map(|&row| self.vector(value, at(row), out)).collect();
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
        self.store_rows((cond, body), &rows, &mut inside);
        self.known = before;
        let kind = LoopKind::Serial;
        out.push(Stmt::Loop { var, kind, start, end, step, carried, body: inside });
    }

    /// Finds the values that the elements of a row are computed from. Computes these that have no rows.
    fn row_operands(&mut self, cond: Value, body: &[Stmt], out: &mut Vec<Stmt>) -> RowOperands {
        let mut found = RowOperands { statements: body.len(), held: vec![] };
        let mut seen = FxHashSet::default();
        let mut ahead = vec![cond];
        for stmt in body {
            let Stmt::Store(at, value) = stmt else { unreachable!("elements of a tile are stored only") };
            ahead.extend([at.index, *value]);
        }
        let (row, cols) = (self.held.rows[0], self.held.cols.clone());
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
                for &col in &cols {
                    self.element(value, Elements { row, col, along: Some(Along::Cols) }, out);
                }
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

    /// Stores the elements that the thread at hand has in these rows and for which the condition is true.
    fn store_rows(&mut self, (cond, body): (Value, &[Stmt]), rows: &[Value], out: &mut Vec<Stmt>) {
        for vector in self.vectors(rows) {
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
