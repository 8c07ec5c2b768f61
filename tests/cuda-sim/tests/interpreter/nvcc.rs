//! PTX that Fusion did not emit runs without a fault and agrees with references in f64. nvcc compiled it from
//! small CUDA C++ kernels, and no block size divides the numbers of elements.

use crate::cases;

#[test]
fn saxpy() {
    // The first sizes have more threads than elements, and the last several elements for a thread.
    for n in [1, 31, 1000, 4099] {
        cases::saxpy(n).passes();
    }
}

#[test]
fn block_sum() {
    for (n, grid) in [(1, 1), (255, 2), (1000, 1), (10_007, 5)] {
        cases::block_sum(n, grid).passes();
    }
}

#[test]
fn softmax_row() {
    for (rows, columns, threads) in [(1, 1, 32), (3, 7, 64), (5, 97, 96), (2, 1001, 224)] {
        cases::softmax_row(rows, columns, threads).passes();
    }
}

#[test]
fn transpose() {
    for (rows, columns) in [(1, 1), (1, 65), (33, 31), (97, 70)] {
        cases::transpose(rows, columns).passes();
    }
}

#[test]
fn half_gate() {
    for n in [1, 2, 67, 1001] {
        cases::half_gate(n).passes();
    }
}

#[test]
fn histogram() {
    for n in [1, 45, 5003] {
        cases::histogram(n).passes();
    }
}

#[test]
fn layer_norm() {
    for (rows, vectors) in [(1, 9), (5, 33), (7, 100)] {
        cases::layer_norm(rows, vectors).passes();
    }
}

#[test]
fn matmul_tiles() {
    for (m, n, k) in [(1, 8, 8), (64, 64, 32), (70, 72, 40), (131, 136, 96)] {
        cases::matmul_tiles(m, n, k).passes();
    }
}

#[test]
fn group_reduce() {
    for n in [1, 96, 100, 3001] {
        cases::group_reduce(n).passes();
    }
}

#[test]
fn device_functions() {
    for (n, each) in [(1, 1), (1000, 7), (1001, 40)] {
        cases::device_functions(n, each).passes();
    }
}
