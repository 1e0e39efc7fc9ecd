"""From a validated body to the sequences that the engine runs. CPU-heavy: runs on preparation threads."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from flare.contract import OutputFormat
from flare.engine.messages import Image, Sampling, Submit
from flare.errors import RequestError
from flare.frontend import (
    FrontendAssets,
    PartedOutput,
    Prompt,
    Prompts,
    SamplingParameters,
    SamplingPolicy,
    SamplingRequest,
    TextOutput,
    UnsupportedError,
    choice_seed,
    resolve_logit_bias,
)
from flare.frontend.images import ImageLimits, PlacedImage
from flare.frontend.output_machine import opens_reasoning
from flare.grammar import Constraint, compose
from flare.server.body import parse_body
from flare.server.chat_turn import chat_turn
from flare.server.choices import Choice, ChoiceMeter
from flare.server.errors import HTTPError
from flare.server.limits import output_limit
from flare.server.messages.body import CountRequest, MessagesRequest
from flare.server.messages.turn import counted_turn, messages_turn
from flare.server.requests import MOST_CHOICES, ChatRequest, CompletionRequest, GenerationRequest
from flare.server.responses.body import ResponsesRequest
from flare.server.responses.turn import responses_turn
from flare.server.settings import ServerSettings
from flare.server.structured import constraint_of
from flare.server.tools import with_instruction
from flare.server.turn import Turn
from flare.server.unserved import refuse_unserved

Fetched = Mapping[str, bytes | bytearray]
"""Contents of remote images by address."""

_SAMPLING_FIELDS = tuple(SamplingRequest.__dataclass_fields__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One request, ready for admission. `choices` are ordered by index: all choices of the first prompt
    first. `logprobs`: whether they are part of the response, with `alternatives` per token. `sampling` is
    what the choices are drawn with, `constraint` what every answer must be, not known to be served."""

    id: str
    turn: Turn
    sampling: SamplingParameters
    choices: list[Choice]
    stream: bool
    include_usage: bool
    continuous_usage: bool
    logprobs: bool
    alternatives: int
    constraint: Constraint | None = None


