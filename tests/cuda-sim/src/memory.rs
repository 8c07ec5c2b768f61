//! The memory of the device: a table of allocations, in which no address stands for two of them, ever.
//!
//! Invariant: an address belongs to at most one allocation, living or freed; there is a gap after each, so that
//! running over an end is seen. Fresh memory holds [`POISON`].

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// What fresh memory holds: as floats, NaN.
pub const POISON: u8 = 0xff;
/// Allocations start at multiples of this, as the driver promises.
pub const ALIGN: u64 = 256;
/// Where addresses begin: no address of the host comes as high, so what is the device's is no one else's.
const BASE: u64 = 0x8000_0000_0000;

/// One allocation. The bytes live as long as anything looks at them.
#[derive(Debug)]
pub struct Block {
    /// Device address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
    bytes: *mut u8,
    /// Whether its address is the host's too.
    is_shared: bool,
}

// SAFETY: the bytes are reached through atomics, or by the owner of a stream's order.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// At an address of the device, or without one at the host's.
    fn new(address: Option<u64>, len: u64) -> Option<Block> {
        // SAFETY: the layout is not empty.
        let bytes = unsafe { alloc(layout(len)?) };
        if bytes.is_null() {
            return None;
        }
        // SAFETY: all of it was just allocated.
        unsafe { bytes.write_bytes(POISON, len as usize) };
        let is_shared = address.is_none();
        let address = address.unwrap_or(bytes.expose_provenance() as u64);
        Some(Block { address, len, bytes, is_shared })
    }

    /// The bytes from `offset` on, aligned as the offset is.
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
            // SAFETY: allocated with this layout.
            unsafe { dealloc(self.bytes, layout) };
        }
    }
}

/// Why an access is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// No allocation has the address.
    #[error("no allocation holds these {bytes} bytes at {address:#x}")]
    Unallocated {
        /// First byte asked for.
        address: u64,
        /// How many.
        bytes: u64,
    },
    /// An allocation begins to hold it and ends before.
    #[error("the {bytes} bytes at {address:#x} go {over} beyond an allocation of {len}")]
    Beyond {
        /// First byte asked for.
        address: u64,
        /// How many.
        bytes: u64,
        /// Length of the allocation.
        len: u64,
        /// Bytes beyond its end.
        over: u64,
    },
    /// The allocation was freed.
    #[error("the allocation at {address:#x} was freed")]
    Freed {
        /// First byte asked for.
        address: u64,
    },
}

/// All allocations of a device, and how many bytes they may have together.
#[derive(Debug)]
pub struct Memory {
    capacity: u64,
    table: RwLock<Table>,
}

#[derive(Debug)]
struct Table {
    living: BTreeMap<u64, Arc<Block>>,
    /// Lengths of the freed, by address.
    freed: BTreeMap<u64, u64>,
    used: u64,
    next: u64,
}

impl Memory {
    /// Memory of `capacity` bytes.
    #[must_use]
    pub fn new(capacity: u64) -> Memory {
        Memory::from(capacity, 0)
    }

    /// The same, with addresses from an offset on, a multiple of [`ALIGN`], so that several can be told apart.
    #[must_use]
    pub fn from(capacity: u64, offset: u64) -> Memory {
        let table = Table { living: BTreeMap::new(), freed: BTreeMap::new(), used: 0, next: BASE + offset };
        Memory { capacity, table: RwLock::new(table) }
    }

    /// A fresh allocation, by its address; none if the capacity is used up.
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

    /// A fresh allocation that host and device reach by one address. It does not count against the capacity.
    #[must_use]
    pub fn allocate_shared(&self, len: u64) -> Option<u64> {
        let block = Block::new(None, len)?;
        let address = block.address;
        self.table.write().unwrap_or_else(PoisonError::into_inner).living.insert(address, Arc::new(block));
        Some(address)
    }

    /// Ends an allocation, which `address` is the start of.
    ///
    /// # Errors
    /// Where it was freed already or never was.
    pub fn free(&self, address: u64) -> Result<(), Invalid> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let Some(block) = table.living.remove(&address) else {
            return Err(table.why(address, 0));
        };
        // The host may use the addresses of shared memory for something else.
        if !block.is_shared {
            table.used -= block.len;
            table.freed.insert(address, block.len);
        }
        Ok(())
    }

    /// Free and total bytes.
    #[must_use]
    pub fn info(&self) -> (u64, u64) {
        let used = self.table.read().unwrap_or_else(PoisonError::into_inner).used;
        (self.capacity - used, self.capacity)
    }

    /// What lives now, for many accesses without a lock.
    #[must_use]
    pub fn view(&self) -> View {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        View { blocks: table.living.values().cloned().collect() }
    }

    /// The block that holds `bytes` bytes at `address`, and the offset there.
    ///
    /// # Errors
    /// Where no living allocation holds all of them.
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
    /// Why no living allocation holds the bytes.
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

/// The living allocations of a moment.
#[derive(Clone, Debug)]
pub struct View {
    blocks: Vec<Arc<Block>>,
}

impl View {
    /// The number of the block that holds `bytes` bytes at `address`.
    #[must_use]
    pub fn find(&self, address: u64, bytes: u64) -> Option<usize> {
        let number = self.blocks.partition_point(|block| block.address <= address).checked_sub(1)?;
        holds(&self.blocks[number], address, bytes).then_some(number)
    }

    /// All blocks, by rising address.
    #[must_use]
    pub fn blocks(&self) -> &[Arc<Block>] {
        &self.blocks
    }
}
