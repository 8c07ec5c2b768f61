//! Interpreter of graphs in `f64` and `i64`: the reference for all other ways to run them.
//!
//! The code is written for directness. Each node is a dense array over its own axes, in the order of their
//! numbers, and its operands are first broadcast to these axes. Invariant: nothing is fused, reordered or
//! simplified.

use std::borrow::Cow;

use fusion_compiler::ir::dim::DimExpr;
use fusion_compiler::ir::dtype::{Class, Const, DType, round, saturate, wrap};
use fusion_compiler::ir::graph::{
    AxisId, AxisSet, Graph, Math, Node, NodeKind, Output, ParamId, ParamKind, Reduce,
};
use fusion_compiler::ir::op::Op;

/// Rounding of the values of float nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Values stay `f64`: nearly the exact result.
    None,
    /// Values are rounded to the dtype that the node is computed in, and again where they are stored: the
    /// result of unfused kernels.
    EachNode,
}

/// Returns the results of a graph, in the order of its outputs. Each has the declared order of axes,
/// outermost first.
///
/// `params` has a value for each parameter that is not a view, in order: all elements of a tensor, or one
/// number for a scalar or an extent. Integers and `bool` values (0 and 1) are given as floats. `symbols` are
/// the extents, by number.
///
/// # Panics
/// If a parameter has too few elements, or an extent cannot be computed.
pub fn interpret(graph: &Graph, params: &[Vec<f64>], symbols: &[i64], rounding: Rounding) -> Vec<Vec<f64>> {
    let run = Evaluator { graph, params, symbols, rounding };
    let mut values: Vec<Array> = Vec::new();
    for (_, node) in graph.iter() {
        let value = run.node(node, &values);
        values.push(value);
    }
    let output = |out: &Output| {
        let axes = graph.parts(&out.axes);
        let elements = run.over(&axes, &values[out.node.0 as usize]);
        let dtype = graph.node(out.node).dtype;
        elements.iter().map(|&element| run.narrowed(dtype, element).to_f64()).collect()
    };
    graph.outputs.iter().map(output).collect()
}

/// Element of an array.
#[derive(Clone, Copy)]
enum Element {
    Float(f64),
    Int(i64),
}

/// Elements of a node over its own axes, innermost last.
struct Array {
    axes: Vec<AxisId>,
    shape: Vec<usize>,
    elements: Vec<Element>,
}

struct Evaluator<'a> {
    graph: &'a Graph,
    params: &'a [Vec<f64>],
    symbols: &'a [i64],
    rounding: Rounding,
}

