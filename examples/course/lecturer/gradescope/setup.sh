#!/usr/bin/env bash
# Installs the grader. Gradescope runs this as root, once, when it builds the image.
set -euo pipefail
root=${AUTOGRADER_ROOT:-/autograder}
source=$root/source
chmod 700 "$source"    # the seed and the hidden checks are for root only
chmod 755 "$source/run_autograder"

if [ -n "${AUTOGRADER_PYTHON:-}" ]; then
    exit 0    # an interpreter that has sgdec already
fi

find_python() {
    for candidate in python3.14 python3.13 python3.12 python3.11 python3; do
        if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

if ! python=$(find_python); then
    apt-get update
    apt-get install -y python3-venv
    if ! python=$(find_python); then
        apt-get install -y python3.11 python3.11-venv
        python=python3.11
    fi
fi
"$python" -m venv "$root/python"
if [ -d "$source/wheels" ]; then
    "$root/python/bin/python" -m pip install --no-index --find-links "$source/wheels" sgdec
else
    "$root/python/bin/python" -m pip install -r "$source/requirements.txt"
fi
