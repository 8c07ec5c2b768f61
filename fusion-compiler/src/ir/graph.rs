//! Graph IR: the computation of a function, independent of its schedule.
//!
//! A graph is a list of SSA nodes in topological order. A node's value has a dtype and a *set* of axes.
//! Operands are matched by axis, so broadcasting is implicit: an operand that lacks an axis is constant along
//! the axis. Only tensors that are read or written have an order of axes.
//!
//! Nodes store a `SpanId` instead of a compiler token because the run-time use of the compiler has no tokens.
//! Unused nodes may exist until `rewrite::dce`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use super::axes::{AXES_MAX, AxisId, AxisSet};
pub use super::dim::Dim;
use super::dim::DimExpr;
use super::dtype::{Const, DType};
use super::op::Op;

/// A node of the graph that the id belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// A parameter of the graph that the id belongs to, in signature order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParamId(pub u16);

/// A location in the user's source. The front end keeps the table of locations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId(pub u32);

/// Maximum number of elements along fixed axes that a thread reduces serially in unrolled code by default.
pub const UNROLLED_MAX: i64 = 64;

/// A dim that combines several axes, the last of which varies fastest. Only parameters and results use the
/// whole.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitDim {
    /// The combined axis. A call checks that this extent is the product of the parts' extents.
    pub whole: AxisId,
    /// The combined axes, outermost first.
    pub parts: Vec<AxisId>,
    /// The library function that splits the dim, if any. User code has no name for some of its parts.
    pub library: Option<Library>,
}

/// A function of the library that splits a dim of its caller.
#[derive(Clone, Debug, PartialEq)]
pub struct Library {
    /// Name of the function.
    pub function: String,
    /// The parts that have a name only in the body of the function.
    pub unnamed: AxisSet,
}

/// The use of a dim's coordinates for which a call checks the extent. Texts are extents as the user wrote
/// them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Use {
    /// An `at` of this position. The parts are the elements before the position, the element, and the rest.
    Position(Cow<'static, str>),
    /// A `slice` from the first bound up to the second, exclusive. The slice is the middle one of three
    /// parts.
    Range(Cow<'static, str>, Cow<'static, str>),
    /// A `pad` by these amounts before and after, which are the extents of the first and the last part.
    Padding(Cow<'static, str>, Cow<'static, str>),
    /// A `concat` of all parts.
    Concat,
    /// An option of the function of this name: a number that is named by the whole. The parts are the least number that
    /// it may be, and the rest.
    Option(Cow<'static, str>),
    /// A window of the function of this name along the dim, which includes padding. The parts are the window and
    /// the rest of the dim, or the only part are the positions of the window, which the dim is.
    Window(Cow<'static, str>),
    /// A `rename` of the only part.
    Rename,
    /// A function that uses all coordinates of the dim. The only part is the dim itself.
    Coordinates(Cow<'static, str>),
}

/// A dim that concatenates the elements of several parts. Operations compute coordinates along the dim from
/// the parts' extents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConcatDim {
    /// The concatenated dim. A call checks that this extent is the sum of the parts' extents and fits `i32`.
    pub whole: Dim,
    /// The parts in order. A call checks that no part has a negative extent.
    pub parts: Cow<'static, [Dim]>,
    /// The operation that the check is for, which errors name.
    pub of: Use,
}

/// The kinds of access that a function has to a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Access {
    /// Read only.
    Read,
    /// Written only.
    Write,
    /// Read and written.
    ReadWrite,
}

/// The kind of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamKind {
    /// A tensor.
    Tensor {
        /// Axes of the tensor, outermost first.
        axes: Vec<AxisId>,
        /// Access to the tensor: `Read`, or `ReadWrite` for `&mut`.
        access: Access,
    },
    /// A number that the host passes in each call.
    Scalar,
    /// An extent that the host passes in each call: the symbol of this number.
    Dim(u16),
    /// A tensor parameter that is read along other axes of the same extents. The caller passes no argument
    /// for the view.
    View {
        /// The viewed tensor, a parameter before this one.
        of: ParamId,
        /// Axes of the view, outermost first, one for each axis of the tensor.
        axes: Vec<AxisId>,
    },
}

