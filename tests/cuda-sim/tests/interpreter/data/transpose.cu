// Compile with: nvcc -O3 -arch=compute_80 -ptx transpose.cu -o transpose.ptx
//
// Tiles of 32 by 32 for blocks of 32 by 8 threads. A further column avoids bank conflicts.
extern "C" __global__ void transpose(const float* __restrict__ x, float* __restrict__ y, int rows, int columns) {
    __shared__ float tile[32][33];
    const int column = blockIdx.x * 32 + threadIdx.x;
    for (int i = threadIdx.y; i < 32; i += 8) {
        const int row = blockIdx.y * 32 + i;
        if (row < rows && column < columns) {
            tile[i][threadIdx.x] = x[(size_t)row * columns + column];
        }
    }
    __syncthreads();
    const int row = blockIdx.y * 32 + threadIdx.x;
    for (int i = threadIdx.y; i < 32; i += 8) {
        const int to = blockIdx.x * 32 + i;
        if (row < rows && to < columns) {
            y[(size_t)to * rows + row] = tile[threadIdx.x][i];
        }
    }
}
