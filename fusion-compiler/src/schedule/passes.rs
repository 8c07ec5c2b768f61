//! The runs along a row: what is combined in each of them, in order.
//!
//! A run combines what needs nothing but the results of those before. The largest of a row and the sum of the exponentials of
//! what its elements exceed it by take two, or one: with the largest so far goes the sum so far, of exp(x − largest), which a
//! larger element scales down (Milakov and Gimelshein 2018). That costs an exponential more for each element that is read
//! again, so it is for rows that have to be read from afar. What is infinite or no number comes out as of two runs.
//!
//! A sum of floats goes with what its additions rounded off, or is kept in `f64`: a mean that is taken off has to be near, however
//! far from 0 the elements are.

use super::Work;
use super::body::{Body, Place};
use super::combine::{combine, with_term, written_out};
use super::staging::{reduce_of, steps};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{NodeId, Reduce};
use crate::ir::kernel::{Builder, Expr, Lanes, Type, Value, Values};
use crate::ir::op::Op;
use crate::target::tuning_table::all;

/// How many runs there are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassCount {
    /// One for each step.
    PerStep,
    /// As few as possible.
    Fewest,
}

/// Once along a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pass {
    /// What is combined by itself.
    pub(super) alone: Vec<NodeId>,
    /// What is combined in pairs.
    pub(super) pairs: Vec<Exponentials>,
    /// How sums of floats are kept.
    pub(super) sums: Sums,
}

/// How sums of floats are kept from one element to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sums {
    /// One value: there are few terms.
    #[default]
    Plain,
    /// With what their additions rounded off (Neumaier 1974).
    Compensated,
    /// In `f64`, and those that are of `f64` with what their additions rounded off.
    Wide,
}

impl Sums {
    /// How sums of so many terms are kept.
    pub(super) fn of(terms: &DimExpr) -> Sums {
        match terms.as_const() {
            Some(terms) if terms <= all::PLAIN_TERMS_MAX => Sums::Plain,
            Some(_) | None => Sums::Compensated,
        }
    }
}

/// The values that a reduction keeps from one element to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accumulator {
    /// The result so far.
    Plain(Monoid),
    /// A sum, and what its additions rounded off.
    CompensatedSum(DType),
    /// A sum of `f32` in `f64`, to which terms are added by twos: to make `f64` of each takes longer.
    WideSum,
}

impl Accumulator {
    /// How a reduction to this type is kept.
    fn new((reduce, dtype): Monoid, sums: Sums) -> Accumulator {
        let adds = matches!(reduce, Reduce::Sum | Reduce::Dot) && dtype.is_float();
        match sums {
            Sums::Wide if adds && dtype == DType::F32 => Accumulator::WideSum,
            Sums::Compensated | Sums::Wide if adds => Accumulator::CompensatedSum(dtype),
            Sums::Plain | Sums::Compensated | Sums::Wide => Accumulator::Plain((reduce, dtype)),
        }
    }

    /// The values that are kept, by what they are before the first element.
    pub(super) fn parts(self) -> impl Iterator<Item = Monoid> {
        let (part, count) = match self {
            Accumulator::Plain(part) => (part, 1),
            Accumulator::CompensatedSum(dtype) => ((Reduce::Sum, dtype), 2),
            Accumulator::WideSum => ((Reduce::Sum, DType::F64), 1),
        };
        std::iter::repeat_n(part, count)
    }

    /// How many they are.
    pub(super) fn count(self) -> usize {
        self.parts().count()
    }

    /// With a few more elements.
    fn next(self, b: &mut Builder<'_>, reduce: Reduce, so_far: &[Value], terms: &[&Values]) -> Vec<Value> {
        if let (Accumulator::WideSum, &[sum]) = (self, so_far) {
            let of_two = |sum, two: &[&Values]| {
                let terms: Vec<Value> = two.iter().copied().flatten().copied().collect();
                let two = written_out(b, reduce, &terms);
                let two = b.cast(two, DType::F64);
                b.apply(Op::Add, &[sum, two])
            };
            return vec![terms.chunks(2).fold(sum, of_two)];
        }
        terms.iter().fold(so_far.to_vec(), |so_far, term| match (self, &so_far[..]) {
            (Accumulator::CompensatedSum(_), &[sum, error]) => match (b.ty(sum).lanes, b.ty(error).lanes) {
                (Lanes::Const(lanes), Lanes::ONE) if lanes > 1 => {
                    each_lane_added(b, (sum, lanes), error, term)
                }
                _ => added(b, sum, error, term).to_vec(),
            },
            _ => vec![with_term(b, reduce, so_far[0], term)],
        })
    }

