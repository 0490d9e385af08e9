"""A small Transformer on Multi30k, German to English: BLEU by greedy decoding, by beams, and of averaged checkpoints.

    python -m benchmarks.studies.multi30k.run train --data multi30k --minutes 30
    python -m benchmarks.studies.multi30k.run score --data multi30k --minutes 30

The minutes are those of two cores: half of the processor time that training takes, so that other programs on the
machine do not count. `train` goes on from its checkpoint until they are spent, whatever interrupts it; `score`
translates the test set of 2016 with the latest checkpoint and with the mean of the last ones, and appends a row to
RESULTS.
"""

import json
import time
from pathlib import Path

import kerasbert  # noqa: F401  # isort: skip  # before keras, for which it picks the backend
import keras
import tyro

from kerasbert.backend import seed_everything
from kerasbert.data import Seq2SeqBatches, Seq2SeqLayout, Tokenizer
from kerasbert.models import Transformer, TransformerConfig
from kerasbert.objectives import Seq2SeqLM
from kerasbert.training import Checkpoints, InverseSquareRoot, Progress, RunLog, adamw, read_log

RESULTS = Path(__file__).with_name("rows.jsonl")
RUNS = Path("runs/multi30k")
VOCABULARY = 4_000
CONFIG = dict(num_layers=3, num_heads=4, hidden_dim=256, feed_forward_dim=512, dropout=0.2, norm_first=True, eos_id=1)
BATCH, BUCKETS, WARMUP = 64, 10, 1_000
STEPS = 100_000  # more than fit into the minutes
INTERVAL = 100  # steps from checkpoint to checkpoint; of the last KEPT ones the mean is taken
KEPT = 5


def pairs(data: Path, part: str) -> tuple[list[str], list[str]]:
    """German and English sentences, aligned."""
    return tuple((data / f"{part}.{language}").read_text(encoding="utf-8").splitlines() for language in ("de", "en"))


def make_tokenizer(data: Path) -> Tokenizer:
    """One vocabulary of both languages, learned once."""
    folder = RUNS / "tokenizer"
    if not (folder / "tokenizer.json").exists():
        texts = [sentence for side in pairs(data, "train") for sentence in side]
        Tokenizer.train("unigram", texts, vocabulary_size=VOCABULARY, family="t5").save(folder)
    return Tokenizer.load(folder)


def make_model(tokenizer: Tokenizer) -> Seq2SeqLM:
    seed_everything(0)
    config = TransformerConfig(vocabulary_size=tokenizer.vocabulary_size, **CONFIG)
    model = Seq2SeqLM(Transformer(config), tokenizer, label_smoothing=0.1)
    rate = InverseSquareRoot(config.hidden_dim, WARMUP)
    model.compile(adamw(rate, weight_decay=0.0, beta_2=0.98, epsilon=1e-9, clip_norm=None))
    return model


class Deadline(keras.callbacks.Callback):
    """Stops a run at the end of the epoch in which its time on two cores is spent."""

    def __init__(self, path: Path, minutes: float):
        super().__init__()
        self.path, self.limit = path, minutes * 60
        self.spent = json.loads(path.read_text()) if path.exists() else 0.0
        self.latest = time.process_time()

    def on_epoch_end(self, epoch, logs=None):
        now = time.process_time()
        self.spent, self.latest = self.spent + (now - self.latest) / 2, now
        self.path.write_text(json.dumps(self.spent))
        self.model.stop_training = self.spent >= self.limit


def folder_of(minutes: float) -> Path:
    return RUNS / f"{minutes:g}_minutes"


def train(data: Path, minutes: float = 30.0) -> None:
    """Trains until the minutes are spent; their count goes on after an interruption."""
    folder = folder_of(minutes)
    tokenizer = make_tokenizer(data)
    model = make_model(tokenizer)
    layout = Seq2SeqLayout(num_buckets=BUCKETS)
    batches = Seq2SeqBatches(*pairs(data, "train"), tokenizer, BATCH, layout, steps=STEPS)
    held_out = Seq2SeqBatches(*pairs(data, "val"), tokenizer, BATCH, layout, seed=None)
    checkpoints = Checkpoints(folder, keep=KEPT, recipe={"config": CONFIG, "batches": batches.recipe()})
    deadline = Deadline(folder / "seconds.json", minutes)
    if deadline.spent >= deadline.limit:
        print(f"{deadline.spent:.0f} s are spent. Use `score`.")
        return
    deadline.latest = time.process_time()
    callbacks = [checkpoints, deadline, RunLog(folder), Progress(len(batches))]
    model.fit(batches, validation_data=held_out, steps_per_epoch=INTERVAL, callbacks=callbacks)


def score(data: Path, minutes: float = 30.0) -> None:
    """Translates the test set four ways and prints BLEU, that of sacrebleu with its signature."""
    import sacrebleu

    folder = folder_of(minutes)
    model = make_model(make_tokenizer(data))
    checkpoints = Checkpoints(folder, keep=KEPT)
    step = checkpoints.restore(model)
    sources, references = pairs(data, "test_2016_flickr")
    bleu, scorer = {}, sacrebleu.metrics.BLEU()
    for weights in ("latest", "averaged"):
        if weights == "averaged":
            checkpoints.average(model, min(KEPT, step // INTERVAL))
        for way, beams in (("greedy", {}), ("beam 4", dict(num_beams=4, length_penalty=0.6))):
            start = time.perf_counter()
            answers = model.generate(sources, max_new_tokens=64, batch_size=100, **beams)
            found = scorer.corpus_score(answers, [references])
            bleu[f"{weights}, {way}"] = round(found.score, 2)
            print(f"{weights}, {way}: {found} in {time.perf_counter() - start:.0f} s", flush=True)
    model.save_to_preset(folder / "averaged")
    log = read_log(folder)[-1]
    row = {
        "cell": f"{minutes:g} minutes",
        "parameters": model.count_params(),
        "steps": step,
        "passes": round(step * BATCH / len(pairs(data, "train")[0]), 1),
        "seconds": round(json.loads((folder / "seconds.json").read_text())),
        "tokens": log["tokens"],
        "val_perplexity": round(log["val_perplexity"], 3),
        "bleu": bleu,
        "signature": str(scorer.get_signature()),
        "backend": keras.backend.backend(),
    }
    with open(RESULTS, "a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row))


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict({"train": train, "score": score})
