"""Every objective from a corpus to a saved model, with models smaller than those of the tiny recipes.

Recipes that take different ways through the command run for four steps; of the others, a batch of training and one of
held-out text have a finite loss, which compiles nothing.
"""

import json
import math
import shutil

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.data import Corpus, MaskedLMBatches, MixtureBatches, Tokenizer, parallel_documents
from pipelines.evaluate import evaluate
from pipelines.pretrain import open_corpora, pretrain
from pipelines.recipes.phases import Phases
from pipelines.recipes.recipe import find_recipe
from pipelines.runs.building import evaluation_batches, make_batches, make_model, make_optimizer
from tests.pipelines.conftest import SETTINGS as BERT

pytestmark = pytest.mark.one_backend

RUN = ("steps=4", "batch_size=4", "length=16")
SMALL = ("model.num_layers=1", "model.hidden_dim=16", "model.num_heads=2", "model.feed_forward_dim=24")
WARMUP = ("warmup=1",)
SETTINGS = {
    "roberta.tiny": (),
    "spanbert.tiny": (),
    "albert.tiny": ("model.embedding_dim=8", "data.rows.passes=2"),
    "electra.tiny": (
        *(
            "model.embedding_dim=8",
            "model.objective.generator.embedding_dim=8",
            "model.objective.generator.num_layers=1",
        ),
        *(
            "model.objective.generator.hidden_dim=8",
            "model.objective.generator.feed_forward_dim=12",
            "data.rows=segments",
        ),
    ),
    "deberta.v3_tiny": (
        *("model.objective.generator.hidden_dim=16", "data.noise=WindowNGrams"),
        *("model.objective.generator.num_heads=2", "model.objective.generator.feed_forward_dim=24"),
    ),
    "t5.tiny": ("model.head_dim=8",),
    "bart.tiny": ("data.noise.permute_sentences=false",),
    "t5.tiny_prefix_language_model": ("model.head_dim=8",),
    "gpt2.tiny": (),
    "transformer_xl.tiny": ("model.head_dim=8", "model.cutoffs=(40,)", "model.memory_length=16"),
    "xlnet.tiny": (
        *("model.memory_length=8", "data.reuse_length=8"),
        "held_out.batch_size=2",
    ),
    "eurobert.tiny": ("model.num_key_heads=1",),
    "nomic_bert.tiny": (),
    "retromae.tiny": (),
    "tsdae.tiny": (),
    "simcse.tiny": (),
    "modernbert.tiny": ("optimizer.schedule.decay_from=2", "length=32"),
    "word_vectors.tiny": ("model.hidden_dim=8", "length=1"),
    "elmo.tiny": ("model.filters=((1,4),(2,4))", "model.hidden_dim=8", "model.cell_dim=12"),
}


@pytest.fixture(scope="session")
def texts(text_file, tmp_path_factory):
    """Folders of corpora of one tokenizer: two languages, held-out text, and parallel text of the two."""
    folder = tmp_path_factory.mktemp("several")
    documents = text_file.read_text().split("\n\n")
    tokenizer = Tokenizer.train("unigram", documents, 140, family="t5")
    angles = Tokenizer.train("wordpiece", documents, 80)
    lines = [line for document in documents for line in document.splitlines()]
    pairs = list(parallel_documents(lines[::2], lines[1::2]))
    for name, text, of in (
        ("t5", documents[6:], tokenizer),
        ("t5_held_out", documents[:6], tokenizer),
        ("en", documents[6:30], angles),
        ("de", documents[30:], angles),
        ("held_out", documents[:6], angles),
        ("pairs", pairs, angles),
    ):
        Corpus.write(folder / name, text, of)
    return folder


def weights_of(folder):
    return [np.array(value) for value in kerasbert.load(folder).get_weights()]


