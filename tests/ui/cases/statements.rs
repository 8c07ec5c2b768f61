//! Statements that are invalid.

use fusion::fuse;

fuse! {
    pub fn mutable(x: f32[N]) -> f32[N] { let mut y = x; y }
    pub fn typed(x: f32[N]) -> f32[N] { let y: f32 = 1.0; x + y }
    pub fn no_value(x: f32[N]) -> f32[N] { let y; x + y }
    pub fn no_parentheses(x: f32[N]) -> f32[N] { let y, z = (x, x); y * z }
    pub fn no_equals(x: f32[N]) -> f32[N] { let y x; y }
    pub fn no_semicolon(x: f32[N]) -> f32[N] { let y = x  y }
    pub fn unused_value(x: f32[N]) -> f32[N] { relu(x); x }
    pub fn unused_last(x: &mut f32[N]) { x + 1.0; }
    pub fn for_loop(x: f32[N]) -> f32[N] { for i in 0..3 { } x }
    pub fn pattern(x: f32[N]) -> f32[N] { let [a, b] = (x, x); a + b }
    pub fn several(x: f32[N]) -> f32[N] { let a = ; let mut b = x; let c = x + nothing; c }
}

fn main() {}
