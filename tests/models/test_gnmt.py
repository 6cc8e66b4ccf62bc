"""GNMT's model keeps the contract of translation models in every shape, and its layers are the paper's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sgdec.errors import UsageError
from sgdec.models.base import ModelContext, Seq2Seq
from sgdec.models.gnmt import GNMT
from sgdec.testing.seq2seq_contract import Seq2SeqContract

CONTEXT = ModelContext(source_vocab_size=23, target_vocab_size=29)
SHAPES: list[dict[str, Any]] = [
    {},
    {"layers": 4},
    {"encoder_layers": 1, "decoder_layers": 2},
    {"encoder_layers": 2, "decoder_layers": 4},
    {"encoder_layers": 4, "decoder_layers": 2},
    {"embedding": 5, "attention": 7},
    {"tied": "target", "forget_bias": 1.0},
    {"encoder_layers": 2, "decoder_layers": 4, "bridge": True},
    {"encoder_layers": 4, "decoder_layers": 2, "bridge": True},
    {"normed": True},
]


def make(dtype: torch.dtype = torch.float64, context: ModelContext = CONTEXT, **options: Any) -> GNMT:
    torch.manual_seed(7)
    return GNMT(context, **{"width": 8, "init": 0.5, **options}).to(dtype).eval()


def sources() -> tuple[Tensor, Tensor]:
    """Three sentences of 6, 2 and 4 tokens."""
    return torch.tensor([[5, 6, 7, 8, 9, 3], [10, 11, 2, 2, 2, 2], [22, 3, 4, 5, 2, 2]]), torch.tensor([6, 2, 4])


TARGETS = torch.tensor([[1, 9, 8, 7, 28], [1, 3, 3, 2, 2], [1, 5, 4, 3, 2]])


@pytest.mark.slow
class TestShapes(Seq2SeqContract):
    @pytest.fixture(autouse=True, params=SHAPES, ids=str)
    def _choose(self, request: pytest.FixtureRequest) -> None:
        self.options: dict[str, Any] = request.param

    def make(self, context: ModelContext) -> Seq2Seq:
        return GNMT(context, **{"width": 8, **self.options})


@pytest.mark.parametrize("normed", [False, True])
def test_attention_is_equation_4(normed: bool) -> None:
    """Against the formula, one source position after the other."""
    model, (source, lengths) = make(normed=normed), sources()
    v = model.score.weight[0]
    if normed:
        assert model.gain is not None
        model.gain.data.fill_(1.7)
        v = 1.7 * v / v.norm()
    memory = model.encode(source, lengths)
    query = torch.randn(3, 2, 8, dtype=torch.float64)
    contexts, weights = model.attend(query, memory)
    for row, length in enumerate(lengths.tolist()):
        for step in range(2):
            hidden = [
                torch.tanh(
                    model.query.weight @ query[row, step] + model.key.weight @ memory.values[row, t] + model.key.bias
                )
                for t in range(length)
            ]
            exponentials = torch.stack([(v @ h).exp() for h in hidden])
            expected = exponentials / exponentials.sum()
            torch.testing.assert_close(weights[row, step, :length], expected)
            torch.testing.assert_close(contexts[row, step], expected @ memory.values[row, :length])
            assert weights[row, step, length:].eq(0).all(), "padding got attention"


def test_the_decoder_starts_from_zeros_or_from_the_encoder() -> None:
    plain, bridged = make(), make(bridge=True)
    assert not any(tensor.any() for tensor in plain.start(plain.encode(*sources())))
    source, _ = sources()
    for row in range(3):  # the right-to-left direction ends at the first word and the other layers at the last
        alone = bridged.source_embedding(source[row : row + 1, : sources()[1][row]])
        bottom, (hidden, cell) = bridged.encoder[0](alone)
        _, (upper_hidden, upper_cell) = bridged.encoder[1](bottom)
        state = bridged.start(bridged.encode(*sources()))
        expected = hidden[1, 0], cell[1, 0], upper_hidden[0, 0], upper_cell[0, 0]
        torch.testing.assert_close(tuple(tensor[row] for tensor in state), expected)


def test_the_attention_of_a_step_is_the_one_that_predicts_the_next_token() -> None:
    """The query is the bottom layer after consuming the token: the same step's output uses this context."""
    model = make()
    memory = model.encode(*sources())
    state, output, attention = model.step(memory, model.start(memory), torch.tensor([1, 1, 1]))
    _, expected = model.attend(state[0][:, None], memory)
    torch.testing.assert_close(attention, expected[:, 0])
    torch.testing.assert_close(output, state[2])


