//! Kernel → Rust: a safe function over slices, whose innermost loops the user's compiler vectorises.
//!
//! Every strided run of elements is sliced before its loop, so that no bound is checked inside. What is
//! written is given as the window of the items to run; its positions are relative to the window.
//! Long runs of statements are blocks, which bounds how deep scopes nest.

use std::cell::{Cell, RefCell};
use std::fmt;

use super::inline_values::{InlineValues, OperandText};
use super::{Listed, Writer, fill, identifier, template, text};
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::Access;
use crate::ir::kernel::{Address, BufferId, Builtin, Carried, Expr, Kernel, Lanes, Stmt, Type, Value};
use crate::target::Dialect;

mod combine;
mod folds;
mod in_place;
mod prefetch;
mod stream;
mod unroll_and_jam;
mod vector_loop;

use in_place::Floats;
use prefetch::Asks;
use stream::{LANE, Stream};
use vector_loop::staged_element;

/// The text of a legal kernel as a function of its name, of `Instructions` and `CpuArgs`, which must be in scope, as must `Lines`, `Rows`,
/// `Run`, `Total`, `doubles`, `fold_lanes`, `tiles`, `black_box` and `select_unpredictable`.
pub fn rust(kernel: &Kernel) -> CpuText {
    let (inline_values, floats, asks) = (InlineValues::new(kernel), RefCell::default(), Asks::of(kernel));
    let emitter = Emitter { kernel, inline_values, floats, asks, light: Cell::new(None) };
    let mut body = Writer::at_depth(1);
    emitter.body(&mut body, &kernel.body);
    let mut out = Writer::new();
    out.line("#[inline(always)]");
    let head = format!("pub(super) fn {}(ops: impl Instructions, args: &mut CpuArgs<'_>) {{", kernel.name);
    out.block(head, |out| {
        emitter.arguments(out);
        for (i, literal) in emitter.floats.borrow().kept.iter().enumerate() {
            out.line(format_args!("let k{i} = black_box({literal});"));
        }
        out.text += &body.text;
    });
    CpuText { text: out.text, is_memory_bound: emitter.light.get().unwrap_or(false) }
}

/// A kernel of the CPU.
pub struct CpuText {
    /// As Rust.
    pub text: String,
    /// Whether its loops wait for memory, however many lanes a vector has.
    pub is_memory_bound: bool,
}

/// The most statements of a block. Each `let` makes a scope of all that follows it in its block, and the compiler
/// describes scopes to debuggers recursively: some thousands overflow its stack.
const BLOCK_MAX: usize = 64;

struct Emitter<'k> {
    kernel: &'k Kernel,
    inline_values: InlineValues,
    floats: RefCell<Floats>,
    asks: Asks,
    /// Whether all loops until here do little with each element, if there were any.
    light: Cell<Option<bool>>,
}

