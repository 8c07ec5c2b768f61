//! Device memory from a pool.
//!
//! Invariant: a block returns to the pool when its last owner drops it. Work queued on the block runs before
//! any work of the next owner, since the device has one stream.

use std::fmt;
use std::sync::{Arc, PoisonError};

use super::Shared;
use super::driver::{CUdeviceptr, DriverError, check, cuMemAlloc_v2, cuMemFree_v2, cuStreamSynchronize};
use super::pool::size_class;
use crate::error::{Error, Result};

/// A block of device memory.
pub(crate) struct CudaMemory {
    device: Arc<Shared>,
    address: CUdeviceptr,
    /// Size of the block, in bytes.
    class: usize,
    owner: BlockOwner,
}

/// Destination of a block when its last owner drops it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockOwner {
    /// The pool.
    Pool,
    /// The driver, which frees the block.
    #[cfg(feature = "cust")]
    Driver,
    /// An application, which frees the block itself.
    #[cfg(feature = "cust")]
    Application,
}

impl CudaMemory {
    /// Returns the address of a byte.
    pub(crate) fn address(&self, offset: usize) -> CUdeviceptr {
        debug_assert!(offset <= self.class);
        self.address + offset as u64
    }

    /// Takes over an allocation of an application.
    #[cfg(feature = "cust")]
    pub(super) fn adopted(device: &Arc<Shared>, address: CUdeviceptr, bytes: usize) -> CudaMemory {
        CudaMemory { device: Arc::clone(device), address, class: bytes, owner: BlockOwner::Driver }
    }

    /// Hands the block to the application, which frees it.
    #[cfg(feature = "cust")]
    pub(crate) fn into_address(mut self) -> CUdeviceptr {
        self.owner = BlockOwner::Application;
        self.address
    }

    /// Moves the start of the block `bytes` bytes back, to addresses without memory.
    ///
    /// Accesses there fault, so tests can use tensors at addresses beyond any memory. The caller moves the
    /// start back before the block is dropped.
    #[cfg(test)]
    pub(crate) fn extend_back(&mut self, bytes: isize) {
        self.address = self.address.wrapping_add_signed(-bytes as i64);
        self.class = self.class.wrapping_add_signed(bytes);
    }

    /// Returns the address of the first of `bytes` bytes.
    pub(super) fn range(&self, offset: usize, bytes: usize) -> CUdeviceptr {
        debug_assert!(bytes <= self.class - offset);
        self.address(offset)
    }
}

/// Allocates at least `bytes` bytes.
pub(super) fn allocate(device: &Arc<Shared>, bytes: usize) -> Result<CudaMemory> {
    let out_of_memory =
        || Error::OutOfMemory { bytes: Some(bytes), device: device.name.clone(), tensor_bytes_max: None };
    let _current = device.enter()?;
    let class = size_class(bytes).ok_or_else(out_of_memory)?;
    let kept = device.pool.lock().unwrap_or_else(PoisonError::into_inner).take(class);
    match kept.map_or_else(|| with_room(device, || fresh(class)), Ok) {
        Ok(address) => Ok(CudaMemory { device: Arc::clone(device), address, class, owner: BlockOwner::Pool }),
        Err(DriverError::OUT_OF_MEMORY) => Err(out_of_memory()),
        Err(failure) => device.told("cuMemAlloc", Err(failure)),
    }
}

fn fresh(bytes: usize) -> Result<CUdeviceptr, DriverError> {
    let mut address = 0;
    // SAFETY: the pointer refers to a local variable. The device's context is current.
    check(unsafe { cuMemAlloc_v2(&raw mut address, bytes) }).map(|()| address)
}

/// Calls a function of the driver that needs memory. If memory runs out, trims the pool and calls the
/// function once more.
pub(super) fn with_room<T, E: From<DriverError> + PartialEq<DriverError>>(
    device: &Shared,
    ask: impl Fn() -> Result<T, E>,
) -> Result<T, E> {
    match ask() {
        Err(error) if error == DriverError::OUT_OF_MEMORY => {
            trim(device)?;
            ask()
        }
        other => other,
    }
}

/// Frees all memory that the pool keeps.
fn trim(device: &Shared) -> Result<(), DriverError> {
    let mut pool = device.pool.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the blocks have no owner. After the wait no queued work uses them, and new work cannot get them
    // while the pool is locked.
    unsafe {
        check(cuStreamSynchronize(device.stream()))?;
        pool.drain().try_for_each(|block| check(cuMemFree_v2(block)))
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        match self.owner {
            BlockOwner::Pool => {
                self.device
                    .pool
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .give(self.class, self.address);
            }
            #[cfg(feature = "cust")]
            BlockOwner::Driver => {
                let Ok(_current) = self.device.enter() else { return };
                // SAFETY: the block has no other owner, and the driver waits for work that uses it. No caller is left
                // to receive a failure.
                unsafe { cuMemFree_v2(self.address) };
            }
            #[cfg(feature = "cust")]
            BlockOwner::Application => {}
        }
    }
}

impl fmt::Debug for CudaMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaMemory").field("address", &self.address).field("bytes", &self.class).finish()
    }
}
