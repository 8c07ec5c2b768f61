//! The fusion report in the public interface. The compiler renders it.
//!
//! Invariant: this module computes errors only.

use std::fmt;

use fusion_compiler::ir::plan::{Code, Lack};
use fusion_compiler::report::{self, BindError};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::kernel::{Launch, Plan};

/// The fusion report of a function: its kernels, and the reason for each kernel boundary.
///
/// `Display` prints a line of totals and a table with a row per kernel. Below the table stands a line for
/// each value stored between kernels and for each result with a kernel of its own. The line gives the reason
/// with line and column of the source. `{report:80}` is at most 80 columns wide if no word is longer,
/// `{report}` 120. Bytes are formulas of the dims until `bind` gives their extents.
#[derive(Clone, Debug)]
pub struct Report {
    report: report::Report,
}

/// The text of a kernel as its device receives it: a module with one entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelText {
    /// Name of the entry point.
    pub name: &'static str,
    /// Language of the text: `"ptx"` or `"wgsl"`.
    pub language: &'static str,
    /// The module.
    pub text: &'static str,
    /// Threads of a team, whose number decides those of a block. Above 32 a team is a block, smaller teams share one.
    pub team: u32,
    /// Bytes of shared memory that a launch sets, or none if they depend on the extents.
    pub shared_bytes: Option<u64>,
}

/// Returns the kernel texts of a plan, in the order of its programs, steps and variants.
#[doc(hidden)]
pub fn kernels(plan: &'static Plan) -> Vec<KernelText> {
    let steps = plan.programs.iter().flat_map(|program| program.steps.iter());
    let launches = steps.flat_map(|step| step.variants.iter().flat_map(|variant| variant.launches.iter()));
    let text = |launch: &'static Launch| {
        let (language, text) = match &launch.code {
            Code::Ptx(text) => ("ptx", text),
            Code::Wgsl(text) => ("wgsl", text),
            Code::Cpu(_) => return None,
        };
        let shared_bytes = launch.row_memory.as_const().and_then(|bytes| u64::try_from(bytes).ok());
        Some(KernelText { name: &launch.kernel, language, text, team: launch.team, shared_bytes })
    };
    launches.filter_map(text).collect()
}

impl Report {
    /// Returns the report of a plan.
    #[doc(hidden)]
    pub fn new(plan: &Plan) -> Report {
        Report { report: report::Report::new(plan) }
    }

    /// Returns the report with a note at its end, and in the captions of its pictures.
    #[cfg(feature = "graph")]
    pub(crate) fn with_note(self, note: Option<String>) -> Report {
        Report { report: self.report.with_note(note) }
    }

    /// Returns the number of kernels of the fused function.
    ///
    /// The number is that of the first of CUDA, wgpu and the CPU for which the function is compiled. Another
    /// target may need more kernels if it binds fewer buffers, and `Display` lists them. A long reduction may
    /// run as several launches: `launches` counts these.
    pub fn kernels(&self) -> usize {
        self.report.kernels()
    }

    /// Returns the number of launches of a call, or `None` while an extent is missing.
    ///
    /// A device that cannot bind a whole buffer runs a kernel in pieces. The pieces count as one launch.
    pub fn launches(&self) -> Option<usize> {
        self.report.launches()
    }

    /// Returns the number of kernels without fusion: one per operation.
    pub fn ops(&self) -> usize {
        self.report.ops()
    }

    /// Returns the bytes of tensors that the kernels of a call read and write, or `None` if an extent is
    /// missing or the number overflows.
    ///
    /// The call runs on the first of the function's targets with the usual limits of its devices, or on the
    /// device given to `on`. Data that a kernel reads twice counts twice. Partial results between the
    /// launches of a split reduction count too. Data shared by rows counts once, and so does a row that stays
    /// in the cache of a CPU thread.
    pub fn bytes(&self) -> Option<u64> {
        self.report.bytes()
    }

    /// Returns the bytes read and written without fusion, or `None` if an extent is missing or the number
    /// overflows.
    pub fn unfused_bytes(&self) -> Option<u64> {
        self.report.unfused_bytes()
    }

    /// Returns the peak of temporary memory during a call, in bytes, or `None` if an extent is missing or the
    /// peak overflows.
    ///
    /// The call is the call of `bytes`. Temporaries store values between kernels and partial results of split
    /// reductions. Memory of a dead temporary is reused by later ones.
    pub fn peak_temporary_bytes(&self) -> Option<u64> {
        self.report.peak_temporary_bytes()
    }

    /// Returns `bytes` as a formula of the missing dims, for a call with the fewest launches.
    ///
    /// `Display` lists the other variants of each kernel with their conditions.
    pub fn bytes_formula(&self) -> String {
        self.report.bytes_formula()
    }

    /// Returns `unfused_bytes` as a formula of the missing dims.
    pub fn unfused_bytes_formula(&self) -> String {
        self.report.unfused_bytes_formula()
    }

    /// Returns `peak_temporary_bytes` as a formula of the missing dims, for a call with the fewest launches.
    ///
    /// The formula is a `max(…)` if no term is always the largest. A `max` of too many terms is replaced by
    /// the term that is the largest for dims of 1024.
    pub fn peak_temporary_bytes_formula(&self) -> String {
        self.report.peak_temporary_bytes_formula()
    }