    /// A result of some elements in the type of what is kept.
    pub(super) fn widened(self, b: &mut Builder<'_>, result: Value) -> Value {
        match self {
            Accumulator::WideSum => b.cast(result, DType::F64),
            Accumulator::Plain(_) | Accumulator::CompensatedSum(_) => result,
        }
    }

    /// Combines the values of two ranges of elements.
    fn merged(self, b: &mut Builder<'_>, left: &[Value], right: &[Value]) -> Vec<Value> {
        match (self, left, right) {
            (Accumulator::CompensatedSum(_), &[left, left_error], &[right, right_error]) => {
                let [sum, error] = two_sum(b, left, right);
                let errors = b.apply(Op::Add, &[left_error, right_error]);
                vec![sum, b.apply(Op::Add, &[error, errors])]
            }
            (Accumulator::Plain((reduce, _)), ..) => vec![b.apply(combine(reduce), &[left[0], right[0]])],
            _ => vec![b.apply(Op::Add, &[left[0], right[0]])],
        }
    }

    /// The result.
    fn finished(self, b: &mut Builder<'_>, all: &[Value]) -> Value {
        match (self, all) {
            (Accumulator::CompensatedSum(_), &[sum, error]) => {
                let error = if_finite(b, error);
                b.apply(Op::Add, &[sum, error])
            }
            (Accumulator::WideSum, &[sum]) => b.cast(sum, DType::F32),
            _ => all[0],
        }
    }
}

/// A sum and what its additions rounded off, with one more term (Neumaier 1974; of a product, Ogita, Rump and Oishi 2005).
fn added(b: &mut Builder<'_>, sum: Value, error: Value, term: &Values) -> [Value; 2] {
    // The term, negative; of a product, with what that is rounded by.
    let (negative, of_product) = match term[..] {
        [x, y] => {
            let opposite = b.apply(Op::Neg, &[x]);
            let negative = b.apply(Op::Mul, &[opposite, y]);
            (negative, Some(b.apply(Op::Fma, &[x, y, negative])))
        }
        _ => (b.apply(Op::Neg, &[term[0]]), None),
    };
    let error = of_product.map_or(error, |of_product| b.apply(Op::Add, &[error, of_product]));
    let all = b.apply(Op::Sub, &[sum, negative]);
    // The term, less what the sum grew by.
    let shrunk = b.apply(Op::Sub, &[sum, all]);
    let of_sum = b.apply(Op::Sub, &[shrunk, negative]);
    [all, b.apply(Op::Add, &[error, of_sum])]
}

/// The same of sums of several lanes, one after another, which have in common what they round off: so few registers are in use at once.
fn each_lane_added(
    b: &mut Builder<'_>,
    (sums, lanes): (Value, u8),
    mut error: Value,
    term: &Values,
) -> Vec<Value> {
    let ty = b.ty(sums);
    let one = Type { lanes: Lanes::ONE, ..ty };
    let mut all = Values::new();
    for lane in 0..lanes {
        let sum = b.bind(one, Expr::Lane(sums, lane));
        let term: Values = term.iter().map(|&value| b.bind(one, Expr::Lane(value, lane))).collect();
        let [next, rounded_off] = added(b, sum, error, &term);
        all.push(next);
        error = rounded_off;
    }
    vec![b.bind(ty, Expr::Pack(all)), error]
}

/// A sum, and what it was rounded by (Knuth): whichever of both is larger.
fn two_sum(b: &mut Builder<'_>, left: Value, right: Value) -> [Value; 2] {
    let sum = b.apply(Op::Add, &[left, right]);
    let of_right = b.apply(Op::Sub, &[sum, left]);
    let of_left = b.apply(Op::Sub, &[sum, of_right]);
    let [left, right] =
        [(left, of_left), (right, of_right)].map(|(whole, part)| b.apply(Op::Sub, &[whole, part]));
    [sum, b.apply(Op::Add, &[left, right])]
}

