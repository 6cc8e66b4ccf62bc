#!/usr/bin/env bash
# Constraints: what beams miss of the best output that a regex, a schema, a list or phrases allow, and what it costs.
#
#   recipe.sh WORK [STEP...]
#
# WORK receives everything that is made. Steps: data train search tables. Each step prints its commands.
set -euo pipefail

work=${1:?usage: recipe.sh WORK [STEP...]}
shift
steps=${*:-data train search tables}
tasks=${TASKS:-dates records entities terms} pairs=${PAIRS:-6000} tests=${TESTS:-100} words=${WORDS:-10} updates=${UPDATES:-250} width=${WIDTH:-96}
beams=${BEAMS:-1 2 5 10} budget=${BUDGET:-5000} rounds=${ROUNDS:-3}
export OMP_NUM_THREADS=1
declare -A sizes=([terms]=$words) kinds=([terms]=word)
here=$(cd "$(dirname "$0")" && pwd)

run() { printf '+ %s\n' "$*" >&2; "$@"; }

for step in $steps; do
    printf '\n== %s\n' "$step"
    case $step in
    data)
        for task in $tasks; do
            run python "$here/$task.py" "$work/$task" "$pairs" "$tests" ${sizes[$task]:-}
            for side in source target; do
                run sgdec tokenizer --kind "${kinds[$task]:-bpe}" --vocab-size 150 --normalization identity \
                    --input "$work/$task/train.$side" --output "$work/$task/$side.spm"
            done
        done
        ;;
    train)
        for task in $tasks; do
            folder=$work/$task
            run sgdec train --model shallow --train "$folder/train.source" "$folder/train.target" \
                --valid "$folder/valid.source" "$folder/valid.target" \
                --tokenizer "$folder/source.spm" --tokenizer "$folder/target.spm" --output "$folder/run" --threads 1 \
                --max-steps "$updates" --epochs 99 --lr 0.005 --beta2 0.98 --cooldown 0.5 --label-smoothing 0 --bleu 0 \
                --shallow.width "$width" --shallow.embedding 64
        done
        ;;
    search)
        for task in $tasks; do
            run python "$here/search.py" "$work/$task" --beams $beams --budget "$budget" --rounds "$rounds"
        done
        ;;
    tables) run python "$here/tables.py" "$work" ;;
    *) echo "no step named '$step'" >&2; exit 2 ;;
    esac
done
