#!/usr/bin/env bash
# Multi30k English-German from raw text to mixtures of all kinds: language models, lattices, ensembles, n-gram
# posteriors, and models over characters, words and pieces together.
#
#   recipe.sh DATA WORK [STEP...]
#
# DATA holds {train,val,test_2016_flickr}.{en,de}.gz; WORK receives everything that is made. Without STEPs all run, in
# this order: tokenizer train beam lm fusion second lattices rescore ensemble longer constrained wide models posteriors
# three levels families reward. Each step prints its commands.
set -euo pipefail

data=${1:?usage: recipe.sh DATA WORK [STEP...]}
work=${2:?usage: recipe.sh DATA WORK [STEP...]}
shift 2
steps=${*:-tokenizer train beam lm fusion second lattices rescore ensemble longer constrained wide models posteriors three levels families reward}
epochs=${EPOCHS:-4.2}
longer=${LONGER:-7 10}
threads=${THREADS:-2}
export OMP_NUM_THREADS=$threads
mkdir -p "$work"

test_in=$data/test_2016_flickr.en.gz
test_ref=$work/test.de
val_ref=$work/val.de
gunzip -c "$data/test_2016_flickr.de.gz" > "$test_ref"
gunzip -c "$data/val.de.gz" > "$val_ref"

say() { printf '\n== %s\n' "$*"; }
run() { printf '+ %s\n' "$*" >&2; "$@"; }
bleu() { run sgdec evaluate --reference "$1" "$2"; }
search="--decoder beam --beam.size 5 --beam.stop full --beam.alpha 0.6 --beam.beta 0.2"

# A model of 2+2 layers; the vocabulary is shared.
train_model() {
    output=$work/$1
    shift
    run sgdec train --train "$data/train.en.gz" "$data/train.de.gz" --valid "$data/val.en.gz" "$data/val.de.gz" \
        --tokenizer "$work/${pieces:-tok.spm}" --output "$output" --threads "$threads" \
        --lr 0.002 --beta2 0.98 --cooldown 0.6 --label-smoothing 0.1 --batch-tokens 1024 --unigram-bias true \
        --gnmt.layers 2 --gnmt.width "${width:-512}" --gnmt.init 0.2 --gnmt.normed true "$@"
}

# What each language model is, and how long it is trained.
lm_options() {
    case $1 in
    rnnlm) echo --epochs 1 --lr 0.004 --rnnlm.layers 1 --rnnlm.width 256 --rnnlm.dropout 0.2 --rnnlm.tied true ;;
    nplm)
        echo --epochs 3 --lr 0.002 --nplm.order 5 --nplm.embedding 256 --nplm.hidden 256 --nplm.output 256 \
            --nplm.dropout 0.2
        ;;
    esac
}

# What each family of models is, and how it is trained: six epochs, or as many as the peer of shallow-512.
family_options() {
    case $1 in
    gnmt) echo --model gnmt --lr 0.002 --gnmt.layers 2 --gnmt.width 256 --gnmt.dropout 0.2 --gnmt.init 0.2 --gnmt.normed true ;;
    luong) echo --model luong --lr 0.002 --luong.layers 2 --luong.width 256 --luong.dropout 0.2 --luong.init 0.2 ;;
    luong-input-feeding) echo "$(family_options luong)" --luong.input_feeding true ;;
    shallow | deep-transition)
        echo --model "$1" --lr 0.001 "--$1.width" 256 "--$1.embedding" 256 "--$1.dropout" 0.1 "--$1.source_dropout" 0.1 \
            "--$1.tied" all
        ;;
    shallow-512) echo "$(family_options shallow)" --shallow.width 512 --shallow.embedding 512 --epochs 4.2 ;;
    transformer)
        echo --model transformer --lr 0.0015 --warmup 400 --transformer.norm pre --transformer.layers 3 \
            --transformer.width 256 --transformer.heads 4 --transformer.feed_forward 1024 --transformer.dropout 0.2 \
            --transformer.tied all
        ;;
    *)
        echo "no family named '$1'" >&2
        exit 2
        ;;
    esac
}

# Decode the test set with one model, and score it.
beam() {
    run sgdec decode --predictors nmt $search --nmt.model "$work/$1/best" --threads "$threads" \
        --output "$work/$1.beam.de" "$test_in"
    bleu "$test_ref" "$work/$1.beam.de"
}

