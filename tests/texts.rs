//! Every text of the known kernels is accepted by naga, Tint and ptxas, in all variants. Memory is accessed
//! by 128 bits.

use std::collections::BTreeMap;

use fusion_compiler::check::{Function, Source, front_end};
use fusion_compiler::emit::ptx::ptx;
use fusion_compiler::emit::wgsl::wgsl;
use fusion_compiler::ir::dtype::{Const, DType};
use fusion_compiler::ir::graph::Access;
use fusion_compiler::ir::kernel::{
    Address, Buffer, BufferId, Builder, Carried, IndexWidth, Kernel, Lanes, LoopKind, Stmt, Uniform,
};
use fusion_compiler::ir::op::{Op, Typing};
use fusion_compiler::ir::plan::{Code, Launch, Plan, Target, UniformArg};
use fusion_compiler::ops::OpInfo;
use fusion_compiler::{KernelCode, compile};

mod kernels;
mod tools;

/// Returns all texts of a GPU target, with the name of their kernel.
fn texts(target: Target) -> Vec<(String, String)> {
    texts_of_all(&kernels::functions(), target)
}

fn texts_of_all(functions: &[Function], target: Target) -> Vec<(String, String)> {
    functions.iter().flat_map(|function| texts_of(&kernels::plan(function), target)).collect()
}

fn texts_of(plan: &Plan<KernelCode>, target: Target) -> Vec<(String, String)> {
    let launches = kernels::steps(plan, target).iter().flat_map(kernels::launches);
    let text = |launch: &Launch<KernelCode>| match &launch.code {
        Code::Ptx(text) | Code::Wgsl(text) => (launch.kernel.to_string(), text.to_string()),
        Code::Cpu(_) => unreachable!("the program is for a GPU"),
    };
    launches.map(text).collect()
}

fn without_names(texts: Vec<(String, String)>) -> Vec<String> {
    texts.into_iter().map(|(_, text)| text).collect()
}

#[test]
fn wgsl_is_valid() {
    tools::validate(&without_names(texts(Target::Wgsl)));
}

#[test]
fn ptx_assembles_without_spills() {
    tools::assemble(&without_names(texts(Target::Ptx)));
}

/// Products of all dtypes and layouts, with prologues and epilogues, assemble without spills. Tiles of aligned extents
/// access memory by 128 bits, and no text is long.
#[test]
fn products_assemble_without_spills() {
    let sources = [
        "pub fn f(x: f16[M, K], w: f16[K, N], b: f32[N]) -> f16[M, N] { gelu(matmul(x, w, K) + b) as f16 }",
        "pub fn f(x: bf16[B, K, M], w: bf16[B, N, K], r: f32[B, M, N]) -> (bf16[B, M, N], f32[B, M, N]) {
            let y = matmul(x, w, K) + r;
            (y as bf16, tanh(y))
        }",
        "#[fuse(fast_math)] pub fn f(x: f32[M, K], w: f32[N, K], b: f32[N]) -> f32[M, N] { silu(matmul(x, w, K) + b) }",
        "#[fuse(fast_math)] pub fn f(x: f32[K, M], w: f32[K, N]) -> f32[M, N] { matmul(x, w, K) }",
        "pub fn f(x: f32[M, K], w: f32[N, K], b: f32[N]) -> f32[M, N] { gelu(matmul(x, w, K) + b) }",
        "pub fn f(x: f32[K, M], q: i8[K, N], z: f32[N]) -> f32[M, N] { matmul(x, q as f32 - z, K) }",
        "pub fn f(x: f64[M, K], w: f64[K, N]) -> f64[N, M] { matmul(x, w, K) }",
    ];
    let mut all = Vec::new();
    for source in sources {
        let function = &kernels::functions_of(source)[0];
        let plan = compile(function.graph.clone(), &[Target::Ptx], &|_| (0, 0));
        let texts = texts_of(&plan, Target::Ptx);
        let tiles = texts.iter().filter(|(name, _)| name.contains("_tiles"));
        for (name, text) in tiles.clone() {
            assert!(text.len() <= 40_000, "{name} of {source}: {} bytes", text.len());
            let is_aligned = name.ends_with("_v4") || name.ends_with("_matrices");
            let copies = ["ld.global.nc.v4", "ld.global.nc.v2.f64", "cp.async.cg.shared.global"];
            assert!(
                !is_aligned || copies.iter().any(|copy| text.contains(copy)),
                "{name} of {source}: {text}"
            );
        }
        assert!(tiles.count() >= 2, "{source}");
        all.extend(texts);
    }
    tools::assemble(&without_names(all));
}

