//! Few and long rows: the number of kernels, the temporaries between kernels, and the choice of variants.
#![cfg(feature = "compile")]

use fusion_compiler::check::{Source, front_end};
use fusion_compiler::ir::plan::{Condition, Limits, Plan, Slot, Step, Target, Variant};
use fusion_compiler::{KernelCode, compile};

fn plan(source: &str, target: Target) -> Plan<KernelCode> {
    let functions = match front_end(source.parse().expect("tokens")) {
        Ok(Source::Items(functions, _)) => functions,
        other => panic!("{source} is right: {other:?}"),
    };
    compile(functions[0].graph.clone(), &[target], &|_| (0, 0))
}

/// Limits of a typical device.
const LIMITS: Limits =
    Limits { binding_bytes: 128 << 20, shared_bytes: 96 << 10, subgroup: 0, cluster: 1, arch: 0 };

/// Returns the variant of a step that runs for these extents.
fn variant_of<'s>(step: &'s Step<KernelCode>, extents: &[i64]) -> &'s Variant<KernelCode> {
    let holds = |variant: &&Variant<KernelCode>| variant.when.iter().all(|one| one.holds(extents, &LIMITS));
    step.variants.iter().find(holds).expect("one variant has no conditions")
}

/// Returns the variant of the only step that runs for these extents.
fn variant<'p>(plan: &'p Plan<KernelCode>, extents: &[i64]) -> &'p Variant<KernelCode> {
    let [step] = &*plan.programs[0].steps else { panic!("there is one step") };
    variant_of(step, extents)
}

/// Asserts the number of kernels that run for each list of extents, on every target.
fn check(source: &str, cases: &[(&[i64], usize)]) {
    for target in Target::ALL {
        let plan = plan(source, target);
        for (extents, kernels) in cases {
            let launches = &variant(&plan, extents).launches;
            assert_eq!(launches.len(), *kernels, "{target:?}: {source} of {extents:?}");
        }
    }
}

/// Returns the largest number of trips through loops that a thread makes for these extents.
fn trips(source: &str, extents: &[i64]) -> i64 {
    let plan = plan(source, Target::Wgsl);
    let steps = plan.programs[0].steps.iter().map(|step| variant_of(step, extents));
    let trips = steps.flat_map(|variant| variant.launches.iter()).map(|launch| launch.trips.eval(extents));
    trips.map(|trips| trips.expect("it is a number")).max().expect("there are kernels")
}

/// Trips include the last test of each loop, and the steps in which a team combines its values.
#[test]
fn trips_are_those_of_all_loops() {
    // The loop handles the remainder of vectors of four elements.
    assert_eq!(trips("pub fn f(x: f32[N]) -> f32[N] { x * 2.0 }", &[1 << 20]), 4 + 1);
    // Each of 32 threads takes four elements at a time.
    assert_eq!(trips("pub fn f(x: f32[N, D]) -> f32[N] { sum(x, D) }", &[4096, 1000]), 8 + 1 + 71);
    let columns = trips("pub fn f(x: f32[N, D]) -> f32[D] { sum(x, N) }", &[1000, 1 << 17]);
    assert_eq!(columns, 1000 + 1);
    // Each strip has 128 elements.
    let columns = trips("pub fn f(x: f32[N, D]) -> f32[D] { logsumexp(x, N) }", &[1000, 1 << 17]);
    assert_eq!(columns, 8 * (1 + 1) + 1000 + 1);
}