def test_the_bottom_decoder_layer_does_not_see_the_context() -> None:
    model = make()
    memory = model.encode(*sources())
    other = memory._replace(values=torch.randn_like(memory.values))
    tokens, start = torch.tensor([1, 1, 1]), model.start(memory)
    one, two = model.step(memory, start, tokens)[0], model.step(other, start, tokens)[0]
    torch.testing.assert_close(one[:2], two[:2])
    assert not torch.allclose(one[2], two[2])


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize(("layer", "residual"), [(1, False), (2, True), (3, True)])
def test_residual_connections_start_at_the_third_layer(stack: str, layer: int, residual: bool) -> None:
    """A top layer of zero weights puts out zeros: what the layer below says passes it by, or not at all."""
    model = make(layers=4)
    layers = getattr(model, stack)
    outputs = []
    for kept in (layers[: layer + 1], layers[:layer]):
        setattr(model, stack, kept)
        for parameter in layers[layer].parameters():
            parameter.data.zero_()
        if stack == "decoder":
            outputs.append(model(*sources(), TARGETS))
        elif len(kept) > 1:  # the bottom layer alone is wider than what the attention expects
            outputs.append(model.encode(*sources()).values)
    torch.testing.assert_close(outputs[0], outputs[1] if residual else torch.zeros_like(outputs[0]))


def test_the_encoder_is_bidirectional_at_the_bottom_only() -> None:
    model = make(layers=4)
    assert [lstm.bidirectional for lstm in model.encoder] == [True, False, False, False]
    assert [lstm.input_size for lstm in model.encoder] == [8, 16, 8, 8]
    assert [lstm.input_size for lstm in model.decoder] == [8, 16, 16, 16]


@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_parameters_start_uniformly_within_the_bound_of_the_paper(bias: float) -> None:
    torch.manual_seed(0)
    model = GNMT(CONTEXT, width=64, forget_bias=bias)
    for name, parameter in model.named_parameters():
        values = parameter.detach().clone()
        if "bias_ih" in name:
            values[64:128] -= bias
        assert values.abs().max() <= 0.04 + 1e-6, name
        if values.numel() > 500:
            assert values.abs().max() > 0.039, name
            assert abs(float(values.std()) - 0.04 / 3**0.5) < 0.001, name


def test_the_model_of_the_paper_instantiates() -> None:
    """8 + 8 layers of 1024, attention of 1024, section 8; nine LSTM passes in the encoder."""
    with torch.device("meta"):
        model = GNMT(ModelContext(32_000, 32_000), **GNMT.presets["gnmt8"])

    def lstm(size: int) -> int:
        return 4 * 1024 * (size + 1024 + 2)

    encoder = 2 * lstm(1024) + lstm(2048) + 6 * lstm(1024)
    decoder = lstm(1024) + 7 * lstm(2048)
    attention = 2 * 1024 * 1024 + 2 * 1024
    vocabulary = 3 * 32_000 * 1024 + 32_000
    assert sum(parameter.numel() for parameter in model.parameters()) == encoder + decoder + attention + vocabulary


def test_tied_weights_are_one_parameter() -> None:
    shared = ModelContext(29, 29, shared=True)
    plain, target, everything = (make(context=shared, tied=tied) for tied in ("none", "target", "all"))
    sizes = [sum(parameter.numel() for parameter in model.parameters()) for model in (plain, target, everything)]
    assert sizes[0] - sizes[1] == sizes[1] - sizes[2] == 29 * 8
    with pytest.raises(UsageError, match="tied=target needs embeddings as wide"):
        make(tied="target", embedding=4)
    with pytest.raises(UsageError, match="tied=all needs one vocabulary"):
        make(tied="all")


def test_an_output_that_starts_from_frequencies_predicts_them_at_first() -> None:
    torch.manual_seed(0)
    model = GNMT(ModelContext(12, 9), width=8, init=1e-6)
    log_frequencies = torch.log_softmax(torch.arange(9.0), -1)
    model.bias_output(log_frequencies)
    source, lengths = torch.tensor([[4, 5, 6]]), torch.tensor([3])
    scores = torch.log_softmax(model.project(model(source, lengths, torch.tensor([[1, 4]]))), -1)
    torch.testing.assert_close(scores, log_frequencies.expand_as(scores), rtol=0, atol=1e-4)
