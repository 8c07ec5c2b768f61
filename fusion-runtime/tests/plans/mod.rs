//! Handwritten plans, so that the executor's tests do not need the macro.
#![forbid(unsafe_code)]
#![allow(dead_code, reason = "each test crate uses some of the plans")]

use std::borrow::Cow::Borrowed;

use fusion_compiler::ir::dim::{DimExpr, DimOp};
use fusion_compiler::ir::dtype::DType;
use fusion_compiler::ir::graph::{Access, Math};
use fusion_compiler::ir::kernel::IndexWidth;
use fusion_compiler::ir::plan::{
    BufferArg, Condition, Dest, Dim, Footprint, Launch, LaunchSpec, Output, Param, ParamKind, Program, Slot,
    Space, Step, Summary, Target, Temporary, UniformArg, Variant,
};
#[cfg(target_arch = "x86_64")]
use fusion_runtime::__private::{Avx2, Avx512};
use fusion_runtime::__private::{Base, Code, CpuArgs, CpuCode, CpuFn, Instructions, Isa, Plan};

const N: DimExpr = DimExpr(Borrowed(&[DimOp::Sym(0)]));
const D: DimExpr = DimExpr(Borrowed(&[DimOp::Sym(1)]));
const ONE: DimExpr = DimExpr(Borrowed(&[DimOp::Const(1)]));
const NONE: DimExpr = DimExpr(Borrowed(&[DimOp::Const(0)]));
const SUMMARY: Summary = Summary {
    ops: 3,
    unfused_bytes: NONE,
    math: Math::Accurate,
    arrays: Borrowed(&[]),
    groups: Borrowed(&[]),
    boundaries: Borrowed(&[]),
    programs: Borrowed(&[]),
    others: Borrowed(&[]),
};

/// The functions of a kernel in the form that the macro writes.
macro_rules! cpu_fns {
    ($kernel:path) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        fn avx512(args: &mut CpuArgs<'_>) {
            $kernel(Avx512::new(), args)
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        fn avx2(args: &mut CpuArgs<'_>) {
            $kernel(Avx2::new(), args)
        }
        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "sse2"))]
        fn base(args: &mut CpuArgs<'_>) {
            $kernel(Base::new(), args)
        }
        const FUNCTIONS: &[(Isa, CpuFn)] = &[
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, avx512),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, avx2),
            (Isa::Base, base),
        ];
        CpuCode::Compiled(FUNCTIONS)
    }};
}

const fn vector(name: &'static str, access: Access) -> Param {
    const DIMS: &[Dim] = &[Dim { name: Borrowed("N"), extent: N }];
    Param {
        name: Borrowed(name),
        dtype: DType::F32,
        kind: ParamKind::Tensor { access, dims: Borrowed(DIMS) },
    }
}

const fn any(name: &'static str) -> Param {
    Param { name: Borrowed(name), dtype: DType::F32, kind: ParamKind::AnyShape { access: Access::Read } }
}

const fn buffer(slot: Slot, access: Access, footprint: Footprint) -> BufferArg {
    BufferArg { slot, access, dtype: DType::F32, footprint, uniform: false }
}

/// The launch of a CPU kernel, whose threads work alone.
macro_rules! launch {
    ($kernel:literal, $body:path, [$($buffers:expr),*], [$($uniforms:expr),*], $space:expr) => {
        Launch {
            code: Code::Cpu(cpu_fns!($body)),
            spec: LaunchSpec {
                kernel: Borrowed($kernel),
                index: IndexWidth::Bits64,
                buffers: Borrowed(&[$($buffers),*]),
                uniforms: Borrowed(&[$($uniforms),*]),
                space: $space,
                team: 1,
                row_memory: NONE,
                bytes: NONE,
                trips: NONE,
                prologue: false,
                contraction: None,
                of_blocks: false,
                cluster: ONE,
            },
        }
    };
}

