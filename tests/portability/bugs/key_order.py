"""The order of keys is relied on: a backend may give mappings back in another one."""

from seeded import bug, twin
from small_learners import SmallLearner

from plugrad import hookimpl

KIND = "key order"
TWO = ("predator", "prey")


@bug(KIND)
class SlowHead:
    @hookimpl(wrapper=True)
    def postprocess_gradients_for_module(self, learner, module_gradients_dict):
        gradients = dict((yield))
        *_, head = gradients  # here
        gradients[head] = 0.1 * gradients[head]
        return gradients


@bug(KIND)
class DecaysByLayer:
    @hookimpl(wrapper=True)
    def postprocess_gradients(self, learner, gradients_dict):
        gradients = yield
        return {ref: gradients[ref] * 0.9**n for n, ref in enumerate(gradients)}  # here


@bug(KIND, modules=TWO)
class FirstModuleCounts:
    @hookimpl(wrapper=True)
    def compute_losses(self, learner, fwd_out, batch):
        losses = dict((yield))
        first = next(iter(batch))  # here
        losses[first] = 2.0 * losses[first]
        return losses


@bug(KIND, modules=TWO)
class PredatorIsTheFirst(SmallLearner):
    def compute_losses(self, *, fwd_out, batch):
        losses = super().compute_losses(fwd_out=fwd_out, batch=batch)
        predator = list(fwd_out.values())[0]  # here # noqa: RUF015
        losses["prey"] = losses["prey"] + self.ops.mean(self.ops.stop_gradient(predator["vf_preds"]))
        return losses


@bug(KIND)
def last_column_is_the_value(learner, batch, fwd_out):
    values = fwd_out[list(fwd_out)[-1]]  # here
    if len(learner.ops.shape(values)) > 1:
        values = values[:, 0]
    return learner.ops.mean(learner.ops.square(values - batch["value_targets"]))


@bug(KIND)
class NamesByPosition:
    @hookimpl(wrapper=True)
    def postprocess_gradients_for_module(self, learner, module_id, module_gradients_dict):
        gradients = yield
        scales = [1.0 + n for n in range(len(gradients))]
        return {ref: g * s for (ref, g), s in zip(gradients.items(), scales, strict=True)}  # here


@twin(KIND)
class SlowHeadByName:
    @hookimpl(wrapper=True)
    def postprocess_gradients_for_module(self, learner, module_gradients_dict):
        gradients = yield
        return {ref: 0.1 * each if ".out." in ref else each for ref, each in gradients.items()}


@twin(KIND, modules=TWO)
class ModulesByName(SmallLearner):
    def compute_losses(self, *, fwd_out, batch):
        losses = super().compute_losses(fwd_out=fwd_out, batch=batch)
        values = self.ops.mean(self.ops.stop_gradient(fwd_out["predator"]["vf_preds"]))
        return {"predator": losses["predator"], "prey": losses["prey"] + values}


@twin(KIND)
class DecaysBySortedName:
    @hookimpl(wrapper=True)
    def postprocess_gradients(self, learner, gradients_dict):
        gradients = yield
        return {ref: gradients[ref] * 0.9**n for n, ref in enumerate(sorted(gradients))}
