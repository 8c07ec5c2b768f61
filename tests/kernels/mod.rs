//! The kernels whose texts are tested: `kernels.fuse`, compiled as `fuse!` compiles it.

use fusion_compiler::check::{Function, Source, front_end};
use fusion_compiler::ir::plan::{Launch, Plan, Step, Target};
use fusion_compiler::{KernelCode, compile};

/// Returns the functions of `kernels.fuse`, in order.
pub(crate) fn functions() -> Vec<Function> {
    functions_of(include_str!("kernels.fuse"))
}

/// Returns the functions of a text.
pub(crate) fn functions_of(text: &str) -> Vec<Function> {
    match front_end(text.parse().expect("the kernels are tokens")) {
        Ok(Source::Items(functions, _)) => functions,
        other => panic!("the kernels are functions without mistakes: {other:?}"),
    }
}

/// Compiles a function for all targets.
pub(crate) fn plan(function: &Function) -> Plan<KernelCode> {
    compile(function.graph.clone(), &Target::ALL, &|span| {
        let start = function.spans[span.0 as usize].start();
        (start.line as u32, start.column as u32 + 1)
    })
}

/// Returns the steps that a plan runs on a target.
pub(crate) fn steps(plan: &Plan<KernelCode>, target: Target) -> &[Step<KernelCode>] {
    let program = plan.programs.iter().find(|program| program.target == target);
    &program.expect("the plan is for all targets").steps
}

/// Returns all launches of all variants of a step.
pub(crate) fn launches(step: &Step<KernelCode>) -> impl Iterator<Item = &Launch<KernelCode>> {
    step.variants.iter().flat_map(|variant| variant.launches.iter())
}
