//! A warp's lanes: where each is, and which run next.
//!
//! Of the lanes that can run, those furthest back go first, so that lanes that parted meet again as soon as
//! they can. After each long turn others go for one: those furthest ahead, then those before them and so on, so
//! that lanes may wait in a loop for any others of their warp.

use super::cluster;
use super::copy::Copies;
use super::mbarrier::{self, Tries};
use super::regs::{LANES, Raw, Regs, lanes};
use crate::ptx::ir::{Code, Constant, Wide};

pub(super) struct Warp {
    pub(super) regs: Regs,
    /// Where each lane is, while none of them runs.
    pub(super) pcs: [u32; LANES],
    /// Which there are, and which have not exited.
    pub(super) started: u32,
    pub(super) live: u32,
    /// Which wait for other lanes of their mask.
    pub(super) parked: u32,
    /// Which wait at a barrier of the block or of the cluster, or at an mbarrier, and at which.
    pub(super) waiting: u32,
    pub(super) barrier: [u8; LANES],
    /// Which have arrived at the barrier of the cluster, at which some have not; which have where all have, and do not know
    /// it yet.
    pub(super) arrived: u32,
    pub(super) met: u32,
    /// Which wait there for the others of the warp.
    pub(super) gathered: u32,
    /// Which have passed a barrier of the whole block.
    pub(super) passed: u32,
    /// Which have exited while others waited at a barrier.
    pub(super) missed: u32,
    /// The barrier of the whole block that its lanes last passed by, as its guard said.
    pub(super) skipped: Option<u32>,
    /// Number of its first thread.
    pub(super) first: u32,
    /// When all its lanes last met.
    pub(super) meeting: u64,
    pub(super) copies: Copies,
    pub(super) tries: Tries,
    /// How many turns were long: in odd ones others than those furthest back go first.
    pub(super) turn: u32,
}

/// Lanes that run together.
#[derive(Clone, Copy)]
pub(super) struct Group {
    pub(super) active: u32,
    pub(super) pc: u32,
    /// Where the next other lane is.
    pub(super) limit: u32,
}

impl Warp {
    /// A warp whose constants are filled in.
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

    /// Back to the first instruction, with so many threads and nothing written but constants.
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

    /// The lanes that run next.
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

    /// Where those are that go in an odd turn: in one furthest ahead, in the next before these, but not furthest back.
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

    /// The lanes that wait at the barrier of the cluster.
    pub(super) fn at_cluster(&self) -> u32 {
        self.waiting_at(cluster::BARRIER)
    }

    /// The same at an mbarrier.
    pub(super) fn at_mbarrier(&self) -> u32 {
        self.waiting_at(mbarrier::MBARRIER)
    }

    fn waiting_at(&self, barrier: u8) -> u32 {
        let is_there = |&lane: &usize| self.barrier[lane] == barrier;
        lanes(self.waiting).filter(is_there).fold(0, |all, lane| all | 1 << lane)
    }

    /// Says where lanes are.
    pub(super) fn place(&mut self, lanes_there: u32, pc: u32) {
        lanes(lanes_there).for_each(|lane| self.pcs[lane] = pc);
    }

    /// Ends lanes. Those that waited for them look again.
    pub(super) fn exit(&mut self, exec: u32) {
        self.live &= !exec;
        self.parked = 0;
        if self.waiting & !self.at_mbarrier() != 0 {
            self.missed |= exec;
        }
    }
}
