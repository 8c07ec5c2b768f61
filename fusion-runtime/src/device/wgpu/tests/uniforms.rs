//! One-element tensors, which kernels read as uniforms, at any place in a buffer.

use std::sync::Arc;

use fusion_compiler::ir::plan::Target;

use super::*;
use crate::device::wgpu::pool::WgpuMemory;
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::{Device, fuse};

fuse! {
    pub(crate) fn scaled(x: f32[N], by: f32[], ahead: i32[], back: u32[]) -> f32[N] { by * x + (ahead as f32 - back as f32) }
    pub(crate) fn grown(x: &mut f32[N], by: f32[]) { x = x + by; }
    pub(crate) fn counted(n: &mut f32[], x: &mut f32[N], by: f32[]) {
        x = x + n * by;
        n = n + 1.0;
    }
    pub(crate) fn seven(
        a: f32[N], b: f32[N], c: f32[N], d: f32[N], e: f32[N], f: f32[N], g: f32[N], s: f32[], t: f32[]
    ) -> f32[N] {
        s * a + b - c + t * d + e - f * g
    }
    pub(crate) fn normal(x: f32[N]) -> f32[N] { x / sum(x, N) }
    pub(crate) fn eight(
        a: f32[N], b: f32[N], c: f32[N], d: f32[N], e: f32[N], f: f32[N], g: f32[N], h: f32[N]
    ) -> f32[N] {
        a + b - c + d - e + f - g + h
    }
    pub(crate) fn shares(
        a: f32[N], b: f32[N], c: f32[N], d: f32[N], e: f32[N], f: f32[N], x: &mut f32[N], most: &mut i32[]
    ) {
        let (all, largest) = (sum(x, N), max(abs(x), N));
        x = x / all + (a + b + c + d + e + f) / largest;
        most = largest as i32;
    }
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i * 37 % 101) as f32 - 50.5).collect()
}

/// Returns a device if there is an adapter.
fn device() -> Option<Device> {
    let opened = windows::device(PLAIN);
    opened.map(|(device, _)| device)
}

/// Most places where a tensor may start are not aligned for a uniform.
#[test]
fn wherever_the_element_is() -> Result<()> {
    let Some(device) = device() else { return Ok(()) };
    let all = numbers(400);
    let x = Tensor::from_vec(&device, vec![1.0, -2.0, 3.0], [3])?;
    let many = Tensor::from_vec(&device, all.clone(), [400])?;
    let ahead = Tensor::from_vec(&device, (0..400).collect(), [400])?;
    let back = Tensor::from_vec(&device, (0..400).rev().collect::<Vec<u32>>(), [400])?;
    for start in (0..400).step_by(4) {
        let one = || Shape::from([]);
        let out =
            scaled(&x, &many.part(start, one()), &ahead.part(start, one()), &back.part(396 - start, one()))?;
        let shift = start as f32 - (3 + start) as f32;
        assert_eq!(out.to_vec()?, [1.0, -2.0, 3.0].map(|x| all[start] * x + shift), "{start}");
    }
    Ok(())
}

/// The written tensor is in the same buffer as the uniform.
#[test]
fn an_element_beside_what_is_written() -> Result<()> {
    let Some(device) = device() else { return Ok(()) };
    let mut many = Tensor::from_vec(&device, numbers(192), [192])?;
    let by = many.part(0, Shape::from([]));
    many.lend(64, Shape::from([128]), |x| grown(x, &by))?;
    let expected: Vec<f32> =
        numbers(192).iter().enumerate().map(|(i, x)| if i < 64 { *x } else { x - 50.5 }).collect();
    assert_eq!(many.to_vec()?, expected);
    Ok(())
}

/// The old element is read while the new one is written to the same place.
#[test]
fn an_element_that_changes() -> Result<()> {
    let Some(device) = device() else { return Ok(()) };
    let (mut n, mut x) = (Tensor::zeros(&device, [])?, Tensor::zeros(&device, [1000])?);
    let by = Tensor::full(&device, 0.5, [])?;
    for _ in 0..4 {
        counted(&mut n, &mut x, &by)?;
    }
    assert_eq!((n.item()?, x.to_vec()?), (4.0, vec![3.0; 1000]));
    Ok(())
}

