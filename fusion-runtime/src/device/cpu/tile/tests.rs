//! Tests of folds and carried values, against plain loops in the order of the Kernel IR.

use fusion_compiler::ir::dim::DimExpr;
use fusion_compiler::ir::dtype::Const;
use fusion_compiler::ir::kernel::{
    BufferId, Builder, Carried, IndexWidth, LoopKind, Type, Uniform, UniformArg,
};
use fusion_compiler::ir::op::Op;
use fusion_compiler::ir::verify_kernel;

use super::*;
use crate::cpu_args::{CpuBuffer, CpuUniform, Share};

const INDEX: Type = Type { dtype: DType::Index, lanes: Lanes::ONE };
const F32: Type = Type { dtype: DType::F32, lanes: Lanes::ONE };
const F32S: Type = Type { dtype: DType::F32, lanes: Lanes::Loop };

/// Numbers of lanes: zero, less than a tile, and several tiles.
const LENGTHS: [usize; 16] = [0, 1, 5, 16, 33, 63, 64, 79, 80, 129, 511, 512, 1025, 8192, 8256, 9300];

/// A builder of kernels: the values and the body under construction.
struct Writer {
    types: Vec<Type>,
    uniforms: Vec<Uniform>,
    body: Vec<Stmt>,
}

impl Writer {
    fn builder<'b>(&'b mut self, body: &'b mut Vec<Stmt>) -> Builder<'b> {
        Builder { types: &mut self.types, uniforms: &mut self.uniforms, body }
    }

    /// Returns a builder of the outermost body.
    fn top(&mut self) -> Builder<'_> {
        Builder { types: &mut self.types, uniforms: &mut self.uniforms, body: &mut self.body }
    }

    fn declare(&mut self, types: &[Type]) -> Vec<Value> {
        types.iter().map(|&ty| self.top().declare(ty)).collect()
    }

    /// Appends a fold over the lanes of `run`'s values, by the function that `make` writes. Returns the
    /// results.
    fn fold(
        &mut self,
        len: Value,
        identity: Vec<Value>,
        run: impl FnOnce(&mut Builder<'_>) -> Vec<Value>,
        make: impl FnOnce(&mut Builder<'_>, &[Value], &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let (mut vector, mut function) = (Vec::new(), Vec::new());
        let over = run(&mut self.builder(&mut vector));
        let types: Vec<Type> =
            over.iter().map(|&value| Type { lanes: Lanes::ONE, ..self.top().ty(value) }).collect();
        let (left, right) = (self.declare(&types), self.declare(&types));
        let results = make(&mut self.builder(&mut function), &left, &right);
        let out = self.declare(&types);
        let fold =
            Fold { over, times: None, identity, left, right, body: function, results, out: out.clone() };
        self.body.push(Stmt::Vector { len, body: vector, folds: vec![fold] });
        out
    }
}

/// Runs a kernel that computes one number from the elements of `a` and their count.
fn number(a: &[f32], make: impl FnOnce(&mut Writer, Value) -> Value) -> f32 {
    let mut writer = Writer { types: vec![], uniforms: vec![], body: vec![] };
    let arg = UniformArg::Extent(DimExpr::constant(0));
    let n = writer.top().uniform(Uniform { name: "n".into(), dtype: DType::Index, arg });
    let value = make(&mut writer, n);
    let zero = writer.top().index(0);
    writer.body.push(Stmt::Store(Address::new(BufferId(1), zero), value));
    let buffer = |name: &str, access| Buffer::new(name, DType::F32, access);
    let Writer { types, uniforms, body } = writer;
    let buffers = vec![buffer("a", Access::Read), buffer("out", Access::Write)];
    let kernel = Kernel { buffers, uniforms, types, body, ..Kernel::new("sample", IndexWidth::Bits64) };
    assert_eq!(verify_kernel::kernel(&kernel), Ok(()));
    let (mut a, mut out) = (a.to_vec(), [f32::NAN]);
    let buffer = |of: &mut [f32], access| CpuBuffer {
        streams: false,
        ptr: of.as_mut_ptr().cast(),
        len: of.len(),
        first: 0,
        share: Share::Whole,
        dtype: DType::F32,
        access,
        has_writer: false,
        strided: None,
        own: (0, 0),
    };
    let uniforms = [CpuUniform::Index(a.len())];
    let mut buffers = [buffer(&mut a, Access::Read), buffer(&mut out, Access::Write)];
    // SAFETY: the buffers have these lengths, are distinct, and live until the kernel has run.
    let mut args = unsafe { CpuArgs::new((0, 1), &mut buffers, &uniforms, &mut []) };
    run(&kernel, &mut args);
    out[0]
}

fn elements(len: usize) -> Vec<f32> {
    (0..len as u32).map(|i| (i.wrapping_mul(0x9e37_79b1) >> 8) as f32 / (1 << 20) as f32 - 8.0).collect()
}

/// Lanes form groups of 64, then of 16, 4 and 1 for the rest.
///
/// Groups of one length are added four at a time, lane by lane. The lanes of the result are then summed by
/// halves. The last four lanes, and the total, are added in `f64`.
#[test]
fn lanes_are_added_in_the_documented_order() {
    type Put = fn(f32, f32) -> f32;
    fn groups<const L: usize>(sum: f64, a: &[f32], put: Put) -> (f64, &[f32]) {
        let (groups, rest) = a.as_chunks::<L>();
        let strips = groups.chunks(4).map(|groups| {
            let mut parts = [0.0_f32; L];
            for group in groups {
                parts.iter_mut().zip(group).for_each(|(part, x)| *part = put(*part, *x));
            }
            for half in (2..L.ilog2()).rev().map(|bit| 1 << bit) {
                (0..half).for_each(|i| parts[i] += parts[i + half]);
            }
            let parts = parts.map(f64::from);
            if L < 4 { parts[0] } else { (parts[0] + parts[2]) + (parts[1] + parts[3]) }
        });
        (strips.fold(sum, |sum, x| sum + x), rest)
    }
    // Terms: the elements, or their squares, each rounded once together with the sum.
    let puts: [(bool, Put); 2] = [(false, |part, x| part + x), (true, |part, x| x.mul_add(x, part))];
    for (len, (squares, put)) in LENGTHS.into_iter().flat_map(|len| puts.map(|put| (len, put))) {
        let a = elements(len);
        let (sum, rest) = groups::<64>(0.0, &a, put);
        let (sum, rest) = groups::<16>(sum, rest, put);
        let (sum, rest) = groups::<4>(sum, rest, put);
        let (wanted, _) = groups::<1>(sum, rest, put);
        let got = number(&a, |w, n| {
            let (first, zero) = (w.top().index(0), w.top().f32(0.0));
            let load = |b: &mut Builder<'_>| vec![b.bind(F32S, Expr::Load(Address::new(BufferId(0), first)))];
            let add = |b: &mut Builder<'_>, left: &[Value], right: &[Value]| {
                vec![b.apply(Op::Add, &[left[0], right[0]])]
            };
            let sum = w.fold(n, vec![zero], load, add)[0];
            let Some(Stmt::Vector { folds, .. }) = w.body.last_mut() else { unreachable!("the fold") };
            folds[0].times = squares.then_some(folds[0].over[0]);
            sum
        });
        assert_eq!(got.to_bits(), (wanted as f32).to_bits(), "{len} lanes, squares: {squares}");
    }
}

