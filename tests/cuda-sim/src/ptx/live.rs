//! Number of registers that a thread needs: the maximum that is live at once, by backward liveness analysis.

use std::collections::{HashMap, HashSet};

use super::ir::{Inst, Op, Reg, Wide};

/// Returns the maximum number of 32-bit registers that are live before any instruction.
pub(super) fn most(
    insts: &[Inst],
    reads: &[Reg],
    writes: &[Vec<Reg>],
    registers: &HashMap<Reg, Wide>,
) -> u32 {
    let blocks = blocks(insts);
    let mut entering: Vec<HashSet<Reg>> = vec![HashSet::new(); blocks.len()];
    let number: HashMap<usize, usize> =
        blocks.iter().enumerate().map(|(i, &(start, _))| (start, i)).collect();
    let (mut most, mut changed) = (0, true);
    while changed {
        changed = false;
        for (i, &(start, end)) in blocks.iter().enumerate().rev() {
            let mut live: HashSet<Reg> = HashSet::new();
            for next in successors(insts, end) {
                live.extend(number.get(&next).map(|&block| entering[block].clone()).unwrap_or_default());
            }
            for at in (start..end).rev() {
                // A guarded instruction may leave its destination unchanged, so the destination stays live.
                if insts[at].guard.is_none() {
                    live.retain(|reg| !writes[at].contains(reg));
                }
                let (first, count) = insts[at].reads;
                let read = &reads[first as usize..(first + count) as usize];
                live.extend(read.iter().filter(|reg| registers.contains_key(reg)));
                most = most.max(live.iter().map(|reg| words(registers[reg])).sum());
            }
            changed |= live.len() > entering[i].len();
            entering[i].extend(live);
        }
    }
    most
}

fn words(wide: Wide) -> u32 {
    match wide {
        Wide::One => 1,
        Wide::Two => 2,
    }
}

/// Returns the basic blocks: runs of instructions without jumps into or out of them.
pub(super) fn blocks(insts: &[Inst]) -> Vec<(usize, usize)> {
    let mut starts: Vec<usize> = vec![0];
    for (at, inst) in insts.iter().enumerate() {
        if let Some(targets) = jumps(&inst.op) {
            starts.extend(targets.chain([at + 1]));
        }
    }
    starts.sort_unstable();
    starts.dedup();
    starts.retain(|&start| start < insts.len());
    let ends = starts.iter().copied().skip(1).chain([insts.len()]);
    starts.iter().copied().zip(ends).collect()
}

/// Returns the targets of an instruction that never falls through to the next one.
fn jumps(op: &Op) -> Option<impl Iterator<Item = usize>> {
    let targets: &[u32] = if let Op::Branch { target } = op {
        std::slice::from_ref(target)
    } else if let Op::BranchTable { targets, .. } = op {
        targets
    } else if matches!(op, Op::Exit) {
        &[]
    } else {
        return None;
    };
    Some(targets.iter().map(|&target| target as usize))
}

/// Returns the instructions that may follow the last instruction before `end`.
pub(super) fn successors(insts: &[Inst], end: usize) -> Vec<usize> {
    let last = &insts[end - 1];
    let targets = jumps(&last.op);
    let goes_on = targets.is_none() || last.guard.is_some();
    targets.into_iter().flatten().chain(goes_on.then_some(end)).collect()
}
