"""Compares AdamW on the model of `optimizers.rs` with PyTorch, in alternation with `cargo bench --bench optimizers`.

python benches/optimizers.py [rounds [threads]]        # needs torch; prints milliseconds of a step, and ratios

The script compares medians over the rounds. A ratio above 1 means less time than PyTorch's fused optimizer. "Same
traffic" has the reads and writes of an f32 step without computation, and the step's share of its bandwidth is printed.
"""

import os
import re
import statistics
import subprocess
import sys
import time

import torch

WIDTH, LAYERS = 272, 12
OURS = (
    "one launch", "clipped", "state of bf16", "state of 8 bits", "8 bits, clipped", "with a copy", "unfused", "same traffic",
    "rayon",
)  # fmt: skip


def shapes():
    """Returns the shapes of GPT-2's parameters with this width."""
    linear = lambda n, m: [(n, m), (m,)]
    norm = [(WIDTH,), (WIDTH,)]
    layer = norm + linear(WIDTH, 3 * WIDTH) + linear(WIDTH, WIDTH)
    layer += norm + linear(WIDTH, 4 * WIDTH) + linear(4 * WIDTH, WIDTH)
    return [(50257, WIDTH), (1024, WIDTH)] + LAYERS * layer + norm


def binary():
    """Builds the benchmark and returns its path."""
    built = subprocess.run(
        ["cargo", "bench", "--bench", "optimizers", "--no-run"], capture_output=True, text=True, check=True
    )
    return re.search(r"\((\S*optimizers-[0-9a-f]+)\)", built.stderr).group(1)


def ours(program, threads):
    """Returns the milliseconds of a step of each candidate, the medians of criterion."""
    options = ["--bench", "--warm-up-time", "0.3", "--measurement-time", "1", "--sample-size", "10"]
    environment = {**os.environ, "RAYON_NUM_THREADS": str(threads)}
    text = subprocess.run([program, *options], capture_output=True, text=True, check=True, env=environment).stdout
    found = re.findall(r"time:\s+\[\S+ \S+ (\S+) (ns|µs|ms|s) ", text)
    return [float(value) * {"ns": 1e-6, "µs": 1e-3, "ms": 1.0, "s": 1e3}[unit] for value, unit in found]


def theirs(optimizer):
    """Returns the milliseconds of a step of PyTorch."""
    times = []
    for _ in range(12):
        start = time.perf_counter()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:]) * 1e3


def torch_optimizer(**options):
    """Makes an optimizer for parameters of its own, with gradients."""
    params = [torch.full(shape, 0.1, requires_grad=True) for shape in shapes()]
    for param in params:
        param.grad = torch.full_like(param, 0.1)
    return torch.optim.AdamW(params, **options)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    threads = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    torch.set_num_threads(threads)
    program = binary()
    mine, others = {name: [] for name in OURS}, {"fused": [], "foreach": []}
    for _ in range(rounds):
        for name, took in zip(OURS, ours(program, threads)):
            mine[name].append(took)
        for name in others:
            others[name].append(theirs(torch_optimizer(**{name: True})))
    elements = sum(torch.Size(shape).numel() for shape in shapes())
    print(f"torch {torch.__version__}, {elements} parameters, {len(shapes())} tensors, threads: {threads}")
    peer = statistics.median(others["fused"])
    for name, times in {**mine, **{f"torch {name}": times for name, times in others.items()}}.items():
        took = statistics.median(times)
        print(f"{name:15} {took:7.2f} ms, {peer / took:5.2f} of torch fused")
    floor, step = (statistics.median(mine[name]) for name in ("same traffic", "one launch"))
    print(f"one launch has {100 * floor / step:.0f} % of the bandwidth of the same traffic")


if __name__ == "__main__":
    main()