impl Emitter<'_> {
    fn arguments(&self, out: &mut Writer) {
        for (i, buffer) in self.kernel.buffers.iter().enumerate() {
            let (name, dtype) = (identifier('b', i, &buffer.name), memory(buffer.dtype));
            match buffer.access {
                Access::Read => out.line(format_args!("let {name} = args.read::<{dtype}>({i});")),
                Access::Write | Access::ReadWrite => {
                    let part = if buffer.strided { "rows" } else { "neighbours" };
                    out.line(format_args!("let mut {name} = args.write::<{dtype}>({i}).{part}();"));
                }
            }
        }
        let rows: Vec<String> = (0..self.kernel.shared.len()).map(|i| format!("r{i}")).collect();
        if !rows.is_empty() {
            out.line(format_args!("let [{}] = args.row_memory();", rows.join(", ")));
            let wide = self.kernel.shared.iter().zip(&rows).filter(|(shared, _)| shared.dtype == DType::F64);
            wide.for_each(|(_, row)| out.line(format_args!("let {row} = doubles({row});")));
        }
        out.line("let (first, end) = args.range();");
        if self.asks.are_any() {
            out.line("let prefetcher = args.prefetcher();");
        }
    }

    fn body(&self, out: &mut Writer, body: &[Stmt]) {
        self.sequence(out, body, |out, stmt| self.stmt(out, stmt));
    }

    /// Statements one after another; many of them as blocks, which only what is used later gets out of.
    fn sequence(&self, out: &mut Writer, stmts: &[Stmt], print: impl Fn(&mut Writer, &Stmt)) {
        self.blocks(out, stmts, &|text| text, &print);
    }

    /// The same, of whose texts `copies` makes what is written.
    fn blocks(
        &self,
        out: &mut Writer,
        stmts: &[Stmt],
        copies: &dyn Fn(String) -> String,
        print: &dyn Fn(&mut Writer, &Stmt),
    ) {
        let runs = stmts.chunks(BLOCK_MAX);
        let blocks = runs.len() > 1;
        for run in runs {
            let nested = self.inline_values.nested(run, |stmt| !self.is_other_name(stmt));
            let lines = |out: &mut Writer| {
                for stmt in run {
                    match stmt {
                        Stmt::Let(value, expr) if self.has_no_let(*value, expr, &nested) => {}
                        stmt => {
                            let mut one = Writer::at_depth(out.depth);
                            print(&mut one, stmt);
                            out.text += &copies(one.text);
                        }
                    }
                }
            };
            if !blocks {
                lines(out);
                continue;
            }
            let mut inside = Writer::at_depth(out.depth + 1);
            lines(&mut inside);
            let kept: String =
                self.outliving(run).iter().map(|value| copies(format!("v{}, ", value.0))).collect();
            let kept = kept.trim_end();
            out.enclosed(format!("let ({kept}) = {{"), "};", |out| {
                out.text += &inside.text;
                out.line(format_args!("({kept})"));
            });
        }
    }

    /// The values made by these statements that others use, by whatever name.
    fn outliving(&self, run: &[Stmt]) -> Vec<Value> {
        let mut used = self.inline_values.used_later(run);
        for stmt in run.iter().rev() {
            if let Stmt::Let(value, expr) = stmt
                && used.contains(value)
            {
                used.extend(self.other_name(*value, expr));
            }
        }
        let made = run.iter().flat_map(Stmt::made);
        made.filter(|value| used.contains(value) && !self.inline_values.contains(*value)).collect()
    }

    fn stmt(&self, out: &mut Writer, stmt: &Stmt) {
        match stmt {
            Stmt::Let(value, expr) => {
                let dtype = scalar(self.kernel.ty(*value).dtype);
                out.line(format_args!("let v{}: {dtype} = {};", value.0, self.expr(*value, expr, &[])));
            }
            Stmt::Store(at, value) => {
                out.line(format_args!("{} = {};", self.element(at), self.stored(at, *value)));
            }
            Stmt::Loop { var, start, end, step, carried, body, .. } => {
                for Carried { start, var, .. } in carried {
                    let dtype = scalar(self.kernel.ty(*var).dtype);
                    out.line(format_args!(
                        "let mut c{}: {dtype} = {};",
                        var.0,
                        self.inline_values.operand(*start)
                    ));
                }
                let [start, end, step] = [start, end, step].map(|&value| self.inline_values.operand(value));
                let open = format!("for v{} in ({start}..{end}).step_by({step}) {{", var.0);
                out.block(open, |out| {
                    carried.iter().for_each(|one| out.line(format_args!("let v{0} = c{0};", one.var.0)));
                    self.body(out, body);
                    carried.iter().for_each(|one| {
                        out.line(format_args!("c{} = {};", one.var.0, self.inline_values.operand(one.next)))
                    });
                });
                carried.iter().for_each(|one| out.line(format_args!("let v{} = c{};", one.out.0, one.var.0)));
            }
            Stmt::Vector { len, body, folds } => self.vector(out, *len, body, folds),
            Stmt::AllReduce(_)
            | Stmt::StoreShared(..)
            | Stmt::AsyncCopy(_)
            | Stmt::ClusterExchange(_)
            | Stmt::Barrier(_) => {
                unreachable!("the CPU has no teams")
            }
            Stmt::If { cond, body } => out
                .block(format_args!("if {} {{", self.inline_values.operand(*cond)), |out| {
                    self.body(out, body)
                }),
        }
    }

    /// An element, or 0. Positions of what is not there are any: those are no runs to be sliced, and may wrap.
    fn element_where(&self, ty: Type, at: &Address, mask: Value) -> String {
        let lane = if is_from(self.kernel, ty, at) {
            format!(".wrapping_add({} * lane)", at.stride)
        } else {
            String::new()
        };
        let (zero, mask) = (literal(Const::zero(ty.dtype), ty.dtype), self.inline_values.operand(mask));
        if self.kernel.buffer(at.buffer).access != Access::Read {
            debug_assert_eq!(ty.lanes, Lanes::ONE, "what is written is at its own place");
            return format!("if {mask} {{ {} }} else {{ {zero} }}", self.loaded(at, &self.element(at)));
        }
        let place = format!("{}{lane}.wrapping_add({})", self.inline_values.operand(at.index), at.phase);
        let (name, read) = (self.name(at.buffer), self.loaded(at, "x"));
        format!("if {mask} {{ {name}.get({place}).map_or({zero}, |&x| {read}) }} else {{ {zero} }}")
    }

    /// What is read of an element: itself, or its bits.
    fn loaded(&self, at: &Address, element: &str) -> String {
        if self.is_narrow(at) { format!("u32::from({element})") } else { element.into() }
    }

    /// What is written to an element: a value, or its low bits.
    fn stored(&self, at: &Address, value: Value) -> String {
        let narrow = self.is_narrow(at).then(|| memory(self.kernel.buffer(at.buffer).dtype));
        let value = self.inline_values.operand(value);
        match narrow {
            Some(dtype) => format!("{value} as {dtype}"),
            None => value.to_string(),
        }
    }

    fn is_narrow(&self, at: &Address) -> bool {
        self.kernel.buffer(at.buffer).dtype.size() < 4
    }

    fn expr(&self, value: Value, expr: &Expr, streams: &[Stream]) -> String {
        let ty = self.kernel.ty(value);
        match expr {
            Expr::Const(constant) => literal(*constant, ty.dtype),
            Expr::Uniform(id) => {
                let accessor = if ty.dtype == DType::Index { "index" } else { ty.dtype.name() };
                format!("args.{accessor}({})", id.0)
            }
            Expr::Apply(op, args) => {
                let template = template(self.kernel, Dialect::Cpu, *op, args);
                text(fill(template, &self.inline_values.operands(args), &[]))
            }
            Expr::Cast(arg) => self.cast(*arg, ty.dtype),
            Expr::Bitcast(arg) => self.bitcast(*arg, ty.dtype),
            Expr::Splat(arg) => self.inline_values.operand(*arg).to_string(),
            Expr::Builtin(Builtin::LaneIndex) => LANE.into(),
            Expr::LoadMatrices(..) | Expr::MatrixProduct(..) => unreachable!("these are for PTX"),
            Expr::LoadShared(id, index) => staged_element(*id, *index, streams),
            Expr::Load(at) if ty.lanes == Lanes::Loop => self.loaded(at, &self.lane_element(at, streams)),
            Expr::Load(at) => self.loaded(at, &self.element(at)),
            Expr::LoadWhere(at, mask) => match self.masked_element(value, at, streams) {
                Some(element) => {
                    let (zero, mask) =
                        (literal(Const::zero(ty.dtype), ty.dtype), self.inline_values.operand(*mask));
                    format!("select_unpredictable({mask}, {}, {zero})", self.loaded(at, &element))
                }
                None => self.element_where(ty, at, *mask),
            },
            Expr::Builtin(Builtin::Grain) => "args.grain()".into(),
            Expr::Builtin(Builtin::BlockStart) => "args.block().0".into(),
            Expr::Builtin(Builtin::BlockLen) => "args.block().1".into(),
            Expr::Builtin(Builtin::RangeStart) => "first".into(),
            Expr::Builtin(Builtin::RangeEnd) => "end".into(),
            Expr::Pack(_) | Expr::Lane(..) | Expr::Shuffle(..) | Expr::Product(..) | Expr::Builtin(_) => {
                unreachable!("the CPU's vectors are loops and its grid is a range")
            }
        }
    }

    fn cast(&self, arg: Value, to: DType) -> String {
        let x = self.inline_values.operand(arg);
        let is_lane = matches!(x, OperandText::Text(LANE));
        match (self.kernel.ty(arg).dtype, to) {
            // LLVM counts in 64 bits what is cut to 32 after an addition: eight instructions for a vector of these, where one does.
            (DType::Index, DType::I32 | DType::U32) if is_lane => {
                format!("(first as {0}).wrapping_add((j) as {0})", scalar(to))
            }
            (DType::Bool, DType::F32 | DType::F64) => format!("{x} as u8 as {}", scalar(to)),
            (_, DType::Bool) => unreachable!("nothing is converted to a truth value"),
            (_, to) => format!("{x} as {}", scalar(to)),
        }
    }

    fn bitcast(&self, arg: Value, to: DType) -> String {
        let x = self.inline_values.operand(arg);
        match (self.kernel.ty(arg).dtype, to) {
            (from, to) if from == to => x.to_string(),
            (DType::F32, DType::U32) => format!("{x}.to_bits()"),
            (DType::F32, DType::I32) => format!("{x}.to_bits().cast_signed()"),
            (DType::U32, DType::F32) => format!("f32::from_bits({x})"),
            (DType::I32, DType::F32) => format!("f32::from_bits({x}.cast_unsigned())"),
            (DType::I32, DType::U32) => format!("{x}.cast_unsigned()"),
            (DType::U32, DType::I32) => format!("{x}.cast_signed()"),
            (from, to) => unreachable!("{from} and {to} have not the same bits"),
        }
    }

    /// One element of what is read, or of the window of what is written.
    fn element(&self, at: &Address) -> String {
        let (name, place) =
            (self.name(at.buffer), format!("{} + {}", self.inline_values.operand(at.index), at.phase));
        match self.kernel.buffer(at.buffer).access {
            Access::Read => format!("{name}[{place}]"),
            Access::Write | Access::ReadWrite => format!("*{name}.at({place})"),
        }
    }

    /// A multiple of an index.
    fn times(&self, count: u32, index: Value) -> String {
        let index = self.inline_values.operand(index);
        if count == 1 { index.to_string() } else { format!("{count} * {index}") }
    }

    fn name(&self, buffer: BufferId) -> String {
        identifier('b', usize::from(buffer.0), &self.kernel.buffer(buffer).name)
    }
}

