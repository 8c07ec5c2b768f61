//! Writes the functions of the first seeds as Rust, fused, and some of them with a kernel for each operation.

#[path = "src/generate.rs"]
#[expect(unreachable_pub, reason = "it is a module of the library, too")]
#[allow(dead_code, reason = "the tests use the rest")]
mod generate;

use std::fmt::Write;

use generate::{Function, Kind};

/// Number of compiled functions.
const FUNCTIONS: u64 = 300;
/// Number of functions in one `fuse!`.
const BLOCK: usize = 20;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/generate.rs");
    println!("cargo::rerun-if-changed=src/generate");
    let made: Vec<Function> = (0..FUNCTIONS).map(generate::function).collect();
    // A part suffices, because unfused functions are more code with the same operations.
    let apart: Vec<Function> = (0..FUNCTIONS).filter(|seed| seed % 5 < 2).map(generate::function).collect();
    let mut out = String::new();
    functions(&mut out, "fused", "#[fuse(targets(cpu))]", &made);
    functions(&mut out, "unfused", "#[fuse(off, targets(cpu))]", &apart);
    let path = std::path::Path::new(&std::env::var("OUT_DIR").expect("cargo sets it")).join("corpus.rs");
    std::fs::write(path, out).expect("cargo's folder can be written");
}

fn functions(out: &mut String, name: &str, attribute: &str, functions: &[Function]) {
    let _ = writeln!(out, "/// By seed.\npub static {}: &[(u64, Call)] = &[", name.to_uppercase());
    // Clippy checks one block, because all blocks look alike.
    let seen = |block: usize| if block == 0 { "" } else { "#[cfg(not(clippy))] " };
    for (i, function) in functions.iter().enumerate() {
        let (seed, block) = (&function.name[1..], i / BLOCK);
        let call = call(&format!("{name}_{block}"), function);
        let _ = writeln!(out, "    {}({seed}, |args| {call}),", seen(block));
    }
    out.push_str("];\n");
    for (i, block) in functions.chunks(BLOCK).enumerate() {
        let sources: String =
            block.iter().map(|function| format!("{attribute}\n{}\n", function.source)).collect();
        let allowed = "#[allow(unused_variables, reason = \"nothing uses some of what is made at random\")]";
        let head = format!("{allowed} {}mod {name}_{i}", seen(i));
        let _ = writeln!(out, "{head} {{ fusion::fuse! {{\n{sources}}} }}");
    }
}

/// Returns the expression that unpacks the arguments, calls the function and collects the results.
fn call(module: &str, function: &Function) -> String {
    let names: Vec<String> = (0..function.params.len()).map(|i| format!("p{i}")).collect();
    let args = function.params.iter().zip(&names).map(|(kind, name)| match kind {
        Kind::Floats(_) | Kind::FloatsMut(_) => format!("{name}.floats()"),
        Kind::Ints(_) => format!("{name}.ints()"),
        Kind::Float => format!("{name}.float()"),
        Kind::Int => format!("{name}.int()"),
    });
    let args: Vec<String> = args.collect();
    let results: Vec<String> = (0..function.returned).map(|i| format!("r{i}")).collect();
    let bind = match results.len() {
        0 => "()".to_owned(),
        1 => "r0".to_owned(),
        _ => format!("({})", results.join(", ")),
    };
    let mut all = results;
    if matches!(function.params[0], Kind::FloatsMut(_)) {
        all.insert(0, "p0.floats().clone()".into());
    }
    format!(
        "{{ let [{}] = args else {{ unreachable!(\"the call has its arguments\") }}; let {bind} = {module}::{}({})?; Ok(vec![{}]) }}",
        names.join(", "),
        function.name,
        args.join(", "),
        all.join(", ")
    )
}
