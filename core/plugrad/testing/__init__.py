"""Test suites for backends, algorithms and collectives; in the wheel, so that authors of plugins can use them.

- `backend_suite`: every hook and op of a backend, by one import in a test file; `fixtures` is the pytest plugin for it.
- `algorithm_suite`: settings, loss, steps and learning of an algorithm, on every installed backend.
- `collective_suite`: sums, faults and epochs of a collective, in processes that are killed and stopped.
- `strict`: a backend that refuses code which does not work on every framework, and names the line.
- `numpy_backend`: the reference backend: the oracle of the suites, and the backend where no framework is installed.

The suites need pytest (`pip install "plugrad[test]"`); the reference backend does not.
"""
