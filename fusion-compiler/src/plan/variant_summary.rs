//! Kernels of a group → the kinds of variants that a report names.
//!
//! Invariant: the kinds follow from the unlowered kernels alone.

use crate::ir::graph::Access;
use crate::ir::kernel::{Buffer, IndexWidth, Lanes, Type};
use crate::ir::plan::{BufferArg, Condition, Factor, Footprint, Slot, Target, Text, VariantSummary};
use crate::schedule::Scheduled;

/// The way in which most kernels bind their operands.
const WHOLE: &str = "whole";

/// Properties in which variants differ.
struct Traits {
    /// Number of kernels that run by themselves.
    launches: usize,
    /// Number of lanes of the widest value.
    lanes: u8,
    /// Number of threads that share a row.
    threads: u32,
    /// True if the blocks of a cluster share a row.
    cluster: bool,
    /// True if shared memory, or a CPU thread's memory, stages elements.
    stages: bool,
    /// True if short rows are computed as one line.
    line: bool,
    /// Tiles of a contraction that the elements are computed from, if any.
    tiles: Option<String>,
    /// True if positions have 64 bits.
    wide: bool,
    /// Way in which large operands are bound.
    operands: &'static str,
}

/// Summarizes the variants of a group for a target, given the launches of each config.
pub(crate) fn variant_summary<'s>(
    target: Target,
    configs: impl Iterator<Item = &'s [Scheduled]>,
) -> VariantSummary {
    let (by_subgroups, configs): (Vec<_>, Vec<_>) = configs.partition(|config| asks_for_subgroups(config));
    let variants = (by_subgroups.len() + configs.len()) as u16;
    let traits: Vec<Traits> = configs.into_iter().map(traits).collect();
    let mut kinds = match target {
        Target::Cpu => on_cpu(&traits),
        Target::Ptx | Target::Wgsl => on_gpu(&traits),
    };
    // These variants differ from the others only in the memory between threads.
    if !by_subgroups.is_empty() {
        kinds.push("subgroups|shared memory".into());
    }
    VariantSummary { variants, kinds: kinds.into_iter().map(Text::from).collect() }
}

fn asks_for_subgroups(launches: &[Scheduled]) -> bool {
    let mut conditions = launches.iter().flat_map(|launch| &launch.when);
    conditions.any(|condition| matches!(condition, Condition::Subgroups(_)))
}

fn traits(launches: &[Scheduled]) -> Traits {
    let lanes = |ty: &Type| match ty.lanes {
        Lanes::Const(lanes) => lanes,
        // Aligned tiles are read by vectors.
        Lanes::Loop | Lanes::Tile(..) => 1,
    };
    let way = |buffer: &BufferArg| match buffer.footprint {
        Footprint::Windows(_) => Some("windowed"),
        Footprint::LowerHalf | Footprint::UpperHalf => Some("halved"),
        Footprint::Linear(_) | Footprint::Strided { .. } | Footprint::Item | Footprint::Whole => None,
    };
    let kernels = || launches.iter().map(|launch| &launch.kernel);
    Traits {
        launches: launches.iter().filter(|launch| !launch.of_blocks).count(),
        lanes: kernels().flat_map(|kernel| &kernel.types).map(lanes).max().unwrap_or(1),
        threads: kernels().map(|kernel| kernel.threads.per_row()).max().unwrap_or(1),
        cluster: kernels().any(|kernel| kernel.threads.cluster),
        stages: launches.iter().any(stages),
        line: launches.iter().any(|launch| launch.line),
        tiles: launches.iter().find_map(tiles),
        wide: kernels().any(|kernel| kernel.index == IndexWidth::Bits64),
        operands: launches.iter().flat_map(|launch| &launch.buffers).find_map(way).unwrap_or(WHOLE),
    }
}

