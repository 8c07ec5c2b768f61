//! Updates in place under a condition that is one for all elements skip all memory where it is false, on
//! every device.

mod devices;

use devices::on_devices;
use fusion::prelude::*;

fuse! {
    pub(crate) fn stepped(p: &mut f32[N], m: &mut f32[N], g: f32[N], ok: bool) {
        (p, m) = if ok { (p - 0.5 * m, 0.5 * m + g) } else { (p, m) };
    }
    pub(crate) fn refused(p: &mut f32[N], g: f32[N], bad: f32[]) { p = if bad > 0.0 { p } else { p - g }; }
    pub(crate) fn copied(q: &mut f16[N], x: f32[N], ok: f32[]) { q = if ok > 0.0 { x } else { q as f32 }; }
    pub(crate) fn counted_bytes(n: &mut u8[N], ok: f32[]) { n = if ok > 0.0 { n + 3 } else { n }; }
    pub(crate) fn nested(p: &mut f32[N], a: f32[], b: f32[]) {
        p = if a > 0.0 { if b > 0.0 { p + 1.0 } else { p } } else { p };
    }
    pub(crate) fn chained(p: &mut f32[N], q: &mut f32[N], ok: f32[]) {
        p = if ok > 0.0 { p + 1.0 } else { p };
        q = if ok > 0.0 { p + q } else { q };
    }
    pub(crate) fn exchanged(p: &mut f32[N], q: &mut f32[N], ok: bool) { (p, q) = if ok { (q, p) } else { (p, q) }; }
    pub(crate) fn short(x: &mut f32[N, C = 3], b: f32[C], ok: bool) { x = if ok { x + b } else { x }; }
    /// Threads of a team must agree on the condition before a barrier, so these loops keep their choice for
    /// each element.
    pub(crate) fn softened(x: &mut f32[N, C], ok: f32[]) { x = if ok > 0.0 { softmax(x, C) } else { x }; }
    pub(crate) fn softened_columns(x: &mut f32[N, C], ok: bool) { x = if ok { softmax(x, N) } else { x }; }
    pub(crate) fn limited(p: &mut f32[N], g: f32[N]) { p = if isfinite(norm(g, N)) { p - g } else { p }; }
    /// One parameter changes regardless of the condition.
    pub(crate) fn counted(p: &mut f32[N], q: &mut f32[N], ok: f32[]) {
        p = if ok > 0.0 { p + 1.0 } else { p };
        q += 1.0;
    }
    pub(crate) fn other(p: &mut f32[N], q: f32[N], ok: f32[]) { p = if ok > 0.0 { p + 1.0 } else { q }; }
    pub(crate) fn given(p: f32[N], ok: f32[]) -> f32[N] { if ok > 0.0 { p + 1.0 } else { p } }
    pub(crate) fn of_each(p: &mut f32[N], g: f32[N]) { p = if g > 2.0 { p - g } else { p }; }
    pub(crate) fn opposed(p: &mut f32[N], q: &mut f32[N], ok: bool) {
        p = if ok { p + 1.0 } else { p };
        q = if ok { q } else { q + 1.0 };
    }
}

/// Returns true if kernels select between values of each element.
fn chooses(kernels: &[fusion::KernelText]) -> bool {
    let lines = kernels.iter().flat_map(|kernel| kernel.text.lines());
    // The start of a tensor is selected once, not for each element.
    let mut chosen = lines.filter(|line| !line.contains("select(0u, args."));
    chosen.any(|line| line.contains("select(") || line.contains("selp."))
}

#[test]
fn nothing_is_chosen_for_each_element() {
    for (name, kernels) in [
        ("stepped", stepped::kernels()),
        ("refused", refused::kernels()),
        ("chained", chained::kernels()),
        ("exchanged", exchanged::kernels()),
        ("short", short::kernels()),
    ] {
        assert!(!kernels.is_empty() && !chooses(&kernels), "{name}");
    }
    // Shaders select in roundings, too.
    for (name, mut kernels) in [("copied", copied::kernels()), ("counted_bytes", counted_bytes::kernels())] {
        kernels.retain(|kernel| kernel.language == "ptx");
        assert!(!chooses(&kernels), "{name}");
    }
    for (name, kernels) in [
        ("nested", nested::kernels()),
        ("counted", counted::kernels()),
        ("other", other::kernels()),
        ("given", given::kernels()),
        ("of_each", of_each::kernels()),
        ("opposed", opposed::kernels()),
    ] {
        assert!(chooses(&kernels), "{name}");
    }
}

