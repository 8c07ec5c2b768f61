//! Functions that are generic over their element type are called by generic code of the user.

use fusion::{Device, Float, Result, Tensor, bf16, f16};

use crate::devices::on_devices;

fusion::fuse! {
    /// Normalises and scales a row, and doubles results above a limit.
    pub fn gated<T>(x: T[N, D], gain: T[D], limit: T, eps: f32) -> T[N, D] {
        let y = normal(x, D) * gain + eps;
        if y > limit { twice(y) } else { y }
    }

    pub fn statistics<E>(x: E[N, D]) -> (E[N], f32[N]) {
        (mean(x, D), var(x as f32, D))
    }

    pub fn decay<T>(p: &mut T[N], rate: T) {
        p *= 1.0 - rate;
    }

    fn normal<F>(x: F[N, D], D: dim) -> F[N, D] {
        softmax(x, D)
    }

    fn twice(x) { x + x }
}

/// A model's layer, generic over its precision.
fn layer<T: Float>(x: &Tensor<T>, gain: &Tensor<T>, limit: T) -> Result<Tensor<T>> {
    gated(x, gain, limit, 0.25)
}

/// Computes the function in f64, without a rounding to `T`.
fn expected(x: &[f32], gain: &[f32], limit: f32) -> Vec<f64> {
    let rows = x.chunks(gain.len()).flat_map(|row| {
        let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        let y = row.iter().zip(gain).map(move |(&x, &g)| f64::from(x).exp() / sum * f64::from(g) + 0.25);
        y.map(|y| if y > f64::from(limit) { 2.0 * y } else { y })
    });
    rows.collect()
}

fn check<T: Float>(device: &Device, unit: f64, of: impl Fn(f32) -> T, to: impl Fn(T) -> f32) -> Result<()> {
    let (n, d) = (5, 7);
    let rounded = |x: f32| to(of(x));
    let x: Vec<f32> = (0..n * d).map(|i| rounded((i as f32 * 1.7).sin() * 3.0)).collect();
    let gain: Vec<f32> = (0..d).map(|i| rounded(i as f32 / 3.0 + 0.5)).collect();
    let limit = rounded(0.4);
    let tensor = |of_all: &[f32], shape: &[usize]| {
        Tensor::from_vec(device, of_all.iter().map(|&x| of(x)).collect::<Vec<T>>(), shape)
    };
    let (x_, gain_) = (tensor(&x, &[n, d])?, tensor(&gain, &[d])?);
    let y = layer(&x_, &gain_, of(limit))?.to_vec()?;
    for (i, (y, e)) in y.into_iter().zip(expected(&x, &gain, limit)).enumerate() {
        let y = f64::from(to(y));
        assert!((y - e).abs() <= e.abs() * unit, "{device}: {} {i} is {y}, not {e}", T::DTYPE);
    }
    let mut out = Tensor::<T>::zeros(device, [n, d])?;
    gated::into(&mut out, &x_, &gain_, of(limit), 0.25)?;
    assert_eq!(out.to_vec()?, layer(&x_, &gain_, of(limit))?.to_vec()?);
    let (means, variances) = statistics(&x_)?;
    for (row, (mean, variance)) in means.to_vec()?.into_iter().zip(variances.to_vec()?).enumerate() {
        let of_row = x[row * d..][..d].iter().map(|&x| f64::from(x));
        let m = of_row.clone().sum::<f64>() / d as f64;
        let v = of_row.map(|x| (x - m) * (x - m)).sum::<f64>() / (d - 1) as f64;
        assert!((f64::from(to(mean)) - m).abs() <= m.abs().max(0.1) * unit, "{device}: {m}");
        assert!((f64::from(variance) - v).abs() <= v * 1e-6, "{device}: {v}");
    }
    let mut p = tensor(&x, &[n * d])?;
    decay(&mut p, of(0.5))?;
    let halves: Vec<T> = x.iter().map(|&x| of(x * 0.5)).collect();
    assert_eq!(p.to_vec()?, halves, "{device}");
    Ok(())
}

#[test]
fn one_source_for_three_types() {
    on_devices(|device| {
        check(device, 2e-6, |x| x, |x| x)?;
        check(device, 1.0 / 2048.0, f16::from_f32, f16::to_f32)?;
        check(device, 1.0 / 256.0, bf16::from_f32, bf16::to_f32)
    });
}

/// The bits follow from the arguments alone, on any number of threads.
#[test]
fn the_same_bits_each_time_and_on_any_number_of_threads() {
    on_devices(|device| {
        let halves: Vec<f16> = (0..3 * 70_001).map(|i| f16::from_f32((i as f32 * 0.37).sin())).collect();
        let x = Tensor::from_vec(device, halves, [3, 70_001])?;
        let run = || {
            let (means, variances) = statistics(&x)?;
            let bits = means.to_vec()?.into_iter().map(|x| u32::from(x.to_bits()));
            Ok::<_, fusion::Error>(
                bits.chain(variances.to_vec()?.into_iter().map(f32::to_bits)).collect::<Vec<_>>(),
            )
        };
        let first = run()?;
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start");
            assert_eq!(pool.install(run)?, first, "{device}, {threads} threads");
        }
        Ok(())
    });
}

#[test]
fn each_type_has_a_report() {
    assert_eq!(gated::report::<f32>().kernels(), 1);
    assert_eq!(gated::report::<f16>().kernels(), 1);
    let bytes = |report: fusion::Report| report.bind(&[("N", 1024), ("D", 1024)]).unwrap().bytes().unwrap();
    let (wide, narrow) = (bytes(gated::report::<f32>()), bytes(gated::report::<bf16>()));
    assert_eq!((wide, narrow), (4 * (2 * 1024 * 1024 + 1024), 2 * (2 * 1024 * 1024 + 1024)));
    assert!(!gated::kernels::<f16>().is_empty());
}
