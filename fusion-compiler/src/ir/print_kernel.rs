//! Text form of Kernel IR, for readers and for snapshots.
//!
//! Invariant: kernels that the verifier rejects can be printed, too.

use std::fmt::{self, Display, Write};

use super::graph::Access;
use super::kernel::{
    Address, AsyncCopy, Carried, ClusterExchange, Expr, Fold, IndexWidth, Kernel, Lanes, LoopKind, Scope,
    SharedLen, Shuffle, Stmt, Type, Value,
};

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
        for (i, shared) in self.shared.iter().enumerate() {
            match shared.len {
                SharedLen::Fixed(len) => writeln!(f, "  shared {i}: {}[{len}]", shared.dtype)?,
                SharedLen::AtLaunch => writeln!(f, "  shared {i}: {}[]", shared.dtype)?,
                SharedLen::ExchangeBuffer => {
                    writeln!(f, "  shared {i}: exchange buffer of {}", shared.dtype)?
                }
            }
        }
        if self.threads.team > 1 {
            let rows_per_team =
                if self.threads.rows > 1 { format!(" on {} rows", self.threads.rows) } else { String::new() };
            writeln!(f, "  teams of {} threads{rows_per_team}", self.threads.team)?;
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
            Lanes::Tile(rows, cols) => write!(f, "{}[{rows}, {cols}]", self.dtype),
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
        indent(f, depth)?;
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
        Stmt::Loop { var, kind, start, end, step, carried, body } => {
            let kind = match kind {
                LoopKind::Grid => "grid",
                LoopKind::Team => "team",
                LoopKind::Remainder => "rest",
                LoopKind::Serial => "serial",
            };
            writeln!(f, "for {var} in {start}..{end} step {step} ({kind})")?;
            block(kernel, f, body, depth + 1)?;
            carried.iter().try_for_each(|Carried { start, var, next, out }| {
                indent(f, depth + 1)?;
                writeln!(f, "{out} = {var} from {start}, then {next}")
            })
        }
        Stmt::Vector { len, body, folds } => {
            writeln!(f, "vector {len}")?;
            block(kernel, f, body, depth + 1)?;
            folds.iter().try_for_each(|one| {
                indent(f, depth + 1)?;
                fold(kernel, f, one, depth + 1)
            })
        }
        Stmt::AllReduce(one) => {
            f.write_str("team ")?;
            fold(kernel, f, one, depth)
        }
        Stmt::StoreShared(id, index, value) => writeln!(f, "store shared {}[{index}] = {value}", id.0),
        Stmt::AsyncCopy(AsyncCopy::Start(at, id, index, mask)) => {
            writeln!(f, "copy to shared {}[{index}] from {} where {mask}", id.0, place(kernel, at))
        }
        Stmt::AsyncCopy(AsyncCopy::Commit) => writeln!(f, "end a group of copies"),
        Stmt::AsyncCopy(AsyncCopy::Wait(groups)) => writeln!(f, "wait for all but {groups} groups of copies"),
        Stmt::ClusterExchange(ClusterExchange::Init) => writeln!(f, "initialise the exchange"),
        Stmt::ClusterExchange(ClusterExchange::Wait) => writeln!(f, "wait for the exchange"),
        Stmt::ClusterExchange(ClusterExchange::Send(id, to, from, value)) => {
            writeln!(f, "send to exchange buffer {} of block {to} from {from}: {value}", id.0)
        }
        Stmt::ClusterExchange(ClusterExchange::Receive(id)) => {
            writeln!(f, "receive exchange buffer {}", id.0)
        }
        Stmt::ClusterExchange(ClusterExchange::Invalidate) => writeln!(f, "invalidate the exchange"),
        Stmt::Barrier(Scope::Block) => writeln!(f, "barrier"),
        Stmt::Barrier(Scope::Team) => writeln!(f, "barrier of the team"),
        Stmt::Barrier(Scope::Warp) => writeln!(f, "barrier of the warp"),
        Stmt::Barrier(Scope::Cluster) => writeln!(f, "barrier of the cluster"),
        Stmt::If { cond, body } => {
            writeln!(f, "if {cond}")?;
            block(kernel, f, body, depth + 1)
        }
    }
}

fn fold(kernel: &Kernel, f: &mut fmt::Formatter<'_>, fold: &Fold, depth: usize) -> fmt::Result {
    let Fold { over, times, identity, left, right, body, results, out } = fold;
    let times = times.map(|times| format!(" by {times}")).unwrap_or_default();
    writeln!(f, "{} = fold {}{times} from {}", values(out), values(over), values(identity))?;
    indent(f, depth + 1)?;
    writeln!(f, "of {} and {}", values(left), values(right))?;
    block(kernel, f, body, depth + 1)?;
    indent(f, depth + 1)?;
    writeln!(f, "give {}", values(results))
}

fn indent(f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
    (0..depth).try_for_each(|_| f.write_str("  "))
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
        Expr::Builtin(builtin) => builtin.name().into(),
        Expr::Load(at) => format!("load {}", place(kernel, at)),
        Expr::LoadWhere(at, mask) => format!("load {} where {mask}", place(kernel, at)),
        Expr::Shuffle(arg, distance) => match distance {
            Shuffle::Down(distance) => format!("shuffle {arg} down {distance}"),
            Shuffle::DownBy(distance) => format!("shuffle {arg} down {distance}"),
            Shuffle::First => format!("shuffle {arg} from the first"),
        },
        Expr::LoadShared(id, index) => format!("load shared {}[{index}]", id.0),
        Expr::Product(sum, left, right) => format!("{sum} + product {left}, {right}"),
        Expr::LoadMatrices(id, index, transposed) => {
            let transposed = if *transposed { " transposed" } else { "" };
            format!("load matrices{transposed} shared {}[{index}]", id.0)
        }
        Expr::MatrixProduct(dtype, sum, left, right) => {
            format!("{sum} + {dtype} matrix product {left}, {right}")
        }
    }
}

fn values(values: &[Value]) -> String {
    values.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")
}

fn place(kernel: &Kernel, at: &Address) -> String {
    let name = kernel.buffers.get(usize::from(at.buffer.0)).map_or("?", |buffer| &buffer.name);
    let mut text = format!("{name}[{}", at.index);
    if at.stride > 1 {
        let _ = write!(text, " + lane*{}", at.stride);
    }
    if at.phase > 0 {
        let _ = write!(text, " + {}", at.phase);
    }
    if !at.aligned {
        text.push_str(" unaligned");
    }
    text + "]"
}
