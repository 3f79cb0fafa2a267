"""The contract between the core and its plugins: start here to write a plugin.

Mark a function with `@hookimpl`, and give it the name of a hook and those of its arguments that you need:

    from plugrad import hookimpl

    @hookimpl(wrapper=True)
    def compute_losses(learner, fwd_out, batch):
        losses = yield
        return {module_id: loss * 2.0 for module_id, loss in losses.items()}

Most hooks are declared by the Learner's method that calls them: `backend_spec` and `gradient_spec` have the hooks of a
backend, `algorithm_spec` those of an algorithm, `learner_spec` those with a default in the core. A hook has the name of
its method, without the leading underscore, and takes the learner first. `build_spec` has hooks that are not methods,
and `listener_spec` the hooks of listeners.
"""

from plugrad.hooks.markers import hookimpl, hookspec

__all__ = ["hookimpl", "hookspec"]
