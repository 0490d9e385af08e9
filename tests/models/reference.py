"""Comparison with transformers, family by family: outputs both ways, and the invariances every encoder must have.

A family's test calls these with a tiny config whose sizes are all distinct and awkward.
"""

import json

import keras
import numpy as np

import kerasbert
from kerasbert.data import Tokenizer
from kerasbert.models import Backbone
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TokenClassifier

BATCH, LENGTH, CHOICES = 2, 11, 3
PADDINGS = ("none", "right", "left")

# Which class of ours reads which of theirs, and how theirs names its outputs.
HEADS = {
    "Model": (Backbone, {}, {"sequence_output": "last_hidden_state"}),
    "ForMaskedLM": (MaskedLM, {}, {"": "logits"}),
    "ForPreTraining": (
        MaskedLM,
        {"sentence_pair": True},
        {"tokens": "prediction_logits", "sentence_pair": "seq_relationship_logits"},
    ),
    "ForSequenceClassification": (TextClassifier, {}, {"": "logits"}),
    "ForTokenClassification": (TokenClassifier, {}, {"": "logits"}),
    "ForQuestionAnswering": (QuestionAnswerer, {}, {"start": "start_logits", "end": "end_logits"}),
    "ForMultipleChoice": (MultipleChoice, {}, {"": "logits"}),
}


def gradient(function, array):
    """The gradient of a scalar function of one float array, by the backend in use, as numpy; zeros if there is none."""
    if keras.backend.backend() == "jax":
        import jax

        return np.asarray(jax.grad(function)(array))
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        x = tf.Variable(array)
        with tf.GradientTape() as tape:
            value = function(x)
        found = tape.gradient(value, x)
    else:
        import torch

        x = torch.tensor(array, requires_grad=True)
        value = function(x)
        if value.requires_grad:
            value.backward()
        found = x.grad
    return np.zeros_like(array) if found is None else to_numpy(found)


def to_numpy(tensor):
    return tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else keras.ops.convert_to_numpy(tensor)


def their_model(class_name, config, folder, std=0.2, seed=0):
    """A transformers model whose every parameter is drawn anew with `std`, written to `folder`."""
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(seed)
    model = getattr(transformers, class_name)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * std)
    model.set_attn_implementation("eager")
    model.eval().save_pretrained(folder)
    return model


def example(vocabulary_size, padding, num_segments=0, choices=0, pad_id=0, length=LENGTH):
    """(our inputs, their inputs, bool (b, s) of the real tokens), as numpy. Padded tokens have the id of padding."""
    rng = np.random.default_rng(1)
    shape = (BATCH, choices, length) if choices else (BATCH, length)
    ids = rng.integers(0, vocabulary_size - 1, shape).astype("int32")
    ids = np.where(ids >= pad_id, ids + 1, ids).astype("int32")
    lengths = np.full(shape[:-1], length)
    if padding != "none":
        lengths[1] = length - 4
    columns = np.arange(length)
    real = columns < lengths[..., None] if padding != "left" else columns >= length - lengths[..., None]
    ids = np.where(real, ids, pad_id).astype("int32")
    ours = {"token_ids": ids}
    theirs = {"input_ids": ids, "attention_mask": real.astype("int64")}
    if padding != "none":
        ours["padding_mask"] = real
    if num_segments:
        segments = rng.integers(0, num_segments, shape).astype("int32")
        ours["segment_ids"] = segments
        theirs["token_type_ids"] = segments
    return ours, theirs, real


def check_outputs(ours, theirs, config, names, padding, tolerance=1e-5, choices=0, num_segments=0, extra=None):
    """Our outputs on real tokens equal theirs."""
    import torch

    pad_id = getattr(config, "pad_token_id", None) or 0
    our_inputs, their_inputs, real = example(config.vocab_size, padding, num_segments, choices, pad_id)
    if extra is not None:
        our_extra, their_extra = extra(our_inputs["token_ids"].shape)
        our_inputs, their_inputs = {**our_inputs, **our_extra}, {**their_inputs, **their_extra}
    with torch.no_grad():
        expected = theirs(**{key: torch.from_numpy(np.asarray(value, "int64")) for key, value in their_inputs.items()})
    outputs = ours(our_inputs)
    for our_name, their_name in names.items():
        found = to_numpy(outputs[our_name] if our_name else outputs)
        wanted = to_numpy(expected[their_name])
        assert found.shape == wanted.shape
        if found.shape[:2] == real.shape and found.shape != real.shape[:1] and not choices:
            found, wanted = found[real], wanted[real]
        np.testing.assert_allclose(found, wanted, atol=tolerance, rtol=tolerance, err_msg=f"{padding} {our_name}")


