"""`shallow` and `deep-transition`: blocks are PyTorch's GRUs, cells are chains of them, the attention stands between
the first and the second block of the decoder, and dropout has one mask for all steps of a sentence."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from sgdec.models.attention import AdditiveAttention
from sgdec.models.base import Memory, ModelContext
from sgdec.models.deep_transition import DeepTransition
from sgdec.models.gru import GRUBlock, GRUDecoder, GRUEncoder, Masks, VariationalDropout
from sgdec.models.gru_lm import GRULM
from sgdec.models.shallow import Shallow
from tests.helpers.families import make

SOURCES, LENGTHS = torch.tensor([[5, 6, 7, 8, 9], [10, 11, 4, 2, 2]]), torch.tensor([5, 3])
TARGETS = torch.tensor([[1, 9, 8, 7], [1, 3, 3, 5]])
MASK = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])


def shaken(module: nn.Module) -> Any:
    torch.manual_seed(3)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.double().eval()


def weights(block: GRUBlock, suffix: str = "") -> dict[str, Tensor]:
    """As PyTorch names them; a transition has no product with its input."""
    own = {"hh": block.recurrent[0]}  # type: ignore[index]
    if block.inputs is not None:
        own["ih"] = block.inputs[0]  # type: ignore[index]
    return {
        f"{what}_{name}{suffix}": getattr(layer, what) for name, layer in own.items() for what in ("weight", "bias")
    }


def test_a_block_is_pytorchs_cell() -> None:
    block, cell = shaken(GRUBlock(4, 6)), nn.GRUCell(4, 6).double()
    cell.load_state_dict(weights(block))
    x, hidden = (torch.randn(3, size, dtype=torch.float64) for size in (4, 6))
    torch.testing.assert_close(block(block.read(x), hidden), cell(x, hidden))


def test_a_transition_is_a_cell_whose_input_says_nothing() -> None:
    block, cell = shaken(GRUBlock(None, 6)), nn.GRUCell(4, 6).double()
    cell.load_state_dict({**cell.state_dict(), **weights(block)})
    for name in ("weight_ih", "bias_ih"):
        nn.init.zeros_(getattr(cell, name))
    x, hidden = (torch.randn(3, size, dtype=torch.float64) for size in (4, 6))
    torch.testing.assert_close(block(None, hidden), cell(x, hidden))


def test_layer_normalisation_is_of_each_product_over_all_gates() -> None:
    block = shaken(GRUBlock(4, 2, norm=True))
    x, hidden = (torch.randn(3, size, dtype=torch.float64) for size in (4, 2))

    def normalised(layer: Any, values: Tensor) -> Tensor:
        products = values @ layer[0].weight.T
        centred = products - products.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer[1].weight + layer[1].bias

    read, recurrent = normalised(block.inputs, x), normalised(block.recurrent, hidden)
    r, z = torch.sigmoid(read + recurrent)[:, :4].chunk(2, -1)
    n = torch.tanh(read[:, 4:] + r * recurrent[:, 4:])
    torch.testing.assert_close(block(block.read(x), hidden), (1 - z) * n + z * hidden)


def test_an_encoder_of_one_block_is_pytorchs_bidirectional_gru() -> None:
    encoder, theirs = shaken(GRUEncoder(4, 6)), nn.GRU(4, 6, batch_first=True, bidirectional=True).double()
    theirs.load_state_dict(
        {**weights(encoder.directions[0][0], "_l0"), **weights(encoder.directions[1][0], "_l0_reverse")}
    )
    embedded = torch.randn(2, 5, 4, dtype=torch.float64)
    values = encoder(embedded, MASK).values
    for row, length in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(values[row, :length], theirs(embedded[row : row + 1, :length])[0][0])


def test_a_tall_encoder_cell_is_a_chain_of_blocks() -> None:
    encoder = shaken(GRUEncoder(4, 6, blocks=3, norm=True))
    embedded = torch.randn(1, 4, 4, dtype=torch.float64)
    found = encoder(embedded, torch.ones(1, 4, dtype=torch.bool)).values[0]
    for direction, order in enumerate(([0, 1, 2, 3], [3, 2, 1, 0])):
        hidden = torch.zeros(1, 6, dtype=torch.float64)
        first, second, third = encoder.directions[direction]
        for t in order:
            hidden = third(None, second(None, first(first.read(embedded[:, t]), hidden)))
            torch.testing.assert_close(found[t, 6 * direction : 6 * direction + 6], hidden[0])


def test_the_decoders_cell_attends_between_its_first_and_its_second_block() -> None:
    """One step, in the order of the paper."""
    model = cast(DeepTransition, make("deep"))
    decoder = cast(GRUDecoder, model.decoder)
    memory = model.encode(SOURCES, LENGTHS)
    (state,), tokens = decoder.start(memory), torch.tensor([4, 5])
    embedded = model.target_embedding(tokens)
    asked = decoder.first(decoder.first.read(embedded), state)
    contexts, weights = decoder.attention(asked[:, None], memory)
    hidden = decoder.second(decoder.second.read(contexts[:, 0]), asked)
    assert len(decoder.transitions) == 2, "four blocks in all"
    for block in decoder.transitions:
        hidden = block(None, hidden)
    output = torch.tanh(decoder.readout(torch.cat([hidden, embedded, contexts[:, 0]], -1)))
    torch.testing.assert_close(model.step(memory, (state,), tokens), ((hidden,), output, weights[:, 0]))


def test_the_decoder_starts_from_the_mean_of_what_the_encoder_says() -> None:
    model = cast(Shallow, make("shallow"))
    decoder, memory = cast(GRUDecoder, model.decoder), model.encode(SOURCES, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        mean = memory.values[row, :length].mean(0)
        torch.testing.assert_close(decoder.start(memory)[0][row], torch.tanh(decoder.initial(mean)))


@pytest.mark.parametrize("norm", [False, True])
def test_additive_attention_is_its_formula(norm: bool) -> None:
    """One source position after the other."""
    attention = shaken(AdditiveAttention(3, 4, 6, norm=norm))
    values, query = (torch.randn(2, steps, size, dtype=torch.float64) for steps, size in ((5, 4), (2, 3)))
    memory = Memory(values, attention.keys(values), MASK, values[:, 0])
    contexts, weights = attention(query, memory)
    for row, length in enumerate(LENGTHS.tolist()):
        for step in range(2):
            scores = [
                attention.v.weight[0] @ torch.tanh(attention.query(query[row, step]) + attention.key(values[row, t]))
                for t in range(length)
            ]
            expected = torch.softmax(torch.stack(scores), -1)
            torch.testing.assert_close(weights[row, step, :length], expected)
            torch.testing.assert_close(contexts[row, step], expected @ values[row, :length])


def test_dropout_has_one_mask_for_all_steps_of_a_sentence() -> None:
    """Equal words in a row: with a new mask at each step, what blocks read would differ."""
    masks = VariationalDropout(0.5, 3, 6, 4, 2).train()(torch.zeros(7, 9))
    assert [tuple(mask.shape) for mask in (*masks.states, *masks.inputs) if mask is not None] == [
        (7, 6), (7, 6), (7, 6), (7, 4), (7, 2),
    ]  # fmt: skip
    values = torch.cat([mask.flatten() for mask in (*masks.states, *masks.inputs) if mask is not None])
    assert sorted(set(values.tolist())) == [0.0, 2.0]

    encoder = shaken(GRUEncoder(4, 6, dropout=0.5)).train()
    seen: list[Tensor] = []
    block = encoder.directions[0][0]
    block.inputs.register_forward_hook(lambda module, given, result: seen.append(given[0]))
    encoder(torch.ones(2, 5, 4, dtype=torch.float64), MASK)
    (read,) = seen
    assert read.eq(read[:, :1]).all() and set(read.unique().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("block", [0, 1, 2])
def test_the_mask_of_a_block_hides_its_state_from_it_in_training_as_in_the_language_model(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mask of zeros does what a product with zeros does."""
    model = shaken(GRULM(ModelContext(0, 12), depth=3, width=6, embedding=4, dropout=0.5))
    target = torch.tensor([[1, 5, 7, 3], [1, 3, 3, 9]])
    zero = torch.zeros(2, 6, dtype=torch.float64)
    masks = Masks([zero if place == block else None for place in range(3)], [None, None])
    with monkeypatch.context() as patch:
        patch.setattr(model.dropout, "forward", lambda like: masks)
        masked = model(target)
    without = model(target)
    [model.first, model.second, *model.transitions][block].recurrent[0].weight.data.zero_()
    assert torch.allclose(masked, model(target)) and not torch.allclose(masked, without)


