//! Every kind of extent and order works: zero, one, odd and many elements, fixed dims anywhere, and every
//! broadcast.

use fusion::prelude::*;

use crate::{Host, check, on_devices};

both! {
    { pub fn affine(x: f32[N, D], scale: f32[N], bias: f32[D]) -> f32[N, D] { x * scale + bias } }
    { pub fn gate(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] { relu(a + b) * c } }
    { pub fn rotated(x: f32[A, B, C]) -> (f32[B, C, A], f32[C, A, B]) { (x, x + 1.0) } }
    { pub fn shuffled(x: f32[A, B, C, D, E], y: f32[E, C, A]) -> f32[D, A, E, B, C] { x * 2.0 - y } }
    { pub fn fixed_first(x: f32[C = 3, N], w: f32[C]) -> (f32[N], f32[C, N], f32[N, C]) {
        let s = sum(x * w, C);
        (s, x - s, max(x, C) + x)
    } }
    { pub fn fixed_middle(x: f32[N, C = 3, M], w: f32[C]) -> (f32[N, M], f32[M, N], f32[N, C, M]) {
        let s = sum(x * w, C);
        (s, s + min(x, C), x - at(x, C, 1))
    } }
    { pub fn fixed_last(x: f32[N, M, C = 3], w: f32[C]) -> (f32[N, M], f32[N, C, M], f32[M, N, C]) {
        let s = sum(x * w, C);
        (s, x * w, x - s + index(C) as f32)
    } }
    { pub fn two_fixed(x: f32[A = 2, N, B = 3]) -> (f32[N], f32[A, N], f32[N, B], f32[B, A, N]) {
        (sum(x, (A, B)), sum(x, B), max(x, A), x - mean(x, A) + sum(x, B))
    } }
    { pub fn all_fixed(x: f32[A = 2, B = 3]) -> (f32[], f32[A], f32[B, A]) { (sum(x), prod(x, B), x - sum(x)) } }
    { pub fn numbered(x: f32[N, 2, 3]) -> (f32[N], f32[3, N, 2]) { (sum(x, (2, 3)), x + at(x, 3, 0)) } }
    { pub fn of_one(x: f32[N, K = 1]) -> (f32[N], f32[K, N]) { (sum(x, K), x - mean(x, K) + x) } }
    { pub fn every_subset(
        s: f32[], a: f32[A], b: f32[B], c: f32[C], ab: f32[A, B], ac: f32[A, C], bc: f32[B, C], abc: f32[A, B, C],
    ) -> f32[A, B, C] { s + a * b - c * ab + ac * 0.5 - bc + abc } }
    { pub fn every_subset_turned(
        s: f32[], a: f32[A], b: f32[B], c: f32[C], ba: f32[B, A], ca: f32[C, A], cb: f32[C, B], cba: f32[C, B, A],
    ) -> f32[B, A, C] { s + a * b - c * ba + ca * 0.5 - cb + cba } }
    { pub fn coordinates(x: f32[A, B, C]) -> (i32[A, B, C], f32[C, A, B], i32[B]) {
        let flat = (index(A) * B + index(B)) * C + index(C);
        (flat, x * 0.0 + flat as f32 + A * 0.5, index(B) * index(B) + A - C)
    } }
    { pub fn extent_of_host(x: f32[N], H: dim) -> (f32[N], f32[H, N]) { (x * H, x + index(H) as f32) } }
}

#[test]
fn no_elements_in_any_dim() {
    on_devices(|device| {
        for shape in [[0, 5, 7], [5, 0, 7], [5, 7, 0], [0, 0, 7], [0, 0, 0]] {
            let [a, b, c] = shape;
            let x = Tensor::zeros(device, shape)?;
            for rotated in [fused::rotated, unfused::rotated] {
                let (first, second) = rotated(&x)?;
                check(&first, &[b, c, a], |_| 0.0)?;
                check(&second, &[c, a, b], |_| 1.0)?;
            }
            for coordinates in [fused::coordinates, unfused::coordinates] {
                let (flat, floats, squares) = coordinates(&x)?;
                assert_eq!((flat.len(), floats.len()), (0, 0));
                let squares_expected: Vec<i32> = (0..b).map(|i| (i * i + a) as i32 - c as i32).collect();
                assert_eq!(squares.to_vec()?, squares_expected);
            }
        }
        for n in [0, 1] {
            let w = Tensor::full(device, 2.0, [3])?;
            let (s, x, y) = fused::fixed_first(&Tensor::full(device, 1.5, [3, n])?, &w)?;
            check(&s, &[n], |_| 9.0)?;
            check(&x, &[3, n], |_| -7.5)?;
            check(&y, &[n, 3], |_| 3.0)?;
            for (n, m) in [(n, 4), (4, n), (n, n)] {
                let (s, t, x) = unfused::fixed_middle(&Tensor::full(device, 1.5, [n, 3, m])?, &w)?;
                check(&s, &[n, m], |_| 9.0)?;
                check(&t, &[m, n], |_| 10.5)?;
                check(&x, &[n, 3, m], |_| 0.0)?;
                let (s, t, x) = fused::fixed_last(&Tensor::full(device, 1.5, [n, m, 3])?, &w)?;
                check(&s, &[n, m], |_| 9.0)?;
                check(&t, &[n, 3, m], |_| 3.0)?;
                check(&x, &[m, n, 3], |at| at[2] as f64 - 7.5)?;
            }
        }
        Ok(())
    });
}

