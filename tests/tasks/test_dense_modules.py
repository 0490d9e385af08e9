"""Modules around an encoder, compared with sentence-transformers itself, in both directions."""

import json
import shutil

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.data import Tokenizer
from kerasbert.models import Bert, BertConfig, ModernBert, ModernBertConfig, XLNet, XLNetConfig
from kerasbert.tasks import Dense, Dropout, LayerNorm, Normalize, Prompts, TextEmbedder
from kerasbert.tasks.activations import ACTIVATIONS, torch_path
from kerasbert.training import add_lora
from tests.models.reference import randomize

WORDS = "the cat sat on a mat and dogs ran home fast while birds sang old songs all day".split()
TEXTS = [" ".join(WORDS[i % 5 : i % 5 + n]) for i, n in enumerate([3, 12, 1, 7, 14, 5])]
SIZES = dict(num_layers=1, num_heads=3, hidden_dim=24, feed_forward_dim=40)
FAMILIES = {
    "bert": ("wordpiece", Bert, BertConfig, dict(max_length=64)),
    "modernbert": ("byte_bpe", ModernBert, ModernBertConfig, {}),
    "xlnet": ("unigram", XLNet, XLNetConfig, {}),  # pads on the left
}


@pytest.fixture(scope="module", params=FAMILIES)
def embedder(request):
    """A small random embedder of each family."""
    return tiny_embedder(request.param)


@pytest.fixture(scope="module")
def bert():
    return tiny_embedder("bert")


def tiny_embedder(name):
    kind, cls, config, options = FAMILIES[name]
    family = None if name == "modernbert" else name
    size = {"wordpiece": 80, "byte_bpe": 300, "unigram": 36}[kind]
    tokenizer = Tokenizer.train(kind, [" ".join(WORDS * 5), *TEXTS] * 3, size, family=family)
    options = {"pad_id": tokenizer.pad_id, **options} if "pad_id" in config.__dataclass_fields__ else options
    backbone = cls(config(**SIZES, vocabulary_size=tokenizer.vocabulary_size, **options))
    return TextEmbedder(randomize(backbone), tokenizer=tokenizer)


def peer(folder):
    import sentence_transformers

    return sentence_transformers.SentenceTransformer(str(folder), device="cpu")


def assert_equal(ours, theirs, **options):
    """Their vectors of texts, queries and documents, and their similarities, are ours."""
    for call, their_call in (
        ("embed", "encode"),
        ("embed_queries", "encode_query"),
        ("embed_documents", "encode_document"),
    ):
        found, expected = getattr(ours, call)(TEXTS), getattr(theirs, their_call)(TEXTS, **options)
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=call)
    similarity = theirs.similarity(expected[:3], expected).numpy()
    np.testing.assert_allclose(ours.similarity(found[:3], found), similarity, atol=1e-5)


TWO = ("weightedmean", "mean_sqrt_len_tokens")
# What stands behind an encoder of width 24: (ours, theirs), where theirs is made from the modules of their package.
CHAINS = {
    "unsorted poolings": (["lasttoken", "mean", "cls"], lambda m: [m.Pooling(24, ("lasttoken", "mean", "cls"))]),
    "repeated pooling": (["max", "max"], lambda m: [m.Pooling(24, ("max", "max"))]),
    "dense": (["mean", Dense(7)], lambda m: [m.Pooling(24), m.Dense(24, 7)]),
    "several": (
        ["mean", Normalize(), Dense(7, "gelu"), LayerNorm(), Dense(7, "identity", False, True), Dropout(), Normalize()],
        lambda m: [
            m.Pooling(24),
            m.Normalize(),
            m.Dense(24, 7, activation_function=torch_module("gelu")),
            m.LayerNorm(7),
            m.Dense(7, 7, bias=False, activation_function=None, use_residual=True),
            m.Dropout(),
            m.Normalize(),
        ],
    ),
    "tokens": (
        [Dense(9, "identity", False), Normalize(), *TWO, Dense(5, "relu", True, True)],
        lambda m: [
            m.Dense(24, 9, bias=False, activation_function=None, module_input_name="token_embeddings"),
            m.Normalize("token_embeddings"),
            m.Pooling(9, TWO),
            m.Dense(18, 5, activation_function=torch_module("relu"), use_residual=True),
        ],
    ),
}  # fmt: skip


def torch_module(name):
    from sentence_transformers.util import import_from_string

    return import_from_string(torch_path(name))()