/// Attention assembles without spills for head dims of 64 and 128 channels, and any other. Its shared memory is no more
/// than every device of WebGPU has.
#[test]
fn attention_is_valid_without_spills() {
    let sources = [
        "pub fn f(q: f32[H, T, C = 64], k: f32[H, S, C], v: f32[H, S, D = 64]) -> f32[H, T, D] {
            matmul(softmax(matmul(q, k, C) * rsqrt(C), S), v, S)
        }",
        "pub fn f(q: f16[H, T, C = 128], k: f16[H, S, C], v: f16[H, S, C]) -> (f32[H, T, C], f32[H, T]) {
            let s = matmul(q as f32, k as f32, C) * rsqrt(C);
            let s = if index(S) <= index(T) && index(T) - index(S) < 256 { s } else { -INF };
            (matmul(softmax(s, S), v as f32, S), logsumexp(s, S))
        }",
        "pub fn f(q: bf16[B, G, T, C], k: bf16[B, S, C], v: bf16[B, D, S], b: f32[T, S], n: i32[B]) -> f32[B, G, T, D] {
            let s = 30.0 * tanh((matmul(q as f32, k as f32, C) + b) / 30.0);
            relu(matmul(masked_softmax(s, index(S) < n, S), v as f32, S))
        }",
        "pub fn f(q: f32[H, C], k: f32[H, C, S], v: f32[H, S, D]) -> f32[H, D] {
            matmul(sigmoid(matmul(q, k, C)), v, S)
        }",
    ];
    let (mut ptx, mut wgsl) = (Vec::new(), Vec::new());
    for source in sources {
        let function = &kernels::functions_of(source)[0];
        let plan = compile(function.graph.clone(), &[Target::Ptx, Target::Wgsl], &|_| (0, 0));
        for (target, all) in [(Target::Ptx, &mut ptx), (Target::Wgsl, &mut wgsl)] {
            let texts = texts_of(&plan, target);
            assert!(texts.iter().any(|(name, _)| name.contains("_attention64x")), "{source}: {target:?}");
            all.extend(without_names(texts));
        }
    }
    for text in &wgsl {
        let bytes: usize = text.lines().filter_map(workgroup_bytes).sum();
        assert!(bytes <= 16 << 10, "{bytes} bytes of shared memory\n{text}");
    }
    tools::assemble(&ptx);
    tools::validate(&wgsl);
}

/// Returns the bytes of shared memory that a line of WGSL declares.
fn workgroup_bytes(line: &str) -> Option<usize> {
    let (_, of) = line.strip_prefix("var<workgroup> ")?.split_once(": array<")?;
    let (element, len) = of.strip_suffix(">;")?.rsplit_once(", ")?;
    let lanes = if element.starts_with("vec4") { 4 } else { 1 };
    Some(4 * lanes * len.parse::<usize>().ok()?)
}

