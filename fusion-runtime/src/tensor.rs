//! Tensors: contiguous elements on a device.
//!
//! Invariant: memory is written only through a `&mut` tensor that alone holds it; sharing is undone first.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};
use std::thread::{self, ThreadId};

use fusion_compiler::ir::dtype::DType;

use crate::device::{Device, Memory, Region};
use crate::error::{Error, Result};
use crate::run::Arg;
use crate::shape::Shape;

/// A type that tensors store. Sealed: `f32`, `f16`, `bf16`, `f64`, `i32`, `u32`, `i16`, `u16`, `i8`,
/// `u8` and `bool`.
pub trait Element: Copy + Default + PartialEq + fmt::Debug + Send + Sync + sealed::Sealed + 'static {
    /// Its name in the language.
    const DTYPE: DType;
}

/// A type that generic functions take: `f32`, `f16` or `bf16`.
pub trait Float: Element + Into<Arg<'static>> {
    /// The nearest number, of two the one whose last bit is 0.
    fn from_f32(x: f32) -> Self;

    /// The number itself.
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

    /// Elements as bytes, in the order of the machine.
    pub trait Sealed: Sized {
        /// The bytes of elements.
        fn bytes(elements: &[Self]) -> &[u8];

        /// Elements of the bytes that are read.
        fn fill(elements: &mut [Self], read: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()>;
    }
}

macro_rules! elements {
    ($($element:ty = $dtype:ident;)*) => { $(
        impl sealed::Sealed for $element {
            fn bytes(elements: &[Self]) -> &[u8] {
                bytemuck::cast_slice(elements)
            }

            fn fill(elements: &mut [Self], read: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
                read(bytemuck::cast_slice_mut(elements))
            }
        }

        impl Element for $element {
            const DTYPE: DType = DType::$dtype;
        }
    )* };
}

elements! {
    f32 = F32;
    half::f16 = F16;
    half::bf16 = BF16;
    f64 = F64;
    i32 = I32;
    u32 = U32;
    i16 = I16;
    u16 = U16;
    i8 = I8;
    u8 = U8;
}

impl sealed::Sealed for bool {
    fn bytes(elements: &[bool]) -> &[u8] {
        bytemuck::cast_slice(elements)
    }

    fn fill(elements: &mut [bool], read: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        // Whatever the memory holds, a truth value is one of two.
        let mut bytes = vec![0; elements.len()];
        read(&mut bytes)?;
        elements.iter_mut().zip(bytes).for_each(|(element, byte)| *element = byte != 0);
        Ok(())
    }
}

impl Element for bool {
    const DTYPE: DType = DType::Bool;
}

/// Contiguous elements of one type on one device, row by row.
///
/// Cloning shares the memory in O(1); a function that then writes one of the two in place copies it first.
#[derive(Clone)]
pub struct Tensor<T: Element> {
    raw: RawTensor,
    element: PhantomData<T>,
}

/// A tensor whose element type is a value.
#[doc(hidden)]
#[derive(Debug)]
pub struct RawTensor {
    memory: Arc<Memory>,
    device: Device,
    /// First byte in the memory; a multiple of 16.
    offset: usize,
    /// Elements.
    len: usize,
    shape: Shape,
    dtype: DType,
    /// While this lives, the tensor whose part this is waits and may not be written, in this thread.
    lease: Option<Weak<ThreadId>>,
}

/// A clone shares the memory, and leaves a lease to the original.
impl Clone for RawTensor {
    fn clone(&self) -> RawTensor {
        let RawTensor { memory, device, offset, len, shape, dtype, lease: _ } = self;
        let (memory, device, shape) = (memory.clone(), device.clone(), shape.clone());
        RawTensor { memory, device, offset: *offset, len: *len, shape, dtype: *dtype, lease: None }
    }
}

/// Whatever `fuse!` can capture as a tensor: tensors, by value or by reference.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`fuse!` expects a `Tensor<{T}>` here, found `{Self}`",
    label = "not a `Tensor<{T}>`",
    note = "a number is written `scalar(…)`, an element of a list `{{xs[1]}}`; another element type comes first, as in `fuse!(i32: …)`"
)]
pub trait AsTensor<T: Element> {
    /// The tensor.
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
    /// A tensor with a copy of these elements, outermost dim first.
    ///
    /// # Errors
    /// `Error::Shape` if their number is not the shape's; `Error::TooLarge`; `Error::OutOfMemory`.
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

