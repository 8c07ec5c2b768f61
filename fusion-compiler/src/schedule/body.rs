//! The body of a kernel: the nodes of a group as statements, at the outermost level where each can stand.
//!
//! Three levels grow side by side: `top` (once per thread), `item` (once per run of lanes) and `inner` (per
//! lane). A value goes where its axes put it, so what is constant along a row is computed once a row. Stores come
//! after everything that is computed, so that an in-place parameter is read before it is written.

mod append;
mod tile;

use rustc_hash::{FxHashMap, FxHashSet};

use super::combine::{of_rows, written_out};
use super::space::{SpaceDim, bytes, footprint};
use super::staged_buffer::StagedBuffers;
use super::{Access, Operand, Work, views};
use crate::fuse::Load;
use crate::ir::dim::DimExpr;
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{AxisSet, NodeId, NodeKind, ParamId};
use crate::ir::kernel::{
    Buffer, BufferId, Builder, Builtin, Expr, IndexWidth, Kernel, Lanes, Shared, SharedId, Stmt, ThreadMap,
    Type, UNIFORM_LEN, Uniform, UniformId, Value, Values,
};
use crate::ir::op::Op;
use crate::ir::plan::{BufferArg, Footprint, UniformArg};
use crate::ir::point::{Coordinate, Coordinates, Gathered, MoveId, Moves, Point, point};
use crate::target::TargetFacts;

/// Where in the space a body works.
pub(super) struct Place {
    /// Number of the first lane's element.
    pub(super) element: Value,
    /// Coordinates of the first lane, by dim of the space.
    pub(super) coordinates: Vec<Value>,
    /// Elements at a time, along the innermost dim.
    pub(super) lanes: Lanes,
    /// Whether they do not lie side by side: coordinates along that dim, and numbers in a row, are of each lane.
    pub(super) apart: bool,
    /// The number of the first lane's element in its row, where lanes run along one.
    pub(super) in_row: Option<Value>,
}

/// How a body sees the operands that it reads out of order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Addressing {
    /// All of them at once.
    Whole,
    /// Those that may be large through windows, one for each place in them that an element needs.
    Windowed,
}

/// Bytes that every device binds at once: the default limit of WebGPU.
const BINDING_BYTES: i64 = 128 << 20;

/// Whether an operand is read out of order, at places that follow from those of the elements, and may not fit in one
/// binding.
pub(super) fn is_windowed(work: &Work<'_>, operand: &Operand) -> bool {
    !operand.moved
        && footprint(work.graph, work.group, operand) == Footprint::Whole
        && is_large(work, operand)
}

/// Returns true if an operand may not fit in one binding.
pub(super) fn is_large(work: &Work<'_>, operand: &Operand) -> bool {
    bytes(work.graph, operand).as_const().is_none_or(|bytes| bytes > BINDING_BYTES)
}

/// A level of the body, outermost first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Top,
    Item,
    Inner,
}

/// A kernel that grows.
pub(super) struct Body<'w> {
    pub(super) work: &'w Work<'w>,
    pub(super) rebased: bool,
    /// What has few elements and may yet be bound as a uniform.
    uniform_buffers_left: usize,
    pub(super) sight: Addressing,
    /// Those of the space, and then those of a row if it has rows.
    pub(super) dims: &'w [SpaceDim],
    /// Dims that the place at hand has no coordinates along: an axis may have several roles in a kernel, but one at a place.
    pub(super) absent: Vec<usize>,
    /// Which of them vectors run along …
    pub(super) vector: usize,
    /// … and the coordinates of each lane along the one before it and along it, where they run along both as one line.
    pub(super) line: Option<[Value; 2]>,
    /// What lanes of a line read each where its number says.
    pub(super) gathered: Vec<Point>,
    /// Number of this thread's block in its cluster, if the blocks of one have a part of each row.
    pub(super) rank: Option<Value>,
    /// Whose vectors rows are read and stored by, and their lanes, if rows do not start with one.
    pub(super) vectors: Option<(BufferId, u8)>,
    /// Values that exist once a row has been gone through.
    of_rows: FxHashSet<NodeId>,
    /// Values of the elements of a row that are kept for later runs along it.
    pub(super) stages: StagedBuffers,
    /// Where else than at the element at hand values are asked for.
    pub(super) moves: Moves,
    /// Which of them follow from what is combined along the row.
    row_moves: Vec<bool>,
    pub(super) kernel: Kernel,
    /// What is behind the kernel's buffers.
    pub(super) buffers: Vec<BufferArg>,
    /// Operands in halves, each with the buffer of its upper half.
    uppers: Vec<(BufferId, BufferId)>,
    /// Rows, columns and steps of the tile at hand that are within the space: true for each. Others are not read.
    pub(super) masks: Vec<Value>,
    /// True if elements of a tile that lie side by side are aligned vectors.
    pub(super) aligned: bool,
    /// Whether the element at hand is one of the row; of all others nothing is read.
    pub(super) is_there: Option<Value>,
    /// Whether what the current element reads lies within its windows, one for each.
    pub(super) within: Vec<Value>,
    /// Those of the kernel, in its order.
    uniforms: Vec<Value>,
    pub(super) item: Vec<Stmt>,
    inner: Vec<Stmt>,
    pub(super) values: FxHashMap<Point, (Level, Value)>,
}