fn numbers(len: usize, from: f32) -> Vec<f32> {
    (0..len).map(|i| from + (i % 13) as f32).collect()
}

#[test]
fn values_are_those_of_the_condition() {
    on_devices(|device| {
        for len in [0, 1, 5, 64, 1003, 40_000] {
            let tensor = |from: f32| Tensor::from_vec(device, numbers(len, from), [len]);
            let (x, y) = (numbers(len, 1.0), numbers(len, -6.0));
            for ok in [false, true] {
                let what = format!("{device}, {len}, {ok}");
                let pick = |new: f32, old: f32| if ok { new } else { old };
                let both = |f: fn(f32, f32) -> f32| -> Vec<f32> {
                    x.iter().zip(&y).map(|(&x, &y)| pick(f(x, y), x)).collect()
                };
                let number = |is: bool| Tensor::full(device, if is { 1.0 } else { -1.0 }, []);
                let (yes, no) = (number(ok)?, number(!ok)?);
                let (mut p, mut q, g) = (tensor(1.0)?, tensor(-6.0)?, tensor(-6.0)?);
                stepped(&mut p, &mut q, &g, ok)?;
                assert_eq!(p.to_vec()?, both(|x, y| x - 0.5 * y), "{what}");
                assert_eq!(q.to_vec()?, y.iter().map(|&y| pick(1.5 * y, y)).collect::<Vec<_>>(), "{what}");
                let mut p = tensor(1.0)?;
                refused(&mut p, &g, &no)?;
                assert_eq!(p.to_vec()?, both(|x, y| x - y), "{what}");
                let narrow =
                    |from: f32| numbers(len, from).into_iter().map(f16::from_f32).collect::<Vec<_>>();
                let mut p = Tensor::from_vec(device, narrow(1.0), [len])?;
                copied(&mut p, &g, &yes)?;
                assert_eq!(p.to_vec()?, narrow(pick(-6.0, 1.0)), "{what}");
                let bytes = |from: u8| (0..len).map(|i| from + (i % 13) as u8).collect::<Vec<_>>();
                let mut n = Tensor::from_vec(device, bytes(1), [len])?;
                counted_bytes(&mut n, &yes)?;
                assert_eq!(n.to_vec()?, bytes(if ok { 4 } else { 1 }), "{what}");
                let mut p = tensor(1.0)?;
                other(&mut p, &g, &yes)?;
                assert_eq!(p.to_vec()?, x.iter().zip(&y).map(|(x, &y)| pick(x + 1.0, y)).collect::<Vec<_>>());
                assert_eq!(given(&tensor(1.0)?, &yes)?.to_vec()?, both(|x, _| x + 1.0), "{what}");
                let mut p = tensor(1.0)?;
                of_each(&mut p, &g)?;
                let expected = x.iter().zip(&y).map(|(x, &y)| if y > 2.0 { x - y } else { *x });
                assert_eq!(p.to_vec()?, expected.collect::<Vec<_>>(), "{what}");
                let mut p = tensor(1.0)?;
                nested(&mut p, &yes, &yes)?;
                nested(&mut p, &yes, &no)?;
                assert_eq!(p.to_vec()?, both(|x, _| x + 1.0), "{what}");
                let (mut p, mut q) = (tensor(1.0)?, tensor(-6.0)?);
                chained(&mut p, &mut q, &yes)?;
                assert_eq!(p.to_vec()?, both(|x, _| x + 1.0), "{what}");
                let sums: Vec<f32> = x.iter().zip(&y).map(|(&x, &y)| pick(x + 1.0 + y, y)).collect();
                assert_eq!(q.to_vec()?, sums, "{what}");
                let (mut p, mut q) = (tensor(1.0)?, tensor(-6.0)?);
                exchanged(&mut p, &mut q, ok)?;
                assert_eq!(
                    (p.to_vec()?, q.to_vec()?),
                    if ok { (y.clone(), x.clone()) } else { (x.clone(), y.clone()) }
                );
                let (mut p, mut q) = (tensor(1.0)?, tensor(-6.0)?);
                counted(&mut p, &mut q, &yes)?;
                assert_eq!(p.to_vec()?, both(|x, _| x + 1.0), "{what}");
                assert_eq!(q.to_vec()?, y.iter().map(|y| y + 1.0).collect::<Vec<_>>(), "{what}");
                let (mut p, mut q) = (tensor(1.0)?, tensor(-6.0)?);
                opposed(&mut p, &mut q, ok)?;
                assert_eq!(p.to_vec()?, both(|x, _| x + 1.0), "{what}");
                assert_eq!(q.to_vec()?, y.iter().map(|&y| pick(y, y + 1.0)).collect::<Vec<_>>(), "{what}");
            }
        }
        Ok(())
    });
}

