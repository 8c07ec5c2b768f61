//! Contractions on GPUs: a team computes each tile in a loop over the depth, and the elements of the group from
//! the finished tile.
//!
//! Operands of any layout, prologues and epilogues are computed like the elements of a pointwise kernel, but
//! from the rows, columns and steps of a tile. Only `legalize` knows how threads share a tile. Elements of a
//! factor outside of its tensors are 0 after its prologue, and elements of a tile outside of the space are not
//! stored.

mod numbers;

use super::super::body::{Addressing, Body, Level, Place, is_large};
use super::super::space::{SpaceDim, bytes, dims_along, product, width_conditions, widths};
use super::super::{Config, Scheduled, Scratch, Work};
use super::{Direction, Partials, Product};
use crate::fuse::{Load, Store};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{Access, AxisId, Math, NodeId, NodeKind};
use crate::ir::kernel::{
    ASYNC_COPY_BYTES, Address, BufferId, Carried, Expr, IndexWidth, Lanes, LoopKind, Panels, Scope, Stmt,
    ThreadMap, Type, Value,
};
use crate::ir::op::Op;
use crate::ir::plan::{Condition, Footprint, Space, UniformArg};
use crate::target::{PANEL_BYTES, TargetFacts, TileShape};
pub(super) use numbers::{Coordinates, Numbers, Role, Side};

const INDEX: Type = Type { dtype: DType::Index, lanes: Lanes::ONE };

/// Largest alignment of the start of a binding that a device may ask for, in bytes.
const BINDING_ALIGN: i64 = 256;

/// Lanes of an access to elements next to each other.
const VECTOR: i64 = 4;

/// A variant of the kernel.
#[derive(Clone, Copy)]
pub(super) struct TileConfig {
    pub(super) shape: TileShape,
    pub(super) index: IndexWidth,
    /// True if elements next to each other are aligned vectors.
    pub(super) aligned: bool,
    /// True if the halves of large operands are bound by themselves.
    pub(super) halved: bool,
}

/// Returns the configs that compute a product and its elements in tiles, in order of preference.
pub(super) fn tiles(
    of: &Product,
    work: &Work<'_>,
    facts: &TargetFacts,
    (shapes, scratch): (&[TileShape], &mut Vec<Scratch>),
) -> Vec<Config> {
    if let Some(Partials::Stores(partials)) = work.partials
        && partials.is_alone
        && let Some(&shape) = shapes.last()
    {
        return partials.reduced(of, work).configs(facts, shape);
    }
    let size = work.graph.node(of.sum).dtype.size();
    let shapes: Vec<TileShape> = shapes.iter().filter(|shape| size <= shape.size_max).copied().collect();
    let last = shapes[shapes.len() - 1];
    let config = |shape, index, aligned| TileConfig { shape, index, aligned, halved: false };
    let matrices = of.matrices(work);
    // Panels have as many bytes along the depth for each dtype.
    let of_dtype = |shape: TileShape| match matrices {
        Some(dtype) if shape.panels == Panels::Matrices => {
            TileShape { depth: PANEL_BYTES / dtype.size() as u16, ..shape }
        }
        _ => shape,
    };
    // Operands that need wide positions are rare, so one kernel is enough for them. The last shape is enough for
    // narrow floats on devices without products of matrices.
    let has_elements = matrices.is_none_or(|dtype| dtype == DType::F32);
    let fits = |shape: &&TileShape| match shape.panels {
        Panels::Matrices => matrices.is_some(),
        Panels::Copied => matrices.is_none() && of.is_copied(work),
        Panels::Stored => has_elements || **shape == last,
    };
    let narrow: Vec<TileShape> = shapes.iter().filter(fits).copied().map(of_dtype).collect();
    // The smallest tiles give the most teams.
    let smallest = [Panels::Matrices, Panels::Copied, Panels::Stored].map(|panels| {
        let of_kind = narrow.iter().filter(|shape| has_elements || shape.panels != Panels::Stored);
        of_kind.rev().find(|shape| shape.panels == panels)
    });
    // Parts of the depth store no partial results, and reductions ask for the conditions of all tiles.
    let parts = facts.contractions.parts.filter(|_| !matches!(work.partials, Some(Partials::Stores(_))));
    let parts = parts.into_iter();
    let parts = parts.flat_map(|parts| smallest.into_iter().flatten().map(move |shape| (parts, *shape)));
    let by_parts: Vec<Config> = parts
        .filter_map(|(parts, shape)| {
            of.by_parts(work, facts, (config(shape, IndexWidth::Bits32, true), parts), scratch)
        })
        .collect();
    let halved = TileConfig { halved: true, ..config(last, IndexWidth::Bits32, false) };
    let halved = (!to_halve(work, facts).is_empty()).then_some(halved);
    let configs = widths(work, facts).into_iter().flat_map(|index| {
        let aligned = narrow.iter().filter(move |_| index == IndexWidth::Bits32);
        let aligned = aligned.map(|&shape| config(shape, index, true)).collect::<Vec<_>>();
        aligned.into_iter().chain([config(last, index, false)])
    });
    let whole = configs.chain(halved).map(|config| vec![Tiled::new(of, work, facts, config).scheduled()]);
    by_parts.into_iter().chain(whole).collect()
}

