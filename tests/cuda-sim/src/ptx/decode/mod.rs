//! Decoder of one instruction: its name and modifiers decide how its operands are parsed. Each family has a
//! file.

mod bits;
mod control;
mod float;
mod forms;
mod int;
mod matrix;
mod mbarrier;
mod memory;
mod moves;
mod needs;
mod sync;

use super::ParseError;
use super::body::Body;
use super::ir::{Bits, Float, Int, Op, Round};
use super::types::Type;

pub(super) use needs::{Needs, of as needs_of, of_target as target_needs};

/// Decoded instruction, or an error.
type Decoded = Result<Op, ParseError>;

/// Modifiers of an instruction, each with a mark that it was used.
pub(super) struct Mods<'t> {
    pub(super) name: &'t str,
    /// Start of the instruction in the text.
    pub(super) at: usize,
    list: Vec<(&'t str, bool)>,
}

impl<'t> Mods<'t> {
    pub(super) fn new(name: &'t str, at: usize) -> Mods<'t> {
        Mods { name, at, list: vec![] }
    }

    pub(super) fn push(&mut self, word: &'t str) {
        self.list.push((word, false));
    }

    /// Returns the first modifier that was not used.
    pub(super) fn unused(&self) -> Option<&'t str> {
        self.list.iter().find(|(_, used)| !used).map(|(word, _)| *word)
    }

    fn find<T>(&mut self, mut test: impl FnMut(&str) -> Option<T>) -> Option<T> {
        let (found, used) = self
            .list
            .iter_mut()
            .filter(|(_, used)| !used)
            .find_map(|(word, used)| Some((test(word)?, used)))?;
        *used = true;
        Some(found)
    }

    fn flag(&mut self, name: &str) -> bool {
        self.find(|word| (word == name).then_some(())).is_some()
    }

    fn pick<T: Copy>(&mut self, choices: &[(&str, T)]) -> Option<T> {
        self.find(|word| choices.iter().find(|(name, _)| *name == word).map(|(_, choice)| *choice))
    }

    fn ty(&mut self, b: &Body<'_, '_>) -> Result<Type, ParseError> {
        let ty = self.find(Type::named);
        ty.map_or_else(|| b.wrong(self.at, "a type that this crate knows is missing"), Ok)
    }

    fn need<T: Copy>(
        &mut self,
        b: &Body<'_, '_>,
        what: &str,
        choices: &[(&str, T)],
    ) -> Result<T, ParseError> {
        let names = || choices.iter().map(|(name, _)| format!("`.{name}`")).collect::<Vec<_>>().join(", ");
        self.pick(choices)
            .map_or_else(|| b.wrong(self.at, format!("{what} is missing: one of {}", names())), Ok)
    }

    fn no_type<T>(&self, b: &Body<'_, '_>, ty: Type) -> Result<T, ParseError> {
        b.wrong(self.at, format!("it has no type `.{}`", super::operand::name_of(ty)))
    }
}

/// Decodes an instruction and its operands.
pub(super) fn decode(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    match m.name {
        "add" | "sub" | "mul" | "min" | "max" | "div" | "rem" | "neg" | "abs" | "fma" | "mad" | "sad"
        | "mul24" | "mad24" | "addc" | "subc" | "madc" => int::arithmetic(b, m),
        "sqrt" | "rcp" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" | "copysign" | "testp" => {
            float::float(b, m)
        }
        "cvt" => float::cvt(b, m),
        "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "shf" | "lop3" | "prmt" | "bfe" | "bfi"
        | "bfind" | "brev" | "clz" | "popc" | "dp4a" | "dp2a" | "bmsk" | "szext" | "fns" | "vabsdiff4" => {
            bits::bits(b, m)
        }
        "setp" | "set" | "selp" | "slct" => moves::choice(b, m),
        "mov" | "cvta" | "isspacep" | "mapa" | "getctarank" => moves::moves(b, m),
        "ld" | "ldu" | "st" | "atom" | "red" | "cp" | "prefetch" | "prefetchu" | "applypriority"
        | "discard" => memory::memory(b, m),
        "bra" | "brx" | "call" | "ret" | "exit" | "trap" | "nanosleep" | "griddepcontrol" | "membar"
        | "fence" | "pmevent" | "setmaxnreg" => control::control(b, m),
        "bar" | "barrier" | "shfl" | "vote" | "match" | "redux" | "activemask" | "elect" => sync::sync(b, m),
        "mbarrier" => mbarrier::mbarrier(b, m),
        "mma" | "ldmatrix" => matrix::matrix(b, m),
        _ => b.wrong(m.at, "this instruction is not supported"),
    }
}

/// Returns the integer type of arithmetic: signed or unsigned, of 16 to 64 bits.
fn arithmetic_int(ty: Type) -> Option<Int> {
    match ty {
        Type::U16 => Some(Int::U16),
        Type::U32 => Some(Int::U32),
        Type::U64 => Some(Int::U64),
        Type::S16 => Some(Int::S16),
        Type::S32 => Some(Int::S32),
        Type::S64 => Some(Int::S64),
        Type::Pred
        | Type::B8
        | Type::B16
        | Type::B32
        | Type::B64
        | Type::U8
        | Type::S8
        | Type::U16x2
        | Type::S16x2
        | Type::F16
        | Type::F16x2
        | Type::BF16
        | Type::BF16x2
        | Type::TF32
        | Type::F32
        | Type::F64 => None,
    }
}

fn float_type(ty: Type) -> Option<Float> {
    match ty {
        Type::F16 => Some(Float::F16),
        Type::F16x2 => Some(Float::F16x2),
        Type::BF16 => Some(Float::BF16),
        Type::BF16x2 => Some(Float::BF16x2),
        Type::F32 => Some(Float::F32),
        Type::F64 => Some(Float::F64),
        Type::Pred
        | Type::B8
        | Type::B16
        | Type::B32
        | Type::B64
        | Type::U8
        | Type::U16
        | Type::U32
        | Type::U64
        | Type::S8
        | Type::S16
        | Type::S32
        | Type::S64
        | Type::U16x2
        | Type::S16x2
        | Type::TF32 => None,
    }
}

/// Returns the width of a type `.bN`.
fn bits_type(ty: Type) -> Option<Bits> {
    match ty {
        Type::B16 => Some(Bits::B16),
        Type::B32 => Some(Bits::B32),
        Type::B64 => Some(Bits::B64),
        Type::Pred
        | Type::B8
        | Type::U8
        | Type::U16
        | Type::U32
        | Type::U64
        | Type::S8
        | Type::S16
        | Type::S32
        | Type::S64
        | Type::U16x2
        | Type::S16x2
        | Type::F16
        | Type::F16x2
        | Type::BF16
        | Type::BF16x2
        | Type::TF32
        | Type::F32
        | Type::F64 => None,
    }
}

/// Returns the width of a register of this type, if it has 16, 32 or 64 bits.
fn width(ty: Type) -> Option<Bits> {
    match ty.bytes() {
        2 => Some(Bits::B16),
        4 => Some(Bits::B32),
        8 => Some(Bits::B64),
        _ => None,
    }
}

fn unsigned(bits: Bits) -> Int {
    match bits {
        Bits::B16 => Int::U16,
        Bits::B32 => Int::U32,
        Bits::B64 => Int::U64,
    }
}

const ROUNDINGS: [(&str, Round); 4] =
    [("rn", Round::Nearest), ("rz", Round::Zero), ("rm", Round::Down), ("rp", Round::Up)];
