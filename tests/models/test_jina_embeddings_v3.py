"""jina-embeddings-v3 against transformers, both ways; the folder of its authors, with an adapter for each task."""

import json
import logging

import numpy as np
import pytest

import kerasbert
from kerasbert.models import Backbone, JinaEmbeddingsV3, JinaEmbeddingsV3Config, Roberta
from kerasbert.models.jina_embeddings_v3 import SIZES
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import TextClassifier, TextEmbedder
from tests.models.reference import (
    check_batch_invariance,
    check_gradients,
    check_half_precision,
    check_head,
    check_keras_file,
    check_packing,
    check_padding_invariance,
    check_states,
    example,
    randomize,
    their_model,
    to_numpy,
    write_embedder,
)

TINY = dict(vocabulary_size=61, num_layers=2, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=62)
HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
TASKS = ["retrieval.query", "retrieval.passage", "separation"]


def their_config(**changes):
    import transformers

    sizes = dict(vocab_size=61, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40)
    others = dict(max_position_embeddings=64, type_vocab_size=2, layer_norm_eps=1e-7, classifier_dropout=0.25)
    rope = dict(rope_parameters={"rope_type": "default", "rope_theta": 300.0})
    return transformers.JinaEmbeddingsV3Config(**{**sizes, **others, **rope, **changes})


@pytest.mark.one_backend
@pytest.mark.parametrize("head", HEADS)
def test_heads_equal_transformers_both_ways(head, tmp_path):
    labels = dict(num_labels=5) if head.endswith("Classification") else {}
    check_head("JinaEmbeddingsV3", head, their_config(**labels), tmp_path, num_segments=2)
    ours, theirs = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("ours", "theirs"))
    assert ours["architectures"] == theirs["architectures"] == [f"JinaEmbeddingsV3{head}"]
    for name in ("model_type", "rope_parameters", "max_position_embeddings", "layer_norm_eps", "classifier_dropout"):
        assert ours[name] == theirs[name], name


@pytest.mark.one_backend
def test_hidden_states_and_pooled_outputs_equal_transformers(tmp_path):
    theirs = their_model("JinaEmbeddingsV3Model", their_config(), tmp_path)
    backbone = Backbone.from_preset(tmp_path)
    inputs, theirs_inputs, real = example(61, "right", num_segments=2, pad_id=1)
    found, expected = check_states(backbone, theirs, inputs, theirs_inputs, real, blocks=2)
    np.testing.assert_allclose(to_numpy(found["pooled_output"]), expected.pooler_output.numpy(), atol=1e-5)


# === The folder of the authors ===


def authors_config(**changes):
    sizes = dict(vocab_size=61, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40)
    others = dict(max_position_embeddings=64, type_vocab_size=1, layer_norm_eps=1e-5, pad_token_id=1, bos_token_id=0)
    rope = dict(position_embedding_type="rotary", rotary_emb_base=300.0, use_flash_attn=True)
    lora = dict(lora_adaptations=TASKS, lora_rank=2, lora_alpha=3, lora_dropout_p=0.0, load_trained_adapters=True)
    noise = dict(auto_map={}, matryoshka_dimensions=[8, 24], truncate_dim=None, emb_pooler=None, eos_token_id=2)
    types = dict(model_type="xlm-roberta", architectures=["XLMRobertaModel"])
    return {**types, **sizes, **others, **rope, **lora, **noise, **changes}


