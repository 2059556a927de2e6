#!/bin/sh
# Builds the bundled model, from text to 8-bit weights: sh recipes/bundled/make.sh [PART ...]
#
# data      Europarl, Tatoeba, newstest and domains at the paths in the recipes, English TAB German or French; data/extra
#           (collect.py); data/opus/en-fr and fr-en, OPUS-MT imported by `transduce import`. Sentences of validation and test sets
#           are left out.
# hardware  one H200: 27 minutes until the student, 9 minutes for the first round, 26 minutes for the second, 22 for the third
# result    runs/bundled, which is src/transduce/bundled/en-de-fr; its README.md states the scores, and which text came later
#
# Parts, in this order if none is named:
# teacher   a base model on Europarl, Tatoeba and the phrases
# student   6+2 layers, trained on the teacher's translations
# prepare   the text of all domains, and sentences without a translation
# first     17,890 steps from the student, then the mean of 25% student and 75% new weights
# second    70,060 steps from this mean
# third     52,626 steps from the second round, with two more encoder layers, a lower learning rate and less dropout
# finish    8 bits, calibrated confidence
#
# A round consists of these parts, with the model START:
# german    START translates English and German sentences, for training in the opposite direction
# french    OPUS-MT translates the same English sentences
# debates   OPUS-MT translates English sentences of Europarl; not in the third round
# english   OPUS-MT translates French sentences
# everyday  STUDENT translates Tatoeba in all four directions, so that what it knows is not forgotten; START in the third round
# train     final.toml, from START
set -e
tatoeba=data/tatoeba europarl=data/europarl newstest=data/newstest out=data/bundled
student=${STUDENT:-runs/bundled-student} start=${START:-runs/bundled-second} opus=${OPUS:-data/opus} jobs=${JOBS:-3}
python=${PYTHON:-python} search=${SEARCH:---beam 4}
# The settings of the first two rounds that differ.
earlier="--set train.learning_rate=8e-4 --set model.dropout=0.1"
transduce() { ${TRANSDUCE:-command transduce} "$@"; }
join() { $python recipes/bundled/synthetic.py "$@"; }

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

# phrases TIMES: words and phrases that debates and everyday sentences lack (phrases.tsv: English, German, French).
phrases() {
  mkdir -p $out
  for _ in $(seq "$1"); do cut -f 1,2 recipes/bundled/phrases.tsv; done > $out/phrases.en-de.tsv
  for _ in $(seq "$1"); do cut -f 1,3 recipes/bundled/phrases.tsv; done > $out/phrases.en-fr.tsv
}

teacher() {
  phrases 5
  transduce train recipes/bundled/teacher.toml --out runs/bundled-teacher
}

student() {
  $python recipes/bundled/sources.py $out/sources \
    --tsv $tatoeba/train.en-de.tsv.xz $tatoeba/train.en-fr.tsv.xz \
    $europarl/train.en-de.part2.tsv.xz $europarl/train.en-fr.part1.tsv.xz \
    --without $tatoeba/valid.en-de.tsv.xz $tatoeba/test.en-de.tsv.xz $tatoeba/valid.en-fr.tsv.xz \
    $tatoeba/test.en-fr.tsv.xz $europarl/valid.en-de.tsv.xz $europarl/valid.en-fr.tsv.xz \
    $newstest/newstest2013.en-de.tsv.xz $newstest/newstest2014.en-de.tsv.xz \
    $newstest/newstest2013.en-fr.tsv.xz $newstest/newstest2014.en-fr.tsv.xz \
    --most en=1100000 de=550000 fr=500000
  head -n 450000 $out/sources.en > $out/sources.to-fr.en
  translate runs/bundled-teacher $out/sources.en $out/distilled.en-de.de --to de
  translate runs/bundled-teacher $out/sources.to-fr.en $out/distilled.en-fr.fr --to fr
  translate runs/bundled-teacher $out/sources.de $out/distilled.de-en.en --to en
  translate runs/bundled-teacher $out/sources.fr $out/distilled.fr-en.en --to en
  transduce train recipes/bundled/student.toml --out runs/bundled-student
}

