"""The workloads by other people's libraries, for `run.py`: `python peers.py WORKLOAD SIZE THREADS`.

Speaks as `main.rs` does: a line of JSON for each library with the time of its first call, an empty line, then the seconds
of a call for each name that it reads.
"""

import json
import os
import re
import sys
import time

import numpy as np

BURST = 0.06
RATE, FRESH1, FRESH2 = 1e-3, 0.1, 0.001


def inputs(length, salt):
    """Multiples of 2⁻¹⁴ from −2 to 2, as in `workloads.rs`."""
    i = np.arange(length, dtype=np.int64)
    return ((i * 7919 + salt * 104729) % 65536).astype(np.float32) / np.float32(16384) - np.float32(2)


def parameters(large):
    """Lengths of the parameters of GPT-2 with this width."""
    width, words, context = (272, 50257, 1024) if large else (16, 512, 64)
    linear = lambda n, m: [n * m, m]
    layer = [width] * 2 + linear(width, 3 * width) + linear(width, width)
    layer += [width] * 2 + linear(width, 4 * width) + linear(4 * width, width)
    return [words * width, context * width] + 12 * layer + [width] * 2


LINES = {"gate": 3, "chain": 2, "gelu": 1, "swiglu": 2, "sum_of_squares": 1}
# Large and small, and how many vectors as long as a row there are beside them.
ROWS = {
    "softmax_1024": ((4096, 1024), (64, 1024), 0),
    "softmax_50257": ((32, 50257), (1, 50257), 0),
    "softmax_64": ((1 << 18, 64), (1024, 64), 0),
    "layer_norm": ((8192, 768), (85, 768), 2),
    "layer_norm_64": ((1 << 18, 64), (1024, 64), 2),
    "rms_norm": ((8192, 768), (85, 768), 1),
    "cross_entropy": ((2048, 50257), (8, 8192), 0),
    "sum_8": ((1 << 21, 8), (8192, 8), 0),
}


def arguments(workload, large):
    if workload in LINES:
        return [inputs(1 << 24 if large else 1 << 16, i + 1) for i in range(LINES[workload])]
    big, small, vectors = ROWS[workload]
    rows, width = big if large else small
    found = [inputs(rows * width, 1).reshape(rows, width)] + [inputs(width, i + 2) for i in range(vectors)]
    if workload == "cross_entropy":
        found.append(np.arange(rows, dtype=np.int64) * 31 % width)
    return found


def without_length(workload):
    """What is done with rows, however long they are."""
    return re.sub(r"_[0-9]+$", "", workload)


def with_torch(workload, large, threads):
    """By name, functions without arguments that give a tensor."""
    import torch
    import torch.nn.functional as of

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    if workload == "adamw":
        return torch_adamw(torch, large)

    def chain(x, y):
        t = torch.tanh(x * 0.5 + y)
        s = torch.sqrt(t * t + 1.0)
        return torch.tanh(torch.exp(-s) * y + x) * s

    function = {
        "gate": lambda a, b, c: torch.relu(a + b) * c,
        "chain": chain,
        "gelu": lambda x: of.gelu(x, approximate="tanh"),
        "swiglu": lambda x, y: of.silu(x) * y,
        "softmax": lambda x: torch.softmax(x, -1),
        "layer_norm": lambda x, g, b: of.layer_norm(x, x.shape[1:], g, b, 1e-5),
        "rms_norm": lambda x, g: of.rms_norm(x, x.shape[1:], g, 1e-5),
        "cross_entropy": lambda x, t: of.cross_entropy(x, t),
        "sum_of_squares": lambda x: (x * x).sum(),
        "sum": lambda x: x.sum(-1),
    }[without_length(workload)]
    given = [torch.from_numpy(one) for one in arguments(workload, large)]
    compiled = torch.compile(function, dynamic=False)
    found = {"torch": lambda: function(*given), "torch.compile": lambda: compiled(*given)}
    if workload == "sum_of_squares":
        found["torch.dot"] = lambda: torch.dot(*given, *given)
    return found


def torch_adamw(torch, large):
    def of(compiled, **options):
        params = [torch.nn.Parameter(torch.from_numpy(inputs(length, 1))) for length in parameters(large)]
        for param in params:
            param.grad = torch.from_numpy(inputs(param.numel(), 2))
        optimizer = torch.optim.AdamW(params, lr=RATE, weight_decay=0.01, **options)
        step = torch.compile(optimizer.step) if compiled else optimizer.step

        def call():
            step()
            return params[0]

        return call

    found = {"torch": of(False, foreach=True), "torch fused": of(False, fused=True)}
    # 148 tensors take it minutes.
    if os.environ.get("COMPARE_SLOW"):
        found["torch.compile"] = of(True, foreach=True)
    return found


