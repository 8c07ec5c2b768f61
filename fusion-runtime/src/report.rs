//! The fusion report as users hold it; the compiler renders it.
//!
//! Invariant: nothing is worked out here but errors.

use std::fmt;

use fusion_compiler::ir::plan::{Code, Lack};
use fusion_compiler::report::{self, Refused};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::kernel::{Launch, Plan};

/// What was fused in a function.
///
/// Shown with `Display`: a line of totals; a table with a row for each kernel; and for each value that is stored between
/// kernels, and each result that has one of its own, why, with line and column of the source. `{report:80}` is at most 80
/// columns wide where words allow, `{report}` 120. Bytes are formulas of the dims until `bind` gives these.
#[derive(Clone, Debug)]
pub struct Report(report::Report);

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
    #[doc(hidden)]
    pub fn new(plan: &Plan) -> Report {
        Report(report::Report::new(plan))
    }

    /// Kernels of the fused function, on the first of its targets that features are on for, of CUDA, wgpu and the CPU: others may have
    /// more where they can bind fewer buffers, which `Display` tells. Long rows take some of them in parts: `launches` counts these.
    pub fn kernels(&self) -> usize {
        self.0.kernels()
    }

    /// Kernels that a call launches, as `bytes` is of a call; nothing while an extent is not given. One that a device takes in
    /// pieces, because it binds no more at once, is one.
    pub fn launches(&self) -> Option<usize> {
        self.0.launches()
    }

    /// Kernels without fusion: one per operation.
    pub fn ops(&self) -> usize {
        self.0.ops()
    }

    /// Bytes of tensors that the kernels of a call read and write: on the first of the function's targets, with what its
    /// devices usually have, or on the device that `on` has been given. What a kernel goes through twice counts twice, and so
    /// does what it passes on to the next one of a row that is taken in parts. What rows have in common counts once, and so
    /// does a row that a CPU's thread has in its cache. Nothing while an extent is not given, or it overflows.
    pub fn bytes(&self) -> Option<u64> {
        self.0.bytes()
    }

    /// Bytes read and written without fusion; nothing while an extent in it is not given, or it overflows.
    pub fn unfused_bytes(&self) -> Option<u64> {
        self.0.unfused_bytes()
    }

    /// Most bytes of memory between kernels that are in use at once during a call, be it between those that take a row in
    /// parts; of the same call as `bytes`. Nothing while an extent is not given, or it overflows. What is no longer needed is
    /// free for what comes after it.
    pub fn peak_temporary_bytes(&self) -> Option<u64> {
        self.0.peak_temporary_bytes()
    }

    /// `bytes` as a formula of the dims that are not given: of a call that takes the fewest launches. `Display` tells the
    /// other ways to run each kernel, and what asks for them.
    pub fn bytes_formula(&self) -> String {
        self.0.bytes_formula()
    }

    /// `unfused_bytes` as a formula of the dims that are not given.
    pub fn unfused_bytes_formula(&self) -> String {
        self.0.unfused_bytes_formula()
    }

    /// `peak_temporary_bytes` as a formula of the dims that are not given, of a call that takes the fewest launches: `max(…)`
    /// of several where none is always the largest, and where these are too many to read, the one that is the largest for dims of 1024.
    pub fn peak_temporary_bytes_formula(&self) -> String {
        self.0.peak_temporary_bytes_formula()
    }

    /// The report with numbers for these dims: `report.bind(&[("N", 1024)])?`.
    ///
    /// # Errors
    /// `Error::UnknownDim` for a dim that the function does not have; `Error::InvalidExtent` for an extent beyond 63 bits.
    pub fn bind(mut self, extents: &[(&str, usize)]) -> Result<Report> {
        for &(dim, extent) in extents {
            let refused = match self.0.bind(dim, extent) {
                Ok(()) => continue,
                Err(refused) => refused,
            };
            let (function, dim) = (self.0.name().to_owned(), dim.to_owned());
            return Err(match refused {
                Refused::UnknownDim => Error::UnknownDim { function, dim, known: self.0.dims().join(", ") },
                Refused::TooLarge => Error::InvalidExtent { function, dim },
            });
        }
        Ok(self)
    }

    /// The report for this device alone: its kernels, and the numbers of calls on it.
    ///
    /// # Errors
    /// `Error::Unsupported` where the function is not compiled for it.
    pub fn on(mut self, device: &Device) -> Result<Report> {
        let target = device.0.target();
        if self.0.on(target, device.limits()) {
            return Ok(self);
        }
        Err(not_compiled(self.0.name(), self.0.lacks(), device))
    }

    /// The report as a graph for Graphviz, in the DOT language: kernels, the tensors between them with their bytes, and on
    /// the edges why they are not one kernel.
    pub fn to_dot(&self) -> String {
        self.0.to_dot()
    }

    /// The same graph as a picture: a file of SVG that needs nothing else.
    pub fn to_svg(&self) -> String {
        self.0.to_svg()
    }
}

/// A function has no kernels for a device.
pub(crate) fn not_compiled(function: &str, lacks: &[Lack], device: &Device) -> Error {
    let target = device.0.target();
    let what = match lacks.iter().find(|lack| lack.target == target) {
        Some(Lack { what, .. }) => {
            format!("`{function}`: it computes with {what}, which {} has not", target.name())
        }
        None => {
            format!("`{function}`: it is not compiled for {} (see `#[fuse(targets(…))]`)", target.name())
        }
    };
    Error::Unsupported { device: device.to_string(), what }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow::{Borrowed, Owned};

    use fusion_compiler::ir::dim::DimExpr;
    use fusion_compiler::ir::graph::Math;
    use fusion_compiler::ir::kernel::IndexWidth;
    use fusion_compiler::ir::plan::{Program, Space, Step, Summary, Target, Variant};

    use super::*;

    fn report() -> Report {
        let launch = Launch {
            kernel: Borrowed("f_0"),
            code: Code::Wgsl(Borrowed("")),
            index: IndexWidth::Bits32,
            buffers: Borrowed(&[]),
            uniforms: Borrowed(&[]),
            space: Space {
                rows: DimExpr::sym(0),
                cols: DimExpr::constant(1),
                grain: 1,
                each: DimExpr::constant(1),
            },
            team: 1,
            row_memory: DimExpr::constant(0),
            bytes: DimExpr::constant(12) * DimExpr::sym(0),
            trips: DimExpr::constant(0),
            prologue: false,
            cluster: DimExpr::constant(1),
        };
        let step =
            Step { variants: Owned(vec![Variant { when: Borrowed(&[]), launches: Owned(vec![launch]) }]) };
        Report::new(&Plan {
            name: Borrowed("f"),
            symbols: Owned(vec![Borrowed("N"), Borrowed("D")]),
            params: Borrowed(&[]),
            nonempty: Borrowed(&[]),
            products: Borrowed(&[]),
            sums: Borrowed(&[]),
            outputs: Borrowed(&[]),
            programs: Owned(vec![Program {
                target: Target::Wgsl,
                buffers: 1,
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
