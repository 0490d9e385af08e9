"""Two small demonstrations: T5 fills a blank of a requested length, and XLNet knows that New goes with York.

    python -m benchmarks.studies.demonstrations.run blanks --data data
    python -m benchmarks.studies.demonstrations.run names

`blanks`: text with one sentinel in the place of 1 to 8 words is the input, the words are the answer; one model is told
in front of the text how many words are missing, the other is not. Counted is how often the answer to held-out text has
that many words (Raffel et al. 2019 do this with N up to 512). Answers are drawn, from the likeliest words that have 90%
of the probability: the peak of a model that knows little is an early end.

`names`: sentences about eight cities whose names are two words, each as likely as the others. Both words are hidden.
BERT predicts them independently, so half of a name says nothing about the other half, and most of its probability is on
names such as New Angeles. A permutation language model predicts the second word from the first (Yang et al. 2019,
section 2.6). Shown is how much probability each gives to names that exist, and to mixed ones.

Every model is a cell of a few minutes on one core: a row of RESULTS, which is not made again.
"""

import json
import time
from pathlib import Path

import numpy as np
import tyro

from kerasbert.backend import seed_everything
from kerasbert.data import (
    Corpus,
    MaskedLMBatches,
    PermutationLMBatches,
    Seq2SeqBatches,
    Seq2SeqLayout,
    Tokenizer,
    read_documents,
)
from kerasbert.data.noise.permutations import order_ranks
from kerasbert.models import T5, Bert, BertConfig, T5Config, XLNet, XLNetConfig
from kerasbert.objectives import MaskedLM, PermutationLM, Seq2SeqLM
from kerasbert.training import Progress, adamw

RESULTS = Path(__file__).with_name("rows.jsonl")
WORK = Path("runs/demonstrations")


def finished() -> dict:
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {row["cell"]: row for row in map(json.loads, lines)}


def finish(**row) -> dict:
    with open(RESULTS, "a") as file:
        file.write(json.dumps(row) + "\n")
    return row


# === A blank of a requested length ===

SENTINEL = "<extra_id_0>"
COUNTS = (1, 2, 3, 4, 6, 8)
CONTEXT = 8  # words on each side


def blanked(words: list[str], place: int, count: int, told: bool) -> tuple[str, str]:
    """(input, answer) of a text with `count` words missing from `place` on.

    a b c d e, 2, 2, told -> "2: a b <extra_id_0> e" and "<extra_id_0> c d"
    """
    end = place + count
    text = " ".join([*words[max(0, place - CONTEXT) : place], SENTINEL, *words[end : end + CONTEXT]])
    return f"{count}: {text}" if told else text, " ".join([SENTINEL, *words[place:end]])


def blanks_of(documents: list[str], number: int, told: bool, seed: int) -> tuple[list[str], list[str], list[int]]:
    """Inputs, answers and how many words are missing, of random places of random texts."""
    random = np.random.default_rng(seed)
    texts = [text.split() for text in documents]
    sizes = np.array([len(words) for words in texts], dtype=float)
    found = []
    for text in random.choice(len(texts), number, p=sizes / sizes.sum()):
        count = int(random.choice(COUNTS))
        place = int(random.integers(0, len(texts[text]) - count))
        found.append((*blanked(texts[text], place, count, told), count))
    return tuple(map(list, zip(*found, strict=True)))


def words_in(answer: str) -> int:
    """How many words an answer has, the sentinel left out."""
    return len(answer.replace(SENTINEL, " ").split())


