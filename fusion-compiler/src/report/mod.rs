//! The report of a plan: fused kernels, boundaries with their reasons, and the bytes saved. A report is
//! available as text, for Graphviz and as a picture.
//!
//! Invariant: everything shown comes from the plan. Amounts are formulas of the dims until extents are given;
//! then amounts are those of a call's launches.

use crate::ir::dim::DimExpr;
use crate::ir::plan::{
    Array, ArrayKind, GroupSummary, Lack, Limits, Plan, Program, Summary, Target, Text, VariantSummary,
};
use crate::target;

mod costs;
mod dot;
#[cfg(feature = "compile")]
pub(crate) mod dump;
mod layout;
mod svg;
mod table;
mod terms;
mod text;

use costs::{Cost, EvaluatedProgram, sum};
use terms::Terms;

/// Report of a function's fusion.
#[derive(Clone, Debug)]
pub struct Report {
    name: Text,
    lacks: Vec<Lack>,
    symbols: Vec<String>,
    /// Extents given so far, by symbol.
    extents: Vec<Option<i64>>,
    /// Summary of each set of programs with the same groups. The first is that of the first program.
    summaries: Vec<Summary>,
    /// All programs of the plan.
    all: Vec<EvaluatedProgram>,
    /// Programs that the report covers.
    runs: Vec<EvaluatedProgram>,
    /// Last line of the text and of the captions: the verdict of a gate.
    note: Option<String>,
}

/// Data that several programs share.
struct Section<'r> {
    summary: &'r Summary,
    runs: Vec<&'r EvaluatedProgram>,
    /// Cost of each step.
    costs: Vec<Cost>,
}

/// Reason why a dim is not given an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindError {
    /// The function does not have the dim.
    UnknownDim,
    /// The extent takes more than 63 bits.
    TooLarge,
}

impl Report {
    /// Creates the report of a plan, for all of its targets.
    pub fn new<C: Clone>(plan: &Plan<C>) -> Report {
        let symbols: Vec<String> = plan.symbols.iter().map(|symbol| symbol.to_string()).collect();
        let summaries = std::iter::once(&plan.summary).chain(plan.summary.others.iter());
        let run = |(place, program): (usize, &Program<C>)| EvaluatedProgram {
            place: place as u16,
            name: program.target.name().into(),
            limits: target::limits(program.target),
            program: program.clone().map_code(&mut |_, _| ()),
        };
        let all: Vec<EvaluatedProgram> = plan.programs.iter().enumerate().map(run).collect();
        Report {
            name: plan.name.clone(),
            lacks: plan.lacks.to_vec(),
            note: None,
            extents: vec![None; symbols.len()],
            symbols,
            summaries: summaries.cloned().collect(),
            runs: all.clone(),
            all,
        }
    }

    /// Restricts the report to one target, on a device with these limits. Returns false if the function is
    /// not compiled for the target.
    pub fn on(&mut self, target: Target, limits: Limits) -> bool {
        let Some(chosen) = self.all.iter().find(|run| run.program.target == target) else { return false };
        self.runs = vec![EvaluatedProgram { limits, ..chosen.clone() }];
        true
    }

    /// Returns the report with a note at the end of its text and of the captions of its pictures.
    pub fn with_note(self, note: Option<String>) -> Report {
        Report { note, ..self }
    }

    /// Returns the targets that the function is not compiled for, with the features that they lack.
    pub fn lacks(&self) -> &[Lack] {
        &self.lacks
    }

    /// Name of the function.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Names of the dims that can be given extents.
    pub fn dims(&self) -> &[String] {
        &self.symbols
    }

    /// Number of kernels of the fused function. A call may launch more where rows are split.
    pub fn kernels(&self) -> usize {
        self.costs_of_first().len()
    }

    /// Number of kernels that a call launches; none until all extents are given.
    pub fn launches(&self) -> Option<usize> {
        self.bound().map(|_| self.costs_of_first().iter().map(|cost| cost.launches).sum())
    }

    /// Number of kernels without fusion.
    pub fn ops(&self) -> usize {
        self.sections().first().map_or(0, |section| section.summary.ops as usize)
    }

    /// Bytes of tensors that a call's kernels read and write, by `Launch::bytes`; none until all extents are
    /// given, or on overflow.
    pub fn bytes(&self) -> Option<u64> {
        self.bound().and_then(|_| self.value(&total(&self.costs_of_first())))
    }

    /// Bytes read and written without fusion; none if a dim in the formula has no extent, or on overflow.
    pub fn unfused_bytes(&self) -> Option<u64> {
        self.value(&self.summaries[0].unfused_bytes)
    }

    /// Peak bytes of temporaries during a call, partial results of split rows included; none until all
    /// extents are given, or on overflow.
    pub fn peak_temporary_bytes(&self) -> Option<u64> {
        self.bound().and_then(|_| self.most(&alive(&self.costs_of_first())))
    }

