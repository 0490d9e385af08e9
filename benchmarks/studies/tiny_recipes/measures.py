"""What `run.py` measures: the predictions of a model on some text, and those of its bars on the same targets.

Tokens count as targets only if the model was not shown them: neither kept tokens, nor sentinels, nor the special tokens
around a text. Of models that restore a whole text, all tokens count, and one bar copies those that are shown. Every
text (of several languages, or tasks) is read alone, so that its bars are counted on the training text of the same name;
the targets of all texts are pooled. Replaced tokens are scored at all tokens that are text.
"""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from benchmarks.studies.suite.ngram_model import NgramModel
from benchmarks.studies.tiny_recipes.bars import (
    Origins,
    auc,
    bag_losses,
    bigram_losses,
    bigram_scores,
    compared,
    entropy,
    frequency_pair_losses,
    frequency_scores,
    hidden_targets,
    majority,
    mean,
    unigram_losses,
)
from kerasbert.data import Batches, Corpus, SentenceOrder
from kerasbert.data.batches.skip_gram import keep_probabilities, noise_probabilities
from kerasbert.data.corpus.streams import TokenStream
from pipelines.recipes.data import PairData, SkipGramData, TextAndTasks
from pipelines.recipes.recipe import Recipe
from pipelines.runs.building import evaluation_batches

SENTINELS = "<extra_id_"
STEPS = 40  # batches of a measurement, of all texts together
BLOCKS = 24  # into which a held-out text is cut if it has fewer documents than LEAST_DOCUMENTS
LEAST_DOCUMENTS = 20
BARS = ("unigrams", "bigrams", "bag", "rest of the bag", "copies", "frequencies")
LABELS = "labels: "  # begins the kinds of predictions that are labels
Columns = dict[str, np.ndarray]  # of the same length, one entry a prediction
Statistic = Callable[[np.ndarray], float]


def measure(recipe: Recipe, model, texts: dict[str, Corpus]) -> dict[str, float]:
    """{what: value} on some text, without bars."""
    tables = {name: read(recipe, model, name, text, steps_of(recipe, texts))[0] for name, text in texts.items()}
    return values(tables)


def compare(recipe: Recipe, model, corpora: dict[str, Corpus], held_out: dict[str, Corpus]) -> dict:
    """{"end": values on training text, "measures": comparisons with bars on held-out text}."""
    seen, tables, kinds, steps = {}, {}, {}, steps_of(recipe, held_out)
    for name, text in held_out.items():
        units, kinds[name] = units_of(recipe, text)
        seen[name], generated = read(recipe, model, name, corpora[name], steps)
        tables[name], _ = read(recipe, model, name, text, steps, units)
        add_bars(tables[name], Counted(recipe, corpora[name]), generated)
    found = []
    for one in measures(tables):
        result = compared(one.value, one.bars, one.rows["unit"], one.higher)
        kind = " and ".join(sorted({kinds[name] for name, table in tables.items() if one.kind in table}))
        found.append({"what": one.what, **result, "kind": kind})
    return {"end": values(seen), "measures": found}


