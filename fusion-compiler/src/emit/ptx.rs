//! Kernel → PTX: one entry of the lowest version that has what it needs.
//!
//! Every lane of a value is a register. Reads go through the read-only cache unless the kernel writes the
//! buffer too; lanes side by side are accessed by 128 bits.

mod cluster_exchange;
mod divide;
mod in_place;
mod loops;
mod matrices;
mod memory;
mod positions;
mod registers;

use std::fmt;

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use cluster_exchange::{barrier_name, exchange_buffers};
use in_place::LaneList;
use memory::holds_apart;
use positions::Positions;

use super::{Writer, fill, identifier, template};
use crate::ir::dtype::{Class, Const, DType};
use crate::ir::kernel::{
    BufferId, Builtin, Expr, IndexWidth, Kernel, Lanes, Scope, SharedId, SharedLen, Shuffle, Stmt, Type,
    Value, WARP,
};
use crate::target::{CLUSTER_MAX, Dialect};

/// The oldest instruction set that has everything emitted here …
const HEADER: [&str; 3] = [".version 6.0", ".target sm_50", ".address_size 64"];
/// … that which has products of matrices and asynchronous copies …
const COPIES_HEADER: [&str; 3] = [".version 7.0", ".target sm_80", ".address_size 64"];
/// … and that which has clusters, and what their blocks send each other.
const CLUSTER_HEADER: [&str; 3] = [".version 8.1", ".target sm_90", ".address_size 64"];

/// The text of a legal kernel.
pub fn ptx(kernel: &Kernel) -> String {
    let mut emitter = Emitter::new(kernel);
    emitter.out.depth = 1;
    emitter.arguments();
    emitter.halve();
    emitter.body(&kernel.body);
    emitter.out.line("ret;");
    let mut out = Writer::of_assembly();
    let header = match kernel.threads.cluster {
        true => CLUSTER_HEADER,
        false if kernel.threads.panels.are_copied() => COPIES_HEADER,
        false => HEADER,
    };
    header.iter().for_each(|line| out.line(line));
    out.line("");
    for (i, _) in kernel.shared.iter().enumerate().filter(|(_, shared)| shared.len == SharedLen::AtLaunch) {
        out.line(format_args!(".extern .shared .align 16 .b8 {}[];", shared_name(SharedId(i as u16))));
    }
    out.line(format_args!(".visible .entry {}(", kernel.name));
    out.line(parameters(kernel).join(",\n"));
    let limit = registers::bounds(kernel);
    out.block(format_args!("){limit}\n{{"), |out| {
        for (bank, count) in Bank::ALL.iter().zip(emitter.counts) {
            if count > 0 {
                out.line(format_args!(".reg .{} %{}<{count}>;", bank.declared(), bank.letter()));
            }
        }
        for (i, shared) in kernel.shared.iter().enumerate() {
            let id = SharedId(i as u16);
            let len = match shared.len {
                SharedLen::AtLaunch => continue,
                SharedLen::Fixed(len) => len as usize,
                SharedLen::ExchangeBuffer => CLUSTER_MAX as usize,
            };
            out.line(format_args!(
                ".shared .align 16 .b8 {}[{}];",
                shared_name(id),
                shared.dtype.size() * len
            ));
        }
        exchange_buffers(kernel)
            .for_each(|id| out.line(format_args!(".shared .align 8 .b8 {}[8];", barrier_name(id))));
        out.text.push_str(&emitter.out.text);
    });
    out.text
}

fn parameters(kernel: &Kernel) -> Vec<String> {
    let buffers = (0..kernel.buffers.len()).map(|i| format!("    .param .u64 {}", buffer_name(kernel, i)));
    let uniforms = kernel.uniforms.iter().enumerate().map(|(i, uniform)| {
        let dtype = if uniform.dtype == DType::Bool { DType::U32 } else { uniform.dtype };
        format!("    .param .{} {}", suffix(kernel, dtype), identifier('u', i, &uniform.name))
    });
    buffers.chain(uniforms).collect()
}

