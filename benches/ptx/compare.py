"""Compares the machine code of our kernels with that of nvcc's and Triton's, without a GPU.

python benches/ptx/compare.py [--generations 80,90,100]    # prints a table, and writes it to benches/results/ptx.md

The tools come from PyPI and are installed in the target folder. Instructions per element are counted in the main path
of the listing. The counts compare programs for the same work, and do not measure time.
"""

import argparse
import datetime
import os
import pathlib
import re
import subprocess
import sys
import venv

import sass

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
WORK = TARGET / "ptx"
RESULT = ROOT / "benches" / "results" / "ptx.md"
PACKAGES = [
    "nvidia-cuda-nvcc>=13,<14", "nvidia-cuda-nvdisasm>=13,<14", "nvidia-cuda-runtime>=13,<14", "nvidia-cuda-crt>=13,<14",
    "nvidia-cuda-cccl>=13,<14", "nvidia-nvvm>=13,<14", "triton",
]  # fmt: skip

# By function: the suffix of our kernel, reads per element, writes per element (0 for one per row), and the
# length of a row or None. A block processes a row, except in nvcc's kernels for rows of 1024, which use a
# warp.
ROW, LONG = 1024, 50176
KERNELS = {
    "gate": ("_0_v4", 3, 1, None),
    "chain": ("_0_v4", 2, 1, None),
    "gelu_of": ("_0_v4", 1, 1, None),
    "swiglu": ("_0_v4", 2, 1, None),
    "softmax_rows": ("_0_t128_staged_v4", 1, 1, ROW),
    "layer_norm_rows": ("_0_t128_staged_v4", 1, 1, ROW),
    "rms_norm_rows": ("_0_t128_staged_v4", 1, 1, ROW),
    "token_loss": ("_0_t256_v8", 1, 0, LONG),
    "sum_of_squares": ("_0_parts_t256_v4", 1, 0, None),
    "adamw": ("_0_v4", 4, 3, None),
}
PRODUCT, PRODUCT_SHARED = "fuse_product_0_tiles128x128_matrices", 4 * 128 * (128 + 8)
SHORT_ROWS = ("softmax_rows", "layer_norm_rows", "rms_norm_rows")
MAKERS = ["ours", "nvcc", "Triton", "ours, fast_math", "nvcc, fast math"]


