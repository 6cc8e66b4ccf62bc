"""The page of what a plugin can answer, and what holds classes against it, are one."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import sgdec
from sgdec import BatchDecoder, BatchPredictor, Predictor, Scores, lifting, protocol, relaxations
from sgdec.errors import SgdecError
from sgdec.lifting import lift
from sgdec.plugins import surface
from sgdec.plugins.host import Host
from sgdec.protocol import BestRemaining, State, Traits
from sgdec.testing import Table


def test_methods_are_called_with_the_numbers_of_arguments_that_the_page_says() -> None:
    simple, batch, of_utilities = (methods for methods, _ in surface.PAGES.values())
    page = surface._page(BatchDecoder)
    assert page is not None
    assert {name: simple[name] for name in ("initialize", "predict_next", "consume", "get_state", "set_state")} == {
        "initialize": (1,), "predict_next": (0, 1), "consume": (1,), "get_state": (0,), "set_state": (1,),
    }  # fmt: skip
    assert {name: batch[name] for name in ("initialize_batch", "predict_batch", "consume_batch")} == {
        "initialize_batch": (1,), "predict_batch": (1, 2), "consume_batch": (2,),
    }  # fmt: skip
    assert page.methods == {
        "decode": (1,), "decode_batch": (1,), "decode_stream": (2,), "in_batches": (2,), "caveat": (2,),
        "way_out": (2,),
    }  # fmt: skip
    assert of_utilities == {"pairwise": (3,), "aggregated": (4,)}
    of_both = {"best_remaining": (1,), "worst_remaining": (1,), "state_key": (1,), "attention": (1,)}
    of_both |= {"state_label": (1,), "progress": (1,), "advancing": (1,)}
    of_both |= {"steps": (2,), "arcs": (2,), "release": (1,), "summary": (0,), "relaxations": (1,)}
    of_both |= {"length_limit": (1,)}
    assert of_both.items() <= simple.items() and of_both.items() <= batch.items()
    assert set(simple) - set(of_both) == {"initialize", "predict_next", "consume", "get_state", "set_state"}


def test_every_protocol_of_the_page_is_known_to_the_check() -> None:
    optional = {
        name
        for module in (protocol, relaxations)
        for page in vars(module).values()
        if inspect.isclass(page) and getattr(page, "_is_protocol", False) and page.__module__ == module.__name__
        for name in vars(page)
        if not name.startswith("_")
    }
    assert optional == {*surface.ABILITIES, *surface.OF_BATCHES, *surface.HOOKS}


def test_whoever_derives_from_an_ability_has_to_have_it() -> None:
    class Bounded(Predictor, BestRemaining):
        def predict_next(self, candidates: Any = None) -> Scores:
            return Scores.constant(-1.0)

    with pytest.raises(TypeError, match="best_remaining"):
        Bounded()  # type: ignore[abstract]

    class Whole(Bounded):
        def best_remaining(self, states: Sequence[State]) -> list[float]:
            return [-1.0] * len(states)

    assert lift(Whole()).initialize_batch([sgdec.Source(1, (3,))])


@pytest.mark.parametrize("base", [Predictor, BatchPredictor])
@pytest.mark.parametrize("trait", list(Traits.__annotations__))
def test_a_trait_can_be_set_in_a_class_and_in_an_instance(base: type[Any], trait: str) -> None:
    cls = type("Mine", (base,), {trait: "of the class"})
    cls.__abstractmethods__ = frozenset()
    mine = cls()
    assert getattr(mine, trait) == "of the class"
    setattr(mine, trait, "its own")
    assert getattr(mine, trait) == "its own" and getattr(cls, trait) == "of the class"


def test_what_is_lifted_has_the_traits_of_what_it_is_made_of() -> None:
    table = Table(np.zeros((4, 4)))
    table.on_demand, table.max_score = True, -0.25
    lifted = lift(table)
    assert (lifted.on_demand, lifted.max_score, lifted.vocabularies) == (True, -0.25, table.vocabularies)


@pytest.mark.parametrize("name", ["Lifted", "Lowered", "lift"])
def test_old_names_work_and_say_the_new_ones(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"sgdec.protocol.{name} is called sgdec.lifting.{name} now"):
        found = getattr(protocol, name)
    assert found is getattr(lifting, name)
    with pytest.raises(AttributeError, match="no attribute 'lifts'"):
        protocol.lifts  # noqa: B018


def test_every_bundled_class_declares_what_is_on_the_page() -> None:
    host = Host(autoload=False)
    for kind in ("predictor", "decoder"):
        for entry in host.names(kind):
            surface.require_sound(host.load(kind, entry.name))


def test_a_hook_that_is_no_class_method_is_refused() -> None:
    class Mine(Predictor):
        def predict_next(self, candidates: Any = None) -> Scores:
            return Scores.constant(0.0)

        def read_vocabularies(self) -> None: ...

    with pytest.raises(SgdecError, match=r"Mine.*test_surface.py, line \d+.*has to be a classmethod"):
        lift(Mine())
