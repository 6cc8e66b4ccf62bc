"""Folders with the tokenizer and config of each family of Hugging Face models, trained on a few lines in a second."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

TEXT = [
    "the cat sat on the mat", "a dog ran in the park", "le chat est là", "der Hund läuft im Park",
    "Ünïcödé tést", "日本語 の 文", "emoji 🙂 here", "the the the cat cat", "numbers 12 and 345, too!",
] * 10  # fmt: skip


def _spm(path: Path, size: int, **options: Any) -> list[str]:
    """Train a SentencePiece model; its pieces."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_writer=model, vocab_size=size, hard_vocab_limit=False, minloglevel=2,
        **options,
    )  # fmt: skip
    path.write_bytes(model.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return [processor.id_to_piece(id) for id in range(processor.vocab_size())]


def _config(folder: Path, **config: Any) -> None:
    (folder / "config.json").write_text(json.dumps(config))


def _byte_level(special: list[str], after: Any = None) -> Any:
    """A byte-level BPE backend whose special tokens have the first ids."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    backend.train_from_iterator(TEXT, trainer)
    if after is not None:
        backend.post_processor = after(backend)
    return backend


def _save(backend: Any, folder: Path, kind: str, **roles: Any) -> int:
    """Write a backend as tokenizer.json with its config; the number of ids."""
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind, **roles}))
    return int(backend.get_vocab_size())


def t5(folder: Path) -> None:
    """A SentencePiece model alone; the model has more rows than the tokenizer has ids."""
    _spm(folder / "spiece.model", 90, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    _config(
        folder, model_type="t5", vocab_size=256, eos_token_id=1, pad_token_id=0, decoder_start_token_id=0,
        is_encoder_decoder=True,
    )  # fmt: skip


def marian(folder: Path) -> None:
    """Two SentencePiece models and one vocabulary, without unseen characters in the source's."""
    pieces = _spm(folder / "source.spm", 80) + _spm(folder / "target.spm", 70, model_type="bpe")
    kept = [piece for piece in dict.fromkeys(pieces) if piece not in ("<unk>", "<s>", "</s>")]
    listed = ["</s>", "<unk>", ">>fra<<", *kept, "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: id for id, piece in enumerate(listed)}))
    pad = len(listed) - 1
    _config(
        folder, model_type="marian", vocab_size=pad + 1, eos_token_id=0, bos_token_id=0, pad_token_id=pad,
        decoder_start_token_id=pad, forced_eos_token_id=0, is_encoder_decoder=True,
    )  # fmt: skip


def marian_separate(folder: Path) -> None:
    """Two SentencePiece models with a vocabulary each."""
    sizes = []
    for side, name, kind in (("source", "vocab", "bpe"), ("target", "target_vocab", "unigram")):
        pieces = _spm(folder / f"{side}.spm", 80, model_type=kind)[3:]
        listed = ["</s>", "<unk>", *pieces, "<pad>"]
        (folder / f"{name}.json").write_text(json.dumps({piece: id for id, piece in enumerate(listed)}))
        sizes.append(len(listed))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "MarianTokenizer", "separate_vocabs": True})
    )
    _config(
        folder, model_type="marian", vocab_size=sizes[0], decoder_vocab_size=sizes[1], eos_token_id=0,
        bos_token_id=None, pad_token_id=sizes[1] - 1, decoder_start_token_id=sizes[1] - 1, is_encoder_decoder=True,
        share_encoder_decoder_embeddings=False, tie_word_embeddings=False,
    )  # fmt: skip


def bart(folder: Path) -> None:
    """Byte-level BPE between ``<s>`` and ``</s>``."""
    from tokenizers import processors

    backend = _byte_level(
        ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        lambda backend: processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False),
    )
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    rows = _save(backend, folder, "BartTokenizer", **special, mask_token="<mask>", cls_token="<s>", sep_token="</s>")
    _config(
        folder, model_type="bart", vocab_size=rows, bos_token_id=0, eos_token_id=2, pad_token_id=1,
        decoder_start_token_id=2, forced_bos_token_id=0, forced_eos_token_id=2, is_encoder_decoder=True,
    )  # fmt: skip


