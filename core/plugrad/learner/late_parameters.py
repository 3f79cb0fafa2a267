"""Parameters that a user's model adds or unfreezes after the learner was built: no optimizer would train them."""

from collections.abc import Iterable

from plugrad.errors import ConfigError
from plugrad.learner.internals import LearnerInternals
from plugrad.types import ModuleID


def count_parameters(learner: LearnerInternals) -> dict[ModuleID, int]:
    """The number of trained parameters (tensors, not numbers) of each module that the backend can train."""
    return {each: len(learner.get_parameters(learner.module[each])) for each in learner.trainable_module_ids}


def check_no_late_parameters(learner: LearnerInternals, ids: Iterable[ModuleID]) -> None:
    """Refuse modules that have more parameters than when the learner was built.

    Args:
        learner: after the first run of a program.
        ids: ids of the modules that it trained; ids of step columns are ignored.

    Raises:
        ConfigError: names the parameters that no optimizer has.
    """
    for module_id in (each for each in ids if each in learner.module):
        module = learner.module[module_id]
        parameters = learner.get_parameters(module)
        if len(parameters) > learner.num_parameters[module_id]:
            trained = {ref for layout in learner.layouts for ref in layout.refs}
            learner.forget_programs()  # the next update counts as the first one again
            late = [ref for ref in map(learner.get_param_ref, parameters) if ref not in trained]
            raise ConfigError(
                f"module {module_id!r} ({module.class_name}) has parameters that it had not when the learner was "
                f"built, so no optimizer trains them: {', '.join(late)}. Make and build all layers where the model is "
                "made: in __init__ or setup; layers that their first call would build, by layer.build(shape)",
                module_id=module_id,
                found=late,
            )
