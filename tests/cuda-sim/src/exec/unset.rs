//! Written bytes of shared and local memory, and defined bytes of registers that were loaded from there.
//!
//! A load of unwritten memory is no fault, because copies of structs load their padding. The register is
//! undefined then. For a register that was loaded together with written bytes, the defined bytes are known.
//! The register may then be stored, also to global memory, where its other bytes are [`POISON`].
//!
//! Invariant: an undefined register has defined parts only from the load, or the move of bytes, that produced
//! it.

use std::collections::HashMap;

use super::block::line;
use super::memory::{self, Who};
use super::regs::{LANES, Raw, Regs, lanes};
use super::{alu, int, shared};
use crate::memory::POISON;
use crate::ptx::Kernel;
use crate::ptx::ir::{Access, Alu, Convert, IntBin, Prmt, Reg, Shift, Space};
use crate::ptx::types::Class;

/// Bit set of the written bytes of a memory.
pub(super) struct Written(Vec<u64>);

impl Written {
    pub(super) fn new(len: usize) -> Written {
        Written(vec![0; len.div_ceil(64)])
    }

    pub(super) fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Returns the written bytes among 1 to 32 bytes, from the lowest bit on. The range is aligned, so that
    /// one word has its bits.
    #[inline(always)]
    pub(super) fn get(&self, at: usize, bytes: u32) -> u32 {
        (self.0[at / 64] >> (at % 64)) as u32 & ones(bytes)
    }

    #[inline(always)]
    pub(super) fn set(&mut self, at: usize, bytes: u32, which: u32) {
        let (word, shift) = (&mut self.0[at / 64], at % 64);
        *word = *word & !(u64::from(ones(bytes)) << shift) | u64::from(which) << shift;
    }
}

/// Returns a mask of 1 to 32 bytes.
#[inline(always)]
pub(super) fn ones(bytes: u32) -> u32 {
    u32::MAX >> (32 - bytes)
}

/// Load of unwritten memory.
#[derive(Clone, Copy)]
struct Read {
    pc: u32,
    space: Space,
    /// Coordinates of the block whose shared memory was read, if it was another block.
    block: Option<[u32; 3]>,
    address: u64,
    bytes: u32,
}

/// Facts about registers that are undefined in some lanes.
#[derive(Default)]
pub(super) struct Unset {
    /// Defined bytes of the registers that may be stored.
    parts: HashMap<(Reg, usize), u32>,
    /// Last load of unwritten memory of each lane.
    reads: [Option<Read>; LANES],
}

impl Unset {
    pub(super) fn clear(&mut self) {
        if self.reads.iter().any(Option::is_some) {
            self.parts.clear();
            self.reads = [None; LANES];
        }
    }

    /// Describes the load that may be the reason of an undefined value in a lane.
    pub(super) fn why(&self, kernel: &Kernel, lane: usize) -> String {
        let Some(Read { pc, space, block, address, bytes }) = self.reads[lane] else { return String::new() };
        let (line, is_local) = (line(kernel, pc), space == Space::Local);
        let space = if is_local { "local memory".into() } else { shared::name(block) };
        format!(
            "; in line {line} it read {bytes} bytes at {address:#x} of {space}, not all of which were written"
        )
    }
}

impl Who<'_, '_> {
    /// Returns the written bytes of a space, and the position of a lane's address.
    #[inline(always)]
    fn written(&mut self, space: Space, lane: usize, address: u64) -> (&mut Written, usize) {
        match space {
            Space::Shared => (&mut self.mem.shared_written, address as usize),
            Space::Cluster => {
                let (home, address) = self.home_of(address);
                (&mut self.memory_mut(home).shared_written, address as usize)
            }
            Space::Global | Space::Const | Space::Generic | Space::Local | Space::Param => {
                let at = self.mem.local_at(self.first as usize + lane, address);
                (&mut self.mem.local_written, at)
            }
        }
    }
}

