//! Launches: the checks that the driver makes at the call, and the execution of accepted launches.

use std::ffi::c_void;
use std::sync::Arc;

use super::code::Code;
use super::context::Context;
use super::entry::{Answer, exports};
use super::facts::Facts;
use super::module::Function;
use super::queue::Command;
use super::report;
use super::state::Driver;
use super::stream;
use crate::exec::{self, Fault, FaultKind, Launch};
use crate::ptx::Param;

/// Launch that was accepted.
#[derive(Debug)]
pub(super) struct Grid {
    function: Arc<Function>,
    device: usize,
    grid: [u32; 3],
    block: [u32; 3],
    cluster: Option<[u32; 3]>,
    dynamic_shared: u32,
    params: Vec<u8>,
}

impl Grid {
    pub(super) fn run(&self, driver: &Driver) -> Answer {
        let kernel = self.function.kernel();
        let (grid, block, cluster, dynamic_shared) =
            (self.grid, self.block, self.cluster, self.dynamic_shared);
        let globals = &self.function.module.globals;
        let launch = Launch { grid, block, cluster, dynamic_shared, params: &self.params, globals };
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

/// Returns the driver's code of a fault. A fault that a GPU may let pass has `CUDA_ERROR_LAUNCH_FAILED`.
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

/// Configuration of a launch, without the function and its parameters.
#[derive(Clone, Copy)]
struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    /// Blocks of a cluster, if the launch gives them.
    cluster: Option<[u32; 3]>,
    dynamic_shared: u32,
}

/// Checks a launch, and returns the code and the reason if it is refused.
fn check(function: &Function, config: LaunchConfig) -> Result<(), (Code, String)> {
    let LaunchConfig { grid, block, dynamic_shared: shared, .. } = config;
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

/// Checks the clusters of a launch, and returns the code and the reason if they are refused.
fn check_cluster(function: &Function, arch: u32, config: LaunchConfig) -> Result<(), (Code, String)> {
    let (grid, limits) = (config.grid, function.kernel().limits);
    let wrong = |what: String| Err((Code::INVALID_CLUSTER_SIZE, what));
    if config.cluster.is_some() && arch < Facts::CLUSTERS_FROM {
        let what = format!("clusters, which devices of {}.{} have not", arch / 10, arch % 10);
        return Err((Code::NOT_SUPPORTED, what));
    }
    let Some(cluster) = config.cluster.or(limits.required_cluster) else {
        if limits.explicit_cluster {
            return wrong("no clusters, where .explicitcluster says that there are some".into());
        }
        return Ok(());
    };
    if let Some(required) = limits.required_cluster.filter(|&required| required != cluster) {
        return wrong(format!("a cluster of {cluster:?}, where .reqnctapercluster says {required:?}"));
    }
    let blocks = cluster.iter().fold(1, |all: u32, &extent| all.saturating_mul(extent));
    let most = limits.max_cluster.map_or(Facts::CLUSTER, |most| most.min(Facts::CLUSTER));
    if blocks == 0 || blocks > most {
        return wrong(format!("a cluster of {cluster:?}, of at most {most} blocks"));
    }
    if grid.iter().zip(cluster).any(|(blocks, of)| blocks % of != 0) {
        return wrong(format!("a grid of {grid:?}, which clusters of {cluster:?} do not divide"));
    }
    Ok(())
}

/// Copies the parameters' bytes from one pointer for each.
///
/// # Safety
/// Each pointer points to a value of its parameter's length.
unsafe fn gather(params: &[Param], len: u32, pointers: *const *const u8) -> Answer<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    for (i, param) in params.iter().enumerate() {
        // SAFETY: there is a pointer for each parameter, as the caller promises.
        let value = unsafe { *pointers.add(i) };
        if value.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let place = &mut bytes[param.offset as usize..][..param.bytes as usize];
        // SAFETY: the pointer points to as many bytes, as the caller promises.
        place.copy_from_slice(unsafe { std::slice::from_raw_parts(value, place.len()) });
    }
    Ok(bytes)
}

/// `CU_LAUNCH_PARAM_END`, `CU_LAUNCH_PARAM_BUFFER_POINTER` and `CU_LAUNCH_PARAM_BUFFER_SIZE`.
const END: usize = 0;
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;

/// Returns the length of a struct of the parameters, with padding at its end.
fn padded(params: &[Param], len: u32) -> u32 {
    // A length is a multiple of the alignment. Types of C have an alignment of 16 bytes at most.
    let align = |param: &Param| 1 << (param.bytes | 16).trailing_zeros();
    len.next_multiple_of(params.iter().map(align).max().unwrap_or(1))
}

/// Copies the parameters' bytes from one buffer with all of them, with or without padding at its end.
///
/// # Safety
/// `extra` is a list of names and values that ends with `CU_LAUNCH_PARAM_END`. The buffer has the size given.
unsafe fn from_buffer(params: &[Param], len: u32, extra: *const *const c_void) -> Answer<Vec<u8>> {
    let (mut buffer, mut size, mut i) = (std::ptr::null::<u8>(), None, 0);
    loop {
        // SAFETY: the list has not ended before, and a value follows each name.
        let (name, value) = unsafe {
            let name = (*extra.add(i)).addr();
            if name == END {
                break;
            }
            (name, *extra.add(i + 1))
        };
        match name {
            BUFFER_POINTER => buffer = value.cast(),
            // SAFETY: the value points to the size.
            BUFFER_SIZE if !value.is_null() => size = Some(unsafe { *value.cast::<usize>() }),
            _ => return Err(Code::INVALID_VALUE),
        }
        i += 2;
    }
    let sizes = len as usize..=padded(params, len) as usize;
    match size {
        Some(size) if sizes.contains(&size) && !buffer.is_null() => {
            // SAFETY: the buffer has the size given, which is no less than `len`.
            Ok(unsafe { std::slice::from_raw_parts(buffer, len as usize) }.to_vec())
        }
        Some(0) | None if len == 0 => Ok(Vec::new()),
        Some(_) | None => Err(Code::INVALID_VALUE),
    }
}

/// Copies the parameters' bytes from pointers or from a buffer.
///
/// # Safety
/// The contracts of [`gather`] and [`from_buffer`].
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
    (function, config): (u64, LaunchConfig),
    stream: u64,
    params: impl FnOnce(&Function) -> Answer<Vec<u8>>,
) -> Answer {
    let function = context.driver.function(function)?;
    if function.module.context != context.handle {
        return Err(Code::INVALID_CONTEXT);
    }
    let arch = context.driver.config.facts.arch;
    let checked = check(&function, config).and_then(|()| check_cluster(&function, arch, config));
    checked.map_err(|(code, what)| {
        report::say(&format!("launch of `{}`: {what}", function.kernel().name));
        code
    })?;
    let params = params(&function)?;
    let LaunchConfig { grid, block, cluster, dynamic_shared } = config;
    let grid = Grid { device: context.number, function, grid, block, cluster, dynamic_shared, params };
    stream::put(context, stream, Command::Launch(Box::new(grid))).map(|_| ())
}

