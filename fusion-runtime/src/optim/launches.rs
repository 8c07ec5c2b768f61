//! Tests of the number of kernels per step, for any size and every compiled target.

use fusion_compiler::ir::plan::{Limits, Program, Target};
use fusion_compiler::target::limits;
use half::{bf16, f16};

use super::update;
use crate::kernel::{Code, Plan};

/// Returns a device of each target.
fn devices() -> Vec<(Target, Limits)> {
    [
        #[cfg(feature = "ptx")]
        (Target::Ptx, limits(Target::Ptx)),
        #[cfg(feature = "wgsl")]
        (Target::Wgsl, limits(Target::Wgsl)),
        (Target::Cpu, limits(Target::Cpu)),
    ]
    .to_vec()
}

fn program<'p>(plan: &'p Plan, (target, _): &(Target, Limits)) -> &'p Program<Code> {
    plan.program(*target).unwrap_or_else(|| panic!("`{}` is for all targets", plan.name))
}

/// Returns the number of launches of a call with these extents.
fn launches(plan: &Plan, device: &(Target, Limits), extents: &[i64]) -> usize {
    let chosen = program(plan, device).steps.iter().map(|step| step.chosen(extents, &device.1));
    chosen.map(|variant| variant.map_or(0, |variant| variant.launch_count())).sum()
}

/// The rule covers every shadow copy. A step with 8-bit states makes two calls: `adam_8bit` for blocks, and
/// `adam` for small tensors. Each call is one kernel.
#[test]
fn a_call_is_one_kernel() {
    macro_rules! plans {
        ($($update:ident)*) => { vec![$(&*update::$update::PLAN),*] };
        ($type:ty: $($update:ident)*) => { vec![$(update::$update::plan::<$type>()),*] };
    }
    macro_rules! followed {
        ($type:ty) => {
            plans![
                $type: sgd_followed sgd_momentum_followed adam_followed amsgrad_followed rmsprop_followed
                rmsprop_momentum_followed rmsprop_centered_followed rmsprop_centered_momentum_followed
                adagrad_followed lion_followed adam_bf16_followed adam_8bit_followed
            ]
        };
    }
    let plain = plans![
        sgd sgd_momentum adam amsgrad rmsprop rmsprop_momentum rmsprop_centered rmsprop_centered_momentum adagrad lion
        adam_bf16 adam_8bit
    ];
    let plans: Vec<&Plan> =
        [plain, followed!(f32), followed!(f16), followed!(bf16)].into_iter().flatten().collect();
    for device in &devices() {
        for plan in &plans {
            assert_eq!(plan.outputs.len(), 0, "{} writes in place", plan.name);
            for elements in [1, 1000, 1 << 16, 1 << 20, 1 << 22, 25_000_000, 1 << 30] {
                // The extent is the number of elements, or of blocks.
                assert_eq!(launches(plan, device, &[elements]), 1, "{}: {device:?}, {elements}", plan.name);
            }
        }
    }
}

/// Only a small norm is one kernel. Otherwise the first kernel computes a number per part.
#[test]
fn a_norm_is_two_kernels() {
    let plan = &*update::measure::PLAN;
    for device in &devices() {
        for (elements, expected) in [(1, 1), (1000, 1), (1 << 20, 2), (25_000_000, 2), (1 << 30, 2)] {
            let kept = program(plan, device).temporaries.iter().map(|kept| kept.len.eval(&[elements]));
            let kept: Option<i64> = kept.sum();
            assert!(kept.is_some_and(|kept| kept <= 1 + elements / 8192), "{device:?}, {elements}: {kept:?}");
            assert_eq!(launches(plan, device, &[elements]), expected, "{device:?}, {elements}");
        }
    }
}
