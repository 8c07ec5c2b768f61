//! Instructions with modifiers or operands that the ISA does not allow are refused, as by NVIDIA's assembler,
//! however near they are to valid ones.

use crate::harness::{assembled, kernel};
use crate::needs::table;
use cuda_sim::ptx;

const REGISTERS: &str = ".reg .b32 %r<20>; .reg .u32 %u<9>; .reg .b64 %rd<10>; .reg .f32 %f<20>; .reg .f64 %fd<9>; .reg .b16 %h<10>; .reg .f16 %hf<9>; .reg .pred %p<10>;
.shared .align 16 .b8 buffer[256];
";

fn text(body: &str) -> String {
    kernel(&["u64 out"], &format!("{REGISTERS}{body}"))
        .replace(".visible", ".global .u32 variable; .const .u32 fixed;\n.visible")
        .replace(".target sm_90", ".target sm_100")
        .replace(".version 8.2", ".version 8.8")
}

/// A valid instruction, then some that do not exist.
const FORMS: [&[&str]; 43] = [
    &[
        "bmsk.clamp.b32 %r0, %r1, %r2;",
        "bmsk.b32 %r0, %r1, %r2;",
        "bmsk.clamp.u32 %r0, %r1, %r2;",
        "bmsk.clamp.b32 %f0, %r1, %r2;",
        "bmsk.clamp.b32 %r0, %r1, %f2;",
    ],
    &[
        "szext.wrap.u32 %r0, %r1, 5;",
        "szext.u32 %r0, %r1, 5;",
        "szext.wrap.b32 %r0, %r1, 5;",
        "szext.wrap.u32 %f0, %r1, 5;",
    ],
    &["fns.b32 %r0, %r1, %r2, -5;", "fns.u32 %r0, %r1, %r2, -5;"],
    &[
        "max.relu.s16x2 %r0, %r1, %r2;",
        "max.relu.u16x2 %r0, %r1, %r2;",
        "max.relu.u32 %r0, %r1, %r2;",
        "max.relu.s64 %rd0, %rd1, %rd2;",
        "max.s16x2 %u0, %r1, %r2;",
        "max.s16x2 %r0, %r1, 5;",
    ],
    &["add.u16x2 %r0, %r1, %r2;", "sub.u16x2 %r0, %r1, %r2;", "add.u16x2 %r0, %r1, %f2;"],
    &[
        "lop3.and.b32 %r0|%p0, %r1, %r2, %r3, 0x96, !%p1;",
        "lop3.xor.b32 %r0|%p0, %r1, %r2, %r3, 0x96, %p1;",
        "lop3.and.b32 %r0, %r1, %r2, %r3, 0x96, %p1;",
        "lop3.and.b32 %r0|%p0, %r1, %r2, %r3, 0x96;",
        "lop3.b32 %r0|%p0, %r1, %r2, %r3, 0x96;",
    ],
    &["max.xorsign.abs.f32 %f0, %f1, %f2;", "max.xorsign.f32 %f0, %f1, %f2;", "max.abs.f32 %f0, %f1, %f2;"],
    &["min.ftz.NaN.f32 %f0, %f1, %f2;", "min.NaN.sat.f32 %f0, %f1, %f2;", "min.NaN.f64 %fd0, %fd1, %fd2;"],
    &[
        "add.f16x2 %r0, %r1, %r2;",
        "add.f16x2 %f0, %f1, %f2;",
        "add.f16x2 %u0, %u1, %u2;",
        "add.f16x2 %r0, %r1, 5;",
    ],
    &[
        "fma.rn.bf16 %h0, %h1, %h2, %h3;",
        "fma.rn.bf16 %hf0, %hf1, %hf2, %hf3;",
        "fma.rn.sat.bf16 %h0, %h1, %h2, %h3;",
    ],
    &["fma.rn.relu.f16 %h0, %h1, %h2, %h3;", "fma.rn.sat.relu.f16 %h0, %h1, %h2, %h3;"],
    &["ex2.approx.ftz.bf16x2 %r0, %r1;", "ex2.approx.bf16x2 %r0, %r1;", "ex2.approx.ftz.f16x2 %r0, %r1;"],
    &["tanh.approx.f32 %f0, %f1;", "tanh.approx.ftz.f32 %f0, %f1;"],
    &["div.full.f32 %f0, %f1, %f2;", "div.rn.full.f32 %f0, %f1, %f2;", "div.full.f64 %fd0, %fd1, %fd2;"],
    &["mul.wide.u32 %rd0, %r1, %r2;", "mul.u32.wide %rd0, %r1, %r2;"],
    &[
        "mad.lo.cc.u32 %r0, %r1, %r2, %r3;",
        "mad.cc.lo.u32 %r0, %r1, %r2, %r3;",
        "mad.lo.cc.b32 %r0, %r1, %r2, %r3;",
    ],
    &["cvt.rn.relu.bf16.f32 %h0, %f1;", "cvt.rm.relu.bf16.f32 %h0, %f1;", "cvt.rn.sat.bf16.f32 %h0, %f1;"],
    &["cvt.sat.u8.s32 %r0, %r1;", "cvt.sat.s32.u8 %r0, %r1;", "cvt.rn.bf16.s32 %h0, %rd1;"],
    &["setp.lo.u32 %p0, %r1, %r2;", "setp.lo.s32 %p0, %r1, %r2;", "setp.lo.f32 %p0, %f1, %f2;"],
    &[
        "set.lt.ftz.f16.f16 %h0, %h1, %h2;",
        "set.lt.f16.bf16 %h0, %h1, %h2;",
        "set.lt.bf16.ftz.f32 %h0, %f1, %f2;",
    ],
    &[
        "shf.l.wrap.b32 %r0, %r1, %r2, %r3;",
        "shf.wrap.l.b32 %r0, %r1, %r2, %r3;",
        "shf.l.wrap.b32 %r0, %r1, %r2, %f3;",
    ],
    &["bfe.u32 %r0, %r1, 255, %r3;", "bfe.u32 %r0, %r1, 256, %r3;", "bfe.u32 %r0, %r1, %r2, %f3;"],
    &["cvta.to.global.u64 %rd0, %rd1;", "cvta.global.to.u64 %rd0, %rd1;"],
    &[
        "ld.acquire.gpu.u32 %r0, [%rd1];",
        "ld.acquire.u32 %r0, [%rd1];",
        "ld.gpu.u32 %r0, [%rd1];",
        "ld.release.gpu.u32 %r0, [%rd1];",
        "ld.acquire.gpu.const.u32 %r0, [%rd1];",
        "ld.relaxed.gpu.cg.u32 %r0, [%rd1];",
    ],
    &[
        "ld.global.nc.u32 %r0, [%rd1];",
        "ld.shared.nc.u32 %r0, [%r1];",
        "ld.nc.u32 %r0, [%rd1];",
        "ld.global.nc.cv.u32 %r0, [%rd1];",
    ],
    &[
        "ld.volatile.global.u32 %r0, [%rd1];",
        "ld.volatile.ca.u32 %r0, [%rd1];",
        "ld.volatile.param.u32 %r0, [out];",
    ],
    &[
        "ld.mmio.relaxed.sys.u32 %r0, [%rd1];",
        "ld.mmio.u32 %r0, [%rd1];",
        "ld.mmio.relaxed.gpu.u32 %r0, [%rd1];",
    ],
    &[
        "ld.global.v2.b32 {%r0, %f1}, [%rd1];",
        "ld.global.v2.b32 {%r0, %rd2}, [%rd1];",
        "ld.global.u32 %r0, [16];",
    ],
    &[
        "st.release.gpu.u32 [%rd1], %r0;",
        "st.release.u32 [%rd1], %r0;",
        "st.global.nc.u32 [%rd1], %r0;",
        "st.acquire.gpu.u32 [%rd1], %r0;",
    ],
    &[
        "atom.global.add.u32 %r0, [%rd1], %r2;",
        "atom.volatile.global.add.u32 %r0, [%rd1], %r2;",
        "atom.ca.global.add.u32 %r0, [%rd1], %r2;",
    ],
    &["red.release.gpu.global.add.u32 [%rd1], %r2;", "red.acquire.gpu.global.add.u32 [%rd1], %r2;"],
    &[
        "cp.async.ca.shared.global [%r1], [%rd1], 4;",
        "cp.ca.async.shared.global [%r1], [%rd1], 4;",
        "cp.async.ca.shared.global [%r1], [%rd1], 4, 5;",
        "cp.async.ca.global.shared [%r1], [%rd1], 4;",
    ],
    &[
        "bar.sync 0, 64;",
        "bar.sync -1;",
        "bar.sync 16;",
        "bar.sync 0, 33;",
        "bar.sync 0, -1;",
        "bar.sync.aligned 0;",
    ],
    &[
        "barrier.red.popc.aligned.u32 %r0, 0, %p1;",
        "barrier.red.aligned.u32 %r0, 0, %p1;",
        "barrier.sync.cta 0;",
    ],
    &[
        "mbarrier.init.shared.b64 [%r1], 1;",
        "mbarrier.init.shared.b64 [%r1], 0;",
        "mbarrier.init.shared.b64 [%r1], 1048576;",
        "mbarrier.init.shared.b64 [%r1], %f1;",
        "mbarrier.init.shared.b64 [%r1];",
        "mbarrier.init.shared.u64 [%r1], 1;",
        "mbarrier.init.shared [%r1], 1;",
        "mbarrier.init.shared::cluster.b64 [%r1], 1;",
        "mbarrier.init.release.cta.shared.b64 [%r1], 1;",
    ],
    &["mbarrier.inval.shared.b64 [%r1];", "mbarrier.inval.shared.b64 [%r1], 1;", "mbarrier.inval.b64 [%r1];"],
    &[
        "mbarrier.arrive.expect_tx.release.cta.shared.b64 _, [%r1], 4;",
        "mbarrier.arrive.expect_tx.shared.b64 _, [%r1];",
        "mbarrier.arrive.expect_tx.release.shared.b64 _, [%r1], 4;",
        "mbarrier.arrive.expect_tx.cta.shared.b64 _, [%r1], 4;",
        "mbarrier.arrive.expect_tx.release.gpu.shared.b64 _, [%r1], 4;",
        "mbarrier.arrive.expect_tx.acquire.cta.shared.b64 _, [%r1], 4;",
        "mbarrier.arrive.release.cta.expect_tx.shared.b64 _, [%r1], 4;",
    ],
    &[
        "mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p0, [%r1], 1;",
        "mbarrier.try_wait.parity.shared.b64 %p0, [%r1], 2;",
        "mbarrier.try_wait.parity.shared.b64 %p0, [%r1];",
        "mbarrier.try_wait.parity.shared.b64 %r0, [%r1], 1;",
        "mbarrier.try_wait.parity.shared.b64 _, [%r1], 1;",
        "mbarrier.try_wait.parity.acquire.shared.b64 %p0, [%r1], 1;",
        "mbarrier.try_wait.parity.cluster.shared.b64 %p0, [%r1], 1;",
        "mbarrier.try_wait.parity.release.cta.shared.b64 %p0, [%r1], 1;",
        "mbarrier.try_wait.parity.acquire.gpu.shared.b64 %p0, [%r1], 1;",
        "mbarrier.try_wait.parity.shared::cluster.b64 %p0, [%r1], 1;",
    ],
    &[
        "fence.mbarrier_init.release.cluster;",
        "fence.mbarrier_init.release.gpu ;",
        "fence.mbarrier_init.acquire.cluster ;",
        "fence.mbarrier_init.cluster ;",
        "fence.mbarrier_init ;",
    ],
    &[
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%r1], {%f1, %f2, %f3, %f4}, [%r2];",
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f64 [%r1], {%fd1, %fd2, %fd3, %fd4}, [%r2];",
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%r1], {%f1, %f2, %f3, %f4}, [%r2];",
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b16 [%r1], %h1, [%r2];",
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r1], %rd1, [%r2];",
        "st.async.shared::cluster.b32 [%r1], %r1, [%r2];",
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.volatile.b32 [%r1], %r1, [%r2];",
        "st.weak.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r1], %r1, [%r2];",
        "st.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r1], %r1;",
    ],
    &[
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r2}, {%f4, %f5, %f6, %f7};",
        "mma.sync.aligned.m16n8k8.col.row.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r2}, {%f4, %f5, %f6, %f7};",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%f2}, {%f4, %f5, %f6, %f7};",
    ],
    &[
        "redux.sync.or.b32 %r0, %r1, -1;",
        "redux.sync.or.b32 %f0, %f1, -1;",
        "redux.sync.or.u32 %r0, %r1, -1;",
    ],
    &[
        "applypriority.global.L2::evict_normal [%rd1], 128;",
        "applypriority.global [%rd1], 128;",
        "applypriority.global.L2::evict_normal [%rd1], 64;",
    ],
];

