//! A value of 16 bits is one `f32` between its load and its store, for every use of it.

use fusion::{Tensor, f16};

use crate::devices::{Kind, devices, on_devices};

fusion::fuse! {
    /// A guard of the value that it returns: `relu` as a user would write it.
    pub fn guarded(x: f16[N], y: f16[N]) -> f16[N] { let p = x * y; sqrt(if p < 0 { 0 } else { p }) }

    pub fn looked_at(x: f16[N], y: f16[N]) -> (bool[N], bool[N], bool[N], bool[N]) {
        let p = x * y;
        (isfinite(p), p == INF, isfinite(p as f16), p as f16 == INF)
    }

    pub fn cast(x: f16[N], y: f16[N]) -> (f32[N], i32[N], f16[N]) { (x * y, (x * y) as i32, x * y) }

    /// Values in other dims, none of which is stored in between.
    pub fn regrouped(x: f16[A, B]) -> (f32[K], f32[A, B], f32[], bool[K]) {
        let merged = merge(x * x, (A, B) -> K);
        (merged, split(merged, K -> (A, B)), sum(merged), isinf(merged))
    }

    /// Literals take the type of the operand that they meet.
    pub fn scaled(x: f64[N]) -> (f64[N], f64[N]) { (x * sqrt(2.0), x * rsqrt(N) + exp(1.0)) }
}

#[test]
fn one_expression_has_one_value() {
    on_devices(|device| {
        let halves = |x: &[f32]| {
            let halves: Vec<f16> = x.iter().map(|&x| f16::from_f32(x)).collect();
            Tensor::from_slice(device, &halves, [x.len()])
        };
        // The product is a zero of f16 and a negative f32.
        let guarded = guarded(&halves(&[-1e-4, 4.0])?, &halves(&[1e-5, 4.0])?)?.to_vec()?;
        assert_eq!(guarded, [f16::ZERO, f16::from_f32(4.0)], "{device}");
        let (x, y) = (halves(&[300.0, 3.0])?, halves(&[300.0, 3.0])?);
        let (finite, infinite, finite_half, infinite_half) = looked_at(&x, &y)?;
        assert_eq!(
            (finite.to_vec()?, infinite.to_vec()?),
            (vec![true, true], vec![false, false]),
            "{device}"
        );
        let halves = (finite_half.to_vec()?, infinite_half.to_vec()?);
        assert_eq!(halves, (vec![false, true], vec![true, false]), "{device}");
        let (single, int, half) = cast(&x, &y)?;
        assert_eq!((single.to_vec()?, int.to_vec()?), (vec![90_000.0, 9.0], vec![90_000, 9]), "{device}");
        assert_eq!(half.to_vec()?, [f16::INFINITY, f16::from_f32(9.0)], "{device}");
        Ok(())
    });
}

#[test]
fn dims_of_other_names_round_nothing() {
    on_devices(|device| {
        let x: Vec<f16> = [300.0, 0.2, 400.0, 0.4].map(f16::from_f32).to_vec();
        let squares: Vec<f32> = x.iter().map(|&x| f32::from(x) * f32::from(x)).collect();
        let (merged, split, sum, infinite) = regrouped(&Tensor::from_slice(device, &x, [2, 2])?)?;
        assert_eq!((merged.to_vec()?, split.to_vec()?), (squares.clone(), squares.clone()), "{device}");
        let sum = sum.to_vec()?[0];
        assert!((sum - squares.iter().sum::<f32>()).abs() < 0.1, "{device}: {sum}");
        assert_eq!(infinite.to_vec()?, [false; 4], "{device}");
        Ok(())
    });
}

#[test]
fn functions_of_numbers_have_the_digits_of_what_they_meet() {
    for (_, device) in devices().into_iter().filter(|(kind, _)| *kind != Kind::Wgpu) {
        let x = Tensor::from_slice(&device, &[1.0, 3.0], [2]).expect("there is memory");
        let (root, rest) = scaled(&x).expect("these devices have f64");
        let near = |got: Vec<f64>, expect: [f64; 2]| {
            let far = got.iter().zip(expect).any(|(got, expect)| (got - expect).abs() > 4e-16 * expect.abs());
            assert!(!far, "{device}: {got:?}, not {expect:?}");
        };
        near(root.to_vec().expect("numbers"), [2f64.sqrt(), 3.0 * 2f64.sqrt()]);
        let e = std::f64::consts::E;
        near(rest.to_vec().expect("numbers"), [0.5f64.sqrt() + e, 3.0 * 0.5f64.sqrt() + e]);
    }
}
