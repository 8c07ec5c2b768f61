//! `st.async`: the stored bytes are visible to threads that have seen the phase complete of the mbarrier that
//! counts them.
//!
//! The simulator writes the bytes at once. A thread that touches them has to know of that phase.

use super::clock::Counted;
use super::cluster::Cluster;
use super::grid::Grid;
use super::mbarrier::{self, MbarrierRef};
use super::memory::{self, Spot, Who};
use super::race::{Stamp, Touch};
use super::regs::lanes;
use super::shared::{self, Home};
use super::unset::ones;
use super::warp::Warp;
use super::{Fault, FaultKind, Step, Trouble, block, trouble};
use crate::ptx::ir::AsyncStore;

/// Store whose bytes an mbarrier of the block counts.
#[derive(Clone, Copy)]
pub(super) struct Incoming {
    /// Address of the mbarrier, and the number of its complete phases once the store is visible.
    mbarrier: u64,
    due: i32,
    /// Stamp of the storing thread, true if that thread is of another block, and the instruction.
    stamp: Stamp,
    pub(super) is_remote: bool,
    pc: u32,
}

impl Incoming {
    /// Returns true if a lane knows that the store is visible, in a block.
    pub(super) fn is_known(&self, who: &Who<'_, '_>, home: Home, lane: usize) -> bool {
        let what = if self.is_remote { Counted::DoneWide } else { Counted::Done };
        who.counts(home, lane, (what, self.mbarrier)) >= self.due
    }

    /// Describes the thread that made the store.
    pub(super) fn of(&self, who: &Who<'_, '_>) -> String {
        who.grid.name(self.stamp, who.stamp)
    }
}

/// Returns the range of words that contain the bytes.
fn words(spot: Spot) -> std::ops::Range<u64> {
    spot.address / 4..(spot.address + spot.bytes).div_ceil(4)
}

/// Returns a fault if an `st.async` to these bytes is not known to be visible.
///
/// The check also applies to threads that know of a later write to the bytes.
pub(super) fn check_touch(who: &Who<'_, '_>, home: Home, spot: Spot) -> Step {
    let Spot { lane, address, bytes } = spot;
    if who.memory(home).mbarriers.incoming.is_empty() {
        return Ok(());
    }
    let stores = &who.memory(home).mbarriers.incoming;
    let unknown = |store: &&Incoming| !store.is_known(who, home, lane);
    if let Some(store) = words(spot).filter_map(|word| stores.get(&word)).find(unknown) {
        return trouble(FaultKind::Race, lane, || {
            format!(
                "{bytes} bytes of {} at {address:#x} are the target of an `st.async` of {}, and the thread has not seen the phase complete, of the mbarrier at {:#x}, that it is of",
                who.name_of(home),
                store.of(who),
                store.mbarrier
            )
        });
    }
    Ok(())
}

pub(super) fn store(who: &mut Who<'_, '_>, warp: &Warp, exec: u32, store: &AsyncStore) -> Step {
    let regs = &warp.regs;
    let [to, at] = [store.to, store.mbarrier].map(|addr| memory::addresses(regs, addr));
    let [to_var, at_var] = [store.to, store.mbarrier].map(|addr| addr.var);
    let size = store.ty.bytes() as usize;
    let bytes = (size * store.regs.len()) as u64;
    for lane in lanes(exec) {
        let (home, place) = shared::home_in(who, lane, to[lane])?;
        let (its_home, address) = shared::home_in(who, lane, at[lane])?;
        if home != its_home {
            return trouble(FaultKind::Barrier, lane, || {
                format!("it is to {}, and its mbarrier is in {}", who.name_of(home), who.name_of(its_home))
            });
        }
        if let Some(rank) = home {
            shared::check_lives(who, rank, lane)?;
        }
        let mbarrier = MbarrierRef { home, lane, address, var: at_var };
        let due = mbarrier::reach_phase(who, mbarrier)?.due();
        let spot = Spot { lane, address: place, bytes };
        let target = shared::spot_in(who, home, spot, (to_var, Touch::Begin))?;
        for (i, &reg) in store.regs.iter().enumerate() {
            // SAFETY: `bytes` living bytes of shared memory start there, aligned for all of them.
            unsafe { memory::write(target.wrapping_add(i * size), size, regs.get(reg, lane)) };
        }
        let (stamp, pc, threads) = (who.stamp.lane(lane), who.pc, who.mem.threads);
        let new = Incoming { mbarrier: address, due, stamp, is_remote: home.is_some(), pc };
        let mem = who.memory_mut(home);
        mem.shared_written.set(place as usize, bytes as u32, ones(bytes as u32));
        mem.mbarriers.incoming.extend(words(spot).map(|word| (word, new)));
        if let Some(found) = mbarrier::reached(who, mbarrier) {
            let received = found.receive(new, bytes, threads);
            received.or_else(|what| trouble(FaultKind::Barrier, lane, || what))?;
        }
    }
    Ok(())
}

impl Cluster {
    /// Returns a fault if a block has ended before one of its threads saw the phase of a store to it
    /// complete.
    pub(super) fn check_landed(&self, grid: &Grid<'_>, rank: usize) -> Result<(), Fault> {
        let mem = self.memory(rank);
        let stores = &mem.mbarriers.incoming;
        let late = |store: &Incoming| store.due > mem.mbarriers.seen(store.mbarrier);
        let Some((_, store)) = stores.iter().filter(|(_, store)| late(store)).min_by_key(|(word, _)| **word)
        else {
            return Ok(());
        };
        let what = format!(
            "it is to shared memory of block {:?}, which may have ended before: no thread of it has seen the phase complete, of the mbarrier at {:#x}, that it is of",
            mem.at, store.mbarrier
        );
        let thread = store.stamp.thread().unwrap_or(0) as u32;
        let is_sender = |number: &usize| self.memory(*number).stamp().block() == store.stamp.block();
        let at = (0..self.blocks()).find(is_sender).map_or(mem.at, |number| self.memory(number).at);
        let trouble = Trouble { kind: FaultKind::OutOfBounds, what, lane: (thread % 32) as usize };
        Err(block::fault(grid, at, thread & !31, store.pc, trouble))
    }
}
