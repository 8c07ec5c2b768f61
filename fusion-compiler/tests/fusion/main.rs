//! Fusion decisions as the report states them, with the reason, line and column of each boundary.
#![cfg(feature = "compile")]

use fusion_compiler::check::{Source, front_end};
use fusion_compiler::ir::graph::Access;
use fusion_compiler::ir::plan::{BufferArg, Dest, Plan, Slot, Summary, Target, Traffic};
use fusion_compiler::{KernelCode, compile};

mod budgets;
mod costs;
mod elsewhere;
mod loops;
mod nested;
mod reports;

fn plan(source: &str, target: Target) -> Plan<KernelCode> {
    let functions = match front_end(source.parse().expect("tokens")) {
        Ok(Source::Items(functions, _)) => functions,
        other => panic!("the source is right: {other:?}"),
    };
    compile(functions[0].graph.clone(), &[target], &|span| {
        let start = functions[0].spans[span.0 as usize].start();
        (start.line as u32, start.column as u32 + 1)
    })
}

/// Returns kernels as `reads -> writes`, in order, then `line:column value: reason` for each boundary.
fn decisions(summary: &Summary) -> Vec<String> {
    let names = |moved: &[Traffic]| {
        let names = moved.iter().map(|moved| &*summary.arrays[usize::from(moved.array)].name);
        names.collect::<Vec<_>>().join(" ")
    };
    let kernels = summary.groups.iter();
    let kernels =
        kernels.map(|group| format!("{} {} -> {}", group.space, names(&group.reads), names(&group.writes)));
    let boundaries = summary.boundaries.iter();
    let boundaries =
        boundaries.map(|one| format!("{}:{} {}: {}", one.line, one.column, one.value, one.reason));
    kernels.chain(boundaries).collect()
}

/// Checks the program for a target.
fn check_on(target: Target, source: &str, expect: &[&str]) {
    let plan = plan(source, target);
    let (program, summary) = (&plan.programs[0], &plan.summary);
    assert_eq!(decisions(summary), expect, "{source}");
    // The program must match the report.
    let kernels = expect.iter().filter(|line| line.contains(" -> ")).count();
    assert_eq!(program.steps.len(), kernels, "{source}");
    for (step, group) in program.steps.iter().zip(summary.groups.iter()) {
        let alone = step.variants.iter().find(|variant| variant.launches.len() == 1);
        let launch = &alone.expect("what is not cut into parts is one kernel").launches[0];
        // A tile of a contraction is no memory of the plan.
        let tile = launch.contraction.as_ref().map(|of| usize::from(of.tile));
        let buffers = launch.buffers.iter().enumerate().filter(|(i, _)| tile != Some(*i));
        let buffers: Vec<&BufferArg> = buffers.map(|(_, buffer)| buffer).collect();
        // A buffer that is only written may serve as the staged buffer of a row before its final values are
        // written.
        let parameter = |buffer: &BufferArg| matches!(buffer.slot, Slot::Param(_));
        let reads = |buffer: &&&BufferArg| match buffer.access {
            Access::Read => true,
            Access::Write => false,
            Access::ReadWrite => parameter(buffer),
        };
        let writes = buffers.iter().filter(|buffer| buffer.access != Access::Read).count();
        assert_eq!(
            (buffers.iter().filter(reads).count(), writes),
            (group.reads.len(), group.writes.len()),
            "{source}"
        );
    }
}

fn check(source: &str, expect: &[&str]) {
    Target::ALL.iter().for_each(|&target| check_on(target, source, expect));
}

#[test]
fn elementwise_and_broadcast_operations_share_a_kernel() {
    check(
        "pub fn f(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] { relu(a + b) * c }",
        &["[N] a b c -> result"],
    );
    check(
        "pub fn f(x: f32[N, D], mu: f32[N], gamma: f32[D], s: f32) -> f32[N, D] { (x - mu) * exp(gamma) * s }",
        &["[N, D] x mu gamma -> result"],
    );
    check("pub fn f(x: f32[N, D], y: f32[D, N]) -> f32[D, N] { exp(x) + y }", &["[D, N] x y -> result"]);
    check(
        "pub fn f(x: f32[N, C = 3], w: f32[C]) -> f32[N, C] { x - sum(x * w, C) }",
        &["[N, C] x w -> result"],
    );
}

