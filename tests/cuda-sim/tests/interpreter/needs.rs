//! Every instruction is refused, with its requirement, if the text's `.version` or `.target` is too low for
//! it. NVIDIA's assembler, where available, refuses the same ones and asks for the same.

use crate::harness::assembled;
use cuda_sim::ptx;

const FIRST: (u32, u32) = (4, 0);

/// Returns the version and target that each instruction requires, and the instruction.
pub(crate) fn table() -> Vec<((u32, u32), u32, &'static str)> {
    let rows = include_str!("data/needs.txt").lines().filter(|line| !line.starts_with("//"));
    let row = |line: &'static str| {
        let (version, rest) = line.split_once(' ').expect("a version");
        let (target, instruction) = rest.split_once(' ').expect("a target");
        (number(version), target.parse().expect("a number"), instruction)
    };
    rows.map(row).collect()
}

fn number(version: &str) -> (u32, u32) {
    let (major, minor) = version.split_once('.').expect("major and minor");
    (major.parse().expect("a number"), minor.parse().expect("a number"))
}

/// Returns a module of these instructions, each on its own line after [`HEAD`] lines.
fn text<'a>(version: (u32, u32), target: u32, lines: impl IntoIterator<Item = &'a str>) -> String {
    let body: Vec<&str> = lines.into_iter().collect();
    format!(
        ".version {}.{}\n.target sm_{target}\n.address_size 64\n.visible .entry k(.param .u64 out) {{
.reg .b32 %r<20>; .reg .b64 %rd<10>; .reg .f32 %f<20>; .reg .b16 %h<10>; .reg .pred %p<10>; .reg .f64 %fd<9>;
{}\n{}\nret;\n}}\n",
        version.0,
        version.1,
        // The directive has the version requirement, not only the jump.
        if version >= (6, 0) { "targets: .branchtargets done; done:" } else { "" },
        body.join("\n"),
    )
}

const HEAD: usize = 6;

/// Returns the text's error, if it has one.
fn error(version: (u32, u32), target: u32, instruction: &str) -> Option<String> {
    ptx::parse(&text(version, target, [instruction])).err().map(|error| error.message)
}

/// Versions with the newest architecture of each, then architectures.
const HEADERS: [((u32, u32), u32); 34] = [
    ((4, 0), 50),
    ((4, 1), 52),
    ((4, 2), 53),
    ((4, 3), 53),
    ((5, 0), 62),
    ((6, 0), 70),
    ((6, 1), 72),
    ((6, 2), 72),
    ((6, 3), 75),
    ((6, 5), 75),
    ((7, 0), 80),
    ((7, 1), 86),
    ((7, 2), 86),
    ((7, 4), 87),
    ((7, 5), 87),
    ((7, 6), 87),
    ((7, 7), 87),
    ((7, 8), 90),
    ((8, 0), 90),
    ((8, 2), 90),
    ((8, 3), 90),
    ((8, 6), 100),
    ((8, 8), 121),
    ((9, 0), 50),
    ((9, 0), 53),
    ((9, 0), 60),
    ((9, 0), 61),
    ((9, 0), 70),
    ((9, 0), 75),
    ((9, 0), 80),
    ((9, 0), 86),
    ((9, 0), 90),
    ((9, 0), 100),
    ((9, 1), 121),
];

#[test]
fn instructions_are_refused_where_they_are_too_new() {
    let table = table();
    assert!(table.len() > 370);
    for (version, target) in HEADERS {
        for &(wants, on, instruction) in &table {
            let found = error(version, target, instruction);
            if version >= wants && target >= on {
                assert_eq!(found, None, "{version:?}, sm_{target}: {instruction}");
                continue;
            }
            let found = found.unwrap_or_else(|| panic!("{version:?}, sm_{target} has {instruction}"));
            let name = instruction.split([' ', ';']).next().expect("a name");
            let specials = [", %clock_hi", "_smem_size", "cluster_", "clusterid", "explicit_cluster"];
            let special = specials.iter().any(|special| instruction.contains(special));
            assert!(special || found.starts_with(&format!("`{name}`: it requires ")), "{found}");
            let target_named = found.contains(&format!("`.target` sm_{on} or higher, not sm_{target}"));
            assert_eq!(target_named, target < on, "{found}");
            let version_named = found.contains(&format!("`.version` {}.{} or later, not", wants.0, wants.1));
            assert_eq!(version_named, version < wants, "{found}");
        }
    }
}

