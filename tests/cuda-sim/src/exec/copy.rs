//! `cp.async`: the bytes of a copy are stored only where a thread waits for the copy, so that a missing wait
//! shows.
//!
//! The ISA orders nothing between the start of a copy and that wait, even for the thread itself. No thread
//! may touch the target until then.

use super::memory::{self, Spot, Who};
use super::race::Touch;
use super::regs::{LANES, Raw, lanes};
use super::shared::rounds;
use super::unset::ones;
use super::warp::Warp;
use super::{FaultKind, Step, shared, trouble};
use crate::ptx::ir::{Addr, Reg};

/// Pending copies of a warp's lanes.
#[derive(Default)]
pub(super) struct Copies {
    pending: Vec<PendingCopy>,
    /// Number of groups that each lane has committed.
    groups: [u32; LANES],
}

#[derive(Clone, Copy)]
struct PendingCopy {
    lane: usize,
    group: u32,
    to: u64,
    bytes: u32,
    data: [u32; 4],
}

impl Copies {
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.groups = [0; LANES];
    }

    /// Commits the copies begun since the last commit as a group.
    pub(super) fn commit(&mut self, exec: u32) {
        lanes(exec).for_each(|lane| self.groups[lane] += 1);
    }
}

/// Reads the source of a copy, and records its target.
pub(super) fn begin(
    who: &mut Who<'_, '_>,
    warp: &mut Warp,
    exec: u32,
    (to, from): (Addr, Addr),
    bytes: u32,
    fill: Option<Reg>,
) -> Step {
    who.mem.atomic_reads = false;
    let var = to.var;
    let (to, from) = (memory::addresses(&warp.regs, to), memory::addresses(&warp.regs, from));
    let lengths = fill.map_or([bytes; LANES], |reg| *u32::row(&warp.regs, reg));
    let mut last = usize::MAX;
    for lane in lanes(exec) {
        let len = lengths[lane];
        if len > bytes {
            return trouble(FaultKind::OutOfBounds, lane, || format!("it reads {len} bytes to copy {bytes}"));
        }
        for address in [to[lane], from[lane]] {
            memory::aligned(Spot { lane, address, bytes: u64::from(bytes) })?;
        }
        let target = Spot { lane, address: to[lane], bytes: u64::from(bytes) };
        shared::shared_spot(who, target, var, Touch::Begin)?;
        who.mem.copy(target.address, target.bytes, Some(who.first + lane as u32));
        let mut copy =
            PendingCopy { lane, group: warp.copies.groups[lane], to: to[lane], bytes, data: [0; 4] };
        for offset in 0..len {
            // The copy reads one byte at a time, because it may read any number of bytes.
            let spot = Spot { lane, address: from[lane] + u64::from(offset), bytes: 1 };
            let at =
                if len == bytes { continue } else { memory::global_spot(who, spot, Touch::Read, &mut last)? };
            // SAFETY: the place is a living byte of global memory.
            let byte = unsafe { memory::read(at, 1) } as u32;
            copy.data[offset as usize / 4] |= byte << (offset % 4 * 8);
        }
        if len == bytes {
            let spot = Spot { lane, address: from[lane], bytes: u64::from(bytes) };
            let at = memory::global_spot(who, spot, Touch::Read, &mut last)?;
            for (i, word) in copy.data.iter_mut().enumerate().take(bytes as usize / 4) {
                // SAFETY: `bytes` living bytes of global memory start there, aligned.
                *word = unsafe { memory::read(at.add(4 * i), 4) } as u32;
            }
        }
        who.mem.counters.loaded += u64::from(len);
        warp.copies.pending.push(copy);
    }
    let reading = lanes(exec).filter(|&lane| lengths[lane] > 0).map(|lane| 1 << lane).sum();
    let counters = &mut who.mem.counters;
    counters.load_sectors += memory::sectors(reading, &from);
    counters.shared += u64::from(bytes) * u64::from(exec.count_ones());
    counters.shared_rounds += rounds(exec, &to, bytes.into());
    Ok(())
}

/// Stores the copies that leave at most `most` groups pending. None stores all copies.
pub(super) fn wait(who: &mut Who<'_, '_>, warp: &mut Warp, exec: u32, most: Option<u32>) -> Step {
    let groups = warp.copies.groups;
    let lands = |copy: &PendingCopy| {
        exec >> copy.lane & 1 == 1 && most.is_none_or(|most| copy.group + most < groups[copy.lane])
    };
    let mut pending = std::mem::take(&mut warp.copies.pending);
    who.mem.atomic_reads = false;
    for copy in pending.iter().filter(|copy| lands(copy)) {
        let spot = Spot { lane: copy.lane, address: copy.to, bytes: u64::from(copy.bytes) };
        who.mem.copy(spot.address, spot.bytes, None);
        let at = shared::shared_spot(who, spot, None, Touch::Write)?;
        who.mem.shared_written.set(spot.address as usize, copy.bytes, ones(copy.bytes));
        for (i, &word) in copy.data.iter().enumerate().take(copy.bytes as usize / 4) {
            // SAFETY: `bytes` bytes of the block's shared memory start there, aligned.
            unsafe { memory::write(at.add(4 * i), 4, u64::from(word)) };
        }
    }
    pending.retain(|copy| !lands(copy));
    warp.copies.pending = pending;
    Ok(())
}
