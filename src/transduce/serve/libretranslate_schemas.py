"""Requests and responses of LibreTranslate's HTTP interface."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class TranslateRequest(BaseModel):
    """A request in LibreTranslate's format; unknown fields are ignored."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"q": "A man sleeps on a green sofa.", "source": "en", "target": "de"}}
    )
    q: str | list[str] = Field(description="A text or a list of texts; each line is translated separately.")
    source: str = Field(description="Language code, or auto to detect it.")
    target: str = Field(description="Language code, or the name of a model.")
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(0, ge=0, description="Number of alternative translations.")
    api_key: str | None = None


class DetectedLanguage(BaseModel):
    """A language that a text may be in."""

    language: str
    confidence: float = Field(0.0, description="Probability in percent, among the languages of the server.")


class DetectRequest(BaseModel):
    """A request for the language of a text; unknown fields are ignored."""

    model_config = ConfigDict(json_schema_extra={"example": {"q": "A man sleeps on a green sofa."}})
    q: str | list[str] = Field(description="A text or a list of texts.")
    api_key: str | None = None


class TranslateResponse(BaseModel):
    """The translations; every field is a list if `q` is a list."""

    model_config = ConfigDict(json_schema_extra={"example": {"translatedText": "Ein Mann schläft auf einem Sofa."}})
    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None


class Language(BaseModel):
    """A source language with its target languages."""

    code: str
    name: str
    targets: list[str]


class LanguageName(BaseModel):
    """A language."""

    code: str
    name: str


class FrontendSettings(BaseModel):
    """What LibreTranslate tells the pages and apps that use it."""

    apiKeys: bool = Field(description="Whether there are API keys.")
    keyRequired: bool = Field(description="Whether an API key is required.")
    charLimit: int = Field(description="Maximum number of characters of a request.")
    frontendTimeout: int = 500
    filesTranslation: bool = True
    suggestions: bool = Field(description="Whether suggestions are accepted.")
    supportedFilesFormat: list[str] = Field(description="Suffixes of files that can be translated.")
    language: dict[Literal["source", "target"], LanguageName] = Field(description="The first direction.")


class SuggestRequest(BaseModel):
    """A suggested translation; unknown fields are ignored."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"q": "Hello", "s": "Hallo", "source": "en", "target": "de"}}
    )
    q: str = Field(description="The original text.")
    s: str = Field(description="The suggested translation.")
    source: str = Field(description="Language code of the original text.")
    target: str = Field(description="Language code of the translation.")
    api_key: str | None = None


class SuggestResponse(BaseModel):
    """Whether the suggestion was stored."""

    success: bool