#[test]
fn rows_and_conditions_of_what_is_combined() {
    on_devices(|device| {
        for (n, c) in [(1, 1), (7, 3), (40, 64), (300, 130), (3, 5000)] {
            let values = numbers(n * c, -4.0);
            for ok in [false, true] {
                let mut x = Tensor::from_vec(device, values.clone(), [n, c])?;
                softened_columns(&mut x, ok)?;
                let of_column = |i: usize| (0..n).map(move |row| row * c + i % c);
                let all = |i: usize| of_column(i).map(|at| f64::from(values[at]).exp()).sum::<f64>();
                let sums: Vec<f64> = (0..c).map(all).collect();
                for (i, (&x, &old)) in x.to_vec()?.iter().zip(&values).enumerate() {
                    let expected = if ok { f64::from(old).exp() / sums[i % c] } else { f64::from(old) };
                    assert!((f64::from(x) - expected).abs() <= 1e-5 * expected.abs(), "{device}, {n}, {c}");
                }
                let mut x = Tensor::from_vec(device, values.clone(), [n, c])?;
                softened(&mut x, &Tensor::full(device, if ok { 1.0 } else { 0.0 }, [])?)?;
                let x = x.to_vec()?;
                if !ok {
                    assert_eq!(x, values, "{device}, {n}, {c}");
                    continue;
                }
                for (row, x) in x.chunks(c).enumerate() {
                    let all: f64 = values[row * c..][..c].iter().map(|&x| f64::from(x).exp()).sum();
                    for (i, &x) in x.iter().enumerate() {
                        let expected = f64::from(values[row * c + i]).exp() / all;
                        assert!((f64::from(x) - expected).abs() <= 1e-5 * expected, "{device}, {n}, {c}");
                    }
                }
            }
            let mut x = Tensor::from_vec(device, numbers(3 * n, 1.0), [n, 3])?;
            let b = Tensor::from_slice(device, &[1.0, 2.0, 3.0], [3])?;
            short(&mut x, &b, false)?;
            assert_eq!(x.to_vec()?, numbers(3 * n, 1.0), "{device}");
            short(&mut x, &b, true)?;
            let expected: Vec<f32> =
                numbers(3 * n, 1.0).iter().zip((1..=3).cycle()).map(|(x, b)| x + b as f32).collect();
            assert_eq!(x.to_vec()?, expected, "{device}");
            // Gradients that are not finite, and one that is.
            for bad in [f32::NAN, f32::INFINITY, 3.0] {
                let mut g = vec![1.0; n * c];
                g[n * c / 2] = bad;
                let mut p = Tensor::from_vec(device, values.clone(), [n * c])?;
                limited(&mut p, &Tensor::from_vec(device, g.clone(), [n * c])?)?;
                let expected = values.iter().zip(&g).map(|(p, g)| if bad == 3.0 { p - g } else { *p });
                assert_eq!(p.to_vec()?, expected.collect::<Vec<_>>(), "{device}, {n}, {c}, {bad}");
            }
        }
        Ok(())
    });
}
