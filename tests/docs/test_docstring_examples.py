"""The examples in docstrings give the outputs that they show. The names below must have one."""

import doctest
import importlib
import inspect

import pytest

import kerasbert

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
# An export takes half a minute; tests/exporting has small ones.
SLOW = {"kerasbert.export"}


def public_objects():
    """{name: class or function} of all public modules; an object with two names has the shorter one."""
    found = {}
    for name in sorted(kerasbert.__all__, key=lambda name: inspect.ismodule(getattr(kerasbert, name))):
        value = getattr(kerasbert, name)
        public = getattr(value, "__all__", None)
        if public is None:  # kerasbert.metrics has none, and of the others the docstrings are not listed
            public = [each for each, item in vars(value).items() if getattr(item, "__module__", "") == value.__name__]
        pairs = [(name, value)] if not inspect.ismodule(value) else [(f"{name}.{n}", getattr(value, n)) for n in public]
        for public_name, item in pairs:
            if callable(item) and item not in found.values():
                found[f"kerasbert.{public_name}"] = item
    return found


def examples_of(docstring):
    return doctest.DocTestParser().get_examples(docstring or "")


EXAMPLES = {name: value for name, value in public_objects().items() if examples_of(inspect.getdoc(value))}


def test_the_most_used_names_have_an_example():
    assert set(EXAMPLES) == WANTED


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples_are_short_and_begin_with_imports(name):
    """They stand in a section at the end of the docstring, which the pages show as code."""
    before, _, section = inspect.getdoc(EXAMPLES[name]).rpartition("\nExample:\n")
    assert before and ">>> " not in before and all(not line or line.startswith("    ") for line in section.split("\n"))
    code = [example.source for example in examples_of(section)]
    assert 3 <= len(code) <= 11
    first = next(i for i, line in enumerate(code) if not line.startswith(("import ", "from ")))
    imports = [line for line in code if line.startswith(("import ", "from "))]
    assert imports == code[:first]
    for line in imports:
        exec(line, {})


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - SLOW))
def test_examples_give_their_outputs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    importlib.import_module("kerasbert.objectives")  # registers the families
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(EXAMPLES[name]), {}, name, None, 0)
    failures = []
    doctest.DocTestRunner(verbose=False).run(test, out=failures.append)
    assert not failures, "".join(failures)
