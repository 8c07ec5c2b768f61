//! Reports as users see them are as reviewed. Every function has a graph and a picture that are well formed
//! and complete.
//!
//! A snapshot for each function is next to the source: `reports/<function>.snap`. `INSTA_UPDATE=always`
//! rewrites them.

use std::collections::BTreeSet;
use std::panic::catch_unwind;

use fusion::prelude::*;
use fusion_compiler::check::{Function, Source, front_end};
use fusion_compiler::ir::dim::DimExpr;
use fusion_compiler::ir::plan::{Plan, Summary, Target, Traffic};
use fusion_compiler::report;
use fusion_compiler::target::limits;
use fusion_compiler::{KernelCode, compile};
use proc_macro2::{Ident, Span};

#[allow(dead_code, reason = "the texts are for other tests")]
mod kernels;

const FUNCTIONS: &str = include_str!("reports/functions.fuse");

fn functions() -> Vec<Function> {
    match front_end(FUNCTIONS.parse().expect("the functions are tokens")) {
        Ok(Source::Items(functions, _)) => functions,
        other => panic!("the functions have no mistakes: {other:?}"),
    }
}

fn plan(function: &Function) -> Plan<KernelCode> {
    compile(function.graph.clone(), &Target::ALL, &|span| {
        let start = function.spans[span.0 as usize].start();
        (start.line as u32, start.column as u32 + 1)
    })
}

/// Returns a report whose dims are bound to 2^10, 2^9, 2^8, …
fn bound(plan: &Plan<KernelCode>) -> report::Report {
    let mut report = report::Report::new(plan);
    for (i, dim) in plan.symbols.iter().enumerate() {
        report.bind(dim, 1024 >> i).expect("a dim of the function");
    }
    report
}

/// A report of rows without elements counts no launch, because a call makes none.
#[test]
fn rows_without_elements_take_no_launch() {
    for text in ["softmax(x, D)", "x + 1.0", "x - mean(x, N)"] {
        let text = format!("pub fn f(x: f32[N, D]) -> f32[N, D] {{ {text} }}");
        let Ok(Source::Items(functions, _)) = front_end(text.parse().expect("it is tokens")) else {
            panic!("the function has no mistakes")
        };
        let plan = plan(&functions[0]);
        for target in Target::ALL {
            let launches = |d| {
                let mut report = report::Report::new(&plan);
                assert!(report.on(target, limits(target)));
                report.bind("N", 5).and_then(|()| report.bind("D", d)).expect("dims of the function");
                report.launches()
            };
            assert_eq!(launches(0), Some(0), "{text}, {target:?}");
            assert!(launches(1) > Some(0), "{text}, {target:?}");
        }
    }
}

/// No kernel of a convolution or a pool stores the windows of its input, on any target.
#[test]
fn windows_are_never_stored() {
    let x = "x: f32[N, C, H, W]";
    let sources = [
        format!("pub fn f({x}, w: f32[O, C, KH = 3, KW = 3]) -> f32[N, O, P, Q] {{ conv(x, w, C, (H, KH) -> P, (W, KW) -> Q) }}"),
        format!("pub fn f({x}, w: f32[O, C, KH, KW]) -> f32[N, O, P, Q] {{ conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1) }}"),
        format!("pub fn f({x}, w: f32[C, KH, KW]) -> f32[N, C, P, Q] {{ conv(x, w, (H, KH) -> P, (W, KW) -> Q, padding = 1) }}"),
        format!("pub fn f({x}) -> f32[N, C, P, Q] {{ max_pool(x, (H, 3) -> P, (W, 3) -> Q, stride = 1, padding = 1) }}"),
        "pub fn f(x: u8[N, C, H, W], s: f32[C], w: f32[O, C, KH, KW]) -> f32[N, O, P, Q] { conv(x as f32 * s, w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1) }".into(),
        "pub fn f(x: f16[N, H, W, C], w: f16[KH, KW, C, O]) -> f16[N, P, Q, O] { conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1) }".into(),
    ];
    let extent = |dim: &str| match dim {
        "KH" | "KW" => 3,
        "N" => 2,
        _ => 64,
    };
    for source in sources {
        let Ok(Source::Items(functions, _)) = front_end(source.parse().expect("it is tokens")) else {
            panic!("{source} has no mistakes")
        };
        let plan = plan(&functions[0]);
        // A tensor of all windows would have nine times the bytes of the input.
        let input = 4 * 2 * 64 * 64 * 64;
        for target in Target::ALL {
            let mut report = report::Report::new(&plan);
            assert!(report.on(target, limits(target)));
            plan.symbols.iter().for_each(|dim| report.bind(dim, extent(dim)).expect("a dim of the function"));
            let bytes = report.peak_temporary_bytes().expect("all extents are known");
            assert!(bytes <= 2 * input, "{source}: {target:?} stores {bytes} bytes");
        }
    }
}

