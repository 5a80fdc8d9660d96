#!/bin/sh
# Check dask-train on a machine with a GPU: benchmarks/device.sh [--rehearse] [--break-on-purpose] [PART...] [OUT]
# PART: torch, keras-torch, keras-jax (correctness, at most 3 minutes), figures (2.5), more (1); all of them by default.
# Results are written to OUT as they come, so that a run that is cut still tells what it found.
# --rehearse: on CPUs, with small sizes. --break-on-purpose: the loop by hand learns 1 % faster, so equality must fail.
cd "$(dirname "$0")/.." || exit 1
FLAGS="" PARTS="" FOLDER="${OUT:-build/device}" TIMES=1
for argument in "$@"; do
    case "$argument" in
        --rehearse) FLAGS="$FLAGS $argument" TIMES=4 ;;
        --*) FLAGS="$FLAGS $argument" ;;
        torch | keras-torch | keras-jax | figures | more) PARTS="$PARTS $argument" ;;
        *) FOLDER="$argument" ;;
    esac
done
mkdir -p "$FOLDER" || exit 1
rm -f "$FOLDER"/*.jsonl
if [ -d build/device-wheels ] && ! python3 -c "import distributed" 2>/dev/null; then
    python3 -m pip install --quiet --no-index --no-deps --no-compile --upgrade --target build/device-site \
        build/device-wheels/*.whl || exit 1
    PYTHONPATH="$PWD/build/device-site"
fi
export PYTHONPATH="$PWD/src:$PYTHONPATH" PYTHONUNBUFFERED=1 XLA_PYTHON_CLIENT_PREALLOCATE=false
# JAX computes float32 products in TF32 on some devices; equality is of float32.
export JAX_DEFAULT_MATMUL_PRECISION=highest
(nvidia-smi; python3 -m pip list 2>/dev/null | grep -iE '^(torch|jax|jaxlib|keras|cupy|numpy|dask|distributed)') \
    >"$FOLDER/machine.log" 2>&1

part() {  # part NAME SECONDS: one part with its limit; its output goes to a file of its own
    touch "$FOLDER/$1.jsonl"
    # shellcheck disable=SC2086 # flags are words
    timeout -k 5 $(($2 * TIMES)) env KERAS_BACKEND="$(expr "$1" : 'keras-\(.*\)')" \
        python3 benchmarks/device.py "${1%-*}" $FLAGS "$FOLDER" >"$FOLDER/$1.log" 2>&1
    cat "$FOLDER/$1.log"
}

for name in ${PARTS:-torch keras-torch keras-jax figures more}; do
    case "$name" in
        torch) part torch 85 ;;
        figures) part figures 150 ;;
        more) part more 60 ;;
        *) part "$name" 48 ;;
    esac
done
python3 benchmarks/device.py summary "$FOLDER"
