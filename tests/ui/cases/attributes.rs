//! `#[fuse(…)]`.

use fusion::fuse;

fuse! {
    #[fuse(of)]
    pub fn unknown(x: f32[N]) -> f32[N] { x + 1.0 }
    #[fuse(grad)]
    pub fn later(x: f32[N]) -> f32[N] { x + 1.0 }
    #[fuse(fast_maths)]
    pub fn near(x: f32[N]) -> f32[N] { x + 1.0 }
    #[fuse(strict, fast_math)]
    pub fn both(x: f32[N]) -> f32[N] { x + 1.0 }
    #[fuse]
    pub fn empty(x: f32[N]) -> f32[N] { x + 1.0 }
    #[fuse(off)]
    fn private(x) { x + 1.0 }
    #[fuse(targets(cuda))]
    pub fn unknown_target(x: f32[N]) -> f32[N] { x + 1.0 }
    #[fuse(targets(wsgl))]
    pub fn near_target(x: f32[N]) -> f32[N] { x + 1.0 }
    #[fuse(targets())]
    pub fn no_target(x: f32[N]) -> f32[N] { x + 1.0 }
    #[fuse(targets(cpu, cpu))]
    pub fn same_target(x: f32[N]) -> f32[N] { x + 1.0 }
}

fuse! {
    #![fuse(off)]
    pub fn inner(x: f32[N]) -> f32[N] { x + 1.0 }
}

fn main() {}
