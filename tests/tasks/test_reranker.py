"""Rerankers: scores and folders against sentence-transformers' `CrossEncoder`, and the path from texts to the loss."""

import json

import keras
import numpy as np
import pytest
from keras import ops

import kerasbert
from kerasbert import models, retrieval
from kerasbert.data import Tokenizer
from kerasbert.exporting.worker import write
from kerasbert.retrieval import ListMLE, SampledNegatives
from kerasbert.runtime import open_export
from kerasbert.tasks import Reranker, TextClassifier, TextEmbedder
from kerasbert.training import add_lora
from tests.models.reference import randomize, to_numpy

PAIRS = [
    ("who met Bob ?", "Ann met Bob in Bonn"), ("Rome", "the cat sat in Rome"), ("a dog", ""), ("", "a cat met a dog"),
    ("where lives Ann ? " * 9, "in Rome lives Bob"), ("a cat", "Ann lives in Rome . " * 9),
    ("who lives in Bonn ? " * 7, "Bob lives in Bonn . " * 9),
]  # fmt: skip
MODULES = "torch.nn.modules"
LOGIT_SCORE = "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"
QUERY, DOCUMENTS = "who met Bob ?", ["the cat sat in Rome", "Ann met Bob in Bonn", "in Rome lives Bob", "a dog"]
LISTS = [
    ("who met Bob ?", ["Ann met Bob in Bonn", "a cat met a dog", "the cat sat in Rome", "in Rome lives Bob"]),
    ("where lives Ann ?", ["Bob lives in Bonn .", "Ann lives in Rome ."]),
    ("a dog", ["the cat sat in Rome", "a cat met a dog", "Ann met Bob in Bonn"]),
]
LABELS = [[2, 0, 1, 0], [0, 1], [0, 2, 1]]
FAMILIES = {
    "Bert": {}, "Roberta": {"num_segments": 2}, "DebertaV2": {"distance_buckets": 8}, "Electra": {"embedding_dim": 16},
    "ModernBert": {"pad_id": 0}, "DistilBert": {}, "Albert": {"embedding_dim": 16},
}  # fmt: skip


@pytest.fixture
def reranker(tokenizer, tiny_backbone):
    """A function that makes a small reranker, whose scores differ."""

    def make(family="Bert", dropout=0.0, **options):
        if family == "Bert":
            backbone = tiny_backbone(num_layers=2, num_heads=4, dropout=dropout, attention_dropout=dropout)
        else:
            cls = getattr(models, family)
            sizes = dict(num_layers=1, num_heads=2, hidden_dim=32, feed_forward_dim=48, max_length=32)
            backbone = cls(cls.family.config(vocabulary_size=tokenizer.vocabulary_size, **sizes, **FAMILIES[family]))
        return randomize(Reranker(backbone, tokenizer=tokenizer, **options), 0.3)

    return make


def cross_encoder(folder, **options):
    from sentence_transformers import CrossEncoder

    return CrossEncoder(str(folder), device="cpu", **options)


# === Scores, and folders both ways ===


@pytest.mark.one_backend
@pytest.mark.parametrize("family", FAMILIES)
def test_families_and_folders_both_ways(family, reranker, tmp_path):
    ours = reranker(family)
    ours.save_to_preset(tmp_path / "ours")
    theirs = cross_encoder(tmp_path / "ours")
    expected = theirs.predict(PAIRS)
    assert np.ptp(expected) > 1e-3 and theirs.max_seq_length == 32
    np.testing.assert_allclose(ours.score(PAIRS), expected, atol=1e-5)
    theirs.save_pretrained(str(tmp_path / "theirs"))
    again = kerasbert.load(tmp_path / "theirs")
    assert type(again) is Reranker and again.max_length == 32
    np.testing.assert_allclose(again.score(PAIRS), expected, atol=1e-5)
    found = theirs.rank(QUERY, DOCUMENTS, top_k=3, return_documents=True)
    ranked = again.rank(QUERY, DOCUMENTS, top_k=3)
    assert [(row["index"], row["text"]) for row in ranked] == [(row["corpus_id"], row["text"]) for row in found]
    np.testing.assert_allclose([row["score"] for row in ranked], [row["score"] for row in found], atol=1e-5)