def made_by_them(folder, path, chain, **options):
    """Their model with random modules behind the encoder of a folder, and the folder into which it was saved."""
    import sentence_transformers
    import torch
    from sentence_transformers.sentence_transformer import modules

    torch.manual_seed(1)
    theirs = sentence_transformers.SentenceTransformer(
        modules=[peer(folder)[0], *chain(modules)], device="cpu", **options
    ).eval()
    theirs.save(str(path))
    return theirs


@pytest.mark.one_backend
@pytest.mark.parametrize("name", CHAINS)
def test_modules_in_both_directions(name, embedder, tmp_path):
    ours, theirs = CHAINS[name]
    similarity = {"dense": "dot", "several": "euclidean", "tokens": "manhattan"}.get(name, "cosine")
    model = TextEmbedder(embedder.backbone, ours, similarity=similarity, tokenizer=embedder.tokenizer)
    model.save_to_preset(tmp_path / "ours")
    assert_equal(model, peer(tmp_path / "ours"))
    written = made_by_them(tmp_path / "ours", tmp_path / "theirs", theirs, similarity_fn_name=similarity)
    again = kerasbert.load(tmp_path / "theirs")
    assert again.arguments()["pooling"] == model.arguments()["pooling"] and again.normalize == model.normalize
    assert_equal(again, written)
    again.save_to_preset(tmp_path / "again")
    assert_equal(again, peer(tmp_path / "again"))


@pytest.mark.one_backend
def test_activations(bert, tmp_path):
    """Each of PyTorch's that has no arguments."""
    import torch

    x = np.linspace(-4, 4, 36).reshape(3, 12).astype("float32")
    for name, (_, function) in ACTIVATIONS.items():
        module = torch_module(name)
        if hasattr(module, "dim"):
            module.dim = 1
        found = keras.ops.convert_to_numpy(function(keras.ops.convert_to_tensor(x)))
        np.testing.assert_allclose(found, module(torch.tensor(x)).numpy(), atol=1e-6, err_msg=name)


@pytest.mark.one_backend
@pytest.mark.parametrize("pooling", ["mean", "weightedmean", "cls", "max", "lasttoken"])
def test_prompts_that_are_not_pooled(pooling, embedder, tmp_path):
    """On the right and on the left of padding."""
    embedder.save_to_preset(tmp_path / "encoder")
    prompts = {"query": "the old ", "passage": "a ", "other": "dogs"}
    theirs = made_by_them(
        tmp_path / "encoder",
        tmp_path / "theirs",
        lambda m: [m.Pooling(24, pooling, include_prompt=False)],
        prompts=prompts,
        default_prompt_name="other",
    )
    model = kerasbert.load(tmp_path / "theirs")
    assert not model.prompts.pooled
    assert_equal(model, theirs)
    model.save_to_preset(tmp_path / "again")
    assert_equal(model, peer(tmp_path / "again"))


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "prompts",
    [
        Prompts({"query": "the ", "passage": "a "}),
        Prompts({"corpus": "a "}),
        Prompts({"q": "the "}, "q"),
        Prompts({"document": "a ", "query": ""}, "document"),
    ],
)
def test_prompts_by_use(prompts, bert, tmp_path):
    """sentence-transformers has empty prompts of queries and documents where a folder has none: it is told which."""
    model = TextEmbedder(bert.backbone, prompts=prompts, tokenizer=bert.tokenizer)
    model.save_to_preset(tmp_path / "ours")
    theirs = peer(tmp_path / "ours")
    assert_equal(model, theirs)
    assert_equal(kerasbert.load(tmp_path / "ours"), theirs)
    path = tmp_path / "ours" / "config_sentence_transformers.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "prompts": {**prompts.texts}}))
    assert_equal(kerasbert.load(tmp_path / "ours"), peer(tmp_path / "ours"))


@pytest.mark.one_backend
@pytest.mark.parametrize(("limit", "positions", "stated"), [(9, 64, None), (10**30, 12, None), (9, 64, 7), (7, 12, 11)])
def test_lengths(limit, positions, stated, bert, tmp_path):
    """The limit of the tokenizer, bounded by the positions, unless the file states another one."""
    bert.save_to_preset(tmp_path)
    changes = {
        "tokenizer_config.json": {"model_max_length": limit},
        "sentence_bert_config.json": {"max_seq_length": stated},
    }
    backbone = bert.backbone
    if positions == 12:
        sizes = {**SIZES, "vocabulary_size": bert.tokenizer.vocabulary_size, "max_length": positions}
        backbone = randomize(Bert(BertConfig(**sizes)))
    TextEmbedder(backbone, tokenizer=bert.tokenizer).save_to_preset(tmp_path)
    for name, change in changes.items():
        path = tmp_path / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    ours, theirs = kerasbert.load(tmp_path), peer(tmp_path)
    assert ours.max_length == theirs.max_seq_length
    assert_equal(ours, theirs)


