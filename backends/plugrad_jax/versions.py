"""The names of JAX that may change between its versions, and what a version without them goes without.

Imports no JAX: `plugrad doctor` runs this file by itself.
"""

from plugrad.hooks.private_names import PrivateName, lacking_in_files

_NOT_SEEN = (
    "convolutions of a model of yours are not noticed, and stay in XLA's loop, where they are slow on a CPU"
)
CLOSED_JAXPR = PrivateName("jax.extend.core", "ClosedJaxpr", _NOT_SEEN)
JAXPR = PrivateName("jax.extend.core", "Jaxpr", _NOT_SEEN)
CONVOLUTION = PrivateName("jax.extend.core.primitives", "conv_general_dilated_p", _NOT_SEEN)
IS_CONCRETE = PrivateName(
    "jax._src.core", "is_concrete", "outside a program an LSTM or a GRU is traced in each call, some 50 ms"
)
NAMES = (CLOSED_JAXPR, JAXPR, CONVOLUTION, IS_CONCRETE)


def what_is_lost(version: str) -> str:
    """What the installed JAX goes without, by its files.

    Args:
        version: of JAX; the files say it all.

    Returns:
        In words; "" if nothing.
    """
    return lacking_in_files(NAMES)
