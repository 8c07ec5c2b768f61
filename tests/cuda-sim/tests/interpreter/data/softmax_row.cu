// Compile with: nvcc -O3 -arch=compute_80 -ptx softmax_row.cu -o softmax_row.ptx
//
// A row for each block of a multiple of 32 threads: shuffles in a warp, dynamic shared memory between warps.
#include <math_constants.h>

extern __shared__ float of_warp[];

template <typename Combine>
__device__ float of_block(float x, float neutral, Combine combine) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (int step = 16; step > 0; step /= 2) {
        x = combine(x, __shfl_xor_sync(0xffffffff, x, step));
    }
    // All threads have read the values of an earlier call.
    __syncthreads();
    if (lane == 0) {
        of_warp[warp] = x;
    }
    __syncthreads();
    x = lane < warps ? of_warp[lane] : neutral;
    for (int step = 16; step > 0; step /= 2) {
        x = combine(x, __shfl_down_sync(0xffffffff, x, step));
    }
    return __shfl_sync(0xffffffff, x, 0);
}

extern "C" __global__ void softmax_row(const float* __restrict__ x, float* __restrict__ y, int columns) {
    const float* from = x + (size_t)blockIdx.x * columns;
    float* to = y + (size_t)blockIdx.x * columns;
    float largest = -CUDART_INF_F;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        largest = fmaxf(largest, from[i]);
    }
    largest = of_block(largest, -CUDART_INF_F, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        sum += expf(from[i] - largest);
    }
    sum = of_block(sum, 0.0f, [](float a, float b) { return a + b; });
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        to[i] = expf(from[i] - largest) / sum;
    }
}
