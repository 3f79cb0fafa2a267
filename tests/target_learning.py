"""A learner whose loss reads a target network, for the tests of target networks on every backend."""

from learning import ValueLearner, value_config

from plugrad import Columns

TAU, GAMMA = 0.25, 0.9


class BootstrappingLearner(ValueLearner):
    """Values follow rewards plus the discounted values of the target network; which follows by `TAU`."""

    def get_target_parameters(self, module_id, config=None):
        return [name for name in self.module[module_id].get_state() if not name.startswith("pi")]

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        later = self.targets[module_id].forward({Columns.OBS: batch[Columns.NEXT_OBS]})[Columns.VF_PREDS]
        self.register_metric(module_id, "target_mean", self.ops.mean(later))
        error = fwd_out[Columns.VF_PREDS] - (batch[Columns.REWARDS] + GAMMA * later)
        return self.ops.mean(self.ops.square(error))

    def after_gradient_based_update(self, *, timesteps):
        super().after_gradient_based_update(timesteps=timesteps)
        for target in self.targets.values():
            target.update(tau=TAU)


def bootstrapping(backend="numpy", **settings):
    """A built one: plain gradient descent, two minibatches an update."""
    settings = {"optimizer": {"type": "sgd"}, "lr": 0.1, "minibatch_size": 8, **settings}
    return value_config(backend, learner_class=BootstrappingLearner, **settings).build_learner()
