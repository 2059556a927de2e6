"""Requests and responses of OpenAI's completions interface."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

_EXAMPLE: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 64, "temperature": 0.8}


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(extra="ignore")
    include_usage: bool = Field(False, description="Send the number of tokens before the end of the stream.")


class CompletionRequest(BaseModel):
    """A prompt, or several, to continue."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"example": _EXAMPLE})
    model: str | None = Field(None, description="Name of a model; by default the server's first language model.")
    prompt: str | list[str] = Field("", description="Text to continue, or several texts.")
    max_tokens: int | None = Field(None, ge=0, description="Maximum number of new tokens of an output; default 16.")
    temperature: float | None = Field(None, description="Temperature; 0 takes the most likely token.")
    top_p: float | None = Field(None, description="See the search options of /v1/translate.")
    top_k: int | None = Field(None, description="Not part of OpenAI's interface; see the search options.")
    min_p: float | None = Field(None, description="Not part of OpenAI's interface; see the search options.")
    n: int | None = Field(None, ge=1, description="Number of outputs for each prompt; default 1.")
    stop: str | list[str] | None = Field(None, description="Text, or up to 16 texts, before which an output ends.")
    seed: int | None = Field(None, description="Random seed; without it, outputs differ between requests.")
    stream: bool | None = Field(None, description="Send text as it is generated, as server-sent events.")
    stream_options: StreamOptions | None = None
    echo: bool | None = Field(None, description="Begin every output with its prompt.")
    logprobs: int | None = Field(None, ge=0, le=1, description="Return the log-probability of every token.")
    best_of: int | None = Field(None, description="Only the value of n is supported.")
    suffix: str | None = Field(None, description="Not supported.")
    presence_penalty: float | None = Field(None, description="Only 0 is supported.")
    frequency_penalty: float | None = Field(None, description="Only 0 is supported.")
    logit_bias: dict[str, float] | None = Field(None, description="Not supported.")
    user: str | None = Field(None, description="Ignored.")

    @property
    def prompts(self) -> list[str]:
        """The prompts as a list."""
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt

    @property
    def outputs(self) -> int:
        """Number of outputs for each prompt."""
        return self.n or 1

    @property
    def stops(self) -> list[str]:
        """The stop strings as a list."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def limit(self) -> int:
        """Maximum number of new tokens of an output."""
        return 16 if self.max_tokens is None else self.max_tokens

    @property
    def new_tokens(self) -> int:
        """Maximum number of new tokens of all outputs."""
        return len(self.prompts) * self.outputs * self.limit


class LogProbs(BaseModel):
    """The tokens of an output and their log-probabilities."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class Choice(BaseModel):
    """One output, or a part of it."""

    text: str
    index: int
    logprobs: LogProbs | None = None
    finish_reason: str | None = None


class Usage(BaseModel):
    """Numbers of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(BaseModel):
    """The outputs of all prompts, or with `stream` a part of one of them."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage | None = None


class ModelEntry(BaseModel):
    """A language model of the server."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "transduce"


class ModelList(BaseModel):
    """The language models of the server."""

    object: str = "list"
    data: list[ModelEntry]
