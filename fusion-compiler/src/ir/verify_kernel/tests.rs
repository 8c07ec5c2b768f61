//! Tests of the verifier: each breaks a valid kernel in one place and expects an error.

use smallvec::smallvec;

use super::*;
use crate::ir::kernel::{Buffer, BufferId, Builder, IndexWidth, LoopKind, Uniform, UniformArg, UniformId};

mod matrices;
mod tiles;
mod together;

const F32: Type = Type { dtype: DType::F32, lanes: Lanes::ONE };
const F32X4: Type = Type { dtype: DType::F32, lanes: Lanes::Const(4) };
const F32S: Type = Type { dtype: DType::F32, lanes: Lanes::Loop };

// The values of the sample in the order of their definitions.
const N: Value = Value(0);
const ZERO: Value = Value(1);
const HALF: Value = Value(2);
const I: Value = Value(3);
const INSIDE: Value = Value(4);
const X: Value = Value(5);
const SUM: Value = Value(6);
const BITS: Value = Value(7);
const FOUR: Value = Value(8);
const LAST: Value = Value(9);
const PACKED: Value = Value(10);
const RUN: Value = Value(11);
const HALVES: Value = Value(12);
const PICKED: Value = Value(14);

const A: BufferId = BufferId(0);
const OUT: BufferId = BufferId(1);

/// Returns a kernel with a conditional in a loop, and a vector loop.
fn sample() -> Kernel {
    let buffer = |name: &str, access| Buffer::new(name, DType::F32, access);
    let buffers = vec![buffer("a", Access::Read), buffer("out", Access::Write)];
    let (mut types, mut uniforms, mut top) = (Vec::new(), Vec::new(), Vec::new());
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut top };
    let n = b.uniform(Uniform { name: String::from("n"), dtype: DType::Index, arg: UniformArg::End });
    let (zero, half) = (b.index(0), b.f32(0.5));
    let i = b.declare(INDEX);

    let (mut looped, mut conditional, mut vector) = (Vec::new(), Vec::new(), Vec::new());
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut looped };
    let inside = b.apply(Op::Lt, &[i, n]);
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut conditional };
    let x = b.bind(F32, Expr::Load(Address::new(A, i)));
    let sum = b.apply(Op::Add, &[x, half]);
    b.bitcast(sum, DType::I32);
    let four = b.bind(F32X4, Expr::Load(Address { stride: 2, phase: 1, ..Address::new(A, i) }));
    let last = b.bind(F32, Expr::Lane(four, 3));
    b.bind(F32X4, Expr::Pack(smallvec![x, sum, last, half]));
    conditional.push(Stmt::Store(Address::new(OUT, i), sum));
    looped.push(Stmt::If { cond: inside, body: conditional });
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut vector };
    let run = b.bind(F32S, Expr::Load(Address::new(A, zero)));
    let halves = b.splat(half, Lanes::Loop);
    let positive = b.apply(Op::Gt, &[run, halves]);
    let static_index = b.apply(Op::Select, &[positive, run, halves]);
    vector.push(Stmt::Store(Address::new(OUT, zero), static_index));

    top.push(Stmt::Loop {
        var: i,
        kind: LoopKind::Grid,
        start: zero,
        end: n,
        step: n,
        carried: vec![],
        body: looped,
    });
    top.push(Stmt::Vector { len: n, body: vector, folds: vec![] });
    Kernel { buffers, uniforms, types, body: top, ..Kernel::new("sample", IndexWidth::Bits32) }
}

/// Returns the expression that defines a value of the sample.
fn maker(kernel: &mut Kernel, value: Value) -> &mut Expr {
    find(&mut kernel.body, value).expect("the sample makes the value")
}

fn find(body: &mut [Stmt], value: Value) -> Option<&mut Expr> {
    body.iter_mut().find_map(|stmt| match stmt {
        Stmt::Let(made, expr) => (*made == value).then_some(expr),
        Stmt::Loop { body, .. } | Stmt::Vector { body, .. } | Stmt::If { body, .. } => find(body, value),
        _ => None,
    })
}

