"""Text to a saved model, resumed runs, and what a run refuses."""

import csv
import json
import math
import shutil

import numpy as np
import pytest

import kerasbert
from kerasbert.data import Corpus
from pipelines.pretrain import pretrain
from pipelines.recipes.recipe import find_recipe
from pipelines.runs.building import make_batches
from pipelines.runs.devices import described_device
from pipelines.runs.training import report_interval
from pipelines.train_tokenizer import train_tokenizer
from tests.pipelines.conftest import SETTINGS

pytestmark = pytest.mark.one_backend


def weights_of(folder):
    return [np.array(v) for v in kerasbert.load(folder).get_weights()]


def test_tokenizer_and_corpora(corpora, tokenizer_folder):
    corpus, held_out = (Corpus.open(folder) for folder in corpora)
    assert (corpus.num_documents, held_out.num_documents) == (54, 6)
    assert corpus.num_sequences == 54 * 4
    assert corpus.tokenizer_hash == held_out.tokenizer_hash
    assert (tokenizer_folder / "vocab.txt").read_text().startswith("[PAD]\n")


def test_a_run_leaves_logs_curves_and_a_model(finished_run, corpora):
    run, last = finished_run
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [2, 4]
    assert last == rows[-1]
    entropy = Corpus.open(corpora[0]).unigram_loss(Corpus.open(corpora[1]))
    assert last["below_unigram"] == pytest.approx(entropy - math.log(last["val_perplexity"]), abs=1e-5)
    with open(run / "log.csv", newline="") as file:
        assert [int(row["step"]) for row in csv.DictReader(file)] == [2, 4]
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    model = kerasbert.load(run / "model")
    assert type(model).__name__ == "MaskedLM"
    assert model.backbone.config.hidden_dim == 16
    assert model.backbone.config.vocabulary_size == model.tokenizer.vocabulary_size == 90
    card = (run / "model" / "README.md").read_text()
    assert "| steps | 4 |" in card and "unigram_loss" in card and "text.txt" in card and "| val_" not in card
    assert "# model\n\nThis model was pretrained with the objective MaskedLM: a" in card
    assert f"| device | {described_device()} |" in card and "name: perplexity" in card


def test_scores_on_the_text_of_training_are_no_results(corpora, tmp_path):
    pretrain(corpora[0], tmp_path / "run", held_out=corpora[0], report_every=4, set=SETTINGS)
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    documents = Corpus.open(corpora[0]).num_documents
    assert f"{documents} of these examples are also in the training data, so these scores" in card
    assert "model-index" not in card


