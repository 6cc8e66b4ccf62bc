"""The promise of the plugin host: a name finds its class, whoever brings it; trouble stays with its name.

Third parties are real distributions here: a ``dist-info`` folder and modules on ``sys.path``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sgdec
from sgdec.decoder import Decoder
from sgdec.errors import SgdecError, UsageError
from sgdec.plugins.host import Entry, Host, install_hint
from sgdec.plugins.summaries import summaries
from sgdec.protocol import BatchPredictor
from tests.helpers.distributions import Site

PREDICTOR = """
import sgdec

class Flat(sgdec.Predictor):
    def predict_next(self, candidates=None):
        return sgdec.Scores.constant(0.0)

@sgdec.hookimpl
def sgdec_predictors():
    return {"flat": Flat, "plain": Flat}
"""
HOOK = "import sgdec\n@sgdec.hookimpl\ndef sgdec"


def failure(host: Host, kind: str, name: str) -> str:
    with pytest.raises(SgdecError) as caught:
        host.load(kind, name)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_bundled_plugins_are_found_through_entry_points() -> None:
    host = Host(autoload=False)
    assert {entry.distribution for entry in host.names()} == {"sgdec"}
    assert issubclass(host.load("predictor", "wc"), BatchPredictor)
    assert issubclass(host.load("decoder", "greedy"), Decoder)


def test_names_are_read_without_importing_and_loading_imports_only_what_is_named(site: Site) -> None:
    points = {"predictor.flat": "plugin_a", "predictor.other": "plugin_b"}
    site.install("party", points, {"plugin_a": PREDICTOR, "plugin_b": "raise AssertionError('imported')"})
    host = Host()
    assert Entry("predictor", "other", "party", "plugin_b") in host.names("predictor")
    assert "plugin_a" not in sys.modules
    assert host.load("predictor", "flat").__name__ == "Flat"
    assert "plugin_b" not in sys.modules


def test_each_host_sees_what_is_installed_when_it_is_made(site: Site) -> None:
    def parties() -> set[str]:
        return {entry.distribution for entry in Host().names()} - {"sgdec"}

    before = parties()
    site.install("party-one", {"predictor.flat": "plugin_a"}, {"plugin_a": PREDICTOR})
    assert parties() == before | {"party-one"}
    site.install("party-two", {"predictor.plain": "plugin_b"}, {"plugin_b": PREDICTOR})
    assert parties() == before | {"party-one", "party-two"}
    (site.folder / "party_one-1.0.dist-info").rename(site.folder / "removed")
    assert parties() == before | {"party-two"}
    sys.path.remove(str(site.folder))
    assert parties() == before


def test_loading_a_name_twice_gives_the_same_class(site: Site) -> None:
    site.install("party", {"predictor.flat": "plugin_a", "predictor.plain": "plugin_a"}, {"plugin_a": PREDICTOR})
    host = Host()
    assert host.load("predictor", "flat") is host.load("predictor", "flat") is host.load("predictor", "plain")


def test_two_third_parties_of_one_name_are_an_error_that_names_both_and_for_that_name_only(site: Site) -> None:
    site.install("party-one", {"predictor.flat": "plugin_a"}, {"plugin_a": PREDICTOR})
    site.install("party-two", {"predictor.flat": "plugin_b", "predictor.plain": "plugin_b"}, {"plugin_b": PREDICTOR})
    host = Host()
    assert failure(host, "predictor", "flat") == (
        "predictor 'flat' is offered by party-one and party-two. Choose one: flat@party-one or flat@party-two."
    )
    assert host.load("predictor", "flat@party-one").__module__ == "plugin_a"
    assert host.load("predictor", "flat@party-two").__module__ == "plugin_b"
    assert host.load("predictor", "plain").__module__ == "plugin_b"


def test_of_two_plugins_of_one_name_the_bundled_one_wins_with_one_warning(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    points = {"predictor.wc": "plugin_a", "predictor.plain": "plugin_a"}
    site.install("party", points, {"plugin_a": PREDICTOR.replace('"flat"', '"wc"')})
    host = Host()
    assert host.load("predictor", "plain") and host.load("decoder", "greedy") and not caplog.messages
    for _ in range(2):
        assert host.load("predictor", "wc").__module__ == "sgdec_predictors.wc"
    assert caplog.messages == ["predictor 'wc' is sgdec's own; party has another one: write wc@party to use it."]
    assert [entry.distribution for entry in host.third_parties] == ["party"], "only 'plain' is of the third party"


def test_a_distribution_chooses_among_plugins_of_one_name_and_is_compared_as_pip_does(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.install("Party.One", {"predictor.wc": "plugin_a"}, {"plugin_a": PREDICTOR.replace('"flat"', '"wc"')})
    host = Host()
    for name in ("wc@Party.One", "wc@party-one", "wc@PARTY__one"):
        assert host.load("predictor", name).__module__ == "plugin_a"
    assert host.load("predictor", "wc@sgdec").__module__ == "sgdec_predictors.wc"
    assert not caplog.messages
    assert failure(host, "predictor", "wc@party-ome") == (
        "no predictor 'wc' of a distribution 'party-ome'. Did you mean 'Party.One'? Available: Party.One, sgdec."
    )
    assert failure(host, "predictor", "wd@party-one").startswith("no predictor named 'wd'. Did you mean 'wc'?")


def test_what_names_a_plugin_is_its_name_unless_that_is_anothers(site: Site, tmp_path: Path) -> None:
    site.install("one", {"predictor.wc": "plugin_a", "predictor.flat": "plugin_a", "predictor.own": "plugin_a"}, {})
    site.install("two", {"predictor.flat": "plugin_b"}, {})
    host = Host()
    calls = {(entry.distribution, entry.name): host.call(entry) for entry in host.names("predictor")}
    assert calls["one", "wc"] == "wc@one" and calls["sgdec", "wc"] == "wc"
    assert (calls["one", "flat"], calls["two", "flat"], calls["one", "own"]) == ("flat@one", "flat@two", "own")
    for entry in host.names("predictor"):
        assert host.find("predictor", host.call(entry)) == entry


def test_a_plugin_answers_for_its_own_entries_only(site: Site) -> None:
    site.install("party-one", {"predictor.flat": "plugin_a"}, {"plugin_a": PREDICTOR})
    site.install("party-two", {"predictor.plain": "plugin_b"}, {"plugin_b": PREDICTOR})  # has a "flat" as well
    host = Host()
    assert host.load("predictor", "plain").__module__ == "plugin_b"
    assert host.load("predictor", "flat").__module__ == "plugin_a"
    assert host.load("predictor", "plain").__module__ == "plugin_b"


def test_an_unknown_name_is_a_usage_error_with_the_nearest_name(site: Site) -> None:
    site.install("party", {"predictor.bigram": "nothing"}, {})
    with pytest.raises(UsageError, match=r"no predictor named 'bigrm'. Did you mean 'bigram'\? Available: aligned, "):
        Host().load("predictor", "bigrm")


def test_a_name_of_another_kind_says_which_kind() -> None:
    assert "no predictor named 'greedy' ('greedy' is a decoder)" in failure(Host(), "predictor", "greedy")


def test_a_plugin_that_raises_is_one_line_with_the_place_and_the_others_work(site: Site) -> None:
    points = {"predictor.bad": "bad", "predictor.flat": "plugin_a"}
    site.install("party", points, {"bad": "import os\n\nundefined_name\n", "plugin_a": PREDICTOR})
    host = Host()
    message = failure(host, "predictor", "bad")
    assert message.startswith("predictor 'bad' is installed but did not import: NameError: ")
    assert f"{site.folder / 'bad.py'}, line 3" in message
    assert host.load("predictor", "flat")
    assert host.load("predictor", "wc")


def test_a_syntax_error_names_file_and_line(site: Site) -> None:
    site.install("party", {"predictor.bad": "bad"}, {"bad": "x = 1\ndef f(:\n"})
    message = failure(Host(), "predictor", "bad")
    assert "SyntaxError" in message and "bad.py, line 2" in message


def test_a_missing_optional_dependency_says_what_to_install(site: Site) -> None:
    requires = 'Provides-Extra: fast\nRequires-Dist: no-such-module>=1; extra == "fast"\n'
    site.install("party", {"predictor.bad": "bad"}, {"bad": "import no_such_module"}, requires)
    assert failure(Host(), "predictor", "bad") == (
        "predictor 'bad' is installed but did not import: No module named 'no_such_module' "
        '(pip install "party[fast]").'
    )


def test_hints_come_from_the_declared_extras() -> None:
    assert install_hint("torch") == ' (pip install "sgdec[nmt]")'
    assert install_hint("pynini").startswith(' (pip install "sgdec[fst]" on Linux')
    assert install_hint("click") == ' (pip install "sgdec")'
    assert install_hint("sgdec_predictors.nothing") == install_hint("x", "no-such-distribution") == ""


def test_a_module_without_the_promised_class_is_an_error(site: Site) -> None:
    site.install("party", {"predictor.flta": "plugin_a", "decoder.flat": "plugin_a"}, {"plugin_a": PREDICTOR})
    assert "does not return it. Did you mean 'flat'?" in failure(Host(), "predictor", "flta")
    assert "does not return it. Available: none." in failure(Host(), "decoder", "flat")


def test_a_class_that_is_no_predictor_is_an_error(site: Site) -> None:
    module = "import sgdec\n@sgdec.hookimpl\ndef sgdec_predictors():\n    return {'x': dict}\n"
    site.install("party", {"predictor.x": "plugin_x"}, {"plugin_x": module})
    assert "is not a subclass of sgdec's Predictor" in failure(Host(), "predictor", "x")


def test_an_object_in_place_of_its_class_is_an_error(site: Site) -> None:
    module = "import sgdec\n@sgdec.hookimpl\ndef sgdec_predictors():\n    return {'x': {}}\n"
    site.install("party", {"predictor.x": "plugin_x"}, {"plugin_x": module})
    found = failure(Host(), "predictor", "x")
    assert found.endswith("sgdec_predictors() returned an object of type dict; expected the class itself.")


def test_a_misspelt_hook_is_an_error_and_leaves_the_others_alone(site: Site) -> None:
    module = "import sgdec\n@sgdec.hookimpl\ndef sgdec_predictor():\n    return {}\n"
    site.install("party", {"predictor.x": "plugin_x"}, {"plugin_x": module})
    host = Host()
    assert "unknown hook 'sgdec_predictor'" in failure(host, "predictor", "x")
    assert host.load("predictor", "wc")


@pytest.mark.parametrize(("value", "seen"), [("1", False), ("0", True), ("", True)])
def test_the_environment_switches_third_parties_off(
    site: Site, monkeypatch: pytest.MonkeyPatch, value: str, seen: bool
) -> None:
    site.install("party", {"predictor.flat": "plugin_a"}, {"plugin_a": PREDICTOR})
    monkeypatch.setenv("SGDEC_DISABLE_PLUGIN_AUTOLOAD", value)
    names = [entry.name for entry in Host().names("predictor")]
    assert ("flat" in names) == seen
    assert "wc" in names


def test_a_plugin_file_offers_all_its_names(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(PREDICTOR)
    host = Host([path], autoload=False)
    assert Entry("predictor", "plain", str(path), str(path)) in host.names("predictor")
    assert host.load("predictor", "flat").__name__ == "Flat"


def test_a_plugin_file_comes_before_what_is_installed(tmp_path: Path) -> None:
    """Otherwise each name that sgdec adds would break the files that have it already."""
    path = tmp_path / "mine.py"
    path.write_text(PREDICTOR.replace('"plain"', '"wc"'))
    host = Host([path])
    assert host.load("predictor", "wc").__module__ != "sgdec_predictors.wc"
    assert host.load("predictor", "wc@sgdec").__module__ == "sgdec_predictors.wc"
    assert [entry.of_file for entry in host.third_parties] == [True]
    assert Host().load("predictor", "wc").__module__ == "sgdec_predictors.wc"


def test_two_plugin_files_with_one_name(tmp_path: Path) -> None:
    paths = [tmp_path / "mine.py", tmp_path / "yours.py"]
    for path in paths:
        path.write_text(PREDICTOR)
    assert failure(Host(paths), "predictor", "flat") == (
        f"predictor 'flat' is offered by {paths[0]} and {paths[1]}. Rename one in its plugin, or leave one out."
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "no plugin in it"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("open('nothing')", "FileNotFoundError: .*mine.py, line 1"),
        (None, "no such file"),
        (f"{HOOK}_predictor(): return {{}}", "unknown hook 'sgdec_predictor'. Did you mean 'sgdec_predictors'?"),
        (f"{HOOK}_predictors(): return [dict]", r"sgdec_predictors\(\) returned a list; expected a dict of names"),
        (f"{HOOK}_decoders(): return {{'a b': dict}}", r"sgdec_decoders\(\) returned the name 'a b'; expected a let"),
        (f"{HOOK}_decoders(): return {{7: dict}}", r"sgdec_decoders\(\) returned the name 7; expected a letter"),
    ],
)
def test_a_bad_plugin_file_is_one_line(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SgdecError, match=message) as caught:
        Host([path])
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_problems_lists_every_broken_entry_and_nothing_else(site: Site) -> None:
    points = {
        "predictor.flat": "plugin_a",
        "predictor.bad": "bad",
        "predictors.x": "plugin_a",
        "decoder.a.b": "c",
    }
    site.install("party", points, {"bad": "1 / 0", "plugin_a": PREDICTOR})
    site.install("twin", {"predictor.flat": "plugin_a"}, {})
    host = Host()
    mine = [line for line in host.problems() if "party" in line or "'bad'" in line]
    assert len(mine) == 4
    assert sum("expected predictor.NAME, decoder.NAME, model.NAME" in line for line in mine) == 2
    assert sum("is offered by party and twin" in line for line in mine) == 1
    assert sum("ZeroDivisionError" in line for line in mine) == 1


def test_every_bundled_plugin_imports() -> None:
    assert list(Host(autoload=False).problems()) == []


@pytest.mark.slow
def test_a_symbolic_constellation_imports_no_torch() -> None:
    code = (
        "import sys; from sgdec.plugins.host import Host; host = Host(autoload=False)\n"
        "host.load('predictor', 'wc'), host.load('decoder', 'greedy')\n"
        "assert not {'torch', 'pynini', 'kenlm', 'sentencepiece'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


def test_what_a_plugin_is_is_read_without_importing_it(site: Site) -> None:
    raising = "raise RuntimeError('imported')\n"
    (site.folder / "package").mkdir()
    (site.folder / "package" / "__init__.py").write_text(raising)
    modules = {
        "package/inside": f"# comment\n\n'''Of a package,\nin two lines.\n\nMore.'''\n{raising}",
        "none": f"x = 1\n{raising}",
        "wrong": "'''Never ends.",
        "several": (
            "'''Two plugins.'''\n"
            f"{raising}"
            "class A:\n    '''The `first`.'''\nclass B:\n    pass\n"
            "def sgdec_predictors():\n    return {'a': A, 'b': B, 'c': A}\n"
        ),
    }
    names = dict.fromkeys("abc", "several") | {"in": "package.inside", "none": "none", "wrong": "wrong", "no": "no"}
    site.install("stranger", {f"predictor.{name}": module for name, module in names.items()}, modules)
    entries = [entry for entry in Host().names() if entry.distribution == "stranger"]
    assert {entry.name: line for entry, line in zip(entries, summaries(entries), strict=True)} == {
        "in": "Of a package, in two lines.",
        "none": "",
        "wrong": "",
        "a": "The first.",
        "b": "Two plugins.",
        "c": "Another name of a.",
        "no": "",
    }


def test_another_name_of_a_plugin_that_a_bundled_one_hides_says_whose_it_is(site: Site) -> None:
    source = "class A:\n    pass\ndef sgdec_decoders():\n    return {'beam': A, 'beams': A}\n"
    site.install("stranger", dict.fromkeys(("decoder.beam", "decoder.beams"), "several"), {"several": source})
    entries = Host().names("decoder")
    said = dict(zip(entries, summaries(entries), strict=True))
    assert [line for entry, line in said.items() if entry.name == "beams"] == ["Another name of beam@stranger."]


def test_the_smallest_extra_is_the_one_to_install(site: Site) -> None:
    requires = "".join(f"Requires-Dist: {one}\n" for one in [
        "big-thing; extra == 'all'", "other; extra == 'all'", "big-thing>=2; extra == 'big'", "always"
    ])  # fmt: skip
    site.install("stranger", {}, {}, requires)
    assert install_hint("big_thing", "stranger") == ' (pip install "stranger[big]")'
    assert install_hint("always", "stranger") == ' (pip install "stranger")'
    assert install_hint("nothing", "stranger") == ""


@pytest.mark.parametrize(
    ("stated", "way_out"), [("2", "a newer"), ("0", "another"), ("'1'", "another")]
)
def test_a_plugin_for_another_version_of_the_protocol_is_refused(tmp_path: Path, stated: str, way_out: str) -> None:
    file = tmp_path / "later.py"
    file.write_text(f"import sgdec\nsgdec_api = {stated}\n@sgdec.hookimpl\ndef sgdec_predictors(): return {{}}\n")
    with pytest.raises(SgdecError, match=f"sgdec_api is {stated}, .* version 1 of the protocol: install {way_out}"):
        Host([file])


def test_a_plugin_that_states_this_version_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "now.py"
    file.write_text(
        f"import sgdec\nfrom sgdec_predictors.wc import WordCount\nsgdec_api = {sgdec.API}\n"
        "@sgdec.hookimpl\ndef sgdec_predictors(): return {'mine': WordCount}\n"
    )
    assert Host([file]).load("predictor", "mine").__name__ == "WordCount"
