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
translate() { transduce translate -m runs/bundled-teacher --no-protect --to $2 $1 -o $3; }
translate $out/sources.en de $out/distilled.en-de.de &
translate $out/sources.to-fr.en fr $out/distilled.en-fr.fr &
translate $out/sources.de en $out/distilled.de-en.en &
translate $out/sources.fr en $out/distilled.fr-en.en &
wait
transduce train recipes/bundled/student.toml --out runs/bundled-student
transduce shrink -m runs/bundled-student --out runs/bundled
python -c 'from pathlib import Path; from transduce.models.card import write_fact; write_fact(Path("runs/bundled"), "default_to", "de")'
