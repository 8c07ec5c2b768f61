//! Shared memory: the place of an address, in the block itself or in another block of its cluster, and the
//! checks of access.
//!
//! An address of the cluster's shared memory has the rank of its block, plus one, above the lower [`PLACE`]
//! bits. An address of a block's own variable has zero there, and is in the block itself.

use super::block::BlockMemory;
use super::cluster::Visit;
use super::grid::position;
use super::memory::{self, Spot, Who, aligned, inside, is_read, race};
use super::race::Touch;
use super::regs::{LANES, Raw, lanes};
use super::unset::ones;
use super::warp::Warp;
use super::{FaultKind, Step, Trouble, incoming, mbarrier, trouble};
use crate::ptx::ir::{Reg, Var, Wide};

/// Number of address bits that give a place within a block.
const PLACE: u32 = 24;

/// Rank of another block of the cluster. None is the block itself.
pub(super) type Home = Option<usize>;

/// Returns the rank of the block of a shared address, if the address has one, and the place there.
fn split(address: u64) -> (Option<u64>, u64) {
    ((address >> PLACE).checked_sub(1), address & ((1 << PLACE) - 1))
}

/// Returns the number of rounds in which the banks of shared memory serve an access of `bytes` bytes a lane.
///
/// Each bank serves one word a round. Lanes are served in groups that move 128 bytes. A bank serves lanes
/// that want the same word at once.
pub(super) fn rounds(exec: u32, addresses: &[u64; LANES], bytes: u64) -> u64 {
    const BANKS: usize = 32;
    let together = (4 * BANKS as u64 / bytes).clamp(1, LANES as u64) as u32;
    let group = |start: u32| lanes(exec & (u32::MAX >> (LANES as u32 - together)) << start);
    let of_group = |start: u32| {
        let Some(first) = group(start).next().map(|lane| addresses[lane]) else { return 0 };
        if group(start).zip(0..).all(|(lane, i)| addresses[lane] == first + i * bytes) {
            return 1;
        }
        let words = |lane: usize| addresses[lane] / 4..(addresses[lane] + bytes).div_ceil(4);
        let mut words: Vec<u64> = group(start).flat_map(words).collect();
        words.sort_unstable();
        words.dedup();
        let mut of_banks = [0; BANKS];
        words.iter().for_each(|&word| of_banks[word as usize % BANKS] += 1);
        of_banks.into_iter().max().unwrap_or(0)
    };
    (0..LANES as u32).step_by(together as usize).map(of_group).sum()
}

/// Returns true if an address of shared memory has the rank of a block.
pub(super) fn is_of_cluster(address: u64) -> bool {
    split(address).0.is_some()
}

impl Who<'_, '_> {
    /// Returns the place of an address of the cluster's shared memory, whose block exists.
    pub(super) fn home_of(&self, address: u64) -> (Home, u64) {
        let (rank, place) = split(address);
        let rank = rank.and_then(|rank| usize::try_from(rank).ok());
        (rank.filter(|&rank| rank != self.others.own_rank()), place)
    }

    /// Returns the memory of a block.
    #[inline(always)]
    pub(super) fn memory(&self, home: Home) -> &BlockMemory {
        home.and_then(|rank| self.others.memory(rank)).unwrap_or(&*self.mem)
    }

    /// Returns the memory of a block for modification.
    #[inline(always)]
    pub(super) fn memory_mut(&mut self, home: Home) -> &mut BlockMemory {
        match home {
            None => self.mem,
            Some(rank) => self.others.memory_mut(rank).unwrap_or(self.mem),
        }
    }

    /// Returns the coordinates of the block of a shared address, if it is another block, and the place there.
    pub(super) fn place_of(&self, address: u64) -> (Option<[u32; 3]>, u64) {
        let (home, address) = self.home_of(address);
        (home.map(|_| self.memory(home).at), address)
    }

    /// Describes a block's shared memory.
    pub(super) fn name_of(&self, home: Home) -> String {
        name(home.map(|_| self.memory(home).at))
    }
}

/// Describes the shared memory of another block, or of the block itself.
pub(super) fn name(block: Option<[u32; 3]>) -> String {
    block.map_or_else(|| "shared memory".into(), |block| format!("shared memory of block {block:?}"))
}

/// Returns the place of a lane's bytes in shared memory, after all checks.
#[inline(always)]
pub(super) fn shared_spot(
    who: &mut Who<'_, '_>,
    spot: Spot,
    var: Option<Var>,
    touch: Touch,
) -> Result<*mut u8, Box<Trouble>> {
    spot_in(who, None, spot, (var, touch))
}

/// Returns the place of a lane's bytes at an address of the cluster's shared memory, after all checks.
pub(super) fn cluster_spot(
    who: &mut Who<'_, '_>,
    spot: Spot,
    var: Option<Var>,
    touch: Touch,
) -> Result<*mut u8, Box<Trouble>> {
    let lane = spot.lane;
    let (home, address) = home_in(who, lane, spot.address)?;
    let spot = Spot { address, ..spot };
    if let Some(rank) = home {
        check_lives(who, rank, lane)?;
    }
    let at = spot_in(who, home, spot, (var, touch))?;
    if home.is_some() {
        let visit = Visit { stamp: who.stamp.lane(lane), pc: who.pc };
        let visitor = who.others.own_rank() * who.mem.threads as usize + who.first as usize + lane;
        let visits = &mut who.memory_mut(home).visits;
        visits.resize(visits.len().max(visitor + 1), None);
        visits[visitor] = Some(visit);
    }
    Ok(at)
}

