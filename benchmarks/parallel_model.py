"""How many times faster than one device do four devices train, in each mode? A calculator, checked against a
published table.

    python benchmarks/parallel_model.py                            the paper's V100s, from a data sheet
    python benchmarks/parallel_model.py --measure cpu --width 256 --vocabulary 8000 --steps 12 [--save times.json]
    python benchmarks/parallel_model.py --times times.json --link 25 --latency 10

The table is Table 3 of "Hybrid Data-Model Parallel Training" (Ono et al. 2019). The model has L layers in encoder and
decoder, n source and m target steps. The times of one step of B sentences, forward and backward, are e(B) for a
layer, a(B) for attention, or a'(B) if all steps are computed at once, and s(B) for the softmax. W is the number of
devices.

| mode | seconds of an update |
|---|---|
| one device, input feeding | n L e + m (L e + a + s) + update |
| data | the same for B/W, and the gradients of all parameters |
| model | wave(n) + m (L e + a + messages) + m s + update |
| HybridNMTIF | wave(n) + m (L e + a + messages) + m s(B/W), H_c handed out, the softmax's gradients, + update |
| HybridNMT | wave(n) + wave(m) + m (a' + s)(B/W), S and H handed out, gradients of attention and softmax, + update |

A wave of steps through stages takes the sum of one step's times, plus the longest of them for every further step;
messages between ranks are stages too. The factor is the ratio of sentences per second. Mini-batches are those of
Table 3: the largest that fit into the memory of the devices.

Known and assumed facts about the paper's V100s:

- 15.7 TFLOP/s in fp32, 900 GB/s, NVLink 25 GB/s a direction (NVIDIA's data sheet); 10 microseconds a message.
- Products reach 0.7 of that (assumed), and read and write an LSTM's weights four times per step: forward, for the
  gradient of the input, and to add to that of the weights.
- LSTMs are unrolled, step by step, as by MXNet's `rnn.LSTMCell`: 13 kernels per step forward (2 products, 1 split, 4
  gates, 6 operations), attention 9 (2 products, 2 batched ones, mask, softmax, concatenation, tanh, dropout), and
  twice as many backward. A kernel costs at least one dispatch for any batch size: one number, *fitted to the row of
  model parallelism*.
- 28 tokens per sentence on both sides (assumed); layers 1, 1, 2 on three devices, attention and softmax on the
  fourth, softmax after the decoder; Adam reads and writes seven numbers per parameter.
- Replicas are synchronised at a speed *fitted to the row of data parallelism*; the sums of hybrid parallelism go over
  NVLink as a ring. (The paper only says that a root collects and distributes.)

So two rows are fitted, by one number each, and the other two are predicted; no number is fitted to WMT17's column. An
efficiency of 0.5 or 0.9, or 20 or 35 tokens per sentence, change the predictions by about 0.1, since the fit
compensates for it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from parallel_times import FLOAT, Device, Shape, Table, Times, measure

WORLD = 4
SINGLE, ALL_DATA, ALL_MODEL = 64, 256, 224
"""Table 3's mini-batches: one device, data parallelism, and the modes that distribute the model."""
LAYERS_ON = (1, 1, 2)
PAPER = {
    "data": (1.60, 1.70),
    "model": (2.32, 2.51),
    "HybridNMTIF": (3.43, 3.57),
    "HybridNMT": (4.13, 4.20),
}
"""Table 3: scaling factors for WMT14 and WMT17."""
PAPER_SPEED = 2826
"""Source tokens per second of one device, WMT14."""


@dataclass(frozen=True)
class Link:
    """The link between two devices, in each direction."""

    bandwidth: float = 25e9
    """Bytes per second."""
    latency: float = 10e-6
    replicas: float | None = None
    """The speed in bytes of parameters per second at which replicas are synchronised; None = that of a ring over the
    link."""

    def message(self, numbers: float) -> float:
        """Seconds from one device to another."""
        return self.latency + numbers * FLOAT / self.bandwidth

    def ring(self, numbers: float) -> float:
        """Seconds to sum ``numbers`` over all devices: 2 (W-1) messages of 1/W each."""
        return 2 * (WORLD - 1) * self.message(numbers / WORLD)

    def synchronise(self, parameters: float) -> float:
        """Seconds to make replicas equal."""
        return self.ring(parameters) if self.replicas is None else parameters * FLOAT / self.replicas


