//! Text form of the graph, for readers and for snapshots.
//!
//! Invariant: two graphs with the same text compute the same function. The text has no spans.

use std::fmt;

use super::graph::{
    AxisId, AxisSet, Dest, Fusing, Graph, Math, Node, NodeId, NodeKind, Param, ParamKind, Reduce,
};
use super::op::Op;

/// Prints one line for the signature, for each node and for each output.
///
/// ```text
/// fn axpy(a: f32, x: f32[N], y: &mut f32[N])
///   %0: f32 = a
///   …
///   y[N] = %4
/// ```
pub fn graph(graph: &Graph) -> String {
    graph.to_string()
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.fusing == Fusing::Off {
            writeln!(f, "#[fuse(off)]")?;
        }
        match self.math {
            Math::Accurate => {}
            Math::Fast => writeln!(f, "#[fuse(fast_math)]")?,
            Math::Strict => writeln!(f, "#[fuse(strict)]")?,
        }
        let params: Vec<String> = self.params.iter().map(|param| self.param_text(param)).collect();
        writeln!(f, "fn {}({})", self.name, params.join(", "))?;
        for split in &self.splits {
            let whole = &self.axis(split.whole).name;
            writeln!(f, "  {whole} is {}", self.order_text(&split.parts))?;
        }
        for concat in &self.concats {
            if *concat.parts == [concat.whole.clone()] {
                writeln!(f, "  {} within i32", concat.whole.name)?;
                continue;
            }
            let parts = concat
                .parts
                .iter()
                .map(|part| format!("{}: {}", part.name, part.extent.display(&self.symbols)));
            let parts = parts.collect::<Vec<_>>().join(" + ");
            writeln!(f, "  {} is {parts}", concat.whole.name)?;
        }
        if !self.looped.is_empty() {
            writeln!(f, "  {} in loops", self.set_text(self.looped))?;
        }
        for (id, node) in self.iter() {
            let axes = self.set_text(node.axes);
            writeln!(f, "  {id}: {}{axes} = {}", node.dtype, self.node_text(node))?;
        }
        for output in &self.outputs {
            let to = match output.dest {
                Dest::Fresh => "return",
                Dest::InPlace(param) => &self.param(param).name,
            };
            writeln!(f, "  {to}{} = {}", self.order_text(&output.axes), output.node)?;
        }
        Ok(())
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl Graph {
    fn param_text(&self, param: &Param) -> String {
        let Param { name, dtype, .. } = param;
        match &param.kind {
            ParamKind::Tensor { axes, access } => {
                let access = if *access == super::graph::Access::Read { "" } else { "&mut " };
                format!("{name}: {access}{dtype}{}", self.order_text(axes))
            }
            ParamKind::Scalar => format!("{name}: {dtype}"),
            ParamKind::Dim(_) => format!("{name}: dim"),
            ParamKind::View { axes, .. } => format!("{name} as {}", self.order_text(axes)),
        }
    }

    fn node_text(&self, node: &Node) -> String {
        let args: Vec<String> = node.args.iter().map(NodeId::to_string).collect();
        let args = args.join(", ");
        match &node.kind {
            NodeKind::Input(param) | NodeKind::Scalar(param) => match &self.param(*param).kind {
                ParamKind::View { .. } => self.param_text(self.param(*param)),
                ParamKind::Tensor { .. } | ParamKind::Scalar | ParamKind::Dim(_) => {
                    self.param(*param).name.clone()
                }
            },
            NodeKind::Literal(value) => value.to_string(),
            NodeKind::Coord(axis) => format!("index {}", self.axis(*axis).name),
            NodeKind::Extent(extent) => format!("extent {}", extent.display(&self.symbols)),
            NodeKind::Apply(op) => format!("{} {args}", op_text(*op)),
            NodeKind::Cast if node.args.iter().any(|&arg| self.node(arg).dtype == node.dtype) => {
                format!("broadcast {args}")
            }
            NodeKind::Cast => format!("cast {args}"),
            NodeKind::Reduce(reduce, axes) => {
                format!("{} {args} over {}", reduce_text(*reduce), self.set_text(*axes))
            }
            NodeKind::Gather(axis) => match node.args.as_slice() {
                [x, index, within] => {
                    format!("at {x}, {} = {index} where {within}", self.axis(*axis).name)
                }
                args => {
                    let args: Vec<String> = args.iter().map(NodeId::to_string).collect();
                    format!("at {}", args.join(&format!(", {} = ", self.axis(*axis).name)))
                }
            },
        }
    }

    /// Formats axes in order, outermost first: `[N, C = 3]`.
    fn order_text(&self, axes: &[AxisId]) -> String {
        let dim = |&axis: &AxisId| {
            let axis = self.axis(axis);
            let extent = axis.extent.display(&self.symbols).to_string();
            if extent == axis.name { extent } else { format!("{} = {extent}", axis.name) }
        };
        format!("[{}]", axes.iter().map(dim).collect::<Vec<_>>().join(", "))
    }

    /// Formats a set of axes as `[N, C]`, or as an empty text for no axes.
    fn set_text(&self, axes: AxisSet) -> String {
        let names: Vec<&str> = axes.iter().map(|axis| &*self.axis(axis).name).collect();
        if names.is_empty() { String::new() } else { format!("[{}]", names.join(", ")) }
    }
}

fn op_text(op: Op) -> String {
    format!("{op:?}").to_lowercase()
}

fn reduce_text(reduce: Reduce) -> &'static str {
    match reduce {
        Reduce::Sum => "sum",
        Reduce::Dot => "dot",
        Reduce::Prod => "prod",
        Reduce::Max => "max",
        Reduce::MaxNum => "max_num",
        Reduce::Min => "min",
    }
}
