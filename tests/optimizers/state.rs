//! Optimizers keep copies, averages and states of 8 and 16 bits for the parameters, on any device and in
//! files.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use fusion::optim::{Adam, AdamW, Arena, Optimizer, Precision, Rule, Sgd};
use fusion::prelude::*;

use super::devices::{devices, on_devices};
use super::{bits, of_points, point};

const LEN: usize = 5000;

/// Creates an arena with a tensor in blocks, whose last is partial, and two small tensors outside of blocks.
pub(super) fn model(device: &Device) -> Result<Arena> {
    let tensors =
        [of_points(device, 70, 3, 1.0)?, of_points(device, LEN, 0, 1.0)?, of_points(device, 1, 5, 1.0)?];
    Arena::new(device, ["bias", "weight", "gain"].into_iter().zip(&tensors))
}

/// Returns the gradients of a step. Bad gradients have an element that is not finite.
fn gradients(params: &Arena, step: usize, bad: bool) -> Result<Arena> {
    let mut grads = params.zeros_like()?;
    for (i, (name, tensor)) in params.iter().enumerate() {
        let mut elements = of_points(&Device::cpu(), tensor.len(), 10 * step + i, 1.0)?.to_vec()?;
        if bad {
            elements[0] = f32::NAN;
        }
        grads.set(name, &Tensor::from_vec(&Device::cpu(), elements, tensor.shape())?)?;
    }
    Ok(grads)
}

/// Takes a step with the gradients of its number.
pub(super) fn take(optimizer: &mut Optimizer, params: &mut Arena, step: usize, bad: bool) -> Result<()> {
    let grads = gradients(params, step, bad)?;
    optimizer.step(params, &grads)
}

/// Returns a path that no other test writes.
pub(super) fn fresh_path() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("fusion-state-{}-{number}", std::process::id()))
}

pub(super) fn eight_bits() -> Rule {
    AdamW { lr: 0.01, state: Precision::Bits8, ..AdamW::default() }.into()
}

pub(super) fn sixteen_bits() -> Rule {
    AdamW { lr: 0.01, state: Precision::Bf16, ..AdamW::default() }.into()
}

pub(super) fn all(params: &Arena) -> Result<Vec<f32>> {
    Ok(params.iter().map(|(_, tensor)| tensor.to_vec()).collect::<Result<Vec<_>>>()?.concat())
}

/// Copies are the parameters in their type and averages follow their formula, in either order and with any
/// rule.
#[test]
fn copies_and_averages_follow() {
    let rules = [super::rules(), vec![eight_bits(), sixteen_bits()]].concat();
    on_devices(|device| {
        for &rule in &rules {
            for (order, clips) in [(0, false), (0, true), (1, true), (2, false)] {
                let (mut params, mut alone) = (model(device)?, model(device)?);
                let (mut optimizer, mut other) =
                    (Optimizer::new(rule, &params)?, Optimizer::new(rule, &alone)?);
                for copy in 0..3 {
                    optimizer = match (copy + order) % 3 {
                        0 => optimizer.with_average(0.75, &params)?,
                        1 => optimizer.with_copy::<f16>(&params)?,
                        _ => optimizer.with_copy::<bf16>(&params)?,
                    };
                }
                if clips {
                    (optimizer, other) = (optimizer.with_max_norm(10.0), other.with_max_norm(10.0));
                }
                let mut average: Vec<f64> = all(&params)?.into_iter().map(f64::from).collect();
                for step in 1..=4 {
                    let bad = clips && step == 3;
                    let before = bits(&params)?;
                    take(&mut optimizer, &mut params, step, bad)?;
                    assert_eq!(bits(&params)? == before, bad, "{device}: {rule:?}");
                    take(&mut other, &mut alone, step, bad)?;
                    assert_eq!(bits(&params)?, bits(&alone)?, "{device}: {rule:?}");
                    let now = all(&params)?;
                    if !bad {
                        let pairs = average.iter_mut().zip(&now);
                        pairs.for_each(|(average, &p)| *average = 0.75 * *average + 0.25 * f64::from(p));
                    }
                    let halves = optimizer.copy::<f16>().expect("a copy");
                    let brains = optimizer.copy::<bf16>().expect("a copy");
                    let averages = all(optimizer.average().expect("an average"))?;
                    let halves =
                        halves.iter().map(|(_, half)| half.to_vec()).collect::<Result<Vec<_>>>()?.concat();
                    let brains =
                        brains.iter().map(|(_, brain)| brain.to_vec()).collect::<Result<Vec<_>>>()?.concat();
                    for (i, p) in now.into_iter().enumerate() {
                        assert_eq!(
                            (halves[i], brains[i]),
                            (f16::from_f32(p), bf16::from_f32(p)),
                            "{device}: {rule:?}"
                        );
                        let error = (f64::from(averages[i]) - average[i]).abs();
                        assert!(error <= 1e-6, "{device}: {rule:?}: {} not {}", averages[i], average[i]);
                    }
                }
            }
        }
        Ok(())
    });
}

