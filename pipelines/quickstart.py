"""An end-to-end example that takes six minutes: tokenizer, pretraining, a saved model, fine-tuning, predictions.

The text is the English documentation in every Python installation (see `standard_library.py`). The task is to classify
which area of the library a docstring documents, with 300 labeled examples. A quarter of the modules is held out, and
used neither in pretraining nor in fine-tuning.

python -m pipelines.quickstart
"""

import random
import shutil
import time
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from kerasbert.backend import seed_everything
from kerasbert.data import Corpus, Tokenizer, Tokens
from kerasbert.objectives import MaskedLM
from kerasbert.training import Progress, adamw

from .command_line.command import Command
from .pretrain import train
from .reading.standard_library import AREAS, Docstring, docstrings, held_out_modules, paragraphs, topics
from .recipes.data import MaskedLMData, Phase
from .recipes.models import Pretraining
from .recipes.optimizers import AdamW, WarmupDecay
from .recipes.recipe import Recipe
from .runs.task_models import new_model

RECIPE = Recipe(
    "quickstart",
    # Changes for a run of a few minutes: no dropout; initial weights four times as large as BERT's, because BERT is six
    # times as wide and the loss would otherwise stay on a plateau; and twice BERT's mask rate, to learn more from each
    # row.
    Pretraining("bert_tiny", dict(max_length=64, dropout=0.0, attention_dropout=0.0, initializer_range=0.08)),
    MaskedLMData(noise=Tokens(0.3)),
    (Phase(1_400, batch_size=32, length=64),),
    AdamW(WarmupDecay(3e-3, warmup=100), weight_decay=0.01, global_clipnorm=1.0, epsilon=1e-6),
)
VOCABULARY = 2_000
LABELED, TESTED_PER_AREA = 300, 100
MASKED = (
    "Return the [MASK] of the list.",
    "Raise an [MASK] if the file does not exist.",
    "Read a line from the [MASK].",
    "If the argument is omitted, the [MASK] value is used.",
)


