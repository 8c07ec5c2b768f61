"""The workloads by other libraries, for `run.py`: `python peers.py WORKLOAD SIZE THREADS DEVICE`.

The protocol is that of `main.rs`: a line of JSON for each library with the time of its first call, an empty line,
then the seconds of a call for each name on the input.
"""

import json
import os
import pathlib
import sys
import time

import numpy as np

BURST = 0.06
RATE, FRESH1, FRESH2 = 1e-3, 0.1, 0.001


def inputs(length, salt):
    """Returns multiples of 2⁻¹⁴ from −2 to 2, like `workloads.rs`."""
    i = np.arange(length, dtype=np.int64)
    return ((i * 7919 + salt * 104729) % 65536).astype(np.float32) / np.float32(16384) - np.float32(2)


PRODUCTS = {
    "matmul_batched": {"small": (16, 64, 64, 64), "large": (64, 128, 64, 128), "huge": (64, 1024, 64, 1024)},
    "matmul_row": {"small": (1, 1, 768, 3072), "large": (1, 1, 4096, 4096), "huge": (1, 1, 8192, 8192)},
    "linear_gelu": {"small": (1, 64, 768, 768), "large": (1, 512, 768, 3072), "huge": (1, 4096, 1024, 4096)},
}
SQUARES = {"small": (1, 256, 256, 256), "large": (1, 1024, 1024, 1024), "huge": (1, 4096, 4096, 4096)}
# Products in the operators that torch and JAX share.
MATMULS = {
    "matmul_nn": lambda x, w: x @ w,
    "matmul_nt": lambda x, w: x @ w.T,
    "matmul_tn": lambda x, w: x.T @ w,
    "matmul_tt": lambda x, w: x.T @ w.T,
    "matmul_batched": lambda x, w: x @ w,
    "matmul_row": lambda x, w: x @ w,
}


def is_convolution(workload):
    return workload.startswith(("conv_", "depthwise_"))


def images(workload, size):
    """Returns the images and weights of a convolution, with the extents of `windows.rs`."""
    kind, side = workload.split("_")
    count, side = {"small": 1, "huge": 64}.get(size, 8), int(side)
    channels = 64 * 56 // side
    of = channels if kind == "conv" else 1
    x = inputs(count * channels * side * side, 1).reshape(count, channels, side, side)
    return [x, inputs(channels * of * 9, 2).reshape(channels, of, 3, 3)]


def is_attention(workload):
    return workload.startswith("attention_")


def heads(workload, size):
    """Returns queries, keys and values, with the extents of `attention.rs`."""
    extents = (1, 8, {"small": 512, "huge": 4096}.get(size, 2048), int(workload.split("_")[2]))
    return [inputs(int(np.prod(extents)), salt).reshape(extents) for salt in (1, 2, 3)]


def is_product(workload):
    return workload.startswith("matmul_") or workload in PRODUCTS


def factors(workload, size):
    """Returns the operands of a product, with the extents of `products.rs`, and the bias of a layer."""
    b, m, k, n = PRODUCTS.get(workload, SQUARES)[size]
    if workload == "matmul_batched":
        return [inputs(b * m * k, 1).reshape(b, m, k), inputs(b * k * n, 2).reshape(b, k, n)]
    left = (k, m) if workload in ("matmul_tn", "matmul_tt") else (m, k)
    right = (n, k) if workload in ("matmul_nt", "matmul_tt", "linear_gelu") else (k, n)
    found = [inputs(m * k, 1).reshape(left), inputs(k * n, 2).reshape(right)]
    return found + ([inputs(n, 3)] if workload == "linear_gelu" else [])


def parameters(large):
    """Returns the lengths of the parameters of GPT-2 with this width."""
    width, words, context = (272, 50257, 1024) if large else (16, 512, 64)
    linear = lambda n, m: [n * m, m]
    layer = [width] * 2 + linear(width, 3 * width) + linear(width, width)
    layer += [width] * 2 + linear(width, 4 * width) + linear(4 * width, width)
    return [words * width, context * width] + 12 * layer + [width] * 2


