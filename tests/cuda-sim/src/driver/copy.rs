//! Copies and fills, as driver functions and as queued work.
//!
//! Invariant: a copy is checked twice. The call is checked with the driver's code for a wrong argument. The
//! work is checked again when it runs, because its memory may have been freed since.

use super::code::Code;
use super::context::Context;
use super::entry::{Answer, Host, exports};
use super::queue::Command;
use super::report;
use super::state::Driver;
use super::stream::{put, put_and_wait};

/// Writes bytes of the host to device memory.
pub(super) fn write(driver: &Driver, to: u64, bytes: &[u8]) -> Answer {
    if bytes.is_empty() {
        return Ok(());
    }
    let (block, offset) = driver.find(to, bytes.len() as u64).map_err(|_| Code::INVALID_VALUE)?;
    // SAFETY: the block has as many bytes there. The queues are locked, so no work that touches the bytes is
    // running.
    unsafe { block.at(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(())
}

/// Copies pinned host memory to device memory.
pub(super) fn read_host(driver: &Driver, from: Host, to: u64, bytes: u64) -> Answer {
    let (source, from) = driver.find(from.0 as u64, bytes).map_err(|_| Code::INVALID_VALUE)?;
    let (target, to) = driver.find(to, bytes).map_err(|_| Code::INVALID_VALUE)?;
    // SAFETY: both blocks have as many bytes there. The two may be one block.
    unsafe { target.at(to).copy_from(source.at(from), bytes as usize) };
    Ok(())
}

/// Copies device memory to host memory.
pub(super) fn write_host(driver: &Driver, from: u64, to: Host, bytes: u64) -> Answer {
    let (source, from) = driver.find(from, bytes).map_err(|_| Code::INVALID_VALUE)?;
    // SAFETY: the block has as many bytes there. The call's contract is that the host's memory has as many,
    // until the copy is done.
    unsafe { to.0.copy_from(source.at(from), bytes as usize) };
    Ok(())
}

/// Copies within device memory. Source and destination may overlap.
pub(super) fn within(driver: &Driver, from: u64, to: u64, bytes: u64) -> Answer {
    read_host(driver, Host(from as *mut u8), to, bytes)
}

/// Writes the `width` low bytes of a pattern `count` times.
pub(super) fn fill(driver: &Driver, to: u64, pattern: u32, width: u8, count: u64) -> Answer {
    let width = usize::from(width);
    let (block, offset) = driver.find(to, count * width as u64).map_err(|_| Code::INVALID_VALUE)?;
    let pattern = &pattern.to_le_bytes()[..width];
    // SAFETY: the block has as many bytes there, and no work that touches the bytes is running.
    let bytes = unsafe { std::slice::from_raw_parts_mut(block.at(offset), count as usize * width) };
    for element in bytes.chunks_exact_mut(width) {
        element.copy_from_slice(pattern);
    }
    Ok(())
}

/// Returns true if the host memory is pinned, so that copies to and from it are asynchronous.
fn is_pinned(driver: &Driver, host: Host, bytes: u64) -> bool {
    driver.find(host.0 as u64, bytes).is_ok()
}

/// Checks the host pointer of a copy.
fn check_host(host: Host, bytes: usize) -> Answer {
    if host.0.is_null() && bytes > 0 { Err(Code::INVALID_VALUE) } else { Ok(()) }
}

/// Returns the work of a copy to the device. Pageable host memory is read at once, because the caller may
/// reuse it.
fn to_device(context: &Context, call: &str, to: u64, from: Host, bytes: usize) -> Answer<Option<Command>> {
    check_host(from, bytes)?;
    context.driver.check_range(call, to, bytes as u64)?;
    if bytes == 0 {
        return Ok(None);
    }
    if is_pinned(context.driver, from, bytes as u64) {
        return Ok(Some(Command::In { from, to, bytes: bytes as u64 }));
    }
    // SAFETY: the call's contract is that the host's memory has as many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(from.0, bytes) };
    Ok(Some(Command::Write { to, bytes: bytes.into() }))
}

fn from_device(context: &Context, call: &str, to: Host, from: u64, bytes: usize) -> Answer<Option<Command>> {
    check_host(to, bytes)?;
    context.driver.check_range(call, from, bytes as u64)?;
    Ok((bytes > 0).then_some(Command::Out { from, to, bytes: bytes as u64 }))
}

fn on_device(context: &Context, call: &str, to: u64, from: u64, bytes: usize) -> Answer<Option<Command>> {
    context.driver.check_range(call, from, bytes as u64)?;
    context.driver.check_range(call, to, bytes as u64)?;
    Ok((bytes > 0).then_some(Command::Copy { from, to, bytes: bytes as u64 }))
}

/// Returns the work of a copy whose direction follows from the addresses. An address outside device memory is
/// the host's.
fn by_address(context: &Context, call: &str, to: u64, from: u64, bytes: usize) -> Answer<Option<Command>> {
    let is_device = |address| context.driver.find(address, 1).is_ok();
    match (is_device(to), is_device(from)) {
        (true, true) => on_device(context, call, to, from, bytes),
        (true, false) => to_device(context, call, to, Host(from as *mut u8), bytes),
        (false, true) => from_device(context, call, Host(to as *mut u8), from, bytes),
        (false, false) => {
            report::say(&format!("{call}: neither {to:#x} nor {from:#x} is memory of a device"));
            Err(Code::INVALID_VALUE)
        }
    }
}

fn fill_work(
    context: &Context,
    call: &str,
    to: u64,
    (pattern, width): (u32, u8),
    count: usize,
) -> Answer<Option<Command>> {
    let count = count as u64;
    let bytes = count.checked_mul(u64::from(width)).ok_or(Code::INVALID_VALUE)?;
    if !to.is_multiple_of(u64::from(width)) {
        return Err(Code::INVALID_VALUE);
    }
    context.driver.check_range(call, to, bytes)?;
    Ok((count > 0).then_some(Command::Fill { to, pattern, width, count }))
}

/// Runs work in the null stream, and waits for it.
fn now(context: &Context, command: Option<Command>) -> Answer {
    command.map_or(Ok(()), |command| put_and_wait(context, 0, command))
}

/// Puts work into a stream.
fn soon(context: &Context, stream: u64, command: Option<Command>) -> Answer {
    super::stream::key(context, stream)?;
    match command {
        None => Ok(()),
        // The driver returns from a copy to pageable memory when the copy is done.
        Some(Command::Out { from, to, bytes }) if !is_pinned(context.driver, to, bytes) => {
            put_and_wait(context, stream, Command::Out { from, to, bytes })
        }
        Some(command) => put(context, stream, command).map(|_| ()),
    }
}

/// `CUDA_MEMCPY2D`: a copy of rows of bytes at a constant pitch.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Copy2D {
    /// Source.
    pub from: Rows,
    /// Destination.
    pub to: Rows,
    /// Bytes of a row.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
}

/// One side of a [`Copy2D`].
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Rows {
    /// Bytes before the first of each row.
    pub x: usize,
    /// Rows before the first.
    pub y: usize,
    /// `CUmemorytype`: 1 for the host, 2 for the device, 4 for either.
    pub kind: u32,
    /// Address of host memory.
    pub host: u64,
    /// Address of device memory, or of either for kind 4.
    pub device: u64,
    /// CUDA array, which is not simulated.
    pub array: u64,
    /// Bytes from one row to the next.
    pub pitch: usize,
}

impl Rows {
    fn row(&self, row: usize, width: usize) -> Answer<u64> {
        let base = match self.kind {
            1 => self.host,
            2 | 4 => self.device,
            3 => return Err(Code::NOT_SUPPORTED),
            _ => return Err(Code::INVALID_VALUE),
        };
        if self.pitch < self.x.checked_add(width).ok_or(Code::INVALID_VALUE)? {
            return Err(Code::INVALID_VALUE);
        }
        let ahead = (self.y + row).checked_mul(self.pitch).and_then(|ahead| ahead.checked_add(self.x));
        ahead.and_then(|ahead| base.checked_add(ahead as u64)).ok_or(Code::INVALID_VALUE)
    }
}

exports! {
    /// Copies rows of bytes between any two memories.
    cuMemcpy2D_v2(copy: *const Copy2D) working |context| {
        // SAFETY: the call's contract is that the pointer is null or points to a valid struct.
        let copy = unsafe { copy.as_ref() }.copied().ok_or(Code::INVALID_VALUE)?;
        (0..copy.height).try_for_each(|row| {
            let (to, from) = (copy.to.row(row, copy.width)?, copy.from.row(row, copy.width)?);
            now(context, by_address(context, "cuMemcpy2D", to, from, copy.width)?)
        })
    };

    /// Copies from host to device.
    cuMemcpyHtoD_v2(to: u64, from: Host, bytes: usize) working |context| {
        now(context, to_device(context, "cuMemcpyHtoD", to, from, bytes)?)
    };

    /// Copies from host to device in stream order.
    cuMemcpyHtoDAsync_v2(to: u64, from: Host, bytes: usize, stream: u64) working |context| {
        soon(context, stream, to_device(context, "cuMemcpyHtoDAsync", to, from, bytes)?)
    };

    /// Copies from device to host.
    cuMemcpyDtoH_v2(to: Host, from: u64, bytes: usize) working |context| {
        now(context, from_device(context, "cuMemcpyDtoH", to, from, bytes)?)
    };

    /// Copies from device to host in stream order.
    cuMemcpyDtoHAsync_v2(to: Host, from: u64, bytes: usize, stream: u64) working |context| {
        soon(context, stream, from_device(context, "cuMemcpyDtoHAsync", to, from, bytes)?)
    };

    /// Copies from device to device.
    cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) working |context| {
        now(context, on_device(context, "cuMemcpyDtoD", to, from, bytes)?)
    };

    /// Copies from device to device in stream order.
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) working |context| {
        soon(context, stream, on_device(context, "cuMemcpyDtoDAsync", to, from, bytes)?)
    };

    /// Copies between any two addresses.
    cuMemcpy(to: u64, from: u64, bytes: usize) working |context| {
        now(context, by_address(context, "cuMemcpy", to, from, bytes)?)
    };

    /// Copies between any two addresses in stream order.
    cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: u64) working |context| {
        soon(context, stream, by_address(context, "cuMemcpyAsync", to, from, bytes)?)
    };

    /// Fills memory with a byte.
    cuMemsetD8_v2(to: u64, pattern: u8, count: usize) working |context| {
        now(context, fill_work(context, "cuMemsetD8", to, (pattern.into(), 1), count)?)
    };

    /// Fills memory with a byte in stream order.
    cuMemsetD8Async(to: u64, pattern: u8, count: usize, stream: u64) working |context| {
        soon(context, stream, fill_work(context, "cuMemsetD8Async", to, (pattern.into(), 1), count)?)
    };

    /// Fills memory with a value of two bytes.
    cuMemsetD16_v2(to: u64, pattern: u16, count: usize) working |context| {
        now(context, fill_work(context, "cuMemsetD16", to, (pattern.into(), 2), count)?)
    };

    /// Fills memory with a value of two bytes in stream order.
    cuMemsetD16Async(to: u64, pattern: u16, count: usize, stream: u64) working |context| {
        soon(context, stream, fill_work(context, "cuMemsetD16Async", to, (pattern.into(), 2), count)?)
    };

    /// Fills memory with a value of four bytes.
    cuMemsetD32_v2(to: u64, pattern: u32, count: usize) working |context| {
        now(context, fill_work(context, "cuMemsetD32", to, (pattern, 4), count)?)
    };

    /// Fills memory with a value of four bytes in stream order.
    cuMemsetD32Async(to: u64, pattern: u32, count: usize, stream: u64) working |context| {
        soon(context, stream, fill_work(context, "cuMemsetD32Async", to, (pattern, 4), count)?)
    };
}