/// What a sum was rounded by, or 0 where that is no number, as the sum is infinite or none. Any other is far less than the largest
/// number, which not every language can say.
fn if_finite(b: &mut Builder<'_>, error: Value) -> Value {
    let Type { dtype, lanes } = b.ty(error);
    let most = Const::Float(2_f64.powi(if dtype == DType::F64 { 1000 } else { 120 }));
    let [most, zero] = [most, Const::zero(dtype)].map(|of| {
        let value = b.constant(dtype, of);
        b.splat(value, lanes)
    });
    let size = b.apply(Op::Abs, &[error]);
    let finite = b.apply(Op::Le, &[size, most]);
    b.apply(Op::Select, &[finite, error, zero])
}

/// The largest element of a row, and the sum of the exponentials of what its elements exceed it by.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Exponentials {
    /// The elements.
    pub(super) x: NodeId,
    pub(super) max: NodeId,
    pub(super) sum: NodeId,
    infinite: Infinite,
}

/// What the elements are taken to exceed where the largest is infinite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Infinite {
    /// The largest as it is: the sum is NaN.
    Itself,
    /// Zero: the sum is that of the exponentials themselves.
    Zero,
}

impl Pass {
    /// What it gives, in the order of its values: what is combined alone, then each pair.
    pub(super) fn made(&self) -> Vec<NodeId> {
        let pairs = self.pairs.iter().flat_map(|pair| [pair.max, pair.sum]);
        self.alone.iter().copied().chain(pairs).collect()
    }

