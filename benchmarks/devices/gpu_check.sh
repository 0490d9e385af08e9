#!/bin/sh
# Checks kerasbert on a machine with one NVIDIA GPU that has JAX, PyTorch and transformers.
#
#   gpu_check.sh pack FOLDER   on any machine with pip: the sources and the packages that the other machine may lack
#   gpu_check.sh check         kernels, precision, speed and memory, in six minutes
#   gpu_check.sh pretrain      a run of a few minutes, and its checkpoint in pieces of 15 MB
#
# Repeated commands continue from the folder WORK (default: runs/gpu_check), which holds the results and the run. If the
# variable OUT names a folder, the results and the pieces are copied there: 7 files, 60 MB. --tiny tries either command
# on a CPU. Exit status: 0 all is well, 1 something failed, 2 the time was up: run the command again.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3}
work=${WORK:-$root/runs/gpu_check}
usage="usage: gpu_check.sh pack FOLDER | check [--tiny] | pretrain [--tiny]"
[ $# -ge 1 ] || { echo "$usage" >&2; exit 64; }
command=$1
shift
case $command in
  pack) module=pack ;;
  check) module=check ;;
  pretrain) module=pretraining ;;
  *) echo "$usage" >&2; exit 64 ;;
esac
export PYTHONPATH="$root:$work/packages${PYTHONPATH:+:$PYTHONPATH}"
[ "$module" != pack ] || exec "$python" -m benchmarks.devices.pack "$@"
mkdir -p "$work"
"$python" -m benchmarks.devices.packages "$root/wheels" "$work/packages"
status=0
"$python" -m "benchmarks.devices.$module" --folder "$work" "$@" || status=$?
if [ -n "${OUT:-}" ]; then
  cp "$work"/*.jsonl "$OUT"
  [ ! -d "$work/pieces" ] || cp "$work"/pieces/* "$OUT"
fi
exit $status