/// An instruction with valid operands, then some with invalid operands.
const OPERANDS: [&[&str]; 21] = [
    &[
        "ld.const.u32 %r0, [fixed];",
        "ld.const.u32 %r0, [variable];",
        "ld.global.u32 %r0, [fixed];",
        "ld.u32 %r0, [fixed];",
        "atom.global.add.u32 %r0, [fixed], 1;",
    ],
    &["cvta.const.u64 %rd0, fixed;", "cvta.const.u64 %rd0, variable;", "cvta.global.u64 %rd0, fixed;"],
    &[
        "vabsdiff4.u32.u32.u32.add %r0, %r1, %r2, %r3;",
        "vabsdiff4.u32.u32.u32 %r0, %r1, %r2;",
        "vabsdiff4.u32.u32.u32 %r0, %r1, 5, %r3;",
        "vabsdiff4.u32.u32.u32 %f0, %r1, %r2, %r3;",
        "vabsdiff4.u32.u32.u32.sat.add %r0, %r1, %r2, %r3;",
    ],
    &["mov.u32 %r0, %globaltimer_hi;", "mov.u64 %rd0, %globaltimer_lo;"],
    &[
        "ld.global.L2::cache_hint.u32 %r0, [%rd1], %rd2;",
        "ld.global.L2::cache_hint.u32 %r0, [%rd1], %r2;",
        "ld.global.L2::cache_hint.u32 %r0, [%rd1];",
        "ld.shared.L2::cache_hint.u32 %r0, [%r1], %rd2;",
        "ld.volatile.global.L2::cache_hint.u32 %r0, [%rd1], %rd2;",
    ],
    &[
        "st.global.L2::cache_hint.v2.u32 [%rd1], {%r0, %r1}, %rd2;",
        "st.shared.L2::cache_hint.u32 [%r1], %r0, %rd2;",
    ],
    &[
        "mov.u32 %r0, %tid.x;",
        "add.u32 %r0, %r1, %laneid;",
        "setp.lt.u32 %p0, %tid.x, 5;",
        "st.global.u32 [%rd1], %tid.x;",
        "mad.lo.s32 %r0, %ctaid.x, %r1, %r2;",
        "shl.b32 %r0, %tid.x, 2;",
        "selp.b32 %r0, %tid.x, 0, %p1;",
        "shfl.sync.idx.b32 %r0, %laneid, 0, 31, -1;",
        "atom.global.add.u32 %r0, [%rd1], %tid.x;",
        "mov.f32 %f0, %tid.x;",
        "mov.u64 %rd0, %tid.x;",
        "mov.u32 %r0, %clock64;",
        "mov.u16 %h0, %laneid;",
        "cvta.to.global.u64 %rd0, %clock64;",
        "bar.sync %tid.x;",
    ],
    &["mov.b32 %f0, %tid.x;", "not.b32 %f0, %tid.x;"],
    &["mov.u16 %h0, %ctaid.x;", "mov.u16 %h0, %smid;"],
    &["mov.u32 %r0, %gridid;", "mov.u32 %r0, %globaltimer;"],
    &["mov.b64 {%r0, _}, %clock64;", "mov.f64 %fd0, %clock64;"],
    &[
        "cvt.u64.u32 %rd0, %tid.x;",
        "cvt.rn.f32.u32 %f0, %tid.x;",
        "cvt.u64.u64 %rd0, %tid.x;",
        "cvt.u32.u64 %r0, buffer;",
    ],
    &[
        "mov.u32 %r0, buffer;",
        "add.f32 %f0, %f1, buffer;",
        "add.u32 %r0, %r1, buffer;",
        "mov.f32 %r0, buffer;",
        "mov.f32 %f0, buffer;",
        "st.global.u32 [%rd1], buffer;",
        "mad.lo.s32 %r0, %r1, 4, buffer;",
        "setp.eq.u32 %p0, %r0, buffer;",
        "atom.global.add.u32 %r0, [%rd1], buffer;",
    ],
    &["mov.b64 %rd0, buffer;", "and.b64 %rd0, buffer, -16;", "selp.b64 %rd0, buffer, %rd1, %p1;"],
    &[
        "cvta.shared.u64 %rd0, buffer;",
        "cvta.to.shared.u64 %rd0, buffer;",
        "cvta.local.u64 %rd0, buffer;",
        "isspacep.shared %p0, buffer;",
    ],
    &["ld.global.v2.f32 {_, %f1}, [%rd1];", "ld.global.f32 _, [%rd1];"],
    &["bar.warp.sync %u1;", "bar.warp.sync %f1;", "bar.warp.sync 0f3F800000;"],
    &[
        "shfl.sync.idx.b32 %f0, %f1, %r2, %r3, %r4;",
        "shfl.sync.idx.b32 %r0, %r1, %r2, %r3, %f4;",
        "vote.sync.any.pred %p0, %p1, %f1;",
        "match.any.sync.b32 %r0, %r1, %f1;",
        "redux.sync.add.u32 %r0, %r1, %f1;",
        "elect.sync %r0|%p0, %f1;",
    ],
    &["selp.b32 %r0, 0f3F800000, %r1, %p1;", "selp.b32 %r0, 1.0, %r1, %p1;", "mov.b32 %f0, 1.0;"],
    &["selp.b64 %rd0, 1.0, %rd1, %p1;", "selp.b64 %rd0, 0f3F800000, %rd1, %p1;"],
    &[
        "atom.global.cas.b32 %r0, [%rd1], 0f3F800000, %r2;",
        "atom.global.cas.b32 %r0, [%rd1], 1.0, %r2;",
        "atom.global.exch.b64 %rd0, [%rd1], 0f3F800000;",
    ],
];