def check_states(backbone, theirs, ours, inputs, real, blocks):
    """Compares the hidden states and attention weights of all blocks at the real tokens.

    Args:
        ours, inputs, real: a batch, as `example` returns it.
        blocks: their number.

    Returns: both outputs.
    """
    import torch

    found = backbone(ours, hidden_states=True, attention_weights=True)
    with torch.no_grad():
        tensors = {key: torch.from_numpy(value.astype("int64")) for key, value in inputs.items()}
        expected = theirs(**tensors, output_hidden_states=True, output_attentions=True)
    assert len(found["hidden_states"]) == blocks + 1 and len(found["attention_weights"]) == blocks
    for one, other in zip(found["hidden_states"], expected.hidden_states, strict=True):
        np.testing.assert_allclose(to_numpy(one)[real], to_numpy(other)[real], atol=1e-5)
    for one, other in zip(found["attention_weights"], expected.attentions, strict=True):
        one, other = (np.moveaxis(to_numpy(weights), 1, 2)[real] for weights in (one, other))
        np.testing.assert_allclose(one, other, atol=1e-5)
    return found, expected


def check_way_back(ours, theirs, folder):
    """What we write, transformers loads without a missing or an unexpected key, bit-equal; and we load it, too."""
    import torch

    ours.save_to_preset(folder)
    again, report = type(theirs).from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"], report
    expected, found = theirs.state_dict(), again.state_dict()
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name
    for name in ("hidden_size", "num_labels", "vocab_size"):
        assert getattr(theirs.config, name, None) == getattr(again.config, name, None)
    loaded = kerasbert.load(folder)
    assert type(loaded) is type(ours)
    assert loaded.backbone.config == ours.backbone.config if hasattr(ours, "backbone") else True


def check_head(prefix, head, config, tmp_path, num_segments=0, tolerance=1e-5, arguments=None, extra=None):
    """One class of transformers: outputs, of the encoder alone under three paddings, and the way back."""
    cls, defaults, names = HEADS[head]
    theirs = their_model(prefix + head, config, tmp_path / "theirs")
    ours = cls.from_preset(tmp_path / "theirs", **{**defaults, **(arguments or {})})
    choices = CHOICES if head == "ForMultipleChoice" else 0
    for padding in PADDINGS if head == "Model" else ("right",):
        check_outputs(ours, theirs, config, names, padding, tolerance, choices, num_segments, extra)
    check_way_back(ours, theirs, tmp_path / "ours")
    return ours, theirs


def write_embedder(folder, pooling, prompts, encoder="sentence_transformers.models.Transformer"):
    """Makes the folder of an encoder one of sentence-transformers, with vectors of unit length. Returns its tokenizer.

    Args:
        folder: a folder with a model of width 24 and at least 46 tokens.
        pooling: "cls" or "mean".
        prompts: {name: prompt}.
        encoder: the type of the first module.
    """
    words = "the cat sat on a mat and dogs ran home"
    tokenizer = Tokenizer.train("wordpiece", [words] * 2, 46, lowercase=True)
    tokenizer.save(folder)
    kinds = [("", encoder)] + [(f"{i}_{kind}", f"sentence_transformers.models.{kind}") for i, kind in _AFTER_ENCODERS]
    modules = [dict(idx=i, name=str(i), path=path, type=kind) for i, (path, kind) in enumerate(kinds)]
    settings = {f"pooling_mode_{name}": name.startswith(pooling) for name in ("cls_token", "mean_tokens")}
    (folder / "1_Pooling").mkdir()
    for path, content in {
        "modules.json": modules,
        "1_Pooling/config.json": dict(word_embedding_dimension=24, **settings),
        "config_sentence_transformers.json": dict(prompts=prompts, default_prompt_name=None),
        "sentence_bert_config.json": dict(max_seq_length=9, do_lower_case=False),
    }.items():
        (folder / path).write_text(json.dumps(content))
    return tokenizer


_AFTER_ENCODERS = ((1, "Pooling"), (2, "Normalize"))

# === Invariances, which need no reference ===


def randomize(model, std=0.2, seed=0):
    """Every weight drawn anew: fresh biases and norms hide errors."""
    rng = np.random.default_rng(seed)
    for variable in model.weights:
        if "seed" not in variable.path:
            variable.assign(rng.normal(0.0, std, variable.shape).astype("float32"))
    return model


