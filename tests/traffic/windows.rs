//! Convolutions store no windows.

use fusion::prelude::*;

use crate::measured;

fuse! {
    /// A read of the weights, reads of the input for each tap, and a write.
    pub fn convolution(x: f32[N, C, H, W], w: f32[O, C, KH, KW]) -> f32[N, O, P, Q] {
        conv(x, w, C, (H, KH) -> P, (W, KW) -> Q)
    }
}

/// A convolution reads its input once for each tap at most, and stores nothing but its result.
#[test]
fn a_tile_of_a_convolution_stores_its_result_alone() {
    let moved = measured("windows::a_tile_of_a_convolution_stores_its_result_alone", |device| {
        let (x, w) =
            (Tensor::full(device, 1.0, [1, 16, 10, 10])?, Tensor::full(device, 1.0, [64, 16, 3, 3])?);
        convolution(&x, &w).map(|_| ())
    });
    if let Some([loaded, stored, ..]) = moved {
        assert_eq!(stored, 4 * 64 * 64);
        assert!(loaded <= 4 * (64 * 16 * 9 + 16 * 9 * 64), "{loaded}");
    }
}
