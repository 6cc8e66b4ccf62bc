"""The input of a model for a source: its tokens with the marks that the model expects, in a prompt, or in a chat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgdec.errors import SgdecError, UsageError
from sgdec.protocol import Source

if TYPE_CHECKING:
    from sgdec.vocabularies import PretrainedVocabulary

PLACE = "{source}"


class Reader:
    """Turns sources into what a model reads."""

    def __init__(
        self,
        prompt: str | None = None,
        chat: bool = False,
        vocabulary: PretrainedVocabulary | None = None,
        *,
        source: bool = True,
    ) -> None:
        r"""``prompt``: a text with ``{source}``, in which ``\n`` and ``\t`` are a line break and a tab.

        ``vocabulary``: None = sources are read as they are. ``source``: False = they are not read at all, and a
        prompt has no ``{source}``. Raises UsageError for a prompt that does not fit, and if text is needed and there
        is no tokenizer.
        """
        if prompt is not None and source and PLACE not in prompt:
            raise UsageError(f"hf: the prompt {prompt!r} has no {PLACE}, the place of the source.")
        if prompt is not None and not source and PLACE in prompt:
            raise UsageError(f"hf: the prompt {prompt!r} has {PLACE}, but the source is not read (source false).")
        if vocabulary is None and (prompt is not None or chat):
            raise UsageError("hf: a prompt or a chat needs a tokenizer, and the folder of the model has none.")
        self._template = "" if prompt is None else prompt.replace(r"\n", "\n").replace(r"\t", "\t")
        if prompt is None and source:
            self._template = PLACE
        self._vocabulary, self._chat, self._source = vocabulary, chat, source
        self._plain = prompt is None and not chat

    def tokens(self, source: Source) -> tuple[int, ...]:
        """The tokens that the model reads, in its vocabulary.

        Raises SgdecError if a prompt would turn text of the source into a special token.
        """
        if self._vocabulary is None:
            return tuple(source.tokens) if self._source else ()
        if self._plain:
            return self._vocabulary.wrap(source.tokens if self._source else ())
        filled = self._template.replace(PLACE, self._text(source)) if self._source else self._template
        if self._chat:
            return self._vocabulary.encode_chat(filled)
        return self._vocabulary.wrap(self._vocabulary.encode_prompt(filled))

    def _text(self, source: Source) -> str:
        assert self._vocabulary is not None
        text = source.spell(self._vocabulary)
        mark = self._vocabulary.mark_in(text)
        if mark is not None:
            raise SgdecError(
                f"the source contains {mark}, which would be a special token in a prompt. Remove it from the text."
            )
        return text

    def place(self, source: Source) -> slice:
        """The places of the source's own tokens among `tokens`, without a prompt."""
        if self._vocabulary is None:
            return slice(0, len(source.tokens))
        before = self._vocabulary.wrap((-1,)).index(-1)
        return slice(before, before + len(source.tokens))
