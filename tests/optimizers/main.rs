//! Optimizers follow PyTorch's trajectories on every device, and keep their promises to a training loop.

#[path = "../devices/mod.rs"]
mod devices;
mod files;
mod limits;
mod scales;
mod state;
mod threads;

use std::collections::BTreeMap;

use devices::{devices, on_devices};
use fusion::optim::{
    Adagrad, Adam, AdamW, Arena, GradScaler, Lion, Optimizer, Precision, RmsProp, Rule, Schedule, Sgd,
};
use fusion::prelude::*;
use safetensors::SafeTensors;

static GOLDEN: &[u8] = include_bytes!("../golden/optimizers.safetensors");

const SHAPES: [&[usize]; 5] = [&[33], &[8, 5], &[130], &[1], &[4, 3, 3, 2]];

/// Returns the cases of `golden/optimizers.json`.
fn cases() -> [(&'static str, Rule); 7] {
    let adam = Adam { lr: 0.01, ..Adam::default() };
    let l2 = Adam { betas: [0.8, 0.99], eps: 1e-6, weight_decay: 0.1, amsgrad: true, ..adam };
    let momentum = Sgd { lr: 0.05, momentum: 0.9, dampening: 0.1, weight_decay: 0.01, ..Sgd::default() };
    [
        ("sgd", Sgd { lr: 0.05, ..Sgd::default() }.into()),
        ("sgd_momentum", momentum.into()),
        ("adam", adam.into()),
        ("adam_l2_amsgrad", l2.into()),
        ("adamw", AdamW { lr: 0.01, betas: [0.9, 0.95], weight_decay: 0.1, ..AdamW::default() }.into()),
        ("rmsprop", RmsProp { lr: 0.01, ..RmsProp::default() }.into()),
        ("adagrad", Adagrad { lr: 0.05, lr_decay: 0.01, ..Adagrad::default() }.into()),
    ]
}

fn golden(name: &str) -> Vec<f32> {
    let file = SafeTensors::deserialize(GOLDEN).expect("the file is whole");
    let tensor = file.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    tensor.data().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four"))).collect()
}

/// Reads five tensors of the golden file: `p0` of a case's start, `grad.3` of a step.
fn arena(device: &Device, what: &str) -> Result<Arena> {
    let tensor =
        |(i, shape): (usize, &&[usize])| Tensor::from_slice(device, &golden(&format!("{what}.{i}")), *shape);
    let tensors = SHAPES.iter().enumerate().map(tensor).collect::<Result<Vec<_>>>()?;
    Arena::new(device, tensors.iter().enumerate().map(|(i, tensor)| (format!("t{i}"), tensor)))
}

#[test]
fn trajectories_of_pytorch() {
    on_devices(|device| {
        for (case, rule) in cases() {
            let mut params = arena(device, "p0")?;
            let mut optimizer = Optimizer::new(rule, &params)?;
            let mut worst = 0f32;
            for step in 1..=12 {
                optimizer.step(&mut params, &arena(device, &format!("grad.{}", step - 1))?)?;
                if ![1, 2, 12].contains(&step) {
                    continue;
                }
                for (i, (_, tensor)) in params.iter().enumerate() {
                    let (start, expected) =
                        (golden(&format!("p0.{i}")), golden(&format!("{case}.step{step}.{i}")));
                    for ((got, expected), start) in tensor.to_vec()?.into_iter().zip(expected).zip(start) {
                        // The error is relative to the larger of the new and the start value, because a value
                        // near 0 keeps the rounding of its start.
                        let error = (got - expected).abs() / expected.abs().max(start.abs());
                        assert!(error <= 1e-5, "{device}: {case}, step {step}: {got}, not {expected}");
                        worst = worst.max(error);
                    }
                }
            }
            eprintln!("{device}: {case}: {worst:e}");
        }
        Ok(())
    });
}

/// Returns all rules, with every option in some of them.
fn rules() -> Vec<Rule> {
    let (sgd, prop) = (Sgd { lr: 0.1, ..Sgd::default() }, RmsProp { lr: 0.01, ..RmsProp::default() });
    let mut rules: Vec<Rule> = cases().map(|(_, rule)| rule).into();
    rules.extend::<[Rule; 10]>([
        Sgd { momentum: 0.9, nesterov: true, ..sgd }.into(),
        Sgd { momentum: 0.9, dampening: 0.5, maximize: true, ..sgd }.into(),
        Adam { amsgrad: true, maximize: true, ..Adam::default() }.into(),
        AdamW { amsgrad: true, weight_decay: 0.3, ..AdamW::default() }.into(),
        RmsProp { momentum: 0.9, weight_decay: 0.1, ..prop }.into(),
        RmsProp { centered: true, ..prop }.into(),
        RmsProp { centered: true, momentum: 0.5, maximize: true, ..prop }.into(),
        Adagrad { initial_accumulator_value: 0.5, weight_decay: 0.1, maximize: true, ..Adagrad::default() }
            .into(),
        Lion { lr: 0.01, weight_decay: 0.1, ..Lion::default() }.into(),
        Lion { maximize: true, ..Lion::default() }.into(),
    ]);
    rules
}

/// Computes a step of the rule in `f64`, written from PyTorch's documentation, with its state by name.
fn reference(rule: Rule, t: i32, p: f64, g: f64, state: &mut BTreeMap<&'static str, f64>) -> f64 {
    let mut old = |name, value: f64| state.insert(name, value).unwrap_or(0.0);
    let mut mean = |name, kept: f64, x: f64| {
        let was = old(name, 0.0);
        let is = kept * was + (1.0 - kept) * x;
        old(name, is);
        is
    };
    let toward = |maximize: bool, decay: f64| if maximize { decay * p - g } else { decay * p + g };
    let mut adam = |betas: [f64; 2], g: f64| {
        (
            mean("m", betas[0], g) / (1.0 - betas[0].powi(t)),
            mean("v", betas[1], g * g),
            1.0 - betas[1].powi(t),
        )
    };
    let [lr, eps] = [rule.lr(), 1e-8];
    match rule {
        Rule::Sgd(Sgd { momentum, dampening, weight_decay, nesterov, maximize, .. }) => {
            let g = toward(maximize, weight_decay);
            let was = state.get("b").copied();
            let b = was.map_or(g, |b| momentum * b + (1.0 - dampening) * g);
            if momentum == 0.0 {
                return p - lr * g;
            }
            state.insert("b", b);
            p - lr * if nesterov { g + momentum * b } else { b }
        }
        Rule::Adam(Adam { betas, eps, weight_decay, amsgrad, maximize, .. }) => {
            let (m, v, c) = adam(betas, toward(maximize, weight_decay));
            let v = largest(state, v, amsgrad);
            p - lr * m / ((v / c).sqrt() + eps)
        }
        Rule::AdamW(AdamW { betas, eps, weight_decay, amsgrad, maximize, .. }) => {
            let (m, v, c) = adam(betas, toward(maximize, 0.0));
            let v = largest(state, v, amsgrad);
            p * (1.0 - lr * weight_decay) - lr * m / ((v / c).sqrt() + eps)
        }
        Rule::RmsProp(RmsProp { alpha, weight_decay, momentum, centered, maximize, .. }) => {
            let g = toward(maximize, weight_decay);
            let (v, a) = (mean("v", alpha, g * g), mean("a", alpha, g));
            let step = g / ((if centered { v - a * a } else { v }).sqrt() + eps);
            let b = momentum * state.get("b").copied().unwrap_or(0.0) + step;
            state.insert("b", b);
            p - lr * b
        }
        Rule::Adagrad(Adagrad {
            lr_decay, weight_decay, initial_accumulator_value, eps, maximize, ..
        }) => {
            let g = toward(maximize, weight_decay);
            let sum = state.get("s").copied().unwrap_or(initial_accumulator_value) + g * g;
            state.insert("s", sum);
            p - lr / (1.0 + f64::from(t - 1) * lr_decay) * g / (sum.sqrt() + eps)
        }
        Rule::Lion(Lion { betas, weight_decay, maximize, .. }) => {
            let g = toward(maximize, 0.0);
            let m = state.get("m").copied().unwrap_or(0.0);
            let along = betas[0] * m + (1.0 - betas[0]) * g;
            state.insert("m", betas[1] * m + (1.0 - betas[1]) * g);
            p * (1.0 - lr * weight_decay) - lr * if along == 0.0 { 0.0 } else { along.signum() }
        }
        other => panic!("{other:?} has no reference"),
    }
}

/// Returns the largest mean of squares so far if `amsgrad` is set, else the current one.
fn largest(state: &mut BTreeMap<&'static str, f64>, v: f64, amsgrad: bool) -> f64 {
    let most = if amsgrad { state.get("w").copied().unwrap_or(0.0).max(v) } else { v };
    state.insert("w", most);
    most
}

/// Returns a value of a parameter or gradient at a step, never 0.
fn point(i: usize, step: usize) -> f32 {
    ((i * 7919 + step * 104_729) % 1999) as f32 / 1000.0 - 0.9993
}

fn of_points(device: &Device, len: usize, step: usize, factor: f32) -> Result<Tensor<f32>> {
    Tensor::from_vec(device, (0..len).map(|i| factor * point(i, step)).collect(), [len])
}

/// Every rule follows its formula, with and without clipping and scales.
#[test]
fn rules_are_their_formulas() {
    const LEN: usize = 67;
    for (_, device) in devices() {
        for rule in rules() {
            for (scale, most) in [(1.0, None), (1.0, Some(2.0)), (1024.0, None), (8.0, Some(1e6))] {
                let run = || -> Result<Vec<f32>> {
                    let mut params = Arena::new(&device, [("p", &of_points(&device, LEN, 0, 1.0)?)])?;
                    let mut optimizer = Optimizer::new(rule, &params)?;
                    optimizer = most.into_iter().fold(optimizer, Optimizer::with_max_norm);
                    let scaler = GradScaler::with_scale(&device, scale, 1)?;
                    for step in 1..=5 {
                        let mut grads = params.zeros_like()?;
                        grads.set("p", &of_points(&device, LEN, step, scale)?)?;
                        match scale {
                            1.0 => optimizer.step(&mut params, &grads)?,
                            _ => optimizer.step_scaled(&mut params, &grads, &scaler)?,
                        }
                    }
                    params["p"].to_vec()
                };
                let got = run().unwrap_or_else(|error| panic!("{device}: {rule:?}: {error}"));
                let norm = |step| (0..LEN).map(|i| f64::from(point(i, step)).powi(2)).sum::<f64>().sqrt();
                for (i, got) in got.into_iter().enumerate() {
                    let mut state = BTreeMap::new();
                    let expected = (1..=5).fold(f64::from(point(i, 0)), |p, step| {
                        let most = most.map_or(1.0, |most| (most / (norm(step) + 1e-6)).min(1.0));
                        let g = f64::from(point(i, step)) * most;
                        reference(rule, step as i32, p, g, &mut state)
                    });
                    let error = (f64::from(got) - expected).abs();
                    assert!(
                        error <= 4e-6 * expected.abs().max(0.5),
                        "{device}: {rule:?} {i}: {got}, not {expected}"
                    );
                }
            }
        }
    }
}

/// Options that would turn all parameters into NaN, or reverse the steps, are errors.
#[test]
fn options_that_cannot_be_are_errors() -> Result<()> {
    let mut params = Arena::new(&Device::cpu(), [("p", &Tensor::full(&Device::cpu(), 1.0, [3])?)])?;
    let rules: [(Rule, &str); 11] = [
        (
            Sgd { nesterov: true, ..Sgd::default() }.into(),
            "parameter `nesterov` needs a momentum and no dampening: `momentum` is 0 and `dampening` is 0",
        ),
        (
            Sgd { nesterov: true, momentum: 0.9, dampening: 0.5, ..Sgd::default() }.into(),
            "parameter `nesterov` needs a momentum and no dampening: `momentum` is 0.9 and `dampening` is 0.5",
        ),
        (
            Adam { betas: [1.0, 0.999], ..Adam::default() }.into(),
            "parameter `betas` cannot be 1.0, 0.999: both must be from 0 to less than 1",
        ),
        (
            AdamW { betas: [0.9, f64::NAN], ..AdamW::default() }.into(),
            "parameter `betas` cannot be 0.9, NaN: both must be from 0 to less than 1",
        ),
        (
            Lion { betas: [-0.1, 0.9], ..Lion::default() }.into(),
            "parameter `betas` cannot be -0.1, 0.9: both must be from 0 to less than 1",
        ),
        (
            AdamW { lr: -1.0, ..AdamW::default() }.into(),
            "parameter `lr` cannot be -1.0: it must be a number of 32 bits, from 0 on",
        ),
        (
            RmsProp { eps: f64::NAN, ..RmsProp::default() }.into(),
            "parameter `eps` cannot be NaN: it must be a number of 32 bits, from 0 on",
        ),
        (
            Adagrad { lr_decay: f64::INFINITY, ..Adagrad::default() }.into(),
            "parameter `lr_decay` cannot be inf: it must be a number of 32 bits, from 0 on",
        ),
        (
            Sgd { momentum: -0.5, ..Sgd::default() }.into(),
            "parameter `momentum` cannot be -0.5: it must be a number of 32 bits, from 0 on",
        ),
        (
            AdamW { weight_decay: 1e39, ..AdamW::default() }.into(),
            "parameter `weight_decay` cannot be 1e39: it must be a number of 32 bits, from 0 on",
        ),
        (
            Sgd { dampening: f64::NAN, ..Sgd::default() }.into(),
            "parameter `dampening` cannot be NaN: it must be a number of 32 bits",
        ),
    ];
    for (rule, expected) in rules {
        let error = Optimizer::new(rule, &params).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let grads = params.zeros_like()?;
    for norm in [f64::NAN, -1.0] {
        let mut optimizer =
            Optimizer::new(Sgd { dampening: -0.5, ..Sgd::default() }, &params)?.with_max_norm(norm);
        let error = optimizer.step(&mut params, &grads).unwrap_err().to_string();
        assert_eq!(error, format!("parameter `max_norm` cannot be {norm}: it must be a number from 0 on"));
    }
    Ok(())
}

fn bits(params: &Arena) -> Result<Vec<Vec<u32>>> {
    params.iter().map(|(_, t)| Ok(t.to_vec()?.into_iter().map(f32::to_bits).collect())).collect()
}

/// A run that is saved, loaded elsewhere and continued has the bits of an uninterrupted one.
#[test]
fn saved_and_loaded_is_as_if_uninterrupted() {
    for (kind, device) in devices() {
        let small = [Precision::Bits8, Precision::Bf16].map(|state| Adam { state, ..Adam::default() }.into());
        for (number, rule) in rules().into_iter().chain(small).enumerate() {
            let run = || -> Result<()> {
                let grads = |step| arena(&device, &format!("grad.{step}"));
                let path =
                    std::env::temp_dir().join(format!("fusion-{kind:?}-{number}-{}", std::process::id()));
                let mut params = arena(&device, "p0")?;
                let mut optimizer =
                    Optimizer::new(rule, &params)?.with_max_norm(3.0).with_average(0.5, &params)?;
                for step in 1..=4 {
                    optimizer.step(&mut params, &grads(step)?)?;
                }
                optimizer.save(&path, &params)?;
                let mut loaded = params.zeros_like()?;
                let mut other =
                    Optimizer::new(rule, &loaded)?.with_max_norm(3.0).with_average(0.5, &loaded)?;
                other.load(&path, &mut loaded)?;
                for step in 5..=8 {
                    optimizer.step(&mut params, &grads(step)?)?;
                    other.step(&mut loaded, &grads(step)?)?;
                }
                std::fs::remove_file(&path).expect("it was written");
                assert_eq!(bits(&params)?, bits(&loaded)?, "{device}: {rule:?}");
                let average = |optimizer: &Optimizer| bits(optimizer.average().expect("an average"));
                assert_eq!(average(&optimizer)?, average(&other)?, "{device}: {rule:?}");
                assert_eq!(optimizer.steps()?, other.steps()?);
                Ok(())
            };
            run().unwrap_or_else(|error| panic!("{device}: {rule:?}: {error}"));
        }
    }
}

#[test]
fn files_that_do_not_fit_change_nothing() -> Result<()> {
    let device = Device::cpu();
    let path = std::env::temp_dir().join(format!("fusion-optimizer-{}", std::process::id()));
    let ones = |shape: &[usize]| Tensor::full(&device, 1.0, shape);
    let saved = Arena::new(&device, [("a", &ones(&[2])?), ("b", &ones(&[3])?)])?;
    Optimizer::new(AdamW::default(), &saved)?.save(&path, &saved)?;
    let mut others = Arena::new(&device, [("a", &ones(&[2, 1])?), ("c", &ones(&[3])?)])?;
    let before = bits(&others)?;
    let mut optimizer = Optimizer::new(AdamW::default(), &others)?;
    let refused = optimizer.load(&path, &mut others).expect_err("it differs").to_string();
    for part in [
        "`a` has shape [2], not [2, 1]",
        "`c` is missing",
        "`c.exp_avg` is missing",
        "`b` is none of the parameters",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
    assert_eq!(bits(&others)?, before);
    let refused =
        Optimizer::new(Lion::default(), &others)?.load(&path, &mut others).expect_err("another rule");
    assert!(refused.to_string().contains("holds the state of `AdamW`, not of `Lion`"), "{refused}");
    // A file that ends early, and one that cannot be written, leave the old state.
    let whole = std::fs::read(&path).expect("it was written");
    std::fs::write(&path, &whole[..whole.len() - 5]).expect("there is room");
    assert!(optimizer.load(&path, &mut others).is_err());
    std::fs::remove_file(&path).expect("it was written");
    std::fs::create_dir(&path).expect("there is room");
    assert!(optimizer.save(&path, &others).is_err(), "a folder stands there");
    std::fs::remove_dir(&path).expect("it is empty");
    assert!(optimizer.load(&path, &mut others).is_err());
    Ok(())
}

/// A clone of a tensor of an arena keeps its elements. Names and shapes are checked, and tensors may be
/// empty.
#[test]
fn arenas() {
    on_devices(|device| {
        let (a, b) = (Tensor::full(device, 1.0, [3])?, Tensor::full(device, 2.0, [2, 2])?);
        let mut params =
            Arena::new(device, [("a", &a), ("none", &Tensor::zeros(device, [0, 4])?), ("b", &b)])?;
        assert_eq!((params.len(), params.elements(), params.bytes()), (3, 7, 512));
        let mut grads = params.zeros_like()?;
        grads.set("b", &Tensor::full(device, 1.0, [2, 2])?)?;
        grads.set("a", &Tensor::full(&Device::cpu(), 2.0, [3])?)?;
        let clone = params["b"].clone();
        let mut optimizer = Optimizer::new(Sgd { lr: 0.5, ..Sgd::default() }, &params)?;
        optimizer.step(&mut params, &grads)?;
        assert_eq!((clone.to_vec()?, params["b"].to_vec()?), (vec![2.0; 4], vec![1.5; 4]), "{device}");
        assert_eq!((params["a"].to_vec()?, params["none"].to_vec()?), (vec![0.0; 3], vec![]), "{device}");
        // A gradient that is the parameter itself.
        grads.set("b", &params["b"])?;
        optimizer.set_lr(1.0)?;
        optimizer.step(&mut params, &grads)?;
        assert_eq!(params["b"].to_vec()?, [0.0; 4], "{device}");
        assert_eq!(params.to(&Device::cpu())?["a"].to_vec()?, params["a"].to_vec()?);
        assert!(params.get("c").is_none());
        let message = |result: Result<()>| result.expect_err("it is wrong").to_string();
        assert_eq!(message(grads.set("c", &a)), "parameter `c` is not in the arena, which has a, none, b");
        assert_eq!(message(grads.set("a", &b)), "parameter `a` has shape [3], not [2, 2]");
        let other = Arena::new(device, [("a", &a)])?;
        assert_eq!(
            message(optimizer.step(&mut params, &other)),
            "parameter `none` has shape [0, 4] among the parameters, and is missing among the gradients: use `zeros_like`"
        );
        assert_eq!(
            message(Arena::new(device, [("a", &a), ("a", &b)]).map(|_| ())),
            "parameter `a` is there twice: give one another name"
        );
        // An arena with nothing to update is no error.
        let mut nothing = Arena::new(device, [("none", &Tensor::zeros(device, [0])?)])?;
        let grads = nothing.zeros_like()?;
        Optimizer::new(AdamW::default(), &nothing)?.with_max_norm(1.0).step(&mut nothing, &grads)
    });
}

fuse! {
    pub(crate) fn halved(lr: &mut f32[]) { lr = 0.5 * lr; }
}

/// A schedule runs on the device. The host learns the rate when it asks for it or saves a file.
#[test]
fn a_learning_rate_that_is_written_on_the_device() {
    on_devices(|device| {
        let mut params = Arena::new(device, [("p", &Tensor::zeros(device, [3])?)])?;
        let mut grads = params.zeros_like()?;
        grads.set("p", &Tensor::full(device, -1.0, [3])?)?;
        let mut optimizer = Optimizer::new(Sgd { lr: 1.0, ..Sgd::default() }, &params)?;
        for _ in 0..4 {
            optimizer.step(&mut params, &grads)?;
            halved(optimizer.lr_mut())?;
        }
        assert_eq!(params["p"].to_vec()?, [1.0 + 0.5 + 0.25 + 0.125; 3], "{device}");
        let path = std::env::temp_dir().join(format!("fusion-rate-{}.safetensors", std::process::id()));
        optimizer.save(&path, &params)?;
        let mut other = Optimizer::new(Sgd::default(), &params)?;
        other.load(&path, &mut params)?;
        std::fs::remove_file(&path).expect("it was written");
        assert_eq!((other.rule().lr(), other.lr().item()?), (0.0625, 0.0625), "{device}");
        other.step(&mut params, &grads)?;
        assert_eq!(params["p"].to_vec()?, [1.9375; 3], "{device}");
        other.set_lr(2.0)?;
        assert_eq!((other.rule().lr(), other.to(&Device::cpu())?.lr().item()?), (2.0, 2.0), "{device}");
        Ok(())
    });
}

/// A schedule sets the rate between steps.
#[test]
fn schedules() -> Result<()> {
    let device = Device::cpu();
    let mut params = Arena::new(&device, [("p", &Tensor::zeros(&device, [1])?)])?;
    let mut grads = params.zeros_like()?;
    grads.set("p", &Tensor::full(&device, -1.0, [1])?)?;
    let mut optimizer = Optimizer::new(Sgd::default(), &params)?;
    let schedule = Schedule::LinearWarmup { lr: 1.0, warmup: 4 };
    for step in 0..6 {
        optimizer.set_lr(schedule.at(step))?;
        optimizer.step(&mut params, &grads)?;
    }
    assert_eq!(params["p"].item()?, 0.25 + 0.5 + 0.75 + 1.0 + 1.0);
    Ok(())
}

/// A process that is killed during a save leaves a file that loads, from a single save.
#[test]
fn killed_while_saving() -> Result<()> {
    const PATH: &str = "FUSION_TEST_SAVES";
    const LEN: usize = 1 << 18;
    let device = Device::cpu();
    let filled = |value: f32| Arena::new(&device, [("p", &Tensor::full(&device, value, [LEN])?)]);
    if let Some(path) = std::env::var_os(PATH) {
        for i in 0.. {
            let params = filled(i as f32)?;
            Optimizer::new(Lion::default(), &params)?.save(&path, &params)?;
        }
    }
    let folder = std::env::temp_dir().join(format!("fusion-killed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("there is room");
    let path = folder.join("optimizer");
    for wait in 0..8 {
        let mut child = std::process::Command::new(std::env::current_exe().expect("it runs"))
            .args(["--exact", "killed_while_saving"])
            .env(PATH, &path)
            .spawn()
            .expect("it starts");
        while !path.exists() {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_micros(9_700 + 1_300 * wait));
        child.kill().and_then(|()| child.wait()).expect("it runs until then");
        let mut params = filled(-1.0)?;
        Optimizer::new(Lion::default(), &params)?.load(&path, &mut params)?;
        let elements = params["p"].to_vec()?;
        assert!(elements[0] >= 0.0 && elements.iter().all(|&x| x == elements[0]), "{}", elements[0]);
    }
    std::fs::remove_dir_all(&folder).expect("it is ours");
    Ok(())
}
