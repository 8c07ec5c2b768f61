//! Kernels that write around the caches or prefetch give the same results as others, wherever their output
//! begins and ends.

use std::process::Command;

use fusion::optim::Arena;
use fusion::prelude::*;

fuse! {
    pub(crate) fn gate(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] { relu(a + b) * c }
    pub(crate) fn types(x: f32[N]) -> (f16[N], i32[N], u8[N], f64[N]) {
        (x as f16, (2.0 * x) as i32, abs(x) as u8, x as f64)
    }
    pub(crate) fn pairs(x: f32[N, K = 2]) -> f32[N] { at(x, K, 0) - at(x, K, 1) }
    pub(crate) fn transposed(x: f32[N, M]) -> f32[M, N] { -x }
    pub(crate) fn shifted(x: f32[N, M], b: f32[N]) -> (f32[N, M], f32[N]) { (x - b, sum(x, M)) }
    pub(crate) fn largest(x: i32[N, M]) -> i32[N] { max(x, M) }
    pub(crate) fn numbered(x: f32[N]) -> f32[N] { x + index(N) as f32 }
    pub(crate) fn added(p: &mut f32[N], x: f32[N]) -> f32[N] { p += x; 2.0 * x }
    pub(crate) fn weighed(x: f32[N, M]) -> f32[N] { sum(exp2(x - max(x, M)), M) }
}

const SIZES: [usize; 14] = [0, 1, 3, 15, 16, 17, 63, 64, 65, 127, 129, 1000, 4099, 70_001];

fn number(i: usize, seed: usize) -> f32 {
    ((i * 7919 + seed * 31) % 401) as f32 / 2.0 - 100.0
}

fn tensor(len: usize, seed: usize) -> Result<Tensor<f32>> {
    Tensor::from_vec(&Device::cpu(), (0..len).map(|i| number(i, seed)).collect(), [len])
}

/// Streaming stores and prefetches are fixed for a process, so each combination runs as a process of its own.
#[test]
fn all_ways_to_memory_give_the_same() {
    let never = usize::MAX.to_string();
    for (stream, fetch) in [("0", &*never), (&*never, "0"), ("0", "0"), (&*never, &*never)] {
        let mut again = Command::new(std::env::current_exe().expect("it runs"));
        let again = again.arg("all_results").env("FUSION_CPU_STREAM_BYTES", stream);
        let output = again.env("FUSION_CPU_FETCH_BYTES", fetch).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("4 passed"), "{stream}, {fetch}: {text}");
    }
}

#[test]
fn all_results_of_elements() -> Result<()> {
    for len in SIZES {
        let [a, b, c] = [1, 2, 3].map(|seed| tensor(len, seed).expect("memory"));
        let x = |i: usize| number(i, 1);
        let expected: Vec<f32> = (0..len).map(|i| (x(i) + number(i, 2)).max(0.0) * number(i, 3)).collect();
        assert_eq!(gate(&a, &b, &c)?.to_vec()?, expected, "{len}");
        let (halves, integers, bytes, doubles) = types(&a)?;
        assert_eq!(halves.to_vec()?, (0..len).map(|i| f16::from_f32(x(i))).collect::<Vec<_>>(), "{len}");
        assert_eq!(integers.to_vec()?, (0..len).map(|i| (2.0 * x(i)) as i32).collect::<Vec<_>>(), "{len}");
        assert_eq!(bytes.to_vec()?, (0..len).map(|i| x(i).abs() as u8).collect::<Vec<_>>(), "{len}");
        assert_eq!(doubles.to_vec()?, (0..len).map(|i| f64::from(x(i))).collect::<Vec<_>>(), "{len}");
        assert_eq!(numbered(&a)?.to_vec()?, (0..len).map(|i| x(i) + i as f32).collect::<Vec<_>>(), "{len}");
        let mut p = b.clone();
        let twice = added(&mut p, &a)?.to_vec()?;
        assert_eq!(twice, (0..len).map(|i| 2.0 * x(i)).collect::<Vec<_>>(), "{len}");
        assert_eq!(p.to_vec()?, (0..len).map(|i| number(i, 2) + x(i)).collect::<Vec<_>>(), "{len}");
    }
    Ok(())
}

