//! Device functions: calls pass arguments and results in `.param` variables, as compilers write them.

use crate::harness::{fault_of, threads, warp_text, words, words_of};
use cuda_sim::exec::FaultKind;
use cuda_sim::ptx;

/// Functions for `3 a + b`, or 1000 + a where b is 0. `sum` and `swapped` are declared before their bodies.
const FUNCTIONS: &str = "
.func (.param .b32 result) sum (.param .b32 a, .param .b32 b);
.func (.param .align 16 .b8 result[16]) swapped (.param .align 16 .b8 pair[16]);
.visible .func (.param .b32 result) triple (.param .b32 a)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [a];
    mul.lo.u32 %r2, %r1, 3;
    st.param.b32 [result], %r2;
    ret;
}
.func five (.param .b64 at)
{
    .reg .b64 %rd<2>;
    ld.param.b64 %rd1, [at];
    st.global.u32 [%rd1], 5;
    ret;
}
.func count ()
{
    .shared .align 4 .b32 calls;
    .reg .b32 %r<2>;
    atom.shared.inc.u32 %r1, [calls], 1000;
    ret;
}
";

const AFTER: &str = "
.func (.param .b32 result) sum (.param .b32 a, .param .b32 b)
{
    .reg .b32 %r<9>; .reg .pred %p<2>;
    ld.param.b32 %r1, [a];
    ld.param.b32 %r2, [b];
    setp.ne.u32 %p1, %r2, 0;
    @%p1 bra L;
    add.u32 %r3, %r1, 1000;
    st.param.b32 [result], %r3;
    ret;
L:
    { .param .b32 x; .param .b32 y; st.param.b32 [x], %r1; call.uni (y), triple, (x); ld.param.b32 %r3, [y]; }
    add.u32 %r3, %r3, %r2;
    st.param.b32 [result], %r3;
}
.func (.param .align 16 .b8 result[16]) swapped (.param .align 16 .b8 pair[16])
{
    .reg .b32 %r<5>;
    ld.param.v4.b32 {%r1, %r2, %r3, %r4}, [pair];
    st.param.v2.b32 [result], {%r3, %r4};
    st.param.v2.b32 [result+8], {%r1, %r2};
    ret;
}
";

/// Returns a warp's kernel between functions before and after it.
fn text(body: &str) -> String {
    let text = warp_text(body);
    text.replacen(".visible", &format!("{FUNCTIONS}.visible"), 1) + AFTER
}

fn run(body: &str) -> Vec<u32> {
    words_of(&text(body), threads(32), &[words(&[0xdead_beef; 32])])
}

fn each(f: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..32).map(f).collect()
}

/// Returns code for `%r0 = sum(a, b)`.
fn sum(a: &str, b: &str) -> String {
    format!(
        "{{ .param .b32 p0; .param .b32 p1; .param .b32 r0; st.param.b32 [p0], {a}; st.param.b32 [p1], {b};
call (r0), sum, (p0, p1); ld.param.b32 %r0, [r0]; }}\n"
    )
}

#[test]
fn functions_call_functions_and_return_early() {
    let body = format!("and.b32 %r2, %r1, 1; {}", sum("%r1", "%r2"));
    assert_eq!(run(&body), each(|lane| if lane % 2 == 0 { 1000 + lane } else { 3 * lane + 1 }));
    // Two calls of one function have registers and labels of their own.
    let twice = format!("{}{}", sum("%r1", "5"), sum("%r0", "%r1"));
    let sum = |a: u32, b: u32| if b == 0 { 1000 + a } else { 3 * a + b };
    assert_eq!(run(&twice), each(|lane| sum(sum(lane, 5), lane)));
}

#[test]
fn a_call_may_be_guarded() {
    let body = "setp.lt.u32 %p1, %r1, 10; { .param .b64 p; st.param.b64 [p], %rd2; @%p1 call five, (p); }
ld.global.u32 %r3, [%rd2]; shfl.sync.bfly.b32 %r0, %r3, 8, 31, -1;";
    // All lanes are together again after the call.
    assert_eq!(run(body), each(|lane| if lane ^ 8 < 10 { 5 } else { 0xdead_beef }));
}

#[test]
fn structs_are_passed() {
    let body = "{ .param .align 16 .b8 p[16]; .param .align 16 .b8 q[16];
st.param.v4.b32 [p], {%r1, 10, 20, 30}; call.uni (q), swapped, (p); ld.param.v4.b32 {%r2, %r3, %r4, %r5}, [q]; }
mad.lo.u32 %r0, %r2, 100, %r3; mad.lo.u32 %r0, %r0, 100, %r4; mad.lo.u32 %r0, %r0, 100, %r5;";
    assert_eq!(run(body), each(|lane| ((2000 + 30) * 100 + lane) * 100 + 10));
}

#[test]
fn a_function_s_shared_memory_is_one() {
    let body = "mov.u32 %r0, %r1; call.uni count; call.uni count;";
    // The counter was never initialised.
    let found = fault_of(&text(body), threads(32), &[words(&[0; 32])], FaultKind::Uninitialized);
    assert!(found.instruction.starts_with("atom.shared.inc"), "{found}");
    assert_eq!(ptx::parse(&text(body)).unwrap().kernels[0].static_shared, 4);
}

#[test]
fn a_result_that_is_not_set_is_no_value() {
    let body = "{ .param .b32 p0; .param .b32 r0; call.uni (r0), triple, (p0); ld.param.b32 %r0, [r0]; }";
    let found = fault_of(&text(body), threads(32), &[words(&[0; 32])], FaultKind::Uninitialized);
    assert!(found.instruction.starts_with("st.global"), "{found}");
    // The fault names the caller's read, not the function's read of its argument.
    assert!(found.what.contains("of local memory, not all of which were written"), "{found}");
}

#[test]
fn what_cannot_be_called_is_refused() {
    let refused = |text: String, wanted: &str| {
        let error = ptx::parse(&text).expect_err(wanted);
        assert!(error.message.contains(wanted), "{error}");
    };
    refused(text("call.uni nothing;"), "`nothing` has no body here");
    refused(text("{ .param .b64 p; call.uni count, (p); }"), "other lengths");
    refused(text("call.uni (%r0), count;"), "`%r0` is not a `.param` variable");
    refused(text("{ .param .b32 p; mov.b32 %r0, p; }"), "the address of the argument `p`");
    // Each function calls the next one twice, and the last calls none.
    let doubling = |i: u32| format!(".func f{i} () {{ call f{0}; call f{0}; }}\n", i + 1);
    let many: String = (0..40).map(doubling).chain([".func f40 () { }\n".into()]).rev().collect();
    refused(
        warp_text("call f22;").replacen(".visible", &format!("{many}.visible"), 1),
        "more than 65536 instructions",
    );
    let itself = text("")
        .replacen(".noinline", "", 1)
        .replace("call.uni (y), triple, (x);", "call.uni (y), sum, (x, x);");
    refused(itself, "calls itself");
}
