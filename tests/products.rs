//! Products of matrices at the edges: extents of 0 and 1, values that are no numbers, operands that are views,
//! and integers of 8 bits.

mod devices;
mod numbers;

use devices::{exact_devices, on_devices};
use fusion::prelude::*;
use fusion::{bf16, f16};
use numbers::{Numbers, check, numbers, same};

fuse! {
    pub(crate) fn product(x: f32[M, K], w: f32[N, K]) -> f32[M, N] { matmul(x, w, K) }
    pub(crate) fn summed(x: f32[M, K], w: f32[N, K]) -> f32[M, N] { sum(x * w, K) }
    pub(crate) fn halves(x: f16[M, K], w: bf16[N, K]) -> f32[M, N] { matmul(x, w, K) }
    pub(crate) fn bytes(x: i8[M, K], w: u8[N, K]) -> i32[M, N] { matmul(x, w, K) }
    pub(crate) fn shorts(x: i16[M, K], w: u16[N, K]) -> i32[M, N] { matmul(x, w, K) }
}

#[test]
fn matmul_is_the_sum_of_products() {
    let bits = |of: Vec<f32>| of.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    on_devices(|device| {
        for (m, k, n) in [(1, 1, 1), (7, 300, 33), (40, 9, 20)] {
            let (x, w) = (numbers(m, m * k), numbers(n, n * k));
            let tensors = (Tensor::from_slice(device, &x, [m, k])?, Tensor::from_slice(device, &w, [n, k])?);
            let [made, expected] = [product, summed].map(|function| function(&tensors.0, &tensors.1));
            assert!(bits(made?.to_vec()?) == bits(expected?.to_vec()?), "{device} {m} {k} {n}");
            let x: Vec<f16> = x.into_iter().map(f16::from_f32).collect();
            let w: Vec<bf16> = w.into_iter().map(bf16::from_f32).collect();
            let made =
                halves(&Tensor::from_slice(device, &x, [m, k])?, &Tensor::from_slice(device, &w, [n, k])?)?;
            for (i, made) in made.to_vec()?.into_iter().enumerate() {
                let terms = (0..k).map(|l| x[i / n * k + l].to_f64() * w[i % n * k + l].to_f64());
                let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
                assert!((f64::from(made) - sum).abs() <= 3e-6 * (size + 1.0), "{device} {m} {k} {n}: {made}");
            }
        }
        Ok(())
    });
}

/// The largest products of 8 bits, whose sums need more than 16, and products of 16 bits.
#[test]
fn products_of_narrow_integers_are_exact() {
    on_devices(|device| {
        for (m, k, n) in [(1, 1, 1), (3, 700, 65), (16, 33, 5)] {
            let x: Vec<i8> = (0..m * k).map(|i| [-128, 127, 3, -1][i * 7 % 5 % 4]).collect();
            let w: Vec<u8> = (0..n * k).map(|i| [255, 254, 0, 1][i * 11 % 7 % 4]).collect();
            let made =
                bytes(&Tensor::from_slice(device, &x, [m, k])?, &Tensor::from_slice(device, &w, [n, k])?)?;
            let term = |i: usize, l: usize| i32::from(x[i / n * k + l]) * i32::from(w[i % n * k + l]);
            let expected: Vec<i32> = (0..m * n).map(|i| (0..k).map(|l| term(i, l)).sum()).collect();
            assert_eq!(made.to_vec()?, expected, "{device} {m} {k} {n}");
            let x: Vec<i16> = x.into_iter().map(|x| i16::from(x) * 200).collect();
            let w: Vec<u16> = w.into_iter().map(|w| u16::from(w) / 4).collect();
            let made =
                shorts(&Tensor::from_slice(device, &x, [m, k])?, &Tensor::from_slice(device, &w, [n, k])?)?;
            let term = |i: usize, l: usize| i32::from(x[i / n * k + l]) * i32::from(w[i % n * k + l]);
            let expected: Vec<i32> = (0..m * n).map(|i| (0..k).map(|l| term(i, l)).sum()).collect();
            assert_eq!(made.to_vec()?, expected, "{device} {m} {k} {n}");
        }
        Ok(())
    });
}

