//! Type checking: lowers the syntax tree to typed graphs by resolving names, dtypes and dims. User errors are
//! impossible after this stage.
//!
//! Invariant: a `Source` exists only if every part of the block is correct and all its graphs pass the
//! verifier. Otherwise the `Failure` lists every mistake found.

mod axes;
mod build;
mod call;
mod capture;
mod dims;
mod expr;
mod fit;
mod function;
mod guards;
mod index;
mod inline;
mod library;
mod matmul;
mod order;
mod reduce;
mod rename;
mod renamed;
pub mod session;
mod split;
#[cfg(test)]
mod tests;
mod unroll;
mod value;
mod weak;

use proc_macro2::{Ident, Span, TokenStream};

use crate::diag::Diagnostics;
use crate::ir::dtype::DType;
use crate::ir::graph::{Access, Graph};
use crate::ir::plan::Target;
use crate::parse;
pub use crate::parse::ast::Returns;

/// Checked content of a `fuse!`.
#[derive(Debug)]
pub enum Source {
    /// Exported functions of `fuse! { pub fn … }` in order, and the unused names in each private function.
    Items(Vec<Function>, Vec<Vec<Ident>>),
    /// Expression of `fuse!(relu(a + b) * c)`.
    Inline(Box<Inline>),
}

/// An exported function.
#[derive(Debug)]
pub struct Function {
    /// Index of the function in its block. Several functions under `#[cfg]` may share one name, so the name
    /// is no key.
    pub number: usize,
    /// Graph of the function's body.
    pub graph: Graph,
    /// Signature that the surrounding Rust code sees. A generic function yields several consecutive
    /// `Function`s, one for each dtype of `DType::GENERIC`.
    pub signature: Signature,
    /// Compile options.
    pub options: Options,
    /// Source spans: `SpanId(i)` of the graph is `spans[i]`.
    pub spans: Vec<Span>,
}

/// The Rust side of a function's head.
#[derive(Clone, Debug)]
pub struct Signature {
    /// Documentation, `#[cfg]`, `#[must_use]`, …: every attribute except `#[fuse(…)]`.
    pub attributes: TokenStream,
    /// `pub`, `pub(crate)`, `pub(in path)`, ….
    pub visibility: TokenStream,
    /// Name of the function.
    pub name: Ident,
    /// Type parameter of a generic function.
    pub generic: Option<Ident>,
    /// Names of the parameters, in the order of the graph's parameters. The graph's views, which come last,
    /// are left out.
    pub params: Vec<Ident>,
    /// Types of the parameters, in the order of `params`.
    pub types: Vec<ParamType>,
    /// Element type of each result.
    pub results: Vec<ElementType>,
    /// Return form: one result or a tuple of results.
    pub returns: Returns,
    /// Unused names of the body, for rustc's unused-variable warnings.
    pub unused: Vec<Ident>,
}

/// Options given by attributes, apart from those stored in the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Targets to compile for.
    pub targets: Vec<Target>,
}

/// The inline form.
#[derive(Debug)]
pub struct Inline {
    /// Graph of the expression.
    pub graph: Graph,
    /// Rust expression of each graph parameter except views, in order: tensors and the arguments of
    /// `scalar(…)`.
    pub captures: Vec<TokenStream>,
    /// Compile options.
    pub options: Options,
    /// Source spans: `SpanId(i)` of the graph is `spans[i]`.
    pub spans: Vec<Span>,
}

/// All mistakes in a block.
#[derive(Debug)]
pub struct Failure {
    /// The mistakes.
    pub errors: Diagnostics,
    /// Signatures of stub functions, one for each exported function whose head could be read. Stubs let the
    /// callers of those functions still compile. Mistaken dtypes count as `f32`.
    pub stubs: Vec<Signature>,
}

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// A concrete dtype.
    Is(DType),
    /// The type parameter of a generic function.
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
    /// Any type the caller passes, because the declared type is a mistake.
    Unknown,
}

/// Parses and checks the tokens of a `fuse!`.
///
/// # Errors
/// Returns every mistake in the tokens, with the signatures of stub functions.
pub fn front_end(tokens: TokenStream) -> Result<Source, Failure> {
    if parse::is_items(&tokens) {
        function::items(tokens).map(|(functions, unused)| Source::Items(functions, unused))
    } else {
        inline::inline(tokens)
            .map(|inline| Source::Inline(Box::new(inline)))
            .map_err(|errors| Failure { errors, stubs: vec![] })
    }
}
