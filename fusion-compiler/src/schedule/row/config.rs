//! The ways to run a row group on a GPU: which threads share a row, and what each takes of it at a time.

use crate::fuse::Store;
use crate::ir::graph::Access;
use crate::ir::kernel::{BufferId, IndexWidth, ThreadMap};
use crate::schedule::passes::{PassCount, passes};
use crate::schedule::row_space::RowSpace;
use crate::schedule::space::{lanes, product};
use crate::schedule::{Operand, Work};
use crate::target::tuning_table::ptx;
use crate::target::{TargetFacts, Team, Vectors, team};

/// How the elements lie that a thread takes at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    /// Side by side, and rows are whole vectors.
    Vectors,
    /// Each as far from the next as there are threads.
    Apart,
    /// Side by side as vectors of this buffer where elements are read and held, and where they are stored, if all that they are made of
    /// lies so; what those leave of a row is taken by itself, and so is every element where some are combined.
    Unaligned(BufferId),
}

/// A variant of a GPU kernel.
#[derive(Clone, Copy)]
pub(super) struct RowConfig {
    pub(super) index: IndexWidth,
    pub(super) lanes: u8,
    pub(super) placement: Placement,
    pub(super) team: Team,
    /// Elements of the longest rows that take it.
    pub(super) row_max: i64,
    /// Rows that a team has at a time.
    pub(super) rows_per_team: u32,
    /// Whether the threads of a team take turns with these rows, as those lie side by side; else each has threads next to each other.
    pub(super) cyclic: bool,
    /// Whether elements that are needed again are held in shared memory.
    pub(super) stages: bool,
    /// Whether many calls take it.
    pub(super) common: bool,
}

impl RowConfig {
    /// That of a team that has a row of any length at a time, goes through it element by element, and holds nothing.
    pub(super) fn new(team: Team, index: IndexWidth) -> RowConfig {
        RowConfig {
            index,
            lanes: 1,
            placement: Placement::Vectors,
            team,
            row_max: i64::MAX,
            rows_per_team: 1,
            cyclic: false,
            stages: false,
            common: false,
        }
    }

    /// Returns the mapping of rows to threads.
    pub(super) fn threads(&self) -> ThreadMap {
        let Team { threads: team, cluster, .. } = self.team;
        ThreadMap { team, rows: self.rows_per_team, cyclic: self.cyclic, cluster, ..ThreadMap::ALONE }
    }

    /// Whose vectors are taken, if rows do not start with one.
    pub(super) fn vectors_of(&self) -> Option<BufferId> {
        match self.placement {
            Placement::Unaligned(of) => Some(of),
            Placement::Vectors | Placement::Apart => None,
        }
    }

    /// The end of a kernel's name, which tells it from those of other configs.
    pub(super) fn suffix(&self) -> String {
        let vector = match self.lanes {
            1 => String::new(),
            lanes => match self.placement {
                Placement::Vectors => format!("_v{lanes}"),
                Placement::Apart => format!("_x{lanes}"),
                Placement::Unaligned(_) => format!("_u{lanes}"),
            },
        };
        let rows_per_team =
            if self.rows_per_team > 1 { format!("x{}", self.rows_per_team) } else { String::new() };
        let cluster = if self.team.cluster { "_cluster" } else { "" };
        let staged = if self.stages { "_staged" } else { "" };
        let wide = if self.index == IndexWidth::Bits64 { "_wide" } else { "" };
        format!("_t{}{rows_per_team}{cluster}{staged}{vector}{wide}", self.team.threads)
    }

    /// Iterations of loops along rows that read at once: of vectors of four that are held, where rows have any length, and so few
    /// operands that what is read of them has registers; half as many where more than one lies as rows do. Of others the target's
    /// compiler knows best.
    pub(super) fn load_unroll(&self, work: &Work<'_>, space: &RowSpace) -> u32 {
        let waits = match self.placement {
            Placement::Vectors => self.team.fills,
            Placement::Unaligned(_) => true,
            Placement::Apart => false,
        };
        let is_known = product(space.line()).as_const().is_some();
        if !waits
            || is_known
            || !self.stages
            || self.lanes != 4
            || work.operands.len() > ptx::LOAD_UNROLL_OPERANDS_MAX
        {
            return 1;
        }
        let reads = |operand: &&Operand| operand.access != Access::Write && work.lies_as_rows(operand);
        let several = work.operands.iter().filter(reads).count() > 1;
        if several { self.team.load_unroll.div_ceil(2) } else { self.team.load_unroll }
    }
}

/// The teams of a target that rows are worth kernels for.
#[derive(Clone, Copy)]
pub(in crate::schedule) enum Teams {
    All,
    /// Every other one: tiles compute the calls with many rows and columns.
    Half,
}

impl Teams {
    fn step(self) -> usize {
        match self {
            Teams::All => 1,
            Teams::Half => 2,
        }
    }
}

