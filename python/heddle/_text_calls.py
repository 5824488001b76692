"""The calls of `heddle.LLM` from texts to tokens and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from heddle import _core
from heddle._fields import Message, fields_of_conversations, fields_of_prompt
from heddle._hints import hinted
from heddle._options import TEMPLATE_DEFAULTS, TemplateOptions, takes

if TYPE_CHECKING:
    from typing_extensions import Unpack


def _request(fields: Mapping[str, Any], adapter: str | None) -> _core.Request:
    request = _core.Request()
    for key, value in fields.items():
        setattr(request, key, value)
    request.adapter = adapter or ""
    return request


class TextCalls:
    """The tokenizer and the chat template of the model, or of an adapter that has its own."""

    _engine: _core.Engine

    @hinted
    def tokenize(
        self, prompt: str, *, adapter: str | None = None, add_special_tokens: bool | None = None
    ) -> list[int]:
        """The token ids of a text as `generate` takes it.

        Args:
            prompt: The text.
            adapter: Whose tokenizer; None: the model's.
            add_special_tokens: Whether the tokens with which the tokenizer begins and ends a text
                are added; None: they are.

        Raises:
            ValueError: Unknown adapter.
        """
        request = _request(fields_of_prompt(prompt), adapter)
        request.add_special_tokens = add_special_tokens
        return self._engine.tokenize(request)

    @hinted
    def detokenize(
        self,
        tokens: Sequence[int],
        *,
        adapter: str | None = None,
        skip_special_tokens: bool = False,
    ) -> str:
        """The text of tokens. Parts of a character at the ends are U+FFFD.

        Args:
            tokens: Token ids.
            adapter: Whose tokenizer; None: the model's.
            skip_special_tokens: Whether tokens such as the end of a turn have no text.

        Raises:
            ValueError: One is no token's id; unknown adapter.
        """
        ids = fields_of_prompt(tokens)["token_ids"]
        text = self._engine.detokenize(_request({}, adapter), ids, skip_special_tokens)
        return text.decode(errors="replace")

    @overload
    def apply_chat_template(
        self,
        conversation: str | Sequence[Message],
        *,
        tokenize: Literal[True] = True,
        **options: Unpack[TemplateOptions],
    ) -> list[int]: ...
    @overload
    def apply_chat_template(
        self,
        conversation: str | Sequence[Message],
        *,
        tokenize: Literal[False],
        **options: Unpack[TemplateOptions],
    ) -> str: ...
    @takes(TemplateOptions, TEMPLATE_DEFAULTS)
    def apply_chat_template(
        self,
        conversation: str | Sequence[Message],
        *,
        tokenize: bool = True,
        **options: Unpack[TemplateOptions],
    ) -> list[int] | str:
        """What the chat template makes of a conversation: the prompt of `chat`.

        `generate` of the token ids has the answer of `chat`. The text has the tokens with which it
        begins in it: `generate` of it needs `add_special_tokens=False`.

        Args:
            conversation: A text, which is one message of a user, or a list of messages.
            tokenize: Token ids, as in transformers; False: the text.
            adapter: Whose template; None: the model's.
            system: As in `chat`, and so all that follow.
            tools: Functions that the template describes to the model.
            documents: For the template.
            chat_template_kwargs: Further variables of the template.
            add_generation_prompt: The text ends where the model's answer begins.
            continue_final_message: The text ends inside the last message; needs
                `add_generation_prompt=False`.

        Raises:
            ValueError: The model has no template, or it refuses the conversation; unknown adapter.
        """
        given = {**TEMPLATE_DEFAULTS, **options}
        request = _request(fields_of_conversations([conversation], given)[0], given["adapter"])
        request.continue_final_message = given["continue_final_message"]
        return self._engine.tokenize(request) if tokenize else self._engine.render(request)
