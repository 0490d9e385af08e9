"""XLNet against transformers, both ways: two streams, permutations, memory, segments; its invariances."""

import json

import keras
import numpy as np
import pytest

from kerasbert.models import Backbone, XLNet, XLNetConfig
from kerasbert.models.xlnet.xlnet import SIZES
from kerasbert.objectives import CausalLM, PermutationLM
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TokenClassifier
from tests.models.reference import (
    BATCH,
    CHOICES,
    LENGTH,
    PADDINGS,
    check_batch_invariance,
    check_gradients,
    check_keras_file,
    check_outputs,
    check_packing,
    check_padding_invariance,
    check_way_back,
    example,
    randomize,
    their_model,
    to_numpy,
)

TINY = dict(vocabulary_size=61, num_layers=3, num_heads=3, hidden_dim=24, feed_forward_dim=40)
MEMORY = 7

# Theirs -> ours, and how theirs names the output.
HEADS = {
    "XLNetModel": (Backbone, {"sequence_output": "last_hidden_state"}),
    "XLNetLMHeadModel": (PermutationLM, {"": "logits"}),
    "XLNetForSequenceClassification": (TextClassifier, {"": "logits"}),
    "XLNetForTokenClassification": (TokenClassifier, {"": "logits"}),
    "XLNetForQuestionAnsweringSimple": (QuestionAnswerer, {"start": "start_logits", "end": "end_logits"}),
    "XLNetForMultipleChoice": (MultipleChoice, {"": "logits"}),
}


def their_config(**changes):
    import transformers

    return transformers.XLNetConfig(
        **{
            **dict(vocab_size=61, d_model=24, n_layer=3, n_head=3, d_inner=40, pad_token_id=4, layer_norm_eps=1e-7),
            **dict(mem_len=MEMORY),
            **changes,
        }
    )


@pytest.fixture
def backbone():
    return randomize(XLNet(XLNetConfig(**TINY, memory_length=MEMORY)))


def permutation(rows=BATCH, length=LENGTH, slots=4, seed=2):
    """A random order of `slots` targets of each row, as ranks: the other tokens see one another and no target."""
    rng = np.random.default_rng(seed)
    positions = np.sort(np.stack([rng.permutation(length)[:slots] for _ in range(rows)]).astype("int32"), axis=1)
    keys = np.full((rows, length), -1, "int32")
    np.put_along_axis(keys, positions, np.stack([rng.permutation(slots) for _ in range(rows)]).astype("int32"), axis=1)
    return {"query_ranks": np.maximum(keys, 0), "key_ranks": keys, "masked_positions": positions}


def as_theirs(inputs):
    """Permutation and slots as transformers takes them."""
    hidden = inputs["query_ranks"][:, :, None] <= inputs["key_ranks"][:, None, :]
    mapping = np.eye(hidden.shape[1], dtype="float32")[inputs["masked_positions"]]
    return {"perm_mask": hidden.astype("float32"), "target_mapping": mapping}


def call_theirs(theirs, **inputs):
    import torch

    def tensor(value):
        return value if isinstance(value, (list, bool)) else torch.tensor(np.asarray(value))

    with torch.no_grad():
        return theirs(**{key: tensor(value) for key, value in inputs.items()})


# === Against transformers ===


