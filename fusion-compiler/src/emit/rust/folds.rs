//! What the lanes of a vector loop make together: partial results of groups of lanes, in the order that `FOLD_LANES` documents.

use super::combine::{Combine, PART};
use super::prefetch::{Asked, ask};
use super::stream::known;
use super::vector_loop::VectorLoop;
use super::{Emitter, names, tuple};
use crate::emit::inline_values::OperandText;
use crate::emit::{Writer, fill, template};
use crate::ir::dtype::DType;
use crate::ir::kernel::{FOLD_LANES, Fold, Stmt, fold_rounds};
use crate::ir::op::Op;
use crate::target::Dialect;

/// What a known number of lanes is called where LLVM is not to know it: it writes out short loops before it looks for vectors. Sums of
/// 48 elements took 9.0 ns a row so, and 5.0 with this.
const HIDDEN: &str = "n";

impl Emitter<'_> {
    /// What combines two partial results.
    pub(super) fn combine<'a>(&self, out: &mut Writer, number: usize, fold: &'a Fold) -> Combine<'a> {
        let mut inside = Writer::at_depth(out.depth + 1);
        self.body(&mut inside, &fold.body);
        inside.line(tuple(&self.inline_values.operands(&fold.results)));
        let made = fold.body.iter().flat_map(Stmt::made);
        let own = made.chain(fold.left.clone()).chain(fold.right.clone()).collect();
        let (captured, types) = self.captured(&inside.text, &own);
        let part = tuple(&self.scalars(&fold.out));
        let [left, right] =
            [&fold.left, &fold.right].map(|values| format!("{}: {part}", tuple(&names(values))));
        let params = [left, right].into_iter().chain(types).collect::<Vec<_>>().join(", ");
        out.line("#[inline(always)]");
        out.block(format_args!("fn f{number}({params}) -> {part} {{"), |out| out.text += &inside.text);
        let is_one = matches!(*fold.out, [out] if self.kernel.ty(out).dtype.is_int());
        let is_f32 = matches!(*fold.out, [out] if self.kernel.ty(out).dtype == DType::F32);
        Combine { number, fold, captured, is_one, is_f32, sums: fold.sums(self.kernel) }
    }

    /// The statement that puts what a lane has into its partial result.
    pub(super) fn put(&self, combine: &Combine<'_>) -> String {
        let Fold { over, times, .. } = combine.fold;
        let (part, own) = (combine.of_lane(), self.inline_values.operands(over));
        match times {
            None => format!("{part} = {};", combine.call(&part, &tuple(&own))),
            Some(times) => {
                let sum = format!("{part}.0");
                let args = [own[0], self.inline_values.operand(*times), OperandText::Text(&sum)];
                let sum = fill(template(self.kernel, Dialect::Cpu, Op::Fma, over), &args, &[]);
                format!("{part}.0 = {sum};")
            }
        }
    }

    /// Calls of a loop whose lanes make something together.
    pub(super) fn folded(&self, out: &mut Writer, len: &str, run: &VectorLoop, asked: &[Asked]) {
        for combine in &run.combines {
            out.line(combine.start(&self.identity(combine)));
        }
        if run.combines.iter().all(|combine| combine.is_one) {
            self.strips(out, len, run, (&[], asked));
        } else {
            self.groups(out, len, run, asked);
        }
        out.line(tuple(&run.combines.iter().map(Combine::result).collect::<Vec<_>>()));
    }

    /// Groups of lanes, in the order that `FOLD_LANES` documents.
    fn groups(&self, out: &mut Writer, len: &str, run: &VectorLoop, asked: &[Asked]) {
        let known = known(len);
        let len = if known.is_some() { HIDDEN } else { len };
        if let Some(known) = known {
            out.line(format_args!("let {HIDDEN} = black_box({known}usize);"));
        }
        let mut last = None;
        for lanes in FOLD_LANES {
            let longer = last.replace(lanes);
            let rounds = known.map(|len| longer.map_or(len, |longer| len % longer) / lanes);
            if rounds != Some(0) {
                let asked = if longer.is_none() { asked } else { &[] };
                self.groups_of(out, len, (lanes, longer), run, asked);
            }
        }
    }

    /// Groups of so many lanes, of what longer ones leave: the runs `p0`, `p1`, …, of which they leave less.
    fn groups_of(
        &self,
        out: &mut Writer,
        len: &str,
        (lanes, longer): (usize, Option<usize>),
        run: &VectorLoop,
        asked: &[Asked],
    ) {
        let strip = fold_rounds(self.kernel, run.combines.iter().map(|combine| combine.fold));
        for (i, stream) in run.streams.iter().enumerate() {
            let chunks = self.as_chunks(stream);
            out.line(format_args!("let (q{i}, p{i}) = p{i}.{chunks}::<{lanes}>();"));
        }
        let (open, rounds, first) = match longer {
            None => (
                format!("for strip in (0..{len} / {lanes}).step_by({strip}) {{"),
                format!("strip..usize::min(strip + {strip}, {len} / {lanes})"),
                format!("round * {lanes}"),
            ),
            Some(longer) => (
                format!("if {len} % {longer} / {lanes} > 0 {{"),
                format!("0..{len} % {longer} / {lanes}"),
                format!("{len} / {longer} * {longer} + round * {lanes}"),
            ),
        };
        let several = || run.combines.iter().filter(|combine| !combine.is_one);
        out.block(open, |out| {
            for combine in several() {
                let identity = self.identity(combine);
                out.line(format_args!("let mut {PART}{} = [{identity}; {lanes}];", combine.number));
            }
            out.block(format_args!("for round in {rounds} {{"), |out| {
                for (i, stream) in run.streams.iter().enumerate() {
                    out.line(format_args!("let p{i} = {}q{i}[round];", self.borrow(stream)));
                }
                ask(out, asked, "p");
                out.line(format_args!("{};", run.call(&lanes.to_string(), &first, |i| format!("p{i}"))));
            });
            several().for_each(|combine| out.line(combine.gather()));
        });
    }

    /// The result of no lanes.
    fn identity(&self, combine: &Combine<'_>) -> String {
        tuple(&self.inline_values.operands(&combine.fold.identity))
    }
}
