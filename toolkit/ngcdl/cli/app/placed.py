"""The options that place runs on a cluster, declared once for all commands that take them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ngcdl.cli import options

# The fields of spec.Placement, each with its option and its default.
_TYPED: dict[str, tuple[Any, Any]] = {
    "nodes": (options.Nodes, 1),
    "partition": (options.Partition, None),
    "time_limit": (options.TimeLimit, None),
    "account": (options.Account, None),
    "qos": (options.Qos, None),
    "container": (options.RunIn, None),
    "options": (options.Sbatch, None),
    "namespace": (options.Namespace, None),
    "data_pvc": (options.DataPvc, None),
    "pull_secret": (options.PullSecret, None),
}


def placed(command: Callable[..., int]) -> Callable[..., int]:
    """Replace the parameter `placement` of `command`, a spec.Placement, with the options that it is made of."""

    @functools.wraps(command)
    def typed(**given: Any) -> int:
        from ngcdl.spec import Placement

        found = {name: given.pop(name) for name in _TYPED}
        return command(**given, placement=Placement(**{**found, "options": tuple(found["options"] or ())}))

    own = inspect.signature(command, eval_str=True, locals={"Placement": object})  # importing it here costs each start
    parameters: list[inspect.Parameter] = []
    for name, parameter in own.parameters.items():
        if name == "placement":
            parameters += [
                inspect.Parameter(one, parameter.kind, default=default, annotation=option)
                for one, (option, default) in _TYPED.items()
            ]
        else:
            parameters.append(parameter)
    typed.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]  # what typer reads
    typed.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": own.return_annotation}
    return typed
