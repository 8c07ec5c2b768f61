//! Kernel IR: one structured program that the threads of a launch run together.
//!
//! Values are SSA and typed by an element type and a number of *lanes*. On a GPU a value has 1, 2 or 4 lanes
//! (a 128-bit access is a 4-lane load); on the CPU the lanes of `Lanes::Loop` are the iterations of the
//! enclosing `Stmt::Vector`, which the emitter prints as a loop for the compiler to vectorise. So one
//! schedule writes one body for every target. An `Address` says which element each lane of an access touches.
//!
//! Work is dealt out by `LoopKind::Grid` to threads, or by `LoopKind::Team` to teams of threads that work on one
//! iteration together; `legalize` turns both into what the target has. Bodies see all values above them, and
//! values made in them end with them: what a loop makes leaves it by `Carried`, what lanes or threads make
//! together by `Fold`. Tiles (a matrix with an opaque layout) join as further `Type`s, `Expr`s and `Stmt`s.

mod builder;

use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

use super::dim::DimExpr;
use super::dtype::{Const, DType};
use super::graph::Access;
use super::ops::Op;
pub use builder::Builder;

/// A value of the kernel it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A buffer of the kernel it belongs to, in the order of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u16);

/// A uniform of the kernel it belongs to, in the order of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UniformId(pub u16);

/// How many elements a value holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lanes {
    /// This many: 1, 2, 4 or 8.
    Const(u8),
    /// As many as the enclosing `Stmt::Vector` has iterations.
    Loop,
}

impl Lanes {
    /// A single element.
    pub const ONE: Lanes = Lanes::Const(1);
}

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    /// Of each lane.
    pub dtype: DType,
    /// Number of lanes.
    pub lanes: Lanes,
}

/// Memory that a kernel reads or writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    /// For readers of the text.
    pub name: String,
    /// Of its elements.
    pub dtype: DType,
    /// What the kernel does with it.
    pub access: Access,
    /// Of what is bound as a uniform, how many elements: one, or `UNIFORM_LEN` at most.
    pub uniform: Option<u32>,
    /// Whether rows lie side by side in it, so that what is written of it for neighbours does not: `Footprint::Strided`.
    pub strided: bool,
}

impl Buffer {
    /// One in storage, whose rows do not lie side by side.
    pub fn new(name: &str, dtype: DType, access: Access) -> Buffer {
        Buffer { name: name.into(), dtype, access, uniform: None, strided: false }
    }
}

/// A number that is the same for all threads, set at launch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Uniform {
    /// For readers of the text.
    pub name: String,
    /// `F32`, `F64`, `I32`, `U32`, `Bool` (0 or 1 in a `u32`) or `Index`.
    pub dtype: DType,
    /// Its value.
    pub arg: UniformArg,
}

/// The value of a uniform at launch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UniformArg {
    /// An extent.
    Extent(DimExpr),
    /// The scalar parameter of this number (position in `Plan::params`).
    Scalar(u16),
    /// First element of the space that this launch covers; 0 unless cut into chunks. GPUs only.
    Start,
    /// One past the last element of the space that this launch covers. GPUs only.
    End,
    /// What to add to a position to find the element in the binding of this buffer, modulo 2³². WGSL only.
    Offset(u16),
    /// Elements of the binding of this buffer, a window on part of it. WGSL only.
    Window(u16),
}

/// Bits of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IndexWidth {
    /// Indices and extents below 2³¹.
    Bits32,
    /// Any.
    Bits64,
}

/// How the iterations of a loop are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoopKind {
    /// Dealt out to the threads of the launch.
    Grid,
    /// Dealt out to the teams of the launch: all threads of a team run the same iterations. GPUs only.
    Team,
    /// Dealt out like `Grid`: steps of a vector over the elements that whole vectors leave, which are fewer than one has.
    Remainder,
    /// One after another in this thread.
    Serial,
}

/// A value that each iteration of a loop hands to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Carried {
    /// What the first iteration gets, and what the loop gives where it has none.
    pub start: Value,
    /// What an iteration gets.
    pub var: Value,
    /// What it hands on; known in the body.
    pub next: Value,
    /// What the last one handed on.
    pub out: Value,
}

