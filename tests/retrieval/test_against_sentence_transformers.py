"""Losses and the gradients of all weights against sentence-transformers itself, on a random batch of a tiny BERT."""

import json

import keras
import numpy as np
import pytest

from kerasbert.retrieval import (
    GIST,
    AnglE,
    BatchAll,
    BatchHard,
    BatchHardSoftMargin,
    BatchSemiHard,
    Contrastive,
    CoSENT,
    CosineSimilarity,
    DistillKL,
    EmbeddingMSE,
    MarginMSE,
    Matryoshka,
    MegaBatchMargin,
    MultipleNegatives,
    OnlineContrastive,
    Triplet,
)
from kerasbert.tasks import TextEmbedder

pytestmark = pytest.mark.one_backend  # the peer is in PyTorch; the golden cases are for all backends

ROWS, LENGTH, WIDTH = 6, 11, 24
DIRECTIONS = ("query_to_doc", "doc_to_query", "doc_to_doc", "query_to_query")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of sentence-transformers with a tiny BERT and mean pooling, without dropout."""
    import torch
    import transformers

    folder = tmp_path_factory.mktemp("peer")
    sizes = dict(num_hidden_layers=2, num_attention_heads=3, hidden_size=WIDTH, intermediate_size=40, vocab_size=61)
    dropout = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    torch.manual_seed(0)
    config = transformers.BertConfig(**sizes, **dropout, max_position_embeddings=16, initializer_range=0.3)
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(56))]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    kinds = ["Transformer", "Pooling"]
    types = [f"sentence_transformers.models.{kind}" for kind in kinds]
    modules = [{"idx": i, "name": str(i), "path": ["", "1_Pooling"][i], "type": types[i]} for i in range(2)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


@pytest.fixture(scope="module")
def models(folder):
    import sentence_transformers

    return TextEmbedder.from_preset(folder), sentence_transformers.SentenceTransformer(str(folder), device="cpu")


def batch(columns):
    """Columns of texts, each (ids, mask) of texts of different lengths."""
    rng = np.random.default_rng(columns)
    found = []
    for _ in range(columns):
        mask = np.arange(LENGTH) < rng.integers(4, LENGTH + 1, (ROWS, 1))
        found.append((np.where(mask, rng.integers(5, 61, (ROWS, LENGTH)), 0), mask))
    return found


def numbers(*shape, low=-1.0):
    return np.random.default_rng(7).uniform(low, 1, shape).astype("float32")


def cases():
    """{name: (our loss, number of columns, labels, name and options of their loss)}"""
    from sentence_transformers.sentence_transformer import losses
    from sentence_transformers.sentence_transformer.losses import BatchHardTripletLossDistanceFunction as OfBatch
    from sentence_transformers.sentence_transformer.losses import SiameseDistanceMetric, TripletDistanceMetric

    binary, classes = np.array([1, 0, 1, 0, 0, 1]), np.array([0, 0, 1, 1, 2, 2])
    far, cosine = dict(distance_metric=OfBatch.eucledian_distance), SiameseDistanceMetric.COSINE_DISTANCE
    both = dict(directions=DIRECTIONS, partition_mode="joint")
    hard = dict(hardness_mode="all_negatives", hardness_strength=5.0)
    return {
        "ranking": (MultipleNegatives(), 3, None, losses.MultipleNegativesRankingLoss, {}),
        "directions": (MultipleNegatives(directions=DIRECTIONS), 2, None, losses.MultipleNegativesRankingLoss, both),
        "hardness": (
            MultipleNegatives(hardness="all_negatives", hardness_strength=5.0),
            4,
            None,
            losses.MultipleNegativesRankingLoss,
            hard,
        ),
        "gist": (
            GIST(temperature=0.05, margin=0.02),
            3,
            "guide",
            losses.GISTEmbedLoss,
            dict(temperature=0.05, margin=0.02),
        ),
        "cosent": (CoSENT(), 2, numbers(ROWS), losses.CoSENTLoss, {}),
        "angle": (AnglE(), 2, numbers(ROWS), losses.AnglELoss, {}),
        "cosine": (CosineSimilarity(), 2, numbers(ROWS), losses.CosineSimilarityLoss, {}),
        "contrastive": (Contrastive(), 2, binary, losses.ContrastiveLoss, dict(distance_metric=cosine)),
        "online": (OnlineContrastive(), 2, binary, losses.OnlineContrastiveLoss, dict(distance_metric=cosine)),
        "triplet": (
            Triplet(5.0),
            3,
            None,
            losses.TripletLoss,
            dict(distance_metric=TripletDistanceMetric.EUCLIDEAN, triplet_margin=5.0),
        ),
        "hard": (BatchHard(), 1, classes, losses.BatchHardTripletLoss, {**far, "margin": 5}),
        "soft": (BatchHardSoftMargin(), 1, classes, losses.BatchHardSoftMarginTripletLoss, far),
        "semi_hard": (BatchSemiHard(), 1, classes, losses.BatchSemiHardTripletLoss, {**far, "margin": 5}),
        "all": (BatchAll(), 1, classes, losses.BatchAllTripletLoss, {**far, "margin": 5}),
        "mega": (MegaBatchMargin(), 2, None, losses.MegaBatchMarginLoss, dict(use_mini_batched_version=False)),
        "margin_mse": (MarginMSE(), 4, numbers(ROWS, 3), losses.MarginMSELoss, {}),
        "kl": (DistillKL(2.0), 4, numbers(ROWS, 3), losses.DistillKLDivLoss, dict(temperature=2.0)),
        "mse": (EmbeddingMSE(), 2, numbers(ROWS, WIDTH), losses.MSELoss, {}),
        "matryoshka": (
            Matryoshka(CoSENT(), [24, 7]),
            2,
            numbers(ROWS),
            losses.MatryoshkaLoss,
            dict(loss=losses.CoSENTLoss, matryoshka_dims=[24, 7]),
        ),
    }


def theirs_of(model, kind, options, columns, labels):
    """Their loss and the gradients by name."""
    import torch

    options = dict(options)
    if "loss" in options:
        options["loss"] = options["loss"](model)
    if kind.__name__ == "GISTEmbedLoss":
        options["guide"] = model
    loss = kind(model, **options)
    features = [{"input_ids": torch.tensor(i), "attention_mask": torch.tensor(m).long()} for i, m in columns]
    model.zero_grad()
    value = loss(features, None if labels is None else torch.tensor(labels))
    value.backward()
    gradients = {name.removeprefix("0.model."): p.grad for name, p in model.named_parameters() if p.grad is not None}
    return float(value.detach()), {name: gradient.numpy().copy() for name, gradient in gradients.items()}


def ours_of(model, loss, columns, labels, folder):
    """Our loss and the gradients by the names of Hugging Face: saved in place of the weights."""
    import torch
    from safetensors.numpy import load_file

    ids = np.stack([ids for ids, _ in columns], axis=1).astype("int32")
    vectors = model({"token_ids": ids, "padding_mask": np.stack([mask for _, mask in columns], axis=1)})
    value = loss([vectors[:, i] for i in range(len(columns))], labels)
    variables = model.trainable_variables
    gradients = torch.autograd.grad(value, [v.value for v in variables], allow_unused=True, materialize_grads=True)
    before = [keras.ops.convert_to_numpy(variable) for variable in variables]
    for variable, gradient in zip(variables, gradients, strict=True):
        variable.assign(gradient)
    model.save_to_preset(folder)
    for variable, value_before in zip(variables, before, strict=True):
        variable.assign(value_before)
    return float(value.detach()), load_file(folder / "model.safetensors")


@pytest.mark.parametrize("name", cases())
def test_losses_and_gradients_of_all_weights(name, models, tmp_path):
    loss, count, labels, kind, options = cases()[name]
    ours, theirs = models
    columns = batch(count)
    expected, wanted = theirs_of(theirs, kind, options, columns, None if isinstance(labels, str) else labels)
    if isinstance(labels, str):
        ids, mask = (np.stack([column[i] for column in columns], axis=1) for i in range(2))
        vectors = ours({"token_ids": ids.astype("int32"), "padding_mask": mask})
        labels = keras.ops.convert_to_numpy(vectors.detach())
    value, found = ours_of(ours, loss, columns, labels, tmp_path / "gradients")
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
    found = {name.removeprefix("bert."): array for name, array in found.items()}
    assert len(wanted) > 30 and np.abs(list(wanted.values())[5]).max() > 0
    for key, gradient in wanted.items():
        np.testing.assert_allclose(found[key], gradient, rtol=1e-4, atol=1e-5 * max(1, expected), err_msg=key)
