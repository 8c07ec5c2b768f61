//! Tests of carried values, folds, shared memory, barriers and cluster exchanges.

use super::*;
use crate::ir::kernel::{Carried, ClusterExchange, Fold, Scope, Shared, SharedLen, Shuffle, ThreadMap};

// The values of `rows`, in the order of their numbers.
const ZERO: Value = Value(1);
const IDENTITY: Value = Value(3);
const THREAD: Value = Value(4);
const GIVEN: Value = Value(7);
const TERM: Value = Value(8);
const NEXT: Value = Value(9);
const PART: Value = Value(10);
const WHOLE: Value = Value(14);
const BACK: Value = Value(15);
const OTHER: Value = Value(16);

const MEMORY: SharedId = SharedId(0);

const TEAM: ThreadMap = ThreadMap { team: 32, ..ThreadMap::ALONE };

fn empty(types: Vec<Type>, uniforms: Vec<Uniform>, body: Vec<Stmt>) -> Kernel {
    let buffer = |name: &str, access| Buffer::new(name, DType::F32, access);
    let buffers = vec![buffer("a", Access::Read), buffer("out", Access::Write)];
    Kernel { buffers, uniforms, types, body, ..Kernel::new("sample", IndexWidth::Bits32) }
}

fn end() -> Uniform {
    Uniform { name: String::from("n"), dtype: DType::Index, arg: UniformArg::End }
}

/// Returns a kernel that sums rows by teams.
///
/// Each thread carries a sum, an all-reduce combines the sums, and the result passes through shared memory.
fn rows() -> Kernel {
    let (mut types, mut uniforms, mut top) = (Vec::new(), Vec::new(), Vec::new());
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut top };
    let n = b.uniform(end());
    let (zero, step, identity) = (b.index(0), b.index(32), b.f32(0.0));
    let thread = b.builtin(Builtin::TeamId);
    let (row, i, given) = (b.declare(INDEX), b.declare(INDEX), b.declare(F32));
    let (mut serial, mut function, mut body, mut stored) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut serial };
    let term = b.bind(F32, Expr::Load(Address::new(A, i)));
    let next = b.apply(Op::Add, &[given, term]);
    let (part, left, right) = (b.declare(F32), b.declare(F32), b.declare(F32));
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut function };
    let both = b.apply(Op::Add, &[left, right]);
    let whole = b.declare(F32);
    let carried = vec![Carried { start: identity, var: given, next, out: part }];
    let kind = LoopKind::Serial;
    body.push(Stmt::Loop { var: i, kind, start: thread, end: n, step, carried, body: serial });
    body.push(Stmt::AllReduce(Box::new(Fold {
        over: vec![part],
        times: None,
        identity: vec![identity],
        left: vec![left],
        right: vec![right],
        body: function,
        results: vec![both],
        out: vec![whole],
    })));
    body.extend([Stmt::StoreShared(MEMORY, thread, whole), Stmt::Barrier(Scope::Block)]);
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut body };
    let back = b.bind(F32, Expr::LoadShared(MEMORY, zero));
    let other = b.bind(F32, Expr::Shuffle(back, Shuffle::Down(1)));
    let cond = b.apply(Op::Eq, &[thread, zero]);
    stored.push(Stmt::Store(Address::new(OUT, row), other));
    body.push(Stmt::If { cond, body: stored });
    let (kind, carried) = (LoopKind::Team, vec![]);
    top.push(Stmt::Loop { var: row, kind, start: zero, end: n, step, carried, body });
    let shared = vec![Shared { dtype: DType::F32, len: SharedLen::Fixed(32) }];
    Kernel { threads: TEAM, shared, ..empty(types, uniforms, top) }
}

