//! Group → kernels: how the work of a group is spread over a launch. One schedule a file.
//!
//! Invariant: a schedule knows the target only by its facts, and writes the same body for all of them.

use std::collections::BTreeMap;

use crate::fuse::attention::Attention;
use crate::fuse::{Group, Load};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::{Access, AxisId, Graph, NodeId};
use crate::ir::kernel::{BufferId, Kernel, UNIFORM_LEN, Value};
use crate::ir::plan::{BufferArg, Condition, Contraction, Slot, Space};
use crate::target::TargetFacts;
use contraction::Partials;
use row::Teams;

mod body;
mod coalesce_transposed;
mod collapse_loops;
mod column;
mod combine;
pub mod contraction;
mod each_row;
mod items;
mod one_hot_gather;
mod partition;
mod passes;
mod pointwise;
mod position;
mod row;
mod row_loop;
mod row_space;
mod space;
mod split_reduction;
mod staged_buffer;
mod staging;
mod strips;
mod views;

/// How the work of a group is spread over threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Every element by itself.
    Pointwise,
    /// What is combined along rows, whose elements lie next to each other.
    Row,
    /// What is combined along rows that lie side by side.
    Column,
}

impl Schedule {
    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Schedule::Pointwise => "pointwise",
            Schedule::Row => "row",
            Schedule::Column => "column",
        }
    }
}

/// The schedule for a group, or for those of its calls whose products are too small for tiles.
pub fn chosen(work: &Work<'_>) -> Schedule {
    if work.group.cols.is_empty() {
        Schedule::Pointwise
    } else if column::fits(work) && work.group.of_all(work.graph).is_empty() {
        Schedule::Column
    } else {
        Schedule::Row
    }
}

/// The ways to run a group, in order of preference, of which some call may take each, and the memory that their kernels
/// pass values through.
pub fn schedule(work: &Work<'_>, facts: &TargetFacts) -> (Vec<Config>, Vec<Scratch>) {
    if Attention::of(work.graph, work.group).is_some() {
        let mut scratch = vec![];
        let configs = contraction::contraction(work, facts, &mut scratch);
        return (bindable(configs, facts), scratch);
    }
    let alone = |configs: Vec<Scheduled>| configs.into_iter().map(|scheduled| vec![scheduled]).collect();
    let (mut configs, mut scratch) = match chosen(work) {
        Schedule::Pointwise => (alone(pointwise::pointwise(work, facts)), vec![]),
        Schedule::Column => {
            let (mut configs, scratch) = split_reduction::split(work, facts, Schedule::Column);
            configs.extend(alone(column::column(work, facts)));
            (configs, scratch)
        }
        Schedule::Row if !work.group.of_all(work.graph).is_empty() => {
            split_reduction::global_then_rows(work, facts)
        }
        Schedule::Row => {
            let has_tiles = contraction::Product::in_tiles(work, facts).is_some();
            let teams = if has_tiles { Teams::Half } else { Teams::All };
            let mut configs: Vec<Config> = alone(row::row(work, facts, teams));
            let (split, scratch) = split_reduction::split(work, facts, Schedule::Row);
            let before = split_reduction::before(work, facts, &configs);
            configs.splice(before..before, split);
            (configs, scratch)
        }
    };
    configs.splice(0..0, contraction::contraction(work, facts, &mut scratch));
    if let Some(Partials::Reads(partials, when)) = work.partials {
        configs.splice(0..0, partials.combined(facts, when));
    }
    (bindable(configs, facts), scratch)
}

/// Those of the ways that some call may take.
fn bindable(mut configs: Vec<Config>, facts: &TargetFacts) -> Vec<Config> {
    // The last does for whatever the others do not, and has no more buffers than its group.
    let binds = |config: &Config| config.iter().all(|kernel| kernel.storage_buffers() <= facts.buffers_max);
    let last = configs.pop();
    configs.retain(binds);
    configs.extend(last);
    drop_unreachable(&mut configs);
    configs
}

