//! List of all functions of the library.

use super::{alloc, code, context, copy, device, event, launch, module, occupancy, stream, unsupported};

const ALL: [&[&str]; 11] = [
    alloc::NAMES,
    code::NAMES,
    context::NAMES,
    copy::NAMES,
    device::NAMES,
    event::NAMES,
    launch::NAMES,
    module::NAMES,
    occupancy::NAMES,
    stream::NAMES,
    unsupported::NAMES,
];

/// Returns true if the library has a function of this name.
pub(super) fn is_known(name: &str) -> bool {
    ALL.iter().any(|names| names.contains(&name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Names that `cust` 0.3.2 refers to, from a search for `cuda::cu` in its source, and the runtime's own
    /// declarations.
    #[test]
    fn all_that_programs_refer_to_is_there() {
        let names: Vec<_> = ALL.iter().flat_map(|names| names.iter()).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "a name comes twice");
        for name in include_str!("cust.txt").split_whitespace() {
            assert!(is_known(name), "{name}");
        }
        let runtime = include_str!("../../../../fusion-runtime/src/device/cuda/driver.rs");
        let declared = runtime.lines().filter_map(|line| {
            let name = line.trim().trim_start_matches("pub(super) ").strip_prefix("fn cu")?;
            name.split('(').next()
        });
        let declared: Vec<_> = declared.map(|name| format!("cu{name}")).collect();
        assert!(declared.len() > 20, "{declared:?}");
        for name in declared {
            assert!(is_known(&name), "{name}");
        }
    }
}