/// The 8-bit state of `weight`, for means and for squares: signed codes and the units of their blocks.
struct Codes {
    codes: [Vec<i32>; 2],
    units: [Vec<f32>; 2],
}

impl Codes {
    fn of(optimizer: &Optimizer, params: &Arena) -> Result<Codes> {
        let path = fresh_path();
        optimizer.save(&path, params)?;
        let bytes = std::fs::read(&path).expect("it was written");
        std::fs::remove_file(&path).expect("it was written");
        let file = safetensors::SafeTensors::deserialize(&bytes).expect("it is whole");
        let data = |name: &str| file.tensor(name).expect("it is there").data().to_vec();
        let units = |name: &str| {
            let bytes = data(name);
            bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four"))).collect()
        };
        assert_eq!(data("bias.exp_avg").len(), 70 * 4);
        Ok(Codes {
            codes: [
                data("weight.exp_avg").into_iter().map(signed).collect(),
                data("weight.exp_avg_sq").into_iter().map(i32::from).collect(),
            ],
            units: ["weight.exp_avg.unit", "weight.exp_avg_sq.unit"].map(units),
        })
    }

    /// Decodes the codes `away` steps from those of an element's mean and mean of squares.
    fn value(&self, i: usize, away: i32) -> [f64; 2] {
        [0, 1].map(|kind| {
            let code = self.codes[kind][i] + away;
            let part = [part_of_mean, part_of_squares][kind](code);
            part * f64::from(self.units[kind][i / 256])
        })
    }
}

/// Decodes the sign of a mean's code, which is its highest bit.
fn signed(code: u8) -> i32 {
    let size = i32::from(code & 127);
    if code > 127 { -size } else { size }
}

/// Returns the number with a code's exponent and three digits, from 2 on. Each power of two has eight codes.
fn of_code(code: i32) -> f64 {
    f64::from(8 + code.rem_euclid(8)) / 4.0 * f64::from(code.div_euclid(8)).exp2()
}

/// Decodes a mean's code in units of its block: from 0 to 1, with either sign.
fn part_of_mean(code: i32) -> f64 {
    ((of_code(code.abs()) - 2.0) / (of_code(127) - 2.0)).copysign(code.into())
}

/// Decodes a code of a mean of squares in units of its block. No code is 0.
fn part_of_squares(code: i32) -> f64 {
    (of_code(code) - 1.875) / (of_code(255) - 2.0)
}

/// The decoded value of an 8-bit code is at most one code from the mean that it encodes.
#[test]
fn codes_are_near_what_they_stand_for() {
    on_devices(|device| {
        let mut params = model(device)?;
        let mut optimizer = Optimizer::new(eight_bits(), &params)?;
        let grads = gradients(&params, 1, false)?;
        optimizer.step(&mut params, &grads)?;
        let codes = Codes::of(&optimizer, &params)?;
        assert_eq!((codes.codes[0].len(), codes.units[0].len()), (LEN, LEN.div_ceil(256)));
        for (i, g) in grads["weight"].to_vec()?.into_iter().enumerate() {
            let [m, v] = [0.1 * f64::from(g), 0.001 * f64::from(g).powi(2)];
            let ([m0, v0], [m1, v1]) = (codes.value(i, -1), codes.value(i, 1));
            assert!((m0..=m1).contains(&m), "{device}: {m} is not from {m0} to {m1}");
            assert!(v0 < v && v < v1, "{device}: {v} is not from {v0} to {v1}");
        }
        Ok(())
    });
}

