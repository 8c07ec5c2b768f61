//! Kernel → WGSL: one compute shader whose groups may be folded into two dimensions.
//!
//! Buffers accessed by four elements are arrays of `vec4`; their single elements are picked by component.
//! WGSL rejects constants that are not finite, so those are made from bits at run time.

mod narrow;

use std::fmt;

use rustc_hash::FxHashSet;

use super::said::Said;
use super::{Writer, fill, identifier, template};
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::Access;
use crate::ir::kernel::{
    Among, At, BufferId, Expr, Kernel, Lanes, SharedId, SharedLen, Shuffle, Stmt, Type, Value,
};
use crate::ir::plan::UniformArg;
use crate::target::Dialect;

/// What a text begins with that asks for subgroups. Not all who know them know this line.
pub const SUBGROUPS: &str = "enable subgroups;\n";
/// The declaration of the uniforms that a device with immediates may replace.
pub const UNIFORM_DECLARATION: &str = "@group(1) @binding(0) var<uniform> args: Args;";
/// What it is replaced by.
pub const IMMEDIATE_DECLARATION: &str = "var<immediate> args: Args;";

/// The most uses of a constant in every lane for which it is said in full at each.
const SPLATS_MAX: u32 = 2;

/// The text of a legal kernel.
pub fn wgsl(kernel: &Kernel) -> String {
    let mut out = Writer::new();
    let mut constants = Constants::default();
    constants.look(&kernel.body);
    let emitter = Emitter {
        kernel,
        said: Said::new(kernel),
        constants,
        wide: wide_buffers(kernel),
        atomic: narrow::shared_words(kernel),
    };
    let subgroups = asks_for_subgroups(&kernel.body);
    if subgroups {
        out.text.push_str(SUBGROUPS);
    }
    emitter.declarations(&mut out);
    out.line("@compute @workgroup_size(block)");
    out.line(format_args!("fn {}(", kernel.name));
    out.line("    @builtin(workgroup_id) group: vec3<u32>,");
    out.line("    @builtin(num_workgroups) groups: vec3<u32>,");
    out.line("    @builtin(local_invocation_index) local: u32,");
    if subgroups {
        out.line("    @builtin(subgroup_invocation_id) lane: u32,");
        out.line("    @builtin(subgroup_size) lanes: u32,");
    }
    out.block(") {", |out| {
        out.line("let thread = (group.y * groups.x + group.x) * block + local;");
        emitter.body(out, &kernel.body);
    });
    out.text
}

struct Emitter<'k> {
    kernel: &'k Kernel,
    said: Said,
    constants: Constants,
    /// Which buffers are arrays of `vec4`.
    wide: Vec<bool>,
    /// Of which buffers some words are written by several threads.
    atomic: Vec<bool>,
}