def blanks(data: Path, steps: int = 2_000, tests: int = 600) -> None:
    """Trains the two models and prints how often their answers have the requested length.

    Args:
        data: folder of the texts.
        steps: updates of 32 blanks.
        tests: held-out blanks.
    """
    training, held_out = (
        [text for text in read_documents(data / "pretraining" / name) if len(text.split()) > 100]
        for name in ("lm_en_5mb.txt", "lm_en_valid.txt")
    )
    for told in (True, False):
        key = f"blanks, {'told' if told else 'not told'}, {steps} steps"
        if key in finished():
            continue
        tokenizer = Tokenizer.train("unigram", training, 4_000, family="t5")
        seed_everything(0)
        config = dict(num_layers=2, num_heads=4, head_dim=32, hidden_dim=128, feed_forward_dim=512, dropout=0.0)
        config |= dict(vocabulary_size=tokenizer.vocabulary_size)
        model = Seq2SeqLM(T5(T5Config(**config)), tokenizer)
        model.compile(adamw(3e-3, warmup=steps // 10, steps=steps, weight_decay=0.0))
        begin = time.process_time()
        sources, answers, _ = blanks_of(training, 32 * steps, told, seed=0)
        batches = Seq2SeqBatches(sources, answers, tokenizer, layout=Seq2SeqLayout(48, 20), steps=steps)
        history = model.fit(batches, callbacks=[Progress(quiet=True)], verbose=0)
        sources, _, counts = blanks_of(held_out, tests, told, seed=1)
        drawn = model.generate(sources, max_new_tokens=32, sample=True, top_p=0.9, batch_size=100)
        found, counts = np.array([words_in(text) for text in drawn]), np.array(counts)
        finish(
            cell=key,
            loss=round(float(history.history["loss"][-1]), 3),
            exact=round(float((found == counts).mean()), 4),
            mean_error=round(float(np.abs(found - counts).mean()), 3),
            words={str(n): round(float(found[counts == n].mean()), 2) for n in COUNTS},
            seconds=round(time.process_time() - begin, 1),
        )
    for key, row in finished().items():
        if key.startswith("blanks"):
            words = "  ".join(f"{n}: {mean}" for n, mean in row["words"].items())
            print(f"{key:34} {row['exact']:.1%} exact, {row['mean_error']:.2f} words off; mean of words for {words}")


# === Names of two words ===

CITIES = tuple(
    tuple(name.split())
    for name in (
        *("new york", "los angeles", "san francisco", "hong kong"),
        *("las vegas", "tel aviv", "buenos aires", "kuala lumpur"),
    )
)
SENTENCES = (
    "we flew to {} in the spring",
    "my sister has lived in {} for years",
    "they say that {} never sleeps",
    "the train to {} was late again",
    "he wrote a book about {} and its people",
    "is the weather in {} always like this",
)


def city_documents(number: int, seed: int) -> list[str]:
    """Documents of eight sentences, a random city in each."""
    random = np.random.default_rng(seed)

    def line() -> str:
        return random.choice(SENTENCES).format(" ".join(CITIES[random.integers(len(CITIES))]))

    return ["\n".join(line() for _ in range(8)) for _ in range(number)]


def pair_places(token_ids: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The column where the last name of every row begins, -1 without one; pairs (n, 2) of token ids."""
    first, second = token_ids[:, :-1, None], token_ids[:, 1:, None]
    here = ((first == pairs[:, 0]) & (second == pairs[:, 1])).any(axis=-1)
    last = here.shape[1] - 1 - here[:, ::-1].argmax(axis=1)
    return np.where(here.any(axis=1), last, -1)


def masked_joint(model, x: dict, places: np.ndarray, pairs: np.ndarray, mask_id: int) -> np.ndarray:
    """float (b, n, n): what BERT gives to first word i and second word j, both hidden: a product."""
    rows = np.arange(len(places))
    ids = x["token_ids"].copy()
    ids[rows, places] = ids[rows, places + 1] = mask_id
    slots = np.stack([places, places + 1], axis=1).astype(np.int32)
    chances = _softmax(model.predict({**x, "token_ids": ids, "masked_positions": slots}, verbose=0))
    return chances[:, 0][:, pairs[:, 0], None] * chances[:, 1][:, None, pairs[:, 1]]


def permutation_joint(model, x: dict, places: np.ndarray, pairs: np.ndarray, special: np.ndarray) -> np.ndarray:
    """float (b, n, n): what a permutation LM gives to them, the second word behind the first: by the chain rule."""
    rows = np.arange(len(places))
    hidden = np.zeros(x["token_ids"].shape, bool)
    hidden[rows, places] = hidden[rows, places + 1] = True
    order = np.tile(np.arange(hidden.shape[1], dtype=np.int32), (len(rows), 1))  # first before second, as they stand
    queries, keys = order_ranks(hidden, special, order)
    slots = np.stack([places, places + 1], axis=1).astype(np.int32)
    x = {**x, "query_ranks": queries, "key_ranks": keys, "masked_positions": slots}
    joint = np.empty((len(rows), len(pairs), len(pairs)))
    for i, (first, _) in enumerate(pairs):
        ids = x["token_ids"].copy()
        ids[rows, places] = first
        chances = _softmax(model.predict({**x, "token_ids": ids}, verbose=0))
        joint[:, i] = chances[:, 0, first, None] * chances[:, 1, pairs[:, 1]]
    return joint


def shares(joint: np.ndarray) -> dict:
    """Means over rows: probability of names that exist, of mixed ones, and of anything else."""
    right = np.trace(joint, axis1=1, axis2=2)
    total = joint.sum(axis=(1, 2))
    found = {"right": right.mean(), "mixed": (total - right).mean(), "other": 1 - total.mean()}
    return {name: round(float(value), 4) for name, value in found.items()}


def _softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype("float64")
    return np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))


def names(steps: int = 800) -> None:
    """Trains both models on the same text and prints where their probability goes.

    Args:
        steps: updates of 32 rows of 32 tokens.
    """
    folder = WORK / "names"
    if not (folder / "held_out" / "corpus.json").exists():
        documents = city_documents(1_500, 0)
        tokenizer = Tokenizer.train("wordpiece", documents, 178, lowercase=True)  # every word, and nothing is left
        Corpus.write(folder / "training", documents, tokenizer)
        Corpus.write(folder / "held_out", city_documents(100, 1), tokenizer)
    training, unseen = (Corpus.open(folder / name) for name in ("training", "held_out"))
    tokenizer = training.tokenizer()
    pairs = np.array([tokenizer.encode([word], add_special_tokens=False)[0] for city in CITIES for word in city])
    pairs = pairs.reshape(-1, 2)  # every word is one token
    size = dict(vocabulary_size=tokenizer.vocabulary_size, num_layers=2, num_heads=2, hidden_dim=64, dropout=0.0)
    size |= dict(feed_forward_dim=256, initializer_range=0.08)
    for name in ("BERT", "XLNet"):
        key = f"names, {name}, {steps} steps"
        if key in finished():
            continue
        seed_everything(0)
        begin = time.process_time()
        if name == "BERT":
            model = MaskedLM(Bert(BertConfig(**size, attention_dropout=0.0)), tokenizer=tokenizer)
            kind, options = MaskedLMBatches, dict(mask_rate=0.15)
        else:
            model = PermutationLM(XLNet(XLNetConfig(**size)), tokenizer=tokenizer)
            kind, options = PermutationLMBatches, dict(reuse_length=0, partial_prediction=6)
        model.compile(adamw(2e-3, warmup=steps // 10, steps=steps))
        history = model.fit(kind(training, 32, 32, steps=steps, **options), callbacks=[Progress(quiet=True)], verbose=0)
        x, y, _ = kind(unseen, 64, 32, **options)[0]
        if name == "BERT":  # what was hidden comes back
            rows, slots = np.nonzero(x["masked_positions"] >= 0)
            x["token_ids"][rows, x["masked_positions"][rows, slots]] = y[rows, slots]
        places = pair_places(x["token_ids"], pairs)
        x = {key: value[places >= 0] for key, value in x.items()}
        if name == "BERT":
            joint = masked_joint(model, x, places[places >= 0], pairs, tokenizer.mask_id)
        else:
            special = np.isin(x["token_ids"], tokenizer.special_ids)
            joint = permutation_joint(model, x, places[places >= 0], pairs, special)
        loss = round(float(history.history["loss"][-1]), 3)
        finish(cell=key, loss=loss, rows=len(joint), **shares(joint), seconds=round(time.process_time() - begin, 1))
    for key, row in finished().items():
        if key.startswith("names"):
            print(f"{key:26} names that exist {row['right']:.1%}, mixed {row['mixed']:.1%}, other {row['other']:.1%}")


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict({"blanks": blanks, "names": names})
