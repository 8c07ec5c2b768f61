//! Rows that the blocks of a cluster share, each block with a part, agree with the CPU.
//!
//! The numbers of rows and elements are large enough for a GPU with clusters to use them. Rows have whole
//! vectors or none, and as few or as many blocks as possible. The last block may have fewer elements than the
//! others.

use fusion::prelude::*;

use crate::Host;
use crate::devices::{Kind, devices};
use crate::unstaged::{
    SLACK, activated, agree, in_place, known, logs, narrow, of_both, of_halves, residual, widened,
};

fuse! {
    pub(crate) fn running(x: f32[N, D], m: &mut f32[N]) -> f32[N, D] {
        let mean = mean(x, D);
        m = 0.9 * m + 0.1 * mean;
        x - mean
    }

    pub(crate) fn of_planes(x: f32[N, H, W], bias: f32[W]) -> f32[N, H, W] { softmax(x + bias, (H, W)) }

    pub(crate) fn shifted(x: &mut f32[N, D], y: f32[N, D]) { x = x - mean(y, D) * flip(y, D); }

    pub(crate) fn centred(
        a: f16[N, D], b: f16[N, D], c: f16[N, D], d: f16[N, D], e: f16[N, D],
    ) -> (f16[N, D], f16[N, D], f16[N, D], f16[N, D], f16[N, D]) {
        let (a, b, c, d, e) = (a as f32, b as f32, c as f32, d as f32, e as f32);
        (
            (a - mean(a, D)) as f16, (b - mean(b, D)) as f16, (c - mean(c, D)) as f16, (d - mean(d, D)) as f16,
            (e - mean(e, D)) as f16,
        )
    }

    // Each thread reads many scalars before its rows.
    pub(crate) fn of_scalars(
        x: f32[N, D], a: f32[], b: f32[], c: f32[], d: f32[], e: f32[], f: f32[], g: f32[], h: f32[], i: f32[],
    ) -> f32[N, D] {
        softmax(x * (a + b + c + d + e + f + g + h + i), D)
    }

    pub(crate) fn largest(x: i32[N, D]) -> (i32[N, D], i32[N]) {
        let most = max(x, D);
        (most - x, most)
    }
}

const ROWS: usize = 64;

fn rows(device: &Device, seed: u32, len: usize) -> Result<Tensor<f32>> {
    Host::new(seed, &[ROWS, len]).on(device)
}

#[test]
fn softmax_and_logarithms() {
    agree("softmax in place", (&[32_772, 50_257], 0.0), |device, len| {
        let mut x = rows(device, 3, len)?;
        in_place(&mut x)?;
        Ok(vec![x])
    });
    agree("logarithms", (&[16_385, 40_000], SLACK), |device, len| {
        let (all, sums) = logs(&rows(device, 5, len)?)?;
        Ok(vec![all, sums])
    });
}

/// Three and five blocks a row, neither of which divides the number of blocks that a GPU keeps resident.
#[test]
fn rows_of_few_blocks_that_read_scalars_first() {
    agree("of scalars", (&[33_000, 66_000], 0.0), |device, len| {
        let s = Tensor::full(device, 0.125, ())?;
        Ok(vec![of_scalars(&rows(device, 3, len)?, &s, &s, &s, &s, &s, &s, &s, &s, &s)?])
    });
}

#[test]
fn norms() {
    agree("residual", (&[36_001], SLACK), |device, len| {
        let gamma = Host::new(9, &[len]).on(device)?;
        let (sum, scaled) = residual(&rows(device, 3, len)?, &rows(device, 4, len)?, &gamma)?;
        Ok(vec![sum, scaled])
    });
    agree("activated", (&[65_540], SLACK), |device, len| {
        let (bias, gamma) = (Host::new(7, &[len]).on(device)?, Host::new(9, &[len]).on(device)?);
        Ok(vec![activated(&rows(device, 3, len)?, &bias, &gamma)?])
    });
    agree("of both", (&[32_772], 1e-5), |device, len| {
        Ok(vec![of_both(&rows(device, 3, len)?, &rows(device, 4, len)?)?])
    });
}

/// The longest row that all blocks can stage, one vector more, and rows of known length.
#[test]
fn the_longest() {
    agree("longest", (&[196_608, 196_612], 0.0), |device, len| {
        let mut x = Host::new(3, &[ROWS, len]).on(device)?;
        in_place(&mut x)?;
        Ok(vec![x])
    });
    agree("known", (&[32_768], SLACK), |device, len| Ok(vec![known(&rows(device, 3, len)?)?]));
}

