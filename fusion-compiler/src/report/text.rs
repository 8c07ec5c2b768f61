//! The report as text for terminals: a line of totals, a table of kernels, and the reasons for boundaries.

use std::fmt;

use super::costs::VariantCosts;
use super::table::{Cell, TIE, table};
use super::terms::Terms;
use super::{FORMULA_MAX, Report, Section, alive, names, size, total, work};
use crate::ir::dim::DimExpr;
use crate::ir::graph::Math;
use crate::ir::plan::{ArrayKind, Boundary, GroupSummary, Text, Traffic};

/// Columns of the page, unless the format gives a width: `{report:80}`.
const WIDTH: usize = 120;
const HEADER: [&str; 7] = ["group", "hero", "ops", "reads", "writes", "temporaries", "variants"];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = f.width().unwrap_or(WIDTH);
        let (mut lines, sections) = (Vec::new(), self.sections());
        for (i, section) in sections.iter().enumerate() {
            if i > 0 {
                lines.push(String::new());
            }
            lines.extend(self.lines(section, sections.len() > 1, width));
        }
        lines.extend(self.note.clone());
        f.write_str(&lines.join("\n"))
    }
}

impl Report {
    /// Formats the totals of a section in one line.
    pub(super) fn totals(&self, section: &Section<'_>, several: bool) -> String {
        let ops = section.summary.ops as usize;
        // A function without operations is still one kernel, a copy, with a reduction of 0.
        let reduction = |kernels| (ops.saturating_sub(kernels) * 100).checked_div(ops).unwrap_or_default();
        let fewest: usize = section.costs.iter().map(|cost| cost.launches).sum();
        let most: usize = section.costs.iter().map(|cost| cost.launches_max).sum();
        let range =
            |from: usize, to: usize| if from == to { to.to_string() } else { format!("{from}–{to}") };
        let (kernels, reduction) = (range(fewest, most), range(reduction(most), reduction(fewest)));
        let what = if several { format!(" on {}", section.targets()) } else { String::new() };
        let saved = self.saved(section);
        format!("Fusion{what}: {ops} → {kernels} kernels ({reduction}% reduction), {saved} memory saved")
    }

    /// Formats the bytes moved and the bytes of temporaries in one line.
    pub(super) fn memory(&self, section: &Section<'_>) -> String {
        let (before, after) = (&section.summary.unfused_bytes, &total(&section.costs));
        let (before, after) = (self.amount(before), self.amount(after));
        let steps = alive(&section.costs);
        let temporaries = match self.most(&steps) {
            Some(0) => "none".into(),
            Some(bytes) => format!("{} at most", size(bytes)),
            None => format!("{} bytes at most", self.most_formula(&steps)),
        };
        let math = match section.summary.math {
            Math::Accurate => "",
            Math::Fast => "; fast math",
            Math::Strict => "; strict",
        };
        format!("Memory moved: {after} instead of {before}; temporaries: {temporaries}{math}")
    }

    fn lines(&self, section: &Section<'_>, several: bool, width: usize) -> Vec<String> {
        let summary = section.summary;
        let mut lines = vec![self.totals(section, several), self.memory(section)];
        let groups = summary.groups.iter().enumerate();
        let rows: Vec<Vec<Cell>> = groups.map(|(i, group)| self.row(section, i, group)).collect();
        if !rows.is_empty() {
            lines.push(String::new());
            lines.extend(table(&HEADER, &rows, width));
        }
        let mut list = |title: &str, rows: Vec<Vec<Cell>>| {
            if !rows.is_empty() {
                lines.extend([String::new(), title.to_owned()]);
                let rows = table(&[], &rows, width.saturating_sub(2));
                lines.extend(rows.into_iter().map(|line| format!("  {line}")));
            }
        };
        let products = |group: &GroupSummary| {
            let line = |one: &Text| vec![vec![group.kernel.to_string()], vec![one.to_string()]];
            group.products.iter().map(line).collect::<Vec<Vec<Cell>>>()
        };
        list("Products:", summary.groups.iter().flat_map(products).collect());
        list("Not fused:", summary.boundaries.iter().map(|one| boundary_row(section, one)).collect());
        list("Variants, of which a call runs the first whose conditions hold:", self.variant_rows(section));
        lines
    }

