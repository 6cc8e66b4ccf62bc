#!/usr/bin/env bash
# Generative retrieval: a model writes the identifier of a product for a query, and a trie keeps it to the catalogue.
#
#   recipe.sh WORK [STEP...]
#
# WORK receives everything that is made. Steps: data train trie decode recall. Each step prints its commands.
set -euo pipefail

work=${1:?usage: recipe.sh WORK [STEP...]}
shift
steps=${*:-data train trie decode recall}
products=${PRODUCTS:-4000} queries=${QUERIES:-500} size=${SIZE:-128} epochs=${EPOCHS:-4} beams=${BEAMS:-1 10 100 300}
threads=${THREADS:-2}
export OMP_NUM_THREADS=$threads
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$work"

run() { printf '+ %s\n' "$*" >&2; "$@"; }

# decode NAME PREDICTORS BEAM OPTIONS...
decode() {
    name=$1 predictors=$2 beam=$3
    shift 3
    run sgdec decode --predictors "$predictors" --nmt.model "$work/run/best" "$@" --max-length 5 --threads "$threads" \
        --decoder beam --beam.size "$beam" --beam.stop full --nbest 100 \
        --output-format jsonl --output "$work/$name.$beam.jsonl" "$work/test.query"
}

for step in $steps; do
    printf '\n== %s\n' "$step"
    case $step in
    data)
        run python "$here/catalogue.py" "$work" "$products" "$queries"
        for side in query id; do
            run sgdec tokenizer --kind word --vocab-size 1000 --input "$work/train.$side" --output "$work/$side.voc"
        done
        ;;
    train)
        run sgdec train --model shallow --train "$work/train.query" "$work/train.id" \
            --valid "$work/valid.query" "$work/valid.id" --tokenizer "$work/query.voc" --tokenizer "$work/id.voc" \
            --output "$work/run" --threads "$threads" --epochs "$epochs" --lr 0.002 --beta2 0.98 --cooldown 0.6 \
            --label-smoothing 0 --bleu 0 --shallow.width "$size" --shallow.embedding "$size"
        ;;
    trie) run sgdec trie "$work/catalogue.tsv" --tokenizer "$work/id.voc" --output "$work/catalogue.trie" ;;
    decode)
        for beam in $beams; do
            decode free nmt "$beam"
            decode trie nmt,trie "$beam" --trie.path "$work/catalogue.trie" --trie.use_weights false
            decode weighted nmt,trie "$beam" --trie.path "$work/catalogue.trie"
        done
        ;;
    recall)
        run python "$here/recall.py" "$work/catalogue.tsv" "$work/test.id" \
            $(for name in free trie weighted; do for beam in $beams; do echo "$work/$name.$beam.jsonl"; done; done)
        ;;
    *) echo "no step named '$step'" >&2; exit 2 ;;
    esac
done
