"""The promises of every translation model (`sgdec.models.base`), each as one test.

They include the promises of all models (`sgdec.testing.model_contract`).

This module imports torch, so `sgdec.testing` does not import it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sgdec.models.base import Memory, ModelContext, Rows, Seq2Seq, SharedEntries, State
from sgdec.models.cuda_graphs import padded
from sgdec.models.decoding_attention import additive
from sgdec.slots import PrefixPool
from sgdec.testing.model_contract import BEGIN, TARGETS, ModelContract

CONTEXT = ModelContext(source_vocab_size=23, target_vocab_size=29)
SOURCES = torch.tensor([[5, 6, 2, 8, 9, 3], [10, 2, 11, 2, 2, 2], [22, 3, 2, 5, 2, 2]])
"""Each source contains a 2 (``</s>``), because models of two sources need one."""
LENGTHS = torch.tensor([6, 3, 4])


class Seq2SeqContract(ModelContract[Seq2Seq]):
    """Subclass it, name the subclass ``Test...``, and implement `make`; pytest runs the tests.

    Models are tested in float64 and in evaluation mode. All parameters are replaced by random values, because initial
    values of 0 or 1 would hide errors.

    >>> from sgdec.models.shallow import Shallow
    >>> class TestShallow(Seq2SeqContract):
    ...     def make(self, context):
    ...         return Shallow(context, width=6, embedding=6)
    >>> TestShallow().test_attention_is_a_distribution_over_the_source()
    """

    context = CONTEXT

    def test_answers_have_a_row_for_each_prefix(self) -> None:
        model = self._model()
        memory, state = self._begun(model)
        for name, part in zip(Memory._fields, memory[:4], strict=False):
            assert len(part) == 3, f"memory.{name} must have one row per sentence: {list(part.shape)} for 3"
        after, output, attention = model.step(memory, state, torch.tensor([4, 5, 6]))
        for part in (*state, *after, output):
            assert len(part) == 3, f"states and outputs must have one row per prefix: {list(part.shape)} for 3"
        assert output.dim() == 2, f"an output must be [R, H], not {list(output.shape)}"
        assert attention.shape == (3, 6), f"the attention must be [R, S], here [3, 6], not {list(attention.shape)}"
        logits = model.project(output)
        assert logits.shape == (3, 29), f"logits must be [R, V], here [3, 29], not {list(logits.shape)}"
        outputs = self._outputs(model)
        expected = (3, 5, output.size(1))
        assert outputs.shape == expected, f"outputs must be [B, T, H], here {expected}, not {list(outputs.shape)}"

    def test_a_sentence_is_what_it_would_be_alone(self) -> None:
        model = self._model()
        together = self._outputs(model)
        for row, length in enumerate(LENGTHS.tolist()):
            alone = model(SOURCES[row : row + 1, :length], LENGTHS[row : row + 1], TARGETS[row : row + 1])
            self._same(together[row : row + 1], alone, f"sentence {row} must not depend on others in its batch")

    def test_what_the_padding_holds_does_not_matter(self) -> None:
        model = self._model()
        wider = torch.cat([SOURCES, torch.full((3, 4), 2)], 1)
        wider[torch.arange(10) >= LENGTHS[:, None]] = 13
        found = model(wider, LENGTHS, TARGETS)
        self._same(found, self._outputs(model), "tokens beyond the length of a source must change nothing")

    def test_a_step_leaves_the_states_that_it_was_given(self) -> None:
        model = self._model()
        memory, state = self._begun(model)
        kept = [part.clone() for part in (*state, *memory[:4])]
        model.step(memory, state, torch.tensor([4, 5, 6]))
        assert all(map(torch.equal, (*state, *memory[:4]), kept)), "a step must not change its arguments"

    def test_prefixes_may_come_in_any_order_and_twice(self) -> None:
        model, rows = self._model(), torch.tensor([2, 0, 2])
        memory, state = self._begun(model)
        after, output, attention = model.step(memory, state, torch.tensor([4, 5, 6]))
        found = model.step(memory.at(rows), tuple(part[rows] for part in state), torch.tensor([6, 4, 6]))
        expected = tuple(part[rows] for part in after), output[rows], attention[rows]
        self._same(found, expected, "a prefix must not depend on its row")

    def test_prefixes_of_one_sentence_share_its_memory(self) -> None:
        model = self._model()
        memory, state = self._begun(model)
        owners, tokens = torch.tensor([1, 0, 1, 2, 1]), torch.tensor([4, 5, 6, 7, 8])
        repeated = tuple(part[owners] for part in state)
        rows = Rows(torch.tensor([[1, 0, 0], [0, 2, 4], [3, 0, 0]]), torch.tensor([3, 0, 4, 6, 5]))
        shared, expected = (
            model.step(given, repeated, tokens) for given in (memory._replace(rows=rows), memory.at(owners))
        )
        self._same(shared, expected, "with memory.rows one step must equal one over a memory of one row per prefix")

    def test_what_is_padded_to_a_step_changes_none_of_its_rows(self) -> None:
        """Padding as for CUDA graphs: further prefixes, sentences of one token, and source positions."""
        model, tokens = self._model(), torch.tensor([4, 28, 6])
        memory, state = self._begun(model)
        expected = model.step(memory, state, tokens)
        after, output, attention = model.step(*padded(memory, state, tokens))
        found = tuple(part[:3] for part in after), output[:3], attention[:3, :6]
        self._same(found, expected, "a row must not depend on rows and source positions that are added")

    def test_what_stands_before_a_short_history_does_not_matter(self) -> None:
        model = self._model()
        memory, state = self._begun(model)
        first = len(state) - model.histories
        state, tokens = model.step(memory, state, torch.tensor([4, 5, 6]))[0], torch.tensor([7, 8, 9])
        wider = (*state[:first], *(torch.cat([part + 1, part], 1) for part in state[first:]))
        expected, (after, *rest) = model.step(memory, state, tokens), model.step(memory, wider, tokens)
        ends = (part[:, -len(own[0]) :] for part, own in zip(after[first:], expected[0][first:], strict=True))
        found = (*after[:first], *ends), *rest
        self._same(found, expected, "entries before a row's history must change nothing")

    @torch.no_grad()
    def test_prefixes_that_share_histories_take_the_same_steps(self) -> None:
        model = self._model()
        if not model.history_heads:
            return
        memory, state = self._begun(model)
        output = state[0].new_zeros(3, 1)  # is stored with a state, and not looked at here
        pools = PrefixPool(model.histories), PrefixPool(model.histories, heads=model.history_heads)
        apart, together = (pool.put(state, output) for pool in pools)
        for owners in ([0, 1, 2], [1, 0, 1, 2, 1]):  # prefixes of one sentence have the begun one in common
            tokens = torch.tensor([4, 5, 6, 7, 8])[: len(owners)]
            shared = memory._replace(rows=Rows.of(owners, "cpu"))
            before = [[trails[owner] for owner in owners] for trails in (apart, together)]
            own, entries, seen = pools[1].shared(before[1], owners)
            mask = additive(torch.from_numpy(seen), entries[0][0].dtype)
            histories = [SharedEntries(*each, mask, shared.rows) for each in entries]
            expected = model.step(shared, pools[0].states(before[0]), tokens)
            found = model.step_sharing(model.prepare(shared), own, histories, tokens)
            first = len(expected[0]) - model.histories
            new = *expected[0][:first], *(part[:, -1:] for part in expected[0][first:])
            said = "step_sharing must give what step gives, and of histories the new entries"
            self._same(found, (new, *expected[1:]), said)
            if len(owners) == 3:
                apart = pools[0].put(expected[0], output, before[0])
                together = pools[1].put(found[0], output, before[1])

    def test_attention_is_a_distribution_over_the_source(self) -> None:
        model = self._model()
        memory = model.encode(SOURCES, LENGTHS)
        _, _, attention = model.step(memory, model.start(memory), BEGIN)
        ones = torch.ones(3, dtype=attention.dtype)
        self._same(attention.sum(-1), ones, "the attention of a prefix must sum to 1")
        assert bool((attention >= 0).all()), f"attention must not be negative: {attention.min()}"
        beyond = torch.arange(6) >= LENGTHS[:, None]
        assert not attention[beyond].any(), "padding must get no attention"

    def _begun(self, model: Seq2Seq) -> tuple[Memory, State]:
        """The encoded sources, and the states after ``<s>``."""
        memory = model.encode(SOURCES, LENGTHS)
        return memory, model.step(memory, model.start(memory), BEGIN)[0]

    def _outputs(self, model: Seq2Seq, targets: Tensor = TARGETS) -> Tensor:
        outputs: Tensor = model(SOURCES, LENGTHS, targets)
        return outputs

    def _loop(self, model: Seq2Seq, targets: Tensor = TARGETS) -> Tensor:
        return Seq2Seq.forward(model, SOURCES, LENGTHS, targets)
