//! Tensors: contiguous elements on a device.
//!
//! Invariant: a `&mut` tensor writes its memory only while no other tensor shares it. A write to shared
//! memory copies first.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};
use std::thread::{self, ThreadId};

use fusion_compiler::ir::dtype::DType;

use crate::device::{Device, Memory, Region};
use crate::error::{Error, Result};
use crate::kernel::ScalarValue;
use crate::shape::Shape;

/// Element type of a tensor. The trait is sealed: `f32`, `f16`, `bf16`, `f64`, `i32`, `u32`, `i16`, `u16`,
/// `i8`, `u8` and `bool` implement it.
pub trait Element: Copy + Default + PartialEq + fmt::Debug + Send + Sync + sealed::Sealed + 'static {
    /// The dtype in the language.
    const DTYPE: DType;
}

/// Element type of a generic function: `f32`, `f16` or `bf16`.
pub trait Float: Element {
    /// Converts a number to the nearest value of this type, ties to even.
    fn from_f32(x: f32) -> Self;

    /// Converts the value to `f32`, which is exact.
    fn to_f32(self) -> f32;
}

impl Float for f32 {
    fn from_f32(x: f32) -> f32 {
        x
    }

    fn to_f32(self) -> f32 {
        self
    }
}

macro_rules! halves {
    ($($half:ty),*) => { $(
        impl Float for $half {
            fn from_f32(x: f32) -> $half {
                <$half>::from_f32(x)
            }

            fn to_f32(self) -> f32 {
                <$half>::to_f32(self)
            }
        }
    )* };
}

halves!(half::f16, half::bf16);

mod sealed {
    use crate::error::Result;
    use crate::kernel::ScalarValue;

    /// Conversion between elements and bytes, in the byte order of the machine.
    pub trait Sealed: Sized {
        /// Returns the bytes of elements.
        fn bytes(elements: &[Self]) -> &[u8];

        /// Fills elements with the bytes that `read` writes.
        fn fill(elements: &mut [Self], read: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()>;

        /// Returns the number in the type of the computation.
        fn scalar(self) -> ScalarValue;
    }
}

macro_rules! elements {
    ($($element:ty = $dtype:ident, $kind:ident;)*) => { $(
        impl sealed::Sealed for $element {
            fn bytes(elements: &[Self]) -> &[u8] {
                bytemuck::cast_slice(elements)
            }

            fn fill(elements: &mut [Self], read: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
                read(bytemuck::cast_slice_mut(elements))
            }

            fn scalar(self) -> ScalarValue {
                ScalarValue::$kind(self.into())
            }
        }

        impl Element for $element {
            const DTYPE: DType = DType::$dtype;
        }
    )* };
}

elements! {
    f32 = F32, F32;
    half::f16 = F16, F32;
    half::bf16 = BF16, F32;
    f64 = F64, F64;
    i32 = I32, I32;
    u32 = U32, U32;
    i16 = I16, I32;
    u16 = U16, U32;
    i8 = I8, I32;
    u8 = U8, U32;
}

impl sealed::Sealed for bool {
    fn bytes(elements: &[bool]) -> &[u8] {
        bytemuck::cast_slice(elements)
    }

    fn fill(elements: &mut [bool], read: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        // A byte may have any value, but a `bool` has one of two.
        let mut bytes = vec![0; elements.len()];
        read(&mut bytes)?;
        elements.iter_mut().zip(bytes).for_each(|(element, byte)| *element = byte != 0);
        Ok(())
    }

