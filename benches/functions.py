"""Compares the functions of `functions.rs` with `torch.compile`, in alternation, each on one thread.

python benches/functions.py [rounds]        # needs torch; prints microseconds for 65,536 elements of f32, and ratios

The script compares medians over the rounds. A ratio above 1 means that Fusion takes less time.
"""

import os
import re
import statistics
import subprocess
import sys
import time

import torch

torch.set_num_threads(1)
ELEMENTS = 1 << 16
FUNCTIONS = {
    "exp": torch.exp,
    "tanh": torch.tanh,
    "gelu": lambda x: torch.nn.functional.gelu(x),
    "erf": torch.erf,
}


def binary():
    """Builds the benchmark and returns its path."""
    built = subprocess.run(
        ["cargo", "bench", "--bench", "functions", "--no-run"], capture_output=True, text=True, check=True
    )
    return re.search(r"\((\S*functions-[0-9a-f]+)\)", built.stderr).group(1)


def ours(program, name):
    """Returns the microseconds of a call of Fusion, the median of criterion."""
    options = ["--bench", f"f32/{name}", "--warm-up-time", "0.1", "--measurement-time", "0.3", "--sample-size", "20"]
    environment = {**os.environ, "RAYON_NUM_THREADS": "1"}
    text = subprocess.run([program, *options], capture_output=True, text=True, check=True, env=environment).stdout
    value, unit = re.search(r"time:\s+\[\S+ \S+ (\S+) (\S+)", text).groups()
    return float(value) * {"ns": 1e-3, "µs": 1.0, "ms": 1e3}[unit]


def theirs(compiled, x):
    """Returns the microseconds of a call of torch."""
    times = []
    end = time.perf_counter() + 0.4
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(20):
            compiled(x)
        times.append((time.perf_counter() - start) / 20)
    return statistics.median(times) * 1e6


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    program = binary()
    x = (torch.arange(ELEMENTS) * 7919 % ELEMENTS).float() / ELEMENTS * 8 - 4
    compiled = {name: torch.compile(function) for name, function in FUNCTIONS.items()}
    times = {name: ([], []) for name in FUNCTIONS}
    with torch.no_grad():
        for name, function in compiled.items():
            function(x)
        for _ in range(rounds):
            for name, (mine, others) in times.items():
                mine.append(ours(program, name))
                others.append(theirs(compiled[name], x))
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
    for name, (mine, others) in times.items():
        mine, others = statistics.median(mine), statistics.median(others)
        print(f"{name:5} fusion {mine:7.1f} µs, torch.compile {others:7.1f} µs, ratio {others / mine:.2f}")


if __name__ == "__main__":
    main()
