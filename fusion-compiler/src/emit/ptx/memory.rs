//! Reads and writes of memory: addresses, those of global memory each once, and as many elements at a time as there are side by
//! side.

use smallvec::{SmallVec, smallvec};

use super::positions::Term;
use super::{Bank, Emitter, Register, Registers, lanes, shared_name, suffix};
use crate::ir::dtype::DType;
use crate::ir::graph::Access;
use crate::ir::kernel::{
    Address, IndexWidth, Kernel, Lanes, Shared, SharedId, SharedLen, Stmt, Type, Value, statements,
};

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
    /// The address of each lane's element, or of the first one's.
    fn element(&mut self, size: usize, at: &Address) -> Registers {
        let found = self.known.iter().find(|(buffer, index, _)| (*buffer, *index) == (at.buffer, at.index));
        if let Some((_, _, addresses)) = found {
            return addresses.clone();
        }
        let base = self.addresses[usize::from(at.buffer.0)];
        let addresses: Registers = match self.positions.in_buffer(at.index) {
            Some(terms) => {
                let after = |base, term| self.beyond(base, self.one(term), size);
                smallvec![terms.into_iter().fold(base, after)]
            }
            None => {
                let indices = self.registers[at.index.0 as usize].clone();
                indices.into_iter().map(|index| self.beyond(base, index, size)).collect()
            }
        };
        self.known.push((at.buffer, at.index, addresses.clone()));
        addresses
    }

    /// So many elements of this size after an address.
    fn beyond(&mut self, base: Register, index: Register, size: usize) -> Register {
        if let Some((_, address)) = self.sums.iter().find(|(known, _)| *known == (base, index, size)) {
            return *address;
        }
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
        self.sums.push(((base, index, size), address));
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
            ahead(addresses[0], ((lane * at.stride as usize + at.phase as usize) * size) as i64)
        };
        (0..usize::from(lanes(ty))).map(lane).collect()
    }

    fn is_vector(&self, ty: Type, at: &Address) -> bool {
        lanes(ty) > 1 && at.stride == 1 && at.aligned && self.kernel.ty(at.index).lanes == Lanes::ONE
    }

    /// Returns an address of shared memory that begins at `base`, and the bytes from there to an element.
    fn shared(&mut self, id: SharedId, index: Value, base: Register) -> (Register, i64) {
        let size = self.kernel.shared[usize::from(id.0)].dtype.size() as i64;
        match self.positions.in_shared(index) {
            Some((terms, constant)) => {
                let after = |base, term: Term| self.after(base, term.value, term.factor * size);
                (terms.into_iter().fold(base, after), constant * size)
            }
            None => (self.after(base, index, size), 0),
        }
    }

    /// Returns the address in shared memory that is `factor` times `index` bytes after another one.
    fn after(&mut self, base: Register, index: Value, factor: i64) -> Register {
        let key = (base, index, factor);
        if let Some((_, place)) = self.places.iter().find(|(known, _)| *known == key) {
            return *place;
        }
        let mut term = self.one(index);
        if self.kernel.index == IndexWidth::Bits64 {
            let narrow = self.register(Bank::Bits32);
            self.line(format_args!("cvt.u32.u64 {narrow}, {term};"));
            term = narrow;
        }
        let place = self.register(Bank::Bits32);
        self.line(format_args!("mad.lo.s32 {place}, {term}, {}, {base};", factor as i32));
        self.places.push((key, place));
        place
    }

    /// Returns the address where an array in shared memory begins.
    fn start(&mut self, id: SharedId) -> Register {
        if let Some((_, base)) = self.starts.iter().find(|(known, _)| *known == id) {
            return *base;
        }
        let base = self.register(Bank::Bits32);
        self.line(format_args!("mov.u32 {base}, {};", shared_name(id)));
        self.starts.push((id, base));
        base
    }

    /// Where the parts of a value are that are accessed at once, so many.
    pub(super) fn shared_places(
        &mut self,
        id: SharedId,
        index: Value,
        count: usize,
    ) -> SmallVec<[String; 2]> {
        let at = |(place, bytes): (Register, i64), part: usize| ahead(place, bytes + 16 * part as i64);
        match self.halves {
            Some(halves) if self.kernel.shared[usize::from(id.0)].len == SharedLen::AtLaunch => {
                halves.into_iter().map(|half| at(self.shared(id, index, half), 0)).collect()
            }
            Some(_) | None => {
                let base = self.start(id);
                let place = self.shared(id, index, base);
                (0..count).map(|part| at(place, part)).collect()
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
fn ahead(address: Register, bytes: i64) -> String {
    if bytes == 0 { format!("[{address}]") } else { format!("[{address}+{bytes}]") }
}
