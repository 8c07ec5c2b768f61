//! Generated code compiles and runs in surroundings that could break it: lints, shadowing names, macros.

use fusion::{Device, Result, Tensor};

const TWO: [f32; 2] = [1.0, 2.0];

/// Creates a tensor of one axis on the CPU.
fn tensor(elements: &[f32]) -> Result<Tensor<f32>> {
    Tensor::from_slice(&Device::cpu(), elements, [elements.len()])
}

mod strict {
    //! Lints that libraries turn on.
    #![forbid(unsafe_code)]
    #![deny(missing_docs, unused, nonstandard_style, unreachable_pub, unused_qualifications)]
    #![deny(rust_2018_idioms, elided_lifetimes_in_paths, let_underscore_drop, missing_debug_implementations)]
    #![deny(
        single_use_lifetimes,
        trivial_casts,
        trivial_numeric_casts,
        unused_results,
        variant_size_differences
    )]
    #![deny(clippy::all, clippy::pedantic, clippy::nursery)]

    use super::{TWO, tensor};

    fusion::fuse! {
        /// A function in place, with several results, a dim, a default, truth values and integers.
        pub fn all(p: &mut f32[N], x: f32[N], k: i32[N], on: bool, lr: f32, H: dim) -> (f32[N], i32[N, H]) {
            p -= lr * scaled(x);
            (if on { gelu(x) } else { -x }, k % 3 + index(H))
        }

        fn scaled(x, by = 2.0) { x * by }

        /// A function with one result.
        pub(crate) fn plus_one(x: f32[N]) -> f32[N] { x + 1.0 }
    }

    #[test]
    fn runs() -> fusion::Result<()> {
        let x = tensor(&TWO)?;
        let ids = fusion::Tensor::from_slice(&fusion::Device::cpu(), &[4, 5], [2])?;
        let mut param = x.clone();
        let (negated, sums) = all(&mut param, &x, &ids, false, 0.5, 2)?;
        assert_eq!((param.to_vec()?, negated.to_vec()?), (vec![0.0, 0.0], vec![-1.0, -2.0]));
        assert_eq!(sums.to_vec()?, [1, 2, 2, 3]);
        assert_eq!(plus_one(&x)?.to_vec()?, [2.0, 3.0]);
        let mut out = x.clone();
        plus_one::into(&mut out, &x)?;
        assert_eq!(fusion::fuse!(out + x)?.to_vec()?, [3.0, 5.0]);
        assert_eq!((all::report().kernels(), all::kernels().len() > 1), (2, true));
        Ok(())
    }
}

mod facade {
    //! The macro under another crate's name and another path. This module has no crate called `fusion`.

    mod theirs {
        pub(super) use ::fusion::{Result, fuse as fused};
    }

    use super::{TWO, tensor};

    mod fusion {}

    theirs::fused! {
        pub fn scaled<T>(x: T[N], by: f32) -> T[N] { x * by }
    }

    #[test]
    fn runs() -> theirs::Result<()> {
        let x = tensor(&TWO)?;
        assert_eq!(scaled(&x, 2.0)?.to_vec()?, [2.0, 4.0]);
        assert_eq!(theirs::fused!(x + { scaled(&x, 2.0)? })?.to_vec()?, [3.0, 6.0]);
        Ok(())
    }
}

