//! The report of plans that are put together by hand.

use std::borrow::Cow::{Borrowed, Owned};

use super::*;
use crate::ir::dtype::DType;
use crate::ir::plan::{Boundary, List, Traffic};

type Plan = crate::ir::plan::Plan<()>;

fn n() -> DimExpr {
    DimExpr::sym(0)
}

fn times(count: i64, dim: DimExpr) -> DimExpr {
    DimExpr::constant(count) * dim
}

fn array(name: &'static str, kind: ArrayKind) -> Array {
    Array { name: Borrowed(name), shape: Borrowed("f32[N]"), bytes: times(4, n()), kind }
}

fn texts(texts: &[&'static str]) -> List<Text> {
    texts.iter().map(|text| Borrowed(*text)).collect()
}

fn group(kernel: &'static str, ops: &[&'static str], (reads, writes): (&[u16], &[u16])) -> GroupSummary {
    let moved = |&array: &u16| Traffic { array, bytes: times(4, n()) };
    let ways = |target, kinds| Ways { target, variants: 2, kinds: texts(kinds) };
    GroupSummary {
        kernel: Borrowed(kernel),
        schedule: Borrowed("pointwise"),
        hero: Borrowed("pointwise"),
        ops: texts(ops),
        space: Borrowed("[N]"),
        reads: reads.iter().map(moved).collect(),
        writes: writes.iter().map(moved).collect(),
        bytes: times(4 * (reads.len() + writes.len()) as i64, n()),
        ways: Owned(vec![
            ways(Target::Ptx, &["vec4|scalar", "32|64-bit index"]),
            ways(Target::Wgsl, &["vec4|scalar", "32|64-bit index"]),
            ways(Target::Cpu, &["vector loops"]),
        ]),
    }
}

/// `relu(a + b) * c` and more, as one kernel.
fn gate() -> Plan {
    let arrays = vec![
        array("a", ArrayKind::Param),
        array("b", ArrayKind::Param),
        array("result", ArrayKind::Returned(0)),
    ];
    plan(Summary {
        ops: 10,
        unfused_bytes: times(76, n()),
        fused_bytes: times(12, n()),
        arrays: Owned(arrays),
        groups: Owned(vec![group("f_0", &["add", "relu", "add"], (&[0, 1], &[2]))]),
        boundaries: Borrowed(&[]),
        targets: Owned(Target::ALL.to_vec()),
        others: Borrowed(&[]),
    })
}

/// Two kernels with a value between them.
fn two(name: &'static str, reason: &'static str) -> Plan {
    let arrays = vec![
        array(name, ArrayKind::Param),
        array("exp", ArrayKind::Temporary),
        array("result", ArrayKind::Returned(0)),
        array("result", ArrayKind::Returned(1)),
    ];
    let boundary = |value, array, line, column| Boundary {
        value: Borrowed(value),
        array,
        reason: Borrowed(reason),
        line,
        column,
    };
    let groups = vec![group("f_0", &["exp"], (&[0], &[1, 2])), group("f_1", &["sub"], (&[1], &[3]))];
    plan(Summary {
        ops: 3,
        unfused_bytes: times(24, n()),
        fused_bytes: times(20, n()),
        arrays: Owned(arrays),
        groups: Owned(groups),
        boundaries: Owned(vec![boundary("exp", 1, 3, 9), boundary("result", 3, 0, 0)]),
        targets: Owned(vec![Target::Cpu]),
        others: Borrowed(&[]),
    })
}

fn plan(summary: Summary) -> Plan {
    Plan {
        name: Borrowed("f"),
        symbols: texts(&["N", "D"]),
        params: Borrowed(&[]),
        nonempty: Borrowed(&[]),
        products: Borrowed(&[]),
        sums: Borrowed(&[]),
        outputs: Borrowed(&[]),
        programs: Borrowed(&[]),
        summary,
    }
}

fn with_temporaries(temporaries: &[(DimExpr, u16, u16)]) -> Report {
    let temporary = |&(ref len, first, last): &(DimExpr, u16, u16)| Temporary {
        dtype: DType::F32,
        len: len.clone(),
        first,
        last,
    };
    let temporaries = temporaries.iter().map(temporary).collect();
    let program = Program { target: Target::Cpu, temporaries, steps: Borrowed(&[]) };
    Report::new(&Plan { programs: Owned(vec![program]), ..two("x", "why") })
}

fn bound(mut report: Report, n: usize) -> Report {
    report.bind("N", n).expect("a dim of the plan");
    report
}

#[test]
fn numbers_once_the_dims_are_given() {
    let report = bound(Report::new(&gate()), 1024);
    assert_eq!((report.unfused_bytes(), report.bytes()), (Some(76 * 1024), Some(12 * 1024)));
    assert_eq!(
        report.to_string(),
        "\
Fusion: 10 → 1 kernels (90% reduction), 64.0KB memory saved
Memory moved: 12.0KB instead of 76.0KB; temporaries: none

group  hero       ops         reads    writes        temporaries  variants
─────  ─────────  ──────────  ───────  ────────────  ───────────  ───────────────────────────────────────
f_0    pointwise  add×2 relu  a 4.0KB  result 4.0KB  none         ptx, wgsl: vec4|scalar, 32|64-bit index
                              b 4.0KB                             cpu: vector loops"
    );
}

