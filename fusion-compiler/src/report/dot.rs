//! The report for Graphviz: kernels as boxes, tensors between them, and the reasons for boundaries on the
//! edges.
//!
//! Invariant: the text is a valid graph of the DOT language, whatever characters a name contains.

use std::fmt::Write;

use super::table::wrap;
use super::text::place;
use super::{Report, Section, work};
use crate::ir::plan::{ArrayKind, Boundary, Traffic};

/// Characters of a line, in a box and on an edge.
const BOX: usize = 48;
const EDGE: usize = 36;

impl Report {
    /// Returns the report as a graph of the DOT language, for `dot -Tsvg`.
    pub fn to_dot(&self) -> String {
        let mut out = format!("digraph {} {{\n", quoted(&self.name));
        out.push_str("  graph [rankdir=TB, labelloc=t, fontname=\"monospace\", nodesep=0.4, ranksep=0.5];\n");
        out.push_str("  node [fontname=\"monospace\", fontsize=11, style=filled, color=\"#57606a\", fillcolor=\"#f6f8fa\"];\n");
        out.push_str("  edge [fontname=\"monospace\", fontsize=10, color=\"#57606a\"];\n");
        let sections = self.sections();
        if let [section] = &sections[..] {
            let _ = writeln!(out, "  label={};", quoted(&self.caption(section, false).join("\n")));
        }
        for (i, section) in sections.iter().enumerate() {
            self.graph(&mut out, (i, sections.len() > 1), section);
        }
        out.push_str("}\n");
        out
    }

    /// Returns the lines above the kernels of a section: the name, the totals, the memory, and the note.
    pub(super) fn caption(&self, section: &Section<'_>, several: bool) -> Vec<String> {
        let lines = [self.name.to_string(), self.totals(section, several), self.memory(section)];
        lines.into_iter().chain(self.note.clone()).collect()
    }

    /// Writes the kernels and tensors of a section. One of several sections gets a frame.
    fn graph(&self, out: &mut String, (i, several): (usize, bool), section: &Section<'_>) {
        if several {
            let title = quoted(&self.caption(section, several).join("\n"));
            let _ = writeln!(out, "  subgraph \"cluster_{i}\" {{\n  label={title};");
        }
        for (number, _) in section.summary.arrays.iter().enumerate() {
            let _ = writeln!(out, "  a{i}_{number} {};", self.array_node(section, number as u16));
        }
        for (number, group) in section.summary.groups.iter().enumerate() {
            let _ =
                writeln!(out, "  k{i}_{number} {};", kernel_node(&self.kernel_lines(section, number, BOX)));
            for &Traffic { array, .. } in group.reads.iter() {
                let why = section.boundary(array).filter(|_| section.is_temporary(array));
                let attributes = why.map(dashed).unwrap_or_default();
                let _ = writeln!(out, "  a{i}_{array} -> k{i}_{number}{attributes};");
            }
            for &Traffic { array, .. } in group.writes.iter() {
                let why = section.boundary(array).filter(|_| !section.is_temporary(array));
                let attributes = why.map(dashed).unwrap_or_default();
                let _ = writeln!(out, "  k{i}_{number} -> a{i}_{array}{attributes};");
            }
        }
        if several {
            out.push_str("  }\n");
        }
    }

    /// Returns the lines of a kernel's box, wrapped at `width` between words.
    pub(super) fn kernel_lines(&self, section: &Section<'_>, number: usize, width: usize) -> Vec<String> {
        let group = &section.summary.groups[number];
        let moved = section.costs.get(number).map(|cost| format!("{} moved", self.amount(&cost.bytes)));
        let texts = [group.kernel.to_string(), group.hero.to_string(), work(group).join(" ")];
        let texts = texts.into_iter().chain(moved).chain(section.variants(group));
        texts.flat_map(|text| wrap(&text, width)).collect()
    }

    /// Returns the lines of a tensor's box.
    pub(super) fn array_lines(&self, section: &Section<'_>, number: u16) -> Vec<String> {
        let array = section.array(number);
        vec![section.name(number), array.shape.to_string(), self.amount(&array.bytes)]
    }

    fn array_node(&self, section: &Section<'_>, number: u16) -> String {
        let look = match section.array(number).kind {
            ArrayKind::Param => "shape=ellipse",
            ArrayKind::InPlace | ArrayKind::Returned(_) => "shape=ellipse, fillcolor=\"#dafbe1\"",
            ArrayKind::Temporary => "shape=note, fillcolor=\"#fff8c5\"",
        };
        format!("[{look}, fontcolor=black, label={}]", quoted(&self.array_lines(section, number).join("\n")))
    }
}

impl Section<'_> {
    /// Returns the reason why a tensor is stored between kernels, or why a result has a kernel of its own.
    pub(super) fn boundary(&self, array: u16) -> Option<&Boundary> {
        self.summary.boundaries.iter().find(|boundary| boundary.array == array)
    }

    fn is_temporary(&self, array: u16) -> bool {
        self.array(array).kind == ArrayKind::Temporary
    }
}

/// Formats a reason with its position in the source.
pub(super) fn reason(boundary: &Boundary) -> String {
    if boundary.line == 0 {
        boundary.reason.to_string()
    } else {
        format!("{} ({})", boundary.reason, place(boundary))
    }
}

fn kernel_node(lines: &[String]) -> String {
    let label = quoted(&lines.join("\n"));
    format!(
        "[shape=box, fontcolor=black, fillcolor=\"#ddf4ff\", color=\"#0969da\", penwidth=1.5, label={label}]"
    )
}

fn dashed(boundary: &Boundary) -> String {
    format!(" [style=dashed, label={}]", quoted(&wrap(&reason(boundary), EDGE).join("\n")))
}

/// Quotes a string of the DOT language. Labels use the escapes of the language.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
