//! Assembly of the microkernels for x86-64.
//!
//! No test of values sees that a compiler keeps sums in memory. So the loop over the depth must have all
//! multiply-adds of a step, or the products of integers, and must not access the stack. The test compiles the file of the microkernels by itself, as
//! a release build does, because the debug assertions of the tests' own build are calls in that loop.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::process::Command;
use std::{env, fs, process};

/// Returns the assembly of the microkernels' file. None if there is no `rustc`.
fn assembly() -> Option<String> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/device/cpu/contraction/assembly/standalone.rs");
    let result = env::temp_dir().join(format!("microkernels-{}.s", process::id()));
    let made = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--crate-name=microkernels", "--crate-type=lib", "--edition=2024", "--cap-lints=allow"])
        .args([
            "--emit=asm",
            "-Copt-level=3",
            "-Ccodegen-units=1",
            "-Csymbol-mangling-version=v0",
            source,
            "-o",
        ])
        .arg(&result)
        .output();
    match made {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        made => {
            let made = made.expect("rustc runs");
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        }
    }
    let text = fs::read_to_string(&result).expect("rustc has written it");
    fs::remove_file(&result).expect("the file is there");
    Some(text)
}

/// Returns the number of rows and vectors in the symbol of a microkernel of a module, and the kind of its operands.
fn shape(symbol: &str, module: &str) -> Option<(usize, usize, usize)> {
    let (_, generics) = symbol.split_once(module)?.1.split_once("productKj")?;
    let kind = (0..3).find(|kind| generics.contains(&format!("_Kh{kind}_")))?;
    let (rows, vectors) = generics.split_once("_K")?;
    let number = |text: &str| usize::from_str_radix(text, 16).ok();
    let rows = number(rows)?;
    // A number that occurs twice is a reference, `B`, the second time.
    let vectors = match vectors.strip_prefix('j') {
        Some(vectors) => number(vectors.split_once('_')?.0)?,
        None => rows,
    };
    Some((rows, vectors, kind))
}

/// Returns the loops with products: the instructions from a label to a jump back to it.
fn loops<'a>(code: &[&'a str], product: &str) -> Vec<Vec<&'a str>> {
    let mut labels = BTreeMap::new();
    let mut found = Vec::new();
    for (at, line) in code.iter().enumerate() {
        if let Some(label) = line.strip_suffix(':') {
            labels.insert(label, at);
        } else if let Some((_, label)) = line.strip_prefix('j').and_then(|jump| jump.split_once('\t'))
            && let Some(&first) = labels.get(label)
            && code[first..at].iter().any(|line| line.starts_with(product))
        {
            found.push(code[first..=at].to_vec());
        }
    }
    found
}

#[test]
fn loops_of_microkernels_stay_in_registers() {
    let Some(assembly) = assembly() else {
        eprintln!("SKIPPED: there is no rustc");
        return;
    };
    let lines: Vec<&str> = assembly.lines().map(str::trim).collect();
    for (module, registers, rows, product) in [
        ("avx2_f32", "%ymm", 6, "vfmadd"),
        ("avx2_f64", "%ymm", 6, "vfmadd"),
        ("avx2_i32", "%ymm", 6, "vpmulld"),
        ("avx512_f32", "%zmm", 12, "vfmadd"),
        ("avx512_f64", "%zmm", 12, "vfmadd"),
        ("avx512_i32", "%zmm", 12, "vpmulld"),
    ] {
        let mut shapes = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            let Some(shape) = line.strip_suffix(':').and_then(|symbol| shape(symbol, module)) else {
                continue;
            };
            let len = lines[at..].iter().position(|line| *line == ".cfi_endproc").expect("a function ends");
            let loops = loops(&lines[at..at + len], product);
            assert!(!loops.is_empty(), "{module} {shape:?} has no loop of products");
            for body in loops {
                let text = body.join("\n");
                let is_product = |line: &&&str| line.starts_with(product) && line.contains(registers);
                let products = body.iter().filter(is_product).count();
                // The compiler may unroll the loop.
                let is_whole = products > 0 && products.is_multiple_of(shape.0 * shape.1);
                assert!(is_whole, "{module} {shape:?}: {products} products\n{text}");
                let on_stack = ["(%rsp", "%rsp)", "(%rbp", "%rbp)"].iter().any(|stack| text.contains(stack));
                assert!(!on_stack, "{module} {shape:?} accesses the stack\n{text}");
            }
            shapes.push(shape);
        }
        shapes.sort_unstable();
        let of_rows = |rows| [(rows, 1, 0), (rows, 1, 2), (rows, 2, 0), (rows, 2, 1), (rows, 2, 2)];
        let expected: Vec<_> = (1..=rows).flat_map(of_rows).collect();
        assert_eq!(shapes, expected, "{module}");
    }
}