def quickstart(output: Path = Path("saved_models/quickstart"), work: Path = Path("runs/quickstart"), seeds: int = 3):
    """Trains a tokenizer, pretrains a small BERT, saves it, fills masks, and compares four classifiers.

    Args:
        output: folder for the pretrained model.
        work: folder for the corpora, logs and checkpoints. Its contents are removed first.
        seeds: number of repetitions, each with different labeled examples.
    """
    clock = time.perf_counter()
    shutil.rmtree(work, ignore_errors=True)

    found = docstrings()
    hidden = held_out_modules(found)
    seen = [docstring for docstring in found if docstring.module not in hidden]
    held_out = [docstring for docstring in found if docstring.module in hidden]
    say(clock, f"{len(found):,} docstrings, {len(held_out):,} of them in held-out modules, and {len(topics())} topics")
    documents = [*modules(seen), *map(paragraphs, topics())]
    tokenizer = Tokenizer.train("wordpiece", documents, vocabulary_size=VOCABULARY, lowercase=True)
    corpus = Corpus.write(work / "corpus", documents, tokenizer, sources=["docstrings and topics of Python"])
    unseen = Corpus.write(work / "held_out", modules(held_out), tokenizer)
    say(clock, f"a corpus of {corpus.num_tokens:,} tokens, {unseen.num_tokens:,} more to evaluate on")

    results = train(RECIPE, corpus, work / "run", unseen, held_out_steps=20, report_every=350, output=output)
    loss = np.log(results["perplexity"])
    say(
        clock,
        f"pretraining loss {loss:.2f} nats per token, {corpus.unigram_entropy() - loss:.2f} below the unigram entropy; "
        f"on held-out modules {results['below_unigram']:.2f} below theirs",
    )
    fill_masks(output)

    accuracies = defaultdict(list)
    tested = draw(held_out, TESTED_PER_AREA, random.Random(0))
    for seed in range(seeds):
        labeled = draw(seen, -(-LABELED // len(AREAS)), random.Random(seed))[:LABELED]
        accuracies["majority class"].append(majority(labeled, tested))
        accuracies["bag of words, logistic regression"].append(bag_of_words(labeled, tested))
        accuracies["BERT from scratch"].append(bert(output, labeled, tested, seed, pretrained=False))
        accuracies["BERT pretrained"].append(bert(output, labeled, tested, seed, pretrained=True))
        say(clock, f"seed {seed}: " + ", ".join(f"{name} {values[-1]:.2f}" for name, values in accuracies.items()))
    print(
        f"\nWhich of {len(AREAS)} areas does a docstring document? {LABELED} labeled examples, accuracy on "
        f"{len(tested)} docstrings of held-out modules, mean and range of {seeds} seeds\n"
    )
    for name, values in accuracies.items():
        print(f"  {name:35} {np.mean(values):.3f}   {min(values):.3f} to {max(values):.3f}")
    say(clock, f"done; the pretrained model is in {output}")
    return accuracies


def say(clock: float, text: str) -> None:
    print(f"[{time.perf_counter() - clock:4.0f} s] {text}", flush=True)


def modules(found: list[Docstring]) -> list[str]:
    """Creates one document per module. Docstrings keep their order, because adjacent ones are related."""
    grouped = defaultdict(list)
    for docstring in found:
        grouped[docstring.module].append(paragraphs(docstring.text))
    return ["\n".join(texts) for texts in grouped.values()]


def draw(found: list[Docstring], per_area: int, generator: random.Random) -> list[Docstring]:
    """Draws `per_area` docstrings from each area (or all if it has fewer), in random order."""
    chosen = []
    for area in AREAS:
        of_area = [docstring for docstring in found if docstring.area == area]
        chosen += generator.sample(of_area, min(per_area, len(of_area)))
    generator.shuffle(chosen)
    return chosen


def fill_masks(folder: Path) -> None:
    """Prints the predictions of the saved model for masks in a few sentences."""
    answers = MaskedLM.from_preset(folder).fill_mask(list(MASKED), top_k=4)
    for text, (candidates,) in zip(MASKED, answers, strict=True):
        print(f"    {text:60}" + ", ".join(f"{c['token']} {c['score']:.2f}" for c in candidates))


def majority(labeled: list[Docstring], tested: list[Docstring]) -> float:
    most_common = Counter(docstring.area for docstring in labeled).most_common(1)[0][0]
    return float(np.mean([docstring.area == most_common for docstring in tested]))


def bag_of_words(labeled: list[Docstring], tested: list[Docstring]) -> float:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(TfidfVectorizer(sublinear_tf=True), LogisticRegression(C=10.0, max_iter=1_000))
    model.fit([d.text for d in labeled], [d.area for d in labeled])
    return float(model.score([d.text for d in tested], [d.area for d in tested]))


def bert(folder: Path, labeled: list[Docstring], tested: list[Docstring], seed: int, pretrained: bool) -> float:
    """Fine-tunes the saved model, or the same model with random weights, and returns its accuracy."""
    seed_everything(seed)
    classifier = new_model("classes", folder, sorted(AREAS), load_weights=pretrained, classifier_dropout=0.1)
    epochs, batch_size = 12, 20
    steps = -(-len(labeled) // batch_size) * epochs
    classifier.compile(adamw(5e-4, warmup=steps // 10, steps=steps))
    texts, labels = zip(*((paragraphs(d.text), d.area) for d in labeled), strict=True)
    classifier.fit(
        list(texts), list(labels), batch_size=batch_size, epochs=epochs, seed=seed, callbacks=[Progress(quiet=True)]
    )
    logits = classifier.predict([paragraphs(d.text) for d in tested], batch_size=100, verbose=0)
    return float((logits.argmax(axis=-1) == classifier.encode_labels([d.area for d in tested])).mean())


main = Command(quickstart)

if __name__ == "__main__":
    main()
