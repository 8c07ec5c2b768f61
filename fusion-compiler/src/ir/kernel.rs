//! Kernel IR: one structured program that all threads of a launch run.
//!
//! Values are SSA. The type of a value is an element type and a number of *lanes*. On a GPU, a value has 1, 2
//! or 4 lanes; a 128-bit access is a load of 4 lanes. On the CPU, the lanes of `Lanes::Loop` are the
//! iterations of the enclosing `Stmt::Vector`, which the emitter prints as a loop for the compiler to
//! vectorise. One schedule can therefore write one body for every target. An `Address` maps the lanes of an
//! access to elements.
//!
//! `LoopKind::Grid` distributes iterations to threads, and `LoopKind::Team` distributes them to teams of
//! threads that share an iteration. `legalize` lowers both kinds for the target. A body sees all values
//! defined before it. The scope of a value ends with the body that defines it. Values leave a loop through
//! `Carried`, and `Fold` combines the values of lanes or threads. The lanes of `Lanes::Tile` are a matrix,
//! whose elements `legalize` gives to the threads of a team.

mod builder;
mod builtin;
mod fold;
mod visit;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::dim::DimExpr;
use super::dtype::{Const, DType};
use super::graph::Access;
use super::op::Op;
pub use builder::Builder;
pub use builtin::Builtin;
pub use fold::{FOLD_LANES, FOLD_LANES_WIDE, Fold, fold_rounds};
pub use visit::statements;

/// A value of the kernel that the id belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A buffer of the kernel that the id belongs to, in the order of the kernel's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u16);

/// A uniform of the kernel that the id belongs to, in the order of the kernel's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UniformId(pub u16);

/// The number of lanes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lanes {
    /// A constant number of lanes: 1, 2, 4 or 8.
    Const(u8),
    /// One lane for each iteration of the enclosing `Stmt::Vector`.
    Loop,
    /// The elements of a tile, by its numbers of rows and of columns. The threads of a team share them in a way
    /// that `legalize` chooses. GPUs only.
    Tile(u16, u16),
}

impl Lanes {
    /// A single element.
    pub const ONE: Lanes = Lanes::Const(1);

    /// Returns the lanes of an operation on operands with these lanes, if there is one.
    ///
    /// A single element is the same in all lanes. A tile with one row or one column is the same in all rows or
    /// columns of the other tile.
    pub fn broadcast(self, other: Lanes) -> Option<Lanes> {
        let dim = |one: u16, two: u16| match (one, two) {
            (1, extent) | (extent, 1) => Some(extent),
            (one, two) => (one == two).then_some(one),
        };
        match (self, other) {
            (Lanes::Tile(rows, cols), Lanes::Tile(others, more)) => {
                Some(Lanes::Tile(dim(rows, others)?, dim(cols, more)?))
            }
            (Lanes::ONE, lanes) | (lanes, Lanes::ONE) => Some(lanes),
            (one, two) => (one == two).then_some(one),
        }
    }

    /// Returns true if the lanes are those of a tile.
    pub fn is_tile(self) -> bool {
        matches!(self, Lanes::Tile(..))
    }
}

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    /// Type of each lane.
    pub dtype: DType,
    /// Number of lanes.
    pub lanes: Lanes,
}

/// Memory that a kernel reads or writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    /// Name of the buffer in the text of the kernel.
    pub name: String,
    /// Type of the elements.
    pub dtype: DType,
    /// Kind of access that the kernel has to the memory.
    pub access: Access,
    /// Maximum number of elements if the buffer is bound as a uniform: 1 or `UNIFORM_LEN`.
    pub uniform: Option<u32>,
    /// True if the buffer's footprint is `Footprint::Strided`: neighbours in the space are not neighbours in
    /// memory.
    pub strided: bool,
}

impl Buffer {
    /// Creates a storage buffer that is not strided.
    pub fn new(name: &str, dtype: DType, access: Access) -> Buffer {
        Buffer { name: name.into(), dtype, access, uniform: None, strided: false }
    }
}

/// A number that all threads share, set at launch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Uniform {
    /// Name of the uniform in the text of the kernel.
    pub name: String,
    /// Type of the number: `F32`, `F64`, `I32`, `U32`, `Bool` (0 or 1 in a `u32`) or `Index`.
    pub dtype: DType,
    /// Value of the uniform at launch.
    pub arg: UniformArg,
}

