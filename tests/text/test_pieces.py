"""The pieces of a SentencePiece model, read from its file, are those that its library knows."""

from __future__ import annotations

from sgdec.text.pieces import BPE, BYTE, UNIGRAM, read_model
from tests.helpers.vocabularies import trained


def test_pieces_have_the_scores_and_types_of_the_library() -> None:
    for kind, options in ((UNIGRAM, {"byte_fallback": True, "vocab_size": 400}), (BPE, {"model_type": "bpe"})):
        vocabulary = trained(**options)  # type: ignore[arg-type]
        found, at_ends, pieces = read_model(vocabulary.serialized)
        assert found == kind and len(pieces) == vocabulary.size and not at_ends
        library = vocabulary._processor
        for token, piece in enumerate(pieces):
            assert piece.text == vocabulary.piece(token)
            assert piece.score == library.get_score(token)
            assert (piece.type == BYTE) == library.is_byte(token)
            assert (piece.type == 3) == library.is_control(token)


def test_the_place_of_blanks_is_read() -> None:
    assert read_model(trained(treat_whitespace_as_suffix=True).serialized).blanks_at_ends
