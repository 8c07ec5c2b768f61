//! Syntax tree → typed graph: names, dtypes, dims. The last place a user can be wrong.
//!
//! Invariant: a `Source` is given out only if nothing is wrong with any part of the block, and its graphs
//! pass the verifier; otherwise the `Failure` holds every mistake found.

mod build;
mod call;
mod dims;
mod expr;
mod function;
mod guards;
mod index;
mod inline;
mod library;
mod order;
mod portion;
mod reduce;
mod rename;
mod renamed;
mod split;
#[cfg(test)]
mod tests;
mod unroll;
mod weak;

use proc_macro2::{Ident, Span, TokenStream};

use crate::diag::Diagnostics;
use crate::ir::dtype::DType;
use crate::ir::graph::{Access, Graph};
use crate::ir::plan::Target;
use crate::parse;
pub use crate::parse::ast::Returns;

/// What a `fuse!` holds.
#[derive(Debug)]
pub enum Source {
    /// The exported functions of `fuse! { pub fn … }`, in order, and the names in each other function that nothing uses.
    Items(Vec<Function>, Vec<Vec<Ident>>),
    /// The expression of `fuse!(relu(a + b) * c)`.
    Inline(Box<Inline>),
}

/// An exported function.
#[derive(Debug)]
pub struct Function {
    /// Its place among those of its block: of several under a `#[cfg]` each, all have one name.
    pub number: usize,
    /// What it computes.
    pub graph: Graph,
    /// What the surrounding Rust code sees of it. A generic function is several, one after another, for each of
    /// `DType::GENERIC`.
    pub signature: Signature,
    /// How to compile it.
    pub options: Options,
    /// `SpanId(i)` of the graph is `spans[i]`.
    pub spans: Vec<Span>,
}

/// The Rust side of a function's head.
#[derive(Clone, Debug)]
pub struct Signature {
    /// Documentation, `#[cfg]`, `#[must_use]`, …: everything but `#[fuse(…)]`.
    pub attributes: TokenStream,
    /// `pub`, `pub(crate)`, `pub(in path)`, ….
    pub visibility: TokenStream,
    /// Name of the function.
    pub name: Ident,
    /// The type that it is generic over.
    pub generic: Option<Ident>,
    /// Names of the parameters, in the order of the graph's, which ends with views of them.
    pub params: Vec<Ident>,
    /// Types of the parameters, in the same order.
    pub types: Vec<ParamType>,
    /// Types of the elements of each result.
    pub results: Vec<ElementType>,
    /// One result or a tuple of them.
    pub returns: Returns,
    /// The names in its body that nothing uses, of which Rust is to warn.
    pub unused: Vec<Ident>,
}

/// What attributes ask for, besides what the graph says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Compile for these.
    pub targets: Vec<Target>,
}

/// The inline form.
#[derive(Debug)]
pub struct Inline {
    /// What it computes.
    pub graph: Graph,
    /// The Rust expression of each parameter of the graph but views, in order: tensors and the insides of `scalar(…)`.
    pub captures: Vec<TokenStream>,
    /// How to compile it.
    pub options: Options,
    /// `SpanId(i)` of the graph is `spans[i]`.
    pub spans: Vec<Span>,
}

/// Everything that is wrong with a block.
#[derive(Debug)]
pub struct Failure {
    /// The mistakes.
    pub errors: Diagnostics,
    /// One for each exported function whose head could be read, so that its callers still compile. Mistaken dtypes count as
    /// `f32`.
    pub stubs: Vec<Signature>,
}

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// This one.
    Is(DType),
    /// What the function is generic over.
    Generic,
}

/// The type of a parameter, as far as Rust sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamType {
    /// `&Tensor<T>`, or `&mut Tensor<T>` for `Access::ReadWrite`.
    Tensor(ElementType, Access),
    /// A number or truth value of the host.
    Scalar(ElementType),
    /// An extent.
    Dim,
    /// Whatever the caller passes: the type is a mistake.
    Unknown,
}

/// Reads the tokens of a `fuse!`.
///
/// # Errors
/// Every mistake in the tokens, and what is needed for stand-ins of the functions.
pub fn front_end(tokens: TokenStream) -> Result<Source, Failure> {
    if parse::is_items(&tokens) {
        function::items(tokens).map(|(functions, unused)| Source::Items(functions, unused))
    } else {
        inline::inline(tokens)
            .map(|inline| Source::Inline(Box::new(inline)))
            .map_err(|errors| Failure { errors, stubs: vec![] })
    }
}
