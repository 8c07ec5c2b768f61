//! Loads and stores: the place of a lane's address, its checks, and the number of sectors that a warp needs.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::block::BlockMemory;
use super::cluster::Others;
use super::grid::Grid;
use super::order::{self, Strong};
use super::race::{Conflict, Now, Shadow, Stamp, Touch};
use super::regs::{LANES, Raw, Regs, lanes};
use super::shared::{cluster_spot, is_of_cluster, rounds, shared_spot};
use super::unset;
use super::{Counters, FaultKind, Step, Trouble, trouble};
use crate::ptx::ir::{Access, Addr, Reg, Space, Var, Wide};
use crate::ptx::types::Type;

/// First generic address of shared memory and of local memory.
pub(super) const SHARED_WINDOW: u64 = 0x0100_0000_0000;
pub(super) const LOCAL_WINDOW: u64 = 0x0200_0000_0000;
/// Length of a window of generic addresses.
pub(super) const WINDOW: u64 = 1 << 32;

/// Context of an access.
pub(super) struct Who<'a, 'g> {
    pub(super) grid: &'a Grid<'g>,
    pub(super) mem: &'a mut BlockMemory,
    pub(super) others: Others<'a>,
    /// Stamp of lane 0.
    pub(super) stamp: Stamp,
    /// Number of the first thread of the warp.
    pub(super) first: u32,
    /// Time at which all lanes of the warp last met.
    pub(super) meeting: u64,
    /// Number of the instruction.
    pub(super) pc: u32,
}

impl Who<'_, '_> {
    /// Returns a lane with what is ordered before its current access.
    #[inline(always)]
    pub(super) fn now(&self, lane: usize) -> Now<'_> {
        let order = self.mem.order.as_deref();
        Now {
            stamp: self.stamp.lane(lane),
            barrier: self.mem.barrier,
            meeting: self.meeting,
            ended: &self.mem.ended,
            clock: order
                .map(|order| order.before(self.first + lane as u32))
                .filter(|clock| !clock.is_empty()),
            apart: self.grid.kernel.code.orders_some,
            begun: &self.grid.begun,
        }
    }

    /// Returns the key of a place for strong accesses. Shared memory is distinguished by its block.
    pub(super) fn place(&self, space: Space, address: u64) -> (u64, u64) {
        match space {
            Space::Shared => (self.mem.number + 1, address),
            Space::Cluster => {
                let (home, address) = self.home_of(address);
                (self.memory(home).number + 1, address)
            }
            Space::Global | Space::Const | Space::Generic | Space::Local | Space::Param => (0, address),
        }
    }
}

/// Access of one lane.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub(super) lane: usize,
    pub(super) address: u64,
    pub(super) bytes: u64,
}

/// Returns the address of every lane.
#[inline(always)]
pub(super) fn addresses(regs: &Regs, addr: Addr) -> [u64; LANES] {
    match addr.base {
        Some((reg, Wide::Two)) => u64::row(regs, reg).map(|base| base.wrapping_add(addr.offset as u64)),
        // Addresses of 32 bits wrap at 32 bits.
        Some((reg, Wide::One)) => {
            u32::row(regs, reg).map(|base| u64::from(base.wrapping_add(addr.offset as u32)))
        }
        None => [addr.offset as u64; LANES],
    }
}

/// Returns the lanes whose generic address is in each space, and converts the addresses to that space.
fn windows(exec: u32, addresses: &mut [u64; LANES]) -> [(Space, u32); 4] {
    let (mut shared, mut local, mut cluster) = (0, 0, 0);
    for lane in lanes(exec) {
        let address = addresses[lane];
        if address.wrapping_sub(SHARED_WINDOW) < WINDOW {
            addresses[lane] -= SHARED_WINDOW;
            if is_of_cluster(addresses[lane]) {
                cluster |= 1 << lane;
            } else {
                shared |= 1 << lane;
            }
        } else if address.wrapping_sub(LOCAL_WINDOW) < WINDOW {
            local |= 1 << lane;
            addresses[lane] -= LOCAL_WINDOW;
        }
    }
    let global = exec & !shared & !local & !cluster;
    [(Space::Shared, shared), (Space::Local, local), (Space::Global, global), (Space::Cluster, cluster)]
}

/// Returns the lanes whose access is to global memory, which others may see after the block.
pub(super) fn seen_by_others(regs: &Regs, exec: u32, access: &Access) -> u32 {
    match access.space {
        Space::Generic => windows(exec, &mut addresses(regs, access.addr))[2].1,
        Space::Shared | Space::Cluster | Space::Local | Space::Param => 0,
        Space::Global | Space::Const => exec,
    }
}

