//! Rows with an unstaged tail: staged elements are read once, and the tail in each pass.

use fusion::prelude::*;

use crate::{STAGED, UNSTAGED, measured, scaled, softmax_rows, told};

fuse! {
    pub fn known(x: f32[N, D = 32_768]) -> f32[N, D] { softmax(x, D) }

    pub fn known_and_staged(x: f32[N, D = 24_576]) -> f32[N, D] { softmax(x, D) }

    /// All threads have equally many staged and unstaged elements.
    pub fn known_and_even(x: f32[N, D = 49_152]) -> f32[N, D] { layer_norm(x, D) }

    /// The kernel stages the operand of the exponential of a mean, not the exponential.
    pub fn of_exponentials(x: f32[N, D], y: f32[N, D]) -> f32[N, D] {
        let e = exp(x - mean(y, D));
        e / sum(e, D)
    }
}

/// Asserts that a function is one kernel that reads and writes as many elements as given, in full sectors, as
/// its report states. The kernel reads `beside` further elements for each of two rows, which the report
/// counts once.
fn check(
    test: &str,
    (report, extents): (Report, &[(&str, usize)]),
    [read, written, beside]: [usize; 3],
    call: impl FnOnce(&Device) -> Result<()>,
) {
    let test = &format!("unstaged::{test}");
    if let Some(moved) = measured(test, call) {
        let [read, written, beside] = [read, written, beside].map(|count| 4 * count as u64);
        let loaded = read + 2 * beside;
        assert_eq!(moved, [loaded, written, loaded / 32, written / 32], "{test}");
        assert_eq!(told(report.clone(), extents), Ok([1, read + beside + written]), "{test}");
        // A device that is not at hand is assumed to stage as much.
        let bound = report.bind(extents).map(|report| report.bytes());
        assert_eq!(bound, Ok(Some(read + beside + written)), "{test}");
    }
}

/// Returns the elements that a function of two rows reads in `times` passes if a block stages `staged` of each
/// row.
fn read(d: usize, staged: usize, times: usize) -> usize {
    2 * (staged.min(d) + times * d.saturating_sub(staged))
}

/// The first pass computes the maximum and the sum of exponentials, and the second the elements.
#[test]
fn a_softmax_reads_the_rest_twice() {
    let d = 1 << 15;
    let extents: &[(&str, usize)] = &[("N", 2), ("D", d)];
    let sizes = [read(d, STAGED, 2), 2 * d, 0];
    check("a_softmax_reads_the_rest_twice", (softmax_rows::report(), extents), sizes, |device| {
        softmax_rows(&Tensor::full(device, 1.0, [2, d])?).map(|_| ())
    });
}

#[test]
fn a_softmax_of_the_longest_rows_reads_the_rest_twice() {
    let test = "a_softmax_of_the_longest_rows_reads_the_rest_twice";
    let extents: &[(&str, usize)] = &[("N", 2), ("D", UNSTAGED)];
    let sizes = [read(UNSTAGED, STAGED, 2), 2 * UNSTAGED, 0];
    check(test, (softmax_rows::report(), extents), sizes, |device| {
        softmax_rows(&Tensor::full(device, 1.0, [2, UNSTAGED])?).map(|_| ())
    });
}

#[test]
fn an_rms_norm_reads_the_rest_twice() {
    let d = 1 << 15;
    let extents: &[(&str, usize)] = &[("N", 2), ("D", d)];
    let sizes = [read(d, STAGED, 2), 2 * d, d];
    check("an_rms_norm_reads_the_rest_twice", (scaled::report(), extents), sizes, |device| {
        scaled(&Tensor::full(device, 1.0, [2, d])?, &Tensor::full(device, 2.0, [d])?).map(|_| ())
    });
}

#[test]
fn a_known_length_changes_nothing() {
    let (d, n) = (1 << 15, ("N", 2));
    let sizes = [read(d, STAGED, 2), 2 * d, 0];
    check("a_known_length_changes_nothing", (known::report(), &[n]), sizes, |device| {
        known(&Tensor::full(device, 1.0, [2, d])?).map(|_| ())
    });
}

#[test]
fn a_known_length_that_is_staged_is_read_once() {
    let sizes = [2 * STAGED, 2 * STAGED, 0];
    let report = known_and_staged::report();
    check("a_known_length_that_is_staged_is_read_once", (report, &[("N", 2)]), sizes, |device| {
        known_and_staged(&Tensor::full(device, 1.0, [2, STAGED])?).map(|_| ())
    });
}

/// Three passes: the sum, the squares and the elements.
#[test]
fn half_of_a_known_length_is_staged() {
    let d = 2 * STAGED;
    let sizes = [read(d, STAGED, 3), 2 * d, 0];
    check("half_of_a_known_length_is_staged", (known_and_even::report(), &[("N", 2)]), sizes, |device| {
        known_and_even(&Tensor::full(device, 1.0, [2, d])?).map(|_| ())
    });
}

/// One pass for the mean of one input. Another for the exponentials of the other, from which the elements are
/// computed.
#[test]
fn what_exponentials_are_made_of_is_staged() {
    let d = 20_480;
    let sizes = [4 * d, 2 * d, 0];
    let extents: &[(&str, usize)] = &[("N", 2), ("D", d)];
    check("what_exponentials_are_made_of_is_staged", (of_exponentials::report(), extents), sizes, |device| {
        of_exponentials(&Tensor::full(device, 1.0, [2, d])?, &Tensor::full(device, 2.0, [2, d])?).map(|_| ())
    });
}
