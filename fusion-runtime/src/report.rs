//! The fusion report: what fused, what did not and why, and the bytes saved.
//!
//! Invariant: everything shown comes from the plan's summary; numbers appear once extents are given.

use std::fmt;

use fusion_compiler::ir::dim::DimExpr;
use fusion_compiler::ir::plan::{Code, GroupSummary, Summary, Text};

use crate::error::{Error, Result};
use crate::kernel::{Launch, Plan};

/// What was fused in a function.
///
/// Shown with `Display`: a line of totals, then the kernels and what lies between them. Bytes are formulas of the
/// dims until `bind` gives these.
#[derive(Clone, Debug)]
pub struct Report {
    name: Text,
    symbols: Vec<String>,
    /// Extents given so far, by symbol.
    extents: Vec<Option<i64>>,
    summary: Summary,
}

/// A kernel as its device gets it: a module with one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelText {
    /// Name of the entry point.
    pub name: &'static str,
    /// `"ptx"` or `"wgsl"`.
    pub language: &'static str,
    /// The module.
    pub text: &'static str,
}

/// The texts of a plan, in the order of its programs, steps and variants.
#[doc(hidden)]
pub fn kernels(plan: &'static Plan) -> Vec<KernelText> {
    let steps = plan.programs.iter().flat_map(|program| program.steps.iter());
    let launches = steps.flat_map(|step| step.variants.iter().flat_map(|variant| variant.launches.iter()));
    let text = |launch: &'static Launch| match &launch.code {
        Code::Ptx(text) => Some(KernelText { name: &launch.kernel, language: "ptx", text }),
        Code::Wgsl(text) => Some(KernelText { name: &launch.kernel, language: "wgsl", text }),
        Code::Cpu(_) => None,
    };
    launches.filter_map(text).collect()
}

impl Report {
    /// The report of a plan.
    pub fn new(plan: &Plan) -> Report {
        let symbols: Vec<String> = plan.symbols.iter().map(|symbol| symbol.to_string()).collect();
        Report {
            name: plan.name.clone(),
            extents: vec![None; symbols.len()],
            symbols,
            summary: plan.summary.clone(),
        }
    }

    /// Kernels of the fused function.
    pub fn kernels(&self) -> usize {
        self.summary.groups.len()
    }

    /// Kernels without fusion: one per operation.
    pub fn ops(&self) -> usize {
        self.summary.ops as usize
    }

    /// Bytes read and written by the fused kernels; nothing while an extent in it is not given, or it overflows.
    pub fn bytes(&self) -> Option<u64> {
        self.value(&self.summary.fused_bytes)
    }

    /// Bytes read and written without fusion; nothing while an extent in it is not given, or it overflows.
    pub fn unfused_bytes(&self) -> Option<u64> {
        self.value(&self.summary.unfused_bytes)
    }

    /// `bytes` as a formula of the dims.
    pub fn bytes_formula(&self) -> String {
        self.summary.fused_bytes.display(&self.symbols).to_string()
    }

    /// `unfused_bytes` as a formula of the dims.
    pub fn unfused_bytes_formula(&self) -> String {
        self.summary.unfused_bytes.display(&self.symbols).to_string()
    }

    /// The report with numbers for these dims: `report.bind(&[("N", 1024)])?`.
    ///
    /// # Errors
    /// `Error::UnknownDim` for a dim that the function does not have; `Error::InvalidExtent` for an extent beyond 63 bits.
    pub fn bind(mut self, extents: &[(&str, usize)]) -> Result<Report> {
        for &(dim, extent) in extents {
            let (function, name) = (|| self.name.to_string(), || dim.to_string());
            let Some(symbol) = self.symbols.iter().position(|symbol| symbol == dim) else {
                let known = self.symbols.join(", ");
                return Err(Error::UnknownDim { function: function(), dim: name(), known });
            };
            let Ok(extent) = i64::try_from(extent) else {
                return Err(Error::InvalidExtent { function: function(), dim: name() });
            };
            self.extents[symbol] = Some(extent);
        }
        Ok(self)
    }

    /// The value of a formula, if all its dims are given.
    fn value(&self, formula: &DimExpr) -> Option<u64> {
        let given = |symbol: u16| self.extents.get(usize::from(symbol)).is_some_and(Option::is_some);
        if !formula.symbols().all(given) {
            return None;
        }
        let extents: Vec<i64> = self.extents.iter().map(|extent| extent.unwrap_or_default()).collect();
        formula.eval(&extents).and_then(|bytes| u64::try_from(bytes).ok())
    }

    /// A number of bytes if it is known, else its formula.
    fn amount(&self, formula: &DimExpr) -> String {
        match self.value(formula) {
            Some(bytes) => size(bytes),
            None => format!("{} bytes", formula.display(&self.symbols)),
        }
    }

