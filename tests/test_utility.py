"""The promise: a utility is found, configured and checked as predictors and decoders are, and so are its answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import sgdec
from sgdec.arrays import Floats
from sgdec.cli.main import main
from sgdec.errors import SgdecError, UsageError
from sgdec.utility import Utility, aggregated, pairwise
from tests.helpers.distributions import Site

PLUGIN = '''
"""Words in common."""
from typing import Annotated
import numpy as np
from pydantic import Field
import sgdec

class Overlap(sgdec.Utility):
    def __init__(self, context: sgdec.Context,
                 power: Annotated[float, Field(gt=0, description="of the share")] = 1.0):
        assert context.host is not None
        self.power = power

    def pairwise(self, hypotheses, references, source):
        sets = [[set(text.split()) for text in side] for side in (hypotheses, references)]
        return np.array([[(len(h & r) / len(h | r)) ** self.power for r in sets[1]] for h in sets[0]])

@sgdec.hookimpl
def sgdec_utilities():
    return {"overlap": Overlap}
'''


class Counting(Utility):
    """Counts pairs; a pair's utility is the product of lengths."""

    symmetric = True

    def __init__(self) -> None:
        self.pairs = 0

    def pairwise(self, hypotheses: Sequence[str], references: Sequence[str], source: str | None) -> Floats:
        self.pairs += len(hypotheses) * len(references)
        return np.array([[float(len(a) * len(b)) for b in references] for a in hypotheses])


def test_half_of_a_symmetric_square_is_computed() -> None:
    utility = Counting()
    texts = ["x" * length for length in range(256)]
    found = pairwise(utility, texts, texts)
    assert (found == np.outer(range(256), range(256))).all()
    assert 256 * 257 / 2 <= utility.pairs <= 0.6 * 256**2
    utility.pairs = 0
    pairwise(utility, texts, texts[::-1])
    assert utility.pairs == 256**2


def test_what_is_missing_is_said() -> None:
    with pytest.raises(UsageError, match="utility Chrf needs references, and there are none"):
        pairwise(sgdec.load_utility("chrf"), ["a"])
    with pytest.raises(UsageError, match="utility Chrf needs references, and there are none"):
        aggregated(sgdec.load_utility("chrf"), ["a"], [])
    with pytest.raises(UsageError, match=r"utility Ter has no statistics whose mean .* such as chrf"):
        aggregated(sgdec.load_utility("ter"), ["a"], ["b"])


@pytest.mark.parametrize(
    "weights", [[[1.0]], [[0.0, 0.0]], [[1.0, -0.5]], [[1.0, np.nan]], [1.0, 1.0], [[np.inf, 1.0]]]
)
def test_weights_of_a_mean_are_shares(weights: list[list[float]]) -> None:
    with pytest.raises(SgdecError, match=r"expected finite numbers from 0 \[M, 2\]"):
        aggregated(sgdec.load_utility("chrf"), ["a"], ["b", "c"], np.array(weights))


def test_an_installed_utility_is_found_configured_and_described(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.install("party", {"utility.overlap": "party_overlap"}, {"party_overlap": PLUGIN})
    utility = sgdec.load_utility("overlap", power="2")
    assert pairwise(utility, ["a b"], ["a", "a b"]).tolist() == [[0.25, 1.0]]
    for options, message in (({"pwer": 2}, r"no option --overlap\.pwer\. Did you mean '--overlap\.power'"),
                             ({"power": -1}, r"--overlap\.power: .* above 0")):  # fmt: skip
        with pytest.raises(UsageError, match=message):
            sgdec.load_utility("overlap", **options)
    assert main(["plugins", "utility.overlap"]) == 0
    assert "--overlap.power float > 0  of the share  [default: 1.0]" in capsys.readouterr().out
    assert main(["plugins"]) == 0
    assert ["utility", "overlap", "party", "Words", "in", "common."] in [
        line.split() for line in capsys.readouterr().out.splitlines()
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("sgdec.Utility", "sgdec.Decoder"), r"class Overlap .* is not a subclass of sgdec's Utility"),
        (("self, hypotheses, references, source", "self, texts"), r"pairwise\(self, texts\) is called with 3"),
        (("def pairwise", "symmetric = 'yes'\n    def pairwise"), "symmetric is 'yes'; expected True or False"),
        (("def pairwise", "def aggregate(self): ...\n    def pairwise"), "Did you mean 'aggregated'"),
        (("import sgdec\n", "import sgdec\nsgdec_api = 7\n"), "its sgdec_api is 7"),
        (("sgdec_utilities", "sgdec_utilitys"), "unknown hook 'sgdec_utilitys'. Did you mean 'sgdec_utilities'"),
        (("import numpy", "import numpie"), "No module named 'numpie'"),
        (("context:", "inner:"), "parameter 'inner' can never be given"),
    ],
)
def test_a_broken_utility_of_a_plugin_file_is_one_line(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    (tmp_path / "overlap.py").write_text(PLUGIN.replace(*change))
    with pytest.raises(SgdecError, match=message) as caught:
        sgdec.load_utility("overlap", plugin_file=tmp_path / "overlap.py")
    assert "\n" not in str(caught.value)


def test_a_utility_can_be_a_class_or_an_object() -> None:
    assert pairwise(sgdec.load_utility(Counting), ["aa"], ["b"]).tolist() == [[2]]
    utility = Counting()
    assert sgdec.load_utility(utility) is utility
    with pytest.raises(UsageError, match="is an object, and its options are already set"):
        sgdec.load_utility(utility, power=2)
    with pytest.raises(UsageError, match="is not a utility"):
        sgdec.load_utility(sgdec.Decoder)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"no utility named 'chr'\. Did you mean 'chrf'"):
        sgdec.load_utility("chr")
