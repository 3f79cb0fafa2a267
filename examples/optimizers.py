"""Two optimizers: one for the hidden layers, and one with a learning-rate schedule for the output layers."""

from typing import Any

import click
from demonstrations import demonstrations

from plugrad import DEFAULT_MODULE_ID, Learner
from plugrad.optimizers import make_optimizer
from plugrad_bc import BCConfig


class TwoOptimizersLearner(Learner):
    """Uses one optimizer for the output layers and another one for all layers before them."""

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        params = self.get_parameters(self.module[module_id])
        outputs = [param for param in params if ".out." in self.get_param_ref(param)]
        hidden = [param for param in params if ".out." not in self.get_param_ref(param)]
        self.register_optimizer(
            module_id=module_id,
            optimizer_name="hidden",
            optimizer=make_optimizer({"type": "adam", "eps": 1e-5}),
            params=hidden,
            lr_or_lr_schedule=1e-3,
        )
        self.register_optimizer(
            module_id=module_id,
            optimizer_name="outputs",
            optimizer=make_optimizer({"type": "sgd"}),
            params=outputs,
            lr_or_lr_schedule=[[0, 1e-1], [1000, 1e-2]],  # by environment steps, linear between
        )


@click.command()
@click.option("--backend", default="torch")
def main(backend: str) -> None:
    config = (
        BCConfig()
        .environment("CartPole-v1")
        .framework(backend)
        .training(minibatch_size=64)
        .learners(learner_class=TwoOptimizersLearner)
    )
    learner = config.build_learner()
    for steps in (500, 1000):
        timesteps = {"num_env_steps_sampled_lifetime": steps}
        results = learner.update(demonstrations(256), timesteps=timesteps)[DEFAULT_MODULE_ID]
        print(results["hidden_learning_rate"], results["outputs_learning_rate"], results["total_loss"])


if __name__ == "__main__":
    main()
