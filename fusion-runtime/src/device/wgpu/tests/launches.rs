//! Launches compute the right values: sizes, views, folded grids, chunks, and both ways of passing uniforms.

use super::*;
use crate::device::wgpu::pipeline::OverrideConstants;

const SIZES: [usize; 7] = [1, 3, 4, 31, 33, 65_537, 5_000_000];

/// Checks `relu(a + b) * c` of `len` elements, with views 0, 16, 272 and 512 bytes into their buffers and
/// guards around the result.
fn check_relu(gpu: &WgpuBackend, len: usize) -> Result<()> {
    let offsets = [0, 16, 272, 512];
    let inputs = [ramp(len, 1), ramp(len, 2), ramp(len, 3)];
    let mut memories = Vec::new();
    for (values, offset) in inputs.iter().zip(offsets) {
        let mut padded = vec![1e30; offset / 4];
        padded.extend(values);
        memories.push(upload(gpu, &padded)?);
    }
    let guard = 64;
    let out = upload(gpu, &vec![7.0; offsets[3] / 4 + len + guard])?;
    memories.push(out);
    let views: Vec<Region<'_>> =
        memories.iter().zip(offsets).map(|(memory, offset)| view(memory, offset, len)).collect();
    run(gpu, &relu(), &[len as i64], &views)?;
    let all = download(gpu, &memories[3], 0, offsets[3] / 4 + len + guard)?;
    let (before, rest) = all.split_at(offsets[3] / 4);
    let (result, after) = rest.split_at(len);
    assert_same(result, &expected_relu(&inputs[0], &inputs[1], &inputs[2]));
    assert!(before.iter().chain(after).all(|&x| x == 7.0), "written outside of the view of {len}");
    Ok(())
}

fn check_step(gpu: &WgpuBackend, len: usize) -> Result<()> {
    let values = ramp(len, 5);
    let memory = upload(gpu, &values)?;
    run_step(gpu, &step(), view(&memory, 0, len), 2.0, 3)?;
    let expected: Vec<f32> = values.iter().map(|x| x * 2.0 + 3.0).collect();
    assert_same(&download(gpu, &memory, 0, len)?, &expected);
    Ok(())
}

fn check_bias(gpu: &WgpuBackend, rows: usize, cols: usize) -> Result<()> {
    let (x, row) = (ramp(rows * cols, 1), ramp(cols, 9));
    let padded: Vec<f32> = [0.0; 4].iter().chain(&row).copied().collect();
    let memories = [upload(gpu, &x)?, upload(gpu, &padded)?, gpu.allocate(rows * cols * 4)?];
    let views = [
        view(&memories[0], 0, rows * cols),
        view(&memories[1], 16, cols),
        view(&memories[2], 0, rows * cols),
    ];
    run(gpu, &bias(), &[(rows * cols) as i64, cols as i64], &views)?;
    let expected: Vec<f32> = x.iter().enumerate().map(|(i, x)| x + row[i % cols]).collect();
    assert_same(&download(gpu, &memories[2], 0, rows * cols)?, &expected);
    Ok(())
}

fn check_all(gpu: &WgpuBackend, sizes: &[usize]) -> Result<()> {
    sizes.iter().try_for_each(|&len| check_relu(gpu, len).and_then(|()| check_step(gpu, len)))?;
    check_bias(gpu, 37, 1001)
}

#[test]
fn sizes_and_views() {
    on_device(PLAIN, |gpu| check_all(gpu, &SIZES));
}

#[test]
fn uniforms_without_immediates() {
    on_device(Options { immediate_bytes_max: 0, ..PLAIN }, |gpu| {
        check_all(gpu, &SIZES[..6])?;
        // The uniforms exceed one batch and one uniform buffer.
        let memory = upload(gpu, &[1.0, 2.0, 3.0])?;
        for i in 0..600 {
            run_step(gpu, &step(), view(&memory, 0, 3), -1.0, i % 7)?;
        }
        let host = |x: f32| (0..600).fold(x, |x, i| -x + (i % 7) as f32);
        assert_same(&download(gpu, &memory, 0, 3)?, &[1.0, 2.0, 3.0].map(host));
        Ok(())
    });
}

#[test]
fn checked_mode() {
    on_device(Options { checks: crate::device::wgpu::Checks::Checked, ..PLAIN }, |gpu| {
        check_all(gpu, &SIZES[..6])
    });
}

