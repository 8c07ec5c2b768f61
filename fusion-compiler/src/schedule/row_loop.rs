//! Once through a row: what is combined of its elements, or stored of them.
//!
//! The threads of a team take elements in turn, and then combine what each has; on the CPU a row is a vector loop. Invariant:
//! what is combined has one order, whatever the threads do.

use smallvec::smallvec;

use super::Work;
use super::body::{Body, Level, Place};
use super::passes::{
    Accumulator, Exponentials, Monoid, Pass, Sums, combined, finished, folded_at_once, identity,
};
use super::position::CoordinateRange;
use super::space::{SpaceDim, product};
use super::strips::{self, Steps, is_long};
use crate::ir::dtype::{Const, DType};
use crate::ir::kernel::{Expr, Fold, Lanes, Stmt, Type, Value, Values, WARP};
use crate::ir::op::Op;

pub(super) const INDEX: Type = Type { dtype: DType::Index, lanes: Lanes::ONE };

/// How the elements of a row are gone through.
#[derive(Clone, Copy)]
pub(super) enum ThreadMapping {
    /// As the lanes of a vector loop.
    Vector,
    /// Some by each thread of a team.
    Team {
        /// Number of the thread among those of the team that work on the row, and how many there are.
        thread: Value,
        threads: u32,
        /// Its first element.
        first: Value,
        /// Elements from one that it takes to the next.
        step: Value,
        /// Elements at a time, side by side …
        lanes: u8,
        /// … or each as far from the next as there are threads.
        apart: bool,
        /// What the first vector of a row and the last leave, if rows are not whole vectors.
        ends: Option<PeeledEdges>,
        /// Those that are held, where that may not be all of a row.
        staged: Option<StagedPart>,
    },
}

/// The first elements of a row, which a team holds.
#[derive(Clone, Copy)]
pub(super) struct StagedPart {
    pub(super) end: Value,
    /// How many, if that is known.
    pub(super) len: Option<i64>,
}

/// Those elements of a row, or of a part of one, that lie in memory before its first whole vector and after its last.
#[derive(Clone, Copy)]
pub(super) struct PeeledEdges {
    /// The first element of all …
    start: Value,
    /// … and how many there are before that of the first vector.
    before: Value,
    /// Past the last vector.
    last: Value,
    /// How many there are in all.
    count: Value,
}

impl PeeledEdges {
    /// Those of the elements from `start` to `end`, the first of which is at this position, so far from a multiple of `unit`.
    fn new(
        body: &mut Body<'_>,
        position: Value,
        (start, end): (Value, Value),
        (lanes, unit): (u8, u8),
    ) -> PeeledEdges {
        let [unit, in_unit, in_vector] =
            [unit, unit - 1, lanes - 1].map(|count| body.top().index(i64::from(count)));
        let mut b = body.item();
        let over = b.apply(Op::And, &[position, in_unit]);
        let left = b.apply(Op::Sub, &[unit, over]);
        let (left, len) = (b.apply(Op::And, &[left, in_unit]), b.apply(Op::Sub, &[end, start]));
        let before = b.apply(Op::Min, &[left, len]);
        let rest = b.apply(Op::Sub, &[len, before]);
        let after = b.apply(Op::And, &[rest, in_vector]);
        let (last, count) = (b.apply(Op::Sub, &[end, after]), b.apply(Op::Add, &[before, after]));
        PeeledEdges { start, before, last, count }
    }

    /// The number in a row of one of them.
    fn number(&self, body: &mut Body<'_>, of: Value) -> Value {
        let mut b = body.inner();
        let is_before = b.apply(Op::Lt, &[of, self.before]);
        let (first, later) = (b.apply(Op::Add, &[self.start, of]), b.apply(Op::Sub, &[of, self.before]));
        let later = b.apply(Op::Add, &[self.last, later]);
        b.apply(Op::Select, &[is_before, first, later])
    }
}

impl ThreadMapping {
    /// Whether no more than a warp works on a row.
    pub(super) fn is_of_warp(&self) -> bool {
        matches!(self, ThreadMapping::Team { threads, .. } if *threads <= WARP)
    }