/// Returns the address of a load of the sample.
fn load(kernel: &mut Kernel, value: Value) -> &mut Address {
    match maker(kernel, value) {
        Expr::Load(at) => at,
        other => panic!("{other:?} is no load"),
    }
}

type Spoil = fn(&mut Kernel);

fn check(cases: &[(Spoil, &str)]) {
    check_of(sample, cases);
}

fn check_of(sample: fn() -> Kernel, cases: &[(Spoil, &str)]) {
    assert_eq!(kernel(&sample()), Ok(()));
    for (spoil, expect) in cases {
        let mut spoilt = sample();
        spoil(&mut spoilt);
        let error = kernel(&spoilt).expect_err(expect);
        assert_eq!(error.split_once(" in\n").map(|(what, _)| what), Some(*expect), "{spoilt}");
    }
}

#[test]
fn refuses_values_that_are_not_there() {
    check(&[
        (|k| k.body.swap(0, 3), "%1 is used where it is not defined"),
        (|k| k.body.insert(4, Stmt::Let(SUM, Expr::Splat(X))), "%5 is used where it is not defined"),
        (|k| k.body.insert(4, Stmt::Store(Address::new(OUT, I), HALF)), "%3 is used where it is not defined"),
        (|k| k.body.insert(1, Stmt::Let(N, Expr::Uniform(UniformId(0)))), "%0 is defined twice"),
        (
            |k| *maker(k, SUM) = Expr::Apply(Op::Add, smallvec![X, Value(99)]),
            "%99 is used where it is not defined",
        ),
        (|k| k.body.insert(1, Stmt::Let(Value(99), Expr::Splat(N))), "%99 has no type"),
        (|k| *maker(k, N) = Expr::Uniform(UniformId(1)), "there is no uniform 1"),
        (|k| load(k, X).buffer = BufferId(7), "there is no buffer 7"),
        (
            |k| k.body.insert(3, Stmt::Let(RUN, Expr::Splat(HALF))),
            "%11 has the lanes of a loop outside of one",
        ),
    ]);
}

#[test]
fn refuses_statements_of_other_types() {
    check(&[
        (|k| wrap(k, |body| Stmt::Vector { len: N, body, folds: vec![] }), "a vector loop within another"),
        (|k| wrap(k, |body| Stmt::Vector { len: HALF, body, folds: vec![] }), "%2 is f32, not index"),
        (|k| wrap(k, |body| Stmt::If { cond: N, body }), "%0 is index, not bool"),
        (
            |k| {
                wrap(k, |body| Stmt::Loop {
                    var: I,
                    kind: LoopKind::Serial,
                    start: ZERO,
                    end: HALF,
                    step: N,
                    carried: vec![],
                    body,
                })
            },
            "%2 is f32, not index",
        ),
        (|k| k.types[3] = F32, "%3 is f32, not index"),
    ]);
}

/// Puts the vector loop of the sample into a statement.
fn wrap(kernel: &mut Kernel, outer: impl FnOnce(Vec<Stmt>) -> Stmt) {
    let vector = kernel.body.pop().expect("the sample ends with its vector loop");
    kernel.body.push(outer(vec![vector]));
}