def check(run, last):
    """A run of four steps left a finite loss, a log, and a model that loads."""
    assert [json.loads(line)["step"] for line in (run / "log.jsonl").read_text().splitlines()] == [2, 4]
    assert math.isfinite(last["loss"]) and math.isfinite(last["val_loss"])
    model = kerasbert.load(run / "model")
    assert model.backbone.config.vocabulary_size == model.tokenizer.vocabulary_size
    return model


def settings(recipe):
    fields = SETTINGS.get(recipe, ())
    small = () if recipe in ("word_vectors.tiny", "elmo.tiny") else SMALL
    return (*RUN, *small, *WARMUP, *fields)


def one_batch(recipe, corpus, held_out, changes, folder, **models):
    """The loss of a batch of training and of one of held-out text is finite, and the model is saved and loads.

    Returns the recipe, the batches of training and the loaded model.
    """
    recipe = find_recipe(recipe).with_settings(list(changes))
    texts = open_corpora(corpus, None)
    unseen = open_corpora(held_out, next(iter(texts.values())).tokenizer())
    batches = make_batches(recipe, texts)
    model = make_model(recipe, next(iter(texts.values())), **models)
    model.compile(make_optimizer(recipe))
    model.optimizer.build(model.trainable_variables)
    for data, training in ((batches, True), (evaluation_batches(recipe, unseen, 2), False)):
        x, y, weights = data[0]
        if "stream_start" in x:
            model.start_memory(len(x["stream_start"]), training)
        predictions = model(x, training=training)
        loss = model.compute_loss(x=x, y=y, y_pred=predictions, sample_weight=weights, training=training)
        assert math.isfinite(keras.ops.convert_to_numpy(loss))
    model.save_to_preset(folder)
    loaded = kerasbert.load(folder)
    assert loaded.backbone.config.vocabulary_size == loaded.tokenizer.vocabulary_size
    return recipe, batches, loaded


@pytest.mark.parametrize("recipe", [name for name in SETTINGS if name not in ("electra.tiny", "transformer_xl.tiny")])
def test_a_batch_of_every_recipe(recipe, texts, tmp_path):
    is_t5 = recipe.startswith("t5")
    corpus, held_out = texts / ("t5" if is_t5 else "en"), texts / ("t5_held_out" if is_t5 else "held_out")
    recipe, _, model = one_batch(recipe, corpus, held_out, settings(recipe), tmp_path)
    assert type(model) is recipe.model.objective.cls


def test_a_corpus_becomes_a_model(texts, tmp_path):
    run, recipe = tmp_path / "run", "electra.tiny"
    corpora = texts / "en", texts / "held_out"
    last = pretrain(corpora[0], run, recipe, corpora[1], held_out_steps=2, report_every=2, set=settings(recipe))
    model = check(run, last)
    assert (
        type(model).__name__ == json.loads((run / "recipe.json").read_text())["recipe"]["model"]["objective"]["class"]
    )
    assert 0 <= last["val_rtd_auc"] <= 1 and "val_rtd_loss" in last


@pytest.mark.parametrize("recipe", ["xlm.tiny_tlm", "mbert.tiny"])
def test_several_languages(recipe, texts, tmp_path):
    corpora = [f"{name}={texts / name}" for name in ("en", "de")]
    changes = ["model.num_layers=1", "model.hidden_dim=16", "model.num_heads=2"]
    if recipe == "xlm.tiny_tlm":
        corpora.append(f"en-de={texts / 'pairs'}")
        changes += [f"data.{part}.noise.max_predictions=4" for part in ("text", "pairs")]
        changes += ["data.names=('de','en')"]
    else:
        changes += ["data.rows.passes=2", "model.feed_forward_dim=24"]
    _, batches, model = one_batch(recipe, corpora, corpora[:2], (*RUN, *WARMUP, *changes), tmp_path / "model")
    parts = batches.recipe()["rates"]
    if recipe == "xlm.tiny_tlm":
        assert model.backbone.config.num_languages == 2
        assert parts["en-de"] == pytest.approx(1 / 3) and set(parts) == {"en", "de", "en-de"}
        with pytest.raises(
            ValueError, match="has the languages de, en and pairs such as de-en. Received: a corpus 'x'"
        ):
            pretrain([f"x={texts / 'en'}"], tmp_path / "other", recipe, set=(*RUN, *changes))
    else:
        sizes = np.array([Corpus.open(texts / name).num_tokens for name in ("en", "de")]) ** 0.7
        assert [parts["en"], parts["de"]] == pytest.approx(sizes / sizes.sum())


