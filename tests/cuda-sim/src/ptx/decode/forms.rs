//! Modifiers of each instruction in the ISA, as a table that follows its syntax lines.
//!
//! Invariant: modifiers that match no row are refused, whatever a decoder does with them. A row may have
//! modifiers that no decoder supports. The decoder refuses those.
//!
//! Modifiers may come in any order, because NVIDIA's assembler accepts that and NVIDIA's headers rely on it.
//! Modifiers of one [`Kind`] keep their order. Modifiers before `:` are a part of the name.

use super::Mods;
use crate::ptx::types::Type;

/// Names of instructions, and the pattern of their modifiers.
///
/// In a pattern `a|b` is one of several, `a+b` is both, and `?` makes a part optional. Names of [`SETS`]
/// stand for their choices. Parts before `:` come in this order, parts after it in any order.
struct Row(&'static [&'static str], &'static str);

/// Sets of modifiers that many rows share.
const SETS: [(&str, &str); 24] = [
    ("INT", "u16|u32|u64|s16|s32|s64"),
    ("WHOLES", "u8|u16|u32|u64|s8|s16|s32|s64"),
    ("CARRY", "u32|s32|u64|s64"),
    ("BITS", "b16|b32|b64"),
    ("SIGNED", "s16|s32|s64"),
    ("UNSIGNED", "u16|u32|u64"),
    ("PLAIN", "b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64"),
    ("MEMORY", "b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64"),
    ("ASYNC", "b32|b64|u32|u64|s32|s64|f32|f64"),
    ("RND", "rn|rz|rm|rp"),
    ("WHOLE", "rni|rzi|rmi|rpi"),
    ("CMP", "eq|ne|lt|le|gt|ge"),
    ("UCMP", "eq|ne|lt|le|gt|ge|lo|ls|hi|hs"),
    ("FCMP", "eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan"),
    ("LOGIC", "and|or|xor"),
    ("TRUTH", "u32|s32|f32|f16|bf16"),
    ("SHARED", "shared|shared::cta|shared::cluster"),
    ("SPACE", "const|global|local|param|param::entry|param::func|SHARED"),
    ("WINDOW", "const|global|local|SHARED"),
    ("SCOPE", "cta|cluster|gpu|sys"),
    ("EVICT", "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate"),
    ("FETCH", "L2::64B|L2::128B|L2::256B"),
    ("HINT", "L2::cache_hint"),
    ("VECTOR", "v2|v4|v8"),
];

const SUMS: &[&str] = &["add", "sub", "mul"];
const EXTREMES: &[&str] = &["min", "max"];

