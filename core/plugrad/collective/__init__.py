"""Sums over processes: what the learners of a group exchange while they update.

One job, `all_reduce`, over numpy arrays, so that every backend can use it and all processes get the same bits.
Processes of one machine share memory (`shared_memory`), others talk over sockets (`sockets`). A collective that failed
once is done for: its processes count differently from then on, and join a new one. Knows no learner, no framework and
no Ray.
"""

from plugrad.collective.protocol import Address, Collective
from plugrad.collective.rendezvous import SHARED_MEMORY, SOCKETS, host, join

__all__ = ["SHARED_MEMORY", "SOCKETS", "Address", "Collective", "host", "join"]