fuse! {
    pub(crate) fn nn(x: f32[M, K], w: f32[K, N]) -> f32[M, N] { matmul(x, w, K) }
    pub(crate) fn tn(x: f32[K, M], w: f32[K, N]) -> f32[M, N] { matmul(x, w, K) }
    pub(crate) fn tt(x: f32[K, M], w: f32[N, K]) -> f32[M, N] { matmul(x, w, K) }
    pub(crate) fn batched(x: f32[B, M, K], w: f32[B, K, N], b: f32[N]) -> f32[M, B, N] { matmul(x, w, K) + b }
    pub(crate) fn computed(x: f32[M, K], s: f32[M], w: f32[N, K], z: f32[N]) -> f32[M, N] {
        matmul((x - 1.0) / s, w + z, K)
    }
    pub(crate) fn dequantized(x: f32[M, K], q: i8[K, N], z: f32[N], s: f32[K]) -> f32[M, N] {
        matmul(x, (q as f32 - z) * s, K)
    }
    pub(crate) fn both(x: f32[B, M, K], w: f32[B, K, N], z: f32[N]) -> f32[B, M, N] {
        matmul(x * 2.0 + 1.0, relu(w - z), K)
    }
    pub(crate) fn by_rows(x: f32[K, M], z: f32[M], w: f32[K, N]) -> f32[M, N] { matmul(relu(x + z), w, K) }
    pub(crate) fn dear(x: f32[M, K], w: f32[N, K]) -> f32[M, N] { matmul(tanh(x), exp(w), K) }
    pub(crate) fn long(x: f32[M, K], w: f32[K, N]) -> f32[M, N] {
        matmul(abs(abs(x - 0.25) - 0.5) * (x + 2.0), relu(relu(w + 0.5) - 0.25) * (w - 2.0), K)
    }
    pub(crate) fn inner_batch(x: f32[M, K, B], w: f32[K, N]) -> f32[B, M, N] { matmul(x * 2.0 + 1.0, w, K) }
    pub(crate) fn two_axes(x: f32[M, J, K], w: f32[K, J, N]) -> f32[M, N] {
        matmul(abs(x - 0.5), relu(w + 0.5), (J, K))
    }
    pub(crate) fn two_columns(x: f32[M, K], w: f32[K, P, Q], b: f32[Q]) -> f32[M, P, Q] {
        matmul(x, relu(w - b), K)
    }
    pub(crate) fn outer(x: f32[M], y: f32[K], w: f32[N, K]) -> f32[M, N] { matmul(abs(x + y), w, K) }
    pub(crate) fn doubles(x: f64[M, K], w: f64[K, N]) -> f64[M, N] { matmul(abs(x), abs(w), K) }
    pub(crate) fn integers(x: i32[M, K], w: i16[K, N]) -> i32[M, N] { matmul(x - 1, w as i32 * 3, K) }
    pub(crate) fn sliced(x: f32[M, D], w: f32[E, N]) -> f32[M, N] {
        matmul(slice(x, D -> K, 1..), slice(w, E -> K, 2..), K)
    }
    pub(crate) fn flipped(x: f32[M, K], w: f32[N, K]) -> f32[M, N] { matmul(flip(x, K), roll(w, N, 1), K) }
    pub(crate) fn padded(x: f32[M, D], w: f32[N, K]) -> f32[M, N] { matmul(pad(x, D -> K, 1, 2), w, K) }
    pub(crate) fn heads(x: f32[T, E], w: f32[S, E], H: dim) -> f32[T, H, S] {
        matmul(split(x, E -> (H, C)), split(w, E -> (H, C)), C)
    }
    pub(crate) fn merged(x: f32[A, B, K], w: f32[K, N]) -> f32[N, M] { matmul(merge(x, (A, B) -> M), w, K) }
    pub(crate) fn joined(x: f32[M, A], y: f32[M, B], w: f32[K, N]) -> f32[M, N] {
        matmul(concat((x, A), (y, B) -> K), w, K)
    }
    pub(crate) fn shared(x: f32[B, M, K], w: f32[K, N], r: f32[N, B, M]) -> f32[B, M, N] {
        tanh(matmul(x, w, K)) + r
    }
}

impl Numbers {
    fn set(&mut self, at: &[usize], value: f32) {
        let offset = self.offset(at);
        self.elements[offset] = value;
    }
}