/// Returns a kernel that folds the lanes of a vector to the largest value and its position, two components.
fn largest() -> Kernel {
    let (mut types, mut uniforms, mut top) = (Vec::new(), Vec::new(), Vec::new());
    let (mut vector, mut function) = (Vec::new(), Vec::new());
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut top };
    let n = b.uniform(end());
    let (zero, low) = (b.index(0), b.f32(-1.0));
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut vector };
    let run = b.bind(F32S, Expr::Load(Address::new(A, zero)));
    let lanes = b.bind(Type { lanes: Lanes::Loop, ..INDEX }, Expr::Builtin(Builtin::LaneIndex));
    let (left, right) = ([b.declare(F32), b.declare(INDEX)], [b.declare(F32), b.declare(INDEX)]);
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut function };
    let larger = b.apply(Op::Gt, &[right[0], left[0]]);
    let results = [0, 1].map(|i| b.apply(Op::Select, &[larger, right[i], left[i]]));
    let out = [b.declare(F32), b.declare(INDEX)];
    let fold = Fold {
        over: vec![run, lanes],
        times: None,
        identity: vec![low, zero],
        left: left.to_vec(),
        right: right.to_vec(),
        body: function,
        results: results.to_vec(),
        out: out.to_vec(),
    };
    top.push(Stmt::Vector { len: n, body: vector, folds: vec![fold] });
    top.push(Stmt::Store(Address::new(OUT, out[1]), out[0]));
    empty(types, uniforms, top)
}

/// Returns the kind, the start and the body of the loop over rows.
fn row_loop(kernel: &mut Kernel) -> (&mut LoopKind, &mut Value, &mut Vec<Stmt>) {
    match kernel.body.last_mut() {
        Some(Stmt::Loop { kind, start, body, .. }) => (kind, start, body),
        other => panic!("{other:?} is not the loop over rows"),
    }
}

fn statements(kernel: &mut Kernel) -> &mut Vec<Stmt> {
    row_loop(kernel).2
}

/// Returns the value that the loop over the elements of a row carries.
fn carried(kernel: &mut Kernel) -> &mut Carried {
    match &mut statements(kernel)[0] {
        Stmt::Loop { carried, .. } => &mut carried[0],
        other => panic!("{other:?} is not the loop over elements"),
    }
}

fn fold(kernel: &mut Kernel) -> &mut Fold {
    match kernel.body.iter_mut().find_map(fold_of) {
        Some(fold) => fold,
        None => panic!("the sample has a fold"),
    }
}

fn fold_of(stmt: &mut Stmt) -> Option<&mut Fold> {
    match stmt {
        Stmt::Loop { body, .. } => body.iter_mut().find_map(fold_of),
        Stmt::Vector { folds, .. } => folds.first_mut(),
        Stmt::AllReduce(fold) => Some(fold),
        _ => None,
    }
}

/// Puts statement `at` of the row loop under a condition.
fn guard(kernel: &mut Kernel, at: usize) {
    let body = statements(kernel);
    let cond = body.remove(body.len() - 2);
    let Stmt::Let(value, _) = cond else { panic!("{cond:?} is not the condition") };
    body.insert(0, cond);
    let guarded = body.remove(at + 1);
    body.insert(at + 1, Stmt::If { cond: value, body: vec![guarded] });
}

#[test]
fn refuses_carried_values_that_do_not_fit() {
    check_of(
        rows,
        &[
            (|k| k.types[7] = INDEX, "%7 is index, not f32"),
            (|k| k.types[10] = F32X4, "%10 is f32x4, not f32"),
            (|k| carried(k).start = ZERO, "%7 is f32, not index"),
            (|k| carried(k).start = NEXT, "%9 is used where it is not defined"),
            (|k| carried(k).next = PART, "%10 is used where it is not defined"),
            (|k| carried(k).next = WHOLE, "%14 is used where it is not defined"),
            (|k| carried(k).next = THREAD, "%4 is index, not f32"),
            (|k| carried(k).out = WHOLE, "%10 is used where it is not defined"),
            (|k| carried(k).out = Value(99), "%99 has no type"),
            (|k| carried(k).var = IDENTITY, "%3 is defined twice"),
            (|k| fold(k).over = vec![GIVEN], "%7 is used where it is not defined"),
            (
                |k| {
                    let Stmt::Loop { kind, .. } = &mut statements(k)[0] else {
                        panic!("the loop over elements")
                    };
                    *kind = LoopKind::Team;
                },
                "iterations that are dealt out hand nothing on",
            ),
        ],
    );
}