@pytest.mark.one_backend
@pytest.mark.parametrize("class_name", HEADS)
def test_heads_equal_transformers_both_ways(class_name, tmp_path):
    cls, names = HEADS[class_name]
    labels = dict(num_labels=5) if "Classification" in class_name else {}
    theirs = their_model(class_name, their_config(**labels), tmp_path / "theirs")
    ours = cls.from_preset(tmp_path / "theirs")
    choices = CHOICES if cls is MultipleChoice else 0
    # Their summary reads the last column, ours the last token.
    paddings = PADDINGS if cls is Backbone else ("left",) if cls in (TextClassifier, MultipleChoice) else ("right",)
    for padding in paddings:
        check_outputs(ours, theirs, theirs.config, names, padding, choices=choices, num_segments=4)
    if cls is Backbone:
        check_outputs(ours, theirs, theirs.config, names, "left")
    check_way_back(ours, theirs, tmp_path / "ours")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, marks=pytest.mark.optimized),
        pytest.param({"attn_type": "uni", "ff_activation": "gelu_new"}, marks=pytest.mark.one_backend),
        {"attn_type": "uni", "same_length": True, "clamp_len": 5, "reuse_len": 9},
        pytest.param(
            {"bi_data": True, "clamp_len": 4, "reuse_len": 6, "ff_activation": "relu"}, marks=pytest.mark.one_backend
        ),
    ],
    ids=["bi", "uni", "same_length", "bi_data"],
)
def test_two_streams_and_memory_equal_transformers(changes, tmp_path):
    """Three segments, each with the memory of those before; segments, a permutation and slots in the second and third.

    The first has as many tokens as the memory has slots: theirs has no slots that are empty.
    """
    theirs = their_model("XLNetModel", their_config(**changes), tmp_path)
    backbone = Backbone.from_preset(tmp_path)
    rows = 1 if backbone.config.causal else BATCH  # with more, theirs cannot add a permutation to its causal mask
    memory, mems = backbone.empty_memory(rows), None
    rng = np.random.default_rng(4)
    for step, length in enumerate((9, LENGTH, LENGTH)):
        ids = rng.integers(0, 61, (rows, length)).astype("int32")
        segments = rng.integers(0, 3, ids.shape).astype("int32")
        extra = permutation(rows, length, seed=step) if step else {}
        inputs = {"token_ids": ids, "segment_ids": segments, **extra, **memory}
        if step == 0 and theirs.config.same_length:
            inputs = {key: value for key, value in inputs.items() if "memory" not in key}
        found = backbone(inputs, hidden_states=True, attention_weights=True)
        given = dict(as_theirs(extra) if extra else {}, input_ids=ids, token_type_ids=segments, use_mems=True)
        if mems is not None:
            given["mems"] = mems
        expected = call_theirs(theirs, **given, output_hidden_states=True, output_attentions=True)
        name = "query_output" if extra else "sequence_output"
        np.testing.assert_allclose(to_numpy(found[name]), to_numpy(expected.last_hidden_state), atol=1e-5)
        for one, other in zip(found["hidden_states"], expected.hidden_states[:: 2 if extra else 1], strict=True):
            np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-5)
        for one, other in zip(found["attention_weights"], expected.attentions, strict=True):
            other = to_numpy(other[0] if extra else other)
            np.testing.assert_allclose(to_numpy(one)[..., -other.shape[-1] :], other, atol=1e-5)
        mems = list(expected.mems)
        if "memory" in found:
            memory = {key: found[key] for key in ("memory", "memory_mask")}
            held = mems[0].shape[0]
            assert to_numpy(found["memory_mask"]).sum() == rows * held
            for layer, theirs_held in enumerate(mems):
                ours_held = to_numpy(found["memory"])[:, layer, MEMORY - held :]
                np.testing.assert_allclose(ours_held, to_numpy(theirs_held).transpose(1, 0, 2), atol=1e-5)
        else:
            stacked = np.stack([to_numpy(held) for held in mems]).transpose(2, 0, 1, 3)
            memory = {"memory": stacked, "memory_mask": np.ones((rows, MEMORY), bool)}


@pytest.mark.one_backend
def test_the_language_model_equals_theirs_at_its_slots(tmp_path):
    theirs = their_model("XLNetLMHeadModel", their_config(), tmp_path)
    model = PermutationLM.from_preset(tmp_path)
    ours, inputs, real = example(61, "left", pad_id=4)
    order = permutation(length=7)
    order = {key: np.pad(value, ((0, 0), (LENGTH - 7, 0)), constant_values=-1) for key, value in order.items()}
    order["masked_positions"] = np.maximum(permutation(length=7)["masked_positions"], 0) + LENGTH - 7
    order["query_ranks"] = np.maximum(order["query_ranks"], 0)
    expected = call_theirs(theirs, **as_theirs(order), **inputs).logits
    np.testing.assert_allclose(to_numpy(model({**ours, **order})), to_numpy(expected), atol=1e-5)
    dense = {"permutation_mask": order["query_ranks"][:, :, None] <= order["key_ranks"][:, None, :]}
    found = to_numpy(model({**ours, **dense, "masked_positions": order["masked_positions"]}))
    np.testing.assert_allclose(found, to_numpy(expected), atol=1e-5)