@pytest.mark.one_backend
def test_every_activation():
    import torch

    from kerasbert.tasks.activations import ACTIVATIONS, activation_of, torch_path

    values = np.random.default_rng(0).normal(0, 3, (40, 3)).astype("float32")
    for name, (_, function) in ACTIVATIONS.items():
        path = torch_path(name)
        kind = getattr(torch.nn, path.rpartition(".")[2])
        assert f"{kind.__module__}.{kind.__name__}" == path and activation_of(path, "") == name
        options = {"dim": -1} if name in ("softmax", "log_softmax", "softmin") else {}
        expected = kind(**options)(torch.tensor(values)).numpy()
        np.testing.assert_allclose(to_numpy(function(ops.convert_to_tensor(values))), expected, atol=1e-5, err_msg=name)
    assert activation_of("torch.nn.Sigmoid", "") == "sigmoid"


@pytest.mark.one_backend
@pytest.mark.parametrize(("labels", "activation"), [(1, None), (1, "tanh"), (3, None), (["a", "b"], "softmax")])
def test_labels_activations_and_prompts(labels, activation, reranker, tmp_path):
    prompts = kerasbert.tasks.Prompts({"question": "who met ", "none": ""}, "question")
    ours = reranker(labels=labels, activation=activation, prompts=prompts, lowercase=True)
    ours.save_to_preset(tmp_path / "ours")
    (tmp_path / "ours" / "kerasbert.json").unlink()
    theirs = cross_encoder(tmp_path / "ours")
    theirs.save_pretrained(str(tmp_path / "theirs"))
    for model in (ours, kerasbert.load(tmp_path / "ours"), kerasbert.load(tmp_path / "theirs")):
        for prompt in (None, "question", "none"):
            expected = theirs.predict(PAIRS, prompt_name=prompt)
            np.testing.assert_allclose(model.score(PAIRS, prompt=prompt), expected, atol=1e-5)
        assert (model.labels, model.activation, model.prompts) == (ours.labels, ours.activation, ours.prompts)
    default, none = (np.array(theirs.predict(PAIRS, prompt_name=name)) for name in (None, "none"))
    assert np.abs(default - none).max() > 1e-3
    np.testing.assert_allclose(model.score(PAIRS[0], prompt="none"), expected[0], atol=1e-5)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("written", "activation"),
    [
        ({"sentence_transformers": {"activation_fn": f"{MODULES}.linear.Identity", "version": "4.1.0"}}, "identity"),
        ({"sbert_ce_default_activation_function": f"{MODULES}.linear.Identity"}, "identity"),
        ({"sbert_ce_default_activation_function": f"{MODULES}.activation.Sigmoid"}, "sigmoid"),
        ({}, "sigmoid"),
    ],
)  # fmt: skip
def test_older_layouts_and_plain_classifiers(written, activation, reranker, tmp_path):
    reranker().save_to_preset(tmp_path)
    for name in ("kerasbert.json", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
        (tmp_path / name).unlink()
    config = json.loads((tmp_path / "config.json").read_text())
    block = config.pop("sentence_transformers")  # in which versions 4 and 5 find the activation
    assert block["activation_fn"] == f"{MODULES}.activation.Sigmoid"
    (tmp_path / "config.json").write_text(json.dumps({**config, **written}))
    assert type(kerasbert.load(tmp_path)) is (Reranker if written else TextClassifier)
    ours = Reranker.from_preset(tmp_path)
    assert ours.activation == activation
    np.testing.assert_allclose(ours.score(PAIRS), cross_encoder(tmp_path).predict(PAIRS), atol=1e-5)
    classifier = TextClassifier.from_preset(tmp_path)
    assert classifier.problem == "score"
    np.testing.assert_allclose(classifier.predict(PAIRS, verbose=0), ours.predict(PAIRS, verbose=0), atol=1e-6)


@pytest.mark.one_backend
def test_transformers_reads_the_folder_as_a_classifier(reranker, tmp_path):
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    ours = reranker(labels=3)
    ours.save_to_preset(tmp_path)
    tokenizer, theirs = (cls.from_pretrained(tmp_path) for cls in (AutoTokenizer, AutoModelForSequenceClassification))
    encoded = tokenizer(*map(list, zip(*PAIRS, strict=True)), padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        np.testing.assert_allclose(ours.predict(PAIRS, verbose=0), theirs(**encoded).logits.numpy(), atol=1e-5)
    encoder = Reranker.from_preset(tmp_path, labels=1)  # another number of outputs, so another head
    assert encoder.labels == ["LABEL_0"] and encoder.activation == "identity"


@pytest.mark.one_backend
def test_folders_that_are_refused(reranker, tmp_path):
    reranker().save_to_preset(tmp_path)
    (tmp_path / "kerasbert.json").unlink()
    files = ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json")
    transformer, settings, model = (json.loads((tmp_path / name).read_text()) for name in files)
    score = {"idx": 1, "name": "1", "path": "1_LogitScore", "type": LOGIT_SCORE}
    for number, content, message in [
        (0, [*transformer, score], r"a Transformer module alone.*'Transformer', 'LogitScore'"),
        (
            1,
            {**settings, "transformer_task": "text-generation"},
            "`transformer_task` in .*Received: 'text-generation'",
        ),
        (
            1,
            {**settings, "processing_kwargs": {"text": {"a": 1}}},
            "must leave the model and the tokenizer",
        ),
        (2, {**model, "activation_fn": "torch.nn.GLU"}, "one of torch.nn: .*'torch.nn.GLU'"),
        (2, {**model, "activation_fn": "mine.Sigmoid"}, "Received: 'mine.Sigmoid'"),
        (2, {**model, "activation_fn": 3}, "`activation_fn` in .* must be str"),
        (2, {**model, "default_prompt_name": "x"}, "`default` must be one of the prompts"),
    ]:
        name = files[number]
        before = (tmp_path / name).read_text()
        (tmp_path / name).write_text(json.dumps(content))
        with pytest.raises(ValueError, match=message):
            kerasbert.load(tmp_path)
        (tmp_path / name).write_text(before)


@pytest.mark.one_backend
def test_saved_arguments_and_a_fresh_head_for_an_encoder(reranker, tokenizer, tmp_path):
    loss = retrieval.LambdaLoss(k=5, weighting="ndcg2", chunk=2)
    ours = reranker(objective=loss, max_length=20, prompts={"query": "q: "})
    ours.save_to_preset(tmp_path / "ours")
    again = kerasbert.load(tmp_path / "ours")
    assert again.objective == loss and again.max_length == 20 and again.prompts == ours.prompts
    np.testing.assert_array_equal(again.score(PAIRS), ours.score(PAIRS))
    TextEmbedder(ours.backbone, tokenizer=tokenizer).save_to_preset(tmp_path / "encoder")
    with pytest.warns(UserWarning, match="new head"):
        fresh = Reranker.from_preset(tmp_path / "encoder")
    assert (fresh.labels, fresh.activation) == (["LABEL_0"], "sigmoid")
    ours.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "model.keras").score(PAIRS), ours.score(PAIRS))


