"""GNMT's stacked LSTM with attention: Wu et al. 2016, "Google's Neural Machine Translation System", section 3.

Encoder: a bi-directional bottom layer, whose directions are concatenated, then uni-directional layers. Decoder: a
bottom layer whose output is the query of the attention, then layers that read the layer below and the context. Layers
are counted from 1 at the bottom. Residual connections start at layer 3, in encoder and decoder:

    x^i = m^i                  for i = 1, 2      (equation 5)
    x^i = m^i + x^{i-1}        for i >= 3        (equation 6)

m^i is the output of layer i, and x^i is the input of the layer above. In the decoder that input is [x^i; context],
and only x^i takes part in the sum. Attention (equation 4) is a feed-forward network with one hidden layer, between a
query y and the top encoder outputs x_t:

    s_t = v . tanh(W y + U x_t + b)        p = softmax(s)        a = sum_t p_t x_t

With ``normed``, v is replaced by g v / |v| with a learned gain g that starts at 1 / sqrt(size of v) (Salimans and
Kingma 2016). Then scores start near zero and the attention weights nearly uniform, so attention does not concentrate
on one position before the model has learned where to look. On small data this decides whether attention ever leaves
the first word.

The choice of y: the paper uses the bottom decoder layer's output "from the past decoding time step", and its Figure 1
sends the context "directly to all the remaining decoder layers". Our interpretation: the query for target word i is
the bottom layer's output after consuming word i-1, in the step that predicts word i. The context is an input of every
layer above the bottom layer, but not of the bottom layer itself. So the bottom layer does not depend on the
attention. Training runs the bottom layer over all steps, then the attention for all steps, then the stack above, each
as one fused kernel.

The paper does not say from which state the decoder starts. Here it starts from zeros, so all its information about
the source comes through the attention. With ``bridge``, layer i starts from the final state of encoder layer i (for
the bottom layer, of the right-to-left direction). Dropout acts on the inputs of layers and of the softmax, never on
recurrent connections (section 8.3). The source has no ``</s>``: each attention weight belongs to one source token.

With ``constrained`` the model can be quantised (section 6): cells c and residual sums x are clipped to [-delta,
delta] (equation 10) and logits to [-gamma, gamma] (equation 13), both in training and in inference. `anneal` reduces
delta from 8 to 1, by the same factor at each of the first ``anneal_updates`` updates. It never increases delta, even
if a resumed run plans more updates. The paper fixes delta at 1 for inference, so the first checkpoint with a delta of
1 counts as better than all earlier ones.

Departures. Layers are PyTorch's LSTMs: their gates have biases and m = sigmoid(o) tanh(c), where equation 11 has no
biases and m = c sigmoid(o). So m is within [-1, 1] whatever c is. The constraints are off by default, because
PyTorch's fused LSTM cannot clip inside a sequence; the paper trains every model with them. In 8 bits cells, residual
sums, gates and element-wise operations stay in fp32, where section 6 has 16-bit integers, because PyTorch has no
fixed-point arithmetic for them and fp32 is more exact.

Cost of a step per row, in multiplications: 4 width (embedding + width) for the bottom layer (in a frozen model, the
products with embeddings are looked up), 12 width^2 for each layer above, S x attention for scores, width x V for the
softmax.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, repeat
from typing import Annotated, Any, ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from sgdec import hookimpl
from sgdec.errors import UsageError
from sgdec.models.base import Correspondence, Memory, ModelContext, Seq2Seq, State
from sgdec.models.gnmt_products import FIRST_RESIDUAL, GnmtProducts, make_products
from sgdec.models.kernels import Kernels
from sgdec.models.lstm import lstm_cell, run_lstm, unpacked

WIDEST_DELTA, FINAL_DELTA, GAMMA = 8.0, 1.0, 25.0
"""Section 6: the first and the last delta, and the bound of logits."""
ANNEALED = 0.8
"""Without ``anneal_updates``: the share of the planned updates after which delta is final ("towards the end")."""


class GNMT(Seq2Seq):
    """The LSTM encoder-decoder of GNMT.

    >>> model = GNMT(ModelContext(source_vocab_size=20, target_vocab_size=30), width=8)
    >>> source, lengths = torch.tensor([[5, 6, 7]]), torch.tensor([3])
    >>> model.project(model(source, lengths, torch.tensor([[1, 9]]))).shape
    torch.Size([1, 2, 30])
    """

    replaced = ("encoder.", "decoder.", "softmax.")
    packed = True  # the kernels have the weights of its LSTMs
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "gnmt8": {"layers": 8, "width": 1024, "embedding": 1024, "attention": 1024, "dropout": 0.2},
    }
    language_models: ClassVar[Mapping[str, Correspondence]] = {
        "rnnlm": Correspondence(
            {
                r"embedding\.(\w+)": r"target_embedding.\1",
                r"lstm\.(\w+)_l(\d+)": r"decoder.\2.\1_l0",
                r"softmax\.(\w+)": r"softmax.\1",
            },
            wider=r"decoder\.\d+\.weight_ih_l0",  # layers above the bottom read the context after x
        )
    }

    def __init__(
        self,
        context: ModelContext,
        *,
        layers: Annotated[int, Field(ge=2, description="layers of encoder and decoder each")] = 2,
        encoder_layers: Annotated[int | None, Field(ge=1, description="encoder layers; default: layers")] = None,
        decoder_layers: Annotated[int | None, Field(ge=2, description="decoder layers; default: layers")] = None,
        width: Annotated[
            int, Field(ge=1, description="LSTM units of a layer (of each direction at the bottom)")
        ] = 512,
        embedding: Annotated[int | None, Field(ge=1, description="size of embeddings; width by default")] = None,
        attention: Annotated[
            int | None, Field(ge=1, description="attention's hidden units; width by default")
        ] = None,
        dropout: Annotated[float, Field(ge=0, lt=1, description="dropout of non-recurrent connections")] = 0.2,
        normed: Annotated[bool, Field(description="normalise v of equation 4, with a learned gain")] = False,
        bridge: Annotated[
            bool, Field(description="decoder starts from the encoder's last states, not from 0")
        ] = False,
        tied: Annotated[
            Literal["none", "target", "all"],
            Field(description="softmax weights = target embeddings (target), also = source embeddings (all)"),
        ] = "none",
        init: Annotated[float, Field(gt=0, description="initial parameters are uniform in [-init, init]")] = 0.04,
        forget_bias: Annotated[float, Field(description="added to the initial forget gate biases")] = 0.0,
        constrained: Annotated[
            bool, Field(description="clip cells, sums and logits, so that the model can be quantised")
        ] = False,
        anneal_updates: Annotated[
            int | None,
            Field(ge=1, description="constrained: updates until the clipping is final; by default 80 % of the run's"),
        ] = None,
    ) -> None:
        super().__init__()
        encoder_layers, decoder_layers = encoder_layers or layers, decoder_layers or layers
        embedding, attention = embedding or width, attention or width
        if tied != "none" and embedding != width:
            raise UsageError(f"gnmt: tied={tied} needs embeddings as wide as the LSTM: {embedding} is not {width}.")
        if anneal_updates is not None and not constrained:
            raise UsageError("gnmt: anneal_updates does nothing without constrained. Leave it out.")
        if tied == "all" and not context.shared:
            raise UsageError("gnmt: tied=all needs one vocabulary for source and target. Use tied=target.")

        memory = 2 * width if encoder_layers == 1 else width
        self.source_embedding = nn.Embedding(context.source_vocab_size, embedding)
        self.target_embedding = nn.Embedding(context.target_vocab_size, embedding)
        sizes = chain([embedding, 2 * width], repeat(width))
        self.encoder = nn.ModuleList(
            nn.LSTM(next(sizes), width, batch_first=True, bidirectional=layer == 0) for layer in range(encoder_layers)
        )
        sizes = chain([embedding], repeat(width + memory))
        self.decoder = nn.ModuleList(nn.LSTM(next(sizes), width, batch_first=True) for _ in range(decoder_layers))
        self.key = nn.Linear(memory, attention)  # U and b of equation 4
        self.query = nn.Linear(width, attention, bias=False)  # W
        self.score = nn.Linear(attention, 1, bias=False)  # v
        self.gain = nn.Parameter(torch.empty(())) if normed else None
        self.softmax = nn.Linear(width, context.target_vocab_size)
        self.dropout = nn.Dropout(dropout)
        self.width, self.bridge, self.constrained = width, bridge, constrained
        self.delta: float | None = WIDEST_DELTA if constrained else None
        self.anneal_updates = anneal_updates
        self._products: GnmtProducts | None = None
        if constrained:
            self.register_buffer("stored_delta", torch.tensor(0.0))
            self.register_load_state_dict_post_hook(_restore_delta)  # type: ignore[no-untyped-call]  # torch's
            self._narrow(WIDEST_DELTA)
        if tied != "none":
            self.softmax.weight = self.target_embedding.weight
        if tied == "all":
            self.source_embedding.weight = self.target_embedding.weight
        self._initialise(init, forget_bias)

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Encode sources [B, S]; they are packed, so nothing is computed for padding."""
        embedded = self.source_embedding(source)
        packed = pack_padded_sequence(embedded, lengths.cpu(), batch_first=True, enforce_sorted=False)
        final: list[Tensor] = []
        for layer in range(len(self.encoder)):
            output, hidden, cell = self.encoder_layer(layer, with_data(packed, self.dropout(packed.data)))
            residual = layer >= FIRST_RESIDUAL
            packed = with_data(output, self.clip(output.data + packed.data)) if residual else output
            final += [hidden, cell]
        values, _ = pad_packed_sequence(packed, batch_first=True, total_length=source.size(1))  # [B, S, H]
        positions = torch.arange(source.size(1), device=source.device)
        mask = positions < lengths.to(source.device)[:, None]  # [B, S]
        keys = self.key(values) if self._products is None else self._products.key(values).float()
        return Memory(values, keys, mask, torch.stack(final, 1)[:, : None if self.bridge else 0])

    def start(self, memory: Memory) -> State:
        """The hidden and cell state [B, width] of each decoder layer, bottom first: (h_1, c_1, h_2, c_2, ...)."""
        wanted = 2 * len(self.decoder)
        given = memory.first[:, :wanted].unbind(1)
        zeros = memory.values.new_zeros(len(memory.values), self.width)
        return (*given, *[zeros] * (wanted - len(given)))

    def step(self, memory: Memory, state: State, tokens: Tensor) -> tuple[State, Tensor, Tensor]:
        """Consume ``tokens`` [R]; returns the new state, the output [R, width] and the attention [R, S]."""
        hidden, cell = lstm_cell(self._bottom_gates(tokens, state[0]), state[1], self.delta)
        new, x = [hidden, cell], hidden
        context, attention = self._attend_once(hidden, memory)
        for layer in range(1, len(self.decoder)):
            hidden, cell = state[2 * layer : 2 * layer + 2]
            hidden, cell = lstm_cell(self._gates(layer, [x, context], hidden), cell, self.delta)
            new += [hidden, cell]
            x = self.clip(hidden + x) if layer >= FIRST_RESIDUAL else hidden
        return tuple(new), self.dropout(x), attention

    def project(self, output: Tensor) -> Tensor:
        """The logits [..., V]."""
        logits: Tensor = self.softmax(output) if self._products is None else self._products.softmax(output)
        return logits.clamp_(-GAMMA, GAMMA) if self.constrained else logits  # equation 13

    def output_layer(self) -> tuple[nn.Linear, float | None]:
        """The softmax layer, and gamma of equation 13 for a constrained model."""
        if self.softmax.weight.is_meta:  # only the quantised product was loaded
            return super().output_layer()
        return self.softmax, GAMMA if self.constrained else None

    def forward(self, source: Tensor, lengths: Tensor, target_in: Tensor) -> Tensor:
        """The outputs [B, T, width], layer by layer over all steps; equal to the loop over `step`."""
        if self.softmax.weight.is_meta:  # only the quantised products were loaded
            return super().forward(source, lengths, target_in)
        memory = self.encode(source, lengths)
        state = self.start(memory)
        x: Tensor = self.target_embedding(target_in)  # [B, T, E]
        context = x  # set by the bottom layer
        for layer in range(len(self.decoder)):
            below = self.dropout(x if layer == 0 else torch.cat([x, context], -1))
            hidden = self._decoder_layer(layer, below, (state[2 * layer], state[2 * layer + 1]))
            if layer == 0:
                context, _ = self.attend(hidden, memory)
            x = self.clip(hidden + x) if layer >= FIRST_RESIDUAL else hidden
        output: Tensor = self.dropout(x)
        return output

    def attend(self, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Contexts [B, T, H] and weights [B, T, S] of equation 4, for queries [B, T, width]."""
        products = self._products
        if products is None:
            hidden = torch.tanh_(self.query(query)[:, :, None] + memory.keys[:, None])  # [B, T, S, A]
            scores = hidden @ self.score_weight[0]
        else:  # 2 v . sigmoid(2 x) is v . tanh(x) plus a constant, which the softmax cancels
            asked = 2 * products.query(query).float()[:, :, None]  # 16 bits would lose the difference from 1/2
            hidden = torch.sigmoid_(asked + 2 * memory.keys[:, None])
            scores = 2 * products.score(hidden)[..., 0]
        weights = torch.softmax(scores.masked_fill(~memory.mask[:, None], float("-inf")), -1)  # [B, T, S]
        return weights.to(memory.values.dtype) @ memory.values, weights

    def _attend_once(self, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Contexts [R, H] and weights [R, S] of equation 4, for one query per prefix [R, width]."""
        if memory.rows is None:
            contexts, weights = self.attend(query[:, None], memory)
            return contexts[:, 0], weights[:, 0]
        grid, cell = memory.rows
        contexts, weights = self.attend(query[grid], memory)
        return contexts.flatten(0, 1)[cell], weights.flatten(0, 1)[cell]

    def anneal(self, update: float, last: int) -> None:
        """Reduce delta from 8 to 1 by the same factor at each update (section 6)."""
        if self.constrained:
            annealed = min(1.0, update / (self.anneal_updates or max(1, last) * ANNEALED))
            self._narrow(WIDEST_DELTA * (FINAL_DELTA / WIDEST_DELTA) ** annealed)

    @property
    def unsettled(self) -> str | None:
        """A message if delta is larger than in inference."""
        if self.delta is None or self.delta <= FINAL_DELTA:
            return None
        return (
            f"cells are clipped to {self.delta:.3g}, not yet to the {FINAL_DELTA:g} of 8-bit inference "
            "(Wu et al. 2016, section 6)"
        )

    def _narrow(self, delta: float) -> None:
        """Clip to ``delta`` from now on, unless the present delta is smaller."""
        assert self.delta is not None
        self.delta = min(self.delta, delta)
        cast(Tensor, self.stored_delta).fill_(self.delta)

    @torch.no_grad()
    def freeze(self, kernels: Kernels) -> None:
        """Compute equations 11 and 13 with products of ``kernels``."""
        self._products = make_products(self, kernels)
        self.requires_grad_(False)  # so that an attempt to train the model fails

    def encoder_layer(self, layer: int, x: PackedSequence) -> tuple[PackedSequence, Tensor, Tensor]:
        """The outputs, with both directions concatenated, and the last m and c [B, width] of the last direction."""
        lstm = cast(nn.LSTM, self.encoder[layer])
        if self._products is None and self.delta is None:
            output, (hidden, cell) = lstm(x)
            return output, hidden[-1], cell[-1]
        directions = unpacked(lstm) if self._products is None else self._products.encoder[layer]
        zeros = x.data.new_zeros(int(x.batch_sizes[0]), self.width)
        runs = [
            run_lstm(recurrence, x.data, x.batch_sizes.tolist(), (zeros, zeros), self.delta, reverse=direction == 1)
            for direction, recurrence in enumerate(directions)
        ]
        (_, hidden, cell), order = runs[-1], x.unsorted_indices
        return with_data(x, torch.cat([run[0] for run in runs], -1)), hidden[order], cell[order]

    def _decoder_layer(self, layer: int, below: Tensor, first: tuple[Tensor, Tensor]) -> Tensor:
        """The outputs [B, T, width] of all steps, from the first m and c [B, width]."""
        lstm = cast(nn.LSTM, self.decoder[layer])
        if self.delta is None:
            hidden: Tensor = lstm(below, tuple(part[None].contiguous() for part in first))[0]
            return hidden
        rows, steps = below.shape[:2]
        inputs = below.transpose(0, 1).flatten(0, 1)  # [T B, K]
        outputs, _, _ = run_lstm(unpacked(lstm)[0], inputs, [rows] * steps, first, self.delta)
        return outputs.view(steps, rows, -1).transpose(0, 1)

    def _bottom_gates(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        """Pre-activations [R, 4 width] of the decoder's bottom layer after tokens [R]."""
        if self._products is not None:
            return self._products.bottom.inputs(tokens) + self._products.bottom.hidden(hidden)
        return self._gates(0, [self.target_embedding(tokens)], hidden)

    def _gates(self, layer: int, below: list[Tensor], hidden: Tensor) -> Tensor:
        """Pre-activations [R, 4 width] of one step of a decoder layer."""
        if self._products is not None:
            return self._products.layers[layer - 1](torch.cat([*below, hidden], -1))
        inputs, recurrent = unpacked(cast(nn.LSTM, self.decoder[layer]))[0]
        return inputs(self.dropout(torch.cat(below, -1))) + recurrent(hidden)

    def clip(self, x: Tensor) -> Tensor:
        """Clip a residual sum (equation 10)."""
        return x if self.delta is None else x.clamp(-self.delta, self.delta)

    @property
    def score_weight(self) -> Tensor:
        """v of equation 4 [1, A]."""
        v = self.score.weight
        return v if self.gain is None else self.gain * v / v.norm()

    def _initialise(self, init: float, forget_bias: float) -> None:
        """Initialise every parameter uniformly in [-init, init] (section 8.3)."""
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -init, init)
        with torch.no_grad():
            if self.gain is not None:
                self.gain.fill_(self.score.in_features**-0.5)
            for name, parameter in self.named_parameters():
                if "bias_ih" in name:  # gates are ordered input, forget, cell, output
                    width = parameter.size(0) // 4
                    parameter[width : 2 * width] += forget_bias


def with_data(packed: PackedSequence, data: Tensor) -> PackedSequence:
    """The same packed sentences with other vectors at their tokens."""
    return PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)


def _restore_delta(module: nn.Module, _: object) -> None:
    """Set delta to the value that was stored with the loaded weights."""
    gnmt = cast(GNMT, module)
    gnmt.delta = float(cast(Tensor, gnmt.stored_delta))


@hookimpl
def sgdec_models() -> dict[str, type[Seq2Seq]]:
    """The model plugin gnmt."""
    return {"gnmt": GNMT}