mod shadowed {
    //! User items under every name that generated code could mean.
    #![allow(
        dead_code,
        non_camel_case_types,
        unused_imports,
        unused_macros,
        clippy::legacy_numeric_constants,
        reason = "they only shadow"
    )]

    use ::std::{f32, u32};

    struct Tensor;
    struct Result;
    struct Report;
    struct Vec;
    struct Plan;
    struct Arg;
    struct CpuArgs;
    struct Ok;
    struct Err;
    struct Some;
    struct None;
    struct Option;
    struct str;
    struct usize;
    struct bool;
    mod fusion {}
    mod core {}
    mod std {}
    mod p {}
    mod cpu {}
    fn run() {}
    fn drop() {}
    fn scalar() {}
    const PLAN: () = ();
    const PTX: () = ();
    const WGSL: () = ();
    const N: () = ();
    trait Clone {}
    trait Copy {}
    trait From {}
    trait Into {}
    macro_rules! vec {
        () => {};
    }
    macro_rules! assert {
        () => {};
    }
    macro_rules! unimplemented {
        () => {};
    }

    ::fusion::fuse! {
        pub fn f(x: f32[N, D], lr: f32, on: bool, k: i32[D], H: dim) -> (f32[N, D], i32[D], f32[H]) {
            (if on { x * lr } else { x }, k + D, 1.0 + index(H) as f32)
        }

        pub fn one(x: u32[N]) -> u32[N] { x + 1 }
    }

    #[test]
    fn runs() -> ::fusion::Result<()> {
        let x = super::tensor(&super::TWO)?;
        let row = ::fusion::Tensor::from_slice(&::fusion::Device::cpu(), &[1.0, 2.0], [1, 2])?;
        let k = ::fusion::Tensor::from_slice(&::fusion::Device::cpu(), &[1, 2], [2])?;
        let (a, b, c) = f(&row, 2.0, true, &k, 3)?;
        assert_eq!(
            (a.to_vec()?, b.to_vec()?, c.to_vec()?.len()),
            (::std::vec![2.0, 4.0], ::std::vec![3, 4], 3)
        );
        let u = ::fusion::Tensor::from_slice(&::fusion::Device::cpu(), &[1u32, 2], [2])?;
        assert_eq!(one(&u)?.to_vec()?, [2, 3]);
        assert_eq!(::fusion::fuse!(x * scalar(3.0))?.to_vec()?, [3.0, 6.0]);
        assert_eq!(f::kernels().len() + one::kernels().len() > 3, true);
        ::std::result::Result::Ok(())
    }

    macro_rules! assert_eq {
        ($a:expr, $b:expr $(,)?) => {
            ::std::assert_eq!($a, $b)
        };
    }
    use assert_eq;
}

mod names {
    //! Parameters, functions and dims with the names that generated code uses itself.
    #![deny(unused)]
    #![allow(non_snake_case, reason = "uppercase names clash with constants")]

    use super::{TWO, tensor};
    use ::fusion::fuse;

    /// Items that dims and parameters share their names with.
    const H: usize = 3;
    static D: f32 = 1.0;
    struct Unit;

    fuse! {
        pub fn shadows(x: f32[D], H: dim, Unit: f32, h: f32) -> f32[D, H] { x + Unit + h * index(H) as f32 }
        pub fn keyword(x: f32[N], In: dim, Self_: dim) -> f32[N, In, Self_] { x + 0.0 * (index(In) + index(Self_)) as f32 }
        pub fn r#type(r#match: f32[N], r#in: f32) -> f32[N] { r#match * r#in }
        pub fn writes(out: &mut f32[N], args: f32[N], p: f32[N], cpu: f32) -> (f32[N], f32[N]) {
            out = args + p;
            (out * cpu, p)
        }
        pub fn one_out(out: f32[N], out_result: f32[N], result_0: f32[N]) -> f32[N] { out + out_result * result_0 }
        pub fn plan(plan: f32[N], device: f32[N], self_: f32[N], PLAN: f32[N]) -> f32[N] {
            plan + device + self_ + PLAN
        }
        pub fn generated(b0: f32[N], v1: f32[N], j: f32[N], first: f32[N], end: f32[N], s0: f32[N]) -> f32[N] {
            b0 + v1 + j + first + end + s0
        }
        pub fn types(x: f32[T, E], y: f32[Vec, String]) -> (f32[E, T], f32[String, Vec]) { (x + E, y * PI) }
        pub fn constants(E: f32[N]) -> f32[N] { E }
        pub fn drop(x: f32[N]) -> f32[N] { x }
        pub fn main(x: f32[N]) -> f32[N] { x }
        pub fn report(kernels: f32[N]) -> f32[N] { kernels }
        pub fn into(into: f32[N]) -> f32[N] { into }
        pub fn kernels(x: f32[N]) -> f32[N] { into(report(x)) }
        pub fn p(x: f32[N]) -> f32[N] { x }
        pub fn cpu(x: f32[N]) -> f32[N] { x }
        pub fn fusion(x: f32[N]) -> f32[N] { x }
        pub fn std(x: f32[N]) -> f32[N] { x }
        pub fn f32(x: f32[N]) -> f32[N] { x }
        pub fn relu(x: f32[N]) -> f32[N] { x + 10.0 }
        pub fn uses_own(x: f32[N]) -> f32[N] { relu(x) }
        pub fn unicode(été: f32[Ñ], 尺寸: f32[Ñ]) -> f32[Ñ] { été * 尺寸 }
        pub fn __x(_x: f32[N], __y: f32[N]) -> f32[N] { _x + __y }
        pub fn keywords_of_kernels(var: f32[N], reg: f32[N], u32: f32[N], global: f32[N], texture: f32) -> f32[N] {
            var + reg + u32 + global * texture
        }
    }