/// Returns the state space of an address, also of a generic one, and the address there.
pub(super) fn resolve(space: Space, address: u64) -> (Space, u64) {
    let mut all = [address; LANES];
    match space {
        Space::Generic => {
            let found = windows(1, &mut all).into_iter().find(|(_, lanes)| *lanes != 0);
            (found.map_or(Space::Global, |(space, _)| space), all[0])
        }
        Space::Global | Space::Const | Space::Shared | Space::Cluster | Space::Local | Space::Param => {
            (space, address)
        }
    }
}

pub(super) fn load(who: &mut Who<'_, '_>, regs: &mut Regs, exec: u32, access: &Access) -> Step {
    let touch = match (access.strong, access.is_constant) {
        (true, _) => Touch::StrongRead(access.ty.bytes()),
        (false, true) => Touch::Constant,
        (false, false) => Touch::Read,
    };
    each_space(who, regs, exec, access, touch)
}

pub(super) fn store(who: &mut Who<'_, '_>, regs: &mut Regs, exec: u32, access: &Access) -> Step {
    let touch = if access.strong { Touch::Atomic(access.ty.bytes()) } else { Touch::Write };
    each_space(who, regs, exec, access, touch)
}

fn each_space(who: &mut Who<'_, '_>, regs: &mut Regs, exec: u32, access: &Access, touch: Touch) -> Step {
    let mut addresses = addresses(regs, access.addr);
    let spaces = match access.space {
        Space::Generic => windows(exec, &mut addresses),
        space @ (Space::Global
        | Space::Const
        | Space::Shared
        | Space::Cluster
        | Space::Local
        | Space::Param) => [(space, exec), (space, 0), (space, 0), (space, 0)],
    };
    let reads = is_read(touch);
    let grid = who.grid;
    let mut places = if access.strong { order::places(grid) } else { None };
    for (space, exec) in spaces {
        if exec == 0 {
            continue;
        }
        let (at, mut last) = (&addresses, usize::MAX);
        let var = variable(grid, access.addr, space);
        match space {
            Space::Global | Space::Const | Space::Generic => {
                each_lane(who, regs, exec, (access, at, reads), |who, spot| {
                    if space == Space::Const {
                        constant_spot(who, spot)?;
                    }
                    if !reads {
                        variable_spot(who, spot)?;
                    }
                    global_spot(who, spot, touch, &mut last)
                })?;
            }
            Space::Shared => {
                who.mem.atomic_reads = false;
                each_lane(who, regs, exec, (access, at, reads), |who, spot| {
                    shared_spot(who, spot, var, touch)
                })?;
            }
            Space::Cluster => {
                who.mem.atomic_reads = false;
                each_lane(who, regs, exec, (access, at, reads), |who, spot| {
                    cluster_spot(who, spot, var, touch)
                })?;
            }
            Space::Local => {
                each_lane(who, regs, exec, (access, at, reads), |who, spot| local_spot(who, spot, var))?;
            }
            Space::Param => {
                each_lane(who, regs, exec, (access, at, reads), |who, spot| param_spot(who, spot, var))?;
            }
        }
        count(&mut who.mem.counters, (space, exec), (access, at, reads));
        if matches!(space, Space::Shared | Space::Cluster | Space::Local) {
            if reads {
                unset::loaded(who, regs, exec, (access, space, at));
            } else {
                unset::stored(who, regs, exec, (access, space, at));
            }
        }
        if let Some(places) = &mut places {
            let how = if reads { Strong::Read } else { Strong::Write };
            for lane in lanes(exec) {
                let place = who.place(space, at[lane]);
                order::strong(who, places, lane, place, (how, access.order));
            }
        }
    }
    order::released(who, access.order);
    Ok(())
}

/// Access, the address of each lane in one space, and true for a read.
type Accesses<'a> = (&'a Access, &'a [u64; LANES], bool);

pub(super) fn access_bytes(access: &Access) -> u64 {
    u64::from(access.ty.bytes()) * access.regs.len() as u64
}

/// Finds and checks the place of each lane, then moves the elements of all lanes.
#[inline(always)]
fn each_lane<'g>(
    who: &mut Who<'_, 'g>,
    regs: &mut Regs,
    exec: u32,
    (access, addresses, reads): Accesses<'_>,
    mut place: impl FnMut(&mut Who<'_, 'g>, Spot) -> Result<*mut u8, Box<Trouble>>,
) -> Step {
    let bytes = access_bytes(access);
    let mut places = [std::ptr::null_mut(); LANES];
    for lane in lanes(exec) {
        places[lane] = place(who, Spot { lane, address: addresses[lane], bytes })?;
    }
    // SAFETY: a place is the start of as many living bytes, aligned for all of them. Nothing is freed
    // meanwhile.
    unsafe { transfer(regs, exec, access, &places, reads) };
    Ok(())
}

