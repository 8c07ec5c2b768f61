//! How many registers a kernel may have, as ptxas is told.
//!
//! A multiprocessor has as many for all threads that it runs: what each takes more, fewer wait for memory together; what it takes
//! less, ptxas makes up for by reading later, or by memory.

use crate::ir::dtype::DType;
use crate::ir::kernel::{Expr, IndexWidth, Kernel, Lanes, SharedLen, Stmt, Type, Value, WARP};

/// The registers of a thread of which three blocks of 512 have what there are: as many as their rows leave room for in the shared memory
/// of an H100. ptxas by itself takes fewer for such kernels, and then reads one vector after it has stored another. A softmax of
/// 32,768 took an H200 150 us without and 136 with it, a layer norm 151 and 144.
const OF_THREE_BLOCKS: usize = 40;

/// What bounds the threads of a block and the registers of each, if something does.
pub(super) fn bounds(kernel: &Kernel) -> String {
    // With as many threads, that many registers do not fit. ptxas keeps room for other blocks, which go on while the threads of
    // one wait for each other. Asked for few blocks it takes up to twice the registers: rows took an H200 a tenth longer. But
    // of values of 64 bits, and of eight lanes that are held, it would spill some to keep that room.
    let holds = kernel.shared.iter().any(|shared| shared.len == SharedLen::AtLaunch);
    let is_large = |ty: &Type| ty.dtype == DType::F64 || holds && ty.lanes == Lanes::Const(8);
    let is_heavy = kernel.index == IndexWidth::Bits64 || kernel.types.iter().any(is_large);
    match kernel.team {
        ..=WARP => String::new(),
        team if is_heavy => format!("\n.maxntid {team}, 1, 1\n.minnctapersm {}", (512 / team).max(1)),
        // Functions that need more would have to spill them.
        team if kernel.cluster && live(kernel) <= OF_THREE_BLOCKS => {
            format!("\n.maxntid {team}, 1, 1\n.maxnreg {OF_THREE_BLOCKS}")
        }
        team => format!("\n.maxntid {team}, 1, 1"),
    }
}

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
            Stmt::Store(..) | Stmt::StoreShared(..) | Stmt::Mail(_) | Stmt::Barrier(_) => {}
            Stmt::Vector { .. } | Stmt::Team(_) => unreachable!("legalize leaves neither for a GPU"),
        }
    }

    /// What was there before a loop and is needed in it is needed in each of its iterations.
    fn last_until_now(&mut self, start: usize) {
        let now = self.now;
        let around = self.of.iter_mut().flatten().filter(|span| span.made < start && span.last > start);
        around.for_each(|span| span.last = now);
    }
}
