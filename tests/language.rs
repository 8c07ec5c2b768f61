//! The language on every device of the machine, with results worked out by hand.

mod devices;

use devices::on_devices;
use fusion::prelude::*;

fuse! {
    /// Both operands have all dims.
    pub fn swiglu(x: f32[N, D], y: f32[N, D]) -> f32[N, D] { silu(x) * y }

    /// A broadcast, and a transpose by the order of the result.
    pub fn biased(x: f32[N, D], b: f32[D]) -> f32[D, N] { relu(x + b) }

    /// A sum over a fixed dim.
    pub fn without_grey(x: f32[H, W, C = 3], weight: f32[C]) -> f32[H, W, C] {
        let grey = sum(x * weight, C);
        x - grey
    }

    /// The same to one number.
    pub fn dot(x: f32[C = 3], y: f32[C]) -> f32[] { sum(x * y, C) }

    /// In place, with a scalar of the host.
    pub fn sgd(p: &mut f32[N], g: f32[N], lr: f32) { p -= lr * g; }

    /// Old and new values of parameters.
    pub fn swap(a: &mut f32[N], b: &mut f32[N]) {
        let old = a;
        a = b;
        b = old;
    }

    /// Two results, coordinates, an extent and a template with a default.
    pub fn ramp(x: f32[N, T]) -> (f32[N, T], f32[N]) {
        let masked = if index(T) <= index(N) { scale(x, by = 3.0) } else { -INF };
        (masked, scale(1.0 + index(N) as f32) * T)
    }

    fn scale(x, by = 0.5) { x * by }

    /// Three reads, one write.
    pub fn gate(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] { relu(a + b) * c }
}

const SIX: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

#[test]
fn broadcasts_and_transposes() {
    on_devices(|device| {
        let x = Tensor::from_slice(device, &SIX, [2, 3])?;
        let b = Tensor::from_slice(device, &[-4.0, 0.0, 1.0], [3])?;
        assert_eq!(biased(&x, &b)?.to_vec()?, [0.0, 0.0, 2.0, 5.0, 4.0, 7.0]);
        assert_eq!(fuse!(x[N, D] * scalar(2.0) + b[D])?.to_vec()?, [-2.0, 4.0, 7.0, 4.0, 10.0, 13.0]);
        assert_eq!(fuse!(x[N, D] * 2.0 + b[D] => [D, N])?.to_vec()?, [-2.0, 4.0, 4.0, 10.0, 7.0, 13.0]);
        assert_eq!(fuse!(relu(x - 3.0) * x)?.to_vec()?, [0.0, 0.0, 0.0, 4.0, 10.0, 18.0]);
        Ok(())
    });
}

#[test]
fn functions_of_the_library() {
    on_devices(|device| {
        let x = Tensor::from_slice(device, &SIX, [2, 3])?;
        for (got, x) in swiglu(&x, &x)?.to_vec()?.into_iter().zip(SIX.map(f64::from)) {
            assert!((f64::from(got) - x * x / (1.0 + (-x).exp())).abs() < 1e-5, "{got} for {x}");
        }
        Ok(())
    });
}

#[test]
fn fixed_dims() {
    on_devices(|device| {
        let x = Tensor::from_slice(device, &SIX, [1, 2, 3])?;
        let weight = Tensor::from_slice(device, &[0.5, 0.25, 0.25], [3])?;
        assert_eq!(without_grey(&x, &weight)?.to_vec()?, [-0.75, 0.25, 1.25, -0.75, 0.25, 1.25]);
        let y = Tensor::from_slice(device, &[1.0, 2.0, 3.0], [3])?;
        assert_eq!(dot(&y, &weight)?.item()?, 1.75);
        Ok(())
    });
}

#[test]
fn in_place() {
    on_devices(|device| {
        let mut p = Tensor::from_slice(device, &SIX, [6])?;
        let (before, g) = (p.clone(), p.clone());
        sgd(&mut p, &g, 0.5)?;
        assert_eq!(p.to_vec()?, [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]);
        assert_eq!(before.to_vec()?, SIX);
        let mut q = g;
        swap(&mut p, &mut q)?;
        assert_eq!((p.to_vec()?[1], q.to_vec()?[1]), (2.0, 1.0));
        Ok(())
    });
}

#[test]
fn coordinates_and_several_results() {
    on_devices(|device| {
        let x = Tensor::from_slice(device, &SIX, [3, 2])?;
        let (masked, rows) = ramp(&x)?;
        assert_eq!(masked.to_vec()?, [3.0, f32::NEG_INFINITY, 9.0, 12.0, 15.0, 18.0]);
        assert_eq!(rows.to_vec()?, [1.0, 2.0, 3.0]);
        Ok(())
    });
}

#[test]
fn sizes_that_are_no_multiples() {
    on_devices(|device| {
        for n in [0usize, 1, 3, 31, 33, 65_537] {
            let a: Vec<f32> = (0..n).map(|i| (i % 7) as f32 - 3.0).collect();
            let t = Tensor::from_slice(device, &a, [n])?;
            let mut out = Tensor::full(device, f32::NAN, [n])?;
            gate::into(&mut out, &t, &t, &t)?;
            let expected: Vec<f32> = a.iter().map(|x| (x + x).max(0.0) * x).collect();
            assert_eq!(out.to_vec()?, expected, "{n} elements on {}", device.name());
        }
        Ok(())
    });
}

#[test]
fn disagreeing_extents_are_named() {
    on_devices(|device| {
        let x = Tensor::zeros(device, [2, 3])?;
        let b = Tensor::zeros(device, [4])?;
        let error = biased(&x, &b).map(drop).map_err(|error| error.to_string());
        let error = error.expect_err("the extents disagree");
        assert!(["`D`", "`x`", "`b`", "3", "4"].iter().all(|part| error.contains(part)), "{error}");
        Ok(())
    });
}

