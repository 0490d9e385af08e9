"""Mistakes of the first hour: each is one clear line."""

import pytest

from kerasbert.tasks import TextClassifier
from kerasbert.training import WarmupDecay, adamw
from pipelines.reading.examples import read_examples
from pipelines.reading.inputs import read_inputs
from pipelines.reading.labeled import Columns

pytestmark = pytest.mark.one_backend


@pytest.mark.parametrize(
    "given, ours",
    [
        ({"num_labels": 2}, "labels"),
        ({"problem_type": "regression"}, "problem"),
        ({"vocab_size": 9}, "vocabulary_size"),
    ],
)
def test_names_of_transformers_are_answered_with_ours(given, ours):
    (name,) = given
    with pytest.raises(ValueError, match=f"^The argument `{name}` of transformers is `{ours}` here. Received: {name}="):
        TextClassifier.from_preset("bert_tiny", load_weights=False, **given)


@pytest.mark.parametrize("rate", [-1, 0, float("nan"), float("inf")])
def test_learning_rates(rate):
    with pytest.raises(ValueError, match=f"`learning_rate` must be a finite number above 0. Received: {rate}"):
        adamw(rate, steps=10)


def test_a_long_warmup_names_the_setting_of_a_recipe():
    with pytest.raises(ValueError, match="A tenth of the run is 6; the warm-up of a recipe is set by --set warmup=N"):
        WarmupDecay(1e-4, 100, 60)


@pytest.mark.parametrize("row, lacks", [("1,sat,", "a tag"), ("1,,O", "a word")])
def test_words_without_tags(row, lacks, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(f"sentence,word,tag\n0,the,O\n{row}\n")
    with pytest.raises(ValueError, match=f"A word must have a tag. Received: .* line 3: .*without {lacks}"):
        read_examples("tags", path)


def test_files_without_labels_are_for_predict(tmp_path):
    """Test files of GLUE, such as RTE's, have none."""
    path = tmp_path / "test.tsv"
    path.write_text("index\tsentence1\tsentence2\n0\tThe cat sat.\tA cat sat down.\n")
    with pytest.raises(ValueError, match="holds the label cannot be guessed.*`predict` reads files without labels"):
        read_examples("classes", path)
    assert [item.x for item in read_inputs(path, "pairs", Columns())] == [("The cat sat.", "A cat sat down.")]
