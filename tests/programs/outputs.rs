//! Results are right in every form: unchanged inputs, repeated values, many results, more buffers than a
//! kernel may bind.

use fusion::prelude::*;

use crate::in_place::fused::zeroed;
use crate::{Host, check, on_devices};

both! {
    templates {
        fn four(a, b, c, d) { (a + b) * (c - d) }
    }
    { pub fn scalar(x: f32[], y: f32[]) -> (f32[], f32[], f32[]) { (x + y, x, x * y) } }
    { pub fn constant(_x: f32[N, D]) -> (f32[], i32[]) { (N * D, 7) } }
    { pub fn copied(x: f32[N, D]) -> (f32[N, D], f32[D, N]) { (x, x) } }
    { pub fn twice(x: f32[N], y: f32[N]) -> (f32[N], f32[N], f32[N]) {
        let z = x * y;
        (z, z, y)
    } }
    { pub fn of_all_kinds(x: f32[A, B, C], y: f32[C, A]) -> (f32[C, B, A], f32[A], f32[B, A], f32[A, B, C], i32[B], f32[A, C]) {
        let z = x * y + 1.0;
        (z, index(A) as f32 * 0.5, index(A) as f32 + index(B) as f32, x - y, B - index(B), y)
    } }
    { pub fn twelve(
        a: f32[N], b: f32[N], c: f32[N], d: f32[N], e: f32[N], f: f32[N],
        g: f32[N], h: f32[N], i: f32[N], j: f32[N], k: f32[N], l: f32[N],
    ) -> f32[N] { four(a, b, c, d) + four(e, f, g, h) - four(i, j, k, l) } }
    { pub fn many_to_many(
        a: f32[N], b: f32[N], c: f32[N], d: f32[N], e: f32[N], f: f32[N], g: f32[N], h: f32[N], i: f32[N],
    ) -> (f32[N], f32[N], f32[N], f32[N], f32[N]) {
        let s = a + b + c + d + e + f + g + h + i;
        (s, s - a * b, s * 0.5, i, four(a, c, e, g))
    } }
    { pub fn fan(x: f32[N]) -> (
        f32[N], f32[N], f32[N], f32[N], f32[N], f32[N], f32[N], f32[N], f32[N], f32[N],
    ) { (x, x + 1.0, x + 2.0, x + 3.0, x + 4.0, x + 5.0, x + 6.0, x + 7.0, x + 8.0, x + 9.0) } }
    { pub fn ten_in_place(
        a: &mut f32[N], b: &mut f32[N], c: &mut f32[N], d: &mut f32[N], e: &mut f32[N],
        f: &mut f32[N], g: &mut f32[N], h: &mut f32[N], i: &mut f32[N], j: &mut f32[N],
    ) {
        let first = a;
        a = b; b = c; c = d; d = e; e = f; f = g; g = h; h = i; i = j; j = first;
    } }
    // Each of the many stores is needed by a later kernel, so the kernels depend on one another.
    { pub fn thirty(
        a0: f32[N], a1: f32[N], a2: f32[N], a3: f32[N], a4: f32[N], a5: f32[N], a6: f32[N], a7: f32[N], a8: f32[N],
        a9: f32[N], b0: f32[N], b1: f32[N], b2: f32[N], b3: f32[N], b4: f32[N], b5: f32[N], b6: f32[N], b7: f32[N],
        b8: f32[N], b9: f32[N], c0: f32, c1: f32, c2: f32[], c3: f32[], c4: i32, c5: u32, c6: bool, c7: f32,
        c8: f32[N], c9: &mut f32[N],
    ) -> f32[N] {
        let a = a0 - a1 + 2.0 * a2 - a3 + a4 - a5 + 3.0 * a6 - a7 + a8 - a9;
        let b = b0 + b1 - b2 + b3 - 4.0 * b4 + b5 - b6 + b7 - b8 + b9;
        c9 += c8 * c0;
        let c = c1 + c2 - c3 + c4 as f32 + c5 as f32 + if c6 { c7 } else { -c7 };
        a - b + c + c9
    } }
}

