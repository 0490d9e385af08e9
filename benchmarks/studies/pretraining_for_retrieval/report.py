"""The tables of `run.py`: nDCG@10 of each arm, and its differences from more masked language modeling."""

from pathlib import Path

from benchmarks.significance import holm, mean_and_error, paired_t_test

COLLECTIONS = {"scifact": "SciFact, 300 test claims", "vaswani": "Vaswani, 93 queries, without further training"}
BASELINES = ("mlm", "mlm, mean")  # with the same vector as most arms, and with the better one
INTRODUCTION = """# Pretraining for retrieval

Written by `python -m benchmarks.studies.pretraining_for_retrieval.run --report`, whose docstring explains the arms. All
start from `modernbert_mini_en`, with {updates:,} updates of pretraining on the documents, if any, and {passes} passes
over the training claims of SciFact, in bfloat16. Where the name of an arm has no "mean", the vector is the output at
the first token. The tables have nDCG@10 (binary), mean and standard error over the seeds, and the differences from
masked language modeling with the same seeds, with p of a paired t-test after Holm's correction for all tests of this
page.
"""
HEADER = """
## {title}

| arm | seeds | nDCG@10 | minus "mlm" | p | minus "mlm, mean" | p |
| --- | --- | --- | --- | --- | --- | --- |
"""


def write(rows: list[dict], arms: list[str], updates: int, passes: int, path: Path) -> None:
    """Writes the tables of the rows with these numbers; of several with the same cell, the last one counts."""
    scores: dict[str, dict[int, dict]] = {arm: {} for arm in arms}
    for row in rows:
        if row["passes"] == passes and row["updates"] in (0, updates):
            scores[row["arm"]][row["seed"]] = {name: found["ndcg@10"] for name, found in row["scores"].items()}
    scores = {arm: found for arm, found in scores.items() if found}
    tests = {
        (name, baseline, arm): paired_t_test(*([scores[one][seed][name] for seed in seeds] for one in (arm, baseline)))
        for name in COLLECTIONS
        for arm in scores
        for baseline in (BASELINES[: BASELINES.index(arm)] if arm in BASELINES else BASELINES)
        if len(seeds := sorted(scores[arm].keys() & scores.get(baseline, {}).keys())) > 1
    }
    p_values = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    text = INTRODUCTION.format(updates=updates, passes=passes)
    for name, title in COLLECTIONS.items():
        text += HEADER.format(title=title)
        for arm, found in scores.items():
            mean, error = mean_and_error([one[name] for one in found.values()])
            cells = [arm, str(len(found)), f"{mean:.3f}" + (f" ± {error:.3f}" if len(found) > 1 else "")]
            for baseline in BASELINES:
                test = tests.get((name, baseline, arm))
                p = p_values.get((name, baseline, arm), 1.0)
                cells += ["", ""] if test is None else [f"{test.mean:+.3f}", f"{p:.3f}" if p >= 0.001 else "< 0.001"]
            text += f"| {' | '.join(cells)} |\n"
    path.write_text(text, encoding="utf-8")
    print(text)