#[test]
fn refuses_folds_whose_parts_disagree() {
    check_of(
        rows,
        &[
            (|k| fold(k).identity.push(IDENTITY), "a fold of 1 values makes 2"),
            (|k| fold(k).results.clear(), "a fold of 1 values makes 0"),
            (|k| fold(k).over = vec![THREAD], "%4 is index, not f32"),
            (|k| fold(k).over = vec![TERM], "%8 is used where it is not defined"),
            (|k| fold(k).times = Some(IDENTITY), "only one float of lanes is multiplied"),
            (|k| fold(k).identity = vec![ZERO], "%10 is f32, not index"),
            (|k| fold(k).results = vec![NEXT], "%9 is used where it is not defined"),
            (|k| fold(k).left = vec![PART], "%10 is defined twice"),
            (|k| k.types[12] = INDEX, "%10 is f32, not index"),
            (|k| k.types[14] = INDEX, "%10 is f32, not index"),
            (|k| fold(k).out = vec![Value(99)], "%99 has no type"),
            (
                |k| fold(k).body.push(Stmt::Store(Address::new(OUT, ZERO), IDENTITY)),
                "the function of a fold does more than compute",
            ),
            (
                |k| fold(k).body.push(Stmt::Let(TERM, Expr::Load(Address::new(A, ZERO)))),
                "the function of a fold does more than compute",
            ),
        ],
    );
    check_of(
        largest,
        &[
            (|k| fold(k).over[0] = Value(2), "%2 is f32, not f32x*"),
            (|k| fold(k).times = Some(Value(3)), "only one float of lanes is multiplied"),
            (|k| fold(k).over.swap(0, 1), "%4 is indexx*, not f32x*"),
            (|k| fold(k).identity[0] = Value(3), "%3 is used where it is not defined"),
            (|k| fold(k).results[0] = Value(3), "%3 is f32x*, not f32"),
            (|k| fold(k).out.truncate(1), "a fold of 2 values makes 1"),
            (|k| fold(k).out.swap(0, 1), "%3 is f32x*, not indexx*"),
        ],
    );
}

#[test]
fn refuses_what_not_all_threads_do_together() {
    check_of(
        rows,
        &[
            (|k| guard(k, 1), "threads combine what not all of them have"),
            (|k| *row_loop(k).0 = LoopKind::Grid, "threads combine what not all of them have"),
            // The first row, and so the number of rows, then differs between the threads of a team.
            (|k| *row_loop(k).1 = THREAD, "threads combine what not all of them have"),
            (|k| guard(k, 3), "a barrier that not all threads reach"),
            (|k| guard(k, 5), "a shuffle that not all threads of a warp come to"),
            (
                |k| {
                    let Stmt::Loop { body, .. } = &mut statements(k)[0] else {
                        panic!("the loop over elements")
                    };
                    body.push(Stmt::Barrier(Scope::Block));
                },
                "a barrier that not all threads reach",
            ),
        ],
    );
}

#[test]
fn refuses_shared_memory_that_is_not_there() {
    check_of(
        rows,
        &[
            (|k| k.shared.clear(), "there is no shared memory 0"),
            (|k| k.shared[0].dtype = DType::I32, "f32 in shared memory of i32"),
            (
                |k| statements(k)[2] = Stmt::StoreShared(SharedId(1), THREAD, WHOLE),
                "there is no shared memory 1",
            ),
            (|k| statements(k)[2] = Stmt::StoreShared(MEMORY, WHOLE, WHOLE), "%14 is f32, not index"),
            (
                |k| statements(k)[2] = Stmt::StoreShared(MEMORY, THREAD, THREAD),
                "index in shared memory of f32",
            ),
            (|k| *maker(k, BACK) = Expr::LoadShared(MEMORY, WHOLE), "%14 is f32, not index"),
            (|k| *maker(k, OTHER) = Expr::Shuffle(ZERO, Shuffle::First), "%1 is index, not f32"),
            (|k| *maker(k, THREAD) = Expr::Shuffle(IDENTITY, Shuffle::First), "%3 is f32, not index"),
        ],
    );
}

