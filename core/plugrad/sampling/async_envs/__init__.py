"""Environments in worker processes: `vectorization_mode="async"`.

Each worker process steps a share of the environments, as `SyncEnvs` does, so that the episodes are those of "sync" bit
for bit. Numbers travel through shared memory, all else through a socket. Workers end when the socket closes, so they
end with the process that started them, however that ends.

`envs` has `AsyncEnvs`, which an env runner steps, and the worker processes; `worker` is what runs in one.
"""
