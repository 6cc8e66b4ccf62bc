"""The model keeps the promises that every translation model makes."""

from mgu import MGU

from sgdec.models.base import ModelContext, Seq2Seq
from sgdec.testing.seq2seq_contract import Seq2SeqContract


class TestMGU(Seq2SeqContract):
    def make(self, context: ModelContext) -> Seq2Seq:
        return MGU(context, width=6, embedding=5)