#[test]
fn both_ways_of_passing_uniforms_are_taken() {
    use crate::device::wgpu::pipeline::Passing;
    let passing = |gpu: &WgpuBackend| {
        let launch = step();
        let Code::Wgsl(text) = &launch.code else { unreachable!("made above") };
        Ok(gpu
            .pipelines
            .get(&launch, text, OverrideConstants { block: gpu.block, rest: true, shifted: true })?
            .passing
            .clone())
    };
    on_device(PLAIN, |gpu| {
        assert!(
            gpu.gpu.device.features().contains(wgpu::Features::IMMEDIATES),
            "the adapter has no immediates"
        );
        passing(gpu).map(|passing| assert!(matches!(passing, Passing::Immediates)))
    });
    on_device(Options { immediate_bytes_max: 8, ..PLAIN }, |gpu| {
        passing(gpu).map(|passing| assert!(matches!(passing, Passing::Bound(..))))
    });
}

#[test]
fn groups_are_folded() {
    // A row has 3 groups, so every size beyond 768 iterations needs several rows.
    on_device(Options { groups_max: 3, ..PLAIN }, |gpu| check_all(gpu, &SIZES[..6]));
    // The launch has 65,537 groups of 256 threads, with one element per thread.
    on_device(PLAIN, |gpu| check_step(gpu, 65_536 * 256 + 1));
}

#[test]
fn buffers_beyond_the_binding_limit_are_chunked() {
    // The sizes are 7 chunks of 2048 elements, almost one chunk, exactly one, and more.
    let limits = Options { binding_bytes_max: 8192 + 512, ..PLAIN };
    on_device(limits, |gpu| {
        [14_000, 2047, 2048, 2049, 65_537].iter().try_for_each(|&len| {
            check_relu(gpu, len)?;
            check_step(gpu, len)
        })
    });
    on_device(limits, |gpu| check_bias(gpu, 37, 1001));
    on_device(Options { immediate_bytes_max: 0, ..limits }, |gpu| check_relu(gpu, 65_537));
}

#[test]
fn a_buffer_beyond_the_real_limit() {
    on_device(PLAIN, |gpu| {
        let len = 40_000_000;
        eprintln!("binding limit: {} bytes", gpu.limits.binding_bytes_max);
        check_step(gpu, len)
    });
}

#[test]
fn one_buffer_read_and_written_through_two_arguments() {
    on_device(PLAIN, |gpu| {
        let (len, b, c) = (1000, ramp(1000, 2), ramp(1000, 3));
        let arena: Vec<f32> = ramp(1000, 1).into_iter().chain(vec![0.0; 1000]).collect();
        let (memory, b_memory, c_memory) = (upload(gpu, &arena)?, upload(gpu, &b)?, upload(gpu, &c)?);
        let views = [
            view(&memory, 0, len),
            view(&b_memory, 0, len),
            view(&c_memory, 0, len),
            view(&memory, 4000, len),
        ];
        run(gpu, &relu(), &[len as i64], &views)?;
        assert_same(&download(gpu, &memory, 4000, len)?, &expected_relu(&arena[..len], &b, &c));
        assert_same(&download(gpu, &memory, 0, len)?, &arena[..len]);
        Ok(())
    });
}

#[test]
fn owned_texts() {
    on_device(PLAIN, |gpu| {
        let memory = upload(gpu, &[1.0])?;
        for _ in 0..3 {
            run_step(gpu, &owned(step()), view(&memory, 0, 1), 1.0, 1)?;
        }
        assert_same(&download(gpu, &memory, 0, 1)?, &[4.0]);
        Ok(())
    });
}

#[test]
fn transfers_of_every_size_and_offset() {
    on_device(PLAIN, |gpu| {
        for len in [0, 1, 2, 3, 5, 4097, 40_000_001] {
            let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let memory = gpu.allocate(len + 32)?;
            gpu.write(&memory, 32, &bytes)?;
            let mut back = vec![0; len];
            gpu.read(&memory, 32, &mut back)?;
            assert!(back == bytes, "{len} bytes");
            if len > 3 {
                gpu.read(&memory, 33, &mut back[..len - 1])?;
                assert!(back[..len - 1] == bytes[..len - 1] || back[..len - 1] == bytes[1..], "{len} bytes");
                assert_eq!(back[0], 1);
            }
            let copy = gpu.allocate(len)?;
            gpu.copy((&memory, 32), (&copy, 0), len)?;
            gpu.read(&copy, 0, &mut back)?;
            assert!(back == bytes, "{len} bytes copied");
        }
        Ok(())
    });
}
