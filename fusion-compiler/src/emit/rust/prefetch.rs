//! Memory that loops ask for before it is needed.
//!
//! A loop that is the first to read a buffer may ask for what comes a little later in its run. Where an item goes through a run more than
//! once, as rows are combined before they are used, only the first time waits for memory, and the others leave it idle: the one of those
//! that computes most asks for what the next item reads.

use std::cell::RefCell;
use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::Emitter;
use super::stream::{MemoryId, Stream, known, operations};
use crate::emit::Writer;
use crate::ir::graph::Access;
use crate::ir::kernel::{Address, BufferId, Expr, Fold, Kernel, Lanes, Stmt, Value};
use crate::target::tuning_table::cpu;

/// What the loops of a kernel ask for.
pub(super) struct Asks {
    /// Buffers that a loop before has asked for ahead.
    ahead: RefCell<FxHashSet<BufferId>>,
    /// Runs, by where they start, beside which a loop asks for those of the next item, one of which starts where they end.
    next: FxHashSet<(BufferId, Value)>,
}

/// What a loop asks for beside one of its runs.
pub(super) struct Asked {
    run: usize,
    /// Elements of the run from there to what the next item reads; otherwise what comes a little later is asked for.
    next: Option<String>,
}

impl Asks {
    pub(super) fn of(kernel: &Kernel) -> Asks {
        let mut next = FxHashSet::default();
        next_of(kernel, &kernel.body, &mut next);
        Asks { ahead: RefCell::default(), next }
    }

    /// Whether a loop that has been printed asks for something.
    pub(super) fn are_any(&self) -> bool {
        !self.ahead.borrow().is_empty() || !self.next.is_empty()
    }
}

/// What is read again of the items of loops, which may all be under a condition.
fn next_of(kernel: &Kernel, stmts: &[Stmt], next: &mut FxHashSet<(BufferId, Value)>) {
    for stmt in stmts {
        if let Stmt::Loop { body, .. } = stmt {
            next.extend(read_again(kernel, body));
        } else if let Stmt::If { body, .. } = stmt {
            next_of(kernel, body, next);
        }
    }
}

/// Operations that a lane's part of a row takes, where it pays to ask beside them: not where memory is written, nor where integers are
/// combined, as of `argmax`, which comparisons do as fast as memory gives them: rows of 1000 took a tenth longer.
fn computed(kernel: &Kernel, body: &[Stmt], folds: &[Fold]) -> usize {
    let writes = body.iter().any(|stmt| matches!(stmt, Stmt::Store(..)));
    let is_int = |fold: &Fold| fold.out.iter().all(|&out| kernel.ty(out).dtype.is_int());
    if writes || folds.iter().all(is_int) { 0 } else { operations(body, folds) }
}

/// Of the runs that an item goes through more than once, those of the loop that computes most and only reads, but for the first: its
/// buffer and where it starts.
fn read_again(kernel: &Kernel, item: &[Stmt]) -> Vec<(BufferId, Value)> {
    let mut runs: BTreeMap<(BufferId, u32, Value), Vec<(usize, Value)>> = BTreeMap::new();
    for stmt in item {
        let Stmt::Vector { len, body, folds } = stmt else { continue };
        let computed = computed(kernel, body, folds);
        let mut seen = FxHashSet::default();
        for stmt in body {
            let Stmt::Let(value, Expr::Load(at)) = stmt else { continue };
            let is_run = kernel.ty(*value).lanes == Lanes::Loop && kernel.ty(at.index).lanes == Lanes::ONE;
            let &Address { buffer, index, stride, .. } = at;
            if is_run && is_of_item(item, index) && seen.insert((buffer, index, stride)) {
                runs.entry((buffer, stride, *len)).or_default().push((computed, index));
            }
        }
    }
    let busiest = runs.iter().filter_map(|((buffer, ..), runs)| {
        let (computed, index) = runs[1..].iter().max_by_key(|(computed, _)| *computed)?;
        (*computed >= cpu::PREFETCH_OPS_MIN).then_some((*buffer, *index))
    });
    busiest.collect()
}

/// Whether a place is another for each item.
fn is_of_item(item: &[Stmt], index: Value) -> bool {
    item.iter().any(|stmt| match stmt {
        Stmt::Let(value, expr) => *value == index && !matches!(expr, Expr::Const(_)),
        Stmt::Vector { body, .. } => is_of_item(body, index),
        _ => false,
    })
}

impl Emitter<'_> {
    /// What a loop of so many lanes asks for.
    pub(super) fn asked(&self, streams: &[Stream], len: &str) -> Vec<Asked> {
        let asked = |(i, stream): (usize, &Stream)| {
            let MemoryId::Buffer(buffer) = stream.memory else { return None };
            // A masked run may be a copy.
            if self.kernel.buffer(buffer).access == Access::Write || stream.masked {
                return None;
            }
            let bytes = stream.stride as usize * self.element_bytes(stream);
            let is_short = known(len).is_some_and(|len| len * bytes < cpu::NEXT_ROW_BYTES_MIN);
            let next = self.asks.next.contains(&(buffer, stream.index)) && !is_short;
            let first = self.asks.ahead.borrow_mut().insert(buffer);
            let next = next.then(|| len.to_owned());
            (first || next.is_some()).then_some(Asked { run: i, next })
        };
        streams.iter().enumerate().filter_map(asked).collect()
    }
}

/// A line that asks for it beside the runs `{name}0`, `{name}1`, ….
pub(super) fn ask(out: &mut Writer, asked: &[Asked], name: &str) {
    if !asked.is_empty() {
        let one = |Asked { run, next }: &Asked| match next {
            None => format!("prefetcher.ahead(&*{name}{run});"),
            Some(len) => format!("prefetcher.next(&*{name}{run}, {len});"),
        };
        let all: Vec<String> = asked.iter().map(one).collect();
        out.line(all.join(" "));
    }
}
