//! Row groups: values combined along rows, and what is made of them for each row or each of its elements.
//!
//! A row is gone through once for each step of what it takes: first what is combined of its elements alone, then what
//! needs those results, and last for what is stored of its elements (`runs.rs`). On GPUs a team of threads shares a row, each
//! taking every so many elements, and holds those that it needs again in memory of its own; on the CPU a thread has rows
//! for itself, in vector loops, and the cache holds them.

use super::body::{Body, Place, Sight};
use super::held::held;
use super::position::Range;
use super::runs::{Exponentials, Monoid, Run, Runs, combined, folded_at_once, identity, runs};
use super::space::{SpaceDim, cols, dims, width_conditions, widths};
use super::strips::{self, Steps, is_long};
use super::{Scheduled, Work};
use crate::fuse::Store;
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::{Access, NodeId, Reduce};
use crate::ir::kernel::{Expr, Fold, IndexWidth, Lanes, LoopKind, Shared, SharedLen, Stmt, Type, Value};
use crate::ir::ops::Op;
use crate::ir::plan::{Condition, Reach, Space, UniformArg};
use crate::target::{RowMemory, TargetFacts, Team, Vectors};

const INDEX: Type = Type { dtype: DType::Index, lanes: Lanes::ONE };

/// The ways to run a row group.
pub(super) fn row(work: &Work<'_>, facts: &TargetFacts) -> Vec<Scheduled> {
    let shape = Shape::new(work, None);
    match facts.vector {
        Vectors::Loops(_) => vec![on_cpu(work, facts, &shape)],
        Vectors::Lanes(lanes) => {
            let held = held_values(work, facts, &shape);
            let mut ways = Vec::new();
            for index in widths(work, facts) {
                for lanes in [lanes, 1] {
                    ways.extend(ways_of(facts, index, lanes, !held.is_empty()));
                }
            }
            let mut scheduled: Vec<Scheduled> =
                ways.iter().map(|way| on_gpu(work, facts, &shape, way, &held)).collect();
            // The last must do for whatever the others do not.
            if let Some(last) = scheduled.last_mut() {
                last.when.clear();
            }
            scheduled
        }
    }
}

/// Rows below which there are too few for a thread each to keep a GPU at work …
const FEW_ROWS: i64 = 4096;
/// … and the elements of a row that then give a team enough to do.
const LONG_ROW: i64 = 256;

/// The ways to run a group whose rows lie side by side, are few and are long: what a team reads and writes at a time is
/// far apart, but each row has many threads.
pub(super) fn beside(work: &Work<'_>, facts: &TargetFacts) -> Vec<Scheduled> {
    let shape = Shape::new(work, None);
    let Some(team) = middle_team(facts) else { return vec![] };
    let held = held_values(work, facts, &shape);
    let way = |holds| Way { index: IndexWidth::Bits32, lanes: 1, team, holds };
    let ways = if held.is_empty() { vec![way(false)] } else { vec![way(true), way(false)] };
    let product = |dims: &[SpaceDim]| DimExpr::product(dims.iter().map(|dim| &dim.extent));
    let scheduled = ways.iter().map(|way| {
        let mut scheduled = on_gpu(work, facts, &shape, way, &held);
        scheduled.when.push(Condition::AtMost(product(&shape.dims[..shape.rows]), FEW_ROWS));
        scheduled.when.push(Condition::AtLeast(product(shape.cols()), LONG_ROW));
        scheduled
    });
    scheduled.collect()
}

/// The teams that may share a row, and then what does for rows that none of them can hold. Few devices ever need wide
/// positions, and those have long rows or many.
fn ways_of(facts: &TargetFacts, index: IndexWidth, lanes: u8, holds: bool) -> Vec<Way> {
    let way = |team, holds| Way { index, lanes, team, holds };
    let rest = middle_team(facts).map(|team| way(team, false));
    let teams: &[Team] = match (index, holds) {
        (IndexWidth::Bits64, _) => &[],
        (IndexWidth::Bits32, true) => facts.teams,
        (IndexWidth::Bits32, false) => &facts.teams[..1],
    };
    teams.iter().map(|&team| way(team, holds)).chain(rest).collect()
}