    /// Returns the report with numbers for these dims: `report.bind(&[("N", 1024)])?`.
    ///
    /// # Errors
    /// `Error::UnknownDim` for a dim that the function does not have; `Error::InvalidExtent` for an extent
    /// beyond 63 bits.
    pub fn bind(mut self, extents: &[(&str, usize)]) -> Result<Report> {
        for &(dim, extent) in extents {
            let refused = match self.report.bind(dim, extent) {
                Ok(()) => continue,
                Err(refused) => refused,
            };
            let (function, dim) = (self.report.name().to_owned(), dim.to_owned());
            return Err(match refused {
                BindError::UnknownDim => {
                    Error::UnknownDim { function, dim, known: self.report.dims().join(", ") }
                }
                BindError::TooLarge => Error::InvalidExtent { function, dim },
            });
        }
        Ok(self)
    }

    /// Returns the report for one device: its kernels, and the numbers of calls on it.
    ///
    /// # Errors
    /// `Error::Unsupported` if the function is not compiled for the device.
    pub fn on(mut self, device: &Device) -> Result<Report> {
        let target = device.0.target();
        if self.report.on(target, device.limits()) {
            return Ok(self);
        }
        Err(not_compiled(self.report.name(), self.report.lacks(), device))
    }

    /// Returns the report as a Graphviz graph, in the DOT language.
    ///
    /// Nodes are kernels. Edges are the tensors between them, with their bytes and the reason for the
    /// boundary.
    pub fn to_dot(&self) -> String {
        self.report.to_dot()
    }

    /// Returns the report as a picture: a self-contained SVG file with the graph of `to_dot`.
    pub fn to_svg(&self) -> String {
        self.report.to_svg()
    }
}

/// Returns the error for a function without kernels for a device.
pub(crate) fn not_compiled(function: &str, known: &[Lack], device: &Device) -> Error {
    let target = device.0.target();
    if let Some(lack) = known.iter().find(|lack| lack.target == target) {
        return lacks(function, lack, device);
    }
    let what = format!("`{function}`: it is not compiled for {} (see `#[fuse(targets(…))]`)", target.name());
    Error::Unsupported { device: device.to_string(), what }
}

/// Returns the error for a function that needs a feature which the target of a device lacks.
pub(crate) fn lacks(function: &str, Lack { target, what }: &Lack, device: &dyn fmt::Display) -> Error {
    let what = format!("`{function}`: it computes with {what}, which {} has not", target.name());
    Error::Unsupported { device: device.to_string(), what }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow::{Borrowed, Owned};

    use fusion_compiler::ir::dim::DimExpr;
    use fusion_compiler::ir::graph::Math;
    use fusion_compiler::ir::kernel::IndexWidth;
    use fusion_compiler::ir::plan::{LaunchSpec, Program, Space, Step, Summary, Target, Variant};

    use super::*;

    fn report() -> Report {
        let one = DimExpr::constant(1);
        let space = Space { rows: DimExpr::sym(0), cols: one.clone(), grain: 1, grain_min: 1, each: one };
        let bytes = DimExpr::constant(12) * DimExpr::sym(0);
        let spec = LaunchSpec { bytes, ..LaunchSpec::new("f_0", IndexWidth::Bits32, space) };
        let launch = Launch { code: Code::Wgsl(Borrowed("")), spec };
        let step =
            Step { variants: Owned(vec![Variant { when: Borrowed(&[]), launches: Owned(vec![launch]) }]) };
        Report::new(&Plan {
            name: Borrowed("f"),
            symbols: Owned(vec![Borrowed("N"), Borrowed("D")]),
            params: Borrowed(&[]),
            nonempty: Borrowed(&[]),
            splits: Borrowed(&[]),
            concats: Borrowed(&[]),
            outputs: Borrowed(&[]),
            programs: Owned(vec![Program {
                target: Target::Wgsl,
                temporaries: Borrowed(&[]),
                steps: Owned(vec![step]),
            }]),
            lacks: Owned(Vec::new()),
            summary: Summary {
                ops: 10,
                unfused_bytes: DimExpr::constant(76) * DimExpr::sym(0),
                math: Math::Accurate,
                arrays: Borrowed(&[]),
                groups: Borrowed(&[]),
                boundaries: Borrowed(&[]),
                programs: Owned(vec![0]),
                others: Borrowed(&[]),
            },
        })
    }

    #[test]
    fn numbers_once_the_dims_are_given() {
        assert_eq!((report().launches(), report().bytes()), (None, None));
        let report = report().bind(&[("N", 1024), ("D", 1)]).unwrap();
        assert_eq!(report.launches(), Some(1));
        assert_eq!((report.unfused_bytes(), report.bytes()), (Some(76 * 1024), Some(12 * 1024)));
        assert_eq!(report.peak_temporary_bytes(), Some(0));
        assert!(
            report.to_string().starts_with("Fusion: 10 → 1 kernels (90% reduction), 64.0KB memory saved\n")
        );
        assert!(
            report.to_dot().contains("64.0KB memory saved")
                && report.to_svg().contains("64.0KB memory saved")
        );
    }

    #[test]
    fn devices_without_kernels_are_refused() {
        let error = report().on(&Device::cpu()).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }

    #[test]
    fn dims_that_are_not_there_are_refused() {
        let refused = |dim, extent| report().bind(&[("N", 4), (dim, extent)]).unwrap_err();
        let error = Error::UnknownDim { function: "f".into(), dim: "M".into(), known: "N, D".into() };
        assert_eq!(refused("M", 1), error);
        assert_eq!(refused("D", usize::MAX), Error::InvalidExtent { function: "f".into(), dim: "D".into() });
    }
}
