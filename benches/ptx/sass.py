"""Statistics of a kernel's machine code, from the log of ptxas and the listing of nvdisasm."""

import collections
import dataclasses
import re

# Limits of a multiprocessor: warps, blocks, registers, bytes of shared memory by generation, and bytes
# reserved per block.
WARPS, BLOCKS, REGISTERS = 64, 32, 65536
SHARED = {80: 164 << 10, 90: 228 << 10, 100: 228 << 10}
RESERVED = 1 << 10
FLOAT_OPS = ("FADD", "FMUL", "FFMA", "FSETP", "FMNMX", "FSEL", "SEL", "MUFU")


@dataclasses.dataclass
class Instruction:
    op: str
    operands: str
    conditional: bool

    @property
    def stem(self):
        return self.op.split(".")[0]


@dataclasses.dataclass
class Kernel:
    name: str
    code: list
    # Positions in the code, by label.
    labels: dict
    registers: int = 0
    spills: int = 0
    shared: int = 0

    def target(self, i):
        found = re.search(r"\.L_\w+", self.code[i].operands)
        return self.labels.get(found[0]) if found else None

    def loops(self):
        """Returns the first and the last instruction of each innermost loop."""
        found = []
        for i, one in enumerate(self.code):
            to = self.target(i) if one.stem == "BRA" else None
            # A branch to itself follows each kernel.
            if to is not None and to < i:
                found.append((to, i))
        return [a for a in found if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in found)]

    def blocks(self, first, last):
        """Returns the first and the last instruction of each basic block."""
        starts = {first, *(at for at in self.labels.values() if first < at <= last)}
        starts |= {i + 1 for i in range(first, last) if self.code[i].stem in ("BRA", "EXIT", "CALL", "BSYNC")}
        starts = sorted(starts)
        return [(a, b - 1) for a, b in zip(starts, [*starts[1:], last + 1])]

    def end(self):
        """Returns the last instruction of the main path, which code of rare cases follows."""
        exits = (i for i, one in enumerate(self.code) if one.stem == "EXIT" and not one.conditional)
        return next(exits, len(self.code) - 1)

    def count(self, stem, first=0, last=None):
        return sum(one.stem == stem for one in self.code[first : last and last + 1])

    def widths(self):
        """Counts global accesses by kind and bits."""
        found = collections.Counter()
        for one in self.code:
            if one.stem in ("LDG", "STG"):
                bits = re.search(r"\.(64|128|256|U8|U16)\b", one.op + ".")
                found[f"{one.stem} {bits[1] if bits else 32}"] += 1
        return found

    def accesses(self, first, last):
        """Counts 128-bit accesses by kind."""
        vectors = (one.stem for one in self.code[first : last + 1] if ".128" in one.op)
        return collections.Counter(stem for stem in vectors if stem in ("LDG", "STG", "LDS", "STS"))

    def occupancy(self, threads, shared, generation):
        """Returns the occupancy: the share of a multiprocessor's warps that are resident."""
        warps = threads // 32
        # Registers are allocated to warps in units of 256, on four partitions of a multiprocessor.
        by_registers = REGISTERS // (-(-self.registers * 32 // 256) * 256) // 4 * 4 // warps
        by_shared = SHARED[generation] // (shared + self.shared + RESERVED)
        return min(by_registers, by_shared, BLOCKS, WARPS // warps) * warps / WARPS


def kernels(log, listing):
    """Returns all kernels of a module."""
    found = {}
    for text in re.split(r"\n\.text\.", listing)[1:]:
        name = text.split(":", 1)[0].strip()
        kernel = found[name] = Kernel(name, [], {})
        for line in text.splitlines():
            if label := re.match(r"\s*(\.L_\S+?):", line):
                kernel.labels[label[1]] = len(kernel.code)
            elif one := re.match(r"\s*/\*[0-9a-f]+\*/\s+(@!?U?P\w+\s+)?([A-Z0-9_.a-z]+)(.*?);", line):
                kernel.code.append(Instruction(one[2], one[3], bool(one[1])))
    for name, rest in re.findall(r"Compiling entry function '(\S+)'(.*?Used [^\n]*)", log, re.S):
        kernel = found[name]
        kernel.registers = int(re.search(r"Used (\d+) registers", rest)[1])
        kernel.spills = sum(map(int, re.findall(r"(\d+) bytes spill", rest)))
        kernel.shared = int((re.findall(r"(\d+) bytes smem", rest) or [0])[0])
    return list(found.values())


def per_element(kernel, reads, writes, elements):
    """Returns the instructions of a thread per element on the main path, and the vector loops.

    Instructions of a vector loop are divided by the elements that an iteration covers. Other instructions are divided
    by `elements`, the elements of a row per thread. Without rows they count only in a kernel without loops.

    Consecutive loops with the same work are an unrolled loop and its remainder loop, so only one of them counts.
    Straight code with the work of a loop does not count either.
    """
    end = kernel.end()
    passes, inside = {}, set()
    # Rare cases after the end of the main path branch back too.
    for first, last in (loop for loop in kernel.loops() if loop[1] <= end):
        inside.update(range(first, last + 1))
        accesses = kernel.accesses(first, last)
        covered = 4 * (
            accesses["STG"] / writes if writes and accesses["STG"] else accesses["LDG"] / reads or accesses["LDS"]
        )
        if covered:
            key = work(kernel, first, last)
            passes[key] = max(passes.get(key, (0, 0)), (covered, main_path(kernel, first, last)))
    straight = 0
    for first, last in kernel.blocks(0, end):
        if first not in inside and work(kernel, first, last) not in passes:
            straight += main_path(kernel, first, last)
    if passes and elements is None:
        straight = 0
    looped = sum(count / covered for covered, count in passes.values())
    return looped + straight / (elements or 4 * vectors(kernel, writes)), passes


def work(kernel, first, last):
    """Returns the kinds of accesses and of floating-point operations."""
    floats = frozenset(one.stem for one in kernel.code[first : last + 1] if one.stem in FLOAT_OPS)
    return frozenset(kernel.accesses(first, last)), floats


def vectors(kernel, writes):
    """Returns the number of vectors of a thread without loops."""
    return max(kernel.accesses(0, kernel.end())["STG"] / max(writes, 1), 1)


def main_path(kernel, first, last):
    """Counts instructions, except those that prepare the call of a rare case. A conditional call leaves a loop."""
    blocks = kernel.blocks(first, last)
    calls = lambda a, b: any(one.stem == "CALL" and not one.conditional for one in kernel.code[a : b + 1])
    return sum(b - a + 1 for a, b in blocks if not calls(a, b))