/// The value of a uniform at launch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UniformArg {
    /// An extent.
    Extent(DimExpr),
    /// The scalar parameter of this number (position in `Plan::params`).
    Scalar(u16),
    /// First element of the space that the launch covers; 0 unless the launch is a chunk. GPUs only.
    Start,
    /// One past the last element of the space that the launch covers. GPUs only.
    End,
    /// Number, modulo 2³², to add to a position to get the element in the binding of this buffer. WGSL only.
    Offset(u16),
    /// Number of elements in the binding of this buffer, which is a window on the buffer. WGSL only.
    Window(u16),
}

/// The number of bits of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IndexWidth {
    /// 32 bits, for indices and extents below 2³¹.
    Bits32,
    /// 64 bits, for any index.
    Bits64,
}

/// The way in which the iterations of a loop are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoopKind {
    /// Distributed to the threads of the launch.
    Grid,
    /// Distributed to the teams of the launch; all threads of a team run the same iterations. GPUs only.
    Team,
    /// Distributed like `Grid`, over the elements that whole vectors leave, which are fewer than a vector has
    /// lanes.
    ///
    /// The step of the loop is a whole vector.
    Remainder,
    /// Executed one after another in this thread.
    Serial,
}

/// A value that each iteration of a loop passes to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Carried {
    /// Value in the first iteration, and the result of a loop without iterations.
    pub start: Value,
    /// Value in the current iteration.
    pub var: Value,
    /// Value that the iteration passes on, defined in the body.
    pub next: Value,
    /// Result of the loop: the value that the last iteration passes on.
    pub out: Value,
}

/// Number of bytes of a cache line.
pub const CACHE_LINE: usize = 64;

/// Maximum number of elements of a small array, such as one that every block combines again: 4 KiB of 32-bit
/// elements.
///
/// WGSL's uniforms have this length, and memory that is bound as a uniform has room for as many elements. The
/// length is a multiple of four.
pub const UNIFORM_LEN: u32 = 1024;

/// Number of threads in a warp of an NVIDIA GPU.
pub const WARP: u32 = 32;

/// Memory that the threads of a block share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shared {
    /// Type of the elements.
    pub dtype: DType,
    /// Number of elements.
    pub len: SharedLen,
}

/// The number of elements of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SharedLen {
    /// A fixed number of elements.
    Fixed(u32),
    /// A number of elements that follows from `Launch::row_memory`.
    ///
    /// On GPUs, the memory belongs to a block with all of its teams, and arrays of this length are that memory,
    /// as elements of different types. On the CPU, the arrays of this length get equal parts of the memory.
    AtLaunch,
    /// One element for each block of a cluster, which the block sends.
    ExchangeBuffer,
}

/// A shared array of the kernel that the id belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SharedId(pub u16);

/// The threads that a barrier waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The threads of a block. The barrier, formed by `legalize`, orders shared memory.
    Block,
    /// The threads of a team. The barrier orders buffers.
    Team,
    /// The threads of a warp; PTX only, formed by `legalize`.
    Warp,
    /// The threads of a cluster of blocks; PTX only. The memory ordering of the barrier is expensive.
    Cluster,
}

/// A step of an exchange between the blocks of a cluster through distributed shared memory.
///
/// The variants are in the order in which each block executes them. PTX only, formed by `legalize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClusterExchange {
    /// Initialises the mbarriers of the block and signals the other blocks.
    Init,
    /// Waits until all blocks have initialised their mbarriers.
    Wait,
    /// Sends a value to the exchange buffer of another block. The values are the destination block, this
    /// block and the value.
    Send(SharedId, Value, Value, Value),
    /// Waits until the exchange buffer has the values of all blocks.
    Receive(SharedId),
    /// Invalidates the mbarriers of the block after all blocks have read what they received.
    Invalidate,
}

/// A step of copies from buffers to shared memory that run beside the other statements.
///
/// PTX only, from compute capability 8.0 on, formed by `legalize`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AsyncCopy {
    /// Starts to copy from an address to an index of the shared memory.
    ///
    /// An aligned address has `ASYNC_COPY_BYTES`, another one an element of 4 or 8 bytes. If the mask, the last value,
    /// is false, the memory gets zeros and nothing is read.
    Start(Address, SharedId, Value, Value),
    /// Ends a group of copies of this thread.
    Commit,
    /// Waits until at most this many groups of this thread are not done.
    Wait(u32),
}

/// Number of bytes that one asynchronous copy of a vector moves.
pub const ASYNC_COPY_BYTES: usize = 16;

