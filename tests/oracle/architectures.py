"""Prints the model types of the installed transformers that generate text: a name, a tab, the type of the text part."""

from transformers import __version__
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.oracle.model import CAUSAL, auto


def text_type(name: str) -> str:
    """The type of the language model inside; the name itself where the default config cannot be built."""
    try:
        return str(CONFIG_MAPPING[name]().get_text_config().model_type)
    except Exception:  # whatever the code raises: then the name alone is looked for
        return name


if __name__ == "__main__":
    print(f"# transformers {__version__}")
    for name in sorted({*CAUSAL, *auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES}):
        print(f"{name}\t{text_type(name)}")