#[test]
fn extents_are_0_or_1() {
    on_devices(|device| {
        let extents = [0, 1, 9];
        let all = extents
            .into_iter()
            .flat_map(|m| extents.into_iter().flat_map(move |k| extents.map(|n| (m, k, n))));
        for (m, k, n) in all {
            let (x, w, b) = (Numbers::new(m, &[m, k]), Numbers::new(n, &[n, k]), Numbers::new(3, &[n]));
            let terms = |i: &[usize]| (0..k).map(|l| x.at(&[i[0], l]) * w.at(&[i[1], l])).collect();
            check(&format!("{device} nt"), &product(&x.on(device)?, &w.on(device)?)?, terms, same)?;
            for batches in [0, 1, 2] {
                let (x, w) = (Numbers::new(m, &[batches, m, k]), Numbers::new(n, &[batches, k, n]));
                let terms = |i: &[usize]| {
                    let products = (0..k).map(|l| x.at(&[i[1], i[0], l]) * w.at(&[i[1], l, i[2]]));
                    products.chain([b.at(&[i[2]])]).collect()
                };
                let made = batched(&x.on(device)?, &w.on(device)?, &b.on(device)?)?;
                check(&format!("{device} batched {k}"), &made, terms, same)?;
            }
        }
        Ok(())
    });
}

/// One row, one column, and extents on both sides of tiles.
const SIZES: [(usize, usize, usize); 9] = [
    (1, 300, 70),
    (70, 300, 1),
    (1, 17, 33),
    (13, 17, 65),
    (25, 257, 31),
    (11, 256, 33),
    (4, 513, 16),
    // Tiles of GPUs, with edges.
    (37, 19, 41),
    (68, 20, 72),
];

/// Numbers of two matrices, one after another, each with its dims in this order or exchanged.
fn matrix(device: &Device, of: &Numbers, batch: usize, exchanged: bool) -> Result<Tensor<f32>> {
    let [rows, cols] = [of.shape[1], of.shape[2]];
    let mut made = Numbers::new(1, &if exchanged { [cols, rows] } else { [rows, cols] });
    for (i, j) in (0..rows).flat_map(|i| (0..cols).map(move |j| (i, j))) {
        made.set(&if exchanged { [j, i] } else { [i, j] }, of.at(&[batch, i, j]) as f32);
    }
    made.on(device)
}

/// Values that are no numbers, in the last row, column and step of the depth, reach what they are a factor of,
/// in every layout. The memory after the last row is that of another row, or of the next batch.
fn special_values(
    device: &Device,
    (m, k, n): (usize, usize, usize),
    (special, other): (f32, f32),
) -> Result<()> {
    let (mut x, mut w) = (Numbers::new(m, &[2, m, k]), Numbers::new(n, &[2, k, n]));
    // Sums of small whole numbers are exact.
    x.elements.iter_mut().chain(&mut w.elements).for_each(|x| *x = (*x * 2.0).round());
    x.set(&[0, m - 1, k - 1], special);
    w.set(&[0, k - 1, n - 1], other);
    w.set(&[1, 0, n - 1], special);
    type Function = fn(&Tensor<f32>, &Tensor<f32>) -> Result<Tensor<f32>>;
    let layouts: [(&str, Function, bool, bool); 4] = [
        ("nn", nn, false, false),
        ("nt", product, false, true),
        ("tn", tn, true, false),
        ("tt", tt, true, true),
    ];
    for batch in 0..2 {
        let term = |i: &[usize], l: usize| x.at(&[batch, i[0], l]) * w.at(&[batch, l, i[1]]);
        let terms = |i: &[usize]| (0..k).map(|l| term(i, l)).collect();
        for (name, function, left, right) in layouts {
            let made = function(&matrix(device, &x, batch, left)?, &matrix(device, &w, batch, right)?)?;
            check(&format!("{device} {name} {special}"), &made, terms, same)?;
        }
    }
    let terms = |i: &[usize]| (0..k).map(|l| x.at(&[i[1], i[0], l]) * w.at(&[i[1], l, i[2]])).collect();
    let made = batched(&x.on(device)?, &w.on(device)?, &Tensor::zeros(device, [n])?)?;
    check(&format!("{device} batched {special}"), &made, terms, same)
}

#[test]
fn what_is_no_number_stays_in_its_sums() {
    let specials = [(f32::NAN, 1.0), (f32::INFINITY, 0.0), (f32::NEG_INFINITY, f32::INFINITY)];
    for device in exact_devices() {
        for (size, special) in SIZES.into_iter().zip(specials.into_iter().cycle()) {
            special_values(&device, size, special).expect("it runs");
        }
    }
}

