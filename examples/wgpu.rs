//! Launches a matrix product and an attention of `fuse!` with the program's own wgpu, which knows nothing of tensors.
//!
//! The command is `cargo run --release --example wgpu`.

use std::error::Error;

use fusion::KernelText;
use fusion::prelude::*;
use wgpu::util::{BufferInitDescriptor, DeviceExt};

fuse! {
    /// A layer without a bias.
    pub fn layer(x: f32[M, K], w: f32[K, N]) -> f32[M, N] { relu(matmul(x, w, K)) }

    /// Attention of queries to keys that are not after them.
    pub fn attend(q: f32[T, C = 32], k: f32[S, C], v: f32[S, D = 48]) -> f32[T, D] {
        let scores = matmul(q, k, C) * rsqrt(C);
        matmul(softmax(if index(S) <= index(T) { scores } else { -INF }, S), v, S)
    }
}

/// Rows and columns of a tile of the product, as the kernel's name says.
const TILE: u32 = 64;

/// Queries of a tile of the attention. All columns of the values are in one.
const QUERIES: u32 = 16;

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default()))?;
    let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default()))?;
    println!("adapter: {}", adapter.get_info().name);

    product(&device, &queue)?;
    attention(&device, &queue)
}

fn product(device: &wgpu::Device, queue: &wgpu::Queue) -> std::result::Result<(), Box<dyn Error>> {
    // The first kernel is for extents that are multiples of four.
    let (m, k, n) = (200_u32, 36_u32, 140_u32);
    let x: Vec<f32> = (0..m * k).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
    let w: Vec<f32> = (0..k * n).map(|i| (i * 5 % 13) as f32 - 6.0).collect();
    let storage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
    let buffer = |contents: &[u8], usage| {
        device.create_buffer_init(&BufferInitDescriptor { label: None, contents, usage })
    };
    let tensors = [
        buffer(bytemuck::cast_slice(&x), storage),
        buffer(bytemuck::cast_slice(&w), storage),
        buffer(&vec![0; 4 * (m * n) as usize], storage),
    ];
    // The numbers of `Args`: the first and the last tile, exclusive, the tiles in a row, the extents, and the position of
    // each tensor in its buffer.
    let across = n.div_ceil(TILE);
    let tiles = m.div_ceil(TILE) * across;
    let args = [0, tiles, across, m, n, k, 0, 0, 0, 0, 0, 0];
    let args = buffer(bytemuck::cast_slice(&args), wgpu::BufferUsages::UNIFORM);

    let kernel = layer::kernels().into_iter().find(|kernel| kernel.text == layer::WGSL).ok_or("no kernel")?;
    launch(device, queue, &kernel, [&tensors, &[args]], tiles);
    let made = read(device, queue, &tensors[2])?;

    let element = |i: usize| {
        let (row, col) = (i / n as usize, i % n as usize);
        let terms = (0..k as usize).map(|step| x[row * k as usize + step] * w[step * n as usize + col]);
        terms.sum::<f32>().max(0.0)
    };
    if (0..made.len()).all(|i| made[i] == element(i)) {
        println!("a product of {m} x {k} x {n} is right");
        Ok(())
    } else {
        Err("the product is wrong".into())
    }
}

fn attention(device: &wgpu::Device, queue: &wgpu::Queue) -> std::result::Result<(), Box<dyn Error>> {
    let (queries, keys) = (50_usize, 70_usize);
    let numbers =
        |seed: usize, len| (0..len).map(move |i| ((i * 7 + seed) % 23) as f32 / 11.0 - 1.0).collect();
    let [q, k, v]: [Vec<f32>; 3] = [numbers(1, queries * 32), numbers(2, keys * 32), numbers(3, keys * 48)];
    let storage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
    let buffer = |contents: &[u8], usage| {
        device.create_buffer_init(&BufferInitDescriptor { label: None, contents, usage })
    };
    let mut tensors: Vec<wgpu::Buffer> =
        [&q, &k, &v].map(|of| buffer(bytemuck::cast_slice(of), storage)).into();
    tensors.push(buffer(&vec![0; 4 * queries * 48], storage));
    // The numbers of `Args`: the first and the last tile, exclusive, the extents, and the position of each tensor in its
    // buffer.
    let tiles = (queries as u32).div_ceil(QUERIES);
    let args = [0, tiles, queries as u32, keys as u32, 0, 0, 0, 0, 0, 0, 0, 0];
    let args = buffer(bytemuck::cast_slice(&args), wgpu::BufferUsages::UNIFORM);
    let kernel =
        attend::kernels().into_iter().find(|kernel| kernel.text == attend::WGSL).ok_or("no kernel")?;
    launch(device, queue, &kernel, [&tensors, &[args]], tiles);
    let made = read(device, queue, &tensors[3])?;

    let is_right = |i: usize| {
        let (row, col) = (i / 48, i % 48);
        let product = |key: usize| (0..32).map(|c| q[row * 32 + c] * k[key * 32 + c]).sum::<f32>();
        let weight = |key: usize| (product(key) / 32_f32.sqrt()).exp();
        let total: f32 = (0..=row).map(weight).sum();
        let sum: f32 = (0..=row).map(|key| weight(key) * v[key * 48 + col]).sum();
        (made[i] - sum / total).abs() < 1e-4
    };
    if (0..queries * 48).all(is_right) {
        println!("an attention of {queries} queries to {keys} keys is right");
        Ok(())
    } else {
        Err("the attention is wrong".into())
    }
}

/// Runs a kernel with the buffers of group 0 and of group 1. Each workgroup computes a tile.
fn launch(
    device: &wgpu::Device,
    queue: &wgpu::Queue,
    kernel: &KernelText,
    groups: [&[wgpu::Buffer]; 2],
    tiles: u32,
) {
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(kernel.text.into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: Some(kernel.name),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&pipeline);
        for (number, buffers) in (0..).zip(groups) {
            let resources = buffers.iter().map(wgpu::Buffer::as_entire_binding);
            let entries = (0..).zip(resources);
            let entries: Vec<wgpu::BindGroupEntry<'_>> =
                entries.map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource }).collect();
            let layout = &pipeline.get_bind_group_layout(number);
            let descriptor = wgpu::BindGroupDescriptor { label: None, layout, entries: &entries };
            pass.set_bind_group(number, &device.create_bind_group(&descriptor), &[]);
        }
        pass.dispatch_workgroups(tiles, 1, 1);
    }
    queue.submit([encoder.finish()]);
}

/// Returns the elements of a buffer.
fn read(
    device: &wgpu::Device,
    queue: &wgpu::Queue,
    of: &wgpu::Buffer,
) -> std::result::Result<Vec<f32>, Box<dyn Error>> {
    let copy = device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: of.size(),
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encoder.copy_buffer_to_buffer(of, 0, &copy, 0, of.size());
    queue.submit([encoder.finish()]);
    copy.slice(..).map_async(wgpu::MapMode::Read, |result| result.expect("the results can be read"));
    device.poll(wgpu::PollType::wait_indefinitely())?;
    let elements = copy.slice(..).get_mapped_range()?;
    Ok(bytemuck::cast_slice(&elements).to_vec())
}