#[test]
fn the_assembler_says_the_same() {
    let table = table();
    let lines = || table.iter().map(|(.., instruction)| *instruction);
    for (version, target) in HEADERS {
        // The assembler reports the jump and its list as one place each. Without a list the jump has no
        // target.
        let Some((_, log)) = assembled(&text(version, target, lines()), &format!("sm_{target}")) else {
            return;
        };
        for (i, (wants, on, instruction)) in table.iter().enumerate() {
            if instruction.starts_with("brx") && version < (6, 0) {
                continue;
            }
            let place = format!("line {};", HEAD + 1 + i);
            let errors: Vec<&str> = log.lines().filter(|line| line.contains(&place)).collect();
            let accepted = version >= *wants && target >= *on;
            assert_eq!(errors.is_empty(), accepted, "{version:?}, sm_{target}: {instruction}\n{errors:#?}");
            if (version, target) == (FIRST, 50) {
                let asked = |before: &str| {
                    let rest = errors.iter().filter_map(|error| error.split_once(before));
                    rest.map(|(_, rest)| rest.split(' ').next().unwrap_or("").to_owned()).collect::<Vec<_>>()
                };
                let versions = asked(".version ").iter().map(|asked| number(asked)).max().unwrap_or(FIRST);
                let targets = asked(".target sm_").iter().map(|asked| asked.parse().expect("a number")).max();
                assert_eq!((versions, targets.unwrap_or(50)), (*wants, *on), "{instruction}\n{errors:#?}");
            }
        }
    }
}

/// Architectures with the first version that supports each.
const TARGETS: [(&str, (u32, u32)); 24] = [
    ("50", (4, 0)),
    ("52", (4, 1)),
    ("53", (4, 2)),
    ("60", (5, 0)),
    ("62", (5, 0)),
    ("70", (6, 0)),
    ("72", (6, 1)),
    ("75", (6, 3)),
    ("80", (7, 0)),
    ("86", (7, 1)),
    ("87", (7, 4)),
    ("88", (9, 0)),
    ("89", (7, 8)),
    ("90", (7, 8)),
    ("90a", (8, 0)),
    ("100", (8, 6)),
    ("100a", (8, 6)),
    ("100f", (8, 8)),
    ("103f", (8, 8)),
    ("110", (9, 0)),
    ("120", (8, 7)),
    ("120a", (8, 7)),
    ("120f", (8, 8)),
    ("121", (8, 8)),
];

#[test]
fn targets_need_a_version() {
    const VERSIONS: [(u32, u32); 22] = [
        (4, 0),
        (4, 1),
        (4, 2),
        (4, 3),
        (5, 0),
        (6, 0),
        (6, 1),
        (6, 2),
        (6, 3),
        (6, 5),
        (7, 0),
        (7, 1),
        (7, 3),
        (7, 4),
        (7, 7),
        (7, 8),
        (8, 0),
        (8, 5),
        (8, 6),
        (8, 7),
        (8, 8),
        (9, 0),
    ];
    for (target, first) in TARGETS {
        let before = VERSIONS.iter().rfind(|version| **version < first);
        for (&version, passes) in [(&first, true)].into_iter().chain(before.map(|version| (version, false))) {
            let text = format!(
                ".version {}.{}\n.target sm_{target}\n.address_size 64\n.visible .entry k() {{ ret; }}\n",
                version.0, version.1
            );
            let found = ptx::parse(&text).err();
            assert_eq!(found.is_none(), passes, "{version:?} {target}: {found:?}");
            if let Some((accepted, log)) = assembled(&text, &format!("sm_{target}")) {
                assert_eq!(accepted, passes, "{version:?} {target}: {log}");
            }
        }
    }
    for unknown in ["sm_35", "sm_77", "sm_80a", "sm_90f", "sm_90ax", "compute_80", "sm_"] {
        let text = format!(".version 9.0\n.target {unknown}\n.address_size 64\n");
        let found = ptx::parse(&text).expect_err(unknown);
        assert_eq!((found.line, found.column), (2, 9), "{found}");
    }
}

