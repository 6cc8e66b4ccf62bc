"""Difficult values: numbers and words that have caused defects in programs, here or elsewhere."""

from __future__ import annotations

from typing import Any

NUMBERS = (
    "0", "1", "-1", "2", "3", "7", "99", "0.5", "-0.0", "00", "007", "+1", ".5", "5.", "1e3", "1_000", "1,5",
    "0x10",
    "1e", "--1", "²", "½", "٣", "９", "nan", "-nan", "inf", "-inf", "Infinity", "1e-320", "1e38", "1e39",
    "1e308",
    "-1e308", "1e309", "127", "128", "255", "256", "32768", "65536", "999999", "2147483647", "2147483648",
    "-2147483648", "4294967295", "4294967296", "999999999", "1000000000", "9223372036854775807",
    "9223372036854775808", "-9223372036854775809", "18446744073709551616", "1" + "0" * 30, "9" * 400,
    "9" * 4301,
)  # fmt: skip
WORDS = (
    "", " ", "x", "é", "日本", "😀", "e\u0301", "\ufeff", "\u00a0", "\u2028", "\x85", "\t", "\0", "\x1b[31m", "\\",
    "'", '"', "<s>", "</s>", "<unk>", "<dr>", "<oov>", "|||", "=", ":", ",", "#", "%", "%s", "{", "{}", "{id}",
    "[", "]", "-", "--", "_", "▁", "..", "X1", "X1_X1", "True", "null", "\\data\\", "\\end\\", "a" * 5000,
    "a " * 2000,
)  # fmt: skip
RAW = (
    b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\0", b"\r", b"\n\n", b"\x1f\x8b",
    b"\xef\xbb\xbf",
)  # fmt: skip
"""Bytes that are not text, or that separate lines."""
PATHS = (
    "none", "none/none", "", ".", "..", "a\nb", "é", "a b", "{id}", "/dev/null", "-", "x" * 300,
    "\udcff",
)  # fmt: skip
"""Paths other than the files of a case."""
INTEGERS = (
    0, 1, 2, 3, 5, 7, 8, 16, 100, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 1 << 20, 1 << 24, 999_999_999,
    1_003_000_000, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63,
    (1 << 64) - 1,
)  # fmt: skip
"""Integers for binary files, in which -1 is the largest unsigned number."""
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-40, 1e38, -1e38, float("inf"), float("-inf"), float("nan"))
JSON: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 0.5, 1e308, float("nan"), float("inf"), 2**31, 2**63 - 1, 2**63,
    10**30,
    200_000, 2_000_000_000, "", "x", "\0", "\ud800", "1", "a" * 5000, [], {}, [[]], [0], [None], {"": None},
    [1, 2, 3], ["a", "b"],
)  # fmt: skip