    /// A tensor with these elements, outermost dim first.
    ///
    /// # Errors
    /// As `from_slice`.
    pub fn from_vec(device: &Device, elements: Vec<T>, shape: impl Into<Shape>) -> Result<Tensor<T>> {
        Tensor::from_slice(device, &elements, shape)
    }

    /// A tensor of zeros.
    ///
    /// # Errors
    /// `Error::TooLarge`; `Error::OutOfMemory`.
    pub fn zeros(device: &Device, shape: impl Into<Shape>) -> Result<Tensor<T>> {
        Tensor::full(device, T::default(), shape)
    }

    /// A tensor with `value` everywhere.
    ///
    /// # Errors
    /// `Error::TooLarge`; `Error::OutOfMemory`.
    pub fn full(device: &Device, value: T, shape: impl Into<Shape>) -> Result<Tensor<T>> {
        /// Elements copied at a time, so that the host needs no second tensor.
        const CHUNK: usize = 1 << 18;
        let tensor = Tensor::wrap(RawTensor::allocate(device, T::DTYPE, shape.into())?);
        let chunk = vec![value; tensor.len().min(CHUNK)];
        for start in (0..tensor.len()).step_by(CHUNK) {
            let part = &chunk[..(tensor.len() - start).min(CHUNK)];
            device.0.write(&tensor.raw.memory, start * size_of::<T>(), T::bytes(part))?;
        }
        Ok(tensor)
    }

    /// A tensor in the first bytes of a buffer of the application, without a copy. The buffer belongs to the device of
    /// `Device::from_wgpu`, has the usages `STORAGE`, `COPY_SRC` and `COPY_DST`, and a multiple of 16 bytes. What a call does with it
    /// is submitted to the queue when the call returns: what the application submits or writes after that comes after it.
    ///
    /// # Errors
    /// `Error::Unsupported` where the buffer is not so, or the device is not of wgpu; `Error::Shape` where the
    /// elements do not fit in it.
    #[cfg(feature = "wgpu")]
    pub fn from_wgpu_buffer(
        device: &Device,
        buffer: wgpu::Buffer,
        shape: impl Into<Shape>,
    ) -> Result<Tensor<T>> {
        let shape = shape.into();
        let (len, bytes) = shape.size(size_of::<T>())?;
        if bytes as u64 > buffer.size() {
            return Err(Error::Shape { elements: buffer.size() as usize / size_of::<T>(), shape });
        }
        let memory = Arc::new(device.0.adopt(buffer)?);
        let device = device.clone();
        Ok(Tensor::wrap(RawTensor { memory, device, offset: 0, len, shape, dtype: T::DTYPE, lease: None }))
    }

