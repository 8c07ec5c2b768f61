//! Parameters may have a portion of a dim, before or after a cut. They read as 0 outside it and are not
//! written there, in every kind of kernel, in place or not, wherever the cut is.

use fusion::prelude::*;

mod devices;

use devices::on_devices;

fuse! {
    // One update with one state for the first rows and another for the rest.
    fn stepped(p, a, b, g, B: dim, L: dim) {
        let s = if index(B) < L { 0.5 * a + g } else { 0.25 * b - g };
        (p - 2.0 * s, s, s)
    }
    pub(crate) fn update(p: &mut f32[B, K], a: &mut f32[B: ..L, K], b: &mut f32[B: L.., K], g: f32[B, K]) {
        (p, a, b) = stepped(p, a, b, g, B, L);
    }
    #[fuse(off)]
    pub(crate) fn update_off(p: &mut f32[B, K], a: &mut f32[B: ..L, K], b: &mut f32[B: L.., K], g: f32[B, K]) {
        (p, a, b) = stepped(p, a, b, g, B, L);
    }
    pub(crate) fn update_line(p: &mut f32[B], a: &mut f32[B: ..L], b: &mut f32[B: L..], g: f32[B]) {
        (p, a, b) = stepped(p, a, b, g, B, L);
    }
    pub(crate) fn update_wide(p: &mut f64[B], a: &mut f64[B: ..L], b: &mut f64[B: L..], g: f64[B]) {
        (p, a, b) = stepped(p, a, b, g, B, L);
    }
    pub(crate) fn update_few(p: &mut f32[B, C = 3], a: &mut f32[B: ..L, C], b: &mut f32[B: L.., C], g: f32[B, C]) {
        (p, a, b) = stepped(p, a, b, g, B, L);
    }
    // Joins portions without a condition, and with either comparison.
    pub(crate) fn joined(a: f32[B: ..L, K], b: f32[B: L.., K], B: dim) -> (f32[B, K], f32[B], f32[K, B]) {
        let later = if L <= index(B) { b } else { 7.0 };
        (a + b, index(B) as f32, later)
    }
    // Rows: each portion writes values scaled by the row's largest in its own way.
    fn scaled(p, codes, units, b, B: dim, L: dim, K: dim) {
        let x = if index(B) >= L { b } else { codes as f32 * units } + p;
        let most = max(abs(x), K);
        (p - x / (1.0 + sum(x * x, K)), round(x * 100.0 / most) as i8, most / 100.0, x)
    }
    pub(crate) fn coded(p: &mut f32[B, K], codes: &mut i8[B: ..L, K], units: &mut f32[B: ..L], b: &mut f32[B: L.., K]) {
        (p, codes, units, b) = scaled(p, codes, units, b, B, L, K);
    }
    #[fuse(off)]
    pub(crate) fn coded_off(p: &mut f32[B, K], codes: &mut i8[B: ..L, K], units: &mut f32[B: ..L], b: &mut f32[B: L.., K]) {
        (p, codes, units, b) = scaled(p, codes, units, b, B, L, K);
    }
    // A unit that a pass without reduction reads, and that is written after it.
    pub(crate) fn damped(p: &mut f32[B, K], units: &mut f32[B: ..L]) {
        let most = max(abs(p), K);
        p = p / (1.0 + most) + units;
        units = 0.5 * units + most;
    }
    // `exp` applies to the staged value on one side of the cut only, and the value itself is still needed.
    pub(crate) fn chosen(c: f32[B: ..L, K], x: f32[B, K]) -> f32[B, K] {
        let m = max(x, K);
        let e = exp(if index(B) < L { c } else { x });
        e / (1.0 + sum(e * (m - x), K))
    }
    // Updates portions next to reductions of other tensors, along the cut dim and along another.
    pub(crate) fn centred(p: &mut f32[B, K], a: &mut f32[B: L.., K], g: f32[B, K], L: dim) -> (f32[], f32[K]) {
        let mean = mean(g, (B, K));
        a = 2.0 * a + mean;
        p = a + g;
        (mean, sum(g, B))
    }
    pub(crate) fn columns(a: f32[B: L.., T, K], b: f32[B: ..L, T, K], all: f32[B]) -> f32[B, K] {
        sum(a, T) + max(b, T) + all
    }
}