@pytest.mark.optimized
def test_the_same_command_continues_to_the_same_bits(finished_run, corpora, tmp_path):
    run, last = finished_run
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    for path in copy.glob("checkpoints/step_00000004*"):
        path.unlink()
    shutil.rmtree(copy / "model")
    resumed = pretrain(corpora[0], copy, held_out=corpora[1], report_every=2, set=SETTINGS)
    assert resumed["val_loss"] == pytest.approx(last["val_loss"], abs=1e-6)
    for ours, theirs in zip(weights_of(copy / "model"), weights_of(run / "model"), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_less_memory_gives_the_same_losses(finished_run, corpora, tmp_path):
    run = tmp_path / "run"
    pretrain(corpora[0], run, held_out=corpora[1], report_every=2, less_memory=True, set=SETTINGS)
    logs = [[json.loads(line) for line in (f / "log.jsonl").read_text().splitlines()] for f in (run, finished_run[0])]
    for name in ("loss", "val_loss"):
        found, expected = ([row[name] for row in rows] for rows in logs)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_finished_run_only_saves_again(finished_run, corpora, tmp_path):
    run, last = finished_run
    again = pretrain(corpora[0], run, held_out=corpora[1], report_every=2, output=tmp_path / "again", set=SETTINGS)
    assert again == last
    for ours, theirs in zip(weights_of(tmp_path / "again"), weights_of(run / "model"), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_rows_that_grow(corpora, tmp_path):
    settings = (*SETTINGS, "phases=[(2,4,16),(2,4,20)]", "accumulation=2")
    run = tmp_path / "run"
    last = pretrain(corpora[0], run, report_every=4, set=settings)
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [4, 8]  # micro-batches: two an update
    assert math.isfinite(last["loss"])


def test_batches_that_grow(corpora, tmp_path):
    settings = [*SETTINGS, "phases=[(2,2,16),(2,4,16),(2,8,16)]"]
    recipe = find_recipe("bert.tiny").with_settings(settings)
    batches = make_batches(recipe, Corpus.open(corpora[0]))
    assert [len(x["token_ids"]) for x, _, _ in batches] == [2, 2, 4, 4, 8, 8]
    assert [len(prefix) for prefix in batches.prefixes()] == [2, 4, 6] and batches.tokens_per_step == 8 * 16
    np.testing.assert_array_equal(batches.shard(1, 2)[3][0]["token_ids"], batches[3][0]["token_ids"][2:])
    streams = ["phases=[(2,2,8),(2,4,8)]"]
    with pytest.raises(ValueError, match="need one `batch_size`. Received: 2, 4"):
        make_batches(find_recipe("transformer_xl.tiny").with_settings(streams), Corpus.open(corpora[0]))
    settings = [*SETTINGS, "phases=[(2,2,16),(2,4,16)]"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    last = pretrain(corpora[0], whole, report_every=2, set=settings)
    assert math.isfinite(last["loss"]) and last["step"] == 4
    shutil.copytree(whole, parts)
    for path in parts.glob("checkpoints/step_00000004*"):  # cut off behind the updates of two rows
        path.unlink()
    shutil.rmtree(parts / "model")
    assert pretrain(corpora[0], parts, report_every=2, set=settings)["loss"] == last["loss"]
    for ours, theirs in zip(weights_of(parts / "model"), weights_of(whole / "model"), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_folder_of_another_recipe_is_refused(finished_run, corpora):
    run, _ = finished_run
    with pytest.raises(ValueError, match="another recipe(.|\n)*batch_size: 4 in the folder, 2 now"):
        pretrain(corpora[0], run, report_every=2, set=(*SETTINGS, "batch_size=2"))
    with pytest.raises(ValueError, match="another recipe(.|\n)*corpus"):
        pretrain(corpora[1], run, report_every=2, set=SETTINGS)


def test_a_foreign_tokenizer_is_refused(text_file, corpora, tmp_path):
    train_tokenizer([str(text_file)], tmp_path / "other", vocabulary_size=80)
    with pytest.raises(ValueError, match="tokenizer that wrote it"):
        pretrain(corpora[0], tmp_path / "run", tokenizer=tmp_path / "other", set=SETTINGS)
    assert not (tmp_path / "run").exists()


def test_what_is_wrong_leaves_no_run(corpora, tmp_path):
    for options, message in (
        (dict(report_every=0), "must be at least 1. Received: 0, 100, 3"),
        (dict(held_out_steps=0), "must be at least 1. Received: 1000, 0, 3"),
        (dict(set=(*SETTINGS, "held_out.length=3")), "`length` must leave space"),
    ):
        with pytest.raises(ValueError, match=message):
            pretrain(corpora[0], tmp_path / "run", held_out=corpora[1], **{"set": SETTINGS, **options})
    assert not (tmp_path / "run").exists()


def test_a_mean_of_more_checkpoints_than_there_are(corpora, tmp_path):
    with pytest.raises(ValueError, match="at most 2, the reports of the run. Received: 3. Use report_every=1 or less"):
        pretrain(corpora[0], tmp_path / "run", report_every=2, set=(*SETTINGS, "average=3"))


def test_rows_must_fit_the_position_table(corpora, tmp_path):
    with pytest.raises(ValueError, match="model.max_length=24. Use --set model.max_length=32"):
        pretrain(corpora[0], tmp_path / "run", set=(*SETTINGS, "length=32"))
    assert not (tmp_path / "run").exists(), "a folder that is claimed would refuse the corrected recipe"


def test_report_intervals_divide_every_piece():
    assert report_interval([1_000], 1_000) == 1_000
    assert report_interval([900, 1_000], 1_000) == 100
    assert report_interval([7], 3) == 1
    assert report_interval([1_200], 500) == 400
    with pytest.raises(ValueError, match="Received: 10007 steps and report_every=1000.*steps=10000"):
        report_interval([10_007], 1_000)


def test_phases_are_one_run(corpora):
    recipe = find_recipe("bert.tiny").with_settings([*SETTINGS, "phases=[(3,4,16),(2,4,20)]"])
    batches = make_batches(recipe, Corpus.open(corpora[0]))
    assert len(batches) == 5
    assert [batches[step][0]["token_ids"].shape for step in range(5)] == [(4, 16)] * 3 + [(4, 20)] * 2
    rest = batches.starting_at(3)
    assert len(rest) == 2
    np.testing.assert_array_equal(rest[1][0]["token_ids"], batches[4][0]["token_ids"])
    np.testing.assert_array_equal(batches.shard(1, 2)[4][0]["token_ids"], batches[4][0]["token_ids"][2:])
    assert [len(prefix) for prefix in batches.prefixes()] == [3, 5]
    assert batches.recipe()["parts"][1]["length"] == 20
    np.testing.assert_array_equal(batches[-1][0]["token_ids"], batches[4][0]["token_ids"])
    np.testing.assert_array_equal(rest[-2][0]["token_ids"], batches[3][0]["token_ids"])
    for step in (5, -6):
        with pytest.raises(IndexError, match="outside this run of 5 steps"):
            batches[step]
