//! Kernel → Rust: a safe function over slices, whose innermost loops the user's compiler vectorises.
//!
//! Every strided run of elements is sliced before its loop, so that no bound is checked inside. What is
//! written is given as the window of the items to run; its positions are relative to the window.
//! Long runs of statements are blocks, which bounds how deep scopes nest.

use std::collections::HashMap;

use super::{Writer, fill, identifier, template};
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::Access;
use crate::ir::kernel::{At, BufferId, Expr, Kernel, Lanes, Stmt, Value};
use crate::target::Dialect;

/// The text of a legal kernel as a function `name` of `CpuArgs`, which must be in scope.
pub fn rust(kernel: &Kernel, name: &str, dialect: Dialect) -> String {
    let mut uses = HashMap::new();
    count_uses(&kernel.body, &mut uses);
    let emitter = Emitter { kernel, dialect, uses };
    let mut out = Writer::new();
    out.line("#[inline(always)]");
    out.block(format!("pub(super) fn {name}(args: &mut CpuArgs<'_>) {{"), |out| {
        emitter.arguments(out);
        emitter.body(out, &kernel.body);
    });
    out.text
}

/// The most statements of a block. Each `let` makes a scope of all that follows it in its block, and the compiler
/// describes scopes to debuggers recursively: some thousands overflow its stack.
const BLOCK_MAX: usize = 64;

struct Emitter<'k> {
    kernel: &'k Kernel,
    dialect: Dialect,
    /// How often each value is an operand.
    uses: HashMap<Value, usize>,
}

/// Adds how often each value is an operand of the statements and of those within.
fn count_uses(body: &[Stmt], uses: &mut HashMap<Value, usize>) {
    for stmt in body {
        stmt.clone().for_each_operand_mut(|operand| *uses.entry(*operand).or_default() += 1);
        match stmt {
            Stmt::Let(..) | Stmt::Store(..) => {}
            Stmt::Loop { body, .. } | Stmt::Vector { body, .. } | Stmt::If { body, .. } => {
                count_uses(body, uses);
            }
        }
    }
}

/// A run of elements that a vector loop goes through.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stream {
    buffer: BufferId,
    index: Value,
    stride: u32,
}

