//! Reads and writes of memory: addresses, those of global memory each once, and as many elements at a time as there are side by
//! side.

use smallvec::{SmallVec, smallvec};

use super::{Bank, Emitter, Register, Registers, lanes, shared_name, suffix};
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::Access;
use crate::ir::kernel::{
    Address, Builtin, Expr, IndexWidth, Kernel, Lanes, Shared, SharedId, SharedLen, Stmt, Type, Value,
    statements,
};
use crate::ir::op::Op;

/// A position as a sum of others.
#[derive(Clone)]
pub(super) struct AddressSum {
    terms: SmallVec<[AddressTerm; 4]>,
    /// Whether all in it are counts: no part is taken off, so that none is larger than the position.
    counts: bool,
}

/// A part of a position.
#[derive(Clone, Copy)]
struct AddressTerm {
    value: Value,
    /// The innermost of the loops around that changes it: 0 for none, 1 for the outermost.
    depth: u32,
    /// Whether it is taken off.
    is_less: bool,
}

impl AddressSum {
    fn one((depth, value): (u32, Value), counts: bool) -> AddressSum {
        AddressSum { terms: smallvec![AddressTerm { value, depth, is_less: false }], counts }
    }

    /// The terms, those first that inner loops leave alone, if there are such: the assembler makes addresses up to there outside of
    /// the loop, and where it unrolls that, what the loop adds is part of the instruction that reads or writes.
    fn apart(&self) -> Option<SmallVec<[AddressTerm; 4]>> {
        let mut terms = self.terms.clone();
        terms.sort_by_key(|term| term.depth);
        (terms.first()?.depth < terms.last()?.depth).then_some(terms)
    }
}

/// Whether a kernel holds rows that are no vectors. Of its loops, which read scales element by element, ptxas writes out four turns
/// where addresses are two instructions, for which there are too few registers: on sm_100 some are spilt.
pub(super) fn holds_apart(kernel: &Kernel) -> bool {
    let is_apart = |(at, value): (&Address, Value)| !at.aligned && kernel.ty(value).lanes != Lanes::ONE;
    let holds = kernel.shared.iter().any(|shared| shared.len == SharedLen::AtLaunch);
    holds && statements(&kernel.body).filter_map(Stmt::access).any(is_apart)
}

/// The memory for rows, if all that is read and written of it is vectors of eight elements of four bytes.
fn eighths(kernel: &Kernel) -> Option<SharedId> {
    let of_rows = |shared: &Shared| shared.len == SharedLen::AtLaunch && shared.dtype.size() == 4;
    let id = SharedId(kernel.shared.iter().position(of_rows)? as u16);
    let mut accesses = statements(&kernel.body).filter_map(Stmt::shared_access);
    let are_eighths = accesses.all(|(of, _, value)| of != id || kernel.ty(value).lanes == Lanes::Const(8));
    are_eighths.then_some(id)
}

