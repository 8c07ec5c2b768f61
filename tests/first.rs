//! First light.
use fusion::prelude::*;
fuse! {
    /// SwiGLU.
    pub fn swiglu(x: f32[N, D], y: f32[N, D]) -> f32[N, D] { silu(x) * y }
    pub fn bias(x: f32[N, D], b: f32[D]) -> f32[D, N] { relu(x + b) }
    pub fn luma(x: f32[H, W, C = 3], gain: f32[C]) -> f32[H, W, C] { let l = sum(x * gain, C); x - l }
    pub fn axpy(p: &mut f32[N], g: f32[N], lr: f32) { p -= lr * g; }
}
#[test]
fn first() {
    let dev = Device::cpu();
    let x = Tensor::from_slice(&dev, &[1f32, 2., 3., 4., 5., 6.], [2, 3]).unwrap();
    let y = Tensor::from_slice(&dev, &[1f32, 2., 3., 4., 5., 6.], [2, 3]).unwrap();
    println!("{:?}", swiglu(&x, &y).unwrap().to_vec().unwrap());
    let b = Tensor::from_slice(&dev, &[-4f32, 0., 1.], [3]).unwrap();
    println!("{:?}", bias(&x, &b).unwrap().to_vec().unwrap());
    println!("{}", swiglu::report());
    let img = Tensor::from_slice(&dev, &[1f32, 2., 3., 4., 5., 6.], [1, 2, 3]).unwrap();
    let g = Tensor::from_slice(&dev, &[0.5f32, 0.25, 0.25], [3]).unwrap();
    println!("{:?}", luma(&img, &g).unwrap().to_vec().unwrap());
    let mut p = x.clone().reshape([6]).unwrap();
    let gg = y.reshape([6]).unwrap();
    axpy(&mut p, &gg, 0.5).unwrap();
    println!("{:?}", p.to_vec().unwrap());
    let a = &x;
    let c = x.clone();
    println!("{:?}", fuse!(relu(a + x) * c).unwrap().to_vec().unwrap());
    println!("{:?}", fuse!(a[N, D] * scalar(2.0) + b[D]).unwrap().to_vec().unwrap());
}
