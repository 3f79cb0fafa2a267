"""Target networks: copies of a module's parameters that follow the module and that no optimizer steps.

Their values are one variable of the backend, so a traced loss reads the current values. They are part of the learner's
state, and a failed update restores them.
"""

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from plugrad.config import Config
from plugrad.errors import ConfigError, did_you_mean
from plugrad.gradients import FlatVariable, Layout
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.ops import Variable
from plugrad.optimizers import StepCount
from plugrad.rl_module.outputs import Outputs
from plugrad.rl_module.precision import computing_in
from plugrad.types import Array, ModuleID, ParamRef, Tensor

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

LAST_TARGET_UPDATE_TS = "last_target_update_ts"
LAST_TARGET_UPDATE_ROWS = "last_target_update_rows"
"""The same counted in trained rows: a learner may be updated without timesteps first, and with them later."""
NUM_TARGET_UPDATES = "num_target_updates_lifetime"

_log = logging.getLogger("plugrad")


class TargetNetwork:
    """A frozen copy of some or all parameters of one module, initially equal to them.

    When weights are loaded into the module and none into the target network, it becomes equal to them again: it would
    belong to the weights that were replaced.

    Args:
        learner: the learner, with modules and optimizers.
        module_id: the module.
        names: names of the parameters. Parameters that no optimizer steps are not copied: the module's own are used.
        every: gradient steps between two target updates inside the program; None: no updates there.

    Raises:
        ConfigError: the module has no parameter with such a name, or cannot compute with other weights than its own.
    """

    def __init__(
        self,
        learner: "Learner",
        module_id: ModuleID,
        names: Collection[str],
        every: int | None = None,
    ) -> None:
        self._learner = learner
        self._module_id = module_id
        self._check(names)
        present = self._followed()
        refs = tuple(ref for ref in present if self._name(ref) in names)
        self._names = tuple(map(self._name, refs))
        shapes = tuple(tuple(learner.ops.shape(present[ref])) for ref in refs)
        self._layout = Layout(refs, shapes, max(each.layout.multiple for each in self._sources()))
        self.variable: Variable = learner._get_tensor_variable(np.zeros(self._layout.size, np.float32))
        self.variable.assign(self._present())
        self._num_loads = self._module_loads
        self._steps = None if every is None else StepCount(every, learner._get_tensor_variable)

    @property
    def variables(self) -> list[Variable]:
        """The copy, and the count of gradient steps if one is needed."""
        return [self.variable, *(self._steps.variables if self._steps else ())]

    @property
    def _module_loads(self) -> int:
        return self._learner.module[self._module_id]._num_loads

    def follow_loads(self) -> None:
        """Become equal to weights that were loaded into the module since the last call, in whatever way."""
        if self._num_loads != self._module_loads:
            self.keep()
            present, former = self._present(), self.variable.numpy()
            self.variable.assign(present)
            if not np.array_equal(self.variable.numpy(), former):
                _log.info(
                    "module %r: its target network follows the weights that were loaded", self._module_id
                )

    def keep(self) -> None:
        """Do not follow the weights that were loaded: this copy has been set too."""
        self._num_loads = self._module_loads

    def _check(self, names: Collection[str]) -> None:
        known = self._learner.module[self._module_id].get_state()
        for name in names:
            if name not in known:
                raise ConfigError(
                    f"target network of module {self._module_id!r}: no parameter {name!r} in {', '.join(known)}."
                    f"{did_you_mean(name, known)}"
                )
        with self._learner.module[self._module_id].functional_call({}):
            pass

    def forward(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run the module's `forward_train` on a batch with these weights; no gradient flows back. Traced.

        It runs in inference mode: Dropout is off, and normalisation uses the module's current statistics without
        changing them.

        Args:
            batch: `{column: tensor [B, ...]}`, such as `{"obs": batch["new_obs"]}`.

        Returns:
            `{column: tensor [B, ...]}`.
        """
        module = self._learner.module[self._module_id]
        # In float32 with any `precision`: the differences of a target network's steps are smaller than bfloat16's.
        with computing_in([module], None), module.functional_call(self._weights()):
            outputs = self._constants(module.in_mode(False, module.forward_train, batch))
        return outputs if module.network is not None else Outputs(module.class_name, outputs)

    def _constants(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """The columns without gradients; a recurrent state is a dict of its own."""
        stop = self._learner.ops.stop_gradient
        return {
            name: self._constants(each) if isinstance(each, Mapping) else stop(each)
            for name, each in columns.items()
        }

    def update(
        self, *, tau: Any = 1.0, every: int = 0, now: int = 0, counted: str = LAST_TARGET_UPDATE_TS
    ) -> bool:
        """Set the target to tau * parameters + (1 - tau) * target, if an update is due.

        Sources: Lillicrap et al. 2016, arXiv:1509.02971, algorithm 1; Mnih et al. 2015,
        doi:10.1038/nature14236 (tau = 1).

        Call it in `after_gradient_based_update`, outside the program; a failed update undoes it. In an override or a
        wrapper of `apply_gradients`, it runs after each gradient step, also in compiled programs, and also after a step
        that `nonfinite="skip"` skips. Do not give `every` and `now` there: they and the counters of target updates are
        Python numbers, which a program does not change. `target_update="step"` does the same with a count.

        Args:
            tau: in (0, 1], a float or a scalar tensor; 1.0 copies the parameters.
            every: update only if `now` has grown by this much since the last target update.
            now: timesteps or updates so far, in the same unit as `every`. If it has gone back, it counts from 0 again.
            counted: name of the counter that keeps `now`; each unit has its own.

        Returns:
            Whether the target was updated.
        """
        self._learner._keep_for_undo()
        counters = self._learner.counters
        last, number = f"{counted}/{self._module_id}", f"{NUM_TARGET_UPDATES}/{self._module_id}"
        before = counters.get(last, 0)
        if now - (before if before <= now else 0) < every:
            return False
        self.variable.assign(self._moved(tau))
        counters[last], counters[number] = int(now), counters.get(number, 0) + 1
        return True

    def _moved(self, tau: Any) -> Tensor:
        present = self._present()
        is_copy = isinstance(tau, float) and tau == 1.0
        return present if is_copy else tau * present + (1.0 - tau) * self.variable.read()

    def follow_step(self) -> None:
        """Update the target after a gradient step, if `target_update="step"` is set and it is due. Traced."""
        if self._steps is not None:
            guard = self._steps.count(self._learner.ops, self._learner.guard)
            tau = getattr(self._learner.config_view(self._module_id), "tau", 1.0)
            self.variable.assign(guard(self._moved(tau), self.variable.read()))

    def follow_update(self, timestep: int | None) -> None:
        """Update the target after an update, if `target_update="update"` is set and it is due.

        Args:
            timestep: environment steps so far; None: trained rows are counted instead.
        """
        learner, module_id = self._learner, self._module_id
        if not moves_after_updates(learner, module_id):
            return
        config = learner.config.get_config_for_module(module_id)
        trained = learner.counters.get(f"num_module_steps_trained_lifetime/{module_id}", 0)
        now, unit = (
            (trained, LAST_TARGET_UPDATE_ROWS) if timestep is None else (timestep, LAST_TARGET_UPDATE_TS)
        )
        if unit == LAST_TARGET_UPDATE_ROWS and f"{unit}/{module_id}" not in learner.counters:
            # Older checkpoints count both units in one counter.
            older = learner.counters.get(f"{LAST_TARGET_UPDATE_TS}/{module_id}", 0)
            learner.counters[f"{unit}/{module_id}"] = older if older <= now else 0
        self.update(tau=config.tau, every=config.target_network_update_freq, now=now, counted=unit)

    def get_state(self) -> dict[str, Array]:
        """`{parameter name: float32 copy}`, and the count of gradient steps if it is updated in every n-th."""
        self.follow_loads()
        parts = self._layout.arrays(self.variable.numpy())
        weights = {self._name(ref): part.copy() for ref, part in parts.items()}
        return {**weights, **(self._steps.get_state() if self._steps else {})}

    def set_state(self, state: Mapping[str, Array]) -> None:
        """Load arrays from `get_state`, which `plugrad.learner.state.state` has checked."""
        self.variable.assign(self._layout.vector({ref: state[self._name(ref)] for ref in self._layout.refs}))
        self.keep()
        if self._steps is not None:
            self._steps.set_state(state)

    def _weights(self) -> dict[str, Tensor]:
        values = self._layout.split(self._learner.ops, self.variable.read())
        return dict(zip(self._names, values.values(), strict=True))

    def _present(self) -> Tensor:
        """The current values of the followed parameters, flat."""
        for parameters in self._sources():
            if parameters.layout.refs == self._layout.refs:
                return parameters.read()
        return self._layout.join(self._learner.ops, self._followed())

    def _followed(self) -> dict[ParamRef, Tensor]:
        """All parameters of the module that an optimizer steps."""
        ops, prefix = self._learner.ops, f"{self._module_id}/"
        found = [each.layout.split(ops, each.read()) for each in self._sources()]
        return {ref: value for each in found for ref, value in each.items() if ref.startswith(prefix)}

    def _sources(self) -> list[FlatVariable]:
        return [
            each.parameters
            for each in self._learner.registered_optimizers.values()
            if self._module_id in each.modules
        ]

    def _name(self, ref: ParamRef) -> str:
        return ref.removeprefix(f"{self._module_id}/")


def make_target_network(learner: "Learner", module_id: ModuleID, config: Config) -> TargetNetwork | None:
    """The target network of a module.

    Args:
        learner: a learner with modules and optimizers.
        module_id: the module.
        config: the module's config.

    Returns:
        The target network; None if the hook `get_target_parameters` names no parameters.
    """
    names = learner.get_target_parameters(module_id, config)
    return TargetNetwork(learner, module_id, names, steps_between_moves(config)) if names else None


def moves_after_updates(learner: LearnerProtocol, module_id: ModuleID) -> bool:
    """Whether the target network of a module is updated after each update: `target_update="update"`.

    Args:
        learner: that has the target network.
        module_id: whose.
    """
    return getattr(learner.config.get_config_for_module(module_id), "target_update", None) == "update"


def steps_between_moves(config: Any) -> int | None:
    """How often the target network of a module is updated inside the program, by the settings of `OffPolicyConfig`.

    Args:
        config: the module's config; without these settings no target network is updated there.

    Returns:
        Gradient steps from one target update to the next, at least 1; None unless `target_update="step"`.
    """
    if getattr(config, "target_update", None) != "step":
        return None
    return max(1, getattr(config, "target_network_update_freq", 1))
