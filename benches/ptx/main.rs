//! The PTX that `fuse!` generates for `kernels.fuse`, with accurate maths and with `fast_math`.
//!
//! `cargo bench --bench ptx -- FOLDER` writes a file per kernel. `benches/ptx/compare.py` compares the
//! kernels with those of other compilers.

use std::path::Path;

use fusion_compiler::check::{Function, Source, front_end};
use fusion_compiler::compile;
use fusion_compiler::ir::graph::{Graph, Math};
use fusion_compiler::ir::plan::{Code, Target};

fn main() -> std::io::Result<()> {
    let folder = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let folder = folder.expect("the folder to write to is named");
    for (name, math) in [("accurate", Math::Accurate), ("fast", Math::Fast)] {
        let folder = Path::new(&folder).join(name);
        std::fs::create_dir_all(&folder)?;
        for (kernel, text) in functions().into_iter().flat_map(|function| texts(function, math)) {
            std::fs::write(folder.join(format!("{kernel}.ptx")), text)?;
        }
    }
    Ok(())
}

fn functions() -> Vec<Function> {
    let tokens = include_str!("kernels.fuse").parse().expect("the kernels are tokens");
    match front_end(tokens) {
        Ok(Source::Items(functions, _)) => functions,
        other => panic!("the kernels are functions without mistakes: {other:?}"),
    }
}

/// Returns the kernels of all variants, by name.
fn texts(function: Function, math: Math) -> Vec<(String, String)> {
    let plan = compile(Graph { math, ..function.graph }, &[Target::Ptx], &|_| (0, 0));
    let variants =
        plan.programs.iter().flat_map(|program| program.steps.iter()).flat_map(|step| step.variants.iter());
    let texts = variants.flat_map(|variant| variant.launches.iter()).map(|launch| match &launch.code {
        Code::Ptx(text) => (launch.kernel.to_string(), text.to_string()),
        Code::Wgsl(_) | Code::Cpu(_) => unreachable!("it was compiled for PTX"),
    });
    texts.collect()
}
