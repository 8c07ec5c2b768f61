//! The documented list of functions is the compiler's list.

use fusion_compiler::ir::op::Op;
use fusion_compiler::ops::Ulp;

const LANGUAGE: &str = include_str!("../fusion-runtime/src/language.md");
const LIBRARY: &str = include_str!("../fusion-compiler/src/std.fuse");

/// Returns the table row of each operation that has a name.
fn rows() -> String {
    let named = Op::ALL.iter().map(|op| op.info()).filter(|info| !info.name.is_empty());
    let bound = |ulp: u32| if ulp == 0 { "exact".to_owned() } else { ulp.to_string() };
    named
        .map(|info| {
            let Ulp { native, wgsl } = info.ulp;
            format!("| `{}` | {} | {} |\n", info.name, bound(native), bound(wgsl))
        })
        .collect()
}

#[test]
fn every_operation_stands_in_the_table_with_its_bound() {
    let rows = rows();
    assert!(LANGUAGE.contains(&format!("|---|---|---|\n{rows}\n")), "the table should be\n{rows}");
}

#[test]
fn every_function_of_the_library_is_named() {
    let functions = LIBRARY.lines().filter_map(|line| line.strip_prefix("fn ")?.split_once('('));
    let mut names: Vec<&str> = functions.map(|(name, _)| name).collect();
    // One name may have two forms, one after the other.
    names.dedup();
    let (_, list) =
        LANGUAGE.split_once("These functions are written in the language itself: `").expect("the list");
    let (list, _) = list.split_once('`').expect("its end");
    assert_eq!(list.split_whitespace().collect::<Vec<_>>(), names);
}
