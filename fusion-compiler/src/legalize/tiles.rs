//! Tiles → the elements that each thread of a team has. The only code that knows how threads share a tile.
//!
//! A thread has some rows of the tiles that products make, and vectors of columns in these rows. All tiles of a kernel
//! have the same rows, and threads next to each other share these. Values are computed where a product, a reduction or
//! a store needs them, in the elements that it needs: a factor for the copy of its tile to shared memory, all others in
//! the elements that the thread has of a product, or stores of it.
//!
//! Invariant: every element is computed by one thread in one order, so the sum of a product is one chain over
//! the steps of the kernel's loop.

mod matrices;
mod panels;
mod reduce;
mod store;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use matrices::WarpTile;
use panels::{Copy, Pipeline};

use crate::ir::dtype::DType;
use crate::ir::kernel::{
    Address, AsyncCopy, Builder, Builtin, Carried, Expr, Kernel, Lanes, LoopKind, Panels, Shared, Stmt,
    ThreadMap, Type, Uniform, Value, statements,
};
use crate::ir::op::Op;

const INDEX: Type = Type { dtype: DType::Index, lanes: Lanes::ONE };

/// Lanes of a vector: of rows or columns next to each other.
const VECTOR: u16 = 4;

/// Rewrites a kernel into one without tiles.
pub fn tiles(mut kernel: Kernel) -> Kernel {
    let mut body = std::mem::take(&mut kernel.body);
    let mut definitions = FxHashMap::default();
    define(&kernel, &body, 0, &mut definitions);
    let products = definitions.iter().filter(|(_, made)| matches!(made.expr, Expr::Product(..)));
    let mut tiles: Vec<(u16, u16)> = products.map(|(value, _)| tile_of(&kernel, *value)).collect();
    tiles.sort_unstable();
    let Some(&(rows, cols)) = tiles.first() else {
        kernel.body = body;
        return kernel;
    };
    debug_assert!(tiles.iter().all(|tile| tile.0 == rows), "the tiles of a kernel have the same rows");
    let widths: Vec<u16> = tiles.iter().map(|tile| tile.1).collect();
    let kernel_threads = kernel.threads;
    let ThreadMap { team: threads, panels, .. } = kernel_threads;
    let warp = (panels == Panels::Matrices).then(|| WarpTile::new((rows, cols), threads));
    let Kernel { types, uniforms, shared, .. } = &mut kernel;
    let mut lowering = Tiles {
        types,
        uniforms,
        shared,
        definitions,
        known: FxHashMap::default(),
        copies: FxHashMap::default(),
        thread: Value(0),
        threads,
        shape: match (warp, &widths[..]) {
            (Some(warp), _) => warp.shape(),
            (None, [_]) => Shape::new((rows, cols), threads),
            (None, _) => Shape::shared(rows, kernel_threads),
        },
        widths,
        panels,
        warp,
        held: Held::default(),
        pipeline: None,
    };
    lowering.body(&mut body);
    kernel.body = body;
    kernel
}

/// Returns the rows and columns of a product.
fn tile_of(kernel: &Kernel, product: Value) -> (u16, u16) {
    match kernel.ty(product).lanes {
        Lanes::Tile(rows, cols) => (rows, cols),
        _ => unreachable!("a product is a tile"),
    }
}

/// The expression of a value of tiles, and the number of bodies around it.
#[derive(Clone)]
struct Definition {
    expr: Expr,
    depth: usize,
}

/// Finds the definitions of all values of tiles.
fn define(kernel: &Kernel, body: &[Stmt], depth: usize, all: &mut FxHashMap<Value, Definition>) {
    for stmt in body {
        match stmt {
            Stmt::Let(value, expr) if kernel.ty(*value).lanes.is_tile() => {
                all.insert(*value, Definition { expr: expr.clone(), depth });
            }
            stmt => define(kernel, stmt.body(), depth + 1, all),
        }
    }
}

/// Numbers of elements that a thread has of the tiles of products.
#[derive(Clone, Copy)]
struct Shape {
    /// Rows next to each other, which are read at once.
    run: u16,
    /// Number of such runs.
    runs: u16,
    /// Rows from the start of a run to the start of the next one.
    row_step: u16,
    /// Number of columns of a vector.
    width: u16,
    /// Number of threads whose vectors of a row lie next to each other.
    across: u16,
    /// Number of parts of a row that different threads have.
    parts: u16,
}

