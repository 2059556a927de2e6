#!/bin/sh
# Builds the bundled model, from text to 8-bit weights: sh recipes/bundled/make.sh
#
# data      Europarl, Tatoeba and newstest at the paths in the recipes, English TAB German or French; sentences of
#           validation and test sets are left out
# hardware  one H200
# result    runs/bundled, which is src/transduce/bundled/en-de-fr; its README.md states the scores
set -e
tatoeba=data/tatoeba europarl=data/europarl newstest=data/newstest out=data/bundled

transduce train recipes/bundled/teacher.toml --out runs/bundled-teacher
python recipes/bundled/sources.py $out/sources \
  --tsv $tatoeba/train.en-de.tsv.xz $tatoeba/train.en-fr.tsv.xz \
  $europarl/train.en-de.part2.tsv.xz $europarl/train.en-fr.part1.tsv.xz \
  --without $tatoeba/valid.en-de.tsv.xz $tatoeba/test.en-de.tsv.xz $tatoeba/valid.en-fr.tsv.xz \
  $tatoeba/test.en-fr.tsv.xz $europarl/valid.en-de.tsv.xz $europarl/valid.en-fr.tsv.xz \
  $newstest/newstest2013.en-de.tsv.xz $newstest/newstest2014.en-de.tsv.xz \
  $newstest/newstest2013.en-fr.tsv.xz $newstest/newstest2014.en-fr.tsv.xz \
  --most ${SOURCES:-850000}
head -n ${FRENCH_SOURCES:-500000} $out/sources.en > $out/sources.to-fr.en
translate() { transduce translate -m runs/$1 --no-protect --to $3 $2 -o $4; }
translate bundled-teacher $out/sources.en de $out/distilled.en-de.de &
translate bundled-teacher $out/sources.to-fr.en fr $out/distilled.en-fr.fr &
translate bundled-teacher $out/sources.de en $out/distilled.de-en.en &
translate bundled-teacher $out/sources.fr en $out/distilled.fr-en.en &
wait
transduce train recipes/bundled/student.toml --out runs/bundled-student

# The student learns words and phrases that debates and everyday sentences lack (phrases.tsv: English, German, French).
# It keeps what it knows: it is trained on its own translations too, and the result is the mean of before and after.
for _ in 1 2 3 4 5; do cut -f 1,2 recipes/bundled/phrases.tsv; done > $out/phrases.en-de.tsv
for _ in 1 2 3 4 5; do cut -f 1,3 recipes/bundled/phrases.tsv; done > $out/phrases.en-fr.tsv
replay() { tail -n $3 $out/sources.$1 > $out/replay.$4; translate bundled-student $out/replay.$4 $2 $out/replay.$1-$2.$2; }
replay en de 82000 en
replay en fr 41000 to-fr.en
replay de en 33000 de
replay fr en 16000 fr
transduce train recipes/bundled/phrases.toml --out runs/bundled-phrases
transduce average runs/bundled-student runs/bundled-phrases --out runs/bundled-mean
transduce calibrate -m runs/bundled-mean --test $tatoeba/valid.en-de.tsv.xz --to de
transduce calibrate -m runs/bundled-mean --test $tatoeba/valid.en-fr.tsv.xz --to fr
transduce calibrate -m runs/bundled-mean --test $tatoeba/valid.en-de.tsv.xz --test $tatoeba/valid.en-fr.tsv.xz --to en --reverse
transduce shrink -m runs/bundled-mean --out runs/bundled
python -c 'from pathlib import Path; from transduce.models.card import write_fact; write_fact(Path("runs/bundled"), "default_to", "de")'