/// Values of many lanes or threads combined, by an associative function of two of them, in an order that depends
/// on nothing but how many there are. What is combined may be a tuple: one value for each of its components.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fold {
    /// What each lane or thread has.
    pub over: Vec<Value>,
    /// Of lanes, what that is multiplied by where it goes into a sum, the one value that they have: product and sum are rounded once.
    pub times: Option<Value>,
    /// What changes nothing it is combined with.
    pub identity: Vec<Value>,
    /// The first argument of the function.
    pub left: Vec<Value>,
    /// The second.
    pub right: Vec<Value>,
    /// The function.
    pub body: Vec<Stmt>,
    /// What it gives; known in its body.
    pub results: Vec<Value>,
    /// All combined.
    pub out: Vec<Value>,
}

impl Fold {
    /// The type of the floats that it adds up, if it does nothing else.
    pub fn sums(&self, kernel: &Kernel) -> Option<DType> {
        let ([left], [right], [result], [Stmt::Let(made, Expr::Apply(Op::Add, args))]) =
            (&self.left[..], &self.right[..], &self.results[..], &self.body[..])
        else {
            return None;
        };
        let dtype = kernel.ty(*result).dtype;
        (made == result && args[..] == [*left, *right] && dtype.is_float()).then_some(dtype)
    }
}

/// How many lanes of a vector loop a fold takes at a time, the longest groups first: of what these leave, as many as there are of
/// the next. Lanes of groups of one length have a partial result each, which all its groups go into; after the last, and of the
/// longest after every `fold_rounds`, the second half of these is combined with the first, and so on, and what comes of it with the
/// result. So a row of eight needs two small vectors, where one of 64 partial results for every row took 25 ns. LLVM makes vectors
/// of loops over 64 lanes, and of 16 in straight code; 32 are unrolled before it looks, and are too many then.
pub const FOLD_LANES: [usize; 4] = [64, 16, 4, 1];

/// Lanes of a sum of `f32` that go into its result in `f64`, or fewer: what longer groups leave by halves.
pub const FOLD_LANES_WIDE: usize = 4;

/// Rounds of the longest groups after which the partial results of these folds of one loop go into the results. A sum has few rounds,
/// so that it is rounded seldom, and never if equal numbers are added; its result keeps what is rounded off.
pub fn fold_rounds<'f>(kernel: &Kernel, folds: impl IntoIterator<Item = &'f Fold>) -> usize {
    if folds.into_iter().any(|fold| fold.sums(kernel).is_some()) { 4 } else { 128 }
}

/// Bytes of a line of a processor's caches.
pub const CACHE_LINE: usize = 64;
/// Bytes of the shortest rows of which loops of the CPU ask for the next: shorter ones are read ahead of by processors themselves.
pub const NEXT_ROW_MIN: usize = 8 << 10;

/// Lanes of a vector loop that are stored around the caches in straight code, line by line: enough that the loop pays.
pub const STREAM_LANES: usize = 64;

/// The most elements of a small array, such as every block may combine again: four kilobytes of 32 bits each. WGSL's uniforms have
/// this length, and memory that is bound as one has room for as many; a multiple of four.
pub const UNIFORM_LEN: u32 = 1024;

/// Threads of a warp of an NVIDIA GPU.
pub const WARP: u32 = 32;

/// Memory that the threads of a block have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shared {
    /// Of its elements.
    pub dtype: DType,
    /// How many.
    pub len: SharedLen,
}

/// How much shared memory there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SharedLen {
    /// As many elements.
    Fixed(u32),
    /// As many as a launch gives by `Launch::row_memory`: to a block for all of its teams, then the only one of a kernel;
    /// on the CPU an equal part to each.
    AtLaunch,
    /// One of each block of a cluster, which sends it.
    Mailbox,
}

/// Shared memory of the kernel it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SharedId(pub u16);

/// The threads that wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Those of a block, for what is in shared memory; made by `legalize`.
    Block,
    /// Those of a team, for what is in buffers.
    Team,
    /// Those of a warp; PTX only, made by `legalize`.
    Warp,
    /// Those of a cluster of blocks; PTX only. What it says of memory takes a GPU a microsecond.
    Cluster,
}

/// A step of an exchange between the blocks of a cluster through distributed shared memory, in the order in which each block takes
/// them. PTX only, made by `legalize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClusterExchange {
    /// Initialises the block's barriers and tells the other blocks.
    Init,
    /// Waits until all blocks have initialised theirs.
    Wait,
    /// Sends a value (the last) to the mailbox of the block of this number (the first), from the block of that number.
    Send(SharedId, Value, Value, Value),
    /// Waits until every block's value is in the mailbox.
    Receive(SharedId),
    /// Invalidates the block's barriers, once all blocks have read what they received.
    Invalidate,
}

