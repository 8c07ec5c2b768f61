//! Rows of no whole vectors, which a GPU accesses by aligned vectors with peeled edges. Rows start and end at
//! every place within a vector, and operands with another alignment take part.

use fusion::prelude::*;

use crate::Host;
use crate::devices::devices;
use crate::lengths::soft;
use crate::unstaged::{
    SLACK, activated, agree, in_place, logs, narrow, of_both, of_halves, residual, widened,
};

fuse! {
    pub(crate) fn updated(x: &mut f32[N, D], g: f32[N, D], scale: f32[D], shift: f32[N]) {
        x = x - rms_norm(g + x, D) * scale + shift;
    }

    pub(crate) fn embedded(table: f32[V, D], ids: i32[N], x: f32[N, D]) -> f32[N, D] {
        layer_norm(take(table, V, ids) + x, D)
    }

    pub(crate) fn across(x: f32[D, N], y: f32[N, D]) -> f32[N, D] { softmax(x * y, D) }

    /// `e` takes the staged buffer of `x`, and a reduction over it follows.
    pub(crate) fn in_turn(x: f32[N, D]) -> f32[N, D] {
        let m = mean(x, D);
        let e = exp(x);
        e * sum(tanh(e + m), D)
    }

    /// `e` takes the staged buffer of `x`, and `a` has a buffer of its own.
    pub(crate) fn in_turn_beside(x: f32[N, D]) -> f32[N, D] {
        let s = mean(x, D);
        let e = exp(x);
        let a = exp(0.5 * e);
        e * mean(e * s, D) + a * mean(a * s, D)
    }

    pub(crate) fn in_turn_in_place(x: &mut f32[N, D]) -> f32[N] {
        let m = mean(x, D);
        let e = exp(x);
        x = e * sum(e * (m + 2.0), D);
        m
    }

    pub(crate) fn of_sums_in_turn(x: f16[N, D], r: f32[N, D]) -> (f32[N, D], f32[N]) {
        let h = x as f32 + r;
        let m = mean(h, D);
        let e = tanh(h);
        (e * rsqrt(sum(square(e - m), D) + 1.0), m)
    }

    pub(crate) fn known(x: f32[N, D = 1001]) -> f32[N, D] { softmax(x, D) }

    pub(crate) fn bytes(x: i8[N, D]) -> f32[N, D] { softmax(x as f32 * 0.1, D) }

    pub(crate) fn of_batches(x: f32[B, N, D], bias: f32[B, D]) -> f32[B, N, D] { softmax(x + bias, D) }
}

/// Lengths: the longest and the shortest of each team, and less than a vector.
const LENGTHS: [usize; 14] = [1, 2, 3, 5, 7, 9, 511, 513, 1001, 1501, 2049, 8191, 8193, 16_383];

/// Creates seven rows, so that some start at each place within a vector.
fn rows(device: &Device, seed: u32, len: usize) -> Result<Tensor<f32>> {
    Host::new(seed, &[7, len]).on(device)
}

#[test]
fn what_lies_as_rows_do() {
    agree("softmax in place", (&LENGTHS, 0.0), |device, len| {
        let mut x = rows(device, 3, len)?;
        in_place(&mut x)?;
        Ok(vec![x])
    });
    agree("logarithms", (&LENGTHS, SLACK), |device, len| {
        let (all, sums) = logs(&rows(device, 5, len)?)?;
        Ok(vec![all, sums])
    });
    agree("of both", (&LENGTHS[3..], 1e-5), |device, len| {
        Ok(vec![of_both(&rows(device, 3, len)?, &rows(device, 4, len)?)?])
    });
    agree("known", (&[1001], 0.0), |device, len| Ok(vec![known(&rows(device, 3, len)?)?]));
}

/// Seven rows without clusters, and 64 long rows that clusters share.
#[test]
fn what_takes_the_place_of_another() {
    let call = |device: &Device, shape: [usize; 2]| -> Result<Vec<Tensor<f32>>> {
        let host = Host::new(3, &shape);
        let mut x = host.on(device)?;
        let halves: Vec<f16> = host.elements.iter().map(|&x| f16::from_f32(x)).collect();
        let halves = Tensor::from_vec(device, halves, shape)?;
        let (scaled, means) = of_sums_in_turn(&halves, &Host::new(4, &shape).on(device)?)?;
        let (alone, beside) = (in_turn(&x)?, in_turn_beside(&x)?);
        let old = in_turn_in_place(&mut x)?;
        Ok(vec![alone, beside, x, old, scaled, means])
    };
    agree("in turn", (&LENGTHS, 1e-5), |device, len| call(device, [7, len]));
    agree("in turn", (&[16_385], 1e-5), |device, len| call(device, [64, len]));
}

