//! Decays, rates, names and counts at their limits and beyond them.

use fusion::optim::{Adam, AdamW, Arena, GradScaler, Optimizer, Precision, RmsProp, Rule, Sgd};
use fusion::prelude::*;

use super::bits;
use super::devices::{gpus, on_devices};
use super::state::{all, eight_bits, fresh_path, model, sixteen_bits, take};

/// Averages of numbers far apart, with decays at the limits and near them.
#[test]
fn averages_of_all_decays() {
    on_devices(|device| {
        for decay in [0.0, 0.5, 0.99999, 0.999999, 1.0] {
            let start = Tensor::from_slice(device, &[1.0, 1.0, 0.0], [3])?;
            let mut params = Arena::new(device, [("p", &start)])?;
            let sgd = Sgd { lr: 1.0, ..Sgd::default() };
            let mut optimizer = Optimizer::new(sgd, &params)?.with_average(decay, &params)?;
            let mut grads = params.zeros_like()?;
            grads.set("p", &Tensor::from_slice(device, &[-1e10, 1e30, -1.0], [3])?)?;
            optimizer.step(&mut params, &grads)?;
            let new = [1e10, -1e30, 1.0];
            for ((got, new), old) in
                all(optimizer.average().expect("one"))?.into_iter().zip(new).zip([1.0, 1.0, 0.0])
            {
                let expected = old + (new - old) * (1.0 - decay);
                let error = (f64::from(got) - expected).abs();
                assert!(error <= 1e-6 * expected.abs(), "{device}: {decay}: {got}, not {expected}");
            }
        }
        let params = model(device)?;
        for decay in [-0.1, 1.5, f64::NAN, f64::INFINITY] {
            let refused = Optimizer::new(Sgd::default(), &params)?.with_average(decay, &params);
            let refused = refused.expect_err("no decay").to_string();
            assert!(refused.contains("it must be from 0 to 1"), "{refused}");
        }
        Ok(())
    });
}

fuse! {
    pub(crate) fn total(x: f32[N]) -> f32[] { sum(x) }
}

/// A partial block does not divide 0 by 0 where `eps` is 0, and neither does a block without a gradient so
/// far.
#[test]
fn blocks_without_eps() {
    on_devices(|device| {
        for eps in [0.0, 1e-50] {
            let start = Tensor::full(device, 1.0, [4097])?;
            let mut params = Arena::new(device, [("weight", &start)])?;
            let mut grads = params.zeros_like()?;
            let elements: Vec<f32> = (0..4097).map(|i| if i % 7 == 3 { 0.0 } else { 1.0 }).collect();
            grads.set("weight", &Tensor::from_slice(device, &elements, [4097])?)?;
            let rule =
                AdamW { lr: 0.01, weight_decay: 0.0, eps, state: Precision::Bits8, ..AdamW::default() };
            let mut optimizer = Optimizer::new(rule, &params)?;
            (0..3).try_for_each(|_| optimizer.step(&mut params, &grads))?;
            for (i, (p, g)) in params["weight"].to_vec()?.into_iter().zip(elements).enumerate() {
                let expected = if g == 0.0 { 1.0 } else { 0.97 };
                assert!((p - expected).abs() < 2e-3, "{device}: {i}: {p}, not {expected}");
            }
        }
        Ok(())
    });
}

/// A tensor without elements is a part of an arena like others, even as the last tensor.
#[test]
fn tensors_without_elements() {
    on_devices(|device| {
        let (weight, none) = (Tensor::full(device, 1.0, [4096])?, Tensor::zeros(device, [0])?);
        let mut params = Arena::new(device, [("weight", &weight), ("none", &none)])?;
        assert_eq!((total(&params["none"])?.item()?, total(&params["weight"])?.item()?), (0.0, 4096.0));
        let grads = Arena::new(device, [("weight", &weight), ("none", &none)])?;
        Optimizer::new(Sgd { lr: 1.0, ..Sgd::default() }, &params)?.step(&mut params, &grads)?;
        assert_eq!(total(&params["weight"])?.item()?, 0.0);
        Ok(())
    });
}