/// A statement of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stmt {
    /// Defines a value as the result of an expression.
    Let(Value, Expr),
    /// Writes the lanes of a value to a buffer.
    Store(Address, Value),
    /// Runs `body` for `var` = `start`, `start + step`, … below `end`.
    Loop {
        /// The counter, an index of one lane.
        var: Value,
        /// Distribution of the iterations.
        kind: LoopKind,
        /// First value of the counter.
        start: Value,
        /// Exclusive bound of the counter.
        end: Value,
        /// Distance between values of the counter, > 0.
        step: Value,
        /// Values that pass from one iteration to the next; `LoopKind::Serial` only.
        carried: Vec<Carried>,
        /// Body of the loop.
        body: Vec<Stmt>,
    },
    /// Runs `body` once with `len` lanes in each `Lanes::Loop` value. The CPU only; not nested.
    Vector {
        /// Number of lanes.
        len: Value,
        /// Body of the vector loop.
        body: Vec<Stmt>,
        /// Reductions of the lanes.
        folds: Vec<Fold>,
    },
    /// Reduces values of a team's threads and gives each thread the result, or reduces the columns of each row of a tile.
    /// GPUs only.
    ///
    /// All threads of the team reach the statement. `legalize` lowers the reduction to shuffles, shared
    /// memory and barriers.
    AllReduce(Box<Fold>),
    /// Writes the lanes of a value to shared memory, from the index on.
    StoreShared(SharedId, Value, Value),
    /// Executes a step of copies to shared memory.
    AsyncCopy(AsyncCopy),
    /// Executes a step of an exchange between the blocks of a cluster.
    ClusterExchange(ClusterExchange),
    /// Waits for all threads of the scope, and for their reads and writes. GPUs only.
    Barrier(Scope),
    /// Runs `body` if `cond` is true, or for the elements of a tile for which it is.
    If {
        /// The condition, a `Bool` of one lane, or of a tile whose elements the body stores.
        cond: Value,
        /// Body of the conditional.
        body: Vec<Stmt>,
    },
}

/// The elements of a buffer that the lanes of an access touch.
///
/// With an `index` of one lane, lane `j` is the element `index + j·stride + phase`. An `index` with the lanes
/// of the value gathers elements (`stride` 1, `phase` 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Buffer of the access.
    pub buffer: BufferId,
    /// Index of the access, in elements.
    pub index: Value,
    /// Number of elements from lane to lane, > `phase`.
    pub stride: u32,
    /// Offset of the first lane from the index, in elements.
    pub phase: u32,
    /// True if contiguous lanes are an aligned vector: the first index is a multiple of the number of lanes.
    ///
    /// Only PTX has unaligned vectors.
    pub aligned: bool,
}

impl Address {
    /// Returns the address of contiguous elements from `index` on, or of gathered elements if `index` has
    /// several lanes.
    pub fn new(buffer: BufferId, index: Value) -> Address {
        Address { buffer, index, stride: 1, phase: 0, aligned: true }
    }
}

/// The thread of a warp that a shuffle reads from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shuffle {
    /// The thread whose number is greater by this constant. The last threads read their own value.
    Down(u32),
    /// The thread whose number is greater by this uniform value. The last threads read an unspecified value.
    DownBy(Value),
    /// The first thread.
    First,
}

/// The operands of an expression, or the values that a statement defines. There are hardly ever more than
/// four.
pub type Values = SmallVec<[Value; 4]>;

