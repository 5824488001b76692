"""What the calls of `heddle.LLM` make of prompts and keywords: requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from heddle import _core
from heddle._adapters import Choice, choices_of, name_of, set_adapters
from heddle._fields import fields_of_conversations, fields_of_prompt, wrapped_seed
from heddle._options import DRAWN, split
from heddle._params import Params, options_of_each
from heddle._progress import is_watched
from heddle._sampling import SEVERAL, set_field, set_options
from heddle._several import Prompts, work_of


def _list_of(stop: str | Sequence[str]) -> list[str]:
    return [stop] if isinstance(stop, str) else list(stop)


def _text_of(prompt: Any) -> str:
    """What `Answer.prompt` is: of a conversation its last message."""
    if isinstance(prompt, str):
        return prompt
    last = prompt[-1] if prompt else None
    content = last.get("content") if isinstance(last, Mapping) else None
    return content if isinstance(content, str) else ""


def is_one_prompt(prompts: Any) -> bool:
    """Whether it is a text or a list of token ids, not a list of these."""
    return isinstance(prompts, str) or (len(prompts) > 0 and hasattr(prompts[0], "__index__"))


def is_one_conversation(conversations: Any) -> bool:
    """Whether it is a text or a list of messages, not a list of these."""
    return isinstance(conversations, str) or (
        len(conversations) > 0 and isinstance(conversations[0], Mapping)
    )


class StreamPrompt(NamedTuple):
    """The request of a stream."""

    request: _core.Request
    choice: Choice
    prompt: str


class RequestMaker:
    """Makes the requests of an LLM."""

    def __init__(self, defaults: Mapping[str, Any], progress: bool | None) -> None:
        """`defaults`: of what prompts do not give; `progress`: of calls that do not give it."""
        self.defaults = dict(defaults)
        self._progress = progress

    def request(
        self,
        fields: Mapping[str, Any],
        choice: Choice,
        given: Mapping[str, Any],
        sampling: Mapping[str, Any],
        seed_offset: int = 0,
    ) -> _core.Request:
        """The request of one prompt."""
        own = {name: given[name] for name in DRAWN if given[name] is not None}
        named = {
            "adapter": name_of(choice) or "",
            "seed": wrapped_seed(given["seed"] + seed_offset),
        }
        request = _core.Request()
        for key, value in {**fields, **named, **self.defaults, **own}.items():
            set_field(request, key, value)
        request.stop = _list_of(given["stop"])
        set_adapters(request, choice, given["merge"])
        set_options(request, sampling)
        return request

    def prompts(self, prompts: Any, params: Params, options: Mapping[str, Any]) -> Prompts:
        """Of `generate`."""
        is_one = is_one_prompt(prompts)
        each = [prompts] if is_one else list(prompts)
        return self._prompts(each, [fields_of_prompt(p) for p in each], is_one, params, options)

    def conversations(
        self, conversations: Any, params: Params, options: Mapping[str, Any]
    ) -> Prompts:
        """Of `chat`."""
        is_one = is_one_conversation(conversations)
        each = [conversations] if is_one else list(conversations)
        fields = fields_of_conversations(each, split(options)[0])
        return self._prompts(each, fields, is_one, params, options)

    def stream(self, prompt: Any, params: Params, options: Mapping[str, Any]) -> StreamPrompt:
        """Of `stream`."""
        return self._stream(prompt, fields_of_prompt(prompt), params, options)

    def stream_chat(
        self, conversation: Any, params: Params, options: Mapping[str, Any]
    ) -> StreamPrompt:
        """Of `stream_chat`."""
        (fields,) = fields_of_conversations([conversation], split(options)[0])
        return self._stream(conversation, fields, params, options)

    def _prompts(
        self,
        prompts: Sequence[Any],
        fields: Sequence[Mapping[str, Any]],
        is_one: bool,
        params: Params,
        options: Mapping[str, Any],
    ) -> Prompts:
        call, _ = split(options)
        choices = choices_of(call["adapter"], call["adapters"], len(prompts))
        works = []
        for i, (own, offset) in enumerate(options_of_each(params, options, len(prompts))):
            given, sampling = split(own)
            rest = {name: value for name, value in sampling.items() if name not in SEVERAL}
            request = self.request(fields[i], choices[i], given, rest, offset)
            works.append(work_of(request, choices[i], sampling, _text_of(prompts[i])))
        progress = self._progress if call["progress"] is None else call["progress"]
        shown = (len(works) > 1 and is_watched()) if progress is None else progress
        return Prompts(works, is_one, call["keep_going"], shown)

    def _stream(
        self, prompt: Any, fields: Mapping[str, Any], params: Params, options: Mapping[str, Any]
    ) -> StreamPrompt:
        choice = choices_of(options.get("adapter"), options.get("adapters"), 1)[0]
        given, sampling = split(options_of_each(params, options, 1)[0][0])
        request = self.request(fields, choice, given, sampling)
        return StreamPrompt(request, choice, _text_of(prompt))