impl Evaluator<'_> {
    fn node(&self, node: &Node, values: &[Array]) -> Array {
        let axes: Vec<AxisId> = node.axes.iter().collect();
        let mut elements = self.elements(node, values, &axes);
        elements.iter_mut().for_each(|element| *element = self.round(node.dtype, *element));
        Array { shape: self.shape(&axes), axes, elements }
    }

    /// Returns the elements of a node at all points of its axes.
    fn elements(&self, node: &Node, values: &[Array], axes: &[AxisId]) -> Vec<Element> {
        let (dtype, shape) = (node.dtype, self.shape(axes));
        let all = |element: Element| vec![element; shape.iter().product()];
        let array = |number: usize| &values[node.args[number].0 as usize];
        let arg = |number: usize| self.over(axes, array(number));
        match &node.kind {
            NodeKind::Input(id) => self.input(*id, dtype, axes),
            NodeKind::Scalar(id) => all(Element::of(dtype, self.params[usize::from(id.0)][0])),
            NodeKind::Literal(value) => all(Element::of_const(dtype, *value)),
            NodeKind::Extent(extent) => all(Element::of(dtype, self.size(extent) as f64)),
            NodeKind::Coord(axis) => {
                let coordinates = places(&strides(&[*axis], &[1], axes), &shape);
                coordinates.into_iter().map(|at| Element::of(dtype, at as f64)).collect()
            }
            NodeKind::Apply(op) => {
                let args: Vec<Cow<'_, [Element]>> = (0..node.args.len()).map(arg).collect();
                let last = self.graph.node(node.args[args.len() - 1]).dtype;
                let element = |i: usize| apply(*op, args.len(), last, dtype, |operand| args[operand][i]);
                (0..args[0].len()).map(element).collect()
            }
            NodeKind::Cast if array(0).axes != axes && self.graph.node(node.args[0]).dtype == dtype => {
                arg(0).into_owned()
            }
            NodeKind::Cast => arg(0).iter().map(|&element| cast(element, dtype)).collect(),
            NodeKind::Reduce(reduce, over) => {
                let args: Vec<&Array> = (0..node.args.len()).map(array).collect();
                self.reduce(*reduce, *over, &args, dtype, axes)
            }
            NodeKind::Gather(axis) => {
                // The gathered axis has a stride of its own, even if the result has the same axis.
                let mut strides = strides(&array(0).axes, &array(0).shape, &[axes, &[*axis]].concat());
                let along = strides.pop().expect("the last");
                let (starts, index) = (places(&strides, &shape), arg(1));
                let within = (node.args.len() > 2).then(|| arg(2));
                let extent = self.extent(*axis);
                let at = |i: usize| {
                    if within.as_ref().is_some_and(|within| within[i].to_i64() == 0) {
                        return Element::of(dtype, 0.0);
                    }
                    let index = usize::try_from(index[i].to_i64()).expect("a coordinate is not negative");
                    assert!(index < extent, "a coordinate is below the extent");
                    array(0).elements[starts[i] + index * along]
                };
                (0..index.len()).map(at).collect()
            }
        }
    }

    fn input(&self, id: ParamId, dtype: DType, axes: &[AxisId]) -> Vec<Element> {
        let (of, order) = match &self.graph.param(id).kind {
            ParamKind::Tensor { axes, .. } => (id, axes),
            ParamKind::View { of, axes } => (*of, axes),
            ParamKind::Scalar | ParamKind::Dim(_) => unreachable!("an input is a tensor"),
        };
        let (given, strides) = (&self.params[usize::from(of.0)], strides(order, &self.shape(order), axes));
        let places = places(&strides, &self.shape(axes));
        places.into_iter().map(|place| Element::of(dtype, given[place])).collect()
    }

    fn reduce(
        &self,
        reduce: Reduce,
        over: AxisSet,
        args: &[&Array],
        dtype: DType,
        axes: &[AxisId],
    ) -> Vec<Element> {
        let op = match reduce {
            Reduce::Sum => Op::Add,
            Reduce::Dot => Op::Fma,
            Reduce::Prod => Op::Mul,
            Reduce::Max => Op::Max,
            Reduce::MaxNum => Op::MaxNum,
            Reduce::Min => Op::Min,
        };
        let over: Vec<AxisId> = over.iter().collect();
        let count = |axes: &[AxisId]| self.shape(axes).iter().product::<usize>();
        let (all, each) = ([axes, &over].concat(), count(&over));
        let terms: Vec<Cow<'_, [Element]>> = args.iter().map(|arg| self.over(&all, arg)).collect();
        let nothing = nothing(reduce, dtype);
        // The accumulator is the last operand, as in `fma`. The other operations are commutative.
        let with = |so_far: Element, at: usize| {
            let operand = |i: usize| terms.get(i).map_or(so_far, |terms| terms[at]);
            apply(op, terms.len() + 1, dtype, dtype, operand)
        };
        let fold = |i: usize| (i * each..(i + 1) * each).fold(nothing, with);
        (0..count(axes)).map(fold).collect()
    }

    /// Broadcasts an array to axes that include its own.
    fn over<'e>(&self, axes: &[AxisId], array: &'e Array) -> Cow<'e, [Element]> {
        if axes == array.axes {
            return Cow::Borrowed(&array.elements);
        }
        if let [element] = array.elements[..] {
            return Cow::Owned(vec![element; self.shape(axes).iter().product()]);
        }
        let strides = strides(&array.axes, &array.shape, axes);
        let places = places(&strides, &self.shape(axes));
        Cow::Owned(places.into_iter().map(|place| array.elements[place]).collect())
    }

    fn round(&self, dtype: DType, element: Element) -> Element {
        let Element::Float(x) = element else { return element };
        let to = match (self.rounding, self.graph.math) {
            (Rounding::None, _) => return element,
            (Rounding::EachNode, Math::Strict) => dtype,
            (Rounding::EachNode, Math::Accurate | Math::Fast) => dtype.computed(),
        };
        Element::Float(round(to, x))
    }

    /// Rounds an element to the dtype that it is stored in.
    fn narrowed(&self, dtype: DType, element: Element) -> Element {
        match (element, self.rounding) {
            (Element::Float(x), Rounding::EachNode) if dtype.is_narrow() => Element::Float(round(dtype, x)),
            (Element::Float(_) | Element::Int(_), Rounding::None | Rounding::EachNode) => element,
        }
    }

    fn shape(&self, axes: &[AxisId]) -> Vec<usize> {
        axes.iter().map(|&axis| self.extent(axis)).collect()
    }

    fn extent(&self, axis: AxisId) -> usize {
        usize::try_from(self.size(&self.graph.axis(axis).extent)).expect("an extent is not negative")
    }

    fn size(&self, extent: &DimExpr) -> i64 {
        extent.eval(self.symbols).expect("every extent has a value")
    }
}

