//! How many kernels a step is, of any size and on any target that kernels are made for.

use fusion_compiler::ir::plan::{Limits, Program, Target};
use fusion_compiler::target::limits;
use half::{bf16, f16};

use super::update;
use crate::kernel::{Code, Plan};

/// Devices of all targets; of WGSL those of what WebGPU promises, and of what nearly all have.
fn devices() -> Vec<(Target, Limits)> {
    [
        #[cfg(feature = "ptx")]
        (Target::Ptx, limits(Target::Ptx)),
        #[cfg(feature = "wgsl")]
        (Target::Wgsl, limits(Target::Wgsl)),
        #[cfg(feature = "wgsl")]
        (Target::Wgsl, Limits { buffers: 10, ..limits(Target::Wgsl) }),
        (Target::Cpu, limits(Target::Cpu)),
    ]
    .to_vec()
}

fn program<'p>(plan: &'p Plan, (target, limits): &(Target, Limits)) -> &'p Program<Code> {
    plan.program(*target, limits).unwrap_or_else(|| panic!("`{}` is for all targets", plan.name))
}

/// Kernels of a call with these extents.
fn launches(plan: &Plan, device: &(Target, Limits), extents: &[i64]) -> usize {
    let chosen = program(plan, device).steps.iter().map(|step| step.chosen(extents, &device.1));
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
    for device in &devices() {
        for elements in [1, 1000, 1 << 16, 1 << 20, 1 << 22, 25_000_000, 1 << 30] {
            for (name, plan) in plain.iter().copied() {
                assert_eq!(launches(plan, device, &[elements]), 1, "{name}: {device:?}, {elements}");
            }
            for (name, plan) in clipped.iter().copied() {
                let found = launches(plan, device, &[elements]);
                assert!((1..=2).contains(&found), "{name}: {device:?}, {elements}: {found}");
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
    let clipped = [
        &*update::adam_8bit_clipped::PLAN,
        update::adam_8bit_followed_clipped::plan::<f32>(),
        update::adam_8bit_followed_clipped::plan::<f16>(),
        update::adam_8bit_followed_clipped::plan::<bf16>(),
    ];
    for device in &devices() {
        for rows in [1, 100, 100_000, 1 << 22] {
            for blocks in [0, rows / 3, rows] {
                for plan in plans {
                    assert_eq!(launches(plan, device, &[rows, blocks]), 1, "{}: {device:?}", plan.name);
                    assert_eq!(plan.outputs.len(), 0, "{} writes in place", plan.name);
                }
                for plan in clipped {
                    // Parts of the norm, and no value of each element.
                    let kept = program(plan, device).temporaries.iter();
                    let kept: Option<i64> = kept.map(|kept| kept.len.eval(&[rows, blocks])).sum();
                    assert!(
                        kept.is_some_and(|kept| kept <= rows + 1024),
                        "{}: {device:?}: {kept:?}",
                        plan.name
                    );
                    assert_eq!(
                        launches(plan, device, &[rows, blocks]),
                        2,
                        "{}: {device:?}, {rows}",
                        plan.name
                    );
                    assert_eq!(plan.outputs.len(), 1, "{} writes all but a number in place", plan.name);
                }
            }
        }
    }
}
