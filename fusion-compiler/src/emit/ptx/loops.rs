//! Loops and labels.

use super::in_place::sums_in_place;
use super::{Bank, Emitter, Register, suffix};
use crate::ir::dtype::DType;
use crate::ir::kernel::{Carried, Stmt, Value};
use crate::target::tuning_table::ptx;

impl Emitter<'_> {
    /// A loop with its test at the end, and once before it.
    pub(super) fn run(
        &mut self,
        var: Value,
        (start, end, step): (Value, Value, Value),
        carried: &[Carried],
        body: &[Stmt],
    ) {
        for Carried { start, var, out, .. } in carried {
            self.define(*var);
            self.copy(*start, *var);
            self.registers[out.0 as usize] = self.registers[var.0 as usize].clone();
        }
        self.in_place.extend(sums_in_place(self.kernel, carried, body));
        let var = self.define(var).remove(0);
        let (start, end, step) = (self.one(start), self.one(end), self.one(step));
        let (again, done) = (self.label("loop"), self.label("done"));
        let (test, t) = (self.register(Bank::Pred), suffix(self.kernel, DType::Index));
        self.line(format_args!("mov.{t} {var}, {start};"));
        let each = self.iteration(carried, body);
        let load_unroll = self.kernel.load_unroll;
        // What has labels is no innermost loop.
        if load_unroll > 1 && !each.contains('$') {
            self.load_unroll(load_unroll, (var, end, step), (&each, test));
            return;
        }
        self.line(format_args!("setp.ge.{t} {test}, {var}, {end};"));
        self.line(format_args!("@{test} bra {done};"));
        self.mark(&again);
        let stores = || body.iter().any(|stmt| matches!(stmt, Stmt::Store(..)));
        let handed_on: usize = carried.iter().map(|one| self.registers[one.var.0 as usize].len()).sum();
        if self.kernel.threads.team >= ptx::CROWDED_TEAM_MIN && (handed_on > ptx::HANDED_ON_MAX || stores()) {
            self.line(".pragma \"nounroll\";");
        }
        self.out.text.push_str(&each);
        self.line(format_args!("add.{t} {var}, {var}, {step};"));
        self.line(format_args!("setp.lt.{t} {test}, {var}, {end};"));
        self.line(format_args!("@{test} bra {again};"));
        self.mark(&done);
    }

    /// What an iteration does, but for counting.
    fn iteration(&mut self, carried: &[Carried], body: &[Stmt]) -> String {
        let from = self.out.text.len();
        let holds = self.kernel.threads.team >= ptx::CROWDED_TEAM_MIN
            && body.iter().any(|stmt| matches!(stmt, Stmt::StoreShared(..)));
        let around = std::mem::replace(&mut self.reads_once, holds);
        self.body(body);
        self.reads_once = around;
        self.hand_on(carried);
        self.out.text.split_off(from)
    }

    /// So many iterations at a time as long as there are as many, then half as many, and so on down to the last.
    fn load_unroll(
        &mut self,
        load_unroll: u32,
        (var, end, step): (Register, Register, Register),
        (each, test): (&str, Register),
    ) {
        let (bank, t) = (self.bank(DType::Index), suffix(self.kernel, DType::Index));
        let [ahead, last] = [bank, bank].map(|bank| self.register(bank));
        let fewer_and_fewer = std::iter::successors(Some(load_unroll), |load_unroll| Some(load_unroll / 2));
        for at_once in fewer_and_fewer.take_while(|&load_unroll| load_unroll > 0) {
            let (again, fewer) = (self.label("load_unroll"), self.label("fewer"));
            self.line(format_args!("mul.lo.{t} {ahead}, {step}, {};", at_once - 1));
            self.line(format_args!("add.{t} {last}, {var}, {ahead};"));
            self.line(format_args!("setp.ge.{t} {test}, {last}, {end};"));
            self.line(format_args!("@{test} bra {fewer};"));
            self.mark(&again);
            if at_once == load_unroll {
                self.line(".pragma \"nounroll\";");
            }
            self.at_once(at_once, (var, step), (each, test));
            if at_once == load_unroll {
                self.line(format_args!("add.{t} {last}, {var}, {ahead};"));
                self.line(format_args!("setp.lt.{t} {test}, {last}, {end};"));
                self.line(format_args!("@{test} bra {again};"));
            }
            self.mark(&fewer);
        }
    }

    /// So many iterations: a loop of known length, which the assembler writes out, with all that it reads first.
    fn at_once(
        &mut self,
        load_unroll: u32,
        (var, step): (Register, Register),
        (each, test): (&str, Register),
    ) {
        let t = suffix(self.kernel, DType::Index);
        let (turn, count) = (self.label("turn"), self.register(Bank::Bits32));
        self.line(format_args!("mov.u32 {count}, 0;"));
        self.mark(&turn);
        self.out.text.push_str(each);
        self.line(format_args!("add.{t} {var}, {var}, {step};"));
        self.line(format_args!("add.u32 {count}, {count}, 1;"));
        self.line(format_args!("setp.lt.u32 {test}, {count}, {load_unroll};"));
        self.line(format_args!("@{test} bra {turn};"));
    }

    /// Moves what the next iteration gets. Another register holds what an earlier move overwrites.
    fn hand_on(&mut self, carried: &[Carried]) {
        let mut moves: Vec<(DType, Register, Register)> = Vec::new();
        for Carried { var, next, .. } in carried {
            let dtype = self.kernel.ty(*var).dtype;
            let lanes = self.registers[next.0 as usize].iter().zip(&self.registers[var.0 as usize]);
            moves.extend(lanes.map(|(from, to)| (dtype, *from, *to)));
        }
        moves.retain(|(_, from, to)| from != to);
        for i in 0..moves.len() {
            let (dtype, from, _) = moves[i];
            if moves[..i].iter().any(|(_, _, to)| *to == from) {
                let fresh = self.register(self.bank(dtype));
                self.line(format_args!("mov.{} {fresh}, {from};", suffix(self.kernel, dtype)));
                moves[i].1 = fresh;
            }
        }
        for (dtype, from, to) in moves {
            self.line(format_args!("mov.{} {to}, {from};", suffix(self.kernel, dtype)));
        }
    }

    fn copy(&mut self, from: Value, to: Value) {
        let t = suffix(self.kernel, self.kernel.ty(to).dtype);
        for lane in 0..self.registers[to.0 as usize].len() {
            self.line(format_args!("mov.{t} {}, {};", self.lane(to, lane), self.lane(from, lane)));
        }
    }

    pub(super) fn label(&mut self, name: &str) -> String {
        self.labels += 1;
        format!("${name}{}", self.labels - 1)
    }

    pub(super) fn mark(&mut self, label: &str) {
        self.out.depth -= 1;
        self.line(format_args!("{label}:"));
        self.out.depth += 1;
    }
}
