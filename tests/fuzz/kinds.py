"""The kinds of files that are damaged: how valid ones are made, read, and what must hold of those that are accepted."""

import csv
import dataclasses
import gzip
import json
import re
import shutil
from collections.abc import Callable

import numpy as np

from .mutations import mutate_bytes, mutate_json, mutate_zip
from .table_kinds import table_kinds

TEXT = [
    "the cat sat on the mat . it was 12 years old .",
    "a dog ran home , and it was hungry .",
    "where is the cat ? the dog is on the mat .",
    "in the beginning there were many words , and no one had yet learned how to count them .",
    "numbers such as 3.14 or 2,500 are cut at their points ; quotation marks , too .",
    "every winter the lake freezes and children skate over it until the evening comes .",
    "please bring twelve jugs of juice , fix the box , and quiz the zebra about its vexing kayak .",
]


class Corrupt(AssertionError):
    """A damaged file was accepted with other values than it holds."""


def expect(right, message):
    if not right:
        raise Corrupt(message)


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of files.

    Args:
        make: folder -> writes a valid one into it.
        read: folder -> what our reader makes of it.
        check: (folder, what was read, what was read of the valid one) -> raises `Corrupt`; the oracle.
        files: {name of a file in the folder: how it is damaged}.
    """

    make: Callable
    read: Callable
    check: Callable
    files: dict


def equal_arrays(one, other):
    """Whether two {name: array} are the same, NaN included."""
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype
        and np.array_equal(one[name], other[name], equal_nan=one[name].dtype.kind == "f")
        for name in one
    )


# === Weights ===


def _state():
    rng = np.random.default_rng(0)
    return {
        "encoder.weight": rng.normal(size=(6, 4)).astype("float32"),
        "encoder.bias": rng.normal(size=6).astype("float32"),
        "half": rng.normal(size=(3, 2)).astype("float16"),
        "ids": np.arange(5),
        "scalar": np.array(2.5, "float32"),
    }


def _make_bin(zipped):
    def make(folder):
        import torch

        state = {name: torch.from_numpy(array) for name, array in _state().items()}
        state["turned"], state["brain"] = state["encoder.weight"].T, state["encoder.bias"].bfloat16()
        state["parameter"] = torch.nn.Parameter(torch.ones(2, 2))
        torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)

    return make


def read_tensors(folder):
    from kerasbert.checkpoints.tensor_files import TensorFiles

    files = TensorFiles(folder)
    return {name: files.read(name) for name in files.keys()}


def check_bin(folder, found, valid):
    """torch reads it, too, and the same values."""
    import torch

    try:
        state = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    except Exception as error:
        raise Corrupt(f"torch.load(weights_only=True) refuses it: {type(error).__name__}: {error!s:.200}") from None
    expect(isinstance(state, dict), "torch has no dict")
    wanted = {}
    for name, tensor in state.items():
        expect(isinstance(tensor, torch.Tensor), f"torch has a {type(tensor).__name__} as {name}")
        tensor = tensor.detach()
        tensor = tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
        wanted[name] = tensor.contiguous().numpy()
    expect(equal_arrays(found, wanted), "torch has other values")


def _make_safetensors(folder):
    from kerasbert.checkpoints.tensor_files import write_tensors

    write_tensors(folder, _state())


def check_safetensors(folder, found, valid):
    """By the format: the length of the header, the header, the data."""
    content = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = {name: entry for name, entry in json.loads(content[8 : 8 + size]).items() if name != "__metadata__"}
    kinds = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1"}
    kinds |= {"U8": "u1", "BOOL": "?", "U64": "<u8", "U32": "<u4", "U16": "<u2"}
    expect(header.keys() == found.keys(), f"names {sorted(found)}")
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        data = content[8 + size + start : 8 + size + end]
        if entry["dtype"] == "BF16":
            wanted = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
        elif entry["dtype"] in kinds:
            wanted = np.frombuffer(data, kinds[entry["dtype"]])
            wanted = wanted.astype("float32") if entry["dtype"] == "F16" else wanted
        else:
            continue
        expect(equal_arrays({"": found[name]}, {"": wanted.reshape(entry["shape"])}), f"other values of {name}")


def _make_shards(folder):
    from kerasbert.checkpoints.tensor_files import write_tensors

    write_tensors(folder, _state(), max_shard_size=60)


def check_named(folder, found, valid):
    """Shards are whole, so every name that is read must have the tensor of that name."""
    for name, array in found.items():
        expect(name in valid and equal_arrays({"": array}, {"": valid[name]}), f"another tensor as {name}")


# === Model folders ===


def _make_config(model_type):
    def make(folder):
        from kerasbert.checkpoints import huggingface_config
        from kerasbert.models import FAMILIES

        cls = FAMILIES[model_type]
        config = cls.family.config(model_type=model_type)
        stored = huggingface_config.config_fields(cls.family, config)
        names = {"0": "no", "1": "yes"}
        stored = {"architectures": ["Model"], "id2label": names, **stored}
        (folder / "config.json").write_text(json.dumps(stored))
        (folder / "kerasbert.json").write_text("{}")

    return make


def read_config(folder):
    from kerasbert.checkpoints import presets
    from kerasbert.checkpoints.folder import ModelFolder

    opened = ModelFolder(folder)
    family = opened.backbone_class()
    return family, presets._config(family, opened, {}, None)


def check_config(folder, found, valid):
    """What is stored under a plain name is the value of its field, or is completed from null."""
    family, config = found
    stored = json.loads((folder / "config.json").read_text(encoding="utf-8-sig"))
    for field, entry in family.family.huggingface.config.items():
        if isinstance(entry, str) and stored.get(entry) is not None:
            value, wanted = getattr(config, field), stored[entry]
            value = json.loads(json.dumps(value))
            expect(value == wanted or (field == "legacy_head" and value), f"{field}={value!r} for {wanted!r}")
            expect(type(value) is type(wanted) or isinstance(value, (int, float)), f"{field} is a {type(value)}")


def _make_saved(folder):
    arguments = {"labels": ["no", "yes"], "problem": "classes", "max_length": 64, "features": None}
    saved = {"class": "TextClassifier", "backbone": {"pooler": True}, "arguments": arguments}
    (folder / "kerasbert.json").write_text(json.dumps(saved))


def read_saved_model(folder):
    from kerasbert.checkpoints.arguments import check_arguments
    from kerasbert.checkpoints.folder import class_named, read_saved

    saved = read_saved(folder)
    if saved.get("class") not in (None, "Backbone"):
        cls = class_named(saved["class"], folder)
        check_arguments(cls, saved.get("arguments") or {}, folder / "kerasbert.json")
    return saved


def check_saved(folder, found, valid):
    expect(found == json.loads((folder / "kerasbert.json").read_text(encoding="utf-8-sig")), "other values")


def _make_model(folder):
    from kerasbert.models import WordVectors, WordVectorsConfig
    from kerasbert.tasks import TextClassifier

    backbone = WordVectors(WordVectorsConfig(vocabulary_size=11, hidden_dim=6))
    TextClassifier(backbone, labels=["no", "yes"]).save_to_preset(folder)


def read_model(folder):
    import keras

    import kerasbert

    model = kerasbert.load(folder)
    named = {v.path.split("/", 1)[1]: keras.ops.convert_to_numpy(v) for v in model.weights if "seed" not in v.path}
    return {"weights": named, "labels": model.labels}


def check_model(folder, found, valid):
    """Only the sizes that its weights have, and finite values."""
    shapes = {name: array.shape for name, array in found["weights"].items()}
    expect(all(np.isfinite(array).all() for array in found["weights"].values()), "numbers that are not finite")
    table = "token_embedding/embeddings"
    expect(shapes[table] == valid["weights"][table].shape, f"another table: {shapes[table]}")


def _make_embedder(folder):
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    settings = {"max_seq_length": 64, "do_lower_case": False}
    prompts = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    for name, content in (
        ("modules.json", modules),
        ("1_Pooling/config.json", {**pooling, "include_prompt": True}),
        ("sentence_bert_config.json", settings),
        ("config_sentence_transformers.json", prompts),
    ):
        (folder / name).write_text(json.dumps(content))


def read_embedder(folder):
    from kerasbert.tasks import TextEmbedder

    return TextEmbedder.open_folder(folder, {})


def check_embedder(folder, found, valid):
    encoder, arguments = found
    expect(encoder.resolve().is_relative_to(folder.resolve()), f"the encoder is at {encoder}")
    settings = encoder / "sentence_bert_config.json"
    length = json.loads(settings.read_text("utf-8-sig")).get("max_seq_length") if settings.exists() else None
    expect(arguments["max_length"] == length, f"max_length={arguments['max_length']!r}")


# === Adapters ===


def _adapted():
    """A new classifier, the same in each process."""
    import keras

    from kerasbert.models import Bert, BertConfig
    from kerasbert.tasks import TextClassifier

    keras.utils.set_random_seed(0)
    sizes = dict(vocabulary_size=11, num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=12, max_length=6)
    return TextClassifier(Bert(BertConfig(**sizes)), labels=["no", "yes"])


def _make_adapter(folder):
    from kerasbert.training import add_lora

    model = _adapted()
    add_lora(model, rank=2, targets=("query", "value"))
    rng = np.random.default_rng(0)
    for layer in (model.backbone.blocks[0].attention.query, model.backbone.blocks[0].attention.value):
        layer.lora_kernel_b.assign(rng.normal(size=layer.lora_kernel_b.shape))
    model.save_adapter(folder)
    config = json.loads((folder / "adapter_config.json").read_text())
    config |= {"alpha_pattern": {"query": 5.0, r"encoder.*key": 3.0}, "rank_pattern": {"other": 2}}
    (folder / "adapter_config.json").write_text(json.dumps(config))


def read_adapter(folder):
    """The kernels before and after an adapter is merged."""
    import keras

    model = _adapted()
    layers = model.backbone.blocks[0].attention
    found = {name: [keras.ops.convert_to_numpy(getattr(layers, name).kernel).copy()] for name in ("query", "value")}
    model.load_adapter(folder, merge=True)
    for name, kernels in found.items():
        kernels.append(keras.ops.convert_to_numpy(getattr(layers, name).kernel))
    return found


def check_adapter(folder, found, valid):
    """What PEFT's formula gives for the matrices in the file, where it has them."""
    import safetensors.numpy

    config = json.loads((folder / "adapter_config.json").read_text("utf-8-sig"))
    tensors = safetensors.numpy.load_file(folder / "adapter_model.safetensors")
    for name, (before, after) in found.items():
        expect(np.isfinite(after).all(), f"numbers of {name} that are not finite")
        module = f"base_model.model.bert.encoder.layer.0.attention.self.{name}"
        a, b = (tensors.get(f"{module}.lora_{letter}.weight") for letter in "AB")
        wanted = before
        if a is not None and b is not None:
            patterns = (config.get("alpha_pattern") or {}).items()
            fits = (alpha for pattern, alpha in patterns if re.match(rf"(.*\.)?({pattern})$", module))
            alpha = next(fits, config.get("lora_alpha", 8))
            scale = alpha / (len(a) ** 0.5 if config.get("use_rslora") else len(a))
            wanted = before + scale * (b.astype("float32") @ a.astype("float32")).T
        close = np.allclose(after, wanted, rtol=1e-3, atol=1e-5 * max(1, np.abs(wanted).max(initial=0)))
        expect(close, f"another kernel of {name}")