impl ParamKind {
    /// Returns the axes of a tensor or view, outermost first.
    pub fn axes(&self) -> Option<&Vec<AxisId>> {
        match self {
            ParamKind::Tensor { axes, .. } | ParamKind::View { axes, .. } => Some(axes),
            ParamKind::Scalar | ParamKind::Dim(_) => None,
        }
    }
}

/// A parameter of the function.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Name of the parameter in the user's code.
    pub name: String,
    /// Type of the elements or of the scalar; `DType::Index` for a dim.
    pub dtype: DType,
    /// Kind of the parameter: a tensor, a scalar, an extent or a view.
    pub kind: ParamKind,
    /// Location of the declaration.
    pub span: SpanId,
}

/// The operation that combines the elements of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// The sum; 0 for no elements.
    Sum,
    /// The sum of the products of two arguments' elements, accumulated by fused multiply-adds.
    ///
    /// `rewrite::fma` forms this reduction from sums of products.
    Dot,
    /// The product; 1 for no elements.
    Prod,
    /// The maximum; NaN if any element is NaN.
    Max,
    /// The maximum of the elements that are not NaN. `rewrite::max_num` forms it where a NaN reaches the
    /// result anyway.
    MaxNum,
    /// The minimum; NaN if any element is NaN.
    Min,
}

impl Reduce {
    /// Returns the name of the reduction in user code.
    pub fn name(self) -> &'static str {
        match self {
            Reduce::Sum | Reduce::Dot => "sum",
            Reduce::Prod => "prod",
            Reduce::Max | Reduce::MaxNum => "max",
            Reduce::Min => "min",
        }
    }

    /// Returns the number of arguments whose elements are combined.
    pub fn arity(self) -> usize {
        match self {
            Reduce::Dot => 2,
            Reduce::Sum | Reduce::Prod | Reduce::Max | Reduce::MaxNum | Reduce::Min => 1,
        }
    }

    /// Returns the reduction that combines partial results of this one.
    pub fn of_parts(self) -> Reduce {
        match self {
            Reduce::Dot => Reduce::Sum,
            Reduce::Sum | Reduce::Prod | Reduce::Max | Reduce::MaxNum | Reduce::Min => self,
        }
    }

    /// Returns the identity of the reduction, which is also the result for no elements.
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

/// The computation of a node from its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// The tensor parameter or view, read along its own axes. A parameter updated in place gives its old
    /// value.
    Input(ParamId),
    /// The scalar parameter.
    Scalar(ParamId),
    /// A constant.
    Literal(Const),
    /// The coordinate along an axis, an `i32`.
    Coord(AxisId),
    /// An extent as a value of the node's dtype.
    Extent(DimExpr),
    /// A pointwise operation of the table. Its operands have one dtype unless the table's typing says
    /// otherwise.
    Apply(Op),
    /// A conversion of the argument to the node's dtype, which may also broadcast the argument along more
    /// axes.
    ///
    /// A small value can thus fill a large tensor in place. A conversion between equal dtypes costs nothing.
    Cast,
    /// A reduction of the arguments along these axes, which the result lacks.
    Reduce(Reduce, AxisSet),
    /// A gather of the first argument's elements along an axis at the coordinates of the second argument, an
    /// `i32`.
    ///
    /// The result has the other axes of the first argument and the axes of the second. An optional third
    /// argument, a truth value, is the condition under which the element exists. Where the condition is
    /// false, nothing is read and the result is 0.
    Gather(AxisId),
}