# === Training and files ===


def chain_of(backbone, tokenizer, **options):
    layers = [Dense(9, "identity"), "mean", "cls", LayerNorm(), Dense(6, "gelu", residual=True)]
    return TextEmbedder(backbone, layers, tokenizer=tokenizer, normalize=True, **options)


def test_layers_train_and_are_saved(bert, tmp_path):
    model = chain_of(bert.backbone, bert.tokenizer, objective="ranking")
    before = {v.path: keras.ops.convert_to_numpy(v) for v in model.pooling.trainable_variables}
    assert len(before) == 7
    model.compile(keras.optimizers.SGD(0.5))
    model.fit([(a, b) for a, b in zip(TEXTS, TEXTS[1:], strict=False)], batch_size=5, epochs=1, verbose=0)
    for variable in model.pooling.trainable_variables:
        assert np.abs(keras.ops.convert_to_numpy(variable) - before[variable.path]).max() > 0, variable.path
    vectors = model.embed(TEXTS)
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(keras.saving.load_model(tmp_path / "model.keras").embed(TEXTS), vectors)
    model.save_to_preset(tmp_path / "folder")
    again = TextEmbedder.from_preset(tmp_path / "folder")
    assert again.arguments() == {**model.arguments(), "objective": model.arguments()["objective"]}
    np.testing.assert_array_equal(again.embed(TEXTS), vectors)


@pytest.mark.one_backend
def test_low_ranks_and_integers(bert, tmp_path):
    bert.save_to_preset(tmp_path / "encoder")
    with pytest.warns(UserWarning, match="no weights for token_layer_0, vector_layer_0, vector_layer_1: new head"):
        model = TextEmbedder.from_preset(
            tmp_path / "encoder", pooling=[Dense(9), "mean", LayerNorm(), Dense(6)], objective="ranking"
        )
    add_lora(model, rank=2)
    assert {id(v) for v in model.pooling.trainable_variables} < {id(v) for v in model.trainable_variables}
    vectors = model.embed(TEXTS)
    model.save_to_preset(tmp_path / "merged")
    np.testing.assert_allclose(peer(tmp_path / "merged").encode(TEXTS), vectors, atol=1e-5)
    with pytest.raises(
        ValueError, match="An adapter holds LoRA products and heads. Received: .* pooling/token_layer_0"
    ):
        model.save_adapter(tmp_path / "adapter")
    model = TextEmbedder.from_preset(tmp_path / "merged")
    model.quantize("int8")
    model.save_to_preset(tmp_path / "integers")
    again = kerasbert.load(tmp_path / "integers")
    np.testing.assert_array_equal(again.embed(TEXTS), model.embed(TEXTS))
    assert not (tmp_path / "integers" / "1_Dense" / "model.safetensors").exists()


@pytest.mark.one_backend
def test_weights_of_older_files(bert, tmp_path):
    """`pytorch_model.bin` is read, without its pickled code."""
    import torch
    from safetensors.torch import load_file

    model = TextEmbedder(bert.backbone, ["mean", Dense(5)], tokenizer=bert.tokenizer)
    model.save_to_preset(tmp_path)
    path = tmp_path / "2_Dense" / "model.safetensors"
    torch.save(load_file(path), path.with_name("pytorch_model.bin"))
    path.unlink()
    np.testing.assert_array_equal(kerasbert.load(tmp_path).embed(TEXTS), model.embed(TEXTS))


@pytest.mark.one_backend
def test_new_types_and_old_ones(bert, tmp_path):
    model = TextEmbedder(bert.backbone, ["mean", Dense(5)], normalize=True, tokenizer=bert.tokenizer)
    model.save_to_preset(tmp_path)
    path = tmp_path / "modules.json"
    modules = json.loads(path.read_text())
    for spelling in (
        "sentence_transformers.models.{0}.{0}",
        "sentence_transformers.sentence_transformer.modules.{0}",
        "sentence_transformers.base.modules.{1}.{0}",
    ):
        for module in modules:
            kind = module["path"].rpartition("_")[2] or "Transformer"
            module["type"] = spelling.format(kind, kind.lower())
        path.write_text(json.dumps(modules))
        np.testing.assert_array_equal(kerasbert.load(tmp_path).embed(TEXTS), model.embed(TEXTS))


