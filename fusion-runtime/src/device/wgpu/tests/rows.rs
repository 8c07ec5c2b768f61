//! Rows whose elements exceed one binding, or of which only a few fit, against the CPU.

use super::*;
use crate::tensor::Tensor;
use crate::{Device, fuse};

fuse! {
    pub(crate) fn sums(x: f32[N, D]) -> f32[N] { sum(x, D) }
    pub(crate) fn centred(x: f32[N, D]) -> f32[N, D] { x - max(x, D) }
    pub(crate) fn total(x: f32[N]) -> f32[] { sum(x) }
    pub(crate) fn spread(x: f32[N]) -> f32[] { var(x) }
}

type F = Tensor<f32>;

/// Returns whole numbers so small that every sum of them is exact in any order.
fn whole(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i * 7 % 5) as f32 - 2.0).collect()
}

fn device(binding_bytes_max: u64) -> Option<Device> {
    let options = Options { binding_bytes_max, ..PLAIN };
    match open_with(options) {
        Ok(gpu) => Some(Device(std::sync::Arc::new(gpu))),
        Err(_) => {
            on_device(options, |_| Ok(()));
            None
        }
    }
}

/// Compares the results of the CPU and of a device.
fn check(gpu: &Device, shape: &[usize], call: impl Fn(&F) -> Result<F>) {
    let on = |device: &Device| -> Result<Vec<f32>> {
        call(&F::from_vec(device, whole(shape.iter().product()), shape.to_vec())?)?.to_vec()
    };
    let [expected, got] =
        [&Device::cpu(), gpu].map(|device| on(device).unwrap_or_else(|error| panic!("{shape:?}: {error}")));
    assert_same(&got, &expected);
}

/// 64 rows would start at a whole vector in every tensor, but exceed a binding.
#[test]
fn odd_rows_of_which_few_fit() {
    let Some(gpu) = device(8192) else { return };
    for (n, d) in [(10, 501), (100, 129), (3, 1900), (70, 1001), (64, 512), (5, 1500)] {
        check(&gpu, &[n, d], sums);
        check(&gpu, &[n, d], centred);
    }
}

/// Chunks contain whole parts of the row.
#[test]
fn one_row_longer_than_a_binding() {
    let Some(gpu) = device(1 << 17) else { return };
    for len in [32_768, 32_769, 100_003, 300_000, 262_144] {
        check(&gpu, &[len], total);
        let x = F::from_vec(&gpu, whole(len), [len]).unwrap_or_else(|error| panic!("{error}"));
        let got = spread(&x).and_then(|got| got.item()).unwrap_or_else(|error| panic!("{error}"));
        let (sum, squares) = whole(len)
            .iter()
            .fold((0.0, 0.0), |(sum, squares), &x| (sum + f64::from(x), squares + f64::from(x).powi(2)));
        let expected = (squares - sum * sum / len as f64) / (len as f64 - 1.0);
        assert!((f64::from(got) - expected).abs() < 1e-5 * expected, "{len}: {got}, not {expected}");
    }
}
