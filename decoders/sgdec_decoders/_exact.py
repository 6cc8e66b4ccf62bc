"""Shared code of exact decoders: options, budget, recombination, ranking, and the proof that no better hypothesis
exists.

A decoder of this family only determines the order in which the branches of a space are searched
(`ExactDecoder.search`). `sgdec_decoders._branch_and_bound` defines branches and the condition for cutting them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, final

from pydantic import Field

from sgdec import Decoder, Result, SearchSpace, UsageError
from sgdec.ranking import Ranking
from sgdec_decoders._branch_and_bound import Budget, NBest, Recombination, Tree
from sgdec_decoders._ranking_options import Alpha, Beta, Normalize


@dataclass(eq=False, kw_only=True)
class ExactDecoder(Decoder):
    """A search that ends when no open node can enter the n-best, or when its budget is spent.

    Its fields are options; a subclass's options come before them.
    """

    max_expansions: Annotated[
        int, Field(ge=0, description="limit on expansions per search; 0 = no limit")
    ] = 0
    max_seconds: Annotated[float, Field(ge=0, description="limit on the seconds of a search; 0 = no limit")] = 0.0
    alpha: Alpha = 0.0
    beta: Beta = 0.0
    normalize: Normalize = "gnmt"
    recombine: Annotated[
        bool, Field(description="among prefixes with the same future scores, expand only those that the n-best needs")
    ] = False

    exact: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.ranking = Ranking(self.alpha, self.beta, self.normalize)

    @abstractmethod
    def search(self, tree: Tree) -> float:
        """Search until the tree or ``tree.budget`` is exhausted. Returns the bound of the unsearched part; -inf =
        there is none."""

    @final
    def decode(self, space: SearchSpace) -> Result:
        """Raises UsageError, naming the predictor, if one declares no bound, or no bound can end the search.

        Raises UsageError if options exclude each other, SgdecError if a declared bound is wrong.
        """
        tree = self.tree(space)
        still_open = self.search(tree)
        best = tree.best
        hypotheses = [space.finish(node) for node in best.nodes]
        tree.close(still_open, proven=tree.bounds_hold and still_open <= best.lowest())
        if not tree.bounds_hold:
            return Result(hypotheses)
        if still_open <= best.lowest():
            return Result(hypotheses, proven=True)
        gap = max(still_open - best.highest(), 0.0) if hypotheses else None
        return Result(hypotheses, proven=False, gap=gap)

    def tree(self, space: SearchSpace) -> Tree:
        """The search tree of a space."""
        return Tree(space, self.budget(space), NBest(space), self.recombination(space))

    @final
    def budget(self, space: SearchSpace) -> Budget:
        return Budget(space, self.max_expansions, self.max_seconds)

    @final
    def recombination(self, space: SearchSpace) -> Recombination:
        """Raises UsageError for a list of several distinct texts: the n best prefixes of one future can share one."""
        if self.recombine and space.nbest > 1 and space.text_of is not None:
            raise UsageError(
                "recombine true expands only n prefixes with the same future for an n-best list, and their texts can "
                "be equal: omit it, or --distinct-text, or list one hypothesis."
            )
        return Recombination(space, wanted=space.nbest if self.recombine else 0)