#[test]
fn refuses_expressions_of_other_types() {
    check(&[
        (|k| k.types[0] = F32, "%0 is f32, not index"),
        (|k| k.types[2] = F32X4, "%2 is f32x4, not f32"),
        (|k| *maker(k, HALF) = Expr::Builtin(Builtin::LaneIndex), "%2 is f32, not index"),
        (|k| *maker(k, HALF) = Expr::Builtin(Builtin::GridSize), "%2 is f32, not index"),
        (|k| *maker(k, HALVES) = Expr::Builtin(Builtin::LaneIndex), "%12 is f32x*, not indexx*"),
        (|k| *maker(k, HALVES) = Expr::Cast(HALF), "%2 is f32, not f32x*"),
        (|k| *maker(k, HALVES) = Expr::Splat(N), "%0 is index, not f32"),
        (|k| *maker(k, HALVES) = Expr::Splat(RUN), "%11 is f32x*, not f32"),
        (|k| *maker(k, BITS) = Expr::Bitcast(I), "index and i32 have not the same bits"),
        (|k| k.types[7].lanes = Lanes::Const(2), "f32 and i32x2 have not the same bits"),
        (|k| *maker(k, PACKED) = Expr::Pack(smallvec![X, SUM, LAST]), "3 values make no f32x4"),
        (|k| *maker(k, PACKED) = Expr::Pack(smallvec![X, SUM, LAST, I]), "%3 is index, not f32"),
        (|k| *maker(k, LAST) = Expr::Lane(FOUR, 4), "%8 has no lane 4"),
        (|k| *maker(k, PICKED) = Expr::Lane(RUN, 0), "%11 has no lane 0"),
    ]);
}

#[test]
fn refuses_operations_that_the_table_lacks() {
    check(&[
        (|k| *maker(k, SUM) = Expr::Apply(Op::Add, smallvec![X]), "Add of [F32] does not give f32"),
        (|k| *maker(k, SUM) = Expr::Apply(Op::Add, smallvec![X, I]), "Add of [F32, Index] does not give f32"),
        (|k| *maker(k, SUM) = Expr::Apply(Op::And, smallvec![X, X]), "And of [F32, F32] does not give f32"),
        (|k| *maker(k, SUM) = Expr::Apply(Op::Lt, smallvec![X, X]), "Lt of [F32, F32] does not give f32"),
        (
            |k| *maker(k, HALVES) = Expr::Apply(Op::Add, smallvec![RUN, HALF]),
            "Add of [F32, F32] does not give f32x*",
        ),
        (
            |k| *maker(k, PICKED) = Expr::Apply(Op::Select, smallvec![RUN, RUN, RUN]),
            "Select of [F32, F32, F32] does not give f32x*",
        ),
        (
            |k| *maker(k, INSIDE) = Expr::Apply(Op::Add, smallvec![I, N]),
            "Add of [Index, Index] does not give bool",
        ),
    ]);
}

#[test]
fn refuses_accesses_that_do_not_fit() {
    check(&[
        (|k| load(k, X).buffer = OUT, "an access of f32 at index does not fit buffer out"),
        (|k| load(k, X).index = HALF, "an access of f32 at f32 does not fit buffer a"),
        (|k| load(k, FOUR).phase = 2, "an access of f32x4 at index does not fit buffer a"),
        (|k| load(k, RUN).index = HALF, "an access of f32x* at f32 does not fit buffer a"),
        (|k| k.buffers[0].dtype = DType::I32, "an access of f32 at index does not fit buffer a"),
        (|k| k.buffers[1].access = Access::Read, "an access of f32 at index does not fit buffer out"),
    ]);
}

#[test]
fn reads_under_conditions_that_do_not_fit() {
    let mut conditional = sample();
    *maker(&mut conditional, X) = Expr::LoadWhere(Address::new(A, I), INSIDE);
    // A mask of one lane applies to all lanes.
    *maker(&mut conditional, FOUR) = Expr::LoadWhere(Address::new(A, I), INSIDE);
    assert_eq!(kernel(&conditional), Ok(()));
    check(&[
        (
            |k| *maker(k, X) = Expr::LoadWhere(Address::new(A, I), HALF),
            "%2 is f32, which does not say what of f32 is read",
        ),
        (
            |k| *maker(k, X) = Expr::LoadWhere(Address::new(OUT, I), INSIDE),
            "an access of f32 at index does not fit buffer out",
        ),
        (
            |k| *maker(k, HALVES) = Expr::LoadWhere(Address::new(A, ZERO), RUN),
            "%11 is f32x*, which does not say what of f32x* is read",
        ),
    ]);
}
