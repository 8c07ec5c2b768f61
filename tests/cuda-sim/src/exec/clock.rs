//! Vector clocks of a grid: for each thread of each block, the block's time up to which its accesses are
//! known.
//!
//! Blocks are the keys of a tree by their bits, whose parts clocks share (Okasaki and Gill, "Fast mergeable
//! integer maps", 1998). Copying a clock of thousands of blocks, and joining it with a similar one, therefore
//! takes few steps.
//!
//! Invariant: a part that two clocks share never changes. A join that adds nothing returns the same part.

use std::sync::Arc;

use super::race::Stamp;

/// First key that is not a block.
const COUNTED: u64 = 1 << 62;

/// Counter of an mbarrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// Number of initialisations.
    Inits,
    /// Number of complete phases, as seen by waits in the scope of the block and of the cluster.
    ///
    /// The latter waits also know the stores from other blocks.
    Done,
    DoneWide,
}

/// Key of a counter of the mbarrier at an address of a block's shared memory. Clocks use it like a block.
#[derive(Clone, Copy)]
pub(super) struct Series(u64);

impl Series {
    pub(super) fn new(what: Counted, block: u64, address: u64) -> Series {
        debug_assert!(block < 1 << 23 && address < 1 << 32, "{block} {address}");
        Series(COUNTED | (what as u64) << 60 | block << 32 | address)
    }
}

/// Set of accesses that are known to have happened before.
#[derive(Clone, Default)]
pub(super) struct Clock(Option<Arc<Tree>>);

/// Times of a block's threads, by their numbers: one for all threads, and later ones for some.
///
/// Times are less than 2^30. Their type is signed because hosts compare signed integers in vectors.
#[derive(Clone)]
pub(super) enum Times {
    One {
        all: i32,
        thread: u32,
        time: i32,
    },
    /// Times of consecutive threads from `first` on.
    Some {
        all: i32,
        first: u32,
        times: Box<[i32]>,
    },
}

enum Tree {
    Block {
        block: u64,
        times: Times,
    },
    /// Blocks whose keys agree above `bit`: the keys without the bit, and the keys with it.
    Fork {
        prefix: u64,
        bit: u64,
        blocks: u64,
        halves: [Arc<Tree>; 2],
    },
}

impl Times {
    /// Returns the times of consecutive threads from `first` on, in a block of `threads` threads.
    pub(super) fn some(all: i32, first: u32, times: Vec<i32>, threads: u32) -> Times {
        Times::Some { all: least(all, &times, threads), first, times: times.into() }
    }

    /// Returns the time of all threads, and the range of threads with their own times.
    fn parts(&self) -> (i32, usize, &[i32]) {
        match self {
            Times::One { all, thread, time } => (*all, *thread as usize, std::slice::from_ref(time)),
            Times::Some { all, first, times } => (*all, *first as usize, times),
        }
    }

    pub(super) fn of(&self, thread: u32) -> i32 {
        let (all, first, times) = self.parts();
        (thread as usize).checked_sub(first).and_then(|place| times.get(place)).copied().unwrap_or(all)
    }

    /// Returns true if no thread has an earlier time here than in `o`.
    fn cover(&self, o: &Times) -> bool {
        let ((all, first, times), (least, start, others)) = (self.parts(), o.parts());
        let (end, stop) = (first + times.len(), start + others.len());
        if all < least {
            return false;
        }
        let (from, to) = (first.max(start), end.min(stop));
        if from >= to {
            return others.iter().all(|other| all >= *other);
        }
        let (before, rest) = others.split_at(from - start);
        let (both, after) = rest.split_at(to - from);
        before.iter().chain(after).all(|other| all >= *other)
            && times[from - first..to - first].iter().zip(both).all(|(a, b)| a >= b)
    }

    /// Returns the later of both times for each thread, in blocks of `threads` threads.
    pub(super) fn with(mut self, o: &Times, threads: u32) -> Times {
        let (_, start, others) = o.parts();
        if let Times::Some { all, first, times } = &mut self
            && *first as usize <= start
            && start + others.len() <= *first as usize + times.len()
        {
            o.raise(all, *first as usize, times);
            *all = least(*all, times, threads);
            return self;
        }
        if self.cover(o) { self } else { self.later(o, threads) }
    }

