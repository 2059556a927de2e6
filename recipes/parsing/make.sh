#!/bin/sh
# Trains and evaluates the parsers of this folder: sh recipes/parsing/make.sh DATA OUT [DEVICE] [MODEL ...]
#
# DATA      a folder with {craft,gum}.{train,dev,test}.txt.xz
# OUT       the folder for the runs, the parsed text and results.txt
# DEVICE    auto (default), cuda, cuda:1, cpu ...
# MODEL     small, large, gru, ensemble (small and six variants of it) or semi; the last two need small. Default: all of
#           them, semi only if there is plain text
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
models=${*:-small ensemble large gru$([ ! -e "$pairs" ] || echo " semi")}
gold="--train $data/craft.train.txt.xz --train $data/gum.train.txt.xz"
valid="--valid $data/craft.dev.txt.xz --valid $data/gum.dev.txt.xz --set train.device=$device"
mkdir -p "$out"

# evaluate NAME MODEL-OPTIONS: scores a model or an ensemble on both test sets.
evaluate() {
  name=$1
  shift
  for corpus in craft gum; do
    echo "$name $corpus.test" | tee -a "$out/results.txt"
    $transduce evaluate "$@" --device "$device" --test "$data/$corpus.test.txt.xz" -o "$out/$name.$corpus.parsed.txt" \
      | tee -a "$out/results.txt"
  done
}

# member SEED [OPTIONS OF TRAIN]: trains a variant of small for the ensemble.
member() {
  seed=$1
  shift
  $transduce train "$recipes/small.toml" $gold $valid --set train.seed="$seed" "$@" $SETS --out "$out/member-$seed"
  members="$members -m $out/member-$seed"
}

for model in $models; do
  text=$gold
  if [ "$model" = ensemble ]; then
    members="-m $out/small"
    member 2
    member 3 --set model.encoder_layers=8
    member 4 --set model.encoder_layers=6 --set model.decoder_layers=6
    member 5
    member 6 --set model.encoder_layers=6
    member 7 --set model.decoder_layers=6
    evaluate ensemble $members --ensemble --mbr
    continue
  fi
  if [ "$model" = semi ]; then
    if [ ! -e "$out/silver.txt" ]; then
      ${PYTHON:-python} "$recipes/plain_text.py" "$pairs" "$out/plain.txt" "${SENTENCES:-100000}"
      $transduce parse -m "$out/small" --device "$device" --beam 1 "$out/plain.txt" -o "$out/silver.txt"
    fi
    text="$gold $gold $gold --train $out/silver.txt"
  fi
  $transduce train "$recipes/$model.toml" $text $valid $SETS --out "$out/$model"
  evaluate "$model" -m "$out/$model"
done
