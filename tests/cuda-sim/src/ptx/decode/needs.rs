//! PTX version and target that an instruction requires: the PTX ISA and target ISA notes, as a table.
//!
//! Invariant: all matching rows count, so a row has only what its words add. An instruction that every text
//! for `.target sm_50` may use has no row.

use super::super::ParseError;
use super::super::module::Parser;
use super::super::types::Type;
use super::Mods;

/// Required `.version`, and the required number after `sm_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ptx) struct Needs {
    pub(in crate::ptx) version: (u32, u32),
    pub(in crate::ptx) target: u32,
}

/// One requirement.
///
/// The fields are, in order:
/// - the instructions, or none for all,
/// - the modifiers that must be present, with types in this order,
/// - a modifier that must be absent,
/// - the required version and target.
struct Row(&'static [&'static str], &'static [&'static str], Option<&'static str>, Needs);

const fn row(
    names: &'static [&'static str],
    words: &'static [&'static str],
    version: (u32, u32),
    target: u32,
) -> Row {
    Row(names, words, None, Needs { version, target })
}

impl Row {
    const fn without(self, word: &'static str) -> Row {
        Row(self.0, self.1, Some(word), self.3)
    }
}

const HALVES: &[&str] = &["add", "sub", "mul", "fma", "neg", "abs", "setp", "set"];
const EXTREMES: &[&str] = &["min", "max"];
const ATOMICS: &[&str] = &["atom", "red"];
const ACCESSES: &[&str] = &["ld", "st", "atom", "red", "cvta", "isspacep", "ldmatrix", "mbarrier"];
const CARRIES: &[&str] = &["add", "addc", "sub", "subc", "mad", "madc"];

/// Directives and special registers of clusters.
const CLUSTER: &[&str] = &[
    ".explicitcluster",
    ".reqnctapercluster",
    ".maxclusterrank",
    "%cluster_ctarank",
    "%cluster_nctarank",
    "%clusterid",
    "%nclusterid",
    "%cluster_ctaid",
    "%cluster_nctaid",
    "%is_explicit_cluster",
];