/// Orders of modifiers that the ISA does not write. NVIDIA's libraries use them, because the assembler
/// accepts them.
const ORDERS: [&str; 27] = [
    "add.ftz.rn.f32 %f0, %f1, %f2;",
    "add.f32.sat %f0, %f1, %f2;",
    "cvt.ftz.rn.f32.f64 %f0, %fd1;",
    "cvt.sat.ftz.f32.f32 %f0, %f1;",
    "cvt.f32.ftz.f64.rn %f0, %fd1;",
    "max.NaN.ftz.f16 %h0, %h1, %h2;",
    "max.abs.xorsign.f32 %f0, %f1, %f2;",
    "setp.ftz.lt.f32 %p0, %f1, %f2;",
    "setp.gt.ftz.and.f32 %p0, %f1, %f2, %p1;",
    "set.u32.ftz.lt.f32 %r0, %f1, %f2;",
    "ld.global.weak.u32 %r0, [%rd1];",
    "ld.global.relaxed.gpu.u32 %r0, [%rd1];",
    "st.v2.global.u32 [%rd1], {%r0, %r1};",
    "atom.add.global.u32 %r0, [%rd1], %r2;",
    "atom.add.relaxed.gpu.s32 %r0, [%rd1], %r2;",
    "atom.add.acq_rel.sys.f32 %f0, [%rd1], %f2;",
    "atom.min.acquire.cta.s64 %rd0, [%rd1], %rd2;",
    "atom.cas.release.gpu.b64 %rd0, [%rd1], %rd2, %rd3;",
    "atom.exch.acq_rel.cta.b32 %r0, [%rd1], %r2;",
    "atom.or.acq_rel.cta.b32 %r0, [%rd1], %r2;",
    "atom.inc.relaxed.sys.u32 %r0, [%rd1], %r2;",
    "atom.global.relaxed.gpu.add.u32 %r0, [%rd1], %r2;",
    "atom.noftz.add.gpu.global.f16x2 %r0, [%rd1], %r2;",
    "red.or.release.cta.b32 [%rd1], %r2;",
    "red.global.gpu.add.u32 [%rd1], %r2;",
    "mul.lo.s32 %r0, %r1, %r2;",
    "barrier.aligned.sync 0;",
];

