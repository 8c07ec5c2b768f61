//! Every form of a program works: calls, templates, methods, shadowing, captures.

use fusion::prelude::*;

use crate::{Host, check, on_devices};

/// A constant with the name of a dim below.
const HEIGHT: usize = 77;

fuse! {
    pub fn tall(x: f32[N], HEIGHT: dim, dim_height: f32) -> f32[HEIGHT, N] { x * dim_height + (index(HEIGHT) * 0) as f32 }
}

fuse! {
    /// A function of thousands of operations, whose scopes the generated code must not nest.
    #[fuse(targets(cpu))]
    pub fn long(x: f32[N]) -> f32[N] { hundred(hundred(hundred(five_hundred(five_hundred(x))))) + hundred(five_hundred(x)) }

    fn one(x) { x * 1.0001 + 0.5 }
    fn ten(x) { one(one(one(one(one(one(one(one(one(one(x)))))))))) }
    fn hundred(x) { ten(ten(ten(ten(ten(ten(ten(ten(ten(ten(x)))))))))) }
    fn five_hundred(x) { hundred(hundred(hundred(hundred(hundred(x))))) }
}

/// A sum of thousands of written terms. A chain of operators is not deep in any part of the compiler.
macro_rules! long_sum {
    (@ [$($terms:tt)*] x $($more:tt)*) => { long_sum!(@ [$($terms)* $($terms)* $($terms)* $($terms)*] $($more)*); };
    (@ [$($terms:tt)*]) => { fuse! { pub(crate) fn long_sum(a: f32[N], b: f32[N]) -> f32[N] { a $($terms)* } } };
}

long_sum!(@ [+ b - a * b] x x x x x);