fn buffer_name(kernel: &Kernel, i: usize) -> String {
    identifier('b', i, &kernel.buffers[i].name)
}

fn shared_name(id: SharedId) -> String {
    format!("s{}", id.0)
}

/// Registers of one kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bank {
    Pred,
    Bits32,
    Bits64,
    F32,
    F64,
}

impl Bank {
    const ALL: [Bank; 5] = [Bank::Pred, Bank::Bits32, Bank::Bits64, Bank::F32, Bank::F64];

    fn letter(self) -> &'static str {
        match self {
            Bank::Pred => "p",
            Bank::Bits32 => "r",
            Bank::Bits64 => "rd",
            Bank::F32 => "f",
            Bank::F64 => "fd",
        }
    }

    fn declared(self) -> &'static str {
        match self {
            Bank::Pred => "pred",
            Bank::Bits32 => "b32",
            Bank::Bits64 => "b64",
            Bank::F32 => "f32",
            Bank::F64 => "f64",
        }
    }
}

/// A register of a kind.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Register {
    bank: Bank,
    number: u32,
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("%")?;
        f.write_str(self.bank.letter())?;
        self.number.fmt(f)
    }
}

/// Those of a value, by lane.
type Registers = SmallVec<[Register; 4]>;

struct Emitter<'k> {
    kernel: &'k Kernel,
    out: Writer,
    counts: [u32; 5],
    /// The registers of each value.
    registers: Vec<Registers>,
    /// The address of each buffer.
    addresses: Vec<Register>,
    /// Addresses of elements that are known here, each once.
    known: Vec<(BufferId, Value, Registers)>,
    /// Bytes that are known here of so many elements of a size.
    offsets: Vec<(Register, usize, Register)>,
    /// Addresses that are known here, by base, index and size.
    sums: Vec<((Register, Register, usize), Register)>,
    /// Where halves of vectors are in the memory for rows, if those are apart (`halve`).
    halves: Option<[Register; 2]>,
    /// Whether addresses are made as such kernels want them (`holds_apart`).
    holds_apart: bool,
    /// Whole numbers that are known.
    constants: FxHashMap<Value, u64>,
    /// Positions as sums.
    positions: Positions,
    /// Addresses in shared memory that are known here, by base, index and factor.
    places: Vec<((Register, Value, i64), Register)>,
    /// Sums that overwrite carried values, with the lanes of these.
    in_place: FxHashMap<Value, LaneList>,
    /// Where arrays in shared memory begin, as far as that is known here.
    starts: Vec<(SharedId, Register)>,
    /// Whether what is read here is held, and not read again: it leaves the caches first, for the elements that are. An RMS norm
    /// of rows of 32,768 elements took an H200 a twenty-fifth longer without.
    reads_once: bool,
    labels: u32,
}