    fn scalar(self) -> ScalarValue {
        ScalarValue::Bool(self)
    }
}

impl Element for bool {
    const DTYPE: DType = DType::Bool;
}

/// Returns the number of elements and of bytes of a tensor of this shape.
///
/// # Errors
/// `Error::TooLarge` if either is too large to address.
pub(crate) fn sized(shape: &Shape, element_bytes: usize) -> Result<(usize, usize)> {
    shape.size(element_bytes).ok_or_else(|| Error::TooLarge { shape: shape.clone() })
}

/// A tensor: contiguous elements of one type on one device, in row-major order.
///
/// Cloning shares the memory in O(1). A function that updates one of two sharing tensors in place copies its
/// memory first.
#[derive(Clone)]
pub struct Tensor<T: Element> {
    raw: RawTensor,
    element: PhantomData<T>,
}

/// A tensor whose element type is a run-time value.
#[doc(hidden)]
#[derive(Debug)]
pub struct RawTensor {
    memory: Arc<Memory>,
    device: Device,
    /// Offset of the first element in the memory, in bytes: a multiple of 16.
    offset: usize,
    /// Number of elements.
    len: usize,
    shape: Shape,
    dtype: DType,
    /// Lease of a lent part. While the lease lives, the tensor it was taken from waits, and this thread may
    /// not write it.
    lease: Option<Weak<ThreadId>>,
}

/// A clone shares the memory. A clone does not inherit the lease.
impl Clone for RawTensor {
    fn clone(&self) -> RawTensor {
        let RawTensor { memory, device, offset, len, shape, dtype, lease: _ } = self;
        let (memory, device, shape) = (memory.clone(), device.clone(), shape.clone());
        RawTensor { memory, device, offset: *offset, len: *len, shape, dtype: *dtype, lease: None }
    }
}

/// A value that `fuse!` can capture as a tensor: a tensor, by value or by reference.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`fuse!` expects a `Tensor<{T}>` here, found `{Self}`",
    label = "not a `Tensor<{T}>`",
    note = "a number is written `scalar(…)`, an element of a list `{{xs[1]}}`; another element type comes first, as in `fuse!(i32: …)`"
)]
pub trait AsTensor<T: Element> {
    /// Returns the tensor.
    fn as_tensor(&self) -> &Tensor<T>;
}

