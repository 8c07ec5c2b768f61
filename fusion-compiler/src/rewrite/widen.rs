//! Widening of narrow dtypes: narrow values are storage, and operations on them are computed in wider dtypes.
//!
//! Invariant: afterwards narrow values are only loaded, stored, indexed and converted. A float is rounded
//! only where it is stored or cast, unless the function is strict. An integer wraps after each operation.

use crate::ir::dtype::{Class, Const, DType};
use crate::ir::graph::{AxisSet, Graph, Math, Node, NodeId, NodeKind, SpanId};
use crate::ir::op::Op;

/// Rewrites operations on narrow dtypes to 32 or 64 bits.
pub fn widen(graph: Graph) -> Graph {
    let nodes = &graph.nodes;
    if !nodes.iter().any(|node| node.dtype.is_narrow()) {
        return graph;
    }
    let new = Graph { nodes: Vec::with_capacity(2 * nodes.len()), ..graph.clone() };
    let mut widening = Widening { old: &graph, new, forms: Vec::with_capacity(nodes.len()) };
    for node in nodes {
        let forms = widening.node(node);
        widening.forms.push(forms);
    }
    for i in 0..graph.outputs.len() {
        widening.new.outputs[i].node = widening.stored(graph.outputs[i].node);
    }
    widening.new
}

/// Forms of a value in the new graph.
#[derive(Clone, Copy)]
struct Forms {
    /// Narrow form, if the value was rounded or wrapped to its dtype.
    stored: Option<NodeId>,
    /// Wide form. The first use converts the narrow form to the wide form.
    value: Option<NodeId>,
}

struct Widening<'g> {
    old: &'g Graph,
    new: Graph,
    /// Forms by number of the old node.
    forms: Vec<Forms>,
}

