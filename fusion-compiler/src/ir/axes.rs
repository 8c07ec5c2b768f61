//! Axes of a graph, by number, and sets of them.

/// An axis of the graph that the id belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AxisId(pub u8);

/// Maximum number of axes of one function.
pub const AXES_MAX: usize = 256;

/// A set of axes of one graph: one bit for each axis, in words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AxisSet([u64; AXES_MAX / 64]);

impl AxisSet {
    /// The empty set, which scalars have.
    pub const EMPTY: AxisSet = AxisSet([0; AXES_MAX / 64]);

    /// Adds an axis.
    #[must_use]
    pub fn with(mut self, axis: AxisId) -> AxisSet {
        self.0[usize::from(axis.0) / 64] |= 1 << (axis.0 % 64);
        self
    }

    /// Returns the union of both sets.
    #[must_use]
    pub fn union(self, other: AxisSet) -> AxisSet {
        self.words(other, |own, other| own | other)
    }

    /// Returns the intersection of both sets.
    #[must_use]
    pub fn intersection(self, other: AxisSet) -> AxisSet {
        self.words(other, |own, other| own & other)
    }

    /// Returns the axes of `self` that `other` lacks.
    #[must_use]
    pub fn minus(self, other: AxisSet) -> AxisSet {
        self.words(other, |own, other| own & !other)
    }

    /// Combines the words of two sets.
    fn words(self, other: AxisSet, combine: impl Fn(u64, u64) -> u64) -> AxisSet {
        AxisSet(std::array::from_fn(|i| combine(self.0[i], other.0[i])))
    }

    /// Returns true if the axis is in the set.
    pub fn contains(self, axis: AxisId) -> bool {
        self.0[usize::from(axis.0) / 64] >> (axis.0 % 64) & 1 == 1
    }

    /// Returns true if every axis of `other` is in the set.
    pub fn contains_all(self, other: AxisSet) -> bool {
        other.minus(self).is_empty()
    }

    /// Returns true if the set has no axes.
    pub fn is_empty(self) -> bool {
        self == AxisSet::EMPTY
    }

    /// Iterates over the axes in the order of their numbers.
    pub fn iter(mut self) -> impl Iterator<Item = AxisId> {
        std::iter::from_fn(move || {
            let word = self.0.iter().position(|&word| word != 0)?;
            let bit = self.0[word].trailing_zeros();
            self.0[word] &= self.0[word] - 1;
            Some(AxisId((word * 64) as u8 + bit as u8))
        })
    }
}

impl FromIterator<AxisId> for AxisSet {
    fn from_iter<I: IntoIterator<Item = AxisId>>(axes: I) -> AxisSet {
        axes.into_iter().fold(AxisSet::EMPTY, AxisSet::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Axes of every word are told apart, and iterated in the order of their numbers.
    #[test]
    fn sets_hold_axes_of_all_words() {
        let numbers = [0, 1, 63, 64, 127, 128, 200, 255];
        let all: AxisSet = numbers.map(AxisId).into_iter().rev().collect();
        assert_eq!(all.iter().map(|axis| axis.0).collect::<Vec<_>>(), numbers);
        for number in 0..=255 {
            let one = AxisSet::EMPTY.with(AxisId(number));
            assert_eq!(all.contains(AxisId(number)), numbers.contains(&number), "{number}");
            assert_eq!(all.contains_all(one), numbers.contains(&number), "{number}");
            assert_eq!(all.intersection(one).is_empty(), !numbers.contains(&number), "{number}");
            assert!(!all.minus(one).contains(AxisId(number)) && all.union(one).contains(AxisId(number)));
        }
    }
}