#[diagnostic::do_not_recommend]
impl<T: Element> AsTensor<T> for Tensor<T> {
    fn as_tensor(&self) -> &Tensor<T> {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<T: Element, A: AsTensor<T> + ?Sized> AsTensor<T> for &A {
    fn as_tensor(&self) -> &Tensor<T> {
        (**self).as_tensor()
    }
}

#[diagnostic::do_not_recommend]
impl<T: Element, A: AsTensor<T> + ?Sized> AsTensor<T> for &mut A {
    fn as_tensor(&self) -> &Tensor<T> {
        (**self).as_tensor()
    }
}

impl<T: Element> Tensor<T> {
    /// Returns a tensor with a copy of `elements`, in row-major order.
    ///
    /// # Errors
    /// `Error::Shape` if the number of elements differs from the shape's; `Error::TooLarge`;
    /// `Error::OutOfMemory`.
    pub fn from_slice(device: &Device, elements: &[T], shape: impl Into<Shape>) -> Result<Tensor<T>> {
        let shape = shape.into();
        if shape.count() != Some(elements.len()) {
            return Err(Error::Shape { elements: elements.len(), shape });
        }
        let tensor = Tensor::wrap(RawTensor::allocate(device, T::DTYPE, shape)?);
        if !elements.is_empty() {
            device.0.write(&tensor.raw.memory, 0, T::bytes(elements))?;
        }
        Ok(tensor)
    }

    /// Returns a tensor with `elements`, in row-major order.
    ///
    /// # Errors
    /// The errors of `from_slice`.
    pub fn from_vec(device: &Device, elements: Vec<T>, shape: impl Into<Shape>) -> Result<Tensor<T>> {
        Tensor::from_slice(device, &elements, shape)
    }

    /// Returns a tensor of zeros.
    ///
    /// # Errors
    /// `Error::TooLarge`; `Error::OutOfMemory`.
    pub fn zeros(device: &Device, shape: impl Into<Shape>) -> Result<Tensor<T>> {
        Tensor::full(device, T::default(), shape)
    }

    /// Returns a tensor with `value` in every element.
    ///
    /// # Errors
    /// `Error::TooLarge`; `Error::OutOfMemory`.
    pub fn full(device: &Device, value: T, shape: impl Into<Shape>) -> Result<Tensor<T>> {
        /// Elements copied at a time. Chunks avoid a second tensor on the host.
        const CHUNK: usize = 1 << 18;
        let tensor = Tensor::wrap(RawTensor::allocate(device, T::DTYPE, shape.into())?);
        let chunk = vec![value; tensor.len().min(CHUNK)];
        for start in (0..tensor.len()).step_by(CHUNK) {
            let part = &chunk[..(tensor.len() - start).min(CHUNK)];
            device.0.write(&tensor.raw.memory, start * size_of::<T>(), T::bytes(part))?;
        }
        Ok(tensor)
    }

    /// Wraps the first bytes of an application's buffer as a tensor, without a copy.
    ///
    /// The buffer must belong to the device of `Device::from_wgpu`. The buffer needs the usages `STORAGE`,
    /// `COPY_SRC` and `COPY_DST`, and a size that is a multiple of 16 bytes. A call submits its work to the
    /// queue before it returns. Commands that the application submits or writes after the call run after that
    /// work.
    ///
    /// # Errors
    /// `Error::Unsupported` if the buffer does not meet these conditions, or the device is not a wgpu device;
    /// `Error::Shape` if the elements do not fit in the buffer.
    #[cfg(feature = "wgpu")]
    pub fn from_wgpu_buffer(
        device: &Device,
        buffer: wgpu::Buffer,
        shape: impl Into<Shape>,
    ) -> Result<Tensor<T>> {
        let shape = shape.into();
        let (len, bytes) = sized(&shape, size_of::<T>())?;
        if bytes as u64 > buffer.size() {
            return Err(Error::Shape { elements: buffer.size() as usize / size_of::<T>(), shape });
        }
        let memory = device.0.adopt(buffer)?;
        Ok(Tensor::wrap(RawTensor::of_memory(device, memory, T::DTYPE, (shape, len))))
    }

    /// Waits for the elements and copies them to the host, in row-major order.
    ///
    /// # Errors
    /// Any failure on the device since the last read, and `Error::DeviceLost`.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut elements = vec![T::default(); self.len()];
        self.copy_to_slice(&mut elements)?;
        Ok(elements)
    }

    /// Waits for the elements and copies them into a slice of the same length.
    ///
    /// # Errors
    /// `Error::Shape` if the lengths differ; the errors of `to_vec`.
    pub fn copy_to_slice(&self, elements: &mut [T]) -> Result<()> {
        if elements.len() != self.len() {
            return Err(Error::Shape { elements: elements.len(), shape: self.shape().clone() });
        }
        T::fill(elements, |bytes| self.raw.read(bytes))
    }

    /// Waits for the element of a one-element tensor and returns it.
    ///
    /// # Errors
    /// `Error::NotOne` if the tensor has another number of elements; the errors of `to_vec`.
    pub fn item(&self) -> Result<T> {
        if self.len() != 1 {
            return Err(Error::NotOne { shape: self.shape().clone() });
        }
        let mut element = [T::default()];
        self.copy_to_slice(&mut element)?;
        Ok(element[0])
    }

    /// Returns the extents, outermost first.
    pub fn shape(&self) -> &Shape {
        &self.raw.shape
    }

    /// Returns the device of the tensor.
    pub fn device(&self) -> &Device {
        &self.raw.device
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.raw.len
    }

    /// Returns true if the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the same elements in another shape. Both tensors share the memory.
    ///
    /// # Errors
    /// `Error::Shape` if the shape has another number of elements.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Tensor<T>> {
        let shape = shape.into();
        if shape.count() != Some(self.len()) || shape.size(size_of::<T>()).is_none() {
            return Err(Error::Shape { elements: self.len(), shape });
        }
        Ok(Tensor::wrap(RawTensor { shape, ..self.raw.clone() }))
    }

    /// Returns the tensor on another device. The memory is shared if `device` is the tensor's own, else
    /// copied through the host.
    ///
    /// # Errors
    /// The errors of `to_vec` and `from_slice`.
    pub fn to(&self, device: &Device) -> Result<Tensor<T>> {
        if device == self.device() {
            return Ok(self.clone());
        }
        Tensor::from_vec(device, self.to_vec()?, self.shape())
    }

