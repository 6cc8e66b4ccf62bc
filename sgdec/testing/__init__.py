"""The conformance kit: classes that a plugin's author subclasses in their own pytest suite.

    from sgdec import Source
    from sgdec.testing import DecoderContract, PredictorContract

    class TestMine(PredictorContract):
        vocab_size = 8

        def make(self):
            return Mine(penalty=0.5)

Every promise of the protocol is then one test, which names the broken promise when it fails. `promises` returns them
as values, to run them without pytest. `PredictorSearchContract` is for predictors that exact searches can use;
`ExactDecoderContract` and `BeamContract` add the promises of exact decoders and of beam search to `DecoderContract`;
`UtilityContract` is for utilities.
The contracts of models are in `sgdec.testing.seq2seq_contract` and `sgdec.testing.language_model_contract`.
"""

from sgdec.testing.beam_contract import BeamContract
from sgdec.testing.decoder_contract import DecoderContract
from sgdec.testing.enumeration import Path, enumerate_space, score_path
from sgdec.testing.exact_decoder_contract import ExactDecoderContract
from sgdec.testing.predictor_contract import PredictorContract
from sgdec.testing.predictor_search_contract import PredictorSearchContract
from sgdec.testing.promises import Promise, breach, promises
from sgdec.testing.random_spaces import random_lattice, random_space
from sgdec.testing.tiny_spaces import TinySpace, tiny_spaces
from sgdec.testing.toys import BatchTable, Bonus, Forced, Lattice, OnDemandTable, PassThrough, Table
from sgdec.testing.utility_contract import UtilityContract

__all__ = [
    "BatchTable",
    "BeamContract",
    "Bonus",
    "DecoderContract",
    "ExactDecoderContract",
    "Forced",
    "Lattice",
    "OnDemandTable",
    "PassThrough",
    "Path",
    "PredictorContract",
    "PredictorSearchContract",
    "Promise",
    "Table",
    "TinySpace",
    "UtilityContract",
    "breach",
    "enumerate_space",
    "promises",
    "random_lattice",
    "random_space",
    "score_path",
    "tiny_spaces",
]