/// Drops the ways that constant extents rule out, and those after one that will do wherever they would.
fn drop_unreachable(configs: &mut Vec<Config>) {
    let known = |config: &Config, holds| {
        config.iter().flat_map(|kernel| &kernel.when).any(|condition| condition.known() == Some(holds))
    };
    configs.retain(|config| !known(config, false));
    for kernel in configs.iter_mut().flatten() {
        kernel.when.retain(|condition| condition.known() != Some(true));
    }
    let mut before: Vec<Vec<Condition>> = Vec::new();
    configs.retain(|config| {
        let when: Vec<Condition> = config.iter().flat_map(|kernel| kernel.when.clone()).collect();
        let is_new = !before.iter().any(|others| others.iter().all(|other| other.follows(&when)));
        before.push(when);
        is_new
    });
}

/// One way to run a group: its kernels, one after another. It may be used when all of them may.
pub type Config = Vec<Scheduled>;

/// Memory that only the kernels of one group use.
#[derive(Clone, Debug, PartialEq)]
pub struct Scratch {
    /// Of its elements.
    pub dtype: DType,
    /// Number of elements.
    pub len: DimExpr,
    /// True if the length is at most `UNIFORM_LEN` for all extents.
    pub fits_uniform: bool,
}

impl Scratch {
    /// Elements that there has to be room for, as much as a uniform has where it may be one.
    pub fn room(self, facts: &TargetFacts) -> DimExpr {
        let is_uniform = self.fits_uniform && facts.uniform_buffers_max > 0;
        if is_uniform { DimExpr::constant(UNIFORM_LEN.into()) } else { self.len }
    }
}

/// A group with the memory that it reads and writes.
pub struct Work<'g> {
    /// The function.
    pub graph: &'g Graph,
    /// The part of it.
    pub group: &'g Group,
    /// Base of the kernels' names.
    pub name: &'g str,
    /// What is read and written, in the order of the kernel's buffers.
    pub operands: Vec<Operand>,
    /// Which of them holds a value to read.
    pub loads: BTreeMap<Load, BufferId>,
    /// Which of them each store writes.
    pub stores: Vec<BufferId>,
    /// How many temporaries there are beside those of its own kernels.
    pub temporaries: u16,
    /// Partial results of reductions that tiles store.
    pub partials: Option<Partials<'g>>,
}

/// A tensor that a kernel reads or writes.
#[derive(Clone, Debug)]
pub struct Operand {
    /// Whose memory.
    pub slot: Slot,
    /// For readers of the text.
    pub name: String,
    /// Of its elements.
    pub dtype: DType,
    /// What is done with it.
    pub access: Access,
    /// Outermost first.
    pub axes: Vec<AxisId>,
    /// True if the buffer has at most `UNIFORM_LEN` elements for all extents.
    pub fits_uniform: bool,
    /// Whether it is read at other places than those of the elements at hand.
    pub moved: bool,
    /// One of the axes that is none in memory: parts that take turns along the axis before it.
    pub interleave_axis: Option<AxisId>,
}

impl<'g> Work<'g> {
    /// Returns the operand of each value that the group reads.
    fn known(&self) -> BTreeMap<Load, Operand> {
        let operand = |buffer: BufferId| self.operands[usize::from(buffer.0)].clone();
        self.loads.iter().map(|(&load, &buffer)| (load, operand(buffer))).collect()
    }

    /// Whether the elements of a row are combined in a loop for a value.
    fn combines_row(&self, id: NodeId) -> bool {
        let looped = self.graph.looped_axes(id);
        self.group.cols.iter().any(|&axis| looped.contains(axis))
    }

    /// What is combined before there is a row, of what parts gave.
    fn of_parts(&self) -> Vec<NodeId> {
        let is_of_parts = |&id: &NodeId| !self.graph.looped_axes(id).is_empty() && !self.combines_row(id);
        self.group.nodes.iter().copied().filter(is_of_parts).collect()
    }

    /// Whether an operand lies in memory as the rows do, so that where one's vectors start those of the other do.
    fn lies_as_rows(&self, operand: &Operand) -> bool {
        let Group { order, cols, .. } = self.group;
        operand.axes.iter().eq(order.iter().chain(cols)) && !operand.moved
    }

