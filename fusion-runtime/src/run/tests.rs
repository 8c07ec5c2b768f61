use std::borrow::Cow::{Borrowed, Owned};

use fusion_compiler::ir::dim::DimExpr;
use fusion_compiler::ir::graph::Math;
use fusion_compiler::ir::plan::Summary;

use super::*;
use crate::device::Device;
use crate::shape::Shape;

fn plan(accesses: [Access; 2]) -> Plan {
    let zero = DimExpr::constant(0);
    let param = |(name, access)| {
        let kind = ParamKind::AnyShape { access };
        Param { name: Borrowed(name), dtype: DType::F32, kind }
    };
    let summary = Summary {
        ops: 0,
        unfused_bytes: zero,
        math: Math::Accurate,
        arrays: Owned(Vec::new()),
        groups: Owned(Vec::new()),
        boundaries: Owned(Vec::new()),
        programs: Owned(Vec::new()),
        others: Owned(Vec::new()),
    };
    Plan {
        name: Borrowed("f"),
        symbols: Owned(Vec::new()),
        params: ["p", "g"].into_iter().zip(accesses).map(param).collect(),
        nonempty: Owned(Vec::new()),
        splits: Owned(Vec::new()),
        concats: Owned(Vec::new()),
        outputs: Owned(Vec::new()),
        programs: Owned(Vec::new()),
        lacks: Owned(Vec::new()),
        summary,
    }
}

fn given(tensor: &mut Tensor<f32>, access: Access) -> Arg<'_> {
    match access {
        Access::Read => Arg::from(&*tensor),
        Access::Write | Access::ReadWrite => Arg::from(tensor),
    }
}

#[test]
fn overlap_of_what_is_written_is_an_alias() {
    let whole = Tensor::full(&Device::cpu(), 0.0_f32, [256]).unwrap();
    let other = Tensor::full(&Device::cpu(), 0.0_f32, [256]).unwrap();
    let check = |accesses: [Access; 2], of: &Tensor<f32>, start| {
        let (mut p, mut g) = (whole.part(0, Shape::from([32])), of.part(start, Shape::from([32])));
        let args = [given(&mut p, accesses[0]), given(&mut g, accesses[1])];
        check_alias(&plan(accesses), &args, &[])
    };
    let error = check([Access::ReadWrite, Access::Read], &whole, 28).unwrap_err();
    assert!(error.to_string().starts_with("`f`: `p` is written but shares memory with `g`"), "{error}");
    let error = check([Access::Read, Access::Write], &whole, 0).unwrap_err();
    assert!(error.to_string().starts_with("`f`: `g` is written but shares memory with `p`"), "{error}");
    // The second part starts at the end of the first.
    assert_eq!(check([Access::Write, Access::Read], &whole, 32), Ok(()));
    assert_eq!(check([Access::Read, Access::Read], &whole, 0), Ok(()));
    assert_eq!(check([Access::Write, Access::Write], &other, 0), Ok(()));
    let (x, mut nothing) = (whole.part(0, Shape::from([32])), whole.part(8, Shape::from([0])));
    let plan = plan([Access::Write, Access::Read]);
    assert_eq!(check_alias(&plan, &[Arg::from(&mut nothing), Arg::from(&x)], &[]), Ok(()));
}

#[test]
fn results_are_named_as_they_are_given() {
    let whole = Tensor::full(&Device::cpu(), 0.0_f32, [96]).unwrap();
    let [x, y, mut a, mut b] = [0, 32, 32, 64].map(|start| whole.part(start, Shape::from([32])));
    let (plan, args) = (plan([Access::Read; 2]), [Arg::from(&x), Arg::from(&y)]);
    let error = check_alias(&plan, &args, &[Arg::from(&mut a)]).unwrap_err();
    assert!(error.to_string().starts_with("`f`: `out` is written but shares memory with `g`"), "{error}");
    let error = check_alias(&plan, &args, &[Arg::from(&mut b), Arg::from(&mut a)]).unwrap_err();
    assert!(error.to_string().starts_with("`f`: `out_1` is written but shares memory with `g`"), "{error}");
    assert_eq!(check_alias(&plan, &args, &[Arg::from(&mut b)]), Ok(()));
}
