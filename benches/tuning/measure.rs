//! The measurement of a CPU. A copy of the repository compiles the workloads once for each choice of a constant,
//! one bench holds all kernels, and the choices alternate from round to round.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::tables::{self, root};
use crate::workloads::{CHOICES, Choices};

/// The bench, except for its kernels.
const BENCH: &str = include_str!("bench.rs");

/// Measures all choices and writes `benches/tuning/MACHINE.tsv`.
pub(crate) fn measure(machine: &str) {
    let work = root().canonicalize().expect("the repository").join("target/tuning");
    copy(&work.join("repository"));
    let mut kernels = String::new();
    let mut list = String::from("pub const CHOICES: &[crate::Choices] = &[\n");
    for Choices { constant, choices, workloads } in &CHOICES {
        _ = writeln!(list, "crate::Choices {{ constant: {constant:?}, choices: &[");
        for (number, choice) in choices.iter().enumerate() {
            let module = format!("{}_{number}", constant.to_lowercase());
            kernels += &kernels_of(&work, (constant, choice), (&module, workloads));
            _ = writeln!(list, "({choice:?}, {module}::ALL),");
        }
        list += "] },\n";
    }
    list += "];\n";
    let bench = work.join("bench");
    fs::create_dir_all(bench.join("src")).expect("a folder");
    let manifest = format!(
        "[package]\nname = \"tuning-bench\"\nedition = \"2024\"\n\n[dependencies]\nfusion = {{ path = {:?}, \
         default-features = false }}\n\n[lints.rust]\ndead_code = \"allow\"\n\n[profile.release]\nlto = false\n\n[workspace]\n",
        work.join("repository")
    );
    fs::write(bench.join("Cargo.toml"), manifest).expect("a file");
    fs::write(bench.join("src/main.rs"), BENCH).expect("a file");
    fs::write(bench.join("src/kernels.rs"), kernels + &list).expect("a file");
    write_table(work.join("repository"), &tables::module(&tables::constants()));
    run(Command::new("cargo").args(["build", "--release", "--quiet"]).current_dir(&bench));
    let head = format!(
        "# date: {}# machine: {machine}, {}# command: cargo run --package fusion-tuning -- measure {machine}\n\
         constant\tchoice\tworkload\tmicroseconds\n",
        run(Command::new("date").arg("+%F")),
        processor(),
    );
    // Other threads would share memory with the one that is measured.
    let times = run(Command::new(bench.join("target/release/tuning-bench")).env("RAYON_NUM_THREADS", "1"));
    fs::write(root().join(format!("benches/tuning/{machine}.tsv")), head + &times).expect("a file");
}

/// Copies the files of the repository. Equal files keep their times, so that little is compiled again.
fn copy(to: &Path) {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard"];
    for file in run(Command::new("git").args(list).current_dir(root())).lines() {
        let (from, to) = (root().join(file), to.join(file));
        let Ok(bytes) = fs::read(&from) else { continue };
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        if fs::read(&to).ok().as_ref() != Some(&bytes) {
            fs::write(to, bytes).expect("a file");
        }
    }
}

/// Writes the table of constants of a copy.
fn write_table(copy: impl AsRef<Path>, text: &str) {
    fs::write(copy.as_ref().join(tables::MODULE), text).expect("the table");
}

/// Returns the Rust code of these workloads for a choice.
fn kernels_of(work: &Path, (name, choice): (&str, &str), (module, workloads): (&str, &[&str])) -> String {
    eprintln!("{name} = {choice}");
    let mut constants = tables::constants();
    let mut found = constants.iter_mut().filter(|constant| constant.table == "cpu" && constant.name == name);
    let constant = found.next().unwrap_or_else(|| panic!("no constant is called {name}"));
    choice.clone_into(&mut constant.value);
    write_table(work.join("repository"), &tables::module(&constants));
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet", "--package", "fusion-tuning", "--", "kernels", module]).args(workloads);
    // The compiler itself may be slow, but has to be compiled soon.
    command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0").env("CARGO_INCREMENTAL", "1");
    run(command.current_dir(work.join("repository")))
}

/// Returns the name of the processor, as a line.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    format!("{}\n", name.trim_start_matches([' ', '\t', ':']))
}

/// Runs a command and returns its output.
fn run(command: &mut Command) -> String {
    let output = command.stderr(std::process::Stdio::inherit()).output().expect("the command starts");
    assert!(output.status.success(), "{command:?} has failed");
    String::from_utf8(output.stdout).expect("text")
}
