#!/usr/bin/env bash
# Marian's recipe (Junczys-Dowmunt et al. 2018, section 3.1.3) on a small scale, whole: back-translation, left-to-right
# models, their ensemble's 12-best lists, and rescoring by right-to-left models; BLEU after each step.
#
#   recipe.sh DATA WORK [STEP...]
#
# DATA holds {train,val,test_2016_flickr}.{en,de}.gz (Multi30k). The first half of the training pairs is the parallel
# text; of the second half only the German side is used, as the monolingual text. WORK receives everything that is
# made. Without STEPs all run, in this order: texts tokenizer reverse back left right single ensemble rescore.
set -euo pipefail

data=${1:?usage: recipe.sh DATA WORK [STEP...]}
work=${2:?usage: recipe.sh DATA WORK [STEP...]}
shift 2
steps=${*:-texts tokenizer reverse back left right single ensemble rescore}
epochs=${EPOCHS:-6}
lefts=${LEFTS-1 2 3 4}
rights=${RIGHTS:-1 2 3 4}
threads=${THREADS:-2}
export OMP_NUM_THREADS=$threads
mkdir -p "$work"

test_in=$data/test_2016_flickr.en.gz
test_ref=$work/test.de
gunzip -c "$data/test_2016_flickr.de.gz" > "$test_ref"

say() { printf '\n== %s\n' "$*"; }
run() { printf '+ %s\n' "$*" >&2; "$@"; }
bleu() { run sgdec evaluate --reference "$test_ref" "$1"; }
# The first entry of each sentence's list.
first() { awk -F ' [|][|][|] ' '$1 != sentence { print $2; sentence = $1 }' "$1"; }

# LSTMs with attention, the quickest to train of the families here. Marian's recipe has deep ones, of any kind.
train_model() { # FOLDER SOURCE TARGET VALID_SOURCE VALID_TARGET OPTION...
    folder=$1 source=$2 target=$3 valid_source=$4 valid_target=$5
    shift 5
    if [ -e "$work/$folder/trained" ]; then return; fi
    resume=""
    if [ -e "$work/$folder/last" ]; then resume=--resume; fi
    run sgdec train $resume --model luong --train "$source" "$target" --valid "$valid_source" "$valid_target" \
        --tokenizer "$work/tok.spm" --output "$work/$folder" --threads "$threads" --epochs "$epochs" \
        --lr 0.002 --beta2 0.98 --cooldown 0.6 --label-smoothing 0.1 --batch-tokens 1024 --unigram-bias true \
        --luong.layers 2 --luong.width 192 --luong.init 0.2 --luong.dropout 0.2 --luong.tied all "$@"
    touch "$work/$folder/trained"
}

# The predictors nmt, nmt2, ... for the models left.1, left.2, ..., of equal weights.
ensemble() {
    count=$#
    list=nmt options="" n=1
    for seed in "$@"; do
        name=nmt
        if [ $n -gt 1 ]; then name=nmt$n list=$list,nmt; fi
        options="$options --$name.model $work/left.$seed/best --$name.weight $(awk "BEGIN {print 1 / $count}")"
        n=$((n + 1))
    done
    echo "--predictors $list $options"
}

search="--decoder beam --beam.size 12 --beam.stop full --beam.alpha 0.6"

for step in $steps; do
    say "$step"
    case $step in
    texts) # half of the pairs; of the other half one side
        for side in en de; do
            gunzip -c "$data/train.$side.gz" > "$work/all.$side"
            half=$(($(wc -l < "$work/all.$side") / 2))
            head -n $half "$work/all.$side" > "$work/parallel.$side"
        done
        tail -n +$((half + 1)) "$work/all.de" > "$work/monolingual.de"
        wc -l "$work/parallel.en" "$work/monolingual.de"
        ;;
    tokenizer)
        run sgdec tokenizer --input "$work/parallel.en" --input "$work/parallel.de" --input "$work/monolingual.de" \
            --output "$work/tok.spm" --vocab-size 4000 --kind bpe
        ;;
    reverse) # German to English
        train_model reverse "$work/parallel.de" "$work/parallel.en" "$data/val.de.gz" "$data/val.en.gz"
        ;;
    back) # the monolingual text with its translation as a source, after the parallel text, twice
        run sgdec decode --predictors nmt --nmt.model "$work/reverse/best" --decoder beam --beam.size 4 \
            --beam.alpha 0.6 --threads "$threads" --output "$work/synthetic.en" "$work/monolingual.de"
        cat "$work/parallel.en" "$work/parallel.en" "$work/synthetic.en" > "$work/train.en"
        cat "$work/parallel.de" "$work/parallel.de" "$work/monolingual.de" > "$work/train.de"
        ;;
    left) # without the synthetic text, and with it, from several seeds
        train_model parallel "$work/parallel.en" "$work/parallel.de" "$data/val.en.gz" "$data/val.de.gz"
        for seed in $lefts; do
            train_model "left.$seed" "$work/train.en" "$work/train.de" "$data/val.en.gz" "$data/val.de.gz" \
                --seed "$seed"
        done
        ;;
    right) # targets from their end to their start
        for seed in $rights; do
            train_model "right.$seed" "$work/train.en" "$work/train.de" "$data/val.en.gz" "$data/val.de.gz" \
                --seed "$seed" --right-left true
        done
        ;;
    single)
        for model in parallel left.1; do
            run sgdec decode --predictors nmt --nmt.model "$work/$model/best" $search --threads "$threads" \
                --output "$work/$model.de" "$test_in"
            bleu "$work/$model.de"
        done
        ;;
    ensemble)
        run sgdec decode $(ensemble $lefts) $search --nbest 12 --threads "$threads" --output-format nbest \
            --output "$work/ensemble.nbest" "$test_in"
        first "$work/ensemble.nbest" > "$work/ensemble.de"
        bleu "$work/ensemble.de"
        ;;
    rescore) # one model after the other: each adds its score to the list's total, and their sum is ranked
        before=$work/ensemble.nbest
        weight=$(echo "$lefts" | wc -w) # the list has the mean of the left-to-right models: all are to count the same
        for seed in $rights; do
            run sgdec score --predictors nmt --nmt.model "$work/right.$seed/best" --alpha 0.6 --nbest-list \
                --old-weight "$weight" --threads "$threads" --output "$work/rescored.$seed.nbest" "$test_in" "$before"
            first "$work/rescored.$seed.nbest" > "$work/rescored.$seed.de"
            bleu "$work/rescored.$seed.de"
            before=$work/rescored.$seed.nbest weight=1
        done
        ;;
    *)
        echo "no step named '$step'" >&2
        exit 2
        ;;
    esac
done
