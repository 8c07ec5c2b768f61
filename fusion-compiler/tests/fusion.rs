//! What fuses: cases that once went wrong.
#![cfg(feature = "syntax")]

use fusion_compiler::check::{Source, front_end};
use fusion_compiler::compile;
use fusion_compiler::ir::plan::Target;

/// One costly value, written in two orders of its axes, once was asked to be stored without end.
#[test]
fn a_result_in_two_orders_is_compiled() {
    let source = "pub fn f(p: &mut f32[N, D]) -> f32[D, N] { let v = silu(p); p = v; v }";
    let tokens = source.parse().expect("tokens");
    let Ok(Source::Items(functions)) = front_end(tokens) else { panic!("the source is right") };
    let plan = compile(functions[0].graph.clone(), &Target::ALL, &|_| (0, 0));
    for program in plan.programs.iter() {
        assert!(program.steps.len() >= 2, "two orders are two kernels");
    }
}