@pytest.mark.one_backend
def test_half_precision_and_the_onnx_engine(reranker, tmp_path):
    ours = reranker(prompts=kerasbert.tasks.Prompts({"query": "who met "}, "query"))
    ours.save_to_preset(tmp_path / "folder")
    half = Reranker.from_preset(tmp_path / "folder", dtype="mixed_bfloat16")
    assert half.score(PAIRS).dtype == "float32" and np.abs(half.score(PAIRS) - ours.score(PAIRS)).max() < 0.1
    (tmp_path / "export").mkdir()
    write(ours, tmp_path / "export", "onnx")
    engine = kerasbert.load(tmp_path / "export")
    assert type(engine) is Reranker
    np.testing.assert_allclose(engine.score(PAIRS), ours.score(PAIRS), atol=1e-5)
    assert [row["index"] for row in engine.rank(QUERY, DOCUMENTS)] == [
        row["index"] for row in ours.rank(QUERY, DOCUMENTS)
    ]
    np.testing.assert_allclose(engine.predict(LISTS), ours.predict(LISTS, verbose=0), atol=1e-5)
    without_keras = open_export(tmp_path / "export")
    np.testing.assert_allclose(without_keras.answer(PAIRS), ours.score(PAIRS), atol=1e-5)
    found = without_keras.answer(PAIRS, activate=False)
    np.testing.assert_allclose(found, ours.predict([("who met " + a, b) for a, b in PAIRS])[:, 0], atol=1e-5)