/// Rows of known length get only kernels that some call takes. These are the kernels of the row's team, of a
/// smaller team where a block has too few rows for several, and a fallback for all.
#[test]
fn rows_of_known_length_have_no_kernels_that_are_never_taken() {
    let names = |source: &str| -> Vec<String> {
        let function = front_end(source.parse().expect("tokens"));
        let Ok(Source::Items(functions, _)) = function else { panic!("{source}: {function:?}") };
        texts_of_all(&functions, Target::Ptx).into_iter().map(|(name, _)| name).collect()
    };
    let of = |dim: &str| format!("pub fn f(x: f32[N, {dim}]) -> f32[N, D] {{ softmax(x, D) }}");
    let lengths: [(u32, &[&str]); 4] =
        [(512, &["t32x2", "t128"]), (1000, &["t128"]), (4096, &["t256"]), (16384, &["t512"])];
    for (len, teams) in lengths {
        let staged = teams.iter().map(|team| format!("fuse_f_0_{team}_staged_v4"));
        let expected: Vec<String> = staged.chain(["fuse_f_0_t256_v4_wide".into()]).collect();
        assert_eq!(names(&of(&format!("D = {len}"))), expected, "{len}");
    }
    assert!(names(&of("D")).len() > 10);
}

/// A reduction of known length has loops only for the group sizes that the length contains.
#[test]
fn rust_has_no_groups_that_are_never_there() {
    for (len, groups) in
        [(768, &[64][..]), (64, &[64]), (100, &[64, 16, 4]), (31, &[16, 4, 1]), (10, &[4, 1])]
    {
        let source = format!("pub fn f(x: f32[N, D = {len}]) -> f32[N] {{ sum(x, D) }}");
        let function = front_end(source.parse().expect("tokens"));
        let Ok(Source::Items(functions, _)) = function else { panic!("{source}: {function:?}") };
        let plan = compile(functions[0].graph.clone(), &[Target::Cpu], &|_| (0, 0));
        let step = &plan.programs[0].steps[0];
        let Code::Cpu(code) = &step.variants[0].launches[0].code else { panic!("{source} is for the CPU") };
        let found: Vec<u32> = code
            .rust
            .split(".as_chunks::<")
            .skip(1)
            .map(|rest| rest.split('>').next().and_then(|lanes| lanes.parse().ok()).expect("a number"))
            .collect();
        assert_eq!(found, groups, "{len} elements");
    }
}

/// In rows that are read again, the busiest loop that writes nothing prefetches the next row. A row that is
/// read once, or that all rows share, is not prefetched.
#[test]
fn rust_asks_for_the_next_row_where_memory_is_idle() {
    let cases = [
        ("(x: f32[N, D]) -> f32[N] { logsumexp(x, D) }", 1),
        ("(x: f32[N, D], y: f32[N, D]) -> f32[N] { sum(exp(x - max(x, D)) * y, D) }", 1),
        ("(x: f32[N, D], y: f32[D]) -> f32[N] { sum(exp(x - max(x * y, D)) * y, D) }", 1),
        ("(x: f32[N, D], y: f32[N, D]) -> f32[N] { sum(exp(x - max(x * y, D)) * y, D) }", 2),
        ("(x: f32[N, D]) -> f32[N] { sum(exp(x), D) }", 0),
        // Rows of known length, one long enough for a prefetch and one too short.
        ("(x: f32[N, D = 2048]) -> f32[N] { logsumexp(x, D) }", 1),
        ("(x: f32[N, D = 2047]) -> f32[N] { logsumexp(x, D) }", 0),
        // A loop that is limited by memory already.
        ("(x: f32[N, D]) -> f32[N] { var(x, D) }", 0),
        ("(x: f32[N, D]) -> i32[N] { argmax(x, D) }", 0),
        // A condition for the whole kernel.
        ("(y: &mut f32[N], x: f32[N, D], ok: bool) { y = if ok { logsumexp(x, D) } else { y }; }", 1),
        // Memory is busy while the loop writes.
        ("(x: f32[N, D]) -> f32[N, D] { exp(x - max(x, D)) }", 0),
    ];
    for (text, asked) in cases {
        let source = format!("pub fn f{text}");
        let Ok(Source::Items(functions, _)) = front_end(source.parse().expect("tokens")) else {
            panic!("{text} has no mistakes")
        };
        let plan = compile(functions[0].graph.clone(), &[Target::Cpu], &|_| (0, 0));
        let launches = kernels::steps(&plan, Target::Cpu).iter().flat_map(kernels::launches);
        let rows = launches.filter(|launch| &*launch.kernel == "fuse_f_0").map(|launch| match &launch.code {
            Code::Cpu(code) => {
                // The last loop is the one that computes.
                let (_, computes) = code.rust.rsplit_once("fn lanes").expect("it has loops");
                let counts = [&*code.rust, computes].map(|text| text.matches(".next(&*p").count());
                assert_eq!(counts[0], counts[1], "{text}: another loop asks\n{}", code.rust);
                counts[0]
            }
            Code::Ptx(_) | Code::Wgsl(_) => unreachable!("the program is for the CPU"),
        });
        assert_eq!(rows.collect::<Vec<_>>(), [asked], "{text}");
    }
}

