//! Launches: what the driver refuses at once, and running what it does not.

use std::ffi::c_void;
use std::sync::Arc;

use super::code::Code;
use super::context::Context;
use super::entry::{Answer, exports};
use super::facts::Facts;
use super::module::Function;
use super::queue::Work;
use super::report;
use super::state::Driver;
use super::stream;
use crate::exec::{self, Fault, FaultKind, Launch};
use crate::ptx::Param;

/// A launch that was accepted.
#[derive(Debug)]
pub(super) struct Grid {
    function: Arc<Function>,
    device: usize,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    params: Vec<u8>,
}

impl Grid {
    pub(super) fn run(&self, driver: &Driver) -> Answer {
        let kernel = self.function.kernel();
        let (grid, block, dynamic_shared) = (self.grid, self.block, self.dynamic_shared);
        let globals = &self.function.module.globals;
        let launch = Launch { grid, block, cluster: None, dynamic_shared, params: &self.params, globals };
        match exec::run(kernel, &launch, &driver.devices[self.device].memory) {
            Ok(did) => {
                report::launched(
                    driver,
                    &kernel.name,
                    grid,
                    block,
                    kernel.static_shared + dynamic_shared,
                    &did,
                );
                Ok(())
            }
            Err(fault) => {
                let code = code_of(&fault);
                report::faulted(driver, &fault, code);
                Err(code)
            }
        }
    }
}

/// What a GPU makes of it, if it makes anything of it.
fn code_of(fault: &Fault) -> Code {
    match fault.kind {
        FaultKind::OutOfBounds => Code::ILLEGAL_ADDRESS,
        FaultKind::Misaligned => Code::MISALIGNED_ADDRESS,
        FaultKind::Uninitialized
        | FaultKind::Race
        | FaultKind::Constant
        | FaultKind::Barrier
        | FaultKind::Mask => Code::LAUNCH_FAILED,
        FaultKind::Trap if fault.instruction.contains("assert") => Code::ASSERT,
        FaultKind::Trap => Code::LAUNCH_FAILED,
        FaultKind::Endless => Code::LAUNCH_TIMEOUT,
    }
}

/// Why a launch is refused.
fn check(function: &Function, grid: [u32; 3], block: [u32; 3], shared: u32) -> Result<(), (Code, String)> {
    let value = |what: String| Err((Code::INVALID_VALUE, what));
    for i in 0..3 {
        if grid[i] == 0 || grid[i] > Facts::GRID[i] {
            return value(format!("a grid of {grid:?}, of at most {:?}", Facts::GRID));
        }
        if block[i] == 0 || block[i] > Facts::BLOCK[i] {
            return value(format!("a block of {block:?}, of at most {:?}", Facts::BLOCK));
        }
    }
    let threads = block.iter().map(|&threads| u64::from(threads)).product::<u64>();
    if threads > u64::from(Facts::BLOCK_THREADS) {
        return value(format!("a block of {threads} threads, of at most {}", Facts::BLOCK_THREADS));
    }
    if let Some(required) = function.kernel().limits.required_block.filter(|&required| required != block) {
        return value(format!("a block of {block:?}, where .reqntid says {required:?}"));
    }
    if shared > function.shared_max() {
        return value(format!(
            "{shared} bytes of dynamic shared memory, of at most {}",
            function.shared_max()
        ));
    }
    if threads > u64::from(function.block_threads()) {
        let (most, registers) = (function.block_threads(), function.registers());
        let what =
            format!("a block of {threads} threads, of at most {most} ({registers} registers, .maxntid)");
        return Err((Code::LAUNCH_OUT_OF_RESOURCES, what));
    }
    Ok(())
}

/// The parameters' bytes, from one pointer for each.
///
/// # Safety
/// Each pointer leads to a value of its parameter's length.
unsafe fn gather(params: &[Param], len: u32, pointers: *const *const u8) -> Answer<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    for (i, param) in params.iter().enumerate() {
        // SAFETY: there is a pointer for each parameter, as the caller promises.
        let value = unsafe { *pointers.add(i) };
        if value.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let place = &mut bytes[param.offset as usize..][..param.bytes as usize];
        // SAFETY: it leads to as many bytes, as the caller promises.
        place.copy_from_slice(unsafe { std::slice::from_raw_parts(value, place.len()) });
    }
    Ok(bytes)
}

