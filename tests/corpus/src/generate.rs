//! Random functions as source text, each with a bound on the error of its results.
//!
//! Invariant: a function depends on its seed alone. Discontinuous operations (comparisons, rounding, casts)
//! apply only to inputs, integers and coordinates, which are the same in every arithmetic. Every third
//! function has reductions along dims of any extent, too, and every fourth has index operations.

use std::fmt::Write;

use operations::{Bound, JUMPS, OF_FEW, REDUCTIONS, UNARY, either, sum};

#[path = "generate/operations.rs"]
mod operations;

/// Dims of a corpus function: two of any extent, and `C = 3`.
pub const DIMS: [&str; 3] = ["N", "D", "C"];
/// Extents up to which the bounds of a function are valid: those of most calls, then those with many
/// elements.
pub const EXTENTS: [[usize; 3]; 4] = [[40, 40, 3], [4096, 33, 3], [65_537, 1, 3], [3, 50_257, 3]];
/// Largest magnitude of the float elements and scalars of an input.
pub const INPUT_MAX: f64 = 4.0;
/// Largest magnitude of a value that other values are computed from.
const MAGNITUDE_MAX: f64 = 1e3;
/// Largest magnitude of such a value with the larger extents.
const OVERFLOWING: f64 = 1e18;
/// Largest error bound of a value that other values are computed from, in units of 2⁻²⁴.
const ERROR_MAX: f64 = 3e4;

/// The kind of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `f32[…]`, with dims as indices into `DIMS`, outermost first.
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
    /// Name of the function: `f` and the seed.
    pub name: String,
    /// Source text, from `pub fn` on.
    pub source: String,
    /// Parameters in the order of the signature.
    pub params: Vec<Kind>,
    /// Number of returned tensors.
    pub returned: usize,
    /// True if the function has a reduction along `N` or `D`. The order of a sum may depend on the rest of
    /// its kernel.
    pub combines: bool,
    /// True if the function has reductions along `C` alone.
    pub combines_few: bool,
    /// True if the function takes a maximum or minimum along `N` or `D`, which must then have elements.
    pub has_extremes: bool,
    /// Largest absolute error of each result with each of `EXTENTS`, the in-place result first. The bound is
    /// for inputs up to `INPUT_MAX` and `f32` arithmetic whose functions are right to a few units in the last
    /// place.
    pub errors: Vec<[f64; EXTENTS.len()]>,
}

/// Pseudo-random numbers, the same in every run (Steele, Lea and Flood 2014: SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// Returns a number below `end`, which is positive.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// Returns true with a probability of one in `sides`.
    pub fn one_in(&mut self, sides: usize) -> bool {
        self.below(sides) == 0
    }

    /// Returns a number from −1 up to 1.
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
    /// Axes as a mask, with bit `i` for `DIMS[i]`.
    axes: u8,
    /// Bounds with each of `EXTENTS`.
    bounds: [Bound; EXTENTS.len()],
    /// True if the value is the same in every arithmetic.
    exact: bool,
}

impl Float {
    /// Creates a value without a name, with a bound computed from other bounds at the same extents.
    fn new(axes: u8, bound: impl FnMut(usize) -> Bound) -> Float {
        Float { name: String::new(), axes, bounds: std::array::from_fn(bound), exact: false }
    }

    fn exact(axes: u8, max: f64) -> Float {
        Float { exact: true, ..Float::new(axes, |_| Bound { max, error: 0.0 }) }
    }
}

/// Returns the function of a seed.
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
    /// True if index operations are allowed.
    moves: bool,
    /// True if reductions along `N` and `D` are allowed.
    rows: bool,
    /// True if the function has a reduction along `N` or `D`.
    combines: bool,
    /// True if the function has a reduction along `C` alone.
    combines_few: bool,
    /// True if the function takes a maximum or minimum along `N` or `D`.
    has_extremes: bool,
    values: Vec<Float>,
    /// Names of integers and their axes. The integers may have any value of `i32`.
    ints: Vec<(String, u8)>,
    /// Axes that some tensor has.
    axes: u8,
    /// True once `C` has been declared, which happens once.
    fixed: bool,
    body: String,
}

