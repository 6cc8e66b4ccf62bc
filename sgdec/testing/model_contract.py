"""The promises of every translation and language model (`sgdec.models.base`), each as one test.

Training computes all steps at once. Search computes one step of arbitrary prefixes, in any order, padded or repeated.
The promises ensure that both give the same numbers. This module imports torch, so `sgdec.testing` does not import it.
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
from sgdec.models.shapes import shapes_only

TARGETS = torch.tensor([[1, 9, 8, 7, 28], [1, 3, 3, 2, 2], [1, 5, 4, 3, 2]])
BEGIN = torch.tensor([1, 1, 1])
"""``<s>`` for each sentence."""

AnyModel = TypeVar("AnyModel", bound=Model)


class ModelContract(ABC, Generic[AnyModel]):
    """The common part of the contracts for both kinds of models.

    Models are tested in float64 and in evaluation mode. All parameters are replaced by random values, because initial
    values of 0 or 1 would hide errors.
    """

    context: ModelContext
    """The context of the model: 29 target tokens."""
    tolerance: float = 1e-10
    """The largest allowed difference between two ways to compute the same number."""

    @abstractmethod
    def make(self, context: ModelContext) -> AnyModel:
        """A new model without dropout, as small as possible."""

    def test_all_steps_at_once_equal_the_step_loop(self) -> None:
        model = self._model()
        fast, slow = self._outputs(model), self._loop(model)
        self._same(model.project(fast), model.project(slow), "forward must agree with the loop of step")

    def test_every_parameter_learns_and_both_ways_agree_on_its_gradient(self) -> None:
        model, gradients = self._model(), []
        for outputs in (self._outputs, self._loop):
            model.zero_grad()
            scores = torch.log_softmax(model.project(outputs(model)), -1)
            scores[..., 4].sum().backward()
            gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
        for name, gradient in gradients[0].items():
            learns = gradient is not None and bool(gradient.isfinite().all()) and float(gradient.abs().sum()) > 0
            assert learns, f"a parameter must have a finite gradient that is not 0: {name}"
            promise = f"forward must have the same gradient as the loop of step, at {name}"
            self._same(gradient, gradients[1][name], promise, tolerance=1e-9, relative=1e-8)

    def test_a_later_target_token_changes_nothing_before_it(self) -> None:
        model, changed = self._model(), TARGETS.clone()
        changed[:, 3:] = 6
        before, after = self._outputs(model), self._outputs(model, changed)
        self._same(after[:, :3], before[:, :3], "an output must depend only on the tokens before it", tolerance=1e-12)
        assert not torch.allclose(after[:, 3:], before[:, 3:]), "an output must depend on the last token consumed"

    def test_the_output_layer_is_what_projects_and_can_start_from_frequencies(self) -> None:
        """Checked only if the model has an output layer."""
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
        """Checked in float32, with weights packed for the CPU."""
        model = self._model().float()
        expected = model.project(self._outputs(model))
        model.freeze(Kernels())
        with torch.inference_mode():
            found = model.project(self._loop(model))
        self._same(found, expected, "a frozen model must be the same", tolerance=2e-5)

    def test_it_can_be_built_without_memory(self) -> None:
        """Before a checkpoint is loaded, it is compared with a model whose parameters have shapes, but no values."""
        try:
            with shapes_only(10_000):
                outline = self.make(self.context).state_dict()
        except RuntimeError as error:
            raise AssertionError(f"a constructor must not read the values of tensors: {error}") from None
        shapes = {name: tensor.shape for name, tensor in self._model().state_dict().items()}
        assert {name: tensor.shape for name, tensor in outline.items()} == shapes, "shapes must not depend on values"

    @abstractmethod
    def _outputs(self, model: AnyModel, targets: Tensor = TARGETS) -> Tensor:
        """The outputs ``[B, T, H]``, computed for all steps at once."""

    @abstractmethod
    def _loop(self, model: AnyModel, targets: Tensor = TARGETS) -> Tensor:
        """The same outputs, computed one step after the other."""

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
        """``tolerance``: absolute, by default that of the contract; ``relative``: relative tolerance, added to it."""
        atol = self.tolerance if tolerance is None else tolerance
        torch.testing.assert_close(found, expected, rtol=relative, atol=atol, msg=lambda said: f"{promise}: {said}")