@pytest.mark.one_backend
def test_shared_query_vectors_are_written_for_every_block(tmp_path):
    model = randomize(XLNet(XLNetConfig(**TINY, untied_queries=False)))
    model.save_to_preset(tmp_path)
    again = XLNet.from_preset(tmp_path)
    assert again.config == model.config and again.count_params() == model.count_params()
    assert model.count_params() == XLNet(XLNetConfig(**TINY)).count_params() - 2 * 3 * 24
    ids = example(61, "none")[0]
    np.testing.assert_array_equal(to_numpy(again(ids)["sequence_output"]), to_numpy(model(ids)["sequence_output"]))
    import transformers

    theirs = transformers.XLNetModel.from_pretrained(tmp_path).eval()
    expected = call_theirs(theirs, input_ids=ids["token_ids"].astype("int64")).last_hidden_state
    np.testing.assert_allclose(to_numpy(model(ids)["sequence_output"]), to_numpy(expected), atol=1e-5)


@pytest.mark.one_backend
def test_tied_queries_of_theirs_are_each_blocks_own(tmp_path):
    """They have the switch `untie_r` and read it nowhere."""
    theirs = their_model("XLNetModel", their_config(untie_r=False), tmp_path / "theirs")
    ours = XLNet.from_preset(tmp_path / "theirs")
    assert ours.config.untied_queries
    ids = example(61, "none")[0]["token_ids"]
    expected = call_theirs(theirs, input_ids=ids.astype("int64")).last_hidden_state
    np.testing.assert_allclose(to_numpy(ours({"token_ids": ids})["sequence_output"]), to_numpy(expected), atol=1e-5)


@pytest.mark.one_backend
def test_the_beam_search_head_of_theirs_is_refused(tmp_path):
    their_model("XLNetForQuestionAnswering", their_config(), tmp_path)
    with pytest.raises(ValueError, match="XLNetForQuestionAnsweringSimple"):
        QuestionAnswerer.from_preset(tmp_path)


@pytest.mark.one_backend
@pytest.mark.parametrize("switch", [{"summary_type": "mean"}, {"summary_use_proj": False}])
def test_what_we_do_not_have_is_refused(switch, tmp_path):
    XLNet(XLNetConfig(**TINY)).save_to_preset(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **switch}))
    with pytest.raises(ValueError, match=f"with {next(iter(switch))}="):
        XLNet.from_preset(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, "attn_type": "both"}))
    with pytest.raises(ValueError, match="must be one of bi, uni. Received: 'both'"):
        XLNet.from_preset(tmp_path)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({"mem_len": None, "use_mems_eval": False}, dict(memory_length=None)),
        ({"mem_len": 0, "reuse_len": 0, "clamp_len": 0}, dict(memory_length=None, reuse_length=None)),
        ({"mem_len": -1, "reuse_len": -1, "use_mems_eval": False}, dict(memory_length=None, reuse_length=None)),
        ({"mem_len": 9, "reuse_len": 4, "use_mems_train": True}, dict(memory_length=9, reuse_length=4)),
        ({"attn_type": "bi", "same_length": True, "clamp_len": 3}, dict(same_length=True, clamp_length=3)),
        ({"attn_type": "uni", "same_length": True}, dict(same_length=True, causal=True)),
    ],
)
def test_lengths_in_configs(stored, expected, tmp_path):
    """What is no length is no limit; whether theirs uses a memory is a matter of its call, as ours of its batch."""
    theirs = their_model("XLNetModel", their_config(**stored), tmp_path / "theirs")
    ours = XLNet.from_preset(tmp_path / "theirs")
    plain = dict(memory_length=MEMORY, reuse_length=None, clamp_length=None, same_length=False, causal=False)
    assert {name: getattr(ours.config, name) for name in plain} == {**plain, **expected}
    ids = example(61, "none")[0]["token_ids"]
    wanted = call_theirs(theirs, input_ids=ids.astype("int64")).last_hidden_state
    np.testing.assert_allclose(to_numpy(ours({"token_ids": ids})["sequence_output"]), to_numpy(wanted), atol=1e-5)
    ours.save_to_preset(tmp_path / "ours")
    assert XLNet.from_preset(tmp_path / "ours").config == ours.config