/// One kernel of the CPU computes attention and stores no scores, whatever stands between the products.
#[test]
fn attention_stores_no_scores() {
    let (factors, result) = ("q: f32[B, H, T, C], k: f32[B, H, S, C], v: f32[B, H, S, D]", "f32[B, H, T, D]");
    let scores = "matmul(q, k, C) * rsqrt(C)";
    let of =
        |scores: &str| format!("pub fn f({factors}) -> {result} {{ matmul(softmax({scores}, S), v, S) }}");
    let sources = [
        of(scores),
        of(&format!("if index(S) <= index(T) {{ {scores} }} else {{ -INF }}")),
        of(&format!("20.0 * tanh({scores} / 20.0)")),
        format!(
            "pub fn f({factors}, len: i32[B]) -> {result} {{ matmul(masked_softmax({scores}, index(S) < len, S), v, S) }}"
        ),
        format!("pub fn f({factors}) -> {result} {{ matmul(sigmoid({scores} - log(S)), v, S) }}"),
        format!(
            "pub fn f({factors}) -> ({result}, f32[B, H, T]) {{ let s = {scores}; (matmul(softmax(s, S), v, S), logsumexp(s, S)) }}"
        ),
    ];
    for source in sources {
        let Ok(Source::Items(functions, _)) = front_end(source.parse().expect("it is tokens")) else {
            panic!("{source} has no mistakes")
        };
        let plan = plan(&functions[0]);
        let mut report = report::Report::new(&plan);
        assert!(report.on(Target::Cpu, limits(Target::Cpu)));
        for dim in plan.symbols.iter() {
            let extent = if ["T", "S"].contains(&&**dim) { 1024 } else { 8 };
            report.bind(dim, extent).expect("a dim of the function");
        }
        // Scores would have sixteen times the bytes of all factors.
        let tensors = 4 * 4 * 8 * 8 * 1024 * 8 + 4 * 8 * 8 * 1024;
        let (bytes, temporary) = (report.bytes(), report.peak_temporary_bytes());
        assert_eq!((report.launches(), temporary), (Some(1), Some(0)), "{source}");
        assert!(bytes.is_some_and(|bytes| bytes <= tensors), "{source}: {bytes:?}");
        let text = report.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        let is_masked = ["index(S) <=", "index(S) <"].iter().any(|mask| source.contains(mask));
        let skips = text.contains("less the keys after the last one that a row sees");
        assert_eq!(
            (text.contains("attention along S: T × D for each B, H"), skips),
            (true, is_masked),
            "{text}"
        );
    }
}

/// The kernel of a convolution stores parts of the sums of a batch norm, so that its result is read once on every target.
#[test]
fn statistics_read_no_convolution() {
    let sources = [
        "pub fn f(x: f32[N, C, H, W], w: f32[O, C, KH = 3, KW = 3]) -> f32[N, O, P, Q] {
            batch_norm(conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1), (N, P, Q))
        }",
        "pub fn f(x: f32[N, H, W, C], w: f32[KH = 3, KW = 3, C, O]) -> f32[N, P, Q, O] {
            batch_norm(conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1), (N, P, Q))
        }",
    ];
    sources.into_iter().for_each(reads_no_convolution);
}

