//! Decoded instructions: data only.
//!
//! An operand is a row of the register file. Immediates and addresses of variables are rows that are filled
//! before the first instruction, so that no instruction asks what kind of operand it has. A row is 32 lanes
//! of 32 bits. A register of 64 bits is two rows. Predicates have a row number too, but are masks of lanes.

mod code;
mod kinds;
mod mbarrier;
mod order;
mod space;
mod special;

pub(crate) use code::*;
pub(crate) use kinds::*;
pub(crate) use mbarrier::{AsyncStore, MOST_COUNTED, Mbarrier};
pub(crate) use order::Orders;
pub(crate) use space::Space;
pub(crate) use special::Special;

use super::types::Type;

/// Number of a row of the register file.
pub(crate) type Reg = u32;

/// One instruction.
#[derive(Debug)]
pub(crate) struct Inst {
    pub(crate) guard: Option<Guard>,
    pub(crate) op: Op,
    /// Start and length of the instruction's range in [`Code::reads`].
    pub(crate) reads: (u32, u32),
    /// Start and length of the instruction's range in [`Code::writes`].
    pub(crate) writes: (u32, u32),
    /// Start and end of the instruction's text.
    pub(crate) text: (u32, u32),
}

impl Inst {
    /// Returns the registers that the instruction writes, from [`Code::writes`].
    pub(crate) fn written<'c>(&self, writes: &'c [Reg]) -> &'c [Reg] {
        let (first, count) = self.writes;
        &writes[first as usize..(first + count) as usize]
    }
}

/// Guard of an instruction: `@p` or `@!p`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    pub(crate) pred: Reg,
    pub(crate) negated: bool,
}

/// Predicate operand, possibly negated.
pub(crate) type PredSrc = Guard;

/// Conversion of one value: `cvt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Convert {
    pub(crate) to: Type,
    pub(crate) from: Type,
    pub(crate) round: Round,
    /// True if the value is rounded to an integer. The result may still be a float.
    pub(crate) integral: bool,
    pub(crate) ftz: bool,
    pub(crate) sat: bool,
    pub(crate) relu: bool,
    /// Rows of the destination and of the source, whose registers may be wider than the types.
    pub(crate) wide: (Wide, Wide),
}

/// Address of an access: an optional base register plus an offset in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addr {
    pub(crate) base: Option<(Reg, Wide)>,
    pub(crate) offset: i64,
    /// Variable that the address stays in, if known.
    pub(crate) var: Option<Var>,
}

/// Ordering of a strong access. `wide` is true if the ordering extends beyond the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ordered {
    pub(crate) acquires: bool,
    pub(crate) releases: bool,
    pub(crate) wide: bool,
}

/// One load or store of one or more adjacent elements.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) space: Space,
    pub(crate) ty: Type,
    pub(crate) addr: Addr,
    /// True for `.volatile`, `.relaxed`, `.acquire` and `.release`, which do not race with one another.
    pub(crate) strong: bool,
    /// True for `.nc`: a load of memory that nothing writes in the launch.
    pub(crate) is_constant: bool,
    pub(crate) order: Ordered,
    /// Registers of the elements. None where an element is `_`.
    pub(crate) regs: Box<[Option<(Reg, Wide)>]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exch,
    Cas,
    Inc,
    Dec,
}

/// Atomic operation: `atom` or `red`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Atom {
    pub(crate) op: AtomOp,
    pub(crate) ty: Type,
    pub(crate) space: Space,
    pub(crate) addr: Addr,
    pub(crate) order: Ordered,
    /// Destination. None for `red` and for `_`.
    pub(crate) d: Option<Reg>,
    pub(crate) b: Reg,
    pub(crate) c: Option<Reg>,
}

