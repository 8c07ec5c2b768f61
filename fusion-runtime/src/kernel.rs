//! The contract with generated code: plans, and the code of their kernels.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use fusion_compiler::KernelCode;
use fusion_compiler::ir::kernel::Kernel;
use fusion_compiler::ir::plan;

pub use crate::cpu_args::{CpuArgs, ScalarValue};
use crate::isa::Isa;

/// Number of parameters that most functions have at most: lists of arguments of this length need no allocation.
pub(crate) const PARAMS: usize = 24;

/// The code of a kernel for one target.
pub type Code = plan::Code<CpuCode>;
/// The plan of a compiled function.
pub type Plan = plan::Plan<Code>;
/// One launch of a kernel with its arguments.
pub type Launch = plan::Launch<Code>;

/// A plan as `fuse!` writes it: bytes that the first call decodes.
#[derive(Debug)]
pub struct StaticPlan {
    bytes: &'static [u8],
    codes: &'static [Code],
    plan: OnceLock<Plan>,
}

impl StaticPlan {
    /// Makes a static plan of encoded bytes, and of the codes that the bytes refer to by number.
    pub const fn new(bytes: &'static [u8], codes: &'static [Code]) -> StaticPlan {
        StaticPlan { bytes, codes, plan: OnceLock::new() }
    }
}

impl Deref for StaticPlan {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        let read =
            || plan::Plan::from_bytes(self.bytes).map_code(|_, code| self.codes[usize::from(code)].clone());
        self.plan.get_or_init(read)
    }
}

/// A CPU function, which runs items of a launch.
///
/// A call is unsafe because the processor must have the function's instructions.
pub type CpuFn = unsafe fn(&mut CpuArgs<'_>);

/// The CPU code of one launch.
#[derive(Clone, Debug)]
pub enum CpuCode {
    /// Versions of one function, best instruction set first. The last is for `Isa::Base`.
    Compiled(&'static [(Isa, CpuFn)]),
    /// A kernel compiled at run time, for a CPU with fused multiply-add. The tile interpreter runs it.
    Interpreted(Arc<Kernel>),
}

/// Converts a plan compiled at run time to the form of the executor, with interpreted CPU kernels.
pub fn interpreted(plan: plan::Plan<KernelCode>) -> Plan {
    plan.map_code(|_, code| match code {
        plan::Code::Ptx(text) => Code::Ptx(text),
        plan::Code::Wgsl(text) => Code::Wgsl(text),
        plan::Code::Cpu(code) => Code::Cpu(CpuCode::Interpreted(Arc::new(code.kernel))),
    })
}