/// A shadow copy of other parameters is reported, and nothing changes.
#[test]
fn shadow_copies_are_of_the_same_parameters() {
    on_devices(|device| {
        for rule in [AdamW::default().into(), eight_bits(), sixteen_bits()] {
            for len in [3, 4096, 9000] {
                let mut params = model(device)?;
                let other = Arena::new(device, [("weight", &Tensor::full(device, 1.0, [len])?)])?;
                let mut optimizer =
                    Optimizer::new(rule, &params)?.with_average(0.5, &params)?.with_copy::<f16>(&other)?;
                let before = bits(&params)?;
                let refused =
                    take(&mut optimizer, &mut params, 1, false).expect_err("another arena").to_string();
                assert!(refused.contains("what follows them: make it of these parameters"), "{refused}");
                assert_eq!((bits(&params)?, optimizer.steps()?), (before, 0));
                assert!(optimizer.save(fresh_path(), &params).is_err());
            }
        }
        Ok(())
    });
}

/// An arena of another model, of as many elements or on another device, is reported by the user's names.
/// Nothing changes.
#[test]
fn parameters_are_those_that_it_was_made_for() {
    let tensor = |device: &Device, len: usize| Tensor::full(device, 0.5, [len]);
    on_devices(|device| {
        for rule in [Sgd::default().into(), AdamW::default().into(), eight_bits(), sixteen_bits()] {
            let params =
                Arena::new(device, [("embedding", &tensor(device, 256)?), ("head", &tensor(device, 64)?)])?;
            let mut other =
                Arena::new(device, [("head", &tensor(device, 64)?), ("x", &tensor(device, 200)?)])?;
            assert_eq!(params.bytes(), other.bytes());
            let mut optimizer = Optimizer::new(rule, &params)?.with_average(0.5, &params)?;
            let grads = other.zeros_like()?;
            let before = bits(&other)?;
            let refused = optimizer.step(&mut other, &grads).expect_err("another model").to_string();
            let told = "has shape [200] among the parameters, and is missing among those that the optimizer was made for";
            assert_eq!(refused, format!("parameter `x` {told}"));
            assert_eq!(bits(&other)?, before);
            assert!(optimizer.save(fresh_path(), &other).is_err());
        }
        Ok(())
    });
    let cpu = Device::cpu();
    for gpu in gpus() {
        for rule in [Sgd::default().into(), AdamW::default().into(), eight_bits(), sixteen_bits()] {
            let test = || -> Result<()> {
                let (mut here, mut there) = (model(&cpu)?, model(&gpu)?);
                let (mut optimizer, path) =
                    (Optimizer::new(rule, &there)?.with_copy::<f16>(&there)?, fresh_path());
                optimizer.save(&path, &there)?;
                let before = bits(&here)?;
                let (grads, zeros) = (here.zeros_like()?, there.zeros_like()?);
                let loaded = optimizer.load(&path, &mut here).expect_err("another device").to_string();
                std::fs::remove_file(&path).expect("it was written");
                let stepped = optimizer.step(&mut here, &grads).expect_err("another device").to_string();
                let mend = format!("are on {cpu}, and the optimizer is on {gpu}: move one of them with `to`");
                assert_eq!([loaded, stepped], [(); 2].map(|()| format!("parameter `parameters` {mend}")));
                assert_eq!(bits(&here)?, before);
                let refused = optimizer.step(&mut there, &grads).expect_err("another device").to_string();
                assert_eq!(refused, format!("parameter `gradients` {mend}"));
                *optimizer.lr_mut() = Tensor::full(&gpu, 0.5, [2])?;
                let refused = optimizer.step(&mut there, &zeros).expect_err("two rates").to_string();
                assert!(
                    refused.starts_with("parameter `lr` has shape [2]") && refused.contains("one number"),
                    "{refused}"
                );
                *optimizer.lr_mut() = Tensor::full(&gpu, 0.5, [])?;
                let scaler = GradScaler::new(&cpu)?;
                let refused = optimizer.step_scaled(&mut there, &zeros, &scaler).expect_err("another device");
                assert!(
                    refused.to_string().starts_with("parameter `scale` has shape [] and is on CPU"),
                    "{refused}"
                );
                let mut scaler = scaler;
                let updated = scaler.update([&mut optimizer]).expect_err("another device").to_string();
                assert_eq!(updated, refused.to_string());
                Ok(())
            };
            test().unwrap_or_else(|error| panic!("{gpu}: {error}"));
        }
    }
}

