//! Updates in place are right: old and new values, other orders, shared memory.

use fusion::prelude::*;

use crate::{Host, check, on_devices};

both! {
    { pub fn rotate(a: &mut f32[N], b: &mut f32[N], c: &mut f32[N]) {
        let first = a;
        a = b;
        b = c;
        c = first;
    } }
    { pub fn swap(a: &mut f32[N], c: &mut f32[N]) {
        let old = a;
        a = c;
        c = old;
    } }
    { pub fn chained(a: &mut f32[N], b: &mut f32[N], c: &mut f32[N]) {
        a = a + b;
        b *= a;
        c -= a;
        a = a - 1.0;
    } }
    // Each parameter reads the old value of the other, in another order of dims.
    { pub fn crossed(p: &mut f32[N, D], q: &mut f32[D, N]) {
        let old = p;
        p += q;
        q = old - q;
    } }
    { pub fn own_transpose(p: &mut f32[N, D], g: f32[N, D]) -> f32[D, N] {
        let old = p;
        p -= g;
        old
    } }
    { pub fn new_and_transposed(p: &mut f32[N, D], g: f32[D]) -> (f32[D, N], f32[N, D]) {
        p -= g;
        (p, p)
    } }
    // Every row reads the small parameter, which is also updated.
    { pub fn spread(p: &mut f32[N, D], s: &mut f32[D]) {
        p = p * s;
        s = s + 0.5;
    } }
    { pub fn spread_new(s: &mut f32[D], p: &mut f32[D, N]) {
        s = s + 0.5;
        p = p * s;
    } }
    { pub fn zeroed(p: &mut f32[N, D]) { p = 0.0; } }
    { pub fn filled(p: &mut f32[N, D], x: f32[N]) { p = x; } }
    { pub fn scalar_step(s: &mut f32[], x: f32[]) { s += 2.0 * x; } }
    { pub fn scalar_read(s: &mut f32[], x: f32[N]) -> f32[N] {
        let y = x * s;
        s = s + 1.0;
        y
    } }
    { pub fn centred_last(a: &mut f32[N, C = 4]) { a = a - mean(a, C); } }
    { pub fn centred_middle(a: &mut f32[N, C = 4, D]) { a = a - mean(a, C); } }
    { pub fn centred_first(a: &mut f32[C = 4, N]) { a = a - mean(a, C); } }
    { pub fn gathered(a: &mut f32[N, C = 3]) { a = a - at(a, C, 2) + at(a, C, 0); } }
    { pub fn fixed_transpose(a: &mut f32[N, C = 3], b: &mut f32[C, N]) {
        let sum = sum(a, C);
        a = b + sum;
        b = sum - b;
    } }
    { pub fn counted(k: &mut i32[N], x: f32[N], n: &mut u32[N]) {
        k += if x > 0.0 { 1 } else { -1 };
        n = n << 1 | (x > 0.0) as u32;
    } }
}

const EXTENTS: [(usize, usize); 6] = [(1, 1), (5, 7), (33, 1), (1, 33), (64, 128), (130, 301)];

#[test]
fn rotations_and_swaps() {
    on_devices(|device| {
        for n in [0, 1, 5, 4097, 70_001] {
            let [x, y, z] = [1, 2, 3].map(|seed| Host::new(seed, &[n]));
            for rotate in [fused::rotate, unfused::rotate] {
                let (mut a, mut b, mut c) = (x.on(device)?, y.on(device)?, z.on(device)?);
                rotate(&mut a, &mut b, &mut c)?;
                check(&a, &[n], |at| y.at(at))?;
                check(&b, &[n], |at| z.at(at))?;
                check(&c, &[n], |at| x.at(at))?;
                // Three rotations restore the order.
                rotate(&mut a, &mut b, &mut c)?;
                rotate(&mut a, &mut b, &mut c)?;
                check(&a, &[n], |at| x.at(at))?;
                check(&b, &[n], |at| y.at(at))?;
            }
            for swap in [fused::swap, unfused::swap] {
                // Both tensors share memory until one is written.
                let mut a = x.on(device)?;
                let mut b = a.clone();
                swap(&mut a, &mut b)?;
                check(&a, &[n], |at| x.at(at))?;
                check(&b, &[n], |at| x.at(at))?;
            }
        }
        Ok(())
    });
}

