//! Device memory from a pool.
//!
//! Invariant: a block goes back to the pool when its last owner lets go. Work still queued on it is before any work
//! of the next owner, since there is one stream.

use std::fmt;
use std::sync::{Arc, PoisonError};

use super::Shared;
use super::driver::{CUdeviceptr, Failure, check, cuMemAlloc_v2, cuMemFree_v2, cuStreamSynchronize};
use super::pool::size_class;
use crate::error::{Error, Result};

/// A block of device memory.
pub(crate) struct CudaMemory {
    device: Arc<Shared>,
    address: CUdeviceptr,
    /// Bytes.
    class: usize,
}

impl CudaMemory {
    /// The address of a byte.
    pub(super) fn address(&self, offset: usize) -> CUdeviceptr {
        debug_assert!(offset <= self.class);
        self.address + offset as u64
    }

    /// Has it begin so many bytes before, where nothing is, so that who reads or writes there faults: the addresses of tensors can be
    /// tested that no memory holds. Before it is dropped it is to begin where it did.
    #[cfg(test)]
    pub(crate) fn extend_back(&mut self, bytes: isize) {
        self.address = self.address.wrapping_add_signed(-bytes as i64);
        self.class = self.class.wrapping_add_signed(bytes);
    }

    /// The address of the first of some bytes.
    pub(super) fn range(&self, offset: usize, bytes: usize) -> CUdeviceptr {
        debug_assert!(bytes <= self.class - offset);
        self.address(offset)
    }
}

/// Memory for so many bytes.
pub(super) fn allocate(device: &Arc<Shared>, bytes: usize) -> Result<CudaMemory> {
    let out_of_memory =
        || Error::OutOfMemory { bytes: Some(bytes), device: device.name.clone(), tensor_bytes_max: None };
    let _current = device.enter()?;
    let class = size_class(bytes).ok_or_else(out_of_memory)?;
    let kept = device.pool.lock().unwrap_or_else(PoisonError::into_inner).take(class);
    match kept.map_or_else(|| with_room(device, || fresh(class)), Ok) {
        Ok(address) => Ok(CudaMemory { device: Arc::clone(device), address, class }),
        Err(Failure::OUT_OF_MEMORY) => Err(out_of_memory()),
        Err(failure) => device.told("cuMemAlloc", Err(failure)),
    }
}

fn fresh(bytes: usize) -> Result<CUdeviceptr, Failure> {
    let mut address = 0;
    // SAFETY: the place is ours; the device's context is current.
    check(unsafe { cuMemAlloc_v2(&raw mut address, bytes) }).map(|()| address)
}

/// Asks the driver for something that takes memory, its own included; when the device has none left, once more, after what the pool
/// keeps was given back.
pub(super) fn with_room<T, E: From<Failure> + PartialEq<Failure>>(
    device: &Shared,
    ask: impl Fn() -> Result<T, E>,
) -> Result<T, E> {
    match ask() {
        Err(error) if error == Failure::OUT_OF_MEMORY => {
            trim(device)?;
            ask()
        }
        other => other,
    }
}

/// Gives what the pool keeps back to the driver.
fn trim(device: &Shared) -> Result<(), Failure> {
    let mut pool = device.pool.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the blocks are no one's, and after the wait nothing queued uses them either: new work cannot get them
    // while the pool is locked.
    unsafe {
        check(cuStreamSynchronize(device.stream()))?;
        pool.drain().try_for_each(|block| check(cuMemFree_v2(block)))
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        self.device.pool.lock().unwrap_or_else(PoisonError::into_inner).give(self.class, self.address);
    }
}

impl fmt::Debug for CudaMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaMemory").field("address", &self.address).field("bytes", &self.class).finish()
    }
}