    /// The same by vectors of memory, of which the first starts at a multiple of `unit`, where the first of all elements is at this
    /// position. There are as many threads as a unit has elements, and a vector.
    pub(super) fn by_vectors(
        &self,
        body: &mut Body<'_>,
        (lanes, unit): (u8, u8),
        position: Value,
        range: (Value, Value),
    ) -> ThreadMapping {
        let ThreadMapping::Team { thread, threads, .. } = *self else {
            unreachable!("vector loops start anywhere")
        };
        let ends = PeeledEdges::new(body, position, range, (lanes, unit));
        let (each, step) = (body.top().index(lanes.into()), i64::from(threads) * i64::from(lanes));
        let (ahead, step) = (body.top().apply(Op::Mul, &[thread, each]), body.top().index(step));
        let mut b = body.item();
        let start = b.apply(Op::Add, &[ends.start, ends.before]);
        let first = b.apply(Op::Add, &[start, ahead]);
        let (apart, ends, staged) = (false, Some(ends), None);
        ThreadMapping::Team { thread, threads, first, step, lanes, apart, ends, staged }
    }

    /// The same from the start of a part on.
    pub(super) fn within(&self, body: &mut Body<'_>, range: Option<&CoordinateRange>) -> ThreadMapping {
        match (*self, range) {
            (
                ThreadMapping::Team { thread, threads, first, step, lanes, apart, ends, staged },
                Some(range),
            ) => {
                let first = body.item().apply(Op::Add, &[range.start, first]);
                ThreadMapping::Team { thread, threads, first, step, lanes, apart, ends, staged }
            }
            (along @ (ThreadMapping::Team { .. } | ThreadMapping::Vector), _) => along,
        }
    }

    /// The same, but one element at a time.
    pub(super) fn by_one(&self, body: &mut Body<'_>) -> ThreadMapping {
        match *self {
            ThreadMapping::Team { thread, threads, .. } => {
                let step = body.top().index(i64::from(threads));
                let (first, lanes) = (thread, 1);
                ThreadMapping::Team {
                    thread,
                    threads,
                    first,
                    step,
                    lanes,
                    apart: false,
                    ends: None,
                    staged: None,
                }
            }
            ThreadMapping::Vector => ThreadMapping::Vector,
        }
    }
}

/// Once through the elements of a row, or what its parts gave.
pub(super) struct RowLoop<'p> {
    pub(super) work: &'p Work<'p>,
    /// What is gone through, outermost first …
    pub(super) dims: &'p [SpaceDim],
    /// … and how many of them, the innermost, by the number of an element.
    pub(super) line: usize,
    pub(super) along: &'p ThreadMapping,
    pub(super) row: Value,
    pub(super) range: Option<&'p CoordinateRange>,
    /// Those of the dims before.
    pub(super) coordinates: &'p [Value],
    /// What is combined.
    pub(super) pass: &'p Pass,
}

/// The elements of a line that are gone through.
#[derive(Clone, Copy)]
enum RowRegion {
    All,
    /// Those that are held …
    Staged(StagedPart),
    /// … and those that are not.
    UnstagedTail(StagedPart),
    /// Those that whole vectors leave, no more than there are threads …
    PeeledEdges(PeeledEdges),
    /// … and those vectors.
    Vectors(PeeledEdges),
}

/// Where in a row: a counter for each of its dims that are not in the line, and the first element of a run along that.
struct Visit {
    region: RowRegion,
    counters: Vec<Value>,
    first: Value,
    /// What is done there.
    body: Vec<Stmt>,
    /// What is combined there.
    terms: Vec<Values>,
}

