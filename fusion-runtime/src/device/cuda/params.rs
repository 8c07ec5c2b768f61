//! The parameters of a launch, in the layout that PTX kernels declare.
//!
//! Invariant: one slot per `.param`, in the order of `plan::Launch`: first the addresses of the buffers, then
//! the uniforms. A value is at the start of its slot, with the size that the kernel declares.

use std::ffi::c_void;

use fusion_compiler::ir::kernel::IndexWidth;
use fusion_compiler::ir::plan::UniformArg;
use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::kernel::{Launch, PARAMS, ScalarValue};

/// The storage of one parameter, which uses 4 or 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(8))]
pub(super) struct ParamStorage([u8; 8]);

impl ParamStorage {
    fn wide(value: u64) -> ParamStorage {
        ParamStorage(value.to_ne_bytes())
    }

    fn word(value: u32) -> ParamStorage {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&value.to_ne_bytes());
        ParamStorage(bytes)
    }
}

/// Values that determine the parameters of a launch.
pub(super) struct ParamValues<'a> {
    /// Addresses of the buffers' first elements.
    pub(super) addresses: &'a [u64],
    /// Extents, by symbol.
    pub(super) symbols: &'a [i64],
    /// Scalars, by position in the plan's parameters.
    pub(super) scalars: &'a [Option<ScalarValue>],
    /// Number of elements of the space, all of which this launch covers.
    pub(super) elements: u64,
}

/// Returns the number of elements of a launch's space.
pub(super) fn elements(launch: &Launch, symbols: &[i64]) -> Result<u64> {
    let elements = launch.space.elements(symbols).and_then(|elements| u64::try_from(elements).ok());
    elements.ok_or_else(|| bad(launch, "has a space without a size"))
}

/// Returns the number of elements that a loop traverses for each element of the space.
pub(super) fn each(launch: &Launch, symbols: &[i64]) -> Result<u64> {
    let each = launch.space.each.eval(symbols).and_then(|each| u64::try_from(each).ok());
    each.ok_or_else(|| bad(launch, "has elements without a size"))
}

/// Returns the number of blocks of a cluster.
pub(super) fn cluster(launch: &Launch, symbols: &[i64]) -> Result<u32> {
    let blocks = launch.cluster.eval(symbols).and_then(|blocks| u32::try_from(blocks).ok());
    blocks.filter(|&blocks| blocks > 0).ok_or_else(|| bad(launch, "has clusters without a size"))
}

/// Returns the bytes of shared memory for a block of this many threads.
pub(super) fn shared_bytes(launch: &Launch, symbols: &[i64], block: u32) -> Result<u32> {
    let bytes = launch.row_memory.eval(symbols).and_then(|bytes| u32::try_from(bytes).ok());
    let bytes = bytes.and_then(|bytes| bytes.checked_mul((block / launch.team.max(1)).max(1)));
    bytes.ok_or_else(|| bad(launch, "wants more shared memory than there is"))
}

/// Returns the slots of a launch. An error means that the compiler did not make the plan.
pub(super) fn pack(launch: &Launch, values: &ParamValues<'_>) -> Result<SmallVec<[ParamStorage; PARAMS]>> {
    let mut slots: SmallVec<_> =
        values.addresses.iter().map(|&address| ParamStorage::wide(address)).collect();
    for uniform in launch.uniforms.iter() {
        slots.push(slot(launch, uniform, values)?);
    }
    Ok(slots)
}

/// Returns pointers to the slots, in the form that the driver takes. The pointers are valid as long as the
/// slots.
pub(super) fn pointers(slots: &mut [ParamStorage]) -> SmallVec<[*mut c_void; PARAMS]> {
    slots.iter_mut().map(|slot| (&raw mut *slot).cast()).collect()
}

fn slot(launch: &Launch, uniform: &UniformArg, values: &ParamValues<'_>) -> Result<ParamStorage> {
    match uniform {
        UniformArg::Extent(extent) => {
            let value = extent.eval(values.symbols).and_then(|value| u64::try_from(value).ok());
            position(launch, value.ok_or_else(|| bad(launch, "has an extent without a value"))?)
        }
        UniformArg::Start => position(launch, 0),
        UniformArg::End => position(launch, values.elements),
        UniformArg::Scalar(param) => match values.scalars.get(usize::from(*param)).copied().flatten() {
            Some(value) => Ok(scalar(value)),
            None => Err(bad(launch, "wants a scalar where there is none")),
        },
        UniformArg::Offset(_) | UniformArg::Window(_) => {
            Err(bad(launch, "wants the offset or the size of a WGSL binding"))
        }
    }
}

fn position(launch: &Launch, value: u64) -> Result<ParamStorage> {
    match launch.index {
        IndexWidth::Bits64 => Ok(ParamStorage::wide(value)),
        IndexWidth::Bits32 => {
            let word = u32::try_from(value);
            word.map(ParamStorage::word).map_err(|_| bad(launch, "counts with 32 bits what needs more"))
        }
    }
}