/// No thread iterates over a whole dim of a row by itself, for any order of dims in memory.
#[test]
fn rows_of_several_dims_take_few_trips() {
    for (source, extents) in [
        (
            "pub fn f(x: f32[N, C, H, W]) -> f32[N, H, W, C] { layer_norm(x, (C, H, W)) }",
            [2, 3, 96, 96].as_slice(),
        ),
        ("pub fn f(x: f32[N, H, W], g: f32[H]) -> f32[N, H, W] { layer_norm(x, (H, W)) * g }", &[2, 9000, 2]),
        ("pub fn f(x: f32[N, C, L]) -> f32[C] { sum(x, (N, L)) }", &[33_000, 600, 1]),
        ("pub fn f(p: f32[N, L], y: f32[N, L, K]) -> f32[] { sum(p * y) }", &[1, 40_000, 2]),
        // No tensor has all dims of a row, or a tensor is read at other places.
        ("pub fn f(x: f32[N, K], y: f32[M]) -> f32[N] { sum(x * y, (K, M)) }", &[600, 70_000, 1]),
        (
            "pub fn f(a: f32[N], b: f32[C], c: f32[H], d: f32[W]) -> f32[] { sum(a * b * c * d) }",
            &[1, 9000, 3, 2],
        ),
        (
            "pub fn f(x: f32[N, C, H, W]) -> f32[] { mean(abs(slice(x, H -> A, 1..) - slice(x, H -> A, ..H - 1))) }",
            &[1, 9000, 3, 2],
        ),
        // Columns.
        (
            "pub fn f(x: f32[A, B, L, C], g: f32[B]) -> f32[B, L, C, A] { layer_norm(x, (A, L)) * g }",
            &[2, 3, 300, 9],
        ),
        ("pub fn f(x: f32[N, C, H, W], g: f32[C]) -> f32[W, C] { var(x * g, (N, H)) }", &[300, 2, 2, 2]),
        (
            "pub fn f(x: f32[N, H, T, D]) -> f32[H] { sum(slice(x, T -> S, 1..), (N, S, D)) }",
            &[2, 4, 128, 64],
        ),
    ] {
        let trips = trips(source, extents);
        assert!(trips < 4000, "{trips} of {source}");
    }
}

const MILLION: i64 = 1_000_003;
/// Length of rows that every target stores in parts.
const LONG: i64 = 5_000_001;

#[test]
fn reductions_take_two_kernels() {
    let lengths: [(&[i64], usize); 5] =
        [(&[0], 1), (&[1], 1), (&[30_000], 1), (&[300_000], 2), (&[MILLION], 2)];
    check("pub fn f(x: f32[N]) -> f32[] { sum(x) }", &lengths);
    check("pub fn f(x: f32[N]) -> (f32[], f32[], f32[]) { (mean(x), max(x), norm(x)) }", &lengths);
    check("pub fn f(x: f32[N]) -> (f32[], f32[]) { (var(x), std(x)) }", &lengths);
    check("pub fn f(x: f32[N], y: f32[N]) -> f32[] { mse(x, y) }", &lengths);
    check("pub fn f(x: f32[N]) -> f32[] { logsumexp(x) }", &lengths);
    let rows: [(&[i64], usize); 5] = [
        (&[1, MILLION], 2),
        (&[16, MILLION], 2),
        (&[1000, MILLION], 1),
        (&[16, 8000], 1),
        (&[0, MILLION], 2),
    ];
    check("pub fn f(x: f32[N, D]) -> f32[N] { sum(x, D) }", &rows);
    check("pub fn f(x: f32[N, D], y: f32[D]) -> (f32[N], f32[N]) { (var(x * y, D), max(x, D)) }", &rows);
}