#[test]
fn results_over_one_space_share_a_kernel() {
    check(
        "pub fn f(x: f32[N], y: f32[N]) -> (f32[N], f32[N], f32[N]) { let e = exp(x); (e * y, e + y, e) }",
        &["[N] x y -> result result result"],
    );
    check(
        "pub fn f(p: &mut f32[N], m: &mut f32[N], g: f32[N]) { m = 0.9 * m + g; p -= 0.1 * m; }",
        &["[N] p m g -> m p"],
    );
}

#[test]
fn other_spaces_are_other_kernels() {
    // The other kernel needs a value that is also a result, and reads it.
    check(
        "pub fn f(x: f32[N, D], y: f32[N]) -> (f32[N, D], f32[N]) { let z = 2.0 * y + 1.0; (x * z, z) }",
        &[
            "[N] y -> result",
            "[N, D] x result -> result",
            "1:86 result: no result before has these dims in this order",
        ],
    );
    // The value that both kernels need is cheap, and is recomputed.
    check(
        "pub fn f(x: f32[N, D], y: f32[N, D]) -> (f32[N, D], f32[D, N]) { let v = x + y; (v * 2.0, v * 3.0) }",
        &[
            "[N, D] x y -> result",
            "[D, N] x y -> result",
            "1:93 result: no result before has these dims in this order",
        ],
    );
}

/// Regression: one costly value, written in two orders of its axes, caused an endless loop of storing it.
#[test]
fn a_result_in_two_orders_is_two_kernels() {
    check(
        "pub fn f(p: &mut f32[N, D]) -> f32[D, N] { let v = silu(p); p = v; v }",
        &[
            "[N, D] p -> p",
            "[D, N] p -> result",
            "1:52 result: no result before has these dims in this order",
        ],
    );
}

/// The third value needs the second. The second is written in another order and needs the first.
#[test]
fn kernels_that_would_wait_for_each_other_do_not_merge() {
    check(
        "pub fn f(x: f32[N, D]) -> (f32[N, D], f32[D, N], f32[N, D]) {
            let a = exp(x);
            let b = exp(a);
            (a, b, b + a)
        }",
        &[
            "[N, D] x -> result",
            "[D, N] result -> result",
            "[N, D] result result -> result",
            "3:21 result: no result before has these dims in this order",
            "4:22 result: it needs what another kernel makes of the results that it would be written with",
        ],
    );
}

/// The third result joins the kernel of the first and reads the second. If the fourth, which reads the first,
/// then joined the kernel of the second, each kernel would wait for the other. No value of either kernel is
/// between two values of the other one.
#[test]
fn kernels_that_would_wait_for_each_other_as_a_whole_do_not_merge() {
    check(
        "pub fn f(x: f32[N, D], y: f32[N, D]) -> (f32[N, D], f32[D, N], f32[N, D], f32[D, N]) {
            let (a, b) = (exp(x), exp(y));
            (a, b, b + 1, a + 2)
        }",
        &[
            "[D, N] y -> result",
            "[N, D] x result -> result result",
            "[D, N] result -> result",
            "2:35 result: no result before has these dims in this order",
            "3:29 result: it needs what another kernel makes of the results that it would be written with",
        ],
    );
}

#[test]
fn all_of_an_axis_is_at_hand_only_innermost() {
    check(
        "pub fn f(x: f32[N, C = 3]) -> f32[C, N] {\n    x - sum(x, C)\n}",
        &[
            "[N] x -> sum",
            "[C, N] x sum -> result",
            "2:9 sum: it needs all of `C`, and the kernel that uses it writes `C` elsewhere than innermost",
        ],
    );
    check(
        "pub fn f(x: f32[C = 3, N]) -> f32[C, N] {\n    x -\n        at(x, C, 1)\n}",
        &[
            "[N] x -> at",
            "[C, N] x at -> result",
            "3:9 at: it needs all of `C`, and the kernel that uses it writes `C` elsewhere than innermost",
        ],
    );
}

#[test]
fn off_is_a_kernel_for_each_operation() {
    check(
        "#[fuse(off)]\npub fn f(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] {\n    relu(a + b) * c\n}",
        &[
            "[N] a b -> add",
            "[N] add -> select",
            "[N] c select -> result",
            "3:12 add: fusion is off for this function",
            "3:5 select: fusion is off for this function",
        ],
    );
}

