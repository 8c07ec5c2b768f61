//! Limits of a kernel's bindings and shared memory. WebGPU has 16 KiB of shared memory and 8 buffers. More
//! buffers are used where devices have them and kernels are saved.

use fusion_compiler::KernelCode;
use fusion_compiler::ir::plan::{Code, Launch, Target};

use crate::{check_on, plan};

/// The limits that every WebGPU device has (WebGPU, §3.6.2).
const BUFFERS_MAX: usize = 8;
const SHARED_BYTES_MAX: usize = 16 << 10;

#[test]
fn what_a_kernel_cannot_bind_is_split() {
    let source = "pub fn f(a: f32[N], b: f32[N], c: f32[N], d: f32[N], e: f32[N], g: f32[N], h: f32[N], i: f32[N]) -> f32[N] {
    a * b + c * d +
        e * g + h * i
}";
    check_on(
        Target::Wgsl,
        source,
        &[
            "[N] a b c d e g -> fma",
            "[N] h i fma -> result",
            "2:19 fma: together they need 9 buffers, and a kernel can bind 8",
        ],
    );
    check_on(Target::Ptx, source, &["[N] a b c d e g h i -> result"]);
    check_on(Target::Cpu, source, &["[N] a b c d e g h i -> result"]);
    // Results that exceed the bindings together get kernels of their own, without temporaries in between.
    let source = "pub fn f(a: f32[N], b: f32[N], c: f32[N], d: f32[N], e: f32[N]) -> (f32[N], f32[N], f32[N], f32[N]) {
        (a + b, b + c, c + d, d + e)
    }";
    check_on(
        Target::Wgsl,
        source,
        &[
            "[N] a b c d -> result result result",
            "[N] d e -> result",
            "2:33 result: together they need 9 buffers, and a kernel can bind 8",
        ],
    );
    check_on(Target::Ptx, source, &["[N] a b c d e -> result result result result"]);
}

/// A target has one program, and more values than a kernel can bind take more kernels.
#[test]
fn sums_of_more_values_than_buffers() {
    for (count, kernels) in [(7, 1), (8, 2), (15, 3), (16, 3)] {
        let params: Vec<String> = (0..count).map(|i| format!("x{i}: f32[N]")).collect();
        let sum: Vec<String> = (0..count).map(|i| format!("x{i}")).collect();
        let source = format!("pub fn f({}) -> f32[N] {{ {} }}", params.join(", "), sum.join(" + "));
        let plan = plan(&source, Target::Wgsl);
        let steps: Vec<usize> = plan.programs.iter().map(|program| program.steps.len()).collect();
        assert_eq!(steps, [kernels], "{count}");
    }
}

/// A truth value is stored if no other value suffices. Eight of the scalars that it is computed from are
/// uniforms, not buffers.
#[test]
fn truth_values_between_kernels() {
    let conditions = |dims: &str| {
        let params: Vec<String> = (0..18).map(|i| format!("t{i}: f32{dims}")).collect();
        let all: Vec<String> = (0..18).map(|i| format!("x > t{i}")).collect();
        (params.join(", "), all.join(" && "))
    };
    let (params, all) = conditions("[]");
    let source = format!("pub fn f(x: f32[N], {params}) -> f32[N] {{ if {all} {{ x }} else {{ 0.0 }} }}");
    check_on(
        Target::Wgsl,
        &source,
        &[
            "[N] x t0 t1 t2 t3 t4 t5 t6 t7 t8 t9 t10 t11 t12 t13 -> and",
            "[N] x t14 t15 t16 t17 and -> result",
            "1:372 and: together they need 12 buffers, and a kernel can bind 8",
        ],
    );
    check_on(
        Target::Cpu,
        &source,
        &[&format!("[N] x {} -> result", (0..18).map(|i| format!("t{i}")).collect::<Vec<_>>().join(" "))],
    );
    let source =
        format!("pub fn f(x: f32[N, D], {params}) -> f32[N] {{ sum(if {all} {{ x }} else {{ 0.0 }}, D) }}");
    check_on(
        Target::Wgsl,
        &source,
        &[
            "[N, D] x t0 t1 t2 t3 t4 t5 t6 t7 t8 t9 t10 t11 t12 t13 -> and",
            "[N, D] x t14 t15 t16 t17 and -> result",
            "1:379 and: together they need 12 buffers, and a kernel can bind 8",
        ],
    );
}

fn launches(source: &str) -> Vec<Launch<KernelCode>> {
    let plan = plan(source, Target::Wgsl);
    let program = plan.programs.last().expect("there is one for every device");
    let steps = program.steps.iter();
    steps.flat_map(|step| step.variants.iter()).flat_map(|one| one.launches.iter()).cloned().collect()
}

/// Returns the bytes of shared memory of a block, as declared in the text.
fn shared_bytes(launch: &Launch<KernelCode>) -> usize {
    let Code::Wgsl(text) = &launch.code else { panic!("the plan is for WGSL") };
    let declared = text.lines().filter(|line| line.contains("var<workgroup>"));
    let count = |line: &str| line.split(", ").nth(1)?.split('>').next()?.parse::<usize>().ok();
    declared.map(|line| 4 * count(line).unwrap_or_else(|| panic!("an array in {line}"))).sum()
}

