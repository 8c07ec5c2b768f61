//! Tests of matrices in the registers of a warp, and of asynchronous copies.

use super::*;
use crate::ir::kernel::{AsyncCopy, Shared, SharedId, SharedLen};

const WORDS: Type = Type { dtype: DType::U32, lanes: Lanes::Const(4) };
const PAIR: Type = Type { dtype: DType::U32, lanes: Lanes::Const(2) };
const SUMS: Type = Type { dtype: DType::F32, lanes: Lanes::Const(4) };

/// Returns a kernel that copies halves to shared memory and multiplies matrices of them. `change` may replace the
/// copy, the type of the left matrices and the dtype of the product.
fn product(change: impl Fn(&mut AsyncCopy, &mut Type, &mut DType)) -> Result<(), String> {
    let (mut types, mut uniforms, mut body) = (Vec::new(), Vec::new(), Vec::new());
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut body };
    let (zero, start) = (b.index(0), b.f32(0.0));
    let mask = b.apply(Op::Eq, &[zero, zero]);
    let at = Address::new(BufferId(0), zero);
    let mut copy = AsyncCopy::Start(at, SharedId(0), zero, mask);
    let (mut of_left, mut dtype) = (WORDS, DType::F16);
    change(&mut copy, &mut of_left, &mut dtype);
    b.body.extend([copy, AsyncCopy::Commit, AsyncCopy::Wait(0)].map(Stmt::AsyncCopy));
    let left = b.bind(of_left, Expr::LoadMatrices(SharedId(0), zero, false));
    let word = b.bind(Type { lanes: Lanes::ONE, ..WORDS }, Expr::Lane(left, 0));
    let right = b.bind(PAIR, Expr::Pack([word, word].into_iter().collect()));
    let sum = b.splat(start, Lanes::Const(4));
    b.bind(SUMS, Expr::MatrixProduct(dtype, sum, left, right));
    let halves = |name: &str| Buffer::new(name, DType::F16, Access::Read);
    let shared = vec![Shared { dtype: DType::F16, len: SharedLen::Fixed(256) }];
    let buffers = vec![halves("a"), Buffer::new("out", DType::F32, Access::Write)];
    kernel(&Kernel { buffers, uniforms, types, body, shared, ..Kernel::new("sample", IndexWidth::Bits32) })
}

#[test]
fn matrices_and_copies_of_halves_fit() {
    assert_eq!(product(|_, _, _| {}), Ok(()));
}

#[test]
fn refuses_matrices_and_copies_that_do_not_fit() {
    let error = product(|_, _, dtype| *dtype = DType::F64).unwrap_err();
    assert!(error.contains("is no matrix"), "{error}");
    let error = product(|_, left, _| *left = SUMS).unwrap_err();
    assert!(error.contains("is f32x4, not u32x4"), "{error}");
    // Copies of 16 bytes alone have elements of 2 bytes.
    let unaligned = |copy: &mut AsyncCopy| {
        if let AsyncCopy::Start(at, ..) = copy {
            at.aligned = false;
        }
    };
    let error = product(|copy, _, _| unaligned(copy)).unwrap_err();
    assert!(error.contains("that no instruction makes"), "{error}");
    let other = |copy: &mut AsyncCopy| {
        if let AsyncCopy::Start(at, ..) = copy {
            at.buffer = BufferId(1);
        }
    };
    let error = product(|copy, _, _| other(copy)).unwrap_err();
    assert!(error.contains("does not fit buffer out"), "{error}");
}
