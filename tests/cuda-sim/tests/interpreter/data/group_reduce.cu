// Compile with: nvcc -O3 -arch=compute_80 -std=c++17 -ptx group_reduce.cu -o group_reduce.ptx
//
// Cooperative groups: sums of tiles of eight, the maximum of odd values, a scan, and one atomic a warp.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

extern "C" __global__ void group_reduce(const int* __restrict__ x, int* __restrict__ eighths, int* __restrict__ scans,
                                        int* __restrict__ largest_odd, float* __restrict__ total, int n) {
    cg::thread_block block = cg::this_thread_block();
    const auto warp = cg::tiled_partition<32>(block);
    const auto tile = cg::tiled_partition<8>(warp);
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int value = i < n ? x[i] : 0;
    const int sum = cg::reduce(tile, value, cg::plus<int>());
    if (tile.thread_rank() == 0) {
        eighths[i / 8] = sum;
    }
    scans[i] = cg::inclusive_scan(warp, value, cg::plus<int>());
    if (value % 2 != 0) {
        const auto odd = cg::coalesced_threads();
        const int largest = cg::reduce(odd, value, cg::greater<int>());
        if (odd.thread_rank() == 0) {
            atomicMax(largest_odd, largest);
        }
    }
    const float all = cg::reduce(warp, (float)value, cg::plus<float>());
    cg::invoke_one(warp, [&] { atomicAdd(total, all); });
    block.sync();
}