#[test]
fn reads_after_writes_see_the_new_value() {
    on_devices(|device| {
        let n = 1003;
        let [x, y, z] = [1, 2, 3].map(|seed| Host::new(seed, &[n]));
        for chained in [fused::chained, unfused::chained] {
            let (mut a, mut b, mut c) = (x.on(device)?, y.on(device)?, z.on(device)?);
            chained(&mut a, &mut b, &mut c)?;
            check(&a, &[n], |at| x.at(at) + y.at(at) - 1.0)?;
            check(&b, &[n], |at| y.at(at) * (x.at(at) + y.at(at)))?;
            check(&c, &[n], |at| z.at(at) - (x.at(at) + y.at(at)))?;
        }
        Ok(())
    });
}

#[test]
fn old_values_through_transposes() {
    on_devices(|device| {
        for (n, d) in EXTENTS {
            let (x, y) = (Host::new(1, &[n, d]), Host::new(2, &[d, n]));
            let (g, row) = (Host::new(3, &[n, d]), Host::new(4, &[d]));
            for crossed in [fused::crossed, unfused::crossed] {
                let (mut p, mut q) = (x.on(device)?, y.on(device)?);
                crossed(&mut p, &mut q)?;
                check(&p, &[n, d], |at| x.at(at) + y.at(&[at[1], at[0]]))?;
                check(&q, &[d, n], |at| x.at(&[at[1], at[0]]) - y.at(at))?;
            }
            for own_transpose in [fused::own_transpose, unfused::own_transpose] {
                let mut p = x.on(device)?;
                let old = own_transpose(&mut p, &g.on(device)?)?;
                check(&p, &[n, d], |at| x.at(at) - g.at(at))?;
                check(&old, &[d, n], |at| x.at(&[at[1], at[0]]))?;
            }
            for new_and_transposed in [fused::new_and_transposed, unfused::new_and_transposed] {
                let mut p = x.on(device)?;
                let (transposed, same) = new_and_transposed(&mut p, &row.on(device)?)?;
                let new = |at: &[usize]| x.at(at) - row.at(&[at[1]]);
                check(&p, &[n, d], new)?;
                check(&same, &[n, d], new)?;
                check(&transposed, &[d, n], |at| new(&[at[1], at[0]]))?;
            }
        }
        Ok(())
    });
}

#[test]
fn old_values_through_broadcasts() {
    on_devices(|device| {
        for (n, d) in EXTENTS {
            let (x, row, column) = (Host::new(1, &[n, d]), Host::new(2, &[d]), Host::new(3, &[n]));
            for spread in [fused::spread, unfused::spread] {
                let (mut p, mut s) = (x.on(device)?, row.on(device)?);
                spread(&mut p, &mut s)?;
                check(&p, &[n, d], |at| x.at(at) * row.at(&[at[1]]))?;
                check(&s, &[d], |at| row.at(at) + 0.5)?;
            }
            for spread_new in [fused::spread_new, unfused::spread_new] {
                let (mut p, mut s) = (x.on(device)?, column.on(device)?);
                spread_new(&mut s, &mut p)?;
                check(&p, &[n, d], |at| x.at(at) * (column.at(&[at[0]]) + 0.5))?;
                check(&s, &[n], |at| column.at(at) + 0.5)?;
            }
            for filled in [fused::filled, unfused::filled] {
                let mut p = x.on(device)?;
                let before = p.clone();
                filled(&mut p, &column.on(device)?)?;
                check(&p, &[n, d], |at| column.at(&[at[0]]))?;
                check(&before, &[n, d], |at| x.at(at))?;
            }
        }
        Ok(())
    });
}

#[test]
fn scalars_on_the_device() {
    on_devices(|device| {
        for step in [fused::scalar_step, unfused::scalar_step] {
            let mut s = Tensor::from_slice(device, &[1.5], [])?;
            let x = Tensor::from_slice(device, &[0.25], [])?;
            step(&mut s, &x)?;
            step(&mut s, &x)?;
            check(&s, &[], |_| 2.5)?;
        }
        let x = Host::new(1, &[5000]);
        for read in [fused::scalar_read, unfused::scalar_read] {
            let mut s = Tensor::from_slice(device, &[1.5], [])?;
            let y = read(&mut s, &x.on(device)?)?;
            check(&y, &[5000], |at| 1.5 * x.at(at))?;
            check(&s, &[], |_| 2.5)?;
        }
        Ok(())
    });
}

