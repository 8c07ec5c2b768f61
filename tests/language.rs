//! The language gives results worked out by hand, on every device of the machine.

mod devices;

use devices::on_devices;
use fusion::prelude::*;

fuse! {
    /// Both operands have all dims.
    pub fn swiglu(x: f32[N, D], y: f32[N, D]) -> f32[N, D] { silu(x) * y }

    /// A broadcast, and a transpose by the order of the result's dims.
    pub fn biased(x: f32[N, D], b: f32[D]) -> f32[D, N] { relu(x + b) }

    /// A sum over a fixed dim.
    pub fn without_grey(x: f32[H, W, C = 3], weight: f32[C]) -> f32[H, W, C] {
        let grey = sum(x * weight, C);
        x - grey
    }

    /// A sum over a fixed dim, to one number.
    pub fn dot(x: f32[C = 3], y: f32[C]) -> f32[] { sum(x * y, C) }

    /// An update in place, with a scalar of the host.
    pub fn sgd(p: &mut f32[N], g: f32[N], lr: f32) { p -= lr * g; }

    /// A swap of the old and new values of parameters.
    pub fn swap(a: &mut f32[N], b: &mut f32[N]) {
        let old = a;
        a = b;
        b = old;
    }

    /// Two results, coordinates, an extent, and a template with a default.
    pub fn ramp(x: f32[N, T]) -> (f32[N, T], f32[N]) {
        let masked = if index(T) <= index(N) { scale(x, by = 3.0) } else { -INF };
        (masked, scale(1.0 + index(N) as f32) * T)
    }

    fn scale(x, by = 0.5) { x * by }

    /// Three reads and one write.
    pub fn gate(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] { relu(a + b) * c }
}

const SIX: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

fuse! {
    pub(crate) fn threes(N: dim) -> f32[N] { 3 }
    pub(crate) fn constants(N: dim, M: dim) -> (f32[N], i32[M], u8[N], bool[M], f16[N, M], f32[]) {
        (0.5, -2, 255, true, INF, NAN)
    }
    /// Results from a scalar of the host, a scalar of the device, and extents.
    pub(crate) fn numbers(a: f32, s: f32[], N: dim, M: dim) -> (f32[N, M], f32[M], i32[N], f32[N]) { (a, s, N * M, sqrt(M)) }
    /// Equal rows and equal columns, in both orders.
    pub(crate) fn repeated(b: f32[C], N: dim) -> (f32[N, C], f32[C, N]) { (b, 2.0 * b) }
    pub(crate) fn means(x: f32[N, D]) -> (f32[D, N], f32[N, D]) { (mean(x, D), sum(x)) }
    #[fuse(off)]
    pub(crate) fn means_apart(x: f32[N, D]) -> (f32[D, N], f32[N, D]) { (mean(x, D), sum(x)) }
    /// Reductions along a dim that stands for others, or that only the body has.
    pub(crate) fn of_parts(x: f32[N, C], H: dim) -> (f32[N, C], f32[K, N], f32[H, D, N]) {
        let y = split(x, C -> (H, D));
        let z = slice(x, C -> K, 1..);
        (max(y, (H, D)), sum(z), min(max(y, D), H))
    }
    pub(crate) fn cleared(p: &mut f32[N], k: &mut i32[N]) {
        p = 0.0;
        k = N;
    }
    pub(crate) fn by_a_call(N: dim, M: dim) -> f32[N, M] { index(N) as f32 + threes(N) }
}

/// A value that lacks dims of the result is repeated along them. A value that lacks all is a constant.
#[test]
fn constants_are_whole_results() {
    on_devices(|device| {
        for n in [0usize, 1, 3, 33, 65_537] {
            let mut out = Tensor::full(device, f32::NAN, [n])?;
            threes::into(&mut out, n)?;
            assert_eq!(out.to_vec()?, vec![3.0; n], "{n} on {device}");
            let (mut p, mut k) = (Tensor::full(device, 7.0, [n])?, Tensor::full(device, 7, [n])?);
            cleared(&mut p, &mut k)?;
            assert_eq!((p.to_vec()?, k.to_vec()?), (vec![0.0; n], vec![n as i32; n]), "{n} on {device}");
        }
        for (n, m) in [(0usize, 2usize), (2, 0), (3, 5), (5, 129)] {
            let mut floats = Tensor::full(device, 9.0, [n])?;
            let (mut ints, mut bytes) = (Tensor::full(device, 9, [m])?, Tensor::full(device, 9u8, [n])?);
            let (mut truths, mut halves) =
                (Tensor::full(device, false, [m])?, Tensor::full(device, f16::ZERO, [n, m])?);
            let mut one = Tensor::full(device, 9.0, [])?;
            constants::into(&mut floats, &mut ints, &mut bytes, &mut truths, &mut halves, &mut one, n, m)?;
            assert_eq!((floats.to_vec()?, ints.to_vec()?), (vec![0.5; n], vec![-2; m]), "{device}");
            assert_eq!((bytes.to_vec()?, truths.to_vec()?), (vec![255; n], vec![true; m]), "{device}");
            assert_eq!(halves.to_vec()?, vec![f16::INFINITY; n * m], "{device}");
            assert!(one.item()?.is_nan(), "{device}");
        }
        Ok(())
    });
}

