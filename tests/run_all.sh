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

# PyTorch, which needs no compilation, runs all tests. JAX and TensorFlow run those that depend on the backend, in
# parallel with one worker each. JAX repeats some with default compiler options, as conftest.py disables optimizations,
# beside its other tests, which take as long as these and those of TensorFlow together.
mkdir "$logs/lines"
LINE_COVERAGE="$logs/lines" run_tests torch torch "$WORKERS"
report torch
run_tests jax jax 1 -m "not one_backend and not optimized" -p no:cacheprovider &
(
  run_tests tensorflow tensorflow 1 -m "not one_backend" -p no:cacheprovider
  JAX_DISABLE_MOST_OPTIMIZATIONS=0 JAX_COMPILATION_CACHE_DIR=.pytest_cache/jax_optimized \
    run_tests jax-optimized jax 1 -m optimized -p no:cacheprovider
) &
wait
for name in jax tensorflow jax-optimized; do
  report $name
done

echo "== summary"
for name in torch jax tensorflow jax-optimized; do
  echo "$name: $(tail -n 1 "$logs/$name"); $(cat "$logs/$name.seconds") s in total"
done
echo "line coverage of kerasbert on PyTorch: $("$VENV/bin/python" -m tests.line_coverage "$logs/lines")"
echo "load: $(cut -d ' ' -f 1-3 /proc/loadavg 2>/dev/null || uptime)"
if [ -n "$failed" ]; then
  echo "== test-all: FAILED on$failed"
  exit 1
fi
echo "== test-all: passed on torch, jax and tensorflow in $SECONDS s"