#[test]
fn formulas_until_then() {
    let report = Report::new(&two("x", "why not"));
    assert_eq!((report.kernels(), report.ops(), report.bytes()), (2, 3, None));
    assert_eq!((report.bytes_formula(), report.unfused_bytes_formula()), ("20*N".into(), "24*N".into()));
    let text = report.to_string();
    assert!(text.starts_with("Fusion: 3 → 2 kernels (33% reduction), 4*N bytes of memory saved\n"), "{text}");
    assert!(text.contains("\nf_0    pointwise  exp  x 4*N B    exp 4*N B       none"), "{text}");
    let apart =
        "\n\nNot fused:\n  3:9  `exp` is stored: why not\n  -    `result.1` has a kernel of its own: why not";
    assert!(text.ends_with(apart), "{text}");
}

#[test]
fn kernels_without_operations_or_operands() {
    let shown = |ops: &[&'static str], reads: &[u16]| {
        let mut plan = gate();
        plan.summary.groups.to_mut()[0] = group("f_0", ops, (reads, &[2]));
        work(&plan.summary.groups[0]).join(" ")
    };
    assert_eq!(
        (shown(&[], &[0]), shown(&[], &[]), shown(&["exp"], &[])),
        ("copy".into(), "fill".into(), "exp".into())
    );
}

#[test]
fn dims_that_are_not_there_are_refused() {
    let mut report = Report::new(&gate());
    assert_eq!(report.bind("M", 1), Err(Refused::UnknownDim));
    assert_eq!(report.bind("N", usize::MAX), Err(Refused::TooLarge));
}

#[test]
fn sizes_for_people() {
    assert_eq!(
        [0, 1023, 1024, 1536, 1 << 30, u64::MAX].map(size),
        ["0B", "1023B", "1.0KB", "1.5KB", "1.0GB", "16.0EB"]
    );
}

/// Of three temporaries of 4, 8 and 20 bytes for each element, the first lives with the second and the second with the
/// third, and never all: 28 at most, not 32.
#[test]
fn what_lives_at_once_is_the_peak() {
    let report = with_temporaries(&[(n(), 0, 1), (times(2, n()), 1, 2), (times(5, n()), 2, 3)]);
    assert_eq!((report.peak_temporary_bytes(), report.peak_temporary_bytes_formula()), (None, "28*N".into()));
    assert!(report.to_string().contains("; temporaries: 28*N bytes at most\n"), "{report}");
    let report = bound(report, 1024);
    assert_eq!(
        (report.peak_temporary_bytes(), report.peak_temporary_bytes_formula()),
        (Some(28672), "28672".into())
    );
    assert!(report.to_string().contains("; temporaries: 28.0KB at most\n"), "{report}");
}

#[test]
fn the_peak_is_a_formula_if_that_is_short() {
    let d = DimExpr::sym(1);
    let report = with_temporaries(&[(n(), 0, 1), (d.clone(), 2, 3), (DimExpr::constant(1), 0, 3)]);
    assert_eq!(report.peak_temporary_bytes_formula(), "max(4*N + 4, 4*D + 4)");
    assert_eq!(report.peak_temporary_bytes(), None);
    assert_eq!(bound(report, 8).peak_temporary_bytes_formula(), "max(36, 4*D + 4)");
    // Ten pairs of steps of which none is always the largest, the last with most factors.
    let power = |i: u16| (0..i).fold(times(10 - i64::from(i), n()), |all, _| all * DimExpr::sym(1));
    let many: Vec<(DimExpr, u16, u16)> = (0..10).map(|i| (power(i), 2 * i, 2 * i + 1)).collect();
    assert_eq!(with_temporaries(&many).peak_temporary_bytes_formula(), "4*N*D*D*D*D*D*D*D*D*D");
    assert_eq!(with_temporaries(&[]).peak_temporary_bytes(), Some(0));
    assert_eq!(with_temporaries(&[(n(), 1, 1)]).peak_temporary_bytes(), Some(0), "parts of rows");
}

/// What a target has that binds fewer buffers.
#[test]
fn targets_with_other_kernels_have_a_section() {
    let mut plan = gate();
    plan.summary.targets = Owned(vec![Target::Ptx, Target::Cpu]);
    let mut other = two("x", "buffers").summary;
    other.targets = Owned(vec![Target::Wgsl]);
    plan.summary.others = Owned(vec![other]);
    let report = Report::new(&plan);
    let text = report.to_string();
    assert!(text.starts_with("Fusion on ptx, cpu: 10 → 1 kernels"), "{text}");
    assert!(text.contains("\n\nFusion on wgsl: 3 → 2 kernels"), "{text}");
    assert_eq!(report.kernels(), 1);
    assert_eq!(report.to_dot().matches("subgraph \"cluster_").count(), 2);
}

#[test]
fn odd_names_are_escaped() {
    let report = Report::new(&two("a\"<b>&\\c\n\u{1}", "because \"x\" < y"));
    let (dot, svg) = (report.to_dot(), report.to_svg());
    assert!(dot.contains(r#"label="a\"<b>&\\c\n \nf32[N]\n4*N bytes""#), "{dot}");
    assert!(dot.contains(r#"because \"x\" < y (3:9)"#), "{dot}");
    assert!(svg.contains(">a&quot;&lt;b&gt;&amp;\\c  </text>"), "{svg}");
    assert!(svg.contains(">not fused: because &quot;x&quot; &lt; y (3:9)</text>"), "{svg}");
}
