"""What a collective says of itself."""

import platform
from itertools import product

from plugrad.collective import Collective, Place

__all__ = ["test_it_says_what_it_needs", "test_it_says_where_it_can_be_used"]


def test_it_says_where_it_can_be_used(collective_class: type[Collective]) -> None:
    """`why_not` gives None or a sentence, of every place, without an error."""
    machines = {platform.machine(), "x86_64", "aarch64", ""}
    for processes, hosts, machine, gpus in product((1, 2, 64), (1, 3), sorted(machines), (0.0, 0.5, 1.0)):
        place = Place(processes, hosts, machine, gpus)
        reason = collective_class.why_not(place)
        words = f"why_not({place}) gives {reason!r}: it must be None, or a reason in words with what to type instead"
        assert reason is None or (isinstance(reason, str) and " " in reason.strip()), words


def test_it_says_what_it_needs(collective_class: type[Collective]) -> None:
    """`requires` is the name of a distribution or None, and `devices` a frozen set of names."""
    requires, devices = collective_class.requires, collective_class.devices
    assert requires is None or (isinstance(requires, str) and requires), f"requires is {requires!r}"
    assert isinstance(devices, frozenset), f"devices is {devices!r}, not a frozenset"
    assert all(isinstance(each, str) for each in devices), f"devices is {devices!r}, not names"