# === Tokenizers ===


def _trained(kind, size, **options):
    from kerasbert.data import Tokenizer

    return Tokenizer.train(kind, TEXT * 20, size, **options)


def _make_tokenizer(kind, size, keep, **options):
    def make(folder):
        whole = folder / "whole"
        _trained(kind, size, **options).save(whole)
        for name in keep:
            shutil.move(whole / name, folder / name)
        shutil.rmtree(whole)

    return make


def _make_spiece(folder):
    from kerasbert.data.tokenizers.sentencepiece import CONTROL, NORMAL, UNKNOWN, SentencePieceModel, model_bytes

    words = sorted(
        {f"▁{word}" for line in TEXT for word in line.split()} | set("▁abcdefghijklmnopqrstuvwxyz.,;0123456789")
    )
    pieces = [("<pad>", 0.0, CONTROL), ("</s>", 0.0, CONTROL), ("<unk>", 0.0, UNKNOWN)]
    pieces += [(word, -float(len(words) - i) / 10, NORMAL) for i, word in enumerate(words)]
    (folder / "spiece.model").write_bytes(model_bytes(SentencePieceModel(pieces)))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "T5Tokenizer", "extra_ids": 3}))


def _make_slow(make, name):
    """The files of a tokenizer of transformers without tokenizer.json, with added tokens."""

    def make_slow(folder):
        make(folder)
        path = folder / "tokenizer_config.json"
        settings = json.loads(path.read_text()) | {"tokenizer_class": name}
        settings.pop("added_tokens_decoder", None)
        path.write_text(json.dumps(settings))
        size = read_tokenizer(folder)[0].vocabulary_size
        (folder / "added_tokens.json").write_text(json.dumps({"newword": size, "<extra>": size + 1}))
        named = {key: value for key, value in settings.items() if key.endswith("_token")}
        named["additional_special_tokens"] = ["<extra>"]
        (folder / "special_tokens_map.json").write_text(json.dumps(named))

    return make_slow