impl Emitter<'_> {
    /// Notes how a position is a sum.
    pub(super) fn add_up(&mut self, value: Value, expr: &Expr) {
        let is_position = self.kernel.ty(value) == Type { dtype: DType::Index, lanes: Lanes::ONE };
        if !is_position || self.kernel.index == IndexWidth::Bits64 {
            return;
        }
        let here = || AddressSum::one((self.loops, value), false);
        let sum = match expr {
            Expr::Const(Const::Int(0..))
            | Expr::Uniform(_)
            | Expr::Builtin(
                Builtin::ThreadId
                | Builtin::BlockId
                | Builtin::Blocks
                | Builtin::ClusterRank
                | Builtin::ClusterSize
                | Builtin::ClusterId
                | Builtin::Clusters
                | Builtin::GridId
                | Builtin::GridSize,
            ) => AddressSum::one((0, value), true),
            Expr::Apply(op, args) => {
                match (op, self.sums.get(&args[0]), self.sums.get(&args[args.len() - 1])) {
                    (Op::Add, Some(left), Some(right)) => {
                        let terms = left.terms.iter().chain(&right.terms).copied().collect();
                        AddressSum { terms, counts: left.counts && right.counts }
                    }
                    (Op::Sub, Some(left), Some(right)) => {
                        let taken_off =
                            right.terms.iter().map(|term| AddressTerm { is_less: !term.is_less, ..*term });
                        AddressSum {
                            terms: left.terms.iter().copied().chain(taken_off).collect(),
                            counts: false,
                        }
                    }
                    (Op::Mul | Op::IntDiv | Op::IntRem | Op::And | Op::ShrRaw, Some(left), Some(right)) => {
                        let innermost = left.terms.iter().chain(&right.terms).map(|term| term.depth).max();
                        AddressSum::one((innermost.unwrap_or(0), value), left.counts && right.counts)
                    }
                    (_, None | Some(_), None | Some(_)) => here(),
                }
            }
            _ => here(),
        };
        self.sums.insert(value, sum);
    }

    /// The same of the counter of a loop that begins.
    pub(super) fn count(&mut self, var: Value, start: Value, step: Value) {
        let counts = [start, step].iter().all(|value| self.sums.get(value).is_some_and(|sum| sum.counts));
        self.sums.insert(var, AddressSum::one((self.loops + 1, var), counts));
    }

    /// The terms of a position in a buffer, whose address has more bits: only of counts is their sum the position.
    fn apart(&self, index: Value) -> Option<Vec<Register>> {
        let terms = self.sums.get(&index).filter(|sum| sum.counts)?.apart()?;
        Some(terms.into_iter().map(|term| self.one(term.value)).collect())
    }

    /// The address of each lane's element, or of the first one's.
    fn element(&mut self, size: usize, at: &Address) -> Registers {
        let found = self.known.iter().find(|(buffer, index, _)| (*buffer, *index) == (at.buffer, at.index));
        if let Some((_, _, addresses)) = found {
            return addresses.clone();
        }
        let base = self.addresses[usize::from(at.buffer.0)];
        let terms = self.apart(at.index);
        let indices = self.registers[at.index.0 as usize].clone();
        let addresses: Registers = match terms {
            Some(terms) => {
                smallvec![terms.into_iter().fold(base, |base, index| self.beyond(base, index, size))]
            }
            None => indices.into_iter().map(|index| self.beyond(base, index, size)).collect(),
        };
        self.known.push((at.buffer, at.index, addresses.clone()));
        addresses
    }

    /// So many elements of this size after an address.
    fn beyond(&mut self, base: Register, index: Register, size: usize) -> Register {
        let address = self.register(Bank::Bits64);
        let whole = match self.kernel.index {
            IndexWidth::Bits64 => Some("mad.lo.u64"),
            IndexWidth::Bits32 => self.holds_apart.then_some("mad.wide.u32"),
        };
        if let Some(whole) = whole {
            self.line(format_args!("{whole} {address}, {index}, {size}, {base};"));
            return address;
        }
        // What is said as one instruction, ptxas takes apart: it shifts the index, which all addresses then share, and adds both halves to
        // each of them. What is said as two becomes one, `IMAD.WIDE`.
        let known = self.offsets.iter().find(|(known, of, _)| (*known, *of) == (index, size));
        let offset = known.map(|(_, _, offset)| *offset).unwrap_or_else(|| {
            let offset = self.register(Bank::Bits64);
            self.line(format_args!("mul.wide.u32 {offset}, {index}, {size};"));
            self.offsets.push((index, size, offset));
            offset
        });
        self.line(format_args!("add.u64 {address}, {base}, {offset};"));
        address
    }

    /// The type of an element in memory; of a narrow one the register is wider, and gets zeros.
    fn element_of(&self, memory: DType, dtype: DType) -> &'static str {
        match memory.size() {
            1 => "u8",
            2 => "u16",
            _ => suffix(self.kernel, dtype),
        }
    }

    /// Where each lane is.
    pub(super) fn places(&mut self, ty: Type, at: &Address) -> Vec<String> {
        let size = self.kernel.buffer(at.buffer).dtype.size();
        let addresses = self.element(size, at);
        let gathers = self.kernel.ty(at.index).lanes != Lanes::ONE;
        let lane = |lane: usize| {
            if gathers {
                return format!("[{}]", addresses[lane]);
            }
            ahead(addresses[0], (lane * at.stride as usize + at.phase as usize) * size)
        };
        (0..usize::from(lanes(ty))).map(lane).collect()
    }

    fn is_vector(&self, ty: Type, at: &Address) -> bool {
        lanes(ty) > 1 && at.stride == 1 && at.aligned && self.kernel.ty(at.index).lanes == Lanes::ONE
    }

    /// The address of an element of shared memory that begins there.
    fn shared(&mut self, id: SharedId, index: Value, base: Register) -> Register {
        let size = self.kernel.shared[usize::from(id.0)].dtype.size();
        let mut terms: SmallVec<[(Register, bool); 4]> = smallvec![(self.one(index), false)];
        if self.kernel.index == IndexWidth::Bits64 {
            let narrow = self.register(Bank::Bits32);
            self.line(format_args!("cvt.u32.u64 {narrow}, {};", terms[0].0));
            terms[0].0 = narrow;
        } else if let Some(apart) = self.sums.get(&index).and_then(AddressSum::apart) {
            terms = apart.into_iter().map(|term| (self.one(term.value), term.is_less)).collect();
        }
        terms.into_iter().fold(base, |base, (term, is_less)| {
            let (place, sign) = (self.register(Bank::Bits32), if is_less { "-" } else { "" });
            self.line(format_args!("mad.lo.s32 {place}, {term}, {sign}{size}, {base};"));
            place
        })
    }

    /// Where the parts of a value are that are accessed at once, so many.
    pub(super) fn shared_places(
        &mut self,
        id: SharedId,
        index: Value,
        count: usize,
    ) -> SmallVec<[String; 2]> {
        match self.halves {
            Some(halves) if self.kernel.shared[usize::from(id.0)].len == SharedLen::AtLaunch => {
                halves.into_iter().map(|half| format!("[{}]", self.shared(id, index, half))).collect()
            }
            Some(_) | None => {
                let base = self.register(Bank::Bits32);
                self.line(format_args!("mov.u32 {base}, {};", shared_name(id)));
                let place = self.shared(id, index, base);
                (0..count).map(|i| ahead(place, 16 * i)).collect()
            }
        }
    }

    /// Where memory for rows begins for a thread's first half of a vector of eight, and for the second: those of every other four
    /// threads change places. Else the threads of a quarter of a warp, which access memory at once, would find what each has first in
    /// half of the banks. A thread reads of such vectors what it stored.
    pub(super) fn halve(&mut self) {
        let Some(id) = eighths(self.kernel) else { return };
        let [thread, ahead, behind, first, second] = [(); 5].map(|()| self.register(Bank::Bits32));
        self.line(format_args!("mov.u32 {thread}, %tid.x;"));
        self.line(format_args!("shl.b32 {ahead}, {thread}, 2;"));
        self.line(format_args!("and.b32 {ahead}, {ahead}, 16;"));
        self.line(format_args!("xor.b32 {behind}, {ahead}, 16;"));
        for (half, bytes) in [(first, ahead), (second, behind)] {
            self.line(format_args!("mov.u32 {half}, {};", shared_name(id)));
            self.line(format_args!("add.u32 {half}, {half}, {bytes};"));
        }
        self.halves = Some([first, second]);
    }

    pub(super) fn load_shared(&mut self, id: SharedId, index: Value, d: &[Register], dtype: DType) {
        let of = self.kernel.shared[usize::from(id.0)].dtype;
        if are_words(of, d.len()) {
            let words = self.words(of, d.len());
            self.load_parts(id, index, &words, "u32");
            self.take_apart(of, &words, d);
        } else {
            self.load_parts(id, index, d, self.element_of(of, dtype));
        }
    }

    pub(super) fn store_shared(&mut self, id: SharedId, index: Value, registers: &[Register], dtype: DType) {
        let of = self.kernel.shared[usize::from(id.0)].dtype;
        if are_words(of, registers.len()) {
            let words = self.put_together(of, registers);
            self.store_parts(id, index, &words, "u32");
        } else {
            self.store_parts(id, index, registers, self.element_of(of, dtype));
        }
    }

    fn load_parts(&mut self, id: SharedId, index: Value, d: &[Register], t: &str) {
        let parts = self.parts(id, d);
        for (place, d) in self.shared_places(id, index, parts.len()).iter().zip(parts) {
            let (vector, registers) = group(d);
            self.line(format_args!("ld.shared{vector}.{t} {registers}, {place};"));
        }
    }

    fn store_parts(&mut self, id: SharedId, index: Value, registers: &[Register], t: &str) {
        let parts = self.parts(id, registers);
        for (place, registers) in self.shared_places(id, index, parts.len()).iter().zip(parts) {
            let (vector, registers) = group(registers);
            self.line(format_args!("st.shared{vector}.{t} {place}, {registers};"));
        }
    }

    /// Registers that are accessed at once.
    fn parts<'r>(&self, id: SharedId, registers: &'r [Register]) -> SmallVec<[&'r [Register]; 2]> {
        registers.chunks(most(self.kernel.shared[usize::from(id.0)].dtype)).collect()
    }

    /// Reads elements, those whose predicate holds: one of each lane, one for all, or none.
    pub(super) fn load(&mut self, d: &[Register], dtype: DType, at: &Address, mask: &[Register]) {
        let ty = Type { dtype, lanes: Lanes::Const(d.len() as u8) };
        let places = self.places(ty, at);
        let is_constant = self.kernel.buffer(at.buffer).access == Access::Read;
        let cached = match (self.reads_once, is_constant) {
            (true, true) => ".cs.nc",
            (true, false) => ".cs",
            (false, true) => ".nc",
            (false, false) => "",
        };
        let t = self.element_of(self.kernel.buffer(at.buffer).dtype, dtype);
        let guard = |lane: usize| {
            let predicate = mask.get(lane).or(mask.first());
            predicate.map_or_else(String::new, |predicate| format!("@{predicate} "))
        };
        if self.is_words(ty, at) && mask.len() <= 1 {
            self.load_words(d, at, &places[0], (&guard(0), cached));
        } else if self.is_vector(ty, at) && mask.len() <= 1 {
            let (guard, together) = (guard(0), most(dtype));
            for (d, places) in d.chunks(together).zip(places.chunks(together)) {
                let (lanes, registers) = (d.len(), list(d));
                self.line(format_args!(
                    "{guard}ld.global{cached}.v{lanes}.{t} {{{registers}}}, {};",
                    places[0]
                ));
            }
        } else {
            for (lane, (d, place)) in d.iter().zip(places).enumerate() {
                self.line(format_args!("{}ld.global{cached}.{t} {d}, {place};", guard(lane)));
            }
        }
    }

    pub(super) fn store(&mut self, at: &Address, value: Value) {
        let ty = self.kernel.ty(value);
        let places = self.places(ty, at);
        let t = self.element_of(self.kernel.buffer(at.buffer).dtype, ty.dtype);
        let registers = self.registers[value.0 as usize].clone();
        if self.is_words(ty, at) {
            self.store_words(&registers, at, &places[0]);
        } else if self.is_vector(ty, at) {
            let together = most(ty.dtype);
            for (registers, places) in registers.chunks(together).zip(places.chunks(together)) {
                let (lanes, registers) = (registers.len(), list(registers));
                self.line(format_args!("st.global.v{lanes}.{t} {}, {{{registers}}};", places[0]));
            }
        } else {
            for (register, place) in registers.iter().zip(places) {
                self.line(format_args!("st.global.{t} {place}, {register};"));
            }
        }
    }

    /// Whether narrow elements are side by side in whole words.
    fn is_words(&self, ty: Type, at: &Address) -> bool {
        self.is_vector(ty, at) && are_words(self.kernel.buffer(at.buffer).dtype, usize::from(lanes(ty)))
    }

    /// Reads words, and takes the elements out of them. What is not read is 0.
    fn load_words(&mut self, d: &[Register], at: &Address, place: &str, (guard, cached): (&str, &str)) {
        let of = self.kernel.buffer(at.buffer).dtype;
        let words = self.words(of, d.len());
        if !guard.is_empty() {
            words.iter().for_each(|word| self.line(format_args!("mov.b32 {word}, 0;")));
        }
        let (vector, registers) = group(&words);
        self.line(format_args!("{guard}ld.global{cached}{vector}.u32 {registers}, {place};"));
        self.take_apart(of, &words, d);
    }

    /// Registers for so many narrow elements in words.
    fn words(&mut self, of: DType, count: usize) -> Registers {
        (0..count * of.size() / 4).map(|_| self.register(Bank::Bits32)).collect()
    }

    /// Narrow elements out of their words.
    fn take_apart(&mut self, of: DType, words: &[Register], d: &[Register]) {
        let bits = of.bits() as usize;
        for (word, d) in words.iter().zip(d.chunks(32 / bits)) {
            for (i, d) in d.iter().enumerate() {
                match (bits, i) {
                    (16, 0) => self.line(format_args!("and.b32 {d}, {word}, 0xffff;")),
                    (16, _) => self.line(format_args!("shr.u32 {d}, {word}, 16;")),
                    (_, i) => self.line(format_args!("bfe.u32 {d}, {word}, {}, 8;", 8 * i)),
                }
            }
        }
    }

    /// Writes elements as words.
    fn store_words(&mut self, registers: &[Register], at: &Address, place: &str) {
        let words = self.put_together(self.kernel.buffer(at.buffer).dtype, registers);
        let (vector, registers) = group(&words);
        self.line(format_args!("st.global{vector}.u32 {place}, {registers};"));
    }

    /// The words of narrow elements.
    fn put_together(&mut self, of: DType, registers: &[Register]) -> Registers {
        let mut parts = Registers::from_slice(registers);
        if of.size() == 1 {
            parts = self.pairs(&parts, "0x7740");
        }
        self.pairs(&parts, "0x5410")
    }

    /// Permutes bytes of each two neighbouring registers into one register.
    fn pairs(&mut self, registers: &[Register], bytes: &str) -> Registers {
        let pair = |pair: &[Register]| {
            let both = self.register(Bank::Bits32);
            self.line(format_args!("prmt.b32 {both}, {}, {}, {bytes};", pair[0], pair[1]));
            both
        };
        registers.chunks(2).map(pair).collect()
    }
}

/// Whether so many elements side by side are whole words of narrow ones.
fn are_words(of: DType, count: usize) -> bool {
    of.size() < 4 && count * of.size() >= 4
}

/// Most lanes of one access, which is of 128 bits at most.
fn most(dtype: DType) -> usize {
    16 / dtype.size().max(4)
}
/// Registers of an access: how many at once, and which.
fn group(registers: &[Register]) -> (String, String) {
    match registers {
        [one] => (String::new(), one.to_string()),
        all => (format!(".v{}", all.len()), format!("{{{}}}", list(all))),
    }
}

pub(super) fn list(registers: &[Register]) -> String {
    registers.iter().map(Register::to_string).collect::<Vec<_>>().join(", ")
}

/// So many bytes after an address.
fn ahead(address: Register, bytes: usize) -> String {
    if bytes == 0 { format!("[{address}]") } else { format!("[{address}+{bytes}]") }
}
