//! Texts of known kernels are as reviewed, so that a change in generated code shows as a difference.
//!
//! A snapshot for each function is next to the source: `kernels/<function>.snap`. `INSTA_UPDATE=always`
//! rewrites them.

use std::fmt::Write;
use std::panic::catch_unwind;

use fusion_compiler::check::Function;
use fusion_compiler::ir::dim::DimExpr;
use fusion_compiler::ir::plan::{Code, Condition, Plan, Step, Target, Variant};
use fusion_compiler::{KernelCode, optimize};

mod kernels;

/// Snapshots of the graph, and of the first variant of each step on each target.
#[test]
fn texts_are_as_reviewed() {
    let changed: Vec<String> = kernels::functions()
        .iter()
        .map(|function| (function.graph.name.clone(), snapshot(function)))
        .filter(|(name, text)| catch_unwind(|| check(name, text)).is_err())
        .map(|(name, _)| name)
        .collect();
    assert!(changed.is_empty(), "the texts of {changed:?} are others than the snapshots show");
}

/// All variants of a kernel: with and without 128-bit accesses, with 32-bit and 64-bit positions, and through
/// windows.
#[test]
fn variants_are_as_reviewed() {
    let functions = kernels::functions();
    let function = functions.iter().find(|function| function.graph.name == "broadcast");
    let plan = kernels::plan(function.expect("the corpus has a broadcast"));
    let texts = [Target::Ptx, Target::Wgsl]
        .into_iter()
        .flat_map(|target| kernels::launches(&kernels::steps(&plan, target)[0]))
        .map(|launch| text(&launch.code));
    check("variants", &texts.collect::<Vec<_>>().join("\n"));
}

/// A row computed by a whole block, with shared memory and barriers.
#[test]
fn rows_of_blocks_are_as_reviewed() {
    let functions = kernels::functions();
    let function = functions.iter().find(|function| function.graph.name == "largest_and_sum");
    let plan = kernels::plan(function.expect("the corpus has rows"));
    let texts = [Target::Ptx, Target::Wgsl]
        .into_iter()
        .flat_map(|target| kernels::launches(&kernels::steps(&plan, target)[0]))
        .filter(|launch| launch.kernel.ends_with("_0_t256_v4"))
        .map(|launch| text(&launch.code));
    check("row_of_a_block", &texts.collect::<Vec<_>>().join("\n"));
}

/// Long rows and columns: the kernel of their parts, and the kernel that combines the partials.
#[test]
fn parts_of_rows_are_as_reviewed() {
    let functions = kernels::functions();
    for (name, snapshot) in [("variance", "parts_of_a_row"), ("of_columns", "parts_of_columns")] {
        let function = functions.iter().find(|function| function.graph.name == name);
        let plan = kernels::plan(function.expect("the corpus has long rows"));
        let first = |target| {
            let split =
                kernels::steps(&plan, target)[0].variants.iter().find(|variant| variant.launches.len() > 1);
            split.expect("a long row is cut into parts").launches.iter()
        };
        let texts = [Target::Cpu, Target::Ptx, Target::Wgsl].into_iter().flat_map(first);
        check(snapshot, &texts.map(|launch| text(&launch.code)).collect::<Vec<_>>().join("\n"));
    }
}

/// Tiles of products: by matrices of a warp with asynchronous copies, and by elements of each thread.
#[test]
fn tiles_of_products_are_as_reviewed() {
    let matrices = "_0_tiles64x64_matrices";
    for (parameters, kernel, snapshot) in [
        ("x: f16[M, K], w: f16[K, N]", matrices, "tiles_of_halves"),
        ("x: f32[K, M], w: f32[N, K]", matrices, "tiles_of_rounded_floats"),
        ("x: f32[M, K], w: f32[K, N]", "_0_tiles64x64_v4", "tiles_of_floats"),
        ("x: f32[M, K], w: f32[K, N]", "_0_tiles64x64_v4_copied", "tiles_of_copied_floats"),
    ] {
        let math = if snapshot.contains("rounded") { "#[fuse(fast_math)]" } else { "" };
        let source = format!("{math} pub fn f({parameters}) -> f32[M, N] {{ sum(x * w, K) }}");
        let plan = kernels::plan(&kernels::functions_of(&source)[0]);
        let mut all = kernels::launches(&kernels::steps(&plan, Target::Ptx)[0]);
        let launch = all.find(|launch| launch.kernel.ends_with(kernel)).expect("the product has tiles");
        check(snapshot, &text(&launch.code));
    }
}

fn check(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("kernels");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

fn snapshot(function: &Function) -> String {
    let plan = kernels::plan(function);
    let mut out = format!("# Graph\n\n{}", optimize(function.graph.clone()));
    for (title, target) in [("Kernel IR", Target::Cpu), ("PTX", Target::Ptx), ("WGSL", Target::Wgsl)] {
        let _ = write!(out, "\n# {title}\n\n{}", variants(&plan, target));
        for step in kernels::steps(&plan, target) {
            for launch in whole(step).launches.iter() {
                let _ = write!(out, "\n{}", text(&launch.code));
            }
        }
    }
    out
}

/// Returns the first variant of one kernel. Variants with several are for rows that are split into parts.
fn whole(step: &Step<KernelCode>) -> &Variant<KernelCode> {
    let alone = step.variants.iter().find(|variant| variant.launches.len() == 1);
    alone.expect("what fits no other variant is one kernel")
}

/// Lists the kernels of each step with the conditions under which they run.
fn variants(plan: &Plan<KernelCode>, target: Target) -> String {
    let condition = |condition: &Condition| match condition {
        Condition::Divides(extent, by) => format!("{} % {by} == 0", named(plan, extent)),
        Condition::AtMost(extent, max) => format!("{} <= {max}", named(plan, extent)),
        Condition::AtLeast(extent, min) => format!("{} >= {min}", named(plan, extent)),
        Condition::Subgroups(threads) => format!("{threads} threads are subgroups of one size"),
        Condition::Clusters(blocks) => format!("there are clusters of {blocks} blocks"),
        Condition::Arch(arch) => format!("the compute capability is {arch}"),
        Condition::Shares(bytes) => format!("a block shares {} bytes", named(plan, bytes)),
        Condition::Binds(bytes) => format!("{} bytes fit in a binding", named(plan, bytes)),
    };
    let variants = kernels::steps(plan, target).iter().flat_map(|Step { variants }| variants.iter());
    let lines = variants.map(|variant| {
        let when: Vec<String> = variant.when.iter().map(condition).collect();
        let kernels: Vec<&str> = variant.launches.iter().map(|launch| &*launch.kernel).collect();
        let when =
            if when.is_empty() { "otherwise".to_owned() } else { format!("if {}", when.join(" and ")) };
        format!("{} {when}\n", kernels.join(", "))
    });
    lines.collect()
}

fn named(plan: &Plan<KernelCode>, extent: &DimExpr) -> String {
    extent.display(&plan.symbols).to_string()
}

fn text(code: &KernelCode) -> String {
    match code {
        Code::Ptx(text) | Code::Wgsl(text) => text.to_string(),
        Code::Cpu(code) => code.kernel.to_string(),
    }
}