def gpt2(folder: Path) -> None:
    """Byte-level BPE; one token has all roles, and it has the last id."""
    backend = _byte_level([])
    backend.add_special_tokens(["<|endoftext|>"])
    roles = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
    rows = _save(backend, folder, "GPT2Tokenizer", **roles)
    _config(folder, model_type="gpt2", vocab_size=rows, bos_token_id=rows - 1, eos_token_id=rows - 1)


def mbart(folder: Path) -> None:
    """A SentencePiece model alone, with a language after ``</s>``."""
    pieces = _spm(folder / "sentencepiece.bpe.model", 90)
    from transformers import AutoTokenizer

    _config(folder, model_type="mbart", vocab_size=10_000, eos_token_id=2, bos_token_id=0, pad_token_id=1)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "MBartTokenizer", "src_lang": "en_XX", "tgt_lang": "de_DE"})
    )
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert len(pieces) < len(tokenizer)
    _config(
        folder, model_type="mbart", vocab_size=len(tokenizer), eos_token_id=2, bos_token_id=0, pad_token_id=1,
        decoder_start_token_id=tokenizer.convert_tokens_to_ids("de_DE"), forced_eos_token_id=2,
        is_encoder_decoder=True,
    )  # fmt: skip


def nllb(folder: Path) -> None:
    """BPE over ``▁`` in tokenizer.json, with a language before the text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    special = ["<s>", "<pad>", "</s>", "<unk>"]
    languages = ["eng_Latn", "deu_Latn", "fra_Latn"]
    backend = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    special = [*special, *languages, "<mask>"]
    backend.train_from_iterator(
        TEXT, trainers.BpeTrainer(vocab_size=150, special_tokens=special, show_progress=False)
    )
    rows = _save(
        backend, folder, "NllbTokenizer", bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>",
        mask_token="<mask>", src_lang="eng_Latn", tgt_lang="fra_Latn", extra_special_tokens=languages,
    )  # fmt: skip
    _config(
        folder, model_type="m2m_100", vocab_size=rows, eos_token_id=2, bos_token_id=0, pad_token_id=1,
        decoder_start_token_id=2, is_encoder_decoder=True,
    )  # fmt: skip


def llama(folder: Path) -> None:
    """BPE over ``▁`` with bytes, and ``<s>`` before a text."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    backend = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")  # no piece spans two words
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    ascii_only = [line for line in TEXT if line.isascii()]
    backend.train_from_iterator(
        ascii_only, trainers.BpeTrainer(vocab_size=340, special_tokens=special, show_progress=False)
    )
    content = json.loads(backend.to_str())
    content["added_tokens"] = content["added_tokens"][:3]  # bytes are ordinary pieces
    content["pre_tokenizer"] = None
    backend = Tokenizer.from_str(json.dumps(content))
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    rows = _save(
        backend, folder, "PreTrainedTokenizerFast", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    _config(folder, model_type="llama", vocab_size=rows, bos_token_id=1, eos_token_id=2)


def qwen(folder: Path) -> None:
    """Byte-level BPE with marks of a chat, two ids that end a text, and rows without a token."""
    backend = _byte_level([])
    backend.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    backend.add_tokens(["two words\tand\nmore"])
    end = backend.token_to_id("<|im_end|>")
    rows = _save(
        backend, folder, "PreTrainedTokenizerFast", eos_token="<|im_end|>", pad_token="<|endoftext|>",
        unk_token="<|endoftext|>",
    )  # fmt: skip
    _config(folder, model_type="qwen2", vocab_size=rows + 5, bos_token_id=end - 2, eos_token_id=end)
    (folder / "generation_config.json").write_text(
        json.dumps({"eos_token_id": [end, end - 2], "bos_token_id": end - 2})
    )


def neox(folder: Path) -> None:
    """Byte-level BPE; one token has all roles, and it has the id 0."""
    roles = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
    rows = _save(_byte_level(["<|endoftext|>", "<|padding|>"]), folder, "GPTNeoXTokenizer", **roles)
    _config(folder, model_type="mamba", vocab_size=rows + 2, bos_token_id=0, eos_token_id=0, pad_token_id=0)


FAMILIES: dict[str, Callable[[Path], None]] = {
    "t5": t5, "marian": marian, "marian-separate": marian_separate, "bart": bart, "gpt2": gpt2, "mbart": mbart,
    "nllb": nllb, "llama": llama, "qwen": qwen, "neox": neox,
}  # fmt: skip
