//! What must hold of the IRs between passes.