/// Stochastic rounding does not take the largest element of a block past the last code, to that of 0.
#[test]
fn units_have_the_last_codes() {
    const BLOCKS: usize = 4096;
    on_devices(|device| {
        let tensors =
            [("weight", Tensor::zeros(device, [256 * BLOCKS])?), ("bias", Tensor::zeros(device, [70])?)];
        let mut params = Arena::new(device, tensors.iter().map(|(name, tensor)| (*name, tensor)))?;
        let mut optimizer = Optimizer::new(eight_bits(), &params)?;
        let mut grads = params.zeros_like()?;
        for step in 0..3 {
            let largest = |i: usize| (1.0 + point(i, step).abs()) * 2f32.powi(i as i32 / 256 % 40 - 20);
            let gradient = (0..256 * BLOCKS).map(|i| if i % 256 == 7 { largest(i) } else { 0.0 }).collect();
            grads.set("weight", &Tensor::from_vec(device, gradient, [256 * BLOCKS])?)?;
            optimizer.step(&mut params, &grads)?;
            let codes = Codes::of(&optimizer, &params)?;
            for i in (7..256 * BLOCKS).step_by(256) {
                assert!((126..=127).contains(&codes.codes[0][i].abs()), "{device}: {}", codes.codes[0][i]);
                assert!((254..=255).contains(&codes.codes[1][i]), "{device}: {}", codes.codes[1][i]);
            }
        }
        Ok(())
    });
}

/// Means over many steps are unbiased. Codes that are always rounded down would be 2 % too small here.
#[test]
fn codes_are_right_on_average() {
    on_devices(|device| {
        let mut params = model(device)?;
        let mut optimizer = Optimizer::new(eight_bits(), &params)?;
        let mut grads = params.zeros_like()?;
        // The first element of a block determines its unit.
        let gradient = (0..LEN).map(|i| if i % 256 == 0 { 2.0 } else { 1.0 }).collect();
        grads.set("weight", &Tensor::from_vec(device, gradient, [LEN])?)?;
        for _ in 0..80 {
            optimizer.step(&mut params, &grads)?;
        }
        let codes = Codes::of(&optimizer, &params)?;
        let ones = (0..LEN).filter(|i| i % 256 != 0);
        let sums = ones.clone().map(|i| codes.value(i, 0)).fold([0.0; 2], |[m, v], [a, b]| [m + a, v + b]);
        let [m, v] = sums.map(|sum| sum / ones.clone().count() as f64);
        let (expected_m, expected_v) = (1.0 - 0.9_f64.powi(80), 1.0 - 0.999_f64.powi(80));
        assert!((m / expected_m - 1.0).abs() < 0.01, "{device}: {m}, not {expected_m}");
        assert!((v / expected_v - 1.0).abs() < 0.02, "{device}: {v}, not {expected_v}");
        Ok(())
    });
}

/// Training with 8-bit state follows training in f32, with slowly changing means, too. Small tensors follow
/// it exactly.
#[test]
fn eight_bits_go_the_way_of_all() -> Result<()> {
    let device = Device::cpu();
    let f32s = AdamW { lr: 0.01, ..AdamW::default() };
    let mut losses = vec![];
    for rule in [Rule::from(f32s), eight_bits()] {
        let mut params = model(&device)?;
        let mut optimizer = Optimizer::new(rule, &params)?;
        let mut grads = params.zeros_like()?;
        for step in 0..400 {
            // The loss is half the squared distance from 3, with a scale for each element, plus noise.
            let weight = params["weight"].to_vec()?.into_iter().enumerate();
            let unit = |i: usize| 10f32.powi(i as i32 % 4 - 2);
            let gradient = weight.map(|(i, p)| unit(i) * (p - 3.0 + 0.3 * point(i, step))).collect();
            grads.set("weight", &Tensor::from_vec(&device, gradient, [LEN])?)?;
            grads.set("bias", &params["bias"].clone())?;
            optimizer.step(&mut params, &grads)?;
        }
        let loss = params["weight"].to_vec()?.into_iter().map(|p| f64::from(p - 3.0).powi(2)).sum::<f64>();
        losses.push((loss / LEN as f64, params["bias"].to_vec()?));
    }
    assert!(losses[1].0 < 1.2 * losses[0].0 + 1e-3, "{} and {}", losses[0].0, losses[1].0);
    assert_eq!(losses[0].1, losses[1].1);
    Ok(())
}

