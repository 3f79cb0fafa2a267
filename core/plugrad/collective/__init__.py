"""All-reduce over processes, by which the learners of a group exchange gradients and metrics.

It takes numpy arrays, so that every backend can use it, and gives all processes the same bits. Processes of one machine
share memory (`shared_memory`), others use sockets (`sockets`). A collective that failed once cannot be used again: its
processes join a new one.
"""

from plugrad.collective.base import Address, Collective
from plugrad.collective.rendezvous import SHARED_MEMORY, SOCKETS, host, join

__all__ = ["SHARED_MEMORY", "SOCKETS", "Address", "Collective", "host", "join"]
