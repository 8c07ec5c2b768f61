"""Measures the share of Fusion in the compile time of a crate with 100 kernels.

python benches/compile_time.py        # prints a table, and writes it to benches/results/compile_time.md

The script makes the crate in the target folder, with a path dependency on this project. Dependencies are built before
the measurement, with the default features. Each figure is the minimum of a few builds.

Expansion is measured twice. `benches/expansion.rs` measures it outside of rustc. rustc reports its time to expand a
crate of ten kernels. The second uses a macro that is built like a user's, and includes the transfer of tokens and the
parsing of the output.
"""

import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "compile_time"
CRATE = TARGET / "crate"
RESULT = ROOT / "benches" / "results" / "compile_time.md"
VARIANTS = 10
BUILDS = 3
# Names of the feature sets in the output of `benches/expansion.rs`.
FEATURES = ("wgpu", "default")
# Profile that a user adds to Cargo.toml.
OPTIMISED = "[profile.dev.build-override]\nopt-level = 3\n"
# Profile that the README suggests, for the crate alone: the same dependencies serve all rows.
FAST_LOOPS = '[profile.dev]\nopt-level = 1\n[profile.dev.package."*"]\nopt-level = 0\n'

# Templates of ten functions each: @ is a number from 0, % a nonzero number.
TEMPLATES = {
    "gate": "pub fn gate_@(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] { relu(a + % * b) * c }",
    "chain": """pub fn chain_@(x: f32[N], y: f32[N]) -> f32[N] {
    let t = tanh(x * % + y);
    let s = sqrt(t * t + 1.0);
    tanh(exp(-s) * y + x) * s
}""",
    "activation": "pub fn activation_@(x: f32[N, D], b: f32[D]) -> f32[N, D] { gelu(x * % + b) }",
    "swiglu": "pub fn swiglu_@(x: f32[N, D], y: f32[N, D]) -> f32[N, D] { silu(% * x) * y }",
    "softmax": "pub fn softmax_@(x: f32[N, D]) -> f32[N, D] { softmax(x * %, D) }",
    "layer_norm": """pub fn layer_norm_@(x: f32[N, D], r: f32[N, D], g: f32[D], b: f32[D]) -> f32[N, D] {
    layer_norm(x + % * r, D) * g + b
}""",
    "rms_norm": "pub fn rms_norm_@(x: f32[N, D], g: f32[D]) -> f32[N, D] { rms_norm(x, D, 1e-%) * g }",
    "loss": "pub fn loss_@(x: f32[N, V], t: i32[N]) -> f32[N] { cross_entropy(% * x, V, t) }",
    "total": "pub fn total_@(x: f32[N], y: f32[N]) -> f32[] { sum(square(x - % * y)) }",
    "adamw": """pub fn adamw_@(p: &mut f32[N], m: &mut f32[N], v: &mut f32[N], g: f32[N], lr: f32, c1: f32, c2: f32) {
    m = lerp(m, g, 0.1);
    v = lerp(v, g * g, 0.00%);
    p = p * (1.0 - lr * 0.01) - lr * (m / c1) / (sqrt(v / c2) + 1e-8);
}""",
}


def kernel(template, number, factor):
    return TEMPLATES[template].replace("@", str(number)).replace("%", str(factor))


def write(template, factors):
    """Returns the module of a template, with a `fuse!` for each function."""
    blocks = (f"fuse! {{\n{kernel(template, i, factor)}\n}}\n" for i, factor in enumerate(factors))
    (CRATE / "src" / f"{template}.rs").write_text("use fusion::prelude::*;\n\n" + "\n".join(blocks))


def make(profile, templates, features=None):
    """Makes the crate with these modules only, and with these features of Fusion, or the default ones."""
    selected = "" if features is None else f", default-features = false, features = {json.dumps(features)}"
    (CRATE / "src").mkdir(parents=True, exist_ok=True)
    (CRATE / "Cargo.toml").write_text(
        '[package]\nname = "kernels"\nedition = "2024"\n\n[workspace]\n\n'
        f'[dependencies]\nfusion = {{ path = "{ROOT}"{selected} }}\n\n{profile}'
    )
    # The lock file of this project gives the same versions without a resolution.
    (CRATE / "Cargo.lock").write_text((ROOT / "Cargo.lock").read_text())
    (CRATE / "src" / "lib.rs").write_text("".join(f"pub mod {name};\n" for name in templates))
    for template in templates:
        write(template, range(1, VARIANTS + 1))


