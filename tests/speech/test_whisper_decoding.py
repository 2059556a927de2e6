"""Decoding of Whisper with times, against rules that are written out and against transformers, with random weights."""

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import complaint
from transformers_models import END, transformers, whisper

from transduce.errors import ConfigError
from transduce.interop.import_model import import_model
from transduce.interop.imported_tokenizers import ImportedTokenizer
from transduce.speech.command import formatted
from transduce.speech.decoding import MAX_FIRST_TIME, restrict_times, split_by_times
from transduce.speech.sound import RATE, Samples, to_samples
from transduce.speech.transcriber import SpokenPart, Transcriber, Transcript
from transduce.tokenizers.tokenizer import EOS

SPECIAL = [END, *(f"<|{name}|>" for name in (
    "startoftranscript", "en", "de", "fr", "translate", "transcribe", "startofprev", "nospeech", "notimestamps"
))]  # fmt: skip
TIMES = 101
"""Time tokens of a window of two seconds."""
FIRST, SIZE = 20, 140


def allowed(history: list[int], token: int) -> bool:
    """Whether a token may follow, as the rules are written in words; times are from FIRST on."""
    is_time = token >= FIRST
    times = [earlier for earlier in history if earlier >= FIRST]
    if not history:
        return is_time and token <= FIRST + MAX_FIRST_TIME
    starts = len(history) == 1 or history[-2] >= FIRST
    if history[-1] >= FIRST:
        if starts:  # a part has begun: text, or the end
            return not is_time
        return token == EOS or (is_time and token >= times[-1])  # a part has ended: the next one, or the end
    return not is_time or token > (times[-1] if times else FIRST - 1)


def histories(chance: random.Random) -> list[int]:
    """Tokens that the rules allow, one after the other."""
    history: list[int] = []
    for _ in range(chance.randint(0, 9)):
        following = [token for token in range(EOS + 1, SIZE) if allowed(history, token)]
        times = [token for token in following if token >= FIRST][:12]
        text = [token for token in following if token < FIRST]
        if not (times or text):
            break
        history.append(chance.choice(times if times and (not text or chance.random() < 0.5) else text))
    return history


def test_rules_of_times_as_written_out() -> None:
    chance = random.Random(0)
    favoured = 0
    for case in range(200):
        history, scale = histories(chance), (0.1, 3.0)[case % 2]
        logits = torch.randn(1, SIZE, generator=torch.Generator().manual_seed(case)) * scale
        found = restrict_times(logits, torch.tensor([history], dtype=torch.int64), FIRST)[0]
        fits = [allowed(history, token) for token in range(SIZE)]
        weights = [math.exp(value) if fit else 0.0 for value, fit in zip(logits[0].tolist(), fits, strict=True)]
        if sum(weights[FIRST:]) > max(weights[:FIRST]):
            favoured += any(fits[:FIRST])
            fits = [fit and token >= FIRST for token, fit in enumerate(fits)]
        assert [value > -math.inf for value in found.tolist()] == fits, history
    assert favoured > 20


def test_rules_of_times_against_transformers() -> None:
    """Their text tokens come first, then the end marker, the token for no times, and the times."""
    text = FIRST - EOS - 1
    ours = [*range(EOS + 1, FIRST), EOS, 0, *range(FIRST, SIZE)]
    theirs = {token: number for number, token in enumerate(ours)}
    config = transformers.GenerationConfig(eos_token_id=text)
    config.no_timestamps_token_id, config.max_initial_timestamp_index = text + 1, MAX_FIRST_TIME
    processor = transformers.generation.logits_process.WhisperTimeStampLogitsProcessor(config, begin_index=0)
    chance = random.Random(1)
    for case in range(100):
        history = histories(chance)
        logits = torch.randn(1, SIZE, generator=torch.Generator().manual_seed(case)) * (0.1, 3.0)[case % 2]
        logits[:, [0, 1, 2]] = -torch.inf
        ids = torch.tensor([[theirs[token] for token in history]], dtype=torch.int64)
        expected = processor(ids, logits[:, ours])
        assert torch.equal(restrict_times(logits, torch.tensor([history], dtype=torch.int64), FIRST)[:, ours], expected)