# === What each stream sees ===


@pytest.mark.one_backend
def test_a_query_sees_what_stands_before_it_in_the_order_and_never_itself(backbone):
    """Every position is a target, in a random order: a change shows where the order says, and nowhere else."""
    ids = example(61, "none")[0]["token_ids"][:1]
    order = np.random.default_rng(0).permutation(LENGTH).astype("int32")[None]
    slots = np.arange(LENGTH, dtype="int32")[None]
    rows = np.repeat(ids, LENGTH + 1, axis=0)
    rows[np.arange(LENGTH), np.arange(LENGTH)] = (rows[np.arange(LENGTH), np.arange(LENGTH)] + 7) % 61
    inputs = {"query_ranks": order, "key_ranks": order, "masked_positions": slots}
    inputs = {key: np.repeat(value, LENGTH + 1, axis=0) for key, value in inputs.items()}
    outputs = backbone({"token_ids": rows, **inputs})
    for name, sees in (
        ("query_output", order[0][:, None] > order[0]),
        ("sequence_output", order[0][:, None] >= order[0]),
    ):
        found = to_numpy(outputs[name])
        moved = np.abs(found[:-1] - found[-1]).max(axis=-1)  # (token that was changed, position)
        np.testing.assert_array_equal(moved > 1e-5, sees.T, err_msg=name)


@pytest.mark.one_backend
def test_the_first_of_an_order_knows_its_place_alone(backbone):
    ids = example(61, "none")[0]["token_ids"]
    order = np.argsort(np.random.default_rng(1).random((BATCH, LENGTH)), axis=1).astype("int32")
    first = order.argmin(axis=1).astype("int32")[:, None]
    outputs = backbone({"token_ids": ids, "query_ranks": order, "key_ranks": order, "masked_positions": first})
    found = to_numpy(outputs["query_output"])
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


@pytest.mark.one_backend
def test_ranks_and_the_dense_mask_are_the_same(backbone):
    ids, order = example(61, "right")[0], permutation(slots=3)
    order["masked_positions"][1] = -1
    dense = {"permutation_mask": order["query_ranks"][:, :, None] <= order["key_ranks"][:, None, :]}
    one = backbone({**ids, **order})
    other = backbone({**ids, **dense, "masked_positions": order["masked_positions"]})
    for name in ("sequence_output", "query_output"):
        np.testing.assert_allclose(to_numpy(one[name]), to_numpy(other[name]), atol=1e-6)


@pytest.mark.one_backend
def test_rows_that_run_backward_are_mirrored(backbone):
    """A row and its mirror image, said to run backward, in one batch; and by default the second half."""
    ids = example(61, "none")[0]["token_ids"][:1]
    segments = np.array([[0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2]], "int32")
    inputs = {
        "token_ids": np.concatenate([ids, ids[:, ::-1]]),
        "segment_ids": np.concatenate([segments, segments[:, ::-1]]),
        "backward": np.array([False, True]),
    }
    found = to_numpy(backbone(inputs)["sequence_output"])
    np.testing.assert_allclose(found[0], found[1][::-1], atol=1e-5)
    assert (
        np.abs(found[0] - to_numpy(backbone({**inputs, "backward": ~inputs["backward"]})["sequence_output"][0])).max()
        > 1e-2
    )
    halves = randomize(XLNet(XLNetConfig(**TINY, bidirectional_data=True)))
    del inputs["backward"]
    np.testing.assert_allclose(to_numpy(halves(inputs)["sequence_output"]), found, atol=1e-5)


@pytest.mark.one_backend
def test_a_causal_model_with_memory_equals_the_long_context():
    """Two halves with a memory that reaches to the start; only the first block sees no further than its slots."""
    backbone = randomize(XLNet(XLNetConfig(**TINY, causal=True, memory_length=8)))
    ids = np.random.default_rng(0).integers(0, 61, (2, 16)).astype("int32")
    whole = to_numpy(backbone({"token_ids": ids})["sequence_output"])
    memory, parts = backbone.empty_memory(2), []
    for start in (0, 8):
        outputs = backbone({"token_ids": ids[:, start : start + 8], **memory})
        memory = {key: outputs[key] for key in memory}
        parts.append(to_numpy(outputs["sequence_output"]))
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, atol=1e-5)