impl Writer {
    fn new(seed: u64) -> Writer {
        Writer {
            random: Random(seed ^ 0x5eed_c0de),
            moves: seed % 4 == 1,
            rows: seed % 3 == 2,
            combines: false,
            combines_few: false,
            has_extremes: false,
            values: vec![],
            ints: vec![],
            axes: 0,
            fixed: false,
            body: String::new(),
        }
    }

    fn signature(&mut self) -> (Vec<Kind>, String) {
        let mut params = Vec::new();
        for i in 0..1 + self.random.below(4) {
            // The first parameter has `N` and `D`, so that both are bound.
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

    /// Returns dims in any order, among them those of the mask.
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
        self.values.push(Float { name: name.into(), ..Float::exact(axes, INPUT_MAX) });
    }

    /// Returns a value, with a preference for recent ones.
    fn value(&mut self) -> Float {
        let count = self.values.len();
        let back = if self.random.one_in(3) { count } else { count.min(4) };
        self.values[count - 1 - self.random.below(back)].clone()
    }

    fn exact(&mut self) -> Option<Float> {
        let exact: Vec<Float> = self.values.iter().filter(|value| value.exact).cloned().collect();
        if exact.is_empty() { None } else { Some(self.random.pick(&exact).clone()) }
    }

    /// Appends a `let`, unless its value would exceed the limits.
    fn step(&mut self) {
        let (text, mut value) = match self.random.below(if self.rows { 18 } else { 12 }) {
            _ if self.moves && self.random.one_in(3) => self.moved(),
            0..=3 => self.unary(),
            4..=6 => self.binary(),
            7 => self.choice(),
            8 => self.reduction(),
            9 => self.of_ints(),
            10 => self.jump(),
            11 => self.fused(),
            _ => self.reduction(),
        };
        let Bound { max, error } = value.bounds[0];
        let overflows = value.bounds.iter().any(|bound| bound.max > OVERFLOWING);
        if max <= MAGNITUDE_MAX && error <= ERROR_MAX && !overflows {
            value.name = format!("v{}", self.values.len());
            let _ = writeln!(self.body, "    let {} = {text};", value.name);
            self.values.push(value);
        }
    }

    fn unary(&mut self) -> (String, Float) {
        let x = self.value();
        let &(text, slope, max, own) = self.random.pick(UNARY);
        let bound = |Bound { max: of, error }: Bound| {
            let max = max(of);
            Bound { max, error: slope * error + own * (max + 1.0) }
        };
        (fill(text, &x.name), Float::new(x.axes, |i| bound(x.bounds[i])))
    }

    fn binary(&mut self) -> (String, Float) {
        let (x, y) = (self.value(), self.value());
        let (a, b) = (&x.name, &y.name);
        let (text, bound): (String, fn(Bound, Bound) -> Bound) = match self.random.below(7) {
            0 => (format!("{a} + {b}"), sum),
            1 => (format!("{a} - {b}"), sum),
            2 | 3 => (format!("{a} * {b}"), |x, y| {
                let max = x.max * y.max;
                Bound { max, error: x.max * y.error + y.max * x.error + 2.0 * max }
            }),
            4 => (format!("{a} / (1.0 + abs({b}))"), |x, y| Bound {
                max: x.max,
                error: x.error + x.max * (y.error + 6.0),
            }),
            5 => {
                let name = ["min", "max"][self.random.below(2)];
                (format!("{name}({a}, {b})"), either)
            }
            _ => (format!("atan2({a}, abs({b}) + 1.0)"), |x, y| Bound {
                max: 1.6,
                error: x.error + y.error + 2.0 * y.max + 16.0,
            }),
        };
        (text, Float::new(x.axes | y.axes, |i| bound(x.bounds[i], y.bounds[i])))
    }

    /// Returns `x·y + z`, which becomes an `fma`.
    fn fused(&mut self) -> (String, Float) {
        let (x, y, z) = (self.value(), self.value(), self.value());
        let bound = |i: usize| {
            let [x, y, z] = [&x, &y, &z].map(|value| value.bounds[i]);
            let max = x.max * y.max + z.max;
            Bound { max, error: x.max * y.error + y.max * x.error + z.error + 2.0 * max }
        };
        let text = match self.random.below(3) {
            0 => format!("{} * {} + {}", x.name, y.name, z.name),
            1 => format!("{} - {} * {}", z.name, x.name, y.name),
            _ => format!("fma({}, {}, {})", x.name, y.name, z.name),
        };
        (text, Float::new(x.axes | y.axes | z.axes, bound))
    }

    fn choice(&mut self) -> (String, Float) {
        let ((condition, axes), x, y) = (self.condition(), self.value(), self.value());
        let text = if self.random.one_in(2) {
            format!("if {condition} {{ {} }} else {{ {} }}", x.name, y.name)
        } else {
            format!("select({condition}, {}, {})", x.name, y.name)
        };
        let value = Float::new(axes | x.axes | y.axes, |i| either(x.bounds[i], y.bounds[i]));
        (text, Float { exact: x.exact && y.exact, ..value })
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

    /// Returns an integer expression: a parameter, a coordinate, or the whole part of an exact value.
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
        (text, Float::exact(a_axes | b_axes, 4.0))
    }

    fn jump(&mut self) -> (String, Float) {
        match self.exact() {
            Some(x) => {
                let &(text, max) = self.random.pick(JUMPS);
                (fill(text, &x.name), Float::exact(x.axes, max))
            }
            None => self.unary(),
        }
    }

    /// Returns an index operation along a dim.
    fn moved(&mut self) -> (String, Float) {
        let x = self.value();
        let dims: Vec<usize> = (0..3).filter(|i| x.axes >> i & 1 == 1).collect();
        if dims.is_empty() {
            return self.unary();
        }
        let dim = *self.random.pick(&dims);
        let (v, d, n) = (&x.name, DIMS[dim], self.values.len());
        let mut axes = x.axes;
        let text = match self.random.below(6) {
            0 => format!("flip({v}, {d})"),
            1 => {
                let (by, more) = self.int();
                axes |= more;
                format!("roll({v}, {d}, {by})")
            }
            2 => format!("roll({v}, {d}, {})", [1, -1, 2, -3, 17][self.random.below(5)]),
            3 => {
                format!("pad(slice({v}, {d} -> S{n}, ..{d} / 2), S{n} -> {d}, {d} - {d} / 2, 0, value = 0.5)")
            }
            4 => format!(
                "concat((slice({v}, {d} -> R{n}, {d} / 2..), R{n}), (slice({v}, {d} -> S{n}, ..{d} / 2), S{n}) -> {d})"
            ),
            _ => {
                let (ids, more) = self.int();
                axes = axes & !(1 << dim) | more;
                format!("if {ids} >= 0 && {ids} < {d} {{ take({v}, {d}, {ids}) }} else {{ 0.25 }}")
            }
        };
        let value = Float::new(axes, |i| Bound { max: x.bounds[i].max.max(0.5), ..x.bounds[i] });
        (text, Float { exact: x.exact, ..value })
    }

    fn reduction(&mut self) -> (String, Float) {
        let mut x = self.value();
        let wanted = if self.rows { 1 + self.random.below(7) as u8 } else { 4 };
        // Reductions leave fewer and fewer values with a dim of the wanted mask, so several draws look for
        // one.
        for _ in 0..if self.rows { 4 } else { 0 } {
            x = if x.axes & wanted == 0 { self.random.pick(&self.values).clone() } else { x };
        }
        let axes = x.axes & wanted;
        if axes == 0 {
            return self.unary();
        }
        let reduction = self.random.pick(if axes == 4 { OF_FEW } else { REDUCTIONS });
        if reduction.of_exact && !(x.exact && axes.is_power_of_two()) {
            return self.unary();
        }
        self.combines |= axes & 3 != 0;
        self.combines_few |= axes == 4;
        self.has_extremes |= axes & 3 != 0 && reduction.has_extremes;
        let of = |i: usize| {
            let extents = (0..3).filter(|dim| axes >> dim & 1 == 1).map(|dim| EXTENTS[i][dim]);
            (reduction.bound)(x.bounds[i], extents.clone().product(), roundings(extents.sum()))
        };
        let left = if reduction.of_elements { x.axes } else { x.axes & !axes };
        let value = Float { exact: reduction.of_exact, ..Float::new(left, of) };
        let dims: Vec<&str> = (0..3).filter(|i| axes >> i & 1 == 1).map(|i| DIMS[i]).collect();
        let along = |x: &str, dims: &str| fill(reduction.text, x).replace("{dims}", dims);
        let text = match dims[..] {
            [dim] => along(&x.name, dim),
            // Merge both dims and reduce along the merged one.
            [dim, "C"] if self.random.one_in(2) => {
                let made = along(&format!("merge({}, ({dim}, C) -> {dim}C)", x.name), &format!("{dim}C"));
                if reduction.of_elements { format!("split({made}, {dim}C -> ({dim}, C))") } else { made }
            }
            _ => along(&x.name, &format!("({})", dims.join(", "))),
        };
        (text, value)
    }

    fn finish(mut self, seed: u64, params: Vec<Kind>, signature: &str) -> Function {
        let mut errors = Vec::new();
        if let Some(Kind::FloatsMut(dims)) = params.first() {
            let axes = dims.iter().fold(0, |axes, dim| axes | 1 << dim);
            let fitting = self.values.iter().rev().find(|value| value.axes & !axes == 0);
            let value = fitting.unwrap_or_else(|| unreachable!("the parameter itself fits"));
            let assign = ["=", "+=", "-="][self.random.below(3)];
            let _ = writeln!(self.body, "    p0 {assign} {};", value.name);
            errors.push(value.bounds.map(|bound| bound.error + bound.max + INPUT_MAX));
        }
        let returned = if errors.is_empty() { 1 + self.random.below(3) } else { self.random.below(2) };
        let results: Vec<Float> = self.values.iter().rev().take(returned).cloned().collect();
        let types: Vec<String> = results.iter().map(|result| self.result(result.axes)).collect();
        let names: Vec<&str> = results.iter().map(|result| result.name.as_str()).collect();
        errors.extend(results.iter().map(|result| result.bounds.map(|bound| bound.error + bound.max)));
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
        let errors = errors.into_iter().map(|of| of.map(|error| error * 2.0_f64.powi(-24))).collect();
        let Writer { combines, combines_few, has_extremes, .. } = self;
        Function {
            name,
            source,
            params,
            returned: results.len(),
            combines,
            combines_few,
            has_extremes,
            errors,
        }
    }

    /// Returns the type of a result, with its axes in any order.
    fn result(&mut self, axes: u8) -> String {
        let mut dims: Vec<usize> = (0..3).filter(|i| axes >> i & 1 == 1).collect();
        if self.random.one_in(2) {
            dims.reverse();
        }
        let dims: Vec<&str> = dims.iter().map(|&dim| DIMS[dim]).collect();
        format!("f32[{}]", dims.join(", "))
    }
}

/// Returns the number of additions that an element takes part in, for dims whose extents have this sum. A
/// short sum counts all of its additions. A long one counts those within a part and those of the parts.
fn roundings(extents: usize) -> f64 {
    (2 * extents + 16).min(4096) as f64
}

fn fill(text: &str, name: &str) -> String {
    text.replace("{}", name).replace("{0}", name)
}
