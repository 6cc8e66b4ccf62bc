"""The promise: the contract of translation models catches a breach of every rule, by the test that is named for it.

Each class below is the example's model with one planted bug.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sgdec.models.base import Memory, ModelContext, Seq2Seq, SharedEntries, State
from sgdec.models.kernels import Kernels
from sgdec.plugins.host import Host
from sgdec.testing import breach, promises
from sgdec.testing.seq2seq_contract import Seq2SeqContract
from tests.helpers.places import ROOT

MGU: Any = Host([ROOT / "examples" / "model" / "mgu.py"], autoload=False).load("model", "mgu")
BUGS: dict[type[Any], str] = {}
"""By class: the promise that it breaks."""
Stepped = tuple[State, Tensor, Tensor]


def breaks(promise: str) -> Callable[[type[Any]], type[Any]]:
    def mark(cls: type[Any]) -> type[Any]:
        BUGS[cls] = promise
        return cls

    return mark


def broken(cls: type[Any], *, only: str = "") -> dict[str, str]:
    """The promises that a model breaks, all or ``only`` one, and what is said of each."""

    class Contract(Seq2SeqContract):
        def make(self, context: ModelContext) -> Seq2Seq:
            model: Seq2Seq = cls(context, width=6, embedding=5)
            return model

    asked = [promise for promise in promises(Contract()) if only in ("", promise.text)]
    return {promise.text: said for promise in asked if (said := breach(promise.check))}


@breaks("answers have a row for each prefix")
class AttentionOfManyHeads(MGU):
    def step(self, memory: Memory, state: State, tokens: Tensor) -> Stepped:
        state, output, attention = super().step(memory, state, tokens)
        return state, output, attention[:, None]


@breaks("all steps at once equal the step loop")
class TrainsOneTokenLate(MGU):
    def forward(self, source: Tensor, lengths: Tensor, target_in: Tensor) -> Tensor:
        return super().forward(source, lengths, torch.cat([target_in[:, :1], target_in[:, :-1]], 1))


@breaks("every parameter learns and both ways agree on its gradient")
class HasAParameterTooMany(MGU):
    def __init__(self, context: ModelContext, **options: int) -> None:
        super().__init__(context, **options)
        self.forgotten = nn.Parameter(torch.zeros(3))


@breaks("every parameter learns and both ways agree on its gradient")
class LearnsNothingFromTheSource(MGU):
    def forward(self, source: Tensor, lengths: Tensor, target_in: Tensor) -> Tensor:
        memory = Memory(*(part.detach() for part in self.encode(source, lengths)[:4]))
        return self.decoder(memory, self.target_embedding(target_in))


@breaks("a sentence is what it would be alone")
class NormalisesOverTheBatch(MGU):
    def project(self, output: Tensor) -> Tensor:
        return super().project(output - output.mean(0))

    def forward(self, source: Tensor, lengths: Tensor, target_in: Tensor) -> Tensor:
        outputs = super().forward(source, lengths, target_in)
        return outputs - outputs.mean(0)


@breaks("what the padding holds does not matter")
class ReadsThePadding(MGU):
    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        return super().encode(source, torch.full_like(lengths, source.size(1)))


@breaks("a later target token changes nothing before it")
class LooksAhead(MGU):
    def forward(self, source: Tensor, lengths: Tensor, target_in: Tensor) -> Tensor:
        return super().forward(source, lengths, target_in) + target_in.sum(1)[:, None, None]


@breaks("a step leaves the states that it was given")
class WritesIntoItsState(MGU):
    def step(self, memory: Memory, state: State, tokens: Tensor) -> Stepped:
        (after,), output, attention = super().step(memory, state, tokens)
        return (state[0].detach().copy_(after),), output, attention


@breaks("prefixes may come in any order and twice")
class LooksAtItsRow(MGU):
    def step(self, memory: Memory, state: State, tokens: Tensor) -> Stepped:
        state, output, attention = super().step(memory, state, tokens)
        return state, output + torch.arange(len(output))[:, None], attention


@breaks("prefixes of one sentence share its memory")
class TakesRowsForSentences(MGU):
    def step(self, memory: Memory, state: State, tokens: Tensor) -> Stepped:
        if memory.rows is not None:
            memory = memory.at(torch.arange(len(tokens)) % len(memory.values))
        return super().step(memory, state, tokens)


@breaks("what is padded to a step changes none of its rows")
class DividesByTheLengthOfTheBatch(MGU):
    def step(self, memory: Memory, state: State, tokens: Tensor) -> Stepped:
        state, output, attention = super().step(memory, state, tokens)
        return state, output / memory.mask.size(1), attention


@breaks("what stands before a short history does not matter")
class ForgetsHowLongItsHistoryIs(MGU):
    def __init__(self, context: ModelContext, **options: int) -> None:
        super().__init__(context, **options)
        self.histories = 1

    def start(self, memory: Memory) -> State:
        (h,) = super().start(memory)
        return h, h.new_zeros(len(h), 0, 5)

    def step(self, memory: Memory, state: State, tokens: Tensor) -> Stepped:
        *own, history = state
        history = torch.cat([history, self.target_embedding(tokens)[:, None]], 1)
        after, output, attention = super().step(memory, tuple(own), tokens)
        return (*after, history), output + history.mean((1, 2))[:, None], attention


@breaks("prefixes that share histories take the same steps")
class LooksAtTheHistoriesOfOthers(MGU):
    def __init__(self, context: ModelContext, **options: int) -> None:
        super().__init__(context, **options)
        self.histories = self.history_heads = 1

    def start(self, memory: Memory) -> State:
        (h,) = super().start(memory)
        return h, h.new_zeros(len(h), 0, 2)

    def step(self, memory: Memory, state: State, tokens: Tensor) -> Stepped:
        after, output, attention = super().step(memory, state[:1], tokens)
        entry = self.target_embedding(tokens)[:, None, :2]
        return (*after, torch.cat([state[1], entry], 1)), output, attention

    def step_sharing(
        self, memory: Memory, state: State, histories: Sequence[SharedEntries], tokens: Tensor
    ) -> Stepped:
        after, output, attention = super().step(memory, state, tokens)
        entry = self.target_embedding(tokens)[:, None, :2]
        return (*after, entry), output + histories[0].keys.mean(), attention


@breaks("attention is a distribution over the source")
class AttentionThatIsNotNormalised(MGU):
    def step(self, memory: Memory, state: State, tokens: Tensor) -> Stepped:
        state, output, attention = super().step(memory, state, tokens)
        return state, output, 2 * attention


@breaks("the output layer is what projects and can start from frequencies")
class HasATemperature(MGU):
    def project(self, output: Tensor) -> Tensor:
        return super().project(output) / 2


@breaks("a frozen model is the same model")
class LosesABiasWhenFrozen(MGU):
    def freeze(self, kernels: Kernels) -> None:
        with torch.no_grad():
            self.softmax.bias.zero_()
        super().freeze(kernels)


@breaks("it can be built without memory")
class ReadsItsInitialValues(MGU):
    def __init__(self, context: ModelContext, **options: int) -> None:
        super().__init__(context, **options)
        self.scale = float(self.softmax.weight.norm())


def test_the_example_breaks_nothing() -> None:
    assert broken(MGU) == {}


@pytest.mark.parametrize("cls", BUGS, ids=[cls.__name__ for cls in BUGS])
def test_a_bug_breaks_the_promise_that_is_named_for_it(cls: type[Any]) -> None:
    (said,) = broken(cls, only=BUGS[cls]).values()
    assert " must " in said, "a crash names no promise"


def test_every_promise_is_broken_by_some_bug() -> None:
    tests = [name for name in dir(Seq2SeqContract) if name.startswith("test_")]
    assert {name.removeprefix("test_").replace("_", " ") for name in tests} == set(BUGS.values())
