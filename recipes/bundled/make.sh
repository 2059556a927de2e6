#!/bin/sh
# Builds the bundled model, from text to 8-bit weights: sh recipes/bundled/make.sh
#
# data      Europarl and Tatoeba at the paths in the recipes, English TAB German; the English side of Tatoeba's
#           English-French pairs; newstest2013 and newstest2014, whose sentences are excluded
# hardware  one H200: 10 minutes in all, 5 of them training
# result    runs/bundled, which is src/transduce/bundled/en-de; its README.md states the scores
set -e
tatoeba=data/tatoeba europarl=data/europarl newstest=data/newstest

transduce train recipes/europarl-en-de-base.toml
transduce train recipes/bundled/teacher.toml --out runs/bundled-teacher
python recipes/bundled/sources.py data/bundled/sources.en \
  --europarl $europarl/train.en-de.part2.tsv.xz \
  --everyday $tatoeba/train.en-de.tsv.xz $tatoeba/train.en-fr.tsv.xz \
  --without $tatoeba/valid.en-de.tsv.xz $tatoeba/test.en-de.tsv.xz $europarl/valid.en-de.tsv.xz \
  $newstest/newstest2013.en-de.tsv.xz $newstest/newstest2014.en-de.tsv.xz
transduce translate -m runs/bundled-teacher data/bundled/sources.en --output data/bundled/distilled.de
transduce train recipes/bundled/student.toml --out runs/bundled-student
transduce shrink -m runs/bundled-student --out runs/bundled
