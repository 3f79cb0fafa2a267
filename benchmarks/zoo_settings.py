"""What all libraries of the zoo are set to, under plugrad's names."""

from dataclasses import dataclass, field
from typing import Any

Schedule = list[list[float]]
"""`[[environment step, value], ...]`, linear between its points."""

DEFAULT_MODEL = {
    "fcnet_hiddens": [64, 64],
    "fcnet_activation": "tanh",
    "log_std_init": 0.0,
    "ortho_init": True,
}
"""Of plugrad's networks, and of stable-baselines3's under other names."""


@dataclass(frozen=True, kw_only=True)
class OffPolicySettings:
    """Settings of SAC, TD3 and TQC.

    Attributes:
        lr: learning rate; None: the default.
        tau: how far target networks move in a step.
        random_steps: environment steps with random actions, before which nothing is learned.
        steps_per_update: environment steps, and then as many gradient steps.
        hiddens: of policy and critics.
        batch_size: rows per gradient step.
        gamma: discount.
        capacity: rows of the replay buffer.
        td3_action_noise: standard deviation of the noise with which TD3 explores.
    """

    lr: float | Schedule | None = None
    tau: float = 0.005
    random_steps: int = 100
    steps_per_update: int = 1
    hiddens: list[int] = field(default_factory=lambda: [256, 256])
    batch_size: int = 256
    gamma: float = 0.99
    capacity: int = 1_000_000
    td3_action_noise: float = 0.1


@dataclass(frozen=True, kw_only=True)
class PPOSettings:
    """Settings of PPO.

    Attributes:
        num_envs: environments that step together.
        num_steps: environment steps of each per update.
        batch_size: rows per gradient step.
        num_epochs: passes over the rows of an update.
        lr: learning rate.
        clip_param: epsilon of the clipped surrogate.
        gamma: discount.
        lambda_: of GAE.
        entropy_coeff: weight of the entropy bonus.
        vf_loss_coeff: weight of the value error.
        grad_clip: limit of the gradients' norm.
        hiddens: of policy and value function; after convolutions those of both.
        activation: after each of them.
        log_std_init: first log of the standard deviation of continuous actions.
        ortho_init: whether first weights are orthogonal.
        normalize: scale observations by their running mean and deviation, and rewards by their return's.
        normalize_advantages: over which rows plugrad does so; stable-baselines3 always over each minibatch.
        atari: the standard preprocessing of Atari games, and the convolutions of Mnih et al. 2015.
        lstm: units of an LSTM behind the layers; 0: none. It is trained on sequences of up to 32 steps.
    """

    num_envs: int
    num_steps: int
    batch_size: int = 64
    num_epochs: int
    lr: float | Schedule = 3e-4
    clip_param: float | Schedule = 0.2
    gamma: float = 0.99
    lambda_: float = 0.95
    entropy_coeff: float = 0.0
    vf_loss_coeff: float = 0.5
    grad_clip: float = 0.5
    hiddens: list[int] = field(default_factory=lambda: [64, 64])
    activation: str = "tanh"
    log_std_init: float = 0.0
    ortho_init: bool = True
    normalize: bool = False
    normalize_advantages: str = "batch"
    atari: bool = False
    lstm: int = 0

    @property
    def steps_per_update(self) -> int:
        """Environment steps between two updates."""
        return self.num_envs * self.num_steps

    def as_config(self) -> dict[str, Any]:
        """The settings by section, as those of `plugrad train --tuned` are written."""
        model: dict[str, Any] = {"fcnet_hiddens": self.hiddens, "fcnet_activation": self.activation}
        if self.atari:
            model |= {"conv_filters": "nature", "vf_share_layers": True}
        else:
            model |= {"log_std_init": self.log_std_init, "ortho_init": self.ortho_init}
        if self.lstm:
            model |= {"use_lstm": True, "lstm_cell_size": self.lstm, "max_seq_len": 32}
        model = {name: value for name, value in model.items() if DEFAULT_MODEL.get(name) != value}
        envs: dict[str, Any] = {"num_envs_per_env_runner": self.num_envs}
        envs |= {"normalize_observations": True, "normalize_rewards": True} if self.normalize else {}
        envs |= {"atari": True} if self.atari else {}
        names = ["num_epochs", "lr", "clip_param", "gamma", "lambda_"]
        names += ["entropy_coeff", "vf_loss_coeff", "grad_clip"]
        training = {name: getattr(self, name) for name in names}
        training |= {"train_batch_size": self.steps_per_update, "minibatch_size": self.batch_size}
        training |= {"optimizer": {"type": "adam", "eps": 1e-5}}  # stable-baselines3's
        if self.normalize_advantages != "batch":
            training |= {"normalize_advantages": self.normalize_advantages}
        config = {"env_runners": envs, "training": training}
        return config | ({"rl_module": {"model_config": model}} if model else {})


@dataclass(frozen=True, kw_only=True)
class DQNSettings:
    """Settings of DQN without double Q-learning and dueling heads, which stable-baselines3 lacks.

    Attributes:
        lr: learning rate.
        batch_size: rows per gradient step.
        gamma: discount.
        hiddens: of the network, with relu.
        ortho_init: whether plugrad's first weights are orthogonal; those of stable-baselines3 are not.
        capacity: rows of the replay buffer.
        learning_starts: environment steps before which nothing is learned.
        steps_per_update: environment steps between two updates.
        gradient_steps: of one update.
        target_every: environment steps after which the target network becomes the network.
        epsilon_steps: environment steps in which the share of random actions falls.
        epsilon: the share to which it falls, from 1.
        report_every: environment steps of one row of plugrad's metrics; 0: one row per update.
    """

    lr: float
    batch_size: int
    gamma: float = 0.99
    hiddens: list[int] = field(default_factory=lambda: [256, 256])
    ortho_init: bool = False
    capacity: int
    learning_starts: int = 0
    steps_per_update: int
    gradient_steps: int
    target_every: int
    epsilon_steps: int
    epsilon: float
    report_every: int = 0

    def as_config(self) -> dict[str, Any]:
        """The settings by section, as those of `plugrad train --tuned` are written."""
        training = {
            "lr": self.lr,
            "gamma": self.gamma,
            "train_batch_size": self.batch_size * self.gradient_steps,
            "minibatch_size": self.batch_size,
            "num_steps_sampled_before_learning_starts": self.learning_starts,
            "target_network_update_freq": self.target_every,
            "epsilon": [[0, 1.0], [self.epsilon_steps, self.epsilon]],
            "replay_buffer_config": {"capacity": self.capacity},
            **self._own_training(),
        }
        envs = {"num_envs_per_env_runner": 1, "rollout_fragment_length": self.steps_per_update}
        config = {"env_runners": envs, "training": training}
        if self.report_every:
            config["reporting"] = {"min_sample_timesteps_per_iteration": self.report_every}
        model = {"fcnet_hiddens": self.hiddens} | ({} if self.ortho_init else {"ortho_init": False})
        return config | {"rl_module": {"model_config": model}}

    def _own_training(self) -> dict[str, Any]:
        return {"grad_clip": 10.0, "double_q": False, "dueling": False}


@dataclass(frozen=True, kw_only=True)
class QRDQNSettings(DQNSettings):
    """Settings of QR-DQN, whose gradients are not clipped.

    Attributes:
        num_quantiles: of the returns of each action.
    """

    num_quantiles: int

    def _own_training(self) -> dict[str, Any]:
        return {"num_quantiles": self.num_quantiles}


Settings = OffPolicySettings | PPOSettings | DQNSettings