@pytest.mark.parametrize(
    ("tokens", "parts", "advance"),
    [
        ([20, 5, 6], [(0.0, 2.0)], 2.0),
        ([30, 5, 6, 70], [(0.2, 1.0)], 2.0),
        ([20, 5, 70, 75, 6, 80], [(0.0, 1.0), (1.1, 1.2)], 2.0),
        ([20, 5, 70, 75, 6], [(0.0, 1.0)], 1.0),
        ([20, 5, 70, 75, 6, 80, 80], [(0.0, 1.0), (1.1, 1.2)], 1.2),
        ([], [(0.0, 2.0)], 2.0),
    ],
)
def test_parts_of_a_window(tokens: list[int], parts: list[tuple[float, float]], advance: float) -> None:
    found, end = split_by_times(tokens, FIRST, 2.0)
    assert [(part.start, part.end) for part in found] == [pytest.approx(part) for part in parts]
    assert end == pytest.approx(advance)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Transcriber]:
    """The same random weights in transformers and here."""
    folder = tmp_path_factory.mktemp("whisper")
    theirs, tokenizer = whisper(SPECIAL, TIMES, max_target_positions=40, begin_suppress_tokens=[7, 9])
    ids = {name[2:-2]: tokenizer.token_to_id(name) for name in SPECIAL}
    decoder = theirs.model.decoder  # changed so that outputs have several parts, and differ between recordings
    decoder.layer_norm.bias.data.zero_()
    decoder.embed_tokens.weight.data *= 0.6
    decoder.embed_positions.weight.data *= 6
    for layer in decoder.layers:
        layer.encoder_attn.out_proj.weight.data *= 4
    generation, first = theirs.generation_config, ids["notimestamps"] + 1
    generation.lang_to_id = {f"<|{name}|>": ids[name] for name in ("en", "de", "fr")}
    generation.task_to_id = {name: ids[name] for name in ("translate", "transcribe")}
    generation.no_timestamps_token_id, generation.max_initial_timestamp_index = first - 1, MAX_FIRST_TIME
    generation.is_multilingual, generation.prev_sot_token_id = True, ids["startofprev"]
    generation.suppress_tokens = [1, 2, *(number for name, number in ids.items() if name != "endoftext")]
    generation.begin_suppress_tokens, generation.max_length = [7, 9], 40
    theirs.save_pretrained(folder / "original")
    tokenizer.save(str(folder / "original" / "tokenizer.json"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transduce.interop.import_model._MULTILINGUAL", 100)
        import_model(folder / "original", folder / "ours")
    return theirs, Transcriber.load(folder / "ours", device="cpu")


def features_of(samples: Samples) -> Any:
    """The frames that transformers computes."""
    extractor = transformers.WhisperFeatureExtractor(chunk_length=2)
    return extractor((samples - 2**15) / 2**15, sampling_rate=RATE, return_tensors="pt")


def sound(seconds: float, seed: int) -> tuple[Samples, Any]:
    """Noise, and the frames that transformers computes of it."""
    samples = to_samples(np.random.default_rng(seed).normal(0, 0.1, int(seconds * RATE)).astype(np.float32))
    return samples, features_of(samples)


def original_tokens(transcriber: Transcriber, tokens: list[int]) -> list[int]:
    assert isinstance(transcriber.tokenizer, ImportedTokenizer)
    return [transcriber.tokenizer.order.originals[token] for token in tokens]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "options", [{}, {"times": True}, {"times": True, "language": "de", "translate": True}, {"language": "fr"}]
)
def test_a_window_as_in_transformers(models: tuple[Any, Transcriber], seed: int, options: dict[str, Any]) -> None:
    """Without a language, it is detected."""
    theirs, transcriber = models
    samples, features = sound(2, seed)
    wanted = {"task": "translate"} if options.get("translate") else {"task": "transcribe"}
    wanted |= {"language": options["language"]} if "language" in options else {}
    times = options.get("times", False)
    expected = theirs.generate(
        features.input_features, return_timestamps=times, **wanted, do_sample=False, return_segments=True,
        logits_processor=None if times else transformers.LogitsProcessorList([_NoTimes(theirs)]),
    )["segments"][0][0]["result"]  # fmt: skip
    language = theirs.detect_language(features.input_features)
    (output,) = transcriber._search([samples], transcriber._request(options))
    found = original_tokens(transcriber, output.tokens)
    assert found == [token for token in expected.tolist() if token not in set(_markers(theirs))]
    if "language" not in options:
        assert original_tokens(transcriber, [output.language]) == language.tolist()
    assert transcriber.transcript(samples, **options).language in ("en", "de", "fr")


class _NoTimes(transformers.LogitsProcessor):  # type: ignore[misc]
    """Transformers allows times in outputs without times."""

    def __init__(self, model: Any) -> None:
        self.first = model.generation_config.no_timestamps_token_id + 1

    def __call__(self, ids: Any, scores: Any) -> Any:
        scores[:, self.first :] = -torch.inf
        return scores


def _markers(model: Any) -> list[int]:
    config = model.generation_config
    return [
        *config.lang_to_id.values(), *config.task_to_id.values(), config.no_timestamps_token_id,
        model.config.eos_token_id, model.config.decoder_start_token_id,
    ]  # fmt: skip


def windows_by_transformers(model: Any, samples: Samples, condition: bool) -> list[tuple[float, float, list[int]]]:
    """Start, end and tokens of the parts of a recording, each window of which transformers decodes by itself."""
    parts, start, said = list[tuple[float, float, list[int]]](), 0, list[int]()
    config, first = model.generation_config, model.generation_config.no_timestamps_token_id + 1
    while start < len(samples):
        window = samples[start : start + 2 * RATE]
        prompt = torch.tensor([config.prev_sot_token_id, *said[-19:]]) if said and condition else None
        found = model.generate(
            features_of(window).input_features, return_timestamps=True, return_segments=True, do_sample=False,
            task="transcribe", language="en", prompt_ids=prompt,
        )["segments"][0]  # fmt: skip
        found = [part for part in found if part["result"] is found[0]["result"]]  # it goes on after the last part
        tokens = [part["tokens"].tolist() for part in found]
        is_cut = len(tokens[-1]) > 2 and min(tokens[-1][-2:]) >= first
        if is_cut:
            tokens[-1].pop()
        times = [(float(part["start"]), float(part["end"])) for part in found]
        parts += [(start / RATE + a, start / RATE + b, part) for (a, b), part in zip(times, tokens, strict=True)]
        said += [token for part in tokens for token in part]
        start += round(times[-1][1] * RATE) if is_cut else len(window)
    return parts


@pytest.mark.parametrize("condition", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_a_long_recording_as_in_transformers(models: tuple[Any, Transcriber], seed: int, condition: bool) -> None:
    theirs, transcriber = models
    samples, _ = sound(5.3, seed)
    tokenizer, first, wanted = transcriber.tokenizer, theirs.generation_config.no_timestamps_token_id + 1, []
    assert isinstance(tokenizer, ImportedTokenizer)
    for start, end, tokens in windows_by_transformers(theirs, samples, condition):
        text = tokenizer.decode([tokenizer.order.ids[token] for token in tokens if token < first]).strip()
        has_both = sum(token >= first for token in tokens) > 1
        wanted += [(start, end, text, has_both)] if text else []
    found = list(transcriber.stream(samples, condition=condition, language="en", no_speech=1.0))
    assert [part.text for part in found] == [text for _, _, text, _ in wanted]
    for part, (start, end, _, has_both) in zip(found, wanted, strict=True):
        if has_both:
            assert [part.start, part.end] == pytest.approx([start, end], abs=0.006)
    assert sum(has_both for *_, has_both in wanted) >= 4


def test_what_is_no_speech_is_left_out(models: tuple[Any, Transcriber]) -> None:
    _, transcriber = models
    samples, _ = sound(2, 0)
    request = transcriber._request({"no_speech": 1.0})
    (kept,) = transcriber._search([samples], request)
    assert kept.tokens
    assert kept.log_prob / (len(kept.tokens) + 1) < -1
    (left,) = transcriber._search([samples], transcriber._request({"no_speech": 0.0}))
    assert left.tokens == []
    assert transcriber.transcript(samples, no_speech=0.0).text == ""


def test_the_average_log_probability_is_that_of_transformers(models: tuple[Any, Transcriber]) -> None:
    theirs, transcriber = models
    samples, features = sound(2, 5)
    expected = theirs.generate(
        features.input_features, return_timestamps=True, language="en", do_sample=False, output_scores=True,
        return_dict_in_generate=True, max_new_tokens=9,
    )["segments"][0][0]["result"]  # fmt: skip
    scores = torch.stack(expected["scores"])
    tokens = expected["sequences"][-len(scores) :]
    values = scores.float().log_softmax(-1).gather(1, tokens[:, None])
    (output,) = transcriber._search([samples], transcriber._request({"language": "en", "times": True}))
    if len(output.tokens) + 1 == len(tokens):
        assert output.log_prob == pytest.approx(float(values.sum()), abs=1e-3)
    else:  # it is not ended within 9 tokens
        assert original_tokens(transcriber, output.tokens[:9]) == tokens.tolist()


def test_options_that_a_model_does_not_have(models: tuple[Any, Transcriber]) -> None:
    _, transcriber = models
    samples, _ = sound(1, 0)
    with pytest.raises(ConfigError, match=r"^the model has no language 'xx'; use one of de, en, fr$"):
        transcriber.transcript(samples, language="xx")
    with pytest.raises(ConfigError, match="no_speech must be between 0 and 1"):
        transcriber.transcript(samples, no_speech=2.0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'tims'"):
        transcriber.transcript(samples, tims=True)  # type: ignore[call-arg]


def test_subtitles() -> None:
    parts = [SpokenPart(0.0, 1.5, "a < b", -1.0), SpokenPart(3661.25, 3662.0, "c\nd", -1.0)]
    transcript = Transcript("a < b c d", parts)
    assert "\n".join(formatted(transcript, "srt", Path("x"))) == (
        "1\n00:00:00,000 --> 00:00:01,500\na < b\n\n2\n01:01:01,250 --> 01:01:02,000\nc d\n"
    )
    assert "\n".join(formatted(transcript, "vtt", Path("x"))) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\na &lt; b\n\n01:01:01.250 --> 01:01:02.000\nc d\n"
    )
    (line,) = formatted(transcript, "json", Path("x"))
    assert json.loads(line)["parts"][1]["text"] == "c\nd"


def test_subtitles_of_several_files_are_refused(transduce: Any, tmp_path: Path) -> None:
    outcome = transduce("transcribe", "-m", "model", "a.wav", "b.wav", "--format", "srt", cwd=tmp_path)
    assert complaint(outcome) == "--format srt writes the subtitles of one sound file"
