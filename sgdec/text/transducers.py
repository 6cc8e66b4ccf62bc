"""Transducers from one tokenizer's tokens to another's, for the predictor `fsttok`.

Words are separated by blanks, and a piece that begins with ``▁`` begins a word: SentencePiece's default, for models
of any kind. The transducers read *outer* tokens, those of the decoder, and write *inner* tokens, those of another
predictor.

**Canonical** (`canonical`): the outer tokens of each word of a list are translated to its inner tokens, each with the
tokenizer's own segmentation, so each outer sequence has one inner sequence. The transducer is a prefix tree of outer
tokens. At each node it writes the inner tokens that all words with this prefix have in common, as early as possible
(Mohri 1997, "Finite-state transducers in language and speech processing"). A failure arc (`sgdec.io.transducer`)
leads all other words, and other segmentations of listed words, to the replacement that `Unlisted` selects. No inner
token is written before all of its text is read, so that the written tokens are also a prefix of the replacement.

**Eager** (`eager`): the same tokens, but each is written with the outer token that completes its text, whatever the
rest of the word will be. So a prefix has a path for each way in which the words of the list that begin with it are
segmented up to there, and inner scores come as early as they can: for searches that compare prefixes, such as beams
over characters. Other words are replaced as a whole.

**All** (`all_segmentations`): any sequence of inner tokens with the same text. A piece is written with the outer
token that completes it. A state is the text that has been read and not yet written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

from sgdec.context import UNK
from sgdec.errors import UsageError
from sgdec.io.transducer import EPSILON, OTHERWISE, UNK_LABEL, TransducerArc
from sgdec.text.vocabulary import Tokenizer
from sgdec.text.words import BLANK

Unlisted = Literal["unk", "spell", "forbid"]
"""The replacement of the rest of a word that is not in the list: one ``<unk>``; its single characters, with one
``<unk>`` for consecutive characters that the inner vocabulary lacks; or none: the word is forbidden."""
UNLISTED: tuple[Unlisted, ...] = get_args(Unlisted)
ROOT = 0
"""The state between words, in which all text has been written."""


@dataclass
class Drawing:
    """A transducer under construction; state 0 is the start and final."""

    arcs: list[tuple[int, TransducerArc]] = field(default_factory=list)
    states: int = 1
    _tails: dict[tuple[tuple[int, ...], int], int] = field(default_factory=dict)

    def new_state(self) -> int:
        self.states += 1
        return self.states - 1

    def add(self, origin: int, label: int, written: Sequence[int], target: int) -> None:
        """Add an arc with this input label that writes these tokens; arcs with input epsilons after it write all but
        the first."""
        first = _label(written[0]) if written else EPSILON
        self.arcs.append((origin, TransducerArc(label, first, 0.0, self._tail(tuple(written[1:]), target))))

    def _tail(self, written: tuple[int, ...], target: int) -> int:
        """The state that writes these tokens and then goes to ``target``; equal states are shared."""
        if not written:
            return target
        state = self._tails.get((written, target))
        if state is None:
            state = self._tails[written, target] = self.new_state()
            self.add(state, EPSILON, written, target)
        return state


@dataclass(eq=False)
class _Node:
    """A prefix of outer tokens in the tree."""

    text: str = ""
    """Their text."""
    children: dict[int, _Node] = field(default_factory=dict)
    word: tuple[int, ...] | None = None
    """The inner tokens of the word that ends here."""
    shared: tuple[int, ...] = ()
    """The common prefix of the inner tokens of all words with this outer prefix."""
    before: tuple[_Node, int] | None = None
    """The node of the prefix without its last token, and that token; None for the root."""

    def after(self, token: int, text: str) -> _Node:
        return self.children.setdefault(token, _Node(self.text + text, before=(self, token)))

    @property
    def path(self) -> list[tuple[_Node, int]]:
        """The nodes from the root to this one, without the root, each with its last token."""
        found, node = [], self
        while node.before is not None:
            found.append((node, node.before[1]))
            node = node.before[0]
        return found[::-1]

    @cached_property
    def below(self) -> list[_Node]:
        """This node and all below it, each before its children."""
        found = [self]
        for node in found:
            found += node.children.values()
        return found


def words_of(outer: Tokenizer, inner: Tokenizer, lines: Iterable[str] = ()) -> list[str]:
    """The words of a text, and of a vocabulary if it has only words; each once, in order of appearance."""
    found = dict.fromkeys(word for line in lines for word in outer.words_in(line))
    for vocabulary in (outer, inner):
        if is_word_vocabulary(vocabulary):
            found.update(dict.fromkeys(text.removeprefix(BLANK) for text in _texts(vocabulary).values()))
    return list(found)


def is_word_vocabulary(vocabulary: Tokenizer) -> bool:
    """Whether every piece is a word."""
    return all(text.startswith(BLANK) and text != BLANK for text in _texts(vocabulary).values())


def canonical(
    outer: Tokenizer, inner: Tokenizer, words: Iterable[str], unlisted: Unlisted = "unk"
) -> tuple[Drawing, int]:
    """The transducer of a list of words, and the number of words that the outer vocabulary cannot spell.

    Raises UsageError if pieces do not begin words as SentencePiece's do by default.
    """
    texts = _texts(outer)
    root, skipped = _tree(outer, inner, texts, words)
    drawing = Drawing()
    other = None if unlisted == "forbid" else _Unlisted(drawing, texts, _letters(inner, unlisted))
    places = {root: ROOT}
    written_at: dict[_Node, tuple[int, ...]] = {}
    for node in root.below:
        state, written = places[node], written_at.get(node, ())
        for token, child in node.children.items():
            places[child] = drawing.new_state()
            written_at[child] = child.shared if other is None else _read_in_full(child, inner, child.shared)
            drawing.add(state, token, written_at[child][len(written) :], places[child])
        if node.word is not None:
            drawing.add(state, EPSILON, node.word[len(written) :], ROOT)
        if other is not None:
            if node is root:
                other.instead_of_first_tokens(node.children)
            else:
                rest = node.text[sum(len(inner.text_of(token) or "") for token in written) :]
                other.instead_of_the_rest(state, rest, may_end=node.word is None)
    return drawing, skipped


def eager(
    outer: Tokenizer, inner: Tokenizer, words: Iterable[str], unlisted: Unlisted = "unk"
) -> tuple[Drawing, int]:
    """The transducer of the same words that writes each inner token as soon as its text is read.

    Words that are not listed are replaced as a whole. Returns and raises the same as `canonical`.
    """
    texts = _texts(outer)
    root, skipped = _tree(outer, inner, texts, words)
    drawing = Drawing()
    places: dict[tuple[_Node, tuple[int, ...]], int] = {}
    """The state inside words after an outer prefix, if these inner tokens have been written."""
    for last in root.below:
        if last.word is None:
            continue
        state, before = ROOT, 0
        for node, token in last.path:
            whole = node is last
            after = len(last.word) if whole else len(_read_in_full(node, inner, last.word))
            place = node, last.word[:after]
            if whole or place not in places:
                target = ROOT if whole else places.setdefault(place, drawing.new_state())
                drawing.add(state, token, last.word[before:after], target)
            state, before = ROOT if whole else places[place], after
    if unlisted != "forbid":
        _add_unlisted(drawing, root, _Unlisted(drawing, texts, _letters(inner, unlisted)))
    return drawing, skipped


def _add_unlisted(drawing: Drawing, root: _Node, other: _Unlisted) -> None:
    """Add the paths of unlisted words: they write nothing until the word has left the list."""
    places = {root: ROOT}
    for node in root.below:
        for token, child in node.children.items():
            places[child] = drawing.new_state()
            drawing.add(places[node], token, (), places[child])
        if node is root:
            other.instead_of_first_tokens(node.children)
        else:
            other.instead_of_the_rest(places[node], node.text, may_end=node.word is None)


def all_segmentations(outer: Tokenizer, inner: Tokenizer) -> Drawing:
    """The transducer from every text of outer tokens to all its inner segmentations."""
    texts, pieces = _texts(outer), {text: token for token, text in _texts(inner).items()}
    beginnings = {text[:end] for text in pieces for end in range(1, len(text))}
    longest = max(map(len, pieces), default=0)
    drawing = Drawing()
    resting: dict[str, int] = {"": ROOT}
    """The state after reading this text, which begins a longer piece."""
    writing: dict[str, int] = {"": ROOT}
    """The state after reading this text, before the choice of the next piece."""
    waiting: list[tuple[str, bool]] = [("", True)]

    def place(known: dict[str, int], text: str) -> int:
        if text not in known:
            known[text] = drawing.new_state()
            waiting.append((text, known is resting))
        return known[text]

    def choose(state: int, label: int, text: str, longer_than: int) -> None:
        """Add the arcs of all possible next pieces."""
        if text in beginnings:
            drawing.add(state, label, (), place(resting, text))
        for end in range(longer_than + 1, min(len(text), longest) + 1):
            if text[:end] in pieces:
                drawing.add(state, label, (pieces[text[:end]],), place(writing, text[end:]))

    while waiting:
        text, rests = waiting.pop()
        if not rests:
            choose(writing[text], EPSILON, text, 0)
            continue
        for token, more in texts.items():
            choose(resting[text], token, text + more, len(text))
    return drawing


def spellings(outer: Tokenizer, inner: Tokenizer) -> tuple[dict[int, tuple[int, ...]], int]:
    """For `word2char`: the outer characters of each inner word, without ``▁``; and the number of words that are left
    out.

    Words with unknown characters are left out, and among words with the same spelling the first is kept. Raises
    UsageError unless the inner vocabulary is one of words.
    """
    if not is_word_vocabulary(inner):
        raise UsageError("the spellings of words need an inner vocabulary of words (sgdec tokenizer --kind word).")
    taken: dict[tuple[int, ...], int] = {}
    words = _texts(inner)
    for word, text in words.items():
        first, *letters = outer.encode(text.removeprefix(BLANK)) or (UNK,)
        if outer.text_of(first) != BLANK:
            raise UsageError("the spellings of words need an outer vocabulary of characters (--kind char).")
        if letters and UNK not in letters:
            taken.setdefault(tuple(letters), word)
    return {word: letters for letters, word in taken.items()}, len(words) - len(taken)


class _Unlisted:
    """The part of a transducer for words that are not in the list.

    States come in pairs, by whether an ``<unk>`` was written last, because consecutive characters that the inner
    vocabulary lacks give one ``<unk>``. In `_on` the word may end, in `_begun` it must continue.
    """

    def __init__(self, drawing: Drawing, texts: dict[int, str], letter: Callable[[str], int]) -> None:
        self._drawing = drawing
        self._texts = texts
        self._letter = letter
        self._on = [drawing.new_state(), drawing.new_state()]
        self._begun = [drawing.new_state(), drawing.new_state()]
        for unknown in (False, True):
            drawing.add(self._on[unknown], EPSILON, (), ROOT)
            for token, text in texts.items():
                if not text.startswith(BLANK):
                    written, after = self._spell(text, unknown)
                    for state in (self._on[unknown], self._begun[unknown]):
                        drawing.add(state, token, written, self._on[after])

    def instead_of_first_tokens(self, listed: Iterable[int]) -> None:
        """Add the arcs from the root for words that begin with other tokens."""
        listed = set(listed)
        others = [token for token, text in self._texts.items() if text.startswith(BLANK) and token not in listed]
        if others:
            state = self._drawing.new_state()
            self._drawing.add(ROOT, OTHERWISE, (), state)
            for token in others:
                written, unknown = self._spell(self._texts[token], False)
                self._drawing.add(state, token, written, self._on[unknown])

    def instead_of_the_rest(self, state: int, rest: str, may_end: bool) -> None:
        """Add the arcs from a state inside the list; ``rest`` is the text that was read and is not yet written."""
        written, unknown = self._spell(rest, False)
        self._drawing.add(state, OTHERWISE, written, (self._on if may_end else self._begun)[unknown])

    def _spell(self, text: str, unknown: bool) -> tuple[list[int], bool]:
        """The inner tokens of a text, and whether the last token written is ``<unk>``."""
        written: list[int] = []
        for character in text:
            token = self._letter(character)
            if token != UNK or not unknown:
                written.append(token)
            unknown = token == UNK
        return written, unknown


def _letters(inner: Tokenizer, unlisted: Unlisted) -> Callable[[str], int]:
    """A function from a character to its inner token."""
    known: dict[str, int] = {}
    if unlisted == "spell":
        for token, text in _texts(inner).items():
            known.setdefault(text, token)
    return lambda character: known.get(character, UNK)


def _texts(vocabulary: Tokenizer) -> dict[int, str]:
    """The text of each token that has text. Raises UsageError if blanks do not begin words."""
    found = {token: text for token in range(vocabulary.size) if (text := vocabulary.text_of(token)) is not None}
    for text in found.values():
        if BLANK in text[1:]:
            raise UsageError(
                f"piece {text!r} has a blank ({BLANK}) inside; expected pieces with blanks at their beginning only, "
                "as `sgdec tokenizer` makes them."
            )
    return found


def _tree(
    outer: Tokenizer, inner: Tokenizer, texts: dict[int, str], words: Iterable[str]
) -> tuple[_Node, int]:
    """The words as a tree of outer tokens, and the number of words that could not be spelled."""
    root, skipped = _Node(), 0
    listed = list(words)
    for tokens, written in zip(outer.encode_all(listed), inner.encode_all(listed), strict=True):
        if not tokens or UNK in tokens:
            skipped += 1
            continue
        if not texts.get(tokens[0], "").startswith(BLANK):
            raise _without_blank("outer", outer.piece(tokens[0]))
        if written and not (inner.text_of(written[0]) or BLANK).startswith(BLANK):
            raise _without_blank("inner", inner.piece(written[0]))
        node = root
        for token in tokens:
            node = node.after(token, texts.get(token, ""))
        if node.word is None:  # the first of words with equal outer tokens
            node.word = tuple(written)
    for node in reversed(root.below):
        ways_on = [child.shared for child in node.children.values()]
        node.shared = _common_beginning([*ways_on, *([node.word] if node.word is not None else [])])
    return root, skipped


def _without_blank(side: str, piece: str) -> UsageError:
    return UsageError(
        f"the {side} vocabulary begins a word with {piece!r}, not with {BLANK}; expected a model as `sgdec "
        "tokenizer` makes it. In byte-level BPE the first word of a line has no blank."
    )


def _common_beginning(several: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    first, last = min(several, default=()), max(several, default=())
    for place, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return first[:place]
    return first[: len(last)]


def _read_in_full(node: _Node, inner: Tokenizer, tokens: tuple[int, ...]) -> tuple[int, ...]:
    """The longest beginning of these inner tokens whose text is not longer than the text read at a node."""
    length = 0
    for place, token in enumerate(tokens):
        text = inner.text_of(token)
        if text is None or length + len(text) > len(node.text):
            return tokens[:place]
        length += len(text)
    return tokens


def _label(token: int) -> int:
    return UNK_LABEL if token == UNK else token
