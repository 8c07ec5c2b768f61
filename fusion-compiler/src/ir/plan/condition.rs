//! What variants ask of calls and devices.

use serde::{Deserialize, Serialize};

use crate::ir::dim::DimExpr;

/// What a variant asks of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Condition {
    /// The extent is a multiple of the number.
    Divides(DimExpr, i64),
    /// The extent is at most the number.
    AtMost(DimExpr, i64),
    /// The extent is at least the number.
    AtLeast(DimExpr, i64),
    /// A kernel of the device sees this many bytes of a buffer at once.
    Binds(DimExpr),
    /// The device has this many bytes of memory that the threads of a block share.
    Shares(DimExpr),
    /// The subgroups of the device are all of one size, and blocks of this many threads are some of them.
    Subgroups(u32),
    /// The device has clusters of this many blocks.
    Clusters(u32),
}

/// What a device has of what variants ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most storage buffers that a kernel can bind.
    pub buffers: u32,
    /// Most bytes of a buffer that a kernel sees at once.
    pub binding_bytes: u64,
    /// Most bytes of memory that the threads of a block share.
    pub shared_bytes: u64,
    /// Threads of each subgroup; 0 where there are none, or of several sizes.
    pub subgroup: u32,
    /// Most blocks of a cluster, which share their memory; 1 where there are no clusters.
    pub cluster: u32,
}

impl Condition {
    /// Whether it holds, if that depends on neither extents nor device.
    pub fn known(&self) -> Option<bool> {
        match self {
            Condition::Divides(extent, divisor) => match extent.as_const() {
                Some(extent) => Some(extent % divisor == 0),
                None => (extent.factor() % divisor == 0).then_some(true),
            },
            Condition::AtMost(extent, max) => extent.as_const().map(|x| x <= *max),
            Condition::AtLeast(extent, min) => extent.as_const().map(|x| x >= *min),
            Condition::Binds(_) | Condition::Shares(_) | Condition::Subgroups(_) | Condition::Clusters(_) => {
                None
            }
        }
    }

    /// Whether it holds for these extents, on a device with these limits.
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_holds_at_most_its_limit() {
        let bytes = Condition::Binds(DimExpr::sym(0) * DimExpr::constant(4));
        let limits =
            |binding_bytes| Limits { buffers: 8, binding_bytes, shared_bytes: 0, subgroup: 32, cluster: 1 };
        assert!(bytes.holds(&[25], &limits(100)) && !bytes.holds(&[26], &limits(100)));
        assert!(!bytes.holds(&[i64::MAX], &limits(u64::MAX)), "what overflows fits nowhere");
        let shared = Condition::Shares(DimExpr::sym(0));
        assert!(shared.holds(&[0], &limits(0)) && !shared.holds(&[1], &limits(9)));
        let subgroups =
            |threads, subgroup| Condition::Subgroups(threads).holds(&[], &Limits { subgroup, ..limits(0) });
        let clusters =
            |blocks, cluster| Condition::Clusters(blocks).holds(&[], &Limits { cluster, ..limits(0) });
        assert!(clusters(8, 8) && clusters(2, 8) && !clusters(8, 1));
        assert!(subgroups(64, 32) && subgroups(64, 64) && !subgroups(64, 128) && !subgroups(64, 0));
    }
}
