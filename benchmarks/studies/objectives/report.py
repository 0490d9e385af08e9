"""What `run.py` found: a figure, tables, and a sentence on every claim of the papers."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.significance import Difference, holm, paired_t_test

# Nats per token of the held-out text for a model that knows how frequent tokens are in the training text. A model with
# masks is on the plateau above GATE of it: a tenth of its targets is visible, so nine tenths take copying only.
UNIGRAM_LOSS = 6.258
GATE = 0.9
PAIRS_GATE = 0.55  # accuracy of sentence pairs below which a model is at chance, which is 0.5
MEASURES = {  # of a row, and whether more is better
    "signs": (lambda row: row["signs"], True),
    "similarity": (lambda row: row["similarity"], True),
    "fine-tuned": (lambda row: row["fine-tuned"], False),
    "fine-tuned, BiLSTM": (lambda row: row["fine-tuned, BiLSTM"], False),
    "held out": (lambda row: row["held_out"].get("mlm_loss") or math.log(row["held_out"]["perplexity"]), False),
}
UNITS = {"signs": "R2", "similarity": "correlation", "fine-tuned": "nats a word", "held out": "nats a token"}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A question of a paper.

    Args:
        title: of it.
        settings: of `run.py`, side by side.
        claims: (better, worse) by the paper, each a setting, or a setting and a measure.
        scale: what the paper saw it on, and what it takes.
        measure: of the claims.
    """

    title: str
    settings: tuple[str, ...]
    claims: tuple[tuple, ...]
    scale: str
    measure: str = "signs"


BASELINES = ("no pretraining, encoder", "no pretraining, encoder-decoder")
COMPARISONS = (
    Comparison(
        "T5: objectives",
        (
            *("T5 prefix LM", "T5 BERT-style", "T5 MASS-style", "T5 deshuffling", "T5 replace spans", "T5 drop tokens"),
            *("T5 random spans", BASELINES[1]),
        ),
        (
            ("T5 random spans", "T5 deshuffling"),
            ("T5 random spans", "T5 prefix LM"),
            ("T5 random spans", "T5 BERT-style"),
            ("T5 random spans", BASELINES[1]),
        ),
        "In the paper, with 220M parameters and 3.4e10 tokens, deshuffling is ten GLUE points below the rest and the"
        " prefix language model three. The denoising objectives are within three standard deviations (0.235 points) of"
        " each other. Replaced spans and dropped tokens, which are as good as the rest in the paper, have the lowest"
        " `signs` of the pretrained models in this table, and by `similarity`, only deshuffling is above random"
        " weights. These differences were not tested.",
    ),
    Comparison(
        "T5: rate of corruption",
        ("T5, rate 10%", "T5 random spans", "T5, rate 50%"),
        (("T5 random spans", "T5, rate 50%"), ("T5 random spans", "T5, rate 10%")),
        "In the paper, rates of 10% to 25% are equally good after 3.4e10 tokens, and 50% is two GLUE points worse. Here"
        " all three are within 0.003 of each other, and 50% reaches this with half as many tokens: its targets are"
        " longer, so each token costs more.",
    ),
    Comparison(
        "T5: repeated data",
        ("T5 random spans", "T5, 64 passes"),
        (("T5 random spans", "T5, 64 passes"),),
        "In the paper, 64 passes over a text of 5e8 tokens cost 0.4 GLUE points, and 4,096 passes over one of 8e6 cost"
        " seven. The 64 passes here are over 47,000 tokens.",
    ),
    Comparison(
        "SpanBERT: masks",
        ("masks of pieces", "masks of words", "masks of spans", "masks of spans, SBO"),
        (("masks of spans", "masks of pieces"), ("masks of spans, SBO", "masks of spans")),
        "In the paper, with 335M parameters and 2.4M updates of 131,000 tokens, spans gain 0.3 to 2 points on questions"
        " whose answers are spans. All four models are measured on held-out masks of pieces here. With masks of spans"
        " alone, the model does not leave the plateau in this time; with the boundary objective in addition it does.",
    ),
    Comparison(
        "RoBERTa: static or dynamic masks",
        ("one static mask, 16 passes", "dynamic masks, 16 passes"),
        (("dynamic masks, 16 passes", "one static mask, 16 passes"),),
        "The paper compares ten masks over 40 passes and finds differences of 0.1 to 0.7 points. By the rule above, one"
        " mask over 16 passes does not count. Its vectors are far better than those of random weights, however, so its"
        " high loss on new masks may come from remembering the old ones.",
        "held out",
    ),
    Comparison(
        "ELECTRA: efficiency",
        (
            *("MLM, 1/4 compute", "MLM", "MLM, 2x compute"),
            *("ELECTRA, 1/4 compute", "ELECTRA", "ELECTRA, 2x compute", BASELINES[0]),
        ),
        (
            ("ELECTRA, 1/4 compute", "MLM, 1/4 compute"),
            ("ELECTRA", "MLM"),
            ("ELECTRA, 2x compute", "MLM, 2x compute"),
            ("MLM", BASELINES[0]),
        ),
        "The curves of the paper begin at 1e18 operations; with 14M parameters, GLUE differs by five points in favor"
        " of ELECTRA. Here it is behind, and the gap shrinks with more compute: 0.043, 0.020 and 0.009.",
    ),
    Comparison(
        "ALBERT: sentence pairs",
        ("MLM", "NSP", "SOP"),
        (("SOP", "NSP"), ("MLM", "NSP")),
        "In the paper, sentence order gains one point on average, most of it on tasks with several sentences; the"
        " measures here have one.",
        "similarity",
    ),
    Comparison(
        "BERT: directions",
        ("MLM", "left to right", BASELINES[0]),
        (
            ("MLM", "left to right"),
            ("MLM", BASELINES[0]),
            ("left to right", BASELINES[0]),
            (("left to right", "fine-tuned, BiLSTM"), ("left to right", "fine-tuned")),
            (("MLM", "fine-tuned"), ("left to right", "fine-tuned, BiLSTM")),
        ),
        "In the paper, the left-to-right model is two points worse on MNLI and ten on SQuAD, of which a BiLSTM on"
        " top regains seven. Here a sign stands between two words, and a left-to-right model does not see the second"
        " one without the BiLSTM; the random encoder does, and is better. With a BiLSTM on both, the pretrained"
        " left-to-right model has a lower loss than the random encoder.",
        "fine-tuned",
    ),
)


