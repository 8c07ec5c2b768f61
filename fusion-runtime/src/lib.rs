//! Compile-time kernel fusion.