impl<'k> Emitter<'k> {
    fn new(kernel: &'k Kernel) -> Emitter<'k> {
        let registers = vec![Registers::new(); kernel.types.len()];
        Emitter {
            kernel,
            out: Writer::of_assembly(),
            counts: [0; 5],
            registers,
            addresses: vec![],
            known: vec![],
            offsets: vec![],
            sums: vec![],
            halves: None,
            holds_apart: holds_apart(kernel),
            constants: FxHashMap::default(),
            positions: Positions::new(kernel),
            places: vec![],
            starts: vec![],
            in_place: FxHashMap::default(),
            reads_once: false,
            labels: 0,
        }
    }

    fn register(&mut self, bank: Bank) -> Register {
        let count = &mut self.counts[bank as usize];
        *count += 1;
        Register { bank, number: *count - 1 }
    }

    fn bank(&self, dtype: DType) -> Bank {
        bank(self.kernel, dtype)
    }

    /// Registers for a value: fresh ones, or those of the values that it overwrites.
    fn define(&mut self, value: Value) -> Registers {
        let ty = self.kernel.ty(value);
        let bank = self.bank(ty.dtype);
        let lanes: Registers = match self.in_place.remove(&value) {
            Some(carried) => carried.iter().map(|(of, lane)| self.lane(*of, usize::from(*lane))).collect(),
            None => (0..lanes(ty)).map(|_| self.register(bank)).collect(),
        };
        self.registers[value.0 as usize].clone_from(&lanes);
        lanes
    }

    fn lane(&self, value: Value, lane: usize) -> Register {
        self.registers[value.0 as usize][lane]
    }

    fn one(&self, value: Value) -> Register {
        self.lane(value, 0)
    }

    fn line(&mut self, line: impl fmt::Display) {
        self.out.line(line);
    }

    fn arguments(&mut self) {
        for i in 0..self.kernel.buffers.len() {
            let (given, address) = (self.register(Bank::Bits64), self.register(Bank::Bits64));
            self.line(format_args!("ld.param.u64 {given}, [{}];", buffer_name(self.kernel, i)));
            self.line(format_args!("cvta.to.global.u64 {address}, {given};"));
            self.addresses.push(address);
        }
    }

    fn body(&mut self, body: &[Stmt]) {
        let (known, offsets, sums) = (self.known.len(), self.offsets.len(), self.sums.len());
        let (places, starts) = (self.places.len(), self.starts.len());
        body.iter().for_each(|stmt| self.stmt(stmt));
        // A body may not run.
        self.known.truncate(known);
        self.offsets.truncate(offsets);
        self.sums.truncate(sums);
        self.places.truncate(places);
        self.starts.truncate(starts);
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Let(value, expr) => self.bind(*value, expr),
            Stmt::Store(at, value) => self.store(at, *value),
            Stmt::Loop { var, start, end, step, carried, body, .. } => {
                self.run(*var, (*start, *end, *step), carried, body);
            }
            Stmt::If { cond, body } => {
                let (cond, done) = (self.one(*cond), self.label("else"));
                self.line(format_args!("@!{cond} bra {done};"));
                self.body(body);
                self.mark(&done);
            }
            Stmt::StoreShared(id, index, value) => {
                let registers = self.registers[value.0 as usize].clone();
                self.store_shared(*id, *index, &registers, self.kernel.ty(*value).dtype);
            }
            Stmt::AsyncCopy(copy) => self.async_copy(copy),
            Stmt::ClusterExchange(exchange) => self.cluster_exchange(*exchange),
            Stmt::Barrier(Scope::Block) => self.line("bar.sync 0;"),
            Stmt::Barrier(Scope::Warp) => self.line("bar.warp.sync 0xffffffff;"),
            Stmt::Barrier(Scope::Cluster) => self.cluster_barrier(),
            Stmt::Barrier(Scope::Team) => unreachable!("`legalize` has one of a block or of a warp"),
            Stmt::Vector { .. } => unreachable!("a GPU's vectors are lanes"),
            Stmt::AllReduce(_) => unreachable!("legalize leaves shuffles and shared memory"),
        }
    }