/// Returns the place of a lane's address of the cluster's shared memory, after a check that the block exists.
pub(super) fn home_in(who: &Who<'_, '_>, lane: usize, address: u64) -> Result<(Home, u64), Box<Trouble>> {
    let blocks = who.others.blocks();
    if let (Some(rank), place) = split(address)
        && rank >= blocks as u64
    {
        return trouble(FaultKind::OutOfBounds, lane, || {
            format!(
                "{place:#x} of shared memory of block {rank} of a cluster of {blocks}, which are from 0 on"
            )
        });
    }
    Ok(who.home_of(address))
}

/// Returns a fault if another block has ended, or is not known to the thread to have begun.
pub(super) fn check_lives(who: &Who<'_, '_>, rank: usize, lane: usize) -> Step {
    let (mem, clock) = (who.memory(Some(rank)), who.now(lane).clock);
    let at = mem.at;
    if mem.has_ended {
        return trouble(FaultKind::OutOfBounds, lane, || {
            format!("it is to shared memory of block {at:?}, which has ended")
        });
    }
    if clock.is_some_and(|clock| clock.times(mem.stamp().block()).is_some()) {
        return Ok(());
    }
    trouble(FaultKind::OutOfBounds, lane, || {
        format!(
            "it is to shared memory of block {at:?}, which may not have begun: the thread has waited at no barrier of the cluster"
        )
    })
}

/// Returns the place of a lane's bytes in a block's shared memory, after all checks but that the block lives.
#[inline(always)]
pub(super) fn spot_in(
    who: &mut Who<'_, '_>,
    home: Home,
    spot: Spot,
    (var, touch): (Option<Var>, Touch),
) -> Result<*mut u8, Box<Trouble>> {
    let Spot { lane, address, bytes } = spot;
    aligned(spot)?;
    let len = who.mem.shared_len;
    inside(who, spot, (var, len), || who.name_of(home))?;
    if !who.memory(home).mbarriers.is_empty() {
        mbarrier::check_touch(who, home, spot)?;
        incoming::check_touch(who, home, spot)?;
    }
    if matches!(touch, Touch::Atomic(_)) && who.mem.atomic_reads && !is_written(who, home, spot) {
        trouble(FaultKind::Uninitialized, lane, || {
            format!("nothing has written all of the {bytes} bytes at {address:#x} of {}", who.name_of(home))
        })?;
    }
    if let Some(thread) = who.memory(home).under_way(address, bytes) {
        let thread = position(thread, who.grid.launch.block);
        // A read of bytes that were written before the copy is a race, because it may see the old bytes.
        let missed = is_read(touch) && !is_written(who, home, spot);
        let kind = if missed { FaultKind::Uninitialized } else { FaultKind::Race };
        trouble(kind, lane, || {
            let name = who.name_of(home);
            format!(
                "{bytes} bytes of {name} at {address:#x} are the target of a `cp.async` of thread {thread:?} that it has not waited for"
            )
        })?;
    }
    let conflict = who.memory(home).shared_shadow.touch(len, address, bytes, touch, &who.now(lane));
    if let Some(conflict) = conflict {
        race(who, spot, touch, conflict, &who.name_of(home))?;
    }
    Ok(who.memory_mut(home).shared_at(address))
}

fn is_written(who: &Who<'_, '_>, home: Home, spot: Spot) -> bool {
    let bytes = spot.bytes as u32;
    who.memory(home).shared_written.get(spot.address as usize, bytes) == ones(bytes)
}

/// Returns the offset between generic addresses of shared memory and addresses of its space.
fn base(generic: bool) -> u64 {
    if generic { memory::SHARED_WINDOW } else { 0 }
}

/// Returns the address of each lane in shared memory.
fn addresses(warp: &Warp, a: Reg, wide: Wide, generic: bool) -> [u64; LANES] {
    let all = match wide {
        Wide::One => u32::row(&warp.regs, a).map(u64::from),
        Wide::Two => *u64::row(&warp.regs, a),
    };
    all.map(|address| address.wrapping_sub(base(generic)))
}

fn check_shared(lane: usize, address: u64) -> Step {
    if address < memory::WINDOW {
        return Ok(());
    }
    trouble(FaultKind::OutOfBounds, lane, || "the address is not one of shared memory".into())
}

/// Executes `mapa`.
pub(super) fn map_rank(
    who: &Who<'_, '_>,
    warp: &mut Warp,
    exec: u32,
    (generic, wide): (bool, Wide),
    (d, a, b): (Reg, Reg, Reg),
) -> Step {
    let (addresses, ranks) = (addresses(warp, a, wide, generic), *u32::row(&warp.regs, b));
    let blocks = who.others.blocks();
    for lane in lanes(exec) {
        check_shared(lane, addresses[lane])?;
        let rank = ranks[lane];
        if rank as usize >= blocks {
            return trouble(FaultKind::OutOfBounds, lane, || {
                format!("there is no block {rank} in a cluster of {blocks}, which are from 0 on")
            });
        }
        let place = split(addresses[lane]).1;
        warp.regs.set((d, wide), lane, base(generic) + (u64::from(rank + 1) << PLACE | place));
    }
    Ok(())
}

/// Executes `getctarank`.
pub(super) fn rank_of(
    who: &Who<'_, '_>,
    warp: &mut Warp,
    exec: u32,
    (generic, wide): (bool, Wide),
    (d, a): (Reg, Reg),
) -> Step {
    let addresses = addresses(warp, a, wide, generic);
    for lane in lanes(exec) {
        check_shared(lane, addresses[lane])?;
        let rank = split(addresses[lane]).0.unwrap_or(who.others.own_rank() as u64);
        warp.regs.set((d, Wide::One), lane, rank);
    }
    Ok(())
}