#[test]
fn rank_zero() {
    on_devices(|device| {
        let x = Tensor::from_slice(device, &[1.5], [])?;
        let y = Tensor::from_slice(device, &[-0.25], [])?;
        for scalar in [fused::scalar, unfused::scalar] {
            let (sum, same, product) = scalar(&x, &y)?;
            check(&sum, &[], |_| 1.25)?;
            check(&same, &[], |_| 1.5)?;
            check(&product, &[], |_| -0.375)?;
        }
        for constant in [fused::constant, unfused::constant] {
            let (count, seven) = constant(&Tensor::zeros(device, [3, 5])?)?;
            assert_eq!((count.item()?, seven.item()?), (15.0, 7));
            let (count, seven) = constant(&Tensor::zeros(device, [3, 0])?)?;
            assert_eq!((count.item()?, seven.item()?), (0.0, 7));
        }
        Ok(())
    });
}

#[test]
fn inputs_as_outputs_are_copies() {
    on_devices(|device| {
        for [n, d] in [[1, 1], [3, 5], [129, 257]] {
            let x = Host::new(1, &[n, d]);
            for copied in [fused::copied, unfused::copied] {
                let tensor = x.on(device)?;
                let (mut same, transposed) = copied(&tensor)?;
                check(&same, &[n, d], |at| x.at(at))?;
                check(&transposed, &[d, n], |at| x.at(&[at[1], at[0]]))?;
                zeroed(&mut same)?;
                check(&tensor, &[n, d], |at| x.at(at))?;
            }
        }
        Ok(())
    });
}

#[test]
fn one_value_as_two_results() {
    on_devices(|device| {
        let (x, y) = (Host::new(1, &[4099]), Host::new(2, &[4099]));
        for twice in [fused::twice, unfused::twice] {
            let (a, b, c) = twice(&x.on(device)?, &y.on(device)?)?;
            check(&a, &[4099], |at| x.at(at) * y.at(at))?;
            check(&b, &[4099], |at| x.at(at) * y.at(at))?;
            check(&c, &[4099], |at| y.at(at))?;
        }
        Ok(())
    });
}

#[test]
fn results_of_all_kinds() {
    on_devices(|device| {
        for [a, b, c] in [[1, 1, 1], [2, 3, 4], [7, 1, 33], [17, 31, 65]] {
            let (x, y) = (Host::new(1, &[a, b, c]), Host::new(2, &[c, a]));
            for of_all_kinds in [fused::of_all_kinds, unfused::of_all_kinds] {
                let (all, half, sum, minus, left, same) = of_all_kinds(&x.on(device)?, &y.on(device)?)?;
                let y = |a: usize, c: usize| y.at(&[c, a]);
                check(&all, &[c, b, a], |at| x.at(&[at[2], at[1], at[0]]) * y(at[2], at[0]) + 1.0)?;
                check(&half, &[a], |at| at[0] as f64 / 2.0)?;
                check(&sum, &[b, a], |at| (at[0] + at[1]) as f64)?;
                check(&minus, &[a, b, c], |at| x.at(at) - y(at[0], at[2]))?;
                assert_eq!(left.to_vec()?, (0..b).map(|i| (b - i) as i32).collect::<Vec<_>>());
                check(&same, &[a, c], |at| y(at[0], at[1]))?;
            }
        }
        Ok(())
    });
}

#[test]
fn more_inputs_than_a_kernel_binds() {
    on_devices(|device| {
        for n in [0, 1, 4097] {
            let hosts: Vec<Host> = (0..12).map(|seed| Host::new(seed, &[n])).collect();
            let tensors = hosts.iter().map(|host| host.on(device)).collect::<Result<Vec<_>>>()?;
            let [a, b, c, d, e, f, g, h, i, j, k, l] = &tensors[..] else { unreachable!("twelve were made") };
            for twelve in [fused::twelve, unfused::twelve] {
                let result = twelve(a, b, c, d, e, f, g, h, i, j, k, l)?;
                let four = |first: usize, at: &[usize]| {
                    let x = |i: usize| hosts[first + i].at(at);
                    (x(0) + x(1)) * (x(2) - x(3))
                };
                check(&result, &[n], |at| four(0, at) + four(4, at) - four(8, at))?;
            }
            for many_to_many in [fused::many_to_many, unfused::many_to_many] {
                let (sum, less, half, last, product) = many_to_many(a, b, c, d, e, f, g, h, i)?;
                let x = |i: usize, at: &[usize]| hosts[i].at(at);
                let all = |at: &[usize]| (0..9).map(|i| x(i, at)).sum::<f64>();
                check(&sum, &[n], all)?;
                check(&less, &[n], |at| all(at) - x(0, at) * x(1, at))?;
                check(&half, &[n], |at| all(at) / 2.0)?;
                check(&last, &[n], |at| x(8, at))?;
                check(&product, &[n], |at| (x(0, at) + x(2, at)) * (x(4, at) - x(6, at)))?;
            }
        }
        Ok(())
    });
}

