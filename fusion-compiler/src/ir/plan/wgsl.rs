//! Lines of shaders that devices may leave out or replace.

/// What a text begins with that asks for subgroups. Not all who know them know this line.
pub const SUBGROUPS: &str = "enable subgroups;\n";
/// The declaration of the uniforms that a device with immediates may replace.
pub const UNIFORM_DECLARATION: &str = "@group(1) @binding(0) var<uniform> args: Args;";
/// What it is replaced by.
pub const IMMEDIATE_DECLARATION: &str = "var<immediate> args: Args;";
