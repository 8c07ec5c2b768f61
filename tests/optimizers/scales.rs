//! Loss scales follow PyTorch's rules, and steps with gradients that are not finite are skipped.

use fusion::optim::{AdamW, Arena, GradScaler, Optimizer, Sgd};
use fusion::prelude::*;

use super::devices::on_devices;
use super::state::fresh_path;
use super::{of_points, rules};

/// A gradient that is not finite changes no parameter, does not count as a step, and shrinks the scale.
#[test]
fn bad_steps_are_skipped() {
    on_devices(|device| {
        for rule in rules() {
            let start = of_points(device, 300, 0, 1.0)?;
            let (mut with, mut without) =
                (Arena::new(device, [("p", &start)])?, Arena::new(device, [("p", &start)])?);
            let mut optimizers = [Optimizer::new(rule, &with)?, Optimizer::new(rule, &without)?];
            let mut scaler = GradScaler::with_scale(device, 4.0, 2)?;
            let same = GradScaler::with_scale(device, 4.0, 1)?;
            for (step, bad) in
                [(1, None), (2, Some(f32::NAN)), (2, None), (3, Some(f32::INFINITY)), (3, None)]
            {
                let mut elements = of_points(device, 300, step, 4.0)?.to_vec()?;
                if let Some(bad) = bad {
                    elements[299] = bad;
                }
                let mut grads = with.zeros_like()?;
                grads.set("p", &Tensor::from_vec(device, elements, [300])?)?;
                optimizers[0].step_scaled(&mut with, &grads, &scaler)?;
                if bad.is_none() {
                    optimizers[1].step_scaled(&mut without, &grads, &same)?;
                }
                let scale = scaler.scale().item()?;
                scaler.update([&mut optimizers[0]])?;
                // The first bad step is tolerated.
                assert_eq!(
                    scaler.scale().item()?,
                    if step == 3 && bad.is_some() { scale / 2.0 } else { scale }
                );
                if step == 3 && bad.is_some() {
                    scaler = GradScaler::with_scale(device, 4.0, 2)?;
                }
            }
            assert_eq!(with["p"].to_vec()?, without["p"].to_vec()?, "{device}: {rule:?}");
            assert_eq!((optimizers[0].steps()?, optimizers[1].steps()?), (3, 3), "{device}: {rule:?}");
        }
        Ok(())
    });
}

/// A saved scale includes its count of steps, so it continues after a load as if uninterrupted.
#[test]
fn scales_are_saved() {
    on_devices(|device| {
        let mut params = Arena::new(device, [("p", &Tensor::full(device, 1.0, [3])?)])?;
        let mut optimizer = Optimizer::new(Sgd::default(), &params)?;
        let mut scaler = GradScaler::with_scale(device, 4.0, 3)?;
        (scaler.growth_interval, scaler.growth_factor, scaler.backoff_factor) = (3, 4.0, 0.25);
        let (mut grads, mut bad) = (params.zeros_like()?, params.zeros_like()?);
        grads.set("p", &Tensor::full(device, 1.0, [3])?)?;
        bad.set("p", &Tensor::full(device, f32::NAN, [3])?)?;
        let path = fresh_path();
        let mut scales = vec![];
        for step in 0..20 {
            let grads = if step % 7 > 4 { &bad } else { &grads };
            optimizer.step_scaled(&mut params, grads, &scaler)?;
            scaler.update([&mut optimizer])?;
            scales.push(scaler.scale().item()?);
            scaler.save(&path)?;
            scaler = GradScaler::new(device)?;
            scaler.load(&path)?;
        }
        let four = [4.0, 4.0, 16.0, 16.0, 16.0, 16.0, 16.0];
        assert_eq!(scales[..7], four, "{device}");
        let mut unbroken = GradScaler::with_scale(device, 4.0, 3)?;
        (unbroken.growth_interval, unbroken.growth_factor, unbroken.backoff_factor) = (3, 4.0, 0.25);
        for (step, scale) in scales.iter().enumerate() {
            let grads = if step % 7 > 4 { &bad } else { &grads };
            optimizer.step_scaled(&mut params, grads, &unbroken)?;
            unbroken.update([&mut optimizer])?;
            assert_eq!(unbroken.scale().item()?, *scale, "{device}: step {step}");
        }
        optimizer.save(&path, &params)?;
        let refused = scaler.load(&path).expect_err("another file").to_string();
        assert!(refused.contains("holds no loss scale"), "{refused}");
        std::fs::write(&path, b"nothing").expect("it can be written");
        assert!(scaler.load(&path).expect_err("no file").to_string().contains("is no whole file"));
        std::fs::remove_file(&path).expect("it was written");
        assert!(scaler.load(&path).is_err() && GradScaler::with_scale(device, -4.0, 1).is_err());
        Ok(())
    });
}

