"""Runs the exported model in this folder on texts, without kerasbert.

    python example.py "a text" "another text"

Needs numpy, tokenizers, and the runtime of the format: onnxruntime, openvino, tensorflow or ai-edge-litert. Prints a
line of JSON for each answer. `kerasbert.json` describes the inputs and outputs.
"""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

FOLDER = Path(__file__).resolve().parent
DESCRIBED = {}  # the entry "export" of kerasbert.json, which `main` reads
LONGEST_ANSWER = 30  # tokens
MOST_NEW_TOKENS = 64
# What the model does -> texts for which it is shown, if the command line has none.
TEXTS = {
    "classify": ["this was a great film", "this was a bad film"],
    "tag": ["John Smith lives in New York"],
    "answer": ["Who sat on the mat?", "The cat sat on the mat."],
    "choose": ["The cat sat on", "the mat.", "the moon.", "the theorem."],
    "embed": ["a cat is asleep", "a kitten is asleep", "the stock market fell"],
    "embed_tokens": ["where is the cat", "a cat is asleep on the mat", "the stock market fell"],
    "fill_mask": ["the MASK sat on the mat"],
    "score_tokens": ["the cat sat on the mat"],
    "continue_text": ["the cat sat on"],
    "generate": ["the cat sat on the mat"],
}


# Names in transformers of inputs and outputs -> the names that are used here.
NAMES = {
    "input_ids": "token_ids",
    "attention_mask": "padding_mask",
    "token_type_ids": "segment_ids",
    "start_logits": "start",
    "end_logits": "end",
}


# === The program ===


def opened(file):
    """Opens an artifact. Returns a function from {input: int32 array} to {output: array}."""
    path = str(FOLDER / file)
    if DESCRIBED["format"].startswith("onnx"):
        runtime = importlib.import_module("onnxruntime")
        session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))
    if DESCRIBED["format"] == "openvino":
        openvino = importlib.import_module("openvino")
        compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

        def run(inputs):
            outputs = compiled(inputs)
            return {name: outputs[name] for name in DESCRIBED["outputs"]}

        return run
    if DESCRIBED["format"] == "litert":
        try:
            runtime = importlib.import_module("ai_edge_litert.interpreter")
        except ImportError:  # TensorFlow has it, too
            runtime = importlib.import_module("tensorflow").lite
        program = runtime.Interpreter(path).get_signature_runner("serving_default")
        return lambda inputs: program(**inputs)
    tensorflow = importlib.import_module("tensorflow")
    loaded = tensorflow.saved_model.load(path)

    def run(inputs):
        tensors = {name: tensorflow.constant(array) for name, array in inputs.items()}
        return {name: output.numpy() for name, output in loaded.signatures["serving_default"](**tensors).items()}

    return run


def with_our_names(run):
    """The program as a function from and to the names that are used here."""

    def translated(inputs):
        entries = DESCRIBED["inputs"].items()
        outputs = run({name: inputs[NAMES.get(name, name)].astype(entry["dtype"]) for name, entry in entries})
        return {NAMES.get(name, name): output for name, output in outputs.items()}

    return translated


# === Texts ===


def open_tokenizer():
    if not (FOLDER / "tokenizer.json").exists():
        sys.exit(
            "This tokenizer needs the Moses rules: encode texts with XLMTokenizer of transformers, which reads it."
        )
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    if DESCRIBED.get("max_length"):
        tokenizer.enable_truncation(DESCRIBED["max_length"])
    entry = DESCRIBED["tokenizer"]
    tokenizer.enable_padding(direction=entry["padding_side"], pad_id=entry["pad_id"])
    return tokenizer


def encode(tokenizer, texts, special_tokens=True):
    """The encodings of texts or pairs of texts, padded, and the inputs that a program may read."""
    encodings = tokenizer.encode_batch(texts, add_special_tokens=special_tokens)
    arrays = {"token_ids": "ids", "padding_mask": "attention_mask", "segment_ids": "type_ids"}
    parts = arrays.items()
    inputs = {name: np.array([getattr(encoding, part) for encoding in encodings], "int32") for name, part in parts}
    return encodings, inputs


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def named(tokenizer, ids, values, real):
    return [(tokenizer.id_to_token(int(i)), value) for i, value, r in zip(ids, values, real, strict=True) if r]


