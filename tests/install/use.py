"""The first steps of a user, with only the wheel and one backend installed: train, save, load, predict."""

from pathlib import Path

import numpy as np

import kerasbert
from kerasbert.models import Bert, BertConfig
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import TextClassifier

assert Path(kerasbert.__file__).is_relative_to(Path.cwd() / "venv"), kerasbert.__file__

documents = ["The cat sat on the mat.\nThen it slept.", "A dog ran home.\nIt was hungry."] * 50
tokenizer = kerasbert.data.Tokenizer.train("wordpiece", documents, vocabulary_size=60, lowercase=True)
corpus = kerasbert.data.Corpus.write("corpus", documents, tokenizer)
config = BertConfig(
    vocabulary_size=tokenizer.vocabulary_size, num_layers=1, hidden_dim=32, num_heads=2, feed_forward_dim=64
)
model = MaskedLM(Bert(config), tokenizer=tokenizer)
model.compile(kerasbert.training.adamw(learning_rate=1e-2, warmup=2, steps=60))
history = model.fit(
    kerasbert.data.MaskedLMBatches(corpus, batch_size=8, length=16, steps=60), steps_per_epoch=20, verbose=0
)
assert history.history["loss"][-1] < history.history["loss"][0], history.history
model.save_to_preset("pretrained")

texts, labels = ["the cat slept.", "a dog ran."] * 16, ["cats", "dogs"] * 16
classifier = TextClassifier.from_preset("pretrained", labels=["cats", "dogs"])
classifier.compile(kerasbert.training.adamw(learning_rate=5e-3))
classifier.fit(texts, labels, batch_size=8, epochs=6, verbose=0)
classifier.save_to_preset("classifier")
again = kerasbert.load("classifier")
np.testing.assert_array_equal(again.predict(texts[:4]), classifier.predict(texts[:4]))
answers = again.classify(["the cat slept.", "a dog ran."])
assert [answer["label"] for answer in answers] == ["cats", "dogs"], answers