def cargo(*arguments, folder=CRATE):
    """Runs cargo in a user's environment, and returns its output and seconds."""
    mine = ("CARGO_INCREMENTAL", "RUSTFLAGS", "CARGO_PROFILE_DEV_DEBUG")
    environment = {key: value for key, value in os.environ.items() if key not in mine}
    # Users' builds do not read this project's `.cargo/config.toml`. RUSTC_BOOTSTRAP makes a stable rustc
    # report times of this crate.
    environment |= {"FUSION_VERIFY": "0", "RUSTC_BOOTSTRAP": "kernels"}
    environment["CARGO_TARGET_DIR"] = str(TARGET if folder == CRATE else TARGET.parent)
    start = time.perf_counter()
    done = subprocess.run(["cargo", *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"cargo {' '.join(arguments)}\n{done.stderr}")
    return done.stdout + done.stderr, seconds


def clean(command):
    """Returns the seconds of `cargo check` or `cargo build` of the crate, with built dependencies."""
    cargo(command)
    return min(timed_clean(command) for _ in range(BUILDS))


def timed_clean(command):
    cargo("clean", "--package", "kernels")
    return cargo(command)[1]


def library():
    """Returns the MiB of the crate's library."""
    return (TARGET / "debug" / "libkernels.rlib").stat().st_size / 2**20


def edit(command):
    """Returns the seconds of a build after a change to one kernel."""
    cargo(command)
    seconds = []
    for build in range(BUILDS):
        write("softmax", [100 + build, *range(2, VARIANTS + 1)])
        seconds.append(cargo(command)[1])
    write("softmax", range(1, VARIANTS + 1))
    return min(seconds)


def expansions():
    """Returns the milliseconds and bytes of each kernel, by template."""
    built, _ = cargo("bench", "--bench", "expansion", "--no-run", folder=ROOT)
    program = re.search(r"\((\S*expansion-[0-9a-f]+)\)", built).group(1)
    sources = TARGET / "sources"
    sources.mkdir(parents=True, exist_ok=True)
    paths = []
    for template in TEMPLATES:
        for i in range(VARIANTS):
            paths.append(sources / f"{template}_{i}.fuse")
            paths[-1].write_text(kernel(template, i, i + 1))
    text = subprocess.run([ROOT / program, *paths], check=True, capture_output=True, text=True).stdout
    of = {template: [] for template in TEMPLATES}
    for line in map(json.loads, text.splitlines()):
        of[line["name"].rsplit("_", 1)[0]].append(line)
    return of


def expansion_in_rustc(templates):
    """Returns rustc's milliseconds for the macros of a crate with ten kernels of each template."""
    make(OPTIMISED, templates)
    cargo("check")
    seconds = []
    for _ in range(BUILDS):
        cargo("clean", "--package", "kernels")
        told, _ = cargo("rustc", "--lib", "--", "-Ztime-passes", "--emit=metadata")
        seconds.append(float(re.search(r"time: +([0-9.]+);.*macro_expand_crate", told).group(1)))
    return min(seconds) * 1e3


def expansions_in_rustc():
    """Returns the milliseconds of a kernel, by template."""
    empty = expansion_in_rustc([])
    return {template: (expansion_in_rustc([template]) - empty) / VARIANTS for template in TEMPLATES}


def builds():
    """Returns rows of the second table: the build, its seconds, and the goal."""
    make(OPTIMISED, [])
    empty = {command: clean(command) for command in ("check", "build")}
    make(OPTIMISED, TEMPLATES)
    check, build = clean("check"), clean("build")
    count = VARIANTS * len(TEMPLATES)
    rows = [
        ("clean `cargo build`", build, "≤ 30"),
        ("clean `cargo check`", check, ""),
        ("the same, of an empty crate", empty["check"], ""),
        ("`cargo check` after an edit of one kernel", edit("check"), "≤ 2"),
        ("`cargo build` after an edit of one kernel", edit("build"), ""),
    ]
    cargo("build")
    size = library()
    make(OPTIMISED, TEMPLATES, ["wgpu"])
    without = clean("build")
    rows.append((f"clean `cargo build`, without `cuda` (library {size:.1f} → {library():.1f} MiB)", without, f"≥ {build / 1.25:.2f}"))
    make(OPTIMISED + FAST_LOOPS, TEMPLATES)
    rows.append(("clean `cargo build`, `opt-level = 1`", clean("build"), ""))
    make("", TEMPLATES)
    rows.append(("clean `cargo check`, the macro not optimised", clean("check"), ""))
    rows.append(("`cargo check` after an edit, the macro not optimised", edit("check"), ""))
    return rows, (check - empty["check"]) / count * 1e3


def machine():
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    rust = subprocess.run(["rustc", "--version"], capture_output=True, text=True).stdout.strip()
    name = cpu.group(1) if cpu else platform.processor()
    return f"{datetime.date.today()}, {name}, {len(os.sched_getaffinity(0))} cores, {rust}"


def slowest(kernels, features, what):
    kernel = max(kernels, key=lambda one: one[features]["ms"])
    return f"Slowest with {what}: {kernel['name']}, {kernel[features]['ms']:.2f} ms."


def report(of, in_rustc, rows, per_kernel):
    every = [one for group in of.values() for one in group]
    mean = lambda group, key: statistics.mean(one[key] for one in group)
    text = f"""# Compile time of a crate with {len(every)} kernels

{machine()}. Made by `python benches/compile_time.py`. The macro is optimised by what the user's `Cargo.toml` says:

```toml
{OPTIMISED}```

| ten kernels each | expansion, ms a kernel | without PTX | in rustc | expanded text, KB a kernel | without PTX |
|---|--:|--:|--:|--:|--:|
"""
    in_rustc = {**in_rustc, "all": statistics.mean(in_rustc.values())}
    for name, group in [*of.items(), ("all", every)]:
        wgpu, default = ([mean([one[features] for one in group], key) for key in ("ms", "bytes")] for features in FEATURES)
        text += f"| {name} | {default[0]:.2f} | {wgpu[0]:.2f} | {in_rustc[name]:.2f} "
        text += f"| {default[1] / 1024:.0f} | {wgpu[1] / 1024:.0f} |\n"
    text += "\n" + " ".join(slowest(every, *which) for which in zip(FEATURES, ("the feature wgpu alone", "default features")))
    text += f""" (goal: ≤ 5).
In rustc, with the default features, expansion and checking of what comes out of it take {per_kernel:.1f} ms a kernel.

| what | s | goal |
|---|--:|--:|
"""
    return text + "".join(f"| {what} | {seconds:.2f} | {goal} |\n" for what, seconds, goal in rows)


def main():
    text = report(expansions(), expansions_in_rustc(), *builds())
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