#[test]
fn all_results_of_rows() -> Result<()> {
    for (n, m) in [(1, 1), (3, 65), (70, 3), (65, 129), (300, 257), (2, 1000)] {
        let x = tensor(n * m, 1)?.reshape([n, m])?;
        let at = |i: usize, j: usize| number(i * m + j, 1);
        let expected: Vec<f32> = (0..m).flat_map(|j| (0..n).map(move |i| -at(i, j))).collect();
        assert_eq!(transposed(&x)?.to_vec()?, expected, "{n}, {m}");
        let (shifted, sums) = shifted(&x, &tensor(n, 2)?)?;
        let expected: Vec<f32> = (0..n).flat_map(|i| (0..m).map(move |j| at(i, j) - number(i, 2))).collect();
        assert_eq!(shifted.to_vec()?, expected, "{n}, {m}");
        // Halves of small integers, so that sums are exact in any order.
        assert_eq!(sums.to_vec()?, (0..n).map(|i| (0..m).map(|j| at(i, j)).sum()).collect::<Vec<f32>>());
        let integers: Vec<i32> = (0..n * m).map(|i| (2.0 * number(i, 1)) as i32).collect();
        let expected: Vec<i32> = integers.chunks(m).filter_map(|row| row.iter().max().copied()).collect();
        assert_eq!(largest(&Tensor::from_slice(&Device::cpu(), &integers, [n, m])?)?.to_vec()?, expected);
        let pairs = pairs(&tensor(2 * n * m, 1)?.reshape([n * m, 2])?)?;
        let expected: Vec<f32> = (0..n * m).map(|i| number(2 * i, 1) - number(2 * i + 1, 1)).collect();
        assert_eq!(pairs.to_vec()?, expected, "{n}, {m}");
    }
    Ok(())
}

/// Prefetches ask for the next row, which is short, long, or longer than a near cache. The last row has none
/// after it.
#[test]
fn all_results_of_rows_that_are_read_again() -> Result<()> {
    for (n, m) in [(3, 100), (5, 2047), (3, 4096), (2, 5001), (1, 70_000)] {
        let values: Vec<f32> = (0..n * m).map(|i| (i * 7919 % 97 % 8) as f32).collect();
        let x = Tensor::from_slice(&Device::cpu(), &values, [n, m])?;
        // Sums of a few powers of two are exact in any order.
        let weigh = |row: &[f32]| row.iter().map(|x| (x - 7.0).exp2()).sum::<f32>();
        assert_eq!(weighed(&x)?.to_vec()?, values.chunks(m).map(weigh).collect::<Vec<_>>(), "{n}, {m}");
    }
    Ok(())
}

/// Outputs begin at many addresses, and no element around them changes.
#[test]
fn all_results_within_a_tensor() -> Result<()> {
    let device = Device::cpu();
    let tensors: Vec<Tensor<f32>> = (0..40).map(|i| tensor(1 + 37 * i, 1)).collect::<Result<_>>()?;
    let names = (0..40).map(|i| format!("{i}"));
    let mut arena = Arena::new(&device, names.zip(&tensors))?;
    for (i, a) in tensors.iter().enumerate().filter(|(i, _)| i % 3 == 1) {
        arena.write_to(&format!("{i}"), |out| gate::into(out, a, a, a))?;
    }
    for (i, a) in tensors.iter().enumerate() {
        let expected: Vec<f32> = if i % 3 == 1 { gate(a, a, a)?.to_vec()? } else { a.to_vec()? };
        assert_eq!(arena[&*format!("{i}")].to_vec()?, expected, "{i}");
    }
    Ok(())
}
