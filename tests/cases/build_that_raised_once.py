"""A `build()` that raised in a user's override and is called again draws the weights of the seed."""

from case import P, check, equal, small

from plugrad_ppo import PPOLearner


class NotYet(PPOLearner):
    """Its file is there at the second try."""

    is_there = True

    def configure_optimizers_for_module(self, module_id, config=None):
        if not self.is_there:
            raise FileNotFoundError("the learning rates")
        return super().configure_optimizers_for_module(module_id, config)


fresh, again = NotYet(config=small()), NotYet(config=small())
fresh.build()
again.is_there = False
try:
    again.build()
except FileNotFoundError:
    again.is_there = True
check(again.is_there, "the override did not raise")
again.build()
check(
    equal(fresh.get_weights()[P], again.get_weights()[P]),
    "equal seeds, and other weights after a second build",
)
