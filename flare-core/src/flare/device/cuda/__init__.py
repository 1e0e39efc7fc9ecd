"""The CUDA device: programs are captured graphs, rebuilt at load from kernels and pointers in the core.

Preparation reserves one range of addresses (`arena`), lets torch allocate inside it (`torch_pool`), collects
every kernel image that the process loads (`modules`), captures, and describes the graphs by buffer names
(`graph_export`). Serving needs the driver and numpy: it reserves the same range, fills it (`staging`),
rebuilds the graphs (`graph_load`) and launches them (`cuda_device`). Only `torch_pool` imports torch.
"""
