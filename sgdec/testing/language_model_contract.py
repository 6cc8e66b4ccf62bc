"""The promises of every language model (`sgdec.models.base`), each as one test.

They include the promises of all models (`sgdec.testing.model_contract`).

This module imports torch, so `sgdec.testing` does not import it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sgdec.models.base import LanguageModel, ModelContext, State
from sgdec.testing.model_contract import BEGIN, TARGETS, ModelContract

CONTEXT = ModelContext(source_vocab_size=0, target_vocab_size=29)
TOKENS = torch.tensor([4, 28, 6])
"""The first token of each of three prefixes, after ``<s>``."""


class LanguageModelContract(ModelContract[LanguageModel]):
    """Subclass it, name the subclass ``Test...``, and implement `make`; pytest runs the tests.

    >>> from sgdec.models.rnnlm import RNNLM
    >>> class TestSmall(LanguageModelContract):
    ...     def make(self, context):
    ...         return RNNLM(context, width=6, layers=1)
    >>> TestSmall().test_answers_have_a_row_for_each_prefix()
    """

    context = CONTEXT

    def test_answers_have_a_row_for_each_prefix(self) -> None:
        model = self._model()
        state = self._begun(model)
        after, output = model.step(state, TOKENS)
        for part in (*state, *after, output):
            assert len(part) == 3, f"states and outputs must have one row per prefix: {list(part.shape)} for 3"
        assert output.dim() == 2, f"an output must be [R, H], not {list(output.shape)}"
        logits = model.project(output)
        assert logits.shape == (3, 29), f"logits must be [R, V], here [3, 29], not {list(logits.shape)}"
        outputs, expected = self._outputs(model), (3, 5, output.size(1))
        assert outputs.shape == expected, f"outputs must be [B, T, H], here {expected}, not {list(outputs.shape)}"

    def test_a_line_is_what_it_would_be_alone(self) -> None:
        model = self._model()
        together = self._outputs(model)
        for row in range(3):
            alone = self._outputs(model, TARGETS[row : row + 1])
            self._same(together[row : row + 1], alone, f"line {row} must not depend on others in its batch")

    def test_a_step_leaves_the_states_that_it_was_given(self) -> None:
        model = self._model()
        state = self._begun(model)
        kept = [part.clone() for part in state]
        model.step(state, TOKENS)
        assert all(map(torch.equal, state, kept)), "a step must not change its arguments"

    def test_prefixes_may_come_in_any_order_and_twice(self) -> None:
        model, rows = self._model(), torch.tensor([2, 0, 2])
        state = self._begun(model)
        after, output = model.step(state, TOKENS)
        found = model.step(tuple(part[rows] for part in state), TOKENS[rows])
        expected = tuple(part[rows] for part in after), output[rows]
        self._same(found, expected, "a prefix must not depend on its row")

    def test_what_stands_before_a_short_history_does_not_matter(self) -> None:
        model = self._model()
        state = self._begun(model)
        first = len(state) - model.histories
        state = model.step(state, TOKENS)[0]
        wider = (*state[:first], *(torch.cat([part + 1, part], 1) for part in state[first:]))
        tokens = torch.tensor([7, 8, 9])
        expected, (after, output) = model.step(state, tokens), model.step(wider, tokens)
        ends = (part[:, -len(own[0]) :] for part, own in zip(after[first:], expected[0][first:], strict=True))
        found = (*after[:first], *ends), output
        self._same(found, expected, "entries before a row's history must change nothing")

    def _begun(self, model: LanguageModel) -> State:
        """The states after ``<s>``."""
        return model.step(model.start(3), BEGIN)[0]

    def _outputs(self, model: LanguageModel, targets: Tensor = TARGETS) -> Tensor:
        outputs: Tensor = model(targets)
        return outputs

    def _loop(self, model: LanguageModel, targets: Tensor = TARGETS) -> Tensor:
        return LanguageModel.forward(model, targets)