impl Emitter<'_> {
    fn declarations(&self, out: &mut Writer) {
        out.block("struct Args {", |out| {
            for (i, uniform) in self.kernel.uniforms.iter().enumerate() {
                let dtype = if uniform.dtype == DType::Bool { DType::U32 } else { uniform.dtype };
                out.line(format_args!("{}: {},", identifier('u', i, &uniform.name), scalar(dtype)));
            }
        });
        for (i, buffer) in self.kernel.buffers.iter().enumerate() {
            let access = if buffer.access == Access::Read { "read" } else { "read_write" };
            let element = self.element_type(i, buffer.dtype);
            let name = identifier('b', i, &buffer.name);
            let binding = format!("@group(0) @binding({i})");
            out.line(match buffer.uniform {
                Some(1) => format!("{binding} var<uniform> {name}: {element};"),
                Some(most) => format!("{binding} var<uniform> {name}: array<{element}, {}>;", most / 4),
                None => format!("{binding} var<storage, {access}> {name}: array<{element}>;"),
            });
        }
        for (i, shared) in self.kernel.shared.iter().enumerate() {
            let SharedLen::Fixed(len) = shared.len else { unreachable!("WGSL's memory has a fixed length") };
            out.line(format_args!("var<workgroup> s{i}: array<{}, {len}>;", scalar(shared.dtype)));
        }
        out.line(UNIFORM_DECLARATION);
        let block = if self.kernel.team > 1 { self.kernel.team } else { 256 };
        out.line(format_args!("override block: u32 = {block}u;"));
        out.line("override rest: bool = true;");
        out.line("override shifted: bool = true;");
    }

    fn element_type(&self, i: usize, dtype: DType) -> String {
        match () {
            () if self.atomic[i] => "atomic<u32>".into(),
            () if narrow::is_narrow(dtype) => "u32".into(),
            () if self.wide[i] => TypeName(Type { dtype, lanes: Lanes::Const(4) }).to_string(),
            () => scalar(dtype).into(),
        }
    }

    fn body(&self, out: &mut Writer, body: &[Stmt]) {
        let nested = self.said.nested(body, |stmt| self.says_once(stmt));
        for stmt in body {
            match stmt {
                Stmt::Let(value, expr) if self.has_no_let(*value, expr, &nested) => {}
                stmt => self.stmt(out, stmt),
            }
        }
    }

    /// Whether a statement says what it uses once, not lane by lane.
    fn says_once(&self, stmt: &Stmt) -> bool {
        match stmt {
            Stmt::Store(at, value) => {
                let ty = self.kernel.ty(*value);
                lanes(ty) == 1 || (is_wide(self.kernel, ty, at, 1) && !self.is_narrow(at))
            }
            Stmt::StoreShared(_, _, value) => lanes(self.kernel.ty(*value)) == 1,
            Stmt::Let(..)
            | Stmt::Mail(_)
            | Stmt::Loop { .. }
            | Stmt::Vector { .. }
            | Stmt::Team(_)
            | Stmt::Barrier(_)
            | Stmt::If { .. } => true,
        }
    }

    /// Whether a value is said where it is used, and how.
    fn has_no_let(&self, value: Value, expr: &Expr, nested: &FxHashSet<Value>) -> bool {
        let Constants { in_place, named } = &self.constants;
        let is_short = match expr {
            Expr::Const(_) => in_place.contains(&value),
            Expr::Splat(_) => in_place.contains(&value) && self.said.uses(value) <= SPLATS_MAX,
            expr => matches!(
                expr,
                Expr::Lane(..) | Expr::ThreadId | Expr::GridId | Expr::SubgroupLane | Expr::SubgroupSize
            ),
        };
        let is_nested = nested.contains(&value)
            && matches!(
                expr,
                Expr::Apply(..)
                    | Expr::Cast(_)
                    | Expr::Bitcast(_)
                    | Expr::Splat(_)
                    | Expr::Pack(_)
                    | Expr::Uniform(_)
            );
        if named.contains(&value) || !(is_short || is_nested) {
            return false;
        }
        let text = self.expr(value, expr);
        let is_whole = matches!(expr, Expr::Const(_)) || is_one_term(&text);
        let text = if is_whole { text } else { format!("({text})") };
        self.said.nest(value, text)
    }

    fn stmt(&self, out: &mut Writer, stmt: &Stmt) {
        match stmt {
            Stmt::Let(value, Expr::Const(constant)) => self.constant(out, *value, *constant),
            Stmt::Let(value, Expr::LoadWhere(at, mask)) => self.load_where(out, *value, at, *mask),
            Stmt::Let(value, expr) => {
                let text = self.expr(*value, expr);
                out.line(format_args!("let v{} = {text};", value.0));
            }
            Stmt::Store(at, value) => self.store(out, at, *value),
            Stmt::Loop { var, start, end, step, carried, body, .. } => {
                for one in carried {
                    let (c, ty) = (one.var.0, TypeName(self.kernel.ty(one.var)));
                    out.line(format_args!("var c{c}: {ty} = {};", self.said.operand(one.start)));
                }
                let [start, end, step] = [start, end, step].map(|&value| self.said.operand(value));
                let open = format!("for (var v{0} = {start}; v{0} < {end}; v{0} += {step}) {{", var.0);
                out.block(open, |out| {
                    carried.iter().for_each(|one| out.line(format_args!("let v{0} = c{0};", one.var.0)));
                    self.body(out, body);
                    carried.iter().for_each(|one| {
                        out.line(format_args!("c{} = {};", one.var.0, self.said.operand(one.next)))
                    });
                });
                carried.iter().for_each(|one| out.line(format_args!("let v{} = c{};", one.out.0, one.var.0)));
            }
            Stmt::StoreShared(id, index, value) => {
                let places = self.shared(self.kernel.ty(*value), *id, *index);
                let value = self.said.operand(*value);
                let parts = (0..places.len()).map(|lane| match places.len() {
                    1 => value.clone(),
                    _ => format!("{value}[{lane}]"),
                });
                places
                    .iter()
                    .zip(parts)
                    .for_each(|(place, part)| out.line(format_args!("{place} = {part};")));
            }
            Stmt::Barrier(Among::Block) => out.line("workgroupBarrier();"),
            Stmt::Barrier(Among::Team) => out.line("storageBarrier();"),
            Stmt::Mail(_) | Stmt::Barrier(Among::Warp | Among::Cluster) => {
                unreachable!("these are for PTX")
            }
            Stmt::Team(_) => unreachable!("legalize leaves shared memory and barriers"),
            Stmt::If { cond, body } => {
                out.block(format_args!("if {} {{", self.said.operand(*cond)), |out| self.body(out, body))
            }
            Stmt::Vector { .. } => unreachable!("a GPU's vectors are lanes"),
        }
    }

    fn constant(&self, out: &mut Writer, value: Value, constant: Const) {
        let v = value.0;
        match constant {
            Const::Float(x) if !is_finite(constant) => {
                out.line(format_args!("var bits{v} = {:#x}u;", (x as f32).to_bits()));
                out.line(format_args!("let v{v} = bitcast<f32>(bits{v});"));
            }
            Const::Float(_) | Const::Int(_) | Const::Bool(_) => {
                let dtype = self.kernel.ty(value).dtype;
                out.line(format_args!("let v{v} = {};", literal(constant, dtype)));
            }
        }
    }

    fn expr(&self, value: Value, expr: &Expr) -> String {
        let ty = self.kernel.ty(value);
        match expr {
            Expr::Const(constant) => literal(*constant, ty.dtype),
            Expr::Uniform(id) => {
                let uniform = self.kernel.uniform(*id);
                let name = identifier('u', usize::from(id.0), &uniform.name);
                match uniform.arg {
                    // Positions of whole tensors, from their first element on, have nothing to add.
                    UniformArg::Start | UniformArg::Offset(_) => format!("select(0u, args.{name}, shifted)"),
                    UniformArg::Scalar(_) if uniform.dtype == DType::Bool => format!("args.{name} != 0u"),
                    UniformArg::Scalar(_)
                    | UniformArg::Extent(_)
                    | UniformArg::End
                    | UniformArg::Window(_) => format!("args.{name}"),
                }
            }
            Expr::Apply(op, args) => {
                let operands = self.kernel.ty(args[args.len() - 1]);
                let (t, u) = (TypeName(operands), TypeName(Type { dtype: DType::U32, ..operands }));
                let template = template(self.kernel, Dialect::Wgsl, *op, args);
                self.said.with(args, |args| fill(template, args, &[("t", &t), ("u", &u)]))
            }
            Expr::Cast(arg) | Expr::Splat(arg) => format!("{}({})", TypeName(ty), self.alone(*arg)),
            Expr::Bitcast(arg) => format!("bitcast<{}>({})", TypeName(ty), self.alone(*arg)),
            Expr::Pack(args) => format!("{}({})", TypeName(ty), self.said.operands(args).join(", ")),
            Expr::Lane(arg, lane) => format!("{}[{lane}]", self.said.operand(*arg)),
            Expr::LaneIndex => format!("{}(0u, 1u, 2u, 3u)", TypeName(ty)),
            Expr::Load(at) => self.load(ty, at),
            Expr::LoadWhere(..) => unreachable!("what is read under a condition is a statement"),
            Expr::LoadShared(id, index) => match self.shared(ty, *id, *index).as_slice() {
                [one] => one.clone(),
                parts => format!("{}({})", TypeName(ty), parts.join(", ")),
            },
            Expr::ThreadId => "local".into(),
            Expr::BlockId => "group.y * groups.x + group.x".into(),
            Expr::SubgroupLane => "lane".into(),
            Expr::SubgroupSize => "lanes".into(),
            Expr::HasRest => "rest".into(),
            Expr::Shuffle(arg, Shuffle::First) => format!("subgroupBroadcastFirst({})", self.alone(*arg)),
            Expr::Shuffle(arg, Shuffle::DownBy(distance)) => {
                format!("subgroupShuffleDown({})", self.said.operands(&[*arg, *distance]).join(", "))
            }
            Expr::TeamId | Expr::TeamSlot | Expr::Shuffle(_, Shuffle::Down(_)) => {
                unreachable!("a team is a group, whose subgroups are of who knows how many")
            }
            Expr::GridId => "thread".into(),
            Expr::ClusterRank | Expr::ClusterSize | Expr::ClusterId | Expr::Clusters => {
                unreachable!("these are for PTX")
            }
            Expr::Blocks | Expr::GridSize => unreachable!("a dispatch has a thread for each iteration"),
            Expr::RangeStart | Expr::RangeEnd => unreachable!("a GPU deals out threads, not items"),
        }
    }

    /// An operand that is all there is between two parentheses.
    fn alone(&self, value: Value) -> String {
        let text = self.said.operand(value);
        match text.strip_prefix('(').and_then(|text| text.strip_suffix(')')) {
            Some(inside) => inside.into(),
            None => text,
        }
    }

    /// Elements of shared memory, one for each lane.
    fn shared(&self, ty: Type, id: SharedId, index: Value) -> Vec<String> {
        let place = |lane| format!("s{}[{}]", id.0, plus(&self.said.operand(index), lane));
        (0..u32::from(lanes(ty))).map(place).collect()
    }

    /// A variable is 0 until it is written.
    fn load_where(&self, out: &mut Writer, value: Value, at: &At, mask: Value) {
        let (v, m, ty) = (value.0, self.said.operand(mask), self.kernel.ty(value));
        let lanes_of = lanes(self.kernel.ty(mask));
        out.line(format_args!("var c{v}: {};", TypeName(ty)));
        match self.elements(ty, at, lanes_of) {
            Elements::Each(parts) if lanes_of > 1 => {
                for (lane, part) in parts.iter().enumerate() {
                    out.line(format_args!("if {m}[{lane}] {{ c{v}[{lane}] = {part}; }}"));
                }
            }
            Elements::Vector(_) | Elements::Each(_) => {
                out.line(format_args!("if {m} {{ c{v} = {}; }}", self.load(ty, at)));
            }
        }
        out.line(format_args!("let v{v} = c{v};"));
    }

    fn load(&self, ty: Type, at: &At) -> String {
        if self.is_narrow(at) && is_wide(self.kernel, ty, at, 1) {
            return self.narrow_vector(at);
        }
        match self.elements(ty, at, 1) {
            Elements::Vector(text) => text,
            Elements::Each(parts) if parts.len() == 1 => parts[0].clone(),
            Elements::Each(parts) => format!("{}({})", TypeName(ty), parts.join(", ")),
        }
    }

    fn store(&self, out: &mut Writer, at: &At, value: Value) {
        if self.is_narrow(at) {
            return self.store_narrow(out, at, value);
        }
        let said = self.said.operand(value);
        match self.elements(self.kernel.ty(value), at, 1) {
            Elements::Vector(place) => out.line(format_args!("{place} = {said};")),
            Elements::Each(places) if places.len() == 1 => out.line(format_args!("{} = {said};", places[0])),
            Elements::Each(places) => {
                for (lane, place) in places.iter().enumerate() {
                    out.line(format_args!("{place} = {said}[{lane}];"));
                }
            }
        }
    }

    /// The places of a buffer that an access of this type touches, under so many conditions.
    fn elements(&self, ty: Type, at: &At, conditions: u8) -> Elements {
        let lanes = lanes(ty);
        if is_wide(self.kernel, ty, at, conditions) && !self.is_narrow(at) {
            let position = self.position(at, 0);
            return Elements::Vector(format!("{}[{position} >> 2u]", self.name(at.buffer)));
        }
        let place = |lane: u32| self.element(at.buffer, &self.position(at, lane));
        Elements::Each((0..u32::from(lanes)).map(place).collect())
    }

    /// Where the element of a lane is.
    fn position(&self, at: &At, lane: u32) -> String {
        let index = self.said.operand(at.index);
        if self.kernel.ty(at.index).lanes == Lanes::ONE {
            plus(&index, lane * at.stride + at.phase)
        } else {
            format!("{index}[{lane}]")
        }
    }

    fn element(&self, buffer: BufferId, position: &str) -> String {
        let name = self.name(buffer);
        if self.kernel.buffer(buffer).uniform == Some(1) {
            return name;
        }
        if narrow::is_narrow(self.kernel.buffer(buffer).dtype) {
            return self.narrow_element(buffer, position);
        }
        if self.wide[usize::from(buffer.0)] {
            format!("{name}[({position}) >> 2u][({position}) & 3u]")
        } else {
            format!("{name}[{position}]")
        }
    }

    fn name(&self, buffer: BufferId) -> String {
        identifier('b', usize::from(buffer.0), &self.kernel.buffer(buffer).name)
    }
}

