//! The tools that accept or refuse the texts of kernels: naga, Tint, and NVIDIA's assembler.
//!
//! naga is a library, and the others are programs. Tint is optional. `FUSION_PTXAS` names the assembler. Its
//! absence is reported, and is a failure under `FUSION_REQUIRE_PTXAS=1`. The build folder keeps a mark for
//! each text that a program has accepted, so that it is not checked again.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Generations of NVIDIA GPUs that every text is assembled for, except those older than its target.
const ARCHITECTURES: [u32; 4] = [75, 80, 90, 100];

/// Largest number of lines of PTX in one module. Starting the assembler for each kernel would take most of
/// the time.
const MODULE_LINES: usize = 10_000;

/// Fails unless naga, and Tint where it is installed, find every text valid.
pub(crate) fn validate(texts: &[String]) {
    in_parallel(texts, |text| once(&("naga", LOCK, text), || naga(text)));
    // Tint reports no version, so its help text stands for one.
    match Command::new("tint").arg("--help").output() {
        Ok(help) => in_parallel(texts, |text| once(&("tint", &help.stdout, text), || tint(text))),
        Err(_) => eprintln!("SKIPPED Tint: the command `tint` is not installed"),
    }
}

/// The lock file, which contains the version of naga.
const LOCK: &str = include_str!("../../Cargo.lock");

fn naga(text: &str) {
    // naga supports subgroups, but does not yet parse the directive that enables them.
    let module = naga::front::wgsl::parse_str(text.trim_start_matches("enable subgroups;\n"));
    let module = module.unwrap_or_else(|error| panic!("{}\n{text}", error.emit_to_string(text)));
    let (flags, capabilities) = (naga::valid::ValidationFlags::all(), naga::valid::Capabilities::all());
    let mut validator = naga::valid::Validator::new(flags, capabilities);
    validator.subgroup_stages(naga::valid::ShaderStages::COMPUTE);
    validator.subgroup_operations(naga::valid::SubgroupOperationSet::all());
    let made = validator.validate(&module);
    made.unwrap_or_else(|error| panic!("{}\n{text}", error.emit_to_string(text)));
}

fn tint(text: &str) {
    let path = file("wgsl", text);
    let output = Command::new("tint").args(["--format", "wgsl"]).arg(&path).output().expect("tint starts");
    assert!(output.status.success() && output.stderr.is_empty(), "{}\n{text}", log(&output));
    std::fs::remove_file(path).expect("it was written");
}

/// Fails unless every text assembles for every architecture, without warnings and without spills.
pub(crate) fn assemble(texts: &[String]) {
    let Some(ptxas) = std::env::var_os("FUSION_PTXAS") else {
        assert_ne!(
            std::env::var("FUSION_REQUIRE_PTXAS").as_deref(),
            Ok("1"),
            "FUSION_PTXAS names no program"
        );
        eprintln!("SKIPPED: FUSION_PTXAS does not name NVIDIA's assembler");
        return;
    };
    let version = Command::new(&ptxas).arg("--version").output().expect("FUSION_PTXAS names a program");
    let modules = modules(texts);
    let mut all: Vec<(String, &String)> = Vec::new();
    for module in &modules {
        let first = target(module);
        let known = ARCHITECTURES.into_iter().filter(|&architecture| architecture >= first);
        all.extend(known.map(|architecture| (format!("sm_{architecture}"), module)));
    }
    in_parallel(&all, |(architecture, module)| {
        let check = || ptxas_for(&ptxas, architecture, module);
        once(&("ptxas", &version.stdout, OPTIONS, architecture, module), check);
    });
}

/// Returns the oldest generation that a text is for.
fn target(text: &str) -> u32 {
    let target = text.split_once(".target sm_").and_then(|(_, rest)| rest.split_whitespace().next());
    target.and_then(|number| number.parse().ok()).expect("a text has a target")
}

/// Options that turn register spills into failures.
const OPTIONS: [&str; 4] = ["-v", "-Werror", "-warn-spills", "-warn-lmem-usage"];

fn ptxas_for(ptxas: &OsString, architecture: &str, text: &str) {
    let path = file("ptx", text);
    let made = path.with_extension("cubin");
    let mut command = Command::new(ptxas);
    command.args(OPTIONS).args(["-arch", architecture, "-o"]);
    let output = command.args([&made, &path]).output().expect("FUSION_PTXAS names a program");
    let log = log(&output);
    assert!(output.status.success() && !log.contains("warning"), "{architecture}: {log}\n{text}");
    let unspilt = log.matches("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads").count();
    assert_eq!(unspilt, text.matches(".visible .entry").count(), "{architecture}: {log}");
    [path, made].iter().for_each(|path| std::fs::remove_file(path).expect("it was written"));
}

/// Packs the kernels of all texts into few modules, each distinct kernel once.
fn modules(texts: &[String]) -> Vec<String> {
    let kernel = |text: &'_ String| {
        let (head, kernel) = text.split_once(".visible .entry ").expect("a text has an entry");
        let (_, kernel) = kernel.split_once('(').expect("an entry has parameters");
        (head.to_owned(), nameless(kernel))
    };
    let kernels: BTreeSet<(String, String)> = texts.iter().map(kernel).collect();
    let mut modules: Vec<(&str, usize, String)> = Vec::new();
    for (i, (head, kernel)) in kernels.iter().enumerate() {
        let (kernel, lines) = (format!(".visible .entry kernel_{i}({kernel}"), kernel.lines().count());
        match modules.last_mut() {
            Some((of, has, module)) if of == head && *has + lines <= MODULE_LINES => {
                module.push_str(&kernel);
                *has += lines;
            }
            Some(_) | None => modules.push((head, lines, format!("{head}{kernel}"))),
        }
    }
    modules.into_iter().map(|(_, _, module)| module).collect()
}

/// Removes the users' names from the parameters of a text, so that only their numbers remain.
fn nameless(text: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split_inclusive(|c| !is_name(c));
    let short = words.map(|word| match word.split_once('_') {
        Some((number, name)) if number.starts_with(['b', 'u']) => {
            format!("{number}{}", name.trim_start_matches(is_name))
        }
        Some(_) | None => word.to_owned(),
    });
    short.collect()
}

/// Calls `check` with each item, on all cores.
fn in_parallel<T: Sync>(items: &[T], check: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            check(item);
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
}

/// Runs a check that panics on failure, unless it has passed before with the same inputs.
fn once(of: &impl Hash, check: impl FnOnce()) {
    // The hash is the same in every run.
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    let marks = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("accepted");
    let mark = marks.join(format!("{:016x}", hasher.finish()));
    if !mark.exists() {
        check();
        std::fs::create_dir_all(marks)
            .and_then(|()| std::fs::write(mark, ""))
            .expect("the folder can be written");
    }
}

/// Writes a text to a new file.
fn file(extension: &str, text: &str) -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{process}-{number}.{extension}"));
    std::fs::write(&path, text).expect("the folder can be written");
    path
}

fn log(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|stream| String::from_utf8_lossy(stream)).concat()
}
