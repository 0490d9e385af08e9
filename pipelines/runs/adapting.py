"""LoRA in fine-tuning: adds low-rank products to layers, and saves the results."""

from dataclasses import dataclass
from pathlib import Path

from kerasbert.training import add_lora


@dataclass(frozen=True)
class Lora:
    """LoRA: the backbone is frozen, and small trainable products are added to some of its dense layers.

    Args:
        rank: rank of the products, such as 8. Without it, the whole model is trained.
        alpha: the products are multiplied by alpha / rank. Default: the rank.
        targets: names of dense layers: query, key, value, project, inner, outer.
        merge: save the model with its products merged in, and the adapter in the folder `adapter`. With
            --lora.no-merge, only the adapter is saved.
    """

    rank: int | None = None
    alpha: float | None = None
    targets: tuple[str, ...] = ("query", "value")
    merge: bool = True

    def __post_init__(self):
        if self.rank is not None and self.rank < 1:
            raise ValueError(f"`lora.rank` must be at least 1. Received: {self.rank}.")

    def check_folder(self, folder: Path) -> None:
        """Raises a ValueError if an adapter without its model would lie beside another model."""
        if self.rank is not None and not self.merge and (folder / "config.json").exists():
            raise ValueError(
                "An adapter must be in a folder without a model, which would be loaded without it. Received: "
                f"--output {folder}, which contains a model. Use another folder, or leave out --lora.no-merge."
            )

    def start(self, model) -> None:
        """Adds the products to a model before training."""
        if self.rank is None:
            return
        count = add_lora(model, self.rank, self.targets, self.alpha)
        total = model.count_params()
        print(f"LoRA trains {count:,} of {total:,} parameters ({count / total:.2%})")

    def save(self, model, folder: Path, base: str) -> None:
        """Saves a trained model, its adapter in the layout of PEFT, or both.

        Args:
            model: the trained model.
            folder: folder for the result.
            base: the model that training started from.
        """
        if self.rank is None or self.merge:
            model.save_to_preset(folder)
        if self.rank is not None:
            model.save_adapter(folder / "adapter" if self.merge else folder, base)


WHOLE_MODEL = Lora()
