"""Lets a class declare the options of a command, and calls the command with what was typed as a Typed."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import typer

from ngcdl.cli.app.placed import Placed


def takes(declared: type) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a command the attributes of `declared` as options, in that order. An attribute whose type is a class stands
    for all attributes of that class.

    The command is called with a Typed in which each option has set the field of the same name. Options that the command
    has as parameters are passed as arguments instead."""

    def taking(command: Callable[..., int]) -> Callable[..., int]:
        own = list(inspect.signature(command).parameters)[1:]

        def called(context: typer.Context, **given: Any) -> int:
            from ngcdl.cli.typed import Typed
            from ngcdl.spec import Placement

            _check_none_empty(context.command.params, given)
            _check_none_swallowed(context.command, given)
            passed = {name: given.pop(name) for name in own}
            typed = {name: value for name, value in given.items() if value is not None}
            values: dict[str, Any] = {name: tuple(it) if isinstance(it, list) else it for name, it in typed.items()}
            placement = Placement(**{name: values.pop(name) for name in Placed.__annotations__ if name in values})
            sources = {name: context.get_parameter_source(name) for name in values}
            said = frozenset(name for name, source in sources.items() if source and source.name == "COMMANDLINE")
            return command(Typed(given=said, command=context.obj or (), placement=placement, **values), **passed)

        called.__name__, called.__doc__ = command.__name__, command.__doc__
        context = inspect.signature(called, eval_str=True).parameters["context"]
        signature = inspect.Signature([context, *_parameters(declared)])
        called.__signature__ = signature  # type: ignore[attr-defined]  # what typer reads
        return called

    return taking


def _check_none_empty(parameters: Iterable[Any], given: Mapping[str, Any]) -> None:
    """Raise BadOption if an empty word was typed. It would count as nothing typed: a command would run on this host
    instead of in "$IMAGE", and a training begin anew instead of with --resume "$RUN"."""
    for one in parameters:
        value = given.get(one.name)
        if value == "" or (isinstance(value, list) and "" in value and not one.hidden):
            from ngcdl.cli.typed import empty

            raise empty("IMAGE: the name" if one.param_type_name == "argument" else f"{one.opts[-1]}: its value")


def _check_none_swallowed(command: Any, given: Mapping[str, Any]) -> None:
    """Raise BadOption if an option stands where the value of another one belongs: --resume --train cifar10."""
    names = {name for one in command.params if one.param_type_name == "option" for name in one.opts}
    for one in command.params:
        value = given.get(one.name)
        if isinstance(value, str) and value in names:
            from ngcdl.cli.typed import again
            from ngcdl.errors import BadOption

            words, hint = sys.argv[1:], f"    ngcdl {command.name} --help"
            pairs = [at for at, word in enumerate(words[:-1]) if word in one.opts and words[at + 1] == value]
            if one.name == "resume" and pairs:
                hint = f"{again([*words[: pairs[0] + 1], 'last', *words[pairs[0] + 1 :]])}\n    ngcdl runs"
            raise BadOption(f"{one.opts[-1]}: its value is missing before {value}.", hint)


def _parameters(declared: type) -> Iterator[inspect.Parameter]:
    for name, option in inspect.get_annotations(declared, eval_str=True).items():
        if isinstance(option, type):
            yield from _parameters(option)
        else:
            default = getattr(declared, name)
            yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=option)
