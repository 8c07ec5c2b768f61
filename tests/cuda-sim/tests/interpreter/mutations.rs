//! Kernels broken on purpose, in each way that a compiler may go wrong, are caught. The simulator reports the
//! broken rule, or the result is wrong.
//!
//! A mutation is an edit of the text of a kernel that works. Fusion's kernels come from the reviewed
//! snapshots. Most barriers, shuffles and accesses to shared memory come from nvcc's.

use crate::cases::{self, Case, Trouble};
use cuda_sim::exec::FaultKind::{self, Barrier, Mask, Misaligned, OutOfBounds, Race, Uninitialized};

/// A change of the nth line, from 0, that contains a text.
enum Edit {
    Drop(usize, &'static str),
    Put(usize, &'static str, &'static str),
    /// Exchanges the last two operands.
    Swap(usize, &'static str),
    /// Moves the line before the first one that contains another text.
    Hoist(usize, &'static str, &'static str),
}

/// The check that catches a mutation.
#[derive(Debug, PartialEq)]
enum Caught {
    By(FaultKind),
    WrongResult,
}
use Caught::{By, WrongResult};
use Edit::{Drop, Hoist, Put, Swap};

struct Mutation {
    what: &'static str,
    case: fn() -> Case,
    edits: &'static [Edit],
    caught: Caught,
}

const fn mutation(
    what: &'static str,
    case: fn() -> Case,
    edits: &'static [Edit],
    caught: Caught,
) -> Mutation {
    Mutation { what, case, edits, caught }
}

/// Two iterations of the loop for some threads, and a remainder.
fn gate() -> Case {
    cases::gate(1003)
}
/// More threads than elements.
fn small_gate() -> Case {
    cases::gate(403)
}
fn saxpy() -> Case {
    cases::saxpy(1000)
}
fn transposed() -> Case {
    cases::transposed(28, 19)
}
fn block_sum() -> Case {
    cases::block_sum(1000, 3)
}
fn softmax_row() -> Case {
    cases::softmax_row(3, 97, 96)
}
/// A softmax by one warp.
fn softmax_warp() -> Case {
    cases::softmax_row(2, 97, 32)
}
/// One block for several rows, with one full iteration and a partial one for each thread.
fn rows() -> Case {
    cases::largest_and_sum(3, 1200)
}
fn transpose() -> Case {
    cases::transpose(97, 70)
}
fn half_gate() -> Case {
    cases::half_gate(1001)
}
fn matmul_tiles() -> Case {
    cases::matmul_tiles(64, 64, 256)
}
fn histogram() -> Case {
    cases::histogram(1001)
}
/// Two tiles, with edges below and to the right, and two panels of the depth and a part of one.
fn halves() -> Case {
    cases::product_of_halves(56, 72, 72)
}
fn product() -> Case {
    cases::product_of_floats(52, 36, 68)
}
fn copied() -> Case {
    cases::product_of_copied(52, 56, 68)
}

#[rustfmt::skip]
const MUTATIONS: [Mutation; 64] = [
    mutation("no barrier after a store", block_sum, &[Drop(0, "bar.sync")], By(Race)),
    mutation("no barrier between steps of a tree", block_sum, &[Drop(2, "bar.sync")], By(Race)),
    mutation("no barrier within a warp", block_sum, &[Drop(6, "bar.sync")], By(Race)),
    mutation("no barrier before a tile is read", transpose, &[Drop(0, "bar.sync")], By(Race)),
    mutation("no barrier before memory is used again", softmax_row, &[Drop(2, "bar.sync")], By(Race)),
    mutation("no barrier before a tile is copied to again", matmul_tiles, &[Drop(1, "bar.sync")], By(Race)),
    mutation("a barrier that one lane misses", softmax_warp, &[Put(3, "bar.sync", "@%p9 bar.sync")], By(Barrier)),

    mutation("a barrier that half a warp misses", block_sum, &[Put(4, "bar.sync", "@!%p6 bar.sync")], By(Barrier)),
    mutation("a barrier for more threads than there are", block_sum, &[Put(0, "bar.sync \t0", "bar.sync \t0, 288")], By(Barrier)),

    mutation("a mask without the lane itself", softmax_row, &[Put(0, ", -1;", ", 65535;")], By(Mask)),
    mutation("a mask with lanes that went elsewhere", histogram, &[Put(0, "%r40, %r35;", "%r40, %r26;")], By(Mask)),
    mutation("a shuffle from too far", softmax_row, &[Put(0, "%r62, %r43,", "%r62, %r47,")], WrongResult),
    mutation("a shuffle the other way", softmax_row, &[Put(5, "shfl.sync.down", "shfl.sync.up")], WrongResult),

    mutation("one step too many", gate, &[Put(0, "setp.lt.u32", "setp.le.u32")], By(OutOfBounds)),
    mutation("one row too many", transposed, &[Put(0, "setp.lt.u32", "setp.le.u32")], By(OutOfBounds)),
    mutation("one thread too many in a step", block_sum, &[Put(0, "%r2, 63;", "%r2, 64;")], By(Race)),

    mutation("operands of a comparison exchanged", gate, &[Swap(0, "setp.lt.f32")], WrongResult),
    mutation("operands of a choice exchanged", gate, &[Put(0, "selp.b32 %f13, %f0, %f9", "selp.b32 %f13, %f9, %f0")], WrongResult),
    mutation("operands of a difference exchanged", softmax_row, &[Swap(0, "sub.f32")], WrongResult),

    mutation("a vector from an element further", gate, &[Put(0, "[%rd8]", "[%rd8+4]")], By(Misaligned)),
    mutation("a vector where elements are", saxpy, &[Put(0, "ld.global.nc.f32 \t%f2", "ld.global.nc.v2.f32 \t{%f2, %f4}")], By(Misaligned)),

    mutation("no predicate on the vectors", small_gate, &[Drop(0, "bra $done1")], By(OutOfBounds)),
    mutation("no predicate on the rest", gate, &[Drop(0, "bra $done3"), Drop(0, "bra $done5")], By(OutOfBounds)),
    mutation("no predicate on a warp's last lanes", softmax_row, &[Drop(0, "@%p10 bra")], By(OutOfBounds)),

    mutation("a sum rounded to zero", gate, &[Put(0, "add.rn.f32", "add.rz.f32")], WrongResult),
    mutation("a conversion rounded to zero", half_gate, &[Put(0, "cvt.rn.bf16x2.f32", "cvt.rz.bf16x2.f32")], WrongResult),

    mutation("an address of the turn before", gate, &[Hoist(0, "mul.wide.u32", "$loop0:")], WrongResult),
    mutation("a register that nothing sets", gate, &[Drop(1, "add.u64")], By(Uninitialized)),

    mutation("a stride of threads instead of elements", gate, &[Put(2, "mul.lo.u32", "max.u32")], By(Race)),
    mutation("rows as far apart as columns", transposed, &[Put(0, "mul.lo.u32 %r42, %r41, %r3;", "mul.lo.u32 %r42, %r41, %r2;")], By(OutOfBounds)),

    mutation("a sum that no one stored", block_sum, &[Drop(0, "[%r7], %f33")], By(Uninitialized)),
    mutation("no barrier between warps and the first of them", rows, &[Drop(0, "bar.sync")], By(Race)),
    mutation("no barrier before the next row", rows, &[Drop(1, "bar.sync")], By(Race)),
    mutation("a sum that is not handed on", rows, &[Drop(0, "mov.f32 %f6, %f20")], WrongResult),
    mutation("a shuffle of one component the other way", rows, &[Put(1, "shfl.sync.down", "shfl.sync.up")], WrongResult),
    mutation("a mask of half a warp", rows, &[Put(2, "0xffffffff", "0x0000ffff")], By(Mask)),
    mutation("one vector too many of a row", rows, &[Put(0, "setp.lt.u32", "setp.le.u32")], By(OutOfBounds)),

    mutation("a sum of a warp from the next array", rows, &[Put(0, "%f127, [%r34]", "%f127, [%r34+4]")], By(OutOfBounds)),

    mutation("a wait for one group too few", halves, &[Put(0, "wait_group 1", "wait_group 2")], By(Uninitialized)),
    mutation("no group of the first copies", halves, &[Drop(0, "commit_group")], By(Uninitialized)),
    mutation("no wait for the last copies", halves, &[Drop(0, "wait_group 0")], By(Race)),
    mutation("no barrier before a panel is overwritten", halves, &[Drop(1, "bar.sync")], By(Race)),
    mutation("no barrier before sums are stored over panels", halves, &[Drop(2, "bar.sync")], By(Race)),
    mutation("no barrier before sums are read", halves, &[Drop(3, "bar.sync")], By(Race)),
    mutation("no barrier before the next tile's copies", halves, &[Drop(0, "bar.sync")], By(Race)),
    mutation("a copy of half the bytes", halves, &[Put(0, ", 16, 0, %p", ", 8, 0, %p")], WrongResult),
    mutation("a copy to no multiple of 16 bytes", halves, &[Put(0, "+2560]", "+2568]")], By(Misaligned)),
    mutation("a copy to the stage that is read", halves, &[Put(1, "sub.u32", "max.u32")], By(Race)),
    mutation("a row past the last one", halves, &[Put(2, "setp.lt.u32", "setp.le.u32")], By(OutOfBounds)),
    mutation("rows of matrices at no multiple of 16 bytes", halves, &[Put(0, "+1280]", "+1288]")], By(Misaligned)),
    mutation("matrices that are not transposed", halves, &[Put(0, ".x4.trans", ".x4")], WrongResult),
    mutation("right matrices of other columns", halves, &[Put(0, "+2304]", "+2336]")], WrongResult),
    mutation("a product that is left out", halves, &[Drop(9, "mma.sync")], WrongResult),

    mutation("no barrier before the factors are read", product, &[Drop(0, "bar.sync")], By(Race)),
    mutation("no barrier before the next step", product, &[Drop(1, "bar.sync")], By(Race)),
    mutation("a factor of another step", product, &[Put(1, "+544]", "+816]")], WrongResult),
    mutation("a column past the last one", product, &[Put(1, "setp.lt.u32", "setp.le.u32")], By(OutOfBounds)),

    mutation("elements that are not waited for", copied, &[Put(0, "wait_group 1", "wait_group 2")], By(Uninitialized)),
    mutation("no barrier before panels of elements are overwritten", copied, &[Drop(1, "bar.sync")], By(Race)),
    mutation("no barrier before copies for the next tile", copied, &[Drop(0, "bar.sync")], By(Race)),
    mutation("an element that is not copied", copied, &[Put(0, ", 4, 0, %p", ", 0, 0, %p")], WrongResult),
    mutation("elements of another row", copied, &[Put(0, "+64]", "+68]")], By(Race)),
    mutation("a row of elements past the last one", copied, &[Put(3, "setp.lt.u32", "setp.le.u32")], By(OutOfBounds)),

    mutation("counts that no one cleared", histogram, &[Drop(0, "st.shared.u32")], By(Uninitialized)),
];

/// Returns the text after an edit, whose line must exist.
fn edited(text: &str, edit: &Edit) -> String {
    let (Drop(nth, at) | Put(nth, at, _) | Swap(nth, at) | Hoist(nth, at, _)) = edit;
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    let places = lines.iter().enumerate().filter(|(_, line)| line.contains(at)).map(|(i, _)| i);
    let line =
        places.clone().nth(*nth).unwrap_or_else(|| panic!("`{at}` is {} times in\n{text}", places.count()));
    match edit {
        Drop(..) => drop(lines.remove(line)),
        Put(_, from, to) => lines[line] = lines[line].replacen(from, to, 1),
        Swap(..) => {
            let operands = lines[line].trim_end_matches(';');
            let parts: Vec<&str> = operands.rsplitn(3, ", ").collect();
            let [last, before, rest] = parts[..] else { panic!("{operands} has not three operands") };
            lines[line] = format!("{rest}, {last}, {before};");
        }
        Hoist(_, _, before) => {
            let moved = lines.remove(line);
            let to = lines.iter().position(|line| line.contains(before));
            lines.insert(to.unwrap_or_else(|| panic!("no `{before}` in\n{text}")), moved);
        }
    }
    let edited = lines.join("\n") + "\n";
    assert_ne!(edited.trim_end(), text.trim_end(), "the edit at `{at}` changes nothing");
    edited
}

#[test]
fn unbroken_kernels_pass() {
    MUTATIONS.iter().for_each(|mutation| (mutation.case)().passes());
}

#[test]
fn every_mutation_is_caught() {
    let mut escaped = Vec::new();
    for Mutation { what, case, edits, caught } in &MUTATIONS {
        let case = case();
        let text = edits.iter().fold(case.text.clone(), |text, edit| edited(&text, edit));
        let found = match case.run(&text) {
            Ok(()) => None,
            Err(Trouble::Fault(fault)) => Some((By(fault.kind), fault.to_string())),
            Err(Trouble::Wrong(why)) => Some((WrongResult, why)),
        };
        if found.as_ref().map(|(by, _)| by) != Some(caught) {
            escaped.push(format!("{what}: {caught:?} wanted, {found:?} found"));
        }
    }
    assert!(escaped.is_empty(), "{}", escaped.join("\n"));
}
