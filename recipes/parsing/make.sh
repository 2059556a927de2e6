#!/bin/sh
# Trains and evaluates the parsers of this folder: sh recipes/parsing/make.sh DATA OUT [DEVICE] [MODEL ...]
#
# DATA      a folder with {craft,gum}.{train,dev,test}.txt.xz
# OUT       the folder for the runs, the parsed text and results.txt
# DEVICE    auto (default), cuda, cuda:1, cpu ...
# MODEL     small, large, gru or semi, which needs small; default: all of them, semi only if there is plain text
#
# Environment: PAIRS is a file of pairs whose first side is English, for semi (default: DATA/../europarl/
# train.en-de.part1.tsv.xz); SETS has further options of transduce train, e.g. "--set train.bpe_dropout=0"; TRANSDUCE
# and PYTHON are the commands to run (default: transduce and python).
set -e
[ $# -ge 2 ] || { echo "usage: sh recipes/parsing/make.sh DATA OUT [DEVICE] [MODEL ...]" >&2; exit 2; }
data=$1 out=$2 device=${3:-auto}
shift $(($# < 3 ? $# : 3))
recipes=$(dirname "$0")
transduce=${TRANSDUCE:-transduce}
pairs=${PAIRS:-$data/../europarl/train.en-de.part1.tsv.xz}
models=${*:-small large gru$([ ! -e "$pairs" ] || echo " semi")}
gold="--train $data/craft.train.txt.xz --train $data/gum.train.txt.xz"
mkdir -p "$out"

for model in $models; do
  text=$gold
  if [ "$model" = semi ]; then
    if [ ! -e "$out/silver.txt" ]; then
      ${PYTHON:-python} "$recipes/plain_text.py" "$pairs" "$out/plain.txt" "${SENTENCES:-100000}"
      $transduce parse -m "$out/small" --device "$device" --beam 1 "$out/plain.txt" -o "$out/silver.txt"
    fi
    text="$gold $gold $gold --train $out/silver.txt"
  fi
  $transduce train "$recipes/$model.toml" $text --valid "$data/craft.dev.txt.xz" --valid "$data/gum.dev.txt.xz" \
    --set train.device="$device" $SETS --out "$out/$model"
  for corpus in craft gum; do
    echo "$model $corpus.test" | tee -a "$out/results.txt"
    $transduce evaluate -m "$out/$model" --device "$device" --test "$data/$corpus.test.txt.xz" \
      -o "$out/$model.$corpus.parsed.txt" | tee -a "$out/results.txt"
  done
done
