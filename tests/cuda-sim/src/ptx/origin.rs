//! Data-flow analysis that finds the variable of shared, local or parameter memory that an address points
//! into.
//!
//! Invariant: an address with a variable is computed from that variable's address and from numbers alone, on
//! all paths that lead to it. All other addresses stay without a variable, so that a kernel that divides its
//! memory by hand is left alone.

use std::collections::HashMap;

use super::ir::{Addr, Alu, Constant, Inst, IntBin, IntTri, Op, Placed, Reg, Space, Together, Var, Wide};
use super::live;
use super::types::{Class, Type};

/// Origin of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Origin {
    /// Value that nothing writes on the paths seen so far.
    #[default]
    Nowhere,
    /// Value without the address of a variable in it, or a loaded value.
    Number,
    /// Address of this variable plus numbers.
    Of(Var),
    /// Value of any other origin.
    Unknown,
}
use Origin::{Nowhere, Number, Of, Unknown};

impl Origin {
    /// Returns the origin of a value that has one origin or the other, by path.
    fn or(self, o: Origin) -> Origin {
        match (self, o) {
            (Nowhere, x) | (x, Nowhere) => x,
            (x, y) if x == y => x,
            (Number | Of(_) | Unknown, Number | Of(_) | Unknown) => Unknown,
        }
    }

    fn plus(self, o: Origin) -> Origin {
        match (self, o) {
            (Nowhere, _) | (_, Nowhere) => Nowhere,
            (Number, x) | (x, Number) => x,
            (Of(_) | Unknown, Of(_) | Unknown) => Unknown,
        }
    }

    fn minus(self, o: Origin) -> Origin {
        match (self, o) {
            (Nowhere, _) | (_, Nowhere) => Nowhere,
            (x, Number) => x,
            (Of(a), Of(b)) if a == b => Number,
            (Number | Of(_) | Unknown, Of(_) | Unknown) => Unknown,
        }
    }

    /// Returns the origin of a result that keeps no address, such as a product.
    fn mixed(self, o: Origin) -> Origin {
        match (self, o) {
            (Nowhere, _) | (_, Nowhere) => Nowhere,
            (Number, Number) => Number,
            (Number | Of(_) | Unknown, Number | Of(_) | Unknown) => Unknown,
        }
    }
}

/// Origins of all registers at a place in the code.
type State = Vec<Origin>;

/// Origins of the values shuffled in each mode.
///
/// Lanes at two instructions may exchange values, so the result of either has the origins of both.
type Shuffled = [Origin; 4];

/// Sets the variable of each address for which the analysis finds one.
pub(super) fn find(
    insts: &mut [Inst],
    rows: Reg,
    (constants, vars): (&[(Reg, Wide, Constant)], &[Placed]),
    (reads, writes): (&[Reg], &[Vec<Reg>]),
) {
    let of_constant = |constant: Constant| match constant {
        Constant::Placed(var, _) => Of(var),
        Constant::Bits(_) | Constant::Global(..) => Number,
    };
    let fixed: HashMap<Reg, Origin> =
        constants.iter().map(|&(row, _, constant)| (row, of_constant(constant))).collect();
    // Without an address in a register, every access to a known variable names the variable itself.
    if !fixed.values().any(|origin| matches!(origin, Of(_))) {
        return;
    }
    let mut start = vec![Nowhere; rows as usize];
    fixed.iter().for_each(|(&row, &origin)| start[row as usize] = origin);
    let blocks = live::blocks(insts);
    let numbers: HashMap<usize, usize> = blocks.iter().enumerate().map(|(i, block)| (block.0, i)).collect();
    let mut entering: Vec<Option<State>> = vec![None; blocks.len()];
    entering[0] = Some(start);
    let (mut todo, mut shuffled) = (vec![0], Shuffled::default());
    while let Some(number) = todo.pop() {
        let (from, to) = blocks[number];
        let Some(mut state) = entering[number].clone() else { continue };
        let before = shuffled;
        (from..to).for_each(|at| step(&mut state, &insts[at], (reads, &writes[at], vars), &mut shuffled));
        if shuffled != before {
            todo = (0..blocks.len()).filter(|&block| entering[block].is_some()).collect();
        }
        for next in live::successors(insts, to).iter().filter_map(|next| numbers.get(next)) {
            if join(&mut entering[*next], &state) && !todo.contains(next) {
                todo.push(*next);
            }
        }
    }
    for (number, &(from, to)) in blocks.iter().enumerate() {
        let Some(state) = &mut entering[number] else { continue };
        for at in from..to {
            for (space, addr) in addresses(&mut insts[at].op).into_iter().flatten() {
                if let Some((base, _)) = addr.base
                    && let Of(var) = state[base as usize]
                    && vars[var as usize].space.is_reached_by(space)
                {
                    addr.var = Some(var);
                }
            }
            step(state, &insts[at], (reads, &writes[at], vars), &mut shuffled);
        }
    }
}

/// Joins the state of another path, and returns true if that changes anything.
fn join(to: &mut Option<State>, from: &State) -> bool {
    let Some(to) = to else {
        *to = Some(from.clone());
        return true;
    };
    let mut changed = false;
    for (old, new) in to.iter_mut().zip(from) {
        let both = old.or(*new);
        changed |= both != *old;
        *old = both;
    }
    changed
}

