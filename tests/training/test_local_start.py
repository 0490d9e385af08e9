"""`start_with_local_attention`: heads attend to the token at their offset, before any training."""

import keras
import numpy as np
import pytest

from kerasbert.data import Corpus, Tokenizer
from kerasbert.models import (
    GPT2,
    Albert,
    AlbertConfig,
    Bert,
    BertConfig,
    DistilBert,
    DistilBertConfig,
    Electra,
    ElectraConfig,
    GPT2Config,
    ModernBert,
    ModernBertConfig,
    Roberta,
    RobertaConfig,
)
from kerasbert.training import start_with_local_attention
from pipelines.recipes.recipe import find_recipe
from pipelines.runs.building import make_model

SIZES = dict(vocabulary_size=50, num_layers=3, num_heads=4, hidden_dim=256, max_length=64, initializer_range=0.06)
OFFSETS = (-1, 1, -2, 2)
IDS = np.random.default_rng(0).integers(5, 50, (2, 24), "int32")
BACKBONES = {
    "bert": lambda: Bert(BertConfig(**SIZES, feed_forward_dim=32)),
    "roberta": lambda: Roberta(RobertaConfig(**SIZES, feed_forward_dim=32)),
    "distilbert": lambda: DistilBert(DistilBertConfig(**SIZES, feed_forward_dim=32)),
    "albert": lambda: Albert(AlbertConfig(**SIZES, feed_forward_dim=32, embedding_dim=128)),
    "electra": lambda: Electra(ElectraConfig(**SIZES, feed_forward_dim=32, embedding_dim=128)),
}


def attention_weights(backbone):
    outputs = backbone({"token_ids": IDS}, attention_weights=True)
    return [keras.ops.convert_to_numpy(weights) for weights in outputs["attention_weights"]]


def share_at(weights, offset):
    """Mean attention probability of the key at a distance, over the queries that have one."""
    return np.diagonal(weights, offset, axis1=-2, axis2=-1).mean()


@pytest.mark.parametrize("name", BACKBONES)
def test_heads_attend_to_the_token_at_their_offset(name):
    keras.utils.set_random_seed(0)
    backbone = BACKBONES[name]()
    before = attention_weights(backbone)
    start_with_local_attention(backbone, num_blocks=min(2, len(backbone.blocks)))  # ALBERT has one, which is shared
    after = attention_weights(backbone)
    for head, offset in enumerate(OFFSETS):
        assert share_at(before[0][:, head], offset) < 0.1
        assert share_at(after[0][:, head], offset) > 0.25
        others = [share_at(after[0][:, head], other) for other in range(-6, 7) if other != offset]
        assert max(others) < 0.7 * share_at(after[0][:, head], offset)
    assert name == "albert" or share_at(after[1][:, 0], -1) > 0.12  # positions are still visible after one block


def test_gpt2_attends_to_the_left():
    keras.utils.set_random_seed(0)
    backbone = GPT2(GPT2Config(**SIZES, feed_forward_dim=32))
    start_with_local_attention(backbone, num_blocks=1, offsets=(-1, -2))
    weights = attention_weights(backbone)[0]
    assert share_at(weights[:, 0], -1) > 0.25 and share_at(weights[:, 1], -2) > 0.25
    assert share_at(weights[:, 2], -1) > 0.25, "offsets repeat"


@pytest.mark.one_backend
def test_only_the_table_and_the_named_blocks_change():
    keras.utils.set_random_seed(0)
    backbone = BACKBONES["bert"]()
    before = {v.path: np.array(keras.ops.convert_to_numpy(v)) for v in backbone.variables}
    start_with_local_attention(backbone, num_blocks=2, deviation=0.1)
    changed = {v.path for v in backbone.variables if not np.array_equal(before[v.path], keras.ops.convert_to_numpy(v))}
    kernels = {f"{backbone.name}/block_{i}/attention/{part}/kernel" for i in (0, 1) for part in ("query", "key")}
    assert changed == {f"{backbone.name}/position_embedding/embeddings", *kernels}
    table = keras.ops.convert_to_numpy(backbone.position_embedding.embeddings)
    np.testing.assert_allclose(np.sqrt(np.mean(table**2, axis=1)), 0.1, rtol=1e-5)  # sin^2 + cos^2 = 1


@pytest.mark.one_backend
def test_a_strength_of_zero_changes_only_the_table():
    backbone = BACKBONES["bert"]()
    kernel = np.array(keras.ops.convert_to_numpy(backbone.blocks[0].attention.query.kernel))
    start_with_local_attention(backbone, strength=0.0)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(backbone.blocks[0].attention.query.kernel), kernel)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "make, options, message",
    [
        (
            lambda: Albert(AlbertConfig(**SIZES, embedding_dim=258, feed_forward_dim=32)),
            {},
            r"at most that of the hidden states.*Albert has: \(64, 258\) for hidden states of width 256",
        ),
        (
            lambda: ModernBert(ModernBertConfig(vocabulary_size=50, num_layers=2, num_heads=2, hidden_dim=16)),
            {},
            "ModernBert has: none. Models with relative or rotary positions do not need",
        ),
        (BACKBONES["bert"], {"num_blocks": 4}, "the number of blocks, 3. Received: 4"),
        (BACKBONES["bert"], {"offsets": ()}, "at least one distance"),
    ],
)
def test_bad_arguments(make, options, message):
    with pytest.raises(ValueError, match=message):
        start_with_local_attention(make(), **options)


@pytest.mark.one_backend
def test_a_recipe_can_ask_for_the_start(tmp_path):
    documents = ["The cat sat on the mat.", "A dog ran home."] * 20
    tokenizer = Tokenizer.train("wordpiece", documents, vocabulary_size=40, lowercase=True)
    corpus = Corpus.write(tmp_path / "corpus", documents, tokenizer)
    sizes = ["model.num_layers=2", "model.hidden_dim=64", "model.num_heads=2", "model.feed_forward_dim=64"]
    for settings, same_length in ((["model.start=none"], False), (["local_start.num_blocks=1"], True)):
        model = make_model(find_recipe("bert.tiny").with_settings([*sizes, *settings]), corpus)
        table = keras.ops.convert_to_numpy(model.backbone.position_embedding.embeddings)
        assert (np.std(np.linalg.norm(table, axis=1)) < 1e-6) == same_length