#[test]
fn scales_grow() {
    on_devices(|device| {
        let mut params = Arena::new(device, [("p", &Tensor::full(device, 1.0, [3])?)])?;
        let grads = params.zeros_like()?;
        let mut optimizer = Optimizer::new(Sgd::default(), &params)?;
        let mut scaler = GradScaler::new(device)?;
        scaler.growth_interval = 3;
        let mut scales = vec![];
        for _ in 0..7 {
            optimizer.step_scaled(&mut params, &grads, &scaler)?;
            scaler.update([&mut optimizer])?;
            scales.push(scaler.scale().item()? / 65536.0);
        }
        assert_eq!(scales, [1.0, 1.0, 2.0, 2.0, 2.0, 4.0, 4.0], "{device}");
        // A changed option applies from the next step on.
        let mut bad = params.zeros_like()?;
        bad.set("p", &Tensor::full(device, f32::NAN, [3])?)?;
        scaler.hysteresis = 3;
        let mut scales = vec![];
        for _ in 0..4 {
            optimizer.step_scaled(&mut params, &bad, &scaler)?;
            scaler.update([&mut optimizer])?;
            scales.push(scaler.scale().item()? / 65536.0);
        }
        assert_eq!(scales, [4.0, 4.0, 2.0, 1.0], "{device}");
        Ok(())
    });
}

/// A bad step of one of several groups that share a scaler counts once. Later updates with any scaler do not
/// see it again, and neither does an optimizer that was loaded or learned of errors late.
#[test]
fn one_bad_step_of_a_group_is_one() {
    on_devices(|device| {
        let ones = Tensor::full(device, 1.0, [3])?;
        let mut groups = [Arena::new(device, [("p", &ones)])?, Arena::new(device, [("q", &ones)])?];
        let mut optimizers =
            [Optimizer::new(AdamW::default(), &groups[0])?, Optimizer::new(Sgd::default(), &groups[1])?];
        let mut scaler = GradScaler::with_scale(device, 1024.0, 1)?;
        let mut scales = vec![];
        let gradient = |group: &Arena, x: f32| -> Result<Arena> {
            let mut grads = group.zeros_like()?;
            grads.set(
                if group.iter().any(|(name, _)| name == "p") { "p" } else { "q" },
                &Tensor::full(device, x, [3])?,
            )?;
            Ok(grads)
        };
        for step in 0..4 {
            for (i, (optimizer, group)) in optimizers.iter_mut().zip(&mut groups).enumerate() {
                let grads = gradient(group, if (step, i) == (1, 0) { f32::INFINITY } else { 1.0 })?;
                optimizer.step_scaled(group, &grads, &scaler)?;
            }
            scaler.update(&mut optimizers)?;
            scales.push(scaler.scale().item()?);
        }
        assert_eq!(scales, [1024.0, 512.0, 512.0, 512.0], "{device}");
        let [mut first, _] = optimizers;
        let grads = gradient(&groups[0], 1.0)?;
        let mut other = GradScaler::with_scale(device, 8.0, 1)?;
        first.step_scaled(&mut groups[0], &grads, &other)?;
        other.update([&mut first])?;
        assert_eq!(other.scale().item()?, 8.0, "{device}");
        let mut first = first.with_error_if_nonfinite();
        first.step(&mut groups[0], &grads)?;
        assert_eq!(first.steps()?, 5, "{device}");
        Ok(())
    });
}

/// Each step counts once. Between two updates there may be none, several, or some without the scale.
#[test]
fn bad_steps_count_once() {
    on_devices(|device| {
        let start = Tensor::full(device, 1.0, [3])?;
        let mut params = Arena::new(device, [("p", &start)])?;
        let (good, mut bad) = (params.zeros_like()?, params.zeros_like()?);
        bad.set("p", &Tensor::full(device, f32::INFINITY, [3])?)?;
        let mut optimizer = Optimizer::new(Sgd::default(), &params)?;
        let mut scaler = GradScaler::with_scale(device, 16.0, 1)?;
        let mut scales = vec![];
        let mut update = |scaler: &mut GradScaler, optimizer: &mut Optimizer| {
            scaler.update([optimizer])?;
            scales.push(scaler.scale().item()?);
            Ok(())
        };
        optimizer.step_scaled(&mut params, &bad, &scaler)?;
        update(&mut scaler, &mut optimizer)?;
        update(&mut scaler, &mut optimizer)?;
        optimizer.step(&mut params, &good)?;
        update(&mut scaler, &mut optimizer)?;
        optimizer.step_scaled(&mut params, &bad, &scaler)?;
        optimizer.step_scaled(&mut params, &good, &scaler)?;
        update(&mut scaler, &mut optimizer)?;
        optimizer.step_scaled(&mut params, &good, &scaler)?;
        update(&mut scaler, &mut optimizer)?;
        assert_eq!(scales, [8.0, 8.0, 8.0, 4.0, 4.0], "{device}");
        Ok(())
    });
}

