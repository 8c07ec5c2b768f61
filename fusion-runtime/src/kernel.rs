//! The contract with generated code: the plan, and what the CPU runs of it.

use fusion_compiler::ir::plan;

/// A compiled function.
pub type Plan = plan::Plan<CpuCode>;
/// One kernel and its arguments.
pub type Launch = plan::Launch<CpuCode>;

/// The value of a scalar parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScalarValue {
    /// `f32`.
    F32(f32),
    /// `i32`.
    I32(i32),
    /// `u32`.
    U32(u32),
    /// `bool`.
    Bool(bool),
}

/// Instructions that a CPU function uses beyond what its architecture always has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// None.
    Base,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, with 512-bit vectors.
    Avx512,
}

/// A function that runs items of a launch. Unsafe to call where its instructions are missing.
pub type CpuFn = unsafe fn(&mut CpuArgs<'_>);

/// What the CPU runs for one launch.
#[derive(Clone, Debug)]
pub enum CpuCode {
    /// Functions of one meaning, best first; the last is `Isa::Base`.
    Compiled(&'static [(Isa, CpuFn)]),
}

/// The arguments of a CPU function, as generated code sees them.
///
/// `range()` are the items to run. `read::<T>(i)` is the whole of buffer `i`; `write::<T>(i)` is the part of buffer
/// `i` that belongs to these items, with the number of its first element, and may be asked for once.
/// `index(i)`, `f32(i)`, `i32(i)`, `u32(i)` and `bool(i)` are uniforms. Asking for what the launch does not
/// have is a bug in the compiler and panics.
#[derive(Debug)]
pub struct CpuArgs<'a> {
    pub(crate) range: (usize, usize),
    pub(crate) marker: std::marker::PhantomData<&'a mut [u8]>,
}