/// Which values are constants, as compilers see them.
#[derive(Default)]
struct Constants {
    /// Those that may be said where they are used.
    in_place: FxHashSet<Value>,
    /// Those that an operation has nothing but: its result would be one too, and compilers refuse those that are not finite. A
    /// `let` is none.
    named: FxHashSet<Value>,
}

impl Constants {
    fn look(&mut self, body: &[Stmt]) {
        for stmt in body {
            match stmt {
                Stmt::Let(value, expr) => self.expr(*value, expr),
                Stmt::Loop { body, .. } | Stmt::Vector { body, .. } | Stmt::If { body, .. } => {
                    self.look(body)
                }
                Stmt::Store(..)
                | Stmt::StoreShared(..)
                | Stmt::Mail(_)
                | Stmt::Barrier(_)
                | Stmt::Team(_) => {}
            }
        }
    }

    fn expr(&mut self, value: Value, expr: &Expr) {
        if matches!(expr, Expr::Const(constant) if is_finite(*constant)) {
            self.in_place.insert(value);
        }
        let args = if let Expr::Apply(_, args) | Expr::Pack(args) = expr {
            args.as_slice()
        } else if let Expr::Cast(arg) | Expr::Bitcast(arg) | Expr::Splat(arg) = expr {
            std::slice::from_ref(arg)
        } else {
            return;
        };
        if !args.iter().all(|arg| self.in_place.contains(arg)) {
            return;
        }
        if matches!(expr, Expr::Splat(_) | Expr::Pack(_)) {
            self.in_place.insert(value);
        } else {
            self.named.extend(args);
        }
    }
}

