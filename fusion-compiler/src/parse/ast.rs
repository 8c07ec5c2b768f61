//! The syntax tree: what the user wrote, before anything is known about it.
//!
//! Invariant: plain data without compiler tokens, so that the standard library is parsed once per process
//! and outlives a macro call. A token's place is its number in `Places`.

use crate::ir::graph::Portion;

/// A token, by its number in the `Places` of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct At(pub(crate) u32);

/// A word and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) at: At,
}

/// An expression; `at` is its operator, its name or its literal.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    pub(crate) at: At,
    /// Levels of the tree below and including this one, bounded so that no walk overflows the stack.
    pub(crate) depth: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    /// A whole number and its suffix.
    Int(u64, Option<String>),
    /// A number with a point, exponent or float suffix.
    Float(f64, Option<String>),
    Bool(bool),
    /// A value, a dim, a constant or, inline, a captured variable.
    Name(String),
    Unary(Unary, Box<Expr>),
    /// `a + b - c`: what it starts with, and what is done to it in turn. One level, however long.
    Chain(Box<Expr>, Vec<Link>),
    /// `x as f32`.
    Cast(Box<Expr>, Name),
    If(Box<Expr>, Box<Block>, Box<Block>),
    /// `f(x)`.
    Call(String, Vec<Arg>),
    /// `x.f()`: a call with the receiver first.
    Method(String, Vec<Arg>),
    Tuple(Vec<Expr>),
    /// `C = 3` among several: a dim and its extent.
    Sized(String, u64),
    /// `T -> S` among the arguments of a call.
    Arrow(Box<Expr>, Box<Expr>),
    /// `0..D`, `1..` or `..D` among the arguments of a call.
    Range(Option<Box<Expr>>, Option<Box<Expr>>),
    /// Inline: a path, a braced Rust expression, or anything with dims; the number of the capture.
    Capture(usize),
    /// Inline: `scalar(…)`; the number of the capture.
    Host(usize),
}

/// `+ b` of a chain.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) op: Binary,
    pub(crate) at: At,
    pub(crate) operand: Expr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Neg,
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    BitAnd,
    BitOr,
    BitXor,
    Shl,
    Shr,
    Lt,
    Le,
    Gt,
    Ge,
    Eq,
    Ne,
    And,
    Or,
}

/// An argument, `eps = 1e-5` with its name.
#[derive(Clone, Debug)]
pub(crate) struct Arg {
    pub(crate) name: Option<Name>,
    pub(crate) value: Expr,
}

#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) stmts: Vec<Stmt>,
    pub(crate) tail: Option<Expr>,
}

#[derive(Clone, Debug)]
pub(crate) enum Stmt {
    Let(Pattern, Expr),
    /// `p = x`, or `(p, q) = x`.
    Assign(Pattern, Expr, At),
    /// `p += x`.
    Update(Name, Binary, Expr, At),
}

/// Names for a value, or for each part of a tuple; `_` is none.
#[derive(Clone, Debug)]
pub(crate) enum Pattern {
    Name(Name),
    Tuple(Vec<Name>, At),
}

/// One dim of a tensor: `N`, `C = 3`, or `3`, an axis of that name and extent; of a parameter also `N: ..L`.
#[derive(Clone, Debug)]
pub(crate) struct Dim {
    pub(crate) name: Name,
    pub(crate) extent: Option<i64>,
    /// What of it the parameter has, before or after which other dim's extent.
    pub(crate) portion: Option<(Portion, Name)>,
}

/// `f32[N, D]`.
#[derive(Clone, Debug)]
pub(crate) struct TensorType {
    pub(crate) dtype: Name,
    pub(crate) dims: Vec<Dim>,
}

#[derive(Clone, Debug)]
pub(crate) struct Param {
    pub(crate) name: Name,
    pub(crate) kind: ParamKind,
    pub(crate) default: Option<Expr>,
}

#[derive(Clone, Debug)]
pub(crate) enum ParamKind {
    /// Typed at each call.
    Untyped,
    /// `D: dim`.
    Dim,
    /// `lr: f32`.
    Scalar(Name),
    /// `x: f32[N]`.
    Tensor(TensorType),
    /// `p: &mut f32[N]`.
    InPlace(TensorType),
    /// What could not be read, already reported.
    Mistaken,
}

