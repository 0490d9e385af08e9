"""Exported programs compute what `predict` does, and models that run them give the same answers."""

import functools
import json
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest

import kerasbert
import pipelines.export
from benchmarks.studies.exports.models import FAMILIES as BACKBONES
from benchmarks.studies.exports.models import build, cells
from kerasbert.exporting.signatures import default_names
from kerasbert.exporting.worker import write
from kerasbert.models import FAMILIES
from kerasbert.runtime import open_export
from kerasbert.runtime.inputs import OUR_NAMES
from kerasbert.tasks import TextClassifier

pytestmark = pytest.mark.backends("torch")  # the backend of the exporter

TEXTS = ["the cat sat on a mat", "who ran home", "one two three four five six seven and a red dog", "blue"]
CELLS = {
    "classifier": ("BERT", "classifier"),
    "tagger": ("RoBERTa", "tagger"),
    "answerer": ("DistilBERT", "answerer"),
    "embedder": ("ModernBERT", "embedder"),
    "masked LM": ("ALBERT", "masked LM"),
    "seq2seq LM": ("Transformer", "seq2seq LM"),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A function from a head to (model, folder of its export); each model is exported once."""
    found = {}

    def of(head):
        if head not in found:
            layers = 2 if head == "embedder" else 1  # ModernBERT's second layer has local attention
            model, folder = build(*CELLS[head], num_layers=layers), tmp_path_factory.mktemp(head.replace(" ", "_"))
            model.save_to_preset(folder / "model")
            (folder / "export").mkdir()
            write(kerasbert.load(folder / "model"), folder / "export", "onnx")
            found[head] = model, folder / "export"
        return found[head]

    return of


def batch(model, rows, columns):
    generator = np.random.default_rng(columns)
    x = {"token_ids": generator.integers(5, model.tokenizer.vocabulary_size, (rows, columns), dtype="int32")}
    x["padding_mask"] = np.ones((rows, columns), "int32")
    x["padding_mask"][-1, columns * 2 // 3 :] = 0
    if getattr(model.backbone.config, "num_segments", 1) > 1:
        x["segment_ids"] = generator.integers(0, 2, (rows, columns), dtype="int32")
    if type(model).__name__ == "Seq2SeqLM":
        x |= {f"decoder_{name}": array[:, :5] for name, array in x.items()}
    return x


@pytest.mark.parametrize("head", CELLS)
def test_programs_equal_predict(exported, head):
    model, folder = exported(head)
    described = json.loads((folder / "kerasbert.json").read_text())["export"]
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    names = dict.fromkeys(described["inputs"], "tensor(int32)" if head == "seq2seq LM" else "tensor(int64)")
    assert {entry.name: entry.type for entry in session.get_inputs()} == names
    for columns in (7, 64, 512):
        for rows in (1, 8):
            x = batch(model, rows, columns)
            expected = model.predict({k: a.astype(bool) if "mask" in k else a for k, a in x.items()}, verbose=0)
            expected = list(expected.values()) if isinstance(expected, dict) else [expected]
            inputs = {name: x[OUR_NAMES.get(name, name)].astype(e["dtype"]) for name, e in described["inputs"].items()}
            found = session.run(list(described["outputs"]), inputs)
            for one, array in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, array, atol=1e-4)
                assert np.ptp(array) > 1e-3  # the weights are not so small that everything is equal


@pytest.mark.parametrize("head", [head for head in CELLS if head != "seq2seq LM"])
def test_what_a_tokenizer_of_transformers_returns_is_what_the_program_reads(exported, head):
    """No name and no dtype has to be changed, as in optimum and fastembed."""
    import transformers

    model, folder = exported(head)
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    encoded = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="np")
    assert {entry.name for entry in session.get_inputs()} == encoded.keys()
    outputs = [entry.name for entry in session.get_outputs()]
    assert outputs == {"answerer": ["start_logits", "end_logits"], "embedder": ["vector"]}.get(head, ["logits"])
    inputs = {OUR_NAMES[name]: array.astype("int32") for name, array in encoded.items()}
    inputs["padding_mask"] = inputs["padding_mask"].astype(bool)
    expected = model.predict(inputs, verbose=0)
    expected = list(expected.values()) if isinstance(expected, dict) else [expected]
    for one, array in zip(session.run(None, dict(encoded)), expected, strict=True):
        np.testing.assert_allclose(one, array, atol=1e-4)


def test_the_names_of_this_package_on_request(exported, tmp_path):
    model, folder = exported("answerer")
    write(kerasbert.load(folder.parent / "model"), tmp_path, "onnx", names="kerasbert")
    described = json.loads((tmp_path / "kerasbert.json").read_text())["export"]
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert {entry.name: entry.type for entry in session.get_inputs()} == {
        "token_ids": "tensor(int32)",
        "padding_mask": "tensor(int32)",
    }
    assert list(described["outputs"]) == [entry.name for entry in session.get_outputs()] == ["start", "end"]
    assert close(kerasbert.load(tmp_path).answer(QUESTIONS), model.answer(QUESTIONS))


@pytest.mark.parametrize("family", sorted(BACKBONES))
def test_whose_names_a_program_has_by_default(family):
    """Those of transformers for its families, in the formats that its clients read."""
    model = build(family, next(head for name, head in cells() if name == family))
    own = ("Transformer", "Attention seq2seq", "ELMo", "Word vectors")
    for format in ("onnx", "onnxruntime", "openvino"):
        assert default_names(model, format) == ("kerasbert" if family in own else "transformers")
    assert default_names(model, "tf_saved_model") == default_names(model, "litert") == "kerasbert"


def close(one, other):
    """Whether nested answers are equal, with numbers up to rounding."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(close, one, other))
    return abs(one - other) < 1e-4 if isinstance(one, float) else one == other


QUESTIONS = [("who sat", "the cat sat on a mat"), ("where", "one two three four " * 30)]
ANSWERS = {
    "classifier": lambda model: model.classify([*TEXTS, ("the cat", "a dog ran")]),
    "tagger": lambda model: model.tag(TEXTS),
    "answerer": lambda model: model.answer(QUESTIONS),
    "masked LM": lambda model: model.fill_mask(["the [MASK] sat", "one [MASK] three [MASK] five"]),
    "seq2seq LM": lambda model: [
        model.generate(TEXTS, max_new_tokens=12, scores=True),
        model.generate(TEXTS, max_new_tokens=3, first_token=9, scores=True),
    ],
}


@pytest.mark.parametrize("head", ANSWERS)
def test_answers_are_those_of_the_model(exported, head):
    model, folder = exported(head)
    loaded = kerasbert.load(folder)
    assert type(loaded) is type(model)
    assert close(ANSWERS[head](loaded), ANSWERS[head](model))


def test_vectors_are_those_of_the_model(exported):
    model, folder = exported("embedder")
    texts = TEXTS * 20 + [" ".join(TEXTS) * 3]
    loaded = kerasbert.tasks.TextEmbedder.from_preset(folder)
    np.testing.assert_allclose(loaded.embed(texts), model.embed(texts), atol=1e-5)
    np.testing.assert_allclose(loaded.predict(texts), model.embed(texts), atol=1e-5)


WITHOUT_KERAS = {
    "classifier": lambda model, call: call([*TEXTS, ("the cat", "a dog ran")]),
    "tagger": lambda model, call: call([*TEXTS, ["the", "cat"], ["one two three"] * 300]),
    "answerer": lambda model, call: call(QUESTIONS, n_best=3, null_threshold=-0.1),
    "masked LM": lambda model, call: call(["the [MASK] sat", "one [MASK] three [MASK] five"], top_k=7),
    "embedder": lambda model, call: list(map(np.ndarray.tolist, call([*TEXTS, "one two three " * 300]))),
}


@pytest.mark.parametrize("head", WITHOUT_KERAS)
def test_answers_without_keras_are_those_of_the_model(exported, head):
    model, folder = exported(head)
    opened = open_export(folder)
    ask = WITHOUT_KERAS[head]
    assert close(ask(opened, opened.answer), ask(model, getattr(model, opened.does)))
    assert close(ask(opened, functools.partial(opened.answer, batch_size=1)), ask(opened, opened.answer))


def test_decoders_read_their_cache(exported):
    """The logits after several tokens in one call equal those after one token per call."""
    model, folder = exported("seq2seq LM")
    engine = kerasbert.load(folder).engine
    source = batch(model, 2, 9)
    cache = engine.empty_cache(2, 6) | engine.programs.run("encoder", source)
    tokens = np.array([[0, 7, 8], [0, 9, 6]], "int32")
    ones = np.ones_like(tokens)
    positions = np.tile(np.arange(3, dtype="int32"), (2, 1))
    whole = engine.programs.run("decoder", dict(token_ids=tokens, padding_mask=ones, position_ids=positions, **cache))
    for i in range(3):
        part = {"token_ids": tokens, "padding_mask": ones, "position_ids": positions}
        found = engine.programs.run("decoder", {**{name: array[:, i : i + 1] for name, array in part.items()}, **cache})
        cache |= {name.removeprefix("next."): array for name, array in found.items()}
    np.testing.assert_allclose(found["logits"], whole["logits"], atol=1e-5)
    assert int(found["next.start"]) == 3


def test_what_needs_weights_is_refused(exported, tmp_path):
    loaded = kerasbert.load(exported("classifier")[1])
    for call in (
        lambda: loaded.fit(TEXTS, ["a", "b", "c", "a"], verbose=0),
        lambda: loaded.save_to_preset(tmp_path / "saved"),
        lambda: loaded.save(tmp_path / "saved.keras"),
        lambda: loaded.backbone({"token_ids": np.ones((1, 2), "int32")}),
    ):
        with pytest.raises(ValueError, match="Load the folder of the model that was exported"):
            call()


def test_beams_are_refused(exported):
    loaded = kerasbert.load(exported("seq2seq LM")[1])
    with pytest.raises(ValueError, match="An export decodes greedily"):
        loaded.generate(TEXTS, num_beams=2)


def test_a_program_of_another_export_is_refused(exported, tmp_path):
    mine, other = exported("classifier")[1], exported("tagger")[1]
    for file in mine.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "model.onnx").write_bytes((other / "model.onnx").read_bytes())
    with pytest.raises(ValueError, match="belongs to another export, or was changed"):
        kerasbert.load(tmp_path)
    (tmp_path / "model.onnx").unlink()
    with pytest.raises(FileNotFoundError, match="must contain model.onnx"):
        kerasbert.load(tmp_path)