    /// Returns the elements from `start` on as a tensor of this shape, which shares the memory.
    ///
    /// The range must be within the tensor and start at a multiple of 16 bytes.
    pub(crate) fn part(&self, start: usize, shape: Shape) -> Tensor<T> {
        let len = shape.count().unwrap_or(usize::MAX);
        assert!(len <= self.len() && start <= self.len() - len, "a part is within the whole");
        let offset = self.raw.offset + start * size_of::<T>();
        assert!(offset.is_multiple_of(16), "a part is aligned");
        Tensor::wrap(RawTensor { shape, len, offset, ..self.raw.clone() })
    }

    /// Lends the elements from `start` on to `write`, which updates them in place. If `write` replaces the
    /// lent tensor, the replacement is copied back.
    ///
    /// # Errors
    /// The errors of `write`; `Error::OutOfMemory`; `Error::Shape` if `write` leaves a tensor of another
    /// shape.
    pub(crate) fn lend<R>(
        &mut self,
        start: usize,
        shape: Shape,
        write: impl FnOnce(&mut Tensor<T>) -> Result<R>,
    ) -> Result<R> {
        self.raw.make_unique()?;
        let lease = Arc::new(thread::current().id());
        let mut part = self.part(start, shape);
        part.raw.lease = Some(Arc::downgrade(&lease));
        let (offset, shape) = (part.raw.offset, part.shape().clone());
        let result = write(&mut part)?;
        drop(lease);
        let in_place = Arc::ptr_eq(&part.raw.memory, &self.raw.memory) && part.raw.offset == offset;
        if *part.shape() != shape {
            return Err(Error::Shape { elements: part.len(), shape });
        }
        if !in_place {
            self.copy_into(start, &part)?;
        }
        Ok(result)
    }

    /// Copies the elements of another tensor to `start`. The range must be within the tensor.
    pub(crate) fn copy_into(&mut self, start: usize, from: &Tensor<T>) -> Result<()> {
        assert!(from.len() <= self.len() && start <= self.len() - from.len(), "there is room");
        if from.is_empty() {
            return Ok(());
        }
        self.raw.make_unique()?;
        let (to, bytes) = (self.raw.offset + start * size_of::<T>(), from.len() * size_of::<T>());
        if from.device() == self.device() {
            let from = (&*from.raw.memory, from.raw.offset);
            return self.raw.device.0.copy(from, (&self.raw.memory, to), bytes);
        }
        let here = Tensor::from_vec(self.device(), from.to_vec()?, from.shape().clone())?;
        self.copy_into(start, &here)
    }

    /// Returns the untyped tensor, whose element type is a run-time value.
    #[doc(hidden)]
    pub fn as_raw(&self) -> &RawTensor {
        &self.raw
    }

    /// Converts the tensor to the untyped tensor.
    #[cfg(any(feature = "cust", feature = "graph"))]
    pub(crate) fn into_raw(self) -> RawTensor {
        self.raw
    }

    /// Returns the untyped tensor for writing. A replacement must have the same element type.
    #[doc(hidden)]
    pub(crate) fn as_raw_mut(&mut self) -> &mut RawTensor {
        &mut self.raw
    }

    /// Converts an untyped tensor to this element type.
    ///
    /// # Errors
    /// `Error::Dtype` if the tensor has another element type.
    #[doc(hidden)]
    pub fn from_raw(raw: RawTensor) -> Result<Tensor<T>> {
        if raw.dtype != T::DTYPE {
            return Err(Error::Dtype {
                what: String::from("the result"),
                expected: T::DTYPE,
                got: raw.dtype,
            });
        }
        Ok(Tensor::wrap(raw))
    }

    fn wrap(raw: RawTensor) -> Tensor<T> {
        Tensor { raw, element: PhantomData }
    }
}

impl<T: Element> fmt::Debug for Tensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor<{}>({}, {})", T::DTYPE, self.shape(), self.device().name())
    }
}

impl RawTensor {
    /// Allocates a tensor with unspecified elements.
    pub(crate) fn allocate(device: &Device, dtype: DType, shape: Shape) -> Result<RawTensor> {
        let (len, bytes) = sized(&shape, dtype.size())?;
        let memory = device.0.allocate(bytes)?;
        Ok(RawTensor::of_memory(device, memory, dtype, (shape, len)))
    }