def tools(python):
    """Returns the environment of commands with NVIDIA's tools, and the Python that has Triton."""
    if python is None:
        folder = TARGET / "tools" / "ptx-venv"
        python = folder / "bin" / "python"
        if not python.exists():
            venv.create(folder, with_pip=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    query = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", query], check=True, capture_output=True, text=True).stdout.strip()
    toolkit = pathlib.Path(site) / "nvidia" / "cu13"
    for program in [*(toolkit / "bin").glob("*"), *(toolkit / "nvvm" / "bin").glob("*")]:
        if program.is_file():
            program.chmod(0o755)
    path = f"{toolkit / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "TRITON_CACHE_DIR": str(WORK / "triton-cache")}, python


def run(environment, *command):
    done = subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def emit_ours(environment):
    built = run(environment, "cargo", "build", "--manifest-path", ROOT / "Cargo.toml", "--bench", "ptx", "--message-format", "json")
    program = re.findall(r'"executable":"([^"]*/ptx-[0-9a-f]+)"', built)[-1]
    run(environment, program, WORK / "ours")


def disassembled(environment, cubin, log):
    return sass.kernels(log, run(environment, "nvdisasm", "-c", cubin))


def assembled(environment, text, generation):
    """Assembles a file and returns its only kernel."""
    source, cubin = text.read_text(), WORK / "one.cubin"
    # Code for one specific generation runs on no other.
    special = re.search(r"\.target\s+sm_(\d+[af])\b", source)
    log = run(environment, "ptxas", "-v", f"-arch=sm_{special[1] if special else generation}", text, "-o", cubin)
    return disassembled(environment, cubin, log)[0]


def by_nvcc(environment, generation, *options):
    cubin = WORK / "hand.cubin"
    flags = ["-O3", "-std=c++17", f"-arch=sm_{generation}", "-Xptxas", "-v", "-cubin", *options]
    log = run(environment, "nvcc", *flags, HERE / "kernels.cu", "-o", cubin)
    return {kernel.name: kernel for kernel in disassembled(environment, cubin, log)}


def of_all(environment, python, generation):
    """Returns the kernels of each maker, by function."""
    triton = WORK / f"triton-{generation}"
    run(environment, python, HERE / "triton_kernels.py", triton, generation)
    ours = lambda math: {
        name: assembled(environment, WORK / "ours" / math / f"fuse_{name}{KERNELS[name][0]}.ptx", generation)
        for name in KERNELS
    }
    return {
        "ours": ours("accurate"),
        "nvcc": by_nvcc(environment, generation),
        "Triton": {name: assembled(environment, triton / f"{name}.ptx", generation) for name in KERNELS},
        "ours, fast_math": ours("fast"),
        "nvcc, fast math": by_nvcc(environment, generation, "--use_fast_math"),
    }


def launch(maker, name):
    """Returns the threads of a block, its dynamic shared memory in bytes, and the elements of a thread or None."""
    _, _, _, row = KERNELS[name]
    if maker == "Triton":
        # A block processes a row, or 1024 elements of a line.
        return 128, 0, (row or 1024) // 128 if row else None
    if name in SHORT_ROWS:
        # Our kernels stage the row in shared memory.
        return (128, 4 * row, row // 128) if maker.startswith("ours") else (128, 0, row // 32)
    return 256, 0, row // 256 if row else None


def line(maker, name, kernel, generation):
    _, reads, writes, _ = KERNELS[name]
    threads, shared, elements = launch(maker, name)
    count, passes = sass.per_element(kernel, reads, writes, elements)
    loops = " ".join(f"{size}/{covered:.0f}" for covered, size in passes.values()) or "–"
    widths = ", ".join(f"{kind}×{number}" for kind, number in sorted(kernel.widths().items()))
    occupancy = kernel.occupancy(threads, shared, generation)
    static = kernel.end() + 1
    row = f"{kernel.registers} | {kernel.spills} | {static} | {loops} | {widths} | {kernel.count('MUFU')}"
    return count, f"| {name} | {maker} | {row} | {count:.2f} | {occupancy:.0%} |\n"


HEAD = """
| kernel | by | registers | spilt bytes | instructions | loops | accesses | MUFU | for an element | occupancy |
|---|---|--:|--:|--:|---|---|--:|--:|--:|
"""


def product_line(maker, kernel, shared, generation):
    """Describes the loop over the depth of a product of matrices."""
    # wgmma and tcgen05 multiply matrices of several warps.
    products = lambda first, last: [one.op for one in kernel.code[first : last + 1] if "MMA" in one.stem]
    loops = [loop for loop in kernel.loops() if products(*loop)]
    first, last = max(loops, key=lambda loop: len(products(*loop)))
    count = lambda *stems: sum(kernel.count(stem, first, last) for stem in stems)
    ops = products(first, last)
    size, copies = last - first + 1, count("LDGSTS", "LDG", "UTMALDG")
    occupancy = kernel.occupancy(128, shared, generation)
    row = f"{kernel.registers} | {kernel.spills} | {shared + kernel.shared} | {size} | {len(ops)} {ops[0]}"
    loads = f"{count('LDSM', 'LDS', 'LD')} | {copies} | {count('BAR')}"
    return f"| {maker} | {row} | {loads} | {size / len(ops):.2f} | {occupancy:.0%} |\n"


def products(environment, generation):
    """Returns a table of products of 128 × 128 elements by four warps, with 32 steps of the depth in an iteration."""
    triton = WORK / f"triton-{generation}"
    made = [
        ("ours", assembled(environment, WORK / "ours" / "accurate" / f"{PRODUCT}.ptx", generation), PRODUCT_SHARED),
        ("nvcc, WMMA", by_nvcc(environment, generation)["product"], 0),
        ("Triton", assembled(environment, triton / "product.ptx", generation), int((triton / "product.shared").read_text())),
    ]
    return PRODUCTS_HEAD + "".join(product_line(*one, generation) for one in made)


PRODUCTS_HEAD = """
Products of bf16, `[M, K]` and `[N, K]`, in tiles of 128 × 128: the loop over the depth.

| by | registers | spilt bytes | shared bytes | instructions | products | loads of shared memory | copies | barriers | for a product | occupancy |
|---|--:|--:|--:|--:|---|--:|--:|--:|--:|--:|
"""


def report(environment, python, generations):
    versions = [run(environment, tool, "--version").split("release ")[1].split(",")[0] for tool in ("ptxas", "nvcc")]
    triton = run(environment, python, "-c", "import triton; print(triton.__version__)").strip()
    text = f"""# Machine code of kernels

{datetime.date.today()}, ptxas {versions[0]}, nvcc {versions[1]}, Triton {triton}. Made by `python benches/ptx/compare.py`.

Counted in the listing, on the main path: loops are instructions and the elements that an iteration covers; rows have {ROW}
elements, as all kernels know when they are compiled, those of `token_loss` {LONG}. Triton divides, takes roots and exponentials
approximately, as CUDA does under `--use_fast_math` and we under `fast_math`.
"""
    for generation in generations:
        made = of_all(environment, python, generation)
        text += f"\n## sm_{generation}\n{HEAD}"
        for name in KERNELS:
            for maker in MAKERS:
                text += line(maker, name, made[maker][name], generation)[1]
        text += products(environment, generation)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", default="80,90,100")
    parser.add_argument("--python", help="one that has Triton and the wheels of NVIDIA's tools already")
    args = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    environment, python = tools(args.python)
    emit_ours(environment)
    text = report(environment, python, [int(one) for one in args.generations.split(",")])
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