FILES = (
    "../outside.safetensors", "/etc/hostname", "pytorch_model.bin", "model.safetensors", "config.json", ".",
    "..", "",
    "model-00001-of-00002.safetensors", "model-00009-of-00002.safetensors", "a/b.safetensors", "\0", "x" * 300,
)  # fmt: skip
"""Names of files in an index of weights."""
OF_CONFIG = (
    "model_type", "architectures", "vocab_size", "decoder_vocab_size", "num_hidden_layers", "n_layer",
    "encoder_layers", "decoder_layers", "max_position_embeddings", "n_positions", "hidden_size", "d_model",
    "n_embd",
    "num_attention_heads", "n_head", "num_key_value_heads", "head_dim", "intermediate_size", "d_ff", "d_kv",
    "eos_token_id", "bos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id",
    "bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "max_length", "min_length", "num_beams",
    "quantization_config", "auto_map", "trust_remote_code", "rope_scaling", "rope_parameters", "rope_theta",
    "sliding_window", "layer_types", "text_config", "encoder", "decoder", "is_encoder_decoder", "is_decoder",
    "tie_word_embeddings", "share_encoder_decoder_embeddings", "dtype", "torch_dtype", "hidden_act",
    "activation_function", "attn_implementation", "relative_attention_num_buckets",
    "relative_attention_max_distance",
    "static_position_embeddings", "scale_embedding", "num_experts", "problem_type", "num_labels",
    "transformers_version",
    "tokenizer_class", "model_max_length", "added_tokens_decoder", "additional_special_tokens", "chat_template",
    "source_lang", "target_lang", "use_fast", "from_slow", "metadata", "weight_map", "total_size",
)  # fmt: skip
"""Keys of the files of a Hugging Face folder."""
IN_CONFIG: tuple[Any, ...] = (
    300_000_000, 1 << 20, -2, "gpt2", "llama", "t5", "bart", "marian", "mamba", "mixtral", "bert",
    "encoder-decoder",
    "float16", "bfloat16", "float8_e4m3fn", "int8", "auto", ["GPT2LMHeadModel"], ["BertModel"], ["Nothing"],
    {"quant_method": "bitsandbytes"}, {"quant_method": "gptq", "bits": 4}, {"quant_method": "x"},
    {"AutoModelForCausalLM": "modeling.Own"}, {"AutoTokenizer": ["own.Own", None]}, {"rope_type": "yarn",
    "factor": 0},
    {"rope_type": "dynamic", "factor": 1e300}, {"type": "linear", "factor": 2.0}, [[5]], [[]], [[999999]], [5,
    5],
    "TokenizersBackend", "MarianTokenizer", "T5Tokenizer", "GPT2Tokenizer", "LlamaTokenizer", "BertTokenizer",
    "{{ 1 / 0 }}", {"5": {"content": "x", "special": True}}, {"-1": {"content": "<end>"}},
    {"9": {"content": ""}},
    "gelu", "relu", "nothing", "3.4e38", *FILES,
)  # fmt: skip
_REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
_ENDS = {"<end>": {"id": "<end>", "ids": [5], "tokens": ["<end>"]}, "x": {"id": "x", "ids": [99999], "tokens": ["x"]}}
IN_TOKENIZER: tuple[Any, ...] = (
    _REPLACE, {"type": "Sequence", "normalizers": [_REPLACE] * 40}, {"type": "Prepend", "prepend": "x" * 999},
    {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""},
    {"type": "Replace", "pattern": {"String": ""}, "content": "aaaa"}, {"type": "Strip", "content": "a",
    "start": 9},
    {"type": "Replace", "pattern": {"Regex": "("}, "content": ""}, {"type": "Strip", "strip_left": True},
    {"type": "Precompiled", "precompiled_charsmap": "AAAA"}, {"type": "Precompiled",
    "precompiled_charsmap": None},
    {"type": "Lowercase"}, {"type": "NFKC"}, {"type": "Nmt"}, {"type": "BertNormalizer"}, {"type": "ByteLevel"},
    {"type": "Split", "pattern": {"Regex": "(?:a|b)*c"}, "behavior": "Isolated", "invert": False},
    {"type": "Split", "pattern": {"String": ""}, "behavior": "Removed", "invert": True}, {"type": "Whitespace"},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}, {"type": "Fuse"},
    {"type": "Metaspace", "replacement": "ab", "prepend_scheme": "never"}, {"type": "ByteFallback"},
    {"type": "Sequence", "pretokenizers": []}, {"type": "Sequence", "decoders": []}, {"type": "Digits"},
    {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x", "type_id": 0}}], "pair": [],
     "special_tokens": _ENDS},
    {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 50, "pair": [],
     "special_tokens": {}},
    {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "none", "type_id": 0}}], "pair": [],
     "special_tokens": _ENDS},
    {"type": "BertProcessing", "sep": ["x", 99999], "cls": ["<end>", 5]}, {"type": "WordPiece", "prefix": "##"},
    {"type": "RobertaProcessing", "sep": ["<end>", 5], "cls": ["x", 1 << 32], "trim_offsets": True},
    {"type": "WordLevel", "vocab": {"a": 0, "<end>": 5}, "unk_token": "none"}, {"type": "CTC"},
    {"type": "WordLevel", "vocab": {}, "unk_token": ""}, {"type": "BPE", "vocab": {}, "merges": []},
    {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "none", "max_input_chars_per_word": 0},
    {"type": "Unigram", "vocab": [["a", 0.0], ["b", -1.0]], "unk_id": 7}, {"type": "Unigram", "vocab": []},
    {"type": "Unigram", "vocab": [["a", float("nan")]], "unk_id": None}, {"type": "Unigram", "vocab": [["",
    0.0]]},
    {"type": "BPE", "vocab": {"a": 0, "b": 1 << 31}, "merges": [["a", "b"]]}, {"type": "BPE", "dropout": 2.0},
    {"type": "BPE", "vocab": {"a": 0, "aa": 1}, "merges": ["a a", "aa aa"], "byte_fallback": True},
    {"id": 1 << 31, "content": "x", "special": True}, {"id": 5, "content": "", "special": True,
    "normalized": True},
    {"id": 0, "content": "a" * 5000, "single_word": True, "lstrip": True, "rstrip": True, "special": False},
    {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 5},
    {"strategy": {"Fixed": 1 << 40}, "direction": "Left", "pad_to_multiple_of": 0, "pad_id": 9,
    "pad_token": "x"},
    {"strategy": {"Fixed": 1 << 24}, "direction": "Right", "pad_id": 5, "pad_type_id": 0, "pad_token": "<end>"},
    *IN_CONFIG,
)  # fmt: skip
"""Parts of a tokenizer.json."""
OF_TOKENIZER = (
    "normalizer", "pre_tokenizer", "post_processor", "decoder", "model", "truncation", "padding",
    "added_tokens",
    "type", "vocab", "merges", "unk_token", "unk_id", "single", "special_tokens", "ids", "normalizers",
    "content",
    "byte_fallback", "ignore_merges", "continuing_subword_prefix", "end_of_word_suffix", "dropout", "version",
)  # fmt: skip
_HARD = "(a|b)*a(a|b){19}"
OF_SCHEMA = (
    "type", "pattern", "minLength", "maxLength", "minItems", "maxItems", "multipleOf", "format", "enum",
    "const",
    "anyOf", "oneOf", "allOf", "not", "$ref", "$defs", "definitions", "patternProperties",
    "additionalProperties",
    "required", "properties", "minimum", "exclusiveMaximum", "uniqueItems", "if", "items", "prefixItems",
    "contains",
)  # fmt: skip
IN_SCHEMA: tuple[Any, ...] = (
    {"$ref": "#"}, {"$ref": "other.json"}, {"$ref": "#/items"}, {"$ref": "http://x.invalid"}, "#", "#/$defs/x",
    {"type": "string", "pattern": _HARD}, {"type": "string", "maxLength": 10**6}, {"type": "integer",
    "maximum": 1e9},
    {"type": "number", "multipleOf": 1e-9}, {"enum": []}, {"type": []}, {"not": {}}, {"type": "string"}, 10**6,
    _HARD,
    {"anyOf": [{"type": "integer"}] * 500}, {"type": "array", "minItems": 10**5, "items": {"type": "integer"}},
    {"type": "object", "patternProperties": {_HARD: {}}}, "date-time", "regex", "object", "array", "null", "(",
    True,
    {"allOf": [{"type": "string"}, {"pattern": "a*"}, {"pattern": "b*"}, {"maxLength": 3}]},
)  # fmt: skip
LARK = (
    "start: start", "a: a a |", "start: word", "%import common.WORD", "%ignore /a*/", "%ignore word",
    f"X: /{_HARD}/",
    "word: \"a\"~1..100000", "word: \"a\"~1000 word?", "Y: Y \"a\"", "Z: /(/", "%json {\"type\": \"string\"}",
    "?x: y",
    "word: /(?i:é)+/i", "word: <|end|>", "word: <[5]>", "word: %regex {}", "word: \"\\u{110000}\"", "!x: ()",
    "x[y]: y",
    "w: " + "(" * 500 + "\"a\"" + ")" * 500, "w: " + " | ".join("\"a\"" for _ in range(2000)),
)  # fmt: skip
"""Lines of a grammar."""
ATOMS = (
    "a", "b", ".", "[ab]", "[^a]", r"\w", r"\W", r"\d", r"\s", r"\S", r"\p{L}", r"\pZ", "[[:alpha:]]", "é",
    "日", r"\x61",
    r"\u{10FFFF}", "(?i)a", "^", "$", r"\b", "()", "[]", "[z-a]", "(?=a)", "(?<!b)", r"\1", r"\Q", "{", "|",
    " ", r"\n",
    "[a-z0-9]", r"[\w--\d]", r"[\s\S]", "(?P<x>a)", "\\", "[", "(", "]", "😀", "[\u0100-\U0010ffff]", _HARD,
)  # fmt: skip
"""The smallest parts of regular expressions, good and bad."""
REPEATS = (
    "*", "+", "?", "{3}", "{0,19}", "{2,}", "{100}", "{1000}", "{100000}", "{1000000}", "{1,1000000}", "{,3}",
    "{3,1}",
    "*?", "++", "{0}", "{99999999999999999999}",
)  # fmt: skip
MEMBERS = (
    "rows", "failed.jsonl", "about.json", "versions.jsonl", "1.fst", "2.fst", "../x", "/abs", "a/../../x",
    "rows/x", "",
    "C:\\x", "\0", "a" * 300, "é.fst", "0.fst", "999999999999.fst",
)  # fmt: skip
"""Names of members of the result of a chunk."""
PLACES = (
    "results/000000/000000000.zip", "results/000000/000000003.zip", "results/000000/x.zip",
    "parts/000000000/0-1.zip",
    "parts/000000001/1-1.zip", "again/000000001/0-1.zip", "undecided/000000000-0", "undecided/x",
    "leases/000000/0",
    "leases/000000/000000000", "starters/b.json", "tokens/x", "inputs/0", "manifest.json", "x", ".hidden",
)  # fmt: skip
"""Places in the folder of a corpus."""
LINKS = ("/dev/zero", "/dev/null", "none", ".", "/etc/hostname", "../..")
"""Targets of symbolic links."""