def authors_folder(folder, **changes):
    """Writes a folder of the authors, and for each adapter (and none) one of transformers with the sums of matrices."""
    from safetensors.numpy import save_file

    m, f, r = 24, 40, 2
    tables = {"embeddings.word_embeddings": (61, m), "embeddings.token_type_embeddings": (1, m)}
    dense, norms = {"pooler.dense": (m, m)}, ["emb_ln"]
    for i in range(2):
        block = f"encoder.layers.{i}"
        dense |= {f"{block}.mixer.Wqkv": (3 * m, m), f"{block}.mixer.out_proj": (m, m)}
        dense |= {f"{block}.mlp.fc1": (f, m), f"{block}.mlp.fc2": (m, f)}
        norms += [f"{block}.norm1", f"{block}.norm2"]
    rng = np.random.default_rng(5)

    def draw(*shape):
        return rng.normal(0, 0.3, shape).astype("float32")

    plain = {f"{name}.bias": draw(rows) for name, (rows, _) in dense.items()}
    plain |= {f"{norm}.{leaf}": draw(m) for norm in norms for leaf in ("weight", "bias")}
    stored, sums = dict(plain), {task: dict(plain) for task in (None, *TASKS)}
    for name, (rows, columns) in {**tables, **dense}.items():
        weight = draw(rows, columns)
        shapes = ((rows, r), (r, columns)) if name in tables else ((r, columns), (rows, r))
        a, b = (draw(len(TASKS), *shape) for shape in shapes)
        path = f"{name}.parametrizations.weight"
        stored |= {f"{path}.original": weight, f"{path}.0.lora_A": a, f"{path}.0.lora_B": b}
        sums[None][f"{name}.weight"] = weight
        for index, task in enumerate(TASKS):
            product = a[index] @ b[index] if name in tables else b[index] @ a[index]
            sums[task][f"{name}.weight"] = weight + 3 / 2 * product
    folder.mkdir(exist_ok=True)
    save_file({f"roberta.{name}": array for name, array in stored.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(authors_config(**changes)))
    native = their_config(type_vocab_size=1, layer_norm_eps=1e-5).to_dict()
    for task, tensors in sums.items():
        part = folder.parent / f"of {task}"
        part.mkdir()
        save_file(tensors, part / "model.safetensors")
        (part / "config.json").write_text(json.dumps({**native, "architectures": ["JinaEmbeddingsV3Model"]}))


@pytest.fixture(scope="module")
def authors(tmp_path_factory):
    folder = tmp_path_factory.mktemp("jina") / "authors"
    authors_folder(folder)
    return folder


def their_output(folder, inputs):
    import torch
    import transformers

    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        found = model(**{key: torch.from_numpy(value.astype("int64")) for key, value in inputs.items()})
    return found.last_hidden_state.numpy()


@pytest.mark.one_backend
@pytest.mark.parametrize("task", [None, *TASKS])
def test_an_adapter_is_merged_into_the_weights(task, authors, tmp_path, caplog):
    caplog.set_level(logging.INFO, "kerasbert")
    backbone = Backbone.from_preset(authors, **({} if task is None else {"adapter": task}))
    assert isinstance(backbone, JinaEmbeddingsV3) and backbone.config.max_length == 62
    assert ("adapters that are not used" in caplog.text) == (task is None)
    inputs, theirs, real = example(61, "right", pad_id=1)
    expected = their_output(authors.parent / f"of {task}", theirs)[real]
    np.testing.assert_allclose(to_numpy(backbone(inputs)["sequence_output"])[real], expected, atol=1e-5)
    backbone.save_to_preset(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    assert stored["model_type"] == "jina_embeddings_v3" and stored["rope_parameters"]["rope_theta"] == 300.0
    np.testing.assert_allclose(their_output(tmp_path, theirs)[real], expected, atol=1e-5)


@pytest.mark.one_backend
def test_an_embedder_of_the_authors(authors, tmp_path):
    import shutil

    folder = shutil.copytree(authors, tmp_path / "embedder")
    prompts = {"retrieval.query": "the ", "separation": ""}
    tokenizer = write_embedder(folder, "mean", prompts, "custom_st.Transformer")
    embedder = kerasbert.load(folder, adapter="retrieval.query")
    assert isinstance(embedder, TextEmbedder) and embedder.backbone.pooler is None
    ids = np.array(tokenizer.encode(["the cat sat"]))
    expected = their_output(authors.parent / "of retrieval.query", dict(input_ids=ids)).mean(axis=1)
    found = embedder.embed(["cat sat"], prompt="retrieval.query")
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=1e-5)
    embedder.save_to_preset(tmp_path / "ours")
    again = kerasbert.load(tmp_path / "ours").embed(["cat sat"], prompt="retrieval.query")
    np.testing.assert_allclose(again, found, atol=1e-6)
    # The same type in a folder without adapters may be any code.
    modules = (folder / "modules.json").read_text()
    (tmp_path / "ours" / "modules.json").write_text(modules)
    with pytest.raises(ValueError, match="custom_st.Transformer"):
        kerasbert.load(tmp_path / "ours")


@pytest.mark.one_backend
def test_adapters_that_are_not_there_are_refused(authors, tmp_path):
    from safetensors.numpy import load_file, save_file

    with pytest.raises(ValueError, match="retrieval.query, retrieval.passage, separation. Received: 'text-matching'"):
        Backbone.from_preset(authors, adapter="text-matching")
    with pytest.raises(ValueError, match="adapter='separation' for .* without its weights"):
        Backbone.from_preset(authors, adapter="separation", load_weights=False)
    with pytest.raises(ValueError, match="Overrides must be .* Received: adapter"):
        Backbone.from_preset("jina_embeddings_v3", adapter="separation", load_weights=False)
    JinaEmbeddingsV3(JinaEmbeddingsV3Config(**TINY)).save_to_preset(tmp_path / "plain")
    with pytest.raises(ValueError, match="adapter='separation' for .*plain, which has none"):
        TextEmbedder.from_preset(tmp_path / "plain", adapter="separation")
    with pytest.raises(ValueError, match="Use JinaEmbeddingsV3 or Backbone"):
        Roberta.from_preset(authors)
    tensors = load_file(authors / "model.safetensors")
    broken = "roberta.encoder.layers.0.mlp.fc1.parametrizations.weight.0.lora_A"
    for change in ({broken: tensors[broken][:2]}, {broken: tensors[broken][:, :1]}, {}):
        save_file({**{k: v for k, v in tensors.items() if k != broken}, **change}, tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_text(json.dumps(authors_config()))
        with pytest.raises(ValueError, match="matrices of 3 adapters must fit their weight.*layers.0.mlp.fc1"):
            Backbone.from_preset(tmp_path, adapter="separation")


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(position_embedding_type="alibi"), "only with position_embedding_type='absolute'. .*'alibi'"),
        (dict(truncate_dim=8), "only with truncate_dim=None. .*truncate_dim=8"),
        (dict(rope_parameters={"rope_type": "yarn"}), "rope_type='default'. .*'yarn'"),
        (dict(lora_rank=0), "`lora_rank` in .* must be at least 1. Received: 0"),
        (dict(lora_adaptations="separation"), "`lora_adaptations` in .* must be list"),
        (dict(tie_word_embeddings=False), "only with tie_word_embeddings=True"),
    ],
)
def test_what_we_do_not_have_is_refused(change, message, authors, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(authors_config(**change)))
    (tmp_path / "model.safetensors").symlink_to(authors / "model.safetensors")
    with pytest.raises(ValueError, match=message):
        Backbone.from_preset(tmp_path)


