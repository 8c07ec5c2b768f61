//! Optimizers whose arenas exceed one binding, against the CPU.

use super::windows::device;
use super::*;
use crate::Device;
use crate::optim::{Adam, AdamW, Arena, Optimizer, Precision, RmsProp, Rule, Sgd};
use crate::tensor::Tensor;

/// Returns the parameters after three steps, and their average.
fn trained(device: &Device, rule: Rule, clips: bool) -> Result<Vec<f32>> {
    let tensor = |len: usize, seed| Tensor::from_vec(device, ramp(len, seed), [len]);
    let tensors = [tensor(70, 1)?, tensor(200_001, 2)?, tensor(3, 3)?, tensor(4100, 4)?];
    let mut params = Arena::new(device, ["a", "b", "c", "d"].into_iter().zip(&tensors))?;
    let mut optimizer = Optimizer::new(rule, &params)?.with_average(0.5, &params)?;
    if clips {
        optimizer = optimizer.with_max_norm(100.0);
    }
    for step in 1..4 {
        let mut grads = params.zeros_like()?;
        for (i, (name, tensor)) in params.iter().enumerate() {
            grads.set(name, &Tensor::from_vec(device, ramp(tensor.len(), 10 * step + i), [tensor.len()])?)?;
        }
        optimizer.step(&mut params, &grads)?;
    }
    let average = optimizer.average().into_iter().flat_map(Arena::iter);
    let all = params.iter().chain(average).map(|(_, tensor)| tensor.to_vec());
    Ok(all.collect::<Result<Vec<_>>>()?.concat())
}

fn assert_close(rule: Rule, most: f32, (expected, got): (&[f32], &[f32])) {
    for (i, (expected, got)) in expected.iter().zip(got).enumerate() {
        assert!((expected - got).abs() <= most, "{rule:?}: element {i}: {got}, not {expected}");
    }
}

/// Arenas of 800 KiB in bindings of 256 KiB. A norm over an arena is computed in parts.
#[test]
fn arenas_beyond_a_binding() {
    let Some((device, _)) = device(Options { binding_bytes_max: 1 << 18, ..PLAIN }) else { return };
    let small = |state| Rule::from(AdamW { lr: 0.01, state, ..AdamW::default() });
    let rules = [
        Sgd { lr: 0.01, momentum: 0.9, ..Sgd::default() }.into(),
        small(Precision::F32),
        Adam { lr: 0.01, amsgrad: true, ..Adam::default() }.into(),
        RmsProp { centered: true, momentum: 0.5, ..RmsProp::default() }.into(),
        small(Precision::Bf16),
        small(Precision::Bits8),
    ];
    for rule in rules {
        for clips in [false, true] {
            let [expected, got] = [&Device::cpu(), &device].map(|device| {
                trained(device, rule, clips).unwrap_or_else(|error| panic!("{rule:?}: {error}"))
            });
            // A state of few bits may round to the other side, which is a small part of a step of 0.01.
            let most = if rule == small(Precision::F32) { 1e-5 } else { 3e-3 };
            assert_close(rule, most, (&expected, &got));
        }
    }
}
