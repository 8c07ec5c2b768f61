//! Tests of reports of plans that are built by hand.

use std::borrow::Cow::{Borrowed, Owned};

use super::*;
use crate::ir::dtype::DType;
use crate::ir::graph::{Access, Math};
use crate::ir::kernel::IndexWidth;
use crate::ir::plan::{
    Boundary, BufferArg, Condition, Footprint, Launch, LaunchSpec, List, Slot, Space, Step, Temporary,
    Traffic, Variant,
};

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
    let summary = |kinds| VariantSummary { variants: 2, kinds: texts(kinds) };
    GroupSummary {
        kernel: Borrowed(kernel),
        schedule: Borrowed("pointwise"),
        hero: Borrowed("pointwise"),
        ops: texts(ops),
        space: Borrowed("[N]"),
        reads: reads.iter().map(moved).collect(),
        writes: writes.iter().map(moved).collect(),
        variants: Owned(vec![
            summary(&["vec4|scalar", "32|64-bit index"]),
            summary(&["vec4|scalar", "32|64-bit index"]),
            summary(&["vector loops"]),
        ]),
        products: texts(&[]),
    }
}

/// A plan of one kernel: `relu(a + b) * c` and more.
fn gate() -> Plan {
    let arrays = vec![
        array("a", ArrayKind::Param),
        array("b", ArrayKind::Param),
        array("result", ArrayKind::Returned(0)),
    ];
    plan(Summary {
        ops: 10,
        unfused_bytes: times(76, n()),
        math: Math::Accurate,
        arrays: Owned(arrays),
        groups: Owned(vec![group("f_0", &["add", "relu", "add"], (&[0, 1], &[2]))]),
        boundaries: Borrowed(&[]),
        programs: Owned(vec![0, 1, 2]),
        others: Borrowed(&[]),
    })
    .with(Target::ALL.iter().map(|&target| program(target, &[], vec![alone(times(12, n()), &[])])).collect())
}

/// A plan of two kernels with a temporary between them.
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
        math: Math::Accurate,
        arrays: Owned(arrays),
        groups: Owned(groups),
        boundaries: Owned(vec![boundary("exp", 1, 3, 9), boundary("result", 3, 0, 0)]),
        programs: Owned(vec![0]),
        others: Borrowed(&[]),
    })
    .with(vec![program(Target::Cpu, &[], vec![alone(times(12, n()), &[]), alone(times(8, n()), &[])])])
}

fn launch(bytes: DimExpr, rows: DimExpr, temporaries: &[u16]) -> Launch<()> {
    let buffer = |&temporary: &u16| BufferArg {
        slot: Slot::Temp(temporary),
        access: Access::Read,
        dtype: DType::F32,
        footprint: Footprint::Whole,
        uniform: false,
    };
    let buffers = temporaries.iter().map(buffer).collect();
    let space =
        Space { rows, cols: DimExpr::constant(1), grain: 1, grain_min: 1, each: DimExpr::constant(1) };
    let spec = LaunchSpec { buffers, bytes, ..LaunchSpec::new("k", IndexWidth::Bits32, space) };
    Launch { code: (), spec }
}

fn variant(when: Vec<Condition>, launches: Vec<Launch<()>>) -> Variant<()> {
    Variant { when: when.into(), launches: launches.into() }
}

/// A step with one variant.
fn alone(bytes: DimExpr, temporaries: &[u16]) -> Step<()> {
    Step { variants: Owned(vec![variant(vec![], vec![launch(bytes, n(), temporaries)])]) }
}

/// Length of a temporary, with the first and the last step in which it is live.
type Lives = (DimExpr, u16, u16);

fn program(target: Target, temporaries: &[Lives], steps: Vec<Step<()>>) -> Program<()> {
    let temporary =
        |&(ref len, first, last): &Lives| Temporary { dtype: DType::F32, len: len.clone(), first, last };
    let temporaries = temporaries.iter().map(temporary).collect();
    Program { target, temporaries, steps: steps.into() }
}

impl Plan {
    fn with(self, programs: Vec<Program<()>>) -> Plan {
        Plan { programs: programs.into(), ..self }
    }
}

fn plan(summary: Summary) -> Plan {
    Plan {
        name: Borrowed("f"),
        symbols: texts(&["N", "D"]),
        params: Borrowed(&[]),
        nonempty: Borrowed(&[]),
        splits: Borrowed(&[]),
        concats: Borrowed(&[]),
        outputs: Borrowed(&[]),
        programs: Borrowed(&[]),
        lacks: Borrowed(&[]),
        summary,
    }
}

