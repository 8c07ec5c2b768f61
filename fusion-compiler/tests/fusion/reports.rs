//! Numbers in reports: the launches, bytes moved, and temporaries of calls with given extents.

use fusion_compiler::ir::plan::Target;
use fusion_compiler::report::Report;

use super::plan;

/// Returns the launches of a call, the bytes it moves, and the peak bytes of its temporaries. `extents` are
/// in the order of the signature's dims.
fn called(source: &str, target: Target, extents: &[usize]) -> (usize, u64, u64) {
    let mut report = Report::new(&plan(source, target));
    for (dim, extent) in report.dims().to_vec().iter().zip(extents) {
        report.bind(dim, *extent).expect("a dim of the function");
    }
    let known = "all extents are given";
    let [bytes, peak] = [report.bytes(), report.peak_temporary_bytes()].map(|bytes| bytes.expect(known));
    (report.launches().expect(known), bytes, peak)
}

#[test]
fn reports_count_what_is_read() {
    let bytes = |source: &str, extents: &[usize]| called(source, Target::Ptx, extents).1;
    // Symbols are numbered in the order of the signature: V, D, N.
    let rows = bytes("pub fn f(t: f32[V, D], ids: i32[N]) -> f32[N, D] { take(t, V, ids) }", &[1000, 8, 3]);
    assert_eq!(rows, 4 * (3 * 8 + 3 + 3 * 8));
    let part = bytes("pub fn f(x: f32[D]) -> f32[K] { slice(x, D -> K, 0..10) }", &[1000]);
    assert_eq!(part, 4 * (10 + 10));
    let padded = bytes("pub fn f(x: f32[D]) -> f32[P] { pad(x, D -> P, 5, 5) }", &[100]);
    assert_eq!(padded, 4 * (100 + 110));
}

#[test]
fn reports_count_what_a_call_launches_and_reads_again() {
    let rows = "pub fn f(x: f32[N, D]) -> f32[N, D] { softmax(x, D) }";
    let columns = "pub fn f(x: f32[N, D]) -> f32[N, D] { softmax(x, N) }";
    let staged = |n: u64, d: u64| (1, 8 * n * d, 0);
    let twice = |n: u64, d: u64| (1, 12 * n * d, 0);
    for target in Target::ALL {
        assert_eq!(called(rows, target, &[100, 1000]), staged(100, 1000), "{target:?}");
    }
    for target in [Target::Ptx, Target::Wgsl] {
        assert_eq!(called(columns, target, &[64, 1024]), staged(64, 1024));
        assert_eq!(called(columns, target, &[16, 1024]), twice(16, 1024), "each thread has some for itself");
        assert_eq!(called(columns, target, &[64, 1 << 17]), twice(64, 1 << 17), "and where there are many");
    }
    // Each thread iterates over many columns together, for the maximum, the sum and the result. The columns
    // may exceed the thread's cache.
    assert_eq!(called(columns, Target::Cpu, &[64, 1024]), (1, 16 * 64 * 1024, 0));
    // One number per element is staged: the input, then its exponential in the same place. Longer rows stage
    // 96 KiB.
    let in_part = |n: u64, d: u64| (1, 12 * n * d - 4 * n * 24_576, 0);
    assert_eq!(called(rows, Target::Ptx, &[100, 24_576]), staged(100, 24_576));
    assert_eq!(called(rows, Target::Ptx, &[100, 24_580]), in_part(100, 24_580));
    assert_eq!(called(rows, Target::Wgsl, &[100, 3072]), staged(100, 3072));
    assert_eq!(called(rows, Target::Wgsl, &[100, 3076]), twice(100, 3076));
    assert_eq!(called(rows, Target::Cpu, &[100, 42_000]), staged(100, 42_000), "in its cache");
    // The 37 parts of 8192 elements are read for two numbers each, and read again for the elements. The
    // maximum of each part is read twice. The kernel of the elements reads the two numbers of the row.
    let long = 300_000u64;
    let parts = (3, 12 * long + 5 * 4 * 37 + 16, 2 * 4 * 37 + 8);
    assert_eq!(called(rows, Target::Ptx, &[1, 300_000]), parts);
    assert_eq!(
        called(rows, Target::Ptx, &[513, 300_000]),
        in_part(513, long),
        "as many rows as keep it busy"
    );
    assert_eq!(called(rows, Target::Wgsl, &[1, 300_000]), parts);
    assert_eq!(called(rows, Target::Wgsl, &[200, 300_000]), twice(200, long), "more than a kernel can bind");
    assert_eq!(called(rows, Target::Cpu, &[1, 300_000]), staged(1, long), "one kernel is as fast");
    let all = "pub fn f(x: f32[N]) -> f32[] { var(x) }";
    assert_eq!(called(all, Target::Ptx, &[300_000]), (2, 4 * long + 7 * 4 * 37 + 4, 3 * 4 * 37));
    assert_eq!(called(all, Target::Ptx, &[300]).0, 1);
    assert_eq!(called(rows, Target::Ptx, &[0, 300]), (0, 0, 0));
}

/// The operands of a reduction over all rows are read once more, in parts.
#[test]
fn reports_tell_of_rows_after_all_of_them() {
    let source = "pub fn f(x: f32[N, D = 256]) -> f32[N, D] { softmax(x / norm(x), D) }";
    let all = 4 * 1000 * 256;
    assert_eq!(called(source, Target::Ptx, &[1000]), (2, 3 * all + 2 * 4 * 32, 4 * 32));
    // One block suffices, so the reduction gives a single number.
    assert_eq!(called(source, Target::Ptx, &[100]), (2, 3 * all / 10 + 2 * 4, 4));
    let hero = &plan(source, Target::Cpu).summary.groups[0].hero;
    assert_eq!(*hero, "row reduction along D: max, sum, after sum along N, D");
}
