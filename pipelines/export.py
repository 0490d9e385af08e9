"""Exports a model to a folder that runs without kerasbert.

python -m pipelines.export saved_models/mine exports/mine
python -m pipelines.export saved_models/mine exports/mine_int8 --int8
python -m pipelines.export hf://sentence-transformers/all-MiniLM-L6-v2 exports/minilm --format openvino
"""

from pathlib import Path
from typing import Literal

import kerasbert

from .command_line.command import Command
from .runs.outputs import cleaning_up


@cleaning_up()
def export(
    model: str,
    output: Path,
    format: Literal["onnx", "onnxruntime", "openvino", "tf_saved_model", "litert"] = "onnx",
    int8: bool = False,
    opset: int | None = None,
    names: Literal["transformers", "kerasbert"] | None = None,
) -> None:
    """Writes a folder with the program and the weights of a model, its tokenizer, and example.py, which runs it.

    The program is compared with the model before the folder appears. Nothing is written if the export fails.

    Args:
        model: folder of a task model, a language model or an encoder-decoder, a shipped model such as bert_mini_en, or
            hf://org/name.
        output: the folder to write. It must not exist, be empty, or contain an earlier export.
        format: format of the program, for ONNX Runtime, OpenVINO, TensorFlow (Serving) or LiteRT. onnxruntime is ONNX
            with layers that are fused for ONNX Runtime, and faster there.
        int8: store the matrices of an ONNX program as int8, which makes it smaller and faster, and less exact.
        opset: version of the ONNX operators, 18 to 23. Default: 18.
        names: names of the inputs: input_ids, attention_mask..., int64, as in transformers and its clients, or
            token_ids, padding_mask..., int32. Default: transformers, in ONNX and OpenVINO for families that it has.
    """
    written = kerasbert.export(model, output, format, quantize="int8" if int8 else None, opset=opset, names=names)
    size = sum(file.stat().st_size for file in written.rglob("*") if file.is_file())
    print(f"{written}: {format}{', int8' if int8 else ''}, {size / 1e6:,.1f} MB")
    print(f"To run it: python {written / 'example.py'}")


main = Command(
    export,
    groups={"model": ("model",), "export": ("output", "format", "int8", "opset", "names")},
    first=("model", "output"),
)

if __name__ == "__main__":
    main()