/// Counts the bytes of an access to global memory or to the block's shared memory. Constants have their own
/// cache.
fn count(counters: &mut Counters, (space, exec): (Space, u32), (access, addresses, reads): Accesses<'_>) {
    let moved = access_bytes(access) * u64::from(exec.count_ones());
    match space {
        Space::Global | Space::Generic if reads => {
            counters.loaded += moved;
            counters.load_sectors += sectors(exec, addresses);
        }
        Space::Global | Space::Generic => {
            counters.stored += moved;
            counters.store_sectors += sectors(exec, addresses);
        }
        Space::Shared => {
            counters.shared += moved;
            counters.shared_rounds += rounds(exec, addresses, access_bytes(access));
        }
        Space::Const | Space::Cluster | Space::Local | Space::Param => {}
    }
}

pub(super) fn is_read(touch: Touch) -> bool {
    match touch {
        Touch::Read | Touch::StrongRead(_) | Touch::Constant => true,
        Touch::Write | Touch::Begin | Touch::Atomic(_) => false,
    }
}

/// Moves the elements of all lanes between memory and registers.
///
/// # Safety
/// `places` are, for the active lanes, starts of as many bytes as the access has, aligned for all of them.
unsafe fn transfer(regs: &mut Regs, exec: u32, access: &Access, places: &[*mut u8; LANES], reads: bool) {
    let size = access.ty.bytes() as usize;
    for (i, &reg) in access.regs.iter().enumerate() {
        let Some(reg) = reg else { continue };
        let at = |lane: usize| places[lane].wrapping_add(i * size);
        match (reads, reg, size) {
            (true, (reg, Wide::One), 4) => {
                let mut out = [0; LANES];
                // SAFETY: the element is inside of the access, as the caller promises.
                lanes(exec).for_each(|lane| out[lane] = unsafe { read(at(lane), 4) } as u32);
                regs.put(exec, reg, &out);
            }
            (true, reg, _) => {
                for lane in lanes(exec) {
                    // SAFETY: the element is inside of the access, as the caller promises.
                    let value = extended(access.ty, unsafe { read(at(lane), size) });
                    regs.set(reg, lane, value);
                }
            }
            (false, reg, _) => {
                for lane in lanes(exec) {
                    // SAFETY: the element is inside of the access, as the caller promises.
                    unsafe { write(at(lane), size, regs.get(reg, lane)) };
                }
            }
        }
    }
}

/// Extends a loaded value: signed types keep their sign in a wider register.
#[inline(always)]
fn extended(ty: Type, bits: u64) -> u64 {
    match ty {
        Type::S8 => bits as i8 as u64,
        Type::S16 => bits as i16 as u64,
        Type::S32 => bits as i32 as u64,
        Type::Pred
        | Type::B8
        | Type::B16
        | Type::B32
        | Type::B64
        | Type::U8
        | Type::U16
        | Type::U32
        | Type::U64
        | Type::S64
        | Type::U16x2
        | Type::S16x2
        | Type::F16
        | Type::F16x2
        | Type::BF16
        | Type::BF16x2
        | Type::TF32
        | Type::F32
        | Type::F64 => bits,
    }
}

/// Reads `size` bytes of memory.
///
/// # Safety
/// `at` is the start of `size` living bytes, aligned for them. Other threads of the host may access the bytes
/// at the same time, by atomics as well.
#[inline(always)]
pub(super) unsafe fn read(at: *mut u8, size: usize) -> u64 {
    // SAFETY: promised by the caller.
    unsafe {
        match size {
            1 => u64::from(AtomicU8::from_ptr(at).load(Ordering::Relaxed)),
            2 => u64::from(AtomicU16::from_ptr(at.cast()).load(Ordering::Relaxed)),
            4 => u64::from(AtomicU32::from_ptr(at.cast()).load(Ordering::Relaxed)),
            _ => AtomicU64::from_ptr(at.cast()).load(Ordering::Relaxed),
        }
    }
}

/// Writes `size` bytes of memory.
///
/// # Safety
/// The contract of [`read`].
#[inline(always)]
pub(super) unsafe fn write(at: *mut u8, size: usize, bits: u64) {
    // SAFETY: promised by the caller.
    unsafe {
        match size {
            1 => AtomicU8::from_ptr(at).store(bits as u8, Ordering::Relaxed),
            2 => AtomicU16::from_ptr(at.cast()).store(bits as u16, Ordering::Relaxed),
            4 => AtomicU32::from_ptr(at.cast()).store(bits as u32, Ordering::Relaxed),
            _ => AtomicU64::from_ptr(at.cast()).store(bits, Ordering::Relaxed),
        }
    }
}