def test_text_and_tasks(texts, tmp_path):
    """Shares go by examples: text counts as 12, no task as more than 50; temperature 2."""
    lines = ["the cat sat", "the dog ran"] * 8
    tokenizer = Corpus.open(texts / "t5").tokenizer()
    for name, count in (("few", 3), ("many", 60)):
        pairs = parallel_documents([f"task sentence: {lines[n % 16]} {n}" for n in range(count)], ["good"] * count)
        Corpus.write(tmp_path / name, pairs, tokenizer)
    corpora = [f"text={texts / 't5'}", f"few={tmp_path / 'few'}", f"many={tmp_path / 'many'}"]
    changes = (*RUN, *SMALL, *WARMUP, "model.head_dim=8", "data.text_examples=12", "data.mixing.limit=50", "length=20")
    run, recipe = tmp_path / "run", "t5.tiny_multitask"
    last = pretrain(corpora, run, recipe, corpora, held_out_steps=2, report_every=2, set=changes)
    check(run, last)
    rates = json.loads((run / "recipe.json").read_text())["batches"]["rates"]
    shares = np.sqrt([12, 3, 50])
    assert [rates[name] for name in ("text", "few", "many")] == pytest.approx(shares / shares.sum())


def test_pairs_by_attention(texts, tmp_path):
    changes = ["model.hidden_dim=16", "model.embedding_dim=8", "model.alignment_dim=8", "model.output_dim=8"]
    pairs, changes = texts / "pairs", (*RUN, *WARMUP, "data.num_buckets=2", *changes)
    one_batch("seq2seq_attention.tiny", pairs, pairs, changes, tmp_path)


def test_pairs_and_the_mean_of_checkpoints(texts, tmp_path):
    changes = (*RUN, *SMALL, *WARMUP, "data.num_buckets=2", "optimizer.schedule.hidden_dim=16", "average=2")
    run, recipe, pairs = tmp_path / "run", "transformer.tiny", texts / "pairs"
    check(run, pretrain(pairs, run, recipe, pairs, held_out_steps=2, report_every=2, set=changes))
    saved = weights_of(run / "model")
    pretrain(pairs, run, recipe, pairs, held_out_steps=2, report_every=2, set=changes)
    for ours, theirs in zip(weights_of(run / "model"), saved, strict=True):
        np.testing.assert_array_equal(ours, theirs)  # the mean over checkpoints, once more