/// Numbers of rows, rows before the cut, and elements of each row.
const SIZES: [[usize; 3]; 12] = [
    [1, 0, 4],
    [1, 1, 4],
    [0, 0, 3],
    [5, 2, 0],
    [7, 3, 5],
    [33, 32, 8],
    [64, 1, 256],
    [300, 17, 256],
    [1000, 999, 3],
    [40_000, 20_001, 1],
    [3, 2, 5000],
    [513, 256, 129],
];

/// Returns numbers between -1 and 1, different for each start.
fn numbers(len: usize, from: usize) -> Vec<f32> {
    (from..from + len).map(|i| (i * 7919 % 1999) as f32 / 1000.0 - 0.9995).collect()
}

/// Splits a tensor's elements at the cut.
fn parts(all: &[f32], [_, before, cols]: [usize; 3]) -> [Vec<f32>; 2] {
    let (first, rest) = all.split_at(before * cols);
    [first.to_vec(), rest.to_vec()]
}

fn tensor(device: &Device, numbers: &[f32], rows: usize, cols: usize) -> Result<Tensor<f32>> {
    Tensor::from_slice(device, numbers, [rows, cols])
}

fn close(got: &[f32], expected: &[f32], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let allowed = 1e-5 * expected.abs().max(1.0);
        assert!((got - expected).abs() <= allowed, "{what}: element {i} is {got}, not {expected}");
    }
}

/// Runs a test for all sizes on all devices.
fn on_sizes(test: impl Fn(&Device, [usize; 3], &str) -> Result<()>) {
    on_devices(|device| {
        SIZES.into_iter().try_for_each(|size @ [rows, before, cols]| {
            test(device, size, &format!("{device}: {before} of {rows} rows of {cols}"))
        })
    });
}

/// Returns the arguments of the update (parameters, both states, gradients) and the values that it leaves,
/// except the gradients.
fn stepped(size @ [rows, before, cols]: [usize; 3]) -> ([Vec<f32>; 4], [Vec<f32>; 3]) {
    let len = rows * cols;
    let [p, states, g] = [0, 5, 3].map(|from| numbers(len, from));
    let is_before = |i: usize| i < before * cols;
    let new = |i: usize| if is_before(i) { 0.5 * states[i] + g[i] } else { 0.25 * states[i] - g[i] };
    let new: Vec<f32> = (0..len).map(new).collect();
    let ([a, b], [new_a, new_b]) = (parts(&states, size), parts(&new, size));
    let new_p = p.iter().zip(&new).map(|(p, s)| p - 2.0 * s).collect();
    ([p, a, b, g], [new_p, new_a, new_b])
}

#[test]
fn each_side_of_a_place_has_a_state_of_its_own() {
    on_sizes(|device, size @ [rows, before, cols], what| {
        let ([p, a, b, g], expected) = stepped(size);
        for (name, is_fused) in [("fused", true), ("off", false)] {
            let mut p = tensor(device, &p, rows, cols)?;
            let mut a = tensor(device, &a, before, cols)?;
            let mut b = tensor(device, &b, rows - before, cols)?;
            let g = tensor(device, &g, rows, cols)?;
            let call = if is_fused { update } else { update_off };
            call(&mut p, &mut a, &mut b, &g)?;
            for (got, expected) in [&p, &a, &b].into_iter().zip(&expected) {
                close(&got.to_vec()?, expected, &format!("{what}, {name}"));
            }
        }
        Ok(())
    });
}

/// Vectors cross the cut.
#[test]
fn the_place_may_be_anywhere_in_a_line() {
    on_sizes(|device, [rows, before, cols], what| {
        let size = [rows * cols, before * cols, 1];
        let ([p, a, b, g], expected) = stepped(size);
        let line = |numbers: &[f32]| Tensor::from_slice(device, numbers, [numbers.len()]);
        let (mut p, mut a, mut b, g) = (line(&p)?, line(&a)?, line(&b)?, line(&g)?);
        update_line(&mut p, &mut a, &mut b, &g)?;
        for (got, expected) in [&p, &a, &b].into_iter().zip(&expected) {
            close(&got.to_vec()?, expected, what);
        }
        Ok(())
    });
}

