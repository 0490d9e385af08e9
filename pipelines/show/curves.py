"""Draws curves of pretraining runs in one figure: losses, accuracies and learning rates by step."""

import dataclasses
import math
from pathlib import Path

from kerasbert.data.text.files import similar_folder
from kerasbert.training import read_log

from .files import new_figure

# The palette of Okabe and Ito, which people with color vision deficiency can distinguish.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
# Columns of the log that are not drawn, because they are counts, or are part of another curve.
NOT_DRAWN = {"step", "epoch", "seconds", "tokens", "tokens_per_second", "perplexity", "below_unigram"}
TOKEN_LOSS = "loss per predicted token"
KINDS = {"training": "", "held-out": "val_"}  # {data that a metric was measured on: prefix of its column}
STYLES = {
    "training": dict(linestyle="-"),
    "held-out": dict(linestyle="--"),
    "unigrams": dict(linestyle=":", linewidth=1.2),
}


@dataclasses.dataclass(frozen=True)
class Curve:
    """A line in a panel of the figure.

    Args:
        panel: the quantity, such as "accuracy".
        kind: "training", "held-out" or "unigrams".
        points: (step, value).
    """

    panel: str
    kind: str
    points: tuple[tuple[int, float], ...]


def curves_of(run: Path) -> list[Curve]:
    """Reads the curves from the log of a run.

    The loss per predicted token is the logarithm of the perplexity. The loss of a unigram model is this loss plus the
    column `below_unigram`. The column `loss` is drawn only if the objective has additional terms.

    Raises:
        ValueError: if the folder has no log.
    """
    rows = read_log(run)
    if not rows:
        raise ValueError(f"A run must have a log of at least one report. Received: {run}, without rows in log.jsonl.")
    columns = {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}
    nothing, found = [None] * len(rows), []

    def add(panel: str, kind: str, values: list) -> None:
        points = tuple((row["step"], value) for row, value in zip(rows, values, strict=True) if value is not None)
        if points:
            found.append(Curve(panel, kind, points))

    token_loss = {kind: [_log(p) for p in columns.get(f"{start}perplexity", nothing)] for kind, start in KINDS.items()}
    for kind, values in token_loss.items():
        add(TOKEN_LOSS, kind, values)
    # `pretrain` computes `below_unigram` from the loss on held-out text, if there is any.
    reference = token_loss["held-out" if "val_perplexity" in columns else "training"]
    below = columns.get("below_unigram", nothing)
    add(TOKEN_LOSS, "unigrams", [None if None in pair else sum(pair) for pair in zip(below, reference, strict=True)])
    for name in dict.fromkeys(name.removeprefix("val_") for name in columns):
        if name in NOT_DRAWN or (name == "loss" and _agree(columns["loss"], token_loss["training"])):
            continue
        for kind, start in KINDS.items():
            add(name, kind, columns.get(start + name, nothing))
    return found


def _log(perplexity: float | None) -> float | None:
    return None if perplexity is None else math.log(perplexity)


def _agree(first: list, second: list) -> bool:
    """Whether two curves are the same up to rounding."""
    return all(None not in pair and math.isclose(*pair, rel_tol=1e-3) for pair in zip(first, second, strict=True))


def logged_runs(folders: list[Path]) -> list[Path]:
    """Returns the folders with a log: for a fine-tuned model, one for each of its seeds."""
    found = []
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"There is no folder {folder}{similar_folder(folder)}")
        seeds = sorted(file.parent for file in folder.glob("logs/*/log.jsonl"))
        found += seeds if seeds and not (folder / "log.jsonl").exists() else [folder]
    return found


def run_names(runs: list[Path]) -> list[str]:
    """Returns the names of the folders, with as many parent folders as are needed to distinguish them."""
    paths = [run.resolve() for run in runs]
    if len(set(paths)) < len(paths):
        raise ValueError(f"Every run must be given once. Received: {', '.join(map(str, runs))}.")
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            break
    return names


def curves_figure(runs: list[Path]):
    """Draws a figure with a panel for each quantity, a color for each run, and dashed lines for held-out text."""
    if not 1 <= len(runs) <= len(COLORS):
        raise ValueError(f"There must be 1 to {len(COLORS)} runs, one for each color. Received: {len(runs)}.")
    curves = {name: curves_of(run) for name, run in zip(run_names(runs), runs, strict=True)}
    panels = list(dict.fromkeys(curve.panel for found in curves.values() for curve in found))
    panels.sort(key=lambda panel: (panel == "learning_rate", panel != TOKEN_LOSS, not panel.endswith("loss")))
    columns = min(len(panels), 3)
    lines = -(-len(panels) // columns)
    figure = new_figure(max(6, 4.6 * columns), 3.5 * lines + 0.6)
    for number, panel in enumerate(panels):
        axes = figure.add_subplot(lines, columns, number + 1)
        for found, color in zip(curves.values(), COLORS, strict=False):
            for curve in (curve for curve in found if curve.panel == panel):
                marker = "." if len(curve.points) < 30 and curve.kind != "unigrams" else None
                axes.plot(*zip(*curve.points, strict=True), marker=marker, color=color, **STYLES[curve.kind])
        _label(axes, panel)
    kinds = {curve.kind for found in curves.values() for curve in found}
    _legend(figure, list(curves), [kind for kind in STYLES if kind in kinds])
    return figure


def _legend(figure, names: list[str], kinds: list[str]) -> None:
    """Adds a legend with the colors of the runs and the line styles of the kinds of curves."""
    from matplotlib.lines import Line2D

    handles = []
    if len(names) > 1:
        handles += [Line2D([], [], color=color, label=name) for name, color in zip(names, COLORS, strict=False)]
    else:
        figure.suptitle(names[0], fontsize=11)
    color = "#444444" if len(names) > 1 else COLORS[0]
    handles += [Line2D([], [], color=color, label=kind, **STYLES[kind]) for kind in kinds]
    widest = max(len(handle.get_label()) for handle in handles)
    columns = max(1, min(len(handles), int(14 * figure.get_figwidth()) // (widest + 8)))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=9)


def _label(axes, panel: str) -> None:
    """Labels the axes with names and units."""
    from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

    name = panel.replace("_", " ")
    if panel.endswith("accuracy") or panel.endswith("rate") and panel != "learning_rate":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))
    elif panel == TOKEN_LOSS or panel.endswith("loss"):
        name += " (nats)"
    elif panel == "learning_rate":
        axes.set_ylim(bottom=0)
        axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    axes.set_ylabel(name)
    axes.set_xlabel("updates")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.3)