    /// Returns the later of both times for each thread, where these times do not cover the others.
    fn later(&self, o: &Times, threads: u32) -> Times {
        if o.cover(self) {
            return o.clone();
        }
        let ((mut all, first, times), (least, start, others)) = (self.parts(), o.parts());
        if let (Times::One { thread, time, .. }, Times::One { thread: other, time: its, .. }) = (self, o)
            && thread == other
        {
            return Times::One { all: all.max(least), thread: *thread, time: *time.max(its) };
        }
        let (from, to) = (first.min(start), (first + times.len()).max(start + others.len()));
        let mut both = vec![all; to - from];
        both[first - from..][..times.len()].copy_from_slice(times);
        o.raise(&mut all, from, &mut both);
        Times::some(all, from as u32, both, threads)
    }

    /// Raises the times of a range that includes this one to at least these times.
    fn raise(&self, all: &mut i32, from: usize, others: &mut [i32]) {
        let (least, first, times) = self.parts();
        if *all < least {
            *all = least;
            others.iter_mut().for_each(|other| *other = least.max(*other));
        }
        for (time, other) in times.iter().zip(&mut others[first - from..]) {
            *other = *time.max(other);
        }
    }
}

/// Returns the time that is known of all threads: the minimum of `times`, if they are of all threads.
fn least(all: i32, times: &[i32], threads: u32) -> i32 {
    times.iter().copied().min().filter(|_| times.len() == threads as usize).unwrap_or(all)
}

/// Returns the mask of the bits above `bit`. For 0 it is all bits.
fn above(bit: u64) -> u64 {
    if bit == 0 { !0 } else { !(2 * bit - 1) }
}

impl Tree {
    /// Returns the common prefix of the keys and the bit below it, which is 0 for a single block.
    fn place(&self) -> (u64, u64) {
        match self {
            Tree::Block { block, .. } => (*block, 0),
            Tree::Fork { prefix, bit, .. } => (*prefix, *bit),
        }
    }

    fn blocks(&self) -> u64 {
        match self {
            Tree::Block { block, .. } => u64::from(*block < COUNTED),
            Tree::Fork { blocks, .. } => *blocks,
        }
    }

    fn fork(prefix: u64, bit: u64, halves: [Arc<Tree>; 2]) -> Arc<Tree> {
        let blocks = halves.iter().map(|half| half.blocks()).sum();
        Arc::new(Tree::Fork { prefix, bit, blocks, halves })
    }

    fn times(&self, of: u64) -> Option<&Times> {
        match self {
            Tree::Block { block, times } => (*block == of).then_some(times),
            Tree::Fork { bit, halves, .. } => halves[usize::from(of & bit != 0)].times(of),
        }
    }

    fn without(self: &Arc<Tree>, of: u64) -> Option<Arc<Tree>> {
        match &**self {
            Tree::Block { block, .. } => (*block != of).then(|| Arc::clone(self)),
            Tree::Fork { prefix, bit, halves, .. } => {
                let side = usize::from(of & bit != 0);
                let other = &halves[1 - side];
                match halves[side].without(of) {
                    None => Some(Arc::clone(other)),
                    Some(rest) if Arc::ptr_eq(&rest, &halves[side]) => Some(Arc::clone(self)),
                    Some(rest) => {
                        let rest =
                            if side == 0 { [rest, Arc::clone(other)] } else { [Arc::clone(other), rest] };
                        Some(Tree::fork(*prefix, *bit, rest))
                    }
                }
            }
        }
    }
}

