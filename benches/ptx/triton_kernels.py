"""The kernels of `kernels.fuse` in Triton, compiled without a GPU: `python triton_kernels.py FOLDER GENERATION`.

A block of 128 threads processes 1024 elements: of a line, of a row of that length, or of a long row at a time.
"""

import pathlib
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language.extra import libdevice


@triton.jit
def gate(a, b, c, out, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    there = i < n
    x = tl.load(a + i, mask=there) + tl.load(b + i, mask=there)
    tl.store(out + i, tl.maximum(x, 0.0) * tl.load(c + i, mask=there), mask=there)


@triton.jit
def chain(x, y, out, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    there = i < n
    v = tl.load(x + i, mask=there)
    w = tl.load(y + i, mask=there)
    t = libdevice.tanh(v * 0.5 + w)
    s = tl.sqrt(t * t + 1.0)
    tl.store(out + i, libdevice.tanh(tl.exp(-s) * w + v) * s, mask=there)


@triton.jit
def gelu_of(x, out, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    v = tl.load(x + i, mask=i < n)
    tl.store(out + i, 0.5 * v * (1.0 + tl.erf(v * 0.70710678)), mask=i < n)


@triton.jit
def swiglu(x, y, out, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    v = tl.load(x + i, mask=i < n)
    tl.store(out + i, v / (1.0 + tl.exp(-v)) * tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def softmax_rows(x, out, n, SIZE: tl.constexpr):
    row = tl.program_id(0) * n
    i = tl.arange(0, SIZE)
    v = tl.load(x + row + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row + i, e / tl.sum(e, 0), mask=i < n)


@triton.jit
def layer_norm_rows(x, g, b, out, n, SIZE: tl.constexpr):
    row = tl.program_id(0) * n
    i = tl.arange(0, SIZE)
    there = i < n
    v = tl.load(x + row + i, mask=there, other=0.0)
    v = tl.where(there, v - tl.sum(v, 0) / n, 0.0)
    v = v * tl.rsqrt(tl.sum(v * v, 0) / n + 1e-5)
    tl.store(out + row + i, v * tl.load(g + i, mask=there) + tl.load(b + i, mask=there), mask=there)


@triton.jit
def rms_norm_rows(x, g, out, n, eps, SIZE: tl.constexpr):
    row = tl.program_id(0) * n
    i = tl.arange(0, SIZE)
    v = tl.load(x + row + i, mask=i < n, other=0.0)
    v = v * tl.rsqrt(tl.sum(v * v, 0) / n + eps)
    tl.store(out + row + i, v * tl.load(g + i, mask=i < n), mask=i < n)


@triton.jit
def token_loss(x, t, out, n, SIZE: tl.constexpr):
    row = x + tl.program_id(0).to(tl.int64) * n
    most = tl.full((SIZE,), -float("inf"), tl.float32)
    for start in range(0, n, SIZE):
        i = start + tl.arange(0, SIZE)
        most = tl.maximum(most, tl.load(row + i, mask=i < n, other=-float("inf")))
    largest = tl.max(most, 0)
    total = tl.zeros((SIZE,), tl.float32)
    for start in range(0, n, SIZE):
        i = start + tl.arange(0, SIZE)
        total += tl.exp(tl.load(row + i, mask=i < n, other=-float("inf")) - largest)
    own = tl.load(row + tl.load(t + tl.program_id(0)))
    tl.store(out + tl.program_id(0), tl.log(tl.sum(total, 0)) + largest - own)


@triton.jit
def sum_of_squares(x, out, n, SIZE: tl.constexpr):
    total = tl.zeros((SIZE,), tl.float32)
    for start in range(tl.program_id(0) * SIZE, n, tl.num_programs(0) * SIZE):
        i = start + tl.arange(0, SIZE)
        v = tl.load(x + i, mask=i < n, other=0.0)
        total += v * v
    tl.store(out + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def adamw(p, m, v, g, n, fresh1, fresh2, rate, kept, c2, eps, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    there = i < n
    grad = tl.load(g + i, mask=there)
    first = tl.load(m + i, mask=there)
    second = tl.load(v + i, mask=there)
    first += (grad - first) * fresh1
    second += (grad * grad - second) * fresh2
    param = tl.load(p + i, mask=there) * kept - rate * (first / (tl.sqrt(second * c2) + eps))
    tl.store(m + i, first, mask=there)
    tl.store(v + i, second, mask=there)
    tl.store(p + i, param, mask=there)


@triton.jit
def product(x, w, out, n, k, SIZE: tl.constexpr):
    row = tl.program_id(0) * 128 + tl.arange(0, 128)
    col = tl.program_id(1) * 128 + tl.arange(0, 128)
    sums = tl.zeros((128, 128), tl.float32)
    for start in range(0, k, 32):
        step = start + tl.arange(0, 32)
        left = tl.load(x + row[:, None] * k + step[None, :])
        right = tl.load(w + col[None, :] * k + step[:, None])
        sums = tl.dot(left, right, sums)
    tl.store(out + row[:, None] * n + col[None, :], sums)


@triton.jit
def layer(
    x, w, b, out, m, n, k, x_batch, x_row, x_step, w_batch, w_step, w_col, IS_GELU: tl.constexpr, SIZE: tl.constexpr
):
    row = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    col = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    batch = tl.program_id(2)
    rows, cols = (row < m)[:, None], (col < n)[None, :]
    sums = tl.zeros((SIZE, SIZE), tl.float32)
    for start in range(0, k, 32):
        step = start + tl.arange(0, 32)
        left = x + batch * x_batch + row[:, None] * x_row + step[None, :] * x_step
        right = w + batch * w_batch + step[:, None] * w_step + col[None, :] * w_col
        left = tl.load(left, mask=rows & (step < k)[None, :], other=0.0)
        right = tl.load(right, mask=cols & (step < k)[:, None], other=0.0)
        sums = tl.dot(left, right, sums, input_precision="ieee")
    if IS_GELU:
        sums += tl.load(b + col, mask=col < n)[None, :]
        sums = 0.5 * sums * (1.0 + tl.erf(sums * 0.70710678))
    tl.store(out + batch * m * n + row[:, None] * n + col[None, :], sums, mask=rows & cols)


KERNELS = [
    gate, chain, gelu_of, swiglu, softmax_rows, layer_norm_rows, rms_norm_rows, token_loss, sum_of_squares, adamw,
    product,
]
POINTERS = {name: "*fp32" for name in "abcxygpmv"} | {"out": "*fp32", "t": "*i32"}
THREADS, SIZE = 128, 1024


def compiled(kernel, generation):
    names = [name for name in kernel.arg_names if name != "SIZE"]
    types = {name: POINTERS.get(name, "i32" if name in "nk" else "fp32") for name in names}
    if kernel is product:
        types |= {"x": "*bf16", "w": "*bf16"}
    # Tensors of torch are aligned, and lengths are usually multiples of a vector. Triton detects that at the
    # call.
    aligned = [i for i, name in enumerate(names) if types[name] != "fp32"]
    source = ASTSource(
        fn=kernel,
        signature=types | {"SIZE": "constexpr"},
        constexprs={"SIZE": SIZE},
        attrs={(i,): [["tt.divisibility", 16]] for i in aligned},
    )
    options = {"num_warps": THREADS // 32}
    return triton.compile(source, target=GPUTarget("cuda", generation, 32), options=options)


def call(torch, workload, arrays):
    """Returns a function that runs a workload of `benches/compare` on the GPU, or None. It returns a tensor."""
    lines = {"gate": gate, "chain": chain, "swiglu": swiglu}
    rows = {"softmax": softmax_rows, "layer_norm": layer_norm_rows, "rms_norm": rms_norm_rows}
    given = [torch.from_numpy(array).cuda() for array in arrays]
    first = given[0]
    if workload == "sum_of_squares":
        parts = torch.empty(4 * torch.cuda.get_device_properties(0).multi_processor_count, device="cuda")

        def squares():
            sum_of_squares[(len(parts),)](first, parts, first.numel(), SIZE=SIZE, num_warps=THREADS // 32)
            return parts.sum()

        return squares
    if kernel := rows.get(workload.rsplit("_", 1)[0]):
        # The mapping is that of Triton's tutorials: a block per row, with more threads for a long row.
        size = triton.next_power_of_2(first.shape[-1])
        return launched(torch, kernel, given, first, size, max(1, min(32, size // 256)), first.shape[0])
    if workload == "cross_entropy":
        losses = torch.empty(len(first), device="cuda")
        each = launched(torch, token_loss, given, losses, SIZE, THREADS // 32, len(first), first.shape[-1])
        return lambda: each().mean()
    if workload.startswith("matmul_") or workload == "linear_gelu":
        return product_of(torch, workload, *given)
    if kernel := lines.get(workload):
        return launched(torch, kernel, given, first, SIZE, THREADS // 32, triton.cdiv(first.numel(), SIZE))
    return None


def product_of(torch, workload, x, w, bias=None):
    """Returns a function that multiplies factors of any layout, exactly as `f32`."""
    x = x.mT if workload in ("matmul_tn", "matmul_tt") else x
    w = w.mT if workload in ("matmul_nt", "matmul_tt", "linear_gelu") else w
    m, k, n = x.shape[-2], x.shape[-1], w.shape[-1]
    batch = [1, *x.shape[:-2]][-1]
    batches = [x.stride(0), w.stride(0)] if batch > 1 else [0, 0]
    size = 128 if batch * m * n >= 1 << 22 else 64
    grid = (triton.cdiv(m, size), triton.cdiv(n, size), batch)
    strides = [batches[0], x.stride(-2), x.stride(-1), batches[1], w.stride(-2), w.stride(-1)]

    def run():
        out = torch.empty((*x.shape[:-1], n), device=x.device)
        given = (x, w, x if bias is None else bias, out, m, n, k, *strides)
        layer[grid](*given, IS_GELU=bias is not None, SIZE=size, num_warps=8 if size == 128 else 4)
        return out

    return run


def launched(torch, kernel, given, like, size, warps, blocks, n=None):
    eps = [1e-5] if kernel is rms_norm_rows else []

    def run():
        out = torch.empty_like(like)
        kernel[(blocks,)](*given, out, n or like.shape[-1], *eps, SIZE=size, num_warps=warps)
        return out

    return run


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for kernel in KERNELS:
        made = compiled(kernel, int(sys.argv[2]))
        (folder / f"{kernel.fn.__name__}.ptx").write_text(made.asm["ptx"])
        (folder / f"{kernel.fn.__name__}.shared").write_text(str(made.metadata.shared))


if __name__ == "__main__":
    main()