@pytest.mark.one_backend
def test_a_slot_beside_the_memory_sees_all_of_it(backbone):
    ids, order = example(61, "none")[0], permutation()
    memory = {"memory": np.random.default_rng(3).normal(size=(BATCH, 3, MEMORY, 24)).astype("float32")}
    mask = np.ones((BATCH, MEMORY), bool)
    base = to_numpy(backbone({**ids, **order, **memory, "memory_mask": mask})["query_output"])
    changed = {"memory": memory["memory"].copy()}
    changed["memory"][:, :, 0] += 1.0
    assert (np.abs(base - to_numpy(backbone({**ids, **order, **changed})["query_output"])).max(axis=-1) > 1e-4).all()
    mask[:, 0] = False
    hidden = [to_numpy(backbone({**ids, **order, **m, "memory_mask": mask})["query_output"]) for m in (memory, changed)]
    np.testing.assert_array_equal(*hidden)


# === Invariances ===


@pytest.mark.one_backend
def test_invariances(backbone):
    check_batch_invariance(backbone)
    check_padding_invariance(backbone, left=True)
    check_packing(backbone)


@pytest.mark.one_backend
def test_two_streams_are_invariant_to_batch_and_padding(backbone):
    ids, order = example(61, "none")[0]["token_ids"], permutation()
    segments = np.random.default_rng(6).integers(0, 3, ids.shape).astype("int32")
    inputs = {"token_ids": ids, "segment_ids": segments, **order}
    whole = to_numpy(backbone(inputs)["query_output"])
    one = to_numpy(backbone({key: value[1:] for key, value in inputs.items()})["query_output"])
    np.testing.assert_allclose(one, whole[1:], atol=1e-5)
    junk = np.random.default_rng(7).integers(0, 3, (BATCH, 5)).astype("int32")
    for left in (True, False):
        padded = {
            key: np.concatenate([junk, value] if left else [value, junk], axis=1)
            for key, value in inputs.items()
            if key != "masked_positions"
        }
        padded["padding_mask"] = np.arange(LENGTH + 5) >= 5 if left else np.arange(LENGTH + 5) < LENGTH
        padded["padding_mask"] = np.repeat(padded["padding_mask"][None], BATCH, axis=0)
        padded["masked_positions"] = order["masked_positions"] + (5 if left else 0)
        np.testing.assert_allclose(to_numpy(backbone(padded)["query_output"]), whole, atol=1e-5)


@pytest.mark.one_backend
def test_classifiers_read_the_last_token_wherever_padding_is():
    model = randomize(TextClassifier(XLNet(XLNetConfig(**TINY))))
    ids = example(61, "none")[0]["token_ids"]
    plain = to_numpy(model({"token_ids": ids}))
    for left in (True, False):
        padded = np.pad(ids, ((0, 0), (3, 0) if left else (0, 3)))
        real = np.pad(np.ones_like(ids, bool), ((0, 0), (3, 0) if left else (0, 3)))
        np.testing.assert_allclose(to_numpy(model({"token_ids": padded, "padding_mask": real})), plain, atol=1e-5)


@pytest.mark.one_backend
@pytest.mark.parametrize("dtype", ["float16", "mixed_bfloat16"])
def test_half_precision_is_finite(dtype):
    """With a row of nothing but padding; both streams and an empty memory; and the content stream alone."""
    backbone = XLNet(XLNetConfig(**{**TINY, "num_layers": 1}, memory_length=MEMORY), dtype=dtype)
    ids = example(61, "none")[0]["token_ids"]
    inputs = {"token_ids": ids, "segment_ids": ids % 3, "padding_mask": np.array([[True], [False]]) & (ids >= 0)}
    whole = backbone({**inputs, **permutation(), **backbone.empty_memory(BATCH)})
    for output in (
        backbone(inputs)["sequence_output"],
        *(whole[n] for n in ("sequence_output", "query_output", "memory")),
    ):
        assert np.isfinite(to_numpy(keras.ops.cast(output, "float32"))).all()


# === Weights ===