def with_jax(workload, large, _):
    import jax
    import jax.numpy as jnp

    if workload == "adamw":
        return jax_adamw(jax, jnp, large)

    def chain(x, y):
        t = jnp.tanh(x * 0.5 + y)
        s = jnp.sqrt(t * t + 1.0)
        return jnp.tanh(jnp.exp(-s) * y + x) * s

    def layer_norm(x, g, b):
        y = x - x.mean(-1, keepdims=True)
        return y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5) * g + b

    def cross_entropy(x, t):
        own = jnp.take_along_axis(x, t[:, None], -1)[:, 0]
        return (jax.nn.logsumexp(x, -1) - own).mean()

    function = {
        "gate": lambda a, b, c: jax.nn.relu(a + b) * c,
        "chain": chain,
        "gelu": lambda x: jax.nn.gelu(x, approximate=True),
        "swiglu": lambda x, y: jax.nn.silu(x) * y,
        "softmax": lambda x: jax.nn.softmax(x, -1),
        "layer_norm": layer_norm,
        "rms_norm": lambda x, g: x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g,
        "cross_entropy": cross_entropy,
        "sum_of_squares": lambda x: (x * x).sum(),
        "sum": lambda x: x.sum(-1),
    }[without_length(workload)]
    given = [jnp.array(one.astype(np.int32) if one.dtype == np.int64 else one) for one in arguments(workload, large)]
    jax.block_until_ready(given)
    compiled = jax.jit(function)
    return {"jax.jit": lambda: compiled(*given).block_until_ready()}


def jax_adamw(jax, jnp, large):
    def update(p, m, v, g, c1, c2):
        m = m + FRESH1 * (g - m)
        v = v + FRESH2 * (g * g - v)
        return p * (1 - RATE * 0.01) - RATE / c1 * m / (jnp.sqrt(v / c2) + 1e-8), m, v

    def step(state, grads, c1, c2):
        return [update(*each, g, c1, c2) for each, g in zip(state, grads)]

    compiled = jax.jit(step, donate_argnums=0)
    grads = [jnp.array(inputs(length, 2)) for length in parameters(large)]
    state = [(jnp.array(inputs(n, 1)), jnp.zeros(n), jnp.zeros(n)) for n in parameters(large)]
    steps = 0

    def call():
        nonlocal state, steps
        steps += 1
        state = jax.block_until_ready(compiled(state, grads, 1 - 0.9**steps, 1 - 0.999**steps))
        return state[0][0]

    return {"jax.jit": call}


def with_numexpr(workload, large, threads):
    import numexpr

    numexpr.set_num_threads(threads)
    text = {
        "gate": "where(a + b > zero, a + b, zero) * c",
        "chain": "tanh(exp(-sqrt(tanh(a * half + b) ** 2 + one)) * b + a) * sqrt(tanh(a * half + b) ** 2 + one)",
        "gelu": "half * a * (one + tanh(k * (a + q * a * a * a)))",
        "swiglu": "a / (one + exp(-a)) * b",
    }.get(workload)
    if text is None:
        return {}
    names = {"zero": 0.0, "half": 0.5, "one": 1.0, "k": 0.7978845608, "q": 0.044715}
    names = {name: np.float32(value) for name, value in names.items()}
    names |= dict(zip("abc", arguments(workload, large)))
    return {"numexpr": lambda: numexpr.evaluate(text, local_dict=names, global_dict={})}


def ways(workload, large, threads):
    found, missing = {}, []
    for library in (with_torch, with_jax, with_numexpr):
        try:
            found |= library(workload, large, threads)
        except ImportError as error:
            missing.append(error.name)
    if missing:
        print(json.dumps({"missing": missing}))
    return found


def burst(call):
    start = time.perf_counter()
    call()
    calls = max(1, min(100000, int(BURST / (time.perf_counter() - start))))
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def main():
    workload, size, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    found = ways(workload, size == "large", threads)
    for name, call in found.items():
        start = time.perf_counter()
        result = call()
        first = time.perf_counter() - start
        total = float(np.asarray(result.detach() if hasattr(result, "detach") else result).sum(dtype=np.float64))
        print(json.dumps({"name": name, "first": first, "check": total}))
    print(flush=True)
    for line in sys.stdin:
        print(burst(found[line.strip()]), flush=True)


if __name__ == "__main__":
    main()
