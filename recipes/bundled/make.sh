#!/bin/sh
# Builds the bundled model, from text to 8-bit weights: sh recipes/bundled/make.sh
#
# data      Europarl, Tatoeba and newstest at the paths in the recipes, English TAB German or French; sentences of
#           validation and test sets are left out
# hardware  one H200
# result    runs/bundled, which is src/transduce/bundled/en-de-fr; its README.md states the scores
set -e
tatoeba=data/tatoeba europarl=data/europarl newstest=data/newstest out=data/bundled

# Words and phrases that debates and everyday sentences lack (phrases.tsv: English, German, French), five times.
mkdir -p $out
for _ in 1 2 3 4 5; do cut -f 1,2 recipes/bundled/phrases.tsv; done > $out/phrases.en-de.tsv
for _ in 1 2 3 4 5; do cut -f 1,3 recipes/bundled/phrases.tsv; done > $out/phrases.en-fr.tsv

transduce train recipes/bundled/teacher.toml --out runs/bundled-teacher
python recipes/bundled/sources.py $out/sources \
  --tsv $tatoeba/train.en-de.tsv.xz $tatoeba/train.en-fr.tsv.xz \
  $europarl/train.en-de.part2.tsv.xz $europarl/train.en-fr.part1.tsv.xz \
  --without $tatoeba/valid.en-de.tsv.xz $tatoeba/test.en-de.tsv.xz $tatoeba/valid.en-fr.tsv.xz \
  $tatoeba/test.en-fr.tsv.xz $europarl/valid.en-de.tsv.xz $europarl/valid.en-fr.tsv.xz \
  $newstest/newstest2013.en-de.tsv.xz $newstest/newstest2014.en-de.tsv.xz \
  $newstest/newstest2013.en-fr.tsv.xz $newstest/newstest2014.en-fr.tsv.xz \
  --most en=1100000 de=550000 fr=500000
head -n 450000 $out/sources.en > $out/sources.to-fr.en
translate() { transduce translate -m runs/bundled-teacher --no-protect --to $2 $out/$1 -o $out/$3; }
translate sources.en de distilled.en-de.de &
translate sources.to-fr.en fr distilled.en-fr.fr &
translate sources.de en distilled.de-en.en &
translate sources.fr en distilled.fr-en.en &
wait
transduce train recipes/bundled/student.toml --out runs/bundled-student
transduce shrink -m runs/bundled-student --out runs/bundled
calibrate() { transduce calibrate -m runs/bundled --engine native "$@"; }
calibrate --test $tatoeba/valid.en-de.tsv.xz --to de
calibrate --test $tatoeba/valid.en-fr.tsv.xz --to fr
calibrate --test $tatoeba/valid.en-de.tsv.xz --test $tatoeba/valid.en-fr.tsv.xz --to en --reverse
python -c 'from pathlib import Path; from transduce.models.folder import write_fact; write_fact(Path("runs/bundled"), "default_to", "de")'
