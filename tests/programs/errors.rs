//! Errors at run time say what is wrong, where it is wrong, and how to mend it.

use std::sync::atomic::{AtomicUsize, Ordering};

use fusion::prelude::*;

use crate::devices::{devices, gpus, on_devices};
use crate::{Host, check};

both! {
    { pub fn affine(x: f32[N, D], scale: f32[N], bias: f32[D]) -> f32[N, D] { x * scale + bias } }
    { pub fn square(x: f32[N], y: f32[N]) -> f32[N] { x * y } }
    { pub fn fixed(x: f32[N, C = 3]) -> f32[N] { sum(x, C) } }
    { pub fn step(p: &mut f32[N], g: f32[N], lr: f32) -> f32[N] {
        p -= lr * g;
        p * 2.0
    } }
    { pub fn several(x: f32[N, D]) -> (f32[N, D], f32[D, N], f32[N]) { (x + 1.0, x, index(N) as f32) }
    }
    { pub fn counted(N: dim) -> (f32[N], f32[N]) { (index(N) as f32, 2.0 * index(N) as f32) } }
    { pub fn step_and_sum(p: &mut f32[N], x: f32[M]) -> f32[N] {
        p += 1.0;
        sum(exp(p * x) * sum(exp(x - p), M), M)
    } }
    { pub fn host_extent(x: f32[N], H: dim, y: f32[H]) -> f32[N, H] { x + y } }
}

fuse! {
    #[fuse(targets(cpu))]
    pub fn on_cpu_only(x: f32[N]) -> f32[N] { x + 1.0 }
}

