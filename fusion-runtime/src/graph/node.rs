//! Nodes as data: every node is a text of the language, and these types write the texts.

use fusion_compiler::ir::dtype::DType;

/// Defines an enum of functions with the text that each has in the language. `Cast` has no text of its own.
macro_rules! functions {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $text:literal),* $(,)? } $($cast:ident)?) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $(#[doc = concat!("`", $text, "` of the language.")] $variant,)*
            $(
                /// A conversion to the second type. The first names the type of the operand, for the reader.
                $cast(PrecisionType, PrecisionType),
            )?
        }

        impl $name {
            /// All operations, without conversions.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// Returns the name in the language.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                    $($name::$cast(..) => "as",)?
                }
            }
        }
    };
}

functions! {
    /// An operation on one value, element by element.
    UnaryOp {
        Abs = "abs", Acos = "acos", Asin = "asin", Atan = "atan", Cbrt = "cbrt", Ceil = "ceil", Cos = "cos",
        Cosh = "cosh", Elu = "elu", Erf = "erf", Erfc = "erfc", Exp = "exp", Exp2 = "exp2", Expm1 = "expm1",
        Floor = "floor", Gelu = "gelu", GeluTanh = "gelu_tanh", Hardsigmoid = "hardsigmoid",
        Hardswish = "hardswish", Hardtanh = "hardtanh", Isfinite = "isfinite", Isinf = "isinf",
        Isnan = "isnan", LeakyRelu = "leaky_relu", Log = "log", Log1p = "log1p", Log2 = "log2",
        LogSigmoid = "log_sigmoid", Mish = "mish", Neg = "-", Not = "!", Recip = "recip", Relu = "relu",
        Relu6 = "relu6", Round = "round", Rsqrt = "rsqrt", Selu = "selu", Sigmoid = "sigmoid", Sign = "sign",
        Silu = "silu", Sin = "sin", Sinh = "sinh", Softplus = "softplus", Softsign = "softsign",
        Sqrt = "sqrt", Square = "square", Tan = "tan", Tanh = "tanh", Trunc = "trunc",
    } Cast
}

functions! {
    /// An operation on two values, element by element.
    BinaryOp {
        Add = "+", Sub = "-", Mul = "*", Div = "/", Rem = "%", And = "&&", Or = "||", BitAnd = "&", BitOr = "|",
        BitXor = "^", Shl = "<<", Shr = ">>", Lt = "<", Le = "<=", Gt = ">", Ge = ">=", Eq = "==", Ne = "!=",
        Max = "max", Min = "min", Pow = "pow", Atan2 = "atan2", Copysign = "copysign", FloorDiv = "floor_div",
        Fmod = "fmod", Logaddexp = "logaddexp", Remainder = "remainder",
    }
}

functions! {
    /// A reduction along dims.
    ReduceOp {
        Sum = "sum", Max = "max", Min = "min", Mean = "mean", Prod = "prod", Var = "var", Std = "std",
        Norm = "norm", Logsumexp = "logsumexp", Argmax = "argmax", Argmin = "argmin", Any = "any", All = "all",
    }
}

/// A memory operation. A fused graph keeps values in registers, so each of them is its operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemOp {
    /// A read.
    Load,
    /// A write.
    Store,
    /// A copy.
    Copy,
}

/// A type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrecisionType {
    /// `f16`.
    Fp16,
    /// `bf16`.
    Bf16,
    /// `f32`.
    Fp32,
    /// `f64`.
    Fp64,
    /// `i8`.
    Int8,
    /// `i32`.
    Int32,
}

impl From<PrecisionType> for DType {
    fn from(precision: PrecisionType) -> DType {
        match precision {
            PrecisionType::Fp16 => DType::F16,
            PrecisionType::Bf16 => DType::BF16,
            PrecisionType::Fp32 => DType::F32,
            PrecisionType::Fp64 => DType::F64,
            PrecisionType::Int8 => DType::I8,
            PrecisionType::Int32 => DType::I32,
        }
    }
}

