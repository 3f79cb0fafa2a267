"""plugrad: the training core of reinforcement learning."""
