"""Fine-tunings: one model is trained for each seed, evaluated, and the first one saved with its answers."""

import hashlib
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np

from kerasbert.backend import seed_everything
from kerasbert.checkpoints.model_card import describe
from kerasbert.checkpoints.saves import replaced_model
from kerasbert.retrieval import Loss
from kerasbert.training import Checkpoints, RunLog, StopOnNaN, adamw, fine_tuning_rate, plot_curves, read_log
from kerasbert.training.schedules import LORA_FACTOR

from ..reading.examples import Examples
from ..reading.tables import ColumnsRead
from .adapting import Lora
from .losses import KINDS, shown
from .model_card import Measured, public
from .outputs import counted, write_answers
from .reports import BestWeights, EpochProgress, HeldOut, plan_reports
from .task_models import batches_of, cut_texts, new_model, score
from .task_options import Generation, Optimizer, Start, Training
from .text_to_text import Wording
from .trackers import Tracker, tracked

FEW_UPDATES = 50  # with fewer, a new head has hardly been trained
# Of an earlier fine-tuning in the same folder; they would not describe the new model.
EARLIER = ("metrics.json", "README.md", "predictions*.jsonl", "adapter_config.json", "adapter_model.safetensors")
EARLIER += ("adapter/adapter_config.json", "adapter/adapter_model.safetensors")