#[test]
fn ends_of_vectors_chunks_and_groups() {
    on_devices(|device| {
        let sizes = [1, 2, 3, 4, 15, 16, 17, 255, 256, 257, 4095, 4096, 4097, 8193, 65_535, 65_536, 65_537];
        for n in sizes {
            let [a, b, c] = [1, 2, 3].map(|seed| Host::new(seed, &[n]));
            for gate in [fused::gate, unfused::gate] {
                let result = gate(&a.on(device)?, &b.on(device)?, &c.on(device)?)?;
                check(&result, &[n], |at| (a.at(at) + b.at(at)).max(0.0) * c.at(at))?;
            }
        }
        for [n, d] in [
            [1, 1],
            [3, 1],
            [1, 3],
            [2, 4095],
            [3, 4096],
            [2, 4097],
            [17, 4097],
            [4097, 3],
            [65_537, 1],
            [16_385, 4],
        ] {
            let (x, scale, bias) = (Host::new(1, &[n, d]), Host::new(2, &[n]), Host::new(3, &[d]));
            for affine in [fused::affine, unfused::affine] {
                let result = affine(&x.on(device)?, &scale.on(device)?, &bias.on(device)?)?;
                check(&result, &[n, d], |at| x.at(at) * scale.at(&[at[0]]) + bias.at(&[at[1]]))?;
            }
        }
        Ok(())
    });
}

#[test]
fn millions_of_elements() {
    let n = (1 << 22) + 3;
    let [a, b, c] = [1, 2, 3].map(|seed| Host::new(seed, &[n]));
    // Each operation is rounded once, on all devices.
    let element = |i: usize| (a.elements[i] + b.elements[i]).max(0.0) * c.elements[i];
    let expected: Vec<f32> = (0..n).map(element).collect();
    on_devices(|device| {
        let result = fused::gate(&a.on(device)?, &b.on(device)?, &c.on(device)?)?.to_vec()?;
        let wrong = result.iter().zip(&expected).position(|(got, expected)| got != expected);
        assert_eq!((result.len(), wrong), (n, None), "{device}");
        Ok(())
    });
}

#[test]
fn permutations() {
    on_devices(|device| {
        for [a, b, c] in [[1, 1, 1], [2, 3, 5], [31, 33, 4], [4, 1, 129], [65, 66, 67]] {
            let x = Host::new(1, &[a, b, c]);
            for rotated in [fused::rotated, unfused::rotated] {
                let (bca, cab) = rotated(&x.on(device)?)?;
                check(&bca, &[b, c, a], |at| x.at(&[at[2], at[0], at[1]]))?;
                check(&cab, &[c, a, b], |at| x.at(&[at[1], at[2], at[0]]) + 1.0)?;
            }
        }
        for [a, b, c, d, e] in
            [[1, 1, 1, 1, 1], [2, 3, 4, 5, 6], [7, 1, 5, 9, 33], [3, 5, 1, 2, 1], [2, 2, 2, 2, 2]]
        {
            let (x, y) = (Host::new(1, &[a, b, c, d, e]), Host::new(2, &[e, c, a]));
            for shuffled in [fused::shuffled, unfused::shuffled] {
                check(&shuffled(&x.on(device)?, &y.on(device)?)?, &[d, a, e, b, c], |at| {
                    let &[d, a, e, b, c] = at else { unreachable!("five coordinates") };
                    2.0 * x.at(&[a, b, c, d, e]) - y.at(&[e, c, a])
                })?;
            }
        }
        Ok(())
    });
}

