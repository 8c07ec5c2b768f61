//! Devices and buffers of an application.
#![cfg(feature = "wgpu")]

use fusion::prelude::*;
use pollster::block_on;
use wgpu::BufferUsages;

fuse! {
    pub(crate) fn both(a: &mut f32[N], b: &mut f32[N]) { a += 1.0; b += 10.0; }
    pub(crate) fn add_transposed(x: &mut f32[N, M], y: f32[M, N]) { x += y; }
    pub(crate) fn shifted(p: &mut f32[N, M]) -> f32[M, N] {
        let old = p;
        p = old + 1.0;
        old * 2.0
    }
    pub(crate) fn turned(p: &mut u8[N]) { p = flip(p, N); }
    #[fuse(off)]
    pub(crate) fn negated(a: f32[N], b: f32[N]) -> (f32[N], f32[N]) { (-a, -b) }
}

const ELEMENTS: usize = 16;

/// The device and queue of an application, and their wrapper.
struct Application {
    device: wgpu::Device,
    queue: wgpu::Queue,
    ours: Device,
}

fn application() -> Option<Application> {
    let instance = wgpu::Instance::default();
    let Ok(adapter) = block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default())) else {
        assert!(std::env::var_os("FUSION_REQUIRE_WGPU").is_none_or(|value| value != "1"), "no adapter");
        eprintln!("SKIPPED on wgpu: no adapter");
        return None;
    };
    let (device, queue) =
        block_on(adapter.request_device(&wgpu::DeviceDescriptor::default())).expect("a device");
    let ours = Device::from_wgpu(device.clone(), queue.clone()).expect("it has what is needed");
    Some(Application { device, queue, ours })
}

impl Application {
    /// Returns a buffer of 0, 1, 2, …
    fn buffer(&self) -> wgpu::Buffer {
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let size = (ELEMENTS * size_of::<f32>()) as u64;
        let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        let buffer = self.device.create_buffer(&descriptor);
        let elements: Vec<u8> = (0..ELEMENTS).flat_map(|i| (i as f32).to_le_bytes()).collect();
        self.queue.write_buffer(&buffer, 0, &elements);
        buffer
    }

    fn tensor(&self, buffer: &wgpu::Buffer, shape: impl Into<Shape>) -> Tensor<f32> {
        Tensor::from_wgpu_buffer(&self.ours, buffer.clone(), shape).expect("the buffer fits")
    }
}

#[test]
fn what_is_written_is_in_the_buffer() {
    let Some(application) = application() else { return };
    let buffer = application.buffer();
    let mut p = application.tensor(&buffer, [4, 4]);
    // The old value is read in another order, so the new value is written elsewhere and copied back.
    let doubled = shifted(&mut p).expect("it runs");
    assert_eq!(doubled.to_vec().expect("it can be read")[..3], [0.0, 8.0, 16.0]);
    let seen = application.tensor(&buffer, [ELEMENTS]).to_vec().expect("it can be read");
    assert_eq!(seen, (1..=ELEMENTS).map(|i| i as f32).collect::<Vec<_>>());
}

/// Commands that the application writes or submits after a call run after the call.
#[test]
fn the_application_goes_on_where_a_call_ended() {
    let Some(application) = application() else { return };
    let buffer = application.buffer();
    let mut p = application.tensor(&buffer, [4, 4]);
    let doubled = shifted(&mut p).expect("it runs");
    let after = application.device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: buffer.size(),
        usage: BufferUsages::COPY_DST | BufferUsages::MAP_READ,
        mapped_at_creation: false,
    });
    let mut encoder = application.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encoder.copy_buffer_to_buffer(&buffer, 0, &after, 0, buffer.size());
    application.queue.submit([encoder.finish()]);
    after.map_async(wgpu::MapMode::Read, .., |mapped| mapped.expect("it can be mapped"));
    application.device.poll(wgpu::PollType::wait_indefinitely()).expect("the device works");
    let seen: Vec<u8> = after.get_mapped_range(..).expect("it is mapped").to_vec();
    let expected: Vec<u8> = (1..=ELEMENTS).flat_map(|i| (i as f32).to_le_bytes()).collect();
    assert_eq!(seen, expected);
    // The call reads the buffer before it is written again.
    let copy = shifted(&mut p).expect("it runs");
    application.queue.write_buffer(&buffer, 0, &[0; 4 * ELEMENTS]);
    assert_eq!(doubled.to_vec().expect("it can be read")[..3], [0.0, 8.0, 16.0]);
    assert_eq!(copy.to_vec().expect("it can be read")[..3], [2.0, 10.0, 18.0]);
    assert_eq!(p.to_vec().expect("it can be read"), [0.0; ELEMENTS]);
}

