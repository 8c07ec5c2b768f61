//! Each element is read and written once, as the report states, in unaligned rows and in rows that a cluster
//! shares.

use fusion::prelude::*;

use crate::{measured, softmax_rows, told};

fn check(test: &str, [rows, d]: [usize; 2]) {
    let test = &format!("once::{test}");
    let moved = measured(test, |device| softmax_rows(&Tensor::full(device, 1.0, [rows, d])?).map(|_| ()));
    if let Some([loaded, stored, ..]) = moved {
        let bytes = 4 * (rows * d) as u64;
        assert_eq!([loaded, stored], [bytes; 2], "{test}");
        assert_eq!(told(softmax_rows::report(), &[("N", rows), ("D", d)]), Ok([1, 2 * bytes]), "{test}");
    }
}

#[test]
fn rows_that_are_no_vectors() {
    check("rows_that_are_no_vectors", [6, 1001]);
}

#[test]
fn rows_of_a_cluster() {
    check("rows_of_a_cluster", [64, 33_000]);
}

#[test]
fn rows_of_a_cluster_that_are_no_vectors() {
    check("rows_of_a_cluster_that_are_no_vectors", [64, 16_389]);
}
