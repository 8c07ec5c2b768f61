# Makes CUDA programs run on this machine, for bash: `source tests/cuda-sim/env.sh`.
#
# A machine with a GPU uses its driver. Otherwise the script builds the simulated driver, and programs load it
# because FUSION_CUDA_DRIVER names it.

cuda_sim_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cuda_sim_target=$(cd "$cuda_sim_root" && mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
cuda_sim=$cuda_sim_target/cuda-sim/run/libcuda.so.1

# Builds the simulated driver. A running program may have the old file mapped, so a new file replaces it.
#
# The crate cust links `lib64/libcuda.so`. When cargo runs a program, it puts folders of the target folder that
# were linked from before the system's, so the name that the loader looks for is in another folder.
cuda_sim_build() {
    local place=$cuda_sim_target/cuda-sim
    (cd "$cuda_sim_root" && cargo build --quiet --package cuda-sim) && mkdir -p "$place"/{run,lib64} &&
        cp "$cuda_sim_target/debug/libcuda_sim.so" "$cuda_sim.new" && mv "$cuda_sim.new" "$cuda_sim" &&
        ln -sf ../run/libcuda.so.1 "$place/lib64/libcuda.so"
}

export FUSION_REQUIRE_CUDA=1
if compgen -G '/dev/nvidia[0-9]*' >/dev/null || [[ -e /dev/dxg ]]; then
    unset FUSION_CUDA_DRIVER
    echo "CUDA: the machine's GPU and its driver"
else
    export FUSION_CUDA_DRIVER=$cuda_sim
    cuda_sim_build && echo "CUDA: no GPU, so the simulator"
fi
