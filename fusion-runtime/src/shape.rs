//! Shapes of tensors.
//!
//! Invariant: extents are in elements, outermost first. A shape of rank 0 has one element.

use std::fmt;
use std::ops::Deref;

use smallvec::SmallVec;

/// The extents of a tensor, outermost first.
///
/// A shape converts from any list of extents: `5`, `[n, d]`, `&[usize]`, `Vec<usize>`. `()` is rank 0.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Shape(SmallVec<[usize; 4]>);

impl Shape {
    /// Returns the extents, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// Returns the number of dims.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of elements, or `None` if it overflows `usize`. Rank 0 has 1 element.
    ///
    /// A shape with an extent of 0 has 0 elements, for any other extents.
    pub fn count(&self) -> Option<usize> {
        if self.0.contains(&0) {
            return Some(0);
        }
        self.0.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent))
    }

    /// Returns the number of elements and of bytes of a tensor of this shape, or none if either is too large to
    /// address.
    pub(crate) fn size(&self, element_bytes: usize) -> Option<(usize, usize)> {
        let addressable = |extent: &usize| *extent <= isize::MAX as usize;
        self.count()
            .filter(|_| self.0.iter().all(addressable))
            .and_then(|count| Some((count, count.checked_mul(element_bytes)?)))
            // The pools round sizes up, which must not overflow.
            .filter(|&(_, bytes)| bytes <= isize::MAX as usize / 2)
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(extents: I) -> Shape {
        Shape(extents.into_iter().collect())
    }
}

impl From<&[usize]> for Shape {
    fn from(extents: &[usize]) -> Shape {
        Shape(SmallVec::from_slice(extents))
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(extents: [usize; N]) -> Shape {
        Shape::from(&extents[..])
    }
}

impl<const N: usize> From<&[usize; N]> for Shape {
    fn from(extents: &[usize; N]) -> Shape {
        Shape::from(&extents[..])
    }
}

impl From<Vec<usize>> for Shape {
    fn from(extents: Vec<usize>) -> Shape {
        Shape(SmallVec::from_vec(extents))
    }
}

impl From<&Vec<usize>> for Shape {
    fn from(extents: &Vec<usize>) -> Shape {
        Shape::from(&extents[..])
    }
}

impl From<usize> for Shape {
    fn from(extent: usize) -> Shape {
        Shape::from([extent])
    }
}

impl From<()> for Shape {
    fn from((): ()) -> Shape {
        Shape::default()
    }
}

impl From<&Shape> for Shape {
    fn from(shape: &Shape) -> Shape {
        shape.clone()
    }
}

impl<const N: usize> PartialEq<[usize; N]> for Shape {
    fn eq(&self, other: &[usize; N]) -> bool {
        self.dims() == other
    }
}

impl PartialEq<[usize]> for Shape {
    fn eq(&self, other: &[usize]) -> bool {
        self.dims() == other
    }
}

impl PartialEq<Vec<usize>> for Shape {
    fn eq(&self, other: &Vec<usize>) -> bool {
        self.dims() == other
    }
}

impl<'s> IntoIterator for &'s Shape {
    type Item = &'s usize;
    type IntoIter = std::slice::Iter<'s, usize>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.dims())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        assert_eq!(Shape::from(()).count(), Some(1));
        assert_eq!(Shape::from([3, 4]).count(), Some(12));
        assert_eq!(Shape::from(7).count(), Some(7));
        assert_eq!(Shape::from(vec![usize::MAX, 0, 2]).count(), Some(0));
        assert_eq!(Shape::from([usize::MAX, 2]).count(), None);
        assert_eq!(Shape::from([1, 2, 3, 4, 5, 6]).rank(), 6);
    }

    #[test]
    fn shapes_are_lists() {
        let extents = vec![2, 3];
        let shape = Shape::from(&extents);
        assert!(shape == extents && shape == extents[..] && shape == [2, 3] && shape != vec![2]);
        assert_eq!((&shape).into_iter().sum::<usize>(), 5);
    }

    #[test]
    fn too_large_is_an_error() {
        for shape in [Shape::from([usize::MAX, 2]), Shape::from(usize::MAX / 4), Shape::from([usize::MAX, 0])]
        {
            assert_eq!(shape.size(4), None);
        }
        assert_eq!(Shape::from([5, 0]).size(4), Some((0, 0)));
    }
}