    /// What it is made of: a term for each value that is combined alone, which is what the reduction takes of an element, and for
    /// each pair.
    fn terms<'a>(&'a self, work: &'a Work<'_>) -> impl Iterator<Item = &'a [NodeId]> {
        let alone = self.alone.iter().map(|&id| work.graph.node(id).args.as_slice());
        alone.chain(self.pairs.iter().map(|pair| std::slice::from_ref(&pair.x)))
    }

    /// The values of elements that it is made of.
    pub(super) fn elements(&self, work: &Work<'_>) -> Vec<NodeId> {
        self.terms(work).flatten().copied().collect()
    }

    /// The terms of the elements at a place.
    pub(super) fn terms_at(&self, work: &Work<'_>, body: &mut Body<'_>, place: &Place) -> Vec<Values> {
        self.terms(work).map(|term| body.term(term, place)).collect()
    }

    /// These terms where there are elements, and elsewhere what changes nothing.
    pub(super) fn where_there(
        &self,
        work: &Work<'_>,
        b: &mut Builder<'_>,
        mut terms: Vec<Values>,
        is_there: Value,
    ) -> Vec<Values> {
        let alone = self.alone.iter().map(|&id| (reduce_of(work, id), work.graph.node(id).dtype));
        let of_terms = alone.chain(self.pairs.iter().map(|pair| pair.reduces(work)[0]));
        for (term, part) in terms.iter_mut().zip(of_terms) {
            let nothing = identity(b, part, b.ty(is_there).lanes);
            term.iter_mut().for_each(|value| *value = b.apply(Op::Select, &[is_there, *value, nothing]));
        }
        terms
    }

    /// The accumulators of the reductions that are combined by themselves.
    pub(super) fn accumulators(&self, work: &Work<'_>) -> Vec<Accumulator> {
        let alone = self.alone.iter().map(|&id| (reduce_of(work, id), work.graph.node(id).dtype));
        alone.map(|part| Accumulator::new(part, self.sums)).collect()
    }

    /// The values that are kept: of what is combined by itself, then of each pair.
    pub(super) fn parts(&self, work: &Work<'_>) -> Vec<Monoid> {
        let alone = self.accumulators(work).into_iter().flat_map(Accumulator::parts);
        alone.chain(self.pairs.iter().flat_map(|pair| pair.reduces(work))).collect()
    }

    /// How many of them are of what is combined by itself.
    pub(super) fn parts_alone(&self, work: &Work<'_>) -> usize {
        self.accumulators(work).into_iter().map(Accumulator::count).sum()
    }

    /// What there is before the first term: of `lanes` for what is combined by itself, of `together` for what lanes may have in common,
    /// which is pairs and what sums round off.
    pub(super) fn identity(
        &self,
        work: &Work<'_>,
        b: &mut Builder<'_>,
        (lanes, together): (Lanes, Lanes),
    ) -> Vec<Value> {
        let accumulators = self.accumulators(work);
        let alone = accumulators.iter().flat_map(|by| by.parts().zip([lanes, together]));
        let pairs = self.pairs.iter().flat_map(|pair| pair.reduces(work)).map(|part| (part, together));
        let parts: Vec<(Monoid, Lanes)> = alone.chain(pairs).collect();
        parts.into_iter().map(|(part, lanes)| identity(b, part, lanes)).collect()
    }

    /// What two ranges of elements give, combined.
    pub(super) fn merged(
        &self,
        work: &Work<'_>,
        b: &mut Builder<'_>,
        left: &[Value],
        right: &[Value],
    ) -> Vec<Value> {
        let accumulators = self.accumulators(work);
        let alone = self.parts_alone(work);
        let mut all = combined(b, &accumulators, &left[..alone], &right[..alone]);
        let pairs = left[alone..].chunks_exact(2).zip(right[alone..].chunks_exact(2));
        for (pair, (left, right)) in self.pairs.iter().zip(pairs) {
            let largest = b.apply(combine(pair.reduces(work)[0].0), &[left[0], right[0]]);
            let sums = [left, right].map(|pair| Exponentials::scaled(b, [pair[0], pair[1]], largest));
            all.extend([largest, b.apply(Op::Add, &sums)]);
        }
        all
    }

    /// Combines the values so far, but for pairs, with the terms of a few more elements.
    pub(super) fn next_alone(
        &self,
        work: &Work<'_>,
        b: &mut Builder<'_>,
        so_far: &[Value],
        elements: &[&[Values]],
    ) -> Vec<Value> {
        let accumulators = self.accumulators(work);
        let each = of_each(&accumulators, so_far).into_iter().zip(&accumulators).zip(&self.alone);
        let next = each.enumerate().flat_map(|(i, ((so_far, by), &id))| {
            let terms: Vec<&Values> = elements.iter().map(|terms| &terms[i]).collect();
            by.next(b, reduce_of(work, id), so_far, &terms)
        });
        next.collect()
    }

    /// What was so far and one more term of each, combined.
    pub(super) fn next(
        &self,
        work: &Work<'_>,
        b: &mut Builder<'_>,
        so_far: &[Value],
        terms: &[Values],
    ) -> Vec<Value> {
        let (alone, pairs) = so_far.split_at(self.parts_alone(work));
        let mut next = self.next_alone(work, b, alone, &[terms]);
        let so_far = pairs.chunks_exact(2).zip(&terms[self.alone.len()..]);
        for (pair, (so_far, term)) in self.pairs.iter().zip(so_far) {
            let x = term[0];
            let (largest, so_far) = (combine(pair.reduces(work)[0].0), [so_far[0], so_far[1]]);
            next.extend(match b.ty(x).lanes {
                Lanes::Const(lanes) if b.ty(so_far[0]).lanes == Lanes::ONE && lanes > 1 => {
                    with_lanes(b, largest, so_far, (x, lanes))
                }
                Lanes::Const(_) | Lanes::Loop | Lanes::Tile(..) => {
                    [b.apply(largest, &[so_far[0], x]), sum_with(b, so_far, x)]
                }
            });
        }
        next
    }
}

/// How values are combined, and what they are.
pub(super) type Monoid = (Reduce, DType);

/// Combines the accumulators' values of two ranges of elements.
pub(super) fn combined(
    b: &mut Builder<'_>,
    accumulators: &[Accumulator],
    left: &[Value],
    right: &[Value],
) -> Vec<Value> {
    let pairs = of_each(accumulators, left).into_iter().zip(of_each(accumulators, right));
    accumulators.iter().zip(pairs).flat_map(|(by, (left, right))| by.merged(b, left, right)).collect()
}

/// The results of what is kept.
pub(super) fn finished(b: &mut Builder<'_>, accumulators: &[Accumulator], all: &[Value]) -> Vec<Value> {
    let each = accumulators.iter().zip(of_each(accumulators, all));
    each.map(|(by, all)| by.finished(b, all)).collect()
}