/// Rows that are parts of longer ones, of `len` coordinates along the outermost dim of a row but for the last; the last
/// coordinate of rows is the number of the part. A block or a CPU thread has each for itself; a smaller team, where it is
/// several short runs.
pub(super) fn parts(
    work: &Work<'_>,
    facts: &TargetFacts,
    len: &DimExpr,
    (index, lanes): (IndexWidth, u8),
) -> Scheduled {
    let shape = Shape::new(work, Some(len.clone()));
    let smallest = facts.teams.first().map(|&team| Team { row_max: i64::MAX, ..team });
    match if shape.outer().is_empty() { middle_team(facts) } else { smallest } {
        None => on_cpu(work, facts, &shape),
        Some(team) => {
            let held = held_values(work, facts, &shape);
            let holds = held.len() == 1 && facts.row_memory == RowMemory::AtLaunch;
            let scheduled = on_gpu(work, facts, &shape, &Way { index, lanes, team, holds }, &held);
            Scheduled { when: vec![], ..scheduled }
        }
    }
}

/// Rows that are few and short: a block or a CPU thread has each for itself.
pub(super) fn few(work: &Work<'_>, facts: &TargetFacts) -> Scheduled {
    let shape = Shape::new(work, None);
    match middle_team(facts) {
        None => on_cpu(work, facts, &shape),
        Some(team) => {
            let way = Way { index: IndexWidth::Bits32, lanes: 1, team, holds: false };
            Scheduled { when: vec![], ..on_gpu(work, facts, &shape, &way, &[]) }
        }
    }
}

fn middle_team(facts: &TargetFacts) -> Option<Team> {
    let team = facts.teams.get(1).or(facts.teams.first()).copied();
    team.map(|team| Team { row_max: i64::MAX, ..team })
}

/// The dims of a row group: of the space that has an element for each row, then of a row.
struct Shape {
    rows: usize,
    dims: Vec<SpaceDim>,
    /// Coordinates along the outermost dim of all rows but the last, where each is a part of a longer one.
    part: Option<DimExpr>,
}

impl Shape {
    fn new(work: &Work<'_>, part: Option<DimExpr>) -> Shape {
        let rows = dims(work.graph, work.group, &work.operands);
        let cols = cols(work.graph, work.group, &work.operands);
        Shape { rows: rows.len(), dims: [rows, cols].concat(), part }
    }

    /// Most elements of a row along the innermost dim.
    fn len(&self) -> DimExpr {
        let part = self.part.as_ref().filter(|_| self.outer().is_empty());
        part.unwrap_or(&self.innermost().extent).clone()
    }

    /// Most elements of a row.
    fn each(&self) -> DimExpr {
        let (outermost, rest) = (&self.cols()[0], &self.cols()[1..]);
        let outermost = self.part.as_ref().unwrap_or(&outermost.extent);
        DimExpr::product([outermost].into_iter().chain(rest.iter().map(|dim| &dim.extent)))
    }

    fn cols(&self) -> &[SpaceDim] {
        &self.dims[self.rows..]
    }

    fn innermost(&self) -> &SpaceDim {
        &self.dims[self.dims.len() - 1]
    }

    /// The dims of a row but the innermost.
    fn outer(&self) -> &[SpaceDim] {
        &self.dims[self.rows..self.dims.len() - 1]
    }
}

/// A variant of a GPU kernel.
struct Way {
    index: IndexWidth,
    lanes: u8,
    team: Team,
    /// Whether elements that are needed again are held in shared memory.
    holds: bool,
}

