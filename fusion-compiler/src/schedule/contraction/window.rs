//! Factors that windows choose from a tensor: gathers at sums of coordinates times numbers, with padding of zeros.
//!
//! The driver reads the elements from the tensor, so no tensor of all windows is computed.

use super::factor::plain;
use crate::fuse::Load;
use crate::ir::dim::DimExpr;
use crate::ir::dtype::Const;
use crate::ir::graph::{AxisId, Graph, NodeId, NodeKind};
use crate::ir::op::Op;
use crate::ir::plan::{List, WINDOW_BOUNDS_MAX, WindowBounds, Windows};
use crate::schedule::space::stride;
use crate::schedule::{Operand, Work};

/// Largest number of nodes of a sum.
const NODES_MAX: u32 = 64;

/// A sum of coordinates times numbers that are not negative, and a number.
#[derive(Clone)]
struct Affine {
    terms: Vec<(AxisId, DimExpr)>,
    start: DimExpr,
}

/// A dim of a tensor that windows choose elements along.
#[derive(Clone)]
struct Along {
    axis: AxisId,
    place: Affine,
    /// True if places outside of the dim are padding, false if there are none.
    is_padded: bool,
}

/// Elements of a tensor that windows choose.
#[derive(Clone)]
pub(super) struct WindowFactor {
    /// The tensor, which may have to be computed.
    pub(super) tensor: NodeId,
    along: Vec<Along>,
}

impl Affine {
    fn constant(value: DimExpr) -> Affine {
        Affine { terms: vec![], start: value }
    }

    /// Returns a node as a sum, if it is one.
    fn of(graph: &Graph, id: NodeId) -> Option<Affine> {
        Affine::of_few(graph, id, &mut NODES_MAX.clone())
    }

    /// Returns a node as a sum, if it is one of at most so many nodes.
    fn of_few(graph: &Graph, id: NodeId, left: &mut u32) -> Option<Affine> {
        *left = left.checked_sub(1)?;
        let node = graph.node(id);
        let mut arg = |i: usize| Affine::of_few(graph, node.args[i], left);
        match &node.kind {
            NodeKind::Coord(axis) if node.args.is_empty() => {
                Some(Affine { terms: vec![(*axis, DimExpr::constant(1))], start: DimExpr::constant(0) })
            }
            NodeKind::Extent(extent) => Some(Affine::constant(extent.clone())),
            NodeKind::Literal(Const::Int(value)) => Some(Affine::constant(DimExpr::constant(*value))),
            NodeKind::Apply(Op::Add) => {
                let (mut left, right) = (arg(0)?, arg(1)?);
                left.terms.extend(right.terms);
                Some(Affine { start: left.start + right.start, ..left })
            }
            NodeKind::Apply(Op::Sub) => {
                let (left, right) = (arg(0)?, arg(1)?);
                right.terms.is_empty().then(|| Affine { start: left.start - right.start, ..left })
            }
            NodeKind::Apply(Op::Mul) => {
                let (left, right) = (arg(0)?, arg(1)?);
                let (sum, by) = if right.terms.is_empty() { (left, right) } else { (right, left) };
                if !by.terms.is_empty() || !by.start.is_nonnegative() {
                    return None;
                }
                let times = |(axis, factor): (AxisId, DimExpr)| (axis, factor * by.start.clone());
                let terms = sum.terms.into_iter().map(times).collect();
                Some(Affine { terms, start: sum.start * by.start.clone() })
            }
            _ => None,
        }
    }

    /// Returns the factor of an axis, if it has one.
    fn factor(&self, axis: AxisId) -> Option<DimExpr> {
        let all = self.terms.iter().filter(|(other, _)| *other == axis);
        all.map(|(_, factor)| factor.clone()).reduce(|sum, factor| sum + factor)
    }
}

