//! Occupancy: the number of blocks that are resident at once, by threads, registers and shared memory.

use super::code::Code;
use super::context::Context;
use super::entry::{Answer, Out, exports};
use super::facts::Facts;
use super::module::Function;

/// Function of the host that returns the dynamic shared memory of a block of a number of threads.
type SharedOf = extern "C" fn(i32) -> usize;

fn blocks(context: &Context, function: &Function, threads: u32, dynamic_shared: usize) -> u32 {
    let shared =
        u32::try_from(dynamic_shared).unwrap_or(u32::MAX).saturating_add(function.kernel().static_shared);
    if threads > function.block_threads() || shared > context.driver.config.facts.shared_opt_in {
        return 0;
    }
    context.driver.config.facts.resident_blocks(threads, function.registers(), shared)
}

/// Returns the number of blocks that fill the device, and the block size of most resident threads.
///
/// The larger of two equal block sizes is the result.
fn best(context: &Context, function: &Function, shared: impl Fn(u32) -> usize, limit: i32) -> (u32, u32) {
    let limit = u32::try_from(limit)
        .ok()
        .filter(|&limit| limit > 0)
        .unwrap_or(u32::MAX)
        .min(function.block_threads());
    let sizes = (1..=limit / Facts::WARP).map(|warps| warps * Facts::WARP);
    let resident = |&threads: &u32| blocks(context, function, threads, shared(threads)) * threads;
    let threads = sizes.max_by_key(resident).unwrap_or(limit);
    (Facts::MULTIPROCESSORS * blocks(context, function, threads, shared(threads)), threads)
}

fn positive(number: i32) -> Answer<u32> {
    u32::try_from(number).ok().filter(|&number| number > 0).ok_or(Code::INVALID_VALUE)
}

exports! {
    /// Returns the number of blocks of a function that are resident on a multiprocessor at once.
    cuOccupancyMaxActiveBlocksPerMultiprocessor(
        count: Out<i32>,
        function: u64,
        threads: i32,
        dynamic_shared: usize,
    ) working |context| {
        let function = context.driver.function(function)?;
        count.set(blocks(context, &function, positive(threads)?, dynamic_shared) as i32)
    };

    /// Returns the block size of most resident threads, and the grid that fills the device with it.
    cuOccupancyMaxPotentialBlockSize(
        grid: Out<i32>,
        block: Out<i32>,
        function: u64,
        shared_of: Option<SharedOf>,
        dynamic_shared: usize,
        limit: i32,
    ) working |context| {
        let function = context.driver.function(function)?;
        let shared = |threads| shared_of.map_or(dynamic_shared, |shared_of| shared_of(threads as i32));
        let (blocks, threads) = best(context, &function, shared, limit);
        grid.set(blocks as i32)?;
        block.set(threads as i32)
    };

    /// Returns the dynamic shared memory that each block may have when this many blocks are resident.
    cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: Out<usize>,
        function: u64,
        count: i32,
        threads: i32,
    ) working |context| {
        let function = context.driver.function(function)?;
        let (count, facts) = (positive(count)?, context.driver.config.facts);
        if blocks(context, &function, positive(threads)?, 0) < count {
            return Err(Code::INVALID_VALUE);
        }
        let each = (facts.shared / count / 128 * 128).saturating_sub(facts.shared_kept()).min(facts.shared_opt_in);
        bytes.set(each.saturating_sub(function.kernel().static_shared) as usize)
    };
}