/// Factors are 0 outside of a tile after what is computed of them: `(0 - 1) / s` and `0 + z` are not.
#[test]
fn computed_factors_end_with_their_extents() {
    on_devices(|device| {
        for (m, k, n) in SIZES {
            let (x, w) = (Numbers::new(m, &[m, k]), Numbers::new(n, &[n, k]));
            let (mut s, z) = (Numbers::new(3, &[m]), Numbers::new(4, &[n]));
            s.elements.iter_mut().for_each(|s| *s += 2.0);
            let made = computed(&x.on(device)?, &s.on(device)?, &w.on(device)?, &z.on(device)?)?;
            let terms = |i: &[usize]| {
                let left = |l| (x.at(&[i[0], l]) - 1.0) / s.at(&[i[0]]);
                (0..k).map(|l| left(l) * (w.at(&[i[1], l]) + z.at(&[i[1]]))).collect()
            };
            check(&format!("{device} computed {k}"), &made, terms, same)?;
        }
        Ok(())
    });
}

/// Extents for which boxes of the CPU share packed columns: two blocks of the depth, and two strips.
const SHARED: [(usize, usize, usize); 2] = [(97, 260, 20), (97, 9, 514)];

/// Factors of few operations are computed block by block, in runs along the depth or along lanes; others are stored.
#[test]
fn factors_are_computed_in_any_layout() {
    on_devices(|device| {
        let is_cpu = *device == Device::cpu();
        for (m, k, n) in SIZES.into_iter().chain(SHARED.into_iter().filter(|_| is_cpu)) {
            let what = |name: &str| format!("{device} {name} {k}");
            let (x, w, y) = (Numbers::new(m, &[m, k]), Numbers::new(n, &[k, n]), Numbers::new(6, &[k, m]));
            let (z, s, u) = (Numbers::new(4, &[n]), Numbers::new(5, &[k]), Numbers::new(7, &[m]));
            let (on_x, on_w, on_z) = (x.on(device)?, w.on(device)?, z.on(device)?);
            let q: Vec<i8> = w.elements.iter().map(|w| (w * 127.0) as i8).collect();
            let made = dequantized(&on_x, &Tensor::from_slice(device, &q, [k, n])?, &on_z, &s.on(device)?)?;
            let right = |l: usize, j: usize| (f64::from(q[l * n + j]) - z.at(&[j])) * s.at(&[l]);
            let terms = |i: &[usize]| (0..k).map(|l| x.at(&[i[0], l]) * right(l, i[1])).collect();
            check(&what("dequantized"), &made, terms, same)?;

            let made = by_rows(&y.on(device)?, &u.on(device)?, &on_w)?;
            let left = |l: usize, i: usize| (y.at(&[l, i]) + u.at(&[i])).max(0.0);
            let terms = |i: &[usize]| (0..k).map(|l| left(l, i[0]) * w.at(&[l, i[1]])).collect();
            check(&what("by rows"), &made, terms, same)?;

            let made = long(&on_x, &on_w)?;
            let left = |x: f64| ((x - 0.25).abs() - 0.5).abs() * (x + 2.0);
            let right = |w: f64| ((w + 0.5).max(0.0) - 0.25).max(0.0) * (w - 2.0);
            let term = |i: usize, j: usize, l: usize| left(x.at(&[i, l])) * right(w.at(&[l, j]));
            check(&what("long"), &made, |i| (0..k).map(|l| term(i[0], i[1], l)).collect(), same)?;

            let b = Numbers::new(9, &[m, k, 3]);
            let made = inner_batch(&b.on(device)?, &on_w)?;
            let left = |b: f64| b * 2.0 + 1.0;
            let term = |i: &[usize], l| left(b.at(&[i[1], l, i[0]])) * w.at(&[l, i[2]]);
            check(&what("inner batch"), &made, |i| (0..k).map(|l| term(i, l)).collect(), same)?;

            let v = Numbers::new(8, &[n, k]);
            let made = dear(&on_x, &v.on(device)?)?;
            let term = |i: usize, j: usize, l: usize| x.at(&[i, l]).tanh() * v.at(&[j, l]).exp();
            check(&what("dear"), &made, |i| (0..k).map(|l| term(i[0], i[1], l)).collect(), same)?;

            let made = outer(&u.on(device)?, &s.on(device)?, &v.on(device)?)?;
            let left = |i: usize, l: usize| (u.at(&[i]) + s.at(&[l])).abs();
            let terms = |i: &[usize]| (0..k).map(|l| left(i[0], l) * v.at(&[i[1], l])).collect();
            check(&what("outer"), &made, terms, same)?;

            let (x, w) = (Numbers::new(m, &[2, m, k]), Numbers::new(n, &[2, k, n]));
            let made = both(&x.on(device)?, &w.on(device)?, &on_z)?;
            let left = |b, i, l| x.at(&[b, i, l]) * 2.0 + 1.0;
            let right = |b, l, j| (w.at(&[b, l, j]) - z.at(&[j])).max(0.0);
            let term = |i: &[usize], l| left(i[0], i[1], l) * right(i[0], l, i[2]);
            check(&what("both"), &made, |i| (0..k).map(|l| term(i, l)).collect(), same)?;

            let (x, w) = (Numbers::new(m, &[m, 2, k]), Numbers::new(n, &[k, 2, n]));
            let made = two_axes(&x.on(device)?, &w.on(device)?)?;
            let left = |i, j, l| (x.at(&[i, j, l]) - 0.5).abs();
            let right = |l, j, c| (w.at(&[l, j, c]) + 0.5).max(0.0);
            let term = |i: &[usize], l: usize| left(i[0], l % 2, l / 2) * right(l / 2, l % 2, i[1]);
            check(&what("two axes"), &made, |i| (0..2 * k).map(|l| term(i, l)).collect(), same)?;

            let (x, w) = (Numbers::new(m, &[m, k]), Numbers::new(n, &[k, 3, n]));
            let made = two_columns(&x.on(device)?, &w.on(device)?, &on_z)?;
            let right = |l, p, j| (w.at(&[l, p, j]) - z.at(&[j])).max(0.0);
            let terms = |i: &[usize]| (0..k).map(|l| x.at(&[i[0], l]) * right(l, i[1], i[2])).collect();
            check(&what("two columns"), &made, terms, same)?;
        }
        Ok(())
    });
}