#[test]
fn a_fixed_dim_first_in_the_middle_and_last() {
    on_devices(|device| {
        let weights = Host::new(9, &[3]);
        let w = weights.on(device)?;
        for [n, m] in [[1, 1], [2, 5], [33, 31], [5, 4097], [700, 64]] {
            let sum = |x: &dyn Fn(usize) -> f64| (0..3).map(|c| x(c) * weights.at(&[c])).sum::<f64>();
            let of = |x: &dyn Fn(usize) -> f64, f: fn(f64, f64) -> f64| f(f(x(0), x(1)), x(2));
            for fixed_first in [fused::fixed_first, unfused::fixed_first] {
                let x = Host::new(1, &[3, n * m]);
                let (s, less, turned) = fixed_first(&x.on(device)?, &w)?;
                let total = |i: usize| sum(&|c| x.at(&[c, i]));
                check(&s, &[n * m], |at| total(at[0]))?;
                check(&less, &[3, n * m], |at| x.at(at) - total(at[1]))?;
                check(&turned, &[n * m, 3], |at| {
                    of(&|c| x.at(&[c, at[0]]), f64::max) + x.at(&[at[1], at[0]])
                })?;
            }
            for fixed_middle in [fused::fixed_middle, unfused::fixed_middle] {
                let x = Host::new(2, &[n, 3, m]);
                let (s, turned, less) = fixed_middle(&x.on(device)?, &w)?;
                let total = |i: usize, j: usize| sum(&|c| x.at(&[i, c, j]));
                check(&s, &[n, m], |at| total(at[0], at[1]))?;
                check(&turned, &[m, n], |at| {
                    total(at[1], at[0]) + of(&|c| x.at(&[at[1], c, at[0]]), f64::min)
                })?;
                check(&less, &[n, 3, m], |at| x.at(at) - x.at(&[at[0], 1, at[2]]))?;
            }
            for fixed_last in [fused::fixed_last, unfused::fixed_last] {
                let x = Host::new(3, &[n, m, 3]);
                let (s, weighted, less) = fixed_last(&x.on(device)?, &w)?;
                let total = |i: usize, j: usize| sum(&|c| x.at(&[i, j, c]));
                check(&s, &[n, m], |at| total(at[0], at[1]))?;
                check(&weighted, &[n, 3, m], |at| x.at(&[at[0], at[2], at[1]]) * weights.at(&[at[1]]))?;
                check(&less, &[m, n, 3], |at| {
                    x.at(&[at[1], at[0], at[2]]) - total(at[1], at[0]) + at[2] as f64
                })?;
            }
        }
        Ok(())
    });
}

#[test]
fn two_fixed_dims() {
    on_devices(|device| {
        for n in [1, 7, 4099] {
            let x = Host::new(1, &[2, n, 3]);
            let over_b = |a: usize, n: usize| (0..3).map(|b| x.at(&[a, n, b])).sum::<f64>();
            let over_a = |n: usize, b: usize| x.at(&[0, n, b]) + x.at(&[1, n, b]);
            for two_fixed in [fused::two_fixed, unfused::two_fixed] {
                let (all, per_a, most, rest) = two_fixed(&x.on(device)?)?;
                check(&all, &[n], |at| over_b(0, at[0]) + over_b(1, at[0]))?;
                check(&per_a, &[2, n], |at| over_b(at[0], at[1]))?;
                check(&most, &[n, 3], |at| x.at(&[0, at[0], at[1]]).max(x.at(&[1, at[0], at[1]])))?;
                check(&rest, &[3, 2, n], |at| {
                    let &[b, a, n] = at else { unreachable!("three coordinates") };
                    x.at(&[a, n, b]) - over_a(n, b) / 2.0 + over_b(a, n)
                })?;
            }
            let y = Host::new(2, &[n, 2, 3]);
            for numbered in [fused::numbered, unfused::numbered] {
                let (all, turned) = numbered(&y.on(device)?)?;
                check(&all, &[n], |at| (0..6).map(|i| y.at(&[at[0], i / 3, i % 3])).sum())?;
                check(&turned, &[3, n, 2], |at| y.at(&[at[1], at[2], at[0]]) + y.at(&[at[1], at[2], 0]))?;
            }
            let z = Host::new(3, &[n, 1]);
            for of_one in [fused::of_one, unfused::of_one] {
                let (sum, turned) = of_one(&z.on(device)?)?;
                check(&sum, &[n], |at| z.at(&[at[0], 0]))?;
                check(&turned, &[1, n], |at| z.at(&[at[1], 0]))?;
            }
        }
        let x = Host::new(4, &[2, 3]);
        let all = x.elements.iter().copied().map(f64::from).sum::<f64>();
        for all_fixed in [fused::all_fixed, unfused::all_fixed] {
            let (sum, products, rest) = all_fixed(&x.on(device)?)?;
            check(&sum, &[], |_| all)?;
            check(&products, &[2], |at| (0..3).map(|b| x.at(&[at[0], b])).product())?;
            check(&rest, &[3, 2], |at| x.at(&[at[1], at[0]]) - all)?;
        }
        Ok(())
    });
}