/// The place of the class depends on no other element, so one round of parts suffices for a cross-entropy.
#[test]
fn a_cross_entropy_takes_two_kernels() {
    let rows: [(&[i64], usize); 3] = [(&[4, MILLION], 2), (&[2048, MILLION], 1), (&[4, 8000], 1)];
    check("pub fn f(x: f32[N, V], y: i32[N]) -> f32[N] { cross_entropy(x, V, y) }", &rows);
    check("pub fn f(x: f32[N, V], y: i32[N]) -> f32[N] { cross_entropy(x, V, y, 0.1) }", &rows);
    let weighted = |body: &str, result: &str| {
        check(&format!("pub fn f(x: f32[N, V], y: i32[N], w: f32[V]) -> {result} {{ {body} }}"), &rows);
    };
    weighted("cross_entropy(x, V, y, weight = w)", "f32[N]");
    weighted("cross_entropy(x, V, y, weight = w, label_smoothing = 0.1)", "f32[N]");
    let planes: [(&[i64], usize); 2] = [(&[8, 256, 256], 2), (&[1, 10, 10], 1)];
    for weight in ["", ", weight = _w"] {
        let params = "x: f32[B, C = 19, H, W], y: i32[B, H, W], _w: f32[C = 19]";
        check(&format!("pub fn f({params}) -> f32[] {{ cross_entropy_mean(x, C, y{weight}) }}"), &planes);
    }
}

/// Parts are cut along the innermost dim if it is long, else along the outermost dim.
#[test]
fn rows_of_several_dims() {
    let cases: [(&[i64], usize); 5] =
        [(&[3, MILLION], 2), (&[MILLION, 3], 2), (&[2000, 2000], 2), (&[100, 100], 1), (&[MILLION, 0], 1)];
    check("pub fn f(x: f32[N, D], y: f32[D]) -> f32[] { sum(x * y) }", &cases);
    check("pub fn f(x: f32[N, D], y: f32[D]) -> f32[] { var(x * y) }", &cases);
    check(
        "pub fn f(x: f32[N, D = 3], y: f32[D = 3]) -> f32[] { sum(x * y) }",
        &[(&[MILLION], 2), (&[10], 1)],
    );
    check(
        "pub fn f(x: f32[N, C, D]) -> f32[C] { sum(x, (N, D)) }",
        &[(&[MILLION, 2, 3], 2), (&[3, 2, MILLION], 2)],
    );
}

/// A value that a thread reduces along a fixed dim by itself is one element of the row.
#[test]
fn rows_around_fixed_dims() {
    let planes: [(&[i64], usize); 3] = [(&[8, 256, 256], 2), (&[1, MILLION, 1], 2), (&[1, 10, 10], 1)];
    check("pub fn f(x: f32[B, C = 3, H, W]) -> f32[] { mean(max(x, C)) }", &planes);
    check(
        "pub fn f(x: f32[B, C = 19, H, W], y: i32[B, H, W]) -> f32[] { cross_entropy_mean(x, C, y) }",
        &planes,
    );
    let lines: [(&[i64], usize); 2] = [(&[LONG], 3), (&[100], 1)];
    check("pub fn f(x: f32[N, C = 3]) -> f32[N] { softmax(norm(x, C), N) }", &lines);
}

/// Rows are cut wherever their elements are read.
#[test]
fn elements_at_other_places_take_two_kernels() {
    let rows: [(&[i64], usize); 3] = [(&[3, MILLION], 2), (&[3, 8000], 1), (&[1000, MILLION], 1)];
    check("pub fn f(x: f32[N, D]) -> f32[N] { sum(x * roll(x, D, 1), D) }", &rows);
    check("pub fn f(x: f32[N, D]) -> f32[N] { var(flip(x, N), D) }", &rows);
    let columns: [(&[i64], usize); 2] = [(&[MILLION, 3], 2), (&[1000, 3], 1)];
    check("pub fn f(x: f32[N, C]) -> f32[C] { mean(flip(x, N), N) }", &columns);
    check("pub fn f(k: i32[N], x: f32[V, C]) -> f32[C] { max(take(x, V, k), N) }", &[(&[MILLION, 3, 4], 2)]);
}