#[test]
fn factors_of_integers_and_doubles_are_computed() {
    let device = &Device::cpu();
    for (m, k, n) in SIZES.into_iter().chain(SHARED) {
        let whole = |of: usize, count| (0..count).map(move |i| (i * of % 23) as i32 - 9).collect::<Vec<_>>();
        let (x, w) = (whole(7, m * k), whole(5, k * n));
        let narrow: Vec<i16> = w.iter().map(|&w| w as i16).collect();
        let (on_x, on_w) =
            (Tensor::from_slice(device, &x, [m, k]), Tensor::from_slice(device, &narrow, [k, n]));
        let made = integers(&on_x.unwrap(), &on_w.unwrap()).unwrap().to_vec().unwrap();
        let [x, w] = [x, w].map(|of| of.into_iter().map(f64::from).collect::<Vec<_>>());
        let (on_x, on_w) = (Tensor::from_slice(device, &x, [m, k]), Tensor::from_slice(device, &w, [k, n]));
        let exact = doubles(&on_x.unwrap(), &on_w.unwrap()).unwrap().to_vec().unwrap();
        for (at, (&made, exact)) in made.iter().zip(exact).enumerate() {
            let pairs = || (0..k).map(|l| (x[at / n * k + l], w[l * n + at % n]));
            assert_eq!(f64::from(made), pairs().map(|(x, w)| (x - 1.0) * (w * 3.0)).sum::<f64>(), "{k} {at}");
            assert_eq!(exact, pairs().map(|(x, w)| x.abs() * w.abs()).sum::<f64>(), "{k} {at}");
        }
    }
}

#[test]
fn factors_of_few_operations_are_never_stored() {
    // One launch where tiles pay: the variant of the CPU with a condition on the number of rows.
    let stores = |report: Report| {
        let text = report.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        let mut variants = text.split("cpu: ");
        !variants.any(|variant| variant.starts_with("1 launch,") && variant.contains(" M ≥ 4 "))
    };
    let computed = [dequantized::report(), both::report(), by_rows::report(), two_axes::report()];
    let views = [two_columns::report(), outer::report(), flipped::report(), padded::report()];
    for report in computed.into_iter().chain(views) {
        assert!(!stores(report.clone()), "{report}");
    }
    assert!(stores(long::report()) && stores(inner_batch::report()));
    assert!(!dear::report().to_string().contains("temporaries: none"));
}

