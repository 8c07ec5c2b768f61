//! Graph IR: what a function computes, before anything is decided about how.
//!
//! A graph is a list of SSA nodes in topological order. A node's value has a dtype and a *set* of axes;
//! operands meet by axis, so broadcasting is implicit: an operand that lacks an axis is constant along it.
//! Order exists only where tensors are read and written. Nodes hold a `SpanId`, never a compiler token:
//! the run-time use of the compiler has none. Unused nodes may be present until `rewrite::dce`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::dim::DimExpr;
use super::dtype::{Const, DType};
use super::ops::Op;

/// A node of the graph it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// An axis of the graph it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AxisId(pub u8);

/// A parameter of the graph it belongs to, in signature order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParamId(pub u16);

/// A place in the user's source; the front end knows which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId(pub u32);

/// At most this many axes can occur in one function.
pub const AXES_MAX: usize = 64;

/// Fixed axes are run through by each thread by itself, one element after the other, if they have at most this many and
/// nothing says otherwise.
pub const UNROLLED_MAX: i64 = 64;

/// A set of axes of one graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AxisSet(u64);

impl AxisSet {
    /// The set without axes: scalars.
    pub const EMPTY: AxisSet = AxisSet(0);

    /// Adds an axis.
    #[must_use]
    pub fn with(self, axis: AxisId) -> AxisSet {
        AxisSet(self.0 | 1 << axis.0)
    }

    /// All axes of either.
    #[must_use]
    pub fn union(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 | other.0)
    }

    /// The axes of both.
    #[must_use]
    pub fn intersection(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 & other.0)
    }

    /// The axes of `self` that `other` lacks.
    #[must_use]
    pub fn minus(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 & !other.0)
    }

    /// Whether the axis is in the set.
    pub fn contains(self, axis: AxisId) -> bool {
        self.0 >> axis.0 & 1 == 1
    }

    /// Whether every axis of `other` is in the set.
    pub fn contains_all(self, other: AxisSet) -> bool {
        other.0 & !self.0 == 0
    }

    /// Whether it is the set without axes.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The axes, in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = AxisId> {
        (0..AXES_MAX as u8).map(AxisId).filter(move |&axis| self.contains(axis))
    }
}

impl FromIterator<AxisId> for AxisSet {
    fn from_iter<I: IntoIterator<Item = AxisId>>(axes: I) -> AxisSet {
        axes.into_iter().fold(AxisSet::EMPTY, AxisSet::with)
    }
}

/// An axis that is several others together, of which the last runs fastest. Only what the caller passes and gets has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// Its extent is the product of theirs, which a call checks.
    pub whole: AxisId,
    /// Outermost first.
    pub parts: Vec<AxisId>,
    /// Where a function of the library splits: users have no name for some of the parts.
    pub library: Option<Library>,
}

/// A function of the library that splits a dim of its caller.
#[derive(Clone, Debug, PartialEq)]
pub struct Library {
    /// Its name.
    pub function: String,
    /// The parts that have a name in its body alone.
    pub unnamed: AxisSet,
}

/// The use of coordinates along a dim that a call checks its extent for. Texts are extents as the user wrote them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Use {
    /// `at`, of this position.
    Position(Cow<'static, str>),
    /// `slice`, from the first to before the second. The part is between the other two.
    Range(Cow<'static, str>, Cow<'static, str>),
    /// `pad`, by as many before and after, which are the first and the last part.
    Padding(Cow<'static, str>, Cow<'static, str>),
    /// `concat`, of all parts.
    Concat,
    /// A portion, which begins or ends after the first part.
    Portion,
    /// A function that leaves no elements out: the dim is its own only part.
    Coordinates(Cow<'static, str>),
}

/// Elements along an axis that are those of several others one after another: what its coordinates follow from.
#[derive(Clone, Debug, PartialEq)]
pub struct Sum {
    /// Its extent is the sum of theirs, and within `i32`; a call checks both. It may be several axes as one.
    pub whole: Axis,
    /// In order, by name; none has a negative extent.
    pub parts: Vec<Axis>,
    /// For errors.
    pub of: Use,
}

/// A named dimension.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// As the user wrote it.
    pub name: String,
    /// A symbol, a constant (`C = 3`), or an expression of both.
    pub extent: DimExpr,
}

/// Whether a function may change a tensor it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Access {
    /// Read only.
    Read,
    /// Written only.
    Write,
    /// Read and written.
    ReadWrite,
}