    fn bind(&mut self, value: Value, expr: &Expr) {
        self.note_constant(value, expr);
        if !self.positions.is_needed(value) {
            return;
        }
        if let Some(same) = self.renaming(value, expr) {
            self.registers[value.0 as usize] = same;
            return;
        }
        let dtype = self.kernel.ty(value).dtype;
        let t = suffix(self.kernel, dtype);
        if let Expr::Const(constant) = expr {
            let d = self.register(self.bank(dtype));
            self.line(format_args!("mov.{t} {d}, {};", literal(*constant, dtype)));
            self.registers[value.0 as usize] = smallvec![d; usize::from(lanes(self.kernel.ty(value)))];
            return;
        }
        let d = self.define(value);
        match expr {
            Expr::Const(_) => unreachable!("a constant has one register for all lanes"),
            Expr::Uniform(id) => {
                let i = usize::from(id.0);
                self.uniform(d[0], dtype, &identifier('u', i, &self.kernel.uniforms[i].name));
            }
            Expr::Apply(op, args) => {
                let of = self.kernel.ty(args[args.len() - 1]).dtype;
                if of == DType::Index && self.divide(*op, &d, args) {
                    return;
                }
                let (text, t) = (template(self.kernel, Dialect::Ptx, *op, args), suffix(self.kernel, of));
                for (lane, d) in d.iter().enumerate() {
                    let args: Registers = args.iter().map(|&arg| self.lane(arg, lane)).collect();
                    let b = self.bank(of).bits();
                    let amount = if text.contains("{amount}") { self.amount(of, args[1]) } else { *d };
                    self.line(fill(text, &args, &[("d", d), ("t", &t), ("b", &b), ("amount", &amount)]));
                }
            }
            Expr::Cast(arg) => self.cast(&d, dtype, *arg),
            Expr::Bitcast(arg) => {
                let b = self.bank(dtype).bits();
                for (lane, d) in d.iter().enumerate() {
                    self.line(format_args!("mov.{b} {d}, {};", self.lane(*arg, lane)));
                }
            }
            Expr::Splat(_) | Expr::Pack(_) | Expr::Lane(..) => unreachable!("these only rename registers"),
            Expr::Product(..) => unreachable!("legalize leaves no tiles"),
            Expr::LoadMatrices(id, index, transposed) => self.load_matrices(&d, *id, *index, *transposed),
            Expr::MatrixProduct(of, sum, left, right) => self.matrix_product(&d, *of, [*sum, *left, *right]),
            Expr::Builtin(builtin) => self.builtin(&d, t, *builtin),
            Expr::Load(at) => self.load(&d, dtype, at, &[]),
            Expr::LoadWhere(at, mask) => {
                let mask = self.registers[mask.0 as usize].clone();
                d.iter().for_each(|d| self.line(format_args!("mov.{t} {d}, {};", zero(dtype))));
                self.load(&d, dtype, at, &mask);
            }
            Expr::LoadShared(id, index) => {
                self.load_shared(*id, *index, &d, dtype);
            }
            Expr::Shuffle(arg, from) => {
                let arg = self.one(*arg);
                self.shuffle(d[0], arg, dtype, *from);
            }
        }
    }

    /// Reads a value of the machine, or sets each lane to its number.
    fn builtin(&mut self, d: &[Register], t: &str, builtin: Builtin) {
        match builtin {
            Builtin::LaneIndex => {
                d.iter().enumerate().for_each(|(lane, d)| self.line(format_args!("mov.{t} {d}, {lane};")));
            }
            Builtin::ThreadId => self.special(d[0], "%tid.x"),
            Builtin::BlockId => self.special(d[0], "%ctaid.x"),
            Builtin::Blocks => self.special(d[0], "%nctaid.x"),
            Builtin::ClusterRank => self.special(d[0], "%cluster_ctarank"),
            Builtin::ClusterSize => self.special(d[0], "%cluster_nctarank"),
            Builtin::ClusterId => self.special(d[0], "%clusterid.x"),
            Builtin::Clusters => self.special(d[0], "%nclusterid.x"),
            Builtin::TeamId | Builtin::TeamSlot | Builtin::TileRow | Builtin::TileCol => {
                unreachable!("legalize tells threads by their blocks")
            }
            Builtin::SubgroupLane | Builtin::SubgroupSize | Builtin::HasRest => {
                unreachable!("these are for WGSL")
            }
            Builtin::GridId => self.grid(d[0], ["%ctaid.x", "%ntid.x"], Some("%tid.x")),
            Builtin::GridSize => self.grid(d[0], ["%nctaid.x", "%ntid.x"], None),
            Builtin::Grain
            | Builtin::BlockStart
            | Builtin::BlockLen
            | Builtin::RangeStart
            | Builtin::RangeEnd => {
                unreachable!("a GPU deals out threads, not items")
            }
        }
    }

