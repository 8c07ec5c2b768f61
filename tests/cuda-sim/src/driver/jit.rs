//! JIT compiler of the driver, as far as a caller sees it: options, logs and errors.
//!
//! Invariant: the logs have the wording of `ptxas`, so a program prints the same of them as of real ones.

use std::ffi::c_void;

use super::code::Code;
use super::config::Config;
use super::entry::Answer;
use super::facts::Facts;
use crate::ptx;

/// Error of a PTX text that the compiler rejects.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) code: Code,
    pub(super) log: String,
}

/// Options that a program passes to the compiler.
#[derive(Debug, Default)]
pub(super) struct Options {
    info: Log,
    error: Log,
    verbose: bool,
}

/// Buffer for a log. The program passes its length in place of a pointer, and gets the length written in the
/// same slot.
#[derive(Debug, Default)]
struct Log {
    place: Option<*mut u8>,
    room: usize,
    size: Option<*mut *mut c_void>,
}

/// `CU_JIT_INFO_LOG_BUFFER`, its size, `CU_JIT_ERROR_LOG_BUFFER`, its size.
const INFO: i32 = 3;
const INFO_SIZE: i32 = 4;
const ERROR: i32 = 5;
const ERROR_SIZE: i32 = 6;
/// `CU_JIT_LOG_VERBOSE`.
const VERBOSE: i32 = 12;
/// Last value of `CUjit_option`.
const LAST: i32 = 37;

impl Options {
    /// Reads the arrays of `cuModuleLoadDataEx`.
    ///
    /// # Safety
    /// Both arrays have `count` elements. The arrays and the log buffers live as long as the result.
    pub(super) unsafe fn read(count: u32, options: *const i32, values: *mut *mut c_void) -> Answer<Options> {
        let mut read = Options::default();
        if count > 0 && (options.is_null() || values.is_null()) {
            return Err(Code::INVALID_VALUE);
        }
        for i in 0..count as usize {
            // SAFETY: the arrays have more than `i` elements, as the caller promises.
            let (option, slot) = unsafe { (*options.add(i), values.add(i)) };
            // SAFETY: as above.
            let value = unsafe { *slot };
            match option {
                INFO => read.info.place = Some(value.cast()),
                INFO_SIZE => (read.info.room, read.info.size) = (value.addr() & 0xffff_ffff, Some(slot)),
                ERROR => read.error.place = Some(value.cast()),
                ERROR_SIZE => (read.error.room, read.error.size) = (value.addr() & 0xffff_ffff, Some(slot)),
                VERBOSE => read.verbose = value.addr() & 0xffff_ffff != 0,
                0..=LAST => {}
                _ => return Err(Code::INVALID_VALUE),
            }
        }
        Ok(read)
    }

    /// Compiles a text, and writes the logs.
    pub(super) fn compile(&self, config: &Config, text: &str) -> Result<ptx::Module, Refused> {
        let answer = compile(config, text);
        let refused = answer.as_ref().err().map_or("", |refused| refused.log.as_str());
        self.error.write(refused);
        match &answer {
            Ok(module) if self.verbose => self.info.write(&described(module, config.facts.arch)),
            Ok(_) | Err(_) => self.info.write(""),
        }
        answer
    }
}

impl Log {
    /// Writes as much text as the buffer has room for, with a NUL, and the length of the text written.
    fn write(&self, text: &str) {
        let Some(place) = self.place.filter(|place| !place.is_null() && self.room > 0) else { return };
        let len = text.len().min(self.room - 1);
        // SAFETY: the buffer has the room given, which is more than `len`. The slot is an element of the
        // array.
        unsafe {
            place.copy_from_nonoverlapping(text.as_ptr(), len);
            place.add(len).write(0);
            if let Some(size) = self.size {
                *size = std::ptr::without_provenance_mut(len);
            }
        }
    }
}

fn described(module: &ptx::Module, arch: u32) -> String {
    let entry = |kernel: &ptx::Kernel| {
        format!(
            "ptxas info    : Compiling entry function '{}' for 'sm_{arch}'\nptxas info    : Used {} registers, {} bytes smem\n",
            kernel.name, kernel.registers, kernel.static_shared
        )
    };
    module.kernels.iter().map(entry).collect()
}

/// Compiles a text as the driver's compiler does.
fn compile(config: &Config, text: &str) -> Result<ptx::Module, Refused> {
    let wrong = |error: ptx::ParseError| refused(Code::INVALID_PTX, error.line, "error  ", &error.message);
    let header = ptx::header(text).map_err(wrong)?;
    let (declared, (major, minor)) = (header.version, config.ptx());
    if declared > (major, minor) {
        let what = format!(
            "Unsupported .version {}.{}; current version is '{major}.{minor}'",
            declared.0, declared.1
        );
        return Err(refused(Code::UNSUPPORTED_PTX_VERSION, header.version_line, "fatal  ", &what));
    }
    if !runs_on(&header.target, config.facts.arch) {
        let what = "SM version specified by .target is higher than default SM version assumed";
        return Err(refused(Code::INVALID_PTX, header.target_line, "fatal  ", what));
    }
    let module = ptx::parse(text).map_err(wrong)?;
    match module.kernels.iter().find(|kernel| kernel.static_shared > Facts::SHARED) {
        None => Ok(module),
        Some(kernel) => {
            let (name, used) = (&kernel.name, kernel.static_shared);
            let what = format!(
                "Entry function '{name}' uses too much shared data ({used:#x} bytes, {:#x} max)",
                Facts::SHARED
            );
            Err(Refused { code: Code::INVALID_PTX, log: format!("ptxas error   : {what}\n") })
        }
    }
}

fn refused(code: Code, line: u32, grade: &str, what: &str) -> Refused {
    let log = format!(
        "ptxas application ptx input, line {line}; {grade} : {what}\nptxas fatal   : Ptx assembly aborted due to errors\n"
    );
    Refused { code, log }
}

/// Returns true if code for a target runs on an architecture. Code runs on later architectures too, unless
/// the target has a suffix.
fn runs_on(target: &str, arch: u32) -> bool {
    let number = target.strip_prefix("sm_").unwrap_or(target);
    let digits = number.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let Ok(wanted) = digits.parse::<u32>() else { return true };
    match &number[digits.len()..] {
        "a" => wanted == arch,
        "f" => wanted <= arch && wanted / 10 == arch / 10,
        _ => wanted <= arch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_the_language_is() {
        let text = "/* .version 9.9\n.version 8.8 */\n .version\n7.1 // why\n.target sm_80, debug what comes is not read";
        let header = ptx::header(text).unwrap();
        assert_eq!((header.version, header.version_line), ((7, 1), 3));
        assert_eq!((header.target.as_str(), header.target_line), ("sm_80", 5));
        assert!(ptx::header(".target sm_80\n.version 7.1").is_err());
    }

    #[test]
    fn targets_run_on_later_devices() {
        for (target, arch, runs) in [
            ("sm_50", 90, true),
            ("sm_90", 90, true),
            ("sm_100", 90, false),
            ("sm_90a", 90, true),
            ("sm_90a", 100, false),
            ("sm_100f", 100, true),
            ("sm_100f", 120, false),
        ] {
            assert_eq!(runs_on(target, arch), runs, "{target} on {arch}");
        }
    }
}
