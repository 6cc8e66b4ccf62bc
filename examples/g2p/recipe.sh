#!/usr/bin/env bash
# Search errors of greedy and beam search with a trained model of pronunciation, which exact search finds and proves.
#
#   recipe.sh WORK [STEP...]
#
# WORK receives everything that is made. Steps: words search errors accuracy. Each step prints its commands.
set -euo pipefail

work=${1:?usage: recipe.sh WORK [STEP...]}
shift
steps=${*:-words search errors accuracy}
here=$(cd "$(dirname "$0")" && pwd)
words=${WORDS:-$here/words} beams=${BEAMS:-2 3 5 10}
mkdir -p "$work"

run() { printf '+ %s\n' "$*" >&2; "$@"; }

# search NAME LIMIT OPTIONS... searches all words and keeps the last lines of the run, which have its speed
search() {
    name=$work/search/$1 limit=$2
    shift 2
    printf '+ sgdec decode ... --max-length %s %s\n' "$limit" "$*" >&2
    sgdec decode --plugin-file "$here/g2p.py" --predictors g2p --precision fp64 --max-length "$limit" "$@" \
        --output-format jsonl --output "$name.jsonl" --overwrite "$work/words.txt" 2>"$name.log" || { cat "$name.log" >&2; exit 1; }
}

for step in $steps; do
    printf '\n== %s\n' "$step"
    case $step in
    words) cat "$words"/*.txt >"$work/words.txt" ;;
    search)
        mkdir -p "$work/search"
        search greedy 20 --decoder greedy
        for beam in $beams; do
            search "beam.$beam" 20 --decoder beam --beam.size "$beam"
        done
        search dfs 20 --decoder dfs
        search astar 20 --decoder astar
        search any-length 0 --decoder astar # no limit on the length of an output
        printf '+ sgdec score ... words.txt empty.txt\n' >&2
        sed 's/.*//' "$work/words.txt" >"$work/empty.txt"
        sgdec score --plugin-file "$here/g2p.py" --predictors g2p --precision fp64 \
            --output-format jsonl --output "$work/search/empty.jsonl" --overwrite "$work/words.txt" "$work/empty.txt"
        ;;
    errors) run python "$here/search_errors.py" "$work" --words "$words" --beams $beams ;;
    accuracy) run python "$here/accuracy.py" ;;
    *) echo "no step named '$step'" >&2; exit 2 ;;
    esac
done
