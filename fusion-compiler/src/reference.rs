//! Interprets a Graph node by node in `f64` and `i64`: what every other way to run it is compared with.
//!
//! Written for directness: each node is a dense array over its own axes, in the order of their numbers.
//! Invariant: nothing is fused, reordered or simplified.

use crate::ir::dim::DimExpr;
use crate::ir::dtype::{Class, Const, DType, wrap};
use crate::ir::graph::{AxisId, AxisSet, Graph, Node, NodeId, NodeKind, ParamId, ParamKind, Reduce};
use crate::ir::ops::Op;

/// What happens to the value of a float node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// It stays an `f64`: the exact result, nearly.
    None,
    /// It is rounded to the node's type: the result of unfused kernels.
    EachNode,
}

/// The results of a graph, in the order of its outputs, each in the declared order of axes, outermost first.
///
/// `params` holds a value for each parameter but views, in order: all elements of a tensor, or one number for a scalar or an
/// extent; integers and truth values (0 and 1) as floats. `symbols` are the extents, by number.
///
/// # Panics
/// Where a parameter has too few elements, or an extent cannot be computed.
pub fn interpret(graph: &Graph, params: &[Vec<f64>], symbols: &[i64], rounding: Rounding) -> Vec<Vec<f64>> {
    let run = Run { graph, params, symbols, rounding };
    let mut values: Vec<Array> = Vec::new();
    for (_, node) in graph.iter() {
        let value = run.node(node, &values);
        values.push(value);
    }
    let output = |node: NodeId, axes: &[AxisId]| {
        let shape: Vec<usize> = axes.iter().map(|&axis| run.extent(axis)).collect();
        let mut elements = Vec::new();
        each_point(&shape, |point| elements.push(values[node.0 as usize].at(axes, point).to_f64()));
        elements
    };
    graph.outputs.iter().map(|out| output(out.node, &graph.parts(&out.axes))).collect()
}

/// One element.
#[derive(Clone, Copy)]
enum Element {
    Float(f64),
    Int(i64),
}

/// The elements of a node over its own axes, the last one fastest.
struct Array {
    axes: Vec<AxisId>,
    shape: Vec<usize>,
    elements: Vec<Element>,
}

struct Run<'a> {
    graph: &'a Graph,
    params: &'a [Vec<f64>],
    symbols: &'a [i64],
    rounding: Rounding,
}

impl Run<'_> {
    fn node(&self, node: &Node, values: &[Array]) -> Array {
        let axes: Vec<AxisId> = node.axes.iter().collect();
        let shape: Vec<usize> = axes.iter().map(|&axis| self.extent(axis)).collect();
        let args: Vec<&Array> = node.args.iter().map(|arg| &values[arg.0 as usize]).collect();
        let mut elements = Vec::new();
        each_point(&shape, |point| {
            elements.push(self.round(node.dtype, self.element(node, &args, &axes, point)));
        });
        Array { axes, shape, elements }
    }

    fn element(&self, node: &Node, args: &[&Array], axes: &[AxisId], point: &[usize]) -> Element {
        let coordinate = |axis: AxisId| coordinate(axes, point, axis);
        match &node.kind {
            NodeKind::Input(id) => self.input(*id, node.dtype, axes, point),
            NodeKind::Scalar(id) => Element::of(node.dtype, self.params[usize::from(id.0)][0]),
            NodeKind::Literal(value) => Element::of_const(node.dtype, *value),
            NodeKind::Coord(axis) => Element::of(node.dtype, coordinate(*axis) as f64),
            NodeKind::Extent(extent) => Element::of(node.dtype, self.size(extent) as f64),
            NodeKind::Apply(op) => {
                let last = &self.graph.node(node.args[node.args.len() - 1]).dtype;
                let elements = each(args, Element::Int(0), |arg| arg.at(axes, point));
                apply(*op, &elements[..args.len()], *last, node.dtype)
            }
            NodeKind::Cast => cast(args[0].at(axes, point), node.dtype),
            NodeKind::Reduce(reduce, over) => self.reduce(*reduce, *over, args[0], node.dtype, (axes, point)),
            NodeKind::At(axis) if args.get(2).is_none_or(|within| within.at(axes, point).to_i64() != 0) => {
                let index = args[1].at(axes, point).to_i64();
                let index = usize::try_from(index).expect("a coordinate is not negative");
                assert!(index < self.extent(*axis), "a coordinate is below the extent");
                let others = axes.iter().zip(point).filter(|(other, _)| *other != axis);
                let (axes, point): (Vec<AxisId>, Vec<usize>) = others.chain([(axis, &index)]).unzip();
                args[0].at(&axes, &point)
            }
            NodeKind::At(_) => Element::of(node.dtype, 0.0),
        }
    }

    fn input(&self, id: ParamId, dtype: DType, axes: &[AxisId], point: &[usize]) -> Element {
        let (of, order) = match &self.graph.param(id).kind {
            ParamKind::Tensor { axes, .. } => (id, axes),
            ParamKind::View { of, axes } => (*of, axes),
            ParamKind::Scalar | ParamKind::Dim(_) => unreachable!("an input is a tensor"),
        };
        let offset =
            order.iter().fold(0, |offset, &axis| offset * self.extent(axis) + coordinate(axes, point, axis));
        Element::of(dtype, self.params[usize::from(of.0)][offset])
    }

    fn reduce(
        &self,
        reduce: Reduce,
        over: AxisSet,
        arg: &Array,
        dtype: DType,
        (axes, point): (&[AxisId], &[usize]),
    ) -> Element {
        let op = match reduce {
            Reduce::Sum => Op::Add,
            Reduce::Prod => Op::Mul,
            Reduce::Max => Op::Max,
            Reduce::Min => Op::Min,
        };
        let over: Vec<AxisId> = over.iter().collect();
        let shape: Vec<usize> = over.iter().map(|&axis| self.extent(axis)).collect();
        let axes: Vec<AxisId> = axes.iter().chain(&over).copied().collect();
        let mut folded = nothing(reduce, dtype);
        each_point(&shape, |inner| {
            let point: Vec<usize> = point.iter().chain(inner).copied().collect();
            folded = apply(op, &[folded, arg.at(&axes, &point)], dtype, dtype);
        });
        folded
    }

    fn round(&self, dtype: DType, element: Element) -> Element {
        match (element, self.rounding, dtype) {
            (Element::Float(x), Rounding::EachNode, DType::F32) => Element::Float(f64::from(x as f32)),
            (
                Element::Float(_) | Element::Int(_),
                Rounding::None | Rounding::EachNode,
                DType::F32
                | DType::F64
                | DType::F16
                | DType::BF16
                | DType::I32
                | DType::U32
                | DType::I8
                | DType::U8
                | DType::Bool
                | DType::Index,
            ) => element,
        }
    }

    fn extent(&self, axis: AxisId) -> usize {
        usize::try_from(self.size(&self.graph.axis(axis).extent)).expect("an extent is not negative")
    }

    fn size(&self, extent: &DimExpr) -> i64 {
        extent.eval(self.symbols).expect("every extent has a value")
    }
}

