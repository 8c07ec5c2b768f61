//! Output of the simulator: messages on stderr, and the report that `CUDA_SIM_REPORT` asks for.
//!
//! Invariant: a line of the report is `KIND key=value …`. Each line is written at once, so that processes may
//! share a file.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::config::Sink;
use super::context;
use super::state::{self, Allocation, Driver, Kind};
use crate::exec::{Counters, Fault};

/// Number of leaks that stderr lists. The report lists all leaks.
const LISTED: usize = 8;

/// Totals over the process.
#[derive(Debug, Default)]
pub(super) struct Report {
    launches: AtomicU64,
    faults: AtomicU64,
    instructions: AtomicU64,
    loaded: AtomicU64,
    stored: AtomicU64,
    load_sectors: AtomicU64,
    store_sectors: AtomicU64,
    shared: AtomicU64,
    shared_rounds: AtomicU64,
    allocations: AtomicU64,
    bytes: AtomicU64,
    peak_bytes: AtomicU64,
    leaks: AtomicU64,
    leaked_bytes: AtomicU64,
}

impl Report {
    pub(super) fn allocated(&self, bytes: u64) {
        self.allocations.fetch_add(1, Relaxed);
        self.peak_bytes.fetch_max(self.bytes.fetch_add(bytes, Relaxed) + bytes, Relaxed);
    }

    pub(super) fn freed(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

/// Prints an error message.
pub(super) fn say(text: &str) {
    let line = format!("cuda-sim: {text}\n");
    // A failure to write to stderr cannot be reported.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(log) = std::env::var_os("CUDA_SIM_LOG").filter(|log| !log.is_empty()) {
        append(Path::new(&log), &line);
    }
}

/// Reports a launch that completed.
pub(super) fn launched(
    driver: &Driver,
    kernel: &str,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    did: &Counters,
) {
    let sums = &driver.report;
    sums.launches.fetch_add(1, Relaxed);
    for (sum, value) in [
        (&sums.instructions, did.instructions),
        (&sums.loaded, did.loaded),
        (&sums.stored, did.stored),
        (&sums.load_sectors, did.load_sectors),
        (&sums.store_sectors, did.store_sectors),
        (&sums.shared, did.shared),
        (&sums.shared_rounds, did.shared_rounds),
    ] {
        sum.fetch_add(value, Relaxed);
    }
    line(driver, || {
        let counts = counts(did);
        format!("launch kernel={kernel} grid={} block={} shared={shared} {counts}", size(grid), size(block))
    });
}

/// Reports a launch that ended with a fault.
pub(super) fn faulted(driver: &Driver, fault: &Fault, code: super::code::Code) {
    driver.report.faults.fetch_add(1, Relaxed);
    say(&format!("{fault}: {code}"));
    line(driver, || {
        let Fault { kernel, line, block, thread, .. } = fault;
        let text = fault.to_string().replace('\n', " ");
        let (block, thread) = (size(*block), size(*thread));
        format!("fault kernel={kernel} line={line} block={block} thread={thread} code={} text={text}", code.0)
    });
}

/// Reports memory that was not freed.
pub(super) fn leaks(driver: &Driver, leaked: &[(u64, Allocation)], when: &str) {
    let is_leak = |allocation: &Allocation| allocation.kind != Kind::Global && !allocation.is_ending;
    let leaked: Vec<_> = leaked.iter().filter(|(_, allocation)| is_leak(allocation)).collect();
    if leaked.is_empty() {
        return;
    }
    let bytes = leaked.iter().map(|(_, allocation)| allocation.bytes).sum();
    driver.report.leaks.fetch_add(leaked.len() as u64, Relaxed);
    driver.report.leaked_bytes.fetch_add(bytes, Relaxed);
    let mut text = format!("{when} with {} allocations, {bytes} bytes, that were never freed:", leaked.len());
    for (address, allocation) in leaked.iter().take(LISTED) {
        // Writing to a string does not fail.
        let _ = write!(text, " {} at {address:#x},", allocation.bytes);
    }
    let more = if leaked.len() > LISTED { " and more" } else { "" };
    say(&format!("{}{more}", text.trim_end_matches(',')));
    for (address, allocation) in leaked {
        line(driver, || format!("leak address={address:#x} bytes={}", allocation.bytes));
    }
}

fn counts(did: &Counters) -> String {
    let Counters { instructions, loaded, stored, load_sectors, store_sectors, shared, shared_rounds } = did;
    format!(
        "instructions={instructions} loaded={loaded} stored={stored} load_sectors={load_sectors} \
         store_sectors={store_sectors} shared_moved={shared} shared_rounds={shared_rounds}"
    )
}

fn size([x, y, z]: [u32; 3]) -> String {
    format!("{x}x{y}x{z}")
}

fn line(driver: &Driver, text: impl FnOnce() -> String) {
    match &driver.config.report {
        None => {}
        // A failure to write to stderr cannot be reported.
        Some(Sink::Stderr) => drop(std::io::stderr().write_all(format!("{}\n", text()).as_bytes())),
        Some(Sink::File(path)) => append(path, &format!("{}\n", text())),
    }
}

fn append(path: &Path, text: &str) {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    if let Err(error) = file.and_then(|mut file| file.write_all(text.as_bytes())) {
        let line = format!("cuda-sim: {}: {error}\n", path.display());
        // A failure to write to stderr cannot be reported.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

/// Registers the report at the end of the process.
pub(super) fn at_exit() {
    unsafe extern "C" {
        fn atexit(call: extern "C" fn()) -> i32;
    }
    // SAFETY: the declaration has the signature of the C library. The function lives as long as the library.
    unsafe { atexit(end) };
}

extern "C" fn end() {
    // A panic that unwinds out of a C function aborts the process. At exit the panic can no longer be
    // reported.
    let _ = std::panic::catch_unwind(|| {
        context::living_at_exit();
        let Ok(driver) = state::driver() else { return };
        let sums = &driver.report;
        let of = |sum: &AtomicU64| sum.load(Relaxed);
        line(driver, || {
            let counts = counts(&Counters {
                instructions: of(&sums.instructions),
                loaded: of(&sums.loaded),
                stored: of(&sums.stored),
                load_sectors: of(&sums.load_sectors),
                store_sectors: of(&sums.store_sectors),
                shared: of(&sums.shared),
                shared_rounds: of(&sums.shared_rounds),
            });
            format!(
                "total launches={} faults={} {counts} allocations={} peak_bytes={} leaks={} leaked_bytes={}",
                of(&sums.launches),
                of(&sums.faults),
                of(&sums.allocations),
                of(&sums.peak_bytes),
                of(&sums.leaks),
                of(&sums.leaked_bytes),
            )
        });
    });
}