    /// Whether something has elements along rows, as scales have, that lie otherwise than those do.
    fn has_others_along(&self) -> bool {
        let is_along = |operand: &Operand| self.group.cols.iter().any(|axis| operand.axes.contains(axis));
        self.operands.iter().any(|operand| is_along(operand) && !self.lies_as_rows(operand))
    }

    /// The same where this is done with a buffer.
    fn with_access(&self, buffer: BufferId, access: Access) -> Work<'g> {
        let (loads, stores) = (self.loads.clone(), self.stores.clone());
        let mut work = Work { operands: self.operands.clone(), loads, stores, ..*self };
        work.operands[usize::from(buffer.0)].access = access;
        work
    }
}

impl Scheduled {
    /// Buffers that are bound as such, and not as uniforms.
    fn storage_buffers(&self) -> usize {
        self.buffers.iter().filter(|buffer| !buffer.uniform).count()
    }
}

impl Operand {
    /// The axes in memory, outermost first.
    fn in_memory(&self) -> impl Iterator<Item = AxisId> {
        self.axes.iter().copied().filter(|&axis| Some(axis) != self.interleave_axis)
    }
}

/// One kernel.
#[derive(Clone, Debug)]
pub struct Scheduled {
    /// When it may be used; of several the first that may.
    pub when: Vec<Condition>,
    /// The program.
    pub kernel: Kernel,
    /// What is behind its buffers: the operands in order, views of one tensor as one, then those that are seen through more than
    /// one window.
    pub buffers: Vec<BufferArg>,
    /// What a launch iterates over.
    pub space: Space,
    /// Bytes of shared memory that each team gets at launch.
    pub row_memory: DimExpr,
    /// Blocks of a cluster that work on an iteration together.
    pub cluster: DimExpr,
    /// Whether many calls take it, so that it is worth a form of its own for devices that can do more.
    pub common: bool,
    /// Whether rows that are too short for a loop each are gone through as one line; the CPU only.
    pub line: bool,
    /// Those elements that a team does not hold, where it holds some of each row.
    pub unstaged_tail: Option<UnstagedTail>,
    /// The contraction whose tiles the kernel finishes; the CPU only.
    pub contraction: Option<Contraction>,
    /// True if the kernel runs only for blocks of a contraction's operand; the CPU only.
    pub of_blocks: bool,
}

/// The last elements of rows, which are read whenever they are needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnstagedTail {
    /// The first of each row; what goes through those before ends with it.
    pub first: Value,
    /// How many there are of each.
    pub each: DimExpr,
}

impl Scheduled {
    /// Makes a kernel without row memory, clusters and other special properties.
    fn new(when: Vec<Condition>, (kernel, buffers): (Kernel, Vec<BufferArg>), space: Space) -> Scheduled {
        let (row_memory, cluster) = (DimExpr::constant(0), DimExpr::constant(1));
        let (common, line, unstaged_tail, contraction, of_blocks) = (false, false, None, None, false);
        Scheduled {
            when,
            kernel,
            buffers,
            space,
            row_memory,
            cluster,
            common,
            line,
            unstaged_tail,
            contraction,
            of_blocks,
        }
    }

    /// Returns true if threads of a team combine values through subgroups.
    pub fn combines_by_subgroups(&self) -> bool {
        self.when.iter().any(|condition| matches!(condition, Condition::Subgroups(_)))
    }

    /// Returns true if both differ in nothing but when they are used.
    pub fn is_same_launch(&self, other: &Scheduled) -> bool {
        self.combines_by_subgroups() == other.combines_by_subgroups()
            && self.kernel == other.kernel
            && self.buffers == other.buffers
            && self.space == other.space
            && self.row_memory == other.row_memory
            && self.cluster == other.cluster
            && self.unstaged_tail == other.unstaged_tail
            && self.contraction == other.contraction
            && self.of_blocks == other.of_blocks
    }
}
