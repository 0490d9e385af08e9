"""The folder of a pair: its discriminator for every command, class and library, its generator by name."""

import json

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.data import Corpus
from kerasbert.models import Backbone, Electra, ElectraConfig
from kerasbert.objectives import Discriminator, MaskedLM, ReplacedTokenDetection
from kerasbert.tasks import TextClassifier
from pipelines.evaluate import evaluate
from pipelines.finetune import finetune
from pipelines.predict import predict
from pipelines.runs.task_options import Training

pytestmark = pytest.mark.one_backend


@pytest.fixture(scope="module")
def folder(corpora, tmp_path_factory):
    tokenizer = Corpus.open(corpora[0]).tokenizer()
    sizes = dict(vocabulary_size=90, num_layers=1, num_heads=2, embedding_dim=8, max_length=24)
    halves = (Electra(ElectraConfig(**sizes, hidden_dim=dim, feed_forward_dim=12)) for dim in (8, 16))
    path = tmp_path_factory.mktemp("electra") / "model"
    ReplacedTokenDetection(*halves, tokenizer=tokenizer).save_to_preset(path)
    return path


@pytest.fixture(scope="module")
def weights(folder):
    """Of the discriminator, by its own folder."""
    return values(kerasbert.load(folder / "discriminator").backbone)


def values(backbone):
    return {v.path.split("/", 1)[1]: keras.ops.convert_to_numpy(v) for v in backbone.weights}


def test_backbones_and_tasks_take_the_discriminator(folder, weights):
    with pytest.warns(UserWarning, match="discriminator has no weights for classifier/dense"):
        classifier = TextClassifier.from_preset(folder, labels=["cats", "dogs"])
    assert type(classifier.backbone) is Electra and classifier.tokenizer is not None
    backbones = [classifier.backbone, Backbone.from_preset(folder), Discriminator.from_preset(folder).backbone]
    for backbone in backbones:
        found = values(backbone)
        for path, expected in weights.items():
            np.testing.assert_array_equal(found[path], expected)
    assert type(kerasbert.load(folder)) is ReplacedTokenDetection


def test_what_predicts_tokens_is_the_generator(folder):
    message = "holds a generator and a discriminator. Use .*model/generator, or .*model/discriminator"
    with pytest.raises(ValueError, match=message):
        MaskedLM.from_preset(folder)
    assert MaskedLM.from_preset(folder / "generator").fill_mask("the [MASK] sat")


def test_without_a_recipe_only_the_generator_is_measured(folder, corpora):
    with pytest.raises(ValueError, match="a ReplacedTokenDetection.* or .*/generator, which is a MaskedLM"):
        evaluate(str(folder), corpus=[str(corpora[1])])
    assert evaluate(str(folder / "generator"), corpus=[str(corpora[1])])["perplexity"] > 1


def test_transformers_opens_the_folder(folder, weights):
    import transformers

    for cls in (transformers.AutoModel, transformers.AutoModelForPreTraining):
        model, report = cls.from_pretrained(folder, output_loading_info=True)
        assert not report["missing_keys"] and type(model).__name__.startswith("Electra")
    table = model.electra.embeddings.word_embeddings.weight.detach().numpy()
    np.testing.assert_array_equal(table, weights["token_embedding/embeddings"])
    ids = transformers.AutoTokenizer.from_pretrained(folder)("the cat sat")["input_ids"]
    assert ids == kerasbert.load(folder).tokenizer.encode(["the cat sat"])[0].tolist()


def test_the_commands(folder, labeled_file, tmp_path, capsys):
    finetune(
        str(folder), str(labeled_file), tmp_path / "tuned", held_out=(str(labeled_file),), training=Training(epochs=1)
    )
    assert type(kerasbert.load(tmp_path / "tuned")) is TextClassifier
    (tmp_path / "texts.txt").write_text("the cat sat\nthe dog ran\n")
    predict(str(folder), tmp_path / "texts.txt", tmp_path / "answers.jsonl")
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert [token["token"] for token in answers[0]["tokens"]] == ["the", "cat", "s", "##at"]
    assert f"to fill masks, use {folder}/generator" in capsys.readouterr().err
