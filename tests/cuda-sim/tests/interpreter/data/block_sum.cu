// Compile with: nvcc -O3 -arch=compute_80 -ptx block_sum.cu -o block_sum.ptx
//
// Sums each block's share by a tree in shared memory, with blocks of 256 threads.
extern "C" __global__ void block_sum(const float* __restrict__ x, float* __restrict__ sums, int n) {
    __shared__ float partial[256];
    const int t = threadIdx.x;
    float sum = 0.0f;
    for (int i = blockIdx.x * 256 + t; i < n; i += gridDim.x * 256) {
        sum += x[i];
    }
    partial[t] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (t < half) {
            partial[t] += partial[t + half];
        }
        __syncthreads();
    }
    if (t == 0) {
        sums[blockIdx.x] = partial[0];
    }
}
