"""Continues and scores text with a language model."""

from transduce.generator.generation import Generation, GenerationEvent, TextScore, stop_texts
from transduce.generator.generator import Generator

__all__ = ["Generation", "GenerationEvent", "Generator", "TextScore", "stop_texts"]
