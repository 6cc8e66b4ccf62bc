#!/usr/bin/env bash
# What a stranger does first, from a clone of the last commit, in fresh environments and with an empty HOME:
#
#     bash .github/first_use.sh [PYTHON...]
#
# Each PYTHON is the name of a command; by default one that is too old, the oldest that works, and a newer one. One
# that is missing is skipped, with CI=true a failure. pip gets the package index from the variables PIP_..., and nothing
# else of the caller's environment is used. Each Python takes a quarter of an hour, and 4 GB in the temporary folder.
set -euo pipefail

MOST_MEGABYTES=1300 # of .venv after make demo
LONGEST_SILENCE=10  # seconds, while it is installed

[ $# -gt 0 ] || set -- python3.10 python3.11 python3.13
if [ -z "${FIRST_USE:-}" ]; then
    root="$(cd "$(dirname "$0")/.." && pwd)"
    work="$(mktemp -d)"
    trap 'rm -rf "$work"' EXIT
    mkdir "$work/home"
    git clone -q "$root" "$work/clone"
    cd "$work/clone"
    mapfile -t kept < <(env | grep -E '^(PIP_|CI=|LD_LIBRARY_PATH=)' || true)
    env -i FIRST_USE="$work" PATH="$PATH" HOME="$work/home" LANG=C.UTF-8 PIP_CACHE_DIR="$work/cache" "${kept[@]}" \
        bash .github/first_use.sh "$@"
    exit
fi

work="$FIRST_USE"
mkdir "$work/elsewhere"

begin() { printf '\n== %s, %s\n' "$python" "$1"; }

fail() {
    echo "FAILED: $1" >&2
    exit 1
}

heard() { # passes lines on, and fails after a silence
    local line status=0
    while IFS= read -r -t "$LONGEST_SILENCE" line || status=$?; [ "$status" -eq 0 ]; do
        printf '%s\n' "$line"
    done
    [ "$status" -le 128 ] || fail "silent for $LONGEST_SILENCE s"
}

too_old() {
    begin "too old: make and pip say so in one line, and what they leave behind does no harm"
    ! make demo PYTHON="$python" >"$work/out" 2>&1 || fail "make demo installs"
    cat "$work/out"
    [ "$(grep -vc '^make' "$work/out")" = 1 ] && grep -q 'Python 3.11 or newer' "$work/out" || fail "not one line"
    [ ! -e .venv ] || fail "there is a .venv"
    "$python" -m venv .venv
    ! .venv/bin/python -m pip install . >"$work/out" 2>&1 || fail "pip installs"
    grep 'requires a different Python' "$work/out" || fail "pip gives another reason"
}

demo() {
    begin "make demo"
    TIMEFORMAT='installed in %R s, %U s + %S s of CPU'
    time "$python" install.py demo 2>&1 | heard
    make demo PYTHON="$python" | tee "$work/demo.txt"
    local size
    size="$(du -sm .venv | cut -f 1)"
    echo "$size MB in .venv"
    [ "$size" -le "$MOST_MEGABYTES" ] || fail "more than $MOST_MEGABYTES MB"
    [ "$("$python" -V)" = "$(.venv/bin/python -V)" ] || fail ".venv has another Python"
}

readme() {
    begin "README and the first hour, block by block, with what make demo installs"
    cp -r demo "$work/elsewhere"
    (
        . .venv/bin/activate
        cd "$work/elsewhere"
        for page in README.md docs/tutorial/first-hour.md; do
            python "$work/clone/tests/helpers/documentation.py" "$work/clone/$page" "$work/demo.txt"
        done
    )
}

plugin() {
    begin "a plugin of one's own, installed as new-plugin says, and the example"
    "$python" -m venv "$work/plugin"
    .venv/bin/python -m pip wheel -q --no-deps --wheel-dir "$work/dist" .
    (
        . "$work/plugin/bin/activate"
        export PIP_QUIET=1
        cd "$work/elsewhere"
        pip install "$work"/dist/*.whl
        sgdec new-plugin mine | tee commands
        sed -n 's/^    //p' commands | bash -e
        pip install "$work/clone/examples/plugin"
        sgdec plugins repeat
    )
}

core() {
    begin "each command and plugin without extras; the command of an error helps"
    "$python" -m venv "$work/core"
    "$work/core/bin/python" -m pip install -q "$work"/dist/*.whl
    SGDEC_EXHAUSTIVE=1 .venv/bin/python -m tests.helpers.natural_calls "$work/core/bin/python"
    (
        . "$work/core/bin/activate"
        export PIP_QUIET=1
        cd "$work/elsewhere"
        echo "a word" >text
        ! sgdec evaluate --reference text text 2>error || fail "evaluate needs no extra"
        grep -o 'pip install "[^"]*"' error | tee command
        bash -e command
        sgdec evaluate --reference text text
    )
}

background() {
    begin "in the background: the tests that depend on terminals, signals and temporary folders"
    make install
    mkdir -p "$work/a-temporary-folder-with-a-long-name"
    TMPDIR="$work/a-temporary-folder-with-a-long-name" OMP_NUM_THREADS=1 \
        .venv/bin/python -m pytest -q -n 2 --dist loadfile -m background tests >"$work/out" 2>&1 &
    wait $! || { tail -n 100 "$work/out"; fail "tests"; }
    tail -n 1 "$work/out"
}

for python; do
    if ! "$python" -c "" 2>/dev/null; then
        [ "${CI:-}" != true ] || fail "no $python"
        printf '\n== %s is missing: skipped\n' "$python"
    elif "$python" -c "import sys; sys.exit(sys.version_info >= (3, 11))"; then
        too_old
    else
        demo
        readme
        plugin
        core
        background
        rm -rf "$work"/{plugin,core,dist,elsewhere/*}
    fi
done
