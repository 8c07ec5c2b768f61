//! Shares a context, a stream, buffers and a kernel with the crate `cust`.
//!
//! The command is `cargo run --release --example cust --features cust`. The program links `libcuda.so.1`.

use std::error::Error;
use std::sync::Arc;

use cust::context::Context;
use cust::launch;
use cust::memory::DeviceBuffer;
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use fusion::prelude::*;

fuse! {
    /// The gated activation of a feed-forward layer.
    pub fn swiglu(gate: f32[N], up: f32[N]) -> f32[N] { silu(gate) * up }

    /// A layer without a bias.
    pub fn layer(x: f32[M, K], w: f32[K, N]) -> f32[M, N] { relu(matmul(x, w, K)) }

    /// Attention of queries to keys that are not after them.
    pub fn attend(q: f32[T, C = 32], k: f32[S, C], v: f32[S, D = 48]) -> f32[T, D] {
        let scores = matmul(q, k, C) * rsqrt(C);
        matmul(softmax(if index(S) <= index(T) { scores } else { -INF }, S), v, S)
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    cust::init(cust::CudaFlags::empty())?;
    let context = Context::new(cust::device::Device::get_device(0)?)?;
    let stream = Arc::new(Stream::new(StreamFlags::NON_BLOCKING, None)?);
    let device = Device::from_cust(context, Arc::clone(&stream))?;
    println!("device: {}", device.name());

    // Buffers of the application become tensors without a copy, and the result becomes a buffer.
    let gate: Vec<f32> = (0..1000).map(|i| i as f32 / 100.0 - 5.0).collect();
    let up: Vec<f32> = (0..1000).map(|i| 1.0 + i as f32 / 1000.0).collect();
    let gates = Tensor::from_cust(&device, DeviceBuffer::from_slice(&gate)?, [1000])?;
    let ups = Tensor::from_cust(&device, DeviceBuffer::from_slice(&up)?, [1000])?;
    let ours: Vec<f32> = {
        let buffer = swiglu(&gates, &ups)?.into_cust()?;
        stream.synchronize()?;
        buffer.as_host_vec()?
    };

    // The application launches the kernel itself. The parameters are those that the text declares: the addresses of
    // arguments and results, the first and the last index, exclusive, and then extents and scalars.
    let kernel =
        swiglu::kernels().into_iter().find(|kernel| kernel.text == swiglu::PTX).ok_or("no kernel")?;
    let module = Module::from_ptx(kernel.text, &[])?;
    let function = module.get_function(kernel.name)?;
    let mut out = Tensor::<f32>::zeros(&device, [1000])?;
    let (x, y, z) = (gates.as_device_ptr()?, ups.as_device_ptr()?, out.as_device_ptr_mut()?);
    // SAFETY: the kernel reads 1000 elements of `x` and `y` and writes as many of `z`, and the tensors outlive the wait.
    unsafe {
        launch!(function<<<4, 256, 0, stream>>>(x.as_raw(), y.as_raw(), z.as_raw(), 0_u32, 1000_u32))?;
    }
    let theirs = out.to_vec()?;

    product(&device, &stream)?;
    attention(&device, &stream)?;

    let expected = |i: usize| gate[i] / (1.0 + (-gate[i]).exp()) * up[i];
    let is_near = |i: usize| (ours[i] - expected(i)).abs() <= 1e-5 * expected(i).abs().max(1e-3);
    if ours == theirs && (0..1000).all(is_near) {
        println!("1000 results are right, and the same from both launches");
        Ok(())
    } else {
        Err("the results differ".into())
    }
}

/// Launches a matrix product itself. A block computes a tile of the result, so first and last index count tiles.
fn product(device: &Device, stream: &Stream) -> std::result::Result<(), Box<dyn Error>> {
    // The first kernel is for extents that are multiples of four.
    let (m, k, n) = (200_u32, 36_u32, 140_u32);
    let x: Vec<f32> = (0..m * k).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
    let w: Vec<f32> = (0..k * n).map(|i| (i * 5 % 13) as f32 - 6.0).collect();
    let left = Tensor::from_slice(device, &x, [m as usize, k as usize])?;
    let right = Tensor::from_slice(device, &w, [k as usize, n as usize])?;
    let mut out = Tensor::<f32>::zeros(device, [m as usize, n as usize])?;

    let kernel = layer::kernels().into_iter().find(|kernel| kernel.text == layer::PTX).ok_or("no kernel")?;
    let (side, shared) = (128, kernel.shared_bytes.ok_or("memory depends on extents")? as u32);
    let (tiles, across) = (m.div_ceil(side) * n.div_ceil(side), n.div_ceil(side));
    let LaunchConfig { grid, block, shared_bytes } =
        LaunchConfig::tiles(device.facts(), tiles.into(), kernel.team, shared);
    let module = Module::from_ptx(kernel.text, &[])?;
    let function = module.get_function(kernel.name)?;
    let (a, b, c) = (left.as_device_ptr()?, right.as_device_ptr()?, out.as_device_ptr_mut()?);
    // SAFETY: the kernel reads the elements of both matrices and writes these of the result, and the tensors outlive
    // the wait.
    unsafe {
        launch!(function<<<grid, block, shared_bytes, stream>>>(
            a.as_raw(), b.as_raw(), c.as_raw(), 0_u32, tiles, across, m, n, k
        ))?;
    }
    let (theirs, ours) = (out.to_vec()?, layer(&left, &right)?.to_vec()?);
    let element = |i: usize| {
        let (row, col) = (i / n as usize, i % n as usize);
        let terms = (0..k as usize).map(|step| x[row * k as usize + step] * w[step * n as usize + col]);
        terms.sum::<f32>().max(0.0)
    };
    if theirs == ours && (0..theirs.len()).all(|i| theirs[i] == element(i)) {
        println!("a product of {m} x {k} x {n} is right, and the same from both launches");
        Ok(())
    } else {
        Err("the products differ".into())
    }
}

/// Launches an attention itself. A block computes a tile of 16 queries and all columns.
fn attention(device: &Device, stream: &Stream) -> std::result::Result<(), Box<dyn Error>> {
    let (queries, keys) = (50_usize, 70_usize);
    let numbers = |seed: usize, rows: usize, cols: usize| {
        let all: Vec<f32> = (0..rows * cols).map(|i| ((i * 7 + seed) % 23) as f32 / 11.0 - 1.0).collect();
        Tensor::from_slice(device, &all, [rows, cols])
    };
    let (q, k, v) = (numbers(1, queries, 32)?, numbers(2, keys, 32)?, numbers(3, keys, 48)?);
    let mut out = Tensor::<f32>::zeros(device, [queries, 48])?;

    let kernel =
        attend::kernels().into_iter().find(|kernel| kernel.text == attend::PTX).ok_or("no kernel")?;
    let shared = kernel.shared_bytes.ok_or("memory depends on extents")? as u32;
    let tiles = queries.div_ceil(16) as u32;
    let LaunchConfig { grid, block, shared_bytes } =
        LaunchConfig::tiles(device.facts(), tiles.into(), kernel.team, shared);
    let module = Module::from_ptx(kernel.text, &[])?;
    let function = module.get_function(kernel.name)?;
    let [a, b, c, d] = [q.as_device_ptr()?, k.as_device_ptr()?, v.as_device_ptr()?, out.as_device_ptr_mut()?];
    // SAFETY: the kernel reads the elements of the first tensors and writes these of the last one, and the tensors
    // outlive the wait.
    unsafe {
        launch!(function<<<grid, block, shared_bytes, stream>>>(
            a.as_raw(), b.as_raw(), c.as_raw(), d.as_raw(), 0_u32, tiles, queries as u32, keys as u32
        ))?;
    }
    let (theirs, ours) = (out.to_vec()?, attend(&q, &k, &v)?.to_vec()?);
    let is_near = |(x, y): (&f32, &f32)| (x - y).abs() < 1e-5;
    if theirs.iter().zip(&ours).all(is_near) && theirs.iter().any(|x| *x != 0.0) {
        println!("an attention of {queries} queries to {keys} keys is the same from both launches");
        Ok(())
    } else {
        Err("the results of attention differ".into())
    }
}
