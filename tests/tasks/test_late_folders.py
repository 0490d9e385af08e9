"""Folders of late interaction, written by sentence-transformers or made by the rules of PyLate and of Stanford."""

import json
import shutil
import string

import numpy as np
import pytest

import kerasbert
from kerasbert.tasks import MultiVectorEmbedder, TextEmbedder

pytestmark = pytest.mark.one_backend  # the peer is in PyTorch

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, ".", ",", "[unused0]", "[unused1]", *(f"w{i}" for i in range(40))]
QUERIES = ["w1 w2 . w3", "w4", "zebra , w5", "w6 " * 40, ""]
DOCUMENTS = ["w7 w8 , w9 .", "w1 " * 50, ". , .", "w3 zebra w2 [ w1", ""]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A folder of transformers with a tiny BERT."""
    import torch
    import transformers

    folder = tmp_path_factory.mktemp("bert")
    sizes = dict(
        num_hidden_layers=1, num_attention_heads=3, hidden_size=24, intermediate_size=40, vocab_size=len(WORDS)
    )
    torch.manual_seed(0)
    config = transformers.BertConfig(**sizes, max_position_embeddings=40, initializer_range=0.3)
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def peer(folder):
    from sentence_transformers import MultiVectorEncoder

    return MultiVectorEncoder(str(folder), device="cpu")


def check_equal(ours, theirs):
    """Vectors and scores equal those of sentence-transformers."""
    pairs = [
        (ours.embed_queries(QUERIES, batch_size=2), theirs.encode_query(QUERIES, convert_to_numpy=True)),
        (ours.embed_documents(DOCUMENTS, batch_size=3), theirs.encode_document(DOCUMENTS, convert_to_numpy=True)),
    ]
    for found, expected in pairs:
        assert [x.shape for x in found] == [x.shape for x in expected]
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
    scores = theirs.similarity(pairs[0][1], pairs[1][1]).numpy()
    np.testing.assert_allclose(ours.similarity(pairs[0][0], pairs[1][0]), scores, rtol=1e-5, atol=1e-5)


SETTINGS = {  # {name: (settings of the encoder, of the layers, of the mask, of the model)}
    "plain": ({}, [{}], {}, {}),
    "fixed": (
        {"query_expansion": {"strategy": "fixed", "length": 12}, "document_length": 20},
        [{}],
        {"skiplist_words": [".", ","]},
        {"prompts": {"query": "[Q] ", "document": "w9 "}},
    ),
    "attending": (
        {"query_expansion": {"strategy": "fixed", "length": 9, "attend": True, "token": "w5"}},
        [{"bias": True, "activation": "Tanh"}, {"use_residual": True}],
        {"skiplist_words": ["."], "skiplist_tasks": ["query", "document"]},
        {"prompts": {"w": "w1 "}, "default_prompt_name": "w", "similarity_fn_name": "meanmaxsim"},
    ),
    "least": (
        {"query_expansion": {"strategy": "min", "length": 7}, "query_length": 11, "document_length": 9},
        [],
        {"keep_only_token_ids": [2, 9, 10, 11]},
        {"prompts": {"query": "w2 ", "passage": "w3 "}},
    ),
}


def written(bert, folder, name):
    """Writes a folder by sentence-transformers."""
    import torch
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.base.modules.dense import Dense
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    encoder, layers, mask, model = SETTINGS[name]
    torch.manual_seed(1)
    dense, width = [], 24
    for options in layers:
        options = {"bias": False, "activation": "Identity", **options}
        activation = getattr(torch.nn, options.pop("activation"))()
        dense.append(Dense(width, 7, activation_function=activation, module_input_name="token_embeddings", **options))
        width = 7
    modules = [Transformer(str(bert), **encoder), *dense, MultiVectorMask(**mask), Normalize("token_embeddings")]
    MultiVectorEncoder(modules=modules, device="cpu", **model).save(str(folder))
    return folder


@pytest.mark.parametrize("name", SETTINGS)
def test_folders_of_sentence_transformers_both_ways(bert, tmp_path, name):
    theirs = peer(written(bert, tmp_path / "theirs", name))
    ours = kerasbert.load(tmp_path / "theirs")
    assert type(ours) is MultiVectorEmbedder
    check_equal(ours, theirs)
    ours.save_to_preset(tmp_path / "ours")
    check_equal(ours, peer(tmp_path / "ours"))
    again = kerasbert.load(tmp_path / "ours")
    assert again.arguments() == ours.arguments()
    check_equal(again, theirs)


# === PyLate and Stanford ===


def write(path, content):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def pylate(bert, folder, **settings):
    """A folder with two added tokens and a projection."""
    import torch
    import transformers
    from safetensors.torch import save_file

    torch.manual_seed(2)
    tokenizer, model = transformers.AutoTokenizer.from_pretrained(bert), transformers.AutoModel.from_pretrained(bert)
    tokenizer.add_tokens(["[Q] ", "[D] "])
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    identity = "torch.nn.modules.linear.Identity"
    sizes = {"in_features": 24, "out_features": 7, "bias": False, "activation_function": identity}
    write(folder / "1_Dense" / "config.json", sizes)
    save_file({"linear.weight": torch.randn(7, 24)}, folder / "1_Dense" / "model.safetensors")
    kinds = ["sentence_transformers.models.Transformer", "pylate.models.Dense.Dense"]
    rows = [{"idx": i, "name": str(i), "path": ["", "1_Dense"][i], "type": kind} for i, kind in enumerate(kinds)]
    write(folder / "modules.json", rows)
    write(folder / "sentence_bert_config.json", {"max_seq_length": 39, "do_lower_case": False})
    write(folder / "config_sentence_transformers.json", {"model_type": "ColBERT", **settings})
    return folder


WHOLE = {
    "query_prefix": "[Q] ",
    "document_prefix": "[D] ",
    "query_length": 14,
    "document_length": 24,
    "do_query_expansion": True,
    "attend_to_expansion_tokens": False,
    "skiplist_words": [".", ","],
}


@pytest.mark.parametrize(
    "changes", [{}, {"attend_to_expansion_tokens": True, "prompts": {"query": "w7 ", "document": ""}}]
)
def test_folders_of_pylate(bert, tmp_path, changes):
    folder = pylate(bert, tmp_path / "theirs", **{**WHOLE, **changes})
    ours = kerasbert.load(folder)
    check_equal(ours, peer(folder))
    row = ours.encode([ours.prompts.text("query") + "w1"], query=True)["token_ids"][0]
    assert row[:2].tolist() == [2, ours.tokenizer.id("[Q] ")]
    ours.save_to_preset(tmp_path / "ours")
    check_equal(ours, peer(tmp_path / "ours"))


@pytest.mark.filterwarnings("ignore:`skip_words` must be tokens", "ignore:`max_length` is 180")
def test_settings_that_pylate_leaves_out(bert, tmp_path):
    ours = kerasbert.load(pylate(bert, tmp_path))
    rules = ours.tokens
    assert (rules.expansion.length, rules.expansion.attend, rules.document_length) == (32, False, 180)
    assert rules.skip_words == tuple(string.punctuation)
    assert ours.prompts.texts == {"query": "[Q] ", "document": "[D] "}


def test_similarity_and_older_folders_of_pylate(bert, tmp_path):
    expected = kerasbert.load(pylate(bert, tmp_path / "new", similarity_fn_name="MaxSim", **WHOLE))
    ours = kerasbert.load(pylate(bert, tmp_path / "old", model_type=None, **WHOLE))
    assert type(ours) is MultiVectorEmbedder and ours.arguments() == expected.arguments()
    assert ours.similarity_name == "max_sim"
    check_equal(ours, peer(tmp_path / "new"))


METADATA = {
    "query_token_id": "[unused1]",
    "doc_token_id": "[unused0]",
    "query_maxlen": 12,
    "doc_maxlen": 30,
    "attend_to_mask_tokens": True,
    "mask_punctuation": False,
}


@pytest.mark.filterwarnings("ignore:`skip_words` must be tokens of the vocabulary")
@pytest.mark.parametrize("metadata", [None, METADATA])
def test_folders_of_stanford(bert, tmp_path, metadata):
    import torch
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "theirs"
    shutil.copytree(bert, folder)
    torch.manual_seed(3)
    weights = {f"bert.{name}": tensor for name, tensor in load_file(bert / "model.safetensors").items()}
    save_file({**weights, "linear.weight": torch.randn(6, 24)}, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    write(folder / "config.json", {**config, "architectures": ["HF_ColBERT"]})
    if metadata is not None:
        write(folder / "artifact.metadata", metadata)
    ours = kerasbert.load(folder)
    check_equal(ours, peer(folder))
    ours.save_to_preset(tmp_path / "ours")
    check_equal(ours, peer(tmp_path / "ours"))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"must have a linear.weight, the projection"):
        kerasbert.load(folder)


# === Other folders ===


def test_an_encoder_and_a_model_of_text_vectors_get_a_projection(bert, tmp_path):
    with pytest.warns(UserWarning, match="no weights for the projection"):
        assert MultiVectorEmbedder.from_preset(bert, projection=5).embedding_dim == 5
    TextEmbedder.from_preset(bert, normalize=True).save_to_preset(tmp_path)
    with pytest.warns(UserWarning, match="no weights for the projection"):
        model = MultiVectorEmbedder.from_preset(tmp_path)
    assert model.embedding_dim == 128 and model.embed("w1 w2").shape == (4, 128)


def test_what_is_refused(bert, tmp_path):
    folder = written(bert, tmp_path / "theirs", "plain")
    modules = json.loads((folder / "modules.json").read_text())
    pooling = "sentence_transformers.multi_vector_encoder.modules.token_pooling.TokenPooling"
    write(folder / "modules.json", [*modules, {"idx": 4, "name": "4", "path": "", "type": pooling}])
    with pytest.raises(ValueError, match="must be Dense, Normalize, MultiVectorMask. Received: .*TokenPooling"):
        kerasbert.load(folder)
    without = [row for row in modules if "Mask" not in row["type"]]
    write(folder / "modules.json", without)
    write(folder / "sentence_bert_config.json", {"query_expansion": {"strategy": "fixed", "length": 9}})
    with pytest.raises(ValueError, match="Query expansion needs a MultiVectorMask"):
        kerasbert.load(folder)
    write(folder / "modules.json", modules)
    write(folder / "sentence_bert_config.json", {"query_expansion": {"strategy": "fixed", "length": "9"}})
    with pytest.raises(ValueError, match="`length` in"):
        kerasbert.load(folder)
    write(folder / "sentence_bert_config.json", {})
    (folder / "1_Dense" / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="1_Dense"):
        kerasbert.load(folder)
