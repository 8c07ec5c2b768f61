// Compile with: nvcc -O3 -arch=compute_80 -ptx device_functions.cu -o device_functions.ptx
//
// Functions that are not inlined: structs in and out, a pointer into the caller's stack, nested calls, and
// sqrt and division of f64, which have slow paths of their own.
struct Moments {
    double sum, squares;
    int count;
};

__noinline__ __device__ Moments with(Moments m, float x) {
    return {m.sum + x, m.squares + (double)x * x, m.count + 1};
}

__noinline__ __device__ int collect(const float* x, int from, int to, float least, Moments* into) {
    for (int i = from; i < to; i++) {
        if (x[i] < least) {
            return i;
        }
        *into = with(*into, x[i]);
    }
    return to;
}

extern "C" __global__ void device_functions(const float* x, double* deviation, int* stopped, int n, int each) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i * each >= n) {
        return;
    }
    Moments m = {0.0, 0.0, 0};
    stopped[i] = collect(x, i * each, min(i * each + each, n), -6.0f, &m);
    if (m.count > 0) {
        const double mean = m.sum / m.count;
        deviation[i] = sqrt(fmax(m.squares / m.count - mean * mean, 0.0));
    }
}