# === From texts to the loss ===


def first_loss(model, x, y, batch_size=16):
    """The loss of the first batch of texts in training, as a tensor."""
    inputs, labels, weights = model.text_batches(x, y, None, batch_size, 1, 0, True)[0]
    outputs = model(inputs, training=True)
    return model.compute_loss(inputs, labels, outputs, ops.convert_to_tensor(weights), training=True)


def gradients(model, loss, folder):
    """The gradients of all weights, by the names of Hugging Face: saved in place of the weights."""
    import torch
    from safetensors.numpy import load_file

    variables = model.trainable_variables
    found = torch.autograd.grad(loss, [v.value for v in variables], allow_unused=True, materialize_grads=True)
    before = [to_numpy(variable) for variable in variables]
    for variable, gradient in zip(variables, found, strict=True):
        variable.assign(gradient)
    model.save_to_preset(folder)
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)
    return load_file(folder / "model.safetensors")


TRIPLES = [(query, *documents[:2]) for query, documents in LISTS]
OF_PAIRS = [(query, document) for query, documents in LISTS for document in documents]
FLAT = [label / 2 for labels in LABELS for label in labels]


def cases():
    """{name: (our loss, examples, labels, class and options of their loss)}"""
    from sentence_transformers.cross_encoder import losses

    return {
        "bce": ("BinaryCrossEntropy", OF_PAIRS, FLAT, losses.BinaryCrossEntropyLoss, {}),
        "mse": ("MeanSquaredError", OF_PAIRS, FLAT, losses.MSELoss, {}),
        "margin": ("ScoreMarginMSE", TRIPLES, [[0.5], [1.0], [-2.0]], losses.MarginMSELoss, {}),
        "all": (SampledNegatives(None), TRIPLES, None, losses.MultipleNegativesRankingLoss, dict(num_negatives=None)),
        "list_net": ("ListNet", LISTS, LABELS, losses.ListNetLoss, {}),
        "list_mle": (ListMLE(keep_order=False), LISTS, LABELS, losses.ListMLELoss, dict(respect_input_order=False)),
        "p_list_mle": ("PListMLE", LISTS, LABELS, losses.PListMLELoss, {}),
        "lambda": ("LambdaLoss", LISTS, [[2, 0, 1, -1], *LABELS[1:]], losses.LambdaLoss, {}),
        "rank_net": ("RankNet", LISTS, LABELS, losses.RankNetLoss, {}),
        "adr_mse": ("ADRMSE", LISTS, LABELS, losses.ADRMSELoss, {}),
    }  # fmt: skip


