"""Contracts of variants: a test class that inherits from another one with the same plugin.

Both run the same code, with other options. `make test` leaves out of a variant what no option can change where the
class that it inherits from keeps it; `make exhaustive` runs everything.
"""

from __future__ import annotations

from typing import Any

import pytest

from sgdec.testing import PredictorContract

OF_THE_CODE = {
    "test_its_class_keeps_to_the_protocol",
    "test_an_answer_has_one_row_a_state_and_fits_the_vocabulary",  # all other tests read answers in the same way
    "test_predict_next_may_be_called_never_once_or_often",
    "test_setting_the_state_just_got_changes_nothing",  # and states are restored in any order
    "test_a_state_is_a_value_that_later_calls_leave_alone",  # and score as before
    "test_a_batch_of_single_prefixes_says_what_single_prefixes_say",
    "test_inside_a_wrapper_it_says_the_same",
    "test_two_fresh_instances_agree",  # every batch is compared with fresh instances
    "test_state_labels_are_texts_or_none",
    "test_abilities_answer_each_state_on_its_own",
    "test_abilities_change_nothing",
    "test_arcs_change_neither_their_arguments_nor_earlier_results",
    "test_relaxations_are_the_same_objects_in_all_states_of_a_sentence",
}
"""Promises that the code of a predictor keeps or breaks, whatever its options."""
OF_SENTENCES = {
    "test_a_number_stands_for_the_same_state_in_all_sentences",
    "test_releasing_a_sentence_changes_no_other",
    "test_released_sentences_leave_nothing",
}
"""The same, unless a variant reads other files for its sentences: it then has ``own_sentences``."""


def is_variant(cls: type[Any]) -> bool:
    """Whether a class inherits its contract from another test class of its module, of the same plugin."""
    return any(
        above.__name__.startswith("Test") and above.__module__ == cls.__module__
        for above in cls.__mro__[1:]
        if getattr(above, "plugin", None) == getattr(cls, "plugin", None)
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what `make test` leaves out of variants."""
    cls, name = getattr(item, "cls", None), getattr(item, "originalname", "")
    if cls is None or not issubclass(cls, PredictorContract) or not is_variant(cls):
        return
    if name in OF_THE_CODE or (name in OF_SENTENCES and not vars(cls).get("own_sentences")):
        item.add_marker(pytest.mark.exhaustive)