/// A scale stays where its double would overflow, as in PyTorch.
#[test]
fn scales_stay_finite() {
    on_devices(|device| {
        let mut params = Arena::new(device, [("p", &Tensor::full(device, 1.0, [3])?)])?;
        let grads = params.zeros_like()?;
        let mut optimizer = Optimizer::new(Sgd::default(), &params)?;
        let mut scaler = GradScaler::with_scale(device, 2f32.powi(126), 1)?;
        scaler.growth_interval = 1;
        for _ in 0..3 {
            optimizer.step_scaled(&mut params, &grads, &scaler)?;
            scaler.update([&mut optimizer])?;
        }
        assert_eq!(scaler.scale().item()?, 2f32.powi(127), "{device}");
        Ok(())
    });
}

/// Steps with and without a scale share one count, so the step after a skipped one is as if that one had not
/// happened.
#[test]
fn plain_steps_go_on_after_skipped_ones() {
    on_devices(|device| {
        for rule in rules() {
            let start = of_points(device, 300, 0, 1.0)?;
            let arena = || Arena::new(device, [("p", &start)]);
            let (mut with, mut without) = (arena()?, arena()?);
            let [first, second] = [Optimizer::new(rule, &with)?, Optimizer::new(rule, &without)?];
            let mut optimizers = [first.with_average(0.5, &with)?, second.with_average(0.5, &without)?];
            let (mut grads, mut bad) = (with.zeros_like()?, with.zeros_like()?);
            grads.set("p", &of_points(device, 300, 1, 1.0)?)?;
            bad.set("p", &Tensor::full(device, f32::INFINITY, [300])?)?;
            // A scale of 1, and a scale whose inverse overflows.
            let one = GradScaler::with_scale(device, 1.0, 1)?;
            let tiny = GradScaler::with_scale(device, 1e-40, 1)?;
            let zeros = with.zeros_like()?;
            for step in 0..3 {
                optimizers[0].step_scaled(&mut with, &bad, &one)?;
                optimizers[0].step_scaled(&mut with, &zeros, &tiny)?;
                optimizers[0].step(&mut with, &grads)?;
                optimizers[1].step(&mut without, &grads)?;
                assert_eq!(with["p"].to_vec()?, without["p"].to_vec()?, "{device}: {rule:?}, {step}");
            }
            let [average, expected] = [0, 1].map(|i| optimizers[i].average().map(|all| all["p"].to_vec()));
            assert_eq!(average.transpose()?, expected.transpose()?, "{device}: {rule:?}");
            assert_eq!(optimizers[0].steps()?, 3, "{device}: {rule:?}");
        }
        Ok(())
    });
}

/// Errors distinguish gradients that are not finite from a norm that is not, with and without a limit on the
/// norm.
#[test]
fn errors_tell_gradients_from_their_norm() {
    on_devices(|device| {
        let start = Tensor::full(device, 1.0, [3])?;
        let mut params = Arena::new(device, [("p", &start)])?;
        let scaler = GradScaler::with_scale(device, 1e-30, 1)?;
        for max_norm in [None, Some(1.0)] {
            let mut optimizer = Optimizer::new(Sgd::default(), &params)?.with_error_if_nonfinite();
            if let Some(max_norm) = max_norm {
                optimizer = optimizer.with_max_norm(max_norm);
            }
            let mut step = |gradient: f32, scaler: Option<&GradScaler>| {
                let mut grads = params.zeros_like()?;
                grads.set("p", &Tensor::from_slice(device, &[0.0, gradient, 0.0], [3])?)?;
                match scaler {
                    Some(scaler) => optimizer.step_scaled(&mut params, &grads, scaler),
                    None => optimizer.step(&mut params, &grads),
                }
            };
            // 1e20² is more than 3.4e38, and 1e18² is not. 1e10 over 1e-30 is more, too.
            let refused = [(1e20, None), (f32::INFINITY, None), (1e10, Some(&scaler)), (f32::NAN, None)]
                .map(|(gradient, scaler)| step(gradient, scaler).expect_err("the norm is not finite"));
            let wants = [
                Error::NormNotFinite { step: 1 },
                Error::NotFinite { step: 2 },
                Error::NormNotFinite { step: 3 },
                Error::NotFinite { step: 4 },
            ];
            assert_eq!(refused, wants, "{device}");
            step(1e18, None)?;
            assert_eq!(optimizer.steps()?, 1, "{device}");
        }
        Ok(())
    });
}