/// The order also applies to a call without copies.
#[test]
fn what_is_read_alone_is_read_before_it_is_written() {
    let Some(application) = application() else { return };
    let (first, second) = (application.buffer(), application.buffer());
    let [a, b] = [&first, &second].map(|buffer| application.tensor(buffer, [ELEMENTS]));
    let (old, _) = negated(&a, &b).expect("it runs");
    application.queue.write_buffer(&first, 0, &[0; 4 * ELEMENTS]);
    assert_eq!(old.to_vec().expect("it can be read")[..3], [0.0, -1.0, -2.0]);
}

/// A destroyed buffer makes the device unusable, and the error does not suggest a retry.
#[test]
fn a_buffer_that_is_destroyed_is_the_end_of_the_device() {
    let Some(application) = application() else { return };
    let (first, second) = (application.buffer(), application.buffer());
    let (mut a, mut b) = (application.tensor(&first, [ELEMENTS]), application.tensor(&second, [ELEMENTS]));
    // The bind group is cached by an earlier call.
    both(&mut a, &mut b).expect("it runs");
    second.destroy();
    let error = both(&mut a, &mut b);
    assert!(matches!(error, Err(Error::DeviceLost { .. })), "{error:?}");
}

#[test]
fn one_buffer_under_two_names_is_refused() {
    let Some(application) = application() else { return };
    let buffer = application.buffer();
    let (mut a, mut b) = (application.tensor(&buffer, [ELEMENTS]), application.tensor(&buffer, [ELEMENTS]));
    let error = both(&mut a, &mut b).expect_err("two writers");
    assert!(matches!(error, Error::Alias { .. }), "{error}");
    let (mut x, y) = (application.tensor(&buffer, [4, 4]), application.tensor(&buffer, [4, 4]));
    let error = add_transposed(&mut x, &y).expect_err("read at another index");
    assert!(matches!(error, Error::Alias { .. }), "{error}");
    let other = application.buffer();
    let mut b = application.tensor(&other, [ELEMENTS]);
    both(&mut a, &mut b).expect("two buffers");
}

/// The same applies to a buffer that one kernel writes and another reads.
#[test]
fn one_buffer_of_several_kernels_is_refused() {
    let Some(application) = application() else { return };
    let (buffer, other) = (application.buffer(), application.buffer());
    let [b, mut first] = [(); 2].map(|()| application.tensor(&buffer, [ELEMENTS]));
    let a = application.tensor(&other, [ELEMENTS]);
    let mut second = Tensor::zeros(&application.ours, [ELEMENTS]).expect("there is memory");
    let error = negated::into(&mut first, &mut second, &a, &b).expect_err("one is read after it is written");
    assert!(error.to_string().contains("`out_0` is written but shares memory with `b`"), "{error}");
    assert_eq!(b.to_vec().expect("it can be read")[1], 1.0, "nothing ran");
}

/// The tensors have bytes as elements, and a length that is no multiple of four. The bytes after them do not
/// change.
#[test]
fn what_is_behind_a_tensor_is_left_alone() {
    let Some(application) = application() else { return };
    for len in [1, 2, 3, 5, 8] {
        let buffer = application.buffer();
        let bytes: Vec<u8> = (0..64).collect();
        application.queue.write_buffer(&buffer, 0, &bytes);
        let of = |len: usize| Tensor::<u8>::from_wgpu_buffer(&application.ours, buffer.clone(), [len]);
        let mut p = of(len).expect("it fits");
        turned(&mut p).expect("it runs");
        let expected: Vec<u8> = bytes[..len].iter().rev().chain(&bytes[len..]).copied().collect();
        assert_eq!(of(64).expect("it fits").to_vec().expect("it can be read"), expected, "{len}");
    }
}
