"""``sgdec recipes``: lists the recipes of ``sgdec train --recipe``, or explains each value of one."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import click
from click.shell_completion import CompletionItem

from sgdec.cli.paths import Command
from sgdec.cli.tables import table
from sgdec.plugins.options import flag as plugin_flag
from sgdec.training.config import BATCH_SIZES, DEFAULTS, flag
from sgdec.training.recipes import LENGTHS, RECIPES, Recipe, Value, find, idle

ELSEWHERE = (
    "seed", "device", "parallel", "compile", "threads", "shard_tokens", "save_every", "keep", "bleu",
    "token_weights", "start", "start_decoder", "embeddings_source", "embeddings_target", "embeddings_output",
)  # fmt: skip
"""Settings of the machine and of what is stored, and files: recipes have no values for them."""


WIDTH = 100
NO_BREAK = "\N{NO-BREAK SPACE}"


class RecipeName(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click
    """Completes the name of a recipe."""

    name = "text"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [
            CompletionItem(name, help=recipe.about) for name, recipe in RECIPES.items() if name.startswith(incomplete)
        ]


@click.command("recipes", cls=Command)
@click.argument("name", type=RecipeName(), required=False)
def command(name: str | None) -> None:
    """List the recipes of sgdec train --recipe, or print every value of the recipe NAME and where it comes from.

    \b
    # the recipes, one per line
    sgdec recipes
    # every value of one of them, with its source
    sgdec recipes gnmt
    # train with it, but a smaller model
    sgdec train --recipe gnmt --gnmt.width 256 --train train.en train.de \\
        --valid val.en val.de --tokenizer tok.spm --output run

    A recipe is the architecture and the schedule of a published experiment. The source of a value is a place in the
    paper, a place in what the paper cites, or 'silent: ours' where both say nothing. Every option that is given
    with --recipe replaces the recipe's value.
    """
    if name is None:
        rows = [[name, one.model, one.paper.partition(",")[0], one.about] for name, one in RECIPES.items()]
        click.echo(table(["recipe", "model", "paper", "experiment"], rows, texts=4))
    else:
        click.echo("\n\n".join(_explained(name, find(name))))


def _explained(name: str, recipe: Recipe) -> Iterator[str]:
    """The paragraphs about a recipe."""
    yield f"{name}: {recipe.about}\n{recipe.paper}"
    values = sorted(recipe.values, key=lambda value: (value.option != "model", "." not in value.option))  # stable
    rows = [[_flag(value.option), _shown(value), value.origin, value.note] for value in values]
    yield table(["option", "value", "source", "note"], rows, texts=4)
    others = ", ".join(other.replace(" ", NO_BREAK) for other in _others(recipe))
    yield _filled(f"All other values are defaults (silent: ours): {others}.")
    yield "Besides the options:\n" + "\n".join(_filled(text, "- ") for text in recipe.besides)


def _others(recipe: Recipe) -> Iterator[str]:
    """The model's options, then the settings of training, that the recipe leaves at their defaults and that act."""
    from sgdec.plugins.host import Host
    from sgdec.plugins.options import describe

    given = recipe.settings | {f"{recipe.model}.{option}": value for option, value in recipe.options.items()}
    for option in describe(Host(autoload=False).load("model", recipe.model)):
        if f"{recipe.model}.{option.name}" not in given and option.default is not None:
            yield f"{plugin_flag(option.name, recipe.model)} {_typed(option.default)}"
    replaced = {name for group in (BATCH_SIZES, LENGTHS) if given.keys() & {*group} for name in group}
    hidden = {*given, *replaced, *ELSEWHERE, *idle(recipe.settings)}
    yield from (f"{flag(name)} {_typed(default)}" for name, default in DEFAULTS.items() if name not in hidden)


def _filled(text: str, bullet: str = "") -> str:
    """The text in lines of limited width, none of which ends inside an option."""
    indent = " " * len(bullet)
    lines = textwrap.fill(
        text, WIDTH, initial_indent=bullet, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )
    return lines.replace(NO_BREAK, " ")


def _flag(option: str) -> str:
    model, dot, name = option.rpartition(".")
    return plugin_flag(name, model) if dot else flag(name)


def _shown(value: Value) -> str:
    return "-" if value.value is None else _typed(value.value)


def _typed(value: Any) -> str:
    """A value as it is typed.

    >>> _typed(True), _typed(2_000_000), _typed(7.0), _typed(1e-09)
    ('true', '2000000', '7', '1e-09')
    """
    if isinstance(value, float) and not isinstance(value, bool):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)
