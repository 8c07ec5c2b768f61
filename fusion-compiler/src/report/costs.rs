//! Launches and bytes of a program's steps: exact for a call once extents are given, a choice of variants
//! before that.
//!
//! Invariant: the executor's own function chooses a call's variants, and the costs are those of their
//! launches.

use std::collections::BTreeSet;

use super::Report;
use super::terms::Terms;
use crate::ir::dim::DimExpr;
use crate::ir::graph::Access;
use crate::ir::plan::{Condition, Footprint, Launch, Limits, Program, Slot, Step, Temporary, Text, Variant};

/// Program with the limits of its device.
#[derive(Clone, Debug)]
pub(super) struct EvaluatedProgram {
    /// Position among the programs of the plan.
    pub(super) place: u16,
    /// Target of the program, with its number of buffers if it is for larger devices alone.
    pub(super) name: Text,
    pub(super) program: Program<()>,
    pub(super) limits: Limits,
}

/// Cost of a step: of the variant with the fewest launches and bytes, where several are possible.
#[derive(Clone, Debug)]
pub(super) struct Cost {
    pub(super) launches: usize,
    /// Launches of the variant with the most.
    pub(super) launches_max: usize,
    /// Bytes read and written.
    pub(super) bytes: DimExpr,
    /// Bytes of the temporaries that are live during the step.
    pub(super) alive: DimExpr,
}

/// Cost of one or more successive variants of a step that cost the same.
pub(super) struct VariantCosts<'r> {
    pub(super) launches: usize,
    pub(super) bytes: DimExpr,
    /// Bytes of temporaries that only launches of the variant use.
    pub(super) passed_on: DimExpr,
    /// Conditions of the last of the variants.
    pub(super) when: Vec<&'r Condition>,
}

impl Report {
    /// Returns the cost of each step.
    pub(super) fn costs(&self, run: &EvaluatedProgram) -> Vec<Cost> {
        let Program { steps, temporaries, .. } = &run.program;
        let chosen: Vec<(Vec<&Launch<()>>, usize)> =
            steps.iter().map(|step| self.launches_of(step, &run.limits)).collect();
        let used: BTreeSet<usize> =
            chosen.iter().flat_map(|(launches, _)| temporaries_of(launches)).collect();
        let cost = |(step, (launches, launches_max)): (usize, &(Vec<&Launch<()>>, usize))| {
            let lives = |one: &Temporary| (one.first..=one.last).contains(&(step as u16));
            let alive = used.iter().filter_map(|&i| temporaries.get(i)).filter(|one| lives(one));
            Cost {
                launches: launches.iter().filter(|launch| !launch.of_blocks).count(),
                launches_max: *launches_max,
                bytes: sum(launches.iter().map(|launch| launch.bytes.clone())),
                alive: sum(alive.map(Temporary::bytes)),
            }
        };
        chosen.iter().enumerate().map(cost).collect()
    }