/// The computation of a value. The type of the result is the value's type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expr {
    /// A constant; one lane.
    Const(Const),
    /// A uniform; one lane.
    Uniform(UniformId),
    /// An operation of the table, lane by lane. All operands have the lanes of the result.
    Apply(Op, Values),
    /// A conversion to the type of the result, lane by lane.
    Cast(Value),
    /// A reinterpretation of the bits as another type of the same size.
    Bitcast(Value),
    /// A value of one lane, copied to every lane.
    Splat(Value),
    /// Values of one lane, packed into the lanes of one value.
    Pack(Values),
    /// One lane of a value with a constant number of lanes.
    Lane(Value, u8),
    /// A value of the machine or of the enclosing loop, without operands.
    Builtin(Builtin),
    /// A read of elements.
    Load(Address),
    /// A masked read of elements; the mask has one lane for all elements, or a lane for each.
    ///
    /// Elements whose mask is false are 0 and are not read, so their positions may be outside of the buffer.
    LoadWhere(Address, Value),
    /// The value that another thread of the warp has; GPUs only, formed by `legalize`.
    Shuffle(Value, Shuffle),
    /// A read of shared memory, from the index on.
    LoadShared(SharedId, Value),
    /// The matrix product of two tiles, added to a tile: `sum[m, n] + Σ_k left[m, k] · right[k, n]`.
    ///
    /// Terms are added in the order of `k`. The operands are the sum, the left tile and the right tile.
    Product(Value, Value, Value),
    /// Four matrices of 8 rows of 16 bytes from shared memory, transposed if the flag is true.
    ///
    /// They have elements of 16 bits, or of 32 bits, which are not transposed.
    /// Each thread of the warp gives the index of a row: thread `8·i + j` of row `j` of matrix `i`. Lane `i` of the
    /// result has 32 bits of matrix `i`. PTX only, formed by `legalize` (PTX ISA, `ldmatrix`).
    LoadMatrices(SharedId, Value, bool),
    /// The product of two matrices, added to a matrix of 16 × 8 elements of `f32`.
    ///
    /// The factors have 16 × 16 and 16 × 8 narrow floats, or 16 × 8 and 8 × 8 elements of `f32` rounded by `ToTf32`.
    /// The operands are the sum in four lanes, the left matrix in four and the right one in two. PTX only, formed
    /// by `legalize` (PTX ISA, `mma.m16n8k16` and `mma.m16n8k8`).
    MatrixProduct(DType, Value, Value, Value),
}

/// A program and its arguments: the buffers in order, then the uniforms in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// Name of the kernel, unique within its plan and valid in every target's language.
    pub name: String,
    /// Buffers, the first arguments.
    pub buffers: Vec<Buffer>,
    /// Uniforms, the remaining arguments.
    pub uniforms: Vec<Uniform>,
    /// Type of each value.
    pub types: Vec<Type>,
    /// Body that each thread runs.
    pub body: Vec<Stmt>,
    /// Width of `DType::Index`.
    pub index: IndexWidth,
    /// Mapping of iterations to threads.
    pub threads: ThreadMap,
    /// Iterations of an innermost loop that are loaded before the first is used, a power of two. PTX only.
    ///
    /// The remaining iterations are loaded in groups of half as many, and so on. With 1, the target's
    /// compiler decides.
    pub load_unroll: u32,
    /// Shared memory of a block.
    pub shared: Vec<Shared>,
}

/// A mapping of the iterations of a kernel to threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadMap {
    /// Number of threads in a team, a power of two; 1 if each thread works alone.
    pub team: u32,
    /// Rows that a team works on at a time, or rows of tiles that different threads have, a power of two. Only the
    /// threads that share a row combine their values.
    pub rows: u32,
    /// True if a thread's row is its number modulo `rows`; else consecutive threads share a row.
    pub cyclic: bool,
    /// True if the blocks of a cluster share an iteration. Each block is then a team.
    pub cluster: bool,
    /// Way in which a team multiplies tiles.
    pub panels: Panels,
}

/// Way in which a team multiplies tiles: panels of both factors, which are in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Panels {
    /// Threads compute elements, store them in panels, and multiply them.
    Stored,
    /// Asynchronous copies fill panels, some steps ahead, and threads multiply elements. Needs `sm_80`.
    Copied,
    /// Asynchronous copies fill panels, and warps multiply matrices in their registers. Needs `sm_80`.
    Matrices,
}

impl Panels {
    /// Returns true if asynchronous copies fill the panels.
    pub fn are_copied(self) -> bool {
        self != Panels::Stored
    }
}

impl ThreadMap {
    /// The mapping to threads that each work alone.
    pub const ALONE: ThreadMap =
        ThreadMap { team: 1, rows: 1, cyclic: false, cluster: false, panels: Panels::Stored };

    /// Returns the number of threads that share a row.
    pub fn per_row(self) -> u32 {
        self.team / self.rows
    }
}

impl Kernel {
    /// Creates a kernel without statements, whose threads work alone.
    pub fn new(name: impl Into<String>, index: IndexWidth) -> Kernel {
        Kernel {
            name: name.into(),
            buffers: vec![],
            uniforms: vec![],
            types: vec![],
            body: vec![],
            index,
            threads: ThreadMap::ALONE,
            load_unroll: 1,
            shared: vec![],
        }
    }

    /// Returns the type of a value.
    pub fn ty(&self, value: Value) -> Type {
        self.types[value.0 as usize]
    }

    /// Returns the buffer of this number.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[usize::from(id.0)]
    }

    /// Returns the uniform of this number.
    pub fn uniform(&self, id: UniformId) -> &Uniform {
        &self.uniforms[usize::from(id.0)]
    }
}
