//! `atom` and `red`: each operation on each of its types, in global and in shared memory and by generic addresses.

mod harness;

use harness::{check, d, s};

/// A register's bank, the operation and type, what is there, one operand or two, and what is there afterwards.
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

/// Where the first operand is put first, by an address and the instructions before; and the space's name.
const PLACES: [(&str, &str, &str); 4] = [
    ("%at", "", ".global"),
    ("%at", "", ""),
    ("cell", ".shared .align 8 .b64 cell; st.shared.TYPE [cell], OLD;", ".shared"),
    (
        "%rd7",
        ".shared .align 8 .b64 cell; st.shared.TYPE [cell], OLD; mov.u64 %rd8, cell; cvta.shared.u64 %rd7, %rd8;",
        "",
    ),
];

#[test]
fn operations_of_all_types_everywhere() {
    for (bank, name, old, operands, new) in atomics() {
        let ty = match bank {
            "%h" => "b16",
            "%r" => "b32",
            "%rd" => "b64",
            "%f" => "f32",
            _double => "f64",
        };
        let list: String = (0..operands.len()).map(|i| format!(", {bank}{}", i + 2)).collect();
        let case = |wanted| {
            let mut all = [old, 0, 0, 0];
            all[1..=operands.len()].copy_from_slice(operands);
            [(all, wanted)]
        };
        let result = format!("{bank}0");
        for (address, before, space) in PLACES {
            let before = before.replace("TYPE", ty).replace("OLD", &format!("{bank}1"));
            // What it returns, and what it leaves.
            check(&format!("{before} atom{space}.{name} {result}, [{address}]{list};"), &result, &case(old));
            let after = format!("ld.{ty} {result}, [{}];", if address == "cell" { "%rd7" } else { address });
            let generic =
                if address == "cell" { "mov.u64 %rd8, cell; cvta.shared.u64 %rd7, %rd8;" } else { "" };
            let red = if name.starts_with("exch") || name.starts_with("cas") {
                format!("atom{space}.{name} {bank}5, [{address}]{list};")
            } else {
                format!("red{space}.{name} [{address}]{list};")
            };
            check(&format!("{before} {red} {generic} {after}"), &result, &case(new));
        }
    }
}

#[test]
fn sums_of_f32_flush_in_global_memory_only() {
    let sum = |place: usize, wanted: u64| {
        let (address, before, space) = PLACES[place];
        let before = before.replace("TYPE", "f32").replace("OLD", "%f1");
        let text = format!(
            "{before} atom{space}.add.f32 %f5, [{address}], %f2; atom{space}.add.f32 %f0, [{address}], 0f00000000;"
        );
        check(&text, "%f0", &[([2, 3, 0, 0], wanted)]);
    };
    sum(0, 0);
    sum(1, 0);
    sum(2, 5);
    sum(3, 5);
}
