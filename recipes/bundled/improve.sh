#!/bin/sh
# Trains the model of make.sh further: sh recipes/bundled/improve.sh german|french|debates|train|finish|all
#
# german    the student translates English and German sentences, for training in the opposite direction
# french    OPUS-MT translates the same English sentences
# debates   OPUS-MT translates English sentences of Europarl
# train     final.toml
# finish    8 bits, calibrated confidence: runs/bundled
set -e
start=${START:-runs/bundled-student} opus=${OPUS:-data/opus/en-fr} out=data/bundled jobs=${JOBS:-4}
python=${PYTHON:-python} search=${SEARCH:---beam 4}
transduce() { $python -m transduce "$@"; }

# translate MODEL INPUT OUTPUT [--to xx], in several processes, since one does not keep a GPU busy.
translate() {
  model=$1 input=$2 output=$3; shift 3
  pids=
  for i in $(seq "$jobs"); do
    transduce translate -m "$model" --no-protect $search --shard "$i/$jobs" "$@" "$input" -o "$output.$i" &
    pids="$pids $!"
  done
  for pid in $pids; do wait "$pid"; done
  for i in $(seq "$jobs"); do cat "$output.$i"; rm "$output.$i"; done > "$output"
}

german() {
  translate "$start" $out/mono.de $out/mono.de.en --to en
  translate "$start" $out/mono.en $out/mono.en.de --to de
  $python recipes/bundled/synthetic.py $out/human-de.en-de.tsv $out/mono.de.en $out/mono.de
  $python recipes/bundled/synthetic.py $out/human-en.en-de.tsv $out/mono.en $out/mono.en.de
}

french() {
  translate "$opus" $out/mono.en $out/mono.en.fr
}

debates() {
  cut -f 1 $out/europarl.en-de.tsv | head -n "${DEBATES:-300000}" > $out/europarl.en
  translate "$opus" $out/europarl.en $out/europarl.en.fr
}

train() {
  $python recipes/bundled/synthetic.py $out/synthetic.en-fr.tsv $out/mono.en $out/mono.en.fr $out/europarl.en $out/europarl.en.fr
  for _ in 1 2 3 4 5 6 7 8; do cut -f 1,2 recipes/bundled/phrases.tsv; done > $out/phrases.en-de.tsv
  for _ in 1 2 3 4 5 6 7 8; do cut -f 1,3 recipes/bundled/phrases.tsv; done > $out/phrases.en-fr.tsv
  transduce train recipes/bundled/final.toml --out runs/bundled-final --set train.start_from="$start" $TRAIN
}

finish() {
  transduce shrink -m runs/bundled-final --out runs/bundled
  calibrate() { transduce calibrate -m runs/bundled --engine native "$@"; }
  calibrate --test data/tatoeba/valid.en-de.tsv.xz --to de
  calibrate --test data/tatoeba/valid.en-fr.tsv.xz --to fr
  calibrate --test data/tatoeba/valid.en-de.tsv.xz --test data/tatoeba/valid.en-fr.tsv.xz --to en --reverse
  $python -c 'from pathlib import Path; from transduce.models.folder import write_fact; write_fact(Path("runs/bundled"), "default_to", "de")'
}

if [ "$1" = all ]; then german; french; debates; train; finish; else "$1"; fi
