"""The same trainings by sentence-transformers: its trainer, losses and batches, with the clock of `training.py`."""

from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
from sentence_transformers.losses import MultipleNegativesRankingLoss
from sentence_transformers.trainer import SentenceTransformerTrainer
from sentence_transformers.training_args import BatchSamplers, SentenceTransformerTrainingArguments
from transformers import TrainerCallback

from benchmarks.studies.retrieval.training import RATE, ROWS, Clock

DECAY, NO_DECAY = 0.01, ("bias", "LayerNorm.weight", "norm.weight")


class Stop(TrainerCallback):
    """Counts updates, and ends the training when the clock does."""

    def __init__(self, clock: Clock):
        self.clock = clock

    def on_step_end(self, args, state, control, **kwargs):
        self.clock.updates += 1
        control.should_training_stop = self.clock.factor() == 0


def optimizer_of(model: torch.nn.Module, clock: Clock) -> tuple[Any, Any]:
    """AdamW with the settings of `kerasbert.training.adamw`, and a schedule that follows the clock."""
    decayed, others = [], []
    for name, weight in model.named_parameters():
        (others if name.endswith(NO_DECAY) else decayed).append(weight)
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-6)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: clock.factor())


def settings(output: Path, seed: int) -> dict[str, Any]:
    """The arguments of a trainer: batches of ROWS until the clock ends, nothing written."""
    return dict(
        output_dir=str(output), per_device_train_batch_size=ROWS, num_train_epochs=1_000, max_grad_norm=1.0, seed=seed,
        save_strategy="no", logging_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True,
    )  # fmt: skip


def train_embedder(folder: Path, rows: list[tuple], length: int, clock: Clock, seed: int, output: Path) -> None:
    """Trains an embedder by MultipleNegatives on (query, positive, negative), and saves it."""
    torch.manual_seed(seed)
    model = SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = length
    data = Dataset.from_dict(
        dict(zip(("anchor", "positive", "negative"), map(list, zip(*rows, strict=True)), strict=True))
    )
    arguments = SentenceTransformerTrainingArguments(
        **settings(output, seed), batch_sampler=BatchSamplers.NO_DUPLICATES
    )
    loss = MultipleNegativesRankingLoss(model)
    trainer = SentenceTransformerTrainer(
        model, arguments, train_dataset=data, loss=loss, optimizers=optimizer_of(model, clock), callbacks=[Stop(clock)]
    )
    trainer.train()
    model.save_pretrained(str(output))


def train_reranker(
    folder: Path, pairs: list[tuple], labels: list[float], length: int, clock: Clock, seed: int, output: Path
) -> None:
    """Trains a cross-encoder by binary cross-entropy on pairs, and saves it."""
    torch.manual_seed(seed)
    model = CrossEncoder(str(folder), num_labels=1, max_length=length, device="cpu")
    queries, documents = map(list, zip(*pairs, strict=True))
    data = Dataset.from_dict({"query": queries, "document": documents, "label": labels})
    arguments = CrossEncoderTrainingArguments(**settings(output, seed))
    loss = BinaryCrossEntropyLoss(model)
    trainer = CrossEncoderTrainer(
        model, arguments, train_dataset=data, loss=loss, optimizers=optimizer_of(model, clock), callbacks=[Stop(clock)]
    )
    trainer.train()
    model.save_pretrained(str(output))
