"""Models: one file for each, and the layers that they share.

`base` has the interface: a `Seq2Seq` encodes a source once and then takes one inference step at a time, a
`LanguageModel` only takes steps. Predictors, validation and the reference implementation of the training loop use the
same step. Training may compute all steps at once if the result equals that of the loop; the contracts of models in
`sgdec.testing` check it.

`encoder_decoder` joins any encoder and any decoder; encoders and decoders are in the files of their layers, and
`encoders` maps names to encoders. `gnmt` does not use it, because its products can be quantised.

For decoding a model is frozen: `kernels` computes its matrix products, `quantisation` those of a quantised
checkpoint, and a model's ``freeze`` lists its products and the maximum size of their inputs. `jointly` makes the rows
of different sentences independent, and `cuda_graphs` records the step on a GPU.
"""
