//! Panels: the steps of both factors that a team multiplies between two barriers, in shared memory.
//!
//! Threads compute the elements of a panel and store them, or asynchronous copies bring them some steps of the depth
//! ahead. A panel has a line for each step of the depth. Panels of matrices are `matrices.rs`'s.

use super::{Along, Definition, Elements, INDEX, Tiles, VECTOR, divided, plus, times};
use crate::ir::dtype::DType;
use crate::ir::kernel::{
    ASYNC_COPY_BYTES, Address, AsyncCopy, Builder, Carried, Expr, Lanes, LoopKind, Scope, Shared, SharedId,
    SharedLen, Stmt, Type, Value, WARP,
};
use crate::ir::op::Op;
use crate::target::{LINE_PADDING, PANEL_STAGES};

/// Largest number of products of a thread that a text with copied panels has, apart from these in loops.
const PRODUCTS_MAX: usize = 256;

/// Elements of a line that a warp copies at once to as many lines of a panel.
const SQUARE: u32 = 8;

/// The part of a panel that the thread at hand brings.
#[derive(Clone)]
pub(super) struct Copy {
    pub(super) memory: SharedId,
    /// Elements of the memory from one line to the next.
    pub(super) stride: u16,
    /// Elements of the memory from one element of a vector to the next.
    pub(super) apart: u16,
    /// Elements that the thread at hand copies, each with the place of the first in the memory.
    pub(super) elements: Vec<(Elements, Value)>,
}

/// Panels of both factors, and the copies that fill them.
#[derive(Clone)]
pub(super) struct Pipeline {
    pub(super) memory: SharedId,
    pub(super) panels: [Panel; 2],
    /// Number of elements from the panels of one stage to these of the next.
    stage_len: u16,
    /// The counter of the loop over the depth.
    counter: Value,
    /// Number of steps of a panel.
    pub(super) depth: u16,
    /// The value that stands for the counter in copies.
    ahead: Option<Value>,
    /// First element of the stage at hand.
    pub(super) stage: Value,
}

impl Pipeline {
    /// Returns the value that stands for a value in copies ahead of the loop.
    pub(super) fn ahead_of(&self, value: Value) -> Option<Value> {
        self.ahead.filter(|_| value == self.counter)
    }
}

/// A factor's part of a stage.
#[derive(Clone)]
pub(super) struct Panel {
    pub(super) from: Address,
    pub(super) mask: Value,
    pub(super) copy: Copy,
    /// True if contiguous elements lie along the depth in a panel of matrices.
    pub(super) along_depth: bool,
    /// Element of a stage from which on the thread at hand reads.
    pub(super) origin: Value,
}

/// The lines of a panel of elements.
pub(super) struct Lines {
    pub(super) dtype: DType,
    rows: u16,
    cols: u16,
    is_left: bool,
    /// Direction of elements next to each other in the tensor.
    along: Along,
    /// True if these are read by vectors.
    is_vector: bool,
    /// Number of lines.
    steps: u16,
    /// Elements from one line to the next.
    stride: u16,
}

impl Lines {
    /// Returns lines of a right factor for so many steps.
    pub(super) fn of_steps(self, steps: u16) -> Lines {
        Lines { rows: steps, steps, ..self }
    }

    /// Returns the largest number of elements next to each other that all of the threads copy at once, if there are as many.
    pub(super) fn width(&self, threads: u32) -> u16 {
        let vectors = u32::from(self.rows) * u32::from(self.cols) / u32::from(VECTOR);
        if self.is_vector && vectors >= threads { VECTOR } else { 1 }
    }

    /// Returns true if elements next to each other in the tensor are so in a line.
    fn are_in_order(&self) -> bool {
        (self.along == Along::Rows) == self.is_left
    }

    pub(super) fn len(&self) -> u16 {
        self.steps * self.stride
    }
}

/// The places in panels that a thread reads, of the left and of the right factor.
pub(super) struct PanelReads {
    /// Memory of each panel, and elements from one line to the next.
    pub(super) panels: [(SharedId, u16); 2],
    /// Elements of the first line that the vectors at hand begin with.
    pub(super) firsts: [Vec<Value>; 2],
}

