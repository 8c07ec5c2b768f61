//! Pointwise groups: every element of the space by itself.
//!
//! On GPUs a thread takes as many elements as a 128-bit access holds, in a loop over the whole launch; on the
//! CPU an item is a run of elements within a row. Positions are decoded from the number of the element only
//! for operands that lack an axis or have them in another order. What has them in another order is read across: threads next
//! to each other take elements that are next to each other there (`coalesce_transposed.rs`).

use super::body::{Addressing, Body, Place, is_windowed};
use super::coalesce_transposed::{Across, across};
use super::collapse_loops::line;
use super::items::{Grain, Items, scheduled};
use super::space::{SpaceDim, bytes, dims, lanes, width_conditions, widths};
use super::{Scheduled, Work};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::kernel::{IndexWidth, Lanes, LoopKind, Stmt, Type, Value};
use crate::ir::op::Op;
use crate::ir::plan::{Condition, UniformArg};
use crate::target::{TargetFacts, Vectors};

const INDEX: Type = Type { dtype: DType::Index, lanes: Lanes::ONE };

/// The ways to run a pointwise group.
pub(super) fn pointwise(work: &Work<'_>, facts: &TargetFacts) -> Vec<Scheduled> {
    let dims = dims(work.graph, work.group, &work.operands);
    match facts.vector {
        Vectors::Loops(grain) => line(work, facts, &dims)
            .into_iter()
            .chain([on_cpu(work, facts, &dims, Grain::Const(grain))])
            .collect(),
        Vectors::Lanes(most) => {
            let one = dims.iter().all(|dim| dim.extent.as_const() == Some(1));
            let alone = one || !work.group.unrolled.is_empty();
            let lanes = if alone { vec![1] } else { vec![lanes(work, facts, most), 1] };
            let lanes = if is_line(work, &dims) { &lanes[..1] } else { &lanes[..] };
            let widths = widths(work, facts);
            let config = |index, lanes| PointwiseConfig { index, lanes, sight: Addressing::Whole };
            let mut configs: Vec<PointwiseConfig> = widths
                .iter()
                .flat_map(|&index| lanes.iter().map(move |&lanes| config(index, lanes)))
                .collect();
            if facts.rebased && !whole_bytes(work).is_empty() {
                configs.push(PointwiseConfig {
                    index: IndexWidth::Bits32,
                    lanes: 1,
                    sight: Addressing::Windowed,
                });
            }
            let mut scheduled: Vec<Scheduled> =
                configs.into_iter().map(|config| on_gpu(work, facts, &dims, config)).collect();
            // The last must do for whatever the others do not.
            if let Some(last) = scheduled.last_mut() {
                last.when.clear();
            }
            scheduled
        }
    }
}

/// A variant of a GPU kernel.
struct PointwiseConfig {
    index: IndexWidth,
    lanes: u8,
    sight: Addressing,
}

fn on_gpu(work: &Work<'_>, facts: &TargetFacts, dims: &[SpaceDim], config: PointwiseConfig) -> Scheduled {
    let lanes = i64::from(config.lanes);
    let mut when = width_conditions(work, facts, config.index);
    if lanes > 1 && !is_line(work, dims) {
        when.push(Condition::Divides(dims[dims.len() - 1].extent.clone(), lanes));
    }
    if facts.rebased {
        when.extend(whole_bytes(work).into_iter().map(Condition::Binds));
    }
    let vector = if config.lanes > 1 { format!("_v{}", config.lanes) } else { String::new() };
    let suffix = match (config.sight, config.index) {
        (Addressing::Windowed, _) => "_windows",
        (Addressing::Whole, IndexWidth::Bits32) => "",
        (Addressing::Whole, IndexWidth::Bits64) => "_wide",
    };
    let name = format!("{}{vector}{suffix}", work.name);
    let mut body = Body::new(work, facts, dims, name, (config.index, config.sight));
    let start = body.uniform(UniformArg::Start, DType::Index, "start");
    let end = body.uniform(UniformArg::End, DType::Index, "end");
    if lanes == 1 || !is_line(work, dims) {
        grid_loop(&mut body, (start, end), config.lanes, across(work, dims, config.lanes));
    } else {
        let mut b = body.top();
        let by = b.index(lanes);
        let count = b.apply(Op::Sub, &[end, start]);
        let rest = b.apply(Op::IntRem, &[count, by]);
        let whole = b.apply(Op::Sub, &[end, rest]);
        grid_loop(&mut body, (start, whole), config.lanes, None);
        rest_loop(&mut body, (whole, end), config.lanes);
    }
    scheduled(dims, body, when, u32::from(config.lanes))
}

