//! Failures are errors, and later calls work.

use std::sync::Arc;
use std::sync::mpsc::channel;

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
        let mut renamed = step();
        renamed.kernel = "step_1".into();
        assert!(matches!(run_step(gpu, &renamed, view(&memory, 0, 1), 1.0, 1), Err(Error::Jit { .. })));
        run_step(gpu, &step(), view(&memory, 0, 1), 1.0, 1)?;
        assert_same(&download(gpu, &memory, 0, 1)?, &[2.0]);
        Ok(())
    });
}

/// Checks the error for an unsupported request.
#[track_caller]
fn check_unsupported(got: Result<()>, what: &str) {
    match got {
        Err(error @ Error::Unsupported { .. }) => {
            let text = error.to_string();
            assert!(text.ends_with(&format!(" does not support {what}")), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn loops_that_software_would_end_early() {
    on_device(PLAIN, |gpu| {
        let memory = upload(gpu, &[1.0])?;
        let run = |trips| {
            let mut launch = step();
            launch.trips = DimExpr::constant(trips);
            run_step(gpu, &launch, view(&memory, 0, 1), 1.0, 1)
        };
        run(65_534)?;
        if gpu.software {
            let mend = "call it on `Device::cpu()` or on a GPU";
            check_unsupported(
                run(65_535),
                &format!("65535 steps of a loop or more, as `step_0` would take; {mend}"),
            );
        }
        Ok(())
    });
}

#[test]
fn a_binding_limit_that_is_too_small() {
    let mend = "raise FUSION_WGPU_BINDING_MAX, or the limit `max_storage_buffer_binding_size` of a device that has less than its adapter; else call it on pieces of the tensor";
    // The kernel has no windows, and reads 16,000 bytes of the bias at any position.
    on_device(Options { binding_bytes_max: 8192, ..PLAIN }, |gpu| {
        let memories = [upload(gpu, &[1.0; 4000])?, upload(gpu, &[1.0; 4000])?, gpu.allocate(16_000)?];
        let views: Vec<Region<'_>> = memories.iter().map(|memory| view(memory, 0, 4000)).collect();
        let what = "binding 16000 bytes of a tensor at once, as `bias_0` needs; the most is 8192";
        check_unsupported(run(gpu, &bias(), &[4000, 4000], &views), &format!("{what}: {mend}"));
        Ok(())
    });
    // The limit is below the smallest chunk of a buffer that is read in order: one element.
    on_device(Options { binding_bytes_max: 16, ..PLAIN }, |gpu| {
        let memory = upload(gpu, &[1.0; 4000])?;
        let needed = 4 + gpu.limits.offset_align + 16;
        let what = format!("binding {needed} bytes of a tensor at once, as `step_0` needs; the most is 16");
        let got = run_step(gpu, &step(), view(&memory, 0, 4000), 1.0, 1);
        check_unsupported(got, &format!("{what}: {mend}"));
        run_step(gpu, &step(), view(&memory, 0, 4), 1.0, 1)
    });
}

#[test]
fn memory_beyond_the_limit() {
    on_device(PLAIN, |gpu| {
        let most = gpu.gpu.device.limits().max_buffer_size;
        for bytes in [usize::MAX, usize::try_from(most).unwrap_or(usize::MAX).saturating_add(1)] {
            let expected = Error::OutOfMemory {
                bytes: Some(bytes),
                device: gpu.name().into(),
                tensor_bytes_max: Some(most),
            };
            assert_eq!(gpu.allocate(bytes).err(), Some(expected.clone()));
            let mend = format!(
                "one tensor there has at most {most}, so work on smaller pieces, or on another device"
            );
            assert!(expected.to_string().ends_with(&mend), "{expected}");
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
        for elements in [1 << 31, i64::MAX] {
            let call = Call {
                symbols: &[elements, 1],
                scalars: &[],
                buffers: &[view(&memory, 0, 1)],
                producers: &[],
            };
            let what = "2³¹ elements or more at once, as `step_0` would compute; call it on pieces of its tensors, or on another device";
            check_unsupported(gpu.launch(&step(), &call), what);
        }
        Ok(())
    });
}

/// Destroys the device. Later calls work or report the loss, and calls that return a result report it.
fn check_lost(gpu: &WgpuBackend, at: impl Fn(&WgpuBackend, &Memory) -> Result<()>) -> Result<()> {
    let memory = upload(gpu, &[1.0])?;
    gpu.synchronize()?;
    gpu.gpu.device.destroy();
    let lost = |got: Result<()>| assert!(matches!(got, Err(Error::DeviceLost { .. })), "{got:?}");
    lost(at(gpu, &memory));
    lost(download(gpu, &memory, 0, 1).map(drop));
    lost(gpu.allocate(16).map(drop));
    lost(run_step(gpu, &step(), view(&memory, 0, 1), 1.0, 1));
    Ok(())
}

#[test]
fn a_lost_device_says_so() {
    let launch = |gpu: &WgpuBackend, memory: &Memory| {
        run_step(gpu, &step(), view(memory, 0, 1), 1.0, 1).and_then(|()| gpu.synchronize())
    };
    let read = |gpu: &WgpuBackend, memory: &Memory| download(gpu, memory, 0, 1).map(drop);
    let write = |gpu: &WgpuBackend, _: &Memory| {
        upload(gpu, &[2.0; 1 << 18]).and_then(|memory| download(gpu, &memory, 0, 1)).map(drop)
    };
    on_device(PLAIN, |gpu| check_lost(gpu, launch));
    on_device(PLAIN, |gpu| check_lost(gpu, read));
    on_device(PLAIN, |gpu| check_lost(gpu, write));
    // A device of an application has the application's own callback.
    let guest = |gpu: &WgpuBackend| {
        let (device, queue) = (gpu.gpu.device.clone(), gpu.gpu.queue.clone());
        device.set_device_lost_callback(|_, _| {});
        crate::device::wgpu::from_wgpu_with(device, queue, PLAIN)
    };
    on_device(PLAIN, |gpu| check_lost(&guest(gpu)?, launch));
    on_device(PLAIN, |gpu| check_lost(&guest(gpu)?, read));
    on_device(PLAIN, |gpu| check_lost(&guest(gpu)?, write));
    on_device(PLAIN, |gpu| {
        gpu.gpu.device.destroy();
        assert!(matches!(guest(gpu), Err(Error::DeviceLost { .. })));
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
        assert!(matches!(gpu.allocate(16), Err(Error::DeviceLost { .. })));
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

/// The call would otherwise wait for itself.
#[test]
fn a_call_from_a_callback_within_a_call() {
    on_device(PLAIN, |gpu| {
        let device = Arc::new(crate::device::wgpu::from_wgpu_with(
            gpu.gpu.device.clone(),
            gpu.gpu.queue.clone(),
            PLAIN,
        )?);
        let (answer, answered) = channel();
        // An empty submission, for the wait.
        gpu.gpu.queue.submit([]);
        let inner = Arc::clone(&device);
        gpu.gpu.queue.on_submitted_work_done(move || {
            let read = upload(&inner, &[1.0; 4]);
            _ = answer.send(read.err());
        });
        let recorder = device.recorder()?;
        gpu.gpu.wait(None)?;
        let error = answered.try_recv().expect("wgpu calls back where it waits");
        assert!(
            matches!(&error, Some(Error::Unsupported { what, .. }) if what.contains("callback")),
            "{error:?}"
        );
        drop(recorder);
        upload(&device, &[1.0; 4]).map(|_| ())
    });
}