/// `CUlaunchConfig`: the configuration of a launch by [`cuLaunchKernelEx`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Config {
    /// Number of blocks along each dimension of the grid.
    pub grid: [u32; 3],
    /// Number of threads along each dimension of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub dynamic_shared: u32,
    /// Stream of the launch.
    pub stream: u64,
    /// Array of further attributes.
    pub attributes: *const Attribute,
    /// Number of attributes.
    pub count: u32,
}

/// `CUlaunchAttribute`: one attribute of a launch.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct Attribute {
    /// `CUlaunchAttributeID` of the attribute.
    pub id: u32,
    /// Padding.
    pub pad: u32,
    /// Value of the attribute: a union of 64 bytes.
    pub value: [u32; 16],
}

/// `CU_LAUNCH_ATTRIBUTE_IGNORE` and `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
const IGNORE: u32 = 0;
const CLUSTER_DIMENSION: u32 = 4;

/// Returns the blocks of a cluster, if the attributes give them.
///
/// # Safety
/// There are as many attributes as the configuration says.
unsafe fn cluster_of(config: &Config) -> Answer<Option<[u32; 3]>> {
    let mut cluster = None;
    if config.count > 0 && config.attributes.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    for i in 0..config.count as usize {
        // SAFETY: there are more than `i` attributes, as the caller promises.
        let Attribute { id, value: [x, y, z, ..], .. } = unsafe { *config.attributes.add(i) };
        match id {
            IGNORE => {}
            CLUSTER_DIMENSION => cluster = Some([x, y, z]),
            _ => {
                report::say(&format!("cuLaunchKernelEx: the attribute {id} of a launch is not simulated"));
                return Err(Code::NOT_SUPPORTED);
            }
        }
    }
    Ok(cluster)
}

exports! {
    /// Launches a kernel in stream order.
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
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let config = LaunchConfig { grid, block, cluster: None, dynamic_shared };
        // SAFETY: passed on from the caller.
        launch(context, (function, config), stream, |function| unsafe { params(function, pointers, extra) })
    };

    /// Launches a kernel with attributes, which may give the blocks of a cluster.
    cuLaunchKernelEx(
        config: *const Config,
        function: u64,
        pointers: *const *const u8,
        extra: *const *const c_void,
    ) working |context| {
        // SAFETY: the pointer is null or points to a struct that lives, as the caller promises.
        let config = unsafe { config.as_ref() }.ok_or(Code::INVALID_VALUE)?;
        // SAFETY: passed on from the caller.
        let cluster = unsafe { cluster_of(config)? };
        let Config { grid, block, dynamic_shared, stream, .. } = *config;
        let config = LaunchConfig { grid, block, cluster, dynamic_shared };
        // SAFETY: passed on from the caller.
        launch(context, (function, config), stream, |function| unsafe { params(function, pointers, extra) })
    };
}
