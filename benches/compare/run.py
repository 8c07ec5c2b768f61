"""Compares Fusion with other libraries, in alternation on one machine.

python benches/compare/run.py [--workloads gate,adamw] [--sizes large,small] [--threads 1,2] [--rounds 7] [--write]
python benches/compare/run.py --device wgpu [...]
python benches/compare/run.py --device cuda [--binary PROGRAM] [...]

The CPU comparison uses a Python with torch, jax, numexpr and matplotlib, and skips missing libraries. Products run
beside the crates gemm and candle too (benches/gemm). The wgpu
comparison runs Burn (benches/burn), whose first build is slow. Its threads are those of a software Vulkan. The CUDA
comparison uses torch, and Triton if it is installed. Its processes start at once, since they mostly compile.

`--binary` is the compiled bench on a machine without cargo. `--kernels` is the output of benches/gpu.rs in the same
run. The script prints a table row by row. `--write` writes the table, and a picture for the CPU, to benches/results.

The script compares medians over the rounds. A ratio above 1 means that Fusion takes less time than the best of the
others. The time of the first call is a cold start, without any cached code.
"""

import argparse
import concurrent.futures
import ctypes
import datetime
import importlib.metadata
import importlib.util
import itertools
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
RESULTS = ROOT / "benches" / "results"

WORKLOADS = {
    "gate": "relu(a + b) * c",
    "chain": "chain of 12",
    "gelu": "gelu (tanh)",
    "swiglu": "silu(x) * y",
    "softmax_1024": "softmax, rows of 1024",
    "softmax_50257": "softmax, rows of 50257",
    "softmax_64": "softmax, rows of 64",
    "layer_norm_768": "layer norm, rows of 768",
    "layer_norm_64": "layer norm, rows of 64",
    "rms_norm_768": "RMS norm, rows of 768",
    "cross_entropy": "cross-entropy, mean",
    "sum_of_squares": "sum of squares",
    "sum_8": "sum, rows of 8, of known length",
    "adamw": "AdamW, 148 tensors",
}
# Products of matrices, large and small: 1024³ and 256³, 64 of 128 × 64 × 128 and 16 of 64³, a row by 4096² and 768 × 3072,
# and layers of 512 × 768 × 3072 and 64 × 768².
PRODUCTS = {
    "matmul_nn": "product NN",
    "matmul_nt": "product NT",
    "matmul_tn": "product TN",
    "matmul_tt": "product TT",
    "matmul_batched": "products of a batch, NN",
    "matmul_row": "product of one row, NN",
    "linear_gelu": "gelu of a linear layer, NT",
}
# Convolutions of 1 or 8 images, without changes of their extents: the stages of ResNet, and depthwise.
WINDOWS = {
    "conv_56": "convolution 3 x 3, 64 channels of 56 x 56",
    "conv_28": "convolution 3 x 3, 128 channels of 28 x 28",
    "conv_14": "convolution 3 x 3, 256 channels of 14 x 14",
    "conv_7": "convolution 3 x 3, 512 channels of 7 x 7",
    "depthwise_56": "depthwise convolution 3 x 3, 64 channels of 56 x 56",
    "depthwise_14": "depthwise convolution 3 x 3, 256 channels of 14 x 14",
}
# Attention of 8 heads of 2048 or 512 queries and keys.
ATTENTION = {
    "attention_plain_64": "attention, 64 channels",
    "attention_plain_128": "attention, 128 channels",
    "attention_causal_64": "causal attention, 64 channels",
    "attention_causal_128": "causal attention, 128 channels",
    "attention_window_64": "attention in a window of 256, 64 channels",
    "attention_alibi_64": "causal attention with ALiBi, 64 channels",
    "attention_softcap_64": "attention with soft-capped scores, 64 channels",
}
WORKLOADS |= PRODUCTS | WINDOWS | ATTENTION
# Burn's optimizers take models instead of tensors. Short rows are workloads for the CPU.
NOT_BURN = ("softmax_64", "layer_norm_64", "sum_8", "adamw", *WINDOWS, *ATTENTION)
LENGTHS = (128, 1024, 4096, 16384, 65536)
ON_CUDA = {
    **{name: WORKLOADS[name] for name in ("gate", "chain", "gelu", "swiglu")},
    **{f"softmax_{n}": f"softmax, rows of {n}" for n in LENGTHS},
    **{f"layer_norm_{n}": f"layer norm, rows of {n}" for n in LENGTHS},
    **{f"rms_norm_{n}": f"RMS norm, rows of {n}" for n in LENGTHS},
    **{name: WORKLOADS[name] for name in ("cross_entropy", "sum_of_squares", "sum_8", "adamw")},
    **PRODUCTS,
    **WINDOWS,
}  # fmt: skip
TITLES = WORKLOADS | ON_CUDA
# Workloads, sizes and numbers of threads of each device. The threads do not matter on CUDA.
DEVICES = {
    "cpu": (WORKLOADS, "large,small", "1,2"),
    "wgpu": ([name for name in WORKLOADS if name not in NOT_BURN], "large,small", "1,2"),
    "cuda": (ON_CUDA, "huge,small", "0"),
}
# Number of processes that prepare themselves at the same time.
ABREAST = 12
BEYOND = ("roofline", "roofline_nt")
COLUMNS = [
    "fusion", "rust", "rust_nt", "torch", "torch.compile", "triton", "jax.jit", "numexpr", "torch fused", "torch.dot",
    "burn", "gemm", "candle",
]  # fmt: skip
LIBRARIES = ["torch", "jax", "numexpr"]
SIZES = ("huge", "large", "small")


