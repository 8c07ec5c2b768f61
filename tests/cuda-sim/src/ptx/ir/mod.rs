//! The decoded instructions: data only.
//!
//! An operand is a row of the register file. Immediates and addresses of variables are rows that are filled
//! before the first instruction, so that no instruction asks what kind of operand it has. A row is 32 lanes
//! of 32 bits; a register of 64 bits is two rows. Predicates have a row number too, but are masks of lanes.

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

/// A row of the register file.
pub(crate) type Reg = u32;

/// One instruction.
#[derive(Debug)]
pub(crate) struct Inst {
    pub(crate) guard: Option<Guard>,
    pub(crate) op: Op,
    /// First of [`Code::reads`], and how many.
    pub(crate) reads: (u32, u32),
    /// The same of [`Code::writes`].
    pub(crate) writes: (u32, u32),
    /// Where its text starts and ends.
    pub(crate) text: (u32, u32),
}

impl Inst {
    /// What it writes, of [`Code::writes`].
    pub(crate) fn written<'c>(&self, writes: &'c [Reg]) -> &'c [Reg] {
        let (first, count) = self.writes;
        &writes[first as usize..(first + count) as usize]
    }
}

/// `@p` or `@!p`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    pub(crate) pred: Reg,
    pub(crate) negated: bool,
}

/// A predicate operand, possibly negated.
pub(crate) type PredSrc = Guard;

/// `cvt` of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Convert {
    pub(crate) to: Type,
    pub(crate) from: Type,
    pub(crate) round: Round,
    /// To a whole number, which may be a float.
    pub(crate) integral: bool,
    pub(crate) ftz: bool,
    pub(crate) sat: bool,
    pub(crate) relu: bool,
    /// Rows of the destination and of the source, whose registers may be wider than the types.
    pub(crate) wide: (Wide, Wide),
}

/// Where an access goes: a register, or nothing, and so many bytes further.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addr {
    pub(crate) base: Option<(Reg, Wide)>,
    pub(crate) offset: i64,
    /// The variable that it stays in, where that can be told.
    pub(crate) var: Option<Var>,
}

/// Which accesses a strong one orders: what comes after it, what comes before it; whether beyond the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ordered {
    pub(crate) acquires: bool,
    pub(crate) releases: bool,
    pub(crate) wide: bool,
}

/// One load or store of one or more elements side by side.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) space: Space,
    pub(crate) ty: Type,
    pub(crate) addr: Addr,
    /// `.volatile`, `.relaxed`, `.acquire`, `.release`: no race with its like.
    pub(crate) strong: bool,
    /// `.nc`: of what nothing writes in the launch.
    pub(crate) is_constant: bool,
    pub(crate) order: Ordered,
    /// None where the element is `_`.
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

/// `atom` and `red`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Atom {
    pub(crate) op: AtomOp,
    pub(crate) ty: Type,
    pub(crate) space: Space,
    pub(crate) addr: Addr,
    pub(crate) order: Ordered,
    /// None: `red`, or `_`.
    pub(crate) d: Option<Reg>,
    pub(crate) b: Reg,
    pub(crate) c: Option<Reg>,
}

/// What lanes of a warp do together, once all of the mask are there.
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
    /// `match.any` or `match.all`, the latter with an optional predicate.
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
    /// `ldmatrix` of so many matrices.
    LdMatrix {
        trans: bool,
        d: [Reg; 4],
        count: u8,
        addr: Addr,
    },
    Mma(Mma),
}

/// Elements of the factors of a matrix product.
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
    /// Whether `d`, and whether `c`, is of f16 pairs instead of f32.
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

/// What a thread does at a barrier of the block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bar {
    Sync,
    Arrive,
    /// Reduces a predicate over all threads.
    Red {
        op: BarRed,
        d: Reg,
        p: PredSrc,
    },
}

/// What a thread does at the barrier of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClusterBar {
    /// Whether those that wait know what was done before.
    Arrive {
        releases: bool,
    },
    Wait,
}

/// What a lane computes from its own registers.
#[derive(Debug)]
pub(crate) enum Alu {
    // Whole numbers and bits.
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
    /// The same of two halves of 16 bits, each by itself.
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
    /// With the carry of the thread coming in, going out, or both.
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
    /// `shf`: `wrap` takes the amount modulo 32, otherwise it is at most 32.
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
    /// `lop3` whose result, if it is not 0, makes `p` with `q`.
    Lop3Pred {
        table: u8,
        op: Logic,
        d: Reg,
        p: Reg,
        abc: [Reg; 3],
        q: PredSrc,
    },
    /// `bmsk`: `b` bits from `a` on. `clamp`: there is no more than the word; otherwise both are modulo 32.
    Mask {
        clamp: bool,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    /// `szext`: the lowest `b` bits, extended by their sign or by zeros.
    Extend {
        clamp: bool,
        ty: Int,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    /// `fns`: where the `c`th bit of `a` from `b` on is that is set.
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
    /// Products of bytes of `b` with bytes of `a`, or with its halves, and a sum; whether `a` and `b` are signed.
    Dot {
        dot: Dot,
        signed: (bool, bool),
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    /// `vabsdiff4`: how far bytes are from bytes, in as many bytes, or all of it added to a number.
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
    /// Two f32 into one register of halves: `a` is the upper.
    ConvertPair {
        to: Float,
        round: Round,
        relu: bool,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    // Choices.
    /// `p`, and its complement `q` (for pairs: the upper half), combined with `and`.
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
    /// `set`: all ones or 1.0.
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
    /// By the sign of `c`.
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
    /// Elements from the lowest on into one register.
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

/// What an instruction does.
#[derive(Debug)]
pub(crate) enum Op {
    Nop,
    Alu(Alu),
    Special {
        special: Special,
        wide: Wide,
        d: Reg,
    },
    /// `cvta`, or the other way around.
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
    /// `mapa`: an address of shared memory, generic or not, in the block of rank `b`.
    MapRank {
        generic: bool,
        wide: Wide,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    /// `getctarank`: the rank of the block whose shared memory an address is of.
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
    /// `cp.async`: to shared memory; `fill` says how many bytes are read, the rest is zeros.
    CopyAsync {
        to: Addr,
        from: Addr,
        bytes: u32,
        fill: Option<Reg>,
    },
    CopyCommit,
    /// Until at most so many groups are under way; none: also what is not committed.
    CopyWait(Option<u32>),
    StoreAsync(AsyncStore),
    Mbarrier {
        addr: Addr,
        what: Mbarrier,
    },
    /// `fence.mbarrier_init`, of the cluster.
    FenceInit,
    /// `membar` and `fence`; whether other blocks see it, and which halves it has.
    Fence {
        wide: bool,
        acquires: bool,
        releases: bool,
    },
    // Control.
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