def check_batch_invariance(backbone, tolerance=1e-5):
    """A row's outputs do not depend on the other rows."""
    inputs, _, real = example(backbone.config.vocabulary_size, "right", pad_id=backbone.config.pad_id)
    together = to_numpy(backbone(inputs)["sequence_output"])
    for row in range(BATCH):
        alone = to_numpy(backbone({key: array[row : row + 1] for key, array in inputs.items()})["sequence_output"])
        np.testing.assert_allclose(together[row][real[row]], alone[0][real[row]], atol=tolerance)


def check_padding_invariance(backbone, left=False, tolerance=1e-5):
    """More padding, and other ids under it, change nothing on real tokens. `left` for families that promise it."""
    config = backbone.config
    inputs, _, _ = example(config.vocabulary_size, "none", pad_id=config.pad_id)
    ids = inputs["token_ids"]
    plain = to_numpy(backbone({"token_ids": ids})["sequence_output"])
    junk = np.random.default_rng(3).integers(0, config.vocabulary_size, (BATCH, 5)).astype("int32")
    real = np.concatenate([np.ones_like(ids, bool), np.zeros_like(junk, bool)], axis=1)
    padded = {"token_ids": np.concatenate([ids, junk], axis=1), "padding_mask": real}
    found = to_numpy(backbone(padded)["sequence_output"])[:, :LENGTH]
    np.testing.assert_allclose(found, plain, atol=tolerance)
    by_lengths = {"token_ids": padded["token_ids"], "lengths": np.full(BATCH, LENGTH, "int32")}
    found = to_numpy(backbone(by_lengths)["sequence_output"])[:, :LENGTH]
    np.testing.assert_allclose(found, plain, atol=tolerance)
    if left:
        padded = {"token_ids": np.concatenate([junk, ids], axis=1), "padding_mask": real[:, ::-1].copy()}
        found = to_numpy(backbone(padded)["sequence_output"])[:, -LENGTH:]
        np.testing.assert_allclose(found, plain, atol=tolerance)


def check_packing(backbone, tolerance=1e-5):
    """Two sequences in one row give what each gives alone."""
    inputs, _, _ = example(backbone.config.vocabulary_size, "none", pad_id=backbone.config.pad_id)
    first, second = inputs["token_ids"][:1, :7], inputs["token_ids"][1:, :4]
    packed = {
        "token_ids": np.concatenate([first, second, np.zeros((1, 2), "int32")], axis=1),
        "sequence_ids": np.array([[1] * 7 + [2] * 4 + [0] * 2], "int32"),
        "first_positions": np.array([[0, 7]], "int32"),
    }
    outputs = backbone(packed)
    found = to_numpy(outputs["sequence_output"])
    for start, ids in ((0, first), (7, second)):
        alone = to_numpy(backbone({"token_ids": ids})["sequence_output"])
        np.testing.assert_allclose(found[:, start : start + ids.shape[1]], alone, atol=tolerance)


def check_half_precision(make_backbone):
    """Finite in float16 and bfloat16, a row of nothing but padding included."""
    for dtype in ("float16", "mixed_bfloat16"):
        backbone = make_backbone(dtype)
        inputs, _, _ = example(backbone.config.vocabulary_size, "right", pad_id=backbone.config.pad_id)
        mask = inputs["padding_mask"].copy()
        mask[1] = False
        outputs = backbone({**inputs, "padding_mask": mask})
        assert np.isfinite(to_numpy(keras.ops.cast(outputs["sequence_output"], "float32"))).all(), dtype


def check_gradients(model, batch, without=()):
    """Every weight moves in one step of training, but those whose path ends in one of `without` (key biases)."""
    before = {v.path: to_numpy(v).copy() for v in model.trainable_variables}
    losses = {"loss": model.default_loss()} if hasattr(model, "default_loss") else {}
    model.compile(keras.optimizers.SGD(1.0), **losses)
    model.train_on_batch(*batch)
    still = [path for path, value in before.items() if np.array_equal(value, to_numpy(_by_path(model, path)))]
    assert not [path for path in still if not path.endswith(tuple(without))], still


def _by_path(model, path):
    return next(variable for variable in model.trainable_variables if variable.path == path)


def check_keras_file(model, tmp_path, **extra):
    """`model.save` and `keras.saving.load_model` give the same outputs, bit for bit; `extra` goes into the batch."""
    config = (model.backbone if hasattr(model, "backbone") else model).config
    inputs, _, _ = example(config.vocabulary_size, "right", pad_id=config.pad_id)
    inputs |= extra
    path = tmp_path / "model.keras"
    model.save(path)
    again = keras.saving.load_model(path)
    found, expected = again(inputs), model(inputs)
    for one, other in zip(keras.tree.flatten(found), keras.tree.flatten(expected), strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