pub(super) fn aligned(spot: Spot) -> Step {
    debug_assert!(spot.bytes.is_power_of_two());
    if spot.address & (spot.bytes - 1) == 0 {
        return Ok(());
    }
    let Spot { lane, address, bytes } = spot;
    trouble(FaultKind::Misaligned, lane, || {
        format!("{address:#x} is no multiple of the {bytes} bytes accessed")
    })
}

/// Returns a fault if bytes to be written belong to a variable of constant memory.
pub(super) fn variable_spot(who: &Who<'_, '_>, spot: Spot) -> Step {
    if !is_constant(who, spot) {
        return Ok(());
    }
    trouble(FaultKind::Constant, spot.lane, || {
        format!("{} bytes at {:#x} are written, of a variable of `.const`", spot.bytes, spot.address)
    })
}

/// Returns a fault if bytes do not belong to a variable of constant memory.
fn constant_spot(who: &Who<'_, '_>, spot: Spot) -> Step {
    if is_constant(who, spot) {
        return Ok(());
    }
    trouble(FaultKind::OutOfBounds, spot.lane, || {
        format!("no variable of `.const` holds the {} bytes at {:#x}", spot.bytes, spot.address)
    })
}

/// Returns true if a variable of constant memory contains the bytes.
#[inline(always)]
fn is_constant(who: &Who<'_, '_>, spot: Spot) -> bool {
    let grid = who.grid;
    let holds = |&(number, len): &(u32, u64)| {
        let start = grid.launch.globals.get(number as usize).copied().unwrap_or(0);
        spot.address >= start && spot.address - start + spot.bytes <= len
    };
    grid.kernel.code.constant_memory.iter().any(holds)
}

/// Returns the place of a lane's bytes in global memory, after all checks.
#[inline(always)]
pub(super) fn global_spot(
    who: &Who<'_, '_>,
    spot: Spot,
    touch: Touch,
    last: &mut usize,
) -> Result<*mut u8, Box<Trouble>> {
    aligned(spot)?;
    let blocks = who.grid.view.blocks();
    let fits = |number: usize| {
        blocks.get(number).is_some_and(|block| {
            spot.address >= block.address && spot.address - block.address + spot.bytes <= block.len
        })
    };
    if !fits(*last) {
        let Some(found) = who.grid.view.find(spot.address, spot.bytes) else {
            return Err(outside(who, spot));
        };
        *last = found;
    }
    let block = &blocks[*last];
    let offset = spot.address - block.address;
    let conflict = who.grid.shadows[*last].touch(block.len, offset, spot.bytes, touch, &who.now(spot.lane));
    if let Some(conflict) = conflict {
        race(who, spot, touch, conflict, "global memory")?;
    }
    Ok(block.at(offset))
}

#[cold]
fn outside(who: &Who<'_, '_>, spot: Spot) -> Box<Trouble> {
    let what = who.grid.memory.find(spot.address, spot.bytes).err();
    let what = what.map_or_else(
        || format!("{:#x} was allocated during the launch", spot.address),
        |why| why.to_string(),
    );
    Box::new(Trouble { kind: FaultKind::OutOfBounds, what, lane: spot.lane })
}

/// Returns the fault of two unordered accesses to one place.
#[cold]
pub(super) fn race(who: &Who<'_, '_>, spot: Spot, touch: Touch, conflict: Conflict, space: &str) -> Step {
    let did = if conflict.wrote { "wrote" } else { "read" };
    let does = match touch {
        Touch::Read | Touch::StrongRead(_) | Touch::Constant => "read",
        Touch::Write | Touch::Begin => "written",
        Touch::Atomic(_) => "changed",
    };
    let (bytes, address) = (spot.bytes, spot.address);
    if conflict.is_with_constant() {
        return trouble(FaultKind::Constant, spot.lane, || {
            format!("{bytes} bytes of {space} at {address:#x} are {does} that the launch reads by `.nc`")
        });
    }
    let whom = who.grid.name(conflict.old, who.stamp);
    if touch == Touch::Constant {
        return trouble(FaultKind::Constant, spot.lane, || {
            format!(
                "{bytes} bytes of {space} at {address:#x} are read by `.nc`, which {whom} wrote in this launch"
            )
        });
    }
    trouble(FaultKind::Race, spot.lane, || {
        format!(
            "{bytes} bytes of {space} at {address:#x} are {does} that {whom} {did}, and nothing orders the two"
        )
    })
}

