"""The training of DQN: from a replay buffer, prioritized by TD errors if asked."""

from plugrad.training import OffPolicyTraining
from plugrad_dqn.loss import td_errors


class DQNTraining(OffPolicyTraining):
    """`OffPolicyTraining` with the TD errors of DQN, from rows or sequences."""

    trains_sequences = True
    td_errors = td_errors