impl<'w> Body<'w> {
    pub(super) fn new(
        work: &'w Work<'w>,
        facts: &TargetFacts,
        dims: &'w [SpaceDim],
        name: String,
        (index, sight): (IndexWidth, Addressing),
    ) -> Body<'w> {
        let kernel = Kernel { types: Vec::with_capacity(256), ..Kernel::new(name, index) };
        let mut body = Body {
            work,
            rebased: facts.rebased,
            uniform_buffers_left: facts.uniform_buffers_max,
            sight,
            dims,
            absent: vec![],
            vector: dims.len() - 1,
            line: None,
            gathered: vec![],
            rank: None,
            vectors: None,
            of_rows: of_rows(work),
            stages: StagedBuffers::default(),
            moves: Moves::default(),
            row_moves: vec![],
            kernel,
            buffers: vec![],
            uppers: vec![],
            masks: vec![],
            aligned: true,
            is_there: None,
            within: vec![],
            uniforms: vec![],
            item: vec![],
            inner: vec![],
            values: FxHashMap::default(),
        };
        for operand in &work.operands {
            body.bind(operand, footprint(work.graph, work.group, operand));
        }
        body
    }

    /// Another buffer of the kernel.
    pub(super) fn bind(&mut self, operand: &Operand, footprint: Footprint) -> BufferId {
        let Operand { slot, dtype, access, fits_uniform, .. } = *operand;
        let most = if operand.axes.is_empty() { Some(1) } else { fits_uniform.then_some(UNIFORM_LEN) };
        let may = access == Access::Read && dtype.is_uniform() && self.uniform_buffers_left > 0;
        let uniform = most.filter(|_| may);
        self.uniform_buffers_left -= usize::from(uniform.is_some());
        let strided = matches!(footprint, Footprint::Strided { .. });
        self.kernel.buffers.push(Buffer { uniform, strided, ..Buffer::new(&operand.name, dtype, access) });
        self.buffers.push(BufferArg { slot, access, dtype, footprint, uniform: uniform.is_some() });
        BufferId(self.buffers.len() as u16 - 1)
    }

    /// Writes what runs once per thread.
    pub(super) fn top(&mut self) -> Builder<'_> {
        self.at(Level::Top)
    }

    /// Writes into a body of the caller's.
    pub(super) fn writer<'b>(&'b mut self, body: &'b mut Vec<Stmt>) -> Builder<'b> {
        Builder { types: &mut self.kernel.types, uniforms: &mut self.kernel.uniforms, body }
    }

    /// Writes what runs once per run of lanes.
    pub(super) fn item(&mut self) -> Builder<'_> {
        self.at(Level::Item)
    }

    /// Writes what runs per lane.
    pub(super) fn inner(&mut self) -> Builder<'_> {
        self.at(Level::Inner)
    }

    pub(super) fn at(&mut self, level: Level) -> Builder<'_> {
        let body = match level {
            Level::Top => &mut self.kernel.body,
            Level::Item => &mut self.item,
            Level::Inner => &mut self.inner,
        };
        Builder { types: &mut self.kernel.types, uniforms: &mut self.kernel.uniforms, body }
    }

    /// Appends a statement at the top.
    pub(super) fn push(&mut self, stmt: Stmt) {
        self.kernel.body.push(stmt);
    }

    /// Appends a statement per lane.
    pub(super) fn push_inner(&mut self, stmt: Stmt) {
        self.inner.push(stmt);
    }

    /// Makes vectors run along another dim than the innermost.
    pub(super) fn run_along(&mut self, dim: usize) {
        self.vector = dim;
    }

    /// Whether lanes side by side are vectors of a buffer: where rows do not start with one, of those alone that are laid out like
    /// the one whose vectors they are.
    pub(super) fn is_vector_of(&self, buffer: BufferId) -> bool {
        let operand = |id: BufferId| &self.work.operands[usize::from(id.0)];
        self.vectors.is_none_or(|(of, _)| operand(buffer).axes == operand(of).axes && !operand(buffer).moved)
    }

    /// Whether a value differs from lane to lane.
    pub(super) fn is_along_vectors(&self, axes: AxisSet) -> bool {
        self.along_vectors().iter().any(|dim| dim.axes.iter().any(|&axis| axes.contains(axis)))
    }

    /// The dims that vectors run along.
    fn along_vectors(&self) -> &[SpaceDim] {
        &self.dims[self.vector - usize::from(self.line.is_some())..=self.vector]
    }

    /// Sets the mapping of rows to threads. The blocks of a cluster have ranks.
    pub(super) fn set_threads(&mut self, threads: ThreadMap) {
        self.kernel.threads = threads;
        self.rank = threads.cluster.then(|| self.top().builtin(Builtin::ClusterRank));
    }

    /// Returns the numbers of the lanes.
    pub(super) fn lane_index(&mut self, lanes: Lanes) -> Value {
        self.inner().bind(Type { dtype: DType::Index, lanes }, Expr::Builtin(Builtin::LaneIndex))
    }

    /// Says how many iterations of loops along rows read at once.
    pub(super) fn set_load_unroll(&mut self, load_unroll: u32) {
        self.kernel.load_unroll = load_unroll;
    }

    /// Shared memory of the kernel.
    pub(super) fn share(&mut self, shared: Shared) -> SharedId {
        self.kernel.shared.push(shared);
        SharedId(self.kernel.shared.len() as u16 - 1)
    }

    /// The statements per lane so far: the next run along the row starts afresh, and finds what was read.
    pub(super) fn take_inner(&mut self) -> Vec<Stmt> {
        self.fill_made();
        self.values.retain(|_, (level, _)| *level != Level::Inner);
        std::mem::take(&mut self.inner)
    }

    /// Gives the value of a row that has been gone through.
    pub(super) fn set_of_row(&mut self, id: NodeId, value: Value) {
        self.values.insert((id, vec![]), (Level::Item, value));
    }

    /// Gives a value that all rows have in common, made before there is one.
    pub(super) fn set_of_all(&mut self, id: NodeId, value: Value) {
        self.values.insert((id, vec![]), (Level::Top, value));
    }

    /// Writes a value of the row, or of the lanes at a place in it, to a buffer.
    pub(super) fn store(&mut self, buffer: BufferId, id: NodeId, place: &Place) -> Stmt {
        let of_row = self.level(&(id, vec![])) != Level::Inner;
        let value = self.value(id, &vec![], place);
        if of_row {
            let at = self.position(buffer, Level::Item, (&vec![], Lanes::ONE), place);
            return Stmt::Store(at, value);
        }
        let at = self.position(buffer, Level::Inner, (&vec![], place.lanes), place);
        Stmt::Store(at, self.inner().splat(value, place.lanes))
    }

    /// Writes values of neighbouring rows.
    pub(super) fn store_across(&mut self, buffer: BufferId, id: NodeId, place: &Place) -> Stmt {
        let value = self.value(id, &vec![], place);
        let at = self.position(buffer, Level::Inner, (&vec![], place.lanes), place);
        Stmt::Store(at, self.inner().splat(value, place.lanes))
    }

    /// The statements per item and per lane so far; the next body starts afresh.
    pub(super) fn take(&mut self) -> (Vec<Stmt>, Vec<Stmt>) {
        self.values.retain(|_, (level, _)| *level == Level::Top);
        (std::mem::take(&mut self.item), std::mem::take(&mut self.inner))
    }

    /// The kernel, and what is behind its buffers.
    pub(super) fn finish(self) -> (Kernel, Vec<BufferArg>) {
        let Body { mut kernel, mut buffers, .. } = self;
        views::merge(&mut kernel, &mut buffers);
        (kernel, buffers)
    }

    /// A uniform, the same one for the same argument.
    pub(super) fn uniform(&mut self, arg: UniformArg, dtype: DType, name: &str) -> Value {
        if let Some(known) = self.kernel.uniforms.iter().position(|uniform| uniform.arg == arg) {
            return self.uniforms[known];
        }
        let id = UniformId(self.uniforms.len() as u16);
        self.kernel.uniforms.push(Uniform { name: name.into(), dtype, arg });
        // Before all other statements: a later body may be the first to ask.
        let value = self.top().declare(Type { dtype, lanes: Lanes::ONE });
        self.kernel.body.insert(self.uniforms.len(), Stmt::Let(value, Expr::Uniform(id)));
        self.uniforms.push(value);
        value
    }

    /// An extent as a position.
    pub(super) fn extent(&mut self, extent: &DimExpr) -> Value {
        match extent.as_const() {
            Some(extent) => self.top().index(extent),
            None => {
                let name = extent.display(&self.work.graph.symbols).to_string();
                self.uniform(UniformArg::Extent(extent.clone()), DType::Index, &name)
            }
        }
    }

    /// Computes everything at a place and stores what is to be stored.
    pub(super) fn compute(&mut self, place: &Place) {
        let mut stores = Vec::new();
        for (store, &buffer) in self.work.group.stores.iter().zip(&self.work.stores) {
            let operand = &self.work.operands[usize::from(buffer.0)];
            let axes: AxisSet = operand.axes.iter().copied().collect();
            for unrolled in self.assignments(axes) {
                let value = self.value(store.node, &unrolled, place);
                let at = self.position(buffer, Level::Item, (&unrolled, place.lanes), place);
                stores.push((at, value));
            }
        }
        for (at, value) in stores {
            let value = self.inner().splat(value, place.lanes);
            self.inner.push(Stmt::Store(at, value));
        }
        let within = std::mem::take(&mut self.within);
        if let Some(cond) = within.into_iter().reduce(|all, one| self.item().apply(Op::And, &[all, one])) {
            let body = std::mem::take(&mut self.inner);
            self.inner.push(Stmt::If { cond, body });
        }
    }

    /// All coordinates along the unrolled axes among `axes`.
    fn assignments(&self, axes: AxisSet) -> Vec<Coordinates> {
        let mut all: Vec<Coordinates> = vec![vec![]];
        for axis in axes.iter().filter(|&axis| self.work.group.unrolled.contains(axis)) {
            let extent = self.work.graph.axis(axis).extent.as_const();
            let extent = extent.unwrap_or_else(|| unreachable!("only fixed axes are unrolled"));
            let longer = |partial: &Coordinates, at| {
                partial.iter().copied().chain([(axis, Coordinate::Fixed(at))]).collect()
            };
            all = all.iter().flat_map(|partial| (0..extent).map(move |at| longer(partial, at))).collect();
        }
        all
    }

    pub(super) fn level(&self, point: &Point) -> Level {
        let axes = self.moves.axes(self.work.graph, point);
        let cols = &self.work.group.cols;
        if !cols.is_empty() {
            let in_row = cols.iter().any(|&axis| axes.contains(axis));
            return match () {
                () if in_row || self.is_along_vectors(axes) => Level::Inner,
                () if axes.is_empty() && !self.is_of_row(point) => Level::Top,
                () => Level::Item,
            };
        }
        let has = |dim: &SpaceDim| dim.axes.iter().any(|&axis| axes.contains(axis));
        match self.sight {
            _ if self.is_along_vectors(axes) => Level::Inner,
            Addressing::Whole if self.dims.iter().any(has) => Level::Item,
            // Nothing is read before it is known to lie within a window.
            Addressing::Windowed if self.dims.iter().any(has) => Level::Inner,
            // Every thread does what is at the top: it must not read what the one thread with an element writes.
            Addressing::Whole | Addressing::Windowed if self.is_one_in_place() => Level::Item,
            Addressing::Whole | Addressing::Windowed => Level::Top,
        }
    }

    /// Whether a value follows from what is combined along the row.
    pub(super) fn is_made_of_rows(&self, id: NodeId) -> bool {
        self.of_rows.contains(&id)
    }

    /// Whether it, or where it is asked for, follows from what is combined along the row.
    fn is_of_row(&self, (id, at): &Point) -> bool {
        let by_row = |coordinate: &Coordinate| match coordinate {
            Coordinate::Fixed(_) => false,
            Coordinate::Moved(moved) => self.row_moves[moved.0 as usize],
        };
        self.of_rows.contains(id) || at.iter().any(|(_, coordinate)| by_row(coordinate))
    }

    /// Finds which of the new moves follow from what is combined along the row.
    fn note_moves(&mut self) {
        while self.row_moves.len() < self.moves.len() {
            let next = self.moves.get(MoveId(self.row_moves.len() as u32));
            let by_row = [&next.index].into_iter().chain(&next.within).any(|point| self.is_of_row(point));
            self.row_moves.push(by_row);
        }
    }

    /// Whether the space is one element, and the kernel reads a buffer that it writes.
    fn is_one_in_place(&self) -> bool {
        let updates = |operand: &Operand| operand.access == Access::ReadWrite;
        self.dims.iter().all(|dim| dim.axes.is_empty()) && self.work.operands.iter().any(updates)
    }

    /// What is combined of an element, in all lanes.
    pub(super) fn term(&mut self, of: &[NodeId], place: &Place) -> Values {
        let value = |&id: &NodeId| {
            let value = self.value(id, &vec![], place);
            self.inner().splat(value, place.lanes)
        };
        of.iter().map(value).collect()
    }

    /// The value of a node, once what it is made of has one. With a stack of its own: graphs are deep.
    pub(super) fn value(&mut self, id: NodeId, at: &Coordinates, place: &Place) -> Value {
        let wanted = point(self.work.graph, id, at);
        let mut open = vec![wanted.clone()];
        while let Some(key) = open.pop() {
            if self.values.contains_key(&key) {
                continue;
            }
            let mut missing = self.operands(&key);
            missing.retain(|operand| !self.values.contains_key(operand));
            if missing.is_empty() {
                self.place(key, place);
            } else {
                open.push(key);
                open.extend(missing.into_iter().rev());
            }
        }
        self.values[&wanted].1
    }

    /// The values that one is made of, in the order in which they are asked for: for what is read, what says where.
    fn operands(&mut self, of: &Point) -> Vec<Point> {
        let (id, at) = of;
        if self.filled(of).is_some() {
            return vec![];
        }
        let graph = self.work.graph;
        let node = graph.node(*id);
        if self.is_read(*id) {
            return self.moved_by(at);
        }
        match &node.kind {
            NodeKind::Coord(axis) => self.moved_along(at, *axis).into_iter().collect(),
            NodeKind::Input(_) | NodeKind::Scalar(_) | NodeKind::Literal(_) | NodeKind::Extent(_) => vec![],
            NodeKind::Apply(_) | NodeKind::Cast => {
                node.args.iter().map(|&arg| point(graph, arg, at)).collect()
            }
            NodeKind::Reduce(_, axes) => {
                let parts = self.assignments(*axes).into_iter().map(|part| [at.as_slice(), &part].concat());
                parts.flat_map(|at| node.args.iter().map(move |&arg| point(graph, arg, &at))).collect()
            }
            NodeKind::Gather(_) => {
                let Gathered { of, by } = self.moves.gathered(graph, of);
                self.note_moves();
                // What is read where there is something is 0 elsewhere already.
                let within = by.into_iter().skip(if self.is_read(of.0) { 2 } else { 1 });
                [of].into_iter().chain(within).collect()
            }
        }
    }

    /// Whether a value is read from memory.
    pub(super) fn is_read(&self, id: NodeId) -> bool {
        let input = matches!(self.work.graph.node(id).kind, NodeKind::Input(_));
        input || self.work.loads.contains_key(&Load::Stored(id))
    }

    /// Makes a value of operands that are there.
    fn place(&mut self, key: Point, place: &Place) {
        let id = key.0;
        let node = self.work.graph.node(id);
        let level = self.level(&key);
        if let Some(stage) = self.filled(&key) {
            let value = self.read_staged(stage, node.dtype, place);
            self.values.insert(key, (level, value));
            return;
        }
        let mut value = if let Some(&buffer) = self.work.loads.get(&Load::Stored(id)) {
            self.load(buffer, &key, level, place)
        } else {
            self.make(key.clone(), level, place)
        };
        if let Some(stage) = self.to_stage(&key) {
            value = self.write_staged(stage, value, place);
        }
        self.values.insert(key, (level, value));
    }

    fn make(&mut self, key: Point, level: Level, place: &Place) -> Value {
        let operands: Vec<Value> = self.operands(&key).iter().map(|key| self.values[key].1).collect();
        let node = self.work.graph.node(key.0);
        match &node.kind {
            NodeKind::Input(param) => {
                let buffer = self.work.loads[&Load::Param(*param)];
                self.load(buffer, &key, level, place)
            }
            NodeKind::Scalar(ParamId(param)) => {
                let name = &self.work.graph.param(ParamId(*param)).name;
                self.uniform(UniformArg::Scalar(*param), node.dtype, name)
            }
            NodeKind::Literal(value) => self.top().constant(node.dtype, *value),
            NodeKind::Coord(_) if !operands.is_empty() => operands[0],
            NodeKind::Coord(axis) => self.coordinate(*axis, level, &key.1, place),
            NodeKind::Extent(extent) => {
                let extent = self.extent(extent);
                self.top().cast(extent, node.dtype)
            }
            NodeKind::Apply(Op::Exp) if self.work.graph.is_nonpositive(node.args[0]) => {
                self.at(level).apply(Op::ExpOfNonpositive, &operands)
            }
            NodeKind::Apply(op) => self.at(level).apply(*op, &operands),
            NodeKind::Cast => self.at(level).cast(operands[0], node.dtype),
            NodeKind::Reduce(reduce, _) => written_out(&mut self.at(level), *reduce, &operands),
            NodeKind::Gather(_) => {
                let [x, ref within @ ..] = operands[..] else { unreachable!("something is gathered from") };
                let Some(&within) = within.first() else { return x };
                let zero = self.top().constant(node.dtype, Const::zero(node.dtype));
                self.at(level).apply(Op::Select, &[within, x, zero])
            }
        }
    }

    fn load(&mut self, buffer: BufferId, point: &Point, level: Level, place: &Place) -> Value {
        if place.lanes.is_tile() {
            return self.load_tile(buffer, point, level, place);
        }
        let graph = self.work.graph;
        let per_lane = level == Level::Inner && self.is_along_vectors(self.moves.axes(graph, point));
        let ty =
            Type { dtype: graph.node(point.0).dtype, lanes: if per_lane { place.lanes } else { Lanes::ONE } };
        let at = self.position(buffer, self.base(level), (&point.1, ty.lanes), place);
        if self.line.is_some() && self.kernel.ty(at.index).lanes != Lanes::ONE {
            self.gathered.push(point.clone());
        }
        let within = self.moves.within(&point.1);
        let mut within: Vec<Value> = within.iter().map(|point| self.values[point].1).collect();
        // What all lanes have in common is there, as the first of them is.
        let masks = |&is_there: &Value| per_lane || self.kernel.ty(is_there).lanes == Lanes::ONE;
        within.extend(self.is_there.filter(|_| level == Level::Inner).filter(masks));
        let mask = within.into_iter().reduce(|all, one| self.at(level).apply(Op::And, &[all, one]));
        let read = mask.map_or(Expr::Load(at), |mask| Expr::LoadWhere(at, mask));
        self.at(level).bind(ty, read)
    }

    /// Where positions of values of a level are found: per run of lanes, or per thread. Runs along a row are within it.
    fn base(&self, level: Level) -> Level {
        match level {
            Level::Inner if self.work.group.cols.is_empty() => Level::Item,
            Level::Top | Level::Item | Level::Inner => level,
        }
    }
}
