//! Tensors that are read out of order and exceed one binding, against the CPU, bit for bit.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fusion_compiler::ir::plan::Target;

use super::*;
use crate::tensor::Tensor;
use crate::{Device, fuse};

fuse! {
    pub(crate) fn transposed(x: f32[N, D], b: f32[D]) -> f32[D, N] { 2.0 * x + b }
    pub(crate) fn two(x: f32[N, D], y: f32[N, D]) -> f32[D, N] { x - 0.5 * y }
    pub(crate) fn crossed(x: f32[N, D], y: f32[D, N]) -> f32[N, D] { x * y }
    pub(crate) fn turned(x: f32[A, B, C], y: f32[C, B, A]) -> (f32[C, A, B], f32[C, A, B]) { (x + y, x - y) }
    pub(crate) fn row(x: f32[N, D], b: f32[D]) -> f32[N, D] { x + b }
    pub(crate) fn column(x: f32[D], m: f32[N]) -> f32[N, D] { x - m }
    pub(crate) fn planes(x: f32[C = 3, H, W], g: f32[C = 3]) -> f32[H, W] { sum(x * g, C) }
    pub(crate) fn many(x: f32[C = 40, N]) -> f32[N] { sum(x, C) }
    pub(crate) fn interleaved(x: f32[C = 3, H, W]) -> f32[H, W, C] { x - mean(x, C) }
    pub(crate) fn spread(x: f32[H, C = 2, W]) -> f32[W, H] { at(x, C, 1) - 2.0 * at(x, C, 0) }
    pub(crate) fn in_place(p: &mut f32[N, D], x: f32[D, N], lr: f32) { p = -p + lr * x; }
    pub(crate) fn both(p: &mut f32[N, D], q: &mut f32[N, D], x: f32[D, N]) {
        let old = p;
        p = q - x;
        q = old + x;
    }
    pub(crate) fn guarded(
        x: f32[N, D], a: f32[], b: f32[], c: f32[], d: f32[], e: f32[], f: f32[], g: f32[], h: f32[],
        i: f32[], j: f32[], k: f32[], l: f32[], m: f32[], n: f32[], o: f32[], p: f32[]
    ) -> f32[N, D] {
        let first = x != a && x != b && x != c && x != d && x != e && x != f && x != g && x != h;
        let second = x != i && x != j && x != k && x != l && x != m && x != n && x != o && x != p;
        if first && second { x } else { 0.0 }
    }
    pub(crate) fn moments(x: f32[N, D]) -> f32[N] {
        max(x, D) + max(x + 1.0, D) + max(x - 2.0, D) + max(x + 3.0, D) + max(x - 4.0, D) + max(x + 5.0, D)
    }
    pub(crate) fn masked(x: f32[N, D]) -> f32[D, N] { if index(N) <= index(D) { x } else { -x } }
}

type F = Tensor<f32>;

/// Opens a device, and returns it also as its backend.
pub(super) fn device(options: Options) -> Option<(Device, Arc<WgpuBackend>)> {
    let mut opened = None;
    if let Ok(gpu) = open_with(options) {
        opened = Some(Arc::new(gpu));
    } else {
        on_device(options, |_| Ok(()));
    }
    opened.map(|gpu| (Device(gpu.clone()), gpu))
}

/// A limit that gives windows of 2048 elements, and slightly smaller chunks.
const SMALL: Options = Options { binding_bytes_max: 8192, ..PLAIN };

/// Runs a function on tensors of these shapes on both devices. The results agree bit for bit.
fn check(gpu: &Device, shapes: &[&[usize]], call: impl Fn(&[F]) -> Result<Vec<F>>) {
    let on = |device: &Device| -> Result<Vec<Vec<f32>>> {
        let tensor = |(i, shape): (usize, &&[usize])| {
            F::from_vec(device, ramp(shape.iter().product(), i + 1), shape.to_vec())
        };
        let tensors = shapes.iter().enumerate().map(tensor).collect::<Result<Vec<F>>>()?;
        call(&tensors)?.iter().map(Tensor::to_vec).collect()
    };
    let [expected, got] =
        [&Device::cpu(), gpu].map(|device| on(device).unwrap_or_else(|error| panic!("{error}")));
    for (expected, got) in expected.iter().zip(&got) {
        assert_same(got, expected);
    }
}

