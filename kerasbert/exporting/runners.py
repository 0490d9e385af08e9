"""Runs artifacts, to compare them with the models that they were exported from."""

from ..backend import exporting as exporters
from ..runtime.programs import session


def runner(format, file):
    """Returns a function from {input: int32 array} to {output: array} that runs an artifact.

    Args:
        format: the format; see `kerasbert.export`.
        file: path of the artifact.
    """
    return {
        "onnx": onnx_runner,
        "onnxruntime": onnx_runner,
        "openvino": openvino_runner,
        "tf_saved_model": exporters.saved_model_runner,
        "litert": exporters.litert_runner,
    }[format](file)


def onnx_runner(file):
    opened = session(file)
    names = [entry.name for entry in opened.get_outputs()]
    return lambda x: dict(zip(names, opened.run(names, x), strict=True))


def openvino_runner(file):
    import openvino

    compiled = openvino.Core().compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    names = [output.get_any_name() for output in compiled.outputs]
    return lambda x: {name: compiled(x)[name] for name in names}