#[test]
fn a_parameter_whose_old_value_another_kernel_reads_is_replaced() {
    let replaced = |source: &str, expect: &[&str]| {
        check(source, expect);
        plan(source, Target::Cpu)
            .outputs
            .iter()
            .filter(|output| matches!(output.dest, Dest::Replaces(_)))
            .count()
    };
    // The old value is read in another order, over another space, or in the same kernel. Within one kernel,
    // the parameter can be overwritten.
    let transposed = "pub fn f(p: &mut f32[N, D]) -> f32[D, N] { let old = p; p = old + 1.0; old * 2.0 }";
    let apart = "1:76 result: no result before has these dims in this order";
    assert_eq!(replaced(transposed, &["[N, D] p -> p", "[D, N] p -> result", apart]), 1);
    let broadcast =
        "pub fn f(p: &mut f32[N], x: f32[N, D]) -> f32[N, D] { let old = p; p = old + 1.0; x * old }";
    assert_eq!(
        replaced(
            broadcast,
            &[
                "[N] p -> p",
                "[N, D] p x -> result",
                "1:85 result: no result before has these dims in this order"
            ]
        ),
        1
    );
    let swap = "pub fn f(a: &mut f32[N], b: &mut f32[N]) { let old = a; a = b; b = old; }";
    assert_eq!(replaced(swap, &["[N] a b -> b a"]), 0);
}

/// Rows along the innermost dims are one kernel each, with any elementwise operations before and after.
#[test]
fn what_is_made_of_rows_is_one_kernel() {
    let softmax = "pub fn f(x: f32[N, D]) -> f32[N, D] { let e = exp(x - max(x, D)); e / sum(e, D) }";
    check(softmax, &["[N, D] x -> result"]);
    let layer_norm =
        "let mu = mean(h, D); let var = mean(square(h - mu), D); (h - mu) * rsqrt(var + eps) * g + b";
    check(
        &format!("pub fn f(h: f32[N, D], g: f32[D], b: f32[D], eps: f32) -> f32[N, D] {{ {layer_norm} }}"),
        &["[N, D] h g b -> result"],
    );
    check(
        &format!(
            "pub fn f(x: f32[N, D], c: f32[D], g: f32[D], b: f32[D], eps: f32) -> f32[N, D] {{ let h = gelu(x + c); {layer_norm} }}"
        ),
        &["[N, D] x c g b -> result"],
    );
    let rms_norm = "h * rsqrt(mean(square(h), D) + eps) * g";
    check(
        &format!("pub fn f(h: f32[N, D], g: f32[D], eps: f32) -> f32[N, D] {{ {rms_norm} }}"),
        &["[N, D] h g -> result"],
    );
    // The residual is written, too.
    check(
        &format!(
            "pub fn f(x: f32[N, D], r: &mut f32[N, D], g: f32[D], eps: f32) -> f32[N, D] {{ r += x; let h = r; {rms_norm} }}"
        ),
        &["[N, D] x r g -> r result"],
    );
    check(
        "pub fn f(x: f32[N, D]) -> (f32[N], f32[N], f32[N, D]) { (max(x, D), sum(x, D), x * 2.0) }",
        &["[N, D] x -> result result result"],
    );
    check("pub fn f(x: f32[N, H, W]) -> f32[N] { mean(x, (H, W)) }", &["[N, H, W] x -> result"]);
    check("pub fn f(x: f32[N, C = 100]) -> f32[N, C] { x - mean(x, C) }", &["[N, C] x -> result"]);
}

