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

# Whether a file is the simulated driver, of whatever checkout.
cuda_is_simulator() { grep --quiet --text --fixed-strings CUDA_SIM_REPORT "$1"; }

# Where the loader looks, one folder a line.
cuda_loader_folders() {
    tr ':' '\n' <<<"${LD_LIBRARY_PATH:-}"
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | sed -n 's/^[[:space:]]*libcuda\.so\.1 .*=> \(.*\)\/[^\/]*$/\1/p'
}

# The first of the folders on stdin that holds the machine's own driver.
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

# Always the same place to link from: a change would rebuild what depends on cust.
export CUDA_LIBRARY_PATH=$cuda_sim_target/cuda-sim FUSION_REQUIRE_CUDA=1
if [[ :${LD_LIBRARY_PATH:-}: == *:"$CUDA_LIBRARY_PATH/run":* ]]; then
    cuda_sim_build && echo "CUDA: the simulator"
elif cuda_gpu_node >/dev/null && cuda_driver=$(cuda_loader_folders | cuda_driver_folder); then
    cuda_sim_build && echo "CUDA: the machine's GPU and driver, of $cuda_driver"
elif cuda_gpu_node >/dev/null &&
    cuda_driver=$(printf '%s\n' /usr/lib/wsl/lib /run/opengl-driver/lib /usr/lib64 | cuda_driver_folder); then
    # The loader does not know of it.
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
