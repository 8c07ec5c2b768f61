//! The syntax tree: the user's source before name resolution and typing.
//!
//! Invariant: the tree is plain data without compiler tokens. The standard library can therefore be parsed
//! once per process and outlive a macro call. A token's place is its index in `Places`.

/// A token, by its index in the `Places` of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct At(pub(crate) u32);

/// A word and its place.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) at: At,
}

/// An expression. `at` is the token of its operator, name or literal.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    pub(crate) at: At,
    /// Height of the tree, bounded so that no traversal overflows the stack.
    pub(crate) depth: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    /// An integer literal and its suffix.
    Int(u64, Option<String>),
    /// A number with a decimal point, exponent or float suffix.
    Float(f64, Option<String>),
    Bool(bool),
    /// A value, a dim, a constant or, in the inline form, a captured variable.
    Name(String),
    Unary(Unary, Box<Expr>),
    /// `a + b - c`: the first operand, and the operations applied from left to right. A chain is one level of
    /// the tree, however long it is.
    Chain(Box<Expr>, Vec<Link>),
    /// `x as f32`.
    Cast(Box<Expr>, Name),
    If(Box<Expr>, Box<Block>, Box<Block>),
    /// `f(x)`.
    Call(String, Vec<Arg>),
    /// `x.f()`: a call with the receiver as its first argument.
    Method(String, Vec<Arg>),
    Tuple(Vec<Expr>),
    /// `C = 3` in a tuple: a dim and its extent.
    Sized(String, u64),
    /// `T -> S` among the arguments of a call.
    Arrow(Box<Expr>, Box<Expr>),
    /// `0..D`, `1..` or `..D` among the arguments of a call.
    Range(Option<Box<Expr>>, Option<Box<Expr>>),
    /// Index of an inline capture: a path, a braced Rust expression, or any operand with dims.
    Capture(usize),
    /// Index of an inline capture `scalar(…)`.
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

/// An argument. `eps = 1e-5` has a name.
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

/// Names for a value, or for each part of a tuple. `_` binds nothing.
#[derive(Clone, Debug)]
pub(crate) enum Pattern {
    Name(Name),
    Tuple(Vec<Name>, At),
}

/// One dim of a tensor type: `N`, `C = 3`, or `3`, an axis named by its extent.
#[derive(Clone, Debug)]
pub(crate) struct Dim {
    pub(crate) name: Name,
    pub(crate) extent: Option<i64>,
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
    /// A parameter that is typed at each call.
    Untyped,
    /// `D: dim`.
    Dim,
    /// `lr: f32`.
    Scalar(Name),
    /// `x: f32[N]`.
    Tensor(TensorType),
    /// `p: &mut f32[N]`.
    InPlace(TensorType),
    /// A parameter that could not be parsed, already reported.
    Mistaken,
}

/// A function of the block or of the standard library.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) name: Name,
    pub(crate) exported: bool,
    /// True for an exported function with a `#[cfg]`. Several such functions may share a name.
    pub(crate) conditional: bool,
    pub(crate) generics: Vec<Name>,
    pub(crate) params: Vec<Param>,
    /// Result types, or `None` without `->`.
    pub(crate) results: Option<Vec<TensorType>>,
    /// Return form: one result or a tuple of results.
    pub(crate) returns: Returns,
    pub(crate) body: Block,
    /// Every name that the body mentions.
    pub(crate) mentions: Vec<String>,
    /// Names of `let`s that no later code mentions.
    pub(crate) unused: Vec<Name>,
    /// Part of the function that could not be parsed, already reported.
    pub(crate) broken: Broken,
}

/// The part of a function that could not be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Broken {
    Nothing,
    /// The body alone. The head is complete.
    Body,
    Head,
}

/// The form in which a function returns results. `(f32[N],)` is a tuple, as in Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// The value itself.
    One,
    /// A tuple of any length.
    Tuple,
}

impl Function {
    /// Returns the tensor types of the signature, in order.
    pub(crate) fn types(&self) -> impl Iterator<Item = &TensorType> {
        self.params.iter().filter_map(Param::tensor).chain(self.results.iter().flatten())
    }

    /// Returns true if the signature is complete, so that the function can be checked independently of its
    /// calls.
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
    /// Returns the tensor type of the parameter, if it has one.
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
    /// Returns the operator as users write it.
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

    /// Returns the operator of this symbol with its precedence, which follows Rust. Higher binds tighter.
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

/// Precedence of comparisons, which do not associate.
pub(crate) const COMPARISON: u8 = 3;
