#!/usr/bin/env bash
# Runs the programs that `tests/gpu.sh build` put beside it, or those named: `bash run.sh [NAME...]`.
#
# The script ends with `N passed, N failed` over all test suites. The table of the bench is also written to `gpu.txt`. The
# comparison with torch and Triton, if python3 has these, is written to benches/results.

set -u -o pipefail
cd "$(dirname "$0")" || exit 1
# A missing GPU is a failure. The programs are built without wgpu.
export FUSION_REQUIRE_CUDA=1
unset FUSION_REQUIRE_WGPU

if [[ -f bin.tar.xz ]]; then
    tar -xJf bin.tar.xz 2>/dev/null || python3 -m tarfile -e bin.tar.xz || exit
    rm bin.tar.xz
fi

failed=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT
nvidia-smi -L 2>/dev/null || echo "no nvidia-smi on this machine"

names=("$@")
if ((${#names[@]} == 0)); then mapfile -t names < <(ls bin | grep -vxE 'gpu|compare' && printf '%s\n' gpu compare); fi
for name in "${names[@]}"; do
    printf '\n==> %s\n' "$name"
    case $name in
        gpu) ./bin/gpu --bench 2>&1 | tee gpu.txt ;;
        compare)
            if python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
                kernels=()
                if [[ -f gpu.txt ]]; then kernels=(--kernels gpu.txt); fi
                python3 benches/compare/run.py --device cuda --binary bin/compare "${kernels[@]}" --rounds 5 --write
            else
                echo "no torch with a GPU"
            fi
            ;;
        # The tests without a device are slow, and ran where the program was built.
        corpus) ./bin/corpus --quiet cuda_agrees any_seed_agrees_on_gpus 2>&1 | tee -a "$log" ;;
        *) "./bin/$name" --quiet 2>&1 | tee -a "$log" ;;
    esac || failed+=("$name")
done

printf '\n'
awk '/^test result:/ { p += $4; f += $6 } END { printf "%d passed, %d failed\n", p, f }' "$log"
if ((${#failed[@]} > 0)); then
    printf 'failed: %s\n' "${failed[*]}"
    exit 1
fi