    /// A value of another thread, one of 64 bits by its halves.
    fn shuffle(&mut self, d: Register, arg: Register, dtype: DType, from: Shuffle) {
        let threads = self.kernel.threads;
        // The bits of a thread's number that its first has, too: where rows share a warp, those of the row.
        let kept = WARP - threads.per_row().min(WARP);
        let (mode, from, clamp) = match from {
            Shuffle::Down(distance) => ("down", distance, 31),
            Shuffle::First => ("idx", 0, kept << 8 | 31),
            Shuffle::DownBy(_) => unreachable!("it is known how many threads a warp has"),
        };
        if self.bank(dtype).bits() == "b32" {
            self.line(format_args!("shfl.sync.{mode}.b32 {d}, {arg}, {from}, {clamp}, 0xffffffff;"));
            return;
        }
        let halves: Registers = (0..4).map(|_| self.register(Bank::Bits32)).collect();
        self.line(format_args!("mov.b64 {{{}, {}}}, {arg};", halves[0], halves[1]));
        for (from_half, half) in halves[..2].iter().zip(&halves[2..]) {
            self.line(format_args!("shfl.sync.{mode}.b32 {half}, {from_half}, {from}, {clamp}, 0xffffffff;"));
        }
        self.line(format_args!("mov.b64 {d}, {{{}, {}}};", halves[2], halves[3]));
    }

    /// How far to shift: always 32 bits, whatever is shifted.
    fn amount(&mut self, dtype: DType, given: Register) -> Register {
        if self.bank(dtype) != Bank::Bits64 {
            return given;
        }
        let amount = self.register(Bank::Bits32);
        self.line(format_args!("cvt.u32.{} {amount}, {given};", suffix(self.kernel, dtype)));
        amount
    }

    /// The registers of a value that is nothing but other values' lanes.
    fn renaming(&self, value: Value, expr: &Expr) -> Option<Registers> {
        match expr {
            Expr::Splat(arg) => Some(smallvec![self.one(*arg); usize::from(lanes(self.kernel.ty(value)))]),
            Expr::Pack(args) => Some(args.iter().map(|&arg| self.one(arg)).collect()),
            Expr::Lane(arg, lane) => Some(smallvec![self.lane(*arg, usize::from(*lane))]),
            // Signed and unsigned integers have the same registers.
            Expr::Bitcast(arg) if renames(self.kernel, *arg, value) => {
                Some(self.registers[arg.0 as usize].clone())
            }
            _ => None,
        }
    }

    fn uniform(&mut self, d: Register, dtype: DType, name: &str) {
        if dtype == DType::Bool {
            let word = self.register(Bank::Bits32);
            self.line(format_args!("ld.param.u32 {word}, [{name}];"));
            self.line(format_args!("setp.ne.u32 {d}, {word}, 0;"));
        } else {
            self.line(format_args!("ld.param.{} {d}, [{name}];", suffix(self.kernel, dtype)));
        }
    }

    /// A special register, as a position.
    fn special(&mut self, d: Register, special: &str) {
        match self.kernel.index {
            IndexWidth::Bits32 => self.line(format_args!("mov.u32 {d}, {special};")),
            IndexWidth::Bits64 => {
                let word = self.register(Bank::Bits32);
                self.line(format_args!("mov.u32 {word}, {special};"));
                self.line(format_args!("cvt.u64.u32 {d}, {word};"));
            }
        }
    }

    /// `a · b + c` of special registers, as a position.
    fn grid(&mut self, d: Register, factors: [&str; 2], plus: Option<&str>) {
        let [a, b] = factors.map(|special| {
            let register = self.register(Bank::Bits32);
            self.line(format_args!("mov.u32 {register}, {special};"));
            register
        });
        let wide = self.kernel.index == IndexWidth::Bits64;
        let Some(special) = plus else {
            self.line(format_args!("mul.{} {d}, {a}, {b};", if wide { "wide.u32" } else { "lo.u32" }));
            return;
        };
        let c = self.register(Bank::Bits32);
        self.line(format_args!("mov.u32 {c}, {special};"));
        if wide {
            let wide = self.register(Bank::Bits64);
            self.line(format_args!("cvt.u64.u32 {wide}, {c};"));
            self.line(format_args!("mad.wide.u32 {d}, {a}, {b}, {wide};"));
        } else {
            self.line(format_args!("mad.lo.u32 {d}, {a}, {b}, {c};"));
        }
    }