#[rustfmt::skip]
const ROWS: &[Row] = &[
    // Integers.
    Row(&["add", "sub", "div", "rem", "min", "max", "sad"], "INT"),
    Row(&["add", "sub"], "sat s32"),
    Row(&["add"], "s16x2|u16x2"),
    Row(EXTREMES, "u16x2"),
    Row(EXTREMES, "relu? s16x2"),
    Row(EXTREMES, "relu s32"),
    Row(&["add", "sub"], "cc CARRY"),
    Row(&["addc", "subc"], "cc? CARRY"),
    Row(&["mul", "mad"], "lo|hi : INT"),
    Row(&["mul", "mad"], "wide : u16|u32|s16|s32"),
    Row(&["mad", "mad24"], "hi : sat s32"),
    Row(&["mad"], "lo|hi : cc CARRY"),
    Row(&["madc"], "lo|hi : cc? CARRY"),
    Row(&["mul24", "mad24"], "lo|hi : u32|s32"),
    Row(&["neg", "abs"], "SIGNED"),
    // Floats.
    Row(SUMS, "RND? ftz? sat? f32"),
    Row(SUMS, "RND? f64"),
    Row(SUMS, "rn? ftz? sat? f16|f16x2"),
    Row(SUMS, "rn? bf16|bf16x2"),
    Row(&["fma", "mad"], "RND ftz? sat? f32"),
    Row(&["fma", "mad"], "RND f64"),
    Row(&["fma"], "rn ftz? sat|relu? f16|f16x2"),
    Row(&["fma"], "rn relu? bf16|bf16x2"),
    Row(&["neg", "abs"], "ftz? f32|f16|f16x2"),
    Row(&["neg", "abs"], "f64|bf16|bf16x2"),
    Row(EXTREMES, "ftz? NaN? xorsign+abs? f32|f16|f16x2"),
    Row(EXTREMES, "NaN? xorsign+abs? bf16|bf16x2"),
    Row(EXTREMES, "f64"),
    Row(&["div"], "approx|RND ftz? f32"),
    Row(&["div"], "full : ftz? f32"),
    Row(&["div"], "RND f64"),
    Row(&["sqrt", "rcp"], "approx|RND ftz? f32"),
    Row(&["sqrt", "rcp"], "RND f64"),
    Row(&["rcp"], "approx ftz f64"),
    Row(&["rsqrt"], "approx ftz? f32|f64"),
    Row(&["sin", "cos", "lg2", "ex2"], "approx ftz? f32"),
    Row(&["ex2"], "approx f16|f16x2"),
    Row(&["ex2"], "approx ftz bf16|bf16x2"),
    Row(&["tanh"], "approx f32|f16|f16x2|bf16|bf16x2"),
    Row(&["copysign"], "f32|f64"),
    Row(&["testp"], "finite|infinite|number|notanumber|normal|subnormal f32|f64"),
    // Conversions.
    Row(&["cvt"], "WHOLES WHOLES"),
    Row(&["cvt"], "sat u8 u16|u32|u64|s8|SIGNED"),
    Row(&["cvt"], "sat u16 u32|u64|s8|SIGNED"),
    Row(&["cvt"], "sat u32 u64|s8|SIGNED"),
    Row(&["cvt"], "sat u64 s8|SIGNED"),
    Row(&["cvt"], "sat s8 u8|UNSIGNED|SIGNED"),
    Row(&["cvt"], "sat s16 UNSIGNED|s32|s64"),
    Row(&["cvt"], "sat s32 u32|u64|s64"),
    Row(&["cvt"], "sat s64 u64"),
    Row(&["cvt"], "RND sat? f16|f64 WHOLES"),
    Row(&["cvt"], "RND ftz? sat? f32 WHOLES"),
    Row(&["cvt"], "RND bf16 INT"),
    Row(&["cvt"], "WHOLE ftz? sat? WHOLES f32"),
    Row(&["cvt"], "WHOLE sat? WHOLES f16|f64"),
    Row(&["cvt"], "WHOLE INT bf16"),
    Row(&["cvt"], "WHOLE? ftz? sat? f32 f32"),
    Row(&["cvt"], "WHOLE? sat? f16 f16"),
    Row(&["cvt"], "WHOLE? sat? f64 f64"),
    Row(&["cvt"], "WHOLE? bf16 bf16"),
    Row(&["cvt"], "RND ftz? sat? f32 f64"),
    Row(&["cvt"], "ftz? sat? f64 f32"),
    Row(&["cvt"], "RND ftz? sat? f16 f32"),
    Row(&["cvt"], "rn|rz relu f16 f32"),
    Row(&["cvt"], "RND sat? f16 f64"),
    Row(&["cvt"], "ftz? sat? f32 f16"),
    Row(&["cvt"], "sat? f64 f16"),
    Row(&["cvt"], "RND bf16 f16|f64"),
    Row(&["cvt"], "RND f16 bf16"),
    Row(&["cvt"], "RND bf16 f32"),
    Row(&["cvt"], "rn|rz relu bf16 f32"),
    Row(&["cvt"], "ftz? f32 bf16"),
    Row(&["cvt"], "f64 bf16"),
    Row(&["cvt"], "rn|rz relu? f16x2|bf16x2|tf32 f32"),
    Row(&["cvt"], "rna tf32 f32"),
    // Bits.
    Row(&["and", "or", "xor", "not"], "pred|b16|b32|b64"),
    Row(&["cnot", "shl", "shr"], "BITS"),
    Row(&["shr"], "INT"),
    Row(&["popc", "clz", "brev", "bfi"], "b32|b64"),
    Row(&["bfind"], "shiftamt? u32|u64|s32|s64"),
    Row(&["bfe"], "u32|u64|s32|s64"),
    Row(&["shf"], "l|r : wrap|clamp b32"),
    Row(&["lop3"], "or|and? b32"),
    Row(&["bmsk"], "clamp|wrap b32"),
    Row(&["szext"], "clamp|wrap u32|s32"),
    Row(&["fns"], "b32"),
    Row(&["prmt"], "b32 f4e|b4e|rc8|ecl|ecr|rc16?"),
    Row(&["vabsdiff4"], "u32 u32 u32 add?"),
    Row(&["dp4a"], "u32|s32 u32|s32"),
    Row(&["dp2a"], "lo|hi : u32|s32 u32|s32"),
    // Selections and moves.
    Row(&["setp"], "eq|ne LOGIC? BITS"),
    Row(&["setp"], "CMP LOGIC? SIGNED"),
    Row(&["setp"], "UCMP LOGIC? UNSIGNED"),
    Row(&["setp"], "FCMP LOGIC? ftz? f32|f16|f16x2"),
    Row(&["setp"], "FCMP LOGIC? f64|bf16|bf16x2"),
    Row(&["set"], "eq|ne LOGIC? TRUTH BITS"),
    Row(&["set"], "CMP LOGIC? TRUTH SIGNED"),
    Row(&["set"], "UCMP LOGIC? TRUTH UNSIGNED"),
    Row(&["set"], "FCMP LOGIC? ftz? u32|s32|f32|f16 f32"),
    Row(&["set"], "FCMP LOGIC? bf16 f32"),
    Row(&["set"], "FCMP LOGIC? TRUTH f64"),
    Row(&["set"], "FCMP LOGIC? ftz? u16|s16|u32|s32|f16 f16"),
    Row(&["set"], "FCMP LOGIC? bf16 f16"),
    Row(&["set"], "FCMP LOGIC? u16|s16|u32|s32|bf16 bf16"),
    Row(&["set"], "FCMP LOGIC? ftz? u32|s32|f16x2 f16x2"),
    Row(&["set"], "FCMP LOGIC? u32|s32|bf16x2 bf16x2"),
    Row(&["selp"], "PLAIN"),
    Row(&["slct"], "PLAIN s32"),
    Row(&["slct"], "ftz? PLAIN f32"),
    Row(&["mov"], "pred|PLAIN"),
    Row(&["cvta"], "to? : WINDOW u64"),
    Row(&["isspacep"], "WINDOW"),
    Row(&["mapa", "getctarank"], "shared::cluster? u32|u64"),
    // Memory.
    Row(&["ldu"], "global? VECTOR? MEMORY"),
    Row(&["ld"], "weak? global? EVICT? HINT? FETCH? VECTOR? MEMORY"),
    Row(&["ld"], "weak? global? ca|cg|cs|lu|cv HINT? FETCH? VECTOR? MEMORY"),
    Row(&["ld"], "weak? SPACE ca|cg|cs|lu|cv? VECTOR? MEMORY"),
    Row(&["ld"], "global ca|cg|cs|EVICT? nc HINT? FETCH? VECTOR? MEMORY"),
    Row(&["ld"], "volatile global? FETCH? VECTOR? MEMORY"),
    Row(&["ld"], "relaxed|acquire SCOPE global? EVICT? HINT? FETCH? VECTOR? MEMORY"),
    Row(&["ld"], "relaxed|acquire SCOPE SHARED VECTOR? MEMORY"),
    Row(&["st"], "weak? global? wb|cg|cs|wt|EVICT? HINT? VECTOR? MEMORY"),
    Row(&["st"], "weak? SPACE wb|cg|cs|wt? VECTOR? MEMORY"),
    Row(&["ld", "st"], "volatile SHARED|local VECTOR? MEMORY"),
    Row(&["st"], "volatile global? VECTOR? MEMORY"),
    Row(&["st"], "relaxed|release SCOPE global? EVICT? HINT? VECTOR? MEMORY"),
    Row(&["st"], "relaxed|release SCOPE SHARED VECTOR? MEMORY"),
    Row(&["st"], "async : weak? shared::cluster mbarrier::complete_tx::bytes v2|v4? ASYNC"),
    Row(&["ld", "st"], "mmio relaxed sys global? MEMORY"),
    Row(&["atom"], "relaxed|acquire|release|acq_rel? SCOPE? global|SHARED? exch b32|b64"),
    Row(&["atom"], "relaxed|acquire|release|acq_rel? SCOPE? global|SHARED? cas BITS"),
    Row(&["atom"], "relaxed|acquire|release|acq_rel? SCOPE? global|SHARED? CHANGE"),
    Row(&["red"], "relaxed|release? SCOPE? global|SHARED? CHANGE"),
    Row(&["cp"], "async : ca|cg shared|shared::cta global FETCH?"),
    Row(&["cp"], "async commit_group|wait_all|wait_group :"),
    Row(&["prefetch"], "global|local? L1|L2"),
    Row(&["prefetch"], "global? L2::evict_last|L2::evict_normal"),
    Row(&["prefetchu"], "L1"),
    Row(&["applypriority"], "global? L2::evict_normal"),
    Row(&["discard"], "global? L2"),
    // Synchronization of threads.
    Row(&["bar"], "warp sync :"),
    Row(&["bar"], "cta? sync|arrive :"),
    Row(&["bar"], "cta? red : popc+u32|and+pred|or+pred"),
    Row(&["barrier"], "cta? : sync|arrive aligned?"),
    Row(&["barrier"], "cta? red : popc aligned? u32"),
    Row(&["barrier"], "cta? red : and|or aligned? pred"),
    Row(&["barrier"], "cluster arrive : release|relaxed? aligned?"),
    Row(&["barrier"], "cluster wait : acquire? aligned?"),
    Row(&["mbarrier"], "init|inval : shared|shared::cta b64"),
    Row(&["mbarrier"], "arrive : release+cta|release+cluster? shared|shared::cta b64"),
    Row(&["mbarrier"], "arrive expect_tx : release+cta|release+cluster? shared|shared::cta b64"),
    Row(&["mbarrier"], "try_wait parity : acquire+cta|acquire+cluster? shared|shared::cta b64"),
    Row(&["shfl"], "sync up|down|bfly|idx b32"),
    Row(&["vote"], "sync all+pred|any+pred|uni+pred|ballot+b32"),
    Row(&["match"], "any|all sync b32|b64"),
    Row(&["redux"], "sync add|min|max u32|s32"),
    Row(&["redux"], "sync and|or|xor b32"),
    Row(&["activemask"], "b32"),
    Row(&["elect"], "sync"),
    Row(&["mma"], "sync aligned m16n8k8|m16n8k16 row col f16|f32 f16 f16 f16|f32"),
    Row(&["mma"], "sync aligned m16n8k8|m16n8k16 row col f32 bf16 bf16 f32"),
    Row(&["mma"], "sync aligned m16n8k4|m16n8k8 row col f32 tf32 tf32 f32"),
    Row(&["ldmatrix"], "sync aligned m8n8 x1|x2|x4 trans? shared|shared::cta b16"),
    // Control flow.
    Row(&["bra", "ret", "call"], "uni?"),
    Row(&["brx"], "idx uni?"),
    Row(&["exit", "trap", "pmevent"], ""),
    Row(&["nanosleep"], "u32"),
    Row(&["griddepcontrol"], "wait|launch_dependents"),
    Row(&["membar"], "cta|gl|sys"),
    Row(&["fence"], "mbarrier_init release cluster"),
    Row(&["fence"], "sc|acq_rel|acquire|release? SCOPE"),
];

