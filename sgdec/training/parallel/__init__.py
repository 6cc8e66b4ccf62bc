"""Training by several processes, started by torchrun: ``sgdec train --parallel data|model|hybrid``.

Shared by all modes:

- `group.py`: the processes of a run; counts the bytes that they send
- `strategy.py`: the interface between the trainer and the modes, and training in one process
- `memory.py`: the optimiser's state in checkpoints, which do not depend on the number of ranks
- `volume.py`: the bytes sent per step, compared with a formula
- `launch.py`: joining the processes of a run, and errors when one of them dies; `farewell.py` reports them on SIGTERM

The modes:

- `data.py`: every rank has the whole model and a share of each batch
- `modes.py`: the models that can be spread over ranks; implemented in `staged.py` and the files that it names
"""
