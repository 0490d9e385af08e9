"""The list of recipes, in the terminal and on the pages."""

import json

import pytest

from pipelines.recipes.command import gallery, recipes, shown, tokens_of
from pipelines.recipes.recipe import all_recipes, find_recipe

pytestmark = pytest.mark.one_backend


def test_every_recipe_has_a_summary_and_tokens():
    rows = {row["name"]: row for row in gallery()}
    assert rows.keys() == all_recipes().keys() and all(row["summary"].endswith(".") for row in rows.values())
    assert (
        rows["bert.base"]["tokens"] == 900_000 * 256 * 128 + 100_000 * 256 * 512 == tokens_of(find_recipe("bert.base"))
    )
    assert rows["bert.base"]["updates"] == 1_000_000


def test_names_that_begin_so(capsys):
    assert {row["name"].partition(".")[0] for row in gallery("gpt")} == {"gpt", "gpt2", "gpt_bert"}
    assert [row["name"] for row in gallery("bert.base")] == ["bert.base"]
    recipes("eurobert.tiny")
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split() == ["recipe", "tokens", "what", "it", "trains"] and row.split()[0] == "eurobert.tiny"
    recipes("mpnet", json=True)
    assert {row["name"] for row in json.loads(capsys.readouterr().out)} == {"mpnet.base", "mpnet.tiny"}
    with pytest.raises(ValueError, match="Recipes are those of albert, .*Received: 'berrt'. Did you mean bert?"):
        gallery("berrt")


def test_numbers_with_units():
    assert [shown(n) for n in (0, 999, 1_000, 15_400, 2_048_000, 42_598_400_000)] == [
        "0", "999", "1.0 k", "15 k", "2.0 M", "43 B",
    ]  # fmt: skip