fn on_gpu(work: &Work<'_>, facts: &TargetFacts, shape: &Shape, way: &Way, held: &[NodeId]) -> Scheduled {
    let threads = way.team.threads;
    let vector = if way.lanes > 1 { format!("_v{}", way.lanes) } else { String::new() };
    let wide = if way.index == IndexWidth::Bits64 { "_wide" } else { "" };
    let holds = if way.holds { "_held" } else { "" };
    let name = format!("{}_t{threads}{holds}{vector}{wide}", work.name);
    let mut body = Body::new(work, facts, &shape.dims, name, (way.index, Sight::Whole));
    body.set_team(threads);
    let start = body.uniform(UniformArg::Start, DType::Index, "start");
    let end = body.uniform(UniformArg::End, DType::Index, "end");
    let mut top = body.top();
    let (thread, lanes) = (top.bind(INDEX, Expr::TeamId), top.index(i64::from(way.lanes)));
    let first = top.apply(Op::Mul, &[thread, lanes]);
    let step = top.index(i64::from(threads) * i64::from(way.lanes));
    if way.holds {
        hold(facts, shape, &mut body, held);
    }
    let along = Along::Team { thread, first, step, lanes: way.lanes };
    let how_many = if way.holds { Runs::Each } else { Runs::Fewest };
    rows(work, shape, &mut body, (&along, how_many), (LoopKind::Team, start, end));
    let at_launch = way.holds && facts.row_memory == RowMemory::AtLaunch;
    let row_memory = if at_launch { bytes(shape, held) } else { DimExpr::constant(0) };
    let when = conditions(work, facts, shape, way, held);
    Scheduled { row_memory, ..scheduled(shape, body, when) }
}

/// Bytes of held values of a row.
fn bytes(shape: &Shape, held: &[NodeId]) -> DimExpr {
    shape.len() * DimExpr::constant(held.len() as i64 * 4)
}

/// Bytes for what threads combine, beside the elements of rows: no more than `folded_at_once` by warps of a block.
const FOLD_BYTES: i64 = 1024;

/// What a variant asks for.
fn conditions(
    work: &Work<'_>,
    facts: &TargetFacts,
    shape: &Shape,
    way: &Way,
    held: &[NodeId],
) -> Vec<Condition> {
    let inner = &shape.innermost().extent;
    let mut when = width_conditions(work, facts, way.index);
    if way.lanes > 1 {
        when.push(Condition::Divides(inner.clone(), i64::from(way.lanes)));
    }
    if way.team.row_max < i64::MAX {
        when.push(Condition::AtMost(inner.clone(), way.team.row_max));
    }
    match facts.row_memory {
        RowMemory::AtLaunch if way.holds => {
            let bytes = bytes(shape, held) * DimExpr::constant(way.team.per_block.into());
            when.push(Condition::Shares(bytes + DimExpr::constant(FOLD_BYTES)));
        }
        RowMemory::Fixed(elements) if way.holds => {
            when.push(Condition::AtMost(bytes(shape, held), 4 * i64::from(elements)));
        }
        RowMemory::AtLaunch | RowMemory::Fixed(_) | RowMemory::Scratch => {}
    }
    when
}

/// What is kept of each element of a row, if rows are a line.
fn held_values(work: &Work<'_>, facts: &TargetFacts, shape: &Shape) -> Vec<NodeId> {
    if shape.cols().len() > 1 || !work.group.unrolled.is_empty() { vec![] } else { held(work, facts) }
}

/// Gives each of these values a part of the memory for rows.
fn hold(facts: &TargetFacts, shape: &Shape, body: &mut Body<'_>, held: &[NodeId]) {
    let len = match facts.row_memory {
        RowMemory::AtLaunch => SharedLen::AtLaunch,
        RowMemory::Fixed(elements) => SharedLen::Fixed(elements),
        RowMemory::Scratch => {
            for &id in held {
                let memory = body.share(Shared { dtype: DType::F32, len: SharedLen::AtLaunch });
                let first = body.top().index(0);
                body.hold(id, memory, first);
            }
            return;
        }
    };
    let memory = body.share(Shared { dtype: DType::F32, len });
    let cols = body.extent(&shape.len());
    let mut top = body.top();
    let (slot, count) = (top.bind(INDEX, Expr::TeamSlot), top.index(held.len() as i64));
    let before = top.apply(Op::Mul, &[slot, count]);
    for (i, &id) in held.iter().enumerate() {
        let mut top = body.top();
        let number = top.index(i as i64);
        let place = top.apply(Op::Add, &[before, number]);
        let first = top.apply(Op::Mul, &[place, cols]);
        body.hold(id, memory, first);
    }
}

