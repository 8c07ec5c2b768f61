//! The tuning constants of the compiler.
//!
//! `fusion-tuning` writes the compiler's table from `constants.tsv` and prints the regret of each measured
//! constant. `fusion-tuning measure MACHINE` writes the measurements of a CPU. `fusion-tuning kernels MODULE
//! WORKLOAD…` prints the Rust code of workloads for this build of the compiler.

mod measure;
mod tables;
mod workloads;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => tables::write(),
        ["measure", machine] => measure::measure(machine),
        ["kernels", module, names @ ..] => workloads::print(module, names),
        _ => panic!("no arguments, `measure MACHINE` or `kernels MODULE WORKLOAD…`, but: {args:?}"),
    }
}
