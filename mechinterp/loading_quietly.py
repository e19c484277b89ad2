"""Loading with transformers and TransformerLens: without their chatter, errors in one line."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging as transformers_logging

from circuits.errors import InputError


@contextmanager
def plain_loading(what: str) -> Iterator[None]:
    """Silences both libraries, and turns whatever they raise into one line.

    Args:
        what: is being loaded, for the message.

    Raises:
        InputError: anything was raised inside.
    """
    bars = transformers_logging.is_progress_bar_enabled()
    level, disabled = transformers_logging.get_verbosity(), logging.root.manager.disable
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:  # They raise many kinds for what they cannot read or reach.
        said = " ".join(str(error).split())[:240].rstrip(".")
        raise InputError(f"{what} cannot be loaded ({type(error).__name__}: {said})") from error
    finally:
        logging.disable(disabled)
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()