/// Parameters and state continue on another device after a move.
#[test]
fn state_moves_between_devices() {
    let all_devices = devices();
    for rule in [eight_bits(), sixteen_bits(), AdamW::default().into()] {
        for (_, from) in &all_devices {
            for (_, to) in &all_devices {
                let run = |moves: bool| -> Result<(Vec<f32>, Vec<f32>, u64)> {
                    let mut params = model(from)?;
                    let mut optimizer =
                        Optimizer::new(rule, &params)?.with_max_norm(5.0).with_average(0.9, &params)?;
                    for step in 1..=6 {
                        if moves && step == 4 {
                            (params, optimizer) = (params.to(to)?, optimizer.to(to)?);
                        }
                        take(&mut optimizer, &mut params, step, step == 2)?;
                    }
                    let average = all(optimizer.average().expect("an average"))?;
                    Ok((all(&params)?, average, optimizer.steps()?))
                };
                let [moved, stayed] = [true, false].map(|moves| run(moves).expect("devices work"));
                assert_eq!((moved.2, stayed.2), (5, 5));
                let apart =
                    |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                // A code that rounds the other way is a small part of a step of 0.01.
                let most = if rule == AdamW::default().into() { 1e-6 } else { 2e-3 };
                assert!(
                    apart(&moved.0, &stayed.0) <= most,
                    "{rule:?}: {from} to {to}: {}",
                    apart(&moved.0, &stayed.0)
                );
                assert!(apart(&moved.1, &stayed.1) <= most, "{rule:?}: {from} to {to}");
            }
        }
    }
}

/// Small states that are saved, loaded elsewhere and continued have the bits of uninterrupted ones.
#[test]
fn small_states_are_saved() {
    for rule in [eight_bits(), sixteen_bits()] {
        check_saved(rule);
    }
}

fn check_saved(rule: Rule) {
    on_devices(|device| {
        let path = fresh_path();
        let mut params = model(device)?;
        let mut optimizer = Optimizer::new(rule, &params)?.with_copy::<bf16>(&params)?;
        for step in 1..=3 {
            take(&mut optimizer, &mut params, step, false)?;
        }
        optimizer.save(&path, &params)?;
        let mut loaded = params.zeros_like()?;
        let mut other = Optimizer::new(rule, &loaded)?.with_copy::<bf16>(&loaded)?;
        other.load(&path, &mut loaded)?;
        std::fs::remove_file(&path).expect("it was written");
        let copy = |optimizer: &Optimizer| optimizer.copy::<bf16>().expect("a copy")["weight"].to_vec();
        assert_eq!(copy(&optimizer)?, copy(&other)?, "{device}");
        for step in 4..=6 {
            take(&mut optimizer, &mut params, step, false)?;
            take(&mut other, &mut loaded, step, false)?;
        }
        assert_eq!((bits(&params)?, copy(&optimizer)?), (bits(&loaded)?, copy(&other)?), "{device}");
        Ok(())
    });
}

/// Reads the 16-bit state of `weight` from a file: means, and means of squares.
fn halves_of(optimizer: &Optimizer, params: &Arena) -> Result<[Vec<f64>; 2]> {
    let path = fresh_path();
    optimizer.save(&path, params)?;
    let bytes = std::fs::read(&path).expect("it was written");
    std::fs::remove_file(&path).expect("it was written");
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("it is whole");
    Ok(["weight.exp_avg", "weight.exp_avg_sq"].map(|name| {
        let tensor = file.tensor(name).expect("it is there");
        assert_eq!(tensor.dtype(), safetensors::Dtype::BF16);
        let halves = tensor.data().chunks_exact(2);
        halves.map(|half| bf16::from_le_bytes(half.try_into().expect("two")).to_f64()).collect()
    }))
}