impl Shape {
    /// Chooses a square of elements, or one with more columns than rows.
    fn new((rows, cols): (u16, u16), threads: u32) -> Shape {
        let each = (u32::from(rows) * u32::from(cols) / threads) as u16;
        let fits = |vectors: &u16| each / (vectors * VECTOR) <= vectors * VECTOR;
        let vectors = (0..).map(|bits| 1 << bits).find(fits).unwrap_or_else(|| unreachable!("one fits"));
        let own_rows = each / (vectors * VECTOR);
        Shape::of_rows((rows, own_rows), cols / vectors / VECTOR)
    }

    /// Returns the elements of tiles whose rows several threads share.
    fn shared(rows: u16, threads: ThreadMap) -> Shape {
        Shape::of_rows((rows, rows / threads.rows as u16), threads.per_row() as u16)
    }

    /// Gives a thread so many of the rows.
    fn of_rows((rows, own): (u16, u16), across: u16) -> Shape {
        let run = own.min(VECTOR);
        let runs = own / run;
        Shape { run, runs, row_step: rows / runs, width: VECTOR, across, parts: 1 }
    }

    /// Returns the number of columns from the start of a vector to the start of the next one.
    fn col_step(self) -> u16 {
        self.width * self.across
    }

    /// Returns the number of vectors in a row of a tile with so many columns.
    fn vectors(self, cols: u16) -> u16 {
        cols / self.parts / self.col_step()
    }
}

/// The elements of the tiles of products that the thread at hand has.
#[derive(Clone, Default)]
struct Held {
    /// First row of each run.
    runs: Vec<Value>,
    rows: Vec<Value>,
    /// First column of each vector in a row of the widest tile.
    cols: Vec<Value>,
}

/// A direction of a tile.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Along {
    Rows,
    Cols,
}

/// Elements of a tile: one, or a vector.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Elements {
    /// Row of the first.
    row: Value,
    /// Column of the first.
    col: Value,
    /// Direction of a vector.
    along: Option<Along>,
}

impl Elements {
    /// Returns the first element.
    fn first(self) -> Elements {
        Elements { along: None, ..self }
    }
}

/// The way in which a value changes from one element to the next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    ByOne,
    Other,
}

/// An element of a value, or a vector of its elements.
///
/// The parts are the value, the row, the column and the direction, as far as the value has these.
type Key = (Value, Option<Value>, Option<Value>, Option<Along>);

/// The state of the lowering of one kernel.
struct Tiles<'k> {
    types: &'k mut Vec<Type>,
    uniforms: &'k mut Vec<Uniform>,
    shared: &'k mut Vec<Shared>,
    definitions: FxHashMap<Value, Definition>,
    /// Elements that the thread at hand has computed.
    known: FxHashMap<Key, Value>,
    copies: FxHashMap<Value, Copy>,
    /// Number of the thread in its team.
    thread: Value,
    threads: u32,
    shape: Shape,
    /// Numbers of columns of the products, in order.
    widths: Vec<u16>,
    panels: Panels,
    /// The tile of a warp, if matrices in its registers are multiplied.
    warp: Option<WarpTile>,
    held: Held,
    /// Copies of the factors for the loop at hand, if they are asynchronous.
    pipeline: Option<Pipeline>,
}

