//! Elements of a tile that threads pass on to each other: for reductions of rows, and for products whose left factor
//! follows from another product.

use rustc_hash::FxHashMap;

use super::matrices::packed;
use super::panels::{Copy, PanelReads};
use super::{Along, Elements, INDEX, Tiles, plus, times};
use crate::ir::kernel::{
    Carried, Expr, Fold, Lanes, LoopKind, Scope, Shared, SharedId, SharedLen, Stmt, Type, Value,
};
use crate::ir::op::Op;
use crate::target::LINE_PADDING;

/// Steps of a right factor that are in shared memory at a time.
const CHUNK: u16 = 8;

/// Largest number of values that a team combines at once, for which there is shared memory.
const FOLDED_MAX: u32 = 512;

impl Tiles<'_> {
    /// Returns true if a value follows from the elements of a product, which threads have.
    pub(super) fn is_held(&self, value: Value) -> bool {
        let Some(definition) = self.definitions.get(&value) else {
            return self.types[value.0 as usize].lanes.is_tile();
        };
        let mut is_held = matches!(definition.expr, Expr::Product(..));
        definition.expr.for_each_operand(|&operand| is_held = is_held || self.is_held(operand));
        is_held
    }

    /// Combines the columns of each row: these of a thread one after another, and then these of the threads that share the
    /// row.
    pub(super) fn reduce(&mut self, fold: &Fold, out: &mut Vec<Stmt>) {
        let rows = self.held.rows.clone();
        let at_once = (FOLDED_MAX / self.threads).max(1) as usize;
        for rows in rows.chunks(at_once) {
            self.reduce_rows(fold, rows, out);
        }
    }

    /// Combines the columns of some of the rows of a thread.
    fn reduce_rows(&mut self, fold: &Fold, rows: &[Value], out: &mut Vec<Stmt>) {
        let mut all =
            Fold { over: vec![], identity: vec![], left: vec![], right: vec![], out: vec![], ..fold.clone() };
        (all.body, all.results) = (vec![], vec![]);
        for &row in rows {
            let own = self.of_thread(fold, row, out);
            all.over.extend(own);
            all.identity.extend(&fold.identity);
            let mut b = self.builder(out);
            let [left, right, made] = [(); 3].map(|()| -> Vec<Value> {
                fold.identity.iter().map(|&value| b.declare(b.ty(value))).collect()
            });
            let results = self.combined(fold, [&left, &right], &mut all.body);
            all.left.extend(left);
            all.right.extend(right);
            all.results.extend(results);
            for (&value, &made) in fold.out.iter().zip(&made) {
                let at = Elements { row, col: row, along: None };
                self.known.insert(self.key(value, at), made);
            }
            all.out.extend(made);
        }
        out.push(Stmt::AllReduce(Box::new(all)));
    }

    /// Combines the columns that the thread at hand has in a row.
    fn of_thread(&mut self, fold: &Fold, row: Value, out: &mut Vec<Stmt>) -> Vec<Value> {
        let mut made: Option<Vec<Value>> = None;
        for elements in self.elements_in(&[row], fold.over[0]) {
            let vectors: Vec<Value> =
                fold.over.iter().map(|&value| self.vector(value, elements, out)).collect();
            for lane in 0..self.shape.width as u8 {
                let mut b = self.builder(out);
                let lanes = vectors.iter().map(|&vector| {
                    let ty = Type { lanes: Lanes::ONE, ..b.ty(vector) };
                    b.bind(ty, Expr::Lane(vector, lane))
                });
                let lanes: Vec<Value> = lanes.collect();
                made = Some(match made {
                    Some(made) => self.combined(fold, [&made, &lanes], out),
                    None => lanes,
                });
            }
        }
        made.unwrap_or_else(|| unreachable!("a thread has columns"))
    }

    /// Computes the function of a fold.
    fn combined(&mut self, fold: &Fold, [left, right]: [&[Value]; 2], out: &mut Vec<Stmt>) -> Vec<Value> {
        let params = fold.left.iter().chain(&fold.right).copied();
        let mut map: FxHashMap<Value, Value> = params.zip(left.iter().chain(right).copied()).collect();
        for mut stmt in fold.body.iter().cloned() {
            stmt.for_each_operand_mut(|operand| *operand = map.get(operand).copied().unwrap_or(*operand));
            let Stmt::Let(value, expr) = stmt else { unreachable!("the function of a fold only computes") };
            let ty = self.types[value.0 as usize];
            map.insert(value, self.builder(out).bind(ty, expr));
        }
        fold.results.iter().map(|value| map.get(value).copied().unwrap_or(*value)).collect()
    }

    /// Adds the product of a left factor that threads have the elements of, and of a right factor, to a sum. All of the left
    /// factor passes through shared memory, and the right one some steps at a time.
    pub(super) fn product_of_held(
        &mut self,
        value: Value,
        [sum, left, right]: [Value; 3],
        out: &mut Vec<Stmt>,
    ) {
        let (memory, stride) = self.store_held(left, out);
        let Lanes::Tile(_, depth) = self.types[left.0 as usize].lanes else {
            unreachable!("a factor is a tile")
        };
        let lines = self.lines(right, false).of_steps(CHUNK);
        self.shared.push(Shared { dtype: lines.dtype, len: SharedLen::Fixed(lines.len().into()) });
        let panel = SharedId(self.shared.len() as u16 - 1);
        let copy = self.copy_of(&lines, (panel, 0), lines.width(self.threads), out);
        let vectors = self.elements_in(&self.held.rows, sum);
        let sums: Vec<Value> = vectors.iter().map(|&vector| self.vector(sum, vector, out)).collect();
        let (runs, cols) = (self.held.runs.clone(), self.cols(sum).to_vec());
        let mut b = self.builder(out);
        let ty = b.ty(sums[0]);
        let [start, end, step] = [0, depth, CHUNK].map(|number| b.index(number.into()));
        let var = b.declare(INDEX);
        let vars: Vec<Value> = sums.iter().map(|_| b.declare(ty)).collect();
        let (mut inside, before) = (Vec::new(), self.known.clone());
        let mut b = self.builder(&mut inside);
        let ahead = |(elements, place): &(Elements, Value)| {
            (Elements { row: b.apply(Op::Add, &[elements.row, var]), ..*elements }, *place)
        };
        let elements = copy.elements.iter().map(ahead).collect();
        self.store_panels([(right, &Copy { elements, ..copy.clone() })], &mut inside);
        inside.push(Stmt::Barrier(Scope::Block));
        let mut b = self.builder(&mut inside);
        let lines = b.index(stride.into());
        let ahead = b.apply(Op::Mul, &[var, lines]);
        let runs = runs.into_iter().map(|run| b.apply(Op::Add, &[run, ahead])).collect();
        let reads = PanelReads { panels: [(memory, stride), (panel, copy.stride)], firsts: [runs, cols] };
        let next = self.multiply_steps(&reads, CHUNK, vars.clone(), &mut inside);
        // The next steps overwrite the memory.
        inside.push(Stmt::Barrier(Scope::Block));
        self.known = before;
        let mut b = self.builder(out);
        let each = sums.into_iter().zip(vars).zip(next);
        let carried: Vec<Carried> =
            each.map(|((start, var), next)| Carried { start, var, next, out: b.declare(ty) }).collect();
        for (vector, one) in vectors.into_iter().zip(&carried) {
            self.known.insert(self.key(value, vector), one.out);
        }
        let kind = LoopKind::Serial;
        out.push(Stmt::Loop { var, kind, start, end, step, carried, body: inside });
    }

    /// Stores the elements that threads have of a left factor, with a line for each column. Returns the memory, and the
    /// elements from one line to the next.
    fn store_held(&mut self, left: Value, out: &mut Vec<Stmt>) -> (SharedId, u16) {
        let Type { dtype, lanes: Lanes::Tile(rows, cols) } = self.types[left.0 as usize] else {
            unreachable!("a factor is a tile")
        };
        let stride = rows + LINE_PADDING;
        let len = u32::from(cols) * u32::from(stride);
        self.shared.push(Shared { dtype, len: SharedLen::Fixed(len) });
        let memory = SharedId(self.shared.len() as u16 - 1);
        let rows = self.held.rows.clone();
        for run in rows.chunks(self.shape.run.into()) {
            for &col in &self.cols(left).to_vec() {
                let of_row = |row| Elements { row, col, along: Some(Along::Cols) };
                let vectors: Vec<Value> =
                    run.iter().map(|&row| self.vector(left, of_row(row), out)).collect();
                for lane in 0..self.shape.width {
                    let mut b = self.builder(out);
                    let one = Type { dtype, lanes: Lanes::ONE };
                    let lane_of = |&vector: &Value| b.bind(one, Expr::Lane(vector, lane as u8));
                    let column: Vec<Value> = vectors.iter().map(lane_of).collect();
                    let column = if column.len() == 1 { column[0] } else { packed(&mut b, &column) };
                    let line = plus(&mut b, col, lane);
                    let line = times(&mut b, line, stride);
                    let place = b.apply(Op::Add, &[line, run[0]]);
                    b.body.push(Stmt::StoreShared(memory, place, column));
                }
            }
        }
        (memory, stride)
    }
}
