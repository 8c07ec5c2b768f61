//! Invalid or unknown PTX is reported with its place and the instruction's name.

use crate::harness;
use crate::harness::kernel;
use cuda_sim::ptx;

/// Returns the place and the text of a body's error.
fn error(body: &str) -> (u32, u32, String) {
    let text = kernel(
        &["u64 out"],
        &format!(".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .pred %p<9>;\n{body}"),
    );
    let error = ptx::parse(&text).expect_err(body);
    // The body starts in line 7 of the text.
    (error.line - 6, error.column, error.message)
}

#[test]
fn depth_is_bounded() {
    for (open, close) in [("(", ")"), ("-", ""), ("(-~", ")")] {
        let deep = |levels| format!("mov.u32 %r1, {}1{};", open.repeat(levels), close.repeat(levels));
        let (line, _, message) = error(&deep(200_000));
        assert!(line == 1 && message.contains("deeper than 128 levels"), "{message}");
        ptx::parse(&kernel(&[], &format!(".reg .b32 %r<9>; {}", deep(30)))).unwrap();
    }
    let global = kernel(&[], "").replacen(
        ".visible",
        &format!(".global .u32 a[1] = {}1{};\n.visible", "{".repeat(200_000), "}".repeat(200_000)),
        1,
    );
    assert!(ptx::parse(&global).unwrap_err().message.contains("deeper than 128 levels"));
}

#[test]
fn memory_is_bounded() {
    let (line, _, message) = error(
        ".shared .b8 a[1073741824];\n.shared .b8 b[1073741824]; .shared .b8 c[1073741824]; .shared .b8 d[1073741824]; .shared .b8 e[16];",
    );
    assert!(
        line == 2 && message.contains("more than 1073741824 bytes of `.shared` memory"),
        "{line}: {message}"
    );
    let (_, _, message) = error(".shared .b8 a[18446744073709551615];");
    assert!(message.contains("a length"), "{message}");
    let (_, _, message) = error(".shared .u64 a[4611686018427387904][4611686018427387904];");
    assert!(message.contains("a shorter variable"), "{message}");
    let (_, _, message) = error(".local .b8 a[400000]; .local .b8 b[400000];");
    assert!(message.contains("more than 524288 bytes of `.local` memory"), "{message}");
}

#[test]
fn errors_name_the_instruction_and_its_place() {
    let (line, column, message) = error("mov.u32 %r1, 5;\n  frobnicate.u32 %r1, %r2;");
    assert_eq!((line, column), (2, 3));
    assert!(message.contains("frobnicate.u32"), "{message}");
    let cases = [
        ("add.rn.u32 %r1, %r2, %r3;", "`.rn`"),
        ("add.quickly.f32 %f1, %f2, %f3;", "`.quickly`"),
        ("add.b32 %r1, %r2, %r3;", "no type `.b32`"),
        ("add.u32 %r1, %rd2, %r3;", "`.b64`"),
        ("add.f32 %f1, %f2, 5;", "constant"),
        ("fma.f32 %f1, %f2, %f3, %f4;", "rounding"),
        ("cvt.f32.s32 %f1, %r1;", "rounding"),
        ("cvt.rn.s32.f32 %r1, %f1;", "rounding"),
        ("cvt.rzi.s32.s64 %r1, %rd1;", "rounding"),
        ("setp.lo.f32 %p1, %f1;", "expected"),
        ("ld.global.f16 %r1, [%rd1];", "no type `.f16`"),
        ("ld.global.v2.u32 %r1, [%rd1];", "2 elements"),
        ("ld.global.v4.u64 {%rd1, %rd2, %rd3, %rd4}, [%r1];", "address"),
        ("st.param.u32 [out], %r1;", "space"),
        ("st.const.u32 [%rd1], %r1;", "space"),
        ("bra nowhere;", "`nowhere`"),
        ("mov.u32 %r1, %nosuch;", "`%nosuch`"),
        ("mov.u32 %r10, 5;", "register"),
        ("mov.u32 %r1, nothing;", "`nothing`"),
        ("shfl.bfly.b32 %r1, %r2, 1, 31;", ".sync"),
        ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1}, {%r1}, {%r1}, {%r1};", "mma.sync"),
        ("wgmma.fence.sync.aligned;", "wgmma"),
        ("call.uni (retval), vprintf, (param0, param1);", "call.uni"),
        ("add.u32 %r1, %r2, %r3", "`;`"),
        ("add.f32x2 %rd1, %rd2, %rd3;", "type"),
        ("max.f32 %f1, %f2, %f3, %f4;", "`;`"),
        ("cp.async.bulk.commit_group;", "`.bulk`"),
        ("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [t, {%f5, %f6}];", "tex.2d"),
        ("atom.global.add.b32 %r1, [%rd1], 1;", "no type"),
        ("mbarrier.init.b64 [%rd1], 1;", "the space"),
        ("mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0;", "what to do"),
        ("mbarrier.arrive_drop.shared.b64 %rd1, [%r1];", "what to do"),
        ("mbarrier.expect_tx.relaxed.cta.shared.b64 [%r1], 4;", "what to do"),
        ("mbarrier.arrive.shared.b64 %rd1, [%r1];", "only `_`"),
        ("mbarrier.arrive.shared.b64 _, [%r1], 1;", "`;`"),
        ("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];", "the space"),
        ("mbarrier.arrive.relaxed.cta.shared.b64 _, [%r1];", "`.relaxed`"),
        ("mbarrier.arrive.noComplete.shared.b64 _, [%r1];", "`.noComplete`"),
        ("mbarrier.try_wait.shared.b64 %p1, [%r1], %rd1;", "how to wait"),
        ("mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0, 100;", "`;`"),
        ("mbarrier.try_wait.parity.b64 %p1, [%rd1], 0;", "the space"),
        ("st.async.mbarrier::complete_tx::bytes.b32 [%rd1], %r1, [%rd2];", "the space"),
        ("st.async.shared::cta.mbarrier::complete_tx::bytes.b32 [%r1], %r1, [%r2];", "the space"),
        ("st.async.release.gpu.global.b32 [%rd1], %r1;", "the space"),
        ("L: L: ret;", "twice"),
        (".reg .u32 %r<5>;", "twice"),
        (".reg .u8 %b;", "no register"),
    ];
    for (body, wanted) in cases {
        let (line, _, message) = error(body);
        assert!(message.contains(wanted), "{body}: {message}");
        assert!(line <= 2, "{body}: line {line}");
    }
}