enum Elements {
    /// All lanes at once.
    Vector(String),
    /// Lane by lane.
    Each(Vec<String>),
}

fn asks_for_subgroups(body: &[Stmt]) -> bool {
    body.iter().any(|stmt| match stmt {
        Stmt::Let(_, expr) => matches!(expr, Expr::SubgroupLane | Expr::SubgroupSize | Expr::Shuffle(..)),
        Stmt::Loop { body, .. } | Stmt::Vector { body, .. } | Stmt::If { body, .. } => {
            asks_for_subgroups(body)
        }
        Stmt::Store(..) | Stmt::StoreShared(..) | Stmt::Mail(_) | Stmt::Barrier(_) | Stmt::Team(_) => false,
    })
}

/// Which buffers some access takes four elements of at once, or lie as uniforms have to.
fn wide_buffers(kernel: &Kernel) -> Vec<bool> {
    let mut wide: Vec<bool> =
        kernel.buffers.iter().map(|buffer| buffer.uniform.is_some_and(|most| most > 1)).collect();
    mark(kernel, &kernel.body, &mut wide);
    wide
}

fn mark(kernel: &Kernel, body: &[Stmt], wide: &mut [bool]) {
    for stmt in body {
        let (ty, at, conditions) = match stmt {
            Stmt::Let(value, Expr::Load(at)) => (kernel.ty(*value), at, 1),
            Stmt::Let(value, Expr::LoadWhere(at, mask)) => (kernel.ty(*value), at, lanes(kernel.ty(*mask))),
            Stmt::Store(at, value) => (kernel.ty(*value), at, 1),
            Stmt::Let(..) | Stmt::StoreShared(..) | Stmt::Mail(_) | Stmt::Barrier(_) | Stmt::Team(_) => {
                continue;
            }
            Stmt::Loop { body, .. } | Stmt::Vector { body, .. } | Stmt::If { body, .. } => {
                mark(kernel, body, wide);
                continue;
            }
        };
        wide[usize::from(at.buffer.0)] |= is_wide(kernel, ty, at, conditions);
    }
}

