"""Which collective a group uses: the one that the config names, or with "auto" the first usable one."""

from plugrad.collective import Place
from plugrad.errors import ConfigError, PlugradError
from plugrad.hooks.registry import load_collective

AUTO = "auto"
IN_ORDER = ("shared_memory", "gloo", "ray")
"""What "auto" tries. Third-party collectives are used only if they are named."""


def choose_collective(name: str, place: Place) -> str:
    """The collective to use.

    Args:
        name: a collective's name, or "auto".
        place: where the learners are.

    Returns:
        Its name.

    Raises:
        ConfigError: there is no collective with this name, or it cannot be used there; with "auto", none can.
        MissingFrameworkError: what it needs is not installed.
        PluginError: it fails to load.
    """
    if name != AUTO:
        reason = load_collective(name).why_not(place)
        if reason is not None:
            raise ConfigError(f"collective={name!r} cannot be used here: {reason}")
        return name
    reasons = {each: _why_not(each, place) for each in IN_ORDER}
    for each, reason in reasons.items():
        if reason is None:
            return each
    words = "; ".join(f"{each}: {reason}" for each, reason in reasons.items())
    raise ConfigError(f"collective='auto': none can be used here. {words}")


def _why_not(name: str, place: Place) -> str | None:
    try:
        return load_collective(name).why_not(place)
    except PlugradError as error:
        return str(error)
