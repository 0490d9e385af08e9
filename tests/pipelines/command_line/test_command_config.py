"""`--config FILE` of every command, and `pretrain --recipe FILE`."""

import dataclasses
import json
import time
from pathlib import Path

import pytest

from pipelines.finetune import main as finetune
from pipelines.pretrain import main as main_of_pretrain
from pipelines.pretrain import pretrain
from pipelines.reading.labeled import Columns
from pipelines.recipes import tree
from pipelines.recipes.recipe import all_recipes, find_recipe, read_recipe
from tests.pipelines.conftest import SETTINGS

pytestmark = pytest.mark.one_backend


@pytest.fixture
def parsed(tmp_path):
    """The arguments that a command gets from a YAML file and a command line."""

    def parse(command, yaml, *arguments):
        path = tmp_path / "config.yaml"
        path.write_text(yaml)
        return command.parse([*arguments, "--config", str(path)], "kerasbert test")

    return parse


def test_a_file_has_the_options_of_the_command(parsed):
    found = parsed(
        finetune,
        "model: some/model\nheld-out: {en: a.tsv, de: b.tsv}\nseeds: [3, 4]\nlearning_rate: 1e-3\nlayer_decay: null\n"
        "balanced: true\nkeep_best: false\nencoding: '-'\nlimit: 7\ncolumns: {text: body}\ncolumns.label: '2'\n",
    )
    expected = dict(
        model="some/model", held_out=("en=a.tsv", "de=b.tsv"), seeds=(3, 4), learning_rate=1e-3, layer_decay=None,
        balanced=True, keep_best=False, encoding="-", limit=7, columns=Columns("body", None, "2"), epochs=3,
    )  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert "config" not in found


@pytest.mark.parametrize("line", ["--seeds 1 --no-balanced --task=ner", "--seeds=1 --no_balanced --task ner"])
def test_the_command_line_wins(parsed, line):
    found = parsed(finetune, "model: m\nseeds: [3, 4]\nbalanced: true\ntask: classes\nepochs: 9\n", *line.split())
    assert (found["seeds"], found["balanced"], found["task"], found["epochs"]) == ((1,), False, "ner", 9)


def test_settings_of_a_recipe_are_added_to_those_of_the_file(parsed):
    yaml = (
        "corpus: c\nrun: r\nrecipe: bert.base\nset:\n  steps: 10\n  model: {num_layers: 4}\n  data: {names: [a, b]}\n"
    )
    found = parsed(main_of_pretrain, yaml, "bert.tiny", "--set", "steps=20", "learning_rate=1e-3")
    settings = ("steps=10", "model.num_layers=4", "data.names=['a', 'b']", "steps=20", "learning_rate=1e-3")
    assert (found["recipe"], found["corpus"], found["run"]) == ("bert.tiny", ("c",), Path("r"))
    assert found["set"] == settings
    assert parsed(main_of_pretrain, yaml, "--set=steps=20")["set"] == (*settings[:3], "steps=20")
    assert find_recipe("xlm.tiny").with_settings(settings[:1] + settings[2:]).data.names == ("a", "b")


@pytest.mark.parametrize(
    "yaml, message",
    [
        ("modle: x\n", r"config.yaml must contain only options .*: model, data, .*'modle'. Did you mean model\?"),
        ("columns: {txet: x}\n", r"'columns.txet'. Did you mean columns.text\?"),
        ("config: x.yaml\n", "must contain only options of the command: .* Received: 'config'."),
        ("model: a\nmodel: b\n", "must have each option once. Received: 'model' twice."),
        ("held-out: a\nheld_out: b\n", "must have each option once. Received: 'held_out' twice."),
        ("model\n", "must have one `option: value` per line. Received: 'model'."),
        ("", "must have one `option: value` per line. Received: None."),
        ("model: [\n", "must be YAML. It cannot be read: while parsing"),
        ("balanced: 1\n", "`balanced` must be true or false. Received: 1."),
        ("data: no\n", "`data` must be text or a number. Received: False. YAML reads yes, no,"),
        ("held_out: [no]\n", "`held_out` must be text or a number. Received: False."),
        ("epochs:\n", "`epochs` has no value. Write one, or remove the line."),
        ("epochs: [1]\n", r"`epochs` must be a single value. Received: \[1\]."),
    ],
)
def test_mistakes_in_a_file_are_named(parsed, yaml, message):
    with pytest.raises(ValueError, match=message):
        parsed(finetune, yaml)


