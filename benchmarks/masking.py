"""Speed of BERT's masking rule, beside the collator of transformers in the same run.

    python benchmarks/masking.py

One core, 64 rows of 512 tokens. Both sides are run in turns and the medians compared. Ours includes the drawing of
random numbers, finding the candidates, the exact number of predictions a row, and positions, targets and inputs; theirs
is the fastest of its forms: special-tokens masks given, lists and arrays, numpy and torch. Prints a table, then JSON.
"""

import json
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[name] = "1"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import platform  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np  # noqa: E402

from kerasbert.data import Corpus, MaskedLMBatches, Tokenizer  # noqa: E402
from kerasbert.data.masking import TokenMasking  # noqa: E402
from kerasbert.data.sampling import DYNAMIC, row_draws  # noqa: E402

ROWS, LENGTH, VOCABULARY, SLOTS = 64, 512, 2000, 77
ROUNDS, SECONDS = 15, 0.1


def main() -> None:
    tokenizer, documents = _tokenizer()
    token_ids = np.random.default_rng(0).integers(5, VOCABULARY, (ROWS, LENGTH), dtype=np.int32)
    token_ids[:, 0], token_ids[:, -1] = tokenizer.cls_id, tokenizer.sep_id
    contenders = {
        "kerasbert, tokens": _masker(tokenizer, token_ids, None),
        "kerasbert, whole words": _masker(tokenizer, token_ids, tokenizer.word_starts),
    }
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus.write(Path(folder) / "corpus", documents, tokenizer)
        for name, pairs in (("chunks", False), ("sentence pairs", True)):
            batches = MaskedLMBatches(corpus, ROWS, LENGTH, steps=1 << 40, sentence_pairs=pairs)
            contenders[f"kerasbert, whole batches of {name}"] = _stepper(batches)
        contenders |= _collators(tokenizer, token_ids)
        speeds = {name: [] for name in contenders}
        for round_number in range(ROUNDS):
            order = list(contenders) if round_number % 2 == 0 else list(reversed(contenders))
            for name in order:
                speeds[name].append(_tokens_per_second(contenders[name]))
    medians = {name: float(np.median(values)) for name, values in speeds.items()}
    ours, theirs = (
        medians["kerasbert, tokens"],
        max((v for k, v in medians.items() if "transformers" in k), default=0.0),
    )
    print(f"{'one core, ' + str(ROWS) + ' x ' + str(LENGTH):44} {'median':>8} {'lowest':>8} {'highest':>8}  Mtokens/s")
    for name, values in speeds.items():
        print(f"{name:44} {medians[name] / 1e6:8.2f} {min(values) / 1e6:8.2f} {max(values) / 1e6:8.2f}")
    result = {"mtokens_per_second": {name: round(value / 1e6, 2) for name, value in medians.items()}}
    if theirs:
        result["times_transformers"] = round(ours / theirs, 1)
        print(f"kerasbert / the fastest of transformers: {result['times_transformers']}")
    result |= {"python": platform.python_version(), "numpy": np.__version__, "machine": platform.processor()}
    print(json.dumps(result))


def _tokenizer() -> tuple[Tokenizer, list[str]]:
    random = np.random.default_rng(1)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    words = ["".join(random.choice(letters, random.integers(2, 9))) for _ in range(4000)]
    documents = ["\n".join(" ".join(random.choice(words, 20)) for _ in range(200)) for _ in range(40)]
    return Tokenizer.train("wordpiece", documents, VOCABULARY), documents


def _masker(tokenizer: Tokenizer, token_ids: np.ndarray, word_starts: np.ndarray | None) -> Callable[[int], object]:
    special = (tokenizer.cls_id, tokenizer.sep_id)
    masking = TokenMasking(tokenizer.mask_id, tokenizer.vocabulary_size, special, SLOTS, word_starts=word_starts)
    lengths = np.full(ROWS, LENGTH, dtype=np.int32)

    def mask(step: int) -> object:
        inputs = token_ids.copy()
        draws = row_draws(0, step, DYNAMIC, 0, ROWS, masking.num_draws(LENGTH))
        return inputs, masking(inputs, lengths, draws)

    return mask


def _stepper(batches: MaskedLMBatches) -> Callable[[int], object]:
    return lambda step: batches[step]


def _collators(tokenizer: Tokenizer, token_ids: np.ndarray) -> dict[str, Callable[[int], object]]:
    try:
        from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast
    except ImportError:
        return {}
    special = {f"{role}_token": token for role, token in tokenizer.roles.items()}
    theirs = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend, **special)
    marks = np.isin(token_ids, tokenizer.special_ids).astype(np.int64)
    arrays = [
        {"input_ids": row, "special_tokens_mask": mark}
        for row, mark in zip(token_ids.astype(np.int64), marks, strict=True)
    ]
    lists = [{name: value.tolist() for name, value in example.items()} for example in arrays]
    collators = {}
    for kind in ("np", "pt"):
        if kind == "pt":
            try:
                import torch
            except ImportError:
                continue
            torch.set_num_threads(1)
        collate = DataCollatorForLanguageModeling(theirs, mlm_probability=0.15, return_tensors=kind)
        for form, examples in (("lists", lists), ("arrays", arrays)):
            collators[f"transformers, {kind}, {form}"] = lambda _, collate=collate, examples=examples: collate(examples)
    return collators


def _tokens_per_second(contender: Callable[[int], object]) -> float:
    contender(0)
    steps, start = 0, time.process_time()  # what other programs take of the core does not count
    while (spent := time.process_time() - start) < SECONDS:
        contender(steps)
        steps += 1
    return steps * ROWS * LENGTH / spent


if __name__ == "__main__":
    main()
