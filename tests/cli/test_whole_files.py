"""The promise of every file that a command writes: it is there whole or not at all, and the old one until then."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from sgdec.cli.paths import Written
from sgdec.errors import SgdecError
from sgdec.io.writing import claim, whole_file, write_whole
from tests.helpers.commands import ALL, parameters
from tests.helpers.corpora import write_corpus
from tests.helpers.places import ROOT
from tests.helpers.tiny_models import characters, write_checkpoint, write_lattice
from tests.helpers.traced_runs import write_trace

pytestmark = pytest.mark.background

OLD = b"what was there before\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def listed(folder: Path = Path()) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_when_it_is_complete_and_keeps_its_mode(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_bytes(OLD)
    target.chmod(0o640)
    with whole_file(target) as file:
        file.write(b"new")
        assert target.read_bytes() == OLD
    assert target.read_bytes() == b"new" and target.stat().st_mode & 0o777 == 0o640 and listed() == ["x"]


@pytest.mark.parametrize("left", [False, True])
def test_what_replaces_a_private_file_is_private_from_its_first_byte(left: bool) -> None:
    """Also if a file was left under the name, which anyone may have open."""
    Path("x").write_bytes(OLD)
    Path("x").chmod(0o600)
    if left:
        Path(".x.partial").touch(0o666)
    reader = os.open(".x.partial", os.O_RDONLY) if left else None
    with whole_file("x") as file:
        file.write(b"secret")
        file.flush()
        assert Path(".x.partial").stat().st_mode & 0o777 == 0o600
    assert Path("x").read_bytes() == b"secret" and Path("x").stat().st_mode & 0o777 == 0o600
    if reader is not None:
        assert os.read(reader, 9) == b""
        os.close(reader)


@pytest.mark.parametrize("links", [os.link, os.symlink])
def test_a_link_where_the_partial_file_will_be_is_not_written_through(links: Any) -> None:
    Path("precious").write_bytes(OLD)
    links("precious", ".x.partial")
    if links is os.link:
        write_whole("x", "new")
        assert Path("x").read_bytes() == b"new" and listed() == ["precious", "x"]
    else:
        with pytest.raises(SgdecError, match=r"^x: cannot be written \(\S*/\.x\.partial is in the way, remove it: "):
            write_whole("x", "new")
    assert Path("precious").read_bytes() == OLD


def test_a_new_file_has_the_mode_that_any_new_file_has() -> None:
    write_whole("x", "é")
    Path("y").touch()
    assert Path("x").stat().st_mode == Path("y").stat().st_mode and Path("x").read_bytes() == "é".encode()


def test_the_target_of_a_link_is_replaced_not_the_link() -> None:
    Path("real").mkdir()
    Path("real/x").write_bytes(OLD)
    Path("first").symlink_to("real/x")
    Path("second").symlink_to("first")
    Path("dangling").symlink_to("real/y")
    write_whole("second", "new")
    write_whole("dangling", "newer")
    assert Path("real/x").read_text() == "new" and Path("second").is_symlink() and Path("first").is_symlink()
    assert Path("real/y").read_text() == "newer" and Path("dangling").is_symlink()


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt()])
def test_whatever_goes_wrong_leaves_the_old_file_alone(error: BaseException) -> None:
    Path("x").write_bytes(OLD)
    with pytest.raises(type(error)), whole_file("x") as file:
        file.write(b"half")
        file.flush()
        raise error
    assert Path("x").read_bytes() == OLD and listed() == ["x"]


def test_what_a_dead_process_left_is_taken_over() -> None:
    Path(".x.partial").write_bytes(b"much longer than what is written now")
    write_whole("x", "new")
    assert Path("x").read_bytes() == b"new" and listed() == ["x"]


def test_a_file_that_is_being_written_is_left_to_who_writes_it() -> None:
    with whole_file("x") as file:
        file.write(b"first")
        with pytest.raises(SgdecError, match=r"x: another process is writing this file\. Wait for it"):
            write_whole("x", "second")
    assert Path("x").read_bytes() == b"first"


def test_a_claim_survives_its_file_being_renamed_meanwhile() -> None:
    first = claim("x.partial")
    assert first is not None and claim("x.partial") is None
    os.replace("x.partial", "x")
    second = claim("x.partial")
    assert second is not None and os.fstat(first.fileno()).st_ino != os.fstat(second.fileno()).st_ino
    first.close()
    second.close()


@pytest.mark.parametrize("path", ["none/x", "folder", "file/x"])
def test_what_cannot_be_written_is_one_line(path: str) -> None:
    Path("folder").mkdir()
    Path("file").touch()
    with pytest.raises(SgdecError, match=rf"^{path}: cannot be written \(.*\)\.$"):
        write_whole(path, "new")
    assert listed() == ["file", "folder"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write what is protected")
def test_a_protected_file_is_not_replaced() -> None:
    Path("x").write_bytes(OLD)
    Path("x").chmod(0o444)
    with pytest.raises(SgdecError, match="Permission denied"):
        write_whole("x", "new")


def test_pipes_and_devices_are_written_directly() -> None:
    os.mkfifo("pipe")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(Path("pipe").read_bytes()))
    reader.start()
    write_whole("pipe", "new")
    reader.join()
    write_whole("/dev/null", "nothing")
    assert got == [b"new"] and listed() == ["pipe"]


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link"])
def test_standard_output_stays_what_the_shell_made_it(name: str) -> None:
    Path("link").symlink_to("/dev/stdout")
    Path("out").write_bytes(OLD)
    code = f"from sgdec.io.writing import write_whole; write_whole({name!r}, 'new')"
    with open("out", "ab") as output:
        subprocess.run([sys.executable, "-c", code], stdout=output, check=True)
    assert Path("out").read_bytes() == OLD + b"new" and listed() == ["link", "out"]


DIAGNOSE = (
    "diagnose --predictors fst --fst.path 1.fst --input-format ids --max-length 3 --show 0 --reference in.ids in.ids"
)
SWEEP = "sweep --predictors wc --vocab-size 4 --input-format ids --max-length 1 --axis alpha=0,1 --reference in.ids"
TUNE = (
    "tune --predictors wc,fst --fst.path 1.fst --wc.weight -1 --vocab-size 9 --input-format ids --max-length 3 "
    "--seeds 1 --rounds 1 --reference in.ids in.ids --folder"
)
CASES: dict[tuple[tuple[str, ...], str], tuple[str, str]] = {
    (("decode",), "output"): (
        "decode --predictors fst --fst.path 1.fst --input-format ids --output-format fst --output o{id}.fst in.ids",
        "o1.fst",
    ),
    (("decode",), "signature"): (
        "decode --predictors fst --fst.path 1.fst --input-format ids --signature out in.ids", "out",
    ),
    (("decode",), "trace"): (
        "decode --predictors fst --fst.path 1.fst --input-format ids --trace out in.ids", "out",
    ),
    (("score",), "signature"): (
        "score --predictors fst --fst.path 1.fst --input-format ids --signature out in.ids in.ids", "out",
    ),
    (("tokenizer",), "output"): ("tokenizer --input text --kind char --vocab-size 9 --output out", "out"),
    (("vocabulary",), "output"): ("vocabulary c.spm --output table", "table"),
    (("transducer",), "output"): ("transducer --from c.spm --to c.spm --text text --output out.fst", "out.fst"),
    (("lm",), "output"): ("lm --input text --order 2 --discount-fallback --output out.arpa.gz", "out.arpa.gz"),
    (("fit-length",), "output"): ("fit-length text text --output out", "out"),
    **{
        (("diagnose",), option): (f"{DIAGNOSE} --{option.strip('_')} out", "out")
        for option in ("output", "json_", "html", "signature", "trace")
    },
    **{
        (("sweep",), option): (f"{SWEEP} --{option.strip('_')} out in.ids", "out")
        for option in ("save", "json_", "html", "signature")
    },
    (("tune",), "folder"): (f"{TUNE} tuned", "tuned/tuned.toml"),
    (("tune",), "signature"): (f"{TUNE} tuned2 --signature out", "out"),
    (("view",), "output"): ("view trace --output out", "out"),
    (("view",), "svg"): ("view trace --sentence 1 --svg out", "out"),
    (("view",), "pdf"): ("view trace --sentence 1 --pdf out", "out"),
    (("corpus-merge",), "output"): ("corpus-merge whole --output out", "out"),
    (("corpus-status",), "html"): ("corpus-status whole --html out", "out"),
    (("corpus-status",), "json_"): ("corpus-status whole --json out", "out"),
    (("compare",), "html"): ("compare text text --html out", "out"),
    (("compare",), "json_"): ("compare text text --json out", "out"),
    (("trie",), "output"): ("trie in.ids --output out", "out"),
    (("trie",), "left_out"): ("trie text --tokenizer c.spm --output x.trie --left-out out", "out"),
    (("ngrams",), "output"): ("ngrams {id}.fst --output o{id}.txt", "o1.txt"),
    (("demo", "corpus"), "directory"): ("demo corpus --directory new --train-lines 2", "new/train.en"),
    (("demo", "lattices"), "output"): ("demo lattices --tokenizer c.spm --output o{id}.fst numbers", "o1.fst"),
    (("cluster",), "output"): (
        "cluster --model model --input text --output clusters --centroids 1", "clusters/clusters.json",
    ),
    (("shortlist",), "output"): ("shortlist text text --model model --output short", "short/shortlist.json"),
    (("average",), "output"): ("average model model2 --output averaged", "averaged/config.json"),
    (("export",), "output"): ("export model3 --to hf --output hf", "hf/config.json"),
    (("quantize",), "output"): ("quantize model --calibrate text text --output small", "small/config.json"),
    (("train",), "output"): (
        "train --train text text --valid text text --tokenizer c.spm --output run --max-steps 1 --quiet "
        "--gnmt.layers 3 --gnmt.width 8", "run/step-1/config.json",
    ),
    (("course", "export"), "folder"): ("course export handed", "handed/student/README.md"),
    (("course", "zip"), "output"): ("course zip bag --output out", "out"),
    (("new-plugin",), "directory"): ("new-plugin my-idea --directory plugin", "plugin/pyproject.toml"),
}  # fmt: skip
"""For each parameter that says what is written: a call, and one of the files that it writes whole."""
ELSEWHERE = {
    (("score",), "output"): "rows that are flushed one by one: test_resuming.py",
    (("demo",), "directory"): "runs the other commands",
    (("corpus-merge",), "failed"): "written with the output, empty if no line failed: test_corpus.py",
    (("course", "grade"), "csv_"): "needs a boundary, and graders of some seconds: test_course_classes.py",
    (("course", "grade"), "records"): "likewise",
    (("corpus",), "output"): "a folder that many processes write: tests/corpus, test_corpus.py",
}
GROWING = ("run/metrics.jsonl", "run/events.out", "run/.lock", "run/text")
"""What training writes as it goes on, or makes complete in a folder of its own."""


def test_every_file_that_a_command_writes_has_a_case() -> None:
    declared = {(path, p.name) for path, command in ALL.items() for p in parameters(command, Written)}
    assert declared == {*CASES, *ELSEWHERE}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    """What came of each case: killed, without room, and watched. Where a file is written, another one was before."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "in.ids").write_text("3\n")
    (folder / "text").write_text("a b c ab\nabc\nc a\nb\na a\n")
    (folder / "c.spm").write_bytes(characters("abcdefghijklmnopqrstuvwxyz-").serialized)
    (folder / "numbers").write_text("seven\n")
    write_lattice(folder / "1.fst", [((3,), 0.5)])
    write_trace(folder / "trace")
    write_corpus(folder / "whole", (20, 20), (0, 1), failing=False)
    write_checkpoint(folder / "model")
    write_checkpoint(folder / "model2", seed=2)
    write_checkpoint(folder / "model3", source="stu", target="stu", model="transformer", options={"width": 8})
    for _, written in CASES.values():
        if "/" not in written:
            (folder / written).write_bytes(OLD)
    calls = [(call.split(), written) for call, written in CASES.values()]
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.whole_file_runs"], input=json.dumps(calls), capture_output=True,
        text=True, cwd=folder, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shutil.rmtree(folder)
    return dict(zip(CASES, json.loads(done.stdout), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{' '.join(case[0])} {case[1]}")
def test_a_file_is_written_beside_its_place_or_not_at_all(case: Any, runs: dict[Any, Any]) -> None:
    killed, full, watched = runs[case]
    status, said, kept = killed
    assert status == -signal.SIGKILL and kept, said
    status, said, kept, left = full
    assert status == 1 and kept and left == [], said
    assert any(line.startswith("Error: ") for line in said.splitlines())
    assert "Traceback" not in said or case[0] == ("train",)  # TensorBoard's own thread has its own words
    status, said, opened, left = watched
    assert status == 0 and left == [], said
    assert opened and [path for path in opened if ".partial" not in path and not path.startswith(GROWING)] == []