/// Rows of two dims, and elements of a row that another block stages.
#[test]
fn of_planes_and_elsewhere() {
    agree("planes", (&[4100, 8_004, 8_003], 0.0), |device, len| {
        let (x, bias) = (Host::new(3, &[ROWS, 9, len]), Host::new(4, &[len]));
        Ok(vec![of_planes(&x.on(device)?, &bias.on(device)?)?])
    });
    agree("shifted", (&[20_001, 36_004], SLACK), |device, len| {
        let mut x = rows(device, 3, len)?;
        shifted(&mut x, &rows(device, 4, len)?)?;
        Ok(vec![x])
    });
}

/// Rows of many tensors. Eight blocks would share a row if the parts of seven blocks were not equally long.
#[test]
fn of_many_tensors() {
    let step = 1.0 / (1 << 9) as f32;
    agree("centred", (&[24_592, 25_072, 16_400], step), |device, len| {
        let tensor = |salt: u32| -> Result<Tensor<f16>> {
            let halves: Vec<f16> =
                Host::new(salt, &[ROWS, len]).elements.iter().map(|&x| f16::from_f32(x)).collect();
            Tensor::from_vec(device, halves, [ROWS, len])
        };
        let [a, b, c, d, e] = [tensor(1)?, tensor(2)?, tensor(3)?, tensor(4)?, tensor(5)?];
        let (a, b, c, d, e) = centred(&a, &b, &c, &d, &e)?;
        [a, b, c, d, e].iter().map(widened).collect()
    });
}

#[test]
fn of_narrow_types() {
    // Distance from one `f16` to the next, at the size of these results.
    let step = 1.0 / (1 << 23) as f32;
    agree("narrow", (&[32_776], step), |device, len| Ok(vec![widened(&narrow(&rows(device, 3, len)?)?)?]));
    agree("of halves", (&[20_001, 32_776], 0.0), |device, len| {
        let host = Host::new(3, &[ROWS, len]).elements;
        let halves: Vec<f16> = host.iter().map(|&x| f16::from_f32(x)).collect();
        let others: Vec<bf16> = host.iter().rev().map(|&x| bf16::from_f32(x)).collect();
        let (x, r) =
            (Tensor::from_vec(device, halves, [ROWS, len])?, Tensor::from_vec(device, others, [ROWS, len])?);
        Ok(vec![of_halves(&x, &r)?])
    });
}

/// The first thread of the first block writes a value that all other threads have read.
#[test]
fn values_of_rows() {
    agree("running", (&[16_387, 33_000], SLACK), |device, len| {
        let mut means = Host::new(9, &[ROWS]).on(device)?;
        let moved = running(&rows(device, 3, len)?, &mut means)?;
        Ok(vec![moved, means])
    });
    for (kind, device) in devices() {
        let elements: Vec<i32> =
            (0..ROWS as i32 * 33_000).map(|i| i.wrapping_mul(0x9e37_79b9_u32 as i32)).collect();
        let x = Tensor::from_slice(&device, &elements, [ROWS, 33_000]).expect("it fits");
        let (left, most) = largest(&x).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        let (left, most) = (left.to_vec().expect("it can be read"), most.to_vec().expect("it can be read"));
        for (row, elements) in elements.chunks(33_000).enumerate() {
            let expected = *elements.iter().max().expect("rows have elements");
            assert_eq!(most[row], expected, "{device}: row {row}");
            let of_row = left[row * 33_000..].iter().zip(elements);
            assert!(
                of_row.into_iter().all(|(left, x)| *left == expected.wrapping_sub(*x)),
                "{device}: row {row}"
            );
        }
    }
}

/// More rows than clusters run at a time, so that each cluster has several. Every run gives the same bits.
#[test]
fn every_run_gives_the_same_bits() {
    for (_, device) in devices().into_iter().filter(|(kind, _)| *kind == Kind::Cuda) {
        let x = rows(&device, 3, 20_003).expect("it fits");
        let bits = || -> Vec<u32> {
            let (_, sums) = logs(&x).expect("it runs");
            sums.to_vec().expect("it can be read").into_iter().map(f32::to_bits).collect()
        };
        let first = bits();
        assert!((0..3).all(|_| bits() == first), "{device}");
    }
}
