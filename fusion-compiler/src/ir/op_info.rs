//! What a row of the op table says, and the short forms that rows are written in.

use super::dtype::{Class, DType};
use super::graph::{Graph, NodeId};
use super::kernel::{Builder, Value};
use super::ops::Op;

use Lower::{Expand, Never};

/// Which dtypes an operation takes and gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typing {
    /// Numbers of one dtype, giving that dtype.
    Number,
    /// Floats of one dtype, giving that dtype.
    Float,
    /// Integers of one dtype, giving that dtype.
    Int,
    /// Integers or truth values of one dtype, giving that dtype.
    Bits,
    /// Two operands of one dtype, giving `bool`; truth values have no order, only equality.
    Compare,
    /// A float, giving `bool`.
    Test,
    /// A `bool` and two operands of one dtype, giving that dtype.
    Select,
    /// An `f32`, giving its bits in a `u32`.
    ToBits,
    /// A float, giving bits in a `u32`: those of a narrower one, or the high ones.
    Encode,
    /// The bits of an `f32` or of a narrower float in a `u32`, giving the `f32`.
    Decode,
    /// The high bits of an `f64` in a `u32`, giving that.
    Double,
}

impl Typing {
    /// The dtype of the result, for operands that fit.
    pub fn result(self, args: &[DType]) -> DType {
        match self {
            Typing::Number | Typing::Float | Typing::Int | Typing::Bits => args[0],
            Typing::Compare | Typing::Test => DType::Bool,
            Typing::Select => args[1],
            Typing::ToBits | Typing::Encode => DType::U32,
            Typing::Decode => DType::F32,
            Typing::Double => DType::F64,
        }
    }

    /// Whether operands of this dtype (after the condition of a select) are allowed.
    pub fn accepts(self, dtype: DType) -> bool {
        match self {
            Typing::Number => dtype.is_float() || dtype.is_int(),
            Typing::Float | Typing::Test => dtype.is_float(),
            Typing::Int => dtype.is_int(),
            Typing::Bits => dtype.is_int() || dtype == DType::Bool,
            Typing::Compare | Typing::Select => true,
            Typing::ToBits => dtype == DType::F32,
            Typing::Encode => dtype.is_float(),
            Typing::Decode | Typing::Double => dtype == DType::U32,
        }
    }
}

/// The value of an operation on constants: the reference for every target.
#[derive(Clone, Copy)]
pub struct Eval {
    /// On floats, in `f64`; comparisons and tests give 0 or 1.
    pub float: fn(&[f64]) -> f64,
    /// On integers and truth values, given the bits of the type; the caller wraps the result. Of a float the bits.
    pub int: fn(&[i64], u32) -> i64,
}