/// Returns the text of an error.
#[track_caller]
fn text<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("no error"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn extents_that_disagree() {
    on_devices(|device| {
        let zeros = |shape: &[usize]| Tensor::<f32>::zeros(device, shape);
        for affine in [fused::affine, unfused::affine] {
            let message = text(affine(&zeros(&[2, 3])?, &zeros(&[5])?, &zeros(&[3])?));
            let expected = "`affine`: dim `N` is 2 in `x` but 5 in `scale`; a dim has one extent per call";
            assert_eq!(message, expected);
            let message = text(affine(&zeros(&[2, 3])?, &zeros(&[2])?, &zeros(&[1])?));
            let expected = "`affine`: dim `D` is 3 in `x` but 1 in `bias`; a dim has one extent per call";
            assert_eq!(message, expected);
            let message = text(affine(&zeros(&[0, 3])?, &zeros(&[0])?, &zeros(&[0])?));
            assert!(message.contains("dim `D` is 3 in `x` but 0 in `bias`"), "{message}");
        }
        let message = text(fused::fixed(&zeros(&[2, 4])?));
        assert_eq!(message, "`fixed`: dim `C` of `x` must be 3, but its argument has 4 there");
        let message = text(fused::host_extent(&zeros(&[2])?, 4, &zeros(&[5])?));
        assert_eq!(message, "`host_extent`: dim `H` is 4 in `H` but 5 in `y`; a dim has one extent per call");
        Ok(())
    });
}

/// A call that runs out of memory leaves its in-place parameters unchanged.
#[test]
fn memory_for_later_kernels() {
    on_devices(|device| {
        const N: usize = 1 << 21;
        let mut p = Tensor::full(device, 1.0, [N])?;
        let error = unfused::step_and_sum(&mut p, &Tensor::zeros(device, [N])?).expect_err("16 TiB");
        assert!(matches!(error, Error::OutOfMemory { .. } | Error::TooLarge { .. }), "{error:?}");
        assert!(p.to_vec()?.iter().all(|&x| x == 1.0), "{device}");
        Ok(())
    });
}

#[test]
fn ranks_that_disagree() {
    on_devices(|device| {
        let zeros = |shape: &[usize]| Tensor::<f32>::zeros(device, shape);
        let message = text(fused::affine(&zeros(&[2, 3, 4])?, &zeros(&[2])?, &zeros(&[3])?));
        let expected = "`affine`: `x` has dims [N, D], but its argument has shape [2, 3, 4]; reshape it, or change \
                        the signature";
        assert_eq!(message, expected);
        let message = text(fused::affine(&zeros(&[2, 3])?, &zeros(&[])?, &zeros(&[3])?));
        assert!(
            message.starts_with("`affine`: `scale` has dims [N], but its argument has shape []"),
            "{message}"
        );
        Ok(())
    });
}

#[test]
fn inline_shapes_that_disagree() {
    on_devices(|device| {
        let (x, y) = (Tensor::zeros(device, [2, 3])?, Tensor::zeros(device, [3, 2])?);
        let message = text(fuse!(relu(x + 1.0) * y));
        assert!(message.contains("`x` has shape [2, 3] but `y` has [3, 2]; name the dims"), "{message}");
        let message = text(fuse!(x[N, D] + y[N, D]));
        assert!(message.contains("dim `N` is 2 in `x` but 3 in `y`"), "{message}");
        Ok(())
    });
}

#[test]
fn results_into_tensors_of_other_shapes() {
    on_devices(|device| {
        let x = Host::new(1, &[3, 5]);
        let mut outs = [[3, 5], [3, 5]].map(|shape| Tensor::full(device, 9.0, shape));
        let [Ok(first), Ok(second)] = &mut outs else { panic!("{outs:?}") };
        let mut third = Tensor::full(device, 9.0, [3])?;
        for into in [fused::several::into, unfused::several::into] {
            let message = text(into(first, second, &mut third, &x.on(device)?));
            let expected =
                "`several`: the result `out_1` has shape [5, 3], but the tensor given for it has [3, 5]";
            assert_eq!(message, expected);
            // A call that fails writes nothing.
            check(first, &[3, 5], |_| 9.0)?;
            check(&third, &[3], |_| 9.0)?;
        }
        let mut rank = Tensor::zeros(device, [15])?;
        let message =
            text(fused::square::into(&mut rank, &Tensor::zeros(device, [5])?, &Tensor::zeros(device, [5])?));
        assert!(
            message.contains("the result `out` has shape [5], but the tensor given for it has [15]"),
            "{message}"
        );
        Ok(())
    });
}

#[test]
fn a_call_that_fails_updates_nothing() {
    on_devices(|device| {
        let x = Host::new(1, &[7]);
        for step in [fused::step, unfused::step] {
            let mut p = x.on(device)?;
            let shared = p.clone();
            let message = text(step(&mut p, &Tensor::full(device, 1.0, [6])?, 0.5));
            assert!(message.contains("dim `N` is 7 in `p` but 6 in `g`"), "{message}");
            check(&p, &[7], |at| x.at(at))?;
            check(&shared, &[7], |at| x.at(at))?;
        }
        let mut p = x.on(device)?;
        let mut out = Tensor::zeros(device, [8])?;
        let message = text(fused::step::into(&mut out, &mut p, &Tensor::full(device, 1.0, [7])?, 0.5));
        assert!(message.contains("the result `out` has shape [7]"), "{message}");
        check(&p, &[7], |at| x.at(at))
    });
}

#[test]
fn outputs_that_share_memory_with_inputs() {
    on_devices(|device| {
        let x = Host::new(1, &[4099]);
        for into in [fused::square::into, unfused::square::into] {
            let tensor = x.on(device)?;
            let mut out = tensor.clone();
            into(&mut out, &tensor, &tensor)?;
            check(&out, &[4099], |at| x.at(at) * x.at(at))?;
            check(&tensor, &[4099], |at| x.at(at))?;
            // Repeat the call with an output that shares no memory.
            into(&mut out, &tensor, &tensor)?;
            check(&out, &[4099], |at| x.at(at) * x.at(at))?;
        }
        let steps = [fused::step, unfused::step];
        for (step, into) in steps.into_iter().zip([fused::step::into, unfused::step::into]) {
            let mut p = x.on(device)?;
            // Parameter, gradient and result begin as one tensor.
            let g = p.clone();
            let mut out = p.clone();
            into(&mut out, &mut p, &g, 0.5)?;
            check(&p, &[4099], |at| x.at(at) * 0.5)?;
            check(&out, &[4099], |at| x.at(at))?;
            check(&g, &[4099], |at| x.at(at))?;
            let twice = step(&mut p, &g, 0.5)?;
            check(&twice, &[4099], |_| 0.0)?;
        }
        // Two results into clones of one tensor.
        let mut first = Tensor::zeros(device, [2, 2])?;
        let (mut second, mut third) = (first.clone(), Tensor::zeros(device, [2])?);
        let square = Host::new(2, &[2, 2]);
        fused::several::into(&mut first, &mut second, &mut third, &square.on(device)?)?;
        check(&first, &[2, 2], |at| square.at(at) + 1.0)?;
        check(&second, &[2, 2], |at| square.at(&[at[1], at[0]]))?;
        check(&third, &[2], |at| at[0] as f64)
    });
}

#[test]
fn one_tensor_as_several_arguments() {
    on_devices(|device| {
        let x = Host::new(1, &[1025]);
        let tensor = x.on(device)?;
        for square in [fused::square, unfused::square] {
            check(&square(&tensor, &tensor)?, &[1025], |at| x.at(at) * x.at(at))?;
            check(&square(&tensor, &tensor.clone())?, &[1025], |at| x.at(at) * x.at(at))?;
        }
        let same = tensor.clone();
        check(&fuse!(tensor * same + tensor)?, &[1025], |at| x.at(at) * x.at(at) + x.at(at))?;
        let grid = tensor.reshape([25, 41])?;
        let flipped = tensor.reshape([41, 25])?;
        let turned = fuse!(grid[N, D] - flipped[D, N])?;
        check(&turned, &[25, 41], |at| x.at(&[at[0] * 41 + at[1]]) - x.at(&[at[1] * 25 + at[0]]))
    });
}

#[test]
fn arguments_on_different_devices() -> Result<()> {
    gpus().iter().try_for_each(arguments_on_the_cpu_and)
}

fn arguments_on_the_cpu_and(gpu: &Device) -> Result<()> {
    let (cpu, n) = (Device::cpu(), 8);
    let (x, y) = (Tensor::<f32>::zeros(&cpu, [n])?, Tensor::zeros(gpu, [n])?);
    for square in [fused::square, unfused::square] {
        let message = text(square(&x, &y));
        let expected = format!(
            "`square`: `x` is on {} but `y` is on {}; move one with `.to(&device)`",
            cpu.name(),
            gpu.name()
        );
        assert_eq!(message, expected);
    }
    let message = text(fuse!(x + y));
    assert!(message.contains("`x` is on CPU") && message.contains("`y` is on"), "{message}");
    let mut out = Tensor::zeros(&cpu, [n])?;
    let message = text(fused::square::into(&mut out, &y, &y));
    let expected = format!("`square`: `x` is on {} but `out` is on {};", gpu.name(), cpu.name());
    assert!(message.starts_with(&expected), "{message}");
    let [mut first, mut third] = [Tensor::zeros(gpu, [n, 1])?, Tensor::zeros(gpu, [n])?];
    let (mut second, z) = (Tensor::zeros(&cpu, [1, n])?, Tensor::zeros(gpu, [n, 1])?);
    let message = text(fused::several::into(&mut first, &mut second, &mut third, &z));
    assert!(message.contains("but `out_1` is on"), "{message}");
    // A call without tensor arguments runs on the device of its results.
    for device in [&cpu, gpu] {
        let [mut ones, mut twos] = [Tensor::zeros(device, [3])?, Tensor::zeros(device, [3])?];
        for into in [fused::counted::into, unfused::counted::into] {
            into(&mut ones, &mut twos, 3)?;
            assert_eq!((ones.to_vec()?, twos.to_vec()?), (vec![0.0, 1.0, 2.0], vec![0.0, 2.0, 4.0]));
        }
        let other = if *device == cpu { gpu } else { &cpu };
        let message = text(fused::counted::into(&mut ones, &mut Tensor::zeros(other, [3])?, 3));
        assert!(
            message.starts_with("`counted`: `out_0` is on") && message.contains("`out_1` is on"),
            "{message}"
        );
    }
    let mut p = Tensor::zeros(gpu, [n])?;
    assert!(text(fused::step(&mut p, &x, 0.5)).contains("`p` is on"));
    check(&fused::square(&x.to(gpu)?, &y)?, &[n], |_| 0.0)
}

#[test]
fn a_function_without_code_for_the_device() -> Result<()> {
    check(&on_cpu_only(&Tensor::zeros(&Device::cpu(), [3])?)?, &[3], |_| 1.0)?;
    for gpu in gpus() {
        let message = text(on_cpu_only(&Tensor::zeros(&gpu, [3])?));
        let parts = [gpu.name(), "`on_cpu_only`", "not compiled for", "#[fuse(targets("];
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
    Ok(())
}

#[test]
fn shapes_beyond_memory() {
    on_devices(|device| {
        let message = text(Tensor::<f32>::zeros(device, [usize::MAX, 2]));
        assert!(message.contains("has more elements than memory can hold"), "{message}");
        let x = Tensor::zeros(device, [3])?;
        // 3 · 2⁶⁰ elements.
        let message = text(fused::host_extent(&x, 1 << 60, &Tensor::zeros(device, [1])?));
        assert!(message.contains("dim `H` is 1152921504606846976 in `H` but 1 in `y`"), "{message}");
        let message = text(repeated(&x, 1 << 30, 1 << 30));
        assert!(message.contains("more elements than memory can hold"), "{message}");
        for beyond in [1 << 31, 1 << 60, usize::MAX] {
            let message = text(repeated(&x, beyond, 1));
            assert!(message.contains("`H`"), "{message}");
        }
        let message = text(repeated(&x, 1 << 30, 1 << 15));
        assert!(message.contains("memory") || message.contains("does not support"), "{message}");
        check(&repeated(&x, 2, 1)?, &[3, 2, 1], |_| 1.0)
    });
}

fuse! {
    /// A function whose result is as large as the caller asks for.
    pub fn repeated(x: f32[N], H: dim, W: dim) -> f32[N, H, W] { x + (index(H) * 0 + index(W) * 0) as f32 + 1.0 }
}

#[test]
fn calls_from_many_threads() {
    let calls = AtomicUsize::new(0);
    for (_, device) in devices() {
        let (x, y) = (Host::new(1, &[37, 41]), Host::new(2, &[41]));
        let shared = x.on(&device).expect("a small tensor fits");
        let worker = |number: usize| -> Result<()> {
            let bias = y.on(&device)?;
            let scale = Tensor::full(&device, number as f32, [37])?;
            let mut p = shared.reshape([37 * 41])?;
            for round in 0..20 {
                let affine = [fused::affine, unfused::affine][round % 2];
                let result = affine(&shared, &scale, &bias)?;
                check(&result, &[37, 41], |at| x.at(at) * number as f64 + y.at(&[at[1]]))?;
                let g = p.clone();
                fused::step(&mut p, &g, 0.5)?;
                let part = 0.5_f64.powi(round as i32 + 1);
                check(&p, &[37 * 41], |at| x.elements[at[0]] as f64 * part)?;
                calls.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            for number in 0..16 {
                let worker = &worker;
                scope.spawn(move || worker(number).unwrap_or_else(|error| panic!("{error}")));
            }
        });
        check(&shared, &[37, 41], |at| x.at(at)).expect("what is shared is only read");
    }
    assert_eq!(calls.into_inner() % 320, 0);
}
