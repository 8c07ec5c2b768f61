//! Kernels of tiles compute the same before and after `legalize` gives the elements of tiles to threads.

mod interpreter;

use fusion_compiler::check::{Source, front_end};
use fusion_compiler::ir::dtype::{Const, DType};
use fusion_compiler::ir::graph::Access;
use fusion_compiler::ir::kernel::{Kernel, Panels};
use fusion_compiler::ir::plan::{Limits, Slot, Target};
use fusion_compiler::ir::verify_kernel;
use fusion_compiler::ops::scalar::Scalar;
use fusion_compiler::plan::FusedGraph;
use fusion_compiler::plan::assemble::{SlotAssignment, program};
use fusion_compiler::schedule::{Scheduled, schedule};
use fusion_compiler::target::{Contractions, TargetFacts, TileShape, Tiles, facts};
use fusion_compiler::{fuse, legalize, optimize};
use interpreter::{Elements, Team, has_tiles};

/// Shapes with one run of rows, several runs, one vector and several vectors for each thread.
///
/// The last one has a loop over the steps of a copied panel.
const SHAPES: [TileShape; 5] = [
    shape((8, 16, 4), 8),
    shape((16, 8, 8), 4),
    shape((4, 16, 8), 8),
    shape((16, 16, 4), 4),
    shape((32, 32, 8), 16),
];

const fn shape((rows, cols, depth): (u16, u16, u16), threads: u32) -> TileShape {
    TileShape { rows, cols, depth, threads, size_max: 8, elements_min: 0, panels: Panels::Stored }
}

/// Returns the kernels that compute a function in tiles of a shape.
fn kernels(source: &str, shape: &'static [TileShape]) -> Vec<Scheduled> {
    let tokens = source.parse().expect("the source has tokens");
    let Ok(Source::Items(functions, _)) = front_end(tokens) else { panic!("{source} is correct") };
    let graph = optimize(functions[0].graph.clone());
    let ptx = facts(Target::Ptx);
    let (tiles, parts) = (Tiles::Teams(shape), None);
    let contractions =
        Contractions { rows_min: 1, cols_min: 1, depth_min: 1, tiles, parts, ..ptx.contractions };
    let facts = TargetFacts { contractions, ..ptx };
    let (graph, fused) = fuse::fuse_for(graph, &[facts]).remove(0);
    let of = FusedGraph { target: Target::Ptx, facts, graph, fused };
    let mut kernels = vec![];
    program::<()>(&SlotAssignment::new(&of.graph, [&of.fused]), &of, |work| {
        let (configs, scratch) = schedule(work, &facts);
        kernels.extend(configs.into_iter().flatten());
        (vec![], scratch)
    });
    kernels.retain(|one| has_tiles(&one.kernel));
    kernels
}

