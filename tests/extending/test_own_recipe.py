"""A recipe of one's own: the one of the guide, from a file, and one with records of one's own."""

import dataclasses
import json
import re

import numpy as np
import pytest

from kerasbert.command_line import pipelines_name
from kerasbert.data import Corpus, MaskedLMBatches, Noise, Tokenizer, WholeWords, positions_of
from kerasbert.objectives import MaskedLM
from pipelines.info.command import info
from pipelines.pretrain import pretrain
from pipelines.recipes import AdamW, Data, MaskedLMData, Phase, Pretraining, Recipe, WarmupDecay, find_recipe, tree
from pipelines.show.command import corruption
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

DOCUMENTS = ["a b c d e f g\nb c d e f g a", "c d e f g a b\nd e f g a b c"] * 20
SMALL = ("steps=4", "batch_size=2", "length=16", "warmup=1", "model.num_layers=1", "model.hidden_dim=16")
SMALL += ("model.num_heads=2", "model.feed_forward_dim=24")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus") / "text"
    Corpus.write(folder, DOCUMENTS, Tokenizer.train("wordpiece", DOCUMENTS, 19))
    return folder


def test_the_recipe_of_the_guide(corpus, tmp_path):
    page = (REPOSITORY / "docs" / "guides" / "pretrain.md").read_text("utf-8")
    (code,) = re.findall(r"```\{code-cell\} python\n(from kerasbert.data import WholeWords\n.*?)```", page, re.DOTALL)
    recipe, _, _ = code.partition("\n\n\nprint(")
    recipe = recipe.replace("kerasbert.pipelines", pipelines_name())  # a program has one name for them
    assert len(recipe.splitlines()) <= 15
    (tmp_path / "recipes.py").write_text(recipe)
    name, run = f"{tmp_path / 'recipes.py'}:mine", tmp_path / "run"
    assert find_recipe(name).data.noise == WholeWords(0.3) and find_recipe(name).steps == 10_000  # pyright: ignore
    last = pretrain(corpus, run, name, report_every=2, set=(*SMALL, "data.noise.rate=0.4"))
    assert last["step"] == 4 and np.isfinite(last["loss"])
    again = find_recipe(str(run / "recipe.json"))
    assert again.data.noise == WholeWords(0.4) and [phase.steps for phase in again.phases] == [3, 1]  # pyright: ignore
    with pytest.raises(ValueError, match="must have a function other that returns a Recipe. Received: None"):
        find_recipe(f"{tmp_path / 'recipes.py'}:other")


@dataclasses.dataclass(frozen=True)
class EveryNthToken(Noise):
    """Masks one token in n."""

    n: int = 3
    shares = (1.0, 0.0)

    def num_slots(self, length, num_special):
        return -(-length // self.n)

    def choose(self, rows, draws):
        return positions_of(rows.text & (np.arange(rows.token_ids.shape[1]) % self.n == 0), rows.num_slots)


@dataclasses.dataclass(frozen=True)
class FirstWords(Data):
    """Rows that end after so many tokens of each document."""

    tokens: int = 5
    noise: Noise = EveryNthToken()

    def part(self, name, corpus, *, length, **shape):
        return MaskedLMBatches(corpus, length=min(length, self.tokens + 2), noise=self.noise, **shape)


def mine() -> Recipe:
    optimizer = AdamW(WarmupDecay(1e-3, warmup=1))
    return Recipe("mine", Pretraining("bert_mini"), FirstWords(tokens=6), (Phase(4, 2, 16),), optimizer)


def test_own_records_are_set_written_and_read(corpus, tmp_path):
    recipe = mine().with_settings(["data.noise.n=2", "data.tokens=7"])
    assert recipe.data == FirstWords(7, EveryNthToken(2))
    assert recipe.data(Corpus.open(corpus), recipe.phases[0])[0][0]["token_ids"].shape == (2, 9)
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps({"recipe": tree.written(recipe)}))
    assert find_recipe(str(path)) == recipe
    with pytest.raises(
        ValueError, match=r"`data` has mixing, noise, tokens. Received: data.token. Did you mean tokens"
    ):
        recipe.with_settings(["data.token=7"])
    assert find_recipe("bert.tiny").with_settings(["data.noise=EveryNthToken"]).data.noise == EveryNthToken()  # pyright: ignore


def test_a_recipe_of_a_file_is_shown_and_described(tmp_path, capsys):
    source = (REPOSITORY / "tests" / "extending" / "test_own_recipe.py").read_text("utf-8")
    path = tmp_path / "recipes.py"
    source = source.replace("FirstWords(tokens=6)", "MaskedLMData(noise=EveryNthToken())")
    path.write_text(source.replace("FirstWords", "OtherWords").replace("EveryNthToken", "EveryOtherToken"))
    corruption(f"{path}:mine", "a b c d e f g")
    assert "Masks one token in n. 100% of these are masked." in capsys.readouterr().out
    assert info(f"{path}:mine", dtypes=("float32",))["run"]["updates"] == 4
    stored = tmp_path / "recipe.json"
    stored.write_text(json.dumps({"recipe": tree.written(mine())}))
    assert info(str(stored), dtypes=("float32",))["kind"] == "recipe"


@pytest.mark.parametrize("objective", [MaskedLM, MaskedLMData, "MaskedLM", None])
def test_an_objective_must_be_a_record(objective):
    with pytest.raises(ValueError, match=r"must be a record of a class derived from `Objective`.* MaskedLM\(\)"):
        Pretraining("bert_mini", objective=objective)