def report(rows: list[dict], path: Path, ending: Sequence[str] = ()) -> list[Path]:
    """Writes `path`.png and `path`.md from the rows of cells, with further lines at the end."""
    picture, text = path.with_suffix(".png"), path.with_suffix(".md")
    _draw(rows, picture)
    minutes = sum(row["seconds"] for row in rows) / 60
    seeds = len({row["seed"] for row in rows})
    judged = verdicts(rows)
    words = ("as in the paper", "reversed", "undecided", "not counted", "not measured")
    counts = {word: sum(found.startswith(word) for *_, found in judged) for word in words}
    head = [
        "# Objectives of pretraining at equal compute",
        "",
        "The papers' questions about objectives, asked of very small models (2 layers of width 128) that are all",
        f"trained with the same amount of compute, {_budget(rows)}, unless the name of a model says otherwise. The",
        f"{len(rows)} trainings ({seeds} seeds of each model) took {minutes:.0f} minutes of one core in all. Figures",
        "are means and standard deviations over the seeds. The columns:",
        "",
        "- `signs`: how well the frozen vectors of a text without punctuation predict which sign stood between two",
        "  words (R2 of a linear map);",
        "- `similarity`: the correlation of the cosines of mean vectors with the similarity of sentences (STS-B);",
        "- `held out`: the loss on held-out text, in nats per target of the objective (for ELECTRA, of its generator),",
        "  so it can be compared only between models with the same targets;",
        "- `fine-tuned`: the loss after fine-tuning on the signs, in nats per word" + _baselines(rows) + ".",
        "",
        "Below each table are the claims that follow from the paper.",
        "",
        f"Of {len(judged)} claims: {', '.join(f'{count} {word}' for word, count in counts.items() if count)}.",
        "Differences are taken seed by seed, with their standard errors; p is that of a paired t-test, corrected by",
        "Holm's method over the claims that count. A claim about masked language models or ELECTRA counts only if the",
        f"held-out loss of both sides is below {GATE * UNIGRAM_LOSS:.2f} nats, {GATE} of the unigram loss",
        f"({UNIGRAM_LOSS}), and a claim about sentence pairs only if the model is right about {PAIRS_GATE:.0%} of the",
        "held-out pairs or more (chance: 50%). A measure counts only if pretrained models are better than random",
        f"ones (p < 0.05): {_powers(rows)}.",
        "",
        f"![Scores of each objective by measure, with means and deviations over five seeds]({picture.name})",
    ]
    parts = [_section(comparison, rows, judged) for comparison in COMPARISONS]
    text.write_text("\n".join([*head, *(line for part in parts for line in part), *ending, ""]), encoding="utf-8")
    return [picture, text]