fn on_cpu(work: &Work<'_>, facts: &TargetFacts, shape: &Shape) -> Scheduled {
    let mut body = Body::new(work, facts, &shape.dims, work.name.into(), (IndexWidth::Bits64, Sight::Whole));
    let (zero, one) = (body.top().index(0), body.top().index(1));
    let held = held_values(work, facts, shape);
    hold(facts, shape, &mut body, &held);
    rows(work, shape, &mut body, (&Along::Vector, Runs::Each), (LoopKind::Grid, zero, one));
    Scheduled { row_memory: bytes(shape, &held), ..scheduled(shape, body, vec![]) }
}

fn scheduled(shape: &Shape, body: Body<'_>, when: Vec<Condition>) -> Scheduled {
    let product = |dims: &[SpaceDim]| DimExpr::product(dims.iter().map(|dim| &dim.extent));
    let rows = product(&shape.dims[..shape.rows]);
    let space = Space { rows, cols: DimExpr::constant(1), grain: 1, each: shape.each() };
    let (kernel, buffers) = body.finish();
    for buffer in &buffers {
        let known = matches!(buffer.reach, Reach::Linear(_) | Reach::Beside { .. });
        debug_assert!(buffer.access == Access::Read || known, "rows own what is written of them");
    }
    Scheduled { when, kernel, buffers, space, row_memory: DimExpr::constant(0) }
}

/// The part of a row along its outermost dim, whose number is the last of these coordinates.
fn range(shape: &Shape, part: &DimExpr, body: &mut Body<'_>, coordinates: &[Value]) -> Range {
    let range = body.range(coordinates[shape.rows - 1], part, &shape.cols()[0].extent);
    if shape.outer().is_empty() {
        body.hold_from(range.start);
    }
    range
}

/// How the elements of a row are gone through.
#[derive(Clone, Copy)]
enum Along {
    /// As the lanes of a vector loop.
    Vector,
    /// Some by each thread of a team.
    Team {
        /// Number of the thread in the team.
        thread: Value,
        /// Its first element.
        first: Value,
        /// Elements from one that it takes to the next.
        step: Value,
        /// Elements at a time.
        lanes: u8,
    },
}

impl Along {
    /// The same from the start of a part on.
    fn within(&self, body: &mut Body<'_>, range: Option<&Range>) -> Along {
        match (*self, range) {
            (Along::Team { thread, first, step, lanes }, Some(range)) => {
                let first = body.item().apply(Op::Add, &[range.start, first]);
                Along::Team { thread, first, step, lanes }
            }
            (along @ (Along::Team { .. } | Along::Vector), _) => along,
        }
    }
}

/// All rows, one after another.
fn rows(
    work: &Work<'_>,
    shape: &Shape,
    body: &mut Body<'_>,
    (along, how_many): (&Along, Runs),
    (kind, start, end): (LoopKind, Value, Value),
) {
    let row = body.top().declare(INDEX);
    let coordinates = body.decode_dims(row, shape.rows);
    let range = shape.part.as_ref().map(|part| range(shape, part, body, &coordinates));
    let along = &along.within(body, range.as_ref().filter(|_| shape.outer().is_empty()));
    let no_run = Run::default();
    let pass = |run| Pass { work, shape, along, row, range: range.as_ref(), coordinates: &coordinates, run };
    let runs = runs(work, how_many);
    for run in &runs {
        let whole = pass(run).combine(body);
        run.made().into_iter().zip(whole).for_each(|(id, value)| body.set_of_row(id, value));
    }
    let elements = |store: &Store| work.group.is_of_elements(store);
    if work.group.stores.iter().any(elements) {
        pass(&no_run).store(body);
    }
    let place = Place { element: row, coordinates, lanes: Lanes::ONE };
    let stores = work.group.stores.iter().zip(&work.stores).filter(|(store, _)| !elements(store));
    let stores: Vec<Stmt> = stores.map(|(store, &buffer)| body.store(buffer, store.node, &place)).collect();
    match along {
        Along::Team { thread, .. } if !stores.is_empty() => {
            let zero = body.top().index(0);
            let cond = body.item().apply(Op::Eq, &[*thread, zero]);
            body.item().body.push(Stmt::If { cond, body: stores });
        }
        Along::Team { .. } | Along::Vector => body.item().body.extend(stores),
    }
    let step = body.top().index(1);
    let (inside, _) = body.take();
    body.push(Stmt::Loop { var: row, kind, start, end, step, carried: vec![], body: inside });
}