impl Tiles<'_> {
    /// Computes values of one lane before a loop, since copies ahead of the loop need them. Returns the rest of the
    /// loop's body, which has no others.
    pub(super) fn without_invariants(&self, body: Vec<Stmt>, out: &mut Vec<Stmt>) -> Vec<Stmt> {
        let is_invariant = |stmt: &Stmt| match stmt {
            Stmt::Let(value, _) => !self.definitions.contains_key(value),
            _ => false,
        };
        let (before, inside) = body.into_iter().partition(is_invariant);
        out.extend::<Vec<Stmt>>(before);
        inside
    }

    /// Starts the first copies of a loop over the depth of a product, which has so many bodies around it. Returns nothing
    /// for loops whose threads store panels.
    pub(super) fn pipelined(
        &mut self,
        (body, bodies): (&[Stmt], usize),
        (counter, start): (Value, Value),
        out: &mut Vec<Stmt>,
    ) -> Option<Pipeline> {
        let product = body.iter().find_map(|stmt| match stmt {
            Stmt::Let(_, Expr::Product(_, left, right)) => Some([*left, *right]),
            _ => None,
        });
        let factors = product.filter(|_| self.panels.are_copied())?;
        let Type { dtype, lanes: Lanes::Tile(_, depth) } = self.types[factors[0].0 as usize] else {
            unreachable!("a factor is a tile")
        };
        let memory = self.memory_at_launch(dtype);
        let (left, len) = self.panel((factors[0], true), (memory, 0), out);
        let (right, more) = self.panel((factors[1], false), (memory, len), out);
        let (stage_len, panels) = (len + more, [left, right]);
        for (factor, panel) in factors.into_iter().zip(&panels) {
            for (elements, _) in &panel.copy.elements {
                self.hoist_operands((factor, elements.first()), bodies, out);
            }
        }
        let stage = self.builder(out).index(0);
        let pipeline = Pipeline { memory, panels, stage_len, counter, depth, ahead: None, stage };
        // Other threads may still read the panels of the tile before.
        out.push(Stmt::Barrier(Scope::Block));
        for stage in 0..PANEL_STAGES - 1 {
            let mut b = self.builder(out);
            let (ahead, place) = (plus(&mut b, start, stage * depth), b.index((stage * stage_len).into()));
            self.fill(&pipeline, (ahead, place), out);
        }
        Some(pipeline)
    }

    /// Returns the memory of the team as an array of elements of this type.
    pub(super) fn memory_at_launch(&mut self, dtype: DType) -> SharedId {
        let array = Shared { dtype, len: SharedLen::AtLaunch };
        let known = self.shared.iter().position(|shared| *shared == array);
        if known.is_none() {
            self.shared.push(array);
        }
        SharedId(known.unwrap_or(self.shared.len() - 1) as u16)
    }

    /// Prepares the panel of a factor, which starts at the element `start` of each stage. Returns the panel and the
    /// number of its elements.
    fn panel(
        &mut self,
        (factor, is_left): (Value, bool),
        (memory, start): (SharedId, u16),
        out: &mut Vec<Stmt>,
    ) -> (Panel, u16) {
        let Some(Definition { expr: Expr::LoadWhere(from, mask), .. }) =
            self.definitions.get(&factor).cloned()
        else {
            unreachable!("copied panels are read from memory")
        };
        if let Some(warp) = self.warp {
            return self.panel_of_matrices((factor, is_left), (from, mask), (memory, start), warp, out);
        }
        let lines = self.lines(factor, is_left);
        let width = if lines.is_vector && lines.are_in_order() {
            (ASYNC_COPY_BYTES / lines.dtype.size()) as u16
        } else {
            1
        };
        let copy = self.copy_of(&lines, (memory, start), width, out);
        let origin = self.builder(out).index(start.into());
        (Panel { from, mask, copy, along_depth: false, origin }, lines.len())
    }

    /// Finds the lines of a factor's panel.
    pub(super) fn lines(&self, factor: Value, is_left: bool) -> Lines {
        let Type { dtype, lanes: Lanes::Tile(rows, cols) } = self.types[factor.0 as usize] else {
            unreachable!("a factor is a tile")
        };
        let along = self.contiguous(factor).unwrap_or(Along::Cols);
        let is_vector = self.reads_vectors(factor, along);
        let (steps, len) = if is_left { (cols, rows) } else { (rows, cols) };
        Lines { dtype, rows, cols, is_left, along, is_vector, steps, stride: len + LINE_PADDING }
    }

    /// Prepares the copy of a factor to shared memory by the threads, once for all of its steps.
    pub(super) fn copy(&mut self, factor: Value, is_left: bool, out: &mut Vec<Stmt>) -> Copy {
        if let Some(known) = self.copies.get(&factor) {
            return known.clone();
        }
        let lines = self.lines(factor, is_left);
        self.shared.push(Shared { dtype: lines.dtype, len: SharedLen::Fixed(lines.len().into()) });
        let memory = SharedId(self.shared.len() as u16 - 1);
        let copy = self.copy_of(&lines, (memory, 0), lines.width(self.threads), out);
        self.copies.insert(factor, copy.clone());
        copy
    }

    /// Shares the elements of a panel between the threads, `width` elements next to each other at a time.
    pub(super) fn copy_of(
        &mut self,
        lines: &Lines,
        (memory, start): (SharedId, u16),
        width: u16,
        out: &mut Vec<Stmt>,
    ) -> Copy {
        let &Lines { rows, cols, is_left, along, stride, .. } = lines;
        let (thread, threads) = (self.thread, self.threads as u16);
        let each = if along == Along::Rows { rows } else { cols } / width;
        let is_across = self.panels.are_copied() && width == 1 && !lines.are_in_order();
        let has_squares = u32::from(each) > SQUARE && self.threads >= WARP * u32::from(each) / SQUARE;
        let mut b = self.builder(out);
        let (line, number) = if is_across && has_squares {
            in_squares(&mut b, thread, each)
        } else {
            divided(&mut b, thread, each)
        };
        let first = times(&mut b, number, width);
        let mut elements = Vec::new();
        for copied in (0..rows / width * cols).step_by(threads.into()) {
            let (line, place) =
                (plus(&mut b, line, copied / each), plus(&mut b, first, copied % each * width));
            let (row, col) = if along == Along::Rows { (place, line) } else { (line, place) };
            let (step, other) = if is_left { (col, row) } else { (row, col) };
            let step = times(&mut b, step, stride);
            let place = b.apply(Op::Add, &[step, other]);
            let along = (width > 1).then_some(along);
            elements.push((Elements { row, col, along }, plus(&mut b, place, start)));
        }
        // Elements of a vector along the depth are on different lines.
        let apart = if lines.are_in_order() { 1 } else { stride };
        Copy { memory, stride, apart, elements }
    }

    /// Computes the elements of factors and stores them in their panels.
    pub(super) fn store_panels<const N: usize>(&mut self, factors: [(Value, &Copy); N], out: &mut Vec<Stmt>) {
        for (factor, copy) in factors {
            for &(elements, place) in &copy.elements {
                let made = self.vector(factor, elements, out);
                let mut b = self.builder(out);
                if copy.apart == 1 || elements.along.is_none() {
                    b.body.push(Stmt::StoreShared(copy.memory, place, made));
                    continue;
                }
                let one = Type { lanes: Lanes::ONE, ..b.ty(made) };
                for lane in 0..VECTOR {
                    let element = b.bind(one, Expr::Lane(made, lane as u8));
                    let place = plus(&mut b, place, lane * copy.apart);
                    b.body.push(Stmt::StoreShared(copy.memory, place, element));
                }
            }
        }
    }

    /// Starts the copies of the panels at a step of the depth to a stage.
    fn fill(&mut self, pipeline: &Pipeline, (step, stage): (Value, Value), out: &mut Vec<Stmt>) {
        let (known, around) = (self.known.clone(), self.pipeline.take());
        self.pipeline = Some(Pipeline { ahead: Some(step), ..pipeline.clone() });
        for Panel { from, mask, copy, .. } in &pipeline.panels {
            for &(elements, place) in &copy.elements {
                let [index, mask] = [from.index, *mask].map(|of| self.element(of, elements.first(), out));
                let place = self.builder(out).apply(Op::Add, &[place, stage]);
                let from = Address { index, aligned: elements.along.is_some(), ..*from };
                out.push(Stmt::AsyncCopy(AsyncCopy::Start(from, copy.memory, place, mask)));
            }
        }
        out.push(Stmt::AsyncCopy(AsyncCopy::Commit));
        (self.known, self.pipeline) = (known, around);
    }

    /// Waits for the panels of an iteration, and starts the copies of a later one. Returns the stage, which iterations
    /// pass on.
    pub(super) fn advance(&mut self, out: &mut Vec<Stmt>) -> Option<Carried> {
        let mut pipeline = self.pipeline.clone()?;
        let Pipeline { stage_len, counter, depth, .. } = pipeline;
        out.push(Stmt::AsyncCopy(AsyncCopy::Wait(u32::from(PANEL_STAGES) - 2)));
        out.push(Stmt::Barrier(Scope::Block));
        let mut b = self.builder(out);
        let [stage, last] = [(); 2].map(|()| b.declare(INDEX));
        // The stage before the one at hand is free: all threads have read it.
        let (zero, len) = (b.index(0), b.index(stage_len.into()));
        let end = b.index(((PANEL_STAGES - 1) * stage_len).into());
        let [is_first, is_last] = [zero, end].map(|of| b.apply(Op::Eq, &[stage, of]));
        let [before, after] = [Op::Sub, Op::Add].map(|op| b.apply(op, &[stage, len]));
        let free = b.apply(Op::Select, &[is_first, end, before]);
        let next = b.apply(Op::Select, &[is_last, zero, after]);
        let ahead = plus(&mut b, counter, (PANEL_STAGES - 1) * depth);
        self.fill(&pipeline, (ahead, free), out);
        let start = std::mem::replace(&mut pipeline.stage, stage);
        self.pipeline = Some(pipeline);
        Some(Carried { start, var: stage, next, out: last })
    }

    /// Copies both factors to shared memory and adds their product to a sum.
    pub(super) fn product(&mut self, value: Value, [sum, left, right]: [Value; 3], out: &mut Vec<Stmt>) {
        if let Some(warp) = self.warp {
            return self.matrix_product(value, sum, warp, out);
        }
        if self.is_held(left) {
            return self.product_of_held(value, [sum, left, right], out);
        }
        let panels = self.pipeline.as_ref().map(|pipeline| (pipeline.stage, pipeline.panels.clone()));
        let (copies, starts) = match panels {
            Some((stage, panels)) => {
                let mut b = self.builder(out);
                let starts = panels.each_ref().map(|panel| b.apply(Op::Add, &[panel.origin, stage]));
                (panels.map(|panel| panel.copy), Some(starts))
            }
            None => {
                let copies = [(left, true), (right, false)].map(|(of, is_left)| self.copy(of, is_left, out));
                self.store_panels([(left, &copies[0]), (right, &copies[1])], out);
                out.push(Stmt::Barrier(Scope::Block));
                (copies, None)
            }
        };
        let Lanes::Tile(_, depth) = self.types[left.0 as usize].lanes else {
            unreachable!("a factor is a tile")
        };
        let vectors = self.elements_in(&self.held.rows, sum);
        let sums: Vec<Value> = vectors.iter().map(|&vector| self.vector(sum, vector, out)).collect();
        let (runs, cols) = (self.held.runs.clone(), self.cols(sum).to_vec());
        let mut b = self.builder(out);
        let mut from = |firsts: Vec<Value>, side: usize| match starts {
            Some(starts) => {
                firsts.into_iter().map(|first| b.apply(Op::Add, &[first, starts[side]])).collect()
            }
            None => firsts,
        };
        let firsts = [from(runs, 0), from(cols, 1)];
        let of = PanelReads { panels: copies.map(|copy| (copy.memory, copy.stride)), firsts };
        let sums = self.multiply(of, depth, sums, out);
        if starts.is_none() {
            // The next step overwrites the memory.
            out.push(Stmt::Barrier(Scope::Block));
        }
        for (vector, sum) in vectors.into_iter().zip(sums) {
            self.known.insert(self.key(value, vector), sum);
        }
    }

    /// Adds the products of a panel's steps to the sums of a thread.
    ///
    /// Many products are computed in a loop over some steps at a time. Stored panels leave no registers for such a loop,
    /// since their elements wait in registers.
    fn multiply(&mut self, of: PanelReads, depth: u16, sums: Vec<Value>, out: &mut Vec<Stmt>) -> Vec<Value> {
        let at_once = (PRODUCTS_MAX / (sums.len() * usize::from(VECTOR))).max(1) as u16;
        let steps = if self.panels.are_copied() { depth.min(at_once) } else { depth };
        if steps == depth {
            return self.multiply_steps(&of, depth, sums, out);
        }
        let mut b = self.builder(out);
        let ty = b.ty(sums[0]);
        let [start, end, step] = [0, depth, steps].map(|number| b.index(number.into()));
        let var = b.declare(INDEX);
        let mut inside = Vec::new();
        let mut b = self.builder(&mut inside);
        let mut after = |side: usize| {
            let ahead = times(&mut b, var, of.panels[side].1);
            of.firsts[side].iter().map(|&first| b.apply(Op::Add, &[first, ahead])).collect()
        };
        let of = PanelReads { firsts: [after(0), after(1)], ..of };
        let mut b = self.builder(out);
        let vars: Vec<Value> = sums.iter().map(|_| b.declare(ty)).collect();
        let next = self.multiply_steps(&of, steps, vars.clone(), &mut inside);
        let mut b = self.builder(out);
        let each = sums.into_iter().zip(vars).zip(next);
        let carried: Vec<Carried> =
            each.map(|((start, var), next)| Carried { start, var, next, out: b.declare(ty) }).collect();
        let outs = carried.iter().map(|one| one.out).collect();
        let kind = LoopKind::Serial;
        out.push(Stmt::Loop { var, kind, start, end, step, carried, body: inside });
        outs
    }

    /// Adds the products of so many steps.
    pub(super) fn multiply_steps(
        &mut self,
        of: &PanelReads,
        steps: u16,
        mut sums: Vec<Value>,
        out: &mut Vec<Stmt>,
    ) -> Vec<Value> {
        let run = self.shape.run;
        let mut b = self.builder(out);
        let ty = b.ty(sums[0]);
        for step in 0..steps {
            let mut load = |side: usize, lanes: u16| -> Vec<Value> {
                let (memory, stride) = of.panels[side];
                let one = |&first: &Value| {
                    let place = plus(&mut b, first, step * stride);
                    b.bind(Type { lanes: Lanes::Const(lanes as u8), ..ty }, Expr::LoadShared(memory, place))
                };
                of.firsts[side].iter().map(one).collect()
            };
            let (rows, cols) = (load(0, run), load(1, VECTOR));
            let mut sums = sums.iter_mut();
            for &rows in &rows {
                for lane in 0..run {
                    let row = if run == 1 {
                        rows
                    } else {
                        b.bind(Type { lanes: Lanes::ONE, ..ty }, Expr::Lane(rows, lane as u8))
                    };
                    for (&col, sum) in cols.iter().zip(&mut sums) {
                        *sum = with_product(&mut b, *sum, [row, col]);
                    }
                }
            }
        }
        sums
    }
}

/// Returns the line and the number in it of the first element that a thread copies to other lines.
///
/// A warp copies `SQUARE` elements next to each other of as many lines as it has threads for. Elements of a line are on
/// lines of the panel that are `LINE_PADDING` banks apart, so all of them are in different banks.
fn in_squares(b: &mut Builder<'_>, thread: Value, each: u16) -> (Value, Value) {
    let (across, lines) = (each / SQUARE as u16, (WARP / SQUARE) as u16);
    let (above, low) = divided(b, thread, SQUARE as u16);
    let (above, line) = divided(b, above, lines);
    let (above, number) = divided(b, above, across);
    let (above, number) = (times(b, above, lines), times(b, number, SQUARE as u16));
    (b.apply(Op::Add, &[above, line]), b.apply(Op::Add, &[number, low]))
}

/// Adds the product of two factors to a sum, with one rounding. Integers wrap.
fn with_product(b: &mut Builder<'_>, sum: Value, factors: [Value; 2]) -> Value {
    if b.ty(sum).dtype.is_float() {
        return b.apply(Op::Fma, &[factors[0], factors[1], sum]);
    }
    let product = b.apply(Op::Mul, &factors);
    b.apply(Op::Add, &[product, sum])
}
