// What one would write by hand in CUDA C++: vectors of four, a thread for each, a warp for each row of 1024 elements, which
// its lanes keep in registers; a block for each long row, which is read twice.
// The formulas are those of `kernels.fuse`. `compare.py` compiles this with `nvcc -O3`.

#include <cuda_bf16.h>
#include <mma.h>

constexpr int ROW = 1024;
constexpr int HELD = ROW / 32 / 4;
constexpr unsigned ALL = 0xffffffffu;

#define EACH(out, expression)                       \
    do {                                            \
        { constexpr int i = 0; out.x = expression; } \
        { constexpr int i = 1; out.y = expression; } \
        { constexpr int i = 2; out.z = expression; } \
        { constexpr int i = 3; out.w = expression; } \
    } while (0)

template <int I> __device__ float lane(float4 v) {
    if constexpr (I == 0) return v.x;
    else if constexpr (I == 1) return v.y;
    else if constexpr (I == 2) return v.z;
    else return v.w;
}

__device__ float sum_of(float4 v) { return (v.x + v.y) + (v.z + v.w); }
__device__ float max_of(float4 v) { return fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)); }

__device__ float warp_sum(float v) {
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(ALL, v, step);
    return v;
}

__device__ float warp_max(float v) {
    for (int step = 16; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(ALL, v, step));
    return v;
}

// Of a block, through shared memory.
template <class Combine> __device__ float block_of(float v, float *parts, Combine combine) {
    v = combine(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
    __syncthreads();
    return combine(parts[threadIdx.x % 32 % (blockDim.x / 32)]);
}

template <class F> __device__ void line(unsigned n4, F f) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n4) f(i);
}

extern "C" {

__global__ void gate(const float4 *__restrict__ a, const float4 *__restrict__ b, const float4 *__restrict__ c,
                     float4 *__restrict__ out, unsigned n4) {
    line(n4, [=](unsigned at) {
        float4 x = a[at], y = b[at], z = c[at], o;
        EACH(o, fmaxf(lane<i>(x) + lane<i>(y), 0.f) * lane<i>(z));
        out[at] = o;
    });
}

__device__ float chain_of(float x, float y) {
    float t = tanhf(x * 0.5f + y), s = sqrtf(t * t + 1.f);
    return tanhf(expf(-s) * y + x) * s;
}

__global__ void chain(const float4 *__restrict__ x, const float4 *__restrict__ y, float4 *__restrict__ out,
                      unsigned n4) {
    line(n4, [=](unsigned at) {
        float4 v = x[at], w = y[at], o;
        EACH(o, chain_of(lane<i>(v), lane<i>(w)));
        out[at] = o;
    });
}

__device__ float gelu_one(float x) { return 0.5f * x * (1.f + erff(x * 0.70710678f)); }

__global__ void gelu_of(const float4 *__restrict__ x, float4 *__restrict__ out, unsigned n4) {
    line(n4, [=](unsigned at) {
        float4 v = x[at], o;
        EACH(o, gelu_one(lane<i>(v)));
        out[at] = o;
    });
}

__device__ float silu(float x) { return x / (1.f + expf(-x)); }

__global__ void swiglu(const float4 *__restrict__ x, const float4 *__restrict__ y, float4 *__restrict__ out,
                       unsigned n4) {
    line(n4, [=](unsigned at) {
        float4 v = x[at], w = y[at], o;
        EACH(o, silu(lane<i>(v)) * lane<i>(w));
        out[at] = o;
    });
}

__global__ void softmax_rows(const float4 *__restrict__ x, float4 *__restrict__ out, unsigned rows) {
    unsigned row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, at = row * (ROW / 4) + threadIdx.x % 32;
    if (row >= rows) return;
    float4 v[HELD];
    float most = -INFINITY, total = 0.f;
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        v[k] = x[at + k * 32];
        most = fmaxf(most, max_of(v[k]));
    }
    most = warp_max(most);
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        EACH(v[k], expf(lane<i>(v[k]) - most));
        total += sum_of(v[k]);
    }
    total = 1.f / warp_sum(total);
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        EACH(v[k], lane<i>(v[k]) * total);
        out[at + k * 32] = v[k];
    }
}

__global__ void layer_norm_rows(const float4 *__restrict__ x, const float4 *__restrict__ g,
                                const float4 *__restrict__ b, float4 *__restrict__ out, unsigned rows) {
    unsigned row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, from = threadIdx.x % 32;
    unsigned at = row * (ROW / 4) + from;
    if (row >= rows) return;
    float4 v[HELD];
    float mean = 0.f, square = 0.f;
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        v[k] = x[at + k * 32];
        mean += sum_of(v[k]);
    }
    mean = warp_sum(mean) * (1.f / ROW);
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        EACH(v[k], lane<i>(v[k]) - mean);
        square += v[k].x * v[k].x + v[k].y * v[k].y + v[k].z * v[k].z + v[k].w * v[k].w;
    }
    float scale = rsqrtf(warp_sum(square) * (1.f / ROW) + 1e-5f);
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        float4 w = g[from + k * 32], c = b[from + k * 32];
        EACH(v[k], lane<i>(v[k]) * scale * lane<i>(w) + lane<i>(c));
        out[at + k * 32] = v[k];
    }
}

