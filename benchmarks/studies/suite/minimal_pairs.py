"""Makes minimal pairs of English sentences, and scores language models on them.

python -m benchmarks.studies.suite.minimal_pairs --text novels --output pairs.jsonl

A pair consists of an acceptable and an unacceptable sentence of equal length. A language model is right if it gives the
acceptable sentence a higher probability. There are twenty paradigms (see `paradigms`), each with two hundred pairs.
Their words are the words of `lexicon` that are frequent in a text, so that a model trained on the text has seen all of
them. A model that uses only word frequencies scores 50% in every paradigm.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tyro

from benchmarks.studies.suite.lexicon import Draw, Lexicon
from benchmarks.studies.suite.ngram_model import NgramModel, Ngrams, Unigrams, Words, words
from benchmarks.studies.suite.paradigms import PARADIGMS
from kerasbert.data import encode_texts, read_documents
from kerasbert.data.text.files import text_written_whole
from kerasbert.objectives import CausalLM, MaskedLM
from pipelines.reading.minimal_pairs import MinimalPair
from pipelines.runs.outputs import check_outputs

MINIMUM = 50  # minimum number of occurrences of a word in the text
ATTEMPTS = 50  # maximum number of attempts per pair; most of them give a new pair
METHODS = ("pll", "within_words", "unmasked")


def generate(
    counts: Mapping[str, int] | None = None, seed: int = 0, pairs: int = 200, minimum: int = MINIMUM
) -> list[MinimalPair]:
    """Generates the pairs of all paradigms, one paradigm after the other.

    The pairs depend only on the arguments, and the pairs of a paradigm do not depend on other paradigms.

    Args:
        counts: {word in lower case: number of occurrences in a text}. Default: all words of the lexicon are used.
        seed: seed of the random choices.
        pairs: number of pairs per paradigm. It must be even, because some paradigms generate two pairs at a time.
        minimum: minimum number of occurrences of the words that are used.

    Raises:
        ValueError: too few words are frequent enough.
    """
    lexicon, rows = Lexicon(counts, minimum), []
    for name, paradigm in PARADIGMS.items():
        draw, found = Draw(lexicon, f"{name} {seed}"), {}
        for _ in range(pairs * ATTEMPTS):
            new = dict(paradigm(draw))
            if len(found) + len(new) <= pairs and not found.keys() & new.keys():
                found |= new
            if len(found) == pairs:
                break
        if len(found) < pairs:
            raise ValueError(
                f"A paradigm must have an even number of different pairs. Received: pairs={pairs}, but {name} "
                f"has {len(found)}. Use a longer text, a lower minimum, or fewer pairs."
            )
        rows += [MinimalPair(name, good, bad) for good, bad in found.items()]
    used = {word for row in rows for word in words(f"{row.good} {row.bad}") if word.isalpha()}
    if rare := lexicon.rare(sorted(used)):
        raise ValueError(
            f"The words of the templates must occur {minimum} times or more in the text. Received: "
            f"{', '.join(rare)}, which are rarer. Use a longer text or a lower minimum."
        )
    return rows


def write_pairs(path: Path, pairs: Sequence[MinimalPair]) -> None:
    """Writes JSON lines with the column names of BLiMP, which `kerasbert evaluate --data` reads."""
    with text_written_whole(path) as file:
        for pair in pairs:
            row = {"paradigm": pair.paradigm, "sentence_good": pair.good, "sentence_bad": pair.bad}
            file.write(json.dumps(row) + "\n")


# === Scores of models ===


def accuracy(model, pairs: Sequence[MinimalPair], method: str = "pll", batch_size: int = 32) -> dict[str, float]:
    """Computes the share of pairs whose acceptable sentence is more likely, by paradigm and "overall".

    Args:
        model, method, batch_size: see `sentence_scores`.
        pairs: the pairs. A tie counts as one half, and "overall" is the mean over the paradigms.
    """
    good, bad = (
        np.array(sentence_scores(model, texts, method, batch_size))
        for texts in ([pair.good for pair in pairs], [pair.bad for pair in pairs])
    )
    right = (good > bad) + (good == bad) / 2
    names = np.array([pair.paradigm for pair in pairs])
    found = {name: float(right[names == name].mean()) for name in dict.fromkeys(names.tolist())}
    return found | {"overall": float(np.mean(list(found.values())))}


def sentence_scores(model, texts: Sequence[str], method: str = "pll", batch_size: int = 32) -> list[float]:
    """Computes the log probability of each text, in nats.

    Args:
        model: a CausalLM, a MaskedLM, or `Unigrams` or `Ngrams`.
        texts: the texts.
        method: the score of a MaskedLM. "pll": the pseudo-log-likelihood. "within_words": the same, but later tokens of
            the same word are masked, too (see `MaskedLM.score`). "unmasked": see `unmasked_scores`. Other models ignore
            this argument.
        batch_size: rows per batch.
    """
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(METHODS)}. Received: {method!r}.")
    if isinstance(model, MaskedLM):
        if method == "unmasked":
            return unmasked_scores(model, texts, batch_size)
        found = model.score(list(texts), within_words=method == "within_words", batch_size=batch_size)
    elif isinstance(model, CausalLM):
        found = model.score(list(texts), batch_size=batch_size)
    else:
        return model.score(texts)
    return [answer["score"] for answer in found]


def unmasked_scores(model: MaskedLM, texts: Sequence[str], batch_size: int = 32) -> list[float]:
    """Sums the log probabilities that the model gives to all tokens of each text without masking them.

    This is the method of Huebner et al. 2021 (BabyBERTa), for models that are never trained to predict unmasked tokens.
    Such models predict an unmasked token from its context, as if it were masked. Special tokens are not scored.
    """
    tokenizer = model.require_tokenizer()
    template = [item for item, _ in tokenizer.info["single"]]
    before, scores = template.index("A"), np.zeros(len(texts))
    rows = tokenizer.encode(list(texts), add_special_tokens=False, plain_text=True)
    lengths = np.array([len(row) for row in rows])
    for length in np.unique(lengths):  # rows of equal length need no padding
        here = np.flatnonzero(lengths == length)
        x = encode_texts(tokenizer, [texts[number] for number in here], plain_text=True)
        labels = np.stack([rows[number] for number in here])
        x["masked_positions"] = np.tile(np.arange(before, before + length, dtype="int32"), (len(here), 1))
        for start in range(0, len(here), batch_size):
            logits = model.predict({key: part[start : start + batch_size] for key, part in x.items()}, verbose=0)
            logits = (logits["tokens"] if isinstance(logits, dict) else logits).astype("float64")
            chosen = np.take_along_axis(logits, labels[start : start + batch_size, :, None], axis=-1)[..., 0]
            likelihoods = (chosen - np.logaddexp.reduce(logits, axis=-1)).sum(axis=-1)
            scores[here[start : start + batch_size]] = likelihoods
    return scores.tolist()


# === Command ===


def minimal_pairs(
    text: tuple[Path, ...],
    output: Path,
    seed: int = 0,
    pairs: int = 200,
    minimum: int = MINIMUM,
    exclude: tuple[str, ...] = (),
    order: int | None = None,
) -> list[MinimalPair]:
    """Writes minimal pairs with the frequent words of a text, and prints the accuracy of counting words on them.

    Args:
        text: text files, or folders of them, that models are trained on.
        output: file for the pairs, JSON lines.
        seed: seed of the random choices.
        pairs: number of pairs per paradigm. It must be even.
        minimum: minimum number of occurrences in the text of the words that are used.
        exclude: names, without extension, of files in the folders that models are not trained on.
        order: also train a Kneser-Ney model of n-grams of up to this many words, such as 5, and print its accuracy.
            For 13 million words, that takes half a minute and 3 GB of memory.
    """
    check_outputs({"--output": output}, {f"--text {path}": path for path in text})
    read = Words(read_documents(_files(text, exclude), documents="file"))
    counts = read.counts()
    rows = generate(counts, seed, pairs, minimum)
    write_pairs(output, rows)
    columns = {"unigrams": accuracy(Unigrams(counts), rows)}
    if order is not None:
        model = NgramModel(read.ids, len(read.vocabulary), order)
        columns[f"{order}-grams"] = accuracy(Ngrams(model, read), rows)
    print_table(columns, rows)
    return rows


def _files(sources: Sequence[Path], exclude: Sequence[str]) -> list[Path]:
    found = []
    for source in sources:
        found += sorted(path for path in source.rglob("*.txt")) if source.is_dir() else [source]
    if unknown := set(exclude) - {path.stem for path in found}:
        raise ValueError(f"`exclude` must name files of the text. Received: {', '.join(sorted(unknown))}.")
    return [path for path in found if path.stem not in exclude]


def print_table(columns: Mapping[str, Mapping[str, float]], pairs: Sequence[MinimalPair]) -> None:
    """Prints the number of pairs of each paradigm, and a column with the accuracies of each model in per cent."""
    names = [pair.paradigm for pair in pairs]
    print(f"{'paradigm':34}{'pairs':>6}" + "".join(f"{column:>12}" for column in columns))
    for name in [*dict.fromkeys(names), "overall"]:
        count = names.count(name) or len(names)
        print(f"{name:34}{count:6}" + "".join(f"{100 * scores[name]:12.1f}" for scores in columns.values()))


if __name__ == "__main__":
    tyro.cli(minimal_pairs)
