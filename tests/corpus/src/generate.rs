//! Random functions as source text, each with a bound on the error that its results may have.
//!
//! Invariant: a function depends on its seed alone; what jumps (comparisons, rounding, casts) is applied only to
//! inputs, integers and coordinates, which are the same in every arithmetic.

use std::fmt::Write;

/// The dims of a corpus function: two of any extent, and `C = 3`.
pub const DIMS: [&str; 3] = ["N", "D", "C"];
/// Largest magnitude of the float elements and scalars of an input.
pub const INPUT_MAX: f64 = 4.0;
/// Values of larger magnitude are not computed with.
const MAGNITUDE_MAX: f64 = 1e3;
/// Values with a larger error bound, in units of 2⁻²⁴, are not computed with.
const ERROR_MAX: f64 = 3e4;

/// What a parameter is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `f32[…]`, by numbers of `DIMS`, outermost first.
    Floats(Vec<usize>),
    /// `&mut f32[…]`.
    FloatsMut(Vec<usize>),
    /// `i32[…]`.
    Ints(Vec<usize>),
    /// `f32`.
    Float,
    /// `i32`.
    Int,
}

/// A function of the corpus. All results are `f32`.
#[derive(Clone, Debug)]
pub struct Function {
    /// `f` and the seed.
    pub name: String,
    /// From `pub fn` on.
    pub source: String,
    /// In the order of the signature.
    pub params: Vec<Kind>,
    /// Number of returned tensors.
    pub returned: usize,
    /// For the in-place result, if there is one, and then each returned one: the largest absolute error, for inputs
    /// up to `INPUT_MAX`, of arithmetic in `f32` whose functions are right to a few units in the last place.
    pub errors: Vec<f64>,
}