impl Product {
    /// Returns the dtype of the factors if both are read as floats that tensor cores multiply, with contiguous elements
    /// along one side of their tiles. Only `fast_math` rounds factors of `f32` to fewer bits.
    pub(super) fn matrices(&self, work: &Work<'_>) -> Option<DType> {
        let sides = [(self.left, &self.rows), (self.right, &self.cols)];
        let dtypes = sides.map(|(factor, own)| {
            let operand = &work.operands[usize::from(matrix_operand(work, factor)?.0)];
            let inner = operand.axes.last()?;
            let side = [own, &self.depth].into_iter().find(|side| side.contains(inner))?;
            let is_line =
                dims_along(work, side).len() == 1 && !operand.moved && operand.interleave_axis.is_none();
            let dtype = operand.dtype;
            let is_multiplied = match dtype {
                DType::F16 | DType::BF16 => true,
                DType::F32 => work.graph.math == Math::Fast,
                _ => false,
            };
            (is_line && is_multiplied).then_some(dtype)
        });
        let is_sum = work.graph.node(self.sum).dtype == DType::F32 && dtypes[0] == dtypes[1];
        dtypes[0].filter(|_| is_sum)
    }

    /// Returns true if both factors are read as they are, in elements that asynchronous copies have.
    fn is_copied(&self, work: &Work<'_>) -> bool {
        [self.left, self.right].into_iter().all(|factor| {
            let dtype = work.graph.node(factor).dtype;
            let operand = matrix_operand(work, factor).map(|id| &work.operands[usize::from(id.0)]);
            let is_plain = operand.is_some_and(|operand| operand.dtype == dtype && !operand.moved);
            is_plain && dtype.size() >= 4
        })
    }
}

/// Returns the operands whose halves a kernel binds by themselves where they are large, as far as a device has
/// bindings.
pub(super) fn to_halve(work: &Work<'_>, facts: &TargetFacts) -> Vec<BufferId> {
    // A kernel stores the elements of each half by themselves, so it would read elements that it has stored.
    let updates = work.operands.iter().any(|operand| operand.access == Access::ReadWrite);
    if !facts.rebased || updates {
        return vec![];
    }
    let operands = (0..).map(BufferId).zip(&work.operands);
    let large = operands.filter(|(_, operand)| operand.axes.len() > 1 && is_large(work, operand));
    let left = facts.buffers_max.saturating_sub(work.operands.len());
    large.map(|(id, _)| id).take(left).collect()
}

/// Returns the most bytes of a binding for half of a tensor, wherever the tensor starts in its buffer.
fn half_bytes(bytes: DimExpr) -> DimExpr {
    bytes.ceil_div(DimExpr::constant(2)) + DimExpr::constant(2 * BINDING_ALIGN)
}

/// Returns the node whose elements a factor has, apart from a conversion.
fn unconverted(work: &Work<'_>, factor: NodeId) -> NodeId {
    let node = work.graph.node(factor);
    if node.kind == NodeKind::Cast { node.args[0] } else { factor }
}

