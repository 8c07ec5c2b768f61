//! Lines of WGSL shaders that the runtime may remove or replace.

/// First line of a shader that uses subgroups. Some implementations with subgroups do not accept the line.
pub const SUBGROUPS: &str = "enable subgroups;\n";
/// Declaration of the uniforms, which the runtime replaces on devices with immediates.
pub const UNIFORM_DECLARATION: &str = "@group(1) @binding(0) var<uniform> args: Args;";
/// Replacement of `UNIFORM_DECLARATION` on devices with immediates.
pub const IMMEDIATE_DECLARATION: &str = "var<immediate> args: Args;";
