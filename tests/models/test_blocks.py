"""The `blocks` that backbones declare: what rematerialization and rates by layer go by."""

import inspect

import keras
import numpy as np
import pytest

from kerasbert import models
from kerasbert.backend import seed_everything
from kerasbert.objectives import BidirectionalLM, MaskedLM, Seq2SeqLM
from kerasbert.tasks import TextClassifier
from kerasbert.training import adamw, add_lora
from tests.models.reference import to_numpy

TINY = dict(vocabulary_size=31, num_heads=2, hidden_dim=12, feed_forward_dim=16)
RECURRENT = dict(vocabulary_size=31, embedding_dim=6, hidden_dim=8, alignment_dim=5, output_dim=6)
ELMO = dict(vocabulary_size=31, characters=False, hidden_dim=6, cell_dim=8)


def albert(**fields):
    return models.Albert(models.AlbertConfig(**TINY, embedding_dim=8, max_length=16, **{"num_layers": 4, **fields}))


def make(name, dropout=0.0):
    """A backbone of every family, with layers enough to tell them apart."""
    config = getattr(models, f"{name}Config")
    arguments = {
        "Albert": lambda: albert(dropout=dropout),
        "Elmo": lambda: models.Elmo(config(**ELMO, dropout=dropout)),
        "Seq2SeqAttention": lambda: models.Seq2SeqAttention(config(**RECURRENT, dropout=dropout)),
        "MobileBert": lambda: models.MobileBert(config(**TINY, num_layers=3, embedding_dim=6, bottleneck_dim=8)),
        "DebertaV2": lambda: models.DebertaV2(
            config(**TINY, num_layers=3, max_length=16, distance_buckets=8, convolution_width=3, mask_decoder=True)
        ),
        "T5": lambda: models.T5(config(**TINY, num_layers=3, num_decoder_layers=2, head_dim=6)),
        "Transformer": lambda: models.Transformer(config(**TINY, num_layers=3, dropout=dropout)),
        "TransformerXL": lambda: models.TransformerXL(config(**TINY, num_layers=3, head_dim=6, cutoffs=())),
    }
    if name in arguments:
        return arguments[name]()
    return getattr(models, name)(config(**TINY, num_layers=3, **({"dropout": dropout} if dropout else {})))


NUMBERS = {"Albert": 1, "Elmo": 2, "Seq2SeqAttention": 2}  # of blocks, where it is not num_layers
FAMILIES = sorted({cls.__name__ for cls in models.FAMILIES.values()} - {"WordVectors"})


@pytest.mark.one_backend
@pytest.mark.parametrize("name", FAMILIES)
def test_every_variable_has_its_depth(name):
    backbone = make(name)
    number = NUMBERS.get(name, 3)
    assert len(backbone.blocks) == number
    depths = {variable.path.split("/", 1)[1]: variable.block_depth for variable in backbone.weights}
    assert set(depths.values()) - {None} == set(range(number + 1))
    in_blocks = {id(v) for layers in backbone.stages() for layer in layers for v in layer.weights}
    for variable in backbone.weights:
        path = variable.path.split("/", 1)[1]
        if id(variable) in in_blocks:
            assert variable.block_depth > 0, path
        elif path.startswith(("pooler", "final_norm", "mask_decoder", "encoder_norm", "decoder_norm")) or (
            "final_norm" in path
        ):
            assert variable.block_depth is None, path
        else:
            assert variable.block_depth == 0, path


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "name, path, depth",
    [
        ("Albert", "attention_0_0/attention/query/kernel", 1),
        ("Albert", "feed_forward_0_0/norm/gamma", 1),
        ("Deberta", "embed/norm/gamma", 0),
        ("DebertaV2", "relative_norm/gamma", 0),
        ("MobileBert", "token_projection/dense/kernel", 0),
        ("Elmo", "forward_1/project", 2),
        ("Elmo", "backward_0/project", 1),
        ("Seq2SeqAttention", "forward_reader/inputs/kernel", 1),
        ("Seq2SeqAttention", "decoder/inputs/kernel", 2),
        ("Seq2SeqAttention", "decoder_embedding/embeddings", 0),
        ("Transformer", "decoder_block_2/cross_attention/key/kernel", 3),
        ("T5", "decoder/block_1/attention/key/kernel", 2),
    ],
)
def test_depths_of_layers_that_go_by_other_names(name, path, depth):
    found = {variable.path.split("/", 1)[1]: variable.block_depth for variable in make(name).weights}
    assert found[path] == depth


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "fields, stages",
    [
        (dict(num_groups=2), [{"attention_0_0", "feed_forward_0_0"}, {"attention_1_0", "feed_forward_1_0"}]),
        (dict(sharing="attention", num_layers=2), [{"attention_0_0", "feed_forward_0_0"}, {"feed_forward_1_0"}]),
        (dict(sharing="none", num_layers=1), [{"attention_0_0", "feed_forward_0_0"}]),
        (dict(num_inner_layers=2), [{f"{part}_0_{j}" for part in ("attention", "feed_forward") for j in range(2)}]),
    ],
)
def test_what_alberts_layers_share_stands_once(fields, stages):
    assert [{layer.name for layer in stage} for stage in albert(**fields).blocks] == stages


