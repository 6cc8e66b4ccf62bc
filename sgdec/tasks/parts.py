"""The scores of the parts of mixes (`sgdec.mixing`), token by token, for explanations.

A search sees a mix as one predictor, and so does the ledger. Here the mixes of a run read an output once more, and
say what each part gives to each of its tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from sgdec.context import EOS
from sgdec.mixing import Mix
from sgdec.protocol import FORBIDDEN, BatchPredictor, Source, State, ability
from sgdec.search.constellation import Constellation
from sgdec.trace.records import SentenceTrace
from sgdec.trace.writing import DECIMALS
from sgdec.wrapping import Wrapper

PartScores: TypeAlias = Mapping[str, Mapping[str, list[float]]]
"""By mix and part: the score of each token, ``</s>`` last; -inf from the first token on that the part forbids."""


def mixes_of(constellation: Constellation) -> dict[str, list[BatchPredictor]]:
    """The entries that are mixes, or wrappers around one, by name: all wrappers, outermost first, then the mix."""
    found = {}
    for member in constellation.members:
        chain: list[BatchPredictor] = [member.predictor]
        while isinstance(chain[-1], Wrapper):
            chain.append(chain[-1].inner)
        if isinstance(chain[-1], Mix):
            found[member.name] = chain
    return found


def part_scores(
    constellation: Constellation, source: Source, outputs: Sequence[Sequence[int]]
) -> list[PartScores]:
    """For each output, its tokens without ``</s>``, the scores of the parts of all mixes; empty without mixes."""
    found: list[dict[str, dict[str, list[float]]]] = [{} for _ in outputs]
    for name, chain in mixes_of(constellation).items() if outputs else ():
        outer, mix = chain[0], chain[-1]
        assert isinstance(mix, Mix)
        for each in found:
            each[name] = {part: [] for part in mix.inner}
        going = list(range(len(outputs)))
        states = roots = outer.initialize_batch([source] * len(outputs))
        for place in range(1 + max(map(len, outputs))):
            tokens = [(*outputs[number], EOS)[place] for number in going]
            inner = _inside(chain, states)
            for number, scores in zip(going, mix.part_scores(inner, tokens), strict=True):
                for part, score in scores.items():
                    found[number][name][part].append(score)
            longer = [(state, number) for state, number in zip(states, going, strict=True)
                      if place < len(outputs[number])]  # fmt: skip
            going = [number for _, number in longer]
            if going:
                after = [outputs[number][place] for number in going]
                states = outer.consume_batch([state for state, _ in longer], after)
        if (release := ability(outer, "release")) is not None:
            release(roots)
    return list(found)


def with_parts(constellation: Constellation, source: Source, trace: SentenceTrace) -> SentenceTrace:
    """A trace whose hypotheses have the scores of the parts of mixes."""
    if not mixes_of(constellation):
        return trace
    found = part_scores(constellation, source, [ended.tokens for ended in trace.hypotheses])
    hypotheses = [
        replace(ended, part_scores={
            mix: {part: tuple(None if score == FORBIDDEN else round(score, DECIMALS) for score in scores)
                  for part, scores in own.items()}
            for mix, own in parts.items()
        })
        for ended, parts in zip(trace.hypotheses, found, strict=True)
    ]  # fmt: skip
    return replace(trace, hypotheses=tuple(hypotheses))


def _inside(chain: Sequence[BatchPredictor], states: Sequence[State]) -> Sequence[State]:
    """The states of the mix that these states of its outermost wrapper contain."""
    for wrapper in chain[:-1]:
        assert isinstance(wrapper, Wrapper)
        states = wrapper.inner_states(states)
    return states
