#!/usr/bin/env bash
# Installs the wheel into a fresh environment outside the repository and runs use.py with it.
set -euo pipefail
cd "$(dirname "$0")/../.."
repository=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$PYTHON" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$folder" "$repository"
"$PYTHON" -m venv "$folder/venv"
wheel=$(echo "$folder"/kerasbert-*.whl)
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --retries 10 -c constraints.txt "$wheel[$BACKEND]"
cp tests/install/use.py "$folder"
cd "$folder"
start=$SECONDS
KERAS_BACKEND=$BACKEND "$folder/venv/bin/python" use.py
echo "== test-install: the wheel trains, saves, loads and predicts on $BACKEND; $((SECONDS - start)) s after installation"