/// Functions with more sums and conditions than a kernel can have.
#[test]
fn no_kernel_asks_for_more_than_every_device_has() {
    let list = |count: usize, one: &dyn Fn(usize) -> String, between: &str| {
        (0..count).map(one).collect::<Vec<_>>().join(between)
    };
    let params = |dims: &str| list(30, &|i| format!("x{i}: f32{dims}"), ", ");
    let sums = |between: &str| list(30, &|i| format!("sum(x{i}, D)"), between);
    let tests = list(30, &|i| format!("sum(x{i}, D) > 0.0"), " || ");
    let sources = [
        format!("pub fn f({}) -> f32[N] {{ {} }}", params("[N, D]"), sums(" + ")),
        format!("pub fn f({}) -> f32[] {{ {} }}", params("[D]"), sums(" * ")),
        format!("pub fn f({}) -> f32[N] {{ if {tests} {{ 1.0 }} else {{ 2.0 }} }}", params("[N, D]")),
        format!("pub fn f({}) -> f32[D] {{ {} }}", params("[N, D]"), sums(" + ").replace(", D)", ", N)")),
        format!(
            "pub fn f({}) -> ({}) {{ ({}) }}",
            params("[N, D]"),
            list(30, &|_| "f32[N]".into(), ", "),
            sums(", ")
        ),
        // Shared memory for a row, and for its reductions.
        format!(
            "pub fn f({}) -> f32[N, D] {{ {} }}",
            params("[N, D]"),
            sums(" + ").replace("sum(", "softmax(")
        ),
        // Reductions of one tensor, where only memory is scarce, and reductions of several dtypes.
        format!(
            "pub fn f(x: f32[N, D]) -> f32[N] {{ {} }}",
            list(30, &|i| format!("sum(exp(x * {i}.0), D)"), " + ")
        ),
        format!(
            "pub fn f(x: f32[N, D], y: i32[N, D], z: u32[N, D]) -> (f32[N], i32[N], u32[N]) {{ ({}, {}, {}) }}",
            list(7, &|i| format!("sum(x * {i}.5, D)"), " * "),
            list(7, &|i| format!("sum(y - {i}, D)"), " * "),
            list(7, &|i| format!("max(z + {i}, D)"), " * "),
        ),
    ];
    // Rows after a global reduction, which an earlier kernel computes, and an update in place.
    let global_then_rows = (2..12).flat_map(|count| {
        let params = (0..count).map(|i| format!("x{i}: f32[N, D = 64]")).collect::<Vec<_>>().join(", ");
        let sum = (0..count).map(|i| format!("x{i} * {i}.5")).collect::<Vec<_>>().join(" + ");
        [format!("sum({sum} + p)"), format!("sum({sum}) + max(p)")].map(|all| {
            format!("pub fn f({params}, p: &mut f32[N, D = 64]) {{ p = p / ({all}) + sum(p * p, D); }}")
        })
    });
    for source in sources.into_iter().chain(global_then_rows) {
        for launch in launches(&source) {
            let buffers = launch.buffers.iter().filter(|buffer| !buffer.uniform).count();
            let bytes = shared_bytes(&launch);
            let fits = buffers <= BUFFERS_MAX && bytes <= SHARED_BYTES_MAX;
            assert!(fits, "`{}` binds {buffers} buffers and shares {bytes} bytes\n{source}", launch.kernel);
        }
    }
}

/// A parameter that is updated in place is bound once, or twice if another kernel reads its old value.
#[test]
fn in_place_is_one_buffer() {
    let state: Vec<String> = (0..6).map(|i| format!("s{i}: &mut f32[N]")).collect();
    let update: String = (0..6).map(|i| format!("s{i} = s{i} * g + h; ")).collect();
    let source = format!("pub fn f({}, g: f32[N], h: f32[N]) {{ {update} }}", state.join(", "));
    check_on(Target::Wgsl, &source, &["[N] s0 s1 s2 s3 s4 s5 g h -> s0 s1 s2 s3 s4 s5"]);
    let source =
        "pub fn f(a: &mut f32[N], b: &mut f32[N], c: &mut f32[N], d: &mut f32[N], t: f32[M]) -> f32[N, M] {
        a = a + b; b = b + c; c = c + d; d = d + 1.0; a * b * c * d * t
    }";
    check_on(
        Target::Wgsl,
        source,
        &[
            "[N] a b c d -> a b c d",
            "[N, M] t a b c d -> result",
            "2:69 result: no result before has these dims in this order",
        ],
    );
}

/// A value of a row that the row reads too is one buffer where no target splits the row, and two elsewhere.
#[test]
fn values_of_rows_are_in_place_where_rows_are_whole() {
    let outputs = |source: &str| Target::ALL.map(|target| plan(source, target).outputs.len());
    let update = |dims: &str| {
        outputs(&format!(
            "pub fn f(p: &mut f32[{dims}], u: &mut f32[N]) {{
                let x = p * u;
                p = x - mean(x, D);
                u = max(abs(x), D);
            }}"
        ))
    };
    assert_eq!(update("N, D = 256"), [0; 3]);
    assert_eq!(update("N, D = 32768"), [0; 3]);
    // Long rows, rows of any length, columns, and rows of which no element is written.
    assert_eq!(update("N, D = 32769"), [1; 3]);
    assert_eq!(update("N, D"), [1; 3]);
    assert_eq!(update("D = 256, N"), [1; 3]);
    assert_eq!(outputs("pub fn f(x: f32[N, D = 256], u: &mut f32[N]) { u = max(abs(x * u), D); }"), [1; 3]);
}