class JobFactory:
    """Makes jobs for one core. Safe to use from several threads."""

    def __init__(
        self, model_name: str, assets: FrontendAssets, settings: ServerSettings, meter: ChoiceMeter
    ) -> None:
        self._model_name = model_name
        self._meter = meter
        self._frontend = assets.frontend
        limits = ImageLimits(settings.max_image_bytes, settings.max_image_pixels)
        self.prompts = Prompts(assets, limits, bool(settings.allowed_media_domains))
        self._policy = SamplingPolicy(assets.frontend.default_sampling, settings.zero_temperature)
        self.tokenizer = self.prompts.tokenizer

    def chat(self, body: bytes | bytearray, context: int, fetched: Fetched) -> Job:
        """A chat request, for requests of at most `context` tokens. Raises RequestError, HTTPError, and
        ImagesWanted for images that may be fetched and are not in `fetched`."""
        request = parse_body(ChatRequest, body)
        return self._turn(chat_turn(request, self._check(request)), context, fetched)

    def messages(self, body: bytes | bytearray, context: int, fetched: Fetched) -> Job:
        """A request of the Messages protocol. Raises as `chat` does."""
        return self._turn(messages_turn(parse_body(MessagesRequest, body)), context, fetched)

    def responses(self, body: bytes | bytearray, context: int, fetched: Fetched) -> Job:
        """A request of the Responses protocol. Raises as `chat` does."""
        return self._turn(responses_turn(parse_body(ResponsesRequest, body)), context, fetched)

    def count(self, body: bytes | bytearray, fetched: Fetched) -> int:
        """Prompt tokens that a request of the Messages protocol would have. Raises as `chat` does."""
        request = parse_body(CountRequest, body)
        self.check_model(request.model)
        return len(self._prompt(counted_turn(request), None, fetched).tokens)

    def completion(self, body: bytes | bytearray, context: int) -> Job:
        """A completion request. Raises RequestError, HTTPError."""
        request = parse_body(CompletionRequest, body)
        ignored = self._check(request)
        if request.echo and request.logprobs is not None:
            raise UnsupportedError("echo with logprobs is not supported by this server", field="echo")
        prompts = self._completion_prompts(request.prompt, context)
        echo = bool(request.echo)
        turn = Turn(
            id_prefix="cmpl-",
            request=request,
            messages=(),
            logprobs=request.logprobs,
            prompt_field="prompt",
            ignored=ignored,
        )
        return self._job(turn, prompts, context, echo=echo)

    def check_model(self, name: str | None) -> None:
        """Raises HTTPError 404 unless `name` is the served model; absent means the served one."""
        if name is not None and name != self._model_name:
            raise HTTPError(
                404,
                f"the model {name[:100]!r} does not exist; this server serves {self._model_name!r}",
                code="model_not_found",
                field="model",
            )

    def _check(self, request: GenerationRequest) -> list[str]:
        self.check_model(request.model)
        if request.stream_options is not None and not request.stream:
            raise RequestError("stream_options needs stream: true", field="stream_options")
        return refuse_unserved(request.model_extra or {}, request.n or 1)

    def _turn(self, turn: Turn, context: int, fetched: Fetched) -> Job:
        self.check_model(turn.request.model)
        prompt = self._prompt(turn, context, fetched)
        return self._job(turn, [prompt], context, form=self._frontend.output)

    def _variables(self, turn: Turn) -> dict[str, Any]:
        """What the template is told: of efforts the nearest that it takes; `none` is not to reason."""
        told: dict[str, Any] = {}
        if turn.effort == "none":
            told["enable_thinking"] = False
        elif turn.effort is not None:
            told["reasoning_effort"] = self.prompts.effort(turn.effort)
        return {**told, **(turn.variables or {})}

    def _prompt(self, turn: Turn, context: int | None, fetched: Fetched) -> Prompt:
        tools = turn.tools
        if tools.definitions and self._frontend.output.calls is None:
            raise UnsupportedError("this model's format of tool calls is not known", field="tools")
        messages = with_instruction(turn.messages, tools.instruction)
        return self.prompts.from_messages(
            messages, context, self._variables(turn), tools.definitions, fetched, turn.prompt_field
        )

    def _completion_prompts(self, prompt: Any, context: int) -> list[Prompt]:
        if isinstance(prompt, str):
            return [self.prompts.from_text(prompt, context)]
        if not isinstance(prompt, list):
            raise RequestError(
                "prompt must be a string, a list of token ids, or a list of either", field="prompt"
            )
        if prompt and all(type(item) is int for item in prompt):
            return [self.prompts.from_tokens(prompt)]
        prompts: list[Prompt] = []
        for index, item in enumerate(prompt):
            where = f"prompt[{index}]"
            if isinstance(item, str):
                prompts.append(self.prompts.from_text(item, context, where))
            elif isinstance(item, list) and all(type(token) is int for token in item):
                prompts.append(self.prompts.from_tokens(cast("list[int]", item), where))
            else:
                raise RequestError(f"{where} must be a string or a list of token ids", field=where)
        if not prompts:
            raise RequestError("prompt must not be an empty list", field="prompt")
        return prompts

    def _job(
        self,
        turn: Turn,
        prompts: list[Prompt],
        context: int,
        *,
        echo: bool = False,
        form: OutputFormat | None = None,
    ) -> Job:
        """`form`: how parts of the output are told apart; None when all of it is text."""
        request, tools, logprobs = turn.request, turn.tools, turn.logprobs
        n = request.n or 1
        if len(prompts) * n > MOST_CHOICES:
            raise RequestError(
                f"{len(prompts)} prompts with n={n} are more than {MOST_CHOICES} choices", field="n"
            )
        job_id = turn.id_prefix + secrets.token_hex(16)
        asked = {name: getattr(request, name) for name in _SAMPLING_FIELDS}
        sampling = self._policy.resolve(SamplingRequest(**asked))
        parameters = asdict(sampling)
        bias = resolve_logit_bias(request.logit_bias or {}, self._frontend.vocab_size)
        stop_token_ids = self._stop_token_ids(request)
        constraint = constraint_of(request, turn.form_field)
        if constraint is not None and not self._frontend.eos_token_ids:
            raise UnsupportedError(
                "this model has no token that ends an output, which structured output needs",
                field=constraint.where,
            )
        schemas = tools.schemas
        choices: list[Choice] = []
        for prompt in prompts:
            shown = self._echo(prompt) if echo else ""
            max_tokens = output_limit(
                request, len(prompt.tokens), context, turn.prompt_field, turn.limit_fits
            )
            opened = form is not None and opens_reasoning(prompt.text or "", form)
            grammar = ""
            if constraint is not None:
                grammar = compose(
                    constraint,
                    form,
                    opened=opened,
                    token_of=self.tokenizer.token,
                    tools=tuple(schemas or ()),
                    several=tools.parallel,
                )
            for number in range(n):
                index = len(choices)
                submit = Submit(
                    request_id=f"{job_id}-{index}",
                    prompt=prompt.tokens,
                    sampling=Sampling(**parameters, seed=choice_seed(request.seed, number), logit_bias=bias),
                    max_tokens=max_tokens,
                    min_tokens=request.min_tokens or 0,
                    stop_token_ids=stop_token_ids,
                    logprobs=logprobs,
                    endpoints=prompt.endpoints,
                    cache_salt=request.cache_salt or "",
                    images=tuple(_submitted(placed) for placed in prompt.images),
                    rope_positions=prompt.rope_positions,
                    grammar=grammar,
                )
                text = TextOutput(self.tokenizer, request.stop or (), stop_token_ids, request.min_tokens or 0)
                output = PartedOutput(text, form, opened, schemas, alone=constraint is not None)
                choices.append(Choice(index, submit, output, shown, number == 0, self._meter, tools))
        options = request.stream_options
        return Job(
            id=job_id,
            turn=turn,
            sampling=sampling,
            choices=choices,
            stream=bool(request.stream),
            include_usage=bool(options and options.include_usage),
            continuous_usage=bool(options and options.continuous_usage_stats),
            logprobs=logprobs is not None,
            alternatives=logprobs or 0,
            constraint=constraint,
        )

    def _echo(self, prompt: Prompt) -> str:
        if prompt.text is not None:
            return prompt.text
        return self.tokenizer.decode(prompt.tokens, skip_special=False)

    def _stop_token_ids(self, request: GenerationRequest) -> tuple[int, ...]:
        asked = request.stop_token_ids or ()
        for token in asked:
            if not 0 <= token < self._frontend.vocab_size:
                raise RequestError(
                    f"stop_token_ids: {token} is not a token id below {self._frontend.vocab_size}",
                    field="stop_token_ids",
                )
        end = () if request.ignore_eos else self._frontend.eos_token_ids
        return tuple(sorted({*asked, *end}))


def _submitted(placed: PlacedImage) -> Image:
    image = placed.image
    return Image(
        start=placed.start,
        tokens=image.features,
        identity=image.identity,
        grid=image.grid,
        patches=image.patches,
    )
