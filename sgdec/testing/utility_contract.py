"""The promises of every utility (`sgdec.utility`), each tested with a few texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from sgdec.arrays import Floats
from sgdec.testing.expectations import keeps_to_the_protocol
from sgdec.utility import Aggregates, Utility, aggregated, pairwise


class UtilityContract(ABC):
    """Subclass it, name the subclass ``Test...``, and implement `make`; pytest runs the tests.

    >>> from sgdec.utilities.exact import Exact
    >>> class TestExact(UtilityContract):
    ...     def make(self):
    ...         return Exact()
    >>> TestExact().test_a_pair_does_not_depend_on_the_others()
    """

    texts: Sequence[str] = (
        "Two dogs run across the snow .", "Two dogs are running .", "", "dogs", "(snow , snow , snow !)",
        "Два пса 🐶", "Two dogs run across the snow .",
    )  # fmt: skip
    """Hypotheses and references: an empty one, one that comes twice, and one outside the basic plane of Unicode."""
    source: str | None = "Zwei Hunde laufen über den Schnee ."
    tolerance: float = 1e-6
    """The largest allowed difference between two computations of the same utility."""

    @abstractmethod
    def make(self) -> Utility:
        """Return a utility; every test calls it once."""

    def test_its_class_keeps_to_the_protocol(self) -> None:
        """No misspelt method, no wrong signature (`sgdec.utility`)."""
        keeps_to_the_protocol(self.make())

    def test_each_pair_has_a_finite_number(self) -> None:
        """Also without hypotheses, and without references unless it needs them."""
        utility = self.make()
        assert pairwise(utility, [], self.texts, self.source).shape == (0, len(self.texts))
        if not utility.needs_references:
            assert pairwise(utility, self.texts, (), self.source).shape == (len(self.texts), 1)
        pairwise(utility, self.texts, self.texts[1:], self.source)

    def test_a_pair_does_not_depend_on_the_others(self) -> None:
        utility = self.make()
        whole = pairwise(utility, self.texts, self.texts[1:], self.source)
        rows = [pairwise(utility, [text], self.texts[1:], self.source) for text in self.texts]
        self._equal(np.concatenate(rows), whole, "a row depends on other hypotheses")
        columns = [pairwise(utility, self.texts, [text], self.source) for text in self.texts[1:]]
        self._equal(np.concatenate(columns, axis=1), whole, "a column depends on other references")

    def test_it_is_symmetric_if_it_says_so(self) -> None:
        utility = self.make()
        if utility.symmetric:
            whole = utility.pairwise(self.texts, self.texts, self.source)
            self._equal(np.asarray(whole).T, np.asarray(whole), "it is not symmetric, as it says")

    def test_a_mean_of_one_reference_is_that_reference(self) -> None:
        utility = self.make()
        if isinstance(utility, Aggregates):
            single = aggregated(utility, self.texts, self.texts, np.eye(len(self.texts)), self.source)
            pairs = pairwise(utility, self.texts, self.texts, self.source)
            self._equal(single, pairs, "a mean with the weights 0, ..., 1, ..., 0 is not that reference")

    def test_a_mean_counts_a_reference_as_often_as_it_comes(self) -> None:
        """Twice the same text is that text with twice the weight."""
        utility = self.make()
        if isinstance(utility, Aggregates):
            once = aggregated(utility, self.texts, self.texts[:2], np.array([[2.0, 1.0]]), self.source)
            twice = aggregated(utility, self.texts, [self.texts[0], *self.texts[:2]], None, self.source)
            self._equal(once, twice, "a mean of a text that comes twice is not that with twice the weight")

    def _equal(self, one: Floats, other: Floats, wrong: str) -> None:
        far = np.argwhere(~np.isclose(one, other, rtol=self.tolerance, atol=self.tolerance))
        if len(far):
            row, column = far[0].tolist()
            raise AssertionError(
                f"{wrong}: {one[row, column]} and {other[row, column]} for hypothesis {row + 1}, column {column + 1}"
            )
