//! Prints the fusion reports of a layer norm, a cross-entropy and a batch norm, as formulas and with numbers.
//!
//! `cargo run --release --example explain -- folder` also writes them to a folder as pictures and for
//! Graphviz.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use fusion::prelude::{Report, fuse};

fuse! {
    /// Ba et al. 2016: one kernel, each element read once.
    pub fn layer_norm(x: f32[N, D], gamma: f32[D], beta: f32[D], eps: f32) -> f32[N, D] {
        let mu = mean(x, D);
        let var = mean(square(x - mu), D);
        (x - mu) * rsqrt(var + eps) * gamma + beta
    }

    /// The loss of each sample of a batch, over a vocabulary.
    pub fn loss(logits: f32[B, V], target: i32[B]) -> f32[B] { cross_entropy(logits, V, target) }

    /// Ioffe and Szegedy 2015: batch statistics reduce across rows of the output, in a kernel of their own.
    pub fn batch_norm(x: f32[N, C, H, W], eps: f32) -> f32[N, C, H, W] {
        let mu = mean(x, (N, H, W));
        let var = mean(square(x - mu), (N, H, W));
        (x - mu) * rsqrt(var + eps)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.as_deref();
    explain("layer_norm", layer_norm::report(), &[("N", 4096), ("D", 1024)], folder)?;
    explain("cross_entropy", loss::report(), &[("B", 2048), ("V", 50_257)], folder)?;
    explain("batch_norm", batch_norm::report(), &[("N", 32), ("C", 64), ("H", 56), ("W", 56)], folder)
}

/// Prints a report as formulas and for these extents. Writes the second to files.
fn explain(
    name: &str,
    report: Report,
    extents: &[(&str, usize)],
    folder: Option<&Path>,
) -> Result<(), Box<dyn Error>> {
    println!("━━ {name}\n\n{report}\n");
    let shown: Vec<String> = extents.iter().map(|(dim, extent)| format!("{dim} = {extent}")).collect();
    let report = report.bind(extents)?;
    println!("━━ {name}, {}\n\n{report}\n", shown.join(", "));
    if let Some(folder) = folder {
        fs::create_dir_all(folder)?;
        for (extension, text) in [("svg", report.to_svg()), ("dot", report.to_dot())] {
            let path = folder.join(name).with_extension(extension);
            fs::write(&path, text)?;
            println!("written: {}", path.display());
        }
        println!();
    }
    Ok(())
}