@pytest.mark.one_backend
@pytest.mark.parametrize("name", cases())
def test_losses_and_gradients_from_texts(name, reranker, tmp_path):
    import torch

    loss, x, y, kind, options = cases()[name]
    ours = reranker(objective=loss)
    ours.save_to_preset(tmp_path / "weights")
    theirs = cross_encoder(tmp_path / "weights")
    theirs.train()
    is_list = isinstance(x[0][1], list)
    columns = [list(column) for column in zip(*x, strict=True)]
    labels = None if y is None else [torch.tensor(row) for row in y] if is_list else torch.tensor(y).squeeze(-1)
    expected = kind(theirs, **options)(columns, labels)
    expected.backward()
    value, expected = first_loss(ours, x, y), float(expected.detach())
    np.testing.assert_allclose(float(value.detach()), expected, rtol=1e-5)
    found = gradients(ours, value, tmp_path / "gradients")
    wanted = {key: p.grad.numpy() for key, p in theirs.transformers_model.named_parameters() if p.grad is not None}
    assert len(wanted) > 30 and max(np.abs(gradient).max() for gradient in wanted.values()) > 1e-3
    for key, gradient in wanted.items():
        np.testing.assert_allclose(found[key], gradient, atol=1e-5 * max(1.0, expected), err_msg=key)


@pytest.mark.one_backend
def test_cross_entropy_of_classes_from_texts(reranker, tmp_path):
    import torch
    from sentence_transformers.cross_encoder import losses

    ours = reranker(labels=["no", "maybe", "yes"])
    ours.save_to_preset(tmp_path)
    theirs = cross_encoder(tmp_path)
    columns, classes = [list(column) for column in zip(*OF_PAIRS, strict=True)], [2, 0, 1, 0, 1, 2, 0, 1, 1]
    expected = losses.CrossEntropyLoss(theirs)(columns, torch.tensor(classes))
    names = [ours.labels[number] for number in classes]
    for y in (classes, names):
        value = first_loss(ours, OF_PAIRS, y)
        np.testing.assert_allclose(float(value.detach()), float(expected.detach()), rtol=1e-5)


@pytest.mark.backends("torch", "jax")  # the gradients of chunks are tested on TensorFlow with embedders
def test_chunks_leave_the_loss_unchanged(reranker):
    """With dropout, too, and with random documents of the batch."""
    losses = []
    for chunk in (None, 2):
        model = reranker(dropout=0.3, objective=SampledNegatives(count=2, chunk=chunk))
        model.compile(keras.optimizers.SGD(0.1))
        kerasbert.backend.seed_everything(1)
        history = model.fit(TRIPLES, batch_size=3, epochs=3, verbose=0)
        losses.append(history.history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-4)


@pytest.mark.one_backend
def test_documents_of_the_batch():
    """A sampled document that equals the positive is left out, and rows that are missing give no documents."""
    from kerasbert.data.batches.document_lists import DocumentLists, Lists

    tokenizer = Tokenizer.train("wordpiece", ["a b c d e f g h"] * 9, vocabulary_size=21)
    queries, lists = ["a", "b", "c"], [["d"], ["e f"], ["d"]]
    choose = SampledNegatives(count=None).documents
    batches = DocumentLists(Lists(tokenizer, queries, lists, 8, choose), batch_size=4, shuffle=False)
    x, _, weights = batches[0]
    assert x["token_ids"].shape == (4, 3, 8) and weights.tolist() == [1, 1, 1, 0]
    assert x["lengths"].tolist() == [[5, 6, 0], [6, 5, 5], [5, 0, 6], [0, 0, 0]]
    decoded = [tokenizer.decode(row[:n]) for row, n in zip(x["token_ids"][1], x["lengths"][1], strict=True)]
    assert [text.split() for text in decoded] == [["b", "e", "f"], ["b", "d"], ["b", "d"]]
    halves = [batches.shard(i, 2)[0][0]["lengths"] for i in range(2)]
    np.testing.assert_array_equal(np.concatenate(halves), x["lengths"])
    sampled = SampledNegatives(count=1).documents
    batches = DocumentLists(Lists(tokenizer, queries * 3, lists * 3, 8, sampled), batch_size=4, epochs=2)
    lengths = [batches[step][0]["lengths"] for step in range(6)]
    assert all(part.shape == (4, 2) for part in lengths)
    again = [batches.starting_at(step)[0][0]["lengths"] for step in range(6)]
    np.testing.assert_array_equal(lengths, again)
    assert len({batches[step][0]["token_ids"].tobytes() for step in range(6)}) == 6
    small = DocumentLists(Lists(tokenizer, ["a b c d"], [["e", "a b c d e f g h"]], 7), batch_size=1)
    assert small[0][0]["lengths"].tolist() == [[7, 7]] and small[0][0]["segment_ids"][0].sum(1).tolist() == [2, 3]
    with pytest.raises(ValueError, match="`max_length` must leave space.*Use at least 5"):
        Lists(tokenizer, queries, lists, 4)


