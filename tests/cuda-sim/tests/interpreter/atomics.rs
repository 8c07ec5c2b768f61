//! Results of `atom` and `red`: each operation on each of its types, in global and shared memory and by
//! generic addresses.

use crate::harness::{Arg, d, kernel, launch, s, threads};

/// A register's bank, the operation and type, the old value, one operand or two, and the new value.
type Atomic = (&'static str, &'static str, u64, &'static [u64], u64);

const MINUS_5: u64 = 0u64.wrapping_sub(5);
const MINUS_5_32: u64 = 0xffff_fffb;
const TOP: u64 = 1 << 63;

fn atomics() -> Vec<Atomic> {
    vec![
        ("%r", "add.u32", 0xffff_ffff, &[3], 2),
        ("%r", "add.s32", 7, &[MINUS_5_32], 2),
        ("%rd", "add.u64", 0xffff_ffff, &[3], 0x1_0000_0002),
        ("%f", "add.f32", s(1.5), &[0x4010_0000], s(3.75)), // 2.25
        ("%fd", "add.f64", d(1.5), &[0xbff0_0000_0000_0000], d(0.5)), // −1
        ("%h", "add.noftz.f16", 0x6800, &[0x3c00], 0x6800), // 2048 + 1: a tie
        ("%h", "add.noftz.f16", 1, &[1], 2),
        ("%h", "add.noftz.bf16", 0x4380, &[0x4000], 0x4381), // 256 + 2
        ("%r", "add.noftz.f16x2", 0x3c00_4000, &[0x4000_4000], 0x4200_4400), // (2, 1) + (2, 2)
        ("%r", "add.noftz.bf16x2", 0x3f80_4000, &[0x4000_4000], 0x4040_4080),
        ("%r", "min.u32", MINUS_5_32, &[3], 3),
        ("%r", "min.s32", MINUS_5_32, &[3], MINUS_5_32),
        ("%rd", "min.u64", MINUS_5, &[3], 3),
        ("%rd", "min.s64", 3, &[MINUS_5], MINUS_5),
        ("%r", "max.u32", 3, &[MINUS_5_32], MINUS_5_32),
        ("%r", "max.s32", 3, &[MINUS_5_32], 3),
        ("%rd", "max.u64", 3, &[TOP], TOP),
        ("%rd", "max.s64", 3, &[TOP], 3),
        ("%r", "and.b32", 0xff0, &[0x0ff], 0x0f0),
        ("%rd", "and.b64", TOP | 3, &[TOP | 5], TOP | 1),
        ("%r", "or.b32", 0xf00, &[0x00f], 0xf0f),
        ("%rd", "or.b64", TOP, &[1], TOP | 1),
        ("%r", "xor.b32", 0xff0, &[0x0ff], 0xf0f),
        ("%rd", "xor.b64", TOP | 1, &[1], TOP),
        ("%r", "inc.u32", 4, &[5], 5),
        ("%r", "inc.u32", 5, &[5], 0),
        ("%r", "dec.u32", 5, &[5], 4),
        ("%r", "dec.u32", 0, &[5], 5),
        ("%r", "dec.u32", 9, &[5], 5),
        ("%r", "exch.b32", 1, &[2], 2),
        ("%rd", "exch.b64", 1, &[TOP], TOP),
        ("%h", "cas.b16", 7, &[7, 9], 9),
        ("%r", "cas.b32", 7, &[7, 9], 9),
        ("%r", "cas.b32", 7, &[8, 9], 7),
        ("%rd", "cas.b64", TOP, &[TOP, 9], 9),
        ("%rd", "cas.b64", TOP, &[0, 9], TOP),
    ]
}

/// Memory of the atomics: the name of the space, the address of `SLOT`, which counts up by 8, and
/// declarations.
const PLACES: [(&str, &str, &str); 4] = [
    (".global", "[%rd5+SLOT]", ""),
    ("", "[%rd5+SLOT]", ""),
    (".shared", "[cells+SLOT]", ".shared .align 8 .b8 cells[512];"),
    ("", "[%rd5+SLOT]", ".shared .align 8 .b8 cells[512]; mov.u64 %rd6, cells; cvta.shared.u64 %rd5, %rd6;"),
];

/// Runs a list in one memory with one thread. Returns the result of each `atom`, the word that it leaves, and
/// the word that `red` leaves.
fn run(list: &[Atomic], (space, address, before): (&str, &str, &str)) -> Vec<[u64; 3]> {
    let mut body = String::from(
        ".reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .b16 %h<9>; .reg .f32 %f<9>; .reg .f64 %fd<9>;\n",
    );
    body += "ld.param.u64 %rd7, [out]; ld.param.u64 %rd8, [in]; add.u64 %rd5, %rd7, 2048;\n";
    body += before;
    for (i, (bank, name, _, operands, _)) in list.iter().enumerate() {
        let ty = BANKS.iter().find(|(known, _)| known == bank).expect("a bank").1;
        let place = address.replace("SLOT", &(8 * i).to_string());
        let operands: String = (0..operands.len()).map(|i| format!(", {bank}{}", i + 1)).collect();
        for operand in 0..3 {
            body += &format!("\nld.global.{ty} {bank}{operand}, [%rd8+{}];", 32 * i + 8 * operand);
        }
        let start = format!("\nst{space}.{ty} {place}, {bank}0;");
        let left = |to| {
            format!("\nld{space}.{ty} {bank}4, {place}; st.global.{ty} [%rd7+{}], {bank}4;", 24 * i + to)
        };
        let atom = format!("\natom{space}.{name} {bank}4, {place}{operands};");
        // An operation that only `atom` has runs twice.
        let no_red = name.starts_with("exch") || name.starts_with("cas");
        let red = if no_red { atom.clone() } else { format!("\nred{space}.{name} {place}{operands};") };
        body += &format!(
            "{start}{atom} st.global.{ty} [%rd7+{}], {bank}4;{}{start}{red}{}",
            24 * i,
            left(8),
            left(16)
        );
    }
    let input = list.iter().flat_map(|(_, _, old, operands, _)| {
        let mut all = [*old, 0, 0, 0];
        all[1..=operands.len()].copy_from_slice(operands);
        all.into_iter().flat_map(u64::to_le_bytes)
    });
    let args = [Arg::Buffer(vec![0; 4096]), Arg::Buffer(input.collect())];
    let text = kernel(&["u64 out", "u64 in"], &body);
    let (_, buffers) = launch(&text, threads(1), &args).unwrap_or_else(|fault| panic!("{fault}"));
    let longs: Vec<u64> = buffers[0].as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    longs.as_chunks().0[..list.len()].to_vec()
}

/// Registers of operands, and their types.
const BANKS: [(&str, &str); 5] =
    [("%h", "b16"), ("%r", "b32"), ("%rd", "b64"), ("%f", "f32"), ("%fd", "f64")];

#[test]
fn operations_of_all_types_everywhere() {
    let all = atomics();
    for place in PLACES {
        for ((_, name, old, operands, new), found) in all.iter().zip(run(&all, place)) {
            assert_eq!(found, [*old, *new, *new], "{name} of {old:#x} and {operands:x?} at {place:?}");
        }
    }
}

#[test]
fn sums_of_f32_flush_in_global_memory_only() {
    for (place, sum) in PLACES.into_iter().zip([0, 0, 5, 5]) {
        assert_eq!(run(&[("%f", "add.f32", 2, &[3], sum)], place), [[2, sum, sum]], "{place:?}");
    }
}