/// A 16-bit mean is one of the two numbers around its value, and equals it on average. Each of 60 steps loses
/// a thousandth of the value, which is less than half the distance of the two. Rounding to nearest would
/// leave the mean unchanged, 6 % too large.
///
/// A step adds at most ulp²/4 to the variance of an element, where ulp is 2⁻⁷ of it or less. After 60 steps
/// the deviation is at most √60 · 2⁻⁸, or 3.1 %, and that of the mean of 5000 elements 0.043 %. The bound is
/// ten times that.
#[test]
fn halves_are_right_on_average() {
    on_devices(|device| {
        let mut params = model(device)?;
        let betas = [0.999, 0.999];
        let rule = Adam { betas, state: Precision::Bf16, ..Adam::default() };
        let mut optimizer = Optimizer::new(rule, &params)?;
        let mut grads = params.zeros_like()?;
        grads.set("weight", &Tensor::full(device, 33.3, [LEN])?)?;
        optimizer.step(&mut params, &grads)?;
        let exact = [0.0333, 0.001 * 33.3 * 33.3];
        for (halves, exact) in halves_of(&optimizer, &params)?.into_iter().zip(exact) {
            let two = [exact * (1.0 - 1.0 / 128.0), exact * (1.0 + 1.0 / 128.0)];
            assert!(halves.iter().all(|half| (two[0]..two[1]).contains(half)), "{device}: {exact}");
            let mut different = halves;
            different.sort_by(f64::total_cmp);
            different.dedup();
            assert_eq!(different.len(), 2, "{device}: {different:?}");
        }
        let nothing = params.zeros_like()?;
        for _ in 0..60 {
            optimizer.step(&mut params, &nothing)?;
        }
        for (halves, exact) in halves_of(&optimizer, &params)?.into_iter().zip(exact) {
            let (mean, expected) = (halves.iter().sum::<f64>() / LEN as f64, exact * 0.999_f64.powi(60));
            assert!((mean / expected - 1.0).abs() < 4.3e-3, "{device}: {mean}, not {expected}");
        }
        Ok(())
    });
}

/// Parameters stay within the effect of rounding the two means. Each is rounded by at most 2⁻⁷ of itself at
/// each step, and a share of β remains at the next. Half of the squares' relative error reaches a step,
/// because of the square root.
#[test]
fn halves_go_the_way_of_exact_means() {
    const STEPS: usize = 12;
    let (lr, betas, ulp) = (0.01, [0.9_f64, 0.95], 1.0 / 128.0);
    on_devices(|device| {
        let mut params = Arena::new(device, [("weight", &of_points(device, LEN, 0, 1.0)?)])?;
        let mut optimizer = Optimizer::new(
            AdamW { lr, betas, weight_decay: 0.1, state: Precision::Bf16, ..AdamW::default() },
            &params,
        )?;
        for step in 1..=STEPS {
            let mut grads = params.zeros_like()?;
            grads.set("weight", &of_points(device, LEN, step, 1.0)?)?;
            optimizer.step(&mut params, &grads)?;
        }
        let mut farthest = 0.0_f64;
        for (i, got) in params["weight"].to_vec()?.into_iter().enumerate() {
            let (mut p, mut off) = (f64::from(point(i, 0)), 0.0);
            // Means, and the largest distances of the stored values from them.
            let ([mut m, mut v], [mut m_off, mut v_off]) = ([0.0, 0.0], [0.0, 0.0]);
            for step in 1..=STEPS {
                let g = f64::from(point(i, step));
                m = betas[0] * m + (1.0 - betas[0]) * g;
                v = betas[1] * v + (1.0 - betas[1]) * g * g;
                (m_off, v_off) = (betas[0] * m_off, betas[1] * v_off);
                let [first, second] = betas.map(|beta| 1.0 - beta.powi(step as i32));
                let size = |v: f64| (v / second).sqrt() + 1e-8;
                // Both values contain the new square, so no less than that remains.
                let least = (v - v_off).max((1.0 - betas[1]) * g * g);
                let step_off = (m.abs() + m_off) / size(least) - m.abs() / size(v);
                off += lr * step_off / first;
                p = p * (1.0 - lr * 0.1) - lr * m / first / size(v);
                m_off += ulp * (m.abs() + m_off);
                v_off += ulp * (v + v_off);
            }
            let error = (f64::from(got) - p).abs();
            assert!(error <= off + 1e-6, "{device}: element {i}: {got}, not {p} ± {off}");
            farthest = farthest.max(error);
        }
        assert!(farthest > 1e-5, "{device}: nothing was rounded");
        Ok(())
    });
}