/// Operations of atomics that combine a place with a value, with their types.
const CHANGES: &str = "add+u32|add+s32|add+u64|add+f32|add+f64|add+noftz+f16|add+noftz+f16x2|add+noftz+bf16|add+noftz+bf16x2|\
     min+u32|min+s32|min+u64|min+s64|max+u32|max+s32|max+u64|max+s64|\
     and+b32|and+b64|or+b32|or+b64|xor+b32|xor+b64|inc+u32|dec+u32";

/// Kinds of modifiers whose relative order has a meaning.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Types: first that of the result, then those of operands.
    Type,
    /// Layouts of the factors of a matrix product.
    Layout,
    /// State spaces: the destination's, then the source's.
    Space,
}

fn kind(word: &str) -> Option<Kind> {
    match word {
        "row" | "col" => Some(Kind::Layout),
        "global" | "shared" | "shared::cta" | "shared::cluster" => Some(Kind::Space),
        _ => Type::named(word).map(|_| Kind::Type),
    }
}

/// Returns the position of a word that the next part of a pattern may match.
fn place(wanted: &str, words: &[&str], is_name: bool) -> Option<usize> {
    let at = if is_name { 0 } else { words.iter().position(|word| *word == wanted)? };
    let first = |found| words[..at].iter().all(|word| kind(word) != Some(found));
    (words.get(at) == Some(&wanted) && kind(wanted).is_none_or(first)).then_some(at)
}