/// Report of a plan with these temporaries.
fn with_temporaries(temporaries: &[Lives]) -> Report {
    let steps = temporaries.iter().map(|(_, _, last)| last + 1).max().unwrap_or(0);
    let used = |step: u16| {
        let lives = |(_, (_, first, last)): &(usize, &Lives)| (*first..=*last).contains(&step);
        temporaries.iter().enumerate().filter(lives).map(|(i, _)| i as u16).collect::<Vec<_>>()
    };
    let steps = (0..steps).map(|step| alone(n(), &used(step))).collect();
    Report::new(&two("x", "why").with(vec![program(Target::Cpu, temporaries, steps)]))
}

fn bound(mut report: Report, dim: &str, extent: usize) -> Report {
    report.bind(dim, extent).expect("a dim of the plan");
    report
}

#[test]
fn numbers_once_the_dims_are_given() {
    let report = bound(bound(Report::new(&gate()), "N", 1024), "D", 1);
    assert_eq!((report.unfused_bytes(), report.bytes()), (Some(76 * 1024), Some(12 * 1024)));
    assert_eq!(
        report.to_string(),
        "\
Fusion: 10 → 1 kernels (90% reduction), 64.0KB memory saved
Memory moved: 12.0KB instead of 76.0KB; temporaries: none

group  hero       ops         reads    writes        temporaries  variants
─────  ─────────  ──────────  ───────  ────────────  ───────────  ───────────────────────────────────────
f_0    pointwise  add×2 relu  a 4.0KB  result 4.0KB  none         1 launch, 12.0KB moved
                              b 4.0KB                             ptx, wgsl: vec4|scalar, 32|64-bit index
                                                                  cpu: vector loops"
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
    assert_eq!(report.bind("M", 1), Err(BindError::UnknownDim));
    assert_eq!(report.bind("N", usize::MAX), Err(BindError::TooLarge));
}

#[test]
fn sizes_for_people() {
    assert_eq!(
        [0, 1023, 1024, 1536, 1 << 30, u64::MAX].map(size),
        ["0B", "1023B", "1.0KB", "1.5KB", "1.0GB", "16.0EB"]
    );
}

/// Three temporaries have 4, 8 and 20 bytes for each element. The first overlaps with the second, the second
/// with the third, and never all three: the peak is 28, not 32.
#[test]
fn what_lives_at_once_is_the_peak() {
    let report = with_temporaries(&[(n(), 0, 1), (times(2, n()), 1, 2), (times(5, n()), 2, 3)]);
    assert_eq!((report.peak_temporary_bytes(), report.peak_temporary_bytes_formula()), (None, "28*N".into()));
    assert!(report.to_string().contains("; temporaries: 28*N bytes at most\n"), "{report}");
    let report = bound(bound(report, "N", 1024), "D", 1);
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
    assert_eq!(bound(report, "N", 8).peak_temporary_bytes_formula(), "max(36, 4*D + 4)");
    // None of ten pairs of steps is always the largest. The last pair has the most factors.
    let power = |i: u16| (0..i).fold(times(10 - i64::from(i), n()), |all, _| all * DimExpr::sym(1));
    let many: Vec<(DimExpr, u16, u16)> = (0..10).map(|i| (power(i), 2 * i, 2 * i + 1)).collect();
    assert_eq!(with_temporaries(&many).peak_temporary_bytes_formula(), "4*N*D*D*D*D*D*D*D*D*D");
    let none = bound(bound(with_temporaries(&[]), "N", 8), "D", 1);
    assert_eq!(none.peak_temporary_bytes(), Some(0));
}

/// A target that binds fewer buffers has kernels of its own.
#[test]
fn targets_with_other_kernels_have_a_section() {
    let mut plan = gate();
    plan.summary.programs = Owned(vec![0, 2]);
    let mut other = two("x", "buffers").summary;
    other.programs = Owned(vec![1]);
    plan.summary.others = Owned(vec![other]);
    let steps = vec![alone(times(12, n()), &[]), alone(times(8, n()), &[])];
    plan.programs.to_mut()[1] = program(Target::Wgsl, &[], steps);
    let report = Report::new(&plan);
    let text = report.to_string();
    assert!(text.starts_with("Fusion on ptx, cpu: 10 → 1 kernels"), "{text}");
    assert!(text.contains("\n\nFusion on wgsl: 3 → 2 kernels"), "{text}");
    assert_eq!(report.kernels(), 1);
    assert_eq!(report.to_dot().matches("subgraph \"cluster_").count(), 2);
}

/// A plan whose second kernel splits up to ten rows of a hundred elements or more. The kernel reads rows
/// twice that no block can stage.
fn in_parts() -> Plan {
    let d = || DimExpr::sym(1);
    let long = vec![Condition::AtMost(n(), 10), Condition::AtLeast(d(), 100)];
    let parts = vec![launch(times(4, n() * d()), n(), &[0, 1]), launch(times(8, n()), n(), &[1])];
    let staged = vec![Condition::Shares(times(4, d()))];
    let middle = vec![
        variant([vec![Condition::Divides(d(), 4)], long.clone()].concat(), parts.clone()),
        variant(long, parts),
        variant(staged, vec![launch(times(4, n() * d()), n(), &[0])]),
        variant(vec![], vec![launch(times(8, n() * d()), n(), &[0])]),
    ];
    let middle = Step { variants: middle.into() };
    let lives = [(n(), 0, 2), (times(2, n()), 1, 1), (DimExpr::constant(5), 2, 3)];
    let steps = vec![alone(n(), &[0]), middle, alone(n(), &[0, 2]), alone(n(), &[2])];
    gate().with(vec![program(Target::Wgsl, &lives, steps)])
}

/// The report counts the variant, launches and memory that the executor uses.
#[test]
fn parts_of_rows_are_launches_with_memory_of_their_own() {
    let of = |n, d| {
        let report = bound(bound(Report::new(&in_parts()), "N", n), "D", d);
        (report.launches(), report.bytes(), report.peak_temporary_bytes())
    };
    assert_eq!(of(10, 99), (Some(4), Some(30 + 40 * 99), Some(60)), "staged");
    assert_eq!(of(10, 100), (Some(5), Some(30 + 40 * 100 + 80), Some(120)), "in parts");
    assert_eq!(of(11, 100), (Some(4), Some(33 + 44 * 100), Some(64)), "too many for parts");
    assert_eq!(of(11, 4097), (Some(4), Some(33 + 88 * 4097), Some(64)), "no block of WebGPU's holds it");
    assert_eq!(of(0, 100).0, Some(0), "nothing to launch");
    let mut report = bound(bound(Report::new(&in_parts()), "N", 11), "D", 4097);
    assert!(!report.on(Target::Ptx, target::limits(Target::Ptx)), "there are no such kernels");
    assert!(report.on(Target::Wgsl, Limits { shared_bytes: 4 * 4097, ..target::limits(Target::Wgsl) }));
    assert_eq!(report.bytes(), Some(33 + 44 * 4097), "this device holds it");
}

/// Before extents are given, the report lists all variants with their conditions.
#[test]
fn variants_that_cost_more_are_told() {
    let report = Report::new(&in_parts());
    assert_eq!((report.kernels(), report.launches(), report.bytes()), (4, None, None));
    assert_eq!(report.bytes_formula(), "4*N*D + 3*N");
    assert_eq!(report.peak_temporary_bytes_formula(), "4*N + 20");
    let text = report.to_string();
    assert!(text.starts_with("Fusion: 10 → 4–5 kernels (50–60% reduction)"), "{text}");
    let heading = "\n\nVariants, of which a call runs the first whose conditions hold:\n";
    assert!(!text.contains(heading), "no group of the summary is that kernel: {text}");
    let told = |report: &Report| {
        let variants =
            report.variant_costs(&report.runs[0].program.steps[1], &report.runs[0].program.temporaries);
        variants.iter().map(|variant| report.variant(variant)).collect::<Vec<_>>()
    };
    assert_eq!(
        told(&report),
        [
            "2 launches, 4*N*D + 8*N bytes moved, 8*N bytes of temporaries, where N ≤ 10 and D ≥ 100",
            "1 launch, 4*N*D bytes moved, where a block can share 4*D bytes",
            "1 launch, 8*N*D bytes moved, otherwise",
        ]
    );
    let short = bound(report.clone(), "D", 99);
    assert_eq!(told(&short)[..1], ["1 launch, 396*N bytes moved, where a block can share 396B"]);
    let long = bound(report, "D", 100);
    assert_eq!(told(&long)[0], "2 launches, 408*N bytes moved, 8*N bytes of temporaries, where N ≤ 10");
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