/// Whether positions are those of elements in a line. It needs no variant of one lane: the last elements are done one by
/// one. What is read at other places is not on it, and starts at multiples of the lanes only if the extent is one.
fn is_line(work: &Work<'_>, dims: &[SpaceDim]) -> bool {
    dims.len() == 1 && !work.operands.iter().any(|operand| operand.moved)
}

/// A loop over elements, dealt out to all threads, `lanes` at a time.
fn grid_loop(body: &mut Body<'_>, (start, end): (Value, Value), lanes: u8, across: Option<Across>) {
    let step = body.top().index(i64::from(lanes));
    let var = body.top().declare(INDEX);
    let element = across.map_or(var, |across| across.element(body, (start, end), var, lanes));
    let inside = elements(body, element, lanes);
    body.push(Stmt::Loop { var, kind: LoopKind::Grid, start, end, step, carried: vec![], body: inside });
}

/// A loop over the fewer than `lanes` elements that are left. One thread takes them all: on some GPUs, writing one
/// element of a vector writes back the others as they were.
fn rest_loop(body: &mut Body<'_>, (start, end): (Value, Value), lanes: u8) {
    let (all, one) = (body.top().index(i64::from(lanes)), body.top().index(1));
    let (first, var) = (body.top().declare(INDEX), body.top().declare(INDEX));
    let inside = elements(body, var, 1);
    let serial = Stmt::Loop {
        var,
        kind: LoopKind::Serial,
        start: first,
        end,
        step: one,
        carried: vec![],
        body: inside,
    };
    body.push(Stmt::Loop {
        var: first,
        kind: LoopKind::Remainder,
        start,
        end,
        step: all,
        carried: vec![],
        body: vec![serial],
    });
}

/// The work on `lanes` elements, of which this is the first.
fn elements(body: &mut Body<'_>, element: Value, lanes: u8) -> Vec<Stmt> {
    let coordinates = body.decode(element);
    body.compute(&Place { element, coordinates, lanes: Lanes::Const(lanes), apart: false, in_row: None });
    let (mut stmts, inner) = body.take();
    stmts.extend(inner);
    stmts
}

/// The kernel of the CPU over these dims, whose items are runs of elements.
pub(super) fn on_cpu(work: &Work<'_>, facts: &TargetFacts, dims: &[SpaceDim], grain: Grain) -> Scheduled {
    let mut body = Body::new(work, facts, dims, work.name.into(), (IndexWidth::Bits64, Addressing::Whole));
    let items = Items::of(&mut body, &dims[dims.len() - 1].extent, grain);
    let Items { row, element, col, len, .. } = items;
    let mut coordinates = body.decode_outer(row);
    coordinates.push(col);
    body.compute(&Place { element, coordinates, lanes: Lanes::Loop, apart: false, in_row: None });
    let (mut inside, inner) = body.take();
    inside.push(Stmt::Vector { len, body: inner, folds: vec![] });
    items.distribute(&mut body, inside);
    scheduled(dims, body, vec![], grain.most())
}

/// The bytes of the operands that are read out of order and may not fit in one binding, each number once.
fn whole_bytes(work: &Work<'_>) -> Vec<DimExpr> {
    let mut all = Vec::new();
    for operand in work.operands.iter().filter(|operand| is_windowed(work, operand)) {
        let bytes = bytes(work.graph, operand);
        if !all.contains(&bytes) {
            all.push(bytes);
        }
    }
    all
}
