//! Second programs for devices with higher limits than their target guarantees, where such a program pays.
//!
//! Only pointwise kernels, and rows after a global reduction, may differ from the first program, and only
//! without gathered operands. Other row kernels would become slower. Each pass reads every operand again, and
//! with few rows, few threads read all operands. Partial results of split reductions, and windows on large
//! gathered tensors, may need the buffers too.
//!
//! Invariant: the program for all devices of a target does not depend on the second one. A second program
//! never takes more launches or moves more bytes.

use std::collections::BTreeSet;

use crate::fuse::{Fused, Group, fuse};
use crate::ir::graph::{Graph, ParamId};
use crate::ir::plan::{Limits, Program, Target, VariantSummary};
use crate::pipeline::UnloweredKernel;
use crate::schedule::Schedule;
use crate::target::{self, TargetFacts};

/// Class of devices that a program is compiled for, with its fused groups.
pub struct Class {
    /// Target of the devices.
    pub target: Target,
    /// Facts about the devices.
    pub facts: TargetFacts,
    /// Graph, with the axes that are looped on these devices.
    pub graph: Graph,
    /// Groups of the graph.
    pub fused: Fused,
}

impl Class {
    /// Returns true if the devices exceed the limits that their target guarantees.
    pub fn is_larger(&self) -> bool {
        self.facts != target::facts(self.target)
    }
}

/// Returns a class for all devices of each target. A class of larger devices precedes it where these may run
/// fewer kernels.
pub(crate) fn with_larger(all: Vec<(Target, (Graph, Fused))>) -> Vec<Class> {
    let double_buffered: BTreeSet<ParamId> =
        all.iter().flat_map(|(_, (_, fused))| fused.double_buffered.clone()).collect();
    let classes = all.into_iter().flat_map(|(target, (graph, fused))| {
        let larger = target::larger(target).and_then(|facts| {
            let larger =
                Class { target, facts, fused: fuse(&graph, &facts, &double_buffered), graph: graph.clone() };
            let groups = &larger.fused.groups;
            let is_better =
                groups.len() < fused.groups.len() && larger.fused.double_buffered.is_subset(&double_buffered);
            let new = || groups.iter().filter(|group| !fused.groups.contains(group));
            let of_rows = |group: &Group| !group.cols.is_empty() && group.of_all(&graph).is_empty();
            let suits = |group: &Group| !of_rows(group) && group.moved.is_empty();
            (is_better && new().all(suits)).then_some(larger)
        });
        larger.into_iter().chain([Class { target, facts: target::facts(target), graph, fused }])
    });
    classes.collect()
}

/// Compiled program of a class.
pub struct Made<'c> {
    /// Class that the program is for.
    pub class: &'c Class,
    /// Program, with unlowered kernels.
    pub program: Program<UnloweredKernel>,
    /// Schedule and variants of each group.
    pub kernels: Vec<(Schedule, VariantSummary)>,
}

/// Drops the programs for larger devices that are no better than the program for all devices, which follows
/// them.
pub(crate) fn worthwhile(made: Vec<Made<'_>>) -> Vec<Made<'_>> {
    let mut kept: Vec<Made<'_>> = Vec::new();
    // The reverse order visits the program for all devices first.
    for one in made.into_iter().rev() {
        if !one.class.is_larger()
            || kept.last().is_some_and(|for_all| costs_no_more(&one.program, &for_all.program))
        {
            kept.push(one);
        }
    }
    kept.reverse();
    kept
}

/// Returns true if `program` takes no more launches and moves no more bytes than `other`, for all sampled
/// extents.
fn costs_no_more(program: &Program<UnloweredKernel>, other: &Program<UnloweredKernel>) -> bool {
    let limits = Limits { buffers: u32::MAX, ..target::limits(program.target) };
    let symbols = 1 + [program, other].into_iter().flat_map(last_symbol).max().unwrap_or(0);
    samples(symbols).all(|extents| {
        let costs = [program, other].map(|program| costs(program, &extents, &limits));
        match costs {
            [Some(mine), Some(others)] => mine.0 <= others.0 && mine.1 <= others.1,
            // The costs overflow.
            _ => true,
        }
    })
}

/// Returns samples of extents for a number of symbols: all symbols of one size, then each symbol of another
/// size than the rest.
fn samples(symbols: usize) -> impl Iterator<Item = Vec<i64>> {
    const SIZES: [i64; 4] = [3, 100, 3000, 100_000];
    let all = SIZES.into_iter().map(move |size| vec![size; symbols]);
    let one = (0..symbols).flat_map(move |symbol| {
        SIZES.into_iter().flat_map(move |others| {
            SIZES.into_iter().map(move |size| {
                let mut extents = vec![others; symbols];
                extents[symbol] = size;
                extents
            })
        })
    });
    all.chain(one)
}

fn last_symbol(program: &Program<UnloweredKernel>) -> Option<usize> {
    let launches =
        program.steps.iter().flat_map(|step| step.variants.iter()).flat_map(|one| one.launches.iter());
    let spaces = launches.flat_map(|one| [&one.space.rows, &one.space.cols, &one.bytes]);
    spaces.flat_map(|extent| extent.symbols().collect::<Vec<_>>()).max().map(usize::from)
}

/// Returns the number of launches and the bytes of a call, or none on overflow.
fn costs(program: &Program<UnloweredKernel>, extents: &[i64], limits: &Limits) -> Option<(usize, i64)> {
    let mut all = (0, 0_i64);
    for step in program.steps.iter() {
        for launch in step.chosen(extents, limits)?.launches.iter() {
            all = (all.0 + 1, all.1.checked_add(launch.bytes.eval(extents)?)?);
        }
    }
    Some(all)
}