/// Columns: adjacent rows in the tensors read and written. The stride of a row's elements is the number of
/// rows.
#[test]
fn what_is_made_of_columns_is_one_kernel() {
    let softmax = "let e = exp(x - max(x, D)); e / sum(e, D)";
    check(&format!("pub fn f(x: f32[D, N]) -> f32[D, N] {{ {softmax} }}"), &["[N, D] x -> result"]);
    check(&format!("pub fn f(x: f32[B, D, N]) -> f32[B, D, N] {{ {softmax} }}"), &["[B, N, D] x -> result"]);
    check(
        "pub fn f(x: f32[N, D]) -> f32[N, D] { let y = x - max(x, N); y - log(sum(exp(y), N)) }",
        &["[D, N] x -> result"],
    );
    let norm = "let mu = mean(x, (N, H)); (x - mu) * rsqrt(mean(square(x - mu), (N, H)) + eps) * g + b";
    check(
        &format!("pub fn f(x: f32[N, H, C], g: f32[C], b: f32[C], eps: f32) -> f32[N, H, C] {{ {norm} }}"),
        &["[C, N, H] x g b -> result"],
    );
    // Results of rows and of elements, and an update in place.
    check(
        "pub fn f(x: f32[N, D], m: &mut f32[D]) -> (f32[N, D], f32[D]) {
            let mu = mean(x, N);
            m = 0.9 * m + 0.1 * mu;
            (x - mu, mean(square(x - mu), N))
        }",
        &["[D, N] x m -> m result result"],
    );
    // A value that all columns share may vary along the columns.
    for value in [
        "softmax(x + m, S)",
        "softmax(if m > 0.5 { x } else { -INF }, S)",
        "layer_norm(x, S) * m",
        "x - max(x * m, S)",
    ] {
        let source = format!("pub fn f(x: f32[N, S, H], m: f32[N, S]) -> f32[N, S, H] {{ {value} }}");
        check(&source, &["[N, H, S] x m -> result"]);
    }
    let twice = plan("pub fn f(x: f32[A, B, C]) -> f32[A, B, C] { softmax(softmax(x, C), B) }", Target::Ptx);
    let kernels = ["[A, B, C] x -> max sum", "[A, C, B] x max sum -> result"];
    assert_eq!(decisions(&twice.summary)[..2], kernels);
    // Elements of a row are adjacent in the tensor that is read, and strided in the result.
    check(
        &format!("pub fn f(x: f32[N, D]) -> f32[D, N] {{\n    {softmax}\n}}"),
        &[
            "[N, D] x -> max sum",
            "[D, N] x max sum -> result",
            "2:21 max: its consumer does not iterate over whole rows along `D`, so it is a separate kernel",
            "2:37 sum: its consumer does not iterate over whole rows along `D`, so it is a separate kernel",
        ],
    );
}

/// Rows whose elements are neither contiguous nor columns.
#[test]
fn rows_in_pieces_are_kernels_of_their_own() {
    // Statistics of a batch: reductions for each channel, then the same operations for every pixel.
    check(
        "pub fn f(x: f32[N, C, H, W], eps: f32) -> f32[N, C, H, W] {
    let mu = mean(x, (N, H, W));
    let var = mean(square(x - mu), (N, H, W));
    (x - mu) * rsqrt(var + eps)
}",
        &[
            "[C, N, H, W] x -> sum sum",
            "[N, C, H, W] x sum sum -> result",
            "2:14 sum: its consumer does not iterate over whole rows along `N`, `H`, `W`, so it is a separate kernel",
            "3:15 sum: its consumer does not iterate over whole rows along `N`, `H`, `W`, so it is a separate kernel",
        ],
    );
    check(
        "pub fn f(x: f32[N, D]) -> (f32[N], f32[D]) {\n    (sum(x, D),\n    sum(x, N))\n}",
        &[
            "[N, D] x -> result",
            "[D, N] x -> result",
            "3:5 result: no result before has these dims in this order",
        ],
    );
    check(
        "pub fn f(x: f32[N, D]) -> f32[D] {\n    let e = exp(x);\n    sum(e /\n    sum(e, D), N)\n}",
        &[
            "[N, D] x -> sum",
            "[D, N] x sum -> result",
            "4:5 sum: its consumer does not iterate over whole rows along `D`, so it is a separate kernel",
        ],
    );
}

#[test]
fn what_is_made_of_everything() {
    check(
        "pub fn f(x: f32[N, D]) -> f32[] { let mu = mean(x); mean(square(x - mu)) }",
        &["[N, D] x -> result"],
    );
    check("pub fn f(x: f32[N, D]) -> f32[N, D] {\n    x - mean(x)\n}", &["[N, D] x -> result"]);
}

