//! What fuses: cases that once went wrong.
#![cfg(feature = "syntax")]

use fusion_compiler::check::{Source, front_end};
use fusion_compiler::compile;
use fusion_compiler::ir::plan::Target;

fn check_compiles(source: &str, kernels_min: usize) {
    let tokens = source.parse().expect("tokens");
    let Ok(Source::Items(functions)) = front_end(tokens) else { panic!("the source is right") };
    let plan = compile(functions[0].graph.clone(), &Target::ALL, &|_| (0, 0));
    for program in plan.programs.iter() {
        assert!(program.steps.len() >= kernels_min, "{}: {} kernels", source, program.steps.len());
    }
}

/// One costly value, written in two orders of its axes, once was asked to be stored without end.
#[test]
fn a_result_in_two_orders_is_compiled() {
    check_compiles("pub fn f(p: &mut f32[N, D]) -> f32[D, N] { let v = silu(p); p = v; v }", 2);
}

/// The third result joins the kernel of the first and reads the second; if then the fourth, which reads the first,
/// joined that of the second, the two would wait for each other. No value of one lies between two of the other.
#[test]
fn kernels_never_wait_for_each_other() {
    check_compiles(
        "pub fn f(x: f32[N, D], y: f32[N, D]) -> (f32[N, D], f32[D, N], f32[N, D], f32[D, N]) {
            let (a, b) = (exp(x), exp(y));
            (a, b, b + 1, a + 2)
        }",
        3,
    );
}