/// Functions of `f64` are long, and their values take two registers each.
#[test]
fn functions_of_doubles_assemble_without_spills() {
    let functions = Op::ALL
        .iter()
        .map(|op| op.info())
        .filter(|info| !info.name.is_empty() && matches!(info.typing, Typing::Float | Typing::Number));
    let text = |info: &OpInfo| {
        let params = ["x: f64[N]", "x: f64[N], y: f64[N]", "x: f64[N], y: f64[N], z: f64[N]"];
        let (name, arity) = (info.name, info.arity - 1);
        let args = ["x", "x, y", "x, y, z"][arity];
        format!("pub fn of_{name}({}) -> f64[N] {{ {name}({args}) }}", params[arity])
    };
    let tokens = functions.map(text).collect::<String>().parse().expect("tokens");
    let Ok(Source::Items(functions, _)) = front_end(tokens) else { unreachable!("no mistakes") };
    let plans = functions.into_iter().map(|function| compile(function.graph, &[Target::Ptx], &|_| (0, 0)));
    let texts = plans.flat_map(|plan| texts_of(&plan, Target::Ptx));
    tools::assemble(&without_names(texts.collect()));
}

/// Contiguous `f32` kernels use 128-bit loads and stores in the vector loop, and as many scalar ones in the
/// remainder.
#[test]
fn contiguous_kernels_access_128_bits() {
    let cases = [
        // Kernel, loads, stores, read only.
        ("fuse_gate_0_v4", 3, 1),
        ("fuse_swiglu_0_v4", 2, 1),
        ("fuse_activated_0_v4", 1, 1),
        ("fuse_transcendental_0_v4", 1, 1),
        ("fuse_powers_0_v4", 2, 1),
        ("fuse_sgd_0_v4", 2, 1),
        ("fuse_swap_0_v4", 2, 2),
        ("fuse_two_results_0_v4", 2, 2),
        ("fuse_extents_0_v4", 1, 1),
        ("fuse_compared_0_v4", 2, 1),
        ("fuse_integers_0_v4", 1, 1),
        ("fuse_hashed_0_v4", 2, 2),
        ("fuse_many_0_v4", 9, 1),
        ("fuse_unfused_0_v4", 2, 1),
        ("fuse_tested_0_v4", 2, 1),
        ("fuse_constants_0_v4", 1, 1),
        ("fuse_bounded_0_v4", 1, 1),
    ];
    let texts = texts(Target::Ptx);
    for (kernel, loads, stores) in cases {
        for name in [kernel.to_owned(), format!("{kernel}_wide")] {
            let (_, text) = texts.iter().find(|(other, _)| *other == name).expect(&name);
            assert_eq!(accesses(text), [loads, 2 * loads, stores, 2 * stores], "{text}");
        }
    }
}