    /// Returns the launches of a step's cheapest possible variant, and the largest number of launches of any.
    fn launches_of<'r>(&self, step: &'r Step<()>, limits: &Limits) -> (Vec<&'r Launch<()>>, usize) {
        if let Some(extents) = self.bound() {
            let chosen = step.chosen(&extents, limits);
            let launches = chosen.iter().flat_map(|variant| variant.launches.iter());
            // The executor launches nothing if there are no elements, or only empty rows.
            let runs = |launch: &&Launch<()>| {
                launch.space.elements(&extents) != Some(0) && !writes_nothing(launch, &extents)
            };
            let launches: Vec<_> = launches.filter(runs).collect();
            let count = launches.iter().filter(|launch| !launch.of_blocks).count();
            return (launches, count);
        }
        let possible = self.possible(step);
        let most = possible.iter().map(|variant| variant.launch_count()).max().unwrap_or(0);
        let cost = |variant: &&&Variant<()>| {
            let terms = self.terms(&bytes(variant));
            (variant.launch_count(), terms.map_or(f64::INFINITY, |terms| terms.weight()))
        };
        let order = |a: &(usize, f64), b: &(usize, f64)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1));
        let least = possible.iter().min_by(|a, b| order(&cost(a), &cost(b)));
        (least.into_iter().flat_map(|variant| variant.launches.iter()).collect(), most)
    }

    /// Returns the variants that the given extents do not rule out.
    fn possible<'r>(&self, step: &'r Step<()>) -> Vec<&'r Variant<()>> {
        let known = |holds| move |condition: &Condition| self.known(condition) == Some(holds);
        let mut possible: Vec<&Variant<()>> =
            step.variants.iter().filter(|variant| !variant.when.iter().any(known(false))).collect();
        let sure = possible.iter().position(|variant| variant.when.iter().all(known(true)));
        possible.truncate(sure.map_or(possible.len(), |sure| sure + 1));
        possible
    }

    /// Returns the value of a condition, if the given extents decide it.
    fn known(&self, condition: &Condition) -> Option<bool> {
        match condition {
            Condition::Divides(extent, by) => self.eval(extent).map(|extent| extent % by == 0),
            Condition::AtMost(extent, most) => self.eval(extent).map(|extent| extent <= *most),
            Condition::AtLeast(extent, least) => self.eval(extent).map(|extent| extent >= *least),
            Condition::Binds(_)
            | Condition::Shares(_)
            | Condition::Subgroups(_)
            | Condition::Clusters(_)
            | Condition::Arch(_) => None,
        }
    }

    /// Returns the variants of a step that differ in cost, in order of preference; none if all cost the same.
    pub(super) fn variant_costs<'r>(
        &self,
        step: &'r Step<()>,
        temporaries: &[Temporary],
    ) -> Vec<VariantCosts<'r>> {
        // Variants for multiples of a number, or for subgroups, have a general twin of the same cost.
        let special = |condition: &Condition| {
            matches!(condition, Condition::Divides(..) | Condition::Subgroups(_))
                && self.known(condition).is_none()
        };
        let twins = self.possible(step).into_iter().filter(|variant| !variant.when.iter().any(special));
        let mut variant_costs: Vec<(VariantCosts<'r>, [Option<Terms>; 2])> = Vec::new();
        for variant in twins {
            let when = variant.when.iter().filter(|condition| self.known(condition).is_none()).collect();
            let used = temporaries_of(&variant.launches.iter().collect::<Vec<_>>());
            let own = used.into_iter().filter_map(|i| temporaries.get(i)).filter(|one| one.first == one.last);
            let (bytes, passed_on) = (bytes(variant), sum(own.map(Temporary::bytes)));
            let key = [&bytes, &passed_on].map(|amount| self.terms(amount));
            let costs = VariantCosts { launches: variant.launch_count(), bytes, passed_on, when };
            match variant_costs.last_mut() {
                Some((last, known)) if last.launches == costs.launches && *known == key => {
                    last.when = costs.when
                }
                Some(_) | None => variant_costs.push((costs, key)),
            }
        }
        if variant_costs.len() > 1 {
            variant_costs.into_iter().map(|(costs, _)| costs).collect()
        } else {
            vec![]
        }
    }

    /// Describes a condition in words.
    pub(super) fn condition(&self, condition: &Condition) -> String {
        match condition {
            Condition::Divides(extent, by) => format!("{} is a multiple of {by}", self.formula(extent)),
            Condition::AtMost(extent, most) => format!("{} ≤ {most}", self.formula(extent)),
            Condition::AtLeast(extent, least) => format!("{} ≥ {least}", self.formula(extent)),
            Condition::Binds(bytes) => format!("a kernel can bind {}", self.amount(bytes)),
            Condition::Shares(bytes) => format!("a block can share {}", self.amount(bytes)),
            Condition::Subgroups(threads) => format!("subgroups of one size make {threads} threads"),
            Condition::Clusters(blocks) => format!("there are clusters of {blocks} blocks"),
            Condition::Arch(arch) => {
                format!("the compute capability is {}.{} or later", arch / 10, arch % 10)
            }
        }
    }
}

fn bytes(variant: &Variant<()>) -> DimExpr {
    sum(variant.launches.iter().map(|launch| launch.bytes.clone()))
}

pub(super) fn sum(amounts: impl Iterator<Item = DimExpr>) -> DimExpr {
    amounts.reduce(|sum, one| sum + one).unwrap_or_else(|| DimExpr::constant(0))
}

/// Returns true if all buffers that a launch writes are empty, whatever its space.
fn writes_nothing(launch: &Launch<()>, extents: &[i64]) -> bool {
    let mut written = launch.buffers.iter().filter(|buffer| buffer.access != Access::Read).peekable();
    written.peek().is_some()
        && written.all(|buffer| match &buffer.footprint {
            Footprint::Linear(each) | Footprint::Strided { each, .. } => each.eval(extents) == Some(0),
            Footprint::Item
            | Footprint::Whole
            | Footprint::Windows(_)
            | Footprint::LowerHalf
            | Footprint::UpperHalf => false,
        })
}

/// Returns the temporaries that launches use.
fn temporaries_of(launches: &[&Launch<()>]) -> BTreeSet<usize> {
    let slots = launches.iter().flat_map(|launch| launch.buffers.iter()).map(|buffer| buffer.slot);
    let number = |slot| match slot {
        Slot::Temp(number) => Some(usize::from(number)),
        Slot::Param(_) | Slot::Output(_) => None,
    };
    slots.filter_map(number).collect()
}
