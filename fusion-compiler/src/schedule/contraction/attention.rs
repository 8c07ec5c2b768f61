//! Attention on the CPU: the driver computes scores in tiles of queries and keys, a kernel turns the scores of a tile
//! into weights, and the driver adds up values. Another kernel computes the results from the sums.
//!
//! The kernel of weights has a part of the keys at a time and combines the largest score and sums of the part. The
//! driver combines parts in order. A part has a constant number of keys, so the order of a sum depends on extents
//! alone.

use std::collections::BTreeMap;

use super::super::items::Grain;
use super::super::partition::Partition;
use super::super::pointwise::on_cpu;
use super::super::row_space::RowSpace;
use super::super::space::{self, dims_along};
use super::super::split_reduction::{Stage, StageKind, in_tiles, memory};
use super::super::{Config, Operand, Scheduled, Scratch, Work, row};
use super::Product;
use super::attention_parts::KeyParts;
use super::attention_tiles::AttendTiles;
use super::factor::{FactorSource, order};
use super::few::kernels;
use super::visible::{Interval, visible};
use crate::fuse::attention::Attention;
use crate::fuse::{Load, Store};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::{Access, AxisId, AxisSet, Graph, Node, NodeId, NodeKind};
use crate::ir::kernel::BufferId;
use crate::ir::plan::{
    self, Blocks, Condition, Contraction, DEPTH, Footprint, RowState, Slot, Space, StateKind, TileAxis,
};
use crate::target::{TargetFacts, Tiles};

/// Attention of a group, as two products and the order of its rows.
pub(super) struct Attend<'w> {
    of: Attention,
    work: &'w Work<'w>,
    facts: &'w TargetFacts,
    /// Axes of the rows of results, which are those of the batch and of the queries.
    outer: Vec<AxisId>,
    scores: Product,
    sums: Product,
}

/// Memory of a value of each row: while parts are combined, and of all parts.
struct State {
    node: NodeId,
    kind: StateKind,
    whole: Operand,
}