fn scalar(value: ScalarValue) -> ParamStorage {
    match value {
        ScalarValue::F32(x) => ParamStorage::word(x.to_bits()),
        ScalarValue::F64(x) => ParamStorage::wide(x.to_bits()),
        ScalarValue::I32(x) => ParamStorage::word(x.cast_unsigned()),
        ScalarValue::U32(x) => ParamStorage::word(x),
        ScalarValue::Bool(x) => ParamStorage::word(u32::from(x)),
    }
}

fn bad(launch: &Launch, what: &str) -> Error {
    Error::Argument { function: launch.kernel.clone().into_owned(), what: format!("the kernel {what}") }
}

#[cfg(test)]
mod tests {
    use fusion_compiler::ir::dim::DimExpr;
    use fusion_compiler::ir::plan::{Code, LaunchSpec, Space};

    use super::*;

    fn launch(index: IndexWidth, uniforms: Vec<UniformArg>) -> Launch {
        let one = DimExpr::constant(1);
        let space = Space { rows: one.clone(), cols: one.clone(), grain: 1, grain_min: 1, each: one };
        let spec = LaunchSpec { uniforms: uniforms.into(), ..LaunchSpec::new("k", index, space) };
        Launch { code: Code::Ptx("".into()), spec }
    }

    const SCALARS: [Option<ScalarValue>; 5] = [
        None,
        Some(ScalarValue::F32(-2.0)),
        Some(ScalarValue::I32(-2)),
        Some(ScalarValue::U32(7)),
        Some(ScalarValue::Bool(true)),
    ];

    fn check(index: IndexWidth, uniforms: Vec<UniformArg>, expect: &[(usize, u64)]) {
        let values =
            ParamValues { addresses: &[0x7f00_0000_1000], symbols: &[5], scalars: &SCALARS, elements: 40 };
        let slots = pack(&launch(index, uniforms), &values).unwrap();
        assert_eq!(slots[0], ParamStorage(0x7f00_0000_1000_u64.to_ne_bytes()));
        for (slot, (size, value)) in slots[1..].iter().zip(expect) {
            assert_eq!(slot.0[..*size], value.to_le_bytes()[..*size]);
        }
        assert_eq!(slots.len(), 1 + expect.len());
    }

    #[test]
    fn positions_have_the_width_of_the_kernel() {
        let uniforms = || vec![UniformArg::Extent(DimExpr::sym(0)), UniformArg::Start, UniformArg::End];
        check(IndexWidth::Bits32, uniforms(), &[(4, 5), (4, 0), (4, 40)]);
        check(IndexWidth::Bits64, uniforms(), &[(8, 5), (8, 0), (8, 40)]);
    }

    #[test]
    fn scalars_are_words_of_their_bits() {
        let uniforms = (1..5).map(UniformArg::Scalar).collect();
        check(IndexWidth::Bits64, uniforms, &[(4, 0xc000_0000), (4, 0xffff_fffe), (4, 7), (4, 1)]);
    }

    #[test]
    fn what_the_compiler_never_makes_is_an_error() {
        let values =
            ParamValues { addresses: &[], symbols: &[1 << 40], scalars: &SCALARS, elements: 1 << 40 };
        for uniform in [
            UniformArg::Extent(DimExpr::sym(0)),
            UniformArg::Extent(DimExpr::sym(1)),
            UniformArg::Extent(DimExpr::constant(-1)),
            UniformArg::End,
            UniformArg::Scalar(0),
            UniformArg::Scalar(9),
            UniformArg::Offset(0),
            UniformArg::Window(0),
        ] {
            let result = pack(&launch(IndexWidth::Bits32, vec![uniform.clone()]), &values);
            assert!(matches!(result, Err(Error::Argument { .. })), "{uniform:?}: {result:?}");
        }
    }

    #[test]
    fn a_space_without_a_size_is_an_error() {
        let mut launch = launch(IndexWidth::Bits32, Vec::new());
        launch.space.cols = DimExpr::sym(0);
        assert_eq!(elements(&launch, &[7]), Ok(7));
        assert!(matches!(elements(&launch, &[-7]), Err(Error::Argument { .. })));
        assert!(matches!(elements(&launch, &[]), Err(Error::Argument { .. })));
    }

    #[test]
    fn pointers_lead_to_the_slots() {
        let mut slots = [ParamStorage::word(3), ParamStorage::wide(u64::MAX)];
        let pointers = pointers(&mut slots);
        // SAFETY: the pointers refer to the slots, which are alive and aligned.
        let (first, second) = unsafe { (*pointers[0].cast::<u32>(), *pointers[1].cast::<u64>()) };
        assert_eq!((first, second), (3, u64::MAX));
    }
}
