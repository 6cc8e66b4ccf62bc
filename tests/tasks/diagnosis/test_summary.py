"""Counts over a set: verdicts, predictors that decide, empty outputs, and what stands out."""

from __future__ import annotations

from dataclasses import replace

import sgdec
from sgdec.protocol import Source
from sgdec.tasks.diagnosis.cases import Case
from sgdec.tasks.diagnosis.findings import findings
from sgdec.tasks.diagnosis.proving import ProofBudget
from sgdec.tasks.diagnosis.run import Diagnosis, diagnose
from sgdec.tasks.diagnosis.summary import summarise


def words(weight: float, decoder: str = "greedy", limit: int = 3, budget: ProofBudget | None = None) -> Diagnosis:
    """Each word costs ``weight``; references have 0 to 4 words."""
    run = sgdec.load("wc", decoder, vocab_size=6, wc={"weight": weight})
    cases = [Case(Source(n + 1, (3,), max_length=limit), (4,) * n, "") for n in range(5)]
    return diagnose(run, cases, budget or ProofBudget())


def test_a_cost_of_words_makes_the_empty_output_the_best_one() -> None:
    found = summarise(words(1.0))
    assert found.empty == (5, 0, 5, 5, 0)  # outputs, better, optima, proven, forbidden
    assert found.verdicts["model error"] == 4 and found.verdicts["neither"] == 1 and found.found == 1
    assert found.model_errors == (4, 2.5)  # by 1, 2, 3 and 4
    assert found.no_search_error == 5 and found.too_long == 1
    (decider,) = found.deciders
    assert decider == ("wc", 1.0, 0, 4, 0, 0, None)
    assert found.lengths.ratio == 0.0 and found.lengths.sentences == 4
    lines = findings(found)
    assert "5 of 5 outputs are empty." in lines
    assert any(line.startswith("1 of 5 references are longer than the length limit") for line in lines)


def test_a_bonus_for_words_makes_the_longest_outputs_the_best_ones() -> None:
    found = summarise(words(-1.0))
    assert found.empty == (0, 0, 0, 5, 0)
    assert (found.lengths.shorter, found.lengths.longer) == (1, 2)  # the references have 1, 2, 3 and 4 words
    assert found.deciders[0].model_errors == 3


def test_a_single_reference_that_cannot_be_found_stands_out() -> None:
    found = replace(summarise(words(1.0)), sentences=1000, too_long=1)
    found = replace(found, deciders=(found.deciders[0]._replace(forbids=1),))
    assert findings(found)[:2] == [
        "wc forbids 1 of 1000 references: no search and no weight can find these.",
        "1 of 1000 references are longer than the length limit: raise --max-length or --max-length-factor.",
    ]


def test_findings_say_which_weights_and_budgets_are_meant() -> None:
    found = replace(summarise(words(1.0, budget=ProofBudget("none"))), sentences=4)
    found = replace(found, deciders=(found.deciders[0], found.deciders[0]._replace(name="other", model_errors=0)))
    assert "wc (weight 1) decides 4 of 4 model errors; another weight of the same sign turns 0 of them." in findings(
        found
    )
    unknown = replace(found, unknown=found.unknown._replace(sentences=4))
    said = "Search errors are unknown for 4 of 4 sentences: --witness FILE{} can tell."
    assert said.format(", or --proof astar,") in findings(unknown)
    for can_tell, proof in [("a larger --max-expansions", ", or a larger --max-expansions,"), (None, "")]:
        assert said.format(proof) in findings(replace(unknown, can_tell=can_tell))


def test_model_errors_stand_out_if_no_predictor_decides_most_of_them() -> None:
    found = summarise(words(1.0))
    (decider,) = found.deciders
    halves = tuple(decider._replace(name=name, model_errors=2) for name in ("one", "other"))
    assert (
        "The reference ranks lower than the output in 4 of 5 sentences, and no predictor decides most of these."
    ) in findings(replace(found, deciders=halves))
    assert "The reference ranks lower than the output in 4 of 5 sentences." in findings(found)
    rare = replace(found, sentences=1000)
    assert not any(line.startswith("The reference ranks lower") for line in findings(rare))


def test_an_empty_output_that_ranks_higher_is_counted() -> None:
    """Samples have words, and each costs 1."""
    found = summarise(words(1.0, "sample", budget=ProofBudget("none")))
    drawn = [each for each in words(1.0, "sample", budget=ProofBudget("none")).sentences if each.output]
    longer = sum(bool(each.output and each.output.tokens) for each in drawn)
    assert longer and found.empty == (5 - longer, longer, 0, 0, 0)
    assert found.witnessed.sentences == longer
    assert any(f"in {longer} of these the empty output does" in line for line in findings(found))


def test_a_forbidden_empty_output_is_counted_and_is_no_problem() -> None:
    run = sgdec.load("wc,minlength", "greedy", vocab_size=6, minlength={"tokens": 1})
    found = diagnose(run, [Case(Source(n, (3,), max_length=3), (4,), "") for n in (1, 2)])
    assert summarise(found).empty.forbidden == 2
    assert [each.problems for each in found.sentences] == [(), ()]
    assert found.sentences[0].to_dict()["empty_forbidden"] is True


def test_a_dictionary_of_a_summary_is_plain() -> None:
    import json

    found = summarise(words(1.0))
    row = json.loads(json.dumps(found.to_dict()))
    assert row["empty"]["optima"] == 5 and row["deciders"][0]["name"] == "wc"
    assert row["calibration"]["wc"]["steps"] == found.calibration["wc"].steps
    assert (
        json.loads(json.dumps(words(1.0, budget=ProofBudget("none")).sentences[1].to_dict()))["search"]["gap"] is None
    )
