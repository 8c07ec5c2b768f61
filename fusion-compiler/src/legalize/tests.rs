//! Tests of reductions over teams: shuffles, shared memory and barriers for each size of a team.

use super::*;
use crate::ir::graph::Access;
use crate::ir::kernel::{Address, Buffer, BufferId, Carried, IndexWidth, UniformArg};
use crate::ir::verify_kernel;

const F32: Type = Type { dtype: DType::F32, lanes: Lanes::ONE };

/// Builds a kernel whose teams reduce each row by `op`: `components` values at a time, in `folds` folds one
/// after another.
fn teams(team: u32, op: Op, (components, folds): (usize, usize)) -> Kernel {
    let (mut types, mut uniforms, mut top) = (Vec::new(), Vec::new(), Vec::new());
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut top };
    let n = b.uniform(Uniform { name: "n".into(), dtype: DType::Index, arg: UniformArg::End });
    let (zero, one, identity) = (b.index(0), b.index(1), b.f32(0.0));
    let thread = b.builtin(Builtin::TeamId);
    let row = b.declare(INDEX);
    let mut body = Vec::new();
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut body };
    let mut values = vec![b.bind(F32, Expr::Load(Address::new(BufferId(0), thread))); components];
    for _ in 0..folds {
        let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut body };
        let declare = |b: &mut Builder<'_>| (0..components).map(|_| b.declare(F32)).collect::<Vec<_>>();
        let (left, right, out) = (declare(&mut b), declare(&mut b), declare(&mut b));
        let mut function = Vec::new();
        let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut function };
        let results = left.iter().zip(&right).map(|(&left, &right)| b.apply(op, &[left, right])).collect();
        let identity = vec![identity; components];
        body.push(Stmt::AllReduce(Box::new(Fold {
            over: values,
            times: None,
            identity,
            left,
            right,
            body: function,
            results,
            out: out.clone(),
        })));
        values = out;
    }
    body.extend(values.iter().map(|&value| Stmt::Store(Address::new(BufferId(1), row), value)));
    let (kind, carried) = (LoopKind::Team, vec![]);
    top.push(Stmt::Loop { var: row, kind, start: zero, end: n, step: one, carried, body });
    kernel(team, types, uniforms, top)
}

fn kernel(team: u32, types: Vec<Type>, uniforms: Vec<Uniform>, body: Vec<Stmt>) -> Kernel {
    let buffer = |name: &str, access| Buffer::new(name, DType::F32, access);
    let buffers = vec![buffer("a", Access::Read), buffer("out", Access::Write)];
    let threads = ThreadMap { team, ..ThreadMap::ALONE };
    Kernel { buffers, uniforms, types, body, threads, ..Kernel::new("sample", IndexWidth::Bits32) }
}

/// Legalizes a kernel. The verifier accepts it before and after.
fn legal(kernel: Kernel, dialect: Dialect) -> Kernel {
    assert_eq!(verify_kernel::kernel(&kernel), Ok(()));
    let kernel = legalize(kernel, dialect);
    assert_eq!(verify_kernel::kernel(&kernel), Ok(()));
    kernel
}

/// Counts the lines of the printed kernel that contain this text.
fn count(kernel: &Kernel, part: &str) -> usize {
    kernel.to_string().lines().filter(|line| line.contains(part)).count()
}

/// Returns the distances of the shuffles, in order.
fn distances(kernel: &Kernel) -> Vec<u32> {
    let text = kernel.to_string();
    let distance = |line: &str| Some(line.split_once(" down ")?.1.parse().expect("a distance"));
    text.lines().filter_map(distance).collect()
}

#[test]
fn a_warp_combines_by_shuffles_alone() {
    let kernel = legal(teams(32, Op::Add, (1, 1)), Dialect::Ptx);
    assert_eq!(distances(&kernel), [16, 8, 4, 2, 1]);
    assert_eq!((count(&kernel, "from the first"), count(&kernel, "Add %"), kernel.shared.len()), (1, 6, 0));
    assert_eq!((count(&kernel, "barrier"), count(&kernel, "team"), count(&kernel, "(serial)")), (0, 1, 1));
    // The row of a team and the number of a thread in it are computed from the warp.
    assert_eq!((count(&kernel, "grid id"), count(&kernel, "block id"), count(&kernel, "ShrRaw")), (1, 0, 2));
    let small = legal(teams(8, Op::Add, (1, 1)), Dialect::Ptx);
    assert_eq!(distances(&small), [4, 2, 1]);
}

/// Returns the kernel with teams that work on several rows at a time.
fn of_rows(rows: u32, cyclic: bool, kernel: Kernel) -> Kernel {
    Kernel { threads: ThreadMap { rows, cyclic, ..kernel.threads }, ..kernel }
}