ARGUMENTS = {"gate": 3, "chain": 2, "gelu": 1, "swiglu": 2, "sum_of_squares": 1}
LINE = {"huge": 1 << 26, "large": 1 << 24, "small": 1 << 16}
# Number of rows of the large size, if their elements are not those of a line.
LARGE_ROWS = {768: 8192, 1024: 4096, 50257: 32}
# Number of vector arguments with the length of a row, in addition to the matrix.
VECTORS = {"layer_norm": 2, "rms_norm": 1}


def shape(workload, size):
    """Returns the shape of a workload's input, and the name without the length of rows."""
    if is_convolution(workload):
        return None, workload.split("_")[0]
    if is_attention(workload):
        return None, workload.rsplit("_", 1)[0]
    if is_product(workload):
        return None, workload
    if workload in ARGUMENTS:
        return (LINE[size],), workload
    if workload == "cross_entropy":
        return (8, 8192) if size == "small" else (2048, 50257), workload
    name, width = workload.rsplit("_", 1)
    width = int(width)
    rows = LARGE_ROWS.get(width) if size == "large" else None
    return (rows or LINE[size] // width, width), name


def arguments(workload, size):
    if is_convolution(workload):
        return images(workload, size)
    if is_attention(workload):
        return heads(workload, size)
    if is_product(workload):
        return factors(workload, size)
    extents, name = shape(workload, size)
    count, width = int(np.prod(extents)), extents[-1]
    found = [inputs(count, i + 1).reshape(extents) for i in range(ARGUMENTS.get(workload, 1))]
    found += [inputs(width, i + 2) for i in range(VECTORS.get(name, 0))]
    if workload == "cross_entropy":
        found.append(np.arange(extents[0], dtype=np.int64) * 31 % width)
    return found


def torch_attention(torch, of, name):
    """Returns attention by PyTorch: its fused kernel, with a table of scores where it has no option for them, and flexible
    attention under `torch.compile` without a block mask."""
    from torch.nn.attention.flex_attention import flex_attention

    masked = -float("inf")
    slope = lambda h: torch.exp2(-(h + 1.0))
    where = torch.where
    modified = {
        "attention_causal": lambda s, b, h, t, k: where(k <= t, s, masked),
        "attention_window": lambda s, b, h, t, k: where((k <= t) & (t - k < 256), s, masked),
        "attention_alibi": lambda s, b, h, t, k: where(k <= t, s + slope(h) * (k - t), masked),
        "attention_softcap": lambda s, b, h, t, k: 20.0 * torch.tanh(s / 20.0),
    }.get(name)
    tables = {}

    def table(q):
        if name not in tables:
            t = torch.arange(q.shape[2])
            h = torch.arange(q.shape[1])[:, None, None]
            zeros = torch.zeros(q.shape[1], len(t), len(t))
            tables[name] = modified(zeros, 0, h, t[:, None], t[None, :])[None]
        return tables[name]

    def eager(q, k, v):
        if name == "attention_softcap":
            return torch.softmax(20.0 * torch.tanh(q @ k.mT / (20.0 * q.shape[-1] ** 0.5)), -1) @ v
        if name in ("attention_plain", "attention_causal"):
            return of.scaled_dot_product_attention(q, k, v, is_causal=name == "attention_causal")
        return of.scaled_dot_product_attention(q, k, v, attn_mask=table(q))

    return eager, torch.compile(lambda q, k, v: flex_attention(q, k, v, score_mod=modified), dynamic=False)


def with_torch(workload, size, threads, device):
    """Returns functions without arguments that return a tensor, by name."""
    import torch
    import torch.nn.functional as of

    if threads:
        torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    if workload == "adamw":
        return torch_adamw(torch, size, device)

    def chain(x, y):
        t = torch.tanh(x * 0.5 + y)
        s = torch.sqrt(t * t + 1.0)
        return torch.tanh(torch.exp(-s) * y + x) * s

    if is_attention(workload):
        given = [torch.from_numpy(one).to(device) for one in arguments(workload, size)]
        eager, flexible = torch_attention(torch, of, shape(workload, size)[1])
        return {"torch": lambda: eager(*given), "torch.compile": lambda: flexible(*given)}
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
        **MATMULS,
        "linear_gelu": lambda x, w, b: of.gelu(of.linear(x, w, b)),
        "conv": lambda x, w: of.conv2d(x, w, padding=1),
        "depthwise": lambda x, w: of.conv2d(x, w, padding=1, groups=len(w)),
    }[shape(workload, size)[1]]
    given = [torch.from_numpy(one).to(device) for one in arguments(workload, size)]
    compiled = torch.compile(function, dynamic=False)
    found = {"torch": lambda: function(*given), "torch.compile": lambda: compiled(*given)}
    if workload == "sum_of_squares":
        found["torch.dot"] = lambda: torch.dot(*given, *given)
    if device == "cuda":
        found["roofline"] = torch_copy(torch, sum(one.nbytes for one in given) + function(*given).nbytes)
    return found