/// A skipped step does not count, even with a factor on the gradients. A count that is one too high would
/// make the second step 14 % smaller. Small states round differently after a skipped step, by a few
/// hundredths of a step.
#[test]
fn skipped_steps_do_not_count() {
    on_devices(|device| {
        let followed = AdamW { lr: 0.01, ..AdamW::default() }.into();
        for (rule, most) in [(followed, 0.0), (eight_bits(), 0.05), (sixteen_bits(), 0.05)] {
            let run = |bad: &[bool]| -> Result<Vec<f32>> {
                let mut params = model(device)?;
                let mut optimizer =
                    Optimizer::new(rule, &params)?.with_average(0.5, &params)?.with_max_norm(100.0);
                let mut step = 0;
                for &bad in bad {
                    step += usize::from(!bad);
                    take(&mut optimizer, &mut params, step, bad)?;
                }
                assert_eq!(optimizer.steps()?, 2);
                all(&params)
            };
            let (with, without) = (run(&[false, true, false])?, run(&[false, false])?);
            let apart = with.iter().zip(&without).map(|(a, b)| f64::from(a - b).abs()).sum::<f64>();
            let share = apart / with.len() as f64 / 0.01;
            assert!(share <= most, "{device}: {rule:?}: {share} of a step");
        }
        Ok(())
    });
}

#[test]
fn what_cannot_be_is_an_error() -> Result<()> {
    let device = Device::cpu();
    let mut params = model(&device)?;
    let message = |result: Result<Optimizer>| result.map(|_| ()).expect_err("it is wrong").to_string();
    let amsgrad = Adam { amsgrad: true, state: Precision::Bits8, ..Adam::default() };
    assert!(message(Optimizer::new(amsgrad, &params)).contains("amsgrad"));
    let amsgrad = Adam { state: Precision::Bf16, ..amsgrad };
    assert!(message(Optimizer::new(amsgrad, &params)).contains("has no state in `Precision::Bf16`"));
    let twice = Optimizer::new(eight_bits(), &params)?.with_average(0.5, &params)?.with_average(0.6, &params);
    assert!(message(twice).contains("is there already"));
    // Gradients that are not finite are reported once each where the option is set, and nothing changes.
    for rule in [eight_bits(), sixteen_bits(), Sgd::default().into()] {
        let mut optimizer = Optimizer::new(rule, &params)?.with_error_if_nonfinite();
        take(&mut optimizer, &mut params, 1, false)?;
        let before = bits(&params)?;
        let refused = take(&mut optimizer, &mut params, 2, true).expect_err("it is NaN");
        assert!(refused.to_string().starts_with("the gradients of step 2 are not all finite"), "{refused}");
        assert_eq!(bits(&params)?, before);
        take(&mut optimizer, &mut params, 3, false)?;
        assert_eq!(optimizer.steps()?, 2);
    }
    // Names that collide in a file.
    let one = Tensor::full(&device, 1.0, [2])?;
    let named = Arena::new(&device, [("w", &one), ("w.exp_avg", &one)])?;
    let path = fresh_path();
    let refused = Optimizer::new(AdamW::default(), &named)?.save(&path, &named).expect_err("they collide");
    assert!(refused.to_string().contains("`w.exp_avg` is both"), "{refused}");
    assert!(!path.exists());
    Ok(())
}