#[test]
fn operands_are_views() {
    on_devices(|device| {
        for (m, k, n) in SIZES {
            let (x, w) = (Numbers::new(m, &[m, k + 1]), Numbers::new(n, &[k + 2, n]));
            let terms = |i: &[usize]| (0..k).map(|l| x.at(&[i[0], l + 1]) * w.at(&[l + 2, i[1]])).collect();
            let made = sliced(&x.on(device)?, &w.on(device)?)?;
            check(&format!("{device} sliced {k}"), &made, terms, same)?;
            let (x, w) = (Numbers::new(m, &[m, k]), Numbers::new(n, &[n, k]));
            let terms = |i: &[usize]| {
                (0..k).map(|l| x.at(&[i[0], k - 1 - l]) * w.at(&[(i[1] + n - 1) % n, l])).collect()
            };
            check(&format!("{device} flipped {k}"), &flipped(&x.on(device)?, &w.on(device)?)?, terms, same)?;
            let w = Numbers::new(n, &[n, k + 3]);
            let terms = |i: &[usize]| (0..k).map(|l| x.at(&[i[0], l]) * w.at(&[i[1], l + 1])).collect();
            check(&format!("{device} padded {k}"), &padded(&x.on(device)?, &w.on(device)?)?, terms, same)?;
            let (x, w) = (Numbers::new(m, &[m, 3 * k]), Numbers::new(n, &[n, 3 * k]));
            let terms = |i: &[usize]| {
                (0..k).map(|l| x.at(&[i[0], i[1] * k + l]) * w.at(&[i[2], i[1] * k + l])).collect()
            };
            check(&format!("{device} heads {k}"), &heads(&x.on(device)?, &w.on(device)?, 3)?, terms, same)?;
            let (x, w) = (Numbers::new(m, &[3, m, k]), Numbers::new(n, &[k, n]));
            let terms =
                |i: &[usize]| (0..k).map(|l| x.at(&[i[1] / m, i[1] % m, l]) * w.at(&[l, i[0]])).collect();
            check(&format!("{device} merged {k}"), &merged(&x.on(device)?, &w.on(device)?)?, terms, same)?;
            let r = Tensor::zeros(device, [n, 3, m])?;
            let terms = |i: &[usize]| (0..k).map(|l| x.at(&[i[0], i[1], l]) * w.at(&[l, i[2]])).collect();
            check(
                &format!("{device} shared {k}"),
                &shared(&x.on(device)?, &w.on(device)?, &r)?,
                terms,
                f64::tanh,
            )?;
            let zero = Tensor::zeros(device, [3, m, k])?;
            let r = Numbers::new(5, &[n, 3, m]);
            let terms = |i: &[usize]| vec![r.at(&[i[2], i[0], i[1]])];
            let made = shared(&zero, &w.on(device)?, &r.on(device)?)?;
            check(&format!("{device} residual {k}"), &made, terms, same)?;
            let (x, y, w) =
                (Numbers::new(m, &[m, k]), Numbers::new(6, &[m, 5]), Numbers::new(n, &[k + 5, n]));
            let terms = |i: &[usize]| {
                let left = |l| if l < k { x.at(&[i[0], l]) } else { y.at(&[i[0], l - k]) };
                (0..k + 5).map(|l| left(l) * w.at(&[l, i[1]])).collect()
            };
            let made = joined(&x.on(device)?, &y.on(device)?, &w.on(device)?)?;
            check(&format!("{device} joined {k}"), &made, terms, same)?;
        }
        Ok(())
    });
}

/// The order of a sum depends on its terms alone, so rows and batches do not change each other.
#[test]
fn other_rows_do_not_change_a_bit() {
    let device = Device::cpu();
    let (m, k, n) = (100, 700, 70);
    let (x, w) = (Numbers::new(1, &[m, k]), Numbers::new(2, &[k, n]));
    let bits =
        |of: &Tensor<f32>| of.to_vec().expect("it is read").iter().map(|y| y.to_bits()).collect::<Vec<_>>();
    let run = || -> Result<()> {
        let all = bits(&nn(&x.on(&device)?, &w.on(&device)?)?);
        for rows in [9, 12, 33, 97] {
            let part = Tensor::from_slice(&device, &x.elements[..rows * k], [rows, k])?;
            assert!(bits(&nn(&part, &w.on(&device)?)?) == all[..rows * n], "{rows} rows");
        }
        let (zeros, twice) = (Tensor::zeros(&device, [n])?, |of: &[f32]| [of, of].concat());
        let pair = (
            Tensor::from_slice(&device, &twice(&x.elements), [2, m, k])?,
            Tensor::from_slice(&device, &twice(&w.elements), [2, k, n])?,
        );
        let made = bits(&batched(&pair.0, &pair.1, &zeros)?);
        for (row, expected) in all.chunks(n).enumerate() {
            assert!(
                made[row * 2 * n..][..n] == *expected && made[(row * 2 + 1) * n..][..n] == *expected,
                "{row}"
            );
        }
        Ok(())
    };
    run().expect("it runs");
}