def read_tokenizer(folder):
    from kerasbert.data import Tokenizer

    tokenizer = Tokenizer.load(folder)
    ids = tokenizer.encode(TEXT) + tokenizer.encode(TEXT, plain_text=True) + tokenizer.encode([(TEXT[0], TEXT[1])])
    texts = [tokenizer.decode(row) for row in ids]
    return tokenizer, ids, texts, tokenizer.tokens, tokenizer.info


def check_tokenizer(folder, found, valid):
    """Ids are in the vocabulary, and a copy through its text gives the same ones."""
    from kerasbert.data import Tokenizer

    tokenizer, ids, texts, tokens, info = found
    expect(all((row >= 0).all() and (row < tokenizer.vocabulary_size).all() for row in ids), "ids outside")
    expect(len(tokens) == tokenizer.vocabulary_size, "another number of tokens")
    again = Tokenizer.from_json(tokenizer.to_json())
    expect(again.hash == tokenizer.hash, "another hash after a copy")
    for one, other in zip(ids, again.encode(TEXT), strict=False):
        expect(np.array_equal(one, other), "other ids after a copy")
    if (folder / "vocab.txt").exists():
        lines = (folder / "vocab.txt").read_text("utf-8").split("\n")
        numbers = {line.rstrip("\r"): i for i, line in enumerate(lines)}
        for token in ("the", "cat", "[UNK]"):
            if token in numbers and not (token == "" and numbers[token] == len(lines) - 1):
                expect(tokenizer.id(token) == numbers[token], f"another id of {token}")
    elif (folder / "vocab.json").exists():
        stored = json.loads((folder / "vocab.json").read_text("utf-8-sig"))
        expect(all(tokenizer.id(token) == index for token, index in stored.items()), "other ids than stored")


