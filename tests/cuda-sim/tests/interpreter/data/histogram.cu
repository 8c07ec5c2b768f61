// Compile with: nvcc -O3 -arch=compute_80 -ptx histogram.cu -o histogram.ptx
//
// Counts each of 64 values by atomics on shared memory. Packs the odd values in any order: a warp reserves
// the places of all its lanes at once.
extern "C" __global__ void histogram(
    const unsigned* __restrict__ x,
    unsigned* __restrict__ counts,
    unsigned* __restrict__ odd,
    unsigned* __restrict__ odd_count,
    int n
) {
    __shared__ unsigned of_block[64];
    for (int i = threadIdx.x; i < 64; i += blockDim.x) {
        of_block[i] = 0;
    }
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const unsigned value = x[i] % 64;
        atomicAdd(&of_block[value], 1);
        if (value % 2 == 1) {
            const unsigned together = __activemask();
            const unsigned lane = threadIdx.x % 32;
            const unsigned before = __popc(together & ((1u << lane) - 1));
            const int leader = __ffs(together) - 1;
            unsigned place = 0;
            if (before == 0) {
                place = atomicAdd(odd_count, __popc(together));
            }
            odd[__shfl_sync(together, place, leader) + before] = value;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 64; i += blockDim.x) {
        atomicAdd(&counts[i], of_block[i]);
    }
}