prepare() {
  $python recipes/bundled/prepare.py data
}

first() {
  start=$student; german; french; debates; english; everyday; synthetic
  STEPS=17890 RUN=runs/bundled-first train $earlier
  transduce average "$student" runs/bundled-first -o runs/bundled-half
  transduce average runs/bundled-half runs/bundled-first -o runs/bundled-round
}

second() {
  start=runs/bundled-round; german; synthetic
  STEPS=70060 RUN=runs/bundled-second train $earlier
}

third() {
  start=${START:-runs/bundled-second}
  student=$start
  german & one=$!; english & two=$!; everyday & three=$!; french
  wait $one; wait $two; wait $three
  join $out/synthetic.en-fr.tsv $out/mono.en $out/mono.en.fr $out/mono.fr.en $out/mono.fr
  train --set model.encoder_layers=8
}

german() {
  translate "$start" $out/mono.de $out/mono.de.en --to en
  translate "$start" $out/mono.en $out/mono.en.de --to de
  join $out/human-de.en-de.tsv $out/mono.de.en $out/mono.de
  join $out/human-en.en-de.tsv $out/mono.en $out/mono.en.de
}

french() {
  translate "$opus/en-fr" $out/mono.en $out/mono.en.fr
}

debates() {
  cut -f 1 $out/europarl.en-de.tsv | head -n 300000 > $out/europarl.en
  translate "$opus/en-fr" $out/europarl.en $out/europarl.en.fr
}

english() {
  translate "$opus/fr-en" $out/mono.fr $out/mono.fr.en
  head -n "$(wc -l < $out/beside-mono.de)" $out/mono.fr.en > $out/beside-mono.en
  join $out/beside.en-de.tsv $out/beside-mono.en $out/beside-mono.de
}

everyday() {
  for other in de fr; do
    translate "$student" $out/everyday-$other.en $out/everyday-$other.en.$other --to $other
    translate "$student" $out/everyday.$other $out/everyday.$other.en --to en
    join $out/everyday-to-$other.tsv $out/everyday-$other.en $out/everyday-$other.en.$other
    join $out/everyday-from-$other.tsv $out/everyday.$other.en $out/everyday.$other
  done
}

synthetic() {
  join $out/synthetic.en-fr.tsv $out/mono.en $out/mono.en.fr $out/europarl.en $out/europarl.en.fr $out/mono.fr.en $out/mono.fr
}

# train [SETTING ...]: phrases and quantities, then the steps of a round; cooldown is two thirds of the steps.
train() {
  phrases 6
  $python recipes/bundled/quantities.py $out/quantities.tsv --without $tatoeba/valid.en-de.tsv.xz $tatoeba/test.en-de.tsv.xz \
    $tatoeba/valid.en-fr.tsv.xz $tatoeba/test.en-fr.tsv.xz
  cut -f 1,2 $out/quantities.tsv > $out/quantities.en-de.tsv
  cut -f 1,3 $out/quantities.tsv > $out/quantities.en-fr.tsv
  steps=${STEPS:-52626}
  transduce train recipes/bundled/final.toml --out "${RUN:-runs/bundled-final}" --set train.start_from="$start" \
    --set train.steps="$steps" --set train.cooldown=$((steps * 2 / 3)) --set train.save_every=$((steps / 3 + 1)) "$@"
}

finish() {
  transduce shrink -m runs/bundled-final --out runs/bundled
  calibrate() { transduce calibrate -m runs/bundled --engine native "$@"; }
  calibrate --test $tatoeba/valid.en-de.tsv.xz --to de
  calibrate --test $tatoeba/valid.en-fr.tsv.xz --to fr
  calibrate --test $tatoeba/valid.en-de.tsv.xz --test $tatoeba/valid.en-fr.tsv.xz --to en --reverse
  $python -c 'from pathlib import Path; from transduce.models.folder import write_fact; write_fact(Path("runs/bundled"), "default_to", "de")'
}

[ $# -gt 0 ] || set -- teacher student prepare first second third finish
for part in "$@"; do "$part"; done