/// Two rows share a warp. Each half reduces its own values, and its first thread broadcasts the result.
#[test]
fn rows_that_share_a_warp_combine_apart() {
    let two = of_rows(2, false, teams(32, Op::Add, (1, 1)));
    let kernel = legal(two, Dialect::Ptx);
    assert_eq!((distances(&kernel), kernel.shared.len()), (vec![8, 4, 2, 1], 0));
    let text = crate::emit::ptx::ptx(&kernel);
    // Bit 4 of a thread's number is also that of the first thread of its half: 16 << 8.
    let told: Vec<&str> = text.lines().filter(|line| line.contains("shfl.sync.idx")).collect();
    assert!(matches!(told[..], [one] if one.ends_with(", 0, 4127, 0xffffffff;")), "{told:?}");
    // Threads of different rows alternate in a larger team.
    let two = of_rows(2, true, teams(64, Op::Add, (1, 1)));
    let kernel = legal(two, Dialect::Ptx);
    assert_eq!((distances(&kernel), kernel.shared.len()), (vec![], 1));
}

/// Each thread combines the results of few warps by itself, in the order of the shuffles.
#[test]
fn warps_of_a_block_combine_through_shared_memory() {
    for (team, last, loads, pairs) in [
        (64, vec![], 1, vec![(0, 1)]),
        (128, vec![], 1, vec![(0, 2), (1, 3)]),
        (256, vec![], 2, vec![(0, 4), (1, 5), (2, 6), (3, 7)]),
        (512, vec![8, 4, 2, 1], 1, vec![]),
        (1024, vec![16, 8, 4, 2, 1], 1, vec![]),
    ] {
        let kernel = legal(teams(team, Op::Add, (1, 1)), Dialect::Ptx);
        assert_eq!(distances(&kernel), [vec![16, 8, 4, 2, 1], last].concat());
        assert_eq!(kernel.shared, [Shared { dtype: DType::F32, len: SharedLen::Fixed(team / 32) }]);
        assert_eq!(
            (count(&kernel, "barrier"), count(&kernel, "from the first")),
            (2, usize::from(team > 256))
        );
        assert_eq!((count(&kernel, "store shared"), count(&kernel, "load shared")), (1, loads));
        assert_eq!(pairs_of_lanes(&kernel), pairs);
        // A block is a team.
        assert_eq!(
            (count(&kernel, "grid id"), count(&kernel, "= block id"), count(&kernel, "= blocks")),
            (0, 1, 1)
        );
    }
}

/// Returns the pairs of vector lanes that are combined, numbered over all vectors.
fn pairs_of_lanes(kernel: &Kernel) -> Vec<(usize, usize)> {
    fn inner(body: &[Stmt], lanes: &mut Vec<Value>, pairs: &mut Vec<(usize, usize)>) {
        for stmt in body {
            let place = |value: &Value| lanes.iter().position(|lane| lane == value);
            if let Stmt::Let(value, Expr::Lane(..)) = stmt {
                lanes.push(*value);
            } else if let Stmt::Let(_, Expr::Apply(_, args)) = stmt
                && let [left, right] = &args[..]
            {
                pairs.extend(place(left).zip(place(right)));
            } else if let Stmt::Loop { body, .. } | Stmt::If { body, .. } = stmt {
                inner(body, lanes, pairs);
            }
        }
    }
    let (mut lanes, mut pairs) = (vec![], vec![]);
    inner(&kernel.body, &mut lanes, &mut pairs);
    pairs
}

/// Returns the end and the step of each loop whose end is constant.
fn ends_of_loops(kernel: &Kernel) -> Vec<(i64, i64)> {
    fn inner(body: &[Stmt], known: &mut FxHashMap<Value, i64>, found: &mut Vec<(i64, i64)>) {
        for stmt in body {
            if let Stmt::Let(value, Expr::Const(Const::Int(number))) = stmt {
                known.insert(*value, *number);
            } else if let Stmt::Loop { end, step, body, .. } = stmt {
                found.extend(known.get(end).copied().zip(known.get(step).copied()));
                inner(body, known, found);
            } else if let Stmt::If { body, .. } = stmt {
                inner(body, known, found);
            }
        }
    }
    let mut found = Vec::new();
    inner(&kernel.body, &mut FxHashMap::default(), &mut found);
    found
}

#[test]
fn where_warps_are_unknown_memory_is_combined_eight_at_a_time() {
    for (team, stages, ends) in [
        (32, vec![8, 4], vec![(32, 4), (4, 1)]),
        (64, vec![8, 8], vec![(64, 8), (8, 1)]),
        (256, vec![8, 8, 4], vec![(256, 32), (32, 4), (4, 1)]),
    ] {
        let kernel = legal(teams(team, Op::Add, (1, 1)), Dialect::Wgsl);
        assert_eq!(kernel.shared, [Shared { dtype: DType::F32, len: SharedLen::Fixed(team) }]);
        assert_eq!((count(&kernel, "shuffle"), count(&kernel, "= block id")), (0, 1));
        // There is one barrier after the first writes, one after each stage, and one before the next write.
        assert_eq!(count(&kernel, "barrier"), stages.len() + 2);
        // One more condition checks that the block has a row.
        assert_eq!(count(&kernel, "if %"), stages.len() + 1);
        // Each stage loads the first element and, in a loop, the others. One load reads the result.
        assert_eq!(count(&kernel, "load shared"), 2 * stages.len() + 1);
        assert_eq!(ends_of_loops(&kernel), ends);
        assert_eq!(count(&kernel, "store shared"), stages.len() + 1);
    }
}

