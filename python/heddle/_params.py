"""`heddle.SamplingParams`: the keywords of prompts as a value."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from heddle._hints import check_keywords, declare
from heddle._options import Draws

if TYPE_CHECKING:
    from typing_extensions import Unpack

_NAMES = tuple(Draws.__annotations__)
declare("SamplingParams", _NAMES)


class SamplingParams(Mapping[str, Any]):
    """Keywords of `generate`, `chat`, `stream` and `stream_chat`, for several calls.

        short = heddle.SamplingParams(max_tokens=24, temperature=0.8, stop="\\n")
        llm.generate(prompts, short)
        llm.chat("Hello", short.replace(seed=5))

    It takes what is drawn and where it ends: all keywords but those of adapters, of conversations,
    `keep_going` and `progress`. What is left out is as in a call without it. It does not change;
    `replace` makes another one.

    Raises:
        TypeError: No keyword has that name.
    """

    __slots__ = ("_options",)

    def __init__(self, **options: Unpack[Draws]) -> None:
        check_keywords("SamplingParams", options, _NAMES)
        object.__setattr__(self, "_options", dict(options))

    def replace(self, **options: Unpack[Draws]) -> SamplingParams:
        """The same with other values for these keywords."""
        return SamplingParams(**{**self._options, **options})

    def __getitem__(self, name: str) -> Any:
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __getattr__(self, name: str) -> Any:
        if name in _NAMES:
            return self._options.get(name)
        raise AttributeError(f"SamplingParams has no {name!r}", name=name, obj=self)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"SamplingParams do not change; use replace({name}=...)")

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return functools.partial(SamplingParams, **self._options), ()

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_NAMES})

    def __repr__(self) -> str:
        return f"SamplingParams({', '.join(f'{k}={v!r}' for k, v in self._options.items())})"


Params: TypeAlias = "SamplingParams | Sequence[SamplingParams | None] | None"
"""Of all prompts, or one for each."""


def _merged(params: object, options: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of a prompt.

    Raises:
        TypeError: It is no SamplingParams, or a keyword is given twice.
    """
    if params is None:
        return dict(options)
    if not isinstance(params, SamplingParams):
        kind = f"{type(params).__module__}.{type(params).__qualname__}"
        raise TypeError(f"sampling_params is {kind}, expected heddle.SamplingParams")
    for name in params:
        if name in options:
            raise TypeError(f"{name} is given twice: in sampling_params and as a keyword")
    return {**params, **options}


def options_of_each(
    params: Params, options: Mapping[str, Any], count: int
) -> list[tuple[dict[str, Any], int]]:
    """The keywords of each of `count` prompts, and what is added to its seed.

    Raises:
        ValueError: There is another number of `params` than one or `count`.
    """
    if not isinstance(params, Sequence) or isinstance(params, str):
        merged = _merged(params, options)
        return [(merged, i) for i in range(count)]
    if len(params) != count:
        raise ValueError(f"sampling_params has {len(params)} entries, expected one or {count}")
    own = [_merged(each, options) for each in params]
    has_seed = [each is not None and "seed" in each for each in params]
    return [(merged, 0 if has_seed[i] else i) for i, merged in enumerate(own)]