/// Returns an instruction with its modifiers in other orders: reversed, and with each pair of neighbours
/// swapped.
fn others(instruction: &str) -> Vec<String> {
    let (head, operands) = instruction.split_once([' ', ';']).expect("an end");
    let words: Vec<&str> = head.split('.').collect();
    let text = |words: &[&str]| {
        format!("{} {operands}{}", words.join("."), if operands.is_empty() { ";" } else { "" })
    };
    let mut all = vec![words.clone()];
    all[0][1..].reverse();
    for second in 2..words.len() {
        let mut swapped = words.clone();
        swapped.swap(second - 1, second);
        all.push(swapped);
    }
    all.retain(|other| *other != words);
    all.iter().map(|other| text(other)).collect()
}

fn all_forms() -> impl Iterator<Item = &'static &'static [&'static str]> {
    FORMS.iter().chain(&OPERANDS)
}

#[test]
fn what_the_isa_has_not_is_refused() {
    for forms in all_forms() {
        let (known, unknown) = forms.split_first().expect("one that there is");
        ptx::parse(&text(known)).unwrap_or_else(|error| panic!("{error}\n{known}"));
        for form in unknown {
            let error = ptx::parse(&text(form)).expect_err(form);
            assert!(error.message.contains(form.split(' ').next().expect("a name")), "{error}");
            // Each form is assembled alone, because the assembler reports only some of several errors of one
            // kind.
            if let Some((accepted, log)) = assembled(&text(form), "sm_100") {
                assert!(!accepted, "{form}\n{log}");
            }
        }
        if let Some((accepted, log)) = assembled(&text(known), "sm_100") {
            assert!(accepted, "{log}");
        }
    }
}

