//! Vector loops: functions of the runs of elements that they go through.

use std::collections::BTreeSet;
use std::fmt::Display;

use rustc_hash::FxHashSet;

use super::combine::{Combine, PART, RESULT};
use super::prefetch::{Asked, ask};
use super::stream::{LANE, MemoryId, OPS, Stream, known, operations};
use super::unroll_and_jam::{self, VECTOR_LANES};
use super::{Emitter, memory, names, scalar, tuple};
use crate::emit::Writer;
use crate::ir::graph::Access;
use crate::ir::kernel::{Address, Builtin, CACHE_LINE, Expr, Fold, Lanes, SharedId, Stmt, Value};
use crate::target::tuning_table::cpu;

/// A loop as its function is called.
pub(super) struct VectorLoop<'a> {
    pub(super) streams: Vec<Stream>,
    /// Whether its lanes ask for their numbers.
    counts: bool,
    /// Whether its lanes ask for their numbers, or read or write what does not lie side by side.
    is_apart: bool,
    pub(super) combines: Vec<Combine<'a>>,
    /// What it uses that was made before it.
    captured: Vec<String>,
}

impl VectorLoop<'_> {
    /// A call for lanes of these runs, into partial results, or the results themselves.
    pub(super) fn call(&self, count: &str, first: &str, run: impl Fn(usize) -> String) -> String {
        let mut args = vec![count.to_owned()];
        args.extend(self.counts.then(|| first.to_owned()));
        args.extend((0..self.streams.len()).map(run));
        let part = |(f, combine): (usize, &Combine<'_>)| {
            format!("&mut {}{f}", if combine.is_one { RESULT } else { PART })
        };
        args.extend(self.combines.iter().enumerate().map(part));
        args.extend_from_slice(&self.captured);
        format!("lanes({})", args.join(", "))
    }
}

