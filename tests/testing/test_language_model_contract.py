"""Every language model keeps its contract, and a model that breaks a promise is told which one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sgdec.errors import UsageError
from sgdec.models.base import LanguageModel, ModelContext, State
from sgdec.models.gru_lm import GRULM
from sgdec.models.kernels import Kernels
from sgdec.models.nplm import NPLM
from sgdec.models.rnnlm import RNNLM
from sgdec.models.transformer_lm import TransformerLM
from sgdec.testing import breach, promises
from sgdec.testing.language_model_contract import LanguageModelContract

MODELS: dict[str, Callable[[ModelContext], LanguageModel]] = {
    "rnnlm": lambda context: RNNLM(context, layers=2, width=6, dropout=0.0),
    "rnnlm, tied": lambda context: RNNLM(context, layers=1, width=6, dropout=0.0, tied=True),
    "rnnlm, three layers": lambda context: RNNLM(context, layers=3, width=6, dropout=0.0),
    "nplm": lambda context: NPLM(context, order=3, embedding=4, hidden=5, output=6),
    "nplm, one layer": lambda context: NPLM(context, order=4, embedding=4, hidden=0, output=6),
    "nplm, bigrams": lambda context: NPLM(context, order=2, embedding=4, hidden=5, output=6),
    "nplm, tanh": lambda context: NPLM(context, order=4, embedding=3, hidden=6, output=5, activation="tanh"),
    "grulm": lambda context: GRULM(context, width=6, embedding=4),
    "grulm, deep": lambda context: GRULM(context, depth=4, width=6, embedding=4, layer_norm=True, tied=True),
    "transformer-lm": lambda context: TransformerLM(context, layers=2, width=6, heads=2, feed_forward=8, dropout=0.0),
    "transformer-lm, pre": lambda context: TransformerLM(
        context, layers=2, width=6, heads=2, feed_forward=8, dropout=0.0, norm="pre"
    ),
}


@pytest.mark.slow
class TestLanguageModels(LanguageModelContract):
    @pytest.fixture(autouse=True, params=MODELS)
    def _choose(self, request: pytest.FixtureRequest) -> None:
        self.name: str = request.param

    def make(self, context: ModelContext) -> LanguageModel:
        return MODELS[self.name](context)


class Sound(RNNLM):
    """A small one, to break."""

    def __init__(self, context: ModelContext) -> None:
        super().__init__(context, layers=1, width=6, dropout=0.0)


class OneRowTooFew(Sound):
    def step(self, state: State, tokens: Tensor) -> tuple[State, Tensor]:
        after, output = super().step(state, tokens)
        return after, output[:1]


class LooksAhead(Sound):
    def forward(self, target_in: Tensor) -> Tensor:
        outputs = super().forward(target_in)
        return outputs + 0.01 * outputs.sum(1, keepdim=True)


class TrainsOneTokenLate(Sound):
    def forward(self, target_in: Tensor) -> Tensor:
        return super().forward(torch.cat([target_in[:, :1], target_in[:, :-1]], 1))


class LooksAside(Sound):
    def step(self, state: State, tokens: Tensor) -> tuple[State, Tensor]:
        after, output = super().step(state, tokens)
        return after, output + 0.1 * output.mean(0)

    def forward(self, target_in: Tensor) -> Tensor:
        return LanguageModel.forward(self, target_in)


class FirstRowFirst(Sound):
    def step(self, state: State, tokens: Tensor) -> tuple[State, Tensor]:
        after, output = super().step(state, tokens)
        return after, output + 0.1 * torch.arange(len(output))[:, None]


class Overwrites(Sound):
    def step(self, state: State, tokens: Tensor) -> tuple[State, Tensor]:
        after, output = super().step(state, tokens)
        for old, new in zip(state, after, strict=True):
            old.copy_(new)
        return after, output


class ThawsOtherwise(Sound):
    def freeze(self, kernels: Kernels) -> None:
        with torch.no_grad():
            self.softmax.weight += 0.1


class IdleParameter(Sound):
    def __init__(self, context: ModelContext) -> None:
        super().__init__(context)
        self.idle = torch.nn.Parameter(torch.zeros(3))


class OtherLayer(Sound):
    def output_layer(self) -> tuple[torch.nn.Linear, float | None]:
        return self.softmax, 0.5


class PaddingCounts(TransformerLM):
    def __init__(self, context: ModelContext) -> None:
        super().__init__(context, layers=1, width=6, heads=2, feed_forward=8, dropout=0.0)

    def step(self, state: State, tokens: Tensor) -> tuple[State, Tensor]:
        after, output = super().step(state, tokens)
        return after, output + 0.01 * state[-1].flatten(1).sum(1, keepdim=True)

    def forward(self, target_in: Tensor) -> Tensor:
        return LanguageModel.forward(self, target_in)


class ShapedByItsDevice(Sound):
    def __init__(self, context: ModelContext) -> None:
        super().__init__(context)
        if self.softmax.weight.is_meta:
            self.softmax.bias = None


BUGS: dict[type[Any], str] = {
    Sound: "",
    OneRowTooFew: "answers have a row for each prefix",
    LooksAhead: "a later target token changes nothing before it",
    TrainsOneTokenLate: "all steps at once equal the step loop",
    LooksAside: "a line is what it would be alone",
    FirstRowFirst: "prefixes may come in any order and twice",
    Overwrites: "a step leaves the states that it was given",
    ThawsOtherwise: "a frozen model is the same model",
    IdleParameter: "every parameter learns and both ways agree on its gradient",
    OtherLayer: "the output layer is what projects and can start from frequencies",
    ShapedByItsDevice: "it can be built without memory",
    PaddingCounts: "what stands before a short history does not matter",
}


@pytest.mark.slow
@pytest.mark.parametrize("cls", BUGS, ids=lambda cls: cls.__name__)
def test_a_planted_bug_breaks_the_promise_that_it_breaks(cls: type[LanguageModel]) -> None:
    class Contract(LanguageModelContract):
        def make(self, context: ModelContext) -> LanguageModel:
            return cls(context)  # type: ignore[call-arg]

    checked = ((promise.text, breach(promise.check)) for promise in promises(Contract()))
    said = {text: problem for text, problem in checked if problem is not None}
    if cls is Sound:
        assert not said
    else:
        assert BUGS[cls] in said and " must " in str(said[BUGS[cls]])


def test_every_promise_is_broken_by_some_bug() -> None:
    class Contract(LanguageModelContract):
        def make(self, context: ModelContext) -> LanguageModel:
            raise UsageError("never made")

    assert {promise.text for promise in promises(Contract())} == set(BUGS.values()) - {""}
