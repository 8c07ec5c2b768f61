//! Values of the special registers.

use super::grid::position;
use super::memory::Who;
use super::regs::LANES;
use super::warp::Warp;
use crate::ptx::ir::{Reg, Special, Wide};

/// Reads a special register.
pub(super) fn read(who: &Who<'_, '_>, warp: &mut Warp, exec: u32, special: Special, (d, wide): (Reg, Wide)) {
    let (launch, first, at) = (who.grid.launch, who.first, who.mem.at);
    let cluster = who.grid.cluster;
    let each = |f: &dyn Fn(u32) -> u32| -> [u32; LANES] { std::array::from_fn(|lane| f(lane as u32)) };
    let all = |value: u32| [value; LANES];
    let values = match special {
        Special::Tid(axis) => each(&|lane| position(first + lane, launch.block)[axis]),
        Special::Ntid(axis) => all(launch.block[axis]),
        Special::Ctaid(axis) => all(at[axis]),
        Special::Nctaid(axis) => all(launch.grid[axis]),
        Special::LaneId => each(&|lane| lane),
        Special::WarpId => all(first / 32),
        Special::NWarpId => all(launch.block.iter().product::<u32>().div_ceil(32)),
        Special::SmId | Special::GridId => all(0),
        Special::NSmId => all(1),
        Special::MaskEq => each(&|lane| 1 << lane),
        Special::MaskLt => each(&|lane| (1 << lane) - 1),
        Special::MaskLe => each(&|lane| u32::MAX >> (31 - lane)),
        Special::MaskGt => each(&|lane| !(u32::MAX >> (31 - lane))),
        Special::MaskGe => each(&|lane| u32::MAX << lane),
        // Clocks count the executed instructions.
        Special::Clock | Special::GlobalTimer => all(who.mem.counters.instructions as u32),
        Special::ClockHi => all((who.mem.counters.instructions >> 32) as u32),
        Special::TotalShared => all(who.mem.shared_len as u32),
        Special::DynamicShared => all(launch.dynamic_shared),
        Special::ClusterRank => all(who.others.own_rank() as u32),
        Special::ClusterBlocks => all(who.others.blocks() as u32),
        Special::ClusterId(axis) => all(at[axis] / cluster[axis]),
        Special::NClusterId(axis) => all(launch.grid[axis] / cluster[axis]),
        Special::ClusterCtaid(axis) => all(at[axis] % cluster[axis]),
        Special::ClusterNctaid(axis) => all(cluster[axis]),
        Special::IsExplicitCluster => {
            return warp.regs.set_mask(exec, d, if who.grid.is_explicit { u32::MAX } else { 0 });
        }
    };
    let is_time = matches!(special, Special::Clock | Special::GlobalTimer);
    match wide {
        Wide::Two if is_time => warp.regs.put(exec, d, &[who.mem.counters.instructions; LANES]),
        Wide::One => warp.regs.put(exec, d, &values),
        Wide::Two => warp.regs.put(exec, d, &values.map(u64::from)),
    }
}
