"""Turns on XLA's disk cache of compiled programs, in the user's cache folder, unless the user has configured it.

This is the only setting that is made for the whole process.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

from plugrad.hooks.backend_helpers import program_folder_or_none

_config: Any = jax.config
_FOLDER, _LEAST_SECONDS = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"


def use_folder() -> None:
    """Set the cache folder, unless a setting or an environment variable does, or it cannot be used."""
    if getattr(_config, _FOLDER) is None and (folder := program_folder_or_none("jax")) is not None:
        _config.update(_FOLDER, str(folder))


@contextmanager
def programs_are_kept() -> Iterator[None]:
    """Cache every program that the block compiles; by default JAX caches those that take a second or more."""
    least = getattr(_config, _LEAST_SECONDS)
    _config.update(_LEAST_SECONDS, 0.0)
    try:
        yield
    finally:
        _config.update(_LEAST_SECONDS, least)
