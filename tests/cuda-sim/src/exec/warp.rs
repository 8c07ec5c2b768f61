//! Lanes of a warp: their program counters, and the choice of the lanes that run next.
//!
//! The runnable lanes with the lowest program counter run first, so that lanes that diverged reconverge as
//! soon as possible. After each long turn other lanes run for one turn: those with the highest program
//! counter, then those with the next lower one and so on. A lane may therefore wait in a loop for any other
//! lanes of its warp.

use super::cluster;
use super::copy::Copies;
use super::mbarrier::{self, Tries};
use super::regs::{LANES, Raw, Regs, lanes};
use crate::ptx::ir::{Code, Constant, Wide};

pub(super) struct Warp {
    pub(super) regs: Regs,
    /// Program counter of each lane, while the lane does not run.
    pub(super) pcs: [u32; LANES],
    /// Lanes that exist, and lanes that have not exited.
    pub(super) started: u32,
    pub(super) live: u32,
    /// Lanes that wait for other lanes of their mask.
    pub(super) parked: u32,
    /// Lanes that wait at a barrier of the block or of the cluster, or at an mbarrier, and the number of that
    /// barrier.
    pub(super) waiting: u32,
    pub(super) barrier: [u8; LANES],
    /// Lanes that have arrived at the incomplete barrier of the cluster, and lanes that have not waited yet
    /// for the complete one.
    pub(super) arrived: u32,
    pub(super) met: u32,
    /// Lanes that wait at the barrier of the cluster for the others of the warp.
    pub(super) gathered: u32,
    /// Lanes that have passed a barrier of the whole block.
    pub(super) passed: u32,
    /// Lanes that have exited while others waited at a barrier.
    pub(super) missed: u32,
    /// Barrier of the whole block that a guard last led all lanes past.
    pub(super) skipped: Option<u32>,
    /// Number of the warp's first thread.
    pub(super) first: u32,
    /// Time at which all lanes of the warp last met.
    pub(super) meeting: u64,
    pub(super) copies: Copies,
    pub(super) tries: Tries,
    /// Number of long turns. In odd ones other lanes than those with the lowest program counter run first.
    pub(super) turn: u32,
}

/// Lanes that run together.
#[derive(Clone, Copy)]
pub(super) struct Group {
    pub(super) active: u32,
    pub(super) pc: u32,
    /// Lowest program counter of the other lanes.
    pub(super) limit: u32,
}

impl Warp {
    /// Returns a warp with its constant rows filled.
    pub(super) fn new(code: &Code, first: u32, value: impl Fn(Constant) -> u64) -> Warp {
        let mut regs = Regs::new(code.rows);
        for &(reg, wide, constant) in &code.constants {
            let value = value(constant);
            match wide {
                Wide::One => u32::row_mut(&mut regs, reg).fill(value as u32),
                Wide::Two => u64::row_mut(&mut regs, reg).fill(value),
            }
            regs.masks[reg as usize] = if value == 0 { 0 } else { u32::MAX };
        }
        let (copies, tries) = (Copies::default(), Tries::default());
        Warp {
            regs,
            pcs: [0; LANES],
            started: 0,
            live: 0,
            parked: 0,
            waiting: 0,
            barrier: [0; LANES],
            arrived: 0,
            met: 0,
            gathered: 0,
            passed: 0,
            missed: 0,
            skipped: None,
            first,
            meeting: 0,
            copies,
            tries,
            turn: 0,
        }
    }

    /// Resets the warp to the first instruction, with this many threads, and only constants defined.
    pub(super) fn start(&mut self, code: &Code, threads: u32) {
        self.regs.written.fill(0);
        self.regs.unset.clear();
        for &(reg, ..) in &code.constants {
            self.regs.written[reg as usize] = u32::MAX;
        }
        self.pcs = [0; LANES];
        self.live = if threads >= 32 { u32::MAX } else { (1 << threads) - 1 };
        (self.parked, self.waiting, self.meeting) = (0, 0, 0);
        self.started = self.live;
        (self.arrived, self.met, self.gathered) = (0, 0, 0);
        (self.passed, self.missed, self.skipped) = (0, 0, None);
        self.copies.clear();
        self.tries.clear();
        self.turn = 0;
    }

    /// Returns the lanes that run next.
    pub(super) fn next(&self) -> Option<Group> {
        let runnable = self.live & !self.parked & !self.waiting;
        if self.turn % 2 == 1 {
            let pc = self.ahead(runnable)?;
            let active =
                lanes(runnable).filter(|&lane| self.pcs[lane] == pc).fold(0, |all, lane| all | 1 << lane);
            return Some(Group { active, pc, limit: u32::MAX });
        }
        let (mut active, mut pc, mut limit) = (0, u32::MAX, u32::MAX);
        for lane in lanes(runnable) {
            let at = self.pcs[lane];
            if at < pc {
                (limit, pc, active) = (pc, at, 1 << lane);
            } else if at == pc {
                active |= 1 << lane;
            } else {
                limit = limit.min(at);
            }
        }
        (active != 0).then_some(Group { active, pc, limit })
    }

    /// Returns the program counter of the lanes that run in an odd turn.
    ///
    /// The first odd turn takes the highest program counter. Each later one takes the next lower one, but
    /// never the lowest.
    #[cold]
    fn ahead(&self, runnable: u32) -> Option<u32> {
        let places = || lanes(runnable).map(|lane| self.pcs[lane]);
        let (least, most) = (places().min()?, places().max()?);
        let before = |pc: u32| places().filter(|&at| at > least && at < pc).max();
        let mut pc = most;
        for _ in 0..self.turn / 2 % LANES as u32 {
            pc = match before(pc) {
                Some(pc) => pc,
                None if pc == most => break,
                None => most,
            };
        }
        Some(pc)
    }

    /// Returns the lanes that wait at the barrier of the cluster.
    pub(super) fn at_cluster(&self) -> u32 {
        self.waiting_at(cluster::BARRIER)
    }

    /// Returns the lanes that wait at an mbarrier.
    pub(super) fn at_mbarrier(&self) -> u32 {
        self.waiting_at(mbarrier::MBARRIER)
    }

    fn waiting_at(&self, barrier: u8) -> u32 {
        let is_there = |&lane: &usize| self.barrier[lane] == barrier;
        lanes(self.waiting).filter(is_there).fold(0, |all, lane| all | 1 << lane)
    }

    /// Sets the program counter of lanes.
    pub(super) fn place(&mut self, lanes_there: u32, pc: u32) {
        lanes(lanes_there).for_each(|lane| self.pcs[lane] = pc);
    }

    /// Ends lanes. Lanes that waited for them check again.
    pub(super) fn exit(&mut self, exec: u32) {
        self.live &= !exec;
        self.parked = 0;
        if self.waiting & !self.at_mbarrier() != 0 {
            self.missed |= exec;
        }
    }
}
