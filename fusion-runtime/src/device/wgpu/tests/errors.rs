//! Whatever goes wrong is an error, and what follows it works.

use super::*;

#[test]
fn a_kernel_that_does_not_compile() {
    on_device(PLAIN, |gpu| {
        let memory = upload(gpu, &[1.0])?;
        let broken = Launch { code: Code::Wgsl("fn step_0() { nonsense }".into()), ..step() };
        match run_step(gpu, &broken, view(&memory, 0, 1), 1.0, 1) {
            Err(Error::Jit { kernel, log }) => {
                assert!(kernel == "step_0" && log.contains("nonsense"), "{log}")
            }
            other => panic!("{other:?}"),
        }
        let renamed = Launch { kernel: "step_1".into(), ..step() };
        assert!(matches!(run_step(gpu, &renamed, view(&memory, 0, 1), 1.0, 1), Err(Error::Jit { .. })));
        run_step(gpu, &step(), view(&memory, 0, 1), 1.0, 1)?;
        assert_same(&download(gpu, &memory, 0, 1)?, &[2.0]);
        Ok(())
    });
}

#[test]
fn a_whole_buffer_beyond_the_binding_limit() {
    on_device(Options { binding_bytes_max: 8192, ..PLAIN }, |gpu| {
        let memories = [upload(gpu, &[1.0; 4000])?, upload(gpu, &[1.0; 4000])?, gpu.allocate(16_000)?];
        let views: Vec<Region<'_>> = memories.iter().map(|memory| view(memory, 0, 4000)).collect();
        match run(gpu, &bias(), &[4000, 4000], &views) {
            Err(error @ Error::Unsupported { .. }) => assert!(error.to_string().contains("8192"), "{error}"),
            other => panic!("{other:?}"),
        }
        Ok(())
    });
}

#[test]
fn memory_beyond_the_limit() {
    on_device(PLAIN, |gpu| {
        for bytes in [usize::MAX, 1 << 60] {
            assert!(matches!(gpu.allocate(bytes), Err(Error::Unsupported { .. })));
        }
        let memory = upload(gpu, &[1.0])?;
        assert_same(&download(gpu, &memory, 0, 1)?, &[1.0]);
        Ok(())
    });
}

#[test]
fn a_space_beyond_32_bits() {
    on_device(PLAIN, |gpu| {
        let memory = upload(gpu, &[1.0])?;
        let call = Call { symbols: &[1 << 31, 1], scalars: &[], buffers: &[view(&memory, 0, 1)] };
        assert!(matches!(gpu.launch(&step(), &call), Err(Error::Unsupported { .. })));
        Ok(())
    });
}

#[test]
fn a_lost_device_says_so() {
    on_device(PLAIN, |gpu| {
        let memory = upload(gpu, &[1.0])?;
        gpu.synchronize()?;
        gpu.gpu.device.destroy();
        let mut seen = gpu.synchronize();
        for _ in 0..3 {
            if seen.is_ok() {
                seen = run_step(gpu, &step(), view(&memory, 0, 1), 1.0, 1).and_then(|()| gpu.synchronize());
            }
        }
        assert!(matches!(seen, Err(Error::DeviceLost { .. } | Error::Driver { .. })), "{seen:?}");
        assert!(download(gpu, &memory, 0, 1).is_err());
        assert!(gpu.allocate(16).is_err());
        Ok(())
    });
}

#[test]
fn an_error_of_wgpu_outside_of_a_call_surfaces_at_the_next() {
    on_device(PLAIN, |gpu| {
        let invalid = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::STORAGE;
        let descriptor =
            wgpu::BufferDescriptor { label: None, size: 16, usage: invalid, mapped_at_creation: false };
        drop(gpu.gpu.device.create_buffer(&descriptor));
        assert!(matches!(gpu.allocate(16), Err(Error::Driver { .. })));
        Ok(())
    });
}

#[test]
fn the_device_and_the_buffers_of_an_application() {
    use crate::device::wgpu::pool::WgpuMemory;
    on_device(PLAIN, |gpu| {
        let (device, queue) = (&gpu.gpu.device, &gpu.gpu.queue);
        let guest = crate::device::wgpu::from_wgpu_with(device.clone(), queue.clone(), PLAIN)?;
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let buffer = |size, usage| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size,
                usage,
                mapped_at_creation: false,
            })
        };
        let theirs = buffer(64, usage);
        queue.write_buffer(&theirs, 0, bytemuck::cast_slice(&[3.0f32; 16]));
        let memory = Memory::Wgpu(WgpuMemory::external(&guest.pool, theirs.clone())?);
        run_step(&guest, &step(), view(&memory, 16, 4), 2.0, 1)?;
        let mut expected = [3.0; 16];
        expected[4..8].fill(7.0);
        assert_same(&download(&guest, &memory, 0, 16)?, &expected);
        for wrong in [buffer(24, usage), buffer(64, wgpu::BufferUsages::STORAGE)] {
            let refused = WgpuMemory::external(&guest.pool, wrong);
            assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
        }
        Ok(())
    });
}
