"""Writes the folder of a checkpoint: config, weights, tokenizer and modules, with random weights."""

import zlib

from safetensors.numpy import load_file

from tests.checkpoints.fleet.vocabularies import vocabulary_size, write

PROMPTS = {"query": "the cat: ", "document": ""}
MAX_LENGTH = 24


_NO_ARGUMENTS = ("model_type", "architectures", "attn_implementation")


def write_checkpoint(record, folder, native=False):
    """Writes the folder of a record.

    Args:
        record: a `Checkpoint`.
        folder: the folder, created if it does not exist.
        native: whether to write the folder that transformers reads without the code of others, of the same model.
    """
    folder.mkdir(exist_ok=True)
    size = vocabulary_size(record.tokenizer) + record.spare_rows
    own = {**record.config, "vocab_size": size}
    config = {**record.native, "vocab_size": size} if record.native else own
    if callable(record.built):
        tensors = record.built(config)
    else:
        seed = zlib.crc32(record.name.encode())
        tensors = random_tensors(record.built or config["architectures"][0], config, folder, seed)
    if record.tensors is not None and not native:
        tensors = record.tensors(tensors, own)
    write(folder, {**record.tokenizer(), **record.files, "config.json": config if native else own})
    FORMS[record.form](folder, tensors)
    write(folder, modules(record, own, native))


def random_tensors(class_name, config, folder, seed):
    """Returns {name: array} of a random model, as transformers writes them."""
    import torch
    import transformers

    cls = getattr(transformers, class_name)
    fields = {name: value for name, value in config.items() if name not in _NO_ARGUMENTS}
    if cls.config_class.model_type == "bert":
        fields.setdefault("hidden_size", 24)
    torch.manual_seed(seed)
    model = cls(cls.config_class(**fields))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    model.float().save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    for path in folder.iterdir():
        path.unlink()
    return tensors


# === Forms of weights ===


def _as_torch(tensors, dtype=None):
    import torch

    found = {name: torch.from_numpy(array) for name, array in tensors.items()}
    return {n: t.to(dtype) if dtype and t.is_floating_point() else t for n, t in found.items()}


def _safetensors(name="model.safetensors", dtype=None):
    def save(folder, tensors):
        import torch
        from safetensors.torch import save_file

        tensors = _as_torch(tensors, dtype and getattr(torch, dtype))
        save_file(tensors, folder / name, metadata={"format": "pt"})

    return save


def _bin(zipped=True):
    def save(folder, tensors):
        import torch

        torch.save(_as_torch(tensors), folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)

    return save


def _both(folder, tensors):
    _safetensors()(folder, tensors)
    _bin()(folder, tensors)


def _shards(folder, tensors):
    files = {}
    for number, part in enumerate((list(tensors)[::2], list(tensors)[1::2]), start=1):
        name = f"model-0000{number}-of-00002.safetensors"
        _safetensors(name)(folder, {key: tensors[key] for key in part})
        files |= dict.fromkeys(part, name)
    size = sum(array.nbytes for array in tensors.values())
    write(folder, {"model.safetensors.index.json": {"metadata": {"total_size": size}, "weight_map": files}})


FORMS = {
    "safetensors": _safetensors(),
    "float16": _safetensors(dtype="float16"),
    "bfloat16": _safetensors(dtype="bfloat16"),
    "bin": _bin(),
    "legacy": _bin(zipped=False),
    "both": _both,
    "shards": _shards,
}

# === Modules of sentence-transformers ===


def modules(record, config, native):
    """Returns {file: content} of the modules of an embedder."""
    if not record.layers:
        return {}
    width = config.get("hidden_size") or config.get("dim") or config["n_embd"]
    encoder = next(
        (layer for layer in record.layers if "." in layer and not native), "sentence_transformers.models.Transformer"
    )
    if record.layers == ("splade",):
        return _splade(config)
    if record.layers == ("pylate",):
        return _pylate(width)
    files = {
        "config_sentence_transformers.json": {
            "__version__": {"sentence_transformers": "2.2.2", "transformers": "4.28.1", "pytorch": "1.13.0"},
            **({"prompts": PROMPTS, "default_prompt_name": None} if "prompts" in record.layers else {}),
        },
        "sentence_bert_config.json": {"max_seq_length": MAX_LENGTH, "do_lower_case": "lowercase" in record.layers},
    }
    rows = [("", encoder)]
    for layer in record.layers:
        if layer not in ("mean", "cls", "dense", "normalize"):
            continue
        kind = {"dense": "Dense", "normalize": "Normalize"}.get(layer, "Pooling")
        path = f"{len(rows)}_{kind}"
        rows.append((path, f"sentence_transformers.models.{kind}"))
        if kind == "Pooling":
            names = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
            settings = {f"pooling_mode_{name}": name in (f"{layer}_token", f"{layer}_tokens") for name in names}
            files[f"{path}/config.json"] = {"word_embedding_dimension": width, **settings}
        elif kind == "Dense":
            files |= _dense(path, width, 16, "torch.nn.modules.activation.Tanh", bias=True)
    files["modules.json"] = [{"idx": i, "name": str(i), "path": p, "type": t} for i, (p, t) in enumerate(rows)]
    return files


def _dense(path, inputs, outputs, activation, bias):
    import numpy as np
    from safetensors.numpy import save

    rng = np.random.default_rng(4)
    tensors = {"linear.weight": rng.normal(0, 0.3, (outputs, inputs)).astype("float32")}
    if bias:
        tensors["linear.bias"] = rng.normal(0, 0.3, outputs).astype("float32")
    sizes = {"in_features": inputs, "out_features": outputs, "bias": bias, "activation_function": activation}
    return {f"{path}/config.json": sizes, f"{path}/model.safetensors": save(tensors, {"format": "pt"})}


def _splade(config):
    kinds = [("", "MLMTransformer"), ("1_SpladePooling", "SpladePooling")]
    rows = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.sparse_encoder.models.{kind}"}
        for i, (path, kind) in enumerate(kinds)
    ]
    pooling = {
        "pooling_strategy": "max",
        "activation_function": "relu",
        "word_embedding_dimension": config["vocab_size"],
    }
    return {
        "modules.json": rows,
        "1_SpladePooling/config.json": pooling,
        "sentence_bert_config.json": {"max_seq_length": MAX_LENGTH, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "model_type": "SparseEncoder", "__version__": {"sentence_transformers": "5.0.0"}, "prompts": {},
            "default_prompt_name": None, "similarity_fn_name": "dot",
        },
    }  # fmt: skip


def _pylate(width):
    kinds = [("", "sentence_transformers.models.Transformer"), ("1_Dense", "pylate.models.Dense.Dense")]
    return {
        "modules.json": [{"idx": i, "name": str(i), "path": p, "type": t} for i, (p, t) in enumerate(kinds)],
        **_dense("1_Dense", width, 7, "torch.nn.modules.linear.Identity", bias=False),
        "sentence_bert_config.json": {"max_seq_length": MAX_LENGTH, "do_lower_case": False},
        "config_sentence_transformers.json": {
            **dict(prompts={}, default_prompt_name=None, similarity_fn_name="MaxSim", query_prefix="[unused0]"),
            **dict(document_prefix="[unused1]", query_length=12, document_length=20, attend_to_expansion_tokens=False),
            **dict(skiplist_words=[".", ","], do_query_expansion=True),
            "__version__": {"sentence_transformers": "3.3.1", "pylate": "1.1.4"},
        },
    }
