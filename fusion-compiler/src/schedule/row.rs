//! Row groups: values combined along rows, and what is made of them for each row or each of its elements.
//!
//! A row is gone through once for each step of what it takes: first what is combined of its elements alone, then what
//! needs those results, and last for what is stored of its elements (`passes.rs`). On GPUs a team of threads shares a row, each
//! taking every so many elements, and holds those that it needs again in memory of its own; on the CPU a thread has rows
//! for itself, in vector loops, and the cache holds them.

mod config;

pub(super) use self::config::Teams;
use self::config::{Placement, RowConfig, Rows, block, configs_of, lanes_and_placement};
use std::borrow::Cow;

use super::body::{Addressing, Body, Level};
use super::combine::of_rows;
use super::each_row::{GridMapping, rows};
use super::partition::Partition;
use super::passes::{self, PassCount, bytes_folded_at_once};
use super::row_loop::{StagedPart, ThreadMapping};
use super::row_space::RowSpace;
use super::space::{lanes, product, width_conditions, widths};
use super::staged_buffer::StagedBuffer;
use super::staging::{self, staged_values};
use super::{Operand, Schedule, Scheduled, UnstagedTail, Work};
use crate::fuse::Store;
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::{Access, NodeId};
use crate::ir::kernel::{BufferId, Builtin, IndexWidth, Kernel, LoopKind, Shared, SharedLen, Value, WARP};
use crate::ir::op::Op;
use crate::ir::plan::{BufferArg, Condition, Footprint, Space, UniformArg};
use crate::target::tuning_table::{gpu, ptx};
use crate::target::{CLUSTER_MAX, RowMemory, TargetFacts, Vectors, team};

/// The ways to run a row group, whose rows these teams share.
pub(super) fn row(work: &Work<'_>, facts: &TargetFacts, teams: Teams) -> Vec<Scheduled> {
    let space = RowSpace::new(work, facts);
    match facts.vector {
        Vectors::Loops(_) => vec![on_cpu(work, facts, &space)],
        Vectors::Lanes(most) => {
            let staged = staged_layouts(work, facts, &space);
            let scaling = if staged.is_empty() { config::scaling_lanes(work, facts) } else { 1 };
            let most = lanes(work, facts, most).max(scaling);
            let rows = Rows {
                several: !work.group.order.is_empty(),
                teams,
                after_parts: space.partials > 0,
                stages: !staged.is_empty(),
                narrow: staged.first().is_some_and(|staged| staged.dtype.is_narrow()),
                lanes_and_placement: &|lanes, stages| {
                    lanes_and_placement(work, facts, &space, (lanes, stages))
                },
                widths: &widths(work, facts),
            };
            let pairs = rows.widths.iter().flat_map(|&index| [(index, most), (index, 1)]);
            let configs: Vec<RowConfig> = pairs.flat_map(|of| configs_of(facts, &rows, of)).collect();
            let mut scheduled: Vec<Scheduled> =
                configs.iter().map(|config| on_gpu(work, facts, &space, config, &staged)).collect();
            // The last must do for whatever the others do not.
            if let Some(last) = scheduled.last_mut() {
                last.when.clear();
            }
            scheduled
        }
    }
}

/// The ways to run a group whose rows lie side by side, are few and are long: each row has many threads. A team has several
/// rows, so that what it reads and writes at a time lies side by side, too; where there are not as many it has one.
pub(super) fn columns_per_team(work: &Work<'_>, facts: &TargetFacts) -> Vec<Scheduled> {
    let space = RowSpace::new(work, facts);
    let Some(team) = block(facts) else { return vec![] };
    let staged = staged_layouts(work, facts, &space);
    let of = RowConfig::new(team, IndexWidth::Bits32);
    let config =
        |(rows_per_team, stages)| RowConfig { rows_per_team, cyclic: true, stages, common: true, ..of };
    let configs = [(gpu::ROWS_PER_TEAM, true), (gpu::ROWS_PER_TEAM, false), (1, true), (1, false)];
    let configs = configs.into_iter().filter(|(_, stages)| !stages || !staged.is_empty()).map(config);
    let scheduled = configs.map(|config| {
        let mut scheduled = on_gpu(work, facts, &space, &config, &staged);
        if config.rows_per_team > 1 {
            let rows = &space.dims[space.rows - 1].extent;
            scheduled.when.push(Condition::AtLeast(rows.clone(), config.rows_per_team.into()));
        }
        scheduled.when.push(Condition::AtMost(product(&space.dims[..space.rows]), gpu::COLUMN_TEAM_ROWS_MAX));
        scheduled.when.push(Condition::AtLeast(product(space.cols()), gpu::COLUMN_TEAM_ROW_MIN));
        scheduled
    });
    scheduled.collect()
}