/// Checks every function with two extents.
fn check_matrices(gpu: &Device, n: usize, d: usize) {
    let (nd, dn): (&[usize], &[usize]) = (&[n, d], &[d, n]);
    check(gpu, &[nd, &[d]], |t| Ok(vec![transposed(&t[0], &t[1])?]));
    check(gpu, &[nd, nd], |t| Ok(vec![two(&t[0], &t[1])?]));
    check(gpu, &[nd, dn], |t| Ok(vec![crossed(&t[0], &t[1])?]));
    check(gpu, &[nd, &[d]], |t| Ok(vec![row(&t[0], &t[1])?]));
    check(gpu, &[&[d], &[n]], |t| Ok(vec![column(&t[0], &t[1])?]));
    check(gpu, &[&[3, n, d], &[3]], |t| Ok(vec![planes(&t[0], &t[1])?]));
    check(gpu, &[&[3, n, d]], |t| Ok(vec![interleaved(&t[0])?]));
    check(gpu, &[&[n, 2, d]], |t| Ok(vec![spread(&t[0])?]));
    check(gpu, &[nd], |t| Ok(vec![masked(&t[0])?]));
    check(gpu, &[nd, dn], |t| {
        let mut p = t[0].clone();
        in_place(&mut p, &t[1], 3.0)?;
        in_place(&mut p, &t[1], -2.0)?;
        Ok(vec![p])
    });
    check(gpu, &[nd, nd, dn], |t| {
        let (mut p, mut q) = (t[0].clone(), t[1].clone());
        both(&mut p, &mut q, &t[2])?;
        Ok(vec![p, q])
    });
}

const EXTENTS: [(usize, usize); 9] =
    [(1, 1), (3, 5), (31, 33), (64, 128), (100, 129), (257, 64), (1000, 37), (5, 4099), (4099, 5)];

#[test]
fn every_order_at_every_size() {
    let Some((device, gpu)) = device(SMALL) else { return };
    for (n, d) in EXTENTS {
        check_matrices(&device, n, d);
    }
    for [a, b, c] in [[1, 1, 1], [7, 11, 130], [130, 7, 11], [3, 1000, 5]] {
        let shapes: [&[usize]; 2] = [&[a, b, c], &[c, b, a]];
        check(&device, &shapes, |t| turned(&t[0], &t[1]).map(|(x, y)| vec![x, y]));
    }
    let windowed = gpu.pipelines.kernels().into_iter().filter(|name| name.ends_with("_windows"));
    assert!(windowed.count() >= 12, "{:?}", gpu.pipelines.kernels());
}

#[test]
fn with_uniforms_bound_and_every_check() {
    for options in [
        Options { immediate_bytes_max: 0, ..SMALL },
        Options { checks: crate::device::wgpu::Checks::Checked, ..SMALL },
        Options { groups_max: 2, ..SMALL },
    ] {
        let Some((device, _)) = device(options) else { return };
        check_matrices(&device, 100, 129);
    }
}

/// Returns the kernel of a plan that reads through windows.
fn windowed(plan: &crate::kernel::Plan) -> &Launch {
    let program = plan.programs.iter().find(|program| program.target == Target::Wgsl);
    let variants = program.map(|program| &program.steps[0].variants);
    let last = variants.and_then(|variants| variants.last()).map(|variant| &variant.launches[0]);
    last.unwrap_or_else(|| unreachable!("the plan is for all targets"))
}

#[test]
fn views_that_start_anywhere() {
    on_device(SMALL, |gpu| {
        let (n, d) = (100, 129);
        let launch = windowed(&two::PLAN);
        assert_eq!(
            launch.buffers.iter().filter(|arg| matches!(arg.footprint, Footprint::Windows(_))).count(),
            2
        );
        for offsets in [[0, 0, 0], [16, 16, 16], [272, 16, 512], [240, 4096, 32]] {
            let upload_at = |offset: usize, values: Vec<f32>| {
                upload(gpu, &[vec![1e30; offset / 4], values, vec![1e30; 8]].concat())
            };
            let memories = [
                upload_at(offsets[0], ramp(n * d, 1))?,
                upload_at(offsets[1], ramp(n * d, 2))?,
                upload_at(offsets[2], vec![7.0; n * d])?,
            ];
            let views = [0, 1, 2].map(|i| view(&memories[i], offsets[i], n * d));
            run(gpu, launch, &[n as i64, d as i64], &views)?;
            let all = download(gpu, &memories[2], 0, offsets[2] / 4 + n * d + 8)?;
            let (x, y) = (ramp(n * d, 1), ramp(n * d, 2));
            let at = |i: usize| i % n * d + i / n;
            let expected: Vec<f32> = (0..n * d).map(|i| x[at(i)] - 0.5 * y[at(i)]).collect();
            assert_same(&all[offsets[2] / 4..][..n * d], &expected);
            let outside = all[..offsets[2] / 4].iter().chain(&all[offsets[2] / 4 + n * d..]);
            assert!(outside.into_iter().all(|&x| x == 1e30), "written outside of the view");
        }
        Ok(())
    });
}

