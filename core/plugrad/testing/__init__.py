"""What proves backends and algorithms; in the wheel, so that authors of plugins can use it.

`numpy_backend` is the reference backend: the oracle for gradients, and the tests' backend where no framework is
installed.
"""
