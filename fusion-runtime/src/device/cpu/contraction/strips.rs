//! The parts of a contraction that are tasks: strips of columns, and boxes of their rows.

/// Columns of products with the same left operand: some of one product, or all of several.
#[derive(Clone, Copy)]
pub(super) struct Strip {
    /// Coordinates of the batch.
    pub(super) batch: (usize, usize),
    /// Columns of each product.
    pub(super) cols: (usize, usize),
}

impl Strip {
    /// Returns the number of columns of a product.
    pub(super) fn len(&self) -> usize {
        self.cols.1 - self.cols.0
    }
}

/// The strips of a contraction.
pub(super) struct Strips {
    pub(super) count: usize,
    /// True if all strips have almost as many columns.
    pub(super) are_alike: bool,
    /// Columns of a product.
    cols: usize,
    /// Most columns of a product in a strip.
    len: usize,
    /// Number of strips of a product, or 1 if a strip has several products.
    of_product: usize,
    /// Most products of a strip.
    products: usize,
    /// Number of adjacent products with the same left operand.
    alike: usize,
}

impl Strips {
    /// Makes strips of at most `len` columns of products, of which so many next to each other have the same left
    /// operand.
    pub(super) fn new((products, alike): (usize, usize), (cols, len): (usize, usize)) -> Strips {
        let of_product = cols.div_ceil(len);
        let in_strip = (len / cols.max(1)).clamp(1, alike.max(1));
        let of_alike = alike.div_ceil(in_strip) * of_product;
        Strips {
            count: products / alike.max(1) * of_alike,
            are_alike: of_product == 1 || 8 * (of_product * len - cols) <= len,
            cols,
            len,
            of_product,
            products: in_strip,
            alike,
        }
    }

    /// Returns a strip.
    pub(super) fn strip(&self, number: usize) -> Strip {
        let of_alike = self.alike.div_ceil(self.products) * self.of_product;
        let (group, own) = (number / of_alike, number % of_alike);
        let product = own / self.of_product * self.products;
        let col = own % self.of_product * self.len;
        let first = group * self.alike;
        Strip {
            batch: (first + product, first + (product + self.products).min(self.alike)),
            cols: (col, (col + self.len).min(self.cols)),
        }
    }
}

/// Boxes of rows with almost equal numbers of panels, so that threads are done at the same time.
pub(super) struct Boxes {
    pub(super) count: usize,
    rows: usize,
    /// Rows of a panel.
    panel: usize,
}

impl Boxes {
    /// Makes so many boxes, if there are as many panels.
    pub(super) fn new((rows, panel): (usize, usize), wanted: usize) -> Boxes {
        Boxes { count: wanted.min(rows.div_ceil(panel)), rows, panel }
    }

    /// Returns the rows of a box.
    pub(super) fn rows(&self, number: usize) -> (usize, usize) {
        let panels = self.rows.div_ceil(self.panel);
        let bound = |number: usize| (panels * number / self.count * self.panel).min(self.rows);
        (bound(number), bound(number + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each column of each product is in one strip, and a strip has products with the same left operand.
    #[test]
    fn strips_have_all_columns() {
        for (groups, alike) in [(1, 1), (3, 1), (1, 7), (2, 5), (0, 3), (2, 0)] {
            for cols in [0, 1, 5, 16, 17, 40] {
                let strips = Strips::new((groups * alike, alike), (cols, 16));
                let mut seen = vec![0; groups * alike * cols];
                for Strip { batch, cols: own } in (0..strips.count).map(|number| strips.strip(number)) {
                    assert!((batch.1 - batch.0) * (own.1 - own.0) <= 16);
                    assert_eq!(batch.0 / alike, (batch.1 - 1) / alike);
                    for product in batch.0..batch.1 {
                        (own.0..own.1).for_each(|col| seen[product * cols + col] += 1);
                    }
                }
                assert!(seen.iter().all(|count| *count == 1), "{groups} {alike} {cols}: {seen:?}");
            }
        }
    }
}