/// Numbers without a pattern, the same in every run (Steele, Lea and Flood 2014: SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// Below `end`, > 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// Whether a die of so many sides shows its first.
    pub fn one_in(&mut self, sides: usize) -> bool {
        self.below(sides) == 0
    }

    /// From −1 up to 1.
    pub fn signed(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// A float value of the function.
#[derive(Clone, Debug)]
struct Float {
    name: String,
    /// Bit `i` for `DIMS[i]`.
    axes: u8,
    /// Largest magnitude.
    max: f64,
    /// Largest error, in units of 2⁻²⁴.
    error: f64,
    /// The same in every arithmetic.
    exact: bool,
}

/// Name of a function as a text of its operand `{}`, its largest slope over all operands that are allowed, its largest
/// value, given that of the operand, and the error of its own in units of 2⁻²⁴ of that value and 1.
type Unary = (&'static str, f64, fn(f64) -> f64, f64);

/// Continuous functions, on operands kept in their domains.
const UNARY: &[Unary] = &[
    ("sin({})", 1.0, |_| 1.0, 6.0),
    ("cos({})", 1.0, |_| 1.0, 6.0),
    ("tanh({})", 1.0, |_| 1.0, 6.0),
    ("sigmoid({})", 0.25, |_| 1.0, 8.0),
    ("erf({})", 1.2, |_| 1.0, 6.0),
    ("atan({})", 1.0, |_| 1.6, 12.0),
    ("tan(clamp({}, -1.0, 1.0))", 3.5, |_| 1.6, 12.0),
    ("asin(clamp({}, -0.5, 0.5))", 1.2, |_| 0.6, 12.0),
    ("acos(clamp({}, -0.5, 0.5))", 1.2, |_| 2.1, 12.0),
    ("exp(-abs({}))", 1.0, |_| 1.0, 6.0),
    ("exp(clamp({}, -3.0, 3.0))", 21.0, |_| 20.1, 6.0),
    ("exp2(clamp({}, -4.0, 4.0))", 12.0, |_| 16.0, 6.0),
    ("expm1(clamp({}, -2.0, 2.0))", 7.5, |_| 6.4, 6.0),
    ("sinh(clamp({}, -3.0, 3.0))", 10.1, |_| 10.1, 12.0),
    ("cosh(clamp({}, -3.0, 3.0))", 10.1, |_| 10.1, 12.0),
    ("log(abs({}) + 1.0)", 1.0, |x| x.ln_1p(), 8.0),
    ("log2(1.0 + abs({}))", 1.5, |x| 1.5 * x.ln_1p(), 8.0),
    ("log1p(abs({}))", 1.0, |x| x.ln_1p(), 6.0),
    ("sqrt(abs({}) + 1.0)", 0.5, |x| (x + 1.0).sqrt(), 4.0),
    ("rsqrt({0} * {0} + 1.0)", 0.4, |_| 1.0, 8.0),
    ("recip(1.0 + square({}))", 0.7, |_| 1.0, 6.0),
    ("cbrt(abs({}) + 0.5)", 0.6, |x| (x + 0.5).cbrt(), 6.0),
    ("pow(0.5 + abs(clamp({}, -8.0, 8.0)), 1.5)", 4.5, |_| 25.0, 12.0),
    ("{}.relu()", 1.0, |x| x, 1.0),
    ("leaky_relu({}, 0.25)", 1.0, |x| x, 2.0),
    ("abs({})", 1.0, |x| x, 0.0),
    ("-{}", 1.0, |x| x, 0.0),
    ("elu({})", 1.0, |x| x.max(1.0), 6.0),
    ("selu({})", 1.8, |x| 1.1 * x + 1.8, 12.0),
    ("gelu({})", 1.2, |x| x, 16.0),
    ("gelu_tanh({})", 1.2, |x| x, 24.0),
    ("silu({})", 1.2, |x| x, 12.0),
    ("mish({})", 1.2, |x| x, 24.0),
    ("softplus({})", 1.0, |x| x + 1.0, 12.0),
    ("log_sigmoid({})", 1.0, |x| x + 1.0, 12.0),
    ("softsign({})", 1.0, |_| 1.0, 6.0),
    ("hardtanh({})", 1.0, |_| 1.0, 0.0),
    ("hardsigmoid({})", 0.2, |_| 1.0, 8.0),
    ("hardswish({})", 1.5, |x| x, 16.0),
    ("{} * 0.375", 0.375, |x| 0.375 * x, 1.0),
    ("{} / (D + 1)", 1.0, |x| x, 2.0),
    ("1.5 - {}", 1.0, |x| x + 1.5, 1.0),
];

/// Functions that jump, for exact operands up to `INPUT_MAX`, exact themselves; with their largest value.
const JUMPS: &[(&str, f64)] = &[
    ("floor({})", 4.0),
    ("ceil({})", 4.0),
    ("round({})", 4.0),
    ("trunc({})", 4.0),
    ("sign({})", 1.0),
    ("({} % 1.5)", 1.5),
    ("(({} as i32) as f32)", 4.0),
];

/// The function of a seed.
pub fn function(seed: u64) -> Function {
    let mut writer = Writer::new(seed);
    let (params, signature) = writer.signature();
    let ops = 3 + writer.random.below(13);
    for _ in 0..ops {
        writer.step();
    }
    writer.finish(seed, params, &signature)
}

struct Writer {
    random: Random,
    values: Vec<Float>,
    /// Names of integers and their axes; any value of `i32`.
    ints: Vec<(String, u8)>,
    /// Axes that some tensor has.
    axes: u8,
    /// The declaration of `C` is said once.
    fixed: bool,
    body: String,
}

impl Writer {
    fn new(seed: u64) -> Writer {
        let random = Random(seed ^ 0x5eed_c0de);
        Writer { random, values: vec![], ints: vec![], axes: 0, fixed: false, body: String::new() }
    }

    fn signature(&mut self) -> (Vec<Kind>, String) {
        let mut params = Vec::new();
        for i in 0..1 + self.random.below(4) {
            // The first has `N` and `D`, so that both are bound.
            let dims = self.dims(if i == 0 { 3 } else { 0 });
            let mutable = i == 0 && self.random.one_in(4);
            let ints = i > 0 && self.random.one_in(5);
            params.push(match (mutable, ints) {
                (true, _) => Kind::FloatsMut(dims),
                (false, true) => Kind::Ints(dims),
                (false, false) => Kind::Floats(dims),
            });
        }
        (0..self.random.below(3)).for_each(|_| params.push(Kind::Float));
        if self.random.one_in(4) {
            params.push(Kind::Int);
        }
        let declared: Vec<String> =
            params.iter().enumerate().map(|(i, kind)| self.declare(&format!("p{i}"), kind)).collect();
        (params, declared.join(", "))
    }

    /// Dims in any order, those of the mask among them.
    fn dims(&mut self, mask: u8) -> Vec<usize> {
        let mask = mask | [1, 2, 3, 3, 3, 4, 7, 5, 6, 0][self.random.below(10)];
        let mut dims: Vec<usize> = (0..3).filter(|i| mask >> i & 1 == 1).collect();
        for i in (1..dims.len()).rev() {
            let other = self.random.below(i + 1);
            dims.swap(i, other);
        }
        dims
    }

    fn declare(&mut self, name: &str, kind: &Kind) -> String {
        let (ty, dims) = match kind {
            Kind::Floats(dims) => ("f32", dims),
            Kind::FloatsMut(dims) => ("&mut f32", dims),
            Kind::Ints(dims) => ("i32", dims),
            Kind::Float => {
                self.input(name, 0);
                return format!("{name}: f32");
            }
            Kind::Int => {
                self.ints.push((name.into(), 0));
                return format!("{name}: i32");
            }
        };
        let axes = dims.iter().fold(0, |axes, dim| axes | 1 << dim);
        self.axes |= axes;
        if matches!(kind, Kind::Ints(_)) {
            self.ints.push((name.into(), axes));
        } else {
            self.input(name, axes);
        }
        let dims: Vec<&str> = dims.iter().map(|&dim| self.dim(dim)).collect();
        format!("{name}: {ty}[{}]", dims.join(", "))
    }

    fn dim(&mut self, dim: usize) -> &'static str {
        if dim == 2 && !std::mem::replace(&mut self.fixed, true) { "C = 3" } else { DIMS[dim] }
    }

    fn input(&mut self, name: &str, axes: u8) {
        self.values.push(Float { name: name.into(), axes, max: INPUT_MAX, error: 0.0, exact: true });
    }

    /// A value, rather one of the last.
    fn value(&mut self) -> Float {
        let count = self.values.len();
        let back = if self.random.one_in(3) { count } else { count.min(4) };
        self.values[count - 1 - self.random.below(back)].clone()
    }

    fn exact(&mut self) -> Option<Float> {
        let exact: Vec<Float> = self.values.iter().filter(|value| value.exact).cloned().collect();
        if exact.is_empty() { None } else { Some(self.random.pick(&exact).clone()) }
    }

    /// Appends a `let`, unless its value would be out of hand.
    fn step(&mut self) {
        let (text, mut value) = match self.random.below(12) {
            0..=3 => self.unary(),
            4..=6 => self.binary(),
            7 => self.choice(),
            8 => self.reduction(),
            9 => self.of_ints(),
            10 => self.jump(),
            _ => self.fused(),
        };
        if value.max <= MAGNITUDE_MAX && value.error <= ERROR_MAX {
            value.name = format!("v{}", self.values.len());
            let _ = writeln!(self.body, "    let {} = {text};", value.name);
            self.values.push(value);
        }
    }

    fn unary(&mut self) -> (String, Float) {
        let x = self.value();
        let &(text, slope, max, own) = self.random.pick(UNARY);
        let max = max(x.max);
        let error = slope * x.error + own * (max + 1.0);
        (fill(text, &x.name), Float { max, error, exact: false, ..x })
    }

    fn binary(&mut self) -> (String, Float) {
        let (x, y) = (self.value(), self.value());
        let axes = x.axes | y.axes;
        let (a, b) = (&x.name, &y.name);
        let larger = x.max.max(y.max);
        let (text, max, error) = match self.random.below(7) {
            0 => (format!("{a} + {b}"), x.max + y.max, x.error + y.error + x.max + y.max),
            1 => (format!("{a} - {b}"), x.max + y.max, x.error + y.error + x.max + y.max),
            2 | 3 => {
                let max = x.max * y.max;
                (format!("{a} * {b}"), max, x.max * y.error + y.max * x.error + 2.0 * max)
            }
            4 => (format!("{a} / (1.0 + abs({b}))"), x.max, x.error + x.max * (y.error + 6.0)),
            5 => {
                let name = ["min", "max"][self.random.below(2)];
                (format!("{name}({a}, {b})"), larger, x.error.max(y.error))
            }
            _ => (format!("atan2({a}, abs({b}) + 1.0)"), 1.6, x.error + y.error + 2.0 * y.max + 16.0),
        };
        (text, Float { name: String::new(), axes, max, error, exact: false })
    }

    /// `x·y + z`, which becomes an `fma`.
    fn fused(&mut self) -> (String, Float) {
        let (x, y, z) = (self.value(), self.value(), self.value());
        let max = x.max * y.max + z.max;
        let error = x.max * y.error + y.max * x.error + z.error + 2.0 * max;
        let text = match self.random.below(3) {
            0 => format!("{} * {} + {}", x.name, y.name, z.name),
            1 => format!("{} - {} * {}", z.name, x.name, y.name),
            _ => format!("fma({}, {}, {})", x.name, y.name, z.name),
        };
        (text, Float { name: String::new(), axes: x.axes | y.axes | z.axes, max, error, exact: false })
    }

    fn choice(&mut self) -> (String, Float) {
        let ((condition, axes), x, y) = (self.condition(), self.value(), self.value());
        let text = if self.random.one_in(2) {
            format!("if {condition} {{ {} }} else {{ {} }}", x.name, y.name)
        } else {
            format!("select({condition}, {}, {})", x.name, y.name)
        };
        let axes = axes | x.axes | y.axes;
        let (max, error) = (x.max.max(y.max), x.error.max(y.error));
        (text, Float { name: String::new(), axes, max, error, exact: x.exact && y.exact })
    }

    fn condition(&mut self) -> (String, u8) {
        let compare = *self.random.pick(&["<", "<=", ">", ">=", "==", "!="]);
        match (self.random.below(5), self.exact(), self.exact()) {
            (0 | 1, Some(x), Some(y)) => (format!("{} {compare} {}", x.name, y.name), x.axes | y.axes),
            (2, Some(x), _) => (format!("!(isnan({0}) || {0} {compare} 0.5)", x.name), x.axes),
            (3, Some(x), _) => {
                let (int, axes) = self.int();
                (format!("{int} % 3 == 1 && {} {compare} 1.25", x.name), axes | x.axes)
            }
            (_, _, _) => {
                let ((a, a_axes), (b, b_axes)) = (self.int(), self.int());
                (format!("({a} & 7) {compare} ({b} & 7)"), a_axes | b_axes)
            }
        }
    }

    /// An integer expression: a parameter, a coordinate, or the whole part of an exact value.
    fn int(&mut self) -> (String, u8) {
        let axis = self.random.below(3);
        match (self.random.below(4), self.exact()) {
            (0 | 1, _) if !self.ints.is_empty() => self.random.pick(&self.ints).clone(),
            (2, Some(x)) => (format!("({} as i32)", x.name), x.axes),
            (_, _) if self.axes >> axis & 1 == 1 => (format!("index({})", DIMS[axis]), 1 << axis),
            (_, _) => ("index(N)".into(), 1),
        }
    }

    fn of_ints(&mut self) -> (String, Float) {
        let ((a, a_axes), (b, b_axes)) = (self.int(), self.int());
        let int = match self.random.below(8) {
            0 => format!("{a} + {b}"),
            1 => format!("{a} * {b} - 3"),
            2 => format!("{a} / {b}"),
            3 => format!("{a} % {b}"),
            4 => format!("({a} ^ {b}) >> 2"),
            5 => format!("{a} << ({b} & 3) | 5"),
            6 => format!("max({a}, {b}) - D"),
            _ => format!("abs(min({a}, !{b}))"),
        };
        let text = format!("(({int}) & 63) as f32 * 0.0625");
        let axes = a_axes | b_axes;
        (text, Float { name: String::new(), axes, max: 4.0, error: 0.0, exact: true })
    }

    fn jump(&mut self) -> (String, Float) {
        match self.exact() {
            Some(x) => {
                let &(text, max) = self.random.pick(JUMPS);
                (fill(text, &x.name), Float { max, ..x })
            }
            None => self.unary(),
        }
    }

    fn reduction(&mut self) -> (String, Float) {
        let x = self.value();
        if x.axes >> 2 & 1 == 0 {
            return self.unary();
        }
        let axes = x.axes & 3;
        let (name, max, error) = match self.random.below(5) {
            0 | 1 => ("sum", 3.0 * x.max, 3.0 * x.error + 9.0 * x.max),
            2 => ("mean", x.max, x.error + 5.0 * x.max),
            3 => ("max", x.max, x.error),
            _ => ("min", x.max, x.error),
        };
        (format!("{name}({}, C)", x.name), Float { name: String::new(), axes, max, error, exact: false })
    }

    fn finish(mut self, seed: u64, params: Vec<Kind>, signature: &str) -> Function {
        let mut errors = Vec::new();
        if let Some(Kind::FloatsMut(dims)) = params.first() {
            let axes = dims.iter().fold(0, |axes, dim| axes | 1 << dim);
            let fitting = self.values.iter().rev().find(|value| value.axes & !axes == 0);
            let value = fitting.unwrap_or_else(|| unreachable!("the parameter itself fits"));
            let assign = ["=", "+=", "-="][self.random.below(3)];
            let _ = writeln!(self.body, "    p0 {assign} {};", value.name);
            errors.push(value.error + value.max + INPUT_MAX);
        }
        let returned = if errors.is_empty() { 1 + self.random.below(3) } else { self.random.below(2) };
        let results: Vec<Float> = self.values.iter().rev().take(returned).cloned().collect();
        let types: Vec<String> = results.iter().map(|result| self.result(result.axes)).collect();
        let names: Vec<&str> = results.iter().map(|result| result.name.as_str()).collect();
        errors.extend(results.iter().map(|result| result.error + result.max));
        let (arrow, tail) = match results.len() {
            0 => (String::new(), String::new()),
            1 => (format!(" -> {}", types[0]), format!("    {}\n", names[0])),
            _ => (format!(" -> ({})", types.join(", ")), format!("    ({})\n", names.join(", "))),
        };
        let name = format!("f{seed}");
        let mut signature = signature.to_owned();
        for param in (0..params.len()).map(|i| format!("p{i}")) {
            let mut words = self.body.split(|c: char| !c.is_alphanumeric()).chain(names.iter().copied());
            if !words.any(|word| word == param) {
                signature = signature.replace(&format!("{param}: "), &format!("_{param}: "));
            }
        }
        let source = format!("pub fn {name}({signature}){arrow} {{\n{}{tail}}}", self.body);
        let errors = errors.into_iter().map(|error| error * 2.0_f64.powi(-24)).collect();
        Function { name, source, params, returned: results.len(), errors }
    }

    /// The type of a result, its axes in any order.
    fn result(&mut self, axes: u8) -> String {
        let mut dims: Vec<usize> = (0..3).filter(|i| axes >> i & 1 == 1).collect();
        if self.random.one_in(2) {
            dims.reverse();
        }
        let dims: Vec<&str> = dims.iter().map(|&dim| DIMS[dim]).collect();
        format!("f32[{}]", dims.join(", "))
    }
}

fn fill(text: &str, name: &str) -> String {
    text.replace("{}", name).replace("{0}", name)
}