#[test]
fn what_is_made_together_is_printed() {
    let text = "kernel sample (index: 32 bits)
  buffer 0: read f32 a
  buffer 1: write f32 out
  uniform 0: index n
  shared 0: f32[32]
  teams of 32 threads
  %0: index = uniform 0 (n)
  %1: index = 0
  %2: index = 32
  %3: f32 = 0.0
  %4: index = team id
  for %5 in %1..%0 step %2 (team)
    for %6 in %4..%0 step %2 (serial)
      %8: f32 = load a[%6]
      %9: f32 = Add %7, %8
      %10 = %7 from %3, then %9
    team %14 = fold %10 from %3
      of %11 and %12
      %13: f32 = Add %11, %12
      give %13
    store shared 0[%4] = %14
    barrier
    %15: f32 = load shared 0[%1]
    %16: f32 = shuffle %15 down 1
    %17: bool = Eq %4, %1
    if %17
      store out[%5] = %16
";
    assert_eq!(rows().to_string(), text);
    let text = "kernel sample (index: 32 bits)
  buffer 0: read f32 a
  buffer 1: write f32 out
  uniform 0: index n
  %0: index = uniform 0 (n)
  %1: index = 0
  %2: f32 = -1.0
  vector %0
    %3: f32x* = load a[%1]
    %4: indexx* = lane index
    %12, %13 = fold %3, %4 from %2, %1
      of %5, %6 and %7, %8
      %9: bool = Gt %7, %5
      %10: f32 = Select %9, %7, %5
      %11: index = Select %9, %8, %6
      give %10, %11
  store out[%13] = %12
";
    assert_eq!(largest().to_string(), text);
}

/// Verifies statements under a condition on a thread's number, shifted right by `shift`.
fn in_warps(shift: Option<i64>, guarded: Vec<Stmt>, shuffles: bool) -> Result<(), String> {
    let (mut types, mut uniforms, mut top, mut body) = (Vec::new(), Vec::new(), Vec::new(), guarded);
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut top };
    let thread = b.builtin(Builtin::GridId);
    let (zero, number) = (b.index(0), b.index(shift.unwrap_or(0)));
    let of = if shift.is_some() { b.apply(Op::ShrRaw, &[thread, number]) } else { thread };
    let x = b.bind(F32, Expr::Load(Address::new(A, of)));
    let cond = b.apply(Op::Eq, &[of, zero]);
    if shuffles {
        Builder { types: &mut types, uniforms: &mut uniforms, body: &mut body }
            .bind(F32, Expr::Shuffle(x, Shuffle::Down(1)));
    }
    top.push(Stmt::If { cond, body });
    kernel(&Kernel { threads: TEAM, ..empty(types, uniforms, top) })
}

/// All threads of a warp reach a barrier if the condition does not depend on the lane's bits of a thread's
/// number.
#[test]
fn warps_are_whole_where_they_decide_together() {
    let barrier = |among| vec![Stmt::Barrier(among)];
    assert_eq!(in_warps(Some(5), barrier(Scope::Warp), true), Ok(()));
    assert_eq!(in_warps(Some(7), barrier(Scope::Warp), true), Ok(()));
    for (shift, guarded, shuffles, expect) in [
        (Some(4), vec![], true, "a shuffle that not all threads of a warp come to"),
        (None, vec![], true, "a shuffle that not all threads of a warp come to"),
        (Some(4), barrier(Scope::Warp), false, "a barrier that not all threads reach"),
        (Some(5), barrier(Scope::Block), false, "a barrier that not all threads reach"),
        (Some(5), barrier(Scope::Team), false, "a barrier that not all threads reach"),
    ] {
        let refused = in_warps(shift, guarded, shuffles).expect_err("not all are there");
        assert!(refused.starts_with(expect), "{shift:?}: {refused}");
    }
}