/// Rows that are parts of longer ones, of `len` elements of a line, or coordinates along the outermost dim of a row that is
/// none, but for the last; the last coordinate of rows is the number of the part. A block or a CPU thread has each for itself.
pub(super) fn parts(
    work: &Work<'_>,
    facts: &TargetFacts,
    partition: &Partition,
    (index, lanes): (IndexWidth, u8),
) -> Scheduled {
    let space = RowSpace::of_parts(work, facts, partition);
    match block(facts) {
        None => on_cpu(work, facts, &space),
        Some(team) => {
            let staged = staged_layouts(work, facts, &space);
            let stages = places(&staged) == 1 && facts.row_memory == RowMemory::AtLaunch;
            let (lanes, placement) =
                lanes_and_placement(work, facts, &space, (lanes, stages.then_some(team)))
                    .unwrap_or_else(|| unreachable!("a block has a thread for every element of a vector"));
            let config = RowConfig { lanes, placement, stages, ..RowConfig::new(team, index) };
            Scheduled { when: vec![], ..on_gpu(work, facts, &space, &config, &staged) }
        }
    }
}

/// Parts of the elements of one long row, as `parts`, after those were combined: what they gave is combined again by each
/// thread, in one order.
pub(super) fn folded(
    work: &Work<'_>,
    facts: &TargetFacts,
    partition: &Partition,
    (index, lanes): (IndexWidth, u8),
) -> Scheduled {
    let space = RowSpace::of_parts(work, facts, partition);
    match block(facts) {
        None => on_cpu(work, facts, &space),
        Some(team) => {
            let config = RowConfig { lanes, ..RowConfig::new(team, index) };
            Scheduled { when: vec![], ..on_gpu(work, facts, &space, &config, &[]) }
        }
    }
}

/// Rows of what parts gave, which are short: a block or a CPU thread has each for itself, or a block several that are
/// side by side and many.
pub(super) fn of_partials(work: &Work<'_>, facts: &TargetFacts, schedule: Schedule) -> Vec<Scheduled> {
    let space = RowSpace::new(work, facts);
    let Some(team) = block(facts) else { return vec![on_cpu(work, facts, &space)] };
    let of = |rows_per_team| {
        let config = RowConfig { rows_per_team, cyclic: true, ..RowConfig::new(team, IndexWidth::Bits32) };
        Scheduled { when: vec![], ..on_gpu(work, facts, &space, &config, &[]) }
    };
    let many = match (schedule, &space.dims[..space.rows]) {
        (Schedule::Column, [.., next]) => Condition::AtLeast(next.extent.clone(), gpu::COMBINED_ROWS_MIN),
        (Schedule::Column | Schedule::Row | Schedule::Pointwise, _) => return vec![of(1)],
    };
    match many.known() {
        Some(true) => vec![of(gpu::ROWS_PER_TEAM)],
        Some(false) => vec![of(1)],
        None => vec![Scheduled { when: vec![many], ..of(gpu::ROWS_PER_TEAM) }, of(1)],
    }
}

