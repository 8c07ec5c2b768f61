//! The report as text for terminals: a line of totals, a table of kernels, and why there are not fewer.

use std::fmt;

use super::table::{Cell, TIE, table};
use super::{Report, Section, size, variants, work};
use crate::ir::dim::DimExpr;
use crate::ir::plan::{ArrayKind, Boundary, GroupSummary, Traffic};

/// Columns of the page, unless the format says how many: `{report:80}`.
const WIDTH: usize = 120;
const HEADER: [&str; 7] = ["group", "hero", "ops", "reads", "writes", "temporaries", "variants"];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = f.width().unwrap_or(WIDTH);
        let mut lines = Vec::new();
        for (i, section) in self.sections.iter().enumerate() {
            if i > 0 {
                lines.push(String::new());
            }
            lines.extend(self.lines(section, width));
        }
        f.write_str(&lines.join("\n"))
    }
}

impl Report {
    /// The totals of a section in a line.
    pub(super) fn totals(&self, section: &Section) -> String {
        let summary = &section.summary;
        let (ops, kernels) = (summary.ops as usize, summary.groups.len());
        // No ops can be one kernel still (a copy); that reduces nothing.
        let reduction = (ops.saturating_sub(kernels) * 100).checked_div(ops).unwrap_or_default();
        let what = if self.sections.len() > 1 { format!(" on {}", section.targets()) } else { String::new() };
        let saved = self.saved(summary);
        format!("Fusion{what}: {ops} → {kernels} kernels ({reduction}% reduction), {saved} memory saved")
    }

    /// What is moved, and what lives between kernels, in a line.
    pub(super) fn memory(&self, section: &Section) -> String {
        let summary = &section.summary;
        let (before, after) = (self.amount(&summary.unfused_bytes), self.amount(&summary.fused_bytes));
        let steps = Report::steps(section);
        let temporaries = match self.most(&steps) {
            Some(0) => "none".into(),
            Some(bytes) => format!("{} at most", size(bytes)),
            None => format!("{} bytes at most", self.most_formula(&steps)),
        };
        format!("Memory moved: {after} instead of {before}; temporaries: {temporaries}")
    }

    fn lines(&self, section: &Section, width: usize) -> Vec<String> {
        let summary = &section.summary;
        let mut lines = vec![self.totals(section), self.memory(section)];
        let groups = summary.groups.iter().enumerate();
        let rows: Vec<Vec<Cell>> = groups.map(|(i, group)| self.row(section, i, group)).collect();
        if !rows.is_empty() {
            lines.push(String::new());
            lines.extend(table(&HEADER, &rows, width));
        }
        if !summary.boundaries.is_empty() {
            let rows: Vec<Vec<Cell>> =
                summary.boundaries.iter().map(|one| boundary_row(section, one)).collect();
            lines.extend([String::new(), "Not fused:".to_owned()]);
            let rows = table(&[], &rows, width.saturating_sub(2));
            lines.extend(rows.into_iter().map(|line| format!("  {line}")));
        }
        lines
    }

    fn row(&self, section: &Section, i: usize, group: &GroupSummary) -> Vec<Cell> {
        let list = |moved: &[Traffic]| -> Cell {
            let tied = |text: String| text.replace(' ', &TIE.to_string());
            let line =
                |one: &Traffic| tied(format!("{} {}", section.name(one.array), self.brief(&one.bytes)));
            if moved.is_empty() { vec!["nothing".into()] } else { moved.iter().map(line).collect() }
        };
        let alive = section.temporaries.iter().filter_map(|one| Report::alive(one).into_iter().nth(i));
        let alive: Vec<DimExpr> = alive.collect();
        let temporaries = match self.most(&alive) {
            Some(0) => "none".into(),
            Some(bytes) => size(bytes),
            None => format!("{} B", self.most_formula(&alive)),
        };
        vec![
            vec![group.kernel.to_string()],
            vec![group.hero.to_string()],
            vec![work(group).join(" ")],
            list(&group.reads),
            list(&group.writes),
            vec![temporaries],
            variants(group),
        ]
    }
}

/// Where, what and why.
fn boundary_row(section: &Section, boundary: &Boundary) -> Vec<Cell> {
    let line = if boundary.line > 0 { place(boundary) } else { "-".into() };
    let how = match section.array(boundary.array).kind {
        ArrayKind::Temporary => "is stored:",
        ArrayKind::Param | ArrayKind::InPlace | ArrayKind::Returned(_) => "has a kernel of its own:",
    };
    let what = format!("`{}` {how}", section.name(boundary.array));
    vec![vec![line], vec![format!("{what} {}", boundary.reason)]]
}

/// In the user's source, as compilers write it.
pub(super) fn place(boundary: &Boundary) -> String {
    format!("{}:{}", boundary.line, boundary.column)
}
