"""Environments in worker processes: `vectorization_mode="async"`.

Each worker process steps a share of the environments, as `SyncEnvs` does, so that the episodes are those of "sync" bit
for bit. Numbers travel through memory that the processes share, all else through a socket, whose end is the end of the
workers: they leave with the process that started them, however that ends.

- `envs` has `AsyncEnvs`, which an env runner steps; `infos` joins what the workers say beside the numbers.
- `process` starts a worker, calls it and ends it; `worker` is what runs in it.
- `shared_arrays` has the arrays that all of them see.
"""