/// Means that keep little or nothing of earlier, far larger gradients agree with the formulas in f64. One
/// gradient has a square too large for an f32, but its share in the mean is not.
#[test]
fn means_of_all_decays() {
    let adam = |betas| Adam { lr: 0.01, betas, ..Adam::default() };
    let shrinking = [1.0, 1e-4, 1e-4, 3e-8];
    let betas = [[0.0, 0.0], [0.9, 0.0], [0.0, 0.99], [0.4, 0.3], [0.99999, 0.999999]];
    let cases =
        betas.map(|betas| (betas, shrinking)).into_iter().chain([([0.9, 0.999], [2e19, 1.0, -3.0, 1e19])]);
    on_devices(|device| {
        for (betas, gradients) in cases.clone() {
            // RMSprop is Adam without a mean of gradients and without corrections.
            let rms = RmsProp { lr: 0.01, alpha: betas[1], ..RmsProp::default() };
            for (rule, corrects) in [(Rule::from(adam(betas)), true), (rms.into(), false)] {
                let [beta1, beta2] = if corrects { betas } else { [0.0, betas[1]] };
                let mut params = Arena::new(device, [("p", &Tensor::full(device, 1.0, [2])?)])?;
                let mut optimizer = Optimizer::new(rule, &params)?;
                let (mut p, mut m, mut v) = (1.0, 0.0, 0.0);
                for (t, g) in (1..).zip(gradients) {
                    let mut grads = params.zeros_like()?;
                    grads.set("p", &Tensor::full(device, g, [2])?)?;
                    optimizer.step(&mut params, &grads)?;
                    let g = f64::from(g);
                    (m, v) = (beta1 * m + (1.0 - beta1) * g, beta2 * v + (1.0 - beta2) * g * g);
                    let [c1, c2] = [beta1, beta2].map(|beta| if corrects { 1.0 - beta.powi(t) } else { 1.0 });
                    p -= 0.01 * (m / c1) / ((v / c2).sqrt() + 1e-8);
                    let got = f64::from(params["p"].to_vec()?[1]);
                    let error = (got - p).abs() / p.abs();
                    assert!(error <= 2e-6, "{device}: {rule:?}, step {t}: {got}, not {p}");
                }
            }
        }
        Ok(())
    });
}

/// An invalid rate is neither set nor saved.
#[test]
fn rates_that_cannot_be_are_refused() -> Result<()> {
    let device = Device::cpu();
    let params = model(&device)?;
    let mut optimizer = Optimizer::new(AdamW::default(), &params)?;
    for lr in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
        assert!(optimizer.set_lr(lr).is_err(), "{lr}");
        assert!(Optimizer::new(AdamW { lr, ..AdamW::default() }, &params).is_err(), "{lr}");
    }
    assert_eq!(optimizer.lr().item()?, 1e-3);
    *optimizer.lr_mut() = Tensor::full(&device, f32::INFINITY, [])?;
    let path = fresh_path();
    assert!(optimizer.save(&path, &params).is_err() && !path.exists());
    let named = Arena::new(&device, [("__metadata__", &Tensor::full(&device, 1.0, [2])?)])?;
    let refused = Optimizer::new(AdamW::default(), &named)?.save(&path, &named).expect_err("a name of files");
    assert!(refused.to_string().contains("`__metadata__`") && !path.exists(), "{refused}");
    Ok(())
}
