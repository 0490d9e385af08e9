"""Speed of the corruptions, beside the collators of transformers, or row by row where it has none, in the same run.

    python -m benchmarks.speed.masking
    python -m benchmarks.speed.masking --only "whole words" permutation

One core, 64 rows of 512 tokens. All sides of a rule are run in turns and the medians compared. Ours includes the
drawing of random numbers, finding the candidates, the exact number of predictions a row, and positions, targets and
inputs; "batches" are whole ones, read from a corpus besides. Theirs is the fastest of its forms: special-tokens masks
given, lists and arrays, numpy and torch. What transformers lacks is compared with the loops over rows and spans that
the papers' codes are (`masking_rows.py`). Prints a table, then JSON.
"""

import json
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[name] = "1"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import platform  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import tyro  # noqa: E402

from benchmarks.speed import masking_rows  # noqa: E402
from kerasbert.data import (  # noqa: E402
    Corpus,
    MaskedLMBatches,
    PermutationLMBatches,
    ReplacedTokenBatches,
    SpanMaskBatches,
    Tokenizer,
)
from kerasbert.data.noise.corruption import positions_of  # noqa: E402
from kerasbert.data.noise.masking import NGrams, Tokens, WholeWords  # noqa: E402
from kerasbert.data.noise.noise import MaskableRows, MaskingVocabulary  # noqa: E402
from kerasbert.data.noise.permutations import SpanTargets, order_ranks, random_order  # noqa: E402
from kerasbert.data.sampling import DYNAMIC, row_draws  # noqa: E402

ROWS, LENGTH, VOCABULARY, SLOTS = 64, 512, 2000, 77
ROUNDS, SECONDS = 15, 0.1
RULES = ("tokens", "whole words", "permutation", "spans", "n-grams", "replaced tokens", "sentence pairs")


def main(only: tuple[str, ...] = RULES, rounds: int = ROUNDS) -> None:
    """Measures rules.

    Args:
        only: rules.
        rounds: how often each contender has its turn.
    """
    tokenizer, documents = _tokenizer()
    token_ids = np.random.default_rng(0).integers(5, VOCABULARY, (ROWS, LENGTH), dtype=np.int32)
    token_ids[:, 0], token_ids[:, -1] = tokenizer.cls_id, tokenizer.sep_id
    speeds, ratios = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus.write(Path(folder) / "corpus", documents, tokenizer)
        for rule in only:
            contenders = {f"{rule}: {name}": run for name, run in _contenders(rule, corpus, token_ids).items()}
            found = {name: [] for name in contenders}
            for number in range(rounds):
                for name in list(contenders) if number % 2 == 0 else list(reversed(contenders)):
                    found[name].append(_tokens_per_second(contenders[name]))
            speeds |= found
            medians = {name: float(np.median(values)) for name, values in found.items()}
            ours = next(iter(medians.values()))
            for other in ("transformers", "row by row"):
                theirs = [speed for name, speed in medians.items() if other in name]
                ratios |= {f"{rule}, {other}": round(ours / max(theirs), 1)} if theirs else {}
    print(f"{'one core, ' + str(ROWS) + ' x ' + str(LENGTH):44} {'median':>8} {'lowest':>8} {'highest':>8}  Mtokens/s")
    for name, values in speeds.items():
        print(f"{name:44} {np.median(values) / 1e6:8.3f} {min(values) / 1e6:8.3f} {max(values) / 1e6:8.3f}")
    for rule, ratio in ratios.items():
        print(f"{rule}: the first of ours is {ratio} times as fast")
    result = {"mtokens_per_second": {name: round(float(np.median(v)) / 1e6, 3) for name, v in speeds.items()}}
    result |= {"times": ratios}
    result |= {"python": platform.python_version(), "numpy": np.__version__, "machine": platform.processor()}
    print(json.dumps(result))


def _contenders(rule: str, corpus: Corpus, token_ids: np.ndarray) -> dict[str, Callable[[int], object]]:
    """Ours first, then the others."""
    tokenizer = corpus.tokenizer()
    starts = corpus.word_starts
    of = (corpus, ROWS, LENGTH)
    endless = dict(steps=1 << 40)
    lists = [row.tolist() for row in token_ids]

    def row_by_row(function: Callable, *arguments) -> Callable[[int], object]:
        return lambda step: [function(row, seed, tokenizer, *arguments) for seed, row in enumerate(lists, step * ROWS)]

    if rule == "tokens":
        ours = {"kerasbert": _masker(tokenizer, token_ids, None)}
        batches = MaskedLMBatches(*of, **endless)
        return {**ours, "kerasbert, batches": batches.__getitem__, **_collators(tokenizer, token_ids)}
    if rule == "whole words":
        ours = {"kerasbert": _masker(tokenizer, token_ids, starts)}
        batches = MaskedLMBatches(*of, noise=WholeWords(), **endless)
        theirs = _collators(tokenizer, token_ids, starts)
        rows = row_by_row(masking_rows.whole_words, starts)
        return {**ours, "kerasbert, batches": batches.__getitem__, **theirs, "row by row": rows}
    if rule == "permutation":
        batches = PermutationLMBatches(*of, **endless)
        ours = {"kerasbert": _permuter(tokenizer, token_ids), "kerasbert, batches": batches.__getitem__}
        return {**ours, **_permutation_collators(tokenizer, token_ids)}
    if rule == "spans":
        batches = SpanMaskBatches(*of, rows="chunks", **endless)
        return {"kerasbert, batches": batches.__getitem__, "row by row": row_by_row(masking_rows.spans, starts)}
    if rule == "n-grams":
        batches = MaskedLMBatches(*of, noise=NGrams(), **endless)
        return {"kerasbert, batches": batches.__getitem__, "row by row": row_by_row(masking_rows.ngrams, starts)}
    if rule == "replaced tokens":
        batches = ReplacedTokenBatches(*of, **endless)
        return {"kerasbert, batches": batches.__getitem__, "row by row": row_by_row(masking_rows.slots)}
    if rule == "sentence pairs":
        return {"kerasbert, batches": MaskedLMBatches(*of, rows="segment_pairs", **endless).__getitem__}
    raise ValueError(f"The rules are {', '.join(RULES)}. Received: {rule!r}.")