/// The fold finds the first of the largest elements. The fold has two components, and its function uses
/// values from outside.
#[test]
fn components_are_folded_together() {
    for len in LENGTHS.into_iter().filter(|&len| len > 0) {
        // Each value occurs several times.
        let a: Vec<f32> = elements(len).into_iter().map(|x| (x * 2.0).floor()).collect();
        let most = a.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let expected = a.iter().position(|&x| x == most).expect("it is one of them");
        let got = number(&a, |w, n| {
            let mut b = w.top();
            let low = b.constant(DType::F32, Const::Float(f64::NEG_INFINITY));
            let (first, shift) = (b.index(0), b.f32(1.0));
            let run = |b: &mut Builder<'_>| {
                let x = b.bind(F32S, Expr::Load(Address::new(BufferId(0), first)));
                vec![x, b.bind(Type { lanes: Lanes::Loop, ..INDEX }, Expr::Builtin(Builtin::LaneIndex))]
            };
            let out = w.fold(n, vec![low, n], run, |b, left, right| {
                // Both sides are shifted by the same constant.
                let (l, r) = (b.apply(Op::Add, &[left[0], shift]), b.apply(Op::Add, &[right[0], shift]));
                let (larger, same) = (b.apply(Op::Gt, &[r, l]), b.apply(Op::Eq, &[r, l]));
                let before = b.apply(Op::Lt, &[right[1], left[1]]);
                let before = b.apply(Op::And, &[same, before]);
                let takes = b.apply(Op::Or, &[larger, before]);
                [0, 1].map(|i| b.apply(Op::Select, &[takes, right[i], left[i]])).into()
            });
            let place = w.top().cast(out[1], DType::I32);
            w.top().cast(place, DType::F32)
        });
        assert_eq!(got, expected as f32, "{len} lanes");
    }
}

/// Carried values that swap between iterations are all read before any is replaced.
#[test]
fn carried_values_are_handed_on_together() {
    for (len, expected) in [(0, 0.0), (1, 1.0), (2, 1.0), (3, 2.0), (10, 55.0), (30, 832_040.0)] {
        let got = number(&elements(len), |w, n| {
            let mut b = w.top();
            let (start, step, zero, one) = (b.index(0), b.index(1), b.f32(0.0), b.f32(1.0));
            let var = b.declare(INDEX);
            let values = w.declare(&[F32; 4]);
            let mut body = Vec::new();
            // Fibonacci numbers: the later number, and the sum of both.
            let sum = w.builder(&mut body).apply(Op::Add, &[values[0], values[1]]);
            let carried = vec![
                Carried { start: zero, var: values[0], next: values[1], out: values[2] },
                Carried { start: one, var: values[1], next: sum, out: values[3] },
            ];
            w.body.push(Stmt::Loop { var, kind: LoopKind::Serial, start, end: n, step, carried, body });
            values[2]
        });
        assert_eq!(got, expected, "{len} iterations");
    }
}