/// Whether the lanes of an access follow each other from its index on.
fn is_from(kernel: &Kernel, ty: Type, at: &Address) -> bool {
    ty.lanes == Lanes::Loop && kernel.ty(at.index).lanes == Lanes::ONE
}

fn names(values: &[Value]) -> Vec<String> {
    values.iter().map(|value| format!("v{}", value.0)).collect()
}

fn tuple<T: fmt::Display>(parts: &[T]) -> String {
    format!("({},)", Listed(parts))
}

/// What memory of these elements is an array of.
fn memory(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 | DType::BF16 | DType::I16 | DType::U16 => "u16",
        DType::I8 | DType::U8 | DType::Bool => "u8",
        DType::F32 | DType::F64 | DType::I32 | DType::U32 | DType::Index => scalar(dtype),
    }
}

fn scalar(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::I32 => "i32",
        DType::U32 => "u32",
        DType::Bool => "bool",
        DType::Index => "usize",
        DType::F16 | DType::BF16 | DType::I16 | DType::U16 | DType::I8 | DType::U8 => {
            unreachable!("{dtype} is not computed with")
        }
    }
}

fn literal(constant: Const, dtype: DType) -> String {
    match constant {
        Const::Float(x) if dtype == DType::F64 => format!("f64::from_bits({:#x})", x.to_bits()),
        Const::Float(x) if (x as f32).is_finite() => format!("{:?}f32", x as f32),
        Const::Float(x) => format!("f32::from_bits({:#x})", (x as f32).to_bits()),
        Const::Int(x) => format!("{x}{}", scalar(dtype)),
        Const::Bool(x) => x.to_string(),
    }
}
