//! Pointwise groups: every element of the space by itself.
//!
//! On GPUs a thread takes as many elements as a 128-bit access holds, in a loop over the whole launch; on the
//! CPU an item is a run of elements within a row. Positions are decoded from the number of the element only
//! for operands that lack an axis or have them in another order.

use super::body::{Body, Place};
use super::space::{SpaceDim, dims, reach};
use super::{Scheduled, Work};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::Access;
use crate::ir::kernel::{Expr, IndexWidth, Lanes, LoopKind, Stmt, Type, Value};
use crate::ir::ops::Op;
use crate::ir::plan::{Condition, Reach, Space, UniformArg};
use crate::target::{TargetFacts, Vectors};

/// Elements of the largest tensor that 32-bit positions reach.
const BITS32_MAX: i64 = i32::MAX as i64;

const INDEX: Type = Type { dtype: DType::Index, lanes: Lanes::ONE };

/// The ways to run a pointwise group.
pub fn pointwise(work: &Work<'_>, facts: &TargetFacts) -> Vec<Scheduled> {
    let dims = dims(work.graph, work.group, &work.operands);
    match facts.vector {
        Vectors::Loops(grain) => vec![on_cpu(work, facts, &dims, grain)],
        Vectors::Lanes(lanes) => {
            let narrow = if facts.wide {
                vec![IndexWidth::Bits32, IndexWidth::Bits64]
            } else {
                vec![IndexWidth::Bits32]
            };
            let lanes = if work.group.unrolled.is_empty() { vec![lanes, 1] } else { vec![1] };
            // A line needs no variant of one lane: the last elements are done one by one.
            let lanes = if dims.len() == 1 { &lanes[..1] } else { &lanes[..] };
            let ways = narrow.iter().flat_map(|&index| lanes.iter().map(move |&lanes| (index, lanes)));
            let last = ways.clone().count() - 1;
            ways.enumerate()
                .map(|(i, (index, lanes))| on_gpu(work, facts, &dims, Way { index, lanes, last: i == last }))
                .collect()
        }
    }
}

/// A variant of a GPU kernel.
struct Way {
    index: IndexWidth,
    lanes: u8,
    /// Whether it must do for whatever the others do not.
    last: bool,
}

fn on_gpu(work: &Work<'_>, facts: &TargetFacts, dims: &[SpaceDim], way: Way) -> Scheduled {
    let lanes = i64::from(way.lanes);
    let mut when = Vec::new();
    if way.index == IndexWidth::Bits32 && facts.wide {
        when.extend(lengths(work).into_iter().map(|len| Condition::AtMost(len, BITS32_MAX)));
    }
    if lanes > 1 && dims.len() > 1 {
        when.push(Condition::Divides(dims[dims.len() - 1].extent.clone(), lanes));
    }
    if way.last {
        when.clear();
    }
    let suffix = match (way.index, way.lanes) {
        (IndexWidth::Bits32, 1) => "",
        (IndexWidth::Bits32, _) => "_v4",
        (IndexWidth::Bits64, 1) => "_wide",
        (IndexWidth::Bits64, _) => "_v4_wide",
    };
    let mut body = Body::new(work, facts, dims, format!("{}{suffix}", work.name), way.index);
    let start = body.uniform(UniformArg::Start, DType::Index, "start");
    let end = body.uniform(UniformArg::End, DType::Index, "end");
    if lanes == 1 {
        grid_loop(&mut body, (start, end), 1);
    } else if dims.len() > 1 {
        grid_loop(&mut body, (start, end), way.lanes);
    } else {
        let mut b = body.top();
        let by = b.index(lanes);
        let count = b.apply(Op::Sub, &[end, start]);
        let rest = b.apply(Op::IntRem, &[count, by]);
        let whole = b.apply(Op::Sub, &[end, rest]);
        grid_loop(&mut body, (start, whole), way.lanes);
        grid_loop(&mut body, (whole, end), 1);
    }
    scheduled(work, dims, body, when, u32::from(way.lanes))
}

/// A loop over elements, dealt out to all threads, `lanes` at a time.
fn grid_loop(body: &mut Body<'_>, (start, end): (Value, Value), lanes: u8) {
    let step = body.top().index(i64::from(lanes));
    let var = body.top().declare(INDEX);
    let coordinates = body.decode(var);
    body.compute(&Place { element: var, coordinates, lanes: Lanes::Const(lanes) });
    let (mut inside, inner) = body.take();
    inside.extend(inner);
    body.push(Stmt::Loop { var, kind: LoopKind::Grid, start, end, step, body: inside });
}

fn on_cpu(work: &Work<'_>, facts: &TargetFacts, dims: &[SpaceDim], grain: u32) -> Scheduled {
    let mut body = Body::new(work, facts, dims, work.name.into(), IndexWidth::Bits64);
    let cols = body.extent(&dims[dims.len() - 1].extent);
    let mut top = body.top();
    let (zero, one, grain_value) = (top.index(0), top.index(1), top.index(i64::from(grain)));
    let up = top.index(i64::from(grain) - 1);
    let padded = top.apply(Op::Add, &[cols, up]);
    let blocks = top.apply(Op::IntDiv, &[padded, grain_value]);
    let item = top.declare(INDEX);

    let mut b = body.item();
    let row = b.apply(Op::IntDiv, &[item, blocks]);
    let block = b.apply(Op::IntRem, &[item, blocks]);
    let col = b.apply(Op::Mul, &[block, grain_value]);
    let left = b.apply(Op::Sub, &[cols, col]);
    let len = b.apply(Op::Min, &[left, grain_value]);
    let before = b.apply(Op::Mul, &[row, cols]);
    let element = b.apply(Op::Add, &[before, col]);
    let mut coordinates = body.decode_outer(row);
    coordinates.push(col);
    body.compute(&Place { element, coordinates, lanes: Lanes::Loop });

    let (mut inside, inner) = body.take();
    inside.push(Stmt::Vector { len, body: inner });
    body.push(Stmt::Loop { var: item, kind: LoopKind::Grid, start: zero, end: one, step: one, body: inside });
    scheduled(work, dims, body, vec![], grain)
}

fn scheduled(
    work: &Work<'_>,
    dims: &[SpaceDim],
    body: Body<'_>,
    when: Vec<Condition>,
    grain: u32,
) -> Scheduled {
    let (outer, inner) = dims.split_at(dims.len() - 1);
    let rows = DimExpr::product(outer.iter().map(|dim| &dim.extent));
    let reach: Vec<Reach> =
        work.operands.iter().map(|operand| reach(work.graph, work.group, operand)).collect();
    for (operand, reach) in work.operands.iter().zip(&reach) {
        debug_assert!(operand.access == Access::Read || *reach != Reach::Whole, "writes are linear");
    }
    let space = Space { rows, cols: inner[0].extent.clone(), grain };
    Scheduled { when, kernel: body.finish(), reach, space }
}

/// The numbers of elements of the operands, each once.
fn lengths(work: &Work<'_>) -> Vec<DimExpr> {
    let mut lengths: Vec<DimExpr> = Vec::new();
    for operand in &work.operands {
        let len = DimExpr::product(operand.axes.iter().map(|&axis| &work.graph.axis(axis).extent));
        if len.as_const().is_none() && !lengths.contains(&len) {
            lengths.push(len);
        }
    }
    lengths
}

/// The numbers of the lanes, as an expression of a body.
pub(super) fn lane_index(body: &mut Body<'_>, lanes: Lanes) -> Value {
    body.inner().bind(Type { dtype: DType::Index, lanes }, Expr::LaneIndex)
}