#[rustfmt::skip]
const ROWS: &[Row] = &[
    // Integers.
    row(CARRIES, &["cc", "u64"], (4, 3), 0),
    row(CARRIES, &["cc", "s64"], (4, 3), 0),
    row(CARRIES, &["cc", "b64"], (4, 3), 0),
    row(&["lop3"], &[], (4, 3), 0),
    row(&["lop3"], &["or"], (8, 2), 70),
    row(&["lop3"], &["and"], (8, 2), 70),
    row(&["bmsk", "szext"], &[], (7, 6), 70),
    row(&["fns"], &[], (6, 0), 0),
    row(&["add", "min", "max"], &["u16x2"], (8, 0), 90),
    row(&["add", "min", "max"], &["s16x2"], (8, 0), 90),
    row(EXTREMES, &["relu"], (8, 0), 90),
    row(&["dp4a", "dp2a"], &[], (5, 0), 61),
    // Halves.
    row(HALVES, &["f16"], (4, 2), 53),
    row(HALVES, &["f16x2"], (4, 2), 53),
    row(&["neg"], &["f16"], (6, 0), 53),
    row(&["neg"], &["f16x2"], (6, 0), 53),
    row(&["abs"], &["f16"], (6, 5), 53),
    row(&["abs"], &["f16x2"], (6, 5), 53),
    row(&["set"], &["u16", "f16"], (6, 5), 53),
    row(&["set"], &["s16", "f16"], (6, 5), 53),
    row(&["set"], &["u32", "f16"], (6, 5), 53),
    row(&["set"], &["s32", "f16"], (6, 5), 53),
    row(&["set"], &["u32", "f16x2"], (6, 5), 53),
    row(&["set"], &["s32", "f16x2"], (6, 5), 53),
    row(HALVES, &["bf16"], (7, 0), 80),
    row(HALVES, &["bf16x2"], (7, 0), 80),
    row(&["add", "sub", "mul", "setp", "set"], &["bf16"], (7, 8), 90),
    row(&["add", "sub", "mul", "setp", "set"], &["bf16x2"], (7, 8), 90),
    row(&["fma"], &["relu"], (7, 0), 80),
    row(EXTREMES, &["f16"], (7, 0), 80),
    row(EXTREMES, &["f16x2"], (7, 0), 80),
    row(EXTREMES, &["bf16"], (7, 0), 80),
    row(EXTREMES, &["bf16x2"], (7, 0), 80),
    row(EXTREMES, &["NaN"], (7, 0), 80),
    row(EXTREMES, &["xorsign"], (7, 2), 86),
    // Approximations.
    row(&["rsqrt"], &["approx", "ftz", "f64"], (4, 0), 0),
    row(&["tanh"], &[], (7, 0), 75),
    row(&["ex2"], &["f16"], (7, 0), 75),
    row(&["ex2"], &["f16x2"], (7, 0), 75),
    row(&["ex2", "tanh"], &["bf16"], (7, 8), 90),
    row(&["ex2", "tanh"], &["bf16x2"], (7, 8), 90),
    // Conversions.
    row(&["cvt"], &["relu"], (7, 0), 80),
    row(&["cvt"], &["f16x2"], (7, 0), 80),
    row(&["cvt"], &["bf16x2"], (7, 0), 80),
    row(&["cvt"], &["bf16"], (7, 0), 80),
    row(&["cvt"], &["f32", "bf16"], (7, 1), 80),
    row(&["cvt"], &["ftz", "f32", "bf16"], (7, 8), 90),
    row(&["cvt"], &["bf16"], (7, 8), 90).without("f32"),
    row(&["cvt"], &["tf32"], (7, 0), 80),
    row(&["cvt"], &["tf32"], (7, 8), 90).without("rna"),
    // Memory.
    row(ACCESSES, &["shared::cta"], (7, 8), 0),
    row(ACCESSES, &["shared::cluster"], (7, 8), 90),
    row(&["mapa", "getctarank"], &[], (7, 8), 90),
    row(&["ld", "st"], &["param::entry"], (8, 3), 0),
    row(&["ld", "st"], &["param::func"], (8, 3), 0),
    row(&["ld", "st"], &["v8"], (8, 8), 100),
    row(&["ld", "st"], &["v4", "b64"], (8, 8), 100),
    row(&["ld", "st"], &["v4", "u64"], (8, 8), 100),
    row(&["ld", "st"], &["v4", "s64"], (8, 8), 100),
    row(&["ld", "st"], &["v4", "f64"], (8, 8), 100),
    row(&["ld", "st"], &["L1::evict_normal"], (7, 4), 70),
    row(&["ld", "st"], &["L1::evict_unchanged"], (7, 4), 70),
    row(&["ld", "st"], &["L1::evict_first"], (7, 4), 70),
    row(&["ld", "st"], &["L1::evict_last"], (7, 4), 70),
    row(&["ld", "st"], &["L1::no_allocate"], (7, 4), 70),
    row(&["ld", "cp"], &["L2::64B"], (7, 4), 75),
    row(&["ld", "cp"], &["L2::128B"], (7, 4), 75),
    row(&["ld", "cp"], &["L2::256B"], (7, 4), 80),
    row(&["ld", "st"], &["L2::cache_hint"], (7, 4), 80),
    row(&["ld", "st"], &["volatile", "local"], (9, 1), 0),
    row(&["prefetch"], &["L2::evict_last"], (7, 4), 80),
    row(&["prefetch"], &["L2::evict_normal"], (7, 4), 80),
    row(&["applypriority", "discard"], &[], (7, 4), 80),
    row(&["cp"], &[], (7, 0), 80),
    // Memory model.
    row(&["ld", "st"], &["weak"], (6, 0), 70),
    row(&["ld", "st"], &["mmio"], (8, 2), 70),
    row(&[], &["relaxed"], (6, 0), 70),
    row(&[], &["acquire"], (6, 0), 70),
    row(&[], &["release"], (6, 0), 70),
    row(&[], &["acq_rel"], (6, 0), 70),
    row(&[], &["cluster"], (7, 8), 90),
    row(&["fence"], &[], (6, 0), 70),
    row(&["fence"], &["acquire"], (8, 6), 90),
    row(&["fence"], &["release"], (8, 6), 90).without("mbarrier_init"),
    row(&["fence"], &["mbarrier_init"], (8, 0), 90),
    row(ATOMICS, &["cta"], (5, 0), 60),
    row(ATOMICS, &["gpu"], (5, 0), 60),
    row(ATOMICS, &["sys"], (5, 0), 60),
    row(ATOMICS, &["f64"], (5, 0), 60),
    row(ATOMICS, &["f16x2"], (6, 2), 60),
    row(ATOMICS, &["f16"], (6, 3), 70),
    row(ATOMICS, &["cas", "b16"], (6, 3), 70),
    row(ATOMICS, &["bf16"], (7, 8), 90),
    row(ATOMICS, &["bf16x2"], (7, 8), 90),
    // Synchronization of threads.
    row(&["barrier"], &[], (6, 0), 0),
    row(&["bar"], &["warp"], (6, 0), 0),
    row(&["bar", "barrier"], &["cta"], (7, 8), 0),
    row(&["barrier"], &["acquire"], (8, 0), 90),
    row(&["barrier"], &["release"], (8, 0), 90),
    row(&["barrier"], &["relaxed"], (8, 0), 90),
    row(&["mbarrier"], &[], (7, 0), 80),
    // Arrivals without a state, the only ones supported here.
    row(&["mbarrier"], &["arrive"], (7, 1), 80),
    row(&["mbarrier"], &["expect_tx"], (8, 0), 90),
    row(&["mbarrier"], &["try_wait"], (7, 8), 90),
    row(&["mbarrier"], &["release"], (8, 0), 80),
    row(&["mbarrier"], &["acquire"], (8, 0), 80),
    row(&["st"], &["async"], (8, 1), 90),
    row(&["shfl", "vote"], &[], (6, 0), 0),
    row(&["match"], &[], (6, 0), 70),
    row(&["activemask"], &[], (6, 2), 0),
    row(&["redux"], &[], (7, 0), 80),
    row(&["elect"], &[], (8, 0), 90),
    row(&["mma", "ldmatrix"], &[], (6, 5), 75),
    row(&["mma"], &["m16n8k16"], (7, 0), 80),
    row(&["mma"], &["bf16"], (7, 0), 80),
    row(&["mma"], &["tf32"], (7, 0), 80),
    // Control flow, directives and special registers.
    row(&["brx", ".branchtargets"], &[], (6, 0), 0),
    row(&["nanosleep"], &[], (6, 2), 70),
    row(&["griddepcontrol"], &[], (7, 8), 90),
    row(&[".noreturn"], &[], (6, 4), 0),
    row(&[".common"], &[], (5, 0), 0),
    row(&["%clock_hi"], &[], (5, 0), 0),
    row(&["%total_smem_size", "%dynamic_smem_size"], &[], (4, 1), 0),
    row(CLUSTER, &[], (7, 8), 90),
];