#[test]
fn one_kernel_three_loads_one_store() {
    assert_eq!((gate::report().kernels(), gate::report().ops()), (1, 3));
    // In PTX the vector loop, and the scalar loop for what is left.
    #[cfg(feature = "ptx")]
    for (part, count) in
        [("ld.global.nc.v4.f32", 3), ("st.global.v4.f32", 1), ("ld.global", 6), ("st.global", 2)]
    {
        assert_eq!(gate::PTX.matches(part).count(), count, "{part}");
    }
    #[cfg(feature = "wgsl")]
    for (part, count) in [("var<storage, read>", 3), ("var<storage, read_write>", 1)] {
        assert_eq!(gate::WGSL.matches(part).count(), count, "{part}");
    }
}

fuse! {
    /// Functions whose arguments are reduced, whatever a driver reorders.
    pub fn reduced(x: f32[N]) -> (f32[N], f32[N], f32[N], f32[N], f32[N], f32[N]) {
        (exp(x), sin(x), tanh(x), erf(x), pow(abs(x), 1.7), log(abs(x)))
    }
}

#[test]
fn functions_by_argument_reduction() {
    on_devices(|device| {
        let xs: Vec<f32> = (1..400).map(|i| (i as f32 - 200.5) / 37.0).collect();
        let x = Tensor::from_slice(device, &xs, [xs.len()])?;
        let (exp, sin, tanh, erf, pow, log) = reduced(&x)?;
        let erf_of_half = erf.to_vec()?.into_iter().zip(&xs).find(|(_, x)| (**x - 0.5).abs() < 0.014);
        assert!(erf_of_half.is_some_and(|(erf, _)| (erf - 0.52).abs() < 0.02), "{erf_of_half:?}");
        let references: [fn(f64) -> f64; 5] =
            [f64::exp, f64::sin, f64::tanh, |x| x.abs().powf(1.7), |x| x.abs().ln()];
        for (i, (values, reference)) in [exp, sin, tanh, pow, log].into_iter().zip(references).enumerate() {
            for (got, &x) in values.to_vec()?.into_iter().zip(&xs) {
                let expected = reference(f64::from(x));
                let error = (f64::from(got) - expected).abs() / expected.abs().max(1e-3);
                assert!(error < 2e-6, "function {i} of {x} on {}: {got}, not {expected}", device.name());
            }
        }
        Ok(())
    });
}

fuse! {
    /// Arithmetic that a compiler of shaders would like to simplify.
    pub fn reordered(a: f32[N], b: f32[N]) -> (f32[N], f32[N], f32[N], f32[N], f32[N]) {
        let rounded = (a + 12582912.0) - 12582912.0;
        let sum = a + b;
        let root = sqrt(a);
        (rounded, b - (sum - a), (a * 1e30) * 1e30 * 1e-30 * 1e-30, root * root, (a - b) + (b - a))
    }

    /// The same with NaN and infinities: what is the same, and zeros.
    pub fn special(x: f32[N]) -> (f32[N], f32[N], f32[N], f32[N], f32[N]) {
        (x * 0.0, x - x, 0.0 / x, x / x, -x + x)
    }
}

#[test]
fn fused_operations_are_rounded_one_by_one() {
    on_devices(|device| {
        let (a, b) = ([0.3f32, 1.7, 2.5, 3.6e7], [1e-9f32, -3.3e-8, 1e8, 0.7]);
        let (rounded, lost, scaled, squared, cancelled) =
            reordered(&Tensor::from_slice(device, &a, [4])?, &Tensor::from_slice(device, &b, [4])?)?;
        let check = |got: Tensor<f32>, expect: &dyn Fn(f32, f32) -> f32| -> Result<()> {
            let expect: Vec<f32> = a.iter().zip(&b).map(|(&a, &b)| expect(a, b)).collect();
            assert_eq!(got.to_vec()?, expect, "{}", device.name());
            Ok(())
        };
        check(rounded, &|a, _| (a + 12582912.0) - 12582912.0)?;
        check(lost, &|a, b| b - ((a + b) - a))?;
        check(scaled, &|a, _| (a * 1e30) * 1e30 * 1e-30 * 1e-30)?;
        let roots = squared.to_vec()?;
        assert!(roots.iter().zip(a).all(|(got, a)| (got / a - 1.0).abs() < 1e-6), "{roots:?}");
        check(cancelled, &|a, b| (a - b) + (b - a))
    });
}

#[test]
fn nan_and_infinities_are_not_simplified_away() {
    on_devices(|device| {
        let x = [-0.0f32, 0.0, f32::INFINITY, f32::NAN, 3.0, f32::NEG_INFINITY];
        let (by_zero, difference, quotient, ratio, sum) =
            special(&Tensor::from_slice(device, &x, [x.len()])?)?;
        let check = |got: Tensor<f32>, expect: &dyn Fn(f32) -> f32| -> Result<()> {
            for (got, x) in got.to_vec()?.into_iter().zip(x) {
                let expect = expect(x);
                assert!(
                    got == expect || got.is_nan() && expect.is_nan(),
                    "{got} for {x} on {}",
                    device.name()
                );
            }
            Ok(())
        };
        check(by_zero, &|x| x * 0.0)?;
        check(difference, &|x| x - x)?;
        check(quotient, &|x| 0.0 / x)?;
        check(ratio, &|x| x / x)?;
        check(sum, &|x| -x + x)
    });
}