/// What a parameter is.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamKind {
    /// A tensor, its axes outermost first; `Access::ReadWrite` for `&mut`.
    Tensor {
        /// Outermost first.
        axes: Vec<AxisId>,
        /// `Read` or `ReadWrite`.
        access: Access,
    },
    /// A number given by the host at each call.
    Scalar,
    /// An extent given by the host: the symbol of this number.
    Dim(u16),
    /// A tensor parameter before this one, read at other axes of the same extents. The caller passes nothing for it.
    View {
        /// Whose memory.
        of: ParamId,
        /// Outermost first, one for each of the tensor's.
        axes: Vec<AxisId>,
    },
}

impl ParamKind {
    /// The axes of a tensor, outermost first.
    pub fn axes(&self) -> Option<&Vec<AxisId>> {
        match self {
            ParamKind::Tensor { axes, .. } | ParamKind::View { axes, .. } => Some(axes),
            ParamKind::Scalar | ParamKind::Dim(_) => None,
        }
    }
}

/// A place along an axis, before and after which different tensors have their elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// The outermost axis of every tensor with a portion. Nothing that is made of one is combined along it, or asked for
    /// elsewhere along it.
    pub axis: AxisId,
    /// The first coordinate after it; from 0 to the extent, which a call checks.
    pub at: DimExpr,
}

/// The only coordinates, along the axis of the graph's cut, that a tensor has elements for. Others are read as 0, and not
/// written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Portion {
    /// Those below the place.
    Before,
    /// Those from the place on.
    After,
}

/// A parameter in the order of the signature.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// As the user wrote it.
    pub name: String,
    /// Type of the elements, or of the scalar. `DType::Index` for a dim.
    pub dtype: DType,
    /// Tensor, scalar or extent.
    pub kind: ParamKind,
    /// What it has of the axis of the graph's cut, if not all.
    pub portion: Option<Portion>,
    /// Where it is declared.
    pub span: SpanId,
}

/// How a reduction combines its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// Their sum; 0 for none.
    Sum,
    /// The sum of the products of the elements of two arguments, each rounded once, with what was summed before it; made of sums of
    /// products by `rewrite::fma`.
    Dot,
    /// Their product; 1 for none.
    Prod,
    /// The largest; NaN if any is.
    Max,
    /// The largest of those that are numbers; made where what is none shows anyway.
    MaxNum,
    /// The smallest; NaN if any is.
    Min,
}

impl Reduce {
    /// What users call it.
    pub fn name(self) -> &'static str {
        match self {
            Reduce::Sum | Reduce::Dot => "sum",
            Reduce::Prod => "prod",
            Reduce::Max | Reduce::MaxNum => "max",
            Reduce::Min => "min",
        }
    }

    /// How many arguments it combines the elements of.
    pub fn arity(self) -> usize {
        match self {
            Reduce::Dot => 2,
            Reduce::Sum | Reduce::Prod | Reduce::Max | Reduce::MaxNum | Reduce::Min => 1,
        }
    }

    /// How what it gives for parts of the elements is combined.
    pub fn of_parts(self) -> Reduce {
        match self {
            Reduce::Dot => Reduce::Sum,
            Reduce::Sum | Reduce::Prod | Reduce::Max | Reduce::MaxNum | Reduce::Min => self,
        }
    }

    /// What it gives for no elements: what changes nothing that it is combined with.
    pub fn identity(self, dtype: DType) -> Const {
        let float = |x: f64, int: i64| if dtype.is_float() { Const::Float(x) } else { Const::Int(int) };
        let (low, high) = dtype.range();
        match self {
            Reduce::Sum | Reduce::Dot => float(0.0, 0),
            Reduce::Prod => float(1.0, 1),
            Reduce::Max | Reduce::MaxNum => float(f64::NEG_INFINITY, low),
            Reduce::Min => float(f64::INFINITY, high),
        }
    }
}

/// What a node computes from its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// The tensor parameter or view, read at its own axes. An in-place parameter gives its old value.
    Input(ParamId),
    /// The scalar parameter.
    Scalar(ParamId),
    /// A number.
    Literal(Const),
    /// The coordinate along an axis, `i32`.
    Coord(AxisId),
    /// An extent as a value, of the node's dtype.
    Extent(DimExpr),
    /// A pointwise operation of the table; its operands have one dtype, or as the table's typing says.
    Apply(Op),
    /// Conversion of the argument to the node's dtype. It may have more axes than its argument, which is the
    /// same along them: so a small value fills a large tensor in place. Of one dtype, it costs nothing.
    Cast,
    /// Combines all elements along axes of the arguments, which the result lacks.
    Reduce(Reduce, AxisSet),
    /// The first argument's elements where an axis that it has is what the second says, an `i32`: along the other axes of
    /// the first and those of the second. A third, a truth value, says where there is such an element: elsewhere nothing
    /// is read, and the result is 0. Without a third there is one everywhere.
    Gather(AxisId),
}

