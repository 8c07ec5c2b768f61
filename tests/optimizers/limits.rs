//! Decays, rates, names and counts at their ends, and beyond.

use fusion::optim::{AdamW, Arena, Optimizer, Sgd};
use fusion::prelude::*;

use super::bits;
use super::devices::on_devices;
use super::state::{all, eight_bits, fresh_path, model, sixteen_bits, take};

/// Averages with decays at the ends and near them, of numbers far apart.
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

/// What follows other parameters is told, and nothing changes.
#[test]
fn followers_are_of_the_same_parameters() {
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

/// A rate that no step can be taken with is not set, and not saved.
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