/// Kernels that benchmarks compare with other people's assemble without spills. The main path accesses memory
/// by 128 bits.
#[test]
fn compared_kernels_access_128_bits_without_spills() {
    let cases = [
        // Loads and stores as above. The remainder of a line and the results of a row are scalar.
        ("fuse_gate_0_v4", [3, 6, 1, 2]),
        ("fuse_chain_0_v4", [2, 4, 1, 2]),
        ("fuse_gelu_of_0_v4", [1, 2, 1, 2]),
        ("fuse_swiglu_0_v4", [2, 4, 1, 2]),
        ("fuse_softmax_rows_0_t128_staged_v4", [1, 1, 1, 1]),
        ("fuse_layer_norm_rows_0_t128_staged_v4", [3, 3, 1, 1]),
        ("fuse_rms_norm_rows_0_t128_staged_v4", [2, 2, 1, 1]),
        ("fuse_token_loss_0_t256_v8", [2, 4, 0, 1]),
        ("fuse_sum_of_squares_0_parts_t256_v4", [1, 1, 0, 1]),
        ("fuse_adamw_0_v4", [4, 8, 3, 6]),
    ];
    let functions = kernels::functions_of(include_str!("../benches/ptx/kernels.fuse"));
    let texts = texts_of_all(&functions, Target::Ptx);
    for (kernel, expect) in cases {
        let (_, text) = texts.iter().find(|(name, _)| *name == kernel).expect(kernel);
        assert_eq!(accesses(text), expect, "{kernel}: {text}");
    }
    tools::assemble(&without_names(texts));
}

/// Rows of whole vectors: tensors along the inner dim are read by 128 bits, operands that lack it are scalar,
/// and there is no remainder.
#[test]
fn broadcasts_access_128_bits_along_the_inner_dim() {
    let cases = [
        ("fuse_broadcast_0_v4", [2, 4, 1, 1]),
        ("fuse_bias_of_the_inner_dims_0_v4", [2, 2, 1, 1]),
        ("fuse_causal_0_v4", [1, 1, 1, 1]),
        // Reads go across the rows.
        ("fuse_transposed_0_v4", [0, 5, 1, 1]),
    ];
    let texts = texts(Target::Ptx);
    for (kernel, expect) in cases {
        let (_, text) = texts.iter().find(|(name, _)| *name == kernel).expect(kernel);
        assert_eq!(accesses(text), expect, "{text}");
    }
}

/// Rows of whole vectors use 128-bit accesses, and the result of a row is one number. A staged row is read
/// once, and another row in every pass. The largest team has a loop for staged elements and one for the
/// unstaged tail. Loops of teams of 512 are unrolled for four iterations at a time, for two and for one.
#[test]
fn rows_access_128_bits() {
    let cases = [
        ("fuse_softmax_rows_0_t32x2_staged_v4", [1, 1, 1, 1]),
        ("fuse_softmax_rows_0_t512_staged_v4", [3, 3, 3, 3]),
        ("fuse_softmax_rows_0_t1024_staged_v4", [3, 3, 2, 2]),
        ("fuse_softmax_rows_0_t256_v4_wide", [2, 2, 1, 1]),
        ("fuse_layer_norm_0_t32x2_staged_v4", [3, 3, 1, 1]),
        ("fuse_layer_norm_0_t256_v4_wide", [5, 5, 1, 1]),
        ("fuse_everything_0_t1024_v4", [1, 1, 0, 1]),
        ("fuse_largest_and_sum_0_t32x2_v4", [1, 1, 0, 2]),
        // Kernels over neighbouring rows.
        ("fuse_of_columns_0_v4", [1, 1, 1, 1]),
        ("fuse_softmax_columns_0_v4", [2, 2, 1, 1]),
    ];
    let texts = texts(Target::Ptx);
    for (kernel, expect) in cases {
        let (_, text) = texts.iter().find(|(name, _)| *name == kernel).expect(kernel);
        assert_eq!(accesses(text), expect, "{kernel}: {text}");
    }
}

/// Eight elements of 16 bits are 128 bits. Eight of 32 bits take two accesses, and eight of 8 bits half of
/// one.
#[test]
fn narrow_elements_are_accessed_by_128_bits() {
    let cases = [
        // The remainder of a line is scalar, and the truth values are 64 bits.
        ("fuse_halves_0_v8", [2, 4, 2, 6]),
        ("fuse_rounded_each_0_v8", [2, 4, 1, 2]),
        ("fuse_normal_halves_0_t32x2_staged_v8", [2, 2, 1, 1]),
        ("fuse_quantised_0_v8", [2, 3, 1, 1]),
        ("fuse_dequantised_0_v8", [0, 3, 1, 1]),
    ];
    let texts = texts(Target::Ptx);
    for (kernel, expect) in cases {
        let (_, text) = texts.iter().find(|(name, _)| *name == kernel).expect(kernel);
        assert_eq!(accesses(text), expect, "{kernel}: {text}");
    }
}

