"""What `LLM.get_tokenizer` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import heddle


class Tokenizer:
    """The model's tokenizer with names and defaults of transformers."""

    def __init__(self, llm: heddle.LLM, adapter: str | None) -> None:
        self._llm, self._adapter = llm, adapter

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The token ids of a text."""
        return self._llm.tokenize(
            text, adapter=self._adapter, add_special_tokens=add_special_tokens
        )

    def decode(self, token_ids: int | Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of token ids."""
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        return self._llm.detokenize(
            ids, adapter=self._adapter, skip_special_tokens=skip_special_tokens
        )

    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        **chat_template_kwargs: Any,
    ) -> list[int] | str:
        """What the chat template makes of a conversation; it takes further keywords as variables."""
        apply: Any = self._llm.apply_chat_template
        prompt: list[int] | str = apply(
            conversation,
            tokenize=tokenize,
            adapter=self._adapter,
            tools=tools,
            documents=documents,
            chat_template_kwargs=chat_template_kwargs or None,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
        )
        return prompt
