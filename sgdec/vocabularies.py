"""Vocabularies: words, characters, bytes, SentencePiece models, tokenizers of Hugging Face; and their pieces."""

from __future__ import annotations

from sgdec.text.byte_vocabulary import ByteVocabulary
from sgdec.text.model_folder import CONFIG, has_tokenizer, quiet, read_config, reading, reason
from sgdec.text.pieces import BPE, BYTE, NORMAL, UNIGRAM, UNUSED, USER_DEFINED, PieceModel, read_model
from sgdec.text.pretrained import PretrainedVocabulary, Roles, load_pretrained, read_roles, roles_of
from sgdec.text.right_left import RightToLeft
from sgdec.text.sentencepiece import SentencePieceVocabulary
from sgdec.text.steps import Stepping
from sgdec.text.vocabulary import load_sides, load_vocabulary
from sgdec.text.words import BEGIN, BLANK, END, MIDDLE, SPECIAL, MixedVocabulary, WordVocabulary

__all__ = [
    "BEGIN",
    "BLANK",
    "BPE",
    "BYTE",
    "CONFIG",
    "END",
    "MIDDLE",
    "NORMAL",
    "SPECIAL",
    "UNIGRAM",
    "UNUSED",
    "USER_DEFINED",
    "ByteVocabulary",
    "MixedVocabulary",
    "PieceModel",
    "PretrainedVocabulary",
    "RightToLeft",
    "Roles",
    "SentencePieceVocabulary",
    "Stepping",
    "WordVocabulary",
    "has_tokenizer",
    "load_pretrained",
    "load_sides",
    "load_vocabulary",
    "quiet",
    "read_config",
    "read_model",
    "read_roles",
    "reading",
    "reason",
    "roles_of",
]