/// Returns the number of sectors of 32 bytes that the lanes touch. An aligned access is within one sector.
pub(super) fn sectors(exec: u32, addresses: &[u64; LANES]) -> u64 {
    let (mut count, mut last, mut rising) = (0, None, true);
    for lane in lanes(exec) {
        let sector = Some(addresses[lane] / 32);
        rising &= sector >= last;
        count += u64::from(sector != last);
        last = sector;
    }
    if rising {
        return count;
    }
    let mut all: Vec<u64> = lanes(exec).map(|lane| addresses[lane] / 32).collect();
    all.sort_unstable();
    all.dedup();
    all.len() as u64
}

/// Returns the variable that an address stays in. None if the variable is in another space.
pub(super) fn variable(grid: &Grid<'_>, addr: Addr, space: Space) -> Option<Var> {
    addr.var.filter(|&var| grid.kernel.code.vars[var as usize].space.is_reached_by(space))
}

/// Returns the place of a lane's bytes in its local memory.
fn local_spot(who: &mut Who<'_, '_>, spot: Spot, var: Option<Var>) -> Result<*mut u8, Box<Trouble>> {
    aligned(spot)?;
    inside(who, spot, (var, u64::from(who.grid.kernel.code.local)), || "local memory".into())?;
    Ok(who.mem.local(who.first as usize + spot.lane, spot.address))
}

/// Returns the place of a parameter's bytes.
fn param_spot(who: &mut Who<'_, '_>, spot: Spot, var: Option<Var>) -> Result<*mut u8, Box<Trouble>> {
    aligned(spot)?;
    inside(who, spot, (var, who.grid.launch.params.len() as u64), || "parameter memory".into())?;
    Ok(who.grid.param_at(spot.address))
}

/// Returns a fault if bytes are outside of the variable of their address, or outside of the space if no
/// variable is known.
#[inline(always)]
pub(super) fn inside(
    who: &Who<'_, '_>,
    spot: Spot,
    (var, len): (Option<Var>, u64),
    space: impl FnOnce() -> String,
) -> Step {
    let Spot { address, bytes, .. } = spot;
    let (start, end) = var.map_or((0, len), |var| who.mem.vars[var as usize]);
    if address >= start && address.checked_add(bytes).is_some_and(|last| last <= end) {
        return Ok(());
    }
    Err(outside_of_variable(who, spot, (var, len), &space()))
}

#[cold]
fn outside_of_variable(
    who: &Who<'_, '_>,
    spot: Spot,
    (var, len): (Option<Var>, u64),
    space: &str,
) -> Box<Trouble> {
    let Spot { lane, address, bytes } = spot;
    let access = format!("{bytes} bytes at {address:#x} of {space}");
    let what = match var {
        Some(var) if address.checked_add(bytes).is_some_and(|last| last <= len) => {
            let (name, (start, end)) =
                (&who.grid.kernel.code.vars[var as usize].name, who.mem.vars[var as usize]);
            format!("{access}, by an address of `{name}`, which is from {start:#x} to {end:#x}")
        }
        Some(_) | None => format!("{access}, which is {len} bytes long"),
    };
    Box::new(Trouble { kind: FaultKind::OutOfBounds, what, lane })
}

/// Executes `cvta`: converts between generic addresses and those of a space.
pub(super) fn cvta(regs: &mut Regs, exec: u32, (space, to): (Space, bool), d: Reg, a: Reg) {
    let window = window(space);
    regs.map(exec, d, a, |x: u64| if to { x.wrapping_sub(window) } else { x.wrapping_add(window) });
}

fn window(space: Space) -> u64 {
    match space {
        Space::Shared | Space::Cluster => SHARED_WINDOW,
        Space::Local => LOCAL_WINDOW,
        Space::Generic | Space::Global | Space::Const | Space::Param => 0,
    }
}

/// Executes `isspacep`.
pub(super) fn is_space(regs: &mut Regs, exec: u32, space: Space, d: Reg, a: Reg) {
    let mut addresses = *u64::row(regs, a);
    let [(_, shared), (_, local), (_, global), (_, cluster)] = windows(exec, &mut addresses);
    let truth = match space {
        Space::Shared => shared,
        Space::Cluster => shared | cluster,
        Space::Local => local,
        Space::Global | Space::Const | Space::Generic | Space::Param => global,
    };
    regs.set_mask(exec, d, truth);
}

/// Returns a shadow for every allocation.
pub(super) fn shadows(count: usize) -> Box<[Shadow]> {
    (0..count).map(|_| Shadow::default()).collect()
}
