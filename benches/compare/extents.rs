//! Extents of the products that `benches/compare` and `benches/gemm` measure.

/// Returns the extents of a workload: batch, rows, depth and columns. `peers.py` has the same.
pub(crate) fn extents(workload: &str, size: &str) -> [usize; 4] {
    match (workload, size) {
        ("matmul_batched", "small") => [16, 64, 64, 64],
        ("matmul_batched", "huge") => [64, 1024, 64, 1024],
        ("matmul_batched", _) => [64, 128, 64, 128],
        ("matmul_row", "small") => [1, 1, 768, 3072],
        ("matmul_row", "huge") => [1, 1, 8192, 8192],
        ("matmul_row", _) => [1, 1, 4096, 4096],
        ("linear_gelu", "small") => [1, 64, 768, 768],
        ("linear_gelu", "huge") => [1, 4096, 1024, 4096],
        ("linear_gelu", _) => [1, 512, 768, 3072],
        (_, "small") => [1, 256, 256, 256],
        (_, "huge") => [1, 4096, 4096, 4096],
        (..) => [1, 1024, 1024, 1024],
    }
}
