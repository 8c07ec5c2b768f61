//! Contexts, streams and buffers of applications that use the driver through `cust`.
//!
//! A program with the feature `cust` links the driver, so it starts only where `libcuda.so.1` is installed.

use std::sync::Arc;

use cust::context::Context;
use cust::memory::{DeviceBuffer, DeviceCopy, DevicePointer};
use cust::stream::Stream;

use crate::device::{Device, Memory, of_application};
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tensor::{Element, RawTensor, Tensor, sized};

impl Device {
    /// Wraps the context of an application that uses `cust` itself. The device's work goes to `stream`, so it is
    /// ordered with the application's work there.
    ///
    /// Calls make the context current on their thread, and then restore the context that was current before, or
    /// none.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if the driver refuses a query about the context; [`Error::NoDriver`] if the driver lacks
    /// a function.
    pub fn from_cust(context: Context, stream: Arc<Stream>) -> Result<Device> {
        of_application(context, stream)
    }
}

impl<T: Element + DeviceCopy> Tensor<T> {
    /// Makes a tensor of a buffer, without a copy. The buffer belongs to the context of `device`.
    ///
    /// Work that the application has queued on another stream than the device's must be done, or the stream must
    /// wait for it.
    ///
    /// # Errors
    /// `Error::Shape` if the buffer has another number of elements than the shape; `Error::Unsupported` if the
    /// device is not a CUDA device.
    pub fn from_cust(device: &Device, buffer: DeviceBuffer<T>, shape: impl Into<Shape>) -> Result<Tensor<T>> {
        let shape = shape.into();
        let (len, bytes) = sized(&shape, size_of::<T>())?;
        if len != buffer.len() {
            return Err(Error::Shape { elements: buffer.len(), shape });
        }
        if len == 0 {
            return Tensor::zeros(device, shape);
        }
        let memory = device.0.adopt_cuda(buffer.as_device_ptr().as_raw(), bytes)?;
        // The memory frees the buffer in its place.
        std::mem::forget(buffer);
        Tensor::from_raw(RawTensor::of_memory(device, memory, T::DTYPE, (shape, len)))
    }

    /// Returns the elements as a buffer, without a copy if no other tensor shares their memory. Dropping the buffer
    /// frees the memory.
    ///
    /// Work on the tensor is queued on the device's stream: other streams must wait for it.
    ///
    /// # Errors
    /// `Error::OutOfMemory` for the copy of shared memory; `Error::Unsupported` if the device is not a CUDA device.
    pub fn into_cust(self) -> Result<DeviceBuffer<T>> {
        let (len, device) = (self.len(), self.device().clone());
        let Memory::Cuda(memory) = self.into_raw().into_memory()? else { return Err(unsupported(&device)) };
        let pointer = DevicePointer::from_raw(memory.into_address());
        // SAFETY: the memory is an allocation of the driver with at least `len` elements, and has no other owner.
        Ok(unsafe { DeviceBuffer::from_raw_parts(pointer, len) })
    }

    /// Returns the address of the first element, for kernels that the application launches on the device's stream
    /// to read. The tensor must live until such a kernel is done.
    ///
    /// # Errors
    /// `Error::Unsupported` if the device is not a CUDA device.
    pub fn as_device_ptr(&self) -> Result<DevicePointer<T>> {
        let region = self.as_raw().region();
        let Memory::Cuda(memory) = region.memory else { return Err(unsupported(self.device())) };
        Ok(DevicePointer::from_raw(memory.address(region.offset)))
    }

    /// Returns the address of the first element, for kernels that write. A tensor that shares its memory gets memory
    /// of its own first.
    ///
    /// # Errors
    /// The errors of `as_device_ptr`; `Error::OutOfMemory` for the copy of shared memory.
    pub fn as_device_ptr_mut(&mut self) -> Result<DevicePointer<T>> {
        self.as_raw_mut().make_unique()?;
        self.as_device_ptr()
    }
}

fn unsupported(device: &Device) -> Error {
    Error::Unsupported { device: device.name().into(), what: "a buffer of cust".into() }
}