/// Marks registers as undefined after a load from shared or local memory.
#[inline(always)]
pub(super) fn loaded(
    who: &mut Who<'_, '_>,
    regs: &mut Regs,
    exec: u32,
    (access, space, addresses): (&Access, Space, &[u64; LANES]),
) {
    let bytes = memory::access_bytes(access) as u32;
    let mut unset = 0;
    for lane in lanes(exec) {
        let (written, at) = who.written(space, lane, addresses[lane]);
        unset |= u32::from(written.get(at, bytes) != ones(bytes)) << lane;
    }
    if unset != 0 {
        undefine(who, regs, unset, (access, space, addresses));
    }
}

/// Marks the loaded registers of some lanes as undefined, and records their defined bytes.
#[cold]
fn undefine(
    who: &mut Who<'_, '_>,
    regs: &mut Regs,
    unset: u32,
    (access, space, addresses): (&Access, Space, &[u64; LANES]),
) {
    let (bytes, size) = (memory::access_bytes(access) as u32, access.ty.bytes());
    for lane in lanes(unset) {
        let address = addresses[lane];
        let (written, at) = who.written(space, lane, address);
        let which = written.get(at, bytes);
        for (i, &reg) in (0..).zip(&access.regs) {
            let Some(reg) = reg else { continue };
            let part = which >> (i * size) & ones(size);
            if part == ones(size) {
                continue;
            }
            let missing = (0..size).filter(|byte| part >> byte & 1 == 0);
            let poison = missing.fold(0, |all, byte| all | u64::from(POISON) << (8 * byte));
            regs.set(reg, lane, regs.get(reg, lane) | poison);
            regs.undefine(1 << lane, reg.0);
            if which != 0 {
                regs.unset.parts.insert((reg.0, lane), part);
            }
        }
        let (block, address) = match space {
            Space::Cluster => who.place_of(address),
            Space::Global | Space::Const | Space::Generic | Space::Shared | Space::Local | Space::Param => {
                (None, address)
            }
        };
        regs.unset.reads[lane] = Some(Read { pc: who.pc, space, block, address, bytes });
    }
}

/// Records that lanes have read a row of shared memory that is not completely written.
#[cold]
pub(super) fn note_row(who: &Who<'_, '_>, regs: &mut Regs, lanes_of_it: u32, address: u64, bytes: u32) {
    let read = Read { pc: who.pc, space: Space::Shared, block: None, address, bytes };
    lanes(lanes_of_it).for_each(|lane| regs.unset.reads[lane] = Some(read));
}

/// Marks bytes as written after a store to shared or local memory.
#[inline(always)]
pub(super) fn stored(
    who: &mut Who<'_, '_>,
    regs: &Regs,
    exec: u32,
    (access, space, addresses): (&Access, Space, &[u64; LANES]),
) {
    let bytes = memory::access_bytes(access) as u32;
    let whole = access.regs.iter().flatten().all(|&(reg, _)| exec & !regs.written[reg as usize] == 0);
    for lane in lanes(exec) {
        let which = if whole { ones(bytes) } else { held(regs, lane, access) };
        let (written, at) = who.written(space, lane, addresses[lane]);
        written.set(at, bytes, which);
    }
}

/// Returns the defined bytes among those that a lane stores.
#[cold]
fn held(regs: &Regs, lane: usize, access: &Access) -> u32 {
    let size = access.ty.bytes();
    let of = |reg: Reg| {
        let is_written = regs.written[reg as usize] >> lane & 1 == 1;
        if is_written {
            ones(size)
        } else {
            regs.unset.parts.get(&(reg, lane)).map_or(0, |part| part & ones(size))
        }
    };
    (0..).zip(&access.regs).fold(0, |all, (i, reg)| all | reg.map_or(0, |(reg, _)| of(reg) << (i * size)))
}

/// Returns a lane and its register whose undefined value a store must not make visible to others.
#[cold]
pub(super) fn refused(regs: &Regs, exec: u32, access: &Access) -> Option<(usize, Reg)> {
    let outside = memory::seen_by_others(regs, exec, access);
    access.regs.iter().flatten().find_map(|&(reg, _)| {
        let mut undefined = lanes(outside & !regs.written[reg as usize]);
        undefined.find(|&lane| !regs.unset.parts.contains_key(&(reg, lane))).map(|lane| (lane, reg))
    })
}

