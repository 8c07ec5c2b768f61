//! Reads and writes of global memory: addresses, each once, and as many elements at a time as there are side by side.

use super::{Bank, Emitter, lanes, suffix};
use crate::ir::dtype::DType;
use crate::ir::graph::Access;
use crate::ir::kernel::{At, IndexWidth, Lanes, Type, Value};

impl Emitter<'_> {
    /// The address of each lane's element, or of the first one's.
    fn element(&mut self, size: usize, at: &At) -> Vec<String> {
        let found = self.known.iter().find(|(buffer, index, _)| (*buffer, *index) == (at.buffer, at.index));
        if let Some((_, _, addresses)) = found {
            return addresses.clone();
        }
        let base = self.addresses[usize::from(at.buffer.0)].clone();
        let mad = if self.kernel.index == IndexWidth::Bits64 { "mad.lo.u64" } else { "mad.wide.u32" };
        let addresses = self.registers[at.index.0 as usize].clone().into_iter().map(|index| {
            let address = self.register(Bank::Bits64);
            self.line(format!("{mad} {address}, {index}, {size}, {base};"));
            address
        });
        let addresses: Vec<String> = addresses.collect();
        self.known.push((at.buffer, at.index, addresses.clone()));
        addresses
    }

    /// The type of an element in memory; of a narrow one the register is wider, and gets zeros.
    fn memory(&self, at: &At, dtype: DType) -> &'static str {
        match self.kernel.buffer(at.buffer).dtype.size() {
            1 => "u8",
            2 => "u16",
            _ => suffix(self.kernel, dtype),
        }
    }

    /// Where each lane is.
    fn places(&mut self, ty: Type, at: &At) -> Vec<String> {
        let size = self.kernel.buffer(at.buffer).dtype.size();
        let addresses = self.element(size, at);
        let gathers = self.kernel.ty(at.index).lanes != Lanes::ONE;
        let lane = |lane: usize| {
            if gathers {
                return format!("[{}]", addresses[lane]);
            }
            match (lane * at.stride as usize + at.phase as usize) * size {
                0 => format!("[{}]", addresses[0]),
                bytes => format!("[{}+{bytes}]", addresses[0]),
            }
        };
        (0..usize::from(lanes(ty))).map(lane).collect()
    }

    fn is_vector(&self, ty: Type, at: &At) -> bool {
        lanes(ty) > 1 && at.stride == 1 && self.kernel.ty(at.index).lanes == Lanes::ONE
    }

    /// Reads elements, those whose predicate holds: one of each lane, one for all, or none.
    pub(super) fn load(&mut self, d: &[String], dtype: DType, at: &At, mask: &[String]) {
        let ty = Type { dtype, lanes: Lanes::Const(d.len() as u8) };
        let places = self.places(ty, at);
        let cached = if self.kernel.buffer(at.buffer).access == Access::Read { ".nc" } else { "" };
        let t = self.memory(at, dtype);
        let guard = |lane: usize| {
            let predicate = mask.get(lane).or(mask.first());
            predicate.map_or_else(String::new, |predicate| format!("@{predicate} "))
        };
        if self.is_vector(ty, at) && mask.len() <= 1 {
            let (guard, together) = (guard(0), most(dtype));
            for (d, places) in d.chunks(together).zip(places.chunks(together)) {
                let (lanes, registers) = (d.len(), d.join(", "));
                self.line(format!("{guard}ld.global{cached}.v{lanes}.{t} {{{registers}}}, {};", places[0]));
            }
        } else {
            for (lane, (d, place)) in d.iter().zip(places).enumerate() {
                self.line(format!("{}ld.global{cached}.{t} {d}, {place};", guard(lane)));
            }
        }
    }

    pub(super) fn store(&mut self, at: &At, value: Value) {
        let ty = self.kernel.ty(value);
        let places = self.places(ty, at);
        let (registers, t) = (self.registers[value.0 as usize].clone(), self.memory(at, ty.dtype));
        if self.is_vector(ty, at) {
            let together = most(ty.dtype);
            for (registers, places) in registers.chunks(together).zip(places.chunks(together)) {
                let (lanes, registers) = (registers.len(), registers.join(", "));
                self.line(format!("st.global.v{lanes}.{t} {}, {{{registers}}};", places[0]));
            }
        } else {
            for (register, place) in registers.iter().zip(places) {
                self.line(format!("st.global.{t} {place}, {register};"));
            }
        }
    }
}

/// Most lanes of one access, which is of 128 bits at most.
fn most(dtype: DType) -> usize {
    16 / dtype.size().max(4)
}