/// What ways to run a group follow from.
pub(super) struct Rows<'r> {
    /// Whether there may be more than one.
    pub(super) several: bool,
    /// The teams that may share a row.
    pub(super) teams: Teams,
    /// Whether each block combines something before there is a row, which is nothing that the blocks of a cluster have parts of.
    pub(super) after_parts: bool,
    /// Whether elements are needed again …
    pub(super) stages: bool,
    /// … and held as they are read, in two bytes.
    pub(super) narrow: bool,
    /// What a thread takes at a time, by the lanes that rows are vectors of, and by what holds their elements, if something does;
    /// nothing where that has too few threads.
    pub(super) lanes_and_placement: &'r dyn Fn(u8, Option<Team>) -> Option<(u8, Placement)>,
    /// Of positions, in order of preference.
    pub(super) widths: &'r [IndexWidth],
}

/// The teams that may share a row, and then what does for rows that none of them can hold. Fewer do where it matters less: few
/// devices ever need wide positions, and those have long rows or many; rows that are no vectors are short, or so long that their
/// positions may as well be wide, as those may be of devices on which no team can hold a part; and the only row, which is not cut
/// into parts, is a launch's latency to the largest team, held or not.
pub(super) fn configs_of(
    facts: &TargetFacts,
    rows: &Rows<'_>,
    (index, lanes): (IndexWidth, u8),
) -> Vec<RowConfig> {
    let longest = |team: Team| match (lanes, rows.stages) {
        // Memory that is filled has room for twice as many that take half as much.
        (_, true) if rows.narrow && team.fills => 2 * team.longest.staged,
        (1, true) => team.longest.staged_uneven,
        (1, false) => team.longest.once_uneven,
        (2..=4, true) => team.longest.staged,
        (_, true) => team.longest.staged_wide,
        (_, false) => team.longest.once,
    };
    let config = |team: Team, stages: bool| {
        let (lanes, placement) = (rows.lanes_and_placement)(lanes, stages.then_some(team))?;
        let (row_max, common) = (longest(team), lanes > 1 && placement == Placement::Vectors);
        Some(RowConfig {
            lanes,
            placement,
            row_max,
            rows_per_team: team.rows,
            stages,
            common,
            ..RowConfig::new(team, index)
        })
    };
    let (Some(&last), Some(block)) = (facts.teams.last(), block(facts)) else { return vec![] };
    if !rows.several {
        return config(last, false).into_iter().collect();
    }
    let fits = |team: &Team| match (index, rows.stages) {
        (IndexWidth::Bits64, _) => false,
        (IndexWidth::Bits32, stages) => stages || team.threads < block.threads,
    };
    let of_these = |team: &Team| longest(*team) > 0 && !(team.cluster && rows.after_parts);
    let teams = facts.teams.iter().copied().step_by(rows.teams.step());
    let teams = teams.filter(|team| fits(team) && of_these(team));
    let teams = teams.filter_map(|team| config(team, rows.stages));
    let is_widest = rows.widths.last() == Some(&index);
    let stages_part = rows.stages && last.staged_max.is_some();
    let has_rest = is_widest || !rows.stages || lanes > 1 && !stages_part;
    let rest = config(block, false).filter(|_| has_rest).map(|rest| RowConfig { common: false, ..rest });
    teams.chain(rest).collect()
}

/// The elements that a thread takes at a time where rows are vectors of so many lanes. Where they are none, but differ in one
/// coordinate alone, what holds them reads and stores the vectors that there are in memory, of what lies as rows do, if each row has a
/// thread for every element that those leave; and where nothing is held and written of elements, several that are apart are read.
pub(super) fn lanes_and_placement(
    work: &Work<'_>,
    facts: &TargetFacts,
    space: &RowSpace,
    (of, stages): (u8, Option<Team>),
) -> Option<(u8, Placement)> {
    let (Vectors::Lanes(most), 1, 1) = (facts.vector, of, space.line) else {
        return Some((of, Placement::Vectors));
    };
    let writes = |operand: &Operand| operand.access == Access::ReadWrite;
    let of_elements = |store: &Store| work.group.is_of_elements(store);
    match stages {
        // Of a part of a row, no vector may have elements that are held and others that are not.
        Some(team) if team.staged_max.is_none() && facts.mixes => {
            let of = work.operands.iter().position(|operand| work.lies_as_rows(operand));
            let Some(of) = of.map(|of| BufferId(of as u16)) else { return Some((1, Placement::Vectors)) };
            let lanes = lanes(work, facts, most);
            let has_threads = team.threads / team.rows >= 2 * (u32::from(lanes) - 1);
            has_threads.then_some((lanes, Placement::Unaligned(of)))
        }
        None if !work.operands.iter().any(writes) && !work.group.stores.iter().any(of_elements) => {
            Some((most.max(scaling_lanes(work, facts)), Placement::Apart))
        }
        Some(_) | None => Some((1, Placement::Vectors)),
    }
}

/// The lanes of vectors along rows that nothing holds, where a sum of exponentials is scaled once for each of them; else 1. A loop
/// with as many exponentials is one that a target's compiler reads ahead for no more.
pub(super) fn scaling_lanes(work: &Work<'_>, facts: &TargetFacts) -> u8 {
    let scales = passes(work, PassCount::Fewest).iter().any(|pass| !pass.pairs.is_empty());
    if scales { facts.scaling_lanes } else { 1 }
}

/// The team that has what no team can hold.
pub(super) fn block(facts: &TargetFacts) -> Option<Team> {
    facts.block.map(|threads| team(threads, i64::MAX, 1))
}
