"""`Nccl`: a collective over NVIDIA's NCCL, which keeps gradients on the GPUs. It has never run: see `Nccl`."""

from collections.abc import Sequence
from contextlib import suppress
from threading import Event, Thread
from time import sleep
from typing import Any

import numpy as np
import torch
from torch import distributed

from plugrad.collective import Collective, Membership, Place
from plugrad.errors import CollectiveError
from plugrad.types import Array
from plugrad_collectives.contacts import ContactStore

_POLL_S = 1e-4


class Nccl(Collective):
    """A collective over torch's NCCL, for learners with a GPU each. Used only if it is named, never by "auto".

    It is written after torch's documentation and has never run: no machine with a GPU was at hand. Its test is skipped
    where there are fewer than two. It should take and return tensors on the GPU, or numpy arrays, which it copies
    to the GPU and back. It makes its own process group and leaves torch's default group to the user.
    """

    requires = "torch"
    devices = frozenset({"cuda"})

    def __init__(self, membership: Membership) -> None:
        super().__init__(membership)
        self._store = ContactStore()
        self._connected = Event()
        self._group: Any = None
        self._error: Exception | None = None
        self._count = 0

    @classmethod
    def why_not(cls, place: Place) -> str | None:
        """See `Collective`."""
        if not (distributed.is_available() and distributed.is_nccl_available()):
            return 'this torch was built without NCCL; type learners(collective="gloo")'
        if place.num_gpus_per_process < 1:
            return (
                "NCCL needs a GPU for each learner; type learners(num_gpus_per_learner=1), or "
                'learners(collective="gloo")'
            )
        return None

    def contact(self) -> bytes:
        """See `Collective`: NCCL's id of the group, which rank 0 makes."""
        Thread(target=self._connect, name="plugrad-nccl", daemon=True).start()
        if self.rank:
            return b""
        contact = self._store.read_contact(self.timeout_s)
        if contact is None:
            raise self.failure or CollectiveError(f"NCCL makes no group: {self._error}")
        return contact

    def enter(self, contacts: Sequence[bytes]) -> None:
        """See `Collective`."""
        deadline = self.deadline()
        self._store.enter(contacts)
        while not self._connected.wait(0.02):
            self.check(deadline, None)
        if self._error is not None:
            self.check(deadline, None)
            raise CollectiveError(f"learner {self.rank} cannot reach the others: {self._error}")

    def _connect(self) -> None:
        """Make the group and use it once: NCCL connects when it is first used."""
        try:
            group: Any = distributed.ProcessGroupNCCL
            self._group = group(self._store, self.rank, self.size, group.Options())
            self._group.allreduce([torch.zeros(1, device="cuda")]).wait()
            torch.cuda.synchronize()
        except Exception as error:
            self._error = error
            self._store.close()
        self._connected.set()
        if self.failure is not None:  # an abort in the meantime found no group
            self._disconnect()

    def sum(self, array: Any) -> Any:
        """See `Collective`. Takes a numpy array, or a tensor on the GPU and returns one."""
        tensor = torch.from_numpy(np.array(array)).cuda() if isinstance(array, np.ndarray) else array.clone()
        try:
            self._check_headers(tensor)
            self._wait(self._group.allreduce([tensor]))
        except BaseException:
            self._disconnect()
            raise
        if not isinstance(array, np.ndarray):
            return tensor
        total: Array = tensor.cpu().numpy()
        return total

    def _check_headers(self, tensor: torch.Tensor) -> None:
        """Raise unless all bring the same: NCCL would wait, or write behind the end of an array."""
        self._count += 1
        own = torch.tensor([self._count, tensor.numel(), sum(str(tensor.dtype).encode())], device="cuda")
        found = torch.empty(self.size * 3, dtype=own.dtype, device="cuda")
        self._wait(self._group._allgather_base(found, own))
        for rank, header in enumerate(found.view(self.size, 3).tolist()):
            if header != own.tolist():
                raise CollectiveError(
                    f"learner {rank} brought {header[1]} values as exchange no. {header[0]}, learner {self.rank} "
                    f"{tensor.numel()} of {tensor.dtype} as no. {self._count}: they do not compute the same thing",
                    rank=rank,
                )

    def _wait(self, work: Any) -> None:
        deadline = self.deadline()
        while not work.is_completed():
            self.check(deadline, None)
            sleep(_POLL_S)
        work.wait()

    def abort(self, reason: str) -> None:
        """See `Collective`. The other processes wait until their timeout."""
        super().abort(reason)
        self._store.close()
        self._disconnect()

    def _disconnect(self) -> None:
        group = self._group
        if group is not None:
            with suppress(RuntimeError):
                group.abort()

    def close(self) -> None:
        """See `Collective`."""
        self.leave()
        self._group = None
