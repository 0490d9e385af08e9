#!/usr/bin/env bash
# Runs the tests on the three backends and reports their time. `make test-all` installs the dependencies and calls this.
set -uo pipefail
cd "$(dirname "$0")/.."

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
failed=""

# run_tests NAME BACKEND WORKERS ARGUMENTS...: writes the output, the seconds and the exit status to files in $logs.
run_tests() {
  local name=$1 backend=$2 workers=$3 start=$SECONDS
  shift 3
  KERAS_BACKEND=$backend "$VENV/bin/python" -m pytest -q -n "$workers" --dist worksteal $ORDER --durations=20 \
    "$@" >"$logs/$name" 2>&1
  echo $? >"$logs/$name.status"
  echo $((SECONDS - start)) >"$logs/$name.seconds"
}

report() {
  local status
  status=$(cat "$logs/$1.status")
  echo "== $1"
  cat "$logs/$1"
  [ "$status" = 0 ] || failed="$failed $1"
}

# beside NAME BACKEND ARGUMENTS...: runs tests with one worker, beside others, as soon as one of $WORKERS cores is free.
beside() {
  while [ "$(jobs -rp | wc -l)" -ge "$WORKERS" ]; do sleep 1; done
  run_tests "$1" "$2" 1 -p no:cacheprovider "${@:3}" &
}

# PyTorch, which needs no compilation, runs all tests. JAX and TensorFlow run those that depend on the backend, the
# longest first. JAX repeats some with default compiler options, as conftest.py disables optimizations.
mkdir "$logs/lines"
LINE_COVERAGE="$logs/lines" run_tests torch torch "$WORKERS"
report torch
beside jax jax -m "not one_backend and not optimized" --ignore tests/training
beside tensorflow tensorflow -m "not one_backend"
beside jax-training jax -m "not one_backend and not optimized" tests/training
JAX_DISABLE_MOST_OPTIMIZATIONS=0 JAX_COMPILATION_CACHE_DIR=.pytest_cache/jax_optimized \
  beside jax-optimized jax -m optimized
wait
for name in jax tensorflow jax-training jax-optimized; do
  report $name
done

echo "== summary"
for name in torch jax tensorflow jax-training jax-optimized; do
  echo "$name: $(tail -n 1 "$logs/$name"); $(cat "$logs/$name.seconds") s in total"
done
echo "line coverage of kerasbert on PyTorch: $("$VENV/bin/python" -m tests.line_coverage "$logs/lines")"
echo "load: $(cut -d ' ' -f 1-3 /proc/loadavg 2>/dev/null || uptime)"
if [ -n "$failed" ]; then
  echo "== test-all: FAILED on$failed"
  exit 1
fi
echo "== test-all: passed on torch, jax and tensorflow in $SECONDS s"
