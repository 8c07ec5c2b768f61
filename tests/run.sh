#!/usr/bin/env bash
# Runs every check of the project on a machine that has only Rust: `bash tests/run.sh`.
#
# `bash tests/run.sh quick`, for development, checks the format, lints, and runs the unit tests, and the tests
# of the language and its operations on the CPU.
#
# The script installs a software Vulkan (Debian and Ubuntu, as root or through sudo) and NVIDIA's PTX
# assembler (into the target folder). It simulates an NVIDIA GPU if the machine has none. Every step runs,
# even after a failure. The last line is `N passed, N failed, N skipped`. A device or tool that is not
# available is a failure.

set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
PATH=$PATH:/usr/sbin:/sbin

target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
logs=$target/logs
tools=$target/tools
# Packages that differ between sets of features.
featured=(--package fusion --package fusion-runtime --package fusion-examples)
passed=0 failed=0 skipped=0
summary=()

main() {
    case ${1:-all} in
        all) everything ;;
        quick) quick ;;
        *) echo "usage: bash tests/run.sh [quick]" >&2 && return 2 ;;
    esac
}

prepare() {
    mkdir -p "$logs"
    # In a fresh build, incremental compilation costs more than it saves.
    export CARGO_TARGET_DIR=$target CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
    # Thin LTO between the codegen units of a crate costs more than it saves, too. `lto = "off"` in a profile
    # would differ for macros between check and run builds, so each would build the compiler for itself.
    export RUSTFLAGS="${RUSTFLAGS:-} -Clto=off"
    export FUSION_REQUIRE_WGPU=1 FUSION_REQUIRE_PTXAS=1 FUSION_PTXAS=$tools/ptxas
    # A snapshot that differs is a failure, and no file is written.
    export INSTA_UPDATE=no
}

# The builds are those of `everything`, so that each run reuses the other's.
quick() {
    prepare
    unset FUSION_REQUIRE_WGPU FUSION_REQUIRE_PTXAS FUSION_PTXAS
    export FUSION_TEST_DEVICES=cpu
    step "CUDA simulator" bash -c 'source tests/cuda-sim/env.sh'
    step "format" cargo fmt --all --check
    step "lint" cargo clippy --quiet --workspace --all-targets --features graph -- -D warnings
    # Cargo builds dependencies anew for other packages than those of `run_tests`.
    local all=(with_simulator cargo test --quiet --workspace --exclude cuda-sim --features graph)
    step "unit tests" "${all[@]}" --lib
    step "language and operations" "${all[@]}" --test tidy --test language --test ops
    report
}

everything() {
    prepare
    step "install system packages" install_packages
    step "install ptxas" install_ptxas
    choose_vulkan_driver
    step "CUDA simulator" bash -c 'source tests/cuda-sim/env.sh'

    step "format" cargo fmt --all --check
    # One set of features serves the lint, the documentation and the tests. Others are linted for packages
    # whose features matter.
    step "lint" cargo clippy --quiet --workspace --all-targets --features graph -- -D warnings
    step "lint, default features" cargo clippy --quiet "${featured[@]}" -- -D warnings
    step "lint, without cuda" cargo clippy --quiet "${featured[@]}" --no-default-features --features wgpu -- -D warnings
    step "lint, no default features" cargo clippy --quiet "${featured[@]}" --no-default-features -- -D warnings
    step "lint, NEON" lint_neon
    step "documentation" env RUSTDOCFLAGS="-D warnings" \
        cargo doc --quiet --workspace --exclude fusion-corpus --no-deps --features graph
    step "tests" run_tests
    step "example devices" example devices
    step "example explain" run_explain
    step "example quickstart" run_quickstart
    step "example attention" example attention 300
    step "example tonemap" run_tonemap
    step "example digits" run_digits
    step "example graph" example graph 64 128 10
    step "example wgpu" example wgpu
    step "dump of the kernels" dump_kernels
    step "tests, without wgpu" run_tests_without_wgpu
    step "cust" run_cust
    step "programs for a machine with a GPU" env FUSION_PROFILE=test bash tests/gpu.sh run tensor gpu
    report
}