#[test]
fn directives_need_a_version_too() {
    let cases = [
        ("", "ret;", ".param .align 4 .b8 a[4352]", (6, 0), true),
        ("", "ret;", ".param .align 4 .b8 a[4356]", (8, 0), false),
        ("", "ret;", ".param .align 4 .b8 a[4356]", (8, 1), true),
        (".common .global .u32 x;", "ret;", "", (5, 0), true),
        (".common .global .u32 x;", "ret;", "", (4, 3), false),
        (".func f() .noreturn { exit; }", "ret;", "", (6, 4), true),
        (".func f() .noreturn { exit; }", "ret;", "", (6, 3), false),
        ("", "targets: .branchtargets done; done: ret;", "", (6, 0), true),
        ("", "targets: .branchtargets done; done: ret;", "", (5, 0), false),
    ];
    for (outer, body, params, (major, minor), passes) in cases {
        let target = if params.contains("4356") { 70 } else { 50 };
        let text = format!(
            ".version {major}.{minor}\n.target sm_{target}\n.address_size 64\n{outer}\n.visible .entry k({params}) {{ {body} }}\n"
        );
        assert_eq!(ptx::parse(&text).is_ok(), passes, "{text}");
        if let Some((accepted, log)) = assembled(&text, &format!("sm_{target}")) {
            assert_eq!(accepted, passes, "{text}{log}");
        }
    }
}

#[test]
fn directives_of_clusters_need_a_version_and_a_target() {
    let directives =
        [".explicitcluster", ".reqnctapercluster 2", ".reqnctapercluster 2, 1, 1", ".maxclusterrank 8"];
    let both = [".reqnctapercluster 2 .maxclusterrank 8"];
    let headers = [((7, 8), 90, true), ((7, 8), 89, false), ((7, 7), 87, false), ((9, 0), 100, true)];
    for ((major, minor), target, has) in headers {
        let cases = directives.iter().map(|text| (text, has)).chain(both.iter().map(|text| (text, false)));
        for (directive, passes) in cases {
            let text = format!(
                ".version {major}.{minor}\n.target sm_{target}\n.address_size 64\n.visible .entry k() {directive} {{ ret; }}\n"
            );
            let found = ptx::parse(&text).err();
            assert_eq!(found.is_none(), passes, "{text}{found:?}");
            if let Some((accepted, log)) = assembled(&text, &format!("sm_{target}")) {
                assert_eq!(accepted, passes, "{text}{log}");
            }
        }
    }
}

#[test]
fn arrivals_without_a_state_need_a_version() {
    // Each instruction is assembled alone, because the assembler stops at an unknown `_`.
    let arrivals = [
        ("mbarrier.arrive.shared.b64 _, [%r1];", (7, 1), 80),
        ("mbarrier.arrive.shared::cta.b64 _, [%r1];", (7, 8), 80),
        ("mbarrier.arrive.release.cta.shared.b64 _, [%r1];", (8, 0), 80),
        ("mbarrier.arrive.release.cluster.shared.b64 _, [%r1];", (8, 0), 90),
        ("mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 4;", (8, 0), 90),
        ("mbarrier.arrive.expect_tx.release.cluster.shared::cta.b64 _, [%r1], %r2;", (8, 0), 90),
    ];
    let headers =
        [((7, 0), 80), ((7, 1), 80), ((7, 1), 75), ((7, 4), 80), ((7, 8), 80), ((8, 0), 80), ((8, 0), 90)];
    for (version, target) in headers {
        for (instruction, wants, on) in arrivals {
            let passes = version >= wants && target >= on;
            let found = error(version, target, instruction);
            assert_eq!(found.is_none(), passes, "{version:?}, sm_{target}: {instruction}: {found:?}");
            let text = text(version, target, [instruction]);
            if let Some((accepted, log)) = assembled(&text, &format!("sm_{target}")) {
                assert_eq!(accepted, passes, "{version:?}, sm_{target}: {instruction}: {log}");
            }
        }
    }
}
