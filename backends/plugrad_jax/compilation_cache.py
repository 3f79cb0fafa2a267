"""XLA's cache of compiled programs on disk: on, in a folder of the user's cache, unless the user has said otherwise.

It is the only thing that is set for the whole process.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

from plugrad.hooks.backend_helpers import program_folder

log = logging.getLogger("plugrad")
_config: Any = jax.config
_FOLDER, _LEAST_SECONDS = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"


def use_folder() -> None:
    """Name a folder, if no setting and no environment variable does; none where it cannot be made."""
    if getattr(_config, _FOLDER) is None:
        try:
            folder = program_folder("jax")
        except (OSError, RuntimeError) as error:  # read-only, full, or nobody's home
            log.info("jax: compiled updates are not kept on disk: %s", error)
        else:
            _config.update(_FOLDER, str(folder))


@contextmanager
def programs_are_kept() -> Iterator[None]:
    """Keep what is compiled meanwhile, however quickly it was; JAX alone keeps what takes a second."""
    least = getattr(_config, _LEAST_SECONDS)
    _config.update(_LEAST_SECONDS, 0.0)
    try:
        yield
    finally:
        _config.update(_LEAST_SECONDS, least)