def test_the_deep_model_of_the_paper_instantiates() -> None:
    """3.1.1: 4 and 8 blocks of 1024, embeddings of 512, layer normalisation, dropout of 0.1: all by default."""
    with torch.device("meta"):
        model = DeepTransition(ModelContext(36_000, 36_000, True), tied="all")
    d, e = 1024, 512

    def block(inputs: int | None) -> int:
        """Weights, and gain and bias of what each product is normalised to."""
        products = 1 if inputs is None else 2
        return 3 * d * (d + (inputs or 0)) + products * 2 * 3 * d

    encoder = 2 * (block(e) + 3 * block(None))
    attention = d * d + 2 * d * d + 4 * d + d
    decoder = block(e) + block(2 * d) + 6 * block(None) + attention
    ends = 2 * d * d + 2 * d + (d + e + 2 * d) * e + 2 * e
    vocabulary = 36_000 * (e + 1)
    assert sum(parameter.numel() for parameter in model.parameters()) == encoder + decoder + ends + vocabulary
    dropouts = [module.p for module in model.modules() if isinstance(module, VariationalDropout)]
    assert dropouts == [0.1, 0.1]


def test_the_shallow_model_is_the_deep_one_with_the_fewest_blocks() -> None:
    options: dict[str, Any] = {"width": 6, "embedding": 4, "layer_norm": True}
    shallow = Shallow(ModelContext(9, 9), **options)
    deep = DeepTransition(ModelContext(9, 9), encoder_depth=1, decoder_depth=2, **options)
    deep.load_state_dict(shallow.state_dict())
    batch = SOURCES % 9, LENGTHS, TARGETS % 9
    torch.testing.assert_close(shallow.eval()(*batch), deep.eval()(*batch))
