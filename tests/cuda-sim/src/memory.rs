//! Memory of a device: a table of allocations whose addresses are never reused.
//!
//! Invariant: an address belongs to at most one allocation, living or freed. A gap follows each allocation,
//! so that an access beyond its end is detected. Fresh memory is filled with [`POISON`].

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Value of the bytes of fresh memory: NaN, if read as floats.
pub const POISON: u8 = 0xff;
/// Alignment of allocations, as the driver guarantees.
pub const ALIGN: u64 = 256;
/// First device address. Host addresses are lower, so that no address is both the host's and the device's.
const BASE: u64 = 0x8000_0000_0000;

/// One allocation. The bytes live as long as anything refers to the block.
#[derive(Debug)]
pub struct Block {
    /// Device address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
    bytes: *mut u8,
    /// True if the device address is also the host's.
    is_shared: bool,
}

// SAFETY: the bytes are accessed through atomics, or in the order of a stream.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// Allocates a block at a device address, or without one at the host's address.
    fn new(address: Option<u64>, len: u64) -> Option<Block> {
        // SAFETY: the layout is not empty.
        let bytes = unsafe { alloc(layout(len)?) };
        if bytes.is_null() {
            return None;
        }
        // SAFETY: all of the bytes were just allocated.
        unsafe { bytes.write_bytes(POISON, len as usize) };
        let is_shared = address.is_none();
        let address = address.unwrap_or(bytes.expose_provenance() as u64);
        Some(Block { address, len, bytes, is_shared })
    }

    /// Returns a pointer to the bytes from `offset` on, with the alignment of the offset.
    #[must_use]
    pub fn at(&self, offset: u64) -> *mut u8 {
        debug_assert!(offset < self.len);
        self.bytes.wrapping_add(offset as usize)
    }
}

fn layout(len: u64) -> Option<Layout> {
    Layout::from_size_align(usize::try_from(len.max(1)).ok()?, ALIGN as usize).ok()
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(layout) = layout(self.len) {
            // SAFETY: the bytes were allocated with this layout.
            unsafe { dealloc(self.bytes, layout) };
        }
    }
}

/// Reason why an access is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// No allocation contains the address.
    #[error("no allocation holds these {bytes} bytes at {address:#x}")]
    Unallocated {
        /// First byte of the access.
        address: u64,
        /// Number of bytes of the access.
        bytes: u64,
    },
    /// An allocation contains the first byte and ends before the last.
    #[error("the {bytes} bytes at {address:#x} go {over} beyond an allocation of {len}")]
    Beyond {
        /// First byte of the access.
        address: u64,
        /// Number of bytes of the access.
        bytes: u64,
        /// Length of the allocation.
        len: u64,
        /// Number of bytes beyond its end.
        over: u64,
    },
    /// The allocation was freed.
    #[error("the allocation at {address:#x} was freed")]
    Freed {
        /// First byte of the access.
        address: u64,
    },
}

/// All allocations of a device, with their maximum total size.
#[derive(Debug)]
pub struct Memory {
    capacity: u64,
    table: RwLock<Table>,
}

#[derive(Debug)]
struct Table {
    living: BTreeMap<u64, Arc<Block>>,
    /// Lengths of freed allocations, by address.
    freed: BTreeMap<u64, u64>,
    used: u64,
    next: u64,
}

impl Memory {
    /// Returns a memory of `capacity` bytes.
    #[must_use]
    pub fn new(capacity: u64) -> Memory {
        Memory::from(capacity, 0)
    }

    /// Returns a memory whose addresses start at an offset, a multiple of [`ALIGN`], so that several memories
    /// are disjoint.
    #[must_use]
    pub fn from(capacity: u64, offset: u64) -> Memory {
        let table = Table { living: BTreeMap::new(), freed: BTreeMap::new(), used: 0, next: BASE + offset };
        Memory { capacity, table: RwLock::new(table) }
    }

    /// Allocates memory, and returns its address. None if the capacity is exhausted.
    #[must_use]
    pub fn allocate(&self, len: u64) -> Option<u64> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let used = table.used.checked_add(len).filter(|&used| used <= self.capacity)?;
        let address = table.next;
        let block = Block::new(Some(address), len)?;
        table.used = used;
        table.next += len.next_multiple_of(ALIGN) + ALIGN;
        table.living.insert(address, Arc::new(block));
        Some(address)
    }

    /// Allocates memory that host and device reach by one address. The memory does not count against the
    /// capacity.
    #[must_use]
    pub fn allocate_shared(&self, len: u64) -> Option<u64> {
        let block = Block::new(None, len)?;
        let address = block.address;
        self.table.write().unwrap_or_else(PoisonError::into_inner).living.insert(address, Arc::new(block));
        Some(address)
    }

    /// Frees the allocation that starts at `address`.
    ///
    /// # Errors
    /// Returns an error if the allocation was freed already or never existed.
    pub fn free(&self, address: u64) -> Result<(), Invalid> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let Some(block) = table.living.remove(&address) else {
            return Err(table.why(address, 0));
        };
        // The host may reuse the addresses of shared memory.
        if !block.is_shared {
            table.used -= block.len;
            table.freed.insert(address, block.len);
        }
        Ok(())
    }

    /// Returns the free and the total bytes.
    #[must_use]
    pub fn info(&self) -> (u64, u64) {
        let used = self.table.read().unwrap_or_else(PoisonError::into_inner).used;
        (self.capacity - used, self.capacity)
    }

    /// Returns a snapshot of the living allocations, for many accesses without a lock.
    #[must_use]
    pub fn view(&self) -> View {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        View { blocks: table.living.values().cloned().collect() }
    }

    /// Returns the block that contains `bytes` bytes at `address`, and their offset there.
    ///
    /// # Errors
    /// Returns an error if no living allocation contains all of the bytes.
    pub fn find(&self, address: u64, bytes: u64) -> Result<(Arc<Block>, u64), Invalid> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let block = table.living.range(..=address).next_back().map(|(_, block)| block);
        let holding = block.filter(|block| holds(block, address, bytes));
        holding
            .map(|block| (Arc::clone(block), address - block.address))
            .ok_or_else(|| table.why(address, bytes))
    }
}

impl Table {
    /// Returns the reason why no living allocation contains the bytes.
    fn why(&self, address: u64, bytes: u64) -> Invalid {
        if let Some((start, block)) = self.living.range(..=address).next_back()
            && address < start + block.len.max(1)
        {
            let end = address.saturating_add(bytes);
            return Invalid::Beyond {
                address,
                bytes,
                len: block.len,
                over: end.saturating_sub(start + block.len),
            };
        }
        match self.freed.range(..=address).next_back() {
            Some((start, len)) if address < start + (*len).max(1) => Invalid::Freed { address },
            Some(_) | None => Invalid::Unallocated { address, bytes },
        }
    }
}

fn holds(block: &Block, address: u64, bytes: u64) -> bool {
    (address - block.address).checked_add(bytes).is_some_and(|end| end <= block.len)
}

/// Snapshot of the living allocations.
#[derive(Clone, Debug)]
pub struct View {
    blocks: Vec<Arc<Block>>,
}

impl View {
    /// Returns the number of the block that contains `bytes` bytes at `address`.
    #[must_use]
    pub fn find(&self, address: u64, bytes: u64) -> Option<usize> {
        let number = self.blocks.partition_point(|block| block.address <= address).checked_sub(1)?;
        holds(&self.blocks[number], address, bytes).then_some(number)
    }

    /// Returns all blocks, sorted by address.
    #[must_use]
    pub fn blocks(&self) -> &[Arc<Block>] {
        &self.blocks
    }
}