impl<'w> Attend<'w> {
    /// Returns the attention that a group is, if it is one.
    pub(super) fn new(work: &'w Work<'w>, facts: &'w TargetFacts) -> Option<Attend<'w>> {
        let of = Attention::of(work.graph, work.group)?;
        let (outer, cols): (Vec<AxisId>, Vec<AxisId>) =
            work.group.order.iter().partition(|axis| !of.cols.contains(**axis));
        let (batch, rows): (Vec<AxisId>, Vec<AxisId>) =
            outer.iter().partition(|axis| of.batch.contains(**axis));
        let along = vec![of.along];
        let depth: AxisSet = work.graph.reduced_axes(of.products);
        let depth = order(work, of.queries).into_iter().filter(|axis| depth.contains(*axis)).collect();
        let (left, right, sum) = (of.queries, of.keys, of.products);
        let product = (batch.clone(), rows.clone());
        let scores = Product { sum, left, right, batch, rows, cols: along.clone(), depth };
        let (batch, rows) = product;
        let sums =
            Product { sum: of.sum, left: of.weights, right: of.values, batch, rows, cols, depth: along };
        Some(Attend { of, work, facts, outer, scores, sums })
    }

    /// Returns the ways to run the group. On the CPU, these are with factors in blocks, and with stored factors for calls
    /// whose runs of elements are too short.
    pub(super) fn configs(&self, scratch: &mut Vec<Scratch>) -> Vec<Config> {
        if matches!(self.facts.contractions.tiles, Tiles::Teams(_)) {
            return self.by_teams(scratch);
        }
        let mut configs: Vec<Config> = Vec::new();
        configs.extend(self.by_few(scratch));
        for in_blocks in [true, false] {
            configs.push(self.config(scratch, in_blocks));
            if configs.last().is_some_and(|config| config.iter().all(|kernel| kernel.when.is_empty())) {
                break;
            }
        }
        configs
    }

    /// Returns reductions for few queries, which read keys and values along their memory. Weights of few queries are small.
    fn by_few(&self, scratch: &mut Vec<Scratch>) -> Option<Config> {
        let Attend { of, work, facts, outer, .. } = self;
        let rows = DimExpr::product(self.sums.rows.iter().map(|&axis| &work.graph.axis(axis).extent));
        let are_few = Condition::AtMost(rows, facts.contractions.rows_min - 1);
        if are_few.known() == Some(false) {
            return None;
        }
        let along = vec![of.along];
        let all = [outer.as_slice(), &along].concat();
        let (mut known, mut config) = (work.known(), Config::new());
        let mut add = |known: &BTreeMap<Load, Operand>, (name, of_rows), stores: Vec<(Store, Operand)>| {
            let mut stage = Stage::new(StageKind::Rows, work.graph.clone(), known.clone(), of_rows);
            stage.name = format!("{}_few_{name}", work.name);
            for (store, operand) in stores {
                let is_known = stage.known.contains_key(&Load::Stored(store.node));
                let node = if is_known { stage.copy(store.node) } else { store.node };
                stage.store(Store { node, ..store }, operand);
            }
            // The last kernel of a schedule is for all calls.
            config.extend(kernels(stage, facts).pop());
        };
        let mut memory = |node: NodeId, name: &str, order: &[AxisId]| {
            let made = memory(work, scratch, work.graph, name.into(), DType::F32, order.to_vec());
            (Store { node, output: None, order: order.to_vec() }, made)
        };
        let results = work.group.stores.iter().zip(&work.stores);
        let results = results
            .map(|(store, &BufferId(buffer))| (store.clone(), work.operands[usize::from(buffer)].clone()));
        let (of_elements, of_rows): (Vec<_>, Vec<_>) =
            results.partition(|(store, _)| store.order == work.group.order);
        let scores =
            of.softmax.as_ref().map_or(of.weights, |softmax| work.graph.node(softmax.largest).args[0]);
        let of_scores = memory(scores, "scores", &all);
        add(&known, ("scores", (all.clone(), self.scores.depth.clone())), vec![of_scores.clone()]);
        known.insert(Load::Stored(scores), of_scores.1);
        if let Some(softmax) = &of.softmax {
            let mut stores = vec![memory(of.weights, "weights", &all)];
            let sums = softmax.sums.iter().map(|(sum, _)| *sum);
            let states = [softmax.largest].into_iter().chain(sums);
            stores.extend(states.map(|node| memory(node, "state", outer)));
            let made: Vec<_> =
                stores.iter().map(|(store, operand)| (Load::Stored(store.node), operand.clone())).collect();
            stores.extend(of_rows);
            add(&known, ("weights", (outer.clone(), along.clone())), stores);
            known.extend(made);
        }
        add(&known, ("values", (work.group.order.clone(), along)), of_elements);
        config[0].when = vec![are_few];
        Some(config)
    }

    /// Returns the ways to run the group on GPUs. The elements of a row are keys, and steps of the depth of scores.
    fn by_teams(&self, scratch: &mut Vec<Scratch>) -> Vec<Config> {
        let Attend { of, work, facts, outer, .. } = self;
        let mut graph = work.graph.clone();
        let seen = visible(&mut graph, of);
        let [scores, sums] = [&self.scores, &self.sums].map(|product| by_one_axis(product, &graph, seen));
        let elements = [[of.along].as_slice(), &scores.depth].concat();
        let of_rows = (work.group.order.clone(), elements);
        let mut stage = Stage::new(StageKind::Rows, graph.clone(), work.known(), of_rows);
        for (store, &BufferId(buffer)) in work.group.stores.iter().zip(&work.stores) {
            stage.store(store.clone(), work.operands[usize::from(buffer)].clone());
        }
        stage.fill(&[]);
        stage.name = work.name.into();
        let (scores, sums) = (&scores, &sums);
        let whole = AttendTiles { of, work: &stage.work(), facts, scores, sums, seen, in_parts: false };
        let parts = KeyParts { of, work, facts, graph: &graph, scores, sums, seen, outer };
        let shapes = facts.contractions.attention.iter();
        let mut configs: Vec<Config> = shapes.flat_map(|&shape| parts.configs(shape, scratch)).collect();
        configs.extend(whole.configs());
        configs
    }

    fn config(&self, scratch: &mut Vec<Scratch>, in_blocks: bool) -> Config {
        let mut config = Config::new();
        let (of, work, facts) = (&self.of, self.work, self.facts);
        let mut source = |product: &Product, of| {
            let found = product.source(work, facts, (scratch, in_blocks), of, &mut config);
            found.unwrap_or_else(|| product.stored_source(work, facts, scratch, of, &mut config))
        };
        let factors = [
            source(&self.scores, (of.queries, "queries")),
            source(&self.scores, (of.keys, "keys")),
            source(&self.sums, (of.values, "values")),
        ];
        let suffix = if factors.iter().any(FactorSource::is_in_blocks) { "_of_blocks" } else { "" };
        let states = self.states(scratch);
        let (weights, [of_scores, of_weights], parts) = self.weights(scratch, &states, suffix);
        let number = config.len() as u16;
        config.push(weights);
        let visible = self.visible(scratch, &mut config);
        let (mut finish, sums) = self.finish(scratch, &states, suffix);
        let buffer = |finish: &Scheduled, slot: Slot| {
            let number = finish.buffers.iter().position(|buffer| buffer.slot == slot);
            number.map(|number| number as u16)
        };
        let whole: Vec<Option<u16>> = states.iter().map(|state| buffer(&finish, state.whole.slot)).collect();
        let state = states.iter().zip(parts).zip(whole);
        let state = state.map(|((state, part), whole)| RowState { kind: state.kind, part, whole });
        let tile_of_sums = buffer(&finish, sums.slot);
        let tile_of_sums = tile_of_sums.unwrap_or_else(|| unreachable!("results are computed from the sums"));
        let axes = |axes: &[AxisId], [left, right]: [&FactorSource; 2]| {
            axes.iter().map(|&axis| self.axis(axis, [left, right])).collect::<Vec<_>>().into()
        };
        let [queries, keys, values] = &factors;
        let (of_products, of_values) = ([queries, keys], [queries, values]);
        let windows = |factor: &FactorSource, product: &Product, lanes: &[AxisId]| {
            factor.windows(work.graph, [&product.batch, lanes, &product.depth])
        };
        let attention = plan::Attention {
            launch: number,
            scores: of_scores,
            weights: of_weights,
            state: state.collect::<Vec<_>>().into(),
            is_finite: of.softmax.as_ref().is_none_or(|softmax| softmax.shift != softmax.largest),
            windows: windows(values, &self.sums, &self.sums.cols),
            batch: axes(&self.sums.batch, of_values),
            cols: axes(&self.sums.cols, of_values),
            depth: axes(&self.sums.depth, of_values),
            values: values.bind(&mut finish),
            visible,
        };
        finish.contraction = Some(Contraction {
            batch: axes(&self.scores.batch, of_products),
            rows: axes(&self.scores.rows, of_products),
            cols: axes(&self.scores.cols, of_products),
            depth: axes(&self.scores.depth, of_products),
            windows: [
                windows(queries, &self.scores, &self.scores.rows),
                windows(keys, &self.scores, &self.scores.cols),
            ],
            left: queries.bind(&mut finish),
            right: keys.bind(&mut finish),
            tile: tile_of_sums,
            attention: Some(attention),
            parts: None,
        });
        config.push(finish);
        config
    }

    /// Returns an axis with its strides in the rows of results and in two factors.
    fn axis(&self, axis: AxisId, [left, right]: [&FactorSource; 2]) -> TileAxis {
        let graph = self.work.graph;
        let extent = |axis: &AxisId| &graph.axis(*axis).extent;
        let zero = || DimExpr::constant(0);
        let within = self.outer.iter().skip_while(|&&other| other != axis).skip(1);
        TileAxis {
            extent: extent(&axis).clone(),
            space: if self.outer.contains(&axis) { DimExpr::product(within.map(extent)) } else { zero() },
            left: left.stride(graph, axis).unwrap_or_else(zero),
            right: right.stride(graph, axis).unwrap_or_else(zero),
        }
    }

    /// Returns memory without elements, which is the driver's when a kernel runs.
    fn driver_memory(
        &self,
        scratch: &mut Vec<Scratch>,
        (dtype, name): (DType, &str),
        axes: Vec<AxisId>,
    ) -> Operand {
        let made = memory(self.work, scratch, self.work.graph, name.into(), dtype, axes);
        if let Some(scratch) = scratch.last_mut() {
            scratch.len = DimExpr::constant(0);
        }
        made
    }

    /// Appends the kernels that compute the first and the last key of each row that is not masked, if there are such.
    fn visible(&self, scratch: &mut Vec<Scratch>, config: &mut Config) -> [Option<Blocks>; 2] {
        let Attend { of, work, facts, outer, .. } = self;
        let mut graph = work.graph.clone();
        let Interval { first, last } = visible(&mut graph, of);
        [(first, "first"), (last, "last")].map(|(end, name)| {
            let node = Node { axes: outer.iter().copied().collect(), ..graph.node(end?).clone() };
            let node = graph.push(Node { kind: NodeKind::Cast, args: vec![end?], ..node });
            let made = self.driver_memory(scratch, (DType::F64, name), outer.clone());
            let of_rows = (outer.clone(), vec![]);
            let mut stage = Stage::new(StageKind::Elements, graph.clone(), work.known(), of_rows);
            stage.store(Store { node, output: None, order: outer.clone() }, made.clone());
            stage.fill(&[]);
            stage.name = format!("{}_{name}", work.name);
            let own = stage.work();
            let all = space::dims(own.graph, own.group, &own.operands);
            let kernel = Scheduled { of_blocks: true, ..on_cpu(&own, facts, &all, Grain::Block) };
            let buffer = kernel.buffers.iter().position(|buffer| buffer.slot == made.slot)?;
            config.push(kernel);
            Some(Blocks { launch: config.len() as u16 - 1, buffer: buffer as u16, along_depth: false })
        })
    }

    fn states(&self, scratch: &mut Vec<Scratch>) -> Vec<State> {
        let Some(softmax) = &self.of.softmax else { return vec![] };
        let largest = (softmax.largest, StateKind::Largest, "largest");
        let sum = |&(sum, shift): &(NodeId, NodeId)| {
            (sum, if shift == softmax.largest { StateKind::Sum } else { StateKind::FiniteSum }, "total")
        };
        let all = [largest].into_iter().chain(softmax.sums.iter().map(sum));
        all.map(|(node, kind, name)| {
            let whole = self.driver_memory(scratch, (DType::F32, name), self.outer.clone());
            State { node, kind, whole }
        })
        .collect()
    }

    /// Returns the kernel that turns the scores of a tile into weights, the numbers of its buffers with scores and weights,
    /// and those of its buffers with the state of a part.
    fn weights(
        &self,
        scratch: &mut Vec<Scratch>,
        states: &[State],
        suffix: &str,
    ) -> (Scheduled, [u16; 2], Vec<u16>) {
        let Attend { of, work, facts, outer, .. } = self;
        let all = [outer.as_slice(), &[of.along]].concat();
        let [scores, weights] =
            ["scores", "weights"].map(|name| self.driver_memory(scratch, (DType::F32, name), all.clone()));
        let mut known = work.known();
        known.insert(Load::Stored(of.products), scores.clone());
        let name = format!("{}_weights{suffix}", work.name);
        let (grain, keys) = (DEPTH as u32, work.graph.axis(of.along).extent.clone());
        let rows = DimExpr::product(outer.iter().map(|&axis| &work.graph.axis(axis).extent));
        let launched = Space { rows, cols: keys, grain, grain_min: grain, each: DimExpr::constant(1) };
        let mut slots = Vec::new();
        let made = if states.is_empty() {
            let mut stage = Stage::new(StageKind::Elements, work.graph.clone(), known, (all.clone(), vec![]));
            // Scores may be the weights.
            let node = if of.weights == of.products { stage.copy(of.weights) } else { of.weights };
            stage.store(Store { node, output: None, order: all }, weights.clone());
            stage.fill(&[]);
            stage.name = name;
            let own = with_lent(stage.work(), |slot| slot == scores.slot);
            let mut dims = dims_along(&own, outer);
            dims.extend(dims_along(&own, &[of.along]));
            Scheduled { space: launched, ..on_cpu(&own, facts, &dims, Grain::AtLaunch) }
        } else {
            let (partition, mut stage, map) = self.parts(scratch, known, states);
            let slot = |state: &State| stage.slot_of(map[state.node.0 as usize]);
            slots = states.iter().filter_map(slot).collect::<Vec<Slot>>();
            stage
                .store(Store { node: map[of.weights.0 as usize], output: None, order: all }, weights.clone());
            stage.fill_anew(partition.part);
            stage.name = name;
            let own = with_lent(stage.work(), |slot| slot == scores.slot);
            let dims = RowSpace::of_parts(&own, facts, &partition);
            let (kernel, row_memory) = row::kernel_on_cpu(&own, facts, &dims);
            let mut made = Scheduled { row_memory, ..Scheduled::new(vec![], kernel, launched) };
            let is_tile = |slot: Slot| slot == weights.slot || slot == scores.slot;
            by_items(&mut made, |slot| is_tile(slot).then(|| DimExpr::constant(1)));
            made
        };
        let number = |slot: Slot| {
            let number = made.buffers.iter().position(|buffer| buffer.slot == slot);
            number.unwrap_or_else(|| unreachable!("the kernel writes its results")) as u16
        };
        let (tiles, parts) =
            ([scores.slot, weights.slot].map(&number), slots.into_iter().map(&number).collect());
        (Scheduled { of_blocks: true, ..made }, tiles, parts)
    }

    /// Returns the kernel that computes results from the sums and the state of rows, and the memory of the sums.
    fn finish(&self, scratch: &mut Vec<Scratch>, states: &[State], suffix: &str) -> (Scheduled, Operand) {
        let Attend { of, work, facts, outer, sums, .. } = self;
        let tile = self.driver_memory(scratch, (DType::F32, "sums"), work.group.order.clone());
        let mut known = work.known();
        known.insert(Load::Stored(of.sum), tile.clone());
        known.extend(states.iter().map(|state| (Load::Stored(state.node), state.whole.clone())));
        let of_rows = (outer.clone(), sums.cols.clone());
        let mut stage = Stage::new(StageKind::Rows, work.graph.clone(), known, of_rows);
        for (store, &BufferId(buffer)) in work.group.stores.iter().zip(&work.stores) {
            let is_known = stage.known.contains_key(&Load::Stored(store.node));
            let node = if is_known { stage.copy(store.node) } else { store.node };
            stage.store(Store { node, ..store.clone() }, work.operands[usize::from(buffer)].clone());
        }
        stage.fill(&[]);
        stage.name = format!("{}_attention{suffix}", work.name);
        let is_own = |slot: Slot| slot == tile.slot || states.iter().any(|state| state.whole.slot == slot);
        let own = with_lent(stage.work(), is_own);
        let dims = RowSpace::new(&own, facts);
        let (kernel, row_memory) = row::kernel_on_cpu(&own, facts, &dims);
        let rows = DimExpr::product(outer.iter().map(|&axis| &work.graph.axis(axis).extent));
        let cols = DimExpr::constant(1);
        let launched = Space { rows, cols, grain: 1, grain_min: 1, each: dims.each() };
        let mut made = Scheduled { row_memory, ..Scheduled::new(vec![], kernel, launched) };
        let of_rows = |slot: Slot| {
            let mut stores = work.group.stores.iter().zip(&work.stores);
            states.iter().any(|state| state.whole.slot == slot)
                || stores.any(|(store, buffer)| {
                    store.order == *outer && work.operands[usize::from(buffer.0)].slot == slot
                })
        };
        by_items(&mut made, |slot| if of_rows(slot) { None } else { Some(space::product(dims.cols())) });
        (made, tile)
    }

    /// Returns how the keys are cut into parts, the kernel that reduces the scores of parts, and the number of each node of the
    /// function in its graph.
    fn parts(
        &self,
        scratch: &mut Vec<Scratch>,
        known: BTreeMap<Load, Operand>,
        states: &[State],
    ) -> (Partition, Stage, Vec<NodeId>) {
        let Attend { of, work, outer, .. } = self;
        let of_rows = (outer.clone(), vec![of.along]);
        let mut stage = Stage::new(StageKind::Rows, work.graph.clone(), known, of_rows);
        for state in states {
            let store = Store { node: state.node, output: None, order: outer.clone() };
            stage.store(store, state.whole.clone());
        }
        stage.fill(&[]);
        let partition = Partition::of_tiles(work.graph, (vec![], vec![of.along]), DEPTH as i64).flushing();
        let order = [outer.as_slice(), &[partition.part]].concat();
        let temporaries = work.temporaries + scratch.len() as u16;
        let own = Work { temporaries, ..stage.work() };
        let split = in_tiles(&own, partition.clone(), order);
        let split = split.unwrap_or_else(|| unreachable!("one round combines parts of a softmax"));
        let lent = |made: Scratch| Scratch { len: DimExpr::constant(0), ..made };
        scratch.extend(split.scratch.into_iter().map(lent));
        (partition, split.parts, split.map)
    }
}

/// Returns the work with windows on some buffers that it only reads: their memory is that of the items that run.
fn with_lent(mut work: Work<'_>, is_lent: impl Fn(Slot) -> bool) -> Work<'_> {
    for operand in work.operands.iter_mut().filter(|operand| is_lent(operand.slot)) {
        operand.access = Access::ReadWrite;
    }
    work
}

/// Gives each item of a kernel one element of a written buffer, or so many elements for each of the space.
fn by_items(made: &mut Scheduled, each: impl Fn(Slot) -> Option<DimExpr>) {
    for (arg, buffer) in made.buffers.iter_mut().zip(&mut made.kernel.buffers) {
        if arg.access != Access::Read {
            arg.footprint = each(arg.slot).map_or(Footprint::Item, Footprint::Linear);
            buffer.strided = false;
        }
    }
}

/// Returns a product whose rows have one axis, if the keys that a row sees follow from the coordinate along the axis. The
/// others are axes of the batch.
fn by_one_axis(product: &Product, graph: &Graph, seen: Interval) -> Product {
    let axes = [seen.first, seen.last].into_iter().flatten().map(|end| graph.node(end).axes);
    let along: AxisSet = axes.fold(AxisSet::EMPTY, AxisSet::union);
    let (own, others): (Vec<AxisId>, Vec<AxisId>) =
        product.rows.iter().partition(|axis| along.contains(**axis));
    if own.len() != 1 {
        return product.clone();
    }
    Product { batch: [product.batch.as_slice(), &others].concat(), rows: own, ..product.clone() }
}