/// What an operation becomes on a target, for operands of one class.
#[derive(Clone, Copy)]
pub enum Lower {
    /// The target has it. An expression for Rust and WGSL, an instruction without its operands' list for PTX.
    /// `{0}` … are the operands, `{t}` their type; in WGSL `{u}` the unsigned type of as many lanes; in PTX `{d}` the
    /// result, `{b}` the type of their bits, and `{amount}` the second operand in 32 bits.
    Native(&'static str),
    /// Written in other operations.
    Expand(fn(&mut Builder<'_>, &[Value]) -> Value),
    /// No operand of this class passes `check`.
    Never,
}

/// What an operation becomes on a target, by the class of its last operand.
#[derive(Clone, Copy)]
pub struct Lowering {
    /// Floats.
    pub float: Lower,
    /// Signed integers.
    pub int: Lower,
    /// Unsigned integers and positions.
    pub uint: Lower,
    /// Truth values.
    pub bool: Lower,
}

impl Lowering {
    /// The row for one class.
    pub fn of(&self, class: Class) -> Lower {
        match class {
            Class::Float => self.float,
            Class::Int => self.int,
            Class::Uint => self.uint,
            Class::Bool => self.bool,
        }
    }
}

/// What an operation becomes for `f64`.
#[derive(Clone, Copy)]
pub enum Double {
    /// The same as for `f32`, where that has neither a type nor its bits.
    Same,
    /// On the CPU, often a function of Rust's standard library, and in PTX.
    By(Lower, Lower),
    /// It has no operands of this type.
    Never,
}

/// A column of the table: a language, on devices that have what its natives need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Rust, with what the runtime calls fused multiply-add and rounding.
    Cpu,
    /// PTX.
    Ptx,
    /// WGSL.
    Wgsl,
}

impl Dialect {
    /// Every column.
    pub const ALL: [Dialect; 3] = [Dialect::Cpu, Dialect::Ptx, Dialect::Wgsl];

    /// Whether its compilers may reorder float arithmetic.
    pub fn reorders(self) -> bool {
        match self {
            Dialect::Wgsl => true,
            Dialect::Cpu | Dialect::Ptx => false,
        }
    }

    /// What the operation becomes, for operands whose last is of this type.
    pub fn lower(self, op: Op, dtype: DType) -> Lower {
        let info = op.info();
        if dtype == DType::F64 {
            return self.lower_double(info);
        }
        let lowering = match self {
            Dialect::Cpu => &info.cpu,
            Dialect::Ptx => &info.ptx,
            Dialect::Wgsl => &info.wgsl,
        };
        lowering.of(dtype.class())
    }

    fn lower_double(self, info: &OpInfo) -> Lower {
        match (self, info.double) {
            (Dialect::Wgsl, _) | (_, Double::Never) => Never,
            (Dialect::Cpu, Double::Same) => info.cpu.float,
            (Dialect::Cpu, Double::By(lower, _)) => lower,
            (Dialect::Ptx, Double::Same) => info.ptx.float,
            (Dialect::Ptx, Double::By(_, lower)) => lower,
        }
    }
}

impl Op {
    /// What `fast_math` takes for it.
    pub fn approximation(self) -> Option<Op> {
        let pairs = [
            (Op::Div, Op::ApproxDiv),
            (Op::DivNearOne, Op::ApproxDiv),
            (Op::Sqrt, Op::ApproxSqrt),
            (Op::Rsqrt, Op::ApproxRsqrt),
            (Op::Exp, Op::ApproxExp),
            (Op::ExpOfNonpositive, Op::ApproxExp),
            (Op::ExpBelow, Op::ApproxExpBelow),
            (Op::Exp2, Op::ApproxExp2),
            (Op::Log, Op::ApproxLog),
            (Op::Log2, Op::ApproxLog2),
            (Op::Sin, Op::ApproxSin),
            (Op::Cos, Op::ApproxCos),
        ];
        pairs.into_iter().find(|(exact, _)| *exact == self).map(|(_, approximate)| approximate)
    }

    /// Whether it is one of those.
    pub fn is_approximation(self) -> bool {
        Op::ALL.iter().any(|op| op.approximation() == Some(self))
    }
}

/// How a gradient flows through an operation.
#[derive(Clone, Copy)]
pub enum Grad {
    /// The result is constant almost everywhere, or no float.
    Zero,
    /// Given the graph, the operands, the result and its gradient: the gradient of each operand, if it has one.
    Rule(GradRule),
}

/// A derivative rule; the gradients have the axes of the result.
pub type GradRule = fn(&mut Graph, &[NodeId], NodeId, NodeId) -> Vec<Option<NodeId>>;

/// Largest error in units in the last place, over finite operands whose result is normal.
#[derive(Clone, Copy, Debug)]
pub struct Ulp {
    /// CPU and PTX.
    pub native: u32,
    /// WGSL, whose language leaves more open.
    pub wgsl: u32,
}

/// A row of the table.
pub struct OpInfo {
    /// As users write it in a call; operators have one too.
    pub name: &'static str,
    /// Number of operands.
    pub arity: usize,
    /// Operands and result.
    pub typing: Typing,
    /// Where tests draw each float operand from.
    pub domain: &'static [(f64, f64)],
    /// Error bound.
    pub ulp: Ulp,
    /// Reference.
    pub eval: Eval,
    /// Derivative.
    pub grad: Grad,
    /// `f64`.
    pub double: Double,
    /// Rust; `ops` is what the processor has for operations that not all have.
    pub cpu: Lowering,
    /// PTX.
    pub ptx: Lowering,
    /// WGSL.
    pub wgsl: Lowering,
}

impl OpInfo {
    pub(super) const NONE: OpInfo = OpInfo {
        name: "",
        arity: 1,
        typing: Typing::Number,
        domain: &[(-1e3, 1e3), (-1e3, 1e3), (-1e3, 1e3)],
        ulp: exact(),
        eval: Eval { float: |_| f64::NAN, int: |_, _| 0 },
        grad: Grad::Zero,
        double: Double::Never,
        cpu: all(Never),
        ptx: all(Never),
        wgsl: all(Never),
    };
}

pub(super) const fn ulp(native: u32, wgsl: u32) -> Ulp {
    Ulp { native, wgsl }
}

pub(super) const fn exact() -> Ulp {
    ulp(0, 0)
}

pub(super) const fn all(lower: Lower) -> Lowering {
    Lowering { float: lower, int: lower, uint: lower, bool: lower }
}

pub(super) const fn float(lower: Lower) -> Lowering {
    Lowering { float: lower, ..all(Never) }
}

pub(super) const fn numbers(float: Lower, int: Lower, uint: Lower) -> Lowering {
    Lowering { float, int, uint, bool: Never }
}

pub(super) const fn bits(int: Lower, bool: Lower) -> Lowering {
    Lowering { float: Never, int, uint: int, bool }
}

/// The bits of a narrower float, which the CPU and WGSL get from the same expansion.
pub(super) const fn encode(
    float: fn(&[f64]) -> f64,
    ptx: Lower,
    expand: fn(&mut Builder<'_>, &[Value]) -> Value,
) -> OpInfo {
    OpInfo { typing: Typing::Encode, eval: Eval { float, int: |_, _| 0 }, ..of_bits(ptx, expand) }
}

/// The float of such bits.
pub(super) const fn decode(
    int: fn(&[i64], u32) -> i64,
    ptx: Lower,
    expand: fn(&mut Builder<'_>, &[Value]) -> Value,
) -> OpInfo {
    OpInfo { typing: Typing::Decode, eval: Eval { float: |_| f64::NAN, int }, ..of_bits(ptx, expand) }
}

const fn of_bits(ptx: Lower, expand: fn(&mut Builder<'_>, &[Value]) -> Value) -> OpInfo {
    OpInfo { cpu: all(Expand(expand)), wgsl: all(Expand(expand)), ptx: all(ptx), ..OpInfo::NONE }
}

/// What is true of some floats, on CPUs, in PTX and in WGSL.
pub(super) const fn test(name: &'static str, float: fn(&[f64]) -> f64, lowers: [Lower; 3]) -> OpInfo {
    let eval = Eval { float, int: |_, _| 0 };
    OpInfo { double: Double::Same, name, typing: Typing::Test, eval, ..floats(lowers) }
}

/// An operation on floats, on CPUs, in PTX and in WGSL.
pub(super) const fn floats([cpu, ptx, wgsl]: [Lower; 3]) -> OpInfo {
    let (cpu, ptx, wgsl) = (float(cpu), float(ptx), float(wgsl));
    OpInfo { typing: Typing::Float, cpu, ptx, wgsl, ..OpInfo::NONE }
}

/// An operation on floats that every target gets from the same expansion.
pub(super) const fn everywhere(expand: fn(&mut Builder<'_>, &[Value]) -> Value) -> OpInfo {
    floats([Expand(expand); 3])
}

/// An operation on floats that GPUs have an approximation of; bounds are in `docs/NUMERICS.md`, not in units in the last place.
pub(super) const fn approximate(float: fn(&[f64]) -> f64, lowers: [Lower; 3]) -> OpInfo {
    let (eval, ulp) = (Eval { float, int: |_, _| 0 }, ulp(u32::MAX, u32::MAX));
    OpInfo { eval, ulp, ..floats(lowers) }
}

/// Makes the rows of a table an enum of operations, each of which knows its own.
macro_rules! ops {
    ($($(#[$doc:meta])* $op:ident = $info:expr;)*) => {
        /// A pointwise operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Op {
            $($(#[$doc])* $op,)*
        }

        impl Op {
            /// Every operation.
            pub const ALL: &'static [Op] = &[$(Op::$op),*];

            /// Its row.
            pub fn info(self) -> &'static OpInfo {
                match self {
                    $(Op::$op => {
                        const INFO: OpInfo = $info;
                        &INFO
                    })*
                }
            }
        }
    };
}
pub(super) use ops;
