//! Names that nothing uses: rustc warns of them, at the level of its lint.
#![deny(unused_variables)]

use fusion::prelude::*;

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
        let _of_no_use = exp(x);
        y
    }

    #[allow(unused_variables)]
    pub fn g(x: f32[N]) -> f32[N] {
        let allowed = x;
        x
    }
}

fn main() {}
