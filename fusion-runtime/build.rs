//! Tells the crate the optimisation level it is built with, which no `cfg` does.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    println!("cargo::rustc-env=FUSION_OPT_LEVEL={level}");
}