impl Tiles<'_> {
    /// Lowers the body of a kernel.
    fn body(&mut self, body: &mut [Stmt]) {
        for stmt in body {
            if let Stmt::Loop { kind: LoopKind::Team, body, .. } = stmt {
                let inside = std::mem::take(body);
                self.known.clear();
                self.hold(body);
                self.block(inside, 1, body);
            }
        }
    }

    /// Finds the elements that the thread at hand has of a product.
    fn hold(&mut self, out: &mut Vec<Stmt>) {
        let Shape { run, runs, row_step, width, across, .. } = self.shape;
        let (warp, col_step) = (self.warp, self.shape.col_step());
        let vectors = self.widths.last().map_or(0, |&cols| self.shape.vectors(cols));
        let mut b = self.builder(out);
        let thread = b.builtin(Builtin::TeamId);
        let (row, col) = match warp {
            Some(warp) => warp.first_element(&mut b, thread),
            None => {
                // The vectors of a run of columns belong to one thread each.
                let (row, col) = divided(&mut b, thread, across);
                (times(&mut b, row, run), times(&mut b, col, width))
            }
        };
        let starts: Vec<Value> = (0..runs).map(|i| plus(&mut b, row, i * row_step)).collect();
        let rows = starts.iter().flat_map(|&start| (0..run).map(move |i| (start, i)));
        let rows = rows.map(|(start, i)| plus(&mut b, start, i)).collect();
        let cols = (0..vectors).map(|i| plus(&mut b, col, i * col_step)).collect();
        self.thread = thread;
        self.held = Held { runs: starts, rows, cols };
    }

    /// Returns the elements that the thread has in these rows of a value, row by row. These are vectors, or one element of
    /// each row.
    fn elements_in(&self, rows: &[Value], of: Value) -> Vec<Elements> {
        let cols = self.cols(of);
        let along = self.own(of, Elements { row: rows[0], col: rows[0], along: Some(Along::Cols) }).along;
        let elements = |row, col| Elements { row, col, along };
        rows.iter().flat_map(|&row| cols.iter().map(move |&col| elements(row, col))).collect()
    }

    /// Returns the first column of each vector in a row of a tile with the lanes of a value. A row of one column has one
    /// element.
    fn cols(&self, of: Value) -> &[Value] {
        let Lanes::Tile(_, cols) = self.types[of.0 as usize].lanes else {
            unreachable!("a value without rows and columns has one element")
        };
        &self.held.cols[..usize::from(self.shape.vectors(cols).max(1))]
    }

    fn block(&mut self, body: Vec<Stmt>, depth: usize, out: &mut Vec<Stmt>) {
        for stmt in body {
            match stmt {
                Stmt::Let(value, Expr::Product(sum, left, right)) => {
                    self.product(value, [sum, left, right], out)
                }
                Stmt::Let(value, _) if self.definitions.contains_key(&value) => {}
                of @ Stmt::Loop { .. } if self.has_tiles(of.body()) => self.serial_loop(of, depth, out),
                Stmt::If { cond, body } if self.definitions.contains_key(&cond) => {
                    self.store(cond, &body, out)
                }
                Stmt::AllReduce(fold) if self.types[fold.over[0].0 as usize].lanes.is_tile() => {
                    self.reduce(&fold, out)
                }
                stmt => out.push(stmt),
            }
        }
    }

    /// Returns true if statements compute or store tiles.
    fn has_tiles(&self, body: &[Stmt]) -> bool {
        statements(body).any(|stmt| match stmt {
            Stmt::Let(value, _) => self.types[value.0 as usize].lanes.is_tile(),
            Stmt::If { cond, .. } => self.types[cond.0 as usize].lanes.is_tile(),
            Stmt::AllReduce(fold) => self.types[fold.over[0].0 as usize].lanes.is_tile(),
            _ => false,
        })
    }

    /// Lowers a loop. A tile that iterations pass on becomes the vectors that the thread has of it.
    fn serial_loop(&mut self, of: Stmt, depth: usize, out: &mut Vec<Stmt>) {
        let Stmt::Loop { var, kind, start, end, step, carried, body } = of else {
            unreachable!("the statement is a loop")
        };
        let body = if self.panels.are_copied() { self.without_invariants(body, out) } else { body };
        self.hoist(&body, depth, out);
        self.pipeline = self.pipelined((&body, depth), (var, start), out);
        let before = self.known.clone();
        let is_tile = |one: &Carried| self.types[one.var.0 as usize].lanes.is_tile();
        let (tiles, mut carried): (Vec<Carried>, Vec<Carried>) = carried.into_iter().partition(is_tile);
        let of_tile = |tile: Carried| {
            let elements = self.elements_in(&self.held.rows, tile.var);
            elements.into_iter().map(move |elements| (tile, elements))
        };
        let each: Vec<(Carried, Elements)> = tiles.into_iter().flat_map(of_tile).collect();
        let (mut own, mut outs) = (Vec::new(), Vec::new());
        for &(tile, vector) in &each {
            let start = self.vector(tile.start, vector, out);
            let ty = self.types[start.0 as usize];
            let mut b = self.builder(out);
            let [var, next, last] = [(); 3].map(|()| b.declare(ty));
            own.push(Carried { start, var, next, out: last });
            self.known.insert(self.key(tile.var, vector), var);
            outs.push((self.key(tile.out, vector), last));
        }
        let mut inside = Vec::new();
        carried.extend(self.advance(&mut inside));
        self.block(body, depth + 1, &mut inside);
        for (own, (tile, vector)) in own.iter_mut().zip(each) {
            own.next = self.vector(tile.next, vector, &mut inside);
        }
        carried.extend(own);
        self.known = before;
        self.known.extend(outs);
        out.push(Stmt::Loop { var, kind, start, end, step, carried, body: inside });
        if self.pipeline.take().is_some() {
            out.push(Stmt::AsyncCopy(AsyncCopy::Wait(0)));
        }
    }

    /// Computes what the factors of products in a body need of values from before it.
    fn hoist(&mut self, body: &[Stmt], depth: usize, out: &mut Vec<Stmt>) {
        for stmt in body {
            if let Stmt::Let(_, Expr::Product(_, left, right)) = stmt
                && !self.panels.are_copied()
                && !self.is_held(*left)
            {
                for (factor, is_left) in [(*left, true), (*right, false)] {
                    for (elements, _) in self.copy(factor, is_left, out).elements {
                        self.hoist_operands((factor, elements), depth, out);
                    }
                }
            }
        }
    }

    fn hoist_operands(&mut self, (value, elements): (Value, Elements), depth: usize, out: &mut Vec<Stmt>) {
        let Some(Definition { expr, depth: own }) = self.definitions.get(&value).cloned() else { return };
        if own <= depth {
            self.element(value, elements, out);
            return;
        }
        for operand in self.operands(value, &expr, elements) {
            self.hoist_operands(operand, depth, out);
        }
    }

    /// Returns the operands of an expression, each with the elements that the expression needs of it.
    fn operands(&self, value: Value, expr: &Expr, elements: Elements) -> SmallVec<[(Value, Elements); 4]> {
        let elements = self.own(value, elements);
        let mut operands: SmallVec<[Value; 4]> = SmallVec::new();
        expr.for_each_operand(|&operand| operands.push(operand));
        let is_vector = match expr {
            Expr::Load(at) | Expr::LoadWhere(at, _) => self.is_vector(at, elements),
            _ => false,
        };
        let elements = if is_vector { elements.first() } else { elements };
        operands.into_iter().map(|operand| (operand, elements)).collect()
    }

    /// Returns the elements in the rows and columns that a value has. A value without the direction of a vector
    /// has one element.
    fn own(&self, value: Value, elements: Elements) -> Elements {
        let Lanes::Tile(rows, cols) = self.types[value.0 as usize].lanes else { return elements.first() };
        let has = |along: &Along| match along {
            Along::Rows => rows > 1,
            Along::Cols => cols > 1,
        };
        Elements { along: elements.along.filter(has), ..elements }
    }

    fn lanes(&self, elements: Elements) -> Lanes {
        Lanes::Const(if elements.along.is_some() { self.shape.width as u8 } else { 1 })
    }

    fn key(&self, value: Value, elements: Elements) -> Key {
        let Lanes::Tile(rows, cols) = self.types[value.0 as usize].lanes else {
            unreachable!("a value without rows and columns has one element")
        };
        let Elements { row, col, along } = self.own(value, elements);
        (value, (rows > 1).then_some(row), (cols > 1).then_some(col), along)
    }

    /// Computes elements of a value: a vector, or one element if all are the same.
    fn element(&mut self, value: Value, elements: Elements, out: &mut Vec<Stmt>) -> Value {
        let Some(Definition { expr, .. }) = self.definitions.get(&value).cloned() else {
            let is_tile = self.types[value.0 as usize].lanes.is_tile();
            let ahead = self.pipeline.as_ref().and_then(|pipeline| pipeline.ahead_of(value));
            return if is_tile { self.known[&self.key(value, elements)] } else { ahead.unwrap_or(value) };
        };
        let (key, own) = (self.key(value, elements), self.own(value, elements));
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        let operands = self.operands(value, &expr, own);
        let args: SmallVec<[Value; 4]> =
            operands.into_iter().map(|(operand, elements)| self.element(operand, elements, out)).collect();
        let ty = Type { lanes: self.lanes(own), ..self.types[value.0 as usize] };
        let is_vector = matches!(&expr, Expr::Load(at) | Expr::LoadWhere(at, _) if self.is_vector(at, own));
        let mut b = self.builder(out);
        let made = match expr {
            Expr::Builtin(builtin) => {
                let (first, along) = match builtin {
                    Builtin::TileRow => (own.row, Along::Rows),
                    _ => (own.col, Along::Cols),
                };
                if own.along == Some(along) {
                    let ahead = b.bind(ty, Expr::Builtin(Builtin::LaneIndex));
                    b.apply(Op::Add, &[first, ahead])
                } else {
                    first
                }
            }
            Expr::Splat(_) => b.splat(args[0], ty.lanes),
            Expr::Apply(op, _) => b.apply(op, &args),
            Expr::Cast(_) => b.cast(args[0], ty.dtype),
            Expr::Bitcast(_) => b.bitcast(args[0], ty.dtype),
            Expr::Load(at) | Expr::LoadWhere(at, _) => {
                let at = Address { index: args[0], aligned: is_vector, ..at };
                // All elements may be read at one place, even where masks differ.
                let one = b.ty(at.index).lanes == Lanes::ONE && !is_vector;
                let index = if one { b.splat(at.index, ty.lanes) } else { at.index };
                let at = Address { index, ..at };
                let read = args.get(1).map_or(Expr::Load(at), |&mask| Expr::LoadWhere(at, mask));
                b.bind(ty, read)
            }
            _ => unreachable!("tiles have no such values"),
        };
        self.known.insert(key, made);
        made
    }

    /// Computes a vector, also of a value whose elements are all the same.
    fn vector(&mut self, value: Value, elements: Elements, out: &mut Vec<Stmt>) -> Value {
        let made = self.element(value, elements, out);
        let lanes = self.lanes(elements);
        self.builder(out).splat(made, lanes)
    }

    /// Returns true if elements lie next to each other in a buffer, from a multiple of a vector on.
    fn is_vector(&self, at: &Address, elements: Elements) -> bool {
        at.aligned && elements.along.is_some_and(|along| self.change(at.index, along) == Change::ByOne)
    }

    /// Returns the way in which a value changes along a direction.
    fn change(&self, value: Value, along: Along) -> Change {
        let elements = Elements { row: value, col: value, along: Some(along) };
        let Some(Definition { expr, .. }) = self.definitions.get(&value) else { return Change::None };
        match expr {
            _ if self.own(value, elements).along.is_none() => Change::None,
            Expr::Builtin(Builtin::TileRow | Builtin::TileCol) => Change::ByOne,
            Expr::Cast(of) => self.change(*of, along),
            Expr::Apply(op @ (Op::Add | Op::Sub), args) => {
                match (op, self.change(args[0], along), self.change(args[1], along)) {
                    (_, change, Change::None) | (Op::Add, Change::None, change) => change,
                    _ => Change::Other,
                }
            }
            _ => Change::Other,
        }
    }

    /// Returns the direction in which the elements of a factor lie next to each other in memory.
    fn contiguous(&self, factor: Value) -> Option<Along> {
        let Definition { expr, .. } = self.definitions.get(&factor)?;
        if let Expr::Load(at) | Expr::LoadWhere(at, _) = expr {
            return [Along::Cols, Along::Rows]
                .into_iter()
                .find(|&along| self.change(at.index, along) == Change::ByOne);
        }
        let mut found = None;
        expr.for_each_operand(|&operand| found = found.or_else(|| self.contiguous(operand)));
        found
    }

    /// Returns true if some tensor of a factor is read by vectors in a direction.
    fn reads_vectors(&self, factor: Value, along: Along) -> bool {
        let Some(Definition { expr, .. }) = self.definitions.get(&factor) else { return false };
        if let Expr::Load(at) | Expr::LoadWhere(at, _) = expr {
            return at.aligned && self.change(at.index, along) == Change::ByOne;
        }
        let mut found = false;
        expr.for_each_operand(|&operand| found = found || self.reads_vectors(operand, along));
        found
    }

    fn builder<'b>(&'b mut self, body: &'b mut Vec<Stmt>) -> Builder<'b> {
        Builder { types: self.types, uniforms: self.uniforms, body }
    }
}

/// Returns quotient and remainder of a number by a power of two.
fn divided(b: &mut Builder<'_>, number: Value, by: u16) -> (Value, Value) {
    let (bits, mask) = (b.index(by.trailing_zeros().into()), b.index(i64::from(by) - 1));
    (b.apply(Op::ShrRaw, &[number, bits]), b.apply(Op::And, &[number, mask]))
}

fn times(b: &mut Builder<'_>, number: Value, by: u16) -> Value {
    if by == 1 {
        return number;
    }
    let by = b.index(by.into());
    b.apply(Op::Mul, &[number, by])
}

fn plus(b: &mut Builder<'_>, number: Value, more: u16) -> Value {
    if more == 0 {
        return number;
    }
    let more = b.index(more.into());
    b.apply(Op::Add, &[number, more])
}
