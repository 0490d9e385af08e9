"""The study of objectives: what is counted, what is measured, and when a difference is one."""

import numpy as np
import pytest

from benchmarks.significance import paired_t_test, power
from benchmarks.studies.objectives import replication
from benchmarks.studies.objectives.parts import (
    documents,
    rows_of,
    sign_baselines,
    signs,
    training_flops,
    without_punctuation,
)
from benchmarks.studies.objectives.report import COMPARISONS, has_power, on_plateau, report, values_of, verdicts
from benchmarks.studies.objectives.run import SETTINGS, flops_of, left_to_right
from kerasbert.data import Corpus, Tokenizer
from kerasbert.models import Bert, BertConfig

pytestmark = pytest.mark.one_backend

TEXT = 'We met Mary Antony there. She was not at home, "Miss Brown said; why? I know of no Brown House at all.\n'


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    (folder / "text.txt").write_text(TEXT * 120)
    texts = documents(folder / "text.txt")
    tokenizer = Tokenizer.train("wordpiece", texts, 60, lowercase=True)
    return texts, Corpus.write(folder / "corpus", texts, tokenizer)


def test_documents_have_a_sentence_a_line(corpus):
    texts, _ = corpus
    assert len(texts) == 4
    assert texts[0].splitlines()[:3] == [
        "We met Mary Antony there.",
        'She was not at home, "Miss Brown said; why?',
        "I know of no Brown House at all.",
    ]


def test_signs_are_labels_of_the_word_before(corpus):
    _, corpus = corpus
    tokens, labels = without_punctuation(corpus, 3)
    assert tokens.shape == labels.shape == (3, 62)
    tokenizer = corpus.tokenizer()
    words = [tokenizer.token(int(i)) for i in tokens.reshape(-1)]
    assert not set(words) & set('.,;?"')
    kinds = {}
    for place in range(186):
        start = place
        while words[start].startswith("##") and start:
            start -= 1
        last = place + 1 == 186 or not words[place + 1].startswith("##")
        word = "".join(words[start : place + 1]).replace("##", "")
        if last and start:
            kinds.setdefault(word, set()).add(int(labels.reshape(-1)[place]))
    assert (kinds["there"], kinds["home"], kinds["said"], kinds["why"], kinds["met"]) == ({2}, {1}, {1}, {2}, {0})


def test_signs_are_guessed_by_frequency_and_by_token(corpus):
    _, corpus = corpus
    found = sign_baselines((corpus, corpus))
    _, labels = without_punctuation(corpus, 400)
    shares = np.bincount(labels.ravel()) / labels.size
    assert found["frequencies"] == pytest.approx(-(shares * np.log(shares)).sum())
    assert found["tokens"] < found["frequencies"] / 2  # the word before determines the sign


def test_rows_have_the_special_tokens_of_the_model(corpus):
    tokenizer = corpus[1].tokenizer()
    bodies = np.full((2, 3), 9)
    assert rows_of(bodies, tokenizer, True)["token_ids"][0].tolist() == [tokenizer.cls_id, 9, 9, 9, tokenizer.sep_id]
    assert rows_of(bodies, tokenizer, False)["token_ids"][1].tolist() == [9, 9, 9, tokenizer.sep_id]


def test_what_a_linear_map_explains(corpus):
    """Which sign follows is known of every word here; the vectors of a new model hold which piece of one it is."""
    _, corpus = corpus
    size = dict(num_layers=1, hidden_dim=24, num_heads=2, feed_forward_dim=12, initializer_range=0.3, dropout=0.0)
    backbone = Bert(BertConfig(**size, vocabulary_size=corpus.tokenizer_info["vocabulary_size"]))
    before = backbone.get_weights()
    assert 0.1 < signs(backbone, (corpus, corpus), leads=True) <= 1
    assert all((a == b).all() for a, b in zip(before, backbone.get_weights(), strict=True))


