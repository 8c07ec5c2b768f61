//! How many kernels a step is, of any size and on any target.

use fusion_compiler::ir::plan::Target;
use fusion_compiler::target::limits;

use super::update;
use crate::kernel::Plan;

/// Kernels of a call with an arena of so many elements.
fn launches(plan: &Plan, target: Target, elements: i64) -> usize {
    let program = plan.programs.iter().find(|program| program.target == target);
    let steps = program.unwrap_or_else(|| panic!("`{}` is for all targets", plan.name)).steps.iter();
    let chosen = steps.map(|step| step.chosen(&[elements], &limits(target)));
    chosen.map(|variant| variant.map_or(0, |variant| variant.launches.len())).sum()
}

/// One takes the norm of parts of the gradients, and the one that updates combines them.
#[test]
fn a_step_is_one_kernel_and_a_clipped_one_two() {
    macro_rules! plans {
        ($($update:ident)*) => { [$((stringify!($update), &*update::$update::PLAN)),*] };
    }
    let plain = plans![
        sgd sgd_momentum adam amsgrad rmsprop rmsprop_momentum rmsprop_centered rmsprop_centered_momentum adagrad lion
        adam_given adam_8bit adam_bf16
    ];
    let clipped = plans![
        sgd_clipped sgd_momentum_clipped adam_clipped amsgrad_clipped rmsprop_clipped rmsprop_momentum_clipped
        rmsprop_centered_clipped rmsprop_centered_momentum_clipped adagrad_clipped lion_clipped adam_bf16_clipped
    ];
    for target in [Target::Ptx, Target::Wgsl, Target::Cpu] {
        for elements in [1, 1000, 1 << 16, 1 << 20, 1 << 22, 25_000_000, 1 << 30] {
            for (name, plan) in plain {
                assert_eq!(launches(plan, target, elements), 1, "{name}: {target:?}, {elements}");
            }
            for (name, plan) in clipped {
                let found = launches(plan, target, elements);
                assert!((1..=2).contains(&found), "{name}: {target:?}, {elements}: {found}");
            }
        }
    }
}
