#!/usr/bin/env bash
# Post-editing of German captions with and without their English originals: `multi-source` and `hard-attention` on
# Multi30k whose German was made worse (corrupt.py).
#
#   recipe.sh DATA WORK [MODEL...]
#
# DATA holds {train,val,test_2016_flickr}.{en,de}.gz; WORK receives everything that is made. MODELs: two (English and
# worse German), two-hard (likewise, with hard attention to the German), one (worse German, soft attention), hard, both
# (hard and soft).
set -euo pipefail

data=${1:?usage: recipe.sh DATA WORK [MODEL...]}
work=${2:?usage: recipe.sh DATA WORK [MODEL...]}
shift 2
pairs=${PAIRS:-29000} size=${SIZE:-256} pieces=${PIECES:-8000} epochs=${EPOCHS:-4} threads=${THREADS:-2} sentences=${SENTENCES:-1000}
export OMP_NUM_THREADS=$threads
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$work"

run() { printf '+ %s\n' "$*" >&2; "$@"; }

for part in train val test_2016_flickr; do
    count=$([ $part = train ] && echo "$pairs" || echo "$sentences")
    for side in en de; do
        gunzip -c "$data/$part.$side.gz" | sed -n "1,${count}p" > "$work/$part.$side"
    done
    python "$here/corrupt.py" < "$work/$part.de" > "$work/$part.worse"
done
[ -e "$work/tok.spm" ] || run sgdec tokenizer --vocab-size "$pieces" --output "$work/tok.spm" \
    --input "$work/train.en" --input "$work/train.de"

# train_and_test NAME MODEL "SOURCES" TIED OPTIONS... (targets with steps have a vocabulary of their own)
train_and_test() {
    name=$1 model=$2 sources=$3 tied=$4
    shift 4
    texts() { for side in $sources de; do echo "$work/$1.$side"; done; }
    run sgdec train --model "$model" --train $(texts train) --valid $(texts val) --tokenizer "$work/tok.spm" \
        --output "$work/$name" --threads "$threads" --epochs "$epochs" --lr 0.001 --beta2 0.98 --cooldown 0.6 \
        --unigram-bias true --bleu 200 "--$model.width" "$size" "--$model.embedding" "$size" \
        "--$model.dropout" 0.1 "--$model.tied" "$tied" "$@"
    run sgdec decode --predictors nmt --nmt.model "$work/$name/best" --decoder beam --beam.size 5 --beam.stop full \
        --beam.alpha 0.6 --max-length-factor 3 --threads "$threads" --output "$work/$name.de" \
        $(for side in $sources; do echo "$work/test_2016_flickr.$side"; done)
    run sgdec evaluate --reference "$work/test_2016_flickr.de" "$work/$name.de"
}

run sgdec evaluate --reference "$work/test_2016_flickr.de" "$work/test_2016_flickr.worse"
for name in ${*:-two two-hard one hard both}; do
    case $name in
    two) train_and_test two multi-source "en worse" all ;;
    two-hard) train_and_test two-hard multi-source-hard "en worse" target ;;
    one) train_and_test one shallow worse all ;;
    hard) train_and_test hard hard-attention worse target ;;
    both) train_and_test both hard-attention worse target --hard-attention.soft true ;;
    *) echo "no model '$name'; expected two, two-hard, one, hard, both" >&2; exit 2 ;;
    esac
done