/// Operation that lanes of a warp do together, once all lanes of the mask have arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Together {
    /// `bar.warp.sync`
    Sync,
    Shfl {
        mode: ShflMode,
        d: Reg,
        p: Option<Reg>,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    Vote {
        vote: Vote,
        d: Reg,
        p: PredSrc,
    },
    /// `match.any` or `match.all`. The latter has an optional predicate.
    Match {
        bits: Bits,
        all: bool,
        d: Reg,
        p: Option<Reg>,
        a: Reg,
    },
    Redux {
        op: Redux,
        ty: Int,
        d: Reg,
        a: Reg,
    },
    Elect {
        d: Option<Reg>,
        p: Reg,
    },
    /// `ldmatrix` of `count` matrices.
    LdMatrix {
        trans: bool,
        d: [Reg; 4],
        count: u8,
        addr: Addr,
    },
    Mma(Mma),
}

/// Element type of the factors of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Factor {
    F16,
    BF16,
    TF32,
}

/// `mma.sync.aligned.m16n8kK.row.col`
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mma {
    pub(crate) k: u8,
    pub(crate) factor: Factor,
    /// True for each of `d` and `c` that consists of f16 pairs instead of f32.
    pub(crate) half: (bool, bool),
    pub(crate) d: [Reg; 4],
    pub(crate) a: [Reg; 4],
    pub(crate) b: [Reg; 2],
    pub(crate) c: [Reg; 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarRed {
    Popc,
    And,
    Or,
}

/// Operation of a thread at a barrier of the block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bar {
    Sync,
    Arrive,
    /// Reduction of a predicate over all threads.
    Red {
        op: BarRed,
        d: Reg,
        p: PredSrc,
    },
}

/// Operation of a thread at the barrier of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClusterBar {
    /// Arrival. `releases` is true if threads that wait see the accesses before it.
    Arrive {
        releases: bool,
    },
    Wait,
}