/// Several rows share a block. The elements of the rows alternate in shared memory. Each of the first threads
/// combines elements of one row, and every thread reads the result of its own row.
#[test]
fn rows_that_share_a_group_combine_apart() {
    for cyclic in [true, false] {
        let eight = of_rows(8, cyclic, teams(64, Op::Add, (1, 1)));
        let kernel = legal(eight, Dialect::Wgsl);
        assert_eq!(ends_of_loops(&kernel), [(64, 8)], "each of eight threads combines eight");
        assert_eq!(count(&kernel, "barrier"), 3);
        assert_eq!(
            count(&kernel, "ShrRaw"),
            usize::from(!cyclic),
            "the row of a thread is its number over eight"
        );
    }
}

#[test]
fn memory_is_used_again() {
    for dialect in [Dialect::Ptx, Dialect::Wgsl] {
        let folds = |components, folds| legal(teams(256, Op::Add, (components, folds)), dialect).shared.len();
        assert_eq!([folds(1, 1), folds(1, 2), folds(2, 1), folds(2, 3)], [1, 1, 2, 2], "{dialect:?}");
    }
}

/// The function of a fold is inlined each time, in operations that the dialect has.
#[test]
fn functions_of_folds_are_expanded() {
    for dialect in [Dialect::Ptx, Dialect::Wgsl] {
        for team in [32, 64, 256] {
            let kernel = legal(teams(team, Op::Max, (2, 2)), dialect);
            let text = kernel.to_string();
            assert_eq!(
                (count(&kernel, "Max"), count(&kernel, "fold"), count(&kernel, "team id")),
                (0, 0, 0),
                "{text}"
            );
            assert!(count(&kernel, "Select") >= 2 * 2 * 2, "{text}");
        }
    }
}

/// A value that leaves a body is the result of its expansion.
#[test]
fn carried_values_are_expanded() {
    let (mut types, mut uniforms, mut top, mut body) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut top };
    let n = b.uniform(Uniform { name: "n".into(), dtype: DType::Index, arg: UniformArg::End });
    let (start, one, low) = (b.index(0), b.index(1), b.f32(-1.0));
    let (i, given, out) = (b.declare(INDEX), b.declare(F32), b.declare(F32));
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut body };
    let x = b.bind(F32, Expr::Load(Address::new(BufferId(0), i)));
    let next = b.apply(Op::Max, &[given, x]);
    let carried = vec![Carried { start: low, var: given, next, out }];
    let kind = LoopKind::Serial;
    top.push(Stmt::Loop { var: i, kind, start, end: n, step: one, carried, body });
    top.push(Stmt::Store(Address::new(BufferId(1), start), out));
    for dialect in Dialect::ALL {
        let kernel = legal(kernel(1, types.clone(), uniforms.clone(), top.clone()), dialect);
        let Some(Stmt::Loop { carried, body, .. }) = kernel.body.iter().rev().nth(1) else {
            panic!("{kernel} has a loop");
        };
        let Some(Stmt::Let(last, Expr::Apply(Op::Select, _))) = body.last() else {
            panic!("{kernel} selects")
        };
        assert_eq!((carried[0].next, carried[0].out), (*last, out), "{kernel}");
    }
}

/// The CPU combines the lanes of a vector loop by itself, in operations that it has.
#[test]
fn folds_of_lanes_stay() {
    let (mut types, mut uniforms, mut top) = (Vec::new(), Vec::new(), Vec::new());
    let (mut vector, mut function) = (Vec::new(), Vec::new());
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut top };
    let n = b.uniform(Uniform { name: "n".into(), dtype: DType::Index, arg: UniformArg::End });
    let (zero, low) = (b.index(0), b.f32(-1.0));
    let (left, right, out) = (b.declare(F32), b.declare(F32), b.declare(F32));
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut vector };
    let over = b.bind(Type { lanes: Lanes::Loop, ..F32 }, Expr::Load(Address::new(BufferId(0), zero)));
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut function };
    let both = b.apply(Op::Max, &[left, right]);
    let one = |value| vec![value];
    let (identity, results) = (one(low), one(both));
    let (over, left, right, out) = (one(over), one(left), one(right), one(out));
    let fold = Fold { over, times: None, identity, left, right, body: function, results, out: out.clone() };
    top.push(Stmt::Vector { len: n, body: vector, folds: vec![fold] });
    top.push(Stmt::Store(Address::new(BufferId(1), zero), out[0]));
    let kernel = legal(kernel(1, types, uniforms, top), Dialect::Cpu);
    let Some(Stmt::Vector { folds, .. }) = kernel.body.iter().rev().nth(1) else {
        panic!("{kernel} has a vector loop")
    };
    assert_eq!((folds.len(), &folds[0].out), (1, &out));
    assert!(
        matches!(folds[0].body.last(), Some(Stmt::Let(last, Expr::Apply(Op::Select, _))) if folds[0].results == [*last])
    );
}