def test_operations_are_those_of_the_matrix_products():
    config = BertConfig(num_layers=2, hidden_dim=8, feed_forward_dim=20, num_heads=2, vocabulary_size=50)
    x = {"token_ids": np.zeros((3, 10), int), "masked_positions": np.zeros((3, 4), int)}
    row = 2 * (10 * (4 * 64 + 2 * 160) + 2 * 100 * 8) + 4 * (64 + 400)
    assert training_flops(config, (x,)) == 6 * 3 * row
    assert training_flops(config, (x,), outputs=2) == 6 * 3 * (row + 4 * 464)
    both = training_flops(config, (x,), generator=config)
    assert both == 6 * 3 * (2 * row - 4 * 464)
    x = {"token_ids": x["token_ids"], "decoder_token_ids": np.zeros((3, 5), int)}
    encoder, decoder = (2 * (n * (4 * 64 + 2 * 160) + 2 * n * n * 8) for n in (10, 5))
    cross = 2 * (2 * 15 * 64 + 2 * 50 * 8)
    assert training_flops(config, (x,)) == 6 * 3 * (encoder + decoder + cross + 5 * 464)


def test_a_left_to_right_model_pays_for_every_token():
    recipe, x = left_to_right(), {"token_ids": np.zeros((16, 64), int)}
    masked = SETTINGS["MLM"]()
    slots = {**x, "masked_positions": np.zeros((16, 10), int)}
    config = recipe.config()
    output = 128 * (128 + config.vocabulary_size)
    assert flops_of(recipe, (x,)) - flops_of(masked, (slots,)) == 6 * 16 * 54 * output


def test_comparisons_are_of_settings():
    for comparison in COMPARISONS:
        assert set(comparison.settings) <= set(SETTINGS)
        for claim in comparison.claims:
            assert {side if isinstance(side, str) else side[0] for side in claim} <= set(comparison.settings)
    assert {setting for comparison in COMPARISONS for setting in comparison.settings} == set(SETTINGS)


def cells(setting: str, signs: tuple[float, ...], loss: float = 5.0) -> list[dict]:
    held_out = {"perplexity": np.exp(loss)}
    return [
        {"setting": setting, "seed": seed, "steps": 7, "signs": value, "held_out": held_out}
        for seed, value in enumerate(signs)
    ]


def test_claims_are_tested_seed_by_seed_with_a_correction_and_count_only_off_the_plateau():
    rows = cells("T5 random spans", (0.30, 0.40, 0.50)) + cells("T5 prefix LM", (0.20, 0.31, 0.39))
    rows += cells("T5 deshuffling", (0.50, 0.20, 0.60)) + cells("T5 BERT-style", (0.90,))
    rows += cells("MLM", (0.1, 0.1), loss=5.7) + cells("ELECTRA", (0.2, 0.3), loss=5.6)
    found = {claim: text for _, claim, text in verdicts(rows)}
    single = paired_t_test([0.30, 0.40, 0.50], [0.20, 0.31, 0.39])
    claim = found["T5 random spans (signs) better than T5 prefix LM (signs)"]
    assert claim == f"as in the paper (+0.1000 ± 0.0058, p = {2 * single.p:.3f})"  # two claims are tested
    assert found["T5 random spans (signs) better than T5 deshuffling (signs)"].startswith("undecided (-0.0333")
    assert found["T5 random spans (signs) better than T5 BERT-style (signs)"] == "not measured"
    assert found["ELECTRA (signs) better than MLM (signs)"] == "not counted (MLM: on the plateau)"
    assert not on_plateau(rows, "ELECTRA") and not on_plateau(rows, "T5 random spans")
    worse = cells("T5 random spans", (0.20, 0.31, 0.39)) + cells("T5 prefix LM", (0.30, 0.40, 0.50))
    found = {claim: text for _, claim, text in verdicts(worse)}
    assert found["T5 random spans (signs) better than T5 prefix LM (signs)"].startswith("reversed (-0.1000")