/// A plan for `relu(a + b) * c`, of any shape.
pub(crate) static RELU: Plan = Plan {
    name: Borrowed("relu_add_mul"),
    symbols: Borrowed(&[Borrowed("elements")]),
    params: Borrowed(&[any("a"), any("b"), any("c")]),
    nonempty: Borrowed(&[]),
    splits: Borrowed(&[]),
    concats: Borrowed(&[]),
    outputs: Borrowed(&[Output {
        dtype: DType::F32,
        dims: Borrowed(&[]),
        any_shape: true,
        dest: Dest::Returned,
    }]),
    programs: Borrowed(&[Program {
        target: Target::Cpu,
        temporaries: Borrowed(&[]),
        steps: Borrowed(&[Step {
            variants: Borrowed(&[Variant {
                when: Borrowed(&[]),
                launches: Borrowed(&[launch!(
                    "relu_add_mul",
                    relu_body,
                    [
                        buffer(Slot::Param(0), Access::Read, Footprint::Linear(ONE)),
                        buffer(Slot::Param(1), Access::Read, Footprint::Linear(ONE)),
                        buffer(Slot::Param(2), Access::Read, Footprint::Linear(ONE)),
                        buffer(Slot::Output(0), Access::Write, Footprint::Linear(ONE))
                    ],
                    [UniformArg::Extent(N)],
                    Space { rows: ONE, cols: N, grain: 1024, grain_min: 1024, each: ONE }
                )]),
            }]),
        }]),
    }]),
    lacks: Borrowed(&[]),
    summary: SUMMARY,
};

#[inline(always)]
fn relu_body(_: impl Instructions, args: &mut CpuArgs<'_>) {
    let (b0, b1, b2) = (args.read::<f32>(0), args.read::<f32>(1), args.read::<f32>(2));
    let (b3, s3) = args.write::<f32>(3).neighbours().all();
    let u0 = args.index(0);
    let (first, end) = args.range();
    for v0 in first..end {
        let start = v0 * 1024;
        let len = (u0 - start).min(1024);
        let (p0, p1, p2) = (&b0[start..][..len], &b1[start..][..len], &b2[start..][..len]);
        let q3 = &mut b3[start - s3..][..len];
        for j in 0..len {
            let sum = p0[j] + p1[j];
            let relu = if sum < 0.0 { 0.0 } else { sum };
            q3[j] = relu * p2[j];
        }
    }
}

/// A plan for `y = alpha * x + y`, in place.
pub(crate) static AXPY: Plan = Plan {
    name: Borrowed("axpy"),
    symbols: Borrowed(&[Borrowed("N")]),
    params: Borrowed(&[
        vector("y", Access::ReadWrite),
        vector("x", Access::Read),
        Param { name: Borrowed("alpha"), dtype: DType::F32, kind: ParamKind::Scalar },
    ]),
    nonempty: Borrowed(&[]),
    splits: Borrowed(&[]),
    concats: Borrowed(&[]),
    outputs: Borrowed(&[]),
    programs: Borrowed(&[Program {
        target: Target::Cpu,
        temporaries: Borrowed(&[]),
        steps: Borrowed(&[Step {
            variants: Borrowed(&[Variant {
                when: Borrowed(&[]),
                launches: Borrowed(&[launch!(
                    "axpy",
                    axpy_body,
                    [
                        buffer(Slot::Param(0), Access::ReadWrite, Footprint::Linear(ONE)),
                        buffer(Slot::Param(1), Access::Read, Footprint::Linear(ONE))
                    ],
                    [UniformArg::Scalar(2)],
                    Space { rows: ONE, cols: N, grain: 256, grain_min: 256, each: ONE }
                )]),
            }]),
        }]),
    }]),
    lacks: Borrowed(&[]),
    summary: SUMMARY,
};

#[inline(always)]
fn axpy_body(ops: impl Instructions, args: &mut CpuArgs<'_>) {
    let alpha = args.f32(0);
    let x = args.read::<f32>(1);
    let (y, start) = args.write::<f32>(0).neighbours().all();
    let x = &x[start..][..y.len()];
    for j in 0..y.len() {
        y[j] = ops.mul_add(alpha, x[j], y[j]);
    }
}

