#!/bin/sh
# Check dask-train on a machine with a GPU: benchmarks/device.sh [--rehearse] [--break-on-purpose] [OUT]
# Results are written to OUT as they come, so that a run that is cut still tells what it found.
# --rehearse: on CPUs, with small sizes. --break-on-purpose: the loop by hand learns 1 % faster, so equality must fail.
cd "$(dirname "$0")/.." || exit 1
FLAGS="" FOLDER="${OUT:-build/device}"
for argument in "$@"; do
    case "$argument" in
        --*) FLAGS="$FLAGS $argument" ;;
        *) FOLDER="$argument" ;;
    esac
done
mkdir -p "$FOLDER" || exit 1
if [ -d build/device-wheels ] && ! python3 -c "import distributed" 2>/dev/null; then
    python3 -m pip install --quiet --no-index --no-deps --no-compile --upgrade --target build/device-site \
        build/device-wheels/*.whl || exit 1
    PYTHONPATH="$PWD/build/device-site"
fi
export PYTHONPATH="$PWD/src:$PYTHONPATH" PYTHONUNBUFFERED=1 XLA_PYTHON_CLIENT_PREALLOCATE=false
# shellcheck disable=SC2086 # flags are words
timeout -k 5 170 python3 benchmarks/device.py $FLAGS "$FOLDER" >"$FOLDER/correctness.log" 2>&1
status=$?
cat "$FOLDER/correctness.log"
exit $status