def torch_copy(torch, moved):
    """Returns a copy by the driver that reads and writes this many bytes in total."""
    given = torch.full((moved // 8,), 1.5, device="cuda")
    out = torch.empty_like(given)
    return lambda: out.copy_(given)


def torch_adamw(torch, size, device):
    lengths = parameters(size != "small")

    def of(compiled, **options):
        params = [torch.nn.Parameter(torch.from_numpy(inputs(length, 1)).to(device)) for length in lengths]
        for param in params:
            param.grad = torch.from_numpy(inputs(param.numel(), 2)).to(device)
        optimizer = torch.optim.AdamW(params, lr=RATE, weight_decay=0.01, **options)
        step = torch.compile(optimizer.step) if compiled else optimizer.step

        def call():
            step()
            return params[0]

        return call

    found = {"torch": of(False, foreach=True), "torch fused": of(False, fused=True)}
    # torch.compile takes minutes for 148 tensors.
    if os.environ.get("COMPARE_SLOW"):
        found["torch.compile"] = of(True, foreach=True)
    if device == "cuda":
        found["roofline"] = torch_copy(torch, 28 * sum(lengths))
    return found


def with_triton(workload, size, _, device):
    """Returns the Triton kernel of the workload, if `triton_kernels.py` has one."""
    import torch

    sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "ptx"))
    import triton_kernels

    call = triton_kernels.call(torch, workload, arguments(workload, size)) if workload != "adamw" else None
    return {"triton": call} if call else {}


def with_jax(workload, size, *_):
    import jax
    import jax.numpy as jnp

    if workload == "adamw":
        return jax_adamw(jax, jnp, size != "small")

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

    if is_attention(workload):
        return {}
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
        **MATMULS,
        "linear_gelu": lambda x, w, b: jax.nn.gelu(x @ w.T + b, approximate=False),
        "conv": lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"),
        "depthwise": lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=len(w)),
    }[shape(workload, size)[1]]
    given = [jnp.array(one.astype(np.int32) if one.dtype == np.int64 else one) for one in arguments(workload, size)]
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


def with_numexpr(workload, size, threads, _):
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
    names |= dict(zip("abc", arguments(workload, size)))
    return {"numexpr": lambda: numexpr.evaluate(text, local_dict=names, global_dict={})}


def ways(workload, size, threads, device):
    found, missing = {}, []
    for library in (with_torch, with_triton) if device == "cuda" else (with_torch, with_jax, with_numexpr):
        try:
            found |= library(workload, size, threads, device)
        except Exception as error:
            missing.append(f"{library.__name__}: {error!r}")
    if missing:
        print(json.dumps({"missing": missing}))
    return found


def seconds(call, calls, wait):
    start = time.perf_counter()
    for _ in range(calls):
        call()
    wait()
    return (time.perf_counter() - start) / calls


def main():
    workload, size, threads, device = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    found, wait = ways(workload, size, threads, device), lambda: None
    if device == "cuda":
        import torch

        wait = torch.cuda.synchronize
        wait()
    for name, call in found.items():
        start = time.perf_counter()
        try:
            result = call()
            wait()
        except Exception as error:
            print(json.dumps({"missing": [f"{name}: {error!r}"]}))
            continue
        first = time.perf_counter() - start
        total = None
        if name != "roofline":
            host = result.detach().cpu() if hasattr(result, "detach") else result
            total = float(np.asarray(host).sum(dtype=np.float64))
        print(json.dumps({"name": name, "first": first, "check": total}))
    print(flush=True)
    for line in sys.stdin:
        call = found[line.strip()]
        calls = max(1, min(100000, int(BURST / seconds(call, 1, wait))))
        print(seconds(call, calls, wait), flush=True)


if __name__ == "__main__":
    main()
