//! Conditions of variants on calls and devices.

use serde::{Deserialize, Serialize};

use crate::ir::dim::DimExpr;

/// A condition that a variant has on a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Condition {
    /// The extent is a multiple of the number.
    Divides(DimExpr, i64),
    /// The extent is at most the number.
    AtMost(DimExpr, i64),
    /// The extent is at least the number.
    AtLeast(DimExpr, i64),
    /// The device can bind this many bytes of a buffer to a kernel at once.
    Binds(DimExpr),
    /// The device has this many bytes of shared memory for a block.
    Shares(DimExpr),
    /// The subgroups of the device have one size, and this number of threads is a multiple of the size.
    Subgroups(u32),
    /// The device has clusters of this many blocks.
    Clusters(u32),
    /// The device is an NVIDIA GPU of this compute capability or a later one; 80 is 8.0.
    Arch(u32),
}

/// The limits of a device that conditions compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of bytes of a buffer that a kernel can bind at once.
    pub binding_bytes: u64,
    /// Maximum number of bytes of shared memory of a block.
    pub shared_bytes: u64,
    /// Number of threads in each subgroup; 0 without subgroups, or with subgroups of several sizes.
    pub subgroup: u32,
    /// Maximum number of blocks in a cluster; 1 without clusters.
    pub cluster: u32,
    /// Compute capability of an NVIDIA GPU, where 80 is 8.0; 0 for other devices.
    pub arch: u32,
}

impl Condition {
    /// Returns the value of the condition, if the value depends on neither extents nor the device.
    pub fn known(&self) -> Option<bool> {
        match self {
            Condition::Divides(extent, divisor) => match extent.as_const() {
                Some(extent) => Some(extent % divisor == 0),
                None => (extent.factor() % divisor == 0).then_some(true),
            },
            Condition::AtMost(extent, max) => extent.as_const().map(|x| x <= *max),
            Condition::AtLeast(extent, min) => extent.as_const().map(|x| x >= *min),
            Condition::Binds(_)
            | Condition::Shares(_)
            | Condition::Subgroups(_)
            | Condition::Clusters(_)
            | Condition::Arch(_) => None,
        }
    }

    /// Returns true if the condition follows from the conditions `when`.
    pub fn follows(&self, when: &[Condition]) -> bool {
        let enough = |given: &DimExpr, asked: &DimExpr| match (given.as_const(), asked.as_const()) {
            (Some(given), Some(asked)) => given >= asked,
            _ => false,
        };
        when.iter().any(|given| match (given, self) {
            (Condition::AtMost(extent, given), Condition::AtMost(of, most)) => extent == of && given <= most,
            (Condition::AtLeast(extent, given), Condition::AtLeast(of, least)) => {
                extent == of && given >= least
            }
            (Condition::Divides(extent, given), Condition::Divides(of, divisor)) => {
                extent == of && given % divisor == 0
            }
            (Condition::Arch(given), Condition::Arch(asked)) => given >= asked,
            (Condition::Binds(given), Condition::Binds(asked))
            | (Condition::Shares(given), Condition::Shares(asked)) => given == asked || enough(given, asked),
            (given, asked) => given == asked,
        })
    }

    /// Returns true if the condition is true for these extents on a device with these limits.
    pub fn holds(&self, symbols: &[i64], limits: &Limits) -> bool {
        let within = |bytes: &DimExpr, most: u64| {
            let bytes = bytes.eval(symbols).and_then(|bytes| u64::try_from(bytes).ok());
            bytes.is_some_and(|bytes| bytes <= most)
        };
        match self {
            Condition::Divides(extent, divisor) => extent.eval(symbols).is_some_and(|x| x % divisor == 0),
            Condition::AtMost(extent, max) => extent.eval(symbols).is_some_and(|x| x <= *max),
            Condition::AtLeast(extent, min) => extent.eval(symbols).is_some_and(|x| x >= *min),
            Condition::Binds(bytes) => within(bytes, limits.binding_bytes),
            Condition::Shares(bytes) => within(bytes, limits.shared_bytes),
            Condition::Subgroups(threads) => limits.subgroup > 0 && threads % limits.subgroup == 0,
            Condition::Clusters(blocks) => *blocks <= limits.cluster,
            Condition::Arch(arch) => *arch <= limits.arch,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_asks_for_less_follows() {
        let [n, d] = [0, 1].map(DimExpr::sym);
        let bytes = |bytes| Condition::Shares(DimExpr::constant(bytes));
        let pairs = [
            (Condition::AtMost(n.clone(), 4), Condition::AtMost(n.clone(), 5)),
            (Condition::AtLeast(n.clone(), 5), Condition::AtLeast(n.clone(), 4)),
            (Condition::Divides(n.clone(), 8), Condition::Divides(n.clone(), 4)),
            (bytes(64), bytes(48)),
        ];
        for (given, asked) in pairs {
            assert!(asked.follows(&[Condition::Clusters(8), given.clone()]), "{asked:?} of {given:?}");
            assert!(!given.follows(std::slice::from_ref(&asked)), "{given:?} of {asked:?}");
        }
        let same = Condition::Shares(n.clone());
        assert!(same.follows(std::slice::from_ref(&same)) && !same.follows(&[bytes(1 << 20)]));
        assert!(!Condition::AtMost(d.clone(), 5).follows(&[Condition::AtMost(n.clone(), 4)]));
        assert!(!Condition::AtLeast(d.clone(), 4).follows(&[Condition::AtLeast(n.clone(), 5)]));
        assert!(!Condition::Divides(d, 4).follows(&[Condition::Divides(n, 8)]));
        assert!(!bytes(4).follows(&[Condition::Binds(DimExpr::constant(8))]) && !bytes(4).follows(&[]));
    }

    #[test]
    fn a_binding_holds_at_most_its_limit() {
        let bytes = Condition::Binds(DimExpr::sym(0) * DimExpr::constant(4));
        let limits =
            |binding_bytes| Limits { binding_bytes, shared_bytes: 0, subgroup: 32, cluster: 1, arch: 75 };
        assert!(bytes.holds(&[25], &limits(100)) && !bytes.holds(&[26], &limits(100)));
        assert!(!bytes.holds(&[i64::MAX], &limits(u64::MAX)), "what overflows fits nowhere");
        let shared = Condition::Shares(DimExpr::sym(0));
        assert!(shared.holds(&[0], &limits(0)) && !shared.holds(&[1], &limits(9)));
        let subgroups =
            |threads, subgroup| Condition::Subgroups(threads).holds(&[], &Limits { subgroup, ..limits(0) });
        let clusters =
            |blocks, cluster| Condition::Clusters(blocks).holds(&[], &Limits { cluster, ..limits(0) });
        let arch = |least, arch| Condition::Arch(least).holds(&[], &Limits { arch, ..limits(0) });
        assert_eq!((arch(80, 75), arch(80, 80), arch(80, 90)), (false, true, true));
        assert!(clusters(8, 8) && clusters(2, 8) && !clusters(8, 1));
        assert!(subgroups(64, 32) && subgroups(64, 64) && !subgroups(64, 128) && !subgroups(64, 0));
    }
}
