"""Cases of modules in a .golden file for the other scripts here; tests/nn/module_cases.h reads and runs them.

The section [NAME] of a case has a row for each entry of the state dict ("state NAME sizes"), each input ("input KIND
sizes": float, bool, integer or none) and each output ("output sizes"). [NAME_numbers] has, one after the other, the state
dict, all inputs, all outputs, pull of the loss sum(out * pull), the gradients of the parameters and those of the floating
inputs.
"""
import torch


def kind(x):
    if x is None:
        return "none"
    return "bool" if x.dtype == torch.bool else "float" if x.is_floating_point() else "integer"


def flat(tensors):
    numbers = []
    for x in tensors:
        numbers += x.detach().reshape(-1).tolist()
    return [float(n) for n in numbers]


def sizes(x):
    return " ".join([str(x.dim())] + [str(n) for n in x.shape])


def case(name, module, inputs, call):
    """The sections of a case. `call(module, *inputs)` gives the list of outputs."""
    for x in inputs:
        if kind(x) == "float":
            x.requires_grad_(True)
    state = {n: x.detach().clone() for n, x in module.state_dict().items()}
    outputs = call(module, *inputs)
    pulls = [torch.randn_like(x) for x in outputs]
    sum((x * p).sum() for x, p in zip(outputs, pulls)).backward()
    rows = [f"state {n} {sizes(x)}" for n, x in state.items()]
    rows += ["input " + kind(x) + (" " + sizes(x) if x is not None else "") for x in inputs]
    rows += ["output " + sizes(x) for x in outputs]
    grads = [x.grad if x.grad is not None else torch.zeros_like(x) for x in module.parameters()]
    of_inputs = [x.grad for x in inputs if kind(x) == "float"]
    given = [x for x in inputs if x is not None]
    return [(name, rows), (name + "_numbers", flat(list(state.values()) + given + outputs + pulls + grads + of_inputs))]
