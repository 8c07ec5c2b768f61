//! Named tensors one after another in one allocation.
//!
//! Invariant: `views` are parts of `flat`, one a name, and `flat` is written only while there are none of them. So a tensor
//! that someone took from the arena keeps its elements, as any tensor does, and costs a copy of the whole arena.

use std::collections::HashMap;
use std::ops::Index;
use std::sync::Arc;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::launch::Coalescing;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// Tensors by name, one after another in one allocation, each aligned to 256 bytes, so that one launch goes over all.
#[derive(Debug)]
pub struct Arena {
    layout: Arc<Layout>,
    flat: Tensor<f32>,
    views: Vec<Tensor<f32>>,
}

/// Where each tensor of an arena begins; arenas of one model share it.
#[derive(Debug, PartialEq)]
struct Layout {
    names: Vec<String>,
    shapes: Vec<Shape>,
    /// First elements.
    starts: Vec<usize>,
    numbers: HashMap<String, usize>,
    /// Of all tensors, and of all with the room between.
    elements: usize,
    len: usize,
}

impl Arena {
    /// An arena with copies of these tensors, in this order.
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

    fn zeros(device: &Device, layout: Arc<Layout>) -> Result<Arena> {
        let mut arena = Arena { flat: Tensor::zeros(device, [layout.len])?, layout, views: vec![] };
        arena.views = arena.layout.views(&arena.flat);
        Ok(arena)
    }

    /// An arena of the same names and shapes with zeros, on the same device: for gradients.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub fn zeros_like(&self) -> Result<Arena> {
        Arena::zeros(self.device(), self.layout.clone())
    }

    /// The same on another device.
    ///
    /// # Errors
    /// As `Tensor::to`.
    pub fn to(&self, device: &Device) -> Result<Arena> {
        let (layout, flat) = (self.layout.clone(), self.flat.to(device)?);
        Ok(Arena { views: layout.views(&flat), layout, flat })
    }

    /// The tensor of a name. One that is still there when the arena is written keeps its elements, for which the whole arena is
    /// copied: drop it before.
    pub fn get(&self, name: &str) -> Option<&Tensor<f32>> {
        self.layout.numbers.get(name).map(|&i| &self.views[i])
    }

    /// Names and tensors, in the order of the memory.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Tensor<f32>)> {
        self.layout.names.iter().map(String::as_str).zip(&self.views)
    }

    /// Copies the elements of a tensor of this shape, from any device.
    ///
    /// # Errors
    /// `Error::Parameter` if there is no such name, or its shape is another; as `Tensor::to`.
    pub fn set(&mut self, name: &str, tensor: &Tensor<f32>) -> Result<()> {
        let Some(&i) = self.layout.numbers.get(name) else {
            let what = format!("is not in the arena, which has {}", self.layout.names.join(", "));
            return Err(Error::Parameter { name: name.into(), what });
        };
        if *tensor.shape() != self.layout.shapes[i] {
            let what = format!("has shape {}, not {}", self.layout.shapes[i], tensor.shape());
            return Err(Error::Parameter { name: name.into(), what });
        }
        self.write(|flat, layout| flat.copy_into(layout.starts[i], tensor))
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
        self.layout.len * size_of::<f32>()
    }

    /// All elements, with zeros between tensors.
    pub(super) fn flat(&self) -> &Tensor<f32> {
        &self.flat
    }

    /// Writes all elements.
    pub(super) fn update<R>(&mut self, update: impl FnOnce(&mut Tensor<f32>) -> R) -> R {
        self.write(|flat, _| update(flat))
    }

    /// A state of each element that begins with this value.
    pub(super) fn state(&self, value: f32) -> Result<Tensor<f32>> {
        Tensor::full(self.device(), value, [self.layout.len])
    }

    /// Names, first elements and shapes.
    pub(super) fn places(&self) -> impl Iterator<Item = (&str, usize, &Shape)> {
        let Layout { names, starts, shapes, .. } = &*self.layout;
        names.iter().zip(starts).zip(shapes).map(|((name, &start), shape)| (name.as_str(), start, shape))
    }

    /// Whether the other arena has the same tensors, or what is not the same.
    pub(super) fn check_layout(&self, other: &Arena) -> Result<()> {
        if Arc::ptr_eq(&self.layout, &other.layout) || self.layout == other.layout {
            return Ok(());
        }
        let shape = |arena: &Arena, name: &str| arena.get(name).map(|tensor| tensor.shape().clone());
        let different = self.layout.names.iter().chain(&other.layout.names);
        let name = different.into_iter().find(|name| shape(self, name) != shape(other, name));
        let Some(name) = name else {
            let (name, what) = (self.layout.names[0].clone(), "is in another order: use `zeros_like`".into());
            return Err(Error::Parameter { name, what });
        };
        let text =
            |shape: Option<Shape>| shape.map_or("is missing".into(), |shape| format!("has shape {shape}"));
        let (one, two) = (text(shape(self, name)), text(shape(other, name)));
        let what = format!("{one} among the parameters, and {two} among the gradients: use `zeros_like`");
        Err(Error::Parameter { name: name.clone(), what })
    }

    /// Writes the memory, which no view shares meanwhile.
    fn write<R>(&mut self, write: impl FnOnce(&mut Tensor<f32>, &Layout) -> R) -> R {
        self.views.clear();
        let result = write(&mut self.flat, &self.layout);
        self.views = self.layout.views(&self.flat);
        result
    }
}

impl Index<&str> for Arena {
    type Output = Tensor<f32>;

    /// As `get`.
    ///
    /// # Panics
    /// If there is no such name.
    fn index(&self, name: &str) -> &Tensor<f32> {
        self.get(name).unwrap_or_else(|| panic!("the arena has no tensor `{name}`"))
    }
}

impl Layout {
    fn new(tensors: impl Iterator<Item = (String, Shape)>) -> Result<Layout> {
        let mut layout = Layout {
            names: vec![],
            shapes: vec![],
            starts: vec![],
            numbers: HashMap::new(),
            elements: 0,
            len: 0,
        };
        for (name, shape) in tensors {
            if layout.numbers.insert(name.clone(), layout.names.len()).is_some() {
                return Err(Error::Parameter { name, what: "is there twice: give one another name".into() });
            }
            let (elements, _) = shape.size(size_of::<f32>())?;
            layout.starts.push(layout.len);
            layout.elements += elements;
            let end = (layout.len + elements).checked_mul(size_of::<f32>());
            let end = end.and_then(|bytes| Coalescing::Optimal.align(bytes));
            layout.len = end.ok_or(Error::TooLarge { shape: shape.clone() })? / size_of::<f32>();
            layout.names.push(name);
            layout.shapes.push(shape);
        }
        Ok(layout)
    }

    fn views(&self, flat: &Tensor<f32>) -> Vec<Tensor<f32>> {
        let parts = self.starts.iter().zip(&self.shapes);
        parts.map(|(&start, shape)| flat.part(start, shape.clone())).collect()
    }
}
