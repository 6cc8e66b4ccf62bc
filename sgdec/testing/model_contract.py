"""What every model promises (`sgdec.models.base`), translation or language model, each promise as one test.

Training looks at all steps at once, search at one step of prefixes from anywhere, in any order, padded and repeated;
a model that keeps these promises is the same model in both. This module imports torch, so `sgdec.testing` does not
import it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sgdec.errors import UsageError
from sgdec.models.base import Model, ModelContext
from sgdec.models.kernels import Kernels

TARGETS = torch.tensor([[1, 9, 8, 7, 28], [1, 3, 3, 2, 2], [1, 5, 4, 3, 2]])
BEGIN = torch.tensor([1, 1, 1])
"""``<s>`` for each sentence."""

AnyModel = TypeVar("AnyModel", bound=Model)


class ModelContract(ABC, Generic[AnyModel]):
    """What the contracts of both kinds of models share.

    The models are asked in float64 and do not train. Their parameters are drawn again, so that none is 0 or 1 because
    training starts there.
    """

    context: ModelContext
    """What the model is made for: 29 target tokens."""
    tolerance: float = 1e-10
    """How much two ways to compute the same number may differ."""

    @abstractmethod
    def make(self, context: ModelContext) -> AnyModel:
        """A new model, as small as can be, without dropout."""

    def test_all_steps_at_once_equal_the_step_loop(self) -> None:
        model = self._model()
        fast, slow = self._outputs(model), self._loop(model)
        self._same(model.project(fast), model.project(slow), "forward must agree with the loop of step")

    def test_every_parameter_learns_and_both_ways_agree_on_its_gradient(self) -> None:
        model, gradients = self._model(), []
        for outputs in (self._outputs, self._loop):
            model.zero_grad()
            scores = torch.log_softmax(model.project(outputs(model)), -1)
            scores[..., 4].sum().backward()  # type: ignore[no-untyped-call]
            gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
        for name, gradient in gradients[0].items():
            learns = gradient is not None and bool(gradient.isfinite().all()) and float(gradient.abs().sum()) > 0
            assert learns, f"a parameter must have a finite gradient that is not 0: {name}"
            promise = f"forward must have the gradient of the loop of step, at {name}"
            self._same(gradient, gradients[1][name], promise, tolerance=1e-9, relative=1e-8)

    def test_a_later_target_token_changes_nothing_before_it(self) -> None:
        model, changed = self._model(), TARGETS.clone()
        changed[:, 3:] = 6
        before, after = self._outputs(model), self._outputs(model, changed)
        self._same(after[:, :3], before[:, :3], "an output must depend on the tokens before it only", tolerance=1e-12)
        assert not torch.allclose(after[:, 3:], before[:, 3:]), "an output must depend on the last token consumed"

    def test_the_output_layer_is_what_projects_and_can_start_from_frequencies(self) -> None:
        """Where the model says that it has one."""
        model = self._model()
        try:
            layer, bound = model.output_layer()
        except UsageError:
            return
        output = self._outputs(model)
        logits = F.linear(output, layer.weight, layer.bias)
        expected = logits if bound is None else logits.clamp(-bound, bound)
        self._same(model.project(output), expected, "project must be the output layer")
        scores = torch.log_softmax(torch.arange(29.0), -1)
        model.bias_output(scores)
        self._same(layer.bias, scores.double(), "bias_output must set the output layer's bias")

    def test_a_frozen_model_is_the_same_model(self) -> None:
        """Packed for a processor, in float32."""
        model = self._model().float()
        expected = model.project(self._outputs(model))
        model.freeze(Kernels())
        with torch.inference_mode():
            found = model.project(self._loop(model))
        self._same(found, expected, "a frozen model must be the same", tolerance=2e-5)

    @abstractmethod
    def _outputs(self, model: AnyModel, targets: Tensor = TARGETS) -> Tensor:
        """``[B, T, H]``, all steps at once."""

    @abstractmethod
    def _loop(self, model: AnyModel, targets: Tensor = TARGETS) -> Tensor:
        """The same, one step after the other."""

    def _model(self) -> AnyModel:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
            model = self.make(self.context)
            for parameter in model.parameters():
                torch.nn.init.normal_(parameter, std=0.5)
        return model.to(torch.float64).eval()

    def _same(
        self, found: Any, expected: Any, promise: str, *, tolerance: float | None = None, relative: float = 0.0
    ) -> None:
        """``tolerance``: as the contract's, which it replaces; ``relative``: besides, times what is expected."""
        atol = self.tolerance if tolerance is None else tolerance
        torch.testing.assert_close(found, expected, rtol=relative, atol=atol, msg=lambda said: f"{promise}: {said}")
