"""Multi-task training: several tasks that share one encoder."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from ..checkpoints.arguments import Saved
from ..data.batches.batches import Batches
from ..data.batches.mixtures import mixing_rates
from ..data.batches.multi_task import TaskBatches
from ..data.text.json_files import shortened
from ..data.tokenizers.tokenizer import Tokenizer
from ..models.backbone import Backbone
from ..training.trainable import Trainable
from .multiple_choice import MultipleChoice
from .question_answerer import QuestionAnswerer
from .standard_losses import loss_on_logits
from .text_classifier import TextClassifier
from .token_classifier import TokenClassifier

CLASSES = {cls.__name__: cls for cls in (TextClassifier, TokenClassifier, QuestionAnswerer, MultipleChoice)}


@keras.saving.register_keras_serializable("kerasbert")
class MultiTask(Trainable):
    """MT-DNN: one encoder with a head for each task, trained on batches that belong to a single task each.

    Liu et al. 2019, arXiv 1901.11504. Every task is a separate model that shares the backbone:
    `model.tasks["mnli"].classify(pairs)` predicts with one task, and `model.tasks["mnli"].save_to_preset(path)` saves
    only that task. Ranking tasks, such as QNLI with several candidates for each question, use `MultipleChoice`, which
    has a softmax over the scores of the candidates (see `data.tasks.choices.ranking_examples`).

    The default loss weight of every task is 1. In a step, the heads of tasks that are not in the batch get zero
    gradients, as in the official code.

    Args:
        backbone: an encoder.
        tasks: {name: {"task": class, **arguments of the class}}. The class is one of `CLASSES` or its name. Default:
            TextClassifier.
        tokenizer: a `Tokenizer`, which is required for text inputs.

    Call:
        inputs: {"tasks": {name: a batch of that task}}.

    Returns: {name: outputs of that task's model}; tasks whose batch has no rows are omitted.

    Raises:
        ValueError: if there are no tasks, a name contains / or a dot, a class is unknown, or its arguments are invalid.

    Example:
        >>> from kerasbert.tasks import MultiTask
        >>> names = {"task": "TokenClassifier", "labels": ["O", "B-PER"]}
        >>> model = MultiTask.from_preset("bert_mini_en", tasks={"mood": {"labels": ["bad", "good"]}, "names": names})
        >>> texts, sentences = ["What a lovely day!", "I hated it."], [["Ann", "sat", "."], ["It", "rains", "."]]
        >>> data = {"mood": (texts, ["good", "bad"]), "names": (sentences, [["B-PER", "O", "O"], ["O", "O", "O"]])}
        >>> history = model.fit(data, batch_size=2, verbose=0)
        >>> len(model.tasks["names"].tag("Tom sat.")["labels"])
        3
    """

    SAVED_AS = {"tasks": Saved(dict[str, dict])}

    HEADS_UNDER = "tasks"  # prefix of the heads' weights in a saved folder

    def __init__(
        self, backbone: Backbone, tasks: Mapping[str, dict[str, Any]], tokenizer: Tokenizer | None = None, **kwargs: Any
    ):
        super().__init__(backbone, tokenizer, **kwargs)
        if not tasks or any("/" in name or "." in name for name in tasks):
            raise ValueError(
                f"`tasks` must have at least one entry, and names must not contain / or dots. Received: {list(tasks)}."
            )
        self.specs = {name: _complete(name, spec) for name, spec in tasks.items()}
        self.tasks = {}
        for name, (cls, arguments) in self.specs.items():
            self.tasks[name] = CLASSES[cls](backbone, tokenizer=tokenizer, name=name, **arguments)
        self.loss_weights = dict.fromkeys(self.tasks, 1.0)
        losses = {name: task.default_loss() for name, task in self.tasks.items()}
        self.task_losses = {
            name: loss
            if isinstance(loss, dict)
            else loss_on_logits(loss, getattr(self.tasks[name], "problem", "classes"))
            for name, loss in losses.items()
        }
        self.loss_trackers = {name: keras.metrics.Mean(name=f"{name}_loss") for name in self.tasks}
        self.task_metrics = {name: _renamed(name, task.default_metrics()) for name, task in self.tasks.items()}
        self.build_now()

    def trained_parts(self):
        return list(self.tasks.values())

    def example_inputs(self):
        return {"tasks": {name: task.example_inputs() for name, task in self.tasks.items()}}

    def call(self, inputs):
        # On TensorFlow, the number of rows is unknown here, so batches without rows are computed, too.
        batches = {name: x for name, x in inputs["tasks"].items() if x["token_ids"].shape[0] != 0}
        return {name: self.tasks[name](x) for name, x in batches.items()}

    # === Losses ===

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer | None = None,
        loss: None = None,
        loss_weights: Mapping[str, float] | None = None,
        metrics: None = None,
        **kwargs: Any,
    ) -> None:
        """Like Keras's `compile`, but the losses and metrics of the tasks are used.

        Args:
            optimizer: a Keras optimizer. Default: that of `fit` without `compile`.
            loss_weights: {name of a task: weight of its loss}. Default: 1.

        Raises:
            ValueError: if `loss` or `metrics` is given, or `loss_weights` has the name of no task.
        """
        unknown = set(loss_weights or {}) - set(self.tasks)
        if unknown or loss is not None or metrics is not None:
            raise ValueError(
                f"The tasks determine losses and metrics. The keys of `loss_weights` must be in {list(self.tasks)}. "
                f"Received: loss={loss!r}, metrics={metrics!r}, loss_weights={loss_weights!r}."
            )
        self.loss_weights = {**dict.fromkeys(self.tasks, 1.0), **(loss_weights or {})}
        super().compile(optimizer, loss_weights=dict(self.loss_weights), **kwargs)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        total = 0.0
        for name, outputs in y_pred.items():
            targets, weights = y[name], sample_weight[name]
            loss = self._task_loss(name, targets, outputs, weights)
            total = total + self.loss_weights[name] * loss
            counted = weights["start"] if isinstance(weights, dict) else weights
            self.loss_trackers[name].update_state(loss, sample_weight=ops.sum(counted))
            parts = (targets, outputs, weights)
            for target, metric in self.task_metrics[name]:
                metric.update_state(*(parts if target is None else (part[target] for part in parts)))
        if training:
            total = total + sum(0.0 * ops.sum(variable) for variable in self._idle(y_pred))
        return total

    def _task_loss(self, name, y, y_pred, weights):
        losses = self.task_losses[name]
        if isinstance(losses, dict):
            return sum(loss(y[key], y_pred[key], weights[key]) for key, loss in losses.items()) / len(losses)
        return losses(y, y_pred, weights)

    def _idle(self, active):
        """The trained variables that this step does not use. Keras on torch would warn that they have no gradients."""
        reached = {id(variable) for name in active for variable in self.tasks[name].trainable_variables}
        return [variable for variable in self.trainable_variables if id(variable) not in reached]

    # === Data ===

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int = 32,
        epochs: int = 1,
        exponent: float = 1.0,
        limit: int | None = None,
        validation_data: Any = None,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """Trains all tasks together.

        Args:
            x: {name: (x, y) or (x, y, sample_weight)} with texts or arrays that each task accepts; or `TaskBatches`.
            batch_size: number of rows per step.
            epochs: number of passes. The number of steps in a pass is the total number of batches of all tasks.
            exponent: determines how steps are divided among tasks: the share of a task is proportional to min(n, limit)
                ** exponent, where n is its number of batches. With exponent 1 and no limit, every batch is used once
                per pass. With a smaller exponent, small tasks are used more often.
            limit: maximum value of n in this formula, which reduces the share of large tasks. Default: no limit.
            validation_data: data in the same format as `x`.
            **kwargs: other arguments of `fit`, such as `shuffle`, `seed`, `callbacks` and `verbose`.

        Returns: the Keras `History`, with the loss and the metrics of each task.

        Raises:
            ValueError: if `y` is given, `x` does not have data for every task, or data do not fit their task.
        """
        if y is not None:
            raise ValueError("Targets must be passed together with their texts, as {name: (x, y)}. Received: y.")
        if not isinstance(x, Batches):
            self._check_names(x)
            if set(x) != set(self.tasks):
                raise ValueError(
                    f"`x` must have data for every task: {list(self.tasks)}. Received: data for {list(x)}."
                )
            seed, shuffle = kwargs.get("seed", 0), kwargs.get("shuffle", True)
            x = self.task_batches(x, batch_size, epochs, exponent, limit, seed, shuffle)
            kwargs = {"steps_per_epoch": len(x) // epochs, **kwargs}
        if isinstance(validation_data, dict):
            validation_data = self.task_batches(validation_data, batch_size)
        return super().fit(x, validation_data=validation_data, **kwargs)

    def evaluate(self, x: Any = None, batch_size: int = 32, **kwargs: Any) -> Any:
        """Like Keras's `evaluate`, with `x` in the format of `fit`.

        Raises:
            ValueError: if `x` has the name of no task, or data do not fit their task.
        """
        return super().evaluate(self.task_batches(x, batch_size) if isinstance(x, dict) else x, **kwargs)

    def predict(self, x: Any, batch_size: int = 32, **kwargs: Any) -> Any:
        """Computes the outputs of tasks: {name: inputs of the task} -> {name: outputs of the task}.

        Raises:
            ValueError: if `x` has the name of no task, or data do not fit their task.
        """
        self._check_names(x)
        return {name: self.tasks[name].predict(part, batch_size=batch_size, **kwargs) for name, part in x.items()}

    def task_batches(
        self,
        data: Mapping[str, Any],
        batch_size: int = 32,
        epochs: int = 1,
        exponent: float = 1.0,
        limit: int | None = None,
        seed: int = 0,
        shuffle: bool = False,
    ) -> TaskBatches:
        """Returns the `TaskBatches` that `fit` creates from {name: (x, y)}."""
        self._check_names(data)
        parts = {}
        for name, (x, y, *weights) in data.items():
            given = self.tasks[name].data_of(x, y, weights[0] if weights else None)
            parts[name] = self.tasks[name]._batches(*given, batch_size, 1, seed, shuffle)
        sizes = {name: len(part) for name, part in parts.items()}
        rates = dict(zip(parts, mixing_rates(list(sizes.values()), exponent, limit), strict=True))
        return TaskBatches(parts, rates, batch_size, sum(sizes.values()) * epochs, seed)

    def _check_names(self, data):
        if not isinstance(data, dict) or not data or not set(data) <= set(self.tasks):
            received = list(data) if isinstance(data, dict) else type(data).__name__
            raise ValueError(f"Data must be a dict whose keys are in {list(self.tasks)}. Received: {received}.")

    def check_batch(self, x, y=None, sample_weight=None):
        for name, rows in x["tasks"].items():
            parts = (part and part[name] for part in (y, sample_weight))
            if rows["token_ids"].shape[0] != 0:
                self.tasks[name].check_batch(rows, *parts)

    # === Configuration ===

    def arguments(self):
        return {"tasks": {name: {"task": type(task).__name__, **task.arguments()} for name, task in self.tasks.items()}}

    def variant(self):
        return "Backbone"

    @classmethod
    def check_saved(cls, arguments, path):
        super().check_saved(arguments, path)
        for name, spec in (arguments.get("tasks") or {}).items():
            task = CLASSES.get(str(spec.get("task", "TextClassifier")))
            if task is not None:
                task.check_saved(spec, f"{path}, task {shortened(name)}")

    @classmethod
    def needs_pooler(cls, family, settings):
        specs = (_complete(name, spec) for name, spec in settings.get("tasks", {}).items())
        return any(CLASSES[name].needs_pooler(family, arguments) for name, arguments in specs)


def _complete(name, spec):
    """Returns (class name, constructor arguments) of a task."""
    arguments = dict(spec)
    cls = arguments.pop("task", "TextClassifier")
    cls = cls if isinstance(cls, str) else cls.__name__
    if cls not in CLASSES:
        raise ValueError(f"A task must be one of {', '.join(CLASSES)}. Received for {name!r}: {cls!r}.")
    return cls, arguments


def _renamed(name, metrics):
    """Returns [(key of the target or None, metric)], and prefixes the name of each metric with the task's name."""
    found = []
    for target, several in (metrics if isinstance(metrics, dict) else {None: metrics}).items():
        for metric in several:
            new_name = "_".join(part for part in (name, target, metric.name) if part)
            found.append((target, type(metric).from_config({**metric.get_config(), "name": new_name})))
    return found
