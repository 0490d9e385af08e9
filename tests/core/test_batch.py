"""The documented batch contract says what models do, and so does the page about it."""

import ast
import dataclasses
import inspect
import re

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert import models, objectives, tasks
from kerasbert.core import BATCH_KEYS, Batch
from kerasbert.core.batch import DTYPES, key_table
from kerasbert.core.inputs import HELP
from tests.conftest import REPOSITORY
from tests.models.reference import to_numpy

pytestmark = pytest.mark.one_backend

FAMILIES = sorted({cls.__name__ for cls in models.FAMILIES.values() if cls.__module__.startswith("kerasbert.")})
SIZES = dict(vocabulary_size=31, num_layers=1, num_heads=2, hidden_dim=12, feed_forward_dim=16, max_length=16)
# Configs in which a family reads everything that it can read.
CONFIGS = {
    "Albert": [dict(embedding_dim=8)],
    "Deberta": [dict(absolute_positions=True, num_segments=2)],
    "DebertaV2": [dict(absolute_positions=True, num_segments=2, distance_buckets=8)],
    "GPTBert": [dict(distance_buckets=8)],
    "Elmo": [
        dict(characters=False, cell_dim=8),
        dict(characters=True, cell_dim=8, character_dim=4, filters=((1, 3), (2, 4)), num_highways=1),
    ],
    "Gte": [dict(num_segments=2)],
    "JinaEmbeddingsV3": [dict(num_segments=2)],
    "MobileBert": [dict(embedding_dim=6, bottleneck_dim=8)],
    "Roberta": [dict(num_segments=2)],
    "Seq2SeqAttention": [dict(embedding_dim=6, alignment_dim=5, output_dim=6)],
    "T5": [dict(head_dim=6), dict(head_dim=6, architecture="prefix_language_model")],
    "TransformerXL": [dict(head_dim=6, cutoffs=(), memory_length=4)],
    "XLM": [dict(num_languages=3)],
    "XLNet": [dict(memory_length=4)],
}

RNG = np.random.default_rng(0)
ROW, HALVES = np.ones((2, 6), "int32"), np.array([[1, 1, 1, 2, 2, 2]] * 2, "int32")
# Key -> two values of it.
VALUES = {
    "token_ids": RNG.integers(6, 31, (2, 2, 6)),
    "padding_mask": (ROW > 0, np.arange(6) < np.array([[6], [4]])),
    "lengths": ([6, 6], [6, 4]),
    "segment_ids": (ROW * 0, HALVES - 1),
    "position_ids": (ROW * np.arange(6), ROW * np.arange(6)[::-1]),
    "language_ids": (ROW * 0, ROW),
    "sequence_ids": (HALVES, [[1, 1, 2, 2, 2, 0]] * 2),
    "first_positions": ([[0, 3]] * 2, [[3, 0]] * 2),
    "character_ids": RNG.integers(1, 200, (2, 2, 6, 5)),
    "context_ids": RNG.integers(0, 31, (2, 2, 3)),
    "masked_positions": ([[1, -1]] * 2, [[2, -1]] * 2),
    "original_ids": ([[7, 0]] * 2, [[8, 0]] * 2),
    "span_left": ([[0, -1]] * 2, [[1, -1]] * 2),
    "span_right": ([[2, -1]] * 2, [[3, -1]] * 2),
    "span_offset": ([[0, -1]] * 2, [[1, -1]] * 2),
    "query_ranks": (ROW, [[0, 1, 1, 1, 1, 1]] * 2),
    "key_ranks": ([[0, 0, 0, 0, 0, 1]] * 2, [[1, 0, 0, 0, 0, 1]] * 2),
    "permutation_mask": (np.zeros((2, 6, 6)), np.triu(np.ones((2, 6, 6)), 1)),
    "prefix_mask": (ROW * 0, HALVES == 1),
    "causal_rows": ([0, 0], [0, 1]),
    "backward": ([0, 0], [0, 1]),
    "stream_start": ([0, 0], [1, 0]),
    "memory": RNG.normal(size=(2, 2, 1, 4, 12)),
    "memory_mask": (np.ones((2, 4)), np.arange(4) > ROW[:, :4]),
    "decoder_token_ids": RNG.integers(6, 31, (2, 2, 4)),
    "decoder_padding_mask": (np.ones((2, 4)), np.arange(4) < np.array([[4], [3]])),
    "decoder_lengths": ([4, 4], [4, 3]),
    "decoder_position_ids": (ROW[:, :4] * np.arange(4), ROW[:, :4] * np.arange(4)[::-1]),
    "decoder_sequence_ids": ([[1, 1, 2, 2]] * 2, [[1, 2, 2, 2]] * 2),
    "decoder_visible": (np.ones((2, 6, 6)), np.tril(np.ones((2, 6, 6)))),
    "loss_normalizer": ([1, 1], [2, 2]),
}
# Key -> other keys without which it has no effect, or is not allowed.
NEEDED = {
    "sequence_ids": ["decoder_sequence_ids"],
    "decoder_sequence_ids": ["sequence_ids"],
    "first_positions": ["sequence_ids", "decoder_sequence_ids"],
    "masked_positions": ["query_ranks", "key_ranks", "original_ids"],
    "original_ids": ["masked_positions"],
    "query_ranks": ["key_ranks"],
    "key_ranks": ["query_ranks"],
    "stream_start": ["memory"],
    "memory_mask": ["memory"],
}
NUMPY = {"int32": "int32", "bool": "bool", "float": "float32"}


