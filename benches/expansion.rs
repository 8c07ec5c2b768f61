//! The cost of `fuse!` before rustc sees its output: expansion time and output length per function.
//!
//! The arguments name files with one function each. The benchmark measures the default features, and these
//! without PTX. `benches/compile_time.py` runs it on a hundred functions and reads a line of JSON for each.

use std::time::Instant;

use fusion_compiler::check::{Source, front_end};
use fusion_compiler::ir::plan::Target;
use proc_macro2::{Ident, Span, TokenStream};

/// Number of runs, the fastest of which counts: other load on the machine only adds time.
const RUNS: usize = 20;

/// Targets of the feature wgpu alone.
const WGPU: [Target; 2] = [Target::Wgsl, Target::Cpu];

fn main() {
    for path in std::env::args().skip(1).filter(|arg| !arg.starts_with("--")) {
        let text = std::fs::read_to_string(&path).expect("the file can be read");
        let tokens: TokenStream = text.parse().expect("the file is tokens");
        let name = name(tokens.clone());
        let of = |targets: &[Target]| {
            let times = (0..RUNS).map(|_| expand(&tokens, targets));
            let ms = times.fold(f64::INFINITY, f64::min);
            let text = fusion_compiler::expand(&runtime(), tokens.clone(), targets).tokens.to_string();
            format!(r#"{{"ms": {ms:.3}, "bytes": {}}}"#, text.len())
        };
        let (wgpu, default) = (of(&WGPU), of(&Target::ALL));
        println!(r#"{{"name": "{name}", "wgpu": {wgpu}, "default": {default}}}"#);
    }
}

/// Returns the milliseconds of one expansion.
fn expand(tokens: &TokenStream, targets: &[Target]) -> f64 {
    let (runtime, tokens) = (runtime(), tokens.clone());
    let start = Instant::now();
    let expansion = fusion_compiler::expand(&runtime, tokens, targets);
    let time = start.elapsed();
    drop(expansion);
    time.as_secs_f64() * 1e3
}

/// Returns the name of the runtime crate in the output.
fn runtime() -> Ident {
    Ident::new("fusion", Span::call_site())
}

/// Returns the name of the only function, which has no mistakes.
fn name(tokens: TokenStream) -> String {
    match front_end(tokens) {
        Ok(Source::Items(functions, _)) => functions[0].signature.name.to_string(),
        other => panic!("a function: {other:?}"),
    }
}