/// One SSA value.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it computes.
    pub kind: NodeKind,
    /// Its operands, all of smaller number.
    pub args: Vec<NodeId>,
    /// Type of its elements.
    pub dtype: DType,
    /// The axes along which it varies, or may.
    pub axes: AxisSet,
    /// The user's token that asked for it.
    pub span: SpanId,
}

/// Where a result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dest {
    /// A new tensor, returned.
    Fresh,
    /// The `&mut` parameter.
    InPlace(ParamId),
}

/// A result of the function.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The value; its axes are exactly the parts of `axes` and its dtype is the declared one.
    pub node: NodeId,
    /// Order of the axes in memory, outermost first, as the caller sees them.
    pub axes: Vec<AxisId>,
    /// Returned or in place.
    pub dest: Dest,
}

/// How far a function may be fused, from its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fusing {
    /// As far as the rules allow.
    On,
    /// Each op its own kernel.
    Off,
}

/// How operations are computed, from a function's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Math {
    /// Within the bounds of the table.
    Accurate,
    /// As devices approximate them.
    Fast,
    /// Within the bounds of the table, each rounded to the type that it is declared to have: as without fusion.
    Strict,
}

/// A typed function: the last thing that knows the user's names, and the first without their syntax.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// As the user wrote it.
    pub name: String,
    /// Names of the extents known only at run time; `DimOp::Sym(i)` is the i-th.
    pub symbols: Vec<String>,
    /// All axes.
    pub axes: Vec<Axis>,
    /// Parameters in signature order, then views of them.
    pub params: Vec<Param>,
    /// Axes that are others together.
    pub splits: Vec<Split>,
    /// Axes that are others one after another.
    pub sums: Vec<Sum>,
    /// Where parameters with a portion begin or end.
    pub cut: Option<Cut>,
    /// Topologically ordered.
    pub nodes: Vec<Node>,
    /// Results: in-place ones first, in the order of their parameters, then the returned ones.
    pub outputs: Vec<Output>,
    /// `#[fuse(off)]` or not.
    pub fusing: Fusing,
    /// `#[fuse(fast_math)]`, `#[fuse(strict)]` or neither.
    pub math: Math,
    /// Fixed axes that are gone through in loops, however few elements they have.
    pub looped: AxisSet,
    /// Whether all tensors have one shape of any rank, of which the only axis is the number of elements.
    pub any_shape: bool,
}

impl Graph {
    /// A graph that computes nothing yet.
    pub fn new(name: &str) -> Graph {
        Graph {
            name: name.into(),
            symbols: Vec::new(),
            axes: Vec::new(),
            params: Vec::new(),
            splits: Vec::new(),
            sums: Vec::new(),
            cut: None,
            nodes: Vec::new(),
            outputs: Vec::new(),
            fusing: Fusing::On,
            math: Math::Accurate,
            looped: AxisSet::EMPTY,
            any_shape: false,
        }
    }

    /// The node of this number.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// The parameter of this number.
    pub fn param(&self, id: ParamId) -> &Param {
        &self.params[usize::from(id.0)]
    }

    /// The parameter whose memory one is read from.
    pub fn memory_of(&self, id: ParamId) -> ParamId {
        match self.param(id).kind {
            ParamKind::View { of, .. } => of,
            ParamKind::Tensor { .. } | ParamKind::Scalar | ParamKind::Dim(_) => id,
        }
    }

    /// The axis of this number.
    pub fn axis(&self, id: AxisId) -> &Axis {
        &self.axes[usize::from(id.0)]
    }

    /// The axes with the parts of those that are others together, as they lie in memory.
    pub fn parts(&self, axes: &[AxisId]) -> Vec<AxisId> {
        let parts = |&axis: &AxisId| match self.splits.iter().find(|split| split.whole == axis) {
            Some(split) => self.parts(&split.parts),
            None => vec![axis],
        };
        axes.iter().flat_map(parts).collect()
    }