    fn saved(&self) -> String {
        let (before, after) = (&self.summary.unfused_bytes, &self.summary.fused_bytes);
        match (self.value(before), self.value(after)) {
            (Some(before), Some(after)) => format!("{} memory saved", size(before.saturating_sub(after))),
            _ => format!(
                "{} → {} bytes of memory moved",
                before.display(&self.symbols),
                after.display(&self.symbols)
            ),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ops, kernels) = (self.ops(), self.kernels());
        // No ops can be one kernel still (a copy); that reduces nothing.
        let reduction = (ops.saturating_sub(kernels) * 100).checked_div(ops).unwrap_or_default();
        write!(f, "Fusion: {ops} → {kernels} kernels ({reduction}% reduction), {}", self.saved())?;
        for group in self.summary.groups.iter() {
            write!(f, "\n  {} [{}, {}]: {}", group.kernel, group.schedule, space(&group.space), work(group))?;
            let reads = if group.reads.is_empty() { "nothing".into() } else { group.reads.join(", ") };
            let (writes, bytes) = (group.writes.join(", "), self.amount(&group.bytes));
            write!(f, "\n    reads {reads}; writes {writes}; {bytes}")?;
        }
        for boundary in self.summary.boundaries.iter() {
            write!(f, "\n  `{}` is stored apart: {}", boundary.value, boundary.reason)?;
            if boundary.line > 0 {
                write!(f, " (line {}:{})", boundary.line, boundary.column)?;
            }
        }
        Ok(())
    }
}

/// What a kernel does. One without operations still moves something.
fn work(group: &GroupSummary) -> String {
    match (group.ops.is_empty(), group.reads.is_empty()) {
        (false, _) => group.ops.join(" "),
        (true, false) => "copy".into(),
        (true, true) => "fill".into(),
    }
}

/// The dims that a kernel runs through.
fn space(dims: &str) -> &str {
    if dims == "[]" { "one element" } else { dims }
}

/// A number of bytes, as people read it; units are powers of 1024.
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
mod tests {
    use std::borrow::Cow::{Borrowed, Owned};

    use fusion_compiler::ir::plan::Boundary;

    use super::*;

    fn plan(groups: usize) -> Plan {
        let n = DimExpr::sym(0);
        let group = GroupSummary {
            kernel: Borrowed("f_0"),
            schedule: Borrowed("pointwise"),
            ops: Owned(vec![Borrowed("add"), Borrowed("relu")]),
            space: Borrowed("N"),
            reads: Owned(vec![Borrowed("a"), Borrowed("b")]),
            writes: Owned(vec![Borrowed("f")]),
            bytes: DimExpr::constant(12) * n.clone(),
        };
        let boundary = Boundary { value: Borrowed("t"), reason: Borrowed("used twice"), line: 3, column: 9 };
        Plan {
            name: Borrowed("f"),
            symbols: Owned(vec![Borrowed("N")]),
            params: Borrowed(&[]),
            nonempty: Borrowed(&[]),
            products: Borrowed(&[]),
            sums: Borrowed(&[]),
            outputs: Borrowed(&[]),
            programs: Borrowed(&[]),
            summary: Summary {
                ops: 10,
                unfused_bytes: DimExpr::constant(76) * n.clone(),
                fused_bytes: DimExpr::constant(12) * n,
                groups: Owned(vec![group; groups]),
                boundaries: Owned(vec![boundary; groups - 1]),
            },
        }
    }

    #[test]
    fn numbers_once_the_dims_are_given() {
        let report = Report::new(&plan(1)).bind(&[("N", 1024)]).unwrap();
        assert_eq!((report.unfused_bytes(), report.bytes()), (Some(76 * 1024), Some(12 * 1024)));
        assert_eq!(
            report.to_string(),
            "Fusion: 10 → 1 kernels (90% reduction), 64.0KB memory saved\n  \
             f_0 [pointwise, N]: add relu\n    reads a, b; writes f; 12.0KB"
        );
    }

    #[test]
    fn formulas_until_then() {
        let report = Report::new(&plan(2));
        assert_eq!((report.kernels(), report.ops(), report.bytes()), (2, 10, None));
        let text = report.to_string();
        assert!(
            text.starts_with("Fusion: 10 → 2 kernels (80% reduction), 76*N → 12*N bytes of memory moved"),
            "{text}"
        );
        assert!(text.ends_with("\n  `t` is stored apart: used twice (line 3:9)"), "{text}");
    }

    #[test]
    fn kernels_without_operations_or_operands() {
        let shown = |ops: &'static [Text], reads: &'static [Text], space| {
            let mut plan = plan(1);
            let group = &mut plan.summary.groups.to_mut()[0];
            (group.ops, group.reads, group.space) = (Borrowed(ops), Borrowed(reads), Borrowed(space));
            Report::new(&plan).to_string().lines().skip(1).map(str::trim).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(
            shown(&[], &[Borrowed("a")], "[N]"),
            "f_0 [pointwise, [N]]: copy\nreads a; writes f; 12*N bytes"
        );
        assert_eq!(
            shown(&[], &[], "[]"),
            "f_0 [pointwise, one element]: fill\nreads nothing; writes f; 12*N bytes"
        );
        assert_eq!(
            shown(&[Borrowed("exp")], &[], "[N]"),
            "f_0 [pointwise, [N]]: exp\nreads nothing; writes f; 12*N bytes"
        );
    }

    #[test]
    fn dims_that_are_not_there_are_refused() {
        assert!(matches!(Report::new(&plan(1)).bind(&[("M", 1)]), Err(Error::UnknownDim { .. })));
    }

    #[test]
    fn sizes_for_people() {
        assert_eq!(
            [0, 1023, 1024, 1536, 1 << 30, u64::MAX].map(size),
            ["0B", "1023B", "1.0KB", "1.5KB", "1.0GB", "16.0EB"]
        );
    }
}
