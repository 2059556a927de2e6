#!/bin/sh
# Trains and evaluates the parsers of this folder: sh recipes/parsing/make.sh DATA OUT [DEVICE] [MODEL ...]
#
# DATA      a folder with {craft,gum}.{train,dev,test}.txt.xz and, for semi, plain.txt: English text, one sentence a line
# OUT       the folder of the runs, the parsed text and results.txt
# DEVICE    auto, cuda, cuda:1, cpu ...
# SETS      environment variable: further options of transduce train, e.g. "--set train.bpe_dropout=0"
# MODEL     small, large, gru or semi, which needs large; default: small large gru, and semi if DATA has plain.txt
set -e
data=$1 out=$2 device=${3:-auto}
[ -n "$out" ] || { echo "usage: sh recipes/parsing/make.sh DATA OUT [DEVICE] [MODEL ...]" >&2; exit 2; }
recipes=$(dirname "$0")
shift $(($# < 3 ? $# : 3))
models=$*
if [ -z "$models" ]; then
  models="small large gru"
  [ ! -e "$data/plain.txt" ] || models="$models semi"
fi
gold="--train $data/craft.train.txt.xz --train $data/gum.train.txt.xz"
mkdir -p "$out"

for model in $models; do
  text=$gold
  if [ $model = semi ]; then
    silver=$out/silver.txt
    [ -e "$silver" ] || transduce parse -m "$out/large" --device $device --beam 1 "$data/plain.txt" -o "$silver"
    text="$gold $gold $gold $gold --train $silver"
  fi
  transduce train "$recipes/$model.toml" $text --valid "$data/craft.dev.txt.xz" --valid "$data/gum.dev.txt.xz" \
    --set train.device=$device $SETS --out "$out/$model"
  for corpus in craft gum; do
    echo "$model $corpus.test" | tee -a "$out/results.txt"
    transduce evaluate -m "$out/$model" --device $device --test "$data/$corpus.test.txt.xz" \
      -o "$out/$model.$corpus.parsed.txt" | tee -a "$out/results.txt"
  done
done
