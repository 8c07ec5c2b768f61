//! Tests of passes over kernels with values that leave the bodies of their definition.

use super::{kernel_cse, kernel_dce};
use crate::ir::dtype::DType;
use crate::ir::graph::Access;
use crate::ir::kernel::{
    Address, Buffer, BufferId, Builder, Carried, Expr, Fold, IndexWidth, Kernel, Lanes, LoopKind, Stmt, Type,
    Uniform, UniformArg, Value,
};
use crate::ir::op::Op;
use crate::ir::verify_kernel;

const INDEX: Type = Type { dtype: DType::Index, lanes: Lanes::ONE };
const F32: Type = Type { dtype: DType::F32, lanes: Lanes::ONE };
const F32S: Type = Type { dtype: DType::F32, lanes: Lanes::Loop };
const A: BufferId = BufferId(0);
const OUT: BufferId = BufferId(1);

/// First values of all samples: `%0` is the uniform `n`, `%1` and `%2` are the positions 0 and 1, and `%3` is
/// the number 0.
const START: [Value; 4] = [Value(0), Value(1), Value(2), Value(3)];

/// Builds a kernel whose body `make` writes.
fn kernel(make: impl FnOnce(&mut Writer)) -> Kernel {
    let mut writer = Writer { types: vec![], uniforms: vec![], top: vec![] };
    let (mut top, uniform) =
        (Vec::new(), Uniform { name: "n".into(), dtype: DType::Index, arg: UniformArg::End });
    let mut b = writer.builder(&mut top);
    let made = [b.uniform(uniform), b.index(0), b.index(1), b.f32(0.0)];
    assert_eq!(made, START);
    writer.top = top;
    make(&mut writer);
    let buffer = |name: &str, access| Buffer::new(name, DType::F32, access);
    let buffers = vec![buffer("a", Access::Read), buffer("out", Access::Write)];
    let Writer { types, uniforms, top: body } = writer;
    let kernel = Kernel { buffers, uniforms, types, body, ..Kernel::new("sample", IndexWidth::Bits32) };
    assert_eq!(verify_kernel::kernel(&kernel), Ok(()));
    kernel
}

struct Writer {
    types: Vec<Type>,
    uniforms: Vec<Uniform>,
    top: Vec<Stmt>,
}

impl Writer {
    fn builder<'b>(&'b mut self, body: &'b mut Vec<Stmt>) -> Builder<'b> {
        Builder { types: &mut self.types, uniforms: &mut self.uniforms, body }
    }

    fn declare(&mut self, ty: Type) -> Value {
        self.builder(&mut Vec::new()).declare(ty)
    }

    fn store(&mut self, value: Value) {
        self.top.push(Stmt::Store(Address::new(OUT, START[1]), value));
    }

    /// Writes a loop over `0..n` with carried values, each from 0 on. `make` returns their next values; the
    /// results are the final ones.
    fn carrying(
        &mut self,
        make: impl FnOnce(&mut Builder<'_>, Value, &[Value]) -> Vec<Value>,
        count: usize,
    ) -> Vec<Value> {
        let [n, zero, one, start] = START;
        let var = self.declare(INDEX);
        let given: Vec<Value> = (0..count).map(|_| self.declare(F32)).collect();
        let mut body = Vec::new();
        let next = make(&mut self.builder(&mut body), var, &given);
        let out: Vec<Value> = (0..count).map(|_| self.declare(F32)).collect();
        let carried =
            (0..count).map(|i| Carried { start, var: given[i], next: next[i], out: out[i] }).collect();
        let kind = LoopKind::Serial;
        self.top.push(Stmt::Loop { var, kind, start: zero, end: n, step: one, carried, body });
        out
    }
}

/// Compares the printed kernel with a text, without the first values of all samples. The verifier accepts the
/// kernel.
fn check(kernel: Kernel, expect: &str) {
    assert_eq!(verify_kernel::kernel(&kernel), Ok(()));
    let text = kernel.to_string();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("  ")).collect();
    let (head, body): (Vec<&str>, Vec<&str>) =
        lines.into_iter().partition(|line| line.starts_with("  buffer") || line.starts_with("  uniform"));
    assert_eq!(head.len(), 3);
    assert_eq!(body.join("\n"), expect.trim_matches('\n'));
}

#[test]
fn values_that_leave_a_loop_are_renamed() {
    let sample = kernel(|w| {
        let out = w.carrying(
            |b, i, given| {
                let x = b.bind(F32, Expr::Load(Address::new(A, i)));
                let once = b.apply(Op::Add, &[given[0], x]);
                let again = b.apply(Op::Add, &[given[0], x]);
                // This number is the same as a value from outside.
                let zero = b.f32(0.0);
                assert_ne!(once, again);
                vec![again, zero]
            },
            2,
        );
        let mut top = std::mem::take(&mut w.top);
        let both = w.builder(&mut top).apply(Op::Add, &[out[0], out[1]]);
        w.top = top;
        w.store(both);
    });
    check(
        kernel_cse(sample),
        "
  %0: index = uniform 0 (n)
  %1: index = 0
  %2: index = 1
  %3: f32 = 0.0
  for %4 in %1..%0 step %2 (serial)
    %7: f32 = load a[%4]
    %8: f32 = Add %5, %7
    %11 = %5 from %3, then %8
    %12 = %6 from %3, then %3
  %13: f32 = Add %11, %12
  store out[%1] = %13
",
    );
}