/// Once through the elements of a row.
struct Pass<'p> {
    work: &'p Work<'p>,
    shape: &'p Shape,
    along: &'p Along,
    row: Value,
    range: Option<&'p Range>,
    coordinates: &'p [Value],
    /// What is combined.
    run: &'p Run,
}

/// Where in a row: a counter for each of its dims but the innermost, and the first element of a run along that.
struct Visit {
    counters: Vec<Value>,
    first: Value,
    /// What is done there.
    body: Vec<Stmt>,
    /// What is combined there.
    terms: Vec<Value>,
}

impl Pass<'_> {
    /// What is combined of all elements.
    fn combine(&self, body: &mut Body<'_>) -> Vec<Value> {
        let visit = self.visit(body, |pass, body, place| {
            let term = |id: NodeId| {
                let term = body.value(id, &vec![], place);
                body.inner().splat(term, place.lanes)
            };
            pass.run.terms(pass.work).into_iter().map(term).collect()
        });
        let parts = self.run.reduces(self.work);
        // What the lanes of a vector loop make together is one value.
        let lanes = match self.along {
            Along::Vector => Lanes::ONE,
            Along::Team { lanes, .. } => Lanes::Const(*lanes),
        };
        let starts = self.run.identity(self.work, &mut body.top(), lanes);
        let (stmts, mut made) = self.loops(body, self.shape.outer(), &visit, &starts);
        body.item().body.extend(stmts);
        let alone = self.run.alone.len();
        let pairs = made.split_off(alone);
        let mut all = self.together(body, &parts[..alone], made);
        for (exponentials, pair) in self.run.pairs.iter().zip(pairs.chunks_exact(2)) {
            let pair = [pair[0], pair[1]];
            let largest = self.together(body, &[(Reduce::Max, DType::F32)], vec![pair[0]])[0];
            let scaled = Exponentials::scaled(&mut body.item(), pair, largest);
            let sum = self.together(body, &[(Reduce::Sum, DType::F32)], vec![scaled])[0];
            all.extend([largest, exponentials.finish(&mut body.item(), [largest, sum])]);
        }
        all
    }

    /// Stores what is stored of elements.
    fn store(&self, body: &mut Body<'_>) {
        let visit = self.visit(body, |pass, body, place| {
            let work = pass.work;
            let stores = work.group.stores.iter().zip(&work.stores);
            let elements = stores.filter(|(store, _)| work.group.is_of_elements(store));
            // After all that is computed: a parameter is read before it is written.
            let stores: Vec<Stmt> =
                elements.map(|(store, &buffer)| body.store(buffer, store.node, place)).collect();
            body.inner().body.extend(stores);
            vec![]
        });
        let (stmts, _) = self.loops(body, self.shape.outer(), &visit, &[]);
        body.item().body.extend(stmts);
    }

    /// The part of a row, if it is one along the innermost dim.
    fn innermost_range(&self) -> Option<&Range> {
        self.range.filter(|_| self.shape.outer().is_empty())
    }

    fn lanes(&self) -> Lanes {
        match self.along {
            Along::Vector => Lanes::Loop,
            Along::Team { lanes, .. } => Lanes::Const(*lanes),
        }
    }

    /// What is done at a run of elements.
    fn visit<'w>(
        &self,
        body: &mut Body<'w>,
        make: impl FnOnce(&Self, &mut Body<'w>, &Place) -> Vec<Value>,
    ) -> Visit {
        let counters: Vec<Value> = self.shape.outer().iter().map(|_| body.top().declare(INDEX)).collect();
        let first = match self.along {
            Along::Vector => self.innermost_range().map_or_else(|| body.top().index(0), |range| range.start),
            Along::Team { .. } => body.top().declare(INDEX),
        };
        let coordinates = self.coordinates.iter().chain(&counters).chain([&first]).copied().collect();
        let place = Place { element: self.row, coordinates, lanes: self.lanes() };
        let terms = make(self, body, &place);
        Visit { counters, first, body: body.take_inner(), terms }
    }

    /// The loops over the outer dims that are left, and what they make of `starts`.
    fn loops(
        &self,
        body: &mut Body<'_>,
        outer: &[SpaceDim],
        visit: &Visit,
        starts: &[Value],
    ) -> (Vec<Stmt>, Vec<Value>) {
        let Some((dim, rest)) = outer.split_first() else { return self.innermost(body, visit, starts) };
        let cut = self.range.filter(|_| outer.len() == self.shape.outer().len());
        let (zero, step) = (body.top().index(0), body.top().index(1));
        let var = visit.counters[self.shape.outer().len() - outer.len()];
        let steps = match cut {
            None => Steps { var, start: zero, step, end: body.extent(&dim.extent) },
            Some(range) => Steps { var, start: range.start, step, end: range.end },
        };
        let run = (self.work, self.run);
        strips::combined(body, run, (steps, is_long(&dim.extent)), starts, |body, given| {
            self.loops(body, rest, visit, given)
        })
    }

    /// The loop over the elements along the innermost dim, and what it makes of `starts`.
    fn innermost(&self, body: &mut Body<'_>, visit: &Visit, starts: &[Value]) -> (Vec<Stmt>, Vec<Value>) {
        let range = self.innermost_range();
        let end = range.map_or_else(|| body.extent(&self.shape.innermost().extent), |range| range.end);
        match *self.along {
            Along::Team { first, step, .. } => {
                // A team has so many threads that each has few steps.
                let steps = Steps { var: visit.first, start: first, step, end };
                let run = (self.work, self.run);
                strips::combined(body, run, (steps, false), starts, |body, given| {
                    let mut inside = visit.body.clone();
                    let next = self.run.next(self.work, &mut body.writer(&mut inside), given, &visit.terms);
                    (inside, next)
                })
            }
            Along::Vector => {
                let len = range.map_or(end, |range| range.len);
                let parts = self.run.reduces(self.work);
                let terms = parts.iter().zip(&visit.terms);
                let folds: Vec<Fold> = terms.map(|(&part, &term)| fold(body, &[part], vec![term])).collect();
                let made: Vec<Value> = folds.iter().map(|fold| fold.out[0]).collect();
                let mut stmts = vec![Stmt::Vector { len, body: visit.body.clone(), folds }];
                let all = combined(&mut body.writer(&mut stmts), &parts, starts, &made);
                (stmts, all)
            }
        }
    }

    /// What all lanes and threads have, combined.
    fn together(&self, body: &mut Body<'_>, parts: &[Monoid], made: Vec<Value>) -> Vec<Value> {
        let Along::Team { lanes, .. } = *self.along else { return made };
        if made.is_empty() {
            return made;
        }
        let each_lane = |body: &mut Body<'_>, lane: u8| -> Vec<Value> {
            let mut b = body.item();
            let lane_of = |&value: &Value| {
                let ty = Type { lanes: Lanes::ONE, ..b.ty(value) };
                b.bind(ty, Expr::Lane(value, lane))
            };
            if lanes == 1 { made.clone() } else { made.iter().map(lane_of).collect() }
        };
        let mut all = each_lane(body, 0);
        for lane in 1..lanes {
            let next = each_lane(body, lane);
            all = combined(&mut body.item(), parts, &all, &next);
        }
        let at_once = folded_at_once(self.work);
        let folds = parts.chunks(at_once).zip(all.chunks(at_once));
        let folds: Vec<Fold> = folds.map(|(parts, values)| fold(body, parts, values.to_vec())).collect();
        let out = folds.iter().flat_map(|fold| fold.out.clone()).collect();
        body.item().body.extend(folds.into_iter().map(Stmt::Team));
        out
    }
}

/// What is combined as a fold over what lanes or threads have.
fn fold(body: &mut Body<'_>, parts: &[Monoid], over: Vec<Value>) -> Fold {
    let one = |&(_, dtype): &Monoid| Type { dtype, lanes: Lanes::ONE };
    let declare =
        |body: &mut Body<'_>| parts.iter().map(|part| body.top().declare(one(part))).collect::<Vec<_>>();
    let (left, right, out) = (declare(body), declare(body), declare(body));
    let identity = parts.iter().map(|&part| identity(&mut body.top(), part, Lanes::ONE)).collect();
    let mut function = Vec::new();
    let results = combined(&mut body.writer(&mut function), parts, &left, &right);
    Fold { over, identity, left, right, body: function, results, out }
}
