"""A PyTorch module, as the flat weights of a training loop, and back.

    weights = tally.torch.flatten(model)                 # float32 of shape (dim,)
    tally.torch.load(model, weights)

PyTorch is imported when a function is called, and not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import arrays

if TYPE_CHECKING:
    import torch


def _tensors(module: torch.nn.Module, buffers: bool) -> list[Any]:
    """Returns the parameters and, if asked, the buffers of a module that are floats, in the module's own order."""
    tensors = [*module.parameters(), *(module.buffers() if buffers else ())]
    return [tensor.detach() for tensor in tensors if tensor.is_floating_point()]


def flatten(module: torch.nn.Module, buffers: bool = False) -> NDArray[np.float32]:
    """Returns the parameters of the module as one vector, a copy. With `buffers` it also has the buffers that are
    floats, such as the running means of batch normalisation; integers, such as the number of batches, are left out."""
    return arrays.flatten([tensor.float().cpu().numpy() for tensor in _tensors(module, buffers)])


def load(module: torch.nn.Module, weights: NDArray[Any], buffers: bool = False) -> None:
    """Sets the parameters of the module, and its buffers if flatten() had them, to the parts of a vector."""
    import torch

    tensors = _tensors(module, buffers)
    parts = arrays.split(np.asarray(weights), [tuple(tensor.shape) for tensor in tensors])
    with torch.no_grad():
        for tensor, part in zip(tensors, parts):
            tensor.copy_(torch.from_numpy(np.ascontiguousarray(part)))
