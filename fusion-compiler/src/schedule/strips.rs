//! Loops along a row whose partial results go from one iteration to the next.
//!
//! A total that takes every term by itself is rounded as often as there are terms, and small ones drown in it. Sums by themselves
//! keep what is rounded off (`passes.rs`); those of exponentials go with their largest, so a long loop of them is run in strips: the
//! terms of each are combined by themselves, and then with those of the strips before (blocked summation, Higham 1993). Invariant:
//! where strips begin depends on extents alone.

use super::Work;
use super::body::Body;
use super::passes::{Pass, identity};
use crate::ir::dim::DimExpr;
use crate::ir::kernel::{Carried, LoopKind, Stmt, Value};
use crate::ir::op::Op;
use crate::target::tuning_table::all;

/// Whether there may be so many steps that they are run in strips.
pub(super) fn is_long(steps: &DimExpr) -> bool {
    steps.as_const().is_none_or(|steps| steps > all::STRIP)
}

/// A serial loop: its counter, and where that goes.
#[derive(Clone, Copy)]
pub(super) struct Steps {
    pub(super) var: Value,
    pub(super) start: Value,
    pub(super) step: Value,
    pub(super) end: Value,
}

/// A loop in strips.
pub(super) struct Strips {
    /// Over the strips.
    pub(super) over: Steps,
    /// What makes the bounds of each.
    pub(super) bounds: Vec<Stmt>,
    /// Over the steps of a strip.
    pub(super) within: Steps,
}

impl Steps {
    pub(super) fn pass(self, carried: Vec<Carried>, body: Vec<Stmt>) -> Stmt {
        let Steps { var, start, step, end } = self;
        Stmt::Loop { var, kind: LoopKind::Serial, start, end, step, carried, body }
    }

    pub(super) fn in_strips(self, body: &mut Body<'_>) -> Strips {
        let mut top = body.top();
        let (first, strip) = (top.declare(top.ty(self.var)), top.index(all::STRIP));
        let step = top.apply(Op::Mul, &[self.step, strip]);
        let mut bounds = vec![];
        let mut b = body.writer(&mut bounds);
        // What is left is an index, whatever the end is; the end of a whole strip might be none.
        let left = b.apply(Op::Sub, &[self.end, first]);
        let len = b.apply(Op::Min, &[left, step]);
        let end = b.apply(Op::Add, &[first, len]);
        Strips {
            over: Steps { var: first, step, ..self },
            bounds,
            within: Steps { start: first, end, ..self },
        }
    }
}

/// A loop in which the terms of a run are combined, and what it makes of `starts`; `inside` makes the body of what an
/// iteration is given, and what it hands on.
pub(super) fn combined(
    body: &mut Body<'_>,
    (work, pass): (&Work<'_>, &Pass),
    (steps, is_long): (Steps, bool),
    starts: &[Value],
    inside: impl FnOnce(&mut Body<'_>, &[Value]) -> (Vec<Stmt>, Vec<Value>),
) -> (Vec<Stmt>, Vec<Value>) {
    let given = like(body, starts);
    let (stmts, next) = inside(body, &given);
    if !is_long || pass.pairs.is_empty() {
        return carried(body, steps, starts, (&given, &next), stmts);
    }
    let mut top = body.top();
    let like_start = |(&start, part)| {
        let lanes = top.ty(start).lanes;
        identity(&mut top, part, lanes)
    };
    let identity: Vec<Value> = starts.iter().zip(pass.parts(work)).map(like_start).collect();
    let Strips { over, bounds: mut strip, within } = steps.in_strips(body);
    let (stmts, of_strip) = carried(body, within, &identity, (&given, &next), stmts);
    strip.extend(stmts);
    let before = like(body, starts);
    let all = pass.merged(work, &mut body.writer(&mut strip), &before, &of_strip);
    carried(body, over, starts, (&before, &all), strip)
}

/// A loop that carries these values, and what comes out.
fn carried(
    body: &mut Body<'_>,
    steps: Steps,
    starts: &[Value],
    (given, next): (&[Value], &[Value]),
    inside: Vec<Stmt>,
) -> (Vec<Stmt>, Vec<Value>) {
    let out = like(body, starts);
    let carried = (0..out.len())
        .map(|i| Carried { start: starts[i], var: given[i], next: next[i], out: out[i] })
        .collect();
    (vec![steps.pass(carried, inside)], out)
}

/// Values of the same types.
fn like(body: &mut Body<'_>, values: &[Value]) -> Vec<Value> {
    let mut b = body.top();
    values.iter().map(|&value| b.declare(b.ty(value))).collect()
}