/// A node of a graph.
///
/// Dims are names of dims in the graph. Operands are those of the call that adds the node, in the order that
/// the variant gives.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Node {
    /// An operation on one operand.
    Unary(UnaryOp),
    /// An operation on two operands. Their dims meet by name.
    Binary(BinaryOp),
    /// A reduction of one operand along dims, or along all its dims if none are given.
    Reduce(ReduceOp, Vec<String>),
    /// A conversion of one operand to a type.
    Cast(DType),
    /// One operand, unchanged.
    Memory(MemOp),
    /// A constant for each element of the dims, without an operand. The constant is rounded to the
    /// type as a cast rounds it: an integer drops the fraction and saturates. A `bool` is true for all numbers
    /// but 0.
    Fill(f64, DType, Vec<String>),
    /// The product of two operands, summed along a dim that both have: a matrix product.
    Matmul(String),
    /// A convolution of an operand with dims `[…, C, H, W]` by one with dims `[O, C, KH, KW]`.
    Conv2d(Conv2d),
    /// `softmax` of one operand along a dim.
    Softmax(String),
    /// `log_softmax` of one operand along a dim.
    LogSoftmax(String),
    /// `layer_norm` of one operand along dims, with this `eps`. Scale and bias are nodes of their own.
    LayerNorm(Vec<String>, f64),
    /// `rms_norm` of one operand along dims, with this `eps`.
    RmsNorm(Vec<String>, f64),
    /// `batch_norm` of an operand by its running mean and variance, with this `eps`: three operands.
    BatchNorm(f64),
    /// `group_norm` of one operand.
    GroupNorm {
        /// Dim of the channels.
        channels: String,
        /// Number of groups, which divides the number of channels.
        groups: usize,
        /// The other dims of a group.
        dims: Vec<String>,
        /// Number that is added to the variance.
        eps: f64,
    },
    /// Attention of queries, keys and values, three operands: `softmax(q · k · scale) · v`.
    Attention(Attention),
}

/// The dims and numbers of a two-dimensional convolution, as PyTorch's `conv2d` has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conv2d {
    /// Dim of the input channels, which input and weights have.
    pub channels: String,
    /// Height and width of the input, of the weights, and of the result. The last two are new dims.
    pub dims: [[String; 2]; 3],
    /// Steps between positions, for height and width.
    pub stride: [usize; 2],
    /// Zeros before and after, for height and width.
    pub padding: [usize; 2],
    /// Distance of the weights' positions, for height and width.
    pub dilation: [usize; 2],
}

/// The dims and options of attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Dim of the positions of queries.
    pub queries: String,
    /// Dim of the positions of keys and values.
    pub keys: String,
    /// Dim that queries and keys are multiplied along.
    pub features: String,
    /// Scale of the scores, or none for the reciprocal square root of the number of features.
    pub scale: Option<f64>,
    /// True if a query sees only keys at its own position and before.
    pub causal: bool,
}

/// The names that the texts of nodes give to their operands.
pub(super) const OPERANDS: [&str; 3] = ["a", "b", "c"];

impl Node {
    /// Returns the number of operands.
    pub fn arity(&self) -> usize {
        match self {
            Node::Fill(..) => 0,
            Node::Binary(_) | Node::Matmul(_) | Node::Conv2d(_) => 2,
            Node::BatchNorm(_) | Node::Attention(_) => 3,
            Node::Unary(_)
            | Node::Reduce(..)
            | Node::Cast(_)
            | Node::Memory(_)
            | Node::Softmax(_)
            | Node::LogSoftmax(_)
            | Node::LayerNorm(..)
            | Node::RmsNorm(..)
            | Node::GroupNorm { .. } => 1,
        }
    }