    /// Waits for the elements and copies them to the host, row by row.
    ///
    /// # Errors
    /// Whatever went wrong on the device since the last read, and `Error::DeviceLost`.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut elements = vec![T::default(); self.len()];
        self.copy_to_slice(&mut elements)?;
        Ok(elements)
    }

    /// Waits for the elements and copies them into a slice of the same number.
    ///
    /// # Errors
    /// `Error::Shape` if the lengths differ; as `to_vec`.
    pub fn copy_to_slice(&self, elements: &mut [T]) -> Result<()> {
        if elements.len() != self.len() {
            return Err(Error::Shape { elements: elements.len(), shape: self.shape().clone() });
        }
        T::fill(elements, |bytes| self.raw.read(bytes))
    }

    /// Waits for the only element of a tensor of one.
    ///
    /// # Errors
    /// `Error::NotOne` if it has another number of elements; as `to_vec`.
    pub fn item(&self) -> Result<T> {
        if self.len() != 1 {
            return Err(Error::NotOne { shape: self.shape().clone() });
        }
        let mut element = [T::default()];
        self.copy_to_slice(&mut element)?;
        Ok(element[0])
    }

    /// The extents, outermost first.
    pub fn shape(&self) -> &Shape {
        &self.raw.shape
    }

    /// Where it lives.
    pub fn device(&self) -> &Device {
        &self.raw.device
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.raw.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same elements in another shape; the memory is shared.
    ///
    /// # Errors
    /// `Error::Shape` if the shape has another number of elements.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Tensor<T>> {
        let shape = shape.into();
        if shape.count() != Some(self.len()) || shape.size(size_of::<T>()).is_err() {
            return Err(Error::Shape { elements: self.len(), shape });
        }
        Ok(Tensor::wrap(RawTensor { shape, ..self.raw.clone() }))
    }

    /// The same elements on another device; shared if it is this one, else copied through the host.
    ///
    /// # Errors
    /// As `to_vec` and `from_slice`.
    pub fn to(&self, device: &Device) -> Result<Tensor<T>> {
        if device == self.device() {
            return Ok(self.clone());
        }
        Tensor::from_vec(device, self.to_vec()?, self.shape())
    }

    /// The elements from `start` on in this shape; the memory is shared. They are there, and begin at a multiple of 16 bytes.
    pub(crate) fn part(&self, start: usize, shape: Shape) -> Tensor<T> {
        let len = shape.count().unwrap_or(usize::MAX);
        assert!(len <= self.len() && start <= self.len() - len, "a part is within the whole");
        let offset = self.raw.offset + start * size_of::<T>();
        assert!(offset.is_multiple_of(16), "a part is aligned");
        Tensor::wrap(RawTensor { shape, len, offset, ..self.raw.clone() })
    }

    /// Has the elements from `start` on written in place by what takes a tensor; what it puts in place of that tensor is copied.
    ///
    /// # Errors
    /// As `write`, and `Error::OutOfMemory`. The tensor that is left has the shape that it was given.
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

    /// Puts the elements of another tensor at `start`, where there is room for them.
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

    /// The tensor behind it, whose element type is a value.
    #[doc(hidden)]
    pub fn as_raw(&self) -> &RawTensor {
        &self.raw
    }

    /// The tensor behind it. What is put in its place must be of the same element type.
    #[doc(hidden)]
    pub(crate) fn as_raw_mut(&mut self) -> &mut RawTensor {
        &mut self.raw
    }

    /// A tensor of a type known to the caller.
    ///
    /// # Errors
    /// `Error::Dtype` if its elements are of another.
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
    /// A tensor with unspecified elements.
    pub(crate) fn allocate(device: &Device, dtype: DType, shape: Shape) -> Result<RawTensor> {
        let (len, bytes) = shape.size(dtype.size())?;
        let memory = Arc::new(device.0.allocate(bytes)?);
        Ok(RawTensor { memory, device: device.clone(), offset: 0, len, shape, dtype, lease: None })
    }

    /// Of the elements.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// The extents, outermost first.
    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Where it lives.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Its memory, for a launch.
    pub(crate) fn region(&self) -> Region<'_> {
        Region { memory: &self.memory, offset: self.offset, len: self.len }
    }

    /// Whether it has bytes in common with another.
    pub(crate) fn overlaps(&self, other: &RawTensor) -> bool {
        let end = |tensor: &RawTensor| tensor.offset + tensor.len * tensor.dtype.size();
        let (start, end) = (self.offset.max(other.offset), end(self).min(end(other)));
        start < end && self.memory.is_same(&other.memory)
    }

    /// Makes the memory this tensor's alone, so that it may be written; its elements are kept.
    pub(crate) fn make_unique(&mut self) -> Result<()> {
        if !self.is_unique() {
            let bytes = self.len * self.dtype.size();
            let memory = Arc::new(self.device.0.duplicate((&self.memory, self.offset), bytes)?);
            *self = RawTensor { memory, offset: 0, lease: None, ..self.clone() };
        }
        Ok(())
    }

    /// Takes the elements of another tensor of this shape: by taking its memory, unless this memory is the caller's,
    /// and then by a copy.
    pub(crate) fn replace(&mut self, new: RawTensor) -> Result<()> {
        if !self.is_replaced_by_copy() {
            *self = new;
            return Ok(());
        }
        let bytes = self.len * self.dtype.size();
        self.device.0.copy((&new.memory, new.offset), (&self.memory, self.offset), bytes)
    }

    /// Whether what replaces it is copied into its memory.
    pub(crate) fn is_replaced_by_copy(&self) -> bool {
        self.memory.is_external() && self.is_unique() && self.len > 0
    }

    /// Makes the memory this tensor's alone; its elements are unspecified after.
    pub(crate) fn make_unique_uninit(&mut self) -> Result<()> {
        if !self.is_unique() {
            *self = RawTensor::allocate(&self.device, self.dtype, self.shape.clone())?;
        }
        Ok(())
    }

    /// Whether no other tensor has this memory, but for one that waits.
    pub(crate) fn is_unique(&self) -> bool {
        // To another thread, whoever has lent it may come back at any time.
        let lent_here = |lease: Arc<ThreadId>| *lease == thread::current().id();
        let waits = self.lease.as_ref().and_then(Weak::upgrade).is_some_and(lent_here);
        let is_unique = Arc::strong_count(&self.memory) == 1 + usize::from(waits);
        // What other threads have read of it before they let go comes before what is written now.
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

    /// The one who has lent it may read it while the other thread still works.
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