impl RowLoop<'_> {
    /// What is combined of all elements.
    pub(super) fn combine(&self, body: &mut Body<'_>) -> Vec<Value> {
        let pass = &Pass { sums: self.sums(), ..self.pass.clone() };
        RowLoop { pass, ..*self }.combine_with_sums(body)
    }

    /// How sums go from one element of a thread to the next, or from one vector loop to the next.
    fn sums(&self) -> Sums {
        match self.along {
            ThreadMapping::Team { .. } => Sums::Compensated,
            // A sum of many vector loops rounds off more than a second `f32` keeps.
            ThreadMapping::Vector => match Sums::of(&product(self.outer())) {
                Sums::Plain => Sums::Plain,
                Sums::Compensated | Sums::Wide => Sums::Wide,
            },
        }
    }

    fn combine_with_sums(&self, body: &mut Body<'_>) -> Vec<Value> {
        let visits = self.visits(body, |row_loop, body, place| {
            let terms = row_loop.pass.terms_at(row_loop.work, body, place);
            match body.is_there {
                Some(is_there) => {
                    row_loop.pass.where_there(row_loop.work, &mut body.inner(), terms, is_there)
                }
                None => terms,
            }
        });
        let accumulators = self.pass.accumulators(self.work);
        // What the lanes of a vector loop make together is one value, and so are the largest and the sum of a thread.
        let lanes = match self.along {
            ThreadMapping::Vector => Lanes::ONE,
            ThreadMapping::Team { lanes, .. } => Lanes::Const(*lanes),
        };
        let starts = self.pass.identity(self.work, &mut body.top(), (lanes, Lanes::ONE));
        let (stmts, mut made) = self.loops(body, self.outer(), &visits, &starts);
        body.item().body.extend(stmts);
        let pairs = made.split_off(self.pass.parts_alone(self.work));
        let alone = self.together(body, &accumulators, made);
        let mut all = finished(&mut body.item(), &accumulators, &alone);
        for (exponentials, pair) in self.pass.pairs.iter().zip(pairs.chunks_exact(2)) {
            let pair = [pair[0], pair[1]];
            let [max, sum] = exponentials.reduces(self.work).map(Accumulator::Plain);
            let largest = self.together(body, &[max], vec![pair[0]])[0];
            let scaled = Exponentials::scaled(&mut body.item(), pair, largest);
            let sum = self.together(body, &[sum], vec![scaled])[0];
            all.extend([largest, exponentials.finish(&mut body.item(), [largest, sum])]);
        }
        all
    }

    /// What reads those held values that do not follow from the row, and holds them. What vectors leave is read before them and held
    /// after, or a thread would wait for it by itself.
    pub(super) fn fill(&self, body: &mut Body<'_>) -> Vec<Stmt> {
        let mut visits = self.visits(body, |_, body, place| {
            for id in body.known_before_rows() {
                body.value(id, &vec![], place);
            }
            vec![]
        });
        let mut stmts = vec![];
        for visit in visits.iter_mut().filter(|visit| matches!(visit.region, RowRegion::PeeledEdges(_))) {
            let (ahead, after) =
                visit.body.drain(..).partition::<Vec<_>, _>(|stmt| matches!(stmt, Stmt::Let(..)));
            visit.body = after;
            stmts.extend(ahead);
        }
        stmts.extend(self.loops(body, self.outer(), &visits, &[]).0);
        stmts
    }

    /// What stores what is stored of elements.
    pub(super) fn store(&self, body: &mut Body<'_>) -> Vec<Stmt> {
        let visits = self.visits(body, |row_loop, body, place| {
            let work = row_loop.work;
            let stores = work.group.stores.iter().zip(&work.stores);
            let elements = stores
                .filter(|(store, buffer)| {
                    work.group.is_of_elements(store) && !body.is_written(store.node, **buffer)
                })
                .collect::<Vec<_>>();
            // After all that is computed: a parameter is read before it is written.
            let stores: Vec<Stmt> =
                elements.into_iter().map(|(store, &buffer)| body.store(buffer, store.node, place)).collect();
            body.inner().body.extend(stores);
            vec![]
        });
        self.loops(body, self.outer(), &visits, &[]).0
    }

    /// The dims that are not in the line.
    fn outer(&self) -> &[SpaceDim] {
        &self.dims[..self.dims.len() - self.line]
    }

    fn line(&self) -> &[SpaceDim] {
        &self.dims[self.dims.len() - self.line..]
    }

    /// The part of a row, if it is one of the line.
    fn range_of_line(&self) -> Option<&CoordinateRange> {
        self.range.filter(|_| self.outer().is_empty())
    }

    /// Past the last element of the line, or of the part of it.
    fn end(&self, body: &mut Body<'_>) -> Value {
        self.range_of_line().map_or_else(|| body.extent(&product(self.line())), |range| range.end)
    }

    fn lanes(&self) -> Lanes {
        match self.along {
            ThreadMapping::Vector => Lanes::Loop,
            ThreadMapping::Team { lanes, .. } => Lanes::Const(*lanes),
        }
    }

    /// What is done at a run of elements, in order: where but a part of a row is held, first there, and then at the others. Once
    /// something is held those come first, as what was read last is the likeliest to be in a cache.
    fn visits<'w>(
        &self,
        body: &mut Body<'w>,
        make: impl Fn(&Self, &mut Body<'w>, &Place) -> Vec<Values>,
    ) -> Vec<Visit> {
        if let ThreadMapping::Team { ends: Some(ends), .. } = *self.along {
            let vectors = body.at_first(|body| self.visit(body, RowRegion::Vectors(ends), &make));
            return vec![vectors, self.visit(body, RowRegion::PeeledEdges(ends), &make)];
        }
        let ThreadMapping::Team { staged: Some(part), .. } = *self.along else {
            return vec![self.visit(body, RowRegion::All, &make)];
        };
        let staged = |body: &mut Body<'w>| self.visit(body, RowRegion::Staged(part), &make);
        let rest = |body: &mut Body<'w>| {
            body.without_staging(|body| self.visit(body, RowRegion::UnstagedTail(part), &make))
        };
        if part.len.is_some() && part.len == product(self.line()).as_const() {
            vec![staged(body)]
        } else if body.stages_something() {
            vec![rest(body), staged(body)]
        } else {
            vec![staged(body), rest(body)]
        }
    }

    fn visit<'w>(
        &self,
        body: &mut Body<'w>,
        region: RowRegion,
        make: &impl Fn(&Self, &mut Body<'w>, &Place) -> Vec<Values>,
    ) -> Visit {
        let counters: Vec<Value> = self.outer().iter().map(|_| body.top().declare(INDEX)).collect();
        let first = match self.along {
            ThreadMapping::Vector => {
                self.range_of_line().map_or_else(|| body.top().index(0), |range| range.start)
            }
            ThreadMapping::Team { thread, threads, .. } => match region {
                // The last threads may have a vector less than the first.
                RowRegion::PeeledEdges(_) => {
                    let last = body.top().index(i64::from(*threads) - 1);
                    body.top().apply(Op::Sub, &[last, *thread])
                }
                RowRegion::All
                | RowRegion::Staged(_)
                | RowRegion::UnstagedTail(_)
                | RowRegion::Vectors(_) => body.top().declare(INDEX),
            },
        };
        let (mut number, mut apart, mut lanes) = (first, false, self.lanes());
        if let RowRegion::PeeledEdges(ends) = region {
            (number, lanes) = (ends.number(body, first), Lanes::ONE);
            body.is_there = Some(body.inner().apply(Op::Lt, &[first, ends.count]));
        }
        if let ThreadMapping::Team { apart: true, threads, .. } = *self.along {
            apart = true;
            let (lane, distance) = (body.lane_index(self.lanes()), body.top().index(threads.into()));
            let end = self.end(body);
            let mut b = body.inner();
            let ahead = b.apply(Op::Mul, &[lane, distance]);
            number = b.apply(Op::Add, &[first, ahead]);
            body.is_there = Some(b.apply(Op::Lt, &[number, end]));
        }
        let in_line = body.decoded(Level::Inner, number, self.line());
        let coordinates = self.coordinates.iter().chain(&counters).chain(&in_line).copied().collect();
        let place = Place { element: self.row, coordinates, lanes, apart, in_row: Some(number) };
        let terms = make(self, body, &place);
        body.is_there = None;
        Visit { region, counters, first, body: body.take_inner(), terms }
    }

    /// The loops over the dims outside of the line that are left, and what they make of `starts`.
    fn loops(
        &self,
        body: &mut Body<'_>,
        outer: &[SpaceDim],
        visits: &[Visit],
        starts: &[Value],
    ) -> (Vec<Stmt>, Vec<Value>) {
        let Some((dim, rest)) = outer.split_first() else {
            let (mut stmts, mut made) = (vec![], starts.to_vec());
            for visit in visits {
                let (next, so_far) = self.along_line(body, visit, &made);
                stmts.extend(next);
                made = so_far;
            }
            return (stmts, made);
        };
        let cut = self.range.filter(|_| outer.len() == self.outer().len());
        let (zero, step) = (body.top().index(0), body.top().index(1));
        let [visit] = visits else { unreachable!("what is staged is of lines") };
        let var = visit.counters[self.outer().len() - outer.len()];
        let steps = match cut {
            None => Steps { var, start: zero, step, end: body.extent(&dim.extent) },
            Some(range) => Steps { var, start: range.start, step, end: range.end },
        };
        let pass = (self.work, self.pass);
        strips::combined(body, pass, (steps, is_long(&dim.extent)), starts, |body, given| {
            self.loops(body, rest, visits, given)
        })
    }

    /// The loop over the elements of the line, and what it makes of `starts`.
    fn along_line(&self, body: &mut Body<'_>, visit: &Visit, starts: &[Value]) -> (Vec<Stmt>, Vec<Value>) {
        let (range, end) = (self.range_of_line(), self.end(body));
        match *self.along {
            ThreadMapping::Team { threads, first, step, lanes, .. } => {
                let at_once = i64::from(threads) * i64::from(lanes);
                let len = product(self.line()).as_const().filter(|_| range.is_none());
                let is_even = |len: &i64| len % at_once == 0;
                let (start, end, even) = match visit.region {
                    RowRegion::All => (first, end, len.filter(is_even).map(|_| end)),
                    RowRegion::Staged(part) => (first, part.end, part.len.filter(is_even).map(|_| part.end)),
                    RowRegion::UnstagedTail(part) => {
                        let rest = len.and_then(|len| Some(len - part.len?)).filter(is_even);
                        let start = body.top().apply(Op::Add, &[part.end, first]);
                        (start, end, rest.map(|rest| body.top().index(rest)))
                    }
                    RowRegion::Vectors(ends) => (first, ends.last, None),
                    RowRegion::PeeledEdges(ends) => {
                        let cond = body.item().apply(Op::Lt, &[visit.first, ends.count]);
                        return (vec![Stmt::If { cond, body: visit.body.clone() }], starts.to_vec());
                    }
                };
                let steps = Steps { var: visit.first, start, step, end };
                let (steps, ahead) = even.map_or((steps, vec![]), |len| of_team(body, steps, len));
                // Sums are as near after many steps, and of other things a team's threads have few.
                let pass = (self.work, self.pass);
                strips::combined(body, pass, (steps, false), starts, |body, given| {
                    let mut inside = [&ahead, visit.body.as_slice()].concat();
                    let next = self.pass.next(self.work, &mut body.writer(&mut inside), given, &visit.terms);
                    (inside, next)
                })
            }
            ThreadMapping::Vector => {
                let len = range.map_or(end, |range| range.len);
                let of_lanes = Pass { sums: Sums::Plain, ..self.pass.clone() }.accumulators(self.work);
                let terms = of_lanes.iter().zip(&visit.terms);
                let folds: Vec<Fold> = terms.map(|(&by, term)| fold_of_term(body, by, term)).collect();
                let accumulators = self.pass.accumulators(self.work);
                let mut made = self.pass.identity(self.work, &mut body.top(), (Lanes::ONE, Lanes::ONE));
                let mut first = 0;
                let outs: Vec<Value> = folds.iter().map(|fold| fold.out[0]).collect();
                let mut stmts = vec![Stmt::Vector { len, body: visit.body.clone(), folds }];
                for (by, out) in accumulators.iter().zip(outs) {
                    made[first] = by.widened(&mut body.writer(&mut stmts), out);
                    first += by.count();
                }
                let all = combined(&mut body.writer(&mut stmts), &accumulators, starts, &made);
                (stmts, all)
            }
        }
    }

    /// What all lanes and threads have, combined.
    fn together(&self, body: &mut Body<'_>, accumulators: &[Accumulator], made: Vec<Value>) -> Vec<Value> {
        let lanes = match (self.along, made.first()) {
            (ThreadMapping::Vector, _) | (ThreadMapping::Team { .. }, None) => return made,
            (ThreadMapping::Team { .. }, Some(&first)) => match body.top().ty(first).lanes {
                Lanes::Const(lanes) => lanes,
                Lanes::Loop | Lanes::Tile(..) => unreachable!("a team has no vector loops"),
            },
        };
        let each_lane = |lane: u8| -> Vec<Value> {
            let mut b = body.item();
            let lane_of = |&value: &Value| {
                let ty = Type { lanes: Lanes::ONE, ..b.ty(value) };
                match b.ty(value).lanes {
                    // What lanes have in common is that of the first.
                    Lanes::ONE if lane > 0 => b.constant(ty.dtype, Const::zero(ty.dtype)),
                    Lanes::ONE => value,
                    Lanes::Const(_) | Lanes::Loop | Lanes::Tile(..) => b.bind(ty, Expr::Lane(value, lane)),
                }
            };
            made.iter().map(lane_of).collect()
        };
        let mut all: Vec<Vec<Value>> = (0..lanes).map(each_lane).collect();
        while all.len() > 1 {
            let pairs = all.chunks(2);
            let two = |pair: &[Vec<Value>]| match pair {
                [left, right] => combined(&mut body.item(), accumulators, left, right),
                _ => pair[0].clone(),
            };
            all = pairs.map(two).collect();
        }
        let mut all = all.swap_remove(0);
        let (mut folds, mut left, at_once) = (vec![], accumulators, folded_at_once(self.work));
        while !left.is_empty() {
            let counts = left.iter().scan(0, |count, by| {
                *count += by.count();
                Some(*count)
            });
            let (these, rest) = left.split_at(counts.take_while(|&count| count <= at_once).count());
            left = rest;
            let count: usize = these.iter().map(|by| by.count()).sum();
            let over = all.drain(..count).collect();
            folds.push(fold(body, these, over));
        }
        let out = folds.iter().flat_map(|fold| fold.out.clone()).collect();
        body.item().body.extend(folds.into_iter().map(|fold| Stmt::AllReduce(Box::new(fold))));
        out
    }
}