def steps_of(recipe: Recipe, texts: dict) -> int:
    """Batches of each text; each task is read as far as it goes."""
    return STEPS if isinstance(recipe.data, TextAndTasks) else max(1, STEPS // len(texts))


# === What is measured ===


class Measure(NamedTuple):
    """A number of a model, and the same of its bars, as statistics of the predictions that a bool array selects."""

    what: str
    kind: str  # of the predictions
    rows: Columns
    value: Statistic
    bars: dict[str, Statistic]
    higher: bool = False  # whether more is better


def measures(tables: dict[str, dict[str, Columns]]) -> Iterator[Measure]:
    """The measures of all texts together."""
    for kind in ("tokens", "word pairs"):
        if rows := pooled(tables, kind):
            bars = {name: mean(rows[name]) for name in BARS if name in rows}
            yield Measure(f"{kind}, nats", kind, rows, mean(rows["loss"]), bars)
    if rows := pooled(tables, "replaced"):
        positive = rows["replaced"]
        curves = {name: auc_of(rows[name], positive) for name in ("frequencies", "bigrams") if name in rows}
        yield Measure("replaced tokens, AUC", "replaced", rows, auc_of(rows["score"], positive), curves, True)
        share = {"their share": entropy_of(positive)}
        yield Measure("replaced tokens, nats", "replaced", rows, mean(rows["loss"]), share)
    for kind in dict.fromkeys(kind for table in tables.values() for kind in table if kind.startswith(LABELS)):
        rows, what = pooled(tables, kind), kind.removeprefix(LABELS)
        most, share = {"majority": majority_of(rows["label"])}, {"their shares": entropy_of(rows["label"])}
        yield Measure(f"{what}, accuracy", kind, rows, mean(rows["right"]), most, True)
        yield Measure(f"{what}, nats", kind, rows, mean(rows["loss"]), share)


def values(tables: dict[str, dict[str, Columns]]) -> dict[str, float]:
    return {one.what: one.value(np.ones(len(one.rows["unit"]), bool)) for one in measures(tables)}


def pooled(tables: dict[str, dict[str, Columns]], kind: str) -> Columns | None:
    """The columns of all texts that have this kind of prediction; units of different texts stay different."""
    found = [table[kind] for table in tables.values() if kind in table]
    if not found:
        return None
    found = [{**rows, "unit": rows["unit"] + (number << 32)} for number, rows in enumerate(found)]
    return {name: np.concatenate([rows[name] for rows in found]) for name in found[0]}


def auc_of(scores: np.ndarray, positive: np.ndarray) -> Statistic:
    return lambda chosen: auc(scores[chosen], positive[chosen])


def entropy_of(labels: np.ndarray) -> Statistic:
    return lambda chosen: entropy(labels[chosen])


def majority_of(labels: np.ndarray) -> Statistic:
    return lambda chosen: majority(labels[chosen])


# === Predictions ===


def read(recipe: Recipe, model, name: str, text: Corpus, steps: int, units=None) -> tuple[dict[str, Columns], dict]:
    """What a model predicts on a text: {kind of prediction: columns}; and what a generator writes on average.

    Args:
        steps: batches.
        units: function from rows of text to the unit of each, or None: each row is one.
    """
    batches = evaluation_batches(recipe, {name: text}, steps)
    found, generated = {}, 0.0
    for step in range(len(batches)):
        x, y, weights = batches[step]
        outputs = model.predict_on_batch(x)
        numbers = step * batches.rows + np.arange(batches.rows)
        unit = numbers if units is None else units(originals(x, y))
        if isinstance(recipe.data, SkipGramData):
            unit = np.full(batches.rows, step)  # pairs of words do not tell where they are from
            parts = {"word pairs": word_pairs(x, y, weights, outputs)}
        elif isinstance(recipe.data, TextAndTasks) and name != recipe.data.text_name:
            parts = {f"{LABELS}{name}": answers(y, weights, outputs)}
        else:
            parts = {"tokens": tokens(batches, x, y, weights, outputs, skipped_ids(text))}
        if isinstance(y, dict) and "sentence_pair" in y:
            what = "sentence order" if isinstance(recipe.data.rows, SentenceOrder) else "next sentence"
            parts[f"{LABELS}{what}"] = sentence_pairs(y, weights, outputs)
        if isinstance(outputs, dict) and "sampled" in outputs:
            parts["replaced"] = replaced(x, y, weights, outputs, skipped_ids(text))
            generated = generated + generated_mass(y, weights, outputs)
        for kind, columns in parts.items():
            found.setdefault(kind, []).append({**columns, "unit": unit[columns["row"]]})
    tables = {kind: {key: np.concatenate([p[key] for p in rows]) for key in rows[0]} for kind, rows in found.items()}
    return tables, generated


def tokens(batches: Batches, x: dict, y, weights, outputs, skipped: np.ndarray) -> Columns:
    """Losses of tokens that are not shown, with their targets and, for models that read it, the token before."""
    parts = []
    for logits, targets, used, contexts in token_predictions(x, y, weights, outputs):
        used = (used > 0) & ~np.isin(targets, skipped)
        if not isinstance(y, dict) or "forward" not in y:
            used &= ~is_shown(x, targets, getattr(batches, "objective", None))
        row = np.nonzero(used)[0]
        known = np.full(targets.shape, -1) if contexts is None else contexts
        whole, rest = bags(batches, x, targets, used)
        columns = {"loss": cross_entropies(logits[used], targets[used]), "target": targets[used], "row": row}
        columns |= {"context": known[used], "backward": np.full(len(row), len(parts)), **whole, **rest}
        parts.append(columns | copies(batches, x, targets, used))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def token_predictions(x: dict, y, weights, outputs) -> Iterator[tuple]:
    """(logits, targets, weights, the token read last or None) of a batch; of both directions where there are two."""
    if isinstance(y, dict) and "forward" in y:
        for way in ("forward", "backward"):
            yield outputs[way], y[way], weights[way], x["token_ids"]
        return
    logits, targets, used = (value["tokens"] if isinstance(value, dict) else value for value in (outputs, y, weights))
    contexts = None if "masked_positions" in x else x.get("decoder_token_ids", x["token_ids"])
    yield np.asarray(logits), targets, used, contexts


def is_shown(x: dict, targets: np.ndarray, objective: str | None) -> np.ndarray:
    """Where the target is among the inputs at its position."""
    ids, slots = x["token_ids"], x.get("masked_positions")
    if "query_ranks" in x:  # the content stream reads the real tokens, the query stream predicts
        return np.zeros(targets.shape, bool)
    if slots is not None:
        return np.take_along_axis(ids, np.maximum(slots, 0), axis=1) == targets
    if objective not in ("bert", "mass"):  # the inputs are not aligned with the targets
        return np.zeros(targets.shape, bool)
    width = min(ids.shape[1], targets.shape[1])
    return np.pad(ids[:, :width] == targets[:, :width], [(0, 0), (0, targets.shape[1] - width)])


def bags(batches: Batches, x: dict, targets: np.ndarray, used: np.ndarray) -> tuple[Columns, Columns]:
    """The bars of models that put tokens in order."""
    if getattr(batches, "objective", None) != "deshuffling":
        return {}, {}
    inside = np.arange(x["token_ids"].shape[1]) < x["lengths"][:, None] - 1  # without the end token
    whole, rest = bag_losses(np.where(inside, x["token_ids"], -1), np.where(used, targets, -1))
    return {"bag": whole}, {"rest of the bag": rest}


def copies(batches: Batches, x: dict, targets: np.ndarray, used: np.ndarray) -> Columns:
    """Which targets of a model that restores a whole text, most of which it is shown, are not among its inputs."""
    if getattr(batches, "objective", None) != "text_infilling":
        return {}
    inside = np.arange(x["token_ids"].shape[1]) < x["lengths"][:, None]
    return {"hidden": hidden_targets(np.where(inside, x["token_ids"], -1), np.where(used, targets, -1))[used]}


def sentence_pairs(y: dict, weights: dict, outputs: dict) -> Columns:
    """The label of every pair of segments, its loss, and whether it is found."""
    row = np.flatnonzero(weights["sentence_pair"] > 0)
    logits, labels = np.asarray(outputs["sentence_pair"])[row], y["sentence_pair"][row]
    right = (logits.argmax(axis=1) == labels).astype(float)
    return {"label": labels, "loss": cross_entropies(logits, labels), "right": right, "row": row}


def answers(y: np.ndarray, weights: np.ndarray, outputs) -> Columns:
    """The whole answer as a label, with the loss of all its tokens, and whether greedy decoding gives it."""
    row = np.flatnonzero(weights.sum(axis=1) > 0)
    used, targets, logits = weights[row] > 0, y[row], np.asarray(outputs)[row]
    loss = (cross_entropies(logits, targets) * used).sum(axis=1)
    right = ((logits.argmax(axis=2) == targets) | ~used).all(axis=1).astype(float)
    padded = np.where(used, targets, -1).astype(np.uint64)
    label = functools.reduce(lambda key, column: key * np.uint64(1_000_003) + column, padded.T)
    return {"label": label, "loss": loss, "right": right, "row": row}


def word_pairs(x: dict, y: np.ndarray, weights: np.ndarray, outputs) -> Columns:
    """Losses of negative sampling, one for each pair of words."""
    row = np.flatnonzero(weights[:, 0] > 0)
    logits, columns = np.asarray(outputs, "float64"), {"candidates": x["context_ids"], "labels": y, "weights": weights}
    loss = (weights * np.logaddexp(0, (1 - 2 * y) * logits)).sum(axis=1)
    return {"loss": loss[row], "row": row, **{name: value[row] for name, value in columns.items()}}


def replaced(x: dict, y: dict, weights: dict, outputs: dict, skipped: np.ndarray) -> Columns:
    """Every token of text after the generator, with its neighbors: whether it was replaced, its score and loss."""
    texts = originals(x, y)
    seen = originals(x, {"tokens": np.asarray(outputs["sampled"])})
    used = (weights["replaced"] > 0) & ~np.isin(texts, skipped)
    label, score = (seen != texts)[used], np.asarray(outputs["replaced"], "float64")[used]
    around = np.pad(seen, [(0, 0), (1, 1)], mode="edge")
    columns = {"id": seen[used], "left": around[:, :-2][used], "right": around[:, 2:][used], "row": np.nonzero(used)[0]}
    return {**columns, "replaced": label, "score": score, "loss": np.logaddexp(0, score) - label * score}


def generated_mass(y: dict, weights: dict, outputs: dict) -> np.ndarray:
    """How much the generator gives to each token at the slots, in place of the original: float64 (vocabulary,)."""
    used = weights["tokens"] > 0
    logits = np.asarray(outputs["tokens"], "float64")[used]
    shares = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    shares[np.arange(len(shares)), y["tokens"][used]] = 0.0
    return shares.sum(axis=0)


def cross_entropies(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """-log softmax(logits)[target], float64, of the shape of the targets."""
    logits = np.asarray(logits, "float32")
    logits = logits - logits.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(logits, targets[..., None].astype(np.int64), axis=-1)[..., 0]
    return np.log(np.exp(logits).sum(axis=-1)).astype("float64") - chosen


# === Text ===


def skipped_ids(corpus: Corpus) -> np.ndarray:
    """Ids that are no text: sentinels and the special tokens around a text."""
    sentinels = [i for i, token in enumerate(corpus.tokenizer().tokens) if token.startswith(SENTINELS)]
    ids = (corpus.tokenizer_info[f"{role}_id"] for role in ("bos", "cls", "eos", "sep", "pad"))
    return np.array([*sentinels, *(i for i in ids if i is not None)])


def originals(x: dict, y) -> np.ndarray:
    """Rows of a batch with the original tokens in the slots; of an encoder-decoder, inputs and targets in one row."""
    rows, slots = x["token_ids"].copy(), x.get("masked_positions")
    targets = y["tokens"] if isinstance(y, dict) and "tokens" in y else y
    if slots is not None:
        row, column = np.nonzero(slots >= 0)
        rows[row, slots[row, column]] = targets[row, column]
    if "backward" in x:
        rows[x["backward"]] = rows[x["backward"]][:, ::-1]
    return rows if "decoder_token_ids" not in x else np.concatenate([rows, targets], axis=1)


def units_of(recipe: Recipe, text: Corpus) -> tuple:
    """(function from rows of a held-out text to the unit of each, or None for the row itself; what a unit is)."""
    if isinstance(recipe.data, SkipGramData):
        return None, "batches"
    if isinstance(recipe.data, PairData) or (np.diff(text.document_starts) == 2).all():
        return None, "pairs"
    starts = np.append(text.sequence_starts, text.num_tokens)[text.document_starts[:-1]]
    kind = "documents"
    if len(starts) < LEAST_DOCUMENTS:
        starts, kind = np.linspace(0, text.num_tokens, BLOCKS, endpoint=False).astype(np.int64), "blocks"
    origins = Origins(np.asarray(text.tokens), starts)
    return lambda rows: np.maximum(origins(rows), 0), kind  # a few rows are too short to tell


class Counted:
    """Counts of a training text: its tokens, and which follows or precedes which.

    Args:
        corpus: of documents of two lines, only the second is counted if the recipe translates.
    """

    def __init__(self, recipe: Recipe, corpus: Corpus):
        self.recipe, self.corpus = recipe, corpus
        self.size = corpus.tokenizer_info["vocabulary_size"]

    @functools.cached_property
    def stream(self) -> np.ndarray:
        """The text with the special tokens that a model reads between its parts."""
        info, corpus, data = self.corpus.tokenizer_info, self.corpus, self.recipe.data
        end = info["sep_id"] if info["eos_id"] is None else info["eos_id"]
        if not isinstance(self.recipe.data, PairData):
            stream = TokenStream(corpus, end, getattr(getattr(data, "text", data), "lines", False))
            return stream[np.arange(len(stream))]
        bounds, start = np.append(corpus.sequence_starts, corpus.num_tokens), info["pad_id"] or 0
        second = corpus.document_starts[:-1][np.diff(corpus.document_starts) == 2] + 1
        lines = [corpus.tokens[bounds[line] : bounds[line + 1]] for line in second.tolist()]
        return np.concatenate([part for line in lines for part in ([start], line, [end])]).astype(np.int64)

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """How often each token is in the text; special tokens are not counted."""
        counts = np.bincount(self.stream) if isinstance(self.recipe.data, PairData) else self.corpus.counts()
        counts = np.pad(counts, (0, self.size - len(counts)))
        counts[skipped_ids(self.corpus)] = 0
        return counts

    @functools.cached_property
    def after(self) -> NgramModel:
        return NgramModel(self.stream, self.size, order=2)

    @functools.cached_property
    def before(self) -> NgramModel:
        return NgramModel(self.stream[::-1], self.size, order=2)


def add_bars(tables: dict[str, Columns], count: Counted, generated) -> None:
    """Adds to the predictions on a held-out text those of its bars."""
    if "tokens" in tables:
        rows = tables["tokens"]
        rows["unigrams"] = unigram_losses(rows["target"], count.counts)
        if "hidden" in rows:
            rows["copies"] = np.where(rows["hidden"], rows["unigrams"], 0.0)
        if (rows["context"] >= 0).any():
            rows["bigrams"] = np.empty(len(rows["target"]))
            for model, way in (("after", 0), ("before", 1)):
                here = rows["backward"] == way
                if here.any():
                    found = bigram_losses(getattr(count, model), rows["context"][here], rows["target"][here])
                    rows["bigrams"][here] = found
    if "replaced" in tables:
        rows, text = tables["replaced"], (count.counts + 1.0) / (count.counts + 1.0).sum()
        own = generated + text  # one replacement more, in case that a token is never written
        rows["frequencies"] = frequency_scores(rows["id"], own / own.sum(), text)
        sides = ((count.after, rows["left"]), (count.before, rows["right"]))
        losses = np.stack([bigram_losses(model, side, rows["id"]) for model, side in sides])
        rows["bigrams"] = bigram_scores(rows["frequencies"], -losses - np.log(text[rows["id"]]))
    if "word pairs" in tables:
        rows, data = tables["word pairs"], count.recipe.data
        counts = count.counts + 1.0
        near = counts * keep_probabilities(counts, data.threshold, data.rule)
        noise = noise_probabilities(counts, data.power)
        columns = (rows[name] for name in ("candidates", "labels", "weights"))
        rows["frequencies"] = frequency_pair_losses(*columns, near / near.sum(), noise)
