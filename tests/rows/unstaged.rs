//! Rows with an unstaged tail agree with the CPU. A team of a GPU stages the first elements and reads the
//! tail in each pass. The CPU reads all elements from its caches.

use fusion::prelude::*;

use crate::Host;
use crate::devices::{Kind, devices};

fuse! {
    pub(crate) fn in_place(x: &mut f32[N, D]) { x = softmax(x, D); }

    pub(crate) fn logs(x: f32[N, D]) -> (f32[N, D], f32[N]) { (log_softmax(x, D), logsumexp(x, D)) }

    pub(crate) fn residual(x: f32[N, D], r: f32[N, D], gamma: f32[D]) -> (f32[N, D], f32[N, D]) {
        let h = x + r;
        (h, rms_norm(h, D) * gamma)
    }

    pub(crate) fn activated(x: f32[N, D], bias: f32[D], gamma: f32[D]) -> f32[N, D] {
        layer_norm(gelu(x + bias), D) * gamma + bias
    }

    pub(crate) fn reversed(x: f32[N, D]) -> f32[N, D] { flip(softmax(x, D), D) }

    pub(crate) fn of_halves(x: f16[N, D], r: bf16[N, D]) -> f32[N, D] { softmax(x as f32 + r as f32, D) }

    /// Two arrays are staged, each with half as many elements.
    pub(crate) fn of_both(x: f32[N, D], y: f32[N, D]) -> f32[N, D] {
        (x - mean(x, D)) * rsqrt(var(y, D)) + y * softmax(y - max(x, D), D)
    }

    pub(crate) fn exact(x: f64[N, D]) -> f64[N, D] { x - mean(x, D) }

    pub(crate) fn known(x: f32[N, D = 32_768]) -> f32[N, D] { layer_norm(x, D) }

    pub(crate) fn known_and_staged(x: f32[N, D = 20_480]) -> f32[N, D] { softmax(x, D) }

    pub(crate) fn narrow(x: f32[N, D]) -> f16[N, D] { softmax(x, D) as f16 }

    pub(crate) fn widened(x: f16[N, D]) -> f32[N, D] { x as f32 }
}

/// Lengths: the number of staged elements, one more, some vectors more, and so on, with and without whole
/// vectors.
const LENGTHS: [usize; 7] = [24_575, 24_576, 24_577, 24_580, 28_676, 40_003, 65_532];

/// Rounding error of values near one after a subtraction.
pub(crate) const SLACK: f32 = 4e-6;

/// Creates rows whose largest element is staged or unstaged, and rows with infinities and NaN in both parts.
fn rows(seed: u32, len: usize) -> Host {
    let mut host = Host::new(seed, &[6, len]);
    let inf = f32::INFINITY;
    for (row, elements) in host.elements.chunks_mut(len).enumerate() {
        match row {
            0 => elements[len - 1] = 30.0,
            1 => elements[1] = 30.0,
            2 => elements[..len - 7].fill(-inf),
            3 => elements[len - 2] = f32::NAN,
            4 => elements[len - 1] = inf,
            _ => {}
        }
    }
    host
}

/// Calls a function on the CPU and on each other device, with tensors there. All results must be alike,
/// within a relative bound plus `slack`.
pub(crate) fn agree(
    what: &str,
    (lengths, slack): (&[usize], f32),
    call: impl Fn(&Device, usize) -> Result<Vec<Tensor<f32>>>,
) {
    for &len in lengths {
        let expected: Vec<Vec<f32>> = call(&Device::cpu(), len)
            .and_then(|all| all.iter().map(Tensor::to_vec).collect())
            .unwrap_or_else(|error| panic!("{what} of {len}: {error}"));
        for (_, device) in devices().into_iter().filter(|(kind, _)| *kind != Kind::Cpu) {
            let got = call(&device, len).unwrap_or_else(|error| panic!("{what} of {len}, {device}: {error}"));
            for (got, expected) in got.iter().zip(&expected) {
                let got = got.to_vec().expect("results can be read");
                assert_eq!(got.len(), expected.len());
                for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
                    let is_alike = got == expected || got.is_nan() && expected.is_nan();
                    let bound = 2e-5 * expected.abs() + slack;
                    // The message is formatted only on failure, because there are millions of elements.
                    assert!(
                        is_alike || (got - expected).abs() <= bound,
                        "{what} of {len} on {device}, row {}, element {}: {got}, not {expected}",
                        i / len,
                        i % len
                    );
                }
            }
        }
    }
}

