"""Continues and scores text with a language model."""

from transduce.generator.generation import Generation, GenerationEvent, TextScore
from transduce.generator.generator import Generator

__all__ = ["Generation", "GenerationEvent", "Generator", "TextScore"]