#[test]
fn elements_that_a_thread_has_all_of_are_cut_together() {
    on_sizes(|device, [rows, before, _], what| {
        let ([p, a, b, g], expected) = stepped([rows, before, 3]);
        let (mut p, mut a) = (tensor(device, &p, rows, 3)?, tensor(device, &a, before, 3)?);
        let (mut b, g) = (tensor(device, &b, rows - before, 3)?, tensor(device, &g, rows, 3)?);
        update_few(&mut p, &mut a, &mut b, &g)?;
        for (got, expected) in [&p, &a, &b].into_iter().zip(&expected) {
            close(&got.to_vec()?, expected, what);
        }
        Ok(())
    });
}

#[test]
fn what_is_not_there_is_zero() {
    on_sizes(|device, size @ [rows, before, cols], what| {
        let all = numbers(rows * cols, 0);
        let [a, b] = parts(&all, size);
        let (a, b) = (tensor(device, &a, before, cols)?, tensor(device, &b, rows - before, cols)?);
        let (sum, places, later) = joined(&a, &b, rows)?;
        close(&sum.to_vec()?, &all, what);
        close(&places.to_vec()?, &(0..rows).map(|i| i as f32).collect::<Vec<_>>(), what);
        let later_at = |k: usize, i: usize| if i < before { 7.0 } else { all[i * cols + k] };
        let expected: Vec<f32> = (0..cols).flat_map(|k| (0..rows).map(move |i| later_at(k, i))).collect();
        close(&later.to_vec()?, &expected, what);
        Ok(())
    });
}

#[test]
fn rows_are_combined_and_written_on_their_side_alone() {
    on_sizes(|device, size @ [rows, before, cols], what| {
        if cols == 0 {
            return Ok(());
        }
        let [p, states] = [0, 5].map(|from| numbers(rows * cols, from));
        let units = numbers(before, 9);
        let code = |i: usize| (i * 31 % 200) as i8;
        let codes: Vec<i8> = (0..before * cols).map(code).collect();
        let of_row = |i: usize| {
            let x = |j: usize| {
                let at = i * cols + j;
                p[at] + if i < before { f32::from(codes[at]) * units[i] } else { states[at] }
            };
            let x: Vec<f32> = (0..cols).map(x).collect();
            let squares: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
            let p = (0..cols).map(|j| p[i * cols + j] - x[j] / (1.0 + squares as f32)).collect::<Vec<f32>>();
            (p, x.iter().fold(0.0, |most: f32, x| most.max(x.abs())), x)
        };
        let expected: Vec<_> = (0..rows).map(of_row).collect();
        for (name, is_fused) in [("fused", true), ("off", false)] {
            let what = format!("{what}, {name}");
            let mut p = tensor(device, &p, rows, cols)?;
            let mut codes = Tensor::from_slice(device, &codes, [before, cols])?;
            let mut units = Tensor::from_slice(device, &units, [before])?;
            let [_, after] = parts(&states, size);
            let mut b = tensor(device, &after, rows - before, cols)?;
            let call = if is_fused { coded } else { coded_off };
            call(&mut p, &mut codes, &mut units, &mut b)?;
            let wanted: Vec<f32> = expected.iter().flat_map(|(p, ..)| p.clone()).collect();
            close(&p.to_vec()?, &wanted, &what);
            let wanted: Vec<f32> = expected[..before].iter().map(|(_, most, _)| most / 100.0).collect();
            close(&units.to_vec()?, &wanted, &what);
            let wanted: Vec<f32> = expected[before..].iter().flat_map(|(_, _, x)| x.clone()).collect();
            close(&b.to_vec()?, &wanted, &what);
            let codes = codes.to_vec()?;
            for (i, (_, most, x)) in expected[..before].iter().enumerate() {
                for (j, x) in x.iter().enumerate() {
                    let (got, wanted) = (f32::from(codes[i * cols + j]), x * 100.0 / most);
                    assert!(
                        (got - wanted).abs() <= 0.501,
                        "{what}: code {j} of row {i}: {got}, not {wanted}"
                    );
                }
            }
        }
        Ok(())
    });
}