/// Describes the tiles of a contraction, whose sizes the driver of the CPU chooses.
fn tiles(launch: &Scheduled) -> Option<String> {
    let size = |ty: &Type| match ty.lanes {
        Lanes::Tile(rows, cols) => Some((rows, cols)),
        Lanes::Const(_) | Lanes::Loop => None,
    };
    let of_team = || {
        launch
            .kernel
            .types
            .iter()
            .filter_map(size)
            .max_by_key(|(rows, cols)| u32::from(*rows) * u32::from(*cols))
    };
    match &launch.contraction {
        Some(of) if of.factors().any(|factor| matches!(factor, Factor::Blocks(_))) => {
            Some("tiles of computed factors".into())
        }
        Some(_) => Some("tiles".into()),
        None => of_team().map(|(rows, cols)| format!("tiles of {rows} × {cols}")),
    }
}

/// Returns true if shared memory, or an output that the kernel also reads, stages elements.
fn stages(launch: &Scheduled) -> bool {
    let is_lent = |buffer| launch.contraction.as_ref().is_some_and(|of| of.lends_own(buffer));
    let in_written = |(i, (buffer, arg)): (usize, (&Buffer, &BufferArg))| {
        let is_kept = buffer.access == Access::ReadWrite && !matches!(arg.slot, Slot::Param(_));
        is_kept && !is_lent(i)
    };
    let kernel = &launch.kernel;
    !kernel.shared.is_empty() && !launch.line
        || kernel.buffers.iter().zip(&launch.buffers).enumerate().any(in_written)
}

fn on_cpu(traits: &[Traits]) -> Vec<String> {
    let staged = traits.iter().any(|one| one.stages).then(|| "staged in cache".to_owned());
    let line = traits.iter().any(|one| one.line).then(|| "short rows as one line".to_owned());
    let loops = either(traits, |one| one.tiles.clone().unwrap_or_else(|| "vector loops".into()));
    [loops].into_iter().chain(launches(traits)).chain(staged).chain(line).collect()
}

fn on_gpu(traits: &[Traits]) -> Vec<String> {
    let has_tiles = traits.iter().any(|one| one.tiles.is_some());
    let tiles = has_tiles.then(|| either(traits, |one| one.tiles.clone().unwrap_or_else(|| "rows".into())));
    let mut kinds: Vec<String> = tiles.into_iter().collect();
    let rows = || traits.iter().filter(|one| one.tiles.is_none());
    kinds.push(either(rows(), |one| match one.lanes {
        1 => "scalar".into(),
        lanes => format!("vec{lanes}"),
    }));
    let threads = || rows().map(|one| one.threads);
    kinds.extend(match (threads().min(), threads().max()) {
        (Some(least), Some(most)) if least < most => Some(format!("{least}…{most} threads a row")),
        (_, Some(most)) if most > 1 => Some(format!("{most} threads a row")),
        (_, _) => None,
    });
    if traits.iter().any(|one| one.cluster) {
        let blocks = |one: &Traits| if one.cluster { "a cluster" } else { "one block" };
        kinds.push(either(traits, |one| blocks(one).to_owned()) + " a row");
    }
    kinds.extend(launches(traits));
    let word = |text: &str| text.to_owned();
    if traits.iter().any(|one| one.stages) {
        let rows = either(traits, |one| word(if one.stages { "staged" } else { "reread" }));
        kinds.push(format!("rows {rows}"));
    }
    if traits.iter().any(|one| one.wide) {
        kinds.push(either(traits, |one| word(if one.wide { "64" } else { "32" })) + "-bit index");
    }
    if traits.iter().any(|one| one.operands != WHOLE) {
        kinds.push(either(traits, |one| word(one.operands)) + " operands");
    }
    kinds
}

/// Describes the numbers of launches, if a variant splits a reduction over several kernels.
fn launches(traits: &[Traits]) -> Option<String> {
    let several = traits.iter().any(|one| one.launches > 1);
    several.then(|| either(traits, |one| one.launches.to_string()) + " launches")
}

/// Lists a property of the variants, each value once, in order of preference.
fn either<'t>(traits: impl IntoIterator<Item = &'t Traits>, of: impl Fn(&Traits) -> String) -> String {
    let mut all: Vec<String> = Vec::new();
    for one in traits.into_iter().map(of) {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all.join("|")
}