both! {
    templates {
        fn axpb(x, a = 2, b = 0.5) { x * a + b }
        fn both_ways(x, y) { (x + y, x - y) }
        fn nested(x, y) {
            let (sum, difference) = both_ways(x, y);
            let (again, _unused) = both_ways(sum, y);
            (again, difference, axpb(x))
        }
        fn centred(x, D: dim) { x - mean(x, D) }
        fn scaled_by_extent(x, D: dim, by = 1) { x * D * by }
        fn pick(c, x, y) { if c { x } else { y } }
        fn by(x, k) { x * k }
        fn greater(both) { let (a, b) = both; max(a, b) }
    }
    { pub fn product(x: f32[N, D], y: f32[D]) -> f32[N, D] { x * y } }
    { pub fn plus(x: f32[D, N], by: f32) -> f32[N, D] { x + by } }
    // Callees bind axes by name, in any order.
    { pub fn calls_exported(a: f32[D, N], y: f32[D]) -> (f32[N, D], f32[D, N]) {
        let z = product(a, y);
        (plus(z, 0.5), product(plus(a, 1), y))
    } }
    { pub fn calls_several(x: f32[N]) -> (f32[N], f32[N]) {
        let (a, b) = halves(x);
        (b, a)
    } }
    { pub fn halves(x: f32[N]) -> (f32[N], f32[N]) { (x / 2, x - 0.5) } }
    { pub fn tuples(x: f32[N], y: f32[N]) -> (f32[N], f32[N], f32[N]) {
        let (again, difference, line) = nested(x, y);
        let pair = (line, difference);
        let (line, difference) = pair;
        (again, difference, line)
    } }
    { pub fn defaults(x: f32[N]) -> (f32[N], f32[N], f32[N], f32[N]) {
        (axpb(x), axpb(x, 3), axpb(x, b = 1.5), x.axpb(a = x, b = -x))
    } }
    { pub fn shadowed(x: f32[N], y: f32[N]) -> f32[N] {
        let y = x + y;
        let x = y * 2.0;
        let y = if x > 0 { x - 1.0 } else { x - 1.0 } + y;
        x + y
    } }
    { pub fn methods(x: f32[N, C = 4], y: f32[N]) -> f32[N, C] {
        (x.relu() + y.max(0.5)).min(x.abs()).clamp(-1.0, 3.0) - x.sum(C).square().neg()
    } }
    { pub fn with_dims(x: f32[N, C = 4]) -> (f32[N, C], f32[N, C], f32[N, C]) {
        (centred(x, C), scaled_by_extent(x, C), x.scaled_by_extent(N, by = 0.5))
    } }
    { pub fn branches(x: f32[N], k: i32[N], on: bool) -> f32[N] {
        let y = if x > 0 && k > 0 { x } else if x < -1 || on { -x * 2 } else { 0.25 };
        pick(k == 0 && on, y, if !on { y + 1 } else { y - 1 })
    } }
    { pub fn precedence(x: i32[N], y: i32[N]) -> (i32[N], i32[N], f32[N]) {
        (x + y * 2 - -x % 3 << 1 & 0xff | y ^ 5, -x.abs() - 7 / 2 * y, (x as f32 * 0.5) + if x as f32 < 2.0 { 1.0 } else { 3.0 } * 2.0)
    } }
    // Names that have a meaning in Rust, PTX, WGSL or generated code.
    { pub fn main(array: f32[N], vec4: f32[N], p: f32, args: f32[N], out: f32[N], out_0: f32[N]) -> (f32[N], f32[N]) {
        let first = array + vec4 * p;
        let end = args - out;
        let j = first * end;
        let v0 = j + out_0;
        (v0, first)
    } }
    { pub fn core(fusion: f32[Std], θ: f32[Ω], start: f32[Std], b0: &mut f32[Std], r#type: f32, __x: f32) -> f32[Std, Ω] {
        let cpu = b0 * __x + θ;
        b0 = fusion;
        cpu * start - r#type
    } }
    // A dim is its extent where a number is expected.
    { pub fn by_extents(x: f32[N, D]) -> f32[N, D] { by(leaky_relu(x, N), D) + greater((N, D)) } }
    { pub fn cpu(r#in: f32[N], stop: f32[N]) -> f32[N] { r#in - stop } }
    { pub fn texture(var: f32[N], out: f32[N], _0: f32[N], PLAN: dim, Plan: dim) -> f32[N] { var * out + PLAN * Plan + _0 } }
    { pub fn scaled_inputs(x: f32[N], half: f32, k: i32, on: bool, d: f32[]) -> f32[N] {
        x * half + k as f32 * if on { d } else { 1.0 }
    } }
}

#[test]
fn exported_functions_call_each_other() {
    on_devices(|device| {
        let (a, y) = (Host::new(1, &[3, 5]), Host::new(2, &[3]));
        for calls in [fused::calls_exported, unfused::calls_exported] {
            let (first, second) = calls(&a.on(device)?, &y.on(device)?)?;
            check(&first, &[5, 3], |at| a.at(&[at[1], at[0]]) * y.at(&[at[1]]) + 0.5)?;
            check(&second, &[3, 5], |at| (a.at(at) + 1.0) * y.at(&[at[0]]))?;
        }
        let x = Host::new(3, &[9]);
        for calls in [fused::calls_several, unfused::calls_several] {
            let (less, half) = calls(&x.on(device)?)?;
            check(&less, &[9], |at| x.at(at) - 0.5)?;
            check(&half, &[9], |at| x.at(at) / 2.0)?;
        }
        Ok(())
    });
}

#[test]
fn dims_as_numbers() {
    on_devices(|device| {
        let x = Host::new(1, &[4, 9]);
        for by_extents in [fused::by_extents, unfused::by_extents] {
            let leaky = |x: f64| if x < 0.0 { 4.0 * x } else { x };
            check(&by_extents(&x.on(device)?)?, &[4, 9], |at| 9.0 * leaky(x.at(at)) + 9.0)?;
        }
        Ok(())
    });
}

#[test]
fn templates_with_tuples_and_defaults() {
    on_devices(|device| {
        let (x, y) = (Host::new(1, &[33]), Host::new(2, &[33]));
        for tuples in [fused::tuples, unfused::tuples] {
            let (again, difference, line) = tuples(&x.on(device)?, &y.on(device)?)?;
            check(&again, &[33], |at| x.at(at) + 2.0 * y.at(at))?;
            check(&difference, &[33], |at| x.at(at) - y.at(at))?;
            check(&line, &[33], |at| 2.0 * x.at(at) + 0.5)?;
        }
        for defaults in [fused::defaults, unfused::defaults] {
            let (a, b, c, d) = defaults(&x.on(device)?)?;
            check(&a, &[33], |at| 2.0 * x.at(at) + 0.5)?;
            check(&b, &[33], |at| 3.0 * x.at(at) + 0.5)?;
            check(&c, &[33], |at| 2.0 * x.at(at) + 1.5)?;
            check(&d, &[33], |at| x.at(at) * x.at(at) - x.at(at))?;
        }
        Ok(())
    });
}

#[test]
fn shadowing() {
    on_devices(|device| {
        let (x, y) = (Host::new(1, &[33]), Host::new(2, &[33]));
        for shadowed in [fused::shadowed, unfused::shadowed] {
            // x' = 2(x + y); y' = x' − 1 + x + y.
            let expected = |at: &[usize]| 5.0 * (x.at(at) + y.at(at)) - 1.0;
            check(&shadowed(&x.on(device)?, &y.on(device)?)?, &[33], expected)?;
        }
        Ok(())
    });
}

#[test]
fn method_calls() {
    on_devices(|device| {
        let (x, y) = (Host::new(1, &[33, 4]), Host::new(2, &[33]));
        for methods in [fused::methods, unfused::methods] {
            let expected = |at: &[usize]| {
                let sum = (0..4).map(|c| x.at(&[at[0], c])).sum::<f64>();
                let value = x.at(at).max(0.0) + y.at(&[at[0]]).max(0.5);
                value.min(x.at(at).abs()).clamp(-1.0, 3.0) + sum * sum
            };
            check(&methods(&x.on(device)?, &y.on(device)?)?, &[33, 4], expected)?;
        }
        for with_dims in [fused::with_dims, unfused::with_dims] {
            let (centred, four, half) = with_dims(&x.on(device)?)?;
            let mean = |n: usize| (0..4).map(|c| x.at(&[n, c])).sum::<f64>() / 4.0;
            check(&centred, &[33, 4], |at| x.at(at) - mean(at[0]))?;
            check(&four, &[33, 4], |at| x.at(at) * 4.0)?;
            check(&half, &[33, 4], |at| x.at(at) * 33.0 / 2.0)?;
        }
        Ok(())
    });
}

#[test]
fn branches_and_precedence() {
    on_devices(|device| {
        let x = Host::new(1, &[40]);
        let k: Vec<i32> = (0..40).map(|i| i % 3 - 1).collect();
        let kt = Tensor::from_slice(device, &k, [40])?;
        for branches in [fused::branches, unfused::branches] {
            for on in [false, true] {
                check(&branches(&x.on(device)?, &kt, on)?, &[40], |at| {
                    let (x, k) = (x.at(at), k[at[0]]);
                    let y = if x > 0.0 && k > 0 {
                        x
                    } else if x < -1.0 || on {
                        -x * 2.0
                    } else {
                        0.25
                    };
                    if k == 0 && on {
                        y
                    } else if on {
                        y - 1.0
                    } else {
                        y + 1.0
                    }
                })?;
            }
        }
        let y: Vec<i32> = (0..40).map(|i| 17 * i % 23 - 11).collect();
        let yt = Tensor::from_slice(device, &y, [40])?;
        for precedence in [fused::precedence, unfused::precedence] {
            let (bits, negated, float) = precedence(&kt, &yt)?;
            let each = || k.iter().copied().zip(y.iter().copied());
            let expected: Vec<i32> =
                each().map(|(x, y)| (((x + (y * 2) - ((-x) % 3)) << 1) & 0xff) | (y ^ 5)).collect();
            assert_eq!(bits.to_vec()?, expected);
            let expected: Vec<i32> = each().map(|(x, y)| -(x.abs()) - (7 / 2) * y).collect();
            assert_eq!(negated.to_vec()?, expected);
            check(&float, &[40], |at| f64::from(k[at[0]]) / 2.0 + 2.0)?;
        }
        Ok(())
    });
}

#[test]
fn names_of_all_kinds() {
    on_devices(|device| {
        let hosts = [1, 2, 3, 4, 5].map(|seed| Host::new(seed, &[77]));
        let tensors = hosts.iter().map(|host| host.on(device)).collect::<Result<Vec<_>>>()?;
        let [a, b, c, d, e] = &tensors[..] else { unreachable!("five were made") };
        let x = |i: usize, at: &[usize]| hosts[i].at(&at[..1]);
        for main in [fused::main, unfused::main] {
            let (sum, first) = main(a, b, 0.5, c, d, e)?;
            let first_of = |at: &[usize]| x(0, at) + x(1, at) / 2.0;
            check(&first, &[77], first_of)?;
            check(&sum, &[77], |at| first_of(at) * (x(2, at) - x(3, at)) + x(4, at))?;
        }
        for core in [fused::core, unfused::core] {
            let mut b0 = c.clone();
            let result = core(a, b, d, &mut b0, 0.25, 2.0)?;
            check(&b0, &[77], |at| x(0, at))?;
            check(&result, &[77, 77], |at| (2.0 * x(2, at) + x(1, &at[1..])) * x(3, at) - 0.25)?;
        }
        for cpu in [fused::cpu, unfused::cpu] {
            check(&cpu(a, b)?, &[77], |at| x(0, at) - x(1, at))?;
        }
        for texture in [fused::texture, unfused::texture] {
            check(&tall(a, HEIGHT, 2.0)?, &[77, 77], |at| 2.0 * x(0, &at[1..]))?;
            check(&texture(a, b, c, 7, 3)?, &[77], |at| x(0, at) * x(1, at) + 21.0 + x(2, at))?;
        }
        Ok(())
    });
}

#[test]
fn scalars_of_all_kinds() {
    on_devices(|device| {
        let (x, d) = (Host::new(1, &[40]), Tensor::full(device, -1.5, [])?);
        for scaled in [fused::scaled_inputs, unfused::scaled_inputs] {
            check(&scaled(&x.on(device)?, 0.5, -7, true, &d)?, &[40], |at| x.at(at) / 2.0 + 10.5)?;
            check(&scaled(&x.on(device)?, -2.0, 3, false, &d)?, &[40], |at| x.at(at) * -2.0 + 3.0)?;
        }
        Ok(())
    });
}

/// A user's struct with tensors.
struct Layer {
    weight: Tensor<f32>,
    inner: Inner,
}

struct Inner {
    bias: (Tensor<f32>, i32),
}

impl Layer {
    fn forward(&self, x: &Tensor<f32>) -> Result<Tensor<f32>> {
        fuse!(relu(x[N, D] * self.weight[D]) + self.inner.bias.0[D])
    }

    fn weight(&self) -> &Tensor<f32> {
        &self.weight
    }

    fn same_shape(&self, y: Tensor<f32>) -> Result<Tensor<f32>> {
        fuse!(self.weight * y - self.inner.bias.0 * scalar(self.inner.bias.1 as f32))
    }
}

#[test]
fn captures_of_the_inline_form() {
    on_devices(|device| {
        let (x, w, b) = (Host::new(1, &[7, 5]), Host::new(2, &[5]), Host::new(3, &[5]));
        let layer = Layer { weight: w.on(device)?, inner: Inner { bias: (b.on(device)?, 3) } };
        let (tensor, w_at, b_at) = (x.on(device)?, |d: usize| w.at(&[d]), |d: usize| b.at(&[d]));
        check(&layer.forward(&tensor)?, &[7, 5], |at| (x.at(at) * w_at(at[1])).max(0.0) + b_at(at[1]))?;
        check(&layer.same_shape(w.on(device)?)?, &[5], |at| w.at(at) * w.at(at) - 3.0 * b.at(at))?;
        let z = fuse!({ layer.weight() } + { w.on(device)? } * 2.0)?;
        check(&z, &[5], |at| 3.0 * w.at(at))?;
        let z = fuse!({layer.forward(&tensor)?}[N, D] - {layer.weight().clone()}[D] => [D, N])?;
        check(&z, &[5, 7], |at| (x.at(&[at[1], at[0]]) * w_at(at[0])).max(0.0) + b_at(at[0]) - w_at(at[0]))?;
        let (by_reference, mut owned) = (&&tensor, tensor.clone());
        let by_mutable = &mut owned;
        let z = fuse!(by_reference * by_mutable)?;
        check(&z, &[7, 5], |at| x.at(at) * x.at(at))?;
        let tensors = [tensor.clone(), tensor];
        let z = fuse!({tensors[0]}[N, D] + {&tensors[1]}[N, D] + index(D) as f32 * scalar({ let k = 2.0; k * 0.5 }))?;
        check(&z, &[7, 5], |at| 2.0 * x.at(at) + at[1] as f64)
    });
}

#[test]
fn inline_forms_of_other_types_and_ranks() {
    on_devices(|device| {
        let k = Tensor::from_slice(device, &[1, -5, i32::MAX], [3])?;
        assert_eq!(fuse!(i32: k * 2 + scalar(1))?.to_vec()?, [3, -9, -1]);
        let u = Tensor::from_slice(device, &[1_u32, 5, u32::MAX], [3])?;
        assert_eq!(fuse!(u32: u >> 1 ^ {u.clone()})?.to_vec()?, [1, 7, 0x8000_0000]);
        for shape in [vec![], vec![1], vec![2, 3, 1, 4], vec![0, 3], vec![1; 9]] {
            let x = Host::new(1, &shape);
            let tensor = x.on(device)?;
            check(&fuse!(tensor * tensor - 1.0)?, &shape, |at| x.at(at) * x.at(at) - 1.0)?;
        }
        let rgb = Host::new(2, &[2, 5, 3]);
        let (image, gain) = (rgb.on(device)?, Tensor::from_slice(device, &[0.5, 1.0, 2.0], [3])?);
        let gain_of = |c: usize| [0.5, 1.0, 2.0][c];
        let grey = |at: &[usize]| (0..3).map(|c| rgb.at(&[at[0], at[1], c]) * gain_of(c)).sum::<f64>();
        check(&fuse!(sum(image[H, W, 3] * gain[3], 3))?, &[2, 5], grey)?;
        let turned = fuse!(image[H, W, C = 3] * gain[C] - sum(image[H, W, C] * gain[C], C) => [C, W, H])?;
        check(&turned, &[3, 5, 2], |at| {
            rgb.at(&[at[2], at[1], at[0]]) * gain_of(at[0]) - grey(&[at[2], at[1]])
        })
    });
}

/// A user's macro around `fuse!`.
macro_rules! combined {
    ($x:ident $op:tt $y:expr) => {
        fuse!($x[N] $op {$y}[N] * scalar(f64::from($x.len() as u32) as f32))
    };
}

#[test]
fn inside_macros_closures_and_generics() {
    fn doubled<D: AsRef<Device>>(device: D, host: &Host) -> Result<Tensor<f32>> {
        let x = host.on(device.as_ref())?;
        let double = |x: &Tensor<f32>| fuse!(x + x);
        [x].iter().map(double).next().unwrap_or_else(|| unreachable!("there is one"))
    }
    struct Wrapped(Device);
    impl AsRef<Device> for Wrapped {
        fn as_ref(&self) -> &Device {
            &self.0
        }
    }
    on_devices(|device| {
        let host = Host::new(1, &[50]);
        check(&doubled(Wrapped(device.clone()), &host)?, &[50], |at| 2.0 * host.at(at))?;
        let x = host.on(device)?;
        check(&combined!(x - x.clone())?, &[50], |at| -49.0 * host.at(at))
    });
}

#[test]
fn a_function_of_thousands_of_operations() -> Result<()> {
    let x = [0.0, -1.5, 3e-5];
    let after = |steps, x: f32| (0..steps).fold(f64::from(x), |x, _| x * f64::from(1.0001_f32) + 0.5);
    for (got, x) in long(&Tensor::from_slice(&Device::cpu(), &x, [3])?)?.to_vec()?.into_iter().zip(x) {
        let expected = after(1300, x) + after(600, x);
        assert!((f64::from(got) / expected - 1.0).abs() < 1e-5, "{got} for {x}, not {expected}");
    }
    Ok(())
}

#[test]
fn long_sums() {
    on_devices(|device| {
        let (a, b) = ([1.0, -2.0, 0.125], [0.5, 3.0, -1.25]);
        let sum = long_sum(&Tensor::from_slice(device, &a, [3])?, &Tensor::from_slice(device, &b, [3])?)?;
        let expected = [0, 1, 2].map(|i| a[i] + 1024.0 * (b[i] - a[i] * b[i]));
        assert_eq!(sum.to_vec()?, expected, "on {}", device.name());
        Ok(())
    });
}

mod exported {
    fusion::fuse! {
        /// A function whose names are keywords of Rust.
        pub(super) fn r#match(r#type: f32[N], r#x: f32[N]) -> f32[N] { r#type + x }
        pub(in crate::forms) fn alone(x: f32[N]) -> (f32[N],) { (2.0 * x,) }
        pub(self) fn own(x: f32[N]) -> f32[N] { let (twice,) = alone(x); twice }
        pub(crate) fn ramp(N: dim) -> i32[N] { index(N) }
        pub(crate) fn set(p: &mut f32[N], by: f32) { p = by; }
    }

    pub(super) fn through(x: &fusion::Tensor<f32>) -> fusion::Result<fusion::Tensor<f32>> {
        own(x)
    }
}

#[test]
fn names_visibilities_and_tuples_are_those_of_rust() {
    on_devices(|device| {
        let x = Tensor::from_slice(device, &[1.0, -2.0, 0.125], [3])?;
        assert_eq!(exported::r#match(&x, &x)?.to_vec()?, [2.0, -4.0, 0.25]);
        let (twice,): (Tensor<f32>,) = exported::alone(&x)?;
        assert_eq!(twice.to_vec()?, [2.0, -4.0, 0.25]);
        let mut out = Tensor::zeros(device, [3])?;
        exported::alone::into(&mut out, &x)?;
        assert_eq!((out.to_vec()?, exported::through(&x)?.to_vec()?), (twice.to_vec()?, twice.to_vec()?));
        Ok(())
    });
    let text = exported::r#match::report().to_string();
    let row =
        |text: &str| text.lines().nth(5).map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "));
    let starts =
        |text: &str, start: &str| assert!(row(text).is_some_and(|row| row.starts_with(start)), "{text}");
    starts(&text, "fuse_match_0 pointwise add type 4*N B result 4*N B none");
    starts(&exported::ramp::report().to_string(), "fuse_ramp_0 pointwise fill nothing result 4*N B none");
    starts(&exported::set::report().to_string(), "fuse_set_0 pointwise broadcast nothing p 4*N B none");
}

#[test]
fn one_tensor_in_two_orders_of_its_dims() {
    on_devices(|device| {
        let a = Tensor::from_slice(device, &[1.0, 2.0, 3.0, 4.0], [2, 2])?;
        let b = &a;
        assert_eq!(fuse!(a[N, D] + {&a}[D, N])?.to_vec()?, [2.0, 5.0, 5.0, 8.0]);
        assert_eq!(fuse!(b[N, D] - {&b}[D, N])?.to_vec()?, [0.0, -1.0, 1.0, 0.0]);
        Ok(())
    });
}