/// Returns the operand that a factor is read from or widens, if it does nothing else.
fn matrix_operand(work: &Work<'_>, factor: NodeId) -> Option<BufferId> {
    let of = unconverted(work, factor);
    let load = match work.graph.node(of).kind {
        NodeKind::Input(param) => Load::Param(param),
        _ => Load::Stored(of),
    };
    work.loads.get(&load).copied()
}

/// A kernel that computes tiles.
pub(super) struct Tiled<'w> {
    of: &'w Product,
    pub(super) work: &'w Work<'w>,
    pub(super) facts: &'w TargetFacts,
    pub(super) config: TileConfig,
    /// Steps of the depth in a part, if the first axis of the batch counts parts.
    part_len: Option<i64>,
    /// Dims of the axes in each role.
    pub(super) dims: [Vec<SpaceDim>; 5],
}

impl<'w> Tiled<'w> {
    pub(super) fn new(
        of: &'w Product,
        work: &'w Work<'w>,
        facts: &'w TargetFacts,
        config: TileConfig,
    ) -> Tiled<'w> {
        let axes: [&[AxisId]; 5] = [&of.batch, &of.rows, &of.cols, &of.depth, &[]];
        let dims = axes.map(|axes| dims_along(work, axes));
        Tiled { of, work, facts, config, part_len: None, dims }
    }

    /// Gives the scores of attention a depth.
    pub(super) fn of_scores(mut self, scores: &Product) -> Tiled<'w> {
        self.dims[Role::Further as usize] = dims_along(self.work, &scores.depth);
        self
    }

    pub(super) fn dims(&self, role: Role) -> &[SpaceDim] {
        &self.dims[role as usize]
    }

    /// Gives each tile a part of the depth with so many steps. The first axis of the batch counts parts.
    pub(super) fn of_parts(self, len: i64) -> Tiled<'w> {
        Tiled { part_len: Some(len), ..self }
    }

    pub(super) fn scheduled(&self) -> Scheduled {
        let shape = self.config.shape;
        let all = self.dims.concat();
        let mut body = self.body(&all, "tiles");
        body.set_threads(ThreadMap { team: shape.threads, panels: shape.panels, ..ThreadMap::ALONE });
        let start = body.uniform(UniformArg::Start, DType::Index, "start");
        let end = body.uniform(UniformArg::End, DType::Index, "end");
        let tile = body.top().declare(INDEX);
        let (number, batch, [row, col]) = self.decode(&mut body, tile);
        let of_rows = (row, self.dims(Role::Rows));
        let rows = Numbers::new(&mut body, Level::Item, of_rows, (Side::Rows, shape.rows));
        let of_cols = (col, self.dims(Role::Cols));
        let cols = Numbers::new(&mut body, Level::Item, of_cols, (Side::Cols, shape.cols));
        let of_product = (self.of, Role::Depth, shape.depth);
        let numbers = [(Role::Rows, &rows), (Role::Cols, &cols)];
        let (stmts, sum) = self.depth_loop(&mut body, of_product, (tile, &batch), numbers);
        body.item.extend(stmts);
        body.set_of_row(self.of.sum, sum);
        let coordinates = [
            (Role::Batch, batch.as_slice()),
            (Role::Rows, &rows.coordinates),
            (Role::Cols, &cols.coordinates),
        ];
        let place = self.place(&mut body, tile, &coordinates);
        self.store(&mut body, &place, [rows.within, cols.within], |_| true);
        self.combine_parts(&mut body, (number, [row, col]));
        let inside = std::mem::take(&mut body.item);
        let (step, kind) = (body.top().index(1), LoopKind::Team);
        body.push(Stmt::Loop { var: tile, kind, start, end, step, carried: vec![], body: inside });
        self.finished(body)
    }

    /// Returns the body of a kernel of tiles, without statements.
    pub(super) fn body<'b>(&'b self, dims: &'b [SpaceDim], what: &str) -> Body<'b> {
        let sight = (self.config.index, Addressing::Whole);
        let mut body = Body::new(self.work, self.facts, dims, self.name(what), sight);
        body.halve(&self.halved());
        body.aligned = self.config.aligned;
        body
    }

    fn name(&self, what: &str) -> String {
        let TileConfig { shape, index, aligned, halved } = self.config;
        let vector = match aligned {
            true => match shape.panels {
                Panels::Matrices => "_matrices".into(),
                Panels::Copied => format!("_v{VECTOR}_copied"),
                Panels::Stored => format!("_v{VECTOR}"),
            },
            false => String::new(),
        };
        let wide = if index == IndexWidth::Bits64 { "_wide" } else { "" };
        let halved = if halved { "_halved" } else { "" };
        format!("{}_{what}{}x{}{vector}{wide}{halved}", self.work.name, shape.rows, shape.cols)
    }

    /// Returns the number of a tile's product, its coordinates, and the first row and column of the tile.
    pub(super) fn decode(&self, body: &mut Body<'_>, tile: Value) -> (Option<Value>, Vec<Value>, [Value; 2]) {
        let batch = self.dims(Role::Batch);
        let [down, across] = self.tiles_per_product().map(|count| body.extent(&count));
        let (above, col) = body.divide(Level::Item, tile, across);
        let (number, coordinates, row) = if batch.is_empty() {
            (None, vec![], above)
        } else {
            let (product, row) = body.divide(Level::Item, above, down);
            (Some(product), body.decoded(Level::Item, product, batch), row)
        };
        let mut b = body.item();
        let [height, width] = [self.config.shape.rows, self.config.shape.cols].map(|len| b.index(len.into()));
        let row = b.apply(Op::Mul, &[row, height]);
        (number, coordinates, [row, b.apply(Op::Mul, &[col, width])])
    }

    /// Returns the numbers of tiles along the rows and along the columns of one product.
    fn tiles_per_product(&self) -> [DimExpr; 2] {
        let [_, rows, cols, ..] = &self.dims;
        let TileShape { rows: height, cols: width, .. } = self.config.shape;
        let count = |dims: &[SpaceDim], len: u16| product(dims).ceil_div(DimExpr::constant(len.into()));
        let across = count(cols, width);
        let is_of_row = |store: &Store| self.of.cols.iter().any(|axis| !store.order.contains(axis));
        // Rows have results of their own even without columns.
        let across = if self.work.group.stores.iter().any(is_of_row) {
            let one = DimExpr::constant(1);
            across.clone() + one.clone() - across.min(one)
        } else {
            across
        };
        [count(rows, height), across]
    }

    /// Returns the place with these coordinates, which the body is at then. Nothing is read along dims without coordinates.
    pub(super) fn place(&self, body: &mut Body<'_>, tile: Value, coordinates: &[Coordinates<'_>]) -> Place {
        let roles = self.dims.iter().enumerate().flat_map(|(role, dims)| dims.iter().map(move |_| role));
        let is_given = |role: usize| coordinates.iter().any(|(given, _)| *given as usize == role);
        body.absent = roles.enumerate().filter(|(_, role)| !is_given(*role)).map(|(i, _)| i).collect();
        let mut all = vec![tile; self.dims.iter().map(Vec::len).sum()];
        for &(role, of) in coordinates {
            let before: usize = self.dims[..role as usize].iter().map(Vec::len).sum();
            all[before..before + of.len()].copy_from_slice(of);
        }
        let TileShape { rows, cols, .. } = self.config.shape;
        let lanes = Lanes::Tile(rows, cols);
        Place { element: tile, coordinates: all, lanes, apart: true, in_row: None }
    }

    /// Returns a loop over the depth that adds up the products of a tile, `len` steps at a time, and their sum.
    pub(super) fn depth_loop(
        &self,
        body: &mut Body<'_>,
        (of, depth, len): (&Product, Role, u16),
        (tile, batch): (Value, &[Value]),
        [rows, cols]: [(Role, &Numbers); 2],
    ) -> (Vec<Stmt>, Value) {
        let depth_dims = self.dims(depth);
        let step = body.top().declare(INDEX);
        let mut inside = Vec::new();
        // Steps are the columns of the left factor, and the rows of the right one.
        let mut factor = |node: NodeId, (role, own): (Role, &Numbers), of_depth: Side| {
            let steps = Numbers::new(body, Level::Inner, (step, depth_dims), (of_depth, len));
            let coordinates =
                [(Role::Batch, batch), (role, own.coordinates.as_slice()), (depth, &steps.coordinates)];
            let place = self.place(body, tile, &coordinates);
            let value = self.factor(body, (node, [own, &steps]), &place);
            inside.extend(body.take_inner());
            value
        };
        let nodes = [of.left, of.right];
        // Matrices have the elements as they are read.
        let [left, right] = if self.config.shape.panels == Panels::Matrices {
            nodes.map(|node| unconverted(self.work, node))
        } else {
            nodes
        };
        let (left, right) = (factor(left, rows, Side::Cols), factor(right, cols, Side::Rows));
        let dtype = self.work.graph.node(of.sum).dtype;
        let ty = Type { dtype, lanes: Lanes::Tile(rows.1.count, cols.1.count) };
        let mut b = body.writer(&mut inside);
        let [var, out] = [(); 2].map(|()| b.declare(ty));
        let next = b.bind(ty, Expr::Product(var, left, right));
        let end = body.extent(&product(depth_dims));
        let mut top = body.top();
        let zero = top.constant(dtype, Const::zero(dtype));
        let (first, by) = (top.index(0), top.index(len.into()));
        let part = self.part_len.filter(|_| depth == Role::Depth);
        let (first, end) = part.map_or((first, end), |len| self.part(body, (batch[0], len), end));
        let mut stmts = Vec::new();
        let zeros = body.writer(&mut stmts).bind(ty, Expr::Splat(zero));
        let carried = vec![Carried { start: zeros, var, next, out }];
        let kind = LoopKind::Serial;
        stmts.push(Stmt::Loop { var: step, kind, start: first, end, step: by, carried, body: inside });
        (stmts, out)
    }

    /// Returns the first step of a part of the depth, and the step after its last one.
    fn part(&self, body: &mut Body<'_>, (number, len): (Value, i64), depth: Value) -> (Value, Value) {
        let mut b = body.item();
        let len = b.index(len);
        let first = b.apply(Op::Mul, &[number, len]);
        let end = b.apply(Op::Add, &[first, len]);
        (first, b.apply(Op::Min, &[end, depth]))
    }

    /// Returns the elements of a factor, and 0 outside of these rows and columns.
    pub(super) fn factor(
        &self,
        body: &mut Body<'_>,
        (node, of): (NodeId, [&Numbers; 2]),
        place: &Place,
    ) -> Value {
        body.masks = of.map(|numbers| numbers.within).into();
        let value = body.value(node, &vec![], place);
        // A factor without rows or columns is the same in all of them.
        let lanes =
            of.iter().try_fold(Lanes::ONE, |all, numbers| all.broadcast(body.top().ty(numbers.within).lanes));
        if self.is_read(body, node) && lanes == Some(body.top().ty(value).lanes) {
            return value;
        }
        let dtype = self.work.graph.node(node).dtype;
        let zero = body.top().constant(dtype, Const::zero(dtype));
        let masks = body.masks.clone();
        let mut b = body.inner();
        let within = b.apply(Op::And, &masks);
        b.apply(Op::Select, &[within, value, zero])
    }

    /// Returns true if a factor is read from memory and widened at most.
    fn is_read(&self, body: &Body<'_>, id: NodeId) -> bool {
        let node = self.work.graph.node(id);
        body.is_read(id) || node.kind == NodeKind::Cast && self.is_read(body, node.args[0])
    }

    /// Stores elements of a tile inside of the space: those of some stores of the group.
    pub(super) fn store(
        &self,
        body: &mut Body<'_>,
        place: &Place,
        within: [Value; 2],
        is_stored: impl Fn(&Store) -> bool,
    ) {
        body.masks = within.into();
        let mut stores = Vec::new();
        let all = self.work.group.stores.iter().zip(&self.work.stores);
        for (store, &buffer) in all.filter(|(store, _)| is_stored(store)) {
            let value = body.value(store.node, &vec![], place);
            let at = body.position(buffer, Level::Item, (&vec![], Lanes::ONE), place);
            stores.push((Address { aligned: self.config.aligned, ..at }, value));
        }
        // Columns may be coordinates of the depth elsewhere.
        let inner = body.take_inner();
        body.item.extend(inner);
        let cond = body.item().apply(Op::And, &within);
        // A result without rows or columns has the same place in all of them.
        for (at, _) in &mut stores {
            let mut b = body.item();
            if b.ty(at.index).lanes != b.ty(cond).lanes {
                at.index = b.apply(Op::Select, &[cond, at.index, at.index]);
            }
        }
        let (mut whole, mut halves) = (Vec::new(), Vec::new());
        for (at, value) in stores {
            match body.halves(Level::Item, at) {
                None => whole.push(Stmt::Store(at, value)),
                Some(both) => halves.extend(both.map(|(at, in_half)| {
                    let cond = body.item().apply(Op::And, &[cond, in_half]);
                    Stmt::If { cond, body: vec![Stmt::Store(at, value)] }
                })),
            }
        }
        if !whole.is_empty() {
            body.item.push(Stmt::If { cond, body: whole });
        }
        body.item.extend(halves);
    }

    /// Combines parts of the rows or columns of a tile, if reductions read what parts give. The team reads the elements
    /// that it has stored.
    fn combine_parts(&self, body: &mut Body<'_>, (of, [row, col]): (Option<Value>, [Value; 2])) {
        let Some(Partials::Stores(partials)) = self.work.partials.filter(|_| self.stores_partials()) else {
            return;
        };
        let TileShape { rows: height, cols: width, threads, .. } = self.config.shape;
        let lanes = if self.config.aligned { VECTOR as u8 } else { 1 };
        let kernel = partials.by_team(self.facts, threads, (self.config.index, lanes));
        let (count, len) = partials.parts();
        let [_, rows, cols, ..] = &self.dims;
        // Parts go along one side of the tile, and the other side has as many results.
        let ((along, most_along), (other, most, extent)) = match partials.direction {
            Direction::AlongCols => ((col, width), (row, height, product(rows))),
            Direction::AlongRows => ((row, height), (col, width, product(cols))),
        };
        let [extent, parts, len] = [&extent, &count, &len].map(|extent| body.extent(extent));
        let (one, most) = (body.top().index(1), body.top().index(most.into()));
        let (first, end) = {
            let mut b = body.item();
            let most = b.index(most_along.into());
            let past = b.apply(Op::Add, &[along, most]);
            let [first, last] = [along, past].map(|at| b.apply(Op::IntDiv, &[at, len]));
            (first, b.apply(Op::Min, &[last, parts]))
        };
        let (var, mut inside) = (body.top().declare(INDEX), Vec::new());
        let mut b = body.writer(&mut inside);
        // Results of one part of one product lie next to each other.
        let before = of.map_or(var, |product| {
            let before = b.apply(Op::Mul, &[product, parts]);
            b.apply(Op::Add, &[before, var])
        });
        let before = b.apply(Op::Mul, &[before, extent]);
        let start = b.apply(Op::Add, &[before, other]);
        let left = b.apply(Op::Sub, &[extent, other]);
        let count = b.apply(Op::Min, &[left, most]);
        let last = b.apply(Op::Add, &[start, count]);
        body.set_threads(kernel.kernel.threads);
        inside.push(body.append_rows((kernel.kernel, &kernel.buffers), (start, last)));
        body.item.push(Stmt::Barrier(Scope::Team));
        let kind = LoopKind::Serial;
        body.item.push(Stmt::Loop { var, kind, start: first, end, step: one, carried: vec![], body: inside });
    }

    /// Returns true if the kernel combines parts of rows for reductions. Halves of tensors are only stored.
    fn stores_partials(&self) -> bool {
        let is_asked = matches!(self.work.partials, Some(Partials::Stores(_)));
        is_asked && self.part_len.is_none() && !self.config.halved
    }

    pub(super) fn finished(&self, body: Body<'_>) -> Scheduled {
        let when = self.conditions();
        let (mut kernel, mut buffers) = body.finish();
        // A tile is a box of the space.
        for (buffer, arg) in kernel.buffers.iter_mut().zip(&mut buffers) {
            buffer.strided = false;
            if !matches!(arg.footprint, Footprint::LowerHalf | Footprint::UpperHalf) {
                arg.footprint = Footprint::Whole;
            }
        }
        let batch = self.dims(Role::Batch);
        let [down, across] = self.tiles_per_product();
        let TileShape { rows, cols, .. } = self.config.shape;
        let space = Space {
            rows: product(batch) * down * across,
            cols: DimExpr::constant(1),
            grain: 1,
            grain_min: 1,
            each: DimExpr::constant(i64::from(rows) * i64::from(cols)),
        };
        let bytes = self.launch_bytes();
        Scheduled { row_memory: DimExpr::constant(bytes), ..Scheduled::new(when, (kernel, buffers), space) }
    }

    /// Returns the operands whose halves are bound by themselves.
    pub(super) fn halved(&self) -> Vec<BufferId> {
        if self.config.halved { to_halve(self.work, self.facts) } else { vec![] }
    }

    /// Returns the bytes of shared memory whose size is set at launch.
    fn launch_bytes(&self) -> i64 {
        self.config.shape.launch_bytes(self.work.graph.node(self.of.left).dtype.size())
    }

    fn conditions(&self) -> Vec<Condition> {
        let Tiled { work, facts, config, .. } = self;
        let [batch, rows, cols, ..] = &self.dims;
        let mut when = width_conditions(work, facts, config.index);
        if config.shape.elements_min > 0 && self.part_len.is_none() {
            let elements = product(batch) * product(rows) * product(cols);
            when.push(Condition::AtLeast(elements, config.shape.elements_min));
        }
        if config.aligned {
            let axes = self.innermost().into_iter();
            when.extend(axes.map(|(axis, of)| Condition::Divides(work.graph.axis(axis).extent.clone(), of)));
        }
        if config.shape.panels.are_copied() {
            when.push(Condition::Arch(80));
            when.push(Condition::Shares(DimExpr::constant(self.launch_bytes())));
        }
        if facts.rebased {
            let (halved, operands) = (self.halved(), (0..).map(BufferId).zip(&work.operands));
            let tensors = operands.filter(|(_, operand)| !operand.axes.is_empty());
            when.extend(tensors.map(|(id, operand)| {
                let bytes = bytes(work.graph, operand);
                Condition::Binds(if halved.contains(&id) { half_bytes(bytes) } else { bytes })
            }));
        }
        when.retain(|condition| condition.known() != Some(true));
        when.dedup();
        when
    }

    /// Returns the innermost axes of the tensors that a tile has several elements of, each once, with the lanes of
    /// accesses along them.
    fn innermost(&self) -> Vec<(AxisId, i64)> {
        let mut all: Vec<(AxisId, i64)> = Vec::new();
        let factors = [self.of.left, self.of.right].map(|node| matrix_operand(self.work, node));
        for (i, operand) in self.work.operands.iter().enumerate() {
            // An axis with one coordinate leaves the elements along the next axis contiguous.
            let is_single = |axis: &&AxisId| self.work.graph.axis(**axis).extent.as_const() == Some(1);
            let Some(&axis) = operand.axes.iter().rev().find(|axis| !is_single(axis)) else { continue };
            // Results of rows are stored one by one.
            let has_cols = operand.axes.iter().any(|axis| self.of.cols.contains(axis));
            if operand.access == Access::Write && !has_cols {
                continue;
            }
            let is_matrix =
                self.config.shape.panels == Panels::Matrices && factors.contains(&Some(BufferId(i as u16)));
            let lanes = if is_matrix { (ASYNC_COPY_BYTES / operand.dtype.size()) as i64 } else { VECTOR };
            match all.iter_mut().find(|(known, _)| *known == axis) {
                Some((_, most)) => *most = lanes.max(*most),
                None if self.of.batch.contains(&axis) => {}
                None => all.push((axis, lanes)),
            }
        }
        all
    }
}
