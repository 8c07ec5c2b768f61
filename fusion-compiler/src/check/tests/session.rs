//! Functions that are checked part by part.

use crate::check::session::{Mistakes, ParamType, Returned, Session, ValueId};
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{Graph, NodeKind};
use crate::ir::plan::Target;
use crate::ir::verify;
use crate::{kernel_boundaries, optimize};

fn tensor(session: &mut Session, name: &str, dims: &str) -> ValueId {
    session
        .param(name, ParamType::Tensor(DType::F32, dims))
        .expect("the dims are right")
        .expect("a tensor has a value")
}

fn add(session: &mut Session, text: &str, names: &[(&str, ValueId)]) -> ValueId {
    session.text(text, names, Some(1)).unwrap_or_else(|mistakes| panic!("{text}: {mistakes:?}"))[0]
}

fn graph(session: &Session, value: ValueId) -> Graph {
    let graph = session.returning(&[Returned { value, dims: None }]).expect("the result fits");
    assert_eq!(verify::graph(&graph), Ok(()));
    graph
}

fn message(result: Result<Vec<ValueId>, Mistakes>) -> (String, u32) {
    let mistake = result.expect_err("a mistake").remove(0);
    (mistake.message, mistake.column)
}

/// A mistake anywhere in a text leaves no trace: dims, checks, nodes and views are those from before.
#[test]
fn mistakes_leave_the_session_as_it_was() {
    let mut session = Session::new("f");
    let x = tensor(&mut session, "x", "N, D = 6");
    let before = format!("{:?}", session);
    for text in [
        "let a = rename(x, N -> M); let b = split(x, D -> (A = 2, B)); sum(a * b, A) + nothing",
        "let s = slice(x, N -> K, 1..); softmax(s, Q)",
        "concat((x, N), (x, N) -> Twice) + flip(x, Z)",
        "x + 1u32",
        "let y = x",
    ] {
        let _ = message(session.text(text, &[("x", x)], Some(1)));
        assert_eq!(format!("{session:?}"), before, "{text}");
    }
    assert!(session.param("y", ParamType::Tensor(DType::F32, "D = 7")).is_err());
    assert_eq!(format!("{session:?}"), before);
}

/// Dims that a text makes are its own. Another text may give the same name to other dims. Later texts see
/// dims of values.
#[test]
fn names_of_texts_end_with_them() {
    let mut session = Session::new("f");
    let x = tensor(&mut session, "x", "N");
    let a = add(&mut session, "let s = slice(x, N -> K, 1..); sum(s, K)", &[("x", x)]);
    let b = add(&mut session, "let s = slice(x, N -> K, 3..); sum(s, K)", &[("x", x)]);
    let c = add(&mut session, "slice(x, N -> J, 2..)", &[("x", x)]);
    assert_eq!(
        (session.dims(a), session.dims(b), session.dims(c)),
        (vec![], vec![], vec![String::from("J")])
    );
    let d = add(&mut session, "sum(c, J) + a * b", &[("a", a), ("b", b), ("c", c)]);
    graph(&session, d);
    let (text, column) = message(session.text("sum(c, K)", &[("c", c)], Some(1)));
    assert!(text.starts_with("there is no dim `K` here"), "{text}");
    assert_eq!(column, 8);
}

#[test]
fn columns_count_line_breaks_and_letters_of_several_bytes() {
    let mut session = Session::new("f");
    let x = tensor(&mut session, "größe", "N");
    let (_, column) = message(session.text("let y =\n größe;\ny + z", &[("größe", x)], Some(1)));
    assert_eq!(column, 21);
}

/// Tokens of texts have places by part. A value made by a part is where the part has it.
#[test]
fn places_are_parts_and_columns() {
    let mut session = Session::new("f");
    let x = tensor(&mut session, "x", "N, D");
    let y = add(&mut session, "1.0 + softmax(x, D)", &[("x", x)]);
    let z = add(&mut session, "sum(y, N)", &[("y", y)]);
    let targets = kernel_boundaries(graph(&session, z), &Target::ALL);
    for one in &targets {
        assert_eq!(one.kernels, 2, "{one:?}");
        let place = session.place(one.boundaries[0].span);
        assert_eq!((place.part, place.column), (2, 7));
    }
}

/// Operations on constants that fill dims are computed before the kernels.
#[test]
fn constants_fold_before_they_fill() {
    let mut session = Session::new("f");
    let x = tensor(&mut session, "x", "N");
    let half = session.filled(Const::Float(0.5), DType::F32, "N, M = 4").expect("the dims are right");
    let y = add(&mut session, "x * relu(half - 1.0)", &[("x", x), ("half", half)]);
    let graph = optimize(graph(&session, y));
    let computed = graph.nodes.iter().filter(|node| matches!(node.kind, NodeKind::Apply(_)));
    assert_eq!(computed.count(), 1, "{graph}");
}

/// A cut replaces values by parameters, and what made them is gone.
#[test]
fn graphs_between_values() {
    let mut session = Session::new("f");
    let x = tensor(&mut session, "x", "N, D");
    let y = add(&mut session, "exp(x)", &[("x", x)]);
    let z = add(&mut session, "sum(y, D)", &[("y", y)]);
    let cut = session.between(&[y], &[Returned { value: z, dims: None }]).expect("the result fits");
    assert_eq!(verify::graph(&cut), Ok(()));
    let cut = optimize(cut);
    assert!(cut.nodes.iter().all(|node| !matches!(node.kind, NodeKind::Apply(_))), "{cut}");
}