/// `CU_LAUNCH_PARAM_END`, `_BUFFER_POINTER`, `_BUFFER_SIZE`.
const END: usize = 0;
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;

/// The length of a struct of the parameters, which may end with padding.
fn padded(params: &[Param], len: u32) -> u32 {
    // A length is a multiple of the alignment, of which C's types have 16 at most.
    let align = |param: &Param| 1 << (param.bytes | 16).trailing_zeros();
    len.next_multiple_of(params.iter().map(align).max().unwrap_or(1))
}

/// The parameters' bytes, from one buffer with all of them, and padding after them or none.
///
/// # Safety
/// `extra` is a list of names and values that ends with `CU_LAUNCH_PARAM_END`; the buffer has the size said.
unsafe fn from_buffer(params: &[Param], len: u32, extra: *const *const c_void) -> Answer<Vec<u8>> {
    let (mut buffer, mut size, mut i) = (std::ptr::null::<u8>(), None, 0);
    loop {
        // SAFETY: the list did not end before, and a value follows each name.
        let (name, value) = unsafe {
            let name = (*extra.add(i)).addr();
            if name == END {
                break;
            }
            (name, *extra.add(i + 1))
        };
        match name {
            BUFFER_POINTER => buffer = value.cast(),
            // SAFETY: the value leads to the size.
            BUFFER_SIZE if !value.is_null() => size = Some(unsafe { *value.cast::<usize>() }),
            _ => return Err(Code::INVALID_VALUE),
        }
        i += 2;
    }
    let sizes = len as usize..=padded(params, len) as usize;
    match size {
        Some(size) if sizes.contains(&size) && !buffer.is_null() => {
            // SAFETY: it has the size said, which is no less.
            Ok(unsafe { std::slice::from_raw_parts(buffer, len as usize) }.to_vec())
        }
        Some(0) | None if len == 0 => Ok(Vec::new()),
        Some(_) | None => Err(Code::INVALID_VALUE),
    }
}

/// # Safety
/// As [`gather`] and [`from_buffer`].
unsafe fn params(
    function: &Function,
    pointers: *const *const u8,
    extra: *const *const c_void,
) -> Answer<Vec<u8>> {
    let kernel = function.kernel();
    match (pointers.is_null(), extra.is_null()) {
        (false, false) => Err(Code::INVALID_VALUE),
        // SAFETY: passed on from the caller.
        (false, true) => unsafe { gather(&kernel.params, kernel.params_bytes, pointers) },
        // SAFETY: passed on from the caller.
        (true, false) => unsafe { from_buffer(&kernel.params, kernel.params_bytes, extra) },
        (true, true) if kernel.params.is_empty() => Ok(Vec::new()),
        (true, true) => Err(Code::INVALID_VALUE),
    }
}

fn launch(
    context: &Context,
    (function, grid, block, dynamic_shared): (u64, [u32; 3], [u32; 3], u32),
    stream: u64,
    params: impl FnOnce(&Function) -> Answer<Vec<u8>>,
) -> Answer {
    let function = context.driver.function(function)?;
    if function.module.context != context.handle {
        return Err(Code::INVALID_CONTEXT);
    }
    check(&function, grid, block, dynamic_shared).map_err(|(code, what)| {
        report::say(&format!("launch of `{}`: {what}", function.kernel().name));
        code
    })?;
    let params = params(&function)?;
    let grid = Grid { device: context.number, function, grid, block, dynamic_shared, params };
    stream::put(context, stream, Work::Launch(Box::new(grid))).map(|_| ())
}

exports! {
    /// Runs a kernel, in a stream's order.
    cuLaunchKernel(
        function: u64,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        dynamic_shared: u32,
        stream: u64,
        pointers: *const *const u8,
        extra: *const *const c_void,
    ) working |context| {
        let what = (function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], dynamic_shared);
        // SAFETY: passed on from the caller.
        launch(context, what, stream, |function| unsafe { params(function, pointers, extra) })
    };
}
