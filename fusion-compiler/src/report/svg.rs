//! The report as a picture: one self-contained SVG file with a background, light or dark as the viewer
//! prefers.
//!
//! Invariant: the XML is well-formed whatever characters a name contains, and boxes are as wide as their
//! texts in a monospaced font.

use std::fmt::Write;

use super::dot::reason;
use super::layout::{Drawing, Point, layered};
use super::table::{count, wrap};
use super::{Report, Section};
use crate::ir::plan::ArrayKind;

/// Width of a character at 12 pixels: 7.2 in most monospaced fonts, and a margin.
const CHAR: f64 = 7.35;
const LINE: f64 = 16.0;
const PAD: f64 = 10.0;
const MARGIN: f64 = 24.0;
/// Length of an arrow head.
const HEAD: f64 = 8.0;
/// Characters of a line, in a kernel's box and in a tensor's.
const KERNEL: usize = 56;
const TENSOR: usize = 34;

/// Colours by class. Viewers with a dark theme use the second set.
const STYLE: &str = "\
text { font: 12px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #1f2328; white-space: pre }
.bold { font-weight: bold }
.dim { fill: #57606a }
.page { fill: #ffffff }
.kernel { fill: #ddf4ff; stroke: #0969da; stroke-width: 1.5 }
.param { fill: #f6f8fa; stroke: #8c959f }
.result { fill: #dafbe1; stroke: #1a7f37 }
.temporary { fill: #fff8c5; stroke: #9a6700 }
.arrow { fill: none; stroke: #6e7781; stroke-width: 1.2 }
.head { fill: #6e7781 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.dim { fill: #9da7b3 }
.page { fill: #0d1117 }
.kernel { fill: #10294a; stroke: #58a6ff }
.param { fill: #21262d; stroke: #8b949e }
.result { fill: #12321c; stroke: #3fb950 }
.temporary { fill: #3a2d08; stroke: #d29922 }
.arrow { stroke: #8b949e }
.head { fill: #8b949e }
}
";

/// Rectangle with lines of text.
struct Rect {
    class: &'static str,
    lines: Vec<Line>,
}

struct Line {
    class: &'static str,
    text: String,
}

impl Report {
    /// Returns the report as an SVG picture.
    pub fn to_svg(&self) -> String {
        let mut body = String::new();
        let (mut width, mut y) = (0f64, MARGIN);
        let sections = self.sections();
        for section in &sections {
            let caption = self.caption(section, sections.len() > 1);
            for (i, line) in caption.iter().enumerate() {
                let class = ["bold", "", "dim", ""][i];
                text(&mut body, (MARGIN, y + LINE * (i as f64 + 0.75)), class, line);
                width = width.max(count(line) as f64 * CHAR);
            }
            y += caption.len() as f64 * LINE + MARGIN;
            let size = self.draw(&mut body, section, y);
            width = width.max(size.0);
            y += size.1 + MARGIN;
        }
        let (width, height) = (number(width + 2.0 * MARGIN), number(y));
        let title = escaped(&format!("Fused kernels of {}", self.name));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n\
             <defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\">\
             <path class=\"head\" d=\"M0,0 L8,4 L0,8 z\"/></marker></defs>\n\
             <rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n{body}</svg>\n"
        )
    }

    /// Draws the kernels and tensors of a section below `top`. Returns the size of the drawing.
    fn draw(&self, out: &mut String, section: &Section<'_>, top: f64) -> Point {
        let (rects, arrows) = self.rects(section);
        let sizes: Vec<Point> = rects.iter().map(size).collect();
        let Drawing { boxes, arrows, size } = layered(&sizes, &arrows);
        for points in arrows {
            path(out, &points, top);
        }
        for ((rect, at), (width, height)) in rects.iter().zip(boxes).zip(sizes) {
            let (x, y) = (at.0 + MARGIN, at.1 + top);
            let corner = if rect.class == "kernel" { 8 } else { 3 };
            let [left, upper, wide, high] = [x, y, width, height].map(number);
            let class = rect.class;
            let _ = writeln!(
                out,
                "<rect class=\"{class}\" x=\"{left}\" y=\"{upper}\" width=\"{wide}\" height=\"{high}\" rx=\"{corner}\"/>"
            );
            for (i, line) in rect.lines.iter().enumerate() {
                text(out, (x + PAD, y + PAD + LINE * (i as f64 + 0.75)), line.class, &line.text);
            }
        }
        size
    }

    /// Returns the tensors, then the kernels, and the arrows between them.
    fn rects(&self, section: &Section) -> (Vec<Rect>, Vec<(usize, usize)>) {
        let arrays = 0..section.summary.arrays.len() as u16;
        let mut rects: Vec<Rect> = arrays.map(|array| self.tensor(section, array)).collect();
        let mut arrows = Vec::new();
        for (i, group) in section.summary.groups.iter().enumerate() {
            let lines = self.kernel_lines(section, i, KERNEL).into_iter().enumerate();
            let class = |i: usize| if i == 0 { "bold" } else { "" };
            let lines = lines.map(|(i, text)| Line { class: class(i), text }).collect();
            let number = rects.len();
            rects.push(Rect { class: "kernel", lines });
            arrows.extend(group.reads.iter().map(|read| (usize::from(read.array), number)));
            arrows.extend(group.writes.iter().map(|write| (number, usize::from(write.array))));
        }
        (rects, arrows)
    }

    /// Returns a tensor's box, with the reason why the tensor is stored.
    fn tensor(&self, section: &Section<'_>, array: u16) -> Rect {
        let class = match section.array(array).kind {
            ArrayKind::Param => "param",
            ArrayKind::InPlace | ArrayKind::Returned(_) => "result",
            ArrayKind::Temporary => "temporary",
        };
        let lines = self.array_lines(section, array).into_iter().enumerate();
        let lines = lines.map(|(i, text)| Line { class: if i == 0 { "bold" } else { "" }, text });
        let why = section
            .boundary(array)
            .map(|boundary| wrap(&format!("not fused: {}", reason(boundary)), TENSOR))
            .unwrap_or_default();
        let why = why.into_iter().map(|text| Line { class: "dim", text });
        Rect { class, lines: lines.chain(why).collect() }
    }
}

fn size(rect: &Rect) -> Point {
    let chars = rect.lines.iter().map(|line| count(&line.text)).max().unwrap_or(0);
    (chars as f64 * CHAR + 2.0 * PAD, rect.lines.len() as f64 * LINE + 2.0 * PAD)
}

/// Draws an arrow: straight within layers and at its head, curved between layers.
fn path(out: &mut String, points: &[Point], top: f64) {
    let at = |(x, y): Point| format!("{},{}", number(x + MARGIN), number(y + top));
    let mut line = String::new();
    for (i, &point) in points.iter().enumerate() {
        let point = if i + 2 == points.len() { (point.0, point.1 - HEAD) } else { point };
        if i == 0 {
            let _ = write!(line, "M{}", at(point));
        } else if i.is_multiple_of(2) {
            let before = points[i - 1];
            let middle = (before.1 + point.1) / 2.0;
            let _ = write!(line, " C{} {} {}", at((before.0, middle)), at((point.0, middle)), at(point));
        } else {
            let _ = write!(line, " L{}", at(point));
        }
    }
    let _ = writeln!(out, "<path class=\"arrow\" d=\"{line}\" marker-end=\"url(#head)\"/>");
}

fn text(out: &mut String, (x, y): Point, class: &str, line: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let _ = writeln!(out, "<text{class} x=\"{}\" y=\"{}\">{}</text>", number(x), number(y), escaped(line));
}

/// Formats a coordinate with a precision of a tenth of a pixel.
fn number(x: f64) -> String {
    let text = format!("{x:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Escapes text for XML and replaces characters that XML does not allow.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