# === What models do ===


def classify(run, tokenizer, texts):
    logits = run(encode(tokenizer, texts)[1])["logits"]
    problem = DESCRIBED["problem"]
    for text, row in zip(texts, logits, strict=True):
        if problem == "score":
            yield {"text": text, "score": float(row[0])}
            continue
        scores = softmax(row) if problem == "classes" else 1 / (1 + np.exp(-row))
        yield {"text": text, "scores": dict(zip(DESCRIBED["labels"], scores.tolist(), strict=True))}


def tag(run, tokenizer, texts):
    _, x = encode(tokenizer, texts)
    best = run(x)["logits"].argmax(axis=-1)
    for text, ids, real, row in zip(texts, x["token_ids"], x["padding_mask"], best, strict=True):
        yield {"text": text, "tokens": named(tokenizer, ids, [DESCRIBED["labels"][i] for i in row], real)}


def answer(run, tokenizer, texts):
    """The texts are a question and its context."""
    question, context = texts
    [encoding], x = encode(tokenizer, [(question, context)])
    outputs = run(x)
    inside = np.array([part == 1 for part in encoding.sequence_ids])
    scores = outputs["start"][0][:, None] + outputs["end"][0][None, :]
    places = np.arange(len(inside))
    distance = places[None, :] - places[:, None]
    allowed = inside[:, None] & inside[None, :] & (distance >= 0) & (distance < LONGEST_ANSWER)
    start, end = np.unravel_index(np.where(allowed, scores, -np.inf).argmax(), scores.shape)
    span = encoding.offsets[start][0], encoding.offsets[end][1]
    yield {"question": question, "answer": context[slice(*span)], "start": span[0], "stop": span[1]}


def choose(run, tokenizer, texts):
    """The texts are a context and its choices."""
    context, *choices = texts
    _, x = encode(tokenizer, [(context, choice) for choice in choices])
    scores = softmax(run({name: array[None] for name, array in x.items()})["logits"][0])
    yield {"context": context, "choice": choices[int(scores.argmax())], "scores": scores.tolist()}


def embed(run, tokenizer, texts):
    vectors = run(encode(tokenizer, texts)[1])["vector"]
    unit = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    for text, vector, cosines in zip(texts, vectors, unit @ unit.T, strict=True):
        yield {"text": text, "cosines": cosines.tolist(), "vector": vector.tolist()}


def embed_tokens(run, tokenizer, texts):
    """The texts are a query and documents, which are compared by MaxSim."""
    rules = DESCRIBED["late_interaction"]
    tokenizer.enable_truncation(rules["lengths"][0])
    _, x = encode(tokenizer, [rules["prompts"][0] + texts[0]])
    added = rules["expansion"] or {"length": 0, "token_id": 0, "attend": False}
    missing, filled = max(0, added["length"] - x["token_ids"].shape[1]), {"token_ids": added["token_id"]}
    filled["padding_mask"] = int(added["attend"])
    x = {name: np.pad(array, [(0, 0), (0, missing)], constant_values=filled.get(name, 0)) for name, array in x.items()}
    of_query = run(x)["vectors"][0]
    of_query = of_query[~np.isin(x["token_ids"][0], rules["skipped_in_queries"])]
    tokenizer.enable_truncation(rules["lengths"][1])
    found = run(encode(tokenizer, [rules["prompts"][1] + text for text in texts[1:]])[1])
    for document, vectors, scored in zip(texts[1:], found["vectors"], found["scored"], strict=True):
        best = (of_query @ vectors[scored].T).max(axis=1)
        yield {"document": document, "score": float(best.mean() if rules["mean"] else best.sum())}


def fill_mask(run, tokenizer, texts):
    _, x = encode(tokenizer, texts)
    outputs = run(x)
    logits = outputs["tokens"] if "tokens" in outputs else outputs["logits"]
    for text, ids, rows in zip(texts, x["token_ids"], logits, strict=True):
        for place in np.flatnonzero(ids == DESCRIBED["tokenizer"]["mask_id"]):
            scores = softmax(rows[place])
            best = scores.argsort()[::-1][:5]
            tokens = [(tokenizer.id_to_token(int(i)), float(scores[i])) for i in best]
            yield {"text": text, "position": int(place), "tokens": tokens}