#[test]
fn what_a_body_made_is_made_again_after_it() {
    let sample = kernel(|w| {
        let [_, _, one, zero] = START;
        let mut inner = Value(0);
        let out = w.carrying(
            |b, i, given| {
                // The same product follows in the body, and once more after the loop.
                inner = b.apply(Op::Mul, &[one, one]);
                let at = b.apply(Op::Mul, &[one, one]);
                let at = b.apply(Op::Add, &[at, i]);
                let x = b.bind(F32, Expr::Load(Address::new(A, at)));
                vec![b.apply(Op::Add, &[given[0], x])]
            },
            1,
        );
        let mut top = std::mem::take(&mut w.top);
        let mut b = w.builder(&mut top);
        let again = b.apply(Op::Mul, &[one, one]);
        let x = b.bind(F32, Expr::Load(Address::new(A, again)));
        let sum = b.apply(Op::Add, &[x, out[0]]);
        let sum = b.apply(Op::Add, &[sum, zero]);
        w.top = top;
        w.store(sum);
    });
    let text = kernel_cse(sample).to_string();
    assert_eq!(text.matches("Mul %2, %2").count(), 2, "{text}");
}

/// A fold that sums squares, with unused values in the vector loop and in the function of the fold.
fn folded(stored: bool) -> Kernel {
    kernel(|w| {
        let [n, zero, _, identity] = START;
        let (mut vector, mut function) = (Vec::new(), Vec::new());
        let mut b = w.builder(&mut vector);
        let x = b.bind(F32S, Expr::Load(Address::new(A, zero)));
        let square = b.apply(Op::Mul, &[x, x]);
        b.apply(Op::Add, &[x, square]);
        let again = b.apply(Op::Mul, &[x, x]);
        let (left, right, out) = (w.declare(F32), w.declare(F32), w.declare(F32));
        let mut b = w.builder(&mut function);
        b.apply(Op::Mul, &[left, right]);
        let both = b.apply(Op::Add, &[left, right]);
        let fold = Fold {
            over: vec![again],
            times: None,
            identity: vec![identity],
            left: vec![left],
            right: vec![right],
            body: function,
            results: vec![both],
            out: vec![out],
        };
        w.top.push(Stmt::Vector { len: n, body: vector, folds: vec![fold] });
        w.store(if stored { out } else { identity });
    })
}

#[test]
fn values_that_leave_a_vector_loop_are_renamed_and_kept() {
    let expect = "
  %0: index = uniform 0 (n)
  %1: index = 0
  %3: f32 = 0.0
  vector %0
    %4: f32x* = load a[%1]
    %5: f32x* = Mul %4, %4
    %10 = fold %5 from %3
      of %8 and %9
      %12: f32 = Add %8, %9
      give %12
  store out[%1] = %10
";
    check(kernel_dce(kernel_cse(folded(true))), expect);
    check(kernel_dce(folded(false)), "\n  %1: index = 0\n  %3: f32 = 0.0\n  store out[%1] = %3\n");
}

#[test]
fn a_loop_goes_where_nothing_of_it_is_needed() {
    let sample = |needed: bool| {
        kernel(|w| {
            let sum = |b: &mut Builder<'_>, i: Value, given: &[Value]| {
                let x = b.bind(F32, Expr::Load(Address::new(A, i)));
                b.apply(Op::Mul, &[x, x]);
                vec![b.apply(Op::Add, &[given[0], x])]
            };
            let out = w.carrying(sum, 1);
            w.store(if needed { out[0] } else { START[3] });
        })
    };
    check(kernel_dce(sample(false)), "\n  %1: index = 0\n  %3: f32 = 0.0\n  store out[%1] = %3\n");
    check(
        kernel_dce(sample(true)),
        "
  %0: index = uniform 0 (n)
  %1: index = 0
  %2: index = 1
  %3: f32 = 0.0
  for %4 in %1..%0 step %2 (serial)
    %6: f32 = load a[%4]
    %8: f32 = Add %5, %6
    %9 = %5 from %3, then %8
  store out[%1] = %9
",
    );
}

/// All threads reach an all-reduce. If nothing uses its result, the all-reduce is removed for all of them.
#[test]
fn a_fold_of_threads_goes_where_it_is_not_needed() {
    let sample = |needed: bool| {
        kernel(|w| {
            let [n, zero, one, identity] = START;
            let (row, left, right, out) = (w.declare(INDEX), w.declare(F32), w.declare(F32), w.declare(F32));
            let (mut body, mut function) = (Vec::new(), Vec::new());
            let x = w.builder(&mut body).bind(F32, Expr::Load(Address::new(A, row)));
            let both = w.builder(&mut function).apply(Op::Add, &[left, right]);
            body.push(Stmt::AllReduce(Box::new(Fold {
                over: vec![x],
                times: None,
                identity: vec![identity],
                left: vec![left],
                right: vec![right],
                body: function,
                results: vec![both],
                out: vec![out],
            })));
            body.push(Stmt::Store(Address::new(OUT, row), if needed { out } else { x }));
            let (kind, carried) = (LoopKind::Team, vec![]);
            w.top.push(Stmt::Loop { var: row, kind, start: zero, end: n, step: one, carried, body });
        })
    };
    let has_fold = |kernel: Kernel| kernel_dce(kernel).to_string().contains("team %");
    assert_eq!([has_fold(sample(true)), has_fold(sample(false))], [true, false]);
}
