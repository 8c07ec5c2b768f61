// Compile with: nvcc -O3 -arch=compute_80 -ptx half_gate.cu -o half_gate.ptx
//
// max(a * b + c, 0), two halves at a time, with a single last one for odd counts, and also as bfloat16.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void half_gate(
    const __half* __restrict__ a,
    const __half* __restrict__ b,
    const __half* __restrict__ c,
    __half* __restrict__ y,
    __nv_bfloat16* __restrict__ z,
    int n
) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (2 * i + 1 < n) {
        const __half2 a2 = reinterpret_cast<const __half2*>(a)[i];
        const __half2 b2 = reinterpret_cast<const __half2*>(b)[i];
        const __half2 c2 = reinterpret_cast<const __half2*>(c)[i];
        const __half2 y2 = __hmax2(__hfma2(a2, b2, c2), __float2half2_rn(0.0f));
        reinterpret_cast<__half2*>(y)[i] = y2;
        reinterpret_cast<__nv_bfloat162*>(z)[i] = __float22bfloat162_rn(__half22float2(y2));
    } else if (2 * i < n) {
        y[2 * i] = __hmax(__hfma(a[2 * i], b[2 * i], c[2 * i]), __float2half(0.0f));
        z[2 * i] = __float2bfloat16_rn(__half2float(y[2 * i]));
    }
}
