#!/bin/sh
# The model in the box, from text to 8 bits: sh recipes/box/make.sh
#
# data      Europarl and Tatoeba at the paths that the recipes name, English TAB German; Tatoeba's English-French pairs, for
#           their English; newstest2013 and newstest2014, to be kept out of it
# hardware  one H200: 10 minutes in all, 5 of them training
# result    runs/box, which becomes src/transduce/box/en-de; its README.md states the scores
set -e
tatoeba=data/tatoeba europarl=data/europarl newstest=data/newstest

transduce train recipes/europarl-en-de-base.toml
transduce train recipes/box/teacher.toml --out runs/box-teacher
python recipes/box/sources.py data/box/sources.en \
  --europarl $europarl/train.en-de.part2.tsv.xz \
  --everyday $tatoeba/train.en-de.tsv.xz $tatoeba/train.en-fr.tsv.xz \
  --without $tatoeba/valid.en-de.tsv.xz $tatoeba/test.en-de.tsv.xz $europarl/valid.en-de.tsv.xz \
  $newstest/newstest2013.en-de.tsv.xz $newstest/newstest2014.en-de.tsv.xz
transduce translate -m runs/box-teacher data/box/sources.en --output data/box/distilled.de
transduce train recipes/box/student.toml --out runs/box-student
transduce shrink -m runs/box-student --out runs/box