/// Verifies an exchange between the blocks of a cluster, and sequences of steps that are invalid.
#[test]
fn refuses_mail_that_does_not_arrive() {
    let in_order = |first: &[ClusterExchange],
                    last: &[ClusterExchange],
                    (cluster, len): (bool, SharedLen),
                    guarded: Option<ClusterExchange>| {
        let (mut types, mut uniforms, mut body) = (Vec::new(), Vec::new(), Vec::new());
        let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut body };
        let (thread, rank) = (b.builtin(Builtin::ThreadId), b.builtin(Builtin::ClusterRank));
        let (x, zero) = (b.f32(1.0), b.index(0));
        let cond = b.apply(Op::Eq, &[thread, zero]);
        body.extend(first.iter().copied().map(Stmt::ClusterExchange));
        let send = Stmt::ClusterExchange(ClusterExchange::Send(MEMORY, thread, rank, x));
        body.push(Stmt::If {
            cond,
            body: guarded.map(Stmt::ClusterExchange).into_iter().chain([send]).collect(),
        });
        body.extend(last.iter().copied().map(Stmt::ClusterExchange));
        let shared = vec![Shared { dtype: DType::F32, len }];
        let threads = ThreadMap { team: 64, cluster, ..ThreadMap::ALONE };
        kernel(&Kernel { threads, shared, ..empty(types, uniforms, body) })
    };
    let (first, last) = (
        [ClusterExchange::Init, ClusterExchange::Wait],
        [ClusterExchange::Receive(MEMORY), ClusterExchange::Invalidate],
    );
    let posted = |cluster: bool, len: SharedLen, guarded: Option<ClusterExchange>| {
        in_order(&first, &last, (cluster, len), guarded)
    };
    assert_eq!(posted(true, SharedLen::ExchangeBuffer, None), Ok(()));
    let branched = [
        ClusterExchange::Init,
        ClusterExchange::Wait,
        ClusterExchange::Receive(MEMORY),
        ClusterExchange::Invalidate,
    ];
    let mut refused: Vec<(Result<(), String>, &str)> = branched
        .map(|exchange| {
            (
                posted(true, SharedLen::ExchangeBuffer, Some(exchange)),
                "a cluster exchange that not all threads reach",
            )
        })
        .into();
    let ordered = |first: &[ClusterExchange], last: &[ClusterExchange]| {
        in_order(first, last, (true, SharedLen::ExchangeBuffer), None)
    };
    refused.push((ordered(&[ClusterExchange::Wait], &last), "Wait of a cluster exchange that is not ready"));
    refused.push((ordered(&[ClusterExchange::Init], &last), "Send("));
    refused.push((ordered(&[], &[]), "Send("));
    refused.push((
        ordered(&[ClusterExchange::Init, ClusterExchange::Init], &last),
        "Init of a cluster exchange that is not ready",
    ));
    refused.push((
        ordered(&first, &[ClusterExchange::Invalidate, ClusterExchange::Receive(MEMORY)]),
        "Receive(",
    ));
    refused.push((
        ordered(&first, &[ClusterExchange::Invalidate, ClusterExchange::Invalidate]),
        "Invalidate of a cluster exchange that is not ready",
    ));
    refused.push((posted(false, SharedLen::ExchangeBuffer, None), "mail in a kernel without clusters"));
    refused.push((posted(true, SharedLen::Fixed(8), None), "shared memory 0 is no exchange buffer"));
    for (result, expect) in refused {
        let message = result.expect_err(expect);
        assert!(message.starts_with(expect), "{message}");
    }
}
