//! Text of the Kernel IR, for people and for snapshots.
//!
//! Invariant: kernels that the verifier refuses can be printed, too.

use std::fmt::{self, Display, Write};

use super::graph::Access;
use super::kernel::{At, Expr, IndexWidth, Kernel, Lanes, LoopKind, Stmt, Type, Value};

impl Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = match self.index {
            IndexWidth::Bits32 => 32,
            IndexWidth::Bits64 => 64,
        };
        writeln!(f, "kernel {} (index: {bits} bits)", self.name)?;
        for (i, buffer) in self.buffers.iter().enumerate() {
            let access = match buffer.access {
                Access::Read => "read",
                Access::Write => "write",
                Access::ReadWrite => "read write",
            };
            writeln!(f, "  buffer {i}: {access} {} {}", buffer.dtype, buffer.name)?;
        }
        for (i, uniform) in self.uniforms.iter().enumerate() {
            writeln!(f, "  uniform {i}: {} {}", uniform.dtype, uniform.name)?;
        }
        block(self, f, &self.body, 1)
    }
}

impl Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lanes {
            Lanes::Const(1) => write!(f, "{}", self.dtype),
            Lanes::Const(lanes) => write!(f, "{}x{lanes}", self.dtype),
            Lanes::Loop => write!(f, "{}x*", self.dtype),
        }
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

fn block(kernel: &Kernel, f: &mut fmt::Formatter<'_>, body: &[Stmt], depth: usize) -> fmt::Result {
    body.iter().try_for_each(|stmt| {
        (0..depth).try_for_each(|_| f.write_str("  "))?;
        statement(kernel, f, stmt, depth)
    })
}

fn statement(kernel: &Kernel, f: &mut fmt::Formatter<'_>, stmt: &Stmt, depth: usize) -> fmt::Result {
    match stmt {
        Stmt::Let(value, expr) => {
            let ty = kernel.types.get(value.0 as usize).map_or("?".into(), Type::to_string);
            writeln!(f, "{value}: {ty} = {}", expression(kernel, expr))
        }
        Stmt::Store(at, value) => writeln!(f, "store {} = {value}", place(kernel, at)),
        Stmt::Loop { var, kind, start, end, step, body } => {
            let kind = match kind {
                LoopKind::Grid => "grid",
                LoopKind::Serial => "serial",
            };
            writeln!(f, "for {var} in {start}..{end} step {step} ({kind})")?;
            block(kernel, f, body, depth + 1)
        }
        Stmt::Vector { len, body } => {
            writeln!(f, "vector {len}")?;
            block(kernel, f, body, depth + 1)
        }
        Stmt::If { cond, body } => {
            writeln!(f, "if {cond}")?;
            block(kernel, f, body, depth + 1)
        }
    }
}

fn expression(kernel: &Kernel, expr: &Expr) -> String {
    match expr {
        Expr::Const(value) => value.to_string(),
        Expr::Uniform(id) => {
            let name = kernel.uniforms.get(usize::from(id.0)).map_or("?", |uniform| &uniform.name);
            format!("uniform {} ({name})", id.0)
        }
        Expr::Apply(op, args) => format!("{op:?} {}", values(args)),
        Expr::Cast(arg) => format!("cast {arg}"),
        Expr::Bitcast(arg) => format!("bitcast {arg}"),
        Expr::Splat(arg) => format!("splat {arg}"),
        Expr::Pack(args) => format!("pack {}", values(args)),
        Expr::Lane(arg, lane) => format!("lane {lane} of {arg}"),
        Expr::LaneIndex => "lane index".into(),
        Expr::Load(at) => format!("load {}", place(kernel, at)),
        Expr::GridId => "grid id".into(),
        Expr::GridSize => "grid size".into(),
        Expr::RangeStart => "range start".into(),
        Expr::RangeEnd => "range end".into(),
    }
}

fn values(values: &[Value]) -> String {
    values.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")
}

fn place(kernel: &Kernel, at: &At) -> String {
    let name = kernel.buffers.get(usize::from(at.buffer.0)).map_or("?", |buffer| &buffer.name);
    let mut text = format!("{name}[{}", at.index);
    if at.stride > 1 {
        let _ = write!(text, " + lane*{}", at.stride);
    }
    if at.phase > 0 {
        let _ = write!(text, " + {}", at.phase);
    }
    text + "]"
}