/// One kernel computes the parts, one the rows, and one the elements. A third pass over the rows adds two
/// kernels.
#[test]
fn elements_take_a_third_kernel() {
    let rows: [(&[i64], usize); 3] = [(&[1, 30_000], 1), (&[3, LONG], 3), (&[1000, LONG], 1)];
    check("pub fn f(x: f32[N, D]) -> f32[N, D] { softmax(x, D) }", &rows);
    check("pub fn f(x: f32[N, D]) -> f32[N, D] { layer_norm(x, D) }", &rows);
    check("pub fn f(x: f32[N, D]) -> (f32[N, D], f32[N]) { (x - max(x, D), sum(x, D)) }", &rows);
    check("pub fn f(x: f32[N, D]) -> i32[N] { argmax(x, D) }", &[(&[3, MILLION], 2)]);
    check("pub fn f(x: f32[N, D]) -> i32[D] { argmin(x, N) }", &[(&[MILLION, 3], 2)]);
    check("pub fn f(x: i32[N, H, W]) -> i32[N] { argmax(x, (H, W)) }", &[(&[3, 5, MILLION], 2)]);
    check("pub fn f(x: f32[N, D]) -> f32[N, D] { if x == max(x, D) { index(D) as f32 } else { x } }", &rows);
}

/// A single row has so few parts that each team of the last kernel combines the results of all parts again.
#[test]
fn elements_of_one_row_take_two_kernels() {
    let one: [(&[i64], usize); 3] = [(&[LONG], 2), (&[2_000_000_001], 2), (&[9000], 1)];
    for source in [
        "pub fn f(p: &mut f32[N], c: f32) { p *= min(1.0, c / norm(p)); }",
        "pub fn f(x: f32[N], y: f32[N]) -> (f32[N], f32[N]) { (x / sum(y), y - max(x)) }",
    ] {
        check(source, &one);
    }
    // Each team reads the results of all parts, so there are few parts for any number of elements.
    for target in Target::ALL {
        let plan = plan("pub fn f(x: f32[N]) -> f32[N] { x / norm(x) }", target);
        for n in [LONG, 1 << 30, 2_000_000_001] {
            let parts: Vec<_> = plan.programs[0].temporaries.iter().map(|one| one.len.eval(&[n])).collect();
            assert!(
                parts.iter().all(|parts| parts.is_some_and(|parts| parts <= 1024)),
                "{target:?}: {parts:?}"
            );
        }
    }
    // A block stages the elements that it reads twice, so parts stay short.
    check("pub fn f(x: f32[N]) -> f32[N] { softmax(x, N) }", &[(&[LONG], 3)]);
    check("pub fn f(x: f32[N, D], y: f32[N, D]) -> f32[N, D] { x * mean(y) }", &[(&[3, LONG], 2)]);
    // The first part stores a value of the row.
    check(
        "pub fn f(p: &mut f32[N], c: f32) -> f32[] { let n = norm(p); p *= min(1.0, c / n); n }",
        &[(&[LONG], 2)],
    );
    // Vector loops run along one of several dims.
    for (target, kernels) in [(Target::Ptx, 2), (Target::Wgsl, 2), (Target::Cpu, 3)] {
        let plan = plan("pub fn f(x: f32[N, D], y: f32[D]) -> f32[N, D] { x * mean(x * y) }", target);
        assert_eq!(variant(&plan, &[3, LONG]).launches.len(), kernels, "{target:?}");
    }
}

/// Squares of distances from a value other than the mean need the value of the whole row. Exponentials that
/// the maximum does not bound need that value, too.
#[test]
fn what_parts_cannot_make_takes_another_round() {
    for body in [
        "sum(square(x - max(x)))",
        "sum(square(x - sum(x) / 3.0))",
        "sum(exp(x - min(x)))",
        "sum(exp(x - mean(x)))",
        "sum(exp(x - max(abs(x))))",
        "max(exp(x - max(x)))",
        "sum(if x == max(x) { index(N) as f32 } else { 0.0 })",
        "min(if x == max(x) { 1.0 } else { x })",
        "min(if x == max(x) { x - mean(x) } else { INF })",
        "min(if x == max(x) { index(N) as f32 } else { sum(x) })",
    ] {
        check(&format!("pub fn f(x: f32[N]) -> f32[] {{ {body} }}"), &[(&[MILLION], 4)]);
    }
}

