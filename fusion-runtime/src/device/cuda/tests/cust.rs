//! Devices, tensors and kernels shared with `cust`, on a GPU, real or simulated.

use std::sync::Arc;

use cust::context::{Context, ContextHandle, CurrentContext};
use cust::launch;
use cust::memory::{CopyDestination, DeviceBuffer};
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};

use super::{SCALE, gpu, scale};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Returns the context, the stream and the device of an application, if there is a GPU.
fn application() -> Option<(Context, Arc<Stream>, Device)> {
    gpu()?;
    let context = Context::new(cust::device::Device::get_device(0).unwrap()).unwrap();
    let stream = Arc::new(Stream::new(StreamFlags::NON_BLOCKING, None).unwrap());
    let device = Device::from_cust(context.clone(), Arc::clone(&stream)).unwrap();
    Some((context, stream, device))
}

fn current() -> cust::sys::CUcontext {
    let mut context = std::ptr::null_mut();
    // SAFETY: the pointer refers to a local variable.
    let code = unsafe { cust::sys::cuCtxGetCurrent(&raw mut context) };
    assert_eq!(code as i32, 0);
    context
}

#[test]
fn an_application_lends_its_context() {
    let Some((_context, stream, device)) = application() else { return };
    assert_eq!(scale(&device, 33)[32], 16.0);
    drop(device);
    stream.synchronize().unwrap();
}

#[test]
fn a_buffer_becomes_a_tensor_and_comes_back_without_a_copy() -> Result<()> {
    let Some((_context, _stream, device)) = application() else { return Ok(()) };
    let input: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let buffer = DeviceBuffer::from_slice(&input).unwrap();
    let address = buffer.as_device_ptr();
    let tensor = Tensor::from_cust(&device, buffer, [10, 100])?;
    assert_eq!(tensor.as_device_ptr()?, address);
    assert_eq!(tensor.to_vec()?, input);
    let back = tensor.into_cust()?;
    assert_eq!((back.as_device_ptr(), back.len()), (address, 1000));
    assert_eq!(back.as_host_vec().unwrap(), input);
    // The tensor frees a buffer that it keeps.
    drop(Tensor::from_cust(&device, back, [1000])?);

    let own = Tensor::from_slice(&device, &input, [1000])?;
    let address = own.as_device_ptr()?;
    let buffer = own.into_cust()?;
    assert_eq!((buffer.as_device_ptr(), buffer.as_host_vec().unwrap()), (address, input.clone()));

    // Another tensor keeps its elements.
    let own = Tensor::from_slice(&device, &input, [1000])?;
    let other = own.clone();
    let mut buffer = own.into_cust()?;
    assert_ne!(buffer.as_device_ptr(), other.as_device_ptr()?);
    buffer.copy_from(&[0.0; 1000]).unwrap();
    assert_eq!(other.to_vec()?, input);
    let mut writer = other.clone();
    assert_ne!(writer.as_device_ptr_mut()?, other.as_device_ptr()?);
    Ok(())
}

#[test]
fn shapes_and_devices_that_do_not_fit_are_errors() -> Result<()> {
    let Some((_context, _stream, device)) = application() else { return Ok(()) };
    let buffer = || DeviceBuffer::from_slice(&[1.0_f32; 6]).unwrap();
    let error = Tensor::from_cust(&device, buffer(), [2, 4]).unwrap_err();
    assert!(matches!(error, Error::Shape { elements: 6, .. }), "{error}");
    let error = Tensor::from_cust(&Device::cpu(), buffer(), [2, 3]).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let error = Tensor::full(&Device::cpu(), 1.0_f32, [3])?.into_cust().unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    // SAFETY: the buffer has no elements.
    let none = unsafe { DeviceBuffer::<f32>::uninitialized(0) }.unwrap();
    let tensor = Tensor::from_cust(&device, none, [0, 3])?;
    assert!(tensor.to_vec()?.is_empty());
    assert_eq!(tensor.into_cust()?.len(), 0);
    Ok(())
}

/// Kernels of the application and of the device wait for each other on the stream that both use.
#[test]
fn work_on_one_stream_is_ordered() -> Result<()> {
    let Some((_context, stream, device)) = application() else { return Ok(()) };
    let module = Module::from_ptx(SCALE, &[]).unwrap();
    let function = module.get_function("scale").unwrap();
    let count = 100_000_u32;
    let mut x = Tensor::full(&device, 1.0_f32, [count as usize])?;
    for _ in 0..10 {
        let (from, to) = (x.as_device_ptr()?, x.as_device_ptr_mut()?);
        // SAFETY: both addresses are those of `count` elements, and the tensor outlives the wait at the end.
        unsafe {
            launch!(function<<<32, 256, 0, stream>>>(from.as_raw(), to.as_raw(), 3.0_f32, 0_u32, count))
                .unwrap();
        }
        // A copy of the device's own.
        x = x.clone();
        x.as_device_ptr_mut()?;
    }
    assert!(x.to_vec()?.iter().all(|x| *x == 3.0_f32.powi(10)));
    Ok(())
}

#[test]
fn a_thread_keeps_the_context_that_it_had() -> Result<()> {
    let Some((context, _stream, device)) = application() else { return Ok(()) };
    CurrentContext::set_current(&context).unwrap();
    scale(&device, 10);
    assert_eq!(current(), context.get_inner());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            assert!(current().is_null(), "a new thread has no context");
            scale(&device, 10);
            assert!(current().is_null(), "calls leave none");
        });
        thread.join().unwrap();
    });
    Ok(())
}