#[test]
fn a_matrix_product_is_one_kernel_with_its_epilogue() {
    check(
        "pub fn f(x: f32[N, K], w: f32[K, M]) -> f32[N, M] { sum(x * w, K) }",
        &["[N, M, K] x w -> result"],
    );
    check(
        "pub fn f(x: f32[N, K], w: f32[K, M], b: f32[M]) -> f32[N, M] { relu(sum(x * w, K) + b) }",
        &["[N, M, K] x w b -> result"],
    );
    // A row of products is not available in a kernel in which each product is a row.
    check(
        "pub fn f(x: f32[N, K], w: f32[M, K]) -> f32[N, M] {\n    let s = sum(x * w, K);\n    let e = exp(s - max(s, M));\n    e / sum(e, M)\n}",
        &[
            "[N, M, K] x w -> sum",
            "[N, M] sum -> result",
            "2:13 sum: its consumer does not iterate over whole rows along `K`, so it is a separate kernel",
        ],
    );
}

#[test]
fn off_is_a_kernel_for_each_reduction() {
    check(
        "#[fuse(off)]\npub fn f(x: f32[N, D]) -> f32[N, D] {\n    let e = exp(x - max(x, D));\n    e / sum(e, D)\n}",
        &[
            "[N, D] x -> max",
            "[N, D] x max -> sub",
            "[N, D] sub -> exp",
            "[N, D] exp -> sum",
            "[N, D] exp sum -> result",
            "3:21 max: fusion is off for this function",
            "3:19 sub: fusion is off for this function",
            "3:13 exp: fusion is off for this function",
            "4:9 sum: fusion is off for this function",
        ],
    );
}

/// A thread may read the old value of a row after another thread has written the new value.
#[test]
fn a_parameter_of_rows_is_replaced() {
    let replaced = |source: &str, expect: &[&str]| {
        check(source, expect);
        let outputs = plan(source, Target::Cpu).outputs;
        outputs.iter().filter(|output| matches!(output.dest, Dest::Replaces(_))).count()
    };
    let rows = "pub fn f(s: &mut f32[N], x: f32[N, D]) { s += sum(x, D); }";
    assert_eq!(replaced(rows, &["[N, D] s x -> s"]), 1);
    let only_written = "pub fn f(s: &mut f32[N], x: f32[N, D]) { s = sum(x, D); }";
    assert_eq!(replaced(only_written, &["[N, D] x -> s"]), 0);
    let elements = "pub fn f(p: &mut f32[N, D]) { p = p - mean(p, D); }";
    assert_eq!(replaced(elements, &["[N, D] p -> p"]), 0);
    let columns = "pub fn f(p: &mut f32[N, D]) { p = p - mean(p, N); }";
    assert_eq!(replaced(columns, &["[D, N] p -> p"]), 0);
    let pieces = "pub fn f(p: &mut f32[N, C, H]) {\n    p = p - mean(p, (N, H));\n}";
    assert_eq!(
        replaced(
            pieces,
            &[
                "[C, N, H] p -> sum",
                "[N, C, H] p sum -> p",
                "2:13 sum: its consumer does not iterate over whole rows along `N`, `H`, so it is a separate kernel",
            ]
        ),
        1
    );
}

const MOVED: &str = "index operations need it at other places than its own, and reading it there costs less than computing it again";

#[test]
fn elements_at_other_places_are_read_there() {
    check(
        "pub fn f(x: f32[T, D], c: f32[T, H], s: f32[T, H]) -> f32[T, D] {
            let (a, b) = (slice(x, D -> H, ..D / 2), slice(x, D -> H, D / 2..));
            concat((a * c - b * s, H), (a * s + b * c, H) -> D)
        }",
        &["[T, D] x c s -> result"],
    );
    check(
        "pub fn f(table: f32[V, D], ids: i32[N]) -> f32[N, D] { rms_norm(take(table, V, ids), D) }",
        &["[N, D] table ids -> result"],
    );
    // A costly value at one place is computed there.
    check("pub fn f(x: f32[N]) -> f32[N] { flip(exp(x), N) }", &["[N] x -> result"]);
    // A cheap value at several places is recomputed there.
    check("pub fn f(x: f32[N]) -> f32[N] { let y = x + 1.0; y * flip(y, N) }", &["[N] x -> result"]);
}

