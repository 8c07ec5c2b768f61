//! Memory: of the device, of both, and of the host.

use super::code::Code;
use super::context::Context;
use super::entry::{Answer, Host, Out, exports};
use super::queue::Work;
use super::state::Kind;
use super::stream;

/// `CU_MEM_ATTACH_GLOBAL`, `_HOST`, `_SINGLE`: a managed block has one of them.
const ATTACH: std::ops::RangeInclusive<u32> = 1..=2;

/// Memory that is not the host's to end.
const DEVICE: [Kind; 2] = [Kind::Device, Kind::Managed];

fn allocate(context: &Context, address: Out<u64>, bytes: usize, kind: Kind) -> Answer {
    if address.is_null() || bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    address.set(context.driver.allocate(context, bytes as u64, kind)?)
}

/// Frees memory. The driver waits for everything first.
fn free(context: &Context, address: u64, kinds: &[Kind]) -> Answer {
    // Freeing nothing is allowed.
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
    /// Device memory.
    cuMemAlloc_v2(address: Out<u64>, bytes: usize) working |context| allocate(context, address, bytes, Kind::Device);

    /// Device memory, in a stream's order. Where there is too little, what streams are to free is freed first: the
    /// memory that is found there may be used after that.
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

    /// Memory that the host reaches too.
    cuMemAllocManaged(address: Out<u64>, bytes: usize, flags: u32) working |context| {
        if ATTACH.contains(&flags) { allocate(context, address, bytes, Kind::Managed) } else { Err(Code::INVALID_VALUE) }
    };

    /// Memory of the host that the device reaches too.
    cuMemAllocHost_v2(place: Out<Host>, bytes: usize) working |context| host(context, place, bytes);

    /// Memory of the host that the device reaches too.
    cuMemHostAlloc(place: Out<Host>, bytes: usize, flags: u32) working |context| {
        if flags & !7 == 0 { host(context, place, bytes) } else { Err(Code::INVALID_VALUE) }
    };

    /// Ends device memory, and memory that the host reaches too. All work is done before.
    cuMemFree_v2(address: u64) working |context| free(context, address, &DEVICE);

    /// Ends memory in a stream's order.
    cuMemFreeAsync(address: u64, stream: u64) working |context| {
        if address == 0 {
            return Ok(());
        }
        stream::key(context, stream)?;
        context.driver.claim(address, &DEVICE)?;
        stream::put(context, stream, Work::Free(address)).map(|_| ())
    };

    /// Ends memory of the host.
    cuMemFreeHost(place: Host) working |context| {
        if place.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        free(context, place.0 as u64, &[Kind::Host])
    };

    /// Free and total bytes of the device.
    cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) working |context| {
        let (left, all) = context.device().memory.info();
        free.offer(left as usize);
        total.offer(all as usize);
        Ok(())
    };

    /// A hint, which changes nothing here.
    cuMemAdvise(address: u64, bytes: usize, _advice: i32, _device: i32) working |context| {
        context.driver.check_range("cuMemAdvise", address, bytes as u64)
    };

    /// A hint, which changes nothing here.
    cuMemPrefetchAsync(address: u64, bytes: usize, _device: i32, stream: u64) working |context| {
        stream::key(context, stream)?;
        context.driver.check_range("cuMemPrefetchAsync", address, bytes as u64)
    };
}
