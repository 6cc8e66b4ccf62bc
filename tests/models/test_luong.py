"""`luong` is section 3 of the paper: PyTorch's stack of LSTMs, equations 1 to 5 after it, input feeding or none."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from sgdec.models.base import ModelContext
from sgdec.models.luong import Luong, LuongDecoder
from tests.helpers.families import make

SOURCES, LENGTHS = torch.tensor([[5, 6, 7, 8, 9], [10, 11, 4, 2, 2]]), torch.tensor([5, 3])
TARGETS = torch.tensor([[1, 9, 8, 7], [1, 3, 3, 5]])


def parts(family: str = "luong", **options: Any) -> tuple[Luong, LuongDecoder]:
    model = cast(Luong, make(family, **options))
    return model, cast(LuongDecoder, model.decoder)


def test_equations_1_to_5_for_one_sentence() -> None:
    """As the paper writes them: columns are positions, and H, S, W_a, W_c, F_c are matrices."""
    model, decoder = parts()
    source, lengths = SOURCES[:1], LENGTHS[:1]
    memory = model.encode(source, lengths)
    states = decoder.stack(model.target_embedding(TARGETS[:1]), *decoder.start(memory))
    S, H = memory.values[0].T, states[0].T
    scores = H.T @ decoder.attention.key.weight @ S  # (2) [N, M]
    alpha = torch.softmax(scores, -1)  # (1)
    C = (alpha @ S.T).T  # (3)
    Hc = torch.tanh(decoder.combine.weight @ torch.cat([H, C]))  # (4)
    P = torch.softmax((model.softmax.weight @ Hc).T + model.softmax.bias, -1)  # (5)
    torch.testing.assert_close(torch.softmax(model.project(model(source, lengths, TARGETS[:1])), -1)[0], P)


def test_the_encoder_is_pytorchs_stack_of_lstms() -> None:
    model, decoder = parts(layers=3)
    theirs = nn.LSTM(8, 8, 3, batch_first=True).double()
    theirs.load_state_dict(model.encoder.lstm.state_dict())  # type: ignore[union-attr]
    memory = model.encode(SOURCES, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        outputs, (hidden, cell) = theirs(model.source_embedding(SOURCES[row : row + 1, :length]))
        torch.testing.assert_close(memory.values[row, :length], outputs[0])
        start = decoder.start(memory)
        torch.testing.assert_close((start[0][row], start[1][row]), (hidden[:, 0], cell[:, 0]))


def test_input_feeding_gives_the_first_layer_what_attention_made_of_the_step_before() -> None:
    """Step by step with PyTorch's own cells."""
    model, decoder = parts("luong fed", layers=1)
    cell = nn.LSTMCell(6 + 8, 8).double()
    weights = decoder.stack.lstm.state_dict()
    cell.load_state_dict({name.removesuffix("_l0"): weight for name, weight in weights.items()})
    memory = model.encode(SOURCES, LENGTHS)
    hidden, memory_cell = (part[:, 0] for part in decoder.start(memory)[:2])
    fed, outputs = torch.zeros(2, 8, dtype=torch.float64), []
    for tokens in TARGETS.unbind(1):
        hidden, memory_cell = cell(torch.cat([model.target_embedding(tokens), fed], -1), (hidden, memory_cell))
        fed = decoder.attend(hidden[:, None], memory)[:, 0]
        outputs.append(fed)
    torch.testing.assert_close(model(SOURCES, LENGTHS, TARGETS), torch.stack(outputs, 1))


def test_without_input_feeding_states_do_not_depend_on_the_attention() -> None:
    """What lets model and data parallelism alternate: the stack first, attention and softmax after it."""
    for family, independent in (("luong", True), ("luong fed", False)):
        model, decoder = parts(family)
        memory = model.encode(SOURCES, LENGTHS)
        runs: list[Tensor] = []
        for scale in (1.0, 3.0):
            decoder.combine.weight.data *= scale
            state = model.start(memory)
            for tokens in TARGETS.unbind(1):
                state, _, _ = model.step(memory, state, tokens)
            runs.append(state[0])
        assert torch.allclose(*runs) == independent


def test_the_decoder_starts_from_the_encoders_last_states_or_from_zeros() -> None:
    model, decoder = parts()
    assert all(bool(part.any()) for part in decoder.start(model.encode(SOURCES, LENGTHS)))
    for family, options in (("luong", {"bridge": False}), ("gru to luong", {}), ("transformer to luong", {})):
        model, decoder = parts(family, **options)
        assert not any(bool(part.any()) for part in decoder.start(model.encode(SOURCES, LENGTHS)))


@pytest.mark.parametrize(("preset", "fed"), [("hybrid", 0), ("baseline", 1)])
def test_the_models_of_the_paper_instantiate(preset: str, fed: int) -> None:
    """Table 2. Section 4.3 counts 6 million more; the difference, 4 x 1024 x 1024 of input feeding, is the same."""
    with torch.device("meta"):
        model = Luong(ModelContext(32_000, 32_000), **Luong.presets[preset])

    def lstm(inputs: int) -> int:
        return 4 * 1024 * (inputs + 1024 + 2)

    stacks = 2 * (lstm(512) + 3 * lstm(1024)) + fed * 4 * 1024 * 1024
    after = 1024 * 1024 + 2 * 1024 * 1024 + 32_000 * (1024 + 1)
    total = sum(parameter.numel() for parameter in model.parameters())
    assert total == stacks + after + 2 * 32_000 * 512
    assert round(total / 1e6, 1) == (135.9 if fed else 131.7)


@pytest.mark.parametrize("encoder", ["lstm", "gru"])
def test_parameters_start_uniformly_within_the_bound(encoder: Any) -> None:
    torch.manual_seed(0)
    model = Luong(ModelContext(50, 50), width=32, init=0.07, encoder=encoder)
    for name, parameter in model.named_parameters():
        if encoder == "lstm" or not name.startswith("encoder."):
            assert parameter.abs().max() <= 0.07, name
            assert parameter.abs().max() > 0.06, name
