"""The Transformer is the paper's: its layers are PyTorch's own where these exist, its positions and its sizes the
paper's, and its cache changes nothing but the cost."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from sgdec.errors import UsageError
from sgdec.models.base import Memory, ModelContext, Rows, Seq2Seq, SharedEntries
from sgdec.models.cuda_graphs import GraphedStep
from sgdec.models.decoding_attention import additive
from sgdec.models.encoder_decoder import Encoded
from sgdec.models.kernels import Kernels
from sgdec.models.transformer import Transformer
from sgdec.models.transformer_layers import (
    DecoderLayer,
    Layer,
    MultiHead,
    Shape,
    TransformerDecoder,
    positions,
)
from sgdec.slots import PrefixPool, Trail
from tests.helpers.families import make

SHAPE = Shape(8, heads=2, feed_forward=12, dropout=0.0)
MASK = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
SOURCES, LENGTHS = torch.tensor([[5, 6, 7, 8, 9], [10, 11, 4, 2, 2]]), torch.tensor([5, 3])
TARGETS = torch.tensor([[1, 9, 8, 7, 28], [1, 3, 3, 5, 2]])


def copy_attention(own: MultiHead, keys_values: nn.Linear, theirs: nn.MultiheadAttention) -> None:
    """Their in_proj is the rows of query, key and value, one above the other."""
    theirs.in_proj_weight.data = torch.cat([own.query.weight, keys_values.weight]).detach()
    theirs.in_proj_bias.data = torch.cat([own.query.bias, keys_values.bias]).detach()
    theirs.out_proj.load_state_dict(own.output.state_dict())


def copy_rest(own: Any, theirs: Any) -> None:
    theirs.linear1.load_state_dict(own.feed_forward[0].state_dict())
    theirs.linear2.load_state_dict(own.feed_forward[3].state_dict())
    around = [own.around_attention, *([own.around_source] if hasattr(own, "source") else []), own.around_feed_forward]
    for number, residual in enumerate(around, 1):
        getattr(theirs, f"norm{number}").load_state_dict(residual.norm.state_dict())


def shaken(module: nn.Module) -> nn.Module:
    torch.manual_seed(3)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.double().eval()


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_an_encoder_layer_is_pytorchs(norm: Any) -> None:
    own = cast(Layer, shaken(Layer(SHAPE._replace(norm=norm))))
    theirs = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True, norm_first=norm == "pre").double()
    copy_attention(own.attention, own.keys_values, theirs.self_attn)
    copy_rest(own, theirs)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    (found, _), expected = own(x, None, MASK[:, None]), theirs(x, src_key_padding_mask=~MASK)
    torch.testing.assert_close(found[MASK], expected[MASK])


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_decoder_layer_is_pytorchs(norm: Any) -> None:
    own = cast(DecoderLayer, shaken(DecoderLayer(SHAPE._replace(norm=norm))))
    source = cast(nn.Linear, shaken(nn.Linear(8, 16)))
    theirs = nn.TransformerDecoderLayer(8, 2, 12, 0.0, batch_first=True, norm_first=norm == "pre").double()
    copy_attention(own.attention, own.keys_values, theirs.self_attn)
    copy_attention(own.source, source, theirs.multihead_attn)
    copy_rest(own, theirs)
    x, values = (torch.randn(2, steps, 8, dtype=torch.float64) for steps in (4, 5))
    memory = Memory(values, source(values), MASK, values[:, 0])
    causal = torch.ones(1, 4, 4, dtype=torch.bool).tril()
    found, _, asked = own.translate(x, x.new_zeros(2, 0, 16), causal, memory, memory.keys)
    expected = theirs(x, values, tgt_mask=~causal[0], memory_key_padding_mask=~MASK)
    torch.testing.assert_close(found, expected)
    _, weights = theirs.multihead_attn(asked, values, values, key_padding_mask=~MASK, average_attn_weights=True)
    torch.testing.assert_close(own.source.weights(asked, memory.keys, MASK[:, None]), weights)


def test_positions_are_those_of_section_3_5() -> None:
    found = positions(torch.tensor([0, 7]), 3, 6).double()
    for row, first in enumerate((0, 7)):
        for step in range(3):
            for column in range(6):
                angle = (first + step) / 10_000 ** (column // 2 * 2 / 6)
                expected = math.cos(angle) if column % 2 else math.sin(angle)
                assert found[row, step, column].item() == pytest.approx(expected, abs=1e-6)


def test_a_prefix_may_be_consumed_in_pieces() -> None:
    """3 tokens at once, then 2 more, as one pass over 5."""
    model = cast(Transformer, make("transformer"))
    decoder = cast(TransformerDecoder, model.decoder)
    memory, embedded = model.encode(SOURCES, LENGTHS), model.target_embedding(TARGETS)
    lengths, *histories = decoder.start(memory)
    mask = torch.ones(1, 5, 5, dtype=torch.bool).tril()
    _, histories, _ = decoder.run(memory, histories, lengths, mask[:, :3, :3], embedded[:, :3])
    last, _, _ = decoder.run(memory, histories, lengths + 3, mask[:, 3:], embedded[:, 3:])
    torch.testing.assert_close(last, decoder(memory, embedded)[:, 3:])


def test_what_pads_a_history_in_front_does_not_matter() -> None:
    """Prefixes of 1, 3 and 2 tokens in one step."""
    model = make("transformer")
    memory = model.encode(SOURCES, LENGTHS).at(torch.tensor([0, 1, 0]))
    prefixes = [[1], [1, 4, 6], [1, 7]]
    alone, states = [], []
    for row, prefix in enumerate(prefixes):
        one = memory.at(slice(row, row + 1))
        state = model.start(one)
        for token in prefix:
            state, _, _ = model.step(one, state, torch.tensor([token]))
        states.append(state)
        alone.append(model.step(one, state, torch.tensor([9])))
    lengths = torch.cat([state[0] for state in states])
    histories = [
        torch.stack([nn.functional.pad(state[n][0], (0, 0, 3 - len(state[n][0]), 0), value=5.0) for state in states])
        for n in range(1, 1 + model.histories)
    ]
    (after, *_), output, attention = model.step(memory, (lengths, *histories), torch.tensor([9, 9, 9]))
    assert after.tolist() == [2, 4, 3]
    for row, (_, expected, weights) in enumerate(alone):
        torch.testing.assert_close((output[row], attention[row]), (expected[0], weights[0]))


def test_steps_that_are_recorded_for_their_shapes_are_the_same_steps() -> None:
    """As on CUDA, with a recorder that records nothing."""
    model = make("transformer")
    memory = model.encode(SOURCES, LENGTHS)
    graphed, state, other = GraphedStep(model.step, lambda work: work), model.start(memory), model.start(memory)
    for tokens in TARGETS.unbind(1):
        for _ in range(3):
            found = graphed(memory, state, tokens)
        expected = model.step(memory, other, tokens)
        torch.testing.assert_close(found, expected)
        state, other = found[0], expected[0]


def test_the_base_model_has_the_sizes_of_the_paper() -> None:
    """Table 3, base: 65 million parameters with one matrix of 37,000 x 512 for all three."""
    with torch.device("meta"):
        model = Transformer(ModelContext(37_000, 37_000, True), tied="all")
        preset = Transformer(ModelContext(37_000, 37_000, True), tied="all", **Transformer.presets["base"])
    d, inner = 512, 2048
    attention, feed_forward, norm = 4 * (d * d + d), 2 * d * inner + inner + d, 2 * d
    encoder = 6 * (attention + feed_forward + 2 * norm)
    decoder = 6 * (2 * attention + feed_forward + 3 * norm)
    sizes = [sum(parameter.numel() for parameter in each.parameters()) for each in (model, preset)]
    assert sizes == [encoder + decoder + 37_000 * (d + 1)] * 2
    assert 60e6 < sizes[0] < 66e6


def test_initial_inputs_and_logits_are_of_the_size_of_one() -> None:
    """Embeddings are scaled up to meet positions; tied to them, the output layer's logits are not far from one."""
    torch.manual_seed(0)
    model = Transformer(ModelContext(500, 500, True), width=64, layers=2, tied="all", dropout=0.0).eval()
    decoder = cast(TransformerDecoder, model.decoder)
    embedded = decoder.inputs.scale * model.target_embedding(torch.arange(500))
    assert embedded.std().item() == pytest.approx(1.0, rel=0.05)
    source, lengths = torch.randint(3, 500, (8, 6)), torch.full((8,), 6)
    logits = model.project(model(source, lengths, torch.randint(3, 500, (8, 9))))
    assert 0.3 < logits.std().item() < 3.0