#[test]
fn softmax_in_place() {
    agree("softmax", (&LENGTHS, 0.0), |device, len| {
        let mut x = rows(3, len).on(device)?;
        in_place(&mut x)?;
        Ok(vec![x])
    });
}

#[test]
fn logarithms() {
    agree("logarithms", (&LENGTHS, SLACK), |device, len| {
        let (all, sums) = logs(&rows(5, len).on(device)?)?;
        Ok(vec![all, sums])
    });
}

/// Creates rows without NaN and infinities, which would turn a whole row into NaN where a mean is subtracted.
fn finite(device: &Device, seed: u32, len: usize) -> Result<Tensor<f32>> {
    Host::new(seed, &[3, len]).on(device)
}

#[test]
fn norms() {
    agree("residual", (&LENGTHS, SLACK), |device, len| {
        let gamma = Host::new(9, &[len]).on(device)?;
        let (sum, scaled) = residual(&finite(device, 3, len)?, &finite(device, 4, len)?, &gamma)?;
        Ok(vec![sum, scaled])
    });
    agree("activated", (&LENGTHS, SLACK), |device, len| {
        let (bias, gamma) = (Host::new(7, &[len]).on(device)?, Host::new(9, &[len]).on(device)?);
        Ok(vec![activated(&finite(device, 3, len)?, &bias, &gamma)?])
    });
}

#[test]
fn in_other_places_and_of_other_types() {
    agree("reversed", (&LENGTHS, 0.0), |device, len| Ok(vec![reversed(&rows(3, len).on(device)?)?]));
    agree("narrow", (&LENGTHS, 1e-7), |device, len| Ok(vec![widened(&narrow(&rows(3, len).on(device)?)?)?]));
    agree("of halves", (&LENGTHS, 0.0), |device, len| {
        let halves: Vec<f16> = Host::new(3, &[3, len]).elements.iter().map(|&x| f16::from_f32(x)).collect();
        let others: Vec<bf16> = Host::new(4, &[3, len]).elements.iter().map(|&x| bf16::from_f32(x)).collect();
        let (x, r) =
            (Tensor::from_vec(device, halves, [3, len])?, Tensor::from_vec(device, others, [3, len])?);
        Ok(vec![of_halves(&x, &r)?])
    });
}

#[test]
fn two_arrays() {
    agree("of both", (&[12_288, 12_289, 12_292, 24_576, 32_001], SLACK), |device, len| {
        Ok(vec![of_both(&finite(device, 3, len)?, &finite(device, 4, len)?)?])
    });
}

#[test]
fn of_known_lengths() {
    agree("known", (&[32_768], SLACK), |device, len| Ok(vec![known(&finite(device, 3, len)?)?]));
    agree("known and staged", (&[20_480], 0.0), |device, len| {
        Ok(vec![known_and_staged(&rows(3, len).on(device)?)?])
    });
}

/// Staged elements have four bytes each, so doubles are not staged.
#[test]
fn of_doubles() {
    for (kind, device) in devices().into_iter().filter(|(kind, _)| *kind != Kind::Wgpu) {
        let elements: Vec<f64> = (0..2 * 30_000).map(|i| f64::from(i % 977) * 0.37).collect();
        let x = Tensor::from_slice(&device, &elements, [2, 30_000]).expect("it fits");
        let got = exact(&x).and_then(|y| y.to_vec()).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        for (row, got) in elements.chunks(30_000).zip(got.chunks(30_000)) {
            let mean = row.iter().sum::<f64>() / 30_000.0;
            assert!(row.iter().zip(got).all(|(x, got)| (x - mean - got).abs() < 1e-9), "{device}");
        }
    }
}