def wave(steps: int, stages: Sequence[float]) -> float:
    """Seconds of a wavefront of ``steps`` through stages with these seconds per step.

    >>> wave(10, [1.0]), wave(10, [1.0, 1.0, 2.0])
    (10.0, 22.0)
    """
    return sum(stages) + (steps - 1) * max(stages)


@dataclass(frozen=True)
class Prediction:
    """Seconds of an update in each mode."""

    shape: Shape
    times: Times
    link: Link
    layers_on: tuple[int, ...] = LAYERS_ON

    def one(self, sentences: float = SINGLE) -> float:
        """One device, input feeding."""
        shape, times = self.shape, self.times
        layers = shape.layers * times.layer(sentences)
        decoder = layers + times.attend(sentences) + times.softmax(sentences)
        return shape.steps * (layers + decoder) + times.update(shape.parameters)

    def data(self) -> float:
        return self.one(ALL_DATA / WORLD) + self.link.synchronise(self.shape.parameters)

    def model(self) -> float:
        softmax = self.shape.steps * self.times.softmax(ALL_MODEL)
        return self._encoder() + self._fed_decoder() + softmax + self._update()

    def hybrid_fed(self) -> float:
        softmax = self.shape.steps * self.times.softmax(ALL_MODEL / WORLD)
        handed_out = self._hand_out(self.shape.steps)
        return (
            self._encoder() + self._fed_decoder() + handed_out + softmax
            + self.link.ring(self.shape.softmax) + self._update()
        )  # fmt: skip

    def hybrid(self) -> float:
        own, shape = ALL_MODEL / WORLD, self.shape
        attention_softmax = shape.steps * (self.times.attend_all(own) + self.times.softmax(own))
        return (
            2 * self._encoder() + self._hand_out(2 * shape.steps) + attention_softmax
            + self.link.ring(shape.attention + shape.softmax) + self._update()
        )  # fmt: skip

    def factors(self) -> dict[str, float]:
        """Sentences per second, relative to one device."""
        seconds = {
            "data": (ALL_DATA, self.data()),
            "model": (ALL_MODEL, self.model()),
            "HybridNMTIF": (ALL_MODEL, self.hybrid_fed()),
            "HybridNMT": (ALL_MODEL, self.hybrid()),
        }
        return {mode: sentences / SINGLE * self.one() / time for mode, (sentences, time) in seconds.items()}

    def _message(self) -> float:
        """The seconds to send a step's states up, and their gradients down."""
        return 2 * self.link.message(ALL_MODEL * self.shape.width)

    def _encoder(self) -> float:
        """A wave through a stack, with messages to the device of the attention."""
        layer, message = self.times.layer(ALL_MODEL), self._message()
        return wave(self.shape.steps, [stage for layers in self.layers_on for stage in (layers * layer, message)])

    def _fed_decoder(self) -> float:
        """The decoder without softmax; H_c is sent back to the first device."""
        step = self.shape.layers * self.times.layer(ALL_MODEL) + self.times.attend(ALL_MODEL)
        return self.shape.steps * (step + (len(self.layers_on) + 1) * self._message())

    def _hand_out(self, steps: int) -> float:
        """States from one device to the others, and their gradients back."""
        return 2 * self.link.message(steps * ALL_MODEL * self.shape.width * (WORLD - 1) / WORLD)

    def _update(self) -> float:
        """The update; each device updates its own part, all of about equal size."""
        return self.times.update(self.shape.parameters / WORLD)


def fit_replicas(prediction: Prediction, factor: float) -> Prediction:
    """The prediction with the speed of synchronisation at which data parallelism has this factor."""
    seconds = (ALL_DATA / SINGLE / factor - 1) * prediction.one()
    speed = prediction.shape.parameters * FLOAT / seconds
    return replace(prediction, link=replace(prediction.link, replicas=speed))


def fit_dispatch(prediction: Prediction, device: Device, factor: float) -> Prediction:
    """The prediction with the time of a dispatch at which model parallelism has this factor (the factor grows with
    the time)."""
    low, high = 0.0, 1e-3
    for _ in range(60):
        middle = (low + high) / 2
        tried = replace(prediction, times=replace(device, dispatch=middle))
        low, high = (middle, high) if tried.factors()["model"] < factor else (low, middle)
    return replace(prediction, times=replace(device, dispatch=low))


def show(title: str, prediction: Prediction, fitted: Sequence[str] = (), *, paper: bool = True) -> None:
    """A table of factors, beside the paper's."""
    print(f"\n{title}")
    for mode, factor in prediction.factors().items():
        row = f"  {mode:<12} {factor:5.2f}"
        if paper:
            errors = " ".join(f"{one:5.2f} ({round(factor / one - 1, 2) + 0.0:+4.0%})" for one in PAPER[mode])
            row += f"   Table 3, WMT14 and WMT17: {errors}  {'fitted to WMT14' if mode in fitted else ''}"
        print(row.rstrip())


