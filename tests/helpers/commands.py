"""Every command of ``sgdec``, and which of its parameters name files."""

from __future__ import annotations

from collections.abc import Iterator

import click

from sgdec.cli.main import sgdec


def commands(
    group: click.Group = sgdec, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command and every command of a command."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


ALL = dict(commands())


def parameters(command: click.Command, kind: type[click.ParamType]) -> list[click.Parameter]:
    return [parameter for parameter in command.params if isinstance(parameter.type, kind)]
