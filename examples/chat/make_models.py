"""Make small chat models that answer sentences about people with JSON, in half a minute each, without network.

    python make_models.py WORK [MODEL...] [--habit spaced] [--steps 300]

A MODEL is SHAPE-TOKENIZER-TEMPLATE; without one, the four of `MODELS` are made. WORK receives a folder for each of
them, as transformers' `save_pretrained` writes it, 40 questions that no model has seen, their answers, and a schema.

    shape      gpt2, llama
    tokenizer  bytes (byte-level BPE), pieces (SentencePiece, BPE), unigram (SentencePiece, Unigram)
    template   chatml, inst (Llama 2)
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import people
import torch
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaTokenizer,
    PreTrainedTokenizerFast,
)

MODELS = ("gpt2-bytes-chatml", "llama-bytes-inst", "gpt2-unigram-chatml", "llama-pieces-inst")
CHATML = (
    "{% for turn in messages %}<|im_start|>{{ turn.role }}\n{{ turn.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
INST = (
    "{{ bos_token }}{% for turn in messages %}{% if turn.role == 'user' %}[INST] {{ turn.content }} [/INST]"
    "{% else %} {{ turn.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
MARKS = {
    "chatml": (CHATML, {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}),
    "inst": (INST, {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}),
}
VOCABULARY, POSITIONS = 700, 512
WIDTH, LAYERS, HEADS = 128, 2, 4
RATE, BATCH = 3e-3, 16
SPREAD = 0.08
"""The standard deviation of the first weights. With the usual 0.02, training takes at least twice as long."""
IGNORED = -100
"""The label of a token that PyTorch's loss leaves out."""

COMMAND = (
    "sgdec decode --predictors hf,grammar --hf.model {work}/{name} --hf.chat true "
    "--grammar.path {work}/person.json {work}/questions.txt"
)


def byte_level(texts: list[str]) -> Tokenizer:
    """Byte-level BPE, as in GPT-2 and Qwen."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def sentencepiece(texts: list[str], kind: str) -> bytes:
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=VOCABULARY, model_type=kind, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True,
        user_defined_symbols=["\n"], hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return model.getvalue()


def pieces(texts: list[str]) -> Tokenizer:
    """SentencePiece's BPE, as in Llama 2."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "tokenizer.model").write_bytes(sentencepiece(texts, "bpe"))
        config = b'{"tokenizer_class": "LlamaTokenizer", "legacy": false}'
        Path(folder, "tokenizer_config.json").write_bytes(config)
        return LlamaTokenizer.from_pretrained(folder).backend_tokenizer


def unigram(texts: list[str]) -> Tokenizer:
    """SentencePiece's Unigram, with the blanks of Llama 2."""
    learned = SentencePieceProcessor(model_proto=sentencepiece(texts, "unigram"))
    scored = [(learned.id_to_piece(id), learned.get_score(id)) for id in range(learned.vocab_size())]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    blanks = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(blanks)
    return tokenizer


def gpt2(ids: dict[str, Any]) -> Any:
    without_dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    shape = {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": POSITIONS}
    return GPT2LMHeadModel(GPT2Config(initializer_range=SPREAD, **shape, **without_dropout, **ids))


def llama(ids: dict[str, Any]) -> Any:
    shape = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    shape |= {"intermediate_size": 3 * WIDTH, "num_key_value_heads": HEADS // 2, "max_position_embeddings": POSITIONS}
    return LlamaForCausalLM(LlamaConfig(initializer_range=SPREAD, **shape, **ids))


SHAPES: dict[str, Callable[[dict[str, Any]], Any]] = {"gpt2": gpt2, "llama": llama}
TOKENIZERS: dict[str, Callable[[list[str]], Tokenizer]] = {"bytes": byte_level, "pieces": pieces, "unigram": unigram}


def tokenizer_of(kind: str, template: str, texts: list[str]) -> PreTrainedTokenizerFast:
    template_text, roles = MARKS[template]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=TOKENIZERS[kind](texts), **roles)
    if template == "chatml":
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.chat_template = template_text
    return tokenizer


def batch_of(tokenizer: Any, chats: Iterable[tuple[str, str]]) -> tuple[Tensor, Tensor, Tensor]:
    """Conversations, the mask of their tokens, and the labels: the answers, with the mark that ends them; each
    ``[rows, longest]``."""
    rows = []
    for question, answer in chats:
        turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        asked = tokenizer.apply_chat_template(turns[:1], add_generation_prompt=True, return_dict=False)
        ids = tokenizer.apply_chat_template(turns, return_dict=False)
        ids = ids[: len(ids) - ids[::-1].index(tokenizer.eos_token_id)]
        rows.append((ids, [IGNORED] * len(asked) + ids[len(asked) :]))
    longest = max(len(ids) for ids, _ in rows)

    def padded(row: list[int], filling: int) -> list[int]:
        return row + [filling] * (longest - len(row))

    return (
        torch.tensor([padded(ids, tokenizer.pad_token_id) for ids, _ in rows]),
        torch.tensor([padded([1] * len(ids), 0) for ids, _ in rows]),
        torch.tensor([padded(labels, IGNORED) for _, labels in rows]),
    )


def make(name: str, folder: Path, habit: str, steps: int) -> None:
    """Train one model, and write its folder."""
    shape, kind, template = name.split("-")
    write = people.HABITS[habit]
    sample = [text for question, person in islice(people.examples(1), 2000) for text in (question, write(person))]
    tokenizer = tokenizer_of(kind, template, sample)
    torch.manual_seed(1)
    roles = {f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("bos", "eos", "pad")}
    model = SHAPES[shape]({"vocab_size": len(tokenizer), **roles})
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.1)
    chats = ((question, write(person)) for question, person in people.examples(2))
    started = time.perf_counter()
    for step in range(1, steps + 1):
        ids, mask, labels = batch_of(tokenizer, islice(chats, BATCH))
        logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]  # [rows, longest - 1, V]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 0 or step == steps:
            print(f"{name}: step {step} of {steps}, loss {loss.item():.4f}, {time.perf_counter() - started:.0f} s")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--habit", choices=people.HABITS, default="spaced", help="how the answers are written")
    parser.add_argument("--steps", type=int, default=300)
    given = parser.parse_args()
    torch.set_num_threads(1)  # models this small gain nothing from more
    given.work.mkdir(parents=True, exist_ok=True)
    questions, answers = zip(*people.held_out(), strict=True)
    for name, lines in {"questions.txt": questions, "answers.jsonl": map(json.dumps, answers)}.items():
        (given.work / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (given.work / "person.json").write_text(json.dumps(people.SCHEMA, indent=2), encoding="utf-8")
    for name in given.models:
        make(name, given.work / name, given.habit, given.steps)
    print(f"Ask the last one:\n    {COMMAND.format(work=given.work, name=given.models[-1])}")


if __name__ == "__main__":
    main()