/// A function of the block or of the standard library.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) name: Name,
    pub(crate) exported: bool,
    /// Exported, or not, as a `#[cfg]` says: several may have one name.
    pub(crate) conditional: bool,
    pub(crate) generics: Vec<Name>,
    pub(crate) params: Vec<Param>,
    /// `None` where no `->` stands.
    pub(crate) results: Option<Vec<TensorType>>,
    /// One result or a tuple of them.
    pub(crate) returns: Returns,
    pub(crate) body: Block,
    /// Every name the body mentions.
    pub(crate) mentions: Vec<String>,
    /// The names of `let`s that nothing after them mentions.
    pub(crate) unused: Vec<Name>,
    /// Where it could not be read, already reported.
    pub(crate) broken: Broken,
}

/// What of a function could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Broken {
    Nothing,
    /// Its head says what it should.
    Body,
    Head,
}

/// What a function gives: `(f32[N],)` is a tuple, as in Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// The value itself.
    One,
    /// A tuple of any length.
    Tuple,
}

impl Function {
    /// The tensors of its signature, in order.
    pub(crate) fn types(&self) -> impl Iterator<Item = &TensorType> {
        self.params.iter().filter_map(Param::tensor).chain(self.results.iter().flatten())
    }

    /// Whether its signature says everything, so that it can be checked on its own.
    pub(crate) fn is_typed(&self) -> bool {
        let typed = |param: &Param| !matches!(param.kind, ParamKind::Untyped) && param.default.is_none();
        self.exported
            || self.params.iter().all(typed)
                && (self.results.is_some() || self.params.iter().any(Param::is_in_place))
    }
}

impl Pattern {
    pub(crate) fn names(&self) -> &[Name] {
        match self {
            Pattern::Name(name) => std::slice::from_ref(name),
            Pattern::Tuple(names, _) => names,
        }
    }
}

impl Param {
    /// The tensor it is, if it is one.
    pub(crate) fn tensor(&self) -> Option<&TensorType> {
        match &self.kind {
            ParamKind::Tensor(ty) | ParamKind::InPlace(ty) => Some(ty),
            ParamKind::Untyped | ParamKind::Dim | ParamKind::Scalar(_) | ParamKind::Mistaken => None,
        }
    }

    pub(crate) fn is_in_place(&self) -> bool {
        matches!(self.kind, ParamKind::InPlace(_))
    }
}

impl Binary {
    /// As users write it.
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Binary::Add => "+",
            Binary::Sub => "-",
            Binary::Mul => "*",
            Binary::Div => "/",
            Binary::Rem => "%",
            Binary::BitAnd => "&",
            Binary::BitOr => "|",
            Binary::BitXor => "^",
            Binary::Shl => "<<",
            Binary::Shr => ">>",
            Binary::Lt => "<",
            Binary::Le => "<=",
            Binary::Gt => ">",
            Binary::Ge => ">=",
            Binary::Eq => "==",
            Binary::Ne => "!=",
            Binary::And => "&&",
            Binary::Or => "||",
        }
    }

    /// The operator of this symbol, and how tightly it binds (more is tighter), in Rust's order.
    pub(crate) fn of_symbol(symbol: &str) -> Option<(Binary, u8)> {
        Some(match symbol {
            "||" => (Binary::Or, 1),
            "&&" => (Binary::And, 2),
            "<" => (Binary::Lt, COMPARISON),
            "<=" => (Binary::Le, COMPARISON),
            ">" => (Binary::Gt, COMPARISON),
            ">=" => (Binary::Ge, COMPARISON),
            "==" => (Binary::Eq, COMPARISON),
            "!=" => (Binary::Ne, COMPARISON),
            "|" => (Binary::BitOr, 4),
            "^" => (Binary::BitXor, 5),
            "&" => (Binary::BitAnd, 6),
            "<<" => (Binary::Shl, 7),
            ">>" => (Binary::Shr, 7),
            "+" => (Binary::Add, 8),
            "-" => (Binary::Sub, 8),
            "*" => (Binary::Mul, 9),
            "/" => (Binary::Div, 9),
            "%" => (Binary::Rem, 9),
            _ => return None,
        })
    }
}

/// How tightly comparisons bind; two of them do not associate.
pub(crate) const COMPARISON: u8 = 3;
