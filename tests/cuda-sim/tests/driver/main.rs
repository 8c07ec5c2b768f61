//! The driver's functions behave as documented, called as a C program calls them.
//!
//! A process has one driver, so each test that ends its work or needs another environment runs in a process
//! of its own.

mod calls;
mod clusters;
mod faults;
mod kernels;
mod order;

use std::ffi::CString;
use std::process::{Command, Output};
use std::ptr::null;

use cuda_sim::driver::alloc::{cuMemAlloc_v2, cuMemFree_v2};
use cuda_sim::driver::context::{cuCtxCreate_v2, cuCtxDestroy_v2};
use cuda_sim::driver::copy::{cuMemcpyDtoH_v2, cuMemcpyHtoD_v2};
use cuda_sim::driver::device::cuInit;
use cuda_sim::driver::entry::{Host, Out, Text};
use cuda_sim::driver::module::{cuModuleGetFunction, cuModuleLoadData};

/// Calls a function of the driver.
macro_rules! call {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        // SAFETY: the arguments of these tests are null or alive, and as long as stated.
        unsafe { $name($($arg),*) }
    }};
}
pub(crate) use call;

/// Calls a function of the driver that must succeed.
macro_rules! done {
    ($name:ident($($arg:expr),* $(,)?)) => {
        assert_eq!($crate::call!($name($($arg),*)), 0, stringify!($name))
    };
}
pub(crate) use done;

/// Calls a function of the driver and returns the value that it writes through its first pointer.
macro_rules! made {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        let mut place = Default::default();
        $crate::done!($name(Out::to(&mut place), $($arg),*));
        place
    }};
}
pub(crate) use made;

/// A context of the test, current on its thread.
struct Context(u64);

impl Context {
    fn new() -> Context {
        done!(cuInit(0));
        Context(made!(cuCtxCreate_v2(0, 0)))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let code = call!(cuCtxDestroy_v2(self.0));
        assert!(code == 0 || std::thread::panicking(), "{code}");
    }
}

fn function(text: &str, name: &'static std::ffi::CStr) -> u64 {
    let text = CString::new(text).unwrap();
    let module: u64 = made!(cuModuleLoadData(text.as_ptr().cast()));
    made!(cuModuleGetFunction(module, Text::of(name)))
}

fn upload(elements: &[u32]) -> u64 {
    let bytes = size_of_val(elements);
    let address = made!(cuMemAlloc_v2(bytes));
    done!(cuMemcpyHtoD_v2(address, Host(elements.as_ptr().cast_mut().cast()), bytes));
    address
}

fn download(address: u64, len: usize) -> Vec<u32> {
    let mut elements = vec![0_u32; len];
    done!(cuMemcpyDtoH_v2(Host(elements.as_mut_ptr().cast()), address, 4 * len));
    elements
}

fn free(address: u64) {
    done!(cuMemFree_v2(address));
}

fn no_extra() -> *const *const std::ffi::c_void {
    null()
}

/// Environment variable that marks the process of a test's own.
const CHILD: &str = "CUDA_SIM_CHILD";

/// Returns true in the child process of the test. Otherwise runs that process with this environment, which
/// must succeed, and passes its output to `check`.
fn in_child(test: &str, environment: &[(&str, &str)], check: impl FnOnce(&str)) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(CHILD, "1").envs(environment.iter().copied());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success() && stdout.contains("1 passed"), "{test}: {stdout}{stderr}");
    check(&stderr);
    false
}