    /// Makes a tensor of memory with the elements of a shape, and no other owner.
    pub(crate) fn of_memory(
        device: &Device,
        memory: Memory,
        dtype: DType,
        (shape, len): (Shape, usize),
    ) -> RawTensor {
        let (memory, device) = (Arc::new(memory), device.clone());
        RawTensor { memory, device, offset: 0, len, shape, dtype, lease: None }
    }

    /// Returns the memory, which starts with the first element. The elements are copied if other tensors share the
    /// memory.
    #[cfg(feature = "cust")]
    pub(crate) fn into_memory(self) -> Result<Memory> {
        let RawTensor { memory, device, offset, len, dtype, .. } = self;
        let own = if offset == 0 { Arc::try_unwrap(memory) } else { Err(memory) };
        own.or_else(|shared| device.0.duplicate((&shared, offset), len * dtype.size()))
    }

    /// Returns the element type.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the extents, outermost first.
    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the device of the tensor.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the memory of the tensor for a launch.
    pub(crate) fn region(&self) -> Region<'_> {
        Region { memory: &self.memory, offset: self.offset, len: self.len }
    }

    /// Returns true if the two tensors have bytes in common.
    pub(crate) fn overlaps(&self, other: &RawTensor) -> bool {
        let end = |tensor: &RawTensor| tensor.offset + tensor.len * tensor.dtype.size();
        let (start, end) = (self.offset.max(other.offset), end(self).min(end(other)));
        start < end && self.memory.is_same(&other.memory)
    }

    /// Gives the tensor memory of its own if the memory is shared, and copies the elements.
    pub(crate) fn make_unique(&mut self) -> Result<()> {
        if !self.is_unique() {
            let bytes = self.len * self.dtype.size();
            let memory = Arc::new(self.device.0.duplicate((&self.memory, self.offset), bytes)?);
            *self = RawTensor { memory, offset: 0, lease: None, ..self.clone() };
        }
        Ok(())
    }

    /// Takes the elements of another tensor of the same shape, by taking its memory. External memory receives
    /// a copy instead.
    pub(crate) fn replace(&mut self, new: RawTensor) -> Result<()> {
        if !self.is_replaced_by_copy() {
            *self = new;
            return Ok(());
        }
        let bytes = self.len * self.dtype.size();
        self.device.0.copy((&new.memory, new.offset), (&self.memory, self.offset), bytes)
    }

    /// Returns true if `replace` copies into the tensor's memory. The owner of external memory must see the
    /// new elements.
    pub(crate) fn is_replaced_by_copy(&self) -> bool {
        self.memory.is_external() && self.is_unique() && self.len > 0
    }

    /// Gives the tensor memory of its own if the memory is shared. The elements are unspecified afterwards.
    pub(crate) fn make_unique_uninit(&mut self) -> Result<()> {
        if !self.is_unique() {
            *self = RawTensor::allocate(&self.device, self.dtype, self.shape.clone())?;
        }
        Ok(())
    }

    /// Returns true if no other tensor uses the memory. A tensor that waits for its lent part does not count.
    pub(crate) fn is_unique(&self) -> bool {
        // The lender may write again at any time from the point of view of another thread.
        let lent_here = |lease: Arc<ThreadId>| *lease == thread::current().id();
        let waits = self.lease.as_ref().and_then(Weak::upgrade).is_some_and(lent_here);
        let is_unique = Arc::strong_count(&self.memory) == 1 + usize::from(waits);
        // Reads by other threads, before they released the memory, happen before the writes that follow.
        fence(Ordering::Acquire);
        is_unique
    }

    fn read(&self, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.device.0.read(&self.memory, self.offset, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lender may read its tensor while the other thread still works.
    #[test]
    fn what_is_lent_is_written_in_place_by_the_thread_that_it_is_lent_to() -> Result<()> {
        let mut all = Tensor::<f32>::zeros(&Device::cpu(), [8])?;
        all.lend(4, Shape::from([4]), |part| {
            let elsewhere = thread::scope(|scope| scope.spawn(|| part.raw.is_unique()).join());
            assert_eq!((part.raw.is_unique(), elsewhere.ok()), (true, Some(false)));
            Ok(())
        })
    }
}