/// A lane, the defined bytes of an instruction's result there, and the number of its bytes.
pub(super) type Part = (usize, u32, u32);

/// Returns the defined bytes of undefined results in all lanes, before the instruction executes.
#[cold]
pub(super) fn parts(regs: &Regs, undefined: u32, alu: &Alu) -> Vec<Part> {
    lanes(undefined).filter_map(|lane| part(regs, lane, alu).map(|(part, size)| (lane, part, size))).collect()
}

/// Returns the defined bytes of the result of an instruction that moves or drops bytes.
///
/// Compilers reassemble structs from loaded words by these instructions.
fn part(regs: &Regs, lane: usize, alu: &Alu) -> Option<(u32, u32)> {
    let of = |reg: Reg, size: u32| {
        let is_written = regs.written[reg as usize] >> lane & 1 == 1;
        if is_written { Some(u32::MAX) } else { regs.unset.parts.get(&(reg, lane)).copied() }
            .map(|part| part & ones(size))
    };
    match *alu {
        Alu::Move { bits, a, .. } => {
            let size = alu::width(bits) / 8;
            Some((of(a, size)?, size))
        }
        Alu::IntBin { op: IntBin::And, ty, a, b, .. } => {
            let size = int::bytes(ty);
            let (x, y) = (of(a, size)?, of(b, size)?);
            let zeros = |reg: Reg, known: u32| {
                let value = regs.get((reg, int::wide(ty)), lane).to_le_bytes();
                (0..size).fold(0, |all, i| all | u32::from(value[i as usize] == 0) << i) & known
            };
            Some(((x & y) | zeros(a, x) | zeros(b, y), size))
        }
        Alu::IntBin { op: IntBin::Or, ty, a, b, .. } => {
            let size = int::bytes(ty);
            Some((of(a, size)? & of(b, size)?, size))
        }
        Alu::Shift { shift, ty, a, b, .. } if !int::is_signed(ty) => {
            let (size, by) = (int::bytes(ty), u32::row(regs, b)[lane]);
            if of(b, 4) != Some(ones(4)) || by % 8 != 0 || by >= 8 * size {
                return None;
            }
            let (part, by) = (of(a, size)?, by / 8);
            let moved = match shift {
                Shift::Left => part << by | !(u32::MAX << by),
                Shift::Right => (part | !ones(size)) >> by | !(u32::MAX >> by),
            };
            Some((moved & ones(size), size))
        }
        Alu::Prmt { mode: Prmt::Index, a, b, c, .. } if of(c, 4) == Some(ones(4)) => {
            let (both, selectors) = (of(a, 4)? | of(b, 4)? << 4, u32::row(regs, c)[lane]);
            Some(((0..4).fold(0, |all, i| all | (both >> (selectors >> (4 * i) & 7) & 1) << i), 4))
        }
        Alu::Convert { convert: Convert { to, from, sat: false, .. }, a, .. }
            if to.class() == Class::Int && from.class() == Class::Int && !from.is_signed() =>
        {
            Some(((of(a, from.bytes())? | !ones(from.bytes())) & ones(to.bytes()), to.bytes()))
        }
        ref _of_other_bytes => None,
    }
}

/// Marks the results of an instruction as undefined in some lanes, except for these defined bytes.
#[cold]
pub(super) fn computed(regs: &mut Regs, undefined: u32, written: &[Reg], parts: &[Part]) {
    for &d in written {
        regs.undefine(undefined, d);
        for &(lane, part, size) in parts {
            if part == ones(size) {
                regs.written[d as usize] |= 1 << lane;
            } else {
                regs.unset.parts.insert((d, lane), part);
            }
        }
    }
}

impl Regs {
    /// Marks a register as undefined in some lanes, with all its parts.
    pub(super) fn undefine(&mut self, undefined: u32, reg: Reg) {
        self.written[reg as usize] &= !undefined;
        if !self.unset.parts.is_empty() {
            for lane in lanes(undefined) {
                self.unset.parts.remove(&(reg, lane));
            }
        }
    }
}
