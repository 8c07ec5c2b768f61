//! What runs a kernel of the CPU: its loops, compiled once for each instruction set, as a constant that lists them.
//!
//! They are text beside the kernel, and no macro of the runtime: what a macro makes is compiled again whenever the file of its
//! caller changes (`host.rs`).

use crate::CpuKernel;

/// The name of the constant that lists what runs a kernel.
pub(super) fn name(kernel: &str) -> String {
    kernel.to_uppercase()
}

/// The functions of a kernel, of which `Avx2`, `Avx512`, `Base`, `CpuArgs`, `CpuFn` and `Isa` must be in scope. The widest vectors do
/// not pay on every processor that has them where loops wait for memory.
pub(super) fn text(kernel: &str, of: &CpuKernel) -> String {
    let (name, widest) = (name(kernel), if of.is_memory_bound { "Avx512" } else { "Avx512DoublePumped" });
    format!(
        r#"
pub(super) const {name}: &[(Isa, CpuFn)] = {{
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    fn avx512(args: &mut CpuArgs<'_>) {{
        {kernel}(Avx512::new(), args)
    }}
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn avx2(args: &mut CpuArgs<'_>) {{
        {kernel}(Avx2::new(), args)
    }}
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "sse2"))]
    fn base(args: &mut CpuArgs<'_>) {{
        {kernel}(Base::new(), args)
    }}
    &[
        #[cfg(target_arch = "x86_64")]
        (Isa::{widest}, avx512),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, avx2),
        (Isa::Base, base),
    ]
}};
"#
    )
}
