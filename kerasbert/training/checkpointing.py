"""Checkpoints from which a run resumes exactly.

A checkpoint consists of two files: `step_00001000.safetensors` with all variables, and `step_00001000.json` with a
description (step, backend, versions, recipe, size, checksum). The description is written last, and a checkpoint without
it is ignored. If weights are divided among devices, a folder `step_00001000` takes the place of the first file.
"""

import errno
import json
import math
import os
import re
import shutil
import sys
import warnings
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

import keras
import numpy as np
import safetensors
import safetensors.numpy

from ..backend.hosts import check_same, is_first_process, together, write_path
from ..backend.random_state import get_random_state, set_random_state
from ..backend.sharded_arrays import is_divided
from ..data.text.folders import folder_at
from . import checkpoint_files
from .checkpoint_files import ERRORS, SHARDED, ShardedStates, is_local, not_finite, plain, publish, remove_folder
from .counting import RunCallback, TrainingDiverged
from .run_state import OtherRun, as_array, assign_all, itemsize, metric_variables, run_variables, stable_name


class Checkpoints(RunCallback):
    """Saves the whole state of a run at the end of every epoch, and restores it bit-exactly.

    The state is every variable of the model (weights, memory, the seed generators of dropout) and of the optimizer in
    creation order, the step, torch's random generators, and the rows of the run's log. Metrics are reset in every
    epoch, so only `save_within_epoch` saves them. Its checkpoint is deleted when the next one is written.

    If several processes train one model together, all need the folder. If each process has all weights, the first one
    writes and all read. If variables are divided among devices, each process writes its parts while the next steps are
    computed, with `orbax.checkpoint`. Both kinds of checkpoints can be resumed with any number of processes and
    devices.

    Args:
        folder: the folder of the run, the same for all of its processes; created if missing. For variables that are
            divided among devices, also an address such as gs://bucket/run.
        keep: number of newest checkpoints to keep. None keeps all.
        recipe: a JSON-serializable dict that identifies the run. Restoring a checkpoint that was saved with a different
            recipe is an error.
        earlier: earlier recipes of this run, before it was continued with `recipe`. Checkpoints with these recipes are
            accepted, too.

    Attributes:
        log: the run's `RunLog`, whose rows are saved in every checkpoint.
        saved_log: the `log.state()` of the restored checkpoint, or None.

    Raises:
        ValueError: if `keep` is below 1. In `fit`, if the folder has checkpoints of a run with another recipe, backend
            or model, all are damaged, or the model was not restored from them.
        OSError: in `fit`, if a checkpoint cannot be written, or the disk has too little space for one.
        TrainingDiverged: in `fit`, if a variable is not finite. This state is not saved.

    Example:
        >>> from kerasbert.data import Corpus, MaskedLMBatches
        >>> from kerasbert.objectives import MaskedLM
        >>> from kerasbert.training import Checkpoints
        >>> model = MaskedLM.from_preset("bert_mini_en")
        >>> corpus = Corpus.in_memory(["The cat sat on the mat.", "A dog ran home."] * 8, model.tokenizer)
        >>> batches = MaskedLMBatches(corpus, batch_size=4, length=16, steps=2)
        >>> history = model.fit(batches, steps_per_epoch=1, callbacks=[Checkpoints("runs/cats")], verbose=0)
        >>> again = MaskedLM.from_preset("bert_mini_en")
        >>> history = again.fit(batches, steps_per_epoch=1, callbacks=[Checkpoints("runs/cats")], verbose=0)
        >>> history.epoch  # nothing is left to do
        []
    """

    def __init__(
        self,
        folder: str | PathLike,
        keep: int | None = 3,
        recipe: dict[str, Any] | None = None,
        earlier: Iterable[dict[str, Any]] = (),
    ):
        super().__init__()
        if keep is not None and keep < 1:
            raise ValueError(f"`keep` must be at least 1, or None for all checkpoints. Received: keep={keep}.")
        folder_at(folder)  # not empty
        self.folder, self.keep, self.recipe, self.earlier = write_path(folder), keep, recipe, tuple(earlier)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._damaged = set()
        self._resumable = not self._steps()
        self._random_state = None
        self._metrics = {}  # metrics that were saved in the middle of an epoch, kept until the epoch resumes
        self._within_epoch = None  # step of the checkpoint that the next one replaces
        self._sharded = None  # the `ShardedStates`, once there are any
        self.log = self.saved_log = None

    @property
    def newest(self) -> Path | None:
        """Path of the newest checkpoint that is complete and not known to be damaged, or None."""
        good = self._good_steps()
        return self._path(good[-1]) if good else None

    def restore(self, model: keras.Model) -> int:
        """Loads the newest intact checkpoint into `model` and its optimizer.

        Returns: the step of the checkpoint, or 0 if there is none.

        Raises:
            ValueError: if the model is not built and compiled, all checkpoints are damaged, or they belong to a run
                with another recipe, backend or model.
        """
        if getattr(model, "optimizer", None) is None or not model.built:
            raise ValueError(
                "Only a built and compiled model can be restored: its variables must exist. "
                f"Received: built={model.built}, optimizer={getattr(model, 'optimizer', None)}."
            )
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        self._complete()
        step, record, state = self._newest_intact(run_variables(model))
        check_same("newest checkpoint", step)
        if state is not None:
            self._random_state, self._metrics = (
                {key.removeprefix(group): state.pop(key) for key in list(state) if key.startswith(group)}
                for group in ("random/", "metrics/")
            )
            assign_all(run_variables(model), state, self._path(step))
            self._saved_start = record.get("within_epoch")
            self._within_epoch = None if self._saved_start is None else step
        self.saved_log = record.get("log")
        self.step = model.initial_step = step
        self._resumable = True
        return step

    def average(self, model: keras.Model, last: int = 5) -> list[int]:
        """Sets the weights of `model` to their mean over the newest checkpoints (Vaswani et al. 2017, section 6.1).

        A weight with the values 1, 2 and 6 in three checkpoints -> 3

        Args:
            model: the built model of the run; its optimizer is not changed.
            last: how many checkpoints to average; `keep` must be at least as large.

        Returns: the steps of these checkpoints.

        Raises:
            ValueError: if `last` is below 1 or above the number of checkpoints.
        """
        self._complete()
        steps = self._good_steps()[-last:]
        if last < 1 or len(steps) < last:
            raise ValueError(
                f"`last` must lie between 1 and the number of checkpoints. Received: last={last}, but {self.folder} "
                f"holds {len(steps)}. Use a smaller `last`, or Checkpoints(folder, keep=...) with a larger `keep`."
            )
        variables = {
            stable_name(key): variable for key, variable in run_variables(model).items() if key.startswith("model/")
        }
        sums = {}
        for step in steps:
            for key, x in self._read(step, run_variables(model))[1].items():
                if key.startswith("model/") and not np.issubdtype(x.dtype, np.integer):
                    sums[stable_name(key)] = sums.get(stable_name(key), 0) + x.astype("float64") / last
        for key, mean in sums.items():
            variables[key].assign(mean.astype(variables[key].dtype))
        return steps

    def set_model(self, model):
        # Runs before `on_train_begin` of all callbacks, whatever their order.
        super().set_model(model)
        model.initial_step = self.step

    def on_train_begin(self, logs=None):
        plain(self.recipe)
        if not self._resumable:
            raise ValueError(
                f"The folder {self.folder} already holds checkpoints of a run, up to step {self._steps()[-1]}, but the "
                "model was not restored from them. Call `restore(model)` before `fit`, or use another folder."
            )
        super().on_train_begin(logs)
        if is_local(self.folder):
            self._check_disk()
        if self._random_state is None:
            self._random_state = get_random_state()

    def on_train_end(self, logs=None):
        self._complete()

    def _check_disk(self):
        needed = sum(math.prod(v.shape) * itemsize(v) for v in run_variables(self.model).values())
        free = shutil.disk_usage(self.folder).free
        if free < needed:
            raise OSError(
                errno.ENOSPC,
                f"The disk that holds {self.folder} has too little space for a checkpoint: {free:,} bytes are free, "
                f"{needed:,} are needed. Free some space or use another folder",
            )

    def on_epoch_begin(self, epoch, logs=None):
        super().on_epoch_begin(epoch, logs)
        # The first step of the epoch, even if training resumes in the middle of the epoch.
        self._interval_start = epoch * (self.step + (self.params.get("steps") or 0)) // (epoch + 1)
        saved, self._metrics = self._metrics, {}
        if not saved:
            return
        found = {stable_name(f"metrics/{key}"): x for key, x in saved.items()}
        variables = {stable_name(key): variable for key, variable in metric_variables(self.model).items()}
        if self._saved_start != self._interval_start or found.keys() != variables.keys():
            warnings.warn(
                f"The run was stopped in the middle of an epoch, at step {self.step}, and resumes with a different "
                "epoch length or different metrics. The metrics of this epoch will cover only its remaining steps.",
                stacklevel=2,
            )
            return
        for key, variable in variables.items():
            variable.assign(found[key])

    def on_train_batch_begin(self, batch, logs=None):
        # Data loaders and validation also draw from torch's generators, and do so less often in a resumed run. So every
        # epoch starts from the state that the generators had after the last training step of the previous epoch.
        if batch == 0:
            set_random_state(self._random_state)

    def on_epoch_end(self, epoch, logs=None):
        if self.log is not None:
            self.log.on_epoch_end(epoch, logs)  # before saving, so that the checkpoint includes this row
        self.save(self.model)

    def save_within_epoch(self, batch):
        """Writes a checkpoint before batch `batch` of the epoch, from which the epoch can resume.

        Call it in `on_train_batch_begin`, where Keras passes the exact batch.
        """
        with self._lock:
            self.step = max(self.step, self._epoch_start + batch)
        self.save(self.model, within_epoch=True)

    def save(self, model: keras.Model, within_epoch: bool = False) -> None:
        """Writes a checkpoint of `self.step`, then deletes all but the newest `keep` checkpoints.

        If there are several processes, all must call it.

        Raises:
            TrainingDiverged: if a variable is not finite. Nothing is saved.
            OSError: if the checkpoint cannot be written.
        """
        variables = run_variables(model) | (metric_variables(model) if within_epoch else {})
        divided = is_divided(variables.values())
        state = None if divided else {key: as_array(variable) for key, variable in variables.items()}
        broken = not_finite(variables, state)
        if broken:
            raise TrainingDiverged(
                f"After step {self.step}, {len(broken)} variables are not finite, such as "
                f"{broken[0].split('/', 2)[2]}; this state was not saved. {self.describe_newest()}",
                checkpoint=self.newest,
            )
        self._random_state = get_random_state()
        if divided:
            self._save_divided(variables, within_epoch)
        elif is_first_process():
            self._save_whole(state, within_epoch)

    def _save_whole(self, state, within_epoch):
        state |= {f"random/{name}": x for name, x in self._random_state.items()}
        path, temporary = self._path(self.step), self._temporary(self.step)
        try:
            safetensors.numpy.save_file(state, temporary)
            record = {**self._record(within_epoch), **checkpoint_files.fingerprint(temporary)}
            path.with_suffix(".json").unlink(missing_ok=True)
            publish(temporary, path)
            self._publish_record(record)
        except (OSError, safetensors.SafetensorError) as error:
            temporary.unlink(missing_ok=True)
            if not path.with_suffix(".json").exists():
                path.unlink(missing_ok=True)
            raise self._write_error(error, self.step) from error

    def _save_divided(self, variables, within_epoch):
        """Starts writing a checkpoint, which is complete when its record exists.

        A run that stops within an epoch waits for it.
        """
        self._wait()
        record = {**self._record(within_epoch), "arrays": SHARDED}
        self._writing = self.step
        try:
            if is_first_process():
                self._path(self.step).with_suffix(".json").unlink(missing_ok=True)
            self._states().save(self.step, variables, lambda: self._publish_record(record))
        except Exception as error:
            raise self._write_error(error, self.step) from error
        if within_epoch:
            self._complete()

    def _complete(self):
        """Waits in every process until the first one has published the record of a checkpoint that is being written."""
        with together():
            self._wait()

    def _wait(self):
        """Waits for a checkpoint that is being written."""
        if self._sharded is not None:
            try:
                self._sharded.wait()
            except Exception as error:
                raise self._write_error(error, self._writing) from error

    def _states(self):
        self._sharded = self._sharded or ShardedStates(self.folder)
        return self._sharded

    def _record(self, within_epoch):
        return {
            "step": self.step,
            "backend": keras.backend.backend(),
            "versions": _versions(),
            "recipe": plain(self.recipe),
            "within_epoch": self._interval_start if within_epoch else None,
            "log": self.log.state(self.step) if self.log is not None else None,
        }

    def _publish_record(self, record):
        """Completes a checkpoint, and removes old checkpoints beyond the newest `keep`."""
        step = record["step"]
        path, temporary = self._path(step).with_suffix(".json"), self._temporary(step)
        if is_local(self.folder):
            temporary.write_text(json.dumps(record, indent=2))
            publish(temporary, path)
        else:  # objects appear when they are complete
            path.write_text(json.dumps(record, indent=2))
        self._damaged.discard(step)
        self._prune(step)
        self._within_epoch = step if record["within_epoch"] is not None else None

    def _write_error(self, error, step):
        """The error of a checkpoint that could not be written."""
        full = getattr(error, "errno", None) == errno.ENOSPC or any(
            words in str(error) for words in ("os error 28", "No space left", "RESOURCE_EXHAUSTED")
        )
        return OSError(
            errno.ENOSPC if full else getattr(error, "errno", None) or errno.EIO,
            f"The checkpoint of step {step} could not be written to {self.folder} ({error}). "
            f"{self.describe_newest()} {'Free some space' if full else 'Repair the folder'}, then start the run "
            "again: it resumes from its newest good checkpoint",
        )

    def describe_newest(self):
        """A sentence about the newest checkpoint, for error messages."""
        return f"The newest good checkpoint is {self.newest}." if self.newest else "There is no checkpoint yet."

    def _path(self, step):
        return self.folder / f"step_{step:08d}.safetensors"

    def _temporary(self, step):
        return self.folder / f".step_{step:08d}.{os.getpid()}.temporary"

    def _steps(self):
        names = (re.fullmatch(r"step_(\d+)\.json", path.name) for path in self.folder.glob("step_*.json"))
        return sorted(int(name[1]) for name in names if name)

    def _good_steps(self):
        return [step for step in self._steps() if step not in self._damaged]

    def _prune(self, newest):
        replaced = [] if self._within_epoch in (None, newest) else [self._within_epoch]
        kept = [step for step in self._good_steps() if step not in replaced]
        for step in replaced + (kept[: -self.keep] if self.keep else []):
            self._path(step).with_suffix(".json").unlink(missing_ok=True)
            self._path(step).unlink(missing_ok=True)
        # Folders without a record are what an interrupted run left, or what was replaced.
        divided = {f"step_{step:08d}" for step in self._steps() if not self._path(step).exists()}
        for path in self.folder.glob("step_*"):
            if path.is_dir() and path.name not in divided:
                remove_folder(path)
        for path in self.folder.glob(".step_*.temporary"):
            path.unlink(missing_ok=True)

    def _newest_intact(self, variables):
        steps = self._steps()
        for step in reversed(steps):
            try:
                record, state = self._read(step, variables)
            except OtherRun:
                raise
            except ERRORS as error:
                warnings.warn(f"The checkpoint {self._path(step)} is damaged and was skipped: {error}", stacklevel=3)
                self._damaged.add(step)
                continue
            self._compare(record)
            return step, record, state
        if steps:
            raise ValueError(
                f"All checkpoints in {self.folder} are damaged (steps {', '.join(map(str, steps))}). Restore the "
                "files from a copy, or start again in another folder."
            )
        return 0, {}, None

    def _read(self, step, variables):
        """Reads (record, {name: array}) of a step. Arrays are divided among devices in the same way as `variables`."""
        path = self._path(step)
        record = json.loads(path.with_suffix(".json").read_text())
        if record["step"] != step:
            raise ValueError(f"expected step {step}, found step {record['step']}.")
        if record.get("arrays") == SHARDED:
            self._compare(record)
            return record, self._states().load(step, variables)
        return record, checkpoint_files.read_arrays(path, record)

    def _compare(self, record):
        if record["backend"] != keras.backend.backend():
            raise OtherRun(
                f"The run in {self.folder} used the backend {record['backend']}, whose random state cannot be restored "
                f"on {keras.backend.backend()}. Set KERAS_BACKEND={record['backend']} or use another folder."
            )
        if self.recipe is None or record["recipe"] is None:
            return
        if not all(checkpoint_files.differing_fields(plain(one), record["recipe"]) for one in self.earlier):
            return
        differing = checkpoint_files.differing_fields(plain(self.recipe), record["recipe"])
        if differing:
            raise OtherRun(
                f"The folder {self.folder} holds a run with a different recipe:\n" + "\n".join(differing) + "\n"
                "Use another folder, or the recipe of the run."
            )


def _versions():
    return {name: sys.modules[name].__version__ for name in ("keras", "numpy", keras.backend.backend())}