/// The values of each.
fn of_each<'v>(accumulators: &[Accumulator], mut values: &'v [Value]) -> Vec<&'v [Value]> {
    let of_one = |by: &Accumulator| {
        let (own, rest) = values.split_at(by.count());
        values = rest;
        own
    };
    accumulators.iter().map(of_one).collect()
}

/// What changes nothing that it is combined with.
pub(super) fn identity(b: &mut Builder<'_>, (reduce, dtype): Monoid, lanes: Lanes) -> Value {
    let value = b.constant(dtype, reduce.identity(dtype));
    b.splat(value, lanes)
}

/// The sum with one more element. That exceeds the largest, or the largest exceeds it: so there is one exponential.
fn sum_with(b: &mut Builder<'_>, [largest, sum]: [Value; 2], x: Value) -> Value {
    let one = b.f32(1.0);
    let (part, larger) = (smaller_part(b, largest, x), b.apply(Op::Gt, &[x, largest]));
    let scaled = b.apply(Op::Mul, &[sum, part]);
    let (grown, added) = (b.apply(Op::Add, &[scaled, one]), b.apply(Op::Add, &[sum, part]));
    b.apply(Op::Select, &[larger, grown, added])
}

/// The largest and the sum with the elements of several lanes: the sum is scaled once for all of them, where one after another
/// each would ask for an exponential of its own.
fn with_lanes(
    b: &mut Builder<'_>,
    largest: Op,
    [so_far, sum]: [Value; 2],
    (x, lanes): (Value, u8),
) -> [Value; 2] {
    let most = across(b, (x, lanes), largest);
    let most = b.apply(largest, &[so_far, most]);
    let scaled = Exponentials::scaled(b, [so_far, sum], most);
    let of_all = b.splat(most, Lanes::Const(lanes));
    let parts = b.apply(Op::ExpBelow, &[x, of_all]);
    // First by themselves: so the sum of a thread is rounded as often as it has vectors.
    let parts = across(b, (parts, lanes), Op::Add);
    [most, b.apply(Op::Add, &[scaled, parts])]
}

/// Combines the lanes of a value.
fn across(b: &mut Builder<'_>, (of, lanes): (Value, u8), op: Op) -> Value {
    if lanes == 1 {
        return of;
    }
    let ty = Type { lanes: Lanes::ONE, ..b.ty(of) };
    let mut each: Vec<Value> = (0..lanes).map(|lane| b.bind(ty, Expr::Lane(of, lane))).collect();
    while each.len() > 1 {
        each = each.chunks(2).map(|pair| b.apply(op, pair)).collect();
    }
    each[0]
}

/// exp(−|a − b|): 1 where both are the same, infinite or not; NaN where one is.
fn smaller_part(b: &mut Builder<'_>, left: Value, right: Value) -> Value {
    let difference = b.apply(Op::Sub, &[left, right]);
    let distance = b.apply(Op::Abs, &[difference]);
    let below = b.apply(Op::Neg, &[distance]);
    let (same, zero) = (b.apply(Op::Eq, &[left, right]), b.f32(0.0));
    let exponent = b.apply(Op::Select, &[same, zero, below]);
    b.apply(Op::ExpOfNonpositive, &[exponent])
}

impl Exponentials {
    /// How the parts of it are combined.
    pub(super) fn reduces(&self, work: &Work<'_>) -> [Monoid; 2] {
        [(reduce_of(work, self.max), DType::F32), (Reduce::Sum, DType::F32)]
    }

    /// A sum as it is relative to the largest of all, which is no less than its own.
    pub(super) fn scaled(b: &mut Builder<'_>, [largest, sum]: [Value; 2], of_all: Value) -> Value {
        let lanes = b.ty(largest).lanes;
        let of_all = b.splat(of_all, lanes);
        let part = b.apply(Op::ExpBelow, &[largest, of_all]);
        b.apply(Op::Mul, &[sum, part])
    }