/// The limit is sixteen buffers where a device supports them.
#[cfg(feature = "wgsl")]
#[test]
fn no_kernel_of_webgpu_binds_more_than_eight_buffers() {
    let counts_of = |kernels: Vec<fusion::KernelText>, space: &str| -> Vec<usize> {
        let wgsl = kernels.into_iter().filter(|kernel| kernel.language == "wgsl");
        wgsl.map(|kernel| kernel.text.matches(space).count()).collect()
    };
    let counts = |kernels| counts_of(kernels, "var<storage");
    let all = [
        fused::twelve::kernels(),
        fused::many_to_many::kernels(),
        fused::fan::kernels(),
        fused::thirty::kernels(),
    ];
    for kernels in all {
        let buffers = counts(kernels);
        assert!(buffers.len() > 1 && buffers.iter().all(|&count| count <= 8), "{buffers:?}");
    }
    // Two tensors of one element are uniforms, next to the launch's own arguments.
    assert_eq!(counts(fused::scalar::kernels()), [3]);
    assert_eq!(counts_of(fused::scalar::kernels(), "var<uniform> args"), [1]);
    assert_eq!(counts_of(fused::scalar::kernels(), "var<uniform>"), [3]);
}

#[test]
fn more_outputs_than_a_kernel_binds() {
    on_devices(|device| {
        let x = Host::new(1, &[1025]);
        for fan in [fused::fan, unfused::fan] {
            let (a, b, c, d, e, f, g, h, i, j) = fan(&x.on(device)?)?;
            for (offset, result) in [a, b, c, d, e, f, g, h, i, j].iter().enumerate() {
                check(result, &[1025], |at| x.at(at) + offset as f64)?;
            }
        }
        let hosts: Vec<Host> = (0..10).map(|seed| Host::new(seed, &[1025])).collect();
        for ten in [fused::ten_in_place, unfused::ten_in_place] {
            let mut tensors = hosts.iter().map(|host| host.on(device)).collect::<Result<Vec<_>>>()?;
            let [a, b, c, d, e, f, g, h, i, j] = tensors.as_mut_slice() else {
                unreachable!("ten were made")
            };
            ten(a, b, c, d, e, f, g, h, i, j)?;
            for (k, tensor) in tensors.iter().enumerate() {
                check(tensor, &[1025], |at| hosts[(k + 1) % 10].at(at))?;
            }
        }
        Ok(())
    });
}

#[test]
fn thirty_parameters() {
    on_devices(|device| {
        let n = 515;
        let hosts: Vec<Host> = (0..22).map(|seed| Host::new(seed, &[n])).collect();
        let tensors = hosts.iter().map(|host| host.on(device)).collect::<Result<Vec<_>>>()?;
        let t = &tensors[..];
        let [one, two] = [1.25, 0.5].map(|x| Tensor::from_slice(device, &[x], []));
        let (one, two) = (one?, two?);
        for thirty in [fused::thirty, unfused::thirty] {
            let mut last = tensors[21].clone();
            let result = thirty(
                &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7], &t[8], &t[9], &t[10], &t[11], &t[12],
                &t[13], &t[14], &t[15], &t[16], &t[17], &t[18], &t[19], 0.5, 8.0, &one, &two, -3, 5, false,
                0.75, &t[20], &mut last,
            )?;
            let x = |i: usize, at: &[usize]| hosts[i].at(at);
            let weights =
                [1., -1., 2., -1., 1., -1., 3., -1., 1., -1., -1., -1., 1., -1., 4., -1., 1., -1., 1., -1.];
            let weighted = |at: &[usize]| weights.iter().enumerate().map(|(i, w)| w * x(i, at)).sum::<f64>();
            let new = |at: &[usize]| x(21, at) + 0.5 * x(20, at);
            check(&last, &[n], new)?;
            check(&result, &[n], |at| weighted(at) + (8.0 + 1.25 - 0.5 - 3.0 + 5.0 - 0.75) + new(at))?;
        }
        Ok(())
    });
}
