//! Functions that programs link with and that are not simulated.

use super::code::Code;
use super::report;

/// Defines functions that answer `CUDA_ERROR_NOT_SUPPORTED`.
///
/// The functions declare no arguments. The caller cleans them up in the C calling conventions of every system
/// that CUDA runs on.
macro_rules! unsupported {
    ($($name:ident)*) => {
        /// Names of the functions of this module.
        pub(in crate::driver) const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(
            /// Unsupported function, which answers `CUDA_ERROR_NOT_SUPPORTED`.
            // SAFETY: only a program that asks for a CUDA driver refers to the name.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "names are NVIDIA's")]
            pub extern "C" fn $name() -> i32 {
                super::entry::always(stringify!($name), || {
                    report::say(concat!(stringify!($name), " is not simulated"));
                    Err(Code::NOT_SUPPORTED)
                })
            }
        )*
    };
}

unsupported! {
    cuArray3DCreate_v2 cuArray3DGetDescriptor_v2 cuArrayDestroy
    cuDestroyExternalMemory cuExternalMemoryGetMappedBuffer cuImportExternalMemory
    cuGraphAddKernelNode cuGraphCreate cuGraphDebugDotPrint cuGraphDestroy cuGraphGetEdges cuGraphGetNodes
    cuGraphKernelNodeGetParams cuGraphNodeGetType
    cuLinkAddData_v2 cuLinkComplete cuLinkCreate_v2 cuLinkDestroy
    cuMemcpyAtoH_v2 cuMemcpyHtoA_v2
    cuModuleLoadFatBinary
    cuSurfObjectCreate cuSurfObjectDestroy cuSurfObjectGetResourceDesc
    cuTexObjectCreate cuTexObjectDestroy cuTexObjectGetResourceDesc cuTexObjectGetResourceViewDesc
}