# step NAME COMMAND...: runs the command, prints and logs its output, and counts its tests, or itself if it
# has none.
step() {
    local name=$1 log started seconds code counts
    shift
    log=$logs/${name//[^a-zA-Z0-9]/-}.log
    started=$SECONDS
    printf '\n==> %s\n' "$name"
    "$@" 2>&1 </dev/null | tee "$log"
    code=$?
    seconds=$((SECONDS - started))
    printf '    %d s, exit %d\n' "$seconds" "$code"
    read -r -a counts < <(count_tests "$log")
    # A broken build, or a run that crashes, reports no failed test.
    if ((code != 0 && counts[1] == 0)); then counts[1]=1; fi
    if ((code == 0 && counts[0] + counts[1] + counts[2] == 0)); then counts[0]=1; fi
    passed=$((passed + counts[0])) failed=$((failed + counts[1])) skipped=$((skipped + counts[2]))
    summary+=("$(printf '%5d s  %5d passed %3d failed %3d skipped  %s' "$seconds" "${counts[@]}" "$name")")
}

# Prints the sums of cargo's `test result:` lines: passed, failed, ignored.
count_tests() {
    awk '/^test result:/ { for (i = 2; i <= NF; i++) {
             if ($i ~ /^passed/) p += $(i - 1)
             if ($i ~ /^failed/) f += $(i - 1)
             if ($i ~ /^ignored/) s += $(i - 1) } }
         END { print p + 0, f + 0, s + 0 }' "$1"
}

report() {
    printf '\n'
    printf '%s\n' "${summary[@]}"
    printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
    ((failed == 0))
}

# Compiles the code of the CPU for another architecture, where the standard library for it can be had.
lint_neon() {
    local target=aarch64-unknown-linux-gnu
    if ! { command -v rustup >/dev/null && rustup target add "$target"; }; then
        echo "no standard library for $target"
        return
    fi
    cargo clippy --quiet --package fusion-runtime --no-default-features --target "$target" -- -D warnings
}