/// What a statement does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stmt {
    /// Names the value of an expression.
    Let(Value, Expr),
    /// Writes the lanes of a value.
    Store(Address, Value),
    /// Runs `body` for `var` = `start`, `start + step`, … below `end`.
    Loop {
        /// The counter, an index of one lane.
        var: Value,
        /// Dealt out or serial.
        kind: LoopKind,
        /// First value.
        start: Value,
        /// One past the last.
        end: Value,
        /// Distance, > 0.
        step: Value,
        /// What goes from one iteration to the next; of `LoopKind::Serial` only.
        carried: Vec<Carried>,
        /// What to run.
        body: Vec<Stmt>,
    },
    /// Runs `body` once, its `Lanes::Loop` values having `len` lanes. The CPU only; not nested.
    Vector {
        /// How many lanes.
        len: Value,
        /// What to run.
        body: Vec<Stmt>,
        /// What the lanes make together.
        folds: Vec<Fold>,
    },
    /// What the threads of a team make together; each gets it. All threads of the team come here. GPUs only; made into
    /// shuffles, shared memory and barriers by `legalize`.
    AllReduce(Box<Fold>),
    /// Writes the lanes of a value to elements of shared memory, from the index on.
    StoreShared(SharedId, Value, Value),
    /// Does something of what blocks of a cluster combine.
    ClusterExchange(ClusterExchange),
    /// Waits for all of these threads, and for what they read and wrote. GPUs only.
    Barrier(Scope),
    /// Runs `body` if `cond` (one lane) holds.
    If {
        /// A `Bool` of one lane.
        cond: Value,
        /// What to run.
        body: Vec<Stmt>,
    },
}

/// Elements of a buffer: lane `j` of a one-lane `index` is the element `index + j·stride + phase`. An index with the
/// lanes of the value gathers (`stride` 1, `phase` 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Which buffer.
    pub buffer: BufferId,
    /// In elements.
    pub index: Value,
    /// Elements from lane to lane, > `phase`.
    pub stride: u32,
    /// Elements from the index on.
    pub phase: u32,
    /// Whether lanes side by side are a vector of the buffer's: the first is a multiple of their number. PTX alone has others.
    pub aligned: bool,
}

impl Address {
    /// Consecutive elements from `index` on, or those of an index per lane.
    pub fn new(buffer: BufferId, index: Value) -> Address {
        Address { buffer, index, stride: 1, phase: 0, aligned: true }
    }
}

/// Which thread of a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shuffle {
    /// The one whose number is greater by this; for the last ones themselves.
    Down(u32),
    /// The one whose number is greater by this value, the same for all; of the last ones who knows which.
    DownBy(Value),
    /// The first.
    First,
}

/// The values that an expression is made of, or that a statement makes: hardly ever are there more.
pub type Values = SmallVec<[Value; 4]>;

/// How a value is made. The type of the result is the value's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expr {
    /// A number, in every lane.
    Const(Const),
    /// A uniform; one lane.
    Uniform(UniformId),
    /// An operation of the table, lane by lane; all operands have the lanes of the result.
    Apply(Op, Values),
    /// Conversion to the type of the result, lane by lane.
    Cast(Value),
    /// The same bits as another type of the same size.
    Bitcast(Value),
    /// A one-lane value in every lane.
    Splat(Value),
    /// One-lane values as the lanes of one.
    Pack(Values),
    /// One lane of a value with a constant number of lanes.
    Lane(Value, u8),
    /// The number of each lane: 0, 1, 2, …
    LaneIndex,
    /// Reads elements.
    Load(Address),
    /// Reads the elements for which a truth value of each lane, or of all, holds. Nothing is read of the others, whose
    /// positions may lie outside of the buffer: they are 0.
    LoadWhere(Address, Value),
    /// Number of this thread in its team; GPUs only.
    TeamId,
    /// The same value of another thread of the warp; GPUs only, made by `legalize`.
    Shuffle(Value, Shuffle),
    /// Number of this thread's team in its block; GPUs only.
    TeamSlot,
    /// Reads elements of shared memory, from the index on.
    LoadShared(SharedId, Value),
    /// Number of this thread in its subgroup; WGSL only, made by `legalize`.
    SubgroupLane,
    /// Threads of a subgroup; WGSL only, made by `legalize`.
    SubgroupSize,
    /// Number of this thread in its block; GPUs only, made by `legalize`.
    ThreadId,
    /// Number of this thread's block; GPUs only, made by `legalize`.
    BlockId,
    /// Number of blocks; GPUs only, made by `legalize`.
    Blocks,
    /// Number of this thread's block in its cluster; PTX only.
    ClusterRank,
    /// Blocks of a cluster; PTX only, made by `legalize`.
    ClusterSize,
    /// Number of this thread's cluster; PTX only, made by `legalize`.
    ClusterId,
    /// Number of clusters; PTX only, made by `legalize`.
    Clusters,
    /// Whether whole vectors leave elements, known before the kernel is compiled; WGSL only, made by `legalize`.
    HasRest,
    /// Number of this thread in the launch; GPUs only, made by `legalize`.
    GridId,
    /// Number of threads in the launch; GPUs only, made by `legalize`.
    GridSize,
    /// First item of this thread; the CPU only, made by `legalize`.
    RangeStart,
    /// One past the last item of this thread; the CPU only, made by `legalize`.
    RangeEnd,
}