def check_the_paper(shape: Shape) -> None:
    """The V100s: fitted as said above, and without any fit."""
    plain = Prediction(shape, Device(shape), Link())
    fitted = fit_replicas(fit_dispatch(plain, Device(shape), PAPER["model"][0]), PAPER["data"][0])
    assert isinstance(fitted.times, Device) and fitted.link.replicas is not None
    dispatch, replicas = fitted.times.dispatch * 1e6, fitted.link.replicas / 1e9
    show(f"fitted: dispatch {dispatch:.0f} us, replicas in step at {replicas:.2f} GB/s", fitted, ["data", "model"])
    explain(fitted)
    for microseconds in (5, 10, 40):
        device = Device(shape, dispatch=microseconds * 1e-6)
        title = f"nothing fitted: dispatch {microseconds} us, replicas in step by a ring over NVLink"
        show(title, replace(plain, times=device))


def explain(fitted: Prediction) -> None:
    """Print which of the paper's figures the fitted calculator explains, and which it does not."""
    shape, times, link = fitted.shape, fitted.times, fitted.link
    gain = ALL_MODEL / SINGLE * times.layer(SINGLE) / times.layer(ALL_MODEL)
    four = replace(fitted, layers_on=(1,) * WORLD).factors()["HybridNMT"]
    print(f"  {ALL_MODEL} sentences for {SINGLE} make a layer {gain:.2f} times as fast: factors can exceed {WORLD}.")
    print(f"  HybridNMT with layers on all {WORLD} devices, as `sgdec train --parallel hybrid` has them: {four:.2f}.")
    print("  Not explained:")
    print(f"  - speed: {SINGLE * shape.steps / fitted.one():.0f} source tokens/s of one device; paper {PAPER_SPEED}.")
    ring = replace(link, replicas=None).synchronise(shape.parameters) / link.synchronise(shape.parameters)
    sums = shape.attention + shape.softmax
    slow = fitted.hybrid() - link.ring(sums) + link.synchronise(sums)
    print(
        f"  - data: a ring over NVLink would take {ring:.0%} of the time that this row implies. If the sums of\n"
        f"    hybrid parallelism went as slowly, HybridNMT would be {ALL_MODEL / SINGLE * fitted.one() / slow:.2f}."
    )
    ours, theirs = fitted.factors(), {mode: factors[0] for mode, factors in PAPER.items()}
    shared = [f["HybridNMTIF"] / f["model"] for f in (ours, theirs)]
    print(
        f"  - HybridNMTIF: it differs from model parallelism by a shared softmax alone. That gains {shared[0]:.2f}\n"
        f"    here, {shared[1]:.2f} there: one device's softmax must take more than products and memory explain."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--measure", metavar="DEVICE", help="take the times of this device: cpu or cuda")
    parser.add_argument("--times", help="a file that --save wrote")
    parser.add_argument("--save", help="write what --measure measured")
    parser.add_argument("--repeats", type=int, default=5, help="of each measurement, whose median counts")
    parser.add_argument("--link", type=float, default=25.0, help="GB/s between devices")
    parser.add_argument("--latency", type=float, default=10.0, help="microseconds a message")
    for name, value in asdict(Shape()).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    shape = Shape(**{name: getattr(given, name) for name in asdict(Shape())})
    link = Link(given.link * 1e9, given.latency * 1e-6)
    if given.measure:
        table = measure(shape, given.measure, (ALL_MODEL // WORLD, SINGLE, ALL_MODEL), given.repeats)
        if given.save:
            stored = {"shape": asdict(shape), "seconds": table.seconds}
            Path(given.save).write_text(json.dumps(stored, indent=1) + "\n")
    elif given.times:
        stored = json.loads(Path(given.times).read_text())
        shape, table = Shape(**stored["shape"]), Table(stored["seconds"])
    else:
        check_the_paper(shape)
        return
    for what in ("layer", "attend", "attend_all", "softmax"):
        print(f"{what:<10}", *(f"{float(s) * 1e3:8.3f} ms for {size}" for size, s in table.seconds[what].items()))
    show(f"four such devices, {given.link:g} GB/s, {given.latency:g} us", Prediction(shape, table, link), paper=False)


if __name__ == "__main__":
    main()
