//! Named tensors one after another in one allocation.
//!
//! Invariant: `views`, if there are any, are parts of `flat`, one a name; `flat` is written only while there are none. So a tensor
//! that someone took from the arena keeps its elements, as any tensor does, and costs a copy of the whole arena.

use std::collections::HashMap;
use std::ops::Index;
use std::sync::{Arc, OnceLock};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::launch::Coalescing;
use crate::shape::Shape;
use crate::tensor::{Element, Tensor};

/// Tensors by name, one after another in one allocation, each aligned, so that one launch goes over all.
#[derive(Debug)]
pub struct Arena<T: Element = f32> {
    layout: Arc<Layout>,
    flat: Tensor<T>,
    /// Made when one is asked for: whoever writes tensor after tensor makes none.
    views: OnceLock<Vec<Tensor<T>>>,
}

/// Elements of a block, whose state of 8 bits has a unit of its own.
pub(super) const BLOCK: usize = 256;

/// The fewest elements of a tensor that is given whole blocks.
const LARGE: usize = 4096;

/// Where each tensor of an arena begins; arenas of one model share it.
#[derive(Debug, PartialEq)]
pub(super) struct Layout {
    names: Vec<String>,
    shapes: Vec<Shape>,
    /// First elements. Large tensors are before all others, in blocks of their own; of 256 bytes are all.
    starts: Vec<usize>,
    numbers: HashMap<String, usize>,
    /// Of all tensors, of the large ones with the room between them, and of all with it.
    elements: usize,
    large: usize,
    len: usize,
}

impl Arena {
    /// An arena with copies of these tensors.
    ///
    /// # Errors
    /// `Error::Parameter` for a name that is there twice; `Error::TooLarge`; `Error::OutOfMemory`.
    pub fn new<'a, N: Into<String>>(
        device: &Device,
        tensors: impl IntoIterator<Item = (N, &'a Tensor<f32>)>,
    ) -> Result<Arena> {
        let tensors: Vec<(String, &Tensor<f32>)> =
            tensors.into_iter().map(|(name, tensor)| (name.into(), tensor)).collect();
        let shapes = tensors.iter().map(|(name, tensor)| (name.clone(), tensor.shape().clone()));
        let mut arena = Arena::zeros(device, Arc::new(Layout::new(shapes)?))?;
        arena.write(|flat, layout| {
            let mut all = layout.starts.iter().zip(&tensors);
            all.try_for_each(|(&start, (_, tensor))| flat.copy_into(start, tensor))
        })?;
        Ok(arena)
    }

    /// An arena of the same names and shapes with zeros, on the same device: for gradients.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub fn zeros_like(&self) -> Result<Arena> {
        self.zeros_of()
    }
}

impl<T: Element> Arena<T> {
    fn zeros(device: &Device, layout: Arc<Layout>) -> Result<Arena<T>> {
        Ok(Arena { flat: Tensor::zeros(device, [layout.len])?, layout, views: OnceLock::new() })
    }

    /// Zeros of another type.
    pub(super) fn zeros_of<U: Element>(&self) -> Result<Arena<U>> {
        Arena::zeros(self.device(), self.layout.clone())
    }

    /// The same on another device.
    ///
    /// # Errors
    /// As `Tensor::to`.
    pub fn to(&self, device: &Device) -> Result<Arena<T>> {
        Ok(Arena { layout: self.layout.clone(), flat: self.flat.to(device)?, views: OnceLock::new() })
    }

    /// The tensor of a name. One that is still there when the arena is written keeps its elements, for which the whole arena is
    /// copied: drop it before.
    pub fn get(&self, name: &str) -> Option<&Tensor<T>> {
        self.layout.numbers.get(name).map(|&i| &self.views()[i])
    }

