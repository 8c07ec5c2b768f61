#!/usr/bin/env bash
# Builds the device suites and the GPU benches as programs for a machine with an NVIDIA GPU, but without Rust.
#
#   tests/gpu.sh build OUT        puts them into OUT, a new folder or one that this script made, with a
#                                 `run.sh`; copy the folder to the machine and run `bash OUT/run.sh`
#   tests/gpu.sh run [NAME...]    builds and runs all programs, or the named ones, on this machine's GPU
#                                 if it has one, else on the simulated GPU
#
# The programs leave wgpu out, which would be most of their size. The programs run on x86-64 Linux with a C
# library no older than this machine's, and load the `libcuda.so.1` of their machine.
# FUSION_PROFILE names a profile of cargo other than `release`.

set -euo pipefail
readonly caller=$PWD
cd "$(dirname "$0")/.."
readonly limit=$((64 << 20))
profile=${FUSION_PROFILE:-release}

# The suites that run kernels on devices: profile, packages, and programs by their names in cargo.
#
# Packages are built together, like in tests/run.sh, since each alone would build its own libraries. The
# corpus of random functions uses the profile `test`, since it compiles far longer with optimisation.
readonly featured=fusion,fusion-runtime,fusion-examples
suites=(
    "$profile $featured --test language --test optimizers --test rows --test columns --test matrices --test products --test product_classes --test contractions --test ops --test programs --test hygiene --bench gpu --bench compare --test execute --test properties --test tensor"
    "$profile fusion-runtime --lib"
    "test fusion-corpus --test corpus --test contractions"
)

main() {
    case ${1:-} in
        build)
            build "${2:?where to put the programs}"
            pack "$2"
            ;;
        run) run "${@:2}" ;;
        *) sed -n '2,11s/^# \{0,1\}//p' "$0" && exit 2 ;;
    esac
}

build() {
    local out=$1 program profile packages flags
    [[ $out == /* ]] || out=$caller/$out
    if [[ -e $out ]] && ! made_here "$out"; then
        echo "$out exists and was not made by tests/gpu.sh: name a new folder" >&2 && return 1
    fi
    mkdir -p "$out/bin"
    rm -f "$out"/bin/* "$out/bin.tar.xz"
    cp tests/gpu-run.sh "$out/run.sh"
    # The scripts run the bench against other libraries, if the machine has a Python with these libraries.
    mkdir -p "$out"/benches/{compare,ptx,results}
    cp benches/compare/{run,peers}.py "$out/benches/compare"
    cp benches/ptx/triton_kernels.py "$out/benches/ptx"
    for suite in "${suites[@]}"; do
        read -r profile packages flags <<<"$suite"
        # shellcheck disable=SC2086 # Words of a command.
        cargo test --quiet --no-run --no-default-features --features cuda --profile "$profile" \
            --package ${packages//,/ --package } $flags --message-format json | programs |
            while read -r name program; do strip -o "$out/bin/$name" "$program"; done
    done
    for program in "$out"/bin/*; do is_portable "$program" || return; done
}

# Packs the programs: kernels are text, which compresses well.
pack() {
    local out=$1 programs bytes
    [[ $out == /* ]] || out=$caller/$out
    programs=$(ls "$out/bin" | wc -l)
    XZ_OPT='-2 -T0' tar -C "$out" -cJf "$out/bin.tar.xz" bin
    rm -r "$out/bin"
    bytes=$(du -sb "$out" | cut -f 1)
    printf '%s: %d programs, %d MiB\n' "$out" "$programs" $((bytes >> 20))
    if ((bytes >= limit)); then echo "more than $((limit >> 20)) MiB" >&2 && return 1; fi
}

# Succeeds if a folder is empty, or has a `run.sh` of this project, by its first lines.
made_here() {
    [[ -d $1 ]] && { [[ -z $(ls -A "$1") ]] || [[ $(head -n 2 "$1/run.sh" 2>/dev/null) == "$(head -n 2 tests/gpu-run.sh)" ]]; }
}

# Checks that a program names no library path and no CUDA driver, which it looks for when it runs.
is_portable() {
    if readelf --dynamic "$1" | grep -E '\((RPATH|RUNPATH)\)|libcuda'; then
        echo "$1 is bound to libraries of this machine" >&2 && return 1
    fi
}

run() {
    local out
    source tests/cuda-sim/env.sh
    out=$cuda_sim_target/gpu
    # The traffic suite reads the simulator's report.
    if [[ -n ${FUSION_CUDA_DRIVER:-} ]]; then
        suites+=("$profile $featured --test traffic")
    fi
    if (($# > 0)); then choose "$@"; fi
    build "$out"
    bash "$out/run.sh" "$@"
}

# Keeps only the named programs of the suites, so that the others are not built.
choose() {
    local suite name words flag flags i chosen=()
    for suite in "${suites[@]}"; do
        read -ra words <<<"$suite"
        flags=()
        for ((i = 2; i < ${#words[@]}; i++)); do
            if [[ ${words[i]} == --lib ]]; then
                # The unit tests of a package have its name, with `_`.
                name=${words[1]//-/_} flag=--lib
            else
                name=${words[i + 1]} flag="${words[i]} $name" i=$((i + 1))
            fi
            if [[ " $* " == *" $name "* ]]; then flags+=("$flag"); fi
        done
        if ((${#flags[@]} > 0)); then chosen+=("${words[*]:0:2} ${flags[*]}"); fi
    done
    suites=("${chosen[@]:?no such program: $*}")
}

# Prints the names and paths of the programs that cargo built, from its messages.
programs() {
    python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["profile"]["test"]:
        print(message["target"]["name"], message["executable"])'
}

main "$@"
