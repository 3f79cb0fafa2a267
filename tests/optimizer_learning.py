"""Learners with several optimizers on a module, and with one for several modules."""

from learning import ValueLearner

from plugrad.optimizers import SGD


class TwoOptimizers(ValueLearner):
    """The policy network and the value network each with their own."""

    def configure_optimizers_for_module(self, module_id, config=None):
        params = self.get_parameters(self.module[module_id])
        names = [self.get_param_ref(param).split("/", 1)[1] for param in params]
        for prefix, rate in (("pi", 0.1), ("vf", [[0, 0.2], [100, 0.0]])):
            own = [param for param, name in zip(params, names, strict=True) if name.startswith(prefix)]
            self.register_optimizer(
                module_id=module_id,
                optimizer_name=prefix,
                optimizer=SGD(),
                params=own,
                lr_or_lr_schedule=rate,
            )

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        values = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        return values + self.ops.mean(fwd_out["action_dist_inputs"][:, 0])


class Shared(ValueLearner):
    """One optimizer for the modules `a` and `b`; the others are frozen."""

    def configure_optimizers(self):
        params = [param for module_id in "ab" for param in self.get_parameters(self.module[module_id])]
        self.register_optimizer(optimizer=SGD(), params=params, lr_or_lr_schedule=self.config.lr)
        for module_id in set(self.module) - set("ab"):
            self.freeze_parameters(module_id, ["pi", "vf"])
