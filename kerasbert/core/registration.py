"""Makes the classes of this package known to Keras without importing them.

`import kerasbert; keras.models.load_model("model.keras")` finds them, as does every lookup of registered names: a
stand-in is registered for each class, and imports the class on first use.
"""

import importlib
import importlib.abc
import importlib.util
import sys

# Module -> the classes in it that are registered with Keras as "kerasbert>NAME".
CLASSES = {
    "kerasbert.models": (
        "Albert Bert Deberta DebertaV2 DistilBert Electra Elmo GPT GPT2 MobileBert ModernBert ModernBertDecoder "
        "Roberta Seq2SeqAttention T5 Transformer TransformerXL WordVectors XLM XLNet"
    ),
    "kerasbert.core.initializers": "CountedZeros",
    "kerasbert.objectives": (
        "BidirectionalLM CausalLM Discriminator Distillation KnowledgeTransfer MaskedLM PermutationLM "
        "ReplacedTokenDetection Seq2SeqLM SkipGram SpanBoundary"
    ),
    "kerasbert.tasks": "MultiTask MultipleChoice QuestionAnswerer TextClassifier TextEmbedder TokenClassifier",
    "kerasbert.tasks.token_classifier": "TokenAccuracy",
    "kerasbert.training.optimizers": "LossScale TransformerAdamW",
    "kerasbert.training.progressive": "ProgressiveAdamW ProgressiveLamb",
    "kerasbert.training.schedules": "InverseSquareRoot RootDecay WarmupDecay",
    "kerasbert.training.tensor_scaled": "StableAdamW TransformerAdafactor TransformerLamb",
}


class Deferred:
    """A stand-in for a class, which it imports on first use.

    Args:
        module: the module of the class.
        name: the name of the class.
    """

    def __init__(self, module, name):
        self.__name__ = name
        self._place = module, name

    def __getattr__(self, attribute):
        return getattr(self.resolve(), attribute)

    def __call__(self, *args, **kwargs):
        return self.resolve()(*args, **kwargs)

    def resolve(self):
        """Returns the class. Importing its module registers it."""
        module, name = self._place
        return getattr(importlib.import_module(module), name)


class _AfterKeras(importlib.abc.MetaPathFinder):
    """Registers the stand-ins as soon as Keras has been imported."""

    def find_spec(self, name, path=None, target=None):
        if name != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("keras")
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module):
                load(module)
                register(module)

            spec.loader.exec_module = load_and_register
        return spec


def register(keras):
    """Registers a stand-in for each class that is not registered yet."""
    known = keras.saving.get_custom_objects()
    for module, names in CLASSES.items():
        for name in names.split():
            known.setdefault(f"kerasbert>{name}", Deferred(module, name))


def register_with_keras():
    """Registers the stand-ins, now or as soon as Keras has been imported."""
    keras = sys.modules.get("keras")
    if keras is None:
        sys.meta_path.insert(0, _AfterKeras())
    elif hasattr(keras, "saving"):
        register(keras)
