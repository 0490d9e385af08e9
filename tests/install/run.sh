#!/usr/bin/env bash
# Installs the wheel into a fresh environment outside the repository: use.py runs with one backend and nothing else, then
# every command runs with the extra that it needs.
set -euo pipefail
cd "$(dirname "$0")/../.."
repository=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export KERAS_BACKEND=$BACKEND
export PATH="$folder/venv/bin:$PATH"

"$PYTHON" -m venv "$folder/venv"
install() { pip install --quiet --disable-pip-version-check --retries 10 -c "$repository/constraints.txt" "$@"; }
install build
python -m build --outdir "$folder/dist" "$repository" > "$folder/build.log" || { cat "$folder/build.log"; exit 1; }
wheel=$(echo "$folder"/dist/kerasbert-*.whl)
install "$wheel[$BACKEND]"
cp tests/install/use.py "$folder"
cd "$folder"
start=$SECONDS
python use.py
echo "== test-install: the wheel trains, saves, loads and predicts on $BACKEND; $((SECONDS - start)) s after installation"

# The command without the packages that its options need.
kerasbert --help | grep -q "^    pretrain "
kerasbert --version
if kerasbert pretrain --help 2> missing.txt; then echo "pretrain ran without its extra"; exit 1; fi
grep -q 'pip install "kerasbert\[pipelines\]"' missing.txt

install "$wheel[pipelines]"
mkdir commands
cd commands
for number in $(seq 40); do
  printf 'the cat sat on mat %s .\nthen the dog ran home .\n\n' "$number" >> text.txt
  printf '{"text": "the cat sat %s", "label": "cats"}\n{"text": "a dog ran %s", "label": "dogs"}\n' $number $number >> pets.jsonl
done
kerasbert tokenizer --source text.txt --output tokenizer --vocabulary-size 60 --lowercase
kerasbert corpus --source text.txt --tokenizer tokenizer --output corpus --held-out held_out --held-out-every 10
cat > pretrain.yaml <<'YAML'
recipe: bert.tiny
corpus: corpus
held_out: held_out
report_every: 4
set: {batch_size: 4, length: 16, warmup: 1, model: {num_layers: 1, hidden_dim: 16, feed_forward_dim: 24}}
YAML
kerasbert pretrain --config pretrain.yaml --run runs/first --set steps=8
kerasbert pretrain --recipe runs/first/recipe.json --corpus corpus --held-out held_out --run runs/second --report-every 4
cmp runs/first/recipe.json runs/second/recipe.json
kerasbert finetune runs/first/model --data pets.jsonl --held-out pets.jsonl --output pets --epochs 1
kerasbert evaluate runs/first/model --corpus held_out
kerasbert evaluate pets --data pets.jsonl
echo "the [MASK] sat" | kerasbert predict --model runs/first/model | grep -q '"masks"'
for shell in bash zsh fish; do kerasbert completion $shell > "completion.$shell"; done
bash -n completion.bash
echo "== test-install: the command kerasbert works; $((SECONDS - start)) s"
