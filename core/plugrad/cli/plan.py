"""`plugrad doctor --learners N`: where remote learners will be. It imports no framework and needs no machine."""

import platform
from dataclasses import dataclass

from plugrad.collective import Place
from plugrad.errors import ConfigError
from plugrad.hooks.plugin_records import PluginRecord
from plugrad.hooks.registry import IN_ORDER, load_collective


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Where the learners of a group will be.

    Args:
        learners: their number, from 1.
        env_runners: number of env runners in Ray.
        gpus: GPUs of all machines together; learners share them equally.
        machines: number of machines, which are assumed to be equal, and like this one.
        placement: as the setting.

    Raises:
        ConfigError: machines have different numbers of GPUs.
    """

    learners: int
    env_runners: int = 0
    gpus: int = 0
    machines: int = 1
    placement: str = "pack"

    def __post_init__(self) -> None:
        if self.gpus % self.machines:
            raise ConfigError(
                f"--gpus {self.gpus} on --machines {self.machines}: machines are planned with equal numbers of GPUs; "
                f"type --gpus {self.gpus - self.gpus % self.machines or self.machines}"
            )

    @property
    def gpus_per_learner(self) -> float:
        """As many as each can have on one machine; a share of one where there are fewer GPUs than learners."""
        each = self.gpus // self.machines
        if self.gpus < self.learners:
            return round(1 / -(-self.learners // self.gpus), 4) if self.gpus else 0
        return max(n for n in range(1, each + 1) if self.machines * (each // n) >= self.learners)

    @property
    def room(self) -> int:
        """How many learners a machine has GPUs for; all of them where none has a GPU."""
        each, gpus = self.gpus // self.machines, self.gpus_per_learner
        return int(each // gpus if gpus >= 1 else each * round(1 / gpus)) if gpus else self.learners

    @property
    def layout(self) -> list[int]:
        """How many learners each machine gets, as Ray's placement group lays them out on empty machines."""
        if self.placement == "spread":
            some, more = divmod(self.learners, self.machines)
            return [some + (machine < more) for machine in range(self.machines)]
        left = (self.learners - machine * self.room for machine in range(self.machines))
        return [max(0, min(self.room, each)) for each in left]

    @property
    def place(self) -> Place:
        """For the choice of a collective."""
        hosts = sum(number > 0 for number in self.layout)
        return Place(self.learners, hosts, platform.machine(), self.gpus_per_learner)

    def sections(self, records: list[PluginRecord]) -> list[tuple[str, list[str]]]:
        """The plan as `(title, lines)`.

        Args:
            records: of the plugins that are installed.
        """
        return [
            ("plan", self._lines(records)),
            ("missing", self._missing(records) or ["nothing on this machine"]),
            ("what to type", [self._typed()]),
        ]

    def _lines(self, records: list[PluginRecord]) -> list[str]:
        gpus = self.gpus_per_learner
        lines = [f"bundles     {self.learners} x {{CPU: 1{f', GPU: {gpus:g}' if gpus else ''}}} for learners"]
        if self.env_runners:
            lines.append(f"            {self.env_runners} x {{CPU: 1}} for env runners")
        for machine, number in enumerate(self.layout):
            of_gpus = f", {number * gpus:g} of {self.gpus // self.machines} GPUs" if gpus else ""
            words = f"{number} learner{'s' * (number != 1)}: {number} CPU{of_gpus}"
            lines.append(f"machine {machine}   {words if number else 'no learner'}")
        lines += [f"CPUs        {self.learners + self.env_runners} in all, beside the driver's"]
        if idle := self.gpus - self.learners * gpus if gpus >= 1 else 0:
            lines.append(
                f"idle        {idle:g} GPUs: {self.gpus} are no multiple of {self.learners} learners"
            )
        return [*lines, *self._collective(records)]

    def _collective(self, records: list[PluginRecord]) -> list[str]:
        if self.learners == 1:
            return ["collective  none: one learner sums nothing"]
        name = auto_collective(self.place, records)
        lines = [
            f'collective  {name}: what "auto" takes for learners on {self.place.num_hosts} of these machines'
        ]
        if self.gpus_per_learner >= 1:
            lines.append('            "nccl" keeps sums on the GPUs; it is used only if it is named')
        elif self.gpus:
            lines.append('            not "nccl": it needs a GPU of its own for each learner')
        return lines

    def _missing(self, records: list[PluginRecord]) -> list[str]:
        needed = {each.name: each for each in records if each.kind == "collective"}
        ray = needed["ray"]
        lines = [] if ray.installed else [f"ray: remote learners are its actors: {ray.command}"]
        backends = [each for each in records if each.kind == "backend" and each.requires is not None]
        if not any(each.installed for each in backends):
            lines.append(f"a framework: {' or '.join(each.command for each in backends)}")
        gloo = needed["gloo"]
        if not gloo.installed and self.place.num_hosts > 1:
            lines.append(f"{gloo.requires}, for sums by gloo between machines: {gloo.command}")
        return lines

    def _typed(self) -> str:
        gpus = f", num_gpus_per_learner={self.gpus_per_learner:g}" if self.gpus else ""
        runners = f".env_runners(num_env_runners={self.env_runners})" if self.env_runners else ""
        learners = f'.learners(num_learners={self.learners}{gpus}, placement="{self.placement}")'
        return f"config{learners}{runners}"


def auto_collective(place: Place, records: list[PluginRecord]) -> str:
    """The collective that "auto" takes, as far as metadata says: what needs a framework is not loaded.

    Args:
        place: where the learners are.
        records: of the plugins that are installed.

    Returns:
        Its name.
    """
    known = {each.name: each for each in records if each.kind == "collective" and each.installed}
    usable = (
        name
        for name in IN_ORDER
        if name in known and (known[name].requires or load_collective(name).why_not(place) is None)
    )
    return next(usable, "none that is installed")