@pytest.mark.parametrize(("width", "heads"), [(10, 4), (9, 3)])
def test_a_width_that_cannot_be_divided_is_refused(width: int, heads: int) -> None:
    with pytest.raises(UsageError, match=f"multiple of its number of heads; {width} is not, with {heads} heads"):
        Transformer(ModelContext(9, 9), width=width, heads=heads)


@pytest.mark.parametrize("kind", ["attention_dropout", "feed_forward_dropout"])
def test_each_kind_of_dropout_acts_in_training_only(kind: str) -> None:
    model = make("transformer", dropout=0.0, **{kind: 0.5})
    batch = SOURCES, LENGTHS, TARGETS
    expected = model(*batch)
    torch.testing.assert_close(model(*batch), expected)
    assert not torch.allclose(model.train()(*batch), expected)


def test_an_encoder_of_another_width_is_read() -> None:
    decoder = TransformerDecoder(6, 10, 1, SHAPE)
    memory = decoder.remember(Encoded(torch.randn(2, 5, 10), MASK))
    outputs: Tensor = decoder(memory, torch.randn(2, 4, 6))
    assert outputs.shape == (2, 4, 8)


def test_in_half_precision_it_stays_close() -> None:
    model: Seq2Seq = make("transformer")
    expected = model.project(model(SOURCES, LENGTHS, TARGETS))
    half = model.to(torch.bfloat16)
    found = half.project(Seq2Seq.forward(half, SOURCES, LENGTHS, TARGETS)).double()
    assert (found - expected).abs().max() < 0.3