def values_of(rows: list[dict], setting: str, measure: str) -> np.ndarray:
    """The measure of every seed, in the order of the seeds."""
    found = sorted((row for row in rows if row["setting"] == setting), key=lambda row: row["seed"])
    usable = [row for row in found if (row["steps"] if measure == "held out" else measure in row)]
    return np.array([MEASURES[measure][0](row) for row in usable])


def on_plateau(rows: list[dict], setting: str) -> bool:
    """Whether a pretrained encoder has learned no more than token frequencies, by its mean held-out loss.

    The targets of encoder-decoders differ by objective, so their losses say nothing about this.
    """
    losses = [] if setting.startswith(("T5", "no pretraining")) else values_of(rows, setting, "held out")
    return len(losses) > 0 and losses.mean() > GATE * UNIGRAM_LOSS


def at_chance(rows: list[dict], setting: str) -> bool:
    """Whether a model has a target for sentence pairs, and has not learned it."""
    found = [row["held_out"].get("sentence_pair_accuracy") for row in rows if row["setting"] == setting]
    found = [accuracy for accuracy in found if accuracy is not None]
    return len(found) > 0 and np.mean(found) < PAIRS_GATE


def power(rows: list[dict], measure: str) -> Difference | None:
    """How much better pretrained models are than random ones of the same shape; None if this was not measured."""
    pairs = [("MLM", BASELINES[0]), ("T5 random spans", BASELINES[1])]
    tests = [_paired(rows, (pretrained, measure), (random, measure)) for pretrained, random in pairs]
    return min(filter(None, tests), key=lambda test: (test.mean <= 0, test.p), default=None)


def has_power(rows: list[dict], measure: str) -> bool:
    """Whether pretrained models are better than random ones by this measure; True if that was not measured."""
    found = power(rows, measure)
    return measure == "held out" or found is None or (found.mean > 0 and found.p < 0.05)