#[test]
fn results_are_the_same_along_dims_that_a_value_lacks() {
    on_devices(|device| {
        let s = Tensor::from_slice(device, &[-1.5], [])?;
        for (n, m) in [(0usize, 2usize), (2, 0), (1, 1), (3, 5), (7, 131)] {
            let (a, b, c, d) = numbers(0.25, &s, n, m)?;
            assert_eq!((a.to_vec()?, b.to_vec()?), (vec![0.25; n * m], vec![-1.5; m]), "{device}");
            assert_eq!(c.to_vec()?, vec![(n * m) as i32; n], "{device}");
            assert_eq!(d.to_vec()?, vec![(m as f32).sqrt(); n], "{device}");
            let row: Vec<f32> = (0..m).map(|i| i as f32).collect();
            let (rows, columns) = repeated(&Tensor::from_slice(device, &row, [m])?, n)?;
            assert_eq!((rows.shape().to_vec(), columns.shape().to_vec()), (vec![n, m], vec![m, n]));
            assert_eq!(rows.to_vec()?, row.repeat(n), "{device}");
            let expected: Vec<f32> = row.iter().flat_map(|x| vec![2.0 * x; n]).collect();
            assert_eq!(columns.to_vec()?, expected, "{device}");
            let mut out = Tensor::full(device, f32::NAN, [n, m])?;
            by_a_call::into(&mut out, n, m)?;
            let expected: Vec<f32> = (0..n).flat_map(|i| vec![i as f32 + 3.0; m]).collect();
            assert_eq!(out.to_vec()?, expected, "{device}");
        }
        let x = Tensor::from_slice(device, &SIX, [2, 3])?;
        for (means, sums) in [means(&x)?, means_apart(&x)?] {
            assert_eq!(means.to_vec()?, [2.0, 5.0, 2.0, 5.0, 2.0, 5.0], "{device}");
            assert_eq!(sums.to_vec()?, [21.0; 6], "{device}");
        }
        let (whole, parts, apart) =
            of_parts(&Tensor::from_slice(device, &[1.0, 5.0, 2.0, 4.0, 3.0, 6.0, 0.0, -1.0], [2, 4])?, 2)?;
        assert_eq!(whole.to_vec()?, [5.0, 5.0, 5.0, 5.0, 6.0, 6.0, 6.0, 6.0], "{device}");
        assert_eq!((parts.shape().to_vec(), parts.to_vec()?), (vec![3, 2], vec![16.0; 6]), "{device}");
        assert_eq!(
            (apart.shape().to_vec(), apart.to_vec()?),
            (vec![2, 2, 2], [4.0, 0.0].repeat(4)),
            "{device}"
        );
        assert_eq!(fuse!(max(x[N, D], D) => [N, D])?.to_vec()?, [3.0, 3.0, 3.0, 6.0, 6.0, 6.0]);
        assert_eq!(fuse!(x[N, D] * 0.0 + 1.0)?.to_vec()?, [1.0; 6]);
        assert_eq!(fuse!(sum(x[N, D]) => [D, N])?.to_vec()?, [21.0; 6]);
        Ok(())
    });
}

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
    // PTX has the vector loop, and a scalar loop for the remainder.
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
    /// Functions that reduce their arguments, which a driver's reordering must not break.
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
    /// Arithmetic that a shader compiler would like to simplify.
    pub fn reordered(a: f32[N], b: f32[N]) -> (f32[N], f32[N], f32[N], f32[N], f32[N]) {
        let rounded = (a + 12582912.0) - 12582912.0;
        let sum = a + b;
        let root = sqrt(a);
        (rounded, b - (sum - a), (a * 1e30) * 1e30 * 1e-30 * 1e-30, root * root, (a - b) + (b - a))
    }

    /// The same for NaN, infinities and zeros, where both sides must agree.
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
