//! Function signatures that do not parse.

use fusion::prelude::*;

fuse! {
    pub fn untyped(x) -> f32[N] { x }
    pub fn reference(x: &f32[N]) -> f32[N] { x }
    pub fn reference_of_integers(ids: &i32[N]) -> i32[N] { ids }
    pub fn count(n: &mut i32, x: f32[N]) -> f32[N] { x }
    pub fn rust_type_of_halves(x: &Tensor<f16>) -> f16[N] { x }
    pub fn mutable(mut x: f32[N]) -> f32[N] { x }
    pub fn scalar_in_place(loss: &mut f32) { loss = 1.0; }
    pub fn default(x: f32[N], eps: f32 = 1e-5) -> f32[N] { x + eps }
    fn default_order(x, eps = 1e-5, y) { x + eps + y }
    pub fn documented(/// The input.
        x: f32[N]) -> f32[N] { x }
    pub fn receiver(self, x: f32[N]) -> f32[N] { x }
    pub fn no_type(x: ) -> f32[N] { x }
    pub fn parenthesised(x: (f32[N])) -> f32[N] { x }
    pub fn no_result(x: f32[N]) -> { x }
    pub fn two_results(x: f32[N]) -> f32[N], f32[N] { (x, x) }
    pub fn no_body(x: f32[N]) -> f32[N];
    pub fn no_params -> f32[N] { 1.0 }
    pub fn semicolons(x: f32[N]; y: f32[N]) -> f32[N] { x + y }
    pub(crat) fn visibility(x: f32[N]) -> f32[N] { x }
    pub const fn qualified(x: f32[N]) -> f32[N] { x }
    pub struct Layer;
    let x = 1.0;
    pub const EPS: f32 = 1e-5;
    pub fn with_constant(y: f32[N]) -> f32[N] { y + x + EPS }
    pub fn const_param(const X: f32, y: f32[N]) -> f32[N] { X * y }
    fn const_generic<const X: f32>(y) { X * y }
    pub fn calls(y: f32[N]) -> f32[N] { const_param(2.0, const_generic(y)) }
    pub fn rust_tensors(x: Tensor<f32>, y: &Tensor<i32>, z: &mut Tensor<f32>) -> Result<Tensor<f32>> { x }
    pub fn rust_lists(x: &[f32], y: Vec<u32>, n: f32) -> f32[N] { x }
    pub fn unit(x: f32[N]) -> () { x }
    pub fn unit_in_place(p: &mut f32[N]) -> () { p = 1.0; }
    pub fn extent(x: f32[N], n: usize) -> f32[N] { x * n }
    pub fn match(x: f32[N]) -> f32[N] { x }
    pub fn good(x: f32[N]) -> f32[N] { x }
}

fn main() -> Result<()> {
    let x = Tensor::zeros(&Device::cpu(), [2])?;
    let _ = good(&x)?.to_vec()?;
    // A signature with a mistake causes no second error at the function's callers.
    let z = rust_tensors(&x, &x, &mut x.clone())?;
    rust_lists(&[1.0], vec![2], 3.0)?.to_vec()?;
    const_param(1.0, &z)?;
    qualified(&with_constant(&visibility(&x)?)?)?;
    let () = unit_in_place(&mut x.clone())?;
    Ok(())
}
