"""The contract between the core and its plugins: the author's first page.

Mark a function with `@hookimpl`, give it the name of a hook and as many of its arguments as you need:

    from plugrad import hookimpl

    @hookimpl(wrapper=True)
    def compute_losses(learner, fwd_out, batch):
        losses = yield
        return {module_id: loss * 2.0 for module_id, loss in losses.items()}

Most hooks are declared by the Learner's method that asks them: `backend_spec` and `gradient_spec` have what a framework
must answer, `algorithm_spec` what makes an algorithm, `learner_spec` methods with a default. A hook is named as its
method, without leading underscore, and takes the learner first. `build_spec` has hooks that are no methods, and
`listener_spec` what a listener can hear.
"""

from plugrad.hooks.markers import hookimpl, hookspec

__all__ = ["hookimpl", "hookspec"]