__global__ void rms_norm_rows(const float4 *__restrict__ x, const float4 *__restrict__ g, float4 *__restrict__ out,
                              unsigned rows) {
    unsigned row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, from = threadIdx.x % 32;
    unsigned at = row * (ROW / 4) + from;
    if (row >= rows) return;
    float4 v[HELD];
    float square = 0.f;
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        v[k] = x[at + k * 32];
        square += v[k].x * v[k].x + v[k].y * v[k].y + v[k].z * v[k].z + v[k].w * v[k].w;
    }
    float scale = rsqrtf(warp_sum(square) * (1.f / ROW) + 1e-6f);
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        float4 w = g[from + k * 32];
        EACH(v[k], lane<i>(v[k]) * scale * lane<i>(w));
        out[at + k * 32] = v[k];
    }
}

// A block a row, of any number of whole vectors.
__global__ void __launch_bounds__(256) token_loss(const float4 *__restrict__ x, const int *__restrict__ targets,
                                                  float *__restrict__ out, unsigned d4) {
    __shared__ float parts[32];
    const float4 *row = x + (size_t)blockIdx.x * d4;
    float most = -INFINITY, total = 0.f;
    for (unsigned at = threadIdx.x; at < d4; at += blockDim.x) most = fmaxf(most, max_of(row[at]));
    most = block_of(most, parts, warp_max);
    for (unsigned at = threadIdx.x; at < d4; at += blockDim.x) {
        float4 v = row[at];
        EACH(v, expf(lane<i>(v) - most));
        total += sum_of(v);
    }
    total = block_of(total, parts, warp_sum);
    if (threadIdx.x == 0) out[blockIdx.x] = logf(total) + most - ((const float *)row)[targets[blockIdx.x]];
}

// Each block writes a part, which a second launch of one block adds up.
__global__ void __launch_bounds__(256) sum_of_squares(const float4 *__restrict__ x, float *__restrict__ out,
                                                      unsigned n4) {
    __shared__ float parts[32];
    float total = 0.f;
    for (unsigned at = blockIdx.x * blockDim.x + threadIdx.x; at < n4; at += blockDim.x * gridDim.x) {
        float4 v = x[at];
        total += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    total = block_of(total, parts, warp_sum);
    if (threadIdx.x == 0) out[blockIdx.x] = total;
}

__global__ void adamw(float4 *__restrict__ p, float4 *__restrict__ m, float4 *__restrict__ v,
                      const float4 *__restrict__ g, unsigned n4, float fresh1, float fresh2, float rate, float kept,
                      float c2, float eps) {
    line(n4, [=](unsigned at) {
        float4 grad = g[at], first = m[at], second = v[at], param = p[at];
        EACH(first, (lane<i>(grad) - lane<i>(first)) * fresh1 + lane<i>(first));
        EACH(second, (lane<i>(grad) * lane<i>(grad) - lane<i>(second)) * fresh2 + lane<i>(second));
        EACH(param, lane<i>(param) * kept - rate * (lane<i>(first) / (sqrtf(lane<i>(second) * c2) + eps)));
        m[at] = first;
        v[at] = second;
        p[at] = param;
    });
}
}

// Four warps have a tile of 64 x 64 each. Lines of shared memory are padded, so that their starts lie in different banks. The
// extents are multiples of the tile.
constexpr int TILE = 128, STEP = 32, LINE = STEP + 8, PART = 16, PARTS = TILE / 2 / PART;

__device__ void copy_lines(__nv_bfloat16 *to, const __nv_bfloat16 *from, unsigned stride) {
#pragma unroll
    for (int i = 0; i < TILE * STEP / 8 / 128; i++) {
        unsigned at = threadIdx.x + i * 128, line = at / (STEP / 8), first = at % (STEP / 8) * 8;
        *(uint4 *)(to + line * LINE + first) = *(const uint4 *)(from + line * stride + first);
    }
}

extern "C" __global__ void __launch_bounds__(128)
product(const __nv_bfloat16 *__restrict__ x, const __nv_bfloat16 *__restrict__ w,
                                               float *__restrict__ out, unsigned n, unsigned k) {
    using namespace nvcuda::wmma;
    __shared__ __align__(16) __nv_bfloat16 xs[TILE * LINE], ws[TILE * LINE];
    unsigned row = blockIdx.y * TILE, col = blockIdx.x * TILE;
    unsigned down = threadIdx.x / 64 * (TILE / 2), across = threadIdx.x / 32 % 2 * (TILE / 2);
    fragment<accumulator, PART, PART, PART, float> sums[PARTS][PARTS];
    for (auto &line : sums)
        for (auto &sum : line) fill_fragment(sum, 0.f);
    for (unsigned from = 0; from < k; from += STEP) {
        copy_lines(xs, x + row * k + from, k);
        copy_lines(ws, w + col * k + from, k);
        __syncthreads();
#pragma unroll
        for (int step = 0; step < STEP; step += PART) {
            fragment<matrix_a, PART, PART, PART, __nv_bfloat16, row_major> lefts[PARTS];
            for (int i = 0; i < PARTS; i++) load_matrix_sync(lefts[i], xs + (down + i * PART) * LINE + step, LINE);
            for (int j = 0; j < PARTS; j++) {
                fragment<matrix_b, PART, PART, PART, __nv_bfloat16, col_major> right;
                load_matrix_sync(right, ws + (across + j * PART) * LINE + step, LINE);
                for (int i = 0; i < PARTS; i++) mma_sync(sums[i][j], lefts[i], right, sums[i][j]);
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < PARTS; i++)
        for (int j = 0; j < PARTS; j++)
            store_matrix_sync(out + (row + down + i * PART) * n + col + across + j * PART, sums[i][j], n, mem_row_major);
}
