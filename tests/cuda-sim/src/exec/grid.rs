//! State of a grid: its kernel, the memory that it reaches, and its progress.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Launch;
use super::memory::shadows;
use super::order::ReleaseMap;
use super::race::{Shadow, Stamp};
use crate::memory::{Memory, View};
use crate::ptx::Kernel;
use crate::ptx::ir::Constant;

/// State that all blocks share.
pub(super) struct Grid<'g> {
    pub(super) kernel: &'g Kernel,
    pub(super) launch: &'g Launch<'g>,
    pub(super) memory: &'g Memory,
    pub(super) view: View,
    /// Bytes of the parameters, in words, so that an offset has its natural alignment.
    params: Box<[AtomicU64]>,
    /// Shadow of each allocation, for the race detector.
    pub(super) shadows: Box<[Shadow]>,
    /// Places with the clocks that strong writes released there.
    pub(super) places: Mutex<ReleaseMap>,
    /// Number of blocks that have begun.
    pub(super) begun: AtomicU64,
    pub(super) blocks: u64,
    /// Blocks of a cluster. `is_explicit` is true if the launch or the kernel gives them.
    pub(super) cluster: [u32; 3],
    pub(super) is_explicit: bool,
    pub(super) fast: bool,
    steps: AtomicU64,
    limit: AtomicU64,
}

impl<'g> Grid<'g> {
    pub(super) fn new(
        kernel: &'g Kernel,
        launch: &'g Launch<'g>,
        memory: &'g Memory,
        limit: u64,
    ) -> Grid<'g> {
        let view = memory.view();
        let shadows = shadows(view.blocks().len());
        let blocks = launch.grid.iter().map(|&extent| u64::from(extent)).product();
        let cluster = launch.cluster.or(kernel.limits.required_cluster);
        let (is_explicit, cluster) = (cluster.is_some(), cluster.unwrap_or([1; 3]));
        let (places, begun) = (Mutex::default(), AtomicU64::new(0));
        let (fast, steps, limit) = (super::alu::is_fast(), AtomicU64::new(0), AtomicU64::new(limit));
        let params = launch.params.chunks(8).map(|chunk| {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            AtomicU64::new(u64::from_ne_bytes(bytes))
        });
        let params = params.collect();
        Grid {
            kernel,
            launch,
            memory,
            view,
            params,
            shadows,
            places,
            begun,
            blocks,
            cluster,
            is_explicit,
            fast,
            steps,
            limit,
        }
    }

    /// Returns the number of clusters.
    pub(super) fn clusters(&self) -> u64 {
        self.blocks / self.cluster.iter().map(|&extent| u64::from(extent)).product::<u64>()
    }

    /// Records that this many blocks have begun.
    pub(super) fn begin(&self, blocks: u64) {
        self.begun.fetch_max(blocks, Ordering::SeqCst);
    }

    /// Returns a pointer to the parameters at an address.
    pub(super) fn param_at(&self, address: u64) -> *mut u8 {
        self.params.as_ptr().cast_mut().cast::<u8>().wrapping_add(address as usize)
    }

    /// Counts instructions of a warp. Returns true if the limit is not exceeded.
    pub(super) fn count(&self, steps: u64) -> bool {
        self.steps.fetch_add(steps, Ordering::Relaxed) + steps <= self.limit.load(Ordering::Relaxed)
    }

    /// Lowers the limit after a fault.
    ///
    /// The other clusters get time to reach a fault of their own, but do not run to the full limit where they
    /// wait for a thread that has ended.
    pub(super) fn end_soon(&self) {
        const SOON: u64 = 1 << 20;
        self.limit.fetch_min(self.steps.load(Ordering::Relaxed) + SOON, Ordering::Relaxed);
    }

    /// Describes the thread that left a stamp, as seen by `me`.
    pub(super) fn name(&self, old: Stamp, me: Stamp) -> String {
        let thread = match old.thread() {
            Some(thread) => format!("thread {:?}", position(thread as u32, self.launch.block)),
            None => "more than one thread".into(),
        };
        if old.block() == me.block() {
            return format!("{thread} of the same block");
        }
        match old.block() - 1 {
            block if block < self.blocks => {
                format!("{thread} of block {:?}", position(block as u32, self.launch.grid))
            }
            _many => "more than one block".into(),
        }
    }

    /// Returns the value of a constant row.
    pub(super) fn value(&self, constant: Constant) -> u64 {
        match constant {
            Constant::Bits(bits) => bits,
            Constant::Global(number, offset) => {
                let address = self.launch.globals.get(number as usize).copied().unwrap_or(0);
                address.wrapping_add(offset as u64)
            }
            Constant::Placed(var, offset) => {
                u64::from(self.kernel.code.vars[var as usize].start).wrapping_add(offset as u64)
            }
        }
    }
}

/// Returns the coordinates of a thread or block by its number.
pub(super) fn position(number: u32, extents: [u32; 3]) -> [u32; 3] {
    let [x, y, _] = extents.map(|extent| extent.max(1));
    [number % x, number / x % y, number / x / y]
}
