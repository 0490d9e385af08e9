"""Methods for sharing models: uploads to the Hugging Face Hub, and adapters in the layout of PEFT."""

from os import PathLike

from . import adapters, hub, model_card


class Shared:
    """Adds `push_to_hub`, `save_adapter` and `load_adapter` to a model."""

    def push_to_hub(
        self,
        repository: str,
        card: str | None = None,
        private: bool | None = None,
        token: str | None = None,
        revision: str | None = None,
    ) -> str:
        """Saves the model, with its tokenizer and a model card, to a repository on the Hugging Face Hub.

        Args:
            repository: "org/name". It is created if it does not exist.
            card: text of the model card (README.md). Default: a card that says what the model is and how to use it.
            private: whether a new repository is private. Default: the setting of the account.
            token: access token. Default: the token saved by `hf auth login`, or the environment variable HF_TOKEN.
            revision: branch. Default: main.

        Returns: the URL of the commit.

        Raises:
            ImportError: if `huggingface_hub` is not installed.
            ConnectionError: if the Hub cannot be reached.
        """
        if card is None:
            name = str(repository)
            card = model_card.card(name, name.rpartition("/")[2], model_card.describe(self))
        return hub.upload(self, repository, card, private=private, token=token, revision=revision)

    def save_adapter(self, folder: str | PathLike, base: str | PathLike | None = None) -> None:
        """Writes the LoRA products and the trained head in the layout of PEFT; see `training.add_lora`.

        Args:
            folder: the folder, created if it does not exist.
            base: the model that the adapter was trained on: a folder, or the name of a model on the Hub.

        Raises:
            ValueError: if the model has no LoRA products, trains weights besides them and its head, or has a trained
                head that is quantized.
        """
        adapters.save_adapter(self, folder, base)

    def load_adapter(self, folder: str | PathLike, merge: bool = False) -> None:
        """Adds the LoRA products of an adapter in the layout of PEFT, and loads the head that was trained with them.

        Nothing is changed if the adapter does not fit the model.

        Args:
            folder: a folder with `adapter_config.json` and `adapter_model.safetensors`.
            merge: whether to add the products to the kernels, so that the result is an ordinary model. Otherwise, the
                products are trainable, and the backbone is frozen.

        Raises:
            FileNotFoundError: if the folder lacks `adapter_config.json` or `adapter_model.safetensors`.
            ValueError: if the adapter does not fit the model, its numbers are not finite, a layer already has LoRA
                products, or `merge` is used for a quantized model.
        """
        adapters.load_adapter(self, folder, merge)
