"""`Placement`: where Ray puts the actors of a group: in bundles of a placement group, packed or spread over nodes."""

from collections.abc import Mapping
from typing import Any

from plugrad.errors import ConfigError
from plugrad.workers.actors import Actor, start_actor
from plugrad.workers.ray_cluster import check_raylet, is_started_here


class Placement:
    """Starts equal actors, each in a bundle of CPUs, GPUs and other resources that Ray has reserved for it.

    An actor that has ended leaves its bundle to the next one. If a node is lost, Ray reserves its bundles on others.
    Bundles are kept until `release`.

    Args:
        ray: the module.
        strategy: "pack" (as few nodes as possible), "spread" (as many as possible) or None (where Ray likes, with no
            bundles).
        resources: what each actor asks for: the options `num_cpus`, `num_gpus` and `resources` of Ray.
        what: the setting, its value and what it places, for errors.
        smaller: what to type for actors that ask for less, for errors.
        timeout_s: seconds to wait for the bundles.
    """

    def __init__(
        self,
        ray: Any,
        strategy: str | None,
        resources: Mapping[str, Any],
        *,
        what: str,
        smaller: str,
        timeout_s: float,
    ) -> None:
        self._ray = ray
        self._strategy = strategy
        self._resources = resources
        self._what = what
        self._smaller = smaller
        self._timeout_s = timeout_s
        self._groups: list[Any] = []
        self._holders: dict[tuple[int, int], Actor | None] = {}

    @property
    def bundle(self) -> dict[str, float]:
        """What each actor asks for, `{resource: amount}`."""
        named = {"CPU": self._resources["num_cpus"], "GPU": self._resources.get("num_gpus", 0)}
        return {
            name: each for name, each in {**named, **(self._resources.get("resources") or {})}.items() if each
        }

    def reserve(self, number: int) -> None:
        """Have a bundle for each of so many actors; nothing is done without a strategy.

        Args:
            number: of all actors that may be there at once, with those that already are.

        Raises:
            ConfigError: the cluster does not have them within `timeout_s`.
            LearnerGroupDeadError: Ray itself is gone.
        """
        check_raylet(self._ray)
        if self._strategy is None or (not self.bundle and is_started_here(self._ray)):
            return  # a Ray that was started here has one node: it is packed, and cannot be spread
        if not self.bundle:
            raise self._error(number, "there is nothing to reserve")
        late = f"Ray has not reserved them in timeout_s={self._timeout_s:g}"
        if (more := number - len(self._holders)) > 0:
            bundles = [self.bundle] * more
            group = self._ray.util.placement_group(bundles, strategy=self._strategy.upper())
            if not group.wait(self._timeout_s):
                self._ray.util.remove_placement_group(group)
                raise self._error(number, late)
            self._holders |= {(len(self._groups), index): None for index in range(more)}
            self._groups.append(group)
        elif not all(group.wait(self._timeout_s) for group in self._groups):  # a node was lost
            raise self._error(number, late)

    def _error(self, number: int, why: str) -> ConfigError:
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        room = [
            min((node.get(name, 0) // each for name, each in self.bundle.items()), default=0)
            for node in nodes
        ]
        free = _written(self._ray.available_resources())
        each = "; ".join(f"node {i}: {_written(node)}" for i, node in enumerate(nodes))
        fitting = f"; the nodes have room for {sum(room):g}" if self.bundle else ""
        return ConfigError(
            f"{self._what}: {number} bundles of {_written(self.bundle)} each were asked for, and {why}. The "
            f"cluster has {each}. Free are: {free}{fitting}. "
            f"Type {self._smaller}, or add nodes",
            asked=[self.bundle] * number,
            found=nodes,
        )

    def start(self, actor_class: type[Any], arguments: tuple[Any, ...]) -> Actor:
        """Start an actor, in a bundle that is free, without waiting for it.

        Args:
            actor_class: its class.
            arguments: of the class.

        Returns:
            The actor.

        Raises:
            LearnerGroupDeadError: Ray itself is gone.
        """
        free = next((at for at, holder in self._holders.items() if holder is None or holder.is_ended), None)
        options = dict(self._resources)
        if free is not None:
            group, index = free
            options["scheduling_strategy"] = (
                self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
                    self._groups[group], index
                )
            )
        actor = start_actor(self._ray, actor_class, arguments, options)
        if free is not None:
            self._holders[free] = actor
        return actor

    def release(self) -> None:
        """Give the bundles back; what still runs in them is ended."""
        groups, self._groups, self._holders = self._groups, [], {}
        for group in groups if self._ray.is_initialized() else ():
            self._ray.util.remove_placement_group(group)


def _written(resources: Mapping[str, float]) -> str:
    """Amounts in words, such as "2 CPU, 1 GPU"; without memory and without Ray's own markers of nodes."""
    shown = {
        name: each
        for name, each in resources.items()
        if ":" not in name and "memory" not in name and "_group_" not in name
    }
    return ", ".join(f"{each:g} {name}" for name, each in sorted(shown.items())) or "nothing"