@dataclass(frozen=True)
class TaskData:
    """The examples of a fine-tuning.

    Args:
        kind: kind of the examples, which determines the class of the model; "sequences" for text-to-text models.
        labels: the names of the labels, or [].
        training: the examples to train on.
        validation: the examples to validate on during training, or None.
        testing: {name: held-out examples}.
        num_examples: number of the examples to train and to validate on, if the latter are a tenth of them.
        wording: the form of examples for a text-to-text model, or None.
        objective: the loss of an embedder or a reranker, or None.
        columns: the columns of the table of `training`, or None if there are none.
        repeated: {name: number of the held-out examples whose inputs are also trained on}.
    """

    kind: str
    labels: list[str]
    training: Examples
    validation: Examples | None
    testing: dict[str, Examples]
    num_examples: int
    wording: Wording | None = None
    objective: Loss | None = None
    columns: ColumnsRead | None = None
    repeated: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FineTuning:
    """What all runs of a fine-tuning have in common.

    Args:
        model: folder of the pretrained model, or hf://org/name.
        output: folder of the result.
        task: name of the task.
        data: the examples.
        start, training, optimizer, generation, lora: see `finetune`.
    """

    model: str
    output: Path
    task: str
    data: TaskData
    start: Start
    training: Training
    optimizer: Optimizer
    generation: Generation
    lora: Lora

    @property
    def writing(self) -> dict:
        """The options of `generate`, for a model that generates text. Those of the pretrained model do not apply."""
        if self.data.kind != "sequences":
            return {}
        return {"max_new_tokens": self.generation.max_new_tokens or 64, "num_beams": self.generation.num_beams or 1}

    def recipe(self, model: keras.Model) -> dict:
        """The settings, for metrics.json and the model card."""
        start, training, optimizer = self.start, self.training, self._optimizer(model)
        return dict(
            model=self.model, task=self.task, epochs=training.epochs, batch_size=training.batch_size,
            **asdict(optimizer), max_length=start.max_length, patience=training.patience,
            keep_best=training.keep_best, balanced=training.balanced, text_to_text=start.text_to_text,
            from_scratch=start.from_scratch, accumulation=training.accumulation if training.accumulation > 1 else None,
            **({} if self.lora.rank is None else {"lora": asdict(self.lora)}), **self.writing,
            **({} if self.data.objective is None else {"loss": shown(self.data.objective)}),
        )  # fmt: skip

    def run(self, seed: int, log: Tracker | None = None) -> tuple[keras.Model, dict[str, float]]:
        """Trains a model, and sends its metrics to a tracker.

        Returns: the model, and its seed, last training loss and, if the training `chooses` weights, number of epochs.
        """
        data, training, first = self.data, self.training, seed == self.training.seeds[0]
        seed_everything(seed)
        model = self._new_model()
        batches = batches_of(
            model, data.kind, data.training, data.wording, training.balanced, training.batch_size, training.epochs, seed
        )
        batches, interval, validated = plan_reports(batches, training.epochs, data.validation, training.validate_every)
        updates, accumulation = len(batches), training.accumulation
        batches, interval = batches.accumulated(accumulation), interval * accumulation
        self._compile(model, updates, first)
        if first and (cut := cut_texts(model, data.kind, data.training, data.wording)):
            print(f"{cut} (--max-length)")
        if updates < FEW_UPDATES and first:
            print(
                f"Only {counted(updates, 'update')}. If scores are low, use more --epochs or a higher --learning-rate."
            )
        per_epoch = len(batches) // training.epochs
        watched = None
        if data.validation is not None:
            watched = batches_of(
                model, data.kind, data.validation, data.wording, batch_size=training.batch_size, shuffle=False
            )
        callbacks = self._callbacks(seed, len(batches), per_epoch, validated, per_epoch // interval)
        if training.checkpoints:
            callbacks.append(Checkpoints(self.checkpoints / f"seed_{seed}", keep=1, recipe=self._identity(model)))
        with tracked(log, self.output / "logs", f"{self.output.name} seed {seed}", self.recipe(model)) as more:
            history = model.fit(
                batches,
                steps_per_epoch=interval,
                callbacks=[*callbacks, *more],
                validation_data=watched,
                validation_freq=validated,
            )
        # Nothing is left to train after an interruption of the evaluation.
        losses = history.history.get("loss") or [row["loss"] for row in read_log(self.logs_of(seed))]
        scores = {"seed": seed, "train_loss": float(losses[-1])}
        return model, scores | ({"epochs": -(-len(losses) * interval // per_epoch)} if training.chooses else {})

    def _new_model(self) -> keras.Model:
        start, data = self.start, self.data
        options = dict(load_weights=not start.from_scratch, dtype=start.dtype, objective=data.objective)
        model = new_model(data.kind, self.model, data.labels, start.max_length, **options)
        if self.writing:
            model.generation = self.writing
        if start.less_memory:
            model.backbone.rematerialize()
        self.lora.start(model)
        return model

    def _optimizer(self, model: Any) -> Optimizer:
        """The rates, with a default learning rate that fits the model."""
        usual = model.default_learning_rate if self.data.kind in KINDS else None  # of embedders and rerankers
        default = usual or fine_tuning_rate(model.backbone.config.hidden_dim)
        default *= 1 if self.lora.rank is None else LORA_FACTOR
        return replace(self.optimizer, learning_rate=self.optimizer.learning_rate or default)

    def _compile(self, model: keras.Model, updates: int, first: bool) -> None:
        rates = self._optimizer(model)
        if first and self.optimizer.learning_rate is None:
            print(f"learning rate {rates.learning_rate:g}, the default for this model")
        options = dict(warmup=round(rates.warmup_share * updates), weight_decay=rates.weight_decay)
        options |= dict(layer_decay=rates.layer_decay, accumulation=self.training.accumulation)
        model.compile(adamw(rates.learning_rate, steps=updates, **options))

    def _callbacks(
        self, seed: int, steps: int, per_epoch: int, validated: list[int], reports_per_epoch: int
    ) -> list[keras.callbacks.Callback]:
        data, training, scored = self.data, self.training, validated
        callbacks, examples = [StopOnNaN()], data.validation
        if data.kind in KINDS:  # a search takes long
            examples = next(iter(data.testing.values()), None)
            scored = range(reports_per_epoch, reports_per_epoch * training.epochs + 1, reports_per_epoch)
        if examples is not None and data.kind != "sequences":  # generating answers takes long
            callbacks.append(HeldOut(lambda model: score(model, examples, training.batch_size)[0], scored))
        callbacks.append(RunLog(self.logs_of(seed), steps_per_pass=per_epoch))
        callbacks.append(EpochProgress(steps, per_epoch, training.epochs))
        if training.chooses:
            patience = training.patience
            reports = None if patience is None else patience * len(validated) // training.epochs
            callbacks.append(BestWeights(reports, reports_per_epoch))
        return callbacks

    def _identity(self, model: keras.Model) -> dict:
        """What a run that continues must have in common with the one that was interrupted."""
        digest, training = hashlib.sha256(), self.data.training
        for value in (*training.x, *training.y):
            digest.update(repr(value).encode())
        return self.recipe(model) | {"examples": len(training), "sha256 of examples": digest.hexdigest()}

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints of all seeds."""
        return self.output / "checkpoints"

    def remove_checkpoints(self) -> None:
        """Removes the checkpoints of runs that are complete."""
        if self.training.checkpoints:
            shutil.rmtree(self.checkpoints)

    def logs_of(self, seed: int) -> Path:
        """The folder of the log of a run."""
        return self.output / "logs" / f"seed_{seed}"

    def measure(self, model: keras.Model) -> tuple[dict[str, dict], dict[str, list]]:
        """Evaluates a model on all held-out examples. Returns ({name: scores}, {name: answers})."""
        measure = self.data.wording.score if self.data.wording else score
        scores, answers = {}, {}
        for name, examples in self.data.testing.items():
            scores[name], answers[name] = measure(model, examples, self.training.batch_size, **self.writing)
        return scores, answers

    def save(self, model: keras.Model, answers: dict[str, list], files: dict[str, Path]) -> None:
        """Saves a model with its answers to the held-out examples, and draws its curves."""
        with replaced_model(self.output, also=EARLIER) as folder:
            self.lora.save(model, folder, self.model)
            for name, examples in self.data.testing.items():
                write_answers(folder / files[name].name, examples, answers[name])
        plot_curves(self.logs_of(self.training.seeds[0]))

    def describe(self, model: keras.Model) -> dict:
        """Describes the model for its card."""
        base = None if self.lora.rank is None or self.lora.merge else public(self.model)
        return describe(model, self.data.kind not in KINDS and isinstance(self.data.training.x[0], tuple), base)

    def measured(self, sources: dict[str, str], scores: dict[str, dict], answers: dict[str, list]) -> list[Measured]:
        """What the model card says about the held-out examples."""
        repeated = self.data.repeated
        return [
            Measured(str(sources[name]), scores[name], len(one), one.y, plain(answers[name]), repeated.get(name, 0))
            for name, one in self.data.testing.items()
        ]


def flat(scores: dict[str, dict]) -> dict[str, float]:
    """{"de": {"f1": 0.5}} -> {"de_f1": 0.5}; the name "" is left out."""
    return {f"{name}_{key}" if name else key: value for name, found in scores.items() for key, value in found.items()}


def plain(answers: list) -> list:
    """Drops the scores of answers."""
    return [answer["answer"] if isinstance(answer, dict) else answer for answer in answers]


def summary(runs: list[dict]) -> dict[str, float]:
    """Computes the mean and standard deviation of every score over the seeds."""
    names = [name for name in runs[0] if name != "seed"]
    means = {name: float(np.mean([run[name] for run in runs])) for name in names}
    deviations = {f"{name}_deviation": float(np.std([run[name] for run in runs])) for name in names}
    return means | (deviations if len(runs) > 1 else {})
