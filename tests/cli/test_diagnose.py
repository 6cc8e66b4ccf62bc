"""`sgdec diagnose` finds planted causes of bad outputs, and says them in its table, its files and its page."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgdec.cli.main import main
from sgdec.trace import read_trace

pytestmark = pytest.mark.slow

Run = Callable[..., str]
SENTENCES = 20
COMMON = "--vocab-size 9 --input-format ids --max-length 20 --reference ref.ids in.ids"
TRIES = "--predictors good=trie,bad=trie --good.path good/{id}.txt --bad.path bad/{id}.txt"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Twenty references; `good` prefers each to two other outputs, a shorter and a longer one; `bad` likes the short
    one."""
    monkeypatch.chdir(tmp_path)
    rng, references = random.Random(1), []
    for folder in ("good", "bad", "lacking"):
        Path(folder).mkdir()
    for number in range(1, SENTENCES + 1):
        reference = rng.choices(range(4, 9), k=rng.randint(6, 12))
        short, long = reference[: len(reference) // 2], [*reference, 3, 4]
        texts = [" ".join(map(str, tokens)) for tokens in (reference, short, long)]
        for folder, scores in (("good", (-1, -3, -4)), ("bad", (-2, -1, -3))):
            lines = [f"{text}\t{score}" for text, score in zip(texts, scores, strict=True)]
            Path(folder, f"{number}.txt").write_text("\n".join(lines) + "\n")
        Path("lacking", f"{number}.txt").write_text("\n".join(texts[number % 2 :]) + "\n")
        references.append(texts[0])
    Path("ref.ids").write_text("\n".join(references) + "\n")
    Path("in.ids").write_text("7\n" * SENTENCES)

    def command(line: str, status: int = 0) -> str:
        found = main(["diagnose", *line.split()])
        out, err = capsys.readouterr()
        assert found == status, err
        return out if status == 0 else err

    return command


def test_without_a_cause_nothing_stands_out(run: Run) -> None:
    said = run(f"{TRIES} --bad.weight 0.5 {COMMON}")
    assert said.endswith("What stands out\n- Nothing stands out.\n")
    assert "output is the reference                         20  100.0%" in said


def test_a_wrong_weight_is_found(run: Run) -> None:
    said = run(f"{TRIES} --bad.weight 5 --json set.json {COMMON}")
    assert "bad (weight 5) decides 20 of 20 model errors; 20 of them turn at another weight, 2 in the median" in said
    (decider,) = [each for each in json.loads(Path("set.json").read_text())["deciders"] if each["name"] == "bad"]
    assert decider == {
        "name": "bad", "weight": 5.0, "forbids": 0, "model_errors": 20, "search_errors": 0, "turning": 20,
        "turning_weight": 2.0,
    }  # fmt: skip
    assert "Nothing" in run(f"{TRIES} --bad.weight 1.99 {COMMON}")


def test_lattices_that_lack_references_are_found(run: Run) -> None:
    said = run(f"--predictors trie,wc --trie.path lacking/{{id}}.txt {COMMON} --output out.jsonl")
    assert "- trie forbids 10 of 20 references: no search and no weight can find these." in said
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    references = Path("ref.ids").read_text().splitlines()
    for row, reference in zip(rows, references, strict=True):
        lacks = row["id"] % 2 == 1
        assert row["model"]["error"] == ("forbidden" if lacks else "error")
        if lacks:  # the lattice has only its first half, and what is longer
            tokens = [*map(int, reference.split()), 2]
            assert row["model"]["forbidden"] == {
                "predictors": ["trie"], "token": 2, "position": len(tokens), "later": [],
            }  # fmt: skip


def test_every_predictor_that_forbids_a_reference_is_counted_once_for_it(run: Run) -> None:
    """`late` lacks the end of all references, `early` their first token, too."""
    for folder in ("early", "late"):
        Path(folder).mkdir()
    for number, reference in enumerate(Path("ref.ids").read_text().splitlines(), 1):
        Path("early", f"{number}.txt").write_text("3\n")
        Path("late", f"{number}.txt").write_text(f"{reference} 3\n3\n")
    tries = "--predictors early=trie,late=trie --early.path early/{id}.txt --late.path late/{id}.txt"
    said = run(f"{tries} --output out.jsonl --show 20 {COMMON}")
    assert "- early forbids 20 of 20 references: no search" in said
    assert "- late forbids 20 of 20 references: no search" in said
    reference = Path("ref.ids").read_text().splitlines()[1]
    assert f"early forbids token 1 of the reference, '{reference[0]}'; late forbids a later one." in said
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert rows[1]["model"]["forbidden"] == {
        "predictors": ["early"], "token": int(reference[0]), "position": 1, "later": ["late"],
    }  # fmt: skip


def test_model_errors_of_a_predictor_alone_stand_out_without_a_cause(run: Run) -> None:
    said = run(f"--predictors bad=trie --bad.path bad/{{id}}.txt {COMMON}")
    _, _, found = said.partition("\nWhat stands out\n")
    assert found.splitlines() == [
        "- The reference ranks lower than the output in 20 of 20 sentences.",
        "- Outputs are too short: 0.47 tokens for each token of the references; 20 of 20 are shorter.",
    ]


def test_deciders_are_counted_among_model_errors_without_forbidden_references(run: Run) -> None:
    said = run(f"--predictors trie,wc --trie.path lacking/{{id}}.txt --wc.weight 4 {COMMON}")
    assert "- wc (weight 4) decides 10 of 10 model errors whose reference is not forbidden; " in said


def test_every_option_can_be_in_the_configuration(run: Run) -> None:
    """Under its name on the command line, and those that a run cannot do without, too."""
    given = 'reference = "ref.ids"\njson = "set.json"\nvocab-size = 9\nmax_length = 20\ninput-format = "ids"\n'
    Path("run.toml").write_text(given)
    run(f"{TRIES} --config run.toml in.ids")
    assert json.loads(Path("set.json").read_text())["sentences"] == SENTENCES
    Path("run.toml").write_text('json_ = "set.json"\n')
    said = run(f"{TRIES} --config run.toml {COMMON}", 2)
    assert said.startswith("Error: --config run.toml: no option 'json_'. Did you mean 'json'?")
    missing = run(f"{TRIES} in.ids", 2)
    assert "Missing option '--reference'." in missing


def test_a_forbidden_empty_output_is_a_row_and_no_warning(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither are forbidden references, which the report names."""
    trie = "--predictors trie --trie.path lacking/{id}.txt"
    assert main(["diagnose", *f"{trie} {COMMON}".split()]) == 0
    said = capsys.readouterr()
    assert "the empty output is forbidden                  20  100.0%" in said.out
    assert "Warning" not in said.err and "forbid the given output" not in said.out


def test_a_length_bias_is_found(run: Run) -> None:
    said = run(f"--predictors good=trie,wc --good.path good/{{id}}.txt --wc.weight 4 {COMMON}")
    assert "- wc (weight 4) decides 20 of 20 model errors; 20 of them turn at another weight" in said
    assert "- Outputs are too short: 0." in said and "20 of 20 are shorter." in said


def test_a_stop_rule_that_hides_a_length_bias_is_named(run: Run) -> None:
    """The reference is found first; the bonus for the four further tokens of the other entry comes later."""
    Path("biased").mkdir()
    for number, reference in enumerate(Path("ref.ids").read_text().splitlines(), 1):
        Path("biased", f"{number}.txt").write_text(f"{reference}\t-1\n{reference} 3 4 5 6\t-4\n")
    biased = f"--predictors trie,wc --trie.path biased/{{id}}.txt --wc.weight -1.5 {COMMON}"
    ended = run(f"{biased} --beam.stop best")
    assert "\nstop rule     best\n" in ended
    assert (
        "- Stop best ends the search too early in 20 of 20 sentences: with stop proven it finds a hypothesis that "
        "ranks higher, and outputs have 1.40 tokens for each token of the references instead of 1.00. So stop best "
        "hides a length bias.\n"
    ) in ended
    whole = run(f"{biased} --beam.stop length")
    assert "\nstop rule     length\n" in whole and "too early" not in whole
    assert "- Outputs are too long: 1.40 tokens for each token of the references; 20 of 20 are longer." in whole
    unproven = run(f"{biased} --proof none --show 1")
    assert "witnessed: a hypothesis (from the same search with stop proven) ranks higher by 3" in unproven


def test_a_stop_rule_without_a_second_search_has_its_caveat(run: Run) -> None:
    """`bestfirst` has no option for it."""
    Path("trap").mkdir()
    for number, reference in enumerate(Path("ref.ids").read_text().splitlines(), 1):
        Path("trap", f"{number}.txt").write_text(f"{reference}\t-1\n3\t-0.5\n")
    said = run(f"--predictors trie,wc --trie.path trap/{{id}}.txt --wc.weight -1 --decoder bestfirst {COMMON}")
    assert "\nstop rule     bestfirst has no option for it\n" in said
    assert "- bestfirst: it can end too early, because totals can rise; beam with stop length or stop proven" in said


def test_the_head_says_what_is_diagnosed(run: Run) -> None:
    from tests.helpers.web_pages import Page

    options = "--bad.weight 0.5 --beam.size 3 --max-expansions 40 --json set.json --html r.html"
    said = run(f"{TRIES} {options} {COMMON}")
    head, _, _ = said.partition("\n\n")
    labels = ["predictors", "decoder", "stop rule", "exact search"]
    texts = [line.split("  ", 1)[1].strip() for line in head.splitlines()]
    assert [line.split("  ")[0] for line in head.splitlines()] == labels
    assert texts[0] == "good=trie (weight 1), bad=trie (weight 0.5)"
    assert texts[1].startswith("beam (size 3, alpha 0, ") and "recombine false, stop best" in texts[1]
    assert texts[2:] == ["best", "astar, at most 40 expansions for each sentence"]
    page = Page(Path("r.html").read_text())
    assert set(texts) <= set(page.texts["td"]) and set(labels) <= set(page.texts["th"])
    found = json.loads(Path("set.json").read_text())
    assert found["predictors"] == {"good": "trie", "bad": "trie"} and found["weights"] == {"good": 1.0, "bad": 0.5}
    assert found["decoder"]["name"] == "beam" and found["stop"] == "best" == found["decoder"]["options"]["stop"]
    assert found["decoder"]["options"]["size"] == 3 and found["exact_search"] == texts[3]


def test_the_page_names_the_weights_of_config_file_and_command_line_with_all_digits(run: Run) -> None:
    """The command line wins. Signature and page agree."""
    from tests.helpers.web_pages import Page

    config = "[good]\nweight = 0.12345678901\n[bad]\nweight = 0.25\n[beam]\nalpha = 0.6000000001\n"
    Path("run.toml").write_text(config)
    options = "--config run.toml --bad.weight 0.30000000000000004 --html r.html --signature run.sig"
    head, _, _ = run(f"{TRIES} {options} {COMMON}").partition("\n\n")
    page = Page(Path("r.html").read_text())
    assert page.texts["td"][0] == "good=trie (weight 0.12345678901), bad=trie (weight 0.30000000000000004)"
    assert f"predictors    {page.texts['td'][0]}\n" in head and "alpha 0.6000000001, " in page.texts["td"][1]
    (signature,) = page.texts["code"]
    assert signature == Path("run.sig").read_text().strip()
    assert "0.12345678901*good=trie(" in signature and ",0.30000000000000004*bad=trie(" in signature


def test_search_errors_are_witnessed_and_proven(run: Run) -> None:
    """Greedy search takes the token 3 for its bonus, and pays for it afterwards."""
    Path("trap").mkdir()
    for number, reference in enumerate(Path("ref.ids").read_text().splitlines(), 1):
        Path("trap", f"{number}.txt").write_text(f"{reference}\t-1\n3 3\t-1.5\n")
    Path("trap.py").write_text(TRAP)
    search = "--predictors trie,trap --plugin-file trap.py --trie.path trap/{id}.txt --decoder greedy --show 1"
    unproven = run(f"{search} --proof none {COMMON}")
    assert "search error, witnessed                         20  100.0%                  at least 12.5" in unproven
    assert "Search error, witnessed: a hypothesis (the reference) ranks higher by 12.5." in unproven
    assert "trap decides (trie +0.5, trap +12)" in unproven
    assert "- The search missed a hypothesis that ranks higher in 20 of 20 sentences." in unproven
    for proof in ("astar", "dfs"):
        proven = run(f"{search} --proof {proof} {COMMON}")
        assert "search error, proven                            20  100.0%                           12.5" in proven
        assert "Search error, proven: the best hypothesis (found by exact search) ranks higher by 12.5." in proven
    Path("ref.ids").rename("other.ids")
    Path("ref.ids").write_text("3 3\n" * SENTENCES)
    assert "search unknown                                  20  100.0%" in run(f"{search} --proof none {COMMON}")
    witnessed = run(f"{search} --proof none --witness other.ids {COMMON}")
    assert "a hypothesis (from other.ids) ranks higher by 12.5" in witnessed
    second = Path("other.ids").read_text().splitlines()[1]
    Path("gaps.nbest").write_text(f"2 ||| {second} ||| -1\n")  # all other sentences failed in that run
    witnessed = run(f"{search} --proof none --witness gaps.nbest {COMMON}")
    assert "search error, witnessed                          1    5.0%" in witnessed


TRAP = '''"""A predictor that likes the token 3, once."""

import sgdec
from sgdec import Predictor, Scores


class Trap(Predictor):
    max_score = 2.0

    def initialize(self, source):
        self.caught = False

    def predict_next(self, candidates=None):
        return Scores.sparse([3], [-7.0 if self.caught else 2.0], default=-7.0 if self.caught else 0.0)

    def consume(self, token):
        self.caught |= token == 3

    def get_state(self):
        return self.caught

    def set_state(self, state):
        self.caught = state


@sgdec.hookimpl
def sgdec_predictors():
    return {"trap": Trap}
'''


def test_the_files_hold_every_sentence(run: Run) -> None:
    from tests.helpers.web_pages import Page

    files = "--output out.jsonl --json set.json --html r.html --viewer view/page.html --trace t.jsonl --nbest 2"
    said = run(f"{TRIES} --beams 2,1 {files} --range 3:6 --show 0 {COMMON}")
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [3, 4, 5, 6]
    assert [sentence.id for sentence in read_trace("t.jsonl").sentences] == [3, 4, 5, 6]
    found: dict[str, Any] = json.loads(Path("set.json").read_text())
    assert found["sentences"] == 4 and found["weights"] == {"good": 1.0, "bad": 1.0}
    assert [point["size"] for point in found["curve"]] == [1, 2] and found["oracle"]["size"] == 2.0
    page = Page(Path("r.html").read_text())
    links = [attributes["href"] for attributes in page.attributes("a")]
    assert sorted(links) == [f"view/page.html#sentence={number}" for number in (3, 4, 5, 6)]
    assert len(page.attributes("svg")) == 4 == len(page.texts["desc"])
    for title in ("Beam curve", "Oracle of the n-best lists", "Calibration", "Agreement"):
        assert title in said and title in page.texts["h2"]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("--reference in.ids two.ids", "two.ids has 2 sentences but in.ids has 20. Line N of one must belong to"),
        ("--reference ref.ids --witness two.ids in.ids", "in.ids has 20 sentences but two.ids has 2."),
        ("--reference text in.ids", "text: line 1: 'ein' is not a token id of an output; for text use"),
        ("--reference big.ids in.ids", "big.ids: line 20: token 9 is outside the vocabulary of 9 tokens."),
        ("--reference - -", "standard input (-) can be only one of the files."),
        ("--reference ref.ids --decoder greedy --beams 1 in.ids", "the decoder greedy has no option 'size'."),
        ("--reference ref.ids --beams 1,x in.ids", "'1,x': expected sizes such as 1,2,5,10"),
        ("--reference ref.ids --viewer v.html in.ids", "--viewer is for the links of a report. Give --html FILE."),
        ("--reference ref.ids --range 30: in.ids", "--range begins at 30, but in.ids has 20 lines."),
        ("--reference ref.ids --input-format text in.ids", "no predictor brings a source vocabulary"),
        ("--reference ref.ids --html in.ids in.ids", "--html in.ids is the input. Write to another file."),
        ("--reference ref.ids --output ref.ids in.ids", "--output ref.ids is what --reference reads."),
    ],
)
def test_bad_input_is_one_line(run: Run, line: str, error: str) -> None:
    Path("two.ids").write_text("3\n4\n")
    Path("text").write_text("ein Hund\n" * SENTENCES)
    Path("big.ids").write_text("3\n" * (SENTENCES - 1) + "9\n")
    status = 1 if "sentences but" in error or "token" in error else 2
    said = run(f"--predictors wc --vocab-size 9 --max-length 3 --input-format ids {line}", status)
    assert error in said and said.count("\n") == 1


def test_a_predictor_without_bounds_needs_no_proof(run: Run) -> None:
    Path("plain.py").write_text(PLAIN)
    search = f"--predictors plain --plugin-file plain.py --show 0 {COMMON}"
    said = run(search, 2)
    assert said.startswith("Error: --proof astar: ") and "'plain'" in said and "give --proof none." in said
    assert "What stands out" in run(f"{search} --proof none", 0)


PLAIN = '''"""A predictor that declares nothing."""

import numpy as np

import sgdec
from sgdec import Predictor, Scores


class Plain(Predictor):
    def predict_next(self, candidates=None):
        return Scores.dense(np.log(np.full(9, 1 / 9)))


@sgdec.hookimpl
def sgdec_predictors():
    return {"plain": Plain}
'''


def test_a_problem_of_a_sentence_is_said_once(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Its output, its reference and the empty output all fail for one reason."""
    Path("good/7.txt").unlink()
    said = run(f"{TRIES} --show 0 {COMMON}", 1)
    assert said.count("Warning: sentence 7: ") == 1 == said.count("good/7.txt: ")


def test_numbers_of_one_have_no_plural(run: Run) -> None:
    Path("in.ids").write_text("7\n")
    wc = "--predictors wc --vocab-size 9 --input-format ids --max-length 3"
    said = run(f"{wc} --reference ref.ids in.ids", 1)
    assert "in.ids has 1 sentence but ref.ids has 20." in said
    Path("ref.ids").write_text("7 8 6 5\n")
    said = run(f"{wc} --max-expansions 1 --html r.html --reference ref.ids in.ids")
    assert "Outputs that are shorter than their references: 1; longer: 0." in said
    assert "at most 1 expansion for each" in said
    assert "<title>Diagnosis of 1 sentence</title>" in Path("r.html").read_text()
    assert "--range begins at 2, but in.ids has 1 line." in run(f"{wc} --range 2: --reference ref.ids in.ids", 2)


def test_sentences_that_fail_are_counted_and_do_not_stop_the_others(run: Run) -> None:
    Path("good/7.txt").unlink()
    Path("in.ids").write_text(Path("in.ids").read_text().replace("7", "x", 1))
    said = run(f"{TRIES} --json set.json {COMMON}", 1)
    assert "sentence 1: output: in.ids, line 1: 'x' is not a token id" in said
    assert "sentence 7: output: " in said and "good/7.txt" in said
    found = json.loads(Path("set.json").read_text())
    assert found["failed"] == 2 and found["no_reference"] == 2 and found["sentences"] == SENTENCES