@pytest.mark.one_backend
def test_rates_by_layer_reach_alberts_shared_block():
    model = TextClassifier(albert(), labels=2)
    optimizer = adamw(1.0, layer_decay=0.5, weight_decay=0.0)
    optimizer.build(model.trainable_variables)
    factors = {v.path: optimizer._rate_factor(v) or 1.0 for v in model.trainable_variables}
    found = {path.split("/")[1]: factor for path, factor in factors.items()}
    assert found == {
        **dict.fromkeys(("token_embedding", "position_embedding", "segment_embedding", "embedding_norm"), 0.125),
        **dict.fromkeys(("embedding_projection",), 0.125),
        **dict.fromkeys(("attention_0_0", "feed_forward_0_0"), 0.25),
        **dict.fromkeys(("pooler", "classifier"), 1.0),
    }  # fmt: skip


@pytest.mark.one_backend
def test_low_rank_adaptation_has_the_rates_of_its_layers():
    model = TextClassifier(make("Bert"), labels=2)
    add_lora(model, rank=2)
    optimizer = adamw(1.0, layer_decay=0.5)
    optimizer.build(model.trainable_variables)
    query = model.backbone.blocks[0].attention.query
    assert optimizer._rate_factor(query.lora_kernel_a) == 0.5**4


@pytest.mark.one_backend
def test_without_blocks_it_is_an_error():
    backbone = models.WordVectors(models.WordVectorsConfig(vocabulary_size=31, hidden_dim=8))
    with pytest.raises(ValueError, match="Received: a WordVectors, which declares no `blocks`"):
        backbone.rematerialize()
    model = TextClassifier(backbone, labels=2)
    for options in (dict(layer_decay=0.8), dict(unfreeze_every=2)):
        with pytest.raises(ValueError, match="need a backbone that declares its `blocks`. Received: .*token_embedding"):
            adamw(1e-3, **options).build(model.trainable_variables)
        with pytest.raises(ValueError, match="Received: no variable of a backbone. Use `rate_factors`"):
            adamw(1e-3, **options).build([keras.Variable(np.ones(2))])
    adamw(1e-3, rate_factors={"word_vectors": 0.1}).build(model.trainable_variables)


OBJECTIVES = {"Albert": MaskedLM, "Transformer": Seq2SeqLM, "Seq2SeqAttention": Seq2SeqLM, "Elmo": BidirectionalLM}


def trained(name, less_memory):
    """Losses and weights of two steps, from the same weights and the same random state."""
    seed_everything(0)
    # A block of the Transformer draws from one dropout layer several times: other masks in less memory, as random.
    model = OBJECTIVES[name](make(name, dropout=0.0 if name == "Transformer" else 0.3))
    if less_memory:
        model.backbone.rematerialize()
        model.backbone.rematerialize()  # once is enough
    model.compile(keras.optimizers.SGD(0.5))
    for number, variable in enumerate(v for v in model.variables if "seed" in v.path):
        variable.assign([number, 0])
    seed_everything(1)
    ids = np.random.default_rng(0).integers(2, 31, (2, 7)).astype("int32")
    x, y = {"token_ids": ids, "lengths": np.array([7, 4], "int32")}, ids
    if name in ("Transformer", "Seq2SeqAttention"):
        x["decoder_token_ids"] = ids
    if name == "Elmo":
        y = {"forward": ids, "backward": ids}
    losses = [float(model.train_on_batch(x, y, return_dict=True)["loss"]) for _ in range(2)]
    return losses, [to_numpy(weight) for weight in model.trainable_variables], model


@pytest.mark.parametrize(
    "name", [name if name == "Albert" else pytest.param(name, marks=pytest.mark.one_backend) for name in OBJECTIVES]
)
def test_training_in_less_memory_is_the_same(name, monkeypatch):
    from kerasbert.backend import rematerialization

    calls = []
    recomputed = rematerialization._recomputed
    monkeypatch.setattr(rematerialization, "_recomputed", lambda *a: calls.append(1) or recomputed(*a))
    plain_losses, plain, model = trained(name, False)
    assert not calls
    losses, weights, _ = trained(name, True)
    layers = {"Albert": 8, "Transformer": 6, "Seq2SeqAttention": 3, "Elmo": 4}[name]
    assert len(calls) % layers == 0 and calls  # every one of them in every pass
    np.testing.assert_allclose(losses, plain_losses, rtol=1e-5)
    for expected, found, variable in zip(plain, weights, model.trainable_variables, strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-5, err_msg=variable.path)


@pytest.mark.one_backend
@pytest.mark.parametrize("name", FAMILIES)
def test_blocks_give_attention_weights_only_when_asked(name):
    for block in keras.tree.flatten(list(make(name).blocks)):
        arguments = inspect.signature(block.call).parameters
        assert "return_weights" not in arguments or arguments["return_weights"].default is False