@pytest.mark.one_backend
def test_it_learns_which_document_answers(reranker):
    """With random documents of the batch, and with LoRA: a document answers a query with the same first word."""
    words = ["Ann", "Bob", "cat", "dog", "Rome", "Bonn"]
    pairs = [(f"{word} lives", f"{word} met a cat in") for word in words]
    model = reranker(objective="SampledNegatives")
    model.compile(keras.optimizers.Adam(3e-3))
    model.fit(pairs, batch_size=6, epochs=40, verbose=0)
    ranked = [model.rank(query, [document for _, document in pairs], top_k=1)[0]["index"] for query, _ in pairs]
    assert sum(place == found for place, found in enumerate(ranked)) >= 5
    before = model.evaluate(pairs, batch_size=6, verbose=0)
    add_lora(model, rank=2)
    model.compile(keras.optimizers.Adam(1e-2))
    model.fit(pairs, batch_size=6, epochs=10, verbose=0)
    assert model.evaluate(pairs, batch_size=6, verbose=0) < before


def test_predict_and_evaluate(reranker):
    model = reranker(objective="ListNet")
    lists = model.predict(LISTS, verbose=0)
    assert lists.shape == (3, 4) and lists.dtype == "float32"
    flat = model.predict(OF_PAIRS, verbose=0)[:, 0]
    real = [count > place for count in (4, 2, 3) for place in range(4)]
    np.testing.assert_allclose(lists.ravel()[real], flat, atol=1e-5)
    np.testing.assert_allclose(model.score(OF_PAIRS), 1 / (1 + np.exp(-flat)), atol=1e-6)
    logits = [flat[:4], flat[4:6], flat[6:]]
    expected = 0.0
    for y, s in zip(LABELS, logits, strict=True):
        target = np.exp(y) / np.exp(y).sum()
        expected -= (target * (s - np.logaddexp.reduce(s))).sum() / 3
    np.testing.assert_allclose(model.evaluate(LISTS, LABELS, batch_size=8, verbose=0), expected, rtol=1e-5)
    columns = tuple(map(list, zip(*LISTS, strict=True)))
    np.testing.assert_allclose(model.evaluate(columns, LABELS, batch_size=8, verbose=0), expected, rtol=1e-5)
    assert model.score([]).shape == (0,) and model.rank(QUERY, []) == []
    same = model.rank(QUERY, ["a dog", "Rome", "a dog"])
    places = [row["index"] for row in same if row["text"] == "a dog"]
    assert places == [0, 2]