for step in $steps; do
    say "$step"
    case $step in
    tokenizer)
        run sgdec tokenizer --input "$data/train.en.gz" --input "$data/train.de.gz" --output "$work/tok.spm" \
            --vocab-size 8000 --kind bpe
        ;;
    train) train_model a --epochs "$epochs" --gnmt.dropout 0.2 ;;
    second) # one matrix for source and target embeddings and the softmax, and less dropout
        train_model b --epochs "$epochs" --gnmt.dropout 0.1 --gnmt.tied all
        beam b
        ;;
    longer) # the first model goes on, until its validation scores hardly change
        cp -r "$work/a" "$work/longer"
        for until in $longer; do
            train_model longer --resume --epochs "$until" --gnmt.dropout 0.2
            beam longer
        done
        ;;
    constrained) # a model for 8 bits: cells, sums and logits are clipped while it is trained
        train_model c --epochs "$epochs" --gnmt.dropout 0.2 --gnmt.constrained true
        beam c
        run sgdec quantize "$work/c/best" --output "$work/c.int8"
        run sgdec decode --predictors nmt $search --nmt.model "$work/c.int8" --precision int8 --threads "$threads" \
            --output "$work/c.int8.de" "$test_in"
        bleu "$test_ref" "$work/c.int8.de"
        ;;
    wide) # 32,000 pieces: a vocabulary large enough for clusters
        run sgdec tokenizer --input "$data/train.en.gz" --input "$data/train.de.gz" --output "$work/tok32.spm" \
            --vocab-size 32000 --kind bpe
        pieces=tok32.spm width=256 train_model wide --epochs "${WIDE:-3}" --gnmt.dropout 0.2
        beam wide
        ;;
    beam) beam a ;;
    lm)
        run sgdec lm --input "$data/train.de.gz" --tokenizer "$work/tok.spm" --order 5 --output "$work/lm.arpa"
        ;;
    fusion) # the weight is chosen on the validation set, then used once on the test set
        best_weight=0
        best_bleu=0
        for weight in 0 0.05 0.1 0.15 0.2; do
            run sgdec decode --predictors nmt,ngram $search --nmt.model "$work/a/best" --threads "$threads" \
                --ngram.path "$work/lm.arpa" --ngram.weight "$weight" --output "$work/val.$weight.de" "$data/val.en.gz"
            score=$(sgdec evaluate --reference "$val_ref" "$work/val.$weight.de" | awk '/BLEU/ {print $3; exit}')
            echo "weight $weight: validation BLEU $score"
            if awk "BEGIN {exit !($score > $best_bleu)}"; then best_weight=$weight best_bleu=$score; fi
        done
        run sgdec decode --predictors nmt,ngram $search --nmt.model "$work/a/best" --threads "$threads" \
            --ngram.path "$work/lm.arpa" --ngram.weight "$best_weight" --output "$work/fusion.de" "$test_in"
        bleu "$test_ref" "$work/fusion.de"
        ;;
    lattices) # the second model's 20-best, one lattice a sentence
        run sgdec decode --predictors nmt --decoder beam --beam.size 20 --beam.stop full --nbest 20 \
            --nmt.model "$work/b/best" --threads "$threads" \
            --output-format fst --output "$work/lattices/{id}.fst" "$test_in"
        ;;
    rescore)
        run sgdec decode --predictors nmt,fst $search --beam.beta 0 --nmt.model "$work/a/best" --threads "$threads" \
            --fst.path "$work/lattices/{id}.fst" --output "$work/rescored.de" "$test_in"
        bleu "$test_ref" "$work/rescored.de"
        ;;
    ensemble)
        run sgdec decode --predictors nmt,nmt $search --nmt.model "$work/a/best" --nmt.weight 0.5 \
            --nmt2.model "$work/b/best" --nmt2.weight 0.5 --threads "$threads" \
            --output "$work/ensemble.de" "$test_in"
        bleu "$test_ref" "$work/ensemble.de"
        ;;
    models) # language models of the same text, all of them beside the translation model
        for lm in rnnlm nplm; do
            run sgdec train --model $lm --train "$data/train.de.gz" --valid "$data/val.de.gz" \
                --tokenizer "$work/tok.spm" --output "$work/$lm" --threads "$threads" --batch-tokens 512 \
                --beta2 0.98 --cooldown 0.6 --label-smoothing 0 --unigram-bias true $(lm_options $lm)
        done
        run sgdec decode --predictors nmt,rnnlm,ngram,nplm $search --nmt.model "$work/a/best" \
            --rnnlm.model "$work/rnnlm/best" --rnnlm.weight 0.05 --ngram.path "$work/lm.arpa" --ngram.weight 0.05 \
            --nplm.model "$work/nplm/best" --nplm.weight 0.05 --threads "$threads" --output "$work/models.de" "$test_in"
        bleu "$test_ref" "$work/models.de"
        ;;
    posteriors) # MBR-based: the posteriors of the second model's lattices, and a bonus a token
        run sgdec ngrams "$work/lattices/{id}.fst" --order 4 --output "$work/ngrams/{id}.txt"
        run sgdec decode --predictors nmt,ngramc,wc $search --nmt.model "$work/a/best" \
            --ngramc.path "$work/ngrams/{id}.txt" --ngramc.weight 0.3 --wc.weight -0.15 --threads "$threads" \
            --output "$work/posteriors.de" "$test_in"
        bleu "$test_ref" "$work/posteriors.de"
        ;;
    three) # an ensemble
        run sgdec decode --predictors nmt,nmt,nmt $search --nmt.model "$work/a/best" --nmt.weight 0.333 \
            --nmt2.model "$work/b/best" --nmt2.weight 0.333 --nmt3.model "$work/c/best" --nmt3.weight 0.333 \
            --threads "$threads" --output "$work/three.de" "$test_in"
        bleu "$test_ref" "$work/three.de"
        ;;
    levels) # models over characters, words and pieces decode together, character by character
        for kind in char word; do
            run sgdec tokenizer --input "$data/train.en.gz" --input "$data/train.de.gz" --output "$work/$kind.voc" \
                --kind $kind --vocab-size 16000
        done
        pieces=char.voc width=128 train_model char --epochs 3.5 --gnmt.dropout 0 --batch-tokens 3000 --max-line 120
        pieces=word.voc width=256 train_model word --epochs 5 --gnmt.dropout 0.2
        for to in word.voc tok.spm; do
            run sgdec transducer --from "$work/char.voc" --to "$work/$to" --text "$data/train.de.gz" \
                --eager --unlisted forbid --output "$work/char-$to.fst"
        done
        for model in char word a; do
            run sgdec decode --predictors nmt --decoder beam --beam.size 4 --beam.stop full --beam.alpha 0.6 \
                --nmt.model "$work/$model/best" --threads "$threads" --output "$work/level.$model.de" "$test_in"
            bleu "$test_ref" "$work/level.$model.de"
        done
        run sgdec decode --predictors nmt,fsttok:nmt,fsttok:nmt --decoder beam --beam.size 4 --beam.stop full \
            --beam.alpha 0.6 --nmt.model "$work/char/best" --nmt.weight 0.02 \
            --fsttok.path "$work/char-word.voc.fst" --nmt2.model "$work/word/best" --fsttok.weight 0.02 \
            --fsttok2.path "$work/char-tok.spm.fst" --nmt3.model "$work/a/best" \
            --threads "$threads" --output "$work/levels.de" "$test_in"
        bleu "$test_ref" "$work/levels.de"
        ;;
    families) # every family of translation models, in a small size
        for family in ${FAMILIES:-gnmt luong luong-input-feeding shallow shallow-512 deep-transition transformer}; do
            options=$(family_options "$family")
            run sgdec train --train "$data/train.en.gz" "$data/train.de.gz" \
                --valid "$data/val.en.gz" "$data/val.de.gz" --tokenizer "$work/tok.spm" --output "$work/$family" \
                --threads "$threads" --epochs 6 --beta2 0.98 --cooldown 0.6 --label-smoothing 0.1 --batch-tokens 1024 \
                --unigram-bias true $options
            run sgdec decode --predictors nmt --nmt.model "$work/$family/best" --decoder beam --beam.size 5 \
                --beam.stop full --beam.alpha 0.6 --threads "$threads" --output "$work/$family.de" "$test_in"
            bleu "$test_ref" "$work/$family.de"
        done
        ;;
    reward) # the model luong of the step before, refined by expected reward
        run sgdec train --model luong --start-from "$work/luong/best" --objective expected-reward \
            --train "$data/train.en.gz" "$data/train.de.gz" --valid "$data/val.en.gz" "$data/val.de.gz" \
            --tokenizer "$work/tok.spm" --output "$work/reward" --threads "$threads" --sgd-lr 3 --batch-tokens 256 \
            --accumulate 2 --ema 0.03 --max-steps 200 --validate-every 40 --metric gleu --bleu 1014
        run sgdec decode --predictors nmt --nmt.model "$work/reward/best" --decoder beam --beam.size 5 \
            --beam.stop full --beam.alpha 0.6 --threads "$threads" --output "$work/reward.de" "$test_in"
        bleu "$test_ref" "$work/reward.de"
        ;;
    *)
        echo "no step named '$step'" >&2
        exit 2
        ;;
    esac
done
