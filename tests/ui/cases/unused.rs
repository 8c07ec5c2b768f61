//! Unused names: rustc warns of them, at the level of its lint.
#![deny(unused_variables)]

use fusion::prelude::*;

#[expect(non_upper_case_globals, reason = "a `let` of this name could not shadow it")]
pub static counted: u32 = 1;
pub const EPS: f32 = 1e-5;

fuse! {
    fn scaled(x) {
        let (mantissa, exponent) = (x * 2.0, x);
        mantissa
    }

    pub fn f(x: f32[N], y: f32[N]) -> f32[N] {
        let forgotten = relu(x);
        let x = scaled(y) + x;
        let x = x * 2.0;
        let x = x + y;
        let r#type = y;
        let counted = 2.0;
        let EPS = 1e-5;
        let _of_no_use = exp(x);
        y
    }

    #[allow(unused_variables)]
    pub fn g(x: f32[N]) -> f32[N] {
        let allowed = x;
        x
    }

    #[expect(unused_variables)]
    pub fn h(x: f32[N]) -> f32[N] {
        let expected = x;
        x
    }

    #[cfg(any())]
    pub fn k(x: f32[N]) -> f32[N] {
        let elsewhere = x;
        x
    }

    /// A generic function, whose instances have a name of their own for each type.
    pub fn generic<T>(x: T[N]) -> T[N] {
        let (r#gen, 变量) = (x, x);
        let camelCase = x;
        x
    }
}

fn main() {}
