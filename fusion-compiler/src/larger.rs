//! Programs for devices that have more than others of their target: whether there is one, and whether it is worth having.
//!
//! It is for values of elements, and rows after all of them, of what lies in their places. Other rows would be the worse for it:
//! each operand is read again where a row is gone through twice, few threads have much to read where rows are few, and no buffer
//! may be left for what parts of rows give, or for windows on large tensors that are read at other places. Invariant: what all devices of a target run is not changed by what some could, and no call takes more launches
//! or moves more bytes on a device that has more.

use std::collections::BTreeSet;

use crate::fuse::{Fused, Group, fuse};
use crate::ir::graph::{Graph, ParamId};
use crate::ir::plan::{Limits, Program, Target, VariantSummary};
use crate::pipeline::UnloweredKernel;
use crate::schedule::Schedule;
use crate::target::{self, TargetFacts};

/// Devices that a program is for, and what shares a kernel there.
pub struct Class {
    /// What they run.
    pub target: Target,
    /// What they have.
    pub facts: TargetFacts,
    /// The graph, with what is looped there.
    pub graph: Graph,
    /// The kernels.
    pub fused: Fused,
}

impl Class {
    /// Whether they have more than others of their target.
    pub fn is_larger(&self) -> bool {
        self.facts != target::facts(self.target)
    }
}

/// All devices of each target, and before them those that may run fewer kernels.
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

/// What was made for some devices.
pub struct Made<'c> {
    /// Which.
    pub class: &'c Class,
    /// What they run.
    pub program: Program<UnloweredKernel>,
    /// How each group is spread over threads, and the variants of its kernel.
    pub kernels: Vec<(Schedule, VariantSummary)>,
}

/// Without what is for devices that have more, where it is no better than what follows, which is for all.
pub(crate) fn worthwhile(made: Vec<Made<'_>>) -> Vec<Made<'_>> {
    let mut kept: Vec<Made<'_>> = Vec::new();
    // From the last on, so that what is for all is there.
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

/// Whether a program takes no more launches and moves no more bytes than another, whatever the extents: of few and many, each alone
/// and all together.
fn costs_no_more(program: &Program<UnloweredKernel>, other: &Program<UnloweredKernel>) -> bool {
    let limits = Limits { buffers: u32::MAX, ..target::limits(program.target) };
    let symbols = 1 + [program, other].into_iter().flat_map(last_symbol).max().unwrap_or(0);
    samples(symbols).all(|extents| {
        let costs = [program, other].map(|program| costs(program, &extents, &limits));
        match costs {
            [Some(mine), Some(others)] => mine.0 <= others.0 && mine.1 <= others.1,
            // Beyond all numbers.
            _ => true,
        }
    })
}

/// Extents for so many symbols: each of these sizes for all, and for one where the others are small or large.
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

/// Launches and bytes of a call.
fn costs(program: &Program<UnloweredKernel>, extents: &[i64], limits: &Limits) -> Option<(usize, i64)> {
    let mut all = (0, 0_i64);
    for step in program.steps.iter() {
        for launch in step.chosen(extents, limits)?.launches.iter() {
            all = (all.0 + 1, all.1.checked_add(launch.bytes.eval(extents)?)?);
        }
    }
    Some(all)
}