#[test]
fn reductions_of_what_is_updated() {
    on_devices(|device| {
        for (n, d) in EXTENTS {
            let mean =
                |x: &Host, at: &dyn Fn(usize) -> Vec<usize>| (0..4).map(|c| x.at(&at(c))).sum::<f64>() / 4.0;
            for centred in [fused::centred_last, unfused::centred_last] {
                let x = Host::new(1, &[n * d, 4]);
                let mut a = x.on(device)?;
                centred(&mut a)?;
                check(&a, &[n * d, 4], |at| x.at(at) - mean(&x, &|c| vec![at[0], c]))?;
            }
            for centred in [fused::centred_middle, unfused::centred_middle] {
                let x = Host::new(2, &[n, 4, d]);
                let mut a = x.on(device)?;
                centred(&mut a)?;
                check(&a, &[n, 4, d], |at| x.at(at) - mean(&x, &|c| vec![at[0], c, at[2]]))?;
            }
            for centred in [fused::centred_first, unfused::centred_first] {
                let x = Host::new(3, &[4, n * d]);
                let mut a = x.on(device)?;
                centred(&mut a)?;
                check(&a, &[4, n * d], |at| x.at(at) - mean(&x, &|c| vec![c, at[1]]))?;
            }
        }
        Ok(())
    });
}

#[test]
fn positions_of_what_is_updated() {
    on_devices(|device| {
        for n in [1, 7, 5003] {
            let (x, y) = (Host::new(1, &[n, 3]), Host::new(2, &[3, n]));
            for gathered in [fused::gathered, unfused::gathered] {
                let mut a = x.on(device)?;
                gathered(&mut a)?;
                check(&a, &[n, 3], |at| x.at(at) - x.at(&[at[0], 2]) + x.at(&[at[0], 0]))?;
            }
            let sum = |n: usize| (0..3).map(|c| x.at(&[n, c])).sum::<f64>();
            for fixed_transpose in [fused::fixed_transpose, unfused::fixed_transpose] {
                let (mut a, mut b) = (x.on(device)?, y.on(device)?);
                fixed_transpose(&mut a, &mut b)?;
                check(&a, &[n, 3], |at| y.at(&[at[1], at[0]]) + sum(at[0]))?;
                check(&b, &[3, n], |at| sum(at[1]) - y.at(at))?;
            }
        }
        Ok(())
    });
}

#[test]
fn integers_in_place() {
    on_devices(|device| {
        let x = Host::new(1, &[777]);
        for counted in [fused::counted, unfused::counted] {
            let mut k = Tensor::full(device, 10_i32, [777])?;
            let mut n = Tensor::full(device, 0xc000_0001_u32, [777])?;
            counted(&mut k, &x.on(device)?, &mut n)?;
            let positive = x.elements.iter().map(|&x| x > 0.0);
            let expected: (Vec<i32>, Vec<u32>) =
                positive.map(|p| (if p { 11 } else { 9 }, 0x8000_0002 | u32::from(p))).unzip();
            assert_eq!((k.to_vec()?, n.to_vec()?), expected, "{}", device.name());
        }
        Ok(())
    });
}

#[test]
fn clones_keep_what_they_had() {
    on_devices(|device| {
        let x = Host::new(1, &[9, 11]);
        let mut p = x.on(device)?;
        let (clone, view) = (p.clone(), p.reshape([99])?);
        fused::filled(&mut p, &Tensor::zeros(device, [9])?)?;
        check(&p, &[9, 11], |_| 0.0)?;
        check(&clone, &[9, 11], |at| x.at(at))?;
        check(&view, &[99], |at| x.at(&[at[0] / 11, at[0] % 11]))?;
        // A clone that owns its memory again is updated without another copy, and with the right values.
        drop((clone, view));
        let q = p.clone();
        fused::crossed(&mut p, &mut Tensor::full(device, 1.0, [11, 9])?)?;
        check(&p, &[9, 11], |_| 1.0)?;
        check(&q, &[9, 11], |_| 0.0)
    });
}
