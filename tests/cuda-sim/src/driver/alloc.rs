//! Functions that allocate and free memory: device, managed and pinned host memory.

use super::code::Code;
use super::context::Context;
use super::entry::{Answer, Host, Out, exports};
use super::queue::Command;
use super::state::Kind;
use super::stream;

/// Attach flags that `cuMemAllocManaged` accepts: `CU_MEM_ATTACH_GLOBAL` and `CU_MEM_ATTACH_HOST`.
const ATTACH: std::ops::RangeInclusive<u32> = 1..=2;

/// Kinds of memory that `cuMemFree` frees.
const DEVICE: [Kind; 2] = [Kind::Device, Kind::Managed];

fn allocate(context: &Context, address: Out<u64>, bytes: usize, kind: Kind) -> Answer {
    if address.is_null() || bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    address.set(context.driver.allocate(context, bytes as u64, kind)?)
}

/// Frees memory after all work of the context, because the driver synchronizes first.
fn free(context: &Context, address: u64, kinds: &[Kind]) -> Answer {
    // The driver accepts null and frees nothing.
    if address == 0 {
        return Ok(());
    }
    context.synchronize()?;
    context.driver.free(address, kinds)
}

fn host(context: &Context, place: Out<Host>, bytes: usize) -> Answer {
    if place.is_null() || bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let address = context.driver.allocate(context, bytes as u64, Kind::Host)?;
    place.set(Host(address as *mut u8))
}

exports! {
    /// Allocates device memory.
    cuMemAlloc_v2(address: Out<u64>, bytes: usize) working |context| allocate(context, address, bytes, Kind::Device);

    /// Allocates device memory in stream order.
    ///
    /// If memory is short, all work of the context runs first. The frees that streams still have to run then
    /// make room, and the driver may reuse their memory.
    cuMemAllocAsync(address: Out<u64>, bytes: usize, stream: u64) working |context| {
        stream::key(context, stream)?;
        match allocate(context, address, bytes, Kind::Device) {
            Err(Code::OUT_OF_MEMORY) => {
                context.synchronize()?;
                allocate(context, address, bytes, Kind::Device)
            }
            done => done,
        }
    };

    /// Allocates managed memory, which host and device reach by one address.
    cuMemAllocManaged(address: Out<u64>, bytes: usize, flags: u32) working |context| {
        if ATTACH.contains(&flags) { allocate(context, address, bytes, Kind::Managed) } else { Err(Code::INVALID_VALUE) }
    };

    /// Allocates pinned host memory, which the device reaches too.
    cuMemAllocHost_v2(place: Out<Host>, bytes: usize) working |context| host(context, place, bytes);

    /// Allocates pinned host memory, with flags that change nothing here.
    cuMemHostAlloc(place: Out<Host>, bytes: usize, flags: u32) working |context| {
        if flags & !7 == 0 { host(context, place, bytes) } else { Err(Code::INVALID_VALUE) }
    };

    /// Frees device or managed memory after all work of the context.
    cuMemFree_v2(address: u64) working |context| free(context, address, &DEVICE);

    /// Frees device or managed memory in stream order.
    cuMemFreeAsync(address: u64, stream: u64) working |context| {
        if address == 0 {
            return Ok(());
        }
        stream::key(context, stream)?;
        context.driver.claim(address, &DEVICE)?;
        stream::put(context, stream, Command::Free(address)).map(|_| ())
    };

    /// Frees pinned host memory.
    cuMemFreeHost(place: Host) working |context| {
        if place.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        free(context, place.0 as u64, &[Kind::Host])
    };

    /// Returns the free and the total bytes of the device.
    cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) working |context| {
        let (left, all) = context.device().memory.info();
        free.offer(left as usize);
        total.offer(all as usize);
        Ok(())
    };

    /// Accepts a hint that changes nothing here.
    cuMemAdvise(address: u64, bytes: usize, _advice: i32, _device: i32) working |context| {
        context.driver.check_range("cuMemAdvise", address, bytes as u64)
    };

    /// Accepts a hint that changes nothing here.
    cuMemPrefetchAsync(address: u64, bytes: usize, _device: i32, stream: u64) working |context| {
        stream::key(context, stream)?;
        context.driver.check_range("cuMemPrefetchAsync", address, bytes as u64)
    };
}