fn reads_no_convolution(source: &str) {
    let Ok(Source::Items(functions, _)) = front_end(source.parse().expect("it is tokens")) else {
        panic!("{source} has no mistakes")
    };
    let plan = plan(&functions[0]);
    for target in Target::ALL {
        let mut report = report::Report::new(&plan);
        assert!(report.on(target, limits(target)));
        for dim in plan.symbols.iter() {
            let extent = if dim == "N" { 2 } else { 64 };
            report.bind(dim, extent).expect("a dim of the function");
        }
        // The convolution reads its input and the weights and writes elements, which are read and written once more.
        let (input, weights) = (4 * 2 * 64 * 64 * 64, 4 * 9 * 64 * 64);
        let elements = input;
        let bytes = report.bytes().expect("all extents are known");
        let least = input + weights + 3 * elements;
        assert!((least..=least + elements / 8).contains(&bytes), "{target:?}: {bytes} bytes, not {least}");
    }
}

/// A dear prologue is stored for the elements of the image, not for these of its windows.
#[test]
fn prologues_of_windows_are_stored_once() {
    let sources = [
        "pub fn f(x: f32[N, C, H, W], w: f32[O, C, KH = 3, KW = 3]) -> f32[N, O, P, Q] {
            conv(gelu(x), w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1)
        }",
        "pub fn f(x: f32[N, H, W, C], w: f32[KH = 3, KW = 3, C, O], m: f32[C], v: f32[C]) -> f32[N, P, Q, O] {
            conv(silu(batch_norm(x, m, v)), w, C, (H, KH) -> P, (W, KW) -> Q, padding = same)
        }",
        "pub fn f(x: f32[N, C, H, W], w: f32[C, O, KH = 3, KW = 3]) -> f32[N, O, P, Q] {
            conv_transpose(silu(x), w, C, (H, KH) -> P, (W, KW) -> Q, stride = 2)
        }",
    ];
    for source in sources {
        let Ok(Source::Items(functions, _)) = front_end(source.parse().expect("it is tokens")) else {
            panic!("{source} has no mistakes")
        };
        let plan = plan(&functions[0]);
        let extents: Vec<i64> = plan.symbols.iter().map(|dim| if dim == "N" { 2 } else { 32 }).collect();
        for program in plan.programs.iter() {
            for temporary in program.temporaries.iter() {
                let len = temporary.len.eval(&extents).expect("all extents are known");
                // Parts of the depth of small products are as many as the results.
                assert!(len <= 2 * 32 * 70 * 70, "{:?}: {len} elements of {source}", program.target);
            }
        }
    }
}

/// No tensor of logits is read or written, only partial results of 512 columns on the CPU and of 64 on GPUs.
#[test]
fn losses_store_no_logits() {
    let source = "pub fn f(x: f32[N, D], w: f32[V, D], target: i32[N]) -> f32[N] {
        cross_entropy(matmul(x, w, D), V, target)
    }";
    let Ok(Source::Items(functions, _)) = front_end(source.parse().expect("it is tokens")) else {
        panic!("{source} has no mistakes")
    };
    let plan = plan(&functions[0]);
    for (target, len) in [(Target::Cpu, 512), (Target::Ptx, 64), (Target::Wgsl, 64)] {
        let mut report = report::Report::new(&plan);
        assert!(report.on(target, limits(target)));
        for (dim, extent) in [("N", 64), ("V", 5120), ("D", 32)] {
            report.bind(dim, extent).expect("a dim of the function");
        }
        let bytes = report.bytes().expect("all extents are known");
        let (operands, partials) = (4 * 32 * (64 + 5120), 64 * 5120 / len);
        assert!((operands..operands + 40 * partials).contains(&bytes), "{target:?}: {bytes} bytes");
    }
}

