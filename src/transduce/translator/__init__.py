"""Text to text: `Translator` splits texts into sentences, searches for translations, and joins them."""

from transduce.translator.confidence import Calibration
from transduce.translator.part import Part
from transduce.translator.part_translator import Confidence
from transduce.translator.translation import PairScore, Translation, join
from transduce.translator.translator import LongInput, Translator

__all__ = ["Calibration", "Confidence", "LongInput", "PairScore", "Part", "Translation", "Translator", "join"]