fn on_gpu(
    work: &Work<'_>,
    facts: &TargetFacts,
    space: &RowSpace,
    config: &RowConfig,
    staged: &[StagedLayout],
) -> Scheduled {
    let name = format!("{}{}", work.name, config.suffix());
    let cluster = config.team.cluster.then(|| Cluster::new(space, config, staged));
    let space = &cluster.as_ref().map_or(Cow::Borrowed(space), |cluster| Cow::Owned(cluster.part(space)));
    let mut body = Body::new(work, facts, &space.dims, name, (config.index, Addressing::Whole));
    body.set_threads(config.threads());
    body.set_load_unroll(config.load_unroll(work, space));
    body.vectors = config.vectors_of().map(|of| (of, config.lanes));
    let start = body.uniform(UniformArg::Start, DType::Index, "start");
    let end = body.uniform(UniformArg::End, DType::Index, "end");
    let mut top = body.top();
    // The order of a sum does not follow from where in memory its row is.
    let at_once = if config.vectors_of().is_some() { 1 } else { config.lanes };
    let (thread, lanes, rows_per_team) = (
        top.builtin(Builtin::TeamId),
        top.index(i64::from(at_once)),
        top.index(i64::from(config.rows_per_team)),
    );
    let threads = config.threads().per_row();
    let (thread, column) = match config.rows_per_team {
        1 => (thread, None),
        _ if !config.cyclic => {
            let each = top.index(i64::from(threads));
            let (column, thread) = body.divide(Level::Top, thread, each);
            (thread, Some(column))
        }
        _ => {
            let (thread, column) = body.divide(Level::Top, thread, rows_per_team);
            (thread, Some(column))
        }
    };
    let mut top = body.top();
    let apart = config.placement == Placement::Apart;
    let first = if apart { thread } else { top.apply(Op::Mul, &[thread, lanes]) };
    let step = top.index(i64::from(threads) * i64::from(at_once));
    let staging = Staging::new((work, facts), space, config, staged);
    if config.stages {
        stage(facts, &staging, &mut body, config, column);
    }
    let part =
        staging.is_part.then(|| StagedPart { end: body.extent(&staging.len), len: staging.len.as_const() });
    let lanes = at_once;
    let along = ThreadMapping::Team { thread, threads, first, step, lanes, apart, ends: None, staged: part };
    let how_many = if config.stages && part.is_none() { PassCount::PerStep } else { PassCount::Fewest };
    rows(
        work,
        space,
        &mut body,
        (&along, how_many),
        GridMapping { kind: LoopKind::Team, start, end, rows_at_once: rows_per_team, column },
    );
    let at_launch = config.stages && facts.row_memory == RowMemory::AtLaunch;
    let row_memory = if at_launch { staging.bytes(config) } else { DimExpr::constant(0) };
    let when = conditions(work, facts, space, config, &staging);
    let mut scheduled = scheduled(space, body.finish(), when);
    (scheduled.space.grain, scheduled.space.grain_min) = (config.rows_per_team, config.rows_per_team);
    let left = || product(space.line()) - staging.len.clone();
    let unstaged_tail = part.map(|part| UnstagedTail { first: part.end, each: left() });
    let cluster = cluster.map_or(scheduled.cluster, |cluster| cluster.blocks);
    Scheduled { row_memory, cluster, common: config.common, unstaged_tail, ..scheduled }
}

/// How the blocks of a cluster share rows.
struct Cluster {
    /// How many there are.
    blocks: DimExpr,
    /// The most elements that one has of a row.
    len: DimExpr,
}

impl Cluster {
    fn new(space: &RowSpace, config: &RowConfig, staged: &[StagedLayout]) -> Cluster {
        let number = DimExpr::constant;
        let len = product(space.line());
        let bytes = len.clone() * number(bytes(staged));
        let most = bytes.ceil_div(number(ptx::CLUSTER_BYTES)).min(number(CLUSTER_MAX));
        // Whole warps, so that all parts start at a multiple of a vector; then fewer blocks may do, and no part starts beyond the row.
        let at_once = i64::from(WARP) * i64::from(config.lanes);
        let part = len.clone().ceil_div(most).ceil_div(number(at_once)) * number(at_once);
        Cluster { blocks: len.ceil_div(part.clone()), len: part }
    }

    /// The space of the part of one.
    fn part(&self, space: &RowSpace) -> RowSpace {
        RowSpace { part: Some(self.len.clone()), ..space.clone() }
    }
}

/// What a team holds of each row.
struct Staging {
    values: Vec<StagedLayout>,
    /// Of how many elements, the first.
    len: DimExpr,
    /// Whether a row may have more.
    is_part: bool,
}

