//! Arenas: named tensors in one allocation.
//!
//! Invariant: every view is a part of `flat`, one per name. `flat` is written only while no view exists. A
//! tensor that a caller took from the arena therefore keeps its elements, at the cost of a copy of the whole
//! arena.

use std::collections::HashMap;
use std::ops::Index;
use std::sync::{Arc, OnceLock};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::launch::Coalescing;
use crate::shape::Shape;
use crate::tensor::{Element, Tensor, sized};

/// An arena: named tensors in one allocation. Each tensor is aligned, so one launch covers all of them.
#[derive(Debug)]
pub struct Arena<T: Element = f32> {
    layout: Arc<Layout>,
    flat: Tensor<T>,
    /// Views, made on demand. Writing tensor after tensor makes none.
    views: OnceLock<Vec<Tensor<T>>>,
}

/// Elements of a block. An 8-bit state has a scale per block.
pub(super) const BLOCK: usize = 256;

/// Minimum elements of a tensor that is stored in whole blocks.
const LARGE: usize = 4096;

/// Layout of an arena: the offset of each tensor. Arenas of one model share a layout.
#[derive(Debug, PartialEq)]
pub(super) struct Layout {
    names: Vec<String>,
    shapes: Vec<Shape>,
    /// First element of each tensor. Large tensors come first, in blocks of their own. Small tensors are
    /// aligned to 256 bytes.
    starts: Vec<usize>,
    numbers: HashMap<String, usize>,
    /// Number of elements of all tensors, without padding.
    elements: usize,
    /// Number of elements of large tensors, with padding.
    large: usize,
    /// Number of elements of the arena, with padding.
    len: usize,
}

impl Arena {
    /// Returns an arena with copies of these tensors.
    ///
    /// # Errors
    /// `Error::Parameter` for a duplicate name; `Error::TooLarge`; `Error::OutOfMemory`.
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

    /// Returns an arena of zeros with the same names and shapes, on the same device, for example for
    /// gradients.
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

    /// Returns an arena of zeros with the same layout and another element type.
    pub(super) fn zeros_of<U: Element>(&self) -> Result<Arena<U>> {
        Arena::zeros(self.device(), self.layout.clone())
    }

    /// Returns the arena on another device.
    ///
    /// # Errors
    /// The errors of `Tensor::to`.
    pub fn to(&self, device: &Device) -> Result<Arena<T>> {
        Ok(Arena { layout: self.layout.clone(), flat: self.flat.to(device)?, views: OnceLock::new() })
    }

    /// Returns the tensor of a name.
    ///
    /// Drop a clone of the tensor before the next write to the arena. A live clone keeps its elements, and
    /// the write then copies the whole arena.
    pub fn get(&self, name: &str) -> Option<&Tensor<T>> {
        self.layout.numbers.get(name).map(|&i| &self.views()[i])
    }

    /// Returns names and tensors, in the order of `new`.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Tensor<T>)> {
        self.layout.names.iter().map(String::as_str).zip(self.views())
    }

    /// Copies a tensor of the same shape, from any device, into the tensor of a name.
    ///
    /// # Errors
    /// `Error::Parameter` if the name is unknown or the shape differs; the errors of `Tensor::to`.
    pub fn set(&mut self, name: &str, tensor: &Tensor<T>) -> Result<()> {
        let i = self.number(name)?;
        if *tensor.shape() != self.layout.shapes[i] {
            let what = format!("has shape {}, not {}", self.layout.shapes[i], tensor.shape());
            return Err(Error::Parameter { name: name.into(), what });
        }
        self.write(|flat, layout| flat.copy_into(layout.starts[i], tensor))
    }

    /// Lets a function write the tensor of a name in place:
    /// `grads.write_to("bias", |g| backward::into(g, &x))`.
    ///
    /// # Errors
    /// `Error::Parameter` if the name is unknown; the errors of the function; `Error::Shape` if the function
    /// leaves a tensor of another shape.
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

    /// Returns the device of the arena.
    pub fn device(&self) -> &Device {
        self.flat.device()
    }

    /// Returns the number of tensors.
    pub fn len(&self) -> usize {
        self.layout.names.len()
    }

    /// Returns true if the arena has no tensors.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of elements of all tensors, without padding.
    pub fn elements(&self) -> usize {
        self.layout.elements
    }

    /// Returns the size of the allocation in bytes, with padding between tensors.
    pub fn bytes(&self) -> usize {
        self.layout.len * size_of::<T>()
    }

    /// Returns all elements, with zeros between tensors.
    pub(super) fn flat(&self) -> &Tensor<T> {
        &self.flat
    }

    /// Returns the number of elements in blocks. Blocks contain the large tensors and come first.
    pub(super) fn large(&self) -> usize {
        self.layout.large
    }

    /// Writes all elements.
    pub(super) fn update<R>(&mut self, update: impl FnOnce(&mut Tensor<T>) -> R) -> R {
        self.write(|flat, _| update(flat))
    }

    /// Returns name, first element and shape of each tensor.
    pub(super) fn places(&self) -> impl Iterator<Item = (&str, usize, &Shape)> {
        let Layout { names, starts, shapes, .. } = &*self.layout;
        names.iter().zip(starts).zip(shapes).map(|((name, &start), shape)| (name.as_str(), start, shape))
    }

    /// Returns the layout.
    pub(super) fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Checks that the other arena has the same tensors. `what` names the other arena in the error.
    pub(super) fn check_layout<U: Element>(&self, other: &Arena<U>, what: &str) -> Result<()> {
        self.check_as(&other.layout, what)
    }

    /// Checks that a layout has the same tensors.
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

    /// Writes the memory, after dropping all views.
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

    /// Returns the tensor of a name, like `get`.
    ///
    /// # Panics
    /// If the name is unknown.
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
        let sizes = shapes.iter().map(|shape| Ok(sized(shape, size_of::<f32>())?.0));
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
        let len = place(&rest, Coalescing::Optimal.bytes() / size_of::<f32>())?;
        Ok(Layout { elements: sizes.iter().sum(), names, shapes, starts, numbers, large, len })
    }

    fn views<T: Element>(&self, flat: &Tensor<T>) -> Vec<Tensor<T>> {
        let parts = self.starts.iter().zip(&self.shapes);
        parts.map(|(&start, shape)| flat.part(start, shape.clone())).collect()
    }
}
