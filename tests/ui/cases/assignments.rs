//! Assignments, and destructured tuples.

use fusion::fuse;

fuse! {
    pub fn not_mut(p: f32[N], g: f32[N]) -> f32[N] { p -= g; p }
    pub fn local(x: f32[N]) -> f32[N] { let y = x; y += 1.0; y }
    pub fn unknown(params: &mut f32[N], g: f32[N]) { param = g; params = g; }
    pub fn no_let(x: f32[N]) -> f32[N] { y = x; y }
    pub fn never(p: &mut f32[N], g: f32[N]) -> f32[N] { p + g }
    pub fn dtype(p: &mut f32[N], k: i32[N]) { p = k; }
    pub fn number(k: &mut i32[N]) { k = 0.5; }
    pub fn dims(p: &mut f32[N], x: f32[N, D]) { p = x; }
    pub fn element(p: &mut f32[N]) { p[0] = 1.0; }
    pub fn expression(p: &mut f32[N]) { p + 1.0 = 2.0; }
    pub fn bits(p: &mut f32[N]) { p |= 2; }
    pub fn in_block(p: &mut f32[N]) { p = if p > 0.0 { p = 1.0; p } else { p }; }
    pub fn two(x: f32[N]) -> f32[N] { let (a, b) = x; a + b }
    pub fn three(x: f32[N]) -> f32[N] { let (a, b, c) = (x, x); a + b + c }
    pub fn same(x: f32[N]) -> f32[N] { let (a, a) = (x, x); a }
    pub fn several(x: f32[N]) -> f32[N] { let a = (x, x); a + 1.0 }
    pub fn branches(x: f32[N]) -> f32[N] { let (a, b) = if x > 0.0 { (x, x) } else { x }; a + b }
}

fn main() {}