def test_teachers_and_models_to_begin_with(texts, finished_run, corpora, tmp_path):
    teacher = finished_run[0] / "model"
    changes = (*RUN, *SMALL, *WARMUP, "model.max_length=24", f"teacher={teacher}")
    _, _, student = one_batch("distilbert.tiny", *corpora, changes, tmp_path / "student", teacher=teacher)
    assert type(student).__name__ == "MaskedLM"

    run = tmp_path / "continued"
    changes = (*RUN, *WARMUP, f"init_from={teacher}", "optimizer.schedule.peak=1e-9")
    pretrain(corpora[0], run, "biobert.tiny", corpora[1], held_out_steps=2, report_every=2, set=changes)
    assert str(teacher) in (run / "recipe.json").read_text()
    assert str(teacher.parent) not in (run / "model" / "recipe.json").read_text()
    for ours, theirs in zip(weights_of(run / "model"), weights_of(teacher), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    with pytest.raises(ValueError, match="read with the tokenizer that wrote it"):
        pretrain(texts / "en", tmp_path / "other", "biobert.tiny", set=changes)


@pytest.mark.parametrize("recipe", ["electra.tiny", "deberta.v3_tiny"])
def test_replaced_token_detection_starts_with_a_generator_and_continues(recipe, texts, tmp_path):
    corpus = Corpus.open(texts / "en")
    widths = ["hidden_dim=16", "num_heads=2", "feed_forward_dim=24"] + ["embedding_dim=16"] * (recipe == "electra.tiny")
    own = [f"model.{width}" for width in widths]
    recipe, alone = find_recipe(recipe), find_recipe(f"{recipe}_generator").with_settings([*RUN, *WARMUP, *own])
    both = recipe.with_settings([*RUN, *WARMUP, *own, *(f"model.objective.generator.{width}" for width in widths)])
    assert both.model.config["num_layers"] > alone.model.config["num_layers"]  # each model has its own size

    generator = make_model(alone, corpus)
    generator.save_to_preset(tmp_path / "generator")
    model = make_model(both, corpus, init_from=tmp_path / "generator")
    x = make_batches(both, corpus)[0][0]
    np.testing.assert_allclose(*(keras.ops.convert_to_numpy(one(x)) for one in (model.generator, generator)), atol=1e-5)

    model.save_to_preset(tmp_path / "both")
    continued = make_model(both, corpus, init_from=tmp_path / "both")
    assert type(continued) is type(model)
    for part in ("generator", "discriminator"):
        ours, theirs = (keras.ops.convert_to_numpy(getattr(one, part)(x)) for one in (continued, model))
        np.testing.assert_allclose(ours, theirs, atol=1e-5)

    with pytest.raises(ValueError, match=r"of the recipe's size.*--set model\.objective\.generator\.num_layers=1"):
        other = both.with_settings(["model.objective.generator.num_layers=2"])
        make_model(other, corpus, init_from=tmp_path / "generator")
    with pytest.raises(ValueError, match=r"num_layers=1 in the recipe, and .* with num_layers=2\. Use --set model"):
        make_model(both.with_settings(["model.num_layers=1"]), corpus, init_from=tmp_path / "both")


def test_a_run_continues_a_model_of_its_family(texts, tmp_path):
    corpus = Corpus.open(texts / "en")
    make_model(find_recipe("electra.tiny_generator"), corpus).save_to_preset(tmp_path / "electra")
    with pytest.raises(ValueError, match="family, DebertaV2. Received: .* of the class Electra, which has no mask_dec"):
        make_model(find_recipe("deberta.v3_tiny"), corpus, init_from=tmp_path / "electra")


@pytest.mark.parametrize("model", ["bert_mini_en", "hf://someone/bert", "teacher"])
def test_a_corpus_of_another_tokenizer_is_refused(model, texts, finished_run, tmp_path, monkeypatch):
    monkeypatch.setattr("kerasbert.checkpoints.folder.download", lambda *_: finished_run[0] / "model")
    changes = ("distilbert.tiny", f"teacher={finished_run[0] / 'model'}") if model == "teacher" else (
        "biobert.tiny", f"init_from={model}")  # fmt: skip
    with pytest.raises(ValueError, match="read with the tokenizer that wrote it"):
        pretrain(texts / "en", tmp_path / "run", changes[0], set=(*RUN, *WARMUP, changes[1]))
    assert not (tmp_path / "run").exists()


def test_batches_of_another_tokenizer_are_refused(texts, finished_run, corpora):
    model = kerasbert.load(finished_run[0] / "model")
    layout = dict(steps=2, rows="sentence_pairs")
    own, other = (MaskedLMBatches(Corpus.open(f), 2, 20, **layout) for f in (corpora[1], texts / "en"))
    model.evaluate(own, verbose=0)
    with pytest.raises(ValueError, match="read with the tokenizer that wrote it"):
        model.fit(other, verbose=0)
    for data in (other, MixtureBatches({"own": own, "other": other}, batch_size=2, steps=2), Phases([own, other])):
        with pytest.raises(ValueError, match="read with the tokenizer that wrote it"):
            model.evaluate(data, verbose=0)
    model.tokenizer = None  # the ids cannot be compared
    assert np.isfinite(model.evaluate(other, verbose=0, return_dict=True)["loss"])


def test_layers_are_transferred(corpora, tmp_path):
    small = ["model.num_layers=1", "model.hidden_dim=16", "model.num_heads=2", "model.embedding_dim=8"]
    common = (*RUN, *WARMUP, *small, "model.feed_forward_dim=24", "data.rows.passes=2")
    teacher, run = tmp_path / "teacher", tmp_path / "run"
    recipe = find_recipe("mobilebert.tiny_teacher").with_settings([*common, "model.bottleneck_dim=32"])
    make_model(recipe, Corpus.open(corpora[0])).save_to_preset(teacher / "model")
    changes = ("model.bottleneck_dim=8", "model.objective.transfer_steps=2")
    changes += (f"teacher={teacher / 'model'}",)
    last = pretrain(
        corpora[0], run, "mobilebert.tiny", corpora[1], held_out_steps=2, report_every=2, set=(*common, *changes)
    )
    assert check(run, last).sentence_pair is not None
    # A recipe counts updates, the objective batches.
    recipe = find_recipe("mobilebert.tiny").with_settings([*common, *changes, "accumulation=2"])
    assert make_model(recipe, Corpus.open(corpora[0])).transfer_steps == 4


def test_a_memory_is_part_of_a_resumed_run(texts, tmp_path):
    run, recipe = tmp_path / "run", "transformer_xl.tiny"
    later = ("evaluation.length=8", "evaluation.config.memory_length=24", "evaluation.config.same_length=true")
    changes = (*settings(recipe), *later)
    options = dict(held_out=texts / "held_out", held_out_steps=2, report_every=2, set=changes)
    first = pretrain(texts / "en", run, recipe, **options)
    check(run, first)
    whole = weights_of(run / "model")
    for path in run.glob("checkpoints/step_00000004*"):
        path.unlink()
    shutil.rmtree(run / "model")
    last = pretrain(texts / "en", run, recipe, **options)
    assert last["val_loss"] == first["val_loss"]
    for ours, theirs in zip(weights_of(run / "model"), whole, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    # The evaluation of the trained model has a longer memory and shorter segments.
    found = evaluate(str(run / "model"), corpus=texts / "held_out")["loss"]
    model = kerasbert.load(run / "model", memory_length=24, same_length=True)
    rows = find_recipe(recipe).with_settings([*changes, "held_out.length=8"])
    batches = evaluation_batches(rows, Corpus.open(texts / "held_out"), 2)
    model.compile("sgd")
    model.start_memory(rows.phases[0].batch_size, False)
    assert found == pytest.approx(model.evaluate(batches, verbose=0, return_dict=True)["loss"], rel=1e-6)
    assert found != pytest.approx(last["val_loss"], rel=1e-6)


def test_averages_of_weights_are_what_is_saved(finished_run, corpora, tmp_path):
    changes = (*BERT, "optimizer.use_ema=true", "optimizer.ema_momentum=0.5")
    run = tmp_path / "run"
    pretrain(corpora[0], run, report_every=2, set=changes)
    first = weights_of(run / "model")
    shutil.rmtree(run / "model")
    pretrain(corpora[0], run, report_every=2, set=changes)
    for ours, theirs in zip(weights_of(run / "model"), first, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    plain = weights_of(finished_run[0] / "model")  # the same run without averages
    assert any(np.abs(ours - theirs).max() > 1e-6 for ours, theirs in zip(plain, first, strict=True))