/// Returns true if a node is the condition that an index is not less than 0, and less than the extent of a dim.
fn is_within(graph: &Graph, id: NodeId, (index, extent): (NodeId, &DimExpr)) -> bool {
    let node = graph.node(id);
    if node.kind != NodeKind::Apply(Op::And) {
        return false;
    }
    let compares = |id: NodeId, op: Op, with: &DimExpr| {
        let node = graph.node(id);
        let is_with =
            |id: NodeId| Affine::of(graph, id).is_some_and(|of| of.terms.is_empty() && of.start == *with);
        node.kind == NodeKind::Apply(op) && node.args[0] == index && is_with(node.args[1])
    };
    let [from, to] = [node.args[0], node.args[1]];
    compares(from, Op::Ge, &DimExpr::constant(0)) && compares(to, Op::Lt, extent)
}

impl WindowFactor {
    /// Returns the windows that a factor is, if it is a tensor that gathers choose elements of.
    pub(super) fn of(work: &Work<'_>, id: NodeId) -> Option<WindowFactor> {
        let graph = work.graph;
        let (mut at, mut along) = (id, Vec::<Along>::new());
        while let NodeKind::Gather(axis) = graph.node(at).kind
            && !work.loads.contains_key(&Load::Stored(at))
        {
            let args = &graph.node(at).args;
            let (index, within) = (args[1], args.get(2).copied());
            let is_whole = |within| is_within(graph, within, (index, &graph.axis(axis).extent));
            let place = Affine::of(graph, index).filter(|_| within.is_none_or(is_whole))?;
            // A window of positions of another window is none of the tensor.
            let meets =
                |of: &Along| of.place.factor(axis).or(place.factor(of.axis)).is_some() || of.axis == axis;
            if along.iter().any(meets) {
                return None;
            }
            along.push(Along { axis, place, is_padded: within.is_some() });
            at = args[0];
        }
        let is_of_tensor = along.iter().all(|of| graph.node(at).axes.contains(of.axis));
        let is_in_order = plain(work, at, true).is_none_or(|operand| operand.interleave_axis.is_none());
        let are_few = (1..=WINDOW_BOUNDS_MAX).contains(&along.len());
        (are_few && is_of_tensor && is_in_order).then_some(WindowFactor { tensor: at, along })
    }

    /// Returns true if windows may choose elements more than once, or padding.
    pub(super) fn repeat(&self) -> bool {
        self.along.iter().any(|of| of.is_padded || of.place.terms.len() > 1)
    }

    /// Returns the distance of elements along an axis.
    pub(super) fn stride(&self, graph: &Graph, operand: &Operand, axis: AxisId) -> Option<DimExpr> {
        let own = Some(axis).filter(|axis| self.along.iter().all(|of| of.axis != *axis));
        let own = own.and_then(|axis| stride(graph, operand, axis));
        let chosen = self.along.iter().filter_map(|of| {
            let stride = stride(graph, operand, of.axis)?;
            Some(of.place.factor(axis)? * stride)
        });
        own.into_iter().chain(chosen).reduce(|sum, stride| sum + stride)
    }

    /// Returns the windows, for the axes of the batch, the rows or columns, and the depth.
    pub(super) fn windows(&self, graph: &Graph, operand: &Operand, axes: [&[AxisId]; 3]) -> Windows {
        let zero = || DimExpr::constant(0);
        let starts = self
            .along
            .iter()
            .map(|of| of.place.start.clone() * stride(graph, operand, of.axis).unwrap_or_else(zero));
        let start = starts.fold(zero(), |sum, start| sum + start);
        let bounds = self.along.iter().map(|of| {
            let strides = |axes: &[AxisId]| -> List<DimExpr> {
                axes.iter().map(|&axis| of.place.factor(axis).unwrap_or_else(zero)).collect()
            };
            WindowBounds {
                extent: graph.axis(of.axis).extent.clone(),
                start: of.place.start.clone(),
                batch: strides(axes[0]),
                lanes: strides(axes[1]),
                depth: strides(axes[2]),
            }
        });
        Windows { start, bounds: bounds.collect() }
    }
}
