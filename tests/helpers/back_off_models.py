"""Random back-off n-gram models, and words to ask them about."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from sgdec.io.arpa import LN_10, Arpa, NGrams

COLUMNS = ["x", "d", "a", "</s>", "y", "b", "c", "<unk>", "a"]
"""Words that no model lists, and one word twice."""
PREFIXES = st.lists(st.sampled_from(["a", "b", "c", "d", "x", "<unk>"]), max_size=6)


@st.composite
def back_off_models(draw: st.DrawFn, *, complete: bool) -> Arpa:
    """Models of order 2 to 4 that list every n-gram's history and, if ``complete``, its suffix (as KenLM wants)."""
    words = ["</s>", "<s>", *"abcd"[: draw(st.integers(1, 4))], *draw(st.sampled_from([[], ["<unk>"]]))]
    grams = [(word,) for word in range(len(words))]
    levels = [grams]
    for _ in range(draw(st.integers(1, 3))):
        longer = [(*gram, word) for gram in grams if gram[-1] != 0 for word in range(len(words)) if word != 1]
        if complete:
            longer = [gram for gram in longer if gram[1:] in grams]
        if not longer:
            break
        grams = draw(st.lists(st.sampled_from(longer), min_size=1, max_size=9, unique=True))
        levels.append(grams)
    orders = []
    for n, grams in enumerate(levels, 1):
        scores = draw(st.lists(st.floats(-5.0, -0.01), min_size=len(grams), max_size=len(grams)))
        possible = st.just(0.0) if n == len(levels) else st.sampled_from([0.0, 0.0, -0.5, -1.25, 0.25])
        backoffs = [0.0 if gram[-1] == 0 else draw(possible) for gram in grams]
        orders.append(NGrams(np.array(grams, np.int32), np.array(scores) * LN_10, np.array(backoffs) * LN_10))
    return Arpa(words, orders)