impl Emitter<'_> {
    /// What is the same for all lanes first, then the loop.
    ///
    /// The loop is a function that is given its runs: what is written through one reference that is an argument lies
    /// in no other, and LLVM, which is told so of arguments alone, then neither compares addresses before the loop nor
    /// keeps a second loop for runs that overlap.
    pub(super) fn vector(&self, out: &mut Writer, len: Value, body: &[Stmt], folds: &[Fold]) {
        let (lanes, uniform): (Vec<Stmt>, Vec<Stmt>) =
            body.iter().cloned().partition(|stmt| stmt.is_per_lane(self.kernel));
        self.body(out, &uniform);
        self.keep_constants(&lanes);
        let made: Vec<String> = folds.iter().map(|fold| tuple(&names(&fold.out))).collect();
        let (open, close) = match folds {
            [] => ("{".into(), "}"),
            _ => (format!("let {} = {{", tuple(&made)), "};"),
        };
        out.enclosed(open, close, |out| {
            let combines = folds.iter().enumerate().map(|(f, fold)| self.combine(out, f, fold)).collect();
            let run = self.loop_function(out, &lanes, combines);
            let is_light = self.light.get().unwrap_or(true) && self.is_light(&lanes, folds, &run);
            self.light.set(Some(is_light));
            let streamed = (0..run.streams.len()).filter(|&i| self.is_only_written(&run.streams[i]));
            let most = if run.is_apart { cpu::STREAMED_APART_MAX } else { cpu::STREAMED_MAX };
            let streams = folds.is_empty() && lanes.len() <= most && !unroll_and_jam::pays(&lanes);
            let streamed: Vec<usize> = streamed.filter(|_| streams).collect();
            if let Some(MemoryId::Buffer(buffer)) = streamed.first().map(|&i| run.streams[i].memory) {
                out.line(format_args!("let streams = {}.streams();", self.name(buffer)));
            }
            for (i, stream) in run.streams.iter().enumerate() {
                out.line(format_args!("let p{i} = {};", self.run(stream, len)));
            }
            let len = self.inline_values.operand(len).to_string();
            let asked = self.asked(&run.streams, &len);
            match folds {
                [] => self.strips(out, &len, &run, (&streamed, &asked)),
                _ => self.folded(out, &len, &run, &asked),
            }
        });
    }

    /// Whether memory is what a loop waits for. Halves take many instructions.
    fn is_light(&self, lanes: &[Stmt], folds: &[Fold], run: &VectorLoop) -> bool {
        let ops = operations(lanes, folds);
        let bytes = run.streams.iter().map(|stream| self.element_bytes(stream)).sum::<usize>();
        let is_wide = run.streams.iter().all(|stream| self.element_bytes(stream) >= 4);
        is_wide && !run.is_apart && ops <= cpu::LIGHT_OPS_MAX * bytes
    }

    /// Returns true if a lane needs its number.
    fn asks_for_lane(&self, stmt: &Stmt) -> bool {
        match stmt {
            Stmt::Let(_, Expr::Builtin(Builtin::LaneIndex)) => true,
            Stmt::Let(value, Expr::LoadWhere(at, _)) => {
                let is_from = super::is_from(self.kernel, self.kernel.ty(*value), at);
                is_from && self.masked_stream(*value, at).is_none()
            }
            _ => false,
        }
    }

    /// Whether lanes read what lies apart, or may not read at all.
    fn gathers(&self, stmt: &Stmt) -> bool {
        match stmt {
            Stmt::Let(_, Expr::Load(at)) => self.stream(at).is_none(),
            stmt => matches!(stmt, Stmt::Let(_, Expr::LoadWhere(..))),
        }
    }

    /// The loop: a function `lanes` of how many lanes, the number of the first if they ask for it, the runs, the
    /// partial results, and what was made before.
    fn loop_function<'a>(
        &self,
        out: &mut Writer,
        lanes: &[Stmt],
        combines: Vec<Combine<'a>>,
    ) -> VectorLoop<'a> {
        let streams = self.streams(lanes);
        let counts = lanes.iter().any(|stmt| self.asks_for_lane(stmt));
        let mut inside = Writer::at_depth(out.depth + 1);
        for (i, stream) in streams.iter().enumerate() {
            inside.line(format_args!("let p{i} = {}p{i}[..count];", self.borrow(stream)));
        }
        let own: FxHashSet<Value> = lanes.iter().flat_map(Stmt::made).collect();
        let pays = combines.is_empty() && unroll_and_jam::pays(lanes);
        if pays {
            inside.line(format_args!("let whole = count - count % {};", cpu::JAM_COPIES * VECTOR_LANES));
            self.copies(&mut inside, lanes, &streams, counts, &own);
        }
        let rest = if pays { "whole" } else { "0" };
        inside.block(format_args!("for j in {rest}..count {{"), |out| {
            if counts {
                out.line(format_args!("let {LANE} = first + j;"));
            }
            self.sequence(out, lanes, |out, stmt| self.lane_stmt(out, stmt, &streams));
            for combine in &combines {
                out.line(self.put(combine));
            }
        });
        let (captured, types) = self.captured(&inside.text, &own);
        let mut params = vec!["count: usize".to_owned()];
        params.extend(counts.then(|| "first: usize".to_owned()));
        params.extend(streams.iter().enumerate().map(|(i, stream)| {
            let element = self.element_of_run(stream);
            format!("p{i}: {}[{element}]", self.borrow(stream))
        }));
        params.extend(combines.iter().enumerate().map(|(f, combine)| {
            let part = tuple(&self.scalars(&combine.fold.out));
            if combine.is_one { format!("a{f}: &mut [{part}; 1]") } else { format!("a{f}: &mut [{part}; L]") }
        }));
        params.extend(types);
        let lengths = if combines.iter().all(|combine| combine.is_one) { "" } else { "<const L: usize>" };
        out.line("#[inline(always)]");
        out.block(format_args!("fn lanes{lengths}({}) {{", params.join(", ")), |out| {
            out.text += &inside.text
        });
        let is_apart = counts
            || streams.iter().any(|stream| stream.stride != 1)
            || lanes.iter().any(|stmt| self.gathers(stmt));
        VectorLoop { streams, counts, is_apart, combines, captured }
    }

    /// The part of a loop that whole groups of vectors go through, each group side by side.
    fn copies(
        &self,
        out: &mut Writer,
        lanes: &[Stmt],
        streams: &[Stream],
        counts: bool,
        own: &FxHashSet<Value>,
    ) {
        let together = cpu::JAM_COPIES * VECTOR_LANES;
        out.block(format_args!("for at in (0..whole).step_by({together}) {{"), |out| {
            for (i, stream) in streams.iter().enumerate() {
                out.line(format_args!("let p{i} = {}p{i}[at..][..{together}];", self.borrow(stream)));
            }
            if counts {
                out.line("let first = first + at;");
            }
            out.block(format_args!("for j in 0..{VECTOR_LANES} {{"), |out| {
                for copy in (0..cpu::JAM_COPIES).filter(|_| counts) {
                    out.line(format_args!("let {LANE}_{copy} = first + j + {};", VECTOR_LANES * copy));
                }
                self.side_by_side(out, lanes, own, |out, stmt| self.lane_stmt(out, stmt, streams));
            });
        });
    }

    /// The elements that a loop goes through.
    fn run(&self, stream: &Stream, len: Value) -> String {
        let written = self.is_written(stream);
        let (index, len) = (self.inline_values.operand(stream.index), self.times(stream.stride, len));
        let run = match stream.memory {
            MemoryId::Buffer(buffer) if stream.masked => {
                format!("&around({}, {index}, {len})[..]", self.name(buffer))
            }
            MemoryId::Buffer(buffer) if written => format!("{}.run({index}, {len})", self.name(buffer)),
            MemoryId::Buffer(buffer) => format!("&{}[{index}..][..{len}]", self.name(buffer)),
            MemoryId::Shared(id) => format!("&mut r{}[{index}..][..{len}]", id.0),
        };
        match stream.stride {
            1 => run,
            k => format!("({run}).{}::<{k}>().0", self.as_chunks(stream)),
        }
    }

    /// What a lane has of a run.
    fn element_of_run(&self, stream: &Stream) -> String {
        let dtype = match stream.memory {
            MemoryId::Buffer(buffer) => memory(self.kernel.buffer(buffer).dtype),
            MemoryId::Shared(id) => scalar(self.kernel.shared[usize::from(id.0)].dtype),
        };
        match stream.stride {
            1 => dtype.into(),
            k => format!("[{dtype}; {k}]"),
        }
    }

    /// Bytes of an element of a run.
    pub(super) fn element_bytes(&self, stream: &Stream) -> usize {
        let dtype = match stream.memory {
            MemoryId::Buffer(buffer) => self.kernel.buffer(buffer).dtype,
            MemoryId::Shared(id) => self.kernel.shared[usize::from(id.0)].dtype,
        };
        dtype.size()
    }

    pub(super) fn as_chunks(&self, stream: &Stream) -> &'static str {
        if self.is_written(stream) { "as_chunks_mut" } else { "as_chunks" }
    }

    pub(super) fn borrow(&self, stream: &Stream) -> &'static str {
        if self.is_written(stream) { "&mut " } else { "&" }
    }

    /// A call of a loop, or one for each strip of its lanes, where memory is to be asked for ahead. What it only writes goes around the
    /// caches, if it is to, as far as it fills lines of theirs: a tile of so many lanes that LLVM makes straight code of it.
    pub(super) fn strips(
        &self,
        out: &mut Writer,
        len: &str,
        run: &VectorLoop,
        (streamed, asked): (&[usize], &[Asked]),
    ) {
        let is_short = known(len).is_some_and(|len| len <= cpu::FETCH_LANES);
        if streamed.is_empty() && (asked.is_empty() || is_short) {
            ask(out, asked, "p");
            out.line(format_args!("{};", run.call(len, "0", |i| format!("p{i}"))));
            return;
        }
        let strip = if asked.is_empty() {
            len.into()
        } else {
            format!("if prefetcher.are_ahead() {{ {} }} else {{ {len} }}", cpu::FETCH_LANES)
        };
        out.line(format_args!("let strip = {strip};"));
        let ranges: Vec<String> = streamed.iter().map(|i| format!("tiles(p{i})")).collect();
        if let Some((first, others)) = ranges.split_first() {
            let alike = others.iter().map(|other| format!(" && {other} == {first}")).collect::<String>();
            out.line(format_args!("let tiles = if streams{alike} {{ {first} }} else {{ 0..0 }};"));
        }
        out.line("let mut start = 0;");
        out.block(format_args!("while start < {len} {{"), |out| {
            let end = if streamed.is_empty() {
                len.into()
            } else {
                out.block("if tiles.contains(&start) {", |out| {
                    self.tile(out, run, (streamed, asked));
                    out.line("continue;");
                });
                format!("(if start < tiles.start {{ tiles.start }} else {{ {len} }})")
            };
            out.line(format_args!("let count = usize::min({end} - start, strip);"));
            self.slices(out, run, ("q", "p"), ("start", "count"));
            ask(out, asked, "q");
            out.line(format_args!("{};", run.call("count", "start", |i| format!("q{i}"))));
            out.line("start += count;");
        });
    }

    /// A tile from `start` on, in parts of a line, if it can be: each is stored before the next is read, so that memory is read in its
    /// order.
    fn tile(&self, out: &mut Writer, run: &VectorLoop, (streamed, asked): (&[usize], &[Asked])) {
        self.slices(out, run, ("q", "p"), ("start", cpu::STREAM_LANES));
        ask(out, asked, "q");
        let smallest = streamed.iter().map(|&i| self.element_bytes(&run.streams[i])).min();
        let line = CACHE_LINE / smallest.unwrap_or(CACHE_LINE);
        let part = if run.is_apart { cpu::STREAM_LANES } else { line };
        out.block(format_args!("for part in (0..{}).step_by({part}) {{", cpu::STREAM_LANES), |out| {
            self.slices(out, run, ("q", "q"), ("part", part));
            for &i in streamed {
                let element = self.element_of_run(&run.streams[i]);
                out.line(format_args!("let mut o{i} = Lines([0 as {element}; {part}]);"));
            }
            let run_of = |i| if streamed.contains(&i) { format!("&mut o{i}.0") } else { format!("q{i}") };
            out.line(format_args!("{};", run.call(&part.to_string(), "start + part", run_of)));
            for i in streamed {
                out.line(format_args!("{OPS}.stream(q{i}, &o{i}.0);"));
            }
        });
        out.line(format_args!("start += {};", cpu::STREAM_LANES));
    }

    /// So many elements of runs `{from}0`, `{from}1`, … from one on: `{to}0`, `{to}1`, ….
    fn slices(
        &self,
        out: &mut Writer,
        run: &VectorLoop,
        (to, from): (&str, &str),
        (start, count): (&str, impl Display),
    ) {
        for (i, stream) in run.streams.iter().enumerate() {
            out.line(format_args!("let {to}{i} = {}{from}{i}[{start}..][..{count}];", self.borrow(stream)));
        }
    }

    /// What a function uses that is not made in it, as arguments and as parameters. Its text says what that is: values,
    /// constants that are kept, buffers, and operations that processors have ways of their own for.
    pub(super) fn captured(&self, text: &str, own: &FxHashSet<Value>) -> (Vec<String>, Vec<String>) {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let words: BTreeSet<&str> = words.collect();
        let typed = |name: &str| {
            if name == OPS {
                return Some((name.into(), format!("{name}: impl Instructions")));
            }
            let number = name.get(1..)?.split('_').next()?.parse::<u32>().ok()?;
            match &name[..1] {
                "v" if own.contains(&Value(number)) => None,
                "v" => {
                    Some((name.into(), format!("{name}: {}", scalar(self.kernel.ty(Value(number)).dtype))))
                }
                "k" => Some((name.into(), format!("{name}: f32"))),
                "b" => {
                    let buffer = &self.kernel.buffers[number as usize];
                    let dtype = memory(buffer.dtype);
                    Some(match buffer.access {
                        Access::Read => (name.into(), format!("{name}: &[{dtype}]")),
                        Access::Write | Access::ReadWrite => {
                            let part = if buffer.strided { "Rows" } else { "Run" };
                            (format!("&mut {name}"), format!("{name}: &mut {part}<'_, {dtype}>"))
                        }
                    })
                }
                _ => None,
            }
        };
        words.into_iter().filter_map(typed).unzip()
    }

    pub(super) fn scalars(&self, values: &[Value]) -> Vec<&'static str> {
        values.iter().map(|value| scalar(self.kernel.ty(*value).dtype)).collect()
    }

    fn streams(&self, lanes: &[Stmt]) -> Vec<Stream> {
        let mut streams: Vec<Stream> = Vec::new();
        for stmt in lanes {
            let stream = match stmt {
                Stmt::Let(_, Expr::Load(at)) | Stmt::Store(at, _) => self.stream(at),
                Stmt::Let(value, Expr::LoadWhere(at, _)) => self.masked_stream(*value, at),
                stmt => stmt.shared_access().map(|(id, index, _)| staged(id, index)),
            };
            if let Some(stream) = stream
                && !streams.contains(&stream)
            {
                streams.push(stream);
            }
        }
        streams
    }

    /// The run that an access of all lanes goes through, unless it gathers.
    fn stream(&self, at: &Address) -> Option<Stream> {
        let one = self.kernel.ty(at.index).lanes == Lanes::ONE;
        let (memory, index, stride) = (MemoryId::Buffer(at.buffer), at.index, at.stride);
        one.then_some(Stream { memory, index, stride, masked: false })
    }

    /// Returns the run that a masked read of all lanes goes through, if its elements lie next to each other.
    fn masked_stream(&self, value: Value, at: &Address) -> Option<Stream> {
        let is_read = self.kernel.buffer(at.buffer).access == Access::Read;
        let is_run = super::is_from(self.kernel, self.kernel.ty(value), at) && at.stride == 1;
        let stream = self.stream(at).filter(|_| is_read && is_run);
        stream.map(|stream| Stream { masked: true, ..stream })
    }

    /// Returns the element of a lane in its masked run, if the read has one.
    pub(super) fn masked_element(&self, value: Value, at: &Address, streams: &[Stream]) -> Option<String> {
        let stream = self.masked_stream(value, at)?;
        let number = streams.iter().position(|known| *known == stream)?;
        Some(format!("p{number}[j]"))
    }

    fn is_written(&self, stream: &Stream) -> bool {
        match stream.memory {
            MemoryId::Buffer(buffer) => self.kernel.buffer(buffer).access != Access::Read,
            MemoryId::Shared(_) => true,
        }
    }

    /// Whether it is an array of a buffer that the kernel does not read, and in which rows do not lie side by side.
    fn is_only_written(&self, stream: &Stream) -> bool {
        match stream.memory {
            MemoryId::Buffer(id) => {
                let buffer = self.kernel.buffer(id);
                stream.stride == 1 && buffer.access == Access::Write && !buffer.strided
            }
            MemoryId::Shared(_) => false,
        }
    }

    fn lane_stmt(&self, out: &mut Writer, stmt: &Stmt, streams: &[Stream]) {
        match stmt {
            Stmt::Let(value, expr) => {
                let dtype = scalar(self.kernel.ty(*value).dtype);
                out.line(format_args!("let v{}: {dtype} = {};", value.0, self.expr(*value, expr, streams)));
            }
            Stmt::Store(at, value) => {
                out.line(format_args!("{} = {};", self.lane_element(at, streams), self.stored(at, *value)));
            }
            Stmt::StoreShared(id, index, value) => {
                out.line(format_args!(
                    "{} = {};",
                    staged_element(*id, *index, streams),
                    self.inline_values.operand(*value)
                ));
            }
            _ => unreachable!("a vector loop holds no other statements"),
        }
    }

    /// The element of a lane: of a stream, or gathered.
    pub(super) fn lane_element(&self, at: &Address, streams: &[Stream]) -> String {
        let stream = self.stream(at);
        match streams.iter().position(|known| Some(*known) == stream) {
            Some(i) if at.stride == 1 => format!("p{i}[j]"),
            Some(i) => format!("p{i}[j][{}]", at.phase),
            None => self.element(at),
        }
    }
}

/// The run of held elements from an index on.
fn staged(id: SharedId, index: Value) -> Stream {
    Stream { memory: MemoryId::Shared(id), index, stride: 1, masked: false }
}

/// The held element of a lane.
pub(super) fn staged_element(id: SharedId, index: Value, streams: &[Stream]) -> String {
    let stream = streams.iter().position(|known| *known == staged(id, index));
    stream.map_or_else(|| unreachable!("what is staged is a stream"), |i| format!("p{i}[j]"))
}
