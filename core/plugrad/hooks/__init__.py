"""The contract between the core and its plugins: the author's first page.

Mark a function with `@hookimpl`, give it the name of a hook and as many of its arguments as you need:

    from plugrad import hookimpl

    @hookimpl(wrapper=True)
    def compute_losses(learner, fwd_out, batch):
        losses = yield
        return {module_id: loss * 2.0 for module_id, loss in losses.items()}

The hooks stand in four tables: `backend_spec` (what a framework must answer), `algorithm_spec` (what makes an
algorithm), `learner_spec` (Learner methods with a default) and `listener_spec` (what a listener can hear).
"""

from plugrad.hooks.markers import hookimpl, hookspec

__all__ = ["hookimpl", "hookspec"]