/// Clusters of long rows have registers for three blocks, so that a thread reads all vectors of an iteration
/// before it uses one. Kernels that need more registers have no bound. Eight unstaged elements get no bound,
/// and the assembler fits them into 32 registers.
#[test]
fn long_rows_have_registers_for_what_they_read() {
    let source = "
        pub fn softmax_of(x: f32[N, D]) -> f32[N, D] { softmax(x, D) }
        pub fn norm_of(x: f32[N, D], g: f32[D], b: f32[D]) -> f32[N, D] { layer_norm(x, D) * g + b }
        pub fn residual(x: f32[N, D], r: f32[N, D], g: f32[D], b: f32[D]) -> (f32[N, D], f32[N, D]) {
            let y = x + r;
            (y, layer_norm(y, D) * g + b)
        }
        pub fn in_place(x: &mut f32[N, D], y: &mut f32[N, D], g: f32[D]) {
            let h = x * 0.5 + y;
            let m = mean(h, D);
            y = h;
            x = x - (h - m) * g;
        }
        pub fn masked(x: f32[N, D], m: f32[N, D]) -> f32[N, D] { softmax(x * 0.125 + m, D) }
        pub fn powers(x: f32[N, D], g: f32[D]) -> f32[N, D] { pow(rms_norm(x, D), g) }
        pub fn losses(x: f32[N, D], class: i32[N]) -> f32[N] { cross_entropy(x, D, class) }";
    let texts = texts_of_all(&kernels::functions_of(source), Target::Ptx);
    let cases = [
        ("fuse_softmax_of_0_t512_cluster_staged_v4", "512, 1, 1\n.maxnreg 40\n{"),
        ("fuse_norm_of_0_t512_cluster_staged_v4", "512, 1, 1\n.maxnreg 40\n{"),
        ("fuse_residual_0_t512_cluster_staged_v4", "512, 1, 1\n.maxnreg 40\n{"),
        ("fuse_in_place_0_t512_cluster_staged_v4", "512, 1, 1\n.maxnreg 40\n{"),
        ("fuse_masked_0_t512_cluster_staged_v4", "512, 1, 1\n.maxnreg 40\n{"),
        ("fuse_masked_0_t512_cluster_staged_u4", "512, 1, 1\n.maxnreg 40\n{"),
        ("fuse_powers_0_t512_cluster_staged_v4", "512, 1, 1\n{"),
        ("fuse_losses_0_t256_v8", "256, 1, 1\n{"),
    ];
    let bounded = cases.map(|(kernel, bounds)| {
        let (_, text) = texts.iter().find(|(name, _)| *name == kernel).expect(kernel);
        assert!(text.contains(&format!("\n.maxntid {bounds}")), "{kernel}: {text}");
        text.clone()
    });
    tools::assemble(&bounded);
}

/// Counts 128-bit loads, all loads, 128-bit stores and all stores.
fn accesses(text: &str) -> [usize; 4] {
    // Some are under a condition, which comes first.
    let is = |line: &str, start: &str| {
        line.split_whitespace()
            .find(|word| !word.starts_with('@'))
            .is_some_and(|word| word.starts_with(start))
    };
    let lines =
        |start: &str, part: &str| text.lines().filter(|line| is(line, start) && line.contains(part)).count();
    [lines("ld.global", ".v4."), lines("ld.global", ""), lines("st.global", ".v4."), lines("st.global", "")]
}