/// All threads of a row read its unit before one of them writes it.
#[test]
fn units_are_read_before_they_are_written() {
    on_sizes(|device, [rows, before, cols], what| {
        if cols == 0 {
            return Ok(());
        }
        let (p, units) = (numbers(rows * cols, 0), numbers(before, 9));
        let (mut p_of, mut units_of) =
            (tensor(device, &p, rows, cols)?, Tensor::from_slice(device, &units, [before])?);
        damped(&mut p_of, &mut units_of)?;
        let unit = |row: usize| units.get(row).copied().unwrap_or(0.0);
        let most = |row: usize| p[row * cols..][..cols].iter().fold(0.0, |most: f32, x| most.max(x.abs()));
        let expected: Vec<f32> =
            (0..rows * cols).map(|i| p[i] / (1.0 + most(i / cols)) + unit(i / cols)).collect();
        close(&p_of.to_vec()?, &expected, what);
        let expected: Vec<f32> = (0..before).map(|row| 0.5 * units[row] + most(row)).collect();
        close(&units_of.to_vec()?, &expected, what);
        Ok(())
    });
}

/// A derived value may take its operand's staged buffer on one side of the cut. The other side still needs
/// the operand.
#[test]
fn what_is_held_of_one_side_leaves_the_other_its_values() {
    on_sizes(|device, size @ [rows, before, cols], what| {
        if cols == 0 {
            return Ok(());
        }
        let [x, c] = [0, 5].map(|from| numbers(rows * cols, from));
        let [c, _] = parts(&c, size);
        let expected = (0..rows).flat_map(|row| {
            let x = &x[row * cols..][..cols];
            let e: Vec<f32> =
                c.get(row * cols..).filter(|c| !c.is_empty()).map_or(x, |c| &c[..cols]).to_vec();
            let e: Vec<f64> = e.iter().map(|e| f64::from(*e).exp()).collect();
            let most = x.iter().fold(f32::NEG_INFINITY, |most, x| most.max(*x));
            let sum: f64 = x.iter().zip(&e).map(|(x, e)| e * f64::from(most - x)).sum();
            e.into_iter().map(move |e| (e / (1.0 + sum)) as f32)
        });
        let got = chosen(&tensor(device, &c, before, cols)?, &tensor(device, &x, rows, cols)?)?;
        close(&got.to_vec()?, &expected.collect::<Vec<_>>(), what);
        Ok(())
    });
}

/// Reductions of other tensors along the cut dim have a kernel of their own.
#[test]
fn other_tensors_are_combined_along_the_dim() {
    on_sizes(|device, size @ [rows, before, cols], what| {
        if rows * cols == 0 {
            return Ok(());
        }
        let [p, all, g] = [0, 5, 3].map(|from| numbers(rows * cols, from));
        let [_, states] = parts(&all, size);
        let mut a = tensor(device, &states, rows - before, cols)?;
        let (mut p, g_of) = (tensor(device, &p, rows, cols)?, tensor(device, &g, rows, cols)?);
        let (mean, sums) = centred(&mut p, &mut a, &g_of, before)?;
        let exact = g.iter().map(|x| f64::from(*x)).sum::<f64>() / (rows * cols) as f64;
        close(&mean.to_vec()?, &[exact as f32], what);
        let new: Vec<f32> = states.iter().map(|a| 2.0 * a + exact as f32).collect();
        close(&a.to_vec()?, &new, what);
        // The new value is that of all rows, and only rows from the cut on keep it.
        let twice = |i: usize| if i < before * cols { 0.0 } else { 2.0 * all[i] };
        let expected: Vec<f32> = (0..rows * cols).map(|i| twice(i) + exact as f32 + g[i]).collect();
        close(&p.to_vec()?, &expected, what);
        let column = |k: usize| (0..rows).map(|i| f64::from(g[i * cols + k])).sum::<f64>() as f32;
        close(&sums.to_vec()?, &(0..cols).map(column).collect::<Vec<_>>(), what);
        Ok(())
    });
}

