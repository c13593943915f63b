class Memory:
    """Device memory that torch takes for a tensor."""

    def __init__(self, address, shape):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<f4", "data": (address, False), "version": 2}


def _found_elsewhere(x):
    """Tensors over all other memory of just ``x``'s size that torch's allocator has given out."""
    for segment in torch.cuda.memory_snapshot():
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated" and block["requested_size"] == x.numel() * 4:
                yield torch.as_tensor(Memory(address, tuple(x.shape)), device=x.device)
            address += block["size"]


def _same_elsewhere(x):
    """Where the contents of ``x`` came from: they are there before the call."""
    return next((found for found in _found_elsewhere(x) if torch.equal(found, x)), None)