/// Returns true if the words match a pattern of these parts. The first `name` parts belong to the name.
fn fits((parts, name): (&[&str], usize), words: &[&str]) -> bool {
    let Some((part, rest)) = parts.split_first() else { return words.is_empty() };
    let (part, optional) = part.strip_suffix('?').map_or((*part, false), |part| (part, true));
    let next = (rest, name.saturating_sub(1));
    part.split('|').any(|choice| goes_on(choice, next, words, name > 0)) || optional && fits(next, words)
}

/// Returns true if the words match one choice of a part, and the remaining words match the remaining parts.
fn goes_on(choice: &str, next: (&[&str], usize), words: &[&str], is_name: bool) -> bool {
    let set = if choice == "CHANGE" {
        Some(CHANGES)
    } else {
        SETS.iter().find(|(name, _)| *name == choice).map(|set| set.1)
    };
    if let Some(set) = set {
        return set.split('|').any(|choice| goes_on(choice, next, words, is_name));
    }
    if choice.split('+').any(|word| !words.contains(&word)) {
        return false;
    }
    let mut others = words.to_vec();
    let mut takes = |word: &str| place(word, &others, is_name).map(|at| others.remove(at)).is_some();
    choice.split('+').all(&mut takes) && fits(next, &others)
}

impl Mods<'_> {
    /// Returns true if the ISA has the instruction with these modifiers.
    pub(in crate::ptx) fn are_known(&self) -> bool {
        let words: Vec<&str> = self.list.iter().map(|(word, _)| *word).collect();
        ROWS.iter().filter(|row| row.0.contains(&self.name)).any(|row| {
            let (name, rest) = row.1.split_once(" :").unwrap_or(("", row.1));
            let name: Vec<&str> = name.split_whitespace().collect();
            let parts: Vec<&str> = name.iter().copied().chain(rest.split_whitespace()).collect();
            fits((&parts, name.len()), &words)
        })
    }
}