#[test]
fn every_broadcast_of_a_space() {
    on_devices(|device| {
        for [a, b, c] in [[1, 1, 1], [2, 3, 4], [5, 1, 7], [1, 9, 1], [33, 17, 65], [3, 2, 4097]] {
            let [s, x, y, z] = [(1, vec![]), (2, vec![a]), (3, vec![b]), (4, vec![c])]
                .map(|(seed, shape)| Host::new(seed, &shape));
            let (s_, x_, y_, z_) = (s.on(device)?, x.on(device)?, y.on(device)?, z.on(device)?);
            let small = |a: usize, b: usize| s.at(&[]) + x.at(&[a]) * y.at(&[b]);
            for every in [fused::every_subset, unfused::every_subset] {
                let [xy, xz, yz, xyz] =
                    [(5, vec![a, b]), (6, vec![a, c]), (7, vec![b, c]), (8, vec![a, b, c])]
                        .map(|(seed, shape)| Host::new(seed, &shape));
                let all = (xy.on(device)?, xz.on(device)?, yz.on(device)?, xyz.on(device)?);
                check(&every(&s_, &x_, &y_, &z_, &all.0, &all.1, &all.2, &all.3)?, &[a, b, c], |at| {
                    let &[a, b, c] = at else { unreachable!("three coordinates") };
                    small(a, b) - z.at(&[c]) * xy.at(&[a, b]) + xz.at(&[a, c]) / 2.0 - yz.at(&[b, c])
                        + xyz.at(at)
                })?;
            }
            for every in [fused::every_subset_turned, unfused::every_subset_turned] {
                let [yx, zx, zy, zyx] =
                    [(5, vec![b, a]), (6, vec![c, a]), (7, vec![c, b]), (8, vec![c, b, a])]
                        .map(|(seed, shape)| Host::new(seed, &shape));
                let all = (yx.on(device)?, zx.on(device)?, zy.on(device)?, zyx.on(device)?);
                check(&every(&s_, &x_, &y_, &z_, &all.0, &all.1, &all.2, &all.3)?, &[b, a, c], |at| {
                    let &[b, a, c] = at else { unreachable!("three coordinates") };
                    small(a, b) - z.at(&[c]) * yx.at(&[b, a]) + zx.at(&[c, a]) / 2.0 - zy.at(&[c, b])
                        + zyx.at(&[c, b, a])
                })?;
            }
        }
        Ok(())
    });
}

#[test]
fn coordinates_and_extents() {
    on_devices(|device| {
        for shape in [[1, 1, 1], [2, 3, 4], [5, 1, 7], [33, 17, 65], [3, 2, 4097]] {
            let [a, b, c] = shape;
            for coordinates in [fused::coordinates, unfused::coordinates] {
                let (flat, floats, squares) = coordinates(&Host::new(1, &shape).on(device)?)?;
                assert_eq!(flat.to_vec()?, (0..(a * b * c) as i32).collect::<Vec<_>>(), "{}", device.name());
                check(&floats, &[c, a, b], |at| ((at[1] * b + at[2]) * c + at[0]) as f64 + a as f64 / 2.0)?;
                let expected: Vec<i32> = (0..b).map(|i| (i * i + a) as i32 - c as i32).collect();
                assert_eq!(squares.to_vec()?, expected);
            }
            let x = Host::new(1, &[a]);
            for extent_of_host in [fused::extent_of_host, unfused::extent_of_host] {
                let (scaled, ramp) = extent_of_host(&x.on(device)?, b)?;
                check(&scaled, &[a], |at| x.at(at) * b as f64)?;
                check(&ramp, &[b, a], |at| x.at(&[at[1]]) + at[0] as f64)?;
                assert_eq!(extent_of_host(&x.on(device)?, 0)?.1.shape().dims(), [0, a]);
            }
        }
        Ok(())
    });
}
