"""The examples in docstrings give the outputs that they show. The names below must have one."""

import importlib
import sys

import pytest

from tests.conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "docs" / "_ext"))
examples = importlib.import_module("examples")

pytestmark = pytest.mark.one_backend

NAMES = {
    "kerasbert": "export load",
    "kerasbert.data": "CausalLMBatches Corpus DenoisingBatches MaskedLMBatches RateSchedule Seq2SeqBatches Spans "
    "Tokenizer WholeWords encode_texts read_documents",
    "kerasbert.metrics": "entities f1 retrieval",
    "kerasbert.models": "Backbone Bert",
    "kerasbert.objectives": "CausalLM Distillation MaskedLM PermutationLM ReplacedTokenDetection RetroMAE Seq2SeqLM "
    "SimCSE SkipGram TSDAE",
    "kerasbert.retrieval": "BM25 CoSENT Collection LambdaLoss Matryoshka MultipleNegatives Splade evaluate_retrieval "
    "max_sim mine_hard_negatives search",
    "kerasbert.tasks": "FewShot MultiTask MultiVectorEmbedder MultipleChoice Prompts QuestionAnswerer Reranker SetFit "
    "SparseEmbedder StaticEmbedder TextClassifier TextEmbedder TokenClassifier ZeroShotClassifier",
    "kerasbert.training": "Checkpoints RunLog WarmupDecay adamw add_lora",
}
WANTED = {f"{module}.{name}" for module, names in NAMES.items() for name in names.split()}

EXAMPLES = examples.with_examples()
QUICK = sorted(name for name, docstring in EXAMPLES.items() if not examples.is_slow(docstring))


def test_the_most_used_names_have_an_example():
    assert set(EXAMPLES) == WANTED


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples_are_short_and_begin_with_imports(name):
    """They stand in a section at the end of the docstring, which the pages show as code."""
    before, _, section = EXAMPLES[name].rpartition("\nExample:\n")
    assert before and ">>> " not in before and all(not line or line.startswith("    ") for line in section.split("\n"))
    code = [example.source for example in examples.examples_of(section)]
    assert 3 <= len(code) <= 11
    first = next(i for i, line in enumerate(code) if not line.startswith(("import ", "from ")))
    imports = [line for line in code if line.startswith(("import ", "from "))]
    assert imports == code[:first]
    for line in imports:
        exec(line, {})


@pytest.mark.parametrize("name", QUICK)
def test_examples_give_their_outputs(name):
    """A build of the pages runs the others."""
    assert examples.failures(name, EXAMPLES[name]) == ""


def test_other_outputs_are_failures():
    assert "Expected:\n    3\nGot:\n    2\n" in examples.failures("sum", ">>> 1 + 1\n3\n")