/// Returns the addresses that an instruction accesses, with their spaces. The source of a copy is global, and
/// left out.
fn addresses(op: &mut Op) -> [Option<(Space, &mut Addr)>; 2] {
    match op {
        Op::Load(access) | Op::Store(access) => [Some((access.space, &mut access.addr)), None],
        Op::Atom(atom) => [Some((atom.space, &mut atom.addr)), None],
        Op::StoreAsync(store) => {
            [&mut store.to, &mut store.mbarrier].map(|addr| Some((Space::Cluster, addr)))
        }
        Op::CopyAsync { to: addr, .. }
        | Op::Mbarrier { addr, .. }
        | Op::Together { what: Together::LdMatrix { addr, .. }, .. } => [Some((Space::Shared, addr)), None],
        Op::Nop
        | Op::Alu(_)
        | Op::Special { .. }
        | Op::Cvta { .. }
        | Op::IsSpace { .. }
        | Op::MapRank { .. }
        | Op::RankOf { .. }
        | Op::CopyCommit
        | Op::CopyWait(_)
        | Op::Fence { .. }
        | Op::FenceInit
        | Op::Branch { .. }
        | Op::BranchTable { .. }
        | Op::Exit
        | Op::Trap
        | Op::Together { .. }
        | Op::ActiveMask { .. }
        | Op::Bar { .. }
        | Op::ClusterBar { .. } => [None, None],
    }
}

/// Updates the origins by an instruction.
fn step(
    state: &mut State,
    inst: &Inst,
    (reads, writes, vars): (&[Reg], &[Reg], &[Placed]),
    shuffled: &mut Shuffled,
) {
    let (first, count) = inst.reads;
    let read = &reads[first as usize..(first + count) as usize];
    let origin = made(state, &inst.op, (read, vars), shuffled);
    if let Op::Special { d, .. } = inst.op {
        // The instruction that reads a special register for an operand has a destination without a name.
        state[d as usize] = origin;
    }
    for &reg in writes {
        let old = &mut state[reg as usize];
        *old = if inst.guard.is_some() { old.or(origin) } else { origin };
    }
}

/// Returns the origin of the values that an instruction writes.
fn made(state: &State, op: &Op, (reads, vars): (&[Reg], &[Placed]), shuffled: &mut Shuffled) -> Origin {
    let of = |reg: &Reg| state[*reg as usize];
    match op {
        Op::Alu(alu) => computed(alu, of).unwrap_or_else(|| reads.iter().map(of).fold(Number, Origin::mixed)),
        // A conversion from another space than the variable's yields no address of it.
        Op::Cvta { space, a, .. } => match of(a) {
            Of(var) if !vars[var as usize].space.is_reached_by(*space) => Unknown,
            origin @ (Nowhere | Number | Of(_) | Unknown) => origin,
        },
        // The result is the same place in another block, in the same variable.
        Op::MapRank { a, .. } => of(a),
        Op::Together { what: Together::Shfl { mode, a, .. }, .. } => {
            let all = &mut shuffled[*mode as usize];
            *all = all.or(of(a));
            *all
        }
        // Loaded values and counters are numbers.
        Op::Nop
        | Op::Special { .. }
        | Op::IsSpace { .. }
        | Op::RankOf { .. }
        | Op::Load(_)
        | Op::Store(_)
        | Op::Atom(_)
        | Op::CopyAsync { .. }
        | Op::CopyCommit
        | Op::CopyWait(_)
        | Op::StoreAsync(_)
        | Op::Mbarrier { .. }
        | Op::Fence { .. }
        | Op::FenceInit
        | Op::Branch { .. }
        | Op::BranchTable { .. }
        | Op::Exit
        | Op::Trap
        | Op::Together { .. }
        | Op::ActiveMask { .. }
        | Op::Bar { .. }
        | Op::ClusterBar { .. } => Number,
    }
}

/// Returns the origin of arithmetic that may keep an address.
fn computed(alu: &Alu, of: impl Fn(&Reg) -> Origin) -> Option<Origin> {
    Some(match alu {
        Alu::Move { a, .. } => of(a),
        Alu::Convert { convert, a, .. } if is_whole(convert.to) && is_whole(convert.from) => of(a),
        Alu::IntBin { op: IntBin::Add, a, b, .. } => of(a).plus(of(b)),
        Alu::IntBin { op: IntBin::Sub, a, b, .. } => of(a).minus(of(b)),
        Alu::IntTri { op: IntTri::MadLo, a, b, c, .. } | Alu::MadWide { a, b, c, .. } => {
            of(a).mixed(of(b)).plus(of(c))
        }
        Alu::Selp { a, b, .. } => of(a).or(of(b)),
        Alu::IntUn { .. }
        | Alu::Count { .. }
        | Alu::IntBin { .. }
        | Alu::IntPair { .. }
        | Alu::IntTri { .. }
        | Alu::MulWide { .. }
        | Alu::Carry { .. }
        | Alu::Shift { .. }
        | Alu::Funnel { .. }
        | Alu::Lop3 { .. }
        | Alu::Lop3Pred { .. }
        | Alu::Mask { .. }
        | Alu::Extend { .. }
        | Alu::Fns { .. }
        | Alu::Prmt { .. }
        | Alu::Bfe { .. }
        | Alu::Bfi { .. }
        | Alu::Dot { .. }
        | Alu::AbsDiff { .. }
        | Alu::FloatUn { .. }
        | Alu::FloatBin { .. }
        | Alu::Fma { .. }
        | Alu::Testp { .. }
        | Alu::Convert { .. }
        | Alu::ConvertPair { .. }
        | Alu::Setp { .. }
        | Alu::Set { .. }
        | Alu::Slct { .. }
        | Alu::PredBin { .. }
        | Alu::PredMove { .. }
        | Alu::Pack { .. }
        | Alu::Unpack { .. } => return None,
    })
}

/// Returns true if an address keeps its value in this type.
fn is_whole(ty: Type) -> bool {
    ty.class() == Class::Int && ty.bytes() >= 4
}
