//! Kernels that repeat one instruction: those that the simulator computes in software, on halves and
//! matrices, and those that order threads.

/// Instructions whose operands are their earlier results.
pub(crate) const CHAINS: [(&str, &str); 17] = [
    ("fma.rn.f16x2", "fma.rn.f16x2 %r0, %r0, %r1, %r2;"),
    ("fma.rn.bf16x2", "fma.rn.bf16x2 %r0, %r0, %r1, %r2;"),
    ("fma.rn.relu.bf16x2", "fma.rn.relu.bf16x2 %r0, %r0, %r1, %r2;"),
    ("fma.rn.ftz.f16x2", "fma.rn.ftz.f16x2 %r0, %r0, %r1, %r2;"),
    ("fma.rn.sat.f16", "fma.rn.sat.f16 %h0, %h0, %h1, %h2;"),
    ("ex2.approx.f16x2", "ex2.approx.f16x2 %r0, %r0;"),
    ("tanh.approx.bf16x2", "tanh.approx.bf16x2 %r0, %r0;"),
    ("cvt.rn.f16.f32", "cvt.rn.f16.f32 %h0, %f4;"),
    ("cvt.rn.bf16x2.f32", "cvt.rn.bf16x2.f32 %r0, %f4, %f5;"),
    ("membar", "membar.gl;"),
    ("bar.warp.sync of eights", "bar.warp.sync %m;"),
    ("bar.sync of pairs of warps", "bar.sync %b, 64;"),
    ("add.f16x2", "add.f16x2 %r0, %r0, %r1;"),
    ("fma.rn.f16", "fma.rn.f16 %h0, %h0, %h1, %h2;"),
    (
        "mma.m16n8k16.f16",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r1}, {%r2, %r1}, {%f0, %f1, %f2, %f3};",
    ),
    (
        "mma.m16n8k8.f16",
        "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r3, %r4}, {%r0, %r1}, {%r2}, {%r3, %r4};",
    ),
    (
        "mma.m16n8k8.tf32",
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r1}, {%r2, %r1}, {%f0, %f1, %f2, %f3};",
    ),
];

/// Returns a kernel that runs an instruction sixteen times in each iteration of a loop.
pub(crate) fn chain(instruction: &str) -> String {
    let body = instruction.repeat(16);
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() {{
.reg .b32 %r<9>; .reg .b32 %i, %m, %b; .reg .b16 %h<9>; .reg .f32 %f<9>; .reg .pred %p;
mov.u32 %r0, 0x3c013c02; mov.u32 %r1, 0x38013402; mov.u32 %r2, 0x30013102; mov.u32 %r3, 0; mov.u32 %r4, 0;
mov.u16 %h0, 0x3c01; mov.u16 %h1, 0x3801; mov.u16 %h2, 0x3001;
mov.f32 %f4, 0f3f812345; mov.f32 %f5, 0f3e812345;
mov.u32 %m, %laneid; and.b32 %m, %m, 24; shl.b32 %m, 255, %m; mov.u32 %b, %tid.x; shr.u32 %b, %b, 6;
mov.f32 %f0, 0f00000000; mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000;
mov.u32 %i, 0;
again:
{body}
add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 100; @%p bra again;
ret;
}}
"
    )
}