/// Operation of a lane on its own registers.
#[derive(Debug)]
pub(crate) enum Alu {
    // Integers and bits.
    IntUn {
        op: IntUn,
        ty: Int,
        d: Reg,
        a: Reg,
    },
    Count {
        op: Count,
        ty: Int,
        d: Reg,
        a: Reg,
    },
    IntBin {
        op: IntBin,
        ty: Int,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    /// Operation on two 16-bit halves, each by itself.
    IntPair {
        op: IntBin,
        ty: Int,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    IntTri {
        op: IntTri,
        ty: Int,
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    MulWide {
        ty: Int,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    MadWide {
        ty: Int,
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    /// Operation that reads the carry of the thread, writes it, or both.
    Carry {
        op: CarryOp,
        ty: Int,
        carry_in: bool,
        carry_out: bool,
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    Shift {
        shift: Shift,
        ty: Int,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    /// `shf`. With `wrap` the amount is taken modulo 32, otherwise it is clamped to 32.
    Funnel {
        shift: Shift,
        wrap: bool,
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    Lop3 {
        table: u8,
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    /// `lop3` with a predicate: `p` is `op` of `q` and of whether the result is not 0.
    Lop3Pred {
        table: u8,
        op: Logic,
        d: Reg,
        p: Reg,
        abc: [Reg; 3],
        q: PredSrc,
    },
    /// `bmsk`: a mask of `b` bits from bit `a` on. With `clamp` the mask ends with the word, otherwise both
    /// are taken modulo 32.
    Mask {
        clamp: bool,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    /// `szext`: the lowest `b` bits, extended by sign or by zeros.
    Extend {
        clamp: bool,
        ty: Int,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    /// `fns`: the position of the `c`th set bit of `a` from bit `b` on.
    Fns {
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    Prmt {
        mode: Prmt,
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    Bfe {
        ty: Int,
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    Bfi {
        ty: Int,
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
        e: Reg,
    },
    /// Dot product of bytes or halves of `a` with bytes of `b`, plus `c`. `signed` is for `a` and `b`.
    Dot {
        dot: Dot,
        signed: (bool, bool),
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    /// `vabsdiff4`: the absolute differences of four pairs of bytes, as four bytes or as their sum added to a
    /// number.
    AbsDiff {
        add: Option<Reg>,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    // Floats.
    FloatUn {
        op: FloatUn,
        ty: Float,
        mode: Mode,
        d: Reg,
        a: Reg,
    },
    FloatBin {
        op: FloatBin,
        ty: Float,
        mode: Mode,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    Fma {
        ty: Float,
        mode: Mode,
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    Testp {
        test: Test,
        ty: Float,
        d: Reg,
        a: Reg,
    },
    Convert {
        convert: Convert,
        d: Reg,
        a: Reg,
    },
    /// Conversion of two f32 to one register of halves. `a` becomes the upper half.
    ConvertPair {
        to: Float,
        round: Round,
        relu: bool,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    // Selections.
    /// `setp`: `p` and its complement `q`, combined with `and`. For pairs `q` is the result of the upper
    /// half.
    Setp {
        cmp: Cmp,
        ty: Number,
        ftz: bool,
        and: Option<(Logic, PredSrc)>,
        p: Option<Reg>,
        q: Option<Reg>,
        a: Reg,
        b: Reg,
    },
    /// `set`, whose result for true is all ones or 1.0.
    Set {
        cmp: Cmp,
        ty: Number,
        ftz: bool,
        and: Option<(Logic, PredSrc)>,
        truth: u32,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    Selp {
        bits: Bits,
        d: Reg,
        a: Reg,
        b: Reg,
        p: PredSrc,
    },
    /// `slct`: a selection by the sign of `c`.
    Slct {
        bits: Bits,
        float: bool,
        ftz: bool,
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    PredBin {
        op: Logic,
        d: Reg,
        a: PredSrc,
        b: PredSrc,
    },
    PredMove {
        d: Reg,
        a: PredSrc,
    },
    // Moves.
    Move {
        bits: Bits,
        d: Reg,
        a: Reg,
    },
    /// Combines elements, the lowest first, to one register.
    Pack {
        element: Bits,
        whole: Wide,
        d: Reg,
        a: Box<[Reg]>,
    },
    Unpack {
        element: Bits,
        whole: Wide,
        d: Box<[Option<Reg>]>,
        a: Reg,
    },
}

/// Operation of an instruction.
#[derive(Debug)]
pub(crate) enum Op {
    Nop,
    Alu(Alu),
    Special {
        special: Special,
        wide: Wide,
        d: Reg,
    },
    /// `cvta`, or `cvta.to` in the other direction.
    Cvta {
        space: Space,
        to: bool,
        d: Reg,
        a: Reg,
    },
    IsSpace {
        space: Space,
        d: Reg,
        a: Reg,
    },
    /// `mapa`: maps an address of shared memory, generic or not, to the block of rank `b`.
    MapRank {
        generic: bool,
        wide: Wide,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    /// `getctarank`: the rank of the block whose shared memory contains an address.
    RankOf {
        generic: bool,
        wide: Wide,
        d: Reg,
        a: Reg,
    },
    // Memory.
    Load(Access),
    Store(Access),
    Atom(Atom),
    /// `cp.async` to shared memory. `fill` is the number of bytes to read. The rest is filled with zeros.
    CopyAsync {
        to: Addr,
        from: Addr,
        bytes: u32,
        fill: Option<Reg>,
    },
    CopyCommit,
    /// Waits until at most this many groups are pending. None also waits for copies that are not committed.
    CopyWait(Option<u32>),
    StoreAsync(AsyncStore),
    Mbarrier {
        addr: Addr,
        what: Mbarrier,
    },
    /// `fence.mbarrier_init`, with the scope of the cluster.
    FenceInit,
    /// `membar` and `fence`. `wide` is true if the scope includes other blocks.
    Fence {
        wide: bool,
        acquires: bool,
        releases: bool,
    },
    // Control flow.
    Branch {
        target: u32,
    },
    /// `brx.idx`
    BranchTable {
        index: Reg,
        targets: Box<[u32]>,
    },
    /// `ret` and `exit`
    Exit,
    Trap,
    Together {
        mask: Reg,
        what: Together,
    },
    ActiveMask {
        d: Reg,
    },
    Bar {
        id: Reg,
        threads: Option<Reg>,
        aligned: bool,
        bar: Bar,
    },
    /// `barrier.cluster`
    ClusterBar {
        bar: ClusterBar,
        aligned: bool,
    },
}