/// Returns the strides along `axes` of a dense array over `over`, whose last axis is innermost. `axes`
/// includes `over`.
fn strides(over: &[AxisId], shape: &[usize], axes: &[AxisId]) -> Vec<usize> {
    let (mut strides, mut stride) = (vec![0; axes.len()], 1);
    for (axis, extent) in over.iter().zip(shape).rev() {
        let place = axes.iter().rposition(|other| other == axis);
        strides[place.expect("a point has the axes of what it is used for")] = stride;
        stride *= extent;
    }
    strides
}

/// Returns the positions at all points of a box with these strides. The last coordinate varies fastest.
fn places(strides: &[usize], shape: &[usize]) -> Vec<usize> {
    let mut starts = vec![0];
    for (stride, &extent) in strides.iter().zip(shape).filter(|(_, extent)| **extent != 1) {
        let mut places = Vec::with_capacity(starts.len() * extent);
        for start in starts {
            places.extend((0..extent).map(|at| start + at * stride));
        }
        starts = places;
    }
    starts
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

/// Applies an operation of the table to `count` operands, given by number. The last operand has dtype `last`.
/// A float result of integers is given by its bits.
fn apply(op: Op, count: usize, last: DType, result: DType, operand: impl Fn(usize) -> Element) -> Element {
    if op == Op::Select {
        return operand(if operand(0).to_i64() != 0 { 1 } else { 2 });
    }
    // Arrays avoid allocations, which would take most of the time.
    match last.class() {
        Class::Float => {
            let mut values = [0.0; 3];
            (0..count).for_each(|i| values[i] = operand(i).to_f64());
            Element::of(result, (op.info().eval.float)(&values[..count]))
        }
        Class::Int | Class::Uint | Class::Bool => {
            let mut values = [0; 3];
            (0..count).for_each(|i| values[i] = operand(i).to_i64());
            let bits = (op.info().eval.int)(&values[..count], last.bits());
            match result {
                DType::F32 => Element::Float(f32::from_bits(bits as u32).into()),
                DType::F64 => Element::Float(f64::from_bits(bits as u64)),
                result => Element::Int(wrap(result, bits)),
            }
        }
    }
}

/// Converts like Rust's `as`: floats truncate and saturate, integers wrap. The conversion to `bool` compares
/// with 0.
fn cast(value: Element, dtype: DType) -> Element {
    match (value, dtype.class()) {
        (_, Class::Float) if dtype.is_narrow() => Element::Float(round(dtype, value.to_f64())),
        (_, Class::Float) => Element::Float(value.to_f64()),
        (_, Class::Bool) => Element::Int(i64::from(value.to_f64() != 0.0)),
        (Element::Float(x), Class::Int | Class::Uint) => Element::Int(saturate(dtype, x)),
        (Element::Int(x), Class::Int | Class::Uint) => Element::Int(wrap(dtype, x)),
    }
}

/// Returns the result of a reduction over no elements.
fn nothing(reduce: Reduce, dtype: DType) -> Element {
    match reduce.identity(dtype) {
        Const::Float(x) => Element::of(dtype, x),
        Const::Int(x) => Element::Int(x),
        Const::Bool(x) => Element::Int(i64::from(x)),
    }
}