#[test]
fn errors_outside_of_kernels() {
    let cases = [
        ("", "`.version`", 1),
        (".version 7.0\n.address_size 64", "`.target`", 2),
        (".version 7.0\n.target fast\n", "`fast`", 2),
        (".version 7.0\n.target sm_80\n.address_size 32\n", "64 bits", 3),
        (".version 7.0\n.target sm_80\n.func f()\n{ no.such; ret; }", "`no.such`", 4),
        (".version 7.0\n.target sm_80\n.func f(.reg .u32 a) { ret; }", "`.param`", 3),
        (".version 7.0\n.target sm_80\n.visible .entry k() { ret;", "the text ends", 3),
        (".version 7.0\n.target sm_80\n.magic;", "`.magic`", 3),
        (".version 7.0\n.target sm_80\n.global .u32 a[1] = {1, 2};", "8 bytes for a variable of 4", 3),
        ("ptx", "`.version`", 1),
    ];
    for (text, wanted, line) in cases {
        let error = ptx::parse(text).expect_err(text);
        assert!(error.message.contains(wanted) && error.line == line, "{text}: {error}");
    }
}

#[test]
fn nothing_makes_it_panic() {
    // Every prefix of a text, and the text without any one of its characters.
    let text = include_str!("../../examples/relu.ptx");
    for end in (0..text.len()).step_by(7) {
        assert!(ptx::parse(&text[..end]).is_err() || text[end..].trim().is_empty());
        let _either = ptx::parse(&format!("{}{}", &text[..end], &text[end + 1..]));
    }
    // The parser looks for functions before it reads them.
    let text = include_str!("data/device_functions.ptx");
    for end in (0..text.len()).step_by(5) {
        let _either = ptx::parse(&text[..end]);
        let _either = ptx::parse(&format!("{}{}", &text[..end], &text[end + 1..]));
    }
}

#[test]
fn registers_are_counted_as_a_compiler_would() {
    let registers = |body: &str| {
        let text =
            kernel(&["u64 out"], &format!(".reg .b32 %r<99>; .reg .b64 %rd<9>; .reg .pred %p<9>;\n{body}"));
        harness::assemble(&text);
        ptx::parse(&text).unwrap().kernels[0].registers
    };
    // Many registers with short lives need few at once: an address and two words.
    let chain: String = (1..50).map(|i| format!("add.u32 %r{}, %r{}, %r{i};\n", i + 1, i)).collect();
    assert_eq!(
        registers(&format!(
            "ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x;\n{chain}\nst.global.u32 [%rd1], %r50;"
        )),
        3
    );
    // A value that a loop uses is live in all of it.
    let looped = "ld.param.u64 %rd1, [out]; mov.u32 %r1, 0; mov.u32 %r2, 7; mov.u32 %r3, 9; L: add.u32 %r1, %r1, %r2; mov.u32 %r4, 1; add.u32 %r1, %r1, %r4; setp.lt.u32 %p1, %r1, %r3; @%p1 bra L; st.global.u32 [%rd1], %r1;";
    assert_eq!(registers(looped), 6);
}

#[test]
fn what_compilers_write_around_kernels() {
    let text = "//
// Generated by a compiler
//

.version 8.4
.target sm_80, debug
.address_size 64

	// .globl	k
.extern .shared .align 16 .b8 tile[];
.file	1 \"/tmp/k.cu\"

.visible .entry k(
	.param .u64 .ptr .global .align 4 k_param_0,
	.param .u32 k_param_1
)
.reqntid 32, 1, 1
{
	.reg .pred 	%p<3>;
	.reg .b32 	%r<6>;
	.reg .b64 	%rd<5>;
	.loc	1 5 0
	ld.param.u64 	%rd1, [k_param_0];
	ld.param.u32 	%r1, [k_param_1];
	mov.u32 	%r2, %tid.x;
	setp.lt.s32 	%p1, %r1, 1;
	@%p1 bra 	$L__BB0_3;
	.pragma \"nounroll\";
$L__BB0_2:
	add.s32 	%r1, %r1, -1;
	setp.ne.s32 	%p2, %r1, 0;
	@%p2 bra 	$L__BB0_2;
	bra.uni $L__BB0_3;
$L__BB0_3:
	mul.wide.u32 	%rd2, %r2, 4;
	add.s64 	%rd3, %rd1, %rd2;
	st.global.u32 	[%rd3], %r1;
	ret;
}
.section .debug_str { .b8 1, 2 }
";
    let module = ptx::parse(text).unwrap();
    assert_eq!(module.kernels[0].limits.required_block, Some([32, 1, 1]));
    let config = harness::threads(32);
    assert_eq!(
        harness::words_of(
            &text.replace(", debug", "").replace(".section .debug_str { .b8 1, 2 }\n", ""),
            config,
            &[harness::words(&[1; 32]), harness::Arg::Word(9)]
        ),
        [0; 32]
    );
}
