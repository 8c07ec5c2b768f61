//! Elements of one or two bytes, which lie side by side in words: WebGPU's memory has no smaller parts.
//!
//! Invariant: a word that holds elements of several threads is changed by atomic operations, and only its own bits.

use std::fmt::{self, Display};

use super::{Component, Emitter, is_wide, lanes};
use crate::emit::{Writer, text};
use crate::ir::dtype::DType;
use crate::ir::kernel::{Address, BufferId, Kernel, Stmt, Value, statements};

/// Whether several elements share a word.
pub(super) fn is_narrow(dtype: DType) -> bool {
    dtype.size() < 4
}

/// The buffers that not only whole words are written to.
pub(super) fn shared_words(kernel: &Kernel) -> Vec<bool> {
    let mut shared = vec![false; kernel.buffers.len()];
    for stmt in statements(&kernel.body) {
        if let Stmt::Store(at, value) = stmt
            && is_narrow(kernel.buffer(at.buffer).dtype)
        {
            shared[usize::from(at.buffer.0)] |= !is_wide(kernel, kernel.ty(*value), at, 1);
        }
    }
    shared
}

/// How elements lie in words.
struct WordLayout {
    /// Bits of an element.
    bits: u32,
    /// An element's number in its word is its last so many bits.
    log: u32,
}

impl WordLayout {
    fn of(dtype: DType) -> WordLayout {
        if dtype.size() == 1 { WordLayout { bits: 8, log: 2 } } else { WordLayout { bits: 16, log: 1 } }
    }

    fn mask(&self) -> u32 {
        (1 << self.bits) - 1
    }

    /// By how many bits an element is shifted in its word.
    fn shift(&self, position: impl Display) -> impl Display {
        let (last, bits) = ((1 << self.log) - 1, self.bits);
        fmt::from_fn(move |f| write!(f, "((({position}) & {last}u) * {bits}u)"))
    }
}

impl Emitter<'_> {
    pub(super) fn is_narrow(&self, at: &Address) -> bool {
        is_narrow(self.kernel.buffer(at.buffer).dtype)
    }

    /// The bits of one element.
    pub(super) fn narrow_element(
        &self,
        f: &mut fmt::Formatter<'_>,
        buffer: BufferId,
        position: &dyn Display,
    ) -> fmt::Result {
        let layout = self.layout(buffer);
        let place = fmt::from_fn(|f| write!(f, "({position}) >> {}u", layout.log));
        let (word, shift) = (self.word(buffer, place), layout.shift(position));
        write!(f, "(({word} >> {shift}) & {:#x}u)", layout.mask())
    }

    /// The bits of four elements, the first of which starts a word.
    pub(super) fn narrow_vector(&self, f: &mut fmt::Formatter<'_>, at: &Address) -> fmt::Result {
        let (layout, position) = (self.layout(at.buffer), self.position(at, 0));
        let word = |i| text(self.word(at.buffer, format_args!("(({position}) >> {}u) + {i}u", layout.log)));
        let mask = layout.mask();
        match layout.log {
            1 => {
                let (low, high) = (word(0), word(1));
                write!(f, "vec4<u32>({low} & {mask:#x}u, {low} >> 16u, {high} & {mask:#x}u, {high} >> 16u)")
            }
            _ => {
                write!(f, "(vec4<u32>({}) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>({mask:#x}u)", word(0))
            }
        }
    }

    /// Writes elements: as words, or each into its bits of one.
    pub(super) fn store_narrow(&self, out: &mut Writer, at: &Address, value: Value) {
        let (ty, layout) = (self.kernel.ty(value), self.layout(at.buffer));
        let inline_values = self.inline_values.operand(value);
        let name = self.name(at.buffer);
        let atomic = self.atomic[usize::from(at.buffer.0)];
        let lanes = lanes(ty);
        if is_wide(self.kernel, ty, at, 1) {
            let per = 1 << layout.log;
            for word in 0..4 / per {
                let parts = (0..per)
                    .map(|i| format!("({inline_values}[{}] << {}u)", word * per + i, i * layout.bits));
                let text = parts.collect::<Vec<_>>().join(" | ");
                let place = format!("{name}[(({}) >> {}u) + {word}u]", self.position(at, 0), layout.log);
                out.line(if atomic {
                    format!("atomicStore(&{place}, {text});")
                } else {
                    format!("{place} = {text};")
                });
            }
            return;
        }
        for lane in 0..lanes {
            let (bits, position) = (Component { inline_values, lane, lanes }, self.position(at, lane));
            let (place, shift) =
                (format!("{name}[({position}) >> {}u]", layout.log), text(layout.shift(&position)));
            out.line(format_args!("atomicAnd(&{place}, ~({:#x}u << {shift}));", layout.mask()));
            out.line(format_args!("atomicOr(&{place}, {bits} << {shift});"));
        }
    }

    fn word(&self, buffer: BufferId, place: impl Display) -> impl Display {
        let (name, atomic) = (self.name(buffer), self.atomic[usize::from(buffer.0)]);
        fmt::from_fn(move |f| match atomic {
            true => write!(f, "atomicLoad(&{name}[{place}])"),
            false => write!(f, "{name}[{place}]"),
        })
    }

    fn layout(&self, buffer: BufferId) -> WordLayout {
        WordLayout::of(self.kernel.buffer(buffer).dtype)
    }
}