/// Joins what two trees know, in blocks of `threads` threads.
fn join(a: &Arc<Tree>, b: &Arc<Tree>, threads: u32) -> Arc<Tree> {
    if Arc::ptr_eq(a, b) {
        return Arc::clone(a);
    }
    let ((start, bit), (other, its)) = (a.place(), b.place());
    if bit < its {
        return join(b, a, threads);
    }
    if (start ^ other) & above(bit) != 0 {
        // The keys diverge at a bit above those of both trees.
        let bit = 1 << (63 - (start ^ other).leading_zeros());
        let (a, b) = (Arc::clone(a), Arc::clone(b));
        return Tree::fork(start & above(bit), bit, if start & bit == 0 { [a, b] } else { [b, a] });
    }
    match (&**a, &**b) {
        (Tree::Block { block, times }, Tree::Block { times: others, .. }) => {
            if times.cover(others) {
                Arc::clone(a)
            } else if others.cover(times) {
                Arc::clone(b)
            } else {
                Arc::new(Tree::Block { block: *block, times: times.later(others, threads) })
            }
        }
        (Tree::Fork { halves, .. }, Tree::Fork { halves: others, .. }) if bit == its => {
            let both = [0, 1].map(|side| join(&halves[side], &others[side], threads));
            let same =
                |old: &[Arc<Tree>; 2]| Arc::ptr_eq(&both[0], &old[0]) && Arc::ptr_eq(&both[1], &old[1]);
            match (same(halves), same(others)) {
                (true, _) => Arc::clone(a),
                (false, true) => Arc::clone(b),
                (false, false) => Tree::fork(start, bit, both),
            }
        }
        // All keys of the second tree are on one side of the first.
        (Tree::Fork { halves, .. }, Tree::Block { .. } | Tree::Fork { .. }) => {
            let side = usize::from(other & bit != 0);
            let new = join(&halves[side], b, threads);
            if Arc::ptr_eq(&new, &halves[side]) {
                return Arc::clone(a);
            }
            let rest = Arc::clone(&halves[1 - side]);
            Tree::fork(start, bit, if side == 0 { [new, rest] } else { [rest, new] })
        }
        (Tree::Block { .. }, Tree::Fork { .. }) => unreachable!("a fork has the higher bit"),
    }
}

impl Clock {
    pub(super) const NOTHING: Clock = Clock(None);

    /// Returns a clock that knows of one block only.
    pub(super) fn of(block: u64, times: Times) -> Clock {
        Clock(Some(Arc::new(Tree::Block { block, times })))
    }

    /// Returns a clock that knows only the count of a series.
    pub(super) fn count(series: Series, count: i32) -> Clock {
        Clock::of(series.0, Times::One { all: count, thread: 0, time: count })
    }

    /// Returns the count of a series that the clock knows.
    pub(super) fn counts(&self, series: Series) -> i32 {
        self.times(series.0).map_or(0, |times| times.of(0))
    }

    /// Returns the times of a block for modification, if the clock knows of no other block and shares no
    /// part.
    pub(super) fn alone(&mut self, block: u64) -> Option<&mut Times> {
        match self.0.as_mut().and_then(Arc::get_mut)? {
            Tree::Block { block: of, times } => (*of == block).then_some(times),
            Tree::Fork { .. } => None,
        }
    }

    /// Returns the times that the clock knows of a block.
    pub(super) fn times(&self, block: u64) -> Option<&Times> {
        self.0.as_ref().and_then(|tree| tree.times(block))
    }

    /// Returns true if the clock knows nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Adds what another clock knows, in blocks of `threads` threads.
    pub(super) fn join(&mut self, o: &Clock, threads: u32) {
        match (&self.0, &o.0) {
            (_, None) => {}
            (None, Some(_)) => self.0.clone_from(&o.0),
            (Some(a), Some(b)) if Arc::ptr_eq(a, b) => {}
            (Some(a), Some(b)) => self.0 = Some(join(a, b, threads)),
        }
    }

