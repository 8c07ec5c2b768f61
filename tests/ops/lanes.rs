//! Loops that interleave several vectors (unroll and jam) give each element the bits that it has alone, at
//! every place.

use fusion::prelude::*;

fuse! {
    pub(crate) fn deep(x: f32[N], y: f32[N]) -> f32[N] {
        let t = tanh(x * 0.5 + y);
        let s = sqrt(t * t + 1.0);
        tanh(exp(-s) * y + x) * s
    }
    // Uses coordinates, other types, in-place parameters and several results.
    pub(crate) fn places(x: &mut f16[N], k: u8[N], y: f32[N]) -> (bf16[N], i32[N], f32[N]) {
        let place = (index(N) % 63) as f32;
        let t = sin(x as f32 + place) * exp(y) + log1p(k as f32);
        let s = erf(t * 0.25) + cos(t);
        x = s as f16;
        (t as bf16, (s * 1000.0) as i32, atan2(s, t) + y)
    }
    // Reduces three columns for each row, at a stride.
    pub(crate) fn columns(x: f32[N, C = 3]) -> f32[N, C] { softmax(sin(tanh(x) * exp(x)), C) }
}

/// Lengths around one group of vectors, and around several.
const LENGTHS: [usize; 12] = [0, 1, 15, 63, 64, 65, 100, 127, 128, 129, 4097, 10_001];
/// Length of less than a group.
const UNIFORM_LEN: usize = 63;

fn input(len: usize, salt: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919 + salt * 104_729) % 65_536) as f32 / 8192.0 - 4.0).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn elements_do_not_know_where_they_stand() -> Result<()> {
    let device = &Device::cpu();
    for len in LENGTHS {
        let (x, y) = (input(len, 1), input(len, 2));
        let there = |part: &[f32]| Tensor::from_slice(device, part, [part.len()]);
        let whole = deep(&there(&x)?, &there(&y)?)?.to_vec()?;
        let mut alone = vec![];
        for (x, y) in x.chunks(UNIFORM_LEN).zip(y.chunks(UNIFORM_LEN)) {
            alone.extend(deep(&there(x)?, &there(y)?)?.to_vec()?);
        }
        assert_eq!(bits(&whole), bits(&alone), "{len}");

        let halves: Vec<f16> = x.iter().map(|&x| f16::from_f32(x)).collect();
        let k: Vec<u8> = (0..len).map(|i| (i * 37 % 256) as u8).collect();
        let mut all = Tensor::from_slice(device, &halves, [len])?;
        let (a, b, c) = places(&mut all, &Tensor::from_slice(device, &k, [len])?, &there(&y)?)?;
        let (all, a, b, c) = (all.to_vec()?, a.to_vec()?, b.to_vec()?, c.to_vec()?);
        for start in (0..len).step_by(UNIFORM_LEN) {
            let part = start..(start + UNIFORM_LEN).min(len);
            let mut x = Tensor::from_slice(device, &halves[part.clone()], [part.len()])?;
            let k = Tensor::from_slice(device, &k[part.clone()], [part.len()])?;
            let (d, e, f) = places(&mut x, &k, &there(&y[part.clone()])?)?;
            assert_eq!((&all[part.clone()], &a[part.clone()]), (&*x.to_vec()?, &*d.to_vec()?), "{len}");
            assert_eq!((&b[part.clone()], bits(&c[part])), (&*e.to_vec()?, bits(&f.to_vec()?)), "{len}");
        }

        let rows = input(3 * len, 3);
        let of = |rows: &[f32]| -> Result<Vec<f32>> {
            columns(&Tensor::from_slice(device, rows, [rows.len() / 3, 3])?)?.to_vec()
        };
        let alone = rows.chunks(3 * UNIFORM_LEN).map(of).collect::<Result<Vec<_>>>()?.concat();
        assert_eq!(bits(&of(&rows)?), bits(&alone), "{len}");
    }
    Ok(())
}
