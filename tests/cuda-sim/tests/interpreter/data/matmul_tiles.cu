// Compile with: nvcc -O3 -arch=compute_80 -ptx matmul_tiles.cu -o matmul_tiles.ptx
//
// c = a · b of halves, 64 × 64 of c for each block of four warps. Asynchronous copies load tiles ahead, and
// fill with zeros beyond the edges. ldmatrix loads the fragments, and mma.sync multiplies them.
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

constexpr int TILE = 64, DEPTH = 32, PAD = 8;

__device__ void load(__half (*to)[TILE + PAD], const __half* from, int row, int col, int rows, int cols, int height, int width) {
    // Vectors of eight halves.
    for (int i = threadIdx.x; i < height * width / 8; i += blockDim.x) {
        const int r = i / (width / 8), c = i % (width / 8) * 8;
        const bool inside = row + r < rows && col + c < cols;
        const __half* at = inside ? from + (size_t)(row + r) * cols + col + c : from;
        __pipeline_memcpy_async(&to[r][c], at, 16, inside ? 0 : 16);
    }
}

__device__ unsigned address(const void* shared) { return (unsigned)__cvta_generic_to_shared(shared); }

extern "C" __global__ void __launch_bounds__(128)
matmul_tiles(const __half* __restrict__ a, const __half* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
    __shared__ __align__(16) __half as[2][TILE][TILE + PAD];
    __shared__ __align__(16) __half bs[2][DEPTH][TILE + PAD];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = blockIdx.y * TILE, col = blockIdx.x * TILE, below = warp % 2 * 32, right = warp / 2 * 32;
    float sums[2][4][4] = {};
    const int steps = (k + DEPTH - 1) / DEPTH;
    load(as[0], a, row, 0, m, k, TILE, DEPTH);
    load(bs[0], b, 0, col, k, n, DEPTH, TILE);
    __pipeline_commit();
    for (int step = 0; step < steps; step++) {
        if (step + 1 < steps) {
            load(as[(step + 1) % 2], a, row, (step + 1) * DEPTH, m, k, TILE, DEPTH);
            load(bs[(step + 1) % 2], b, (step + 1) * DEPTH, col, k, n, DEPTH, TILE);
        }
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        for (int deep = 0; deep < DEPTH; deep += 16) {
            unsigned fa[2][4], fb[4][2];
            for (int i = 0; i < 2; i++) {
                const unsigned at = address(&as[step % 2][below + 16 * i + lane % 16][deep + lane / 16 * 8]);
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(fa[i][0]), "=r"(fa[i][1]), "=r"(fa[i][2]), "=r"(fa[i][3]) : "r"(at));
            }
            for (int j = 0; j < 4; j++) {
                const unsigned at = address(&bs[step % 2][deep + lane % 16][right + 8 * j]);
                asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                             : "=r"(fb[j][0]), "=r"(fb[j][1]) : "r"(at));
            }
            for (int i = 0; i < 2; i++) {
                for (int j = 0; j < 4; j++) {
                    float* s = sums[i][j];
                    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                                 : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
                                 : "r"(fa[i][0]), "r"(fa[i][1]), "r"(fa[i][2]), "r"(fa[i][3]), "r"(fb[j][0]), "r"(fb[j][1]));
                }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 4; j++) {
            for (int e = 0; e < 4; e++) {
                const int r = row + below + 16 * i + lane / 4 + e / 2 * 8, s = col + right + 8 * j + lane % 4 * 2 + e % 2;
                if (r < m && s < n) {
                    c[(size_t)r * n + s] = sums[i][j][e];
                }
            }
        }
    }
}