def test_what_would_decide_a_claim():
    rows = cells("T5 random spans", (0.30, 0.40, 0.50)) + cells("T5 deshuffling", (0.50, 0.20, 0.60))
    rows += cells("T5 prefix LM", (0.20, 0.31, 0.39))
    (plan,) = replication.plans([dict(row, seconds=90.0) for row in rows])
    assert plan.claim.name == "T5 random spans (signs) better than T5 deshuffling (signs)"
    differences = np.array([-0.2, 0.2, -0.1])
    assert plan.effect == pytest.approx(4 / 7 * differences.mean() / differences.std(ddof=1))
    assert plan.minutes == plan.seeds * 3
    assert power(plan.effect, plan.seeds - 1, 0.05 / 3) < 0.8 <= power(plan.effect, plan.seeds, 0.05 / 3)


def test_fresh_seeds_are_tested_when_all_are_measured():
    rows = [
        dict(row, seconds=90.0)
        for row in cells("T5 random spans", (0.3, 0.4, 0.6)) + cells("T5 deshuffling", (0.3, 0.3, 0.3))
    ]
    planned = replication.cells(rows)
    assert {seed for _, seed in planned} == set(range(3, 3 + replication.plans(rows)[0].seeds))
    fresh = [
        dict(rows[0], setting=name, seed=seed, signs=0.5 + seed / 100 if "random" in name else 0.4)
        for name, seed in planned
    ]
    assert "as in the paper" in replication.section(rows, fresh)[-1]
    seeds = len(planned) // 2
    assert replication.section(rows, fresh[:-1])[-1].endswith(f"| {seeds - 1} of {seeds} seeds are measured |")


def test_a_measure_that_random_models_reach_and_pairs_at_chance_do_not_count():
    rows = cells("SOP", (0.3, 0.4, 0.6)) + cells("NSP", (0.1, 0.1, 0.1))
    for row in rows:
        row["similarity"] = row["signs"]
    claim = "SOP (similarity) better than NSP (similarity)"
    assert {claim: text for _, claim, text in verdicts(rows)}[claim].startswith("undecided")  # its power is not known
    for row in rows[:3]:
        row["held_out"]["sentence_pair_accuracy"] = 0.52
    assert {claim: text for _, claim, text in verdicts(rows)}[claim] == "not counted (SOP: sentence pairs at chance)"
    for row in rows[:3]:
        row["held_out"]["sentence_pair_accuracy"] = 0.8
    rows += [dict(row, similarity=0.5, setting="no pretraining, encoder", steps=0) for row in rows[:3]]
    rows += [dict(row, similarity=0.5 + row["seed"] / 10, setting="MLM") for row in rows[:3]]
    assert not has_power(rows, "similarity") and has_power(rows, "held out")
    found = {claim: text for _, claim, text in verdicts(rows)}[claim]
    assert found == "not counted (similarity: no power)"


def test_the_report_of_a_few_cells(tmp_path):
    rows = [
        {
            **{"setting": name, "seed": seed, "steps": 7, "tokens": 70, "teraflops": 1.6, "seconds": 30.0},
            **{"similarity": 0.5 + seed / 100, "signs": 0.3 + seed / 100},
            "held_out": {"mlm_loss": 5.0} if name == "ELECTRA" else {"perplexity": np.e**4},
            **({"fine-tuned": 0.3, "fine-tuned, BiLSTM": 0.2} if name == "MLM" else {}),
        }
        for name in ("MLM", "ELECTRA")
        for seed in (1, 0)
    ]
    picture, text = report(rows, tmp_path / "study")
    assert picture.read_bytes().startswith(b"\x89PNG")
    found = text.read_text()
    assert "4 trainings (2 seeds of each model) took 2 minutes" in found
    assert "Of 21 claims: 1 undecided, 20 not measured." in found
    row = "| MLM | 7 | 70 | 0.3050 ± 0.0071 | 0.5050 ± 0.0071 | 4.0000 ± 0.0000 |"
    assert f"{row}\n" in found and f"{row} 0.3000 ± 0.0000 | 0.2000 ± 0.0000 |" in found
    assert "| ELECTRA | 7 | 70 |" in found and "5.0000" in found
    assert "- MLM (fine-tuned) better than left to right (fine-tuned, BiLSTM): not measured." in found
    assert values_of(rows, "MLM", "signs").tolist() == [0.3, 0.31]
    assert len(values_of(rows, "ELECTRA", "fine-tuned")) == 0
