"""The strict backend: numpy that refuses what `plugrad.ops` does not promise.

    config.framework("strict")

Code that works on one framework and breaks, or computes something else, on another is refused here: a
`plugrad.errors.PortabilityError` says what was done, in which file and line, and what to write instead. No framework
need be installed. Numbers and gradients are those of the numpy backend, so keep networks tiny.
"""
