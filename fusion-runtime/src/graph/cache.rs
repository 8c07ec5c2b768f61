//! Plans of graphs, by structure.
//!
//! Invariant: a plan and its texts live until the process ends, so a device knows a text by its address.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use fusion_compiler::ir::graph::Graph;
use fusion_compiler::ir::plan::{Code, Lack, Target, Text};
use fusion_compiler::target;

use crate::kernel::{CpuCode, Plan};

/// Name that graphs are compiled under, so that graphs of one structure share their kernels.
pub(super) const NAME: &str = "graph";

/// Returns the plan of a graph for a target, or the feature of the graph that the target lacks. `places` are
/// the line and the column of each span.
pub(super) fn plan(graph: &Graph, target: Target, places: &[(u32, u32)]) -> Result<Arc<Plan>, Lack> {
    static PLANS: Mutex<Option<HashMap<String, Arc<Plan>>>> = Mutex::new(None);
    let key = format!("{target:?} {places:?} {graph:?}");
    let lock = || PLANS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().as_ref().and_then(|plans| plans.get(&key)) {
        return Ok(Arc::clone(known));
    }
    if let Some(what) = target::lacks(&fusion_compiler::optimize(graph.clone()), target) {
        return Err(Lack { target, what });
    }
    let locate =
        |span: fusion_compiler::ir::graph::SpanId| places.get(span.0 as usize).copied().unwrap_or_default();
    let compiled = fusion_compiler::compile(graph.clone(), &[target], &locate);
    let plan = Arc::new(compiled.map_code(|_, code| match code {
        Code::Ptx(text) => Code::Ptx(kept(text)),
        Code::Wgsl(text) => Code::Wgsl(kept(text)),
        Code::Cpu(code) => Code::Cpu(CpuCode::Interpreted(Arc::new(code.kernel))),
    }));
    // Another thread may have compiled the same graph.
    Ok(Arc::clone(lock().get_or_insert_default().entry(key).or_insert(plan)))
}

/// Keeps a text until the process ends.
fn kept(text: Text) -> Text {
    match text {
        Cow::Owned(text) => Cow::Borrowed(text.leak()),
        Cow::Borrowed(_) => text,
    }
}