def make(name):
    """Backbones of a family with random weights, so that everything that is read has an effect."""
    cls = getattr(models, name)
    known = {field.name for field in dataclasses.fields(cls.family.config)}
    rng = np.random.default_rng(1)
    for fields in CONFIGS.get(name, [{}]):
        config = cls.family.config(**{key: size for key, size in SIZES.items() if key in known}, **fields)
        backbone = cls(config, **({"pooler": True} if "pooler" in inspect.signature(cls.__init__).parameters else {}))
        for variable in backbone.weights:
            variable.assign(rng.normal(0, 0.5, variable.shape))
        yield backbone


def batch(keys, changed=None):
    return {
        key: np.asarray(VALUES[key][int(key == changed)], NUMPY[BATCH_KEYS[key].dtype])
        for key in {"token_ids": 0, "character_ids": 0, **dict.fromkeys(keys)}
    }


def has_effect(backbone, key, keys):
    """Whether the outputs depend on `key`; False if the backbone refuses packed rows."""
    try:
        outputs = [keras.tree.flatten(backbone(batch([*keys, key], changed))) for changed in (None, key)]
    except ValueError as error:
        assert "Received: packed rows" in str(error)
        return False
    one, other = ([to_numpy(array) for array in arrays if array is not None] for arrays in outputs)
    assert len(one) == len(other)
    return any((a != b).any() for a, b in zip(one, other, strict=True))


def are_named(names, text):
    """Which of the names "all", "all but Elmo, T5" or "Elmo, T5" covers."""
    found = {name for name in names if re.search(rf"\b{name}\b", text)}
    return set(names) - found if text.startswith("all") else found


@pytest.mark.parametrize("name", FAMILIES)
def test_backbones_read_the_keys_of_the_table(name):
    found = set()
    for backbone in make(name):
        # With decoder inputs and, if they are optional, without.
        for half in [["decoder_token_ids"], []] if name in ("Bart", "T5") else [["decoder_token_ids"]]:
            for key in BATCH_KEYS:
                keys = [other for other in NEEDED.get(key, []) if half or not other.startswith("decoder_")]
                if (half or not key.startswith("decoder_")) and has_effect(backbone, key, [*half, *keys]):
                    found.add(key)
    assert found == {key for key, described in BATCH_KEYS.items() if are_named([name], described.backbones)}


def test_every_name_in_the_table_is_public():
    for described in BATCH_KEYS.values():
        for text, modules in ((described.backbones, [models]), (described.objectives, [objectives, tasks])):
            names = re.sub(r"^(all but|all|none)", "", text).replace(" ", "")
            for name in filter(None, names.split(",")):
                assert any(name in module.__all__ for module in modules), name
        assert described.kind in DTYPES and (described.shape or "b")[0] == "b"
        assert described.meaning.endswith(".") and "|" not in described.meaning


def keys_read(folder):
    """The keys of `inputs` and `x` in a folder of the package; a key after a prefix counts as one without."""
    for path in sorted((REPOSITORY / "kerasbert" / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Subscript):
                owner, key = node.value, node.slice
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "get"
                and node.args
            ):
                owner, key = node.func.value, node.args[0]
            else:
                continue
            key = key.right if isinstance(key, ast.BinOp) else key
            if isinstance(owner, ast.Name) and owner.id in ("inputs", "x") and isinstance(key, ast.Constant):
                if isinstance(key.value, str):
                    yield key.value


def test_every_key_that_is_read_is_in_the_table():
    found = {key for folder in ("core", "layers", "models", "objectives") for key in keys_read(folder)}
    assert found <= set(BATCH_KEYS), found - set(BATCH_KEYS)
    assert {"token_ids", "padding_mask", "lengths", "span_offset", "character_ids", "loss_normalizer"} <= found


def test_the_type_has_the_keys_of_the_table():
    assert list(Batch.__annotations__) == list(BATCH_KEYS)
    assert Batch.__required_keys__ == {"token_ids"}
    for key in BATCH_KEYS:
        assert f"\n        {key}: " in Batch.__doc__


def test_messages_name_something_that_helps():
    assert eval(HELP.removeprefix("help"), {"kerasbert": kerasbert}) is Batch
    bert = next(make("Bert"))
    ids = VALUES["token_ids"][0].astype("int32")
    for wrong in (
        ids,
        {"padding_mask": ids > 0},
        {"token_ids": ids, "zzz": ids},
        {"token_ids": ids, "lengths": ids[:1, 0]},
    ):
        with pytest.raises(ValueError, match=re.escape(HELP)):
            bert.check_inputs(wrong)


def test_the_page_has_the_table():
    page = (REPOSITORY / "docs" / "batches.md").read_text(encoding="utf-8")
    table = "".join(line for line in page.splitlines(keepends=True) if line.startswith("|"))
    assert table == key_table(), "write the result of kerasbert.core.batch.key_table() into docs/batches.md"


def test_the_example_of_the_page_runs():
    page = (REPOSITORY / "docs" / "batches.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {}
    exec(code, names)
    assert names["logits"].shape == (2, 2, 10) and np.isfinite(names["loss"])