/// The number of dispatches is small: operands read at the same place share windows, and chunks skip windows
/// that they cannot need.
#[test]
fn only_windows_that_are_needed() {
    let Some((device, gpu)) = device(SMALL) else { return };
    let dispatches = |work: &dyn Fn() -> Result<F>| {
        let made =
            || gpu.recorder().map(|recorder| recorder.groups.made.load(Relaxed)).expect("none is held");
        let before = made();
        let kept = work().unwrap_or_else(|error| panic!("{error}"));
        let after = made();
        drop(kept);
        after - before
    };
    let ones =
        |shape: &[usize]| F::full(&device, 1.0, shape.to_vec()).unwrap_or_else(|error| panic!("{error}"));
    // Each tensor has four windows, and the launch has five chunks.
    let (x, y) = (ones(&[64, 128]), ones(&[64, 128]));
    assert_eq!(dispatches(&|| two(&x, &y)), 4 * 5);
    // A plane has four windows and five chunks. The first and last chunk need one window per plane, the
    // others two. The windows of all planes end at the same element.
    let x = ones(&[3, 64, 128]);
    assert_eq!(dispatches(&|| planes(&x, &ones(&[3]))), 1 + 2 + 2 + 2 + 1);
    // The windows of different planes end at different elements. A plane has 3 windows, the tensor 9.
    let x = ones(&[3, 63, 97]);
    let (few, many) = (dispatches(&|| planes(&x, &ones(&[3]))), 4 * 3 * 3 * 3);
    assert!((9..=4 * 4).contains(&few), "{few} of {many}");
    // The bias has two windows. Only the first and the last chunk need a single one.
    let (x, b) = (ones(&[2, 4096]), ones(&[4096]));
    assert_eq!(dispatches(&|| row(&x, &b)), 1 + 2 + 2 + 2 + 1);
}

/// Opens a device of an application, with the limits that WebGPU guarantees.
fn modest() -> Device {
    let context = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = pollster::block_on(context.request_adapter(&wgpu::RequestAdapterOptions::default()));
    let opened =
        adapter.map(|adapter| pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default())));
    let Ok(Ok((theirs, queue))) = opened else { panic!("there was an adapter") };
    let gpu = crate::device::wgpu::from_wgpu_with(theirs, queue, SMALL).map(Arc::new);
    Device(gpu.unwrap_or_else(|error| panic!("{error}")))
}

/// The function has more conditions than bindings, and more sums than a block has memory to combine at once.
#[test]
fn much_is_done_by_what_every_device_has() {
    let Some(_) = device(SMALL) else { return };
    let gpu = modest();
    let limits: &[&[usize]] = &[&[][..]; 16];
    check(&gpu, &[&[&[2, 300][..]], limits].concat(), |t| {
        let [x, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = t else {
            unreachable!("seventeen of them")
        };
        Ok(vec![guarded(x, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)?, moments(x)?])
    });
}

/// Each place that an element reads is a buffer, up to the number that the device binds.
#[test]
fn one_buffer_for_each_place() {
    let buffers = |plan| windowed(plan).buffers.len();
    assert_eq!([buffers(&two::PLAN), buffers(&planes::PLAN), buffers(&many::PLAN)], [3, 5, 41]);
    let Some((device, gpu)) = device(SMALL) else { return };
    let most = gpu.gpu.device.limits().max_storage_buffers_per_shader_stage;
    eprintln!("the device binds {most} buffers");
    if most >= 41 {
        check(&device, &[&[40, 131]], |t| Ok(vec![many(&t[0])?]));
    }
    let gpu = modest();
    check_matrices(&gpu, 64, 65);
    let x = F::zeros(&gpu, [40, 131]).and_then(|x| many(&x));
    match x {
        Err(error @ Error::Unsupported { .. }) => {
            let what = "binding 41 buffers at once, as `fuse_many_0_windows` needs; the most is 8";
            assert!(error.to_string().contains(what), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn positions_beyond_32_bits() {
    on_device(SMALL, |gpu| {
        let (memory, other) = (upload(gpu, &[1.0])?, upload(gpu, &[1.0])?);
        let (all, out) = (view(&memory, 0, (1 << 32) + 1), view(&other, 0, 1 << 20));
        match run(gpu, windowed(&spread::PLAN), &[1 << 10, 1 << 10], &[all, out, all]) {
            Err(error @ Error::Unsupported { .. }) => assert!(error.to_string().contains("2³²"), "{error}"),
            other => panic!("{other:?}"),
        }
        Ok(())
    });
}

#[test]
fn beyond_the_real_limit() {
    let Some((device, gpu)) = device(PLAIN) else { return };
    // 144 MB exceed the 128 MiB that software Vulkan binds.
    let (n, d) = (6001, 5999);
    let host = ramp(n * d, 1);
    let x = F::from_slice(&device, &host, [n, d]);
    let start = std::time::Instant::now();
    let got = x.and_then(|x| masked(&x)).and_then(|y| y.to_vec()).unwrap_or_else(|error| panic!("{error}"));
    eprintln!("{} MB transposed and read back in {:?}", n * d * 4 / 1_000_000, start.elapsed());
    for (i, &value) in got.iter().enumerate() {
        let (row, col) = (i % n, i / n);
        let x = host[row * d + col];
        assert_eq!(value, if row <= col { x } else { -x }, "element {i}");
    }
    eprintln!("binding limit: {} bytes", gpu.limits.binding_bytes_max);
}