/// No tensor here has all dims of the rows, but the results of parts would have them.
#[test]
fn rows_that_nothing_read_has_are_cut_where_they_are_few() {
    let source = "pub fn f(q: f32[N], p: f32[M]) -> f32[N] { sum(exp(-square(q - p)), M) }";
    check(source, &[(&[4, MILLION], 2), (&[MILLION, 2000], 1), (&[MILLION, MILLION], 1)]);
    let source = "pub fn f(q: f32[N, B], p: f32[M, B]) -> f32[N, B] { sum(abs(q - p), M) }";
    check(source, &[(&[2, 3, MILLION], 2), (&[MILLION, 3, 2000], 1)]);
    check("pub fn f(x: f32[M, N]) -> f32[N] { sum(exp(x), M) }", &[(&[2000, 10_000], 2)]);
}

#[test]
fn short_rows_are_never_cut() {
    for source in [
        "pub fn f(x: f32[N, D = 1000]) -> f32[N] { sum(x, D) }",
        "pub fn f(x: f32[N = 4096, D]) -> f32[N] { sum(x, D) }",
        "pub fn f(x: f32[N = 1000, D]) -> f32[D] { sum(x, N) }",
        "pub fn f(x: f32[N, D]) -> f32[N, D] { relu(x) }",
    ] {
        for target in Target::ALL {
            let plan = plan(source, target);
            let all = plan.programs[0].steps.iter().flat_map(|step| step.variants.iter());
            assert!(all.into_iter().all(|variant| variant.launches.len() == 1), "{target:?}: {source}");
            assert!(plan.programs[0].temporaries.is_empty(), "{target:?}: {source}");
        }
    }
}

/// Temporaries between kernels are small and belong to the step.
#[test]
fn partial_results_are_temporaries_of_the_step() {
    for (target, parts) in [(Target::Ptx, 611), (Target::Wgsl, 611), (Target::Cpu, 77)] {
        let plan = plan("pub fn f(x: f32[N, D]) -> f32[N, D] { softmax(x, D) }", target);
        let temporaries = &plan.programs[0].temporaries;
        let lens: Vec<Option<i64>> = temporaries.iter().map(|one| one.len.eval(&[3, LONG])).collect();
        // The maximum and the sum, of parts and of rows.
        assert_eq!(lens, [3 * parts, 3 * parts, 3, 3].map(Some), "{target:?}");
        assert!(temporaries.iter().all(|one| (one.first, one.last) == (0, 0)));
        let launches = &variant(&plan, &[3, LONG]).launches;
        let elements: Vec<Option<i64>> =
            launches.iter().map(|launch| launch.space.elements(&[3, LONG])).collect();
        assert_eq!(elements, [3 * parts, 3, 3 * LONG].map(Some), "{target:?}");
        let slots = launches.iter().flat_map(|launch| launch.buffers.iter());
        assert!({ slots }.all(|buffer| !matches!(buffer.slot, Slot::Temp(i) if i > 3)), "{target:?}");
    }
}

/// Parts use vectors where rows consist of whole vectors, else separate elements. Large tensors use wide
/// positions.
#[test]
fn variants_of_parts() {
    let plan = plan("pub fn f(x: f32[N]) -> f32[] { sum(x) }", Target::Ptx);
    let first = |n| variant(&plan, &[n]).launches[0].kernel.to_string();
    assert_eq!(first(1 << 20), "fuse_f_0_parts_t256_v4");
    assert_eq!(first(MILLION), "fuse_f_0_parts_t256_x4");
    assert_eq!(first(1 << 31), "fuse_f_0_parts_t256_v4_wide");
    assert_eq!(first((1 << 31) + 1), "fuse_f_0_parts_t256_x4_wide");
    let asks = |variant: &Variant<KernelCode>| {
        variant.when.iter().any(|one| matches!(one, Condition::AtLeast(_, least) if *least == (1 << 15) + 1))
    };
    assert!(asks(variant(&plan, &[1 << 20])));
}

