//! The columns of the op table, and constructors for its rows.

use crate::ir::dtype::{Class, DType};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::kernel::{Builder, Value};
use crate::ir::op::{Op, Typing};

use Lower::{Expand, Never};

/// The value of an operation on constants: the reference for every target.
#[derive(Clone, Copy)]
pub struct Eval {
    /// The operation on floats, in `f64`. Comparisons and tests return 0 or 1.
    pub float: fn(&[f64]) -> f64,
    /// The operation on integers and truth values, given the number of bits of the type.
    ///
    /// The caller wraps the result. A result that is a float is returned as its bit pattern.
    pub int: fn(&[i64], u32) -> i64,
}

/// The lowering of an operation on a target for operands of one class.
#[derive(Clone, Copy)]
pub enum Lower {
    /// A native operation: an expression in Rust and WGSL, an instruction in PTX.
    ///
    /// `{0}` … are the operands and `{t}` is their type. In WGSL, `{u}` is the unsigned type with as many
    /// lanes. In PTX, `{d}` is the result, `{b}` the type of the operands' bits, and `{amount}` the second
    /// operand in 32 bits.
    Native(&'static str),
    /// A native operation of GPUs with products of matrices (`sm_80`), and an expansion for older GPUs.
    Recent(&'static str, fn(&mut Builder<'_>, &[Value]) -> Value),
    /// An expansion into other operations.
    Expand(fn(&mut Builder<'_>, &[Value]) -> Value),
    /// No lowering, because no operand of this class passes `check`.
    Never,
}

/// The lowering of an operation on a target, by the class of the last operand.
#[derive(Clone, Copy)]
pub struct Lowering {
    /// Lowering for floats.
    pub float: Lower,
    /// Lowering for signed integers.
    pub int: Lower,
    /// Lowering for unsigned integers and indices.
    pub uint: Lower,
    /// Lowering for truth values.
    pub bool: Lower,
}

impl Lowering {
    /// Returns the lowering for one class.
    pub fn of(&self, class: Class) -> Lower {
        match class {
            Class::Float => self.float,
            Class::Int => self.int,
            Class::Uint => self.uint,
            Class::Bool => self.bool,
        }
    }
}

/// The lowering of an operation for `f64`.
#[derive(Clone, Copy)]
pub enum Double {
    /// The lowering for `f32`, which then depends on neither the type `f32` nor its bits.
    Same,
    /// Separate lowerings for the CPU and for PTX. The one for the CPU is often a function of Rust's standard
    /// library.
    By(Lower, Lower),
    /// No lowering, because no operand is an `f64`.
    Never,
}

/// A column of the table: a language, for devices that have the natives of the column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Rust, with the runtime's functions for fused multiply-add and rounding.
    Cpu,
    /// PTX.
    Ptx,
    /// WGSL.
    Wgsl,
}

impl Dialect {
    /// All columns.
    pub const ALL: [Dialect; 3] = [Dialect::Cpu, Dialect::Ptx, Dialect::Wgsl];

    /// Returns true if the compilers of the language may reorder float arithmetic.
    pub fn reorders(self) -> bool {
        match self {
            Dialect::Wgsl => true,
            Dialect::Cpu | Dialect::Ptx => false,
        }
    }

    /// Returns the lowering of `op` if the last operand has this dtype.
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
    /// Returns the approximation that `fast_math` replaces the operation by.
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

    /// Returns true if the operation is an approximation of `fast_math`.
    pub fn is_approximation(self) -> bool {
        Op::ALL.iter().any(|op| op.approximation() == Some(self))
    }
}

/// The derivative of an operation.
#[derive(Clone, Copy)]
pub enum Grad {
    /// A derivative of 0: the result is constant almost everywhere, or is not a float.
    Zero,
    /// A rule that returns the gradient of each operand, if the operand has one.
    Rule(GradRule),
}

/// A derivative rule, given the graph, the operands, the result and its gradient.
///
/// The gradients have the axes of the result.
pub type GradRule = fn(&mut Graph, &[NodeId], NodeId, NodeId) -> Vec<Option<NodeId>>;

/// The largest error in units in the last place, over finite operands with a normal result.
#[derive(Clone, Copy, Debug)]
pub struct Ulp {
    /// Bound on the CPU and in PTX.
    pub native: u32,
    /// Bound in WGSL, which leaves more freedom to implementations.
    pub wgsl: u32,
}

/// A row of the table.
pub struct OpInfo {
    /// Name of the operation in a call. Operators have a name, too.
    pub name: &'static str,
    /// Number of operands.
    pub arity: usize,
    /// Dtypes of the operands and of the result.
    pub typing: Typing,
    /// Range from which tests draw each float operand.
    pub domain: &'static [(f64, f64)],
    /// Error bound.
    pub ulp: Ulp,
    /// Reference implementation.
    pub eval: Eval,
    /// Derivative of the operation.
    pub grad: Grad,
    /// Lowering for `f64`.
    pub double: Double,
    /// Lowering to Rust. `ops` in templates names the processor's implementation of operations that not all
    /// processors have as instructions.
    pub cpu: Lowering,
    /// Lowering to PTX.
    pub ptx: Lowering,
    /// Lowering to WGSL.
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

/// Builds the row of a conversion to the bits of a narrower float. The CPU and WGSL share the expansion.
pub(super) const fn encode(
    float: fn(&[f64]) -> f64,
    ptx: Lower,
    expand: fn(&mut Builder<'_>, &[Value]) -> Value,
) -> OpInfo {
    OpInfo { typing: Typing::Encode, eval: Eval { float, int: |_, _| 0 }, ..of_bits(ptx, expand) }
}

/// Builds the row of a conversion from the bits of a narrower float. The CPU and WGSL share the expansion.
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

/// Builds the row of a test of floats, with its lowerings on the CPU, in PTX and in WGSL.
pub(super) const fn test(name: &'static str, float: fn(&[f64]) -> f64, lowers: [Lower; 3]) -> OpInfo {
    let eval = Eval { float, int: |_, _| 0 };
    OpInfo { double: Double::Same, name, typing: Typing::Test, eval, ..floats(lowers) }
}

/// Builds the row of an operation on floats, with its lowerings on the CPU, in PTX and in WGSL.
pub(super) const fn floats([cpu, ptx, wgsl]: [Lower; 3]) -> OpInfo {
    let (cpu, ptx, wgsl) = (float(cpu), float(ptx), float(wgsl));
    OpInfo { typing: Typing::Float, cpu, ptx, wgsl, ..OpInfo::NONE }
}

/// Builds the row of an operation on floats that all targets expand alike.
pub(super) const fn everywhere(expand: fn(&mut Builder<'_>, &[Value]) -> Value) -> OpInfo {
    floats([Expand(expand); 3])
}

/// Builds the row of a float operation that GPUs approximate.
///
/// The error bounds are in `docs/NUMERICS.md`, because the bounds are not in units in the last place.
pub(super) const fn approximate(float: fn(&[f64]) -> f64, lowers: [Lower; 3]) -> OpInfo {
    let (eval, ulp) = (Eval { float, int: |_, _| 0 }, ulp(u32::MAX, u32::MAX));
    OpInfo { eval, ulp, ..floats(lowers) }
}

/// Defines the rows of the table.
macro_rules! ops {
    ($($op:ident = $info:expr;)*) => {
        impl Op {
            /// Returns the operation's row of the table.
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