#[test]
fn modifiers_come_in_any_order() {
    for form in ORDERS {
        ptx::parse(&text(form)).unwrap_or_else(|error| panic!("{error}\n{form}"));
    }
    if let Some((accepted, log)) = assembled(&text(&ORDERS.join("\n")), "sm_100") {
        assert!(accepted, "{log}");
    }
}

#[test]
fn orders_that_tell_something_are_kept() {
    // The kept orders are those of name parts, types of result and operands, spaces, and layouts.
    let all: Vec<String> = table().iter().flat_map(|(.., instruction)| others(instruction)).collect();
    let accepted = |form: &String| ptx::parse(&text(form)).is_ok();
    let refused: Vec<&String> = all.iter().filter(|form| !accepted(form)).collect();
    assert!(all.len() > 700 && refused.len() > 100 && refused.len() < all.len() / 2);
    if let Some((_, log)) = assembled(&text(&all.join("\n")), "sm_100") {
        let first = text("").lines().count() - 2;
        for (number, form) in all.iter().enumerate() {
            let place = format!("line {};", first + number);
            let said: Vec<&str> =
                log.lines().filter(|line| line.contains(&place) && line.contains("error")).collect();
            assert_eq!(accepted(form), said.is_empty(), "{form}\n{said:?}");
        }
    }
}

/// Forms for which the assembler reports no other error.
#[test]
fn what_is_refused_alone() {
    let takes = |form: &str, takes: bool| {
        assert_eq!(ptx::parse(&text(form)).is_ok(), takes, "{form}");
        if let Some((accepted, log)) = assembled(&text(form), "sm_100") {
            assert_eq!(accepted, takes, "{form}\n{log}");
        }
    };
    for inside in ["%r1+4", "%r1+-4", "%r1 + (8-4)", "%r1+4*2", "buffer+4", "buffer+-4"] {
        takes(&format!("ld.shared.u32 %r0, [{inside}];"), true);
    }
    for inside in ["%r1-4", "%r1 - 4", "buffer-4", "buffer+%r1", "%r1+1.0"] {
        takes(&format!("ld.shared.u32 %r0, [{inside}];"), false);
    }
    for form in [
        "ld.global.v2.f32 {_, _}, [%rd1];",
        "ldu.global.u32 _, [%rd1];",
        "mov.b64 {_, _}, %rd1;",
        "mov.u32 %r0, buffer-4;",
    ] {
        takes(form, false);
    }
}
