"""What proves backends and algorithms; in the wheel, so that authors of plugins can use it.

- `backend_suite`: every hook and op of a backend, by one import in a test file; `fixtures` is the pytest plugin for it.
- `numpy_backend`: the reference backend: the oracle of the suite, and the backend where no framework is installed.

The suites need pytest (`pip install "plugrad[test]"`); the reference backend does not.
"""