/// Returns the requirements of an instruction with its modifiers. A directive or a special register has no
/// modifiers.
pub(in crate::ptx) fn of(name: &str, words: &[&str]) -> Needs {
    let fits = |row: &&Row| {
        let mut types = words.iter().filter(|word| Type::named(word).is_some());
        let mut has = |wanted: &&str| match Type::named(wanted) {
            Some(_) => types.any(|word| word == wanted),
            None => words.contains(wanted),
        };
        (row.0.is_empty() || row.0.contains(&name))
            && row.1.iter().all(&mut has)
            && row.2.is_none_or(|word| !words.contains(&word))
    };
    ROWS.iter().filter(fits).fold(Needs { version: (0, 0), target: 0 }, |all, row| all.with(row.3))
}

impl Needs {
    fn with(self, o: Needs) -> Needs {
        Needs { version: self.version.max(o.version), target: self.target.max(o.target) }
    }

    /// Describes the requirements that a text of a version and a target does not meet. None if it meets all.
    fn missing(self, version: (u32, u32), target: u32) -> Option<String> {
        let mut lacks = Vec::new();
        if target < self.target {
            lacks.push(format!("`.target` sm_{} or higher, not sm_{target}", self.target));
        }
        if version < self.version {
            let ((major, minor), (has, has_minor)) = (self.version, version);
            lacks.push(format!("PTX ISA `.version` {major}.{minor} or later, not {has}.{has_minor}"));
        }
        (!lacks.is_empty()).then(|| format!("it requires {}", lacks.join(", and ")))
    }
}

/// Returns the PTX version that an architecture from `sm_50` on requires, by its number and its letter.
pub(in crate::ptx) fn of_target(number: u32, letter: &str) -> Option<(u32, u32)> {
    const TARGETS: [(u32, (u32, u32)); 21] = [
        (50, (4, 0)),
        (52, (4, 1)),
        (53, (4, 2)),
        (60, (5, 0)),
        (61, (5, 0)),
        (62, (5, 0)),
        (70, (6, 0)),
        (72, (6, 1)),
        (75, (6, 3)),
        (80, (7, 0)),
        (86, (7, 1)),
        (87, (7, 4)),
        (88, (9, 0)),
        (89, (7, 8)),
        (90, (7, 8)),
        (100, (8, 6)),
        (101, (8, 6)),
        (103, (8, 8)),
        (110, (9, 0)),
        (120, (8, 7)),
        (121, (8, 8)),
    ];
    let (_, version) = TARGETS.iter().find(|(known, _)| *known == number)?;
    match letter {
        "" => Some(*version),
        "a" if number >= 90 => Some((*version).max((8, 0))),
        "f" if number >= 100 => Some((*version).max((8, 8))),
        _ => None,
    }
}

impl Parser<'_> {
    /// Returns an error if the text's version or target does not meet the requirements.
    pub(in crate::ptx) fn require(&self, at: usize, what: &str, needs: Needs) -> Result<(), ParseError> {
        match needs.missing(self.version, self.target) {
            None => Ok(()),
            Some(missing) => self.error(at, format!("`{what}`: {missing}")),
        }
    }
}

impl Mods<'_> {
    /// Returns the requirements of the instruction.
    pub(in crate::ptx) fn needs(&self) -> Needs {
        let words: Vec<&str> = self.list.iter().map(|(word, _)| *word).collect();
        of(self.name, &words)
    }
}
