"""Dense layers and losses are those of Keras, gradients included; of a last block only what is wanted is made."""

import keras
import numpy as np
import pytest
from keras import ops

from kerasbert.backend.gradients import cross_entropy, matrix_product
from kerasbert.layers.attention import attend
from kerasbert.layers.dense import Dense, tied_logits
from kerasbert.layers.feed_forward import activation_function
from kerasbert.layers.masks import AttentionMask
from kerasbert.models import (
    Albert,
    AlbertConfig,
    Bert,
    BertConfig,
    DistilBert,
    DistilBertConfig,
    Electra,
    ElectraConfig,
    Roberta,
    RobertaConfig,
)
from kerasbert.objectives.objective import predicted_correctly
from kerasbert.tasks import MultipleChoice, TextClassifier
from tests.models.reference import randomize, to_numpy

RNG = np.random.default_rng(0)


class Probe(keras.Model):
    """A model with one weight, the input of `function`; one step of SGD at rate 1 subtracts the gradient."""

    def __init__(self, value, function):
        super().__init__()
        self.x = self.add_weight(name="x", shape=value.shape, dtype="float32")
        self.x.assign(value)
        self.function = function
        self.built = True

    def call(self, inputs):
        return self.function(self.x)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return ops.sum(ops.reshape(ops.convert_to_tensor(y), y_pred.shape) * ops.cast(y_pred, "float32"))


def gradient_of(function, value, upstream):
    model = Probe(value, function)
    model.compile(keras.optimizers.SGD(1.0))
    model.train_on_batch(np.zeros((1, 1), "float32"), upstream[None])
    return value - to_numpy(model.x)


@pytest.mark.parametrize("shape", [(6, 5), (2, 3, 5), (2, 3, 2, 5)])
def test_dense_is_that_of_keras(shape):
    x = RNG.normal(size=shape).astype("float32")
    ours, theirs = Dense(4, "tanh"), keras.layers.Dense(4, "tanh")
    ours.build(shape), theirs.build(shape)
    values = [RNG.normal(size=v.shape) for v in ours.weights]
    ours.set_weights(values), theirs.set_weights(values)
    np.testing.assert_allclose(to_numpy(ours(x)), to_numpy(theirs(x)), atol=1e-6)
    upstream = RNG.normal(size=(*shape[:-1], 4)).astype("float32")
    np.testing.assert_allclose(gradient_of(ours, x, upstream), gradient_of(theirs, x, upstream), atol=1e-5)