impl Emitter<'_> {
    fn arguments(&self, out: &mut Writer) {
        for (i, buffer) in self.kernel.buffers.iter().enumerate() {
            let (name, dtype) = (identifier('b', i, &buffer.name), scalar(buffer.dtype));
            match buffer.access {
                Access::Read => out.line(format!("let {name} = args.read::<{dtype}>({i});")),
                Access::Write | Access::ReadWrite => {
                    out.line(format!("let ({name}, s{i}) = args.write::<{dtype}>({i});"));
                }
            }
        }
        out.line("let (first, end) = args.range();");
    }

    fn body(&self, out: &mut Writer, body: &[Stmt]) {
        self.sequence(out, body, |out, stmt| self.stmt(out, stmt));
    }

    /// Statements one after another; many of them as blocks, which only what is used later gets out of.
    fn sequence(&self, out: &mut Writer, stmts: &[Stmt], print: impl Fn(&mut Writer, &Stmt)) {
        if stmts.len() <= BLOCK_MAX {
            stmts.iter().for_each(|stmt| print(out, stmt));
            return;
        }
        for run in stmts.chunks(BLOCK_MAX) {
            let kept: String = self.outliving(run).iter().map(|value| format!("v{}, ", value.0)).collect();
            let kept = kept.trim_end();
            out.enclosed(format!("let ({kept}) = {{"), "};", |out| {
                run.iter().for_each(|stmt| print(out, stmt));
                out.line(format!("({kept})"));
            });
        }
    }

    /// The values made by these statements that others use.
    fn outliving(&self, run: &[Stmt]) -> Vec<Value> {
        let mut inside = HashMap::new();
        count_uses(run, &mut inside);
        let made = run.iter().filter_map(|stmt| match stmt {
            Stmt::Let(value, _) => Some(*value),
            Stmt::Store(..) | Stmt::Loop { .. } | Stmt::Vector { .. } | Stmt::If { .. } => None,
        });
        made.filter(|value| self.uses.get(value) > inside.get(value)).collect()
    }

    fn stmt(&self, out: &mut Writer, stmt: &Stmt) {
        match stmt {
            Stmt::Let(value, expr) => {
                let dtype = scalar(self.kernel.ty(*value).dtype);
                out.line(format!("let v{}: {dtype} = {};", value.0, self.expr(*value, expr, &[])));
            }
            Stmt::Store(at, value) => {
                let place = format!("{} + {}", self.position(at), at.phase);
                out.line(format!("{}[{place}] = v{};", self.name(at.buffer), value.0));
            }
            Stmt::Loop { var, start, end, step, body, .. } => {
                let open = format!("for v{} in (v{}..v{}).step_by(v{}) {{", var.0, start.0, end.0, step.0);
                out.block(open, |out| self.body(out, body));
            }
            Stmt::Vector { len, body } => self.vector(out, *len, body),
            Stmt::If { cond, body } => out.block(format!("if v{} {{", cond.0), |out| self.body(out, body)),
        }
    }

    /// What is the same for all lanes first, then the slices, then the loop.
    fn vector(&self, out: &mut Writer, len: Value, body: &[Stmt]) {
        let (lanes, uniform): (Vec<Stmt>, Vec<Stmt>) =
            body.iter().cloned().partition(|stmt| self.is_per_lane(stmt));
        self.body(out, &uniform);
        let streams = self.streams(&lanes);
        for (i, stream) in streams.iter().enumerate() {
            let written = self.kernel.buffer(stream.buffer).access != Access::Read;
            let borrow = if written { "&mut " } else { "&" };
            let at = At { buffer: stream.buffer, index: stream.index, stride: stream.stride, phase: 0 };
            let run = format!("{}[{}..]", self.name(stream.buffer), self.position(&at));
            let chunks = if written { "as_chunks_mut" } else { "as_chunks" };
            match stream.stride {
                1 => out.line(format!("let p{i} = {borrow}{run}[..v{}];", len.0)),
                k => out.line(format!("let p{i} = {borrow}{run}[..{k} * v{0}].{chunks}::<{k}>().0;", len.0)),
            }
        }
        let strided: Vec<usize> = (0..streams.len()).filter(|&i| streams[i].stride > 1).collect();
        for &i in &strided {
            let borrow =
                if self.kernel.buffer(streams[i].buffer).access == Access::Read { "&" } else { "&mut " };
            out.line(format!("let p{i} = {borrow}p{i}[..v{}];", len.0));
        }
        out.block(format!("for j in 0..v{} {{", len.0), |out| {
            self.sequence(out, &lanes, |out, stmt| self.lane_stmt(out, stmt, &streams));
        });
    }

    fn is_per_lane(&self, stmt: &Stmt) -> bool {
        match stmt {
            Stmt::Let(value, _) => self.kernel.ty(*value).lanes == Lanes::Loop,
            Stmt::Store(..) => true,
            Stmt::Loop { .. } | Stmt::Vector { .. } | Stmt::If { .. } => {
                unreachable!("a vector loop holds no other statements")
            }
        }
    }

    fn streams(&self, lanes: &[Stmt]) -> Vec<Stream> {
        let mut streams: Vec<Stream> = Vec::new();
        for stmt in lanes {
            let at = match stmt {
                Stmt::Let(_, Expr::Load(at)) | Stmt::Store(at, _) => at,
                Stmt::Let(..) | Stmt::Loop { .. } | Stmt::Vector { .. } | Stmt::If { .. } => continue,
            };
            if let Some(stream) = self.stream(at)
                && !streams.contains(&stream)
            {
                streams.push(stream);
            }
        }
        streams
    }

    /// The run that an access of all lanes goes through, unless it gathers.
    fn stream(&self, at: &At) -> Option<Stream> {
        let one = self.kernel.ty(at.index).lanes == Lanes::ONE;
        one.then_some(Stream { buffer: at.buffer, index: at.index, stride: at.stride })
    }

    fn lane_stmt(&self, out: &mut Writer, stmt: &Stmt, streams: &[Stream]) {
        match stmt {
            Stmt::Let(value, expr) => {
                let dtype = scalar(self.kernel.ty(*value).dtype);
                out.line(format!("let v{}: {dtype} = {};", value.0, self.expr(*value, expr, streams)));
            }
            Stmt::Store(at, value) => out.line(format!("{} = v{};", self.lane_element(at, streams), value.0)),
            Stmt::Loop { .. } | Stmt::Vector { .. } | Stmt::If { .. } => {
                unreachable!("a vector loop holds no other statements")
            }
        }
    }

    /// The element of a lane: of a stream, or gathered.
    fn lane_element(&self, at: &At, streams: &[Stream]) -> String {
        let stream = self.stream(at);
        match streams.iter().position(|known| Some(*known) == stream) {
            Some(i) if at.stride == 1 => format!("p{i}[j]"),
            Some(i) => format!("p{i}[j][{}]", at.phase),
            None => format!("{}[{}]", self.name(at.buffer), self.position(at)),
        }
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
                let names: Vec<String> = args.iter().map(|arg| format!("v{}", arg.0)).collect();
                fill(template(self.kernel, self.dialect, *op, args), &names, &[])
            }
            Expr::Cast(arg) => self.cast(*arg, ty.dtype),
            Expr::Bitcast(arg) => self.bitcast(*arg, ty.dtype),
            Expr::Splat(arg) => format!("v{}", arg.0),
            Expr::LaneIndex => "j".into(),
            Expr::Load(at) if ty.lanes == Lanes::Loop => self.lane_element(at, streams),
            Expr::Load(at) => format!("{}[{} + {}]", self.name(at.buffer), self.position(at), at.phase),
            Expr::RangeStart => "first".into(),
            Expr::RangeEnd => "end".into(),
            Expr::Pack(_) | Expr::Lane(..) | Expr::GridId | Expr::GridSize => {
                unreachable!("the CPU's vectors are loops and its grid is a range")
            }
        }
    }

    fn cast(&self, arg: Value, to: DType) -> String {
        match (self.kernel.ty(arg).dtype, to) {
            (DType::Bool, DType::F32 | DType::F64) => format!("v{} as u8 as {}", arg.0, scalar(to)),
            (_, DType::Bool) => unreachable!("nothing is converted to a truth value"),
            (_, to) => format!("v{} as {}", arg.0, scalar(to)),
        }
    }

    fn bitcast(&self, arg: Value, to: DType) -> String {
        match (self.kernel.ty(arg).dtype, to) {
            (DType::F32, DType::U32) => format!("v{}.to_bits()", arg.0),
            (DType::F32, DType::I32) => format!("v{}.to_bits().cast_signed()", arg.0),
            (DType::U32, DType::F32) => format!("f32::from_bits(v{})", arg.0),
            (DType::I32, DType::F32) => format!("f32::from_bits(v{}.cast_unsigned())", arg.0),
            (DType::I32, DType::U32) => format!("v{}.cast_unsigned()", arg.0),
            (DType::U32, DType::I32) => format!("v{}.cast_signed()", arg.0),
            (from, to) => unreachable!("{from} and {to} have not the same bits"),
        }
    }

    /// The position of an access in the slice that it goes to.
    fn position(&self, at: &At) -> String {
        match self.kernel.buffer(at.buffer).access {
            Access::Read => format!("v{}", at.index.0),
            Access::Write | Access::ReadWrite => format!("v{} - s{}", at.index.0, at.buffer.0),
        }
    }

    fn name(&self, buffer: BufferId) -> String {
        identifier('b', usize::from(buffer.0), &self.kernel.buffer(buffer).name)
    }
}

fn scalar(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::I32 => "i32",
        DType::U32 => "u32",
        DType::I8 => "i8",
        DType::U8 => "u8",
        DType::Bool => "bool",
        DType::Index => "usize",
        DType::F16 | DType::BF16 => unreachable!("{dtype} is not computed with"),
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