    #[test]
    fn run() -> ::fusion::Result<()> {
        let x = &tensor(&TWO)?;
        assert_eq!(shadows(x, 2, 1.0, D)?.to_vec()?, [2.0, 3.0, 3.0, 4.0]);
        assert_eq!(keyword(x, H, 1)?.to_vec()?, [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
        let _ = Unit;
        let tripled = [3.0, 6.0];
        assert_eq!(r#type(x, 3.0)?.to_vec()?, tripled);
        let mut out = x.clone();
        assert_eq!(writes(&mut out, x, x, 0.5)?.0.to_vec()?, TWO);
        writes::into(&mut x.clone(), &mut x.clone(), &mut out, x, x, 0.5)?;
        one_out::into(&mut out, x, x, x)?;
        assert_eq!((out.to_vec()?, one_out(x, x, x)?.to_vec()?), (vec![2.0, 6.0], vec![2.0, 6.0]));
        assert_eq!(plan(x, x, x, x)?.to_vec()?, [4.0, 8.0]);
        assert_eq!(generated(x, x, x, x, x, x)?.to_vec()?, [6.0, 12.0]);
        let square = ::fusion::Tensor::from_slice(&::fusion::Device::cpu(), &[1.0, 2.0], [1, 2])?;
        assert_eq!(types(&square, &square)?.0.to_vec()?, [3.0, 4.0]);
        for same in [constants, drop, main, report, into, kernels, p, cpu, fusion, std, f32] {
            assert_eq!(same(x)?.to_vec()?, TWO);
        }
        assert_eq!(uses_own(x)?.to_vec()?, [11.0, 12.0]);
        assert_eq!(unicode(x, x)?.to_vec()?, [1.0, 4.0]);
        assert_eq!(__x(x, x)?.to_vec()?, [2.0, 4.0]);
        assert_eq!(keywords_of_kernels(x, x, x, x, -3.0)?.to_vec()?, [0.0, 0.0]);
        Ok(())
    }

    #[test]
    #[cfg(feature = "wgsl")]
    fn kernels_have_names_that_wgsl_takes() {
        let texts =
            [shadows::WGSL, r#type::WGSL, writes::WGSL, unicode::WGSL, __x::WGSL, keywords_of_kernels::WGSL];
        for text in texts {
            assert!(
                naga::front::wgsl::parse_str(text).is_ok(),
                "{:?}\n{text}",
                naga::front::wgsl::parse_str(text)
            );
        }
    }

    #[test]
    fn captured() -> ::fusion::Result<()> {
        let (p, cpu, PLAN, r#type) = (tensor(&TWO)?, tensor(&TWO)?, tensor(&TWO)?, tensor(&TWO)?);
        let (__fused, args) = (tensor(&TWO)?, 2.0);
        let sum = fuse!(p + cpu + PLAN + r#type + __fused * scalar(args))?;
        assert_eq!(sum.to_vec()?, [6.0, 12.0]);
        Ok(())
    }
}

mod places {
    //! Places where a block or an expression may stand.

    use super::{TWO, tensor};
    use fusion::prelude::*;

    fuse! {
        #[cfg(any())]
        pub fn absent(x: f32[N]) -> f32[N] { x }

        /// One of two functions, chosen by the build.
        #[cfg(any())]
        pub(crate) fn either(x: f32[N], y: f32[N]) -> f32[N] { x + y }

        #[cfg(not(any()))]
        pub(crate) fn either<T>(x: T[N]) -> T[N] { x * 4.0 }

        #[cfg(all())]
        #[doc = "Documented by an attribute."]
        #[doc(alias = "doubled")]
        #[must_use]
        #[inline]
        pub(crate) fn present(x: f32[N]) -> f32[N] { x * 2.0 }
    }

    fuse! {
        pub fn from_another_block(x: f32[N]) -> f32[N] { x * 3.0 }
    }

    /// Clashes if the block expands the disabled function.
    fn absent() {}

    macro_rules! block {
        ($name:ident, $param:ident, $factor:literal, $dim:ident, $dtype:ident, $body:expr) => {
            fuse! {
                pub(crate) fn $name($param: $dtype[$dim]) -> $dtype[$dim] { $body * $factor }
            }
        };
    }
    block!(by_macro, x, 4.0, N, f32, x + 1.0);
    block!(negative_by_macro, x, 4.0, N, f32, -x + 1.0);

    macro_rules! less {
        ($name:ident, $body:expr) => {
            fuse! {
                pub(crate) fn $name(x: f32[N], gain: f32) -> f32[N] { gain - $body }
            }
        };
    }
    less!(less_by_macro, -x - 1.0);

    fuse! {
        /// A function of a dim whose lowercase name is a Rust keyword.
        pub fn of_keyword(x: f32[N], Gen: dim) -> f32[N, Gen] { x + index(Gen) as f32 }
    }

    macro_rules! inline {
        ($x:expr, $y:ident, $factor:expr) => {
            fuse!($x[N] * $y[N] + scalar($factor))
        };
        (any $x:expr, $y:ident, $factor:expr) => {{
            let local = $y.clone();
            fuse!({ $x } * local + scalar($factor))
        }};
        (path $x:expr) => {
            fuse!($x * 2.0)
        };
        (relu $x:expr) => {
            fuse!($x.relu())
        };
        // Each of the two expansions has its own variable of this name.
        (twice $x:expr) => {{
            let y = fuse!($x * 2.0)?;
            fuse!($x - y)
        }};
        (twice of rows $x:expr) => {{
            let y = fuse!($x * 2.0)?;
            fuse!(y[N] - $x[N])
        }};
        (square $x:expr) => {
            fuse!($x * $x)
        };
    }

    struct Layer {
        bias: Tensor<f32>,
        nested: (Tensor<f32>, [Tensor<f32>; 1]),
    }

    impl Layer {
        fn apply(&self, x: &Tensor<f32>) -> Result<Tensor<f32>> {
            fuse!(x + self.bias + self.nested.0 + { &self.nested.1[0] })
        }

        fn apply_named(&mut self, x: &mut Tensor<f32>) -> Result<Tensor<f32>> {
            let it = &*self;
            fuse!(x[N] + it.bias[N] * self.bias[N] + { it.nested.1.first().unwrap_or(&it.bias) }[N])
        }
    }

    #[test]
    fn run() -> Result<()> {
        fuse! {
            /// A function within a function.
            pub fn local(x: f32[N]) -> f32[N] { x - 1.0 }
        }
        absent();
        let x = tensor(&TWO)?;
        assert_eq!(local(&x)?.to_vec()?, [0.0, 1.0]);
        assert_eq!(present(&x)?.to_vec()?, [2.0, 4.0]);
        assert_eq!(either(&x)?.to_vec()?, [4.0, 8.0]);
        assert_eq!(from_another_block(&x)?.to_vec()?, [3.0, 6.0]);
        assert_eq!(by_macro(&x)?.to_vec()?, [8.0, 12.0]);
        assert_eq!(negative_by_macro(&x)?.to_vec()?, [0.0, -4.0]);
        assert_eq!(less_by_macro(&x, 3.0)?.to_vec()?, [5.0, 6.0]);
        assert_eq!(of_keyword(&x, 2)?.to_vec()?, [1.0, 2.0, 2.0, 3.0]);
        assert_eq!(local::report().kernels(), 1);
        Ok(())
    }

    #[test]
    fn inline_in_macros() -> Result<()> {
        let (x, factor) = (tensor(&TWO)?, 0.5);
        let layer = Layer { bias: x.clone(), nested: (x.clone(), [x.clone()]) };
        assert_eq!(inline!(x, x, factor)?.to_vec()?, [1.5, 4.5]);
        assert_eq!(inline!(layer.bias, x, 2.0 * factor)?.to_vec()?, [2.0, 5.0]);
        assert_eq!(inline!(any x.clone(), x, factor + 0.5)?.to_vec()?, [2.0, 5.0]);
        assert_eq!(inline!(path x)?.to_vec()?, [2.0, 4.0]);
        assert_eq!(inline!(relu - x)?.to_vec()?, [0.0, 0.0]);
        let y = x.clone();
        assert_eq!(inline!(twice y)?.to_vec()?, [-1.0, -2.0]);
        assert_eq!(inline!(twice of rows y)?.to_vec()?, [1.0, 2.0]);
        assert_eq!(inline!(square y)?.to_vec()?, [1.0, 4.0]);
        Ok(())
    }

    #[test]
    fn inline_in_methods_closures_and_expressions() -> Result<()> {
        let mut x = tensor(&TWO)?;
        let mut layer = Layer { bias: x.clone(), nested: (x.clone(), [x.clone()]) };
        assert_eq!(layer.apply(&x)?.to_vec()?, [4.0, 8.0]);
        assert_eq!(layer.apply_named(&mut x)?.to_vec()?, [3.0, 8.0]);
        let twice = |x: &Tensor<f32>| fuse!(x + x);
        assert_eq!(twice(&fuse!(x * x)?)?.to_vec()?, [2.0, 8.0]);
        let sums = (0..2).map(|i| fuse!(x + scalar(i as f32))?.to_vec()).collect::<Result<Vec<_>>>()?;
        assert_eq!(sums, [[1.0, 2.0], [2.0, 3.0]]);
        let (a, b) = (Box::new(x.clone()), &&x);
        assert_eq!(fuse!({ *a } + b + { x.clone() })?.to_vec()?, [3.0, 6.0]);
        assert_eq!(fuse!({ fuse!(x + b)? } * x)?.to_vec()?, [2.0, 8.0]);
        Ok(())
    }
}

#[no_implicit_prelude]
mod without_prelude {
    //! A scope with nothing in it but the macro.

    use ::fusion::fuse;

    fuse! {
        /// A function that updates in place and returns tensors.
        pub fn f(p: &mut f32[N], x: f32[N, C = 2], on: bool) -> (f32[N], i32[N]) {
            p = if on { sum(x, C) } else { p };
            (p + 1.0, index(N))
        }
    }

    #[test]
    fn runs() -> ::fusion::Result<()> {
        let x = ::fusion::Tensor::from_slice(&::fusion::Device::cpu(), &[1.0f32, 2.0], [1, 2])?;
        let mut p = super::tensor(&[0.0])?;
        let (y, z) = f(&mut p, &x, true)?;
        ::std::assert_eq!((p.item()?, y.item()?, z.item()?), (3.0, 4.0, 0));
        f::into(&mut super::tensor(&[0.0])?, &mut ::std::clone::Clone::clone(&z), &mut p, &x, true)?;
        ::std::assert_eq!(fuse!(p * p)?.item()?, 9.0);
        ::std::result::Result::Ok(())
    }
}
