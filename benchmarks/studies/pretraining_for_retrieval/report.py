"""The table of `run.py`: nDCG@10 of each arm, and its difference from more masked language modeling."""

from pathlib import Path

from benchmarks.significance import holm, mean_and_error, paired_t_test

COLLECTIONS = ("scifact", "vaswani")
INTRODUCTION = """# Pretraining for retrieval

Written by `python -m benchmarks.studies.pretraining_for_retrieval.run --report`, whose docstring explains the arms. All
start from `modernbert_mini_en`, with {updates:,} updates of pretraining on the documents, if any, and {passes} passes
over the training claims of SciFact, in bfloat16. nDCG@10 (binary) on the 300 test claims of SciFact, and without
further training on Vaswani (93 queries): mean and standard error over the seeds, and the difference from "mlm, mean"
with the same seeds, with p of a paired t-test after Holm's correction for all tests of the table.

| arm | seeds | SciFact | difference | p | Vaswani | difference | p |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
BASELINE = "mlm, mean"


def write(rows: list[dict], arms: list[str], updates: int, passes: int, path: Path) -> None:
    """Writes the table of the rows with these numbers; of several with the same cell, the last one counts."""
    wanted = [row for row in rows if row["passes"] == passes and row["updates"] in (0, updates)]
    scores = {(row["arm"], row["seed"]): row["scores"] for row in wanted}
    tests, shown = {}, [arm for arm in arms if any(arm == found for found, _ in scores)]
    for arm in shown:
        seeds = [seed for found, seed in scores if found == arm and (BASELINE, seed) in scores]
        for name in COLLECTIONS if arm != BASELINE and len(seeds) > 1 else ():
            ours, others = ([scores[one, seed][name]["ndcg@10"] for seed in seeds] for one in (arm, BASELINE))
            tests[arm, name] = paired_t_test(ours, others)
    p_values = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True)) if tests else {}
    lines = []
    for arm in shown:
        seeds = [seed for found, seed in scores if found == arm]
        cells = [arm, str(len(seeds))]
        for name in COLLECTIONS:
            mean, error = mean_and_error([scores[arm, seed][name]["ndcg@10"] for seed in seeds])
            cells.append(f"{mean:.3f}" + (f" ± {error:.3f}" if len(seeds) > 1 else ""))
            test = tests.get((arm, name))
            cells += ["", ""] if test is None else [f"{test.mean:+.3f}", f"{p_values[arm, name]:.3f}"]
        lines.append(f"| {' | '.join(cells)} |\n")
    path.write_text(INTRODUCTION.format(updates=updates, passes=passes) + "".join(lines), encoding="utf-8")
    print(path.read_text(encoding="utf-8"))