# === The encoder ===


@pytest.mark.one_backend
def test_the_size_has_the_parameters_of_the_released_model():
    def parameters(m, f, v, layers):
        return (v + 1) * m + 2 * m + layers * (4 * (m * m + m) + 2 * m * f + f + m + 4 * m) + m * m + m

    config = JinaEmbeddingsV3Config(**SIZES["jina_embeddings_v3"])
    m, f, v = config.hidden_dim, config.feed_forward_dim, config.vocabulary_size
    sums = (v + m) + (1 + m) + 2 * m + 24 * (4 * m + 2 * m + 2 * (m + f))  # inputs and outputs of what has adapters
    assert parameters(m, f, v, 24) + 5 * 4 * sums == 572_310_396  # five adapters of rank 4
    assert JinaEmbeddingsV3(JinaEmbeddingsV3Config(**TINY)).count_params() == parameters(24, 40, 61, 2)


@pytest.mark.one_backend
def test_invariances():
    backbone = randomize(JinaEmbeddingsV3(JinaEmbeddingsV3Config(**TINY)))
    check_batch_invariance(backbone)
    check_padding_invariance(backbone, left=True)
    check_packing(backbone)


@pytest.mark.one_backend
def test_half_precision_is_finite():
    check_half_precision(lambda dtype: JinaEmbeddingsV3(JinaEmbeddingsV3Config(**TINY), dtype=dtype))


@pytest.mark.one_backend
def test_every_weight_gets_a_gradient():
    x, _, _ = example(61, "right", pad_id=1)
    x["masked_positions"] = np.array([[1, 4, 9], [2, -1, 0]], "int32")
    labels = np.array([[5, 60, 1], [7, 0, 3]], "int32")
    config = JinaEmbeddingsV3Config(**{**TINY, "num_layers": 1})
    model = randomize(MaskedLM(JinaEmbeddingsV3(config, pooler=False)))
    check_gradients(model, (x, labels), without=("key/bias",))


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    backbone = JinaEmbeddingsV3(JinaEmbeddingsV3Config(**TINY))
    check_keras_file(randomize(TextClassifier(backbone, labels=["a", "b", "c"])), tmp_path)
