# Makes CUDA programs run on this machine: `source tests/cuda-sim/env.sh`, then say `--features cuda`. For bash.
#
# Where a GPU and its driver are there they are used; else the simulated driver, which is built first. It must never
# stand before a real driver in the loader's path, and leaves it alone.

cuda_sim_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cuda_sim_target=$(cd "$cuda_sim_root" && mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)

# What cust links with, under the name that only the linker looks for. Cargo puts folders of the target folder that were
# linked from before the system's when it runs a program, so the name that the loader looks for is elsewhere.
cuda_sim_build() {
    local place=$cuda_sim_target/cuda-sim name
    (cd "$cuda_sim_root" && cargo build --quiet --package cuda-sim) && mkdir -p "$place/lib64" "$place/run" || return
    for name in lib64/libcuda.so run/libcuda.so.1; do
        # A program may have the old one mapped: a new file takes its name.
        cp "$cuda_sim_target/debug/libcuda_sim.so" "$place/$name.new" && mv "$place/$name.new" "$place/$name" || return
    done
}

cuda_gpu_is_there() {
    { compgen -G '/dev/nvidia[0-9]*' || compgen -G /dev/dxg; } >/dev/null &&
        python3 -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2>/dev/null
}

# Always the same place to link from: a change would rebuild what depends on cust.
export CUDA_LIBRARY_PATH=$cuda_sim_target/cuda-sim FUSION_REQUIRE_CUDA=1
if [[ :${LD_LIBRARY_PATH:-}: == *:"$CUDA_LIBRARY_PATH/run":* ]]; then
    cuda_sim_build && echo "CUDA: the simulator"
elif cuda_gpu_is_there; then
    cuda_sim_build && echo "CUDA: the machine's GPU and driver"
else
    cuda_sim_build && export LD_LIBRARY_PATH=$CUDA_LIBRARY_PATH/run${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} &&
        echo "CUDA: no GPU, so the simulator"
fi