    /// The sum that is asked for, of that of all: as long as the largest is infinite, it is some number. What is no number is left
    /// as it is, whether the largest passed it over or not. A row whose largest is asked for has an element.
    pub(super) fn finish(&self, b: &mut Builder<'_>, [largest, sum]: [Value; 2]) -> Value {
        let (infinite, zero) = (b.apply(Op::IsInf, &[largest]), b.f32(0.0));
        match self.infinite {
            Infinite::Itself => {
                let nan = b.f32(f32::NAN);
                b.apply(Op::Select, &[infinite, nan, sum])
            }
            Infinite::Zero => {
                let whole = b.apply(Op::Max, &[largest, zero]);
                let counted = b.apply(Op::Ge, &[sum, zero]);
                let counts = b.apply(Op::And, &[infinite, counted]);
                b.apply(Op::Select, &[counts, whole, sum])
            }
        }
    }
}

/// Number of values of four bytes that the threads of a team combine in shared memory at a time. WebGPU guarantees a
/// workgroup 16 KiB, and 256 threads need the rest for the elements of rows.
const FOLDED_MAX: usize = 4;

/// How many values the threads of a team combine at once, of which a sum may be two. The next ones take the same memory, but each
/// dtype has its own.
pub(super) fn folded_at_once(work: &Work<'_>) -> usize {
    (FOLDED_MAX / folded_dtypes(work).len().max(1)).max(2)
}

/// Bytes that they take of each of those that have memory for them.
pub(super) fn bytes_folded_at_once(work: &Work<'_>) -> i64 {
    let each: usize = folded_dtypes(work).into_iter().map(DType::size).sum();
    (folded_at_once(work) * each) as i64
}

/// The types of what is combined.
fn folded_dtypes(work: &Work<'_>) -> Vec<DType> {
    let mut dtypes: Vec<DType> = Vec::new();
    for id in steps(work).into_iter().map(|(_, id)| id).chain(work.of_parts()) {
        let dtype = work.graph.node(id).dtype;
        if !dtypes.contains(&dtype) {
            dtypes.push(dtype);
        }
    }
    dtypes
}

/// The runs along the rows of a group.
pub(super) fn passes(work: &Work<'_>, how_many: PassCount) -> Vec<Pass> {
    let mut steps = steps(work);
    steps.sort();
    let mut passes: Vec<Pass> = Vec::new();
    for step in steps.chunk_by(|a, b| a.0 == b.0) {
        let alone: Vec<NodeId> = step.iter().map(|(_, id)| *id).collect();
        let pairs: Option<Vec<Exponentials>> = match (how_many, passes.last()) {
            (PassCount::Fewest, Some(before)) => {
                alone.iter().map(|&id| exponentials(work, before, id)).collect()
            }
            (PassCount::Fewest, None) | (PassCount::PerStep, _) => None,
        };
        match (pairs, passes.last_mut()) {
            (Some(pairs), Some(before)) => {
                before.alone.retain(|id| !pairs.iter().any(|pair| pair.max == *id));
                before.pairs.extend(pairs);
            }
            (_, _) => passes.push(Pass { alone, pairs: vec![], sums: Sums::Plain }),
        }
    }
    passes
}

/// A sum of exponentials of what elements exceed the largest by that the run before gives.
fn exponentials(work: &Work<'_>, before: &Pass, sum: NodeId) -> Option<Exponentials> {
    let graph = work.graph;
    let node = graph.node(sum);
    if reduce_of(work, sum) != Reduce::Sum || node.dtype != DType::F32 {
        return None;
    }
    let [exponent] = graph.operands_of(node.args[0], Op::Exp)? else { return None };
    let [x, most] = *graph.operands_of(*exponent, Op::Sub)? else { return None };
    let largest = |id: NodeId| {
        let is_largest = |id| matches!(reduce_of(work, id), Reduce::Max | Reduce::MaxNum);
        before.alone.contains(&id) && is_largest(id) && graph.node(id).args[0] == x
    };
    if largest(most) {
        return Some(Exponentials { x, max: most, sum, infinite: Infinite::Itself });
    }
    let [infinite, zero, max] = *graph.operands_of(most, Op::Select)? else { return None };
    let is_zero = matches!(graph.literal_of(zero), Some(Const::Float(0.0)));
    let of_largest = graph.operands_of(infinite, Op::IsInf)? == [max];
    (is_zero && of_largest && largest(max)).then_some(Exponentials { x, max, sum, infinite: Infinite::Zero })
}