/// Whether an access takes four elements at once.
fn is_wide(kernel: &Kernel, ty: Type, at: &At, conditions: u8) -> bool {
    let gathers = kernel.ty(at.index).lanes != Lanes::ONE;
    lanes(ty) == 4 && at.stride == 1 && at.aligned && !gathers && conditions == 1
}

/// Whether an expression needs no parentheses around it: a name, a number, a call.
fn is_one_term(text: &str) -> bool {
    let mut depth = 0;
    !text.starts_with(['-', '~', '!'])
        && text.bytes().all(|byte| {
            depth += i32::from(byte == b'(') - i32::from(byte == b')');
            byte != b' ' || depth > 0
        })
}

/// Whether WGSL can say a constant.
fn is_finite(constant: Const) -> bool {
    match constant {
        Const::Float(x) => (x as f32).is_finite(),
        Const::Int(_) | Const::Bool(_) => true,
    }
}

fn plus(index: &str, offset: u32) -> String {
    if offset == 0 { index.into() } else { format!("{index} + {offset}u") }
}

fn lanes(ty: Type) -> u8 {
    match ty.lanes {
        Lanes::Const(lanes) => lanes,
        Lanes::Loop => unreachable!("a GPU's vectors are lanes"),
    }
}

/// A type as WGSL has it.
#[derive(Clone, Copy)]
struct TypeName(Type);

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match lanes(self.0) {
            1 => f.write_str(scalar(self.0.dtype)),
            lanes => write!(f, "vec{lanes}<{}>", scalar(self.0.dtype)),
        }
    }
}

fn scalar(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f32",
        DType::I32 => "i32",
        DType::U32 | DType::Index => "u32",
        DType::Bool => "bool",
        DType::F16 | DType::BF16 | DType::F64 | DType::I16 | DType::U16 | DType::I8 | DType::U8 => {
            unreachable!("{dtype} is not computed with on this target")
        }
    }
}

fn literal(constant: Const, dtype: DType) -> String {
    match constant {
        Const::Float(x) => format!("{:?}f", x as f32),
        Const::Int(x) if dtype == DType::I32 && x == i64::from(i32::MIN) => {
            "bitcast<i32>(0x80000000u)".into()
        }
        Const::Int(x) if dtype == DType::I32 => format!("{x}i"),
        Const::Int(x) => format!("{}u", x as u32),
        Const::Bool(x) => x.to_string(),
    }
}