impl Array {
    /// The element at a point of axes that have all of this array's; it is constant along the others.
    fn at(&self, axes: &[AxisId], point: &[usize]) -> Element {
        let offset = self
            .axes
            .iter()
            .zip(&self.shape)
            .fold(0, |offset, (&axis, extent)| offset * extent + coordinate(axes, point, axis));
        self.elements[offset]
    }
}

impl Element {
    fn of(dtype: DType, value: f64) -> Element {
        if dtype.is_float() { Element::Float(value) } else { Element::Int(value as i64) }
    }

    fn of_const(dtype: DType, value: Const) -> Element {
        match value {
            Const::Float(x) => Element::of(dtype, x),
            Const::Int(x) if dtype.is_float() => Element::Float(x as f64),
            Const::Int(x) => Element::Int(x),
            Const::Bool(x) => Element::Int(i64::from(x)),
        }
    }

    fn to_f64(self) -> f64 {
        match self {
            Element::Float(x) => x,
            Element::Int(x) => x as f64,
        }
    }

    fn to_i64(self) -> i64 {
        match self {
            Element::Float(x) => x as i64,
            Element::Int(x) => x,
        }
    }
}

/// An operation of the table on elements whose last has type `operands`.
fn apply(op: Op, args: &[Element], operands: DType, result: DType) -> Element {
    if op == Op::Select {
        return if args[0].to_i64() != 0 { args[1] } else { args[2] };
    }
    let eval = op.info().eval;
    match operands.class() {
        Class::Float => {
            let values = each(args, 0.0, |arg| arg.to_f64());
            Element::of(result, (eval.float)(&values[..args.len()]))
        }
        Class::Int | Class::Uint | Class::Bool => {
            let values = each(args, 0, |arg| arg.to_i64());
            let bits = 8 * operands.size() as u32;
            Element::Int(wrap(result, (eval.int)(&values[..args.len()], bits)))
        }
    }
}

/// The most operands that an operation has.
const ARITY_MAX: usize = 3;

/// Something of each operand, and `rest` for those that there are not: lists of them would cost most of the time.
fn each<A, B: Copy>(args: &[A], rest: B, of: impl Fn(&A) -> B) -> [B; ARITY_MAX] {
    let mut all = [rest; ARITY_MAX];
    all.iter_mut().zip(args).for_each(|(place, arg)| *place = of(arg));
    all
}

/// Conversion as Rust's `as`: floats to integers truncate and saturate, integers wrap; to `bool`, whether it is not 0.
fn cast(value: Element, dtype: DType) -> Element {
    match (value, dtype) {
        (_, DType::F32 | DType::F64 | DType::F16 | DType::BF16) => Element::Float(value.to_f64()),
        (_, DType::Bool) => Element::Int(i64::from(value.to_f64() != 0.0)),
        (Element::Float(x), DType::I32) => Element::Int(i64::from(x as i32)),
        (Element::Float(x), DType::U32) => Element::Int(i64::from(x as u32)),
        (Element::Float(x), DType::I8) => Element::Int(i64::from(x as i8)),
        (Element::Float(x), DType::U8) => Element::Int(i64::from(x as u8)),
        (Element::Float(x), DType::Index) => Element::Int((x as i64).max(0)),
        (Element::Int(x), DType::I32 | DType::U32 | DType::I8 | DType::U8 | DType::Index) => {
            Element::Int(wrap(dtype, x))
        }
    }
}

/// What a reduction of no elements gives.
fn nothing(reduce: Reduce, dtype: DType) -> Element {
    match reduce.identity(dtype) {
        Const::Float(x) => Element::of(dtype, x),
        Const::Int(x) => Element::Int(x),
        Const::Bool(x) => Element::Int(i64::from(x)),
    }
}

fn coordinate(axes: &[AxisId], point: &[usize], axis: AxisId) -> usize {
    let place =
        axes.iter().position(|&other| other == axis).expect("a point has the axes of what it is used for");
    point[place]
}

/// Visits all points of a box, the last coordinate fastest.
fn each_point(shape: &[usize], mut visit: impl FnMut(&[usize])) {
    let mut point = vec![0; shape.len()];
    for _ in 0..shape.iter().product() {
        visit(&point);
        for (place, &extent) in point.iter_mut().zip(shape).rev() {
            *place += 1;
            if *place < extent {
                break;
            }
            *place = 0;
        }
    }
}
