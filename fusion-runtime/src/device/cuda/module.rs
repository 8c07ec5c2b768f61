//! Modules: kernels that the driver compiles from PTX, and a cache of them.
//!
//! Invariant: a text is compiled once per device. The kernel of a text lives until the device is closed.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use fusion_compiler::ir::plan::Text;

use super::driver::{
    CUfunction, CUmodule, DriverError, FUNCTION_BLOCK_THREADS_MAX, FUNCTION_LAUNCH_SHARED_BYTES_MAX,
    FUNCTION_SHARED_BYTES, FUNCTION_SHARED_PERCENT, FunctionState, Handle, ModuleState, check,
    cuDriverGetVersion, cuFuncGetAttribute, cuFuncSetAttribute, cuModuleGetFunction, cuModuleLoadDataEx,
    cuModuleUnload,
};

/// Bytes of each of the compiler's two logs. The driver truncates longer logs.
const LOG_BYTES: usize = 16 << 10;

/// `CU_JIT_INFO_LOG_BUFFER`, its size, `CU_JIT_ERROR_LOG_BUFFER`, its size.
const LOG_OPTIONS: [u32; 4] = [3, 4, 5, 6];

/// A loaded kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    module: Handle<ModuleState>,
    function: Handle<FunctionState>,
    /// Maximum number of threads per block that the kernel's registers allow.
    pub(super) block_threads_max: u32,
}

impl Kernel {
    pub(super) fn function(&self) -> CUfunction {
        self.function.0
    }
}

/// The cache of kernels, by text. The key of a `static` text is its address, so its content is not read.
#[derive(Debug, Default)]
pub(super) struct Kernels(RwLock<Known>);

#[derive(Debug, Default)]
struct Known {
    fixed: HashMap<(usize, usize), Arc<Entry>>,
    owned: HashMap<String, Arc<Entry>>,
}

/// The state of a text.
#[derive(Debug, Default)]
struct Entry {
    kernel: OnceLock<Kernel>,
    /// Lock of the thread that compiles the text.
    compiling: Mutex<()>,
}

impl Known {
    fn get(&self, text: &Text) -> Option<&Arc<Entry>> {
        match text {
            Cow::Borrowed(text) => self.fixed.get(&place(text)),
            Cow::Owned(text) => self.owned.get(text),
        }
    }

    fn entry(&mut self, text: &Text) -> Arc<Entry> {
        let entry = match text {
            Cow::Borrowed(text) => self.fixed.entry(place(text)).or_default(),
            Cow::Owned(text) => self.owned.entry(text.clone()).or_default(),
        };
        entry.clone()
    }
}

fn place(text: &'static str) -> (usize, usize) {
    (text.as_ptr().addr(), text.len())
}

impl Kernels {
    /// Returns the kernel of a text, loaded at its first use. Callers with other texts do not wait for the
    /// compiler.
    pub(super) fn get<E>(&self, text: &Text, load: impl FnOnce() -> Result<Kernel, E>) -> Result<Kernel, E> {
        let known = |known: &Known| known.get(text).and_then(|entry| entry.kernel.get().copied());
        if let Some(kernel) = known(&self.0.read().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(kernel);
        }
        let entry = self.0.write().unwrap_or_else(PoisonError::into_inner).entry(text);
        let _compiling = entry.compiling.lock().unwrap_or_else(PoisonError::into_inner);
        match entry.kernel.get() {
            Some(&kernel) => Ok(kernel),
            None => load().map(|kernel| *entry.kernel.get_or_init(|| kernel)),
        }
    }

    /// Unloads all kernels. The device's context is current and idle.
    pub(super) fn clear(&self) {
        let known = std::mem::take(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner));
        let entries = known.fixed.into_values().chain(known.owned.into_values());
        for kernel in entries.filter_map(|entry| entry.kernel.get().copied()) {
            // SAFETY: this cache loaded the module, no kernel runs, and no other code has the handle.
            unsafe { cuModuleUnload(kernel.module.0) };
        }
    }
}

/// The reason why a kernel could not be loaded.
#[derive(Debug)]
pub(super) struct LoadError {
    /// The driver's failure, or `None` if the driver was not called.
    pub(super) failure: Option<DriverError>,
    /// The compiler's log, with an explanation.
    pub(super) log: String,
}

impl From<DriverError> for LoadError {
    fn from(failure: DriverError) -> LoadError {
        LoadError { failure: Some(failure), log: failure.to_string() }
    }
}

impl PartialEq<DriverError> for LoadError {
    fn eq(&self, failure: &DriverError) -> bool {
        self.failure == Some(*failure)
    }
}

/// Compiles a text. The device's context is current. The error is the log for the user.
pub(super) fn load(text: &str, entry: &str, shared_bytes_max: u32) -> Result<Kernel, LoadError> {
    let module = compile(text)?;
    let shared = text.contains(".extern .shared").then_some(shared_bytes_max);
    kernel_of(module, entry, shared).inspect_err(|_| {
        // SAFETY: the module has just been loaded and is not used.
        unsafe { cuModuleUnload(module) };
    })
}