# === Data ===


def _make_corpus(folder):
    from kerasbert.data import Corpus

    Corpus.write(folder, TEXT * 3, _trained("wordpiece", 90, lowercase=True))


def read_corpus(folder):
    from kerasbert.data import Corpus

    corpus = Corpus.open(folder)
    corpus.verify()
    corpus.tokenizer()
    return np.array(corpus.tokens), np.array(corpus.lengths), np.array(corpus.document_starts)


def check_corpus(folder, found, valid):
    """As many tokens as there are, in sequences and documents that cover them."""
    tokens, lengths, starts = found
    size = (folder / "corpus.bin").stat().st_size
    expect(tokens.nbytes == size and lengths.sum() == len(tokens), f"{len(tokens)} tokens in {size} bytes")
    expect(starts[0] == 0 and starts[-1] == len(lengths) and (np.diff(starts) >= 0).all(), "documents with gaps")


def _write_csv(path):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows([text, "yes"] for text in [*TEXT, 'quoted "word", and\nlines'])


def _make_csv(folder):
    _write_csv(folder / "data.csv")


def read_documents(name):
    def read(folder):
        from kerasbert.data import read_documents

        return list(read_documents(folder / name))

    return read


def check_csv(folder, found, valid):
    """As the strict reader of the standard library has it, white space aside."""
    text = (folder / "data.csv").read_text("utf-8-sig")
    rows = list(csv.reader(text.splitlines(keepends=True)))
    cells = "".join("".join(row) for row in rows)
    for document in found:
        expect("".join(document.split()) in "".join(cells.split()), f"a document that is not there: {document!r:.80}")