    /// Has a call check this, unless it checks it already.
    pub fn check(&mut self, sum: Sum) {
        // Every check of a dim is one of its coordinates, too.
        let covers = |known: &Sum| match sum.of {
            Use::Coordinates(_) => known.whole == sum.whole,
            Use::Position(_) | Use::Range(..) | Use::Padding(..) | Use::Concat | Use::Portion => {
                *known == sum
            }
        };
        if !self.sums.iter().any(covers) {
            self.sums.push(sum);
        }
    }

    /// A new axis like this one.
    pub fn twin(&mut self, axis: AxisId) -> AxisId {
        self.axes.push(self.axis(axis).clone());
        AxisId(self.axes.len() as u8 - 1)
    }

    /// All nodes with their numbers.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(i, node)| (NodeId(i as u32), node))
    }

    /// Whether what is combined along these axes takes a loop: too many elements to write them all out, who knows how
    /// many, or few that are not to be written out.
    pub fn is_looped(&self, axes: AxisSet) -> bool {
        if !axes.intersection(self.looped).is_empty() {
            return true;
        }
        let extents = axes.iter().map(|axis| self.axis(axis).extent.as_const());
        let elements = extents.reduce(|all, extent| Some(all?.saturating_mul(extent?)));
        elements.flatten().is_none_or(|elements| elements > UNROLLED_MAX)
    }

    /// The axes that a node combines the elements along in a loop; none for other nodes.
    pub fn looped_axes(&self, id: NodeId) -> AxisSet {
        match self.node(id).kind {
            NodeKind::Reduce(_, axes) if self.is_looped(axes) => axes,
            NodeKind::Reduce(..)
            | NodeKind::Input(_)
            | NodeKind::Scalar(_)
            | NodeKind::Literal(_)
            | NodeKind::Coord(_)
            | NodeKind::Extent(_)
            | NodeKind::Apply(_)
            | NodeKind::Cast
            | NodeKind::Gather(..) => AxisSet::EMPTY,
        }
    }

    /// The fixed axes that a thread goes through by itself for a node: that it combines the elements along, all of them
    /// written out, or picks one place of.
    pub fn written_out(&self, id: NodeId) -> AxisSet {
        match self.node(id).kind {
            NodeKind::Reduce(_, axes) if !self.is_looped(axes) => axes,
            NodeKind::Gather(_) => self.static_index(id).map(|(axis, _)| axis).into_iter().collect(),
            NodeKind::Reduce(..)
            | NodeKind::Input(_)
            | NodeKind::Scalar(_)
            | NodeKind::Literal(_)
            | NodeKind::Coord(_)
            | NodeKind::Extent(_)
            | NodeKind::Apply(_)
            | NodeKind::Cast => AxisSet::EMPTY,
        }
    }

    /// The fixed axis that a node picks one place of, and which, unless it is looped: then it is read there as elements at
    /// other places are.
    pub fn static_index(&self, id: NodeId) -> Option<(AxisId, i64)> {
        let node = self.node(id);
        let (NodeKind::Gather(axis), [_, index]) = (&node.kind, node.args.as_slice()) else { return None };
        let NodeKind::Literal(Const::Int(at)) = self.node(*index).kind else { return None };
        let written_out = self.axis(*axis).extent.as_const().is_some() && !self.looped.contains(*axis);
        written_out.then_some((*axis, at))
    }

    /// The value that a node is with one axis for another of the same extent, and these two: the value's own first.
    pub fn renamed(&self, id: NodeId) -> Option<(NodeId, AxisId, AxisId)> {
        let node = self.node(id);
        let (&NodeKind::Gather(old), &[of, place]) = (&node.kind, node.args.as_slice()) else { return None };
        let NodeKind::Coord(new) = self.node(place).kind else { return None };
        let is_whole = self.axis(old).extent == self.axis(new).extent;
        (is_whole && !self.node(of).axes.contains(new)).then_some((of, old, new))
    }

    /// The axis that a portion is of, if there is one.
    pub fn cut_axis(&self) -> Option<AxisId> {
        self.cut.as_ref().map(|cut| cut.axis)
    }

    /// The extent of an axis in a tensor that has a portion of it.
    pub fn extent_of(&self, axis: AxisId, portion: Option<Portion>) -> DimExpr {
        let whole = self.axis(axis).extent.clone();
        match (&self.cut, portion) {
            (Some(cut), Some(Portion::Before)) if cut.axis == axis => cut.at.clone(),
            (Some(cut), Some(Portion::After)) if cut.axis == axis => whole - cut.at.clone(),
            (Some(_) | None, _) => whole,
        }
    }

    /// The portion of the memory that a result goes to.
    pub fn portion_of(&self, output: &Output) -> Option<Portion> {
        match output.dest {
            Dest::InPlace(param) => self.param(param).portion,
            Dest::Fresh => None,
        }
    }

    /// Whether a value, if it is the comparison of a coordinate with the place of the cut, holds in this portion.
    pub fn holds_in(&self, id: NodeId, portion: Portion) -> Option<bool> {
        let (node, cut) = (self.node(id), self.cut.as_ref()?);
        let is_axis = |arg: usize| self.node(node.args[arg]).kind == NodeKind::Coord(cut.axis);
        let is_place = |arg: usize| self.node(node.args[arg]).kind == NodeKind::Extent(cut.at.clone());
        let NodeKind::Apply(op) = node.kind else { return None };
        let before = match op {
            Op::Lt if is_axis(0) && is_place(1) => true,
            Op::Gt if is_place(0) && is_axis(1) => true,
            Op::Ge if is_axis(0) && is_place(1) => false,
            Op::Le if is_place(0) && is_axis(1) => false,
            _ => return None,
        };
        Some(before == (portion == Portion::Before))
    }

    /// What of a choice is taken in this portion, if that decides it.
    pub fn chosen_in(&self, id: NodeId, portion: Portion) -> Option<NodeId> {
        let node = self.node(id);
        let cond = *node.args.first().filter(|_| node.kind == NodeKind::Apply(Op::Select))?;
        Some(node.args[if self.holds_in(cond, portion)? { 1 } else { 2 }])
    }

    /// Appends a node.
    pub fn push(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Appends a pointwise operation; dtype from the table, axes the union of the operands'.
    pub fn apply(&mut self, op: Op, args: &[NodeId], span: SpanId) -> NodeId {
        let axes = args.iter().fold(AxisSet::EMPTY, |axes, &arg| axes.union(self.node(arg).axes));
        let dtypes: Vec<DType> = args.iter().map(|&arg| self.node(arg).dtype).collect();
        let dtype = op.info().typing.result(&dtypes);
        self.push(Node { kind: NodeKind::Apply(op), args: args.to_vec(), dtype, axes, span })
    }

    /// Appends a number of the given dtype.
    pub fn literal(&mut self, value: Const, dtype: DType, span: SpanId) -> NodeId {
        self.push(Node { kind: NodeKind::Literal(value), args: vec![], dtype, axes: AxisSet::EMPTY, span })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `exp` of what is not positive has no large powers of two, so that a side that is wrong is a wrong result.
    #[test]
    fn sides_of_zero() {
        let span = SpanId(0);
        let mut graph = Graph::new("sides");
        let scalar = |param| NodeKind::Scalar(ParamId(param));
        let leaf = |kind| Node { kind, args: vec![], dtype: DType::F32, axes: AxisSet::EMPTY, span };
        let (x, y) = (graph.push(leaf(scalar(0))), graph.push(leaf(scalar(1))));
        let two = graph.literal(Const::Float(2.0), DType::F32, span);
        let minus = graph.literal(Const::Float(-2.0), DType::F32, span);
        let mut apply = |op, args: &[NodeId]| graph.apply(op, args, span);
        let square = apply(Op::Mul, &[x, x]);
        let product = apply(Op::Mul, &[x, y]);
        let [size, root] = [Op::Abs, Op::Sqrt].map(|op| apply(op, &[x]));
        let sum = apply(Op::Add, &[square, size]);
        let mixed = apply(Op::Add, &[square, minus]);
        let below = [
            apply(Op::Neg, &[size]),
            apply(Op::Neg, &[root]),
            apply(Op::Neg, &[sum]),
            apply(Op::Mul, &[minus, square]),
            minus,
        ];
        let inverse = apply(Op::Div, &[minus, root]);
        let unknown = [
            apply(Op::Neg, &[product]),
            apply(Op::Neg, &[x]),
            apply(Op::Neg, &[mixed]),
            apply(Op::Mul, &[minus, product]),
            apply(Op::Mul, &[minus, minus]),
            apply(Op::Mul, &[two, square]),
            // −2 / −0 is infinite.
            inverse,
        ];
        below.into_iter().for_each(|id| assert!(graph.is_nonpositive(id), "{:?}", graph.node(id)));
        unknown.into_iter().for_each(|id| assert!(!graph.is_nonpositive(id), "{:?}", graph.node(id)));
    }
}
