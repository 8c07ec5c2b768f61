//! Kernel → WGSL: one compute shader whose groups may be folded into two dimensions.
//!
//! Buffers accessed by four elements are arrays of `vec4`; their single elements are accessed by component.
//! WGSL rejects constants that are not finite, so those are made from bits at run time.

mod narrow;
mod shared;

use std::fmt::{self, Display};

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::inline_values::{InlineValues, OperandText};
use super::{Listed, Writer, fill, identifier, template, text};
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::Access;
use crate::ir::kernel::{
    Address, BufferId, Builtin, Expr, Kernel, Lanes, Scope, Shuffle, Stmt, Type, UniformId, Value, statements,
};
use crate::ir::plan::UniformArg;
use crate::ir::plan::wgsl::{SUBGROUPS, UNIFORM_DECLARATION};
use crate::target::Dialect;
use crate::target::tuning_table::wgsl;

/// The text of a legal kernel.
pub fn wgsl(kernel: &Kernel) -> String {
    let mut out = Writer::new();
    let mut constants = Constants::default();
    constants.look(&kernel.body);
    let emitter = Emitter {
        kernel,
        buffers: kernel.buffers.iter().enumerate().map(|(i, of)| identifier('b', i, &of.name)).collect(),
        uniforms: kernel.uniforms.iter().enumerate().map(|(i, of)| identifier('u', i, &of.name)).collect(),
        inline_values: InlineValues::new(kernel),
        constants,
        wide: wide_buffers(kernel),
        wide_shared: shared::wide(kernel),
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
    /// Their names.
    buffers: Vec<String>,
    uniforms: Vec<String>,
    inline_values: InlineValues,
    constants: Constants,
    /// Which buffers are arrays of `vec4`.
    wide: Vec<bool>,
    /// Which of the memory of groups is.
    wide_shared: Vec<bool>,
    /// Of which buffers some words are written by several threads.
    atomic: Vec<bool>,
}

impl Emitter<'_> {
    fn declarations(&self, out: &mut Writer) {
        out.block("struct Args {", |out| {
            for (uniform, name) in self.kernel.uniforms.iter().zip(&self.uniforms) {
                let dtype = if uniform.dtype == DType::Bool { DType::U32 } else { uniform.dtype };
                out.line(format_args!("{name}: {},", scalar(dtype)));
            }
        });
        for (i, buffer) in self.kernel.buffers.iter().enumerate() {
            let access = if buffer.access == Access::Read { "read" } else { "read_write" };
            let element = self.element_type(i, buffer.dtype);
            let name = self.name(BufferId(i as u16));
            let binding = format!("@group(0) @binding({i})");
            out.line(match buffer.uniform {
                Some(1) => format!("{binding} var<uniform> {name}: {element};"),
                Some(most) => format!("{binding} var<uniform> {name}: array<{element}, {}>;", most / 4),
                None => format!("{binding} var<storage, {access}> {name}: array<{element}>;"),
            });
        }
        self.declare_shared(out);
        out.line(UNIFORM_DECLARATION);
        let team = self.kernel.threads.team;
        let block = if team > 1 { team } else { 256 };
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
        let nested = self.inline_values.nested(body, |stmt| self.says_once(stmt));
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
            Stmt::StoreShared(id, _, value) => {
                lanes(self.kernel.ty(*value)) == 1 || self.wide_shared[usize::from(id.0)]
            }
            _ => true,
        }
    }

    /// Whether a value is said where it is used, and how.
    fn has_no_let(&self, value: Value, expr: &Expr, nested: &FxHashSet<Value>) -> bool {
        let Constants { in_place, named } = &self.constants;
        let is_short = match expr {
            Expr::Const(_) => in_place.contains(&value),
            Expr::Splat(_) => in_place.contains(&value) && self.inline_values.uses(value) <= wgsl::SPLATS_MAX,
            expr => matches!(
                expr,
                Expr::Lane(..)
                    | Expr::Builtin(
                        Builtin::ThreadId | Builtin::GridId | Builtin::SubgroupLane | Builtin::SubgroupSize
                    )
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
        let inline_values = text(self.expr(value, expr));
        let is_whole = matches!(expr, Expr::Const(_)) || is_one_term(&inline_values);
        self.inline_values
            .nest(value, if is_whole { inline_values } else { text(format_args!("({inline_values})")) })
    }

    fn stmt(&self, out: &mut Writer, stmt: &Stmt) {
        match stmt {
            Stmt::Let(value, Expr::Const(constant)) => self.constant(out, *value, *constant),
            Stmt::Let(value, Expr::LoadWhere(at, mask)) => self.load_where(out, *value, at, *mask),
            Stmt::Let(value, expr) => {
                out.line(format_args!("let v{} = {};", value.0, self.expr(*value, expr)));
            }
            Stmt::Store(at, value) => self.store(out, at, *value),
            Stmt::Loop { var, start, end, step, carried, body, .. } => {
                for one in carried {
                    let (c, ty) = (one.var.0, TypeName(self.kernel.ty(one.var)));
                    out.line(format_args!("var c{c}: {ty} = {};", self.inline_values.operand(one.start)));
                }
                let [start, end, step] = [start, end, step].map(|&value| self.inline_values.operand(value));
                let open = format!("for (var v{0} = {start}; v{0} < {end}; v{0} += {step}) {{", var.0);
                out.block(open, |out| {
                    carried.iter().for_each(|one| out.line(format_args!("let v{0} = c{0};", one.var.0)));
                    self.body(out, body);
                    carried.iter().for_each(|one| {
                        out.line(format_args!("c{} = {};", one.var.0, self.inline_values.operand(one.next)))
                    });
                });
                carried.iter().for_each(|one| out.line(format_args!("let v{} = c{};", one.out.0, one.var.0)));
            }
            Stmt::StoreShared(id, index, value) => self.store_shared(out, (*id, *index), *value),
            Stmt::Barrier(Scope::Block) => out.line("workgroupBarrier();"),
            Stmt::Barrier(Scope::Team) => out.line("storageBarrier();"),
            Stmt::AsyncCopy(_) | Stmt::ClusterExchange(_) | Stmt::Barrier(Scope::Warp | Scope::Cluster) => {
                unreachable!("these are for PTX")
            }
            Stmt::AllReduce(_) => unreachable!("legalize leaves shared memory and barriers"),
            Stmt::If { cond, body } => out
                .block(format_args!("if {} {{", self.inline_values.operand(*cond)), |out| {
                    self.body(out, body)
                }),
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

    /// What a value is, where it is.
    fn expr<'e>(&'e self, value: Value, expr: &'e Expr) -> impl Display + 'e {
        let (inline_values, ty) = (&self.inline_values, self.kernel.ty(value));
        let t = TypeName(ty);
        fmt::from_fn(move |f| match expr {
            Expr::Const(constant) => f.write_str(&literal(*constant, ty.dtype)),
            Expr::Uniform(id) => self.uniform(f, *id),
            Expr::Apply(op, args) => {
                let operands = self.kernel.ty(args[args.len() - 1]);
                let (t, u) = (TypeName(operands), TypeName(Type { dtype: DType::U32, ..operands }));
                let template = template(self.kernel, Dialect::Wgsl, *op, args);
                fill(template, &inline_values.operands(args), &[("t", &t), ("u", &u)]).fmt(f)
            }
            Expr::Cast(arg) | Expr::Splat(arg) => write!(f, "{t}({})", self.alone(*arg)),
            Expr::Bitcast(arg) => write!(f, "bitcast<{t}>({})", self.alone(*arg)),
            Expr::Pack(args) => write!(f, "{t}({})", Listed(&inline_values.operands(args))),
            Expr::Lane(arg, lane) => write!(f, "{}[{lane}]", inline_values.operand(*arg)),
            Expr::Builtin(Builtin::LaneIndex) => write!(f, "{t}(0u, 1u, 2u, 3u)"),
            Expr::Builtin(builtin) => f.write_str(builtin_text(*builtin)),
            Expr::Load(at) => self.load(f, ty, at),
            Expr::LoadWhere(..) => unreachable!("what is read under a condition is a statement"),
            Expr::LoadShared(id, index) => self.load_shared(f, ty, (*id, *index)),
            Expr::Product(..) => unreachable!("legalize leaves no tiles"),
            Expr::LoadMatrices(..) | Expr::MatrixProduct(..) => unreachable!("these are for PTX"),
            Expr::Shuffle(arg, Shuffle::First) => write!(f, "subgroupBroadcastFirst({})", self.alone(*arg)),
            Expr::Shuffle(arg, Shuffle::DownBy(distance)) => {
                write!(f, "subgroupShuffleDown({})", Listed(&inline_values.operands(&[*arg, *distance])))
            }
            Expr::Shuffle(_, Shuffle::Down(_)) => unreachable!("the size of subgroups is not known"),
        })
    }

    fn uniform(&self, f: &mut fmt::Formatter<'_>, id: UniformId) -> fmt::Result {
        let (uniform, name) = (self.kernel.uniform(id), &self.uniforms[usize::from(id.0)]);
        match uniform.arg {
            // Positions of whole tensors, from their first element on, have nothing to add.
            UniformArg::Start | UniformArg::Offset(_) => write!(f, "select(0u, args.{name}, shifted)"),
            UniformArg::Scalar(_) if uniform.dtype == DType::Bool => write!(f, "args.{name} != 0u"),
            UniformArg::Scalar(_) | UniformArg::Extent(_) | UniformArg::End | UniformArg::Window(_) => {
                write!(f, "args.{name}")
            }
        }
    }

    /// An operand that is all there is between two parentheses.
    fn alone(&self, value: Value) -> OperandText<'_> {
        match self.inline_values.operand(value) {
            OperandText::Text(text) => {
                let inside = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
                OperandText::Text(inside.unwrap_or(text))
            }
            name @ OperandText::Name(_) => name,
        }
    }

    /// A variable is 0 until it is written.
    fn load_where(&self, out: &mut Writer, value: Value, at: &Address, mask: Value) {
        let (v, m, ty) = (value.0, self.inline_values.operand(mask), self.kernel.ty(value));
        out.line(format_args!("var c{v}: {};", TypeName(ty)));
        match lanes(self.kernel.ty(mask)) {
            1 => {
                let read = fmt::from_fn(|f| self.load(f, ty, at));
                out.line(format_args!("if {m} {{ c{v} = {read}; }}"));
            }
            lanes => (0..lanes).for_each(|lane| {
                out.line(format_args!("if {m}[{lane}] {{ c{v}[{lane}] = {}; }}", self.element(at, lane)));
            }),
        }
        out.line(format_args!("let v{v} = c{v};"));
    }

    fn load(&self, f: &mut fmt::Formatter<'_>, ty: Type, at: &Address) -> fmt::Result {
        match lanes(ty) {
            1 => self.element(at, 0).fmt(f),
            _ if is_wide(self.kernel, ty, at, 1) => match self.is_narrow(at) {
                true => self.narrow_vector(f, at),
                false => self.vector(at).fmt(f),
            },
            lanes => {
                let parts: SmallVec<[_; 4]> = (0..lanes).map(|lane| self.element(at, lane)).collect();
                write!(f, "{}({})", TypeName(ty), Listed(&parts))
            }
        }
    }

    fn store(&self, out: &mut Writer, at: &Address, value: Value) {
        if self.is_narrow(at) {
            return self.store_narrow(out, at, value);
        }
        let (ty, inline_values) = (self.kernel.ty(value), self.inline_values.operand(value));
        if is_wide(self.kernel, ty, at, 1) {
            return out.line(format_args!("{} = {inline_values};", self.vector(at)));
        }
        let lanes = lanes(ty);
        for lane in 0..lanes {
            out.line(format_args!(
                "{} = {};",
                self.element(at, lane),
                Component { inline_values, lane, lanes }
            ));
        }
    }

    /// Where the element of a lane is.
    fn position<'e>(&'e self, at: &'e Address, lane: u8) -> impl Display + 'e {
        fmt::from_fn(move |f| {
            let index = self.inline_values.operand(at.index);
            if self.kernel.ty(at.index).lanes == Lanes::ONE {
                Plus(index, u32::from(lane) * at.stride + at.phase).fmt(f)
            } else {
                write!(f, "{index}[{lane}]")
            }
        })
    }

    /// Four elements.
    fn vector<'e>(&'e self, at: &'e Address) -> impl Display + 'e {
        fmt::from_fn(move |f| write!(f, "{}[{} >> 2u]", self.name(at.buffer), self.position(at, 0)))
    }

    /// The element of a lane.
    fn element<'e>(&'e self, at: &'e Address, lane: u8) -> impl Display + 'e {
        fmt::from_fn(move |f| {
            let (name, buffer) = (self.name(at.buffer), self.kernel.buffer(at.buffer));
            let position = self.position(at, lane);
            if buffer.uniform == Some(1) {
                f.write_str(name)
            } else if narrow::is_narrow(buffer.dtype) {
                self.narrow_element(f, at.buffer, &position)
            } else if self.wide[usize::from(at.buffer.0)] {
                write!(f, "{name}[({position}) >> 2u][({position}) & 3u]")
            } else {
                write!(f, "{name}[{position}]")
            }
        })
    }

    fn name(&self, buffer: BufferId) -> &str {
        &self.buffers[usize::from(buffer.0)]
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
        for stmt in statements(body) {
            if let Stmt::Let(value, expr) = stmt {
                self.expr(*value, expr);
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

fn asks_for_subgroups(body: &[Stmt]) -> bool {
    let asks = |expr: &Expr| {
        matches!(expr, Expr::Builtin(Builtin::SubgroupLane | Builtin::SubgroupSize) | Expr::Shuffle(..))
    };
    statements(body).any(|stmt| matches!(stmt, Stmt::Let(_, expr) if asks(expr)))
}

/// Which buffers some access takes four elements of at once, or lie as uniforms have to.
fn wide_buffers(kernel: &Kernel) -> Vec<bool> {
    let mut wide: Vec<bool> =
        kernel.buffers.iter().map(|buffer| buffer.uniform.is_some_and(|most| most > 1)).collect();
    for stmt in statements(&kernel.body) {
        let Some((at, value)) = stmt.access() else { continue };
        let masked = if let Stmt::Let(_, Expr::LoadWhere(_, mask)) = stmt { Some(*mask) } else { None };
        let conditions = masked.map_or(1, |mask| lanes(kernel.ty(mask)));
        wide[usize::from(at.buffer.0)] |= is_wide(kernel, kernel.ty(value), at, conditions);
    }
    wide
}

/// Whether an access takes four elements at once.
fn is_wide(kernel: &Kernel, ty: Type, at: &Address, conditions: u8) -> bool {
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

/// One of the lanes of a value.
struct Component<'t> {
    inline_values: OperandText<'t>,
    lane: u8,
    lanes: u8,
}

impl Display for Component<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Component { inline_values, lanes: 1, .. } => inline_values.fmt(f),
            Component { inline_values, lane, .. } => write!(f, "{inline_values}[{lane}]"),
        }
    }
}

/// An index and what is added to it.
struct Plus<'t>(OperandText<'t>, u32);

impl Display for Plus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Plus(index, 0) => index.fmt(f),
            Plus(index, offset) => write!(f, "{index} + {offset}u"),
        }
    }
}