def test_an_export_of_another_class_is_refused(exported):
    with pytest.raises(ValueError, match="the export of a 'TextClassifier', for a TokenClassifier"):
        kerasbert.tasks.TokenClassifier.from_preset(exported("classifier")[1])


@pytest.fixture
def roformer():
    """A family in a module of a user, known to this process for the time of the test."""
    from tests.extending.roformer import RoFormer

    FAMILIES["roformer"] = RoFormer
    yield RoFormer
    del FAMILIES["roformer"]


def test_the_command_exports_in_another_process(tmp_path, roformer, capsys):
    """The family is a user's, and the program is int8: smaller, and close to the model."""
    tokenizer = build("Word vectors", "embedder").tokenizer
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=128, feed_forward_dim=512, embedding_dim=32, max_length=64)
    config = roformer.family.config(vocabulary_size=tokenizer.vocabulary_size, initializer_range=0.2, **sizes)
    model = TextClassifier(roformer(config), labels=["a", "b", "c"], tokenizer=tokenizer)
    model.save_to_preset(tmp_path / "model")
    pipelines.export.export(str(tmp_path / "model"), tmp_path / "int8", int8=True)
    assert "onnx, int8" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["int8", "model"]
    saved = (tmp_path / "model" / "model.safetensors").stat().st_size
    assert (tmp_path / "int8" / "model.onnx").stat().st_size < 0.6 * saved
    loaded, expected = kerasbert.load(tmp_path / "int8"), model.predict(TEXTS, verbose=0)
    assert type(loaded.backbone) is roformer
    assert 0 < np.abs(loaded.predict(TEXTS) - expected).max() < 0.1 * np.ptp(expected)


RUNS_EXAMPLE = {
    "classifier": (TEXTS[:2], lambda model: [a["scores"] for a in model.classify(TEXTS[:2])], "scores"),
    "embedder": (TEXTS[:2], lambda model: model.embed(TEXTS[:2]).tolist(), "vector"),
    "seq2seq LM": (TEXTS[:2], lambda model: model.generate(TEXTS[:2], max_new_tokens=64), "answer"),
}


@pytest.mark.parametrize("head", RUNS_EXAMPLE)
def test_the_example_needs_no_kerasbert(exported, head):
    """It runs in a Python that cannot import Keras or this package."""
    model, folder = exported(head)
    texts, expected, key = RUNS_EXAMPLE[head]
    code = (
        "import runpy, sys; sys.modules.update(dict.fromkeys(('kerasbert', 'keras', 'torch', 'transformers'))); "
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-c", code, str(folder / "example.py"), *texts]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder).stdout
    found = [json.loads(line)[key] for line in printed.splitlines()]
    assert close(found, expected(model))