impl Widening<'_> {
    fn node(&mut self, node: &Node) -> Forms {
        match &node.kind {
            NodeKind::Input(_) if node.dtype.is_narrow() => stored(self.new.push(node.clone())),
            NodeKind::Extent(_) if node.dtype.is_narrow() && node.dtype.is_int() => {
                let extent = self.new.push(Node { dtype: node.dtype.computed(), ..node.clone() });
                stored(self.cast(extent, node.dtype, node.axes, node.span))
            }
            NodeKind::Input(_)
            | NodeKind::Scalar(_)
            | NodeKind::Literal(_)
            | NodeKind::Coord(_)
            | NodeKind::Extent(_) => {
                value(self.new.push(Node { dtype: node.dtype.computed(), ..node.clone() }))
            }
            NodeKind::Apply(op) => {
                let mut args = self.values(&node.args);
                if matches!(op, Op::Shl | Op::Shr) && node.dtype.is_narrow() {
                    args[1] = self.masked(args[1], node);
                }
                let closed = matches!(
                    op,
                    Op::And | Op::Or | Op::Xor | Op::Rem | Op::Min | Op::Max | Op::Select | Op::Shr
                );
                self.computed(node, args, closed)
            }
            NodeKind::Reduce(..) => {
                let args = self.values(&node.args);
                self.computed(node, args, true)
            }
            NodeKind::Gather(_) => self.static_index(node),
            NodeKind::Cast => self.converted(node),
        }
    }

    /// Adds an operation on wide values. `closed` operations only give integers that the dtype of their
    /// operands can represent.
    fn computed(&mut self, node: &Node, args: Vec<NodeId>, closed: bool) -> Forms {
        let dtype = node.dtype.computed();
        let made = self.new.push(Node { args, dtype, ..node.clone() });
        let narrows = match node.dtype.class() {
            _ if !node.dtype.is_narrow() => false,
            Class::Float => self.old.math == Math::Strict,
            Class::Int | Class::Uint => !closed,
            Class::Bool => false,
        };
        if narrows { stored(self.cast(made, node.dtype, node.axes, node.span)) } else { value(made) }
    }

    /// Masks the distance of a shift: modulo the number of bits of the shifted value.
    fn masked(&mut self, amount: NodeId, node: &Node) -> NodeId {
        let bits = node.dtype.bits();
        let mask = self.new.literal(Const::Int((bits - 1).into()), node.dtype.computed(), node.span);
        self.new.apply(Op::And, &[amount, mask], node.span)
    }

    /// Indexes a value in the form that its operand has.
    fn static_index(&mut self, node: &Node) -> Forms {
        let rest = self.values(&node.args[1..]);
        let of = self.forms[node.args[0].0 as usize].stored.filter(|_| node.dtype.is_narrow());
        let (first, dtype) = match of {
            Some(of) => (of, node.dtype),
            None => (self.value(node.args[0]), node.dtype.computed()),
        };
        let args = [&[first], rest.as_slice()].concat();
        let made = self.new.push(Node { args, dtype, ..node.clone() });
        if of.is_some() { stored(made) } else { value(made) }
    }

    fn converted(&mut self, node: &Node) -> Forms {
        let (arg, from) = (node.args[0], self.old.node(node.args[0]));
        let (dtype, axes, span) = (node.dtype, node.axes, node.span);
        if from.dtype == dtype && from.axes != axes {
            let Forms { stored: of, .. } = self.forms[arg.0 as usize];
            if let Some(of) = of.filter(|_| dtype.is_narrow()) {
                return stored(self.cast(of, dtype, axes, span));
            }
            let of = self.value(arg);
            return value(self.cast(of, dtype.computed(), axes, span));
        }
        if !dtype.is_narrow() {
            let of = self.value(arg);
            let same = self.new.node(of).dtype == dtype && from.axes == axes;
            return value(if same { of } else { self.cast(of, dtype, axes, span) });
        }
        if from.dtype == dtype {
            return stored(self.stored(arg));
        }
        let mut of = self.value(arg);
        let float = self.new.node(of).dtype.is_float();
        // A value with more digits than an `f32` is rounded once, in the conversion to the narrow dtype.
        if self.new.node(of).dtype != dtype.computed() && (dtype.is_int() || from.dtype == DType::Bool) {
            of = self.cast(of, dtype.computed(), axes, span);
        }
        if float && dtype.is_int() {
            of = self.saturated(of, dtype, span);
        }
        stored(self.cast(of, dtype, axes, span))
    }

    /// Clamps a value to the range of a narrow dtype.
    fn saturated(&mut self, mut value: NodeId, dtype: DType, span: SpanId) -> NodeId {
        let (low, high) = dtype.range();
        for (op, bound) in [(Op::Max, low), (Op::Min, high)] {
            let bound = self.new.literal(Const::Int(bound), dtype.computed(), span);
            value = self.new.apply(op, &[value, bound], span);
        }
        value
    }

    fn cast(&mut self, of: NodeId, dtype: DType, axes: AxisSet, span: SpanId) -> NodeId {
        self.new.push(Node { kind: NodeKind::Cast, args: vec![of], dtype, axes, span })
    }

    fn values(&mut self, args: &[NodeId]) -> Vec<NodeId> {
        args.iter().map(|&arg| self.value(arg)).collect()
    }

    /// Returns the wide form of a value.
    fn value(&mut self, id: NodeId) -> NodeId {
        let Forms { stored, value } = self.forms[id.0 as usize];
        let node = self.old.node(id);
        let made = value.unwrap_or_else(|| {
            let stored = stored.unwrap_or_else(|| unreachable!("a value is made in some form"));
            self.cast(stored, node.dtype.computed(), node.axes, node.span)
        });
        self.forms[id.0 as usize].value = Some(made);
        made
    }

    /// Returns the stored form of a value.
    fn stored(&mut self, id: NodeId) -> NodeId {
        let node = self.old.node(id);
        let Forms { stored, value } = self.forms[id.0 as usize];
        let made = stored.or(value.filter(|_| !node.dtype.is_narrow())).unwrap_or_else(|| {
            let value = self.value(id);
            self.cast(value, node.dtype, node.axes, node.span)
        });
        self.forms[id.0 as usize].stored = Some(made);
        made
    }
}

fn stored(id: NodeId) -> Forms {
    Forms { stored: Some(id), value: None }
}

fn value(id: NodeId) -> Forms {
    Forms { stored: None, value: Some(id) }
}