# === Bad folders ===

DENSE = {"in_features": 24, "out_features": 5, "bias": True, "activation_function": "torch.nn.Tanh"}


@pytest.fixture(scope="module")
def good(bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    TextEmbedder(bert.backbone, ["mean", Dense(5)], tokenizer=bert.tokenizer).save_to_preset(folder)
    return folder


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "2_Dense/config.json",
            {**DENSE, "out_features": 6},
            r"linear.weight in .* must have the shape \(6, 24\).*\(5,",
        ),
        ("2_Dense/config.json", {**DENSE, "in_features": 23}, "`in_features` in .* must be 24, .*Received: 23"),
        ("2_Dense/config.json", {**DENSE, "bias": False}, "must be linear.weight. Received: also 'linear.bias'"),
        ("2_Dense/config.json", {**DENSE, "use_residual": True}, "Received: no residual.weight"),
        ("2_Dense/config.json", {**DENSE, "activation_function": "os.system"}, "must be one of torch.nn.*os.system"),
        ("2_Dense/config.json", {**DENSE, "module_input_name": "token_embeddings"}, "after the Pooling must read"),
        ("2_Dense/config.json", {**DENSE, "gate": 1}, r"Received: unknown settings \['gate'\]"),
        ("2_Dense/config.json", {**DENSE, "out_features": "5"}, "`out_features` in .* must be int"),
        ("2_Dense/config.json", '{"in_features": 24', "must be JSON"),
        ("2_Dense/model.safetensors", None, "must contain model.safetensors or pytorch_model.bin"),
        ("2_Dense/model.safetensors", "x", "is not a complete safetensors file"),
        ("1_Pooling/config.json", {"pooling_mode": ["mean", "median"]}, "must be one or several of cls, max"),
        ("modules.json", [], "must list the modules of a model. Received: none"),
        ("modules.json", [["", "Transformer"], ["1_Pooling", "Pooling"], ["2_CNN", "CNN"]], "Received: .*'CNN'"),
        ("modules.json", [["", "Transformer"], ["2_Dense", "Dense"]], "must be one Pooling"),
        ("modules.json", [["", "BoW"], ["1_Pooling", "Pooling"]], "The first module must be a Transformer"),
        ("modules.json", [["", "Transformer"], ["1_Pooling", "Pooling"], ["2_Dense", "mine.Dense"]], "'.*mine.Dense'"),
        ("modules.json", [["", "Transformer"], ["../x", "Pooling"]], "must name files inside its folder"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "maxsim"}, "must be one of cosine, dot"),
        ("config_sentence_transformers.json", {"default_prompt_name": "x"}, "`default_prompt_name` .* must be one of"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "must be 'feature-extraction'"),
        ("sentence_bert_config.json", {"model_args": {"revision": "x"}}, "must leave the model.*Received: revision"),
    ],
)
def test_bad_folders(file, content, message, good, tmp_path):
    folder = tmp_path / "bad"
    shutil.copytree(good, folder)
    if file == "modules.json":
        content = [{"path": path, "type": kind} for path, kind in content]
        for row in content:
            if row["type"] != "mine.Dense":
                row["type"] = f"sentence_transformers.models.{row['type']}"
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        kerasbert.load(folder)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("pooling", "message"),
    [
        ([Dense(5)], "with layers before or after them"),
        (["mean", Dense(5), "cls"], "must stand together"),
        ([LayerNorm(), "mean"], "must stand after the names"),
        ([Dense(5, "softmax"), "mean"], "must stand after the names"),
        (["mean", {"name": "Conv"}], "must be one of Dense, LayerNorm, Normalize, Dropout"),
        (["mean", {"name": "Dense", "unit": 5}], "must be one of Dense"),
    ],
)
def test_bad_layers(pooling, message, bert):
    with pytest.raises(ValueError, match=message):
        TextEmbedder(bert.backbone, pooling)
    for options, error in (((0,), "from 1 to"), ((5, "swish"), "must be one of identity"), ((5.5,), "must be int")):
        with pytest.raises(ValueError, match=error):
            Dense(*options)
    with pytest.raises(ValueError, match="below 1"):
        Dropout(1.0)
    with pytest.raises(ValueError, match="`similarity` must be one of cosine"):
        TextEmbedder(bert.backbone, similarity="max_sim")
