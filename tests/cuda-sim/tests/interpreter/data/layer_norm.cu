// Compile with: nvcc -O3 -arch=compute_80 --use_fast_math -ptx layer_norm.cu -o layer_norm.ptx
//
// A row for each warp, in vectors of four: means by shuffles, gamma and beta. Flags flush and approximate.
extern "C" __global__ void layer_norm(const float4* __restrict__ x, const float4* __restrict__ gamma,
                                      const float4* __restrict__ beta, float4* __restrict__ y, int rows, int vectors) {
    const int lane = threadIdx.x % 32, row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) {
        return;
    }
    const float4* from = x + (size_t)row * vectors;
    float sum = 0.0f, squares = 0.0f;
    for (int i = lane; i < vectors; i += 32) {
        const float4 v = from[i];
        sum += v.x + v.y + v.z + v.w;
        squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, step);
        squares += __shfl_xor_sync(0xffffffff, squares, step);
    }
    const float n = 4.0f * vectors, mean = sum / n;
    const float scale = rsqrtf(squares / n - mean * mean + 1e-5f);
    for (int i = lane; i < vectors; i += 32) {
        const float4 v = from[i], g = gamma[i], b = beta[i];
        y[(size_t)row * vectors + i] =
            make_float4((v.x - mean) * scale * g.x + b.x, (v.y - mean) * scale * g.y + b.y,
                        (v.z - mean) * scale * g.z + b.z, (v.w - mean) * scale * g.w + b.w);
    }
}
