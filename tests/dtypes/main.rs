//! What tensors store: every dtype on every device, against what Rust and `half` make of the same elements.

#[path = "../devices/mod.rs"]
mod devices;

mod bytes;
mod casts;
mod double;
mod generic;
mod ops;
mod strict;