/// A plan of two steps with a temporary and two results.
///
/// The first step computes the temporary `t[D] = bias[D] * 2`. The second computes `z[N, D] = x[N, D] + t[D]`
/// and the result `bias * 2`, which replaces the `&mut` parameter after its last read.
pub(crate) static BROADCAST: Plan = Plan {
    name: Borrowed("broadcast"),
    symbols: Borrowed(&[Borrowed("N"), Borrowed("D")]),
    params: Borrowed(&[
        Param {
            name: Borrowed("x"),
            dtype: DType::F32,
            kind: ParamKind::Tensor { access: Access::Read, dims: Borrowed(ND) },
        },
        Param {
            name: Borrowed("bias"),
            dtype: DType::F32,
            kind: ParamKind::Tensor {
                access: Access::ReadWrite,
                dims: Borrowed(&[Dim { name: Borrowed("D"), extent: D }]),
            },
        },
        Param { name: Borrowed("N"), dtype: DType::Index, kind: ParamKind::Dim(0) },
        Param {
            name: Borrowed("fixed"),
            dtype: DType::F32,
            kind: ParamKind::Tensor {
                access: Access::Read,
                dims: Borrowed(&[Dim { name: Borrowed("C"), extent: DimExpr(Borrowed(&[DimOp::Const(3)])) }]),
            },
        },
    ]),
    nonempty: Borrowed(&[]),
    splits: Borrowed(&[]),
    concats: Borrowed(&[]),
    outputs: Borrowed(&[
        Output { dtype: DType::F32, dims: Borrowed(ND), any_shape: false, dest: Dest::Returned },
        Output {
            dtype: DType::F32,
            dims: Borrowed(&[Dim { name: Borrowed("D"), extent: D }]),
            any_shape: false,
            dest: Dest::Replaces(1),
        },
    ]),
    programs: Borrowed(&[Program {
        target: Target::Cpu,
        temporaries: Borrowed(&[Temporary { dtype: DType::F32, len: D, first: 0, last: 1 }]),
        steps: Borrowed(&[
            Step { variants: Borrowed(&[Variant { when: Borrowed(&[]), launches: Borrowed(&[DOUBLE]) }]) },
            Step {
                variants: Borrowed(&[
                    Variant { when: Borrowed(&[Condition::AtMost(N, -1)]), launches: Borrowed(&[]) },
                    Variant { when: Borrowed(&[]), launches: Borrowed(&[ADD]) },
                ]),
            },
        ]),
    }]),
    lacks: Borrowed(&[]),
    summary: SUMMARY,
};

const ND: &[Dim] = &[Dim { name: Borrowed("N"), extent: N }, Dim { name: Borrowed("D"), extent: D }];

const DOUBLE: Launch<Code> = launch!(
    "double",
    double_body,
    [
        buffer(Slot::Param(1), Access::Read, Footprint::Linear(ONE)),
        buffer(Slot::Temp(0), Access::Write, Footprint::Linear(ONE)),
        buffer(Slot::Output(1), Access::Write, Footprint::Linear(ONE))
    ],
    [],
    Space { rows: ONE, cols: D, grain: 7, grain_min: 7, each: ONE }
);

#[inline(always)]
fn double_body(_: impl Instructions, args: &mut CpuArgs<'_>) {
    let bias = args.read::<f32>(0);
    let (temp, start) = args.write::<f32>(1).neighbours().all();
    let (out, _) = args.write::<f32>(2).neighbours().all();
    for j in 0..temp.len() {
        temp[j] = bias[start + j] * 2.0;
        out[j] = temp[j];
    }
}

const ADD: Launch<Code> = launch!(
    "add",
    add_body,
    [
        buffer(Slot::Param(0), Access::Read, Footprint::Linear(ONE)),
        buffer(Slot::Temp(0), Access::Read, Footprint::Whole),
        buffer(Slot::Output(0), Access::Write, Footprint::Linear(ONE))
    ],
    [UniformArg::Extent(D)],
    Space { rows: N, cols: D, grain: 8, grain_min: 8, each: ONE }
);

#[inline(always)]
fn add_body(_: impl Instructions, args: &mut CpuArgs<'_>) {
    let (x, bias) = (args.read::<f32>(0), args.read::<f32>(1));
    let (z, s) = args.write::<f32>(2).neighbours().all();
    let d = args.index(0);
    let (first, end) = args.range();
    let per_row = d.div_ceil(8);
    for item in first..end {
        let (row, block) = (item / per_row, item % per_row);
        let len = (d - block * 8).min(8);
        let start = row * d + block * 8;
        for j in 0..len {
            z[start - s + j] = x[start + j] + bias[block * 8 + j];
        }
    }
}