def verdicts(rows: list[dict]) -> list[tuple[Comparison, str, str]]:
    """(comparison, claim, verdict) of all claims.

    A claim counts if its measure has power, and neither side is on the plateau or at chance. Differences are taken seed
    by seed; the p-values of the paired t-tests are corrected by Holm's method over all claims that count.
    """
    judged = judge(rows)
    return [(claim.comparison, claim.name, claim.verdict) for claim in judged]


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of a paper, and what became of it.

    Args:
        sides: the better and the worse (setting, measure), by the paper.
        test: of the difference by seed; None if it was not measured, or does not count.
        verdict: as a sentence of the report.
    """

    comparison: Comparison
    sides: tuple[tuple[str, str], tuple[str, str]]
    test: Difference | None = None
    verdict: str = "not measured"

    @property
    def name(self) -> str:
        return " better than ".join(f"{setting} ({measure})" for setting, measure in self.sides)


def judge(rows: list[dict], claims: Sequence[Claim] = ()) -> list[Claim]:
    """Tests claims, or those of all comparisons. Returns them with their tests and verdicts."""
    claims = claims or [
        Claim(comparison, tuple((side, comparison.measure) if isinstance(side, str) else side for side in sides))
        for comparison in COMPARISONS
        for sides in comparison.claims
    ]
    found = []
    for claim in claims:
        test, reasons = _paired(rows, *claim.sides), _reasons(rows, claim.sides)
        said = f"not counted ({'; '.join(reasons)})" if test and reasons else "not measured"
        found.append(dataclasses.replace(claim, test=None if reasons else test, verdict=said))
    tested = [number for number, claim in enumerate(found) if claim.test]
    for number, p in zip(tested, holm([found[number].test.p for number in tested]), strict=True):
        test = found[number].test
        word = "undecided" if p >= 0.05 else "as in the paper" if test.mean > 0 else "reversed"
        shown = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
        said = f"{word} ({test.mean:+.4f} ± {test.error:.4f}, {shown})"
        found[number] = dataclasses.replace(found[number], verdict=said)
    return found


def _reasons(rows: list[dict], sides: Sequence[tuple[str, str]]) -> list[str]:
    """Why a claim does not count."""
    low = [setting for setting, _ in sides if on_plateau(rows, setting)]
    guessing = [setting for setting, _ in sides if at_chance(rows, setting)]
    weak = [measure for _, measure in sides if not has_power(rows, measure)]
    found = [(low, "on the plateau"), (guessing, "sentence pairs at chance"), (weak, "no power")]
    return [f"{', '.join(dict.fromkeys(names))}: {reason}" for names, reason in found if names]


def _paired(rows: list[dict], one: tuple[str, str], other: tuple[str, str]) -> Difference | None:
    """The test of the difference of two (setting, measure) by seed; it is positive if the first one is better."""
    values = [_by_seed(rows, *side) for side in (one, other)]
    seeds = sorted(values[0].keys() & values[1].keys())
    if len(seeds) < 2:
        return None
    sign = 1 if MEASURES[one[1]][1] else -1
    return paired_t_test(*([sign * side[seed] for seed in seeds] for side in values))


def _by_seed(rows: list[dict], setting: str, measure: str) -> dict[int, float]:
    seeds = sorted(row["seed"] for row in rows if row["setting"] == setting)
    values = values_of(rows, setting, measure)
    return dict(zip(seeds, values.tolist(), strict=True)) if len(values) else {}


def _baselines(rows: list[dict]) -> str:
    """What guessing the signs costs."""
    found = next((row["baselines"] for row in rows if "baselines" in row), None)
    if found is None:
        return ""
    return (
        f" (guessing by the frequencies of the signs {found['frequencies']:.4f}, by those after each token"
        f" {found['tokens']:.4f})"
    )


def _powers(rows: list[dict]) -> str:
    shown = []
    for measure in MEASURES:
        found = power(rows, measure) if measure != "held out" else None
        if found is not None:
            word = "has" if has_power(rows, measure) else "does not have"
            shown.append(f"`{measure}` {word} this power ({found.mean:+.4f} ± {found.error:.4f})")
    return ", ".join(shown) or "not measured"


def _section(comparison: Comparison, rows: list[dict], judged: list[tuple[Comparison, str, str]]) -> list[str]:
    measures = ["signs", "similarity", "held out"]
    measures += ["fine-tuned", "fine-tuned, BiLSTM"] if comparison.measure == "fine-tuned" else []
    names = ["updates", "tokens", *measures]
    lines = ["", f"## {comparison.title}", "", f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for setting in comparison.settings:
        found = [row for row in rows if row["setting"] == setting]
        if found:
            cells = [_shown(values_of(rows, setting, measure)) for measure in measures]
            lines.append(f"| {setting} | {found[0]['steps']:,} | {found[0]['tokens']:,} | {' | '.join(cells)} |")
    lines.append("")
    lines += [f"- {claim}: {found}." for one, claim, found in judged if one is comparison]
    return [*lines, "", comparison.scale]


def _shown(values: np.ndarray) -> str:
    return f"{values.mean():.4f} ± {values.std(ddof=min(1, len(values) - 1)):.4f}" if len(values) else ""


def _budget(rows: list[dict]) -> str:
    full = [row["teraflops"] for row in rows if row["setting"] == "MLM"]
    return f"{1e12 * np.mean(full):.1e} operations".replace("e+", "e") if full else ""


def _draw(rows: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 3, figsize=(15, 11), layout="constrained")
    for axis, comparison in zip(axes.flat, COMPARISONS, strict=False):
        bars = [(setting, comparison.measure) for setting in comparison.settings]
        if comparison.measure == "fine-tuned":
            bars = [(setting, measure) for setting, _ in bars for measure in ("fine-tuned", "fine-tuned, BiLSTM")]
        bars = [(setting, measure) for setting, measure in bars if len(values_of(rows, setting, measure))]
        for place, bar in enumerate(reversed(bars)):
            values = values_of(rows, *bar)
            axis.plot(values, [place] * len(values), "o", color="tab:gray", markersize=4)
            axis.errorbar(values.mean(), place, xerr=values.std(), fmt="D", color="tab:blue", capsize=3)
        labels = [f"{setting}, BiLSTM" if "BiLSTM" in measure else setting for setting, measure in reversed(bars)]
        axis.set_yticks(range(len(bars)), labels, fontsize=8)
        axis.set_title(comparison.title, fontsize=10)
        axis.set_xlabel(f"{comparison.measure}, {UNITS[comparison.measure]}", fontsize=8)
    axis = axes.flat[len(COMPARISONS)]
    for name in ("MLM", "ELECTRA"):
        points = [
            (f"{name}{ending}", share) for ending, share in ((", 1/4 compute", 0.25), ("", 1), (", 2x compute", 2))
        ]
        found = [(share, values_of(rows, setting, "signs")) for setting, share in points]
        found = [(share, values) for share, values in found if len(values)]
        if found:
            means, spreads = ([f(values) for _, values in found] for f in (np.mean, np.std))
            axis.errorbar([share for share, _ in found], means, yerr=spreads, marker="o", capsize=3, label=name)
    axis.set(xscale="log", xlabel="compute", ylabel="signs, R2")
    axis.set_xticks([0.25, 1.0, 2.0], ["1/4", "1", "2"])
    axis.minorticks_off()
    axis.set_title("ELECTRA: efficiency curve", fontsize=10)
    if axis.get_legend_handles_labels()[0]:
        axis.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)
