#!/usr/bin/env bash
# Search errors: how often beam search misses the best path of lattice and language model, which A* finds and proves.
#
#   recipe.sh WORK [LATTICES [STEP...]]
#
# WORK receives everything that is made. LATTICES is a folder with 1.fst, 2.fst, ... (or .fst.gz), or "random", the default.
# Steps: lattices lm search errors. Each step prints its commands.
set -euo pipefail

work=${1:?usage: recipe.sh WORK [LATTICES [STEP...]]}
lattices=${2:-random}
shift $(($# < 2 ? $# : 2))
steps=${*:-lattices lm search errors}
beams=${BEAMS:-1 2 3 5 10 20 30 50 100} weights=${WEIGHTS:-0.3 1 3} samples=${SAMPLES:-100}
lm=${LM:-$work/lm.arpa.gz} words=${WORDS:-ids}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$work"

run() { printf '+ %s\n' "$*" >&2; "$@"; }

# search NAME OPTIONS... searches all lattices and keeps the last lines of the run, which have its speed
search() {
    name=$work/search/$kind.$weight.$1
    shift
    printf '+ sgdec decode ... --fst.path %s --ngram.weight %s %s\n' "$work/$kind/{id}.fst" "$weight" "$*" >&2
    sgdec decode --predictors fst,ngram --fst.path "$work/$kind/{id}.fst" \
        --ngram.path "$lm" --ngram.words "$words" --ngram.weight "$weight" "$@" --input-format ids --max-length 0 \
        --output-format jsonl --output "$name.jsonl" --overwrite "$work/input.ids" 2>"$name.log" || { cat "$name.log" >&2; exit 1; }
}

for step in $steps; do
    printf '\n== %s\n' "$step"
    case $step in
    lattices) run python "$here/lattices.py" "$lattices" "$work" ;;
    lm) # a trigram model of random paths, unless LM names another model
        if [ -z "${LM:-}" ]; then
            run sgdec decode --predictors fst --fst.path "$work/pushed/{id}.fst" --input-format ids --max-length 0 \
                --decoder sample --sample.samples "$samples" --nbest "$samples" \
                --output-format nbest --output "$work/samples.nbest" --overwrite "$work/input.ids"
            awk -F ' [|][|][|] ' '{ print $2 }' "$work/samples.nbest" >"$work/samples.ids"
            run sgdec lm --input "$work/samples.ids" --order 3 --discount-fallback --output "$lm"
        fi
        ;;
    search)
        mkdir -p "$work/search"
        for kind in plain pushed; do
            for weight in $weights; do
                search exact --decoder astar --astar.recombine true
                for beam in $beams; do
                    search "beam.$beam" --decoder beam --beam.size "$beam" --beam.stop full
                    search "recombined.$beam" --decoder beam --beam.size "$beam" --beam.stop full --beam.recombine true
                done
            done
        done
        ;;
    errors) run python "$here/search_errors.py" "$work" --weights $weights --beams $beams ;;
    *) echo "no step named '$step'" >&2; exit 2 ;;
    esac
done