/// Visits of what is shared, and of what may be changed.
macro_rules! visits {
    ($operands:ident, $bodies:ident, $iter:ident $(, $mutable:tt)?) => {
        impl Stmt {
            /// Visits the operands of this statement itself, not of those within it.
            pub fn $operands(&$($mutable)? self, mut visit: impl FnMut(&$($mutable)? Value)) {
                match self {
                    Stmt::Let(_, expr) => expr.$operands(visit),
                    Stmt::Store(at, value) => [&$($mutable)? at.index, value].into_iter().for_each(visit),
                    Stmt::Loop { start, end, step, carried, .. } => {
                        [start, end, step].into_iter().for_each(&mut visit);
                        carried.$iter().for_each(|carried| visit(&$($mutable)? carried.start));
                    }
                    Stmt::Vector { len, folds, .. } => {
                        visit(len);
                        folds.$iter().flat_map(|fold| fold.identity.$iter()).for_each(visit);
                    }
                    Stmt::AllReduce(fold) => {
                        let Fold { over, identity, .. } = &$($mutable)? **fold;
                        over.$iter().chain(identity).for_each(visit);
                    }
                    Stmt::StoreShared(_, index, value) => [index, value].into_iter().for_each(visit),
                    Stmt::ClusterExchange(ClusterExchange::Send(_, to, from, value)) => {
                        [to, from, value].into_iter().for_each(visit);
                    }
                    Stmt::If { cond, .. } => visit(cond),
                    Stmt::ClusterExchange(ClusterExchange::Init | ClusterExchange::Wait | ClusterExchange::Receive(_) | ClusterExchange::Invalidate)
                    | Stmt::Barrier(_) => {}
                }
            }

            /// Visits what lies within: each body, and with it the values that leave it.
            pub fn $bodies(
                &$($mutable)? self,
                mut visit: impl FnMut(&$($mutable)? Vec<Stmt>, &$($mutable)? [&$($mutable)? Value]),
            ) {
                type Leaving<'v> = SmallVec<[&'v $($mutable)? Value; 4]>;
                match self {
                    Stmt::Let(..)
                    | Stmt::Store(..)
                    | Stmt::StoreShared(..)
                    | Stmt::ClusterExchange(_)
                    | Stmt::Barrier(_) => {}
                    Stmt::If { body, .. } => visit(body, &$($mutable)? []),
                    Stmt::Loop { body, carried, .. } => {
                        let next = carried.$iter().map(|carried| &$($mutable)? carried.next);
                        visit(body, &$($mutable)? next.collect::<Leaving<'_>>());
                    }
                    Stmt::Vector { body, folds, .. } => {
                        let terms = folds.$iter().flat_map(|fold| fold.over.$iter().chain(&$($mutable)? fold.times));
                        visit(body, &$($mutable)? terms.collect::<Leaving<'_>>());
                        for Fold { body, results, .. } in folds {
                            visit(body, &$($mutable)? results.$iter().collect::<Leaving<'_>>());
                        }
                    }
                    Stmt::AllReduce(fold) => {
                        let Fold { body, results, .. } = &$($mutable)? **fold;
                        visit(body, &$($mutable)? results.$iter().collect::<Leaving<'_>>());
                    }
                }
            }
        }

        impl Expr {
            /// Visits the operands.
            pub fn $operands(&$($mutable)? self, mut visit: impl FnMut(&$($mutable)? Value)) {
                match self {
                    Expr::Apply(_, args) | Expr::Pack(args) => args.$iter().for_each(visit),
                    Expr::Cast(arg)
                    | Expr::Bitcast(arg)
                    | Expr::Splat(arg)
                    | Expr::Lane(arg, _)
                    | Expr::Shuffle(arg, Shuffle::Down(_) | Shuffle::First)
                    | Expr::LoadShared(_, arg) => visit(arg),
                    Expr::Shuffle(arg, Shuffle::DownBy(distance)) => {
                        [arg, distance].into_iter().for_each(visit);
                    }
                    Expr::Load(at) => visit(&$($mutable)? at.index),
                    Expr::LoadWhere(at, mask) => {
                        [&$($mutable)? at.index, mask].into_iter().for_each(visit);
                    }
                    Expr::Const(_)
                    | Expr::Uniform(_)
                    | Expr::LaneIndex
                    | Expr::TeamId
                    | Expr::TeamSlot
                    | Expr::SubgroupLane
                    | Expr::SubgroupSize
                    | Expr::ThreadId
                    | Expr::BlockId
                    | Expr::Blocks
                    | Expr::ClusterRank
                    | Expr::ClusterSize
                    | Expr::ClusterId
                    | Expr::Clusters
                    | Expr::HasRest
                    | Expr::GridId
                    | Expr::GridSize
                    | Expr::RangeStart
                    | Expr::RangeEnd => {}
                }
            }
        }
    };
}

visits!(for_each_operand, for_each_body, iter);
visits!(for_each_operand_mut, for_each_body_mut, iter_mut, mut);

impl Stmt {
    /// The values that are known after it, but not before.
    pub fn made(&self) -> Values {
        match self {
            Stmt::Let(value, _) => smallvec![*value],
            Stmt::Loop { carried, .. } => carried.iter().map(|carried| carried.out).collect(),
            Stmt::Vector { folds, .. } => folds.iter().flat_map(|fold| &fold.out).copied().collect(),
            Stmt::AllReduce(fold) => fold.out.iter().copied().collect(),
            Stmt::Store(..)
            | Stmt::StoreShared(..)
            | Stmt::ClusterExchange(_)
            | Stmt::Barrier(_)
            | Stmt::If { .. } => {
                smallvec![]
            }
        }
    }
}

impl Expr {
    /// Whether its value depends on nothing but its operands and the thread.
    pub fn is_pure(&self) -> bool {
        !matches!(self, Expr::Load(_) | Expr::LoadWhere(..) | Expr::LoadShared(..))
    }
}

/// A program and its arguments: the buffers in order, then the uniforms in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// Unique within its plan; valid in every target's language.
    pub name: String,
    /// Memory.
    pub buffers: Vec<Buffer>,
    /// Numbers set at launch.
    pub uniforms: Vec<Uniform>,
    /// Type of each value.
    pub types: Vec<Type>,
    /// What each thread runs.
    pub body: Vec<Stmt>,
    /// Width of `DType::Index`.
    pub index: IndexWidth,
    /// Threads of a team, a power of two; 1 where each works by itself.
    pub team: u32,
    /// Rows that a team has at a time, a power of two. The threads that work on one combine what they have.
    pub rows_per_team: u32,
    /// Whether those are the threads whose number is the same modulo `rows_per_team`, else as many next to each other.
    pub cyclic: bool,
    /// Whether the blocks of a cluster, each of which is a team, work on one iteration together.
    pub cluster: bool,
    /// Iterations of an innermost loop that read before any of them goes on, a power of two; of what is left half as many do, and
    /// so on. 1 where the target's compiler decides; PTX only.
    pub load_unroll: u32,
    /// Memory that the threads of a block have in common.
    pub shared: Vec<Shared>,
}

impl Kernel {
    /// One that does nothing yet, whose threads work each by itself.
    pub fn new(name: impl Into<String>, index: IndexWidth) -> Kernel {
        Kernel {
            name: name.into(),
            buffers: vec![],
            uniforms: vec![],
            types: vec![],
            body: vec![],
            index,
            team: 1,
            rows_per_team: 1,
            cyclic: false,
            cluster: false,
            load_unroll: 1,
            shared: vec![],
        }
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> Type {
        self.types[value.0 as usize]
    }

    /// The buffer of this number.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[usize::from(id.0)]
    }

    /// The uniform of this number.
    pub fn uniform(&self, id: UniformId) -> &Uniform {
        &self.uniforms[usize::from(id.0)]
    }
}