/// Reported bytes are those of memory, and the suggestions keep their promises.
#[test]
fn statistics_tell_bytes() {
    on_devices(|device| {
        let tensors = [Tensor::full(device, 1.0, [1 << 20])?, Tensor::full(device, 1.0, [3])?];
        let mut params = Arena::new(device, ["weight", "gain"].into_iter().zip(&tensors))?;
        let grads = params.zeros_like()?;
        let mut optimizer = Optimizer::new(AdamW::default(), &params)?;
        let told = optimizer.statistics(&params)?;
        let elements = (1 << 20) + 64;
        assert_eq!((told.tensors, told.parameter_bytes, told.state_bytes), (2, 4 * elements, 8 * elements));
        assert_eq!((told.step_bytes, told.measured), (28 * elements, None));
        assert!(told.efficiency > 0.999 && told.suggestions.len() == 1, "{told}");
        let eight = Optimizer::new(eight_bits(), &params)?;
        let saved = told.state_bytes - eight.statistics(&params)?.state_bytes;
        assert!(told.suggestions[0].contains(&format!("would hold {saved} bytes fewer")), "{told}");
        assert_eq!(eight.statistics(&params)?.suggestions, [""; 0]);
        optimizer.step(&mut params, &grads)?;
        let measured = optimizer.measured_step(&mut params, &grads)?;
        let Some(times) = measured.measured else { panic!("it was measured") };
        assert!(times.time.as_secs_f64() > 0.0 && times.copy_bytes_per_second > 0.0);
        let bytes = times.bytes_per_second * times.time.as_secs_f64();
        assert!((bytes / (28 * elements) as f64 - 1.0).abs() < 1e-6, "{measured}");
        assert_eq!(times.utilization(2.0 * times.bytes_per_second), 0.5);
        let clipped =
            Optimizer::new(Sgd::default(), &params)?.with_max_norm(1.0).with_copy::<f16>(&params)?;
        assert_eq!(clipped.statistics(&params)?.step_bytes, (8 + 8 + 4) * elements);
        let two =
            Optimizer::new(Sgd::default(), &params)?.with_copy::<f16>(&params)?.with_average(0.5, &params)?;
        assert_eq!(two.statistics(&params)?.step_bytes, (12 + 4 + 4 + 8) * elements);
        // Gains of a thousand layers, each in 256 bytes.
        let gains: Vec<(String, &Tensor<f32>)> =
            (0..1000).map(|i| (format!("gain{i}"), &tensors[1])).collect();
        let gains = Arena::new(device, gains)?;
        let tiny = Optimizer::new(Sgd::default(), &gains)?.statistics(&gains)?;
        assert!(
            tiny.suggestions[0].starts_with("1000 of 1000 tensors have fewer than 64 elements, and 95 %"),
            "{tiny}"
        );
        let odd = Tensor::full(device, 1.0, [65])?;
        let odd = Arena::new(device, (0..10).map(|i| (format!("odd{i}"), &odd)))?;
        let odd = Optimizer::new(Sgd::default(), &odd)?.statistics(&odd)?;
        let expected = "10 of 10 tensors have a number of elements that is no multiple of 64, and 49 %";
        assert!(odd.suggestions[0].starts_with(expected), "{odd}");
        Ok(())
    });
}

fuse! {
    pub(crate) fn tripled(x: f32[N]) -> f32[N] { 3.0 * x }
    pub(crate) fn doubled(x: &mut f32[N]) { x *= 2.0; }
    // The old content is read at other places, so the result gets new memory.
    pub(crate) fn turned(x: &mut f32[N]) { x = flip(x, N); }
}

/// A function writes its result into the gradient's memory, out of place or in place. Any other tensor is
/// copied into it.
#[test]
fn gradients_are_written_in_place() {
    on_devices(|device| {
        let mut grads = model(device)?;
        let (weight, bias) = (grads["weight"].to_vec()?, grads["bias"].to_vec()?);
        let x = of_points(device, 70, 1, 1.0)?;
        grads.write_to("bias", |g| tripled::into(g, &x))?;
        let expect: Vec<f32> = x.to_vec()?.into_iter().map(|x| 3.0 * x).collect();
        assert_eq!(grads["bias"].to_vec()?, expect, "{device}");
        grads.write_to("bias", doubled)?;
        grads.write_to("bias", turned)?;
        let expect: Vec<f32> = expect.into_iter().rev().map(|x| 2.0 * x).collect();
        assert_eq!(grads["bias"].to_vec()?, expect, "{device}");
        // A tensor that is taken out keeps its elements, and is no longer part of the arena.
        let mut taken = grads.write_to("bias", |g| Ok(std::mem::replace(g, x.clone())))?;
        doubled(&mut taken)?;
        assert_eq!(grads["bias"].to_vec()?, x.to_vec()?, "{device}");
        assert_eq!(taken.to_vec()?[0], 2.0 * expect[0], "{device}");
        // A clone keeps its elements, too.
        let mut clone = grads.write_to("bias", |g| Ok(g.clone()))?;
        doubled(&mut clone)?;
        assert_eq!(grads["bias"].to_vec()?, x.to_vec()?, "{device}");
        assert!(
            grads
                .write_to("bias", |g| {
                    *g = Tensor::zeros(device, [3])?;
                    Ok(())
                })
                .is_err()
        );
        assert!(grads.write_to("none", doubled).is_err());
        assert_eq!(grads["weight"].to_vec()?, weight, "{device}");
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            grads.write_to("bias", |_| -> Result<()> { panic!("on purpose") })
        }));
        assert!(panics.is_err());
        assert_eq!((grads["bias"].len(), grads["weight"].to_vec()?), (bias.len(), weight), "{device}");
        Ok(())
    });
}