/// Snapshots of the formulas, the numbers, a narrow page, and the graph.
#[test]
fn reports_are_as_reviewed() {
    let changed: Vec<String> = functions()
        .iter()
        .map(|function| {
            let (plan, name) = (plan(function), function.graph.name.clone());
            let (formulas, numbers) = (report::Report::new(&plan), bound(&plan));
            let dot = formulas.to_dot();
            (name, format!("{formulas}\n\n# With numbers\n\n{numbers}\n\n# 80 columns\n\n{numbers:80}\n\n# Graph\n\n{dot}"))
        })
        .filter(|(name, text)| catch_unwind(|| check(name, text)).is_err())
        .map(|(name, _)| name)
        .collect();
    assert!(changed.is_empty(), "the reports of {changed:?} are others than the snapshots show");
}

fn check(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("reports");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// Returns all plans: those of this file and of the kernels whose texts are reviewed.
fn plans() -> Vec<Plan<KernelCode>> {
    functions().iter().map(plan).chain(kernels::functions().iter().map(kernels::plan)).collect()
}

/// Returns the kernels, tensors and boundaries of all targets that a report describes.
fn summaries(plan: &Plan<KernelCode>) -> Vec<&Summary> {
    [&plan.summary].into_iter().chain(plan.summary.others.iter()).collect()
}

#[test]
fn every_kernel_but_the_first_has_a_reason() {
    for plan in plans() {
        for summary in summaries(&plan) {
            let begins = |writes: &[Traffic]| {
                let written = |array| writes.iter().any(|write| write.array == array);
                summary.boundaries.iter().any(|boundary| written(boundary.array))
            };
            let without: Vec<&str> = summary
                .groups
                .iter()
                .filter(|group| !begins(&group.writes))
                .map(|group| &*group.kernel)
                .collect();
            assert!(without.len() <= 1, "{}: {without:?}", plan.name);
            for boundary in summary.boundaries.iter() {
                assert!(boundary.line > 0 && boundary.column > 0, "{}: {boundary:?}", plan.name);
            }
        }
    }
}

/// A kernel moves each tensor that it reads or writes at least once.
#[test]
fn bytes_of_tensors_are_those_of_kernels() {
    for plan in plans() {
        let extents: Vec<i64> = (0..plan.symbols.len()).map(|i| 1024 >> i).collect();
        let eval = |bytes: &DimExpr| bytes.eval(&extents).expect("nothing overflows");
        for summary in summaries(&plan) {
            for program in summary.programs.iter().map(|&place| &plan.programs[usize::from(place)]) {
                for (group, step) in summary.groups.iter().zip(program.steps.iter()) {
                    let tensors = group.reads.iter().chain(group.writes.iter()).map(|one| eval(&one.bytes));
                    let variants = step.variants.iter();
                    let each =
                        variants.map(|one| one.launches.iter().map(|launch| eval(&launch.bytes)).sum());
                    let least: i64 = each.min().expect("a step has variants");
                    let (tensors, kernel) = (tensors.sum::<i64>(), &group.kernel);
                    assert!((tensors..=2 * tensors).contains(&least), "{kernel}: {least}, not {tensors}");
                }
            }
        }
    }
}

#[test]
fn text_is_tidy() {
    for plan in plans() {
        for width in [80, 120, 200] {
            let text = format!("{:width$}", bound(&plan));
            assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
            // Names are never broken, and these are short.
            assert!(text.lines().skip(2).all(|line| line.chars().count() <= width.max(110)), "{text}");
        }
    }
}

/// Splits DOT text into its statements, with quoted strings replaced by their number.
fn dot_statements(dot: &str) -> (Vec<String>, Vec<String>) {
    let (mut plain, mut strings) = (String::new(), Vec::new());
    let mut chars = dot.chars();
    while let Some(c) = chars.next() {
        if c != '"' {
            plain.push(c);
            continue;
        }
        let mut string = String::new();
        loop {
            match chars.next().expect("a string ends") {
                '"' => break,
                '\\' => match chars.next().expect("an escape is whole") {
                    'n' => string.push('\n'),
                    c @ ('"' | '\\') => string.push(c),
                    c => panic!("\\{c} is no escape of ours"),
                },
                c => {
                    assert!(!c.is_control(), "{string:?} is one line");
                    string.push(c);
                }
            }
        }
        plain.push_str(&format!("${}", strings.len()));
        strings.push(string);
    }
    (plain.lines().map(|line| line.trim().to_owned()).collect(), strings)
}

#[test]
fn graphs_are_well_formed_and_whole() {
    for plan in plans() {
        let dot = report::Report::new(&plan).to_dot();
        let (statements, strings) = dot_statements(&dot);
        let (mut depth, mut nodes, mut edges) = (0, BTreeSet::new(), Vec::new());
        for statement in &statements {
            assert_eq!(statement.matches('[').count(), statement.matches(']').count(), "{statement}");
            match statement.as_str() {
                "}" => depth -= 1,
                _ if statement.ends_with('{') => depth += 1,
                _ => {
                    let statement = statement.strip_suffix(';').unwrap_or_else(|| panic!("{statement} ends"));
                    let name = statement.split(' ').next().unwrap_or_default();
                    match statement.split_once(" -> ") {
                        Some((from, rest)) => {
                            let to = rest.split(' ').next().unwrap_or_default();
                            edges.push((from.to_owned(), to.to_owned()));
                        }
                        None => drop(nodes.insert(name.to_owned())),
                    }
                }
            }
            assert!(depth >= 0, "{dot}");
        }
        assert_eq!(depth, 0, "{dot}");
        assert!(edges.iter().all(|(from, to)| nodes.contains(from) && nodes.contains(to)), "{dot}");
        let mut expected = BTreeSet::new();
        for summary in summaries(&plan) {
            let edges = summary.groups.iter().map(|group| group.reads.len() + group.writes.len());
            expected.insert(edges.sum::<usize>());
            let said = |text: &str| {
                let text = words(text);
                strings.iter().any(|string| words(string).contains(&text))
            };
            assert!(summary.groups.iter().all(|group| said(&group.kernel) && said(&group.hero)), "{dot}");
            for boundary in summary.boundaries.iter() {
                let reason = format!("{} ({}:{})", boundary.reason, boundary.line, boundary.column);
                assert!(said(&reason), "{reason}\n{dot}");
            }
        }
        // Targets whose numbers differ have a graph each: `a0_1`, `k1_0`.
        let graph = |name: &str| name[1..].split('_').next().map(str::to_owned);
        let graphs: BTreeSet<_> = edges.iter().map(|(from, _)| graph(from)).collect();
        let of = |one: &Option<String>| edges.iter().filter(|(from, _)| graph(from) == *one).count();
        assert_eq!(graphs.iter().map(of).collect::<BTreeSet<_>>(), expected, "{dot}");
    }
}

/// Normalises the white space of a text, so that line breaks do not matter.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A rectangle: left, top, right, bottom.
type Rect = [f64; 4];

fn rect(node: roxmltree::Node<'_, '_>) -> Rect {
    let number = |name: &str| node.attribute(name).map_or(0.0, |number| number.parse().expect("a number"));
    let (x, y) = (number("x"), number("y"));
    [x, y, x + number("width"), y + number("height")]
}

fn holds(outer: &Rect, inner: &Rect) -> bool {
    outer[0] <= inner[0] && outer[1] <= inner[1] && inner[2] <= outer[2] && inner[3] <= outer[3]
}

#[test]
fn pictures_are_well_formed_and_readable() {
    for plan in plans() {
        let svg = bound(&plan).to_svg();
        let document = roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{error}\n{svg}"));
        let of = |name: &'static str| {
            document.descendants().filter(move |node| node.has_tag_name(("http://www.w3.org/2000/svg", name)))
        };
        let rects: Vec<Rect> = of("rect").map(rect).collect();
        let (page, boxes) = rects.split_first().expect("a ground");
        for (i, one) in boxes.iter().enumerate() {
            assert!(holds(page, one), "{}: box {i} is on the page", plan.name);
            let apart = |other: &Rect| {
                one[2] <= other[0] || other[2] <= one[0] || one[3] <= other[1] || other[3] <= one[1]
            };
            assert!(boxes[..i].iter().all(apart), "{}: box {i} is on another", plan.name);
        }
        for text in of("text") {
            let [x, y, ..] = rect(text);
            let line = text.text().unwrap_or_default();
            // Most monospaced fonts are 0.602 em wide.
            let ink = [x, y - 10.0, x + line.chars().count() as f64 * 12.0 * 0.605, y + 3.0];
            let starts_in = |one: &&Rect| holds(one, &[x, y, x, y]);
            let around = boxes.iter().find(starts_in).unwrap_or(page);
            assert!(holds(around, &ink), "{}: `{line}` is in its box", plan.name);
        }
        let said = words(&of("text").filter_map(|text| text.text()).collect::<Vec<_>>().join(" "));
        let summaries = summaries(&plan);
        let of = |summary: &&Summary| summary.arrays.len() + summary.groups.len();
        let drawn = said.matches(" memory saved ").count();
        assert!(drawn >= summaries.len(), "{svg}");
        match summaries[..] {
            [one] => assert_eq!(boxes.len(), drawn * of(&one), "{}: a box for each", plan.name),
            _ => assert!(boxes.len() >= summaries.iter().map(of).sum(), "{}: a box for each", plan.name),
        }
        for summary in summaries {
            assert!(summary.groups.iter().all(|group| said.contains(&*group.kernel)), "{svg}");
            for boundary in summary.boundaries.iter() {
                let reason = format!("{} ({}:{})", boundary.reason, boundary.line, boundary.column);
                assert!(said.contains(&words(&reason)), "{reason}\n{svg}");
            }
        }
    }
}