/// The operation accepts shifts of positions by 32 bits, although no schedule uses them.
#[test]
fn positions_are_shifted_by_32_bits() {
    let out = Buffer::new("out", DType::F32, Access::Write);
    for index in [IndexWidth::Bits32, IndexWidth::Bits64] {
        let (mut types, mut uniforms, mut body) = (Vec::new(), Vec::new(), Vec::new());
        let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut body };
        let (one, two) = (b.constant(DType::F32, Const::Float(1.0)), b.index(2));
        let left = b.apply(Op::ShlRaw, &[two, two]);
        let right = b.apply(Op::ShrRaw, &[left, two]);
        assert_eq!(b.ty(right).lanes, Lanes::ONE);
        body.push(Stmt::Store(Address::new(BufferId(0), right), one));
        let buffers = vec![out.clone()];
        let kernel = Kernel { buffers, types, uniforms, body, ..Kernel::new("shifted", index) };
        tools::assemble(&[ptx(&kernel)]);
    }
}

/// A compiler folds an operation of constants, and refuses results that are not finite. The test covers a
/// number and a vector of four.
#[test]
fn operations_of_constants_are_valid() {
    let (mut types, mut uniforms, mut body) = (Vec::new(), Vec::new(), Vec::new());
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut body };
    let start = Uniform { name: "start".into(), dtype: DType::Index, arg: UniformArg::Start };
    let (at, large) = (b.uniform(start), b.constant(DType::F32, Const::Float(1e30)));
    for large in [large, b.splat(large, Lanes::Const(4))] {
        let product = b.apply(Op::Mul, &[large, large]);
        b.body.push(Stmt::Store(Address::new(BufferId(0), at), product));
    }
    let buffers = vec![Buffer::new("out", DType::F32, Access::Write)];
    let empty = Kernel::new("products", IndexWidth::Bits32);
    let kernel = Kernel { buffers, types, uniforms, body, ..empty };
    tools::validate(&[wgsl(&kernel)]);
}

/// Two loop-carried values swap in each iteration, so the moves at its end must not overwrite one of them.
#[test]
fn carried_values_change_places() {
    let (mut types, mut uniforms, mut body) = (Vec::new(), Vec::new(), Vec::new());
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut body };
    let (zero, one, five) = (b.index(0), b.index(1), b.index(5));
    let starts = [1.0, 2.0].map(|start| b.constant(DType::F32, Const::Float(start)));
    let i = b.declare(b.ty(zero));
    let [vars, outs] = [0, 1].map(|_| [0, 1].map(|_| b.declare(b.ty(starts[0]))));
    let carried = |place: usize| Carried {
        start: starts[place],
        var: vars[place],
        next: vars[1 - place],
        out: outs[place],
    };
    let (kind, carried) = (LoopKind::Serial, vec![carried(0), carried(1)]);
    body.push(Stmt::Loop { var: i, kind, start: zero, end: five, step: one, carried, body: vec![] });
    body.extend(
        [zero, one].into_iter().zip(outs).map(|(at, out)| Stmt::Store(Address::new(BufferId(0), at), out)),
    );
    let buffers = vec![Buffer::new("out", DType::F32, Access::Write)];
    let empty = Kernel::new("swapped", IndexWidth::Bits32);
    let kernel = Kernel { buffers, types, uniforms, body, ..empty };
    let text = ptx(&kernel);
    let mut registers = BTreeMap::new();
    for line in text.lines().map(str::trim).skip_while(|line| !line.starts_with("$loop")) {
        if let Some((to, from)) = line.strip_prefix("mov.f32 ").and_then(|line| line.split_once(", ")) {
            let from = from.trim_end_matches(';');
            let value = registers.get(from).copied().unwrap_or(from);
            registers.insert(to, value);
        }
    }
    let stored: Vec<&str> =
        text.lines().filter_map(|line| line.trim().strip_prefix("st.global.f32 ")).collect();
    let [first, second] =
        [0, 1].map(|i| stored[i].split_once(", ").expect("a value").1.trim_end_matches(';'));
    assert_eq!((registers.get(first), registers.get(second)), (Some(&second), Some(&first)), "{text}");
    tools::assemble(&[text]);
}