/// Returns pseudo-random elements, the same for the same seed.
fn elements(dtype: DType, seed: usize, count: usize) -> Elements {
    let mut state = seed as u32 ^ 0x9e37_79b9;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let number = state >> 8;
        match dtype {
            dtype if dtype.is_int() => Scalar::new(dtype, Const::Int(i64::from(number % 3))),
            dtype => Scalar::new(dtype, Const::Float(f64::from(number) / f64::from(1 << 23) - 1.0)),
        }
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Runs a kernel, with the same content of its buffers for the same kernel.
fn run(of: &Scheduled, kernel: &Kernel, symbols: &[i64]) -> Vec<Elements> {
    let most = symbols.iter().product::<i64>() as usize;
    let buffers = of.buffers.iter().enumerate().map(|(i, buffer)| elements(buffer.dtype, i, most));
    let iterations = of.space.elements(symbols).expect("the space is small");
    let bytes = of.row_memory.as_const().expect("tiles of one size have memory of one size");
    Team::run(kernel, buffers.collect(), (symbols, iterations, bytes as usize))
}

/// Compares each kernel of a function before and after the lowering of tiles, bit by bit.
///
/// Returns the number of kernels with panels that are copied.
fn check(source: &str) -> usize {
    let mut copied = 0;
    for shape in SHAPES {
        let shapes = Box::leak(Box::new([TileShape { panels: Panels::Copied, ..shape }, shape]));
        let kernels = kernels(source, shapes);
        assert!(!kernels.is_empty(), "{source} is a contraction");
        copied += kernels.iter().filter(|of| of.kernel.threads.panels == Panels::Copied).count();
        for of in &kernels {
            assert_eq!(verify_kernel::kernel(&of.kernel), Ok(()));
            let lowered = legalize::tiles(of.kernel.clone());
            assert_eq!(verify_kernel::kernel(&lowered), Ok(()));
            assert!(has_tiles(&of.kernel) && !has_tiles(&lowered));
            for symbols in [[5, 7, 9], [16, 8, 20], [1, 33, 4], [24, 16, 12], [17, 1, 3]] {
                let limits = Limits {
                    binding_bytes: u64::MAX,
                    shared_bytes: u64::MAX,
                    subgroup: 0,
                    cluster: 1,
                    arch: 80,
                };
                if !of.when.iter().all(|condition| condition.holds(&symbols, &limits)) {
                    continue;
                }
                let [expected, made] = [&of.kernel, &lowered].map(|kernel| run(of, kernel, &symbols));
                for (buffer, (expected, made)) in of.buffers.iter().zip(expected.iter().zip(&made)) {
                    let bits = |of: &Elements| of.iter().map(|x| x.to_f64().to_bits()).collect::<Vec<_>>();
                    assert!(
                        bits(expected) == bits(made),
                        "{source} {shape:?} {symbols:?} {buffer:?}\n{lowered}"
                    );
                }
            }
        }
    }
    copied
}

#[test]
fn operands_of_any_layout_are_copied() {
    for (x, w) in [("M, K", "K, N"), ("M, K", "N, K"), ("K, M", "K, N"), ("K, M", "N, K")] {
        let copied = check(&format!("pub fn f(x: f32[{x}], w: f32[{w}]) -> f32[M, N] {{ sum(x * w, K) }}"));
        assert_eq!(copied, SHAPES.len());
    }
    check("pub fn f(x: f64[M, K], w: f64[K, N]) -> f64[M, N] { sum(x * w, K) }");
    check("pub fn f(x: i32[M, K], w: i32[N, K]) -> i32[M, N] { sum(x * w, K) }");
    // Elements of two bytes and computed ones are stored.
    assert_eq!(check("pub fn f(x: f32[M, K], w: i16[N, K]) -> f32[M, N] { sum(x * w as f32, K) }"), 0);
}

#[test]
fn epilogues_and_prologues_are_computed() {
    check(
        "pub fn f(x: f32[M, K], w: f32[N, K], b: f32[N], s: f32[M]) -> f32[M, N] { max(sum(x * w, K) * s + b, 0.0) }",
    );
    check(
        "pub fn f(x: f32[M, K], w: f32[K, N], r: f32[N, M]) -> (f32[M, N], f32[M, N]) { let y = sum(x * w, K); (y, y + r) }",
    );
    check("pub fn f(y: &mut f32[M, N], x: f32[M, K], w: f32[K, N]) { y += sum(x * w, K); }");
    check(
        "pub fn f(x: f32[M, K], s: f32[M], w: i32[N, K], z: f32[K]) -> f32[M, N] { sum((x * s + 1.0) * (w as f32 - z), K) }",
    );
    check(
        "pub fn f(x: f32[M, K], w: f32[K, N]) -> f32[M, N] { sum(x * w, K) * index(M) as f32 + index(N) as f32 }",
    );
    // A loop over the rows of a thread computes elements of many operations.
    check("pub fn f(x: f32[M, K], w: f32[K, N], b: f32[N]) -> f32[M, N] { gelu(sum(x * w, K) + b) }");
    check(
        "pub fn f(x: f32[M, K], w: f32[K, N], s: f32[M], r: f32[N, M]) -> (f32[M, N], f32[M, N]) { let y = sum(x * w, K); (exp(y) * s, y + tanh(r)) }",
    );
}

#[test]
fn the_sum_of_a_tile_is_that_of_its_products() {
    let kernels =
        kernels("pub fn f(x: f32[M, K], w: f32[K, N]) -> f32[M, N] { sum(x * w, K) }", &SHAPES[..1]);
    let of = kernels.last().expect("the last kernel is for all sizes");
    let (m, k, n) = (5, 7, 9);
    let buffers = run(of, &of.kernel, &[m, k, n]);
    let buffer = |slot: Slot, access| {
        let place = of.buffers.iter().position(|buffer| buffer.slot == slot && buffer.access == access);
        &buffers[place.expect("the kernel has the buffer")]
    };
    let (x, w) = (buffer(Slot::Param(0), Access::Read), buffer(Slot::Param(1), Access::Read));
    let made = buffer(Slot::Output(0), Access::Write);
    for (row, col) in (0..m as usize).flat_map(|row| (0..n as usize).map(move |col| (row, col))) {
        let (k, n) = (k as usize, n as usize);
        let sum: f64 = (0..k).map(|step| x[row * k + step].to_f64() * w[step * n + col].to_f64()).sum();
        let off = (made[row * n + col].to_f64() - sum).abs();
        assert!(off < 1e-6, "{off:e} at {row}, {col}");
    }
}

/// The text of a kernel of tiles is short before threads share the tiles, and the text of a thread follows from it.
#[test]
fn kernels_of_tiles_read_as_their_source() {
    let source =
        "pub fn linear(x: f32[M, K], w: f32[K, N], b: f32[N]) -> f32[M, N] { max(sum(x * w, K) + b, 0.0) }";
    let kernels = kernels(source, &SHAPES[..1]);
    let kernel = &kernels[0].kernel;
    assert_eq!(kernel.to_string(), include_str!("linear.txt"));
    assert_eq!(legalize::tiles(kernel.clone()).to_string(), include_str!("linear_of_a_thread.txt"));
}
