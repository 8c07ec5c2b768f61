//! Passes the optimisation level of the build to the crate, which no `cfg` provides.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    println!("cargo::rustc-env=FUSION_OPT_LEVEL={level}");
}
