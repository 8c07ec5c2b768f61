//! Random windows, and sums in f64.

use fusion::Device;

/// Returns pseudo-random numbers from -1 to 1, the same for the same seed.
pub(crate) fn numbers(seed: usize, count: usize) -> Vec<f32> {
    let mut random = Random(seed as u64);
    (0..count).map(|_| random.below(1 << 16) as f32 / (1 << 15) as f32 - 1.0).collect()
}

/// A window along one dim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) extent: usize,
    pub(crate) taps: usize,
    pub(crate) stride: usize,
    pub(crate) padding: (usize, usize),
    pub(crate) dilation: usize,
}

impl Window {
    /// Returns the number of positions.
    pub(crate) fn count(&self) -> usize {
        let Window { extent, taps, stride, padding, dilation } = *self;
        (extent + padding.0 + padding.1 - dilation * (taps - 1) - 1) / stride + 1
    }

    /// Returns the element that a tap of a position is, if it is no padding.
    pub(crate) fn element(&self, position: usize, tap: usize) -> Option<usize> {
        let at = (position * self.stride + tap * self.dilation).checked_sub(self.padding.0)?;
        (at < self.extent).then_some(at)
    }
}

/// Compares sums with these of a function, which returns the terms of an element.
pub(crate) fn check(device: &Device, what: &str, made: &[f32], terms: impl Fn(usize) -> Vec<f64>) {
    for (i, &made) in made.iter().enumerate() {
        let terms = terms(i);
        let (sum, size) = terms.iter().fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
        assert!(
            (f64::from(made) - sum).abs() <= 1e-6 * (size + 1e-3),
            "{device} {what}: element {i}: {made}, {sum}"
        );
    }
}

/// Returns the coordinates of an element, by extents.
pub(crate) fn coordinates<const N: usize>(mut i: usize, extents: [usize; N]) -> [usize; N] {
    let mut at = [0; N];
    for (at, extent) in at.iter_mut().zip(extents).rev() {
        (*at, i) = (i % extent, i / extent);
    }
    at
}

/// Pseudo-random numbers.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a number below a bound.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    /// Returns a window that fits.
    pub(crate) fn window(&mut self, extent_max: usize) -> Window {
        loop {
            let window = Window {
                extent: 1 + self.below(extent_max),
                taps: 1 + self.below(5),
                stride: 1 + self.below(3),
                padding: (self.below(4), self.below(4)),
                dilation: 1 + self.below(2),
            };
            let Window { extent, taps, padding, dilation, .. } = window;
            if dilation * (taps - 1) < extent + padding.0 + padding.1 {
                return window;
            }
        }
    }
}