#[test]
fn rows_side_by_side_are_combined_in_either_portion() {
    on_devices(|device| {
        for [rows, before, inner, cols] in [[3, 1, 4, 5], [40, 39, 70, 33], [9, 0, 1, 300], [2, 2, 513, 8]] {
            let all = numbers(rows * inner * cols, 0);
            let (b, a) = all.split_at(before * inner * cols);
            let a = Tensor::from_slice(device, a, [rows - before, inner, cols])?;
            let b = Tensor::from_slice(device, b, [before, inner, cols])?;
            // The number of rows follows from a tensor that has all of them.
            let got = columns(&a, &b, &Tensor::zeros(device, [rows])?)?;
            let value = |at: usize| {
                let (i, k) = (at / cols, at % cols);
                let of = (0..inner).map(|t| all[(i * inner + t) * cols + k]);
                if i < before {
                    of.fold(f32::NEG_INFINITY, f32::max)
                } else {
                    of.map(f64::from).sum::<f64>() as f32
                }
            };
            let expected: Vec<f32> = (0..rows * cols).map(value).collect();
            close(&got.to_vec()?, &expected, &format!("{device}: {before} of {rows} rows"));
        }
        Ok(())
    });
}

/// Doubles have portions on devices that support them.
#[test]
fn doubles_have_portions_too() -> Result<()> {
    for (kind, device) in devices::devices() {
        if kind == devices::Kind::Wgpu {
            continue;
        }
        let line = |len, from| {
            let numbers: Vec<f64> = numbers(len, from).into_iter().map(f64::from).collect();
            Tensor::from_slice(&device, &numbers, [len])
        };
        let (mut p, mut a, mut b, g) = (line(1000, 0)?, line(300, 5)?, line(700, 305)?, line(1000, 3)?);
        update_wide(&mut p, &mut a, &mut b, &g)?;
        let ([..], expected) = stepped([1000, 300, 1]);
        for (got, expected) in [&p, &a, &b].into_iter().zip(&expected) {
            let got: Vec<f32> = got.to_vec()?.into_iter().map(|x| x as f32).collect();
            close(&got, expected, &format!("{device}"));
        }
    }
    Ok(())
}

#[test]
fn one_launch_moves_what_is_there() -> Result<()> {
    for device in devices::devices().into_iter().map(|(_, device)| device) {
        for report in [update::report(), coded::report()] {
            let extents = [("B", 1000), ("L", 400), ("K", 256)];
            let report = report.bind(&extents)?.on(&device)?;
            assert_eq!(report.launches(), Some(1), "{device}");
        }
        let report = update::report().bind(&[("B", 1000), ("L", 400), ("K", 256)])?.on(&device)?;
        // Parameters and states are read and written, and gradients are read.
        assert_eq!(report.bytes(), Some(1000 * 256 * 4 * 5), "{device}");
    }
    Ok(())
}

/// States are updated in place: a call creates no tensor.
#[test]
fn portions_are_written_in_place() {
    for plan in [&*update::PLAN, &*update_line::PLAN, &*coded::PLAN, &*damped::PLAN] {
        assert_eq!(plan.outputs.len(), 0, "{}", plan.name);
    }
}

#[test]
fn portions_that_do_not_fit_are_errors() -> Result<()> {
    let device = Device::cpu();
    let zeros = |rows: usize| Tensor::<f32>::zeros(&device, [rows, 4]);
    for [rows, before, after] in [[5, 6, 0], [5, 2, 2], [5, 2, 4], [5, 0, 4], [0, 1, 0]] {
        let (mut p, mut a, mut b, g) = (zeros(rows)?, zeros(before)?, zeros(after)?, zeros(rows)?);
        let error = update(&mut p, &mut a, &mut b, &g).expect_err("they do not fit");
        assert!(error.to_string().contains('B'), "{error}");
    }
    Ok(())
}