def _tokenizer() -> tuple[Tokenizer, list[str]]:
    random = np.random.default_rng(1)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    words = ["".join(random.choice(letters, random.integers(2, 9))) for _ in range(4000)]
    documents = ["\n".join(" ".join(random.choice(words, 20)) for _ in range(200)) for _ in range(40)]
    return Tokenizer.train("wordpiece", documents, VOCABULARY), documents


def _masker(tokenizer: Tokenizer, token_ids: np.ndarray, word_starts: np.ndarray | None) -> Callable[[int], object]:
    special = (tokenizer.cls_id, tokenizer.sep_id)
    noise = Tokens() if word_starts is None else WholeWords()
    vocabulary = MaskingVocabulary(tokenizer.mask_id, tokenizer.vocabulary_size, special, word_starts=word_starts)
    lengths, every = np.full(ROWS, LENGTH, dtype=np.int32), np.ones((ROWS, LENGTH), bool)
    first = np.arange(LENGTH) == np.zeros((ROWS, 1))

    def mask(step: int) -> object:
        inputs = token_ids.copy()
        draws = row_draws(0, step, DYNAMIC, 0, ROWS, noise.num_draws(LENGTH, SLOTS))
        return inputs, noise(MaskableRows(inputs, lengths, every, first, SLOTS, vocabulary), draws)

    return mask


def _permuter(tokenizer: Tokenizer, token_ids: np.ndarray) -> Callable[[int], object]:
    """Targets, orders and ranks of both halves of ready rows."""
    special = np.isin(token_ids, tokenizer.special_ids)
    starts, half = tokenizer.word_starts[token_ids], LENGTH // 2
    spans, goal = SpanTargets(), LENGTH // 12
    counts = [spans.num_draws(half, goal), half // 2 + 2]

    def permute(step: int) -> object:
        draws = np.split(row_draws(0, step, DYNAMIC, 0, 2 * ROWS, sum(counts))[:, : sum(counts)], counts[:1], axis=1)
        hidden = spans(starts.reshape(2 * ROWS, half), goal, draws[0])
        ranks = order_ranks(hidden, special.reshape(2 * ROWS, half), random_order(half, half, draws[1]))
        hidden = hidden.reshape(ROWS, LENGTH) & ~special
        return token_ids, ranks, positions_of(hidden, 2 * (LENGTH // 12))

    return permute


# === Theirs ===


def _their_tokenizer(tokenizer: Tokenizer):
    try:
        from transformers import PreTrainedTokenizerFast
    except ImportError:
        return None
    special = {f"{role}_token": token for role, token in tokenizer.roles.items()}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend, **special)


def _frameworks() -> list[str]:
    try:
        import torch
    except ImportError:
        return ["np"]
    torch.set_num_threads(1)
    return ["np", "pt"]


def _collators(tokenizer: Tokenizer, token_ids: np.ndarray, starts: np.ndarray | None = None) -> dict[str, Callable]:
    """With `starts`, of whole words, which they tell by gaps between the offsets of pieces."""
    theirs = _their_tokenizer(tokenizer)
    if theirs is None:
        return {}
    from transformers import DataCollatorForLanguageModeling

    marks = np.isin(token_ids, tokenizer.special_ids).astype(np.int64)
    examples = {"input_ids": token_ids.astype(np.int64), "special_tokens_mask": marks}
    if starts is not None:
        ends = np.cumsum(1 + starts[token_ids], axis=1)
        examples["offset_mapping"] = np.stack([ends - 1, ends], axis=-1)
    arrays = [{name: value[row] for name, value in examples.items()} for row in range(ROWS)]
    lists = [{name: value.tolist() for name, value in example.items()} for example in arrays]
    found = {}
    for kind in _frameworks():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of whole words all become masks
            collate = DataCollatorForLanguageModeling(
                theirs, mlm_probability=0.15, return_tensors=kind, whole_word_mask=starts is not None
            )
        for form, given in (("lists", lists), ("arrays", arrays)):
            found[f"transformers, {kind}, {form}"] = lambda _, collate=collate, given=given: collate(given)
    return found


def _permutation_collators(tokenizer: Tokenizer, token_ids: np.ndarray) -> dict[str, Callable]:
    theirs = _their_tokenizer(tokenizer)
    if theirs is None:
        return {}
    from transformers import DataCollatorForPermutationLanguageModeling

    given = [row.tolist() for row in token_ids]
    collators = {
        kind: DataCollatorForPermutationLanguageModeling(theirs, return_tensors=kind) for kind in _frameworks()
    }
    return {f"transformers, {kind}": lambda _, collate=collate: collate(given) for kind, collate in collators.items()}


def _tokens_per_second(contender: Callable[[int], object]) -> float:
    contender(0)
    steps, start = 0, time.process_time()  # what other programs take of the core does not count
    while (spent := time.process_time() - start) < SECONDS:
        contender(steps)
        steps += 1
    return steps * ROWS * LENGTH / spent


if __name__ == "__main__":
    tyro.cli(main)
