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
    let module = Module::from_ptx(swiglu::PTX, &[])?;
    let entry =
        swiglu::PTX.split_once(".entry ").and_then(|(_, rest)| rest.split_once('(')).ok_or("no entry")?.0;
    let function = module.get_function(entry)?;
    let mut out = Tensor::<f32>::zeros(&device, [1000])?;
    let (x, y, z) = (gates.as_device_ptr()?, ups.as_device_ptr()?, out.as_device_ptr_mut()?);
    // SAFETY: the kernel reads 1000 elements of `x` and `y` and writes as many of `z`, and the tensors outlive the wait.
    unsafe {
        launch!(function<<<4, 256, 0, stream>>>(x.as_raw(), y.as_raw(), z.as_raw(), 0_u32, 1000_u32))?;
    }
    let theirs = out.to_vec()?;

    let expected = |i: usize| gate[i] / (1.0 + (-gate[i]).exp()) * up[i];
    let is_near = |i: usize| (ours[i] - expected(i)).abs() <= 1e-5 * expected(i).abs().max(1e-3);
    if ours == theirs && (0..1000).all(is_near) {
        println!("1000 results are right, and the same from both launches");
        Ok(())
    } else {
        Err("the results differ".into())
    }
}