    /// Returns true if both clocks share their whole tree.
    pub(super) fn is(&self, o: &Clock) -> bool {
        match (&self.0, &o.0) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// Returns the clock without one block.
    pub(super) fn without(&self, block: u64) -> Clock {
        Clock(self.0.as_ref().and_then(|tree| tree.without(block)))
    }

    /// Returns true if the access that left a stamp is known to have happened before.
    #[cold]
    pub(super) fn covers(&self, old: Stamp) -> bool {
        let known =
            self.times(old.block()).zip(old.thread()).map_or(0, |(times, thread)| times.of(thread as u32));
        i64::from(known) >= old.time() as i64
    }

    /// Returns the number of blocks, except for `this`, of which the clock knows anything.
    pub(super) fn others(&self, this: u64) -> u64 {
        let Some(tree) = &self.0 else { return 0 };
        tree.blocks() - u64::from(tree.times(this).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREADS: u32 = 4;

    fn one(block: u64, thread: u32, time: i32) -> Clock {
        Clock::of(block, Times::One { all: 1, thread, time })
    }

    fn knows(clock: &Clock, block: u64, thread: u32, time: u64) -> bool {
        clock.covers(Stamp::new(block - 1, thread, time))
    }

    fn joined(clocks: &[Clock]) -> Clock {
        clocks.iter().fold(Clock::default(), |mut all, clock| {
            all.join(clock, THREADS);
            all
        })
    }

    #[test]
    fn joins_know_what_their_parts_know() {
        // The order makes the blocks diverge at many bits.
        let order: Vec<u64> = (0..200).map(|i| i * 73 % 200 + 1).collect();
        let clocks: Vec<Clock> =
            order.iter().map(|&block| one(block, (block % 4) as u32, block as i32 + 1)).collect();
        let (first, second) = (joined(&clocks[..120]), joined(&clocks[80..]));
        for all in [joined(&clocks), joined(&[first.clone(), second.clone()]), joined(&[second, first])] {
            assert_eq!((all.others(0), all.others(7)), (200, 199));
            for block in 1..=200 {
                let (thread, time) = ((block % 4) as u32, block + 1);
                assert!(knows(&all, block, thread, time) && !knows(&all, block, thread, time + 1), "{block}");
                assert!(knows(&all, block, (thread + 1) % 4, 1) && !knows(&all, block, (thread + 1) % 4, 2));
            }
            assert!(!knows(&all, 201, 0, 1));
            let rest = all.without(33);
            assert!(rest.others(0) == 199 && !knows(&rest, 33, 1, 1) && knows(&rest, 34, 2, 35));
        }
    }

    #[test]
    fn times_of_threads_are_the_later() {
        let all = joined(&[one(5, 0, 7), one(5, 3, 4)]);
        let wanted = [7, 1, 1, 4];
        (0..4).for_each(|thread| {
            let time = wanted[thread as usize];
            assert!(knows(&all, 5, thread, time) && !knows(&all, 5, thread, time + 1), "{thread}");
        });
        let late = Clock::of(5, Times::One { all: 5, thread: 1, time: 6 });
        let both = joined(&[all, late]);
        assert!([7, 6, 5, 5].iter().zip(0..).all(|(&time, thread)| knows(&both, 5, thread, time)));
        assert!(!knows(&both, 5, 2, 6));
    }

    #[test]
    fn what_is_counted_is_no_block() {
        let series = [Counted::Inits, Counted::Done, Counted::DoneWide].map(|what| Series::new(what, 5, 8));
        let mut all = joined(&[one(5, 0, 7), Clock::count(series[0], 3), Clock::count(series[1], 2)]);
        assert_eq!((all.others(0), all.others(5)), (1, 0));
        assert_eq!(series.map(|series| all.counts(series)), [3, 2, 0]);
        all.join(&Clock::count(series[1], 1), THREADS);
        assert_eq!(all.without(5).counts(series[1]), 2);
        for other in [Series::new(Counted::Done, 6, 8), Series::new(Counted::Done, 5, 16)] {
            assert_eq!(all.counts(other), 0);
        }
    }

    #[test]
    fn nothing_new_gives_the_same_part() {
        let mut all = joined(&[one(1, 0, 3), one(2, 1, 4), one(9, 2, 5)]);
        let before = all.clone();
        for old in [one(2, 1, 2), one(9, 2, 5), before.clone(), Clock::default()] {
            all.join(&old, THREADS);
            assert!(all.is(&before));
        }
        all.join(&one(9, 2, 6), THREADS);
        assert!(!all.is(&before));
    }
}