#[test]
fn costly_values_at_several_places_are_stored_once() {
    check(
        "pub fn f(x: f32[N]) -> f32[M] { let y = exp(sin(tanh(x))); slice(y, N -> M, 1..) - slice(y, N -> M, ..N - 1) }",
        &["[N] x -> exp", "[M] exp -> result", &format!("1:41 exp: {MOVED}")],
    );
    check(
        "pub fn f(x: f32[N]) -> f32[N] { let y = exp(x); y - roll(y, N, 1) + roll(y, N, 2) - roll(y, N, 3) }",
        &["[N] x -> exp", "[N] exp -> result", &format!("1:41 exp: {MOVED}")],
    );
    check(
        "pub fn f(x: f32[N]) -> f32[N] { let y = exp(x); y - roll(y, N, 1) + roll(y, N, 2) }",
        &["[N] x -> result"],
    );
    check(
        "pub fn f(x: f32[N]) -> (f32[N], f32[N]) { let y = exp(x); (y, flip(y, N)) }",
        &["[N] x -> result result"],
    );
    // Each step would need twice as many values as the step before.
    let steps = "let x = x - roll(x, N, 1);\n".repeat(6);
    let fourth = format!("let y = x;\n{}y", steps.replace("let x = x - roll(x", "let y = y - roll(y"));
    let source = format!("pub fn f(x: f32[N]) -> f32[N] {{\n{fourth} }}");
    let plan = plan(&source, Target::Cpu);
    assert!((2..=4).contains(&plan.summary.groups.len()), "{:?}", decisions(&plan.summary));
}

#[test]
fn sums_of_other_rows_are_stored_first() {
    check(
        "pub fn f(x: f32[N, D]) -> f32[N] { let y = sum(x, D); y - flip(y, N) }",
        &["[N, D] x -> sum", "[N] sum -> result", &format!("1:44 sum: {MOVED}")],
    );
}

#[test]
fn a_parameter_read_at_other_places_is_not_overwritten() {
    for body in ["p = roll(p, N, 1);", "p = p + flip(p, N);", "p = slice(pad(p, N -> P, 1, 0), P -> N, ..N);"]
    {
        let plan = plan(&format!("pub fn f(p: &mut f32[N]) {{ {body} }}"), Target::Cpu);
        assert_eq!(plan.outputs[0].dest, Dest::Replaces(0), "{body}");
        assert_eq!(plan.summary.groups.len(), 1, "{body}");
    }
    let own = plan("pub fn f(p: &mut f32[N], x: f32[N]) { p = p + flip(x, N); }", Target::Cpu);
    assert!(own.outputs.is_empty(), "it is overwritten");
}

/// Regression: functions whose kernels could not be emitted, on every target, fused and unfused.
#[test]
fn elements_at_other_places_of_what_others_make() {
    for source in [
        // A parameter that is also a result, and is read at other places by another kernel.
        "pub fn f(x: f32[N], y: f32[N, D]) -> (f32[N], f32[N, D]) { (x, y * roll(x, N, 1)) }",
        "pub fn f(p: &mut f32[N], q: f32[N], x: f32[N, D]) -> f32[N, D] { p = q; x * flip(q, N) }",
        "pub fn f(x: f32[N], a: f32[N], b: f32[N], c: f32[N], d: f32[N], e: f32[N], g: f32[N]) -> (f32[N], f32[N]) {
            (x, roll(x, N, 1) * a * b * c * d * e * g)
        }",
        // Nested index operations on columns.
        "pub fn f(x: f32[D, N]) -> f32[N] { sum(slice(slice(x, D -> Q, 1..), Q -> R, 1..), R) }",
        "pub fn f(x: f32[D, N], i: i32[M]) -> f32[M, N] { softmax(take(x * index(D) as f32, D, i), M) }",
    ] {
        for attribute in ["", "#[fuse(off)]\n"] {
            let source = format!("{attribute}{source}");
            let functions = match front_end(source.parse().expect("tokens")) {
                Ok(Source::Items(functions, _)) => functions,
                other => panic!("{source} is right: {other:?}"),
            };
            let plan = compile(functions[0].graph.clone(), &Target::ALL, &|_| (0, 0));
            let has = |target| plan.programs.iter().any(|program| program.target == target);
            assert!(Target::ALL.into_iter().all(has), "{source}");
        }
    }
}