    fn cast(&mut self, d: &[Register], to: DType, arg: Value) {
        let from = self.kernel.ty(arg).dtype;
        let (t, f) = (suffix(self.kernel, to), suffix(self.kernel, from));
        for (lane, d) in d.iter().enumerate() {
            let arg = self.lane(arg, lane);
            let line = match (from.class(), to.class()) {
                (_, Class::Bool) => unreachable!("nothing is converted to a truth value"),
                (Class::Bool, Class::Float) => format!(
                    "selp.{t} {d}, {}, {}, {arg};",
                    literal(Const::Float(1.0), to),
                    literal(Const::Float(0.0), to)
                ),
                (Class::Bool, Class::Int | Class::Uint) => format!("selp.{t} {d}, 1, 0, {arg};"),
                (Class::Float, Class::Int | Class::Uint) => format!("cvt.rzi.{t}.{f} {d}, {arg};"),
                (Class::Int | Class::Uint, Class::Float) => format!("cvt.rn.{t}.{f} {d}, {arg};"),
                (Class::Float, Class::Float) if to.size() < from.size() => {
                    format!("cvt.rn.{t}.{f} {d}, {arg};")
                }
                (Class::Float, Class::Float) | (Class::Int | Class::Uint, Class::Int | Class::Uint) => {
                    format!("cvt.{t}.{f} {d}, {arg};")
                }
            };
            self.line(line);
        }
    }
}

impl Bank {
    /// The type of instructions that move bits only.
    fn bits(self) -> &'static str {
        match self {
            Bank::Pred => "pred",
            Bank::Bits32 | Bank::F32 => "b32",
            Bank::Bits64 | Bank::F64 => "b64",
        }
    }
}

/// Returns true if the bits of a value, as another type, have the same registers: signed and unsigned integers.
fn renames(kernel: &Kernel, from: Value, to: Value) -> bool {
    bank(kernel, kernel.ty(from).dtype) == bank(kernel, kernel.ty(to).dtype)
}

fn bank(kernel: &Kernel, dtype: DType) -> Bank {
    match (dtype, kernel.index) {
        (DType::F32, _) => Bank::F32,
        (DType::F64, _) => Bank::F64,
        (DType::Bool, _) => Bank::Pred,
        (DType::Index, IndexWidth::Bits64) => Bank::Bits64,
        (DType::I32 | DType::U32, _) | (DType::Index, IndexWidth::Bits32) => Bank::Bits32,
        (DType::F16 | DType::BF16 | DType::I16 | DType::U16 | DType::I8 | DType::U8, _) => {
            unreachable!("{dtype} is not computed with")
        }
    }
}

fn lanes(ty: Type) -> u8 {
    match ty.lanes {
        Lanes::Const(lanes) => lanes,
        Lanes::Loop | Lanes::Tile(..) => unreachable!("a GPU's vectors are lanes"),
    }
}

fn suffix(kernel: &Kernel, dtype: DType) -> &'static str {
    match (dtype, kernel.index) {
        (DType::F32, _) => "f32",
        (DType::F64, _) => "f64",
        (DType::I32, _) => "s32",
        (DType::U32, _) | (DType::Index, IndexWidth::Bits32) => "u32",
        (DType::Index, IndexWidth::Bits64) => "u64",
        (DType::Bool, _) => "pred",
        (DType::F16 | DType::BF16 | DType::I16 | DType::U16 | DType::I8 | DType::U8, _) => {
            unreachable!("{dtype} is not computed with")
        }
    }
}

fn zero(dtype: DType) -> String {
    literal(Const::zero(dtype), dtype)
}

fn literal(constant: Const, dtype: DType) -> String {
    match constant {
        Const::Float(x) if dtype == DType::F64 => format!("0d{:016X}", x.to_bits()),
        Const::Float(x) => format!("0f{:08X}", (x as f32).to_bits()),
        Const::Int(x) => x.to_string(),
        Const::Bool(x) => u8::from(x).to_string(),
    }
}
