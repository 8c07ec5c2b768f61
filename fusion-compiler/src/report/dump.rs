//! Files that a build writes under `FUSION_DUMP`: each function's graph and report, and the text of each
//! kernel.

use super::Report;
use crate::KernelCode;
use crate::ir::graph::Graph;
use crate::ir::plan::{Code, Plan};

/// Returns the names and texts of the files. The graph and the report come first.
pub(crate) fn dump(graph: &Graph, plan: &Plan<KernelCode>) -> Vec<(String, String)> {
    // Generic functions have names such as `f<f16>`.
    let (name, report) = (plan.name.replace(['<', '>'], "_"), Report::new(plan));
    let name = name.trim_end_matches('_');
    let mut files = vec![
        (format!("{name}.graph"), graph.to_string()),
        (format!("{name}.txt"), format!("{report}\n")),
        (format!("{name}.dot"), report.to_dot()),
        (format!("{name}.svg"), report.to_svg()),
    ];
    let steps = plan.programs.iter().flat_map(|program| program.steps.iter());
    for launch in steps.flat_map(|step| step.variants.iter().flat_map(|variant| variant.launches.iter())) {
        let kernel = &launch.kernel;
        match &launch.code {
            Code::Ptx(text) => files.push((format!("{kernel}.ptx"), text.to_string())),
            Code::Wgsl(text) => files.push((format!("{kernel}.wgsl"), text.to_string())),
            Code::Cpu(code) => {
                files.push((format!("{kernel}.rs"), code.rust.to_string()));
                files.push((format!("{kernel}.kernel"), code.kernel.to_string()));
            }
        }
    }
    files
}