    /// Names and tensors, in the order that they were given in.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Tensor<T>)> {
        self.layout.names.iter().map(String::as_str).zip(self.views())
    }

    /// Copies the elements of a tensor of this shape, from any device.
    ///
    /// # Errors
    /// `Error::Parameter` if there is no such name, or its shape is another; as `Tensor::to`.
    pub fn set(&mut self, name: &str, tensor: &Tensor<T>) -> Result<()> {
        let i = self.number(name)?;
        if *tensor.shape() != self.layout.shapes[i] {
            let what = format!("has shape {}, not {}", self.layout.shapes[i], tensor.shape());
            return Err(Error::Parameter { name: name.into(), what });
        }
        self.write(|flat, layout| flat.copy_into(layout.starts[i], tensor))
    }

    /// Has the tensor of a name written by a function, in place: `grads.write_to("bias", |g| backward::into(g, &x))`.
    ///
    /// # Errors
    /// `Error::Parameter` if there is no such name; as the function; `Error::Shape` if it puts a tensor of another shape there.
    pub fn write_to<R>(&mut self, name: &str, write: impl FnOnce(&mut Tensor<T>) -> Result<R>) -> Result<R> {
        let i = self.number(name)?;
        self.write(|flat, layout| flat.lend(layout.starts[i], layout.shapes[i].clone(), write))
    }

    fn number(&self, name: &str) -> Result<usize> {
        let missing = || {
            let what = format!("is not in the arena, which has {}", self.layout.names.join(", "));
            Error::Parameter { name: name.into(), what }
        };
        self.layout.numbers.get(name).copied().ok_or_else(missing)
    }

    /// Where it lives.
    pub fn device(&self) -> &Device {
        self.flat.device()
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.layout.names.len()
    }

    /// Whether it has no tensors.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements of all tensors.
    pub fn elements(&self) -> usize {
        self.layout.elements
    }

    /// Bytes of its allocation, of which what lies between tensors is none of theirs.
    pub fn bytes(&self) -> usize {
        self.layout.len * size_of::<T>()
    }

    /// All elements, with zeros between tensors.
    pub(super) fn flat(&self) -> &Tensor<T> {
        &self.flat
    }

    /// The elements of large tensors, whole blocks, which are before all others.
    pub(super) fn large(&self) -> usize {
        self.layout.large
    }

    /// Writes all elements.
    pub(super) fn update<R>(&mut self, update: impl FnOnce(&mut Tensor<T>) -> R) -> R {
        self.write(|flat, _| update(flat))
    }

    /// Names, first elements and shapes.
    pub(super) fn places(&self) -> impl Iterator<Item = (&str, usize, &Shape)> {
        let Layout { names, starts, shapes, .. } = &*self.layout;
        names.iter().zip(starts).zip(shapes).map(|((name, &start), shape)| (name.as_str(), start, shape))
    }

    /// Where its tensors are.
    pub(super) fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Whether the other arena, of which this is to be told, has the same tensors, or what is not the same.
    pub(super) fn check_layout<U: Element>(&self, other: &Arena<U>, what: &str) -> Result<()> {
        self.check_as(&other.layout, what)
    }

    /// The same of where the tensors of another are.
    pub(super) fn check_as(&self, other: &Arc<Layout>, what: &str) -> Result<()> {
        if Arc::ptr_eq(&self.layout, other) || self.layout == *other {
            return Ok(());
        }
        let shape = |layout: &Layout, name: &str| layout.numbers.get(name).map(|&i| layout.shapes[i].clone());
        let mut different = self.layout.names.iter().chain(&other.names);
        let name = different.find(|name| shape(&self.layout, name) != shape(other, name));
        let Some(name) = name else {
            let name = self.layout.names.first().cloned().unwrap_or_default();
            let what = format!("is in another order than among {what}");
            return Err(Error::Parameter { name, what });
        };
        let text =
            |shape: Option<Shape>| shape.map_or("is missing".into(), |shape| format!("has shape {shape}"));
        let (one, two) = (text(shape(&self.layout, name)), text(shape(other, name)));
        let what = format!("{one} among the parameters, and {two} among {what}");
        Err(Error::Parameter { name: name.clone(), what })
    }

    /// Writes the memory, which no view shares meanwhile.
    fn write<R>(&mut self, write: impl FnOnce(&mut Tensor<T>, &Layout) -> R) -> R {
        self.views.take();
        write(&mut self.flat, &self.layout)
    }

    fn views(&self) -> &[Tensor<T>] {
        self.views.get_or_init(|| self.layout.views(&self.flat))
    }
}

impl<T: Element> Index<&str> for Arena<T> {
    type Output = Tensor<T>;

    /// As `get`.
    ///
    /// # Panics
    /// If there is no such name.
    fn index(&self, name: &str) -> &Tensor<T> {
        self.get(name).unwrap_or_else(|| panic!("the arena has no tensor `{name}`"))
    }
}

impl Layout {
    fn new(tensors: impl Iterator<Item = (String, Shape)>) -> Result<Layout> {
        let (mut names, mut shapes, mut numbers) = (vec![], vec![], HashMap::new());
        for (name, shape) in tensors {
            if numbers.insert(name.clone(), names.len()).is_some() {
                return Err(Error::Parameter { name, what: "is there twice: give one another name".into() });
            }
            names.push(name);
            shapes.push(shape);
        }
        let sizes = shapes.iter().map(|shape| Ok(shape.size(size_of::<f32>())?.0));
        let sizes: Vec<usize> = sizes.collect::<Result<_>>()?;
        let (mut starts, mut len) = (vec![0; sizes.len()], 0_usize);
        let mut place = |tensors: &[usize], align: usize| {
            for &i in tensors {
                starts[i] = len;
                let end = len.checked_add(sizes[i]).and_then(|end| end.checked_next_multiple_of(align));
                let fits = |end: &usize| end.checked_mul(size_of::<f32>()).is_some();
                len = end.filter(fits).ok_or_else(|| Error::TooLarge { shape: shapes[i].clone() })?;
            }
            Ok(len)
        };
        let (first, rest): (Vec<_>, Vec<_>) = (0..sizes.len()).partition(|&i| sizes[i] >= LARGE);
        let large = place(&first, BLOCK)?;
        let end = place(&rest, Coalescing::Optimal.bytes() / size_of::<f32>())?;
        // What is in no block makes whole rows of as many elements.
        let len =
            end.checked_next_multiple_of(BLOCK).filter(|len| len.checked_mul(size_of::<f32>()).is_some());
        let len = len.ok_or_else(|| Error::TooLarge { shape: shapes[0].clone() })?;
        Ok(Layout { elements: sizes.iter().sum(), names, shapes, starts, numbers, large, len })
    }

    fn views<T: Element>(&self, flat: &Tensor<T>) -> Vec<Tensor<T>> {
        let parts = self.starts.iter().zip(&self.shapes);
        parts.map(|(&start, shape)| flat.part(start, shape.clone())).collect()
    }
}