@pytest.mark.one_backend
@pytest.mark.parametrize(("name", "parameters"), [("xlnet_base", 116_718_336), ("xlnet_large", 360_268_800)])
def test_sizes_are_the_papers(name, parameters):
    assert closed_form(XLNetConfig(**SIZES[name])) == parameters


def closed_form(config):
    m, f = config.hidden_dim, config.feed_forward_dim
    block = 5 * m * m + 3 * m + 2 * m + 2 * m * f + f + m + 4 * m
    return config.vocabulary_size * m + m + config.num_layers * block


@pytest.mark.one_backend
def test_layers_and_parameters_agree_with_the_closed_form():
    config = XLNetConfig(**TINY)
    assert XLNet(config).count_params() == closed_form(config)


@pytest.mark.one_backend
def test_initial_weights_are_normal_with_the_configs_range():
    wide = XLNet(XLNetConfig(**{**TINY, "num_layers": 1, "hidden_dim": 192, "vocabulary_size": 300}))
    attention = wide.blocks[0].attention
    for weights in (wide.token_embedding.embeddings, attention.distance.kernel, attention.project.kernel):
        assert abs(to_numpy(weights).std() - 0.02) < 0.0006
    small = [
        attention.relative_queries.content,
        attention.segment_embedding.embeddings,
        wide.query_embedding.embeddings,
    ]
    for weights in small:
        assert abs(to_numpy(weights).std() - 0.02) < 0.004
    assert not np.array_equal(to_numpy(attention.query.kernel), to_numpy(attention.key.kernel))


def test_every_weight_gets_a_gradient():
    quiet = XLNet(XLNetConfig(**TINY, dropout=0.0))
    x = {"token_ids": np.random.default_rng(0).integers(0, 61, (2, 23)).astype("int32")}
    x["segment_ids"] = (x["token_ids"] % 3).astype("int32")
    labels = np.random.default_rng(1).integers(0, 3, (2, 23)).astype("int32")
    model = randomize(TokenClassifier(quiet, labels=3))
    check_gradients(model, (x, labels))
    table = quiet.query_embedding.embeddings  # only a query stream reads it
    assert not any(variable is table for variable in model.trainable_variables)
    assert any(variable is table for variable in PermutationLM(quiet).trainable_variables)


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    check_keras_file(randomize(TextClassifier(XLNet(XLNetConfig(**TINY, untied_queries=False)))), tmp_path)


# === Bad input ===


@pytest.mark.one_backend
def test_bad_input_is_an_error(backbone):
    ids, order = example(61, "none")[0], permutation()
    everything = np.ones((BATCH, LENGTH, LENGTH), bool)
    for wrong, message in (
        ({"query_ranks": order["query_ranks"]}, "by `query_ranks` and `key_ranks`, or by `permutation_mask`"),
        ({**order, "permutation_mask": everything}, "Received: query_ranks, key_ranks, permutation_mask"),
        ({"permutation_mask": everything[:, 1:]}, r"\(2, 11, 11\). Received: \(2, 10, 11\)"),
        ({"permutation_mask": everything}, "hides everything in row 0"),
        ({"permutation_mask": everything & ~np.eye(LENGTH, dtype=bool)}, "hides everything in row 0"),
        ({**order, "key_ranks": order["key_ranks"] + 9}, "hides everything"),
        ({"memory": np.zeros((BATCH, 3, 6, 24), "float32")}, "`memory` must be"),
        ({"memory": np.zeros((BATCH, 3, MEMORY, 24), "int32")}, "`memory` must be"),
    ):
        with pytest.raises(ValueError, match=message):
            backbone({**ids, **wrong})
    with pytest.raises(ValueError, match="Received: 3 rows"):
        XLNet(XLNetConfig(**TINY, bidirectional_data=True))({"token_ids": np.zeros((3, 4), "int32")})
    with pytest.raises(ValueError, match="memory_length=None. Use memory_length=384"):
        XLNet(XLNetConfig(**TINY)).empty_memory(2)
    with pytest.raises(ValueError, match="causal=True"):
        CausalLM(backbone)
    with pytest.raises(ValueError, match="must be even and a multiple"):
        XLNetConfig(hidden_dim=25, num_heads=5)
    with pytest.raises(ValueError, match="`reuse_length` must be at least 1. Received: -1. Use None"):
        XLNetConfig(reuse_length=-1)