/// The same steps counted for all threads of a team together, which have equally many, and what finds a thread's element: of such
/// a loop a compiler knows how often it runs.
fn of_team(body: &mut Body<'_>, Steps { var, start, step, .. }: Steps, end: Value) -> (Steps, Vec<Stmt>) {
    let (zero, first) = (body.top().index(0), body.top().declare(INDEX));
    let ahead = vec![Stmt::Let(var, Expr::Apply(Op::Add, smallvec![first, start]))];
    (Steps { var: first, start: zero, step, end }, ahead)
}

/// What is combined as a fold over what lanes or threads have.
fn fold(body: &mut Body<'_>, accumulators: &[Accumulator], over: Vec<Value>) -> Fold {
    let parts: Vec<Monoid> = accumulators.iter().flat_map(|by| by.parts()).collect();
    let one = |&(_, dtype): &Monoid| Type { dtype, lanes: Lanes::ONE };
    let declare =
        |body: &mut Body<'_>| parts.iter().map(|part| body.top().declare(one(part))).collect::<Vec<_>>();
    let (left, right, out) = (declare(body), declare(body), declare(body));
    let identity = parts.iter().map(|&part| identity(&mut body.top(), part, Lanes::ONE)).collect();
    let mut function = Vec::new();
    let results = combined(&mut body.writer(&mut function), accumulators, &left, &right);
    Fold { over, times: None, identity, left, right, body: function, results, out }
}

/// What lanes have of each element, as a fold.
fn fold_of_term(body: &mut Body<'_>, by: Accumulator, term: &Values) -> Fold {
    Fold { times: term.get(1).copied(), ..fold(body, &[by], vec![term[0]]) }
}