def score_tokens(run, tokenizer, texts):
    _, x = encode(tokenizer, texts)
    outputs = run(x)
    scores = 1 / (1 + np.exp(-(outputs["replaced"] if "replaced" in outputs else outputs["logits"])))
    for text, ids, real, row in zip(texts, x["token_ids"], x["padding_mask"], scores, strict=True):
        yield {"text": text, "replaced": named(tokenizer, ids, row.tolist(), real)}


def generated(prompts, x, real, cache):
    """Continues prompts token by token with the most likely token. Returns the ids of the new tokens.

    Args:
        prompts: int32 (rows, columns), padded on the left.
        x: {input: array} of the encoder's outputs, or {}.
        real: int32 (rows, columns), 1 at the tokens of the prompts.
        cache: {input: array}, the empty cache.
    """
    decoder, stop = opened(DESCRIBED["programs"]["decoder"]["file"]), DESCRIBED["stop_ids"]
    counted = np.cumsum(real, axis=1, dtype="int32")
    inputs = {"token_ids": prompts, "padding_mask": real, "position_ids": np.maximum(counted - 1, 0)}
    found, going = [[] for _ in prompts], np.ones(len(prompts), bool)
    for step in range(MOST_NEW_TOKENS):
        outputs = decoder({**inputs, **cache, **x})
        cache = {name[len("next.") :]: array for name, array in outputs.items() if name.startswith("next.")}
        best = outputs["logits"].argmax(axis=-1).astype("int32")
        if step == 0 and "first_id" in DESCRIBED:
            best[:] = DESCRIBED["first_id"]
        for row in np.flatnonzero(going):
            found[row].append(int(best[row]))
        going &= ~np.isin(best, stop)
        if not going.any():
            break
        ones = np.ones((len(prompts), 1), "int32")
        inputs = {"token_ids": best[:, None], "padding_mask": ones, "position_ids": counted[:, -1:] + step}
    return found


def empty_cache(rows, capacity):
    sizes = {"batch": rows, "capacity": capacity}
    return {
        name: np.zeros([sizes.get(axis, axis) for axis in entry["shape"]], entry["dtype"])
        for name, entry in DESCRIBED["programs"]["decoder"]["inputs"].items()
        if name.partition(".")[0] in ("start", "real", "blocks")
    }


def check_decoder():
    if "decoder" not in DESCRIBED["programs"]:
        sys.exit("This export has no decoder with a cache: model.onnx gives the logits after every token.")


def continue_text(run, tokenizer, texts):
    check_decoder()
    tokenizer.enable_padding(direction="left", pad_id=DESCRIBED["tokenizer"]["pad_id"])
    _, x = encode(tokenizer, texts, special_tokens=False)
    rows, width = x["token_ids"].shape
    found = generated(x["token_ids"], {}, x["padding_mask"], empty_cache(rows, width + MOST_NEW_TOKENS))
    for text, ids in zip(texts, found, strict=True):
        yield {"text": text, "continuation": tokenizer.decode(ids), "token_ids": ids}


def generate(run, tokenizer, texts):
    check_decoder()
    _, x = encode(tokenizer, texts)
    encoder = opened(DESCRIBED["programs"]["encoder"]["file"])
    source = encoder({name: x[name] for name in ("token_ids", "padding_mask")})
    start = np.full((len(texts), 1), DESCRIBED["start_id"], "int32")
    found = generated(start, source, np.ones_like(start), empty_cache(len(texts), 1 + MOST_NEW_TOKENS))
    for text, ids in zip(texts, found, strict=True):
        yield {"text": text, "answer": tokenizer.decode(ids), "token_ids": ids}


def main():
    DESCRIBED.update(json.loads((FOLDER / "kerasbert.json").read_text(encoding="utf-8"))["export"])
    does, mask = DESCRIBED["does"], DESCRIBED["tokenizer"]["mask"]
    texts = sys.argv[1:] or [text.replace("MASK", mask or "") for text in TEXTS[does]]
    for found in globals()[does](with_our_names(opened(DESCRIBED["file"])), open_tokenizer(), texts):
        print(json.dumps(found, ensure_ascii=False))


if __name__ == "__main__":
    main()