    /// `bytes` as a formula of the dims without extents, for a call with the fewest launches.
    pub fn bytes_formula(&self) -> String {
        self.formula(&total(&self.costs_of_first()))
    }

    /// `unfused_bytes` as a formula of the dims without extents.
    pub fn unfused_bytes_formula(&self) -> String {
        self.formula(&self.summaries[0].unfused_bytes)
    }

    /// `peak_temporary_bytes` as a formula of the dims without extents, for a call with the fewest launches.
    /// If the maximum has too many terms, the formula is the one that is largest where all dims are equal.
    pub fn peak_temporary_bytes_formula(&self) -> String {
        self.most_formula(&alive(&self.costs_of_first()))
    }

    /// Groups the programs with the same numbers, in order.
    fn sections(&self) -> Vec<Section<'_>> {
        let mut sections: Vec<Section<'_>> = Vec::new();
        for summary in &self.summaries {
            let first = sections.len();
            for run in self.runs.iter().filter(|run| summary.programs.contains(&run.place)) {
                let costs = self.costs(run);
                match sections[first..].iter_mut().find(|known| self.is_same(&known.costs, &costs)) {
                    Some(known) => known.runs.push(run),
                    None => sections.push(Section { summary, runs: vec![run], costs }),
                }
            }
        }
        sections
    }

    fn is_same(&self, left: &[Cost], right: &[Cost]) -> bool {
        let key = |cost: &Cost| {
            let amounts = [&cost.bytes, &cost.alive].map(|amount| self.terms(amount));
            (cost.launches, cost.launches_max, amounts)
        };
        left.iter().map(key).eq(right.iter().map(key))
    }

    /// Returns the cost of each step on the first target.
    fn costs_of_first(&self) -> Vec<Cost> {
        self.runs.first().map(|run| self.costs(run)).unwrap_or_default()
    }

    /// Returns all extents, once all are given.
    fn bound(&self) -> Option<Vec<i64>> {
        self.extents.iter().copied().collect()
    }

    /// Gives a dim its extent.
    ///
    /// # Errors
    /// If the function does not have the dim, or the extent takes more than 63 bits.
    pub fn bind(&mut self, dim: &str, extent: usize) -> Result<(), BindError> {
        let symbol = self.symbols.iter().position(|symbol| symbol == dim).ok_or(BindError::UnknownDim)?;
        self.extents[symbol] = Some(i64::try_from(extent).map_err(|_| BindError::TooLarge)?);
        Ok(())
    }

    /// Evaluates a formula, if all its dims have extents.
    fn eval(&self, formula: &DimExpr) -> Option<i64> {
        let given = |symbol: u16| self.extents.get(usize::from(symbol)).is_some_and(Option::is_some);
        if !formula.symbols().all(given) {
            return None;
        }
        let extents: Vec<i64> = self.extents.iter().map(|extent| extent.unwrap_or_default()).collect();
        formula.eval(&extents)
    }

    /// Evaluates a number of bytes, if all its dims have extents.
    fn value(&self, formula: &DimExpr) -> Option<u64> {
        self.eval(formula).and_then(|bytes| u64::try_from(bytes).ok())
    }

    fn terms(&self, formula: &DimExpr) -> Option<Terms> {
        Terms::of(formula, &self.symbols, &self.extents)
    }

    fn formula(&self, formula: &DimExpr) -> String {
        self.terms(formula).map_or_else(|| formula.display(&self.symbols).to_string(), |terms| terms.text())
    }

    /// Formats a number of bytes, or its formula if it is not known.
    fn amount(&self, formula: &DimExpr) -> String {
        self.value(formula).map_or_else(|| format!("{} bytes", self.formula(formula)), size)
    }

    /// Formats a number of bytes, or its formula, short enough for tables.
    fn brief(&self, formula: &DimExpr) -> String {
        self.value(formula).map_or_else(|| format!("{} B", self.formula(formula)), size)
    }

    /// Formats the bytes that fusion saves.
    fn saved(&self, section: &Section<'_>) -> String {
        let (before, after) = (&section.summary.unfused_bytes, &total(&section.costs));
        if let (Some(before), Some(after)) = (self.value(before), self.value(after)) {
            return size(before.saturating_sub(after));
        }
        let terms = self.terms(before).zip(self.terms(after));
        match terms.and_then(|(before, after)| before.minus(&after)) {
            Some(saved) if saved == Terms::default() => size(0),
            Some(saved) => format!("{} bytes of", saved.text()),
            None => format!("{} - ({}) bytes of", self.formula(before), self.formula(after)),
        }
    }

    /// Returns the largest of these amounts; none if a dim in the amounts has no extent.
    fn most(&self, amounts: &[DimExpr]) -> Option<u64> {
        amounts.iter().map(|bytes| self.value(bytes)).try_fold(0, |most, bytes| Some(most.max(bytes?)))
    }

    /// Formats the largest of these amounts as a formula.
    fn most_formula(&self, amounts: &[DimExpr]) -> String {
        let mut largest: Vec<Terms> = Vec::new();
        for terms in amounts.iter().filter_map(|amount| self.terms(amount)) {
            if !largest.iter().any(|known| known.covers(&terms)) {
                largest.retain(|known| !terms.covers(known));
                largest.push(terms);
            }
        }
        let all = largest.iter().map(Terms::text).collect::<Vec<_>>().join(", ");
        match &largest[..] {
            [] => "0".into(),
            [_] => all,
            [..] if all.len() <= FORMULA_MAX => format!("max({all})"),
            [..] => {
                let most = largest.iter().max_by(|a, b| a.weight().total_cmp(&b.weight()));
                most.map(Terms::text).unwrap_or_default()
            }
        }
    }
}