@pytest.mark.parametrize(
    "yaml, message",
    [
        (
            "a0: &a0 [x, x, x, x]\n"
            + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)),
            r"must not contain aliases. Received: \*a0. Write it out",
        ),
        ("seeds: &s [*s]\n", "must not contain aliases"),
        ("base: &b {epochs: 3}\n<<: *b\n", "must not contain aliases"),
        ("seeds: " + "[" * 20_000, "reasonable depth|at most 100,000"),
        ("columns: " + "{a: " * 20_000, "reasonable depth"),
        ("seeds: [" + "1, " * 50_000 + "]\n", r"at most 100,000 bytes. Received: 150,0\d\d bytes"),
        ("".join(f"k{i}: 1\n" for i in range(9_000)), "must contain only options .*Received: 'k0'"),
        ("epochs: 2026-13-45\n", "must be YAML. It cannot be read: month must be in"),
        ("epochs: " + "9" * 5_000 + "\n", "must be YAML. It cannot be read: "),
        ("? [a, b]\n: 1\n", "must be YAML. It cannot be read"),
        ("model: !!python/object/apply:os.system [id]\n", "must be YAML. It cannot be read: could not determine"),
        ("a" * 5_000, "one `option: value` per line. Received: 'aaaa"),
    ],
)
def test_files_that_take_very_long_or_much_memory(parsed, yaml, message):
    start = time.process_time()
    with pytest.raises(ValueError, match=message) as caught:
        parsed(finetune, yaml)
    assert time.process_time() - start < 3 and len(str(caught.value)) < 1_500


def test_a_file_must_be_text(parsed, tmp_path):
    (tmp_path / "bytes.yaml").write_bytes(b"model: \xff\xfe")
    with pytest.raises(ValueError, match="must be YAML. It cannot be read: 'utf-8' codec"):
        finetune.parse(["--config", str(tmp_path / "bytes.yaml")], "kerasbert finetune")


def test_values_of_a_file_are_checked_like_those_of_the_command_line(parsed, capsys):
    with pytest.raises(SystemExit) as ended:
        parsed(finetune, "model: m\nepochs: many\n")
    assert ended.value.code == 2 and "many" in capsys.readouterr().err


def test_one_file_is_read(tmp_path):
    with pytest.raises(ValueError, match="--config needs a YAML file. Received: no name."):
        finetune.parse(["--config", "--model"], "kerasbert finetune")
    with pytest.raises(ValueError, match="--config must be given once. Received: a, b."):
        finetune.parse(["--config", "a", "--config=b"], "kerasbert finetune")
    with pytest.raises(FileNotFoundError, match="absent.yaml"):
        finetune.parse(["--config", str(tmp_path / "absent.yaml")], "kerasbert finetune")


def test_every_recipe_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "recipe.json"
    for name, recipe in all_recipes().items():
        path.write_text(json.dumps({"recipe": tree.written(recipe())}))
        assert read_recipe(path) == recipe(), name


def test_a_run_is_repeated_from_its_recipe(finished_run, corpora, tmp_path):
    run, last = finished_run
    recipe = find_recipe("bert.tiny").with_settings(list(SETTINGS))
    assert find_recipe(str(run / "recipe.json")) == dataclasses.replace(recipe, dtype=recipe.policy)
    again = pretrain(corpora[0], tmp_path / "run", str(run / "model" / "recipe.json"), corpora[1], report_every=2)
    assert {name: again[name] for name in ("loss", "val_loss")} == {name: last[name] for name in ("loss", "val_loss")}
    assert (tmp_path / "run" / "recipe.json").read_text() == (run / "recipe.json").read_text()


@pytest.mark.parametrize(
    "stored, message",
    [
        ("{", "recipe.json must be a recipe that pretrain wrote. It cannot be read: Expecting"),
        ("{}", "It cannot be read: 'recipe'"),
        ('{"recipe": {"class": "Recipe", "modle": 3}}', r"It cannot be read: `recipe` has .*modle. Did you mean model"),
        ('{"recipe": {"class": "Recipe", "name": "x"}}', "needs model and data and phases and optimizer"),
        ('{"recipe": {"class": "Path"}}', "`recipe` must be one of Recipe. Received: 'Path'"),
        ('{"recipe": {"steps": 3}}', "it is of an earlier version of kerasbert"),
    ],
)
def test_other_files_are_no_recipes(tmp_path, stored, message):
    path = tmp_path / "recipe.json"
    path.write_text(stored)
    with pytest.raises(ValueError, match=message):
        find_recipe(str(path))
