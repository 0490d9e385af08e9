"""Which files of a model folder are read, and for what; and which are not, and why not."""

import re
from pathlib import Path

from kerasbert.checkpoints import keras_hub
from kerasbert.checkpoints.folder import PARTS, ModelFolder, class_named
from kerasbert.checkpoints.tensor_files import TensorFiles
from kerasbert.data.text.json_files import read_json
from kerasbert.data.tokenizers.reading import READERS
from kerasbert.data.tokenizers.writing import TOKENIZER_FILES
from kerasbert.objectives.next_token import NextToken

READ = {
    "config.json": "sizes, classes and labels",
    "kerasbert.json": "class and its arguments",
    "modules.json": "modules around the encoder",
    "config_sentence_transformers.json": "prompts and similarity",
    "sentence_bert_config.json": "length and case of texts",
    "tokenizer_config.json": "special tokens and limits of the tokenizer",
    "special_tokens_map.json": "special tokens of the tokenizer",
    "artifact.metadata": "lengths and markers of ColBERT",
}
# Pattern of the path of a file -> why it is not read. The first that fits counts.
IGNORED = {
    r"logs/.*|(progress|log(\.\d+)?)\.(jsonl|csv)|curves\.png": "the log of a training run",
    r"metrics\.json": "scores, and the columns that evaluate and predict read",
    r"predictions(_.+)?\.jsonl": "answers to held-out examples",
    r"recipe\.json": "how the model was pretrained, for evaluate",
    r"adapter/.*": "the adapter alone, for PEFT",
    r"(checkpoints|checkpoint-\d+|runs|wandb)/.*": "a training run",
    r"\.git.*|.*\.(md|pdf|png|jpg)|LICENSE.*|NOTICE.*": "documentation",
    r".*\.py": "code of others, which is never run",
    r"(pytorch_model|model)[-.].*(bin|safetensors|json)": "other files of weights come first",
    r".*\.(h5|msgpack|ot|ckpt.*|onnx|gguf|mlmodel|xml)|(onnx|openvino|coreml)/.*": "the model for another program",
    r"(optimizer|scheduler|training_args|rng_state.*|scaler)\.(pt|bin|pth)|.*_(state|results)\.json": "a training run",
    r"(sparse|colbert)_linear\.pt": "heads for other kinds of vectors",
    r"unigram\.json|tokenizer\.model": "another copy of the vocabulary",
    r"data_config\.json|eval/.*": "how the model was trained and evaluated",
    r"generation_config\.json": "settings of generate, which this model does not have",
}
UNKNOWN = "not known to kerasbert"


def files_of(folder: Path) -> dict[str, dict[str, str]]:
    """Returns {"read": {file: what it says}, "ignored": {file: why it is not read}} for a model folder."""
    read, reasons = _read_files(folder), _reasons(folder)
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    ignored = {}
    for name in names:
        if name not in read:
            matching = (why for pattern, why in IGNORED.items() if re.fullmatch(pattern, name))
            ignored[name] = reasons.get(name) or next(matching, UNKNOWN)
    return {"read": {name: read[name] for name in names if name in read}, "ignored": ignored}


def _read_files(folder):
    """{file: what it says} for the files that loading the model reads."""
    read = dict(READ)
    for part in filter(lambda name: (folder / name).is_dir(), PARTS):
        read |= {f"{part}/{name}": what for name, what in _read_files(folder / part).items()}
    read |= dict.fromkeys(_weights(folder), "weights")
    tokenizer = _tokenizer(folder)
    if tokenizer is not None:
        read |= dict.fromkeys([tokenizer, *(["merges.txt"] if tokenizer == "vocab.json" else [])], "tokenizer")
        if "added_tokens.json" not in _reasons(folder):
            read["added_tokens.json"] = "added tokens of the tokenizer"
    model = ModelFolder(folder)
    if keras_hub.is_preset(model.stated_config or {}):
        read |= {path.relative_to(folder).as_posix(): "vocabulary" for path in folder.glob("assets/tokenizer/*")}
        read[keras_hub.WEIGHTS] = "weights"
    if model.saved.get("export"):
        read |= {path.name: "program of the export" for path in folder.glob("*.onnx*")}
    if _generates(model):
        read["generation_config.json"] = "settings of generate"
    if (folder / "modules.json").is_file():
        for module in read_json(folder / "modules.json", list):
            if module.get("path"):
                path, kind = module["path"], module["type"].rpartition(".")[2]
                read[f"{path}/config.json"] = f"settings of the module {kind}"
                read |= {f"{path}/{name}": f"weights of the module {kind}" for name in _weights(folder / path)}
    return read


def _generates(model):
    """Whether the class of a `ModelFolder` has `generate`."""
    if not (model.path / "config.json").is_file():
        return False
    name, _ = model.class_of({})
    return name != "Backbone" and issubclass(class_named(name, model), NextToken)


def _weights(folder):
    """The names of the files of weights, the index included."""
    try:
        names = {*TensorFiles(folder).where.values()}
    except (FileNotFoundError, ValueError):  # a module without weights, or a format of another program
        return []
    return [*sorted(names), *(f"{name}.index.json" for name in ("model.safetensors", "pytorch_model.bin"))]


def _tokenizer(folder):
    """The name of the file from which the tokenizer is read, or None."""
    return next((name for name in READERS if (folder / name).is_file()), None)


def _reasons(folder):
    """{file: why it is not read} for the files of the tokenizer that another file replaces."""
    first = _tokenizer(folder)
    if first is None:
        return {}
    vocabularies = [name for name in TOKENIZER_FILES if name not in (*READ, "added_tokens.json", first)]
    reasons = dict.fromkeys(vocabularies, f"{first} has the vocabulary")
    settings = folder / "tokenizer_config.json"
    if settings.is_file() and read_json(settings).get("added_tokens_decoder") is not None:
        reasons["added_tokens.json"] = "tokenizer_config.json lists the added tokens"
    return reasons