impl Staging {
    fn new(
        (work, facts): (&Work<'_>, &TargetFacts),
        space: &RowSpace,
        config: &RowConfig,
        staged: &[StagedLayout],
    ) -> Staging {
        // The first vector and the last may have elements of other rows.
        let vectors = |by| (space.len() + DimExpr::constant(by - 1)).ceil_div(DimExpr::constant(by));
        let in_vectors = |by| vectors(by) * DimExpr::constant(by);
        let len = config.vectors_of().map_or_else(|| space.len(), |_| in_vectors(config.lanes.into()));
        let whole = Staging { values: staged.to_vec(), len, is_part: false };
        let Some(most) = config.team.staged_max.filter(|_| config.stages) else { return whole };
        // What needs a run along the row before it has to be made again of the other elements anyway, and is in the last run.
        let later = of_rows(work);
        let values = in_places(work, facts, staged_values(work, facts, &|id| !later.contains(&id)));
        if values.is_empty() {
            return whole;
        }
        // So that whole warps go through what is held.
        let at_once = i64::from(WARP) * i64::from(config.lanes);
        let most = most / bytes(&values) / at_once * at_once;
        Staging { values, len: whole.len.min(DimExpr::constant(most)), is_part: true }
    }

    /// Bytes for the rows of a team.
    fn bytes(&self, config: &RowConfig) -> DimExpr {
        self.len.clone() * DimExpr::constant(bytes(&self.values) * i64::from(config.rows_per_team))
    }
}

/// Bytes for what threads combine, beside the elements of rows: no more than `folded_at_once` values of each warp of a block, or
/// of each of the 256 threads that take turns with rows; and exchange buffers of a cluster, two for each of the two values that a
/// combination may have, with their barriers.
fn fold_bytes(work: &Work<'_>, config: &RowConfig) -> i64 {
    let own = if config.rows_per_team > 1 && config.cyclic { 256 * bytes_folded_at_once(work) } else { 1024 };
    let exchange_buffer = CLUSTER_MAX * 8 + 8;
    if config.team.cluster { own + 2 * 2 * exchange_buffer * staging::steps(work).len() as i64 } else { own }
}

/// What a variant asks for.
fn conditions(
    work: &Work<'_>,
    facts: &TargetFacts,
    space: &RowSpace,
    config: &RowConfig,
    staging: &Staging,
) -> Vec<Condition> {
    let mut when = width_conditions(work, facts, config.index);
    if config.lanes > 1 && config.placement == Placement::Vectors {
        when.push(Condition::Divides(space.innermost().extent.clone(), i64::from(config.lanes)));
    }
    if config.row_max < i64::MAX {
        when.push(Condition::AtMost(product(space.line()), config.row_max));
    }
    if config.team.rows_min > 0 {
        when.push(Condition::AtLeast(product(&space.dims[..space.rows]), config.team.rows_min));
    }
    if config.team.cluster {
        when.push(Condition::Clusters(CLUSTER_MAX as u32));
    }
    match facts.row_memory {
        RowMemory::AtLaunch if config.stages => {
            let bytes = staging.bytes(config) * DimExpr::constant(config.team.per_block.into());
            when.push(Condition::Shares(bytes + DimExpr::constant(fold_bytes(work, config))));
        }
        RowMemory::Fixed(elements) if config.stages => {
            when.push(Condition::AtMost(staging.bytes(config), 4 * i64::from(elements)));
        }
        RowMemory::AtLaunch | RowMemory::Fixed(_) | RowMemory::Scratch => {}
    }
    when
}

/// A value that is kept of each element of a row, and its place among those that are.
#[derive(Clone, Copy)]
struct StagedLayout {
    id: NodeId,
    /// The same for all.
    dtype: DType,
    place: i64,
    /// Whether no other is there before it.
    is_first: bool,
}

/// What is kept of each element, if rows are a line.
fn staged_layouts(work: &Work<'_>, facts: &TargetFacts, space: &RowSpace) -> Vec<StagedLayout> {
    // What one run is enough for needs nothing again, but on the CPU, where an exponential costs more than its cache.
    let of_elements = |store: &Store| work.group.is_of_elements(store);
    let is_run_once =
        || !work.group.stores.iter().any(of_elements) && passes::passes(work, PassCount::Fewest).len() < 2;
    let stages = space.is_line() && work.group.unrolled.is_empty();
    if !stages || facts.row_memory != RowMemory::Scratch && is_run_once() {
        return vec![];
    }
    in_places(work, facts, staged_values(work, facts, &|_| true))
}

/// Values that are kept, each in a place.
fn in_places(work: &Work<'_>, facts: &TargetFacts, staged: Vec<NodeId>) -> Vec<StagedLayout> {
    let narrow = staging::as_read(work, &staged).filter(|_| facts.row_memory == RowMemory::AtLaunch);
    let staged = narrow.unwrap_or(staged);
    let places = match facts.row_memory {
        RowMemory::Scratch => (0..staged.len()).map(|place| (place, true)).collect(),
        RowMemory::AtLaunch | RowMemory::Fixed(_) => staging::places(work, &staged),
    };
    let place = |(id, (place, is_first)): (NodeId, (usize, bool))| {
        let dtype = Some(work.graph.node(id).dtype).filter(|dtype| dtype.is_narrow()).unwrap_or(DType::F32);
        StagedLayout { id, dtype, place: place as i64, is_first }
    };
    staged.into_iter().zip(places).map(place).collect()
}

/// How many bytes they take of each element.
fn bytes(staged: &[StagedLayout]) -> i64 {
    staged.first().map_or(0, |first| places(staged) * first.dtype.size() as i64)
}

/// How many places they have, each as long as a row.
fn places(staged: &[StagedLayout]) -> i64 {
    staged.iter().map(|staged| staged.place + 1).max().unwrap_or(0)
}

/// Gives each of these values a part of the memory for rows, where those of rows whose threads take turns do so, too.
fn stage(
    facts: &TargetFacts,
    staging: &Staging,
    body: &mut Body<'_>,
    config: &RowConfig,
    column: Option<Value>,
) {
    let len = match facts.row_memory {
        RowMemory::AtLaunch => SharedLen::AtLaunch,
        // No more than the longest rows take, so that more groups have room.
        RowMemory::Fixed(elements) => {
            let rows = places(&staging.values) * i64::from(config.rows_per_team);
            let all = config.row_max.saturating_mul(rows);
            SharedLen::Fixed(u32::try_from(all).map_or(elements, |all| all.min(elements)))
        }
        RowMemory::Scratch => unreachable!("a thread alone has no team to share with"),
    };
    let dtype = staging.values.first().map_or(DType::F32, |staged| staged.dtype);
    let memory = body.share(Shared { dtype, len });
    let (cols, rows_per_team) = (body.extent(&staging.len), i64::from(config.rows_per_team));
    let mut top = body.top();
    let mut slot = top.builtin(Builtin::TeamSlot);
    let cyclic_row = column.filter(|_| config.cyclic);
    if let (Some(column), None) = (column, cyclic_row) {
        let rows = top.index(rows_per_team);
        slot = top.apply(Op::Mul, &[slot, rows]);
        slot = top.apply(Op::Add, &[slot, column]);
    }
    let count = top.index(places(&staging.values));
    let before = top.apply(Op::Mul, &[slot, count]);
    for &StagedLayout { id, place, is_first, .. } in &staging.values {
        let mut top = body.top();
        let number = top.index(place);
        let place = top.apply(Op::Add, &[before, number]);
        let mut first = top.apply(Op::Mul, &[place, cols]);
        if let Some(cyclic_row) = cyclic_row {
            let rows_per_team = top.index(rows_per_team);
            first = top.apply(Op::Mul, &[first, rows_per_team]);
            first = top.apply(Op::Add, &[first, cyclic_row]);
        }
        body.stage(id, StagedBuffer::Shared(memory, first), is_first);
    }
    if cyclic_row.is_some() {
        body.stage_apart(rows_per_team);
    }
}

/// The kernel of a team that has parts of a row for each few of its threads. The threads are next to each other if they
/// read vectors of lanes, and else take turns with rows that lie side by side.
pub(super) fn parts_by_team(
    work: &Work<'_>,
    facts: &TargetFacts,
    (partition, threads): (&Partition, u32),
    (index, lanes): (IndexWidth, Option<u8>),
) -> Scheduled {
    let space = RowSpace::of_parts(work, facts, partition);
    let rows_per_team = threads / gpu::PART_THREADS;
    let of = RowConfig::new(team(threads, i64::MAX, 1), index);
    let config = RowConfig { lanes: lanes.unwrap_or(1), cyclic: lanes.is_none(), rows_per_team, ..of };
    on_gpu(work, facts, &space, &config, &[])
}

fn on_cpu(work: &Work<'_>, facts: &TargetFacts, space: &RowSpace) -> Scheduled {
    let (kernel, row_memory) = kernel_on_cpu(work, facts, space);
    Scheduled { row_memory, ..scheduled(space, kernel, vec![]) }
}

/// The kernel of rows that a CPU thread has for itself, what is behind its buffers, and the bytes of memory for a row.
pub(super) fn kernel_on_cpu(
    work: &Work<'_>,
    facts: &TargetFacts,
    space: &RowSpace,
) -> ((Kernel, Vec<BufferArg>), DimExpr) {
    let staged = staged_layouts(work, facts, space);
    let written = staged.iter().find_map(|staged| Some((staged.id, written_last(work, space, staged.id)?)));
    let reading = written.map(|(_, buffer)| work.with_access(buffer, Access::ReadWrite));
    let work = reading.as_ref().unwrap_or(work);
    let mut body =
        Body::new(work, facts, &space.dims, work.name.into(), (IndexWidth::Bits64, Addressing::Whole));
    let (zero, one) = (body.top().index(0), body.top().index(1));
    let mut places = 0;
    for &StagedLayout { id, .. } in &staged {
        let stage = match written {
            Some((last, buffer)) if last == id => StagedBuffer::Written(buffer),
            Some(_) | None => {
                places += 1;
                let memory = body.share(Shared { dtype: DType::F32, len: SharedLen::AtLaunch });
                StagedBuffer::Shared(memory, zero)
            }
        };
        body.stage(id, stage, true);
    }
    let mapping =
        GridMapping { kind: LoopKind::Grid, start: zero, end: one, rows_at_once: one, column: None };
    rows(work, space, &mut body, (&ThreadMapping::Vector, PassCount::PerStep), mapping);
    (body.finish(), space.len() * DimExpr::constant(places * 4))
}

/// What is written of the elements of whole rows and can hold a value of theirs until then, so that it is in a cache when it
/// is written, and nothing else is: of the same type, laid out as rows are, and not read.
fn written_last(work: &Work<'_>, space: &RowSpace, id: NodeId) -> Option<BufferId> {
    let (graph, group) = (work.graph, work.group);
    // The elements of a row lie next to those of the next part of the row.
    let counts = space.part_dim.map(|dim| &*space.dims[dim].axes);
    let order = || group.order.iter().filter(|axis| counts != Some(&[**axis])).chain(&group.cols);
    let lies_as_rows = |operand: &Operand| operand.axes.iter().eq(order()) && !operand.moved;
    let stages = |(store, buffer): &(&Store, &BufferId)| {
        let operand = &work.operands[usize::from(buffer.0)];
        let is_alike = graph.node(store.node).dtype == graph.node(id).dtype && lies_as_rows(operand);
        is_alike && operand.access == Access::Write
    };
    let mut stores = group.stores.iter().zip(&work.stores);
    stores.find(stages).map(|(_, &buffer)| buffer)
}

fn scheduled(
    space: &RowSpace,
    (kernel, buffers): (Kernel, Vec<BufferArg>),
    when: Vec<Condition>,
) -> Scheduled {
    let (rows, cols) = (product(&space.dims[..space.rows]), DimExpr::constant(1));
    let launched = Space { rows, cols, grain: 1, grain_min: 1, each: space.each() };
    for buffer in &buffers {
        let known = matches!(buffer.footprint, Footprint::Linear(_) | Footprint::Strided { .. });
        let is_owned = known || space.partials > 0;
        debug_assert!(buffer.access == Access::Read || is_owned, "rows own what is written of them");
    }
    Scheduled::new(when, (kernel, buffers), launched)
}
