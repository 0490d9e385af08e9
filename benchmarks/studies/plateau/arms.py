"""The base of `run.py` and its changes, as settings of a recipe."""

from dataclasses import dataclass

from pipelines.recipes.recipe import Recipe, find_recipe

BASE = (
    *("steps=1000000", "batch_size=32", "length=128"),  # the time ends a cell, not the steps
    *("data.rows=chunks", "data.static_masks=0"),
    *("model.dropout=0.1", "model.attention_dropout=0.1", "model.initializer_range=0.02"),
    *("optimizer.schedule.peak=1e-3", "optimizer.schedule.final=1e-3", "warmup=50"),
)


@dataclass(frozen=True)
class Arm:
    """One change of the base.

    Args:
        group: alternatives, of which a cell has at most one.
        settings: of the recipe.
        later: further settings for the second half of the time.
        text: the unit of text that a row does not go beyond; see `divided_corpus`.
        sinusoids: tables that start as sinusoids with the mean square of the initializer.
    """

    group: str
    settings: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    text: str = ""
    sinusoids: tuple[str, ...] = ()


ARCHITECTURE = "architecture"  # never among the winners: the question is what BERT needs
SWITCHABLE = "model.size=switchable_bert_tiny"
MODERNBERT = (
    "model.size=modernbert_base",
    *("model.num_layers=2", "model.hidden_dim=128", "model.num_heads=2", "model.feed_forward_dim=352"),
    "model.attention_dropout=0.0",
)
ARMS = {
    "rows of 64": Arm("rows", ("length=64",)),
    "rows of 32": Arm("rows", ("length=32",)),
    "rows of 32, then 128": Arm("rows", ("length=32",), later=("length=128",)),
    "a line in each row of 128": Arm("rows", text="lines"),
    "a sentence in each row of 32": Arm("rows", ("length=32",), text="sentences"),
    "16 rows": Arm("rows an update", ("batch_size=16",)),
    "8 rows": Arm("rows an update", ("batch_size=8",)),
    "rate 3e-4": Arm("rate", ("learning_rate=3e-4",)),
    "rate 5e-4": Arm("rate", ("learning_rate=5e-4",)),
    "rate 2e-3": Arm("rate", ("learning_rate=2e-3",)),
    "warm-up of 200": Arm("warm-up", ("warmup=200",)),
    "30% masks": Arm("masks", ("data.noise.rate=0.3",)),
    "40% masks": Arm("masks", ("data.noise.rate=0.4",)),
    "no visible targets": Arm("targets", ("data.noise.shares=(0.9, 0.0)",)),  # a tenth is random, as in BabyBERTa
    "all targets masked": Arm("targets", ("data.noise.shares=(1.0, 0.0)",)),
    "initializer 0.04": Arm("initializer", ("model.initializer_range=0.04",)),
    "initializer 0.08": Arm("initializer", ("model.initializer_range=0.08",)),
    "sinusoids": Arm("start", sinusoids=("position_embedding",)),
    "sinusoids, also for tokens": Arm("start", sinusoids=("position_embedding", "token_embedding")),
    # Sinusoidal positions, and heads of both blocks that attend to the previous and to the next token.
    "local attention": Arm("start", ("model.start.num_blocks=2",)),
    "no dropout": Arm("dropout", ("model.dropout=0.0", "model.attention_dropout=0.0")),
    "pre-norm": Arm(ARCHITECTURE, (SWITCHABLE, "model.norm_first=true")),
    "rotary positions": Arm(ARCHITECTURE, (SWITCHABLE, "model.rotary=true")),
    "ModernBERT": Arm(ARCHITECTURE, MODERNBERT),
}
# Besides both, ModernBERT has a gated feed-forward layer and no biases.
ARCHITECTURES = ("pre-norm", "rotary positions", "pre-norm + rotary positions", "ModernBERT")


def joined(names: list[str]) -> str:
    """The name of the cell with these arms, which are in the order of ARMS.

    [no dropout, 8 rows] -> 8 rows + no dropout
    """
    unknown = [name for name in names if name not in ARMS]
    if unknown:
        raise ValueError(f"The arms are {', '.join(ARMS)}. Received: {', '.join(unknown)}.")
    groups = [ARMS[name].group for name in names if ARMS[name].group != ARCHITECTURE]
    if len(set(groups)) < len(groups):
        raise ValueError(f"A cell has at most one arm of a group. Received: {' + '.join(names)}.")
    return " + ".join(name for name in ARMS if name in names) or "base"


def arms_of(cell: str) -> list[str]:
    """The names of the arms of a cell."""
    return [] if cell == "base" else cell.split(" + ")


def recipe_of(cell: str, seed: int, changes: tuple[str, ...] = (), later: bool = False) -> Recipe:
    """The recipe of a cell.

    Args:
        changes: settings that all cells share.
        later: whether it is that of the second half of the time.
    """
    arms = [ARMS[name] for name in arms_of(cell)]
    if any(SWITCHABLE in arm.settings for arm in arms):
        import benchmarks.studies.plateau.models  # noqa: F401  which registers the family

    recipe = find_recipe("bert.tiny").with_settings([*BASE, *changes, f"seed={seed}"])
    for settings in [*(arm.settings for arm in arms), *(arm.later for arm in arms if later)]:
        recipe = recipe.with_settings(list(settings))
    return recipe