/// A node of the graph: one SSA value.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The computation of the value.
    pub kind: NodeKind,
    /// Operands of the node, all of smaller number.
    pub args: Vec<NodeId>,
    /// Type of the elements.
    pub dtype: DType,
    /// Axes along which the value may vary.
    pub axes: AxisSet,
    /// Location of the user's token that the node comes from.
    pub span: SpanId,
}

/// The destination of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dest {
    /// A new tensor that is returned.
    Fresh,
    /// The `&mut` parameter.
    InPlace(ParamId),
}

/// A result of the function.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The value. Its axes are exactly the parts of `axes`, and its dtype is the declared one.
    pub node: NodeId,
    /// Axes in memory order as the caller sees them, outermost first.
    pub axes: Vec<AxisId>,
    /// Destination of the result: returned or in place.
    pub dest: Dest,
}

/// The extent of fusion that a function's attributes allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fusing {
    /// Fusion as far as the rules allow.
    On,
    /// One kernel for each operation.
    Off,
}

/// The accuracy of operations that a function's attributes ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Math {
    /// Accuracy within the bounds of the table.
    Accurate,
    /// Accuracy of the devices' approximations.
    Fast,
    /// Accuracy within the bounds of the table, with each result rounded to its declared type like without
    /// fusion.
    Strict,
}

/// A typed function, with the user's names but without the syntax.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// Name of the function in the user's code.
    pub name: String,
    /// Names of the extents that are known only at run time; `DimOp::Sym(i)` is the i-th.
    pub symbols: Vec<String>,
    /// All axes of the function.
    pub axes: Vec<Dim>,
    /// Parameters in signature order, then views of them.
    pub params: Vec<Param>,
    /// Dims that combine several axes.
    pub splits: Vec<SplitDim>,
    /// Dims that concatenate several parts.
    pub concats: Vec<ConcatDim>,
    /// Nodes in topological order.
    pub nodes: Vec<Node>,
    /// Results: those in place first, in the order of their parameters, then those returned.
    pub outputs: Vec<Output>,
    /// Fusion mode; `Fusing::Off` for `#[fuse(off)]`.
    pub fusing: Fusing,
    /// Accuracy mode, from `#[fuse(fast_math)]`, `#[fuse(strict)]` or neither.
    pub math: Math,
    /// Fixed axes that are iterated over in loops, however few elements they have.
    pub looped: AxisSet,
    /// True if all tensors share one shape of any rank. The only axis is then the number of elements.
    pub any_shape: bool,
}

impl Graph {
    /// Creates a graph without nodes.
    pub fn new(name: &str) -> Graph {
        Graph {
            name: name.into(),
            symbols: Vec::new(),
            axes: Vec::new(),
            params: Vec::new(),
            splits: Vec::new(),
            concats: Vec::new(),
            nodes: Vec::new(),
            outputs: Vec::new(),
            fusing: Fusing::On,
            math: Math::Accurate,
            looped: AxisSet::EMPTY,
            any_shape: false,
        }
    }

    /// Returns the node of this number.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// Returns the parameter of this number.
    pub fn param(&self, id: ParamId) -> &Param {
        &self.params[usize::from(id.0)]
    }

    /// Returns the parameter whose memory the parameter reads: the viewed tensor for a view, else itself.
    pub fn memory_of(&self, id: ParamId) -> ParamId {
        match self.param(id).kind {
            ParamKind::View { of, .. } => of,
            ParamKind::Tensor { .. } | ParamKind::Scalar | ParamKind::Dim(_) => id,
        }
    }

    /// Returns the axis of this number.
    pub fn axis(&self, id: AxisId) -> &Dim {
        &self.axes[usize::from(id.0)]
    }

    /// Replaces combined axes by their parts, in memory order.
    pub fn parts(&self, axes: &[AxisId]) -> Vec<AxisId> {
        let parts = |&axis: &AxisId| match self.splits.iter().find(|split| split.whole == axis) {
            Some(split) => self.parts(&split.parts),
            None => vec![axis],
        };
        axes.iter().flat_map(parts).collect()
    }