fn compile(text: &str) -> Result<CUmodule, LoadError> {
    let image = c_string(text)?;
    let (mut info, mut error) = (vec![0_u8; LOG_BYTES], vec![0_u8; LOG_BYTES]);
    // The driver takes numbers in place of pointers, and overwrites them with the lengths of the logs.
    let size = std::ptr::without_provenance_mut::<c_void>(LOG_BYTES);
    let mut values = [info.as_mut_ptr().cast(), size, error.as_mut_ptr().cast(), size];
    let mut options = LOG_OPTIONS;
    let mut module = null_mut();
    // SAFETY: the image ends with a NUL, each option has a value, and the logs have the given size.
    let answer = check(unsafe {
        cuModuleLoadDataEx(
            &raw mut module,
            image.as_ptr().cast(),
            options.len() as u32,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    });
    match answer {
        Ok(()) => Ok(module),
        Err(failure) => {
            let log = [log_text(&error), log_text(&info)].concat();
            Err(LoadError { failure: Some(failure), log: explain(failure, text, &driver_version(), &log) })
        }
    }
}

/// Returns the kernel of a module. A kernel with dynamic shared memory may use up to `shared` bytes in total.
fn kernel_of(module: CUmodule, entry: &str, shared: Option<u32>) -> Result<Kernel, LoadError> {
    let name = c_string(entry)?;
    let (mut function, mut threads) = (null_mut(), 0);
    // SAFETY: the module is loaded, the name ends with a NUL, and the pointers refer to local variables.
    let answer = unsafe {
        check(cuModuleGetFunction(&raw mut function, module, name.as_ptr()))
            .and_then(|()| check(cuFuncGetAttribute(&raw mut threads, FUNCTION_BLOCK_THREADS_MAX, function)))
            .and_then(|()| shared.map_or(Ok(()), |bytes| take_shared(function, bytes, threads)))
    };
    answer.map_err(|failure| LoadError {
        failure: Some(failure),
        log: format!("{failure}, looking for the entry `{entry}`"),
    })?;
    let block_threads_max = u32::try_from(threads).unwrap_or(0).max(1);
    Ok(Kernel { module: Handle(module), function: Handle(function), block_threads_max })
}

/// Returns the shared memory carveout for blocks of `threads` threads, in percent of the maximum.
///
/// The rest of a multiprocessor's memory is the cache for loads. By default, a driver shrinks the cache to
/// make room for one more block, and the blocks then wait for memory. On an H200, these values speed up a
/// layer norm and an RMS norm of 12,288 elements with 512 threads, and of 6144 elements with 256. Smaller
/// blocks process rows that need less shared memory. Larger blocks need most of the shared memory.
fn shared_percent(threads: i32) -> Option<i32> {
    match threads {
        256 => Some(60),
        512 => Some(75),
        _ => None,
    }
}

/// Raises the limit of a function's dynamic shared memory, so that static and dynamic memory may reach `most`
/// bytes.
///
/// # Safety
///
/// The function belongs to a loaded module.
unsafe fn take_shared(function: CUfunction, most: u32, threads: i32) -> Result<(), DriverError> {
    let mut own = 0;
    // SAFETY: the function is loaded, and the pointer refers to a local variable.
    check(unsafe { cuFuncGetAttribute(&raw mut own, FUNCTION_SHARED_BYTES, function) })?;
    let rest = i32::try_from(most).unwrap_or(i32::MAX).saturating_sub(own).max(0);
    // SAFETY: the function is loaded.
    check(unsafe { cuFuncSetAttribute(function, FUNCTION_LAUNCH_SHARED_BYTES_MAX, rest) })?;
    shared_percent(threads).map_or(Ok(()), |percent| {
        // SAFETY: the function is loaded.
        check(unsafe { cuFuncSetAttribute(function, FUNCTION_SHARED_PERCENT, percent) })
    })
}

fn c_string(text: &str) -> Result<CString, LoadError> {
    CString::new(text).map_err(|_| LoadError { failure: None, log: "the text holds a NUL byte".to_owned() })
}

/// Returns a log up to its NUL.
fn log_text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Returns the CUDA version of the driver, for messages.
pub(super) fn driver_version() -> String {
    match driver_number() {
        Some(version) => format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
        None => "an unknown version of CUDA".to_owned(),
    }
}

/// Returns the CUDA version of the driver as a number: 1000 times the major plus 10 times the minor version.
pub(super) fn driver_number() -> Option<i32> {
    let mut version = 0;
    // SAFETY: the pointer refers to a local variable.
    check(unsafe { cuDriverGetVersion(&raw mut version) }).ok().map(|()| version)
}

/// Returns the log of a failed compilation, with an explanation if the driver's own words are unclear.
fn explain(failure: DriverError, text: &str, driver: &str, log: &str) -> String {
    // Drivers differ in the failure for code of later GPUs. The text is that of ptxas.
    let too_new = failure == DriverError::NO_BINARY_FOR_GPU
        || log.contains("SM version specified by .target is higher");
    let hint = match failure {
        DriverError(_) if too_new => {
            format!("the kernel is for {} and later, and this GPU is older", declared(text, ".target"))
        }
        DriverError::JIT_COMPILER_NOT_FOUND => {
            "the driver's PTX compiler (libnvidia-ptxjitcompiler) is not installed".to_owned()
        }
        DriverError::INVALID_PTX => format!("the driver ({driver}) does not accept the text"),
        DriverError(_) => String::new(),
    };
    let parts = [failure.to_string(), hint, log.trim_end().to_owned()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Returns the text after a directive of a PTX text.
pub(super) fn declared<'a>(text: &'a str, directive: &str) -> &'a str {
    text.lines().find_map(|line| line.trim().strip_prefix(directive)).map_or("?", str::trim)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// A static has one address, while a constant may have several.
    static TEXT: &str = "// head\n.version 7.1\n.target sm_80\n.address_size 64\n";

    #[test]
    fn failures_are_explained() {
        let cases: [(DriverError, &str, &[&str]); 5] = [
            (DriverError::NO_BINARY_FOR_GPU, "", &["sm_80 and later"]),
            (
                DriverError::INVALID_PTX,
                "ptxas fatal   : SM version specified by .target is higher than default SM version assumed",
                &["sm_80 and later", "ptxas fatal"],
            ),
            (DriverError::INVALID_PTX, "ptxas error : line 3\n", &["ptxas error : line 3"]),
            (DriverError::JIT_COMPILER_NOT_FOUND, "", &["libnvidia-ptxjitcompiler"]),
            (DriverError(123_456), "why", &["CUDA error 123456\nwhy"]),
        ];
        for (failure, log, expect) in cases {
            let told = explain(failure, TEXT, "CUDA 11.4", log);
            for part in expect {
                assert!(told.contains(part), "{failure:?}: {told:?} lacks {part:?}");
            }
        }
    }

    #[test]
    fn logs_end_at_their_nul() {
        assert_eq!(log_text(b"ptxas\0rest"), "ptxas");
        assert_eq!(log_text(b"cut"), "cut");
        assert_eq!(log_text(b"\0"), "");
    }

    #[test]
    fn a_text_with_a_nul_is_refused() {
        let error = compile("a\0b").unwrap_err();
        assert!(error.failure.is_none() && error.log.contains("NUL"));
    }

    fn kernel(block_threads_max: u32) -> Kernel {
        Kernel { module: Handle(null_mut()), function: Handle(null_mut()), block_threads_max }
    }

    #[test]
    fn static_texts_are_known_by_place_and_owned_ones_by_content() {
        let kernels = Kernels::default();
        let get = |text: Text, threads| kernels.get::<()>(&text, || Ok(kernel(threads))).unwrap();
        assert_eq!(get(Cow::Borrowed(TEXT), 1).block_threads_max, 1);
        assert_eq!(get(Cow::Owned("x".to_owned()), 2).block_threads_max, 2);
        assert_eq!(get(Cow::Borrowed(TEXT), 3).block_threads_max, 1);
        assert_eq!(get(Cow::Borrowed(&TEXT[1..]), 3).block_threads_max, 3);
        assert_eq!(get(Cow::Owned(TEXT.to_owned()), 4).block_threads_max, 4);
        assert_eq!(get(Cow::Owned("x".to_owned()), 5).block_threads_max, 2);
    }

    #[test]
    fn what_could_not_be_loaded_is_asked_for_again() {
        let (kernels, text) = (Kernels::default(), Cow::Borrowed(TEXT));
        assert_eq!(kernels.get(&text, || Err("no memory")).unwrap_err(), "no memory");
        assert_eq!(kernels.get::<&str>(&text, || Ok(kernel(1))).unwrap().block_threads_max, 1);
    }

    #[test]
    fn who_has_a_kernel_does_not_wait_for_the_compiler() {
        let kernels = Kernels::default();
        let get =
            &|text: &'static str, threads| kernels.get::<()>(&Cow::Borrowed(text), || Ok(kernel(threads)));
        get(TEXT, 1).unwrap();
        thread::scope(|scope| {
            let slow = || {
                // During the compilation, other threads get loaded kernels, and kernels that are compiled
                // sooner.
                for (text, threads) in [(TEXT, 1), ("sooner", 2)] {
                    let (told, answer) = mpsc::channel();
                    scope.spawn(move || told.send(get(text, 2)));
                    let kernel = answer.recv_timeout(Duration::from_secs(10)).unwrap().unwrap();
                    assert_eq!(kernel.block_threads_max, threads);
                }
                Ok::<_, ()>(kernel(3))
            };
            assert_eq!(kernels.get(&Cow::Borrowed("slow"), slow).unwrap().block_threads_max, 3);
        });
    }
}
