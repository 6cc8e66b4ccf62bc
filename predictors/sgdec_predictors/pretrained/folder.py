"""The folder of a model, and its vocabularies; without its weights."""

from __future__ import annotations

from pathlib import Path

from sgdec.context import Vocabularies
from sgdec.errors import SgdecError
from sgdec.vocabularies import has_tokenizer, load_pretrained, reading

ADAPTER = "adapter_config.json"
"""The settings of an adapter of the library peft, such as LoRA: small weights that change those of another model."""
GGUF = ".gguf"
__all__ = ["find_folder", "reading", "vocabularies_in"]


def find_folder(model: str, *, download: bool = False) -> Path:
    """The folder of a model that is named by its folder, or by its name on Hugging Face's site.

    A name is looked up in the local cache; with ``download`` what is missing there is fetched. Raises `SgdecError`,
    also for formats of weights that are not read: adapters, and files of llama.cpp.
    """
    folder = _find(model, download)
    if (folder / ADAPTER).is_file():
        raise SgdecError(
            f"{folder / ADAPTER}: adapters are not read. Merge it into its model: load it with peft's "
            "AutoPeftModelForCausalLM (or ...ForSeq2SeqLM), then model.merge_and_unload().save_pretrained(FOLDER). "
            "If this folder has the merged model, remove the file."
        )
    if not any(folder.glob("*.safetensors")):
        for file in sorted(folder.glob(f"*{GGUF}")):
            raise _of_llama_cpp(file)
    return folder


def _of_llama_cpp(file: str | Path) -> SgdecError:
    return SgdecError(
        f"{file}: files {GGUF} of llama.cpp are not read. Give the folder of the model from which it was made, with "
        "config.json and model.safetensors."
    )


def _find(model: str, download: bool) -> Path:
    """The folder, whatever its files are."""
    if not model:
        raise SgdecError("hf: the model has no name. Give --hf.model FOLDER, or a name on Hugging Face's site.")
    if Path(model).is_dir():
        return Path(model)
    if model.endswith(GGUF):
        raise _of_llama_cpp(model)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    if model.count("/") > 1 or model.startswith((".", "/", "~")):
        raise SgdecError(f"{model}: no such folder.")
    wanted = ["*.json", "*.safetensors", "*.model", "*.spm", "*.txt", "*.jinja"]
    try:
        return Path(snapshot_download(model, allow_patterns=wanted, local_files_only=not download))
    except HFValidationError:
        raise SgdecError(f"{model}: no such folder, and no name of a model.") from None
    except Exception as error:  # the library raises errors of many types for what it cannot reach
        if not download:
            raise SgdecError(
                f"{model}: no such folder, and no model of this name in the local cache. Give a folder, or allow the "
                "download: --hf.download true."
            ) from None
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise SgdecError(f"{model}: it cannot be downloaded: {reason}.") from None


def vocabularies_in(
    folder: Path, *, source_language: str | None = None, target_language: str | None = None
) -> Vocabularies:
    """The vocabularies of a model's tokenizer; unknown ones if the folder has none.

    The languages are codes of the tokenizer. Raises the errors of `load_pretrained`.
    """
    if not has_tokenizer(folder):
        return Vocabularies()
    return Vocabularies(*load_pretrained(folder, source_language=source_language, target_language=target_language))