    /// Adds a check to the calls of the function, unless an existing check covers it.
    pub fn check(&mut self, concat: ConcatDim) {
        // Every check of a dim checks the range of its coordinates, too.
        let covers = |known: &ConcatDim| match concat.of {
            Use::Coordinates(_) => known.whole == concat.whole,
            _ => *known == concat,
        };
        if !self.concats.iter().any(covers) {
            self.concats.push(concat);
        }
    }

    /// Adds an axis with the name and extent of this one.
    pub fn twin(&mut self, axis: AxisId) -> AxisId {
        self.axes.push(self.axis(axis).clone());
        AxisId((self.axes.len() - 1) as u8)
    }

    /// Iterates over all nodes with their numbers.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(i, node)| (NodeId(i as u32), node))
    }

    /// Returns true if a reduction along these axes needs a loop.
    ///
    /// A loop is needed if an axis is in `looped`, if an extent is known only at run time, or if the number
    /// of elements exceeds `UNROLLED_MAX`.
    pub fn is_looped(&self, axes: AxisSet) -> bool {
        if !axes.intersection(self.looped).is_empty() {
            return true;
        }
        let extents = axes.iter().map(|axis| self.axis(axis).extent.as_const());
        let elements = extents.reduce(|all, extent| Some(all?.saturating_mul(extent?)));
        elements.flatten().is_none_or(|elements| elements > UNROLLED_MAX)
    }

    /// Returns all axes.
    pub fn all_axes(&self) -> AxisSet {
        (0..self.axes.len()).map(|axis| AxisId(axis as u8)).collect()
    }

    /// Returns the operation of a reduction; none for other nodes.
    pub fn reduce_of(&self, id: NodeId) -> Option<Reduce> {
        if let NodeKind::Reduce(reduce, _) = self.node(id).kind { Some(reduce) } else { None }
    }

    /// Returns the axes that a node reduces; none for other nodes.
    pub fn reduced_axes(&self, id: NodeId) -> AxisSet {
        if let NodeKind::Reduce(_, axes) = self.node(id).kind { axes } else { AxisSet::EMPTY }
    }

    /// Returns the axis of a gather; none for other nodes.
    pub fn gather_of(&self, id: NodeId) -> Option<AxisId> {
        if let NodeKind::Gather(axis) = self.node(id).kind { Some(axis) } else { None }
    }

    /// Returns the axes of a node's first operand that the node replaces: those that it reduces or gathers
    /// along.
    pub fn replaced_axes(&self, id: NodeId) -> AxisSet {
        self.reduced_axes(id).union(self.gather_of(id).into_iter().collect())
    }

    /// Returns the axis of a coordinate; none for other nodes.
    pub fn coord_of(&self, id: NodeId) -> Option<AxisId> {
        if let NodeKind::Coord(axis) = self.node(id).kind { Some(axis) } else { None }
    }

    /// Returns the parameter that a node reads; none for other nodes.
    pub fn input_of(&self, id: NodeId) -> Option<ParamId> {
        if let NodeKind::Input(param) = self.node(id).kind { Some(param) } else { None }
    }

    /// Returns the value of a constant; none for other nodes.
    pub fn literal_of(&self, id: NodeId) -> Option<Const> {
        if let NodeKind::Literal(value) = self.node(id).kind { Some(value) } else { None }
    }

    /// Returns the operands of a pointwise operation; none for other operations and nodes.
    pub fn operands_of(&self, id: NodeId, op: Op) -> Option<&[NodeId]> {
        let node = self.node(id);
        (node.kind == NodeKind::Apply(op)).then_some(node.args.as_slice())
    }

    /// Returns the axes that a node reduces in a loop; none for other nodes.
    pub fn looped_axes(&self, id: NodeId) -> AxisSet {
        let axes = self.reduced_axes(id);
        if self.is_looped(axes) { axes } else { AxisSet::EMPTY }
    }

    /// Returns the axes that a node reduces in unrolled code; none for other nodes.
    pub fn unrolled_axes(&self, id: NodeId) -> AxisSet {
        self.reduced_axes(id).minus(self.looped_axes(id))
    }

    /// Returns the fixed axes that unrolled code of one thread covers for a node.
    ///
    /// The result is the axes of an unrolled reduction, or the axis of a static index.
    pub fn written_out(&self, id: NodeId) -> AxisSet {
        let indexed: AxisSet = self.static_index(id).map(|(axis, _)| axis).into_iter().collect();
        self.unrolled_axes(id).union(indexed)
    }

    /// Returns the axis and the place of a static index.
    ///
    /// An axis in `looped` gives `None`: the element is then read like any gathered one.
    pub fn static_index(&self, id: NodeId) -> Option<(AxisId, i64)> {
        let node = self.node(id);
        let (NodeKind::Gather(axis), [_, index]) = (&node.kind, node.args.as_slice()) else { return None };
        let Some(Const::Int(at)) = self.literal_of(*index) else { return None };
        let written_out = self.axis(*axis).extent.as_const().is_some() && !self.looped.contains(*axis);
        written_out.then_some((*axis, at))
    }

    /// Returns the value that a node renames, with the old and the new axis.
    ///
    /// A renaming is a gather that replaces an axis by another of the same extent.
    pub fn renamed(&self, id: NodeId) -> Option<(NodeId, AxisId, AxisId)> {
        let node = self.node(id);
        let (&NodeKind::Gather(old), &[of, place]) = (&node.kind, node.args.as_slice()) else { return None };
        let new = self.coord_of(place)?;
        let is_whole = self.axis(old).extent == self.axis(new).extent;
        (is_whole && !self.node(of).axes.contains(new)).then_some((of, old, new))
    }

    /// Appends a node.
    pub fn push(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Appends a pointwise operation, with the dtype of the table and the union of the operands' axes.
    pub fn apply(&mut self, op: Op, args: &[NodeId], span: SpanId) -> NodeId {
        let axes = args.iter().fold(AxisSet::EMPTY, |axes, &arg| axes.union(self.node(arg).axes));
        let dtypes: Vec<DType> = args.iter().map(|&arg| self.node(arg).dtype).collect();
        let dtype = op.info().typing.result(&dtypes);
        self.push(Node { kind: NodeKind::Apply(op), args: args.to_vec(), dtype, axes, span })
    }

    /// Appends the coordinate along an axis.
    pub fn coordinate(&mut self, axis: AxisId) -> NodeId {
        let (kind, axes) = (NodeKind::Coord(axis), AxisSet::EMPTY.with(axis));
        self.push(Node { kind, args: vec![], dtype: DType::I32, axes, span: SpanId(0) })
    }

    /// Appends a copy of a value, which is stored by itself.
    pub fn copy(&mut self, of: NodeId) -> NodeId {
        self.push(Node { kind: NodeKind::Cast, args: vec![of], ..self.node(of).clone() })
    }

    /// Appends a constant of this dtype.
    pub fn literal(&mut self, value: Const, dtype: DType, span: SpanId) -> NodeId {
        self.push(Node { kind: NodeKind::Literal(value), args: vec![], dtype, axes: AxisSet::EMPTY, span })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the sides of 0 on which values are. `Op::ExpOfNonpositive` is wrong for positive operands.
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
            // The value is infinite if the square root is −0, because −2 / −0 is +∞.
            inverse,
        ];
        below.into_iter().for_each(|id| assert!(graph.is_nonpositive(id), "{:?}", graph.node(id)));
        unknown.into_iter().for_each(|id| assert!(!graph.is_nonpositive(id), "{:?}", graph.node(id)));
    }
}