/// Returns the variable of the kernel's text that has the value.
fn builtin_text(builtin: Builtin) -> &'static str {
    match builtin {
        Builtin::ThreadId => "local",
        Builtin::BlockId => "group.y * groups.x + group.x",
        Builtin::GridId => "thread",
        Builtin::SubgroupLane => "lane",
        Builtin::SubgroupSize => "lanes",
        Builtin::HasRest => "rest",
        Builtin::LaneIndex => unreachable!("its text depends on the number of lanes"),
        Builtin::TeamId | Builtin::TeamSlot | Builtin::TileRow | Builtin::TileCol => {
            unreachable!("legalize tells threads by their workgroups")
        }
        Builtin::ClusterRank | Builtin::ClusterSize | Builtin::ClusterId | Builtin::Clusters => {
            unreachable!("these are for PTX")
        }
        Builtin::Blocks | Builtin::GridSize => unreachable!("a dispatch has a thread for each iteration"),
        Builtin::Grain
        | Builtin::BlockStart
        | Builtin::BlockLen
        | Builtin::RangeStart
        | Builtin::RangeEnd => {
            unreachable!("a GPU distributes threads, not items")
        }
    }
}

fn lanes(ty: Type) -> u8 {
    match ty.lanes {
        Lanes::Const(lanes) => lanes,
        Lanes::Loop | Lanes::Tile(..) => unreachable!("a GPU's vectors are lanes"),
    }
}

/// A type as WGSL has it.
#[derive(Clone, Copy)]
struct TypeName(Type);

impl Display for TypeName {
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
