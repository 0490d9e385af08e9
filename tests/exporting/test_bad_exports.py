"""Exports that cannot be made end with a message, and leave nothing behind."""

import importlib.util
import json

import onnx
import pytest

import kerasbert
from benchmarks.studies.exports.models import build
from kerasbert.backend import exporting
from kerasbert.backend.exporting import exporter_errors
from kerasbert.exporting import writing
from kerasbert.exporting.worker import export_folder
from kerasbert.models import Bert, BertConfig
from kerasbert.objectives import SpanBoundary
from kerasbert.tasks import TextClassifier

pytestmark = pytest.mark.one_backend

TINY = dict(vocabulary_size=61, num_layers=1, num_heads=1, hidden_dim=8, feed_forward_dim=8, max_length=16)


@pytest.fixture
def model():
    return build("BERT", "classifier")


@pytest.fixture
def fails(monkeypatch):
    """Makes every export fail once its process has written something."""

    def fail(order):
        with open(f"{order['output']}/model.onnx", "w") as file:
            file.write("half of a program")
        raise ValueError("the exporter failed")

    monkeypatch.setattr(writing, "run_exporter", fail)


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"format": "tensorrt"},
            "must be one of onnx, onnxruntime, openvino, tf_saved_model, litert. Received: 'tensorrt'",
        ),
        ({"quantize": "int4"}, 'must be "int8" or None'),
        ({"quantize": "int8", "format": "tf_saved_model"}, 'Only format="onnx" can be quantized'),
        ({"opset": 11}, "must be from 18 to 23: older versions lack operators"),
        ({"opset": 18, "format": "tf_saved_model"}, "is a version of ONNX"),
    ],
)
def test_options(model, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        kerasbert.export(model, tmp_path / "export", **options)
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_named_with_the_command_that_installs_it(model, tmp_path, monkeypatch):
    missing = {"onnxscript"}
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else find(name))
    with pytest.raises(ImportError, match=r"needs onnxscript. Install it with: pip install \"kerasbert\[export\]\""):
        kerasbert.export(model, tmp_path / "export")
    missing |= {"openvino", "torch"}
    with pytest.raises(ImportError, match=r"needs torch, onnxscript, openvino. .*\[torch,export\]\" openvino"):
        kerasbert.export(model, tmp_path / "export", format="openvino")
    assert not list(tmp_path.iterdir())


def test_models_that_cannot_be_exported(tmp_path):
    without = TextClassifier(Bert(BertConfig(**TINY)))
    with pytest.raises(ValueError, match="a TextClassifier without a tokenizer"):
        kerasbert.export(without, tmp_path / "export")
    for model in (Bert(BertConfig(**TINY)), SpanBoundary(Bert(BertConfig(**TINY)))):
        with pytest.raises(ValueError, match=f"can be exported: .* Received: a {type(model).__name__}"):
            kerasbert.export(model, tmp_path / "export")
    with pytest.raises(FileNotFoundError, match="There is no folder"):
        kerasbert.export(tmp_path / "nothing", tmp_path / "export")
    assert not list(tmp_path.iterdir())


def test_other_files_are_never_replaced(model, tmp_path):
    folder = tmp_path / "model"
    model.save_to_preset(folder)
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(ValueError, match="must not replace other files"):
        kerasbert.export(folder, folder)
    assert sorted(path.name for path in folder.iterdir()) == before
    with pytest.raises(NotADirectoryError, match="An export is a folder"):
        kerasbert.export(folder, folder / "config.json")


def test_a_failed_export_leaves_the_earlier_one(model, tmp_path, fails):
    with pytest.raises(ValueError, match="the exporter failed"):
        kerasbert.export(model, tmp_path / "export")
    assert not list(tmp_path.iterdir())
    earlier = tmp_path / "export"
    earlier.mkdir()
    (earlier / "kerasbert.json").write_text(json.dumps({"export": {}}))
    with pytest.raises(ValueError, match="the exporter failed"):
        kerasbert.export(model, earlier)
    assert [path.name for path in tmp_path.iterdir()] == ["export"]
    assert [path.name for path in earlier.iterdir()] == ["kerasbert.json"]


def test_an_error_of_an_exporter_is_one_line():
    with pytest.raises(ValueError, match="PyTorch's exporter cannot write the model. Received: inner reason$"):
        with exporter_errors("PyTorch"):
            try:
                raise RuntimeError("inner\n reason")
            except RuntimeError as inner:
                raise TypeError("the exporter gives up") from inner


def test_quantized_models_name_the_way_that_works(model, tmp_path):
    model.quantize("int8")
    model.save_to_preset(tmp_path / "int8")
    with pytest.raises(ValueError, match='Export the model of full precision, with quantize="int8"'):
        kerasbert.export(model, tmp_path / "export")
    with pytest.raises(ValueError, match='Export the model of full precision, with quantize="int8"'):
        export_folder(tmp_path / "int8", tmp_path / "export", format="onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["int8"]


@pytest.fixture
def here(monkeypatch):
    """Exports in this process, which takes less time."""
    monkeypatch.setattr(writing, "run_exporter", lambda order: export_folder(**order))


def test_an_opset_without_an_operator_is_refused(model, tmp_path, monkeypatch, here):
    """PyTorch's exporter then writes a file with a newer opset."""

    def write_newer(model, function, inputs, outputs, path, opset):
        gelu = onnx.helper.make_node("Gelu", ["x"], ["y"])
        x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy")
        graph = onnx.helper.make_graph([gelu], "program", [x], [y])
        onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset + 2)]), path)

    monkeypatch.setattr(exporting, "write_onnx", write_newer)
    with pytest.raises(ValueError, match="a TextClassifier with a Bert .* opset=18, which lacks one. Use opset=20"):
        kerasbert.export(model, tmp_path / "export", opset=18)
    assert not list(tmp_path.iterdir())


def test_classes_that_another_process_cannot_import(tmp_path):
    script = type("Mine", (TextClassifier,), {"__module__": "__main__"})
    with pytest.raises(ValueError, match="a Mine, which is defined in the script or notebook itself. Move it to"):
        writing.write_export(tmp_path / "export", tmp_path, "onnx", script)
    with pytest.raises(ValueError, match="the module 'nobodys_module', and No module named .* PYTHONPATH"):
        export_folder(tmp_path, tmp_path / "export", modules=["nobodys_module"], format="onnx")
    assert not list(tmp_path.iterdir())