    fn row(&self, section: &Section<'_>, i: usize, group: &GroupSummary) -> Vec<Cell> {
        let list = |moved: &[Traffic]| -> Cell {
            let tied = |text: String| text.replace(' ', &TIE.to_string());
            let line =
                |one: &Traffic| tied(format!("{} {}", section.name(one.array), self.brief(&one.bytes)));
            if moved.is_empty() { vec!["nothing".into()] } else { moved.iter().map(line).collect() }
        };
        let alive: Vec<_> = section.costs.get(i).map(|cost| cost.alive.clone()).into_iter().collect();
        let temporaries = match self.most(&alive) {
            Some(0) => "none".into(),
            Some(bytes) => size(bytes),
            None => format!("{} B", self.most_formula(&alive)),
        };
        let cost = section.costs.get(i).filter(|_| self.bound().is_some());
        let call =
            cost.map(|cost| format!("{}, {} moved", launches(cost.launches), self.amount(&cost.bytes)));
        vec![
            vec![group.kernel.to_string()],
            vec![group.hero.to_string()],
            vec![work(group).join(" ")],
            list(&group.reads),
            list(&group.writes),
            vec![temporaries],
            call.into_iter().chain(section.variants(group)).collect(),
        ]
    }

    /// Returns the rows of the list of variants: the kernels whose variants differ in cost, with the targets,
    /// costs and conditions.
    fn variant_rows(&self, section: &Section<'_>) -> Vec<Vec<Cell>> {
        if self.bound().is_some() {
            return vec![];
        }
        let groups = section.summary.groups.iter().enumerate();
        let row = |(i, group): (usize, &GroupSummary)| {
            let mut alike: Vec<(Vec<&Text>, Vec<String>)> = Vec::new();
            for run in &section.runs {
                let Some(step) = run.program.steps.get(i) else { continue };
                let variants = self.variant_costs(step, &run.program.temporaries);
                let texts: Vec<String> = variants.iter().map(|variant| self.variant(variant)).collect();
                match alike.iter_mut().find(|(_, known)| *known == texts) {
                    Some((names, _)) => names.push(&run.name),
                    None => alike.push((vec![&run.name], texts)),
                }
            }
            let cell = |(of, texts): (Vec<&Text>, Vec<String>)| {
                let of = names(of.into_iter());
                let tied = |text: String| {
                    ['≤', '≥'].into_iter().fold(text, |text, sign| {
                        text.replace(&format!(" {sign} "), &format!("{TIE}{sign}{TIE}"))
                    })
                };
                texts.into_iter().map(move |text| format!("{of}: {}", tied(text)))
            };
            vec![vec![group.kernel.to_string()], alike.into_iter().flat_map(cell).collect()]
        };
        groups.map(row).filter(|row| !row[1].is_empty()).collect()
    }

    pub(super) fn variant(&self, variant: &VariantCosts<'_>) -> String {
        let passed_on = match (self.value(&variant.passed_on), self.short(&variant.passed_on)) {
            (Some(0), _) => String::new(),
            (_, (Some(amount), _)) => format!(", {amount} of temporaries"),
            (_, (None, _)) => ", temporaries for parts".into(),
        };
        let moved = match self.short(&variant.bytes) {
            (Some(amount), Shown::All) => format!(", {amount} moved"),
            (Some(amount), Shown::Part) => format!(", {amount} and what parts pass on moved"),
            (None, _) => String::new(),
        };
        let when: Vec<String> = variant.when.iter().map(|condition| self.condition(condition)).collect();
        let when = if when.is_empty() { "otherwise".into() } else { format!("where {}", when.join(" and ")) };
        format!("{}{moved}{passed_on}, {when}", launches(variant.launches))
    }

    /// Formats an amount, without its quotients if it is too long with them.
    fn short(&self, amount: &DimExpr) -> (Option<String>, Shown) {
        let whole = self.amount(amount);
        match self.terms(amount).map(|terms| (terms.without_quotients(), terms)) {
            Some((short, terms)) if whole.chars().count() > FORMULA_MAX && short != terms => {
                let text = (short != Terms::default()).then(|| format!("{} bytes", short.text()));
                (text, Shown::Part)
            }
            Some(_) | None => (Some(whole), Shown::All),
        }
    }
}

/// Extent to which a formula is shown.
enum Shown {
    All,
    Part,
}

fn launches(count: usize) -> String {
    if count == 1 { "1 launch".into() } else { format!("{count} launches") }
}

/// Returns the position, the tensor and the reason of a boundary.
fn boundary_row(section: &Section<'_>, boundary: &Boundary) -> Vec<Cell> {
    let line = if boundary.line > 0 { place(boundary) } else { "-".into() };
    let how = match section.array(boundary.array).kind {
        ArrayKind::Temporary => "is stored:",
        ArrayKind::Param | ArrayKind::InPlace | ArrayKind::Returned(_) => "has a kernel of its own:",
    };
    let what = format!("`{}` {how}", section.name(boundary.array));
    vec![vec![line], vec![format!("{what} {}", boundary.reason)]]
}

/// Formats a position in the user's source, as compilers do.
pub(super) fn place(boundary: &Boundary) -> String {
    format!("{}:{}", boundary.line, boundary.column)
}