/// Scales and shifts of columns start anywhere in a vector.
#[test]
fn what_does_not() {
    agree("residual", (&LENGTHS, SLACK), |device, len| {
        let gamma = Host::new(9, &[len]).on(device)?;
        let (sum, scaled) = residual(&rows(device, 3, len)?, &rows(device, 4, len)?, &gamma)?;
        Ok(vec![sum, scaled])
    });
    agree("activated", (&LENGTHS[3..], SLACK), |device, len| {
        let (bias, gamma) = (Host::new(7, &[len]).on(device)?, Host::new(9, &[len]).on(device)?);
        Ok(vec![activated(&rows(device, 3, len)?, &bias, &gamma)?])
    });
    agree("updated", (&LENGTHS, SLACK), |device, len| {
        let (mut x, g) = (rows(device, 3, len)?, rows(device, 4, len)?);
        updated(&mut x, &g, &Host::new(7, &[len]).on(device)?, &Host::new(9, &[7]).on(device)?)?;
        Ok(vec![x])
    });
    agree("embedded", (&LENGTHS[3..], SLACK), |device, len| {
        let table = Host::new(5, &[11, len]).on(device)?;
        let ids = Tensor::from_slice(device, &[10, 3, 0, 7, 7, 1, 9], 7)?;
        Ok(vec![embedded(&table, &ids, &rows(device, 3, len)?)?])
    });
    agree("across", (&LENGTHS[..10], 0.0), |device, len| {
        Ok(vec![across(&Host::new(3, &[len, 7]).on(device)?, &rows(device, 4, len)?)?])
    });
    agree("of batches", (&LENGTHS[..10], 0.0), |device, len| {
        let x = Host::new(3, &[2, 3, len]).on(device)?;
        Ok(vec![of_batches(&x, &Host::new(4, &[2, len]).on(device)?)?])
    });
}

#[test]
fn of_narrow_types() {
    agree("narrow", (&LENGTHS, 1e-3), |device, len| Ok(vec![widened(&narrow(&rows(device, 3, len)?)?)?]));
    agree("of halves", (&LENGTHS, 0.0), |device, len| {
        let host = Host::new(3, &[7, len]).elements;
        let halves: Vec<f16> = host.iter().map(|&x| f16::from_f32(x)).collect();
        let others: Vec<bf16> = host.iter().rev().map(|&x| bf16::from_f32(x)).collect();
        let (x, r) =
            (Tensor::from_vec(device, halves, [7, len])?, Tensor::from_vec(device, others, [7, len])?);
        Ok(vec![of_halves(&x, &r)?])
    });
    agree("bytes", (&LENGTHS, 0.0), |device, len| {
        let all: Vec<i8> = Host::new(3, &[7, len]).elements.iter().map(|&x| (x * 60.0) as i8).collect();
        Ok(vec![bytes(&Tensor::from_vec(device, all, [7, len])?)?])
    });
}

/// Rows are so many that each is a warp's.
#[test]
fn of_many_rows() {
    agree("many", (&[515], 0.0), |device, len| Ok(vec![soft(&Host::new(3, &[8193, len]).on(device)?)?]));
}

/// The place within a vector where a row starts does not change its results.
#[test]
fn equal_rows_give_equal_bits() {
    for (_, device) in devices() {
        for len in LENGTHS {
            let row = Host::new(43, &[len]).elements;
            let x = Tensor::from_slice(&device, &row.repeat(9), [9, len]).expect("it fits");
            let gamma = Tensor::from_slice(&device, &row, len).expect("it fits");
            let of_rows = |y: Tensor<f32>| -> Vec<u32> {
                y.to_vec().expect("results can be read").into_iter().map(f32::to_bits).collect()
            };
            let softmax = of_rows(soft(&x).expect("it runs"));
            let (_, scaled) = residual(&x, &x, &gamma).expect("it runs");
            for bits in [softmax, of_rows(scaled)] {
                assert!(bits.chunks(len).all(|one| one == &bits[..len]), "{device}: {len}");
            }
        }
    }
}
