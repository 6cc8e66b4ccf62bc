"""Search errors that ``sgdec diagnose --output FILE`` has found, for the page of the same run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from sgdec.complaints import complaint
from sgdec.errors import SgdecError, one_line
from sgdec.text.lines import name_of, read_lines
from sgdec.view.runs import SearchError, TracedRun

EXPECTED = "Expected what 'sgdec diagnose --output FILE' writes."
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Output(TypedDict):
    tokens: list[int]


class _Search(TypedDict):
    error: Literal["proven", "witnessed", "none", "unknown"]
    by: Amount | None
    gap: Amount | None


class _Sentence(TypedDict):
    """The parts of a line that are read."""

    id: int
    output: _Output | None
    search: _Search


SCHEMA: TypeAdapter[_Sentence] = TypeAdapter(_Sentence)


def read_search_errors(path: str | Path, run: TracedRun) -> Mapping[int, SearchError]:
    """The search errors of the sentences of a run, by number; those of which nothing is known are left out.

    Raises SgdecError for a line that is not one of a diagnosis, and if the diagnosis is about other outputs than
    those of the run, or about none of its sentences.
    """
    found: dict[int, SearchError] = {}
    common = 0
    for number, text in enumerate(read_lines(path), 1):
        try:
            line = SCHEMA.validate_json(text, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            why = complaint(".".join(map(str, first["loc"])) or "it", first)
            raise SgdecError(
                f"{name_of(path)}: line {number} is not a line of a diagnosis ({one_line(why)[:200]}). {EXPECTED}"
            ) from None
        trace = run.by_id.get(line["id"])
        if trace is None:
            continue
        common += 1
        own = list(trace.hypotheses[0].tokens) if trace.hypotheses else None
        if own != (line["output"] and line["output"]["tokens"]):
            raise SgdecError(
                f"{name_of(path)}: line {number} is about another output of sentence {trace.id} than {run.name} has. "
                "Give the files that one call of 'sgdec diagnose --trace FILE --output FILE' writes."
            )
        search = line["search"]
        if search["error"] != "unknown" and search["by"] is not None:
            found[trace.id] = SearchError(search["by"], at_most=False)
        elif search["gap"] is not None:
            found[trace.id] = SearchError(search["gap"], at_most=True)
    if not common:
        raise SgdecError(f"{name_of(path)} is about no sentence of {run.name}. Give the diagnosis of the same run.")
    return found
