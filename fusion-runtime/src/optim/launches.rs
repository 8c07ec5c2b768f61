//! How many kernels a step is, of any size and on any target.

use fusion_compiler::ir::plan::Target;
use fusion_compiler::target::limits;
use half::{bf16, f16};

use super::update;
use crate::kernel::Plan;

/// Kernels of a call with these extents.
fn launches(plan: &Plan, target: Target, extents: &[i64]) -> usize {
    let program = plan.programs.iter().find(|program| program.target == target);
    let steps = program.unwrap_or_else(|| panic!("`{}` is for all targets", plan.name)).steps.iter();
    let chosen = steps.map(|step| step.chosen(extents, &limits(target)));
    chosen.map(|variant| variant.map_or(0, |variant| variant.launches.len())).sum()
}

/// One takes the norm of parts of the gradients, and the one that updates combines them.
#[test]
fn a_step_is_one_kernel_and_a_clipped_one_two() {
    macro_rules! plans {
        ($($update:ident)*) => { vec![$((stringify!($update), &*update::$update::PLAN)),*] };
        ($type:ty: $($update:ident)*) => {
            vec![$((concat!(stringify!($update), " ", stringify!($type)), update::$update::plan::<$type>())),*]
        };
    }
    macro_rules! followed {
        ($type:ty) => {
            (
                plans![
                    $type: sgd_followed sgd_momentum_followed adam_followed amsgrad_followed rmsprop_followed
                    rmsprop_momentum_followed rmsprop_centered_followed rmsprop_centered_momentum_followed
                    adagrad_followed lion_followed adam_bf16_followed
                ],
                plans![
                    $type: sgd_followed_clipped sgd_momentum_followed_clipped adam_followed_clipped
                    amsgrad_followed_clipped rmsprop_followed_clipped rmsprop_momentum_followed_clipped
                    rmsprop_centered_followed_clipped rmsprop_centered_momentum_followed_clipped
                    adagrad_followed_clipped lion_followed_clipped adam_bf16_followed_clipped
                ],
            )
        };
    }
    let mut plain = plans![
        sgd sgd_momentum adam amsgrad rmsprop rmsprop_momentum rmsprop_centered rmsprop_centered_momentum adagrad lion
        adam_bf16
    ];
    let mut clipped = plans![
        sgd_clipped sgd_momentum_clipped adam_clipped amsgrad_clipped rmsprop_clipped rmsprop_momentum_clipped
        rmsprop_centered_clipped rmsprop_centered_momentum_clipped adagrad_clipped lion_clipped adam_bf16_clipped
    ];
    for (one, two) in [followed!(f32), followed!(f16), followed!(bf16)] {
        plain.extend(one);
        clipped.extend(two);
    }
    for target in [Target::Ptx, Target::Wgsl, Target::Cpu] {
        for elements in [1, 1000, 1 << 16, 1 << 20, 1 << 22, 25_000_000, 1 << 30] {
            for (name, plan) in plain.iter().copied() {
                assert_eq!(launches(plan, target, &[elements]), 1, "{name}: {target:?}, {elements}");
            }
            for (name, plan) in clipped.iter().copied() {
                let found = launches(plan, target, &[elements]);
                assert!((1..=2).contains(&found), "{name}: {target:?}, {elements}: {found}");
            }
        }
    }
}

/// Blocks and what is in none are one, whatever follows, with buffers that all of them bind at once.
#[test]
fn a_step_with_states_of_8_bits_is_one_kernel_and_a_clipped_one_two() {
    let plans = [
        &*update::adam_8bit::PLAN,
        update::adam_8bit_followed::plan::<f32>(),
        update::adam_8bit_followed::plan::<f16>(),
        update::adam_8bit_followed::plan::<bf16>(),
    ];
    // A copy is a ninth buffer beside the parts of the norm, of which WebGPU promises eight.
    let clipped = [
        (&*update::adam_8bit_clipped::PLAN, [2, 2, 2]),
        (update::adam_8bit_followed_clipped::plan::<bf16>(), [2, 3, 2]),
    ];
    for target in [Target::Ptx, Target::Wgsl, Target::Cpu] {
        for rows in [1, 100, 100_000, 1 << 22] {
            for blocks in [0, rows / 3, rows] {
                for plan in plans {
                    assert_eq!(launches(plan, target, &[rows, blocks]), 1, "{}: {target:?}", plan.name);
                    assert_eq!(plan.outputs.len(), 0, "{} writes in place", plan.name);
                }
                for (plan, [ptx, wgsl, cpu]) in clipped {
                    let most = match target {
                        Target::Ptx => ptx,
                        Target::Wgsl => wgsl,
                        Target::Cpu => cpu,
                    };
                    // Parts of the norm, and no value of each element.
                    let program = plan.programs.iter().find(|program| program.target == target);
                    let kept = program.iter().flat_map(|program| program.temporaries.iter());
                    let kept: Option<i64> = kept.map(|kept| kept.len.eval(&[rows, blocks])).sum();
                    assert!(
                        kept.is_some_and(|kept| kept <= rows + 1024),
                        "{}: {target:?}: {kept:?}",
                        plan.name
                    );
                    let found = launches(plan, target, &[rows, blocks]);
                    // A short norm needs no parts.
                    assert!((2..=most).contains(&found), "{}: {target:?}, {rows} rows: {found}", plan.name);
                    assert_eq!(plan.outputs.len(), 1, "{} writes all but a number in place", plan.name);
                }
            }
        }
    }
}