def _make_jsonl(folder):
    (folder / "data.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXT))


def check_jsonl(folder, found, valid):
    lines = (folder / "data.jsonl").read_text("utf-8-sig").splitlines()
    rows = [json.loads(line) for line in lines if line.strip()]
    texts = {"".join(str(value).split()) for row in rows for value in row.values()}
    expect(all("".join(document.split()) in texts for document in found), "a document that is not there")


def _make_parquet(folder):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"text": TEXT, "n": list(range(len(TEXT)))}), folder / "data.parquet")


def check_parquet(folder, found, valid):
    expect(len(found) <= 1_000, "more documents than fit")


def _make_gzip(folder):
    with gzip.open(folder / "data.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\n\n".join(TEXT * 5))


def check_gzip(folder, found, valid):
    """gzip has a checksum: what is accepted is what was there."""
    content = gzip.decompress((folder / "data.txt.gz").read_bytes())
    expect("".join("".join(found).split()) == "".join(content.decode().split()), "another text")


# === Tables ===

TAGGED = [("the cat sat", "O B-ANIMAL O"), ("Rome , 12 %", "B-PLACE O O O"), ("a dog", "O B-ANIMAL")]


def _make_tagged_csv(folder):
    with open(folder / "data.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["sentence", "word", "tag"])
        for number, (words, tags) in enumerate(TAGGED * 3):
            writer.writerows([number, *pair] for pair in zip(words.split(), tags.split(), strict=True))


def _make_tagged_jsonl(folder):
    rows = [{"tokens": words.split(), "ner_tags": tags.split()} for words, tags in TAGGED * 3]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _make_tagged_lines(folder):
    sentences = ["\n".join(map(" ".join, zip(w.split(), t.split(), strict=True))) for w, t in TAGGED * 3]
    (folder / "data.conll").write_text("\n\n".join(sentences) + "\n")


def _make_several_csv(folder):
    with open(folder / "data.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "labels"])
        writer.writerows([text, "a b" if n % 2 else "a"] for n, text in enumerate(TEXT))


def _make_several_jsonl(folder):
    rows = [{"text": text, "labels": ["a", "b"] if n % 2 else ["a"]} for n, text in enumerate(TEXT)]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def read_table(kind, name):
    def read(folder):
        from pipelines.reading.examples import read_examples

        return read_examples(kind, folder / name)

    return read


def check_tags(folder, found, valid):
    """A tag for each word."""
    expect(len(found.x) == len(found.y) > 0, f"{len(found.x)} sentences and {len(found.y)} rows of tags")
    for words, tags in zip(found.x, found.y, strict=True):
        expect(len(words) == len(tags) > 0, f"{len(words)} words and {len(tags)} tags")
        expect(all(isinstance(one, str) for one in [*words, *tags]) and all(tags), "words or tags that are not text")


def check_several(folder, found, valid):
    """Rows of labels, which are text that is in the file."""
    content = next(folder.iterdir()).read_text("utf-8-sig")
    content += content.encode().decode("unicode_escape", "replace") if "\\" in content else ""
    expect(len(found.x) == len(found.y) > 0, "other numbers of texts and labels")
    for labels in found.y:
        expect(isinstance(labels, list) and all(isinstance(label, str) for label in labels), f"labels {labels!r:.80}")
        expect(all(label in content for label in labels if label.isascii()), f"labels {labels!r:.80}")


def _make_frame(folder):
    columns = {"text": TEXT, "label": ["a", "b", "a", "b", "a", "b", "a"]}
    (folder / "frame.json").write_text(json.dumps(columns))


def read_frame(folder):
    """The first batch of the columns of a DataFrame; None if it is no DataFrame of texts with names or numbers."""
    import pandas

    from kerasbert.models import WordVectors, WordVectorsConfig
    from kerasbert.tasks import TextClassifier

    try:
        columns = json.loads((folder / "frame.json").read_text("utf-8-sig"))
        frame = pandas.DataFrame({"text": columns["text"], "label": columns["label"]})
        frame.index += 3  # as after a split
    except Exception:
        return None
    if not all(isinstance(label, str) or type(label) is int for label in frame["label"].tolist()):
        return None
    tokenizer = _trained("wordpiece", 90, lowercase=True)
    backbone = WordVectors(WordVectorsConfig(vocabulary_size=tokenizer.vocabulary_size, hidden_dim=6))
    model = TextClassifier(backbone, labels=["a", "b"], tokenizer=tokenizer)
    data = model.data_of(frame["text"], frame["label"], None)
    batches = model._batches(*data, len(frame), epochs=1, seed=0, shuffle=False)
    x, y, *_ = batches[0]
    return frame, x, y


def check_frame(folder, found, valid):
    """A row for each row of the frame, with its label."""
    if found is not None:
        frame, x, y = found
        expect(len(x["token_ids"]) == len(frame), "another number of rows")
        numbers = [("a", "b").index(label) if isinstance(label, str) else int(label) for label in frame["label"]]
        expect(np.asarray(y).ravel().tolist() == numbers, "other labels")


# === The table ===

_JSON_SETTINGS = {"tokenizer_config.json": mutate_json}
KINDS = {
    "bin_zip": Kind(_make_bin(True), read_tensors, check_bin, {"pytorch_model.bin": mutate_zip}),
    "bin_legacy": Kind(_make_bin(False), read_tensors, check_bin, {"pytorch_model.bin": mutate_bytes}),
    "safetensors": Kind(_make_safetensors, read_tensors, check_safetensors, {"model.safetensors": mutate_bytes}),
    "index": Kind(_make_shards, read_tensors, check_named, {"model.safetensors.index.json": mutate_json}),
    **{
        f"config_{name}": Kind(_make_config(name), read_config, check_config, {"config.json": mutate_json})
        for name in ("bert", "albert", "deberta-v2", "modernbert", "t5", "transfo-xl", "xlm", "xlnet", "elmo")
    },
    "kerasbert_json": Kind(_make_saved, read_saved_model, check_saved, {"kerasbert.json": mutate_json}),
    "model": Kind(
        _make_model,
        read_model,
        check_model,
        {"config.json": mutate_json, "model.safetensors": mutate_bytes},
    ),
    "embedder": Kind(
        _make_embedder,
        read_embedder,
        check_embedder,
        {
            "modules.json": mutate_json,
            "1_Pooling/config.json": mutate_json,
            "sentence_bert_config.json": mutate_json,
            "config_sentence_transformers.json": mutate_json,
        },
    ),
    "adapter": Kind(
        _make_adapter,
        read_adapter,
        check_adapter,
        {"adapter_config.json": mutate_json, "adapter_model.safetensors": mutate_bytes},
    ),
    "tokenizer_wordpiece": Kind(
        _make_tokenizer("wordpiece", 90, ["tokenizer.json", "tokenizer_config.json"], lowercase=True),
        read_tokenizer,
        check_tokenizer,
        {"tokenizer.json": mutate_json, **_JSON_SETTINGS},
    ),
    "tokenizer_unigram": Kind(
        _make_tokenizer("unigram", 70, ["tokenizer.json", "tokenizer_config.json"]),
        read_tokenizer,
        check_tokenizer,
        {"tokenizer.json": mutate_json, **_JSON_SETTINGS},
    ),
    "vocab_txt": Kind(
        _make_tokenizer("wordpiece", 90, ["vocab.txt", "tokenizer_config.json"], lowercase=True),
        read_tokenizer,
        check_tokenizer,
        {"vocab.txt": mutate_bytes, **_JSON_SETTINGS},
    ),
    "vocab_json": Kind(
        _make_tokenizer("byte_bpe", 290, ["vocab.json", "merges.txt", "tokenizer_config.json"]),
        read_tokenizer,
        check_tokenizer,
        {"vocab.json": mutate_json, "merges.txt": mutate_bytes, **_JSON_SETTINGS},
    ),
    "spiece_model": Kind(
        _make_spiece,
        read_tokenizer,
        check_tokenizer,
        {"spiece.model": mutate_bytes, **_JSON_SETTINGS},
    ),
    **{
        f"slow_{name}": Kind(
            _make_slow(make, name),
            read_tokenizer,
            check_tokenizer,
            {"added_tokens.json": mutate_json, "special_tokens_map.json": mutate_json, **_JSON_SETTINGS},
        )
        for name, make in (
            ("BertTokenizer", _make_tokenizer("wordpiece", 90, ["vocab.txt", "tokenizer_config.json"])),
            (
                "RobertaTokenizer",
                _make_tokenizer("byte_bpe", 290, ["vocab.json", "merges.txt", "tokenizer_config.json"]),
            ),
            ("T5Tokenizer", _make_spiece),
        )
    },
    "corpus": Kind(
        _make_corpus,
        read_corpus,
        check_corpus,
        {"corpus.json": mutate_json, "corpus.bin": mutate_bytes, "corpus.idx": mutate_bytes},
    ),
    "csv": Kind(_make_csv, read_documents("data.csv"), check_csv, {"data.csv": mutate_bytes}),
    "jsonl": Kind(_make_jsonl, read_documents("data.jsonl"), check_jsonl, {"data.jsonl": mutate_bytes}),
    "parquet": Kind(_make_parquet, read_documents("data.parquet"), check_parquet, {"data.parquet": mutate_bytes}),
    "gzip": Kind(_make_gzip, read_documents("data.txt.gz"), check_gzip, {"data.txt.gz": mutate_bytes}),
    "tagged_csv": Kind(_make_tagged_csv, read_table("tags", "data.csv"), check_tags, {"data.csv": mutate_bytes}),
    "tagged_jsonl": Kind(
        _make_tagged_jsonl, read_table("tags", "data.jsonl"), check_tags, {"data.jsonl": mutate_bytes}
    ),
    "tagged_lines": Kind(
        _make_tagged_lines, read_table("tags", "data.conll"), check_tags, {"data.conll": mutate_bytes}
    ),
    "several_csv": Kind(_make_several_csv, read_table("labels", "data.csv"), check_several, {"data.csv": mutate_bytes}),
    "several_jsonl": Kind(
        _make_several_jsonl, read_table("labels", "data.jsonl"), check_several, {"data.jsonl": mutate_bytes}
    ),
    "data_frame": Kind(_make_frame, read_frame, check_frame, {"frame.json": mutate_json}),
}
KINDS |= table_kinds(Kind)
