//! Several threads use optimizers at once.

use fusion::optim::{AdamW, Arena, Optimizer};
use fusion::prelude::*;

use super::devices::on_devices;
use super::state::fresh_path;
use super::{bits, of_points};

/// Returns the parameters after ten clipped steps, with gradients that depend on a number.
fn trained(device: &Device, number: usize) -> Result<Vec<Vec<u32>>> {
    let len = 1000 + number;
    let mut params = Arena::new(device, [("p", &of_points(device, len, number, 1.0)?)])?;
    let mut optimizer = Optimizer::new(AdamW { lr: 0.01, ..AdamW::default() }, &params)?.with_max_norm(3.0);
    for step in 1..=10 {
        let mut grads = params.zeros_like()?;
        grads.set("p", &of_points(device, len, 100 * number + step, 1.0)?)?;
        optimizer.step(&mut params, &grads)?;
    }
    bits(&params)
}

/// Four threads with an optimizer each, on one device, get the results that they get one after another.
#[test]
fn threads_have_optimizers_on_one_device() {
    on_devices(|device| {
        let alone = (0..4).map(|number| trained(device, number)).collect::<Result<Vec<_>>>()?;
        let together = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|number| scope.spawn(move || trained(device, number))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Result<Vec<_>>>()
        })?;
        assert_eq!(alone, together, "{device}");
        Ok(())
    });
}

/// An optimizer and its arenas continue in another thread.
#[test]
fn an_optimizer_goes_to_another_thread() {
    on_devices(|device| {
        let mut params = Arena::new(device, [("p", &of_points(device, 300, 0, 1.0)?)])?;
        let mut grads = params.zeros_like()?;
        grads.set("p", &of_points(device, 300, 1, 1.0)?)?;
        let run = |mut params: Arena, mut optimizer: Optimizer, apart: bool| -> Result<Vec<Vec<u32>>> {
            optimizer.step(&mut params, &grads)?;
            if !apart {
                optimizer.step(&mut params, &grads)?;
                return bits(&params);
            }
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    optimizer.step(&mut params, &grads)?;
                    bits(&params)
                });
                thread.join().expect("no panic")
            })
        };
        let other = params.to(device)?;
        let [first, second] = [&params, &other].map(|params| Optimizer::new(AdamW::default(), params));
        params.set("p", &of_points(device, 300, 2, 1.0)?)?;
        let mut same = other.zeros_like()?;
        same.set("p", &of_points(device, 300, 2, 1.0)?)?;
        assert_eq!(run(params, first?, true)?, run(same, second?, false)?, "{device}");
        Ok(())
    });
}

/// Several threads that save to one path leave a file that one of them saved.
#[test]
fn threads_save_in_one_place() -> Result<()> {
    let (device, path) = (Device::cpu(), fresh_path());
    let arena = |value| Arena::new(&device, [("p", &Tensor::full(&device, value, [100_000])?)]);
    let arenas = [arena(1.0)?, arena(2.0)?];
    for _ in 0..8 {
        std::thread::scope(|scope| {
            let save = |arena| Optimizer::new(AdamW::default(), arena)?.save(&path, arena);
            let threads: Vec<_> = arenas.iter().map(|arena| scope.spawn(move || save(arena))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })?;
        let mut loaded = arenas[0].zeros_like()?;
        Optimizer::new(AdamW::default(), &loaded)?.load(&path, &mut loaded)?;
        assert!(arenas.iter().any(|arena| bits(arena).ok() == bits(&loaded).ok()), "neither was saved");
    }
    std::fs::remove_file(&path).expect("it was written");
    Ok(())
}