/// Parts would give more values than a kernel of WebGPU can bind, so rows stay whole.
#[test]
fn no_kernel_binds_more_than_its_target_can() {
    let source = "pub fn f(x: f32[N]) -> (f32[], f32[], f32[], f32[], f32[], f32[]) { \
                  (mean(x), var(x), max(x), min(x), norm(x), logsumexp(x)) }";
    let plan = plan(source, Target::Wgsl);
    let launches = plan.programs[0].steps.iter().flat_map(|step| step.variants.iter());
    assert!({ launches }.flat_map(|variant| variant.launches.iter()).all(|launch| launch.buffers.len() <= 8));
}

/// A tensor that only a norm reads, in another order than the rows, is reduced in its own order by separate
/// kernels.
#[test]
fn what_lies_in_another_order_is_combined_by_itself() {
    let source =
        "pub fn f(z: f32[N, D = 256], x: f32[D, N]) -> f32[N, D] { let y = z / norm(x); y - max(y, D) }";
    for target in Target::ALL {
        assert_eq!(plan(source, target).programs[0].steps.len(), 2, "{target:?}");
    }
}

/// A reduction over all rows runs in parts for any number of rows. The kernel of the rows combines the parts,
/// and also stores results that belong to no row.
#[test]
fn rows_after_all_of_them_are_two_kernels() {
    check(
        "pub fn f(x: f32[N, D = 256], s: &mut f32[N], most: f32) -> (f32[N, D], f32[]) {
            let y = x * min(1.0, most / norm(x));
            s = max(abs(y), D);
            (y / s, norm(x))
        }",
        &[(&[0], 2), (&[1], 2), (&[100], 2), (&[1024], 2), (&[1 << 20], 2)],
    );
    // Two reductions over all rows, of tensors that the rows do not read.
    check(
        "pub fn f(x: f32[N, H, D = 99], y: f32[N, H, D]) -> f32[N, H] { logsumexp(x, D) * sum(y) + max(y * y) }",
        &[(&[0, 3], 2), (&[5, 7], 2), (&[3000, 100], 2)],
    );
    // Values written for elements are computed before the reductions of rows.
    check(
        "pub fn f(p: &mut f32[B, K = 256], a: &mut f32[B, K], u: &mut f32[B], g: f32[B, K]) -> f32[] {
            let s = norm(g);
            let y = a * u + g / (1.0 + s);
            let m = max(abs(y), K);
            (p, a, u) = (p - y / (1.0 + m), y * m, m);
            s
        }",
        &[(&[0], 2), (&[1030], 2), (&[5], 2)],
    );
}

/// A launch has a prologue if its threads first combine the results of parts. A launch with a prologue has no
/// more threads than work at a time.
#[test]
fn threads_that_begin_with_parts_are_told_of() {
    let prologues = |source: &str, extents: &[i64]| -> Vec<bool> {
        let plan = plan(source, Target::Ptx);
        variant(&plan, extents).launches.iter().map(|launch| launch.prologue).collect()
    };
    let shares = "pub fn f(x: f32[N]) -> f32[N] { x / sum(x) }";
    assert_eq!(prologues(shares, &[1 << 20]), [false, true]);
    assert_eq!(prologues("pub fn f(x: f32[N]) -> f32[N] { x * 2.0 }", &[1 << 20]), [false]);
    // Unrolled reductions.
    let few = |m: u32| format!("pub fn f(x: f32[N], y: f32[M = {m}]) -> f32[N] {{ x * sum(y) }}");
    assert_eq!([few(64), few(4)].map(|source| prologues(&source, &[1 << 20])), [[true], [false]]);
    assert_eq!(prologues("pub fn f(x: f32[N, D]) -> f32[N] { sum(x, D) }", &[1000, 1000]), [false]);
}
