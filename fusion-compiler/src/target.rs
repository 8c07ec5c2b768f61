//! What the targets can do, as far as the compiler asks.
//!
//! Invariant: schedules and fusion see only `TargetFacts`, never which target it is.

use crate::ir::kernel::Lanes;
pub use crate::ir::ops::Dialect;
use crate::ir::plan::Target;

/// What fusion and schedules ask of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetFacts {
    /// How a thread works on several elements at once.
    pub vector: Vectors,
    /// Most buffers that a kernel can bind.
    pub buffers_max: usize,
    /// Whether positions must be rebased to the binding of their buffer.
    pub rebased: bool,
    /// Whether a tensor can have 2³¹ elements or more.
    pub wide: bool,
}

/// How a thread works on several elements at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vectors {
    /// By values of this many lanes.
    Lanes(u8),
    /// By loops that the target's compiler vectorises, over runs of at most this many elements.
    Loops(u32),
}

impl Vectors {
    /// The lanes of a vectorised value.
    pub fn lanes(self) -> Lanes {
        match self {
            Vectors::Lanes(lanes) => Lanes::Const(lanes),
            Vectors::Loops(_) => Lanes::Loop,
        }
    }
}

/// The facts of a target.
pub fn facts(target: Target) -> TargetFacts {
    match target {
        Target::Ptx => TargetFacts { vector: Vectors::Lanes(4), buffers_max: 64, rebased: false, wide: true },
        // Eight storage buffers are what every WebGPU device has.
        Target::Wgsl => TargetFacts { vector: Vectors::Lanes(4), buffers_max: 8, rebased: true, wide: false },
        // Sixteen kilobytes of each f32 array: a handful of arrays stays in the first two caches.
        Target::Cpu => {
            TargetFacts { vector: Vectors::Loops(4096), buffers_max: 64, rebased: false, wide: false }
        }
    }
}