/// Largest number of characters of a formula that is worth reading.
const FORMULA_MAX: usize = 60;

/// Returns the bytes that all steps move.
fn total(costs: &[Cost]) -> DimExpr {
    sum(costs.iter().map(|cost| cost.bytes.clone()))
}

/// Returns the bytes of temporaries during each step.
fn alive(costs: &[Cost]) -> Vec<DimExpr> {
    costs.iter().map(|cost| cost.alive.clone()).collect()
}

impl Section<'_> {
    /// Returns the name of a tensor, numbered if several results or temporaries have the same name.
    fn name(&self, number: u16) -> String {
        let arrays = &self.summary.arrays;
        let array = &arrays[usize::from(number)];
        let alike = |kind: fn(&ArrayKind) -> bool| {
            arrays.iter().enumerate().filter(move |(_, other)| kind(&other.kind) && other.name == array.name)
        };
        let returned = |kind: &ArrayKind| matches!(kind, ArrayKind::Returned(_));
        let temporary = |kind: &ArrayKind| *kind == ArrayKind::Temporary;
        match array.kind {
            ArrayKind::Returned(i) if alike(returned).count() > 1 => format!("{}.{i}", array.name),
            ArrayKind::Temporary if alike(temporary).count() > 1 => {
                let place = alike(temporary).take_while(|(i, _)| *i < usize::from(number)).count();
                format!("{} #{}", array.name, place + 1)
            }
            ArrayKind::Param | ArrayKind::InPlace | ArrayKind::Returned(_) | ArrayKind::Temporary => {
                array.name.to_string()
            }
        }
    }

    fn array(&self, number: u16) -> &Array {
        &self.summary.arrays[usize::from(number)]
    }

    /// Names of the section's targets.
    fn targets(&self) -> String {
        names(self.runs.iter().map(|run| &run.name))
    }

    /// Describes the variants of a kernel, once for all targets with the same kinds.
    fn variants(&self, group: &GroupSummary) -> Vec<String> {
        let mut alike: Vec<(&VariantSummary, Vec<&Text>)> = Vec::new();
        for (place, variants) in self.summary.programs.iter().zip(group.variants.iter()) {
            let Some(run) = self.runs.iter().find(|run| run.place == *place) else { continue };
            match alike.iter_mut().find(|(known, _)| known.kinds == variants.kinds) {
                Some((_, names)) => names.push(&run.name),
                None => alike.push((variants, vec![&run.name])),
            }
        }
        let line = |(variants, of): &(&VariantSummary, Vec<&Text>)| {
            format!("{}: {}", names(of.iter().copied()), variants.kinds.join(", "))
        };
        alike.iter().map(line).collect()
    }
}

fn names<'r>(names: impl Iterator<Item = &'r Text>) -> String {
    names.map(|name| &**name).collect::<Vec<_>>().join(", ")
}

/// Lists the operations of a kernel, each once with its count. A kernel without operations is a copy or a
/// fill.
fn work(group: &GroupSummary) -> Vec<String> {
    match (group.ops.is_empty(), group.reads.is_empty()) {
        (true, false) => return vec!["copy".into()],
        (true, true) => return vec!["fill".into()],
        (false, _) => {}
    }
    let mut counts: Vec<(&Text, usize)> = Vec::new();
    for op in group.ops.iter() {
        match counts.iter_mut().find(|(known, _)| *known == op) {
            Some((_, count)) => *count += 1,
            None => counts.push((op, 1)),
        }
    }
    let times =
        |(op, count): (&Text, usize)| if count == 1 { op.to_string() } else { format!("{op}×{count}") };
    counts.into_iter().map(times).collect()
}

/// Formats a number of bytes for people. Units are powers of 1024.
fn size(bytes: u64) -> String {
    let units = ["KB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let power = bytes.ilog2() / 10;
    let unit = units[power as usize - 1];
    format!("{:.1}{unit}", bytes as f64 / (1u64 << (10 * power)) as f64)
}

#[cfg(test)]
mod tests;