# Linux's prctl for the signal that a process gets when its parent ends.
PR_SET_PDEATHSIG = 1


class Worker:
    """A process that measures a candidate on request and is stopped in between.

    Threads of some libraries poll for work all the time, which would slow down the other candidates.
    """

    def __init__(self, command, cores, environment):
        def pin():
            os.sched_setaffinity(0, cores)
            # A stopped process does not notice that its parent has ended.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        # Messages of the libraries are discarded.
        self.process = subprocess.Popen(
            [str(part) for part in command], env=environment, preexec_fn=pin, stderr=subprocess.DEVNULL, **pipes
        )
        self.ways, self.missing = {}, []
        for line in iter(self.process.stdout.readline, "\n"):
            if not line:
                raise SystemExit(f"{command} has failed")
            said = json.loads(line)
            self.missing += said.get("missing", [])
            if "name" in said:
                self.ways[said["name"]] = said
        self.process.send_signal(signal.SIGSTOP)

    def burst(self, name):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        seconds = float(self.process.stdout.readline())
        self.process.send_signal(signal.SIGSTOP)
        return seconds

    def stop(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        self.process.wait()


def binary(device):
    command = ["cargo", "bench", "--bench", "compare", "--no-run"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return ROOT / re.search(r"\((\S*compare-[0-9a-f]+)\)", built.stderr).group(1)


def burn():
    """Builds Burn's program, in a target folder of its own, and returns its path."""
    folder = ROOT / "benches" / "burn"
    subprocess.run(["cargo", "build", "--release", "--locked", "--target-dir", TARGET / "burn"], cwd=folder, check=True)
    return TARGET / "burn" / "release" / "fusion-burn"


def gemm():
    """Builds the program of the crates gemm and candle, in a target folder of its own, and returns its path."""
    folder = ROOT / "benches" / "gemm"
    subprocess.run(["cargo", "build", "--release", "--target-dir", TARGET / "gemm"], cwd=folder, check=True)
    return TARGET / "gemm" / "release" / "fusion-gemm"


def environment(threads, cache):
    """Returns an environment with equal threads for all, in which freed memory stays with the process."""
    count = str(threads or len(os.sched_getaffinity(0)))
    counts = ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_MAX_THREADS", "NUMEXPR_NUM_THREADS")
    kept = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(32 << 30), "MALLOC_TOP_PAD_": str(1 << 30)}
    return {
        **os.environ, **kept, **{name: count for name in counts}, "JAX_PLATFORMS": "cpu",
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"), "LP_NUM_THREADS": count,
        "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={'false' if threads == 1 else 'true'}",
    }  # fmt: skip


def workers_on(device, programs, workload, size, threads, cache):
    """Starts the processes of a workload on the same cores: all cores if a GPU computes."""
    cores = sorted(os.sched_getaffinity(0))
    if device != "cuda":
        cores = cores[-1:] if threads == 1 else cores[:threads]
    setting = environment(threads, cache)
    plain = {key: value for key, value in setting.items() if not key.startswith("MALLOC_")}
    mine = Worker([programs["fusion"], workload, size, device, "--bench"], set(cores), plain)
    if device == "wgpu":
        return [mine, Worker([programs["burn"], workload, size], set(cores), plain)]
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
    workers = [mine]
    if importlib.util.find_spec("numpy"):
        peers = [sys.executable, HERE / "peers.py", workload, size, threads, device]
        workers.append(Worker(peers, set(cores), setting | hidden))
    if workload in PRODUCTS and "gemm" in programs:
        workers.append(Worker([programs["gemm"], workload, size], set(cores), plain))
    return workers


def measure(workers, workload, rounds):
    """Returns the median seconds of each candidate, and the time of its first call."""
    ways = {name: said for worker in workers for name, said in worker.ways.items()}
    check(workload, ways)
    times = {name: [] for name in ways}
    for _ in range(rounds):
        for worker in workers:
            for name in worker.ways:
                times[name].append(worker.burst(name))
    for worker in workers:
        worker.stop()
    for missing in (missing for worker in workers[1:] for missing in worker.missing):
        print(f"{workload}: {missing}", file=sys.stderr)
    return {
        "seconds": {name: statistics.median(each) for name, each in times.items()},
        "first": {name: said["first"] for name, said in ways.items()},
    }  # fmt: skip


def check(workload, ways):
    """Checks that all candidates have the same result."""
    found = {name: said["check"] for name, said in ways.items() if said["check"] is not None}
    expect = statistics.median(found.values())
    for name, value in found.items():
        if abs(value - expect) > 1e-3 * max(abs(expect), 100.0):
            print(f"{workload}: {name} gives {value}, others {expect}", file=sys.stderr)


def best(row):
    peers = {name: seconds for name, seconds in row["seconds"].items() if name not in (*BEYOND, "fusion")}
    name = min(peers, key=peers.get, default=None)
    return name, peers.get(name)


def roofline(row):
    return min((row["seconds"][name] for name in BEYOND if name in row["seconds"]), default=None)


def cell(seconds):
    if seconds is None:
        return "–"
    scaled, unit = (seconds * 1e3, "ms") if seconds >= 1e-3 else (seconds * 1e6, "µs")
    return f"{scaled:.3g} {unit}" if scaled < 1000 else f"{scaled:.0f} {unit}"


def head(columns):
    return "| workload | " + " | ".join(columns) + " | ratio | best | of roofline |\n|---|" + "--:|" * (len(columns) + 3)


def line(row, columns):
    name, seconds = best(row)
    mine = row["seconds"]["fusion"]
    cells = " | ".join(cell(row["seconds"].get(column)) for column in columns)
    title, floor = TITLES[row["workload"]], roofline(row)
    share = f"{floor / mine:.0%}" if floor else "–"
    ratio = f"{seconds / mine:.2f}" if seconds else "–"
    return f"| {title} | {cells} | {ratio} | {name or '–'} | {share} |"


def tables(rows):
    text = ""
    for size in SIZES:
        for threads in sorted({row["threads"] for row in rows}):
            mine = [row for row in rows if (row["size"], row["threads"]) == (size, threads)]
            if mine:
                columns = [name for name in COLUMNS if any(name in row["seconds"] for row in mine)]
                text += f"\n## {size}{f', threads: {threads}' if threads else ''}\n\n{head(columns)}\n"
                text += "".join(f"{line(row, columns)}\n" for row in mine)
    return text + first_calls([row for row in rows if row["threads"]])


def first_calls(rows):
    """Formats the first calls of processes without cached code."""
    cold = [row for row in rows if row["cold"] or row["threads"] == 1]
    named = ["fusion", "torch", "torch.compile", "jax.jit", "numexpr", "burn"]
    columns = [name for name in named if any(name in row["first"] for row in cold)]
    text = "\n## First call\n\n| workload | " + " | ".join(columns) + " |\n|---|" + "--:|" * len(columns) + "\n"
    for row in cold:
        # Only the first process compiles. Later ones reuse the libraries' caches.
        cells = " | ".join(cell(row["first"].get(name) if row["cold"] or name == "fusion" else None) for name in columns)
        text += f"| {TITLES[row['workload']]}, {row['size']} | {cells} |\n"
    return text if cold else ""


def cpu():
    found = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return found.group(1).strip() if found else "unknown"


def rust_version():
    return "rustc " + subprocess.run(["rustc", "--version"], capture_output=True, text=True).stdout.split()[1]


def burn_version():
    lock = (ROOT / "benches" / "burn" / "Cargo.lock").read_text()
    return "burn " + re.search(r'name = "burn"\nversion = "(.*)"', lock).group(1)


def versions(libraries):
    found = []
    for library in libraries:
        try:
            found.append(f"{library} {importlib.metadata.version(library)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {library}")
    return ", ".join(found)


def write_burn(_, text):
    (RESULTS / "burn.md").write_text(
        f"# wgpu beside Burn\n\n{datetime.date.today()}, llvmpipe of Vulkan on {cpu()}, {rust_version()}, {burn_version()}. Made by\n"
        "`python benches/compare/run.py --device wgpu --write`. Threads are those of the adapter, which is software; a\n"
        "call ends when the device has done it.\n"
        f"{text}"
    )


def kernels(printed):
    """Formats tables of the largest size that benches/gpu.rs measured: kernels, and rows by length."""
    line = re.compile(r" *(\d+)  (.+?) +\d+ +([\d.]+) +([\d.]+) +([\d.]+)% +([\d.]+)%")
    found = [found.groups() for found in map(line.fullmatch, printed.splitlines()) if found]
    size = max(int(elements) for elements, *_ in found)
    flat, rows = {}, {}
    for elements, name, *measures in found:
        of_rows = re.fullmatch(r"(.+) of (\d+)", name)
        if int(elements) == size and of_rows:
            rows.setdefault(int(of_rows[2]), {})[of_rows[1]] = f"{float(measures[2]):.0f}%"
        elif int(elements) == size:
            flat[name] = "{} | {} | {}% | {}%".format(*measures)
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    call = next(line for line in printed.splitlines() if line.startswith("a call"))
    text = [
        f"\n## Kernels of 2^{size.bit_length() - 1} elements beside the driver's copy\n",
        f"By `benches/gpu.rs` (`tests/gpu.sh`), alternating with copies; times are by events. {call.capitalize()}.\n",
        "| kernel | µs | GB/s | of the driver's copy | of a kernel's copy |",
        "|---|--:|--:|--:|--:|",
        *(f"| {name} | {measures} |" for name, measures in flat.items()),
        "\nRows, as shares of the driver's copy; those that are whole vectors first.\n",
        f"| elements of a row | {' | '.join(columns)} |",
        "|--:" * (1 + len(columns)) + "|",
    ]
    lengths = sorted(rows, key=lambda length: (length % 4 > 0, length))
    text += (f"| {length:,} | {' | '.join(rows[length].get(name, '–') for name in columns)} |" for length in lengths)
    return "\n".join(text) + "\n"


def write_cuda(rows, text):
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpus = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    gpu, driver = gpus[0].split(", ")
    kept = versions(["torch", "triton"])
    name = re.sub("[^a-z0-9]+", "-", gpu.lower()).strip("-")
    (RESULTS / f"{name}.md").write_text(
        f"# An NVIDIA GPU beside its peers\n\n{datetime.date.today()}, {gpu}, driver {driver}, {kept}. Made by\n"
        "`python benches/compare/run.py --device cuda --write`. Calls are queued and waited for together; the roofline is a\n"
        "copy by the driver that reads and writes as many bytes; the ratio is the best of the others to Fusion. Tensors\n"
        "that are huge have 2²⁶ elements, small ones 2¹⁶.\n"
        f"{text}"
    )


def write(rows, text):
    cores = len(os.sched_getaffinity(0))
    name = f"{datetime.date.today()}-{re.sub('[^a-z0-9]+', '-', cpu().lower()).strip('-')}"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(
        f"# The CPU beside its peers\n\n{datetime.date.today()}, {cpu()}, {cores} cores, {rust_version()}, {versions(LIBRARIES)}. Made by\n"
        "`python benches/compare/run.py --write`. `rust` is written by hand, `rust_nt` with stores around the caches;\n"
        "the ratio is the best of the others to Fusion; the roofline reads and writes as much and computes nothing.\n"
        f"{text}"
    )
    plot(rows, RESULTS / "roofline.svg")


def plot(rows, path):
    """Draws the shares of the roofline that Fusion and the best of the others reach."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "fusion"
    from matplotlib import pyplot

    large = [row for row in rows if row["size"] == "large"]
    counts = sorted({row["threads"] for row in large})
    figure, axes = pyplot.subplots(1, len(counts), figsize=(5 * len(counts), 4.5), sharey=True, squeeze=False)
    for axis, threads in zip(axes[0], counts):
        mine = [row for row in large if row["threads"] == threads and roofline(row)][::-1]
        places = range(len(mine))
        for shift, label, seconds in (
            (0.2, "Fusion", lambda row: row["seconds"]["fusion"]),
            (-0.2, "best of the others", lambda row: best(row)[1]),
        ):
            shares = [100 * roofline(row) / seconds(row) for row in mine]
            axis.barh([place + shift for place in places], shares, height=0.38, label=label)
        axis.axvline(100, color="black", linewidth=0.8)
        axis.set_yticks(places, [TITLES[row["workload"]] for row in mine])
        axis.set_xlabel("% of the memory roofline")
        axis.set_title(f"{threads} thread{'s' if threads > 1 else ''}")
    axes[0][0].legend(loc="lower right", fontsize="small")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    parser.add_argument("--binary", type=pathlib.Path)
    parser.add_argument("--kernels", type=pathlib.Path)
    parser.add_argument("--workloads")
    parser.add_argument("--sizes")
    parser.add_argument("--threads")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--slow", action="store_true", help="also what takes minutes: AdamW by torch.compile")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    workloads, sizes, threads = DEVICES[args.device]
    args.workloads = (args.workloads or ",".join(workloads)).split(",")
    args.sizes = (args.sizes or sizes).split(",")
    args.threads = [int(count) for count in (args.threads or threads).split(",")]
    if args.write and args.device == "cpu" and not importlib.util.find_spec("matplotlib"):
        parser.error("--write draws a picture, which takes matplotlib")
    if args.slow:
        os.environ["COMPARE_SLOW"] = "1"
    rows = []
    try:
        for row in measured(args):
            rows.append(row)
            columns = [name for name in COLUMNS if name in row["seconds"]]
            print(f"{row['size']}, {row['threads'] or 'GPU'}: {line(row, columns)} ({', '.join(columns)})", flush=True)
    except KeyboardInterrupt:
        print("stopped: the rest is left out")
    text = tables(rows)
    if args.kernels:
        text += kernels(args.kernels.read_text())
    print(text)
    if args.write:
        {"cpu": write, "wgpu": write_burn, "cuda": write_cuda}[args.device](rows, text)


def measured(args):
    """Yields rows, one after the other."""
    programs = {"fusion": args.binary or binary(args.device)}
    if args.device == "wgpu":
        programs["burn"] = burn()
    if args.device == "cpu" and any(name in PRODUCTS for name in args.workloads):
        programs["gemm"] = gemm()
    # A cold start takes seconds, so it is measured once per workload.
    settings = itertools.product(args.sizes, args.threads, args.workloads)
    rows = [dict(zip(("size", "threads", "workload"), setting)) for setting in settings]
    for i, row in enumerate(rows):
        row["cold"] = row["workload"] not in (before["workload"] for before in rows[:i])
    abreast = ABREAST if args.device == "cuda" else 1
    with tempfile.TemporaryDirectory() as fresh, concurrent.futures.ThreadPoolExecutor(abreast) as pool:

        def start(row):
            cache = pathlib.Path(fresh) if row["cold"] else TARGET / "compare"
            return workers_on(args.device, programs, row["workload"], row["size"], row["threads"], cache)

        for at in range(0, len(rows), abreast):
            batch = rows[at : at + abreast]
            for row, workers in zip(batch, list(pool.map(start, batch))):
                yield {**row, **measure(workers, row["workload"], args.rounds)}


if __name__ == "__main__":
    main()
