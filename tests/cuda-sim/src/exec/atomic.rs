//! `atom` and `red`: one lane after the other, by a compare-and-exchange of the host.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::float;
use super::memory::{self, Spot, Who};
use super::order::{self, Strong};
use super::race::Touch;
use super::regs::{LANES, Regs, lanes};
use super::{FaultKind, Step, Trouble, shared, trouble};
use crate::ptx::ir::{Atom, AtomOp, Reg, Space, Var, Wide};
use crate::ptx::types::{Class, Type};

pub(super) fn atom(who: &mut Who<'_, '_>, regs: &mut Regs, exec: u32, atom: &Atom) -> Step {
    let addresses = memory::addresses(regs, atom.addr);
    let wide = if atom.ty.bytes() == 8 { Wide::Two } else { Wide::One };
    let (mut last, mut global) = (usize::MAX, 0);
    // The halves of a pair are two accesses, like the elements of a vector.
    let element = if atom.ty.is_packed() { 2 } else { atom.ty.bytes() };
    let mut places = order::places(who.grid);
    for lane in lanes(exec) {
        let (space, address) = memory::resolve(atom.space, addresses[lane]);
        let spot = Spot { lane, address, bytes: u64::from(atom.ty.bytes()) };
        let reads = atom.op != AtomOp::Exch || atom.d.is_some();
        let var = memory::variable(who.grid, atom.addr, space);
        let at = place(who, spot, (space, var), &mut last, (reads, element))?;
        let unused = 64 - 8 * atom.ty.bytes();
        let operand = |reg: Reg| regs.get((reg, wide), lane) << unused >> unused;
        let (b, c) = (operand(atom.b), atom.c.map_or(0, operand));
        // An f32 addition in global memory flushes subnormals.
        let is_shared = matches!(space, Space::Shared | Space::Cluster);
        let ftz = atom.ty == Type::F32 && !is_shared;
        // SAFETY: the place has as many living bytes, and is aligned for them.
        let old = unsafe { exchange(at, atom.ty.bytes(), |old| apply(atom, ftz, old, b, c)) };
        if let Some(d) = atom.d {
            regs.set((d, wide), lane, old);
        }
        if !is_shared {
            global |= 1 << lane;
        }
        if let Some(places) = &mut places {
            let how = Strong::Change { read: atom.d.is_some(), wrote: atom.op != AtomOp::Cas || old == b };
            let place = who.place(space, address);
            order::strong(who, places, lane, place, (how, atom.order));
        }
    }
    order::released(who, atom.order);
    count(who, atom, global, &addresses);
    Ok(())
}

fn place(
    who: &mut Who<'_, '_>,
    spot: Spot,
    (space, var): (Space, Option<Var>),
    last: &mut usize,
    (reads, element): (bool, u32),
) -> Result<*mut u8, Box<Trouble>> {
    let touch = Touch::Atomic(element);
    match space {
        Space::Shared => {
            who.mem.atomic_reads = reads;
            shared::shared_spot(who, spot, var, touch)
        }
        Space::Cluster => {
            who.mem.atomic_reads = reads;
            shared::cluster_spot(who, spot, var, touch)
        }
        Space::Global | Space::Generic | Space::Const => {
            memory::variable_spot(who, spot)?;
            memory::global_spot(who, spot, touch, last)
        }
        Space::Local | Space::Param => {
            trouble(FaultKind::OutOfBounds, spot.lane, || "atomics are for global and shared memory".into())
        }
    }
}

/// Counts the bytes and sectors of an atomic: stored, and also loaded if it returns the old value.
fn count(who: &mut Who<'_, '_>, atom: &Atom, global: u32, addresses: &[u64; LANES]) {
    let bytes = u64::from(atom.ty.bytes()) * u64::from(global.count_ones());
    let (sectors, counters) = (memory::sectors(global, addresses), &mut who.mem.counters);
    counters.stored += bytes;
    counters.store_sectors += sectors;
    if atom.d.is_some() {
        counters.loaded += bytes;
        counters.load_sectors += sectors;
    }
}

/// Replaces a value in memory by a function of it, and returns the old value.
///
/// # Safety
/// `at` is the start of `bytes` living bytes, aligned for them.
unsafe fn exchange(at: *mut u8, bytes: u32, f: impl Fn(u64) -> u64) -> u64 {
    let (set, get) = (Ordering::SeqCst, Ordering::SeqCst);
    // SAFETY: promised by the caller.
    unsafe {
        match bytes {
            2 => {
                let cell = AtomicU16::from_ptr(at.cast());
                u64::from(
                    cell.fetch_update(set, get, |old| Some(f(u64::from(old)) as u16))
                        .unwrap_or_else(|old| old),
                )
            }
            4 => {
                let cell = AtomicU32::from_ptr(at.cast());
                u64::from(
                    cell.fetch_update(set, get, |old| Some(f(u64::from(old)) as u32))
                        .unwrap_or_else(|old| old),
                )
            }
            _ => AtomicU64::from_ptr(at.cast())
                .fetch_update(set, get, |old| Some(f(old)))
                .unwrap_or_else(|old| old),
        }
    }
}

fn apply(atom: &Atom, ftz: bool, old: u64, b: u64, c: u64) -> u64 {
    let signed = |x: u64| if atom.ty == Type::S32 { i64::from(x as i32) } else { x as i64 };
    match atom.op {
        AtomOp::Add if atom.ty.class() == Class::Int => old.wrapping_add(b),
        AtomOp::Add => float::sum(atom.ty, ftz, old, b),
        AtomOp::Min if atom.ty.is_signed() => {
            if signed(old) <= signed(b) {
                old
            } else {
                b
            }
        }
        AtomOp::Max if atom.ty.is_signed() => {
            if signed(old) >= signed(b) {
                old
            } else {
                b
            }
        }
        AtomOp::Min => old.min(b),
        AtomOp::Max => old.max(b),
        AtomOp::And => old & b,
        AtomOp::Or => old | b,
        AtomOp::Xor => old ^ b,
        AtomOp::Exch => b,
        AtomOp::Cas => {
            if old == b {
                c
            } else {
                old
            }
        }
        AtomOp::Inc => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        AtomOp::Dec => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
    }
}
