//! How many registers a kernel may have, as ptxas is told.
//!
//! A multiprocessor has as many for all threads that it runs: what each takes more, fewer wait for memory together; what it takes
//! less, ptxas makes up for by reading later, or by memory.

use crate::ir::dtype::DType;
use crate::ir::kernel::{Expr, IndexWidth, Kernel, Lanes, SharedLen, Stmt, Type, Value, WARP};
use crate::target::tuning_table::ptx;

/// What bounds the threads of a block and the registers of each, if something does.
pub(super) fn bounds(kernel: &Kernel) -> String {
    let staged =
        kernel.shared.iter().find(|shared| shared.len == SharedLen::AtLaunch).map(|shared| shared.dtype);
    // Teams of 128 threads have room for more registers, unless two bytes hold a staged element.
    let least = if staged.is_some_and(DType::is_narrow) { 128 } else { 256 };
    let has_wide = kernel.types.iter().any(|ty| ty.dtype == DType::F64);
    let has_eight = staged.is_some() && kernel.types.iter().any(|ty| ty.lanes == Lanes::Const(8));
    let limit = match kernel.threads.team {
        ..=WARP => return String::new(),
        // With as many threads, that many registers do not fit. ptxas keeps room for other blocks, which go on while the threads of
        // one wait for each other. Asked for few blocks it takes up to twice the registers: rows took an H200 a tenth longer. But
        // of values of 64 bits, and of eight lanes that are held, it would spill some to keep that room.
        team if kernel.index == IndexWidth::Bits64 || has_wide => {
            few_blocks(team, if has_many(kernel) { 256 } else { 512 })
        }
        // Two products at once have so many sums that ptxas would spill some to keep room for a third block.
        team if team < 256 && kernel.threads.rows > 1 && !kernel.threads.cyclic && has_many(kernel) => {
            few_blocks(team, 256)
        }
        // It makes up for half of what is live at once, lane by lane, and functions that need more would have to spill it.
        team if has_eight && (least..=512).contains(&team) && live(kernel) <= 2 * ptx::REGISTERS => {
            of_three_blocks()
        }
        team if has_eight => few_blocks(team, 512),
        _ if kernel.threads.cluster && live(kernel) <= ptx::REGISTERS => of_three_blocks(),
        _ => String::new(),
    };
    format!("\n.maxntid {}, 1, 1{limit}", kernel.threads.team)
}

fn of_three_blocks() -> String {
    format!("\n.maxnreg {}", ptx::REGISTERS)
}

/// Returns true if values leave no registers for 512 threads.
fn has_many(kernel: &Kernel) -> bool {
    live(kernel) > REGISTERS_OF_512 - REGISTERS_LEFT
}

/// Asks for as many blocks as have so many threads.
fn few_blocks(team: u32, threads: u32) -> String {
    format!("\n.minnctapersm {}", (threads / team).max(1))
}

/// Registers of each of 512 threads of a multiprocessor.
const REGISTERS_OF_512: usize = 128;

/// Registers of a thread for addresses and what ptxas reads ahead.
const REGISTERS_LEFT: usize = 32;

/// The most registers that hold values at once, if all is done in order: those of constants and arguments, which instructions name,
/// and of addresses left out.
fn live(kernel: &Kernel) -> usize {
    let same = (0..kernel.types.len() as u32).map(Value).collect();
    let mut spans = Spans { now: 0, of: vec![None; kernel.types.len()], same };
    spans.body(&kernel.body);
    let mut changes = vec![0_isize; spans.now + 2];
    for (span, ty) in spans.of.iter().zip(&kernel.types) {
        if let Some(Span { made, last }) = span {
            changes[*made] += registers(*ty);
            changes[*last + 1] -= registers(*ty);
        }
    }
    let counts = changes.iter().scan(0, |count, change| {
        *count += change;
        Some(*count)
    });
    counts.max().unwrap_or(0) as usize
}

/// Those of a value, where positions have 32 bits; truth values have registers of their own.
fn registers(Type { dtype, lanes }: Type) -> isize {
    let Lanes::Const(lanes) = lanes else { unreachable!("a GPU's vectors are lanes") };
    let each = match dtype {
        DType::Bool => 0,
        DType::F32 | DType::F16 | DType::BF16 | DType::Index => 1,
        DType::I32 | DType::U32 | DType::I16 | DType::U16 | DType::I8 | DType::U8 => 1,
        DType::F64 => 2,
    };
    each * isize::from(lanes)
}

/// From where a register has a value to where that is needed last, in statements.
#[derive(Clone, Copy)]
struct Span {
    made: usize,
    last: usize,
}

struct Spans {
    /// How many statements there were.
    now: usize,
    /// Those of each value.
    of: Vec<Option<Span>>,
    /// Which of them has the register that each is in.
    same: Vec<Value>,
}

impl Spans {
    fn body(&mut self, body: &[Stmt]) {
        body.iter().for_each(|stmt| self.stmt(stmt));
    }

    fn make(&mut self, value: Value) {
        self.of[value.0 as usize] = Some(Span { made: self.now, last: self.now });
    }

    fn need(&mut self, value: Value) {
        let register = self.same[value.0 as usize];
        if let Some(span) = &mut self.of[register.0 as usize] {
            span.last = self.now;
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        self.now += 1;
        stmt.for_each_operand(|value| self.need(*value));
        match stmt {
            Stmt::Let(value, Expr::Splat(of) | Expr::Lane(of, _)) => {
                self.same[value.0 as usize] = self.same[of.0 as usize];
            }
            Stmt::Let(_, Expr::Const(_) | Expr::Uniform(_)) => {}
            Stmt::Let(value, _) => self.make(*value),
            Stmt::If { body, .. } => self.body(body),
            Stmt::Loop { var, end, step, carried, body, .. } => {
                let start = self.now;
                [*var].into_iter().chain(carried.iter().map(|of| of.var)).for_each(|value| self.make(value));
                self.body(body);
                self.now += 1;
                [*var, *end, *step].into_iter().for_each(|value| self.need(value));
                for of in carried.iter() {
                    [of.var, of.next].into_iter().for_each(|value| self.need(value));
                    self.make(of.out);
                }
                self.last_until_now(start);
            }
            Stmt::Store(..)
            | Stmt::StoreShared(..)
            | Stmt::AsyncCopy(_)
            | Stmt::ClusterExchange(_)
            | Stmt::Barrier(_) => {}
            Stmt::Vector { .. } | Stmt::AllReduce(_) => unreachable!("legalize leaves neither for a GPU"),
        }
    }

    /// What was there before a loop and is needed in it is needed in each of its iterations.
    fn last_until_now(&mut self, start: usize) {
        let now = self.now;
        let around = self.of.iter_mut().flatten().filter(|span| span.made < start && span.last > start);
        around.for_each(|span| span.last = now);
    }
}