/// A kernel with nine buffers for reads, two of which are uniforms, and one for writes.
#[test]
fn elements_leave_room_for_tensors() -> Result<()> {
    let program = seven::PLAN.programs.iter().find(|program| program.target == Target::Wgsl);
    assert_eq!(program.map(|program| program.steps.len()), Some(1));
    let Some(device) = device() else { return Ok(()) };
    let tensor = |i: usize| Tensor::from_vec(&device, vec![i as f32; 5], [5]);
    let [a, b, c, d, e, f, g] = [1, 2, 3, 4, 5, 6, 7].map(|i| tensor(i).expect("memory"));
    let [s, t] = [10.0, 100.0].map(|x| Tensor::full(&device, x, []).expect("memory"));
    let out = seven(&a, &b, &c, &d, &e, &f, &g, &s, &t)?;
    assert_eq!(out.to_vec()?, [10.0 + 2.0 - 3.0 + 400.0 + 5.0 - 42.0; 5]);
    Ok(())
}

/// The partial results of two reductions, which each block combines again, need buffers next to eight
/// tensors.
#[test]
fn parts_leave_room_for_tensors() -> Result<()> {
    let Some((device, gpu)) = windows::device(PLAIN) else { return Ok(()) };
    // The counts give no part, one, several and the maximum number of parts, and then more elements per part.
    for count in [1, 999, 20_000, 70_001, 300_000, 8_388_608, 8_388_611] {
        let ones = Tensor::full(&device, 1.0, [count])?;
        let mut x = Tensor::full(&device, 2.0, [count])?;
        let mut most = Tensor::zeros(&device, [])?;
        shares(&ones, &ones, &ones, &ones, &ones, &ones, &mut x, &mut most)?;
        assert_eq!(most.item()?, 2, "{count}");
        let expected = 3.0 + 1.0 / count as f32;
        assert!(x.to_vec()?.iter().all(|x| (x / expected - 1.0).abs() < 1e-6), "{count}");
    }
    let rows = gpu.pipelines.kernels().into_iter().filter(|name| name.contains("elements")).count();
    assert!(rows > 0, "what parts gave was not combined again: {:?}", gpu.pipelines.kernels());
    Ok(())
}

/// The element was written by the previous launch.
#[test]
fn an_element_between_kernels() -> Result<()> {
    let Some(device) = device() else { return Ok(()) };
    for count in [1, 100, 70_000, 300_000] {
        let out = normal(&Tensor::full(&device, 2.0, [count])?)?;
        let expected = 1.0 / count as f32;
        assert!(out.to_vec()?.iter().all(|x| (x / expected - 1.0).abs() < 1e-6), "{count}");
    }
    Ok(())
}

/// The caller's buffer lacks the usage `UNIFORM`.
#[test]
fn an_element_of_an_application() {
    on_device(PLAIN, |gpu| {
        let (device, queue) = (&gpu.gpu.device, &gpu.gpu.queue);
        let guest = Arc::new(crate::device::wgpu::from_wgpu_with(device.clone(), queue.clone(), PLAIN)?);
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let descriptor = wgpu::BufferDescriptor { label: None, size: 64, usage, mapped_at_creation: false };
        let theirs = device.create_buffer(&descriptor);
        queue.write_buffer(&theirs, 0, bytemuck::cast_slice(&[3.0f32; 16]));
        let one = Memory::Wgpu(WgpuMemory::external(&guest.pool, theirs)?);
        let many = guest.allocate(64)?;
        guest.write(&many, 0, bytemuck::cast_slice(&[1.0f32; 16]))?;
        let program = grown::PLAN.programs.iter().find(|program| program.target == Target::Wgsl);
        let step = &program.expect("it is for all targets").steps[0];
        let limits = Device(guest.clone()).limits();
        let variant = step.chosen(&[16], &limits).expect("one fits all extents");
        let buffers = [(&many, 16), (&one, 1)].map(|(memory, len)| Region { memory, offset: 0, len });
        let call = Call { symbols: &[16], scalars: &[None, None], buffers: &buffers, producers: &[] };
        guest.launch(&variant.launches[0], &call)?;
        assert_eq!(download(&guest, &many, 0, 16)?, [4.0; 16]);
        Ok(())
    });
}
