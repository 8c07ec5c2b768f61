//! Tests of the front end: the graphs of a source, or its messages.

use std::str::FromStr;

use proc_macro2::TokenStream;

use super::{Failure, Source, front_end};
use crate::ir::graph::Graph;
use crate::ir::verify;

mod diagnostics;
mod dtypes;
mod forms;
mod fuzz;
mod hints;
mod session;
mod standard;

/// Returns the text of a source's graphs, or all messages, one per line.
fn text(source: &str) -> Result<String, String> {
    let graphs = graphs(source)?;
    Ok(graphs.iter().map(Graph::to_string).collect())
}

/// Returns the verified graphs of a source, or all messages.
fn graphs(source: &str) -> Result<Vec<Graph>, String> {
    let tokens = TokenStream::from_str(source).unwrap_or_else(|error| panic!("{source}: {error}"));
    let graphs = match front_end(tokens) {
        Ok(Source::Items(functions, _)) => functions.into_iter().map(|function| function.graph).collect(),
        Ok(Source::Inline(inline)) => vec![inline.graph],
        Err(Failure { errors, .. }) => {
            assert!(!errors.is_empty(), "{source}: refused without a message");
            return Err(errors.messages().collect::<Vec<_>>().join("\n"));
        }
    };
    for graph in &graphs {
        if let Err(what) = verify::graph(graph) {
            panic!("{source}\n{what}\n{graph}");
        }
    }
    Ok(graphs)
}

/// Asserts the nodes and outputs of a source with one graph, without indentation.
fn check(source: &str, expect: &[&str]) {
    let text = text(source).unwrap_or_else(|errors| panic!("{source}\n{errors}"));
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    assert_eq!(lines, expect, "{source}\n{text}");
}
