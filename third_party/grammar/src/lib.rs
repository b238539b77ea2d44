// Keeps every llg_* symbol of llguidance's C interface in the static library.
pub use llguidance::ffi::*;