install_packages() {
    local wanted=()
    has_library libvulkan.so.1 || wanted+=(libvulkan1)
    [[ -n $(software_vulkan) ]] || wanted+=(mesa-vulkan-drivers)
    has_pip || wanted+=(python3-pip)
    if ((${#wanted[@]} == 0)); then
        echo "nothing to install"
        return
    fi
    echo "installing ${wanted[*]}"
    as_root apt-get update -qq &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${wanted[@]}"
}

as_root() {
    if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

has_library() {
    ldconfig -p | grep -F "$1" >/dev/null
}

has_pip() {
    python3 -m pip --version >/dev/null 2>&1
}

# Prints the file that describes Mesa's software renderer to the Vulkan loader.
software_vulkan() {
    find /usr/share/vulkan/icd.d /etc/vulkan/icd.d -name 'lvp_icd*.json' 2>/dev/null | head -n 1
}

# Installs ptxas. PyPI's wheel contains the program, and needs neither a toolkit nor a driver.
install_ptxas() {
    if [[ ! -x $FUSION_PTXAS ]]; then
        rm -rf "$tools/wheel"
        mkdir -p "$tools/wheel"
        python3 -m pip download --quiet --no-deps --only-binary :all: -d "$tools/wheel" 'nvidia-cuda-nvcc>=13,<14' &&
            python3 -m zipfile -e "$tools"/wheel/*.whl "$tools/wheel" &&
            mv "$tools"/wheel/nvidia/cu13/bin/ptxas "$FUSION_PTXAS" &&
            chmod +x "$FUSION_PTXAS" || return
        rm -rf "$tools/wheel"
    fi
    "$FUSION_PTXAS" --version | tail -n 2
}

# has_device PATTERN: succeeds if a file matches.
has_device() {
    compgen -G "$1" >/dev/null
}

# Chooses the driver of a GPU, or only the software renderer if there is no GPU, regardless of other drivers.
choose_vulkan_driver() {
    if has_device '/dev/dri/renderD*' || has_device '/dev/nvidia[0-9]*'; then
        printf '\nVulkan: a GPU is there and its driver is used\n'
    elif [[ -z ${VK_DRIVER_FILES:-} ]]; then
        VK_DRIVER_FILES=$(software_vulkan)
        export VK_DRIVER_FILES
        printf '\nVulkan: no GPU, so the software renderer of %s\n' "$VK_DRIVER_FILES"
    fi
}

# Runs all tests on all devices and with the feature `graph` in one build, on the machine's GPU or the simulated one.
#
# The simulator is tested in the build that runs the other tests. In a build of the whole workspace its
# dependencies would have more features, so the next user would build the simulator again.
run_tests() {
    local code=0
    source tests/cuda-sim/env.sh || return
    # Later steps run the examples of this build.
    rm -f "$target"/debug/examples/{attention,devices,digits,explain,graph,quickstart,tonemap,wgpu}
    cargo test --quiet --package cuda-sim --no-fail-fast || code=$?
    cargo test --quiet --workspace --exclude cuda-sim --no-fail-fast --features graph || code=$?
    return "$code"
}

# Runs a command with the simulated driver, where there is no GPU.
with_simulator() {
    source tests/cuda-sim/env.sh >/dev/null && "$@"
}

# Runs tests without wgpu, which only changes the runtime: its tests, and one of the macro. No
# wgpu device is required.
run_tests_without_wgpu() {
    source tests/cuda-sim/env.sh && env -u FUSION_REQUIRE_WGPU \
        cargo test --quiet "${featured[@]}" --no-fail-fast --no-default-features --features cuda --lib --examples \
        --test execute --test properties --test shared --test tensor --test language
}

# example NAME ARGUMENT...: runs an example from the test build, which is optimised.
example() {
    source tests/cuda-sim/env.sh >/dev/null && "$target/debug/examples/$1" "${@:2}"
}

# Runs an example without a CUDA device.
example_without_cuda() {
    CUDA_SIM_DEVICES=0 CUDA_VISIBLE_DEVICES='' example "$@"
}

# Runs an example, where the driver's library is missing. A driver of the machine cannot be hidden otherwise.
example_without_driver() {
    FUSION_CUDA_DRIVER=libcuda-missing.so.1 "$target/debug/examples/$1" "${@:2}"
}

# Tests the feature `cust`, whose programs link the driver: the simulated one where there is no GPU.
run_cust() {
    source tests/cuda-sim/env.sh >/dev/null && cuda_sim_build || return
    export CUDA_LIBRARY_PATH=$target/cuda-sim
    if [[ -n ${FUSION_CUDA_DRIVER:-} ]]; then export LD_LIBRARY_PATH=$target/cuda-sim/run; fi
    local packages=(--package fusion-runtime --package fusion-examples --no-default-features --features cust)
    cargo clippy --quiet "${packages[@]}" --all-targets -- -D warnings &&
        cargo test --quiet --package fusion-runtime --no-default-features --features cust --lib cuda &&
        cargo run --quiet --package fusion-examples --no-default-features --features cust --example cust
}

# Checks the reports of the layers and their pictures.
run_explain() {
    local folder=$target/explain
    rm -rf "$folder"
    example explain "$folder" &&
        grep -q '^digraph' "$folder"/layer_norm.dot && grep -q '</svg>' "$folder"/layer_norm.svg
}

run_quickstart() {
    example quickstart 1000003 && example_without_cuda quickstart && example_without_driver quickstart 1000
}

run_tonemap() {
    local photos=(examples/data/*.png) result=$target/tonemap.png runner
    for runner in example example_without_cuda; do
        rm -f "$result"
        "$runner" tonemap "${photos[0]}" "$result" && test -s "$result" || return
    done
}

# Checks that training reaches the documented accuracy, and that the file has both pictures.
run_digits() {
    local result=$target/digits.svg least said
    for least in 96 97; do
        rm -f "$result"
        said=$(example digits "$result" cpu $([ "$least" = 96 ] || echo --conv)) || return
        echo "$said"
        awk -v least="$least" \
            '{ for (i = 2; i <= NF; i++) if ($i ~ /^%/ && $(i - 1) >= least) found = 1 } END { exit !found }' <<<"$said" &&
            grep -q 'confusion' "$result" && grep -q '<polyline' "$result" || return
    done
}

# Checks the files that a build writes on demand: graph, report, and kernels of its targets.
#
# Setting the variable expands code again that was expanded without it.
dump_kernels() {
    local dump=$target/dump
    rm -rf "$dump"
    env -u FUSION_DUMP cargo check --quiet --examples || return
    FUSION_DUMP=$dump cargo check --quiet --example quickstart || return
    # One `fuse!` has one folder.
    (cd "$dump"/quickstart/* && wc -c ./* && test -s gate.graph && test -s fuse_gate_0.rs &&
        grep -q '^Fusion: 3 → 1 kernels' gate.txt && grep -q '^digraph' gate.dot && grep -q '</svg>' gate.svg &&
        grep -q '@compute' fuse_gate_0*.wgsl && test -s fuse_gate_0_v4.ptx)
}

main "$@"
