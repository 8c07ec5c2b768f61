# Makes CUDA programs run on this machine, for bash: `source tests/cuda-sim/env.sh`, then use
# `--features cuda`.
#
# A GPU with its driver is used if there is one. Otherwise the script builds the simulated driver and uses it.
# The simulated driver must never precede a real driver in the loader's path, and leaves a real driver
# unchanged.

cuda_sim_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cuda_sim_target=$(cd "$cuda_sim_root" && mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)

# Builds the simulated driver.
#
# cust links `lib64/libcuda.so`, a name that only the linker uses. When cargo runs a program, it puts folders
# of the target folder that were linked from before the system's. The name that the loader uses is therefore
# in another folder.
cuda_sim_build() {
    local place=$cuda_sim_target/cuda-sim name
    (cd "$cuda_sim_root" && cargo build --quiet --package cuda-sim) && mkdir -p "$place/lib64" "$place/run" || return
    for name in lib64/libcuda.so run/libcuda.so.1; do
        # A running program may have the old file mapped, so a new file replaces it.
        cp "$cuda_sim_target/debug/libcuda_sim.so" "$place/$name.new" && mv "$place/$name.new" "$place/$name" || return
    done
}

# Succeeds if a file is a simulated driver, of any checkout.
cuda_is_simulator() { grep --quiet --text --fixed-strings CUDA_SIM_REPORT "$1"; }

# Prints the folders that the loader searches, one per line.
cuda_loader_folders() {
    tr ':' '\n' <<<"${LD_LIBRARY_PATH:-}"
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | sed -n 's/^[[:space:]]*libcuda\.so\.1 .*=> \(.*\)\/[^\/]*$/\1/p'
}

# Prints the first folder on stdin that contains the machine's own driver.
cuda_driver_folder() {
    local folder
    while read -r folder; do
        if [[ -n $folder && -e $folder/libcuda.so.1 ]] && ! cuda_is_simulator "$folder/libcuda.so.1"; then
            echo "$folder" && return
        fi
    done
    return 1
}

cuda_gpu_node() { compgen -G '/dev/nvidia[0-9]*' || compgen -G /dev/dxg; }

# The link path is always the same, since a change would rebuild the dependents of cust.
export CUDA_LIBRARY_PATH=$cuda_sim_target/cuda-sim FUSION_REQUIRE_CUDA=1
if [[ :${LD_LIBRARY_PATH:-}: == *:"$CUDA_LIBRARY_PATH/run":* ]]; then
    cuda_sim_build && echo "CUDA: the simulator"
elif cuda_gpu_node >/dev/null && cuda_driver=$(cuda_loader_folders | cuda_driver_folder); then
    cuda_sim_build && echo "CUDA: the machine's GPU and driver, of $cuda_driver"
elif cuda_gpu_node >/dev/null &&
    cuda_driver=$(printf '%s\n' /usr/lib/wsl/lib /run/opengl-driver/lib /usr/lib64 | cuda_driver_folder); then
    # The loader does not search this folder by itself.
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$cuda_driver
    cuda_sim_build && echo "CUDA: the machine's GPU and driver, of $cuda_driver"
else
    cuda_sim_build && export LD_LIBRARY_PATH=$CUDA_LIBRARY_PATH/run${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} &&
        if cuda_gpu=$(cuda_gpu_node | head -n 1) && [[ -n $cuda_gpu ]]; then
            echo "CUDA: the simulator, for there is a GPU ($cuda_gpu), but no folder that is known has its driver's libcuda.so.1:" \
                "install the driver, or put its folder into LD_LIBRARY_PATH"
        else
            echo "CUDA: no GPU, so the simulator"
        fi
fi
