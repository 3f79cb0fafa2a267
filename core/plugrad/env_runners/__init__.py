"""Env runners in processes of their own: `RemoteEnvRunners`."""
