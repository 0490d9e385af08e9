"""Which undecided claims more seeds would decide, and what fresh seeds say about the cheapest of them."""

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.significance import pairs_needed
from benchmarks.studies.objectives.report import Claim, judge

REPEATED = 3  # claims, the cheapest ones
LEVEL = 0.05 / REPEATED  # Holm's method asks this of the smallest p-value
POWER = 0.8


@dataclass(frozen=True)
class Plan:
    """What it takes to decide a claim.

    Args:
        claim: it is undecided.
        effect: the mean difference by its standard deviation, with the correction of Hedges (1981) for few seeds.
        seeds: fresh seeds for a power of `POWER` at `LEVEL` if the effect is the true one; None if there are too many.
        minutes: of one core.
    """

    claim: Claim
    effect: float
    seeds: int | None
    minutes: float

    @property
    def settings(self) -> list[str]:
        return list(dict.fromkeys(setting for setting, _ in self.claim.sides))


def plans(rows: list[dict]) -> list[Plan]:
    """The plans of all undecided claims, the cheapest first."""
    found = []
    for claim in judge(rows):
        if claim.test is None or not claim.verdict.startswith("undecided"):
            continue
        seconds = [[row["seconds"] for row in rows if row["setting"] == name] for name in {s for s, _ in claim.sides}]
        count = len(seconds[0])
        effect = claim.test.mean / claim.test.error / math.sqrt(count) if claim.test.error else 0.0
        effect *= 1 - 3 / (4 * count - 5)
        seeds = pairs_needed(effect, LEVEL, POWER)
        minutes = (seeds or math.inf) * sum(map(np.mean, seconds)) / 60
        found.append(Plan(claim, effect, seeds, float(minutes)))
    return sorted(found, key=lambda plan: plan.minutes)


def cells(rows: list[dict]) -> list[tuple[str, int]]:
    """(setting, seed) of the fresh seeds that decide the cheapest claims. The seeds follow those of the rows."""
    first = 1 + max(row["seed"] for row in rows)
    return [
        (setting, seed)
        for plan in plans(rows)[:REPEATED]
        for seed in range(first, first + (plan.seeds or 0))
        for setting in plan.settings
    ]


def section(rows: list[dict], fresh: list[dict]) -> list[str]:
    """The part of the report about undecided claims, as lines of Markdown."""
    found = plans(rows)
    if not found:
        return []
    first, done = 1 + max(row["seed"] for row in rows), {(row["setting"], row["seed"]) for row in fresh}
    is_complete = done.issuperset(cells(rows))
    claims = judge(fresh, [plan.claim for plan in found[:REPEATED]]) if is_complete else []
    lines = [
        "",
        "## What would decide the rest",
        "",
        "How many fresh seeds a paired t-test needs to find the effect of the first seeds with a probability of",
        f"{POWER} at a level of {LEVEL:.4f}, if that effect, corrected for few seeds, is the true one. The first",
        f"{REPEATED} claims, the cheapest ones, are tested on fresh seeds only, because the old seeds chose their",
        "number. p is corrected by Holm's method over these claims.",
        "",
        "| undecided claim | effect (standard deviations) | fresh seeds | minutes of one core | with fresh seeds |",
        "|---|---|---|---|---|",
    ]
    for number, plan in enumerate(found):
        cost = f"{plan.seeds:,} | {plan.minutes:,.0f}" if plan.seeds else "over 10,000 | "
        verdict = claims[number].verdict if number < len(claims) else ""
        if number < REPEATED and not is_complete:
            seeds = range(first, first + (plan.seeds or 0))
            count = sum(all((setting, seed) in done for setting in plan.settings) for seed in seeds)
            verdict = f"{count} of {plan.seeds} seeds are measured"
        lines.append(f"| {plan.claim.name} | {plan.effect:+.2f} | {cost} | {verdict} |")
    return lines