def test_gradients_of_bias_and_table():
    """d/db sum(u * (x E^T + b)) = the sum of u over positions; d/dE = u^T x."""
    x, table, bias = (RNG.normal(size=s).astype("float32") for s in ((2, 3, 4), (7, 4), (7,)))
    upstream = RNG.normal(size=(2, 3, 7)).astype("float32")
    np.testing.assert_allclose(to_numpy(tied_logits(x, table, bias)), x @ table.T + bias, atol=1e-5)
    of_bias = gradient_of(lambda b: tied_logits(ops.convert_to_tensor(x), table, b), bias, upstream)
    np.testing.assert_allclose(of_bias, upstream.sum((0, 1)), atol=1e-5)
    of_table = gradient_of(
        lambda t: tied_logits(ops.convert_to_tensor(x), ops.convert_to_tensor(t), bias), table, upstream
    )
    np.testing.assert_allclose(of_table, np.einsum("bpv,bpm->vm", upstream, x), atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("rows", [6, 7])
def test_products_in_half_precision(axis, rows):
    """Those of numbers that bfloat16 has, rounded to its 8 bits at the end: 2^-8 of the result."""
    x, kernel, upstream = (RNG.normal(size=s).astype("float32") for s in ((rows, 5), (5, 4), (rows, 4)))
    x, kernel, upstream = (to_numpy(ops.cast(ops.cast(a, "bfloat16"), "float32")) for a in (x, kernel, upstream))
    stored = kernel.T if axis else kernel
    half = ops.cast(x, "bfloat16"), ops.cast(stored, "bfloat16")
    found = matrix_product(*half, axis=axis)
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    of_x = gradient_of(lambda a: matrix_product(ops.cast(a, "bfloat16"), half[1], axis=axis), x, upstream)
    of_kernel = gradient_of(lambda a: matrix_product(half[0], ops.cast(a, "bfloat16"), axis=axis), stored, upstream)
    wanted = upstream @ kernel.T, upstream.T @ x if axis else x.T @ upstream
    np.testing.assert_allclose(to_numpy(ops.cast(found, "float32")), x @ kernel, rtol=2**-7, atol=2**-8)
    for gradient, expected in zip((of_x, of_kernel), wanted, strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=2**-7, atol=2**-6)


@pytest.mark.backends("jax")
def test_products_in_half_precision_leave_float32():
    """The form of which XLA has a fast one on CPUs, and of the gradient by the kernel the one with two axes of rows."""
    import jax

    half = [jax.numpy.ones(shape, "bfloat16") for shape in ((6, 5), (5, 4))]
    graph = str(jax.make_jaxpr(jax.grad(lambda *a: matrix_product(*a).sum(), argnums=(0, 1)))(*half))
    products = [line for line in graph.splitlines() if "dot_general[" in line or "dimension_numbers" in line]
    assert graph.count("preferred_element_type=float32") == 3 and "([0, 1], [0, 1])" in "".join(products)


def test_cross_entropy():
    """By hand: -log softmax; gradient (softmax - label) u; exact for scores of hundreds."""
    logits = RNG.normal(size=(2, 3, 11)).astype("float32") * 3
    labels = RNG.integers(0, 11, (2, 3)).astype("int32")
    upstream = RNG.normal(size=(2, 3)).astype("float32")
    wide = logits.astype("float64")
    log_softmax = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    expected = -np.take_along_axis(log_softmax, labels[..., None], -1)[..., 0]
    np.testing.assert_allclose(to_numpy(cross_entropy(logits, labels)), expected, atol=1e-5)
    found = gradient_of(lambda x: cross_entropy(x, labels), logits, upstream)
    np.testing.assert_allclose(found, (np.exp(log_softmax) - np.eye(11)[labels]) * upstream[..., None], atol=1e-5)
    extreme = np.array([[500.0, -500.0, 0.0]], "float32")
    np.testing.assert_allclose(to_numpy(cross_entropy(extreme, np.array([1]))), [1000.0], rtol=1e-6)
    half = ops.cast(ops.convert_to_tensor(logits), "bfloat16")
    assert keras.backend.standardize_dtype(cross_entropy(half, labels).dtype) == "float32"


def test_correct_is_argmax():
    """Of equal scores the first one counts."""
    logits = np.array([[1.0, 3.0, 2.0], [4.0, 4.0, 1.0], [0.0, 0.0, 0.0]], "float32")
    for labels in ([1, 0, 0], [1, 1, 1], [0, 2, 2]):
        expected = logits.argmax(axis=-1) == labels
        np.testing.assert_array_equal(to_numpy(predicted_correctly(logits, np.array(labels, "int32"))), expected)


def test_gelu_is_exact():
    from scipy.stats import norm

    x = np.linspace(-12, 12, 2_001).astype("float32")
    found = to_numpy(activation_function("gelu")(ops.convert_to_tensor(x)))
    np.testing.assert_allclose(found, x * norm.cdf(x.astype("float64")), atol=1e-6)


def test_attention_with_dropout_is_the_weighted_mean():
    """Dropout of nothing changes nothing, and of rows without keys comes a finite vector."""
    query, key, value = (RNG.normal(size=(2, 4, 2, 3)).astype("float32") for _ in range(3))
    mask = AttentionMask(padding_mask=np.array([[1, 1, 1, 0], [0, 0, 0, 0]], bool))
    plain = to_numpy(attend(query, key, value, mask))
    dropped = to_numpy(attend(query, key, value, mask, dropout=lambda weights: weights))
    np.testing.assert_allclose(plain[0], dropped[0], atol=1e-6)
    scores = np.einsum("qhd,khd->hqk", query[0], key[0][:3]) / 3**0.5
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(plain[0], np.einsum("hqk,khd->qhd", weights, value[0][:3]), atol=1e-6)
    assert np.isfinite(dropped).all()


SIZE = dict(vocabulary_size=40, num_layers=3, num_heads=2, hidden_dim=8, feed_forward_dim=16, max_length=12)
FAMILIES = {
    "bert": lambda: Bert(BertConfig(**SIZE)),
    "roberta": lambda: Roberta(RobertaConfig(**SIZE)),
    "electra": lambda: Electra(ElectraConfig(embedding_dim=4, **SIZE)),
    "distilbert": lambda: DistilBert(DistilBertConfig(**SIZE)),
    "albert": lambda: Albert(AlbertConfig(embedding_dim=4, num_inner_layers=2, **SIZE)),
}


def test_wanted_positions_leave_nothing_to_look_at():
    inputs = {"token_ids": np.ones((1, 4), "int32")}
    with pytest.raises(ValueError, match="Request one or the other"):
        FAMILIES["bert"]()(inputs, output_positions=np.zeros((1, 1), "int32"), hidden_states=True)


def noting(function, asked):
    """A function that keeps the options it is called with."""
    return lambda *args, **kwargs: asked.append(kwargs) or function(*args, **kwargs)


@pytest.mark.one_backend
@pytest.mark.parametrize("family", FAMILIES)
def test_summaries_are_those_of_the_whole_sequence(family, monkeypatch):
    """What classifiers and choices read: their logits are those of all tokens."""
    backbone = randomize(FAMILIES[family]())
    tasks = TextClassifier(backbone, labels=3), MultipleChoice(backbone)
    rows = {"token_ids": RNG.integers(3, 40, (4, 9)).astype("int32"), "lengths": np.array([9, 5, 1, 7], "int32")}
    asked = []
    for task in tasks:
        randomize(task)
        head = task.classifier if isinstance(task, TextClassifier) else task.choice
        expected = to_numpy(head(backbone(rows)))
        choices = {key: array.reshape(2, 2, *array.shape[1:]) for key, array in rows.items()}
        with monkeypatch.context() as patch:
            patch.setattr(type(backbone), "__call__", noting(type(backbone).__call__, asked))
            found = to_numpy(task(rows if isinstance(task, TextClassifier) else choices))
        np.testing.assert_allclose(found.reshape(expected.shape), expected, atol=1e-6)
    assert [kwargs["output_positions"].shape for kwargs in asked] == [(4, 1), (4, 1)]


@pytest.mark.one_backend
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("packed", [False, True])
def test_wanted_positions_alone(family, packed):
    """They are what the whole sequence has there; unused slots read position 0, and pooled outputs stay."""
    backbone = randomize(FAMILIES[family]())
    inputs = {"token_ids": RNG.integers(3, 40, (2, 9)).astype("int32")}
    if packed:
        inputs["sequence_ids"] = np.array([[1] * 5 + [2] * 4, [1] * 3 + [2] * 3 + [0] * 3], "int32")
        inputs["first_positions"] = np.array([[0, 5], [0, 3]], "int32")
    else:
        inputs["padding_mask"] = np.array([[True] * 9, [True] * 6 + [False] * 3])
    positions = np.array([[1, 4, 8], [5, 2, -1]], "int32")
    whole = backbone(inputs)
    alone = backbone(inputs, output_positions=positions)
    expected = np.take_along_axis(to_numpy(whole["sequence_output"]), np.maximum(positions, 0)[..., None], 1)
    np.testing.assert_allclose(to_numpy(alone["sequence_output"]), expected, atol=1e-5)
    assert whole.keys() == alone.keys()
    for name in whole.keys() - {"sequence_output"}:
        assert whole[name].shape == alone[name].shape
        np.testing.assert_allclose(to_numpy(alone[name]), to_numpy(whole[name]), atol=1e-5)