@pytest.mark.parametrize("frozen", [True, False])
def test_prefixes_that_share_entries_of_histories_take_the_same_steps(frozen: bool) -> None:
    """Prefixes of 1 to 4 tokens of two sentences, which branch."""
    model = make("transformer")
    if frozen:
        model.freeze(Kernels())
    memory = model.encode(SOURCES, LENGTHS).at(torch.tensor([0, 1]))
    pool = PrefixPool(model.histories, heads=model.history_heads)
    plain = PrefixPool(model.histories)
    first = torch.tensor([1, 1])
    with torch.inference_mode():
        state, output, _ = model.step(memory, model.start(memory), first)
        known: list[tuple[Trail, Trail, int]] = [
            (*both, owner)
            for owner, both in enumerate(zip(pool.put(state, output), plain.put(state, output), strict=True))
        ]
        for step in range(4):
            chosen = [known[place % len(known)] for place in (0, 1, 5, 3, 2, 7)][: 6 - step]
            owners = [owner for _, _, owner in chosen]
            if 1 not in owners:
                chosen[-1], owners[-1] = known[1], 1
            tokens = torch.tensor([4 + 3 * place + step for place in range(len(chosen))])
            mine = memory._replace(rows=Rows.of(owners, "cpu"))
            shared, own = [a for a, _, _ in chosen], [b for _, b, _ in chosen]
            kept, entries, seen = pool.shared(shared, owners)
            mask = additive(torch.from_numpy(seen), entries[0][0].dtype)
            histories = [SharedEntries(*each, mask, mine.rows) for each in entries]
            found = model.step_sharing(model.prepare(mine), kept, histories, tokens)
            expected = model.step(mine, plain.states(own), tokens)
            torch.testing.assert_close(found[1:], expected[1:])
            for mine_now, theirs in zip(found[0][1:], expected[0][1:], strict=True):
                torch.testing.assert_close(mine_now[:, -1], theirs[:, -1])
            after = pool.put(*found[:2], before=shared), plain.put(*expected[:2], before=own)
            known += zip(*after, owners, strict=True)