/// A build writes a dump that contains the report.
#[test]
fn dumps_hold_the_report() {
    let source = "pub fn shifted(x: f32[N, D], b: f32[D]) -> f32[N, D] { x + b }";
    let runtime = Ident::new("fusion", Span::call_site());
    let dumps = fusion_compiler::expand(&runtime, source.parse().expect("tokens"), &Target::ALL).dumps();
    let file =
        |name: &str| &dumps.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name}")).1;
    assert!(file("shifted.graph").contains("shifted"));
    assert!(file("shifted.txt").starts_with("Fusion: 1 → 1 kernels (0% reduction), 0B memory saved\n"));
    assert!(file("shifted.dot").starts_with("digraph \"shifted\" {\n"));
    assert!(file("shifted.svg").ends_with("</svg>\n"));
    assert!(file("fuse_shifted_0_v4.ptx").contains(".entry fuse_shifted_0_v4"));
}

fuse! {
    pub(crate) fn centred(x: f32[N, D]) -> f32[D, N] {
        x - mean(x, D)
    }
}

/// `fuse!` generates the same report as the compiler, with the lines of this file.
#[test]
fn reports_of_the_macro() -> Result<()> {
    let report = centred::report();
    assert_eq!((report.kernels(), report.ops()), (2, 3));
    assert_eq!((report.bytes(), report.peak_temporary_bytes()), (None, None));
    assert_eq!(report.peak_temporary_bytes_formula(), "4*N");
    let reduction = "its consumer does not iterate over whole rows along `D`, so it is a separate kernel";
    // Compare as one line, so that line breaks do not matter.
    let text = report.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let line = include_str!("reports.rs")
        .lines()
        .position(|line| line == "        x - mean(x, D)")
        .expect("is there")
        + 1;
    assert!(
        text.contains(&format!(" Not fused: {line}:13 `sum` is stored: {reduction} Variants, ")),
        "{text}"
    );
    let report = report.bind(&[("N", 1000), ("D", 10)])?;
    assert_eq!((report.bytes(), report.peak_temporary_bytes()), (Some(128_000), Some(4000)));
    for text in [report.to_string(), report.to_dot(), report.to_svg()] {
        assert!(text.contains("125.0KB instead of") && text.contains("3.9KB"), "{text}");
    }
    Ok(())
}