    /// Returns the dims that the node names.
    pub(super) fn dims(&self) -> Vec<&str> {
        match self {
            // The dims of a constant may have extents, and are parsed as such.
            Node::Fill(..)
            | Node::Unary(_)
            | Node::Binary(_)
            | Node::Cast(_)
            | Node::Memory(_)
            | Node::BatchNorm(_) => vec![],
            Node::Reduce(_, dims) | Node::LayerNorm(dims, _) | Node::RmsNorm(dims, _) => {
                dims.iter().map(String::as_str).collect()
            }
            Node::Matmul(dim) | Node::Softmax(dim) | Node::LogSoftmax(dim) => vec![dim],
            Node::Conv2d(conv) => {
                conv.dims.as_flattened().iter().chain([&conv.channels]).map(String::as_str).collect()
            }
            Node::GroupNorm { channels, dims, .. } => {
                dims.iter().chain([channels]).map(String::as_str).collect()
            }
            Node::Attention(Attention { queries, keys, features, .. }) => vec![queries, keys, features],
        }
    }

    /// Returns the node in the language. The operands are `a`, `b` and `c`.
    pub fn text(&self) -> String {
        match self {
            Node::Unary(UnaryOp::Cast(_, to)) => format!("a as {}", DType::from(*to)),
            Node::Unary(op) => format!("{}(a)", op.name()),
            Node::Binary(op) if op.name().starts_with(char::is_alphabetic) => format!("{}(a, b)", op.name()),
            Node::Binary(op) => format!("a {} b", op.name()),
            Node::Reduce(op, dims) if dims.is_empty() => format!("{}(a)", op.name()),
            Node::Reduce(op, dims) => format!("{}(a, {})", op.name(), tuple(dims)),
            Node::Cast(dtype) => format!("a as {dtype}"),
            Node::Memory(MemOp::Load | MemOp::Store | MemOp::Copy) => String::from("a"),
            Node::Fill(value, dtype, dims) => format!("{} as {dtype}[{}]", number(*value), dims.join(", ")),
            Node::Matmul(dim) => format!("sum(a * b, {dim})"),
            Node::Conv2d(conv) => conv.text(),
            Node::Softmax(dim) => format!("softmax(a, {dim})"),
            Node::LogSoftmax(dim) => format!("log_softmax(a, {dim})"),
            Node::LayerNorm(dims, eps) => format!("layer_norm(a, {}, {})", tuple(dims), number(*eps)),
            Node::RmsNorm(dims, eps) => format!("rms_norm(a, {}, {})", tuple(dims), number(*eps)),
            Node::BatchNorm(eps) => format!("batch_norm(a, b, c, {})", number(*eps)),
            Node::GroupNorm { channels, groups, dims, eps } => {
                format!("group_norm(a, {channels}, {groups}, {}, {})", tuple(dims), number(*eps))
            }
            Node::Attention(attention) => attention.text(),
        }
    }
}

impl Conv2d {
    fn text(&self) -> String {
        let Conv2d { channels, dims: [input, weights, result], stride, padding, dilation } = self;
        let window = |i: usize| format!("({}, {}) -> {}", input[i], weights[i], result[i]);
        let pair = |of: &[usize; 2]| format!("({}, {})", of[0], of[1]);
        format!(
            "conv(a, b, {channels}, {}, {}, stride = {}, padding = {}, dilation = {})",
            window(0),
            window(1),
            pair(stride),
            pair(padding),
            pair(dilation)
        )
    }
}

impl Attention {
    fn text(&self) -> String {
        let Attention { queries, keys, features, scale, causal } = self;
        let scale = scale.map_or_else(|| format!("rsqrt({features})"), number);
        let scores = format!("let scores = sum(a * b, {features}) * {scale}; ");
        let seen = if *causal {
            format!("if index({keys}) <= index({queries}) {{ scores }} else {{ -INF }}")
        } else {
            String::from("scores")
        };
        format!("{scores}let seen = {seen}; sum(softmax(seen, {keys}) * c, {keys})")
    }
}

/// Returns dims as the language takes them: `D`, or `(H, W)`.
fn tuple(dims: &[String]) -> String {
    match dims {
        [dim] => dim.clone(),
        dims => format!("({})", dims.join(", ")),
    }
}

/// Returns a number as the language writes it.
pub(super) fn number(value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "" };
    match value {
        value if value.is_nan() => String::from("NAN"),
        value if value.is_infinite() => format!("{sign}INF"),
        value => format!("{value:?}"),
    }
}