# === Bad input ===


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("objective", "x", "y", "message"),
    [
        ("BinaryCrossEntropy", TRIPLES, [1, 0, 1], "needs 2 texts per example. Received: 3"),
        ("BinaryCrossEntropy", OF_PAIRS[:2], None, "needs labels: one number from 0 to 1 per pair"),
        ("BinaryCrossEntropy", OF_PAIRS[:2], [0, 2], "must lie between 0 and 1. Received: 2.0"),
        ("BinaryCrossEntropy", OF_PAIRS[:2], [1, 1], "with different labels. Received: 1.0 for all"),
        ("BinaryCrossEntropy", OF_PAIRS[:2], [1, 0, 1], r"must have the shape \(2,\)"),
        ("BinaryCrossEntropy", ["a", "b"], [1, 0], r"An example must be \(query, document\).*'a', as example 0"),
        ("BinaryCrossEntropy", [("a dog",)] * 2, [1, 0], "An example must be"),
        ("BinaryCrossEntropy", [("a", "b"), ("a", "")], [1, 0], "text 1 of example 1"),
        ("BinaryCrossEntropy", [(" ", "b"), ("a", "b")], [1, 0], "text 0 of example 0"),
        ("MeanSquaredError", OF_PAIRS[:2], [1, np.nan], "must be finite"),
        ("ScoreMarginMSE", OF_PAIRS, [1.0] * 9, "needs 3 or more texts per example. Received: 2"),
        ("ScoreMarginMSE", TRIPLES, [[1.0, 2, 3]] * 3, r"must have the shape \(3,\) or \(3, 2\)"),
        ("ScoreMarginMSE", [("a", "b", "c"), ("a", "b")], [1, 1], "the same number of documents. Received: 2 .* 1 in"),
        ("SampledNegatives", OF_PAIRS[:1], None, "a batch of one example"),
        ("SampledNegatives", [OF_PAIRS[0]] * 3, None, "3 equal examples"),
        ("SampledNegatives", OF_PAIRS, FLAT, "has no labels besides the texts"),
        ("SampledNegatives", LISTS, None, "the same number of documents. Received: 4 in example 0, but 2 in example 1"),
        ("ListNet", LISTS, None, "needs labels: per query a list of numbers"),
        ("ListNet", LISTS, LABELS[:2], "a list of labels for each of the 3 queries. Received: 2"),
        ("ListNet", LISTS, [[1, 0], [1, 0], [1, 0]], "Received: 2 labels for 4 documents, in example 0"),
        ("ListNet", LISTS, [1, 0, 1], "Received: 1 for 4 documents, in example 0"),
        ("LambdaLoss", LISTS, [[1] * 4, [0] * 2, [2] * 3], "documents of a query with different labels"),
        ("LambdaLoss", [("a", []), ("b", ["c"])], [[], [1]], "Received: none, in example 0"),
        ("LambdaLoss", OF_PAIRS[:2], [[1], [0]], "one document for every query"),
        ("RankNet", [("a", ["b", 3])], [[1, 0]], "An example must be"),
    ],
)
def test_training_data_that_do_not_fit_are_refused(objective, x, y, message, reranker):
    model = reranker(objective=objective)
    before = to_numpy(model.trainable_variables[0])
    with pytest.raises(ValueError, match=message):
        model.fit(x, y, batch_size=4, verbose=0)
    np.testing.assert_array_equal(to_numpy(model.trainable_variables[0]), before)


@pytest.mark.one_backend
def test_arguments_that_are_refused(reranker):
    model, classes = reranker(), reranker(labels=3)
    for call, message in [
        (lambda: reranker(objective="CoSENT"), "a loss on scores, such as Binary.*Received: CoSENT, on vectors"),
        (lambda: reranker(objective="CrossEntropy"), "needs several scores per pair.*1 outputs"),
        (lambda: reranker(labels=2, objective="ListNet"), "needs one score per pair.*2 outputs"),
        (lambda: reranker(activation="glu"), "`activation` must be one of identity, sigmoid"),
        (lambda: model.compile("adam", loss="mse"), "The loss of a Reranker is its `objective`"),
        (lambda: model.score(["a", "b"]), r"Every pair must be \(query, document\).*'a', as pair 0"),
        (lambda: model.score([("a", "b", "c")]), "Every pair must be"),
        (lambda: model.score([("a", "b")], prompt="x"), "`prompt` must be one of"),
        (lambda: model.rank("a", "b"), "must be a list of str. Received: one str"),
        (lambda: model.rank(["a"], ["b"]), "`query` must be a str"),
        (lambda: model.rank("a", ["b"], top_k=0), "`top_k` must be an integer of at least 1"),
        (lambda: classes.rank("a", ["b"]), "one score per pair. Received: a model with 3 outputs"),
        (lambda: classes.predict(LISTS), "Lists of documents need one score per pair"),
        (lambda: classes.fit(OF_PAIRS, [3, 0, 1] * 3), "Targets must be indices from 0 to 2.*Received: 3"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            call()
