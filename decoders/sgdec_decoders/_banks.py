"""Banks: slots of a beam for hypotheses that meet different amounts of a constraint.

Source: Post and Vilar 2018, "Fast lexically constrained decoding with dynamic beam allocation", section 3; on arrays
Hu et al. 2019, "Improved lexically constrained decoding for translation and monolingual rewriting". A bank holds the
hypotheses that meet the same amount. The beam is divided evenly: each bank gives its best hypothesis a slot, then its
second, and so on, until no slot is left. In the last round banks that meet more come first. So the bank that meets
most always has a slot. A bank without enough hypotheses leaves its slots to the others.
"""

from __future__ import annotations

import numpy as np

from sgdec.arrays import Flags, Ints


def banked(sentence: Ints, progress: Ints, takes_slot: Flags, size: int) -> Flags:
    """``[n]``: the candidates of each sentence that get one of its ``size`` slots.

    ``sentence [n]``, ascending; within a sentence the candidates come best total first. ``progress [n]``: how much
    they meet. Those that take no slot are left out.

    >>> one = np.zeros(5, np.int64)
    >>> banked(one, np.array([0, 0, 0, 1, 2]), one == 0, 3).tolist()
    [True, False, False, True, True]
    """
    (places,) = takes_slot.nonzero()
    sentences, met = sentence[places], progress[places]
    round_of = _ranks(np.stack([sentences, met]), np.arange(len(places)))
    order = np.lexsort((-met, round_of, sentences))
    has_slot = np.zeros(len(sentence), dtype=bool)
    has_slot[places[order[_ranks(sentences[order][None], np.arange(len(places))) < size]]] = True
    return has_slot


def _ranks(keys: Ints, order: Ints) -> Ints:
    """``[n]``: the number of earlier elements with the same keys ``[k, n]``."""
    by_key = np.lexsort((order, *keys[::-1]))
    ordered = keys[:, by_key]
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    positions = np.arange(len(order))
    ranks = np.empty(len(order), np.int64)
    ranks[by_key] = positions - np.maximum.accumulate(np.where(begins, positions, 0))
    return ranks
